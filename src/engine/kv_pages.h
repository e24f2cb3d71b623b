/*
 * kv_pages.h: which pages of the device's KV memory are free.
 *
 * A page is an index, 0 … count - 1; what it holds is the device's business. A zeroed struct is an empty allocator.
 */
#ifndef HYMT_KV_PAGES_H
#define HYMT_KV_PAGES_H

#include <stdbool.h>
#include <stdint.h>

typedef struct HymtPages
{
	int32_t    *free_stack;		/* the free pages; the one to be taken next is the last */
	bool	   *taken;			/* [count], to catch a page that is given back twice */
	int32_t		free_count;
	int32_t		count;
} HymtPages;

/* False: out of memory. */
extern bool hymt_pages_init(HymtPages *pages, int32_t count);
extern void hymt_pages_destroy(HymtPages *pages);

/* Take `wanted` pages into out[0 … wanted - 1]; all or none. */
extern bool hymt_pages_take(HymtPages *pages, int32_t wanted, int32_t *out);
extern void hymt_pages_give_back(HymtPages *pages, const int32_t *list, int32_t count);

#endif							/* HYMT_KV_PAGES_H */
