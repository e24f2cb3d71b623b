/*
 * pool.c: threads that claim the items of a region one by one. Engine process: the CPU device's conductor thread calls,
 * helper threads belong to the pool and run nothing but items.
 *
 * One 64-bit word says it all: the number of the region and how many of its items nobody has claimed yet. Claiming is a
 * compare-and-swap that takes one off, so it fails once the region is another, and a helper that was late, or asleep
 * for the whole region, needs no attention. Work and context are read only after a claim succeeded: from then until the
 * item is counted as done the region cannot end, and so they cannot change.
 */
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pool.h"

#define COUNT_BITS 24
#define COUNT_MASK ((UINT64_C(1) << COUNT_BITS) - 1)

/* How long to look for the next region before sleeping: a little more than the gap between two regions of a step. */
#define SPIN_NANOSECONDS 20000

typedef struct Helper
{
	HymtPool   *pool;
	int			thread;
	pthread_t	id;
} Helper;

struct HymtPool
{
	/* Written by every claim; apart from what is only read meanwhile. */
	_Alignas(64) _Atomic uint64_t word; /* region number << COUNT_BITS | unclaimed items */
	_Alignas(64) _Atomic int done;	/* items of this region done */

	_Alignas(64) HymtPoolWork work;
	void	   *context;
	int			count;
	bool		spin;
	uint64_t	region;

	_Atomic bool stop;
	_Atomic int sleepers;		/* helpers that sleep or are about to */
	_Atomic bool caller_sleeps; /* or is about to */
	pthread_mutex_t lock;
	pthread_cond_t begun;		/* a region has begun, or stop */
	pthread_cond_t finished;	/* its last item is done */

	int			helper_count;
	Helper		helper[];
};

static inline void
relax(void)
{
#if defined(__x86_64__)
	__builtin_ia32_pause();
#elif defined(__aarch64__)
	__asm__ volatile ("yield");
#endif
}

static int64_t
nanoseconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000000000 + now.tv_nsec;
}

/* Does items until none is left to claim. */
static void
work_along(HymtPool *pool, int thread)
{
	uint64_t	word = atomic_load_explicit(&pool->word, memory_order_acquire);

	while ((word & COUNT_MASK) > 0)
	{
		int			count;

		if (!atomic_compare_exchange_weak_explicit(&pool->word, &word, word - 1, memory_order_acq_rel,
												   memory_order_acquire))
			continue;
		count = pool->count;
		pool->work(pool->context, count - (int) (word & COUNT_MASK), thread);
		/* Sequentially consistent with wait_finished(): either it sees this count, or caller_sleeps is seen here. */
		if (atomic_fetch_add(&pool->done, 1) + 1 == count && atomic_load(&pool->caller_sleeps))
		{
			pthread_mutex_lock(&pool->lock);
			pthread_cond_signal(&pool->finished);
			pthread_mutex_unlock(&pool->lock);
		}
		word = atomic_load_explicit(&pool->word, memory_order_acquire);
	}
}

/* Whether there is something to claim, or to stop for, before the time to spin is over. */
static bool
spin_for_region(HymtPool *pool)
{
	int64_t		end;

	if (!pool->spin)
		return false;
	end = nanoseconds() + SPIN_NANOSECONDS;
	do
	{
		for (int i = 0; i < 16; i++)
		{
			if ((atomic_load_explicit(&pool->word, memory_order_relaxed) & COUNT_MASK) > 0 ||
				atomic_load_explicit(&pool->stop, memory_order_relaxed))
				return true;
			relax();
		}
	} while (nanoseconds() < end);
	return false;
}

static void
sleep_for_region(HymtPool *pool)
{
	pthread_mutex_lock(&pool->lock);
	/* Sequentially consistent with hymt_pool_run(): either it sees the sleeper, or its region is seen here. */
	atomic_fetch_add(&pool->sleepers, 1);
	while ((atomic_load(&pool->word) & COUNT_MASK) == 0 && !atomic_load(&pool->stop))
		pthread_cond_wait(&pool->begun, &pool->lock);
	atomic_fetch_sub(&pool->sleepers, 1);
	pthread_mutex_unlock(&pool->lock);
}

static void *
helper_main(void *argument)
{
	Helper	   *helper = argument;
	HymtPool   *pool = helper->pool;

	while (!atomic_load(&pool->stop))
	{
		if (!spin_for_region(pool))
			sleep_for_region(pool);
		work_along(pool, helper->thread);
	}
	return NULL;
}

/* All items are claimed; waits for those that helpers are still at. */
static void
wait_finished(HymtPool *pool)
{
	if (pool->spin)
	{
		int64_t		end = nanoseconds() + SPIN_NANOSECONDS;

		do
		{
			for (int i = 0; i < 16; i++)
			{
				if (atomic_load_explicit(&pool->done, memory_order_acquire) == pool->count)
					return;
				relax();
			}
		} while (nanoseconds() < end);
	}
	pthread_mutex_lock(&pool->lock);
	atomic_store(&pool->caller_sleeps, true);
	while (atomic_load(&pool->done) != pool->count)
		pthread_cond_wait(&pool->finished, &pool->lock);
	atomic_store(&pool->caller_sleeps, false);
	pthread_mutex_unlock(&pool->lock);
}

void
hymt_pool_run(HymtPool *pool, int count, HymtPoolWork work, void *context)
{
	if (pool->helper_count == 0 || count <= 1)
	{
		for (int item = 0; item < count; item++)
			work(context, item, 0);
		return;
	}

	pool->work = work;
	pool->context = context;
	pool->count = count;
	atomic_store_explicit(&pool->done, 0, memory_order_relaxed);
	pool->region++;
	atomic_store(&pool->word, pool->region << COUNT_BITS | (uint64_t) count);
	if (atomic_load(&pool->sleepers) > 0)
	{
		pthread_mutex_lock(&pool->lock);
		pthread_cond_broadcast(&pool->begun);
		pthread_mutex_unlock(&pool->lock);
	}
	work_along(pool, 0);
	if (atomic_load_explicit(&pool->done, memory_order_acquire) != count)
		wait_finished(pool);
}

void
hymt_pool_close(HymtPool *pool)
{
	if (pool == NULL)
		return;
	pthread_mutex_lock(&pool->lock);
	atomic_store(&pool->stop, true);
	pthread_cond_broadcast(&pool->begun);
	pthread_mutex_unlock(&pool->lock);
	for (int i = 0; i < pool->helper_count; i++)
		pthread_join(pool->helper[i].id, NULL);
	pthread_cond_destroy(&pool->finished);
	pthread_cond_destroy(&pool->begun);
	pthread_mutex_destroy(&pool->lock);
	free(pool);
}

HymtPool *
hymt_pool_open(int threads, bool spin, HymtError *error)
{
	size_t		size = sizeof(HymtPool) + (size_t) (threads - 1) * sizeof(Helper);
	HymtPool   *pool = aligned_alloc(64, (size + 63) / 64 * 64);
	sigset_t	all;
	sigset_t	before;

	if (pool == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory for %d threads", threads);
		return NULL;
	}
	memset(pool, 0, size);
	pool->spin = spin;
	pthread_mutex_init(&pool->lock, NULL);
	pthread_cond_init(&pool->begun, NULL);
	pthread_cond_init(&pool->finished, NULL);

	/* A new thread inherits the mask. */
	sigfillset(&all);
	pthread_sigmask(SIG_SETMASK, &all, &before);
	for (int i = 0; i < threads - 1; i++)
	{
		Helper	   *helper = &pool->helper[i];
		int			failure;

		helper->pool = pool;
		helper->thread = i + 1;
		failure = pthread_create(&helper->id, NULL, helper_main, helper);
		if (failure != 0)
		{
			pthread_sigmask(SIG_SETMASK, &before, NULL);
			hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "could not start thread %d of %d: %s", i + 2, threads,
					  strerror(failure));
			hymt_pool_close(pool);
			return NULL;
		}
		pool->helper_count++;
	}
	pthread_sigmask(SIG_SETMASK, &before, NULL);
	return pool;
}
