// attention_quant.c - rows of a cache whose elements are 8 or 4 bits: x is
// q * scale, one scale for all or one for each channel of each head.  Two
// elements of 4 bits share a byte, the even one below, 8 more than they are.
#include "modules/cpu_ref/attention.h"

#include <math.h>

static float kv_scale(const struct cref_kv *kv, int64_t h, uint64_t i)
{
	return cref_load(kv->scales, GENAI_DT_F32,
			 (uint64_t)(h * kv->scale_head) +
				 (kv->scale_head ? i : 0));
}

// NaN is the lowest.
static int quantised(float x, float scale, int lowest, int highest)
{
	x = rintf(x / scale);
	return !(x > (float)lowest) ? lowest
	       : x > (float)highest ? highest
				    : (int)x;
}

void cref_kv_put(const struct cref_kv *kv, int64_t b, int64_t h, int64_t row,
		 const float *x, uint64_t n)
{
	char *to = cref_kv_at(kv, b, h, row);

	if (!kv->bits) {
		cref_narrow(to, kv->dtype, x, n);
		return;
	}
	for (uint64_t i = 0; kv->bits == 8 && i < n; i++)
		to[i] = (char)quantised(x[i], kv_scale(kv, h, i), -128, 127);
	for (uint64_t i = 0; kv->bits == 4 && i < n; i += 2) {
		int low = quantised(x[i], kv_scale(kv, h, i), -8, 7) + 8;
		int high =
			quantised(x[i + 1], kv_scale(kv, h, i + 1), -8, 7) + 8;

		to[i / 2] = (char)(low | high << 4);
	}
}

void cref_kv_get(const struct cref_kv *kv, int64_t b, int64_t h, int64_t row,
		 float *x, uint64_t n)
{
	const char *from = cref_kv_at(kv, b, h, row);

	for (uint64_t i = 0; i < n; i++) {
		int q = kv->bits == 8
				? (signed char)from[i]
				: ((unsigned char)from[i / 2] >> i % 2 * 4 &
				   15) - 8;

		x[i] = (float)q * kv_scale(kv, h, i);
	}
}
