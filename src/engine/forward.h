/*
 * forward.h: one step of the model on the CPU: rows of tokens in, logits and next tokens out.
 *
 * Belongs to the CPU device (device_cpu.c), whose conductor thread is the only one to call it.
 */
#ifndef HYMT_FORWARD_H
#define HYMT_FORWARD_H

#include <stdint.h>

#include "device.h"
#include "kernels.h"
#include "low_rank.h"
#include "model.h"
#include "pool.h"

typedef struct HymtForward HymtForward;

typedef struct HymtForwardLimits
{
	int			threads;		/* of the pool */
	int32_t		token_limit;	/* ids at or above it are never chosen */
	int32_t		max_context;
	int32_t		max_rows;
	int32_t		max_samples;
	int32_t		page_count;
} HymtForwardLimits;

/* Where a step's results go. Caller's memory. */
typedef struct HymtForwardOutput
{
	int32_t    *tokens;			/* [max_samples], one per sample of the plan */
	float	   *logits;			/* [max_samples][vocab], filled from the front */
	int32_t		logit_rows;
} HymtForwardOutput;

/* Bytes of KV memory per page of HYMT_PAGE_TOKENS positions. */
extern int64_t hymt_forward_page_bytes(const HymtConfig *config);

/* Bytes that a forward pass with these limits takes beside its pages. */
extern int64_t hymt_forward_bytes(const HymtConfig *config, const HymtForwardLimits *limits);

/* Takes all memory that steps need, KV pages included; model, kernels and pool must outlive it. Fails with NO_MEMORY. */
extern HymtForward *hymt_forward_open(const HymtModel *model, const HymtKernels *kernels, HymtPool *pool,
									  const HymtForwardLimits *limits, HymtError *error);
extern void hymt_forward_close(HymtForward *forward);

/* Its adapters, to load and unload them. */
extern HymtLowRank *hymt_forward_low_rank(HymtForward *forward);

/* tokens: ids of the plan's rows, HYMT_TOKEN_NAN where there is none: such a row's logits are NaN. */
extern void hymt_forward_run(HymtForward *forward, const HymtPlan *plan, const int32_t *tokens,
							 HymtForwardOutput *output);

#endif							/* HYMT_FORWARD_H */
