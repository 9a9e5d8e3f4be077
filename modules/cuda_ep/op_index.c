// op_index.c - operators that read by index.
#include "modules/cuda_ep/op.h"

// An index says which of input i along axis: there must be some.
static int32_t need_rows(const struct cep_node *n, uint32_t i, uint32_t axis,
			 struct genai_error *err)
{
	if (n->in[i]->dims[axis] || !exec_count(n->in[1]))
		return 0;
	return cep_node_fail(n, err, GENAI_E_INVAL,
			     "no index is within input %u of shape %s", i,
			     EXEC_SHAPE(n->in[i]));
}

struct gather_state {
	uint32_t axis;
};
EXEC_STATE(gather_state, cep_node)

int32_t cep_prepare_gather(struct cep_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"axis", NULL};
	const struct exec_tensor *t = n->in[0], *idx;
	int64_t dims[GENAI_MAX_RANK];
	uint32_t axis, rank = 0;
	int32_t rc = cep_check(n, attrs, 2, 2, 1, err);

	if (!rc)
		rc = cep_need_index(n, 1, err);
	if (!rc)
		rc = cep_need_dense(n, 1, err);
	if (!rc)
		rc = cep_axis(n, exec_attr_int(n->node, "axis", 0), t->rank,
			      &axis, err);
	if (!rc && !cep_dtype_bytes(t->dtype))
		rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED, "dtype %u",
				   t->dtype);
	if (!rc)
		rc = cep_need_dense(n, 0, err);
	if (!rc)
		rc = need_rows(n, 0, axis, err);
	if (rc)
		return rc;
	idx = n->in[1];
	if (t->rank - 1 + idx->rank > GENAI_MAX_RANK)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED, "rank");
	for (uint32_t d = 0; d < axis; d++)
		dims[rank++] = t->dims[d];
	for (uint32_t d = 0; d < idx->rank; d++)
		dims[rank++] = idx->dims[d];
	for (uint32_t d = axis + 1; d < t->rank; d++)
		dims[rank++] = t->dims[d];
	gather_state(n)->axis = axis;
	return cep_out(n, 0, t->dtype, rank, dims, err);
}

int32_t cep_run_gather(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *t = n->in[0], *idx = n->in[1];
	uint32_t axis = gather_state(n)->axis;
	struct cep_gather p = {
		.data = t->addr,
		.idx = idx->addr,
		.out = n->out[0]->addr,
		.outer = 1,
		.axis = (uint64_t)t->dims[axis],
		.n_idx = exec_count(idx),
		.inner = cep_dtype_bytes(t->dtype),
		.idx64 = idx->dtype == GENAI_DT_I64,
		.unit = 16,
		.blame = cep_blame_of(n, r),
	};
	enum cep_kernel k;

	for (uint32_t d = 0; d < axis; d++)
		p.outer *= (uint64_t)t->dims[d];
	for (uint32_t d = axis + 1; d < t->rank; d++)
		p.inner *= (uint64_t)t->dims[d];
	p.s_axis = (int64_t)p.inner;
	p.s_outer = (int64_t)(p.inner * p.axis);
	if (!p.outer || !p.n_idx || !p.inner)
		return 0;
	while (p.unit > 1 &&
	       (p.inner % p.unit || p.data % p.unit || p.out % p.unit))
		p.unit /= 2;
	k = p.unit == 16  ? CEP_K_cep_gather_16
	    : p.unit == 8 ? CEP_K_cep_gather_8
	    : p.unit == 4 ? CEP_K_cep_gather_4
	    : p.unit == 2 ? CEP_K_cep_gather_2
			  : CEP_K_cep_gather_1;
	return cep_run_kernel(
		r, k,
		(struct cep_dim3){
			cep_blocks(r->self,
				   p.outer * p.n_idx * (p.inner / p.unit)),
			1, 1},
		256, 0, &p);
}

struct gbq_state {
	int64_t bits, block, blocks; // blocks of a row
	int64_t cols, zp_default;
	bool is_signed;
};
EXEC_STATE(gbq_state, cep_node)

int32_t cep_prepare_gbq(struct cep_node *n, struct genai_error *err)
{
	struct gbq_state *q = gbq_state(n);
	const struct exec_tensor *t = n->in[0], *s = n->in[2], *idx;
	int64_t dims[GENAI_MAX_RANK], bits, block, cols;
	bool packed;
	int32_t rc = cep_check(n, exec_gather_bits_attrs, 3, 4, 1, err);

	if (!rc)
		rc = cep_need_index(n, 1, err);
	if (!rc)
		rc = cep_need_float(n, 2, err);
	for (uint32_t i = 0; !rc && i < 4; i++)
		rc = cep_need_dense(n, i, err);
	if (rc)
		return rc;
	idx = n->in[1];
	packed = t->dtype == GENAI_DT_U8;
	bits = packed ? exec_attr_int(n->node, "bits", 4) : 4;
	block = exec_attr_int(n->node, "block_size", 128);
	if (t->rank != 2 || exec_attr_int(n->node, "gather_axis", 0) ||
	    (exec_attr_int(n->node, "quantize_axis", 1) != 1 &&
	     exec_attr_int(n->node, "quantize_axis", 1) != -1) ||
	    (bits != 4 && bits != 8) || block < 16 || (block & (block - 1)) ||
	    (!packed && t->dtype != GENAI_DT_U4 && t->dtype != GENAI_DT_I4) ||
	    idx->rank + 1 > GENAI_MAX_RANK)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "data of dtype %u, rank %u, %lld bits, "
				     "block %lld",
				     t->dtype, t->rank, (long long)bits,
				     (long long)block);
	if ((rc = need_rows(n, 0, 0, err)))
		return rc;
	cols = packed ? t->dims[1] * 8 / bits : t->dims[1];
	*q = (struct gbq_state){
		.bits = bits,
		.block = block,
		.blocks = (cols + block - 1) / block,
		.cols = cols,
		.zp_default = packed ? INT64_C(1) << (bits - 1) : 0,
		.is_signed = t->dtype == GENAI_DT_I4,
	};
	if (!packed && cols % 2)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "rows of an odd number of half bytes");
	dims[0] = t->dims[0];
	dims[1] = q->blocks;
	rc = cep_need_shape(n, 2, 2, dims, false, err);
	if (packed)
		dims[1] = (q->blocks * bits + 7) / 8;
	if (!rc)
		rc = cep_need_shape(n, 3, 2, dims, false, err);
	if (rc)
		return rc;
	if (n->n_in > 3 && n->in[3] && n->in[3]->dtype != GENAI_DT_U8 &&
	    q->blocks % 2)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "4-bit zero points with an odd number of "
				     "blocks a row");
	memcpy(dims, idx->dims, sizeof(dims));
	dims[idx->rank] = cols;
	return cep_out(n, 0, s->dtype, idx->rank + 1, dims, err);
}

int32_t cep_run_gbq(struct cep_node *n, struct cep_run *r)
{
	const struct gbq_state *q = gbq_state(n);
	const struct exec_tensor *t = n->in[0];
	struct cep_gbq p = {
		.data = t->addr,
		.scales = n->in[2]->addr,
		.zp = cep_in_addr(n, 3),
		.idx = n->in[1]->addr,
		.out = n->out[0]->addr,
		.rows = (uint64_t)t->dims[0],
		.n_idx = exec_count(n->in[1]),
		.dim = (uint32_t)q->cols,
		.block = (uint32_t)q->block,
		.n_blocks = (uint32_t)q->blocks,
		.bits = (uint32_t)q->bits,
		.is_signed = q->is_signed,
		.zp_default = (uint32_t)q->zp_default,
		.idx64 = n->in[1]->dtype == GENAI_DT_I64,
		.blame = cep_blame_of(n, r),
	};

	p.row_bytes = (uint64_t)p.dim * p.bits / 8;
	p.zp_row_bytes = ((uint64_t)p.n_blocks * p.bits + 7) / 8;
	if (!p.n_idx || !p.dim)
		return 0;
	return cep_run_kernel(
		r,
		cep_by_dtype(n->out[0]->dtype, CEP_K_cep_gbq_f32,
			     CEP_K_cep_gbq_f16, CEP_K_cep_gbq_bf16),
		(struct cep_dim3){cep_blocks(r->self, p.n_idx * p.dim), 1, 1},
		256, 0, &p);
}

struct rope_state {
	int64_t heads, seq, size;
	int64_t rot; // channels that turn
	bool bnsh;   // the input is [batch, heads, sequence, size]
};
EXEC_STATE(rope_state, cep_node)

int32_t cep_prepare_rope(struct cep_node *n, struct genai_error *err)
{
	struct rope_state *s = rope_state(n);
	const struct exec_tensor *t = n->in[0];
	int64_t heads, size, rot;
	int32_t rc = cep_check(n, exec_rope_attrs, 4, 4, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	for (uint32_t i = 0; !rc && i < 4; i++)
		rc = cep_need_dense(n, i, err);
	for (uint32_t i = 2; !rc && i < 4; i++)
		rc = cep_need_same(n, i, 0, err);
	if (rc)
		return rc;
	rot = exec_attr_int(n->node, "rotary_embedding_dim", 0);
	heads = exec_attr_int(n->node, "num_heads", 0);
	if ((t->rank != 3 && t->rank != 4) || n->in[2]->rank != 2 ||
	    n->in[1]->dtype != GENAI_DT_I64 ||
	    exec_attr_int(n->node, "is_packed_batching", 0))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "rank %u, or packed batching", t->rank);
	if ((rc = need_rows(n, 2, 0, err)) ||
	    (rc = cep_need_shape(n, 3, 2, n->in[2]->dims, false, err)))
		return rc;
	if (t->rank == 4) {
		heads = t->dims[1];
		size = t->dims[3];
	} else if (heads > 0) {
		size = t->dims[2] / heads;
	} else {
		size = rot ? rot : n->in[2]->dims[1] * 2;
		heads = size ? t->dims[2] / size : 0;
	}
	if (!rot)
		rot = n->in[2]->dims[1] * 2;
	*s = (struct rope_state){
		.heads = heads,
		.seq = t->rank == 4 ? t->dims[2] : t->dims[1],
		.size = size,
		.rot = rot,
		.bnsh = t->rank == 4,
	};
	if (heads < 1 || size < 1 || rot > size || rot % 2 ||
	    n->in[2]->dims[1] * 2 != rot ||
	    (t->rank == 3 && heads * size != t->dims[2]) ||
	    (exec_count(n->in[1]) != 1 &&
	     exec_count(n->in[1]) != (uint64_t)(t->dims[0] * s->seq)))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "%lld heads of %lld with %lld rotary "
				     "channels do not fit",
				     (long long)heads, (long long)size,
				     (long long)rot);
	return cep_out(n, 0, t->dtype, t->rank, t->dims, err);
}

int32_t cep_run_rope(struct cep_node *n, struct cep_run *r)
{
	const struct exec_tensor *t = n->in[0];
	const struct rope_state *s = rope_state(n);
	int64_t heads = s->heads, seq = s->seq, size = s->size;
	struct cep_rope p = {
		.x = t->addr,
		.out = n->out[0]->addr,
		.pos = n->in[1]->addr,
		.cosc = n->in[2]->addr,
		.sinc = n->in[3]->addr,
		.batch = (uint32_t)t->dims[0],
		.heads = (uint32_t)heads,
		.seq = (uint32_t)seq,
		.size = (uint32_t)size,
		.rot = (uint32_t)s->rot,
		.rows = (uint32_t)n->in[2]->dims[0],
		.interleaved =
			(uint32_t)exec_attr_int(n->node, "interleaved", 0),
		.pos_n = exec_count(n->in[1]) == 1 ? 1 : 2,
		.scale = exec_attr_float(n->node, "scale", 1.f),
		.blame = cep_blame_of(n, r),
	};

	p.xs[0] = heads * seq * size;
	p.xs[1] = s->bnsh ? seq * size : size;
	p.xs[2] = s->bnsh ? size : heads * size;
	memcpy(p.os, p.xs, sizeof(p.os));
	if (!exec_count(t))
		return 0;
	return cep_run_kernel(
		r,
		cep_by_dtype(t->dtype, CEP_K_cep_rope_f32, CEP_K_cep_rope_f16,
			     CEP_K_cep_rope_bf16),
		(struct cep_dim3){cep_blocks(r->self, exec_count(t)), 1, 1},
		256, 0, &p);
}
