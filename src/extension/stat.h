/*
 * stat.h: what hymt counts, for the view hymt_stat.
 *
 * Counters are in HymtShared, since the server's start or the last reset, and change under the queue lock only, so that
 * one reading of them is consistent: requests = answered + sum of failed + those that are still outstanding, apart
 * from those that were outstanding at a reset.
 */
#ifndef HYMT_STAT_H
#define HYMT_STAT_H

#include "postgres.h"

#include "datatype/timestamp.h"

/*
 * Histograms of times: bucket 0 counts what took at most 1 ms, bucket i what took more than 2^(i-1) and at most 2^i ms,
 * the last one what took more than 2^16 = 65536 ms.
 */
#define HYMT_STAT_BUCKETS 18

typedef struct HymtHistogram
{
	uint64		bucket[HYMT_STAT_BUCKETS];
	uint64		sum_us;			/* microseconds, of all together */
} HymtHistogram;

/* Why a request ended without a translation; README has the columns. */
typedef enum HymtStatFailure
{
	HYMT_STAT_CANCELLED,		/* no failure: its owner left before there was an answer */
	HYMT_STAT_LANGUAGE,			/* the model does not know it */
	HYMT_STAT_TOO_LONG,
	HYMT_STAT_UNFINISHED,		/* length limit or loop */
	HYMT_STAT_CRASHED,			/* the engine died of this text */
	HYMT_STAT_ENGINE,			/* the engine failed otherwise */
	HYMT_STAT_MEMORY,
	HYMT_STAT_TIMEOUT,			/* hymt.queue_timeout */
	HYMT_STAT_UNAVAILABLE,		/* no worker, or no engine that can be started */
	HYMT_STAT_OTHER,
	HYMT_STAT_FAILURES
} HymtStatFailure;

typedef struct HymtStats
{
	TimestampTz since;
	uint64		requests;
	uint64		joined;			/* of these, requests that were answered by the work for an identical one */
	uint64		answered;
	uint64		failed[HYMT_STAT_FAILURES];
	uint64		retries;		/* claimed requests that went back to the queue */
	uint64		input_tokens;
	uint64		output_tokens;
	uint64		steps;			/* of engines */
	uint64		step_rows;		/* requests that took part in them, summed over steps */
	uint64		degraded_steps; /* steps that were made smaller for want of memory */
	uint64		reused_tokens;	/* positions that engines found computed by an earlier request */
	uint64		preemptions;	/* requests that lost their pages to older ones */
	uint64		restarts;		/* engines that died or were killed */
	HymtHistogram queue_wait;	/* from the session's call to the first claim, of every request that was claimed */
	HymtHistogram total_time;	/* from the session's call to the answer, of those answered */
} HymtStats;

/* What an engine did since it last told. */
typedef struct HymtStatSteps
{
	uint64		steps;
	uint64		rows;			/* requests that took part in them */
	uint64		degraded_steps;
	uint64		reused_tokens;
	uint64		preemptions;
} HymtStatSteps;

struct HymtSlot;

/* Under the queue lock, exclusively. `now` is read before taking it. */
extern void hymt_stat_requested(void);
extern void hymt_stat_joined(void);
extern void hymt_stat_queued(const struct HymtSlot *slot);	/* after it was put into the queue */
extern void hymt_stat_claimed(struct HymtSlot *slot, TimestampTz now);
extern void hymt_stat_answered(const struct HymtSlot *slot, TimestampTz now);	/* DONE or FAILED, result set */
extern void hymt_stat_landed(const struct HymtSlot *follower, const struct HymtSlot *leader, TimestampTz now);
extern void hymt_stat_retried(void);
extern void hymt_stat_steps(const HymtStatSteps *more, TimestampTz now);
extern void hymt_stat_restarted(void);

/* These take the lock. */
extern void hymt_stat_unanswered(HymtStatFailure kind);	/* a request that ends before its answer */
extern void hymt_stat_refused(HymtStatFailure kind);	/* one that is refused before it waits for anything */

#endif							/* HYMT_STAT_H */
