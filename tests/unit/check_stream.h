/*
 * check_stream.h: decoding id by id against decoding at once, for any kind of tokenizer. Included after cmocka.h.
 */
#ifndef HYMT_TEST_CHECK_STREAM_H
#define HYMT_TEST_CHECK_STREAM_H

#include <stdlib.h>

#include "../../src/engine/tokenizer.h"
#include "../../src/engine/utf8.h"

/* Decodes id by id, taking each piece: all are valid, together they are the whole. */
static inline void
check_stream(const HymtTokenizer *tokenizer, const int32_t *ids, size_t count)
{
	char	   *whole;
	size_t		length;
	size_t		at = 0;
	HymtDecoder decoder;

	assert_true(hymt_tokenizer_decode(tokenizer, ids, count, &whole, &length));
	assert_int_equal(hymt_utf8_valid(whole, length), length);
	hymt_decoder_start(&decoder, tokenizer);
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
	free(whole);
}

#endif							/* HYMT_TEST_CHECK_STREAM_H */
