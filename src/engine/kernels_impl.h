/*
 * kernels_impl.h: the kernels, written once over V16, a vector of 16 fp32 lanes. Runs in any thread of the engine.
 *
 * Included by each kernels_ISA.c after it has defined
 *
 *     V16                                  16 lanes of fp32
 *     v16_zero, v16_set, v16_load, v16_load_part, v16_store, v16_store_part
 *     v16_load_f16, v16_load_f16_part, v16_load_bf16, v16_load_bf16_part      widening, exact
 *     v16_load_i8                          16 bytes as numbers from -128 to 127
 *     v16_load_u4(bytes, shift)            4 bits of each of 16 bytes
 *     v16_load_u6(low, shift, high, shift) 4 bits of each of 16 bytes, and above them 2 of each of 16 others
 *     v16_load_u32_u4(words, shift)        4 bits of each of 16 words
 *     v16_load_f8                          16 F8 (E4M3)
 *     widen_f16                            one half
 *     v16_store_columns(out, pitch, v)     out[l * pitch + i] = lane l of v[i], for 8 vectors
 *     v16_add, v16_sub, v16_mul, v16_div, v16_max, v16_min    per lane; max is a > b ? a : b, min is a < b ? a : b
 *     v16_fma(a, b, c)                     a * b + c with one rounding
 *     v16_zero_below(x, bound, y)          x < bound ? +0 : y
 *     v16_exponent(t)                      the float whose bits are (bits(t) << 23) + bits(1.0f), modulo 2^32
 *     v16_trees(out, v, n)                 out[i] = the 16 lanes of v[i] summed by the fixed tree, 1 <= n <= 16
 *     TILE_ROWS, TILE_COLUMNS, GEMV_COLUMNS    shapes of register tiles; their products are at most 16
 *     KERNELS_ISA, KERNELS_FUNCTION        what the table at the end is called
 *
 * Loads named _part read the first n lanes, 0 < n < 16, touch nothing behind them, and set the others to +0.
 *
 * Since every operation here acts on lanes independently, and the tree is fixed, results do not depend on what V16 is
 * made of. Tiles only decide which sums are under way at the same time: each sum has its own accumulator, and no sum is
 * ever split. So none of the three shapes can be seen in a result, and neither can the number of rows.
 *
 * Tile functions take their shape as constant arguments and are always inlined, so that their accumulators live in
 * registers.
 */
#include <math.h>
#include <string.h>

#define TILE static inline __attribute__((always_inline))

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#elif defined(__GNUC__)
#define UNROLL _Pragma("GCC unroll 16")
#else
#define UNROLL
#endif

#define MAX_TILE 16

_Static_assert(TILE_ROWS * TILE_COLUMNS <= MAX_TILE && GEMV_COLUMNS <= MAX_TILE, "a tile has at most 16 sums");
_Static_assert(TILE_COLUMNS <= HYMT_PANEL_COLUMNS && GEMV_COLUMNS <= HYMT_PANEL_COLUMNS &&
			   HYMT_LANES <= HYMT_PANEL_COLUMNS, "a panel holds the columns of a tile, and those widened at once");

/* --- loading weights --------------------------------------------------------------------------------------------- */

/* Those of the plain types, which a product can take as they are stored. */
TILE size_t
element_size(HymtDtype dtype)
{
	return dtype == HYMT_DTYPE_F32 ? 4 : 2;
}

/* Element `index` of a stored row, and the 15 behind it. */
TILE V16
load_weights(const char *row, int64_t index, HymtDtype dtype)
{
	switch (dtype)
	{
		case HYMT_DTYPE_F32:
			return v16_load((const float *) row + index);
		case HYMT_DTYPE_F16:
			return v16_load_f16((const uint16_t *) row + index);
		default:
			return v16_load_bf16((const uint16_t *) row + index);
	}
}

TILE V16
load_weights_part(const char *row, int64_t index, HymtDtype dtype, int n)
{
	switch (dtype)
	{
		case HYMT_DTYPE_F32:
			return v16_load_part((const float *) row + index, n);
		case HYMT_DTYPE_F16:
			return v16_load_f16_part((const uint16_t *) row + index, n);
		default:
			return v16_load_bf16_part((const uint16_t *) row + index, n);
	}
}

/*
 * Weights are read once per step, in short rows: the hardware sees the pattern too late. The rows of the next tile are
 * asked for while this one's are used. An address behind the mapping does no harm.
 */
#define FETCH_AHEAD(address) __builtin_prefetch(address, 0, 3)

/* Pads with +0 up to a multiple of 16 where `pad` is set. */
TILE void
widen_typed(float *out, const char *data, HymtDtype dtype, int64_t n, bool pad)
{
	int64_t		i = 0;

	for (; i + HYMT_LANES <= n; i += HYMT_LANES)
		v16_store(out + i, load_weights(data, i, dtype));
	if (i < n)
	{
		V16			last = load_weights_part(data, i, dtype, (int) (n - i));

		if (pad)
			v16_store(out + i, last);
		else
			v16_store_part(out + i, last, (int) (n - i));
	}
}

#include "kernels_quantised.h"

static void
widen(float *out, const HymtTensor *tensor, int64_t row)
{
	int64_t		n = tensor->columns;
	const char *data = (const char *) tensor->data + (size_t) row * hymt_dtype_bytes(tensor->dtype, n);

	if (tensor->dtype == HYMT_DTYPE_F32)
		widen_typed(out, data, HYMT_DTYPE_F32, n, false);
	else if (tensor->dtype == HYMT_DTYPE_F16)
		widen_typed(out, data, HYMT_DTYPE_F16, n, false);
	else if (tensor->dtype == HYMT_DTYPE_BF16)
		widen_typed(out, data, HYMT_DTYPE_BF16, n, false);
	else
		widen_quantised(out, tensor, row, false);
}

static void
add_vector(float *x, const HymtTensor *vector, int64_t first, int n)
{
	HymtDtype	dtype = vector->dtype;
	const char *data = (const char *) vector->data + (size_t) first * element_size(dtype);
	int			i = 0;

	for (; i + HYMT_LANES <= n; i += HYMT_LANES)
		v16_store(x + i, v16_add(v16_load(x + i), load_weights(data, i, dtype)));
	if (i < n)
		v16_store_part(x + i, v16_add(v16_load_part(x + i, n - i), load_weights_part(data, i, dtype, n - i)), n - i);
}

/* --- matrix products --------------------------------------------------------------------------------------------- */

/*
 * R rows of x times C columns. `weights` is the first column's k stored values, the next column's are `pitch` bytes
 * further. The sums go to out[r * out_stride + c]. fetch: the columns behind these come next, from far memory.
 * ahead: NULL, or what comes next from there; with each vector of weights `step` bytes of it are fetched.
 */
TILE void
compute_tile(const HymtMatmul *job, float *out, const float *x, const char *weights, size_t pitch, HymtDtype dtype,
			 const bool fetch, const char *ahead, size_t step, const int R, const int C)
{
	int64_t		k = job->weights->columns;
	int64_t		i = 0;
	V16			sums[MAX_TILE];
	float		totals[MAX_TILE];

	UNROLL
	for (int t = 0; t < R * C; t++)
		sums[t] = v16_zero();
	for (; i + HYMT_LANES <= k; i += HYMT_LANES)
	{
		V16			w[MAX_TILE];

		UNROLL
		for (int c = 0; c < C; c++)
		{
			w[c] = load_weights(weights + c * pitch, i, dtype);
			if (fetch)
				FETCH_AHEAD(weights + (size_t) (c + C) * pitch + (size_t) i * element_size(dtype));
		}
		if (ahead != NULL)
		{
			FETCH_AHEAD(ahead);
			ahead += step;
		}
		UNROLL
		for (int t = 0; t < R * C; t++)
			sums[t] = v16_fma(v16_load(x + (t / C) * job->x_stride + i), w[t % C], sums[t]);
	}
	if (i < k)
	{
		V16			w[MAX_TILE];

		UNROLL
		for (int c = 0; c < C; c++)
			w[c] = load_weights_part(weights + c * pitch, i, dtype, (int) (k - i));
		UNROLL
		for (int t = 0; t < R * C; t++)
			sums[t] = v16_fma(v16_load(x + (t / C) * job->x_stride + i), w[t % C], sums[t]);
	}
	v16_trees(totals, sums, R * C);
	if (job->add)
	{
		UNROLL
		for (int t = 0; t < R * C; t++)
			out[(t / C) * job->out_stride + t % C] += totals[t];
	}
	else
	{
		UNROLL
		for (int t = 0; t < R * C; t++)
			out[(t / C) * job->out_stride + t % C] = totals[t];
	}
}

TILE void
matmul_tile(const HymtMatmul *job, float *out, const float *x, const char *weights, size_t pitch, HymtDtype dtype,
			const bool fetch, const int R, const int C)
{
	compute_tile(job, out, x, weights, pitch, dtype, fetch, NULL, 0, R, C);
}

/* All rows times C columns; `column` counts from job->first. */
TILE void
matmul_columns(const HymtMatmul *job, int64_t column, const char *weights, size_t pitch, HymtDtype dtype,
			   const bool fetch, const int C)
{
	const float *x = job->x;
	float	   *out = job->out + column;
	int			rows = job->rows;

	for (; rows >= TILE_ROWS; rows -= TILE_ROWS)
	{
		matmul_tile(job, out, x, weights, pitch, dtype, fetch, TILE_ROWS, C);
		x += TILE_ROWS * job->x_stride;
		out += TILE_ROWS * job->out_stride;
	}
	switch (rows)
	{
#if TILE_ROWS > 3
		case 3:
			matmul_tile(job, out, x, weights, pitch, dtype, fetch, 3, C);
			break;
#endif
#if TILE_ROWS > 2
		case 2:
			matmul_tile(job, out, x, weights, pitch, dtype, fetch, 2, C);
			break;
#endif
#if TILE_ROWS > 1
		case 1:
			matmul_tile(job, out, x, weights, pitch, dtype, fetch, 1, C);
			break;
#endif
		default:
			break;
	}
}

TILE void
matmul_typed(const HymtMatmul *job, HymtDtype dtype)
{
	size_t		pitch = (size_t) job->weights->columns * element_size(dtype);
	const char *weights = (const char *) job->weights->data + (size_t) job->first * pitch;
	int64_t		column = 0;

	if (job->rows == 1)
	{
		for (; column + GEMV_COLUMNS <= job->count; column += GEMV_COLUMNS)
			matmul_tile(job, job->out + column, job->x, weights + (size_t) column * pitch, pitch, dtype,
						true, 1, GEMV_COLUMNS);
	}
	else
	{
		for (; column + TILE_COLUMNS <= job->count; column += TILE_COLUMNS)
			matmul_columns(job, column, weights + (size_t) column * pitch, pitch, dtype, true, TILE_COLUMNS);
	}
	for (; column < job->count; column++)
		matmul_columns(job, column, weights + (size_t) column * pitch, pitch, dtype, false, 1);
}

/*
 * The C columns in the panel times all rows, of which there are more than one tile. The stored columns that come next
 * begin at `ahead`, `bytes` for each vector of them; they are fetched evenly meanwhile: asked for all at once, when the
 * panel is filled, they would be more than the memory takes orders for, and the sums would wait.
 */
TILE void
matmul_widened(const HymtMatmul *job, int64_t column, const char *ahead, size_t bytes, const int C)
{
	int64_t		k = job->weights->columns;
	const char *panel = (const char *) job->panel;
	size_t		pitch = (size_t) hymt_panel_stride(k) * sizeof(float);
	int			tiles = job->rows / TILE_ROWS;
	size_t		step = (bytes + (size_t) tiles - 1) / (size_t) tiles;
	HymtMatmul	rest = *job;

	for (int tile = 0; tile < tiles; tile++)
	{
		compute_tile(job, rest.out + column, rest.x, panel, pitch, HYMT_DTYPE_F32, false, ahead, step, TILE_ROWS, C);
		ahead += (size_t) (k / HYMT_LANES) * step;
		rest.x += TILE_ROWS * job->x_stride;
		rest.out += TILE_ROWS * job->out_stride;
	}
	rest.rows = job->rows % TILE_ROWS;
	matmul_columns(&rest, column, panel, pitch, HYMT_DTYPE_F32, false, C);
}

/*
 * With several tiles of rows each weight would be widened several times: widen it once into a panel of a few columns
 * that stays in the nearest cache.
 */
TILE void
matmul_panels(const HymtMatmul *job, HymtDtype dtype)
{
	int64_t		k = job->weights->columns;
	int64_t		stride = hymt_panel_stride(k);
	size_t		vector = HYMT_LANES * element_size(dtype);
	size_t		pitch = (size_t) k * element_size(dtype);
	const char *weights = (const char *) job->weights->data + (size_t) job->first * pitch;
	int64_t		column = 0;

	while (column < job->count)
	{
		int			width = job->count - column < TILE_COLUMNS ? 1 : TILE_COLUMNS;
		const char *ahead = weights + (size_t) (column + width) * pitch;

		for (int c = 0; c < width; c++)
			widen_typed(job->panel + c * stride, weights + (size_t) (column + c) * pitch, dtype, k, true);
		if (width == 1)
			matmul_widened(job, column, ahead, vector, 1);
		else
			matmul_widened(job, column, ahead, TILE_COLUMNS * vector, TILE_COLUMNS);
		column += width;
	}
}

static void
matmul_f32(const HymtMatmul *job)
{
	matmul_typed(job, HYMT_DTYPE_F32);
}

static void
matmul_f16(const HymtMatmul *job)
{
	if (job->rows > TILE_ROWS)
		matmul_panels(job, HYMT_DTYPE_F16);
	else
		matmul_typed(job, HYMT_DTYPE_F16);
}

static void
matmul_bf16(const HymtMatmul *job)
{
	if (job->rows > TILE_ROWS)
		matmul_panels(job, HYMT_DTYPE_BF16);
	else
		matmul_typed(job, HYMT_DTYPE_BF16);
}

/* All rows times the `width` columns in the panel; `column`, that of the first one, counts from job->first. */
static void
matmul_panel(const HymtMatmul *job, int64_t column, int width)
{
	size_t		pitch = (size_t) hymt_panel_stride(job->weights->columns) * sizeof(float);
	const char *panel = (const char *) job->panel;
	int			c = 0;

	if (job->rows == 1)
	{
		for (; c + GEMV_COLUMNS <= width; c += GEMV_COLUMNS)
			matmul_tile(job, job->out + column + c, job->x, panel + (size_t) c * pitch, pitch, HYMT_DTYPE_F32,
						false, 1, GEMV_COLUMNS);
	}
	else
	{
		for (; c + TILE_COLUMNS <= width; c += TILE_COLUMNS)
			matmul_columns(job, column + c, panel + (size_t) c * pitch, pitch, HYMT_DTYPE_F32, false, TILE_COLUMNS);
	}
	for (; c < width; c++)
		matmul_columns(job, column + c, panel + (size_t) c * pitch, pitch, HYMT_DTYPE_F32, false, 1);
}

/* One row of x times `width` neighbouring columns, up to 16; `column` counts from job->first. */
static void
matmul_gptq_row(const HymtMatmul *job, int64_t column, int width)
{
	int64_t		k = job->weights->columns;
	GptqRows	rows = {.weights = job->weights, .first = job->first + column, .width = width, .group = -1};
	V16			lanes[HYMT_LANES];
	float		totals[HYMT_LANES];

	/* Words of neighbours stand side by side, so here a vector is one lane of the sums of all columns. */
	UNROLL
	for (int l = 0; l < HYMT_LANES; l++)
		lanes[l] = v16_zero();
	for (int64_t i = 0; i < k; i += HYMT_LANES)
	{
		V16			values[HYMT_LANES];

		gptq_load(&rows, i, values);
		if (i + 8 < k)
			gptq_load(&rows, i + 8, values + 8);
		else
			for (int l = 8; l < HYMT_LANES; l++)
				values[l] = v16_zero();
		UNROLL
		for (int l = 0; l < HYMT_LANES; l++)
			lanes[l] = v16_fma(v16_set(job->x[i + l]), values[l], lanes[l]);
	}
	UNROLL
	for (int half = HYMT_LANES / 2; half > 0; half /= 2)
		for (int l = 0; l < half; l++)
			lanes[l] = v16_add(lanes[l], lanes[l + half]);
	v16_store(totals, lanes[0]);
	for (int c = 0; c < width; c++)
		job->out[column + c] = job->add ? job->out[column + c] + totals[c] : totals[c];
}

static void
matmul_gptq(const HymtMatmul *job)
{
	int64_t		k = job->weights->columns;
	size_t		stride = (size_t) hymt_panel_stride(k);
	int			width;

	/* 16 columns are a piece of cache: all of them are taken at once. */
	for (int64_t column = 0; column < job->count; column += width)
	{
		width = job->count - column < HYMT_LANES ? (int) (job->count - column) : HYMT_LANES;
		if (job->rows == 1)
		{
			matmul_gptq_row(job, column, width);
			continue;
		}
		widen_gptq(job->panel, stride, job->weights, job->first + column, width);
		for (int c = 0; c < width; c++)
			memset(job->panel + (size_t) c * stride + k, 0, (size_t) (hymt_round_lanes(k) - k) * sizeof(float));
		matmul_panel(job, column, width);
	}
}

/* All other quantised weights always go through the panel, which is narrow, so that it stays in the nearest cache. */
static void
matmul_quantised(const HymtMatmul *job)
{
	int			most = job->rows == 1 ? GEMV_COLUMNS : TILE_COLUMNS;
	size_t		stride = (size_t) hymt_panel_stride(job->weights->columns);
	int			width;

	for (int64_t column = 0; column < job->count; column += width)
	{
		width = job->count - column < most ? (int) (job->count - column) : most;
		for (int c = 0; c < width; c++)
			widen_quantised(job->panel + (size_t) c * stride, job->weights, job->first + column + c, true);
		matmul_panel(job, column, width);
	}
}

static void
matmul(const HymtMatmul *job)
{
	switch (job->weights->dtype)
	{
		case HYMT_DTYPE_F32:
			matmul_f32(job);
			break;
		case HYMT_DTYPE_F16:
			matmul_f16(job);
			break;
		case HYMT_DTYPE_BF16:
			matmul_bf16(job);
			break;
		case HYMT_DTYPE_GPTQ_INT4:
			matmul_gptq(job);
			break;
		default:
			matmul_quantised(job);
			break;
	}
}

/* --- norm, rotation, activation ---------------------------------------------------------------------------------- */

static void
rms_norm(float *out, const float *x, const HymtTensor *weight, int n, float eps)
{
	V16			squares = v16_zero();
	V16			scale;
	float		total;
	int			i = 0;

	for (; i + HYMT_LANES <= n; i += HYMT_LANES)
	{
		V16			v = v16_load(x + i);

		squares = v16_fma(v, v, squares);
	}
	if (i < n)
	{
		V16			v = v16_load_part(x + i, n - i);

		squares = v16_fma(v, v, squares);
	}
	v16_trees(&total, &squares, 1);
	scale = v16_set(1.0f / sqrtf(total / (float) n + eps));

	for (i = 0; i + HYMT_LANES <= n; i += HYMT_LANES)
		v16_store(out + i, v16_mul(v16_mul(v16_load(x + i), scale), load_weights(weight->data, i, weight->dtype)));
	if (i < n)
		v16_store_part(out + i,
					   v16_mul(v16_mul(v16_load_part(x + i, n - i), scale),
							   load_weights_part(weight->data, i, weight->dtype, n - i)),
					   n - i);
}

static void
rotate(float *x, const float *cosines, const float *sines, int half)
{
	for (int i = 0; i < half; i++)
	{
		float		a = x[i];
		float		b = x[half + i];

		x[i] = fmaf(a, cosines[i], -(b * sines[i]));
		x[half + i] = fmaf(b, cosines[i], a * sines[i]);
	}
}

/*
 * exp(x): x = n ln 2 + r with n an integer and |r| <= ln(2) / 2 plus rounding, exp(r) by its Taylor polynomial of
 * degree 7, times 2^n. Below EXP_ZERO_BELOW the result is +0 (the true value is below the normal numbers), above
 * EXP_MAX it is that of EXP_MAX. NaN gives NaN.
 */
#define EXP_ZERO_BELOW (-87.3f)
#define EXP_MAX 88.0f
#define EXP_LOG2_E 0x1.715476p+0f
#define EXP_LN2_HIGH 0x1.62e4p-1f	/* 15 bits: n * EXP_LN2_HIGH is exact */
#define EXP_LN2_LOW 0x1.7f7d1cp-20f
#define EXP_ROUND 0x1.8p23f		/* adding it to a small number leaves the nearest integer in the low bits */

TILE V16
v16_exp(V16 x)
{
	/* The constant goes first: max and min give the second operand when it is NaN. */
	V16			y = v16_max(v16_set(EXP_ZERO_BELOW), v16_min(v16_set(EXP_MAX), x));
	V16			t = v16_fma(y, v16_set(EXP_LOG2_E), v16_set(EXP_ROUND));
	V16			minus_n = v16_sub(v16_set(EXP_ROUND), t);
	V16			r = v16_fma(minus_n, v16_set(EXP_LN2_LOW), v16_fma(minus_n, v16_set(EXP_LN2_HIGH), y));
	V16			p = v16_set(0x1.a01a02p-13f);	/* 1/7! */

	p = v16_fma(p, r, v16_set(0x1.6c16c2p-10f));	/* 1/6! */
	p = v16_fma(p, r, v16_set(0x1.111112p-7f)); /* 1/5! */
	p = v16_fma(p, r, v16_set(0x1.555556p-5f)); /* 1/4! */
	p = v16_fma(p, r, v16_set(0x1.555556p-3f)); /* 1/3! */
	p = v16_fma(p, r, v16_set(0.5f));
	p = v16_fma(p, r, v16_set(1.0f));
	p = v16_fma(p, r, v16_set(1.0f));
	return v16_zero_below(x, EXP_ZERO_BELOW, v16_mul(p, v16_exponent(t)));
}

static void
exponential(float *out, const float *x, int n)
{
	int			i = 0;

	for (; i + HYMT_LANES <= n; i += HYMT_LANES)
		v16_store(out + i, v16_exp(v16_load(x + i)));
	if (i < n)
		v16_store_part(out + i, v16_exp(v16_load_part(x + i, n - i)), n - i);
}

/* silu(gate) * up, silu(x) = x / (1 + exp(-x)) */
TILE V16
v16_swiglu(V16 gate, V16 up)
{
	V16			denominator = v16_add(v16_set(1.0f), v16_exp(v16_sub(v16_zero(), gate)));

	return v16_mul(v16_div(gate, denominator), up);
}

static void
swiglu(float *gate, const float *up, int n)
{
	int			i = 0;

	for (; i + HYMT_LANES <= n; i += HYMT_LANES)
		v16_store(gate + i, v16_swiglu(v16_load(gate + i), v16_load(up + i)));
	if (i < n)
		v16_store_part(gate + i, v16_swiglu(v16_load_part(gate + i, n - i), v16_load_part(up + i, n - i)), n - i);
}

/* --- attention --------------------------------------------------------------------------------------------------- */

#define SCORE_PAGES 2			/* pages that score_tile takes at a time */

/* Scores of R query heads with the 16 positions of each of P pages: one ascending chain over d per score. */
TILE void
score_tile(const HymtAttention *job, int head, int page, const int R, const int P)
{
	const float *q = job->q + (size_t) head * job->head_dim;
	const float *keys[SCORE_PAGES];
	V16			sums[MAX_TILE];
	V16			scale = v16_set(job->scale);

	for (int p = 0; p < P; p++)
		keys[p] = job->keys + (size_t) job->pages[page + p] * job->page_stride;
	UNROLL
	for (int t = 0; t < R * P; t++)
		sums[t] = v16_zero();
	for (int d = 0; d < job->head_dim; d++)
	{
		V16			key[SCORE_PAGES];

		UNROLL
		for (int p = 0; p < P; p++)
			key[p] = v16_load(keys[p] + d * HYMT_LANES);
		UNROLL
		for (int t = 0; t < R * P; t++)
			sums[t] = v16_fma(v16_set(q[(t / P) * job->head_dim + d]), key[t % P], sums[t]);
	}
	UNROLL
	for (int t = 0; t < R * P; t++)
		v16_store(job->scores + (size_t) (head + t / P) * job->score_stride + (size_t) (page + t % P) * HYMT_LANES,
				  v16_mul(sums[t], scale));
}

TILE void
score_heads(const HymtAttention *job, int head, const int R)
{
	int			pages = (job->positions + HYMT_LANES - 1) / HYMT_LANES;
	int			page = 0;

	for (; page + SCORE_PAGES <= pages; page += SCORE_PAGES)
		score_tile(job, head, page, R, SCORE_PAGES);
	if (page < pages)
		score_tile(job, head, page, R, 1);
}

/*
 * Turns the scores of one head into exp(score - maximum), +0 behind the last position, and returns their sum. The last
 * page may hold anything behind the last position, so those scores are set first.
 */
static float
soften(float *scores, int positions)
{
	int			padded = (int) hymt_round_lanes(positions);
	V16			maxima;
	V16			sums = v16_zero();
	V16			maximum;
	float		lanes[HYMT_LANES];
	float		total;

	for (int t = positions; t < padded; t++)
		scores[t] = -INFINITY;
	maxima = v16_load(scores);
	for (int t = HYMT_LANES; t < padded; t += HYMT_LANES)
		maxima = v16_max(maxima, v16_load(scores + t));
	v16_store(lanes, maxima);
	for (int t = 1; t < HYMT_LANES; t++)
		lanes[0] = lanes[0] > lanes[t] ? lanes[0] : lanes[t];
	maximum = v16_set(lanes[0]);
	for (int t = 0; t < padded; t += HYMT_LANES)
	{
		V16			e = v16_exp(v16_sub(v16_load(scores + t), maximum));

		v16_store(scores + t, e);
		sums = v16_add(sums, e);
	}
	v16_trees(&total, &sums, 1);
	return total;
}

/* Sums over positions of softened scores times values, for R heads and C elements of them, divided by the totals. */
TILE void
value_tile(const HymtAttention *job, const float *totals, int head, int d, const int R, const int C)
{
	const float *weights = job->scores + (size_t) head * job->score_stride;
	float	   *out = job->out + (size_t) head * job->head_dim + d;
	int			full = job->positions / HYMT_LANES;
	int			rest = job->positions % HYMT_LANES;
	V16			sums[MAX_TILE];
	float		results[MAX_TILE];

	UNROLL
	for (int t = 0; t < R * C; t++)
		sums[t] = v16_zero();
	for (int page = 0; page < full; page++)
	{
		const float *values = job->values + (size_t) job->pages[page] * job->page_stride + (size_t) d * HYMT_LANES;
		V16			v[MAX_TILE];

		UNROLL
		for (int c = 0; c < C; c++)
			v[c] = v16_load(values + c * HYMT_LANES);
		UNROLL
		for (int t = 0; t < R * C; t++)
			sums[t] = v16_fma(v16_load(weights + (t / C) * job->score_stride + page * HYMT_LANES), v[t % C], sums[t]);
	}
	if (rest > 0)
	{
		const float *values = job->values + (size_t) job->pages[full] * job->page_stride + (size_t) d * HYMT_LANES;
		V16			v[MAX_TILE];

		UNROLL
		for (int c = 0; c < C; c++)
			v[c] = v16_load_part(values + c * HYMT_LANES, rest);
		UNROLL
		for (int t = 0; t < R * C; t++)
			sums[t] = v16_fma(v16_load(weights + (t / C) * job->score_stride + full * HYMT_LANES), v[t % C], sums[t]);
	}
	v16_trees(results, sums, R * C);
	UNROLL
	for (int t = 0; t < R * C; t++)
		out[(t / C) * job->head_dim + t % C] = results[t] / totals[head + t / C];
}

TILE void
value_heads(const HymtAttention *job, const float *totals, int head, const int R)
{
	int			d = 0;

	for (; d + TILE_COLUMNS <= job->head_dim; d += TILE_COLUMNS)
		value_tile(job, totals, head, d, R, TILE_COLUMNS);
	for (; d < job->head_dim; d++)
		value_tile(job, totals, head, d, R, 1);
}

TILE void
attend_heads(const HymtAttention *job, int head, const int R)
{
	float		totals[TILE_ROWS];
	HymtAttention tile = *job;

	tile.out += (size_t) head * job->head_dim;
	tile.q += (size_t) head * job->head_dim;
	tile.scores += (size_t) head * job->score_stride;
	score_heads(&tile, 0, R);
	for (int r = 0; r < R; r++)
		totals[r] = soften(tile.scores + (size_t) r * job->score_stride, job->positions);
	value_heads(&tile, totals, 0, R);
}

static void
attend(const HymtAttention *job)
{
	int			head = 0;

	for (; head + TILE_ROWS <= job->heads; head += TILE_ROWS)
		attend_heads(job, head, TILE_ROWS);
#if TILE_ROWS > 2
	for (; head + 2 <= job->heads; head += 2)
		attend_heads(job, head, 2);
#endif
#if TILE_ROWS > 1
	for (; head < job->heads; head++)
		attend_heads(job, head, 1);
#endif
}

const HymtKernels *
KERNELS_FUNCTION(void)
{
	static const HymtKernels kernels = {
		.isa = KERNELS_ISA,
		.matmul = matmul,
		.attend = attend,
		.widen = widen,
		.add_vector = add_vector,
		.rms_norm = rms_norm,
		.rotate = rotate,
		.swiglu = swiglu,
		.exponential = exponential,
	};

	return &kernels;
}
