/*
 * queue_slots.c: the lists that a slot can be in, and the memory of texts.
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
hymt_text_allocate(const char *text, Size length)
{
	dsa_pointer place = dsa_allocate_extended(hymt_area(), hymt_text_cost(length), DSA_ALLOC_NO_OOM | DSA_ALLOC_HUGE);

	if (DsaPointerIsValid(place) && length > 0)
		memcpy(dsa_get_address(hymt_area(), place), text, length);
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

HymtSlot *
hymt_slot_take(void)
{
	HymtSlot   *slot;

	if (hymt_shared->free_head < 0)
		return NULL;
	slot = &hymt_shared->slot[hymt_shared->free_head];
	hymt_shared->free_head = slot->next;
	hymt_shared->free_count--;
	slot->next = -1;
	slot->previous = -1;
	slot->state = HYMT_SLOT_FILLING;
	slot->begun = 0;
	slot->crashes = 0;
	slot->suspect = false;
	slot->failure = HYMT_FAILURE_NONE;
	slot->sqlstate = 0;
	slot->finish = HYMT_FINISH_NONE;
	slot->input_tokens = 0;
	slot->output_tokens = 0;
	slot->text_length = 0;
	slot->result_length = 0;
	slot->device = -1;
	return slot;
}

/* From any state that is in no list. The texts become the caller's to free. */
void
hymt_slot_free(HymtSlot *slot, HymtTexts *texts)
{
	texts->text = slot->text;
	texts->result = slot->result;
	slot->text = InvalidDsaPointer;
	slot->result = InvalidDsaPointer;
	hymt_shared->bytes_used -= slot->bytes;
	slot->bytes = 0;
	if (slot->state == HYMT_SLOT_ABANDONED)
		hymt_shared->abandoned_count--;
	slot->state = HYMT_SLOT_FREE;
	slot->generation++;
	slot->owner_procno = -1;
	slot->owner_pid = 0;
	slot->next = hymt_shared->free_head;
	hymt_shared->free_head = hymt_slot_number(slot);
	hymt_shared->free_count++;
}

/* Puts a slot behind `before` (-1: at the head). */
static void
enqueue_behind(HymtSlot *slot, int before)
{
	int			number = hymt_slot_number(slot);
	int			after = before < 0 ? hymt_shared->queue_head : hymt_shared->slot[before].next;

	slot->state = HYMT_SLOT_QUEUED;
	slot->device = -1;
	slot->previous = before;
	slot->next = after;
	if (before < 0)
		hymt_shared->queue_head = number;
	else
		hymt_shared->slot[before].next = number;
	if (after < 0)
		hymt_shared->queue_tail = number;
	else
		hymt_shared->slot[after].previous = number;
	hymt_shared->queued_count++;
	if (slot->suspect)
		hymt_shared->suspect_count++;
}

void
hymt_slot_enqueue_last(HymtSlot *slot)
{
	enqueue_behind(slot, hymt_shared->queue_tail);
}

/* At the head, but behind requests that are older: several that come back keep their order. */
void
hymt_slot_enqueue_first(HymtSlot *slot)
{
	int			before = -1;
	int			next = hymt_shared->queue_head;

	while (next >= 0 && hymt_shared->slot[next].submitted < slot->submitted)
	{
		before = next;
		next = hymt_shared->slot[next].next;
	}
	enqueue_behind(slot, before);
}

void
hymt_slot_dequeue(HymtSlot *slot)
{
	if (slot->previous < 0)
		hymt_shared->queue_head = slot->next;
	else
		hymt_shared->slot[slot->previous].next = slot->next;
	if (slot->next < 0)
		hymt_shared->queue_tail = slot->previous;
	else
		hymt_shared->slot[slot->next].previous = slot->previous;
	slot->next = -1;
	slot->previous = -1;
	hymt_shared->queued_count--;
	if (slot->suspect)
		hymt_shared->suspect_count--;
}

void
hymt_wake(int procno)
{
	if (procno >= 0)
		SetLatch(&GetPGProcByNumber(procno)->procLatch);
}
