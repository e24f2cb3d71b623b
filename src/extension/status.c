/*
 * status.c: what the devices are doing, whether translations can be had, and which languages there are.
 *
 * Runs in backends. Reads shared memory under the queue lock, one copy at a time, and writes nothing.
 */
#include "session.h"
#include "row.h"

#include <limits.h>

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

PG_FUNCTION_INFO_V1(hymt_status);
PG_FUNCTION_INFO_V1(hymt_health);
PG_FUNCTION_INFO_V1(hymt_languages_sql);

/* Columns of hymt_status(). */
enum
{
	STATUS_DEVICE,
	STATUS_STATE,
	STATUS_LOADING_PHASE,
	STATUS_LOADING_PERCENT,
	STATUS_ENGINE_PID,
	STATUS_WORKER_PID,
	STATUS_MODEL,
	STATUS_FAMILY,
	STATUS_FINGERPRINT,
	STATUS_PARAMETERS,
	STATUS_PRECISION,
	STATUS_WEIGHT_BYTES,
	STATUS_HARDWARE,
	STATUS_THREADS,
	STATUS_MAX_CONTEXT,
	STATUS_SLOTS,
	STATUS_SLOTS_IN_USE,
	STATUS_QUEUE_BYTES,
	STATUS_QUEUE_BYTES_IN_USE,
	STATUS_REQUESTS,
	STATUS_STEPS,
	STATUS_ROWS_PER_STEP,
	STATUS_UPTIME,
	STATUS_RESTARTS,
	STATUS_LAST_ERROR,
	STATUS_LAST_ERROR_AT,
	STATUS_COUNT
};

/* A consistent copy of what one row tells. */
typedef struct DeviceView
{
	HymtDeviceState device;
	int			slots;
	int			slots_in_use;
	Size		bytes;
	Size		bytes_in_use;
} DeviceView;

static void
copy_device(int device, DeviceView *view)
{
	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	view->device = hymt_shared->device[device];
	view->slots = hymt_shared->slot_count;
	view->slots_in_use = hymt_shared->slot_count - hymt_shared->free_count;
	view->bytes = hymt_shared->bytes_limit;
	view->bytes_in_use = hymt_shared->bytes_used;
	LWLockRelease(hymt_shared->lock);
}

static const char *
phase_name(HymtDevicePhase phase)
{
	switch (phase)
	{
		case HYMT_DEVICE_NO_WORKER:
			return "no worker";
		case HYMT_DEVICE_STARTING:
			return "starting";
		case HYMT_DEVICE_LOADING:
			return "loading";
		case HYMT_DEVICE_READY:
			return "ready";
		case HYMT_DEVICE_RESTARTING:
			return "restarting";
		case HYMT_DEVICE_REFUSED:
			return "refused";
	}
	return "unknown";
}

/* A string of shared memory, from the engine; empty is null. `size` is that of its array. */
static void
set_string(HymtRow *row, int column, const char *string, Size size)
{
	Size		length = strnlen(string, size);

	if (length > 0)
		hymt_row_set(row, column, CStringGetTextDatum(hymt_text_to_server(string, length)));
}

static void
set_pid(HymtRow *row, int column, int pid)
{
	if (pid != 0)
		hymt_row_set(row, column, Int32GetDatum(pid));
}

/* What only a loaded model has. */
static void
set_model(HymtRow *row, const HymtDeviceState *device)
{
	if (device->fingerprint[0] == '\0')
		return;
	set_string(row, STATUS_MODEL, device->model, sizeof(device->model));
	set_string(row, STATUS_FAMILY, device->family, sizeof(device->family));
	set_string(row, STATUS_FINGERPRINT, device->fingerprint, sizeof(device->fingerprint));
	hymt_row_set(row, STATUS_PARAMETERS, Int64GetDatum((int64) device->parameters));
	set_string(row, STATUS_PRECISION, device->precision, sizeof(device->precision));
	hymt_row_set(row, STATUS_WEIGHT_BYTES, Int64GetDatum((int64) device->weight_bytes));
	set_string(row, STATUS_HARDWARE, device->device, sizeof(device->device));
	hymt_row_set(row, STATUS_THREADS, Int32GetDatum(device->threads));
	hymt_row_set(row, STATUS_MAX_CONTEXT, Int32GetDatum(device->max_context));
}

static void
set_counters(HymtRow *row, const DeviceView *view)
{
	const HymtDeviceState *device = &view->device;

	hymt_row_set(row, STATUS_SLOTS, Int32GetDatum(view->slots));
	hymt_row_set(row, STATUS_SLOTS_IN_USE, Int32GetDatum(view->slots_in_use));
	hymt_row_set(row, STATUS_QUEUE_BYTES, Int64GetDatum((int64) view->bytes));
	hymt_row_set(row, STATUS_QUEUE_BYTES_IN_USE, Int64GetDatum((int64) view->bytes_in_use));
	hymt_row_set(row, STATUS_REQUESTS, Int64GetDatum((int64) device->requests));
	hymt_row_set(row, STATUS_STEPS, Int64GetDatum((int64) device->steps));
	if (device->steps > 0)
		hymt_row_set(row, STATUS_ROWS_PER_STEP, Float8GetDatum((double) device->sequence_steps / device->steps));
	hymt_row_set(row, STATUS_RESTARTS, Int64GetDatum((int64) device->restarts));
}

static void
fill_row(HymtRow *row, int number, const DeviceView *view)
{
	const HymtDeviceState *device = &view->device;

	hymt_row_begin(row);
	hymt_row_set(row, STATUS_DEVICE, Int32GetDatum(number));
	hymt_row_set(row, STATUS_STATE, CStringGetTextDatum(phase_name(device->phase)));
	/* Also while an engine serves, of new settings that are loaded beside it. */
	if (device->phase == HYMT_DEVICE_LOADING || device->loading_phase[0] != '\0')
	{
		set_string(row, STATUS_LOADING_PHASE, device->loading_phase, sizeof(device->loading_phase));
		hymt_row_set(row, STATUS_LOADING_PERCENT, Int32GetDatum(device->loading_percent));
	}
	set_pid(row, STATUS_ENGINE_PID, device->engine_pid);
	set_pid(row, STATUS_WORKER_PID, device->worker_pid);
	set_model(row, device);
	set_counters(row, view);
	if (device->phase == HYMT_DEVICE_READY)
		hymt_row_set(row, STATUS_UPTIME,
			DirectFunctionCall2(timestamp_mi, TimestampTzGetDatum(GetCurrentTimestamp()),
								TimestampTzGetDatum(device->ready_since)));
	set_string(row, STATUS_LAST_ERROR, device->last_error, sizeof(device->last_error));
	if (device->last_error_at != 0)
		hymt_row_set(row, STATUS_LAST_ERROR_AT, TimestampTzGetDatum(device->last_error_at));
}

void
hymt_check_columns(TupleDesc descriptor, int count)
{
	if (descriptor->natts != count)
		ereport(ERROR,
				(errcode(ERRCODE_HYMT_VERSION_SKEW),
				 errmsg("the functions of extension hymt do not fit its library"),
				 errhint("Run ALTER EXTENSION hymt UPDATE.")));
}

Datum
hymt_status(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;

	hymt_check_preloaded();
	InitMaterializedSRF(fcinfo, 0);
	hymt_check_columns(result->setDesc, STATUS_COUNT);
	for (int i = 0; i < hymt_shared->device_count; i++)
	{
		DeviceView	view;
		HymtRow		row;

		copy_device(i, &view);
		fill_row(&row, i, &view);
		tuplestore_putvalues(result->setResult, result->setDesc, row.value, row.null);
	}
	return (Datum) 0;
}

/* --- health ------------------------------------------------------------------------------------------------------- */

/* What decides whether translations can be had; of the devices the one from which they can be hoped for soonest. */
typedef struct Health
{
	HymtDevicePhase phase;
	int			sqlstate;
	int			percent;
	char		loading_phase[HYMT_NAME_MAX];
	char		last_error[HYMT_MESSAGE_MAX];
	int			queued;
	bool		full;			/* no slot, or no memory for another text */
	TimestampTz progress_at;
} Health;

static void
look(Health *health)
{
	const HymtDeviceState *best;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	best = hymt_best_device();
	health->phase = best->phase;
	health->sqlstate = best->sqlstate;
	health->percent = best->loading_percent;
	memcpy(health->loading_phase, best->loading_phase, HYMT_NAME_MAX);
	memcpy(health->last_error, best->last_error, HYMT_MESSAGE_MAX);
	health->queued = hymt_shared->queued_count;
	health->full = hymt_shared->free_count == 0 || hymt_shared->bytes_used >= hymt_bytes_for_requests();
	health->progress_at = hymt_shared->progress_at;
	LWLockRelease(hymt_shared->lock);
}

/* A string of shared memory, from the engine, in the server encoding. */
static char *
shared_string(const char *string, Size size)
{
	return hymt_text_to_server(string, strnlen(string, size));
}

/* Nothing happens although there is something to do: the worker ends an engine that hangs long before. */
static bool
is_stalled(const Health *health)
{
	return health->queued > 0 &&
		TimestampDifferenceExceeds(health->progress_at, GetCurrentTimestamp(), Min(hymt_engine_timeout, INT_MAX / 2) * 2);
}

/* What is to be said, or NULL; *ok: whether translations can be had now. */
static const char *
diagnose(bool *ok)
{
	Health		health;

	*ok = false;
	if (hymt_shared == NULL)
		return "hymt is not in shared_preload_libraries";
	if (!hymt_layout_fits())
		return "the library of hymt does not fit the running server: restart PostgreSQL";
	look(&health);
	switch (health.phase)
	{
		case HYMT_DEVICE_READY:
			if (is_stalled(&health))
				return "the queue is stalled: no progress for twice hymt.engine_timeout";
			*ok = true;
			return health.full ? "the queue is full: callers wait for a place in it" : NULL;
		case HYMT_DEVICE_STARTING:
			return "the engine is starting";
		case HYMT_DEVICE_LOADING:
			return psprintf("the model is loading (%s, %d %%)",
							shared_string(health.loading_phase, HYMT_NAME_MAX), health.percent);
		case HYMT_DEVICE_RESTARTING:
			return psprintf("the engine is being restarted: %s", shared_string(health.last_error, HYMT_MESSAGE_MAX));
		case HYMT_DEVICE_REFUSED:
			if (health.sqlstate == ERRCODE_HYMT_ENGINE_FAILED)
				return shared_string(health.last_error, HYMT_MESSAGE_MAX);
			return psprintf("the model could not be loaded: %s", shared_string(health.last_error, HYMT_MESSAGE_MAX));
		case HYMT_DEVICE_NO_WORKER:
			break;
	}
	return "no worker process of hymt is running";
}

Datum
hymt_health(PG_FUNCTION_ARGS)
{
	TupleDesc	descriptor;
	bool		ok;
	const char *reason = diagnose(&ok);
	Datum		values[2];
	bool		nulls[2] = {false, reason == NULL};

	if (get_call_result_type(fcinfo, NULL, &descriptor) != TYPEFUNC_COMPOSITE || descriptor->natts != 2)
		elog(ERROR, "hymt_health must return two columns");
	values[0] = BoolGetDatum(ok);
	values[1] = reason == NULL ? (Datum) 0 : CStringGetTextDatum(reason);
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(descriptor), values, nulls)));
}

/* --- languages ---------------------------------------------------------------------------------------------------- */

/* Whether a list of codes, separated by one space, has this one; an empty list stands for every language. */
static bool
list_has(const char *list, const char *code)
{
	Size		length = strlen(code);

	if (list[0] == '\0')
		return true;
	while (*list != '\0')
	{
		Size		word = strcspn(list, " ");

		if (word == length && memcmp(list, code, length) == 0)
			return true;
		list += word;
		list += strspn(list, " ");
	}
	return false;
}

/* The first loaded model's list; false when no model is loaded, or what is loaded cannot be read. */
static bool
loaded_languages(char *list)
{
	if (hymt_shared == NULL || !hymt_layout_fits())
		return false;
	for (int i = 0; i < hymt_shared->device_count; i++)
	{
		DeviceView	view;

		copy_device(i, &view);
		if (view.device.phase != HYMT_DEVICE_READY)
			continue;
		strlcpy(list, view.device.languages, HYMT_MESSAGE_MAX);
		return true;
	}
	return false;
}

Datum
hymt_languages_sql(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	char		list[HYMT_MESSAGE_MAX];
	bool		loaded = loaded_languages(list);

	InitMaterializedSRF(fcinfo, 0);
	hymt_check_columns(result->setDesc, 4);
	for (int i = 0; i < hymt_language_count; i++)
	{
		const HymtLanguage *language = &hymt_languages[i];
		Datum		values[4];
		bool		nulls[4] = {false, false, false, !loaded};

		values[0] = CStringGetTextDatum(language->code);
		values[1] = CStringGetTextDatum(language->english_name);
		values[2] = CStringGetTextDatum(hymt_text_to_server(language->chinese_name, strlen(language->chinese_name)));
		values[3] = BoolGetDatum(loaded && list_has(list, language->code));
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
