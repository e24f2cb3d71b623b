/*
 * queue.c: the session's side of the queue: submit a request, leave.
 *
 * Runs in backends and parallel workers. Owns the slots of this process's requests. Every request belongs to the
 * ResourceOwner that was current when it was submitted, and leaves with it: there is no error handler of ours on the
 * stack while a portal is idle, and none is needed. FATAL exits are covered by a before_shmem_exit callback.
 *
 * A process that holds no slot waits for one; one that holds a slot takes another only when it is to be had at once.
 *
 * The slot of a request that was made ahead may be another one's by now: its generation tells.
 */
#include "hymt.h"
#include "progress.h"
#include "queue_internal.h"
#include "queue_session.h"

#include "miscadmin.h"
#include "storage/ipc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

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

/* --- requests that were made ahead -------------------------------------------------------------------------------- */

/* Often enough for a statement at work, see queue_lapse.c; microseconds. */
#define LOOK_AFTER_EVERY (250 * 1000)
/* So many are looked after under one hold of the lock. */
#define LOOK_AFTER_BATCH 64

static void
look_after(HymtRequestHandle *request, TimestampTz now)
{
	if (request->slot->generation != request->generation)
		request->lapsed = true;
	else if (request->owner == CurrentResourceOwner)
		hymt_rest_look_after(request->slot, now);
}

static void
release_lapsed(void)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &requests)
	{
		HymtRequestHandle *request = dlist_container(HymtRequestHandle, node, iter.cur);

		if (request->lapsed)
			hymt_request_release(request);
	}
}

void
hymt_requests_look_after(void)
{
	static ResourceOwner owner = NULL;
	static TimestampTz looked_at = 0;
	TimestampTz now;
	dlist_iter	iter;
	int			count = 0;

	if (ahead_held == 0)
		return;
	now = GetCurrentTimestamp();
	if (CurrentResourceOwner == owner && now >= looked_at && now - looked_at < LOOK_AFTER_EVERY)
		return;
	owner = CurrentResourceOwner;
	looked_at = now;
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	dlist_foreach(iter, &requests)
	{
		HymtRequestHandle *request = dlist_container(HymtRequestHandle, node, iter.cur);

		if (request->place == NULL)
			continue;
		if (++count % LOOK_AFTER_BATCH == 0)
		{
			LWLockRelease(hymt_shared->lock);
			LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
		}
		look_after(request, now);
	}
	LWLockRelease(hymt_shared->lock);
	release_lapsed();
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
	TimestampTz now;			/* with `ahead` */
	Size		window;			/* gives a stream; else 0 */
	HymtAdmission admission;
	ConditionVariable *freed;	/* when not admitted: to wait on before the next attempt */
	bool		alone;			/* nobody else uses queue memory */
	HymtService service;
} Attempt;

/* Slots that were taken from others under one hold of the lock, to make room. */
#define MOST_TAKEN 16
typedef struct Taken
{
	int			count;
	HymtTexts	texts[MOST_TAKEN];
	int			charged_role[MOST_TAKEN];
} Taken;

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

/* Under the lock. Where room is made by what lapses: the next one, which may be of the own role only. */
static bool
take_next(const Attempt *attempt, int role, Taken *taken)
{
	bool		of_role = attempt->admission == HYMT_ROLE_FULL;

	if (!attempt->ahead || (attempt->admission != HYMT_ROOM_IS_LAPSING && !of_role) || taken->count == MOST_TAKEN ||
		!hymt_lapse_first(of_role ? role : -1, &taken->texts[taken->count], &taken->charged_role[taken->count]))
		return false;
	taken->count++;
	return true;
}

/* Under the lock: sets the admission. Returns the role's entry, or -1. */
static int
admit(Attempt *attempt, Size bytes, Taken *taken)
{
	int			role;

	if (attempt->ahead)
		hymt_lapse_look(attempt->now);
	do
	{
		/* Anew, as an entry without slots may have gone with the one that was taken. */
		role = hymt_role_find(role_of(attempt->spec));
		attempt->admission = hymt_policy_admit(role, class_of(attempt), bytes, attempt->holds && !attempt->entitled, ahead_held);
	} while (take_next(attempt, role, taken));
	return role;
}

static void
free_taken(const Taken *taken)
{
	for (int i = 0; i < taken->count; i++)
	{
		hymt_texts_free(&taken->texts[i]);
		hymt_signal_slot_freed(taken->charged_role[i]);
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
	Taken		taken = {.count = 0};
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
	role = admit(attempt, bytes, &taken);
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
	hymt_look_at_devices(&attempt->service);
	LWLockRelease(hymt_shared->lock);
	free_taken(&taken);
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
	do
		reserve(request, attempt);
	while (attempt->admission == HYMT_ROOM_IS_LAPSING);
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
	HymtPatience patience = {.requests = &request, .count = 1};

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
		hymt_requests_look_after();
		hymt_check_service(&attempt.service, &patience);
		hymt_check_queue_timeout(&patience);
		hymt_sleep_on_slot_freed(attempt.freed, hymt_next_look(request, false));
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
	hymt_requests_look_after();
	attempt.hash = hymt_flight_hash(spec);
	request = new_request();
	attempt.now = request->submitted;
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
