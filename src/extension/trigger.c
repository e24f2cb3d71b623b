/*
 * trigger.c: hymt_translate_trigger('col', 'target_col', 'src', 'tgt' [, 'on_error'] [, 'async']).
 *
 * Runs in backends. BEFORE INSERT OR UPDATE FOR EACH ROW it changes nothing but the row at hand; with 'async' it is fired
 * AFTER, changes nothing, and leaves a job, see trigger_async.c. Calls the model only when the source changed and nobody
 * gave a translation by hand in the same statement.
 */
#include "trigger.h"

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "commands/trigger.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/datum.h"
#include "utils/lsyscache.h"
#include "utils/rel.h"

PG_FUNCTION_INFO_V1(hymt_translate_trigger);

/* The last argument, of a trigger that leaves jobs. */
#define ASYNC "async"

static void
raise_protocol(const char *message)
{
	ereport(ERROR,
			(errcode(ERRCODE_E_R_I_E_TRIGGER_PROTOCOL_VIOLATED),
			 errmsg("hymt_translate_trigger: %s", message)));
}

static bool
is_async(const Trigger *trigger)
{
	return trigger->tgnargs > 4 && strcmp(trigger->tgargs[trigger->tgnargs - 1], ASYNC) == 0;
}

static void
check_call(FunctionCallInfo fcinfo)
{
	TriggerData *data = (TriggerData *) fcinfo->context;

	if (!CALLED_AS_TRIGGER(fcinfo))
		raise_protocol("not called by a trigger");
	if (!TRIGGER_FIRED_FOR_ROW(data->tg_event) || TRIGGER_FIRED_BEFORE(data->tg_event) == is_async(data->tg_trigger))
		raise_protocol(is_async(data->tg_trigger) ? "\"async\", it must be fired AFTER, FOR EACH ROW" :
					   "must be fired BEFORE, FOR EACH ROW");
	if (!TRIGGER_FIRED_BY_INSERT(data->tg_event) && !TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		raise_protocol("must be fired by INSERT or UPDATE");
	if (data->tg_trigger->tgnargs < 4 || data->tg_trigger->tgnargs > (is_async(data->tg_trigger) ? 6 : 5))
		ereport(ERROR,
				(errcode(ERRCODE_TRIGGERED_ACTION_EXCEPTION),
				 errmsg("hymt_translate_trigger takes 4 or 5 arguments, and \"async\", not %d", data->tg_trigger->tgnargs),
				 errhint("They are column, target column, source language, target language, and perhaps on_error and \"async\".")));
}

/* A column by name, which must hold text of some kind. */
static int
text_column(Relation relation, const char *name)
{
	int			number = SPI_fnumber(RelationGetDescr(relation), name);
	char		category;
	bool		preferred;

	if (number <= 0)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_COLUMN),
				 errmsg("column \"%s\" of relation \"%s\" does not exist", name, RelationGetRelationName(relation))));
	get_type_category_preferred(getBaseType(SPI_gettypeid(RelationGetDescr(relation), number)), &category, &preferred);
	if (category != TYPCATEGORY_STRING)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("column \"%s\" of relation \"%s\" is not of a text type", name,
						RelationGetRelationName(relation))));
	if (TupleDescAttr(RelationGetDescr(relation), number - 1)->attgenerated != '\0')
		ereport(ERROR,
				(errcode(ERRCODE_GENERATED_ALWAYS),
				 errmsg("column \"%s\" of relation \"%s\" is generated, which happens after the trigger", name,
						RelationGetRelationName(relation))));
	return number;
}

/* The input function of type name cuts what is longer than 63 bytes without a word. */
static void
check_room(Relation relation, int target)
{
	if (getBaseType(SPI_gettypeid(RelationGetDescr(relation), target)) == NAMEOID)
		ereport(ERROR,
				(errcode(ERRCODE_DATATYPE_MISMATCH),
				 errmsg("target column \"%s\" of relation \"%s\" is of type name, which would cut translations",
						NameStr(TupleDescAttr(RelationGetDescr(relation), target - 1)->attname),
						RelationGetRelationName(relation)),
				 errhint("Use type text.")));
}

void
hymt_trigger_columns(Relation relation, const Trigger *trigger, HymtTriggerColumns *columns)
{
	columns->source = text_column(relation, trigger->tgargs[0]);
	columns->target = text_column(relation, trigger->tgargs[1]);
	check_room(relation, columns->target);
	if (columns->source == columns->target)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("hymt_translate_trigger: source and target are the same column")));
}

/* The fifth argument, unless that is "async"; NULL: none. */
static const char *
on_error_argument(const Trigger *trigger)
{
	return trigger->tgnargs > 4 && strcmp(trigger->tgargs[4], ASYNC) != 0 ? trigger->tgargs[4] : NULL;
}

void
hymt_trigger_order(const Trigger *trigger, HymtOrder *order)
{
	char	  **arguments = trigger->tgargs;

	memset(order, 0, sizeof(HymtOrder));
	if (strcmp(arguments[2], "auto") != 0)
		order->source = hymt_order_language("src", cstring_to_text(arguments[2]));
	order->target = hymt_order_language("tgt", cstring_to_text(arguments[3]));
	if (on_error_argument(trigger) != NULL)
		order->on_error = hymt_order_on_error(cstring_to_text(on_error_argument(trigger)));
	if (order->source == NULL)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("hymt %s does not support language detection", HYMT_VERSION),
				 errhint("Name the source language in the trigger's third argument.")));
}

/*
 * Whether a column differs between the old and the new row, byte for byte: citext and nondeterministic collations call
 * texts equal whose translations differ.
 */
bool
hymt_trigger_column_changed(const TriggerData *data, int number)
{
	TupleDesc	descriptor = RelationGetDescr(data->tg_relation);
	Form_pg_attribute attribute = TupleDescAttr(descriptor, number - 1);
	bool		old_null;
	bool		new_null;
	Datum		old_value = heap_getattr(data->tg_trigtuple, number, descriptor, &old_null);
	Datum		new_value = heap_getattr(data->tg_newtuple, number, descriptor, &new_null);

	if (old_null || new_null)
		return old_null != new_null;
	return !datum_image_eq(old_value, new_value, attribute->attbyval, attribute->attlen);
}

/* Whether the statement leaves the target to the trigger. */
static bool
must_translate(const TriggerData *data, HeapTuple row, const HymtTriggerColumns *columns)
{
	bool		null;

	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		return hymt_trigger_column_changed(data, columns->source) && !hymt_trigger_column_changed(data, columns->target);
	heap_getattr(row, columns->target, RelationGetDescr(data->tg_relation), &null);
	return null;
}

/*
 * A column's value as text, through its type's output function. The blanks that pad a character(n) are no part of the
 * text, as in a cast to text.
 */
text *
hymt_column_text(HeapTuple row, TupleDesc descriptor, int number)
{
	char	   *value = SPI_getvalue(row, descriptor, number);
	Size		length;
	text	   *result;

	if (value == NULL)
		return NULL;
	length = strlen(value);
	if (getBaseType(SPI_gettypeid(descriptor, number)) == BPCHAROID)
	{
		while (length > 0 && value[length - 1] == ' ')
			length--;
	}
	result = cstring_to_text_with_len(value, (int) length);
	pfree(value);
	return result;
}

/* Through the input function with the column's type modifier, so that limits and domain checks apply as usual. */
Datum
hymt_column_value(const text *value, TupleDesc descriptor, int number)
{
	Form_pg_attribute attribute = TupleDescAttr(descriptor, number - 1);
	char	   *string = text_to_cstring(value);
	Oid			input;
	Oid			parameter;
	Datum		result;

	getTypeInputInfo(attribute->atttypid, &input, &parameter);
	result = OidInputFunctionCall(input, string, parameter, attribute->atttypmod);
	pfree(string);
	return result;
}

static HeapTuple
with_translation(HeapTuple row, const TriggerData *data, HymtTriggerColumns *columns, const HymtOrder *order)
{
	TupleDesc	descriptor = RelationGetDescr(data->tg_relation);
	text	   *source = hymt_column_text(row, descriptor, columns->source);
	text	   *translation = source == NULL ? NULL : hymt_translate_text(source, order, NULL);
	Datum		value = (Datum) 0;
	bool		null = translation == NULL;

	if (!null)
		value = hymt_column_value(translation, descriptor, columns->target);
	return heap_modify_tuple_by_cols(row, descriptor, 1, &columns->target, &value, &null);
}

Datum
hymt_translate_trigger(PG_FUNCTION_ARGS)
{
	TriggerData *data = (TriggerData *) fcinfo->context;
	HymtTriggerColumns columns;
	HymtOrder	order;
	HeapTuple	row;

	check_call(fcinfo);
	hymt_trigger_columns(data->tg_relation, data->tg_trigger, &columns);
	hymt_trigger_order(data->tg_trigger, &order);
	if (is_async(data->tg_trigger))
	{
		hymt_trigger_submit(data, &columns, &order);
		return PointerGetDatum(NULL);
	}
	row = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;
	if (must_translate(data, row, &columns))
		row = with_translation(row, data, &columns, &order);
	return PointerGetDatum(row);
}
