/*
 * queue_stream.c: the beginning of an answer on its way from the worker to its owner, while the rest is computed.
 *
 * Runs in backends and workers. Behind the text of a request whose owner wants its answer in pieces lies a window: memory of
 * a fixed size that was counted and allocated with the text, and goes with it. The worker that has claimed the slot appends
 * to it, the owner empties it, both under the queue lock; so what is copied there is bounded, and found by its offset, as
 * no call of DSA may be made.
 *
 * A piece that finds no room is left out, and so are all that follow in this attempt: the answer has them. Nobody waits for
 * an owner that does not come, and none of this says anything about how a request ends.
 *
 * The window belongs to one attempt. An engine that gets the request after another one died begins at the beginning.
 */
#include "hymt.h"
#include "queue_internal.h"

/* Copying so much takes a few microseconds. */
#define SMALLEST_WINDOW 2048
#define LARGEST_WINDOW (64 * 1024)

Size
hymt_stream_window(const HymtRequestSpec *spec)
{
	return Min(Max(spec->text_length, SMALLEST_WINDOW), LARGEST_WINDOW);
}

/* Under the lock, while the slot has its text. */
static char *
window_of(const HymtSlot *slot)
{
	return (char *) hymt_shared + slot->text_offset + slot->context_length + slot->text_length;
}

void
hymt_stream_begin(HymtSlot *slot)
{
	slot->attempts++;
	slot->pieces_length = 0;
	slot->pieces_lost = false;
}

Size
hymt_stream_take(HymtSlot *slot, char *to, int *attempt)
{
	Size		length;

	LWLockAcquire(hymt_shared->lock, LW_EXCLUSIVE);
	length = slot->pieces_length;
	if (length > 0)
		memcpy(to, window_of(slot), length);
	slot->pieces_length = 0;
	*attempt = slot->attempts;
	LWLockRelease(hymt_shared->lock);
	return length;
}

bool
hymt_stream_append(HymtSlot *slot, const char *text, Size length)
{
	bool		first = slot->pieces_length == 0;

	slot->pieces_lost = slot->pieces_lost || length > slot->window - slot->pieces_length;
	if (slot->pieces_lost)
		return false;
	memcpy(window_of(slot) + slot->pieces_length, text, length);
	slot->pieces_length += length;
	return first;
}
