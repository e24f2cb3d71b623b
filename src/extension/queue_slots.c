/*
 * queue_slots.c: free and occupied slots, what they are charged, lists of slots, and the memory of texts.
 *
 * Runs in backends and workers. Functions on slots are called with the queue lock held exclusively and only move
 * integers; functions on texts are called without it.
 */
#include "hymt.h"
#include "queue_internal.h"

#include "storage/proc.h"

#define SMALLEST_TEXT 128
#define LARGEST_SMALL_TEXT 8192	/* larger ones are runs of pages in DSA */
#define AREA_PAGE 4096

/*
 * Powers of two up to 8 kB, whole pages above. DSA would round to about 40 size classes, and keeps a superblock for
 * each that was ever used; few classes leave the memory to whichever size comes next.
 */
Size
hymt_text_cost(Size length)
{
	Size		cost = SMALLEST_TEXT;

	if (length > LARGEST_SMALL_TEXT)
		return TYPEALIGN(AREA_PAGE, length);
	while (cost < length)
		cost *= 2;
	return cost;
}

dsa_pointer
hymt_text_allocate(const char *context, Size context_length, const char *text, Size length, Size room)
{
	dsa_pointer place = dsa_allocate_extended(hymt_area(), hymt_text_cost(context_length + length + room),
											  DSA_ALLOC_NO_OOM | DSA_ALLOC_HUGE);
	char	   *to;

	if (!DsaPointerIsValid(place))
		return place;
	to = dsa_get_address(hymt_area(), place);
	if (context_length > 0)
		memcpy(to, context, context_length);
	if (length > 0)
		memcpy(to + context_length, text, length);
	return place;
}

void
hymt_texts_free(const HymtTexts *texts)
{
	if (DsaPointerIsValid(texts->text))
		dsa_free(hymt_area(), texts->text);
	if (DsaPointerIsValid(texts->result))
		dsa_free(hymt_area(), texts->result);
}

/* --- lists -------------------------------------------------------------------------------------------------------- */

void
hymt_list_init(HymtSlotList *list)
{
	list->head = -1;
	list->tail = -1;
	list->count = 0;
}

void
hymt_list_insert(HymtSlotList *list, HymtSlot *slot, int before)
{
	int			number = hymt_slot_number(slot);
	int			after = before < 0 ? list->head : hymt_shared->slot[before].next;

	slot->previous = before;
	slot->next = after;
	if (before < 0)
		list->head = number;
	else
		hymt_shared->slot[before].next = number;
	if (after < 0)
		list->tail = number;
	else
		hymt_shared->slot[after].previous = number;
	list->count++;
}

void
hymt_list_remove(HymtSlotList *list, HymtSlot *slot)
{
	if (slot->previous < 0)
		list->head = slot->next;
	else
		hymt_shared->slot[slot->previous].next = slot->next;
	if (slot->next < 0)
		list->tail = slot->previous;
	else
		hymt_shared->slot[slot->next].previous = slot->previous;
	slot->next = -1;
	slot->previous = -1;
	list->count--;
}

/* --- slots -------------------------------------------------------------------------------------------------------- */

HymtSlot *
hymt_slot_take(int role, HymtClass asked_class)
{
	HymtSlot   *slot = &hymt_shared->slot[hymt_shared->free_head];

	hymt_shared->free_head = slot->next;
	hymt_shared->free_count--;
	hymt_shared->held[asked_class]++;
	hymt_shared->role[role].held[asked_class]++;
	hymt_role_settle(role);
	slot->next = -1;
	slot->previous = -1;
	slot->state = HYMT_SLOT_FILLING;
	slot->asked_class = asked_class;
	slot->queue_class = Min(asked_class, HYMT_CLASS_BULK);
	slot->charged_role = role;
	slot->turn_role = -1;
	slot->leader = -1;
	slot->users = 1;
	slot->hash = 0;
	slot->begun = 0;
	slot->model[0] = '\0';
	slot->crashes = 0;
	slot->suspect = false;
	slot->failure = HYMT_FAILURE_NONE;
	slot->sqlstate = 0;
	slot->finish = HYMT_FINISH_NONE;
	slot->input_tokens = 0;
	slot->output_tokens = 0;
	slot->fingerprint[0] = '\0';
	slot->fingerprint[HYMT_FINGERPRINT_DIGITS] = '\0';
	slot->context_length = 0;
	slot->text_length = 0;
	slot->window = 0;
	slot->pieces_length = 0;
	slot->pieces_lost = false;
	slot->attempts = 0;
	slot->rest = HYMT_NOT_RESTING;
	slot->kept = false;
	slot->result_length = 0;
	slot->device = -1;
	return slot;
}

void
hymt_slot_set_bytes(HymtSlot *slot, Size bytes)
{
	hymt_shared->bytes_used += bytes - slot->bytes;
	hymt_shared->bytes[slot->asked_class] += bytes - slot->bytes;
	if (slot->charged_role >= 0)
		hymt_shared->role[slot->charged_role].bytes[slot->asked_class] += bytes - slot->bytes;
	slot->bytes = bytes;
}

void
hymt_slot_disown(HymtSlot *slot)
{
	HymtRole   *role;

	slot->owner_procno = -1;
	slot->owner_pid = 0;
	if (slot->charged_role < 0)
		return;
	role = &hymt_shared->role[slot->charged_role];
	role->held[slot->asked_class]--;
	role->bytes[slot->asked_class] -= slot->bytes;
	hymt_role_settle(slot->charged_role);
	slot->charged_role = -1;
}

void
hymt_slot_free(HymtSlot *slot, HymtTexts *texts)
{
	texts->text = slot->text;
	texts->result = slot->result;
	slot->text = InvalidDsaPointer;
	slot->result = InvalidDsaPointer;
	hymt_flight_end(slot);
	hymt_slot_set_bytes(slot, 0);
	hymt_slot_disown(slot);
	hymt_shared->held[slot->asked_class]--;
	if (slot->state == HYMT_SLOT_ABANDONED)
		hymt_list_remove(&hymt_shared->abandoned[slot->device], slot);
	slot->state = HYMT_SLOT_FREE;
	slot->generation++;
	slot->leader = -1;
	slot->users = 0;
	slot->next = hymt_shared->free_head;
	hymt_shared->free_head = hymt_slot_number(slot);
	hymt_shared->free_count++;
}

/* --- waking ------------------------------------------------------------------------------------------------------- */

/*
 * One of each kind that waits: which of them the room suits is not known here. Whoever gets in wakes the next of its
 * kind, so that room for several is found by several.
 */
void
hymt_signal_slot_freed(int charged_role)
{
	for (int i = 0; i < HYMT_CLASSES; i++)
		ConditionVariableSignal(&hymt_shared->slot_freed[i]);
	/* The entry may be another role's by now, whose request then looks once in vain. */
	if (charged_role >= 0)
		ConditionVariableSignal(&hymt_shared->role[charged_role].freed);
}

void
hymt_wake(int procno)
{
	if (procno >= 0)
		SetLatch(&GetPGProcByNumber(procno)->procLatch);
}
