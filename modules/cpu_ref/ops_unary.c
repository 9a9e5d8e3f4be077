// ops_unary.c - elementwise functions of one input, same dtype in and out.
#include "modules/cpu_ref/ops.h"

#include <math.h>

#define UNARY(op)                                                              \
	int32_t ops_##op##_prepare(struct cref_node *n,                        \
				   struct genai_error *err)                    \
	{                                                                      \
		return ops_same_prepare(n, NULL, 1, 1,                         \
					ops_kernel_mask(&op##_kernels), err);  \
	}                                                                      \
	int32_t ops_##op##_run(struct cref_node *n, const struct cref_run *r)  \
	{                                                                      \
		return ops_same_run(n, r, &op##_kernels);                      \
	}

// A function of reals: one expression in float, one in double.
#define REAL(op, fexpr, dexpr)                                                 \
	OPS_KERNEL1(op##_f32, float, float, fexpr)                             \
	OPS_KERNEL1(op##_f64, double, double, dexpr)                           \
	static const struct ops_kernels op##_kernels = {op##_f32, op##_f64,    \
							NULL, NULL};           \
	UNARY(op)

REAL(sqrt, sqrtf(x), sqrt(x))
REAL(reciprocal, 1.0f / x, 1.0 / x)
REAL(log, logf(x), log(x))
REAL(erf, erff(x), erf(x))
REAL(sin, sinf(x), sin(x))
REAL(cos, cosf(x), cos(x))
REAL(tan, tanf(x), tan(x))
REAL(asin, asinf(x), asin(x))
REAL(acos, acosf(x), acos(x))
REAL(atan, atanf(x), atan(x))
REAL(sinh, sinhf(x), sinh(x))
REAL(cosh, coshf(x), cosh(x))
REAL(asinh, asinhf(x), asinh(x))
REAL(acosh, acoshf(x), acosh(x))
REAL(atanh, atanhf(x), atanh(x))
REAL(floor, floorf(x), floor(x))
REAL(ceil, ceilf(x), ceil(x))
REAL(round, rintf(x), rint(x)) // ties to even
REAL(softsign, x / (1.0f + fabsf(x)), x / (1.0 + fabs(x)))
REAL(softplus, (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x))),
     (x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))))

static float mish1(float x)
{
	float sp = (x > 0.0f ? x : 0.0f) + log1pf(expf(-fabsf(x)));

	return x * tanhf(sp);
}

static double mish1d(double x)
{
	return x * tanh((x > 0.0 ? x : 0.0) + log1p(exp(-fabs(x))));
}
REAL(mish, mish1(x), mish1d(x))

OPS_KERNEL1(relu_f32, float, float, x < 0.0f ? 0.0f : x)
OPS_KERNEL1(relu_f64, double, double, x < 0.0 ? 0.0 : x)
OPS_KERNEL1(relu_i64, int64_t, int64_t, x < 0 ? 0 : x)
static const struct ops_kernels relu_kernels = {relu_f32, relu_f64, relu_i64,
						NULL};
UNARY(relu)

// exp, tanh and sigmoid in float are vector code.
#define VECTOR(op, dexpr)                                                      \
	static void op##_f32(struct ops_ew *e, const void *const *in,          \
			     void *out, uint32_t count)                        \
	{                                                                      \
		(void)e;                                                       \
		cref_vec_##op(out, in[0], count);                              \
	}                                                                      \
	OPS_KERNEL1(op##_f64, double, double, dexpr)                           \
	static const struct ops_kernels op##_kernels = {op##_f32, op##_f64,    \
							NULL, NULL};           \
	UNARY(op)
VECTOR(exp, exp(x))
VECTOR(tanh, tanh(x))
VECTOR(sigmoid, 1.0 / (1.0 + exp(-x)))

#define U(v) ((uint64_t)(v))
OPS_KERNEL1(abs_f32, float, float, fabsf(x))
OPS_KERNEL1(abs_f64, double, double, fabs(x))
OPS_KERNEL1(abs_i64, int64_t, int64_t, x < 0 ? (int64_t)(0 - U(x)) : x)
OPS_KERNEL1(abs_u64, uint64_t, uint64_t, x)
static const struct ops_kernels abs_kernels = {abs_f32, abs_f64, abs_i64,
					       abs_u64};
UNARY(abs)

OPS_KERNEL1(neg_f32, float, float, -x)
OPS_KERNEL1(neg_f64, double, double, -x)
OPS_KERNEL1(neg_i64, int64_t, int64_t, (int64_t)(0 - U(x)))
static const struct ops_kernels neg_kernels = {neg_f32, neg_f64, neg_i64, NULL};
UNARY(neg)

OPS_KERNEL1(sign_f32, float, float, x > 0.0f ? 1.0f : x < 0.0f ? -1.0f : x)
OPS_KERNEL1(sign_f64, double, double, x > 0.0 ? 1.0 : x < 0.0 ? -1.0 : x)
OPS_KERNEL1(sign_i64, int64_t, int64_t, (x > 0) - (x < 0))
OPS_KERNEL1(sign_u64, uint64_t, uint64_t, x > 0)
static const struct ops_kernels sign_kernels = {sign_f32, sign_f64, sign_i64,
						sign_u64};
UNARY(sign)

OPS_KERNEL1(bitnot_i64, int64_t, int64_t, (int64_t)~U(x))
OPS_KERNEL1(bitnot_u64, uint64_t, uint64_t, ~x)
static const struct ops_kernels bitnot_kernels = {NULL, NULL, bitnot_i64,
						  bitnot_u64};
UNARY(bitnot)
