/*
 * regex_dialect.h: the regular expressions of tokenizer.json, as PCRE2 must be given them.
 *
 * Such files are written for Oniguruma. The two agree on what pre-tokenizers need, with exceptions that would change
 * tokens silently (what \s matches, for one), so the common part is translated and everything else refused.
 */
#ifndef HYMT_REGEX_DIALECT_H
#define HYMT_REGEX_DIALECT_H

#include <stddef.h>

#include "error.h"

/*
 * Translate a pattern (valid UTF-8). Returns the PCRE2 pattern, malloc'ed, NUL-terminated, its length in
 * *result_length; NULL with *error set when it uses anything that is not known to mean the same.
 */
extern char *hymt_regex_translate(const char *pattern, size_t length, size_t *result_length, HymtError *error);

#endif							/* HYMT_REGEX_DIALECT_H */
