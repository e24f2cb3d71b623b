/*
 * ahead_answers.c: what was asked ahead, and where a call finds its answer.
 *
 * Runs in backends and parallel workers. Owns a table of the texts that plan nodes of this process have asked for. A
 * call looks its own arguments up in it, every byte of all that its answer depends on, so that it can only find what it
 * would have asked for itself; that it belongs to another row, node or statement does not matter.
 *
 * A request belongs to a resource owner and may be released behind our back, at an abort, or because others have taken the
 * slot of an answer that was left lying; it takes itself out of its entry then. Such an entry is lost: it is asked again
 * when the window moves on, or else its call asks. The entries of a node lie in a memory context of their own and leave the table when that is deleted, whether or
 * not the node was ended.
 */
#include "ahead.h"
#include "cache.h"

#include "common/hashfn.h"
#include "lib/ilist.h"
#include "portability/instr_time.h"
#include "utils/memutils.h"

#define BUCKETS 1024

struct HymtAheadAnswers
{
	MemoryContext context;
	MemoryContextCallback callback;
	dlist_head	entries;
	HymtAheadCounts *counts;
	Size		bytes;
};

struct HymtAheadEntry
{
	dlist_node	in_bucket;
	dlist_node	in_answers;
	HymtAheadAnswers *answers;
	int			rows;			/* that hold it */
	uint32		hash;
	const HymtLanguage *source;
	const HymtLanguage *target;
	int			max_new_tokens;
	char		adapter[HYMT_ADAPTER_NAME_MAX];
	HymtDraw	draw;
	bool		bulk;
	HymtRequestHandle *request; /* NULL: answered, failed, or lost */
	bool		answered;
	bool		failed;			/* for reasons that are not the text's: is not asked ahead again */
	HymtOutcome outcome;		/* once answered, by the engine or the cache; its text lies in the memory context */
	Size		context_length;
	Size		length;			/* of the text */
	char		texts[FLEXIBLE_ARRAY_MEMBER];	/* the context of the translation, then the text */
};

static dlist_head *buckets = NULL;	/* [BUCKETS] */
static int	entry_count = 0;

/* Of all that the answer depends on, as is_same() compares it. */
static uint32
hash_of(const HymtOrder *order, const char *utf8, Size length)
{
	uint32		hash = hash_bytes((const unsigned char *) utf8, (int) length);

	hash = hash_combine(hash, murmurhash32((uint32) (order->source - hymt_languages)));
	hash = hash_combine(hash, murmurhash32((uint32) (order->target - hymt_languages)));
	hash = hash_combine(hash, murmurhash32((uint32) order->max_new_tokens));
	hash = hash_combine(hash, hash_bytes((const unsigned char *) order->adapter, (int) strlen(order->adapter)));
	hash = hash_combine(hash, hash_bytes((const unsigned char *) &order->draw, sizeof(HymtDraw)));
	return hash_combine(hash, hash_bytes((const unsigned char *) order->context, (int) order->context_length));
}

static bool
is_same(const HymtAheadEntry *entry, uint32 hash, const HymtOrder *order, const char *utf8, Size length)
{
	return entry->hash == hash &&
		entry->source == order->source && entry->target == order->target &&
		entry->max_new_tokens == order->max_new_tokens &&
		strcmp(entry->adapter, order->adapter) == 0 &&
		memcmp(&entry->draw, &order->draw, sizeof(HymtDraw)) == 0 &&
		entry->context_length == order->context_length && entry->length == length &&
		(order->context_length == 0 || memcmp(entry->texts, order->context, order->context_length) == 0) &&
		memcmp(entry->texts + entry->context_length, utf8, length) == 0;
}

static Size
texts_length(const HymtAheadEntry *entry)
{
	return entry->context_length + entry->length;
}

static bool
is_lost(const HymtAheadEntry *entry)
{
	return !entry->answered && !entry->failed && entry->request == NULL;
}

/* One of a node that has not failed, or of any node (NULL), and not lost either. */
static HymtAheadEntry *
find(const HymtAheadAnswers *answers, uint32 hash, const HymtOrder *order, const char *utf8, Size length)
{
	dlist_iter	iter;

	dlist_foreach(iter, &buckets[hash % BUCKETS])
	{
		HymtAheadEntry *entry = dlist_container(HymtAheadEntry, in_bucket, iter.cur);

		if (!entry->failed && (answers == NULL ? !is_lost(entry) : entry->answers == answers) &&
			is_same(entry, hash, order, utf8, length))
			return entry;
	}
	return NULL;
}

static void
forget(HymtAheadEntry *entry)
{
	HymtAheadAnswers *answers = entry->answers;

	dlist_delete(&entry->in_bucket);
	dlist_delete(&entry->in_answers);
	entry_count--;
	answers->bytes -= texts_length(entry);
	if (entry->request != NULL)
		hymt_request_release(entry->request);
	if (entry->answered)
	{
		answers->bytes -= entry->outcome.text_length;
		pfree(entry->outcome.text);
	}
	pfree(entry);
}

/* The memory context is about to go, perhaps in the clean-up of an abort, where requests have been released before. */
static void
context_deleted(void *arg)
{
	HymtAheadAnswers *answers = arg;
	dlist_mutable_iter iter;

	dlist_foreach_modify(iter, &answers->entries)
		forget(dlist_container(HymtAheadEntry, in_answers, iter.cur));
}

static void
make_table(void)
{
	buckets = MemoryContextAlloc(TopMemoryContext, BUCKETS * sizeof(dlist_head));
	for (int i = 0; i < BUCKETS; i++)
		dlist_init(&buckets[i]);
}

HymtAheadAnswers *
hymt_ahead_begin(MemoryContext parent, HymtAheadCounts *counts)
{
	MemoryContext context = AllocSetContextCreate(parent, "hymt read ahead", ALLOCSET_DEFAULT_SIZES);
	HymtAheadAnswers *answers = MemoryContextAllocZero(context, sizeof(HymtAheadAnswers));

	if (buckets == NULL)
		make_table();
	answers->context = context;
	answers->counts = counts;
	dlist_init(&answers->entries);
	answers->callback.func = context_deleted;
	answers->callback.arg = answers;
	MemoryContextRegisterResetCallback(context, &answers->callback);
	return answers;
}

Size
hymt_ahead_bytes(const HymtAheadAnswers *answers)
{
	return answers->bytes;
}

static HymtAheadEntry *
new_entry(HymtAheadAnswers *answers, uint32 hash, const HymtOrder *order, const char *utf8, Size length)
{
	HymtAheadEntry *entry = MemoryContextAllocExtended(answers->context,
													   offsetof(HymtAheadEntry, texts) + order->context_length + length,
													   MCXT_ALLOC_HUGE);

	memset(entry, 0, offsetof(HymtAheadEntry, texts));
	entry->answers = answers;
	entry->rows = 1;
	entry->hash = hash;
	entry->source = order->source;
	entry->target = order->target;
	entry->max_new_tokens = order->max_new_tokens;
	memcpy(entry->adapter, order->adapter, sizeof(entry->adapter));
	entry->draw = order->draw;
	entry->bulk = order->bulk;
	entry->context_length = order->context_length;
	entry->length = length;
	if (order->context_length > 0)
		memcpy(entry->texts, order->context, order->context_length);
	memcpy(entry->texts + order->context_length, utf8, length);
	answers->bytes += texts_length(entry);
	dlist_push_tail(&buckets[hash % BUCKETS], &entry->in_bucket);
	dlist_push_tail(&answers->entries, &entry->in_answers);
	entry_count++;
	return entry;
}

/* Asks for a new or a lost one. False when there is no room. */
static bool
submit(HymtAheadEntry *entry)
{
	HymtOrder	order = {
		.source = entry->source,
		.target = entry->target,
		.max_new_tokens = entry->max_new_tokens,
		.draw = entry->draw,
		.bulk = entry->bulk,
		.context = entry->texts,
		.context_length = entry->context_length
	};
	HymtRequestSpec spec;

	memcpy(order.adapter, entry->adapter, sizeof(order.adapter));
	spec = hymt_request_spec(&order, entry->texts + entry->context_length, entry->length);
	return hymt_request_submit_ahead(&spec, &entry->request);
}

bool
hymt_ahead_ask_again(HymtAheadEntry *entry)
{
	return !is_lost(entry) || submit(entry);
}

/* The answer is kept here: the cache may have lost it when the call's turn comes. */
static HymtAheadEntry *
take_from_cache(HymtAheadAnswers *answers, uint32 hash, const HymtOrder *order, const char *utf8, Size length)
{
	HymtAheadEntry *entry;
	HymtOutcome outcome;
	HymtCacheLevel level = hymt_cache_look(order, utf8, length, &outcome);

	if (level == HYMT_CACHE_MISS)
		return NULL;
	entry = new_entry(answers, hash, order, utf8, length);
	entry->outcome = outcome;
	entry->outcome.text = MemoryContextAllocExtended(answers->context, outcome.text_length + 1, MCXT_ALLOC_HUGE);
	memcpy(entry->outcome.text, outcome.text, outcome.text_length + 1);
	pfree(outcome.text);
	entry->answered = true;
	answers->bytes += entry->outcome.text_length;
	if (level == HYMT_CACHE_MEMORY)
		answers->counts->memory_hits++;
	else
		answers->counts->table_hits++;
	return entry;
}

HymtAheadEntry *
hymt_ahead_ask(HymtAheadAnswers *answers, const HymtOrder *order, const char *utf8, Size length, bool *missed)
{
	uint32		hash = hash_of(order, utf8, length);
	HymtAheadEntry *entry = find(answers, hash, order, utf8, length);

	if (entry != NULL)
	{
		if (!hymt_ahead_ask_again(entry))
			return NULL;
		entry->rows++;
		return entry;
	}
	if (!*missed && (entry = take_from_cache(answers, hash, order, utf8, length)) != NULL)
		return entry;
	*missed = true;
	entry = new_entry(answers, hash, order, utf8, length);
	if (!submit(entry))
	{
		forget(entry);
		return NULL;
	}
	hymt_cache_missed();
	answers->counts->texts++;
	return entry;
}

void
hymt_ahead_drop(HymtAheadEntry *entry)
{
	if (--entry->rows == 0)
		forget(entry);
}

/* Waits unless it is answered. */
static void
collect(HymtAheadEntry *entry)
{
	HymtAheadAnswers *answers = entry->answers;
	MemoryContext caller = MemoryContextSwitchTo(answers->context);
	HymtCollected collected = hymt_request_collect(entry->request, entry->bulk, &entry->outcome);

	MemoryContextSwitchTo(caller);
	entry->answered = collected == HYMT_COLLECTED;
	entry->failed = collected == HYMT_COLLECTED_FAILURE;
	if (entry->failed)
		pfree(entry->outcome.text);
	if (!entry->answered)
		return;
	answers->bytes += entry->outcome.text_length;
	answers->counts->input_tokens += entry->outcome.input_tokens;
	answers->counts->output_tokens += entry->outcome.output_tokens;
}

bool
hymt_ahead_settle(HymtAheadEntry *entry)
{
	if (entry->request != NULL)
		hymt_requests_look_after();
	if (entry->request != NULL && hymt_request_is_answered(entry->request))
		collect(entry);
	return entry->answered || entry->failed;
}

static void
wait_for(HymtAheadEntry *entry)
{
	instr_time	begin;
	instr_time	end;

	if (hymt_ahead_settle(entry) || is_lost(entry))
		return;
	INSTR_TIME_SET_CURRENT(begin);
	collect(entry);
	INSTR_TIME_SET_CURRENT(end);
	INSTR_TIME_SUBTRACT(end, begin);
	entry->answers->counts->waited += (int64) INSTR_TIME_GET_MICROSEC(end);
}

bool
hymt_ahead_take(const HymtOrder *order, const char *utf8, Size length, HymtOutcome *outcome)
{
	HymtAheadEntry *entry;

	if (entry_count == 0)
		return false;
	entry = find(NULL, hash_of(order, utf8, length), order, utf8, length);
	if (entry == NULL)
		return false;
	wait_for(entry);
	if (!entry->answered)
		return false;
	*outcome = entry->outcome;
	outcome->text = palloc_extended(outcome->text_length + 1, MCXT_ALLOC_HUGE);
	memcpy(outcome->text, entry->outcome.text, outcome->text_length + 1);
	/* The call puts it into the cache, where further ones would find it. */
	if (entry->outcome.cached == HYMT_CACHE_MISS && hymt_cache_keeps(&entry->outcome))
		entry->outcome.cached = HYMT_CACHE_MEMORY;
	return true;
}
