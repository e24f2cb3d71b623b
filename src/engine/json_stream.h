/*
 * json_stream.h: walking through a large JSON text without building a tree of it.
 *
 * A tokenizer.json is megabytes of two lists; its reader wants every entry once, in order. Strings are unescaped in the
 * text itself, so the text must be writable and must live as long as the strings taken from it.
 *
 * The reader is strict (RFC 8259, valid UTF-8, no lone surrogates, bounded depth). Errors stick: after the first one
 * every call fails, and `problem` says what was wrong at `offset`.
 *
 * To walk through an object:
 *
 *      hymt_json_enter(json, '{');
 *      while (hymt_json_next(json) && hymt_json_key(json, &key))
 *          … exactly one call that takes the value: a scalar, hymt_json_skip() or a nested walk …
 *      if (json->problem != NULL) …
 */
#ifndef HYMT_JSON_STREAM_H
#define HYMT_JSON_STREAM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define HYMT_JSON_MAX_DEPTH 64

/* Points into the text that is being read. Not NUL-terminated, may contain NUL. */
typedef struct HymtJsonText
{
	const char *data;
	size_t		length;
} HymtJsonText;

typedef enum HymtJsonType
{
	HYMT_JSON_NULL,
	HYMT_JSON_BOOLEAN,
	HYMT_JSON_NUMBER,
	HYMT_JSON_STRING,
	HYMT_JSON_ARRAY,
	HYMT_JSON_OBJECT,
	HYMT_JSON_NOTHING			/* no value starts here */
} HymtJsonType;

typedef struct HymtJson
{
	char	   *start;
	char	   *at;
	char	   *end;
	int			depth;
	char		open[HYMT_JSON_MAX_DEPTH];	/* '{' or '[' of every container that is open */
	bool		first;			/* no element of the innermost container has been taken yet */
	const char *problem;		/* NULL while all is well; static memory */
	size_t		offset;			/* where the problem is */
} HymtJson;

extern void hymt_json_start(HymtJson *json, char *text, size_t length);

/* The type of the value that comes next. Takes nothing. */
extern HymtJsonType hymt_json_peek(HymtJson *json);

/* Each takes one value and fails when it is of another type. */
extern bool hymt_json_null(HymtJson *json);
extern bool hymt_json_boolean(HymtJson *json, bool *value);
extern bool hymt_json_integer(HymtJson *json, int64_t *value);	/* fails for fractions and exponents */
extern bool hymt_json_string(HymtJson *json, HymtJsonText *value);

/* Takes one value of any type without changing the text, so that it can be read again from where it starts. */
extern bool hymt_json_skip(HymtJson *json);

/* Open a container; `bracket` is '{' or '['. */
extern bool hymt_json_enter(HymtJson *json, char bracket);

/* Whether another element follows; false, having left the container, at its end; false on an error too. */
extern bool hymt_json_next(HymtJson *json);

/* In an object, after hymt_json_next(): take the name and the colon. */
extern bool hymt_json_key(HymtJson *json, HymtJsonText *key);

/* Fails unless the text has ended. */
extern bool hymt_json_finish(HymtJson *json);

/* Record a problem of the reader's user at the current position; returns false. `problem` must be static memory. */
extern bool hymt_json_fail(HymtJson *json, const char *problem);

extern bool hymt_json_text_is(const HymtJsonText *text, const char *word);

#endif							/* HYMT_JSON_STREAM_H */
