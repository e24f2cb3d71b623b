/*
 * kernels_x86.h: what the kernels for AVX2 and AVX-512 have in common: unpacking quantised weights.
 *
 * Included by kernels_avx2.c and kernels_avx512.c, each compiled with flags that include AVX2, FMA and F16C. Runs in
 * any thread of the engine.
 */
#ifndef HYMT_KERNELS_X86_H
#define HYMT_KERNELS_X86_H

#include <immintrin.h>
#include <stddef.h>
#include <stdint.h>

static inline float
widen_f16(uint16_t half)
{
	return _cvtsh_ss(half);
}

/* The bits of each byte, shifted down; the mask has 4 bits at most, so those of the neighbour do not stay. */
static inline __m128i
byte_bits(const uint8_t *data, int shift, int mask)
{
	__m128i		bytes = _mm_loadu_si128((const __m128i *) data);

	return _mm_and_si128(_mm_srli_epi16(bytes, shift), _mm_set1_epi8((char) mask));
}

/* 4 bits of each byte of `low`, and above them 2 bits of each of `high`. */
static inline __m128i
six_bits(const uint8_t *low, int low_shift, const uint8_t *high, int high_shift)
{
	return _mm_or_si128(byte_bits(low, low_shift, 15), _mm_slli_epi16(byte_bits(high, high_shift, 3), 4));
}

/* F8 as halves of a 256th, see kernels_scalar.c. A half whose exponent is all ones is NaN. */
static inline __m256i
f8_as_halves(const uint8_t *data)
{
	__m256i		bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128((const __m128i *) data));
	__m256i		sign = _mm256_slli_epi16(_mm256_and_si256(bytes, _mm256_set1_epi16(0x80)), 8);
	__m256i		rest = _mm256_and_si256(bytes, _mm256_set1_epi16(0x7f));
	__m256i		nan = _mm256_and_si256(_mm256_cmpeq_epi16(rest, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7e00));

	return _mm256_or_si256(_mm256_or_si256(sign, nan), _mm256_slli_epi16(rest, 7));
}

/* out[c * pitch + i] = lane c of v[i], for 8 lanes of 8 vectors. */
static inline void
transpose8(float *out, size_t pitch, const __m256 v[8])
{
	__m256		pairs[8];		/* lanes 0 4, 1 5, … of two vectors each, side by side */
	__m256		fours[8];

	for (int i = 0; i < 8; i += 2)
	{
		pairs[i] = _mm256_unpacklo_ps(v[i], v[i + 1]);	/* 0 0 1 1 | 4 4 5 5 */
		pairs[i + 1] = _mm256_unpackhi_ps(v[i], v[i + 1]);	/* 2 2 3 3 | 6 6 7 7 */
	}
	for (int i = 0; i < 8; i += 4)
	{
		fours[i] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0x44);	/* lane 0 of four vectors | lane 4 */
		fours[i + 1] = _mm256_shuffle_ps(pairs[i], pairs[i + 2], 0xee);	/* 1 | 5 */
		fours[i + 2] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0x44);	/* 2 | 6 */
		fours[i + 3] = _mm256_shuffle_ps(pairs[i + 1], pairs[i + 3], 0xee);	/* 3 | 7 */
	}
	for (int i = 0; i < 4; i++)
	{
		_mm256_storeu_ps(out + (size_t) i * pitch, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20));
		_mm256_storeu_ps(out + (size_t) (i + 4) * pitch, _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31));
	}
}

#endif							/* HYMT_KERNELS_X86_H */
