/*
 * gguf_tokenizer.c: the tokenizer that the metadata of a GGUF file describe.
 *
 * Runs in the engine program, while a model is loaded. The file is untrusted; the container has been checked (gguf.c).
 * What it says is followed or refused by name. Pre-tokenizers are only named in such files: the patterns stand here.
 */
#include "tokenizer_parts.h"

#include <string.h>

#define SHOWN 48				/* bytes of a name from the file that a message repeats */

/* What a token is, by tokenizer.ggml.token_type. */
#define TYPE_NORMAL 1
#define TYPE_CONTROL 3
#define TYPE_USER_DEFINED 4
#define TYPE_UNUSED 5

#define MAX_STEPS 3

static const struct
{
	const char *name;
	const char *steps[MAX_STEPS];
}			pretokenizers[] = {
	{"hunyuan", {
		"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|"
		"\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
	}},
	{"hunyuan-dense", {
		"\\p{N}{1,3}",
		"[\u4E00-\u9FA5\u3040-\u309F\u30A0-\u30FF]+",
		"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+|"
		" ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"
	}},
};

static bool
broken(const HymtGguf *gguf, const char *what, HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: %s", hymt_gguf_path(gguf), what);
}

/* A string of the metadata. */
static bool
read_name(const HymtGguf *gguf, const char *key, HymtJsonText *name, HymtError *error)
{
	const HymtGgufValue *value = hymt_gguf_value(gguf, key);

	if (value != NULL && hymt_gguf_text(value, name))
		return true;
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: %s is missing or no string", hymt_gguf_path(gguf), key);
}

static bool
unsupported(const HymtGguf *gguf, const char *key, const HymtJsonText *name, const char *supported, HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s: %s \"%.*s\" is not supported; supported: %s",
					 hymt_gguf_path(gguf), key, (int) (name->length < SHOWN ? name->length : SHOWN), name->data,
					 supported);
}

static bool
read_pretokenizer(HymtTokenizer *tokenizer, const HymtGguf *gguf, HymtError *error)
{
	static const char key[] = "tokenizer.ggml.pre";
	HymtJsonText name;

	if (!read_name(gguf, key, &name, error))
		return false;
	for (size_t i = 0; i < sizeof(pretokenizers) / sizeof(pretokenizers[0]); i++)
		if (hymt_json_text_is(&name, pretokenizers[i].name))
		{
			for (int step = 0; step < MAX_STEPS && pretokenizers[i].steps[step] != NULL; step++)
				if (!hymt_pretokenizer_add_regex(tokenizer->pretokenizer, pretokenizers[i].steps[step],
												 strlen(pretokenizers[i].steps[step]), error))
					return false;
			return true;
		}
	return unsupported(gguf, key, &name, "hunyuan, hunyuan-dense", error);
}

/* An array of strings or of integers. */
static const HymtGgufValue *
read_array(const HymtGguf *gguf, const char *key, bool strings, HymtError *error)
{
	const HymtGgufValue *value = hymt_gguf_value(gguf, key);
	int64_t		ignored;

	if (value != NULL && value->type == HYMT_GGUF_ARRAY && value->count > 0 &&
		(strings ? value->element == HYMT_GGUF_STRING : hymt_gguf_integer_at(value, 0, &ignored)))
		return value;
	hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: %s is missing or no list of %s", hymt_gguf_path(gguf), key,
			  strings ? "strings" : "integers");
	return NULL;
}

/*
 * Go through all tokens and add those of the vocabulary or, in a second turn, those beside it. Unused ones have an id,
 * but no token.
 */
static bool
read_tokens(HymtTokenizer *tokenizer, const HymtGguf *gguf, const HymtGgufValue *tokens,
			const HymtGgufValue *token_types, bool beside, HymtError *error)
{
	const unsigned char *at = tokens->data;

	for (uint64_t id = 0; id < tokens->count; id++)
	{
		HymtJsonText token = hymt_gguf_next_text(&at);
		int64_t		type = 0;
		bool		ok = true;

		hymt_gguf_integer_at(token_types, id, &type);
		if (type == TYPE_NORMAL && !beside)
			ok = hymt_bpe_add_token(tokenizer->bpe, &token, (int64_t) id, error);
		else if ((type == TYPE_CONTROL || type == TYPE_USER_DEFINED) && beside)
			ok = hymt_bpe_add_outside(tokenizer->bpe, &token, (int64_t) id, error) &&
				hymt_tokenizer_append_added(tokenizer, (int32_t) id, type == TYPE_CONTROL, error);
		else if (type != TYPE_NORMAL && type != TYPE_CONTROL && type != TYPE_USER_DEFINED && type != TYPE_UNUSED)
			return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s: token %llu has the type %lld, which is not "
							 "supported", hymt_gguf_path(gguf), (unsigned long long) id, (long long) type);
		if (!ok)
			return hymt_fail(error, error->failure, "%s: %s", hymt_gguf_path(gguf), error->message);
	}
	return true;
}

static bool
read_merges(HymtTokenizer *tokenizer, const HymtGguf *gguf, HymtError *error)
{
	const HymtGgufValue *merges = read_array(gguf, "tokenizer.ggml.merges", true, error);
	const unsigned char *at;

	if (merges == NULL)
		return false;
	at = merges->data;
	for (uint64_t i = 0; i < merges->count; i++)
	{
		HymtJsonText left = hymt_gguf_next_text(&at);
		const char *end = left.data + left.length;
		const char *blank = memchr(left.data, ' ', left.length);
		HymtJsonText right;

		/* the byte alphabet has no blank */
		if (blank == NULL || memchr(blank + 1, ' ', (size_t) (end - blank - 1)) != NULL)
			return broken(gguf, "a merge is not two tokens with a blank between them", error);
		left.length = (size_t) (blank - left.data);
		right = (HymtJsonText) {blank + 1, (size_t) (end - blank - 1)};
		if (!hymt_bpe_add_merge(tokenizer->bpe, &left, &right, error))
			return hymt_fail(error, error->failure, "%s: %s", hymt_gguf_path(gguf), error->message);
	}
	return true;
}

bool
hymt_tokenizer_read_gguf(HymtTokenizer *tokenizer, const HymtGguf *gguf, HymtError *error)
{
	const HymtGgufValue *tokens;
	const HymtGgufValue *token_types;
	HymtJsonText model;

	if (!read_name(gguf, "tokenizer.ggml.model", &model, error))
		return false;
	if (!hymt_json_text_is(&model, "gpt2"))
		return unsupported(gguf, "tokenizer.ggml.model", &model, "gpt2", error);
	tokens = read_array(gguf, "tokenizer.ggml.tokens", true, error);
	token_types = tokens == NULL ? NULL : read_array(gguf, "tokenizer.ggml.token_type", false, error);
	if (token_types == NULL)
		return false;
	if (token_types->count != tokens->count)
		return broken(gguf, "tokenizer.ggml has not one type for each token", error);
	if (tokens->count > HYMT_BPE_MAX_ID)
		return broken(gguf, "tokenizer.ggml.tokens lists too many tokens", error);
	if (!read_pretokenizer(tokenizer, gguf, error) ||
		!read_tokens(tokenizer, gguf, tokens, token_types, false, error) ||
		!read_merges(tokenizer, gguf, error))
		return false;
	if (hymt_bpe_vocabulary(tokenizer->bpe) == 0)
		return broken(gguf, "the tokenizer has no ordinary token", error);
	/* whole pieces of the vocabulary are found by its merges */
	hymt_bpe_finish(tokenizer->bpe, false);
	return read_tokens(tokenizer, gguf, tokens, token_types, true, error) &&
		hymt_tokenizer_mark_special(tokenizer, error);
}
