/*
 * human_write.c: hymt_set_translation(), hymt_unset_translation(), and the trigger behind the view
 * hymt_human_translations.
 *
 * Runs in backends. Who may call these, or write to the view, need have no rights on the table: it is written as its
 * owner, with operations that outlive the statement forbidden and names looked up in pg_catalog only, so that whatever a
 * caller has prepared gains nothing; and what the owner has put on the table has no more rights than the owner.
 */
#include "cache_table.h"
#include "human.h"

#include "access/table.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(hymt_set_translation);
PG_FUNCTION_INFO_V1(hymt_unset_translation);
PG_FUNCTION_INFO_V1(hymt_human_trigger);

/* What a translation is of. */
typedef struct HumanKey
{
	text	   *source;
	const HymtLanguage *source_lang;
	const HymtLanguage *target_lang;
} HumanKey;

/* --- statements --------------------------------------------------------------------------------------------------- */

#define KEY_ARGUMENTS 3			/* text and languages */
#define ALL_ARGUMENTS 5			/* then translation and who sets it */

/* Kept, for the table of this name. A trigger on the table may bring us here again while they are executed. */
static struct
{
	char	   *table;			/* NULL: none are kept */
	SPIPlanPtr	remove;
	SPIPlanPtr	add;
	int			users;
} plans;

static SPIPlanPtr
prepare_plan(const char *format, const char *table, int arguments)
{
	Oid			types[ALL_ARGUMENTS] = {TEXTOID, TEXTOID, TEXTOID, TEXTOID, TEXTOID};
	SPIPlanPtr	plan = SPI_prepare_cursor(psprintf(format, table), arguments, types,
										  CURSOR_OPT_GENERIC_PLAN);

	if (plan == NULL || SPI_keepplan(plan) != 0)
		elog(ERROR, "hymt: could not prepare: %s", SPI_result_code_string(SPI_result));
	return plan;
}

/* What is being executed cannot be freed. It takes a trigger on the table that renames the schema to come to that. */
static void
forget_plans(void)
{
	if (plans.remove != NULL && plans.users == 0)
		SPI_freeplan(plans.remove);
	if (plans.add != NULL && plans.users == 0)
		SPI_freeplan(plans.add);
	plans.remove = NULL;
	plans.add = NULL;
	if (plans.table != NULL)
		pfree(plans.table);
	plans.table = NULL;
}

static void
prepare_plans(Relation table)
{
	char	   *name = hymt_quoted_table(RelationGetRelid(table));

	if (plans.table != NULL && strcmp(plans.table, name) == 0)
		return;
	forget_plans();
	plans.remove = prepare_plan("DELETE FROM %s WHERE hashtextextended(text COLLATE \"C\", 0) = "
								"hashtextextended($1 COLLATE \"C\", 0) AND source_lang = $2 AND target_lang = $3 AND "
								"text = $1 COLLATE \"C\"", name, KEY_ARGUMENTS);
	plans.add = prepare_plan("INSERT INTO %s (text, source_lang, target_lang, translation, set_by, set_at) "
							 "VALUES ($1, $2, $3, $4, $5, clock_timestamp())", name, ALL_ARGUMENTS);
	plans.table = MemoryContextStrdup(TopMemoryContext, name);
}

static uint64
run(SPIPlanPtr plan, int expected, Datum *arguments)
{
	int			result = SPI_execute_plan(plan, arguments, NULL, false, 0);

	if (result != expected)
		elog(ERROR, "hymt: unexpected result of a statement: %s", SPI_result_code_string(result));
	return SPI_processed;
}

/* Under SPI. */
static bool
run_plans(Relation table, const HumanKey *key, text *translation, Oid caller)
{
	Datum		arguments[ALL_ARGUMENTS];
	bool		removed;

	prepare_plans(table);
	arguments[0] = PointerGetDatum(key->source);
	arguments[1] = CStringGetTextDatum(key->source_lang->code);
	arguments[2] = CStringGetTextDatum(key->target_lang->code);
	plans.users++;
	PG_TRY();
	{
		removed = run(plans.remove, SPI_OK_DELETE, arguments) > 0;
		if (translation != NULL)
		{
			arguments[3] = PointerGetDatum(translation);
			arguments[4] = CStringGetTextDatum(GetUserNameFromId(caller, false));
			run(plans.add, SPI_OK_INSERT, arguments);
		}
	}
	PG_FINALLY();
	{
		plans.users--;
	}
	PG_END_TRY();
	return removed;
}

/* --- as the table's owner ----------------------------------------------------------------------------------------- */

static Relation
open_table(void)
{
	Relation	table = hymt_human_open(RowExclusiveLock);

	if (table == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_HYMT_VERSION_SKEW),
				 errmsg("extension hymt has no table for human translations in this database"),
				 errhint("Run ALTER EXTENSION hymt UPDATE.")));
	return table;
}

/* Takes away what there is for the key, and puts `translation` there, unless it is NULL. Returns whether there was any. */
static bool
replace(const HumanKey *key, text *translation)
{
	Relation	table = open_table();
	HymtAsOwner caller;
	bool		removed;

	hymt_as_owner_begin(RelationGetRelid(table), &caller);
	/* A plan that was made while the table was small must do for a large one. */
	(void) set_config_option("enable_seqscan", "off", PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	if (SPI_connect() != SPI_OK_CONNECT)
		elog(ERROR, "hymt: SPI_connect failed");
	removed = run_plans(table, key, translation, caller.user);
	SPI_finish();
	hymt_as_owner_end(&caller);
	table_close(table, NoLock);
	return removed;
}

/* --- functions ---------------------------------------------------------------------------------------------------- */

static text *
argument(FunctionCallInfo fcinfo, int number, const char *name)
{
	if (PG_ARGISNULL(number))
		ereport(ERROR,
				(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
				 errmsg("argument \"%s\" must not be null", name)));
	return PG_GETARG_TEXT_PP(number);
}

static void
read_key(FunctionCallInfo fcinfo, HumanKey *key)
{
	key->source = argument(fcinfo, 0, "text");
	key->source_lang = hymt_order_language("src", argument(fcinfo, 1, "src"));
	key->target_lang = hymt_order_language("tgt", argument(fcinfo, 2, "tgt"));
}

Datum
hymt_set_translation(PG_FUNCTION_ARGS)
{
	HumanKey	key;

	read_key(fcinfo, &key);
	PreventCommandIfReadOnly("hymt_set_translation()");
	(void) replace(&key, argument(fcinfo, 3, "translation"));
	PG_RETURN_VOID();
}

Datum
hymt_unset_translation(PG_FUNCTION_ARGS)
{
	HumanKey	key;

	read_key(fcinfo, &key);
	PreventCommandIfReadOnly("hymt_unset_translation()");
	PG_RETURN_BOOL(replace(&key, NULL));
}

/* --- the view ----------------------------------------------------------------------------------------------------- */

static text *
column(HeapTuple row, TupleDesc descriptor, const char *name)
{
	int			number = SPI_fnumber(descriptor, name);
	Datum		value;
	bool		null;

	if (number <= 0 || SPI_gettypeid(descriptor, number) != TEXTOID)
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("hymt_human_trigger: there is no column \"%s\" of type text", name)));
	value = SPI_getbinval(row, descriptor, number, &null);
	if (null)
		ereport(ERROR,
				(errcode(ERRCODE_NOT_NULL_VIOLATION),
				 errmsg("column \"%s\" must not be null", name)));
	return DatumGetTextPP(value);
}

static void
read_row_key(HeapTuple row, TupleDesc descriptor, HumanKey *key)
{
	key->source = column(row, descriptor, "text");
	key->source_lang = hymt_order_language("source_lang", column(row, descriptor, "source_lang"));
	key->target_lang = hymt_order_language("target_lang", column(row, descriptor, "target_lang"));
}

/* The rest of a row, who set it and when, is what comes of it. */
Datum
hymt_human_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	HeapTuple	row;
	TupleDesc	descriptor;
	HumanKey	key;

	if (!CALLED_AS_TRIGGER(fcinfo) || !TRIGGER_FIRED_INSTEAD(data->tg_event) || !TRIGGER_FIRED_FOR_ROW(data->tg_event))
		ereport(ERROR,
				(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
				 errmsg("hymt_human_trigger: must be fired INSTEAD OF, FOR EACH ROW")));
	descriptor = RelationGetDescr(data->tg_relation);
	row = data->tg_trigtuple;
	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event))
	{
		read_row_key(row, descriptor, &key);
		(void) replace(&key, NULL);
	}
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		row = data->tg_newtuple;
	if (!TRIGGER_FIRED_BY_DELETE(data->tg_event))
	{
		read_row_key(row, descriptor, &key);
		(void) replace(&key, column(row, descriptor, "translation"));
	}
	return PointerGetDatum(row);
}
