/*
 * sequence.c: requests in lists, and what a token does to one.
 *
 * Runs in the engine, in the scheduler's thread. Owns the memory of each request; knows nothing of plans and devices.
 */
#include "sequence.h"

#include <stdlib.h>
#include <string.h>

/* --- lists ------------------------------------------------------------------------------------------------------- */

void
hymt_sequences_append(HymtSequenceList *list, HymtSequence *sequence)
{
	sequence->next = NULL;
	if (list->last != NULL)
		list->last->next = sequence;
	else
		list->first = sequence;
	list->last = sequence;
	list->count++;
}

void
hymt_sequences_prepend(HymtSequenceList *list, HymtSequence *sequence)
{
	sequence->next = list->first;
	list->first = sequence;
	if (list->last == NULL)
		list->last = sequence;
	list->count++;
}

/* Take the sequence behind `before`, or the first when that is NULL. */
static HymtSequence *
take_behind(HymtSequenceList *list, HymtSequence *before)
{
	HymtSequence *sequence = before != NULL ? before->next : list->first;

	if (sequence == NULL)
		return NULL;
	if (before != NULL)
		before->next = sequence->next;
	else
		list->first = sequence->next;
	if (list->last == sequence)
		list->last = before;
	list->count--;
	return sequence;
}

HymtSequence *
hymt_sequences_take_first(HymtSequenceList *list)
{
	return take_behind(list, NULL);
}

HymtSequence *
hymt_sequences_take_last(HymtSequenceList *list)
{
	HymtSequence *before = NULL;

	for (HymtSequence *sequence = list->first; sequence != list->last; sequence = sequence->next)
		before = sequence;
	return take_behind(list, before);
}

HymtSequence *
hymt_sequences_take_id(HymtSequenceList *list, uint64_t id)
{
	HymtSequence *before = NULL;
	HymtSequence *sequence = list->first;

	while (sequence != NULL && sequence->id != id)
	{
		before = sequence;
		sequence = sequence->next;
	}
	return sequence != NULL ? take_behind(list, before) : NULL;
}

void
hymt_sequences_free(HymtSequenceList *list)
{
	HymtSequence *sequence;

	while ((sequence = hymt_sequences_take_first(list)) != NULL)
		hymt_sequence_free(sequence);
}

/* --- one sequence ------------------------------------------------------------------------------------------------ */

static void
see(HymtSequence *sequence, int32_t id)
{
	if (sequence->seen == NULL || (sequence->seen_bits[id / 8] & (1u << (id % 8))) != 0)
		return;
	sequence->seen_bits[id / 8] |= (uint8_t) (1u << (id % 8));
	sequence->seen[sequence->seen_count++] = id;
}

/* The parts that only some requests need; false when memory is out. */
static bool
allocate_wishes(HymtSequence *sequence, const HymtSequenceRequest *request, int vocab, int32_t total)
{
	bool		enough = true;

	if (request->repetition_penalty != 1)
	{
		sequence->seen = malloc(sizeof(int32_t) * (size_t) (total < vocab ? total : vocab));
		sequence->seen_bits = calloc((size_t) vocab / 8 + 1, 1);
		enough = sequence->seen != NULL && sequence->seen_bits != NULL;
	}
	if (request->want_last_logits)
	{
		sequence->last_logits = malloc(sizeof(float) * (size_t) vocab);
		enough = enough && sequence->last_logits != NULL;
	}
	if (request->want_argmax)
	{
		sequence->argmax = malloc(sizeof(int32_t) * (size_t) request->prompt_count);
		enough = enough && sequence->argmax != NULL;
	}
	return enough;
}

HymtSequence *
hymt_sequence_new(const HymtSequenceRequest *request, int vocab)
{
	int32_t		total = request->prompt_count + request->max_new;
	HymtSequence *sequence = calloc(1, sizeof(*sequence));

	if (sequence == NULL)
		return NULL;
	sequence->id = request->id;
	sequence->prompt_count = request->prompt_count;
	sequence->max_new = request->max_new;
	sequence->penalty = request->repetition_penalty;
	sequence->sampling = request->sampling;
	sequence->stop_ids = request->stop_ids;
	sequence->stop_count = request->stop_count;
	sequence->watch_loops = request->stop_at_loop;
	sequence->loops.source_repeats = request->source_repeats;
	sequence->copy_from = -1;
	/* The last token of the answer is never fed back, so it needs no place. */
	sequence->page_capacity = (total - (request->max_new > 0 ? 1 : 0) + HYMT_PAGE_TOKENS - 1) / HYMT_PAGE_TOKENS;
	sequence->tokens = malloc(sizeof(int32_t) * (size_t) total);
	sequence->pages = malloc(sizeof(int32_t) * (size_t) sequence->page_capacity);
	if (sequence->tokens == NULL || sequence->pages == NULL || !allocate_wishes(sequence, request, vocab, total))
	{
		hymt_sequence_free(sequence);
		return NULL;
	}
	memcpy(sequence->tokens, request->prompt, sizeof(int32_t) * (size_t) request->prompt_count);
	for (int32_t i = 0; i < request->prompt_count; i++)
		see(sequence, request->prompt[i]);
	/* Only now: the adapter of a request that is refused stays the caller's. */
	sequence->adapter = request->adapter;
	sequence->release_adapter = request->adapter != 0 ? request->release_adapter : NULL;
	sequence->release_context = request->release_context;
	sequence->token_taken = request->token_taken;
	sequence->token_context = request->token_context;
	return sequence;
}

void
hymt_sequence_release_adapter(HymtSequence *sequence)
{
	if (sequence->release_adapter != NULL)
		sequence->release_adapter(sequence->release_context, sequence->adapter);
	sequence->release_adapter = NULL;
}

void
hymt_sequence_free(HymtSequence *sequence)
{
	if (sequence == NULL)
		return;
	hymt_sequence_release_adapter(sequence);
	free(sequence->tokens);
	free(sequence->pages);
	free(sequence->seen);
	free(sequence->seen_bits);
	free(sequence->last_logits);
	free(sequence->argmax);
	free(sequence);
}

void
hymt_sequence_finish(HymtSequence *sequence, HymtFailure failure, HymtFinish reason)
{
	sequence->finished = true;
	sequence->failure = failure;
	sequence->finish = reason;
}

static bool
is_stop(const HymtSequence *sequence, int32_t token)
{
	for (int i = 0; i < sequence->stop_count; i++)
		if (sequence->stop_ids[i] == token)
			return true;
	return false;
}

void
hymt_sequence_take_token(HymtSequence *sequence, int32_t token)
{
	const int32_t *answer = sequence->tokens + sequence->prompt_count;

	sequence->tokens[hymt_sequence_token_count(sequence)] = token;
	sequence->answer_count++;
	see(sequence, token);
	if (is_stop(sequence, token))
		hymt_sequence_finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_STOP);
	else if (hymt_loop_watch(&sequence->loops, answer, sequence->answer_count) && sequence->watch_loops)
		hymt_sequence_finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_LOOP);
	else if (sequence->answer_count >= sequence->max_new)
		hymt_sequence_finish(sequence, HYMT_FAILURE_NONE, HYMT_FINISH_LENGTH);
}
