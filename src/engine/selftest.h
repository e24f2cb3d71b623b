/*
 * selftest.h: what `hymt-engine selftest` asks a model: texts to compare instances with, and answers that are known.
 */
#ifndef HYMT_SELFTEST_H
#define HYMT_SELFTEST_H

#include "model.h"

#define HYMT_SELFTEST_TEXTS 50

/* Short texts of many languages and kinds, in NFC; a language of hymt's table for each. */
typedef struct HymtSelftestText
{
	const char *language;
	const char *text;
} HymtSelftestText;

extern const HymtSelftestText hymt_selftest_texts[HYMT_SELFTEST_TEXTS];

/* A greedy answer, without penalty, that another implementation gave. */
typedef struct HymtKnownAnswer
{
	const char *model;			/* for the report */
	const char *name;			/* of the model, or NULL when family and shape tell */
	HymtFamily	family;
	int			hidden;
	int			layers;
	const char *prompt;			/* the user's turn */
	const char *answer;			/* the whole one; or NULL */
	const char *words[5];		/* or some, one of which is in it */
} HymtKnownAnswer;

extern const HymtKnownAnswer hymt_known_answers[];
extern const int hymt_known_answer_count;

#endif							/* HYMT_SELFTEST_H */
