/*
 * tokenizer.h: text to token ids and back, as the model's tokenizer.json says.
 *
 * Byte-level BPE with a chain of Split pre-tokenizers. A tokenizer is immutable after loading: encode and decode may be
 * called from several threads at once.
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
/* The same for the tokenizer.json of a model directory, or the metadata of a GGUF file; the path is as in model.h. */
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

/* The id of an added token by its exact content, or -1. For prompts and stop ids. */
extern int32_t hymt_tokenizer_added_id(const HymtTokenizer *tokenizer, const char *content);

/* The content of an added token, malloc'ed; NULL for other ids, and without memory. */
extern char *hymt_tokenizer_added_content(const HymtTokenizer *tokenizer, int32_t id);

/* Whether an id is an added token that the file marks special (a control token). */
extern bool hymt_tokenizer_is_special(const HymtTokenizer *tokenizer, int32_t id);

/* One more than the largest id that has a token. */
extern int hymt_tokenizer_size(const HymtTokenizer *tokenizer);

/* Size of the vocabulary without added tokens, number of merges, for inspect. */
extern void hymt_tokenizer_counts(const HymtTokenizer *tokenizer, int *vocabulary, int *merges, int *added);

/*
 * Append the bytes of some ids to a malloc'ed, NUL-terminated buffer. Special tokens are left out; ids without a token
 * are left out. Bytes that form no valid UTF-8 become U+FFFD, as the reference decoder does. Returns false when out of
 * memory. The caller frees *text.
 */
extern bool hymt_tokenizer_decode(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, char **text,
								  size_t *length);

#endif							/* HYMT_TOKENIZER_H */
