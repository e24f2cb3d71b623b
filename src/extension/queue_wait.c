/*
 * queue_wait.c: the session's side of the queue: wait for a slot or an answer, take the answer.
 *
 * Runs in backends and parallel workers. Every wait is on this process's latch, and ends early with whatever ends the
 * session or statement, with a client that has gone, and when nobody is there who could answer.
 */
#include "hymt.h"
#include "progress.h"
#include "queue_internal.h"
#include "queue_session.h"
#include "session.h"

#include "libpq/libpq.h"
#include "miscadmin.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "utils/timestamp.h"

/* How often a waiting session looks at the devices' state, ms. Answers and interrupts come by latch, at once. */
#define WAIT_TICK 100
/* A NOTICE tells why nothing happens, after ms. */
#define NOTICE_DELAY 200
/*
 * How long no worker at all is tolerated, ms: the postmaster starts a worker that ended again after a second, and those
 * of a starting server at about the time of its first sessions.
 */
#define WORKER_RESTART_DELAY 4000

/* --- waiting ------------------------------------------------------------------------------------------------------ */

bool
hymt_device_comes_back(const HymtDeviceState *device)
{
	return device->phase == HYMT_DEVICE_NO_WORKER &&
		!TimestampDifferenceExceeds(device->no_worker_since, GetCurrentTimestamp(), WORKER_RESTART_DELAY);
}

/* How soon an answer can be hoped for from a device: higher is better. */
static int
device_rank(const HymtDeviceState *device)
{
	switch (device->phase)
	{
		case HYMT_DEVICE_READY:
			return 5;
		case HYMT_DEVICE_LOADING:
			return 4;
		case HYMT_DEVICE_STARTING:
			return 3;
		case HYMT_DEVICE_RESTARTING:
			return 2;
		case HYMT_DEVICE_REFUSED:
			return 1;
		case HYMT_DEVICE_NO_WORKER:
			return hymt_device_comes_back(device) ? 2 : 0;
	}
	return 0;
}

const HymtDeviceState *
hymt_best_device(void)
{
	const HymtDeviceState *best = &hymt_shared->device[0];

	for (int i = 1; i < hymt_shared->device_count; i++)
	{
		if (device_rank(&hymt_shared->device[i]) > device_rank(best))
			best = &hymt_shared->device[i];
	}
	return best;
}

void
hymt_look_at_devices(HymtService *service)
{
	const HymtDeviceState *best = hymt_best_device();

	service->phase = best->phase;
	service->failure = best->failure;
	service->sqlstate = best->sqlstate;
	service->percent = best->loading_percent;
	service->next_attempt_at = best->next_attempt_at;
	service->message[0] = '\0';
	if (best->phase == HYMT_DEVICE_REFUSED)
		memcpy(service->message, best->last_error, HYMT_MESSAGE_MAX);
	else if (best->phase == HYMT_DEVICE_LOADING)
		memcpy(service->message, best->loading_phase, HYMT_NAME_MAX);
	service->message[HYMT_MESSAGE_MAX - 1] = '\0';
}

static const char *
model_hint(HymtFailure failure)
{
	switch (failure)
	{
		case HYMT_FAILURE_MODEL_MISSING:
			return _("Check the settings hymt.model and hymt.engine.");
		case HYMT_FAILURE_MODEL_UNREADABLE:
			return _("The operating system user of PostgreSQL must be able to read the model's directory and files.");
		case HYMT_FAILURE_MODEL_BROKEN:
			return _("Check that the model's files were copied completely.");
		case HYMT_FAILURE_OVER_LIMIT:
			return _("Raise hymt.memory or use a smaller model.");
		default:
			return _("The server log has more about it.");
	}
}

static void
raise_failing(TimestampTz next_attempt_at, const char *message)
{
	long		left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(), next_attempt_at);
	char	   *reason = hymt_visible_reason(message);

	ereport(ERROR,
			(errcode(ERRCODE_HYMT_ENGINE_FAILED),
			 errmsg("the translation engine keeps failing"),
			 reason != NULL ? errdetail_internal("%s", reason) : 0,
			 left > 0 ?
			 errhint("The next attempt is in %ld s; the server log has more about it.", (left + 999) / 1000) :
			 errhint("The next attempt is under way; the server log has more about it.")));
}

static void
raise_refused(HymtFailure failure, int sqlstate, const char *message, TimestampTz next_attempt_at)
{
	char	   *reason = hymt_visible_reason(message);

	if (sqlstate == ERRCODE_HYMT_ENGINE_FAILED)
		raise_failing(next_attempt_at, message);
	ereport(ERROR,
			(errcode(sqlstate != 0 ? sqlstate : hymt_failure_sqlstate(failure)),
			 errmsg("the translation model could not be loaded"),
			 reason != NULL ? errdetail_internal("%s", reason) : 0,
			 reason != NULL ? errhint("%s", model_hint(failure)) : errhint("The server log has more about it.")));
}

static void
raise_adapter(const char *message)
{
	char	   *reason = hymt_visible_reason(message);

	ereport(ERROR,
			(errcode(ERRCODE_HYMT_ADAPTER),
			 errmsg("the adapter for this translation cannot be used"),
			 reason != NULL ? errdetail_internal("%s", reason) : 0,
			 reason != NULL ? errhint("Check the setting hymt.adapters and, in the model's directory, hymt.json.") :
			 errhint("The server log has more about it.")));
}

/* None of the requests will be waited for any longer: that is how they end, for hymt_stat. */
static void
note_failure(const HymtPatience *patience, HymtStatFailure failure)
{
	for (int i = 0; i < patience->count; i++)
		patience->requests[i]->failure = failure;
}

static void
check_worker(HymtPatience *patience, TimestampTz now)
{
	if (patience->no_worker_since == 0)
		patience->no_worker_since = now;
	if (!TimestampDifferenceExceeds(patience->no_worker_since, now, WORKER_RESTART_DELAY))
		return;
	note_failure(patience, HYMT_STAT_UNAVAILABLE);
	ereport(ERROR,
			(errcode(ERRCODE_CANNOT_CONNECT_NOW),
			 errmsg("no worker process of hymt is running"),
			 errhint("The server log tells why it ended or could not start; max_worker_processes may be too small.")));
}

static void
tell_why_it_takes_long(const HymtService *service)
{
	if (service->phase == HYMT_DEVICE_NO_WORKER)
		ereport(NOTICE, (errmsg("hymt: no worker process is running yet; waiting")));
	else if (service->phase == HYMT_DEVICE_RESTARTING)
		ereport(NOTICE, (errmsg("hymt: the translation engine is being restarted; waiting")));
	else if (service->phase == HYMT_DEVICE_LOADING && service->message[0] != '\0')
		ereport(NOTICE,
				(errmsg("hymt: the model is still loading (%s, %d %%); waiting",
						hymt_text_to_server(service->message, strlen(service->message)), service->percent)));
	else
		ereport(NOTICE, (errmsg("hymt: the model is still loading; waiting")));
}

void
hymt_check_service(const HymtService *service, HymtPatience *patience)
{
	TimestampTz now;

	if (service->phase == HYMT_DEVICE_READY)
	{
		patience->no_worker_since = 0;
		return;
	}
	if (service->phase == HYMT_DEVICE_REFUSED)
	{
		note_failure(patience, HYMT_STAT_UNAVAILABLE);
		raise_refused(service->failure, service->sqlstate, service->message, service->next_attempt_at);
	}

	now = GetCurrentTimestamp();
	if (service->phase == HYMT_DEVICE_NO_WORKER)
		check_worker(patience, now);
	else
		patience->no_worker_since = 0;
	if (!patience->noticed && TimestampDifferenceExceeds(patience->started, now, NOTICE_DELAY))
	{
		patience->noticed = true;
		tell_why_it_takes_long(service);
	}
}

void
hymt_check_queue_timeout(const HymtPatience *patience)
{
	if (hymt_queue_timeout == 0 ||
		!TimestampDifferenceExceeds(patience->started, GetCurrentTimestamp(), hymt_queue_timeout))
		return;
	note_failure(patience, HYMT_STAT_TIMEOUT);
	ereport(ERROR,
			(errcode(ERRCODE_HYMT_QUEUE_TIMEOUT),
			 errmsg("the translation was not begun within %d ms", hymt_queue_timeout),
			 errhint("The limit is the setting hymt.queue_timeout.")));
}

long
hymt_next_look(const HymtRequestHandle *request, bool begun)
{
	long		left;

	if (begun || hymt_queue_timeout == 0)
		return WAIT_TICK;
	left = TimestampDifferenceMilliseconds(GetCurrentTimestamp(),
										   TimestampTzPlusMilliseconds(request->submitted, hymt_queue_timeout));
	return Min(left + 1, WAIT_TICK);
}

/* A client to look after; one that was found gone is not looked at again while interrupts are held off. */
static bool
has_client(void)
{
	/* A parallel worker sends to its leader, and has no socket. */
	return MyProcPort != NULL && whereToSendOutput == DestRemote && !ClientConnectionLost &&
		WaitEventSetCanReportClosed();
}

static void
client_vanished(void)
{
	/* As PostgreSQL itself does it, so that the session ends with the usual FATAL. */
	ClientConnectionLost = true;
	InterruptPending = true;
}

/*
 * Sleeps until something may have changed. The socket is watched too: unless client_connection_check_interval is set,
 * nobody else would notice before the answer is sent that there is no client any more.
 */
void
hymt_sleep(long timeout, uint32 wait_event)
{
	int			wake_events = WL_LATCH_SET | (timeout >= 0 ? WL_TIMEOUT : 0) | WL_EXIT_ON_PM_DEATH;
	pgsocket	socket = PGINVALID_SOCKET;
	int			happened;

	if (has_client())
	{
		wake_events |= WL_SOCKET_CLOSED;
		socket = MyProcPort->sock;
	}
	happened = WaitLatchOrSocket(MyLatch, wake_events, socket, timeout, wait_event);
	if (happened & WL_SOCKET_CLOSED)
		client_vanished();
	if (happened & WL_LATCH_SET)
		ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}

static void
sleep_on_latch(long timeout)
{
	static uint32 event = 0;

	hymt_sleep(timeout, hymt_wait_event(&event, "HymtAnswer"));
}

void
hymt_sleep_on_slot_freed(ConditionVariable *freed, long timeout)
{
	static uint32 event = 0;

	ConditionVariableTimedSleep(freed, timeout, hymt_wait_event(&event, "HymtQueueFull"));
	if (has_client() && !pq_check_connection())
		client_vanished();
	CHECK_FOR_INTERRUPTS();
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* Under the lock. One that waits again because the engine died under it was begun all the same. */
static bool
is_begun(const HymtRequestHandle *request)
{
	const HymtSlot *leader = hymt_slot_leader(request->slot);

	return leader->state != HYMT_SLOT_QUEUED || leader->begun != 0;
}

/* Under the lock. */
static bool
has_lapsed(const HymtRequestHandle *request)
{
	return request->slot->generation != request->generation;
}

/* Under the lock. The answer to one that follows counts from when it reaches its own slot. */
static bool
is_answered(const HymtRequestHandle *request)
{
	HymtSlotState state = request->slot->state;

	return state == HYMT_SLOT_DONE || state == HYMT_SLOT_FAILED;
}

/* Under the lock. */
static bool
has_news(const HymtRequestHandle *request)
{
	return is_answered(request) || request->slot->pieces_length > 0;
}

/* The first one with an answer or a piece of it, or -1; and whether the oldest was begun. */
static int
look_at_requests(HymtRequestHandle *const *handles, int count, bool *begun, HymtService *service)
{
	int			answered = -1;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	Assert(!has_lapsed(handles[0]));	/* nobody waits for what he does not keep */
	*begun = is_begun(handles[0]);
	for (int i = 0; i < Min(count, HYMT_WAIT_ANY_LOOKS) && answered < 0; i++)
	{
		if (has_news(handles[i]))
			answered = i;
	}
	hymt_look_at_devices(service);
	LWLockRelease(hymt_shared->lock);
	return answered;
}

/* *service is as of the last look. */
static int
wait_any(HymtRequestHandle *const *handles, int count, HymtService *service)
{
	HymtPatience patience = {handles, count, handles[0]->submitted, 0, false};

	for (;;)
	{
		bool		begun;
		int			answered = look_at_requests(handles, count, &begun, service);

		hymt_progress_tick();
		if (answered >= 0)
			return answered;
		hymt_requests_look_after();
		hymt_check_service(service, &patience);
		if (!begun)
			hymt_check_queue_timeout(&patience);
		sleep_on_latch(hymt_next_look(handles[0], begun));
	}
}

int
hymt_request_wait_any(HymtRequestHandle *const *handles, int count)
{
	HymtService service;

	return wait_any(handles, count, &service);
}

/*
 * The slot is DONE or FAILED, and kept where it might be taken away; its answer, which may be its leader's, does not change
 * while this request uses it.
 */
static void
take_outcome(const HymtRequestHandle *request, HymtOutcome *outcome)
{
	const HymtSlot *slot = hymt_slot_leader(request->slot);

	memset(outcome, 0, sizeof(HymtOutcome));
	if (slot->state == HYMT_SLOT_FAILED)
	{
		outcome->failure = slot->failure == HYMT_FAILURE_NONE ? HYMT_FAILURE_INTERNAL : slot->failure;
		outcome->sqlstate = slot->sqlstate;
		outcome->service_failed = slot->service_failed;
	}
	else if (slot->finish == HYMT_FINISH_LENGTH || slot->finish == HYMT_FINISH_LOOP)
		outcome->failure = HYMT_FAILURE_UNFINISHED; /* a translation that is cut off must not pass for one */
	outcome->finish = slot->finish;
	outcome->input_tokens = slot->input_tokens;
	outcome->output_tokens = slot->output_tokens;
	memcpy(outcome->model, slot->model, HYMT_NAME_MAX);
	memcpy(outcome->fingerprint, slot->fingerprint, sizeof(outcome->fingerprint));
	outcome->text = palloc_extended(slot->result_length + 1, MCXT_ALLOC_HUGE);
	outcome->text_length = slot->result_length;
	if (DsaPointerIsValid(slot->result))
		memcpy(outcome->text, dsa_get_address(hymt_area(), slot->result), slot->result_length);
	outcome->text[slot->result_length] = '\0';
}

bool
hymt_request_is_answered(const HymtRequestHandle *request)
{
	bool		answered;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	answered = has_lapsed(request) || is_answered(request);
	LWLockRelease(hymt_shared->lock);
	return answered;
}

int
hymt_requests_answered(HymtRequestHandle *const *handles, int count, bool *answered)
{
	int			total = 0;

	if (count == 0)
		return 0;
	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	for (int i = 0; i < count; i++)
	{
		answered[i] = is_answered(handles[i]);
		total += answered[i];
	}
	LWLockRelease(hymt_shared->lock);
	return total;
}

/* Failures that are the service's, not this text's: no other text would fare better. */
static void
raise_service_failure(const HymtOutcome *outcome, TimestampTz next_attempt_at)
{
	if (outcome->service_failed)
		raise_refused(outcome->failure, outcome->sqlstate, outcome->text, next_attempt_at);
	switch (outcome->failure)
	{
		case HYMT_FAILURE_MODEL_MISSING:
		case HYMT_FAILURE_MODEL_UNREADABLE:
		case HYMT_FAILURE_MODEL_BROKEN:
		case HYMT_FAILURE_MODEL_UNSUPPORTED:
			raise_refused(outcome->failure, 0, outcome->text, next_attempt_at);
			break;
		case HYMT_FAILURE_ADAPTER:
			raise_adapter(outcome->text);
			break;
		case HYMT_FAILURE_NO_MEMORY:
		case HYMT_FAILURE_OVER_LIMIT:
			hymt_raise_outcome(outcome);
			break;
		default:
			break;
	}
}

void
hymt_request_wait(HymtRequestHandle *request, HymtOutcome *outcome)
{
	HymtService service;

	(void) wait_any(&request, 1, &service);
	take_outcome(request, outcome);
	hymt_request_release(request);
	raise_service_failure(outcome, service.next_attempt_at);
}

bool
hymt_request_wait_piece(HymtRequestHandle *request, StringInfo piece, int *attempt)
{
	HymtService service;
	Size		length = 0;

	/* As in hymt_request_collect(). */
	request->submitted = GetCurrentTimestamp();
	enlargeStringInfo(piece, (int) request->slot->window);
	while (length == 0)
	{
		(void) wait_any(&request, 1, &service);
		if (hymt_request_is_answered(request))
			return false;
		length = hymt_stream_take(request->slot, piece->data + piece->len, attempt);
	}
	piece->len += (int) length;
	piece->data[piece->len] = '\0';
	return true;
}

/* Whether it says something about the text: others of the service, or of the room that answers find, do not. */
static bool
is_of_text(const HymtOutcome *outcome)
{
	if (outcome->service_failed)
		return false;
	switch (outcome->failure)
	{
		case HYMT_FAILURE_MODEL_MISSING:
		case HYMT_FAILURE_MODEL_UNREADABLE:
		case HYMT_FAILURE_MODEL_BROKEN:
		case HYMT_FAILURE_MODEL_UNSUPPORTED:
		case HYMT_FAILURE_NO_MEMORY:
			return false;
		default:
			return true;
	}
}

/* False when it is too late. */
static bool
keep(HymtRequestHandle *request, bool bulk)
{
	bool		lapsed;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	lapsed = has_lapsed(request);
	if (!lapsed)
	{
		hymt_rest_keep(request->slot);
		if (!bulk)
			hymt_flight_hasten(request->slot);
	}
	LWLockRelease(hymt_shared->lock);
	return !lapsed;
}

HymtCollected
hymt_request_collect(HymtRequestHandle *request, bool bulk, HymtOutcome *outcome)
{
	HymtService service;

	if (!keep(request, bulk))
	{
		hymt_request_release(request);
		return HYMT_LAPSED;
	}
	/* hymt.queue_timeout limits how long a session waits, not for how long it did other things meanwhile. */
	request->submitted = GetCurrentTimestamp();
	(void) wait_any(&request, 1, &service);
	take_outcome(request, outcome);
	hymt_request_release(request);
	return is_of_text(outcome) ? HYMT_COLLECTED : HYMT_COLLECTED_FAILURE;
}
