/*
 * normalize.c: Unicode normalisation form C.
 *
 * Runs in the engine program. utf8proc knows the characters; only the ordering of combining marks is done here, because
 * the library sorts them by neighbouring swaps, and a text that consists of such marks would take quadratic time.
 */
#include "normalize.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#define MAX_DECOMPOSITION 4		/* code points of the longest canonical decomposition */

/* Canonical combining classes are bytes. */
#define CLASSES 256

/* Code points on their way through normalisation; `marks` is as long as `points`. */
typedef struct Work
{
	utf8proc_int32_t *points;
	size_t		count;
	utf8proc_int32_t *marks;
} Work;

/* Every character below U+0300 is NFC as it stands, and only a later one could change it. */
static bool
plainly_normal(const char *text, size_t length)
{
	for (size_t i = 0; i < length; i++)
		if ((unsigned char) text[i] >= 0xCC)
			return false;
	return true;
}

static int
combining_class(utf8proc_int32_t point)
{
	return utf8proc_get_property(point)->combining_class & (CLASSES - 1);
}

/* Stable sort of a run of combining marks by their classes, by counting. */
static void
sort_marks(utf8proc_int32_t *run, size_t count, utf8proc_int32_t *sorted)
{
	size_t		starts[CLASSES + 1] = {0};

	for (size_t i = 0; i < count; i++)
		starts[combining_class(run[i]) + 1]++;
	for (int class = 0; class < CLASSES; class++)
		starts[class + 1] += starts[class];
	for (size_t i = 0; i < count; i++)
		sorted[starts[combining_class(run[i])]++] = run[i];
	memcpy(run, sorted, count * sizeof(*run));
}

static void
order_marks(Work *work)
{
	size_t		at = 0;

	while (at < work->count)
	{
		size_t		start = at;
		bool		ordered = true;
		int			before = 0;
		int			class;

		while (at < work->count && (class = combining_class(work->points[at])) != 0)
		{
			ordered = ordered && before <= class;
			before = class;
			at++;
		}
		if (!ordered)
			sort_marks(work->points + start, at - start, work->marks);
		if (at == start)
			at++;
	}
}

/* Decode and decompose. The text is well-formed, so that no call fails. */
static void
decompose(Work *work, const char *text, size_t length)
{
	const utf8proc_uint8_t *bytes = (const utf8proc_uint8_t *) text;
	size_t		at = 0;

	while (at < length)
	{
		utf8proc_int32_t point;
		utf8proc_ssize_t used = utf8proc_iterate(bytes + at, (utf8proc_ssize_t) (length - at), &point);
		utf8proc_ssize_t made;
		int			boundary;

		if (used <= 0)
			break;
		made = utf8proc_decompose_char(point, work->points + work->count, MAX_DECOMPOSITION, UTF8PROC_DECOMPOSE,
									   &boundary);
		if (made > 0 && made <= MAX_DECOMPOSITION)
			work->count += (size_t) made;
		at += (size_t) used;
	}
}

bool
hymt_normalize_nfc(const char *text, size_t length, char **result, size_t *result_length)
{
	Work		work = {0};
	utf8proc_ssize_t written;
	/* no character decomposes into more than two code points for each of its bytes */
	size_t		room = length * 2 + MAX_DECOMPOSITION;

	*result = NULL;
	*result_length = 0;
	if (plainly_normal(text, length))
		return true;
	work.points = malloc(room * sizeof(*work.points));
	if (work.points == NULL)
		return false;
	decompose(&work, text, length);
	work.marks = malloc((work.count + 1) * sizeof(*work.marks));
	if (work.marks == NULL)
	{
		free(work.points);
		return false;
	}
	order_marks(&work);
	free(work.marks);
	/* composes, and writes UTF-8 over the code points */
	written = utf8proc_reencode(work.points, (utf8proc_ssize_t) work.count, UTF8PROC_STABLE | UTF8PROC_COMPOSE);
	if (written < 0)
	{
		free(work.points);
		return false;
	}
	*result = (char *) work.points;
	*result_length = (size_t) written;
	return true;
}
