/*
 * scheduler.c: continuous batching over paged KV memory.
 *
 * Runs in the engine, in one thread. Owns the requests, from submission to their answers, and who has pages; what a step
 * computes is decided in step_plan.c, which pages hold what in prefix_cache.c. It may not look at weights, texts or
 * files, and blocks only where it was told to wait for the device.
 *
 * Each call of hymt_scheduler_run() fetches the step under way, gives every sequence its token, retires those that are
 * finished, gives a page to those that need one more, admits waiting ones in the order of their arrival, and submits the
 * next step. So a request joins the very next step, and a sequence that ends makes room in the step after.
 *
 * A sequence is admitted when there are pages for its tokens and one for each sequence that runs and may grow, and takes
 * further ones as its answer does. When none is left, not even one that nobody uses, the sequence admitted last loses all of its
 * pages and goes back to the head of the queue; its tokens are computed again, with the same result, as it does not
 * matter in which step a position is computed. A sequence never needs more than the context, and the device has pages
 * for one whole context at least: the oldest always goes on.
 *
 * One plan is under way at a time, also on a device that could run ahead (info.run_ahead > 0).
 *
 * Trace: one JSON object a line and step, written when the step's result has come:
 *   {"step":7,"rows":[{"id":3,"token":17,"pos":40,"sample":true},…],"copies":[{"from":5,"to":9,"count":3}],
 *    "seconds":0.00213}
 * `id` is the caller's; "sample" stands only at rows whose logits are wanted, "copies" only where pages were copied.
 */
#include "scheduler.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pace.h"
#include "prefix_cache.h"
#include "sequence.h"
#include "shortage.h"
#include "step_plan.h"

/*
 * Pages that nobody uses are remembered up to so many bytes, or up to so many pages where that is more. Beyond that they would
 * be touched in vain: what is hot are the instructions, a page or two for each language.
 */
#define REMEMBERED_BYTES (INT64_C(128) << 20)
#define REMEMBERED_PAGES_MIN 64

struct HymtScheduler
{
	const HymtDeviceOps *ops;
	HymtDevice *device;
	int			vocab;
	FILE	   *trace;
	double		(*clock) (void);
	int32_t		max_context;
	HymtPace	pace;

	HymtPrefixCache cache;
	HymtSequenceList waiting;
	HymtSequenceList running;	/* in order of admission */
	HymtSequenceList finished;
	HymtSequence *handed;		/* the answer given last; its memory is the caller's until the next call */

	bool		small_device;	/* hymt_scheduler_note_shortage() was called */
	bool		is_short;		/* memory is, in this step */
	bool		under_way;		/* the plan is with the device */
	HymtStepPlan step;

	HymtSchedulerStats stats;
};

static double
monotonic_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double) now.tv_sec + 1e-9 * (double) now.tv_nsec;
}

/* --- opening and closing ---------------------------------------------------------------------------------------- */

static int32_t
remembered_pages(const HymtDeviceInfo *info)
{
	int64_t		pages = REMEMBERED_BYTES / info->page_bytes;

	if (pages < REMEMBERED_PAGES_MIN)
		pages = REMEMBERED_PAGES_MIN;
	return pages < info->page_count ? (int32_t) pages : info->page_count;
}

HymtScheduler *
hymt_scheduler_open(const HymtDeviceOps *ops, HymtDevice *device, int vocab, FILE *trace, HymtError *error)
{
	const HymtDeviceInfo *info = ops->info(device);
	HymtScheduler *scheduler = calloc(1, sizeof(*scheduler));

	if (scheduler == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
		return NULL;
	}
	scheduler->ops = ops;
	scheduler->device = device;
	scheduler->vocab = vocab;
	scheduler->trace = trace;
	scheduler->clock = monotonic_seconds;
	scheduler->max_context = info->max_context;
	if ((int64_t) info->page_count * HYMT_PAGE_TOKENS < info->max_context)
		scheduler->max_context = info->page_count * HYMT_PAGE_TOKENS;
	hymt_pace_init(&scheduler->pace, info->max_rows);
	if (!hymt_step_plan_init(&scheduler->step, info->max_rows, info->max_samples) ||
		!hymt_prefix_init(&scheduler->cache, info->page_count, remembered_pages(info)))
	{
		hymt_scheduler_close(scheduler);
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
		return NULL;
	}
	return scheduler;
}

void
hymt_scheduler_close(HymtScheduler *scheduler)
{
	if (scheduler == NULL)
		return;
	if (scheduler->under_way)
	{
		HymtStepResult result;

		/* The device reads the plan's memory until its result has been fetched. */
		scheduler->ops->poll(scheduler->device, true, &result);
	}
	hymt_sequences_free(&scheduler->waiting);
	hymt_sequences_free(&scheduler->running);
	hymt_sequences_free(&scheduler->finished);
	hymt_sequence_free(scheduler->handed);
	hymt_prefix_destroy(&scheduler->cache);
	hymt_step_plan_destroy(&scheduler->step);
	free(scheduler);
}

void
hymt_scheduler_set_clock(HymtScheduler *scheduler, double (*clock) (void))
{
	scheduler->clock = clock;
}

void
hymt_scheduler_note_shortage(HymtScheduler *scheduler)
{
	scheduler->small_device = true;
}

void
hymt_scheduler_stats(const HymtScheduler *scheduler, HymtSchedulerStats *stats)
{
	*stats = scheduler->stats;
	stats->running = scheduler->running.count;
	stats->waiting = scheduler->waiting.count;
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static void
forget_handed(HymtScheduler *scheduler)
{
	hymt_sequence_free(scheduler->handed);
	scheduler->handed = NULL;
}

static bool
check_sampling(const HymtSampling *sampling, HymtError *error)
{
	if (!(sampling->temperature >= 0) || !isfinite(sampling->temperature))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "the temperature must be a number from 0");
	if (sampling->top_k < 0)
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "top_k must be an integer from 0");
	if (!(sampling->top_p >= 0 && sampling->top_p <= 1))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "top_p must be a number from 0 to 1");
	return true;
}

static bool
check_request(const HymtScheduler *scheduler, const HymtSequenceRequest *request, HymtError *error)
{
	if (request->prompt_count < 1)
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "a prompt needs at least one token");
	if (request->max_new < 0)
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "the number of new tokens is negative");
	if (!(request->repetition_penalty > 0) || !isfinite(request->repetition_penalty))
		return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "the repetition penalty must be a positive number");
	if (!check_sampling(&request->sampling, error))
		return false;
	for (int32_t i = 0; i < request->prompt_count; i++)
		if (request->prompt[i] < 0 || request->prompt[i] >= scheduler->vocab)
			return hymt_fail(error, HYMT_FAILURE_BAD_REQUEST, "token id %d is not in 0 ... %d",
							 (int) request->prompt[i], scheduler->vocab - 1);
	if ((int64_t) request->prompt_count + request->max_new > scheduler->max_context)
		return hymt_fail(error, HYMT_FAILURE_TOO_LONG,
						 "%d prompt tokens and up to %d new tokens exceed the context of %d tokens",
						 (int) request->prompt_count, (int) request->max_new, (int) scheduler->max_context);
	return true;
}

bool
hymt_scheduler_submit(HymtScheduler *scheduler, const HymtSequenceRequest *request, HymtError *error)
{
	HymtSequence *sequence;

	forget_handed(scheduler);
	if (!check_request(scheduler, request, error))
		return false;
	sequence = hymt_sequence_new(request, scheduler->vocab);
	if (sequence == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	hymt_sequences_append(&scheduler->waiting, sequence);
	return true;
}

void
hymt_scheduler_cancel(HymtScheduler *scheduler, uint64_t id)
{
	HymtSequence *sequence;

	forget_handed(scheduler);
	sequence = hymt_sequences_take_id(&scheduler->waiting, id);
	if (sequence == NULL)
		sequence = hymt_sequences_take_id(&scheduler->finished, id);
	if (sequence != NULL)
	{
		hymt_sequence_free(sequence);
		return;
	}
	/* The device may be reading its pages and its list of seen ids: it goes when the step under way has ended. */
	for (sequence = scheduler->running.first; sequence != NULL; sequence = sequence->next)
		if (sequence->id == id)
			sequence->cancelled = true;
}

bool
hymt_scheduler_answer(HymtScheduler *scheduler, HymtSequenceAnswer *answer)
{
	HymtSequence *sequence;

	forget_handed(scheduler);
	sequence = hymt_sequences_take_first(&scheduler->finished);
	if (sequence == NULL)
		return false;
	scheduler->handed = sequence;
	memset(answer, 0, sizeof(*answer));
	answer->id = sequence->id;
	answer->failure = sequence->failure;
	answer->finish = sequence->finish;
	answer->tokens = sequence->tokens + sequence->prompt_count;
	answer->token_count = sequence->answer_count;
	answer->prompt_count = sequence->prompt_count;
	answer->adapter = sequence->adapter;
	answer->last_logits = sequence->last_logits;
	answer->argmax = sequence->argmax;
	return true;
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

static int32_t
pages_for(int32_t tokens)
{
	return (tokens + HYMT_PAGE_TOKENS - 1) / HYMT_PAGE_TOKENS;
}

/*
 * Tell the cache of positions computed, the first `count` of them, so that others find them. Pages turn out to be
 * somebody else's where both have computed the same; what they hold is the same, too.
 */
static void
make_known(HymtScheduler *scheduler, HymtSequence *sequence, int32_t count)
{
	while (sequence->known < count)
	{
		int32_t		index = sequence->known / HYMT_PAGE_TOKENS;
		int32_t		first = index * HYMT_PAGE_TOKENS;
		int32_t		held = count - first < HYMT_PAGE_TOKENS ? count - first : HYMT_PAGE_TOKENS;

		sequence->pages[index] = hymt_prefix_know(&scheduler->cache, index > 0 ? sequence->pages[index - 1] :
												  HYMT_PREFIX_ROOT(sequence->adapter), sequence->pages[index],
												  sequence->tokens + first, held);
		sequence->known = first + held;
	}
}

static void
give_back_pages(HymtScheduler *scheduler, HymtSequence *sequence, double now)
{
	hymt_prefix_release(&scheduler->cache, sequence->pages, sequence->page_count, now);
	sequence->page_count = 0;
	sequence->known = 0;
	sequence->computed = 0;
	sequence->begun = false;
	sequence->copy_from = -1;
}

/* Put the sequence admitted last back to the head of the queue. What it has computed stays known as long as it can. */
static void
preempt_youngest(HymtScheduler *scheduler, double now)
{
	HymtSequence *sequence = hymt_sequences_take_last(&scheduler->running);

	if (sequence->begun)
		make_known(scheduler, sequence, sequence->computed);
	give_back_pages(scheduler, sequence, now);
	hymt_sequences_prepend(&scheduler->waiting, sequence);
	scheduler->stats.preemptions++;
}

/* A page for each sequence whose next token has none, the oldest first. False: somebody had to make room. */
static bool
grow(HymtScheduler *scheduler, double now)
{
	bool		enough = true;

	for (HymtSequence *sequence = scheduler->running.first; sequence != NULL; sequence = sequence->next)
		while (sequence->page_count < pages_for(hymt_sequence_token_count(sequence)))
		{
			HymtSequence *youngest = scheduler->running.last;

			if (hymt_prefix_take(&scheduler->cache, 1, sequence->pages + sequence->page_count))
			{
				sequence->page_count++;
				continue;
			}
			preempt_youngest(scheduler, now);
			enough = false;
			if (youngest == sequence)
				return enough;	/* it was the last, too */
		}
	return enough;
}

/* Running sequences that may want another page. */
static int32_t
growing(const HymtScheduler *scheduler)
{
	int32_t		count = 0;

	for (const HymtSequence *sequence = scheduler->running.first; sequence != NULL; sequence = sequence->next)
		if (sequence->page_count < sequence->page_capacity)
			count++;
	return count;
}

/* Pages for a sequence that waits: shared ones as far as there are, the others empty. */
static bool
take_pages(HymtScheduler *scheduler, HymtSequence *sequence, double now)
{
	int32_t		wanted = pages_for(hymt_sequence_token_count(sequence));
	int32_t		spare = growing(scheduler);

	hymt_step_plan_share_pages(sequence, &scheduler->cache);
	if (wanted - sequence->page_count + spare <= hymt_prefix_available(&scheduler->cache) &&
		hymt_prefix_take(&scheduler->cache, wanted - sequence->page_count, sequence->pages + sequence->page_count))
	{
		sequence->page_count = wanted;
		sequence->searched = UINT64_MAX;
		return true;
	}
	give_back_pages(scheduler, sequence, now);
	return false;
}

static void
admit(HymtScheduler *scheduler, double now)
{
	while (scheduler->waiting.first != NULL && scheduler->running.count < scheduler->step.max_running)
	{
		if (!take_pages(scheduler, scheduler->waiting.first, now))
			break;				/* nobody behind it may overtake, or a long text could wait for ever */
		hymt_sequences_append(&scheduler->running, hymt_sequences_take_first(&scheduler->waiting));
	}
}

/* Move ended sequences out of the running ones, and their pages back. */
static void
retire(HymtScheduler *scheduler, double now)
{
	HymtSequenceList running = scheduler->running;
	HymtSequence *sequence;

	memset(&scheduler->running, 0, sizeof(scheduler->running));
	while ((sequence = hymt_sequences_take_first(&running)) != NULL)
	{
		if (!sequence->finished && !sequence->cancelled)
		{
			hymt_sequences_append(&scheduler->running, sequence);
			continue;
		}
		give_back_pages(scheduler, sequence, now);
		hymt_sequence_release_adapter(sequence);
		if (sequence->cancelled)
			hymt_sequence_free(sequence);
		else
			hymt_sequences_append(&scheduler->finished, sequence);
	}
}

/* --- taking a result -------------------------------------------------------------------------------------------- */

static void
write_copies(FILE *trace, const HymtPlan *plan)
{
	for (int32_t i = 0; i < plan->copy_count; i++)
		fprintf(trace, "%s{\"from\":%d,\"to\":%d,\"count\":%d}%s", i == 0 ? ",\"copies\":[" : ",",
				(int) plan->copies[i].from, (int) plan->copies[i].to, (int) plan->copies[i].count,
				i == plan->copy_count - 1 ? "]" : "");
}

static void
write_trace(HymtScheduler *scheduler, double seconds)
{
	const HymtPlan *plan = &scheduler->step.plan;
	int32_t		sample = 0;

	if (scheduler->trace == NULL)
		return;
	fprintf(scheduler->trace, "{\"step\":%llu,\"rows\":[", (unsigned long long) plan->step);
	for (int32_t i = 0; i < plan->row_count; i++)
	{
		bool		sampled = sample < plan->sample_count && plan->samples[sample].row == i;

		fprintf(scheduler->trace, "%s{\"id\":%llu,\"token\":%d,\"pos\":%d%s}", i > 0 ? "," : "",
				(unsigned long long) scheduler->step.members[plan->rows[i].sequence]->id, (int) plan->rows[i].token,
				(int) plan->rows[i].position, sampled ? ",\"sample\":true" : "");
		if (sampled)
			sample++;
	}
	fputc(']', scheduler->trace);
	write_copies(scheduler->trace, plan);
	fprintf(scheduler->trace, ",\"seconds\":%.6g}\n", seconds);
	fflush(scheduler->trace);
}

/* The lowest id with the largest logit, or HYMT_TOKEN_NAN. */
static int32_t
argmax_of(const float *logits, int vocab)
{
	int32_t		best = 0;

	for (int32_t i = 0; i < vocab; i++)
	{
		if (isnan(logits[i]))
			return HYMT_TOKEN_NAN;
		if (logits[i] > logits[best])
			best = i;
	}
	return best;
}

/* `logits`: those of this sample, or NULL when it had none. */
static void
take_sample(HymtScheduler *scheduler, const HymtSample *sample, const HymtSampleUse *use, int32_t token,
			const float *logits)
{
	HymtSequence *sequence = use->sequence;

	if (sequence->finished)
		return;					/* an earlier row of it had failed */
	if (logits != NULL && sequence->last_logits != NULL && use->position == sequence->prompt_count - 1)
	{
		memcpy(sequence->last_logits, logits, sizeof(float) * (size_t) scheduler->vocab);
		sequence->has_last_logits = true;
	}
	if (use->is_argmax)
	{
		bool		plain = sample->penalty == 1 && !(sample->temperature > 0);
		int32_t		best = plain ? token : argmax_of(logits, scheduler->vocab);

		sequence->argmax[use->position] = best;
		sequence->argmax_count = use->position + 1;
		if (best == HYMT_TOKEN_NAN)
			token = HYMT_TOKEN_NAN;
	}
	if ((sample->flags & HYMT_SAMPLE_TOKEN) != 0 && token == HYMT_TOKEN_NAN)
		hymt_sequence_finish(sequence, HYMT_FAILURE_NUMERIC, HYMT_FINISH_NONE);
	else if (use->is_answer)
	{
		hymt_sequence_take_token(sequence, token);
		scheduler->stats.output_tokens++;
		if (sequence->token_taken != NULL && !sequence->cancelled)
			sequence->token_taken(sequence->token_context, token);
	}
}

static void
count_input(HymtScheduler *scheduler, HymtSequence *sequence)
{
	int32_t		computed = sequence->computed < sequence->prompt_count ? sequence->computed : sequence->prompt_count;

	if (computed <= sequence->counted)
		return;
	scheduler->stats.input_tokens += (uint64_t) (computed - sequence->counted);
	sequence->counted = computed;
}

/* All rows of the plan are computed; without a wish for an answer, a whole prompt is the end. */
static void
advance_members(HymtScheduler *scheduler)
{
	const HymtPlan *plan = &scheduler->step.plan;

	for (int32_t i = 0; i < plan->row_count; i++)
		scheduler->step.members[plan->rows[i].sequence]->computed = plan->rows[i].position + 1;
	for (int32_t i = 0; i < plan->sequence_count; i++)
	{
		HymtSequence *sequence = scheduler->step.members[i];

		count_input(scheduler, sequence);
		/* Answers are seldom the beginning of anything. */
		make_known(scheduler, sequence,
				   sequence->computed < sequence->prompt_count ? sequence->computed : sequence->prompt_count);
		if (sequence->computed == sequence->prompt_count && sequence->max_new == 0 && !sequence->finished)
			hymt_sequence_finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_LENGTH);
	}
}

static void
take_result(HymtScheduler *scheduler, const HymtStepResult *result, double now)
{
	const HymtPlan *plan = &scheduler->step.plan;
	int32_t		logit_row = 0;

	assert(result->step == plan->step);
	scheduler->under_way = false;
	write_trace(scheduler, result->seconds);
	scheduler->stats.steps++;
	if (scheduler->is_short || scheduler->small_device)
		scheduler->stats.degraded_steps++;
	scheduler->stats.rows += (uint64_t) plan->row_count;
	scheduler->stats.sequence_steps += (uint64_t) plan->sequence_count;
	scheduler->stats.reused_tokens += scheduler->step.reused;
	hymt_step_plan_end(&scheduler->step, &scheduler->cache, now);
	for (int32_t i = 0; i < plan->sample_count; i++)
	{
		const float *logits = NULL;

		if ((plan->samples[i].flags & HYMT_SAMPLE_LOGITS) != 0)
			logits = result->logits + (size_t) scheduler->vocab * (size_t) logit_row++;
		take_sample(scheduler, &plan->samples[i], &scheduler->step.uses[i], result->tokens[i], logits);
	}
	advance_members(scheduler);
	hymt_pace_adapt(&scheduler->pace, &scheduler->step.step, result->seconds);
}

/* --- steps ------------------------------------------------------------------------------------------------------- */

static void
submit_plan(HymtScheduler *scheduler)
{
	/* The number of a step is that of its plan, so it counts from 1. */
	scheduler->step.plan.step++;
	scheduler->ops->submit(scheduler->device, &scheduler->step.plan);
	scheduler->under_way = true;
}

static void
watch_memory(HymtScheduler *scheduler)
{
	bool		before = scheduler->is_short;

	scheduler->is_short = hymt_shortage_now();
	if (scheduler->is_short && !before)
		fprintf(stderr, "hymt-engine: memory is short: steps are smaller until there is more\n");
}

bool
hymt_scheduler_run(HymtScheduler *scheduler, bool wait)
{
	HymtPace	pace;
	double		now;

	forget_handed(scheduler);
	now = scheduler->clock();
	if (scheduler->under_way)
	{
		HymtStepResult result;

		if (!scheduler->ops->poll(scheduler->device, wait, &result))
			return true;
		now = scheduler->clock();
		take_result(scheduler, &result, now);
	}
	retire(scheduler, now);
	hymt_prefix_expire(&scheduler->cache, now - HYMT_PREFIX_TTL);
	watch_memory(scheduler);
	/* While memory is short, what runs is finished first: what comes of it gives memory back. */
	if (grow(scheduler, now) && (!scheduler->is_short || scheduler->running.first == NULL))
		admit(scheduler, now);
	if (scheduler->running.first == NULL)
		return false;
	pace = scheduler->pace;
	if (scheduler->is_short && pace.prompt_rows > HYMT_PACE_ROWS_MIN)
		pace.prompt_rows = HYMT_PACE_ROWS_MIN;
	hymt_step_plan_build(&scheduler->step, &scheduler->running, &scheduler->cache, &pace, now);
	submit_plan(scheduler);
	return true;
}
