/*
 * job_column.c: what becomes of a job for a column: the worker fills it.
 *
 * Runs in database workers, in the transaction that stores the job's end. Writes tables of others, each with the rights of
 * its owner, see as_owner.c. Everything that the owner has made runs in there, triggers, expressions and domains, and is
 * given no time to keep the worker: neither by locks nor by sleeping. Deferred triggers are fired at once: they would run
 * at commit with other rights.
 *
 * The column is written only if the row is there, its text is still the one that was translated, and the column has what
 * it had: otherwise the job is cancelled, as another one follows that text or somebody has given a translation by hand.
 */
#include "hymt.h"
#include "cache_table.h"
#include "job_internal.h"
#include "trigger.h"

#include <signal.h>

#include "access/relation.h"
#include "access/xact.h"
#include "catalog/pg_class.h"
#include "catalog/pg_operator.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_trigger.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "libpq/pqsignal.h"
#include "miscadmin.h"
#include "nodes/makefuncs.h"
#include "storage/lmgr.h"
#include "storage/lock.h"
#include "tcop/tcopprot.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/lsyscache.h"
#include "utils/reltrigger.h"
#include "utils/syscache.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"
#include "utils/typcache.h"

/* How long a write may take, ms; and then how long whoever catches that. */
#define LONGEST_WRITE_MS 10000
#define CAUGHT_MS 1000
/* How long it may wait for a lock: of a foreign key, say. */
#define LONGEST_LOCK "1s"

/* --- what is to be written ---------------------------------------------------------------------------------------- */

/*
 * The trigger that has left the job, as it is now; NULL: it would not leave it any more. A copy: what the relation cache
 * has may be read anew with any look into a catalog.
 */
static const Trigger *
find_trigger(Relation relation, const HymtJob *job)
{
	TriggerDesc *triggers = CopyTriggerDesc(relation->trigdesc);

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (strcmp(trigger->tgname, NameStr(job->trigger)) == 0)
			return trigger->tgenabled != TRIGGER_DISABLED && trigger->tgnargs > 4 ? trigger : NULL;
	}
	return NULL;
}

static void
check_rights(const Trigger *trigger)
{
	if (!HYMT_MAY_EXECUTE(trigger->tgfoid, GetUserId()))
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied for function %s", get_func_name(trigger->tgfoid))));
}

/* Whether the trigger still asks for the same translation. */
static bool
is_same_order(const Trigger *trigger, const HymtJob *job)
{
	HymtOrder	order;

	hymt_trigger_order(trigger, &order);
	return order.source == job->order.source && order.target == job->order.target;
}

/* --- the row ------------------------------------------------------------------------------------------------------ */

/* A condition on the key: appended to a statement, with parameters from a number on. */
typedef struct Key
{
	int			count;
	Oid			types[INDEX_MAX_KEYS];
	Datum		values[INDEX_MAX_KEYS];
	char	   *condition;		/* parameters are $1 … */
} Key;

static const char *
qualified_operator(Oid operator)
{
	HeapTuple	tuple = SearchSysCache1(OPEROID, ObjectIdGetDatum(operator));
	Form_pg_operator form;
	char	   *result;

	if (!HeapTupleIsValid(tuple))
		elog(ERROR, "cache lookup failed for operator %u", operator);
	form = (Form_pg_operator) GETSTRUCT(tuple);
	result = psprintf("OPERATOR(%s.%s)", quote_identifier(get_namespace_name(form->oprnamespace)), NameStr(form->oprname));
	ReleaseSysCache(tuple);
	return result;
}

/* False when a column of the key is no more. */
static bool
add_to_key(Key *key, StringInfo condition, TupleDesc descriptor, AttrNumber number, const char *value)
{
	Form_pg_attribute attribute;
	Oid			equals;
	Oid			input;
	Oid			parameter;

	if (number <= 0 || number > descriptor->natts || TupleDescAttr(descriptor, number - 1)->attisdropped)
		return false;
	attribute = TupleDescAttr(descriptor, number - 1);
	equals = lookup_type_cache(attribute->atttypid, TYPECACHE_EQ_OPR)->eq_opr;
	if (!OidIsValid(equals))
		return false;
	getTypeInputInfo(attribute->atttypid, &input, &parameter);
	key->types[key->count] = attribute->atttypid;
	key->values[key->count] = OidInputFunctionCall(input, unconstify(char *, value), parameter, attribute->atttypmod);
	key->count++;
	appendStringInfo(condition, "%s%s %s $%d", key->count > 1 ? " AND " : "",
					 quote_identifier(NameStr(attribute->attname)), qualified_operator(equals), key->count);
	return true;
}

static bool
read_key(const HymtJob *job, TupleDesc descriptor, Key *key)
{
	StringInfoData condition;
	Datum	   *columns;
	Datum	   *values;
	int			column_count;
	int			value_count;

	deconstruct_array(job->key_columns, INT2OID, sizeof(int16), true, TYPALIGN_SHORT, &columns, NULL, &column_count);
	deconstruct_array(job->key, TEXTOID, -1, false, TYPALIGN_INT, &values, NULL, &value_count);
	if (column_count != value_count || column_count == 0 || column_count > INDEX_MAX_KEYS)
		return false;
	initStringInfo(&condition);
	key->count = 0;
	for (int i = 0; i < column_count; i++)
	{
		if (!add_to_key(key, &condition, descriptor, DatumGetInt16(columns[i]), TextDatumGetCString(values[i])))
			return false;
	}
	key->condition = condition.data;
	return true;
}

static void
execute(const char *statement, int count, Oid *types, Datum *values, const char *nulls, int expected)
{
	hymt_job_execute(statement, count, types, values, nulls, false, expected);
}

static char *
column_name(TupleDesc descriptor, int number)
{
	return unconstify(char *, quote_identifier(NameStr(TupleDescAttr(descriptor, number - 1)->attname)));
}

static bool
equal_texts(const text *one, const text *other)
{
	if (one == NULL || other == NULL)
		return one == other;
	return VARSIZE_ANY_EXHDR(one) == VARSIZE_ANY_EXHDR(other) &&
		memcmp(VARDATA_ANY(one), VARDATA_ANY(other), VARSIZE_ANY_EXHDR(one)) == 0;
}

typedef enum Finding
{
	ROW_AS_IT_WAS,
	ROW_CHANGED,				/* or gone */
	ROW_LOCKED
} Finding;

/* Locks the row, if it is as it was when the job was submitted. */
static Finding
find_row(const HymtJob *job, const char *table, TupleDesc descriptor, const HymtTriggerColumns *columns, Key *key)
{
	char	   *select = psprintf("SELECT %s, %s FROM ONLY %s WHERE %s", column_name(descriptor, columns->source),
								  column_name(descriptor, columns->target), table, key->condition);
	HeapTuple	row;

	execute(psprintf("%s FOR NO KEY UPDATE SKIP LOCKED", select), key->count, key->types, key->values, NULL, SPI_OK_SELECT);
	if (SPI_processed == 0)
	{
		execute(select, key->count, key->types, key->values, NULL, SPI_OK_SELECT);
		return SPI_processed == 0 ? ROW_CHANGED : ROW_LOCKED;
	}
	row = SPI_tuptable->vals[0];
	if (SPI_processed > 1 ||
		!equal_texts(hymt_column_text(row, SPI_tuptable->tupdesc, 1), job->source) ||
		!equal_texts(hymt_column_text(row, SPI_tuptable->tupdesc, 2), job->former))
		return ROW_CHANGED;
	return ROW_AS_IT_WAS;
}

static void
update_row(const HymtJob *job, const char *table, TupleDesc descriptor, int target, Key *key)
{
	Oid			types[INDEX_MAX_KEYS + 1];
	Datum		values[INDEX_MAX_KEYS + 1];
	char		nulls[INDEX_MAX_KEYS + 1];

	memcpy(types, key->types, key->count * sizeof(Oid));
	memcpy(values, key->values, key->count * sizeof(Datum));
	memset(nulls, ' ', sizeof(nulls));
	types[key->count] = TupleDescAttr(descriptor, target - 1)->atttypid;
	values[key->count] = (Datum) 0;
	if (job->ending.translation == NULL)
		nulls[key->count] = 'n';
	else
		values[key->count] = hymt_column_value(job->ending.translation, descriptor, target);
	execute(psprintf("UPDATE ONLY %s SET %s = $%d WHERE %s", table, column_name(descriptor, target), key->count + 1,
					 key->condition), key->count + 1, types, values, nulls, SPI_OK_UPDATE);
}

/* --- the write ---------------------------------------------------------------------------------------------------- */

static void
cancel(HymtJob *job, const char *reason)
{
	job->ending.state = "cancelled";
	job->ending.translation = NULL;
	job->ending.message = MemoryContextStrdup(job->context, reason);
}

/* Somebody has locked the table or the row: once more, later. */
static void
come_again(HymtJob *job)
{
	hymt_job_wait_for_service(job);
	hymt_job_try_again(job);
}

/* The settings of a write: what a key is written and read with, and what the owner's code finds. */
static void
use_settings(void)
{
	static const char *const settings[][2] = {
		{"datestyle", "ISO"},
		{"intervalstyle", "postgres"},
		{"lock_timeout", LONGEST_LOCK}
	};
	static const char *const usual[] = {"enable_seqscan", "enable_bitmapscan", "enable_sort"};

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	for (int i = 0; i < lengthof(usual); i++)
		(void) set_config_option(usual[i], GetConfigOptionResetString(usual[i]), PGC_USERSET, PGC_S_SESSION,
								 GUC_ACTION_SAVE, true, 0, false);
}

/* With the rights of the owner. */
static void
write_to(HymtJob *job, Relation relation)
{
	TupleDesc	descriptor = RelationGetDescr(relation);
	const char *table = hymt_quoted_table(job->relation);
	const Trigger *trigger = find_trigger(relation, job);
	HymtTriggerColumns columns;
	Key			key;

	if (trigger == NULL || !is_same_order(trigger, job))
	{
		cancel(job, "the trigger is no more, or another one");
		return;
	}
	check_rights(trigger);
	hymt_trigger_columns(relation, trigger, &columns);
	if (!read_key(job, descriptor, &key))
	{
		cancel(job, "the table has changed");
		return;
	}
	execute("SET CONSTRAINTS ALL IMMEDIATE", 0, NULL, NULL, NULL, SPI_OK_UTILITY);
	switch (find_row(job, table, descriptor, &columns, &key))
	{
		case ROW_AS_IT_WAS:
			update_row(job, table, descriptor, columns.target, &key);
			break;
		case ROW_CHANGED:
			cancel(job, "the row has changed");
			break;
		case ROW_LOCKED:
			come_again(job);
			break;
	}
}

static void
write_column(HymtJob *job)
{
	Relation	relation;
	HymtAsOwner former;

	if (!SearchSysCacheExists1(RELOID, ObjectIdGetDatum(job->relation)))
	{
		cancel(job, "the table is no more");
		return;
	}
	if (!ConditionalLockRelationOid(job->relation, RowExclusiveLock))
	{
		come_again(job);
		return;
	}
	relation = try_relation_open(job->relation, NoLock);
	if (relation == NULL || relation->rd_rel->relkind != RELKIND_RELATION)
	{
		if (relation != NULL)
			relation_close(relation, NoLock);
		cancel(job, "the table is no more");
		return;
	}
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "SPI_connect failed");
	hymt_as_owner_begin(job->relation, &former);
	use_settings();
	write_to(job, relation);
	hymt_as_owner_end(&former);
	SPI_finish();
	relation_close(relation, NoLock);
}

/*
 * Timeouts are signals to this process, which ignores them otherwise. One is not enough: the owner's code may catch it, and
 * begin to wait anew.
 */
static void
begin_limits(void)
{
	pqsignal(SIGINT, StatementCancelHandler);
	enable_timeout_every(STATEMENT_TIMEOUT, TimestampTzPlusMilliseconds(GetCurrentTimestamp(), LONGEST_WRITE_MS), CAUGHT_MS);
}

static void
end_limits(void)
{
	disable_timeout(STATEMENT_TIMEOUT, false);
	pqsignal(SIGINT, SIG_IGN);
	QueryCancelPending = false;
	/* Of the session, which functions may have taken. */
	LockReleaseSession(USER_LOCKMETHOD);
}

/* Another attempt may find another row, or another owner's mind. */
static void
fail(HymtJob *job)
{
	if (job->attempts < hymt_job_attempts)
		hymt_job_try_again(job);
	else
		job->ending.state = "dead";
}

void
hymt_job_write_column(HymtJob *job)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		begin_limits();
		write_column(job);
		end_limits();
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		end_limits();
		(void) hymt_job_note_error(job);
		fail(job);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
}
