/*
 * low_rank.c: what LoRA adapters add to the matrix products of a step on the CPU. Engine process; begin() and reduce()
 * on the conductor thread, the rest as low_rank.h says. Owns the table of loaded adapters and its scratch memory;
 * allocates nothing after opening.
 *
 * A plan may have rows of several adapters. They are brought together, adapter by adapter, so that each adapter's
 * weights are read once per step; then both products are ordinary matrix products over some of the rows. Which other
 * rows there are cannot be seen in any of them (doc/numerics.md).
 */
#include "low_rank.h"

#include <assert.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "machine.h"

#define MAX_SLOTS 3				/* matrices that are applied to the same rows */
#define RANKS_PER_ITEM 16

/* The id is written last and cleared first: a step that looks for another one may read it at the same time. */
typedef struct Entry
{
	atomic_int	id;				/* 0: free */
	const HymtAdapter *adapter;
} Entry;

/* Consecutive rows of the step's plan with the same adapter. */
typedef struct Group
{
	int32_t		id;
	const HymtAdapter *adapter; /* NULL: none */
	int			first;
	int			rows;
	int			filled;			/* while rows are sorted */
} Group;

struct HymtLowRank
{
	HymtLowRankSetup setup;
	Entry		entry[HYMT_DEVICE_ADAPTERS];

	/* The step under way. */
	Group		group[HYMT_DEVICE_ADAPTERS + 1];
	int			group_count;	/* 0: no row has an adapter */
	HymtPlan	plan;			/* with rows in the order of groups */
	HymtRow    *rows;			/* [max_rows] */
	HymtSample *samples;		/* [max_samples] */
	int32_t    *tokens;			/* [max_rows] */
	int32_t    *place;			/* [max_rows]: where a row of the scheduler's plan went */
	float	   *reduced;		/* [MAX_SLOTS][max_rows][stride] */
	size_t		reduced_bytes;
	size_t		stride;			/* floats per row: the largest rank in this step, padded */

	/* The reduction under way. */
	int			layer;
	HymtLinear	linear;			/* the first one */
	int			linear_count;
	const float *x;
	size_t		x_stride;
};

/* --- memory ------------------------------------------------------------------------------------------------------ */

HymtLowRank *
hymt_low_rank_open(const HymtLowRankSetup *setup, HymtError *error)
{
	size_t		rows = (size_t) setup->max_rows;
	HymtLowRank *low_rank = calloc(1, sizeof *low_rank);

	if (low_rank != NULL)
	{
		low_rank->setup = *setup;
		low_rank->rows = calloc(rows, sizeof *low_rank->rows);
		low_rank->samples = calloc((size_t) setup->max_samples, sizeof *low_rank->samples);
		low_rank->tokens = calloc(rows, sizeof *low_rank->tokens);
		low_rank->place = calloc(rows, sizeof *low_rank->place);
		low_rank->reduced_bytes = MAX_SLOTS * rows * (size_t) hymt_round_lanes(HYMT_MAX_RANK) * sizeof(float);
		/* Takes up memory only as far as ranks and rows reach. */
		low_rank->reduced = hymt_lazy_alloc(low_rank->reduced_bytes);
		if (low_rank->rows != NULL && low_rank->samples != NULL && low_rank->tokens != NULL &&
			low_rank->place != NULL && low_rank->reduced != NULL)
			return low_rank;
	}
	hymt_low_rank_close(low_rank);
	hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory for %d rows", (int) setup->max_rows);
	return NULL;
}

void
hymt_low_rank_close(HymtLowRank *low_rank)
{
	if (low_rank == NULL)
		return;
	hymt_lazy_free(low_rank->reduced, low_rank->reduced_bytes);
	free(low_rank->rows);
	free(low_rank->samples);
	free(low_rank->tokens);
	free(low_rank->place);
	free(low_rank);
}

/* --- the table --------------------------------------------------------------------------------------------------- */

static Entry *
find_entry(HymtLowRank *low_rank, int32_t id)
{
	for (int i = 0; i < HYMT_DEVICE_ADAPTERS; i++)
		if (atomic_load_explicit(&low_rank->entry[i].id, memory_order_acquire) == id)
			return &low_rank->entry[i];
	return NULL;
}

bool
hymt_low_rank_load(HymtLowRank *low_rank, int32_t id, const HymtAdapter *adapter)
{
	Entry	   *entry = find_entry(low_rank, 0);

	assert(id > 0 && find_entry(low_rank, id) == NULL);
	if (entry == NULL)
		return false;
	entry->adapter = adapter;
	atomic_store_explicit(&entry->id, id, memory_order_release);
	return true;
}

void
hymt_low_rank_unload(HymtLowRank *low_rank, int32_t id)
{
	Entry	   *entry = find_entry(low_rank, id);

	assert(id > 0 && entry != NULL);
	atomic_store_explicit(&entry->id, 0, memory_order_release);
}

bool
hymt_low_rank_has(const HymtLowRank *low_rank, int32_t id)
{
	return find_entry((HymtLowRank *) low_rank, id) != NULL;
}

/* --- grouping rows ----------------------------------------------------------------------------------------------- */

static Group *
group_of(HymtLowRank *low_rank, int32_t id)
{
	Group	   *group;

	for (int i = 0; i < low_rank->group_count; i++)
		if (low_rank->group[i].id == id)
			return &low_rank->group[i];
	assert(low_rank->group_count <= HYMT_DEVICE_ADAPTERS);
	group = &low_rank->group[low_rank->group_count++];
	memset(group, 0, sizeof *group);
	group->id = id;
	if (id != 0)
		group->adapter = find_entry(low_rank, id)->adapter;
	return group;
}

/* Find the plan's groups, in the order in which their first rows stand there. */
static void
find_groups(HymtLowRank *low_rank, const HymtPlan *plan)
{
	int			first = 0;

	for (int i = 0; i < plan->row_count; i++)
		group_of(low_rank, plan->sequences[plan->rows[i].sequence].adapter)->rows++;
	for (int i = 0; i < low_rank->group_count; i++)
	{
		low_rank->group[i].first = first;
		first += low_rank->group[i].rows;
	}
}

/* Rows keep their order inside of a group, so that those of one sequence stay consecutive and ascending. */
static void
sort_rows(HymtLowRank *low_rank, const HymtPlan *plan, const int32_t *tokens)
{
	for (int i = 0; i < plan->row_count; i++)
	{
		Group	   *group = group_of(low_rank, plan->sequences[plan->rows[i].sequence].adapter);
		int			place = group->first + group->filled++;

		low_rank->place[i] = place;
		low_rank->rows[place] = plan->rows[i];
		low_rank->tokens[place] = tokens[i];
	}
	for (int i = 0; i < plan->sample_count; i++)
	{
		low_rank->samples[i] = plan->samples[i];
		low_rank->samples[i].row = low_rank->place[plan->samples[i].row];
	}
	low_rank->plan = *plan;
	low_rank->plan.rows = low_rank->rows;
	low_rank->plan.samples = low_rank->samples;
}

/* Zeros behind a row's values are part of what a matrix product reads, so the stride is the same for all. */
static void
choose_stride(HymtLowRank *low_rank)
{
	int			layers = low_rank->setup.layers;
	int64_t		largest = 1;

	for (int i = 0; i < low_rank->group_count; i++)
	{
		const HymtAdapter *adapter = low_rank->group[i].adapter;

		for (int n = 0; adapter != NULL && n < layers * HYMT_LINEARS; n++)
		{
			const HymtLowRankPair *pair = &adapter->layer[n / HYMT_LINEARS][n % HYMT_LINEARS];

			if (pair->a.data != NULL && pair->a.rows > largest)
				largest = pair->a.rows;
		}
	}
	low_rank->stride = (size_t) hymt_round_lanes(largest);
}

const HymtPlan *
hymt_low_rank_begin(HymtLowRank *low_rank, const HymtPlan *plan, const int32_t **tokens)
{
	bool		any = false;

	low_rank->group_count = 0;
	for (int i = 0; i < plan->sequence_count && !any; i++)
		any = plan->sequences[i].adapter != 0;
	if (!any)
		return plan;
	find_groups(low_rank, plan);
	choose_stride(low_rank);
	if (low_rank->group_count == 1)
		return plan;
	sort_rows(low_rank, plan, *tokens);
	*tokens = low_rank->tokens;
	return &low_rank->plan;
}

/* --- products ---------------------------------------------------------------------------------------------------- */

static const HymtLowRankPair *
pair_of(const HymtLowRank *low_rank, const Group *group, int linear)
{
	const HymtLowRankPair *pair = group->adapter != NULL ? &group->adapter->layer[low_rank->layer][linear] : NULL;

	return pair != NULL && pair->a.data != NULL ? pair : NULL;
}

/* Where the reduced rows of one of the matrices begin. */
static float *
reduced_at(const HymtLowRank *low_rank, int linear, int row)
{
	size_t		slot = (size_t) (linear - (int) low_rank->linear);

	return low_rank->reduced + (slot * (size_t) low_rank->setup.max_rows + (size_t) row) * low_rank->stride;
}

static int
items_of(const HymtLowRankPair *pair)
{
	return pair == NULL ? 0 : (int) ((pair->a.rows + RANKS_PER_ITEM - 1) / RANKS_PER_ITEM);
}

/* Some columns of one group and matrix: the sums, then each times the scale. Behind the last column there are zeros. */
static void
reduce_columns(const HymtLowRank *low_rank, const Group *group, int linear, int item, int thread)
{
	const HymtLowRankPair *pair = pair_of(low_rank, group, linear);
	int64_t		first = (int64_t) item * RANKS_PER_ITEM;
	int64_t		left = pair->a.rows - first;
	int			count = left < RANKS_PER_ITEM ? (int) left : RANKS_PER_ITEM;
	float	   *out = reduced_at(low_rank, linear, group->first) + first;

	low_rank->setup.kernels->matmul(&(HymtMatmul) {
		.out = out,
		.out_stride = low_rank->stride,
		.x = low_rank->x + (size_t) group->first * low_rank->x_stride,
		.x_stride = low_rank->x_stride,
		.rows = group->rows,
		.weights = &pair->a,
		.first = first,
		.count = count,
		.panel = low_rank->setup.panels + (size_t) thread * low_rank->setup.panel_floats,
	});
	for (int row = 0; row < group->rows; row++, out += low_rank->stride)
	{
		for (int i = 0; i < count; i++)
			out[i] *= pair->scale;
		for (int i = count; i < RANKS_PER_ITEM; i++)
			out[i] = 0.0f;
	}
}

static void
work_reduce(void *context, int item, int thread)
{
	const HymtLowRank *low_rank = context;

	for (int i = 0; i < low_rank->group_count; i++)
		for (int n = 0; n < low_rank->linear_count; n++)
		{
			int			linear = (int) low_rank->linear + n;
			int			items = items_of(pair_of(low_rank, &low_rank->group[i], linear));

			if (item < items)
			{
				reduce_columns(low_rank, &low_rank->group[i], linear, item, thread);
				return;
			}
			item -= items;
		}
}

void
hymt_low_rank_reduce(HymtLowRank *low_rank, int layer, HymtLinear first, int count, const float *x, size_t x_stride)
{
	int			items = 0;

	assert(count <= MAX_SLOTS);
	low_rank->layer = layer;
	low_rank->linear = first;
	low_rank->linear_count = count;
	low_rank->x = x;
	low_rank->x_stride = x_stride;
	for (int i = 0; i < low_rank->group_count; i++)
		for (int n = 0; n < count; n++)
			items += items_of(pair_of(low_rank, &low_rank->group[i], (int) first + n));
	if (items > 0)
		hymt_pool_run(low_rank->setup.pool, items, work_reduce, low_rank);
}

void
hymt_low_rank_add(const HymtLowRank *low_rank, const HymtMatmul *base, HymtLinear linear)
{
	for (int i = 0; i < low_rank->group_count; i++)
	{
		const Group *group = &low_rank->group[i];
		const HymtLowRankPair *pair = pair_of(low_rank, group, (int) linear);
		HymtMatmul	job = *base;

		if (pair == NULL)
			continue;
		job.out = base->out + (size_t) group->first * base->out_stride;
		job.add = true;
		job.x = reduced_at(low_rank, (int) linear, group->first);
		job.x_stride = low_rank->stride;
		job.rows = group->rows;
		job.weights = &pair->b;
		low_rank->setup.kernels->matmul(&job);
	}
}
