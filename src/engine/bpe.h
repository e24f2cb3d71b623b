/*
 * bpe.h: a byte-level BPE vocabulary: tokens, merges, and the encoding of one piece of text.
 *
 * Byte-level files spell the 256 bytes with 256 printable characters (the byte alphabet), so that a token can be
 * written as a string. A token's spelling is kept as the file has it; bytes are made of it when decoding.
 */
#ifndef HYMT_BPE_H
#define HYMT_BPE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"
#include "json_stream.h"
#include "tokenizer.h"

/* Larger ids are refused: real vocabularies have a few hundred thousand, and tables reach up to the largest id. */
#define HYMT_BPE_MAX_ID ((1 << 22) - 1)

typedef struct HymtBpe HymtBpe;

/* Working memory of one encoding thread; zeroed at first. */
typedef struct HymtBpeScratch
{
	struct HymtBpeSymbol *symbols;
	uint64_t   *heap;
	char	   *spelling;
	size_t		capacity;		/* bytes of a piece that fit */
} HymtBpeScratch;

/* `expected` is a guess at the number of tokens. NULL: out of memory. */
extern HymtBpe *hymt_bpe_create(size_t expected);
extern void hymt_bpe_free(HymtBpe *bpe);

/* The whole vocabulary comes before the first merge, merges in order of falling priority, then hymt_bpe_finish(). */
extern bool hymt_bpe_add_token(HymtBpe *bpe, const HymtJsonText *spelling, int64_t id, HymtError *error);
extern bool hymt_bpe_add_merge(HymtBpe *bpe, const HymtJsonText *left, const HymtJsonText *right, HymtError *error);
extern void hymt_bpe_finish(HymtBpe *bpe, bool ignore_merges);

/*
 * A token beside the vocabulary: it has an id and is decoded, but no text is ever encoded to it. When the vocabulary
 * has the same spelling, it must have it under the same id.
 */
extern bool hymt_bpe_add_outside(HymtBpe *bpe, const HymtJsonText *spelling, int64_t id, HymtError *error);

/*
 * Hide the tokens of the vocabulary that are marked in special[hymt_bpe_size(bpe)]: no text is encoded to them from now
 * on, nor are merges that lead to them followed. Comes when everything has been added. False when one is the token of a
 * single byte, without which texts cannot be encoded.
 */
extern bool hymt_bpe_hide(HymtBpe *bpe, const unsigned char *special, HymtError *error);

/* The spelling of an id; data is NULL when it has none. Any id may be asked for. */
extern HymtJsonText hymt_bpe_spelling(const HymtBpe *bpe, int64_t id);

extern int	hymt_bpe_size(const HymtBpe *bpe);	/* largest id + 1 */
extern int	hymt_bpe_vocabulary(const HymtBpe *bpe);
extern int	hymt_bpe_merges(const HymtBpe *bpe);

/* No token of the vocabulary stands for more bytes than this. */
extern size_t hymt_bpe_longest(const HymtBpe *bpe);

/*
 * Append the ids of one piece of text. Bytes that are no token of the vocabulary are left out, as the reference does
 * without an unknown token. Takes O(n log n) for a piece of n bytes. False: out of memory.
 */
extern bool hymt_bpe_encode(const HymtBpe *bpe, HymtBpeScratch *scratch, const char *piece, size_t length,
							HymtIds *ids);
extern void hymt_bpe_scratch_free(HymtBpeScratch *scratch);

/* The bytes that a spelling stands for, at most spelling->length of them, to `to`; returns how many. */
extern size_t hymt_bpe_bytes(const HymtJsonText *spelling, char *to);

#endif							/* HYMT_BPE_H */
