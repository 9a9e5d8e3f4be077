// ops_quant.c - Cast, CastLike, DequantizeLinear, QuantizeLinear.
#include "modules/cpu_ref/ops.h"

#include <math.h>

// ---- Cast: floats to integers cut towards zero and saturate (NaN is 0),
// integers to integers keep the low bits, to bool is "not zero" ----

static void copy_32(struct ops_ew *e, const void *const *in, void *out,
		    uint32_t n)
{
	(void)e;
	memmove(out, in[0], n * 4ul);
}

static void copy_64(struct ops_ew *e, const void *const *in, void *out,
		    uint32_t n)
{
	(void)e;
	memmove(out, in[0], n * 8ul);
}

// To 8 bits: what is too large, and how powers of two are rounded.
static void copy_f8(struct ops_ew *e, const void *const *in, void *out,
		    uint32_t n)
{
	const double *d = in[0];

	if (e->in_class[0] == OPS_F32)
		memmove(out, in[0], n * 4ul);
	for (uint32_t i = 0; e->in_class[0] == OPS_F64 && i < n; i++)
		((float *)out)[i] = ops_odd_float(d[i]);
	ops_saturate(e->out_dtype, e->param[0].i, out, n);
	if (e->out_dtype == GENAI_DT_F8E8M0 && e->param[1].i)
		ops_round_power(e->param[1].i > 1 ? OPS_DOWN : OPS_NEAREST, out,
				n);
}

// 0 up, 1 nearest, 2 down; of E8M0 alone.
static int round_mode(const struct cref_node *n)
{
	static const char *const names[] = {"up", "nearest", "down"};
	const char *s = exec_attr_string(n->node, "round_mode", "up");

	for (int i = 0; i < 3; i++)
		if (!strcmp(s, names[i]))
			return i;
	return -1;
}

static int32_t cast_mode_fail(struct cref_node *n, struct genai_error *err)
{
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "round_mode '%.40s' is not up, down or nearest",
			      exec_attr_string(n->node, "round_mode", ""));
}

static int32_t cast_out(struct cref_node *n, int64_t to,
			struct genai_error *err)
{
	if (to < 0 || to > 31 || !(OPS_ANY & OPS_BIT(to)))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "cast to type %lld (%s)", (long long)to,
				      to < 0 ? "?"
					     : exec_dtype_name((uint32_t)to));
	if (round_mode(n) < 0)
		return cast_mode_fail(n, err);
	return ops_out(n, 0, (uint32_t)to, n->in[0]->rank, n->in[0]->dims, err);
}

int32_t ops_cast_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"to", "saturate", "round_mode",
					    NULL};
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);

	return rc ? rc : cast_out(n, exec_attr_int(n->node, "to", 0), err);
}

int32_t ops_cast_like_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"saturate", "round_mode", NULL};
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);

	return rc ? rc : cast_out(n, n->in[1]->dtype, err);
}

int32_t ops_cast_run(struct cref_node *n, const struct cref_run *r)
{
	struct ops_ew e;

	if (n->in[0]->dtype == n->out[0]->dtype)
		return ops_alias_run(n, r);
	ops_ew_init(&e, n, 1, copy_64);
	if (e.in_class[0] == OPS_F32)
		e.fn = copy_32;
	e.out_class = e.in_class[0];
	if (ops_is_f8(n->out[0]->dtype)) {
		e.fn = copy_f8;
		if (e.in_class[0] != OPS_F32)
			e.in_class[0] = OPS_F64;
		e.out_class = OPS_F32;
		e.param[0].i = exec_attr_int(n->node, "saturate", 1);
		e.param[1].i = round_mode(n);
	}
	ops_ew_run(&e, r->pool);
	return GENAI_OK;
}

// ---- quantisation: which scale belongs to an element ----

enum quant_kind { PER_TENSOR, PER_AXIS, BLOCKED };

// Element (outer, a, i) of x [outer, dim, inner] has scale
// (outer, a / block, i) of [outer, blocks, inner]; or a, or 0.
struct quant {
	const struct exec_tensor *x, *scale, *zero;
	struct exec_tensor *y;
	int64_t dim, inner, block, blocks;
	enum quant_kind kind;
	bool saturate;
};

// A run of at most n elements from element at, over which the scale moves by
// *out_step elements each.
static uint32_t quant_run(const struct quant *q, int64_t at, uint32_t n,
			  int64_t *out_first, int64_t *out_step)
{
	int64_t i = at % q->inner, a = at / q->inner % q->dim;
	int64_t outer = at / q->inner / q->dim, left;

	*out_step = 0;
	if (q->kind == PER_TENSOR) {
		*out_first = 0;
		return n;
	}
	if (q->inner == 1) { // along the axis itself
		left = q->dim - a;
		*out_first = a;
		*out_step = 1;
		if (q->kind == BLOCKED) {
			left = q->block - a % q->block < left
				       ? q->block - a % q->block
				       : left;
			*out_first = outer * q->blocks + a / q->block;
			*out_step = 0;
		}
	} else {
		left = q->inner - i;
		*out_first = a;
		if (q->kind == BLOCKED) {
			*out_first =
				(outer * q->blocks + a / q->block) * q->inner +
				i;
			*out_step = 1;
		}
	}
	return left < n ? (uint32_t)left : n;
}

struct quant_state {
	enum quant_kind kind;
	uint32_t axis;
};
EXEC_STATE(quant_state, cref_node)

static int32_t check_scale(struct cref_node *n, struct genai_error *err)
{
	struct quant_state *q = quant_state(n);
	const struct exec_tensor *x = n->in[0], *s = n->in[1];
	int64_t block = exec_attr_int(n->node, "block_size", 0), blocks;
	int64_t axis = exec_attr_int(n->node, "axis", 1);
	uint32_t a = 0;
	bool fits;
	int32_t rc;

	q->kind = PER_TENSOR;
	if (!block && exec_count(s) == 1 && s->rank <= 1)
		return GENAI_OK;
	rc = ops_axis(n, axis, x->rank, &a, err);
	if (rc)
		return rc;
	q->axis = a;
	if (block) {
		q->kind = BLOCKED;
		fits = block > 0 && s->rank == x->rank;
		blocks = block > 0 ? x->dims[a] / block +
					     (x->dims[a] % block != 0)
				   : 0;
		for (uint32_t d = 0; fits && d < x->rank; d++)
			fits = s->dims[d] == (d == a ? blocks : x->dims[d]);
	} else {
		q->kind = PER_AXIS;
		fits = s->rank == 1 && s->dims[0] == x->dims[a];
	}
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "scale of shape %s does not fit data of "
				      "shape %s, axis %u, block_size %lld",
				      EXEC_SHAPE(s), EXEC_SHAPE(x), a,
				      (long long)block);
	return GENAI_OK;
}

static int32_t check_zero(struct cref_node *n, struct genai_error *err)
{
	const struct exec_tensor *s = n->in[1];
	const struct exec_tensor *z = n->n_in > 2 ? n->in[2] : NULL;

	if (z && quant_state(n)->kind == PER_TENSOR && exec_count(z) == 1)
		return GENAI_OK;
	if (z && (z->rank != s->rank ||
		  memcmp(z->dims, s->dims, s->rank * sizeof(s->dims[0]))))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "zero points of shape %s and scales of "
				      "shape %s differ",
				      EXEC_SHAPE(z), EXEC_SHAPE(s));
	return GENAI_OK;
}

static void quant_init(struct quant *q, const struct cref_node *n)
{
	const struct exec_tensor *x = n->in[0];
	uint32_t axis = quant_state(n)->axis;

	q->x = x;
	q->scale = n->in[1];
	q->zero = n->n_in > 2 ? n->in[2] : NULL;
	q->y = n->out[0];
	q->kind = quant_state(n)->kind;
	q->saturate = exec_attr_int(n->node, "saturate", 1);
	q->dim = q->inner = q->block = q->blocks = 1;
	if (q->kind == PER_TENSOR)
		return;
	q->dim = x->dims[axis];
	q->inner = (int64_t)ops_span(x, axis + 1, x->rank);
	if (q->kind == BLOCKED) {
		q->block = exec_attr_int(n->node, "block_size", 0);
		q->blocks = q->scale->dims[axis];
	}
}

static const char *const quant_attrs[] = {
	"axis", "block_size", "saturate", "output_dtype", "precision", NULL};
#define QUANTISED                                                              \
	(OPS_BIT(GENAI_DT_U8) | OPS_BIT(GENAI_DT_I8) | OPS_BIT(GENAI_DT_U16) | \
	 OPS_BIT(GENAI_DT_I16) | OPS_F8 | OPS_PACKED)

// Not an integer: no rounding to one, and zero points are 0.
static bool is_real(uint32_t dtype)
{
	return ops_is_f8(dtype) || dtype == GENAI_DT_F4E2M1;
}

int32_t ops_dequant_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, quant_attrs, 2, 3, 1, err);
	int64_t to;

	if (!rc)
		rc = ops_need_dtype(n, 0, QUANTISED | OPS_BIT(GENAI_DT_I32),
				    err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_F32S, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc)
		rc = check_scale(n, err);
	if (!rc)
		rc = check_zero(n, err);
	if (rc)
		return rc;
	to = exec_attr_int(n->node, "output_dtype", 0);
	to = to ? to : n->in[1]->dtype;
	if (to < 0 || to > 31 || !(OPS_F32S & OPS_BIT(to)))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "output_dtype %lld", (long long)to);
	return ops_out(n, 0, (uint32_t)to, n->in[0]->rank, n->in[0]->dims, err);
}

// y = (x - zero) * scale; the difference is exact as an integer.
static void dequant_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct quant *q = ctx;
	int64_t v[OPS_CHUNK], z[OPS_CHUNK];
	float s[OPS_CHUNK], x[OPS_CHUNK], zx[OPS_CHUNK];
	bool real = is_real(q->x->dtype);

	for (int64_t at = (int64_t)begin; at < (int64_t)end;) {
		int64_t left = (int64_t)end - at, first, step;
		uint32_t n = quant_run(
			q, at, left < OPS_CHUNK ? (uint32_t)left : OPS_CHUNK,
			&first, &step);

		ops_load(OPS_F32, s, q->scale->dtype, q->scale->data, first,
			 step, n);
		if (real) {
			ops_load(OPS_F32, x, q->x->dtype, q->x->data, at, 1, n);
			if (q->zero)
				ops_load(OPS_F32, zx, q->zero->dtype,
					 q->zero->data, first, step, n);
		} else {
			ops_load(OPS_I64, v, q->x->dtype, q->x->data, at, 1, n);
			if (q->zero)
				ops_load(OPS_I64, z, q->zero->dtype,
					 q->zero->data, first, step, n);
		}
		for (uint32_t i = 0; i < n; i++)
			s[i] *= real ? (q->zero ? x[i] - zx[i] : x[i])
				     : (float)(q->zero ? v[i] - z[i] : v[i]);
		ops_store(OPS_F32, s, q->y->dtype, q->y->data, at, 1, n);
		at += n;
	}
}

int32_t ops_dequant_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t total = exec_count(n->in[0]);
	struct quant q;

	quant_init(&q, n);
	if (total)
		cref_pool_run(r->pool, dequant_part, &q, total, OPS_GRAIN);
	return GENAI_OK;
}

int32_t ops_quant_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, quant_attrs, 2, 3, 1, err);
	int64_t to = exec_attr_int(n->node, "output_dtype", 0);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_F32S | OPS_BIT(GENAI_DT_I32),
				    err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_F32S, err);
	if (!rc)
		rc = ops_need_dtype(n, 2, QUANTISED, err);
	if (!rc)
		rc = check_scale(n, err);
	if (!rc)
		rc = check_zero(n, err);
	if (rc)
		return rc;
	if (n->n_in > 2 && n->in[2]) {
		if (to && to != n->in[2]->dtype)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "output_dtype %lld, zero points "
					      "are of type %s",
					      (long long)to,
					      exec_dtype_name(n->in[2]->dtype));
		to = n->in[2]->dtype;
	}
	to = to ? to : GENAI_DT_U8;
	if (to < 0 || to > 31 || !(QUANTISED & OPS_BIT(to)))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "output_dtype %lld", (long long)to);
	return ops_out(n, 0, (uint32_t)to, n->in[0]->rank, n->in[0]->dims, err);
}

static void limits(uint32_t dtype, double *lo, double *hi)
{
	uint32_t bits = exec_bits(dtype);

	*lo = ops_class_of(dtype) == OPS_I64 ? -(double)(1 << (bits - 1)) : 0;
	*hi = *lo + (double)((1 << bits) - 1);
}

// y = saturate(round(x / scale) + zero), ties to even.  The sum is made in
// double, where it is exact up to 2^53.
static void quant_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct quant *q = ctx;
	float x[OPS_CHUNK], s[OPS_CHUNK];
	double v[OPS_CHUNK], z[OPS_CHUNK], lo = 0, hi = 0;
	bool real = is_real(q->y->dtype);

	if (!real)
		limits(q->y->dtype, &lo, &hi);
	for (int64_t at = (int64_t)begin; at < (int64_t)end;) {
		int64_t left = (int64_t)end - at, first, step;
		uint32_t n = quant_run(
			q, at, left < OPS_CHUNK ? (uint32_t)left : OPS_CHUNK,
			&first, &step);

		ops_load(OPS_F32, x, q->x->dtype, q->x->data, at, 1, n);
		ops_load(OPS_F32, s, q->scale->dtype, q->scale->data, first,
			 step, n);
		if (q->zero)
			ops_load(OPS_F64, z, q->zero->dtype, q->zero->data,
				 first, step, n);
		if (real) {
			for (uint32_t i = 0; i < n; i++) {
				x[i] /= s[i];
				if (q->zero)
					x[i] += (float)z[i];
			}
			ops_saturate(q->y->dtype, q->saturate, x, n);
			ops_store(OPS_F32, x, q->y->dtype, q->y->data, at, 1,
				  n);
			at += n;
			continue;
		}
		for (uint32_t i = 0; i < n; i++) {
			v[i] = (double)rintf(x[i] / s[i]) +
			       (q->zero ? z[i] : 0);
			v[i] = v[i] < lo ? lo : v[i] > hi ? hi : v[i];
		}
		ops_store(OPS_F64, v, q->y->dtype, q->y->data, at, 1, n);
		at += n;
	}
}

int32_t ops_quant_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t total = exec_count(n->in[0]);
	struct quant q;

	quant_init(&q, n);
	if (total)
		cref_pool_run(r->pool, quant_part, &q, total, OPS_GRAIN);
	return GENAI_OK;
}
