// op_quant.c - DequantizeLinear of whole bytes, halves of them and int32.
#include "modules/cuda_ep/op.h"

enum { X, SCALE, ZERO };

struct quant_state {
	int64_t inner, dim, block, blocks;
	bool each; // a scale for each place along the axis
	uint32_t to;
};
EXEC_STATE(quant_state, cep_node)

// What the shape of the scales says.
static int32_t scales(const struct cep_node *n, struct quant_state *s,
		      struct genai_error *err)
{
	const struct exec_tensor *x = n->in[X], *t = n->in[SCALE];
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis;
	int32_t rc;

	s->inner = s->dim = 1;
	s->block = exec_attr_int(n->node, "block_size", 0);
	if (!s->block && exec_count(t) == 1 && t->rank <= 1)
		return 0;
	rc = cep_axis(n, exec_attr_int(n->node, "axis", 1), x->rank, &axis,
		      err);
	if (rc)
		return rc;
	if (s->block < 0)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "block_size is %lld", (long long)s->block);
	s->dim = x->dims[axis];
	for (uint32_t d = axis + 1; d < x->rank; d++)
		s->inner *= x->dims[d];
	s->each = !s->block;
	if (s->each)
		return cep_need_shape(n, SCALE, 1, &s->dim, false, err);
	s->blocks = s->dim / s->block + (s->dim % s->block != 0);
	memcpy(dims, x->dims, sizeof(dims));
	dims[axis] = s->blocks;
	return cep_need_shape(n, SCALE, x->rank, dims, false, err);
}

int32_t cep_prepare_dequant(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", "block_size",
					    "output_dtype", "saturate", NULL};
	const struct exec_tensor *x = n->in[X], *z;
	int32_t rc = cep_check(n, attrs, 2, 3, 1, err);
	struct quant_state s = {0};
	int64_t to;

	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	if (!rc)
		rc = cep_need_float(n, SCALE, err);
	if (!rc)
		rc = cep_need_same(n, ZERO, X, err);
	if (rc)
		return rc;
	if (x->dtype != GENAI_DT_U8 && x->dtype != GENAI_DT_I8 &&
	    x->dtype != GENAI_DT_U4 && x->dtype != GENAI_DT_I4 &&
	    x->dtype != GENAI_DT_I32)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "input 0 is of type %s, carried: uint8, "
				     "int8, uint4, int4, int32",
				     exec_dtype_name(x->dtype));
	to = exec_attr_int(n->node, "output_dtype", 0);
	s.to = to ? (uint32_t)to : n->in[SCALE]->dtype;
	if (!cep_is_float(s.to))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "output_dtype %lld", (long long)to);
	rc = scales(n, &s, err);
	z = cep_in(n, ZERO);
	if (!rc && z && (s.each || s.block || exec_count(z) != 1))
		rc = cep_need_shape(n, ZERO, n->in[SCALE]->rank,
				    n->in[SCALE]->dims, false, err);
	*quant_state(n) = s;
	return rc ? rc : cep_out(n, 0, s.to, x->rank, x->dims, err);
}

int32_t cep_run_dequant(struct cep_node *n, struct cep_run *r)
{
	const struct quant_state *s = quant_state(n);
	const struct exec_tensor *x = n->in[X];
	const struct cep_quant p = {
		.x = x->addr,
		.scale = n->in[SCALE]->addr,
		.zero = cep_in_addr(n, ZERO),
		.out = n->out[0]->addr,
		.count = exec_count(x),
		.inner = (uint64_t)s->inner,
		.dim = (uint64_t)s->dim,
		.block = (uint64_t)s->block,
		.blocks = (uint64_t)s->blocks,
		.each = s->each,
		.dt = x->dtype,
		.scale_dt = n->in[SCALE]->dtype,
		.out_dt = s->to,
	};

	return cep_run_kernel(
		r, CEP_K_cep_dequant,
		(struct cep_dim3){cep_blocks(r->self, p.count), 1, 1}, 256, 0,
		&p);
}
