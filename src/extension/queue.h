/*
 * queue.h: the shared-memory queue between sessions and workers.
 *
 * Fixed slots and a size-limited DSA area for texts, both in the main shared memory segment, under one LWLock.
 *
 *                  submit                     claim                      answer
 *   FREE -> FILLING ------> QUEUED ----------------------> CLAIMED ------------------> DONE | FAILED -> FREE
 *        |    |                |   <-- engine died: retry --   |  all left                      all took it, or lapsed
 *        |    |  owner left    |  all left                     v
 *        |    +--> FREE        +--> FREE                   ABANDONED ---> FREE (by the worker, at once)
 *        |
 *        +--> FOLLOWING (the same request is QUEUED or CLAIMED in another slot) --> DONE | FAILED with its leader
 *
 * Flights (queue_flights.c): equal requests that are outstanding at one time are computed once. The first one, the
 * leader, is queued and answered; the others follow. Each is a user of the leader's slot, which is given up only when
 * the last user has left; a leader whose owner left before has no owner. The result stays in the leader's slot.
 *
 * Order (queue_policy.c): requests are single or bulk, roles take turns in each class, and what each class and role may
 * occupy is limited.
 *
 * Who may change a slot: in FILLING only its owner; in ABANDONED only the worker that claimed it; all other moves under
 * the lock. A slot's generation grows by one each time it becomes FREE, so an answer that names an older generation is for
 * somebody who left, and is dropped.
 *
 * What was answered does not change while it has users, so that they may read it without the lock. Only users of
 * HYMT_CLASS_AHEAD may be made to leave (queue_lapse.c), and of them only those that do not keep their slot. So the owner
 * of a slot of that class looks at its generation, under the lock, whenever he looks at the slot: another one says that he
 * has lost it. Before he reads the answer he keeps the slot, in the same hold of the lock in which he looked; it is his
 * then until he releases it, as slots of the other classes, and of streams, are from the beginning.
 *
 * Under the lock nothing may allocate, raise, log or make a system call. Texts are allocated and freed outside it.
 * Lock order: the queue lock is a leaf. No DSA call is made while holding it.
 *
 * A process that waits does so on its own latch; whoever changes a slot sets the owner's latch by its proc number,
 * after releasing the lock. A proc number that meanwhile belongs to somebody else costs one spurious wake-up.
 */
#ifndef HYMT_QUEUE_H
#define HYMT_QUEUE_H

#include "postgres.h"

#include "datatype/timestamp.h"
#include "lib/stringinfo.h"
#include "storage/condition_variable.h"
#include "storage/lwlock.h"
#include "utils/dsa.h"

#include "../protocol/frames.h"
#include "cache_shared.h"
#include "databases.h"
#include "stat.h"

#define HYMT_LAYOUT_MAGIC 0x48594d54
#define HYMT_LAYOUT_VERSION 5	/* raised with every change of a shared struct */
#define HYMT_MAX_DEVICES 16
#define HYMT_NAME_MAX 128
#define HYMT_MESSAGE_MAX 512

typedef enum HymtSlotState
{
	HYMT_SLOT_FREE,
	HYMT_SLOT_FILLING,
	HYMT_SLOT_QUEUED,
	HYMT_SLOT_FOLLOWING,
	HYMT_SLOT_CLAIMED,
	HYMT_SLOT_ABANDONED,
	HYMT_SLOT_DONE,
	HYMT_SLOT_FAILED
} HymtSlotState;

/*
 * Single requests go before bulk ones. Those that are read ahead are queued as bulk ones and those that give a stream as
 * single ones, but both have limits of their own, as their sessions may leave the answers lying for hours.
 */
typedef enum HymtClass
{
	HYMT_CLASS_SINGLE,
	HYMT_CLASS_BULK,
	HYMT_CLASSES,				/* that are queued */
	HYMT_CLASS_AHEAD = HYMT_CLASSES,
	HYMT_LIMITED_CLASSES
} HymtClass;

/* What becomes of an answer that was read ahead, see queue_lapse.c. */
typedef enum HymtRest
{
	HYMT_NOT_RESTING,
	HYMT_RESTING,				/* lies there for its owner */
	HYMT_LAPSING				/* for so long that others may have the slot */
} HymtRest;

/* Slots linked by their `next` and `previous`. */
typedef struct HymtSlotList
{
	int			head;			/* -1: empty */
	int			tail;
	int			count;
} HymtSlotList;

typedef struct HymtSlot
{
	HymtSlotState state;
	uint64		generation;
	int			next;			/* in the free list, a queue, a flight, among the abandoned or at rest; -1 ends it */
	int			previous;		/* the same, but for the free list */
	int			owner_procno;	/* -1: none (its users all follow) */
	int			owner_pid;
	Oid			database;
	Oid			role;
	int			device;			/* that claimed it */
	TimestampTz asked;			/* when its session began to wait, for a slot at first */
	TimestampTz submitted;
	TimestampTz begun;			/* first claim; 0: not yet */

	/* its place in the order */
	HymtClass	asked_class;	/* which the limits count */
	HymtClass	queue_class;	/* in which it is queued: better than asked_class when somebody waits for it */
	int			charged_role;	/* entry of the role that occupies it; -1: nobody, its owner left */
	int			turn_role;		/* entry of the role in whose turn it is queued, while QUEUED */

	/* its flight */
	bool		in_flight_table;
	uint64		hash;			/* of the request; 0: takes no part in flights */
	int			flight_bucket;	/* first slot in the table of flights with a hash of this slot's number; -1: none */
	int			flight_next;
	int			flight_previous;
	int			leader;			/* slot that is answered instead; -1: this one */
	HymtSlotList followers;
	int			users;			/* owner and followers, also answered ones, that have not left */

	/* the request */
	char		source_lang[HYMT_LANG_MAX];
	char		target_lang[HYMT_LANG_MAX];
	int			max_new_tokens;
	HymtDraw	draw;
	char		adapter[HYMT_ADAPTER_NAME_MAX]; /* named by the caller; empty: none */
	dsa_pointer text;			/* the context, and behind it the text */
	Size		text_offset;	/* of them from the start of HymtShared; valid while they are there */
	Size		context_length;
	Size		text_length;

	/* its stream, see queue_stream.c */
	Size		window;			/* bytes for pieces of the answer, behind the text; 0: none are wanted */
	Size		pieces_length;	/* in the window: not taken by the owner yet. 0 when the text is gone */
	bool		pieces_lost;	/* one found no room: no more of them in this attempt */
	int			attempts;		/* claims: each begins the answer anew */

	/* its answer */
	HymtRest	rest;
	bool		kept;			/* its owner takes the answer, or will: it does not rest */
	TimestampTz looked_after;	/* by its owner, last; at first when it was answered */

	/* what became of it */
	char		model[HYMT_NAME_MAX];	/* of the engine that has or answered it; empty: none */
	int			crashes;		/* engine deaths while this request was in flight */
	bool		suspect;		/* was in flight when an engine died: is tried again alone */
	HymtFailure failure;
	int			sqlstate;		/* set with FAILED when no HymtFailure says it (poison, hang …); else 0 */
	bool		service_failed; /* with FAILED: no engine works, whatever the text; else it is this text's failure */
	HymtFinish	finish;
	int			input_tokens;
	int			output_tokens;
	char		fingerprint[HYMT_FINGERPRINT_DIGITS + 1];	/* of what made the answer, with DONE */
	dsa_pointer result;			/* translation, or message of a failure */
	Size		result_length;
	Size		bytes;				/* what this slot's texts count in bytes_used */
} HymtSlot;

typedef enum HymtDevicePhase
{
	HYMT_DEVICE_NO_WORKER,		/* the worker is not running (yet, or any more) */
	HYMT_DEVICE_STARTING,		/* engine being started */
	HYMT_DEVICE_LOADING,
	HYMT_DEVICE_READY,
	HYMT_DEVICE_RESTARTING,		/* engine died; a new one follows after a delay */
	HYMT_DEVICE_REFUSED			/* the model cannot be loaded; see failure and message */
} HymtDevicePhase;

/* One worker and its engine. Written by the worker only, under the lock; read under the lock. */
typedef struct HymtDeviceState
{
	HymtDevicePhase phase;
	TimestampTz no_worker_since;	/* in phase NO_WORKER: when the last one ended, or the server started */
	int			worker_pid;		/* 0: none */
	int			worker_procno;	/* -1: none */
	int			engine_pid;		/* 0: none */
	int			loading_percent;
	char		loading_phase[HYMT_NAME_MAX];
	char		model[HYMT_NAME_MAX];
	char		family[HYMT_NAME_MAX];
	char		fingerprint[65];
	bool		answers_known;	/* the next engine will probably have the same; see cache_model.c */
	uint64		answers_settings;	/* of what the engine with the fingerprint was started with */
	char		precision[HYMT_NAME_MAX];
	char		device[HYMT_NAME_MAX];
	char		languages[HYMT_MESSAGE_MAX];
	uint64		parameters;
	uint64		weight_bytes;
	int			threads;
	int			max_context;
	TimestampTz ready_since;
	uint64		restarts;		/* engines that died or were killed */
	uint64		requests;		/* answered, well or not */
	uint64		steps;			/* of all engines since the server started */
	uint64		sequence_steps;
	HymtFailure failure;		/* of the last refusal */
	int			sqlstate;		/* of a refusal that no HymtFailure describes (other protocol version); else 0 */
	char		last_error[HYMT_MESSAGE_MAX];
	TimestampTz last_error_at;
	TimestampTz next_attempt_at;	/* to start an engine, in phases RESTARTING and REFUSED */
	bool		proven;			/* READY, and this engine has answered a request */
	int64		pace;			/* microseconds of one step, see worker_pace.c; 0: not READY, or not measured */
	TimestampTz probed_at;		/* when it was asked the probe that is not answered yet; 0: none is on its way */
	int			in_flight;
} HymtDeviceState;

/*
 * A role that occupies slots, has requests queued or waits for a slot. Entries come and go; their place in the table
 * stays while any of these counts is not zero.
 */
typedef struct HymtRole
{
	Oid			role;			/* invalid: a free entry */
	int			bucket;			/* first entry in the table with a hash of this entry's number; -1: none */
	int			next;			/* in its bucket or the list of free entries */
	int			held[HYMT_LIMITED_CLASSES]; /* slots charged to it */
	Size		bytes[HYMT_LIMITED_CLASSES];	/* queue memory of those slots */
	int			waiting_bulk;	/* bulk requests that wait for a slot */
	bool		has_bulk;		/* counted in bulk_roles */
	HymtSlotList queue[HYMT_CLASSES];
	int			turn_next[HYMT_CLASSES];	/* next role to be served in the class; -1 ends it */
	int			turn_previous[HYMT_CLASSES];
	ConditionVariable freed;	/* one of its slots became free; initialised once */
} HymtRole;

/* Roles that have requests of a class queued, in the order in which they will be served. */
typedef struct HymtTurns
{
	int			head;			/* entries; -1: empty */
	int			tail;
} HymtTurns;

typedef struct HymtShared
{
	uint32		magic;
	uint32		layout_version;
	LWLock	   *lock;
	/* a slot or queue memory became free: those who wait with a single and with a bulk request */
	ConditionVariable slot_freed[HYMT_CLASSES];
	int			slot_count;
	int			free_head;
	int			free_count;
	int			queued_count;	/* QUEUED slots */
	HymtSlotList suspects;		/* those of them that are suspects, oldest first; they have no turns */
	HymtSlotList resting;		/* answers that were read ahead, the one looked after longest ago first */
	HymtSlotList lapsing;		/* that were left lying, the one for the longest time first */
	Size		lapsing_bytes;	/* of bytes_used */
	HymtTurns	turns[HYMT_CLASSES];
	int			singles_in_row; /* claimed while a bulk request was queued */
	int			held[HYMT_LIMITED_CLASSES]; /* occupied slots by class */
	Size		bytes[HYMT_LIMITED_CLASSES];	/* bytes_used by class */
	int			bulk_roles;		/* roles that hold slots with bulk requests or wait for one */
	int			waiting_bulk;	/* bulk requests that wait for a slot, of all roles */
	int			role_count;
	int			free_role;		/* list of free entries */
	HymtRole   *role;			/* [role_count]; in the same segment, which is at one address in all processes */
	/* ABANDONED slots by device; the last list is of those that were claimed only to be failed */
	HymtSlotList abandoned[HYMT_MAX_DEVICES + 1];
	Size		bytes_limit;	/* for texts and results together */
	Size		bytes_used;
	HymtStats	stat;
	int			progress_count;
	struct HymtProgress *progress;	/* [progress_count], by proc number; in the same segment, without the lock */
	HymtDatabases databases;	/* has a lock of its own */
	struct HymtJobCalls *job_calls; /* the same; in a segment of its own */
	HymtCacheShared cache;
	TimestampTz progress_at;	/* last claim, answer or step; or when the queue began to owe some */
	int			device_count;
	HymtDeviceState device[HYMT_MAX_DEVICES];
	Size		area_size;		/* of the DSA area that follows the slots */
	HymtSlot	slot[FLEXIBLE_ARRAY_MEMBER];
} HymtShared;

extern HymtShared *hymt_shared; /* NULL when hymt is not preloaded */

/* --- shared memory (shmem.c; postmaster, every process) -------------------------------------------------------- */

extern void hymt_shmem_init_hooks(void);	/* from _PG_init, while preloading */
extern dsa_area *hymt_area(void);	/* attached once per process */

/* --- sessions (queue.c, queue_wait.c) --------------------------------------------------------------------------- */

/*
 * A request of this session that occupies a slot. Belongs to the ResourceOwner that was current at submission, which
 * releases it at abort, subtransaction abort, portal close or commit, if hymt_request_release() did not come first.
 * Allocated in TopMemoryContext; freed with the release.
 */
typedef struct HymtRequestHandle HymtRequestHandle;

typedef struct HymtRequestSpec
{
	const char *source_lang;	/* canonical codes */
	const char *target_lang;
	int			max_new_tokens;
	char		adapter[HYMT_ADAPTER_NAME_MAX]; /* named by the caller; empty: none */
	HymtDraw	draw;
	bool		bulk;			/* one of many */
	Oid			role;			/* for whom; invalid: the current user */
	const char *context;		/* UTF-8, not translated */
	Size		context_length; /* 0: none */
	const char *text;			/* UTF-8 */
	Size		text_length;
} HymtRequestSpec;

/* Raises 54000 for a text that is too long for the queue, as submitting it does. Needs the shared memory. */
extern void hymt_request_check_length(const HymtRequestSpec *spec);

/*
 * Takes a slot (waiting for one, interruptibly, at most hymt.queue_timeout), copies the text, queues the request. For
 * callers that hold no other request: who waits for a slot while holding one may wait for himself.
 */
extern HymtRequestHandle *hymt_request_submit(const HymtRequestSpec *spec);

/* The same without waiting, for callers that hold requests already. NULL when there is no room now. */
extern HymtRequestHandle *hymt_request_try_submit(const HymtRequestSpec *spec);

/*
 * The same for a process that has other things to do meanwhile, and comes again when there was no room. One that `holds`
 * no request has the same claim to a slot as those who wait for one.
 */
extern HymtRequestHandle *hymt_request_offer(const HymtRequestSpec *spec, bool holds);

/* Whether a request has a length that the queue takes; or raises when not. */
extern bool hymt_request_fits(const HymtRequestSpec *spec);
extern void hymt_request_check_length(const HymtRequestSpec *spec);

/* Which of some requests are answered: sets `answered` of each. Returns how many. */
extern int	hymt_requests_answered(HymtRequestHandle *const *handles, int count, bool *answered);

/*
 * Sleeps until this process's latch is set, at most so many ms (-1: for ever), or its client is found gone. Interrupts
 * are served.
 */
extern void hymt_sleep(long timeout, uint32 wait_event);

typedef struct HymtOutcome
{
	HymtFailure failure;		/* NONE: text is the translation */
	int			sqlstate;		/* of a failure that has no HymtFailure; else 0 */
	bool		service_failed; /* not this text's failure */
	HymtFinish	finish;
	int			input_tokens;
	int			output_tokens;
	char		model[HYMT_NAME_MAX];	/* that answered, UTF-8; empty: none did */
	char		fingerprint[HYMT_FINGERPRINT_DIGITS + 1];	/* of what made the answer; empty with failures */
	HymtCacheLevel cached;		/* where the answer was kept: it is not the engine's, but for an earlier question */
	char	   *text;			/* translation or message; NUL-terminated UTF-8, palloc'ed in the caller's context */
	Size		text_length;
} HymtOutcome;

/*
 * Waits for the answer, interruptibly. Raises when the service cannot answer (no worker, model missing, …); a failure
 * of this one request is an outcome, not an error. Releases the request in every case.
 */
extern void hymt_request_wait(HymtRequestHandle *request, HymtOutcome *outcome);

/*
 * Asks for what will probably be waited for later, without waiting or raising. False when there is no room for that
 * now, or the text is too long. The request is *place, which becomes NULL when it is released, whoever does that.
 *
 * Others may take the slot of an answer that is left lying for seconds. Whoever comes by his requests says so with
 * hymt_requests_look_after(), as often as he likes: those of the current resource owner are not left lying then. The same
 * releases requests that have lost their slots, whoever's they are.
 */
extern bool hymt_request_submit_ahead(const HymtRequestSpec *spec, HymtRequestHandle **place);
extern void hymt_requests_look_after(void);
extern bool hymt_request_is_answered(const HymtRequestHandle *request); /* or has lost its slot: there is no need to wait */

/*
 * Asks for a translation that is wanted in pieces as they come, as a request of its own that nobody waits for yet: with the
 * same limits, and the same meaning of false and of *place.
 */
extern bool hymt_request_submit_stream(const HymtRequestSpec *spec, HymtRequestHandle **place);

/*
 * Waits as hymt_request_wait() until there is more of the translation, appends it to *piece, whole characters, and returns
 * true. When *attempt is another one than the last time, this is from the beginning of the translation again. False: the
 * answer is there, which hymt_request_wait() gives at once.
 */
extern bool hymt_request_wait_piece(HymtRequestHandle *request, StringInfo piece, int *attempt);

/*
 * The session has come to the point where it needs the answer: waits as hymt_request_wait(), but from now on, and unless
 * the request was for bulk as a single one. Failures of the service are not raised.
 */
typedef enum HymtCollected
{
	HYMT_COLLECTED,				/* the outcome is of the text */
	HYMT_COLLECTED_FAILURE,		/* it is the service's failure, or of this way of asking: a request at this point may fare better */
	HYMT_LAPSED					/* there is none: others have taken the slot */
} HymtCollected;
extern HymtCollected hymt_request_collect(HymtRequestHandle *request, bool bulk, HymtOutcome *outcome);

/*
 * Waits for any of several, oldest first, and returns its position. Only the oldest HYMT_WAIT_ANY_LOOKS of them are
 * looked at, so that the effort does not grow with their number. hymt_request_wait() then gives the answer at once.
 */
#define HYMT_WAIT_ANY_LOOKS 64
extern int	hymt_request_wait_any(HymtRequestHandle *const *handles, int count);
extern void hymt_request_release(HymtRequestHandle *request);
extern void hymt_queue_register_callbacks(void);	/* from _PG_init: resource release callback */

/* The device from which an answer can be hoped for soonest. Under the lock, at least shared. */
extern const HymtDeviceState *hymt_best_device(void);

/* Whether it has no worker now, but the postmaster is about to start one. Under the lock, at least shared. */
extern bool hymt_device_comes_back(const HymtDeviceState *device);

/* Texts of requests may take so much of queue memory, so that answers always find room. */
extern Size hymt_bytes_for_requests(void);

/* --- workers (queue_worker.c) ------------------------------------------------------------------------------------ */

typedef struct HymtClaim
{
	int			slot;
	uint64		generation;
	bool		suspect;
	char		source_lang[HYMT_LANG_MAX];
	char		target_lang[HYMT_LANG_MAX];
	int			max_new_tokens;
	HymtDraw	draw;
	char		adapter[HYMT_ADAPTER_NAME_MAX]; /* named by the caller; empty: none */
	const char *context;		/* in the DSA area, until this worker answers, requeues or frees the slot */
	Size		context_length;
	const char *text;			/* the same */
	Size		text_length;
	bool		stream;			/* pieces of the answer are wanted */
} HymtClaim;

/*
 * Claim the next request in order for a device. suspects_only: only one that survived an engine death; otherwise only
 * one that did not, as suspects must be tried alone. One that has not been queued for head_start microseconds is left
 * to others for now: then false is returned and *due tells when that time is up, else it is 0.
 */
extern bool hymt_queue_claim(int device, bool suspects_only, int64 head_start, HymtClaim *claim, TimestampTz *due);
extern bool hymt_queue_has_suspects(void);

/*
 * Answers. Each drops silently what is not (slot, generation) claimed by this device any more. The text is copied; when
 * queue memory is out the request fails with HYMT_FAILURE_NO_MEMORY instead. Wakes the owner. fingerprint: of what made
 * the answer, 64 digits without NUL.
 */
extern void hymt_queue_answer(int device, int slot, uint64 generation, const char *text, Size length,
							  HymtFinish finish, int input_tokens, int output_tokens, const char *fingerprint);
extern void hymt_queue_fail(int device, int slot, uint64 generation, HymtFailure failure, int sqlstate,
							HymtFinish finish, const char *message, Size length);

/*
 * More of an answer to come, for a claimed request that wants it; is dropped like an answer. It follows what was given of
 * the answer since the claim.
 */
extern void hymt_queue_piece(int device, int slot, uint64 generation, const char *text, Size length);

/*
 * Put a claimed request back to the queue, before younger ones, or free it if it was abandoned. suspect: its engine
 * died, perhaps of it.
 */
extern void hymt_queue_requeue(int device, int slot, uint64 generation, bool suspect);

/* The next request of this device whose owner left: frees its slot, and tells which it was so the engine can cancel. */
extern bool hymt_queue_next_abandoned(int device, int *slot, uint64 *generation);

/* At worker start: what a former worker of this device had claimed goes back to the queue or, if abandoned, is freed. */
extern void hymt_queue_recover(int device);

/* Fail every queued request (no engine will come): used when the model was refused. */
extern void hymt_queue_fail_all(HymtFailure failure, int sqlstate, const char *message);

#endif							/* HYMT_QUEUE_H */
