/*
 * tokenizer_file.c: reading a tokenizer.json.
 *
 * Runs in the engine program, while a model is loaded. The file is untrusted. What it says is either followed exactly
 * or refused by name: a tokenizer that is nearly right gives text that is nearly right.
 *
 * Not read, because they have no part here: post_processor (prompts write their control tokens themselves), truncation
 * and padding (a text is never cut), and how added tokens are found in text (they never are).
 */
#include "tokenizer_parts.h"

#include <stdlib.h>
#include <string.h>

#define SHOWN 48				/* bytes of a name from the file that a message repeats */

typedef struct Reader
{
	HymtJson	json;
	HymtTokenizer *tokenizer;
	HymtError  *error;

	/* Values met before what they depend on; read when that is known. */
	char	   *added_tokens;
	char	   *merges;

	bool		seen_added_tokens;
	bool		seen_model;
	bool		seen_normalizer;
	bool		seen_pretokenizer;
	bool		seen_decoder;
	bool		seen_vocab;
	bool		seen_merges;
	bool		seen_type;
	bool		seen_ignore_merges;
	bool		byte_level;		/* the ByteLevel step of the pre-tokenizer, which is the last one */
	int			decoders;
	bool		ignore_merges;
} Reader;

/* One normalizer, pre-tokenizer or decoder. */
typedef struct Component
{
	HymtJsonText type;			/* data NULL: the value is null */
	char	   *children;		/* the array of a Sequence, NULL when there is none */
	HymtJsonText pattern;		/* data NULL: none */
	bool		pattern_is_regex;
	HymtJsonText behavior;
	bool		invert;
	bool		add_prefix_space;
	bool		use_regex;
} Component;

/* --- errors -------------------------------------------------------------------------------------------------- */

/* Sets the error for the JSON problem that has been met. */
static bool
broken_json(Reader *reader)
{
	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s (at byte %zu)", reader->json.problem,
					 reader->json.offset);
}

static bool
broken(Reader *reader, const char *what)
{
	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "%s", what);
}

/* A name from the file as it may stand in a message: short, printable. */
static const char *
show(const HymtJsonText *text, char shown[SHOWN + 1])
{
	size_t		length = text->length < SHOWN ? text->length : SHOWN;

	for (size_t i = 0; i < length; i++)
	{
		char		c = text->data[i];

		shown[i] = c >= 0x20 && c < 0x7F ? c : '?';
	}
	shown[length] = '\0';
	return shown;
}

static bool
unsupported(Reader *reader, const char *what, const HymtJsonText *found)
{
	char		shown[SHOWN + 1];

	return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED, "%s \"%s\" is not supported", what,
					 show(found, shown));
}

/* Note that a member has been met; false when it was met before. */
static bool
once(Reader *reader, bool *seen, const char *name)
{
	if (*seen)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN, "\"%s\" is there twice", name);
	*seen = true;
	return true;
}

/* Whether the walk through a container ended well. */
static bool
ended(Reader *reader)
{
	return reader->json.problem == NULL || broken_json(reader);
}

static bool
skip(Reader *reader)
{
	return hymt_json_skip(&reader->json) || broken_json(reader);
}

/* Skip a value that will be read later, remembering where it starts. */
static bool
put_off(Reader *reader, char **where)
{
	hymt_json_peek(&reader->json);
	*where = reader->json.at;
	return skip(reader);
}

static bool
read_string(Reader *reader, HymtJsonText *value)
{
	return hymt_json_string(&reader->json, value) || broken_json(reader);
}

static bool
read_boolean(Reader *reader, bool *value)
{
	return hymt_json_boolean(&reader->json, value) || broken_json(reader);
}

/* --- normalizer, pre-tokenizer, decoder ---------------------------------------------------------------------- */

/* {"Regex": "…"} or {"String": "…"} */
static bool
read_pattern(Reader *reader, Component *component)
{
	HymtJson   *json = &reader->json;
	HymtJsonText key;

	hymt_json_enter(json, '{');
	while (hymt_json_next(json) && hymt_json_key(json, &key))
	{
		component->pattern_is_regex = hymt_json_text_is(&key, "Regex");
		if (!component->pattern_is_regex && !hymt_json_text_is(&key, "String"))
			return unsupported(reader, "the pattern kind", &key);
		if (!read_string(reader, &component->pattern))
			return false;
	}
	return ended(reader);
}

static bool
read_component_member(Reader *reader, Component *component, const HymtJsonText *key)
{
	if (hymt_json_text_is(key, "type"))
		return read_string(reader, &component->type);
	if (hymt_json_text_is(key, "normalizers") || hymt_json_text_is(key, "pretokenizers") ||
		hymt_json_text_is(key, "decoders"))
		return put_off(reader, &component->children);
	if (hymt_json_text_is(key, "pattern") && hymt_json_peek(&reader->json) == HYMT_JSON_OBJECT)
		return read_pattern(reader, component);
	if (hymt_json_text_is(key, "behavior"))
		return read_string(reader, &component->behavior);
	if (hymt_json_text_is(key, "invert"))
		return read_boolean(reader, &component->invert);
	if (hymt_json_text_is(key, "add_prefix_space") && hymt_json_peek(&reader->json) == HYMT_JSON_BOOLEAN)
		return read_boolean(reader, &component->add_prefix_space);
	if (hymt_json_text_is(key, "use_regex"))
		return read_boolean(reader, &component->use_regex);
	return skip(reader);
}

static bool
read_component(Reader *reader, Component *component)
{
	HymtJson   *json = &reader->json;
	HymtJsonText key;

	memset(component, 0, sizeof(*component));
	component->use_regex = true;
	if (hymt_json_peek(json) == HYMT_JSON_NULL)
		return hymt_json_null(json) || broken_json(reader);
	hymt_json_enter(json, '{');
	while (hymt_json_next(json) && hymt_json_key(json, &key))
		if (!read_component_member(reader, component, &key))
			return false;
	if (!ended(reader))
		return false;
	if (component->type.data == NULL)
		return broken(reader, "a normalizer, pre-tokenizer or decoder without a type");
	return true;
}

/*
 * Read the parts of a Sequence, each with `read_part`. They may be Sequences themselves, but no deeper than the JSON
 * reader allows, which has passed over them once.
 */
static bool
read_children(Reader *reader, const Component *sequence, bool (*read_part) (Reader *reader))
{
	HymtJson   *json = &reader->json;
	char	   *behind = json->at;

	if (sequence->children == NULL)
		return broken(reader, "a Sequence without its parts");
	json->at = sequence->children;
	hymt_json_enter(json, '[');
	while (hymt_json_next(json))
		if (!read_part(reader))
			return false;
	if (!ended(reader))
		return false;
	json->at = behind;
	return true;
}

static bool
read_normalizer(Reader *reader)
{
	Component	normalizer;

	if (!read_component(reader, &normalizer))
		return false;
	if (normalizer.type.data == NULL)
		return true;
	if (hymt_json_text_is(&normalizer.type, "Sequence"))
		return read_children(reader, &normalizer, read_normalizer);
	if (!hymt_json_text_is(&normalizer.type, "NFC"))
		return unsupported(reader, "the normalizer", &normalizer.type);
	reader->tokenizer->nfc = true;
	return true;
}

static bool
add_split(Reader *reader, const Component *split)
{
	HymtPretokenizer *pretokenizer = reader->tokenizer->pretokenizer;

	if (split->pattern.data == NULL)
		return broken(reader, "a Split without a pattern");
	if (split->behavior.data == NULL)
		return broken(reader, "a Split without a behavior");
	if (!hymt_json_text_is(&split->behavior, "Isolated"))
		return unsupported(reader, "the Split behavior", &split->behavior);
	if (split->invert)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED, "an inverted Split is not supported");
	if (split->pattern_is_regex)
		return hymt_pretokenizer_add_regex(pretokenizer, split->pattern.data, split->pattern.length, reader->error);
	return hymt_pretokenizer_add_literal(pretokenizer, split->pattern.data, split->pattern.length, reader->error);
}

static bool
add_byte_level(Reader *reader, const Component *byte_level)
{
	if (byte_level->add_prefix_space)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "ByteLevel with add_prefix_space is not supported");
	reader->byte_level = true;
	return !byte_level->use_regex || hymt_pretokenizer_add_byte_level(reader->tokenizer->pretokenizer, reader->error);
}

static bool
read_pretokenizer(Reader *reader)
{
	Component	step;

	if (!read_component(reader, &step))
		return false;
	if (step.type.data == NULL)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "a tokenizer without pre_tokenizer is not supported");
	if (hymt_json_text_is(&step.type, "Sequence"))
		return read_children(reader, &step, read_pretokenizer);
	/* it replaces bytes by other characters, which a later step would see */
	if (reader->byte_level)
		return unsupported(reader, "behind ByteLevel, the pre_tokenizer", &step.type);
	if (hymt_json_text_is(&step.type, "Split"))
		return add_split(reader, &step);
	if (hymt_json_text_is(&step.type, "ByteLevel"))
		return add_byte_level(reader, &step);
	return unsupported(reader, "the pre_tokenizer", &step.type);
}

static bool
read_decoder(Reader *reader)
{
	Component	decoder;

	if (!read_component(reader, &decoder))
		return false;
	if (decoder.type.data == NULL)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED, "a tokenizer without decoder is not supported");
	if (hymt_json_text_is(&decoder.type, "Sequence"))
		return read_children(reader, &decoder, read_decoder);
	if (!hymt_json_text_is(&decoder.type, "ByteLevel") || reader->decoders++ > 0)
		return unsupported(reader, "the decoder", &decoder.type);
	return true;
}

/* --- model --------------------------------------------------------------------------------------------------- */

static bool
read_vocab(Reader *reader)
{
	HymtJson   *json = &reader->json;
	HymtJsonText token;
	int64_t		id;

	hymt_json_enter(json, '{');
	while (hymt_json_next(json) && hymt_json_key(json, &token) && hymt_json_integer(json, &id))
		if (!hymt_bpe_add_token(reader->tokenizer->bpe, &token, id, reader->error))
			return false;
	return ended(reader);
}

/* "left right"; the byte alphabet has no blank. */
static bool
split_merge(Reader *reader, const HymtJsonText *merge, HymtJsonText *left, HymtJsonText *right)
{
	const char *end = merge->data + merge->length;
	const char *blank = memchr(merge->data, ' ', merge->length);

	if (blank == NULL || memchr(blank + 1, ' ', (size_t) (end - blank - 1)) != NULL)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_BROKEN,
						 "merge %d is not two tokens with a blank between them",
						 hymt_bpe_merges(reader->tokenizer->bpe));
	left->data = merge->data;
	left->length = (size_t) (blank - merge->data);
	right->data = blank + 1;
	right->length = (size_t) (end - right->data);
	return true;
}

static bool
read_merge(Reader *reader)
{
	static const char version[] = "#version";
	HymtJson   *json = &reader->json;
	HymtJsonText merge;
	HymtJsonText left;
	HymtJsonText right;

	if (hymt_json_peek(json) == HYMT_JSON_ARRAY)
	{
		hymt_json_enter(json, '[');
		if (!hymt_json_next(json) || !hymt_json_string(json, &left) || !hymt_json_next(json) ||
			!hymt_json_string(json, &right) || hymt_json_next(json) || json->problem != NULL)
			return json->problem != NULL ? broken_json(reader) : broken(reader, "a merge that is not a pair of tokens");
	}
	else
	{
		if (!read_string(reader, &merge))
			return false;
		/* a comment that old merge files start with */
		if (merge.length >= sizeof(version) - 1 && memcmp(merge.data, version, sizeof(version) - 1) == 0)
			return true;
		if (!split_merge(reader, &merge, &left, &right))
			return false;
	}
	return hymt_bpe_add_merge(reader->tokenizer->bpe, &left, &right, reader->error);
}

static bool
read_merges(Reader *reader)
{
	HymtJson   *json = &reader->json;

	hymt_json_enter(json, '[');
	while (hymt_json_next(json))
		if (!read_merge(reader))
			return false;
	return ended(reader);
}

static bool
read_type(Reader *reader)
{
	HymtJsonText type;

	if (!read_string(reader, &type))
		return false;
	return hymt_json_text_is(&type, "BPE") || unsupported(reader, "the model type", &type);
}

/* A member that must have the value that means "off": null, false, or an empty string. */
static bool
read_off(Reader *reader, const HymtJsonText *key)
{
	HymtJson   *json = &reader->json;
	HymtJsonText text = {"", 0};
	bool		on = false;
	char		shown[SHOWN + 1];

	switch (hymt_json_peek(json))
	{
		case HYMT_JSON_NULL:
			return hymt_json_null(json) || broken_json(reader);
		case HYMT_JSON_BOOLEAN:
			if (!read_boolean(reader, &on))
				return false;
			break;
		case HYMT_JSON_STRING:
			if (!read_string(reader, &text))
				return false;
			on = text.length > 0 || hymt_json_text_is(key, "unk_token");
			break;
		default:
			on = true;
			break;
	}
	if (on)
		return hymt_fail(reader->error, HYMT_FAILURE_MODEL_UNSUPPORTED, "a model with %s set is not supported",
						 show(key, shown));
	return true;
}

static bool
read_model_member(Reader *reader, const HymtJsonText *key)
{
	static const char *const off[] = {
		"dropout", "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", "byte_fallback",
	};

	if (hymt_json_text_is(key, "type"))
		return once(reader, &reader->seen_type, "type") && read_type(reader);
	if (hymt_json_text_is(key, "vocab"))
		return once(reader, &reader->seen_vocab, "vocab") && read_vocab(reader);
	if (hymt_json_text_is(key, "merges"))
		return once(reader, &reader->seen_merges, "merges") &&
			(reader->seen_vocab ? read_merges(reader) : put_off(reader, &reader->merges));
	if (hymt_json_text_is(key, "ignore_merges"))
		return once(reader, &reader->seen_ignore_merges, "ignore_merges") &&
			read_boolean(reader, &reader->ignore_merges);
	for (size_t i = 0; i < sizeof(off) / sizeof(off[0]); i++)
		if (hymt_json_text_is(key, off[i]))
			return read_off(reader, key);
	return skip(reader);
}

static bool
read_model(Reader *reader)
{
	HymtJson   *json = &reader->json;
	HymtJsonText key;

	hymt_json_enter(json, '{');
	while (hymt_json_next(json) && hymt_json_key(json, &key))
		if (!read_model_member(reader, &key))
			return false;
	if (!ended(reader))
		return false;
	if (!reader->seen_vocab || hymt_bpe_vocabulary(reader->tokenizer->bpe) == 0)
		return broken(reader, "a model without vocab");
	if (!reader->seen_merges)
		return broken(reader, "a model without merges");
	if (reader->merges != NULL)
	{
		char	   *behind = json->at;

		json->at = reader->merges;
		if (!read_merges(reader))
			return false;
		json->at = behind;
	}
	hymt_bpe_finish(reader->tokenizer->bpe, reader->ignore_merges);
	return true;
}

/* --- added tokens -------------------------------------------------------------------------------------------- */

bool
hymt_tokenizer_append_added(HymtTokenizer *tokenizer, int32_t id, bool special, HymtError *error)
{
	if (tokenizer->added_count == tokenizer->added_capacity)
	{
		size_t		capacity = tokenizer->added_capacity == 0 ? 64 : tokenizer->added_capacity * 2;
		HymtAddedToken *added = realloc(tokenizer->added, capacity * sizeof(*added));

		if (added == NULL)
			return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
		tokenizer->added = added;
		tokenizer->added_capacity = capacity;
	}
	tokenizer->added[tokenizer->added_count].id = id;
	tokenizer->added[tokenizer->added_count].special = special;
	tokenizer->added_count++;
	return true;
}

static bool
read_added_token(Reader *reader)
{
	HymtJson   *json = &reader->json;
	HymtJsonText key;
	HymtJsonText content = {NULL, 0};
	int64_t		id = -1;
	bool		special = false;

	hymt_json_enter(json, '{');
	while (hymt_json_next(json) && hymt_json_key(json, &key))
	{
		bool		ok;

		if (hymt_json_text_is(&key, "id"))
			ok = hymt_json_integer(json, &id) || broken_json(reader);
		else if (hymt_json_text_is(&key, "content"))
			ok = read_string(reader, &content);
		else if (hymt_json_text_is(&key, "special"))
			ok = read_boolean(reader, &special);
		else
			ok = skip(reader);
		if (!ok)
			return false;
	}
	if (!ended(reader))
		return false;
	if (content.data == NULL || content.length == 0 || id < 0)
		return broken(reader, "an added token without id or content");
	return hymt_bpe_add_outside(reader->tokenizer->bpe, &content, id, reader->error) &&
		hymt_tokenizer_append_added(reader->tokenizer, (int32_t) id, special, reader->error);
}

static bool
read_added_tokens(Reader *reader)
{
	HymtJson   *json = &reader->json;

	if (reader->added_tokens == NULL)
		return true;
	json->at = reader->added_tokens;
	hymt_json_enter(json, '[');
	while (hymt_json_next(json))
		if (!read_added_token(reader))
			return false;
	return ended(reader);
}

bool
hymt_tokenizer_mark_special(HymtTokenizer *tokenizer, HymtError *error)
{
	tokenizer->special = calloc((size_t) hymt_bpe_size(tokenizer->bpe), 1);
	if (tokenizer->special == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
	for (size_t i = 0; i < tokenizer->added_count; i++)
		if (tokenizer->added[i].special)
			tokenizer->special[tokenizer->added[i].id] = 1;
	/* some files list control tokens in the vocabulary, too, where a user's text would find them */
	return hymt_bpe_hide(tokenizer->bpe, tokenizer->special, error);
}

/* --- the file ------------------------------------------------------------------------------------------------ */

static bool
read_member(Reader *reader, const HymtJsonText *key)
{
	if (hymt_json_text_is(key, "model"))
		return once(reader, &reader->seen_model, "model") && read_model(reader);
	if (hymt_json_text_is(key, "normalizer"))
		return once(reader, &reader->seen_normalizer, "normalizer") && read_normalizer(reader);
	if (hymt_json_text_is(key, "pre_tokenizer"))
		return once(reader, &reader->seen_pretokenizer, "pre_tokenizer") && read_pretokenizer(reader);
	if (hymt_json_text_is(key, "decoder"))
		return once(reader, &reader->seen_decoder, "decoder") && read_decoder(reader);
	if (hymt_json_text_is(key, "added_tokens"))
		return once(reader, &reader->seen_added_tokens, "added_tokens") && put_off(reader, &reader->added_tokens);
	return skip(reader);
}

bool
hymt_tokenizer_read(HymtTokenizer *tokenizer, char *text, size_t length, HymtError *error)
{
	Reader		reader = {.tokenizer = tokenizer, .error = error};
	HymtJson   *json = &reader.json;
	HymtJsonText key;

	hymt_json_start(json, text, length);
	hymt_json_enter(json, '{');
	while (hymt_json_next(json) && hymt_json_key(json, &key))
		if (!read_member(&reader, &key))
			return false;
	if (!ended(&reader))
		return false;
	if (!hymt_json_finish(json))
		return broken_json(&reader);
	if (!reader.seen_model)
		return broken(&reader, "there is no \"model\"");
	if (!reader.byte_level)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "a pre_tokenizer without ByteLevel is not supported");
	if (reader.decoders == 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
						 "a tokenizer without a ByteLevel decoder is not supported");
	return read_added_tokens(&reader) && hymt_tokenizer_mark_special(tokenizer, error);
}
