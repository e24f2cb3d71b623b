/*
 * low_rank.h: what LoRA adapters add to the matrix products of a step on the CPU.
 *
 * Belongs to the forward pass (forward.c), which calls it beside its own products: begin() once per step, reduce()
 * before products of the same rows with one or several matrices, add() after each piece of such a product. Without
 * adapters in a plan nothing happens.
 */
#ifndef HYMT_LOW_RANK_H
#define HYMT_LOW_RANK_H

#include "adapter.h"
#include "device.h"
#include "kernels.h"
#include "pool.h"

typedef struct HymtLowRank HymtLowRank;

typedef struct HymtLowRankSetup
{
	const HymtKernels *kernels;
	HymtPool   *pool;
	float	   *panels;			/* per thread, of panel_floats: scratch for matrix products */
	size_t		panel_floats;
	int			layers;
	int32_t		max_rows;
	int32_t		max_samples;
} HymtLowRankSetup;

/* What is pointed to must outlive it. Fails with NO_MEMORY. */
extern HymtLowRank *hymt_low_rank_open(const HymtLowRankSetup *setup, HymtError *error);
extern void hymt_low_rank_close(HymtLowRank *low_rank);

/*
 * As load_adapter and unload_adapter of device.h, which see; in the scheduler's thread, also while a step runs in
 * another one.
 */
extern bool hymt_low_rank_load(HymtLowRank *low_rank, int32_t id, const HymtAdapter *adapter);
extern void hymt_low_rank_unload(HymtLowRank *low_rank, int32_t id);
extern bool hymt_low_rank_has(const HymtLowRank *low_rank, int32_t id);

/*
 * A step begins. Returns the plan to compute: `plan` itself, or a copy whose rows (and *tokens) stand in another order,
 * so that those of one adapter are together; its samples are in the order of the plan's.
 */
extern const HymtPlan *hymt_low_rank_begin(HymtLowRank *low_rank, const HymtPlan *plan, const int32_t **tokens);

/* Computes scale * (a x) of all rows for `count` matrices of a layer from `first` on, all of which are applied to x. */
extern void hymt_low_rank_reduce(HymtLowRank *low_rank, int layer, HymtLinear first, int count, const float *x,
								 size_t x_stride);

/*
 * Adds b (scale * (a x)) to the columns of a product with the layer's matrix `linear` that `base` has computed for all
 * rows. After reduce() for that matrix. In any thread.
 */
extern void hymt_low_rank_add(const HymtLowRank *low_rank, const HymtMatmul *base, HymtLinear linear);

#endif							/* HYMT_LOW_RANK_H */
