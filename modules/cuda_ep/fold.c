/* fold.c - shape arithmetic, done on the host while planning.
 * Small integer vectors and scalars only; anything else runs on the device. */
#include "modules/cuda_ep/op.h"

#define MOST 64

static int64_t get(const struct cep_tensor *t, uint64_t i)
{
	int64_t v8;
	int32_t v4;

	if (t->dtype == GENAI_DT_I64) {
		memcpy(&v8, (const char *)t->value + i * 8, 8);
		return v8;
	}
	if (t->dtype == GENAI_DT_I32) {
		memcpy(&v4, (const char *)t->value + i * 4, 4);
		return v4;
	}
	return ((const unsigned char *)t->value)[i] != 0;
}

static void put(const struct cep_tensor *t, void *out, uint64_t i, int64_t v)
{
	int32_t v4 = (int32_t)v;

	if (t->dtype == GENAI_DT_I64)
		memcpy((char *)out + i * 8, &v, 8);
	else if (t->dtype == GENAI_DT_I32)
		memcpy((char *)out + i * 4, &v4, 4);
	else
		((unsigned char *)out)[i] = v != 0;
}

static bool small_int(const struct cep_tensor *t)
{
	return (t->dtype == GENAI_DT_I64 || t->dtype == GENAI_DT_I32 ||
		t->dtype == GENAI_DT_BOOL) &&
	       t->rank <= 1 && cep_count(t) <= MOST && cep_is_dense(t);
}

static bool arith(const char *op, int64_t a, int64_t b, int64_t *v)
{
	if (!strcmp(op, "Add"))
		return !__builtin_add_overflow(a, b, v);
	if (!strcmp(op, "Sub"))
		return !__builtin_sub_overflow(a, b, v);
	if (!strcmp(op, "Mul"))
		return !__builtin_mul_overflow(a, b, v);
	if (!strcmp(op, "Div")) {
		if (!b || (b == -1 && a == INT64_MIN))
			return false;
		*v = a / b;
		return true;
	}
	*v = !strcmp(op, "Min")		     ? (a < b ? a : b)
	     : !strcmp(op, "Max")	     ? (a > b ? a : b)
	     : !strcmp(op, "Equal")	     ? a == b
	     : !strcmp(op, "Less")	     ? a < b
	     : !strcmp(op, "LessOrEqual")    ? a <= b
	     : !strcmp(op, "Greater")	     ? a > b
	     : !strcmp(op, "GreaterOrEqual") ? a >= b
	     : !strcmp(op, "And")	     ? (a && b)
	     : !strcmp(op, "Or")	     ? (a || b)
					     : -2;
	return *v != -2;
}

static bool fold_binary(struct cep_node *n, void *out)
{
	const struct cep_tensor *a = n->in[0], *b = n->in[1], *o = n->out[0];

	for (uint64_t i = 0; i < cep_count(o); i++) {
		int64_t v, x = get(a, cep_count(a) == 1 ? 0 : i);

		if (!arith(n->node->op, x, get(b, cep_count(b) == 1 ? 0 : i),
			   &v))
			return false;
		put(o, out, i, v);
	}
	return true;
}

static bool fold_slice(struct cep_node *n, void *out)
{
	const struct cep_tensor *t = n->in[0], *o = n->out[0];
	int64_t at = n->i[0] / cep_dtype_bytes(t->dtype);

	for (uint64_t i = 0; i < cep_count(o); i++)
		put(o, out, i, get(t, (uint64_t)(at + (int64_t)i * n->i[1])));
	return true;
}

static bool fold_gather(struct cep_node *n, void *out)
{
	const struct cep_tensor *t = n->in[0], *idx = n->in[1], *o = n->out[0];

	for (uint64_t i = 0; i < cep_count(o); i++) {
		int64_t k = get(idx, i), len = t->dims[0];

		if (k < -len || k >= len)
			return false;
		put(o, out, i, get(t, (uint64_t)(k < 0 ? k + len : k)));
	}
	return true;
}

static bool fold_concat(struct cep_node *n, void *out)
{
	uint64_t at = 0;

	for (uint32_t k = 0; k < n->n_in; k++)
		for (uint64_t i = 0; i < cep_count(n->in[k]); i++)
			put(n->out[0], out, at++, get(n->in[k], i));
	return true;
}

static bool fold_copy(struct cep_node *n, void *out)
{
	for (uint64_t i = 0; i < cep_count(n->out[0]); i++)
		put(n->out[0], out, i, get(n->in[0], i));
	return true;
}

bool cep_fold(struct cep_node *n, void *out, uint64_t cap)
{
	static const char *const binary[] = {"Add",
					     "Sub",
					     "Mul",
					     "Div",
					     "Min",
					     "Max",
					     "Equal",
					     "Less",
					     "LessOrEqual",
					     "Greater",
					     "GreaterOrEqual",
					     "And",
					     "Or"};
	static const char *const copies[] = {"Cast",	"Identity",  "Reshape",
					     "Squeeze", "Unsqueeze", "Flatten"};
	const char *op = n->node->op;
	const struct cep_tensor *o = n->n_out == 1 ? n->out[0] : NULL;

	if (*n->node->domain || !o || !small_int(o) || cep_bytes(o) > cap)
		return false;
	if (!strcmp(op, "Shape")) {
		for (uint64_t i = 0; i < cep_count(o); i++)
			put(o, out, i, n->in[0]->dims[n->i[0] + (int64_t)i]);
		return true;
	}
	for (uint32_t i = 0; i < n->n_in; i++)
		if (n->in[i] && (!n->in[i]->value || !small_int(n->in[i])))
			return false;
	for (size_t i = 0; i < sizeof(binary) / sizeof(binary[0]); i++)
		if (!strcmp(op, binary[i]))
			return fold_binary(n, out);
	for (size_t i = 0; i < sizeof(copies) / sizeof(copies[0]); i++)
		if (!strcmp(op, copies[i]))
			return fold_copy(n, out);
	if (!strcmp(op, "Gather") && n->in[0]->rank == 1)
		return fold_gather(n, out);
	if (!strcmp(op, "Slice") && n->in[0]->rank == 1)
		return fold_slice(n, out);
	if (!strcmp(op, "Concat"))
		return fold_concat(n, out);
	return false;
}
