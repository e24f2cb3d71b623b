/*
 * stream.h: what an answer under way has said so far, for those who want it before the end. One thread, the scheduler's.
 */
#ifndef HYMT_STREAM_H
#define HYMT_STREAM_H

#include "tokenizer.h"

typedef struct HymtStream
{
	HymtDecoder decoder;
	bool		broken;			/* memory was out: what comes after that is told by the answer only */
} HymtStream;

/* NULL: out of memory. The tokenizer must outlive it. */
extern HymtStream *hymt_stream_open(const HymtTokenizer *tokenizer);
extern void hymt_stream_close(HymtStream *stream);	/* NULL: none */

/* One more token of the answer; for HymtSequenceRequest.token_taken. */
extern void hymt_stream_add(void *stream, int32_t token);

/*
 * Text that came since the last call, whole characters, which need not be any. All of it together is the beginning of the
 * answer's text. Valid until the next token.
 */
extern const char *hymt_stream_take(HymtStream *stream, size_t *length);

#endif							/* HYMT_STREAM_H */
