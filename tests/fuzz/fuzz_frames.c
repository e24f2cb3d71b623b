/*
 * fuzz_frames.c: a stream of frames, of both directions, arriving in pieces. What is accepted is written again, and must
 * give the same bytes.
 *
 * The first byte of an input decides how the rest is cut into pieces.
 */
#include <string.h>

#include "support.h"

/* What the parts of a frame and its fixed struct have been read into. */
typedef struct Decoded
{
	union
	{
		HymtHello	hello;
		HymtLoading loading;
		HymtReady	ready;
		HymtRefused refused;
		HymtResult	result;
		HymtFailureFrame failure;
		HymtHeartbeat heartbeat;
		HymtPieceFrame piece;
		HymtRequest request;
		HymtCancel	cancel;
	}			fixed;
	size_t		fixed_length;
	HymtPart	parts[6];
	int			part_count;
} Decoded;

#define DECODE(name, member, count) \
	(decoded->fixed_length = sizeof(decoded->fixed.member), decoded->part_count = count, \
	 hymt_decode_##name(frame, &decoded->fixed.member, decoded->parts))
#define DECODE_FIXED(name, member) \
	(decoded->fixed_length = sizeof(decoded->fixed.member), decoded->part_count = 0, \
	 hymt_decode_##name(frame, &decoded->fixed.member))

static bool
decode_ready(const HymtFrame *frame, Decoded *decoded)
{
	HymtReadyParts parts;

	decoded->fixed_length = sizeof(HymtReady);
	decoded->part_count = 6;
	if (!hymt_decode_ready(frame, &decoded->fixed.ready, &parts))
		return false;
	memcpy(decoded->parts, (const HymtPart[]) {parts.name, parts.family, parts.fingerprint, parts.precision, parts.device,
											   parts.languages}, sizeof(decoded->parts));
	return true;
}

static bool
decode_request(const HymtFrame *frame, Decoded *decoded)
{
	decoded->fixed_length = sizeof(HymtRequest);
	decoded->part_count = 2;
	return hymt_decode_request(frame, &decoded->fixed.request, &decoded->parts[0], &decoded->parts[1]);
}

static bool
decode(const HymtFrame *frame, Decoded *decoded)
{
	switch (frame->type)
	{
		case HYMT_FRAME_HELLO:
			return DECODE(hello, hello, 1);
		case HYMT_FRAME_LOADING:
			return DECODE(loading, loading, 1);
		case HYMT_FRAME_READY:
			return decode_ready(frame, decoded);
		case HYMT_FRAME_REFUSED:
			return DECODE(refused, refused, 1);
		case HYMT_FRAME_RESULT:
			return DECODE(result, result, 1);
		case HYMT_FRAME_FAILURE:
			return DECODE(failure, failure, 1);
		case HYMT_FRAME_HEARTBEAT:
			return DECODE_FIXED(heartbeat, heartbeat);
		case HYMT_FRAME_PIECE:
			return DECODE(piece, piece, 1);
		case HYMT_FRAME_REQUEST:
			return decode_request(frame, decoded);
		case HYMT_FRAME_CANCEL:
			return DECODE_FIXED(cancel, cancel);
	}
	fuzz_require(false, "the type of a frame is known");
	return false;
}

/* A frame of another type must be refused by each of the decoders. */
static void
check_other_types(const HymtFrame *frame)
{
	HymtFrame	other = *frame;
	Decoded		decoded;

	other.type = frame->type == HYMT_FRAME_CANCEL ? HYMT_FRAME_HEARTBEAT : HYMT_FRAME_CANCEL;
	fuzz_require(frame->type != HYMT_FRAME_CANCEL || !hymt_decode_heartbeat(frame, &decoded.fixed.heartbeat),
				 "a CANCEL is no HEARTBEAT");
	fuzz_require(frame->type == HYMT_FRAME_CANCEL || !hymt_decode_cancel(frame, &decoded.fixed.cancel),
				 "only a CANCEL is a CANCEL");
	decode(&other, &decoded);
}

static void
check_frame(const HymtFrame *frame)
{
	HymtBytes	again = {0};
	HymtFrame	copy;
	Decoded		decoded;

	memset(&decoded, 0, sizeof decoded);
	check_other_types(frame);
	if (!decode(frame, &decoded))
		return;
	/* a HELLO in another version is read in part only */
	if (frame->type == HYMT_FRAME_HELLO && decoded.fixed.hello.protocol_version != HYMT_PROTOCOL_VERSION)
		return;
	for (int i = 0; i < decoded.part_count; i++)
	{
		const char *data = decoded.parts[i].data;

		fuzz_require(data >= frame->body && data + decoded.parts[i].length <= frame->body + frame->body_length,
					 "parts lie in the body");
	}
	fuzz_require(hymt_frame_append(&again, frame->type, &decoded.fixed, decoded.fixed_length, decoded.parts,
								   decoded.part_count), "a frame that was read can be written");
	fuzz_require(hymt_frame_peek(&again, &copy) == HYMT_FRAME_OK && copy.type == frame->type &&
				 copy.body_length == frame->body_length && memcmp(copy.body, frame->body, copy.body_length) == 0,
				 "and has the same bytes");
	hymt_bytes_free(&again);
}

/* All frames that are complete; false when the conversation has ended. */
static bool
read_frames(HymtBytes *in)
{
	HymtFrame	frame;
	HymtFrameStatus status;

	while ((status = hymt_frame_peek(in, &frame)) == HYMT_FRAME_OK)
	{
		check_frame(&frame);
		hymt_frame_consume(in, &frame);
	}
	return status == HYMT_FRAME_MORE;
}

int
LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	HymtBytes	in = {0};
	size_t		piece = size > 0 ? (size_t) data[0] + 1 : 0;

	for (size_t at = 1; at < size; at += piece)
	{
		size_t		length = size - at < piece ? size - at : piece;

		/* a queue of its own size, so that reading behind it is noticed */
		fuzz_require(hymt_bytes_append(&in, data + at, length), "bytes can be queued");
		if (!read_frames(&in))
			break;
		if (piece < SIZE_MAX / 2)
			piece *= 2;
	}
	hymt_bytes_free(&in);
	return 0;
}
