/*
 * worker_requests.c: the requests in flight: sent to the engine and not yet answered.
 *
 * Runs in the worker; owns the table of them and the slots that its device has claimed.
 */
#include "worker_internal.h"

#include "utils/timestamp.h"

/* No further requests are claimed while more than this waits to be sent: a slow engine must not fill our memory. */
#define MAX_UNSENT (1024 * 1024)

static void
land(HymtFlight *flight)
{
	flight->in_flight = false;
	if (--hymt_worker->in_flight == 0)
		hymt_worker->alone = false;
}

void
hymt_worker_note_progress(void)
{
	hymt_worker->progress_at = GetCurrentTimestamp();
}

static void
fail(const HymtClaim *claim, HymtFailure failure, const char *message)
{
	hymt_queue_fail(hymt_worker->device, claim->slot, claim->generation, failure, 0, HYMT_FINISH_NONE,
					message, strlen(message));
}

static void
send_request(const HymtClaim *claim)
{
	HymtFlight *flight = &hymt_worker->flights[claim->slot];

	if (claim->text_length > HYMT_FRAME_MAX_BODY - sizeof(HymtRequest))
	{
		fail(claim, HYMT_FAILURE_TOO_LONG, "The text is longer than a message to the engine may be.");
		return;
	}
	if (!hymt_link_request(&hymt_worker->link, claim))
	{
		fail(claim, HYMT_FAILURE_NO_MEMORY, "The worker is out of memory.");
		return;
	}
	if (hymt_worker->in_flight++ == 0)
		hymt_worker_note_progress();	/* an idle engine owed none */
	flight->generation = claim->generation;
	flight->in_flight = true;
	flight->suspect = claim->suspect;
	hymt_worker->alone = claim->suspect;
}

/*
 * Requests that were in flight when an engine died go first and one at a time, so that the next death tells which of
 * them is at fault.
 */
void
hymt_worker_claim_requests(void)
{
	HymtClaim	claim;

	while (hymt_worker->in_flight < hymt_worker->credits && !hymt_worker->alone &&
		   hymt_link_unsent(&hymt_worker->link) < MAX_UNSENT)
	{
		bool		suspects = hymt_queue_has_suspects();

		if (suspects && hymt_worker->in_flight > 0)
			return;
		if (!hymt_queue_claim(hymt_worker->device, suspects, &claim))
			return;
		send_request(&claim);
	}
}

/* Slots of callers that left are free for others at once; the engine is told to stop working for them. */
void
hymt_worker_release_abandoned(void)
{
	int			slot;
	uint64		generation;

	while (hymt_queue_next_abandoned(hymt_worker->device, &slot, &generation))
	{
		HymtFlight *flight = &hymt_worker->flights[slot];

		if (!flight->in_flight || flight->generation != generation)
			continue;
		land(flight);
		/* Without memory for it the engine works on in vain, and its answer is dropped. */
		(void) hymt_link_cancel(&hymt_worker->link, slot, generation);
	}
}

/*
 * The engine is gone: what it had goes back to the queue. A request that an engine died of while it was the only one,
 * twice, is at fault itself. (Once is not enough: the engine may have been killed from outside.)
 */
void
hymt_worker_recall_requests(HymtEnding ending)
{
	bool		innocent = ending == ENDING_PLANNED || ending == ENDING_NO_MEMORY;
	int			sqlstate = ending == ENDING_DEATH ? ERRCODE_HYMT_ENGINE_CRASHED : ERRCODE_HYMT_ENGINE_FAILED;
	const char *message = ending == ENDING_DEATH ? "Started anew, the engine died of it again." :
		ending == ENDING_HANG ? "Started anew, the engine hung again." :
		"Started anew, the engine broke the protocol again.";

	for (int slot = 0; slot < hymt_shared->slot_count && hymt_worker->in_flight > 0; slot++)
	{
		HymtFlight *flight = &hymt_worker->flights[slot];

		if (!flight->in_flight)
			continue;
		if (flight->suspect && !innocent)
			hymt_queue_fail(hymt_worker->device, slot, flight->generation, HYMT_FAILURE_NONE, sqlstate,
							HYMT_FINISH_NONE, message, strlen(message));
		else
			hymt_queue_requeue(hymt_worker->device, slot, flight->generation, !innocent);
		land(flight);
	}
	Assert(hymt_worker->in_flight == 0);
}

HymtMatch
hymt_worker_land(uint32 slot, uint64 generation)
{
	HymtFlight *flight;

	if (slot >= (uint32) hymt_shared->slot_count)
		return HYMT_MATCH_NEVER;
	flight = &hymt_worker->flights[slot];
	if (generation > flight->generation || generation == 0)
		return HYMT_MATCH_NEVER;
	if (!flight->in_flight || flight->generation != generation)
		return HYMT_MATCH_LATE;
	land(flight);
	return HYMT_MATCH_IN_FLIGHT;
}
