/*
 * jobs.h: translations that are asked for in one transaction and made after it.
 *
 *      jobs.c              SQL functions: submit, result, wait, cancel
 *      job_table.c         the table hymt_job, for all of them
 *      job_calls.c         who waits for which job, and what transactions that end have for the worker (shared memory)
 *      job_worker.c        the task of the database worker: jobs it has claimed, from the claim to the result
 *      job_row.c           … what a row asks for, and what becomes of it
 *      job_store.c         … its statements
 *      job_column.c        … and columns that it fills
 *
 *      session --- INSERT, commit ---> hymt_job --- claim ---> database worker --- bulk requests ---> queue
 *                                         ^                         |
 *      hymt_wait() <--- latch ------------+------ result -----------+
 *
 *                   claim               result
 *      queued ----------------> running ------> done | failed | dead
 *         ^                        |
 *         +--- transient failure --+            both: hymt_cancel() ---> cancelled
 *
 * An attempt has a token. A result is stored only over the attempt that it is of, so that whatever became of the process
 * that made it, no result is stored twice. An attempt also has a lease: one that nobody has prolonged may be made anew.
 * As there is one worker at most in a database, one that begins takes what its predecessors had at once.
 *
 * Nobody holds a transaction open while the engine works.
 */
#ifndef HYMT_JOBS_H
#define HYMT_JOBS_H

#include "databases.h"
#include "session.h"

#include "datatype/timestamp.h"

/* --- job_calls.c -------------------------------------------------------------------------------------------------- */

typedef struct HymtJobCalls HymtJobCalls;

extern Size hymt_job_calls_size(void);
extern void hymt_job_calls_init(HymtJobCalls *calls, LWLock *lock);	/* by the postmaster */
extern void hymt_job_calls_register(void);	/* from _PG_init */

/* This process waits for a job: its latch is set when the job has ended. 0: it waits for none. */
extern void hymt_job_await(int64 id);

/* These have ended, and everybody can see that. Sorts them. */
extern void hymt_jobs_wake_all(void);	/* that wait in this database */
extern void hymt_jobs_ended(int64 *ids, int count);

/* The transaction under way has submitted a job, or ended one that others may have. Its end tells the worker and others. */
extern void hymt_job_submitted(int64 id);
extern void hymt_job_cancelled(int64 id);

/* A prepared transaction of this database has ended, which may have done anything. */
extern void hymt_jobs_prepared_ended(void);

/* --- jobs.c ------------------------------------------------------------------------------------------------------- */

/* Whose result goes to a column of a row. */
typedef struct HymtJobColumn
{
	Oid			relation;
	Oid			owner;
	const char *trigger;		/* its name */
	int			key_count;
	AttrNumber	key_column[INDEX_MAX_KEYS];
	char	   *key[INDEX_MAX_KEYS];	/* as text */
	text	   *former;			/* what the column has; NULL: null */
} HymtJobColumn;

/* Raises when a text can never be translated because of its length or encoding. */
extern void hymt_job_check_text(text *source, const HymtOrder *order);
extern void hymt_job_submit_column(const HymtJobColumn *column, const HymtOrder *order, const char *on_error, text *source);

/* --- job_table.c -------------------------------------------------------------------------------------------------- */

/* The table of the extension in this database; invalid: none. */
extern Oid	hymt_job_table(void);

/* The same, or an error. */
extern Oid	hymt_job_table_or_raise(void);

/* A statement over SPI, whose result must be as expected. */
extern void hymt_job_execute(const char *statement, int count, Oid *types, Datum *values, const char *nulls, bool read_only,
							 int expected);

/* A column of a row of SPI_tuptable, in the current memory context; NULL: null. */
extern char *hymt_job_string(int row, int column);

/* --- tasks of the database worker (job_worker.c) ------------------------------------------------------------------- */

extern bool hymt_jobs_work(const HymtWorkplace *place, TimestampTz *due);	/* in a transaction */
extern bool hymt_jobs_committed(void);	/* after it */
extern bool hymt_jobs_ask(TimestampTz *due);	/* without one */
extern bool hymt_jobs_called(TimestampTz *due); /* there are answers to be stored, or will be then */
extern bool hymt_jobs_busy(void);	/* some are claimed */
extern void hymt_jobs_leave(bool at_once);	/* claims nothing more; at once: gives back what it has */
extern void hymt_jobs_give_up(void);

#endif							/* HYMT_JOBS_H */
