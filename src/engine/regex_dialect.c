/*
 * regex_dialect.c: the regular expressions of tokenizer.json, as PCRE2 must be given them.
 *
 * Runs in the engine program. Owns nothing. The pattern is untrusted; whether it is well formed is left to PCRE2, which
 * sees it afterwards: here only differences of meaning matter.
 */
#include "regex_dialect.h"

#include <stdlib.h>
#include <string.h>

#define MAX_PATTERN 16384		/* bytes; real ones have a few hundred */

/*
 * What \s matches: Unicode's White_Space. PCRE2's own \s has U+180E too, which stands inside Mongolian words.
 */
#define SPACES \
	"\\x{9}-\\x{d}\\x{20}\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define NOT_SPACES \
	"\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}\\x{200b}-\\x{2027}" \
	"\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}\\x{3001}-\\x{10ffff}"
#define LONGEST_REPLACEMENT (sizeof(NOT_SPACES) + 2)

typedef struct Translation
{
	const char *pattern;
	const char *at;
	const char *end;
	char	   *out;			/* with room for everything that can come */
	size_t		length;
	HymtError  *error;
} Translation;

static void
put(Translation *t, const char *bytes, size_t count)
{
	memcpy(t->out + t->length, bytes, count);
	t->length += count;
}

static void
put_word(Translation *t, const char *word)
{
	put(t, word, strlen(word));
}

/* Copy bytes of the pattern. */
static bool
copy(Translation *t, size_t count)
{
	put(t, t->at, count);
	t->at += count;
	return true;
}

/* Whether the pattern goes on with `word`. */
static bool
ahead(const Translation *t, const char *word)
{
	size_t		length = strlen(word);

	return (size_t) (t->end - t->at) >= length && memcmp(t->at, word, length) == 0;
}

static bool
refuse(const Translation *t, const char *what)
{
	return hymt_fail(t->error, HYMT_FAILURE_MODEL_UNSUPPORTED, "regular expression: %s is not supported (at byte %zu)",
					 what, (size_t) (t->at - t->pattern));
}

/* \p{L}, \P{Lu}: general categories only. Names of scripts mean more characters in PCRE2. */
static bool
translate_property(Translation *t)
{
	size_t		letters = 0;
	const char *name = t->at + 3;

	if (t->end - t->at < 5 || t->at[2] != '{')
		return refuse(t, "a property without braces");
	while (name + letters < t->end && ((name[letters] | 0x20) >= 'a' && (name[letters] | 0x20) <= 'z'))
		letters++;
	if (letters < 1 || letters > 2 || name + letters == t->end || name[letters] != '}')
		return refuse(t, "a property that is no general category");
	return copy(t, 3 + letters + 1);
}

static int
hex_digits(const Translation *t, const char *from)
{
	int			count = 0;

	while (from + count < t->end && strchr("0123456789abcdefABCDEF", from[count]) != NULL && from[count] != '\0')
		count++;
	return count;
}

/* \xHH, \x{H…} and \uHHHH. */
static bool
translate_code(Translation *t)
{
	const char *digits = t->at + 2;
	int			count;

	if (t->at[1] == 'x' && digits < t->end && *digits == '{')
	{
		count = hex_digits(t, digits + 1);
		if (count < 1 || count > 6 || digits + 1 + count == t->end || digits[1 + count] != '}')
			return refuse(t, "this form of \\x");
		return copy(t, 2 + 1 + (size_t) count + 1);
	}
	count = hex_digits(t, digits);
	if (t->at[1] == 'u' ? count < 4 : count != 2)
		return refuse(t, "this form of \\x or \\u");
	if (t->at[1] == 'x')
		return copy(t, 4);
	put_word(t, "\\x{");
	put(t, digits, 4);
	put_word(t, "}");
	t->at += 6;
	return true;
}

static bool
translate_escape(Translation *t, bool in_class)
{
	unsigned char c;

	if (t->end - t->at < 2)
		return refuse(t, "a backslash at the end");
	c = (unsigned char) t->at[1];
	switch (c)
	{
		case 's':
			put_word(t, in_class ? SPACES : "[" SPACES "]");
			t->at += 2;
			return true;
		case 'S':
			put_word(t, in_class ? NOT_SPACES : "[" NOT_SPACES "]");
			t->at += 2;
			return true;
		case 'p':
		case 'P':
			return translate_property(t);
		case 'x':
		case 'u':
			return translate_code(t);
		case 'd':
		case 'D':
		case 'r':
		case 'n':
		case 't':
		case 'f':
			return copy(t, 2);
		default:
			if (c >= 0x80 || (c >= '0' && c <= '9') || ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') || c < 0x20)
			{
				char		what[] = "\\?";

				what[1] = c >= 0x20 && c < 0x80 ? (char) c : '?';
				return refuse(t, what);
			}
			return copy(t, 2);
	}
}

/* Whether an escape of several characters, such as \s, comes next. */
static bool
set_ahead(const Translation *t)
{
	return t->end - t->at >= 2 && t->at[0] == '\\' && t->at[1] != '\0' && strchr("sSdDpP", t->at[1]) != NULL;
}

/* One item of a class. */
static bool
translate_item(Translation *t)
{
	bool		set = set_ahead(t);

	if (*t->at == '[')
		return refuse(t, "a class inside a class");
	if (ahead(t, "&&"))
		return refuse(t, "an intersection of classes");
	if (*t->at != '\\')
		copy(t, 1);
	else if (!translate_escape(t, true))
		return false;
	/* such a hyphen is either a mistake or a character, and the two dialects need not agree */
	if (set && ahead(t, "-") && !ahead(t, "-]"))
		return refuse(t, "a range that starts at a set");
	return true;
}

static bool
translate_class(Translation *t)
{
	bool		first = true;

	copy(t, ahead(t, "[^") ? 2 : 1);
	if (ahead(t, "]"))
		return refuse(t, "a class that starts with \"]\"");
	while (t->at < t->end && *t->at != ']')
	{
		bool		hyphen = *t->at == '-';

		if (!translate_item(t))
			return false;
		if (hyphen && !first && set_ahead(t))
			return refuse(t, "a range that ends at a set");
		first = false;
	}
	if (t->at == t->end)
		return refuse(t, "a class without an end");
	return copy(t, 1);
}

static bool
translate_group(Translation *t)
{
	static const char *const known[] = {"(?:", "(?i:", "(?=", "(?!", "(?<=", "(?<!", "(?>"};

	if (ahead(t, "(*"))
		return refuse(t, "\"(*\"");
	if (!ahead(t, "(?"))
		return copy(t, 1);
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++)
		if (ahead(t, known[i]))
			return copy(t, strlen(known[i]));
	return refuse(t, "this kind of group");
}

/* {n}, {n,} and {n,m}; Oniguruma reads {,m}, and "?" and "+" behind a brace, in its own way. */
static bool
translate_interval(Translation *t)
{
	size_t		length = 1;

	while (t->at + length < t->end && strchr("0123456789,", t->at[length]) != NULL && t->at[length] != '\0')
		length++;
	if (t->at + length == t->end || t->at[length] != '}' || t->at[1] == ',' || length == 1)
		return refuse(t, "this form of \"{\"");
	copy(t, length + 1);
	if (ahead(t, "?") || ahead(t, "+") || ahead(t, "*") || ahead(t, "{"))
		return refuse(t, "a quantifier behind an interval");
	return true;
}

static bool
translate(Translation *t)
{
	while (t->at < t->end)
	{
		bool		fine;

		switch (*t->at)
		{
			case '\\':
				fine = translate_escape(t, false);
				break;
			case '[':
				fine = translate_class(t);
				break;
			case '(':
				fine = translate_group(t);
				break;
			case '{':
				fine = translate_interval(t);
				break;
			case '^':
			case '$':
				fine = refuse(t, "an anchor");
				break;
			default:
				fine = copy(t, 1);
				break;
		}
		if (!fine)
			return false;
	}
	return true;
}

char *
hymt_regex_translate(const char *pattern, size_t length, size_t *result_length, HymtError *error)
{
	Translation t = {.pattern = pattern, .at = pattern, .end = pattern + length, .error = error};

	if (length > MAX_PATTERN)
	{
		hymt_fail(error, HYMT_FAILURE_MODEL_UNSUPPORTED, "regular expression: longer than %d bytes", MAX_PATTERN);
		return NULL;
	}
	/* every replacement stands for at least two bytes */
	t.out = malloc((length / 2 + 1) * LONGEST_REPLACEMENT + length + 1);
	if (t.out == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "regular expression: out of memory");
		return NULL;
	}
	if (!translate(&t))
	{
		free(t.out);
		return NULL;
	}
	t.out[t.length] = '\0';
	*result_length = t.length;
	return t.out;
}
