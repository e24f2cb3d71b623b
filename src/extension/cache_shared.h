/*
 * cache_shared.h: what the cache has in shared memory, and what workers tell it.
 *
 * Part of HymtShared. Sessions use cache.h.
 */
#ifndef HYMT_CACHE_SHARED_H
#define HYMT_CACHE_SHARED_H

#include "postgres.h"

#include "port/atomics.h"
#include "storage/lwlock.h"

#include "../protocol/frames.h"

/* Where an answer comes from. */
typedef enum HymtCacheLevel
{
	HYMT_CACHE_MISS,
	HYMT_CACHE_MEMORY,
	HYMT_CACHE_TABLE
} HymtCacheLevel;

/* What is counted. A lookup is one of the first three. */
typedef enum HymtCacheCount
{
	HYMT_CACHE_MEMORY_HITS,
	HYMT_CACHE_TABLE_HITS,
	HYMT_CACHE_MISSES,
	HYMT_CACHE_MEMORY_EVICTIONS,	/* answers that made room for others */
	HYMT_CACHE_WRITTEN,			/* rows of the table */
	HYMT_CACHE_DROPPED,			/* answers that were not written: they came faster than they can be */
	HYMT_CACHE_TABLE_EVICTIONS, /* rows of the table that were too old, or too many */
	HYMT_CACHE_COUNTS
} HymtCacheCount;

/* Each process counts in one of these, so that sessions on different processors do not pass one cache line around. */
#define HYMT_CACHE_STRIPES 64
typedef union HymtCacheStripe
{
	pg_atomic_uint64 count[HYMT_CACHE_COUNTS];
	char		pad[PG_CACHE_LINE_SIZE];
} HymtCacheStripe;

typedef struct HymtCacheMemory HymtCacheMemory; /* first level, see cache_memory.c */
typedef struct HymtCacheList HymtCacheList; /* on the way to the second, see cache_list.c */

typedef struct HymtCacheShared
{
	/*
	 * Whose answers are looked up: 64 hexadecimal digits; empty: nobody's. Both change under the queue lock; the number
	 * grows with each change, so that sessions can see without the lock that there was none.
	 */
	pg_atomic_uint32 changes;
	char		fingerprint[HYMT_FINGERPRINT_DIGITS + 1];

	HymtCacheMemory *memory;	/* in a segment of its own; NULL: none */
	HymtCacheList *list;		/* the same */
	HymtCacheStripe stripe[HYMT_CACHE_STRIPES];
} HymtCacheShared;

/* --- cache_counts.c ----------------------------------------------------------------------------------------------- */

extern void hymt_cache_count(HymtCacheCount what, uint64 number);
extern void hymt_cache_counts(uint64 sum[HYMT_CACHE_COUNTS]);
extern void hymt_cache_counts_reset(void);

/* --- cache_model.c ------------------------------------------------------------------------------------------------ */

extern void hymt_cache_shared_init(HymtCacheShared *cache);	/* by the postmaster */

struct HymtDeviceState;

/*
 * By the worker of a device, under the queue lock, exclusively: an engine serves from now on; one is about to be started
 * to serve; phase, or one of these, has changed. `settings` tells apart what engines are started with.
 */
extern void hymt_cache_engine_ready(struct HymtDeviceState *device, uint64 settings);
extern void hymt_cache_engine_starts(struct HymtDeviceState *device, uint64 settings);
extern void hymt_cache_devices_changed(void);

/* --- cache_memory.c ----------------------------------------------------------------------------------------------- */

/* Sizes follow hymt.cache_memory; 0: there is none. The locks are a named tranche. By the postmaster. */
#define HYMT_CACHE_LOCKS "hymt_cache"
extern Size hymt_cache_memory_size(void);
extern int	hymt_cache_memory_locks(void);
extern void hymt_cache_memory_init(HymtCacheMemory *memory);

/* --- cache_list.c ------------------------------------------------------------------------------------------------- */

extern Size hymt_cache_list_size(void);
extern void hymt_cache_list_init(HymtCacheList *list, LWLock *lock);	/* by the postmaster */

#endif							/* HYMT_CACHE_SHARED_H */
