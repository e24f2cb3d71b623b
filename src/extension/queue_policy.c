/*
 * queue_policy.c: who may occupy a slot, and who is served next.
 *
 * Runs in backends and workers, with the queue lock held exclusively; moves integers only. Owns the table of roles.
 *
 * Order. Single requests go before bulk ones, but while both wait every sixteenth claim is for a bulk one. Within a class
 * roles take turns, one request each: what a role has queued delays nobody but itself, and a role that was idle comes
 * in at the end of the round, with no credit for the past. Suspects (requests that were in flight when an engine died)
 * are outside of this order: they are claimed first, oldest first.
 *
 * Room. Bulk requests get hymt.bulk_share of slots and of request memory, so that a single one finds room whatever the
 * bulk backlog. The roles that have bulk requests share that evenly, because only what is in a slot takes part in turns:
 * whoever came first would otherwise refill every slot that becomes free. For the same reason those who hold a request
 * take no further slot while somebody waits for his first.
 *
 * What is read ahead, or as a stream, has room of its own: half of what bulk requests may have, and whatever it holds there,
 * none of it is missing to the others in the end, because a session can keep answers for as long as its cursor is open. A
 * session gets no more of it than is left to all others, so that the next session that comes finds some. Of what a role may
 * have (hymt.max_requests_per_role) it is half as well. Answers that are lapsing (queue_lapse.c) count as left: they give
 * way where nothing else is free.
 */
#include "hymt.h"
#include "queue_internal.h"

#include "common/hashfn.h"
#include "miscadmin.h"

/* While bulk requests wait, one of so many claims is theirs. */
#define CLAIMS_PER_BULK 16

/* --- the table of roles ------------------------------------------------------------------------------------------- */

/*
 * Each slot is charged to one role and stands in the turn of one, and each backend waits for one.
 */
int
hymt_role_table_size(int slot_count)
{
	return 2 * slot_count + MaxBackends;
}

void
hymt_policy_init(HymtShared *shared)
{
	for (int i = 0; i < shared->role_count; i++)
	{
		HymtRole   *role = &shared->role[i];

		role->bucket = -1;
		role->next = i + 1 < shared->role_count ? i + 1 : -1;
		for (int class = 0; class < HYMT_CLASSES; class++)
		{
			hymt_list_init(&role->queue[class]);
			role->turn_next[class] = -1;
			role->turn_previous[class] = -1;
		}
		ConditionVariableInit(&role->freed);
	}
	shared->free_role = 0;
	for (int class = 0; class < HYMT_CLASSES; class++)
	{
		shared->turns[class].head = -1;
		shared->turns[class].tail = -1;
	}
	hymt_list_init(&shared->suspects);
}

static HymtRole *
bucket_of(Oid role)
{
	return &hymt_shared->role[murmurhash32(role) % hymt_shared->role_count];
}

int
hymt_role_find(Oid role)
{
	HymtRole   *bucket = bucket_of(role);
	int			entry = bucket->bucket;

	while (entry >= 0 && hymt_shared->role[entry].role != role)
		entry = hymt_shared->role[entry].next;
	if (entry >= 0 || hymt_shared->free_role < 0)
		return entry;
	entry = hymt_shared->free_role;
	hymt_shared->free_role = hymt_shared->role[entry].next;
	hymt_shared->role[entry].role = role;
	hymt_shared->role[entry].next = bucket->bucket;
	bucket->bucket = entry;
	return entry;
}

static bool
is_used(const HymtRole *role)
{
	for (int class = 0; class < HYMT_CLASSES; class++)
	{
		if (role->held[class] > 0 || role->queue[class].count > 0)
			return true;
	}
	return role->held[HYMT_CLASS_AHEAD] > 0 || role->waiting_bulk > 0;
}

void
hymt_role_settle(int entry)
{
	HymtRole   *role = &hymt_shared->role[entry];
	bool		has_bulk = role->held[HYMT_CLASS_BULK] > 0 || role->waiting_bulk > 0;
	int		   *link;

	if (!OidIsValid(role->role))
		return;
	if (has_bulk != role->has_bulk)
		hymt_shared->bulk_roles += has_bulk ? 1 : -1;
	role->has_bulk = has_bulk;
	if (is_used(role))
		return;
	link = &bucket_of(role->role)->bucket;
	while (*link != entry)
		link = &hymt_shared->role[*link].next;
	*link = role->next;
	role->role = InvalidOid;
	role->next = hymt_shared->free_role;
	hymt_shared->free_role = entry;
}

/* --- room --------------------------------------------------------------------------------------------------------- */

/*
 * Texts of requests may take half of queue memory, so that answers always find room: with all of it taken by requests,
 * no answer could come back and no request would ever leave.
 */
Size
hymt_bytes_for_requests(void)
{
	return hymt_shared->bytes_limit / 2;
}

static Size
bytes_for_bulk(void)
{
	return hymt_bytes_for_requests() / 100 * hymt_bulk_share;
}

static int
slots_for_bulk(void)
{
	return Max(1, (int) ((int64) hymt_shared->slot_count * hymt_bulk_share / 100));
}

/* Answers to bulk requests may be longer than their texts and exceed the share; single ones find theirs all the same. */
static bool
single_fits(Size bytes)
{
	Size		bulk = Min(hymt_shared->bytes[HYMT_CLASS_BULK], bytes_for_bulk());

	return bytes == 0 || hymt_shared->bytes[HYMT_CLASS_SINGLE] + bulk + bytes <= hymt_bytes_for_requests();
}

/* A text that is larger than its share is let in when no other bulk request is there, or it could never be. */
static bool
bulk_fits(const HymtRole *role, Size bytes)
{
	int			roles = hymt_shared->bulk_roles + (role->has_bulk ? 0 : 1);
	Size		bulk = hymt_shared->bytes[HYMT_CLASS_BULK];
	Size		own = role->bytes[HYMT_CLASS_BULK];

	if (hymt_shared->held[HYMT_CLASS_BULK] + hymt_shared->held[HYMT_CLASS_AHEAD] >= slots_for_bulk() ||
		role->held[HYMT_CLASS_BULK] >= Max(1, slots_for_bulk() / roles))
		return false;
	if (bytes == 0)
		return true;
	return hymt_shared->bytes_used - hymt_shared->bytes[HYMT_CLASS_AHEAD] + bytes <= hymt_bytes_for_requests() &&
		(bulk == 0 || bulk + bytes <= bytes_for_bulk()) &&
		(own == 0 || own + bytes <= bytes_for_bulk() / roles);
}

static int
slots_for_ahead(void)
{
	return slots_for_bulk() / 2;
}

/*
 * With so many slots and bytes less in use. Half as much memory as slots: answers that are left lying take some, too.
 */
static bool
ahead_fits_without(int slots, Size lapsed, Size bytes)
{
	int			held = hymt_shared->held[HYMT_CLASS_AHEAD] - slots;

	if (held >= slots_for_ahead() || hymt_shared->held[HYMT_CLASS_BULK] + held >= slots_for_bulk())
		return false;
	return bytes == 0 ||
		(hymt_shared->bytes[HYMT_CLASS_AHEAD] - lapsed + bytes <= bytes_for_bulk() / 4 &&
		 hymt_shared->bytes_used - lapsed + bytes <= hymt_bytes_for_requests());
}

static HymtAdmission
admit_ahead(Size bytes, int ahead)
{
	int			lapsing = hymt_shared->lapsing.count;

	if (slots_for_ahead() - hymt_shared->held[HYMT_CLASS_AHEAD] + lapsing <= ahead)
		return HYMT_QUEUE_FULL;
	if (hymt_shared->free_head >= 0 && ahead_fits_without(0, 0, bytes))
		return HYMT_ADMITTED;
	if (lapsing > 0 && ahead_fits_without(lapsing, hymt_shared->lapsing_bytes, bytes))
		return HYMT_ROOM_IS_LAPSING;
	return HYMT_QUEUE_FULL;
}

static bool
role_is_full(const HymtRole *role, HymtClass asked_class)
{
	int			held = role->held[HYMT_CLASS_SINGLE] + role->held[HYMT_CLASS_BULK] + role->held[HYMT_CLASS_AHEAD];

	if (hymt_max_requests_per_role == 0)
		return false;
	return held >= hymt_max_requests_per_role ||
		(asked_class == HYMT_CLASS_AHEAD && role->held[HYMT_CLASS_AHEAD] >= hymt_max_requests_per_role / 2);
}

static bool
class_fits(const HymtRole *role, HymtClass asked_class, Size bytes)
{
	return asked_class == HYMT_CLASS_SINGLE ? single_fits(bytes) : bulk_fits(role, bytes);
}

HymtAdmission
hymt_policy_admit(int entry, HymtClass asked_class, Size bytes, bool holds, int ahead)
{
	const HymtRole *role;

	if (entry < 0)
		return HYMT_QUEUE_FULL;
	role = &hymt_shared->role[entry];
	if (holds && hymt_shared->waiting_bulk > 0)
		return HYMT_QUEUE_FULL;
	if (role_is_full(role, asked_class))
		return HYMT_ROLE_FULL;
	if (asked_class == HYMT_CLASS_AHEAD)
		return admit_ahead(bytes, ahead);
	if (hymt_shared->free_head < 0)
		return HYMT_QUEUE_FULL;
	return class_fits(role, asked_class, bytes) ? HYMT_ADMITTED : HYMT_QUEUE_FULL;
}

/* --- turns -------------------------------------------------------------------------------------------------------- */

static void
append_turn(int entry, HymtClass class)
{
	HymtTurns  *turns = &hymt_shared->turns[class];
	HymtRole   *role = &hymt_shared->role[entry];

	role->turn_previous[class] = turns->tail;
	role->turn_next[class] = -1;
	if (turns->tail < 0)
		turns->head = entry;
	else
		hymt_shared->role[turns->tail].turn_next[class] = entry;
	turns->tail = entry;
}

static void
remove_turn(int entry, HymtClass class)
{
	HymtTurns  *turns = &hymt_shared->turns[class];
	HymtRole   *role = &hymt_shared->role[entry];
	int			previous = role->turn_previous[class];
	int			next = role->turn_next[class];

	if (previous < 0)
		turns->head = next;
	else
		hymt_shared->role[previous].turn_next[class] = next;
	if (next < 0)
		turns->tail = previous;
	else
		hymt_shared->role[next].turn_previous[class] = previous;
	role->turn_previous[class] = -1;
	role->turn_next[class] = -1;
}

/* --- the queue ---------------------------------------------------------------------------------------------------- */

static HymtSlotList *
queue_of(HymtSlot *slot)
{
	return slot->suspect ? &hymt_shared->suspects : &hymt_shared->role[slot->turn_role].queue[slot->queue_class];
}

static void
enqueue_behind(HymtSlot *slot, int before)
{
	HymtSlotList *queue = queue_of(slot);

	slot->state = HYMT_SLOT_QUEUED;
	slot->device = -1;
	hymt_list_insert(queue, slot, before);
	hymt_shared->queued_count++;
	if (!slot->suspect && queue->count == 1)
		append_turn(slot->turn_role, slot->queue_class);
}

void
hymt_queue_append(HymtSlot *slot, int turn_role)
{
	slot->turn_role = turn_role;
	enqueue_behind(slot, queue_of(slot)->tail);
}

void
hymt_queue_put_back(HymtSlot *slot)
{
	int			before = -1;
	int			next;

	/* The role in whose turn it was may have gone; one that waits for the answer has not. */
	slot->turn_role = slot->charged_role;
	if (slot->turn_role < 0)
		slot->turn_role = hymt_shared->slot[slot->followers.head].charged_role;
	next = queue_of(slot)->head;
	while (next >= 0 && hymt_shared->slot[next].submitted < slot->submitted)
	{
		before = next;
		next = hymt_shared->slot[next].next;
	}
	enqueue_behind(slot, before);
}

void
hymt_queue_remove(HymtSlot *slot)
{
	HymtSlotList *queue = queue_of(slot);

	hymt_list_remove(queue, slot);
	hymt_shared->queued_count--;
	if (slot->suspect)
		return;
	if (queue->count == 0)
		remove_turn(slot->turn_role, slot->queue_class);
	hymt_role_settle(slot->turn_role);
}

HymtSlot *
hymt_policy_next(void)
{
	int			single = hymt_shared->turns[HYMT_CLASS_SINGLE].head;
	int			bulk = hymt_shared->turns[HYMT_CLASS_BULK].head;

	if (bulk >= 0 && (single < 0 || hymt_shared->singles_in_row >= CLAIMS_PER_BULK - 1))
		return &hymt_shared->slot[hymt_shared->role[bulk].queue[HYMT_CLASS_BULK].head];
	if (single >= 0)
		return &hymt_shared->slot[hymt_shared->role[single].queue[HYMT_CLASS_SINGLE].head];
	return NULL;
}

void
hymt_policy_claimed(const HymtSlot *slot)
{
	HymtClass	class = slot->queue_class;

	if (slot->suspect)
		return;
	if (class == HYMT_CLASS_SINGLE && hymt_shared->turns[HYMT_CLASS_BULK].head >= 0)
		hymt_shared->singles_in_row++;
	else
		hymt_shared->singles_in_row = 0;
	remove_turn(slot->turn_role, class);
	append_turn(slot->turn_role, class);
}
