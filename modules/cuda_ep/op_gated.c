// op_gated.c - LpNormalization, GatedRMSNorm, GatedAdd.
#include "modules/cuda_ep/op.h"

enum { X, SCALE, GATE };

struct gated_state {
	int64_t rows, dim, inner;
	uint32_t one;
	float eps;
};
EXEC_STATE(gated_state, cep_node)

// All inputs are floats of one type, in a row.
static int32_t alike(const struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_need_float(n, X, err);

	for (uint32_t i = 0; !rc && i < n->n_in; i++) {
		rc = cep_need_dense(n, i, err);
		if (!rc)
			rc = cep_need_same(n, i, X, err);
	}
	return rc;
}

static int32_t finish(struct cep_node *n, struct gated_state s,
		      struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X];

	s.rows = s.dim ? (int64_t)exec_count(x) / s.dim : 0;
	*gated_state(n) = s;
	return cep_out(n, 0, x->dtype, x->rank, x->dims, err);
}

int32_t cep_prepare_lp_norm(struct cep_node *n, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X];
	const int64_t p = exec_attr_int(n->node, "p", 2);
	struct gated_state s = {.inner = 1, .one = p == 1};
	int32_t rc = cep_check(n, exec_lp_norm_attrs, 1, 1, 1, err);
	uint32_t axis;

	if (!rc)
		rc = alike(n, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", -1), x->rank,
			      &axis, err);
	if (rc)
		return rc;
	if (p != 1 && p != 2)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "p is %lld, carried: 1, 2", (long long)p);
	s.dim = x->dims[axis];
	for (uint32_t d = axis + 1; d < x->rank; d++)
		s.inner *= x->dims[d];
	return finish(n, s, err);
}

int32_t cep_prepare_gated_norm(struct cep_node *n, struct genai_error *err)
{
	const char *act = exec_attr_string(n->node, "activation", "silu");
	const struct exec_tensor *x = n->in[X], *w;
	struct gated_state s = {.one = !strcmp(act, "sigmoid")};
	int32_t rc = cep_check(n, exec_gated_norm_attrs, 3, 3, 1, err);

	if (!rc)
		rc = alike(n, err);
	if (rc)
		return rc;
	w = n->in[SCALE];
	s.eps = exec_attr_float(n->node, "epsilon", 1e-5f);
	if (!s.one && strcmp(act, "silu") && strcmp(act, "swish"))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "activation %.40s, carried: silu, swish, "
				     "sigmoid",
				     act);
	s.dim = w->rank == 1 ? w->dims[0] : 0;
	if (s.dim < 1 || !x->rank || x->dims[x->rank - 1] % s.dim)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "the scale, of %lld, does not divide the "
				     "rows of input 0",
				     (long long)s.dim);
	rc = cep_need_shape(n, GATE, x->rank, x->dims, false, err);
	return rc ? rc : finish(n, s, err);
}

int32_t cep_prepare_gated_add(struct cep_node *n, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X];
	struct gated_state s = {0};
	int64_t dims[GENAI_MAX_RANK];
	int32_t rc = cep_check(n, NULL, 3, 4, 1, err);

	if (!rc && cep_in(n, 3))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "gate_weight is not carried");
	if (!rc)
		rc = alike(n, err);
	if (rc)
		return rc;
	if (!x->rank)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "input 0 is a scalar");
	memcpy(dims, x->dims, sizeof(dims));
	s.dim = dims[x->rank - 1];
	dims[x->rank - 1] = 1;
	if ((rc = cep_need_shape(n, 1, x->rank, x->dims, false, err)) ||
	    (rc = cep_need_shape(n, GATE, x->rank, dims, false, err)))
		return rc;
	return finish(n, s, err);
}

static int32_t run(struct cep_node *n, struct cep_run *r, enum cep_kernel k,
		   bool elements)
{
	const struct gated_state *s = gated_state(n);
	const uint32_t each = elements ? 256 : 4; // of a block
	const uint64_t count =
		elements ? exec_count(n->in[X]) : (uint64_t)s->rows;
	const struct cep_gated p = {
		.x = n->in[X]->addr,
		.y = cep_in_addr(n, SCALE),
		.gate = cep_in_addr(n, GATE),
		.out = n->out[0]->addr,
		.rows = (uint64_t)s->rows,
		.inner = (uint64_t)s->inner,
		.dim = (uint32_t)s->dim,
		.one = s->one,
		.eps = s->eps,
	};

	return cep_run_kernel(
		r, k,
		(struct cep_dim3){(uint32_t)((count + each - 1) / each), 1, 1},
		elements ? 256 : 128, 0, &p);
}

int32_t cep_run_lp_norm(struct cep_node *n, struct cep_run *r)
{
	return run(n, r,
		   cep_by_dtype(n->in[X]->dtype, CEP_K_cep_lp_norm_f32,
				CEP_K_cep_lp_norm_f16, CEP_K_cep_lp_norm_bf16),
		   false);
}

int32_t cep_run_gated_norm(struct cep_node *n, struct cep_run *r)
{
	return run(n, r,
		   cep_by_dtype(n->in[X]->dtype, CEP_K_cep_gated_norm_f32,
				CEP_K_cep_gated_norm_f16,
				CEP_K_cep_gated_norm_bf16),
		   false);
}

int32_t cep_run_gated_add(struct cep_node *n, struct cep_run *r)
{
	return run(n, r,
		   cep_by_dtype(n->in[X]->dtype, CEP_K_cep_gated_add_f32,
				CEP_K_cep_gated_add_f16,
				CEP_K_cep_gated_add_bf16),
		   true);
}
