/*
 * prefix_cache.c: users of KV pages and the tree of those whose tokens are known.
 *
 * Runs in the engine, in the scheduler's thread. Owns only book-keeping; no content of a page is ever read here.
 *
 * The list of unused pages is in the order of their last use, and a sequence gives its pages back from the last to the
 * first. As everybody who uses a page uses those before it, a page always stands in the list before the page that
 * precedes it in the text (or that one is in use): taking the oldest never cuts a path in the middle.
 */
#include "prefix_cache.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

/* Beginnings of pages are compared with so many candidates, the latest first: a search must not take long. */
#define CANDIDATES_MAX 64

struct HymtPrefixPage
{
	int32_t		tokens[HYMT_PAGE_TOKENS];
	int32_t		count;			/* of tokens that are known; 0: the page is not in the tree */
	int32_t		before;			/* the page before it in the text, or a root */
	int32_t		users;
	int32_t		next_by_first;
	int32_t		next_by_all;
	int32_t		older;			/* neighbours in the list of unused pages */
	int32_t		newer;
	double		unused_since;
};

bool
hymt_prefix_init(HymtPrefixCache *cache, int32_t count, int32_t unused_max)
{
	memset(cache, 0, sizeof(*cache));
	cache->oldest = cache->newest = -1;
	cache->unused_max = unused_max;
	cache->bucket_count = 16;
	while (cache->bucket_count < (uint32_t) count)
		cache->bucket_count *= 2;
	cache->page = calloc((size_t) (count > 0 ? count : 1), sizeof(HymtPrefixPage));
	cache->by_first = malloc(sizeof(int32_t) * cache->bucket_count);
	cache->by_all = malloc(sizeof(int32_t) * cache->bucket_count);
	if (cache->page == NULL || cache->by_first == NULL || cache->by_all == NULL ||
		!hymt_pages_init(&cache->pages, count))
	{
		hymt_prefix_destroy(cache);
		return false;
	}
	for (uint32_t i = 0; i < cache->bucket_count; i++)
		cache->by_first[i] = cache->by_all[i] = -1;
	return true;
}

void
hymt_prefix_destroy(HymtPrefixCache *cache)
{
	hymt_pages_destroy(&cache->pages);
	free(cache->page);
	free(cache->by_first);
	free(cache->by_all);
	memset(cache, 0, sizeof(*cache));
}

int32_t
hymt_prefix_available(const HymtPrefixCache *cache)
{
	return cache->pages.free_count + cache->unused;
}

/* --- the tree ---------------------------------------------------------------------------------------------------- */

static uint32_t
bucket_of(const HymtPrefixCache *cache, int32_t before, const int32_t *tokens, int32_t count)
{
	uint64_t	hash = (uint32_t) before;

	for (int32_t i = 0; i < count; i++)
		hash = (hash ^ (uint32_t) tokens[i]) * UINT64_C(0x9e3779b97f4a7c15) + (hash >> 29);
	hash *= UINT64_C(0x9e3779b97f4a7c15);
	return (uint32_t) (hash >> 32) & (cache->bucket_count - 1);
}

static int32_t *
first_bucket(const HymtPrefixCache *cache, int32_t before, const int32_t *tokens)
{
	return &cache->by_first[bucket_of(cache, before, tokens, 1)];
}

static int32_t *
all_bucket(const HymtPrefixCache *cache, int32_t before, const int32_t *tokens)
{
	return &cache->by_all[bucket_of(cache, before, tokens, HYMT_PAGE_TOKENS)];
}

/* Take a page out of the tree. */
static void
forget(HymtPrefixCache *cache, int32_t number)
{
	HymtPrefixPage *page = &cache->page[number];
	int32_t    *link = first_bucket(cache, page->before, page->tokens);

	while (*link != number)
		link = &cache->page[*link].next_by_first;
	*link = page->next_by_first;
	if (page->count == HYMT_PAGE_TOKENS)
	{
		link = all_bucket(cache, page->before, page->tokens);
		while (*link != number)
			link = &cache->page[*link].next_by_all;
		*link = page->next_by_all;
	}
	page->count = 0;
	cache->version++;
}

static int32_t
common(const HymtPrefixPage *page, const int32_t *tokens, int32_t count)
{
	int32_t		same = 0;

	while (same < count && same < page->count && page->tokens[same] == tokens[same])
		same++;
	return same;
}

/* The full page behind `before` with exactly these tokens, or -1. */
static int32_t
find_full(const HymtPrefixCache *cache, int32_t before, const int32_t *tokens)
{
	int32_t		number = *all_bucket(cache, before, tokens);

	while (number >= 0 && (cache->page[number].before != before ||
						   common(&cache->page[number], tokens, HYMT_PAGE_TOKENS) < HYMT_PAGE_TOKENS))
		number = cache->page[number].next_by_all;
	return number;
}

int32_t
hymt_prefix_find(const HymtPrefixCache *cache, int32_t before, const int32_t *tokens, int32_t count, int32_t *matched)
{
	int32_t		best = -1;
	int32_t		number;

	*matched = 0;
	if (count < 1)
		return -1;
	if (count >= HYMT_PAGE_TOKENS && (best = find_full(cache, before, tokens)) >= 0)
	{
		*matched = HYMT_PAGE_TOKENS;
		return best;
	}
	number = *first_bucket(cache, before, tokens);
	for (int candidates = 0; number >= 0 && candidates < CANDIDATES_MAX; number = cache->page[number].next_by_first)
	{
		const HymtPrefixPage *page = &cache->page[number];
		int32_t		same;

		if (page->before != before)
			continue;
		candidates++;
		same = common(page, tokens, count);
		if (same > *matched)
		{
			best = number;
			*matched = same;
		}
	}
	return best;
}

int32_t
hymt_prefix_know(HymtPrefixCache *cache, int32_t before, int32_t number, const int32_t *tokens, int32_t count)
{
	HymtPrefixPage *page = &cache->page[number];
	int32_t		other = count == HYMT_PAGE_TOKENS ? find_full(cache, before, tokens) : -1;

	assert(page->users > 0 && count >= 1 && count <= HYMT_PAGE_TOKENS);
	if (other == number || page->count >= count)
		return number;
	if (other >= 0)
	{
		hymt_prefix_use(cache, other);
		if (page->count > 0)
			forget(cache, number);
		hymt_prefix_release(cache, &number, 1, 0);
		return other;
	}
	if (page->count == 0)
	{
		int32_t    *bucket = first_bucket(cache, before, tokens);

		page->before = before;
		page->next_by_first = *bucket;
		*bucket = number;
	}
	memcpy(page->tokens, tokens, sizeof(int32_t) * (size_t) count);
	page->count = count;
	if (count == HYMT_PAGE_TOKENS)
	{
		int32_t    *bucket = all_bucket(cache, before, tokens);

		page->next_by_all = *bucket;
		*bucket = number;
	}
	cache->version++;
	return number;
}

/* --- users ------------------------------------------------------------------------------------------------------- */

static void
append_unused(HymtPrefixCache *cache, int32_t number, double now)
{
	HymtPrefixPage *page = &cache->page[number];

	page->unused_since = now;
	page->older = cache->newest;
	page->newer = -1;
	if (cache->newest >= 0)
		cache->page[cache->newest].newer = number;
	else
		cache->oldest = number;
	cache->newest = number;
	cache->unused++;
}

static void
remove_unused(HymtPrefixCache *cache, int32_t number)
{
	const HymtPrefixPage *page = &cache->page[number];

	if (page->older >= 0)
		cache->page[page->older].newer = page->newer;
	else
		cache->oldest = page->newer;
	if (page->newer >= 0)
		cache->page[page->newer].older = page->older;
	else
		cache->newest = page->older;
	cache->unused--;
}

static void
free_oldest(HymtPrefixCache *cache)
{
	int32_t		number = cache->oldest;

	remove_unused(cache, number);
	forget(cache, number);
	hymt_pages_give_back(&cache->pages, &number, 1);
}

bool
hymt_prefix_take(HymtPrefixCache *cache, int32_t wanted, int32_t *out)
{
	if (wanted > hymt_prefix_available(cache))
		return false;
	while (cache->pages.free_count < wanted)
		free_oldest(cache);
	hymt_pages_take(&cache->pages, wanted, out);
	for (int32_t i = 0; i < wanted; i++)
		cache->page[out[i]] = (HymtPrefixPage) {.users = 1};
	return true;
}

void
hymt_prefix_use(HymtPrefixCache *cache, int32_t number)
{
	assert(cache->page[number].users > 0 || cache->page[number].count > 0);
	if (cache->page[number].users++ == 0)
		remove_unused(cache, number);
}

void
hymt_prefix_release(HymtPrefixCache *cache, const int32_t *list, int32_t count, double now)
{
	for (int32_t i = count - 1; i >= 0; i--)
	{
		HymtPrefixPage *page = &cache->page[list[i]];

		assert(page->users > 0);
		if (--page->users > 0)
			continue;
		if (page->count > 0)
			append_unused(cache, list[i], now);
		else
			hymt_pages_give_back(&cache->pages, &list[i], 1);
		if (cache->unused > cache->unused_max)
			free_oldest(cache);
	}
}

void
hymt_prefix_expire(HymtPrefixCache *cache, double time)
{
	while (cache->oldest >= 0 && cache->page[cache->oldest].unused_since < time)
		free_oldest(cache);
}
