// ops_gather.c - reading and writing elements at given indices.
#include "modules/cpu_ref/ops.h"

// Every index of tensor idx is checked before anything is written, so that a
// bad one leaves no half-written output.
static int32_t check_indices(struct cref_node *n, const struct cref_run *r,
			     const struct exec_tensor *idx, int64_t dim)
{
	uint64_t count = exec_count(idx);

	for (uint64_t i = 0; i < count; i++) {
		int64_t v = ops_get_int(idx, idx->data, i);

		if (v < -dim || v >= dim)
			return cref_node_fail(n, r->err, GENAI_E_INVAL,
					      "index %lld is out of range for "
					      "an axis of %lld",
					      (long long)v, (long long)dim);
	}
	return GENAI_OK;
}

static int64_t index_at(const struct exec_tensor *idx, uint64_t i, int64_t dim)
{
	int64_t v = ops_get_int(idx, idx->data, i);

	return v < 0 ? v + dim : v;
}

static uint64_t bytes_of(const struct exec_tensor *t)
{
	return exec_bits(t->dtype) / 8;
}

static const char *const axis_attr[] = {"axis", NULL};

// ---- Gather ----

// How a written element meets what is there.
struct index_state {
	uint32_t axis;
	enum exec_write write;
};
EXEC_STATE(index_state, cref_node)

int32_t ops_gather_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, axis_attr, 2, 2, 1, err);
	int64_t dims[2 * GENAI_MAX_RANK];
	const struct exec_tensor *x, *idx;
	uint32_t axis = 0, rank = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_INDEX, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", 0),
			      n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	x = n->in[0];
	idx = n->in[1];
	for (uint32_t d = 0; d < axis; d++)
		dims[rank++] = x->dims[d];
	for (uint32_t d = 0; d < idx->rank; d++)
		dims[rank++] = idx->dims[d];
	for (uint32_t d = axis + 1; d < x->rank; d++)
		dims[rank++] = x->dims[d];
	index_state(n)->axis = axis;
	return ops_out(n, 0, x->dtype, rank, dims, err);
}

struct gather {
	const struct cref_node *n;
	uint64_t count, line; // indices; bytes of what one selects
	int64_t dim;
};

static void gather_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct gather *g = ctx;
	const char *src = g->n->in[0]->data;
	char *dst = g->n->out[0]->data;

	for (uint64_t i = begin; i < end; i++) {
		uint64_t outer = i / g->count;
		int64_t k = index_at(g->n->in[1], i % g->count, g->dim);

		memcpy(dst + i * g->line,
		       src + (outer * (uint64_t)g->dim + (uint64_t)k) * g->line,
		       g->line);
	}
}

int32_t ops_gather_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	uint32_t axis = index_state(n)->axis;
	struct gather g = {n, exec_count(n->in[1]),
			   ops_span(x, axis + 1, x->rank) * bytes_of(x),
			   x->dims[axis]};
	int32_t rc = check_indices(n, r, n->in[1], g.dim);

	if (!rc && exec_count(n->out[0]))
		ops_rows(r->pool, gather_part, &g,
			 ops_span(x, 0, axis) * g.count, g.line / 4);
	return rc;
}

// ---- walking over all elements of a shape ----

struct walk {
	uint32_t rank;
	int64_t dims[GENAI_MAX_RANK], at[GENAI_MAX_RANK];
};

static void walk_init(struct walk *w, uint32_t rank, const int64_t *dims)
{
	w->rank = rank;
	memset(w->at, 0, sizeof(w->at));
	memcpy(w->dims, dims, rank * sizeof(dims[0]));
}

static void walk_next(struct walk *w)
{
	for (uint32_t d = w->rank; d-- > 0;) {
		if (++w->at[d] < w->dims[d])
			return;
		w->at[d] = 0;
	}
}

// Where element w of the indices points to in t along axis.
static uint64_t walk_offset(const struct walk *w, const struct exec_tensor *t,
			    uint32_t axis, int64_t index)
{
	int64_t off = 0;

	for (uint32_t d = 0; d < t->rank; d++)
		off += (d == axis ? index : w->at[d]) * t->strides[d];
	return (uint64_t)off;
}

// ---- GatherElements, ScatterElements ----

static int32_t elements_check(struct cref_node *n, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0], *idx = n->in[1];
	uint32_t axis;
	int32_t rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	bool fits = x->rank == idx->rank;

	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_INDEX, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", 0), x->rank,
			      &axis, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; fits && d < x->rank; d++)
		fits = d == axis || idx->dims[d] <= x->dims[d];
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "indices of shape %s do not fit data of "
				      "shape %s",
				      EXEC_SHAPE(idx), EXEC_SHAPE(x));
	index_state(n)->axis = axis;
	return GENAI_OK;
}

int32_t ops_gather_elements_prepare(struct cref_node *n,
				    struct genai_error *err)
{
	int32_t rc = ops_check(n, axis_attr, 2, 2, 1, err);

	if (!rc)
		rc = elements_check(n, err);
	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[1]->rank,
			    n->in[1]->dims, err);
}

int32_t ops_gather_elements_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0], *idx = n->in[1];
	uint32_t axis = index_state(n)->axis;
	uint64_t count = exec_count(idx), size = bytes_of(x);
	int32_t rc = check_indices(n, r, idx, x->dims[axis]);
	struct walk w;

	walk_init(&w, idx->rank, idx->dims);
	for (uint64_t i = 0; !rc && i < count; i++, walk_next(&w)) {
		int64_t k = index_at(idx, i, x->dims[axis]);

		memcpy((char *)n->out[0]->data + i * size,
		       (const char *)x->data +
			       walk_offset(&w, x, axis, k) * size,
		       size);
	}
	return rc;
}

static int32_t reduction(struct cref_node *n, struct genai_error *err)
{
	enum exec_write *how = &index_state(n)->write;
	struct exec_text why;
	int32_t rc = exec_reduction(n->node, how, &why);

	if (rc)
		return cref_node_fail(n, err, rc, "%s", why.s);
	if (*how && !ops_is(n->in[0], OPS_NUMS))
		return cref_node_fail(
			n, err, GENAI_E_UNSUPPORTED,
			"reduction '%s' of type %s",
			exec_attr_string(n->node, "reduction", "none"),
			exec_dtype_name(n->in[0]->dtype));
	return GENAI_OK;
}

#define MEET(T)                                                                \
	(how == EXEC_WRITE_ADD	 ? (T)(a + b)                                  \
	 : how == EXEC_WRITE_MUL ? (T)(a * b)                                  \
	 : how == EXEC_WRITE_MAX ? (a > b || a != a ? a : b)                   \
				 : (a < b || a != a ? a : b))

static void meet(int64_t how, struct exec_tensor *y, uint64_t at,
		 const struct exec_tensor *u, uint64_t from)
{
	union {
		float f;
		double d;
		int64_t i;
		uint64_t u;
	} x, v;
	enum ops_class c = ops_class_of(y->dtype);

	ops_load(c, &x, y->dtype, y->data, (int64_t)at, 1, 1);
	ops_load(c, &v, u->dtype, u->data, (int64_t)from, 1, 1);
	if (c == OPS_F32) {
		float a = x.f, b = v.f;

		x.f = MEET(float);
	} else if (c == OPS_F64) {
		double a = x.d, b = v.d;

		x.d = MEET(double);
	} else if (c == OPS_I64 && how >= EXEC_WRITE_MAX) {
		int64_t a = x.i, b = v.i;

		x.i = how == EXEC_WRITE_MAX ? (a > b ? a : b) : (a < b ? a : b);
	} else {
		uint64_t a = x.u, b = v.u;

		x.u = MEET(uint64_t);
	}
	ops_store(c, &x, y->dtype, y->data, (int64_t)at, 1, 1);
}

static void copy_data(struct cref_node *n)
{
	uint64_t bytes = exec_count(n->in[0]) * bytes_of(n->in[0]);

	if (bytes && n->out[0]->data != n->in[0]->data)
		memcpy(n->out[0]->data, n->in[0]->data, bytes);
}

int32_t ops_scatter_elements_prepare(struct cref_node *n,
				     struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_scatter_attrs, 3, 3, 1, err);
	const struct exec_tensor *idx, *u;

	if (!rc)
		rc = elements_check(n, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc)
		rc = reduction(n, err);
	if (rc)
		return rc;
	idx = n->in[1];
	u = n->in[2];
	if (u->rank != idx->rank ||
	    memcmp(u->dims, idx->dims, u->rank * sizeof(u->dims[0])))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "updates of shape %s and indices of "
				      "shape %s differ",
				      EXEC_SHAPE(u), EXEC_SHAPE(idx));
	return ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank, n->in[0]->dims,
		       err);
}

int32_t ops_scatter_elements_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *idx = n->in[1], *u = n->in[2];
	struct exec_tensor *y = n->out[0];
	uint32_t axis = index_state(n)->axis;
	uint64_t count = exec_count(idx), size = bytes_of(y);
	int32_t rc = check_indices(n, r, idx, y->dims[axis]);
	struct walk w;

	if (rc)
		return rc;
	copy_data(n);
	walk_init(&w, idx->rank, idx->dims);
	for (uint64_t i = 0; i < count; i++, walk_next(&w)) {
		int64_t k = index_at(idx, i, y->dims[axis]);
		uint64_t at = walk_offset(&w, y, axis, k);

		if (index_state(n)->write == EXEC_WRITE_SET)
			memcpy((char *)y->data + at * size,
			       (const char *)u->data + i * size, size);
		else
			meet(index_state(n)->write, y, at, u, i);
	}
	return GENAI_OK;
}

// ---- GatherND, ScatterND: the last dim of the indices is a position ----

// The element offset that tuple i of idx names, in dims [first, ...) of t.
static int32_t nd_offset(struct cref_node *n, const struct cref_run *r,
			 const struct exec_tensor *t, uint32_t first,
			 const struct exec_tensor *idx, uint64_t i,
			 uint64_t *out)
{
	uint32_t k = (uint32_t)idx->dims[idx->rank - 1];

	*out = 0;
	for (uint32_t j = 0; j < k; j++) {
		int64_t v = ops_get_int(idx, idx->data, i * k + j);
		int64_t dim = t->dims[first + j];

		if (v < -dim || v >= dim)
			return cref_node_fail(n, r->err, GENAI_E_INVAL,
					      "index %lld is out of range for "
					      "axis %u of shape %s",
					      (long long)v, first + j,
					      EXEC_SHAPE(t));
		*out += (uint64_t)(v < 0 ? v + dim : v) *
			(uint64_t)t->strides[first + j];
	}
	return GENAI_OK;
}

int32_t ops_gather_nd_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"batch_dims", NULL};
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);
	int64_t b = exec_attr_int(n->node, "batch_dims", 0), k = 0;
	int64_t dims[2 * GENAI_MAX_RANK];
	const struct exec_tensor *x, *idx;
	uint32_t rank = 0;
	bool fits;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_BIT(GENAI_DT_I64), err);
	if (rc)
		return rc;
	x = n->in[0];
	idx = n->in[1];
	fits = b >= 0 && b < x->rank && b < idx->rank;
	for (uint32_t d = 0; fits && d < b; d++)
		fits = x->dims[d] == idx->dims[d];
	if (fits)
		k = idx->dims[idx->rank - 1];
	if (!fits || k < 1 || k > x->rank - b)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "indices of shape %s do not fit data of "
				      "shape %s, batch_dims %lld",
				      EXEC_SHAPE(idx), EXEC_SHAPE(x),
				      (long long)b);
	for (uint32_t d = 0; d + 1 < idx->rank; d++)
		dims[rank++] = idx->dims[d];
	for (uint32_t d = (uint32_t)(b + k); d < x->rank; d++)
		dims[rank++] = x->dims[d];
	return ops_out(n, 0, x->dtype, rank, dims, err);
}

int32_t ops_gather_nd_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0], *idx = n->in[1];
	uint32_t b = (uint32_t)exec_attr_int(n->node, "batch_dims", 0);
	uint32_t k = (uint32_t)idx->dims[idx->rank - 1];
	uint64_t tuples = ops_span(idx, 0, idx->rank - 1);
	uint64_t per = ops_span(idx, b, idx->rank - 1), off;
	uint64_t line = ops_span(x, b + k, x->rank) * bytes_of(x);
	uint64_t batch = ops_span(x, b, x->rank) * bytes_of(x);

	for (uint64_t i = 0; i < tuples; i++) {
		int32_t rc = nd_offset(n, r, x, b, idx, i, &off);

		if (rc)
			return rc;
		if (line)
			memcpy((char *)n->out[0]->data + i * line,
			       (const char *)x->data + i / per * batch +
				       off * bytes_of(x),
			       line);
	}
	return GENAI_OK;
}

int32_t ops_scatter_nd_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"reduction", NULL};
	int32_t rc = ops_check(n, attrs, 3, 3, 1, err);
	const struct exec_tensor *x, *idx, *u;
	int64_t k = 0;
	bool fits;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_BIT(GENAI_DT_I64), err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc)
		rc = reduction(n, err);
	if (rc)
		return rc;
	x = n->in[0];
	idx = n->in[1];
	u = n->in[2];
	if (idx->rank)
		k = idx->dims[idx->rank - 1];
	fits = k >= 1 && k <= x->rank &&
	       u->rank == idx->rank - 1 + x->rank - (uint32_t)k;
	for (uint32_t d = 0; fits && d < u->rank; d++)
		fits = u->dims[d] ==
		       (d + 1 < idx->rank
				? idx->dims[d]
				: x->dims[d + 1 - idx->rank + (uint32_t)k]);
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "data %s, indices %s and updates %s do "
				      "not fit",
				      EXEC_SHAPE(x), EXEC_SHAPE(idx),
				      EXEC_SHAPE(u));
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

int32_t ops_scatter_nd_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *idx = n->in[1], *u = n->in[2];
	struct exec_tensor *y = n->out[0];
	uint32_t k = (uint32_t)idx->dims[idx->rank - 1];
	uint64_t tuples = ops_span(idx, 0, idx->rank - 1), off;
	uint64_t line = ops_span(y, k, y->rank), size = bytes_of(y);
	int32_t rc = GENAI_OK;

	for (uint64_t i = 0; !rc && i < tuples; i++)
		rc = nd_offset(n, r, y, 0, idx, i, &off);
	if (rc)
		return rc;
	copy_data(n);
	for (uint64_t i = 0; line && i < tuples; i++) {
		nd_offset(n, r, y, 0, idx, i, &off);
		if (index_state(n)->write == EXEC_WRITE_SET)
			memcpy((char *)y->data + off * size,
			       (const char *)u->data + i * line * size,
			       line * size);
		else
			for (uint64_t j = 0; j < line; j++)
				meet(index_state(n)->write, y, off + j, u,
				     i * line + j);
	}
	return GENAI_OK;
}
