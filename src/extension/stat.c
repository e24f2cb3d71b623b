/*
 * stat.c: counts what happens to requests, and shows it: the views hymt_stat and hymt_stat_activity.
 *
 * The counting runs in backends and workers, where the things happen; it only moves integers, under the queue lock. The
 * SQL functions run in backends and take copies under the lock. A text that is translated is never looked at.
 */
#include "cache.h"
#include "row.h"
#include "queue_internal.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_type.h"
#include "commands/dbcommands.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(hymt_stat);
PG_FUNCTION_INFO_V1(hymt_stat_reset);
PG_FUNCTION_INFO_V1(hymt_stat_activity);

/* --- counting ----------------------------------------------------------------------------------------------------- */

static void
add_time(HymtHistogram *histogram, TimestampTz from, TimestampTz to)
{
	/* Clocks are set back at times. */
	uint64		us = to > from ? (uint64) (to - from) : 0;
	int			bucket = 0;

	while (bucket < HYMT_STAT_BUCKETS - 1 && us > (UINT64CONST(1000) << bucket))
		bucket++;
	histogram->bucket[bucket]++;
	histogram->sum_us += us;
}

void
hymt_stat_requested(void)
{
	hymt_shared->stat.requests++;
}

void
hymt_stat_joined(void)
{
	hymt_shared->stat.joined++;
}

void
hymt_stat_queued(const HymtSlot *slot)
{
	/* Before it, the queue owed no progress. */
	if (hymt_shared->queued_count == 1)
		hymt_shared->progress_at = slot->submitted;
}

void
hymt_stat_claimed(HymtSlot *slot, TimestampTz now)
{
	/* Claims of no device serve to fail requests that nobody will answer. */
	if (slot->device >= hymt_shared->device_count)
		return;
	hymt_shared->progress_at = now;
	if (slot->begun != 0)
		return;					/* not the first time */
	slot->begun = now;
	add_time(&hymt_shared->stat.queue_wait, slot->asked, now);
}

static HymtStatFailure
failure_kind(const HymtSlot *slot)
{
	if (slot->sqlstate == ERRCODE_HYMT_ENGINE_CRASHED)
		return HYMT_STAT_CRASHED;
	if (slot->sqlstate == ERRCODE_HYMT_ENGINE_FAILED && slot->begun != 0)
		return HYMT_STAT_ENGINE;
	switch (slot->failure)
	{
		case HYMT_FAILURE_LANGUAGE:
			return HYMT_STAT_LANGUAGE;
		case HYMT_FAILURE_TOO_LONG:
			return HYMT_STAT_TOO_LONG;
		case HYMT_FAILURE_UNFINISHED:
			return HYMT_STAT_UNFINISHED;
		case HYMT_FAILURE_NO_MEMORY:
			return HYMT_STAT_MEMORY;
		case HYMT_FAILURE_OVER_LIMIT:
		case HYMT_FAILURE_NUMERIC:
		case HYMT_FAILURE_INTERNAL:
			return slot->begun != 0 ? HYMT_STAT_ENGINE : HYMT_STAT_UNAVAILABLE;
		case HYMT_FAILURE_MODEL_MISSING:
		case HYMT_FAILURE_MODEL_UNREADABLE:
		case HYMT_FAILURE_MODEL_BROKEN:
		case HYMT_FAILURE_MODEL_UNSUPPORTED:
		case HYMT_FAILURE_ADAPTER:
			return HYMT_STAT_UNAVAILABLE;
		case HYMT_FAILURE_NONE:
		case HYMT_FAILURE_BAD_REQUEST:
		case HYMT_FAILURE_BAD_TEXT:
		case HYMT_FAILURE_UNSUPPORTED:
			break;
	}
	return slot->sqlstate != 0 ? HYMT_STAT_UNAVAILABLE : HYMT_STAT_OTHER;
}

/* What became of a request that was answered in `slot`, its own or another one's. */
static void
add_outcome(const HymtSlot *slot, TimestampTz asked, TimestampTz now)
{
	HymtStats  *stat = &hymt_shared->stat;

	if (slot->state == HYMT_SLOT_FAILED)
		stat->failed[failure_kind(slot)]++;
	else if (slot->finish == HYMT_FINISH_LENGTH || slot->finish == HYMT_FINISH_LOOP)
		stat->failed[HYMT_STAT_UNFINISHED]++;
	else
	{
		stat->answered++;
		add_time(&stat->total_time, asked, now);
	}
}

void
hymt_stat_answered(const HymtSlot *slot, TimestampTz now)
{
	hymt_shared->stat.input_tokens += slot->input_tokens;
	hymt_shared->stat.output_tokens += slot->output_tokens;
	if (slot->begun != 0)
		hymt_shared->progress_at = now;
	/* An owner that left, leaving it to followers, was counted then. */
	if (slot->owner_procno >= 0)
		add_outcome(slot, slot->asked, now);
}

void
hymt_stat_landed(const HymtSlot *follower, const HymtSlot *leader, TimestampTz now)
{
	add_outcome(leader, follower->asked, now);
}

void
hymt_stat_retried(void)
{
	hymt_shared->stat.retries++;
}

void
hymt_stat_steps(const HymtStatSteps *more, TimestampTz now)
{
	hymt_shared->stat.steps += more->steps;
	hymt_shared->stat.step_rows += more->rows;
	hymt_shared->stat.degraded_steps += more->degraded_steps;
	hymt_shared->stat.reused_tokens += more->reused_tokens;
	hymt_shared->stat.preemptions += more->preemptions;
	hymt_shared->progress_at = now;
}

void
hymt_stat_restarted(void)
{
	hymt_shared->stat.restarts++;
}

void
hymt_stat_unanswered(HymtStatFailure kind)
{
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	hymt_shared->stat.failed[kind]++;
	LWLockRelease(hymt_shared->lock);
}

void
hymt_stat_refused(HymtStatFailure kind)
{
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	hymt_shared->stat.requests++;
	hymt_shared->stat.failed[kind]++;
	LWLockRelease(hymt_shared->lock);
}

/* --- hymt_stat ---------------------------------------------------------------------------------------------------- */

#define STAT_COLUMNS 42
#define ACTIVITY_COLUMNS 13

static void
add_counter(HymtRow *row, uint64 counter)
{
	hymt_row_add(row, Int64GetDatum((int64) counter));
}

/*
 * The time, in ms, that a share of all took at most: interpolated inside of its bucket, as if those in it were spread
 * evenly. Of the last bucket only its lower bound is known.
 */
static double
quantile(const HymtHistogram *histogram, uint64 total, double share)
{
	double		rank = share * (double) total;
	double		below = 0;

	for (int i = 0; i < HYMT_STAT_BUCKETS - 1; i++)
	{
		double		upper = (double) (1 << i);
		double		lower = i == 0 ? 0 : upper / 2;
		double		inside = (double) histogram->bucket[i];

		if (inside > 0 && below + inside >= rank)
			return lower + (upper - lower) * (rank - below) / inside;
		below += inside;
	}
	return (double) (1 << (HYMT_STAT_BUCKETS - 2));
}

/* Five columns: sum, three quantiles, buckets. */
static void
add_histogram(HymtRow *row, const HymtHistogram *histogram)
{
	static const double shares[] = {0.5, 0.95, 0.99};
	Datum		buckets[HYMT_STAT_BUCKETS];
	uint64		total = 0;

	for (int i = 0; i < HYMT_STAT_BUCKETS; i++)
	{
		total += histogram->bucket[i];
		buckets[i] = Int64GetDatum((int64) histogram->bucket[i]);
	}
	hymt_row_add(row, Float8GetDatum((double) histogram->sum_us / 1000));
	for (int i = 0; i < lengthof(shares); i++)
	{
		if (total == 0)
			hymt_row_add_null(row);
		else
			hymt_row_add(row, Float8GetDatum(quantile(histogram, total, shares[i])));
	}
	hymt_row_add(row, PointerGetDatum(construct_array(buckets, HYMT_STAT_BUCKETS, INT8OID, sizeof(int64),
													  FLOAT8PASSBYVAL, TYPALIGN_DOUBLE)));
}

/* Nine columns. These have no part in the queue lock. */
static void
add_cache(HymtRow *row)
{
	uint64		count[HYMT_CACHE_COUNTS];
	uint64		entries;
	uint64		bytes;

	hymt_cache_counts(count);
	hymt_cache_memory_usage(&entries, &bytes);
	add_counter(row, count[HYMT_CACHE_MEMORY_HITS]);
	add_counter(row, count[HYMT_CACHE_TABLE_HITS]);
	add_counter(row, count[HYMT_CACHE_MISSES]);
	add_counter(row, entries);
	add_counter(row, bytes);
	add_counter(row, count[HYMT_CACHE_MEMORY_EVICTIONS]);
	add_counter(row, count[HYMT_CACHE_WRITTEN]);
	add_counter(row, count[HYMT_CACHE_DROPPED]);
	add_counter(row, count[HYMT_CACHE_TABLE_EVICTIONS]);
}

Datum
hymt_stat(PG_FUNCTION_ARGS)
{
	TupleDesc	descriptor;
	HymtStats	stat;
	HymtRow		row;

	hymt_check_preloaded();
	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "hymt_stat must return columns");
	hymt_check_columns(descriptor, STAT_COLUMNS);

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	stat = hymt_shared->stat;
	LWLockRelease(hymt_shared->lock);

	hymt_row_begin(&row);
	add_counter(&row, stat.requests);
	add_counter(&row, stat.joined);
	add_counter(&row, stat.answered);
	for (int kind = 0; kind < HYMT_STAT_FAILURES; kind++)
		add_counter(&row, stat.failed[kind]);
	add_counter(&row, stat.retries);
	add_counter(&row, stat.restarts);
	add_counter(&row, stat.input_tokens);
	add_counter(&row, stat.output_tokens);
	add_counter(&row, stat.steps);
	if (stat.steps > 0)
		hymt_row_add(&row, Float8GetDatum((double) stat.step_rows / (double) stat.steps));
	else
		hymt_row_add_null(&row);
	add_counter(&row, stat.degraded_steps);
	add_counter(&row, stat.reused_tokens);
	add_counter(&row, stat.preemptions);
	add_histogram(&row, &stat.queue_wait);
	add_histogram(&row, &stat.total_time);
	add_cache(&row);
	hymt_row_add(&row, TimestampTzGetDatum(stat.since));
	Assert(row.next == STAT_COLUMNS);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), row.value, row.null)));
}

Datum
hymt_stat_reset(PG_FUNCTION_ARGS)
{
	TimestampTz now = GetCurrentTimestamp();

	hymt_check_preloaded();
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	memset(&hymt_shared->stat, 0, sizeof(HymtStats));
	hymt_shared->stat.since = now;
	LWLockRelease(hymt_shared->lock);
	hymt_cache_counts_reset();
	PG_RETURN_VOID();
}

/* --- hymt_stat_activity ------------------------------------------------------------------------------------------- */

/* What is shown of a slot. */
typedef struct Occupied
{
	HymtSlotState state;
	HymtClass	class;
	int			pid;
	Oid			database;
	Oid			role;
	int			device;
	int			crashes;
	Size		text_length;
	TimestampTz asked;
	TimestampTz begun;
	char		source_lang[HYMT_LANG_MAX];
	char		target_lang[HYMT_LANG_MAX];
} Occupied;

static const char *
state_name(HymtSlotState state)
{
	switch (state)
	{
		case HYMT_SLOT_FREE:
			break;
		case HYMT_SLOT_FILLING:
			return "filling";
		case HYMT_SLOT_QUEUED:
			return "queued";
		case HYMT_SLOT_FOLLOWING:
			return "following";
		case HYMT_SLOT_CLAIMED:
			return "claimed";
		case HYMT_SLOT_ABANDONED:
			return "abandoned";
		case HYMT_SLOT_DONE:
			return "done";
		case HYMT_SLOT_FAILED:
			return "failed";
	}
	return "unknown";
}

static const char *const class_names[HYMT_LIMITED_CLASSES] = {
	[HYMT_CLASS_SINGLE] = "single", [HYMT_CLASS_BULK] = "bulk", [HYMT_CLASS_AHEAD] = "ahead"
};

static void
copy_slot(const HymtSlot *slot, Occupied *copy)
{
	/* One that follows another is where that is. */
	const HymtSlot *leader = hymt_slot_leader(slot);

	copy->state = slot->state;
	copy->class = slot->asked_class;
	copy->pid = slot->owner_pid;
	copy->database = slot->database;
	copy->role = slot->role;
	copy->device = leader->device;
	copy->crashes = leader->crashes;
	copy->text_length = slot->text_length;
	copy->asked = slot->asked;
	copy->begun = leader->begun;
	memcpy(copy->source_lang, slot->source_lang, HYMT_LANG_MAX);
	memcpy(copy->target_lang, slot->target_lang, HYMT_LANG_MAX);
}

/* Copies of all slots in use at one moment; names are looked up later, without the lock. */
static Occupied *
copy_slots(int *count)
{
	/* Under the lock nothing is allocated, so there is room for all. */
	Occupied   *copies = palloc(sizeof(Occupied) * hymt_shared->slot_count);

	*count = 0;
	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	for (int i = 0; i < hymt_shared->slot_count && *count < hymt_shared->slot_count - hymt_shared->free_count; i++)
	{
		if (hymt_shared->slot[i].state != HYMT_SLOT_FREE)
			copy_slot(&hymt_shared->slot[i], &copies[(*count)++]);
	}
	LWLockRelease(hymt_shared->lock);
	return copies;
}

static void
add_name(HymtRow *row, const char *name)
{
	Name		value;

	if (name == NULL)			/* dropped meanwhile */
	{
		hymt_row_add_null(row);
		return;
	}
	value = palloc(sizeof(NameData));
	namestrcpy(value, name);
	hymt_row_add(row, NameGetDatum(value));
}

static void
add_details(HymtRow *row, const Occupied *slot, TimestampTz now)
{
	hymt_row_add(row, CStringGetTextDatum(class_names[slot->class]));
	add_name(row, get_database_name(slot->database));
	add_name(row, GetUserNameFromId(slot->role, true));
	if (slot->device >= 0 && slot->device < hymt_shared->device_count)
		hymt_row_add(row, Int32GetDatum(slot->device));
	else
		hymt_row_add_null(row);
	hymt_row_add(row, CStringGetTextDatum(slot->source_lang));
	hymt_row_add(row, CStringGetTextDatum(slot->target_lang));
	hymt_row_add(row, Int64GetDatum((int64) slot->text_length));
	hymt_row_add(row, Int32GetDatum(slot->crashes));
	hymt_row_add(row, TimestampTzGetDatum(slot->asked));
	if (slot->begun != 0)
		hymt_row_add(row, TimestampTzGetDatum(slot->begun));
	else
		hymt_row_add_null(row);
	hymt_row_add(row, DirectFunctionCall2(timestamp_mi, TimestampTzGetDatum(Max(now, slot->asked)),
										  TimestampTzGetDatum(slot->asked)));
}

/* As in pg_stat_activity: of other roles' requests only that they are there. */
Datum
hymt_stat_activity(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	TimestampTz now = GetCurrentTimestamp();
	bool		sees_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
	Occupied   *slots;
	int			count;

	hymt_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	hymt_check_columns(result->setDesc, ACTIVITY_COLUMNS);
	slots = copy_slots(&count);
	for (int i = 0; i < count; i++)
	{
		HymtRow		row;

		hymt_row_begin(&row);
		if (slots[i].pid != 0)
			hymt_row_add(&row, Int32GetDatum(slots[i].pid));
		else
			hymt_row_add_null(&row);		/* its owner left it to those who follow it */
		hymt_row_add(&row, CStringGetTextDatum(state_name(slots[i].state)));
		if (sees_all || has_privs_of_role(GetUserId(), slots[i].role))
			add_details(&row, &slots[i], now);
		tuplestore_putvalues(result->setResult, result->setDesc, row.value, row.null);
	}
	pfree(slots);
	return (Datum) 0;
}
