// ops_line.c - operators along one axis that keep the shape: Softmax,
// LogSoftmax, CumSum, CumProd, LpNormalization.
#include "modules/cpu_ref/ops.h"

#include <math.h>

struct lines {
	const struct cref_node *n;
	const struct exec_tensor *x;
	struct exec_tensor *y;
	int64_t len, stride;
	enum ops_class c;
	bool log, exclusive, reverse, prod;
	int64_t p;
};

struct line_state {
	uint32_t first, end; // the axes of a line
};
EXEC_STATE(line_state, cref_node)

static void set_line(struct cref_node *n, uint32_t first, uint32_t end)
{
	*line_state(n) = (struct line_state){first, end};
}

static void lines_init(struct lines *q, const struct cref_node *n)
{
	const struct line_state *s = line_state(n);

	memset(q, 0, sizeof(*q));
	q->n = n;
	q->x = n->in[0];
	q->y = n->out[0];
	q->len = (int64_t)ops_span(q->x, s->first, s->end);
	q->stride = (int64_t)ops_span(q->x, s->end, q->x->rank);
	q->c = ops_class_of(q->x->dtype);
}

static void lines_run(struct lines *q, const struct cref_run *r,
		      cref_part_fn fn)
{
	uint64_t total = exec_count(q->x);

	if (total)
		ops_rows(r->pool, fn, q, total / (uint64_t)q->len,
			 (uint64_t)q->len);
}

static int64_t line_first(const struct lines *q, uint64_t k)
{
	return (int64_t)(k / (uint64_t)q->stride) * q->stride * q->len +
	       (int64_t)(k % (uint64_t)q->stride);
}

static uint32_t piece(int64_t left)
{
	return left < OPS_CHUNK ? (uint32_t)left : OPS_CHUNK;
}

// ---- Softmax ----

int32_t ops_softmax_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	bool old = n->node->opset < 13; // then all later axes belong to a line
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);
	uint32_t axis = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_FLOATS, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", old ? 1 : -1),
			      n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	set_line(n, axis, old ? n->in[0]->rank : axis + 1);
	return ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank, n->in[0]->dims,
		       err);
}

static void load_f32(const struct lines *q, const struct exec_tensor *t,
		     float *buf, int64_t first, int64_t i, uint32_t n)
{
	ops_load(OPS_F32, buf, t->dtype, t->data, first + i * q->stride,
		 q->stride, n);
}

static void store_f32(const struct lines *q, const float *buf, int64_t first,
		      int64_t i, uint32_t n)
{
	ops_store(OPS_F32, buf, q->y->dtype, q->y->data, first + i * q->stride,
		  q->stride, n);
}

static float line_max(const struct lines *q, int64_t first, float *buf)
{
	float lanes[16], max = -INFINITY;

	for (int j = 0; j < 16; j++)
		lanes[j] = -INFINITY;
	for (int64_t i = 0; i < q->len; i += OPS_CHUNK) {
		uint32_t n = piece(q->len - i), k = 0;

		load_f32(q, q->x, buf, first, i, n);
		for (; k + 16 <= n; k += 16)
			for (int j = 0; j < 16; j++)
				lanes[j] = buf[k + j] > lanes[j] ? buf[k + j]
								 : lanes[j];
		for (; k < n; k++)
			max = buf[k] > max ? buf[k] : max;
	}
	for (int j = 0; j < 16; j++)
		max = lanes[j] > max ? lanes[j] : max;
	return max;
}

static void round_to(uint32_t dtype, float *buf, uint32_t n)
{
	for (uint32_t k = 0; dtype != GENAI_DT_F32 && k < n; k++)
		buf[k] = ops_rounded(dtype, buf[k]);
}

// exp(x - max) of piece i, into buf; each intermediate has the type of the
// result, as in the function body.
static void line_exp(const struct lines *q, float max, float *buf,
		     int64_t first, int64_t i, uint32_t n)
{
	const uint32_t t = q->y->dtype;

	load_f32(q, q->x, buf, first, i, n);
	for (uint32_t k = 0; k < n; k++)
		buf[k] -= max;
	round_to(t, buf, n);
	cref_vec_exp(buf, buf, n);
	round_to(t, buf, n);
}

static void softmax_f32(const struct lines *q, int64_t first)
{
	float buf[OPS_CHUNK], max = line_max(q, first, buf);
	bool keep = q->y->dtype == GENAI_DT_F32 && !q->log;
	double sum = 0;
	float s;

	for (int64_t i = 0; i < q->len; i += OPS_CHUNK) {
		uint32_t n = piece(q->len - i);

		line_exp(q, max, buf, first, i, n);
		sum += n == q->len ? (double)ops_narrow_sum(q->y->dtype, buf, n)
				   : (double)cref_vec_sum(buf, n);
		if (keep)
			store_f32(q, buf, first, i, n);
	}
	s = ops_rounded(q->y->dtype, q->log ? (float)log(sum) : (float)sum);
	for (int64_t i = 0; i < q->len; i += OPS_CHUNK) {
		uint32_t n = piece(q->len - i);

		if (keep)
			load_f32(q, q->y, buf, first, i, n);
		else if (q->log)
			load_f32(q, q->x, buf, first, i, n);
		else
			line_exp(q, max, buf, first, i, n);
		for (uint32_t k = 0; k < n; k++)
			buf[k] = q->log ? (buf[k] - max) - s : buf[k] / s;
		store_f32(q, buf, first, i, n);
	}
}

static double get_f64(const struct exec_tensor *t, int64_t at)
{
	double v;

	ops_load(OPS_F64, &v, t->dtype, t->data, at, 1, 1);
	return v;
}

static void put_f64(struct exec_tensor *t, int64_t at, double v)
{
	ops_store(OPS_F64, &v, t->dtype, t->data, at, 1, 1);
}

static void softmax_f64(const struct lines *q, int64_t first)
{
	double max = -(double)INFINITY, sum = 0;

	for (int64_t i = 0; i < q->len; i++) {
		double v = get_f64(q->x, first + i * q->stride);

		max = v > max ? v : max;
	}
	for (int64_t i = 0; i < q->len; i++)
		sum += exp(get_f64(q->x, first + i * q->stride) - max);
	for (int64_t i = 0; i < q->len; i++) {
		int64_t at = first + i * q->stride;
		double v = get_f64(q->x, at) - max;

		put_f64(q->y, at, q->log ? v - log(sum) : exp(v) / sum);
	}
}

static void softmax_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct lines *q = ctx;

	for (uint64_t k = begin; k < end; k++)
		if (q->c == OPS_F32)
			softmax_f32(q, line_first(q, k));
		else
			softmax_f64(q, line_first(q, k));
}

int32_t ops_softmax_run(struct cref_node *n, const struct cref_run *r)
{
	struct lines q;

	lines_init(&q, n);
	q.log = n->op->code == OPS_LOG;
	lines_run(&q, r, softmax_part);
	return GENAI_OK;
}

// ---- CumSum, CumProd ----

int32_t ops_cumulate_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"exclusive", "reverse", NULL};
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);
	uint32_t count = 0, axis = 0;
	int64_t v = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	if (!rc)
		rc = ops_ints(n, 1, &v, 1, &count, err);
	if (!rc && !count)
		rc = cref_node_fail(n, err, GENAI_E_INVAL, "axis is missing");
	if (!rc)
		rc = ops_axis(n, v, n->in[0]->rank, &axis, err);
	set_line(n, axis, axis + 1);
	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank,
			    n->in[0]->dims, err);
}

union sum {
	double d;
	uint64_t u;
};

static union sum join(const struct lines *q, union sum a, union sum b)
{
	if (q->c == OPS_F64)
		a.d = q->prod ? a.d * b.d : a.d + b.d;
	else
		a.u = q->prod ? a.u * b.u : a.u + b.u;
	return a;
}

static void cumulate_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct lines *q = ctx;

	for (uint64_t k = begin; k < end; k++) {
		int64_t first = line_first(q, k);
		union sum acc = {.u = 0};

		if (q->prod && q->c == OPS_F64)
			acc.d = 1;
		else if (q->prod)
			acc.u = 1;
		for (int64_t j = 0; j < q->len; j++) {
			int64_t i = q->reverse ? q->len - 1 - j : j;
			int64_t at = first + i * q->stride;
			union sum v, next;

			ops_load(q->c, &v, q->x->dtype, q->x->data, at, 1, 1);
			next = join(q, acc, v);
			ops_store(q->c, q->exclusive ? &acc : &next,
				  q->y->dtype, q->y->data, at, 1, 1);
			acc = next;
		}
	}
}

int32_t ops_cumulate_run(struct cref_node *n, const struct cref_run *r)
{
	struct lines q;

	lines_init(&q, n);
	if (q.c == OPS_F32)
		q.c = OPS_F64; // running sums of floats in double
	q.exclusive = exec_attr_int(n->node, "exclusive", 0) != 0;
	q.reverse = exec_attr_int(n->node, "reverse", 0) != 0;
	q.prod = n->op->code == OPS_PROD;
	lines_run(&q, r, cumulate_part);
	return GENAI_OK;
}

// ---- LpNormalization ----

int32_t ops_lpnorm_prepare(struct cref_node *n, struct genai_error *err)
{
	int64_t p = exec_attr_int(n->node, "p", 2);
	int32_t rc = ops_check(n, exec_lp_norm_attrs, 1, 1, 1, err);
	uint32_t axis = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_FLOATS, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", -1),
			      n->in[0]->rank, &axis, err);
	if (!rc && p != 1 && p != 2)
		rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				    "p is %lld, carried: 1, 2", (long long)p);
	set_line(n, axis, axis + 1);
	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank,
			    n->in[0]->dims, err);
}

static void lpnorm_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct lines *q = ctx;

	for (uint64_t k = begin; k < end; k++) {
		int64_t first = line_first(q, k);
		double norm = 0;

		for (int64_t i = 0; i < q->len; i++) {
			double v = get_f64(q->x, first + i * q->stride);

			norm += q->p == 1 ? fabs(v) : v * v;
		}
		norm = q->p == 1 ? norm : sqrt(norm);
		for (int64_t i = 0; i < q->len; i++) {
			int64_t at = first + i * q->stride;

			put_f64(q->y, at,
				norm == 0 ? 0 : get_f64(q->x, at) / norm);
		}
	}
}

int32_t ops_lpnorm_run(struct cref_node *n, const struct cref_run *r)
{
	struct lines q;

	lines_init(&q, n);
	q.p = exec_attr_int(n->node, "p", 2);
	lines_run(&q, r, lpnorm_part);
	return GENAI_OK;
}
