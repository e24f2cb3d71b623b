/*
 * bench_texts.h: how fast a model translates given texts.
 */
#ifndef HYMT_BENCH_TEXTS_H
#define HYMT_BENCH_TEXTS_H

#include "options.h"

typedef struct HymtBenchTexts
{
	const char *file;			/* one text a line */
	const char *from;
	const char *to;
	long		max_new;		/* tokens of an answer, at most; 0: as everywhere else */
} HymtBenchTexts;

/* Translates all texts once, as one batch, and prints the rates. False: it could not, which has been said. */
extern bool hymt_bench_texts(const HymtBenchTexts *texts, const HymtOptions *options);

/* Seconds since some moment. */
extern double hymt_bench_clock(void);

#endif							/* HYMT_BENCH_TEXTS_H */
