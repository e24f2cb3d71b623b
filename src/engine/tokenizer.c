/*
 * tokenizer.c: text to token ids and back.
 *
 * Runs in the engine program. A tokenizer owns its vocabulary and patterns and is not changed once it is open; what
 * encoding needs to write to is made for each text, so that several threads may use one tokenizer.
 */
#include "tokenizer.h"

#include <stdlib.h>
#include <string.h>

#include "files.h"
#include "locate.h"
#include "normalize.h"
#include "tokenizer_parts.h"
#include "utf8.h"

/* How much of a file there is for each token, with its share of the merges; only to size tables. */
#define BYTES_PER_TOKEN 64

/* Longer texts are refused, so that positions fit 32 bits, in whatever form. */
#define MAX_TEXT ((size_t) 256 * 1024 * 1024)

/*
 * Normalisation makes a text shorter by less than this factor. The most are 3.5: U+1FBE U+0308 U+0301, of 3 + 2 + 2
 * bytes, is U+0390, of 2.
 */
#define NFC_SHRINKS 4

bool
hymt_ids_append(HymtIds *list, int32_t id)
{
	if (list->count == list->capacity)
	{
		size_t		capacity = list->capacity == 0 ? 64 : list->capacity * 2;
		int32_t    *ids = realloc(list->ids, capacity * sizeof(*ids));

		if (ids == NULL)
			return false;
		list->ids = ids;
		list->capacity = capacity;
	}
	list->ids[list->count++] = id;
	return true;
}

void
hymt_ids_free(HymtIds *list)
{
	free(list->ids);
	memset(list, 0, sizeof(*list));
}

static bool
out_of_memory(HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
}

/* Read the file of a path whose last slash separates folder and name. */
static bool
read_path(HymtFileBytes *bytes, const char *path, HymtError *error)
{
	const char *slash = strrchr(path, '/');
	char	   *folder;
	bool		ok;

	if (slash == NULL)
		return hymt_file_read(bytes, ".", path, HYMT_TOKENIZER_FILE_MAX, false, error);
	folder = strndup(path, (size_t) (slash - path) + 1);
	if (folder == NULL)
		return out_of_memory(error);
	ok = hymt_file_read(bytes, folder, slash + 1, HYMT_TOKENIZER_FILE_MAX, false, error);
	free(folder);
	return ok;
}

static bool
create_parts(HymtTokenizer *tokenizer, size_t expected, HymtError *error)
{
	tokenizer->pretokenizer = hymt_pretokenizer_create();
	tokenizer->bpe = hymt_bpe_create(expected);
	return (tokenizer->pretokenizer != NULL && tokenizer->bpe != NULL) || out_of_memory(error);
}

/* Fill in a zeroed tokenizer; on failure the caller closes it. */
static bool
open_file(HymtTokenizer *tokenizer, const char *path, HymtError *error)
{
	HymtFileBytes bytes;
	bool		ok;

	if (!read_path(&bytes, path, error))
		return false;
	ok = create_parts(tokenizer, bytes.length / BYTES_PER_TOKEN, error) &&
		(hymt_tokenizer_read(tokenizer, bytes.data, bytes.length, error) ||
		 hymt_fail(error, error->failure, "%s: %s", path, error->message));
	hymt_file_free(&bytes);
	return ok;
}

/* The same with the metadata of a GGUF file. */
static bool
open_gguf(HymtTokenizer *tokenizer, const char *path, HymtError *error)
{
	HymtGguf   *gguf = hymt_gguf_open(path, error);
	size_t		length;
	bool		ok;

	if (gguf == NULL)
		return false;
	hymt_gguf_header(gguf, &length);
	tokenizer->from_gguf = true;
	ok = create_parts(tokenizer, length / BYTES_PER_TOKEN, error) && hymt_tokenizer_read_gguf(tokenizer, gguf, error);
	hymt_gguf_close(gguf);
	return ok;
}

static bool
open_any(HymtTokenizer **tokenizer, const char *path,
		 bool (*fill) (HymtTokenizer *tokenizer, const char *path, HymtError *error), HymtError *error)
{
	HymtTokenizer *opened = calloc(1, sizeof(*opened));

	*tokenizer = NULL;
	if (opened == NULL)
		return out_of_memory(error);
	if (!fill(opened, path, error))
	{
		hymt_tokenizer_close(opened);
		return false;
	}
	*tokenizer = opened;
	return true;
}

bool
hymt_tokenizer_open(HymtTokenizer **tokenizer, const char *path, HymtError *error)
{
	return open_any(tokenizer, path, open_file, error);
}

/* tokenizer.json, or else tokenizer.model. */
static bool
open_directory(HymtTokenizer **tokenizer, const char *directory, HymtError *error)
{
	char	   *path = hymt_path_join(directory, "tokenizer.json");
	HymtError	other;
	bool		ok;

	if (path == NULL)
		return out_of_memory(error);
	ok = hymt_tokenizer_open(tokenizer, path, error);
	free(path);
	/* Llama's tokenizer.json describes its tokenizer.model in other words, which need not be understood. */
	if (ok || (error->failure != HYMT_FAILURE_MODEL_MISSING && error->failure != HYMT_FAILURE_MODEL_UNSUPPORTED))
		return ok;
	if (open_any(tokenizer, directory, hymt_sentencepiece_open, &other))
		return true;
	if (other.failure != HYMT_FAILURE_MODEL_MISSING)
		*error = other;
	else if (error->failure == HYMT_FAILURE_MODEL_MISSING)
		return hymt_fail(error, HYMT_FAILURE_MODEL_MISSING, "%s: there is neither tokenizer.json nor tokenizer.model",
						 directory);
	return false;
}

bool
hymt_tokenizer_open_model(HymtTokenizer **tokenizer, const char *model, HymtError *error)
{
	HymtLocation location;
	bool		ok;

	*tokenizer = NULL;
	if (!hymt_model_locate(&location, model, error))
		return false;
	if (location.gguf != NULL)
		ok = open_any(tokenizer, location.gguf, open_gguf, error);
	else
		ok = open_directory(tokenizer, location.directory, error);
	hymt_location_free(&location);
	return ok;
}

void
hymt_tokenizer_close(HymtTokenizer *tokenizer)
{
	if (tokenizer == NULL)
		return;
	hymt_sentencepiece_close(tokenizer);
	hymt_pretokenizer_free(tokenizer->pretokenizer);
	hymt_bpe_free(tokenizer->bpe);
	free(tokenizer->added);
	free(tokenizer->special);
	free(tokenizer);
}

bool
hymt_too_many_ids(size_t limit, HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_TOO_LONG, "the text is longer than %zu tokens", limit);
}

/*
 * Whether a text must give more than `limit` ids, even if each stands for the longest token, and for `shrinks` times as
 * much before normalisation. (Bytes that the vocabulary lacks give none, nor do pieces that consist of them. A text of
 * which so much would be left out is not worth a closer look.)
 */
static bool
surely_longer(const HymtTokenizer *tokenizer, size_t length, size_t shrinks, size_t limit)
{
	size_t		longest = hymt_bpe_longest(tokenizer->bpe) * shrinks;

	return longest > 0 && length / longest > limit;
}

/* Cut normalised text into pieces and append the ids of each. */
static bool
encode_pieces(const HymtTokenizer *tokenizer, const char *text, size_t length, size_t limit, HymtIds *ids,
			  HymtError *error)
{
	HymtBpeScratch scratch = {0};
	HymtPieces	pieces = {0};
	size_t		before = ids->count;
	bool		ok = true;

	/* once more, now that it is known what normalisation has made of it */
	if (surely_longer(tokenizer, length, 1, limit))
		return hymt_too_many_ids(limit, error);
	if (!hymt_pretokenizer_split(tokenizer->pretokenizer, text, length, limit, &pieces, error))
		return false;
	if (pieces.count > limit)
	{
		hymt_pieces_free(&pieces);
		return hymt_too_many_ids(limit, error);
	}
	for (size_t i = 0; ok && i < pieces.count && ids->count - before <= limit; i++)
		ok = hymt_bpe_encode(tokenizer->bpe, &scratch, text + pieces.pieces[i].start, pieces.pieces[i].length, ids);
	hymt_bpe_scratch_free(&scratch);
	hymt_pieces_free(&pieces);
	if (!ok)
		return out_of_memory(error);
	return ids->count - before <= limit || hymt_too_many_ids(limit, error);
}

bool
hymt_tokenizer_encode(const HymtTokenizer *tokenizer, const char *text, size_t length, HymtIds *ids, HymtError *error)
{
	return hymt_tokenizer_encode_limited(tokenizer, text, length, SIZE_MAX, ids, error);
}

bool
hymt_tokenizer_encode_limited(const HymtTokenizer *tokenizer, const char *text, size_t length, size_t limit,
							  HymtIds *ids, HymtError *error)
{
	return hymt_tokenizer_encode_part(tokenizer, text, length, false, limit, ids, error);
}

static bool
encode_bpe(const HymtTokenizer *tokenizer, const char *text, size_t length, size_t limit, HymtIds *ids,
		   HymtError *error)
{
	char	   *normal = NULL;
	size_t		normal_length = 0;
	bool		ok;

	if (tokenizer->nfc && !hymt_normalize_nfc(text, length, &normal, &normal_length))
		return out_of_memory(error);
	if (normal != NULL)
		ok = encode_pieces(tokenizer, normal, normal_length, limit, ids, error);
	else
		ok = encode_pieces(tokenizer, text, length, limit, ids, error);
	free(normal);
	return ok;
}

bool
hymt_tokenizer_encode_part(const HymtTokenizer *tokenizer, const char *text, size_t length, bool behind, size_t limit,
						   HymtIds *ids, HymtError *error)
{
	size_t		before = ids->count;
	size_t		valid;
	bool		ok;

	if (length == 0)
		return true;
	if (length > MAX_TEXT)
		return hymt_fail(error, HYMT_FAILURE_TOO_LONG, "text of %zu bytes is longer than %zu", length, MAX_TEXT);
	if (tokenizer->sentencepiece == NULL && surely_longer(tokenizer, length, tokenizer->nfc ? NFC_SHRINKS : 1, limit))
		return hymt_too_many_ids(limit, error);
	valid = hymt_utf8_valid(text, length);
	if (valid < length)
		return hymt_fail(error, HYMT_FAILURE_BAD_TEXT, "text is not valid UTF-8 at byte %zu", valid);
	if (tokenizer->sentencepiece != NULL)
		ok = hymt_sentencepiece_encode(tokenizer, text, length, behind, limit, ids, error);
	else
		ok = encode_bpe(tokenizer, text, length, limit, ids, error);
	if (!ok)
		ids->count = before;
	return ok;
}

int32_t
hymt_tokenizer_added_id(const HymtTokenizer *tokenizer, const char *content)
{
	if (tokenizer->sentencepiece != NULL)
		return hymt_sentencepiece_added_id(tokenizer, content, strlen(content));
	for (size_t i = 0; i < tokenizer->added_count; i++)
	{
		HymtJsonText spelling = hymt_bpe_spelling(tokenizer->bpe, tokenizer->added[i].id);

		if (hymt_json_text_is(&spelling, content))
			return tokenizer->added[i].id;
	}
	return -1;
}

bool
hymt_tokenizer_is_special(const HymtTokenizer *tokenizer, int32_t id)
{
	return id >= 0 && id < hymt_tokenizer_size(tokenizer) && tokenizer->special[id] != 0;
}

/* The spelling of an id; data NULL when it has none. */
static HymtJsonText
spelling_of(const HymtTokenizer *tokenizer, int32_t id)
{
	return tokenizer->sentencepiece != NULL ? hymt_sentencepiece_spelling(tokenizer, id)
		: hymt_bpe_spelling(tokenizer->bpe, id);
}

static bool
is_added(const HymtTokenizer *tokenizer, int32_t id)
{
	if (tokenizer->sentencepiece != NULL)
		return hymt_sentencepiece_piece(tokenizer, id) == NULL && hymt_sentencepiece_spelling(tokenizer, id).data != NULL;
	for (size_t i = 0; i < tokenizer->added_count; i++)
		if (tokenizer->added[i].id == id)
			return true;
	return false;
}

/* Whether a token is spelled at `text`, of which `left` bytes follow. */
static bool
stands_at(const HymtJsonText *spelling, const char *text, size_t left)
{
	return spelling->length <= left && memcmp(spelling->data, text, spelling->length) == 0;
}

int32_t
hymt_tokenizer_added_at(const HymtTokenizer *tokenizer, const char *text, size_t *length)
{
	size_t		left = strlen(text);
	int32_t		found = -1;
	size_t		count = tokenizer->sentencepiece != NULL ? hymt_sentencepiece_marked(tokenizer) : tokenizer->added_count;

	*length = 0;
	for (size_t i = 0; i < count; i++)
	{
		int32_t		id = tokenizer->sentencepiece != NULL ? hymt_sentencepiece_marked_id(tokenizer, i)
			: tokenizer->added[i].id;
		HymtJsonText spelling = spelling_of(tokenizer, id);

		if (spelling.length > *length && stands_at(&spelling, text, left))
		{
			*length = spelling.length;
			found = id;
		}
	}
	return found;
}

int32_t
hymt_tokenizer_bos(const HymtTokenizer *tokenizer)
{
	return tokenizer->sentencepiece != NULL ? hymt_sentencepiece_bos(tokenizer) : -1;
}

char *
hymt_tokenizer_added_spelling(const HymtTokenizer *tokenizer, int32_t id)
{
	HymtJsonText spelling;

	if (!hymt_tokenizer_is_special(tokenizer, id) && !is_added(tokenizer, id))
		return NULL;
	spelling = spelling_of(tokenizer, id);
	return spelling.data == NULL ? NULL : strndup(spelling.data, spelling.length);
}

const char *
hymt_tokenizer_source(const HymtTokenizer *tokenizer)
{
	if (tokenizer->from_gguf)
		return "metadata of the GGUF file";
	return tokenizer->sentencepiece != NULL ? "tokenizer.model" : "tokenizer.json";
}

int
hymt_tokenizer_size(const HymtTokenizer *tokenizer)
{
	return tokenizer->sentencepiece != NULL ? hymt_sentencepiece_size(tokenizer) : hymt_bpe_size(tokenizer->bpe);
}

int
hymt_tokenizer_text_size(const HymtTokenizer *tokenizer)
{
	int			pieces;
	int			added;

	if (tokenizer->sentencepiece == NULL)
		return hymt_bpe_size(tokenizer->bpe);
	hymt_sentencepiece_counts(tokenizer, &pieces, &added);
	return pieces;
}

void
hymt_tokenizer_counts(const HymtTokenizer *tokenizer, int *vocabulary, int *merges, int *added)
{
	if (tokenizer->sentencepiece != NULL)
	{
		hymt_sentencepiece_counts(tokenizer, vocabulary, added);
		*merges = 0;
		return;
	}
	*vocabulary = hymt_bpe_vocabulary(tokenizer->bpe);
	*merges = hymt_bpe_merges(tokenizer->bpe);
	*added = (int) tokenizer->added_count;
}
