/*
 * queue.c: the session's side of the queue: submit a request, wait for its answer, leave.
 *
 * Runs in backends and parallel workers. Owns the slots of this process's requests. Every request belongs to the
 * ResourceOwner that was current when it was submitted, and leaves with it: there is no error handler of ours on the
 * stack while a portal is idle, and none is needed. FATAL exits are covered by a before_shmem_exit callback.
 *
 * A process that holds no slot waits for one; one that holds a slot takes another only when it is to be had at once.
 */
#include "hymt.h"
#include "progress.h"
#include "queue_internal.h"
#include "session.h"

#include "lib/ilist.h"
#include "libpq/libpq.h"
#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "tcop/dest.h"
#include "tcop/tcopprot.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
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

struct HymtRequestHandle
{
	dlist_node	node;			/* in `requests` */
	ResourceOwner owner;
	HymtSlot   *slot;
	uint64		generation;
	TimestampTz submitted;		/* before waiting for a slot */
	int			waiting_role;	/* entry in which it is counted as waiting; -1: none */
	bool		counted;		/* as a request, for hymt_stat */
	HymtRequestHandle **place;	/* of one that is read ahead or gives a stream: becomes NULL with its release; else NULL */
	HymtStatFailure failure;	/* that its session raises; else CANCELLED, which is how it ends unless answered */
};

/* What a wait remembers. */
typedef struct Patience
{
	HymtRequestHandle *const *requests; /* that are waited for, oldest first */
	int			count;
	TimestampTz started;
	TimestampTz no_worker_since;	/* 0: there was one at the last look */
	bool		noticed;
} Patience;

/* What the devices together can do: the state of the one from which an answer can be hoped for soonest. */
typedef struct Service
{
	HymtDevicePhase phase;
	HymtFailure failure;
	int			sqlstate;		/* of a refusal that no HymtFailure describes; else 0 */
	int			percent;
	TimestampTz next_attempt_at;	/* to start an engine, when REFUSED */
	char		message[HYMT_MESSAGE_MAX];	/* what is loading, or why the model was refused */
} Service;

static dlist_head requests = DLIST_STATIC_INIT(requests);
static int	ahead_held = 0;		/* those of them that have a place: that are read ahead or give a stream */

/* --- leaving ------------------------------------------------------------------------------------------------------ */

/*
 * Gives the slot up, in whatever state it is. True when that is before its answer. *charged_role: the role that was
 * charged for it, or -1.
 */
static bool
leave_slot(HymtSlot *slot, uint64 generation, int *charged_role)
{
	HymtTexts	texts = {InvalidDsaPointer, InvalidDsaPointer};
	int			worker = -1;
	bool		unanswered = false;

	*charged_role = -1;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	if (slot->generation == generation)
	{
		*charged_role = slot->charged_role;
		unanswered = slot->state != HYMT_SLOT_DONE && slot->state != HYMT_SLOT_FAILED;
		hymt_flight_leave(slot, &texts, &worker);
	}
	LWLockRelease(hymt_shared->lock);

	hymt_texts_free(&texts);
	hymt_wake(worker);
	return unanswered;
}

/* Under the lock. */
static void
count_as_waiting(HymtRequestHandle *request, int role)
{
	if (request->waiting_role == role)
		return;
	if (request->waiting_role >= 0)
	{
		hymt_shared->waiting_bulk--;
		hymt_shared->role[request->waiting_role].waiting_bulk--;
		hymt_role_settle(request->waiting_role);
	}
	if (role >= 0)
	{
		hymt_shared->waiting_bulk++;
		hymt_shared->role[role].waiting_bulk++;
		hymt_role_settle(role);
	}
	request->waiting_role = role;
}

void
hymt_request_release(HymtRequestHandle *request)
{
	bool		unanswered = request->counted;
	int			charged_role;

	dlist_delete(&request->node);
	if (request->waiting_role >= 0)
	{
		LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
		count_as_waiting(request, -1);
		LWLockRelease(hymt_shared->lock);
	}
	if (request->slot != NULL)
	{
		unanswered = leave_slot(request->slot, request->generation, &charged_role) && unanswered;
		hymt_signal_slot_freed(charged_role);
	}
	if (unanswered)
		hymt_stat_unanswered(request->failure);
	if (request->place != NULL)
	{
		*request->place = NULL;
		ahead_held--;
	}
	pfree(request);
}

static void
release_requests_of(ResourceOwner owner, bool all)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &requests)
	{
		HymtRequestHandle *request = dlist_container(HymtRequestHandle, node, iter.cur);

		if (all || request->owner == owner)
			hymt_request_release(request);
	}
}

/* Called for every owner that is released, which is then the current one. */
static void
resource_owner_released(ResourceReleasePhase phase, bool is_commit, bool is_top_level, void *arg)
{
	if (phase == RESOURCE_RELEASE_BEFORE_LOCKS)
		release_requests_of(CurrentResourceOwner, false);
}

static void
process_exits(int code, Datum arg)
{
	release_requests_of(NULL, true);
}

void
hymt_queue_register_callbacks(void)
{
	RegisterResourceReleaseCallback(resource_owner_released, NULL);
}

static HymtRequestHandle *
new_request(void)
{
	static bool exit_callback_registered = false;
	HymtRequestHandle *request;

	/* There are few places for callbacks: once per process, not per request. */
	if (!exit_callback_registered)
	{
		before_shmem_exit(process_exits, (Datum) 0);
		exit_callback_registered = true;
	}
	request = MemoryContextAllocZero(TopMemoryContext, sizeof(HymtRequestHandle));
	request->owner = CurrentResourceOwner;
	request->submitted = GetCurrentTimestamp();
	request->waiting_role = -1;
	dlist_push_tail(&requests, &request->node);
	return request;
}

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

/* Under the lock, at least shared. */
static void
look_at_devices(Service *service)
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
note_failure(const Patience *patience, HymtStatFailure failure)
{
	for (int i = 0; i < patience->count; i++)
		patience->requests[i]->failure = failure;
}

static void
check_worker(Patience *patience, TimestampTz now)
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
tell_why_it_takes_long(const Service *service)
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

/* Raises when no answer can come; says once what is being waited for when the wait is not the model's own work. */
static void
check_service(const Service *service, Patience *patience)
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

/* Of the oldest request, which was not begun. */
static void
check_queue_timeout(const Patience *patience)
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

/* Next look, in ms: the next tick, or the end of hymt.queue_timeout where that comes first. */
static long
next_look(const HymtRequestHandle *request, bool begun)
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

static void
sleep_on_slot_freed(ConditionVariable *freed, long timeout)
{
	static uint32 event = 0;

	ConditionVariableTimedSleep(freed, timeout, hymt_wait_event(&event, "HymtQueueFull"));
	if (has_client() && !pq_check_connection())
		client_vanished();
	CHECK_FOR_INTERRUPTS();
}

/* --- submitting --------------------------------------------------------------------------------------------------- */

static Size
length_limit(void)
{
	return Min(hymt_bytes_for_requests(), HYMT_FRAME_MAX_BODY - sizeof(HymtRequest));
}

/* Of context and text together. */
static Size
length_of(const HymtRequestSpec *spec)
{
	return spec->context_length + spec->text_length;
}

static bool
is_too_long(Size length)
{
	return length > HYMT_FRAME_MAX_BODY || hymt_text_cost(length) > length_limit();
}

bool
hymt_request_fits(const HymtRequestSpec *spec)
{
	return !is_too_long(length_of(spec));
}

static Oid
role_of(const HymtRequestSpec *spec)
{
	return OidIsValid(spec->role) ? spec->role : GetUserId();
}

void
hymt_request_check_length(const HymtRequestSpec *spec)
{
	Size		length = length_of(spec);
	Size		limit = length_limit();

	if (!is_too_long(length))
		return;
	hymt_stat_refused(HYMT_STAT_TOO_LONG);
	ereport(ERROR,
			(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
			 spec->context_length == 0 ?
			 errmsg("text of %zu bytes is too long to be translated", length) :
			 errmsg("text and context of %zu bytes are too long to be translated", length),
			 errdetail("The limit is %zu bytes.", limit),
			 limit < HYMT_FRAME_MAX_BODY - sizeof(HymtRequest) ?
			 errhint("A text may take half of hymt.queue_memory.") : 0));
}

/* What an attempt to submit goes by, and what came of it. */
typedef struct Attempt
{
	const HymtRequestSpec *spec;
	uint64		hash;
	bool		holds;			/* the caller holds a request already, or would rather do without than wait */
	bool		entitled;		/* it holds none all the same */
	bool		ahead;			/* of HYMT_CLASS_AHEAD */
	Size		window;			/* gives a stream; else 0 */
	HymtAdmission admission;
	ConditionVariable *freed;	/* when not admitted: to wait on before the next attempt */
	bool		alone;			/* nobody else uses queue memory */
	Service		service;
} Attempt;

static HymtClass
class_of(const Attempt *attempt)
{
	if (attempt->ahead)
		return HYMT_CLASS_AHEAD;
	return attempt->spec->bulk ? HYMT_CLASS_BULK : HYMT_CLASS_SINGLE;
}

/* What it takes of the area. */
static Size
cost_of(const Attempt *attempt)
{
	return hymt_text_cost(length_of(attempt->spec) + attempt->window);
}

/* Under the lock: the request that this one may follow. Pieces come to leaders only, so a stream follows none. */
static HymtSlot *
find_leader(const Attempt *attempt)
{
	return attempt->window > 0 ? NULL : hymt_flight_find(attempt->spec, attempt->hash);
}

static void
fill_slot(HymtSlot *slot, const HymtRequestSpec *spec)
{
	slot->owner_procno = HYMT_MY_PROCNO;
	slot->owner_pid = MyProcPid;
	slot->database = MyDatabaseId;
	slot->role = role_of(spec);
	strlcpy(slot->source_lang, spec->source_lang, HYMT_LANG_MAX);
	strlcpy(slot->target_lang, spec->target_lang, HYMT_LANG_MAX);
	slot->max_new_tokens = spec->max_new_tokens;
	memcpy(slot->adapter, spec->adapter, sizeof(slot->adapter));
	slot->context_length = spec->context_length;
	slot->draw = spec->draw;
	slot->text_length = spec->text_length;
}

/* Under the lock: from now on it is answered, or it counts as one that was not. */
static void
count_request(HymtRequestHandle *request)
{
	if (!request->counted)
		hymt_stat_requested();
	request->counted = true;
}

/* Under the lock: the request gets a slot of a role that may have one more. With a leader it follows that. */
static void
occupy(HymtRequestHandle *request, const Attempt *attempt, int role, Size bytes, HymtSlot *leader)
{
	HymtSlot   *slot = hymt_slot_take(role, class_of(attempt));

	fill_slot(slot, attempt->spec);
	slot->hash = attempt->hash;
	slot->window = attempt->window;
	/* Its session waits for it at once. */
	if (attempt->window > 0 && !attempt->spec->bulk)
		slot->queue_class = HYMT_CLASS_SINGLE;
	slot->asked = request->submitted;
	hymt_slot_set_bytes(slot, bytes);
	request->slot = slot;
	request->generation = slot->generation;
	if (leader != NULL)
	{
		slot->submitted = request->submitted;
		count_request(request);
		hymt_flight_join(slot, leader);
	}
}

/*
 * A slot and queue memory for the text, or neither. A request that equals one that is outstanding needs no memory, and
 * follows it at once.
 */
static void
reserve(HymtRequestHandle *request, Attempt *attempt)
{
	HymtClass	class = class_of(attempt);
	Size		bytes = cost_of(attempt);
	HymtSlot   *leader;
	bool		waits;
	int			role;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	/* One that does not wait may still turn out not to be made at all. */
	if (!attempt->holds)
		count_request(request);
	attempt->alone = hymt_shared->bytes_used == 0;
	leader = find_leader(attempt);
	if (leader != NULL)
		bytes = 0;
	role = hymt_role_find(role_of(attempt->spec));
	attempt->admission = hymt_policy_admit(role, class, bytes, attempt->holds && !attempt->entitled, ahead_held);
	attempt->freed = &hymt_shared->slot_freed[Min(class, HYMT_CLASS_BULK)];
	if (attempt->admission == HYMT_ADMITTED)
		occupy(request, attempt, role, bytes, leader);
	else if (attempt->admission == HYMT_ROLE_FULL)
		attempt->freed = &hymt_shared->role[role].freed;
	/* Those who hold requests make way for a bulk one, unless it is only its own role that keeps it waiting. */
	waits = attempt->admission == HYMT_QUEUE_FULL && class == HYMT_CLASS_BULK && !attempt->holds;
	count_as_waiting(request, waits ? role : -1);
	if (role >= 0)
		hymt_role_settle(role);
	look_at_devices(&attempt->service);
	LWLockRelease(hymt_shared->lock);
}

/* Copies the text into the area. False when there is no run of pages that long: others' texts lie in between. */
static bool
copy_text(HymtRequestHandle *request, const Attempt *attempt)
{
	HymtSlot   *slot = request->slot;
	int			charged_role;

	slot->text = hymt_text_allocate(attempt->spec->context, attempt->spec->context_length, attempt->spec->text,
									attempt->spec->text_length, attempt->window);
	if (DsaPointerIsValid(slot->text))
	{
		slot->text_offset = (char *) dsa_get_address(hymt_area(), slot->text) - (char *) hymt_shared;
		return true;
	}
	request->slot = NULL;
	(void) leave_slot(slot, request->generation, &charged_role);
	if (attempt->alone && !attempt->ahead)
	{
		request->failure = HYMT_STAT_MEMORY;
		ereport(ERROR,
				(errcode(ERRCODE_OUT_OF_MEMORY),
				 errmsg("out of queue memory"),
				 errhint("Raise hymt.queue_memory.")));
	}
	return false;
}

/* Queues a request whose text is in the area, unless an equal one was queued meanwhile: then it follows that. */
static void
enqueue(HymtRequestHandle *request, const Attempt *attempt)
{
	HymtSlot   *slot = request->slot;
	HymtTexts	texts = {InvalidDsaPointer, InvalidDsaPointer};
	TimestampTz now = GetCurrentTimestamp();
	int			workers[HYMT_MAX_DEVICES];
	int			count = 0;
	HymtSlot   *leader;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	slot->submitted = now;
	count_request(request);
	leader = find_leader(attempt);
	if (leader != NULL)
	{
		texts.text = slot->text;
		slot->text = InvalidDsaPointer;
		hymt_slot_set_bytes(slot, 0);
		hymt_flight_join(slot, leader);
	}
	else
	{
		hymt_queue_append(slot, slot->charged_role);
		hymt_flight_begin(slot);
		hymt_stat_queued(slot);
		count = hymt_shared->device_count;
		for (int i = 0; i < count; i++)
			workers[i] = hymt_shared->device[i].worker_procno;
	}
	LWLockRelease(hymt_shared->lock);
	hymt_texts_free(&texts);
	for (int i = 0; i < count; i++)
		hymt_wake(workers[i]);
}

/* False when there is no room now. */
static bool
try_submit(HymtRequestHandle *request, Attempt *attempt)
{
	reserve(request, attempt);
	if (attempt->admission != HYMT_ADMITTED)
		return false;
	if (request->slot->state == HYMT_SLOT_FILLING)
	{
		if (!copy_text(request, attempt))
			return false;
		enqueue(request, attempt);
	}
	hymt_progress_text();
	return true;
}

HymtRequestHandle *
hymt_request_submit(const HymtRequestSpec *spec)
{
	HymtRequestHandle *request;
	Attempt		attempt = {.spec = spec};
	Patience	patience = {.requests = &request, .count = 1};

	hymt_check_preloaded();
	hymt_request_check_length(spec);
	attempt.hash = hymt_flight_hash(spec);
	request = new_request();
	patience.started = request->submitted;
	if (try_submit(request, &attempt))
		return request;
	ConditionVariablePrepareToSleep(attempt.freed);
	while (!try_submit(request, &attempt))
	{
		hymt_progress_tick();
		check_service(&attempt.service, &patience);
		check_queue_timeout(&patience);
		sleep_on_slot_freed(attempt.freed, next_look(request, false));
	}
	ConditionVariableCancelSleep();
	/* There may be room for the next one too, of which nobody else tells. */
	ConditionVariableSignal(attempt.freed);
	return request;
}

HymtRequestHandle *
hymt_request_offer(const HymtRequestSpec *spec, bool holds)
{
	HymtRequestHandle *request;
	Attempt		attempt = {.spec = spec, .holds = true, .entitled = !holds};

	hymt_check_preloaded();
	hymt_request_check_length(spec);
	attempt.hash = hymt_flight_hash(spec);
	request = new_request();
	if (try_submit(request, &attempt))
		return request;
	hymt_request_release(request);
	return NULL;
}

HymtRequestHandle *
hymt_request_try_submit(const HymtRequestSpec *spec)
{
	return hymt_request_offer(spec, true);
}

static bool
submit_to_place(const HymtRequestSpec *spec, Size window, HymtRequestHandle **place)
{
	HymtRequestHandle *request;
	Attempt		attempt = {.spec = spec, .holds = true, .ahead = true, .window = window};

	if (is_too_long(length_of(spec) + window))
		return false;
	attempt.hash = hymt_flight_hash(spec);
	request = new_request();
	if (!try_submit(request, &attempt))
	{
		hymt_request_release(request);
		return false;
	}
	request->place = place;
	*place = request;
	ahead_held++;
	return true;
}

bool
hymt_request_submit_ahead(const HymtRequestSpec *spec, HymtRequestHandle **place)
{
	return submit_to_place(spec, 0, place);
}

bool
hymt_request_submit_stream(const HymtRequestSpec *spec, HymtRequestHandle **place)
{
	hymt_check_preloaded();
	return submit_to_place(spec, hymt_stream_window(spec), place);
}

/* --- the answer --------------------------------------------------------------------------------------------------- */

/* Under the lock. One that waits again because the engine died under it was begun all the same. */
static bool
is_begun(const HymtRequestHandle *request)
{
	const HymtSlot *leader = hymt_slot_leader(request->slot);

	return leader->state != HYMT_SLOT_QUEUED || leader->begun != 0;
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
look_at_requests(HymtRequestHandle *const *handles, int count, bool *begun, Service *service)
{
	int			answered = -1;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	*begun = is_begun(handles[0]);
	for (int i = 0; i < Min(count, HYMT_WAIT_ANY_LOOKS) && answered < 0; i++)
	{
		if (has_news(handles[i]))
			answered = i;
	}
	look_at_devices(service);
	LWLockRelease(hymt_shared->lock);
	return answered;
}

/* *service is as of the last look. */
static int
wait_any(HymtRequestHandle *const *handles, int count, Service *service)
{
	Patience	patience = {handles, count, handles[0]->submitted, 0, false};

	for (;;)
	{
		bool		begun;
		int			answered = look_at_requests(handles, count, &begun, service);

		hymt_progress_tick();
		if (answered >= 0)
			return answered;
		check_service(service, &patience);
		if (!begun)
			check_queue_timeout(&patience);
		sleep_on_latch(next_look(handles[0], begun));
	}
}

int
hymt_request_wait_any(HymtRequestHandle *const *handles, int count)
{
	Service		service;

	return wait_any(handles, count, &service);
}

/* The slot is DONE or FAILED; its answer, which may be its leader's, does not change while this request uses it. */
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
	answered = is_answered(request);
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
	Service		service;

	(void) wait_any(&request, 1, &service);
	take_outcome(request, outcome);
	hymt_request_release(request);
	raise_service_failure(outcome, service.next_attempt_at);
}

bool
hymt_request_wait_piece(HymtRequestHandle *request, StringInfo piece, int *attempt)
{
	Service		service;
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

bool
hymt_request_collect(HymtRequestHandle *request, bool bulk, HymtOutcome *outcome)
{
	Service		service;

	/* hymt.queue_timeout limits how long a session waits, not for how long it did other things meanwhile. */
	request->submitted = GetCurrentTimestamp();
	if (!bulk)
	{
		LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
		hymt_flight_hasten(request->slot);
		LWLockRelease(hymt_shared->lock);
	}
	(void) wait_any(&request, 1, &service);
	take_outcome(request, outcome);
	hymt_request_release(request);
	return is_of_text(outcome);
}
