/*
 * utf8.h: what is well-formed UTF-8, and where it stops being so.
 */
#ifndef HYMT_UTF8_H
#define HYMT_UTF8_H

#include <stddef.h>

/*
 * The length in bytes (1 to 4) of the well-formed character at `text`, of which `length` > 0 bytes may be read. 0 when
 * there is none; then *bad is the number of bytes (1 to 3) that a decoder replaces by one U+FFFD: the longest start of
 * a character that they could still have been, or one byte.
 */
extern int	hymt_utf8_character(const char *text, size_t length, int *bad);

/* How many bytes from the start are well-formed UTF-8; `length` when all of them are. */
extern size_t hymt_utf8_valid(const char *text, size_t length);

/*
 * How many bytes (0 to 3) at the start of a NUL-terminated text are a character that moves the cursor of a terminal or
 * ends a line: C0 and C1 controls, U+007F, U+2028, U+2029.
 */
extern int	hymt_utf8_control(const char *text);

#endif							/* HYMT_UTF8_H */
