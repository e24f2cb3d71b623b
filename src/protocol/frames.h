/*
 * frames.h: the messages that the worker (inside PostgreSQL) and the engine (its own program) exchange.
 *
 * Included by both sides, and by the mock engine of the tests; includes nothing of either.
 *
 * The two sides are always processes of one machine, started by one another, so integers travel in native byte order.
 * The bytes are untrusted all the same: a frame is accepted only when its header is well formed, its length is in
 * bounds and its body has exactly the length that its own fields add up to. Whoever receives anything else ends the
 * conversation: there is no way to find the next frame in a stream of garbage.
 *
 * A conversation:
 *
 *      engine                                   worker
 *      HELLO (protocol version)        ->
 *      LOADING* (phase, percent)       ->
 *      READY (model, limits)           ->
 *         or REFUSED (code, message), then the engine exits
 *                                      <-       REQUEST* (at most `credits` unanswered at any time, and one of the
 *                                                         worker's own, with which it measures the engine)
 *                                      <-       CANCEL*  (no answer is owed any more; a late one is dropped)
 *      PIECE* (what a request that asked for it has of its answer)  ->
 *      RESULT | FAILURE (per request)  ->
 *      HEARTBEAT (now and then)        ->
 *
 * The worker ends a conversation by closing its end; the engine then exits at once.
 */
#ifndef HYMT_FRAMES_H
#define HYMT_FRAMES_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* Raised whenever the meaning or layout of any frame changes. */
#define HYMT_PROTOCOL_VERSION 3

#define HYMT_FRAME_MAGIC 0x544d5948u	/* "HYMT" in memory on little-endian machines */
#define HYMT_FRAME_MAX_BODY (64u * 1024 * 1024)
#define HYMT_LANG_MAX 16				/* longest language code, with its NUL */
#define HYMT_FINGERPRINT_DIGITS 64
#define HYMT_ADAPTER_NAME_MAX 32		/* longest name of an adapter, with its NUL */

typedef enum HymtFrameType
{
	/* engine to worker */
	HYMT_FRAME_HELLO = 1,
	HYMT_FRAME_LOADING,
	HYMT_FRAME_READY,
	HYMT_FRAME_REFUSED,
	HYMT_FRAME_RESULT,
	HYMT_FRAME_FAILURE,
	HYMT_FRAME_HEARTBEAT,
	HYMT_FRAME_PIECE,
	/* worker to engine */
	HYMT_FRAME_REQUEST = 64,
	HYMT_FRAME_CANCEL
} HymtFrameType;

typedef struct HymtFrameHeader
{
	uint32_t	magic;
	uint32_t	type;			/* HymtFrameType */
	uint32_t	body_length;	/* bytes that follow this header, <= HYMT_FRAME_MAX_BODY */
	uint32_t	reserved;		/* 0 */
} HymtFrameHeader;

/* Why a model was refused or a request failed. The extension maps each to an SQLSTATE. */
typedef enum HymtFailure
{
	HYMT_FAILURE_NONE = 0,
	HYMT_FAILURE_MODEL_MISSING,		/* no such directory or file */
	HYMT_FAILURE_MODEL_UNREADABLE,	/* permission denied, I/O error */
	HYMT_FAILURE_MODEL_BROKEN,		/* malformed or inconsistent files */
	HYMT_FAILURE_MODEL_UNSUPPORTED, /* well formed, but of a kind this engine does not know */
	HYMT_FAILURE_NO_MEMORY,
	HYMT_FAILURE_BAD_REQUEST,		/* malformed request: a bug of the sender */
	HYMT_FAILURE_LANGUAGE,			/* the model does not know this language or pair */
	HYMT_FAILURE_TOO_LONG,			/* prompt and room for an answer exceed the context */
	HYMT_FAILURE_BAD_TEXT,			/* not valid UTF-8 */
	HYMT_FAILURE_UNFINISHED,		/* the answer hit its length limit, or ran in a loop */
	HYMT_FAILURE_NUMERIC,			/* NaN among the logits */
	HYMT_FAILURE_UNSUPPORTED,		/* an option this engine lacks */
	HYMT_FAILURE_INTERNAL,
	HYMT_FAILURE_ADAPTER,			/* the adapter that the request needs is missing, broken or does not fit the model */
	HYMT_FAILURE_OVER_LIMIT,		/* the model does not fit into the memory that the settings allow */
	HYMT_FAILURE_LAST = HYMT_FAILURE_OVER_LIMIT
} HymtFailure;

typedef enum HymtFinish
{
	HYMT_FINISH_NONE = 0,
	HYMT_FINISH_STOP,			/* a stop token ended the answer */
	HYMT_FINISH_LENGTH,			/* the cap on new tokens was reached */
	HYMT_FINISH_LOOP
} HymtFinish;

/*
 * Bodies. Each is a fixed struct followed by its variable parts, in the order of the *_length fields, without
 * terminating NULs. body_length is always sizeof(struct) + the sum of the lengths.
 */
typedef struct HymtHello
{
	uint32_t	protocol_version;
	uint32_t	version_length; /* engine's release, e.g. "0.1.0" */
} HymtHello;

typedef struct HymtLoading
{
	uint32_t	percent;		/* 0 to 100, of the whole start */
	uint32_t	phase_length;	/* e.g. "mapping weights" */
} HymtLoading;

typedef struct HymtReady
{
	uint64_t	parameters;		/* number of weights */
	uint64_t	weight_bytes;	/* as stored */
	uint32_t	threads;
	uint32_t	max_context;	/* tokens of prompt and answer together */
	uint32_t	credits;		/* requests that may be unanswered at any time */
	uint32_t	name_length;	/* model name */
	uint32_t	family_length;	/* prompt family */
	uint32_t	fingerprint_length; /* 64 hexadecimal digits */
	uint32_t	precision_length;	/* e.g. "exact" */
	uint32_t	device_length;	/* e.g. "cpu avx512" */
	uint32_t	languages_length;	/* codes the model knows, separated by one space; empty: all of the table */
	uint32_t	reserved;
} HymtReady;

typedef struct HymtRefused
{
	uint32_t	failure;		/* HymtFailure */
	uint32_t	message_length;
} HymtRefused;

/* How tokens are chosen. No padding, so that bytes can be compared. Zeroed: the likeliest token each time. */
typedef struct HymtDraw
{
	uint64_t	seed;
	float		temperature;	/* 0: the likeliest token, and the rest does not count; at most HYMT_TEMPERATURE_MAX */
	float		top_p;			/* 0 < top_p <= 1; 1 or, where nothing is drawn, 0: no limit */
	uint32_t	top_k;			/* 0: no limit */
	uint32_t	reserved;
} HymtDraw;

#define HYMT_TEMPERATURE_MAX 100.0f

/* Flags of a request. */
#define HYMT_REQUEST_STREAM 1u	/* pieces of the answer are wanted as they come */
#define HYMT_REQUEST_FLAGS HYMT_REQUEST_STREAM	/* all that there are */

typedef struct HymtRequest
{
	uint64_t	generation;		/* of the slot; carried back in the answer */
	uint32_t	slot;
	uint32_t	max_new_tokens; /* 0: the engine's own rule */
	HymtDraw	draw;
	char		source_lang[HYMT_LANG_MAX]; /* canonical code, NUL-padded; never empty */
	char		target_lang[HYMT_LANG_MAX];
	uint32_t	context_length; /* UTF-8, not to be translated; 0: none */
	uint32_t	text_length;	/* UTF-8 */
	char		adapter[HYMT_ADAPTER_NAME_MAX]; /* named by the caller, NUL-padded; empty: that of the languages */
	uint32_t	flags;			/* HYMT_REQUEST_ */
	uint32_t	reserved;
} HymtRequest;

typedef struct HymtCancel
{
	uint64_t	generation;
	uint32_t	slot;
	uint32_t	reserved;
} HymtCancel;

typedef struct HymtResult
{
	uint64_t	generation;
	uint32_t	slot;
	uint32_t	finish;			/* HymtFinish */
	uint32_t	input_tokens;	/* prompt */
	uint32_t	output_tokens;
	uint32_t	reserved;
	uint32_t	text_length;	/* UTF-8 */
	/*
	 * What a stored copy of this answer belongs to: 64 hexadecimal digits, or all NUL when that is READY's fingerprint.
	 * Another one means that files of an adapter have changed since, and the answer was made with them.
	 */
	char		fingerprint[HYMT_FINGERPRINT_DIGITS];
} HymtResult;

typedef struct HymtFailureFrame
{
	uint64_t	generation;
	uint32_t	slot;
	uint32_t	failure;		/* HymtFailure */
	uint32_t	finish;			/* HymtFinish, for HYMT_FAILURE_UNFINISHED */
	uint32_t	message_length; /* English, never contains the text */
} HymtFailureFrame;

/*
 * More of an answer: it follows what was sent of it before, and all of them together are the beginning of RESULT's text.
 * Whole characters, and never none. Only for requests with HYMT_REQUEST_STREAM.
 */
typedef struct HymtPieceFrame
{
	uint64_t	generation;
	uint32_t	slot;
	uint32_t	text_length;	/* UTF-8 */
} HymtPieceFrame;

/* Sent at least once a second while any request is unanswered, and every few seconds when idle. */
typedef struct HymtHeartbeat
{
	uint64_t	steps;			/* the scheduler's own counter; standing still while rows run means a hang */
	uint64_t	rows;			/* rows of all steps together */
	uint64_t	input_tokens;
	uint64_t	output_tokens;
	uint64_t	sequence_steps; /* sum over steps of the requests that took part: / steps = mean requests per step */
	uint32_t	running;		/* requests taking part in steps now */
	uint32_t	waiting;		/* requests accepted, not yet running */
	uint64_t	degraded_steps; /* steps that were made smaller for want of memory */
	uint64_t	reused_tokens;	/* positions that were found computed by an earlier request */
	uint64_t	preemptions;	/* requests that lost their pages to older ones */
} HymtHeartbeat;

/*
 * A growing byte queue: append at the end, consume from the front. Memory is malloc'ed and belongs to the queue until
 * hymt_bytes_free(). A zeroed struct is an empty queue.
 */
typedef struct HymtBytes
{
	char	   *data;			/* first unconsumed byte is data + start */
	size_t		start;
	size_t		end;
	size_t		capacity;
} HymtBytes;

/* Room for `more` bytes at the end; returns where to write them (then add to `end`), or NULL when memory is out. */
extern char *hymt_bytes_reserve(HymtBytes *bytes, size_t more);
extern bool hymt_bytes_append(HymtBytes *bytes, const void *data, size_t length);
extern void hymt_bytes_consume(HymtBytes *bytes, size_t length);
extern void hymt_bytes_free(HymtBytes *bytes);
static inline size_t
hymt_bytes_length(const HymtBytes *bytes)
{
	return bytes->end - bytes->start;
}

typedef struct HymtPart
{
	const void *data;
	size_t		length;
} HymtPart;

/*
 * Append one whole frame: header, fixed struct, then the variable parts (the *_length fields of the struct must
 * already be set and agree with the parts). Returns false, leaving the queue as it was, when memory is out or the frame
 * would exceed HYMT_FRAME_MAX_BODY.
 */
extern bool hymt_frame_append(HymtBytes *out, HymtFrameType type, const void *fixed, size_t fixed_length,
							  const HymtPart *parts, int nparts);

/* A received frame; points into the queue it was read from and is valid until the queue is touched again. */
typedef struct HymtFrame
{
	HymtFrameType type;
	const char *body;
	size_t		body_length;
} HymtFrame;

typedef enum HymtFrameStatus
{
	HYMT_FRAME_MORE,			/* not complete yet */
	HYMT_FRAME_OK,				/* *frame is set; call hymt_frame_consume() when done with it */
	HYMT_FRAME_GARBAGE			/* end the conversation */
} HymtFrameStatus;

extern HymtFrameStatus hymt_frame_peek(const HymtBytes *in, HymtFrame *frame);
extern void hymt_frame_consume(HymtBytes *in, const HymtFrame *frame);

/*
 * Split a body into its fixed struct (copied out, so alignment does not matter) and its variable parts. Each returns
 * false when the body's length disagrees with its fields, an enumeration is out of range, or a number is that would not
 * fit into the signed integer in which the receiver keeps it (what an engine counts). Parts point into the body.
 * Of a HELLO in another protocol version only protocol_version is read; its version part is then empty.
 */
extern bool hymt_decode_hello(const HymtFrame *frame, HymtHello *fixed, HymtPart *version);
extern bool hymt_decode_loading(const HymtFrame *frame, HymtLoading *fixed, HymtPart *phase);
typedef struct HymtReadyParts
{
	HymtPart	name;
	HymtPart	family;
	HymtPart	fingerprint;
	HymtPart	precision;
	HymtPart	device;
	HymtPart	languages;
} HymtReadyParts;
extern bool hymt_decode_ready(const HymtFrame *frame, HymtReady *fixed, HymtReadyParts *parts);
extern bool hymt_decode_refused(const HymtFrame *frame, HymtRefused *fixed, HymtPart *message);
extern bool hymt_decode_request(const HymtFrame *frame, HymtRequest *fixed, HymtPart *context,
								HymtPart *text);
extern bool hymt_decode_cancel(const HymtFrame *frame, HymtCancel *fixed);
extern bool hymt_decode_result(const HymtFrame *frame, HymtResult *fixed, HymtPart *text);
extern bool hymt_decode_failure(const HymtFrame *frame, HymtFailureFrame *fixed, HymtPart *message);
extern bool hymt_decode_heartbeat(const HymtFrame *frame, HymtHeartbeat *fixed);
extern bool hymt_decode_piece(const HymtFrame *frame, HymtPieceFrame *fixed, HymtPart *text);

#endif							/* HYMT_FRAMES_H */
