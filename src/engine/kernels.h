/*
 * kernels.h: the arithmetic of the CPU device: one table of functions per instruction set, all giving the same bits.
 *
 * The functions know nothing of models, plans or threads: they read and write the memory they are given, allocate
 * nothing and keep no state, so any number of threads may be inside them. What exactly they compute, operation by
 * operation, is doc/numerics.md; kernels_impl.h is that text as code, over a 16-lane vector that each kernels_ISA.c
 * defines.
 *
 * Rows of activations are fp32, HYMT_LANES-padded: a row of n values starts at a multiple of `stride` floats, stride is
 * a multiple of HYMT_LANES, and the values from n up to the next multiple of HYMT_LANES are +0. Weights are read where
 * they are mapped, with no alignment beyond their element size and nothing readable behind their last element.
 */
#ifndef HYMT_KERNELS_H
#define HYMT_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "device.h"
#include "model.h"

#define HYMT_LANES 16

/* Most columns of weights that a matrix product widens to fp32 at a time, into a panel that has room for so many. */
#define HYMT_PANEL_COLUMNS 16

static inline int64_t
hymt_round_lanes(int64_t n)
{
	return (n + HYMT_LANES - 1) / HYMT_LANES * HYMT_LANES;
}

/*
 * Floats from one column of a panel to the next. Not a power of two, or all columns would meet in the same few places of a
 * cache.
 */
static inline int64_t
hymt_panel_stride(int64_t k)
{
	return hymt_round_lanes(k) + HYMT_LANES;
}

/* out[r][c - first] = sum over k of x[r][k] * weights[c][k], for r in [0, rows) and c in [first, first + count). */
typedef struct HymtMatmul
{
	float	   *out;
	size_t		out_stride;
	bool		add;			/* add the sum to what `out` holds instead of replacing it */
	const float *x;				/* rows of weights->columns values, padded */
	size_t		x_stride;
	int			rows;
	const HymtTensor *weights;
	int64_t		first;
	int64_t		count;
	float	   *panel;			/* scratch: HYMT_PANEL_COLUMNS times hymt_panel_stride(weights->columns) floats */
} HymtMatmul;

/*
 * One token's attention in the query heads that share one KV head. Keys and values of 16 consecutive positions form a
 * block [head_dim][16]; the block of position p is at base + pages[p / 16] * page_stride.
 */
typedef struct HymtAttention
{
	float	   *out;			/* [heads][head_dim] */
	const float *q;				/* [heads][head_dim] */
	int			heads;
	int			head_dim;
	const float *keys;
	const float *values;
	size_t		page_stride;	/* floats from one page to the next */
	const int32_t *pages;
	int32_t		positions;		/* attends to positions 0 … positions - 1; >= 1 */
	float		scale;			/* of scores */
	float	   *scores;			/* scratch: [heads][score_stride], 64-byte aligned */
	size_t		score_stride;	/* >= hymt_round_lanes(positions), a multiple of HYMT_LANES */
} HymtAttention;

typedef struct HymtKernels
{
	HymtIsa		isa;
	void		(*matmul) (const HymtMatmul *job);
	void		(*attend) (const HymtAttention *job);
	/* out[i] = the i-th value of a row of the tensor, of any dtype, as fp32; nothing behind the last one is written. */
	void		(*widen) (float *out, const HymtTensor *tensor, int64_t row);
	/* x[i] = x[i] + vector[first + i]; the vector is plain */
	void		(*add_vector) (float *x, const HymtTensor *vector, int64_t first, int n);
	/* out[i] = x[i] / sqrt(mean(x^2) + eps) * weight[i]; out may be x; neither need be padded. The weight is plain. */
	void		(*rms_norm) (float *out, const float *x, const HymtTensor *weight, int n, float eps);
	/* Rotates the pairs (x[i], x[i + half]) by the angles with these cosines and sines. */
	void		(*rotate) (float *x, const float *cosines, const float *sines, int half);
	/* gate[i] = silu(gate[i]) * up[i] */
	void		(*swiglu) (float *gate, const float *up, int n);
	/* out[i] = exp(x[i]), the one that attention and swiglu use; for tests. */
	void		(*exponential) (float *out, const float *x, int n);
} HymtKernels;

/* NULL when this build has none for it. */
extern const HymtKernels *hymt_kernels_scalar(void);
extern const HymtKernels *hymt_kernels_avx2(void);
extern const HymtKernels *hymt_kernels_avx512(void);

/* The kernels of an instruction set, AUTO being the best that machine and build have; NULL when it is not supported. */
extern const HymtKernels *hymt_kernels_find(HymtIsa isa);

#endif							/* HYMT_KERNELS_H */
