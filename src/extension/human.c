/*
 * human.c: finds the translation that a person has set for a text.
 *
 * Runs in backends and parallel workers, on standby servers, and without the engine. Writes nothing. Owns what this
 * process knows of the table: which one it is, and the last snapshot that sees nothing in it.
 *
 * Read by index under the active snapshot: what a statement sees of any table it sees of this one. The table takes part
 * in logical replication and may be written by hand, so that there may be several rows for one text. The newest counts.
 */
#include "human.h"

#include "access/detoast.h"
#include "access/genam.h"
#include "access/relscan.h"
#include "access/table.h"
#include "access/tableam.h"
#include "access/transam.h"
#include "access/xact.h"
#include "catalog/pg_am.h"
#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "executor/tuptable.h"
#include "miscadmin.h"
#include "storage/bufmgr.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"
#include "utils/uuid.h"

#define TABLE_NAME "hymt_human_translation"
#define INDEX_NAME "hymt_human_translation_key"

/* Its columns: the hash of the text, and the languages. */
#define INDEX_COLUMNS 3

/* --- the table ---------------------------------------------------------------------------------------------------- */

/* Not valid: to be looked up. */
static struct
{
	bool		valid;
	Oid			table;			/* invalid: none */
	Oid			index;			/* invalid: none */
	uint64		changes;		/* of relations, whichever */
} place;

/* Where there is no table, any new relation may be it. */
static void
relation_changed(Datum argument, Oid relation)
{
	place.changes++;
	if (!OidIsValid(relation) || !OidIsValid(place.table) || relation == place.table || relation == place.index)
		place.valid = false;
}

/* What changes meanwhile makes it not valid; what raises leaves it so. */
static void
look_up_place(void)
{
	static bool callback_registered = false;
	uint64		changes;

	if (!callback_registered)
	{
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
		callback_registered = true;
	}
	changes = place.changes;
	place.index = InvalidOid;
	place.table = hymt_member_table(TABLE_NAME);
	if (OidIsValid(place.table))
		place.index = get_relname_relid(INDEX_NAME, get_rel_namespace(place.table));
	place.valid = place.changes == changes;
}

static void
check_table_columns(Relation table)
{
	static const Oid types[] = {
		[HYMT_HUMAN_ID] = UUIDOID, [HYMT_HUMAN_SOURCE_LANG] = TEXTOID, [HYMT_HUMAN_TARGET_LANG] = TEXTOID,
		[HYMT_HUMAN_TEXT] = TEXTOID, [HYMT_HUMAN_TRANSLATION] = TEXTOID, [HYMT_HUMAN_SET_BY] = TEXTOID,
		[HYMT_HUMAN_SET_AT] = TIMESTAMPTZOID
	};
	TupleDesc	descriptor = RelationGetDescr(table);
	bool		fits = descriptor->natts >= HYMT_HUMAN_COLUMNS;

	for (int i = 1; fits && i <= HYMT_HUMAN_COLUMNS; i++)
		fits = TupleDescAttr(descriptor, i - 1)->atttypid == types[i];
	if (!fits)
		ereport(ERROR,
				(errcode(ERRCODE_HYMT_VERSION_SKEW),
				 errmsg("table \"%s\" does not fit the library of hymt", RelationGetRelationName(table)),
				 errhint("Run ALTER EXTENSION hymt UPDATE.")));
}

Relation
hymt_human_open(LOCKMODE lock)
{
	for (;;)
	{
		Oid			table;
		Relation	relation;

		AcceptInvalidationMessages();
		if (!place.valid)
			look_up_place();
		table = place.table;
		if (!OidIsValid(table))
			return NULL;
		relation = try_table_open(table, lock);
		/* Once it is locked it stays what it is. */
		if (!place.valid)
			look_up_place();
		if (relation != NULL && place.table == table)
		{
			check_table_columns(relation);
			return relation;
		}
		if (relation != NULL)
			table_close(relation, lock);
		else
			place.valid = false;
		CHECK_FOR_INTERRUPTS();
	}
}

/* --- snapshots that see nothing ----------------------------------------------------------------------------------- */

/*
 * A table that had no page when a snapshot was there already has nothing for that snapshot, and never will: what it sees
 * was on a page before it was taken, and stays there as long as it is used. The same goes for any other snapshot after
 * which the same transactions are committed: of those below xmax the running ones can only become fewer, so that with as
 * many of them they are the same. That is what makes calls free of cost where nobody uses this, without anything to be
 * sent or counted by those who write, whoever they are.
 */
static struct
{
	bool		known;
	TransactionId xmin;
	TransactionId xmax;
	uint32		xcnt;
	int32		subxcnt;
	bool		suboverflowed;
	bool		recovery;
	TimestampTz since;			/* of the transaction; numbers of transactions come again, but not so soon */
} nothing;

static bool
sees_nothing(Snapshot snapshot)
{
	return nothing.known && nothing.xmin == snapshot->xmin && nothing.xmax == snapshot->xmax &&
		nothing.xcnt == snapshot->xcnt && nothing.subxcnt == snapshot->subxcnt &&
		nothing.suboverflowed == snapshot->suboverflowed && nothing.recovery == snapshot->takenDuringRecovery &&
		GetCurrentTransactionStartTimestamp() - nothing.since < USECS_PER_HOUR;
}

static void
note_nothing(Snapshot snapshot)
{
	nothing.known = true;
	nothing.xmin = snapshot->xmin;
	nothing.xmax = snapshot->xmax;
	nothing.xcnt = snapshot->xcnt;
	nothing.subxcnt = snapshot->subxcnt;
	nothing.suboverflowed = snapshot->suboverflowed;
	nothing.recovery = snapshot->takenDuringRecovery;
	nothing.since = GetCurrentTransactionStartTimestamp();
}

/*
 * Whether what was found for one call holds for the next: not in a transaction that has written, which sees its own rows
 * by other rules; nor in a serializable one, which has to leave a trace of what it did not find.
 */
static bool
may_rely_on_nothing(void)
{
	return !TransactionIdIsValid(GetTopTransactionIdIfAny()) && !IsolationIsSerializable();
}

/* --- searching ---------------------------------------------------------------------------------------------------- */

typedef struct Search
{
	Relation	table;
	Relation	index;			/* NULL: all rows are looked at */
	Snapshot	snapshot;
	const HymtOrder *order;
	const char *source;
	Size		length;

	/* the newest so far */
	text	   *translation;	/* NULL: none */
	TimestampTz set_at;
	pg_uuid_t	id;
} Search;

static bool
text_is(Datum value, const char *bytes, Size length)
{
	text	   *content;
	bool		same;

	if (toast_raw_datum_size(value) - VARHDRSZ != length)
		return false;
	content = DatumGetTextPP(value);
	same = memcmp(VARDATA_ANY(content), bytes, length) == 0;
	if ((Pointer) content != DatumGetPointer(value))
		pfree(content);
	return same;
}

static bool
row_matches(const Search *search, const Datum *values)
{
	const char *source_lang = search->order->source->code;
	const char *target_lang = search->order->target->code;

	return text_is(values[HYMT_HUMAN_SOURCE_LANG - 1], source_lang, strlen(source_lang)) &&
		text_is(values[HYMT_HUMAN_TARGET_LANG - 1], target_lang, strlen(target_lang)) &&
		text_is(values[HYMT_HUMAN_TEXT - 1], search->source, search->length);
}

/* On all servers the same one of several, also when they have the same time. */
static bool
row_is_newer(const Search *search, TimestampTz set_at, const pg_uuid_t *id)
{
	if (search->translation == NULL || search->set_at != set_at)
		return search->translation == NULL || set_at > search->set_at;
	return memcmp(id->data, search->id.data, UUID_LEN) > 0;
}

static void
look_at_row(Search *search, TupleTableSlot *slot)
{
	Datum	   *values = slot->tts_values;
	TimestampTz set_at;

	slot_getsomeattrs(slot, HYMT_HUMAN_COLUMNS);
	for (int i = 0; i < HYMT_HUMAN_COLUMNS; i++)
	{
		if (slot->tts_isnull[i])
			return;
	}
	set_at = DatumGetTimestampTz(values[HYMT_HUMAN_SET_AT - 1]);
	if (!row_matches(search, values) || !row_is_newer(search, set_at, DatumGetUUIDP(values[HYMT_HUMAN_ID - 1])))
		return;
	if (search->translation != NULL)
		pfree(search->translation);
	search->translation = DatumGetTextPCopy(values[HYMT_HUMAN_TRANSLATION - 1]);
	search->set_at = set_at;
	search->id = *DatumGetUUIDP(values[HYMT_HUMAN_ID - 1]);
}

/* The index, if it is of the kind it was made as and this snapshot may use it; else NULL. */
static Relation
open_index(Relation table, Oid oid)
{
	Relation	index;
	Form_pg_index form;

	if (!OidIsValid(oid) || get_rel_relkind(oid) != RELKIND_INDEX)
		return NULL;
	index = index_open(oid, AccessShareLock);
	form = index->rd_index;
	if (form->indrelid == RelationGetRelid(table) && index->rd_rel->relam == BTREE_AM_OID &&
		form->indisvalid && !heap_attisnull(index->rd_indextuple, Anum_pg_index_indexprs, NULL) &&
		heap_attisnull(index->rd_indextuple, Anum_pg_index_indpred, NULL) &&
		form->indnkeyatts == INDEX_COLUMNS &&
		index->rd_opcintype[0] == INT8OID && index->rd_opcintype[1] == TEXTOID && index->rd_opcintype[2] == TEXTOID &&
		(!form->indcheckxmin ||
		 TransactionIdPrecedes(HeapTupleHeaderGetXmin(index->rd_indextuple->t_data), TransactionXmin)))
		return index;
	index_close(index, AccessShareLock);
	return NULL;
}

static void
search_index(Search *search, TupleTableSlot *slot)
{
	Datum		hash = hash_any_extended((const unsigned char *) search->source, (int) search->length, 0);
	text	   *source_lang = cstring_to_text(search->order->source->code);
	text	   *target_lang = cstring_to_text(search->order->target->code);
	ScanKeyData key[INDEX_COLUMNS];
	IndexScanDesc scan;

	ScanKeyInit(&key[0], 1, BTEqualStrategyNumber, F_INT8EQ, hash);
	ScanKeyInit(&key[1], 2, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(source_lang));
	ScanKeyInit(&key[2], 3, BTEqualStrategyNumber, F_TEXTEQ, PointerGetDatum(target_lang));
	scan = HYMT_INDEX_BEGINSCAN(search->table, search->index, search->snapshot, INDEX_COLUMNS);
	index_rescan(scan, key, INDEX_COLUMNS, NULL, 0);
	while (index_getnext_slot(scan, ForwardScanDirection, slot))
		look_at_row(search, slot);
	index_endscan(scan);
	pfree(source_lang);
	pfree(target_lang);
}

/* Somebody dropped the index, or it is too young for the snapshot. */
static void
search_table(Search *search, TupleTableSlot *slot)
{
	TableScanDesc scan = table_beginscan(search->table, search->snapshot, 0, NULL);

	while (table_scan_getnextslot(scan, ForwardScanDirection, slot))
	{
		CHECK_FOR_INTERRUPTS();
		look_at_row(search, slot);
	}
	table_endscan(scan);
}

static void
search_rows(Search *search, Oid index)
{
	TupleTableSlot *slot = table_slot_create(search->table, NULL);

	search->index = open_index(search->table, index);
	if (search->index != NULL)
		search_index(search, slot);
	else
		search_table(search, slot);
	ExecDropSingleTupleTableSlot(slot);
	if (search->index != NULL)
		index_close(search->index, AccessShareLock);
}

/* The snapshot of the statement; a new one where there is none. Others than those of statements see no such table. */
static Snapshot
readers_snapshot(void)
{
	Snapshot	snapshot = ActiveSnapshotSet() ? GetActiveSnapshot() : GetTransactionSnapshot();

	return snapshot->snapshot_type == SNAPSHOT_MVCC ? snapshot : NULL;
}

text *
hymt_human_find(const HymtOrder *order, const char *source, Size length)
{
	Search		search = {.order = order, .source = source, .length = length};
	Snapshot	snapshot = readers_snapshot();
	bool		rely = may_rely_on_nothing();

	if (snapshot == NULL || (rely && sees_nothing(snapshot)))
		return NULL;
	search.snapshot = RegisterSnapshot(snapshot);
	search.table = hymt_human_open(AccessShareLock);
	if (search.table != NULL && (IsolationIsSerializable() || RelationGetNumberOfBlocks(search.table) > 0))
		search_rows(&search, place.index);
	else if (rely)
		note_nothing(search.snapshot);
	if (search.table != NULL)
		table_close(search.table, AccessShareLock);
	UnregisterSnapshot(search.snapshot);
	return search.translation;
}
