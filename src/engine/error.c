/*
 * error.c: filling in a HymtError.
 *
 * Runs in the engine program. Owns nothing; allocates nothing, so that it also works when memory is out.
 */
#include "error.h"

#include <stdarg.h>
#include <string.h>

#include "utf8.h"

/*
 * Make a message one line of valid UTF-8, in place: it may quote file names and contents of untrusted files, and goes
 * to terminals, logs and, as UTF-8, to sessions. `cut`: the message was cut at some byte, so half a character at its
 * end is dropped.
 */
static void
clean(char *message, bool cut)
{
	const char *from = message;
	size_t		left = strlen(message);
	char	   *to = message;

	while (left > 0)
	{
		int			bad = 0;
		int			length = hymt_utf8_character(from, left, &bad);

		if (length == 0 && cut && (size_t) bad == left)
			break;
		if (length == 0 || hymt_utf8_control(from) > 0)
			*to++ = '?';
		else
		{
			memmove(to, from, (size_t) length);
			to += length;
		}
		from += length == 0 ? bad : length;
		left -= (size_t) (length == 0 ? bad : length);
	}
	*to = '\0';
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
	clean(message, length >= (int) sizeof message);
	error->failure = failure;
	strcpy(error->message, message);
	return false;
}
