/* simd.h - vector levels, exact conversions and fixed-arithmetic functions.
 * Owns: what every kernel shares so that results are the same bits at every
 * vector width.  Does not know: operators, threads.
 *
 * The functions here use additions, multiplications and fused multiply-adds in
 * one written order; the vector forms do the same per element, so an element's
 * result does not depend on the level or on its place in the array. */
#ifndef CREF_SIMD_H
#define CREF_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <genai/types.h>

#define CREF_LEVEL_GENERIC 0
#define CREF_LEVEL_AVX2 1
#define CREF_LEVEL_AVX512 2

/* Use a level that the machine has (others are ignored); a negative number
 * means the best.  Returns the level in force.  For tests and benchmarks: call
 * it while no kernel runs. */
int cref_simd_force(int level);
const char *cref_simd_name(void);

/* Arrays of any alignment.  Values widen exactly; narrowing rounds once, to
 * nearest even.  dtype: F32, F16 or BF16.  dst may equal src, except in widen
 * and narrow. */
void cref_widen(float *dst, const void *src, uint32_t dtype, uint64_t n);
void cref_narrow(void *dst, uint32_t dtype, const float *src, uint64_t n);
void cref_vec_exp(float *dst, const float *src, uint64_t n);
void cref_vec_tanh(float *dst, const float *src, uint64_t n);
void cref_vec_sigmoid(float *dst, const float *src, uint64_t n);
/* Element i goes to lane i % 16; the lanes are added as one fixed tree. */
float cref_vec_sum(const float *x, uint64_t n);
float cref_vec_dot(const float *x, const float *y, uint64_t n); /* fused */

static inline uint32_t cref_bits(float f)
{
	uint32_t u;

	memcpy(&u, &f, sizeof(u));
	return u;
}

static inline float cref_unbits(uint32_t u)
{
	float f;

	memcpy(&f, &u, sizeof(f));
	return f;
}

static inline float cref_bf16_to_f32(uint16_t h)
{
	return cref_unbits((uint32_t)h << 16);
}

static inline uint16_t cref_f32_to_bf16(float f)
{
	uint32_t u = cref_bits(f);

	if ((u & 0x7fffffffu) > 0x7f800000u)
		return (uint16_t)(u >> 16 | 0x40u);
	return (uint16_t)((u + 0x7fffu + (u >> 16 & 1u)) >> 16);
}

static inline float cref_f16_to_f32(uint16_t h)
{
	uint32_t s = (uint32_t)(h & 0x8000u) << 16, e = h >> 10 & 31u;
	uint32_t m = h & 0x3ffu;

	if (e == 31u) /* a signalling NaN becomes quiet, as the CPU does */
		return cref_unbits(s | 0x7f800000u | m << 13 |
				   (m ? 0x400000u : 0u));
	if (e)
		return cref_unbits(s | (e + 112u) << 23 | m << 13);
	/* subnormal: m * 2^-24, exact */
	return cref_unbits(s | cref_bits((float)m * 0x1p-24f));
}

static inline uint16_t cref_f32_to_f16(float f)
{
	uint32_t u = cref_bits(f), s = u >> 16 & 0x8000u, a = u & 0x7fffffffu;

	if (a > 0x7f800000u)
		return (uint16_t)(s | 0x7e00u | (a >> 13 & 0x3ffu));
	if (a >= 0x477ff000u) /* rounds to 65536 or more */
		return (uint16_t)(s | 0x7c00u);
	if (a >= 0x38800000u) { /* normal */
		a -= 112u << 23;
		return (uint16_t)(s | (a + 0xfffu + (a >> 13 & 1u)) >> 13);
	}
	/* subnormal: adding 0.5 puts the unit of 2^-24 at the last bit */
	a = cref_bits(cref_unbits(a) + 0.5f) - 0x3f000000u;
	return (uint16_t)(s | a);
}

/* Element i of an array of any alignment. */
static inline float cref_load(const void *p, uint32_t dtype, uint64_t i)
{
	uint16_t h;
	float f;

	if (dtype == GENAI_DT_F32) {
		memcpy(&f, (const char *)p + i * 4, 4);
		return f;
	}
	memcpy(&h, (const char *)p + i * 2, 2);
	return dtype == GENAI_DT_F16 ? cref_f16_to_f32(h) : cref_bf16_to_f32(h);
}

static inline void cref_store(void *p, uint32_t dtype, uint64_t i, float f)
{
	uint16_t h;

	if (dtype == GENAI_DT_F32) {
		memcpy((char *)p + i * 4, &f, 4);
		return;
	}
	h = dtype == GENAI_DT_F16 ? cref_f32_to_f16(f) : cref_f32_to_bf16(f);
	memcpy((char *)p + i * 2, &h, 2);
}

static inline bool cref_is_float(uint32_t dtype)
{
	return dtype == GENAI_DT_F32 || dtype == GENAI_DT_F16 ||
	       dtype == GENAI_DT_BF16;
}

/* The scalar functions, the same bits as the vector forms.  expf: within 2
 * units in the last place, exact at 0, 0 below -104, infinite above 88.8. */
float cref_expf(float x);
float cref_sigmoidf(float x);

#endif
