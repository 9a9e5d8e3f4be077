// op_util.c - what prepare functions share: checks, shapes, error text.
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
	cep_fail(n->self, err, code, "node %s (%s): %s",
		 exec_label(n->node, n->out, n->n_out), n->node->op, text);
	if (err)
		err->node = n->index;
	return code;
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
	struct exec_text why;
	int32_t rc = exec_attr_check(n->node, attrs, &why);

	if (rc)
		return cep_node_fail(n, err, rc, "%s", why.s);
	if (n->n_in > max_in || n->n_out > max_out)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "%u inputs and %u outputs: at most %u and "
				     "%u are known",
				     n->n_in, n->n_out, max_in, max_out);
	for (uint32_t i = 0; i < n->n_in; i++)
		if (n->in[i] && is_small(n->in[i]->dtype))
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "input %u is of type %s, which is "
					     "not carried",
					     i,
					     exec_dtype_name(n->in[i]->dtype));
	for (uint32_t i = 0; i < min_in; i++)
		if (i >= n->n_in || !n->in[i])
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u is missing", i);
	return 0;
}

int32_t cep_out(struct cep_node *n, uint32_t i, uint32_t dtype, uint32_t rank,
		const int64_t *dims, struct genai_error *err)
{
	if (i >= n->n_out || !n->out[i])
		return 0;
	if (!exec_dims_legal(rank, dims))
		return cep_node_fail(n, err, GENAI_E_LIMIT,
				     "output %u of rank %u would have more "
				     "than 2^46 elements or %u dims",
				     i, rank, GENAI_MAX_RANK);
	exec_set_dense(n->out[i], dtype, rank, dims);
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
			     "input %u (%s) is of type %s, carried: float32, "
			     "float16, bfloat16",
			     i, n->in[i]->name,
			     exec_dtype_name(n->in[i]->dtype));
}

int32_t cep_need_index(const struct cep_node *n, uint32_t i,
		       struct genai_error *err)
{
	if (i >= n->n_in || !n->in[i] || n->in[i]->dtype == GENAI_DT_I32 ||
	    n->in[i]->dtype == GENAI_DT_I64)
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "input %u (%s) is of type %s, carried: int32, "
			     "int64",
			     i, n->in[i]->name,
			     exec_dtype_name(n->in[i]->dtype));
}

int32_t cep_need_same(const struct cep_node *n, uint32_t i, uint32_t k,
		      struct genai_error *err)
{
	if (i >= n->n_in || !n->in[i] || n->in[i]->dtype == n->in[k]->dtype)
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "inputs %u and %u differ in type: %s and %s", i, k,
			     exec_dtype_name(n->in[i]->dtype),
			     exec_dtype_name(n->in[k]->dtype));
}

int32_t cep_need_shape(const struct cep_node *n, uint32_t i, uint32_t rank,
		       const int64_t *dims, bool flat, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;

	if (!t || exec_is_shape(t, rank, dims, flat))
		return 0;
	return cep_node_fail(n, err, GENAI_E_INVAL,
			     "input %u of shape %s must have shape %s", i,
			     EXEC_SHAPE(t), exec_shape_text(rank, dims).s);
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
				     "input %u is of type %s", i,
				     exec_dtype_name(t->dtype));
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
