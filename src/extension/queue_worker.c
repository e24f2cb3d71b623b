/*
 * queue_worker.c: the worker's side of the queue.
 *
 * Runs in workers. Owns the slots that its device has claimed: while a slot is CLAIMED or ABANDONED by this device,
 * nobody else frees its text. Nothing here raises an error or waits.
 */
#include "hymt.h"
#include "queue_internal.h"

#include "utils/timestamp.h"

/* Two processes that read the clock one after the other may look at the times in the other order. */
#define CLOCK_SLACK_US (1000 * 1000)

static bool
claimed_by(const HymtSlot *slot, int device, uint64 generation)
{
	return slot->state == HYMT_SLOT_CLAIMED && slot->device == device && slot->generation == generation;
}

/* Slot numbers come back through the engine, which is not trusted. */
static HymtSlot *
slot_at(int number)
{
	return number >= 0 && number < hymt_shared->slot_count ? &hymt_shared->slot[number] : NULL;
}

static HymtSlot *
next_queued(bool suspects)
{
	if (!suspects)
		return hymt_policy_next();
	return hymt_shared->suspects.head < 0 ? NULL : &hymt_shared->slot[hymt_shared->suspects.head];
}

/*
 * Until when a request is left to other devices; 0: it is not. One that seems to come from the future is what a clock
 * leaves that was set back: nobody can tell how long it has waited, and it must not wait for the clock.
 */
static TimestampTz
left_until(const HymtSlot *slot, int64 head_start, TimestampTz now)
{
	TimestampTz until = slot->submitted + head_start;

	return head_start > 0 && until > now && slot->submitted - now < CLOCK_SLACK_US ? until : 0;
}

bool
hymt_queue_claim(int device, bool suspects_only, int64 head_start, HymtClaim *claim, TimestampTz *due)
{
	HymtSlot   *slot;
	dsa_pointer text = InvalidDsaPointer;
	TimestampTz now = GetCurrentTimestamp();

	*due = 0;
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	slot = next_queued(suspects_only);
	if (slot != NULL)
		*due = left_until(slot, head_start, now);
	if (*due != 0)
		slot = NULL;
	if (slot != NULL)
	{
		hymt_policy_claimed(slot);
		hymt_queue_remove(slot);
		slot->state = HYMT_SLOT_CLAIMED;
		slot->device = device;
		/* Of the engine that gets it now; when it answers, the device may have another one. */
		if (device < HYMT_MAX_DEVICES)
			memcpy(slot->model, hymt_shared->device[device].model, HYMT_NAME_MAX);
		hymt_stat_claimed(slot, now);
		hymt_stream_begin(slot);
		claim->slot = hymt_slot_number(slot);
		claim->generation = slot->generation;
		claim->suspect = slot->suspect;
		memcpy(claim->source_lang, slot->source_lang, HYMT_LANG_MAX);
		memcpy(claim->target_lang, slot->target_lang, HYMT_LANG_MAX);
		claim->max_new_tokens = slot->max_new_tokens;
		memcpy(claim->adapter, slot->adapter, sizeof(claim->adapter));
		claim->context_length = slot->context_length;
		claim->draw = slot->draw;
		claim->text_length = slot->text_length;
		claim->stream = slot->window > 0;
		text = slot->text;
	}
	LWLockRelease(hymt_shared->lock);

	if (slot == NULL)
		return false;
	claim->context = dsa_get_address(hymt_area(), text);
	claim->text = claim->context + claim->context_length;
	return true;
}

bool
hymt_queue_has_suspects(void)
{
	bool		found;

	LWLockAcquire(hymt_shared->lock, LW_SHARED);
	found = hymt_shared->suspects.count > 0;
	LWLockRelease(hymt_shared->lock);
	return found;
}

/* The fixed part of an answer. */
typedef struct Answer
{
	HymtSlotState state;		/* DONE or FAILED */
	HymtFailure failure;
	int			sqlstate;
	HymtFinish	finish;
	int			input_tokens;
	int			output_tokens;
	bool		service_failed;
	const char *fingerprint;	/* of a translation: 64 digits without NUL; else NULL */
} Answer;

/*
 * Takes the request's text out of its slot, as it is not needed any more, and reserves queue memory for the answer in
 * its place. False when the slot is not (or no longer) ours to answer; *reserved tells whether there is memory.
 */
static bool
begin_answer(HymtSlot *slot, int device, uint64 generation, Size cost, bool *reserved)
{
	HymtTexts	texts = {InvalidDsaPointer, InvalidDsaPointer};
	bool		ours;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	ours = claimed_by(slot, device, generation);
	if (ours)
	{
		/* Nobody can join any more: there is no text to compare with. */
		hymt_flight_end(slot);
		texts.text = slot->text;
		slot->text = InvalidDsaPointer;
		slot->pieces_length = 0;
		hymt_slot_set_bytes(slot, 0);
		*reserved = hymt_shared->bytes_used + cost <= hymt_shared->bytes_limit;
		if (*reserved)
			hymt_slot_set_bytes(slot, cost);
	}
	LWLockRelease(hymt_shared->lock);
	hymt_texts_free(&texts);
	return ours;
}

/* So many are told of an answer under one hold of the lock, and woken after it. */
#define WAKE_BATCH 64

/* Followers of an answered request have the same answer. Who leaves in between is no follower any more. */
static void
land_followers(HymtSlot *leader, uint64 generation, TimestampTz now)
{
	int			procnos[WAKE_BATCH];
	int			count;

	do
	{
		count = 0;
		LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
		if (leader->generation == generation)
			count = hymt_flight_land(leader, now, procnos, WAKE_BATCH);
		LWLockRelease(hymt_shared->lock);
		for (int i = 0; i < count; i++)
			hymt_wake(procnos[i]);
	} while (count == WAKE_BATCH);
}

static void
finish_answer(HymtSlot *slot, int device, uint64 generation, const Answer *answer, dsa_pointer result, Size length)
{
	HymtTexts	texts = {InvalidDsaPointer, result};
	TimestampTz now = GetCurrentTimestamp();
	bool		followed = false;
	int			owner = -1;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	if (claimed_by(slot, device, generation))
	{
		slot->state = answer->state;
		slot->failure = answer->failure;
		slot->sqlstate = answer->sqlstate;
		slot->service_failed = answer->service_failed;
		slot->finish = answer->finish;
		slot->input_tokens = answer->input_tokens;
		slot->output_tokens = answer->output_tokens;
		if (answer->fingerprint != NULL)
			memcpy(slot->fingerprint, answer->fingerprint, HYMT_FINGERPRINT_DIGITS);
		slot->result = result;
		slot->result_length = DsaPointerIsValid(result) ? length : 0;
		slot->looked_after = now;
		hymt_rest_begin(slot);
		hymt_stat_answered(slot, now);
		owner = slot->owner_procno;
		followed = slot->followers.count > 0;
		texts.result = InvalidDsaPointer;
	}
	/* Else its users left while the answer was copied: hymt_queue_next_abandoned() will find the slot. */
	LWLockRelease(hymt_shared->lock);
	hymt_texts_free(&texts);
	hymt_wake(owner);
	if (followed)
		land_followers(slot, generation, now);
}

static void
give_answer(int device, int number, uint64 generation, Answer *answer, const char *text, Size length)
{
	HymtSlot   *slot = slot_at(number);
	dsa_pointer result = InvalidDsaPointer;
	bool		reserved = false;

	if (slot == NULL || !begin_answer(slot, device, generation, hymt_text_cost(length), &reserved))
		return;
	if (reserved)
		result = hymt_text_allocate(NULL, 0, text, length, 0);
	/* A failure can do without its message, a translation cannot do without its text. */
	if (!DsaPointerIsValid(result) && answer->state == HYMT_SLOT_DONE)
	{
		answer->state = HYMT_SLOT_FAILED;
		answer->failure = HYMT_FAILURE_NO_MEMORY;
	}
	finish_answer(slot, device, generation, answer, result, length);
}

void
hymt_queue_answer(int device, int slot, uint64 generation, const char *text, Size length,
				  HymtFinish finish, int input_tokens, int output_tokens, const char *fingerprint)
{
	Answer		answer = {HYMT_SLOT_DONE, HYMT_FAILURE_NONE, 0, finish, input_tokens, output_tokens, false, fingerprint};

	give_answer(device, slot, generation, &answer, text, length);
}

void
hymt_queue_fail(int device, int slot, uint64 generation, HymtFailure failure, int sqlstate,
				HymtFinish finish, const char *message, Size length)
{
	Answer		answer = {HYMT_SLOT_FAILED, failure, sqlstate, finish, 0, 0, false, NULL};

	give_answer(device, slot, generation, &answer, message, length);
}

void
hymt_queue_piece(int device, int number, uint64 generation, const char *text, Size length)
{
	HymtSlot   *slot = slot_at(number);
	int			owner = -1;

	if (slot == NULL)
		return;
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	if (claimed_by(slot, device, generation) && hymt_stream_append(slot, text, length))
		owner = slot->owner_procno;
	LWLockRelease(hymt_shared->lock);
	hymt_wake(owner);
}

/* Under the lock: a claimed request that this worker cannot answer any more. */
static void
put_back(HymtSlot *slot, bool suspect, HymtTexts *texts)
{
	if (slot->state == HYMT_SLOT_ABANDONED)
	{
		hymt_slot_free(slot, texts);
		return;
	}
	if (suspect)
	{
		slot->suspect = true;
		slot->crashes++;
	}
	hymt_queue_put_back(slot);
	hymt_stat_retried();
}

void
hymt_queue_requeue(int device, int number, uint64 generation, bool suspect)
{
	HymtSlot   *slot = slot_at(number);
	HymtTexts	texts = {InvalidDsaPointer, InvalidDsaPointer};

	if (slot == NULL)
		return;
	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	if (slot->device == device && slot->generation == generation &&
		(slot->state == HYMT_SLOT_CLAIMED || slot->state == HYMT_SLOT_ABANDONED))
		put_back(slot, suspect, &texts);
	LWLockRelease(hymt_shared->lock);
	hymt_texts_free(&texts);
	hymt_signal_slot_freed(-1);
}

bool
hymt_queue_next_abandoned(int device, int *slot, uint64 *generation)
{
	HymtTexts	texts = {InvalidDsaPointer, InvalidDsaPointer};

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	*slot = hymt_shared->abandoned[device].head;
	if (*slot >= 0)
	{
		*generation = hymt_shared->slot[*slot].generation;
		hymt_slot_free(&hymt_shared->slot[*slot], &texts);
	}
	LWLockRelease(hymt_shared->lock);
	if (*slot >= 0)
	{
		hymt_texts_free(&texts);
		hymt_signal_slot_freed(-1);
	}
	return *slot >= 0;
}

void
hymt_queue_recover(int device)
{
	for (int i = 0; i < hymt_shared->slot_count; i++)
	{
		HymtSlot   *slot = &hymt_shared->slot[i];
		HymtTexts	texts = {InvalidDsaPointer, InvalidDsaPointer};

		LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
		if (slot->device == device && (slot->state == HYMT_SLOT_CLAIMED || slot->state == HYMT_SLOT_ABANDONED))
			put_back(slot, false, &texts);
		LWLockRelease(hymt_shared->lock);
		hymt_texts_free(&texts);
	}
	for (int i = 0; i < HYMT_CLASSES; i++)
		ConditionVariableBroadcast(&hymt_shared->slot_freed[i]);
}

/* The device number under which this process claims requests only to fail them. */
#define DEVICE_OF_FAILED HYMT_MAX_DEVICES

void
hymt_queue_fail_all(HymtFailure failure, int sqlstate, const char *message)
{
	HymtClaim	claim;
	TimestampTz due;
	int			slot;
	uint64		generation;

	while (hymt_queue_claim(DEVICE_OF_FAILED, true, 0, &claim, &due) ||
		   hymt_queue_claim(DEVICE_OF_FAILED, false, 0, &claim, &due))
	{
		Answer		answer = {HYMT_SLOT_FAILED, failure, sqlstate, HYMT_FINISH_NONE, 0, 0, true, NULL};

		give_answer(DEVICE_OF_FAILED, claim.slot, claim.generation, &answer, message, strlen(message));
	}
	/* Owners that left just now. */
	while (hymt_queue_next_abandoned(DEVICE_OF_FAILED, &slot, &generation))
		;
}
