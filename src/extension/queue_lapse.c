/*
 * queue_lapse.c: answers that were read ahead and are left lying: whose slot others may have.
 *
 * Runs in backends and workers, with the queue lock held exclusively; moves integers only. Owns two lists. In `resting` are
 * answers of HYMT_CLASS_AHEAD that nobody but their owner uses, in the order in which he last looked after them, or in which
 * the last other user left. Those that he has left alone for a while move on to `lapsing`, where a session that needs
 * room takes the first one.
 *
 * An owner who comes back finds another generation in the slot, and asks anew. While he takes an answer it is kept: in
 * neither list. An answer that others share is in neither list, too: it comes there when they have left. A follower
 * who alone is idle loses his own slot, and the leader's answer a user.
 *
 * Streams never are here: a part of them has been given away, and what was asked anew might go on differently.
 */
#include "hymt.h"
#include "queue_internal.h"

/*
 * An answer lapses when its owner has not looked after it for so long, in microseconds. A statement at work does so several
 * times a second, also while it waits (hymt_requests_look_after), so that only a busy machine makes it seem idle. Who comes
 * new goes on with a smaller window until then.
 */
#define LAPSE_AFTER (2 * 1000 * 1000)
/* Two processes that read the clock one after the other may look at the times in the other order. */
#define CLOCK_SLACK (1000 * 1000)
/* So many are moved or looked at under one hold of the lock. */
#define MOST_LOOKS 64

void
hymt_lapse_init(HymtShared *shared)
{
	hymt_list_init(&shared->resting);
	hymt_list_init(&shared->lapsing);
}

void
hymt_rest_begin(HymtSlot *slot)
{
	Assert(slot->rest == HYMT_NOT_RESTING);
	if (slot->asked_class != HYMT_CLASS_AHEAD || slot->window > 0 || slot->kept ||
		(slot->state != HYMT_SLOT_DONE && slot->state != HYMT_SLOT_FAILED) ||
		slot->owner_procno < 0 || slot->users > 1)
		return;
	slot->rest = HYMT_RESTING;
	hymt_list_insert(&hymt_shared->resting, slot, hymt_shared->resting.tail);
}

void
hymt_rest_end(HymtSlot *slot)
{
	if (slot->rest == HYMT_RESTING)
		hymt_list_remove(&hymt_shared->resting, slot);
	else if (slot->rest == HYMT_LAPSING)
	{
		hymt_list_remove(&hymt_shared->lapsing, slot);
		hymt_shared->lapsing_bytes -= slot->bytes;
	}
	slot->rest = HYMT_NOT_RESTING;
}

void
hymt_rest_look_after(HymtSlot *slot, TimestampTz now)
{
	slot->looked_after = now;
	if (slot->rest == HYMT_NOT_RESTING)
		return;
	hymt_rest_end(slot);
	hymt_rest_begin(slot);
}

void
hymt_rest_keep(HymtSlot *slot)
{
	hymt_rest_end(slot);
	slot->kept = true;
}

/* A clock that was set back leaves times in the future, which nobody shall wait for. */
static bool
is_due(const HymtSlot *slot, TimestampTz now)
{
	return now - slot->looked_after >= LAPSE_AFTER || slot->looked_after - now > CLOCK_SLACK;
}

void
hymt_lapse_look(TimestampTz now)
{
	for (int i = 0; i < MOST_LOOKS && hymt_shared->resting.head >= 0; i++)
	{
		HymtSlot   *slot = &hymt_shared->slot[hymt_shared->resting.head];

		if (!is_due(slot, now))
			break;
		hymt_list_remove(&hymt_shared->resting, slot);
		hymt_list_insert(&hymt_shared->lapsing, slot, hymt_shared->lapsing.tail);
		slot->rest = HYMT_LAPSING;
		hymt_shared->lapsing_bytes += slot->bytes;
	}
}

/* The first one that is charged to the role, if it is near enough to be found. */
static HymtSlot *
first_of_role(int role)
{
	int			number = hymt_shared->lapsing.head;

	for (int i = 0; i < MOST_LOOKS && number >= 0; i++)
	{
		if (hymt_shared->slot[number].charged_role == role)
			return &hymt_shared->slot[number];
		number = hymt_shared->slot[number].next;
	}
	return NULL;
}

bool
hymt_lapse_first(int role, HymtTexts *texts, int *charged_role)
{
	HymtSlot   *slot;
	int			worker;

	if (role >= 0)
		slot = first_of_role(role);
	else
		slot = hymt_shared->lapsing.head < 0 ? NULL : &hymt_shared->slot[hymt_shared->lapsing.head];
	if (slot == NULL)
		return false;
	*charged_role = slot->charged_role;
	texts->text = InvalidDsaPointer;
	texts->result = InvalidDsaPointer;
	hymt_flight_leave(slot, texts, &worker);
	Assert(worker < 0);			/* that is for requests without an answer */
	return true;
}
