/*
 * budget.c: dividing memory among weights, computing, and keys and values.
 *
 * Runs in the engine, once, before weights are read. Allocates nothing.
 */
#include "budget.h"

#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "forward.h"
#include "gguf.h"
#include "machine.h"

/* One part in so many of the available memory is left to others. */
#define OTHERS_PART 8
/* The program, its libraries and its buffers. */
#define PROGRAM_BYTES (INT64_C(16) << 20)
/*
 * Memory of a tokenizer while it is read, in sizes of what describes it: of tokenizer.json or of a GGUF file's metadata, and of
 * tokenizer.model, from which the SentencePiece library makes large tables (observed: 2.5, and 15 to 21).
 */
#define TOKENIZER_FACTOR 3
#define SENTENCEPIECE_FACTOR 22

/* Room that KV memory has by default: so many sequences of so many tokens. */
#define USUAL_SEQUENCES 64
#define USUAL_TOKENS 512
/* Below these a model is refused. */
#define ROWS_MIN 16
#define CONTEXT_MIN 512

static int64_t
pages_for(int64_t tokens)
{
	return (tokens + HYMT_PAGE_TOKENS - 1) / HYMT_PAGE_TOKENS;
}

/* No more than an eighth of the memory, as long as that holds two sequences of full length. */
int64_t
hymt_budget_usual_pages(int64_t page_bytes, int32_t max_context, int64_t memory)
{
	int64_t		pages = pages_for((int64_t) USUAL_SEQUENCES * USUAL_TOKENS);
	int64_t		least = 2 * pages_for(max_context);
	int64_t		most = memory / OTHERS_PART / page_bytes;

	if (pages > most)
		pages = most;
	return pages < least ? least : pages;
}

static int64_t
file_bytes(const char *directory, const char *name)
{
	char		path[PATH_MAX];
	struct stat status;

	if ((size_t) snprintf(path, sizeof(path), "%s/%s", directory, name) >= sizeof(path) || stat(path, &status) != 0)
		return 0;
	return status.st_size;
}

static int64_t
tokenizer_bytes(const HymtModel *model)
{
	const HymtGguf *gguf = hymt_stored_gguf(model->files);
	size_t		metadata = 0;

	if (gguf != NULL)
		hymt_gguf_header(gguf, &metadata);
	return gguf != NULL ? TOKENIZER_FACTOR * (int64_t) metadata :
		TOKENIZER_FACTOR * file_bytes(model->directory, "tokenizer.json") +
		SENTENCEPIECE_FACTOR * file_bytes(model->directory, "tokenizer.model");
}

/* What was not wished for in particular gets its default. */
static void
complete_wishes(HymtBudget *budget, const HymtConfig *config)
{
	HymtDeviceOptions *device = &budget->device;

	if (device->threads <= 0)
		device->threads = hymt_machine_processors();
	if (device->max_rows <= 0)
		device->max_rows = HYMT_DEFAULT_ROWS;
	if (device->max_samples <= 0)
		device->max_samples = device->max_rows;
	if (device->max_context <= 0)
		device->max_context = HYMT_DEFAULT_CONTEXT;
	if (device->max_context > config->max_position)
		device->max_context = config->max_position;
	budget->wished_rows = device->max_rows;
	budget->wished_context = device->max_context;
}

static int64_t
computing_bytes(const HymtBudget *budget, const HymtConfig *config, int32_t rows)
{
	HymtForwardLimits limits = {
		.threads = budget->device.threads,
		.token_limit = config->vocab,
		.max_context = budget->device.max_context,
		.max_rows = rows,
		.max_samples = rows < budget->device.max_samples ? rows : budget->device.max_samples,
	};

	return hymt_forward_bytes(config, &limits);
}

/*
 * Pages that are worth having: by default those of the usual load, in a budget that somebody has given also those that
 * sequences in all rows would take.
 */
static int64_t
wished_pages(const HymtBudget *budget, int64_t page_bytes)
{
	const HymtDeviceOptions *device = &budget->device;
	int64_t		pages = hymt_budget_usual_pages(page_bytes, device->max_context, budget->total);
	int64_t		all_rows = pages_for((int64_t) device->max_rows * USUAL_TOKENS);

	if (device->kv_bytes > 0)
		return device->kv_bytes / page_bytes;
	return budget->memory > 0 && pages < all_rows ? all_rows : pages;
}

/* Fewer rows as long as that makes room for a whole context; their number is halved, so that few are tried. */
static void
choose_rows(HymtBudget *budget, const HymtConfig *config, int64_t room, int64_t page_bytes)
{
	int64_t		wanted = pages_for(budget->device.max_context) * page_bytes;
	int32_t		rows = budget->device.max_rows;

	while (rows / 2 >= ROWS_MIN && computing_bytes(budget, config, rows) + wanted > room)
		rows /= 2;
	budget->device.max_rows = rows;
	if (budget->device.max_samples > rows)
		budget->device.max_samples = rows;
	budget->computing = computing_bytes(budget, config, rows);
}

static int64_t
megabytes(int64_t bytes)
{
	return (bytes + (1 << 20) - 1) >> 20;
}

static bool
refuse(const HymtBudget *budget, const HymtModel *model, int64_t least, HymtError *error)
{
	return hymt_fail(error, budget->memory > 0 ? HYMT_FAILURE_OVER_LIMIT : HYMT_FAILURE_NO_MEMORY,
					 "model \"%.128s\" does not fit into memory: weights take %lld MB, tokenizer and computing %lld MB, a "
					 "text of %d tokens %lld MB, together %lld MB; %s %lld MB", model->name,
					 (long long) megabytes(budget->weights),
					 (long long) megabytes(budget->tokenizer + budget->computing), CONTEXT_MIN,
					 (long long) megabytes(least),
					 (long long) megabytes(budget->weights + budget->tokenizer + budget->computing + least),
					 budget->memory > 0 ? "the limit (hymt.memory, --memory) is" : "available are",
					 (long long) (budget->total >> 20));
}

bool
hymt_budget_decide(void *context, const HymtModel *model, HymtError *error)
{
	HymtBudget *budget = context;
	HymtDeviceOptions *device = &budget->device;
	int64_t		page_bytes = hymt_forward_page_bytes(&model->config);
	int64_t		available = budget->memory > 0 ? 0 : hymt_machine_memory();
	int64_t		least;
	int64_t		room;
	int64_t		pages;

	complete_wishes(budget, &model->config);
	budget->total = budget->memory > 0 ? budget->memory : available - available / OTHERS_PART;
	budget->weights = (int64_t) model->stored_bytes;
	budget->tokenizer = PROGRAM_BYTES + tokenizer_bytes(model);
	room = budget->total - budget->weights - budget->tokenizer;
	choose_rows(budget, &model->config, room, page_bytes);
	room -= budget->computing;

	least = pages_for(device->max_context < CONTEXT_MIN ? device->max_context : CONTEXT_MIN) * page_bytes;
	if (room < least)
		return refuse(budget, model, least, error);
	pages = wished_pages(budget, page_bytes);
	if (pages > room / page_bytes)
		pages = room / page_bytes;
	if (pages > INT32_MAX / HYMT_PAGE_TOKENS)
		pages = INT32_MAX / HYMT_PAGE_TOKENS;
	budget->pages = pages * page_bytes;
	budget->page_tokens = (int32_t) pages * HYMT_PAGE_TOKENS;
	device->kv_bytes = budget->pages;
	if (device->max_context > budget->page_tokens)
		device->max_context = budget->page_tokens;
	budget->reduced = device->max_context < budget->wished_context || device->max_rows < budget->wished_rows;
	return true;
}

/* Half of the pages, or of the rows when there are only as many pages as a text should have. False: no less will do. */
static bool
reduce(HymtBudget *budget)
{
	HymtDeviceOptions *device = &budget->device;
	int32_t		least = budget->wished_context < CONTEXT_MIN ? budget->wished_context : CONTEXT_MIN;

	if (budget->page_tokens / 2 >= least)
	{
		device->kv_bytes /= 2;
		budget->page_tokens /= 2;
		budget->pages = device->kv_bytes;
		if (device->max_context > budget->page_tokens)
			device->max_context = budget->page_tokens;
	}
	else if (device->max_rows / 2 >= ROWS_MIN)
	{
		device->max_rows /= 2;
		if (device->max_samples > device->max_rows)
			device->max_samples = device->max_rows;
	}
	else
		return false;
	budget->short_of_memory = true;
	return true;
}

HymtDevice *
hymt_budget_open_device(HymtBudget *budget, const HymtDeviceOps *ops, const HymtModel *model, HymtError *error)
{
	HymtDevice *device;

	while ((device = ops->open(model, &budget->device, error)) == NULL && error->failure == HYMT_FAILURE_NO_MEMORY)
	{
		if (!reduce(budget))
			return NULL;
		fprintf(stderr, "hymt-engine: %s; trying with %d rows per step and keys and values of %d tokens\n", error->message,
				(int) budget->device.max_rows, (int) budget->page_tokens);
	}
	return device;
}

void
hymt_budget_describe(const HymtBudget *budget, char *text, size_t size)
{
	int			length = snprintf(text, size, "%lld of %lld MB: weights %lld, keys and values of %d tokens %lld, computing "
								  "%lld, tokenizer and program %lld",
								  (long long) megabytes(budget->weights + budget->pages + budget->computing +
														budget->tokenizer),
								  (long long) (budget->total >> 20), (long long) megabytes(budget->weights),
								  (int) budget->page_tokens, (long long) megabytes(budget->pages),
								  (long long) megabytes(budget->computing), (long long) megabytes(budget->tokenizer));

	if (budget->reduced && length > 0 && (size_t) length < size)
		snprintf(text + length, size - (size_t) length,
				 "; for want of memory %d rows per step instead of %d, a context of %d tokens instead of %d",
				 (int) budget->device.max_rows, (int) budget->wished_rows, (int) budget->device.max_context,
				 (int) budget->wished_context);
}
