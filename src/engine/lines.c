/*
 * lines.c: reading lines, keeping many of them in one continuous batch, writing their answers in order.
 *
 * Runs in the engine program, in one thread. Owns the buffer of the standard input and the answers that wait for an
 * earlier one. It waits for input and for the device at once, so that a slow writer still gets each answer as soon as
 * it is there.
 */
#include "lines.h"

#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "options.h"

#define READ_BYTES 65536

typedef struct Answer
{
	bool		ready;
	HymtBytes	text;
} Answer;

typedef struct Lines
{
	const HymtLineWork *work;
	HymtBytes	input;
	size_t		searched;		/* bytes of input known to hold no newline */
	bool		skipping;		/* inside a line that is too long */
	bool		input_ended;
	bool		failed;
	uint64_t	started;		/* number of the last line read */
	uint64_t	written;		/* number of the last line answered */
	Answer	   *answers;		/* [window]; line n has place n % window */
} Lines;

static bool
window_has_room(const Lines *lines)
{
	return lines->started - lines->written < (uint64_t) lines->work->window;
}

static Answer *
answer_of(Lines *lines, uint64_t number)
{
	return &lines->answers[number % (uint64_t) lines->work->window];
}

static void
start_line(Lines *lines, const char *line, size_t length)
{
	uint64_t	number = ++lines->started;
	Answer	   *answer = answer_of(lines, number);

	answer->ready = !lines->work->start(lines->work->context, number, line, length, &answer->text);
}

/*
 * The length of the next line in the buffer, or -1 when its end is not there yet. The last line of the input may lack
 * its newline.
 */
static ssize_t
next_line(Lines *lines)
{
	size_t		length = hymt_bytes_length(&lines->input);
	const char *newline = NULL;

	if (length > lines->searched)
	{
		const char *begin = lines->input.data + lines->input.start;

		newline = memchr(begin + lines->searched, '\n', length - lines->searched);
		if (newline != NULL)
		{
			/* the newline of a line that is too long may come in the same piece as what makes it so */
			if (newline - begin > (ssize_t) HYMT_LINE_MAX)
				lines->skipping = true;
			return newline - begin;
		}
	}
	lines->searched = length;
	if (length > HYMT_LINE_MAX)
	{
		lines->skipping = true;
		hymt_bytes_consume(&lines->input, length);
		lines->searched = length = 0;
	}
	return lines->input_ended && (length > 0 || lines->skipping) ? (ssize_t) length : -1;
}

/* Start one line that is complete in the buffer; false when there is none. */
static bool
start_buffered(Lines *lines)
{
	ssize_t		length = next_line(lines);

	if (length < 0)
		return false;
	if (lines->skipping)
		start_line(lines, NULL, 0);
	else
		start_line(lines, lines->input.data + lines->input.start, (size_t) length);
	hymt_bytes_consume(&lines->input, (size_t) length + 1);
	lines->skipping = false;
	lines->searched = 0;
	return true;
}

static void
read_input(Lines *lines)
{
	char	   *room = hymt_bytes_reserve(&lines->input, READ_BYTES);
	ssize_t		got = -1;

	if (room == NULL)
		errno = ENOMEM;
	else
		got = read(STDIN_FILENO, room, READ_BYTES);
	if (got > 0)
		lines->input.end += (size_t) got;
	else if (got == 0)
		lines->input_ended = true;
	else if (errno != EINTR && errno != EAGAIN)
	{
		hymt_complain("cannot read the standard input: %s", strerror(errno));
		lines->input_ended = true;
		lines->failed = true;
	}
}

/* Wait for input, and with `busy` for the device too; returns whether there is input. */
static bool
wait_for_input(const Lines *lines, bool busy, bool block)
{
	struct pollfd events[2] = {
		{.fd = STDIN_FILENO, .events = POLLIN},
		{.fd = busy ? lines->work->event_fd : -1, .events = POLLIN}
	};

	return poll(events, 2, block ? -1 : 0) > 0 && events[0].revents != 0;
}

/* Start all lines that are there, up to the window. */
static void
take_lines(Lines *lines)
{
	while (window_has_room(lines))
	{
		if (start_buffered(lines))
			continue;
		if (lines->input_ended || !wait_for_input(lines, false, false))
			return;
		read_input(lines);
	}
}

static void
collect_answers(Lines *lines)
{
	HymtBytes	text = {0};
	uint64_t	number;

	while (lines->work->adapters != NULL && lines->work->collect(lines->work->context, &number, &text))
	{
		Answer	   *answer = answer_of(lines, number);

		answer->text = text;
		answer->ready = true;
		memset(&text, 0, sizeof(text));
	}
}

/* Write the answers whose turn it is; false when the output is gone. */
static bool
write_answers(Lines *lines)
{
	bool		wrote = false;

	while (lines->written < lines->started && answer_of(lines, lines->written + 1)->ready)
	{
		Answer	   *answer = answer_of(lines, ++lines->written);
		size_t		length = hymt_bytes_length(&answer->text);

		if (length > 0)
			fwrite(answer->text.data + answer->text.start, 1, length, stdout);
		putchar('\n');
		hymt_bytes_free(&answer->text);
		answer->ready = false;
		wrote = true;
	}
	if (wrote && fflush(stdout) != 0)
		return false;			/* main() says so */
	return !ferror(stdout);
}

static void
answer_all(Lines *lines)
{
	bool		busy = false;

	for (;;)
	{
		bool		reading;

		take_lines(lines);
		reading = !lines->input_ended && window_has_room(lines);
		if (lines->work->adapters != NULL)
			busy = hymt_adapters_run(lines->work->adapters, !reading);
		collect_answers(lines);
		if (!write_answers(lines))
		{
			lines->failed = true;
			return;
		}
		if (lines->input_ended && hymt_bytes_length(&lines->input) == 0 && !lines->skipping &&
			lines->written == lines->started)
			return;
		if (reading && wait_for_input(lines, busy, true))
			read_input(lines);
	}
}

bool
hymt_lines_run(const HymtLineWork *work)
{
	Lines		lines = {.work = work};

	lines.answers = calloc((size_t) work->window, sizeof(Answer));
	if (lines.answers == NULL)
	{
		hymt_complain("out of memory");
		return false;
	}
	answer_all(&lines);
	for (int i = 0; i < work->window; i++)
		hymt_bytes_free(&lines.answers[i].text);
	free(lines.answers);
	hymt_bytes_free(&lines.input);
	return !lines.failed;
}
