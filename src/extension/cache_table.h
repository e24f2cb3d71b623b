/*
 * cache_table.h: the table hymt_cache, for what reads, writes and clears it, and the list of what is to be written.
 *
 *      cache_table.c       which table that is; backends read it by its index
 *      cache_list.c        translations on their way to it, in shared memory
 *      cache_write.c       sessions put them into the list, the database worker takes them to the table
 *      cache_evict.c       the database worker deletes what is too old or too much
 *      cache_clear.c       the SQL function that deletes
 *      as_owner.c          statements that run with the rights of a table's owner
 *
 *      session -> list (shared memory) -> database worker -> hymt_cache -> any session, standby, parallel worker
 *
 * Rows are only inserted and deleted. The table has no constraint that a row could violate: rows may come by logical
 * replication as well. Nobody trusts the key alone: what makes the question is compared.
 */
#ifndef HYMT_CACHE_TABLE_H
#define HYMT_CACHE_TABLE_H

#include "cache.h"
#include "databases.h"

#include "utils/rel.h"

/* Columns, in the order of the names in cache_table.c. */
typedef enum HymtCacheColumn
{
	HYMT_COLUMN_KEY,
	HYMT_COLUMN_FINGERPRINT,
	HYMT_COLUMN_SCOPE,
	HYMT_COLUMN_SOURCE_LANG,
	HYMT_COLUMN_TARGET_LANG,
	HYMT_COLUMN_OPTIONS,
	HYMT_COLUMN_CONTEXT,
	HYMT_COLUMN_SOURCE,
	HYMT_COLUMN_TRANSLATION,
	HYMT_COLUMN_MODEL,
	HYMT_COLUMN_INPUT_TOKENS,
	HYMT_COLUMN_OUTPUT_TOKENS,
	HYMT_COLUMN_CREATED,
	HYMT_COLUMN_NONCE,
	HYMT_COLUMNS
} HymtCacheColumn;

typedef struct HymtCacheTable
{
	Oid			table;
	Oid			index;			/* of the key; invalid: none that can be used */
	AttrNumber	column[HYMT_COLUMNS];
} HymtCacheTable;

/* --- cache_table.c ------------------------------------------------------------------------------------------------ */

/*
 * Locks the table of the extension in this database, as long as nobody has a lock that conflicts: does not wait. False:
 * none, or not now, or it is not as it should be. The lock stays until the transaction ends, or hymt_cache_table_unlock().
 */
extern bool hymt_cache_table_lock(HymtCacheTable *table, LOCKMODE mode);
extern void hymt_cache_table_unlock(const HymtCacheTable *table, LOCKMODE mode);

/* Why there was no lock just now: there is nothing to be locked. */
extern bool hymt_cache_table_is_missing(void);

/* The same for statements that may wait; raises when there is no such table. */
extern void hymt_cache_table_lock_or_raise(HymtCacheTable *table, LOCKMODE mode);

/* What the columns options and scope say; palloc'ed. Equal for equal questions. */
extern char *hymt_cache_options_text(const HymtOrder *order);
extern char *hymt_cache_scope_text(Oid role);

/* Rows that were made before do not count any more; 0: all do. */
extern TimestampTz hymt_cache_oldest(void);

/* --- cache_list.c ------------------------------------------------------------------------------------------------- */

typedef struct HymtCachePart
{
	const void *data;
	Size		length;
} HymtCachePart;

/* The largest item. */
#define HYMT_CACHE_ITEM_MAX (1024 * 1024)

/* Appends an item made of parts. False when there is no room. *first: there was none of this database before. */
extern bool hymt_cache_list_put(Oid database, const HymtCachePart *parts, int count, bool *first);

/*
 * Copies the oldest items of a database, one after the other, each behind its length as a Size, and each MAXALIGNed; up
 * to `most` of them, and what fits into `room`, which one item of any size does. They stay in the list; *position is to
 * be given to hymt_cache_list_drop(). Returns how many there are.
 */
#define HYMT_CACHE_ROOM (HYMT_CACHE_ITEM_MAX + 1024)
extern int	hymt_cache_list_copy(Oid database, int most, char *buffer, Size room, uint64 *position);

/* These, as far as they are there yet. True when others are left. */
extern bool hymt_cache_list_drop(Oid database, uint64 position, int count);
extern void hymt_cache_list_drop_all(Oid database);

/* --- tasks of the database worker (cache_write.c, cache_evict.c) -------------------------------------------------- */

extern bool hymt_cache_write(const HymtWorkplace *place, TimestampTz *due);
extern bool hymt_cache_written(void);
extern void hymt_cache_write_give_up(void);
extern bool hymt_cache_evict(const HymtWorkplace *place, TimestampTz *due);

/* So many bytes were written: the sizes are looked at after some. */
extern void hymt_cache_evict_soon(Size bytes);

/* Whether the table takes more than its limit, whatever was deleted, and has no room left inside. */
extern bool hymt_cache_is_overgrown(const HymtCacheTable *table);

/* --- as_owner.c --------------------------------------------------------------------------------------------------- */

/*
 * Statements between these two run by SPI with the rights of a table's owner and nobody else's, whatever triggers and
 * expressions the table has, with a fixed search_path. Who raises in between needs not call the second: the end of the
 * (sub)transaction does it.
 */
typedef struct HymtAsOwner
{
	Oid			user;
	int			security;
	int			settings;
} HymtAsOwner;

extern void hymt_as_owner_begin(Oid table, HymtAsOwner *former);
extern void hymt_as_owner_end(const HymtAsOwner *former);

/* Schema and name of a table for a statement, quoted; palloc'ed. */
extern char *hymt_quoted_table(Oid table);

#endif							/* HYMT_CACHE_TABLE_H */
