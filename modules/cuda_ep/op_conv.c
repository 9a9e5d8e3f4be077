// op_conv.c - CausalConvWithState.
#include "modules/cuda_ep/op.h"

enum { X, WEIGHT, BIAS, PAST };

struct conv_state {
	struct exec_conv a;
	int64_t batch, channels, length, taps, history;
};
EXEC_STATE(conv_state, cep_node)

static int32_t sizes(const struct cep_node *n, struct conv_state *s,
		     struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X], *w = n->in[WEIGHT];

	if (x->rank < 3 || (x->rank > 3 && !s->a.last) || w->rank != 3)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "inputs 0 and 1 of rank %u and %u",
				     x->rank, w->rank);
	s->batch = x->dims[0];
	s->length = x->dims[s->a.last ? 1 : 2];
	s->channels = s->a.last ? 1 : x->dims[1];
	for (uint32_t d = 2; s->a.last && d < x->rank; d++)
		s->channels *= x->dims[d];
	s->taps = w->dims[2];
	if (s->taps < 1 || s->taps > EXEC_MAX_TAPS / s->a.dilation)
		return cep_node_fail(n, err, GENAI_E_LIMIT,
				     "%lld taps, %lld apart: none, or more "
				     "than %d positions",
				     (long long)s->taps, (long long)s->a.dilation,
				     EXEC_MAX_TAPS);
	s->history = (s->taps - 1) * s->a.dilation;
	return 0;
}

int32_t cep_prepare_conv(struct cep_node *n, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X];
	int32_t rc = cep_check(n, exec_conv_state_attrs, 2, 4, 2, err);
	struct conv_state s = {0};
	int64_t dims[GENAI_MAX_RANK], w[3];
	struct exec_text why;

	if (!rc)
		rc = cep_need_float(n, X, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	for (uint32_t i = WEIGHT; !rc && i <= PAST; i++)
		rc = cep_need_same(n, i, X, err);
	if (!rc && (rc = exec_conv_state(n->node, &s.a, &why)))
		return cep_node_fail(n, err, rc, "%s", why.s);
	if (rc || (rc = sizes(n, &s, err)))
		return rc;
	w[0] = s.channels;
	w[1] = 1;
	w[2] = s.taps;
	memcpy(dims, x->dims, sizeof(dims));
	dims[s.a.last ? 1 : 2] = s.history;
	if ((rc = cep_need_shape(n, WEIGHT, 3, w, false, err)) ||
	    (rc = cep_need_shape(n, BIAS, 1, w, false, err)) ||
	    (rc = cep_need_shape(n, PAST, x->rank, dims, false, err)))
		return rc;
	*conv_state(n) = s;
	rc = cep_out(n, 0, x->dtype, x->rank, x->dims, err);
	return rc ? rc : cep_out(n, 1, x->dtype, x->rank, dims, err);
}

static struct cep_dim3 blocks(int64_t count, uint32_t threads)
{
	return (struct cep_dim3){(uint32_t)((count + threads - 1) / threads), 1,
				 1};
}

int32_t cep_run_conv(struct cep_node *n, struct cep_run *r)
{
	const struct conv_state *s = conv_state(n);
	const uint32_t dtype = n->in[X]->dtype;
	const int64_t lines = s->batch * s->channels;
	const struct cep_conv p = {
		.x = n->in[X]->addr,
		.w = n->in[WEIGHT]->addr,
		.bias = cep_in_addr(n, BIAS),
		.past = cep_in_addr(n, PAST),
		.out = cep_out_addr(n, 0),
		.present = cep_out_addr(n, 1),
		.x_b = s->length * s->channels,
		.x_c = s->a.last ? 1 : s->length,
		.x_t = s->a.last ? s->channels : 1,
		.s_b = s->history * s->channels,
		.s_c = s->a.last ? 1 : s->history,
		.s_t = s->a.last ? s->channels : 1,
		.batch = (uint32_t)s->batch,
		.channels = (uint32_t)s->channels,
		.length = (uint32_t)s->length,
		.taps = (uint32_t)s->taps,
		.dilation = (uint32_t)s->a.dilation,
		.history = (uint32_t)s->history,
		.silu = s->a.silu,
	};
	int32_t rc = 0;

	if (s->length == 1)
		return cep_run_kernel(r,
				      cep_by_dtype(dtype,
						   CEP_K_cep_conv_one_f32,
						   CEP_K_cep_conv_one_f16,
						   CEP_K_cep_conv_one_bf16),
				      blocks(lines, 64), 64, 0, &p);
	if (p.out)
		rc = cep_run_kernel(r,
				    cep_by_dtype(dtype, CEP_K_cep_conv_rows_f32,
						 CEP_K_cep_conv_rows_f16,
						 CEP_K_cep_conv_rows_bf16),
				    blocks(lines * s->length, 256), 256, 0, &p);
	if (rc || !p.present || !s->history)
		return rc;
	return cep_run_kernel(r,
			      cep_by_dtype(dtype, CEP_K_cep_conv_keep_f32,
					   CEP_K_cep_conv_keep_f16,
					   CEP_K_cep_conv_keep_bf16),
			      blocks(lines, 64), 64, 0, &p);
}
