/*
 * worker_engine.c: the life of an engine: when it is started, how it ends, what callers are told meanwhile.
 *
 * Runs in the worker; owns the engine processes and the phase in HymtDeviceState, which is that of the serving engine:
 *
 *      (none) --start--> STARTING --HELLO--> LOADING --READY--> READY --+
 *        ^                   |                  |  \--REFUSED           |  death, hang, garbage
 *        |                   v                  v                       v
 *        +---- delay ---- ending: conversation over, process to be reaped
 *
 * Circuit breaker: engines that fail in a row, without one that did its work in between, open it. Callers are then told
 * at once (phase REFUSED) instead of being kept waiting, and engines are tried at growing distances. One that becomes
 * ready makes it half open: requests are taken again, one at a time, and the next death opens it anew. It closes when
 * the engine has answered or has run for a while.
 */
#include "worker_internal.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

/* An engine that ended the conversation has this long to end by itself, which tells its true exit status. */
#define EXIT_GRACE_MS 1000

/* Delays before a start double from the first to the last. */
#define FIRST_DELAY_MS 1000
#define LAST_DELAY_MS 60000

/* An engine that was ready for this long does its work, even if nobody asked it anything. */
#define HEALTHY_AFTER_MS 10000

/* So many failures in a row open the circuit breaker: of engines that died while starting, or of any. */
#define MAX_FAILED_STARTS 3
#define MAX_FAILED_ENGINES 5

/* --- shared state ------------------------------------------------------------------------------------------------ */

HymtDeviceState *
hymt_worker_lock_device(void)
{
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	return &hymt_shared->device[hymt_worker->device];
}

void
hymt_worker_unlock_device(void)
{
	LWLockRelease(hymt_shared->lock);
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
 * What was refused stays refused for callers while it is tried again, or they would wait for each attempt in turn; only
 * an engine that is ready, or new settings, end that.
 */
void
hymt_worker_set_phase(HymtDevicePhase phase)
{
	const HymtEngine *engine = hymt_worker->serving;
	bool		proven = engine->has_answered && phase == HYMT_DEVICE_READY;
	int64		pace = phase == HYMT_DEVICE_READY ? engine->pace : 0;
	bool		was_more;
	HymtDeviceState *device;

	if (hymt_worker->phase == HYMT_DEVICE_REFUSED &&
		(phase == HYMT_DEVICE_STARTING || phase == HYMT_DEVICE_LOADING || phase == HYMT_DEVICE_RESTARTING))
		phase = HYMT_DEVICE_REFUSED;
	hymt_worker->phase = phase;
	device = hymt_worker_lock_device();
	device->phase = phase;
	device->engine_pid = engine->process.pid;
	device->in_flight = hymt_worker_in_flight();
	was_more = (device->proven && !proven) || (device->pace != 0 && pace == 0);
	device->proven = proven;
	device->pace = pace;
	device->probed_at = phase == HYMT_DEVICE_READY ? engine->probed_at : 0;
	hymt_cache_devices_changed();
	hymt_worker_unlock_device();
	/* They may have left requests to it, suspects at least. */
	if (was_more)
		hymt_worker_wake_others();
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
	hymt_worker_unlock_device();
}

/* --- delays and circuit breaker ---------------------------------------------------------------------------------- */

void
hymt_worker_schedule_start(int delay_ms)
{
	HymtDeviceState *device;

	hymt_worker->start_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), delay_ms);
	device = hymt_worker_lock_device();
	device->next_attempt_at = hymt_worker->start_at;
	hymt_worker_unlock_device();
}

/* Each time twice as long as the last. */
static int
next_delay_ms(void)
{
	int			doublings = hymt_worker->back_off++;

	return doublings >= 6 ? LAST_DELAY_MS : Min(FIRST_DELAY_MS << doublings, LAST_DELAY_MS);
}

static void
schedule_start_later(void)
{
	hymt_worker_schedule_start(next_delay_ms());
}

void
hymt_worker_reset_failures(void)
{
	hymt_worker->failures = 0;
	hymt_worker->back_off = 0;
	hymt_worker->tripped = false;
}

/* Callers wait for another attempt. */
static void
restart_after(const char *message, int delay_ms)
{
	if (message != hymt_worker->message)
		strlcpy(hymt_worker->message, message, sizeof(hymt_worker->message));
	/* While refused, the reason for that stays the one to be seen. */
	if (hymt_worker->phase != HYMT_DEVICE_REFUSED)
		hymt_worker_publish_error();
	hymt_worker_schedule_start(delay_ms);
	hymt_worker_set_phase(HYMT_DEVICE_RESTARTING);
}

/* Callers are told that there will be no answer; the next attempt follows after a delay. */
static void
refuse(HymtFailure failure, int sqlstate, const char *message)
{
	hymt_worker->failure = failure;
	hymt_worker->sqlstate = sqlstate;
	if (message != hymt_worker->message)
		strlcpy(hymt_worker->message, message, sizeof(hymt_worker->message));
	schedule_start_later();
	hymt_worker_publish_error();
	hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
}

/* Whether so many failures in a row are enough; half open, one is. */
static bool
breaker_opens(int failures)
{
	return hymt_worker->failures > 0 && (hymt_worker->tripped || hymt_worker->failures >= failures);
}

static void
open_breaker(const char *what)
{
	bool		known = hymt_worker->tripped;

	hymt_worker->tripped = true;
	snprintf(hymt_worker->message, sizeof(hymt_worker->message), "the engine keeps failing: %s", what);
	refuse(HYMT_FAILURE_INTERNAL, ERRCODE_HYMT_ENGINE_FAILED, hymt_worker->message);
	if (!known)
		ereport(LOG,
				(errmsg("hymt: the engine of device %d keeps failing; calls fail until one works again",
						hymt_worker->device)));
}

TimestampTz
hymt_worker_healthy_at(void)
{
	const HymtEngine *engine = hymt_worker->serving;

	if (hymt_worker->failures == 0 || !engine->conversing || engine->ready_at == 0)
		return 0;
	return TimestampTzPlusMilliseconds(engine->ready_at, HEALTHY_AFTER_MS);
}

void
hymt_worker_note_health(void)
{
	bool		tripped = hymt_worker->tripped;

	hymt_worker_reset_failures();
	if (tripped)
		ereport(LOG, (errmsg("hymt: the engine of device %d works again", hymt_worker->device)));
}

/* --- start ------------------------------------------------------------------------------------------------------- */

bool
hymt_worker_launch(HymtEngine *engine, HymtFailure *failure, char *message, Size size)
{
	const HymtEngineBeginning beginning = {
		.device = hymt_worker->device,
		.device_count = hymt_shared->device_count,
		.beside = engine->role == ROLE_CANDIDATE,
		.serving_bytes = strcmp(engine->settings.model, hymt_worker->serving->settings.model) == 0 ? 0 :
		hymt_shared->device[hymt_worker->device].weight_bytes
	};

	engine->draining = false;
	engine->superseded = false;
	engine->has_answered = false;
	engine->ready_at = 0;
	memset(&engine->beat, 0, sizeof(engine->beat));
	engine->pace = 0;
	engine->measured_at = engine->probed_at = engine->claims_at = 0;
	engine->probes = 0;
	memset(engine->flights, 0, sizeof(HymtFlight) * hymt_shared->slot_count);
	hymt_link_reset(&engine->link);
	hymt_worker_drop_wait_set();
	if (!hymt_engine_start(&engine->process, &engine->settings, &beginning, failure, message, size))
		return false;
	engine->conversing = true;
	hymt_worker_note_progress(engine);
	/* What was refused is tried again and again: said once in the log, not at every attempt. */
	if (hymt_worker->phase != HYMT_DEVICE_REFUSED)
		ereport(LOG, (errmsg("hymt: engine (PID %d) started for model \"%s\"", (int) engine->process.pid,
							 engine->settings.model)));
	return true;
}

/* The next engine that serves will be one of these settings, so that answers of others are not looked up any more. */
void
hymt_worker_expect_engine(void)
{
	uint64		settings = hymt_engine_settings_hash(&hymt_worker->settings);

	hymt_cache_engine_starts(hymt_worker_lock_device(), settings);
	hymt_cache_devices_changed();
	hymt_worker_unlock_device();
}

void
hymt_worker_start_serving(void)
{
	HymtFailure failure;
	char		message[HYMT_MESSAGE_MAX];
	bool		known;

	hymt_worker->serving->settings = hymt_worker->settings;
	hymt_worker_expect_engine();
	if (hymt_worker_launch(hymt_worker->serving, &failure, message, sizeof(message)))
	{
		hymt_worker_set_phase(HYMT_DEVICE_STARTING);
		return;
	}
	hymt_worker->failures++;
	if (failure == HYMT_FAILURE_INTERNAL && !breaker_opens(MAX_FAILED_STARTS))
	{
		restart_after(message, next_delay_ms());
		ereport(LOG, (errmsg("hymt: %s", message)));
		return;
	}
	if (hymt_worker_can_fall_back())
	{
		hymt_worker_fall_back(message);
		return;
	}
	if (failure == HYMT_FAILURE_INTERNAL)
	{
		open_breaker(message);
		return;
	}
	known = hymt_worker->phase == HYMT_DEVICE_REFUSED;
	refuse(failure, 0, message);
	if (!known)
		ereport(LOG, (errmsg("hymt: %s", message)));
}

/* --- end --------------------------------------------------------------------------------------------------------- */

/* Ends the conversation; the process is reaped later. */
void
hymt_worker_end_conversation(HymtEngine *engine, HymtEnding ending)
{
	engine->conversing = false;
	engine->ending = ending;
	engine->in_flight_at_end = engine->in_flight;
	hymt_engine_close_socket(&engine->process);
	hymt_worker_recall_requests(engine, ending);
	hymt_link_reset(&engine->link);
	if (ending == ENDING_DEATH || ending == ENDING_REFUSED)
		engine->process.kill_at = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), EXIT_GRACE_MS);
	else
		hymt_engine_kill(&engine->process);
	/* The phase first: what others do with the requests that went back depends on it. */
	if (engine == hymt_worker->serving)
		hymt_worker_set_phase(HYMT_DEVICE_RESTARTING);
	if (engine->in_flight_at_end > 0)
		hymt_worker_wake_others();
}

/* What the log and hymt_status say of the end of an engine. */
static void
describe_end(const HymtEngine *engine, int status, char *text, Size size)
{
	switch (engine->ending)
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
			if (engine->process.killed)
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
	hymt_worker_unlock_device();
}

/* Whether it did its work for a while: its end is no sign that the next one will fail. */
static bool
was_healthy(const HymtEngine *engine)
{
	return engine->ready_at != 0 &&
		(engine->has_answered ||
		 TimestampDifferenceExceeds(engine->ready_at, GetCurrentTimestamp(), HEALTHY_AFTER_MS));
}

/* The serving engine died, hung or talked nonsense. */
static void
serving_failed(const HymtEngine *engine, const char *what)
{
	bool		was_ready = engine->ready_at != 0;
	char		reason[HYMT_MESSAGE_MAX];

	if (was_healthy(engine))
		hymt_worker_reset_failures();
	else
		hymt_worker->failures++;
	if (!was_ready && hymt_worker_can_fall_back())
	{
		hymt_worker_fall_back(what);
		return;
	}
	if (breaker_opens(was_ready ? MAX_FAILED_ENGINES : MAX_FAILED_STARTS))
	{
		snprintf(reason, sizeof(reason), "the last one %s", what);
		open_breaker(reason);
		return;
	}
	snprintf(hymt_worker->message, sizeof(hymt_worker->message), "the engine %s", what);
	restart_after(hymt_worker->message,
				  !was_ready ? next_delay_ms() : hymt_worker->failures == 0 ? 0 : FIRST_DELAY_MS);
}

/* The process of the serving engine is gone: decide when the next one starts and what callers are told meanwhile. */
static void
serving_gone(const HymtEngine *engine, const char *what)
{
	switch (engine->superseded ? ENDING_PLANNED : engine->ending)
	{
		case ENDING_PLANNED:
			hymt_worker->settings = hymt_worker->wanted;
			hymt_worker_reset_failures();
			hymt_worker_schedule_start(0);
			hymt_worker_set_phase(HYMT_DEVICE_STARTING);
			break;
		case ENDING_SKEW:
		case ENDING_REFUSED:
			hymt_worker->failures++;
			if (hymt_worker_can_fall_back())
				hymt_worker_fall_back(engine->last_words);
			else
			{
				schedule_start_later();
				hymt_worker_set_phase(HYMT_DEVICE_REFUSED);
			}
			break;
		case ENDING_DEATH:
		case ENDING_GARBAGE:
		case ENDING_HANG:
		case ENDING_NO_MEMORY:
			serving_failed(engine, what);
			break;
	}
}

static void
engine_gone(HymtEngine *engine, pid_t pid, int status)
{
	char		what[128];
	int			in_flight = engine->in_flight_at_end;
	bool		known = engine->ending == ENDING_REFUSED && hymt_worker->phase == HYMT_DEVICE_REFUSED;

	describe_end(engine, status, what, sizeof(what));
	if (engine->ending != ENDING_PLANNED && engine->ending != ENDING_REFUSED)
		count_restart();
	switch (engine->role)
	{
		case ROLE_SERVING:
			serving_gone(engine, what);
			break;
		case ROLE_CANDIDATE:
			hymt_worker_candidate_gone(engine, what);
			break;
		case ROLE_RETIRING:
		case ROLE_NONE:
			engine->role = ROLE_NONE;
			break;
	}
	/* Last, as logging may raise: what the end means must not be lost with it. */
	if (!known)
		ereport(LOG, (errmsg("hymt: engine (PID %d) %s; requests in flight: %d", (int) pid, what, in_flight)));
}

void
hymt_worker_reap_engine(HymtEngine *engine)
{
	pid_t		pid = engine->process.pid;
	int			status;

	if (engine->process.kill_at != 0 && GetCurrentTimestamp() >= engine->process.kill_at)
		hymt_engine_kill(&engine->process);
	if (hymt_engine_reap(&engine->process, &status))
		engine_gone(engine, pid, status);
}
