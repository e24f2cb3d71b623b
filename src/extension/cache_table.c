/*
 * cache_table.c: translations in the table hymt_cache.
 *
 * Runs in every kind of session: in read-only transactions, parallel workers and on standbys. Reads by the index of the
 * key, without SPI: no plan, no statement that others could see, no rights of the caller's. It waits for no lock: a table
 * that is being rewritten or dropped is one without the answer. It holds its own locks for moments.
 *
 * What it sees is what the statement's snapshot sees. The table may be anybody's work (another version of the extension,
 * an administrator's ALTER TABLE): what is not as it should be is no answer, and no error.
 */
#include "hymt.h"
#include "cache_table.h"

#include "access/genam.h"
#include "access/heapam.h"
#include "access/htup_details.h"
#include "access/relation.h"
#include "access/stratnum.h"
#include "access/sysattr.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "access/xlog.h"
#include "catalog/dependency.h"
#include "catalog/namespace.h"
#include "catalog/pg_am.h"
#include "catalog/pg_class.h"
#include "catalog/pg_index.h"
#include "catalog/pg_type.h"
#include "commands/extension.h"
#include "executor/tuptable.h"
#include "lib/stringinfo.h"
#include "mb/pg_wchar.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/syscache.h"
#include "utils/timestamp.h"

static const struct
{
	const char *name;
	Oid			type;
}			columns[HYMT_COLUMNS] =
{
	[HYMT_COLUMN_KEY] = {"key", BYTEAOID},
	[HYMT_COLUMN_FINGERPRINT] = {"fingerprint", TEXTOID},
	[HYMT_COLUMN_SCOPE] = {"scope", TEXTOID},
	[HYMT_COLUMN_SOURCE_LANG] = {"source_lang", TEXTOID},
	[HYMT_COLUMN_TARGET_LANG] = {"target_lang", TEXTOID},
	[HYMT_COLUMN_OPTIONS] = {"options", TEXTOID},
	[HYMT_COLUMN_CONTEXT] = {"context", TEXTOID},
	[HYMT_COLUMN_SOURCE] = {"source", TEXTOID},
	[HYMT_COLUMN_TRANSLATION] = {"translation", TEXTOID},
	[HYMT_COLUMN_MODEL] = {"model", TEXTOID},
	[HYMT_COLUMN_INPUT_TOKENS] = {"input_tokens", INT4OID},
	[HYMT_COLUMN_OUTPUT_TOKENS] = {"output_tokens", INT4OID},
	[HYMT_COLUMN_CREATED] = {"created", TIMESTAMPTZOID},
	[HYMT_COLUMN_NONCE] = {"nonce", INT8OID}
};

/* --- which table it is -------------------------------------------------------------------------------------------- */

/* As found last, in this process. A table that is invalid: there is none. */
static HymtCacheTable known;
static bool is_known = false;

/* Any change may be that there is one now. */
static void
relation_changed(Datum argument, Oid relation)
{
	if (!OidIsValid(relation) || !OidIsValid(known.table) || relation == known.table || relation == known.index)
		is_known = false;
}

/* The extension's own table of that name; invalid: none. */
static Oid
find_table(void)
{
	Oid			extension = get_extension_oid("hymt", true);
	Oid			schema = InvalidOid;
	Oid			table;

	if (!OidIsValid(extension))
		return InvalidOid;
	(void) hymt_read_extension(extension, &schema);
	table = get_relname_relid("hymt_cache", schema);
	return OidIsValid(table) && getExtensionOfObject(RelationRelationId, table) == extension ? table : InvalidOid;
}

static AttrNumber
find_column(TupleDesc descriptor, const char *name, Oid type)
{
	for (int i = 0; i < descriptor->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(descriptor, i);

		if (!attribute->attisdropped && strcmp(NameStr(attribute->attname), name) == 0)
			return attribute->atttypid == type ? attribute->attnum : InvalidAttrNumber;
	}
	return InvalidAttrNumber;
}

static bool
has_columns(Relation relation, AttrNumber column[HYMT_COLUMNS])
{
	for (int i = 0; i < HYMT_COLUMNS; i++)
	{
		column[i] = find_column(RelationGetDescr(relation), columns[i].name, columns[i].type);
		if (column[i] == InvalidAttrNumber)
			return false;
	}
	return true;
}

static bool
is_btree(Oid index)
{
	HeapTuple	tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(index));
	bool		btree = HeapTupleIsValid(tuple) && ((Form_pg_class) GETSTRUCT(tuple))->relam == BTREE_AM_OID;

	if (HeapTupleIsValid(tuple))
		ReleaseSysCache(tuple);
	return btree;
}

/* Whether an index finds keys by equality, and has all rows. */
static bool
is_index_of_key(Oid index, AttrNumber key)
{
	HeapTuple	tuple = SearchSysCache1(INDEXRELID, ObjectIdGetDatum(index));
	Form_pg_index form;
	Datum		classes;
	bool		isnull;
	bool		fits;

	if (!HeapTupleIsValid(tuple))
		return false;
	form = (Form_pg_index) GETSTRUCT(tuple);
	fits = form->indisvalid && form->indisready && form->indislive && form->indnkeyatts >= 1 &&
		form->indkey.values[0] == key && heap_attisnull(tuple, Anum_pg_index_indpred, NULL) &&
		is_btree(index);
	if (fits)
	{
		classes = SysCacheGetAttr(INDEXRELID, tuple, Anum_pg_index_indclass, &isnull);
		fits = get_opcode(get_opfamily_member(get_opclass_family(((oidvector *) DatumGetPointer(classes))->values[0]),
											  BYTEAOID, BYTEAOID, BTEqualStrategyNumber)) == F_BYTEAEQ;
	}
	ReleaseSysCache(tuple);
	return fits;
}

static Oid
find_index(Relation relation, AttrNumber key)
{
	List	   *indexes = RelationGetIndexList(relation);
	Oid			found = InvalidOid;
	ListCell   *cell;

	foreach(cell, indexes)
	{
		if (is_index_of_key(lfirst_oid(cell), key))
		{
			found = lfirst_oid(cell);
			break;
		}
	}
	list_free(indexes);
	return found;
}

/* Fills `known` from a table that is locked. */
static void
examine(Oid table)
{
	Relation	relation = try_relation_open(table, NoLock);

	if (relation == NULL)
		return;
	if (relation->rd_rel->relkind == RELKIND_RELATION && has_columns(relation, known.column))
	{
		known.table = table;
		known.index = find_index(relation, known.column[HYMT_COLUMN_KEY]);
	}
	relation_close(relation, NoLock);
}

/* There is none, as far as is known. From here on, so that a change while we look counts. */
static void
forget(void)
{
	static bool registered = false;

	if (!registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		registered = true;
	}
	memset(&known, 0, sizeof(known));
	is_known = true;
}

/* False when that cannot be known now. */
static bool
look(void)
{
	Oid			table;

	forget();
	table = find_table();
	if (!OidIsValid(table))
		return true;
	if (!ConditionalLockRelationOid(table, AccessShareLock))
	{
		is_known = false;
		return false;
	}
	examine(table);
	UnlockRelationOid(table, AccessShareLock);
	return true;
}

bool
hymt_cache_table_lock(HymtCacheTable *table, LOCKMODE mode)
{
	/* Changes that are news to this process are seen after the lock is taken. They do not come one after the other. */
	for (int attempt = 0; attempt < 3; attempt++)
	{
		if (!is_known && !look())
			return false;
		*table = known;
		if (!OidIsValid(table->table))
			return false;
		if (!ConditionalLockRelationOid(table->table, mode))
			return false;
		if (is_known)
			return true;
		UnlockRelationOid(table->table, mode);
	}
	return false;
}

bool
hymt_cache_table_is_missing(void)
{
	return is_known && !OidIsValid(known.table);
}

void
hymt_cache_table_unlock(const HymtCacheTable *table, LOCKMODE mode)
{
	UnlockRelationOid(table->table, mode);
}

static void
raise_no_table(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_UNDEFINED_TABLE),
			 errmsg("table hymt_cache does not exist, or is not as extension hymt has made it"),
			 errhint("Run ALTER EXTENSION hymt UPDATE, or create the extension anew.")));
}

void
hymt_cache_table_lock_or_raise(HymtCacheTable *table, LOCKMODE mode)
{
	Oid			oid = find_table();

	if (!OidIsValid(oid))
		raise_no_table();
	LockRelationOid(oid, mode);
	forget();
	if (find_table() == oid)
		examine(oid);
	if (!OidIsValid(known.table))
		raise_no_table();
	*table = known;
}

/* --- what makes a question ---------------------------------------------------------------------------------------- */

/* As few digits as make the same number again. */
static void
append_float(StringInfo out, const char *name, float number)
{
	char		digits[32];
	int			precision = 6;

	do
		snprintf(digits, sizeof(digits), "%.*g", precision, number);
	while (precision++ < 9 && strtof(digits, NULL) != number);
	appendStringInfo(out, " %s=%s", name, digits);
}

char *
hymt_cache_options_text(const HymtOrder *order)
{
	StringInfoData out;

	initStringInfo(&out);
	if (order->max_new_tokens != 0)
		appendStringInfo(&out, " max_tokens=%d", order->max_new_tokens);
	if (order->adapter[0] != '\0')
		appendStringInfo(&out, " adapter=%s", order->adapter);
	if (order->draw.temperature != 0)
	{
		append_float(&out, "temperature", order->draw.temperature);
		append_float(&out, "top_p", order->draw.top_p);
		appendStringInfo(&out, " top_k=%u seed=" INT64_FORMAT, order->draw.top_k, (int64) order->draw.seed);
	}
	return out.len > 0 ? out.data + 1 : out.data;
}

/* Numbers of roles are those of one cluster and its standbys. Elsewhere the same number is another role. */
char *
hymt_cache_scope_text(Oid role)
{
	return OidIsValid(role) ? psprintf("role %u of cluster " UINT64_FORMAT, role, GetSystemIdentifier()) : pstrdup("");
}

/* --- reading ------------------------------------------------------------------------------------------------------ */

/* A scan by key, and what it is to find. */
typedef struct Search
{
	const HymtCacheTable *table;
	const HymtCacheQuestion *question;
	char	   *options;
	char	   *scope;
	TimestampTz oldest;			/* rows that are older do not count; 0: none is too old */
	TupleTableSlot *row;
	bool		current;		/* what was found is there for newer snapshots, too */
} Search;

/* The bytes of a column; false when it is null. */
static bool
read_bytes(const Search *search, HymtCacheColumn column, const char **data, Size *length)
{
	bool		isnull;
	Datum		value = slot_getattr(search->row, search->table->column[column], &isnull);
	struct varlena *bytes;

	if (isnull)
		return false;
	bytes = PG_DETOAST_DATUM_PACKED(value);
	*data = VARDATA_ANY(bytes);
	*length = VARSIZE_ANY_EXHDR(bytes);
	return true;
}

/* The same of a text, in UTF-8. */
static bool
read_utf8(const Search *search, HymtCacheColumn column, const char **utf8, Size *length)
{
	const char *data;
	Size		data_length;

	if (!read_bytes(search, column, &data, &data_length))
		return false;
	*utf8 = hymt_server_to_utf8_quietly(data, data_length, length);
	return *utf8 != NULL;
}

/* 0 for null. */
static int64
read_number(const Search *search, HymtCacheColumn column)
{
	bool		isnull;
	Datum		value = slot_getattr(search->row, search->table->column[column], &isnull);

	if (isnull)
		return 0;
	return columns[column].type == INT4OID ? DatumGetInt32(value) : DatumGetInt64(value);
}

static bool
column_is(const Search *search, HymtCacheColumn column, const char *expected)
{
	const char *data;
	Size		length;

	return read_bytes(search, column, &data, &length) && length == strlen(expected) &&
		memcmp(data, expected, length) == 0;
}

static bool
utf8_column_is(const Search *search, HymtCacheColumn column, const char *expected, Size expected_length)
{
	const char *utf8;
	Size		length;

	return read_utf8(search, column, &utf8, &length) && length == expected_length &&
		(length == 0 || memcmp(utf8, expected, length) == 0);
}

static bool
answers_question(const Search *search)
{
	const HymtCacheQuestion *question = search->question;
	const HymtOrder *order = question->order;

	return (search->oldest == 0 || read_number(search, HYMT_COLUMN_CREATED) >= search->oldest) &&
		column_is(search, HYMT_COLUMN_SCOPE, search->scope) &&
		column_is(search, HYMT_COLUMN_FINGERPRINT, question->fingerprint) &&
		column_is(search, HYMT_COLUMN_SOURCE_LANG, order->source->code) &&
		column_is(search, HYMT_COLUMN_TARGET_LANG, order->target->code) &&
		column_is(search, HYMT_COLUMN_OPTIONS, search->options) &&
		utf8_column_is(search, HYMT_COLUMN_CONTEXT, order->context, order->context_length) &&
		utf8_column_is(search, HYMT_COLUMN_SOURCE, question->utf8, question->length);
}

/* Into the caller's memory context. */
static bool
read_answer(const Search *search, HymtCacheAnswer *answer, MemoryContext caller)
{
	const char *utf8;
	const char *model;
	Size		length;
	Size		model_length;

	if (!read_utf8(search, HYMT_COLUMN_TRANSLATION, &utf8, &length) ||
		!read_utf8(search, HYMT_COLUMN_MODEL, &model, &model_length))
		return false;
	memset(answer, 0, sizeof(HymtCacheAnswer));
	answer->text = MemoryContextAllocExtended(caller, length + 1, MCXT_ALLOC_HUGE);
	memcpy(answer->text, utf8, length);
	answer->text[length] = '\0';
	answer->length = length;
	memcpy(answer->model, model, Min(model_length, HYMT_NAME_MAX - 1));
	answer->finish = HYMT_FINISH_STOP;
	answer->input_tokens = (int) read_number(search, HYMT_COLUMN_INPUT_TOKENS);
	answer->output_tokens = (int) read_number(search, HYMT_COLUMN_OUTPUT_TOKENS);
	return true;
}

/* Whether nobody has deleted the row, or tried to, whatever the snapshot sees. */
static bool
is_current(const Search *search)
{
	bool		isnull;

	return !TransactionIdIsValid(DatumGetTransactionId(slot_getsysattr(search->row, MaxTransactionIdAttributeNumber, &isnull)));
}

static bool
scan_index(Search *search, Relation table, Relation index, HymtCacheAnswer *answer, MemoryContext caller)
{
	bytea	   *key = palloc(VARHDRSZ + sizeof(HymtCacheKey));
	ScanKeyData condition;
	IndexScanDesc scan;
	bool		found = false;

	SET_VARSIZE(key, VARHDRSZ + sizeof(HymtCacheKey));
	memcpy(VARDATA(key), &search->question->key, sizeof(HymtCacheKey));
	ScanKeyInit(&condition, 1, BTEqualStrategyNumber, F_BYTEAEQ, PointerGetDatum(key));
	search->row = table_slot_create(table, NULL);
	scan = HYMT_INDEX_BEGINSCAN(table, index, GetActiveSnapshot(), 1);
	index_rescan(scan, &condition, 1, NULL, 0);
	while (!found && index_getnext_slot(scan, ForwardScanDirection, search->row))
		found = answers_question(search) && read_answer(search, answer, caller);
	search->current = found && is_current(search);
	index_endscan(scan);
	ExecDropSingleTupleTableSlot(search->row);
	return found;
}

/* Whether an index has what a snapshot of this transaction sees. */
static bool
is_usable(Relation index)
{
	Form_pg_index form = index->rd_index;

	return form->indisvalid && form->indisready && form->indislive &&
		(!form->indcheckxmin ||
		 TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data), TransactionXmin));
}

/* An unlogged table has no contents on a standby. */
static bool
is_readable(Relation table)
{
	return table->rd_rel->relkind == RELKIND_RELATION && table->rd_rel->relpersistence != RELPERSISTENCE_TEMP &&
		(table->rd_rel->relpersistence == RELPERSISTENCE_PERMANENT || !RecoveryInProgress());
}

static bool
search_locked(Search *search, HymtCacheAnswer *answer, MemoryContext caller)
{
	Relation	table = try_relation_open(search->table->table, NoLock);
	Relation	index;
	bool		found = false;

	if (table == NULL)
		return false;
	index = is_readable(table) ? try_relation_open(search->table->index, NoLock) : NULL;
	if (index != NULL)
	{
		if (index->rd_rel->relkind == RELKIND_INDEX && is_usable(index))
			found = scan_index(search, table, index, answer, caller);
		relation_close(index, NoLock);
	}
	relation_close(table, NoLock);
	return found;
}

static bool
search_table(const HymtCacheTable *table, const HymtCacheQuestion *question, HymtCacheAnswer *answer, bool *current,
			 MemoryContext caller)
{
	Search		search = {.table = table, .question = question};
	bool		found;

	/* An index is locked by who rebuilds it. */
	if (!OidIsValid(table->index) || !ConditionalLockRelationOid(table->index, AccessShareLock))
		return false;
	search.options = hymt_cache_options_text(question->order);
	search.scope = hymt_cache_scope_text(question->role);
	search.oldest = hymt_cache_oldest();
	found = search_locked(&search, answer, caller);
	*current = search.current;
	UnlockRelationOid(table->index, AccessShareLock);
	return found;
}

TimestampTz
hymt_cache_oldest(void)
{
	if (hymt_cache_max_age == 0)
		return 0;
	return GetCurrentTimestamp() - hymt_cache_max_age * (int64) (USECS_PER_SEC * SECS_PER_MINUTE);
}

bool
hymt_cache_table_find(const HymtCacheQuestion *question, HymtCacheAnswer *answer, bool *current)
{
	static MemoryContext context = NULL;
	MemoryContext caller = CurrentMemoryContext;
	HymtCacheTable table;
	bool		found;

	if (!IsTransactionState() || !ActiveSnapshotSet())
		return false;
	if (!hymt_cache_table_lock(&table, AccessShareLock))
		return false;
	if (context == NULL)
		context = AllocSetContextCreate(TopMemoryContext, "hymt cache search", ALLOCSET_SMALL_SIZES);
	/* What an error has left there goes with the next search. */
	MemoryContextReset(context);
	MemoryContextSwitchTo(context);
	found = search_table(&table, question, answer, current, caller);
	MemoryContextSwitchTo(caller);
	hymt_cache_table_unlock(&table, AccessShareLock);
	return found;
}
