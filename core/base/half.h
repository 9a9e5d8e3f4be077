/* half.h - IEEE half, bfloat16 and float32, bit by bit, round to nearest even.
 * Does not depend on the compiler having a half type. */
#ifndef GENAI_CORE_BASE_HALF_H
#define GENAI_CORE_BASE_HALF_H

#include <stdint.h>
#include <string.h>

static inline float genai_float_from_bits(uint32_t bits)
{
	float f;

	memcpy(&f, &bits, sizeof(f));
	return f;
}

static inline uint32_t genai_float_bits(float f)
{
	uint32_t bits;

	memcpy(&bits, &f, sizeof(bits));
	return bits;
}

static inline float genai_float_from_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16;
	uint32_t exp = h >> 10 & 31, man = h & 0x3ff;
	float f;

	if (exp == 31)
		return genai_float_from_bits(sign | 0x7f800000 | man << 13);
	if (exp)
		return genai_float_from_bits(sign | (exp + 112) << 23 |
					     man << 13);
	f = (float)man * 0x1p-24f;
	return sign ? -f : f;
}

static inline float genai_float_from_bf16(uint16_t b)
{
	return genai_float_from_bits((uint32_t)b << 16);
}

static inline uint16_t genai_half_from_float(float f)
{
	uint32_t bits = genai_float_bits(f), abs = bits & 0x7fffffff, round;
	uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);

	if (abs > 0x7f800000) /* NaN: quiet, payload kept as far as it fits */
		return (uint16_t)(sign | 0x7e00 | (abs >> 13 & 0x1ff));
	if (abs >= 0x477ff000) /* 65520 and above round to infinity */
		return sign | 0x7c00;
	if (abs < 0x38800000) { /* below 2^-14: subnormal, unit 2^-24 */
		/* adding 0.5 leaves the rounded multiple of 2^-24 in the
		 * lowest bits of the sum */
		float sum = genai_float_from_bits(abs) + 0.5f;

		return (uint16_t)(sign | (genai_float_bits(sum) - 0x3f000000));
	}
	round = 0xfff + (abs >> 13 & 1);
	return (uint16_t)(sign | (abs - 0x38000000 + round) >> 13);
}

#endif
