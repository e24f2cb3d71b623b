/*
 * kernels_avx2.c: the kernels with AVX2, FMA and F16C, compiled with those flags. Runs in any thread of the engine, on
 * machines that have them only (isa.c).
 */
#include "kernels.h"

#if defined(__AVX2__) && defined(__FMA__) && defined(__F16C__)

#include "kernels_x86.h"

/* Lanes 0-7 and 8-15. */
typedef struct V16
{
	__m256		low;
	__m256		high;
} V16;

/* Four sums under way are 8 of the 16 registers, which also hold the weights and x. */
#define TILE_ROWS 2
#define TILE_COLUMNS 2
#define GEMV_COLUMNS 4
#define KERNELS_ISA HYMT_ISA_AVX2
#define KERNELS_FUNCTION hymt_kernels_avx2

static inline V16
v16_set(float x)
{
	return (V16) {_mm256_set1_ps(x), _mm256_set1_ps(x)};
}

static inline V16
v16_zero(void)
{
	return (V16) {_mm256_setzero_ps(), _mm256_setzero_ps()};
}

static inline V16
v16_load(const float *data)
{
	return (V16) {_mm256_loadu_ps(data), _mm256_loadu_ps(data + 8)};
}

/* The first n of 8 lanes, n <= 8; none for n <= 0. */
static inline __m256i
part_mask(int n)
{
	return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}

static inline V16
v16_load_part(const float *data, int n)
{
	return (V16) {_mm256_maskload_ps(data, part_mask(n)),
				  n > 8 ? _mm256_maskload_ps(data + 8, part_mask(n - 8)) : _mm256_setzero_ps()};
}

static inline void
v16_store(float *out, V16 v)
{
	_mm256_storeu_ps(out, v.low);
	_mm256_storeu_ps(out + 8, v.high);
}

static inline void
v16_store_part(float *out, V16 v, int n)
{
	_mm256_maskstore_ps(out, part_mask(n), v.low);
	if (n > 8)
		_mm256_maskstore_ps(out + 8, part_mask(n - 8), v.high);
}

static inline __m256
widen8_bf16(const uint16_t *data)
{
	__m256i		halves = _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *) data));

	return _mm256_castsi256_ps(_mm256_slli_epi32(halves, 16));
}

static inline V16
v16_load_bf16(const uint16_t *data)
{
	return (V16) {widen8_bf16(data), widen8_bf16(data + 8)};
}

static inline __m256
widen8_f16(const uint16_t *data)
{
	return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *) data));
}

static inline V16
v16_load_f16(const uint16_t *data)
{
	return (V16) {widen8_f16(data), widen8_f16(data + 8)};
}

/* AVX2 has no masked loads of 16-bit elements: the last ones of a row go through memory that has zeros behind them. */
static inline void
copy_part(uint16_t *copy, const uint16_t *data, int n)
{
	for (int i = 0; i < HYMT_LANES; i++)
		copy[i] = i < n ? data[i] : 0;
}

static inline V16
v16_load_bf16_part(const uint16_t *data, int n)
{
	uint16_t	copy[HYMT_LANES];

	copy_part(copy, data, n);
	return v16_load_bf16(copy);
}

static inline V16
v16_load_f16_part(const uint16_t *data, int n)
{
	uint16_t	copy[HYMT_LANES];

	copy_part(copy, data, n);
	return v16_load_f16(copy);
}

/* Bytes as floats. */
static inline V16
float_bytes(__m128i bytes)
{
	return (V16) {_mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(bytes)),
				  _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(_mm_srli_si128(bytes, 8)))};
}

static inline V16
v16_load_i8(const int8_t *data)
{
	__m128i		bytes = _mm_loadu_si128((const __m128i *) data);

	return (V16) {_mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
				  _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128(bytes, 8)))};
}

static inline V16
v16_load_u4(const uint8_t *data, int shift)
{
	return float_bytes(byte_bits(data, shift, 15));
}

static inline V16
v16_load_u6(const uint8_t *low, int low_shift, const uint8_t *high, int high_shift)
{
	return float_bytes(six_bits(low, low_shift, high, high_shift));
}

static inline V16
v16_load_u32_u4(const uint32_t *words, int shift)
{
	__m256i		low = _mm256_loadu_si256((const __m256i *) words);
	__m256i		high = _mm256_loadu_si256((const __m256i *) (words + 8));
	__m128i		count = _mm_cvtsi32_si128(shift);
	__m256i		mask = _mm256_set1_epi32(15);

	return (V16) {_mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(low, count), mask)),
				  _mm256_cvtepi32_ps(_mm256_and_si256(_mm256_srl_epi32(high, count), mask))};
}

static inline V16
v16_load_f8(const uint8_t *data)
{
	__m256i		halves = f8_as_halves(data);
	__m256		factor = _mm256_set1_ps(256.0f);

	return (V16) {_mm256_mul_ps(_mm256_cvtph_ps(_mm256_castsi256_si128(halves)), factor),
				  _mm256_mul_ps(_mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1)), factor)};
}

static inline void
v16_store_columns(float *out, size_t pitch, const V16 v[8])
{
	__m256		low[8];
	__m256		high[8];

	for (int i = 0; i < 8; i++)
	{
		low[i] = v[i].low;
		high[i] = v[i].high;
	}
	transpose8(out, pitch, low);
	transpose8(out + 8 * pitch, pitch, high);
}

#define LANEWISE(name, operation) \
	static inline V16 \
	name(V16 a, V16 b) \
	{ \
		return (V16) {operation(a.low, b.low), operation(a.high, b.high)}; \
	}

LANEWISE(v16_add, _mm256_add_ps)
LANEWISE(v16_sub, _mm256_sub_ps)
LANEWISE(v16_mul, _mm256_mul_ps)
LANEWISE(v16_div, _mm256_div_ps)
LANEWISE(v16_max, _mm256_max_ps)
LANEWISE(v16_min, _mm256_min_ps)

static inline V16
v16_fma(V16 a, V16 b, V16 c)
{
	return (V16) {_mm256_fmadd_ps(a.low, b.low, c.low), _mm256_fmadd_ps(a.high, b.high, c.high)};
}

static inline V16
v16_zero_below(V16 x, float bound, V16 y)
{
	__m256		b = _mm256_set1_ps(bound);

	return (V16) {_mm256_andnot_ps(_mm256_cmp_ps(x.low, b, _CMP_LT_OQ), y.low),
				  _mm256_andnot_ps(_mm256_cmp_ps(x.high, b, _CMP_LT_OQ), y.high)};
}

static inline __m256
exponent8(__m256 t)
{
	return _mm256_castsi256_ps(_mm256_add_epi32(_mm256_slli_epi32(_mm256_castps_si256(t), 23),
												_mm256_set1_epi32(0x3f800000)));
}

static inline V16
v16_exponent(V16 t)
{
	return (V16) {exponent8(t.low), exponent8(t.high)};
}

/* The trees of four vectors at a time; each level but the first serves two vectors with one addition. */
static inline __m128
four_trees(V16 a, V16 b, V16 c, V16 d)
{
	__m256		a8 = _mm256_add_ps(a.low, a.high);	/* lanes i + i+8 */
	__m256		b8 = _mm256_add_ps(b.low, b.high);
	__m256		c8 = _mm256_add_ps(c.low, c.high);
	__m256		d8 = _mm256_add_ps(d.low, d.high);

	/* lanes i + i+4: [a0-3 c0-3], [b0-3 d0-3] */
	__m256		ac = _mm256_add_ps(_mm256_permute2f128_ps(a8, c8, 0x20), _mm256_permute2f128_ps(a8, c8, 0x31));
	__m256		bd = _mm256_add_ps(_mm256_permute2f128_ps(b8, d8, 0x20), _mm256_permute2f128_ps(b8, d8, 0x31));

	/* lanes i + i+2: [a01 b01 | c01 d01] */
	__m256		u = _mm256_add_ps(_mm256_shuffle_ps(ac, bd, 0x44), _mm256_shuffle_ps(ac, bd, 0xee));

	/* lanes 0 + 1: [a b a b | c d c d] */
	__m256		sums = _mm256_add_ps(_mm256_shuffle_ps(u, u, 0x88), _mm256_shuffle_ps(u, u, 0xdd));

	return _mm_movelh_ps(_mm256_castps256_ps128(sums), _mm256_extractf128_ps(sums, 1));
}

static inline __attribute__((always_inline)) void
v16_trees(float *out, const V16 *v, int n)
{
	for (int i = 0; i < n; i += 4)
	{
		int			left = n - i;
		__m128		sums = four_trees(v[i], v[i + (left > 1)], v[left > 2 ? i + 2 : i], v[left > 3 ? i + 3 : i]);
		float		four[4];

		_mm_storeu_ps(four, sums);
		for (int j = 0; j < 4 && j < left; j++)
			out[i + j] = four[j];
	}
}

#include "kernels_impl.h"

#else							/* not compiled for AVX2 */

const HymtKernels *
hymt_kernels_avx2(void)
{
	return NULL;
}

#endif
