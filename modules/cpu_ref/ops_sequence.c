// ops_sequence.c - ReverseSequence, TensorScatter, Unique: rows moved by what
// other inputs say.
#include "modules/cpu_ref/ops.h"

#include <math.h>

// ---- ReverseSequence ----

struct reverse_state {
	uint32_t batch, time;
};
EXEC_STATE(reverse_state, cref_node)

int32_t ops_reverse_sequence_prepare(struct cref_node *n,
				     struct genai_error *err)
{
	static const char *const attrs[] = {"batch_axis", "time_axis", NULL};
	struct reverse_state *s = reverse_state(n);
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_INDEX, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, GENAI_MAX_RANK, err);
	if (rc)
		return rc;
	s->batch = (uint32_t)exec_attr_int(n->node, "batch_axis", 1);
	s->time = (uint32_t)exec_attr_int(n->node, "time_axis", 0);
	if (s->batch > 1 || s->time > 1 || s->batch == s->time)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "batch_axis and time_axis must be 0 and "
				      "1");
	if ((rc = ops_need_shape(n, 1, 1, &n->in[0]->dims[s->batch], false,
				 err)))
		return rc;
	return ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank, n->in[0]->dims,
		       err);
}

int32_t ops_reverse_sequence_run(struct cref_node *n, const struct cref_run *r)
{
	const struct reverse_state *s = reverse_state(n);
	const struct exec_tensor *x = n->in[0];
	const uint64_t row =
		ops_span(x, 2, x->rank) * (exec_bits(x->dtype) / 8);

	for (int64_t b = 0; b < x->dims[s->batch]; b++) {
		int64_t len =
			ops_get_int(n->in[1], n->in[1]->data, (uint64_t)b);

		if (len < 0 || len > x->dims[s->time])
			return cref_node_fail(n, r->err, GENAI_E_INVAL,
					      "sequence %lld has length %lld "
					      "of %lld",
					      (long long)b, (long long)len,
					      (long long)x->dims[s->time]);
		for (int64_t t = 0; t < x->dims[s->time]; t++) {
			int64_t from = t < len ? len - 1 - t : t;
			int64_t to = s->time ? b * x->dims[1] + t
					     : t * x->dims[1] + b;

			from = s->time ? b * x->dims[1] + from
				       : from * x->dims[1] + b;
			memcpy((char *)n->out[0]->data + (uint64_t)to * row,
			       (const char *)x->data + (uint64_t)from * row,
			       row);
		}
	}
	return GENAI_OK;
}

// ---- TensorScatter ----

struct scatter_state {
	uint32_t axis;
	bool circular;
};
EXEC_STATE(scatter_state, cref_node)

int32_t ops_tensor_scatter_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", "mode", NULL};
	const char *mode = exec_attr_string(n->node, "mode", "linear");
	struct scatter_state *s = scatter_state(n);
	const struct exec_tensor *x, *u;
	int32_t rc = ops_check(n, attrs, 2, 3, 1, err);
	bool fits;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES | OPS_F8, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	if (!rc)
		rc = ops_need_dtype(n, 2, OPS_INDEX, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, GENAI_MAX_RANK, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", -2),
			      n->in[0]->rank, &s->axis, err);
	if (rc)
		return rc;
	x = n->in[0];
	u = n->in[1];
	s->circular = !strcmp(mode, "circular");
	fits = u->rank == x->rank && s->axis &&
	       (s->circular || !strcmp(mode, "linear"));
	for (uint32_t d = 0; fits && d < x->rank; d++)
		fits = d == s->axis ? u->dims[d] <= x->dims[d]
				    : u->dims[d] == x->dims[d];
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "update of shape %s, cache of shape %s, "
				      "axis %u, mode '%.40s'",
				      EXEC_SHAPE(u), EXEC_SHAPE(x), s->axis,
				      mode);
	if ((rc = ops_need_shape(n, 2, 1, x->dims, false, err)))
		return rc;
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

int32_t ops_tensor_scatter_run(struct cref_node *n, const struct cref_run *r)
{
	const struct scatter_state *s = scatter_state(n);
	const struct exec_tensor *x = n->in[0], *u = n->in[1];
	const struct exec_tensor *at = n->n_in > 2 ? n->in[2] : NULL;
	const uint64_t row =
		ops_span(x, s->axis + 1, x->rank) * (exec_bits(x->dtype) / 8);
	const int64_t len = x->dims[s->axis], rows = u->dims[s->axis];
	const int64_t outer = (int64_t)ops_span(x, 0, s->axis);
	char *y = n->out[0]->data;

	if (exec_count(x))
		memcpy(y, x->data, (uint64_t)(outer * len) * row);
	for (int64_t o = 0; o < outer; o++) {
		int64_t b = o / (outer / x->dims[0]);
		int64_t first = at ? ops_get_int(at, at->data, (uint64_t)b) : 0;

		for (int64_t i = 0; i < rows; i++) {
			int64_t to = first + i;

			if (s->circular && len)
				to = (first % len + i + len) % len;
			if (first < 0 || to >= len)
				return cref_node_fail(
					n, r->err, GENAI_E_INVAL,
					"write index %lld of batch %lld, the "
					"cache has %lld rows",
					(long long)first, (long long)b,
					(long long)len);
			memcpy(y + (uint64_t)(o * len + to) * row,
			       (const char *)u->data +
				       (uint64_t)(o * rows + i) * row,
			       row);
		}
	}
	return GENAI_OK;
}

// ---- Unique ----

struct unique_state {
	uint32_t axis;
	bool flat, sorted;
	int64_t items, inner, n; // items compared, elements beside, results
};
EXEC_STATE(unique_state, cref_node)

// Element k of item i: [outer, items, inner], k over outer and inner.
static double item_at(const struct cref_node *n, const void *data, int64_t i,
		      int64_t k)
{
	const struct unique_state *s = unique_state(n);
	double v;

	ops_load(OPS_F64, &v, n->in[0]->dtype, data,
		 (k / s->inner * s->items + i) * s->inner + k % s->inner, 1, 1);
	return v;
}

// By value; NaN behind all numbers, and unlike any other.
static int order(const struct cref_node *n, const void *data, int64_t i,
		 int64_t j)
{
	const struct unique_state *s = unique_state(n);
	int64_t count = (int64_t)exec_count(n->in[0]) / s->items;

	for (int64_t k = 0; k < count; k++) {
		double a = item_at(n, data, i, k), b = item_at(n, data, j, k);

		if (a != a || b != b) {
			if (a != a && b != b)
				continue;
			return a != a ? 1 : -1;
		}
		if (a < b || a > b)
			return a < b ? -1 : 1;
	}
	return 0;
}

// The first item equal to item i.
static int64_t first_of(const struct cref_node *n, const void *data, int64_t i)
{
	int64_t j = 0;

	while (j < i && order(n, data, i, j))
		j++;
	return j;
}

#define MAX_UNIQUE 4096 // items, which are compared with each other

int32_t ops_unique_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", "sorted", NULL};
	struct unique_state *s = unique_state(n);
	int64_t dims[GENAI_MAX_RANK];
	int32_t rc = ops_check(n, attrs, 1, 1, 4, err);
	const struct exec_tensor *x;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (rc)
		return rc;
	x = n->in[0];
	s->flat = !exec_attr(n->node, "axis");
	s->sorted = exec_attr_int(n->node, "sorted", 1);
	if (!s->flat)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", 0), x->rank,
			      &s->axis, err);
	if (rc)
		return rc;
	s->items = s->flat ? (int64_t)exec_count(x) : x->dims[s->axis];
	s->inner = s->flat ? 1 : (int64_t)ops_span(x, s->axis + 1, x->rank);
	if (s->items > MAX_UNIQUE)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "more than %d items", MAX_UNIQUE);
	if (exec_count(x) && !x->value)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "the output's shape depends on input "
				      "'%.60s', which must be known while "
				      "planning",
				      x->name ? x->name : "");
	s->n = 0;
	for (int64_t i = 0; exec_count(x) && i < s->items; i++)
		s->n += first_of(n, x->value, i) == i;
	memcpy(dims, x->dims, sizeof(dims));
	dims[s->flat ? 0 : s->axis] = s->n;
	rc = ops_out(n, 0, x->dtype, s->flat ? 1 : x->rank, dims, err);
	if (!rc && n->n_out > 1)
		rc = ops_out(n, 1, GENAI_DT_I64, 1, &s->n, err);
	if (!rc && n->n_out > 2)
		rc = ops_out(n, 2, GENAI_DT_I64, 1, &s->items, err);
	if (!rc && n->n_out > 3)
		rc = ops_out(n, 3, GENAI_DT_I64, 1, &s->n, err);
	n->workspace_bytes = (uint64_t)s->items * 8 + 64;
	return rc;
}

static void put(struct cref_node *n, uint32_t i, int64_t at, int64_t v)
{
	if (i < n->n_out && n->out[i])
		memcpy((char *)n->out[i]->data + at * 8, &v, 8);
}

int32_t ops_unique_run(struct cref_node *n, const struct cref_run *r)
{
	const struct unique_state *s = unique_state(n);
	const struct exec_tensor *x = n->in[0];
	const uint64_t row = (uint64_t)s->inner * (exec_bits(x->dtype) / 8);
	int64_t *list = r->workspace, k = 0;
	int64_t outer = s->flat ? 1 : (int64_t)ops_span(x, 0, s->axis);

	for (int64_t i = 0; s->n && i < s->items; i++) {
		int64_t at = k;

		if (first_of(n, x->data, i) != i)
			continue;
		for (;
		     s->sorted && at && order(n, x->data, i, list[at - 1]) < 0;
		     at--)
			list[at] = list[at - 1];
		list[at] = i;
		k++;
	}
	for (int64_t j = 0; j < s->n; j++) {
		int64_t count = 0;

		for (int64_t i = 0; i < s->items; i++)
			if (first_of(n, x->data, i) == list[j]) {
				put(n, 2, i, j);
				count++;
			}
		put(n, 1, j, list[j]);
		put(n, 3, j, count);
		for (int64_t o = 0; n->out[0] && o < outer; o++)
			memcpy((char *)n->out[0]->data +
				       (uint64_t)(o * s->n + j) * row,
			       (const char *)x->data +
				       (uint64_t)(o * s->items + list[j]) * row,
			       row);
	}
	return GENAI_OK;
}
