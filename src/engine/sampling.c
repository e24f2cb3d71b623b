/*
 * sampling.c: drawing a token: temperature, top_k, top_p.
 *
 * Runs in the engine, in any thread of the device's pool; keeps no state. Probabilities are integers from the moment the
 * exponential is known, so that their sums do not depend on any order.
 */
#include "sampling.h"

#include <math.h>
#include <stdbool.h>

/* The weight of the likeliest token. The sum over 2^23 tokens still fits into 63 bits. */
#define WEIGHT_ONE 0x1p40f

static uint64_t
weight_of(const HymtDrawScratch *scratch, int32_t id)
{
	return (uint64_t) (scratch->weights[id] * WEIGHT_ONE);
}

/* The order in which tokens are kept: the likelier first, among equals the lower id. */
static bool
comes_before(const HymtDrawScratch *scratch, int32_t one, int32_t other)
{
	return scratch->scaled[one] > scratch->scaled[other] ||
		(scratch->scaled[one] == scratch->scaled[other] && one < other);
}

/* --- a heap of ids whose first is the one that comes first -------------------------------------------------------- */

static void
sift_down(const HymtDrawScratch *scratch, int32_t count, int32_t at)
{
	int32_t		id = scratch->ids[at];

	for (int32_t child; (child = 2 * at + 1) < count; at = child)
	{
		if (child + 1 < count && comes_before(scratch, scratch->ids[child + 1], scratch->ids[child]))
			child++;
		if (!comes_before(scratch, scratch->ids[child], id))
			break;
		scratch->ids[at] = scratch->ids[child];
	}
	scratch->ids[at] = id;
}

static void
make_heap(const HymtDrawScratch *scratch, int32_t count)
{
	for (int32_t at = count / 2 - 1; at >= 0; at--)
		sift_down(scratch, count, at);
}

/* Move the first of the heap behind its end, which becomes ids[count - 1]. */
static int32_t
pop(const HymtDrawScratch *scratch, int32_t count)
{
	int32_t		first = scratch->ids[0];

	scratch->ids[0] = scratch->ids[count - 1];
	scratch->ids[count - 1] = first;
	sift_down(scratch, count - 1, 0);
	return first;
}

/* --- the choice -------------------------------------------------------------------------------------------------- */

static int32_t
largest(const float *logits, int32_t count)
{
	int32_t		best = 0;

	for (int32_t id = 1; id < count; id++)
		if (logits[id] > logits[best])
			best = id;
	return best;
}

/* Ids that have any weight, into scratch->ids; *total: their weights' sum. Returns how many. */
static int32_t
collect(const HymtDrawScratch *scratch, int32_t count, uint64_t *total)
{
	int32_t		collected = 0;

	*total = 0;
	for (int32_t id = 0; id < count; id++)
	{
		uint64_t	weight = weight_of(scratch, id);

		if (weight == 0)
			continue;
		*total += weight;
		scratch->ids[collected++] = id;
	}
	return collected;
}

/*
 * Pop what top_k keeps off the heap: the first top_k and all that equal the last of them. They then stand behind the end
 * of the heap, the first one last. Returns the heap's new size.
 */
static int32_t
keep_top_k(const HymtDrawScratch *scratch, int32_t count, int32_t top_k, uint64_t *total)
{
	int32_t		left = count;
	int32_t		last = 0;

	*total = 0;
	while (left > 0 && (count - left < top_k || scratch->scaled[scratch->ids[0]] == scratch->scaled[last]))
	{
		last = pop(scratch, left--);
		*total += weight_of(scratch, last);
	}
	return left;
}

/*
 * Apply top_k and top_p to the ids collected. *last: the last one kept in the order of comes_before(); *total: the sum of
 * the kept ones' weights.
 */
static void
keep(const HymtDrawScratch *scratch, int32_t count, const HymtSample *sample, int32_t *last, uint64_t *total)
{
	bool		few = sample->top_k > 0 && sample->top_k < count;
	int32_t		left;			/* of the heap */
	int32_t		next;			/* with top_k: index of the next one kept by it */
	uint64_t	limit;
	uint64_t	sum = 0;

	make_heap(scratch, count);
	left = few ? keep_top_k(scratch, count, sample->top_k, total) : count;
	next = few ? count : 0;
	limit = sample->top_p < 1 ? (uint64_t) ((double) sample->top_p * (double) *total) : *total;
	do
	{
		*last = few ? scratch->ids[--next] : pop(scratch, left--);
		sum += weight_of(scratch, *last);
	}
	while (sum < limit && (few ? next > left : left > 0));
	*total = sum;
}

int32_t
hymt_draw_token(const HymtKernels *kernels, const HymtDrawScratch *scratch, int32_t count, const HymtSample *sample)
{
	int32_t		best = largest(scratch->scaled, count);
	int32_t		last = -1;		/* none: all are kept */
	int32_t		collected;
	uint64_t	total;
	uint64_t	target;
	float		maximum;

	for (int32_t id = 0; id < count; id++)
		scratch->scaled[id] = scratch->scaled[id] / sample->temperature;
	maximum = scratch->scaled[best];
	if (!isfinite(maximum))
		return best;
	for (int32_t id = 0; id < count; id++)
		scratch->weights[id] = scratch->scaled[id] - maximum;
	kernels->exponential(scratch->weights, scratch->weights, count);

	collected = collect(scratch, count, &total);
	if (sample->top_p < 1 || (sample->top_k > 0 && sample->top_k < collected))
		keep(scratch, collected, sample, &last, &total);
	target = (uint64_t) (((unsigned __int128) sample->random * total) >> 64);
	for (int32_t id = 0; id < count; id++)
	{
		uint64_t	weight = weight_of(scratch, id);

		if (last >= 0 && id != last && comes_before(scratch, last, id))
			continue;
		if (target < weight)
			return id;
		target -= weight;
	}
	return best;				/* not reached */
}
