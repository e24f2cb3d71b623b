/*
 * databases.h: background work that belongs to one database, and the processes that do it.
 *
 *      databases.c         which databases have work (shared memory); sessions leave word here
 *      departure.c         statements that need a database to themselves: its worker leaves first
 *      launcher.c          starts a database worker where there is work
 *      database_worker.c   the worker: its settings, the extension, the tasks, when to leave
 *
 *      session --- wake, at commit ---> HymtDatabase.wanted --- latch ---> launcher --- registers ---> database worker
 *                                                                                                          |
 *      session --- bar (DROP DATABASE …) ---> leaves at once; else after LINGER_MS without work <----------+
 *
 * A database worker looks for all the work there is whenever it is woken. So nothing is lost with a wake-up that comes
 * twice, or while it is busy; what is done twice is up to each task to prevent. There is at most one in each database.
 * Nothing polls: with no work there is no worker, and the launcher sleeps without a timeout.
 *
 * The lock is a leaf, as the queue's is: under it nothing allocates, raises or logs.
 */
#ifndef HYMT_DATABASES_H
#define HYMT_DATABASES_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"

/* Databases that have something to do at one time. When there are more, the launcher looks into all of them in turn. */
#define HYMT_MAX_DATABASES 256

/* Tasks of a database worker, at most. */
#define HYMT_MAX_TASKS 8

/* A task that failed is not tried again before its time, while the others go on. */
typedef struct HymtTaskRetry
{
	int			failures;		/* in a row */
	TimestampTz not_before;
} HymtTaskRetry;

/*
 * A database with work, a worker or a bar. An entry that has none of these is free. Changed under the lock, exclusively,
 * by whoever; read under it.
 */
typedef struct HymtDatabase
{
	Oid			database;		/* invalid: free */
	bool		wanted;			/* there may be work that no worker has looked for */
	int64		jobs_from;		/* jobs with this number or above may be new to its worker; 0: none. A new worker reads all */
	bool		jobs_cancelled; /* among those that its worker has claimed there may be some that were cancelled */
	TimestampTz due;			/* a worker is wanted then (retry, lease); 0: not */
	HymtTaskRetry retry[HYMT_MAX_TASKS];	/* of each task; a worker that leaves sets `due` accordingly */
	bool		starting;		/* the postmaster was asked for a worker, which has not come up yet */
	int			worker_pid;		/* 0: none */
	int			worker_procno;	/* -1: none */
	int			bars;			/* statements under way that need the database without a worker */
	int			failures;		/* workers that ended by an error, in a row */
	TimestampTz not_before;		/* the next attempt; 0: now */
} HymtDatabase;

typedef struct HymtDatabases
{
	LWLock	   *lock;
	int			launcher_procno;	/* -1: none */
	bool		all_wanted;		/* a database found no entry: look into all */
	bool		crowded;		/* databases wait for a worker of others: none stays longer than it must */
	int			running;		/* entries with a worker or a starting one */
	ConditionVariable left;		/* a worker ended */
	HymtDatabase entry[HYMT_MAX_DATABASES];
} HymtDatabases;

/* --- databases.c -------------------------------------------------------------------------------------------------- */

extern void hymt_databases_init(HymtDatabases *databases, LWLock *lock);	/* by the postmaster */

/* There may be work in a database now. From any process; at once, so what a transaction wrote may not be visible yet. */
extern void hymt_database_wake(Oid database);

/* The same, because of jobs: see HymtDatabase. */
extern void hymt_database_wake_for_jobs(Oid database, int64 from, bool cancelled);

/* The same for this session's database when, and if, the current transaction commits. */
extern void hymt_database_wake_at_commit(void);
extern void hymt_databases_register_callbacks(void);	/* from _PG_init */

/*
 * The entry of a database; NULL when there is none, and with `make` when the table is full. Under the lock, exclusively
 * with `make`.
 */
extern HymtDatabase *hymt_database_find(Oid database, bool make);

/* To be called after something of it became false: frees it when all is. Under the lock, exclusively. */
extern void hymt_database_settle(HymtDatabase *entry);

/* Its worker ended by an error, or never came up: another one is to look, after a while. Under the lock, exclusively. */
extern void hymt_database_failed(HymtDatabase *entry, TimestampTz now);

/* When to try again after so many failures in a row: 1 s, twice that each time, up to a minute. */
extern TimestampTz hymt_retry_time(int failures, TimestampTz now);

/* --- departure.c -------------------------------------------------------------------------------------------------- */

extern void hymt_departure_init(void);	/* from _PG_init, while preloading */

/* --- launcher.c, database_worker.c -------------------------------------------------------------------------------- */

extern void hymt_register_launcher(void);	/* from _PG_init, while preloading */
extern PGDLLEXPORT void hymt_launcher_main(Datum argument);
extern PGDLLEXPORT void hymt_database_worker_main(Datum argument);

/* --- extension.c -------------------------------------------------------------------------------------------------- */

/*
 * The schema of the extension hymt, by its OID; invalid: it is gone. True when its version is that of this library: its
 * objects are then those of sql/hymt.sql.
 */
extern bool hymt_read_extension(Oid extension, Oid *schema);

/* --- tasks of a database worker ----------------------------------------------------------------------------------- */

/* What a task may count on: the extension is there, in a version that this library knows, and stays in the transaction. */
typedef struct HymtWorkplace
{
	Oid			extension;
	Oid			schema;			/* of the extension's objects */
} HymtWorkplace;

/*
 * Does a bounded piece of work in the transaction that is open, under a snapshot. True when there may be more to do at
 * once; *due is made earlier when there will be some later. What it raises ends the transaction, and the worker tries
 * again after a while; a task whose items can fail by themselves must see to it that one does not keep back the others.
 * It may not wait for locks that others hold for long, as it has one on the extension.
 */
typedef bool (*HymtTask) (const HymtWorkplace *place, TimestampTz *due);

/* Makes a time earlier: to be due in so many milliseconds, too. */
extern void hymt_be_due(TimestampTz *due, int milliseconds);

#endif							/* HYMT_DATABASES_H */
