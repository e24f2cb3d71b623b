/*
 * kernels_scalar.c: the kernels in plain C, for any machine. Runs in any thread of the engine.
 *
 * This is the reference that every other instruction set must equal bit for bit. fmaf() is one rounding by the C
 * standard, with or without hardware for it.
 */
#include <math.h>
#include <string.h>

#include "kernels.h"

typedef struct V16
{
	float		lane[HYMT_LANES];
} V16;

#define TILE_ROWS 1
#define TILE_COLUMNS 1
#define GEMV_COLUMNS 1
#define KERNELS_ISA HYMT_ISA_SCALAR
#define KERNELS_FUNCTION hymt_kernels_scalar

#define FOR_LANES for (int l = 0; l < HYMT_LANES; l++)

static inline V16
v16_set(float x)
{
	V16			v;

	FOR_LANES
		v.lane[l] = x;
	return v;
}

static inline V16
v16_zero(void)
{
	return v16_set(0.0f);
}

static inline V16
v16_load_part(const float *data, int n)
{
	V16			v = v16_zero();

	for (int l = 0; l < n; l++)
		v.lane[l] = data[l];
	return v;
}

static inline V16
v16_load(const float *data)
{
	V16			v;

	memcpy(v.lane, data, sizeof(v.lane));
	return v;
}

static inline void
v16_store(float *out, V16 v)
{
	memcpy(out, v.lane, sizeof(v.lane));
}

static inline void
v16_store_part(float *out, V16 v, int n)
{
	for (int l = 0; l < n; l++)
		out[l] = v.lane[l];
}

static inline float
from_bits(uint32_t bits)
{
	float		x;

	memcpy(&x, &bits, sizeof(x));
	return x;
}

static inline uint32_t
to_bits(float x)
{
	uint32_t	bits;

	memcpy(&bits, &x, sizeof(bits));
	return bits;
}

static inline float
widen_bf16(uint16_t h)
{
	return from_bits((uint32_t) h << 16);
}

static inline float
widen_f16(uint16_t h)
{
	uint32_t	sign = (uint32_t) (h & 0x8000) << 16;
	uint32_t	exponent = (h >> 10) & 0x1f;
	uint32_t	fraction = h & 0x3ff;

	if (exponent == 0x1f)		/* infinity and NaN */
		return from_bits(sign | 0x7f800000 | (fraction << 13));
	if (exponent > 0)
		return from_bits(sign | ((exponent + 127 - 15) << 23) | (fraction << 13));
	return from_bits(sign | to_bits((float) fraction * 0x1p-24f));
}

static inline V16
v16_load_bf16_part(const uint16_t *data, int n)
{
	V16			v = v16_zero();

	for (int l = 0; l < n; l++)
		v.lane[l] = widen_bf16(data[l]);
	return v;
}

static inline V16
v16_load_bf16(const uint16_t *data)
{
	V16			v;

	FOR_LANES
		v.lane[l] = widen_bf16(data[l]);
	return v;
}

static inline V16
v16_load_f16_part(const uint16_t *data, int n)
{
	V16			v = v16_zero();

	for (int l = 0; l < n; l++)
		v.lane[l] = widen_f16(data[l]);
	return v;
}

static inline V16
v16_load_f16(const uint16_t *data)
{
	return v16_load_f16_part(data, HYMT_LANES);
}

#define LANEWISE(name, expression) \
	static inline V16 \
	name(V16 a, V16 b) \
	{ \
		FOR_LANES \
			a.lane[l] = (expression); \
		return a; \
	}

LANEWISE(v16_add, a.lane[l] + b.lane[l])
LANEWISE(v16_sub, a.lane[l] - b.lane[l])
LANEWISE(v16_mul, a.lane[l] * b.lane[l])
LANEWISE(v16_div, a.lane[l] / b.lane[l])
LANEWISE(v16_max, a.lane[l] > b.lane[l] ? a.lane[l] : b.lane[l])
LANEWISE(v16_min, a.lane[l] < b.lane[l] ? a.lane[l] : b.lane[l])

static inline V16
v16_fma(V16 a, V16 b, V16 c)
{
	FOR_LANES
		c.lane[l] = fmaf(a.lane[l], b.lane[l], c.lane[l]);
	return c;
}

static inline V16
v16_zero_below(V16 x, float bound, V16 y)
{
	FOR_LANES
		y.lane[l] = x.lane[l] < bound ? 0.0f : y.lane[l];
	return y;
}

static inline V16
v16_exponent(V16 t)
{
	FOR_LANES
		t.lane[l] = from_bits((to_bits(t.lane[l]) << 23) + 0x3f800000);
	return t;
}

static inline void
v16_trees(float *out, const V16 *v, int n)
{
	for (int i = 0; i < n; i++)
	{
		V16			sum = v[i];

		for (int width = HYMT_LANES / 2; width > 0; width /= 2)
		{
			for (int l = 0; l < width; l++)
				sum.lane[l] += sum.lane[l + width];
		}
		out[i] = sum.lane[0];
	}
}

#include "kernels_impl.h"
