/*
 * batch.c: the texts of one call as one batch of requests.
 *
 * Runs in backends and parallel workers. Equal texts are asked for once. The first request waits for a slot; while any
 * is held, further ones are submitted only where there is room at once, so that two large batches never wait for each
 * other, nor one for itself. Memory is constant for each text, apart from the translations. Requests belong to the
 * ResourceOwner, all else to the memory context of the batch: nothing is cleaned up here after an error.
 */
#include "batch.h"
#include "cache.h"
#include "progress.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/memutils.h"

typedef struct BatchText
{
	const char *source;			/* the caller's */
	int			length;
	bool		missed;			/* is not in the cache */
	HymtFate	fate;
	text	   *translation;
} BatchText;

/* An entry of the table of texts. */
typedef struct KnownText
{
	int			number;
	uint32		hash;
	char		status;
} KnownText;

struct texts_hash;

/* Requests that are outstanding, oldest first: [first, last) of both arrays. */
typedef struct Outstanding
{
	HymtRequestHandle **request;
	int		   *text;
	int			first;
	int			last;
} Outstanding;

struct HymtBatch
{
	HymtOrder	order;
	BatchText  *text;
	int			count;
	int			asked;			/* of them, that a person has not translated */
	int			room;
	struct texts_hash *known;
	int			next;			/* to be submitted */
	Outstanding outstanding;
	const char *failing;		/* the text that an error raised now would be about */
};

/* --- equal texts -------------------------------------------------------------------------------------------------- */

static uint32
hash_text(const HymtBatch *batch, int number)
{
	return hash_bytes((const unsigned char *) batch->text[number].source, batch->text[number].length);
}

static bool
are_equal(const HymtBatch *batch, int one, int other)
{
	const BatchText *a = &batch->text[one];
	const BatchText *b = &batch->text[other];

	return a->length == b->length && memcmp(a->source, b->source, a->length) == 0;
}

#define SH_PREFIX texts
#define SH_ELEMENT_TYPE KnownText
#define SH_KEY_TYPE int
#define SH_KEY number
#define SH_HASH_KEY(table, key) hash_text((table)->private_data, key)
#define SH_EQUAL(table, a, b) are_equal((table)->private_data, a, b)
#define SH_STORE_HASH
#define SH_GET_HASH(table, entry) ((entry)->hash)
#define SH_SCOPE static inline
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* --- texts -------------------------------------------------------------------------------------------------------- */

HymtBatch *
hymt_batch_create(const HymtOrder *order)
{
	HymtBatch  *batch = palloc0(sizeof(HymtBatch));

	batch->order = *order;
	batch->room = 16;
	batch->text = palloc(batch->room * sizeof(BatchText));
	batch->known = texts_create(CurrentMemoryContext, batch->room, batch);
	return batch;
}

/* The text in UTF-8, that is itself or a copy. */
static const char *
utf8_of(const BatchText *item, Size *length)
{
	return hymt_server_to_utf8(item->source, item->length, length);
}

static void
free_utf8(const BatchText *item, const char *utf8)
{
	if (utf8 != item->source)
		pfree(unconstify(char *, utf8));
}

static bool
needs_model(HymtBatch *batch, const BatchText *item)
{
	Size		length;
	const char *utf8;
	bool		needed;

	batch->failing = item->source;
	utf8 = utf8_of(item, &length);
	batch->failing = NULL;
	needed = hymt_needs_model(&batch->order, utf8, length);
	free_utf8(item, utf8);
	return needed;
}

static void
make_room(HymtBatch *batch)
{
	if (batch->count < batch->room)
		return;
	if (batch->room > PG_INT32_MAX / 2)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("too many texts in one call")));
	batch->room *= 2;
	batch->text = repalloc_huge(batch->text, batch->room * sizeof(BatchText));
}

int
hymt_batch_add(HymtBatch *batch, const char *source, int length)
{
	int			number = batch->count;
	KnownText  *known;
	uint32		hash;
	bool		found;

	/* The table compares numbers of texts, so that it is one of them already, if only for now. */
	make_room(batch);
	batch->text[number] = (BatchText) {.source = source, .length = length};
	hash = hash_text(batch, number);
	known = texts_lookup_hash(batch->known, number, hash);
	if (known != NULL)
		return known->number;
	batch->text[number].translation = hymt_human_find(&batch->order, source, length);
	if (batch->text[number].translation == NULL)
	{
		if (!needs_model(batch, &batch->text[number]))
			return -1;
		batch->asked++;
	}
	texts_insert_hash(batch->known, number, hash, &found);
	batch->count++;
	return number;
}

int
hymt_batch_count(const HymtBatch *batch)
{
	return batch->count;
}

HymtFate
hymt_batch_result(const HymtBatch *batch, int number, text **translation)
{
	*translation = batch->text[number].translation;
	return batch->text[number].fate;
}

const char *
hymt_batch_failing(const HymtBatch *batch)
{
	return batch->failing;
}

/* --- translating -------------------------------------------------------------------------------------------------- */

/* The outcome of a text, whose own text in UTF-8 is given as well, is consumed. */
static void
take_outcome(HymtBatch *batch, BatchText *item, const char *utf8, Size length, HymtOutcome *outcome)
{
	HymtReport	report;

	batch->failing = item->source;
	item->translation = hymt_text_of_outcome(NULL, &batch->order, utf8, length, outcome, &report);
	batch->failing = NULL;
	if (item->translation != NULL)
		item->fate = HYMT_FATE_TRANSLATED;
	else
		item->fate = batch->order.on_error == HYMT_ON_ERROR_SOURCE ? HYMT_FATE_KEPT : HYMT_FATE_NULL;
	pfree(outcome->text);
	hymt_progress_batch_done();
}

/* False when there is no room for its request, which is wanted unless its answer is in the cache. */
static bool
submit(HymtBatch *batch, int number)
{
	BatchText  *item = &batch->text[number];
	Outstanding *outstanding = &batch->outstanding;
	Size		length;
	const char *utf8 = utf8_of(item, &length);
	HymtRequestSpec spec = hymt_request_spec(&batch->order, utf8, length);
	HymtRequestHandle *request;
	HymtOutcome outcome;

	if (!item->missed && hymt_cache_find(&batch->order, utf8, length, &outcome) != HYMT_CACHE_MISS)
	{
		take_outcome(batch, item, utf8, length, &outcome);
		free_utf8(item, utf8);
		return true;
	}
	item->missed = true;
	batch->failing = item->source;
	hymt_request_check_length(&spec);
	batch->failing = NULL;
	if (outstanding->first == outstanding->last)
		request = hymt_request_submit(&spec);
	else
		request = hymt_request_try_submit(&spec);
	free_utf8(item, utf8);
	if (request == NULL)
		return false;
	outstanding->request[outstanding->last] = request;
	outstanding->text[outstanding->last] = number;
	outstanding->last++;
	return true;
}

/* As many more as there is room for; at least one is outstanding afterwards, unless all were asked for. */
static void
submit_more(HymtBatch *batch)
{
	for (; batch->next < batch->count; batch->next++)
	{
		CHECK_FOR_INTERRUPTS();
		if (batch->text[batch->next].translation == NULL && !submit(batch, batch->next))
			return;
	}
}

/* Waits for one of those that are outstanding and takes it out. */
static void
take_answer(HymtBatch *batch)
{
	Outstanding *outstanding = &batch->outstanding;
	HymtRequestHandle **requests = outstanding->request + outstanding->first;
	int		   *texts = outstanding->text + outstanding->first;
	int			position = hymt_request_wait_any(requests, outstanding->last - outstanding->first);
	HymtRequestHandle *request = requests[position];
	BatchText  *item = &batch->text[texts[position]];
	HymtOutcome outcome;
	const char *utf8;
	Size		length;

	CHECK_FOR_INTERRUPTS();
	/* The place is among the first few, so that those before it can move up. */
	memmove(requests + 1, requests, position * sizeof(*requests));
	memmove(texts + 1, texts, position * sizeof(*texts));
	outstanding->first++;
	hymt_request_wait(request, &outcome);
	utf8 = utf8_of(item, &length);
	take_outcome(batch, item, utf8, length, &outcome);
	free_utf8(item, utf8);
}

void
hymt_batch_translate(HymtBatch *batch)
{
	Outstanding *outstanding = &batch->outstanding;

	if (batch->asked == 0)
		return;
	hymt_check_preloaded();
	/* One of many, even where the caller did not say so. */
	batch->order.bulk = batch->order.bulk || batch->asked > 1;
	outstanding->request = MemoryContextAllocHuge(CurrentMemoryContext, batch->asked * sizeof(HymtRequestHandle *));
	outstanding->text = MemoryContextAllocHuge(CurrentMemoryContext, batch->asked * sizeof(int));
	hymt_progress_batch(batch->asked);
	for (submit_more(batch); outstanding->first < outstanding->last; submit_more(batch))
		take_answer(batch);
}
