/*
 * test_prefix.c: pages that grow, run out, and are shared by sequences that begin alike, on the device that computes only
 * a checksum (fake_device.h). Whatever is shared, copied, taken away and computed again: each answer must be that of
 * the request alone.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <cmocka.h>

#include "fake_device.h"
#include "prefix_cache.h"

/* --- the cache alone --------------------------------------------------------------------------------------------- */

static void
test_tree(void **state)
{
	HymtPrefixCache cache;
	int32_t		pages[8];
	int32_t		tokens[3][HYMT_PAGE_TOKENS];
	int32_t		matched;

	(void) state;
	for (int i = 0; i < 3; i++)
		for (int j = 0; j < HYMT_PAGE_TOKENS; j++)
			tokens[i][j] = 100 * i + j;
	tokens[1][0] = tokens[0][0];
	assert_true(hymt_prefix_init(&cache, 8, 8));
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[0], 16, &matched), -1);
	assert_true(hymt_prefix_take(&cache, 8, pages));
	assert_false(hymt_prefix_take(&cache, 1, pages));

	/* a page that fills up, and one that begins like it */
	for (int count = 1; count <= HYMT_PAGE_TOKENS; count += 5)
	{
		assert_int_equal(hymt_prefix_know(&cache, HYMT_PREFIX_ROOT(0), pages[0], tokens[0], count), pages[0]);
		assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[0], 16, &matched), pages[0]);
		assert_int_equal(matched, count);
		assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[0], 3, &matched), pages[0]);
		assert_int_equal(matched, count < 3 ? count : 3);
	}
	assert_int_equal(hymt_prefix_know(&cache, HYMT_PREFIX_ROOT(0), pages[1], tokens[1], 9), pages[1]);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[1], 16, &matched), pages[1]);
	assert_int_equal(matched, 9);
	/* another adapter, another page before: other keys and values */
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(1), tokens[0], 16, &matched), -1);
	assert_int_equal(hymt_prefix_find(&cache, pages[0], tokens[0], 16, &matched), -1);
	assert_int_equal(hymt_prefix_know(&cache, HYMT_PREFIX_ROOT(1), pages[2], tokens[0], 16), pages[2]);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(1), tokens[0], 16, &matched), pages[2]);

	/* the same computed twice: one page is enough */
	assert_int_equal(hymt_prefix_know(&cache, pages[0], pages[3], tokens[2], 16), pages[3]);
	assert_int_equal(hymt_prefix_know(&cache, pages[0], pages[4], tokens[2], 7), pages[4]);
	assert_int_equal(hymt_prefix_available(&cache), 0);
	assert_int_equal(hymt_prefix_know(&cache, pages[0], pages[4], tokens[2], 16), pages[3]);
	assert_int_equal(hymt_prefix_available(&cache), 1);
	hymt_prefix_destroy(&cache);
}

/* The least recently used go first, the end of a path before its beginning, and all after their time. */
static void
test_forgetting(void **state)
{
	HymtPrefixCache cache;
	int32_t		paths[2][2];
	int32_t		taken[4];
	int32_t		tokens[2][2 * HYMT_PAGE_TOKENS];
	int32_t		matched;

	(void) state;
	assert_true(hymt_prefix_init(&cache, 4, 4));
	for (int i = 0; i < 2; i++)
	{
		for (int j = 0; j < 2 * HYMT_PAGE_TOKENS; j++)
			tokens[i][j] = 100 * i + j;
		assert_true(hymt_prefix_take(&cache, 2, paths[i]));
		hymt_prefix_know(&cache, HYMT_PREFIX_ROOT(0), paths[i][0], tokens[i], HYMT_PAGE_TOKENS);
		hymt_prefix_know(&cache, paths[i][0], paths[i][1], tokens[i] + HYMT_PAGE_TOKENS, HYMT_PAGE_TOKENS);
	}
	hymt_prefix_release(&cache, paths[0], 2, 10);
	hymt_prefix_release(&cache, paths[1], 2, 20);
	assert_int_equal(hymt_prefix_available(&cache), 4);
	hymt_prefix_use(&cache, paths[0][0]);
	hymt_prefix_release(&cache, paths[0], 1, 30);
	assert_true(hymt_prefix_take(&cache, 2, taken));	/* the end of path 0, then that of path 1 */
	assert_int_equal(hymt_prefix_find(&cache, paths[0][0], tokens[0] + HYMT_PAGE_TOKENS, 16, &matched), -1);
	assert_int_equal(hymt_prefix_find(&cache, paths[1][0], tokens[1] + HYMT_PAGE_TOKENS, 16, &matched), -1);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[1], 32, &matched), paths[1][0]);
	hymt_prefix_expire(&cache, 20);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[1], 32, &matched), paths[1][0]);
	hymt_prefix_expire(&cache, 20.5);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[1], 32, &matched), -1);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens[0], 32, &matched), paths[0][0]);
	assert_int_equal(hymt_prefix_available(&cache), 2);
	hymt_prefix_release(&cache, taken, 2, 40);
	assert_int_equal(hymt_prefix_available(&cache), 4);
	hymt_prefix_destroy(&cache);
}

/* No more unused pages than allowed are remembered; the beginning of a path longest. */
static void
test_remembering_few(void **state)
{
	HymtPrefixCache cache;
	int32_t		path[5];
	int32_t		tokens[5 * HYMT_PAGE_TOKENS];
	int32_t		matched;

	(void) state;
	for (int i = 0; i < 5 * HYMT_PAGE_TOKENS; i++)
		tokens[i] = i;
	assert_true(hymt_prefix_init(&cache, 8, 2));
	assert_true(hymt_prefix_take(&cache, 5, path));
	for (int i = 0; i < 5; i++)
		hymt_prefix_know(&cache, i > 0 ? path[i - 1] : HYMT_PREFIX_ROOT(0), path[i], tokens + i * HYMT_PAGE_TOKENS, 16);
	hymt_prefix_release(&cache, path, 5, 1);
	assert_int_equal(cache.unused, 2);
	assert_int_equal(hymt_prefix_available(&cache), 8);
	assert_int_equal(hymt_prefix_find(&cache, HYMT_PREFIX_ROOT(0), tokens, 16, &matched), path[0]);
	assert_int_equal(hymt_prefix_find(&cache, path[0], tokens + 16, 16, &matched), path[1]);
	assert_int_equal(hymt_prefix_find(&cache, path[1], tokens + 32, 16, &matched), -1);
	hymt_prefix_destroy(&cache);
}

/* --- titles ------------------------------------------------------------------------------------------------------ */

enum { INSTRUCTION = 21, TITLE = 9, PROMPT = INSTRUCTION + TITLE };

static int32_t instruction[INSTRUCTION];

/* A prompt that begins with the instruction; titles differ in their first id. */
static HymtSequenceRequest
make_title(uint64_t id, int32_t *prompt, int32_t max_new)
{
	HymtSequenceRequest request = make_request(id, prompt, PROMPT, max_new);

	memcpy(prompt, instruction, sizeof(instruction));
	prompt[INSTRUCTION] = (int32_t) (id % (VOCAB - 1));
	return request;
}

static void
run_all(HymtScheduler *scheduler, const HymtSequenceRequest *requests, int count)
{
	HymtSequenceAnswer answer;
	int			answered = 0;

	while (hymt_scheduler_run(scheduler, true))
		;
	while (hymt_scheduler_answer(scheduler, &answer))
	{
		check_answer(&requests[answer.id], &answer);
		answered++;
	}
	assert_int_equal(answered, count);
}

static uint64_t
rows_of(HymtScheduler *scheduler)
{
	HymtSchedulerStats stats;

	hymt_scheduler_stats(scheduler, &stats);
	return stats.rows;
}

/* The second title computes its own tokens and no other, and the same title again the last one alone. */
static void
test_second_title(void **state)
{
	int32_t		prompts[2][PROMPT];
	HymtSequenceRequest requests[2];
	HymtDevice	device = fake_device(64, 64, 100, 100);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSchedulerStats stats;
	uint64_t	rows;

	(void) state;
	for (int i = 0; i < INSTRUCTION; i++)
		instruction[i] = pick(VOCAB - 1);
	requests[0] = make_title(0, prompts[0], 5);
	requests[1] = make_title(1, prompts[1], 5);
	submit(scheduler, &requests[0]);
	run_all(scheduler, requests, 1);
	rows = rows_of(scheduler);
	assert_int_equal(rows, PROMPT + 4);
	submit(scheduler, &requests[1]);
	run_all(scheduler, requests, 1);
	assert_int_equal(rows_of(scheduler) - rows, TITLE + 4);
	rows = rows_of(scheduler);
	submit(scheduler, &requests[0]);
	run_all(scheduler, requests, 1);
	assert_int_equal(rows_of(scheduler) - rows, 1 + 4);
	hymt_scheduler_stats(scheduler, &stats);
	assert_int_equal(stats.input_tokens, 3 * PROMPT);
	assert_int_equal(stats.reused_tokens, INSTRUCTION + PROMPT - 1);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* Titles that arrive together: the instruction is computed once, whatever the rows that a step has room for. */
static void
test_titles_together(void **state)
{
	enum { COUNT = 64 };
	static int32_t prompts[COUNT][PROMPT];
	HymtSequenceRequest requests[COUNT];
	static const int32_t room[] = {5, 40, 256};

	(void) state;
	for (int round = 0; round < 3; round++)
	{
		HymtDevice	device = fake_device(room[round], room[round], 400, 100);
		HymtScheduler *scheduler = open_scheduler(&device, NULL);

		for (int i = 0; i < COUNT; i++)
		{
			requests[i] = make_title((uint64_t) i, prompts[i], 3);
			submit(scheduler, &requests[i]);
		}
		run_all(scheduler, requests, COUNT);
		assert_int_equal(rows_of(scheduler), INSTRUCTION + COUNT * (TITLE + 2));
		hymt_scheduler_close(scheduler);
		fake_free(&device);
	}
}

static double test_time;

static double
test_clock(void)
{
	return test_time;
}

static void
test_time_to_live(void **state)
{
	int32_t		prompts[3][PROMPT];
	HymtSequenceRequest requests[3];
	HymtDevice	device = fake_device(64, 64, 100, 100);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	uint64_t	rows;

	(void) state;
	test_time = 1000;
	hymt_scheduler_set_clock(scheduler, test_clock);
	for (int i = 0; i < 3; i++)
	{
		requests[i] = make_title((uint64_t) i, prompts[i], 0);
		rows = rows_of(scheduler);
		submit(scheduler, &requests[i]);
		run_all(scheduler, requests, 1);
		assert_int_equal(rows_of(scheduler) - rows, i == 1 ? TITLE : PROMPT);
		test_time += i == 0 ? HYMT_PREFIX_TTL - 1 : HYMT_PREFIX_TTL + 1;
	}
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* --- pages that run out ------------------------------------------------------------------------------------------ */

/* Sequences that all grow to the whole context: the youngest make room, and the oldest is never disturbed. */
static void
test_preemption(void **state)
{
	enum { COUNT = 4, LONG = 100 };
	static int32_t prompts[COUNT][8];
	HymtSequenceRequest requests[COUNT];
	HymtDevice	device = fake_device(64, 64, 8, 128);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	HymtSchedulerStats stats;
	uint64_t	expected = 0;
	int			steps = 0;

	(void) state;
	for (int i = 0; i < COUNT; i++)
	{
		requests[i] = make_request((uint64_t) i, prompts[i], 8, LONG);
		requests[i].repetition_penalty = i % 2 ? 1.0f : 1.5f;
		submit(scheduler, &requests[i]);
	}
	assert_true(hymt_scheduler_run(scheduler, true));
	assert_int_equal(device.sequence_count, COUNT);	/* nothing is reserved */
	while (hymt_scheduler_run(scheduler, true))
	{
		steps++;
		while (hymt_scheduler_answer(scheduler, &answer))
		{
			if (answer.id == 0)
				assert_int_equal(steps, LONG);
			assert_int_equal(answer.id, expected++);
			check_answer(&requests[answer.id], &answer);
		}
	}
	while (hymt_scheduler_answer(scheduler, &answer))
		check_answer(&requests[expected++], &answer);
	assert_int_equal(expected, COUNT);
	hymt_scheduler_stats(scheduler, &stats);
	assert_true(stats.preemptions >= 3);
	assert_int_equal(stats.output_tokens, COUNT * LONG);
	assert_int_equal(stats.input_tokens, COUNT * 8);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* Decoding rows alone take too long: they take turns, and none is left out for long. */
static void
test_decoding_turns(void **state)
{
	enum { COUNT = 60 };
	static int32_t prompts[COUNT][1];
	HymtSequenceRequest requests[COUNT];
	HymtDevice	device = fake_device(64, 64, 200, 100);
	HymtScheduler *scheduler = open_scheduler(&device, NULL);
	HymtSequenceAnswer answer;
	int			answered = 0;
	int32_t		widest = 0;

	(void) state;
	device.seconds = 1;
	for (int i = 0; i < COUNT; i++)
	{
		requests[i] = make_request((uint64_t) i, prompts[i], 1, 30);
		submit(scheduler, &requests[i]);
	}
	for (int step = 0; hymt_scheduler_run(scheduler, true); step++)
	{
		assert_true(step < 200);
		if (step > 8 && device.row_count > widest)
			widest = device.row_count;
		while (hymt_scheduler_answer(scheduler, &answer))
		{
			check_answer(&requests[answer.id], &answer);
			answered++;
			assert_true(step > 80);	/* all are about as far as the first to end */

		}
	}
	while (hymt_scheduler_answer(scheduler, &answer))
		answered++;
	assert_int_equal(answered, COUNT);
	assert_int_equal(widest, 16);
	hymt_scheduler_close(scheduler);
	fake_free(&device);
}

/* --- everything at once ------------------------------------------------------------------------------------------ */

/* Prompts that share beginnings of all lengths, of a few kinds. */
static void
make_mixed(HymtSequenceRequest *request, uint64_t id, int32_t *prompt)
{
	int32_t		count = 1 + pick(70);
	int32_t		shared = pick(count + 1);

	*request = make_request(id, prompt, count, pick(60));
	for (int32_t i = 0, kind = pick(3); i < shared; i++)
		prompt[i] = (i * 7 + kind * (i > 20)) % (VOCAB - 1);
	request->stop_count = pick(3);
	request->repetition_penalty = pick(2) ? 1.0f : 1.5f;
	request->want_argmax = pick(5) == 0;
	request->want_last_logits = pick(3) == 0;
	if (pick(3) == 0)
		request->sampling = (HymtSampling) {.temperature = 0.7f, .top_k = pick(4), .seed = (uint64_t) pick(5)};
}

/*
 * Arrivals at any time, cancellations, slow and quick steps, few pages, rows and samples, time that passes: every answer as
 * if the request were alone.
 */
static void
test_mixed(void **state)
{
	enum { COUNT = 150 };
	static int32_t prompts[COUNT][80];
	static HymtSequenceRequest requests[COUNT];
	static const int32_t rows[] = {1, 3, 17, 64, 256};
	static const int32_t samples[] = {1, 2, 9, 256, 256};
	HymtSchedulerStats sum = {0};

	(void) state;
	for (int round = 0; round < 20; round++)
	{
		HymtDevice	device = fake_device(rows[round % 5], samples[round % 5], 9 + pick(12), 140);
		HymtScheduler *scheduler = open_scheduler(&device, NULL);
		HymtSequenceAnswer answer;
		HymtSchedulerStats stats;
		bool		done[COUNT] = {false};
		int			submitted = 0;
		int			left = COUNT;

		hymt_scheduler_set_clock(scheduler, test_clock);
		for (int i = 0; i < COUNT; i++)
			make_mixed(&requests[i], (uint64_t) i, prompts[i]);
		while (left > 0)
		{
			test_time += pick(100) == 0 ? HYMT_PREFIX_TTL : 0.01;
			device.seconds = pick(4) == 0 ? 1 : 0.01;
			device.delay = pick(3);
			for (int i = pick(4) == 0 ? pick(40) : 0; i > 0 && submitted < COUNT; i--)
				submit(scheduler, &requests[submitted++]);
			if (pick(20) == 0 && submitted > 0)
			{
				int			victim = pick(submitted);

				hymt_scheduler_cancel(scheduler, (uint64_t) victim);
				left -= done[victim] ? 0 : 1;
				done[victim] = true;
			}
			hymt_scheduler_run(scheduler, pick(2) == 0);
			while (hymt_scheduler_answer(scheduler, &answer))
			{
				assert_false(done[answer.id]);
				check_answer(&requests[answer.id], &answer);
				done[answer.id] = true;
				left--;
			}
		}
		while (hymt_scheduler_run(scheduler, true))
			;
		hymt_scheduler_stats(scheduler, &stats);
		assert_int_equal(stats.running + stats.waiting, 0);
		sum.preemptions += stats.preemptions;
		sum.reused_tokens += stats.reused_tokens;
		hymt_scheduler_close(scheduler);
		fake_free(&device);
	}
	assert_true(sum.preemptions > 100);
	assert_true(sum.reused_tokens > 10000);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_tree),
		cmocka_unit_test(test_forgetting),
		cmocka_unit_test(test_remembering_few),
		cmocka_unit_test(test_second_title),
		cmocka_unit_test(test_titles_together),
		cmocka_unit_test(test_time_to_live),
		cmocka_unit_test(test_preemption),
		cmocka_unit_test(test_decoding_turns),
		cmocka_unit_test(test_mixed),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
