/*
 * tokenizer_sentencepiece.c: a tokenizer that is a SentencePiece model.
 *
 * Runs in the engine program. Owns the model's bytes, the library's objects and the added tokens. Which tokens there are
 * besides the model's pieces, and which of all are control tokens, stands in up to three files beside it:
 * added_tokens.json, tokenizer_config.json, special_tokens_map.json. They are untrusted like the model.
 */
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "files.h"
#include "sentencepiece_file.h"
#include "sentencepiece_shim.h"
#include "tokenizer_parts.h"

#define MODEL "tokenizer.model"
#define CONFIG_MAX (16 * 1024 * 1024)

/* They are looked for one after the other; real models have a few, some a thousand. */
#define ADDED_MAX 8192

/* A character table makes a text shorter by less than this factor: the most is one byte for a character of four. */
#define TABLE_SHRINKS 4

typedef struct AddedToken
{
	char	   *content;
	size_t		length;
	int32_t		id;				/* behind the pieces */
	bool		special;
} AddedToken;

struct HymtSentencePiece
{
	HymtSpmFile file;
	HymtSpm    *whole;			/* for a text at the beginning */
	HymtSpm    *behind;			/* for one behind a control token; NULL: no difference */
	AddedToken *added;
	size_t		added_count;
	size_t		added_capacity;
	int32_t    *marked;			/* control pieces and added tokens */
	size_t		marked_count;
	int32_t		size;
	int32_t		bos;
	bool		legacy;			/* the blank before a text also stands before one behind a control token */
};

typedef struct HymtSentencePiece SentencePiece;

static bool
out_of_memory(HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
}

/* --- pieces and added tokens -------------------------------------------------------------------------------------- */

static bool
is_spelled(const HymtSpmPiece *piece, const char *content, size_t length)
{
	return piece->length == length && memcmp(piece->spelling, content, length) == 0;
}

/* The id of a piece or an added token; -1: none. */
static int32_t
find(const SentencePiece *model, const char *content, size_t length)
{
	for (size_t i = 0; i < model->added_count; i++)
		if (model->added[i].length == length && memcmp(model->added[i].content, content, length) == 0)
			return model->added[i].id;
	for (size_t i = 0; i < model->file.count; i++)
		if (is_spelled(&model->file.pieces[i], content, length))
			return (int32_t) i;
	return -1;
}

static const AddedToken *
find_added(const SentencePiece *model, int32_t id)
{
	for (size_t i = 0; i < model->added_count; i++)
		if (model->added[i].id == id)
			return &model->added[i];
	return NULL;
}

static bool
append_added(SentencePiece *model, const char *content, size_t length, int32_t id, HymtError *error)
{
	AddedToken *token;

	if (model->added_count == ADDED_MAX)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "more than %d added tokens are not supported", ADDED_MAX);
	if (model->added_count == model->added_capacity)
	{
		size_t		capacity = model->added_capacity == 0 ? 16 : model->added_capacity * 2;
		AddedToken *added = realloc(model->added, capacity * sizeof(*added));

		if (added == NULL)
			return out_of_memory(error);
		model->added = added;
		model->added_capacity = capacity;
	}
	token = &model->added[model->added_count];
	token->content = strndup(content, length);
	if (token->content == NULL)
		return out_of_memory(error);
	token->length = length;
	token->id = id;
	token->special = false;
	model->added_count++;
	if (id >= model->size)
		model->size = id + 1;
	return true;
}

/* A token that a file lists by id: a piece of the model once more, or one behind them. */
static bool
add_token(SentencePiece *model, const json_t *content, json_int_t id, const char *file, HymtError *error)
{
	const char *text = json_string_value(content);
	size_t		length = json_string_length(content);
	int32_t		known;

	if (text == NULL || length == 0 || strlen(text) < length || id < 0 || id > HYMT_BPE_MAX_ID)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "%s: an added token without a spelling or an id", file);
	known = find(model, text, length);
	if (known == id)
		return true;
	if (known >= 0 || id < (json_int_t) model->file.count || find_added(model, (int32_t) id) != NULL)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN,
						 "%s: the added token %d contradicts the model or another added token", file, (int) id);
	return append_added(model, text, length, (int32_t) id, error);
}

/* --- the files beside the model ----------------------------------------------------------------------------------- */

/* A JSON object of the directory in *json, NULL when there is no such file. */
static bool
read_json(json_t **json, const char *directory, const char *file, HymtError *error)
{
	HymtFileBytes bytes;
	char	   *path;

	*json = NULL;
	if (!hymt_file_read(&bytes, directory, file, CONFIG_MAX, true, error))
		return false;
	if (bytes.data == NULL)
		return true;
	path = hymt_path_join(directory, file);
	if (path == NULL)
		out_of_memory(error);
	else
		*json = hymt_json_object(bytes.data, bytes.length, path, error);
	free(path);
	hymt_file_free(&bytes);
	return *json != NULL;
}

/* {"<pad>": 32000} */
static bool
read_added_tokens(SentencePiece *model, json_t *file, HymtError *error)
{
	const char *content;
	json_t	   *id;

	json_object_foreach(file, content, id)
	{
		json_t	   *text = json_string(content);
		bool		ok = text == NULL ? out_of_memory(error)
			: add_token(model, text, json_is_integer(id) ? json_integer_value(id) : -1, "added_tokens.json", error);

		json_decref(text);
		if (!ok)
			return false;
	}
	return true;
}

/* A decimal number and nothing else, or -1. */
static json_int_t
id_of_key(const char *key)
{
	char	   *end;
	long		id = strtol(key, &end, 10);

	return key[0] < '0' || key[0] > '9' || *end != '\0' || id > HYMT_BPE_MAX_ID ? -1 : id;
}

/* "added_tokens_decoder": {"32000": {"content": "<pad>", "special": true}} */
static bool
read_added_decoder(SentencePiece *model, json_t *config, HymtError *error)
{
	const char *key;
	json_t	   *token;

	json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, token)
		if (!add_token(model, json_object_get(token, "content"), id_of_key(key), "tokenizer_config.json", error))
			return false;
	return true;
}

/* A token is named by its spelling, or by an object that has it. */
static int32_t
named_token(const SentencePiece *model, const json_t *name)
{
	if (json_is_object(name))
		name = json_object_get(name, "content");
	return json_is_string(name) ? find(model, json_string_value(name), json_string_length(name)) : -1;
}

static void
mark_special(const HymtTokenizer *tokenizer, int32_t id)
{
	if (id >= 0)
		tokenizer->special[id] = 1;
}

/* The tokens that a file names for their roles. What is named but does not exist does no harm. */
static void
mark_roles(const HymtTokenizer *tokenizer, json_t *file)
{
	static const char *const roles[] = {"bos_token", "eos_token", "pad_token", "unk_token", "sep_token", "cls_token",
	"mask_token"};
	const SentencePiece *model = tokenizer->sentencepiece;
	const json_t *more = json_object_get(file, "additional_special_tokens");

	for (size_t i = 0; i < sizeof(roles) / sizeof(roles[0]); i++)
		mark_special(tokenizer, named_token(model, json_object_get(file, roles[i])));
	for (size_t i = 0; i < json_array_size(more); i++)
		mark_special(tokenizer, named_token(model, json_array_get(more, i)));
}

static void
mark_added(const HymtTokenizer *tokenizer, json_t *config)
{
	const char *key;
	json_t	   *token;

	json_object_foreach(json_object_get(config, "added_tokens_decoder"), key, token)
		if (json_is_true(json_object_get(token, "special")))
			mark_special(tokenizer, (int32_t) id_of_key(key));
}

/* What is spelled like "<|end|>" and is found in texts as a whole was meant to steer, whether a file says so or not. */
static bool
looks_special(const HymtSpmPiece *piece)
{
	return piece->type == HYMT_SPM_USER_DEFINED && piece->length > 4 && memcmp(piece->spelling, "<|", 2) == 0 &&
		memcmp(piece->spelling + piece->length - 2, "|>", 2) == 0;
}

/* No text may give a control token. */
static bool
hide_special(HymtTokenizer *tokenizer, HymtError *error)
{
	HymtSpmFile *file = &tokenizer->sentencepiece->file;

	for (size_t i = 0; i < file->count; i++)
	{
		const HymtSpmPiece *piece = &file->pieces[i];

		if (piece->type == HYMT_SPM_CONTROL || looks_special(piece))
			tokenizer->special[i] = 1;
		if (tokenizer->special[i] == 0)
			continue;
		if (piece->type == HYMT_SPM_NORMAL || piece->type == HYMT_SPM_BYTE)
			return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED,
							 "the control token %zu is an ordinary piece, which texts would give", i);
		hymt_spm_file_hide(file, i);
	}
	return true;
}

/* With add_bos_token, which is also the default, texts begin with the token named bos_token, by default "<s>". */
static void
choose_bos(SentencePiece *model, const json_t *config)
{
	const json_t *name = json_object_get(config, "bos_token");

	model->bos = -1;
	if (json_is_false(json_object_get(config, "add_bos_token")))
		return;
	model->bos = name != NULL ? named_token(model, name) : find(model, "<s>", 3);
}

static bool
list_marked(HymtTokenizer *tokenizer, HymtError *error)
{
	SentencePiece *model = tokenizer->sentencepiece;

	model->marked = malloc((size_t) model->size * sizeof(*model->marked));
	if (model->marked == NULL)
		return out_of_memory(error);
	for (int32_t id = 0; id < (int32_t) model->file.count; id++)
		if (tokenizer->special[id] != 0)
			model->marked[model->marked_count++] = id;
	for (size_t i = 0; i < model->added_count; i++)
		model->marked[model->marked_count++] = model->added[i].id;
	return true;
}

static bool
apply_config(HymtTokenizer *tokenizer, json_t *added, json_t *config, json_t *map, HymtError *error)
{
	SentencePiece *model = tokenizer->sentencepiece;

	if (!read_added_tokens(model, added, error) || !read_added_decoder(model, config, error))
		return false;
	tokenizer->special = calloc((size_t) model->size, 1);
	if (tokenizer->special == NULL)
		return out_of_memory(error);
	mark_added(tokenizer, config);
	mark_roles(tokenizer, config);
	mark_roles(tokenizer, map);
	choose_bos(model, config);
	model->legacy = !json_is_false(json_object_get(config, "legacy"));
	return hide_special(tokenizer, error) && list_marked(tokenizer, error);
}

static bool
read_config(HymtTokenizer *tokenizer, const char *directory, HymtError *error)
{
	json_t	   *added = NULL;
	json_t	   *config = NULL;
	json_t	   *map = NULL;
	bool		ok = read_json(&added, directory, "added_tokens.json", error) &&
		read_json(&config, directory, "tokenizer_config.json", error) &&
		read_json(&map, directory, "special_tokens_map.json", error) &&
		apply_config(tokenizer, added, config, map, error);

	json_decref(added);
	json_decref(config);
	json_decref(map);
	return ok;
}

/* --- opening ------------------------------------------------------------------------------------------------------ */

static bool
check_result(HymtSpmResult result, const char *message, HymtFailure failure, HymtError *error)
{
	if (result == HYMT_SPM_NO_MEMORY)
		return out_of_memory(error);
	return result == HYMT_SPM_DONE || hymt_fail(error, failure, "SentencePiece: %s", message);
}

/* Give the library its copy of the bytes, as they are or without the dummy prefix. */
static bool
load(HymtSpm **spm, const HymtSpmFile *file, bool prefix, HymtError *error)
{
	size_t		length = file->bytes.length;
	char	   *bytes = malloc(length + HYMT_SPM_NO_PREFIX_BYTES);
	char		message[HYMT_SPM_MESSAGE] = "";
	HymtSpmResult result;

	if (bytes == NULL)
		return out_of_memory(error);
	memcpy(bytes, file->bytes.data, length);
	memcpy(bytes + length, HYMT_SPM_NO_PREFIX, HYMT_SPM_NO_PREFIX_BYTES);
	result = hymt_spm_open(spm, bytes, length + (prefix ? 0 : HYMT_SPM_NO_PREFIX_BYTES), message);
	free(bytes);
	return check_result(result, message, HYMT_FAILURE_MODEL_BROKEN, error);
}

static bool
load_model(SentencePiece *model, HymtError *error)
{
	if (!load(&model->whole, &model->file, true, error))
		return false;
	if (hymt_spm_size(model->whole) != (int) model->file.count)
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "SentencePiece reads another number of pieces");
	return model->legacy || !model->file.dummy_prefix || load(&model->behind, &model->file, false, error);
}

static bool
read_model(HymtTokenizer *tokenizer, HymtFileBytes *bytes, const char *directory, HymtError *error)
{
	SentencePiece *model = tokenizer->sentencepiece;

	if (!hymt_spm_file_read(&model->file, bytes, error))
		return false;
	model->size = (int32_t) model->file.count;
	return read_config(tokenizer, directory, error) && load_model(model, error);
}

bool
hymt_sentencepiece_open(HymtTokenizer *tokenizer, const char *directory, HymtError *error)
{
	HymtFileBytes bytes;
	bool		ok;

	if (!hymt_file_read(&bytes, directory, MODEL, HYMT_TOKENIZER_FILE_MAX, false, error))
		return false;
	tokenizer->sentencepiece = calloc(1, sizeof(*tokenizer->sentencepiece));
	ok = tokenizer->sentencepiece != NULL ? read_model(tokenizer, &bytes, directory, error) : out_of_memory(error);
	hymt_file_free(&bytes);
	return ok || hymt_fail(error, error->failure, "%s/" MODEL ": %s", directory, error->message);
}

void
hymt_sentencepiece_close(HymtTokenizer *tokenizer)
{
	SentencePiece *model = tokenizer->sentencepiece;

	if (model == NULL)
		return;
	hymt_spm_close(model->whole);
	hymt_spm_close(model->behind);
	for (size_t i = 0; i < model->added_count; i++)
		free(model->added[i].content);
	free(model->added);
	free(model->marked);
	hymt_spm_file_free(&model->file);
	free(model);
	tokenizer->sentencepiece = NULL;
}

/* --- using it ----------------------------------------------------------------------------------------------------- */

/*
 * Whether a text must give more than `limit` ids, even if each stands for the longest piece. (Blanks that are removed
 * and characters that together are one unknown piece would give fewer. A text with so much of them is not worth a closer
 * look.)
 */
static bool
surely_longer(const SentencePiece *model, size_t length, size_t limit)
{
	size_t		longest = model->file.longest * (model->file.normalizes ? TABLE_SHRINKS : 1);

	return length / longest > limit;
}

bool
hymt_sentencepiece_encode(const HymtTokenizer *tokenizer, const char *text, size_t length, bool behind, size_t limit,
						  HymtIds *ids, HymtError *error)
{
	const SentencePiece *model = tokenizer->sentencepiece;
	const HymtSpm *spm = behind && model->behind != NULL ? model->behind : model->whole;
	char		message[HYMT_SPM_MESSAGE] = "";
	HymtSpmResult result;
	int32_t    *found;
	size_t		count;
	bool		ok;

	if (surely_longer(model, length, limit))
		return hymt_too_many_ids(limit, error);
	result = hymt_spm_encode(spm, text, length, &found, &count, message);
	if (!check_result(result, message, HYMT_FAILURE_INTERNAL, error))
		return false;
	ok = count <= limit || hymt_too_many_ids(limit, error);
	for (size_t i = 0; ok && i < count; i++)
		ok = hymt_ids_append(ids, found[i]) || out_of_memory(error);
	free(found);
	return ok;
}

int
hymt_sentencepiece_size(const HymtTokenizer *tokenizer)
{
	return tokenizer->sentencepiece->size;
}

void
hymt_sentencepiece_counts(const HymtTokenizer *tokenizer, int *vocabulary, int *added)
{
	*vocabulary = (int) tokenizer->sentencepiece->file.count;
	*added = (int) tokenizer->sentencepiece->added_count;
}

int32_t
hymt_sentencepiece_bos(const HymtTokenizer *tokenizer)
{
	return tokenizer->sentencepiece->bos;
}

int32_t
hymt_sentencepiece_added_id(const HymtTokenizer *tokenizer, const char *content, size_t length)
{
	const SentencePiece *model = tokenizer->sentencepiece;
	int32_t		id = find(model, content, length);

	/* an ordinary piece is no added token */
	return id >= 0 && (hymt_tokenizer_is_special(tokenizer, id) || find_added(model, id) != NULL) ? id : -1;
}

HymtJsonText
hymt_sentencepiece_spelling(const HymtTokenizer *tokenizer, int32_t id)
{
	const HymtSpmPiece *piece = hymt_sentencepiece_piece(tokenizer, id);
	const AddedToken *added = find_added(tokenizer->sentencepiece, id);

	if (piece != NULL)
		return (HymtJsonText) {piece->spelling, piece->length};
	return added != NULL ? (HymtJsonText) {added->content, added->length} : (HymtJsonText) {NULL, 0};
}

size_t
hymt_sentencepiece_marked(const HymtTokenizer *tokenizer)
{
	return tokenizer->sentencepiece->marked_count;
}

int32_t
hymt_sentencepiece_marked_id(const HymtTokenizer *tokenizer, size_t index)
{
	return tokenizer->sentencepiece->marked[index];
}

const HymtSpmPiece *
hymt_sentencepiece_piece(const HymtTokenizer *tokenizer, int32_t id)
{
	const HymtSpmFile *file = &tokenizer->sentencepiece->file;

	return id >= 0 && (size_t) id < file->count ? &file->pieces[id] : NULL;
}

const HymtSpmFile *
hymt_sentencepiece_file(const HymtTokenizer *tokenizer)
{
	return &tokenizer->sentencepiece->file;
}

const HymtSpm *
hymt_sentencepiece_model(const HymtTokenizer *tokenizer)
{
	return tokenizer->sentencepiece->whole;
}
