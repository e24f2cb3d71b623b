/*
 * budget.h: how the engine's memory is divided, decided before a model is loaded.
 *
 * What the engine may use is given (--memory) or follows from what the machine and its control groups have left. Weights
 * come first: they are mapped files, but an engine whose weights do not stay in memory reads them from disk in each step.
 * Then what computing needs; the rest is for keys and values. Where that is too little, steps get fewer rows and texts a
 * shorter context, down to a bound; below it the model is refused.
 *
 * All of it is allocated while loading, so that the budget is kept: only requests, their texts and the rows of logits that
 * somebody asked for or draws from come on top.
 */
#ifndef HYMT_BUDGET_H
#define HYMT_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

#include "device.h"
#include "error.h"
#include "model.h"

typedef struct HymtBudget
{
	/* what is asked for; set by the caller */
	int64_t		memory;			/* bytes; 0: what the machine has */
	HymtDeviceOptions device;	/* wishes; after hymt_budget_decide() what the device is to be opened with */

	/* the decision */
	int64_t		total;			/* bytes that may be used */
	int64_t		weights;
	int64_t		tokenizer;		/* an estimate from the size of its file, and the program itself */
	int64_t		computing;		/* memory of the device for max_rows rows */
	int64_t		pages;			/* of keys and values */
	int32_t		page_tokens;	/* positions they hold */
	bool		reduced;		/* fewer rows, or a shorter context, than wished */
	bool		short_of_memory;	/* the device did not get what was decided */
	int32_t		wished_rows;
	int32_t		wished_context;
} HymtBudget;

/*
 * `context` is a HymtBudget: fits HymtModelOptions.check. Fails with NO_MEMORY, or OVER_LIMIT when the memory is given,
 * when not even a short text would fit beside the weights.
 */
extern bool hymt_budget_decide(void *context, const HymtModel *model, HymtError *error);

/*
 * Open the device of the decision; with fewer pages and rows, down to the bounds, when the memory cannot be had after all,
 * which is logged. NULL with the error set.
 */
extern HymtDevice *hymt_budget_open_device(HymtBudget *budget, const HymtDeviceOps *ops, const HymtModel *model,
										   HymtError *error);

/* One line about the decision, without newline. */
extern void hymt_budget_describe(const HymtBudget *budget, char *text, size_t size);

/* Pages that a device takes when nothing else is said: what the usual load wants, in relation to the memory there is. */
extern int64_t hymt_budget_usual_pages(int64_t page_bytes, int32_t max_context, int64_t memory);

#endif							/* HYMT_BUDGET_H */
