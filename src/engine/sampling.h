/*
 * sampling.h: drawing a token from logits. What exactly is computed: doc/numerics.md, "Drawing a token".
 */
#ifndef HYMT_SAMPLING_H
#define HYMT_SAMPLING_H

#include <stdint.h>

#include "device.h"
#include "kernels.h"

/* Scratch memory for one draw among up to `count` ids. */
typedef struct HymtDrawScratch
{
	float	   *scaled;			/* [count]: logits after the penalty go in here */
	float	   *weights;		/* [count] */
	int32_t    *ids;			/* [count] */
} HymtDrawScratch;

/*
 * The token drawn from the first `count` logits in scratch->scaled, none of them NaN, as the sample's temperature, top_k,
 * top_p and random number say; count >= 1. The scratch memory is changed.
 */
extern int32_t hymt_draw_token(const HymtKernels *kernels, const HymtDrawScratch *scratch, int32_t count,
							   const HymtSample *sample);

#endif							/* HYMT_SAMPLING_H */
