// fold.c - shape arithmetic, done on the host while planning.
// Small integer vectors and scalars only; anything else runs on the device.
#include "modules/cuda_ep/op.h"

#define MOST 64

int64_t cep_fold_get(const struct exec_tensor *t, uint64_t i)
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

void cep_fold_put(const struct exec_tensor *t, void *out, uint64_t i, int64_t v)
{
	int32_t v4 = (int32_t)v;

	if (t->dtype == GENAI_DT_I64)
		memcpy((char *)out + i * 8, &v, 8);
	else if (t->dtype == GENAI_DT_I32)
		memcpy((char *)out + i * 4, &v4, 4);
	else
		((unsigned char *)out)[i] = v != 0;
}

static bool small_int(const struct exec_tensor *t)
{
	return (t->dtype == GENAI_DT_I64 || t->dtype == GENAI_DT_I32 ||
		t->dtype == GENAI_DT_BOOL) &&
	       t->rank <= 1 && exec_count(t) <= MOST && exec_is_dense(t);
}

static bool arith(enum cep_ew_op op, int64_t a, int64_t b, int64_t *v)
{
	switch (op) {
	case CEP_EW_ADD:
		return !__builtin_add_overflow(a, b, v);
	case CEP_EW_SUB:
		return !__builtin_sub_overflow(a, b, v);
	case CEP_EW_MUL:
		return !__builtin_mul_overflow(a, b, v);
	case CEP_EW_DIV:
		if (!b || (b == -1 && a == INT64_MIN))
			return false;
		*v = a / b;
		return true;
	case CEP_EW_MIN:
		*v = a < b ? a : b;
		return true;
	case CEP_EW_MAX:
		*v = a > b ? a : b;
		return true;
	case CEP_EW_EQUAL:
		*v = a == b;
		return true;
	case CEP_EW_LESS:
		*v = a < b;
		return true;
	case CEP_EW_LESS_EQ:
		*v = a <= b;
		return true;
	case CEP_EW_GREATER:
		*v = a > b;
		return true;
	case CEP_EW_GREATER_EQ:
		*v = a >= b;
		return true;
	case CEP_EW_AND:
		*v = a && b;
		return true;
	case CEP_EW_OR:
		*v = a || b;
		return true;
	default:
		return false;
	}
}

bool cep_fold_binary(const struct cep_node *n, void *out)
{
	const struct exec_tensor *a = n->in[0], *b = n->in[1], *o = n->out[0];

	for (uint64_t i = 0; i < exec_count(o); i++) {
		int64_t v, x = cep_fold_get(a, exec_count(a) == 1 ? 0 : i);
		int64_t y = cep_fold_get(b, exec_count(b) == 1 ? 0 : i);

		if (!arith(n->op->code, x, y, &v))
			return false;
		cep_fold_put(o, out, i, v);
	}
	return true;
}

bool cep_fold_gather(const struct cep_node *n, void *out)
{
	const struct exec_tensor *t = n->in[0], *idx = n->in[1], *o = n->out[0];

	if (t->rank != 1)
		return false;
	for (uint64_t i = 0; i < exec_count(o); i++) {
		int64_t k = cep_fold_get(idx, i), len = t->dims[0];

		if (k < -len || k >= len)
			return false;
		k += k < 0 ? len : 0;
		cep_fold_put(o, out, i, cep_fold_get(t, (uint64_t)k));
	}
	return true;
}

bool cep_fold_concat(const struct cep_node *n, void *out)
{
	uint64_t at = 0;

	for (uint32_t k = 0; k < n->n_in; k++)
		for (uint64_t i = 0; i < exec_count(n->in[k]); i++)
			cep_fold_put(n->out[0], out, at++,
				     cep_fold_get(n->in[k], i));
	return true;
}

bool cep_fold_copy(const struct cep_node *n, void *out)
{
	for (uint64_t i = 0; i < exec_count(n->out[0]); i++)
		cep_fold_put(n->out[0], out, i, cep_fold_get(n->in[0], i));
	return true;
}

bool cep_fold(const struct cep_node *n, void *out, uint64_t cap)
{
	const struct exec_tensor *o = n->n_out == 1 ? n->out[0] : NULL;

	if (!n->op->fold || !o || !small_int(o) || exec_bytes(o) > cap)
		return false;
	for (uint32_t i = 0; i < n->n_in; i++)
		if (n->in[i] && !EXEC_HAS(n->op->facts.dims_only, i) &&
		    (!n->in[i]->value || !small_int(n->in[i])))
			return false;
	return n->op->fold(n, out);
}
