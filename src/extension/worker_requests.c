/*
 * worker_requests.c: the requests in flight: sent to the engine and not yet answered.
 *
 * Runs in the worker; owns the table of them and the slots that its device has claimed.
 */
#include "worker_internal.h"

#include "queue_internal.h"

#include "miscadmin.h"
#include "utils/timestamp.h"

/* No further requests are claimed while more than this waits to be sent: a slow engine must not fill our memory. */
#define MAX_UNSENT (1024 * 1024)

static void
land(HymtEngine *engine, HymtFlight *flight)
{
	flight->in_flight = false;
	if (--engine->in_flight == 0)
		engine->alone = false;
}

int
hymt_worker_in_flight(void)
{
	int			sum = 0;

	for (int i = 0; i < HYMT_ENGINES; i++)
		sum += hymt_worker->engine[i].in_flight;
	return sum;
}

void
hymt_worker_note_progress(HymtEngine *engine)
{
	engine->progress_at = GetCurrentTimestamp();
}

static void
fail(const HymtClaim *claim, HymtFailure failure, const char *message)
{
	hymt_queue_fail(hymt_worker->device, claim->slot, claim->generation, failure, 0, HYMT_FINISH_NONE,
					message, strlen(message));
}

static void
send_request(HymtEngine *engine, const HymtClaim *claim)
{
	HymtFlight *flight = &engine->flights[claim->slot];

	if (claim->context_length + claim->text_length > HYMT_FRAME_MAX_BODY - sizeof(HymtRequest))
	{
		fail(claim, HYMT_FAILURE_TOO_LONG, "The text is longer than a message to the engine may be.");
		return;
	}
	if (!hymt_link_request(&engine->link, claim))
	{
		fail(claim, HYMT_FAILURE_NO_MEMORY, "The worker is out of memory.");
		return;
	}
	if (engine->in_flight++ == 0)
		hymt_worker_note_progress(engine);	/* an idle engine owed none */
	flight->generation = claim->generation;
	flight->in_flight = true;
	flight->suspect = claim->suspect;
	flight->stream = claim->stream;
	engine->alone = claim->suspect;
}

/* Whether another device is ready and its present engine has answered a request. */
static bool
other_device_proven(void)
{
	bool		proven = false;

	if (hymt_shared->device_count == 1)
		return false;
	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	for (int i = 0; i < hymt_shared->device_count; i++)
		proven = proven || (i != hymt_worker->device && hymt_shared->device[i].proven);
	LWLockRelease(hymt_shared->lock);
	return proven;
}

/*
 * A suspect must not be found guilty of what is the device's own fault. So while this engine has not answered any
 * request, suspects are left to a device whose engine has.
 */
static bool
may_try_suspects(const HymtEngine *engine)
{
	return engine->has_answered || !other_device_proven();
}

/* More than one request is a risk while the circuit breaker is half open. */
static int
free_credits(const HymtEngine *engine)
{
	return (hymt_worker->tripped ? 1 : engine->credits) - engine->in_flight;
}

/*
 * Requests that were in flight when an engine died go first and one at a time, so that the next death tells which of
 * them is at fault.
 */
void
hymt_worker_claim_requests(void)
{
	HymtEngine *engine = hymt_worker->serving;
	HymtClaim	claim;
	int64		head_start;

	engine->claims_at = 0;
	if (!hymt_worker_knows_pace(engine))
		return;
	head_start = hymt_worker_head_start(engine);
	while (engine->conversing && engine->link.ready && !engine->draining && !engine->alone &&
		   free_credits(engine) > 0 && hymt_link_unsent(&engine->link) < MAX_UNSENT)
	{
		bool		suspects = hymt_queue_has_suspects() && may_try_suspects(engine);

		/* Alone means without the worker's own question, too. */
		if (suspects && (engine->in_flight > 0 || engine->probed_at != 0))
			return;
		/* Another device may just have taken the last suspect: then it is the others' turn, now. */
		if (!(suspects && hymt_queue_claim(hymt_worker->device, true, 0, &claim, &engine->claims_at)) &&
			!hymt_queue_claim(hymt_worker->device, false, head_start, &claim, &engine->claims_at))
			return;
		send_request(engine, &claim);
	}
}

/* The engine that was last sent this request, if it still works on it. */
static HymtEngine *
engine_of(int slot, uint64 generation)
{
	for (int i = 0; i < HYMT_ENGINES; i++)
	{
		HymtEngine *engine = &hymt_worker->engine[i];

		if (engine->conversing && engine->flights[slot].in_flight && engine->flights[slot].generation == generation)
			return engine;
	}
	return NULL;
}

/* Slots of callers that left are free for others at once; the engine is told to stop working for them. */
void
hymt_worker_release_abandoned(void)
{
	int			slot;
	uint64		generation;

	while (hymt_queue_next_abandoned(hymt_worker->device, &slot, &generation))
	{
		HymtEngine *engine = engine_of(slot, generation);

		if (engine == NULL)
			continue;
		land(engine, &engine->flights[slot]);
		/* Without memory for it the engine works on in vain, and its answer is dropped. */
		(void) hymt_link_cancel(&engine->link, slot, generation);
	}
}

/*
 * The engine is gone: what it had goes back to the queue. A request that an engine died of while it was the only one,
 * twice, is at fault itself. (Once is not enough: the engine may have been killed from outside.) A signal that ends this
 * worker goes to its process group: then the engine died of that, and no request is to blame.
 */
void
hymt_worker_recall_requests(HymtEngine *engine, HymtEnding ending)
{
	bool		innocent = ending == ENDING_PLANNED || ending == ENDING_NO_MEMORY || ProcDiePending;
	int			sqlstate = ending == ENDING_DEATH ? ERRCODE_HYMT_ENGINE_CRASHED : ERRCODE_HYMT_ENGINE_FAILED;
	const char *message = ending == ENDING_DEATH ? "Started anew, the engine died of it again." :
		ending == ENDING_HANG ? "Started anew, the engine hung again." :
		"Started anew, the engine broke the protocol again.";

	if (engine->in_flight == 0)
		return;
	for (int slot = 0; slot < hymt_shared->slot_count && engine->in_flight > 0; slot++)
	{
		HymtFlight *flight = &engine->flights[slot];

		if (!flight->in_flight)
			continue;
		if (flight->suspect && !innocent)
			hymt_queue_fail(hymt_worker->device, slot, flight->generation, HYMT_FAILURE_NONE, sqlstate,
							HYMT_FINISH_NONE, message, strlen(message));
		else
			hymt_queue_requeue(hymt_worker->device, slot, flight->generation, !innocent);
		land(engine, flight);
	}
	Assert(engine->in_flight == 0);
}

/* Of a request that is not the worker's own question. */
static HymtMatch
match(const HymtEngine *engine, uint32 slot, uint64 generation)
{
	const HymtFlight *flight;

	if (slot >= (uint32) hymt_shared->slot_count)
		return HYMT_MATCH_NEVER;
	flight = &engine->flights[slot];
	if (generation > flight->generation || generation == 0)
		return HYMT_MATCH_NEVER;
	return flight->in_flight && flight->generation == generation ? HYMT_MATCH_IN_FLIGHT : HYMT_MATCH_LATE;
}

HymtMatch
hymt_worker_land(HymtEngine *engine, uint32 slot, uint64 generation, bool failed)
{
	HymtMatch	found;

	if (slot == (uint32) hymt_shared->slot_count)
		return hymt_worker_land_probe(engine, generation, failed);
	found = match(engine, slot, generation);
	if (found == HYMT_MATCH_IN_FLIGHT)
		land(engine, &engine->flights[slot]);
	return found;
}

HymtMatch
hymt_worker_match_piece(HymtEngine *engine, uint32 slot, uint64 generation)
{
	HymtMatch	found = match(engine, slot, generation);

	/* Nobody asked for it. */
	if (found == HYMT_MATCH_IN_FLIGHT && !engine->flights[slot].stream)
		return HYMT_MATCH_NEVER;
	return found;
}

/* --- other devices ------------------------------------------------------------------------------------------------ */

void
hymt_worker_wake_others(void)
{
	int			workers[HYMT_MAX_DEVICES];
	int			count = hymt_shared->device_count;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	for (int i = 0; i < count; i++)
		workers[i] = i == hymt_worker->device ? -1 : hymt_shared->device[i].worker_procno;
	LWLockRelease(hymt_shared->lock);
	for (int i = 0; i < count; i++)
		hymt_wake(workers[i]);
}

bool
hymt_worker_is_last_hope(void)
{
	bool		hope = false;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	for (int i = 0; i < hymt_shared->device_count; i++)
	{
		const HymtDeviceState *device = &hymt_shared->device[i];

		hope = hope || hymt_device_comes_back(device) ||
			(device->phase != HYMT_DEVICE_REFUSED && device->phase != HYMT_DEVICE_NO_WORKER);
	}
	LWLockRelease(hymt_shared->lock);
	return !hope;
}
