/*
 * kv_pages.c: the allocator of KV pages.
 *
 * Runs in the engine, in the scheduler's thread. Owns only its own book-keeping, never the pages' memory. Pages are all
 * of one size and need not be neighbours, so there is no fragmentation and a stack is enough.
 */
#include "kv_pages.h"

#include <assert.h>
#include <stdlib.h>
#include <string.h>

bool
hymt_pages_init(HymtPages *pages, int32_t count)
{
	memset(pages, 0, sizeof(*pages));
	pages->free_stack = malloc(sizeof(int32_t) * (size_t) (count > 0 ? count : 1));
	pages->taken = calloc((size_t) (count > 0 ? count : 1), sizeof(bool));
	if (pages->free_stack == NULL || pages->taken == NULL)
	{
		hymt_pages_destroy(pages);
		return false;
	}
	/* Low pages first, so that a lightly used device touches little of its KV memory. */
	for (int32_t i = 0; i < count; i++)
		pages->free_stack[i] = count - 1 - i;
	pages->free_count = count;
	pages->count = count;
	return true;
}

void
hymt_pages_destroy(HymtPages *pages)
{
	free(pages->free_stack);
	free(pages->taken);
	memset(pages, 0, sizeof(*pages));
}

bool
hymt_pages_take(HymtPages *pages, int32_t wanted, int32_t *out)
{
	if (wanted > pages->free_count)
		return false;
	for (int32_t i = 0; i < wanted; i++)
	{
		out[i] = pages->free_stack[--pages->free_count];
		pages->taken[out[i]] = true;
	}
	return true;
}

void
hymt_pages_give_back(HymtPages *pages, const int32_t *list, int32_t count)
{
	/* Backwards, so that the pages come out again in the order in which they were taken. */
	for (int32_t i = count - 1; i >= 0; i--)
	{
		assert(list[i] >= 0 && list[i] < pages->count && pages->taken[list[i]]);
		pages->taken[list[i]] = false;
		pages->free_stack[pages->free_count++] = list[i];
	}
}
