// ops_shape.c - operators that only rename a tensor's shape, and those that
// make tensors out of shapes.
#include "modules/cpu_ref/ops.h"

#include <math.h>

// Copy for the operators that alias (when an output cannot share its bytes).
int32_t ops_alias_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t bits = exec_count(n->in[0]) * exec_bits(n->in[0]->dtype);

	(void)r;
	if (bits && n->out[0]->data != n->in[0]->data)
		memmove(n->out[0]->data, n->in[0]->data,
			(size_t)((bits + 7) / 8));
	return GENAI_OK;
}

int32_t ops_identity_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, NULL, 1, 1, 1, err);

	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank,
			    n->in[0]->dims, err);
}

// Reshape: 0 copies the input's dim (unless allowzero), one -1 is inferred.
static int32_t reshape_dims(struct cref_node *n, int64_t *dims, uint32_t rank,
			    struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0];
	bool allow_zero = exec_attr_int(n->node, "allowzero", 0) != 0;
	uint64_t known = 1, total = exec_count(x);
	int64_t infer = -1;
	struct exec_tensor want = {.rank = rank};

	memcpy(want.dims, dims, rank * sizeof(dims[0]));
	for (uint32_t i = 0; i < rank; i++) {
		if (dims[i] == 0 && !allow_zero && i < x->rank)
			dims[i] = x->dims[i];
		else if (dims[i] == 0 && !allow_zero)
			goto bad;
		if (dims[i] == -1 && infer < 0) {
			infer = i;
			continue;
		}
		if (dims[i] < 0 ||
		    __builtin_mul_overflow(known, (uint64_t)dims[i], &known))
			goto bad;
	}
	if (infer >= 0) {
		if (!known || total % known)
			goto bad;
		dims[infer] = (int64_t)(total / known);
	} else if (known != total) {
		goto bad;
	}
	return GENAI_OK;
bad:
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "data of shape %s cannot take shape %s",
			      EXEC_SHAPE(x), EXEC_SHAPE(&want));
}

int32_t ops_reshape_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"allowzero", NULL};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank;
	int32_t rc = ops_check(n, attrs, 2, 2, 1, err);

	if (!rc)
		rc = ops_ints(n, 1, dims, GENAI_MAX_RANK, &rank, err);
	if (!rc)
		rc = reshape_dims(n, dims, rank, err);
	return rc ? rc : ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t ops_flatten_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	int64_t axis = exec_attr_int(n->node, "axis", 1), dims[2];
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);
	uint32_t rank;

	if (rc)
		return rc;
	rank = n->in[0]->rank;
	if (axis < -(int64_t)rank || axis > (int64_t)rank)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "axis %lld is outside [-%u, %u]",
				      (long long)axis, rank, rank);
	if (axis < 0)
		axis += rank;
	dims[0] = (int64_t)ops_span(n->in[0], 0, (uint32_t)axis);
	dims[1] = (int64_t)ops_span(n->in[0], (uint32_t)axis, rank);
	return ops_out(n, 0, n->in[0]->dtype, 2, dims, err);
}

static const char *const axes_attr[] = {"axes", NULL};

int32_t ops_squeeze_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, axes_attr, 1, 2, 1, err);
	int64_t dims[GENAI_MAX_RANK];
	uint32_t mask, rank = 0;
	bool given;

	if (!rc)
		rc = ops_axes(n, 1, n->in[0]->rank, &mask, &given, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < n->in[0]->rank; i++) {
		bool drop = given ? (mask >> i) & 1 : n->in[0]->dims[i] == 1;

		if (drop && n->in[0]->dims[i] != 1)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "axis %u of shape %s is not 1", i,
					      EXEC_SHAPE(n->in[0]));
		if (!drop)
			dims[rank++] = n->in[0]->dims[i];
	}
	return ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

int32_t ops_unsqueeze_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, axes_attr, 1, 2, 1, err);
	const struct genai_attr *a = exec_attr(n->node, "axes");
	int64_t dims[GENAI_MAX_RANK];
	uint32_t mask, rank, from = 0;
	uint64_t added;
	bool given;

	if (rc)
		return rc;
	added = n->n_in > 1 && n->in[1] ? exec_count(n->in[1])
		: a			? a->count
					: 0;
	if (added > GENAI_MAX_RANK || n->in[0]->rank + added > GENAI_MAX_RANK)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "shape %s and %llu axes exceed %d dims",
				      EXEC_SHAPE(n->in[0]),
				      (unsigned long long)added,
				      GENAI_MAX_RANK);
	rank = n->in[0]->rank + (uint32_t)added;
	rc = ops_axes(n, 1, rank, &mask, &given, err);
	if (!rc && !given)
		rc = cref_node_fail(n, err, GENAI_E_INVAL, "axes are missing");
	for (uint32_t i = 0; !rc && i < rank; i++)
		dims[i] = (mask >> i) & 1 ? 1 : n->in[0]->dims[from++];
	return rc ? rc : ops_out(n, 0, n->in[0]->dtype, rank, dims, err);
}

// Dropout at inference: the data, and a mask of ones.
int32_t ops_dropout_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"seed", "ratio", NULL};
	int32_t rc = ops_check(n, attrs, 1, 3, 2, err);
	const struct exec_tensor *x, *mode;

	if (rc)
		return rc;
	x = n->in[0];
	mode = n->n_in > 2 ? n->in[2] : NULL;
	if (mode &&
	    (mode->dtype != GENAI_DT_BOOL || !mode->value ||
	     exec_count(mode) != 1 || ops_get_int(mode, mode->value, 0)))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "training_mode must be known to be "
				      "false");
	rc = ops_out(n, 0, x->dtype, x->rank, x->dims, err);
	return rc ? rc : ops_out(n, 1, GENAI_DT_BOOL, x->rank, x->dims, err);
}

int32_t ops_dropout_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t count = exec_count(n->in[0]);

	if (n->out[0])
		ops_alias_run(n, r);
	if (count && n->n_out > 1 && n->out[1])
		memset(n->out[1]->data, 1, count);
	return GENAI_OK;
}

// ---- shapes as data ----

struct shape_state {
	int64_t start;
};
EXEC_STATE(shape_state, cref_node)

int32_t ops_shape_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_shape_attrs, 1, 1, 1, err);
	int64_t start, end, rank;

	if (rc)
		return rc;
	rank = n->in[0]->rank;
	start = exec_attr_int(n->node, "start", 0);
	end = exec_attr_int(n->node, "end", rank);
	start = start < -rank ? 0 : start < 0 ? start + rank : start;
	end = end < -rank ? 0 : end < 0 ? end + rank : end;
	end = end > rank ? rank : end;
	start = start > end ? end : start;
	shape_state(n)->start = start;
	end -= start;
	return ops_out(n, 0, GENAI_DT_I64, 1, &end, err);
}

// Reads no data: the input's may be NULL.
int32_t ops_shape_run(struct cref_node *n, const struct cref_run *r)
{
	(void)r;
	memcpy(n->out[0]->data, n->in[0]->dims + shape_state(n)->start,
	       (size_t)n->out[0]->dims[0] * sizeof(int64_t));
	return GENAI_OK;
}

int32_t ops_size_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, NULL, 1, 1, 1, err);

	return rc ? rc : ops_out(n, 0, GENAI_DT_I64, 0, NULL, err);
}

int32_t ops_size_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t count = exec_count(n->in[0]);

	(void)r;
	memcpy(n->out[0]->data, &count, sizeof(count));
	return GENAI_OK;
}

// ---- Range ----

// Number of steps from start to limit, or < 0.
static int64_t range_count_int(struct cref_node *n)
{
	__int128 start = ops_get_int(n->in[0], n->in[0]->value, 0);
	__int128 limit = ops_get_int(n->in[1], n->in[1]->value, 0);
	__int128 delta = ops_get_int(n->in[2], n->in[2]->value, 0), k;

	if (delta == 0)
		return -1;
	k = delta > 0 ? (limit - start + delta - 1) / delta
		      : (start - limit - delta - 1) / -delta;
	if (delta > 0 ? limit <= start : limit >= start)
		k = 0;
	return k > INT64_MAX ? INT64_MAX : (int64_t)k;
}

static int64_t range_count_real(struct cref_node *n)
{
	double v[3], k;

	for (uint32_t i = 0; i < 3; i++)
		ops_load(OPS_F64, &v[i], n->in[i]->dtype, n->in[i]->value, 0, 1,
			 1);
	k = ceil((v[1] - v[0]) / v[2]);
	if (v[2] == 0 || k != k)
		return -1;
	return k <= 0 ? 0 : k > 0x1p46 ? (int64_t)1 << 46 : (int64_t)k;
}

int32_t ops_range_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"stash_type", NULL};
	int32_t rc = ops_check(n, attrs, 3, 3, 1, err);
	int64_t count;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	for (uint32_t i = 0; !rc && i < 3; i++) {
		rc = ops_need_same_dtype(n, 0, i, err);
		if (!rc && exec_count(n->in[i]) != 1)
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "input %u of shape %s must be one "
					    "number",
					    i, EXEC_SHAPE(n->in[i]));
		if (!rc && !n->in[i]->value)
			rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
					    "input '%.60s' must be known while "
					    "planning",
					    n->in[i]->name ? n->in[i]->name
							   : "");
	}
	if (rc)
		return rc;
	count = ops_is(n->in[0], OPS_FLOATS) ? range_count_real(n)
					     : range_count_int(n);
	if (count < 0)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "the step is 0 or not a number");
	return ops_out(n, 0, n->in[0]->dtype, 1, &count, err);
}

int32_t ops_range_run(struct cref_node *n, const struct cref_run *r)
{
	struct exec_tensor *out = n->out[0];
	enum ops_class c = ops_class_of(out->dtype);
	union {
		float f;
		double d;
		uint64_t u;
	} s, d;

	(void)r;
	ops_load(c, &s, out->dtype, n->in[0]->data, 0, 1, 1);
	ops_load(c, &d, out->dtype, n->in[2]->data, 0, 1, 1);
	for (int64_t i = 0; i < out->dims[0]; i++) {
		union {
			float f;
			double d;
			uint64_t u;
		} v;

		if (c == OPS_F32)
			v.f = s.f + (float)i * d.f;
		else if (c == OPS_F64)
			v.d = s.d + (double)i * d.d;
		else
			v.u = s.u + (uint64_t)i * d.u;
		ops_store(c, &v, out->dtype, out->data, i, 1, 1);
	}
	return GENAI_OK;
}
