/*
 * test_frames.c: frames survive any way of cutting the stream, and nothing malformed is taken for a frame.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#include "../../src/protocol/frames.h"

static HymtPart
part(const char *text)
{
	return (HymtPart) {text, strlen(text)};
}

static void
assert_part(HymtPart got, const char *expected)
{
	assert_int_equal(got.length, strlen(expected));
	assert_memory_equal(got.data, expected, got.length);
}

static void
append_request(HymtBytes *bytes, uint64_t generation, const char *text)
{
	HymtRequest request = {
		.generation = generation, .slot = 7, .max_new_tokens = 64, .source_lang = "zh", .target_lang = "en",
		.context_length = 2, .text_length = (uint32_t) strlen(text)
	};
	HymtPart	parts[2] = {part("C:"), part(text)};

	assert_true(hymt_frame_append(bytes, HYMT_FRAME_REQUEST, &request, sizeof(request), parts, 2));
}

/* A frame around a body; the caller frees the queue. */
static HymtFrame
frame_of(HymtBytes *bytes, HymtFrameType type, const void *body, size_t length)
{
	HymtFrame	frame;

	hymt_bytes_free(bytes);
	assert_true(hymt_frame_append(bytes, type, body, length, NULL, 0));
	assert_int_equal(hymt_frame_peek(bytes, &frame), HYMT_FRAME_OK);
	return frame;
}

static void
test_byte_queue(void **state)
{
	HymtBytes	bytes = {0};
	uint32_t	written = 0;
	uint32_t	read = 0;

	(void) state;
	/* Uneven appends and consumes: every byte comes out once and in order, through moves and growth. */
	for (int round = 0; round < 2000; round++)
	{
		for (int i = 0; i < (round * 7) % 41; i++, written++)
			assert_true(hymt_bytes_append(&bytes, &written, sizeof(written)));
		for (int i = 0; i < (round * 5) % 37 && hymt_bytes_length(&bytes) > 0; i++, read++)
		{
			uint32_t	value;

			memcpy(&value, bytes.data + bytes.start, sizeof(value));
			assert_int_equal(value, read);
			hymt_bytes_consume(&bytes, sizeof(value));
		}
	}
	assert_int_equal(hymt_bytes_length(&bytes), (written - read) * sizeof(uint32_t));
	hymt_bytes_consume(&bytes, SIZE_MAX);
	assert_int_equal(hymt_bytes_length(&bytes), 0);
	hymt_bytes_free(&bytes);
}

static void
test_large_memory_is_returned(void **state)
{
	HymtBytes	bytes = {0};
	char	   *big = calloc(1, 8 << 20);

	(void) state;
	assert_non_null(big);
	assert_true(hymt_bytes_append(&bytes, big, 8 << 20));
	hymt_bytes_consume(&bytes, 8 << 20);
	assert_int_equal(bytes.capacity, 0);
	assert_null(hymt_bytes_reserve(&bytes, SIZE_MAX - 10));
	assert_true(hymt_bytes_append(&bytes, "x", 1));
	hymt_bytes_free(&bytes);
	free(big);
}

static void
test_stream_cut_anywhere(void **state)
{
	HymtBytes	stream = {0};
	static const char *const texts[] = {"", "红色连衣裙", "x", "a longer text, with some bytes in it"};

	(void) state;
	for (uint64_t i = 0; i < 4; i++)
		append_request(&stream, i + 1, texts[i]);
	for (size_t piece = 1; piece <= stream.end; piece++)
	{
		HymtBytes	in = {0};
		uint64_t	seen = 0;

		for (size_t at = 0; at < stream.end; at += piece)
		{
			HymtFrame	frame;

			assert_true(hymt_bytes_append(&in, stream.data + at, at + piece > stream.end ? stream.end - at : piece));
			while (hymt_frame_peek(&in, &frame) == HYMT_FRAME_OK)
			{
				HymtRequest request;
				HymtPart	context;
				HymtPart	text;

				assert_true(hymt_decode_request(&frame, &request, &context, &text));
				assert_part(context, "C:");
				assert_int_equal(request.generation, seen + 1);
				assert_string_equal(request.source_lang, "zh");
				assert_part(text, texts[seen++]);
				hymt_frame_consume(&in, &frame);
			}
		}
		assert_int_equal(seen, 4);
		assert_int_equal(hymt_bytes_length(&in), 0);
		hymt_bytes_free(&in);
	}
	hymt_bytes_free(&stream);
}

static HymtFrameStatus
peek_header(HymtFrameHeader header, size_t length)
{
	HymtBytes	in = {0};
	HymtFrame	frame;
	HymtFrameStatus status;

	assert_true(hymt_bytes_append(&in, &header, length));
	status = hymt_frame_peek(&in, &frame);
	hymt_bytes_free(&in);
	return status;
}

static void
test_bad_headers(void **state)
{
	HymtFrameHeader good = {HYMT_FRAME_MAGIC, HYMT_FRAME_HEARTBEAT, 48, 0};
	HymtFrameHeader bad;

	(void) state;
	assert_int_equal(peek_header(good, sizeof(good)), HYMT_FRAME_MORE);
	for (size_t length = 0; length < sizeof(good); length++)
		assert_int_equal(peek_header(good, length), HYMT_FRAME_MORE);

	bad = good, bad.magic ^= 1;
	assert_int_equal(peek_header(bad, sizeof(bad)), HYMT_FRAME_GARBAGE);
	assert_int_equal(peek_header(bad, 4), HYMT_FRAME_GARBAGE);
	bad = good, bad.reserved = 1;
	assert_int_equal(peek_header(bad, sizeof(bad)), HYMT_FRAME_GARBAGE);
	bad = good, bad.body_length = HYMT_FRAME_MAX_BODY + 1;
	assert_int_equal(peek_header(bad, sizeof(bad)), HYMT_FRAME_GARBAGE);
	bad.body_length = UINT32_MAX;
	assert_int_equal(peek_header(bad, sizeof(bad)), HYMT_FRAME_GARBAGE);
	for (uint32_t type = 0; type < 300; type++)
	{
		bool		known = (type >= HYMT_FRAME_HELLO && type <= HYMT_FRAME_PIECE) ||
			type == HYMT_FRAME_REQUEST || type == HYMT_FRAME_CANCEL;

		bad = good, bad.type = type;
		assert_int_equal(peek_header(bad, sizeof(bad)), known ? HYMT_FRAME_MORE : HYMT_FRAME_GARBAGE);
	}
}

static void
test_oversized_frame_is_not_written(void **state)
{
	HymtBytes	out = {0};
	HymtCancel	cancel = {0};
	HymtPart	huge = {"", (size_t) HYMT_FRAME_MAX_BODY};
	HymtPart	absurd = {"", SIZE_MAX};

	(void) state;
	append_request(&out, 1, "before");
	size_t		length = hymt_bytes_length(&out);

	assert_false(hymt_frame_append(&out, HYMT_FRAME_CANCEL, &cancel, sizeof(cancel), &huge, 1));
	assert_false(hymt_frame_append(&out, HYMT_FRAME_CANCEL, &cancel, sizeof(cancel), &absurd, 1));
	assert_int_equal(hymt_bytes_length(&out), length);
	hymt_bytes_free(&out);
}

static void
test_ready_round_trip(void **state)
{
	HymtBytes	bytes = {0};
	HymtPart	parts[6] = {part("name"), part("hy-mt2"), part("f00"), part("exact"), part(""), part("zh en")};
	HymtReady	ready = {
		.parameters = 1800000000ull, .credits = 9, .name_length = 4, .family_length = 6, .fingerprint_length = 3,
		.precision_length = 5, .device_length = 0, .languages_length = 5
	};
	HymtReady	got;
	HymtReadyParts got_parts;
	HymtFrame	frame;

	(void) state;
	assert_true(hymt_frame_append(&bytes, HYMT_FRAME_READY, &ready, sizeof(ready), parts, 6));
	assert_int_equal(hymt_frame_peek(&bytes, &frame), HYMT_FRAME_OK);
	assert_true(hymt_decode_ready(&frame, &got, &got_parts));
	assert_memory_equal(&got, &ready, sizeof(ready));
	assert_part(got_parts.name, "name");
	assert_part(got_parts.family, "hy-mt2");
	assert_part(got_parts.fingerprint, "f00");
	assert_part(got_parts.precision, "exact");
	assert_part(got_parts.device, "");
	assert_part(got_parts.languages, "zh en");

	/* Lengths that wrap around 2^32 must not add up. */
	ready.name_length = UINT32_MAX;
	ready.family_length = 4 + 6 + 1;
	frame = frame_of(&bytes, HYMT_FRAME_READY, &ready, sizeof(ready));
	assert_false(hymt_decode_ready(&frame, &got, &got_parts));
	hymt_bytes_free(&bytes);
}

static void
test_lying_lengths(void **state)
{
	HymtBytes	bytes = {0};
	HymtResult	result = {.generation = 1, .text_length = 1};
	HymtCancel	cancel = {.generation = 1};
	char		longer[sizeof(HymtCancel) + 1] = {0};
	HymtPart	text;
	HymtFrame	frame;

	(void) state;
	frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, sizeof(result));
	assert_false(hymt_decode_result(&frame, &result, &text));
	result.text_length = 0;
	frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, sizeof(result));
	assert_true(hymt_decode_result(&frame, &result, &text));
	frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, sizeof(result) - 1);
	assert_false(hymt_decode_result(&frame, &result, &text));
	frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, 0);
	assert_false(hymt_decode_result(&frame, &result, &text));
	memset(result.fingerprint, 'f', sizeof(result.fingerprint));
	frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, sizeof(result));
	assert_true(hymt_decode_result(&frame, &result, &text));
	for (int i = 0; i < 4; i++)
	{
		result.fingerprint[HYMT_FINGERPRINT_DIGITS - 1] = "g\0F "[i];
		frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, sizeof(result));
		assert_false(hymt_decode_result(&frame, &result, &text));
	}
	frame = frame_of(&bytes, HYMT_FRAME_CANCEL, longer, sizeof(longer));
	assert_false(hymt_decode_cancel(&frame, &cancel));
	frame = frame_of(&bytes, HYMT_FRAME_CANCEL, longer, sizeof(cancel));
	assert_true(hymt_decode_cancel(&frame, &cancel));
	/* one type's body is not another's */
	frame = frame_of(&bytes, HYMT_FRAME_HEARTBEAT, longer, sizeof(cancel));
	assert_false(hymt_decode_cancel(&frame, &cancel));
	hymt_bytes_free(&bytes);
}

static void
test_enumerations(void **state)
{
	HymtBytes	bytes = {0};
	HymtPart	text;
	HymtFrame	frame;

	(void) state;
	for (uint32_t value = 0; value < 40; value++)
	{
		HymtFailureFrame failure = {.failure = value};
		HymtRefused refused = {.failure = value};
		HymtResult	result = {.finish = value};
		HymtLoading loading = {.percent = value + 80};
		bool		valid = value != HYMT_FAILURE_NONE && value <= HYMT_FAILURE_LAST;

		frame = frame_of(&bytes, HYMT_FRAME_FAILURE, &failure, sizeof(failure));
		assert_int_equal(hymt_decode_failure(&frame, &failure, &text), valid);
		frame = frame_of(&bytes, HYMT_FRAME_REFUSED, &refused, sizeof(refused));
		assert_int_equal(hymt_decode_refused(&frame, &refused, &text), valid);
		frame = frame_of(&bytes, HYMT_FRAME_RESULT, &result, sizeof(result));
		assert_int_equal(hymt_decode_result(&frame, &result, &text), value <= HYMT_FINISH_LOOP);
		frame = frame_of(&bytes, HYMT_FRAME_LOADING, &loading, sizeof(loading));
		assert_int_equal(hymt_decode_loading(&frame, &loading, &text), value <= 20);
	}
	hymt_bytes_free(&bytes);
}

/* What the receiver keeps in signed integers must not become negative there. */
static void
test_numbers(void **state)
{
	static const uint32_t highest[] = {0, INT32_MAX, UINT32_MAX};
	static const uint64_t highest64[] = {0, INT64_MAX, UINT64_MAX};
	HymtBytes	bytes = {0};
	HymtReadyParts parts;
	HymtPart	text;
	HymtFrame	frame;

	(void) state;
	for (int i = 0; i < 3; i++)
	{
		HymtResult	results[] = {{.input_tokens = highest[i]}, {.output_tokens = highest[i]}};
		HymtReady	readies[] = {{.threads = highest[i]}, {.max_context = highest[i]}, {.credits = highest[i]},
		{.parameters = highest64[i]}, {.weight_bytes = highest64[i]}};
		HymtHeartbeat beats[] = {{.steps = highest64[i]}, {.sequence_steps = highest64[i]},
			{.degraded_steps = highest64[i]}, {.reused_tokens = highest64[i]}, {.preemptions = highest64[i]}};

		for (int j = 0; j < 2; j++)
		{
			frame = frame_of(&bytes, HYMT_FRAME_RESULT, &results[j], sizeof(results[j]));
			assert_int_equal(hymt_decode_result(&frame, &results[j], &text), i < 2);
		}
		for (int j = 0; j < 5; j++)
		{
			frame = frame_of(&bytes, HYMT_FRAME_HEARTBEAT, &beats[j], sizeof(beats[j]));
			assert_int_equal(hymt_decode_heartbeat(&frame, &beats[j]), i < 2);
			frame = frame_of(&bytes, HYMT_FRAME_READY, &readies[j], sizeof(readies[j]));
			assert_int_equal(hymt_decode_ready(&frame, &readies[j], &parts), i < 2);
		}
	}
	hymt_bytes_free(&bytes);
}

static void
test_draw(void **state)
{
	static const HymtDraw good[] = {
		{.seed = UINT64_MAX, .temperature = 1, .top_p = 1, .top_k = INT32_MAX},
		{.temperature = HYMT_TEMPERATURE_MAX, .top_p = 1e-30f}, {.top_p = 1}, {.seed = 1}
	};
	static const HymtDraw bad[] = {
		{.temperature = -1, .top_p = 1}, {.temperature = NAN, .top_p = 1}, {.temperature = INFINITY, .top_p = 1},
		{.temperature = 1}, {.temperature = 1, .top_p = 1.1f}, {.temperature = 1, .top_p = NAN}, {.top_p = -1},
		{.temperature = 1, .top_p = 1, .top_k = (uint32_t) INT32_MAX + 1}
	};
	HymtBytes	bytes = {0};
	HymtPart	context;
	HymtPart	text;
	HymtFrame	frame;

	(void) state;
	for (size_t i = 0; i < sizeof(good) / sizeof(good[0]) + sizeof(bad) / sizeof(bad[0]); i++)
	{
		bool		is_good = i < sizeof(good) / sizeof(good[0]);
		HymtRequest request = {.source_lang = "zh", .target_lang = "en"};

		request.draw = is_good ? good[i] : bad[i - sizeof(good) / sizeof(good[0])];
		frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &request, sizeof(request));
		assert_int_equal(hymt_decode_request(&frame, &request, &context, &text), is_good);
	}
	hymt_bytes_free(&bytes);
}

static void
test_language_codes(void **state)
{
	HymtBytes	bytes = {0};
	HymtRequest request = {.source_lang = "zh", .target_lang = "en"};
	HymtRequest broken;
	HymtPart	context;
	HymtPart	text;
	HymtFrame	frame;

	(void) state;
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &request, sizeof(request));
	assert_true(hymt_decode_request(&frame, &broken, &context, &text));
	strcpy(request.adapter, "legal");
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &request, sizeof(request));
	assert_true(hymt_decode_request(&frame, &broken, &context, &text));
	assert_string_equal(broken.adapter, "legal");
	broken = request, memset(broken.adapter, 'x', HYMT_ADAPTER_NAME_MAX);
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &broken, sizeof(broken));
	assert_false(hymt_decode_request(&frame, &broken, &context, &text));
	broken = request, broken.adapter[HYMT_ADAPTER_NAME_MAX - 1] = 'x';
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &broken, sizeof(broken));
	assert_false(hymt_decode_request(&frame, &broken, &context, &text));
	broken = request, broken.source_lang[0] = '\0';
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &broken, sizeof(broken));
	assert_false(hymt_decode_request(&frame, &broken, &context, &text));
	broken = request, memset(broken.target_lang, 'x', HYMT_LANG_MAX);
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &broken, sizeof(broken));
	assert_false(hymt_decode_request(&frame, &broken, &context, &text));
	broken = request, broken.target_lang[HYMT_LANG_MAX - 1] = 'x';
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &broken, sizeof(broken));
	assert_false(hymt_decode_request(&frame, &broken, &context, &text));
	/* lengths that only together are too large */
	broken = request, broken.context_length = 1, broken.text_length = UINT32_MAX;
	frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &broken, sizeof(broken));
	assert_false(hymt_decode_request(&frame, &broken, &context, &text));
	hymt_bytes_free(&bytes);
}

/* Pieces have text, and requests no flags that this version does not know. */
static void
test_streams(void **state)
{
	HymtBytes	bytes = {0};
	HymtRequest request = {.source_lang = "zh", .target_lang = "en"};
	HymtPieceFrame piece = {.generation = 9, .slot = 3, .text_length = 6};
	HymtPieceFrame got;
	HymtPart	parts[1] = {part("自行")};
	HymtPart	context;
	HymtPart	text;
	HymtFrame	frame;

	(void) state;
	for (int bit = -1; bit < 32; bit++)
	{
		request.flags = bit < 0 ? 0 : 1u << bit;
		frame = frame_of(&bytes, HYMT_FRAME_REQUEST, &request, sizeof(request));
		assert_int_equal(hymt_decode_request(&frame, &request, &context, &text),
						 request.flags == 0 || request.flags == HYMT_REQUEST_STREAM);
	}
	hymt_bytes_free(&bytes);
	assert_true(hymt_frame_append(&bytes, HYMT_FRAME_PIECE, &piece, sizeof(piece), parts, 1));
	assert_int_equal(hymt_frame_peek(&bytes, &frame), HYMT_FRAME_OK);
	assert_true(hymt_decode_piece(&frame, &got, &text));
	assert_memory_equal(&got, &piece, sizeof(piece));
	assert_part(text, "自行");

	piece.text_length = 1;
	frame = frame_of(&bytes, HYMT_FRAME_PIECE, &piece, sizeof(piece));
	assert_false(hymt_decode_piece(&frame, &got, &text));
	piece.text_length = 0;
	frame = frame_of(&bytes, HYMT_FRAME_PIECE, &piece, sizeof(piece));
	assert_false(hymt_decode_piece(&frame, &got, &text));
	frame = frame_of(&bytes, HYMT_FRAME_PIECE, &piece, sizeof(piece) - 1);
	assert_false(hymt_decode_piece(&frame, &got, &text));
	frame = frame_of(&bytes, HYMT_FRAME_CANCEL, &piece, sizeof(piece));
	assert_false(hymt_decode_piece(&frame, &got, &text));
	hymt_bytes_free(&bytes);
}

static void
test_hello_of_another_version(void **state)
{
	HymtBytes	bytes = {0};
	HymtHello	hello = {.protocol_version = HYMT_PROTOCOL_VERSION, .version_length = 3};
	HymtHello	got;
	HymtPart	version;
	HymtPart	release[1] = {part("0.1")};
	uint32_t	other = HYMT_PROTOCOL_VERSION + 1;
	HymtFrame	frame;

	(void) state;
	assert_true(hymt_frame_append(&bytes, HYMT_FRAME_HELLO, &hello, sizeof(hello), release, 1));
	assert_int_equal(hymt_frame_peek(&bytes, &frame), HYMT_FRAME_OK);
	assert_true(hymt_decode_hello(&frame, &got, &version));
	assert_part(version, "0.1");

	/* Whatever follows the version there, it is told from garbage. */
	frame = frame_of(&bytes, HYMT_FRAME_HELLO, &other, sizeof(other));
	assert_true(hymt_decode_hello(&frame, &got, &version));
	assert_int_equal(got.protocol_version, other);
	assert_int_equal(version.length, 0);
	frame = frame_of(&bytes, HYMT_FRAME_HELLO, &other, 3);
	assert_false(hymt_decode_hello(&frame, &got, &version));
	frame = frame_of(&bytes, HYMT_FRAME_HELLO, &hello, sizeof(hello));
	assert_false(hymt_decode_hello(&frame, &got, &version));
	hymt_bytes_free(&bytes);
}

/* Random damage to valid frames: decoding may refuse or accept, but must stay inside the body. */
static void
test_damaged_frames(void **state)
{
	uint32_t	seed = 12345;

	(void) state;
	for (int round = 0; round < 20000; round++)
	{
		HymtBytes	bytes = {0};
		HymtFrame	frame;

		append_request(&bytes, 1, "some text to be damaged");
		for (int i = 0; i < 3; i++)
		{
			seed = seed * 1664525u + 1013904223u;
			bytes.data[(seed >> 8) % bytes.end] ^= (char) (1u << (seed >> 29));
		}
		if (hymt_frame_peek(&bytes, &frame) == HYMT_FRAME_OK)
		{
			HymtRequest request;
			HymtPart	context;
			HymtPart	text;

			if (hymt_decode_request(&frame, &request, &context, &text))
			{
				assert_true((const char *) context.data >= frame.body);
				assert_true((const char *) context.data + context.length == (const char *) text.data);
				assert_true((const char *) text.data + text.length == frame.body + frame.body_length);
			}
			assert_true(frame.body + frame.body_length <= bytes.data + bytes.end);
		}
		hymt_bytes_free(&bytes);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_byte_queue),
		cmocka_unit_test(test_large_memory_is_returned),
		cmocka_unit_test(test_stream_cut_anywhere),
		cmocka_unit_test(test_bad_headers),
		cmocka_unit_test(test_oversized_frame_is_not_written),
		cmocka_unit_test(test_ready_round_trip),
		cmocka_unit_test(test_lying_lengths),
		cmocka_unit_test(test_enumerations),
		cmocka_unit_test(test_numbers),
		cmocka_unit_test(test_draw),
		cmocka_unit_test(test_language_codes),
		cmocka_unit_test(test_streams),
		cmocka_unit_test(test_hello_of_another_version),
		cmocka_unit_test(test_damaged_frames),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
