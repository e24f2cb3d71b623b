/*
 * utf8.c: what is well-formed UTF-8, and where it stops being so.
 *
 * Runs in the engine program. Pure functions over the caller's bytes.
 */
#include "utf8.h"

#include <stdint.h>
#include <string.h>

/*
 * Length of the character that a lead byte announces, 0 for a byte that leads none, and the range of its second byte:
 * the range is what keeps out overlong forms, surrogates and what lies beyond U+10FFFF.
 */
static int
lead_byte(unsigned char lead, unsigned char *low, unsigned char *high)
{
	*low = 0x80;
	*high = 0xBF;
	if (lead < 0x80)
		return 1;
	if (lead < 0xC2)
		return 0;
	if (lead < 0xE0)
		return 2;
	if (lead < 0xF0)
	{
		if (lead == 0xE0)
			*low = 0xA0;
		else if (lead == 0xED)
			*high = 0x9F;
		return 3;
	}
	if (lead > 0xF4)
		return 0;
	if (lead == 0xF0)
		*low = 0x90;
	else if (lead == 0xF4)
		*high = 0x8F;
	return 4;
}

int
hymt_utf8_character(const char *text, size_t length, int *bad)
{
	unsigned char low;
	unsigned char high;
	int			size = lead_byte((unsigned char) text[0], &low, &high);

	*bad = 1;
	for (int i = 1; i < size; i++)
	{
		unsigned char byte;

		*bad = i;
		if ((size_t) i == length)
			return 0;
		byte = (unsigned char) text[i];
		if (byte < low || byte > high)
			return 0;
		low = 0x80;
		high = 0xBF;
	}
	return size;
}

int
hymt_utf8_control(const char *text)
{
	const unsigned char *byte = (const unsigned char *) text;

	if ((byte[0] > 0 && byte[0] < 0x20) || byte[0] == 0x7F)
		return 1;
	if (byte[0] == 0xC2 && byte[1] >= 0x80 && byte[1] <= 0x9F)
		return 2;
	if (byte[0] == 0xE2 && byte[1] == 0x80 && (byte[2] == 0xA8 || byte[2] == 0xA9))
		return 3;
	return 0;
}

size_t
hymt_utf8_valid(const char *text, size_t length)
{
	size_t		at = 0;

	while (at < length)
	{
		uint64_t	eight;
		int			bad;
		int			size;

		/* eight ASCII bytes at a time: most text is mostly that */
		if (length - at >= sizeof(eight))
		{
			memcpy(&eight, text + at, sizeof(eight));
			if ((eight & UINT64_C(0x8080808080808080)) == 0)
			{
				at += sizeof(eight);
				continue;
			}
		}
		size = hymt_utf8_character(text + at, length - at, &bad);
		if (size == 0)
			return at;
		at += (size_t) size;
	}
	return length;
}
