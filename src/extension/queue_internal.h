/*
 * queue_internal.h: the moves of slots between lists, shared by the two sides of the queue: that of sessions (queue.c,
 * queue_wait.c) and that of workers (queue_worker.c).
 *
 *      queue_slots.c       free list, occupied slots and what they are charged, texts
 *      queue_policy.c      who may occupy a slot, who is served next
 *      queue_flights.c     equal requests
 *      queue_stream.c      answers in pieces
 *      queue_lapse.c       answers that are left lying
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

/* Allocates and fills, with so much room behind; InvalidDsaPointer when the area has none. Not under the lock. */
extern dsa_pointer hymt_text_allocate(const char *context, Size context_length, const char *text, Size length, Size room);
extern void hymt_texts_free(const HymtTexts *texts);

/* Whoever waits for a slot or for memory. charged_role: of the slot that became free, or -1. Not under the lock. */
extern void hymt_signal_slot_freed(int charged_role);

/* --- slots, under the lock, exclusively -------------------------------------------------------------------------- */

/* FREE to FILLING, charged to a role; there must be a free one. Fields of the request are the caller's to fill. */
extern HymtSlot *hymt_slot_take(int role, HymtClass asked_class);

/* From any state that is in no list. The texts become the caller's to free. */
extern void hymt_slot_free(HymtSlot *slot, HymtTexts *texts);

/* Change what a slot counts of queue memory. */
extern void hymt_slot_set_bytes(HymtSlot *slot, Size bytes);

/* The owner left, others use the slot: nobody is charged for it any more. */
extern void hymt_slot_disown(HymtSlot *slot);

extern void hymt_list_init(HymtSlotList *list);
extern void hymt_list_insert(HymtSlotList *list, HymtSlot *slot, int before);	/* behind `before`; -1: at the head */
extern void hymt_list_remove(HymtSlotList *list, HymtSlot *slot);

/* --- policy, under the lock, exclusively ------------------------------------------------------------------------- */

extern void hymt_policy_init(HymtShared *shared);	/* the table of roles; shared->role and role_count are set */
extern int	hymt_role_table_size(int slot_count);	/* entries that suffice */

/* The entry of a role, new if need be; -1 when the table is full. An unused one is taken back by hymt_role_settle(). */
extern int	hymt_role_find(Oid role);

/* To be called after a count of the entry changed. */
extern void hymt_role_settle(int entry);

typedef enum HymtAdmission
{
	HYMT_ADMITTED,
	HYMT_ROOM_IS_LAPSING,		/* it will be when enough of what is lapsing was taken */
	HYMT_QUEUE_FULL,
	HYMT_ROLE_FULL				/* hymt.max_requests_per_role */
} HymtAdmission;

/*
 * Whether a role may occupy one more slot, with so many bytes. holds: the caller does not wait for room. ahead: slots
 * that this process has for requests that are read ahead.
 */
extern HymtAdmission hymt_policy_admit(int role, HymtClass asked_class, Size bytes, bool holds, int ahead);

extern void hymt_queue_append(HymtSlot *slot, int turn_role);	/* to QUEUED, behind its role's others of its class */
extern void hymt_queue_put_back(HymtSlot *slot);	/* to QUEUED, before its role's others that are younger */
extern void hymt_queue_remove(HymtSlot *slot);	/* from QUEUED */
extern HymtSlot *hymt_policy_next(void);	/* the slot to be claimed next, still QUEUED; NULL when there is none */
extern void hymt_policy_claimed(const HymtSlot *slot);	/* it was: next turn. Before it is removed */

/* --- flights, under the lock, exclusively ------------------------------------------------------------------------ */

/* Hash of a request; 0: too long to be compared under the lock, takes no part. Not under the lock. */
extern uint64 hymt_flight_hash(const HymtRequestSpec *spec);
extern HymtSlot *hymt_flight_find(const HymtRequestSpec *spec, uint64 hash);	/* its leader; NULL: none */
extern void hymt_flight_begin(HymtSlot *slot);	/* others may follow it */
extern void hymt_flight_end(HymtSlot *slot);	/* no more; does nothing when none could */
extern void hymt_flight_join(HymtSlot *slot, HymtSlot *leader); /* FILLING to FOLLOWING */
extern void hymt_flight_hasten(HymtSlot *slot);	/* its owner waits for it now, as for a single request */

/*
 * A user leaves the slot, its own or that of its leader. What becomes free goes to *texts; *worker: to be woken because
 * it has a slot to free, or -1.
 */
extern void hymt_flight_leave(HymtSlot *slot, HymtTexts *texts, int *worker);

/*
 * After a leader was answered: the same for its followers, `most` at a time; their proc numbers, to be woken, and how
 * many there were.
 */
extern int	hymt_flight_land(HymtSlot *leader, TimestampTz now, int *procnos, int most);

/* --- answers that are left lying, under the lock, exclusively ------------------------------------------------------ */

extern void hymt_lapse_init(HymtShared *shared);
extern void hymt_rest_begin(HymtSlot *slot);	/* may be answered, and left to its owner alone. Does nothing where it is not */
extern void hymt_rest_end(HymtSlot *slot);	/* its owner leaves. Does nothing when it does not rest */
extern void hymt_rest_look_after(HymtSlot *slot, TimestampTz now);	/* its owner comes by */
extern void hymt_rest_keep(HymtSlot *slot);	/* its owner takes the answer: nobody else takes the slot any more */
extern void hymt_lapse_look(TimestampTz now);	/* some that were left lying for long enough become lapsing */

/*
 * Takes the slot that is lapsing for the longest time away from its owner, or one that is charged to a role; -1: any.
 * False: there is none. Texts and role are for hymt_texts_free() and hymt_signal_slot_freed(). Roles may be settled.
 */
extern bool hymt_lapse_first(int role, HymtTexts *texts, int *charged_role);

/* --- streams ----------------------------------------------------------------------------------------------------- */

/* How large the window of a request has to be. */
extern Size hymt_stream_window(const HymtRequestSpec *spec);
extern void hymt_stream_begin(HymtSlot *slot);	/* it was claimed. Under the lock, exclusively */

/*
 * A piece for a claimed slot. True when the owner has to be told: it has seen an empty window, and may be waiting. Under the
 * lock, exclusively.
 */
extern bool hymt_stream_append(HymtSlot *slot, const char *text, Size length);

/* Empties the window of an own request into a buffer of its size; how much that was, and of which attempt. Takes the lock. */
extern Size hymt_stream_take(HymtSlot *slot, char *to, int *attempt);

static inline int
hymt_slot_number(const HymtSlot *slot)
{
	return (int) (slot - hymt_shared->slot);
}

/* The slot that has a request's state and outcome. */
static inline const HymtSlot *
hymt_slot_leader(const HymtSlot *slot)
{
	return slot->leader < 0 ? slot : &hymt_shared->slot[slot->leader];
}

/* Not under the lock. */
extern void hymt_wake(int procno);	/* -1: nobody */

#endif							/* HYMT_QUEUE_INTERNAL_H */
