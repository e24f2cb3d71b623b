/*
 * pretokenizer.h: cutting a text into the pieces that BPE works on, as a chain of Split steps says.
 */
#ifndef HYMT_PRETOKENIZER_H
#define HYMT_PRETOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct HymtPretokenizer HymtPretokenizer;

extern HymtPretokenizer *hymt_pretokenizer_create(void);	/* NULL: out of memory */
extern void hymt_pretokenizer_free(HymtPretokenizer *pretokenizer);

/* Append a step: cut every piece there is into the matches of a pattern and what lies between them. */
extern bool hymt_pretokenizer_add_regex(HymtPretokenizer *pretokenizer, const char *pattern, size_t length,
										HymtError *error);
extern bool hymt_pretokenizer_add_literal(HymtPretokenizer *pretokenizer, const char *text, size_t length,
										  HymtError *error);

/* Append the step that the ByteLevel pre-tokenizer contains (use_regex). */
extern bool hymt_pretokenizer_add_byte_level(HymtPretokenizer *pretokenizer, HymtError *error);

typedef struct HymtPiece
{
	uint32_t	start;
	uint32_t	length;			/* never 0 */
} HymtPiece;

/* A growing list, malloc'ed; a zeroed struct is an empty list. */
typedef struct HymtPieces
{
	HymtPiece  *pieces;
	size_t		count;
	size_t		capacity;
} HymtPieces;

extern void hymt_pieces_free(HymtPieces *list);

/*
 * Cut a text (well-formed UTF-8, at most INT32_MAX bytes) into pieces, which together are the whole text in order.
 * *pieces must be empty; on success its holder frees it. A pattern that takes too long on the text is an error.
 * It stops once there are more than `most` pieces: the whole text would then give more as well.
 */
extern bool hymt_pretokenizer_split(const HymtPretokenizer *pretokenizer, const char *text, size_t length, size_t most,
									HymtPieces *pieces, HymtError *error);

#endif							/* HYMT_PRETOKENIZER_H */
