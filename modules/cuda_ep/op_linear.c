// op_linear.c - LinearAttention, and the gates that it is given.
#include <math.h>

#include "modules/cuda_ep/op.h"

#define MAX_DK 256
#define COLUMNS 8 // as in kernels/linear.cu

enum { QUERY, KEY, VALUE, PAST, DECAY, BETA };

struct linear {
	int64_t batch, length, dk, dv;
	int64_t q_heads, k_heads, heads; // heads: of values and of the state
	float scale;
	bool gated, delta;
	bool per_row;  // a decay for each row of the state
	bool one_beta; // for all heads
};
EXEC_STATE(linear, cep_node)

static int32_t rule(const struct cep_node *n, struct linear *l,
		    struct genai_error *err)
{
	const char *name =
		exec_attr_string(n->node, "update_rule", "gated_delta");
	const int64_t window = exec_attr_int(n->node, "state_window", 0);

	l->gated = !strncmp(name, "gated", 5);
	l->delta = !strcmp(name, "delta") || !strcmp(name, "gated_delta");
	if (!l->delta && strcmp(name, "gated") && strcmp(name, "linear"))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "update_rule %.40s, carried: linear, "
				     "gated, delta, gated_delta",
				     name);
	if (l->gated != !!cep_in(n, DECAY) || l->delta != !!cep_in(n, BETA))
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "update_rule %s takes %s decay and %s "
				     "beta",
				     name, l->gated ? "a" : "no",
				     l->delta ? "a" : "no");
	if (window)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "attribute state_window is %lld, carried: "
				     "0",
				     (long long)window);
	return 0;
}

// Input i is [batch, length, a multiple of unit].
static int32_t width(const struct cep_node *n, const struct linear *l,
		     uint32_t i, int64_t unit, int64_t *out_count,
		     struct genai_error *err)
{
	const struct exec_tensor *t = n->in[i];

	if (t->rank != 3 || t->dims[0] != l->batch || t->dims[1] != l->length ||
	    t->dims[2] < unit || t->dims[2] % unit)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "input %u is not [%lld, %lld, a multiple "
				     "of %lld]",
				     i, (long long)l->batch,
				     (long long)l->length, (long long)unit);
	*out_count = t->dims[2] / unit;
	return 0;
}

static int32_t heads(const struct cep_node *n, struct linear *l,
		     struct genai_error *err)
{
	const struct exec_tensor *q = n->in[QUERY];
	int32_t rc;

	l->q_heads = exec_attr_int(n->node, "q_num_heads", 0);
	l->heads = exec_attr_int(n->node, "kv_num_heads", 0);
	if (l->q_heads < 1 || l->heads < 1 || l->q_heads > 65536 ||
	    l->heads > 65536 ||
	    (l->q_heads > l->heads ? l->q_heads % l->heads
				   : l->heads % l->q_heads))
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "q_num_heads %lld, kv_num_heads %lld: "
				     "must be positive and divide",
				     (long long)l->q_heads,
				     (long long)l->heads);
	if (q->rank != 3)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "input 0 of rank %u", q->rank);
	l->batch = q->dims[0];
	l->length = q->dims[1];
	if ((rc = width(n, l, QUERY, l->q_heads, &l->dk, err)) ||
	    (rc = width(n, l, KEY, l->dk, &l->k_heads, err)) ||
	    (rc = width(n, l, VALUE, l->heads, &l->dv, err)))
		return rc;
	if (l->dk > MAX_DK)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "heads of %lld, carried: %d",
				     (long long)l->dk, MAX_DK);
	if (l->heads % l->k_heads)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "%lld heads of keys do not divide "
				     "kv_num_heads %lld",
				     (long long)l->k_heads,
				     (long long)l->heads);
	return 0;
}

static int32_t gates(const struct cep_node *n, struct linear *l,
		     struct genai_error *err)
{
	int64_t each = 1;
	int32_t rc = 0;

	if (l->gated)
		rc = width(n, l, DECAY, l->heads, &each, err);
	if (!rc && each != 1 && each != l->dk)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "decay is neither one nor %lld for each "
				     "of %lld heads",
				     (long long)l->dk, (long long)l->heads);
	l->per_row = each != 1;
	each = 1;
	if (!rc && l->delta)
		rc = width(n, l, BETA, 1, &each, err);
	if (!rc && each != 1 && each != l->heads)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "beta is neither one nor %lld a token",
				     (long long)l->heads);
	l->one_beta = each == 1;
	return rc;
}

int32_t cep_prepare_linear(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, exec_linear_attrs, 3, 6, 2, err);
	struct linear l = {0};
	int64_t out[3], state[4];

	if (!rc)
		rc = cep_need_float(n, QUERY, err);
	if (!rc)
		rc = cep_need_float(n, PAST, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++) {
		rc = cep_need_dense(n, i, err);
		if (!rc && i != PAST)
			rc = cep_need_same(n, i, QUERY, err);
	}
	if (rc || (rc = rule(n, &l, err)) || (rc = heads(n, &l, err)) ||
	    (rc = gates(n, &l, err)))
		return rc;
	memcpy(state, (int64_t[]){l.batch, l.heads, l.dk, l.dv}, sizeof(state));
	memcpy(out,
	       (int64_t[]){l.batch, l.length,
			   (l.q_heads > l.heads ? l.q_heads : l.heads) * l.dv},
	       sizeof(out));
	l.scale = exec_attr_float(n->node, "scale", 0);
	if (!(l.scale > 0 || l.scale < 0))
		l.scale = 1.0f / sqrtf((float)l.dk);
	*linear(n) = l;
	if ((rc = cep_need_shape(n, PAST, 4, state, false, err)) ||
	    (rc = cep_out(n, 0, n->in[QUERY]->dtype, 3, out, err)))
		return rc;
	return cep_out(n, 1,
		       cep_in(n, PAST) ? n->in[PAST]->dtype
				       : n->in[QUERY]->dtype,
		       4, state, err);
}

int32_t cep_run_linear(struct cep_node *n, struct cep_run *r)
{
	const struct linear *l = linear(n);
	const uint32_t dtype = n->in[QUERY]->dtype;
	const uint64_t units = (uint64_t)(l->batch * l->heads) *
			       (uint64_t)((l->dv + COLUMNS - 1) / COLUMNS);
	const struct cep_linear p = {
		.q = n->in[QUERY]->addr,
		.k = n->in[KEY]->addr,
		.v = n->in[VALUE]->addr,
		.decay = cep_in_addr(n, DECAY),
		.beta = cep_in_addr(n, BETA),
		.past = cep_in_addr(n, PAST),
		.out = cep_out_addr(n, 0),
		.present = cep_out_addr(n, 1),
		.batch = (uint32_t)l->batch,
		.length = (uint32_t)l->length,
		.dk = (uint32_t)l->dk,
		.dv = (uint32_t)l->dv,
		.q_heads = (uint32_t)l->q_heads,
		.k_heads = (uint32_t)l->k_heads,
		.heads = (uint32_t)l->heads,
		.state_dt = cep_in(n, PAST) ? n->in[PAST]->dtype : dtype,
		.per_row = l->per_row,
		.one_beta = l->one_beta,
		.scale = l->scale,
	};

	return cep_run_kernel(
		r,
		l->dk <= 128 ? cep_by_dtype(dtype, CEP_K_cep_linear_128_f32,
					    CEP_K_cep_linear_128_f16,
					    CEP_K_cep_linear_128_bf16)
			     : cep_by_dtype(dtype, CEP_K_cep_linear_256_f32,
					    CEP_K_cep_linear_256_f16,
					    CEP_K_cep_linear_256_bf16),
		(struct cep_dim3){(uint32_t)((units + 3) / 4), 1, 1}, 128, 0,
		&p);
}

// ---- LinearAttentionGate ----

enum { A, DT_BIAS, DECAY_SCALE, B };

int32_t cep_prepare_linear_gate(struct cep_node *n, struct genai_error *err)
{
	const struct exec_tensor *a = n->in[A];
	int32_t rc = cep_check(n, NULL, 3, 4, 2, err);

	if (!rc)
		rc = cep_need_float(n, A, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	if (rc)
		return rc;
	if (a->rank != 3)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "input 0 of rank %u", a->rank);
	for (uint32_t i = DT_BIAS; i <= DECAY_SCALE; i++) {
		if (n->in[i]->dtype != GENAI_DT_F32)
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "input %u has dtype %u, carried: "
					     "float",
					     i, n->in[i]->dtype);
		if ((rc = cep_need_shape(n, i, 1, &a->dims[2], false, err)))
			return rc;
	}
	if (!cep_in(n, B) && n->n_out > 1 && n->out[1])
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "beta is asked for, and there is no b");
	if ((rc = cep_need_same(n, B, A, err)) ||
	    (rc = cep_need_shape(n, B, 3, a->dims, false, err)) ||
	    (rc = cep_out(n, 0, a->dtype, 3, a->dims, err)))
		return rc;
	return cep_out(n, 1, a->dtype, 3, a->dims, err);
}

int32_t cep_run_linear_gate(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *a = n->in[A];
	const struct cep_linear_gate p = {
		.a = a->addr,
		.bias = n->in[DT_BIAS]->addr,
		.scale = n->in[DECAY_SCALE]->addr,
		.b = cep_in_addr(n, B),
		.decay = cep_out_addr(n, 0),
		.beta = cep_out_addr(n, 1),
		.count = exec_count(a),
		.heads = (uint32_t)a->dims[2],
	};

	return cep_run_kernel(
		r,
		cep_by_dtype(a->dtype, CEP_K_cep_linear_gate_f32,
			     CEP_K_cep_linear_gate_f16,
			     CEP_K_cep_linear_gate_bf16),
		(struct cep_dim3){(uint32_t)((p.count + 255) / 256), 1, 1}, 256,
		0, &p);
}
