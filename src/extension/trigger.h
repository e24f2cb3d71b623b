/*
 * trigger.h: what the two forms of hymt_translate_trigger() and the jobs of one of them share.
 *
 *      trigger.c           the form that translates at once
 *      trigger_async.c     the form that leaves a job, in the writer's transaction
 *      job_column.c        what becomes of such a job: the database worker fills the column
 */
#ifndef HYMT_TRIGGER_H
#define HYMT_TRIGGER_H

#include "session.h"

#include "commands/trigger.h"
#include "utils/rel.h"

typedef struct HymtTriggerColumns
{
	int			source;			/* attribute numbers */
	int			target;
} HymtTriggerColumns;

/* --- trigger.c ---------------------------------------------------------------------------------------------------- */

/* By a trigger's arguments, which are at least four. Raise what is wrong with them. */
extern void hymt_trigger_columns(Relation relation, const Trigger *trigger, HymtTriggerColumns *columns);
extern void hymt_trigger_order(const Trigger *trigger, HymtOrder *order);

/* Of a trigger fired by UPDATE. */
extern bool hymt_trigger_column_changed(const TriggerData *data, int number);

/* A column's value as text, NULL: null; and a text as a column's value, which may raise. */
extern text *hymt_column_text(HeapTuple row, TupleDesc descriptor, int number);
extern Datum hymt_column_value(const text *value, TupleDesc descriptor, int number);

/* --- trigger_async.c ---------------------------------------------------------------------------------------------- */

/* Leaves a job for the row at hand, if its translation is missing or out of date. */
extern void hymt_trigger_submit(const TriggerData *data, const HymtTriggerColumns *columns, const HymtOrder *order);

#endif							/* HYMT_TRIGGER_H */
