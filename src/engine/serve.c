/*
 * serve.c: hymt-engine serve: the child of a database worker, answering frames on a socket.
 *
 * Runs in the engine program, in one thread: a poll(2) loop over the socket, which never blocks either way, and the
 * device's event. Owns the conversation and the list of unanswered requests. It takes what the worker gives, in the
 * worker's order, and prints no text of a request anywhere.
 *
 * The worker's end, in whatever way it comes, is the engine's: the kernel sends SIGKILL when the parent dies, and the
 * end of the socket ends the loop.
 */
#define _GNU_SOURCE				/* POLLRDHUP */

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "cmd.h"
#include "engine.h"
#include "machine.h"

/* Unanswered requests at a time that the worker may count on. */
#define CREDITS_MAX 256
/* A typical sequence of prompt and answer, to guess how many fit in the KV memory. */
#define TYPICAL_TOKENS 128

/*
 * Requests beyond the credits are kept as well, up to these bounds; then the engine stops reading the socket until some
 * are answered, so that a worker that does not count cannot make it grow without end.
 */
#define PENDING_MAX 4096
#define PENDING_BYTES_MAX ((size_t) 256 * 1024 * 1024)
/* Likewise when the worker does not read its answers. */
#define OUTPUT_MAX ((size_t) 64 * 1024 * 1024)

#define READ_BYTES 65536
/* So that a flood of requests, or of long ones, delays neither steps nor heartbeats. */
#define READS_PER_TURN 16
#define TAKE_MS 100
#define BUSY_BEAT_MS 500		/* the worker is promised one a second */
#define IDLE_BEAT_MS 5000
#define GOODBYE_MS 5000			/* for a last frame to a slow reader */
#define OOM_SCORE 500

static const char usage[] =
"hymt-engine serve --model DIR --fd N [OPTIONS]\n"
"\n"
"Answers translation requests in frames on the socket with descriptor N. Started by hymt's worker in PostgreSQL.\n"
"\n"
"  --device-number N, --device-count N   this is engine N (from 0) of so many that share the machine's processors\n"
"  --adapters LIST       directories of adapters for languages, or with names: \"de=/path, zh>ja=/path, @legal=/path\"\n"
"  --max-adapters N      adapters loaded at a time (default: 3)\n"
"  --beside BYTES        another engine serves, with so many bytes of weights that this one does not share: refuse\n"
"                        when there is no memory for both\n";

typedef struct Pending
{
	uint64_t	id;				/* in the scheduler; 0: this place is free */
	uint64_t	generation;
	uint32_t	slot;
	uint32_t	bytes;			/* of its text: a measure of what it costs to keep */
	HymtStream *stream;			/* of one whose answer is wanted in pieces; else NULL */
} Pending;

typedef struct Serve
{
	int			fd;
	HymtEngine	engine;
	HymtBytes	in;
	HymtBytes	out;
	Pending		pending[PENDING_MAX];
	int			pending_count;
	size_t		pending_bytes;
	Pending    *streaming[PENDING_MAX]; /* those of them that have a stream */
	int			streaming_count;
	uint64_t	last_id;
	int64_t		last_beat;		/* milliseconds */
	int64_t		take_until;		/* milliseconds; then this turn of the loop takes no more frames */
	bool		frames_left;	/* it did so, and there may be some in `in`, for which no event will tell */
	uint64_t	told_steps;		/* in the last heartbeat */
	int			last_percent;
	const char *last_phase;
} Serve;

/* --- process ---------------------------------------------------------------------------------------------------- */

static int64_t
now_ms(void)
{
	struct timespec time;

	clock_gettime(CLOCK_MONOTONIC, &time);
	return (int64_t) time.tv_sec * 1000 + time.tv_nsec / 1000000;
}

static void
exit_quickly(int number)
{
	_exit(number == SIGTERM ? 0 : 2);
}

/* Whoever is to die when memory runs out, it must be neither a session nor the postmaster. */
static void
raise_oom_score(void)
{
	static const char path[] = "/proc/self/oom_score_adj";
	FILE	   *file = fopen(path, "re");
	int			score = OOM_SCORE;

	if (file != NULL)
	{
		if (fscanf(file, "%d", &score) != 1)
			score = OOM_SCORE;
		fclose(file);
		if (score >= OOM_SCORE)
			return;
	}
	file = fopen(path, "we");
	if (file == NULL)
		return;					/* a system without it can only be left as it is */
	fprintf(file, "%d", OOM_SCORE);
	fclose(file);
}

static void
set_up_process(void)
{
	struct sigaction action = {.sa_handler = exit_quickly};
	struct rlimit no_core = {0, 0};
	sigset_t	none;
	pid_t		parent = getppid();

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	if (getppid() != parent)
		_exit(1);				/* it died in between; had it died earlier, the end of the socket tells */
	prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
	setrlimit(RLIMIT_CORE, &no_core);	/* a core file would hold users' texts */
	raise_oom_score();
	signal(SIGINT, SIG_IGN);	/* sent to the whole group when only the worker is meant */
	sigaction(SIGTERM, &action, NULL);
	sigaction(SIGQUIT, &action, NULL);
	sigemptyset(&none);
	sigprocmask(SIG_SETMASK, &none, NULL);
}

/* The conversation cannot go on; there is nothing to save. */
static void
end_conversation(const char *why)
{
	if (why != NULL)
		hymt_complain("serve: %s", why);
	_exit(why != NULL ? 1 : 0);
}

/* --- output ----------------------------------------------------------------------------------------------------- */

/* Write what the socket takes now. */
static void
flush_output(Serve *serve)
{
	while (hymt_bytes_length(&serve->out) > 0)
	{
		ssize_t		sent = send(serve->fd, serve->out.data + serve->out.start, hymt_bytes_length(&serve->out),
								MSG_NOSIGNAL | MSG_DONTWAIT);

		if (sent > 0)
			hymt_bytes_consume(&serve->out, (size_t) sent);
		else if (sent < 0 && errno == EINTR)
			continue;
		else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK))
			return;
		else
			end_conversation(sent < 0 && errno != EPIPE && errno != ECONNRESET ? strerror(errno) : NULL);
	}
}

/* Write everything, waiting for the reader, but not for ever. */
static void
flush_all(Serve *serve)
{
	int64_t		deadline = now_ms() + GOODBYE_MS;

	flush_output(serve);
	while (hymt_bytes_length(&serve->out) > 0 && now_ms() < deadline)
	{
		struct pollfd event = {.fd = serve->fd, .events = POLLOUT};

		if (poll(&event, 1, 100) > 0 && (event.revents & (POLLHUP | POLLERR | POLLNVAL)) != 0)
			return;
		flush_output(serve);
	}
}

static void
put_frame(Serve *serve, HymtFrameType type, const void *fixed, size_t fixed_length, const HymtPart *parts, int nparts)
{
	if (!hymt_frame_append(&serve->out, type, fixed, fixed_length, parts, nparts))
		end_conversation("out of memory");
}

static HymtPart
part_of(const char *text)
{
	return (HymtPart) {text, strlen(text)};
}

static void
put_hello(Serve *serve)
{
	HymtPart	version = part_of(HYMT_VERSION);
	HymtHello	hello = {.protocol_version = HYMT_PROTOCOL_VERSION, .version_length = (uint32_t) version.length};

	put_frame(serve, HYMT_FRAME_HELLO, &hello, sizeof(hello), &version, 1);
}

static void
put_loading(void *context, int percent, const char *phase)
{
	Serve	   *serve = context;
	HymtPart	part = part_of(phase);
	HymtLoading loading = {.percent = (uint32_t) percent, .phase_length = (uint32_t) part.length};

	/* One frame for each change is plenty: a loader may report every megabyte. */
	if (serve->last_phase == phase && serve->last_percent == percent)
		return;
	serve->last_phase = phase;
	serve->last_percent = percent;
	put_frame(serve, HYMT_FRAME_LOADING, &loading, sizeof(loading), &part, 1);
	flush_output(serve);
}

static void
put_refused(Serve *serve, const HymtError *error)
{
	HymtPart	message = part_of(error->message);
	HymtRefused refused = {.failure = (uint32_t) error->failure, .message_length = (uint32_t) message.length};

	put_frame(serve, HYMT_FRAME_REFUSED, &refused, sizeof(refused), &message, 1);
}

static uint32_t
credits_of(const HymtDeviceInfo *info)
{
	int64_t		running = (int64_t) info->page_count * HYMT_PAGE_TOKENS / TYPICAL_TOKENS;

	if (running > info->max_rows)
		running = info->max_rows;
	if (running > info->max_samples)
		running = info->max_samples;
	if (running < 1)
		running = 1;
	return (uint32_t) (running * 4 < CREDITS_MAX ? running * 4 : CREDITS_MAX);
}

static void
put_ready(Serve *serve)
{
	const HymtModel *model = &serve->engine.model;
	const HymtDeviceInfo *info = serve->engine.ops->info(serve->engine.device);
	HymtPart	parts[] = {
		part_of(model->name), part_of(hymt_family_name(model->family)), part_of(serve->engine.fingerprint),
		part_of(info->precision), part_of(info->name), part_of(model->languages != NULL ? model->languages : "")
	};
	HymtReady	ready = {
		.parameters = model->parameters,
		.weight_bytes = model->stored_bytes,
		.threads = (uint32_t) info->threads,
		.max_context = (uint32_t) info->max_context,
		.credits = credits_of(info),
		.name_length = (uint32_t) parts[0].length,
		.family_length = (uint32_t) parts[1].length,
		.fingerprint_length = (uint32_t) parts[2].length,
		.precision_length = (uint32_t) parts[3].length,
		.device_length = (uint32_t) parts[4].length,
		.languages_length = (uint32_t) parts[5].length
	};

	put_frame(serve, HYMT_FRAME_READY, &ready, sizeof(ready), parts, 6);
}

static void
put_failure(Serve *serve, uint64_t generation, uint32_t slot, HymtFailure failure, HymtFinish finish,
			const char *text)
{
	HymtPart	message = part_of(text);
	HymtFailureFrame frame = {
		.generation = generation,
		.slot = slot,
		.failure = (uint32_t) failure,
		.finish = (uint32_t) finish,
		.message_length = (uint32_t) message.length
	};

	put_frame(serve, HYMT_FRAME_FAILURE, &frame, sizeof(frame), &message, 1);
}

static void
put_result(Serve *serve, const Pending *pending, const HymtTranslation *translation)
{
	HymtPart	text = {translation->text, translation->length};
	HymtResult	result = {
		.generation = pending->generation,
		.slot = pending->slot,
		.finish = (uint32_t) translation->finish,
		.input_tokens = (uint32_t) translation->input_tokens,
		.output_tokens = (uint32_t) translation->output_tokens,
		.text_length = (uint32_t) translation->length
	};

	memcpy(result.fingerprint, translation->fingerprint, strlen(translation->fingerprint));
	put_frame(serve, HYMT_FRAME_RESULT, &result, sizeof(result), &text, 1);
}

/*
 * What requests that want pieces have got in this step. To a worker that does not read nothing is sent: it gets more at a
 * time later, or all with the answer.
 */
static void
put_pieces(Serve *serve)
{
	for (int i = 0; i < serve->streaming_count && hymt_bytes_length(&serve->out) <= READ_BYTES; i++)
	{
		const Pending *pending = serve->streaming[i];
		HymtPart	text;
		HymtPieceFrame piece = {.generation = pending->generation, .slot = pending->slot};

		text.data = hymt_stream_take(pending->stream, &text.length);
		piece.text_length = (uint32_t) text.length;
		if (text.length > 0)
			put_frame(serve, HYMT_FRAME_PIECE, &piece, sizeof(piece), &text, 1);
	}
}

static void
put_heartbeat(Serve *serve)
{
	HymtSchedulerStats stats;
	HymtHeartbeat beat;

	serve->last_beat = now_ms();
	hymt_adapters_stats(serve->engine.loaded, &stats);
	serve->told_steps = stats.steps;
	/* To a worker that does not read, more of the same would only pile up. */
	if (hymt_bytes_length(&serve->out) > READ_BYTES)
		return;
	beat = (HymtHeartbeat)
	{
		.steps = stats.steps,.rows = stats.rows,.input_tokens = stats.input_tokens,
			.output_tokens = stats.output_tokens,.sequence_steps = stats.sequence_steps,
			.running = (uint32_t) stats.running,.waiting = (uint32_t) stats.waiting,
			.degraded_steps = stats.degraded_steps,.reused_tokens = stats.reused_tokens,
			.preemptions = stats.preemptions
	};
	put_frame(serve, HYMT_FRAME_HEARTBEAT, &beat, sizeof(beat), NULL, 0);
}

/*
 * Counters that grew are told at once when nothing is left to do: who looks at them after a job wants all, and this
 * engine may be stopped at any time.
 */
static int64_t
beat_interval(const Serve *serve, bool busy)
{
	HymtSchedulerStats stats;

	hymt_adapters_stats(serve->engine.loaded, &stats);
	return busy ? BUSY_BEAT_MS : stats.steps != serve->told_steps ? 0 : IDLE_BEAT_MS;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

/* The place of a request in the list follows from its id, so that neither is ever searched for an answer. */
static Pending *
pending_place(Serve *serve, uint64_t id)
{
	return &serve->pending[id % PENDING_MAX];
}

/* An id whose place is free; the caller has made sure that there is one. */
static uint64_t
next_id(Serve *serve)
{
	do
		serve->last_id++;
	while (pending_place(serve, serve->last_id)->id != 0);
	return serve->last_id;
}

static void
end_stream(Serve *serve, Pending *pending)
{
	int			i = 0;

	if (pending->stream == NULL)
		return;
	while (serve->streaming[i] != pending)
		i++;
	serve->streaming[i] = serve->streaming[--serve->streaming_count];
	hymt_stream_close(pending->stream);
}

static void
forget(Serve *serve, Pending *pending)
{
	end_stream(serve, pending);
	serve->pending_count--;
	serve->pending_bytes -= pending->bytes;
	memset(pending, 0, sizeof(*pending));
}

static void
take_request(Serve *serve, const HymtFrame *frame)
{
	HymtRequest request;
	HymtPart	context;
	HymtTranslationRequest wanted;
	HymtPart	text;
	HymtError	error;
	Pending    *pending;
	uint64_t	id;

	if (!hymt_decode_request(frame, &request, &context, &text))
		end_conversation("malformed request");
	id = next_id(serve);
	wanted = (HymtTranslationRequest) {
		.id = id,
		/* The decoder has checked that names end within their arrays. */
		.source_lang = request.source_lang,
		.target_lang = request.target_lang,
		.adapter = request.adapter,
		.text = {text.data, text.length},
		.context = {context.length > 0 ? context.data : NULL, context.length},
		.max_new = request.max_new_tokens > INT32_MAX ? INT32_MAX : (int) request.max_new_tokens,
		/* Without memory for it there are no pieces, but the answer. */
		.stream = (request.flags & HYMT_REQUEST_STREAM) != 0 ? hymt_stream_open(serve->engine.tokenizer) : NULL,
		.sampling = {
			.temperature = request.draw.temperature,
			.top_p = request.draw.top_p,
			.top_k = (int32_t) request.draw.top_k,
			.seed = request.draw.seed
		}
	};
	if (!hymt_engine_submit(&serve->engine, &wanted, &error))
	{
		hymt_stream_close(wanted.stream);
		put_failure(serve, request.generation, request.slot, error.failure, HYMT_FINISH_NONE, error.message);
		return;
	}
	pending = pending_place(serve, id);
	pending->id = id;
	pending->generation = request.generation;
	pending->slot = request.slot;
	pending->bytes = (uint32_t) (context.length + text.length);
	pending->stream = wanted.stream;
	if (wanted.stream != NULL)
		serve->streaming[serve->streaming_count++] = pending;
	serve->pending_count++;
	serve->pending_bytes += pending->bytes;
}

static void
take_cancel(Serve *serve, const HymtFrame *frame)
{
	HymtCancel	cancel;

	if (!hymt_decode_cancel(frame, &cancel))
		end_conversation("malformed cancellation");
	for (int i = 0; i < PENDING_MAX; i++)
	{
		Pending    *pending = &serve->pending[i];

		if (pending->id == 0 || pending->generation != cancel.generation || pending->slot != cancel.slot)
			continue;
		hymt_adapters_cancel(serve->engine.loaded, pending->id);
		forget(serve, pending);
	}
}

static bool
has_room(const Serve *serve)
{
	return serve->pending_count < PENDING_MAX && serve->pending_bytes < PENDING_BYTES_MAX &&
		hymt_bytes_length(&serve->out) < OUTPUT_MAX;
}

static void
take_frames(Serve *serve)
{
	HymtFrame	frame;

	while (has_room(serve))
	{
		/* Encoding a text takes time, so the clock is asked for each frame. */
		serve->frames_left = now_ms() >= serve->take_until;
		if (serve->frames_left)
			return;
		switch (hymt_frame_peek(&serve->in, &frame))
		{
			case HYMT_FRAME_MORE:
				return;
			case HYMT_FRAME_GARBAGE:
				end_conversation("what came from the worker is no frame");
				break;
			case HYMT_FRAME_OK:
				if (frame.type == HYMT_FRAME_REQUEST)
					take_request(serve, &frame);
				else if (frame.type == HYMT_FRAME_CANCEL)
					take_cancel(serve, &frame);
				else
					end_conversation("a frame that only an engine may send came from the worker");
				hymt_frame_consume(&serve->in, &frame);
				break;
		}
	}
}

static void
read_input(Serve *serve)
{
	for (int i = 0; i < READS_PER_TURN && has_room(serve) && !serve->frames_left; i++)
	{
		char	   *room = hymt_bytes_reserve(&serve->in, READ_BYTES);
		ssize_t		got;

		if (room == NULL)
			end_conversation("out of memory");
		got = recv(serve->fd, room, READ_BYTES, MSG_DONTWAIT);
		if (got == 0)
			end_conversation(NULL);
		if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
			return;
		if (got < 0)
			end_conversation(errno == ECONNRESET ? NULL : strerror(errno));
		serve->in.end += (size_t) got;
		take_frames(serve);
	}
}

static void
give_answers(Serve *serve)
{
	HymtTranslation translation;

	while (hymt_engine_answer(&serve->engine, &translation))
	{
		Pending    *pending = pending_place(serve, translation.id);

		switch (translation.failure)
		{
			case HYMT_FAILURE_NONE:
				if (translation.length <= HYMT_FRAME_MAX_BODY - sizeof(HymtResult))
					put_result(serve, pending, &translation);
				else
					put_failure(serve, pending->generation, pending->slot, HYMT_FAILURE_INTERNAL, translation.finish,
								"the answer is too long to be sent");
				break;
			case HYMT_FAILURE_UNFINISHED:
				put_failure(serve, pending->generation, pending->slot, translation.failure, translation.finish,
							translation.finish == HYMT_FINISH_LOOP ? "the answer repeats itself without end" :
							"the answer did not end within its limit");
				break;
			case HYMT_FAILURE_NUMERIC:
				put_failure(serve, pending->generation, pending->slot, translation.failure, translation.finish,
							"the model computed a value that is not a number");
				break;
			default:
				put_failure(serve, pending->generation, pending->slot, translation.failure, translation.finish,
							translation.message != NULL ? translation.message : "out of memory");
				break;
		}
		free(translation.text);
		forget(serve, pending);
	}
}

/* --- loop ------------------------------------------------------------------------------------------------------- */

static void
wait_for_events(Serve *serve, bool busy)
{
	int64_t		beat = serve->last_beat + beat_interval(serve, busy) - now_ms();
	struct pollfd events[2] = {
		{.fd = serve->fd, .events = POLLRDHUP},
		{.fd = busy ? serve->engine.ops->info(serve->engine.device)->event_fd : -1, .events = POLLIN}
	};
	bool		left = has_room(serve) && serve->frames_left;

	if (has_room(serve) && !left)
		events[0].events |= POLLIN;
	if (hymt_bytes_length(&serve->out) > 0)
		events[0].events |= POLLOUT;
	if (poll(events, 2, beat > 0 && !left ? (int) beat : 0) < 0 && errno != EINTR)
		end_conversation(strerror(errno));
	/* A worker that has gone, or closed its end, wants no more answers. */
	if ((events[0].revents & (POLLRDHUP | POLLHUP | POLLERR | POLLNVAL)) != 0)
		end_conversation(NULL);
	if ((events[0].revents & POLLIN) == 0)
		return;
	serve->take_until = now_ms() + TAKE_MS;
	read_input(serve);
}

static void
converse(Serve *serve)
{
	bool		busy = false;

	for (;;)
	{
		serve->take_until = now_ms() + TAKE_MS;
		take_frames(serve);		/* those that had to wait for room, or for this turn */
		busy = hymt_adapters_run(serve->engine.loaded, false);
		give_answers(serve);
		put_pieces(serve);		/* of those that have no answer yet */
		if (now_ms() - serve->last_beat >= beat_interval(serve, busy))
			put_heartbeat(serve);
		flush_output(serve);
		wait_for_events(serve, busy);
	}
}

static bool
open_socket(Serve *serve, const char *text)
{
	long		number;
	int			flags;
	int			type;
	socklen_t	length = sizeof(type);

	if (!hymt_option_number("fd", text, 0, 1 << 20, &number))
		return false;
	serve->fd = (int) number;
	flags = fcntl(serve->fd, F_GETFL);
	if (flags < 0 || getsockopt(serve->fd, SOL_SOCKET, SO_TYPE, &type, &length) != 0 || type != SOCK_STREAM)
	{
		hymt_complain("--fd: descriptor %ld is no stream socket", number);
		return false;
	}
	fcntl(serve->fd, F_SETFL, flags | O_NONBLOCK);
	fcntl(serve->fd, F_SETFD, FD_CLOEXEC);
	return true;
}

/* Threads of one engine among several, unless they are given: its share of the processors. */
static bool
share_processors(HymtDeviceOptions *device, const char *number_text, const char *count_text)
{
	long		number = 0;
	long		count = 1;

	if (count_text != NULL && !hymt_option_number("device-count", count_text, 1, 1024, &count))
		return false;
	if (number_text != NULL && !hymt_option_number("device-number", number_text, 0, count - 1, &number))
		return false;
	if (device->threads == 0 && count > 1)
	{
		device->threads = (int) ((hymt_machine_processors() + count - 1 - number) / count);
		if (device->threads < 1)
			device->threads = 1;
	}
	return true;
}

static bool
set_beside(HymtEngineOptions *options, const char *text)
{
	long		bytes;

	if (text == NULL)
		return true;
	if (!hymt_option_number("beside", text, 0, LONG_MAX, &bytes))
		return false;
	options->beside = true;
	options->others_bytes = bytes;
	return true;
}

static void
log_budget(const HymtBudget *budget)
{
	char		text[512];

	hymt_budget_describe(budget, text, sizeof(text));
	hymt_complain("serve: memory: %s", text);
}

int
hymt_cmd_serve(int argc, char **argv)
{
	static Serve serve;			/* large, and there is one */
	HymtOptions options;
	HymtEngineOptions engine_options = {0};
	HymtError	error;
	const char *fd = NULL;
	const char *number = NULL;
	const char *count = NULL;
	const char *beside = NULL;
	const char *max_adapters = NULL;
	const HymtOwnOption own[] = {
		{"fd", &fd}, {"device-number", &number}, {"device-count", &count}, {"beside", &beside},
		{"adapters", &engine_options.adapters}, {"max-adapters", &max_adapters}, {NULL, NULL}
	};
	int			code;

	if (!hymt_options_parse(&options, argc, argv, usage, own, &code))
		return code;
	if (fd == NULL)
		hymt_complain("serve: --fd N is missing");
	if (fd == NULL || !share_processors(&options.device, number, count) || !set_beside(&engine_options, beside) ||
		!hymt_option_adapters(&engine_options.max_adapters, max_adapters) || !open_socket(&serve, fd))
	{
		hymt_options_close(&options);
		return 2;
	}
	set_up_process();
	put_hello(&serve);
	flush_output(&serve);

	engine_options.model_directory = options.model;
	engine_options.family = options.family;
	engine_options.device = options.device;
	engine_options.memory = options.memory;
	engine_options.trace = options.trace;
	engine_options.progress = put_loading;
	engine_options.progress_context = &serve;
	if (!hymt_engine_open(&serve.engine, &engine_options, &error))
	{
		hymt_complain("serve: %s", error.message);
		put_refused(&serve, &error);
		flush_all(&serve);
		hymt_bytes_free(&serve.out);
		hymt_options_close(&options);
		return 1;
	}
	log_budget(&serve.engine.budget);
	put_ready(&serve);
	put_heartbeat(&serve);
	converse(&serve);
	return 0;					/* not reached: the conversation ends by exiting */
}
