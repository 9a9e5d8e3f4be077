// ops_gated.c - what stands around a linear attention: the gates that it is
// given, and a sum with a gate for each row.
#include "modules/cpu_ref/ops.h"

#include <math.h>

static const struct exec_tensor *input(const struct cref_node *n, uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}

static bool same_shape(const struct exec_tensor *a, const struct exec_tensor *b)
{
	return a->rank == b->rank &&
	       !memcmp(a->dims, b->dims, a->rank * sizeof(*a->dims));
}

static int32_t need_shape(struct cref_node *n, uint32_t i, uint32_t j,
			  struct genai_error *err)
{
	if (same_shape(n->in[i], n->in[j]))
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "inputs %u and %u differ in shape: %s and %s", i,
			      j, EXEC_SHAPE(n->in[i]), EXEC_SHAPE(n->in[j]));
}

// ---- LinearAttentionGate ----

enum { A, DT_BIAS, DECAY_SCALE, B };

int32_t ops_linear_gate_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, NULL, 3, 4, 2, err);
	const struct exec_tensor *a = rc ? NULL : n->in[A];

	if (!rc)
		rc = ops_need_dtype(n, A, OPS_F32S, err);
	if (!rc)
		rc = ops_need_rank(n, A, 3, 3, err);
	for (uint32_t i = DT_BIAS; !rc && i <= DECAY_SCALE; i++) {
		rc = ops_need_dtype(n, i, OPS_BIT(GENAI_DT_F32), err);
		if (!rc &&
		    (n->in[i]->rank != 1 || n->in[i]->dims[0] != a->dims[2]))
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "input %u of shape %s, must be "
					    "[%lld]",
					    i, EXEC_SHAPE(n->in[i]),
					    (long long)a->dims[2]);
	}
	if (!rc && input(n, B)) {
		rc = ops_need_same_dtype(n, A, B, err);
		if (!rc)
			rc = need_shape(n, A, B, err);
	} else if (!rc && n->n_out > 1 && n->out[1]) {
		rc = cref_node_fail(n, err, GENAI_E_INVAL,
				    "beta is asked for, and there is no b");
	}
	if (!rc)
		rc = ops_out(n, 0, a->dtype, 3, a->dims, err);
	return rc ? rc : ops_out(n, 1, a->dtype, 3, a->dims, err);
}

static void gate_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;
	const struct exec_tensor *a = n->in[A], *b = input(n, B);
	const struct exec_tensor *beta = n->n_out > 1 ? n->out[1] : NULL;
	const uint64_t heads = (uint64_t)a->dims[2];

	for (uint64_t i = begin; i < end; i++) {
		float x = cref_load(a->data, a->dtype, i) +
			  cref_load(n->in[DT_BIAS]->data, GENAI_DT_F32,
				    i % heads);
		float soft = (x > 0 ? x : 0) + log1pf(expf(-fabsf(x)));

		if (n->out[0])
			cref_store(n->out[0]->data, n->out[0]->dtype, i,
				   soft * cref_load(n->in[DECAY_SCALE]->data,
						    GENAI_DT_F32, i % heads));
		if (beta)
			cref_store(
				beta->data, beta->dtype, i,
				cref_sigmoidf(cref_load(b->data, b->dtype, i)));
	}
}

int32_t ops_linear_gate_run(struct cref_node *n, const struct cref_run *r)
{
	ops_rows(r->pool, gate_part, n, exec_count(n->in[A]), 16);
	return GENAI_OK;
}

// ---- GatedAdd ----

enum { X, Y, GATE };

int32_t ops_gated_add_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = cref_attr_check(n, NULL, err);
	struct exec_tensor want;

	if (!rc && n->n_in > 3 && n->in[3])
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "gate_weight is not carried");
	rc = rc ? rc : ops_check(n, NULL, 3, 4, 1, err);
	if (!rc)
		rc = ops_need_dtype(n, X, OPS_F32S, err);
	if (!rc)
		rc = ops_need_rank(n, X, 1, GENAI_MAX_RANK, err);
	for (uint32_t i = Y; !rc && i <= GATE; i++)
		rc = ops_need_same_dtype(n, X, i, err);
	if (!rc)
		rc = need_shape(n, X, Y, err);
	if (rc)
		return rc;
	want = *n->in[X];
	want.dims[want.rank - 1] = 1;
	if (!same_shape(&want, n->in[GATE]))
		return cref_node_fail(
			n, err, GENAI_E_INVAL, "gate of shape %s, must be %s",
			EXEC_SHAPE(n->in[GATE]), EXEC_SHAPE(&want));
	return ops_out(n, 0, n->in[X]->dtype, n->in[X]->rank, n->in[X]->dims,
		       err);
}

// A product is rounded before it is added, as one of its own would be.
static void gated_add_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct cref_node *n = ctx;
	const struct exec_tensor *x = n->in[X], *y = n->in[Y], *o = n->out[0];
	const uint64_t len = (uint64_t)x->dims[x->rank - 1];

	for (uint64_t k = begin; k < end; k++) {
		float g = cref_load(n->in[GATE]->data, x->dtype, k);

		for (uint64_t i = k * len; i < (k + 1) * len; i++) {
			float p;

			cref_store(&p, x->dtype, 0,
				   cref_load(y->data, x->dtype, i) * g);
			p = cref_load(&p, x->dtype, 0);
			cref_store(o->data, x->dtype, i,
				   cref_load(x->data, x->dtype, i) + p);
		}
	}
}

int32_t ops_gated_add_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *x = n->in[X];
	uint64_t len = (uint64_t)x->dims[x->rank - 1];

	if (len)
		ops_rows(r->pool, gated_add_part, n, exec_count(x) / len, len);
	return GENAI_OK;
}
