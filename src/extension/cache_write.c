/*
 * cache_write.c: new translations on their way into the table hymt_cache.
 *
 * Sessions leave them in shared memory, whatever becomes of their transactions: what the engine said is true all the
 * same, and the session may be one that cannot write. The database worker inserts them, some hundred in one transaction,
 * without waiting for the disk. What a crash takes away is translated anew.
 *
 * The worker writes with the rights of the table's owner. Items stay in shared memory until they are committed; one that
 * the table does not take is dropped, and does not keep back the others.
 */
#include "hymt.h"
#include "cache_table.h"

#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "executor/spi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/timestamp.h"

/* In one transaction. */
#define MOST_ITEMS 256
/* While somebody else has the table for himself, ms. */
#define LOCKED_TABLE_MS 1000

/* What lies in front of an item's texts: context, source and translation, in UTF-8. */
typedef struct Pending
{
	HymtCacheKey key;
	char		fingerprint[65];
	char		source_lang[HYMT_LANG_MAX];
	char		target_lang[HYMT_LANG_MAX];
	char		adapter[HYMT_ADAPTER_NAME_MAX];
	char		model[HYMT_NAME_MAX];
	Oid			role;
	int			max_new_tokens;
	int			input_tokens;
	int			output_tokens;
	HymtDraw	draw;
	TimestampTz created;
	Size		context_length;
	Size		source_length;
	Size		translation_length;
} Pending;

/* --- sessions ----------------------------------------------------------------------------------------------------- */

static void
fill_item(Pending *item, const HymtCacheQuestion *question, const HymtCacheAnswer *answer)
{
	const HymtOrder *order = question->order;

	memset(item, 0, sizeof(Pending));
	item->key = question->key;
	strlcpy(item->fingerprint, question->fingerprint, sizeof(item->fingerprint));
	strlcpy(item->source_lang, order->source->code, sizeof(item->source_lang));
	strlcpy(item->target_lang, order->target->code, sizeof(item->target_lang));
	strlcpy(item->adapter, order->adapter, sizeof(item->adapter));
	strlcpy(item->model, answer->model, sizeof(item->model));
	item->role = question->role;
	item->max_new_tokens = order->max_new_tokens;
	item->input_tokens = answer->input_tokens;
	item->output_tokens = answer->output_tokens;
	item->draw = order->draw;
	item->created = GetCurrentTimestamp();
	item->context_length = order->context_length;
	item->source_length = question->length;
	item->translation_length = answer->length;
}

void
hymt_cache_write_later(const HymtCacheQuestion *question, const HymtCacheAnswer *answer)
{
	Pending		item;
	HymtCachePart	parts[4];
	bool		first = false;

	/* Nobody writes on a standby. Where there is no table the session has just looked for it. */
	if (RecoveryInProgress() || hymt_cache_table_is_missing())
		return;
	fill_item(&item, question, answer);
	parts[0] = (HymtCachePart) {&item, sizeof(item)};
	parts[1] = (HymtCachePart) {question->order->context, item.context_length};
	parts[2] = (HymtCachePart) {question->utf8, item.source_length};
	parts[3] = (HymtCachePart) {answer->text, item.translation_length};
	if (!hymt_cache_list_put(MyDatabaseId, parts, lengthof(parts), &first))
		hymt_cache_count(HYMT_CACHE_DROPPED, 1);
	/* As long as there are others the worker knows that it has to come. */
	if (first)
		hymt_database_wake(MyDatabaseId);
}

/* --- the database worker ------------------------------------------------------------------------------------------ */

/* What the transaction under way takes out of the list once it is committed. */
static struct
{
	uint64		position;
	int			items;
	uint64		written;
	uint64		dropped;
}			taken;

typedef struct Batch
{
	const Pending *items[MOST_ITEMS];
	int			count;
} Batch;

static void
read_batch(Batch *batch)
{
	char	   *at = palloc(HYMT_CACHE_ROOM);

	batch->count = hymt_cache_list_copy(MyDatabaseId, MOST_ITEMS, at, HYMT_CACHE_ROOM, &taken.position);
	for (int i = 0; i < batch->count; i++)
	{
		Size		length;

		memcpy(&length, at, sizeof(Size));
		at += MAXALIGN(sizeof(Size));
		batch->items[i] = (const Pending *) at;
		at += MAXALIGN(length);
	}
}

/* All of it is settled when the transaction commits. */
static void
take(const Batch *batch, int written)
{
	taken.items = batch->count;
	taken.written = written;
	taken.dropped = batch->count - written;
}

static SPIPlanPtr
prepare_insert(const HymtCacheTable *table)
{
	Oid			types[] = {
		BYTEAOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID, INT4OID, INT4OID,
		TIMESTAMPTZOID, INT8OID, TIMESTAMPTZOID
	};
	const char *name = hymt_quoted_table(table->table);
	SPIPlanPtr	plan;

	plan = SPI_prepare_cursor(psprintf(
		"INSERT INTO %s (key, fingerprint, scope, source_lang, target_lang, options, context, source, translation,"
		" model, input_tokens, output_tokens, created, nonce)"
		" SELECT $1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14 WHERE NOT EXISTS (SELECT FROM %s AS c"
		" WHERE c.key = $1 AND c.fingerprint = $2 AND c.scope = $3 AND c.source_lang = $4 AND c.target_lang = $5"
		" AND c.options = $6 AND c.context = $7 AND c.source = $8 AND c.created >= $15)", name, name),
							  lengthof(types), types, CURSOR_OPT_GENERIC_PLAN);
	if (plan == NULL)
		elog(ERROR, "SPI_prepare_cursor failed: %s", SPI_result_code_string(SPI_result));
	return plan;
}

/*
 * A text for a column; NULL when it is not the same after it was stored and read again. In a SQL_ASCII database that is
 * what its sessions take for UTF-8.
 */
static text *
storable(const char *utf8, Size length)
{
	uint32		character;
	text	   *stored = hymt_utf8_to_server(utf8, length, &character);
	const char *read;
	Size		read_length;

	if (stored == NULL)
		return NULL;
	read = hymt_server_to_utf8_quietly(VARDATA(stored), VARSIZE(stored) - VARHDRSZ, &read_length);
	return read != NULL && read_length == length && memcmp(read, utf8, length) == 0 ? stored : NULL;
}

static bytea *
key_of(const Pending *item)
{
	bytea	   *key = palloc(VARHDRSZ + sizeof(HymtCacheKey));

	SET_VARSIZE(key, VARHDRSZ + sizeof(HymtCacheKey));
	memcpy(VARDATA(key), &item->key, sizeof(HymtCacheKey));
	return key;
}

static char *
options_of(const Pending *item)
{
	HymtOrder	order = {.max_new_tokens = item->max_new_tokens, .draw = item->draw};

	memcpy(order.adapter, item->adapter, sizeof(order.adapter));
	return hymt_cache_options_text(&order);
}

static int64
new_nonce(void)
{
	int64		nonce;

	if (!pg_strong_random(&nonce, sizeof(nonce)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR),
				 errmsg("could not generate a random number")));
	return nonce;
}

/* True when there is a new row. */
static bool
insert_item(SPIPlanPtr plan, const Pending *item)
{
	const char *texts = (const char *) (item + 1);
	text	   *context = storable(texts, item->context_length);
	text	   *source = storable(texts + item->context_length, item->source_length);
	text	   *translation = storable(texts + item->context_length + item->source_length, item->translation_length);
	TimestampTz oldest = hymt_cache_oldest();

	if (context == NULL || source == NULL || translation == NULL)
		return false;

	Datum		values[] = {
		PointerGetDatum(key_of(item)), CStringGetTextDatum(item->fingerprint),
		CStringGetTextDatum(hymt_cache_scope_text(item->role)), CStringGetTextDatum(item->source_lang),
		CStringGetTextDatum(item->target_lang), CStringGetTextDatum(options_of(item)), PointerGetDatum(context),
		PointerGetDatum(source), PointerGetDatum(translation),
		CStringGetTextDatum(hymt_text_to_server(item->model, strlen(item->model))), Int32GetDatum(item->input_tokens),
		Int32GetDatum(item->output_tokens), TimestampTzGetDatum(item->created), Int64GetDatum(new_nonce()),
		TimestampTzGetDatum(oldest != 0 ? oldest : DT_NOBEGIN)
	};
	int			result = SPI_execute_plan(plan, values, NULL, false, 0);

	if (result != SPI_OK_INSERT)
		elog(ERROR, "SPI_execute_plan failed: %s", SPI_result_code_string(result));
	return SPI_processed > 0;
}

/* Whether an error says something of what was written, and not of the server, the table or the moment. */
static bool
is_of_item(int sqlstate)
{
	switch (ERRCODE_TO_CATEGORY(sqlstate))
	{
		case MAKE_SQLSTATE('2', '5', '0', '0', '0'):	/* transaction state */
		case MAKE_SQLSTATE('4', '0', '0', '0', '0'):	/* transaction rollback */
		case MAKE_SQLSTATE('5', '3', '0', '0', '0'):	/* insufficient resources */
		case MAKE_SQLSTATE('5', '5', '0', '0', '0'):	/* object state */
		case MAKE_SQLSTATE('5', '7', '0', '0', '0'):	/* operator intervention */
		case MAKE_SQLSTATE('5', '8', '0', '0', '0'):	/* system */
			return false;
		default:
			return true;
	}
}

/* Items from `first` up to `end` in a subtransaction. Returns the number of rows; -1: *sqlstate says why there are none. */
static int
try_items(SPIPlanPtr plan, const Batch *batch, int first, int end, int *sqlstate)
{
	MemoryContext context = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	volatile int rows = 0;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(context);
	PG_TRY();
	{
		for (int i = first; i < end; i++)
			rows += insert_item(plan, batch->items[i]);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		*sqlstate = geterrcode();
		if (!is_of_item(*sqlstate))
			PG_RE_THROW();
		MemoryContextSwitchTo(context);
		FlushErrorState();
		RollbackAndReleaseCurrentSubTransaction();
		rows = -1;
	}
	PG_END_TRY();
	MemoryContextSwitchTo(context);
	CurrentResourceOwner = owner;
	return rows;
}

static int
insert_one_by_one(SPIPlanPtr plan, const Batch *batch)
{
	int			rows = 0;
	int			failed = 0;
	int			sqlstate = 0;

	for (int i = 0; i < batch->count; i++)
	{
		int			inserted;

		CHECK_FOR_INTERRUPTS();
		inserted = try_items(plan, batch, i, i + 1, &sqlstate);
		rows += Max(inserted, 0);
		failed += inserted < 0;
	}
	/* The message of the error could show texts. */
	if (failed > 0)
		ereport(LOG,
				(errmsg("hymt: table hymt_cache of database \"%s\" did not take %d of %d translations",
						get_database_name(MyDatabaseId), failed, batch->count),
				 errdetail("SQLSTATE %s", unpack_sql_state(sqlstate))));
	return rows;
}

static int
insert_batch(const HymtCacheTable *table, const Batch *batch)
{
	HymtAsOwner former;
	SPIPlanPtr	plan;
	int			rows;
	int			sqlstate;

	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	hymt_as_owner_begin(table->table, &former);
	plan = prepare_insert(table);
	rows = batch->count > 1 ? try_items(plan, batch, 0, batch->count, &sqlstate) : -1;
	if (rows < 0)
		rows = insert_one_by_one(plan, batch);
	hymt_as_owner_end(&former);
	SPI_finish();
	return rows;
}

static Size
bytes_of(const Batch *batch)
{
	Size		bytes = 0;

	for (int i = 0; i < batch->count; i++)
	{
		const Pending *item = batch->items[i];

		bytes += sizeof(Pending) + item->context_length + item->source_length + item->translation_length;
	}
	return bytes;
}

bool
hymt_cache_write(const HymtWorkplace *place, TimestampTz *due)
{
	HymtCacheTable table;
	Batch		batch;

	memset(&taken, 0, sizeof(taken));
	read_batch(&batch);
	if (batch.count == 0)
		return false;
	if (!hymt_cache_table_lock(&table, RowExclusiveLock))
	{
		if (hymt_cache_table_is_missing())
			take(&batch, 0);
		else
			hymt_be_due(due, LOCKED_TABLE_MS);
		return false;
	}
	if (hymt_cache_is_overgrown(&table))
	{
		take(&batch, 0);
		return false;
	}
	(void) set_config_option("synchronous_commit", "off", PGC_USERSET, PGC_S_OVERRIDE, GUC_ACTION_LOCAL, true, 0, false);
	take(&batch, insert_batch(&table, &batch));
	hymt_cache_evict_soon(bytes_of(&batch));
	return false;
}

bool
hymt_cache_written(void)
{
	bool		more;

	if (taken.items == 0)
		return false;
	more = hymt_cache_list_drop(MyDatabaseId, taken.position, taken.items);
	hymt_cache_count(HYMT_CACHE_WRITTEN, taken.written);
	hymt_cache_count(HYMT_CACHE_DROPPED, taken.dropped);
	memset(&taken, 0, sizeof(taken));
	return more;
}

void
hymt_cache_write_give_up(void)
{
	hymt_cache_list_drop_all(MyDatabaseId);
}
