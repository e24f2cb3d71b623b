/*
 * scheduler.h: continuous batching. Turns requests (prompt ids) into step plans, and device results into answers.
 *
 * No mathematics and no text here: ids in, ids out. One thread; nothing blocks except hymt_scheduler_run() with wait.
 */
#ifndef HYMT_SCHEDULER_H
#define HYMT_SCHEDULER_H

#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>

#include "decoding.h"
#include "device.h"
#include "error.h"

typedef struct HymtScheduler HymtScheduler;

/* A request for an answer to a prompt. `prompt` is copied. */
typedef struct HymtSequenceRequest
{
	uint64_t	id;				/* caller's, unique among unfinished ones */
	const int32_t *prompt;
	int32_t		prompt_count;	/* >= 1 */
	int32_t		max_new;		/* >= 0; 0 only computes the prompt (for logits) */
	float		repetition_penalty; /* 1: none */
	HymtSampling sampling;		/* zeroed: the largest logit */
	bool		stop_at_loop;	/* end an answer that repeats itself without end (decoding.h) */
	int32_t		source_repeats;	/* how often something stands in a row in the source: not yet a loop */
	const int32_t *stop_ids;	/* valid while the scheduler lives */
	int			stop_count;
	bool		want_last_logits;	/* logits of the prompt's last position */
	bool		want_argmax;	/* argmax at every prompt position */
	int32_t		adapter;		/* the device's id of a loaded one; 0: none */
	/*
	 * Called once with the adapter of a submitted request when no plan will use it any more for this one, at the latest
	 * by hymt_scheduler_close(). May be NULL. It must not call the scheduler.
	 */
	void		(*release_adapter) (void *context, int32_t adapter);
	void	   *release_context;
	/*
	 * Called with each token of the answer, once and in order, the one that ends it included. Not any more after
	 * hymt_scheduler_cancel(). May be NULL. It must not call the scheduler.
	 */
	void		(*token_taken) (void *context, int32_t token);
	void	   *token_context;
} HymtSequenceRequest;

/* A finished request. Pointers are valid until the next call into the scheduler. */
typedef struct HymtSequenceAnswer
{
	uint64_t	id;
	HymtFailure failure;		/* NONE, or NUMERIC */
	HymtFinish	finish;
	const int32_t *tokens;		/* the answer, with the stop id that ended it */
	int32_t		token_count;
	int32_t		prompt_count;
	int32_t		adapter;		/* as in the request */
	const float *last_logits;	/* [vocab] or NULL */
	const int32_t *argmax;		/* [prompt_count] or NULL */
} HymtSequenceAnswer;

typedef struct HymtSchedulerStats
{
	uint64_t	steps;
	uint64_t	rows;
	uint64_t	sequence_steps; /* sum over steps of the sequences taking part */
	uint64_t	input_tokens;	/* of prompts, whether computed or found in the cache; each once */
	uint64_t	output_tokens;
	uint64_t	reused_tokens;	/* positions taken from the cache instead of being computed */
	uint64_t	degraded_steps; /* steps that were made smaller for want of memory */
	uint64_t	preemptions;	/* sequences that lost their pages to older ones, to be computed again */
	int32_t		running;
	int32_t		waiting;
} HymtSchedulerStats;

/* trace: NULL, or a stream that gets one JSON line per step (format in scheduler.c). The device must outlive it. */
extern HymtScheduler *hymt_scheduler_open(const HymtDeviceOps *ops, HymtDevice *device, int vocab, FILE *trace,
										  HymtError *error);
extern void hymt_scheduler_close(HymtScheduler *scheduler);

/* Fails with TOO_LONG when prompt_count + max_new exceeds the context, with NO_MEMORY, or BAD_REQUEST. */
extern bool hymt_scheduler_submit(HymtScheduler *scheduler, const HymtSequenceRequest *request, HymtError *error);

/* Forget a request; it takes part in no step after the one under way and no answer comes. Unknown ids are ignored. */
extern void hymt_scheduler_cancel(HymtScheduler *scheduler, uint64_t id);

/*
 * Fetch a finished step if there is one (wait: block for it) and submit the next. Returns whether anything is still
 * unfinished. A request submitted before the call has its first prompt rows in the step this call submits, as far as
 * rows and pages reach; in the one after it when another request's rows in this one are the beginning of its prompt, too.
 */
extern bool hymt_scheduler_run(HymtScheduler *scheduler, bool wait);

/* Take the next finished request, in order of finishing; false when there is none. */
extern bool hymt_scheduler_answer(HymtScheduler *scheduler, HymtSequenceAnswer *answer);

/* The device is smaller than it should be, for want of memory: count all steps as degraded. */
extern void hymt_scheduler_note_shortage(HymtScheduler *scheduler);

/* For tests: another clock, in seconds, than the system's monotonic one. */
extern void hymt_scheduler_set_clock(HymtScheduler *scheduler, double (*clock) (void));

extern void hymt_scheduler_stats(const HymtScheduler *scheduler, HymtSchedulerStats *stats);

#endif							/* HYMT_SCHEDULER_H */
