/*
 * mock_engine.c: an engine without a model, for tests of everything that is not translation.
 *
 * A program of its own, started by the worker in the place of hymt-engine with the same command line. It speaks the
 * protocol of frames.h and obeys the texts it is sent, so that each fault happens when a test wants it and not by luck.
 * Time passes in steps, as in the scheduler of the engine: a request takes part in steps until it is answered, and none
 * delays another.
 *
 * Texts (anything else is answered "SOURCE>TARGET: TEXT" after one step):
 *
 *      mock:sleep SECONDS      answer after that time
 *      mock:hold FILE          answer when FILE exists; what follows in another line says nothing
 *      mock:stream FILE        answer with the parts of the next line, which "|" separates, one a step; all but the last one
 *                              are sent as pieces where these are wanted, and unless FILE.mute exists. Parts that say what
 *                              to do: "*" wait until FILE exists, "#" the process number, "%" a Chinese character,
 *                              "/" the first two bytes of one, "+N" N digits, "!NAME" fail
 *      mock:uninvited          send a piece, whether it is wanted or not
 *      mock:afterwards         answer, and send a piece then
 *      mock:batch [N]          answer with the number of requests in the step, once that is at least N
 *      mock:late SECONDS       answer only after having been cancelled, SECONDS later
 *      mock:twice              answer twice
 *      mock:shortwrite         answer byte by byte
 *      mock:stopreading S      read nothing for S seconds, then answer
 *      mock:big N              answer with N bytes
 *      mock:pid                answer with the process number
 *      mock:arrival [ANY]      answer with the number of requests that arrived until this one, counting it
 *      mock:chinese            answer in Chinese
 *      mock:fingerprint NAME   say that what made the answer is what a model NAME has (see HymtResult.fingerprint)
 *      mock:finish REASON      stop, length or loop
 *      mock:fail NAME          a failure: see failure_names
 *      mock:badutf8            answer with a byte sequence that is not UTF-8
 *      mock:nul                answer with a NUL byte in the text
 *      mock:wrongslot          answer for a slot that was never asked for
 *      mock:garbage            send bytes that are no frame
 *      mock:liar               send a frame whose lengths disagree
 *      mock:halfframe          send half of an answer, then exit
 *      mock:halfhang           send half of an answer, then nothing any more
 *      mock:crash, mock:abort, mock:exit N
 *      mock:crashonce FILE     crash unless FILE exists, having created it
 *      mock:hang               do nothing any more
 *      mock:stall              heartbeats, but no step any more
 *      mock:close              close the conversation, but do not exit
 *      mock:log N              N lines on stderr, and some bytes that are no text
 *      mock:closelog           close stderr, then answer
 *      mock:device             answer with the device number
 *      mock:order              answer with the request's cap on tokens, adapter, temperature, top_k, top_p and seed
 *      mock:counters           count 3 degraded steps, 5 reused tokens and 7 preemptions
 *
 * How it starts is told by the first line of the file `fault-DEVICE`, or else `fault`, in the model directory, or else by
 * the directory's name after "mock-" ("mock-credits-4" is "credits 4"):
 *
 *      exit-at-start, exit-while-loading, crash-once, hang-at-start, silent, garbage-hello, wrong-version,
 *      refuse NAME, load-slow SECONDS, credits N,
 *      step MILLISECONDS [CREDITS]  how long a step takes, the first one after a pause, too (else that takes no time)
 *      no-room                 refuse for want of memory when another engine serves meanwhile (--beside)
 *      no-room-then-refuse     that, and refuse as broken otherwise
 *      exit-when-ready         exit as soon as READY is sent
 *      crash-at-request N, hang-at-request N   at the N-th request, whatever it is; without N at the first
 *      fail-requests NAME      fail every request at once, whatever it is
 *      at MOMENT FAULT         FAULT happens once at that moment, to the first engine that comes there; it leaves a
 *                              file `happened-MOMENT-FAULT` in the model directory. Moments: start (before HELLO),
 *                              hello (after it), loading, ready (just after READY), idle, step (with requests in it),
 *                              answering (in the middle of an answer). Faults: crash, abort, exit, garbage, cut (half
 *                              a frame, then exit), half (half a frame, then nothing any more), hang, close, late (a
 *                              pause)
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "frames.h"

#define HEARTBEAT_MS 200
#define IDLE_MS 100				/* without requests, before the moment "idle" has come */
#define LATE_MS 400				/* the pause of the fault "late" */
#define NEVER INT64_MAX

typedef struct Request
{
	struct Request *next;
	HymtRequest head;
	char	   *context;		/* NUL-terminated */
	char	   *text;			/* NUL-terminated */
	char		verb[32];		/* after "mock:"; empty: translate */
	char	   *argument;		/* rest of the text; points into it */
	int64_t		due;			/* ms; of sleep, late, stopreading */
	char	   *parts;			/* of a stream: those that are left; points into the text */
	HymtBytes	said;			/* of a stream */
	long		arrival;		/* 1: the first of this process */
	bool		cancelled;
} Request;

static struct
{
	int			fd;
	HymtBytes	in;
	const char *model;
	const char *family;
	int			device;			/* --device-number */
	bool		beside;			/* --beside */
	char		fault[64];
	char		fault_argument[64];
	char		fault_at_moment[64];	/* of "at" */
	uint32_t	credits;
	int			step_ms;
	int64_t		next_step;
	Request    *requests;
	long		arrivals;
	HymtHeartbeat beat;
	bool		stalled;
	int64_t		reads_again;	/* ms */
	int64_t		idle_since;		/* ms */
}			mock = {.fd = -1, .credits = 32, .step_ms = 5, .family = "mock"};

static const struct
{
	const char *name;
	HymtFailure failure;
}			failure_names[] = {
	{"missing", HYMT_FAILURE_MODEL_MISSING},
	{"unreadable", HYMT_FAILURE_MODEL_UNREADABLE},
	{"broken", HYMT_FAILURE_MODEL_BROKEN},
	{"unsupported-model", HYMT_FAILURE_MODEL_UNSUPPORTED},
	{"no-memory", HYMT_FAILURE_NO_MEMORY},
	{"bad-request", HYMT_FAILURE_BAD_REQUEST},
	{"language", HYMT_FAILURE_LANGUAGE},
	{"too-long", HYMT_FAILURE_TOO_LONG},
	{"bad-text", HYMT_FAILURE_BAD_TEXT},
	{"unfinished", HYMT_FAILURE_UNFINISHED},
	{"numeric", HYMT_FAILURE_NUMERIC},
	{"unsupported", HYMT_FAILURE_UNSUPPORTED},
	{"internal", HYMT_FAILURE_INTERNAL},
	{"adapter", HYMT_FAILURE_ADAPTER},
	{"over-limit", HYMT_FAILURE_OVER_LIMIT}
};

static HymtFailure
failure_by_name(const char *name)
{
	for (size_t i = 0; i < sizeof(failure_names) / sizeof(failure_names[0]); i++)
	{
		if (strcmp(name, failure_names[i].name) == 0)
			return failure_names[i].failure;
	}
	return HYMT_FAILURE_INTERNAL;
}

static int64_t
now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (int64_t) now.tv_sec * 1000 + now.tv_nsec / 1000000;
}

static int64_t
seconds_from_now(const char *seconds)
{
	return now_ms() + (int64_t) (strtod(seconds, NULL) * 1000);
}

static void
sleep_ms(int ms)
{
	struct timespec time = {ms / 1000, (ms % 1000) * 1000000L};

	nanosleep(&time, NULL);
}

static void
hang(void)
{
	for (;;)
		pause();
}

static void
crash(void)
{
	/* The default action, whatever a sanitizer may have installed. */
	signal(SIGSEGV, SIG_DFL);
	raise(SIGSEGV);
}

/* --- sending ----------------------------------------------------------------------------------------------------- */

/* At most `piece` bytes per write, with a pause in between; 0: no limit. */
static void
send_bytes(const void *data, size_t length, size_t piece)
{
	const char *next = data;

	while (length > 0)
	{
		ssize_t		sent = write(mock.fd, next, piece > 0 && piece < length ? piece : length);

		if (sent < 0 && errno == EINTR)
			continue;
		if (sent < 0)
			exit(0);			/* the worker is gone */
		next += sent;
		length -= (size_t) sent;
		if (piece > 0)
			sleep_ms(1);
	}
}

static bool moment_has_come(const char *moment);
static void misbehave(const char *how);

/* Sends the first `most` bytes of a frame. */
static void
send_frame(HymtFrameType type, const void *fixed, size_t fixed_length, const HymtPart *parts, int nparts,
		   size_t most, size_t piece)
{
	HymtBytes	out = {0};
	size_t		begun = 0;

	if (!hymt_frame_append(&out, type, fixed, fixed_length, parts, nparts))
		abort();
	if (type == HYMT_FRAME_RESULT && moment_has_come("answering"))
	{
		begun = sizeof(HymtFrameHeader) + 8;
		send_bytes(out.data, begun, 0);
		misbehave(mock.fault_at_moment);
	}
	send_bytes(out.data + begun, (most < out.end ? most : out.end) - begun, piece);
	hymt_bytes_free(&out);
}

static HymtPart
part(const char *text)
{
	return (HymtPart) {text, strlen(text)};
}

static void
send_hello(uint32_t version)
{
	HymtPart	release = part(HYMT_VERSION);
	HymtHello	hello = {version, (uint32_t) release.length};

	send_frame(HYMT_FRAME_HELLO, &hello, sizeof(hello), &release, 1, SIZE_MAX, 0);
}

static void
send_loading(const char *phase, uint32_t percent)
{
	HymtPart	text = part(phase);
	HymtLoading loading = {percent, (uint32_t) text.length};

	send_frame(HYMT_FRAME_LOADING, &loading, sizeof(loading), &text, 1, SIZE_MAX, 0);
}

static void
send_refused(HymtFailure failure, const char *message)
{
	HymtPart	text = part(message);
	HymtRefused refused = {failure, (uint32_t) text.length};

	send_frame(HYMT_FRAME_REFUSED, &refused, sizeof(refused), &text, 1, SIZE_MAX, 0);
}

/* Another one for each name, of 64 digits. */
static void
make_fingerprint(const char *name, char *fingerprint, size_t size)
{
	uint64_t	hash = 14695981039346656037u;

	for (const char *c = name; *c != '\0'; c++)
		hash = (hash ^ (unsigned char) *c) * 1099511628211u;
	snprintf(fingerprint, size, "%016llx%048x", (unsigned long long) hash, 0);
}

static void
send_ready(void)
{
	const char *slash = strrchr(mock.model, '/');
	const char *name = slash != NULL ? slash + 1 : mock.model;
	char		fingerprint[65];
	HymtPart	parts[6];
	HymtReady	ready;

	make_fingerprint(name, fingerprint, sizeof(fingerprint));
	parts[0] = part(name);
	parts[1] = part(mock.family);
	parts[2] = part(fingerprint);
	parts[3] = part("exact");
	parts[4] = part("mock");
	parts[5] = part("");
	ready = (HymtReady) {
		.parameters = 1234, .weight_bytes = 2468, .threads = 1, .max_context = 8192, .credits = mock.credits,
		.name_length = (uint32_t) parts[0].length, .family_length = (uint32_t) parts[1].length,
		.fingerprint_length = (uint32_t) parts[2].length, .precision_length = (uint32_t) parts[3].length,
		.device_length = (uint32_t) parts[4].length, .languages_length = (uint32_t) parts[5].length
	};

	send_frame(HYMT_FRAME_READY, &ready, sizeof(ready), parts, 6, SIZE_MAX, 0);
}

static void
send_heartbeat(void)
{
	mock.beat.running = 0;
	for (Request *request = mock.requests; request != NULL; request = request->next)
		mock.beat.running++;
	send_frame(HYMT_FRAME_HEARTBEAT, &mock.beat, sizeof(mock.beat), NULL, 0, SIZE_MAX, 0);
}

/* --- faults at a moment ------------------------------------------------------------------------------------------ */

/* True once: when the fault of this moment is to happen now. Leaves the mark that it has. */
static bool
moment_has_come(const char *moment)
{
	char		path[4096];
	FILE	   *mark;

	if (strcmp(mock.fault, "at") != 0 || strcmp(mock.fault_argument, moment) != 0)
		return false;
	snprintf(path, sizeof(path), "%s/happened-%s-%s", mock.model, moment, mock.fault_at_moment);
	if (access(path, F_OK) == 0)
		return false;
	mark = fopen(path, "w");
	if (mark == NULL)
		abort();
	fclose(mark);
	return true;
}

/* Returns after garbage, which the worker must not survive, and after a pause, which it must. */
static void
misbehave(const char *how)
{
	bool		half = strcmp(how, "half") == 0;

	if (strcmp(how, "crash") == 0)
		crash();
	else if (strcmp(how, "abort") == 0)
		abort();
	else if (strcmp(how, "exit") == 0)
		exit(4);
	else if (strcmp(how, "garbage") == 0)
		send_bytes("this is not a frame, is it? it is at least as long as a header", 62, 0);
	else if (half || strcmp(how, "cut") == 0)
	{
		send_frame(HYMT_FRAME_HEARTBEAT, &mock.beat, sizeof(mock.beat), NULL, 0, sizeof(HymtFrameHeader) + 4, 0);
		if (half)
			hang();
		exit(0);
	}
	else if (strcmp(how, "hang") == 0)
		hang();
	else if (strcmp(how, "close") == 0)
	{
		close(mock.fd);
		hang();
	}
	else if (strcmp(how, "late") == 0)
		sleep_ms(LATE_MS);
	else
	{
		fprintf(stderr, "unknown fault %s\n", how);
		exit(2);
	}
}

static void
at_moment(const char *moment)
{
	if (moment_has_come(moment))
		misbehave(mock.fault_at_moment);
}

static void
send_result_part(const Request *request, const char *text, size_t length, HymtFinish finish, size_t most, size_t piece)
{
	HymtPart	parts[1] = {{text, length}};
	HymtResult	result = {
		.generation = request->head.generation, .slot = request->head.slot, .finish = finish,
		.input_tokens = (uint32_t) strlen(request->text), .output_tokens = (uint32_t) length,
		.text_length = (uint32_t) length
	};
	char		fingerprint[65];

	if (strcmp(request->verb, "fingerprint") == 0)
	{
		make_fingerprint(request->argument, fingerprint, sizeof(fingerprint));
		memcpy(result.fingerprint, fingerprint, sizeof(result.fingerprint));
	}
	send_frame(HYMT_FRAME_RESULT, &result, sizeof(result), parts, 1, most, piece);
}

static void
send_result(const Request *request, const char *text)
{
	send_result_part(request, text, strlen(text), HYMT_FINISH_STOP, SIZE_MAX, 0);
}

static void
send_piece(const Request *request, const char *text)
{
	HymtPart	parts[1] = {part(text)};
	HymtPieceFrame piece = {
		.generation = request->head.generation, .slot = request->head.slot, .text_length = (uint32_t) strlen(text)
	};

	send_frame(HYMT_FRAME_PIECE, &piece, sizeof(piece), parts, 1, SIZE_MAX, 0);
}

static void
send_failure(const Request *request, HymtFailure failure)
{
	HymtPart	message = part("The mock engine was asked to fail.");
	HymtFailureFrame frame = {
		.generation = request->head.generation, .slot = request->head.slot, .failure = failure,
		.finish = failure == HYMT_FAILURE_UNFINISHED ? HYMT_FINISH_LENGTH : HYMT_FINISH_NONE,
		.message_length = (uint32_t) message.length
	};

	send_frame(HYMT_FRAME_FAILURE, &frame, sizeof(frame), &message, 1, SIZE_MAX, 0);
}

static void
send_translation(const Request *request)
{
	size_t		size = strlen(request->context) + strlen(request->text) + 2 * HYMT_LANG_MAX + 16;
	char	   *text = malloc(size);

	if (text == NULL)
		abort();
	snprintf(text, size, "%s>%s%s%s%s: %s", request->head.source_lang, request->head.target_lang,
			 request->context[0] != '\0' ? " (" : "", request->context, request->context[0] != '\0' ? ")" : "",
			 request->text);
	send_result(request, text);
	free(text);
}

/* --- what texts ask for ------------------------------------------------------------------------------------------ */

static bool
is(const Request *request, const char *verb)
{
	return strcmp(request->verb, verb) == 0;
}

/* Faults of the whole process. Those that return have answered, or sent what stands for an answer. */
static bool
do_fault(const Request *request)
{
	static const char answer[] = "half an answer";
	HymtResult	liar = {.generation = request->head.generation, .slot = request->head.slot, .text_length = 1000000};

	if (is(request, "crash"))
		crash();
	else if (is(request, "abort"))
		abort();
	else if (is(request, "exit"))
		exit(atoi(request->argument));
	else if (is(request, "hang"))
		hang();
	else if (is(request, "garbage"))
		send_bytes("this is not a frame, is it? it is at least as long as a header", 62, 0);
	else if (is(request, "liar"))
		send_frame(HYMT_FRAME_RESULT, &liar, sizeof(liar), NULL, 0, SIZE_MAX, 0);
	else if (is(request, "halfframe") || is(request, "halfhang"))
	{
		send_result_part(request, answer, sizeof(answer) - 1, HYMT_FINISH_STOP, sizeof(HymtFrameHeader) + 20, 0);
		if (is(request, "halfhang"))
			hang();
		exit(0);
	}
	else if (is(request, "close"))
	{
		close(mock.fd);
		hang();
	}
	else if (is(request, "crashonce"))
	{
		if (access(request->argument, F_OK) == 0)
			return false;
		fclose(fopen(request->argument, "w"));
		crash();
	}
	else
		return false;
	return true;
}

static void
write_log(int lines)
{
	for (int i = 1; i <= lines; i++)
		fprintf(stderr, "mock line %d of %d\n", i, lines);
	fprintf(stderr, "mock bytes \x01\xff\xfe, and a line without end: %0*d", 5000, 7);
	fflush(stderr);
}

static void
send_finish(const Request *request)
{
	HymtFinish	finish = strcmp(request->argument, "length") == 0 ? HYMT_FINISH_LENGTH :
		strcmp(request->argument, "loop") == 0 ? HYMT_FINISH_LOOP : HYMT_FINISH_STOP;

	send_result_part(request, "unfinished", strlen("unfinished"), finish, SIZE_MAX, 0);
}

static void
send_big(const Request *request)
{
	size_t		length = strtoul(request->argument, NULL, 10);
	char	   *text = malloc(length + 1);

	if (text == NULL)
		abort();
	memset(text, 'b', length);
	send_result_part(request, text, length, HYMT_FINISH_STOP, SIZE_MAX, 0);
	free(text);
}

static void
send_number(const Request *request, long number)
{
	char		text[32];

	snprintf(text, sizeof(text), "%ld", number);
	send_result(request, text);
}

static bool
wants_pieces(const Request *request)
{
	char		mute[4096];

	snprintf(mute, sizeof(mute), "%s.mute", request->argument);
	return (request->head.flags & HYMT_REQUEST_STREAM) != 0 && access(mute, F_OK) != 0;
}

/* The next part of a stream; true with the last one. */
static bool
take_stream_step(Request *request)
{
	char	   *next = request->parts;
	size_t		length = strcspn(next, "|");
	bool		last = next[length] == '\0';
	char		number[8192];

	if (next[0] == '*' && access(request->argument, F_OK) != 0)
		return false;
	next[length] = '\0';
	request->parts = next + length + (last ? 0 : 1);
	if (next[0] == '!')
	{
		send_failure(request, failure_by_name(next + 1));
		return true;
	}
	if (next[0] == '+')
		snprintf(number, sizeof(number), "%0*d", atoi(next + 1), 0);
	else
		snprintf(number, sizeof(number), "%ld", (long) getpid());
	next = next[0] == '*' ? "" : next[0] == '#' || next[0] == '+' ? number : next[0] == '%' ? "\xe8\x87\xaa" :
		next[0] == '/' ? "\xe8\x87" : next;
	if (!hymt_bytes_append(&request->said, next, strlen(next)))
		abort();
	if (last)
		send_result_part(request, request->said.data, request->said.end, HYMT_FINISH_STOP, SIZE_MAX, 0);
	else if (next[0] != '\0' && wants_pieces(request))
		send_piece(request, next);
	return last;
}

static void
send_order(const Request *request)
{
	const HymtRequest *head = &request->head;
	char		text[256];

	snprintf(text, sizeof(text), "cap %u adapter \"%.*s\" temperature %g top_k %u top_p %g seed %llu", head->max_new_tokens,
			 HYMT_ADAPTER_NAME_MAX, head->adapter, head->draw.temperature, head->draw.top_k, head->draw.top_p,
			 (unsigned long long) head->draw.seed);
	send_result(request, text);
}

/* Whether a request is over in this step, of so many requests. Answers it then. */
static bool
take_step(Request *request, int in_step)
{
	Request		other = *request;

	if (is(request, "sleep") || is(request, "late") || is(request, "stopreading"))
	{
		if (now_ms() < request->due)
			return false;
		send_result(request, request->cancelled ? "too late" : "awake");
	}
	else if (is(request, "hold"))
	{
		if (access(request->argument, F_OK) != 0)
			return false;
		send_result(request, "released");
	}
	else if (is(request, "stream"))
		return take_stream_step(request);
	else if (is(request, "uninvited"))
	{
		send_piece(request, "for nobody");
		send_result(request, "for somebody");
	}
	else if (is(request, "afterwards"))
	{
		send_result(request, "in time");
		send_piece(request, "too late");
	}
	else if (is(request, "batch"))
	{
		if (in_step < atoi(request->argument))
			return false;
		send_number(request, in_step);
	}
	else if (is(request, "stall"))
	{
		mock.stalled = true;
		return false;
	}
	else if (is(request, "twice"))
	{
		send_result(request, "once");
		send_result(request, "and again");
	}
	else if (is(request, "shortwrite"))
		send_result_part(request, "slowly", 6, HYMT_FINISH_STOP, SIZE_MAX, 1);
	else if (is(request, "big"))
		send_big(request);
	else if (is(request, "closelog"))
	{
		close(STDOUT_FILENO);
		close(STDERR_FILENO);
		send_result(request, "closed");
	}
	else if (is(request, "device"))
		send_number(request, mock.device);
	else if (is(request, "pid"))
		send_number(request, (long) getpid());
	else if (is(request, "arrival"))
		send_number(request, request->arrival);
	else if (is(request, "order"))
		send_order(request);
	else if (is(request, "counters"))
	{
		mock.beat.degraded_steps += 3;
		mock.beat.reused_tokens += 5;
		mock.beat.preemptions += 7;
		send_result(request, "counted");
	}
	else if (is(request, "chinese"))
		send_result(request, "\xe8\x87\xaa\xe8\xa1\x8c\xe8\xbd\xa6");
	else if (is(request, "finish"))
		send_finish(request);
	else if (is(request, "fail"))
		send_failure(request, failure_by_name(request->argument));
	else if (is(request, "badutf8"))
		send_result(request, "bad \xc3( bytes");
	else if (is(request, "nul"))
		send_result_part(request, "a\0b", 3, HYMT_FINISH_STOP, SIZE_MAX, 0);
	else if (is(request, "wrongslot"))
	{
		other.head.slot = 1000000;
		send_result(&other, "for nobody");
	}
	else if (is(request, "log"))
	{
		write_log(atoi(request->argument));
		send_result(request, "logged");
	}
	else if (!do_fault(request))
		send_translation(request);
	return true;
}

static void
free_request(Request *request)
{
	free(request->context);
	free(request->text);
	hymt_bytes_free(&request->said);
	free(request);
}

static void
run_step(void)
{
	int			in_step = 0;
	bool		finished = false;

	for (Request *request = mock.requests; request != NULL; request = request->next)
		in_step++;
	mock.beat.steps++;
	mock.beat.rows += (uint64_t) in_step;
	mock.beat.sequence_steps += (uint64_t) in_step;
	at_moment("step");

	for (Request **link = &mock.requests; *link != NULL && !mock.stalled;)
	{
		Request    *request = *link;

		if (!take_step(request, in_step))
		{
			link = &request->next;
			continue;
		}
		*link = request->next;
		free_request(request);
		finished = true;
	}
	if (finished)
		send_heartbeat();
}

/* --- receiving --------------------------------------------------------------------------------------------------- */

static void
parse_command(Request *request)
{
	const char *command = request->text + strlen("mock:");
	size_t		length;

	request->argument = request->text + strlen(request->text);
	if (strncmp(request->text, "mock:", strlen("mock:")) != 0)
		return;
	length = strcspn(command, " ");
	if (length >= sizeof(request->verb))
		return;
	memcpy(request->verb, command, length);
	if (command[length] == ' ')
		request->argument = request->text + strlen("mock:") + length + 1;
	if (is(request, "hold") || is(request, "stream"))
	{
		request->parts = request->argument + strcspn(request->argument, "\n");
		if (*request->parts != '\0')
			*request->parts++ = '\0';
	}

	if (is(request, "sleep"))
		request->due = seconds_from_now(request->argument);
	else if (is(request, "late"))
		request->due = NEVER;
	else if (is(request, "stopreading"))
		request->due = mock.reads_again = seconds_from_now(request->argument);
}

static bool
fault(const char *name)
{
	return strcmp(mock.fault, name) == 0;
}

static bool
fault_at_request(const char *name, long arrival)
{
	return fault(name) && arrival == (mock.fault_argument[0] != '\0' ? atol(mock.fault_argument) : 1);
}

static void
accept_request(const HymtFrame *frame)
{
	Request    *request = calloc(1, sizeof(Request));
	Request   **end = &mock.requests;
	HymtPart	context;
	HymtPart	text;

	if (request == NULL || !hymt_decode_request(frame, &request->head, &context, &text))
	{
		fprintf(stderr, "malformed request\n");
		exit(2);
	}
	request->context = strndup(context.data, context.length);
	request->text = strndup(text.data, text.length);
	if (request->context == NULL || request->text == NULL)
		abort();
	request->arrival = ++mock.arrivals;
	parse_command(request);
	if (fault_at_request("crash-at-request", request->arrival))
		crash();
	if (fault_at_request("hang-at-request", request->arrival))
		hang();
	if (fault("fail-requests"))
	{
		send_failure(request, failure_by_name(mock.fault_argument));
		free_request(request);
		return;
	}
	if (fault("step") && mock.requests == NULL)
		mock.next_step = now_ms() + mock.step_ms;
	while (*end != NULL)
		end = &(*end)->next;
	*end = request;
}

static void
accept_cancel(const HymtFrame *frame)
{
	HymtCancel	cancel;

	if (!hymt_decode_cancel(frame, &cancel))
	{
		fprintf(stderr, "malformed cancel\n");
		exit(2);
	}
	for (Request **link = &mock.requests; *link != NULL; link = &(*link)->next)
	{
		Request    *request = *link;

		if (request->head.slot != cancel.slot || request->head.generation != cancel.generation)
			continue;
		request->cancelled = true;
		if (is(request, "late"))
			request->due = seconds_from_now(request->argument);
		else
		{
			*link = request->next;
			free_request(request);
		}
		return;
	}
}

static void
receive(void)
{
	char	   *room = hymt_bytes_reserve(&mock.in, 65536);
	ssize_t		got = room != NULL ? read(mock.fd, room, 65536) : 0;
	HymtFrame	frame;

	if (got < 0 && errno == EINTR)
		return;
	if (got <= 0)
		exit(0);				/* the conversation is over */
	mock.in.end += (size_t) got;
	for (;;)
	{
		HymtFrameStatus status = hymt_frame_peek(&mock.in, &frame);

		if (status == HYMT_FRAME_MORE)
			return;
		if (status == HYMT_FRAME_GARBAGE)
			exit(2);
		if (frame.type == HYMT_FRAME_REQUEST)
			accept_request(&frame);
		else if (frame.type == HYMT_FRAME_CANCEL)
			accept_cancel(&frame);
		else
			exit(2);
		hymt_frame_consume(&mock.in, &frame);
	}
}

static void
serve(void)
{
	int64_t		next_beat = now_ms();

	mock.next_step = mock.idle_since = now_ms();
	for (;;)
	{
		int64_t		now = now_ms();
		int64_t		until = next_beat;
		struct pollfd poll_fd = {mock.fd, POLLIN, 0};

		if (mock.requests != NULL && !mock.stalled && mock.next_step < until)
			until = mock.next_step;
		if (now < mock.reads_again)
			poll_fd.fd = -1;	/* deaf for now */
		if (poll(&poll_fd, 1, until > now ? (int) (until - now) : 0) > 0)
			receive();

		now = now_ms();
		if (mock.requests != NULL && !mock.stalled && now >= mock.next_step)
		{
			run_step();
			mock.next_step = now + mock.step_ms;
		}
		if (now >= next_beat)
		{
			send_heartbeat();
			next_beat = now + HEARTBEAT_MS;
		}
		if (mock.requests != NULL)
			mock.idle_since = now;
		else if (now >= mock.idle_since + IDLE_MS)
			at_moment("idle");
	}
}

/* --- start ------------------------------------------------------------------------------------------------------- */

/* The fault of a name: "mock-load-slow-3" is "load-slow 3", "mock-step-20-64" is "step 20 64". */
static void
fault_from_name(char *line, size_t size)
{
	const char *slash = strrchr(mock.model, '/');
	const char *name = slash != NULL ? slash + 1 : mock.model;
	char	   *dash;

	if (strncmp(name, "mock-", 5) != 0)
		return;
	snprintf(line, size, "%s", name + 5);
	while ((dash = strrchr(line, '-')) != NULL && strspn(dash + 1, "0123456789 ") == strlen(dash + 1))
		*dash = ' ';
}

static void
read_fault(void)
{
	char		line[128] = "";
	char		path[4096];
	FILE	   *file;

	fault_from_name(line, sizeof(line));
	snprintf(path, sizeof(path), "%s/fault-%d", mock.model, mock.device);
	file = fopen(path, "r");
	if (file == NULL)
	{
		snprintf(path, sizeof(path), "%s/fault", mock.model);
		file = fopen(path, "r");
	}
	if (file != NULL)
	{
		line[0] = '\0';
		if (fgets(line, sizeof(line), file) == NULL)
			line[0] = '\0';
		fclose(file);
	}
	sscanf(line, "%63s %63s %63s", mock.fault, mock.fault_argument, mock.fault_at_moment);
}

static void
crash_once(void)
{
	char		path[4096];

	snprintf(path, sizeof(path), "%s/crashed", mock.model);
	if (access(path, F_OK) == 0)
		return;
	fclose(fopen(path, "w"));
	crash();
}

/* The conversation up to READY. */
static void
start(void)
{
	struct stat info;

	if (fault("exit-at-start"))
		exit(1);
	if (fault("silent"))
		hang();
	at_moment("start");
	if (fault("garbage-hello"))
		send_bytes("HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n", 47, 0);
	send_hello(fault("wrong-version") ? HYMT_PROTOCOL_VERSION + 1 : HYMT_PROTOCOL_VERSION);
	if (fault("hang-at-start"))
		hang();
	at_moment("hello");
	send_loading("reading nothing", 0);
	at_moment("loading");
	if (fault("exit-while-loading"))
		exit(3);
	if (fault("crash-once"))
		crash_once();
	if (stat(mock.model, &info) != 0)
	{
		send_refused(HYMT_FAILURE_MODEL_MISSING, "there is no such directory");
		exit(1);
	}
	if (mock.beside && (fault("no-room") || fault("no-room-then-refuse")))
	{
		send_refused(HYMT_FAILURE_NO_MEMORY, "the mock engine was asked to find no room");
		exit(1);
	}
	if (fault("no-room-then-refuse"))
	{
		send_refused(HYMT_FAILURE_MODEL_BROKEN, "the mock engine was asked to refuse");
		exit(1);
	}
	if (fault("refuse"))
	{
		send_refused(failure_by_name(mock.fault_argument), "the mock engine was asked to refuse");
		exit(1);
	}
	if (fault("load-slow"))
	{
		int			ms = atoi(mock.fault_argument) * 1000;

		for (uint32_t percent = 0; percent < 100; percent += 5)
		{
			send_loading("loading slowly", percent);
			sleep_ms(ms / 20);
		}
	}
	if (fault("credits"))
		mock.credits = (uint32_t) atoi(mock.fault_argument);
	if (fault("step"))
	{
		mock.step_ms = atoi(mock.fault_argument);
		if (mock.fault_at_moment[0] != '\0')
			mock.credits = (uint32_t) atoi(mock.fault_at_moment);
	}
	send_ready();
	if (fault("exit-when-ready"))
		exit(4);
	at_moment("ready");
}

int
main(int argc, char **argv)
{
	for (int i = 2; i + 1 < argc; i += 2)
	{
		if (strcmp(argv[i], "--model") == 0)
			mock.model = argv[i + 1];
		else if (strcmp(argv[i], "--fd") == 0)
			mock.fd = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--prompt-family") == 0)
			mock.family = argv[i + 1];
		else if (strcmp(argv[i], "--device-number") == 0)
			mock.device = atoi(argv[i + 1]);
		else if (strcmp(argv[i], "--beside") == 0)
			mock.beside = true;
	}
	if (argc < 2 || strcmp(argv[1], "serve") != 0 || mock.model == NULL || mock.fd < 0)
	{
		fprintf(stderr, "usage: %s serve --model DIR --fd N\n", argv[0]);
		return 2;
	}
	signal(SIGPIPE, SIG_IGN);
	read_fault();
	start();
	serve();
}
