/*
 * kernels_scalar.c: the kernels in plain C, for any machine. Runs in any thread of the engine.
 *
 * This is the reference that every other instruction set must equal bit for bit.
 */
#include <math.h>
#include <string.h>
#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#include "kernels.h"

typedef struct V16
{
	float		lane[HYMT_LANES];
} V16;

/* Sums of a tile do not wait for each other. */
#define TILE_ROWS 2
#define TILE_COLUMNS 2
#define GEMV_COLUMNS 4
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

static inline V16
v16_load_i8(const int8_t *data)
{
	V16			v;

	FOR_LANES
		v.lane[l] = (float) data[l];
	return v;
}

static inline V16
v16_load_u4(const uint8_t *data, int shift)
{
	V16			v;

	FOR_LANES
		v.lane[l] = (float) ((data[l] >> shift) & 15);
	return v;
}

static inline V16
v16_load_u6(const uint8_t *low, int low_shift, const uint8_t *high, int high_shift)
{
	V16			v;

	FOR_LANES
		v.lane[l] = (float) (((low[l] >> low_shift) & 15) | ((high[l] >> high_shift) & 3) << 4);
	return v;
}

static inline V16
v16_load_u32_u4(const uint32_t *words, int shift)
{
	V16			v;

	FOR_LANES
		v.lane[l] = (float) ((words[l] >> shift) & 15);
	return v;
}

/*
 * The bits of an F8 fit into a half, whose exponent has one more bit; what that makes of them is the number divided by
 * 256. All ones but the sign is NaN; there is no infinity.
 */
static inline V16
v16_load_f8(const uint8_t *data)
{
	V16			v;

	FOR_LANES
	{
		uint16_t	half = (uint16_t) ((data[l] & 0x80) << 8 | (data[l] & 0x7f) << 7);

		v.lane[l] = (data[l] & 0x7f) == 0x7f ? NAN : widen_f16(half) * 256.0f;
	}
	return v;
}

static inline void
v16_store_columns(float *out, size_t pitch, const V16 v[8])
{
	FOR_LANES
		for (int i = 0; i < 8; i++)
			out[(size_t) l * pitch + (size_t) i] = v[i].lane[l];
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

#if defined(__SSE2__) && !defined(__FMA__)

/*
 * x86-64 without FMA: fmaf() is a call per lane, several times slower than this way to the same bits. In double the
 * product is exact, and the sum is rounded to 53 bits. Rounding it again, to 24, can differ from rounding once only
 * where the double lies exactly halfway between two floats (rounding is monotonic, and every halfway point is a
 * double), or where floats are denormal and halfway points lie elsewhere. When a lane is one of these, fmaf() does all
 * 16.
 */
static inline V16
v16_fma(V16 a, V16 b, V16 c)
{
	const __m128i rest_bits = _mm_set1_epi32(0x1fffffff);	/* of a double's lower half, those that a float lacks */
	const __m128i halfway = _mm_set1_epi32(0x10000000);
	const __m128i no_sign = _mm_set1_epi32(0x7fffffff);
	const __m128i above_least_normal = _mm_set1_epi32(0x00800001);
	__m128i		doubtful = _mm_setzero_si128();
	V16			result;

	for (int l = 0; l < HYMT_LANES; l += 4)
	{
		__m128		a4 = _mm_loadu_ps(&a.lane[l]);
		__m128		b4 = _mm_loadu_ps(&b.lane[l]);
		__m128		c4 = _mm_loadu_ps(&c.lane[l]);
		__m128d		first = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(a4), _mm_cvtps_pd(b4)), _mm_cvtps_pd(c4));
		__m128d		second = _mm_add_pd(_mm_mul_pd(_mm_cvtps_pd(_mm_movehl_ps(a4, a4)),
												   _mm_cvtps_pd(_mm_movehl_ps(b4, b4))),
										_mm_cvtps_pd(_mm_movehl_ps(c4, c4)));
		__m128		sum = _mm_movelh_ps(_mm_cvtpd_ps(first), _mm_cvtpd_ps(second));
		__m128i		lower = _mm_castps_si128(_mm_shuffle_ps(_mm_castpd_ps(first), _mm_castpd_ps(second), 0x88));

		doubtful = _mm_or_si128(doubtful, _mm_cmpeq_epi32(_mm_and_si128(lower, rest_bits), halfway));
		doubtful = _mm_or_si128(doubtful, _mm_cmpgt_epi32(above_least_normal,
														  _mm_and_si128(_mm_castps_si128(sum), no_sign)));
		_mm_storeu_ps(&result.lane[l], sum);
	}
	if (_mm_movemask_epi8(doubtful) != 0)
	{
		FOR_LANES
			result.lane[l] = fmaf(a.lane[l], b.lane[l], c.lane[l]);
	}
	return result;
}

#else

static inline V16
v16_fma(V16 a, V16 b, V16 c)
{
	FOR_LANES
		c.lane[l] = fmaf(a.lane[l], b.lane[l], c.lane[l]);
	return c;
}

#endif

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
