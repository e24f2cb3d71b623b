/*
 * test_decoding.c: loops, random numbers, and tokens drawn from logits, against a plain program of what
 * doc/numerics.md says.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "decoding.h"
#include "kernels.h"
#include "sampling.h"

/* The generator's published test vectors (Random123, kat_vectors) have counters of four words; ours has two of them 0. */
static void
test_random(void **state)
{
	double		sum = 0;

	(void) state;
	assert_true(hymt_random_at(0, 0) == UINT64_C(0xe169c58d6627e8d5));
	assert_true(hymt_random_at(1, 0) != hymt_random_at(0, 0));
	assert_true(hymt_random_at(0, 1) != hymt_random_at(0, 0));
	assert_true(hymt_random_at(UINT64_C(1) << 32, 0) != hymt_random_at(0, 0));
	for (uint64_t i = 0; i < 10000; i++)
		sum += (double) hymt_random_at(7, i) / 0x1p64;
	assert_true(sum > 4900 && sum < 5100);
}

/* --- loops ------------------------------------------------------------------------------------------------------- */

/* How many tokens of an endless repetition of the unit behind a beginning of some tokens come before it is a loop. */
static int
loop_after(int32_t beginning, int32_t unit, int32_t source_repeats)
{
	HymtLoopWatch watch = {.source_repeats = source_repeats};
	int32_t		tokens[1000];

	for (int32_t i = 0; i < 1000; i++)
	{
		tokens[i] = i < beginning ? 1000 + i : (i - beginning) % unit;
		if (hymt_loop_watch(&watch, tokens, i + 1))
			return i + 1 - beginning;
	}
	return -1;
}

static void
test_loops(void **state)
{
	(void) state;
	for (int32_t beginning = 0; beginning < 40; beginning += 13)
	{
		assert_int_equal(loop_after(beginning, 1, 1), 24);
		assert_int_equal(loop_after(beginning, 2, 1), 24);
		assert_int_equal(loop_after(beginning, 5, 1), 25);
		assert_int_equal(loop_after(beginning, 6, 0), 24);
		assert_int_equal(loop_after(beginning, 7, 1), 28);
		assert_int_equal(loop_after(beginning, 32, 1), 128);
		assert_int_equal(loop_after(beginning, 33, 1), -1);
		/* as often as in the source is no loop yet */
		assert_int_equal(loop_after(beginning, 7, 4), 35);
		assert_int_equal(loop_after(beginning, 1, 40), 41);
	}
}

static void
test_repeats(void **state)
{
	const int32_t ids[] = {5, 1, 2, 1, 2, 1, 2, 9, 9};

	(void) state;
	assert_int_equal(hymt_repeats_of_ids(ids, 0), 0);
	assert_int_equal(hymt_repeats_of_ids(ids, 1), 1);
	assert_int_equal(hymt_repeats_of_ids(ids, 9), 3);
	assert_int_equal(hymt_repeats_of_text("", 0), 0);
	assert_int_equal(hymt_repeats_of_text("abc", 3), 1);
	assert_int_equal(hymt_repeats_of_text("xababababy", 10), 4);
	assert_int_equal(hymt_repeats_of_text("----------", 10), 10);
	assert_int_equal(hymt_repeats_of_text("哈哈哈哈哈", strlen("哈哈哈哈哈")), 5);
}

/* --- drawing ----------------------------------------------------------------------------------------------------- */

enum { COUNT = 333 };

typedef struct Ranked
{
	float		scaled;
	int32_t		id;
	uint64_t	weight;
} Ranked;

static int
by_rank(const void *a, const void *b)
{
	const Ranked *one = a;
	const Ranked *other = b;

	if (one->scaled != other->scaled)
		return one->scaled > other->scaled ? -1 : 1;
	return one->id < other->id ? -1 : 1;
}

static int
by_id(const void *a, const void *b)
{
	return ((const Ranked *) a)->id - ((const Ranked *) b)->id;
}

/* By sorting everything. */
static int32_t
expected_draw(const float *logits, const HymtSample *sample)
{
	Ranked		ranked[COUNT];
	float		x[COUNT];
	int			kept = COUNT;
	uint64_t	total = 0;
	uint64_t	sum = 0;
	uint64_t	target;

	for (int i = 0; i < COUNT; i++)
		ranked[i] = (Ranked) {logits[i] / sample->temperature, i, 0};
	qsort(ranked, COUNT, sizeof(Ranked), by_rank);
	for (int i = 0; i < COUNT; i++)
		x[i] = ranked[i].scaled - ranked[0].scaled;
	hymt_kernels_scalar()->exponential(x, x, COUNT);
	for (int i = 0; i < COUNT; i++)
		ranked[i].weight = (uint64_t) ((double) x[i] * 0x1p40);
	if (sample->top_k > 0 && sample->top_k < COUNT)
		for (kept = sample->top_k; kept < COUNT && ranked[kept].scaled == ranked[kept - 1].scaled; kept++)
			;
	for (int i = 0; i < kept; i++)
		total += ranked[i].weight;
	if (sample->top_p < 1)
	{
		uint64_t	limit = (uint64_t) ((double) sample->top_p * (double) total);
		int			all = kept;

		for (kept = 0; kept < all && (kept == 0 || sum < limit); kept++)
			sum += ranked[kept].weight;
		total = sum;
	}
	qsort(ranked, (size_t) kept, sizeof(Ranked), by_id);
	target = (uint64_t) (((unsigned __int128) sample->random * total) >> 64);
	for (int i = 0; i < kept; i++)
	{
		if (target < ranked[i].weight)
			return ranked[i].id;
		target -= ranked[i].weight;
	}
	fail();
	return -1;
}

static uint64_t draws;

static float
uniform(void)
{
	return (float) (hymt_random_at(99, draws++) >> 40) / 0x1p24f;
}

static int32_t
draw(const HymtKernels *kernels, const float *logits, const HymtSample *sample)
{
	float		scaled[COUNT];
	float		weights[COUNT];
	int32_t		ids[COUNT];

	memcpy(scaled, logits, sizeof(scaled));
	return hymt_draw_token(kernels, &(HymtDrawScratch) {scaled, weights, ids}, COUNT, sample);
}

static void
test_draw(void **state)
{
	static const HymtIsa isas[] = {HYMT_ISA_SCALAR, HYMT_ISA_AVX2, HYMT_ISA_AVX512};
	static const int32_t top_ks[] = {0, 1, 2, 20, 332, 333, 1000};
	static const float top_ps[] = {1, 0.999999f, 0.8f, 0.6f, 0.1f, 1e-30f};
	static const float temperatures[] = {1e-3f, 0.3f, 0.7f, 1, 5, 1e30f};

	(void) state;
	for (int round = 0; round < 400; round++)
	{
		float		logits[COUNT];
		float		spread = round % 4 == 0 ? 0.0f : round % 4 == 1 ? 200.0f : 8.0f;

		/* few values, so that there are many ties; sometimes all are the same */
		for (int i = 0; i < COUNT; i++)
			logits[i] = round % 2 ? floorf(uniform() * spread) : uniform() * spread;
		if (round % 7 == 0)
			logits[3] = -INFINITY;
		for (int k = 0; k < 7; k++)
			for (int p = 0; p < 6; p++)
			{
				HymtSample	sample = {
					.temperature = temperatures[(round + k + p) % 6], .top_k = top_ks[k], .top_p = top_ps[p],
					.random = round % 50 == 0 ? 0 : round % 50 == 1 ? UINT64_MAX : hymt_random_at(1, draws++)
				};
				int32_t		expected = expected_draw(logits, &sample);

				for (int i = 0; i < 3; i++)
					if (hymt_isa_supported(isas[i]))
						assert_int_equal(draw(hymt_kernels_find(isas[i]), logits, &sample), expected);
			}
	}
}

/* Frequencies are those of the softmax; what top_k and top_p leave out never comes. */
static void
test_frequencies(void **state)
{
	enum { DRAWS = 40000 };
	float		logits[COUNT];
	int			count[4] = {0};
	HymtSample	sample = {.temperature = 2, .top_p = 1, .top_k = 3};
	double		sum = exp(1.0) + exp(0.5) + exp(0.25);

	(void) state;
	for (int i = 0; i < COUNT; i++)
		logits[i] = -5;
	logits[10] = 2;
	logits[20] = 1;
	logits[30] = 0.5f;
	for (uint64_t i = 0; i < DRAWS; i++)
	{
		int32_t		token;

		sample.random = hymt_random_at(5, i);
		token = draw(hymt_kernels_scalar(), logits, &sample);
		count[token == 10 ? 0 : token == 20 ? 1 : token == 30 ? 2 : 3]++;
	}
	assert_int_equal(count[3], 0);
	assert_true(fabs(count[0] / (double) DRAWS - exp(1.0) / sum) < 0.01);
	assert_true(fabs(count[1] / (double) DRAWS - exp(0.5) / sum) < 0.01);
	assert_true(fabs(count[2] / (double) DRAWS - exp(0.25) / sum) < 0.01);
	/* 0.46 of the probability is the first one's: with top_p 0.4 it is alone, with 0.5 there are two */
	sample.top_p = 0.4f;
	sample.random = UINT64_MAX;
	assert_int_equal(draw(hymt_kernels_scalar(), logits, &sample), 10);
	sample.top_p = 0.5f;
	assert_int_equal(draw(hymt_kernels_scalar(), logits, &sample), 20);
}

/* Without a finite largest logit there are no probabilities: the largest it is. */
static void
test_infinite(void **state)
{
	float		logits[COUNT] = {0};
	HymtSample	sample = {.temperature = 1, .top_p = 1, .random = UINT64_MAX};

	(void) state;
	logits[7] = logits[9] = INFINITY;
	assert_int_equal(draw(hymt_kernels_scalar(), logits, &sample), 7);
	for (int i = 0; i < COUNT; i++)
		logits[i] = -INFINITY;
	assert_int_equal(draw(hymt_kernels_scalar(), logits, &sample), 0);
	for (int i = 0; i < COUNT; i++)
		logits[i] = (float) i;
	sample.temperature = 1e-40f;
	assert_int_equal(draw(hymt_kernels_scalar(), logits, &sample), COUNT - 1);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_random),
		cmocka_unit_test(test_loops),
		cmocka_unit_test(test_repeats),
		cmocka_unit_test(test_draw),
		cmocka_unit_test(test_frequencies),
		cmocka_unit_test(test_infinite),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
