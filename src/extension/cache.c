/*
 * cache.c: the one door between sessions and the cache.
 *
 * Runs in backends, parallel workers and database workers. Looks at the levels from the fastest to the slowest. Whoever
 * finds nothing asks the engine, and leaves the answer here.
 */
#include "cache.h"

#include "miscadmin.h"

/* Not preloaded, or another layout: then the request that follows raises an error that says so. */
static bool
is_on(void)
{
	return hymt_cache_mode != HYMT_CACHE_OFF && hymt_shared != NULL && hymt_layout_fits();
}

static HymtCacheQuestion
question_of(const HymtOrder *order, const char *utf8, Size length)
{
	return (HymtCacheQuestion) {
		.order = order, .utf8 = utf8, .length = length,
		.role = hymt_cache_scope == HYMT_CACHE_SCOPE_ROLE ? GetUserId() : InvalidOid
	};
}

static HymtCacheLevel
find(HymtCacheQuestion *question, HymtCacheAnswer *answer)
{
	bool		current;

	if (!hymt_cache_fingerprint(question->fingerprint))
		return HYMT_CACHE_MISS;
	if (hymt_cache_memory_find(question, answer))
		return HYMT_CACHE_MEMORY;
	if (hymt_cache_mode != HYMT_CACHE_ON || !hymt_cache_make_key(question) ||
		!hymt_cache_table_find(question, answer, &current))
		return HYMT_CACHE_MISS;
	if (current)
		(void) hymt_cache_memory_put(question, answer);
	return HYMT_CACHE_TABLE;
}

HymtCacheLevel
hymt_cache_look(const HymtOrder *order, const char *utf8, Size length, HymtOutcome *outcome)
{
	HymtCacheQuestion question = question_of(order, utf8, length);
	HymtCacheAnswer answer;
	HymtCacheLevel level;

	/* What is too long to be asked for has no answer. */
	if (!is_on() || length + order->context_length > HYMT_FRAME_MAX_BODY)
		return HYMT_CACHE_MISS;
	level = find(&question, &answer);
	if (level == HYMT_CACHE_MISS)
		return level;
	hymt_cache_count(level == HYMT_CACHE_MEMORY ? HYMT_CACHE_MEMORY_HITS : HYMT_CACHE_TABLE_HITS, 1);
	memset(outcome, 0, sizeof(HymtOutcome));
	outcome->failure = HYMT_FAILURE_NONE;
	outcome->finish = answer.finish;
	outcome->input_tokens = answer.input_tokens;
	outcome->output_tokens = answer.output_tokens;
	memcpy(outcome->model, answer.model, HYMT_NAME_MAX);
	memcpy(outcome->fingerprint, question.fingerprint, sizeof(outcome->fingerprint));
	outcome->cached = level;
	outcome->text = answer.text;
	outcome->text_length = answer.length;
	return level;
}

bool
hymt_cache_has(const HymtOrder *order, const char *utf8, Size length)
{
	HymtCacheQuestion question = question_of(order, utf8, length);
	HymtCacheAnswer answer;

	if (!is_on() || length + order->context_length > HYMT_FRAME_MAX_BODY || find(&question, &answer) == HYMT_CACHE_MISS)
		return false;
	pfree(answer.text);
	return true;
}

void
hymt_cache_missed(void)
{
	if (is_on())
		hymt_cache_count(HYMT_CACHE_MISSES, 1);
}

HymtCacheLevel
hymt_cache_find(const HymtOrder *order, const char *utf8, Size length, HymtOutcome *outcome)
{
	HymtCacheLevel level = hymt_cache_look(order, utf8, length, outcome);

	if (level == HYMT_CACHE_MISS)
		hymt_cache_missed();
	return level;
}

bool
hymt_cache_keeps(const HymtOutcome *outcome)
{
	return is_on() && outcome->failure == HYMT_FAILURE_NONE && outcome->finish == HYMT_FINISH_STOP &&
		hymt_cache_is_fingerprint(outcome->fingerprint);
}

void
hymt_cache_store(const HymtOrder *order, const char *utf8, Size length, const HymtOutcome *outcome)
{
	HymtCacheQuestion question = question_of(order, utf8, length);
	HymtCacheAnswer answer;

	if (outcome->cached != HYMT_CACHE_MISS || !hymt_cache_keeps(outcome))
		return;
	memcpy(question.fingerprint, outcome->fingerprint, sizeof(question.fingerprint));
	answer.text = outcome->text;
	answer.length = outcome->text_length;
	memcpy(answer.model, outcome->model, HYMT_NAME_MAX);
	answer.finish = outcome->finish;
	answer.input_tokens = outcome->input_tokens;
	answer.output_tokens = outcome->output_tokens;
	if (hymt_cache_memory_put(&question, &answer) && hymt_cache_mode == HYMT_CACHE_ON && hymt_cache_make_key(&question))
		hymt_cache_write_later(&question, &answer);
}
