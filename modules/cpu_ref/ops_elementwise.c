// ops_elementwise.c - what elementwise operators share, and arithmetic.
#include "modules/cpu_ref/ops.h"

#include <math.h>

ops_ew_fn ops_kernel(const struct ops_kernels *k, enum ops_class c)
{
	switch (c) {
	case OPS_F32:
		return k->f32;
	case OPS_F64:
		return k->f64;
	case OPS_I64:
		return k->i64;
	default:
		return k->u64;
	}
}

uint32_t ops_kernel_mask(const struct ops_kernels *k)
{
	return (k->f32 ? OPS_F32S : 0) | (k->f64 ? OPS_BIT(GENAI_DT_F64) : 0) |
	       (k->i64 ? OPS_SIGNED : 0) | (k->u64 ? OPS_UNSIGNED : 0);
}

int32_t ops_same_prepare(struct cref_node *n, const char *const *attrs,
			 uint32_t min_in, uint32_t max_in, uint32_t mask,
			 struct genai_error *err)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank;
	int32_t rc = ops_check(n, attrs, min_in, max_in, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, mask, err);
	for (uint32_t i = 1; !rc && i < n->n_in; i++) {
		if (!n->in[i])
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "input %u is missing", i);
		rc = ops_need_same_dtype(n, 0, i, err);
	}
	if (!rc)
		rc = ops_broadcast(n, 0, n->n_in, &rank, dims, err);
	return rc ? rc : ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t ops_same_run(struct cref_node *n, const struct cref_run *r,
		     const struct ops_kernels *k)
{
	struct ops_ew e;

	ops_ew_init(&e, n, n->n_in,
		    ops_kernel(k, ops_class_of(n->in[0]->dtype)));
	ops_ew_run(&e, r->pool);
	if (atomic_load(&e.bad))
		return cref_node_fail(n, r->err, GENAI_E_INVAL,
				      "integer division by zero");
	return GENAI_OK;
}

#define BINARY(op)                                                             \
	static const struct ops_kernels op##_kernels = {op##_f32, op##_f64,    \
							op##_i64, op##_u64};   \
	int32_t ops_##op##_prepare(struct cref_node *n,                        \
				   struct genai_error *err)                    \
	{                                                                      \
		return ops_same_prepare(n, NULL, 2, 2, OPS_NUMS, err);         \
	}                                                                      \
	int32_t ops_##op##_run(struct cref_node *n, const struct cref_run *r)  \
	{                                                                      \
		return ops_same_run(n, r, &op##_kernels);                      \
	}

// Signed sums are made in unsigned arithmetic, where overflow is defined.
#define U(v) ((uint64_t)(v))
OPS_KERNEL2(add_f32, float, float, x + y)
OPS_KERNEL2(add_f64, double, double, x + y)
OPS_KERNEL2(add_i64, int64_t, int64_t, (int64_t)(U(x) + U(y)))
OPS_KERNEL2(add_u64, uint64_t, uint64_t, x + y)
BINARY(add)

OPS_KERNEL2(sub_f32, float, float, x - y)
OPS_KERNEL2(sub_f64, double, double, x - y)
OPS_KERNEL2(sub_i64, int64_t, int64_t, (int64_t)(U(x) - U(y)))
OPS_KERNEL2(sub_u64, uint64_t, uint64_t, x - y)
BINARY(sub)

OPS_KERNEL2(mul_f32, float, float, x *y)
OPS_KERNEL2(mul_f64, double, double, x *y)
OPS_KERNEL2(mul_i64, int64_t, int64_t, (int64_t)(U(x) * U(y)))
OPS_KERNEL2(mul_u64, uint64_t, uint64_t, x *y)
BINARY(mul)

static int64_t div_int(struct ops_ew *e, int64_t x, int64_t y)
{
	if (y == 0) {
		atomic_store(&e->bad, 1);
		return 0;
	}
	return y == -1 ? (int64_t)(0 - U(x)) : x / y;
}

static uint64_t div_uint(struct ops_ew *e, uint64_t x, uint64_t y)
{
	if (y == 0) {
		atomic_store(&e->bad, 1);
		return 0;
	}
	return x / y;
}

OPS_KERNEL2(div_f32, float, float, x / y)
OPS_KERNEL2(div_f64, double, double, x / y)
OPS_KERNEL2(div_i64, int64_t, int64_t, div_int(e, x, y))
OPS_KERNEL2(div_u64, uint64_t, uint64_t, div_uint(e, x, y))
BINARY(div)

// Mod: the sign of the divisor, or of the dividend with fmod=1.
static int64_t mod_int(struct ops_ew *e, int64_t x, int64_t y, bool c_sign)
{
	int64_t m;

	if (y == 0) {
		atomic_store(&e->bad, 1);
		return 0;
	}
	m = y == -1 ? 0 : x % y;
	return !c_sign && m && (m < 0) != (y < 0) ? m + y : m;
}

static uint64_t mod_uint(struct ops_ew *e, uint64_t x, uint64_t y)
{
	if (y == 0) {
		atomic_store(&e->bad, 1);
		return 0;
	}
	return x % y;
}

static double mod_real(double x, double y)
{
	double m = fmod(x, y);

	return m != 0 && (m < 0) != (y < 0) ? m + y : m;
}

OPS_KERNEL2(fmod_f32, float, float, fmodf(x, y))
OPS_KERNEL2(fmod_f64, double, double, fmod(x, y))
OPS_KERNEL2(fmod_i64, int64_t, int64_t, mod_int(e, x, y, true))
OPS_KERNEL2(mod_f32, float, float, (float)mod_real((double)x, (double)y))
OPS_KERNEL2(mod_f64, double, double, mod_real(x, y))
OPS_KERNEL2(mod_i64, int64_t, int64_t, mod_int(e, x, y, false))
OPS_KERNEL2(mod_u64, uint64_t, uint64_t, mod_uint(e, x, y))
static const struct ops_kernels mod_kernels = {mod_f32, mod_f64, mod_i64,
					       mod_u64};
static const struct ops_kernels fmod_kernels = {fmod_f32, fmod_f64, fmod_i64,
						mod_u64};

int32_t ops_mod_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"fmod", NULL};

	return ops_same_prepare(n, attrs, 2, 2, OPS_NUMS, err);
}

int32_t ops_mod_run(struct cref_node *n, const struct cref_run *r)
{
	return ops_same_run(n, r,
			    exec_attr_int(n->node, "fmod", 0) ? &fmod_kernels
							      : &mod_kernels);
}

// Operators of one or more inputs: a fold over the operands.
#define FOLD(name, T, expr)                                                    \
	static void name(struct ops_ew *e, const void *const *in, void *out,   \
			 uint32_t count)                                       \
	{                                                                      \
		T *o = out;                                                    \
                                                                               \
		for (uint32_t i = 0; i < count; i++) {                         \
			T x = ((const T *)in[0])[i];                           \
                                                                               \
			for (uint32_t k = 1; k < e->n_in; k++) {               \
				T y = ((const T *)in[k])[i];                   \
                                                                               \
				x = expr;                                      \
			}                                                      \
			o[i] = x;                                              \
		}                                                              \
	}

#define VARIADIC(op, mask)                                                     \
	int32_t ops_##op##_prepare(struct cref_node *n,                        \
				   struct genai_error *err)                    \
	{                                                                      \
		return ops_same_prepare(n, NULL, 1, EXEC_MAX_IN, mask, err);   \
	}                                                                      \
	int32_t ops_##op##_run(struct cref_node *n, const struct cref_run *r)  \
	{                                                                      \
		return ops_same_run(n, r, &op##_kernels);                      \
	}

// A NaN stays once it is met.
FOLD(max_f32, float, y > x || y != y ? y : x)
FOLD(max_f64, double, y > x || y != y ? y : x)
FOLD(max_i64, int64_t, y > x ? y : x)
FOLD(max_u64, uint64_t, y > x ? y : x)
static const struct ops_kernels max_kernels = {max_f32, max_f64, max_i64,
					       max_u64};
VARIADIC(max, OPS_NUMS)

FOLD(min_f32, float, y < x || y != y ? y : x)
FOLD(min_f64, double, y < x || y != y ? y : x)
FOLD(min_i64, int64_t, y < x ? y : x)
FOLD(min_u64, uint64_t, y < x ? y : x)
static const struct ops_kernels min_kernels = {min_f32, min_f64, min_i64,
					       min_u64};
VARIADIC(min, OPS_NUMS)

FOLD(sum_f32, float, x + y)
FOLD(sum_f64, double, x + y)
static const struct ops_kernels sum_kernels = {sum_f32, sum_f64, NULL, NULL};
VARIADIC(sum, OPS_FLOATS)

static void mean_f32(struct ops_ew *e, const void *const *in, void *out,
		     uint32_t count)
{
	float *o = out;

	sum_f32(e, in, out, count);
	for (uint32_t i = 0; i < count; i++)
		o[i] /= (float)e->n_in;
}

static void mean_f64(struct ops_ew *e, const void *const *in, void *out,
		     uint32_t count)
{
	double *o = out;

	sum_f64(e, in, out, count);
	for (uint32_t i = 0; i < count; i++)
		o[i] /= (double)e->n_in;
}

static const struct ops_kernels mean_kernels = {mean_f32, mean_f64, NULL, NULL};
VARIADIC(mean, OPS_FLOATS)

// ---- Pow: the exponent may be of another dtype ----

static int64_t pow_int(int64_t x, int64_t y)
{
	uint64_t v = 1, b = U(x);

	if (y < 0) // a fraction, cut towards 0
		return x == 1 ? 1 : x == -1 ? (y & 1 ? -1 : 1) : 0;
	for (; y; y >>= 1, b *= b)
		if (y & 1)
			v *= b;
	return (int64_t)v;
}

OPS_KERNEL2(pow_f32, float, float, y == 2.0f ? x * x : powf(x, y))
OPS_KERNEL2(pow_f64, double, double, y == 2.0 ? x * x : pow(x, y))
OPS_KERNEL2(pow_i64, int64_t, int64_t, pow_int(x, y))

int32_t ops_pow_prepare(struct cref_node *n, struct genai_error *err)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank;
	int32_t rc = ops_check(n, NULL, 2, 2, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_NUMS, err);
	if (!rc)
		rc = ops_broadcast(n, 0, 2, &rank, dims, err);
	return rc ? rc : ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t ops_pow_run(struct cref_node *n, const struct cref_run *r)
{
	enum ops_class c = ops_class_of(n->in[0]->dtype);
	struct ops_ew e;

	// Integers to an integer power are exact in wrapping arithmetic; to a
	// real power they go through double.
	if (c == OPS_I64 || c == OPS_U64)
		c = ops_is(n->in[1], OPS_FLOATS) ? OPS_F64 : OPS_I64;
	ops_ew_init(&e, n, 2,
		    c == OPS_F32   ? pow_f32
		    : c == OPS_F64 ? pow_f64
				   : pow_i64);
	e.in_class[0] = e.in_class[1] = e.out_class = c;
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}
