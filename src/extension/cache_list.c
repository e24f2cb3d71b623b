/*
 * cache_list.c: translations on their way to tables, in shared memory.
 *
 * Runs in backends, database workers and the launcher. Owns a fixed number of chunks; an item is a chain of them, and
 * each database has a list of items in the order in which they came. A database may have half of the chunks, so that one
 * whose worker is not to be had does not keep the others from storing.
 *
 * The lock is a leaf. Under it nothing allocates or raises; chunks are filled outside of it. What a crash of the server
 * leaves here is lost.
 */
#include "hymt.h"
#include "cache_table.h"

/* 4 MB in all. */
#define CHUNKS 4096
#define CHUNK_BYTES 1008
#define MOST_CHUNKS (CHUNKS / 2)
#define MOST_DATABASES 64

typedef struct Chunk
{
	int			next;			/* of the item, or in the list of free ones; -1 ends it */
	int			next_item;		/* in the first chunk of an item; -1 ends the list */
	int			chunks;			/* the same: how many it has */
	int			length;			/* the same: of the item */
	char		data[CHUNK_BYTES];
} Chunk;

typedef struct DatabaseList
{
	Oid			database;		/* invalid: free */
	int			head;			/* -1: empty, and then the entry is free */
	int			tail;
	int			chunks;
	uint64		position;		/* of the head: how many have gone before it */
} DatabaseList;

struct HymtCacheList
{
	LWLock	   *lock;
	int			free;			/* -1: none */
	int			free_count;
	uint64		position;		/* where the next list begins: none has a position that another had before */
	DatabaseList of[MOST_DATABASES];
	Chunk		chunk[CHUNKS];
};

StaticAssertDecl(HYMT_CACHE_ITEM_MAX / CHUNK_BYTES < MOST_CHUNKS, "the largest item must find room");

Size
hymt_cache_list_size(void)
{
	return MAXALIGN(sizeof(HymtCacheList));
}

void
hymt_cache_list_init(HymtCacheList *list, LWLock *lock)
{
	memset(list, 0, sizeof(HymtCacheList));
	list->lock = lock;
	list->free = 0;
	list->free_count = CHUNKS;
	for (int i = 0; i < CHUNKS; i++)
		list->chunk[i].next = i + 1 < CHUNKS ? i + 1 : -1;
}

/* --- under the lock ----------------------------------------------------------------------------------------------- */

static DatabaseList *
find(HymtCacheList *list, Oid database, bool make)
{
	DatabaseList *free = NULL;

	for (int i = 0; i < MOST_DATABASES; i++)
	{
		if (list->of[i].database == database)
			return &list->of[i];
		if (free == NULL && !OidIsValid(list->of[i].database))
			free = &list->of[i];
	}
	if (!make || free == NULL)
		return NULL;
	free->database = database;
	free->head = free->tail = -1;
	free->chunks = 0;
	free->position = list->position;
	return free;
}

/* A list without items is none. */
static void
settle(HymtCacheList *list, DatabaseList *of)
{
	if (of->head >= 0)
		return;
	list->position = Max(list->position, of->position);
	of->database = InvalidOid;
}

/* A chain of chunks; -1: there are not so many. */
static int
take_chunks(HymtCacheList *list, int count)
{
	int			first = list->free;
	int			last = first;

	if (count > list->free_count)
		return -1;
	for (int i = 1; i < count; i++)
		last = list->chunk[last].next;
	list->free = list->chunk[last].next;
	list->free_count -= count;
	list->chunk[last].next = -1;
	return first;
}

static void
give_back(HymtCacheList *list, int first)
{
	int			last = first;

	for (; list->chunk[last].next >= 0; last = list->chunk[last].next)
		list->free_count++;
	list->free_count++;
	list->chunk[last].next = list->free;
	list->free = first;
}

static int
reserve(HymtCacheList *list, Oid database, int count)
{
	DatabaseList *of = find(list, database, false);

	return of != NULL && of->chunks + count > MOST_CHUNKS ? -1 : take_chunks(list, count);
}

/* False when there are too many databases. */
static bool
append(HymtCacheList *list, Oid database, int first, bool *is_first)
{
	DatabaseList *of = find(list, database, true);

	if (of == NULL)
		return false;
	*is_first = of->head < 0;
	if (of->head < 0)
		of->head = first;
	else
		list->chunk[of->tail].next_item = first;
	of->tail = first;
	of->chunks += list->chunk[first].chunks;
	return true;
}

static void
drop_head(HymtCacheList *list, DatabaseList *of)
{
	int			first = of->head;

	of->head = list->chunk[first].next_item;
	of->chunks -= list->chunk[first].chunks;
	of->position++;
	give_back(list, first);
}

static void
copy_item(const HymtCacheList *list, int first, char *to)
{
	Size		left = list->chunk[first].length;

	for (int chunk = first; left > 0; chunk = list->chunk[chunk].next)
	{
		Size		here = Min(left, CHUNK_BYTES);

		memcpy(to, list->chunk[chunk].data, here);
		to += here;
		left -= here;
	}
}

/* --- outside of it ------------------------------------------------------------------------------------------------ */

/* The chunks are this process's alone. */
static void
fill(HymtCacheList *list, int first, const HymtCachePart *parts, int count)
{
	int			chunk = first;
	Size		used = 0;

	for (int i = 0; i < count; i++)
	{
		const char *data = parts[i].data;

		for (Size done = 0; done < parts[i].length;)
		{
			Size		here = Min(parts[i].length - done, CHUNK_BYTES - used);

			if (here == 0)
			{
				chunk = list->chunk[chunk].next;
				used = 0;
				continue;
			}
			memcpy(list->chunk[chunk].data + used, data + done, here);
			used += here;
			done += here;
		}
	}
}

bool
hymt_cache_list_put(Oid database, const HymtCachePart *parts, int count, bool *first)
{
	HymtCacheList *list = hymt_shared->cache.list;
	Size		length = 0;
	int			chunks;
	int			item;
	bool		stored = false;

	for (int i = 0; i < count; i++)
		length += parts[i].length;
	chunks = length <= HYMT_CACHE_ITEM_MAX ? Max((length + CHUNK_BYTES - 1) / CHUNK_BYTES, 1) : -1;

	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	item = chunks > 0 ? reserve(list, database, chunks) : -1;
	LWLockRelease(list->lock);
	if (item < 0)
		return false;
	list->chunk[item].next_item = -1;
	list->chunk[item].chunks = chunks;
	list->chunk[item].length = length;
	fill(list, item, parts, count);

	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	stored = append(list, database, item, first);
	if (!stored)
		give_back(list, item);
	LWLockRelease(list->lock);
	return stored;
}

int
hymt_cache_list_copy(Oid database, int most, char *buffer, Size room, uint64 *position)
{
	HymtCacheList *list = hymt_shared->cache.list;
	DatabaseList *of;
	Size		used = 0;
	int			count = 0;

	LWLockAcquire(list->lock, LW_SHARED);
	of = find(list, database, false);
	*position = of != NULL ? of->position : 0;
	for (int item = of != NULL ? of->head : -1; item >= 0 && count < most; item = list->chunk[item].next_item)
	{
		Size		length = list->chunk[item].length;

		if (used + MAXALIGN(sizeof(Size)) + MAXALIGN(length) > room)
			break;
		memcpy(buffer + used, &length, sizeof(Size));
		copy_item(list, item, buffer + used + MAXALIGN(sizeof(Size)));
		used += MAXALIGN(sizeof(Size)) + MAXALIGN(length);
		count++;
	}
	LWLockRelease(list->lock);
	return count;
}

bool
hymt_cache_list_drop(Oid database, uint64 position, int count)
{
	HymtCacheList *list = hymt_shared->cache.list;
	DatabaseList *of;
	bool		left = false;

	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	of = find(list, database, false);
	if (of != NULL)
	{
		while (of->head >= 0 && of->position < position + count)
			drop_head(list, of);
		left = of->head >= 0;
		settle(list, of);
	}
	LWLockRelease(list->lock);
	return left;
}

void
hymt_cache_list_drop_all(Oid database)
{
	HymtCacheList *list = hymt_shared->cache.list;
	DatabaseList *of;

	LWLockAcquire(list->lock, LW_EXCLUSIVE);
	of = find(list, database, false);
	while (of != NULL && of->head >= 0)
		drop_head(list, of);
	if (of != NULL)
		settle(list, of);
	LWLockRelease(list->lock);
}
