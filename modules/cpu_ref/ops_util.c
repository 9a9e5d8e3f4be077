// ops_util.c - checks that operators share, attributes, error text.
#include "modules/cpu_ref/ops.h"

#include <stdarg.h>
#include <stdio.h>

// Keep a message one line, and mark a cut one.
static void tame(char *text, size_t cap, int wanted)
{
	if (wanted >= (int)cap) {
		size_t k = cap - 4;

		while (k && ((unsigned char)text[k] & 0xc0) == 0x80)
			k--;
		memcpy(text + k, "...", 4);
	}
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

int32_t cref_node_fail(const struct cref_node *n, struct genai_error *err,
		       int32_t code, const char *fmt, ...)
{
	va_list ap;
	int k;

	if (!err)
		return code;
	err->code = code;
	err->line = 0;
	err->node = GENAI_NONE;
	snprintf(err->module, sizeof(err->module), "cpu_ref");
	err->file[0] = 0;
	k = snprintf(err->text, sizeof(err->text), "node %.200s (%.60s): ",
		     exec_label(n->node, n->out, n->n_out), n->node->op);
	va_start(ap, fmt);
	k += vsnprintf(err->text + k, sizeof(err->text) - (size_t)k, fmt, ap);
	va_end(ap);
	tame(err->text, sizeof(err->text), k);
	return code;
}

int32_t cref_attr_check(const struct cref_node *n, const char *const *known,
			struct genai_error *err)
{
	struct exec_text why;
	int32_t rc = exec_attr_check(n->node, known, &why);

	return rc ? cref_node_fail(n, err, rc, "%s", why.s) : GENAI_OK;
}

static int32_t check_input(struct cref_node *n, uint32_t i,
			   struct genai_error *err)
{
	const struct exec_tensor *t = n->in[i];

	if (!exec_bits(t->dtype))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "input %u '%.60s' is of type %s", i,
				      t->name ? t->name : "",
				      exec_dtype_name(t->dtype));
	if (!exec_dims_legal(t->rank, t->dims))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "input %u '%.60s' of rank %u has illegal "
				      "or too large dims",
				      i, t->name ? t->name : "", t->rank);
	if (!exec_is_dense(t))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "input %u '%.60s' is not dense", i,
				      t->name ? t->name : "");
	return GENAI_OK;
}

int32_t ops_check(struct cref_node *n, const char *const *attrs,
		  uint32_t min_in, uint32_t max_in, uint32_t max_out,
		  struct genai_error *err)
{
	int32_t rc = cref_attr_check(n, attrs, err);

	if (rc)
		return rc;
	if (n->n_in < min_in || n->n_in > max_in)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "has %u inputs, must have %u to %u",
				      n->n_in, min_in, max_in);
	if (!n->n_out || n->n_out > max_out)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "has %u outputs, must have 1 to %u",
				      n->n_out, max_out);
	for (uint32_t i = 0; i < n->n_in; i++) {
		if (!n->in[i] && i < min_in)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "input %u is missing", i);
		rc = n->in[i] ? check_input(n, i, err) : GENAI_OK;
		if (rc)
			return rc;
	}
	return GENAI_OK;
}

int32_t ops_out(struct cref_node *n, uint32_t i, uint32_t dtype, uint32_t rank,
		const int64_t *dims, struct genai_error *err)
{
	if (i >= n->n_out || !n->out[i])
		return GENAI_OK;
	if (!exec_dims_legal(rank, dims))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "output %u of rank %u would have more "
				      "than 2^46 elements or %u dims",
				      i, rank, GENAI_MAX_RANK);
	exec_set_dense(n->out[i], dtype, rank, dims);
	return GENAI_OK;
}

int32_t ops_need_dtype(struct cref_node *n, uint32_t i, uint32_t mask,
		       struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;
	char want[160] = "";
	size_t k = 0;

	if (!t || ops_is(t, mask))
		return GENAI_OK;
	for (uint32_t d = 0; d < 32 && k < sizeof(want) - 16; d++)
		if (mask & OPS_BIT(d))
			k += (size_t)snprintf(want + k, sizeof(want) - k,
					      "%s%s", k ? ", " : "",
					      exec_dtype_name(d));
	return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
			      "input %u '%.60s' is of type %s, carried: %s", i,
			      t->name ? t->name : "", exec_dtype_name(t->dtype),
			      want);
}

int32_t ops_need_same_dtype(struct cref_node *n, uint32_t i, uint32_t j,
			    struct genai_error *err)
{
	if (i >= n->n_in || j >= n->n_in || !n->in[i] || !n->in[j] ||
	    n->in[i]->dtype == n->in[j]->dtype)
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "inputs %u and %u differ in type: %s and %s", i,
			      j, exec_dtype_name(n->in[i]->dtype),
			      exec_dtype_name(n->in[j]->dtype));
}

int32_t ops_need_shape(struct cref_node *n, uint32_t i, uint32_t rank,
		       const int64_t *dims, bool flat, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;
	struct exec_tensor want;

	if (!t || exec_is_shape(t, rank, dims, flat))
		return GENAI_OK;
	exec_set_dense(&want, t->dtype, rank, dims);
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "input %u '%.60s' of shape %s must have shape "
			      "%s",
			      i, t->name ? t->name : "", EXEC_SHAPE(t),
			      EXEC_SHAPE(&want));
}

int32_t ops_need_rank(struct cref_node *n, uint32_t i, uint32_t min,
		      uint32_t max, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;

	if (!t || (t->rank >= min && t->rank <= max))
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "input %u '%.60s' of shape %s must have rank %u "
			      "to %u",
			      i, t->name ? t->name : "", EXEC_SHAPE(t), min,
			      max);
}
