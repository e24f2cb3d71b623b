/*
 * queue_flights.c: equal requests that are outstanding at one time are computed once.
 *
 * Runs in backends and workers; all but the hash with the queue lock held exclusively. Owns the table of flights, which
 * is chained through the slots: slot i also is the head of the chain of hashes that fall on i.
 *
 * Requests are equal when languages, options and every byte of context and text are. The bytes are compared under the
 * lock, so only texts up to a limit take part, and only where 64 bits of hash agree. A leader's text is read where it
 * lies in the area: that is in the same segment of shared memory as the slots and never grows out of it, so an offset
 * says where, and no call of DSA is needed.
 */
#include "hymt.h"
#include "queue_internal.h"

#include "common/hashfn.h"

/* Comparing so much takes a few microseconds. */
#define LONGEST_SHARED_TEXT (64 * 1024)

/* --- the table ---------------------------------------------------------------------------------------------------- */

uint64
hymt_flight_hash(const HymtRequestSpec *spec)
{
	uint64		hash;

	if (spec->context_length > LONGEST_SHARED_TEXT || spec->text_length > LONGEST_SHARED_TEXT)
		return 0;
	hash = hash_bytes_extended((const unsigned char *) spec->source_lang, (int) strlen(spec->source_lang), 0);
	hash = hash_bytes_extended((const unsigned char *) spec->target_lang, (int) strlen(spec->target_lang), hash);
	hash = hash_bytes_extended((const unsigned char *) spec->context, (int) spec->context_length, hash);
	hash = hash_bytes_extended((const unsigned char *) &spec->draw, sizeof(spec->draw), hash);
	hash = hash_bytes_extended((const unsigned char *) spec->text, (int) spec->text_length,
							   hash ^ (uint32) spec->max_new_tokens);
	if (spec->adapter[0] != '\0')
		hash = hash_bytes_extended((const unsigned char *) spec->adapter, (int) strlen(spec->adapter), hash);
	return hash == 0 ? 1 : hash;
}

static HymtSlot *
bucket_of(uint64 hash)
{
	return &hymt_shared->slot[hash % hymt_shared->slot_count];
}

static bool
is_same(const HymtSlot *slot, const HymtRequestSpec *spec, uint64 hash)
{
	const char *texts = (const char *) hymt_shared + slot->text_offset;

	return slot->hash == hash &&
		slot->context_length == spec->context_length &&
		slot->text_length == spec->text_length &&
		slot->max_new_tokens == spec->max_new_tokens &&
		strcmp(slot->adapter, spec->adapter) == 0 &&
		memcmp(&slot->draw, &spec->draw, sizeof(HymtDraw)) == 0 &&
		strcmp(slot->source_lang, spec->source_lang) == 0 &&
		strcmp(slot->target_lang, spec->target_lang) == 0 &&
		(spec->context_length == 0 || memcmp(texts, spec->context, spec->context_length) == 0) &&
		memcmp(texts + spec->context_length, spec->text, spec->text_length) == 0;
}

HymtSlot *
hymt_flight_find(const HymtRequestSpec *spec, uint64 hash)
{
	if (hash == 0)
		return NULL;
	for (int number = bucket_of(hash)->flight_bucket; number >= 0; number = hymt_shared->slot[number].flight_next)
	{
		if (is_same(&hymt_shared->slot[number], spec, hash))
			return &hymt_shared->slot[number];
	}
	return NULL;
}

void
hymt_flight_begin(HymtSlot *slot)
{
	HymtSlot   *bucket;

	if (slot->hash == 0)
		return;
	bucket = bucket_of(slot->hash);
	slot->flight_previous = -1;
	slot->flight_next = bucket->flight_bucket;
	if (slot->flight_next >= 0)
		hymt_shared->slot[slot->flight_next].flight_previous = hymt_slot_number(slot);
	bucket->flight_bucket = hymt_slot_number(slot);
	slot->in_flight_table = true;
}

void
hymt_flight_end(HymtSlot *slot)
{
	if (!slot->in_flight_table)
		return;
	if (slot->flight_previous < 0)
		bucket_of(slot->hash)->flight_bucket = slot->flight_next;
	else
		hymt_shared->slot[slot->flight_previous].flight_next = slot->flight_next;
	if (slot->flight_next >= 0)
		hymt_shared->slot[slot->flight_next].flight_previous = slot->flight_previous;
	slot->in_flight_table = false;
}

/* --- followers ---------------------------------------------------------------------------------------------------- */

/* Requests that a role has queued in a class. */
static int
backlog(int role, HymtClass class)
{
	return hymt_shared->role[role].queue[class].count;
}

/*
 * In whose turn a leader comes now that it becomes single: that of the role that joins, or that of its own owner if
 * that has less queued, as he shall not wait for what the other one has queued.
 */
static int
single_turn(const HymtSlot *leader, const HymtSlot *slot)
{
	int			owner = leader->charged_role;

	if (owner >= 0 && backlog(owner, HYMT_CLASS_SINGLE) < backlog(slot->charged_role, HYMT_CLASS_SINGLE))
		return owner;
	return slot->charged_role;
}

/*
 * Whoever joins shall not wait longer than with a request of its own, and nobody longer because another one joined. A
 * single request makes the flight single. A role with nothing else queued in the class would have its turn at the end
 * of this round: that is sooner unless the leader is the next one of the role that it is queued for, whose turn comes
 * in this round.
 */
static void
advance(HymtSlot *leader, const HymtSlot *slot)
{
	HymtClass	class = Min(leader->queue_class, slot->asked_class);
	int			turn = -1;

	if (leader->state == HYMT_SLOT_QUEUED && !leader->suspect)
	{
		if (class != leader->queue_class)
			turn = single_turn(leader, slot);
		else if (slot->asked_class == class && leader->previous >= 0 && backlog(slot->charged_role, class) == 0)
			turn = slot->charged_role;
	}
	if (turn >= 0)
		hymt_queue_remove(leader);
	leader->queue_class = class;
	if (turn >= 0)
		hymt_queue_append(leader, turn);
}

/* As if a single request of the same owner followed. */
void
hymt_flight_hasten(HymtSlot *slot)
{
	HymtSlot   *leader = slot->leader < 0 ? slot : &hymt_shared->slot[slot->leader];
	bool		queued = leader->state == HYMT_SLOT_QUEUED && !leader->suspect;

	if (leader->queue_class == HYMT_CLASS_SINGLE)
		return;
	if (queued)
		hymt_queue_remove(leader);
	leader->queue_class = HYMT_CLASS_SINGLE;
	if (queued)
		hymt_queue_append(leader, slot->charged_role);
}

void
hymt_flight_join(HymtSlot *slot, HymtSlot *leader)
{
	slot->state = HYMT_SLOT_FOLLOWING;
	slot->leader = hymt_slot_number(leader);
	hymt_list_insert(&leader->followers, slot, leader->followers.tail);
	leader->users++;
	hymt_stat_joined();
	advance(leader, slot);
}

/* The last user of a leader has left. */
static void
give_up(HymtSlot *leader, HymtTexts *texts, int *worker)
{
	if (leader->state == HYMT_SLOT_CLAIMED)
	{
		hymt_flight_end(leader);
		leader->state = HYMT_SLOT_ABANDONED;
		hymt_list_insert(&hymt_shared->abandoned[leader->device], leader, -1);
		if (leader->device < hymt_shared->device_count)
			*worker = hymt_shared->device[leader->device].worker_procno;
		return;
	}
	if (leader->state == HYMT_SLOT_QUEUED)
		hymt_queue_remove(leader);
	hymt_slot_free(leader, texts);
}

void
hymt_flight_leave(HymtSlot *slot, HymtTexts *texts, int *worker)
{
	HymtSlot   *leader = slot;

	*worker = -1;
	if (slot->leader >= 0)
	{
		HymtTexts	none;		/* a follower has no texts */

		leader = &hymt_shared->slot[slot->leader];
		if (slot->state == HYMT_SLOT_FOLLOWING)
			hymt_list_remove(&leader->followers, slot);
		hymt_rest_end(slot);
		hymt_slot_free(slot, &none);
	}
	else
	{
		hymt_rest_end(slot);
		hymt_slot_disown(slot);
	}
	if (--leader->users == 0)
		give_up(leader, texts, worker);
	else
		hymt_rest_begin(leader);
}

int
hymt_flight_land(HymtSlot *leader, TimestampTz now, int *procnos, int most)
{
	int			count = 0;

	while (count < most && leader->followers.head >= 0)
	{
		HymtSlot   *follower = &hymt_shared->slot[leader->followers.head];

		hymt_list_remove(&leader->followers, follower);
		follower->state = leader->state;
		follower->looked_after = now;
		hymt_rest_begin(follower);
		hymt_stat_landed(follower, leader, now);
		procnos[count++] = follower->owner_procno;
	}
	return count;
}
