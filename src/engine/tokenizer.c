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

/* U+FFFD */
static const char replacement[] = "\xEF\xBF\xBD";

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

bool
hymt_tokenizer_open_model(HymtTokenizer **tokenizer, const char *model, HymtError *error)
{
	HymtLocation location;
	char	   *path;
	bool		ok;

	*tokenizer = NULL;
	if (!hymt_model_locate(&location, model, error))
		return false;
	if (location.gguf != NULL)
		ok = open_any(tokenizer, location.gguf, open_gguf, error);
	else
	{
		path = hymt_path_join(location.directory, "tokenizer.json");
		ok = path != NULL ? hymt_tokenizer_open(tokenizer, path, error) : out_of_memory(error);
		free(path);
	}
	hymt_location_free(&location);
	return ok;
}

void
hymt_tokenizer_close(HymtTokenizer *tokenizer)
{
	if (tokenizer == NULL)
		return;
	hymt_pretokenizer_free(tokenizer->pretokenizer);
	hymt_bpe_free(tokenizer->bpe);
	free(tokenizer->added);
	free(tokenizer->special);
	free(tokenizer);
}

static bool
too_many_ids(size_t limit, HymtError *error)
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
		return too_many_ids(limit, error);
	if (!hymt_pretokenizer_split(tokenizer->pretokenizer, text, length, limit, &pieces, error))
		return false;
	if (pieces.count > limit)
	{
		hymt_pieces_free(&pieces);
		return too_many_ids(limit, error);
	}
	for (size_t i = 0; ok && i < pieces.count && ids->count - before <= limit; i++)
		ok = hymt_bpe_encode(tokenizer->bpe, &scratch, text + pieces.pieces[i].start, pieces.pieces[i].length, ids);
	hymt_bpe_scratch_free(&scratch);
	hymt_pieces_free(&pieces);
	if (!ok)
		return out_of_memory(error);
	return ids->count - before <= limit || too_many_ids(limit, error);
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
	size_t		before = ids->count;
	size_t		valid;
	char	   *normal = NULL;
	size_t		normal_length = 0;
	bool		ok;

	if (length == 0)
		return true;
	if (length > MAX_TEXT)
		return hymt_fail(error, HYMT_FAILURE_TOO_LONG, "text of %zu bytes is longer than %zu", length, MAX_TEXT);
	if (surely_longer(tokenizer, length, tokenizer->nfc ? NFC_SHRINKS : 1, limit))
		return too_many_ids(limit, error);
	valid = hymt_utf8_valid(text, length);
	if (valid < length)
		return hymt_fail(error, HYMT_FAILURE_BAD_TEXT, "text is not valid UTF-8 at byte %zu", valid);
	if (tokenizer->nfc && !hymt_normalize_nfc(text, length, &normal, &normal_length))
		return out_of_memory(error);
	if (normal != NULL)
		ok = encode_pieces(tokenizer, normal, normal_length, limit, ids, error);
	else
		ok = encode_pieces(tokenizer, text, length, limit, ids, error);
	free(normal);
	if (!ok)
		ids->count = before;
	return ok;
}

int32_t
hymt_tokenizer_added_id(const HymtTokenizer *tokenizer, const char *content)
{
	for (size_t i = 0; i < tokenizer->added_count; i++)
	{
		HymtJsonText spelling = hymt_bpe_spelling(tokenizer->bpe, tokenizer->added[i].id);

		if (hymt_json_text_is(&spelling, content))
			return tokenizer->added[i].id;
	}
	return -1;
}

char *
hymt_tokenizer_added_content(const HymtTokenizer *tokenizer, int32_t id)
{
	for (size_t i = 0; i < tokenizer->added_count; i++)
		if (tokenizer->added[i].id == id)
		{
			HymtJsonText spelling = hymt_bpe_spelling(tokenizer->bpe, id);

			return strndup(spelling.data, spelling.length);
		}
	return NULL;
}

bool
hymt_tokenizer_is_special(const HymtTokenizer *tokenizer, int32_t id)
{
	return id >= 0 && id < hymt_bpe_size(tokenizer->bpe) && tokenizer->special[id] != 0;
}

int
hymt_tokenizer_size(const HymtTokenizer *tokenizer)
{
	return hymt_bpe_size(tokenizer->bpe);
}

void
hymt_tokenizer_counts(const HymtTokenizer *tokenizer, int *vocabulary, int *merges, int *added)
{
	*vocabulary = hymt_bpe_vocabulary(tokenizer->bpe);
	*merges = hymt_bpe_merges(tokenizer->bpe);
	*added = (int) tokenizer->added_count;
}

/* The spelling of an id that appears in decoded text; data NULL for others. */
static HymtJsonText
visible_spelling(const HymtTokenizer *tokenizer, int32_t id)
{
	HymtJsonText none = {NULL, 0};

	return hymt_tokenizer_is_special(tokenizer, id) ? none : hymt_bpe_spelling(tokenizer->bpe, id);
}

/* Copy bytes with U+FFFD in place of what is no UTF-8; `to` has room for three times as many. Returns how many. */
static size_t
copy_repaired(char *to, const char *from, size_t length)
{
	size_t		count = 0;
	size_t		at = 0;

	while (at < length)
	{
		int			bad;
		int			size = hymt_utf8_character(from + at, length - at, &bad);

		if (size > 0)
		{
			memcpy(to + count, from + at, (size_t) size);
			count += (size_t) size;
			at += (size_t) size;
		}
		else
		{
			memcpy(to + count, replacement, sizeof(replacement) - 1);
			count += sizeof(replacement) - 1;
			at += (size_t) bad;
		}
	}
	return count;
}

bool
hymt_tokenizer_decode(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, char **text, size_t *length)
{
	size_t		room = 1;
	size_t		used = 0;
	char	   *bytes;

	*text = NULL;
	*length = 0;
	for (size_t i = 0; i < count; i++)
		room += visible_spelling(tokenizer, ids[i]).length;
	bytes = malloc(room);
	if (bytes == NULL)
		return false;
	for (size_t i = 0; i < count; i++)
	{
		HymtJsonText spelling = visible_spelling(tokenizer, ids[i]);

		if (spelling.data != NULL)
			used += hymt_bpe_bytes(&spelling, bytes + used);
	}
	bytes[used] = '\0';
	/* characters may be spread over several tokens, so only the whole can be judged */
	if (hymt_utf8_valid(bytes, used) < used)
	{
		char	   *repaired = malloc(used * 3 + 1);

		if (repaired != NULL)
			used = copy_repaired(repaired, bytes, used);
		free(bytes);
		if (repaired == NULL)
			return false;
		bytes = repaired;
		bytes[used] = '\0';
	}
	*text = bytes;
	*length = used;
	return true;
}
