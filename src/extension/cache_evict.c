/*
 * cache_evict.c: deletes what is too old or too much in the table hymt_cache.
 *
 * Runs in database workers. The oldest rows go first: to know which were used last, each use would have to be written.
 * Deletes some rows in each transaction, in the order of the index on their age.
 *
 * Size: the files never shrink (a truncation would lock the table), and rows that were deleted count until they are
 * vacuumed. So the limit is for the rows that are left, which are measured in a sample when the files are larger than
 * that. Autovacuum makes the room of deleted rows free for others; should it not come, nothing is written from twice the
 * limit on.
 */
#include "hymt.h"
#include "cache_table.h"

#include "access/relation.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "storage/freespace.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/rel.h"
#include "utils/timestamp.h"

/* In one transaction. */
#define MOST_ROWS 1000
/* When so many bytes were written, a 64th of the limit or at least this, sizes are looked at again. */
#define LEAST_WRITTEN (256 * 1024)
/* How many pages the sample has, roughly. */
#define SAMPLE_PAGES 1000
/* What a row takes beside its columns of variable length: headers, numbers, its entries in both indexes. */
#define ROW_OVERHEAD 180
/* So much is left when the limit was passed. */
#define LEFT_SHARE 0.9
/* Pages with so much room are room for new rows. */
#define ROOM_BYTES (BLCKSZ / 4)

static Size written = SIZE_MAX / 2; /* since sizes were looked at; a new process looks at once */
static int64 rows_left = 0;		/* to be deleted, because there are too many */
static TimestampTz deleted_up_to = DT_NOBEGIN;	/* what is older was deleted by this process */
static bool under_way = false;	/* or, at the beginning: it failed */

void
hymt_cache_evict_soon(Size bytes)
{
	written += bytes;
}

static int64
limit_bytes(void)
{
	return (int64) hymt_cache_max_size * 1024 * 1024;
}

static int64
file_bytes(Oid table)
{
	return DatumGetInt64(DirectFunctionCall1(pg_total_relation_size, ObjectIdGetDatum(table)));
}

static bool
has_room(Oid relation)
{
	Relation	open = try_relation_open(relation, AccessShareLock);
	bool		room;

	if (open == NULL)
		return false;
	room = RelationGetNumberOfBlocks(open) == 0 ||
		BlockNumberIsValid(GetPageWithFreeSpace(open, ROOM_BYTES));
	relation_close(open, AccessShareLock);
	return room;
}

static Oid
toast_of(Oid table)
{
	Relation	open = try_relation_open(table, AccessShareLock);
	Oid			toast = open != NULL ? open->rd_rel->reltoastrelid : InvalidOid;

	if (open != NULL)
		relation_close(open, AccessShareLock);
	return toast;
}

bool
hymt_cache_is_overgrown(const HymtCacheTable *table)
{
	Oid			toast;

	if (hymt_cache_max_size == 0 || file_bytes(table->table) < 2 * limit_bytes())
		return false;
	toast = toast_of(table->table);
	return !has_room(table->table) || (OidIsValid(toast) && !has_room(toast));
}

/* --- statements --------------------------------------------------------------------------------------------------- */

static void
execute(const char *statement, int count, Oid *types, Datum *values, bool read_only, int expected)
{
	int			result = SPI_execute_with_args(statement, count, types, values, NULL, read_only, 0);

	if (result != expected)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
}

/* Rows and bytes of what is left, scaled up from a sample. */
static void
measure(Oid table, int64 pages, int64 *rows, int64 *bytes)
{
	double		percentage = Min(100.0 * SAMPLE_PAGES / Max(pages, 1), 100.0);
	Oid			types[] = {FLOAT4OID};
	Datum		values[] = {Float4GetDatum((float4) percentage)};
	bool		isnull;

	execute(psprintf("SELECT count(*), coalesce(sum(pg_column_size(key) + pg_column_size(fingerprint)"
					 " + pg_column_size(scope) + pg_column_size(source_lang) + pg_column_size(target_lang)"
					 " + pg_column_size(options) + pg_column_size(context) + pg_column_size(source)"
					 " + pg_column_size(translation) + pg_column_size(model) + %d), 0)::bigint"
					 " FROM %s TABLESAMPLE SYSTEM ($1)", ROW_OVERHEAD, hymt_quoted_table(table)),
			lengthof(types), types, values, true, SPI_OK_SELECT);
	*rows = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
	*bytes = DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull));
	*rows = (int64) (*rows * 100.0 / percentage);
	*bytes = (int64) (*bytes * 100.0 / percentage);
}

static int64
pages_of(Oid table)
{
	Relation	open = relation_open(table, AccessShareLock);
	int64		pages = RelationGetNumberOfBlocks(open);

	relation_close(open, AccessShareLock);
	return pages;
}

/* How many of the oldest rows have to go. */
static int64
surplus(Oid table)
{
	int64		rows;
	int64		bytes;

	if (hymt_cache_max_size == 0 || file_bytes(table) <= limit_bytes())
		return 0;
	measure(table, pages_of(table), &rows, &bytes);
	if (rows == 0 || bytes <= limit_bytes())
		return 0;
	return (int64) ((bytes - limit_bytes() * LEFT_SHARE) / ((double) bytes / rows)) + 1;
}

/* Deletes the oldest rows that are older than a time, not more than `most`; returns how many. */
static int
delete_oldest(Oid table, TimestampTz than, int64 most)
{
	const char *name = hymt_quoted_table(table);
	Oid			types[] = {TIMESTAMPTZOID, TIMESTAMPTZOID, INT8OID};
	Datum		values[] = {
		TimestampTzGetDatum(deleted_up_to), TimestampTzGetDatum(than), Int64GetDatum(Min(most, MOST_ROWS))
	};
	bool		isnull;
	Datum		last;

	/* The first condition spares the scan the rows that were deleted by the last ones and are not vacuumed yet. */
	execute(psprintf("WITH gone AS (DELETE FROM %s WHERE ctid = ANY (ARRAY(SELECT ctid FROM %s"
					 " WHERE created >= $1 AND created < $2 ORDER BY created, nonce LIMIT $3)) RETURNING created)"
					 " SELECT count(*)::int, max(created) FROM gone", name, name),
			lengthof(types), types, values, false, SPI_OK_SELECT);
	last = SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 2, &isnull);
	if (!isnull)
		deleted_up_to = DatumGetTimestampTz(last);
	return DatumGetInt32(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/* --- the task ----------------------------------------------------------------------------------------------------- */

static bool
is_time_to_look(void)
{
	return written >= Max(limit_bytes() / 64, LEAST_WRITTEN);
}

/* True when there is more to be deleted. */
static bool
delete_some(Oid table)
{
	TimestampTz oldest = hymt_cache_oldest();
	int			deleted = 0;
	bool		more = false;

	if (is_time_to_look())
	{
		deleted_up_to = DT_NOBEGIN;
		rows_left = surplus(table);
		written = 0;
	}
	if (oldest != 0)
	{
		deleted = delete_oldest(table, oldest, MOST_ROWS);
		more = deleted == MOST_ROWS;
	}
	if (!more && rows_left > 0)
	{
		int			also = delete_oldest(table, DT_NOEND, rows_left);

		rows_left = also > 0 ? rows_left - also : 0;
		more = rows_left > 0;
		deleted += also;
	}
	hymt_cache_count(HYMT_CACHE_TABLE_EVICTIONS, deleted);
	return more;
}

bool
hymt_cache_evict(const HymtWorkplace *place, TimestampTz *due)
{
	HymtCacheTable table;
	HymtAsOwner former;
	bool		more;

	/* What was not done may have been counted. */
	if (under_way)
		written = SIZE_MAX / 2;
	under_way = false;
	if (hymt_cache_oldest() == 0 && rows_left == 0 && !is_time_to_look())
		return false;
	/* Whoever has the table for himself keeps it as it is. */
	if (!hymt_cache_table_lock(&table, RowExclusiveLock))
		return false;
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE, GUC_ACTION_LOCAL, true, 0, false);
	under_way = true;
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	hymt_as_owner_begin(table.table, &former);
	more = delete_some(table.table);
	hymt_as_owner_end(&former);
	SPI_finish();
	under_way = false;
	return more;
}
