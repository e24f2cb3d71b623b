/*
 * job_internal.h: what job_worker.c and job_store.c share. All of it belongs to one database worker.
 */
#ifndef HYMT_JOB_INTERNAL_H
#define HYMT_JOB_INTERNAL_H

#include "jobs.h"

#include "utils/array.h"
#include "utils/memutils.h"

/* Jobs that a worker has claimed at one time; and bytes of their texts, though one of any length is claimed. */
#define HYMT_MOST_JOBS 256
#define HYMT_MOST_JOB_BYTES (4 * 1024 * 1024)

/* How long an attempt is its worker's unless that prolongs it, ms. */
#define HYMT_JOB_LEASE_MS (10 * 60 * 1000)

typedef enum HymtJobStage
{
	HYMT_JOB_CLAIMED,			/* in the transaction that is open */
	HYMT_JOB_TO_ASK,			/* waits for room in the queue */
	HYMT_JOB_ASKED,
	HYMT_JOB_ANSWERED,			/* has an outcome */
	HYMT_JOB_DECIDED,			/* has an ending */
	HYMT_JOB_STORED				/* in the transaction that is open */
} HymtJobStage;

/* What becomes of a job: a row's values. */
typedef struct HymtJobEnding
{
	const char *state;			/* "queued": another attempt follows */
	text	   *translation;	/* NULL: null */
	char		sqlstate[6];	/* empty: no error */
	char	   *message;		/* in the server encoding; NULL: none */
	TimestampTz next_attempt;	/* 0: none, or at once */
	bool		uncounted;		/* it was no attempt: nothing of this job kept it from success */
} HymtJobEnding;

typedef struct HymtJob
{
	HymtJobStage stage;
	bool		committed;		/* its claim is */
	MemoryContext context;		/* of everything here */
	int64		id;
	int64		token;
	Oid			owner;
	int			attempts;		/* this one included */
	TimestampTz lease_until;
	text	   *source;
	HymtOrder	order;
	const char *utf8;			/* the source */
	Size		length;
	HymtRequestHandle *request; /* while ASKED */
	HymtOutcome outcome;
	HymtJobEnding ending;
	TimestampTz not_before;		/* its row was locked, when it is DECIDED */

	/* of a job for a column; invalid: it is for its owner */
	Oid			relation;
	NameData	trigger;
	ArrayType  *key_columns;
	ArrayType  *key;
	text	   *former;
} HymtJob;

/* --- job_store.c: statements, to be called with the rights of the table's owner, connected to SPI -------------------- */

typedef struct HymtJobStore
{
	const char *table;			/* for statements */
} HymtJobStore;

/* A row that was claimed; its values are SPI's until the next statement. */
typedef void (*HymtJobReader) (int64 token, TimestampTz lease_until, int row);

/*
 * Claims jobs of a priority above an id, and returns how many; `read` is called for each. *last: the last id that was
 * seen; *full: there may be more.
 */
extern int	hymt_job_store_claim(const HymtJobStore *store, int priority, int64 above, int most, Size most_bytes, int64 token,
								 HymtJobReader read, int64 *last, bool *full);

/* The same for those whose time to be tried again has come. */
extern int	hymt_job_store_claim_due(const HymtJobStore *store, int most, Size most_bytes, int64 token, HymtJobReader read,
									 bool *full);

/* When the next one will be tried again; 0: none will. */
extern TimestampTz hymt_job_store_next_attempt(const HymtJobStore *store);

/*
 * Attempts of workers that are no more are over: all that are running, or those whose lease ended from one time to
 * another. False when some rows are locked: then once more, later. *lowest: the lowest id of those that are ready again,
 * or what it was. *dead is set when some will not be tried again.
 */
extern bool hymt_job_store_take_back(const HymtJobStore *store, bool all, TimestampTz from, TimestampTz to, int64 *lowest,
									 bool *dead);

/* Marks those in `jobs` whose row is not that attempt any more: sets gone[i]. With lock: sets locked[i] if that is not to be had now. */
extern void hymt_job_store_look(const HymtJobStore *store, HymtJob *const *jobs, int count, bool lock, bool *gone, bool *locked);

/* Writes endings; rows must be locked. Tells listeners of those that have ended. */
extern void hymt_job_store_endings(const HymtJobStore *store, HymtJob *const *jobs, int count);

extern void hymt_job_store_prolong(const HymtJobStore *store, HymtJob *const *jobs, int count, TimestampTz lease_until);

/*
 * Deletes jobs that ended before a time, some in each call; true when there may be more. *from is where it has come to.
 * *oldest: when the oldest one that is left ended; 0: none is.
 */
extern bool hymt_job_store_delete(const HymtJobStore *store, TimestampTz before, TimestampTz *from, TimestampTz *oldest);

/* --- job_row.c ---------------------------------------------------------------------------------------------------- */

/*
 * Fills a job from a row of SPI's that was claimed, and looks up what can be known without the engine: DECIDED then, or
 * ANSWERED; else its stage stays.
 */
extern void hymt_job_read(HymtJob *job, int row);

/* Makes a job that was ANSWERED a DECIDED one. */
extern void hymt_job_decide(HymtJob *job);

/* Endings: it waits until an engine is to be had, and that was no attempt; it is tried again after a while. */
extern void hymt_job_wait_for_service(HymtJob *job);
extern void hymt_job_try_again(HymtJob *job);

/* In PG_CATCH: the error is in the job's ending, whose state is to be set, and nowhere else. Returns its SQLSTATE. */
extern int	hymt_job_note_error(HymtJob *job);

/* The engines are not to be had, whatever the text. */
extern bool hymt_job_is_of_service(const HymtOutcome *outcome);

/* --- job_column.c ------------------------------------------------------------------------------------------------- */

/* Fills the column of a job that has its translation, with the rights of the table's owner; may change how the job ends. */
extern void hymt_job_write_column(HymtJob *job);

#endif							/* HYMT_JOB_INTERNAL_H */
