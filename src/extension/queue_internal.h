/*
 * queue_internal.h: the moves of slots between lists, shared by the two sides of the queue (queue.c, queue_worker.c).
 */
#ifndef HYMT_QUEUE_INTERNAL_H
#define HYMT_QUEUE_INTERNAL_H

#include "queue.h"

/* Texts that left a slot; freed with hymt_texts_free() after the lock is released. */
typedef struct HymtTexts
{
	dsa_pointer text;
	dsa_pointer result;
} HymtTexts;

/* What a text of this length takes of queue memory, and how much is allocated for it. */
extern Size hymt_text_cost(Size length);

/* Allocates and fills; InvalidDsaPointer when the area has no room. Not under the lock. */
extern dsa_pointer hymt_text_allocate(const char *text, Size length);
extern void hymt_texts_free(const HymtTexts *texts);

/* Under the lock, exclusively. */
extern HymtSlot *hymt_slot_take(void);	/* FREE to FILLING; NULL when there is none */
extern void hymt_slot_free(HymtSlot *slot, HymtTexts *texts);
extern void hymt_slot_enqueue_last(HymtSlot *slot);
extern void hymt_slot_enqueue_first(HymtSlot *slot);
extern void hymt_slot_dequeue(HymtSlot *slot);

static inline int
hymt_slot_number(const HymtSlot *slot)
{
	return (int) (slot - hymt_shared->slot);
}

/* Not under the lock. */
extern void hymt_wake(int procno);	/* -1: nobody */

#endif							/* HYMT_QUEUE_INTERNAL_H */
