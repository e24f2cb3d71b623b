/*
 * error.c: filling in a HymtError.
 *
 * Runs in the engine program. Owns nothing; allocates nothing, so that it also works when memory is out.
 */
#include "error.h"

#include <stdarg.h>
#include <string.h>

/*
 * The length of the longest prefix of `text` (`length` bytes, cut at an arbitrary byte) that ends at a character:
 * messages are forwarded as UTF-8, and half a character would make the whole message invalid.
 */
static size_t
whole_characters(const char *text, size_t length)
{
	size_t		start = length;
	unsigned char lead;
	size_t		need;

	while (start > 0 && length - start < 4 && ((unsigned char) text[start - 1] & 0xC0) == 0x80)
		start--;
	if (start == 0)
		return length;
	lead = (unsigned char) text[start - 1];
	need = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : lead >= 0xC0 ? 2 : 1;
	return length - (start - 1) < need ? start - 1 : length;
}

bool
hymt_fail(HymtError *error, HymtFailure failure, const char *format, ...)
{
	va_list		arguments;
	char		message[sizeof error->message];
	int			length;

	/* Into a buffer of our own first: an argument may be error->message itself. */
	va_start(arguments, format);
	length = vsnprintf(message, sizeof message, format, arguments);
	va_end(arguments);
	if (length < 0)
		message[0] = '\0';
	else if ((size_t) length >= sizeof message)
		message[whole_characters(message, sizeof message - 1)] = '\0';
	error->failure = failure;
	strcpy(error->message, message);
	return false;
}
