/*
 * test_scheduler.c: continuous batching, paging, cancellation and refilling, proved on a device that computes nothing
 * but a checksum (fake_device.h).
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "fake_device.h"
#include "kv_pages.h"
#include "scheduler.h"

/* --- tests ------------------------------------------------------------------------------------------------------ */

/* Many requests of all kinds in one batch, with few rows, samples and pages: every answer as if it were alone. */
static void
test_batch_equals_alone(void **state)
{
	enum { COUNT = 60 };
	static int32_t prompts[COUNT][80];
	HymtSequenceRequest requests[COUNT];
	static const int32_t rows[] = {1, 3, 16, 256};
	static const int32_t samples[] = {1, 2, 5, 256};

	(void) state;
	for (int round = 0; round < 4; round++)
	{
		HymtDevice	device = fake_device(rows[round], samples[round], 20, 160);
		HymtScheduler *scheduler = open_scheduler(&device, NULL);
		HymtSequenceAnswer answer;
		HymtSchedulerStats stats;
		int			answered = 0;
		uint64_t	input_tokens = 0;
		uint64_t	output_tokens = 0;

		device.delay = round;
		for (int i = 0; i < COUNT; i++)
		{
			requests[i] = make_request((uint64_t) i, prompts[i], 1 + pick(75), pick(60));
			requests[i].stop_count = pick(3);
			requests[i].repetition_penalty = pick(2) ? 1.0f : 1.5f;
			requests[i].want_argmax = pick(3) == 0;
			requests[i].want_last_logits = pick(3) == 0;
			input_tokens += (uint64_t) requests[i].prompt_count;
		}
		for (int i = 0; i < COUNT / 2; i++)
			submit(scheduler, &requests[i]);
		for (int step = 0; answered < COUNT; step++)
		{
			bool		more = hymt_scheduler_run(scheduler, step % 2 == 0);

			if (step < COUNT / 2)
				submit(scheduler, &requests[COUNT / 2 + step]);
			while (hymt_scheduler_answer(scheduler, &answer))
			{
				check_answer(&requests[answer.id], &answer);
				answered++;
				output_tokens += (uint64_t) answer.token_count;
			}
			assert_true(more || answered == COUNT || step < COUNT / 2);
		}
		hymt_scheduler_stats(scheduler, &stats);
		assert_int_equal(stats.running, 0);
		assert_int_equal(stats.waiting, 0);
		assert_int_equal(stats.steps, device.plans);
		assert_int_equal(stats.input_tokens, input_tokens);
		assert_int_equal(stats.output_tokens, output_tokens);
		hymt_scheduler_close(scheduler);
		fake_free(&device);
	}
}

/* A request that arrives while eight decode has its prompt rows in the next step; the trace says the same. */
static void
test_joins_next_step(void **state)
{
	int32_t		prompts[9][8];
	HymtDevice	device = fake_device(64, 64, 100, 100);
	char	   *text = NULL;
	size_t		length = 0;
	FILE	   *trace = open_memstream(&text, &length);
	HymtScheduler *scheduler = open_scheduler(&device, trace);
	HymtSequenceRequest request;

	(void) state;
	for (int i = 0; i < 8; i++)
	{
		request = make_request((uint64_t) i, prompts[i], 3, 20);
		submit(scheduler, &request);
	}
	assert_true(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.row_count, 8 * 3);
	for (int i = 0; i < 3; i++)
	{
		assert_true(hymt_scheduler_run(scheduler, true));
		assert_int_equal(device.row_count, 8);
		assert_int_equal(device.prompt_rows, 0);
	}
	request = make_request(8, prompts[8], 5, 4);
	submit(scheduler, &request);
	assert_true(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.row_count, 8 + 5);
	assert_int_equal(device.sequence_count, 9);
	assert_int_equal(device.prompt_rows, 5);
	assert_true(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.row_count, 9);

	{
		char		expected[128];
		const char *line = strstr(text, "{\"step\":5,");

		assert_non_null(line);
		snprintf(expected, sizeof(expected), "{\"id\":8,\"token\":%d,\"pos\":0},{\"id\":8,\"token\":%d,\"pos\":1},",
				 (int) prompts[8][0], (int) prompts[8][1]);
		assert_non_null(strstr(line, expected));
		snprintf(expected, sizeof(expected), "{\"id\":8,\"token\":%d,\"pos\":4,\"sample\":true}],\"seconds\":0}\n",
				 (int) prompts[8][4]);
		assert_non_null(strstr(line, expected));
	}
	while (hymt_scheduler_run(scheduler, true))
		;
	hymt_scheduler_close(scheduler);
	fclose(trace);
	free(text);
	fake_free(&device);
}

/* While requests wait, a finished sequence is replaced in the step after: no step runs with a free place. */
static void
test_refill(void **state)
{
	enum { PLACES = 8, COUNT = 40 };
	static int32_t prompts[COUNT][4];
	HymtSequenceRequest requests[COUNT];
	HymtDevice	device = fake_device(PLACES, PLACES, 100, 100);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	int			finished = 0;

	(void) state;
	for (int i = 0; i < COUNT; i++)
	{
		requests[i] = make_request((uint64_t) i, prompts[i], 1, 1 + pick(9));
		submit(scheduler, &requests[i]);
	}
	while (hymt_scheduler_run(scheduler, true))
	{
		while (hymt_scheduler_answer(scheduler, &answer))
		{
			check_answer(&requests[answer.id], &answer);
			finished++;
		}
		assert_int_equal(device.sequence_count, COUNT - finished < PLACES ? COUNT - finished : PLACES);
		assert_int_equal(device.row_count, device.sequence_count);
	}
	while (hymt_scheduler_answer(scheduler, &answer))
		finished++;
	assert_int_equal(finished, COUNT);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* A long prompt is cut into chunks beside the decoding rows, which never lose their place. */
static void
test_chunks(void **state)
{
	int32_t		prompts[5][100];
	HymtSequenceRequest requests[5];
	HymtDevice	device = fake_device(16, 16, 40, 200);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	int32_t		rows = 0;

	(void) state;
	for (int i = 0; i < 4; i++)
	{
		requests[i] = make_request((uint64_t) i, prompts[i], 2, 50);
		submit(scheduler, &requests[i]);
	}
	assert_true(hymt_scheduler_run(scheduler, true));
	requests[4] = make_request(4, prompts[4], 100, 5);
	submit(scheduler, &requests[4]);
	while (rows < 100)
	{
		assert_true(hymt_scheduler_run(scheduler, true));
		assert_int_equal(device.sequence_count, 5);
		assert_int_equal(device.row_count, 4 + (100 - rows < 12 ? 100 - rows : 12));
		rows += device.row_count - 4;
	}
	while (hymt_scheduler_run(scheduler, true))
		while (hymt_scheduler_answer(scheduler, &answer))
			check_answer(&requests[answer.id], &answer);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* Without pages for the first in the queue nobody overtakes it, and it runs as soon as enough are free. */
static void
test_pages_in_order(void **state)
{
	int32_t		prompts[4][64];
	HymtSequenceRequest requests[4];
	HymtDevice	device = fake_device(64, 64, 4, 64);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	HymtSchedulerStats stats;
	uint64_t	order = 0;

	(void) state;
	requests[0] = make_request(0, prompts[0], 17, 10);	/* 2 pages */
	requests[1] = make_request(1, prompts[1], 48, 1);	/* 3 pages: 48 positions, the answer needs none */
	requests[2] = make_request(2, prompts[2], 1, 1);	/* 1 page */
	requests[3] = make_request(3, prompts[3], 60, 4);	/* all 4 pages */
	for (int i = 0; i < 4; i++)
		submit(scheduler, &requests[i]);
	assert_true(hymt_scheduler_run(scheduler, true));
	hymt_scheduler_stats(scheduler, &stats);
	assert_int_equal(stats.running, 1);
	assert_int_equal(stats.waiting, 3);
	while (hymt_scheduler_run(scheduler, true))
		;
	while (hymt_scheduler_answer(scheduler, &answer))
	{
		check_answer(&requests[answer.id], &answer);
		assert_int_equal(answer.id, order++);
	}
	assert_int_equal(order, 4);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* Cancelled while waiting, while its step is under way, after its end; pages come back, others are not disturbed. */
static void
test_cancel(void **state)
{
	int32_t		prompts[6][64];
	HymtSequenceRequest requests[6];
	HymtDevice	device = fake_device(16, 16, 4, 64);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	int			answers = 0;

	(void) state;
	device.delay = 1;
	for (int i = 0; i < 5; i++)
	{
		requests[i] = make_request((uint64_t) i, prompts[i], 3, 10 + i);
		requests[i].repetition_penalty = 1.2f;
		submit(scheduler, &requests[i]);
	}
	assert_true(hymt_scheduler_run(scheduler, true));	/* 0 … 3 hold the four pages */
	hymt_scheduler_cancel(scheduler, 4);	/* waits */
	hymt_scheduler_cancel(scheduler, 1);	/* its step is under way */
	hymt_scheduler_cancel(scheduler, 77);	/* unknown */
	assert_true(hymt_scheduler_run(scheduler, false));	/* not done yet: the plan must stay as it is */
	assert_int_equal(device.sequence_count, 4);
	assert_true(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.sequence_count, 3);
	hymt_scheduler_cancel(scheduler, 3);
	while (hymt_scheduler_run(scheduler, true))
		;
	hymt_scheduler_cancel(scheduler, 2);	/* finished, not fetched */
	while (hymt_scheduler_answer(scheduler, &answer))
	{
		assert_int_equal(answer.id, 0);
		check_answer(&requests[0], &answer);
		answers++;
	}
	assert_int_equal(answers, 1);

	requests[5] = make_request(5, prompts[5], 60, 4);	/* needs every page */
	submit(scheduler, &requests[5]);
	while (hymt_scheduler_run(scheduler, true))
		;
	assert_true(hymt_scheduler_answer(scheduler, &answer));
	check_answer(&requests[5], &answer);
	assert_false(hymt_scheduler_run(scheduler, true));
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* The tokens that a request was told of as they came. */
typedef struct Told
{
	int32_t		tokens[64];
	int32_t		count;
} Told;

static void
hear(void *context, int32_t token)
{
	Told	   *told = context;

	assert_in_range(told->count, 0, 63);
	told->tokens[told->count++] = token;
}

/* Each token is told once, in order and in its step, also where pages run out; after a cancellation none is. */
static void
test_tokens_as_they_come(void **state)
{
	enum { COUNT = 8 };
	static int32_t prompts[COUNT][20];
	Told		told[COUNT] = {0};
	HymtSequenceRequest requests[COUNT];
	HymtDevice	device = fake_device(16, 16, 8, 64);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	HymtSchedulerStats stats;
	int32_t		silent = 0;
	int			answers = 0;

	(void) state;
	for (int i = 0; i < COUNT; i++)
	{
		requests[i] = make_request((uint64_t) i, prompts[i], 10 + i, 30);
		requests[i].token_taken = hear;
		requests[i].token_context = &told[i];
		submit(scheduler, &requests[i]);
	}
	for (int step = 0; hymt_scheduler_run(scheduler, true); step++)
	{
		int32_t		sum = 0;

		for (int i = 0; i < COUNT; i++)
			sum += told[i].count;
		hymt_scheduler_stats(scheduler, &stats);
		/* A cancelled one takes its last token silently. */
		assert_in_range((int32_t) stats.output_tokens - sum, 0, 1);
		if (step != 4)
			continue;
		assert_true(told[1].count > 1);
		hymt_scheduler_cancel(scheduler, 1);
		silent = told[1].count;
	}
	assert_true(stats.preemptions > 0);
	assert_int_equal(told[1].count, silent);
	for (; hymt_scheduler_answer(scheduler, &answer); answers++)
	{
		check_answer(&requests[answer.id], &answer);
		assert_int_equal(told[answer.id].count, answer.token_count);
		assert_memory_equal(told[answer.id].tokens, answer.tokens, sizeof(int32_t) * (size_t) answer.token_count);
	}
	assert_int_equal(answers, COUNT - 1);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* NaN among the logits fails its own request only, wherever in the prompt it was looked for. */
static void
test_nan(void **state)
{
	int32_t		prompts[4][8];
	HymtSequenceRequest requests[4];
	HymtDevice	device = fake_device(16, 16, 20, 64);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	int			failed = 0;

	(void) state;
	for (int i = 0; i < 4; i++)
		requests[i] = make_request((uint64_t) i, prompts[i], 6, 5);
	prompts[1][5] = NAN_TOKEN;
	prompts[2][2] = NAN_TOKEN;
	requests[2].want_argmax = true;
	prompts[3][5] = NAN_TOKEN;
	requests[3].max_new = 0;
	requests[3].want_argmax = true;
	for (int i = 0; i < 4; i++)
		submit(scheduler, &requests[i]);
	while (hymt_scheduler_run(scheduler, true))
		;
	while (hymt_scheduler_answer(scheduler, &answer))
	{
		if (answer.id == 0)
			check_answer(&requests[0], &answer);
		else
		{
			assert_int_equal(answer.failure, HYMT_FAILURE_NUMERIC);
			failed++;
		}
	}
	assert_int_equal(failed, 3);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

static void
refuse(HymtScheduler *scheduler, const HymtSequenceRequest *request, HymtFailure failure)
{
	HymtError	error = {0};

	assert_false(hymt_scheduler_submit(scheduler, request, &error));
	assert_int_equal(error.failure, failure);
	assert_true(error.message[0] != '\0');
}

static void
test_bad_requests(void **state)
{
	int32_t		prompt[64];
	HymtDevice	device = fake_device(16, 16, 4, 1000);	/* pages for 64 tokens bound the context, too */
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceRequest request = make_request(1, prompt, 60, 5);

	(void) state;
	refuse(scheduler, &request, HYMT_FAILURE_TOO_LONG);
	request.max_new = INT32_MAX;
	refuse(scheduler, &request, HYMT_FAILURE_TOO_LONG);
	request.max_new = -1;
	refuse(scheduler, &request, HYMT_FAILURE_BAD_REQUEST);
	request.max_new = 4;
	request.prompt_count = 0;
	refuse(scheduler, &request, HYMT_FAILURE_BAD_REQUEST);
	request.prompt_count = 60;
	request.repetition_penalty = 0;
	refuse(scheduler, &request, HYMT_FAILURE_BAD_REQUEST);
	request.repetition_penalty = NAN;
	refuse(scheduler, &request, HYMT_FAILURE_BAD_REQUEST);
	request.repetition_penalty = 1;
	prompt[59] = VOCAB;
	refuse(scheduler, &request, HYMT_FAILURE_BAD_REQUEST);
	prompt[59] = -1;
	refuse(scheduler, &request, HYMT_FAILURE_BAD_REQUEST);
	assert_false(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.plans, 0);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* Slow steps get fewer prompt rows, never fewer decoding ones; quick steps get them back. */
static void
test_slow_device(void **state)
{
	static int32_t prompt[900];
	HymtDevice	device = fake_device(128, 128, 200, 1000);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceRequest request = make_request(1, prompt, 900, 1);
	static const int32_t slow[] = {32, 16, 16, 16};
	static const int32_t quick[] = {16, 32, 64, 128, 128};

	(void) state;
	device.seconds = 1;
	submit(scheduler, &request);
	for (int i = 0; i < 4; i++)
	{
		assert_true(hymt_scheduler_run(scheduler, true));
		assert_int_equal(device.row_count, slow[i]);
	}
	assert_true(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.row_count, quick[0]);
	device.seconds = 0.1;		/* of the step just submitted, and of those after it */
	for (int i = 1; i < 5; i++)
	{
		assert_true(hymt_scheduler_run(scheduler, true));
		assert_int_equal(device.row_count, quick[i]);
	}
	hymt_scheduler_close(scheduler);	/* with a step under way */
	fake_free(&device);
}

/*
 * A device so slow that a step has 16 prompt rows: short requests that come one after the other are not kept waiting by
 * a long prompt, nor is that by them, nor a second long one for ever.
 */
static void
test_shares(void **state)
{
	enum { SHORT = 8, LONG = 400, COUNT = 300 };
	static int32_t long_prompts[2][LONG];
	static int32_t short_prompts[COUNT][SHORT];
	HymtDevice	device = fake_device(128, 128, 400, 1000);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceRequest requests[2];
	HymtSequenceAnswer answer;
	int			ends[2] = {0, 0};	/* steps after which the long ones have ended */
	int			starts[COUNT];
	int			answered = 0;

	(void) state;
	device.seconds = 1;
	for (int i = 0; i < 2; i++)
	{
		requests[i] = make_request((uint64_t) i, long_prompts[i], LONG, 1);
		submit(scheduler, &requests[i]);
	}
	for (int i = 0; i < 4; i++)
		assert_true(hymt_scheduler_run(scheduler, true));	/* at last 16 rows */
	for (int step = 0; answered < COUNT + 2; step++)
	{
		if (step < COUNT)
		{
			HymtSequenceRequest request = make_request((uint64_t) (2 + step), short_prompts[step], SHORT, 1);

			starts[step] = step;
			submit(scheduler, &request);
		}
		assert_true(step < 2 * COUNT);
		hymt_scheduler_run(scheduler, true);
		while (hymt_scheduler_answer(scheduler, &answer))
		{
			answered++;
			if (answer.id < 2)
			{
				check_answer(&requests[answer.id], &answer);
				ends[answer.id] = step;
			}
			else
				assert_true(step - starts[answer.id - 2] <= 4);
		}
	}
	/* however many short ones come, the older long one gets 8 rows a step */
	assert_true(ends[0] <= LONG / 8 + 2);
	assert_true(ends[1] <= ends[0] + LONG / 8 + 2);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

static void
test_page_allocator(void **state)
{
	HymtPages	pages;
	int32_t		taken[3][4];

	(void) state;
	assert_true(hymt_pages_init(&pages, 8));
	assert_true(hymt_pages_take(&pages, 4, taken[0]));
	assert_true(hymt_pages_take(&pages, 3, taken[1]));
	assert_false(hymt_pages_take(&pages, 2, taken[2]));
	assert_int_equal(pages.free_count, 1);
	for (int i = 0; i < 4; i++)
		assert_int_equal(taken[0][i], i);
	hymt_pages_give_back(&pages, taken[0], 4);
	assert_true(hymt_pages_take(&pages, 4, taken[2]));
	assert_memory_equal(taken[0], taken[2], sizeof(taken[0]));
	hymt_pages_destroy(&pages);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_batch_equals_alone),
		cmocka_unit_test(test_joins_next_step),
		cmocka_unit_test(test_refill),
		cmocka_unit_test(test_chunks),
		cmocka_unit_test(test_pages_in_order),
		cmocka_unit_test(test_cancel),
		cmocka_unit_test(test_tokens_as_they_come),
		cmocka_unit_test(test_nan),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_slow_device),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_page_allocator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
