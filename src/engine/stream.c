/*
 * stream.c: what an answer under way has said so far.
 *
 * Runs in the engine. Owns the text that was not taken yet, which is no longer than the answer. Who takes it does that when
 * it can send: until then tokens add to it.
 */
#include "stream.h"

#include <stdlib.h>

HymtStream *
hymt_stream_open(const HymtTokenizer *tokenizer)
{
	HymtStream *stream = calloc(1, sizeof(*stream));

	if (stream == NULL)
		return NULL;
	hymt_decoder_start(&stream->decoder, tokenizer);
	stream->decoder.for_answer = true;
	return stream;
}

void
hymt_stream_close(HymtStream *stream)
{
	if (stream == NULL)
		return;
	hymt_decoder_free(&stream->decoder);
	free(stream);
}

void
hymt_stream_add(void *stream, int32_t token)
{
	HymtStream *to = stream;

	/* What a decoder without memory has left out must not be followed by anything. */
	if (!to->broken)
		to->broken = !hymt_decoder_add(&to->decoder, token);
}

const char *
hymt_stream_take(HymtStream *stream, size_t *length)
{
	*length = stream->decoder.length;
	hymt_decoder_taken(&stream->decoder);
	return stream->decoder.text;
}
