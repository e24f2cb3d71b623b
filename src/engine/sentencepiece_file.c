/*
 * sentencepiece_file.c: reading a SentencePiece model file, a protocol buffer, without the library.
 *
 * Runs in the engine program, while a model is loaded. The file is untrusted. The library reads it a second time, to
 * encode with it, and checks less than it relies on: it would follow a damaged character table out of its memory. So
 * everything it relies on is looked at here first. What would decode differently than tokenizer_decode.c does is
 * refused by name.
 */
#include "sentencepiece_file.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bpe.h"
#include "utf8.h"

#define MODEL_UNIGRAM 1
#define MODEL_BPE 2

/* U+2047 between blanks */
static const char unknown_text[] = " \xE2\x81\x87 ";

/* A part of the file. */
typedef struct Span
{
	const char *at;
	const char *end;
} Span;

/* A field of a message: its number, and by its kind a number or bytes. */
typedef struct Field
{
	uint64_t	number;
	int			kind;			/* 0 varint, 1 eight bytes, 2 bytes, 5 four bytes */
	uint64_t	value;			/* of a varint */
	Span		bytes;			/* of the others; of a varint, where it stands */
} Field;

static bool
broken(HymtError *error, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "not a SentencePiece model: %s", what);
}

static bool
unsupported(HymtError *error, const char *what)
{
	return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "a SentencePiece model %s is not supported", what);
}

/* --- the wire format ---------------------------------------------------------------------------------------------- */

static bool
read_varint(Span *span, uint64_t *value)
{
	*value = 0;
	for (int shift = 0; shift < 64 && span->at < span->end; shift += 7)
	{
		unsigned char byte = (unsigned char) *span->at++;

		*value |= (uint64_t) (byte & 0x7F) << shift;
		if (byte < 0x80)
			return true;
	}
	return false;
}

/* Take the next field; false at the end, with *good telling whether that is a proper end. */
static bool
next_field(Span *span, Field *field, bool *good)
{
	uint64_t	tag;
	uint64_t	size;

	*good = span->at == span->end;
	if (*good || !read_varint(span, &tag))
		return false;
	field->number = tag >> 3;
	field->kind = (int) (tag & 7);
	field->bytes.at = span->at;
	size = field->kind == 1 ? 8 : field->kind == 5 ? 4 : 0;
	if (field->kind == 0 && !read_varint(span, &field->value))
		return false;
	if (field->kind == 2 && !read_varint(span, &size))
		return false;
	if (field->kind != 0)
	{
		if ((field->kind != 1 && field->kind != 2 && field->kind != 5) || size > (uint64_t) (span->end - span->at))
			return false;
		field->bytes.at = span->at;
		span->at += size;
	}
	field->bytes.end = span->at;
	return true;
}

static size_t
size_of(const Span *span)
{
	return (size_t) (span->end - span->at);
}

/* --- pieces ------------------------------------------------------------------------------------------------------- */

static HymtSpmPiece *
new_piece(HymtSpmFile *file, HymtError *error)
{
	if (file->count > HYMT_BPE_MAX_ID)
	{
		broken(error, "it has too many pieces");
		return NULL;
	}
	if (file->count == file->capacity)
	{
		size_t		capacity = file->capacity == 0 ? 4096 : file->capacity * 2;
		HymtSpmPiece *pieces = realloc(file->pieces, capacity * sizeof(*pieces));

		if (pieces == NULL)
		{
			hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
			return NULL;
		}
		file->pieces = pieces;
		file->capacity = capacity;
	}
	memset(&file->pieces[file->count], 0, sizeof(file->pieces[0]));
	return &file->pieces[file->count++];
}

static int
hexadecimal(char digit)
{
	if (digit >= '0' && digit <= '9')
		return digit - '0';
	return digit >= 'A' && digit <= 'F' ? digit - 'A' + 10 : -1;
}

/* "<0xE4>" */
static bool
read_byte(HymtSpmPiece *piece)
{
	const char *s = piece->spelling;
	int			high;
	int			low;

	if (piece->length != 6 || memcmp(s, "<0x", 3) != 0 || s[5] != '>')
		return false;
	high = hexadecimal(s[3]);
	low = hexadecimal(s[4]);
	if (high < 0 || low < 0)
		return false;
	piece->byte = (unsigned char) (high * 16 + low);
	return true;
}

static bool
check_piece(HymtSpmPiece *piece, float score, HymtError *error)
{
	if (piece->length == 0 || memchr(piece->spelling, '\0', piece->length) != NULL ||
		hymt_utf8_valid(piece->spelling, piece->length) < piece->length)
		return broken(error, "a piece is empty or no UTF-8");
	if (!isfinite(score))
		return broken(error, "a piece's score is not a number");
	if (piece->type == HYMT_SPM_BYTE && !read_byte(piece))
		return broken(error, "a byte piece is not spelled <0xNN>");
	return true;
}

/* Fields: 1 the spelling, 2 the score, 3 the type. */
static bool
read_piece(HymtSpmFile *file, Span span, HymtError *error)
{
	HymtSpmPiece *piece = new_piece(file, error);
	float		score = 0;
	Field		field;
	bool		good;

	if (piece == NULL)
		return false;
	piece->type = HYMT_SPM_NORMAL;
	while (next_field(&span, &field, &good))
		if (field.number == 1 && field.kind == 2)
		{
			if (size_of(&field.bytes) > UINT16_MAX)
				return broken(error, "a piece is too long");
			piece->spelling = field.bytes.at;
			piece->length = (uint32_t) size_of(&field.bytes);
		}
		else if (field.number == 2 && field.kind == 5)
			memcpy(&score, field.bytes.at, sizeof(score));
		else if (field.number == 3 && field.kind == 0)
		{
			/* one byte, which hymt_spm_file_hide() can change in its place */
			if (field.value < HYMT_SPM_NORMAL || field.value > HYMT_SPM_BYTE || size_of(&field.bytes) != 1)
				return broken(error, "a piece is of an unknown type");
			piece->type = (unsigned char) field.value;
			piece->type_at = (size_t) (field.bytes.at - file->bytes.data);
		}
		else if (field.number <= 3)
			return broken(error, "a piece has a field of the wrong kind");
	if (!good)
		return broken(error, "it is cut off");
	if (piece->length > file->longest)
		file->longest = piece->length;
	return check_piece(piece, score, error);
}

/* --- the rest ----------------------------------------------------------------------------------------------------- */

static bool
read_unknown(HymtSpmFile *file, const Span *text, HymtError *error)
{
	hymt_file_free(&file->unknown);
	file->unknown.length = size_of(text);
	file->unknown.data = strndup(text->at, file->unknown.length);
	if (file->unknown.data == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
	if (strlen(file->unknown.data) < file->unknown.length ||
		hymt_utf8_valid(text->at, file->unknown.length) < file->unknown.length)
		return broken(error, "the text of an unknown piece is no UTF-8");
	return true;
}

/* How the model was trained; some of it says how to read it. */
static bool
read_trainer(HymtSpmFile *file, Span span, HymtError *error)
{
	Field		field;
	bool		good;

	while (next_field(&span, &field, &good))
		if (field.number == 3 && field.kind == 0)
			file->model_type = field.value <= MODEL_BPE ? (int) field.value : 0;
		else if (field.number == 24 && field.kind == 0)
			file->blank_behind = field.value != 0;
		else if (field.number == 44 && field.kind == 2 && !read_unknown(file, &field.bytes, error))
			return false;
	return good || broken(error, "it is cut off");
}

static bool
read_normalizer(HymtSpmFile *file, Span span, HymtError *error)
{
	Field		field;
	bool		good;

	while (next_field(&span, &field, &good))
		if (field.number == 2 && field.kind == 2)
		{
			file->charsmap.data = (char *) field.bytes.at;
			file->charsmap.length = size_of(&field.bytes);
		}
		else if (field.number == 3 && field.kind == 0)
			file->dummy_prefix = field.value != 0;
		else if (field.number == 4 && field.kind == 0)
			file->remove_blanks = field.value != 0;
		else if (field.number == 5 && field.kind == 0 && field.value == 0)
			return unsupported(error, "that does not escape blanks");
	return good || broken(error, "it is cut off");
}

static bool
read_denormalizer(HymtSpmFile *file, Span span, HymtError *error)
{
	Field		field;
	bool		good;

	while (next_field(&span, &field, &good))
		if (field.number == 2 && field.kind == 2 && size_of(&field.bytes) > 0)
			file->denormalizes = true;
	return good || broken(error, "it is cut off");
}

static uint32_t
unit_at(const unsigned char *units, size_t index)
{
	const unsigned char *u = units + index * 4;

	return u[0] | (uint32_t) u[1] << 8 | (uint32_t) u[2] << 16 | (uint32_t) u[3] << 24;
}

/*
 * The character table: the size of a double-array trie, the trie, then texts that end with NUL. A unit of the trie
 * without the top bit leads to 256 others by an offset that is xor-ed to its index and, when bit 8 is set, to one that
 * holds where in the texts its result begins. Every step from every unit must stay inside; the first unit is where all
 * searches begin, and is stepped from whatever its top bit says.
 */
static bool
check_charsmap(const HymtFileBytes *charsmap, HymtError *error)
{
	const unsigned char *bytes = (const unsigned char *) charsmap->data;
	size_t		trie;
	size_t		count;
	size_t		texts;

	if (charsmap->length < 4)
		return broken(error, "its character table is cut off");
	trie = unit_at(bytes, 0);
	if (trie < 1024 || trie % 1024 != 0 || trie >= charsmap->length - 4)
		return broken(error, "its character table is damaged");
	bytes += 4;
	count = trie / 4;
	texts = charsmap->length - 4 - trie;
	if (bytes[trie + texts - 1] != '\0')
		return broken(error, "its character table is cut off");
	for (size_t i = 0; i < count; i++)
	{
		uint32_t	unit = unit_at(bytes, i);
		size_t		next = i ^ (size_t) ((unit >> 10) << ((unit & (1u << 9)) >> 6));

		if (unit >> 31 != 0 && i > 0)
			continue;
		if ((next | 0xFF) >= count)
			return broken(error, "its character table leads out of itself");
		if ((unit & 0x100) != 0 && (unit_at(bytes, next) & 0x7FFFFFFF) >= texts)
			return broken(error, "its character table leads out of its texts");
	}
	return true;
}

static bool
read_message(HymtSpmFile *file, HymtError *error)
{
	Span		span = {file->bytes.data, file->bytes.data + file->bytes.length};
	Field		field;
	bool		good;

	while (next_field(&span, &field, &good))
	{
		bool		ok = true;

		if (field.number >= 1 && field.number <= 5 && field.kind != 2)
			return broken(error, "it has a field of the wrong kind");
		if (field.number == 1)
			ok = read_piece(file, field.bytes, error);
		else if (field.number == 2)
			ok = read_trainer(file, field.bytes, error);
		else if (field.number == 3)
			ok = read_normalizer(file, field.bytes, error);
		else if (field.number == 5)
			ok = read_denormalizer(file, field.bytes, error);
		if (!ok)
			return false;
	}
	return good || broken(error, "it is cut off, or something else");
}

static int
compare_spellings(const void *left, const void *right)
{
	const HymtSpmPiece *a = *(const HymtSpmPiece *const *) left;
	const HymtSpmPiece *b = *(const HymtSpmPiece *const *) right;
	int			order = memcmp(a->spelling, b->spelling, a->length < b->length ? a->length : b->length);

	return order != 0 ? order : a->length < b->length ? -1 : a->length > b->length;
}

/* Pieces that are looked up apart from those that texts may give. */
static bool
is_reserved(const HymtSpmPiece *piece)
{
	return piece->type == HYMT_SPM_UNKNOWN || piece->type == HYMT_SPM_CONTROL || piece->type == HYMT_SPM_BYTE;
}

/*
 * No piece may be spelled like one of the other kind: the library takes one for the other when it decodes. (Of one kind
 * it refuses them itself.)
 */
static bool
check_spellings(const HymtSpmFile *file, HymtError *error)
{
	const HymtSpmPiece **reserved = malloc(file->count * sizeof(*reserved));
	size_t		count = 0;
	bool		same = false;

	if (reserved == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "tokenizer: out of memory");
	for (size_t i = 0; i < file->count; i++)
		if (is_reserved(&file->pieces[i]))
			reserved[count++] = &file->pieces[i];
	qsort(reserved, count, sizeof(*reserved), compare_spellings);
	for (size_t i = 0; i < file->count && !same; i++)
	{
		const HymtSpmPiece *piece = &file->pieces[i];

		same = !is_reserved(piece) && bsearch(&piece, reserved, count, sizeof(*reserved), compare_spellings) != NULL;
	}
	free(reserved);
	return !same || broken(error, "a piece is spelled like a control, byte or unknown piece");
}

static bool
check_model(HymtSpmFile *file, HymtError *error)
{
	size_t		unknown = 0;

	for (size_t i = 0; i < file->count; i++)
		unknown += file->pieces[i].type == HYMT_SPM_UNKNOWN;
	if (file->count == 0)
		return broken(error, "it has no pieces");
	if (unknown != 1)
		return broken(error, "it has not one unknown piece");
	if (file->model_type != MODEL_UNIGRAM && file->model_type != MODEL_BPE)
		return unsupported(error, "other than unigram and BPE");
	if (file->blank_behind)
		return unsupported(error, "with blanks behind words");
	if (file->denormalizes)
		return unsupported(error, "with a denormalizer");
	if (!check_spellings(file, error))
		return false;
	file->normalizes = file->charsmap.length > 0;
	return !file->normalizes || check_charsmap(&file->charsmap, error);
}

bool
hymt_spm_file_read(HymtSpmFile *file, HymtFileBytes *bytes, HymtError *error)
{
	static const Span unknown = {unknown_text, unknown_text + sizeof(unknown_text) - 1};

	file->bytes = *bytes;
	memset(bytes, 0, sizeof(*bytes));
	/* what the format means by a field that is not there */
	file->model_type = MODEL_UNIGRAM;
	file->dummy_prefix = true;
	file->remove_blanks = true;
	return read_unknown(file, &unknown, error) && read_message(file, error) && check_model(file, error);
}

void
hymt_spm_file_free(HymtSpmFile *file)
{
	hymt_file_free(&file->bytes);
	hymt_file_free(&file->unknown);
	free(file->pieces);
	memset(file, 0, sizeof(*file));
}

void
hymt_spm_file_hide(HymtSpmFile *file, size_t id)
{
	HymtSpmPiece *piece = &file->pieces[id];

	if (piece->type != HYMT_SPM_USER_DEFINED)
		return;
	piece->type = HYMT_SPM_CONTROL;
	file->bytes.data[piece->type_at] = HYMT_SPM_CONTROL;
}
