// ops_logic.c - comparisons, bool and bit operators, Where, Clip.
#include "modules/cpu_ref/ops.h"

#include <math.h>

// ---- comparisons: bool out ----

static int32_t compare_prepare(struct cref_node *n, uint32_t mask,
			       struct genai_error *err)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank;
	int32_t rc = ops_check(n, NULL, 2, 2, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, mask, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	if (!rc)
		rc = ops_broadcast(n, 0, 2, &rank, dims, err);
	return rc ? rc : ops_out(n, 0, GENAI_DT_BOOL, rank, dims, err);
}

#define COMPARE(op, mask, expr)                                                \
	OPS_KERNEL2(op##_f32, float, uint64_t, expr)                           \
	OPS_KERNEL2(op##_f64, double, uint64_t, expr)                          \
	OPS_KERNEL2(op##_i64, int64_t, uint64_t, expr)                         \
	OPS_KERNEL2(op##_u64, uint64_t, uint64_t, expr)                        \
	static const struct ops_kernels op##_kernels = {op##_f32, op##_f64,    \
							op##_i64, op##_u64};   \
	int32_t ops_##op##_prepare(struct cref_node *n,                        \
				   struct genai_error *err)                    \
	{                                                                      \
		return compare_prepare(n, mask, err);                          \
	}                                                                      \
	int32_t ops_##op##_run(struct cref_node *n, const struct cref_run *r)  \
	{                                                                      \
		return ops_same_run(n, r, &op##_kernels);                      \
	}

COMPARE(equal, OPS_BYTES, x == y)
COMPARE(greater, OPS_NUMS, x > y)
COMPARE(less, OPS_NUMS, x < y)
COMPARE(greater_equal, OPS_NUMS, x >= y)
COMPARE(less_equal, OPS_NUMS, x <= y)
COMPARE(and, OPS_BOOL, x &&y)
COMPARE(or, OPS_BOOL, x || y)
COMPARE(xor, OPS_BOOL, !x != !y)

OPS_KERNEL1(not_u64, uint64_t, uint64_t, !x)
static const struct ops_kernels not_kernels = {NULL, NULL, NULL, not_u64};

int32_t ops_not_prepare(struct cref_node *n, struct genai_error *err)
{
	return ops_same_prepare(n, NULL, 1, 1, OPS_BOOL, err);
}

int32_t ops_not_run(struct cref_node *n, const struct cref_run *r)
{
	return ops_same_run(n, r, &not_kernels);
}

// ---- bits ----

#define BITWISE(op, expr)                                                      \
	OPS_KERNEL2(op##_i64, int64_t, int64_t, expr)                          \
	OPS_KERNEL2(op##_u64, uint64_t, uint64_t, expr)                        \
	static const struct ops_kernels op##_kernels = {NULL, NULL, op##_i64,  \
							op##_u64};             \
	int32_t ops_##op##_prepare(struct cref_node *n,                        \
				   struct genai_error *err)                    \
	{                                                                      \
		return ops_same_prepare(n, NULL, 2, 2, OPS_INTS, err);         \
	}                                                                      \
	int32_t ops_##op##_run(struct cref_node *n, const struct cref_run *r)  \
	{                                                                      \
		return ops_same_run(n, r, &op##_kernels);                      \
	}

BITWISE(bitand, x &y)
BITWISE(bitor, x | y)
BITWISE(bitxor, x ^ y)

// A count outside [0, width) moves all bits out: 0 is left, or -1 of a negative
// number going right.
OPS_KERNEL2(shl_u64, uint64_t, uint64_t, y < 64 ? x << y : 0)
OPS_KERNEL2(shr_u64, uint64_t, uint64_t, y < 64 ? x >> y : 0)
OPS_KERNEL2(shl_i64, int64_t, int64_t,
	    y >= 0 && y < 64 ? (int64_t)((uint64_t)x << y) : 0)
OPS_KERNEL2(shr_i64, int64_t, int64_t, x >> (y >= 0 && y < 64 ? y : 63))
static const struct ops_kernels shl_kernels = {NULL, NULL, shl_i64, shl_u64};
static const struct ops_kernels shr_kernels = {NULL, NULL, shr_i64, shr_u64};

int32_t ops_bitshift_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"direction", NULL};
	int32_t rc = ops_same_prepare(n, attrs, 2, 2, OPS_INTS, err);
	const char *d;

	if (rc)
		return rc;
	d = exec_attr_string(n->node, "direction", "");
	if (strcmp(d, "LEFT") && strcmp(d, "RIGHT"))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "direction is '%.40s', must be LEFT or "
				      "RIGHT",
				      d);
	return GENAI_OK;
}

int32_t ops_bitshift_run(struct cref_node *n, const struct cref_run *r)
{
	const char *d = exec_attr_string(n->node, "direction", "");

	return ops_same_run(n, r, d[0] == 'L' ? &shl_kernels : &shr_kernels);
}

// ---- NaN and infinity ----

static int32_t class_prepare(struct cref_node *n, const char *const *attrs,
			     struct genai_error *err)
{
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_FLOATS, err);
	return rc ? rc
		  : ops_out(n, 0, GENAI_DT_BOOL, n->in[0]->rank, n->in[0]->dims,
			    err);
}

OPS_KERNEL1(isnan_f32, float, uint64_t, x != x)
OPS_KERNEL1(isnan_f64, double, uint64_t, x != x)
static const struct ops_kernels isnan_kernels = {isnan_f32, isnan_f64, NULL,
						 NULL};

int32_t ops_isnan_prepare(struct cref_node *n, struct genai_error *err)
{
	return class_prepare(n, NULL, err);
}

int32_t ops_isnan_run(struct cref_node *n, const struct cref_run *r)
{
	return ops_same_run(n, r, &isnan_kernels);
}

OPS_KERNEL1(isinf_f32, float, uint64_t,
	    (x == -INFINITY && e->param[0].i) ||
		    (x == INFINITY && e->param[1].i))
OPS_KERNEL1(isinf_f64, double, uint64_t,
	    (x == -(double)INFINITY && e->param[0].i) ||
		    (x == (double)INFINITY && e->param[1].i))

int32_t ops_isinf_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"detect_negative",
					    "detect_positive", NULL};

	return class_prepare(n, attrs, err);
}

int32_t ops_isinf_run(struct cref_node *n, const struct cref_run *r)
{
	struct ops_ew e;

	ops_ew_init(&e, n, 1,
		    ops_class_of(n->in[0]->dtype) == OPS_F32 ? isinf_f32
							     : isinf_f64);
	e.param[0].i = exec_attr_int(n->node, "detect_negative", 1);
	e.param[1].i = exec_attr_int(n->node, "detect_positive", 1);
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}

// ---- Where: elements are moved as integers of their size ----

static uint32_t carrier(uint32_t dtype)
{
	switch (exec_bits(dtype)) {
	case 8:
		return GENAI_DT_U8;
	case 16:
		return GENAI_DT_U16;
	case 32:
		return GENAI_DT_U32;
	default:
		return GENAI_DT_U64;
	}
}

static void where_kernel(struct ops_ew *e, const void *const *in, void *out,
			 uint32_t count)
{
	const uint64_t *c = in[0], *a = in[1], *b = in[2];
	uint64_t *o = out;

	(void)e;
	for (uint32_t i = 0; i < count; i++) {
		o[i] = c[i] ? a[i] : b[i];
	}
}

int32_t ops_where_prepare(struct cref_node *n, struct genai_error *err)
{
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank;
	int32_t rc = ops_check(n, NULL, 3, 3, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BOOL, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 1, 2, err);
	if (!rc)
		rc = ops_broadcast(n, 0, 3, &rank, dims, err);
	return rc ? rc : ops_out(n, 0, n->in[1]->dtype, rank, dims, err);
}

int32_t ops_where_run(struct cref_node *n, const struct cref_run *r)
{
	struct ops_ew e;

	ops_ew_init(&e, n, 3, where_kernel);
	e.in_dtype[1] = e.in_dtype[2] = e.out_dtype = carrier(n->in[1]->dtype);
	e.in_class[1] = e.in_class[2] = e.out_class = OPS_U64;
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}

// ---- Clip: bounds are inputs, attributes before opset 11 ----

#define CLIP(name, T, F)                                                       \
	static void name(struct ops_ew *e, const void *const *in, void *out,   \
			 uint32_t count)                                       \
	{                                                                      \
		const T *a = in[0], lo = e->param[0].F, hi = e->param[1].F;    \
		T *o = out;                                                    \
                                                                               \
		for (uint32_t i = 0; i < count; i++) {                         \
			T x = a[i] < lo ? lo : a[i];                           \
                                                                               \
			o[i] = x > hi ? hi : x;                                \
		}                                                              \
	}
CLIP(clip_f32, float, f)
CLIP(clip_f64, double, d)
CLIP(clip_i64, int64_t, i)
CLIP(clip_u64, uint64_t, u)
static const struct ops_kernels clip_kernels = {clip_f32, clip_f64, clip_i64,
						clip_u64};

int32_t ops_clip_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"min", "max", NULL};
	bool old = n->node->opset < 11;
	int32_t rc = ops_check(n, old ? attrs : NULL, 1, old ? 1 : 3, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	for (uint32_t i = 1; !rc && i < n->n_in; i++) {
		if (!n->in[i])
			continue;
		rc = ops_need_same_dtype(n, 0, i, err);
		if (!rc && exec_count(n->in[i]) != 1)
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "input %u of shape %s must be one "
					    "number",
					    i, EXEC_SHAPE(n->in[i]));
	}
	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank,
			    n->in[0]->dims, err);
}

int32_t ops_clip_run(struct cref_node *n, const struct cref_run *r)
{
	enum ops_class c = ops_class_of(n->in[0]->dtype);
	struct ops_ew e;

	ops_ew_init(&e, n, 1, ops_kernel(&clip_kernels, c));
	if (c == OPS_F32) {
		e.param[0].f =
			(float)exec_attr_float(n->node, "min", -INFINITY);
		e.param[1].f = (float)exec_attr_float(n->node, "max", INFINITY);
	} else if (c == OPS_F64) {
		e.param[0].d = exec_attr_float(n->node, "min", -INFINITY);
		e.param[1].d = exec_attr_float(n->node, "max", INFINITY);
	} else if (c == OPS_I64) {
		e.param[0].i = INT64_MIN;
		e.param[1].i = INT64_MAX;
	} else {
		e.param[0].u = 0;
		e.param[1].u = UINT64_MAX;
	}
	for (uint32_t i = 1; i < n->n_in; i++)
		if (n->in[i])
			ops_load(c, &e.param[i - 1], n->in[i]->dtype,
				 n->in[i]->data, 0, 1, 1);
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}
