/*
 * tokenizer.h: text to token ids and back, as the model's files say.
 *
 * Two kinds stand behind this door: byte-level BPE with a chain of Split pre-tokenizers, from a tokenizer.json, and
 * SentencePiece, from a tokenizer.model. A tokenizer is immutable after loading: encode and decode may be called from
 * several threads at once.
 */
#ifndef HYMT_TOKENIZER_H
#define HYMT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "error.h"

typedef struct HymtTokenizer HymtTokenizer;

/* A growing list of ids, malloc'ed; a zeroed struct is an empty list; the holder frees `ids`. */
typedef struct HymtIds
{
	int32_t    *ids;
	size_t		count;
	size_t		capacity;
} HymtIds;

extern bool hymt_ids_append(HymtIds *list, int32_t id);	/* false: out of memory */
extern void hymt_ids_free(HymtIds *list);

/* Read `path` (a tokenizer.json). The tokenizer must be given to hymt_tokenizer_close(). */
extern bool hymt_tokenizer_open(HymtTokenizer **tokenizer, const char *path, HymtError *error);
/*
 * The tokenizer of a model, whose path is as in model.h: the metadata of a GGUF file; of a directory its tokenizer.json
 * when that is of a kind that can be read, else its tokenizer.model (SentencePiece), with what tokenizer_config.json,
 * special_tokens_map.json and added_tokens.json say.
 */
extern bool hymt_tokenizer_open_model(HymtTokenizer **tokenizer, const char *model, HymtError *error);
extern void hymt_tokenizer_close(HymtTokenizer *tokenizer);

/*
 * Append the ids of a UTF-8 text. Added tokens, special or not, are never matched inside it: a text that spells
 * "<|eos|>" becomes ordinary tokens, so that nobody's data can end or steer a prompt. No BOS or EOS is added.
 * Fails with HYMT_FAILURE_BAD_TEXT when the text is not valid UTF-8.
 */
extern bool hymt_tokenizer_encode(const HymtTokenizer *tokenizer, const char *text, size_t length, HymtIds *ids,
								  HymtError *error);

/*
 * The same, but fails with HYMT_FAILURE_TOO_LONG once more than `limit` ids come of the text: before anything is done
 * when its length alone tells, else as soon as they are counted.
 */
extern bool hymt_tokenizer_encode_limited(const HymtTokenizer *tokenizer, const char *text, size_t length, size_t limit,
										  HymtIds *ids, HymtError *error);

/*
 * The same for a text with control tokens before it, `behind` a control token: some tokenizers put a blank before a
 * whole text, which then is not there.
 */
extern bool hymt_tokenizer_encode_part(const HymtTokenizer *tokenizer, const char *text, size_t length, bool behind,
									   size_t limit, HymtIds *ids, HymtError *error);

/* The id of an added token by its exact content, or -1. For prompts and stop ids. */
extern int32_t hymt_tokenizer_added_id(const HymtTokenizer *tokenizer, const char *content);

/*
 * The added or control token whose spelling, the longest that fits, begins at `text`: its id, and *length bytes; -1 when
 * there is none. For templates, never for a user's text.
 */
extern int32_t hymt_tokenizer_added_at(const HymtTokenizer *tokenizer, const char *text, size_t *length);

/* The token that stands before every text, by the files; -1 when prompts spell it themselves, or there is none. */
extern int32_t hymt_tokenizer_bos(const HymtTokenizer *tokenizer);

/* The spelling of an added or control token as the files have it, malloc'ed; NULL for others, and without memory. */
extern char *hymt_tokenizer_added_spelling(const HymtTokenizer *tokenizer, int32_t id);

/* What it was read from: "tokenizer.json", "tokenizer.model" or "metadata of the GGUF file". */
extern const char *hymt_tokenizer_source(const HymtTokenizer *tokenizer);

/* Whether an id is an added token that the file marks special (a control token). */
extern bool hymt_tokenizer_is_special(const HymtTokenizer *tokenizer, int32_t id);

/* One more than the largest id that has a token. */
extern int hymt_tokenizer_size(const HymtTokenizer *tokenizer);

/*
 * One more than the largest id that a text can give or a file may rely on. A SentencePiece model's added tokens are not
 * among them: files list some for padding that the model has no row for.
 */
extern int hymt_tokenizer_text_size(const HymtTokenizer *tokenizer);

/* Size of the vocabulary without added tokens, number of merges, for inspect. */
extern void hymt_tokenizer_counts(const HymtTokenizer *tokenizer, int *vocabulary, int *merges, int *added);

/*
 * Append the bytes of some ids to a malloc'ed, NUL-terminated buffer. Special tokens are left out; ids without a token
 * are left out. Bytes that form no valid UTF-8 become U+FFFD, as the reference decoder does. Returns false when out of
 * memory. The caller frees *text.
 */
extern bool hymt_tokenizer_decode(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, char **text,
								  size_t *length);

/* The same for what a model says: a NUL, which no text of PostgreSQL may have, becomes U+FFFD. */
extern bool hymt_tokenizer_decode_answer(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, char **text,
										 size_t *length);

/*
 * Decoding of ids that come one by one. What a decoder gives is valid UTF-8 at every piece, and all pieces together are
 * what hymt_tokenizer_decode() makes of all ids: bytes that do not yet form a character wait for those to come.
 */
typedef struct HymtDecoder
{
	const HymtTokenizer *tokenizer;
	bool		for_answer;		/* as hymt_tokenizer_decode_answer(); the caller may set it before the first id */
	char	   *text;			/* what has been decoded since it was last taken; the decoder's memory */
	size_t		length;

	size_t		capacity;
	char	   *scratch;
	size_t		scratch_size;
	char		pending[4];		/* the beginning of a character */
	int			pending_count;
	bool		begun;			/* SentencePiece: the blank before the whole text is behind us */
	bool		blank_taken;
	bool		any;			/* there was text */
} HymtDecoder;

extern void hymt_decoder_start(HymtDecoder *decoder, const HymtTokenizer *tokenizer);
/* Append what an id adds to decoder->text. False: out of memory. */
extern bool hymt_decoder_add(HymtDecoder *decoder, int32_t id);
/* Append what is still pending: no more ids will come. */
extern bool hymt_decoder_end(HymtDecoder *decoder);
/* The caller has taken decoder->text. */
extern void hymt_decoder_taken(HymtDecoder *decoder);
extern void hymt_decoder_free(HymtDecoder *decoder);

#endif							/* HYMT_TOKENIZER_H */
