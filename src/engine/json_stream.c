/*
 * json_stream.c: walking through a large JSON text without building a tree of it.
 *
 * Runs in the engine program. Owns nothing: the text is the caller's, and is written to only where a string with
 * escapes is unescaped in place (the result is never longer). No recursion; the text is untrusted.
 */
#include "json_stream.h"

#include <string.h>

#include "utf8.h"

void
hymt_json_start(HymtJson *json, char *text, size_t length)
{
	memset(json, 0, sizeof(*json));
	json->start = text;
	json->at = text;
	json->end = text + length;
	json->first = true;
}

bool
hymt_json_fail(HymtJson *json, const char *problem)
{
	if (json->problem == NULL)
	{
		json->problem = problem;
		json->offset = (size_t) (json->at - json->start);
	}
	return false;
}

bool
hymt_json_text_is(const HymtJsonText *text, const char *word)
{
	return text->length == strlen(word) && memcmp(text->data, word, text->length) == 0;
}

static void
skip_spaces(HymtJson *json)
{
	while (json->at < json->end &&
		   (*json->at == ' ' || *json->at == '\n' || *json->at == '\r' || *json->at == '\t'))
		json->at++;
}

/* The next byte that is no white space, or 0 at the end (a NUL byte starts no value either). */
static char
look(HymtJson *json)
{
	if (json->problem != NULL)
		return '\0';
	skip_spaces(json);
	return json->at < json->end ? *json->at : '\0';
}

HymtJsonType
hymt_json_peek(HymtJson *json)
{
	switch (look(json))
	{
		case 'n':
			return HYMT_JSON_NULL;
		case 't':
		case 'f':
			return HYMT_JSON_BOOLEAN;
		case '"':
			return HYMT_JSON_STRING;
		case '[':
			return HYMT_JSON_ARRAY;
		case '{':
			return HYMT_JSON_OBJECT;
		case '-':
		case '0':
		case '1':
		case '2':
		case '3':
		case '4':
		case '5':
		case '6':
		case '7':
		case '8':
		case '9':
			return HYMT_JSON_NUMBER;
		default:
			return HYMT_JSON_NOTHING;
	}
}

/* Take a literal word. */
static bool
take_word(HymtJson *json, const char *word)
{
	size_t		length = strlen(word);

	if ((size_t) (json->end - json->at) < length || memcmp(json->at, word, length) != 0)
		return hymt_json_fail(json, "not a JSON value");
	json->at += length;
	return true;
}

bool
hymt_json_null(HymtJson *json)
{
	if (hymt_json_peek(json) != HYMT_JSON_NULL)
		return hymt_json_fail(json, "null was expected");
	return take_word(json, "null");
}

bool
hymt_json_boolean(HymtJson *json, bool *value)
{
	if (hymt_json_peek(json) != HYMT_JSON_BOOLEAN)
		return hymt_json_fail(json, "true or false was expected");
	*value = *json->at == 't';
	return take_word(json, *value ? "true" : "false");
}

static bool
at_digit(const HymtJson *json)
{
	return json->at < json->end && *json->at >= '0' && *json->at <= '9';
}

/* Take one or more digits. */
static bool
take_digits(HymtJson *json)
{
	if (!at_digit(json))
		return hymt_json_fail(json, "malformed number");
	while (at_digit(json))
		json->at++;
	return true;
}

/* Take a number; *integer tells whether it has neither fraction nor exponent. */
static bool
take_number(HymtJson *json, bool *integer)
{
	*integer = true;
	if (*json->at == '-')
		json->at++;
	if (json->at < json->end && *json->at == '0')
	{
		json->at++;
		if (at_digit(json))
			return hymt_json_fail(json, "malformed number");
	}
	else if (!take_digits(json))
		return false;
	if (json->at < json->end && *json->at == '.')
	{
		*integer = false;
		json->at++;
		if (!take_digits(json))
			return false;
	}
	if (json->at < json->end && (*json->at == 'e' || *json->at == 'E'))
	{
		*integer = false;
		json->at++;
		if (json->at < json->end && (*json->at == '+' || *json->at == '-'))
			json->at++;
		if (!take_digits(json))
			return false;
	}
	return true;
}

bool
hymt_json_integer(HymtJson *json, int64_t *value)
{
	const char *digit;
	bool		integer;
	bool		negative;
	int64_t		sum = 0;

	if (hymt_json_peek(json) != HYMT_JSON_NUMBER)
		return hymt_json_fail(json, "a number was expected");
	digit = json->at;
	if (!take_number(json, &integer))
		return false;
	if (!integer)
		return hymt_json_fail(json, "a whole number was expected");
	negative = *digit == '-';
	for (digit += negative; digit < json->at; digit++)
		if (__builtin_mul_overflow(sum, (int64_t) 10, &sum) ||
			__builtin_sub_overflow(sum, (int64_t) (*digit - '0'), &sum))
			return hymt_json_fail(json, "number out of range");
	/* summed up as a negative number, whose range is larger by one */
	if (!negative && sum == INT64_MIN)
		return hymt_json_fail(json, "number out of range");
	*value = negative ? sum : -sum;
	return true;
}

/* The value of four hexadecimal digits, or -1. */
static int
hex4(const char *digits, const char *end)
{
	int			value = 0;

	if (end - digits < 4)
		return -1;
	for (int i = 0; i < 4; i++)
	{
		char		c = digits[i];

		if (c >= '0' && c <= '9')
			value = value * 16 + (c - '0');
		else if (c >= 'a' && c <= 'f')
			value = value * 16 + (c - 'a' + 10);
		else if (c >= 'A' && c <= 'F')
			value = value * 16 + (c - 'A' + 10);
		else
			return -1;
	}
	return value;
}

/*
 * The code point of the escape "\uXXXX", or of a surrogate pair of two of them, whose first digit is at `digits`;
 * *length is the number of bytes from there to its end. -1 when it is malformed or half a pair.
 */
static int
unicode_escape(const char *digits, const char *end, int *length)
{
	int			code = hex4(digits, end);

	*length = 4;
	if (code < 0xD800 || code > 0xDFFF)
		return code;
	if (code >= 0xDC00 || end - digits < 10 || digits[4] != '\\' || digits[5] != 'u')
		return -1;
	else
	{
		int			low = hex4(digits + 6, end);

		if (low < 0xDC00 || low > 0xDFFF)
			return -1;
		*length = 10;
		return 0x10000 + (code - 0xD800) * 0x400 + (low - 0xDC00);
	}
}

/* Check the escape whose backslash is at json->at, and pass over it. */
static bool
pass_escape(HymtJson *json)
{
	int			length;

	if (json->end - json->at < 2)
		return hymt_json_fail(json, "string without an end");
	switch (json->at[1])
	{
		case '"':
		case '\\':
		case '/':
		case 'b':
		case 'f':
		case 'n':
		case 'r':
		case 't':
			json->at += 2;
			return true;
		case 'u':
			if (unicode_escape(json->at + 2, json->end, &length) < 0)
				return hymt_json_fail(json, "malformed \\u escape or half a surrogate pair");
			json->at += 2 + length;
			return true;
		default:
			return hymt_json_fail(json, "unknown escape in a string");
	}
}

/* Pass over a string, checking it; *raw is what stands between the quotes. */
static bool
pass_string(HymtJson *json, HymtJsonText *raw, bool *escaped)
{
	*escaped = false;
	json->at++;
	raw->data = json->at;
	while (json->at < json->end)
	{
		unsigned char c = (unsigned char) *json->at;

		if (c == '"')
		{
			raw->length = (size_t) (json->at - raw->data);
			json->at++;
			return true;
		}
		if (c == '\\')
		{
			*escaped = true;
			if (!pass_escape(json))
				return false;
		}
		else if (c < 0x20)
			return hymt_json_fail(json, "control character in a string");
		else if (c < 0x80)
			json->at++;
		else
		{
			int			bad;
			int			length = hymt_utf8_character(json->at, (size_t) (json->end - json->at), &bad);

			if (length == 0)
				return hymt_json_fail(json, "invalid UTF-8");
			json->at += length;
		}
	}
	return hymt_json_fail(json, "string without an end");
}

static char *
put_utf8(char *to, int code)
{
	if (code < 0x80)
		*to++ = (char) code;
	else if (code < 0x800)
	{
		*to++ = (char) (0xC0 | code >> 6);
		*to++ = (char) (0x80 | (code & 0x3F));
	}
	else if (code < 0x10000)
	{
		*to++ = (char) (0xE0 | code >> 12);
		*to++ = (char) (0x80 | (code >> 6 & 0x3F));
		*to++ = (char) (0x80 | (code & 0x3F));
	}
	else
	{
		*to++ = (char) (0xF0 | code >> 18);
		*to++ = (char) (0x80 | (code >> 12 & 0x3F));
		*to++ = (char) (0x80 | (code >> 6 & 0x3F));
		*to++ = (char) (0x80 | (code & 0x3F));
	}
	return to;
}

/* Replace the escapes of a string that pass_string() has accepted, in place. */
static size_t
unescape(char *data, size_t length)
{
	static const char names[] = "bfnrt";
	static const char values[] = "\b\f\n\r\t";
	const char *from = data;
	const char *end = data + length;
	char	   *to = data;

	while (from < end)
	{
		const char *name;

		if (*from != '\\')
		{
			*to++ = *from++;
			continue;
		}
		if (from[1] == 'u')
		{
			int			used;
			int			code = unicode_escape(from + 2, end, &used);

			to = put_utf8(to, code);
			from += 2 + used;
			continue;
		}
		name = strchr(names, from[1]);
		*to++ = name != NULL ? values[name - names] : from[1];
		from += 2;
	}
	return (size_t) (to - data);
}

bool
hymt_json_string(HymtJson *json, HymtJsonText *value)
{
	bool		escaped;

	if (hymt_json_peek(json) != HYMT_JSON_STRING)
		return hymt_json_fail(json, "a string was expected");
	if (!pass_string(json, value, &escaped))
		return false;
	if (escaped)
		value->length = unescape((char *) value->data, value->length);
	return true;
}

bool
hymt_json_enter(HymtJson *json, char bracket)
{
	if (look(json) != bracket)
		return hymt_json_fail(json, bracket == '{' ? "an object was expected" : "an array was expected");
	if (json->depth == HYMT_JSON_MAX_DEPTH)
		return hymt_json_fail(json, "nested too deeply");
	json->open[json->depth++] = bracket;
	json->at++;
	json->first = true;
	return true;
}

bool
hymt_json_next(HymtJson *json)
{
	char		c = look(json);
	char		bracket;

	if (json->problem != NULL)
		return false;
	bracket = json->open[json->depth - 1];
	if (c == (bracket == '{' ? '}' : ']'))
	{
		json->at++;
		json->depth--;
		json->first = false;
		return false;
	}
	if (json->first)
	{
		json->first = false;
		return true;
	}
	if (c != ',')
		return hymt_json_fail(json, bracket == '{' ? "\",\" or \"}\" was expected" : "\",\" or \"]\" was expected");
	json->at++;
	return true;
}

static bool
take_colon(HymtJson *json)
{
	if (look(json) != ':')
		return hymt_json_fail(json, "\":\" was expected");
	json->at++;
	return true;
}

bool
hymt_json_key(HymtJson *json, HymtJsonText *key)
{
	return hymt_json_string(json, key) && take_colon(json);
}

/* Take a scalar, or open a container. */
static bool
pass_value(HymtJson *json)
{
	HymtJsonText raw;
	bool		flag;

	switch (hymt_json_peek(json))
	{
		case HYMT_JSON_NULL:
			return hymt_json_null(json);
		case HYMT_JSON_BOOLEAN:
			return hymt_json_boolean(json, &flag);
		case HYMT_JSON_NUMBER:
			return take_number(json, &flag);
		case HYMT_JSON_STRING:
			return pass_string(json, &raw, &flag);
		case HYMT_JSON_ARRAY:
			return hymt_json_enter(json, '[');
		case HYMT_JSON_OBJECT:
			return hymt_json_enter(json, '{');
		case HYMT_JSON_NOTHING:
			break;
	}
	return hymt_json_fail(json, json->at < json->end ? "not a JSON value" : "the text ends too early");
}

bool
hymt_json_skip(HymtJson *json)
{
	int			outside = json->depth;

	if (!pass_value(json))
		return false;
	while (json->depth > outside)
	{
		if (!hymt_json_next(json))
		{
			if (json->problem != NULL)
				return false;
			continue;
		}
		if (json->open[json->depth - 1] == '{')
		{
			HymtJsonText raw;
			bool		escaped;

			if (hymt_json_peek(json) != HYMT_JSON_STRING)
				return hymt_json_fail(json, "a string was expected");
			if (!pass_string(json, &raw, &escaped) || !take_colon(json))
				return false;
		}
		if (!pass_value(json))
			return false;
	}
	return true;
}

bool
hymt_json_finish(HymtJson *json)
{
	look(json);
	if (json->problem != NULL)
		return false;
	if (json->at != json->end)
		return hymt_json_fail(json, "more text after the end");
	return true;
}
