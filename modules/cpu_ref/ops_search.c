// ops_search.c - largest elements, positions, and outputs whose size depends on
// values (those must be known while planning).
#include "modules/cpu_ref/ops.h"

// A line of elements along an axis: element i at first + i * stride.
struct line {
	int64_t first, stride;
};

// Line number k of tensor t along axis.
static struct line line_at(const struct exec_tensor *t, uint32_t axis,
			   uint64_t k)
{
	int64_t inner = (int64_t)ops_span(t, axis + 1, t->rank);

	return (struct line){(int64_t)(k / (uint64_t)inner) * inner *
					     t->dims[axis] +
				     (int64_t)(k % (uint64_t)inner),
			     inner};
}

union number {
	float f;
	double d;
	int64_t i;
	uint64_t u;
};

static union number get(enum ops_class c, const struct exec_tensor *t,
			const void *data, int64_t at)
{
	union number v;

	ops_load(c, &v, t->dtype, data, at, 1, 1);
	return v;
}

// Total order: NaN above everything.
static int order(enum ops_class c, union number a, union number b)
{
	switch (c) {
	case OPS_F32:
		a.d = (double)a.f;
		b.d = (double)b.f;
		// fall through
	case OPS_F64:
		if (a.d != a.d || b.d != b.d)
			return (a.d != a.d) - (b.d != b.d);
		return (a.d > b.d) - (a.d < b.d);
	case OPS_I64:
		return (a.i > b.i) - (a.i < b.i);
	default:
		return (a.u > b.u) - (a.u < b.u);
	}
}

// ---- ArgMax, ArgMin ----

struct arg_state {
	uint32_t axis;
};
EXEC_STATE(arg_state, cref_node)

int32_t ops_arg_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_arg_attrs, 1, 1, 1, err);
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis = 0, rank = 0;
	bool keep = exec_attr_int(n->node, "keepdims", 1) != 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", 0),
			      n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < n->in[0]->rank; d++)
		if (d != axis)
			dims[rank++] = n->in[0]->dims[d];
		else if (keep)
			dims[rank++] = 1;
	if (!n->in[0]->dims[axis] && ops_span(n->in[0], 0, axis) &&
	    ops_span(n->in[0], axis + 1, n->in[0]->rank))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "axis %u of shape %s is empty", axis,
				      EXEC_SHAPE(n->in[0]));
	arg_state(n)->axis = axis;
	return ops_out(n, 0, GENAI_DT_I64, rank, dims, err);
}

static void arg_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;
	const int sign = n->op->code == OPS_MAX ? 1 : -1;
	const struct exec_tensor *x = n->in[0];
	uint32_t axis = arg_state(n)->axis;
	enum ops_class c = ops_class_of(x->dtype);
	bool last = exec_attr_int(n->node, "select_last_index", 0) != 0;

	for (uint64_t k = begin; k < end; k++) {
		struct line l = line_at(x, axis, k);
		union number best = get(c, x, x->data, l.first);
		int64_t at = 0;

		for (int64_t i = 1; i < x->dims[axis]; i++) {
			union number v =
				get(c, x, x->data, l.first + i * l.stride);
			int o = order(c, v, best) * sign;

			if (o > 0 || (o == 0 && last)) {
				best = v;
				at = i;
			}
		}
		memcpy((char *)n->out[0]->data + k * 8, &at, 8);
	}
}

int32_t ops_arg_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t count = exec_count(n->out[0]);

	if (count)
		ops_rows(r->pool, arg_part, n, count,
			 (uint64_t)n->in[0]->dims[arg_state(n)->axis]);
	return GENAI_OK;
}

// ---- TopK: a heap of the k best, the worst on top ----

struct topk_state {
	uint32_t axis;
	int64_t k;
	int sign; // 1: the largest
};
EXEC_STATE(topk_state, cref_node)

int32_t ops_topk_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", "largest", "sorted", "k",
					    NULL};
	bool old = n->node->opset < 10;
	int32_t rc = ops_check(n, attrs, old ? 1 : 2, old ? 1 : 2, 2, err);
	int64_t dims[GENAI_MAX_RANK], k = exec_attr_int(n->node, "k", -1);
	uint32_t axis = 0, count = 1;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", -1),
			      n->in[0]->rank, &axis, err);
	if (!rc && !old)
		rc = ops_ints(n, 1, &k, 1, &count, err);
	if (rc)
		return rc;
	if (!count || k < 0 || k > n->in[0]->dims[axis])
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "k is %lld, axis %u of shape %s",
				      (long long)k, axis, EXEC_SHAPE(n->in[0]));
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	dims[axis] = k;
	*topk_state(n) = (struct topk_state){
		axis, k, exec_attr_int(n->node, "largest", 1) ? 1 : -1};
	n->workspace_bytes = (uint64_t)k * 8;
	rc = ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank, dims, err);
	return rc ? rc : ops_out(n, 1, GENAI_DT_I64, n->in[0]->rank, dims, err);
}

struct heap {
	const struct exec_tensor *x;
	enum ops_class c;
	struct line l;
	int sign;
	int64_t *at; // positions on the line
	int64_t n;
};

// True when position a comes after b in the result: worse, or equal and later.
static bool worse(const struct heap *h, int64_t a, int64_t b)
{
	int o = h->sign *
		order(h->c,
		      get(h->c, h->x, h->x->data, h->l.first + a * h->l.stride),
		      get(h->c, h->x, h->x->data,
			  h->l.first + b * h->l.stride));

	return o < 0 || (o == 0 && a > b);
}

static void sift_down(struct heap *h, int64_t i)
{
	for (;;) {
		int64_t k = 2 * i + 1, v = h->at[i];

		if (k >= h->n)
			return;
		if (k + 1 < h->n && worse(h, h->at[k + 1], h->at[k]))
			k++;
		if (!worse(h, h->at[k], v))
			return;
		h->at[i] = h->at[k];
		h->at[k] = v;
		i = k;
	}
}

// Leave the k best in h->at, best first.
static void select_best(struct heap *h, int64_t dim, int64_t k)
{
	h->n = k;
	for (int64_t i = 0; i < k; i++)
		h->at[i] = i;
	for (int64_t i = k / 2; i-- > 0;)
		sift_down(h, i);
	for (int64_t i = k; i < dim; i++)
		if (worse(h, h->at[0], i)) {
			h->at[0] = i;
			sift_down(h, 0);
		}
	while (h->n > 1) {
		int64_t v = h->at[0];

		h->at[0] = h->at[--h->n];
		h->at[h->n] = v;
		sift_down(h, 0);
	}
}

int32_t ops_topk_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	uint32_t axis = topk_state(n)->axis;
	int64_t k = topk_state(n)->k;
	struct heap h = {.x = x,
			 .c = ops_class_of(x->dtype),
			 .sign = topk_state(n)->sign,
			 .at = r->workspace};
	uint64_t lines, size = exec_bits(x->dtype) / 8;

	if (!k || !exec_count(x))
		return GENAI_OK;
	lines = exec_count(x) / (uint64_t)x->dims[axis];
	for (uint64_t i = 0; i < lines; i++) {
		// Both outputs have the shape of x but for this axis.
		struct line to;

		h.l = line_at(x, axis, i);
		to.stride = h.l.stride;
		to.first = (int64_t)i / to.stride * to.stride * k +
			   (int64_t)i % to.stride;
		select_best(&h, x->dims[axis], k);
		for (int64_t j = 0; j < k; j++) {
			int64_t at = to.first + j * to.stride;
			int64_t from = h.l.first + h.at[j] * h.l.stride;

			if (n->out[0])
				memcpy((char *)n->out[0]->data +
					       (uint64_t)at * size,
				       (const char *)x->data +
					       (uint64_t)from * size,
				       size);
			if (n->n_out > 1 && n->out[1])
				memcpy((char *)n->out[1]->data + at * 8,
				       &h.at[j], 8);
		}
	}
	return GENAI_OK;
}

// ---- OneHot ----

struct onehot_state {
	uint32_t axis;
	int64_t depth;
};
EXEC_STATE(onehot_state, cref_node)

int32_t ops_onehot_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	int32_t rc = ops_check(n, attrs, 3, 3, 1, err);
	int64_t dims[GENAI_MAX_RANK + 1], depth = -1;
	uint32_t axis = 0, from = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_NUMS, err);
	if (!rc)
		rc = ops_need_dtype(n, 2, OPS_BYTES, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", -1),
			      n->in[0]->rank + 1, &axis, err);
	if (rc)
		return rc;
	if (!n->in[1]->value)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "shape input '%.60s' must be known while "
				      "planning",
				      n->in[1]->name ? n->in[1]->name : "");
	if (exec_count(n->in[1]) == 1)
		depth = ops_get_int(n->in[1], n->in[1]->value, 0);
	if (depth < 1 || exec_count(n->in[2]) != 2)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "depth of shape %s is %lld, values of "
				      "shape %s must be two",
				      EXEC_SHAPE(n->in[1]), (long long)depth,
				      EXEC_SHAPE(n->in[2]));
	for (uint32_t d = 0; d <= n->in[0]->rank; d++)
		dims[d] = d == axis ? depth : n->in[0]->dims[from++];
	*onehot_state(n) = (struct onehot_state){axis, depth};
	return ops_out(n, 0, n->in[2]->dtype, n->in[0]->rank + 1, dims, err);
}

int32_t ops_onehot_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *idx = n->in[0];
	struct exec_tensor *y = n->out[0];
	uint64_t size = exec_bits(y->dtype) / 8;
	uint64_t count = exec_count(y), total = exec_count(idx);
	int64_t depth = onehot_state(n)->depth;

	(void)r;
	for (uint64_t i = 0; i < count; i++)
		memcpy((char *)y->data + i * size, n->in[2]->data, size);
	for (uint64_t i = 0; i < total; i++) {
		int64_t v = ops_get_int(idx, idx->data, i);
		struct line l = line_at(y, onehot_state(n)->axis, i);

		if (v < -depth || v >= depth)
			continue; // such an index selects nothing
		v = v < 0 ? v + depth : v;
		memcpy((char *)y->data +
			       (uint64_t)(l.first + v * l.stride) * size,
		       (const char *)n->in[2]->data + size, size);
	}
	return GENAI_OK;
}

// ---- NonZero ----

static bool is_set(const struct exec_tensor *t, const void *data, uint64_t i)
{
	enum ops_class c = ops_class_of(t->dtype);
	union number v = get(c, t, data, (int64_t)i);

	return c == OPS_F32 ? v.f != 0 : c == OPS_F64 ? v.d != 0 : v.u != 0;
}

int32_t ops_nonzero_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, NULL, 1, 1, 1, err);
	int64_t dims[2];
	uint64_t count;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (rc)
		return rc;
	count = exec_count(n->in[0]);
	if (count && !n->in[0]->value)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "the output's shape depends on input "
				      "'%.60s', which must be known while "
				      "planning",
				      n->in[0]->name ? n->in[0]->name : "");
	dims[0] = n->in[0]->rank;
	dims[1] = 0;
	for (uint64_t i = 0; i < count; i++)
		dims[1] += is_set(n->in[0], n->in[0]->value, i);
	return ops_out(n, 0, GENAI_DT_I64, 2, dims, err);
}

int32_t ops_nonzero_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	uint64_t count = exec_count(x);
	int64_t found = 0, hits = n->out[0]->dims[1];

	(void)r;
	for (uint64_t i = 0; i < count && found < hits; i++) {
		int64_t rest = (int64_t)i;

		if (!is_set(x, x->data, i))
			continue;
		for (uint32_t d = x->rank; d-- > 0; rest /= x->dims[d]) {
			int64_t v = rest % x->dims[d];

			memcpy((char *)n->out[0]->data + (d * hits + found) * 8,
			       &v, 8);
		}
		found++;
	}
	return GENAI_OK;
}

// ---- Compress ----

struct compress_state {
	uint32_t axis;
	bool flat; // no axis: of the flattened input
};
EXEC_STATE(compress_state, cref_node)

int32_t ops_compress_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	const struct genai_attr *a = exec_attr(n->node, "axis");
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);
	int64_t dims[GENAI_MAX_RANK], dim;
	const struct exec_tensor *x, *c;
	uint32_t axis = 0;
	uint64_t hits = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_BOOL, err);
	if (!rc)
		rc = ops_need_rank(n, 1, 1, 1, err);
	if (!rc && a)
		rc = ops_axis(n, a->i, n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	x = n->in[0];
	c = n->in[1];
	dim = a ? x->dims[axis] : (int64_t)exec_count(x);
	if (c->dims[0] > dim)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "condition of shape %s is longer than "
				      "the axis of %lld",
				      EXEC_SHAPE(c), (long long)dim);
	if (c->dims[0] && !c->value)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "the output's shape depends on input "
				      "'%.60s', which must be known while "
				      "planning",
				      c->name ? c->name : "");
	for (int64_t i = 0; i < c->dims[0]; i++)
		hits += ops_get_int(c, c->value, (uint64_t)i) != 0;
	memcpy(dims, x->dims, sizeof(dims));
	dims[axis] = (int64_t)hits;
	*compress_state(n) = (struct compress_state){axis, !a};
	return ops_out(n, 0, x->dtype, a ? x->rank : 1, dims, err);
}

int32_t ops_compress_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0], *c = n->in[1];
	bool flat = compress_state(n)->flat;
	uint32_t axis = compress_state(n)->axis;
	uint64_t size = exec_bits(x->dtype) / 8, done = 0;
	uint64_t outer = flat ? 1 : ops_span(x, 0, axis);
	uint64_t dim = flat ? exec_count(x) : (uint64_t)x->dims[axis];
	uint64_t line = (flat ? 1 : ops_span(x, axis + 1, x->rank)) * size;

	(void)r;
	for (uint64_t o = 0; line && o < outer; o++)
		for (uint64_t i = 0; i < (uint64_t)c->dims[0]; i++)
			if (ops_get_int(c, c->data, i))
				memcpy((char *)n->out[0]->data + line * done++,
				       (const char *)x->data +
					       (o * dim + i) * line,
				       line);
	return GENAI_OK;
}
