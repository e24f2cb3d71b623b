/*
 * pace.h: how many rows a step may have.
 *
 * A step should end within a quarter of a second, because cancellation, new requests and the worker's watch on the engine
 * all wait for its end. Prompt rows give way first: they are what makes steps long. Where decoding rows alone take too
 * long they take turns, but never fewer than 16 of them, which take little longer than one because most of a small
 * step is the reading of weights.
 */
#ifndef HYMT_PACE_H
#define HYMT_PACE_H

#include <stdbool.h>
#include <stdint.h>

#define HYMT_PACE_SECONDS 0.25
#define HYMT_PACE_ROWS_MIN 16

typedef struct HymtPace
{
	int32_t		max_rows;		/* the device's */
	int32_t		prompt_rows;	/* rows of prompts that the next step may have */
	int32_t		decode_rows;	/* decoding rows likewise */
} HymtPace;

/* What a step consisted of. */
typedef struct HymtPaceStep
{
	int32_t		prompt_rows;
	int32_t		decode_rows;
	bool		prompts_limited;	/* more prompt rows were waiting than the pace let in */
	bool		decodes_limited;
} HymtPaceStep;

extern void hymt_pace_init(HymtPace *pace, int32_t max_rows);
extern void hymt_pace_adapt(HymtPace *pace, const HymtPaceStep *step, double seconds);

#endif							/* HYMT_PACE_H */
