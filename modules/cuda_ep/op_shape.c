// op_shape.c - operators that move or rename bytes.
#include "modules/cuda_ep/op.h"

int32_t cep_run_none(struct cep_node *n, struct cep_run *r)
{
	(void)n;
	(void)r;
	return 0;
}

// Output 0 is input 0 with other dims.
static int32_t rename_dims(struct cep_node *n, uint32_t rank,
			   const int64_t *dims, struct genai_error *err)
{
	int32_t rc = cep_need_dense(n, 0, err);

	if (!rc)
		rc = cep_out(n, 0, n->in[0]->dtype, rank, dims, err);
	if (rc)
		return rc;
	if (exec_count(n->out[0]) != exec_count(n->in[0]))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "%llu elements do not fit the new shape",
				     (unsigned long long)exec_count(n->in[0]));
	cep_alias(n, 0, 0, 0);
	return 0;
}

int32_t cep_prepare_identity(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 1, 1, 1, err);

	return rc ? rc : rename_dims(n, n->in[0]->rank, n->in[0]->dims, err);
}

int32_t cep_prepare_reshape(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"allowzero", NULL};
	const struct exec_tensor *t = n->in[0];
	int64_t dims[GENAI_MAX_RANK], known = 1;
	uint32_t rank = 0, hole = UINT32_MAX;
	int32_t rc = cep_check(n, attrs, 2, 2, 1, err);

	if (!rc)
		rc = cep_ints(n, 1, dims, GENAI_MAX_RANK, &rank, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < rank; d++) {
		if (!dims[d] && !exec_attr_int(n->node, "allowzero", 0)) {
			if (d >= t->rank)
				return cep_node_fail(
					n, err, GENAI_E_FORMAT,
					"dimension %u is 0 and the "
					"input has rank %u",
					d, t->rank);
			dims[d] = t->dims[d];
		}
		if (dims[d] == -1 && hole == UINT32_MAX)
			hole = d;
		else if (dims[d] < 0 ||
			 __builtin_mul_overflow(known, dims[d], &known))
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "bad dimension %lld",
					     (long long)dims[d]);
	}
	if (hole != UINT32_MAX)
		dims[hole] = known ? (int64_t)exec_count(t) / known : 0;
	return rename_dims(n, rank, dims, err);
}

int32_t cep_prepare_flatten(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	int64_t dims[2] = {1, 1}, axis = exec_attr_int(n->node, "axis", 1);
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);

	if (rc)
		return rc;
	if (axis < 0)
		axis += n->in[0]->rank;
	for (uint32_t d = 0; d < n->in[0]->rank; d++)
		dims[d >= axis] *= n->in[0]->dims[d];
	return rename_dims(n, 2, dims, err);
}

// Axes of attribute "axes" or of input 1, as a mask of rank bits.
static int32_t axes_of(struct cep_node *n, uint32_t rank, uint32_t *out_mask,
		       bool *out_given, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "axes");
	int64_t axes[GENAI_MAX_RANK];
	uint32_t count = 0, at;
	int32_t rc = 0;

	*out_given = true;
	*out_mask = 0;
	if (a && a->kind == GENAI_ATTR_INTS) {
		if (a->count > GENAI_MAX_RANK)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "too many axes");
		count = (uint32_t)a->count;
		memcpy(axes, a->ints, count * sizeof(axes[0]));
	} else if (n->n_in > 1 && n->in[1]) {
		rc = cep_ints(n, 1, axes, GENAI_MAX_RANK, &count, err);
	} else {
		*out_given = false;
	}
	for (uint32_t i = 0; !rc && i < count; i++) {
		rc = cep_axis(n, axes[i], rank, &at, err);
		if (!rc)
			*out_mask |= 1u << at;
	}
	return rc;
}

int32_t cep_prepare_squeeze(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axes", NULL};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t mask = 0, rank = 0;
	bool given;
	int32_t rc = cep_check(n, attrs, 1, 2, 1, err);

	if (!rc)
		rc = axes_of(n, n->in[0]->rank, &mask, &given, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < n->in[0]->rank; d++) {
		bool drop = given ? mask >> d & 1 : n->in[0]->dims[d] == 1;

		if (drop && n->in[0]->dims[d] != 1)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "dimension %u is %lld, not 1", d,
					     (long long)n->in[0]->dims[d]);
		if (!drop)
			dims[rank++] = n->in[0]->dims[d];
	}
	return rename_dims(n, rank, dims, err);
}

int32_t cep_prepare_unsqueeze(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axes", NULL};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t mask = 0, rank, count = 1, from = 0;
	bool given;
	int32_t rc = cep_check(n, attrs, 1, 2, 1, err);

	if (rc)
		return rc;
	if (n->n_in > 1 && n->in[1])
		count = (uint32_t)exec_count(n->in[1]);
	else if (exec_attr(n->node, "axes"))
		count = (uint32_t)exec_attr(n->node, "axes")->count;
	rank = n->in[0]->rank + count;
	if (rank > GENAI_MAX_RANK)
		return cep_node_fail(n, err, GENAI_E_FORMAT, "rank %u", rank);
	rc = axes_of(n, rank, &mask, &given, err);
	if (rc)
		return rc;
	for (uint32_t d = 0; d < rank; d++) {
		if (mask >> d & 1)
			dims[d] = 1;
		else if (from < n->in[0]->rank)
			dims[d] = n->in[0]->dims[from++];
		else
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "axes repeat");
	}
	return rename_dims(n, rank, dims, err);
}

struct shape_state {
	int64_t start;
};
EXEC_STATE(shape_state, cep_node)

int32_t cep_prepare_shape(struct cep_node *n, struct genai_error *err)
{
	int64_t start, end, rank, dims[1];
	int32_t rc = cep_check(n, exec_shape_attrs, 1, 1, 1, err);

	if (rc)
		return rc;
	rank = n->in[0]->rank;
	start = exec_attr_int(n->node, "start", 0);
	end = exec_attr_int(n->node, "end", rank);
	start += start < 0 ? rank : 0;
	end += end < 0 ? rank : 0;
	start = start < 0 ? 0 : start > rank ? rank : start;
	end = end < 0 ? 0 : end > rank ? rank : end;
	shape_state(n)->start = start;
	dims[0] = end > start ? end - start : 0;
	return cep_out(n, 0, GENAI_DT_I64, 1, dims, err);
}

bool cep_fold_shape(const struct cep_node *n, void *out)
{
	const int64_t *from = n->in[0]->dims + shape_state(n)->start;

	for (uint64_t i = 0; i < exec_count(n->out[0]); i++)
		cep_fold_put(n->out[0], out, i, from[i]);
	return true;
}

struct fill_state {
	uint64_t bits; // of an element
};
EXEC_STATE(fill_state, cep_node)

int32_t cep_prepare_fill(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"value", NULL};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank = 0, dtype;
	struct exec_text why;
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = cep_ints(n, 0, dims, GENAI_MAX_RANK, &rank, err);
	if (rc)
		return rc;
	rc = exec_fill_value(n->graph, n->node, &dtype, &fill_state(n)->bits,
			     &why);
	if (rc)
		return cep_node_fail(n, err, rc, "%s", why.s);
	return cep_out(n, 0, dtype, rank, dims, err);
}

int32_t cep_run_fill(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *y = n->out[0];
	struct cep_fill p = {
		.out = y->addr,
		.count = exec_count(y),
		.bits = fill_state(n)->bits,
		.size = cep_dtype_bytes(y->dtype),
	};

	if (!p.count)
		return 0;
	return cep_run_kernel(
		r, CEP_K_cep_fill_k,
		(struct cep_dim3){cep_blocks(r->self, p.count), 1, 1}, 256, 0,
		&p);
}

// ---- one strided copy ----

struct view_state {
	int64_t offset; // bytes into the input
	int64_t strides[GENAI_MAX_RANK];
};
EXEC_STATE(view_state, cep_node)

int32_t cep_run_view_copy(struct cep_node *n, struct cep_run *r)
{
	const struct view_state *s = view_state(n);
	const struct exec_tensor *o = n->out[0];

	if (o->root != EXEC_OWN)
		return 0;
	return cep_run_copy(r, cep_dtype_bytes(o->dtype), o->rank, o->dims,
			    o->addr, o->strides,
			    n->in[0]->addr + (uint64_t)s->offset, s->strides);
}

static int32_t need_bytes(const struct cep_node *n, struct genai_error *err)
{
	if (cep_dtype_bytes(n->in[0]->dtype))
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED, "dtype %u",
			     n->in[0]->dtype);
}

int32_t cep_prepare_expand(struct cep_node *n, struct genai_error *err)
{
	struct view_state *s = view_state(n);
	const struct exec_tensor *t = n->in[0];
	int64_t shape[GENAI_MAX_RANK], dims[GENAI_MAX_RANK];
	uint32_t count = 0, rank;
	int32_t rc = cep_check(n, NULL, 2, 2, 1, err);

	if (!rc)
		rc = need_bytes(n, err);
	if (!rc)
		rc = cep_ints(n, 1, shape, GENAI_MAX_RANK, &count, err);
	if (rc)
		return rc;
	rank = count > t->rank ? count : t->rank;
	s->offset = 0;
	for (uint32_t d = 0; d < rank; d++) {
		int64_t a =
			d + t->rank >= rank ? t->dims[d + t->rank - rank] : 1;
		int64_t b = d + count >= rank ? shape[d + count - rank] : 1;

		if (a != 1 && b != 1 && a != b)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "%lld does not broadcast to %lld",
					     (long long)a, (long long)b);
		dims[d] = a == 1 ? b : a;
		s->strides[d] = a == 1 ? 0 : t->strides[d + t->rank - rank];
	}
	return cep_out(n, 0, t->dtype, rank, dims, err);
}

// Do the dims of more than 1 stay in their order?  Then so do the bytes.
static bool keeps_order(const struct exec_tensor *t, const struct view_state *s,
			const int64_t *dims)
{
	int64_t last = INT64_MAX;

	for (uint32_t d = 0; d < t->rank; d++) {
		if (dims[d] == 1)
			continue;
		if (s->strides[d] > last)
			return false;
		last = s->strides[d];
	}
	return true;
}

int32_t cep_prepare_transpose(struct cep_node *n, struct genai_error *err)
{
	struct view_state *s = view_state(n);
	static const char *const attrs[] = {"perm", NULL};
	const struct genai_attr *a = exec_attr(n->node, "perm");
	const struct exec_tensor *t = n->in[0];
	int64_t dims[GENAI_MAX_RANK];
	uint32_t seen = 0;
	int32_t rc = cep_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = need_bytes(n, err);
	if (!rc && a && a->count != t->rank)
		rc = cep_node_fail(n, err, GENAI_E_FORMAT,
				   "perm has %llu entries for rank %u",
				   (unsigned long long)a->count, t->rank);
	if (rc)
		return rc;
	s->offset = 0;
	for (uint32_t d = 0; d < t->rank; d++) {
		int64_t from = a ? a->ints[d] : t->rank - 1 - d;

		if (from < 0 || from >= t->rank || seen >> from & 1)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "bad perm");
		seen |= 1u << from;
		dims[d] = t->dims[from];
		s->strides[d] = t->strides[from];
	}
	rc = cep_out(n, 0, t->dtype, t->rank, dims, err);
	if (!rc && !t->value && exec_is_dense(t) && keeps_order(t, s, dims))
		cep_alias(n, 0, 0, 0);
	// a stored matrix is read where it lies, the other way round
	if (!rc && t->value && t->rank == 2) {
		cep_alias(n, 0, 0, 0);
		for (uint32_t d = 0; d < 2 && n->out[0]; d++)
			n->out[0]->strides[d] = s->strides[d];
	}
	return rc;
}

int32_t cep_prepare_slice(struct cep_node *n, struct genai_error *err)
{
	struct view_state *view = view_state(n);
	const struct exec_tensor *t = n->in[0];
	int64_t v[4][GENAI_MAX_RANK], dims[GENAI_MAX_RANK], off = 0;
	uint32_t count[4] = {0, 0, 0, 0}, at;
	int32_t rc = cep_check(n, NULL, 3, 5, 1, err);

	if (!rc)
		rc = need_bytes(n, err);
	for (uint32_t i = 0; !rc && i < 4; i++)
		if (i + 1 < n->n_in && n->in[i + 1])
			rc = cep_ints(n, i + 1, v[i], GENAI_MAX_RANK, &count[i],
				      err);
	if (!rc &&
	    (count[1] != count[0] || (count[2] && count[2] != count[0]) ||
	     (count[3] && count[3] != count[0])))
		rc = cep_node_fail(n, err, GENAI_E_FORMAT,
				   "starts, ends, axes and steps differ in "
				   "length");
	if (rc)
		return rc;
	for (uint32_t d = 0; d < t->rank; d++) {
		dims[d] = t->dims[d];
		view->strides[d] = t->strides[d];
	}
	for (uint32_t i = 0; i < count[0]; i++) {
		int64_t step = count[3] ? v[3][i] : 1, s = v[0][i], e = v[1][i];
		int64_t len;

		rc = cep_axis(n, count[2] ? v[2][i] : i, t->rank, &at, err);
		if (rc)
			return rc;
		len = t->dims[at];
		if (!step || step < -INT32_MAX || step > INT32_MAX)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "step %lld", (long long)step);
		s += s < 0 ? len : 0;
		e += e < 0 ? len : 0;
		s = s < 0 ? (step > 0 ? 0 : -1) : s;
		e = e < -1 ? -1 : e < 0 && step > 0 ? 0 : e;
		s = s > len ? len : s;
		e = e > len ? len : e;
		if (step < 0 && s >= len)
			s = len - 1;
		dims[at] = step > 0 ? (e - s + step - 1) / step
				    : (s - e - step - 1) / -step;
		if (dims[at] < 0 || (step < 0 && s < 0))
			dims[at] = 0;
		off += dims[at] ? s * t->strides[at] : 0;
		view->strides[at] = t->strides[at] * step;
	}
	view->offset = off * cep_dtype_bytes(t->dtype);
	return cep_out(n, 0, t->dtype, t->rank, dims, err);
}

bool cep_fold_slice(const struct cep_node *n, void *out)
{
	const struct exec_tensor *t = n->in[0], *o = n->out[0];
	const struct view_state *s = view_state(n);
	int64_t at = s->offset / cep_dtype_bytes(t->dtype);

	if (t->rank != 1)
		return false;
	for (uint64_t i = 0; i < exec_count(o); i++) {
		cep_fold_put(o, out, i, cep_fold_get(t, (uint64_t)at));
		at += s->strides[0];
	}
	return true;
}

struct split_state {
	uint32_t axis;
	int64_t sizes[EXEC_MAX_OUT]; // along it
};
EXEC_STATE(split_state, cep_node)

// One row: the parts lie one behind the other already.  The layout lets the
// input live as long as its parts (may_alias).
static void split_in_place(struct cep_node *n, uint32_t axis)
{
	const int64_t *sizes = split_state(n)->sizes;
	const struct exec_tensor *t = n->in[0];
	uint64_t rows = 1, row = cep_dtype_bytes(t->dtype), at = 0;

	for (uint32_t d = 0; d < axis; d++)
		rows *= (uint64_t)t->dims[d];
	for (uint32_t d = axis + 1; d < t->rank; d++)
		row *= (uint64_t)t->dims[d];
	if (rows != 1 || !exec_is_dense(t) || t->value)
		return;
	for (uint32_t i = 0; i < n->n_out; i++) {
		if (at % 16)
			return;
		at += (uint64_t)sizes[i] * row;
	}
	at = 0;
	for (uint32_t i = 0; i < n->n_out; i++) {
		cep_alias(n, i, 0, at);
		at += (uint64_t)sizes[i] * row;
	}
}

int32_t cep_prepare_split(struct cep_node *n, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "split");
	const struct exec_tensor *t = n->in[0];
	struct split_state *s = split_state(n);
	int64_t *sizes = s->sizes, dims[GENAI_MAX_RANK], sum = 0, each;
	uint32_t axis, count = 0;
	int32_t rc = cep_check(n, exec_split_attrs, 1, 2, EXEC_MAX_OUT, err);

	if (!rc)
		rc = need_bytes(n, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", 0), t->rank,
			      &axis, err);
	if (!rc && n->n_in > 1 && n->in[1])
		rc = cep_ints(n, 1, sizes, EXEC_MAX_OUT, &count, err);
	if (rc)
		return rc;
	if (a && a->kind == GENAI_ATTR_INTS && a->count <= EXEC_MAX_OUT) {
		count = (uint32_t)a->count;
		memcpy(sizes, a->ints, count * sizeof(sizes[0]));
	}
	if (!count) {
		count = n->n_out;
		each = (t->dims[axis] + count - 1) / count;
		for (uint32_t i = 0; i < count; i++) {
			int64_t left = t->dims[axis] - each * i;

			sizes[i] = left < 0 ? 0 : left < each ? left : each;
		}
	}
	for (uint32_t i = 0; i < count; i++)
		sum += sizes[i] < 0 ? INT32_MIN : sizes[i];
	if (count != n->n_out || sum != t->dims[axis])
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "the parts do not add up to %lld",
				     (long long)t->dims[axis]);
	memcpy(dims, t->dims, sizeof(dims));
	s->axis = axis;
	for (uint32_t i = 0; i < count && !rc; i++) {
		dims[axis] = sizes[i];
		rc = cep_out(n, i, t->dtype, t->rank, dims, err);
	}
	if (!rc)
		split_in_place(n, axis);
	return rc;
}

int32_t cep_run_split(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *t = n->in[0];
	const struct split_state *s = split_state(n);
	uint32_t size = cep_dtype_bytes(t->dtype);
	uint64_t at = t->addr;
	int32_t rc = 0;

	for (uint32_t i = 0; i < n->n_out && !rc; i++) {
		const struct exec_tensor *o = n->out[i];

		if (o)
			rc = cep_run_copy(r, size, o->rank, o->dims, o->addr,
					  o->strides, at, t->strides);
		at += (uint64_t)(s->sizes[i] * t->strides[s->axis]) * size;
	}
	return rc;
}

struct concat_state {
	uint32_t axis;
};
EXEC_STATE(concat_state, cep_node)

int32_t cep_prepare_concat(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis, rank;
	int32_t rc = cep_check(n, attrs, 1, EXEC_MAX_IN, 1, err);

	if (!rc)
		rc = need_bytes(n, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", 0),
			      n->in[0]->rank, &axis, err);
	if (rc)
		return rc;
	rank = n->in[0]->rank;
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	for (uint32_t i = 1; i < n->n_in; i++) {
		const struct exec_tensor *t = n->in[i];

		if (!t || t->rank != rank || t->dtype != n->in[0]->dtype)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u does not fit input 0",
					     i);
		for (uint32_t d = 0; d < rank; d++)
			if (d != axis && t->dims[d] != dims[d])
				return cep_node_fail(n, err, GENAI_E_FORMAT,
						     "input %u: dimension %u "
						     "differs",
						     i, d);
		dims[axis] += t->dims[axis];
	}
	concat_state(n)->axis = axis;
	return cep_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t cep_run_concat(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *o = n->out[0];
	uint32_t size = cep_dtype_bytes(o->dtype);
	uint32_t axis = concat_state(n)->axis;
	uint64_t at = o->addr;
	int32_t rc = 0;

	for (uint32_t i = 0; i < n->n_in && !rc; i++) {
		const struct exec_tensor *t = n->in[i];

		rc = cep_run_copy(r, size, t->rank, t->dims, at, o->strides,
				  t->addr, t->strides);
		at += (uint64_t)(t->dims[axis] * o->strides[axis]) * size;
	}
	return rc;
}
