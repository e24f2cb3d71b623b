/*
 * prefix_cache.h: the pages of KV memory: who uses them, and which of them begin other sequences, too.
 *
 * A page is an index, 0 … count - 1; what it holds is the device's business. Keys and values of a position depend on the
 * tokens up to it (and on the adapter) alone, so a page is known by the tokens it holds and by the page before it: pages
 * form a tree, whose roots are the adapters. A full page is shared by all sequences that begin with its path. Of a page
 * that is shared in part the first positions are copied.
 *
 * Pages that nobody uses stay known until their memory is wanted or there are too many of them, least recently used first, or
 * until they have not been used for HYMT_PREFIX_TTL seconds.
 */
#ifndef HYMT_PREFIX_CACHE_H
#define HYMT_PREFIX_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "kv_pages.h"

#define HYMT_PREFIX_TTL 300.0

/* The place before the first page of sequences with this adapter. */
#define HYMT_PREFIX_ROOT(adapter) (-1 - (adapter))

typedef struct HymtPrefixPage HymtPrefixPage;

/* A zeroed struct is an empty cache. */
typedef struct HymtPrefixCache
{
	HymtPages	pages;
	HymtPrefixPage *page;		/* [pages.count] */
	int32_t    *by_first;		/* [bucket_count]: known pages, by the page before and the first token */
	int32_t    *by_all;			/* [bucket_count]: full ones, by the page before and all tokens */
	uint32_t	bucket_count;	/* a power of two */
	int32_t		oldest;			/* of those that nobody uses; -1: none */
	int32_t		newest;
	int32_t		unused;			/* their number */
	int32_t		unused_max;
	uint64_t	version;		/* grows whenever a search may find something else than before */
} HymtPrefixCache;

/* False: out of memory. */
extern bool hymt_prefix_init(HymtPrefixCache *cache, int32_t count, int32_t unused_max);
extern void hymt_prefix_destroy(HymtPrefixCache *cache);

/* Pages that can be taken: free ones and those that nobody uses. */
extern int32_t hymt_prefix_available(const HymtPrefixCache *cache);

/* Take `wanted` pages of undefined content into out[0 … wanted - 1]; all or none. */
extern bool hymt_prefix_take(HymtPrefixCache *cache, int32_t wanted, int32_t *out);

/* One more user of a known page. Whoever uses a page uses all pages before it. */
extern void hymt_prefix_use(HymtPrefixCache *cache, int32_t page);

/* One user less, of pages that follow one another. */
extern void hymt_prefix_release(HymtPrefixCache *cache, const int32_t *list, int32_t count, double now);

/*
 * Which page behind `before` (a full page or a root) begins with the most of these tokens. *matched: how many, up to
 * HYMT_PAGE_TOKENS. -1 when none begins with the first.
 */
extern int32_t hymt_prefix_find(const HymtPrefixCache *cache, int32_t before, const int32_t *tokens, int32_t count,
								int32_t *matched);

/*
 * Make known that a used page behind `before` holds these tokens, 1 … HYMT_PAGE_TOKENS of them; again when there are
 * more. Returns the page, or, when another one holds the same tokens, that one: it then has the caller as a user, and
 * the caller's is free.
 */
extern int32_t hymt_prefix_know(HymtPrefixCache *cache, int32_t before, int32_t page, const int32_t *tokens,
								int32_t count);

/* Forget pages that have not been used since `time`. */
extern void hymt_prefix_expire(HymtPrefixCache *cache, double time);

#endif							/* HYMT_PREFIX_CACHE_H */
