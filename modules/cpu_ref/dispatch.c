// dispatch.c - the choice of a vector level, and array functions through it.
#include <stdatomic.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#include "modules/cpu_ref/kern.h"

extern const struct cref_kern cref_generic_table;
#if defined(__x86_64__)
extern const struct cref_kern cref_avx2_table, cref_avx512_table;
#endif

static _Atomic(const struct cref_kern *) in_force;

#if defined(__x86_64__)
// Not every clang knows __builtin_cpu_supports("f16c").
static int has_f16c(void)
{
	unsigned a, b, c, d;

	return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_F16C);
}
#endif

static int best_level(void)
{
#if defined(__x86_64__)
	__builtin_cpu_init();
	if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
	    !has_f16c())
		return CREF_LEVEL_GENERIC;
	if (__builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") &&
	    __builtin_cpu_supports("avx512vl"))
		return CREF_LEVEL_AVX512;
	return CREF_LEVEL_AVX2;
#else
	return CREF_LEVEL_GENERIC;
#endif
}

int cref_simd_force(int level)
{
	const int best = best_level();
	const struct cref_kern *k = &cref_generic_table;

	if (level < 0 || level > best)
		level = best;
#if defined(__x86_64__)
	if (level == CREF_LEVEL_AVX512)
		k = &cref_avx512_table;
	else if (level == CREF_LEVEL_AVX2)
		k = &cref_avx2_table;
#endif
	atomic_store_explicit(&in_force, k, memory_order_release);
	return level;
}

const struct cref_kern *cref_kern(void)
{
	const struct cref_kern *k;

	k = atomic_load_explicit(&in_force, memory_order_acquire);
	if (!k) {
		cref_simd_force(-1);
		k = atomic_load_explicit(&in_force, memory_order_acquire);
	}
	return k;
}

const char *cref_simd_name(void)
{
	return cref_kern()->name;
}

void cref_widen(float *dst, const void *src, uint32_t dtype, uint64_t n)
{
	if (n)
		cref_kern()->widen(dst, src, dtype, n);
}

void cref_narrow(void *dst, uint32_t dtype, const float *src, uint64_t n)
{
	if (n)
		cref_kern()->narrow(dst, dtype, src, n);
}

void cref_vec_exp(float *dst, const float *src, uint64_t n)
{
	cref_kern()->exp(dst, src, n);
}

void cref_vec_tanh(float *dst, const float *src, uint64_t n)
{
	cref_kern()->tanh(dst, src, n);
}

void cref_vec_sigmoid(float *dst, const float *src, uint64_t n)
{
	cref_kern()->sigmoid(dst, src, n);
}

float cref_vec_sum(const float *x, uint64_t n)
{
	return cref_kern()->sum(x, n);
}

float cref_vec_dot(const float *x, const float *y, uint64_t n)
{
	return cref_kern()->dot(x, y, n);
}

float cref_expf(float x)
{
	cref_kern()->exp(&x, &x, 1);
	return x;
}

float cref_sigmoidf(float x)
{
	cref_kern()->sigmoid(&x, &x, 1);
	return x;
}
