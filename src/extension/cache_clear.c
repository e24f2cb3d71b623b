/*
 * cache_clear.c: hymt_cache_clear().
 *
 * Runs in backends. Deletes rows of the table hymt_cache in the caller's transaction. The first level and what is on its
 * way to the table are forgotten when that commits; the lock on the table keeps the database worker from writing until
 * then. What is being translated meanwhile is stored afterwards.
 */
#include "hymt.h"
#include "cache_table.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"

PG_FUNCTION_INFO_V1(hymt_cache_clear);

/* Sessions that begin to read now do not find the rows; the memory would still have them. */
static bool clear_at_commit = false;

static void
transaction_ends(XactEvent event, void *argument)
{
	bool		clear = clear_at_commit;

	switch (event)
	{
		case XACT_EVENT_COMMIT:
			clear_at_commit = false;
			if (clear)
			{
				hymt_cache_list_drop_all(MyDatabaseId);
				hymt_cache_memory_clear(MyDatabaseId);
			}
			break;
		case XACT_EVENT_PRE_PREPARE:
			if (clear)
				ereport(ERROR,
						(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
						 errmsg("cannot PREPARE a transaction that has cleared the cache of translations")));
			break;
		case XACT_EVENT_ABORT:
			clear_at_commit = false;
			break;
		default:
			break;
	}
}

static Datum
language_argument(const char *name, text *code)
{
	return CStringGetTextDatum(hymt_order_language(name, code)->code);
}

static int64
delete_rows(Oid table, Datum *values, const char *nulls)
{
	Oid			types[] = {TEXTOID, TEXTOID, TEXTOID};
	HymtAsOwner former;
	int64		deleted;
	int			result;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	hymt_as_owner_begin(table, &former);
	result = SPI_execute_with_args(psprintf("DELETE FROM %s WHERE ($1 IS NULL OR source_lang = $1)"
											" AND ($2 IS NULL OR target_lang = $2) AND ($3 IS NULL OR model = $3)",
											hymt_quoted_table(table)),
								   lengthof(types), types, values, nulls, false, 0);
	if (result != SPI_OK_DELETE)
		elog(ERROR, "SPI_execute_with_args failed: %s", SPI_result_code_string(result));
	deleted = (int64) SPI_processed;
	hymt_as_owner_end(&former);
	SPI_finish();
	return deleted;
}

Datum
hymt_cache_clear(PG_FUNCTION_ARGS)
{
	static bool registered = false;
	HymtCacheTable table;
	Datum		values[3] = {0};
	char		nulls[3] = {'n', 'n', 'n'};

	hymt_check_preloaded();
	PreventCommandIfReadOnly("hymt_cache_clear()");
	if (!PG_ARGISNULL(0))
		values[0] = language_argument("src", PG_GETARG_TEXT_PP(0));
	if (!PG_ARGISNULL(1))
		values[1] = language_argument("tgt", PG_GETARG_TEXT_PP(1));
	if (!PG_ARGISNULL(2))
		values[2] = PG_GETARG_DATUM(2);
	for (int i = 0; i < lengthof(values); i++)
		nulls[i] = PG_ARGISNULL(i) ? 'n' : ' ';
	hymt_cache_table_lock_or_raise(&table, ShareRowExclusiveLock);
	if (!registered)
		RegisterXactCallback(transaction_ends, NULL);
	registered = true;
	clear_at_commit = true;
	PG_RETURN_INT64(delete_rows(table.table, values, nulls));
}
