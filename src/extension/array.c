/*
 * array.c: hymt_translate(text[]): the elements of an array as one batch.
 *
 * Runs in backends and parallel workers. Equal elements are asked for once. The first request waits for a slot; while
 * any is held, further ones are submitted only where there is room at once, so that two large arrays never wait for each
 * other, nor one for itself. Memory is constant for each element, apart from the translations.
 */
#include "cache.h"

#include "catalog/pg_type.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(hymt_translate_array);

typedef struct Element
{
	text	   *source;			/* points into the array; NULL: a null */
	text	   *result;			/* NULL: a null */
	int			same_as;		/* element with an equal text that is asked for in its place; -1: none */
	bool		asked;			/* needs the model */
	bool		missed;			/* is not in the cache */
} Element;

/* Requests that are outstanding, oldest first: [first, last) of both arrays. */
typedef struct Outstanding
{
	HymtRequestHandle **request;
	int		   *element;
	int			first;
	int			last;
} Outstanding;

typedef struct Batch
{
	HymtOrder	order;
	Element    *element;
	int			count;
	int			asked;			/* elements that are asked for */
	bool		changed;		/* an element that is not asked for has another result than itself */
	int			next;			/* to be looked at for submission */
	Outstanding outstanding;
} Batch;

/* --- equal elements ----------------------------------------------------------------------------------------------- */

/* Open addressing; numbers of elements, -1: free. */
typedef struct TextTable
{
	int		   *place;
	uint32		mask;
} TextTable;

static void
init_table(TextTable *table, int count)
{
	uint32		size = 16;

	while (size < 2 * (uint32) count)
		size *= 2;
	table->mask = size - 1;
	table->place = MemoryContextAllocHuge(CurrentMemoryContext, size * sizeof(int));
	memset(table->place, -1, size * sizeof(int));
}

/* The first element with this one's text, itself if there was none before. */
static int
find_or_add(TextTable *table, const Element *elements, int number)
{
	const text *source = elements[number].source;
	Size		length = VARSIZE_ANY_EXHDR(source);
	uint32		at = hash_bytes((const unsigned char *) VARDATA_ANY(source), (int) length) & table->mask;

	for (; table->place[at] >= 0; at = (at + 1) & table->mask)
	{
		const text *other = elements[table->place[at]].source;

		if (VARSIZE_ANY_EXHDR(other) == length && memcmp(VARDATA_ANY(other), VARDATA_ANY(source), length) == 0)
			return table->place[at];
	}
	table->place[at] = number;
	return number;
}

/* --- the batch ---------------------------------------------------------------------------------------------------- */

static bool
needs_model(const HymtOrder *order, text *source)
{
	Size		length;
	const char *utf8 = hymt_server_to_utf8(VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source), &length);
	bool		needed = hymt_needs_model(order, utf8, length);

	if (utf8 != VARDATA_ANY(source))
		pfree(unconstify(char *, utf8));
	return needed;
}

static text *
find_human(const HymtOrder *order, const text *source)
{
	return hymt_human_find(order, VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source));
}

static void
prepare(Batch *batch, Datum *values, bool *nulls)
{
	TextTable	table;

	init_table(&table, batch->count);
	batch->element = MemoryContextAllocExtended(CurrentMemoryContext, batch->count * sizeof(Element),
												MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	for (int i = 0; i < batch->count; i++)
	{
		Element    *element = &batch->element[i];
		int			first;

		CHECK_FOR_INTERRUPTS();
		element->same_as = -1;
		if (nulls[i])
			continue;
		element->source = DatumGetTextPP(values[i]);
		first = find_or_add(&table, batch->element, i);
		if (first != i)
			element->same_as = first;
		else if ((element->result = find_human(&batch->order, element->source)) != NULL)
			batch->changed = true;
		else
		{
			element->result = element->source;
			element->asked = needs_model(&batch->order, element->source);
		}
		batch->asked += element->asked;
	}
	pfree(table.place);
	/* One of many, even where the caller did not say so. */
	batch->order.bulk = batch->order.bulk || batch->asked > 1;
}

static void
take_outcome(Batch *batch, int number, HymtOutcome *outcome)
{
	Element    *element = &batch->element[number];
	HymtReport	report;

	element->result = hymt_text_of_outcome(element->source, &batch->order, outcome, &report);
	pfree(outcome->text);
}

/* Whether there was room for its request, if it needs one. */
static bool
submit(Batch *batch, int number)
{
	text	   *source = batch->element[number].source;
	Outstanding *outstanding = &batch->outstanding;
	Size		length;
	const char *utf8 = hymt_server_to_utf8(VARDATA_ANY(source), VARSIZE_ANY_EXHDR(source), &length);
	HymtRequestSpec spec = hymt_request_spec(&batch->order, utf8, length);
	HymtRequestHandle *request;
	HymtOutcome outcome;

	if (!batch->element[number].missed && hymt_cache_find(&batch->order, utf8, length, &outcome) != HYMT_CACHE_MISS)
	{
		take_outcome(batch, number, &outcome);
		if (utf8 != VARDATA_ANY(source))
			pfree(unconstify(char *, utf8));
		return true;
	}
	batch->element[number].missed = true;
	if (outstanding->first == outstanding->last)
		request = hymt_request_submit(&spec);
	else
		request = hymt_request_try_submit(&spec);
	if (utf8 != VARDATA_ANY(source))
		pfree(unconstify(char *, utf8));
	if (request == NULL)
		return false;
	outstanding->request[outstanding->last] = request;
	outstanding->element[outstanding->last] = number;
	outstanding->last++;
	return true;
}

/* As many more as there is room for; at least one is outstanding afterwards, unless all were asked for. */
static void
submit_more(Batch *batch)
{
	for (; batch->next < batch->count; batch->next++)
	{
		CHECK_FOR_INTERRUPTS();
		if (batch->element[batch->next].asked && !submit(batch, batch->next))
			return;
	}
}

/* Waits for one of those that are outstanding and takes it out. */
static void
take_answer(Batch *batch)
{
	Outstanding *outstanding = &batch->outstanding;
	HymtRequestHandle **requests = outstanding->request + outstanding->first;
	int		   *elements = outstanding->element + outstanding->first;
	int			position = hymt_request_wait_any(requests, outstanding->last - outstanding->first);
	HymtRequestHandle *request = requests[position];
	int			number = elements[position];
	HymtOutcome outcome;

	CHECK_FOR_INTERRUPTS();
	/* The place is among the first few, so that those before it can move up. */
	memmove(requests + 1, requests, position * sizeof(*requests));
	memmove(elements + 1, elements, position * sizeof(*elements));
	outstanding->first++;
	hymt_request_wait(request, &outcome);
	take_outcome(batch, number, &outcome);
}

static void
translate(Batch *batch)
{
	Outstanding *outstanding = &batch->outstanding;

	outstanding->request = MemoryContextAllocHuge(CurrentMemoryContext, batch->asked * sizeof(HymtRequestHandle *));
	outstanding->element = MemoryContextAllocHuge(CurrentMemoryContext, batch->asked * sizeof(int));
	for (submit_more(batch); outstanding->first < outstanding->last; submit_more(batch))
		take_answer(batch);
}

/* Writes the results over the elements of the deconstructed array. */
static void
collect(const Batch *batch, Datum *values, bool *nulls)
{
	for (int i = 0; i < batch->count; i++)
	{
		const Element *element = &batch->element[i];
		text	   *result = element->same_as < 0 ? element->result : batch->element[element->same_as].result;

		values[i] = PointerGetDatum(result);
		nulls[i] = result == NULL;
	}
}

/* A new array in the memory context `result`; `array` itself when it stays as it is. Works in the current one. */
static ArrayType *
translate_array(ArrayType *array, const HymtOrder *order, MemoryContext result)
{
	Batch		batch = {.order = *order};
	Datum	   *values;
	bool	   *nulls;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &batch.count);
	if (batch.count == 0)
		return array;
	prepare(&batch, values, nulls);
	if (batch.asked == 0 && !batch.changed)
		return array;
	if (batch.asked > 0)
		translate(&batch);
	collect(&batch, values, nulls);
	MemoryContextSwitchTo(result);
	return construct_md_array(values, nulls, ARR_NDIM(array), ARR_DIMS(array), ARR_LBOUND(array), TEXTOID, -1, false,
							  TYPALIGN_INT);
}

Datum
hymt_translate_array(PG_FUNCTION_ARGS)
{
	HymtOrder	order;
	ArrayType  *array;
	ArrayType  *result;
	MemoryContext caller = CurrentMemoryContext;
	MemoryContext work;

	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	hymt_read_order(fcinfo, &order);
	array = PG_GETARG_ARRAYTYPE_P(0);
	work = AllocSetContextCreate(caller, "hymt array", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(work);
	result = translate_array(array, &order, caller);
	MemoryContextSwitchTo(caller);
	MemoryContextDelete(work);
	if (result != array)
		PG_FREE_IF_COPY(array, 0);
	PG_RETURN_ARRAYTYPE_P(result);
}
