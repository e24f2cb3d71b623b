/*
 * step_plan.c: building step plans.
 *
 * Runs in the engine, in the scheduler's thread. Owns the plan's memory; takes no pages but those that others have
 * computed already.
 *
 * A plan has first one row for each sequence that decodes, then as many prompt rows as fit, packed one behind the other
 * and cut into chunks where a prompt is longer than the room. Where not all prompts fit, the one that was admitted first
 * gets half of the rows, so that it always goes on; the other half goes to those that need the fewest rows to be
 * complete, so that short texts need not wait for long ones.
 *
 * What several prompts begin with is computed once: a sequence that would begin with rows which another one has in this
 * plan waits for the next, and finds them in the cache.
 */
#include "step_plan.h"

#include <stdlib.h>
#include <string.h>

bool
hymt_step_plan_init(HymtStepPlan *step, int32_t max_rows, int32_t max_samples)
{
	memset(step, 0, sizeof(*step));
	step->max_rows = max_rows;
	step->max_samples = max_samples;
	step->max_running = max_rows < max_samples ? max_rows : max_samples;
	step->plan.rows = calloc((size_t) max_rows, sizeof(HymtRow));
	step->plan.sequences = calloc((size_t) step->max_running, sizeof(HymtPlanSequence));
	step->plan.samples = calloc((size_t) max_samples, sizeof(HymtSample));
	step->plan.copies = calloc((size_t) step->max_running, sizeof(HymtPageCopy));
	step->members = calloc((size_t) step->max_running, sizeof(HymtSequence *));
	step->uses = calloc((size_t) max_samples, sizeof(HymtSampleUse));
	return step->plan.rows != NULL && step->plan.sequences != NULL && step->plan.samples != NULL &&
		step->plan.copies != NULL && step->members != NULL && step->uses != NULL;
}

void
hymt_step_plan_destroy(HymtStepPlan *step)
{
	free(step->plan.rows);
	free(step->plan.sequences);
	free(step->plan.samples);
	free(step->plan.copies);
	free(step->members);
	free(step->uses);
	memset(step, 0, sizeof(*step));
}

/* --- what others have computed ----------------------------------------------------------------------------------- */

static int32_t
page_before(const HymtSequence *sequence, int32_t index)
{
	return index > 0 ? sequence->pages[index - 1] : HYMT_PREFIX_ROOT(sequence->adapter);
}

/* The page of the cache that goes on where `at` positions are had; *matched of its tokens are the sequence's. */
static int32_t
find_next(const HymtSequence *sequence, const HymtPrefixCache *cache, int32_t at, int32_t *matched)
{
	return hymt_prefix_find(cache, page_before(sequence, at / HYMT_PAGE_TOKENS), sequence->tokens + at,
							hymt_sequence_may_share(sequence) - at, matched);
}

void
hymt_step_plan_share_pages(HymtSequence *sequence, HymtPrefixCache *cache)
{
	int32_t		matched;
	int32_t		page;

	while ((page = find_next(sequence, cache, sequence->known, &matched)) >= 0 && matched == HYMT_PAGE_TOKENS)
	{
		hymt_prefix_use(cache, page);
		sequence->pages[sequence->page_count++] = page;
		sequence->known += HYMT_PAGE_TOKENS;
	}
	sequence->computed = sequence->known;
}

/* The same for one that has not begun, but has pages, still empty; and a page to copy the beginning of. */
static void
search_again(HymtSequence *sequence, HymtPrefixCache *cache, double now)
{
	int32_t		matched;
	int32_t		page;

	if (sequence->searched == cache->version)
		return;
	sequence->searched = cache->version;
	while ((page = find_next(sequence, cache, sequence->known, &matched)) >= 0 && matched == HYMT_PAGE_TOKENS)
	{
		int32_t    *own = &sequence->pages[sequence->known / HYMT_PAGE_TOKENS];

		hymt_prefix_use(cache, page);
		hymt_prefix_release(cache, own, 1, now);
		*own = page;
		sequence->known += HYMT_PAGE_TOKENS;
	}
	sequence->copy_from = page;
	sequence->computed = sequence->known + matched;
}

/* Whether another sequence has rows in this plan for the position that this one begins with, after the same tokens. */
static bool
others_compute(const HymtSequence *sequence, const HymtSequenceList *running)
{
	int32_t		at = sequence->computed;

	if (sequence->begun || at >= hymt_sequence_may_share(sequence))
		return false;
	for (const HymtSequence *other = running->first; other != NULL; other = other->next)
		if (other->share > 0 && other != sequence && other->adapter == sequence->adapter &&
			other->computed <= at && at < other->computed + other->share && at < other->prompt_count &&
			other->tokens[at] == sequence->tokens[at] &&
			memcmp(other->tokens, sequence->tokens, sizeof(int32_t) * (size_t) at) == 0)
			return true;
	return false;
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

static int32_t
add_member(HymtStepPlan *step, HymtSequence *sequence)
{
	HymtPlan   *plan = &step->plan;
	HymtPlanSequence *member = &plan->sequences[plan->sequence_count];

	member->pages = sequence->pages;
	member->page_count = sequence->page_count;
	member->adapter = sequence->adapter;
	step->members[plan->sequence_count] = sequence;
	return plan->sequence_count++;
}

/* What is wanted of the row at a position; flags 0: nothing. */
static HymtSample
wish_at(const HymtSequence *sequence, int32_t position, HymtSampleUse *use)
{
	HymtSample	sample = {.penalty = 1};
	bool		is_last = position == hymt_sequence_token_count(sequence) - 1;

	*use = (HymtSampleUse)
	{
		.sequence = (HymtSequence *) sequence,.position = position,
			.is_argmax = sequence->argmax != NULL && position < sequence->prompt_count &&
			position >= sequence->argmax_count,
			.is_answer = is_last && sequence->max_new > 0
	};
	if (use->is_argmax || use->is_answer)
		sample.flags |= HYMT_SAMPLE_TOKEN;
	if (position == sequence->prompt_count - 1 && sequence->last_logits != NULL && !sequence->has_last_logits)
		sample.flags |= HYMT_SAMPLE_LOGITS;
	if (!use->is_answer)
		return sample;
	if (sequence->penalty != 1)
	{
		sample.penalty = sequence->penalty;
		sample.seen = sequence->seen;
		sample.seen_count = sequence->seen_count;
	}
	if (sequence->sampling.temperature > 0)
	{
		sample.temperature = sequence->sampling.temperature;
		sample.top_k = sequence->sampling.top_k;
		sample.top_p = sequence->sampling.top_p > 0 ? sequence->sampling.top_p : 1;
		sample.random = hymt_random_at(sequence->sampling.seed, (uint64_t) position + 1);
	}
	/* One sample gives one token, here the answer's: the plain argmax is then taken from the logits. */
	if (use->is_argmax && (sample.penalty != 1 || sample.temperature > 0))
		sample.flags |= HYMT_SAMPLE_LOGITS;
	return sample;
}

/* Add the row at `position` of a sequence, with its sample where one is wanted. The caller has made sure of room. */
static void
add_row(HymtStepPlan *step, HymtSequence *sequence, int32_t member, int32_t position)
{
	HymtPlan   *plan = &step->plan;
	HymtSampleUse use;
	HymtSample	sample = wish_at(sequence, position, &use);

	sample.row = plan->row_count;
	plan->rows[plan->row_count++] = (HymtRow)
	{
		.token = sequence->tokens[position],.position = position,.sequence = member
	};
	if (sample.flags == 0)
		return;
	plan->samples[plan->sample_count] = sample;
	step->uses[plan->sample_count] = use;
	plan->sample_count++;
}

/* The first rows of a sequence since it was admitted are about to be added. */
static void
begin(HymtStepPlan *step, HymtSequence *sequence, HymtPrefixCache *cache)
{
	HymtPlan   *plan = &step->plan;

	sequence->begun = true;
	step->reused += (uint64_t) sequence->computed;
	if (sequence->copy_from < 0)
		return;
	hymt_prefix_use(cache, sequence->copy_from);
	plan->copies[plan->copy_count++] = (HymtPageCopy)
	{
		.from = sequence->copy_from,.to = sequence->pages[sequence->known / HYMT_PAGE_TOKENS],
			.count = sequence->computed - sequence->known
	};
	sequence->copy_from = -1;
}

/* --- decoding rows ----------------------------------------------------------------------------------------------- */

/* One pass over those that were passed over so many times. */
static void
add_decoding(HymtStepPlan *step, HymtSequenceList *running, HymtPrefixCache *cache, const HymtPace *pace,
			 int32_t passed_over)
{
	for (HymtSequence *sequence = running->first; sequence != NULL; sequence = sequence->next)
	{
		if (!hymt_sequence_is_decoding(sequence) || sequence->passed_over != passed_over || sequence->share > 0)
			continue;
		if (step->step.decode_rows >= pace->decode_rows)
		{
			step->step.decodes_limited = true;
			return;
		}
		if (!sequence->begun)
			begin(step, sequence, cache);
		add_row(step, sequence, add_member(step, sequence), sequence->computed);
		step->step.decode_rows++;
		sequence->share = 1;
	}
}

/* Those that have waited longest first, should there not be room for all. */
static void
add_all_decoding(HymtStepPlan *step, HymtSequenceList *running, HymtPrefixCache *cache, const HymtPace *pace)
{
	int32_t		longest = 0;

	for (HymtSequence *sequence = running->first; sequence != NULL; sequence = sequence->next)
		if (hymt_sequence_is_decoding(sequence) && sequence->passed_over > longest)
			longest = sequence->passed_over;
	for (int32_t passed_over = longest; passed_over >= 0; passed_over--)
		add_decoding(step, running, cache, pace, passed_over);
	for (HymtSequence *sequence = running->first; sequence != NULL; sequence = sequence->next)
	{
		sequence->passed_over = hymt_sequence_is_decoding(sequence) && sequence->share == 0 ?
			sequence->passed_over + 1 : 0;
		sequence->share = 0;
	}
}

/* --- prompt rows ------------------------------------------------------------------------------------------------- */

/* What a plan has left for prompts while it is shared out. */
typedef struct Room
{
	int32_t		rows;
	int32_t		samples;
} Room;

static int32_t
rows_left(const HymtSequence *sequence)
{
	return hymt_sequence_rows_left(sequence) - sequence->share;
}

/* Raise a sequence's share by up to `rows`, all of which it has left; returns whether there was room for all. */
static bool
give_rows(Room *room, HymtSequence *sequence, int32_t rows)
{
	for (int32_t i = 0; i < rows; i++)
	{
		HymtSampleUse use;
		int32_t		samples = wish_at(sequence, sequence->computed + sequence->share, &use).flags != 0 ? 1 : 0;

		if (room->rows < 1 || room->samples < samples)
			return false;
		room->rows--;
		room->samples -= samples;
		sequence->share++;
	}
	return true;
}

static bool
has_prompt_rows(const HymtSequence *sequence)
{
	return !hymt_sequence_is_decoding(sequence) && !sequence->deferred;
}

/* The one that needs the fewest rows more, and the first one admitted of those; NULL when none needs any. */
static HymtSequence *
shortest_prompt(const HymtSequenceList *running)
{
	HymtSequence *shortest = NULL;

	for (HymtSequence *sequence = running->first; sequence != NULL; sequence = sequence->next)
		if (has_prompt_rows(sequence) && rows_left(sequence) > 0 &&
			(shortest == NULL || rows_left(sequence) < rows_left(shortest)))
			shortest = sequence;
	return shortest;
}

/* Decide how many prompt rows each sequence gets; the decoding rows are in the plan already. */
static void
share_prompt_rows(HymtStepPlan *step, const HymtSequenceList *running, const HymtPace *pace)
{
	Room		room = {step->max_rows - step->plan.row_count, step->max_samples - step->plan.sample_count};
	bool		limited = room.rows > pace->prompt_rows;
	HymtSequence *sequence = running->first;
	int32_t		half;

	while (sequence != NULL && hymt_sequence_is_decoding(sequence))
		sequence = sequence->next;
	if (sequence == NULL)
		return;
	if (limited)
		room.rows = pace->prompt_rows;
	half = (room.rows + 1) / 2;
	give_rows(&room, sequence, half < rows_left(sequence) ? half : rows_left(sequence));
	while ((sequence = shortest_prompt(running)) != NULL)
	{
		sequence->deferred = sequence->share == 0 && others_compute(sequence, running);
		if (!sequence->deferred && !give_rows(&room, sequence, rows_left(sequence)))
			break;
	}
	step->step.prompts_limited = limited && room.rows == 0 && sequence != NULL;
}

static void
add_prompt(HymtStepPlan *step, HymtSequence *sequence, HymtPrefixCache *cache)
{
	int32_t		member;

	if (!sequence->begun)
		begin(step, sequence, cache);
	member = add_member(step, sequence);
	for (int32_t i = 0; i < sequence->share; i++)
		add_row(step, sequence, member, sequence->computed + i);
	step->step.prompt_rows += sequence->share;
}

void
hymt_step_plan_build(HymtStepPlan *step, HymtSequenceList *running, HymtPrefixCache *cache, const HymtPace *pace,
					 double now)
{
	step->plan.row_count = 0;
	step->plan.sequence_count = 0;
	step->plan.sample_count = 0;
	step->plan.copy_count = 0;
	step->step = (HymtPaceStep) {0};
	step->reused = 0;
	for (HymtSequence *sequence = running->first; sequence != NULL; sequence = sequence->next)
	{
		sequence->share = 0;
		sequence->deferred = false;
		if (!sequence->begun)
			search_again(sequence, cache, now);
	}
	add_all_decoding(step, running, cache, pace);
	share_prompt_rows(step, running, pace);
	for (HymtSequence *sequence = running->first; sequence != NULL; sequence = sequence->next)
		if (sequence->share > 0)
			add_prompt(step, sequence, cache);
}

void
hymt_step_plan_end(HymtStepPlan *step, HymtPrefixCache *cache, double now)
{
	for (int32_t i = 0; i < step->plan.copy_count; i++)
		hymt_prefix_release(cache, &step->plan.copies[i].from, 1, now);
	step->plan.copy_count = 0;
}
