/*
 * job_calls.c: who waits for which job, and what a transaction has for the worker when it ends.
 *
 * Runs in backends, and in database workers, which wake those who wait. In shared memory there is one place for each
 * process that may wait, by its number: a worker that has ended jobs looks through them. One that was left by a process
 * that is no more costs a wake-up in vain. The lock is a leaf.
 *
 * What a transaction did is remembered in its process until it ends. Of a subtransaction that is rolled back it stays,
 * which costs a look in vain.
 */
#include "hymt.h"
#include "jobs.h"
#include "queue_internal.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "utils/memutils.h"

typedef struct Waiter
{
	Oid			database;
	int64		id;				/* 0: waits for none */
} Waiter;

struct HymtJobCalls
{
	LWLock	   *lock;
	int			count;
	Waiter		waiter[FLEXIBLE_ARRAY_MEMBER];	/* by number of process */
};

static struct
{
	int64		lowest;			/* that it submitted, or that the worker could not claim because of it; 0: none */
	bool		cancelled;
	int64	   *ended;			/* in TopTransactionContext */
	int			ended_count;
	int			ended_room;
}			transaction;

/* --- shared memory ------------------------------------------------------------------------------------------------ */

/* Numbers of processes that can run functions are below this. */
static int
process_count(void)
{
	return MaxBackends;
}

Size
hymt_job_calls_size(void)
{
	return MAXALIGN(add_size(offsetof(HymtJobCalls, waiter), mul_size(process_count(), sizeof(Waiter))));
}

void
hymt_job_calls_init(HymtJobCalls *calls, LWLock *lock)
{
	memset(calls, 0, hymt_job_calls_size());
	calls->lock = lock;
	calls->count = process_count();
}

void
hymt_job_await(int64 id)
{
	HymtJobCalls *calls = hymt_shared->job_calls;

	Assert(HYMT_MY_PROCNO < calls->count);
	LWLockAcquire(calls->lock, LW_EXCLUSIVE);
	calls->waiter[HYMT_MY_PROCNO].database = MyDatabaseId;
	calls->waiter[HYMT_MY_PROCNO].id = id;
	LWLockRelease(calls->lock);
}

static int
compare_ids(const void *left, const void *right)
{
	int64		a = *(const int64 *) left;
	int64		b = *(const int64 *) right;

	return a < b ? -1 : a > b;
}

/* Whether a process waits for one of them, which are sorted. Under the lock. */
static bool
waits_for(const Waiter *waiter, const int64 *ids, int count)
{
	return waiter->id != 0 && waiter->database == MyDatabaseId &&
		bsearch(&waiter->id, ids, count, sizeof(int64), compare_ids) != NULL;
}

static void
wake_waiters(int64 *ids, int count)
{
	HymtJobCalls *calls = hymt_shared->job_calls;

	qsort(ids, count, sizeof(int64), compare_ids);
	for (int i = 0; i < calls->count; i++)
	{
		bool		waits;

		/* Whoever is not seen here has not looked at his job yet, and will see that it has ended. */
		LWLockAcquire(calls->lock, LW_SHARED);
		waits = waits_for(&calls->waiter[i], ids, count);
		LWLockRelease(calls->lock);
		if (waits)
			hymt_wake(i);
	}
}

void
hymt_jobs_ended(int64 *ids, int count)
{
	if (count > 0)
		wake_waiters(ids, count);
}

/* --- transactions ------------------------------------------------------------------------------------------------- */

void
hymt_job_submitted(int64 id)
{
	if (transaction.lowest == 0 || id < transaction.lowest)
		transaction.lowest = id;
}

void
hymt_job_cancelled(int64 id)
{
	if (transaction.ended_count == transaction.ended_room)
	{
		int			room = Max(8, 2 * transaction.ended_room);
		int64	   *ended = MemoryContextAllocHuge(TopTransactionContext, room * sizeof(int64));

		if (transaction.ended_count > 0)
			memcpy(ended, transaction.ended, transaction.ended_count * sizeof(int64));
		transaction.ended = ended;
		transaction.ended_room = room;
	}
	transaction.ended[transaction.ended_count++] = id;
	transaction.cancelled = true;
	/* The worker passes over the row while it is locked. Should this transaction be rolled back, it must come again. */
	hymt_job_submitted(id);
}

/* Raises nothing. The context of the transaction is still there. */
static void
transaction_ends(XactEvent event, void *arg)
{
	bool		committed = event == XACT_EVENT_COMMIT;

	if (event != XACT_EVENT_COMMIT && event != XACT_EVENT_ABORT && event != XACT_EVENT_PREPARE)
		return;
	if (transaction.lowest == 0)
		return;
	/* The end of a prepared transaction tells everything there is, see departure.c. */
	if (event != XACT_EVENT_PREPARE && (committed || transaction.cancelled))
		hymt_database_wake_for_jobs(MyDatabaseId, transaction.lowest, committed && transaction.cancelled);
	if (committed)
		hymt_jobs_ended(transaction.ended, transaction.ended_count);
	memset(&transaction, 0, sizeof(transaction));
}

void
hymt_jobs_prepared_ended(void)
{
	hymt_database_wake_for_jobs(MyDatabaseId, 1, true);
	hymt_jobs_wake_all();
}

void
hymt_jobs_wake_all(void)
{
	HymtJobCalls *calls = hymt_shared->job_calls;

	for (int i = 0; i < calls->count; i++)
	{
		bool		waits;

		LWLockAcquire(calls->lock, LW_SHARED);
		waits = calls->waiter[i].id != 0 && calls->waiter[i].database == MyDatabaseId;
		LWLockRelease(calls->lock);
		if (waits)
			hymt_wake(i);
	}
}

void
hymt_job_calls_register(void)
{
	RegisterXactCallback(transaction_ends, NULL);
}
