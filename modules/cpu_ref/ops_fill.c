// ops_fill.c - operators that write values beside copied ones: Pad, Trilu.
#include "modules/cpu_ref/ops.h"

static void copy_one(struct exec_tensor *y, uint64_t to,
		     const struct exec_tensor *x, uint64_t from)
{
	uint64_t size = exec_bits(y->dtype) / 8;

	memcpy((char *)y->data + to * size, (const char *)x->data + from * size,
	       size);
}

// ---- Trilu ----

int32_t ops_trilu_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"upper", NULL};
	int32_t rc = ops_check(n, attrs, 1, 2, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, GENAI_MAX_RANK, err);
	if (!rc)
		rc = ops_need_dtype(n, 1, OPS_BIT(GENAI_DT_I64), err);
	if (!rc && n->n_in > 1 && n->in[1] && exec_count(n->in[1]) != 1)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "k of shape %s must be one number",
				    EXEC_SHAPE(n->in[1]));
	return rc ? rc
		  : ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank,
			    n->in[0]->dims, err);
}

int32_t ops_trilu_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[0];
	uint64_t size = exec_bits(x->dtype) / 8;
	int64_t rows = x->dims[x->rank - 2], cols = x->dims[x->rank - 1];
	bool upper = exec_attr_int(n->node, "upper", 1) != 0;
	uint64_t total = rows && cols ? exec_count(x) / (uint64_t)cols : 0;
	int64_t k = 0;

	(void)r;
	if (n->n_in > 1 && n->in[1])
		k = ops_get_int(n->in[1], n->in[1]->data, 0);
	k = k > cols ? cols : k < -rows ? -rows : k;
	for (uint64_t i = 0; i < total; i++) {
		// upper keeps columns [cut, cols), lower [0, cut)
		int64_t cut = (int64_t)(i % (uint64_t)rows) + k + !upper;
		char *y = (char *)n->out[0]->data + i * (uint64_t)cols * size;
		const char *s =
			(const char *)x->data + i * (uint64_t)cols * size;
		uint64_t c = (uint64_t)(cut < 0 ? 0 : cut > cols ? cols : cut);
		uint64_t lo = c * size, all = (uint64_t)cols * size;

		if (upper) {
			memset(y, 0, lo);
			memmove(y + lo, s + lo, all - lo);
		} else {
			memmove(y, s, lo);
			memset(y + lo, 0, all - lo);
		}
	}
	return GENAI_OK;
}

// ---- Pad ----

enum { PAD_CONSTANT, PAD_REFLECT, PAD_EDGE, PAD_WRAP };

struct pad_state {
	int64_t mode, begin[GENAI_MAX_RANK];
};
EXEC_STATE(pad_state, cref_node)

static int32_t pad_mode(struct cref_node *n, struct genai_error *err)
{
	static const char *const names[] = {"constant", "reflect", "edge",
					    "wrap"};
	const char *s = exec_attr_string(n->node, "mode", "constant");

	for (int i = 0; i < 4; i++)
		if (!strcmp(s, names[i])) {
			pad_state(n)->mode = i;
			return GENAI_OK;
		}
	return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
			      "mode is '%.40s', carried: constant, reflect, "
			      "edge, wrap",
			      s);
}

// The pads (begins, then ends) and the axes they are for, from inputs or,
// before opset 11, attributes.
static int32_t pad_list(struct cref_node *n, int64_t *pads, uint32_t *axes,
			uint32_t *out_count, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "pads");
	uint32_t rank = n->in[0]->rank, count = 0, given = rank, seen = 0;
	int64_t list[GENAI_MAX_RANK];
	int32_t rc = GENAI_OK;

	if (n->n_in > 1 && n->in[1]) {
		rc = ops_ints(n, 1, pads, 2 * GENAI_MAX_RANK, &count, err);
	} else if (a && a->kind == GENAI_ATTR_INTS && a->count &&
		   a->count <= 2 * GENAI_MAX_RANK) {
		count = (uint32_t)a->count;
		memcpy(pads, a->ints, count * sizeof(pads[0]));
	}
	for (uint32_t i = 0; i < rank; i++)
		axes[i] = i;
	if (!rc && n->n_in > 3 && n->in[3])
		rc = ops_ints(n, 3, list, GENAI_MAX_RANK, &given, err);
	else
		list[0] = 0;
	for (uint32_t i = 0; !rc && n->n_in > 3 && n->in[3] && i < given; i++) {
		rc = ops_axis(n, list[i], rank, &axes[i], err);
		if (!rc && (seen >> axes[i]) & 1)
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "axis %u is given twice", axes[i]);
		if (!rc)
			seen |= 1u << axes[i];
	}
	if (!rc && count != 2 * given)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "%u pads for %u axes of shape %s", count,
				    given, EXEC_SHAPE(n->in[0]));
	*out_count = given;
	return rc;
}

int32_t ops_pad_prepare(struct cref_node *n, struct genai_error *err)
{
	struct pad_state *s = pad_state(n);
	static const char *const attrs[] = {"mode", "pads", "value", NULL};
	int64_t pads[2 * GENAI_MAX_RANK], dims[GENAI_MAX_RANK];
	uint32_t axes[GENAI_MAX_RANK], count;
	bool old = n->node->opset < 11;
	int32_t rc = ops_check(n, attrs, old ? 1 : 2, old ? 1 : 4, 1, err);

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_BYTES, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc && n->n_in > 2 && n->in[2] && exec_count(n->in[2]) != 1)
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "value of shape %s must be one element",
				    EXEC_SHAPE(n->in[2]));
	if (!rc)
		rc = pad_mode(n, err);
	if (!rc)
		rc = pad_list(n, pads, axes, &count, err);
	if (rc)
		return rc;
	memset(s->begin, 0, sizeof(s->begin));
	memcpy(dims, n->in[0]->dims, sizeof(dims));
	for (uint32_t i = 0; i < count; i++) {
		int64_t b = pads[i], e = pads[count + i], *d = &dims[axes[i]];
		int64_t old_dim = *d;

		s->begin[axes[i]] = b;
		if (__builtin_add_overflow(*d, b, d) ||
		    __builtin_add_overflow(*d, e, d) || *d < 0 ||
		    b < -old_dim || e < -old_dim ||
		    (!old_dim && *d && s->mode != PAD_CONSTANT))
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "pads %lld and %lld of axis %u "
					      "of shape %s",
					      (long long)b, (long long)e,
					      axes[i], EXEC_SHAPE(n->in[0]));
	}
	return ops_out(n, 0, n->in[0]->dtype, n->in[0]->rank, dims, err);
}

// The input's position that shows at position i (already without the begin) of
// a padded axis, or -1 for the constant.
static int64_t pad_source(int64_t mode, int64_t i, int64_t dim)
{
	int64_t period = 2 * (dim - 1);

	if (i >= 0 && i < dim)
		return i;
	switch (mode) {
	case PAD_EDGE:
		return i < 0 ? 0 : dim - 1;
	case PAD_WRAP:
		i %= dim;
		return i < 0 ? i + dim : i;
	case PAD_REFLECT:
		if (dim == 1)
			return 0;
		i %= period;
		i = i < 0 ? i + period : i;
		return i < dim ? i : period - i;
	default:
		return -1;
	}
}

int32_t ops_pad_run(struct cref_node *n, const struct cref_run *r)
{
	const struct pad_state *s = pad_state(n);
	const struct exec_tensor *x = n->in[0];
	const struct exec_tensor *v = n->n_in > 2 ? n->in[2] : NULL;
	struct exec_tensor *y = n->out[0], fill = *x;
	enum ops_class c = ops_class_of(x->dtype);
	float attr = (float)exec_attr_float(n->node, "value", 0);
	uint64_t total = exec_count(y), value = 0;

	(void)r;
	fill.data = &value;
	if (v)
		fill.data = v->data;
	else if (c == OPS_F32)
		ops_store(c, &attr, x->dtype, &value, 0, 1, 1);
	for (uint64_t i = 0; i < total; i++) {
		uint64_t rest = i, from = 0, step = 1;
		bool inside = true;

		for (uint32_t d = y->rank; d-- > 0;) {
			int64_t at = (int64_t)(rest % (uint64_t)y->dims[d]);
			int64_t at_x = pad_source(s->mode, at - s->begin[d],
						  x->dims[d]);

			rest /= (uint64_t)y->dims[d];
			inside = inside && at_x >= 0;
			from += (uint64_t)at_x * step;
			step *= (uint64_t)x->dims[d];
		}
		copy_one(y, i, inside ? x : &fill, inside ? from : 0);
	}
	return GENAI_OK;
}

// ---- ConstantOfShape ----

struct fill_state {
	uint64_t bits; // of an element
};
EXEC_STATE(fill_state, cref_node)

int32_t ops_constant_of_shape_prepare(struct cref_node *n,
				      struct genai_error *err)
{
	static const char *const attrs[] = {"value", NULL};
	int64_t dims[GENAI_MAX_RANK];
	uint32_t rank = 0, dtype = 0;
	struct exec_text why;
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);

	if (!rc)
		rc = ops_ints(n, 0, dims, GENAI_MAX_RANK, &rank, err);
	for (uint32_t i = 0; !rc && i < rank; i++)
		if (dims[i] < 0)
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "dim %u would be %lld", i,
					    (long long)dims[i]);
	if (rc)
		return rc;
	rc = exec_fill_value(n->graph, n->node, &dtype, &fill_state(n)->bits,
			     &why);
	if (rc)
		return cref_node_fail(n, err, rc, "%s", why.s);
	return ops_out(n, 0, dtype, rank, dims, err);
}

int32_t ops_constant_of_shape_run(struct cref_node *n, const struct cref_run *r)
{
	struct exec_tensor *y = n->out[0];
	uint64_t size = exec_bits(y->dtype) / 8;
	uint64_t total = exec_count(y);

	(void)r;
	for (uint64_t i = 0; i < total; i++)
		memcpy((char *)y->data + i * size, &fill_state(n)->bits, size);
	return GENAI_OK;
}

// ---- EyeLike ----

int32_t ops_eye_like_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"dtype", "k", NULL};
	int32_t rc = ops_check(n, attrs, 1, 1, 1, err);
	int64_t to;

	if (!rc)
		rc = ops_need_rank(n, 0, 2, 2, err);
	if (rc)
		return rc;
	to = exec_attr_int(n->node, "dtype", n->in[0]->dtype);
	if (to < 0 || to > 31 || !(OPS_BYTES & OPS_BIT(to)))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED, "dtype %lld",
				      (long long)to);
	return ops_out(n, 0, (uint32_t)to, 2, n->in[0]->dims, err);
}

// Reads no data of its input.
int32_t ops_eye_like_run(struct cref_node *n, const struct cref_run *r)
{
	struct exec_tensor *y = n->out[0];
	int64_t rows = y->dims[0], cols = y->dims[1], one = 1;
	int64_t k = exec_attr_int(n->node, "k", 0);

	(void)r;
	if (!rows || !cols)
		return GENAI_OK;
	memset(y->data, 0, exec_count(y) * exec_bits(y->dtype) / 8);
	for (int64_t i = 0; i < rows; i++)
		if (k >= -i && k < cols - i)
			ops_store(OPS_I64, &one, y->dtype, y->data,
				  i * cols + i + k, 1, 1);
	return GENAI_OK;
}
