/*
 * array.c: hymt_translate(text[]): the elements of an array as one batch.
 *
 * Runs in backends and parallel workers.
 */
#include "batch.h"

#include "catalog/pg_type.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(hymt_translate_array);

/* The number in the batch of each element; -1: it stays as it is. */
static int *
add_elements(HymtBatch *batch, Datum *values, const bool *nulls, int count)
{
	int		   *numbers = MemoryContextAllocHuge(CurrentMemoryContext, count * sizeof(int));

	for (int i = 0; i < count; i++)
	{
		const text *element;

		CHECK_FOR_INTERRUPTS();
		numbers[i] = -1;
		if (nulls[i])
			continue;
		element = DatumGetTextPP(values[i]);
		numbers[i] = hymt_batch_add(batch, VARDATA_ANY(element), VARSIZE_ANY_EXHDR(element));
	}
	return numbers;
}

/* Writes the results over the elements of the deconstructed array. */
static void
collect_results(const HymtBatch *batch, const int *numbers, Datum *values, bool *nulls, int count)
{
	for (int i = 0; i < count; i++)
	{
		text	   *translation;
		HymtFate	fate;

		if (numbers[i] < 0)
			continue;
		fate = hymt_batch_result(batch, numbers[i], &translation);
		if (fate == HYMT_FATE_TRANSLATED)
			values[i] = PointerGetDatum(translation);
		nulls[i] = fate == HYMT_FATE_NULL;
	}
}

/* A new array in the memory context `result`; `array` itself when nothing needs the model. Works in the current one. */
static ArrayType *
translate_array(ArrayType *array, const HymtOrder *order, MemoryContext result)
{
	HymtBatch  *batch = hymt_batch_create(order);
	Datum	   *values;
	bool	   *nulls;
	int			count;
	int		   *numbers;

	deconstruct_array(array, TEXTOID, -1, false, TYPALIGN_INT, &values, &nulls, &count);
	numbers = add_elements(batch, values, nulls, count);
	if (hymt_batch_count(batch) == 0)
		return array;
	hymt_batch_translate(batch);
	collect_results(batch, numbers, values, nulls, count);
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
