/* sampler_math.h - the arithmetic of docs/SAMPLING.md, for host and device.
 * Owns: the counter-based generator and the weight of a logit.  Both are exact:
 * the same bits wherever IEEE 754 binary64 is computed without contraction to
 * fused multiply-add (-ffp-contract=off; nvcc: -fmad=false). */
#ifndef GENAI_CORE_TEXT_SAMPLER_MATH_H
#define GENAI_CORE_TEXT_SAMPLER_MATH_H

#include <stdint.h>

/* Weights are counts of 2^-40 of the largest. */
#define GENAI_WEIGHT_ONE (1ull << 40)
/* Below this the weight is 0 without computing it. */
#define GENAI_WEIGHT_MIN_X -28.0

/* Philox4x32-10: ten rounds over ctr with key, the result in ctr. */
static inline void genai_philox(uint32_t ctr[4], const uint32_t key[2])
{
	uint32_t k0 = key[0], k1 = key[1];
	int i;

	for (i = 0; i < 10; i++) {
		uint64_t p0 = (uint64_t)0xd2511f53u * ctr[0];
		uint64_t p1 = (uint64_t)0xcd9e8d57u * ctr[2];
		uint32_t c1 = ctr[1], c3 = ctr[3];

		ctr[0] = (uint32_t)(p1 >> 32) ^ c1 ^ k0;
		ctr[1] = (uint32_t)p1;
		ctr[2] = (uint32_t)(p0 >> 32) ^ c3 ^ k1;
		ctr[3] = (uint32_t)p0;
		k0 += 0x9e3779b9u;
		k1 += 0xbb67ae85u;
	}
}

/* The random number of a position: uniform in 0...2^64-1. */
static inline uint64_t genai_sampler_random(uint64_t seed, uint64_t position)
{
	uint32_t ctr[4] = {(uint32_t)position, (uint32_t)(position >> 32), 0,
			   0};
	const uint32_t key[2] = {(uint32_t)seed, (uint32_t)(seed >> 32)};

	genai_philox(ctr, key);
	return (uint64_t)ctr[1] << 32 | ctr[0];
}

/* floor(2^40 * exp(x)) for x <= 0, up to the rounding of the steps below. */
static inline uint64_t genai_sampler_weight(double x)
{
	/* ln(2)^k / k! */
	static const double c[] = {
		1.0,
		0.69314718055994531,
		0.24022650695910072,
		0.055504108664821580,
		0.0096181291076284772,
		0.0013333558146428443,
		0.00015403530393381609,
		0.000015252733804059840,
		0.0000013215486790144309,
		0.00000010178086009239699,
		0.0000000070549116208011233,
		0.00000000044455382718708115,
	};
	double t, n, f, p;
	int i;

	if (!(x >= GENAI_WEIGHT_MIN_X))
		return 0;
	t = x * 1.4426950408889634;
	/* round to nearest, ties to even, for |t| < 2^51 */
	n = t + 6755399441055744.0;
	n = n - 6755399441055744.0;
	f = t - n;
	p = c[11];
	for (i = 10; i >= 0; i--) {
		p = p * f;
		p = p + c[i];
	}
	/* n is -40...0, and a product with a power of two is exact */
	return (uint64_t)(int64_t)(p * (double)(1ll << (40 + (int)n)));
}

#endif
