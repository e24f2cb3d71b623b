/*
 * normalize.h: Unicode normalisation form C.
 */
#ifndef HYMT_NORMALIZE_H
#define HYMT_NORMALIZE_H

#include <stdbool.h>
#include <stddef.h>

/*
 * Normalise well-formed UTF-8 to NFC, in time linear in its length. Text that is plainly NFC already is not copied:
 * then *result is NULL. Otherwise *result is malloc'ed, *result_length long, the caller's to free. False: out of
 * memory.
 */
extern bool hymt_normalize_nfc(const char *text, size_t length, char **result, size_t *result_length);

#endif							/* HYMT_NORMALIZE_H */
