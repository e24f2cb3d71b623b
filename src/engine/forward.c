/*
 * forward.c: the model's forward pass on the CPU. Engine process; hymt_forward_run() on the CPU device's conductor
 * thread, the work_… functions on any thread of its pool. Owns the KV pages and all scratch memory; allocates nothing
 * after opening.
 *
 * A step is a sequence of parallel regions. Inside a region items write disjoint memory and read only what earlier
 * regions wrote, and each value is computed by the same operations whoever computes it, so neither the number of
 * threads nor the cut into items can change a bit (doc/numerics.md).
 *
 * Activations are [rows][width], rows padded to whole vectors with zeros that nobody ever writes.
 */
#include <assert.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "forward.h"
#include "machine.h"
#include "sampling.h"

#define ROWS_PER_ITEM 4			/* of regions that treat rows one by one */
#define HEAD_COLUMNS 64			/* logits per item; one word of the set of seen ids */

/* The largest logit of some consecutive ids. */
typedef struct Best
{
	float		logit;
	int32_t		id;				/* -1: no id that may be chosen */
	bool		has_nan;
} Best;

struct HymtForward
{
	const HymtModel *model;
	const HymtConfig *config;
	const HymtKernels *kernels;
	HymtPool   *pool;
	HymtForwardLimits limits;
	HymtLowRank *low_rank;		/* adapters */

	int			q_width;		/* heads * head_dim */
	int			kv_width;		/* kv_heads * head_dim */
	size_t		hidden_stride;	/* floats per row of x, normed, picked */
	size_t		qkv_stride;
	size_t		mixed_stride;
	size_t		inner_stride;
	size_t		block_floats;	/* keys or values of one page, layer and KV head: [head_dim][16] */
	size_t		page_floats;	/* [layers][keys, values][kv_heads] blocks */
	size_t		score_stride;
	size_t		panel_floats;
	size_t		seen_words;		/* 64-bit words per sample */
	int			head_items;

	float	   *kv;				/* pages */
	float	   *cosines;		/* [max_context][head_dim / 2] */
	float	   *sines;
	float	   *x;				/* the residual stream */
	float	   *normed;			/* input of the next matrix products */
	float	   *qkv;			/* q, k and v of a row side by side */
	float	   *mixed;			/* what attention gives */
	float	   *gate;
	float	   *up;
	float	   *picked;			/* normed final rows of the samples */
	uint64_t   *seen;			/* [max_samples][seen_words], all zero between steps */
	Best	   *best;			/* [head_items][max_samples] */
	float	   *panels;			/* per thread */
	float	   *scores;			/* per thread [heads / kv_heads][score_stride] */
	float	   *some_logits;	/* per thread [max_samples][HEAD_COLUMNS] */
	int32_t    *logit_row;		/* [max_samples]: row of the output's logits, -1: none wanted */
	float	   *draw_floats;	/* per thread [2][vocab_stride] */
	int32_t    *draw_ids;		/* per thread [vocab_stride] */
	size_t		vocab_stride;

	struct
	{
		void	   *memory;
		size_t		bytes;
	}			allocated[24];
	int			allocated_count;
	bool		measuring;		/* take() only adds up */
	int64_t		bytes;			/* taken */

	/* The step under way. */
	const HymtPlan *plan;
	const int32_t *tokens;
	HymtForwardOutput *output;
	const HymtLayer *layer;
	int			layer_index;
};

/* --- matrix products --------------------------------------------------------------------------------------------- */

#define MAX_PARTS 3

/* Products of the same rows with several matrices, cut into items of some columns of one of them. */
typedef struct Projection
{
	HymtForward *forward;
	const float *x;
	size_t		x_stride;
	float	   *out;			/* the parts' results stand side by side in a row */
	size_t		out_stride;
	bool		add;
	int			rows;
	int			part_count;
	const HymtTensor *part[MAX_PARTS];
	HymtLinear	linear;			/* which matrix part 0 is; the others follow it */
	int64_t		columns;		/* per item */
} Projection;

static int64_t
items_of(int64_t columns, int64_t per_item)
{
	return (columns + per_item - 1) / per_item;
}

/* Enough items for threads to finish at about the same time, each large enough to be worth claiming. */
static int64_t
columns_per_item(const HymtForward *forward, int64_t columns)
{
	int64_t		share = hymt_round_lanes(columns / (forward->limits.threads * 8));

	return share < 16 ? 16 : share > 128 ? 128 : share;
}

static float *
panel_of(const HymtForward *forward, int thread)
{
	return forward->panels + (size_t) thread * forward->panel_floats;
}

static void
work_project(void *context, int item, int thread)
{
	const Projection *projection = context;
	const HymtTensor *weights = NULL;
	int64_t		first = item;
	int64_t		offset = 0;
	int			part;
	HymtMatmul	job;

	for (part = 0; part < projection->part_count; part++)
	{
		int64_t		items;

		weights = projection->part[part];
		items = items_of(weights->rows, projection->columns);
		if (first < items)
			break;
		first -= items;
		offset += weights->rows;
	}
	first *= projection->columns;
	job = (HymtMatmul) {
		.out = projection->out + offset + first,
		.out_stride = projection->out_stride,
		.add = projection->add,
		.x = projection->x,
		.x_stride = projection->x_stride,
		.rows = projection->rows,
		.weights = weights,
		.first = first,
		.count = weights->rows - first < projection->columns ? weights->rows - first : projection->columns,
		.panel = panel_of(projection->forward, thread),
	};
	projection->forward->kernels->matmul(&job);
	hymt_low_rank_add(projection->forward->low_rank, &job, projection->linear + (HymtLinear) part);
}

static void
project(Projection *projection)
{
	int64_t		columns = 0;
	int64_t		items = 0;

	hymt_low_rank_reduce(projection->forward->low_rank, projection->forward->layer_index, projection->linear,
						 projection->part_count, projection->x, projection->x_stride);
	for (int i = 0; i < projection->part_count; i++)
		columns += projection->part[i]->rows;
	projection->columns = columns_per_item(projection->forward, columns);
	for (int i = 0; i < projection->part_count; i++)
		items += items_of(projection->part[i]->rows, projection->columns);
	hymt_pool_run(projection->forward->pool, (int) items, work_project, projection);
}

/* normed → qkv */
static void
project_qkv(HymtForward *forward)
{
	const HymtLayer *layer = forward->layer;

	project(&(Projection) {
		.forward = forward,
		.x = forward->normed, .x_stride = forward->hidden_stride,
		.out = forward->qkv, .out_stride = forward->qkv_stride,
		.rows = forward->plan->row_count,
		.part_count = 3, .part = {&layer->q, &layer->k, &layer->v}, .linear = HYMT_LINEAR_Q,
	});
}

/* x += in · weights */
static void
project_residual(HymtForward *forward, const float *in, size_t in_stride, const HymtTensor *weights, HymtLinear linear)
{
	project(&(Projection) {
		.forward = forward,
		.x = in, .x_stride = in_stride,
		.out = forward->x, .out_stride = forward->hidden_stride,
		.add = true,
		.rows = forward->plan->row_count,
		.part_count = 1, .part = {weights}, .linear = linear,
	});
}

/* Adds elements first … first + count - 1 of a bias, if the model has it. */
static void
add_bias(const HymtForward *forward, float *x, const HymtTensor *bias, int64_t first, int count)
{
	if (bias->data != NULL)
		forward->kernels->add_vector(x, bias, first, count);
}

/* normed → gate = silu(gate) * up, some columns */
static void
work_gate_up(void *context, int item, int thread)
{
	HymtForward *forward = context;
	int64_t		width = forward->config->intermediate;
	int64_t		columns = columns_per_item(forward, width);
	int64_t		first = item * columns;
	int			rows = forward->plan->row_count;
	HymtMatmul	job = {
		.out = forward->gate + first,
		.out_stride = forward->inner_stride,
		.x = forward->normed,
		.x_stride = forward->hidden_stride,
		.rows = rows,
		.weights = &forward->layer->gate,
		.first = first,
		.count = width - first < columns ? width - first : columns,
		.panel = panel_of(forward, thread),
	};

	forward->kernels->matmul(&job);
	hymt_low_rank_add(forward->low_rank, &job, HYMT_LINEAR_GATE);
	job.out = forward->up + first;
	job.weights = &forward->layer->up;
	forward->kernels->matmul(&job);
	hymt_low_rank_add(forward->low_rank, &job, HYMT_LINEAR_UP);
	for (int row = 0; row < rows; row++)
	{
		size_t		at = (size_t) row * forward->inner_stride + (size_t) first;

		add_bias(forward, forward->gate + at, &forward->layer->gate_bias, first, (int) job.count);
		add_bias(forward, forward->up + at, &forward->layer->up_bias, first, (int) job.count);
		forward->kernels->swiglu(forward->gate + at, forward->up + at, (int) job.count);
	}
}

static void
gate_up(HymtForward *forward)
{
	int64_t		width = forward->config->intermediate;

	hymt_low_rank_reduce(forward->low_rank, forward->layer_index, HYMT_LINEAR_GATE, 2, forward->normed,
						 forward->hidden_stride);
	hymt_pool_run(forward->pool, (int) items_of(width, columns_per_item(forward, width)), work_gate_up, forward);
}

/* --- rows -------------------------------------------------------------------------------------------------------- */

typedef void (*RowWork) (HymtForward *forward, int row, const void *argument);

typedef struct RowRegion
{
	HymtForward *forward;
	RowWork		work;
	const void *argument;
	int			rows;
} RowRegion;

static void
work_rows(void *context, int item, int thread)
{
	const RowRegion *region = context;
	int			end = (item + 1) * ROWS_PER_ITEM;

	(void) thread;
	for (int row = item * ROWS_PER_ITEM; row < end && row < region->rows; row++)
		region->work(region->forward, row, region->argument);
}

static void
for_rows(HymtForward *forward, int rows, RowWork work, const void *argument)
{
	RowRegion	region = {forward, work, argument, rows};

	hymt_pool_run(forward->pool, (rows + ROWS_PER_ITEM - 1) / ROWS_PER_ITEM, work_rows, &region);
}

static void
row_embed(HymtForward *forward, int row, const void *unused)
{
	const HymtTensor *embedding = &forward->model->embedding;
	float	   *x = forward->x + (size_t) row * forward->hidden_stride;
	int32_t		token = forward->tokens[row];

	(void) unused;
	if (token == HYMT_TOKEN_NAN)
	{
		for (int i = 0; i < forward->config->hidden; i++)
			x[i] = NAN;
		return;
	}
	assert(token >= 0 && token < embedding->rows);
	forward->kernels->widen(x, embedding, token);
}

static void
row_norm(HymtForward *forward, int row, const void *weight)
{
	size_t		at = (size_t) row * forward->hidden_stride;

	forward->kernels->rms_norm(forward->normed + at, forward->x + at, weight, forward->config->hidden,
							   forward->config->norm_eps);
}

/* The bias of a product that was added to the residual stream. */
static void
row_add(HymtForward *forward, int row, const void *bias)
{
	forward->kernels->add_vector(forward->x + (size_t) row * forward->hidden_stride, bias, 0, forward->config->hidden);
}

/* The keys of a row's position in one KV head of the present layer; the values stand kv_heads blocks further. */
static float *
keys_at(const HymtForward *forward, int32_t page, int kv_head)
{
	return forward->kv + (size_t) page * forward->page_floats +
		((size_t) forward->layer_index * 2 * forward->config->kv_heads + (size_t) kv_head) * forward->block_floats;
}

/* Rotates, then norms, one head's q or k. */
static void
rotate_and_norm(const HymtForward *forward, float *head, int32_t position, const HymtTensor *weight)
{
	int			head_dim = forward->config->head_dim;
	int			half = head_dim / 2;
	size_t		angle = (size_t) position * (size_t) half;

	forward->kernels->rotate(head, forward->cosines + angle, forward->sines + angle, half);
	if (weight->data != NULL)	/* a model without QK-norm */
		forward->kernels->rms_norm(head, head, weight, head_dim, forward->config->norm_eps);
}

/* Finishes q of a row in place; puts its k and v into the pages. */
static void
row_positions(HymtForward *forward, int row, const void *unused)
{
	const HymtConfig *config = forward->config;
	const HymtRow *r = &forward->plan->rows[row];
	int			head_dim = config->head_dim;
	int32_t		page = forward->plan->sequences[r->sequence].pages[r->position / HYMT_PAGE_TOKENS];
	int			slot = r->position % HYMT_PAGE_TOKENS;
	float	   *q = forward->qkv + (size_t) row * forward->qkv_stride;
	float	   *k = q + forward->q_width;
	float	   *v = k + forward->kv_width;

	(void) unused;
	add_bias(forward, q, &forward->layer->q_bias, 0, forward->q_width);
	add_bias(forward, k, &forward->layer->k_bias, 0, forward->kv_width);
	add_bias(forward, v, &forward->layer->v_bias, 0, forward->kv_width);
	for (int h = 0; h < config->heads; h++)
		rotate_and_norm(forward, q + h * head_dim, r->position, &forward->layer->q_norm);
	for (int h = 0; h < config->kv_heads; h++)
	{
		float	   *keys = keys_at(forward, page, h) + slot;
		float	   *values = keys + (size_t) config->kv_heads * forward->block_floats;

		rotate_and_norm(forward, k + h * head_dim, r->position, &forward->layer->k_norm);
		for (int d = 0; d < head_dim; d++)
		{
			keys[d * HYMT_PAGE_TOKENS] = k[h * head_dim + d];
			values[d * HYMT_PAGE_TOKENS] = v[h * head_dim + d];
		}
	}
}

/* --- attention --------------------------------------------------------------------------------------------------- */

/* An item is one row in the query heads of one KV head. */
static void
work_attend(void *context, int item, int thread)
{
	HymtForward *forward = context;
	const HymtConfig *config = forward->config;
	int			row = item / config->kv_heads;
	int			kv_head = item % config->kv_heads;
	int			heads = config->heads / config->kv_heads;
	size_t		first = (size_t) kv_head * (size_t) heads * (size_t) config->head_dim;
	const HymtRow *r = &forward->plan->rows[row];
	const float *keys = keys_at(forward, 0, kv_head);

	forward->kernels->attend(&(HymtAttention) {
		.out = forward->mixed + (size_t) row * forward->mixed_stride + first,
		.q = forward->qkv + (size_t) row * forward->qkv_stride + first,
		.heads = heads,
		.head_dim = config->head_dim,
		.keys = keys,
		.values = keys + (size_t) config->kv_heads * forward->block_floats,
		.page_stride = forward->page_floats,
		.pages = forward->plan->sequences[r->sequence].pages,
		.positions = r->position + 1,
		.scale = (float) (1.0 / sqrt((double) config->head_dim)),
		.scores = forward->scores + (size_t) thread * (size_t) heads * forward->score_stride,
		.score_stride = forward->score_stride,
	});
}

static void
attend(HymtForward *forward)
{
	hymt_pool_run(forward->pool, forward->plan->row_count * forward->config->kv_heads, work_attend, forward);
}

/* --- pages ------------------------------------------------------------------------------------------------------- */

/* An item is a layer. Copies may follow from one another, so each layer's are made in order. */
static void
work_copy(void *context, int item, int thread)
{
	HymtForward *forward = context;
	const HymtPlan *plan = forward->plan;
	size_t		floats = forward->page_floats / (size_t) forward->config->layers;

	(void) thread;
	for (int i = 0; i < plan->copy_count; i++)
		memcpy(forward->kv + (size_t) plan->copies[i].to * forward->page_floats + (size_t) item * floats,
			   forward->kv + (size_t) plan->copies[i].from * forward->page_floats + (size_t) item * floats,
			   floats * sizeof(float));
}

/* --- logits and tokens ------------------------------------------------------------------------------------------- */

static void
row_pick(HymtForward *forward, int sample, const void *unused)
{
	int32_t		row = forward->plan->samples[sample].row;

	(void) unused;
	forward->kernels->rms_norm(forward->picked + (size_t) sample * forward->hidden_stride,
							   forward->x + (size_t) row * forward->hidden_stride,
							   &forward->model->final_norm, forward->config->hidden, forward->config->norm_eps);
}

static void
set_seen(HymtForward *forward, int sample, bool on)
{
	const HymtSample *s = &forward->plan->samples[sample];
	uint64_t   *words = forward->seen + (size_t) sample * forward->seen_words;
	int32_t		own = forward->tokens[s->row];

	if (s->penalty == 1.0f)
		return;
	for (int i = -1; i < s->seen_count; i++)
	{
		int32_t		id = i < 0 ? own : s->seen[i];
		uint64_t	bit;

		if (id < 0)				/* the row has no token */
			continue;
		assert(id < forward->config->vocab);
		bit = UINT64_C(1) << (id % 64);
		if (on)
			words[id / 64] |= bit;
		else
			words[id / 64] &= ~bit;
	}
}

static void
penalize(float *logits, uint64_t seen, float penalty)
{
	for (; seen != 0; seen &= seen - 1)
	{
		float	   *logit = &logits[__builtin_ctzll(seen)];

		*logit = *logit > 0.0f ? *logit / penalty : *logit * penalty;
	}
}

/* logits[i] is that of id first + i. */
static Best
best_of(const float *logits, int32_t first, int count, int32_t token_limit)
{
	Best		best = {0.0f, -1, false};

	for (int i = 0; i < count; i++)
	{
		if (isnan(logits[i]))
			best.has_nan = true;
		else if (first + i < token_limit && (best.id < 0 || logits[i] > best.logit))
		{
			best.logit = logits[i];
			best.id = first + i;
		}
	}
	return best;
}

static bool
is_drawn(const HymtSample *sample)
{
	return (sample->flags & HYMT_SAMPLE_TOKEN) != 0 && sample->temperature > 0.0f;
}

static void
work_logits(void *context, int item, int thread)
{
	HymtForward *forward = context;
	const HymtPlan *plan = forward->plan;
	int32_t		vocab = forward->config->vocab;
	int32_t		first = item * HEAD_COLUMNS;
	int32_t		count = vocab - first < HEAD_COLUMNS ? vocab - first : HEAD_COLUMNS;
	float	   *logits = forward->some_logits + (size_t) thread * (size_t) forward->limits.max_samples * HEAD_COLUMNS;

	forward->kernels->matmul(&(HymtMatmul) {
		.out = logits,
		.out_stride = HEAD_COLUMNS,
		.x = forward->picked,
		.x_stride = forward->hidden_stride,
		.rows = plan->sample_count,
		.weights = &forward->model->head,
		.first = first,
		.count = count,
		.panel = panel_of(forward, thread),
	});
	for (int s = 0; s < plan->sample_count; s++, logits += HEAD_COLUMNS)
	{
		const HymtSample *sample = &plan->samples[s];

		if (forward->logit_row[s] >= 0)
			memcpy(forward->output->logits + (size_t) forward->logit_row[s] * (size_t) vocab + first, logits,
				   (size_t) count * sizeof(float));
		if ((sample->flags & HYMT_SAMPLE_TOKEN) && !is_drawn(sample))
		{
			penalize(logits, forward->seen[(size_t) s * forward->seen_words + (size_t) item], sample->penalty);
			forward->best[(size_t) item * (size_t) forward->limits.max_samples + (size_t) s] =
				best_of(logits, first, count, forward->limits.token_limit);
		}
	}
}

static int32_t
choose_token(const HymtForward *forward, int sample)
{
	Best		best = {0.0f, -1, false};

	for (int item = 0; item < forward->head_items; item++)
	{
		Best		other = forward->best[(size_t) item * (size_t) forward->limits.max_samples + (size_t) sample];

		if (other.has_nan)
			return HYMT_TOKEN_NAN;
		if (other.id >= 0 && (best.id < 0 || other.logit > best.logit))
			best = other;
	}
	return best.id;
}

/* An item is a sample; those whose token is not drawn have theirs. */
static void
work_draw(void *context, int item, int thread)
{
	HymtForward *forward = context;
	const HymtSample *sample = &forward->plan->samples[item];
	const uint64_t *seen = forward->seen + (size_t) item * forward->seen_words;
	int32_t		vocab = forward->config->vocab;
	HymtDrawScratch scratch = {
		.scaled = forward->draw_floats + (size_t) thread * 2 * forward->vocab_stride,
		.weights = forward->draw_floats + ((size_t) thread * 2 + 1) * forward->vocab_stride,
		.ids = forward->draw_ids + (size_t) thread * forward->vocab_stride,
	};

	if (!is_drawn(sample))
		return;
	forward->output->tokens[item] = HYMT_TOKEN_NAN;
	memcpy(scratch.scaled, forward->output->logits + (size_t) forward->logit_row[item] * (size_t) vocab,
		   (size_t) vocab * sizeof(float));
	for (int32_t i = 0; i < vocab; i++)
		if (isnan(scratch.scaled[i]))
			return;
	for (int i = 0; i < forward->head_items; i++)
		penalize(scratch.scaled + i * HEAD_COLUMNS, seen[i], sample->penalty);
	forward->output->tokens[item] = hymt_draw_token(forward->kernels, &scratch, forward->limits.token_limit, sample);
}

/* Rows of logits that the plan wants come first, in order; those that tokens are only drawn from stand behind them. */
static bool
place_logits(HymtForward *forward)
{
	const HymtPlan *plan = forward->plan;
	int32_t		rows = 0;

	for (int s = 0; s < plan->sample_count; s++)
		forward->logit_row[s] = (plan->samples[s].flags & HYMT_SAMPLE_LOGITS) ? rows++ : -1;
	forward->output->logit_rows = rows;
	for (int s = 0; s < plan->sample_count; s++)
		if (forward->logit_row[s] < 0 && is_drawn(&plan->samples[s]))
			forward->logit_row[s] = rows++;
	for (int s = 0; s < plan->sample_count; s++)
		if (is_drawn(&plan->samples[s]))
			return true;
	return false;
}

static void
sample_rows(HymtForward *forward)
{
	const HymtPlan *plan = forward->plan;
	bool		some_drawn = place_logits(forward);

	if (plan->sample_count == 0)
		return;
	for_rows(forward, plan->sample_count, row_pick, NULL);
	for (int s = 0; s < plan->sample_count; s++)
		set_seen(forward, s, true);
	hymt_pool_run(forward->pool, forward->head_items, work_logits, forward);
	if (some_drawn)
		hymt_pool_run(forward->pool, plan->sample_count, work_draw, forward);
	for (int s = 0; s < plan->sample_count; s++)
	{
		set_seen(forward, s, false);
		if ((plan->samples[s].flags & HYMT_SAMPLE_TOKEN) && !is_drawn(&plan->samples[s]))
			forward->output->tokens[s] = choose_token(forward, s);
	}
}

/* --- the step ---------------------------------------------------------------------------------------------------- */

void
hymt_forward_run(HymtForward *forward, const HymtPlan *plan, const int32_t *tokens, HymtForwardOutput *output)
{
	int			rows = plan->row_count;

	forward->plan = hymt_low_rank_begin(forward->low_rank, plan, &tokens);
	forward->tokens = tokens;
	forward->output = output;

	if (plan->copy_count > 0)
		hymt_pool_run(forward->pool, forward->config->layers, work_copy, forward);
	for_rows(forward, rows, row_embed, NULL);
	for (int i = 0; i < forward->config->layers; i++)
	{
		const HymtLayer *layer = &forward->model->layer[i];

		forward->layer = layer;
		forward->layer_index = i;

		for_rows(forward, rows, row_norm, &layer->input_norm);
		project_qkv(forward);
		for_rows(forward, rows, row_positions, NULL);
		attend(forward);
		project_residual(forward, forward->mixed, forward->mixed_stride, &layer->o, HYMT_LINEAR_O);
		if (layer->o_bias.data != NULL)
			for_rows(forward, rows, row_add, &layer->o_bias);

		for_rows(forward, rows, row_norm, &layer->post_norm);
		gate_up(forward);
		project_residual(forward, forward->gate, forward->inner_stride, &layer->down, HYMT_LINEAR_DOWN);
		if (layer->down_bias.data != NULL)
			for_rows(forward, rows, row_add, &layer->down_bias);
	}
	sample_rows(forward);
}

/* --- memory ------------------------------------------------------------------------------------------------------ */

int64_t
hymt_forward_page_bytes(const HymtConfig *config)
{
	return (int64_t) config->layers * 2 * config->kv_heads * config->head_dim * HYMT_PAGE_TOKENS *
		(int64_t) sizeof(float);
}

/* Zeroed memory for count elements, released with the forward; NULL when there is none, or the size overflows. */
static void *
take(HymtForward *forward, size_t count, size_t element)
{
	size_t		bytes;
	void	   *memory;

	if (__builtin_mul_overflow(count, element, &bytes) || __builtin_add_overflow(forward->bytes, bytes, &forward->bytes))
		return NULL;
	if (forward->measuring)
		return forward;
	memory = hymt_lazy_alloc(bytes);
	if (memory != NULL)
	{
		forward->allocated[forward->allocated_count].memory = memory;
		forward->allocated[forward->allocated_count++].bytes = bytes;
	}
	return memory;
}

static bool
take_all(HymtForward *forward)
{
	const HymtConfig *config = forward->config;
	const HymtForwardLimits *limits = &forward->limits;
	size_t		rows = (size_t) limits->max_rows;
	size_t		samples = (size_t) limits->max_samples;
	size_t		threads = (size_t) limits->threads;
	size_t		angles = (size_t) limits->max_context * (size_t) (config->head_dim / 2);
	size_t		f = sizeof(float);

	return (forward->kv = take(forward, (size_t) limits->page_count, forward->page_floats * f)) != NULL &&
		(forward->cosines = take(forward, angles, f)) != NULL &&
		(forward->sines = take(forward, angles, f)) != NULL &&
		(forward->x = take(forward, rows * forward->hidden_stride, f)) != NULL &&
		(forward->normed = take(forward, rows * forward->hidden_stride, f)) != NULL &&
		(forward->qkv = take(forward, rows * forward->qkv_stride, f)) != NULL &&
		(forward->mixed = take(forward, rows * forward->mixed_stride, f)) != NULL &&
		(forward->gate = take(forward, rows * forward->inner_stride, f)) != NULL &&
		(forward->up = take(forward, rows * forward->inner_stride, f)) != NULL &&
		(forward->picked = take(forward, samples * forward->hidden_stride, f)) != NULL &&
		(forward->seen = take(forward, samples * forward->seen_words, sizeof(uint64_t))) != NULL &&
		(forward->best = take(forward, (size_t) forward->head_items * samples, sizeof(Best))) != NULL &&
		(forward->panels = take(forward, threads * forward->panel_floats, f)) != NULL &&
		(forward->scores = take(forward, threads * (size_t) (config->heads / config->kv_heads),
								forward->score_stride * f)) != NULL &&
		(forward->some_logits = take(forward, threads * samples * HEAD_COLUMNS, f)) != NULL &&
		(forward->logit_row = take(forward, samples, sizeof(int32_t))) != NULL &&
		(forward->draw_floats = take(forward, threads * 2 * forward->vocab_stride, f)) != NULL &&
		(forward->draw_ids = take(forward, threads * forward->vocab_stride, sizeof(int32_t))) != NULL;
}

/* The pair (i, i + head_dim / 2) turns by position * frequency. */
static void
fill_angles(HymtForward *forward)
{
	int			half = forward->config->head_dim / 2;

	for (int i = 0; i < half; i++)
	{
		double		frequency = hymt_rope_frequency(forward->config, i);

		for (int32_t position = 0; position < forward->limits.max_context; position++)
		{
			size_t		at = (size_t) position * (size_t) half + (size_t) i;

			forward->cosines[at] = (float) cos(position * frequency);
			forward->sines[at] = (float) sin(position * frequency);
		}
	}
}

static int64_t
larger(int64_t a, int64_t b)
{
	return a > b ? a : b;
}

static void
set_sizes(HymtForward *forward, const HymtConfig *config, const HymtForwardLimits *limits)
{
	forward->config = config;
	forward->limits = *limits;
	forward->q_width = config->heads * config->head_dim;
	forward->kv_width = config->kv_heads * config->head_dim;
	forward->hidden_stride = (size_t) hymt_round_lanes(config->hidden);
	forward->qkv_stride = (size_t) hymt_round_lanes(forward->q_width + 2 * forward->kv_width);
	forward->mixed_stride = (size_t) hymt_round_lanes(forward->q_width);
	forward->inner_stride = (size_t) hymt_round_lanes(config->intermediate);
	forward->block_floats = (size_t) config->head_dim * HYMT_PAGE_TOKENS;
	forward->page_floats = (size_t) hymt_forward_page_bytes(config) / sizeof(float);
	forward->score_stride = (size_t) hymt_round_lanes(limits->max_context);
	forward->panel_floats = HYMT_PANEL_COLUMNS *
		(size_t) hymt_panel_stride(larger(larger(config->hidden, config->intermediate),
										  larger(forward->q_width, HYMT_MAX_RANK)));
	forward->head_items = (config->vocab + HEAD_COLUMNS - 1) / HEAD_COLUMNS;
	forward->seen_words = (size_t) forward->head_items;
	forward->vocab_stride = (size_t) hymt_round_lanes(config->vocab);
}

int64_t
hymt_forward_bytes(const HymtConfig *config, const HymtForwardLimits *limits)
{
	HymtForward measure = {.measuring = true};

	set_sizes(&measure, config, limits);
	measure.limits.page_count = 0;
	return take_all(&measure) ? measure.bytes : INT64_MAX / 4;
}

HymtForward *
hymt_forward_open(const HymtModel *model, const HymtKernels *kernels, HymtPool *pool,
				  const HymtForwardLimits *limits, HymtError *error)
{
	const HymtConfig *config = &model->config;
	HymtForward *forward = calloc(1, sizeof(*forward));

	if (forward == NULL)
	{
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY, "out of memory");
		return NULL;
	}
	forward->model = model;
	forward->kernels = kernels;
	forward->pool = pool;
	set_sizes(forward, config, limits);
	if (!take_all(forward))
	{
		hymt_forward_close(forward);
		hymt_fail(error, HYMT_FAILURE_NO_MEMORY,
				  "out of memory for %d pages of keys and values (%lld MB) and %d rows",
				  (int) limits->page_count,
				  (long long) (limits->page_count * hymt_forward_page_bytes(config) / 1000000), (int) limits->max_rows);
		return NULL;
	}
	forward->low_rank = hymt_low_rank_open(&(HymtLowRankSetup) {
		.kernels = kernels,
		.pool = pool,
		.panels = forward->panels,
		.panel_floats = forward->panel_floats,
		.layers = config->layers,
		.max_rows = limits->max_rows,
		.max_samples = limits->max_samples,
	}, error);
	if (forward->low_rank == NULL)
	{
		hymt_forward_close(forward);
		return NULL;
	}
	fill_angles(forward);
	return forward;
}

HymtLowRank *
hymt_forward_low_rank(HymtForward *forward)
{
	return forward->low_rank;
}

void
hymt_forward_close(HymtForward *forward)
{
	if (forward == NULL)
		return;
	hymt_low_rank_close(forward->low_rank);
	for (int i = 0; i < forward->allocated_count; i++)
		hymt_lazy_free(forward->allocated[i].memory, forward->allocated[i].bytes);
	free(forward);
}
