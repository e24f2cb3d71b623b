/*
 * passthrough.c: texts with nothing to translate, which come back as they are without the model.
 *
 * Runs in backends. Pure functions on UTF-8.
 *
 * A text passes when each of its words, split at white space, passes. A word passes when it
 *   - has no letter: numbers, punctuation, symbols, emoji (which are symbols, joiners and modifiers); or
 *   - apart from punctuation and symbols around it, is a code: made of A-Z 0-9 . _ / + - with at least one digit; lower
 *     case would take in words such as "iPhone15"; or
 *   - likewise is a URL (scheme "://" or "www.") or an e-mail address, in ASCII: Chinese text may follow a URL without
 *     a space between, and must not pass with it.
 */
#include "session.h"

#include <utf8proc.h>

typedef struct Word
{
	const char *data;
	Size		length;
} Word;

static bool
is_space(utf8proc_int32_t character)
{
	switch (utf8proc_category(character))
	{
		case UTF8PROC_CATEGORY_ZS:
		case UTF8PROC_CATEGORY_ZL:
		case UTF8PROC_CATEGORY_ZP:
			return true;
		default:
			return (character >= '\t' && character <= '\r') || character == 0x85;
	}
}

static bool
is_letter(utf8proc_int32_t character)
{
	switch (utf8proc_category(character))
	{
		case UTF8PROC_CATEGORY_LU:
		case UTF8PROC_CATEGORY_LL:
		case UTF8PROC_CATEGORY_LT:
		case UTF8PROC_CATEGORY_LM:
		case UTF8PROC_CATEGORY_LO:
			return true;
		default:
			return false;
	}
}

/* Punctuation or symbol. */
static bool
is_ornament(utf8proc_int32_t character)
{
	switch (utf8proc_category(character))
	{
		case UTF8PROC_CATEGORY_PC:
		case UTF8PROC_CATEGORY_PD:
		case UTF8PROC_CATEGORY_PS:
		case UTF8PROC_CATEGORY_PE:
		case UTF8PROC_CATEGORY_PI:
		case UTF8PROC_CATEGORY_PF:
		case UTF8PROC_CATEGORY_PO:
		case UTF8PROC_CATEGORY_SM:
		case UTF8PROC_CATEGORY_SC:
		case UTF8PROC_CATEGORY_SK:
		case UTF8PROC_CATEGORY_SO:
			return true;
		default:
			return false;
	}
}

/* Bytes of the first character; what is not UTF-8 counts as one letter, so that it never passes. */
static Size
next_character(const char *data, Size length, utf8proc_int32_t *character)
{
	utf8proc_ssize_t bytes = utf8proc_iterate((const utf8proc_uint8_t *) data, (utf8proc_ssize_t) length, character);

	if (bytes > 0)
		return (Size) bytes;
	*character = 'x';
	return 1;
}

static bool
has_letter(Word word)
{
	while (word.length > 0)
	{
		utf8proc_int32_t character;
		Size		bytes = next_character(word.data, word.length, &character);

		if (is_letter(character))
			return true;
		word.data += bytes;
		word.length -= bytes;
	}
	return false;
}

/* From the first character that is no ornament to behind the last such character. */
static Word
without_ornaments(Word word)
{
	Word		core = {word.data, 0};
	bool		begun = false;

	for (Size at = 0; at < word.length;)
	{
		utf8proc_int32_t character;
		Size		bytes = next_character(word.data + at, word.length - at, &character);

		if (!is_ornament(character))
		{
			if (!begun)
				core.data = word.data + at;
			begun = true;
			core.length = word.data + at + bytes - core.data;
		}
		at += bytes;
	}
	return core;
}

static bool
ascii_digit(char c)
{
	return c >= '0' && c <= '9';
}

static bool
ascii_upper(char c)
{
	return c >= 'A' && c <= 'Z';
}

static bool
ascii_alnum(char c)
{
	return ascii_digit(c) || ascii_upper(c) || (c >= 'a' && c <= 'z');
}

static bool
is_ascii(Word word)
{
	for (Size i = 0; i < word.length; i++)
	{
		if ((unsigned char) word.data[i] >= 0x80)
			return false;
	}
	return true;
}

static bool
is_code(Word word)
{
	bool		digit = false;

	for (Size i = 0; i < word.length; i++)
	{
		char		c = word.data[i];

		digit |= ascii_digit(c);
		if (!ascii_digit(c) && !ascii_upper(c) && (c == '\0' || strchr("._/+-", c) == NULL))
			return false;
	}
	return digit;
}

static bool
is_url(Word word)
{
	Size		scheme = 0;

	if (word.length > 4 && pg_strncasecmp(word.data, "www.", 4) == 0)
		return is_ascii(word);
	while (scheme < word.length && ascii_alnum(word.data[scheme]))
		scheme++;
	return scheme > 1 && word.length > scheme + 3 && strncmp(word.data + scheme, "://", 3) == 0 && is_ascii(word);
}

static bool
is_email(Word word)
{
	const char *at = memchr(word.data, '@', word.length);
	const char *end = word.data + word.length;
	const char *dot = NULL;

	if (at == NULL || at == word.data)
		return false;
	for (const char *c = word.data; c < at; c++)
	{
		if (!ascii_alnum(*c) && (*c == '\0' || strchr("._%+-", *c) == NULL))
			return false;
	}
	for (const char *c = at + 1; c < end; c++)
	{
		if (*c == '.')
			dot = c;
		else if (!ascii_alnum(*c) && *c != '-')
			return false;
	}
	return dot != NULL && dot > at + 1 && end - dot > 2;
}

static bool
passes(Word word)
{
	Word		core;

	if (!has_letter(word))
		return true;
	core = without_ornaments(word);
	return is_code(core) || is_url(core) || is_email(core);
}

bool
hymt_has_words(const char *utf8, Size length)
{
	Size		start = 0;
	Size		at = 0;

	while (at < length)
	{
		utf8proc_int32_t character;
		Size		bytes = next_character(utf8 + at, length - at, &character);

		if (is_space(character))
		{
			if (!passes((Word) {utf8 + start, at - start}))
				return true;
			start = at + bytes;
		}
		at += bytes;
	}
	return !passes((Word) {utf8 + start, length - start});
}
