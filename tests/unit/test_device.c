/*
 * test_device.c: the CPU device behind its door, and the thread pool under it.
 *
 * One property is behind most of these tests: what a row gives depends on its sequence alone, not on the chunks it was
 * computed in, on its neighbours, on threads or on the instruction set. They compare bits. That the numbers are the
 * right ones is checked against the reference vectors of tests/vectors/models.
 */
#include <math.h>
#include <poll.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>
#include <jansson.h>

#include "decoding.h"
#include "device.h"
#include "kernels.h"
#include "model.h"
#include "pool.h"
#include "sampling.h"

#define MODELS "tests/vectors/models/"

/* Longest sequence, and most rows of a step. */
#define MAX_TOKENS 384
#define MAX_PAGES (MAX_TOKENS / HYMT_PAGE_TOKENS)

static const HymtDeviceOps *const ops = &hymt_device_cpu;
static const HymtIsa isas[] = {HYMT_ISA_SCALAR, HYMT_ISA_AVX2, HYMT_ISA_AVX512};

#define ISA_COUNT (sizeof(isas) / sizeof(isas[0]))

/* --- driving the device ------------------------------------------------------------------------------------------ */

static HymtModel
open_model(const char *path)
{
	HymtModel	model;
	HymtError	error;

	if (!hymt_model_open(&model, path, &(HymtModelOptions) {0}, &error))
		fail_msg("%s", error.message);
	return model;
}

static HymtDevice *
open_device(const HymtModel *model, HymtIsa isa, int threads)
{
	HymtDeviceOptions options = {.isa = isa, .threads = threads, .max_context = MAX_TOKENS, .max_rows = MAX_TOKENS};
	HymtError	error;
	HymtDevice *device = ops->open(model, &options, &error);

	if (device == NULL)
		fail_msg("%s", error.message);
	return device;
}

/* A sequence as the tests use it: pages of its own, in no particular order. */
typedef struct Sequence
{
	int32_t		pages[MAX_PAGES];
	int32_t		length;			/* positions in the pages */
} Sequence;

static Sequence
sequence_number(int number)
{
	Sequence	sequence = {.length = 0};

	for (int i = 0; i < MAX_PAGES; i++)
		sequence.pages[i] = number * MAX_PAGES + (MAX_PAGES - 1 - i);
	return sequence;
}

/* A plan under construction. */
typedef struct Step
{
	HymtPlan	plan;
	HymtRow		rows[MAX_TOKENS];
	HymtPlanSequence sequences[MAX_TOKENS];
	HymtSample	samples[MAX_TOKENS];
} Step;

/* Appends `count` tokens of a sequence; returns the number of the last row. */
static int32_t
step_add(Step *step, Sequence *sequence, const int32_t *tokens, int count)
{
	for (int i = 0; i < count; i++)
		step->rows[step->plan.row_count++] = (HymtRow) {
			.token = tokens[i], .position = sequence->length++, .sequence = step->plan.sequence_count,
		};
	step->sequences[step->plan.sequence_count++] = (HymtPlanSequence) {sequence->pages, MAX_PAGES, 0};
	return step->plan.row_count - 1;
}

static void
step_sample(Step *step, int32_t row, uint32_t flags)
{
	step->samples[step->plan.sample_count++] = (HymtSample) {.row = row, .flags = flags, .penalty = 1.0f};
}

static void
step_submit(Step *step, HymtDevice *device)
{
	step->plan.rows = step->rows;
	step->plan.sequences = step->sequences;
	step->plan.samples = step->samples;
	ops->submit(device, &step->plan);
}

static HymtStepResult
step_run(Step *step, HymtDevice *device)
{
	HymtStepResult result;

	step_submit(step, device);
	assert_true(ops->poll(device, true, &result));
	assert_true(result.step == step->plan.step);
	return result;
}

static const int32_t prompt[] = {17, 3, 250, 99, 8, 8, 140, 61, 5, 33, 201, 77, 12, 90, 222, 4, 58, 161, 19, 240, 7,
	101, 64};

#define PROMPT_LENGTH ((int) (sizeof(prompt) / sizeof(prompt[0])))

/* Logits of all positions of the prompt, [PROMPT_LENGTH][vocab], computed in one chunk. The caller frees them. */
static float *
logits_in_one_chunk(HymtDevice *device, int vocab)
{
	size_t		bytes = (size_t) PROMPT_LENGTH * (size_t) vocab * sizeof(float);
	float	   *logits = malloc(bytes);
	Sequence	sequence = sequence_number(0);
	Step		step = {.plan.step = 1};
	HymtStepResult result;

	step_add(&step, &sequence, prompt, PROMPT_LENGTH);
	for (int i = 0; i < PROMPT_LENGTH; i++)
		step_sample(&step, i, HYMT_SAMPLE_LOGITS);
	result = step_run(&step, device);
	assert_int_equal(result.logit_rows, PROMPT_LENGTH);
	memcpy(logits, result.logits, bytes);
	return logits;
}

static void
assert_row(const float *all, int position, const float *logits, int vocab)
{
	assert_memory_equal(logits, all + (size_t) position * (size_t) vocab, (size_t) vocab * sizeof(float));
}

/* --- the same bits ----------------------------------------------------------------------------------------------- */

static void
check_token_by_token(HymtDevice *device, const float *expected, int vocab)
{
	Sequence	sequence = sequence_number(1);

	for (int i = 0; i < PROMPT_LENGTH; i++)
	{
		Step		step = {.plan.step = (uint64_t) i + 1};
		HymtStepResult result;

		step_sample(&step, step_add(&step, &sequence, prompt + i, 1), HYMT_SAMPLE_LOGITS);
		result = step_run(&step, device);
		assert_row(expected, i, result.logits, vocab);
	}
}

/* Chunks of several sizes, each step among rows of other sequences, before and behind. */
static void
check_among_others(HymtDevice *device, const float *expected, int vocab)
{
	Sequence	before = sequence_number(2);
	Sequence	own = sequence_number(3);
	Sequence	behind = sequence_number(4);
	int			done = 0;

	for (int size = 1; done < PROMPT_LENGTH; size++)
	{
		Step		step = {.plan.step = (uint64_t) size};
		int			count = size < PROMPT_LENGTH - done ? size : PROMPT_LENGTH - done;
		HymtStepResult result;
		int32_t		row;

		step_sample(&step, step_add(&step, &before, prompt + size, size), HYMT_SAMPLE_LOGITS | HYMT_SAMPLE_TOKEN);
		row = step_add(&step, &own, prompt + done, count);
		step_sample(&step, row - count + 1, HYMT_SAMPLE_LOGITS);
		if (count > 1)
			step_sample(&step, row, HYMT_SAMPLE_LOGITS);
		step_add(&step, &behind, prompt + 3, 5);
		result = step_run(&step, device);
		assert_row(expected, done, result.logits + vocab, vocab);
		done += count;
		if (count > 1)
			assert_row(expected, done - 1, result.logits + 2 * vocab, vocab);
	}
}

static void
check_same_bits(const char *path)
{
	HymtModel	model = open_model(path);
	int			vocab = model.config.vocab;
	float	   *expected = NULL;

	for (size_t i = 0; i < ISA_COUNT; i++)
	{
		if (!hymt_isa_supported(isas[i]))
			continue;
		for (int threads = 1; threads <= 3; threads++)
		{
			HymtDevice *device = open_device(&model, isas[i], threads);
			float	   *logits = logits_in_one_chunk(device, vocab);

			if (expected == NULL)
				expected = logits;
			else
			{
				for (int position = 0; position < PROMPT_LENGTH; position++)
					assert_row(expected, position, logits + (size_t) position * (size_t) vocab, vocab);
				free(logits);
			}
			check_token_by_token(device, expected, vocab);
			check_among_others(device, expected, vocab);
			ops->close(device);
		}
	}
	free(expected);
	hymt_model_close(&model);
}

static void
test_same_bits(void **state)
{
	(void) state;
	check_same_bits(MODELS "hunyuan_gqa_f32");
	check_same_bits(MODELS "hunyuan_wide_heads_bf16");
	check_same_bits(MODELS "hunyuan_no_scaling_f16");
}

/* --- tokens ------------------------------------------------------------------------------------------------------ */

static int32_t
largest(const float *logits, int vocab)
{
	int32_t		best = 0;

	for (int32_t id = 1; id < vocab; id++)
	{
		if (logits[id] > logits[best])
			best = id;
	}
	return best;
}

static void
test_from_previous(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	HymtDevice *device = open_device(&model, HYMT_ISA_AUTO, 2);
	int32_t		expected[12];
	Sequence	sequence = sequence_number(0);
	Sequence	other = sequence_number(2);
	Step		steps[2];
	HymtStepResult result;

	(void) state;
	assert_true(ops->info(device)->run_ahead >= 1);

	/* Step by step, each token handed over by the host. */
	for (int i = 0; i < 12; i++)
	{
		Step		step = {.plan.step = (uint64_t) i + 1};

		step_sample(&step, i == 0 ? step_add(&step, &sequence, prompt, 5)
					: step_add(&step, &sequence, &expected[i - 1], 1), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
		result = step_run(&step, device);
		assert_int_equal(result.tokens[0], largest(result.logits, model.config.vocab));
		expected[i] = result.tokens[0];
	}

	/* Always one step ahead, the host knowing no token; a sampled row of another sequence in front moves rows about. */
	sequence = sequence_number(1);
	for (int i = 0; i < 13; i++)
	{
		if (i < 12)
		{
			Step	   *step = &steps[i % 2];
			const int32_t previous = HYMT_TOKEN_FROM_PREVIOUS;
			int			others = i % 3;
			int32_t		row;

			*step = (Step) {.plan.step = (uint64_t) i + 1};
			other.length = 0;
			if (others > 0)
				step_sample(step, step_add(step, &other, prompt, others), HYMT_SAMPLE_TOKEN);
			row = i == 0 ? step_add(step, &sequence, prompt, 5) : step_add(step, &sequence, &previous, 1);
			if (i > 0)
				step->rows[row].previous_row = steps[(i + 1) % 2].plan.row_count - 1;
			step_sample(step, row, HYMT_SAMPLE_TOKEN);
			step_submit(step, device);
		}
		if (i > 0)
		{
			int			earlier = i - 1;

			assert_true(ops->poll(device, true, &result));
			assert_true(result.step == (uint64_t) earlier + 1);
			assert_int_equal(result.tokens[earlier % 3 > 0 ? 1 : 0], expected[earlier]);
		}
	}
	ops->close(device);
	hymt_model_close(&model);
}

/* The token after the penalty, from the logits before it. */
static int32_t
expected_penalized(const float *logits, int vocab, const int32_t *seen, int count, float penalty)
{
	float	   *copy = malloc((size_t) vocab * sizeof(float));
	int32_t		best;

	memcpy(copy, logits, (size_t) vocab * sizeof(float));
	for (int i = 0; i < count; i++)
		copy[seen[i]] = copy[seen[i]] > 0 ? copy[seen[i]] / penalty : copy[seen[i]] * penalty;
	best = largest(copy, vocab);
	free(copy);
	return best;
}

static void
test_penalty(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	HymtDevice *device = open_device(&model, HYMT_ISA_AUTO, 1);
	int			vocab = model.config.vocab;
	int32_t		seen[40];
	int			count = 0;

	(void) state;
	/* The best ids are declared seen one after another, so that each time the choice must fall on another one. */
	seen[count++] = prompt[3];	/* the row's own token is seen without being listed */
	for (int round = 0; round < 30; round++)
	{
		Sequence	one = sequence_number(0);
		Sequence	other = sequence_number(1);
		Step		step = {.plan.step = (uint64_t) round + 1};
		HymtStepResult result;
		int32_t		unpenalized;

		step_sample(&step, step_add(&step, &one, prompt, 4), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
		step.samples[0].penalty = 1e6f;
		step.samples[0].seen = seen + 1;
		step.samples[0].seen_count = count - 1;
		step_sample(&step, step_add(&step, &other, prompt, 4), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
		result = step_run(&step, device);

		unpenalized = largest(result.logits + vocab, vocab);
		assert_memory_equal(result.logits, result.logits + vocab, (size_t) vocab * sizeof(float));
		assert_int_equal(result.tokens[1], unpenalized);
		assert_int_equal(result.tokens[0], expected_penalized(result.logits, vocab, seen, count, 1e6f));
		for (int i = 0; i < count; i++)
			assert_int_not_equal(result.tokens[0], seen[i]);
		seen[count++] = result.tokens[0];
	}
	ops->close(device);
	hymt_model_close(&model);
}

static void
test_own_token_is_seen(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	HymtDevice *device = open_device(&model, HYMT_ISA_AUTO, 1);
	int			vocab = model.config.vocab;

	(void) state;
	/* Zero weights in the head: all logits are 0, the lowest id wins. One id's weights are the final row itself. */
	for (int32_t token = 0; token < 3; token++)
	{
		size_t		bytes = (size_t) vocab * (size_t) model.config.hidden * sizeof(float);
		float	   *head = calloc(1, bytes);
		HymtModel	changed = model;
		HymtDevice *other;
		Sequence	sequence = sequence_number(0);
		Step		step = {.plan.step = 1};
		HymtStepResult result;

		for (int i = 0; i < model.config.hidden; i++)
			head[(size_t) token * (size_t) model.config.hidden + (size_t) i] = i == 0 ? 1.0f : 0.0f;
		changed.head = (HymtTensor) {.data = head, .dtype = HYMT_DTYPE_F32, .rows = vocab,
			.columns = model.config.hidden};
		other = open_device(&changed, HYMT_ISA_AUTO, 1);
		step_sample(&step, step_add(&step, &sequence, &token, 1), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
		step.samples[0].penalty = 2.0f;
		result = step_run(&step, other);
		/* A positive logit is halved and still wins; a negative one is doubled and the lowest other id wins. */
		if (result.logits[token] > 0.0f)
			assert_int_equal(result.tokens[0], token);
		else
			assert_int_equal(result.tokens[0], token == 0 ? 1 : 0);
		ops->close(other);
		free(head);
	}
	ops->close(device);
	hymt_model_close(&model);
}

static void
test_ties_and_token_limit(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	int			vocab = model.config.vocab;
	int			hidden = model.config.hidden;
	float	   *head = calloc((size_t) vocab * (size_t) hidden, sizeof(float));
	int32_t		ties[] = {63, 64, 130, 300};
	HymtDeviceOptions options = {.isa = HYMT_ISA_AUTO, .threads = 2, .token_limit = 300};
	HymtError	error;

	(void) state;
	/* Some ids get the same weights, whichever sign makes their logit positive; the rest get a smaller logit, 0. */
	model.head = (HymtTensor) {.data = head, .dtype = HYMT_DTYPE_F32, .rows = vocab, .columns = hidden};
	for (int first = 0; first < 4; first++)
	{
		HymtDevice *device = NULL;
		HymtStepResult result;

		for (int sign = -1; sign <= 1; sign += 2)
		{
			Sequence	sequence = sequence_number(0);
			Step		step = {.plan.step = 1};

			memset(head, 0, (size_t) vocab * (size_t) hidden * sizeof(float));
			for (int i = first; i < 4; i++)
			{
				for (int d = 0; d < hidden; d++)
					head[(size_t) ties[i] * (size_t) hidden + (size_t) d] = d == 1 ? (float) sign : 0.0f;
			}
			ops->close(device);
			device = ops->open(&model, &options, &error);
			assert_non_null(device);
			step_sample(&step, step_add(&step, &sequence, prompt, 1), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
			result = step_run(&step, device);
			if (result.logits[300] > 0.0f)
				break;
		}
		assert_true(result.logits[300] > 0.0f);
		/* Id 300 is at the limit: its logit is there, but it is never chosen, and the zeros win from id 0 on. */
		assert_int_equal(result.tokens[0], first == 3 ? 0 : ties[first]);
		ops->close(device);
	}
	free(head);
	hymt_model_close(&model);
}

static void
test_nan(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	int			hidden = model.config.hidden;
	size_t		bytes = (size_t) model.config.vocab * (size_t) hidden * sizeof(float);
	float	   *embedding = malloc(bytes);
	HymtDevice *device;
	Sequence	good = sequence_number(0);
	Sequence	bad = sequence_number(1);
	Step		first = {.plan.step = 1};
	Step		second = {.plan.step = 2};
	Step		third = {.plan.step = 3};
	const int32_t poison = 77;
	const int32_t previous = HYMT_TOKEN_FROM_PREVIOUS;
	HymtStepResult result;
	int32_t		token;
	float	   *expected = malloc((size_t) model.config.vocab * sizeof(float));

	(void) state;
	/* Token 77's embedding holds a NaN; its row of the head is the sound one. */
	memcpy(embedding, model.embedding.data, bytes);
	embedding[(size_t) poison * (size_t) hidden + 3] = NAN;
	model.embedding.data = embedding;
	device = open_device(&model, HYMT_ISA_AUTO, 2);

	step_sample(&first, step_add(&first, &good, prompt, 4), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
	step_sample(&first, step_add(&first, &bad, &poison, 1), HYMT_SAMPLE_TOKEN);
	step_submit(&first, device);
	/* A row that goes on from a token that is none gives none. */
	step_sample(&second, step_add(&second, &bad, &previous, 1), HYMT_SAMPLE_TOKEN);
	second.rows[0].previous_row = 4;
	step_submit(&second, device);
	assert_true(ops->poll(device, true, &result));
	token = result.tokens[0];
	memcpy(expected, result.logits, (size_t) model.config.vocab * sizeof(float));
	assert_int_equal(token, largest(expected, model.config.vocab));
	assert_int_equal(result.tokens[1], HYMT_TOKEN_NAN);
	assert_true(ops->poll(device, true, &result));
	assert_int_equal(result.tokens[0], HYMT_TOKEN_NAN);

	/* Pages full of NaN do no harm to the sequence that gets them next. */
	bad.length = 0;
	step_sample(&third, step_add(&third, &bad, prompt, 4), HYMT_SAMPLE_TOKEN | HYMT_SAMPLE_LOGITS);
	result = step_run(&third, device);
	assert_int_equal(result.tokens[0], token);
	assert_memory_equal(result.logits, expected, (size_t) model.config.vocab * sizeof(float));
	ops->close(device);
	free(embedding);
	free(expected);
	hymt_model_close(&model);
}

/* --- the door ---------------------------------------------------------------------------------------------------- */

static bool
readable(int fd)
{
	struct pollfd poll_fd = {.fd = fd, .events = POLLIN};

	return poll(&poll_fd, 1, 0) == 1;
}

static void
test_event_fd(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	HymtDevice *device = open_device(&model, HYMT_ISA_AUTO, 1);
	int			fd = ops->info(device)->event_fd;
	Sequence	sequence = sequence_number(0);
	Step		steps[2] = {{.plan.step = 1}, {.plan.step = 2}};
	struct pollfd wait_fd = {.fd = fd, .events = POLLIN};
	HymtStepResult result;

	(void) state;
	assert_false(readable(fd));
	assert_false(ops->poll(device, false, &result));
	assert_false(ops->poll(device, true, &result)); /* nothing is under way: there is nothing to wait for */
	for (int i = 0; i < 2; i++)
	{
		step_sample(&steps[i], step_add(&steps[i], &sequence, prompt + i, 1), HYMT_SAMPLE_TOKEN);
		step_submit(&steps[i], device);
	}
	assert_int_equal(poll(&wait_fd, 1, 60000), 1);
	assert_true(ops->poll(device, true, &result));
	assert_true(result.step == 1);
	assert_true(ops->poll(device, true, &result));
	assert_true(result.step == 2);
	assert_true(result.seconds >= 0.0);
	assert_false(readable(fd));
	assert_false(ops->poll(device, false, &result));

	/* Closing with a plan under way waits for it. */
	steps[0].plan.step = 3;
	ops->submit(device, &steps[0].plan);
	ops->close(device);
	hymt_model_close(&model);
}

static void
test_limits(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	HymtDeviceOptions options = {0};
	HymtError	error;
	HymtDevice *device = ops->open(&model, &options, &error);
	const HymtDeviceInfo *info;
	int64_t		page_bytes;

	(void) state;
	assert_non_null(device);
	info = ops->info(device);
	assert_int_equal(info->max_context, 4096);	/* the model's */
	assert_int_equal(info->max_rows, 256);
	assert_int_equal(info->max_samples, 256);
	assert_true(info->threads >= 1);
	assert_true((int64_t) info->page_count * HYMT_PAGE_TOKENS >= 2 * info->max_context);
	assert_string_equal(info->precision, "exact");
	assert_true(strncmp(info->name, "cpu ", 4) == 0);
	page_bytes = info->page_bytes;
	/* keys and values, layers, KV heads, head_dim */
	assert_int_equal(page_bytes, HYMT_PAGE_TOKENS * 2 * 2 * 2 * 16 * (int64_t) sizeof(float));
	ops->close(device);

	/* Memory for few pages makes the longest sequence shorter. */
	options.kv_bytes = 5 * page_bytes + page_bytes / 2;
	device = ops->open(&model, &options, &error);
	assert_non_null(device);
	info = ops->info(device);
	assert_int_equal(info->page_count, 5);
	assert_int_equal(info->max_context, 5 * HYMT_PAGE_TOKENS);
	ops->close(device);

	options.kv_bytes = page_bytes - 1;
	assert_null(ops->open(&model, &options, &error));
	assert_int_equal(error.failure, HYMT_FAILURE_NO_MEMORY);
	hymt_model_close(&model);
}

/* --- reference vectors ------------------------------------------------------------------------------------------- */

static int
read_ids(const json_t *list, int32_t *ids)
{
	for (size_t i = 0; i < json_array_size(list); i++)
		ids[i] = (int32_t) json_integer_value(json_array_get(list, i));
	return (int) json_array_size(list);
}

static void
check_logits(const json_t *expected, const float *logits)
{
	double		most = 0.0;
	double		worst = 0.0;

	for (size_t i = 0; i < json_array_size(expected); i++)
	{
		double		value = json_number_value(json_array_get(expected, i));

		most = fmax(most, fabs(value));
		worst = fmax(worst, fabs(value - logits[i]));
		assert_false(isnan(logits[i]));
	}
	assert_true(worst <= 2e-5 * most);
}

static void
check_case(HymtDevice *device, const json_t *object, const char *greedy, float penalty)
{
	int32_t		seen[MAX_TOKENS];
	int32_t		tokens[MAX_TOKENS];
	int32_t		expected[MAX_TOKENS];
	int			count = read_ids(json_object_get(object, "ids"), tokens);
	int			answer = read_ids(json_object_get(object, greedy), expected);
	json_t	   *argmax = json_object_get(object, "argmax_per_position");
	Sequence	sequence = sequence_number(0);
	Step		step = {.plan.step = 1};
	HymtStepResult result;
	int			seen_count = 0;

	assert_true(answer > 0);
	for (int i = 0; i < count; i++)
	{
		bool		known = false;

		for (int j = 0; j < seen_count; j++)
			known = known || seen[j] == tokens[i];
		if (!known)
			seen[seen_count++] = tokens[i];
	}

	step_add(&step, &sequence, tokens, count);
	for (int i = 0; i < count; i++)
		step_sample(&step, i, HYMT_SAMPLE_TOKEN | (i == count - 1 ? HYMT_SAMPLE_LOGITS : 0));
	result = step_run(&step, device);
	for (int i = 0; i < count; i++)
		assert_int_equal(result.tokens[i], json_integer_value(json_array_get(argmax, (size_t) i)));
	check_logits(json_object_get(object, "last_logits"), result.logits);

	/* The last position again, now with the penalty, and on from there. */
	sequence.length--;
	for (int i = 0; i < answer; i++)
	{
		Step		next = {.plan.step = (uint64_t) i + 2};
		bool		known = false;

		step_sample(&next, step_add(&next, &sequence, i == 0 ? &tokens[count - 1] : &expected[i - 1], 1),
					HYMT_SAMPLE_TOKEN);
		next.samples[0].penalty = penalty;
		next.samples[0].seen = seen;
		next.samples[0].seen_count = seen_count;
		result = step_run(&next, device);
		assert_int_equal(result.tokens[0], expected[i]);
		for (int j = 0; j < seen_count; j++)
			known = known || seen[j] == expected[i];
		if (!known)
			seen[seen_count++] = expected[i];
	}
}

static void
check_reference(const char *name)
{
	char		path[256];
	HymtModel	model;
	json_t	   *reference;
	json_t	   *cases;

	snprintf(path, sizeof(path), MODELS "%s", name);
	model = open_model(path);
	snprintf(path, sizeof(path), MODELS "%s/reference.json", name);
	reference = json_load_file(path, 0, NULL);
	assert_non_null(reference);
	cases = json_object_get(reference, "cases");
	assert_true(json_array_size(cases) > 0);
	for (size_t i = 0; i < ISA_COUNT; i++)
	{
		HymtDevice *device;

		if (!hymt_isa_supported(isas[i]))
			continue;
		device = open_device(&model, isas[i], 1 + (int) (i % 2));
		for (size_t j = 0; j < json_array_size(cases); j++)
		{
			check_case(device, json_array_get(cases, j), "greedy", 1.0f);
			check_case(device, json_array_get(cases, j), "greedy_penalty_1.05", 1.05f);
		}
		ops->close(device);
	}
	json_decref(reference);
	hymt_model_close(&model);
}

static void
test_reference_vectors(void **state)
{
	(void) state;
	check_reference("hunyuan_gqa_f32");
	check_reference("hunyuan_head128_bf16");
	check_reference("hunyuan_no_scaling_f16");
	check_reference("hunyuan_tied_with_stored_head_bf16");
	check_reference("hunyuan_untied_sharded_bf16");
	check_reference("hunyuan_wide_heads_bf16");
}

/* --- the pool ---------------------------------------------------------------------------------------------------- */

#define POOL_ITEMS 200

typedef struct PoolCheck
{
	int			threads;
	int			runs[POOL_ITEMS];	/* not atomic: the pool orders regions */
	_Atomic int bad_thread;
} PoolCheck;

static void
count_item(void *context, int item, int thread)
{
	PoolCheck  *check = context;

	check->runs[item]++;
	if (thread < 0 || thread >= check->threads)
		atomic_fetch_add(&check->bad_thread, 1);
}

static void
test_pool(void **state)
{
	(void) state;
	for (int threads = 1; threads <= 4; threads++)
	{
		for (int spin = 0; spin <= 1; spin++)
		{
			HymtError	error;
			HymtPool   *pool = hymt_pool_open(threads, spin, &error);
			PoolCheck	check = {.threads = threads};
			int			expected[POOL_ITEMS] = {0};

			assert_non_null(pool);
			for (int region = 0; region < 400; region++)
			{
				int			count = region % (POOL_ITEMS + 1);

				hymt_pool_run(pool, count, count_item, &check);
				for (int i = 0; i < count; i++)
					expected[i]++;
				assert_memory_equal(check.runs, expected, sizeof(expected));
			}
			assert_int_equal(check.bad_thread, 0);
			hymt_pool_close(pool);
		}
	}
}

/* --- copied pages and drawn tokens --------------------------------------------------------------------------------- */

/* The beginning of a page, copied twice in one step, is as good as computed. */
static void
test_copies(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	HymtDevice *device = open_device(&model, HYMT_ISA_AUTO, 2);
	int			vocab = model.config.vocab;
	float	   *expected = logits_in_one_chunk(device, vocab);	/* in the pages of sequence 0 */
	Sequence	first = sequence_number(0);

	(void) state;
	for (int shared = 1; shared < PROMPT_LENGTH; shared += 5)
	{
		Sequence	own = sequence_number(1);
		int			page = shared / HYMT_PAGE_TOKENS;
		HymtPageCopy copies[3];
		Step		step = {.plan.step = 1};
		HymtStepResult result;
		int32_t		row;

		/* whole pages are shared; what is left goes through a page of another sequence, and that one is overwritten */
		for (int i = 0; i < page; i++)
			own.pages[i] = first.pages[i];
		own.length = shared;
		copies[0] = (HymtPageCopy) {first.pages[page], sequence_number(2).pages[0], HYMT_PAGE_TOKENS};
		copies[1] = (HymtPageCopy) {sequence_number(2).pages[0], own.pages[page], HYMT_PAGE_TOKENS};
		copies[2] = (HymtPageCopy) {sequence_number(3).pages[0], sequence_number(2).pages[0], HYMT_PAGE_TOKENS};
		row = step_add(&step, &own, prompt + shared, PROMPT_LENGTH - shared);
		step_sample(&step, row, HYMT_SAMPLE_LOGITS);
		step.plan.copies = copies;
		step.plan.copy_count = 3;
		result = step_run(&step, device);
		assert_row(expected, PROMPT_LENGTH - 1, result.logits, vocab);
	}
	free(expected);
	ops->close(device);
	hymt_model_close(&model);
}

/* The token that the logits, the penalty and the random number give, drawn by the scalar kernels. */
static int32_t
expected_draw(const float *logits, int vocab, int32_t limit, const HymtSample *sample, int32_t own)
{
	HymtDrawScratch scratch = {
		malloc((size_t) vocab * sizeof(float)), malloc((size_t) vocab * sizeof(float)),
		malloc((size_t) vocab * sizeof(int32_t))
	};
	int32_t		token;

	memcpy(scratch.scaled, logits, (size_t) vocab * sizeof(float));
	for (int i = -1; i < sample->seen_count && sample->penalty != 1.0f; i++)
	{
		float	   *logit = &scratch.scaled[i < 0 ? own : sample->seen[i]];

		*logit = *logit > 0 ? *logit / sample->penalty : *logit * sample->penalty;
	}
	token = hymt_draw_token(hymt_kernels_scalar(), &scratch, limit, sample);
	free(scratch.scaled);
	free(scratch.weights);
	free(scratch.ids);
	return token;
}

/* Drawn tokens beside others in a step, with and without logits asked for, on all instruction sets. */
static void
test_draws(void **state)
{
	HymtModel	model = open_model(MODELS "hunyuan_gqa_f32");
	int			vocab = model.config.vocab;
	static const int32_t seen[] = {3, 9, 250};

	(void) state;
	for (size_t i = 0; i < ISA_COUNT; i++)
	{
		HymtDeviceOptions options = {
			.isa = isas[i], .threads = 2, .max_context = MAX_TOKENS, .max_rows = MAX_TOKENS, .token_limit = vocab - 20
		};
		HymtError	error;
		HymtDevice *device;
		float	   *logits;
		int			drawn = 0;

		if (!hymt_isa_supported(isas[i]))
			continue;
		device = ops->open(&model, &options, &error);
		assert_non_null(device);
		logits = logits_in_one_chunk(device, vocab);
		for (int round = 0; round < 20; round++)
		{
			Sequence	sequence = sequence_number(1);
			Step		step = {.plan.step = (uint64_t) round + 2};
			HymtStepResult result;
			int			rows = 0;

			step_add(&step, &sequence, prompt, PROMPT_LENGTH);
			for (int row = round % 2; row < PROMPT_LENGTH; row += 2)
			{
				HymtSample *sample = &step.samples[step.plan.sample_count];

				step_sample(&step, row, HYMT_SAMPLE_TOKEN | (row % 3 == 0 ? HYMT_SAMPLE_LOGITS : 0));
				if (row % 5 == 0)
					continue;	/* the likeliest token */
				sample->temperature = 0.3f + (float) row / 4;
				sample->top_k = row % 4 * 10;
				sample->top_p = row % 7 == 0 ? 0.6f : 1.0f;
				sample->random = hymt_random_at((uint64_t) round, (uint64_t) row);
				sample->penalty = row % 2 ? 1.0f : 1.5f;
				sample->seen = seen;
				sample->seen_count = 3;
			}
			result = step_run(&step, device);
			for (int s = 0; s < step.plan.sample_count; s++)
			{
				const HymtSample *sample = &step.samples[s];
				const float *own = logits + (size_t) sample->row * (size_t) vocab;

				if (sample->flags & HYMT_SAMPLE_LOGITS)
					assert_row(logits, sample->row, result.logits + (size_t) rows++ * (size_t) vocab, vocab);
				if (sample->temperature > 0)
					assert_int_equal(result.tokens[s],
									 expected_draw(own, vocab, vocab - 20, sample, prompt[sample->row]));
				else
					assert_int_equal(result.tokens[s], largest(own, vocab - 20));
				drawn += sample->temperature > 0 && result.tokens[s] != largest(own, vocab - 20);
			}
			assert_int_equal(result.logit_rows, rows);
		}
		assert_true(drawn > 20);
		free(logits);
		ops->close(device);
	}
	hymt_model_close(&model);
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_pool),
		cmocka_unit_test(test_same_bits),
		cmocka_unit_test(test_from_previous),
		cmocka_unit_test(test_penalty),
		cmocka_unit_test(test_own_token_is_seen),
		cmocka_unit_test(test_ties_and_token_limit),
		cmocka_unit_test(test_nan),
		cmocka_unit_test(test_event_fd),
		cmocka_unit_test(test_limits),
		cmocka_unit_test(test_reference_vectors),
		cmocka_unit_test(test_copies),
		cmocka_unit_test(test_draws),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
