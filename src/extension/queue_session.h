/*
 * queue_session.h: what the two files of the session's side of the queue (queue.c, queue_wait.c) share.
 */
#ifndef HYMT_QUEUE_SESSION_H
#define HYMT_QUEUE_SESSION_H

#include "queue.h"

#include "lib/ilist.h"
#include "utils/resowner.h"

struct HymtRequestHandle
{
	dlist_node	node;			/* in `requests` */
	ResourceOwner owner;
	HymtSlot   *slot;
	uint64		generation;
	TimestampTz submitted;		/* before waiting for a slot */
	int			waiting_role;	/* entry in which it is counted as waiting; -1: none */
	bool		counted;		/* as a request, for hymt_stat */
	HymtRequestHandle **place;	/* of one that is read ahead or gives a stream: becomes NULL with its release; else NULL */
	bool		lapsed;			/* has lost its slot; is about to be released */
	HymtStatFailure failure;	/* that its session raises; else CANCELLED, which is how it ends unless answered */
};

/* What a wait remembers. */
typedef struct HymtPatience
{
	HymtRequestHandle *const *requests; /* that are waited for, oldest first */
	int			count;
	TimestampTz started;
	TimestampTz no_worker_since;	/* 0: there was one at the last look */
	bool		noticed;
} HymtPatience;

/* What the devices together can do: the state of the one from which an answer can be hoped for soonest. */
typedef struct HymtService
{
	HymtDevicePhase phase;
	HymtFailure failure;
	int			sqlstate;		/* of a refusal that no HymtFailure describes; else 0 */
	int			percent;
	TimestampTz next_attempt_at;	/* to start an engine, when REFUSED */
	char		message[HYMT_MESSAGE_MAX];	/* what is loading, or why the model was refused */
} HymtService;

/* --- queue_wait.c ------------------------------------------------------------------------------------------------- */

/* Under the lock, at least shared. */
extern void hymt_look_at_devices(HymtService *service);

/* Raises when no answer can come; says once what is being waited for when the wait is not the model's own work. */
extern void hymt_check_service(const HymtService *service, HymtPatience *patience);

/* Raises when hymt.queue_timeout is over for the oldest request, which was not begun. */
extern void hymt_check_queue_timeout(const HymtPatience *patience);

/* Next look, in ms: the next tick, or the end of hymt.queue_timeout where that comes first. */
extern long hymt_next_look(const HymtRequestHandle *request, bool begun);

/* Sleeps, interruptibly, until there may be room. */
extern void hymt_sleep_on_slot_freed(ConditionVariable *freed, long timeout);

#endif							/* HYMT_QUEUE_SESSION_H */
