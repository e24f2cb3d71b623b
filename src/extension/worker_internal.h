/*
 * worker_internal.h: the state of a worker, and what its files need of each other.
 *
 *      worker.c            the loop, signals, start and end of the process
 *      worker_engine.c     an engine's life: start, end, delays, circuit breaker, phases
 *      worker_switch.c     new settings: which engine serves, which is loaded beside it
 *      worker_messages.c   what an engine says
 *      worker_requests.c   the requests in flight
 *      worker_pace.c       several devices: which of them takes a request
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

/* What an engine was last told of a slot. */
typedef struct HymtFlight
{
	uint64		generation;		/* of the last request sent; 0: none */
	bool		in_flight;		/* and not yet answered or cancelled */
	bool		suspect;
	bool		stream;			/* pieces of its answer may come */
} HymtFlight;

typedef enum HymtEngineRole
{
	ROLE_NONE,					/* no process, and none is wanted */
	ROLE_SERVING,				/* requests go to it; its process may be dead for now */
	ROLE_CANDIDATE,				/* loads new settings beside the serving one, and has no requests */
	ROLE_RETIRING				/* was replaced: finishes what it has in flight */
} HymtEngineRole;

typedef struct HymtEngine
{
	HymtEngineRole role;
	HymtEngineSettings settings;	/* that it was started with */
	HymtEngineProcess process;
	HymtLink	link;
	bool		conversing;
	bool		draining;		/* takes no more requests, ends when nothing is in flight */
	HymtEnding	ending;			/* valid when not conversing and a process is there */
	bool		superseded;		/* it ended by itself, and settings changed before it was reaped */
	HymtFailure refusal;		/* valid with ENDING_REFUSED */
	char		last_words[HYMT_MESSAGE_MAX];	/* valid with ENDING_REFUSED and ENDING_SKEW: why */
	int			in_flight_at_end;
	bool		has_answered;
	TimestampTz ready_at;		/* 0: never was */
	char		fingerprint[HYMT_FINGERPRINT_DIGITS + 1];	/* as READY told it; empty: not yet, or it was none */
	int			credits;
	HymtFlight *flights;		/* [slot count] */
	int			in_flight;
	bool		alone;			/* a suspect is in flight: nothing may join it */
	TimestampTz progress_at;	/* last sign of progress */
	HymtHeartbeat beat;			/* the last one that told of steps */
	int64		pace;			/* microseconds of one step, see worker_pace.c; 0: not measured */
	TimestampTz measured_at;	/* valid with a pace */
	TimestampTz probed_at;		/* when the probe that is on its way was sent; 0: none is */
	uint64		probes;			/* sent; the generation of the last one */
	TimestampTz claims_at;		/* until when the next request is left to others; 0: none is */
	int			socket_position;	/* in the wait set; -1: not in it */
	bool		waits_for_write;
} HymtEngine;

#define HYMT_ENGINES 2			/* a serving one, and one on its way in or out */

typedef struct HymtWorker
{
	int			device;
	HymtDevicePhase phase;		/* of the serving engine */
	HymtEngine	engine[HYMT_ENGINES];
	HymtEngine *serving;		/* always one of them */

	HymtEngineSettings wanted;	/* as of the last reading of the configuration */
	HymtEngineSettings settings;	/* of the serving engine: those in force, which a switch changes when it succeeds */
	HymtEngineSettings proven;	/* that an engine of this worker last became ready with */
	bool		has_proven;
	bool		switch_failed;	/* the wanted settings were tried in vain: not again before the next reload */
	bool		replaced_in_vain;	/* even in place of those that worked: not again before they change */

	uint64		dropped;		/* answers that nobody waited for */
	int			failures;		/* serving engines in a row that neither answered nor lived long enough */
	int			back_off;		/* doublings of the delay before the next attempt */
	bool		tripped;		/* the circuit breaker is open, or half open while an engine is ready */
	TimestampTz start_at;		/* when no serving process is there */
	HymtFailure failure;		/* of the refusal, in phase REFUSED */
	int			sqlstate;
	char		message[HYMT_MESSAGE_MAX];	/* of the refusal, or of the last death */

	WaitEventSet *wait_set;		/* NULL: to be built */
} HymtWorker;

/* One worker per process. */
extern HymtWorker *hymt_worker;

/* --- worker.c ---------------------------------------------------------------------------------------------------- */

/* To be called before descriptors may get numbers that were in the set before. */
extern void hymt_worker_drop_wait_set(void);

/* --- worker_engine.c --------------------------------------------------------------------------------------------- */

/* Takes the lock for writing the state of this worker's device; nothing but assignments may follow until unlock. */
extern HymtDeviceState *hymt_worker_lock_device(void);
extern void hymt_worker_unlock_device(void);

/* Cut at a character border, with NUL: what others read must stay valid UTF-8. */
extern void hymt_worker_copy_text(char *target, Size size, HymtPart part);

extern void hymt_worker_set_phase(HymtDevicePhase phase);
extern void hymt_worker_publish_error(void);

/* Forget failures: somebody looked after it, or an engine does its work. */
extern void hymt_worker_reset_failures(void);
extern void hymt_worker_schedule_start(int delay_ms);

/* Fork and exec with its settings; false with the reason in failure and message. */
extern bool hymt_worker_launch(HymtEngine *engine, HymtFailure *failure, char *message, Size size);
extern void hymt_worker_expect_engine(void);
extern void hymt_worker_start_serving(void);
extern void hymt_worker_end_conversation(HymtEngine *engine, HymtEnding ending);
extern void hymt_worker_reap_engine(HymtEngine *engine);

/* What the serving engine has done well; closes the circuit breaker. */
extern void hymt_worker_note_health(void);

/* When the breaker closes by itself; 0: it does not, or is closed. */
extern TimestampTz hymt_worker_healthy_at(void);

/* --- worker_switch.c --------------------------------------------------------------------------------------------- */

/* The configuration was read, and `wanted` with it. */
extern void hymt_worker_reloaded(bool settings_changed);
extern void hymt_worker_start_candidate(void);	/* if there is a reason and room to */
extern void hymt_worker_promote(HymtEngine *candidate);
extern void hymt_worker_candidate_gone(HymtEngine *engine, const char *what);

/* Whether the serving engine, failing to start, is followed by one with settings that worked; and does it. */
extern bool hymt_worker_can_fall_back(void);
extern void hymt_worker_fall_back(const char *what);

/* --- worker_messages.c ------------------------------------------------------------------------------------------- */

/* Reads and obeys what has arrived; may end the conversation. */
extern void hymt_worker_receive(HymtEngine *engine);

/* --- worker_requests.c ------------------------------------------------------------------------------------------- */

extern int	hymt_worker_in_flight(void);	/* of all engines */
extern void hymt_worker_claim_requests(void);
extern void hymt_worker_release_abandoned(void);

/* What an engine has goes back to the queue. Afterwards others are to be woken, who may have use for it. */
extern void hymt_worker_recall_requests(HymtEngine *engine, HymtEnding ending);

/* Workers of other devices: the queue or this device has changed in a way that may give them something to do. */
extern void hymt_worker_wake_others(void);

/* Whether no device can answer now, this one being refused. */
extern bool hymt_worker_is_last_hope(void);

typedef enum HymtMatch
{
	HYMT_MATCH_IN_FLIGHT,
	HYMT_MATCH_LATE,			/* for a request that was cancelled, or answered already */
	HYMT_MATCH_PROBE,			/* for the worker's own question */
	HYMT_MATCH_NEVER			/* for a request that this engine was never sent */
} HymtMatch;

/* To which request an answer, or a failure, belongs; one in flight is so no longer afterwards. */
extern HymtMatch hymt_worker_land(HymtEngine *engine, uint32 slot, uint64 generation, bool failed);

/* The same for a piece of an answer. */
extern HymtMatch hymt_worker_match_piece(HymtEngine *engine, uint32 slot, uint64 generation);
extern void hymt_worker_note_progress(HymtEngine *engine);

/* --- worker_pace.c ----------------------------------------------------------------------------------------------- */

/* Ask the engine a question of this worker's own, if its pace is to be measured now. */
extern void hymt_worker_measure(HymtEngine *engine);
extern HymtMatch hymt_worker_land_probe(HymtEngine *engine, uint64 generation, bool failed);

/* Whether requests may be claimed for this engine at all. */
extern bool hymt_worker_knows_pace(const HymtEngine *engine);

/* For how many microseconds requests are left to faster devices. */
extern int64 hymt_worker_head_start(const HymtEngine *engine);

#endif							/* HYMT_WORKER_INTERNAL_H */
