// op_util.c - what prepare functions share: attributes, checks, shapes.
#include <math.h>
#include <stdarg.h>
#include <stdio.h>

#include "modules/cuda_ep/op.h"

int32_t cep_node_fail(const struct cep_node *n, struct genai_error *err,
		      int32_t code, const char *fmt, ...)
{
	char text[320];
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	cep_fail(n->self, err, code, "node %s (%s): %s", n->node->name,
		 n->node->op, text);
	if (err)
		err->node = n->index;
	return code;
}

const struct genai_attr *cep_attr(const struct cep_node *n, const char *name)
{
	for (uint32_t i = 0; i < n->node->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n->node, i);

		if (strcmp(a->name, name) == 0)
			return a;
	}
	return NULL;
}

int64_t cep_attr_int(const struct cep_node *n, const char *name, int64_t d)
{
	const struct genai_attr *a = cep_attr(n, name);

	return a && a->kind == GENAI_ATTR_INT ? a->i : d;
}

float cep_attr_float(const struct cep_node *n, const char *name, float d)
{
	const struct genai_attr *a = cep_attr(n, name);

	return a && a->kind == GENAI_ATTR_FLOAT ? (float)a->f : d;
}

const char *cep_attr_string(const struct cep_node *n, const char *name,
			    const char *d)
{
	const struct genai_attr *a = cep_attr(n, name);

	return a && a->kind == GENAI_ATTR_STRING ? a->s : d;
}

// A value that no operator defines is not taken for another one.
static int32_t check_value(const struct cep_node *n, const struct genai_attr *a,
			   struct genai_error *err)
{
	static const char *const switches[] = {
		"allowzero",
		"causal",
		"do_rotary",
		"interleaved",
		"keepdims",
		"noop_with_empty_axes",
		"normalize_routing_weights",
		"rotary_interleaved",
		"select_last_index",
		"sliding_window_cache",
		"swiglu_limit_after_activation",
		"use_sparse_mixer",
	};
	// -1: not set
	int64_t least = strcmp(a->name, "smooth_softmax") ? 0 : -1;
	bool is_switch = least < 0;

	for (uint32_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
		is_switch |= !strcmp(switches[i], a->name);
	if (a->kind == GENAI_ATTR_FLOAT && isnan(a->f))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "attribute %s is NaN", a->name);
	if (is_switch &&
	    (a->kind != GENAI_ATTR_INT || a->i < least || a->i > 1))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "attribute %s is not %s0 or 1", a->name,
				     least ? "-1, " : "");
	return 0;
}

static bool is_small(uint32_t dtype)
{
	return (dtype >= GENAI_DT_F8E4M3FN && dtype <= GENAI_DT_F8E5M2FNUZ) ||
	       (dtype >= GENAI_DT_F4E2M1 && dtype <= GENAI_DT_I2);
}

int32_t cep_check(const struct cep_node *n, const char *const *attrs,
		  uint32_t min_in, uint32_t max_in, uint32_t max_out,
		  struct genai_error *err)
{
	for (uint32_t i = 0; i < n->node->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n->node, i);
		const char *name = a->name;
		uint32_t k = 0;
		int32_t rc = check_value(n, a, err);

		while (attrs && attrs[k] && strcmp(attrs[k], name))
			k++;
		if (!attrs || !attrs[k])
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "attribute %s is not known", name);
		if (rc)
			return rc;
	}
	if (n->n_in > max_in || n->n_out > max_out)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "%u inputs and %u outputs: at most %u and "
				     "%u are known",
				     n->n_in, n->n_out, max_in, max_out);
	for (uint32_t i = 0; i < n->n_in; i++)
		if (n->in[i] && is_small(n->in[i]->dtype))
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "input %u has dtype %u: floats of "
					     "8 or 4 bits and elements of 2 "
					     "are not carried",
					     i, n->in[i]->dtype);
	for (uint32_t i = 0; i < min_in; i++)
		if (i >= n->n_in || !n->in[i])
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u is missing", i);
	return 0;
}

int32_t cep_out(struct cep_node *n, uint32_t i, uint32_t dtype, uint32_t rank,
		const int64_t *dims, struct genai_error *err)
{
	struct exec_tensor *t = i < n->n_out ? n->out[i] : NULL;
	int64_t stride = 1;

	if (!t)
		return 0;
	if (rank > GENAI_MAX_RANK)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "output of rank %u", rank);
	t->dtype = dtype;
	t->rank = rank;
	for (uint32_t d = rank; d-- > 0;) {
		if (dims[d] < 0 ||
		    __builtin_mul_overflow(stride, dims[d] ? dims[d] : 1,
					   &stride) ||
		    stride > INT64_MAX / 16)
			return cep_node_fail(n, err, GENAI_E_LIMIT,
					     "output %u is too large", i);
		t->dims[d] = dims[d];
	}
	stride = 1;
	for (uint32_t d = rank; d-- > 0;) {
		t->strides[d] = stride;
		stride *= dims[d] ? dims[d] : 1;
	}
	return 0;
}

void cep_alias(struct cep_node *n, uint32_t i, uint32_t k, uint64_t offset)
{
	struct exec_tensor *t = n->out[i];

	if (!t)
		return;
	t->root = n->in[k]->root == EXEC_OWN ? n->in_value[k] : n->in[k]->root;
	t->offset = n->in[k]->offset + offset;
}

bool cep_is_float(uint32_t dtype)
{
	return dtype == GENAI_DT_F32 || dtype == GENAI_DT_F16 ||
	       dtype == GENAI_DT_BF16;
}

bool cep_is_int(uint32_t dtype)
{
	return dtype == GENAI_DT_I32 || dtype == GENAI_DT_I64 ||
	       dtype == GENAI_DT_U8 || dtype == GENAI_DT_I8 ||
	       dtype == GENAI_DT_U32 || dtype == GENAI_DT_BOOL;
}

int32_t cep_need_dense(const struct cep_node *n, uint32_t i,
		       struct genai_error *err)
{
	if (i >= n->n_in || !n->in[i] || exec_is_dense(n->in[i]))
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input %u (%s) is not contiguous", i,
			     n->in[i]->name);
}

int32_t cep_need_float(const struct cep_node *n, uint32_t i,
		       struct genai_error *err)
{
	if (i >= n->n_in || !n->in[i] || cep_is_float(n->in[i]->dtype))
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input %u (%s) has dtype %u: float, float16 and "
			     "bfloat16 are known",
			     i, n->in[i]->name, n->in[i]->dtype);
}

int32_t cep_need_index(const struct cep_node *n, uint32_t i,
		       struct genai_error *err)
{
	if (i >= n->n_in || !n->in[i] || n->in[i]->dtype == GENAI_DT_I32 ||
	    n->in[i]->dtype == GENAI_DT_I64)
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input %u (%s) has dtype %u: int32 and int64 are "
			     "known",
			     i, n->in[i]->name, n->in[i]->dtype);
}

int32_t cep_need_same(const struct cep_node *n, uint32_t i, uint32_t k,
		      struct genai_error *err)
{
	if (i >= n->n_in || !n->in[i] || n->in[i]->dtype == n->in[k]->dtype)
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input %u has dtype %u and input %u has %u", i,
			     n->in[i]->dtype, k, n->in[k]->dtype);
}

struct shape_text {
	char s[96];
};

static struct shape_text shape_text(uint32_t rank, const int64_t *dims)
{
	struct shape_text x = {"["};
	size_t k = 1;

	for (uint32_t i = 0; i < rank && k < sizeof(x.s) - 24; i++)
		k += (size_t)snprintf(x.s + k, sizeof(x.s) - k, "%s%lld",
				      i ? "," : "", (long long)dims[i]);
	snprintf(x.s + k, sizeof(x.s) - k, "]");
	return x;
}

int32_t cep_need_shape(const struct cep_node *n, uint32_t i, uint32_t rank,
		       const int64_t *dims, bool flat, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;

	if (!t || exec_is_shape(t, rank, dims, flat))
		return 0;
	return cep_node_fail(n, err, GENAI_E_INVAL,
			     "input %u of shape %s must have shape %s", i,
			     shape_text(t->rank, t->dims).s,
			     shape_text(rank, dims).s);
}

static int64_t int_at(const void *p, uint32_t dtype, uint64_t i)
{
	const char *b = p;
	int64_t v8;
	int32_t v4;

	switch (dtype) {
	case GENAI_DT_I64:
		memcpy(&v8, b + i * 8, 8);
		return v8;
	case GENAI_DT_I32:
		memcpy(&v4, b + i * 4, 4);
		return v4;
	default:
		return (unsigned char)b[i];
	}
}

int32_t cep_ints(const struct cep_node *n, uint32_t i, int64_t *out,
		 uint32_t cap, uint32_t *out_n, struct genai_error *err)
{
	const struct exec_tensor *t = n->in[i];
	uint64_t count = exec_count(t);

	if (t->dtype != GENAI_DT_I64 && t->dtype != GENAI_DT_I32 &&
	    t->dtype != GENAI_DT_BOOL)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "input %u has dtype %u", i, t->dtype);
	if (!t->value && count)
		return cep_node_fail(
			n, err, GENAI_E_UNSUPPORTED,
			"input %u (%s) is known only on the device", i,
			t->name);
	if (count > cap || t->rank > 1)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "input %u has %llu elements: at most %u",
				     i, (unsigned long long)count, cap);
	for (uint64_t k = 0; k < count; k++)
		out[k] = int_at(t->value, t->dtype, k);
	*out_n = (uint32_t)count;
	return 0;
}

int32_t cep_axis(const struct cep_node *n, int64_t axis, uint32_t rank,
		 uint32_t *out_axis, struct genai_error *err)
{
	if (axis < -(int64_t)rank || axis >= (int64_t)rank)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "axis %lld of rank %u", (long long)axis,
				     rank);
	*out_axis = (uint32_t)(axis < 0 ? axis + rank : axis);
	return 0;
}
