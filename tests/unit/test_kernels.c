/*
 * test_kernels.c: the kernels of every instruction set against doc/numerics.md, bit for bit.
 *
 * The expected values come from plain loops in this file, which follow the text operation by operation with fmaf() and
 * know nothing of vectors, tiles or panels. exp and silu are compared with double precision besides.
 */
#include <math.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <cmocka.h>

#include "kernels.h"

#define LANES HYMT_LANES

static const HymtIsa isas[] = {HYMT_ISA_SCALAR, HYMT_ISA_AVX2, HYMT_ISA_AVX512};

#define FOR_KERNELS(kernels) \
	for (size_t isa_ = 0; isa_ < sizeof(isas) / sizeof(isas[0]); isa_++) \
		for (const HymtKernels *kernels = hymt_kernels_find(isas[isa_]); kernels != NULL; kernels = NULL)

/* --- numbers ----------------------------------------------------------------------------------------------------- */

static uint64_t random_state = 88172645463325252u;

static uint32_t
random_bits(void)
{
	random_state ^= random_state << 13;
	random_state ^= random_state >> 7;
	random_state ^= random_state << 17;
	return (uint32_t) (random_state >> 32);
}

static int
random_in(int low, int high)
{
	return low + (int) (random_bits() % (uint32_t) (high - low + 1));
}

static uint32_t
bits_of(float x)
{
	uint32_t	bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static float
float_of(uint32_t bits)
{
	float		x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

/* Ordinary numbers; among them ones of few bits, so that sums hit halfway points, tiny ones, zeros of both signs. */
static float
random_float(void)
{
	uint32_t	sign = random_bits() & 0x80000000;

	switch (random_in(0, 15))
	{
		case 0:
			return float_of(sign);
		case 1:
			return float_of(sign | (random_bits() & 0x00ffffff));	/* denormal or nearly */
		case 2:
		case 3:
			return float_of(sign | (0x3f800000 + ((random_bits() & 0x7) << 21)));
		case 4:
			return float_of(sign | (0x33000000 + (random_bits() & 0x7fffff)));	/* about 2^-25 */
		default:
			return float_of(sign | (0x3d000000 + (random_bits() & 0x03ffffff)));
	}
}

/* NaNs are equal whatever their bits. */
static bool
same_float(float a, float b)
{
	return bits_of(a) == bits_of(b) || (isnan(a) && isnan(b));
}

static void
assert_floats(const char *what, HymtIsa isa, const float *got, const float *expected, int n)
{
	for (int i = 0; i < n; i++)
	{
		if (!same_float(got[i], expected[i]))
			fail_msg("%s %s: value %d of %d is %a, not %a", what, hymt_isa_name(isa), i, n, got[i], expected[i]);
	}
}

/* --- stored weights ---------------------------------------------------------------------------------------------- */

/* From the definition of the format: no bit tricks shared with the kernels. */
static float
half_value(uint16_t h)
{
	int			exponent = (h >> 10) & 31;
	int			fraction = h & 1023;
	double		value;

	if (exponent == 31)
		value = fraction ? NAN : INFINITY;
	else if (exponent == 0)
		value = ldexp(fraction, -24);
	else
		value = ldexp(1024 + fraction, exponent - 25);
	return (float) (h & 0x8000 ? -value : value);
}

static float
plain_value(const void *data, HymtDtype dtype, int64_t index)
{
	if (dtype == HYMT_DTYPE_F32)
		return ((const float *) data)[index];
	if (dtype == HYMT_DTYPE_F16)
		return half_value(((const uint16_t *) data)[index]);
	return float_of((uint32_t) ((const uint16_t *) data)[index] << 16);
}

/* 1 sign, 4 exponent, 3 fraction bits; no infinity. */
static float
f8_value(uint8_t f)
{
	int			exponent = (f >> 3) & 15;
	int			fraction = f & 7;
	double		value = exponent == 0 ? ldexp(fraction, -9) : ldexp(8 + fraction, exponent - 10);

	if (exponent == 15 && fraction == 7)
		value = NAN;
	return (float) (f & 0x80 ? -value : value);
}

/* The number of `bits` bits that begins at bit `at` of some bytes, the lowest bit first. */
static int
bits_at(const uint8_t *bytes, int at, int bits)
{
	int			number = 0;

	for (int i = 0; i < bits; i++)
		number |= (bytes[(at + i) / 8] >> (at + i) % 8 & 1) << i;
	return number;
}

static float
q4_k_value(const uint8_t *block, int index)
{
	int			part = index / 32;
	const uint8_t *parts = block + 4;
	uint16_t	halves[2];
	int			scale;
	int			minimum;
	float		product;

	memcpy(halves, block, sizeof(halves));
	/* of the first four parts in bytes 0-3 and 4-7; of the others the low bits in 8-11, the high ones above the first */
	if (part < 4)
	{
		scale = bits_at(parts, part * 8, 6);
		minimum = bits_at(parts, (4 + part) * 8, 6);
	}
	else
	{
		scale = bits_at(parts, (4 + part) * 8, 4) + 16 * bits_at(parts, (part - 4) * 8 + 6, 2);
		minimum = bits_at(parts, (4 + part) * 8 + 4, 4) + 16 * bits_at(parts, part * 8 + 6, 2);
	}
	product = (half_value(halves[0]) * (float) scale) *
		(float) bits_at(block + 16, (part / 2 * 32 + index % 32) * 8 + part % 2 * 4, 4);
	return product - half_value(halves[1]) * (float) minimum;
}

static float
q6_k_value(const uint8_t *block, int index)
{
	int			half = index / 128;
	int			within = index % 128;
	int			low = bits_at(block + half * 64, within % 64 * 8 + within / 64 * 4, 4);
	int			high = bits_at(block + 128 + half * 32, within % 32 * 8 + within / 32 * 2, 2);
	uint16_t	scale;

	memcpy(&scale, block + 208, sizeof(scale));
	return (half_value(scale) * (float) ((const int8_t *) block)[192 + index / 16]) * (float) (low + 16 * high - 32);
}

/* Of 32 values behind a half. */
static float
small_block_value(const uint8_t *block, HymtDtype dtype, int index)
{
	uint16_t	scale;

	memcpy(&scale, block, sizeof(scale));
	if (dtype == HYMT_DTYPE_Q8_0)
		return half_value(scale) * (float) ((const int8_t *) block)[2 + index];
	return half_value(scale) * (float) (bits_at(block + 2, index % 16 * 8 + index / 16 * 4, 4) - 8);
}

static float
gptq_value(const HymtTensor *tensor, int64_t row, int64_t column)
{
	const HymtScales *scales = &tensor->scales;
	int64_t		group = scales->group_of != NULL ? scales->group_of[column] : column / scales->group;
	const uint8_t *zeros = (const uint8_t *) (scales->zeros + group * (tensor->rows / 8));
	const uint8_t *words = (const uint8_t *) ((const uint32_t *) tensor->data + column / 8 * tensor->rows + row);
	int			zero = (bits_at(zeros, (int) row * 4, 4) + scales->zero_offset) % 16;

	return (float) (bits_at(words, (int) (column % 8) * 4, 4) - zero) *
		plain_value(scales->data, scales->dtype, group * tensor->rows + row);
}

static float
stored_value(const HymtTensor *tensor, int64_t row, int64_t column)
{
	const uint8_t *data = tensor->data;
	int64_t		index = row * tensor->columns + column;

	switch (tensor->dtype)
	{
		case HYMT_DTYPE_F8_E4M3:
			return f8_value(data[index]) *
				plain_value(tensor->scales.data, tensor->scales.dtype, tensor->scales.count == 1 ? 0 : row);
		case HYMT_DTYPE_Q8_0:
			return small_block_value(data + index / 32 * 34, tensor->dtype, (int) (index % 32));
		case HYMT_DTYPE_Q4_0:
			return small_block_value(data + index / 32 * 18, tensor->dtype, (int) (index % 32));
		case HYMT_DTYPE_Q4_K:
			return q4_k_value(data + index / 256 * 144, (int) (index % 256));
		case HYMT_DTYPE_Q6_K:
			return q6_k_value(data + index / 256 * 210, (int) (index % 256));
		case HYMT_DTYPE_GPTQ_INT4:
			return gptq_value(tensor, row, column);
		default:
			return plain_value(data, tensor->dtype, index);
	}
}

/* A half that is no NaN, and small. */
static uint16_t
random_half(void)
{
	return (uint16_t) ((random_bits() & 0x8000) | (uint32_t) random_in(0, 0x4400));
}

/* Exactly as large as its elements, so that a sanitizer sees any read behind them. */
static void *
random_plain(HymtDtype dtype, size_t count)
{
	void	   *data = malloc(count * (dtype == HYMT_DTYPE_F32 ? 4 : 2));

	assert_non_null(data);
	for (size_t i = 0; i < count; i++)
	{
		if (dtype == HYMT_DTYPE_F32)
			((float *) data)[i] = random_float();
		else if (dtype == HYMT_DTYPE_BF16)
			((uint16_t *) data)[i] = (uint16_t) (bits_of(random_float()) >> 16);
		else
			((uint16_t *) data)[i] = random_half();
	}
	return data;
}

static void *
random_bytes(size_t count)
{
	uint8_t    *data = malloc(count);

	assert_non_null(data);
	for (size_t i = 0; i < count; i++)
		data[i] = (uint8_t) random_bits();
	return data;
}

/* Random blocks: any bits will do but those of the halves at these places (-1: none). */
static void *
random_blocks(size_t count, size_t size, int first_half, int second_half)
{
	uint8_t    *data = random_bytes(count * size);

	for (size_t i = 0; i < count; i++)
	{
		uint16_t	halves[2] = {random_half(), random_half()};

		memcpy(data + i * size + first_half, &halves[0], 2);
		if (second_half >= 0)
			memcpy(data + i * size + second_half, &halves[1], 2);
	}
	return data;
}

static void
fill_gptq(HymtTensor *tensor)
{
	HymtScales *scales = &tensor->scales;
	int64_t		groups;

	scales->group = random_in(1, 3) * 8;
	groups = (tensor->columns + scales->group - 1) / scales->group;
	scales->count = groups * tensor->rows;
	scales->data = random_plain(scales->dtype, (size_t) scales->count);
	scales->zeros = random_bytes((size_t) scales->count / 2);
	scales->zero_offset = random_in(0, 1);
	tensor->data = random_bytes((size_t) (tensor->rows * tensor->columns / 2));
	if (random_in(0, 1))
	{
		int32_t    *group_of = malloc((size_t) tensor->columns * sizeof(*group_of));

		assert_non_null(group_of);
		for (int64_t i = 0; i < tensor->columns; i++)
			group_of[i] = random_in(0, (int) groups - 1);
		scales->group_of = group_of;
	}
}

/* `columns` is rounded up to whole blocks, and so are the rows of GPTQ. */
static HymtTensor
random_tensor(HymtDtype dtype, int64_t rows, int64_t columns)
{
	int			block = hymt_dtype_block(dtype);
	HymtTensor	tensor = {.dtype = dtype, .rows = rows, .columns = (columns + block - 1) / block * block};
	size_t		blocks = (size_t) (tensor.rows * tensor.columns / block);

	tensor.scales.dtype = (HymtDtype) random_in(0, 2);
	switch (dtype)
	{
		case HYMT_DTYPE_F8_E4M3:
			tensor.data = random_bytes(blocks);
			tensor.scales.count = random_in(0, 1) ? 1 : rows;
			tensor.scales.data = random_plain(tensor.scales.dtype, (size_t) tensor.scales.count);
			break;
		case HYMT_DTYPE_Q8_0:
			tensor.data = random_blocks(blocks, 34, 0, -1);
			break;
		case HYMT_DTYPE_Q4_0:
			tensor.data = random_blocks(blocks, 18, 0, -1);
			break;
		case HYMT_DTYPE_Q4_K:
			tensor.data = random_blocks(blocks, 144, 0, 2);
			break;
		case HYMT_DTYPE_Q6_K:
			tensor.data = random_blocks(blocks, 210, 208, -1);
			break;
		case HYMT_DTYPE_GPTQ_INT4:
			tensor.rows = (rows + 7) / 8 * 8;
			fill_gptq(&tensor);
			break;
		default:
			tensor.data = random_plain(dtype, blocks);
			break;
	}
	return tensor;
}

static void
free_tensor(HymtTensor *tensor)
{
	free((void *) tensor->data);
	free((void *) tensor->scales.data);
	free((void *) tensor->scales.zeros);
	free((void *) tensor->scales.group_of);
}

/* Rows of n random values, padded with zeros to whole vectors. */
static float *
random_rows(int rows, int n, size_t *stride)
{
	float	   *data;

	*stride = (size_t) hymt_round_lanes(n) + (random_in(0, 1) ? LANES : 0);
	data = aligned_alloc(64, (size_t) rows * *stride * sizeof(float));
	assert_non_null(data);
	memset(data, 0, (size_t) rows * *stride * sizeof(float));
	for (int r = 0; r < rows; r++)
	{
		for (int i = 0; i < n; i++)
			data[(size_t) r * *stride + (size_t) i] = random_float();
	}
	return data;
}

/* --- the text of numerics.md as loops ---------------------------------------------------------------------------- */

static float
tree(const float *lanes)
{
	float		s[LANES];

	memcpy(s, lanes, sizeof(s));
	for (int width = LANES / 2; width > 0; width /= 2)
	{
		for (int i = 0; i < width; i++)
			s[i] = s[i] + s[i + width];
	}
	return s[0];
}

static float
expected_dot(const float *x, const HymtTensor *weights, int64_t row)
{
	float		lanes[LANES] = {0};

	for (int64_t k = 0; k < hymt_round_lanes(weights->columns); k++)
	{
		bool		inside = k < weights->columns;
		float		a = inside ? x[k] : 0.0f;
		float		w = inside ? stored_value(weights, row, k) : 0.0f;

		lanes[k % LANES] = fmaf(a, w, lanes[k % LANES]);
	}
	return tree(lanes);
}

static float
expected_exp(float x)
{
	static const float coefficients[] = {0x1.6c16c2p-10f, 0x1.111112p-7f, 0x1.555556p-5f, 0x1.555556p-3f, 0.5f,
		1.0f, 1.0f};
	float		y = x;
	float		t;
	float		n;
	float		r;
	float		p = 0x1.a01a02p-13f;

	if (isnan(x))
		return x;
	if (x < -87.3f)
		return 0.0f;
	if (x > 88.0f)
		y = 88.0f;
	t = fmaf(y, 0x1.715476p+0f, 0x1.8p23f);
	n = t - 0x1.8p23f;
	r = fmaf(-n, 0x1.7f7d1cp-20f, fmaf(-n, 0x1.62e4p-1f, y));
	for (size_t i = 0; i < sizeof(coefficients) / sizeof(coefficients[0]); i++)
		p = fmaf(p, r, coefficients[i]);
	return p * ldexpf(1.0f, (int) n);
}

static float
expected_swiglu(float gate, float up)
{
	return gate / (1.0f + expected_exp(0.0f - gate)) * up;
}

static void
expected_rms_norm(float *out, const float *x, const HymtTensor *weight, int n, float eps)
{
	float		lanes[LANES] = {0};
	float		scale;

	for (int64_t i = 0; i < hymt_round_lanes(n); i++)
	{
		float		v = i < n ? x[i] : 0.0f;

		lanes[i % LANES] = fmaf(v, v, lanes[i % LANES]);
	}
	scale = 1.0f / sqrtf(tree(lanes) / (float) n + eps);
	for (int i = 0; i < n; i++)
		out[i] = x[i] * scale * stored_value(weight, 0, i);
}

/* --- tests ------------------------------------------------------------------------------------------------------- */

static void
test_isa_names(void **state)
{
	HymtIsa		isa;

	(void) state;
	assert_true(hymt_isa_parse("avx2", &isa) && isa == HYMT_ISA_AVX2);
	assert_true(hymt_isa_parse("auto", &isa) && isa == HYMT_ISA_AUTO);
	assert_false(hymt_isa_parse("AVX2", &isa));
	assert_false(hymt_isa_parse("", &isa));
	assert_string_equal(hymt_isa_name(HYMT_ISA_SCALAR), "scalar");
	assert_true(hymt_isa_supported(HYMT_ISA_SCALAR));
	assert_true(hymt_isa_supported(HYMT_ISA_AUTO));
	FOR_KERNELS(kernels)
	{
		assert_int_equal(kernels->isa, isas[isa_]);
		print_message("kernels: %s\n", hymt_isa_name(kernels->isa));
	}
}

static void
test_add_vector(void **state)
{
	uint16_t	halves[64];
	float		floats[64];
	float		x[64];

	(void) state;
	for (int i = 0; i < 64; i++)
	{
		halves[i] = (uint16_t) (0x3c00 + 37 * i);
		floats[i] = 0.1f * (float) i - 3.0f;
	}
	FOR_KERNELS(kernels)
		for (int dtype = HYMT_DTYPE_F32; dtype <= HYMT_DTYPE_BF16; dtype++)
			for (int n = 1; n <= 40; n++)
			{
				HymtTensor	vector = {
					.data = dtype == HYMT_DTYPE_F32 ? (void *) floats : (void *) halves,
					.dtype = (HymtDtype) dtype, .rows = 1, .columns = 64
				};
				float		expected[64];

				for (int i = 0; i < 64; i++)
				{
					int			at = (i + 5) % 64;

					expected[i] = x[i] = 1.0f / (float) (i + 3);
					if (i < n)
						expected[i] += dtype == HYMT_DTYPE_F32 ? floats[at] : dtype == HYMT_DTYPE_F16 ?
							half_value(halves[at]) : float_of((uint32_t) halves[at] << 16);
				}
				kernels->add_vector(x, &vector, 5, n);
				assert_floats("add_vector", kernels->isa, x, expected, 64);
			}
}

static void
test_widen(void **state)
{
	uint16_t   *halves = malloc(65536 * sizeof(uint16_t));
	float	   *expected = malloc(65536 * sizeof(float));
	float	   *got = malloc(65536 * sizeof(float));

	(void) state;
	for (int i = 0; i < 65536; i++)
		halves[i] = (uint16_t) i;
	FOR_KERNELS(kernels)
	{
		for (int i = 0; i < 65536; i++)
			expected[i] = half_value((uint16_t) i);
		kernels->widen(got, &(HymtTensor) {.data = halves, .dtype = HYMT_DTYPE_F16, .columns = 65536}, 0);
		assert_floats("f16", kernels->isa, got, expected, 65536);
		for (int i = 0; i < 65536; i++)
			expected[i] = float_of((uint32_t) i << 16);
		kernels->widen(got, &(HymtTensor) {.data = halves, .dtype = HYMT_DTYPE_BF16, .columns = 65536}, 0);
		assert_floats("bf16", kernels->isa, got, expected, 65536);
		for (int n = 1; n < 40; n++)
		{
			got[n] = 12345.0f;
			kernels->widen(got, &(HymtTensor) {.data = halves + 0x3c00, .dtype = HYMT_DTYPE_BF16, .columns = n}, 0);
			assert_floats("bf16 tail", kernels->isa, got, expected + 0x3c00, n);
			assert_true(got[n] == 12345.0f);
		}
	}
	free(halves);
	free(expected);
	free(got);
}

/* Every bit pattern of F8, with scales that make it overflow, vanish and change its sign. */
static void
test_widen_f8(void **state)
{
	float		scales[] = {1.0f, -0.375f, 1e37f, 1e-40f, 0.0f};
	uint8_t		bytes[5][256];
	HymtTensor	tensor = {.data = bytes, .dtype = HYMT_DTYPE_F8_E4M3, .rows = 5, .columns = 256,
		.scales = {.data = scales, .dtype = HYMT_DTYPE_F32, .count = 5}};

	(void) state;
	for (int i = 0; i < 5 * 256; i++)
		bytes[i / 256][i % 256] = (uint8_t) i;
	assert_true(f8_value(0x7e) == 448.0f && f8_value(0x01) == 0x1p-9f && f8_value(0xc0) == -2.0f);
	assert_true(isnan(f8_value(0xff)));
	FOR_KERNELS(kernels)
	{
		for (int64_t row = 0; row < 5; row++)
		{
			float		expected[256];
			float		got[256];

			for (int64_t i = 0; i < 256; i++)
				expected[i] = stored_value(&tensor, row, i);
			kernels->widen(got, &tensor, row);
			assert_floats("f8", kernels->isa, got, expected, 256);
		}
	}
}

/* Rows of all types, one by one, as an embedding is read; nothing behind the last value is written. */
static void
test_widen_rows(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		for (int round = 0; round < 20 * HYMT_DTYPE_COUNT; round++)
		{
			HymtTensor	tensor = random_tensor((HymtDtype) (round % HYMT_DTYPE_COUNT), random_in(1, 20),
										   random_in(1, 600));
			int64_t		row = random_in(0, (int) tensor.rows - 1);
			float		expected[1024];
			float		got[1024];

			for (int64_t i = 0; i < tensor.columns; i++)
				expected[i] = stored_value(&tensor, row, i);
			expected[tensor.columns] = got[tensor.columns] = 12345.0f;
			kernels->widen(got, &tensor, row);
			assert_floats(hymt_dtype_name(tensor.dtype), kernels->isa, got, expected, (int) tensor.columns + 1);
			free_tensor(&tensor);
		}
	}
}

static void
check_matmul(const HymtKernels *kernels, const HymtTensor *weights, int rows, bool add)
{
	int64_t		first = random_in(0, (int) weights->rows - 1);
	int64_t		count = random_in(1, (int) (weights->rows - first));
	size_t		x_stride;
	float	   *x = random_rows(rows, (int) weights->columns, &x_stride);
	size_t		out_stride = (size_t) count + 3;
	size_t		out_floats = (size_t) rows * out_stride;
	float	   *expected = malloc(out_floats * sizeof(float));
	float	   *got = malloc(out_floats * sizeof(float));
	float	   *panel = aligned_alloc(64, HYMT_PANEL_COLUMNS * (size_t) hymt_panel_stride(weights->columns) *
									  sizeof(float));

	for (size_t i = 0; i < out_floats; i++)
		got[i] = expected[i] = random_float();
	for (int r = 0; r < rows; r++)
	{
		for (int64_t c = 0; c < count; c++)
		{
			float	   *out = &expected[(size_t) r * out_stride + (size_t) c];
			float		sum = expected_dot(x + (size_t) r * x_stride, weights, first + c);

			*out = add ? *out + sum : sum;
		}
	}
	kernels->matmul(&(HymtMatmul) {
		.out = got, .out_stride = out_stride, .add = add, .x = x, .x_stride = x_stride, .rows = rows,
		.weights = weights, .first = first, .count = count, .panel = panel,
	});
	assert_floats("matmul", kernels->isa, got, expected, (int) out_floats);
	free(x);
	free(expected);
	free(got);
	free(panel);
}

static void
test_matmul(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		for (int round = 0; round < 900; round++)
		{
			HymtTensor	weights = random_tensor((HymtDtype) (round % HYMT_DTYPE_COUNT), random_in(1, 21),
												round < 700 ? random_in(1, 70) : random_in(70, 600));

			check_matmul(kernels, &weights, round % 4 == 0 ? 1 : random_in(1, 14), random_in(0, 1));
			free_tensor(&weights);
		}
	}
}

static void
test_rms_norm(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		for (int n = 1; n < 100; n++)
		{
			HymtTensor	weight = random_tensor((HymtDtype) (n % 3), 1, n);
			float		x[100];
			float		expected[100];
			float		got[100];

			for (int i = 0; i < n; i++)
				x[i] = random_float();
			expected_rms_norm(expected, x, &weight, n, 1e-5f);
			kernels->rms_norm(got, x, &weight, n, 1e-5f);
			assert_floats("rms_norm", kernels->isa, got, expected, n);
			kernels->rms_norm(x, x, &weight, n, 1e-5f);
			assert_floats("rms_norm in place", kernels->isa, x, expected, n);
			free_tensor(&weight);
		}
	}
}

static void
test_rotate(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		for (int half = 1; half < 40; half++)
		{
			float		x[80];
			float		expected[80];
			float		cosines[40];
			float		sines[40];

			for (int i = 0; i < 2 * half; i++)
				x[i] = random_float();
			for (int i = 0; i < half; i++)
			{
				cosines[i] = random_float();
				sines[i] = random_float();
				expected[i] = fmaf(x[i], cosines[i], -(x[half + i] * sines[i]));
				expected[half + i] = fmaf(x[half + i], cosines[i], x[i] * sines[i]);
			}
			kernels->rotate(x, cosines, sines, half);
			assert_floats("rotate", kernels->isa, x, expected, 2 * half);
		}
	}
}

/* The largest relative error that numerics.md states. */
#define EXP_ERROR 9e-8

static void
test_exponential(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		double		worst = 0.0;
		const float special[] = {0.0f, -0.0f, -INFINITY, NAN, -87.3f, nextafterf(-87.3f, -INFINITY), 88.0f, 88.5f,
			INFINITY, -1e30f, 1e30f, 1e-40f, -1e-40f};
		int			special_count = (int) (sizeof(special) / sizeof(special[0]));
		float		got[LANES];

		kernels->exponential(got, special, special_count);
		for (int i = 0; i < special_count; i++)
		{
			float		expected = expected_exp(special[i]);

			assert_floats("exp, special", kernels->isa, &got[i], &expected, 1);
		}
		assert_true(got[0] == 1.0f && got[1] == 1.0f && bits_of(got[2]) == 0 && isnan(got[3]));

		for (int round = 0; round < 20000; round++)
		{
			float		x[LANES];

			for (int i = 0; i < LANES; i++)
				x[i] = (float) (-87.3 + 175.3 * (random_bits() / 4294967296.0)) * (round % 3 ? 1.0f : 0.01f);
			kernels->exponential(got, x, LANES);
			for (int i = 0; i < LANES; i++)
			{
				float		expected = expected_exp(x[i]);
				double		error = fabs(got[i] / exp((double) x[i]) - 1.0);

				assert_floats("exp", kernels->isa, &got[i], &expected, 1);
				worst = error > worst ? error : worst;
			}
		}
		print_message("exp %s: largest relative error %.3g\n", hymt_isa_name(kernels->isa), worst);
		assert_true(worst < EXP_ERROR);
	}
}

static void
test_swiglu(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		double		worst = 0.0;

		for (int n = 1; n < 300; n++)
		{
			float		gate[300];
			float		up[300];
			float		expected[300];
			float		got[300];

			for (int i = 0; i < n; i++)
			{
				gate[i] = (float) (40.0 * (random_bits() / 4294967296.0) - 20.0);
				up[i] = random_float();
				expected[i] = expected_swiglu(gate[i], up[i]);
				got[i] = gate[i];
			}
			kernels->swiglu(got, up, n);
			assert_floats("swiglu", kernels->isa, got, expected, n);

			/* silu alone, where its result is not denormal */
			for (int i = 0; i < n; i++)
			{
				up[i] = 1.0f;
				got[i] = gate[i];
			}
			kernels->swiglu(got, up, n);
			for (int i = 0; i < n; i++)
			{
				double		error = gate[i] == 0.0f ? 0.0
					: fabs(got[i] / (gate[i] / (1.0 + exp(-(double) gate[i]))) - 1.0);

				worst = error > worst ? error : worst;
			}
		}
		assert_true(worst < 3e-7);
	}
}

/* Attention of one head over pages, from the text. */
static void
expected_attention(const HymtAttention *job, int head, float *out)
{
	const float *q = job->q + (size_t) head * (size_t) job->head_dim;
	int			padded = (int) hymt_round_lanes(job->positions);
	float	   *e = calloc((size_t) padded, sizeof(float));
	float		lanes[LANES] = {0};
	float		maximum = -INFINITY;
	float		total;

	for (int p = 0; p < job->positions; p++)
	{
		const float *keys = job->keys + (size_t) job->pages[p / LANES] * job->page_stride;
		float		sum = 0.0f;

		for (int d = 0; d < job->head_dim; d++)
			sum = fmaf(q[d], keys[d * LANES + p % LANES], sum);
		e[p] = sum * job->scale;
		maximum = e[p] > maximum ? e[p] : maximum;
	}
	for (int p = 0; p < padded; p++)
	{
		e[p] = p < job->positions ? expected_exp(e[p] - maximum) : 0.0f;
		lanes[p % LANES] = lanes[p % LANES] + e[p];
	}
	total = tree(lanes);
	for (int d = 0; d < job->head_dim; d++)
	{
		memset(lanes, 0, sizeof(lanes));
		for (int p = 0; p < padded; p++)
		{
			const float *values = job->values + (size_t) job->pages[p / LANES] * job->page_stride;

			lanes[p % LANES] = fmaf(e[p], p < job->positions ? values[d * LANES + p % LANES] : 0.0f, lanes[p % LANES]);
		}
		out[d] = tree(lanes) / total;
	}
	free(e);
}

static void
check_attention(const HymtKernels *kernels)
{
	int			heads = random_in(1, 9);
	int			head_dim = 2 * random_in(1, 20);
	int			positions = random_in(1, 70);
	int			page_count = (positions + LANES - 1) / LANES;
	size_t		block = (size_t) head_dim * LANES;
	size_t		page_stride = 2 * block + 5;
	size_t		score_stride = (size_t) hymt_round_lanes(positions);
	size_t		width = (size_t) heads * (size_t) head_dim;
	float	   *kv = malloc((size_t) page_count * page_stride * sizeof(float));
	float	   *q = malloc(width * sizeof(float));
	float	   *expected = malloc(width * sizeof(float));
	float	   *got = malloc(width * sizeof(float));
	float	   *scores = aligned_alloc(64, (size_t) heads * score_stride * sizeof(float));
	int32_t		pages[8];
	HymtAttention job = {
		.out = got, .q = q, .heads = heads, .head_dim = head_dim, .keys = kv, .values = kv + block,
		.page_stride = page_stride, .pages = pages, .positions = positions, .scale = 0.37f, .scores = scores,
		.score_stride = score_stride,
	};

	/* Pages out of order, and NaN wherever nothing was stored. */
	for (int i = 0; i < page_count; i++)
		pages[i] = page_count - 1 - i;
	for (size_t i = 0; i < (size_t) page_count * page_stride; i++)
		kv[i] = NAN;
	for (int p = 0; p < positions; p++)
	{
		float	   *page = kv + (size_t) pages[p / LANES] * page_stride + p % LANES;

		for (int d = 0; d < head_dim; d++)
		{
			page[d * LANES] = 4.0f * random_float();
			page[block + (size_t) (d * LANES)] = random_float();
		}
	}
	for (size_t i = 0; i < width; i++)
		q[i] = 4.0f * random_float();
	kernels->attend(&job);
	for (int h = 0; h < heads; h++)
		expected_attention(&job, h, expected + (size_t) h * (size_t) head_dim);
	assert_floats("attend", kernels->isa, got, expected, (int) width);
	free(kv);
	free(q);
	free(expected);
	free(got);
	free(scores);
}

static void
test_attend(void **state)
{
	(void) state;
	FOR_KERNELS(kernels)
	{
		for (int round = 0; round < 300; round++)
			check_attention(kernels);
	}
}

int
main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_isa_names),
		cmocka_unit_test(test_widen),
		cmocka_unit_test(test_widen_f8),
		cmocka_unit_test(test_widen_rows),
		cmocka_unit_test(test_add_vector),
		cmocka_unit_test(test_matmul),
		cmocka_unit_test(test_rms_norm),
		cmocka_unit_test(test_rotate),
		cmocka_unit_test(test_exponential),
		cmocka_unit_test(test_swiglu),
		cmocka_unit_test(test_attend),
	};

	return cmocka_run_group_tests(tests, NULL, NULL);
}
