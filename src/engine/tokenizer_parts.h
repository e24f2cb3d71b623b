/*
 * tokenizer_parts.h: what tokenizer.c and tokenizer_file.c share. Everybody else includes tokenizer.h.
 */
#ifndef HYMT_TOKENIZER_PARTS_H
#define HYMT_TOKENIZER_PARTS_H

#include "bpe.h"
#include "gguf.h"
#include "json_stream.h"
#include "pretokenizer.h"
#include "tokenizer.h"

typedef struct HymtAddedToken
{
	int32_t		id;
	bool		special;
} HymtAddedToken;

struct HymtTokenizer
{
	/* Set: a SentencePiece model, and of the rest only `special` is used. */
	struct HymtSentencePiece *sentencepiece;

	bool		from_gguf;		/* there is no tokenizer.json */
	bool		nfc;			/* texts are normalised first */
	HymtPretokenizer *pretokenizer;
	HymtBpe    *bpe;
	HymtAddedToken *added;
	size_t		added_count;
	size_t		added_capacity;
	unsigned char *special;		/* by id, hymt_tokenizer_size() of them: 1 for control tokens */
};

/*
 * tokenizer_file.c: fill in an empty tokenizer (its pretokenizer and bpe created) from the text of a tokenizer.json,
 * which is written to on the way. On failure the caller closes the tokenizer.
 */
extern bool hymt_tokenizer_read(HymtTokenizer *tokenizer, char *text, size_t length, HymtError *error);

/* Note that an id that has a spelling is an added token; when all are known, mark the special ones. */
extern bool hymt_tokenizer_append_added(HymtTokenizer *tokenizer, int32_t id, bool special, HymtError *error);
extern bool hymt_tokenizer_mark_special(HymtTokenizer *tokenizer, HymtError *error);

/* gguf_tokenizer.c: the same from the metadata of a GGUF file. */
extern bool hymt_tokenizer_read_gguf(HymtTokenizer *tokenizer, const HymtGguf *gguf, HymtError *error);

/*
 * tokenizer_sentencepiece.c: the same door for a SentencePiece model. open() fills in an empty tokenizer from the files
 * of a model directory; the others may only be called when tokenizer->sentencepiece is set.
 */
extern bool hymt_sentencepiece_open(HymtTokenizer *tokenizer, const char *directory, HymtError *error);
extern void hymt_sentencepiece_close(HymtTokenizer *tokenizer);
extern bool hymt_sentencepiece_encode(const HymtTokenizer *tokenizer, const char *text, size_t length, bool behind,
									  size_t limit, HymtIds *ids, HymtError *error);
extern int	hymt_sentencepiece_size(const HymtTokenizer *tokenizer);
extern void hymt_sentencepiece_counts(const HymtTokenizer *tokenizer, int *vocabulary, int *added);
extern int32_t hymt_sentencepiece_bos(const HymtTokenizer *tokenizer);
/* The id of a control piece or an added token, or -1. */
extern int32_t hymt_sentencepiece_added_id(const HymtTokenizer *tokenizer, const char *content, size_t length);
/* The spelling of an id as the files have it; data NULL when it has none. */
extern HymtJsonText hymt_sentencepiece_spelling(const HymtTokenizer *tokenizer, int32_t id);

/* The control pieces and added tokens, one after the other. */
extern size_t hymt_sentencepiece_marked(const HymtTokenizer *tokenizer);
extern int32_t hymt_sentencepiece_marked_id(const HymtTokenizer *tokenizer, size_t index);

/* What the decoder needs to know of an id's piece; NULL for added tokens and ids without a piece. */
extern const struct HymtSpmPiece *hymt_sentencepiece_piece(const HymtTokenizer *tokenizer, int32_t id);
extern const struct HymtSpmFile *hymt_sentencepiece_file(const HymtTokenizer *tokenizer);
/* The library's model, for tests. */
extern const struct HymtSpm *hymt_sentencepiece_model(const HymtTokenizer *tokenizer);

extern bool hymt_too_many_ids(size_t limit, HymtError *error);

#endif							/* HYMT_TOKENIZER_PARTS_H */
