/*
 * pool.h: the threads that share the work of one step.
 *
 * A pool of n threads is the caller of hymt_pool_run() and n - 1 helpers. Work is a region: `count` items that may be
 * done in any order by any thread. The caller works along and returns when every item is done; it never waits for a
 * helper that has not begun an item, so a machine busy with other things only makes a region slower.
 */
#ifndef HYMT_POOL_H
#define HYMT_POOL_H

#include <stdint.h>

#include "error.h"

typedef struct HymtPool HymtPool;

/* One item of a region. thread: 0 for the caller, else 1 … threads - 1, for scratch memory. */
typedef void (*HymtPoolWork) (void *context, int item, int thread);

#define HYMT_POOL_MAX_ITEMS ((1 << 24) - 1)

/*
 * Helpers look for the next region for some microseconds before they sleep, unless `spin` is false, as it must be with
 * more threads than processors. They block all signals. Fails with NO_MEMORY.
 */
extern HymtPool *hymt_pool_open(int threads, bool spin, HymtError *error);
extern void hymt_pool_close(HymtPool *pool);

/* Runs a region; from one thread at a time. */
extern void hymt_pool_run(HymtPool *pool, int count, HymtPoolWork work, void *context);

#endif							/* HYMT_POOL_H */
