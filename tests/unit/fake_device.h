/*
 * fake_device.h: a device that computes nothing but a checksum, for tests of the scheduler.
 *
 * It keeps one token per KV position, in pages, as a real one keeps keys and values. The token it answers with is a
 * checksum over everything a row may attend to, read through the sequence's pages. So an answer is right only if every
 * position was written once, into the right page, in order, and no page that is written belongs to two sequences. The
 * expected answers come from the same checksum over a plain array.
 */
#ifndef HYMT_TEST_FAKE_DEVICE_H
#define HYMT_TEST_FAKE_DEVICE_H

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "decoding.h"
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

static inline uint32_t
mix(uint32_t hash, int32_t value)
{
	hash ^= (uint32_t) value + 0x9e3779b9u + (hash << 6) + (hash >> 2);
	return hash * 2654435761u;
}

static inline int32_t
token_of(uint32_t hash)
{
	/* Never NAN_TOKEN, so that only prompts bring NaN. */
	return (int32_t) ((hash >> 7) % (VOCAB - 1));
}

/* Logits whose maximum is the checksum's token, unless the tests' penalty pushes it below the runner-up. */
static inline void
logits_of(uint32_t hash, float *logits)
{
	int32_t		best = token_of(hash);

	for (int i = 0; i < VOCAB; i++)
		logits[i] = (float) ((hash >> (i % 13)) % 64) / 100;
	logits[best] = 1;
	logits[(best + 1) % (VOCAB - 1)] = 0.75f;
}

static inline int32_t
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

/* As good as any for a test: what matters is whose random number it is. */
static inline int32_t
drawn_token(const float *logits, float temperature, int32_t top_k, float top_p, uint64_t random)
{
	uint32_t	hash = (uint32_t) (random >> 32) ^ (uint32_t) random ^ (uint32_t) top_k;

	for (int i = 0; i < 8; i++)
		hash = mix(hash, (int32_t) (logits[i] * 100 / temperature * top_p));
	return token_of(hash);
}

static inline void
check_plan(const struct HymtDevice *device, const HymtPlan *plan)
{
	int		   *users = calloc((size_t) device->info.page_count, sizeof(int));
	int32_t		sample_row = -1;

	assert_in_range(plan->row_count, 1, device->info.max_rows);
	assert_in_range(plan->sample_count, 0, device->info.max_samples);
	for (int32_t i = 0; i < plan->sequence_count; i++)
		for (int32_t j = 0; j < plan->sequences[i].page_count; j++)
		{
			int32_t		page = plan->sequences[i].pages[j];

			assert_in_range(page, 0, device->info.page_count - 1);
			users[page]++;
		}
	for (int32_t i = 0; i < plan->copy_count; i++)
	{
		assert_in_range(plan->copies[i].count, 1, HYMT_PAGE_TOKENS - 1);
		assert_int_equal(users[plan->copies[i].to], 1);
	}
	for (int32_t i = 0; i < plan->row_count; i++)
	{
		const HymtRow *row = &plan->rows[i];

		assert_in_range(row->token, 0, VOCAB - 1);
		assert_in_range(row->sequence, 0, plan->sequence_count - 1);
		assert_true(row->position < plan->sequences[row->sequence].page_count * HYMT_PAGE_TOKENS);
		/* what is shared is never written */
		assert_int_equal(users[plan->sequences[row->sequence].pages[row->position / HYMT_PAGE_TOKENS]], 1);
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
	free(users);
}

static inline void *
copy_of(const void *data, size_t size)
{
	void	   *copy = malloc(size + 1);

	memcpy(copy, data, size);
	return copy;
}

static inline void
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

static inline uint32_t
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

static inline bool
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
	for (int32_t i = 0; i < plan->copy_count; i++)
		for (int32_t j = 0; j < HYMT_PAGE_TOKENS; j++)
			device->kv[plan->copies[i].to * HYMT_PAGE_TOKENS + j] = j < plan->copies[i].count ?
				device->kv[plan->copies[i].from * HYMT_PAGE_TOKENS + j] : -7;
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
			plan->samples[sample].temperature > 0 ?
			drawn_token(logits, plan->samples[sample].temperature, plan->samples[sample].top_k,
						plan->samples[sample].top_p, plan->samples[sample].random) :
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

static inline const HymtDeviceInfo *
fake_info(const HymtDevice *device)
{
	return &device->info;
}

static const HymtDeviceOps fake_ops = {.info = fake_info, .submit = fake_submit, .poll = fake_poll};

static inline HymtDevice
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

static inline void
fake_free(HymtDevice *device)
{
	assert_null(device->plan);
	free(device->kv);
	free(device->tokens);
	free(device->logits);
}

static inline HymtScheduler *
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

static inline uint32_t
hash_of(const int32_t *tokens, int32_t count)
{
	uint32_t	hash = 1;

	for (int32_t i = 0; i < count; i++)
		hash = mix(hash, tokens[i]);
	return hash;
}

static inline void
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
		if (request->sampling.temperature > 0)
			token = drawn_token(logits, request->sampling.temperature, request->sampling.top_k,
								request->sampling.top_p > 0 ? request->sampling.top_p : 1,
								hymt_random_at(request->sampling.seed, (uint64_t) count));
		else
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

static inline int32_t
pick(int32_t limit)
{
	random_state = random_state * 1664525u + 1013904223u;
	return (int32_t) ((random_state >> 8) % (uint32_t) limit);
}

/* A prompt of `count` random ids; static memory of the caller's. */
static inline HymtSequenceRequest
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

static inline void
submit(HymtScheduler *scheduler, const HymtSequenceRequest *request)
{
	HymtError	error;

	assert_true(hymt_scheduler_submit(scheduler, request, &error));
}

static inline void
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

#endif							/* HYMT_TEST_FAKE_DEVICE_H */
