/*
 * check_tokenizer.h: a tokenizer of any kind against reference vectors, and decoding id by id against decoding at once.
 * Included after cmocka.h.
 */
#ifndef HYMT_TEST_CHECK_TOKENIZER_H
#define HYMT_TEST_CHECK_TOKENIZER_H

#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../../src/engine/tokenizer.h"
#include "../../src/engine/utf8.h"

/* Decodes id by id, taking each piece: all are valid, together they are the whole. */
static inline void
check_pieces(const HymtTokenizer *tokenizer, bool for_answer, const int32_t *ids, size_t count, const char *whole,
			 size_t length)
{
	size_t		at = 0;
	HymtDecoder decoder;

	hymt_decoder_start(&decoder, tokenizer);
	decoder.for_answer = for_answer;
	for (size_t i = 0; i <= count; i++)
	{
		assert_true(i < count ? hymt_decoder_add(&decoder, ids[i]) : hymt_decoder_end(&decoder));
		assert_int_equal(hymt_utf8_valid(decoder.text, decoder.length), decoder.length);
		assert_true(at + decoder.length <= length);
		if (decoder.length > 0)
			assert_memory_equal(whole + at, decoder.text, decoder.length);
		at += decoder.length;
		hymt_decoder_taken(&decoder);
	}
	assert_int_equal(at, length);
	hymt_decoder_free(&decoder);
}

/* An answer is the same with U+FFFD in the place of each NUL. */
static inline void
check_answer(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, const char *whole, size_t length)
{
	char	   *answer;
	size_t		answer_length;
	size_t		at = 0;

	assert_true(hymt_tokenizer_decode_answer(tokenizer, ids, count, &answer, &answer_length));
	assert_int_equal(strlen(answer), answer_length);
	for (size_t i = 0; i < length; i++)
	{
		size_t		bytes = whole[i] == '\0' ? 3 : 1;

		assert_true(at + bytes <= answer_length);
		assert_memory_equal(answer + at, whole[i] == '\0' ? "\xEF\xBF\xBD" : whole + i, bytes);
		at += bytes;
	}
	assert_int_equal(at, answer_length);
	check_pieces(tokenizer, true, ids, count, answer, answer_length);
	free(answer);
}

static inline void
check_stream(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count)
{
	char	   *whole;
	size_t		length;

	assert_true(hymt_tokenizer_decode(tokenizer, ids, count, &whole, &length));
	assert_int_equal(hymt_utf8_valid(whole, length), length);
	check_pieces(tokenizer, false, ids, count, whole, length);
	check_answer(tokenizer, ids, count, whole, length);
	free(whole);
}

static inline void
assert_decodes(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count, const char *expected, size_t length)
{
	char	   *text;
	size_t		text_length;

	assert_true(hymt_tokenizer_decode(tokenizer, ids, count, &text, &text_length));
	if (text_length != length || memcmp(text, expected, length) != 0)
		fail_msg("\"%s\" instead of \"%s\"", text, expected);
	free(text);
}

/* A line of a file of vectors: {"text": …, "ids": […], "decoded": …}. */
static inline void
check_line(const HymtTokenizer *tokenizer, const char *line, int number)
{
	json_t	   *object = json_loads(line, JSON_ALLOW_NUL, NULL);
	const json_t *text = json_object_get(object, "text");
	const json_t *expected = json_object_get(object, "ids");
	const json_t *decoded = json_object_get(object, "decoded");
	HymtIds		ids = {0};
	HymtError	error;

	assert_non_null(object);
	if (!hymt_tokenizer_encode(tokenizer, json_string_value(text), json_string_length(text), &ids, &error))
		fail_msg("line %d: %s", number, error.message);
	if (ids.count != json_array_size(expected))
		fail_msg("line %d: %zu ids instead of %zu", number, ids.count, json_array_size(expected));
	for (size_t i = 0; i < ids.count; i++)
		if (ids.ids[i] != json_integer_value(json_array_get(expected, i)))
			fail_msg("line %d: id %zu is %d", number, i, ids.ids[i]);
	assert_decodes(tokenizer, ids.ids, ids.count, json_string_value(decoded), json_string_length(decoded));
	check_stream(tokenizer, ids.ids, ids.count);
	hymt_ids_free(&ids);
	json_decref(object);
}

/* All lines of the file, at least so many. */
static inline void
check_vectors(const HymtTokenizer *tokenizer, const char *vectors, int minimum)
{
	FILE	   *file = fopen(vectors, "r");
	char	   *line = NULL;
	size_t		capacity = 0;
	int			number = 0;

	assert_non_null(file);
	while (getline(&line, &capacity, file) > 0)
		check_line(tokenizer, line, ++number);
	assert_true(number >= minimum);
	free(line);
	fclose(file);
}

#endif							/* HYMT_TEST_CHECK_TOKENIZER_H */
