/*
 * tokenizer_decode.c: ids to text, one by one or all at once.
 *
 * Runs in the engine program. A decoder belongs to one answer and owns its text; it changes nothing of the tokenizer. One
 * code decodes streams and whole answers, so that they cannot differ.
 */
#include <stdlib.h>
#include <string.h>

#include "sentencepiece_file.h"
#include "tokenizer_parts.h"
#include "utf8.h"

/* U+FFFD, in place of bytes that are no UTF-8, and of NULs in answers */
static const char replacement[] = "\xEF\xBF\xBD";

/* U+2581, how SentencePiece writes a blank */
static const char blank[] = "\xE2\x96\x81";
#define BLANK_BYTES (sizeof(blank) - 1)

void
hymt_decoder_start(HymtDecoder *decoder, const HymtTokenizer *tokenizer)
{
	memset(decoder, 0, sizeof(*decoder));
	decoder->tokenizer = tokenizer;
}

void
hymt_decoder_taken(HymtDecoder *decoder)
{
	decoder->length = 0;
}

void
hymt_decoder_free(HymtDecoder *decoder)
{
	free(decoder->text);
	free(decoder->scratch);
	memset(decoder, 0, sizeof(*decoder));
}

/* Append bytes, with a NUL behind them that does not count. */
static bool
append(HymtDecoder *decoder, const char *bytes, size_t length)
{
	size_t		needed = decoder->length + length + 1;

	if (needed > decoder->capacity)
	{
		size_t		capacity = needed < 64 ? 64 : needed * 2;
		char	   *text = realloc(decoder->text, capacity);

		if (text == NULL)
			return false;
		decoder->text = text;
		decoder->capacity = capacity;
	}
	if (length > 0)
		memcpy(decoder->text + decoder->length, bytes, length);
	decoder->length += length;
	decoder->text[decoder->length] = '\0';
	decoder->any = decoder->any || length > 0;
	return true;
}

/* The same, without NULs where there must be none. */
static bool
put(HymtDecoder *decoder, const char *bytes, size_t length)
{
	const char *nul;

	while (decoder->for_answer && length > 0 && (nul = memchr(bytes, '\0', length)) != NULL)
	{
		if (!append(decoder, bytes, (size_t) (nul - bytes)) || !append(decoder, replacement, sizeof(replacement) - 1))
			return false;
		length -= (size_t) (nul - bytes) + 1;
		bytes = nul + 1;
	}
	return append(decoder, bytes, length);
}

/*
 * Append the characters that the pending bytes form. A beginning of one stays pending, unless this is the `end`. Where
 * there is none, SentencePiece replaces one byte at a time, byte-level BPE the longest beginning of a character.
 */
static bool
settle(HymtDecoder *decoder, bool end)
{
	while (decoder->pending_count > 0)
	{
		int			bad;
		int			size = hymt_utf8_character(decoder->pending, (size_t) decoder->pending_count, &bad);
		int			used = size > 0 ? size : decoder->tokenizer->sentencepiece != NULL ? 1 : bad;

		if (size == 0 && bad == decoder->pending_count && !end)
			return true;
		if (!(size > 0 ? put(decoder, decoder->pending, (size_t) size)
			  : put(decoder, replacement, sizeof(replacement) - 1)))
			return false;
		decoder->pending_count -= used;
		memmove(decoder->pending, decoder->pending + used, (size_t) decoder->pending_count);
	}
	return true;
}

/* Bytes that need not be whole characters. */
static bool
add_bytes(HymtDecoder *decoder, const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
	{
		decoder->pending[decoder->pending_count++] = bytes[i];
		if (!settle(decoder, false))
			return false;
	}
	return true;
}

/* The text of a piece: blanks for U+2581. */
static bool
add_piece_text(HymtDecoder *decoder, const char *text, size_t length)
{
	const char *end = text + length;

	while (text < end)
	{
		bool		is_blank = (size_t) (end - text) >= BLANK_BYTES && memcmp(text, blank, BLANK_BYTES) == 0;

		if (!put(decoder, is_blank ? " " : text, 1))
			return false;
		text += is_blank ? BLANK_BYTES : 1;
	}
	return true;
}

/*
 * The blank that was put before a whole text is taken away from the first piece; where several blanks never stand in a
 * row, from all pieces before the first other text.
 */
static bool
add_piece(HymtDecoder *decoder, const HymtSpmPiece *piece)
{
	const HymtSpmFile *file = hymt_sentencepiece_file(decoder->tokenizer);
	const char *text = piece->spelling;
	size_t		length = piece->length;

	if (piece->type == HYMT_SPM_BYTE)
		return add_bytes(decoder, (const char *) &piece->byte, 1);
	if (!settle(decoder, true))
		return false;
	if (decoder->blank_taken || decoder->any)
		decoder->begun = true;
	decoder->blank_taken = false;
	if (piece->type == HYMT_SPM_UNKNOWN)
		return put(decoder, file->unknown.data, file->unknown.length);
	if (!decoder->begun && (file->dummy_prefix || file->remove_blanks) && length >= BLANK_BYTES &&
		memcmp(text, blank, BLANK_BYTES) == 0)
	{
		text += BLANK_BYTES;
		length -= BLANK_BYTES;
		decoder->blank_taken = !file->remove_blanks;
	}
	return add_piece_text(decoder, text, length);
}

/* An added token of a SentencePiece model stands for its spelling. */
static bool
add_sentencepiece(HymtDecoder *decoder, int32_t id)
{
	const HymtSpmPiece *piece = hymt_sentencepiece_piece(decoder->tokenizer, id);
	HymtJsonText spelling;

	if (piece != NULL)
		return add_piece(decoder, piece);
	spelling = hymt_sentencepiece_spelling(decoder->tokenizer, id);
	return settle(decoder, true) && (spelling.data == NULL || put(decoder, spelling.data, spelling.length));
}

static bool
add_byte_level(HymtDecoder *decoder, int32_t id)
{
	HymtJsonText spelling = hymt_bpe_spelling(decoder->tokenizer->bpe, id);

	if (spelling.data == NULL)
		return true;
	if (spelling.length > decoder->scratch_size)
	{
		char	   *scratch = realloc(decoder->scratch, spelling.length);

		if (scratch == NULL)
			return false;
		decoder->scratch = scratch;
		decoder->scratch_size = spelling.length;
	}
	return add_bytes(decoder, decoder->scratch, hymt_bpe_bytes(&spelling, decoder->scratch));
}

bool
hymt_decoder_add(HymtDecoder *decoder, int32_t id)
{
	if (hymt_tokenizer_is_special(decoder->tokenizer, id))
		return true;
	return decoder->tokenizer->sentencepiece != NULL ? add_sentencepiece(decoder, id) : add_byte_level(decoder, id);
}

bool
hymt_decoder_end(HymtDecoder *decoder)
{
	return settle(decoder, true);
}

static bool
decode(const HymtTokenizer *tokenizer, bool for_answer, const int32_t *ids, size_t count, char **text, size_t *length)
{
	HymtDecoder decoder;
	bool		ok;

	*text = NULL;
	*length = 0;
	hymt_decoder_start(&decoder, tokenizer);
	decoder.for_answer = for_answer;
	ok = put(&decoder, "", 0);
	for (size_t i = 0; ok && i < count; i++)
		ok = hymt_decoder_add(&decoder, ids[i]);
	if (ok && hymt_decoder_end(&decoder))
	{
		*text = decoder.text;
		*length = decoder.length;
		decoder.text = NULL;
	}
	hymt_decoder_free(&decoder);
	return *text != NULL;
}

bool
hymt_tokenizer_decode(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, char **text, size_t *length)
{
	return decode(tokenizer, false, ids, count, text, length);
}

bool
hymt_tokenizer_decode_answer(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, char **text,
							 size_t *length)
{
	return decode(tokenizer, true, ids, count, text, length);
}
