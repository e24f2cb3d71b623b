/*
 * test_scheduler.c: continuous batching, paging, cancellation and refilling, proved on a device that computes nothing
 * but a checksum.
 *
 * The fake device keeps one token per KV position, in pages, as a real one keeps keys and values. The token it answers
 * with is a checksum over everything a row may attend to, read through the sequence's pages. So an answer is right only
 * if every position was written once, into the right page, in order, and no page was lent twice at a time. The expected
 * answers come from the same checksum over a plain array.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kv_pages.h"
#include "scheduler.h"

#define VOCAB 97
#define STOP 5
#define NAN_TOKEN 96			/* a row with this token has a NaN among its logits */

struct HymtDevice
{
	HymtDeviceInfo info;
	int32_t    *kv;				/* [page_count][HYMT_PAGE_TOKENS] */
	const HymtPlan *plan;		/* under way */
	HymtPlan	copy;			/* what it was when submitted */
	int			delay;			/* polls without wait that find nothing */
	int			delay_left;
	double		seconds;		/* of each step */
	int32_t    *tokens;
	float	   *logits;
	/* what the last plan was, for the tests */
	int32_t		row_count;
	int32_t		sequence_count;
	int32_t		prompt_rows;	/* rows of sequences with more than one row, or at position 0 */
	int64_t		plans;
};

static uint32_t
mix(uint32_t hash, int32_t value)
{
	hash ^= (uint32_t) value + 0x9e3779b9u + (hash << 6) + (hash >> 2);
	return hash * 2654435761u;
}

static int32_t
token_of(uint32_t hash)
{
	/* Never NAN_TOKEN, so that only prompts bring NaN. */
	return (int32_t) ((hash >> 7) % (VOCAB - 1));
}

/* Logits whose maximum is the checksum's token, unless the tests' penalty pushes it below the runner-up. */
static void
logits_of(uint32_t hash, float *logits)
{
	int32_t		best = token_of(hash);

	for (int i = 0; i < VOCAB; i++)
		logits[i] = (float) ((hash >> (i % 13)) % 64) / 100;
	logits[best] = 1;
	logits[(best + 1) % (VOCAB - 1)] = 0.75f;
}

static int32_t
best_of(const float *logits, float penalty, const int32_t *seen, int32_t seen_count)
{
	int32_t		best = -1;
	float		best_value = 0;

	for (int i = 0; i < VOCAB; i++)
	{
		float		value = logits[i];

		for (int32_t j = 0; j < seen_count && penalty != 1; j++)
			if (seen[j] == i)
			{
				value = value > 0 ? value / penalty : value * penalty;
				break;
			}
		if (best < 0 || value > best_value)
		{
			best = i;
			best_value = value;
		}
	}
	return best;
}

static void
check_plan(const struct HymtDevice *device, const HymtPlan *plan)
{
	bool	   *used = calloc((size_t) device->info.page_count, sizeof(bool));
	int32_t		sample_row = -1;

	assert_in_range(plan->row_count, 1, device->info.max_rows);
	assert_in_range(plan->sample_count, 0, device->info.max_samples);
	for (int32_t i = 0; i < plan->sequence_count; i++)
		for (int32_t j = 0; j < plan->sequences[i].page_count; j++)
		{
			int32_t		page = plan->sequences[i].pages[j];

			assert_in_range(page, 0, device->info.page_count - 1);
			assert_false(used[page]);
			used[page] = true;
		}
	for (int32_t i = 0; i < plan->row_count; i++)
	{
		const HymtRow *row = &plan->rows[i];

		assert_in_range(row->token, 0, VOCAB - 1);
		assert_in_range(row->sequence, 0, plan->sequence_count - 1);
		assert_true(row->position < plan->sequences[row->sequence].page_count * HYMT_PAGE_TOKENS);
		if (i > 0 && row->sequence == plan->rows[i - 1].sequence)
			assert_int_equal(row->position, plan->rows[i - 1].position + 1);
		else
			assert_int_equal(row->sequence, i > 0 ? plan->rows[i - 1].sequence + 1 : 0);
	}
	for (int32_t i = 0; i < plan->sample_count; i++)
	{
		assert_true(plan->samples[i].row > sample_row);
		sample_row = plan->samples[i].row;
		for (int32_t j = 0; j < plan->samples[i].seen_count; j++)
			for (int32_t k = 0; k < j; k++)
				assert_int_not_equal(plan->samples[i].seen[j], plan->samples[i].seen[k]);
	}
	free(used);
}

static void *
copy_of(const void *data, size_t size)
{
	void	   *copy = malloc(size + 1);

	memcpy(copy, data, size);
	return copy;
}

static void
fake_submit(HymtDevice *device, const HymtPlan *plan)
{
	assert_null(device->plan);
	check_plan(device, plan);
	device->plan = plan;
	device->copy = *plan;
	device->copy.rows = copy_of(plan->rows, sizeof(HymtRow) * (size_t) plan->row_count);
	device->copy.samples = copy_of(plan->samples, sizeof(HymtSample) * (size_t) plan->sample_count);
	device->delay_left = device->delay;
	device->row_count = plan->row_count;
	device->sequence_count = plan->sequence_count;
	device->prompt_rows = 0;
	for (int32_t i = 0; i < plan->row_count; i++)
		if (plan->rows[i].position == 0 || (i > 0 && plan->rows[i].sequence == plan->rows[i - 1].sequence))
			device->prompt_rows++;
	device->plans++;
}

static uint32_t
attend(HymtDevice *device, const HymtPlan *plan, const HymtRow *row)
{
	uint32_t	hash = 1;

	for (int32_t p = 0; p <= row->position; p++)
	{
		int32_t		page = plan->sequences[row->sequence].pages[p / HYMT_PAGE_TOKENS];

		hash = mix(hash, device->kv[page * HYMT_PAGE_TOKENS + p % HYMT_PAGE_TOKENS]);
	}
	return hash;
}

static bool
fake_poll(HymtDevice *device, bool wait, HymtStepResult *result)
{
	const HymtPlan *plan = device->plan;
	int32_t		sample = 0;
	float		logits[VOCAB];

	assert_non_null(plan);
	if (!wait && device->delay_left-- > 0)
		return false;
	/* Nobody may have touched the plan since it was submitted. */
	assert_memory_equal(plan->rows, device->copy.rows, sizeof(HymtRow) * (size_t) device->copy.row_count);
	assert_memory_equal(plan->samples, device->copy.samples, sizeof(HymtSample) * (size_t) device->copy.sample_count);
	memset(result, 0, sizeof(*result));
	for (int32_t i = 0; i < plan->row_count; i++)
	{
		const HymtRow *row = &plan->rows[i];
		const HymtPlanSequence *sequence = &plan->sequences[row->sequence];
		int32_t		page = sequence->pages[row->position / HYMT_PAGE_TOKENS];

		device->kv[page * HYMT_PAGE_TOKENS + row->position % HYMT_PAGE_TOKENS] = row->token;
		if (sample >= plan->sample_count || plan->samples[sample].row != i)
			continue;
		logits_of(attend(device, plan, row), logits);
		if (row->token == NAN_TOKEN)
			logits[3] = NAN;
		device->tokens[sample] = row->token == NAN_TOKEN ? HYMT_TOKEN_NAN :
			best_of(logits, plan->samples[sample].penalty, plan->samples[sample].seen,
					plan->samples[sample].seen_count);
		if ((plan->samples[sample].flags & HYMT_SAMPLE_LOGITS) != 0)
			memcpy(device->logits + VOCAB * result->logit_rows++, logits, sizeof(logits));
		sample++;
	}
	assert_int_equal(sample, plan->sample_count);
	result->step = plan->step;
	result->tokens = device->tokens;
	result->logits = device->logits;
	result->seconds = device->seconds;
	free(device->copy.rows);
	free(device->copy.samples);
	device->plan = NULL;
	return true;
}

static const HymtDeviceInfo *
fake_info(const HymtDevice *device)
{
	return &device->info;
}

static const HymtDeviceOps fake_ops = {.info = fake_info, .submit = fake_submit, .poll = fake_poll};

static HymtDevice
fake_device(int32_t max_rows, int32_t max_samples, int32_t page_count, int32_t max_context)
{
	HymtDevice	device = {0};

	device.info = (HymtDeviceInfo)
	{
		.name = "fake",.precision = "exact",.threads = 1,.max_rows = max_rows,.max_samples = max_samples,
			.max_context = max_context,.page_count = page_count,.page_bytes = 1,.event_fd = -1
	};
	device.kv = calloc((size_t) page_count * HYMT_PAGE_TOKENS, sizeof(int32_t));
	device.tokens = calloc((size_t) max_samples, sizeof(int32_t));
	device.logits = calloc((size_t) max_samples * VOCAB, sizeof(float));
	return device;
}

static void
fake_free(HymtDevice *device)
{
	assert_null(device->plan);
	free(device->kv);
	free(device->tokens);
	free(device->logits);
}

static HymtScheduler *
open_scheduler(HymtDevice *device, FILE *trace)
{
	HymtError	error;
	HymtScheduler *scheduler = hymt_scheduler_open(&fake_ops, device, VOCAB, trace, &error);

	assert_non_null(scheduler);
	return scheduler;
}

/* --- expected answers ------------------------------------------------------------------------------------------- */

static const int32_t stop_ids[] = {STOP, 11};

typedef struct Expected
{
	int32_t		tokens[512];
	int32_t		count;
	HymtFinish	finish;
	int32_t		argmax[512];
	float		last_logits[VOCAB];
} Expected;

static uint32_t
hash_of(const int32_t *tokens, int32_t count)
{
	uint32_t	hash = 1;

	for (int32_t i = 0; i < count; i++)
		hash = mix(hash, tokens[i]);
	return hash;
}

static void
expect(const HymtSequenceRequest *request, Expected *expected)
{
	int32_t		all[1024];
	int32_t		count = request->prompt_count;
	float		logits[VOCAB];

	memcpy(all, request->prompt, sizeof(int32_t) * (size_t) count);
	for (int32_t i = 0; i < count; i++)
	{
		logits_of(hash_of(all, i + 1), expected->last_logits);
		expected->argmax[i] = best_of(expected->last_logits, 1, NULL, 0);
	}
	expected->count = 0;
	expected->finish = HYMT_FINISH_LENGTH;
	while (expected->count < request->max_new)
	{
		int32_t		token;

		logits_of(hash_of(all, count), logits);
		token = best_of(logits, request->repetition_penalty, all, count);
		expected->tokens[expected->count++] = token;
		all[count++] = token;
		for (int i = 0; i < request->stop_count; i++)
			if (token == request->stop_ids[i])
			{
				expected->finish = HYMT_FINISH_STOP;
				return;
			}
	}
}

static uint32_t random_state = 1;

static int32_t
pick(int32_t limit)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (int32_t) ((random_state >> 8) % (uint32_t) limit);
}

/* A prompt of `count` random ids; static memory of the caller's. */
static HymtSequenceRequest
make_request(uint64_t id, int32_t *prompt, int32_t count, int32_t max_new)
{
	for (int32_t i = 0; i < count; i++)
		prompt[i] = pick(VOCAB - 1);
	return (HymtSequenceRequest)
	{
		.id = id,.prompt = prompt,.prompt_count = count,.max_new = max_new,.repetition_penalty = 1,
			.stop_ids = stop_ids,.stop_count = 0
	};
}

static void
submit(HymtScheduler *scheduler, const HymtSequenceRequest *request)
{
	HymtError	error;

	assert_true(hymt_scheduler_submit(scheduler, request, &error));
}

static void
check_answer(const HymtSequenceRequest *request, const HymtSequenceAnswer *answer)
{
	Expected   *expected = calloc(1, sizeof(*expected));

	expect(request, expected);
	assert_int_equal(answer->failure, HYMT_FAILURE_NONE);
	assert_int_equal(answer->finish, expected->finish);
	assert_int_equal(answer->prompt_count, request->prompt_count);
	assert_int_equal(answer->token_count, expected->count);
	assert_memory_equal(answer->tokens, expected->tokens, sizeof(int32_t) * (size_t) expected->count);
	if (request->want_argmax)
		assert_memory_equal(answer->argmax, expected->argmax, sizeof(int32_t) * (size_t) request->prompt_count);
	else
		assert_null(answer->argmax);
	if (request->want_last_logits)
		assert_memory_equal(answer->last_logits, expected->last_logits, sizeof(expected->last_logits));
	else
		assert_null(answer->last_logits);
	free(expected);
}

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
	static const int32_t quick[] = {16, 40, 100, 128, 128};

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
		cmocka_unit_test(test_nan),
		cmocka_unit_test(test_bad_requests),
		cmocka_unit_test(test_slow_device),
		cmocka_unit_test(test_shares),
		cmocka_unit_test(test_page_allocator),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
