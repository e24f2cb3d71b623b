/*
 * worker_internal.h: the state of a worker, and what its files need of each other.
 *
 *      worker.c            the loop, signals, start and end of the process
 *      worker_engine.c     the engine's life: start, end, delays, phases
 *      worker_messages.c   what the engine says
 *      worker_requests.c   the requests in flight
 */
#ifndef HYMT_WORKER_INTERNAL_H
#define HYMT_WORKER_INTERNAL_H

#include "hymt.h"

#include "engine_process.h"
#include "link.h"

/* Why a conversation ended. */
typedef enum HymtEnding
{
	ENDING_DEATH,				/* the engine closed it: it is dead or dying */
	ENDING_GARBAGE,				/* the engine broke the protocol */
	ENDING_HANG,
	ENDING_SKEW,				/* other protocol version */
	ENDING_REFUSED,				/* the engine cannot serve this model */
	ENDING_NO_MEMORY,			/* ours */
	ENDING_PLANNED				/* new settings */
} HymtEnding;

/* What the present engine was last told of a slot. */
typedef struct HymtFlight
{
	uint64		generation;		/* of the last request sent; 0: none */
	bool		in_flight;		/* and not yet answered or cancelled */
	bool		suspect;
} HymtFlight;

typedef struct HymtWorker
{
	int			device;
	HymtDevicePhase phase;
	HymtEngineSettings wanted;	/* as of the last reading of the configuration */
	HymtEngineSettings used;	/* by the present engine */
	HymtEngineProcess process;
	HymtLink	link;
	bool		conversing;
	bool		draining;		/* settings changed: end the engine when nothing is in flight */
	HymtEnding	ending;			/* valid when not conversing and a process is there */
	int			in_flight_at_end;
	bool		was_ready;		/* this engine */
	bool		has_answered;	/* this engine */
	int			credits;
	HymtFlight *flights;		/* [slot count] */
	int			in_flight;
	bool		alone;			/* a suspect is in flight: nothing may join it */
	uint64		dropped;		/* answers that nobody waited for */
	TimestampTz progress_at;	/* last sign of progress */
	uint64		steps;			/* last heartbeat of this engine */
	uint64		sequence_steps;
	int			failed_starts;	/* in a row, for the delay and for giving up */
	TimestampTz start_at;		/* when no process is there */
	HymtFailure failure;		/* of the refusal, in phase REFUSED */
	int			sqlstate;
	char		message[HYMT_MESSAGE_MAX];	/* of the refusal, or of the last death */

	WaitEventSet *wait_set;		/* NULL: to be built */
	int			socket_position;	/* in the set; -1: not in it */
	bool		waits_for_write;
} HymtWorker;

/* One worker per process. */
extern HymtWorker *hymt_worker;

/* --- worker_engine.c --------------------------------------------------------------------------------------------- */

/* Takes the lock for writing the state of this worker's device; nothing but assignments may follow until unlock. */
extern HymtDeviceState *hymt_worker_lock_device(void);
extern void hymt_worker_unlock_device(bool changed);	/* changed: wake those who wait for a change of phase */

/* Cut at a character border, with NUL: what others read must stay valid UTF-8. */
extern void hymt_worker_copy_text(char *target, Size size, HymtPart part);

extern void hymt_worker_set_phase(HymtDevicePhase phase);
extern void hymt_worker_publish_error(void);
extern void hymt_worker_start_engine(void);
extern void hymt_worker_schedule_start(int delay_ms);
extern void hymt_worker_end_conversation(HymtEnding ending);
extern void hymt_worker_reap_engine(void);

/* --- worker_messages.c ------------------------------------------------------------------------------------------- */

/* Reads and obeys what has arrived; may end the conversation. */
extern void hymt_worker_receive(void);

/* --- worker_requests.c ------------------------------------------------------------------------------------------- */

extern void hymt_worker_claim_requests(void);
extern void hymt_worker_release_abandoned(void);
extern void hymt_worker_recall_requests(HymtEnding ending);

typedef enum HymtMatch
{
	HYMT_MATCH_IN_FLIGHT,
	HYMT_MATCH_LATE,			/* for a request that was cancelled, or answered already */
	HYMT_MATCH_NEVER			/* for a request that this engine was never sent */
} HymtMatch;

/* To which request an answer belongs; one in flight is so no longer afterwards. */
extern HymtMatch hymt_worker_land(uint32 slot, uint64 generation);
extern void hymt_worker_note_progress(void);

#endif							/* HYMT_WORKER_INTERNAL_H */
