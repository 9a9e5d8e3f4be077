// ops_conv.c - Conv over up to three spatial axes, in the order of its
// definition.  Sums in double, which are the same however they are cut.
#include "modules/cpu_ref/ops.h"

#define AXES 3

struct conv {
	int64_t stride[AXES], pad[AXES], dilation[AXES], group;
};
EXEC_STATE(conv, cref_node)

// A list of one number an axis (or two, for pads), or what is usual.
static int32_t list(struct cref_node *n, const char *name, uint32_t count,
		    int64_t usual, int64_t *out, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, name);

	for (uint32_t i = 0; i < count; i++)
		out[i] = usual;
	if (!a)
		return GENAI_OK;
	if (a->kind != GENAI_ATTR_INTS || a->count != count)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "attribute '%s' must have %u entries",
				      name, count);
	for (uint32_t i = 0; i < count; i++) {
		out[i] = a->ints[i];
		if (out[i] < usual || out[i] > INT32_MAX)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "attribute '%s' holds %lld", name,
					      (long long)out[i]);
	}
	return GENAI_OK;
}

// The length of an axis, and what is put in front of it.
static int64_t spread(const char *automatic, int64_t x, int64_t k,
		      int64_t stride, int64_t dilation, const int64_t *pads,
		      int64_t *out_pad)
{
	int64_t reach = (k - 1) * dilation + 1, y, total;

	*out_pad = pads[0];
	if (!strcmp(automatic, "NOTSET"))
		return (x + pads[0] + pads[1] - reach) / stride + 1;
	*out_pad = 0;
	if (!strcmp(automatic, "VALID"))
		return (x - reach) / stride + 1;
	y = (x + stride - 1) / stride;
	total = (y - 1) * stride + reach - x;
	total = total < 0 ? 0 : total;
	*out_pad = !strcmp(automatic, "SAME_UPPER") ? total / 2
						    : total - total / 2;
	return y;
}

int32_t ops_conv_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {
		"auto_pad", "dilations", "group", "kernel_shape",
		"pads",	    "strides",	 NULL};
	const char *automatic = exec_attr_string(n->node, "auto_pad", "NOTSET");
	struct conv *c = conv(n);
	int64_t pads[2 * AXES], kernel[AXES];
	int64_t dims[GENAI_MAX_RANK], both[2];
	const struct exec_tensor *x, *w;
	uint32_t axes;
	int32_t rc = ops_check(n, attrs, 2, 3, 1, err);

	for (uint32_t i = 0; !rc && i < 3; i++)
		rc = ops_need_dtype(n, i, OPS_FLOATS, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 1, err);
	if (!rc)
		rc = ops_need_same_dtype(n, 0, 2, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 3, AXES + 2, err);
	if (rc)
		return rc;
	x = n->in[0];
	w = n->in[1];
	axes = x->rank - 2;
	c->group = exec_attr_int(n->node, "group", 1);
	if (w->rank != x->rank || c->group < 1 ||
	    w->dims[1] > INT64_MAX / c->group ||
	    w->dims[1] * c->group != x->dims[1] || w->dims[0] % c->group)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "weights of shape %s and %lld groups do "
				      "not fit data of shape %s",
				      EXEC_SHAPE(w), (long long)c->group,
				      EXEC_SHAPE(x));
	if (strcmp(automatic, "NOTSET") && strcmp(automatic, "VALID") &&
	    strcmp(automatic, "SAME_UPPER") && strcmp(automatic, "SAME_LOWER"))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "auto_pad is '%.40s'", automatic);
	if ((rc = list(n, "strides", axes, 1, c->stride, err)) ||
	    (rc = list(n, "dilations", axes, 1, c->dilation, err)) ||
	    (rc = list(n, "pads", 2 * axes, 0, pads, err)) ||
	    (rc = list(n, "kernel_shape", axes, 1, kernel, err)) ||
	    (rc = ops_need_shape(n, 2, 1, w->dims, false, err)))
		return rc;
	dims[0] = x->dims[0];
	dims[1] = w->dims[0];
	for (uint32_t d = 0; d < axes; d++) {
		int64_t k = w->dims[d + 2];

		if (exec_attr(n->node, "kernel_shape") && kernel[d] != k)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "kernel_shape differs from "
					      "weights of shape %s",
					      EXEC_SHAPE(w));
		both[0] = pads[d];
		both[1] = pads[d + axes];
		if (k < 1 || k > INT32_MAX || x->dims[d + 2] > INT32_MAX)
			return cref_node_fail(n, err, GENAI_E_LIMIT,
					      "an empty kernel, or an axis "
					      "beyond 2^31");
		dims[d + 2] = spread(automatic, x->dims[d + 2], k, c->stride[d],
				     c->dilation[d], both, &c->pad[d]);
		if (x->dims[d + 2] + both[0] + both[1] <
			    (k - 1) * c->dilation[d] + 1 &&
		    !strcmp(automatic, "NOTSET"))
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "the kernel of shape %s is "
					      "larger than data of shape %s",
					      EXEC_SHAPE(w), EXEC_SHAPE(x));
		dims[d + 2] = dims[d + 2] < 0 ? 0 : dims[d + 2];
	}
	return ops_out(n, 0, x->dtype, x->rank, dims, err);
}

static double value(const struct exec_tensor *t, int64_t at)
{
	double v;

	ops_load(OPS_F64, &v, t->dtype, t->data, at, 1, 1);
	return v;
}

static double element(const struct cref_node *n, uint64_t e)
{
	const struct conv *c = conv(n);
	const struct exec_tensor *x = n->in[0], *w = n->in[1];
	const struct exec_tensor *y = n->out[0];
	const uint32_t axes = x->rank - 2;
	int64_t at[AXES], m, first, rest = (int64_t)e;
	int64_t taps = (int64_t)ops_span(w, 2, w->rank);
	int64_t plane = (int64_t)ops_span(x, 2, x->rank);
	double sum = 0;

	for (uint32_t d = axes; d-- > 0; rest /= y->dims[d + 2])
		at[d] = rest % y->dims[d + 2];
	m = rest % y->dims[1];
	rest /= y->dims[1];
	first = rest * x->dims[1] + m / (w->dims[0] / c->group) * w->dims[1];
	for (int64_t ch = 0; ch < w->dims[1]; ch++)
		for (int64_t k = 0; k < taps; k++) {
			int64_t in = 0, span = 1, p, r = k;
			bool inside = true;

			for (uint32_t d = axes; d-- > 0;) {
				p = at[d] * c->stride[d] - c->pad[d] +
				    r % w->dims[d + 2] * c->dilation[d];
				r /= w->dims[d + 2];
				inside &= p >= 0 && p < x->dims[d + 2];
				in += p * span;
				span *= x->dims[d + 2];
			}
			if (inside)
				sum += value(x, (first + ch) * plane + in) *
				       value(w,
					     (m * w->dims[1] + ch) * taps + k);
		}
	return sum + (n->n_in > 2 && n->in[2] ? value(n->in[2], m) : 0);
}

static void part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;

	for (uint64_t e = begin; e < end; e++) {
		double v = element(n, e);

		ops_store(OPS_F64, &v, n->out[0]->dtype, n->out[0]->data,
			  (int64_t)e, 1, 1);
	}
}

int32_t ops_conv_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *w = n->in[1];
	uint64_t total = exec_count(n->out[0]);

	if (total)
		ops_rows(r->pool, part, n, total, ops_span(w, 1, w->rank) + 1);
	return GENAI_OK;
}
