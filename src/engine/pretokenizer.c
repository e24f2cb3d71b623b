/*
 * pretokenizer.c: cutting a text into the pieces that BPE works on, as a chain of Split steps says.
 *
 * Runs in the engine program. A HymtPretokenizer owns its compiled patterns and is not changed once it is built: what a
 * match needs to write to is made for each text, so that several threads may cut at once.
 */
#define PCRE2_CODE_UNIT_WIDTH 8

#include "pretokenizer.h"

#include <pcre2.h>
#include <stdlib.h>
#include <string.h>

#include "regex_dialect.h"

#define MAX_STEPS 16

/*
 * Work that one match may cost. Sane patterns need a few steps per byte; the allowance per byte is for those that look
 * at a long run several times.
 */
#define MATCH_LIMIT_BASE 1000000
#define MATCH_LIMIT_PER_BYTE 16
#define HEAP_LIMIT_KB (256 * 1024)

struct HymtPretokenizer
{
	int			count;
	pcre2_code *steps[MAX_STEPS];
};

/* What cutting one text needs. */
typedef struct Cutter
{
	const char *text;
	size_t		most;			/* pieces, before it stops */
	pcre2_match_data *match;
	pcre2_match_context *limits;
	HymtError  *error;
} Cutter;

HymtPretokenizer *
hymt_pretokenizer_create(void)
{
	return calloc(1, sizeof(HymtPretokenizer));
}

void
hymt_pretokenizer_free(HymtPretokenizer *pretokenizer)
{
	if (pretokenizer == NULL)
		return;
	for (int i = 0; i < pretokenizer->count; i++)
		pcre2_code_free(pretokenizer->steps[i]);
	free(pretokenizer);
}

static bool
out_of_memory(HymtError *error)
{
	return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "pre-tokenizer: out of memory");
}

static bool
add_step(HymtPretokenizer *pretokenizer, const char *pattern, size_t length, uint32_t options, HymtError *error)
{
	pcre2_compile_context *context = pcre2_compile_context_create(NULL);
	pcre2_code *code;
	PCRE2_SIZE	offset;
	int			number;

	if (context == NULL)
		return out_of_memory(error);
	/* the dot leaves out a line feed only, however PCRE2 was built */
	pcre2_set_newline(context, PCRE2_NEWLINE_LF);
	options |= PCRE2_UTF | PCRE2_NO_UTF_CHECK;
	code = pcre2_compile((PCRE2_SPTR) pattern, length, options, &number, &offset, context);
	pcre2_compile_context_free(context);
	if (code == NULL)
	{
		char		message[128];

		pcre2_get_error_message(number, (PCRE2_UCHAR *) message, sizeof(message));
		return hymt_fail(error, HYMT_FAILURE_MODEL_BROKEN, "regular expression: %s", message);
	}
	/* where there is no compiler for this machine, matching interprets the pattern */
	pcre2_jit_compile(code, PCRE2_JIT_COMPLETE);
	pretokenizer->steps[pretokenizer->count++] = code;
	return true;
}

static bool
check_room(const HymtPretokenizer *pretokenizer, HymtError *error)
{
	if (pretokenizer->count == MAX_STEPS)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "more than %d pre-tokenizer steps", MAX_STEPS);
	return true;
}

bool
hymt_pretokenizer_add_regex(HymtPretokenizer *pretokenizer, const char *pattern, size_t length, HymtError *error)
{
	size_t		translated_length;
	char	   *translated;
	bool		ok;

	if (!check_room(pretokenizer, error))
		return false;
	translated = hymt_regex_translate(pattern, length, &translated_length, error);
	if (translated == NULL)
		return false;
	ok = add_step(pretokenizer, translated, translated_length, PCRE2_UCP | PCRE2_NEVER_BACKSLASH_C, error);
	free(translated);
	return ok;
}

bool
hymt_pretokenizer_add_literal(HymtPretokenizer *pretokenizer, const char *text, size_t length, HymtError *error)
{
	if (length == 0)
		return hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "a Split at an empty string is not supported");
	return check_room(pretokenizer, error) && add_step(pretokenizer, text, length, PCRE2_LITERAL, error);
}

bool
hymt_pretokenizer_add_byte_level(HymtPretokenizer *pretokenizer, HymtError *error)
{
	static const char pattern[] =
		"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+";

	return hymt_pretokenizer_add_regex(pretokenizer, pattern, sizeof(pattern) - 1, error);
}

void
hymt_pieces_free(HymtPieces *list)
{
	free(list->pieces);
	memset(list, 0, sizeof(*list));
}

/* Append the piece from `start` to `end`, unless it is empty. */
static bool
append_piece(HymtPieces *list, size_t start, size_t end)
{
	if (start == end)
		return true;
	if (list->count == list->capacity)
	{
		size_t		capacity = list->capacity == 0 ? 64 : list->capacity * 2;
		HymtPiece  *pieces = realloc(list->pieces, capacity * sizeof(*pieces));

		if (pieces == NULL)
			return false;
		list->pieces = pieces;
		list->capacity = capacity;
	}
	list->pieces[list->count].start = (uint32_t) start;
	list->pieces[list->count].length = (uint32_t) (end - start);
	list->count++;
	return true;
}

/* Search from `from`. 1: a match is in the match data; 0: there is none; -1: *error is set. */
static int
search(Cutter *cutter, const pcre2_code *code, const char *subject, size_t length, size_t from)
{
	PCRE2_SPTR	text = (PCRE2_SPTR) subject;
	uint32_t	options = PCRE2_NO_UTF_CHECK;
	int			result;

	result = pcre2_match(code, text, length, from, options, cutter->match, cutter->limits);
	/* compiled code has a small fixed stack, the interpreter a heap */
	if (result == PCRE2_ERROR_JIT_STACKLIMIT)
		result = pcre2_match(code, text, length, from, options | PCRE2_NO_JIT, cutter->match, cutter->limits);
	if (result >= 0)
		return 1;
	if (result == PCRE2_ERROR_NOMATCH)
		return 0;
	if (result == PCRE2_ERROR_NOMEMORY)
		out_of_memory(cutter->error);
	else
	{
		char		message[128];

		pcre2_get_error_message(result, (PCRE2_UCHAR *) message, sizeof(message));
		hymt_fail(cutter->error, HYMT_FAILURE_INTERNAL, "pre-tokenizer: %s", message);
	}
	return -1;
}

/* Bytes of the character that starts with this byte, in well-formed UTF-8. */
static size_t
character_length(char lead)
{
	unsigned char c = (unsigned char) lead;

	return c < 0xC0 ? 1 : c < 0xE0 ? 2 : c < 0xF0 ? 3 : 4;
}

/*
 * Cut one piece. The pattern sees nothing outside of it: the end of the piece is the end of the text. An empty match is
 * a border too, but not right behind another match.
 */
static bool
cut_piece(Cutter *cutter, const pcre2_code *code, HymtPiece piece, HymtPieces *pieces)
{
	const char *subject = cutter->text + piece.start;
	size_t		from = 0;		/* where the next search starts */
	size_t		done = 0;		/* end of the last match */
	bool		matched = false;

	while (from <= piece.length && pieces->count <= cutter->most)
	{
		const PCRE2_SIZE *bounds = pcre2_get_ovector_pointer(cutter->match);
		int			found = search(cutter, code, subject, piece.length, from);
		size_t		start;
		size_t		end;

		if (found < 0)
			return false;
		if (found == 0)
			break;
		start = bounds[0];
		end = bounds[1];
		if (start < from || end < start || end > piece.length)
			return hymt_fail(cutter->error, HYMT_FAILURE_INTERNAL, "pre-tokenizer: a match lies out of bounds");
		if (start == end && matched && end == done)
		{
			from += from < piece.length ? character_length(subject[from]) : 1;
			continue;
		}
		if (!append_piece(pieces, piece.start + done, piece.start + start) ||
			!append_piece(pieces, piece.start + start, piece.start + end))
			return out_of_memory(cutter->error);
		from = done = end;
		matched = true;
	}
	return append_piece(pieces, piece.start + done, piece.start + piece.length) || out_of_memory(cutter->error);
}

static bool
run_steps(const HymtPretokenizer *pretokenizer, Cutter *cutter, size_t length, HymtPieces *pieces)
{
	if (!append_piece(pieces, 0, length))
		return out_of_memory(cutter->error);
	for (int step = 0; step < pretokenizer->count; step++)
	{
		HymtPieces	cut = {0};
		bool		ok = true;

		for (size_t i = 0; ok && i < pieces->count && cut.count <= cutter->most; i++)
			ok = cut_piece(cutter, pretokenizer->steps[step], pieces->pieces[i], &cut);
		hymt_pieces_free(pieces);
		*pieces = cut;
		if (!ok)
			return false;
		if (pieces->count > cutter->most)
			break;				/* later steps only make more of them */
	}
	return true;
}

bool
hymt_pretokenizer_split(const HymtPretokenizer *pretokenizer, const char *text, size_t length, size_t most,
						HymtPieces *pieces, HymtError *error)
{
	Cutter		cutter = {.text = text, .most = most, .error = error};
	uint64_t	limit = MATCH_LIMIT_BASE + (uint64_t) length * MATCH_LIMIT_PER_BYTE;
	bool		ok = false;

	cutter.match = pcre2_match_data_create(1, NULL);
	cutter.limits = pcre2_match_context_create(NULL);
	if (cutter.match == NULL || cutter.limits == NULL)
		out_of_memory(error);
	else
	{
		pcre2_set_match_limit(cutter.limits, limit > UINT32_MAX ? UINT32_MAX : (uint32_t) limit);
		pcre2_set_heap_limit(cutter.limits, HEAP_LIMIT_KB);
		ok = run_steps(pretokenizer, &cutter, length, pieces);
	}
	pcre2_match_context_free(cutter.limits);
	pcre2_match_data_free(cutter.match);
	if (!ok)
		hymt_pieces_free(pieces);
	return ok;
}
