/*
 * frames.c: writing and reading the frames of frames.h.
 *
 * Runs in the worker, in the engine and in the mock engine. Owns nothing but the memory of a HymtBytes; makes no system
 * call, logs nothing and raises nothing, because its two homes report errors in different ways.
 */
#include "frames.h"

#include <stdlib.h>
#include <string.h>

/* First allocation; small conversations never grow beyond it. */
#define HYMT_BYTES_INITIAL 4096

/* An empty queue larger than this gives its memory back, so that one huge text is not paid for ever after. */
#define HYMT_BYTES_KEEP (1024 * 1024)

/* --- byte queue -------------------------------------------------------------------------------------------------- */

char *
hymt_bytes_reserve(HymtBytes *bytes, size_t more)
{
	size_t		length = hymt_bytes_length(bytes);
	size_t		capacity = bytes->capacity;
	char	   *data;

	if (more > SIZE_MAX / 4 || length > SIZE_MAX / 4)
		return NULL;
	if (bytes->data != NULL && bytes->capacity - bytes->end >= more)
		return bytes->data + bytes->end;

	/* Moving to the front is cheap once at least half is consumed; otherwise the copy would be repeated endlessly. */
	if (bytes->data != NULL && bytes->start >= length && bytes->capacity - length >= more)
	{
		memmove(bytes->data, bytes->data + bytes->start, length);
		bytes->start = 0;
		bytes->end = length;
		return bytes->data + bytes->end;
	}

	if (capacity < HYMT_BYTES_INITIAL)
		capacity = HYMT_BYTES_INITIAL;
	while (capacity < length + more)
		capacity *= 2;
	/* also when moving would do but be too dear: doubling keeps the cost per byte constant */
	if (capacity == bytes->capacity)
		capacity *= 2;
	data = malloc(capacity);
	if (data == NULL)
		return NULL;
	if (length > 0)
		memcpy(data, bytes->data + bytes->start, length);
	free(bytes->data);
	bytes->data = data;
	bytes->start = 0;
	bytes->end = length;
	bytes->capacity = capacity;
	return bytes->data + bytes->end;
}

bool
hymt_bytes_append(HymtBytes *bytes, const void *data, size_t length)
{
	char	   *room = hymt_bytes_reserve(bytes, length);

	if (room == NULL)
		return false;
	if (length > 0)
		memcpy(room, data, length);
	bytes->end += length;
	return true;
}

void
hymt_bytes_consume(HymtBytes *bytes, size_t length)
{
	size_t		available = hymt_bytes_length(bytes);

	bytes->start += length < available ? length : available;
	if (bytes->start < bytes->end)
		return;
	bytes->start = bytes->end = 0;
	if (bytes->capacity > HYMT_BYTES_KEEP)
		hymt_bytes_free(bytes);
}

void
hymt_bytes_free(HymtBytes *bytes)
{
	free(bytes->data);
	memset(bytes, 0, sizeof(*bytes));
}

/* --- frames ------------------------------------------------------------------------------------------------------ */

static bool
known_type(uint32_t type)
{
	return (type >= HYMT_FRAME_HELLO && type <= HYMT_FRAME_PIECE) ||
		type == HYMT_FRAME_REQUEST || type == HYMT_FRAME_CANCEL;
}

bool
hymt_frame_append(HymtBytes *out, HymtFrameType type, const void *fixed, size_t fixed_length,
				  const HymtPart *parts, int nparts)
{
	HymtFrameHeader header = {.magic = HYMT_FRAME_MAGIC, .type = type};
	size_t		body_length = fixed_length;
	char	   *room;

	for (int i = 0; i < nparts; i++)
	{
		if (parts[i].length > HYMT_FRAME_MAX_BODY)
			return false;
		body_length += parts[i].length;
	}
	if (body_length > HYMT_FRAME_MAX_BODY)
		return false;
	header.body_length = (uint32_t) body_length;

	/* All room at once: a frame is queued whole or not at all. */
	room = hymt_bytes_reserve(out, sizeof(header) + body_length);
	if (room == NULL)
		return false;
	memcpy(room, &header, sizeof(header));
	room += sizeof(header);
	memcpy(room, fixed, fixed_length);
	room += fixed_length;
	for (int i = 0; i < nparts; i++)
	{
		if (parts[i].length > 0)
			memcpy(room, parts[i].data, parts[i].length);
		room += parts[i].length;
	}
	out->end += sizeof(header) + body_length;
	return true;
}

HymtFrameStatus
hymt_frame_peek(const HymtBytes *in, HymtFrame *frame)
{
	HymtFrameHeader header;
	size_t		available = hymt_bytes_length(in);
	uint32_t	magic;

	/* Say "garbage" as early as it shows: a wrong magic must not wait for bytes that never come. */
	if (available >= sizeof(magic))
	{
		memcpy(&magic, in->data + in->start, sizeof(magic));
		if (magic != HYMT_FRAME_MAGIC)
			return HYMT_FRAME_GARBAGE;
	}
	if (available < sizeof(header))
		return HYMT_FRAME_MORE;
	memcpy(&header, in->data + in->start, sizeof(header));
	if (!known_type(header.type) || header.body_length > HYMT_FRAME_MAX_BODY || header.reserved != 0)
		return HYMT_FRAME_GARBAGE;
	if (available - sizeof(header) < header.body_length)
		return HYMT_FRAME_MORE;
	frame->type = (HymtFrameType) header.type;
	frame->body = in->data + in->start + sizeof(header);
	frame->body_length = header.body_length;
	return HYMT_FRAME_OK;
}

void
hymt_frame_consume(HymtBytes *in, const HymtFrame *frame)
{
	hymt_bytes_consume(in, sizeof(HymtFrameHeader) + frame->body_length);
}

/* --- bodies ------------------------------------------------------------------------------------------------------ */

/* Copies the fixed struct out; false when the frame is of another type or too short for it. */
static bool
take_fixed(const HymtFrame *frame, HymtFrameType type, void *fixed, size_t fixed_length)
{
	if (frame->type != type || frame->body_length < fixed_length)
		return false;
	memcpy(fixed, frame->body, fixed_length);
	return true;
}

/*
 * Points each part at its bytes behind the fixed struct. The lengths are untrusted 32-bit numbers, so their sum is made
 * in 64 bits; it must use up the body exactly.
 */
static bool
take_parts(const HymtFrame *frame, size_t fixed_length, HymtPart *const *parts, const uint32_t *lengths, int nparts)
{
	uint64_t	total = fixed_length;
	const char *data = frame->body + fixed_length;

	for (int i = 0; i < nparts; i++)
		total += lengths[i];
	if (total != frame->body_length)
		return false;
	for (int i = 0; i < nparts; i++)
	{
		parts[i]->data = data;
		parts[i]->length = lengths[i];
		data += lengths[i];
	}
	return true;
}

static bool
take_one_part(const HymtFrame *frame, size_t fixed_length, HymtPart *part, uint32_t length)
{
	return take_parts(frame, fixed_length, &part, &length, 1);
}

bool
hymt_decode_hello(const HymtFrame *frame, HymtHello *fixed, HymtPart *version)
{
	memset(fixed, 0, sizeof(*fixed));
	*version = (HymtPart) {frame->body, 0};
	if (!take_fixed(frame, HYMT_FRAME_HELLO, &fixed->protocol_version, sizeof(fixed->protocol_version)))
		return false;
	/* What follows the version belongs to that version: not ours to read, and no reason to call it garbage. */
	if (fixed->protocol_version != HYMT_PROTOCOL_VERSION)
		return true;
	return take_fixed(frame, HYMT_FRAME_HELLO, fixed, sizeof(*fixed)) &&
		take_one_part(frame, sizeof(*fixed), version, fixed->version_length);
}

bool
hymt_decode_loading(const HymtFrame *frame, HymtLoading *fixed, HymtPart *phase)
{
	return take_fixed(frame, HYMT_FRAME_LOADING, fixed, sizeof(*fixed)) &&
		fixed->percent <= 100 &&
		take_one_part(frame, sizeof(*fixed), phase, fixed->phase_length);
}

bool
hymt_decode_ready(const HymtFrame *frame, HymtReady *fixed, HymtReadyParts *parts)
{
	HymtPart   *const list[] = {&parts->name, &parts->family, &parts->fingerprint,
		&parts->precision, &parts->device, &parts->languages};

	if (!take_fixed(frame, HYMT_FRAME_READY, fixed, sizeof(*fixed)) ||
		fixed->parameters > INT64_MAX || fixed->weight_bytes > INT64_MAX ||
		fixed->threads > INT32_MAX || fixed->max_context > INT32_MAX || fixed->credits > INT32_MAX)
		return false;
	return take_parts(frame, sizeof(*fixed), list,
					  (const uint32_t[]) {fixed->name_length, fixed->family_length, fixed->fingerprint_length,
						  fixed->precision_length, fixed->device_length, fixed->languages_length}, 6);
}

bool
hymt_decode_refused(const HymtFrame *frame, HymtRefused *fixed, HymtPart *message)
{
	return take_fixed(frame, HYMT_FRAME_REFUSED, fixed, sizeof(*fixed)) &&
		fixed->failure != HYMT_FAILURE_NONE && fixed->failure <= HYMT_FAILURE_LAST &&
		take_one_part(frame, sizeof(*fixed), message, fixed->message_length);
}

/* A name leaves at least one NUL in its array, and nothing follows the first one. */
static bool
name_array_ok(const char *name, size_t size)
{
	size_t		length = strnlen(name, size);

	for (size_t i = length; i < size; i++)
		if (name[i] != '\0')
			return false;
	return length < size;
}

/* A language code has at least one letter. */
static bool
language_array_ok(const char *code)
{
	return code[0] != '\0' && name_array_ok(code, HYMT_LANG_MAX);
}

static bool
draw_ok(const HymtDraw *draw)
{
	/* Written so that a NaN is none of it. */
	return draw->temperature >= 0 && draw->temperature <= HYMT_TEMPERATURE_MAX && draw->top_p <= 1 &&
		(draw->temperature > 0 ? draw->top_p > 0 : draw->top_p >= 0) && draw->top_k <= INT32_MAX;
}

bool
hymt_decode_request(const HymtFrame *frame, HymtRequest *fixed, HymtPart *context, HymtPart *text)
{
	HymtPart   *const list[] = {context, text};

	return take_fixed(frame, HYMT_FRAME_REQUEST, fixed, sizeof(*fixed)) &&
		language_array_ok(fixed->source_lang) && language_array_ok(fixed->target_lang) && draw_ok(&fixed->draw) &&
		name_array_ok(fixed->adapter, sizeof(fixed->adapter)) && (fixed->flags & ~HYMT_REQUEST_FLAGS) == 0 &&
		take_parts(frame, sizeof(*fixed), list, (const uint32_t[]) {fixed->context_length, fixed->text_length}, 2);
}

bool
hymt_decode_cancel(const HymtFrame *frame, HymtCancel *fixed)
{
	return take_fixed(frame, HYMT_FRAME_CANCEL, fixed, sizeof(*fixed)) && frame->body_length == sizeof(*fixed);
}

/* Hexadecimal digits in all places or in none. */
static bool
fingerprint_ok(const char *digits)
{
	int			count = 0;
	int			empty = 0;

	for (int i = 0; i < HYMT_FINGERPRINT_DIGITS; i++)
	{
		empty += digits[i] == '\0';
		count += (digits[i] >= '0' && digits[i] <= '9') || (digits[i] >= 'a' && digits[i] <= 'f');
	}
	return empty == HYMT_FINGERPRINT_DIGITS || count == HYMT_FINGERPRINT_DIGITS;
}

bool
hymt_decode_result(const HymtFrame *frame, HymtResult *fixed, HymtPart *text)
{
	return take_fixed(frame, HYMT_FRAME_RESULT, fixed, sizeof(*fixed)) &&
		fixed->finish <= HYMT_FINISH_LOOP && fixed->input_tokens <= INT32_MAX && fixed->output_tokens <= INT32_MAX &&
		fingerprint_ok(fixed->fingerprint) &&
		take_one_part(frame, sizeof(*fixed), text, fixed->text_length);
}

bool
hymt_decode_failure(const HymtFrame *frame, HymtFailureFrame *fixed, HymtPart *message)
{
	return take_fixed(frame, HYMT_FRAME_FAILURE, fixed, sizeof(*fixed)) &&
		fixed->failure != HYMT_FAILURE_NONE && fixed->failure <= HYMT_FAILURE_LAST &&
		fixed->finish <= HYMT_FINISH_LOOP &&
		take_one_part(frame, sizeof(*fixed), message, fixed->message_length);
}

bool
hymt_decode_heartbeat(const HymtFrame *frame, HymtHeartbeat *fixed)
{
	return take_fixed(frame, HYMT_FRAME_HEARTBEAT, fixed, sizeof(*fixed)) && frame->body_length == sizeof(*fixed) &&
		fixed->steps <= INT64_MAX && fixed->sequence_steps <= INT64_MAX && fixed->degraded_steps <= INT64_MAX &&
		fixed->reused_tokens <= INT64_MAX && fixed->preemptions <= INT64_MAX;
}

bool
hymt_decode_piece(const HymtFrame *frame, HymtPieceFrame *fixed, HymtPart *text)
{
	return take_fixed(frame, HYMT_FRAME_PIECE, fixed, sizeof(*fixed)) && fixed->text_length > 0 &&
		take_one_part(frame, sizeof(*fixed), text, fixed->text_length);
}
