// ops_reduce.c - reductions over any set of axes.  The elements of one output
// are read in row-major order of the reduced axes, a run of the innermost one
// at a time; runs add up in double (float sums of a run have 16 lanes and a
// fixed tree).  So a sum depends on shape and axes alone.
#include "modules/cpu_ref/ops.h"

#include <math.h>

union acc {
	double d;
	int64_t i;
	uint64_t u;
};

struct reduce {
	const struct exec_tensor *x;
	struct exec_tensor *y;
	enum ops_code kind;
	enum ops_class c;
	uint64_t count; // elements of one output
	uint32_t n_kept, n_red;
	int64_t kept[GENAI_MAX_RANK], kept_strides[GENAI_MAX_RANK];
	int64_t red[GENAI_MAX_RANK], red_strides[GENAI_MAX_RANK];
};

struct reduce_state {
	uint32_t axes; // a mask
};
EXEC_STATE(reduce_state, cref_node)

// The types that a kind takes.
static uint32_t dtypes(enum ops_code kind)
{
	switch (kind) {
	case OPS_R_LOG_SUM:
	case OPS_R_LOG_SUM_EXP:
		return OPS_FLOATS;
	case OPS_R_MAX:
	case OPS_R_MIN:
		return OPS_NUMS | OPS_BOOL;
	default:
		return OPS_NUMS;
	}
}

int32_t ops_reduce_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_reduce_attrs, 1, 2, 1, err);
	bool keep = exec_attr_int(n->node, "keepdims", 1) != 0, given = false;
	int64_t dims[GENAI_MAX_RANK];
	uint32_t mask = 0, rank = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, dtypes(n->op->code), err);
	if (!rc)
		rc = ops_axes(n, 1, n->in[0]->rank, &mask, &given, err);
	if (rc)
		return rc;
	if (!mask && !exec_attr_int(n->node, "noop_with_empty_axes", 0))
		mask = (1u << n->in[0]->rank) - 1;
	for (uint32_t d = 0; d < n->in[0]->rank; d++)
		if (!((mask >> d) & 1))
			dims[rank++] = n->in[0]->dims[d];
		else if (keep)
			dims[rank++] = 1;
	reduce_state(n)->axes = mask;
	return ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

// Dims into the kept or the reduced list, merged where they run through.
static void reduce_dim(uint32_t *n, int64_t *dims, int64_t *strides,
		       int64_t dim, int64_t stride)
{
	if (dim == 1)
		return;
	if (*n && strides[*n - 1] == stride * dim) {
		dims[*n - 1] *= dim;
		strides[*n - 1] = stride;
		return;
	}
	dims[*n] = dim;
	strides[(*n)++] = stride;
}

static union acc reduce_start(const struct reduce *q)
{
	uint32_t bits = exec_bits(q->x->dtype);
	bool real = q->c == OPS_F32 || q->c == OPS_F64;
	union acc a = {.u = 0};

	if (q->kind == OPS_R_PROD && real)
		a.d = 1;
	else if (q->kind == OPS_R_PROD)
		a.u = 1;
	else if (q->kind == OPS_R_MAX && real)
		a.d = -(double)INFINITY;
	else if (q->kind == OPS_R_MAX && q->c == OPS_I64)
		a.i = (int64_t)(UINT64_MAX << (bits - 1));
	else if (q->kind == OPS_R_MIN && real)
		a.d = (double)INFINITY;
	else if (q->kind == OPS_R_MIN && q->c == OPS_I64)
		a.i = (int64_t) ~(UINT64_MAX << (bits - 1));
	else if (q->kind == OPS_R_MIN)
		a.u = UINT64_MAX;
	else if (real)
		a.d = 0;
	return a;
}

// NaN wins over everything.
static double pick(enum ops_code kind, double a, double b)
{
	if (a != a || b != b)
		return a != a ? a : b;
	return (kind == OPS_R_MAX) == (b > a) ? b : a;
}

static void fold_f32(const struct reduce *q, double *a, float *v, uint32_t n,
		     double max)
{
	switch (q->kind) {
	case OPS_R_PROD:
		for (uint32_t i = 0; i < n; i++)
			*a *= (double)v[i];
		return;
	case OPS_R_MAX:
	case OPS_R_MIN:
		for (uint32_t i = 0; i < n; i++)
			*a = pick(q->kind, *a, (double)v[i]);
		return;
	case OPS_R_L2:
	case OPS_R_SUM_SQUARE:
		*a += (double)cref_vec_dot(v, v, n);
		return;
	case OPS_R_L1:
		for (uint32_t i = 0; i < n; i++)
			v[i] = fabsf(v[i]);
		break;
	case OPS_R_LOG_SUM_EXP:
		for (uint32_t i = 0; i < n; i++)
			v[i] -= (float)max;
		cref_vec_exp(v, v, n);
		break;
	default:
		break;
	}
	*a += (double)cref_vec_sum(v, n);
}

static void fold_f64(const struct reduce *q, double *a, const double *v,
		     uint32_t n, double max)
{
	for (uint32_t i = 0; i < n; i++) {
		double x = v[i];

		if (q->kind == OPS_R_PROD)
			*a *= x;
		else if (q->kind == OPS_R_MAX || q->kind == OPS_R_MIN)
			*a = pick(q->kind, *a, x);
		else if (q->kind == OPS_R_L2 || q->kind == OPS_R_SUM_SQUARE)
			*a += x * x;
		else if (q->kind == OPS_R_L1)
			*a += fabs(x);
		else
			*a += q->kind == OPS_R_LOG_SUM_EXP ? exp(x - max) : x;
	}
}

static void fold_int(const struct reduce *q, union acc *a, const uint64_t *v,
		     uint32_t n)
{
	bool sign = q->c == OPS_I64;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t x = v[i];
		bool less = sign ? (int64_t)x < a->i : x < a->u;

		switch (q->kind) {
		case OPS_R_PROD:
			a->u *= x;
			break;
		case OPS_R_MAX:
			a->u = less ? a->u : x;
			break;
		case OPS_R_MIN:
			a->u = less ? x : a->u;
			break;
		case OPS_R_L2:
		case OPS_R_SUM_SQUARE:
			a->u += x * x;
			break;
		case OPS_R_L1:
			a->u += sign && (int64_t)x < 0 ? 0 - x : x;
			break;
		default:
			a->u += x;
			break;
		}
	}
}

// All elements that reduce to one, starting at element base.
static void reduce_all(const struct reduce *q, union acc *a, int64_t base,
		       double max)
{
	int64_t at[GENAI_MAX_RANK] = {0};
	uint32_t last = q->n_red - 1;
	union ops_buf buf;

	for (uint64_t done = 0; done < q->count;) {
		int64_t left = q->red[last] - at[last];
		uint32_t n = left < OPS_CHUNK ? (uint32_t)left : OPS_CHUNK;
		uint32_t d = last;

		ops_load(q->c, &buf, q->x->dtype, q->x->data, base,
			 q->red_strides[last], n);
		if (q->c == OPS_F32)
			fold_f32(q, &a->d, buf.f, n, max);
		else if (q->c == OPS_F64)
			fold_f64(q, &a->d, buf.d, n, max);
		else
			fold_int(q, a, buf.u, n);
		done += n;
		at[d] += n;
		base += n * q->red_strides[d];
		while (d > 0 && at[d] == q->red[d]) {
			base += q->red_strides[d - 1] -
				q->red[d] * q->red_strides[d];
			at[d] = 0;
			at[--d]++;
		}
	}
}

static void reduce_store(const struct reduce *q, union acc a, double max,
			 int64_t at)
{
	double count = (double)q->count;
	float f;

	if (q->c == OPS_I64 || q->c == OPS_U64) {
		if (q->kind == OPS_R_MEAN && q->count && q->c == OPS_I64)
			a.i /= (int64_t)q->count;
		else if (q->kind == OPS_R_MEAN && q->count)
			a.u /= q->count;
		else if (q->kind == OPS_R_L2)
			a.u = (uint64_t)sqrt((double)a.u);
		ops_store(q->c, &a, q->y->dtype, q->y->data, at, 1, 1);
		return;
	}
	if (q->kind == OPS_R_MEAN)
		a.d /= count;
	else if (q->kind == OPS_R_L2)
		a.d = sqrt(a.d);
	else if (q->kind == OPS_R_LOG_SUM)
		a.d = log(a.d);
	else if (q->kind == OPS_R_LOG_SUM_EXP)
		a.d = log(a.d) + max;
	f = (float)a.d;
	ops_store(q->c, q->c == OPS_F32 ? (void *)&f : (void *)&a, q->y->dtype,
		  q->y->data, at, 1, 1);
}

static void reduce_part(void *ctx, uint64_t begin, uint64_t end)
{
	struct reduce q = *(const struct reduce *)ctx;
	bool exps = q.kind == OPS_R_LOG_SUM_EXP;

	for (uint64_t k = begin; k < end; k++) {
		int64_t rest = (int64_t)k, base = 0;
		double max = 0;
		union acc a;

		for (uint32_t d = q.n_kept; d-- > 0;) {
			base += rest % q.kept[d] * q.kept_strides[d];
			rest /= q.kept[d];
		}
		if (exps) { // the largest first, to keep exp() in range
			q.kind = OPS_R_MAX;
			a = reduce_start(&q);
			reduce_all(&q, &a, base, 0);
			max = isfinite(a.d) ? a.d : 0;
			q.kind = OPS_R_LOG_SUM_EXP;
		}
		a = reduce_start(&q);
		reduce_all(&q, &a, base, max);
		reduce_store(&q, a, max, (int64_t)k);
	}
}

int32_t ops_reduce_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	struct reduce q = {.x = x,
			   .y = n->out[0],
			   .kind = n->op->code,
			   .c = ops_class_of(x->dtype),
			   .count = 1};
	uint64_t outputs = exec_count(n->out[0]);

	for (uint32_t d = 0; d < x->rank; d++) {
		if (EXEC_HAS(reduce_state(n)->axes, d)) {
			q.count *= (uint64_t)x->dims[d];
			reduce_dim(&q.n_red, q.red, q.red_strides, x->dims[d],
				   x->strides[d]);
		} else {
			reduce_dim(&q.n_kept, q.kept, q.kept_strides,
				   x->dims[d], x->strides[d]);
		}
	}
	if (!q.n_red) {
		q.red[0] = 1;
		q.red_strides[0] = 1;
		q.n_red = 1;
	}
	if (outputs)
		ops_rows(r->pool, reduce_part, &q, outputs, q.count);
	return GENAI_OK;
}
