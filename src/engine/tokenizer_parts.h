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
	bool		nfc;			/* texts are normalised first */
	HymtPretokenizer *pretokenizer;
	HymtBpe    *bpe;
	HymtAddedToken *added;
	size_t		added_count;
	size_t		added_capacity;
	unsigned char *special;		/* by id, hymt_bpe_size(bpe) of them: 1 for control tokens */
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

#endif							/* HYMT_TOKENIZER_PARTS_H */
