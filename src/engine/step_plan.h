/*
 * step_plan.h: what the next step computes.
 */
#ifndef HYMT_STEP_PLAN_H
#define HYMT_STEP_PLAN_H

#include "device.h"
#include "pace.h"
#include "prefix_cache.h"
#include "sequence.h"

/* What a sample of the plan is for. */
typedef struct HymtSampleUse
{
	HymtSequence *sequence;
	int32_t		position;
	bool		is_argmax;		/* the sampled token answers want_argmax */
	bool		is_answer;		/* the sampled token is the next token of the answer */
} HymtSampleUse;

/* A plan and what the scheduler remembers of it until its result comes. */
typedef struct HymtStepPlan
{
	HymtPlan	plan;
	HymtSequence **members;		/* [plan.sequence_count] */
	HymtSampleUse *uses;		/* [plan.sample_count] */
	int32_t		max_rows;
	int32_t		max_samples;
	int32_t		max_running;	/* sequences that always find a row and a sample */
	HymtPaceStep step;
	uint64_t	reused;			/* positions that sequences beginning in this plan need not compute */
} HymtStepPlan;

/* False: out of memory; the plan must be destroyed all the same. */
extern bool hymt_step_plan_init(HymtStepPlan *step, int32_t max_rows, int32_t max_samples);
extern void hymt_step_plan_destroy(HymtStepPlan *step);

/*
 * Make the plan of the next step from the running sequences, which all have pages for their tokens. Sequences that have
 * not begun take from the cache what others have computed. Pages that are copied from get one user more, until
 * hymt_step_plan_end().
 */
extern void hymt_step_plan_build(HymtStepPlan *step, HymtSequenceList *running, HymtPrefixCache *cache,
								 const HymtPace *pace, double now);
extern void hymt_step_plan_end(HymtStepPlan *step, HymtPrefixCache *cache, double now);

/*
 * Use pages of the cache that hold the first tokens of a sequence without any, and count them as computed; up to what the
 * sequence may share, whole pages only.
 */
extern void hymt_step_plan_share_pages(HymtSequence *sequence, HymtPrefixCache *cache);

#endif							/* HYMT_STEP_PLAN_H */
