// ops_move.c - operators that copy elements to other places: all are one
// strided copy, or one for each input or output.
#include "modules/cpu_ref/ops.h"

static void copy_init(struct ops_copy *c, const struct exec_tensor *dst,
		      const struct exec_tensor *src)
{
	c->rank = 0;
	c->bytes = exec_bits(dst->dtype) / 8;
	c->dst = dst->data;
	c->src = src->data;
}

// ---- Transpose ----

struct transpose_state {
	uint32_t perm[GENAI_MAX_RANK];
};
EXEC_STATE(transpose_state, cref_node)

int32_t ops_transpose_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"perm", NULL};
	const struct genai_attr *a = exec_attr(n->node, "perm");
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank, seen = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (rc)
		return rc;
	rank = n->in[0]->rank;
	if (a && a->count != rank)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "perm has %llu entries for shape %s",
				      (unsigned long long)a->count,
				      EXEC_SHAPE(n->in[0]));
	for (uint32_t i = 0; i < rank; i++) {
		int64_t p = a ? a->ints[i] : (int64_t)(rank - 1 - i);

		if (p < 0 || p >= rank || (seen >> p) & 1)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "perm is no permutation of the "
					      "axes of shape %s",
					      EXEC_SHAPE(n->in[0]));
		seen |= 1u << p;
		transpose_state(n)->perm[i] = (uint32_t)p;
		dims[i] = n->in[0]->dims[p];
	}
	return ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t ops_transpose_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0], *y = n->out[0];
	struct ops_copy c;

	copy_init(&c, y, x);
	for (uint32_t i = 0; i < y->rank; i++)
		ops_copy_dim(&c, y->dims[i], y->strides[i],
			     x->strides[transpose_state(n)->perm[i]]);
	ops_copy_run(&c, r->pool);
	return GENAI_OK;
}

// ---- Expand ----

int32_t ops_expand_prepare(struct cref_node *n, struct genai_error *err)
{
	int64_t want[GENAI_MAX_RANK];
	int32_t rc = ops_check(n, NULL, 2, 2, 1, err);
	struct exec_tensor shape = {0};
	uint32_t rank, k = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_ints(n, 1, want, GENAI_MAX_RANK, &k, err);
	if (rc)
		return rc;
	rank = n->in[0]->rank > k ? n->in[0]->rank : k;
	shape.rank = rank;
	for (uint32_t i = 0; i < rank; i++) {
		int64_t w = i + k >= rank ? want[i + k - rank] : 1;
		int64_t d = i + n->in[0]->rank >= rank
				    ? n->in[0]->dims[i + n->in[0]->rank - rank]
				    : 1;

		if (w < 0 || (d != w && d != 1 && w != 1)) {
			shape.rank = k;
			memcpy(shape.dims, want, k * sizeof(want[0]));
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "shapes %s and %s do not "
					      "broadcast",
					      EXEC_SHAPE(n->in[0]),
					      EXEC_SHAPE(&shape));
		}
		shape.dims[i] = d == 1 ? w : d;
	}
	return ops_out(n, 0, n->in[0]->dtype, rank, shape.dims, err);
}

int32_t ops_expand_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0], *y = n->out[0];
	uint32_t pad = y->rank - x->rank;
	struct ops_copy c;

	copy_init(&c, y, x);
	for (uint32_t i = 0; i < y->rank; i++)
		ops_copy_dim(&c, y->dims[i], y->strides[i],
			     i < pad || x->dims[i - pad] == 1
				     ? 0
				     : x->strides[i - pad]);
	ops_copy_run(&c, r->pool);
	return GENAI_OK;
}

// ---- Tile: every dim becomes (repeats, dim) ----

int32_t ops_tile_prepare(struct cref_node *n, struct genai_error *err)
{
	int64_t rep[GENAI_MAX_RANK], dims[GENAI_MAX_RANK];
	int32_t rc = ops_check(n, NULL, 2, 2, 1, err);
	uint32_t count = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_ints(n, 1, rep, GENAI_MAX_RANK, &count, err);
	if (!rc && count != n->in[0]->rank)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "%u repeats for shape %s", count,
				    EXEC_SHAPE(n->in[0]));
	for (uint32_t i = 0; !rc && i < count; i++)
		if (rep[i] < 0 ||
		    __builtin_mul_overflow(rep[i], n->in[0]->dims[i], &dims[i]))
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "%lld repeats of axis %u of shape "
					    "%s",
					    (long long)rep[i], i,
					    EXEC_SHAPE(n->in[0]));
	return rc ? rc : ops_out(n, 0, n->in[0]->dtype, count, dims, err);
}

int32_t ops_tile_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0], *y = n->out[0];
	struct ops_copy c;

	copy_init(&c, y, x);
	for (uint32_t i = 0; i < y->rank; i++) {
		if (x->dims[i])
			ops_copy_dim(&c, y->dims[i] / x->dims[i],
				     y->strides[i] * x->dims[i], 0);
		ops_copy_dim(&c, x->dims[i], y->strides[i], x->strides[i]);
	}
	if (exec_count(y))
		ops_copy_run(&c, r->pool);
	return GENAI_OK;
}

// ---- Split ----

struct split_state {
	uint32_t axis;
	int64_t len[EXEC_MAX_OUT + 1]; // one more than there can be
};
EXEC_STATE(split_state, cref_node)

static int32_t split_lengths(struct cref_node *n, int64_t dim,
			     struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "split");
	int64_t *len = split_state(n)->len, sum = 0, part;
	uint32_t k = n->n_out;
	int32_t rc = GENAI_OK;

	if (n->n_in > 1 && n->in[1]) {
		rc = ops_ints(n, 1, len, EXEC_MAX_OUT, &k, err);
	} else if (a) {
		k = a->count < EXEC_MAX_OUT + 1 ? (uint32_t)a->count
						: EXEC_MAX_OUT + 1;
		if (k)
			memcpy(len, a->ints, k * sizeof(len[0]));
	} else {
		part = (dim + k - 1) / k;
		for (uint32_t i = 0; i < k; i++, sum += len[i - 1])
			len[i] = dim - sum < part ? dim - sum : part;
		sum = 0;
	}
	if (!rc && k != n->n_out)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "%u lengths for %u outputs", k, n->n_out);
	for (uint32_t i = 0; !rc && i < k; i++)
		if (len[i] < 0 || __builtin_add_overflow(sum, len[i], &sum))
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "length %u is %lld", i,
					    (long long)len[i]);
	if (!rc && sum != dim)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "lengths add up to %lld, the axis of shape "
				    "%s has %lld",
				    (long long)sum, EXEC_SHAPE(n->in[0]),
				    (long long)dim);
	return rc;
}

int32_t ops_split_prepare(struct cref_node *n, struct genai_error *err)
{
	struct split_state *s = split_state(n);
	int32_t rc = ops_check(n, exec_split_attrs, 1, 2, EXEC_MAX_OUT, err);
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis = 0;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", 0),
			      n->in[0]->rank, &axis, err);
	if (!rc && exec_attr_int(n->node, "num_outputs", n->n_out) != n->n_out)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "num_outputs differs from %u outputs",
				    n->n_out);
	if (!rc)
		rc = split_lengths(n, n->in[0]->dims[axis], err);
	if (rc)
		return rc;
	s->axis = axis;
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	for (uint32_t i = 0; !rc && i < n->n_out; i++) {
		dims[axis] = s->len[i];
		rc = ops_out(n, i, n->in[0]->dtype, n->in[0]->rank, dims, err);
	}
	return rc;
}

int32_t ops_split_run(struct cref_node *n, const struct cref_run *r)
{
	const struct split_state *s = split_state(n);
	const struct exec_tensor *x = n->in[0];
	uint32_t axis = s->axis;
	int64_t at = 0;

	for (uint32_t i = 0; i < n->n_out; i++) {
		const struct exec_tensor *y = n->out[i];
		struct ops_copy c;

		if (y) {
			copy_init(&c, y, x);
			c.src += at * x->strides[axis] * c.bytes;
			for (uint32_t d = 0; d < y->rank; d++)
				ops_copy_dim(&c, y->dims[d], y->strides[d],
					     x->strides[d]);
			ops_copy_run(&c, r->pool);
		}
		at += s->len[i];
	}
	return GENAI_OK;
}

// ---- Concat ----

struct concat_state {
	uint32_t axis;
};
EXEC_STATE(concat_state, cref_node)

int32_t ops_concat_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	int32_t rc = ops_check(n, attrs, 1, EXEC_MAX_IN, 1, err);
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis = 0, rank;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_axis(n, exec_attr_int(n->node, "axis", INT64_MIN),
			      n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	rank = n->in[0]->rank;
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	for (uint32_t i = 1; i < n->n_in; i++) {
		const struct exec_tensor *t = n->in[i];
		bool same = t && t->rank == rank;

		for (uint32_t d = 0; same && d < rank; d++)
			same = d == axis || t->dims[d] == dims[d];
		if (!t)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "input %u is missing", i);
		if (!same)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "shapes %s and %s do not join at "
					      "axis %u",
					      EXEC_SHAPE(n->in[0]),
					      EXEC_SHAPE(t), axis);
		rc = ops_need_same_dtype(n, 0, i, err);
		if (rc)
			return rc;
		dims[axis] += t->dims[axis]; // each <= 2^46, few
	}
	concat_state(n)->axis = axis;
	return ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t ops_concat_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *y = n->out[0];
	uint32_t axis = concat_state(n)->axis;
	int64_t at = 0;

	for (uint32_t i = 0; i < n->n_in; i++) {
		const struct exec_tensor *x = n->in[i];
		struct ops_copy c;

		copy_init(&c, y, x);
		c.dst += at * y->strides[axis] * c.bytes;
		for (uint32_t d = 0; d < y->rank; d++)
			ops_copy_dim(&c, x->dims[d], y->strides[d],
				     x->strides[d]);
		ops_copy_run(&c, r->pool);
		at += x->dims[axis];
	}
	return GENAI_OK;
}

// ---- Slice ----

struct slice_state {
	int64_t start[GENAI_MAX_RANK], step[GENAI_MAX_RANK];
};
EXEC_STATE(slice_state, cref_node)

// One axis: negative positions count from the end, then both are clamped to
// where a walk in the step's direction can be.  Returns the new length.
static int64_t slice_axis(int64_t dim, int64_t *start, int64_t end,
			  int64_t step)
{
	int64_t lo = step > 0 ? 0 : -1, hi = step > 0 ? dim : dim - 1;
	int64_t s = *start, span;

	s = s < 0 ? s + dim : s;
	end = end < 0 ? (end < -dim ? lo : end + dim) : end;
	s = s < 0 ? 0 : s;
	s = s > hi ? hi : s;
	end = end < lo ? lo : end > hi ? hi : end;
	span = step > 0 ? end - s : s - end;
	*start = s;
	if (span <= 0)
		return 0;
	if (step == INT64_MIN)
		return 1;
	step = step < 0 ? -step : step;
	return (span - 1) / step + 1;
}

// Input i, or the attribute of that name before opset 10.
static int32_t slice_list(struct cref_node *n, uint32_t i, const char *name,
			  int64_t *list, uint32_t *count,
			  struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, name);

	if (i < n->n_in && n->in[i])
		return ops_ints(n, i, list, GENAI_MAX_RANK, count, err);
	if (!a || a->kind != GENAI_ATTR_INTS)
		return GENAI_OK;
	if (a->count > GENAI_MAX_RANK)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "%llu %s for shape %s",
				      (unsigned long long)a->count, name,
				      EXEC_SHAPE(n->in[0]));
	*count = (uint32_t)a->count;
	if (a->count)
		memcpy(list, a->ints, a->count * sizeof(list[0]));
	return GENAI_OK;
}

int32_t ops_slice_prepare(struct cref_node *n, struct genai_error *err)
{
	struct slice_state *s = slice_state(n);
	static const char *const attrs[] = {"starts", "ends", "axes", NULL};
	int64_t starts[GENAI_MAX_RANK], ends[GENAI_MAX_RANK];
	int64_t axes[GENAI_MAX_RANK], steps[GENAI_MAX_RANK];
	int64_t dims[GENAI_MAX_RANK];
	uint32_t count = 0, c[3], axis, seen = 0;
	bool old = n->node->opset < 10;
	int32_t rc = ops_check(n, old ? attrs : NULL, old ? 1 : 3, old ? 1 : 5,
			       1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = slice_list(n, 1, "starts", starts, &count, err);
	c[0] = c[1] = c[2] = count;
	for (uint32_t i = 0; i < count; i++) {
		axes[i] = i;
		steps[i] = 1;
	}
	if (!rc)
		rc = slice_list(n, 2, "ends", ends, &c[0], err);
	if (!rc)
		rc = slice_list(n, 3, "axes", axes, &c[1], err);
	if (!rc)
		rc = slice_list(n, 4, "steps", steps, &c[2], err);
	if (rc)
		return rc;
	if (c[0] != count || c[1] != count || c[2] != count)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "%u starts, %u ends, %u axes, %u steps",
				      count, c[0], c[1], c[2]);
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	for (uint32_t d = 0; d < n->in[0]->rank; d++) {
		s->start[d] = 0;
		s->step[d] = 1;
	}
	for (uint32_t i = 0; i < count; i++) {
		rc = ops_axis(n, axes[i], n->in[0]->rank, &axis, err);
		if (!rc && (steps[i] == 0 || (seen >> axis) & 1))
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "axis %u is given twice or has "
					    "step 0",
					    axis);
		if (rc)
			return rc;
		seen |= 1u << axis;
		dims[axis] =
			slice_axis(dims[axis], &starts[i], ends[i], steps[i]);
		s->start[axis] = starts[i];
		s->step[axis] = dims[axis] > 1 ? steps[i] : 1;
	}
	return ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank, dims, err);
}

int32_t ops_slice_run(struct cref_node *n, const struct cref_run *r)
{
	const struct slice_state *s = slice_state(n);
	const struct exec_tensor *x = n->in[0], *y = n->out[0];
	struct ops_copy c;

	if (!exec_count(y))
		return GENAI_OK;
	copy_init(&c, y, x);
	for (uint32_t d = 0; d < y->rank; d++) {
		c.src += s->start[d] * x->strides[d] * c.bytes;
		ops_copy_dim(&c, y->dims[d], y->strides[d],
			     x->strides[d] * s->step[d]);
	}
	ops_copy_run(&c, r->pool);
	return GENAI_OK;
}

// ---- DepthToSpace, SpaceToDepth: blocks of pixels and channels ----

int32_t ops_depth_space_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"blocksize", "mode", NULL};
	int64_t b = exec_attr_int(n->node, "blocksize", 0), dims[4];
	const char *mode = exec_attr_string(n->node, "mode", "DCR");
	bool to_space = n->op->code == OPS_TO_SPACE;
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 4, 4, err);
	if (!rc && strcmp(mode, "DCR") && strcmp(mode, "CRD"))
		rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				    "mode is '%.40s', carried: DCR, CRD", mode);
	if (rc)
		return rc;
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	if (b < 1 || b > 1 << 20 ||
	    (to_space ? dims[1] % (b * b) : dims[2] % b || dims[3] % b))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "blocksize %lld does not divide shape %s",
				      (long long)b, EXEC_SHAPE(n->in[0]));
	dims[1] = to_space ? dims[1] / (b * b) : dims[1] * b * b;
	dims[2] = to_space ? dims[2] * b : dims[2] / b;
	dims[3] = to_space ? dims[3] * b : dims[3] / b;
	return ops_out(n, 0, n->in[0]->dtype, 4, dims, err);
}

int32_t ops_depth_space_run(struct cref_node *n, const struct cref_run *r)
{
	bool to_space = n->op->code == OPS_TO_SPACE;
	const struct exec_tensor *x = n->in[0], *y = n->out[0];
	// the side with many channels, and the one with many pixels
	const struct exec_tensor *deep = to_space ? x : y;
	const struct exec_tensor *wide = to_space ? y : x;
	int64_t b = exec_attr_int(n->node, "blocksize", 0);
	int64_t c = wide->dims[1], h = deep->dims[2], w = deep->dims[3];
	bool dcr = strcmp(exec_attr_string(n->node, "mode", "DCR"), "CRD") != 0;
	// batch, channel, row, row in block, column, column in block
	int64_t dims[6] = {x->dims[0], c, h, b, w, b};
	int64_t wide_s[6] = {
		c * h * b * w * b, h * b * w * b, b * w * b, w * b, b, 1};
	int64_t deep_s[6] = {c * b * b * h * w,
			     dcr ? h * w : b * b * h * w,
			     w,
			     dcr ? b * c * h * w : b * h * w,
			     1,
			     dcr ? c * h * w : h * w};
	struct ops_copy copy;

	if (!exec_count(y))
		return GENAI_OK;
	copy_init(&copy, y, x);
	for (int i = 0; i < 6; i++)
		ops_copy_dim(&copy, dims[i], to_space ? wide_s[i] : deep_s[i],
			     to_space ? deep_s[i] : wide_s[i]);
	ops_copy_run(&copy, r->pool);
	return GENAI_OK;
}
