/*
 * worker_engine.c: the life of the engine: when it is started, how it ends, what callers are told meanwhile.
 *
 * Runs in the worker; owns the engine process and the phase in HymtDeviceState.
 *
 *      (none) --start--> STARTING --HELLO--> LOADING --READY--> READY --+
 *        ^                   |                  |  \--REFUSED           |  death, hang, garbage, new settings
 *        |                   v                  v                       v
 *        +---- delay ---- ending: conversation over, process to be reaped
 */
#include "worker_internal.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

/* An engine that ended the conversation has this long to end by itself, which tells its true exit status. */
#define EXIT_GRACE_MS 1000

/* Restart delays double from the first to the last. */
#define FIRST_DELAY_MS 1000
#define LAST_DELAY_MS 60000

/* An engine that lived this long was started successfully, even if nobody asked it anything. */
#define HEALTHY_AFTER_MS 10000

/* After so many deaths in a row while starting, callers are told instead of being kept waiting. */
#define MAX_FAILED_STARTS 3

/* --- shared state ------------------------------------------------------------------------------------------------ */

HymtDeviceState *
hymt_worker_lock_device(void)
{
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	return &hymt_shared->device[hymt_worker->device];
}

void
hymt_worker_unlock_device(bool changed)
{
	LWLockRelease(hymt_shared->lock);
	if (changed)
		ConditionVariableBroadcast(&hymt_shared->device_changed);
}

/* Cut at a character border: what others read must stay valid UTF-8. */
void
hymt_worker_copy_text(char *target, Size size, HymtPart part)
{
	int			length = pg_encoding_mbcliplen(PG_UTF8, part.data, (int) part.length, (int) size - 1);

	memcpy(target, part.data, length);
	target[length] = '\0';
}

/*
 * A model that was refused stays refused for callers while it is tried again, or they would wait for each attempt in
 * turn; only an engine that is ready, or new settings, end that.
 */
void
hymt_worker_set_phase(HymtDevicePhase phase)
{
	HymtDeviceState *device;

	if (hymt_worker->phase == HYMT_DEVICE_REFUSED &&
		(phase == HYMT_DEVICE_STARTING || phase == HYMT_DEVICE_LOADING || phase == HYMT_DEVICE_RESTARTING))
		phase = HYMT_DEVICE_REFUSED;
	hymt_worker->phase = phase;
	device = hymt_worker_lock_device();
	device->phase = phase;
	device->engine_pid = hymt_worker->process.pid;
	device->in_flight = hymt_worker->in_flight;
	hymt_worker_unlock_device(true);
}

void
hymt_worker_publish_error(void)
{
	TimestampTz now = GetCurrentTimestamp();
	HymtDeviceState *device = hymt_worker_lock_device();

	device->failure = hymt_worker->failure;
	device->sqlstate = hymt_worker->sqlstate;
	strlcpy(device->last_error, hymt_worker->message, sizeof(device->last_error));
	device->last_error_at = now;
	hymt_worker_unlock_device(false);
}

/* --- restart delays ---------------------------------------------------------------------------------------------- */

static int
restart_delay_ms(void)
{
	int			doublings = Max(hymt_worker->failed_starts - 1, 0);

	return doublings >= 6 ? LAST_DELAY_MS : Min(FIRST_DELAY_MS << doublings, LAST_DELAY_MS);
}

void
hymt_worker_schedule_start(int delay_ms)
{
	hymt_worker->start_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay_ms);
}

/* Callers are told that there will be no answer; the next attempt follows after a delay. */
static void
refuse(HymtFailure failure, int sqlstate, const char *message)
{
	hymt_worker->failure = failure;
	hymt_worker->sqlstate = sqlstate;
	if (message != hymt_worker->message)
		strlcpy(hymt_worker->message, message, sizeof(hymt_worker->message));
	hymt_worker_publish_error();
	hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
	hymt_worker_schedule_start(restart_delay_ms());
}

/* --- the engine's life ------------------------------------------------------------------------------------------- */

void
hymt_worker_start_engine(void)
{
	HymtFailure failure;
	char		message[HYMT_MESSAGE_MAX];

	hymt_worker->draining = false;
	hymt_worker->was_ready = false;
	hymt_worker->has_answered = false;
	hymt_worker->steps = hymt_worker->sequence_steps = 0;
	memset(hymt_worker->flights, 0, sizeof(HymtFlight) * hymt_shared->slot_count);
	hymt_link_reset(&hymt_worker->link);
	hymt_worker->used = hymt_worker->wanted;
	if (hymt_worker->used.model[0] == '\0')
	{
		hymt_worker->failed_starts++;
		refuse(HYMT_FAILURE_MODEL_MISSING, 0, "hymt.model names no model");
		return;
	}
	if (!hymt_engine_start(&hymt_worker->process, &hymt_worker->used, &failure, message, sizeof(message)))
	{
		if (hymt_worker->phase != HYMT_DEVICE_REFUSED)
			ereport(LOG, (errmsg("hymt: %s", message)));
		hymt_worker->failed_starts++;
		refuse(failure, 0, message);
		return;
	}
	hymt_worker->conversing = true;
	hymt_worker_note_progress();
	/* A refused model is tried again and again: said once in the log, not at every attempt. */
	if (hymt_worker->phase != HYMT_DEVICE_REFUSED)
		ereport(LOG, (errmsg("hymt: engine (PID %d) started for model \"%s\"",
							 (int) hymt_worker->process.pid, hymt_worker->used.model)));
	hymt_worker_set_phase(HYMT_DEVICE_STARTING);
}

/* Ends the conversation; the process is reaped later. */
void
hymt_worker_end_conversation(HymtEnding ending)
{
	hymt_worker->conversing = false;
	hymt_worker->ending = ending;
	hymt_worker->in_flight_at_end = hymt_worker->in_flight;
	hymt_engine_close_socket(&hymt_worker->process);
	hymt_worker_recall_requests(ending);
	hymt_link_reset(&hymt_worker->link);
	if (ending == ENDING_DEATH || ending == ENDING_REFUSED)
		hymt_worker->process.kill_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), EXIT_GRACE_MS);
	else
		hymt_engine_kill(&hymt_worker->process);
	if (hymt_worker->phase != HYMT_DEVICE_REFUSED)
		hymt_worker_set_phase(HYMT_DEVICE_RESTARTING);
}

/* What the log and hymt_status say of the end of an engine. */
static void
describe_end(int status, char *text, Size size)
{
	switch (hymt_worker->ending)
	{
		case ENDING_HANG:
			snprintf(text, size, "made no progress for %d ms and was killed", hymt_engine_timeout);
			break;
		case ENDING_GARBAGE:
			snprintf(text, size, "broke the protocol and was killed");
			break;
		case ENDING_SKEW:
			snprintf(text, size, "speaks another version of the protocol");
			break;
		case ENDING_NO_MEMORY:
			snprintf(text, size, "was killed because the worker is out of memory");
			break;
		case ENDING_PLANNED:
			snprintf(text, size, "was stopped for new settings");
			break;
		case ENDING_DEATH:
		case ENDING_REFUSED:
			if (hymt_worker->process.killed)
				snprintf(text, size, "ended the conversation, did not exit and was killed");
			else
				hymt_engine_status_text(status, text, size);
			break;
	}
}

static void
count_restart(void)
{
	HymtDeviceState *device = hymt_worker_lock_device();

	device->restarts++;
	hymt_stat_restarted();
	hymt_worker_unlock_device(false);
}

/* The process is gone: decide when the next one starts and what callers are told meanwhile. */
static void
engine_gone(pid_t pid, int status)
{
	char		what[128];
	bool		healthy = hymt_worker->was_ready &&
		(hymt_worker->has_answered ||
		 TimestampDifferenceExceeds(hymt_worker->process.started, GetCurrentTimestamp(), HEALTHY_AFTER_MS));

	describe_end(status, what, sizeof(what));
	if (hymt_worker->ending != ENDING_REFUSED || hymt_worker->phase != HYMT_DEVICE_REFUSED)
		ereport(LOG, (errmsg("hymt: engine (PID %d) %s; requests in flight: %d", (int) pid, what,
							 hymt_worker->in_flight_at_end)));
	if (hymt_worker->ending == ENDING_PLANNED)
	{
		hymt_worker->failed_starts = 0;
		hymt_worker_schedule_start(0);
		hymt_worker_set_phase(HYMT_DEVICE_STARTING);
		return;
	}
	if (hymt_worker->ending != ENDING_REFUSED)
		count_restart();
	hymt_worker->failed_starts = healthy ? 0 : hymt_worker->failed_starts + 1;
	if (hymt_worker->ending == ENDING_SKEW || hymt_worker->ending == ENDING_REFUSED)
	{
		hymt_worker_schedule_start(restart_delay_ms());
		hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
		return;
	}
	snprintf(hymt_worker->message, sizeof(hymt_worker->message), "the engine %s", what);
	if (!hymt_worker->was_ready && hymt_worker->failed_starts >= MAX_FAILED_STARTS)
	{
		snprintf(hymt_worker->message, sizeof(hymt_worker->message), "the engine cannot be started: it %s", what);
		refuse(HYMT_FAILURE_INTERNAL, ERRCODE_HYMT_ENGINE_FAILED, hymt_worker->message);
		return;
	}
	/* While refused, the reason for that stays the one to be seen. */
	if (hymt_worker->phase != HYMT_DEVICE_REFUSED)
		hymt_worker_publish_error();
	hymt_worker_schedule_start(healthy ? 0 : restart_delay_ms());
	hymt_worker_set_phase(HYMT_DEVICE_RESTARTING);
}

void
hymt_worker_reap_engine(void)
{
	pid_t		pid = hymt_worker->process.pid;
	int			status;

	if (hymt_worker->process.kill_at != 0 && GetCurrentTimestamp() >= hymt_worker->process.kill_at)
		hymt_engine_kill(&hymt_worker->process);
	if (hymt_engine_reap(&hymt_worker->process, &status))
		engine_gone(pid, status);
}

