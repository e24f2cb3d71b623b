/*
 * kernels_quantised.h: widening quantised weights, written once over V16. Runs in any thread of the engine.
 *
 * A part of kernels_impl.h, which includes it and says what it needs. What number a stored value stands for is
 * doc/numerics.md; every operation here is one of its.
 */
#ifndef HYMT_KERNELS_QUANTISED_H
#define HYMT_KERNELS_QUANTISED_H

/* One of the numbers that stand apart from the values. */
TILE float
load_scale(const HymtScales *scales, int64_t index)
{
	float		lanes[HYMT_LANES];

	v16_store(lanes, load_weights_part(scales->data, index, scales->dtype, 1));
	return lanes[0];
}

static void
widen_f8(float *out, const HymtTensor *weights, int64_t row, bool pad)
{
	int64_t		n = weights->columns;
	const uint8_t *data = (const uint8_t *) weights->data + (size_t) row * (size_t) n;
	V16			scale = v16_set(load_scale(&weights->scales, weights->scales.count == 1 ? 0 : row));
	int64_t		i = 0;

	for (; i + HYMT_LANES <= n; i += HYMT_LANES)
		v16_store(out + i, v16_mul(v16_load_f8(data + i), scale));
	if (i < n)
	{
		uint8_t		rest[HYMT_LANES] = {0};
		float		lanes[HYMT_LANES];

		memcpy(rest, data + i, (size_t) (n - i));
		v16_store(lanes, v16_mul(v16_load_f8(rest), scale));
		memcpy(out + i, lanes, (size_t) (n - i) * sizeof(float));
		/* not the product: 0 times a negative scale is -0 */
		if (pad)
			memset(out + n, 0, (size_t) (i + HYMT_LANES - n) * sizeof(float));
	}
}

static void
widen_q8_0(float *out, const HymtBlockQ8_0 *block, int64_t blocks)
{
	for (; blocks > 0; blocks--, block++, out += HYMT_Q_BLOCK)
	{
		V16			scale = v16_set(widen_f16(block->scale));

		v16_store(out, v16_mul(v16_load_i8(block->values), scale));
		v16_store(out + HYMT_LANES, v16_mul(v16_load_i8(block->values + HYMT_LANES), scale));
	}
}

static void
widen_q4_0(float *out, const HymtBlockQ4_0 *block, int64_t blocks)
{
	const V16	middle = v16_set(8.0f);

	for (; blocks > 0; blocks--, block++, out += HYMT_Q_BLOCK)
	{
		V16			scale = v16_set(widen_f16(block->scale));

		v16_store(out, v16_mul(v16_sub(v16_load_u4(block->values, 0), middle), scale));
		v16_store(out + HYMT_LANES, v16_mul(v16_sub(v16_load_u4(block->values, 4), middle), scale));
	}
}

static void
widen_q4_k(float *out, const HymtBlockQ4_K *block, int64_t blocks)
{
	for (; blocks > 0; blocks--, block++)
	{
		float		of_scales = widen_f16(block->scale);
		float		of_minima = widen_f16(block->minimum);

		UNROLL
		for (int part = 0; part < 8; part++, out += 2 * HYMT_LANES)
		{
			const uint8_t *values = block->values + part / 2 * 2 * HYMT_LANES;
			int			shift = part % 2 * 4;
			int			scale_bits;
			int			minimum_bits;
			V16			scale;
			V16			minimum;

			hymt_q4_k_part(block, part, &scale_bits, &minimum_bits);
			scale = v16_set(of_scales * (float) scale_bits);
			minimum = v16_set(of_minima * (float) minimum_bits);
			v16_store(out, v16_sub(v16_mul(v16_load_u4(values, shift), scale), minimum));
			v16_store(out + HYMT_LANES,
					  v16_sub(v16_mul(v16_load_u4(values + HYMT_LANES, shift), scale), minimum));
		}
	}
}

static void
widen_q6_k(float *out, const HymtBlockQ6_K *block, int64_t blocks)
{
	const V16	middle = v16_set(32.0f);

	for (; blocks > 0; blocks--, block++)
	{
		float		of_scales = widen_f16(block->scale);

		/* Each half of the block has 128 columns: 64 bytes of low bits, 32 of high ones. */
		UNROLL
		for (int part = 0; part < 16; part++, out += HYMT_LANES)
		{
			int			half = part / 8;
			int			quarter = part % 8 / 2;
			const uint8_t *low = block->low + half * 64 + quarter % 2 * 32 + part % 2 * HYMT_LANES;
			const uint8_t *high = block->high + half * 32 + part % 2 * HYMT_LANES;
			V16			scale = v16_set(of_scales * (float) block->scales[part]);
			V16			values = v16_load_u6(low, quarter / 2 * 4, high, quarter * 2);

			v16_store(out, v16_mul(v16_sub(values, middle), scale));
		}
	}
}

/* Scales and zeros of up to 16 rows in one group of columns. */
TILE void
gptq_group(const HymtTensor *weights, int64_t group, int64_t first, int width, V16 *scale, V16 *zero)
{
	const HymtScales *scales = &weights->scales;
	const uint32_t *zeros = scales->zeros + (size_t) group * (size_t) (weights->rows / 8);
	size_t		at = (size_t) group * (size_t) weights->rows + (size_t) first;
	float		lanes[HYMT_LANES] = {0};

	for (int c = 0; c < width; c++)
	{
		int64_t		row = first + c;

		/* four bits: the lowest zero less one is stored as 15 */
		lanes[c] = (float) ((int) ((zeros[row / 8] >> row % 8 * 4) + (uint32_t) scales->zero_offset) & 15);
	}
	*zero = v16_load(lanes);
	if (width == HYMT_LANES)
		*scale = load_weights(scales->data, (int64_t) at, scales->dtype);
	else
		*scale = load_weights_part(scales->data, (int64_t) at, scales->dtype, width);
}

/* Where widen_gptq() is: up to 16 rows, and the group of the present column. */
typedef struct GptqRows
{
	const HymtTensor *weights;
	int64_t		first;
	int			width;
	int64_t		group;			/* -1: none yet */
	int64_t		group_end;		/* the column behind it, where groups are runs of columns */
	V16			scale;
	V16			zero;
} GptqRows;

static __attribute__((noinline)) void
gptq_enter_group(GptqRows *rows, int64_t group)
{
	if (rows->group != group)
		gptq_group(rows->weights, rows->group = group, rows->first, rows->width, &rows->scale, &rows->zero);
}

/* The 8 columns from k on, a vector for each; they may be of different groups. */
TILE void
gptq_load(GptqRows *rows, int64_t k, V16 values[8])
{
	const HymtScales *scales = &rows->weights->scales;
	int64_t		pitch = rows->weights->rows;
	const uint32_t *words = (const uint32_t *) rows->weights->data + k / 8 * pitch + rows->first;
	uint32_t	copy[HYMT_LANES] = {0};

	FETCH_AHEAD(words + 16 * pitch);
	if (rows->width < HYMT_LANES)
		words = memcpy(copy, words, (size_t) rows->width * sizeof(*words));
	if (scales->group_of == NULL && scales->group % 8 == 0)
	{
		if (k >= rows->group_end)
		{
			gptq_enter_group(rows, rows->group + 1);
			rows->group_end += scales->group;
		}
		UNROLL
		for (int i = 0; i < 8; i++)
			values[i] = v16_mul(v16_sub(v16_load_u32_u4(words, i * 4), rows->zero), rows->scale);
		return;
	}
	for (int i = 0; i < 8; i++)
	{
		gptq_enter_group(rows, scales->group_of != NULL ? scales->group_of[k + i] : (k + i) / scales->group);
		values[i] = v16_mul(v16_sub(v16_load_u32_u4(words, i * 4), rows->zero), rows->scale);
	}
}

/*
 * Up to 16 rows at a time, since words of neighbouring rows stand side by side: row `first` + c goes to
 * out + c * pitch. Not padded.
 */
static void
widen_gptq(float *out, size_t pitch, const HymtTensor *weights, int64_t first, int width)
{
	GptqRows	rows = {.weights = weights, .first = first, .width = width, .group = -1};

	for (int64_t k = 0; k < weights->columns; k += 8)
	{
		V16			values[8];
		float		columns[HYMT_LANES][8];

		gptq_load(&rows, k, values);
		if (width == HYMT_LANES)
		{
			v16_store_columns(out + k, pitch, values);
			continue;
		}
		v16_store_columns(&columns[0][0], 8, values);
		for (int c = 0; c < width; c++)
			memcpy(out + (size_t) c * pitch + k, columns[c], sizeof(columns[c]));
	}
}

/* One row of any type that is not plain. Pads with +0 up to a multiple of 16 where `pad` is set. */
static void
widen_quantised(float *out, const HymtTensor *weights, int64_t row, bool pad)
{
	int64_t		n = weights->columns;
	const char *data = (const char *) weights->data + (size_t) row * hymt_dtype_bytes(weights->dtype, n);

	switch (weights->dtype)
	{
		case HYMT_DTYPE_Q8_0:
			widen_q8_0(out, (const HymtBlockQ8_0 *) data, n / HYMT_Q_BLOCK);
			break;
		case HYMT_DTYPE_Q4_0:
			widen_q4_0(out, (const HymtBlockQ4_0 *) data, n / HYMT_Q_BLOCK);
			break;
		case HYMT_DTYPE_Q4_K:
			widen_q4_k(out, (const HymtBlockQ4_K *) data, n / HYMT_K_BLOCK);
			break;
		case HYMT_DTYPE_Q6_K:
			widen_q6_k(out, (const HymtBlockQ6_K *) data, n / HYMT_K_BLOCK);
			break;
		case HYMT_DTYPE_GPTQ_INT4:
			widen_gptq(out, 0, weights, row, 1);
			if (pad)
				memset(out + n, 0, (size_t) (hymt_round_lanes(n) - n) * sizeof(float));
			break;
		default:
			widen_f8(out, weights, row, pad);
			break;
	}
}

#endif							/* HYMT_KERNELS_QUANTISED_H */
