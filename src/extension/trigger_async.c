/*
 * trigger_async.c: hymt_translate_trigger(…, 'async'): the writer does not wait, and leaves a job in his transaction.
 *
 * Runs in backends, AFTER INSERT OR UPDATE FOR EACH ROW. Changes nothing but the table hymt_job. A job has what is needed
 * to find the row again, and to see whether its text is still that: the key and both columns' values. It is the table
 * owner's: he may read all of that anyway, and the column is filled with his rights.
 */
#include "hymt.h"
#include "jobs.h"
#include "trigger.h"

#include "access/genam.h"
#include "access/htup_details.h"
#include "catalog/pg_class.h"
#include "executor/spi.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/relcache.h"

/* The index whose columns tell one row from all others; invalid: none. */
static Oid
key_index(Relation relation)
{
	list_free(RelationGetIndexList(relation));
	return OidIsValid(relation->rd_pkindex) ? relation->rd_pkindex : relation->rd_replidindex;
}

static void
check_relation(Relation relation)
{
	if (relation->rd_rel->relpersistence == RELPERSISTENCE_TEMP)
		ereport(ERROR,
				(errcode(ERRCODE_WRONG_OBJECT_TYPE),
				 errmsg("hymt_translate_trigger: table \"%s\" is temporary, which no other process can write",
						RelationGetRelationName(relation)),
				 errhint("Use the trigger without \"async\".")));
	if (!OidIsValid(key_index(relation)))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("hymt_translate_trigger: table \"%s\" has no primary key", RelationGetRelationName(relation)),
				 errhint("With \"async\" rows are found again by their primary key, or by the index of REPLICA IDENTITY.")));
}

/* Values as text are the same for the worker, whatever the writer's settings. To be undone by AtEOXact_GUC(). */
static int
use_settings(void)
{
	static const char *const settings[][2] = {
		{"datestyle", "ISO"}, {"intervalstyle", "postgres"}, {"extra_float_digits", "3"}
	};
	int			level = NewGUCNestLevel();

	for (int i = 0; i < lengthof(settings); i++)
		(void) set_config_option(settings[i][0], settings[i][1], PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true, 0, false);
	return level;
}

static void
read_key(Relation relation, HeapTuple row, HymtJobColumn *column)
{
	Relation	index = index_open(key_index(relation), AccessShareLock);
	int			count = IndexRelationGetNumberOfKeyAttributes(index);
	int			settings = use_settings();

	column->key_count = count;
	for (int i = 0; i < count; i++)
	{
		AttrNumber	number = index->rd_index->indkey.values[i];

		column->key_column[i] = number;
		column->key[i] = SPI_getvalue(row, RelationGetDescr(relation), number);
	}
	AtEOXact_GUC(true, settings);
	index_close(index, AccessShareLock);
}

/* Whether the statement leaves the target to the trigger, and it is not what it has to be already. */
static bool
must_submit(const TriggerData *data, const text *source, const text *former, const HymtTriggerColumns *columns)
{
	if (source == NULL && former == NULL)
		return false;
	if (TRIGGER_FIRED_BY_UPDATE(data->tg_event))
		return hymt_trigger_column_changed(data, columns->source) && !hymt_trigger_column_changed(data, columns->target);
	return former == NULL;
}

void
hymt_trigger_submit(const TriggerData *data, const HymtTriggerColumns *columns, const HymtOrder *order)
{
	static const char *const on_error[] = {
		[HYMT_ON_ERROR_RAISE] = "error", [HYMT_ON_ERROR_NULL] = "null", [HYMT_ON_ERROR_SOURCE] = "source"
	};
	HeapTuple	row = TRIGGER_FIRED_BY_UPDATE(data->tg_event) ? data->tg_newtuple : data->tg_trigtuple;
	TupleDesc	descriptor = RelationGetDescr(data->tg_relation);
	text	   *source = hymt_column_text(row, descriptor, columns->source);
	HymtJobColumn column = {
		.relation = RelationGetRelid(data->tg_relation),
		.owner = data->tg_relation->rd_rel->relowner,
		.trigger = data->tg_trigger->tgname,
		.former = hymt_column_text(row, descriptor, columns->target)
	};

	hymt_check_preloaded();
	check_relation(data->tg_relation);
	if (!must_submit(data, source, column.former, columns))
		return;
	if (source != NULL)
		hymt_job_check_text(source, order);
	read_key(data->tg_relation, row, &column);
	hymt_job_submit_column(&column, order, on_error[order->on_error], source);
}
