/*
 * scheduler.c: continuous batching over paged KV memory.
 *
 * Runs in the engine, in one thread. Owns the requests, the step plans and the book-keeping of KV pages; it may not
 * look at weights, texts or files, and blocks only where it was told to wait for the device.
 *
 * Each call of hymt_scheduler_run() fetches the step under way, gives every sequence its token, retires those that are
 * finished, admits waiting ones in the order of their arrival, and submits the next step: first one row for each
 * sequence that is decoding, then as many prompt rows as fit, packed one behind the other and cut into chunks where a
 * prompt is longer than the room. So a request joins the very next step, and a sequence that ends makes room in the
 * step after.
 *
 * Where not all prompts fit, the prompt that was admitted first gets half of the rows, so that it always goes on; the
 * other half goes to those that need the fewest rows to be complete, so that short texts need not wait for long ones.
 *
 * Admission reserves all pages a sequence can ever need, for its prompt and max_new. That wastes pages where answers
 * stay short, but a sequence that runs never has to stop for want of memory: this version does not preempt. A
 * sequence never needs more than the context, and the device has pages for one whole context at least: whoever is first
 * in the queue is admitted at the latest when all others have ended.
 *
 * One plan is under way at a time, also on a device that could run ahead (info.run_ahead > 0).
 *
 * Trace: one JSON object a line and step, written when the step's result has come:
 *   {"step":7,"rows":[{"id":3,"token":17,"pos":40,"sample":true},…],"seconds":0.00213}
 * `id` is the caller's; "sample" stands only at rows whose logits are wanted.
 */
#include "scheduler.h"

#include <assert.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "kv_pages.h"

/*
 * A step should end within a quarter of a second, because cancellation, new requests and the worker's watch on the
 * engine all wait for its end. Prompt rows are what makes steps long, so only their number adapts.
 */
#define STEP_SECONDS_MAX 0.25
#define PROMPT_ROWS_MIN 16
#define PROMPT_ROWS_START 32	/* until the first steps have told how fast the device is */

typedef struct Sequence
{
	struct Sequence *next;
	uint64_t	id;
	int32_t    *tokens;			/* [prompt_count + max_new]: the prompt, then the answer */
	int32_t		prompt_count;
	int32_t		max_new;
	int32_t		answer_count;
	int32_t		computed;		/* positions whose keys and values are in the pages */
	int32_t		share;			/* prompt rows that it gets in the plan that is being built */
	float		penalty;
	const int32_t *stop_ids;	/* caller's */
	int			stop_count;
	int32_t    *pages;			/* [page_count], allotted while running */
	int32_t		page_count;
	int32_t    *seen;			/* distinct ids so far, only with a penalty */
	int32_t		seen_count;
	uint8_t    *seen_bits;		/* one bit per id of the vocabulary */
	float	   *last_logits;	/* [vocab], when wanted */
	int32_t    *argmax;			/* [prompt_count], when wanted */
	int32_t		adapter;
	void		(*release_adapter) (void *context, int32_t adapter);	/* NULL: has been called, or there is none */
	void	   *release_context;
	bool		cancelled;		/* part of the step under way; to be dropped when that ends */
	bool		finished;
	HymtFailure failure;
	HymtFinish	finish;
} Sequence;

typedef struct SequenceList
{
	Sequence   *first;
	Sequence   *last;
	int32_t		count;
} SequenceList;

/* What a sample of the plan is for. */
typedef struct SampleUse
{
	Sequence   *sequence;
	int32_t		position;
	bool		is_argmax;		/* the sampled token answers want_argmax */
	bool		is_answer;		/* the sampled token is the next token of the answer */
} SampleUse;

struct HymtScheduler
{
	const HymtDeviceOps *ops;
	HymtDevice *device;
	int			vocab;
	FILE	   *trace;
	int32_t		max_rows;
	int32_t		max_samples;
	int32_t		max_running;
	int32_t		max_context;
	int32_t		prompt_rows_limit;	/* per step; adapts between PROMPT_ROWS_MIN and max_rows */

	HymtPages	pages;
	SequenceList waiting;
	SequenceList running;		/* in order of admission */
	SequenceList finished;
	Sequence   *handed;			/* the answer given last; its memory is the caller's until the next call */

	bool		under_way;		/* the plan below is with the device */
	HymtPlan	plan;
	Sequence  **plan_members;	/* [plan.sequence_count] */
	SampleUse  *uses;			/* [plan.sample_count] */
	int32_t		plan_prompt_rows;
	bool		plan_was_limited;	/* more prompt rows were waiting than prompt_rows_limit let in */

	HymtSchedulerStats stats;
};

/* --- lists and sequences ---------------------------------------------------------------------------------------- */

static void
list_append(SequenceList *list, Sequence *sequence)
{
	sequence->next = NULL;
	if (list->last != NULL)
		list->last->next = sequence;
	else
		list->first = sequence;
	list->last = sequence;
	list->count++;
}

static Sequence *
list_take_first(SequenceList *list)
{
	Sequence   *sequence = list->first;

	if (sequence == NULL)
		return NULL;
	list->first = sequence->next;
	if (list->first == NULL)
		list->last = NULL;
	list->count--;
	return sequence;
}

/* The sequence is in no plan, and will not be. */
static void
release_adapter(Sequence *sequence)
{
	if (sequence->release_adapter != NULL)
		sequence->release_adapter(sequence->release_context, sequence->adapter);
	sequence->release_adapter = NULL;
}

static void
sequence_free(Sequence *sequence)
{
	if (sequence == NULL)
		return;
	release_adapter(sequence);
	free(sequence->tokens);
	free(sequence->pages);
	free(sequence->seen);
	free(sequence->seen_bits);
	free(sequence->last_logits);
	free(sequence->argmax);
	free(sequence);
}

static void
list_free(SequenceList *list)
{
	Sequence   *sequence;

	while ((sequence = list_take_first(list)) != NULL)
		sequence_free(sequence);
}

static void
see(Sequence *sequence, int32_t id)
{
	if (sequence->seen == NULL || (sequence->seen_bits[id / 8] & (1u << (id % 8))) != 0)
		return;
	sequence->seen_bits[id / 8] |= (uint8_t) (1u << (id % 8));
	sequence->seen[sequence->seen_count++] = id;
}

static bool
is_decoding(const Sequence *sequence)
{
	return sequence->computed >= sequence->prompt_count;
}

/* --- opening and closing ---------------------------------------------------------------------------------------- */

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
	scheduler->max_rows = info->max_rows;
	scheduler->max_samples = info->max_samples;
	/* Every running sequence must find a row and a sample in each step. */
	scheduler->max_running = info->max_rows < info->max_samples ? info->max_rows : info->max_samples;
	scheduler->prompt_rows_limit = info->max_rows < PROMPT_ROWS_START ? info->max_rows : PROMPT_ROWS_START;
	scheduler->max_context = info->max_context;
	if ((int64_t) info->page_count * HYMT_PAGE_TOKENS < info->max_context)
		scheduler->max_context = info->page_count * HYMT_PAGE_TOKENS;

	scheduler->plan.rows = calloc((size_t) scheduler->max_rows, sizeof(HymtRow));
	scheduler->plan.sequences = calloc((size_t) scheduler->max_running, sizeof(HymtPlanSequence));
	scheduler->plan.samples = calloc((size_t) scheduler->max_samples, sizeof(HymtSample));
	scheduler->plan_members = calloc((size_t) scheduler->max_running, sizeof(Sequence *));
	scheduler->uses = calloc((size_t) scheduler->max_samples, sizeof(SampleUse));
	if (scheduler->plan.rows == NULL || scheduler->plan.sequences == NULL || scheduler->plan.samples == NULL ||
		scheduler->plan_members == NULL || scheduler->uses == NULL ||
		!hymt_pages_init(&scheduler->pages, info->page_count))
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
	list_free(&scheduler->waiting);
	list_free(&scheduler->running);
	list_free(&scheduler->finished);
	sequence_free(scheduler->handed);
	hymt_pages_destroy(&scheduler->pages);
	free(scheduler->plan.rows);
	free(scheduler->plan.sequences);
	free(scheduler->plan.samples);
	free(scheduler->plan_members);
	free(scheduler->uses);
	free(scheduler);
}

/* --- requests --------------------------------------------------------------------------------------------------- */

static void
forget_handed(HymtScheduler *scheduler)
{
	sequence_free(scheduler->handed);
	scheduler->handed = NULL;
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
	Sequence   *sequence;
	int32_t		total;
	bool		enough = true;

	forget_handed(scheduler);
	if (!check_request(scheduler, request, error))
		return false;

	sequence = calloc(1, sizeof(*sequence));
	if (sequence == NULL)
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	total = request->prompt_count + request->max_new;
	sequence->id = request->id;
	sequence->prompt_count = request->prompt_count;
	sequence->max_new = request->max_new;
	sequence->penalty = request->repetition_penalty;
	sequence->stop_ids = request->stop_ids;
	sequence->stop_count = request->stop_count;
	/* The last token of the answer is never fed back, so it needs no place. */
	sequence->page_count = (total - (request->max_new > 0 ? 1 : 0) + HYMT_PAGE_TOKENS - 1) / HYMT_PAGE_TOKENS;

	/* All memory is taken here, so that nothing can fail while the sequence runs. */
	sequence->tokens = malloc(sizeof(int32_t) * (size_t) total);
	sequence->pages = malloc(sizeof(int32_t) * (size_t) sequence->page_count);
	enough = sequence->tokens != NULL && sequence->pages != NULL;
	if (request->repetition_penalty != 1)
	{
		sequence->seen = malloc(sizeof(int32_t) * (size_t) (total < scheduler->vocab ? total : scheduler->vocab));
		sequence->seen_bits = calloc((size_t) scheduler->vocab / 8 + 1, 1);
		enough = enough && sequence->seen != NULL && sequence->seen_bits != NULL;
	}
	if (request->want_last_logits)
	{
		sequence->last_logits = malloc(sizeof(float) * (size_t) scheduler->vocab);
		enough = enough && sequence->last_logits != NULL;
	}
	if (request->want_argmax)
	{
		sequence->argmax = malloc(sizeof(int32_t) * (size_t) request->prompt_count);
		enough = enough && sequence->argmax != NULL;
	}
	if (!enough)
	{
		sequence_free(sequence);
		return hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
	}

	memcpy(sequence->tokens, request->prompt, sizeof(int32_t) * (size_t) request->prompt_count);
	for (int32_t i = 0; i < request->prompt_count; i++)
		see(sequence, request->prompt[i]);
	/* Only now: the adapter of a request that is refused stays the caller's. */
	sequence->adapter = request->adapter;
	sequence->release_adapter = request->adapter != 0 ? request->release_adapter : NULL;
	sequence->release_context = request->release_context;
	list_append(&scheduler->waiting, sequence);
	return true;
}

/* Take the sequence with this id out of the list, or return NULL. */
static Sequence *
list_take_id(SequenceList *list, uint64_t id)
{
	Sequence   *before = NULL;

	for (Sequence *sequence = list->first; sequence != NULL; before = sequence, sequence = sequence->next)
	{
		if (sequence->id != id)
			continue;
		if (before != NULL)
			before->next = sequence->next;
		else
			list->first = sequence->next;
		if (list->last == sequence)
			list->last = before;
		list->count--;
		return sequence;
	}
	return NULL;
}

void
hymt_scheduler_cancel(HymtScheduler *scheduler, uint64_t id)
{
	Sequence   *sequence;

	forget_handed(scheduler);
	sequence = list_take_id(&scheduler->waiting, id);
	if (sequence == NULL)
		sequence = list_take_id(&scheduler->finished, id);
	if (sequence != NULL)
	{
		sequence_free(sequence);
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
	Sequence   *sequence;

	forget_handed(scheduler);
	sequence = list_take_first(&scheduler->finished);
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

void
hymt_scheduler_stats(const HymtScheduler *scheduler, HymtSchedulerStats *stats)
{
	*stats = scheduler->stats;
	stats->running = scheduler->running.count;
	stats->waiting = scheduler->waiting.count;
}

/* --- building a plan -------------------------------------------------------------------------------------------- */

static void
admit(HymtScheduler *scheduler)
{
	while (scheduler->waiting.first != NULL && scheduler->running.count < scheduler->max_running)
	{
		Sequence   *sequence = scheduler->waiting.first;

		if (!hymt_pages_take(&scheduler->pages, sequence->page_count, sequence->pages))
			break;				/* nobody behind it may overtake, or a long text could wait for ever */
		list_append(&scheduler->running, list_take_first(&scheduler->waiting));
	}
}

static int32_t
plan_add_member(HymtScheduler *scheduler, Sequence *sequence)
{
	HymtPlan   *plan = &scheduler->plan;
	HymtPlanSequence *member = &plan->sequences[plan->sequence_count];

	member->pages = sequence->pages;
	member->page_count = sequence->page_count;
	member->adapter = sequence->adapter;
	scheduler->plan_members[plan->sequence_count] = sequence;
	return plan->sequence_count++;
}

/* Add the row at `position` of a sequence, with its sample where one is wanted. The caller has made sure of room. */
static void
plan_add_row(HymtScheduler *scheduler, Sequence *sequence, int32_t member, int32_t position)
{
	HymtPlan   *plan = &scheduler->plan;
	HymtRow    *row = &plan->rows[plan->row_count];
	bool		is_last = position >= sequence->prompt_count - 1;
	bool		is_prompt = position < sequence->prompt_count;
	SampleUse	use = {.sequence = sequence, .position = position};
	HymtSample	sample = {.row = plan->row_count, .penalty = 1};

	row->token = sequence->tokens[position];
	row->previous_row = 0;
	row->position = position;
	row->sequence = member;
	plan->row_count++;

	use.is_argmax = is_prompt && sequence->argmax != NULL;
	use.is_answer = is_last && sequence->max_new > 0;
	if (use.is_argmax || use.is_answer)
		sample.flags |= HYMT_SAMPLE_TOKEN;
	if (is_prompt && is_last && sequence->last_logits != NULL)
		sample.flags |= HYMT_SAMPLE_LOGITS;
	if (use.is_answer && sequence->penalty != 1)
	{
		sample.penalty = sequence->penalty;
		sample.seen = sequence->seen;
		sample.seen_count = sequence->seen_count;
		/* One sample gives one token, here the penalised one: the plain argmax is then taken from the logits. */
		if (use.is_argmax)
			sample.flags |= HYMT_SAMPLE_LOGITS;
	}
	if (sample.flags == 0)
		return;
	plan->samples[plan->sample_count] = sample;
	scheduler->uses[plan->sample_count] = use;
	plan->sample_count++;
}

static bool
row_has_sample(const Sequence *sequence, int32_t position)
{
	return sequence->argmax != NULL || (position == sequence->prompt_count - 1 &&
										(sequence->max_new > 0 || sequence->last_logits != NULL));
}

/* What a plan has left for prompts while it is shared out. */
typedef struct Room
{
	int32_t		rows;
	int32_t		samples;
} Room;

static int32_t
rows_left(const Sequence *sequence)
{
	return sequence->prompt_count - sequence->computed - sequence->share;
}

/* Raise a sequence's share by up to `rows`, all of which its prompt has left; returns whether there was room for all. */
static bool
give_rows(Room *room, Sequence *sequence, int32_t rows)
{
	for (int32_t i = 0; i < rows; i++)
	{
		int32_t		samples = row_has_sample(sequence, sequence->computed + sequence->share) ? 1 : 0;

		if (room->rows < 1 || room->samples < samples)
			return false;
		room->rows--;
		room->samples -= samples;
		sequence->share++;
	}
	return true;
}

/* The first one admitted of those whose prompts are not complete. */
static Sequence *
oldest_prompt(const HymtScheduler *scheduler)
{
	Sequence   *sequence = scheduler->running.first;

	while (sequence != NULL && is_decoding(sequence))
		sequence = sequence->next;
	return sequence;
}

/* The one that needs the fewest rows more, and the first one admitted of those; NULL when none needs any. */
static Sequence *
shortest_prompt(const HymtScheduler *scheduler)
{
	Sequence   *shortest = NULL;

	for (Sequence *sequence = scheduler->running.first; sequence != NULL; sequence = sequence->next)
		if (!is_decoding(sequence) && rows_left(sequence) > 0 &&
			(shortest == NULL || rows_left(sequence) < rows_left(shortest)))
			shortest = sequence;
	return shortest;
}

/* Decide how many prompt rows each sequence gets; the decoding rows are in the plan already. */
static void
share_prompt_rows(HymtScheduler *scheduler)
{
	const HymtPlan *plan = &scheduler->plan;
	Room		room = {scheduler->max_rows - plan->row_count, scheduler->max_samples - plan->sample_count};
	bool		limited = room.rows > scheduler->prompt_rows_limit;
	Sequence   *sequence = oldest_prompt(scheduler);
	int32_t		half;

	if (sequence == NULL)
		return;
	if (limited)
		room.rows = scheduler->prompt_rows_limit;
	half = (room.rows + 1) / 2;
	give_rows(&room, sequence, half < rows_left(sequence) ? half : rows_left(sequence));
	while ((sequence = shortest_prompt(scheduler)) != NULL)
		if (!give_rows(&room, sequence, rows_left(sequence)))
			break;
	scheduler->plan_was_limited = limited && room.rows == 0 && sequence != NULL;
}

static void
plan_add_prompt(HymtScheduler *scheduler, Sequence *sequence)
{
	int32_t		member = plan_add_member(scheduler, sequence);

	for (int32_t i = 0; i < sequence->share; i++)
		plan_add_row(scheduler, sequence, member, sequence->computed + i);
	scheduler->plan_prompt_rows += sequence->share;
	sequence->share = 0;
}

static void
build_plan(HymtScheduler *scheduler)
{
	HymtPlan   *plan = &scheduler->plan;

	plan->row_count = 0;
	plan->sequence_count = 0;
	plan->sample_count = 0;
	scheduler->plan_prompt_rows = 0;
	scheduler->plan_was_limited = false;

	for (Sequence *sequence = scheduler->running.first; sequence != NULL; sequence = sequence->next)
		if (is_decoding(sequence))
			plan_add_row(scheduler, sequence, plan_add_member(scheduler, sequence), sequence->computed);
	share_prompt_rows(scheduler);
	for (Sequence *sequence = scheduler->running.first; sequence != NULL; sequence = sequence->next)
		if (sequence->share > 0)
			plan_add_prompt(scheduler, sequence);
}

static void
submit_plan(HymtScheduler *scheduler)
{
	/* The number of a step is that of its plan, so it counts from 1. */
	scheduler->plan.step++;
	scheduler->ops->submit(scheduler->device, &scheduler->plan);
	scheduler->under_way = true;
}

/* --- taking a result -------------------------------------------------------------------------------------------- */

static void
write_trace(HymtScheduler *scheduler, double seconds)
{
	const HymtPlan *plan = &scheduler->plan;
	int32_t		sample = 0;

	if (scheduler->trace == NULL)
		return;
	fprintf(scheduler->trace, "{\"step\":%llu,\"rows\":[", (unsigned long long) plan->step);
	for (int32_t i = 0; i < plan->row_count; i++)
	{
		bool		sampled = sample < plan->sample_count && plan->samples[sample].row == i;

		fprintf(scheduler->trace, "%s{\"id\":%llu,\"token\":%d,\"pos\":%d%s}", i > 0 ? "," : "",
				(unsigned long long) scheduler->plan_members[plan->rows[i].sequence]->id, (int) plan->rows[i].token,
				(int) plan->rows[i].position, sampled ? ",\"sample\":true" : "");
		if (sampled)
			sample++;
	}
	fprintf(scheduler->trace, "],\"seconds\":%.6g}\n", seconds);
	fflush(scheduler->trace);
}

static void
finish(Sequence *sequence, HymtFailure failure, HymtFinish reason)
{
	sequence->finished = true;
	sequence->failure = failure;
	sequence->finish = reason;
}

static bool
is_stop(const Sequence *sequence, int32_t token)
{
	for (int i = 0; i < sequence->stop_count; i++)
		if (sequence->stop_ids[i] == token)
			return true;
	return false;
}

static void
take_answer_token(HymtScheduler *scheduler, Sequence *sequence, int32_t token)
{
	sequence->tokens[sequence->prompt_count + sequence->answer_count++] = token;
	scheduler->stats.output_tokens++;
	see(sequence, token);
	if (is_stop(sequence, token))
		finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_STOP);
	else if (sequence->answer_count >= sequence->max_new)
		finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_LENGTH);
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
take_sample(HymtScheduler *scheduler, const HymtSample *sample, const SampleUse *use, int32_t token,
			const float *logits)
{
	Sequence   *sequence = use->sequence;

	if (sequence->finished)
		return;					/* an earlier row of it had failed */
	if (logits != NULL && sequence->last_logits != NULL)
		memcpy(sequence->last_logits, logits, sizeof(float) * (size_t) scheduler->vocab);
	if (use->is_argmax)
	{
		int32_t		plain = sample->penalty != 1 ? argmax_of(logits, scheduler->vocab) : token;

		sequence->argmax[use->position] = plain;
		if (plain == HYMT_TOKEN_NAN)
			token = HYMT_TOKEN_NAN;
	}
	if ((sample->flags & HYMT_SAMPLE_TOKEN) != 0 && token == HYMT_TOKEN_NAN)
		finish(sequence, HYMT_FAILURE_NUMERIC, HYMT_FINISH_NONE);
	else if (use->is_answer)
		take_answer_token(scheduler, sequence, token);
}

/* All rows of the plan are computed; without a wish for an answer, a whole prompt is the end. */
static void
advance_members(HymtScheduler *scheduler)
{
	const HymtPlan *plan = &scheduler->plan;

	for (int32_t i = 0; i < plan->row_count; i++)
	{
		Sequence   *sequence = scheduler->plan_members[plan->rows[i].sequence];

		sequence->computed = plan->rows[i].position + 1;
		if (sequence->computed == sequence->prompt_count && sequence->max_new == 0 && !sequence->finished)
			finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_LENGTH);
	}
}

/* Move ended sequences out of the running ones, and their pages back. */
static void
retire(HymtScheduler *scheduler)
{
	SequenceList running = scheduler->running;
	Sequence   *sequence;

	memset(&scheduler->running, 0, sizeof(scheduler->running));
	while ((sequence = list_take_first(&running)) != NULL)
	{
		if (!sequence->finished && !sequence->cancelled)
		{
			list_append(&scheduler->running, sequence);
			continue;
		}
		hymt_pages_give_back(&scheduler->pages, sequence->pages, sequence->page_count);
		release_adapter(sequence);
		if (sequence->cancelled)
			sequence_free(sequence);
		else
			list_append(&scheduler->finished, sequence);
	}
}

/*
 * A slow step halves the limit. A quick one raises it to what its own rate promises, which is safe because a row costs
 * no more among many than among few; a quick one that was limited doubles it at least.
 */
static void
adapt_prompt_rows(HymtScheduler *scheduler, double seconds)
{
	double		limit = scheduler->prompt_rows_limit;

	if (seconds > STEP_SECONDS_MAX && scheduler->plan_prompt_rows > PROMPT_ROWS_MIN)
	{
		limit = scheduler->plan_prompt_rows / 2;
		if (limit < PROMPT_ROWS_MIN)
			limit = PROMPT_ROWS_MIN;
	}
	else if (seconds < STEP_SECONDS_MAX / 2)
	{
		double		promised = scheduler->plan.row_count * STEP_SECONDS_MAX / (seconds > 1e-6 ? seconds : 1e-6);

		if (scheduler->plan_was_limited)
			limit *= 2;
		if (limit < promised)
			limit = promised;
	}
	scheduler->prompt_rows_limit = limit < scheduler->max_rows ? (int32_t) limit : scheduler->max_rows;
}

static void
take_result(HymtScheduler *scheduler, const HymtStepResult *result)
{
	const HymtPlan *plan = &scheduler->plan;
	int32_t		logit_row = 0;

	assert(result->step == plan->step);
	scheduler->under_way = false;
	write_trace(scheduler, result->seconds);
	scheduler->stats.steps++;
	scheduler->stats.rows += (uint64_t) plan->row_count;
	scheduler->stats.sequence_steps += (uint64_t) plan->sequence_count;
	scheduler->stats.input_tokens += (uint64_t) scheduler->plan_prompt_rows;
	for (int32_t i = 0; i < plan->sample_count; i++)
	{
		const float *logits = NULL;

		if ((plan->samples[i].flags & HYMT_SAMPLE_LOGITS) != 0)
			logits = result->logits + (size_t) scheduler->vocab * (size_t) logit_row++;
		take_sample(scheduler, &plan->samples[i], &scheduler->uses[i], result->tokens[i], logits);
	}
	advance_members(scheduler);
	adapt_prompt_rows(scheduler, result->seconds);
}

bool
hymt_scheduler_run(HymtScheduler *scheduler, bool wait)
{
	forget_handed(scheduler);
	if (scheduler->under_way)
	{
		HymtStepResult result;

		if (!scheduler->ops->poll(scheduler->device, wait, &result))
			return true;
		take_result(scheduler, &result);
	}
	retire(scheduler);
	admit(scheduler);
	if (scheduler->running.first == NULL)
		return false;
	build_plan(scheduler);
	submit_plan(scheduler);
	return true;
}
