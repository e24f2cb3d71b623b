/*
 * cache_counts.c: what the cache counts, for the view hymt_stat.
 *
 * Runs in every process that uses the cache. Counters change without a lock, so that hits cost no more than they must;
 * a reading adds up what was there at about one moment.
 */
#include "hymt.h"

#include "storage/proc.h"

void
hymt_cache_count(HymtCacheCount what, uint64 number)
{
	HymtCacheStripe *stripe = &hymt_shared->cache.stripe[HYMT_MY_PROCNO % HYMT_CACHE_STRIPES];

	pg_atomic_fetch_add_u64(&stripe->count[what], (int64) number);
}

void
hymt_cache_counts(uint64 sum[HYMT_CACHE_COUNTS])
{
	memset(sum, 0, HYMT_CACHE_COUNTS * sizeof(uint64));
	for (int i = 0; i < HYMT_CACHE_STRIPES; i++)
	{
		for (int what = 0; what < HYMT_CACHE_COUNTS; what++)
			sum[what] += pg_atomic_read_u64(&hymt_shared->cache.stripe[i].count[what]);
	}
}

void
hymt_cache_counts_reset(void)
{
	for (int i = 0; i < HYMT_CACHE_STRIPES; i++)
	{
		for (int what = 0; what < HYMT_CACHE_COUNTS; what++)
			pg_atomic_write_u64(&hymt_shared->cache.stripe[i].count[what], 0);
	}
}
