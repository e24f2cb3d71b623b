/*
 * kernels_avx512.c: the kernels with AVX-512 (F, BW, VL, DQ), compiled with those flags. Runs in any thread of the
 * engine, on machines that have them only (isa.c).
 */
#include "kernels.h"

#if defined(__AVX512F__) && defined(__AVX512BW__) && defined(__AVX512VL__) && defined(__AVX512DQ__)

#include "kernels_x86.h"

typedef __m512 V16;

/* 16 sums under way in the large tile; 32 registers also hold the weights and x. */
#define TILE_ROWS 4
#define TILE_COLUMNS 4
#define GEMV_COLUMNS 8
#define KERNELS_ISA HYMT_ISA_AVX512
#define KERNELS_FUNCTION hymt_kernels_avx512

#define PART_MASK(n) ((__mmask16) ((1u << (n)) - 1))

static inline V16
v16_set(float x)
{
	return _mm512_set1_ps(x);
}

static inline V16
v16_zero(void)
{
	return _mm512_setzero_ps();
}

static inline V16
v16_load(const float *data)
{
	return _mm512_loadu_ps(data);
}

static inline V16
v16_load_part(const float *data, int n)
{
	return _mm512_maskz_loadu_ps(PART_MASK(n), data);
}

static inline void
v16_store(float *out, V16 v)
{
	_mm512_storeu_ps(out, v);
}

static inline void
v16_store_part(float *out, V16 v, int n)
{
	_mm512_mask_storeu_ps(out, PART_MASK(n), v);
}

static inline V16
widen_bf16(__m256i halves)
{
	return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

static inline V16
v16_load_bf16(const uint16_t *data)
{
	return widen_bf16(_mm256_loadu_si256((const __m256i *) data));
}

static inline V16
v16_load_bf16_part(const uint16_t *data, int n)
{
	return widen_bf16(_mm256_maskz_loadu_epi16(PART_MASK(n), data));
}

static inline V16
v16_load_f16(const uint16_t *data)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *) data));
}

static inline V16
v16_load_f16_part(const uint16_t *data, int n)
{
	return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(PART_MASK(n), data));
}

static inline V16
v16_load_i8(const int8_t *data)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128((const __m128i *) data)));
}

static inline V16
v16_load_u4(const uint8_t *data, int shift)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(byte_bits(data, shift, 15)));
}

static inline V16
v16_load_u6(const uint8_t *low, int low_shift, const uint8_t *high, int high_shift)
{
	return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(six_bits(low, low_shift, high, high_shift)));
}

static inline V16
v16_load_u32_u4(const uint32_t *words, int shift)
{
	__m512i		shifted = _mm512_srl_epi32(_mm512_loadu_si512(words), _mm_cvtsi32_si128(shift));

	return _mm512_cvtepi32_ps(_mm512_and_si512(shifted, _mm512_set1_epi32(15)));
}

static inline V16
v16_load_f8(const uint8_t *data)
{
	return _mm512_mul_ps(_mm512_cvtph_ps(f8_as_halves(data)), _mm512_set1_ps(256.0f));
}

static inline void
v16_store_columns(float *out, size_t pitch, const V16 v[8])
{
	__m256		low[8];
	__m256		high[8];

	for (int i = 0; i < 8; i++)
	{
		low[i] = _mm512_castps512_ps256(v[i]);
		high[i] = _mm512_extractf32x8_ps(v[i], 1);
	}
	transpose8(out, pitch, low);
	transpose8(out + 8 * pitch, pitch, high);
}

static inline V16
v16_add(V16 a, V16 b)
{
	return _mm512_add_ps(a, b);
}

static inline V16
v16_sub(V16 a, V16 b)
{
	return _mm512_sub_ps(a, b);
}

static inline V16
v16_mul(V16 a, V16 b)
{
	return _mm512_mul_ps(a, b);
}

static inline V16
v16_div(V16 a, V16 b)
{
	return _mm512_div_ps(a, b);
}

static inline V16
v16_max(V16 a, V16 b)
{
	return _mm512_max_ps(a, b);
}

static inline V16
v16_min(V16 a, V16 b)
{
	return _mm512_min_ps(a, b);
}

static inline V16
v16_fma(V16 a, V16 b, V16 c)
{
	return _mm512_fmadd_ps(a, b, c);
}

static inline V16
v16_zero_below(V16 x, float bound, V16 y)
{
	return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(x, _mm512_set1_ps(bound), _CMP_LT_OQ), _mm512_setzero_ps());
}

static inline V16
v16_exponent(V16 t)
{
	return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_slli_epi32(_mm512_castps_si512(t), 23),
												_mm512_set1_epi32(0x3f800000)));
}

/*
 * The four levels of the tree for several vectors at a time: each level puts the halves that are to be added of two
 * vectors side by side, so that one addition serves both. Comments name the vectors a b c … whose lanes stand where.
 */

/* lanes i + i+8:    [a0-7 b0-7] */
static inline V16
tree8(V16 a, V16 b)
{
	return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x44), _mm512_shuffle_f32x4(a, b, 0xee));
}

/* lanes i + i+4:    [a0-3 b0-3 c0-3 d0-3] from [a b] and [c d] */
static inline V16
tree4(V16 ab, V16 cd)
{
	return _mm512_add_ps(_mm512_shuffle_f32x4(ab, cd, 0x88), _mm512_shuffle_f32x4(ab, cd, 0xdd));
}

/* lanes i + i+2, within quarters: [a01 e01 | b01 f01 | c01 g01 | d01 h01] from [a b c d] and [e f g h] */
static inline V16
tree2(V16 u, V16 v)
{
	return _mm512_add_ps(_mm512_shuffle_ps(u, v, 0x44), _mm512_shuffle_ps(u, v, 0xee));
}

/* lanes 0 + 1, within quarters: [a e i m | b f j n | c g k o | d h l p] */
static inline V16
tree1(V16 u, V16 v)
{
	return _mm512_add_ps(_mm512_shuffle_ps(u, v, 0x88), _mm512_shuffle_ps(u, v, 0xdd));
}

static inline __attribute__((always_inline)) void
v16_trees(float *out, const V16 *v, int n)
{
	if (n == 1)
	{
		V16			u = tree4(tree8(v[0], v[0]), tree8(v[0], v[0]));

		u = tree2(u, u);
		out[0] = _mm512_cvtss_f32(tree1(u, u));
	}
	else if (n <= 4)
	{
		V16			u = tree4(tree8(v[0], v[1]), tree8(n > 2 ? v[2] : v[1], n > 3 ? v[3] : v[1]));
		float		quarters[HYMT_LANES];

		u = tree2(u, u);
		_mm512_storeu_ps(quarters, tree1(u, u));
		for (int i = 0; i < n; i++)
			out[i] = quarters[i * 4];
	}
	else
	{
		/*
		 * The result's lane 4 i + j is the sum of the vector given as number i + 4 j. Vectors behind the n-th are taken
		 * from the front; their sums are not used.
		 */
#define INPUT(lane) v[(lane) < n ? (lane) : 0]
		V16			q0 = tree4(tree8(INPUT(0), INPUT(4)), tree8(INPUT(8), INPUT(12)));
		V16			q1 = tree4(tree8(INPUT(1), INPUT(5)), tree8(INPUT(9), INPUT(13)));
		V16			q2 = tree4(tree8(INPUT(2), INPUT(6)), tree8(INPUT(10), INPUT(14)));
		V16			q3 = tree4(tree8(INPUT(3), INPUT(7)), tree8(INPUT(11), INPUT(15)));
		V16			sums = tree1(tree2(q0, q1), tree2(q2, q3));
#undef INPUT

		if (n == HYMT_LANES)
			_mm512_storeu_ps(out, sums);
		else
			_mm512_mask_storeu_ps(out, PART_MASK(n), sums);
	}
}

#include "kernels_impl.h"

#else							/* not compiled for AVX-512 */

const HymtKernels *
hymt_kernels_avx512(void)
{
	return NULL;
}

#endif
