/*
 * json_path.c: reading dotted paths, and writing the names of places as such.
 *
 * Runs in backends and parallel workers, also in error context callbacks (writing only). Knows nothing of documents.
 * Bytes are looked at one by one: in all server encodings characters of several bytes have no byte below 128.
 */
#include "json_path.h"

#include "catalog/pg_type.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"

/* Longest key in the name of a place, in bytes. */
#define NAMED_KEY_MAX 63

/* What a key may have in double quotes only. */
#define SPECIAL_CHARACTERS ".*\"\\"

typedef struct PathReader
{
	const text *path;
	const char *at;
	const char *end;
} PathReader;

/* --- reading ------------------------------------------------------------------------------------------------------ */

static void
raise_malformed(const PathReader *reader, const char *at, const char *what)
{
	const char *begin = VARDATA_ANY(reader->path);

	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("malformed path \"%s\" in argument \"paths\"", text_to_cstring(reader->path)),
			 errdetail("At character %d: %s.", pg_mbstrlen_with_len(begin, (int) (at - begin)) + 1, what),
			 errhint("A path is keys separated by dots. A key that is empty or has a dot, a star, a double quote or a backslash "
					 "is written in double quotes, with a backslash before a double quote or backslash in it.")));
}

static bool
is_special(char c)
{
	return c != '\0' && strchr(SPECIAL_CHARACTERS, c) != NULL;
}

/* Whole numbers that no element can have become such that are in range and that no element has either. */
static bool
is_whole_number(const char *key, int length, int *number)
{
	int			first = length > 0 && key[0] == '-' ? 1 : 0;
	int64		value = 0;

	if (first == length)
		return false;
	for (int i = first; i < length; i++)
	{
		if (key[i] < '0' || key[i] > '9')
			return false;
		value = Min(value * 10 + (key[i] - '0'), PG_INT32_MAX);
	}
	*number = (int) (first > 0 ? -value : value);
	return true;
}

static HymtStep
read_plain_key(PathReader *reader)
{
	HymtStep	step = {.kind = HYMT_STEP_KEY, .key = reader->at};

	while (reader->at < reader->end && !is_special(*reader->at))
		reader->at++;
	step.length = (int) (reader->at - step.key);
	if (reader->at < reader->end && *reader->at != '.')
		raise_malformed(reader, reader->at, *reader->at == '*' ? "a star that is part of a key must be in double quotes" :
						"a key with this character must be in double quotes");
	if (is_whole_number(step.key, step.length, &step.number))
		step.kind = HYMT_STEP_NUMBER;
	return step;
}

/* A key in double quotes is never a number or a star. */
static HymtStep
read_quoted_key(PathReader *reader)
{
	const char *quote = reader->at++;
	char	   *key = palloc(reader->end - quote);
	HymtStep	step = {.kind = HYMT_STEP_KEY, .key = key};

	while (reader->at < reader->end && *reader->at != '"')
	{
		if (*reader->at == '\\')
		{
			reader->at++;
			if (reader->at < reader->end && *reader->at != '"' && *reader->at != '\\')
				raise_malformed(reader, reader->at - 1,
								"in double quotes, a backslash may only stand before a double quote or a backslash");
		}
		if (reader->at < reader->end)
			key[step.length++] = *reader->at++;
	}
	if (reader->at == reader->end)
		raise_malformed(reader, quote, "this double quote has no counterpart");
	reader->at++;
	if (reader->at < reader->end && *reader->at != '.')
		raise_malformed(reader, reader->at, "only a dot may follow a key in double quotes");
	return step;
}

static HymtStep
read_step(PathReader *reader)
{
	if (reader->at == reader->end || *reader->at == '.')
		raise_malformed(reader, reader->at, "a key is missing");
	if (*reader->at == '"')
		return read_quoted_key(reader);
	if (*reader->at == '*' && (reader->at + 1 == reader->end || reader->at[1] == '.'))
	{
		reader->at++;
		return (HymtStep) {.kind = HYMT_STEP_ANY};
	}
	return read_plain_key(reader);
}

static HymtPath
read_path(const text *source)
{
	PathReader	reader = {.path = source, .at = VARDATA_ANY(source)};
	HymtPath	path = {0};
	int			most = 1;

	reader.end = reader.at + VARSIZE_ANY_EXHDR(source);
	if (reader.at == reader.end)
		return path;
	for (const char *c = reader.at; c < reader.end; c++)
		most += *c == '.';
	path.step = palloc_extended(most * sizeof(HymtStep), MCXT_ALLOC_HUGE);
	for (;;)
	{
		CHECK_FOR_INTERRUPTS();
		path.step[path.count++] = read_step(&reader);
		if (reader.at == reader.end)
			return path;
		reader.at++;
	}
}

HymtPath *
hymt_read_paths(ArrayType *array, int *count)
{
	Datum	   *values;
	bool	   *nulls;
	HymtPath   *paths;

	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("argument \"paths\" must be an array of one dimension")));
	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, count);
	paths = palloc_extended(*count * sizeof(HymtPath), MCXT_ALLOC_HUGE);
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("argument \"paths\" must not contain nulls")));
		paths[i] = read_path(DatumGetTextPP(values[i]));
	}
	return paths;
}

/* --- comparing ---------------------------------------------------------------------------------------------------- */

bool
hymt_step_is_key(const HymtStep *step, const char *key, int length)
{
	return step->kind == HYMT_STEP_ANY || (step->length == length && memcmp(step->key, key, length) == 0);
}

bool
hymt_step_is_element(const HymtStep *step, int number, int elements)
{
	if (step->kind == HYMT_STEP_NUMBER)
		return number == (step->number < 0 ? elements + step->number : step->number);
	return step->kind == HYMT_STEP_ANY;
}

/* --- writing ------------------------------------------------------------------------------------------------------ */

/* Whether a key without quotes would be something else, or nothing. */
static bool
needs_quotes(const char *key, int length)
{
	int			number;

	for (int i = 0; i < length; i++)
	{
		if (is_special(key[i]))
			return true;
	}
	return length == 0 || is_whole_number(key, length, &number);
}

static void
append_dot(StringInfo name)
{
	if (name->len > 0)
		appendStringInfoChar(name, '.');
}

void
hymt_append_key(StringInfo name, const char *key, int length)
{
	int			shown = pg_mbcliplen(key, length, NAMED_KEY_MAX);
	bool		quoted = needs_quotes(key, shown);

	append_dot(name);
	if (quoted)
		appendStringInfoChar(name, '"');
	for (int i = 0; i < shown; i++)
	{
		if (quoted && (key[i] == '"' || key[i] == '\\'))
			appendStringInfoChar(name, '\\');
		appendStringInfoChar(name, key[i]);
	}
	if (shown < length)
		appendStringInfoString(name, "...");
	if (quoted)
		appendStringInfoChar(name, '"');
}

void
hymt_append_element(StringInfo name, int number)
{
	append_dot(name);
	appendStringInfo(name, "%d", number);
}
