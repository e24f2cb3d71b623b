/*
 * decoding.h: rules about the tokens of an answer that need no logits: when it runs in a loop, and which random number
 * belongs to which token. How a token is drawn from logits with that number is sampling.h.
 */
#ifndef HYMT_DECODING_H
#define HYMT_DECODING_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* How tokens are chosen. Zeroed: the largest logit. */
typedef struct HymtSampling
{
	float		temperature;	/* 0: the largest logit, and nothing below counts */
	int32_t		top_k;			/* 0: no limit */
	float		top_p;			/* 0 < top_p <= 1; 0 is taken as 1: no limit */
	uint64_t	seed;
} HymtSampling;

/*
 * The random number for the token at this absolute position of a sequence: it depends on nothing but the seed and the
 * position (doc/numerics.md).
 */
extern uint64_t hymt_random_at(uint64_t seed, uint64_t position);

/*
 * A loop: a unit of 1 … 32 tokens that stands at least four times in a row, over at least 24 tokens, and more often in
 * a row than anything does in the source.
 */
#define HYMT_LOOP_UNIT_MAX 32
#define HYMT_LOOP_REPEATS_MIN 4
#define HYMT_LOOP_TOKENS_MIN 24

typedef struct HymtLoopWatch
{
	int32_t		source_repeats;
	int32_t		run[HYMT_LOOP_UNIT_MAX + 1];	/* last tokens, each equal to the one that many before it */
} HymtLoopWatch;

/* To be called for each token, when `count` have come: whether they end in a loop. */
extern bool hymt_loop_watch(HymtLoopWatch *watch, const int32_t *tokens, int32_t count);

/* How often in a row any unit stands in these ids or this text; 1 when nothing is repeated, 0 when there is nothing. */
extern int32_t hymt_repeats_of_ids(const int32_t *ids, int32_t count);
extern int32_t hymt_repeats_of_text(const char *text, size_t length);

#endif							/* HYMT_DECODING_H */
