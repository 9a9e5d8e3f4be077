// op_nbits.c - MatMulNBits, and what the pair of a SwiGLU (op_gate_up.c) has in
// common with it.
// Which kernel multiplies depends on dtypes, K, the block size and whether
// there is one row, up to CEP_EXACT_ROWS or more; never on how rows of the
// weight are cut.  Up to there the kernels of op_gemv4.c give a row the same
// bits; where many sequences share the step, they take rows of any number; what
// they do not take goes by the general kernel.  With threads of the host
// (host_threads) the kernels of beside.cu stand in the place of all.
#include "modules/cuda_ep/op_nbits.h"

#include "modules/cuda_ep/op_beside.h"

static int32_t nbits_shapes(struct cep_node *n, struct genai_error *err)
{
	struct cep_nbits *s = cep_nbits(n);
	int64_t k = exec_attr_int(n->node, "K", 0),
		cols = exec_attr_int(n->node, "N", 0);
	int64_t bits = exec_attr_int(n->node, "bits", 4);
	int64_t block = exec_attr_int(n->node, "block_size", 0), blocks;
	const struct exec_tensor *a = n->in[0], *z;
	int64_t dims[3];
	int32_t rc;

	if (k < 1 || cols < 1 || k > INT32_MAX || cols > INT32_MAX ||
	    (bits != 2 && bits != 4 && bits != 8) || block < 16 ||
	    block > 65536 || (block & (block - 1)))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "K %lld, N %lld, %lld bits, block %lld",
				     (long long)k, (long long)cols,
				     (long long)bits, (long long)block);
	if (exec_attr_int(n->node, "weight_prepacked", 0))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "weight_prepacked: export the model with "
				     "plain weights");
	if (!a->rank || a->dims[a->rank - 1] != k)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "input 0 does not end in K = %lld",
				     (long long)k);
	blocks = (k + block - 1) / block;
	if (n->in[1]->dtype != GENAI_DT_U8)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "input 1 has dtype %u", n->in[1]->dtype);
	dims[0] = cols;
	dims[1] = blocks;
	dims[2] = block * bits / 8;
	if ((rc = cep_need_shape(n, 1, 3, dims, false, err)) ||
	    (rc = cep_need_shape(n, 2, 2, dims, true, err)) ||
	    (rc = cep_need_shape(n, 5, 1, dims, false, err)))
		return rc;
	s->n = cols;
	s->k = k;
	s->bits = bits;
	s->block = block;
	s->blocks = blocks;
	s->m = (int64_t)exec_count(a) / k;
	s->zp = CEP_ZP_NONE;
	s->zp_row = (blocks * bits + 7) / 8;
	z = n->n_in > 3 ? n->in[3] : NULL;
	if (!z)
		return 0;
	s->zp = z->dtype == GENAI_DT_U8 ? CEP_ZP_PACKED : CEP_ZP_FLOAT;
	if (z->dtype != GENAI_DT_U8 && z->dtype != a->dtype)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "zero points of dtype %u", z->dtype);
	if (z->dtype == GENAI_DT_U8)
		dims[1] = s->zp_row;
	return cep_need_shape(n, 3, 2, dims, true, err);
}

int32_t cep_nbits_prepare(struct cep_node *n, uint32_t rows,
			  struct genai_error *err)
{
	struct cep_nbits *s = cep_nbits(n);
	const struct exec_tensor *a = n->in[0];
	int64_t dims[GENAI_MAX_RANK];
	int32_t rc = cep_check(n, exec_nbits_attrs, 3, 6, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = cep_need_bf16(n, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	if (!rc)
		rc = cep_need_same(n, 2, 0, err);
	if (!rc)
		rc = cep_need_same(n, 5, 0, err);
	if (!rc && n->n_in > 4 && n->in[4])
		rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				   "act-order weights (g_idx)");
	if (!rc)
		rc = nbits_shapes(n, err);
	if (rc)
		return rc;
	s->beside = n->self->team && a->dtype != GENAI_DT_F32 && s->bits == 4 &&
		    s->block >= 32 && s->k % 32 == 0;
	s->fast = !s->beside && a->dtype != GENAI_DT_F32 && s->bits == 4 &&
		  s->block >= 32 && s->k % 32 == 0 && cep_gemv4_fits(n);
	s->gemm4 = a->dtype != GENAI_DT_F32 && s->bits == 4 && s->block >= 32 &&
		   s->k % 64 == 0 && s->zp != CEP_ZP_FLOAT;
	if (s->fast)
		cep_gemv4_memory(n, rows);
	if (s->beside)
		n->sync_bytes = 4; // the job's turn
	memcpy(dims, a->dims, sizeof(dims));
	dims[a->rank - 1] = s->n;
	return cep_out(n, 0, a->dtype, a->rank, dims, err);
}

int32_t cep_nbits_rooms(struct cep_node *n, struct genai_error *err)
{
	struct cep_nbits *s = cep_nbits(n);
	const struct exec_tensor *a = n->in[0];
	uint64_t *bytes = &n->workspace_bytes;
	int32_t rc = 0;

	if (n->norm) {
		s->normed = (int64_t)(*bytes + 255) / 256 * 256;
		*bytes = (uint64_t)(s->normed +
				    s->m * s->k * cep_dtype_bytes(a->dtype));
		rc = cep_out(n, 1, a->dtype, a->rank, a->dims, err);
	}
	if (s->beside) {
		s->digits = (int64_t)(*bytes + 255) / 256 * 256;
		*bytes = (uint64_t)s->digits + cep_beside_bytes(n->self,
								(uint64_t)s->m,
								(uint64_t)s->k);
	}
	if (s->beside && s->m > CEP_STAGE_ROWS) {
		s->stage = (int64_t)(*bytes + 255) / 256 * 256;
		*bytes = (uint64_t)s->stage + CEP_STAGE_BYTES;
	}
	return rc;
}

int32_t cep_prepare_nbits(struct cep_node *n, struct genai_error *err)
{
	uint32_t n_in = n->n_in, n_out = n->n_out;
	int32_t rc;

	if (n->norm) {
		n->n_in = 6;
		n->n_out = 1;
	}
	rc = cep_nbits_prepare(n, 16, err);
	n->n_in = n_in;
	n->n_out = n_out;
	return rc ? rc : cep_nbits_rooms(n, err);
}

static bool goes_beside(const struct cep_node *n, const struct cep_mm *p)
{
	return cep_nbits(n)->beside && (p->m <= CEP_EXACT_ROWS || n->exact);
}

// ---- a norm in front ----

// What the norm in front reads and writes.
static struct cep_norm norm_of(const struct cep_node *n,
			       const struct cep_run *r, const struct cep_mm *p)
{
	const struct exec_tensor *skip = n->in[CEP_IN_SKIP];

	return (struct cep_norm){
		.x = n->in[0]->addr,
		.skip = skip ? skip->addr : 0,
		.skip_rows = skip ? exec_count(skip) / p->k : 0,
		.gamma = n->in[CEP_IN_GAMMA]->addr,
		.out = r->workspace + (uint64_t)cep_nbits(n)->normed,
		.sum = n->out[1] ? n->out[1]->addr : 0,
		.rows = (uint64_t)cep_nbits(n)->m, // p may be some of them
		.dim = p->k,
		.eps = cep_norm_eps(n->norm),
	};
}

// One row is normed by the kernel that multiplies it; else a kernel goes
// before, which sums alike, of a product beside the link in the first of its
// runs.
static bool norms_itself(const struct cep_node *n, const struct cep_norm *x)
{
	return x->rows == 1 && cep_nbits(n)->fast && x->dim <= 8192 &&
	       !((x->x | x->skip | x->gamma | x->sum) & 15);
}

static int32_t norm_before(const struct cep_node *n, struct cep_run *r,
			   struct cep_mm *p, uint32_t image_rows,
			   uint64_t image)
{
	uint32_t dtype = n->in[0]->dtype;
	struct cep_norm x;

	if (!n->norm)
		return 0;
	x = norm_of(n, r, p);
	if (norms_itself(n, &x))
		return 0;
	if (image_rows) {
		x.out = image;
		x.image_rows = p->in_order = image_rows;
	}
	p->a = x.out;
	p->vec_a = cep_is_vec(p->a, p->lda, cep_dtype_bytes(dtype));
	if (goes_beside(n, p) && !cep_beside_norms(n, r))
		return 0;
	return cep_run_norm_of(n, r, dtype, &x);
}

// The sums, and the norm where the kernel does it.
static struct cep_sum4 sum_for(const struct cep_node *n,
			       const struct cep_run *r, const struct cep_mm *p)
{
	struct cep_sum4 o = cep_sum4_of(n);
	struct cep_norm x;

	if (!n->norm)
		return o;
	x = norm_of(n, r, p);
	if (norms_itself(n, &x)) {
		o.skip = x.skip;
		o.gamma = x.gamma;
		o.sum = x.sum;
		o.eps = x.eps;
	}
	return o;
}

// ---- general kernels ----

struct cep_mm cep_nbits_params(const struct cep_node *n,
			       const struct cep_run *r, uint32_t first,
			       uint32_t bias)
{
	const struct cep_nbits *s = cep_nbits(n);
	const struct exec_tensor *a = n->in[0];
	struct cep_mm p = {
		.a = a->addr,
		.b = n->in[first]->addr,
		.scales = n->in[first + 1]->addr,
		.zp = s->zp ? n->in[first + 2]->addr : 0,
		.bias = cep_in_addr(n, bias),
		.out = n->out[0]->addr,
		.lda = s->k,
		.ldb = s->blocks * s->block * s->bits / 8,
		.ldc = s->n,
		.m = (uint32_t)s->m,
		.n = (uint32_t)s->n,
		.k = (uint32_t)s->k,
		.bits = (uint32_t)s->bits,
		.block = (uint32_t)s->block,
		.n_blocks = (uint32_t)s->blocks,
		.zp_kind = (uint32_t)s->zp,
		.zp_row = (uint32_t)s->zp_row,
	};

	if (r->row_end) {
		p.n = (uint32_t)(r->row_end - r->row_begin);
		p.n0 = (uint32_t)r->row_begin;
	}
	p.vec_a = cep_is_vec(p.a, p.lda, cep_dtype_bytes(a->dtype));
	return p;
}

static int32_t run_gemm4(struct cep_node *n, struct cep_run *r,
			 struct cep_mv_tiled *q)
{
	static const enum cep_kernel k[2][2] = {
		{CEP_K_cep_gemm4_f16_0, CEP_K_cep_gemm4_f16_1},
		{CEP_K_cep_gemm4_bf16_0, CEP_K_cep_gemm4_bf16_1},
	};
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;

	if (!q->m.vec_a)
		return cep_node_fail(n, r->err, GENAI_E_INVAL,
				     "input 0 is not aligned to 16");
	return cep_run_kernel(
		r, k[bf][q->m.zp_kind == CEP_ZP_PACKED],
		(struct cep_dim3){(q->m.n + 63) / 64, (q->m.m + 63) / 64, 1},
		128, 0, q);
}

int32_t cep_nbits_general(struct cep_node *n, struct cep_run *r,
			  const struct cep_mm *p, uint32_t first)
{
	const struct cep_nbits *s = cep_nbits(n);
	uint32_t dtype = n->in[0]->dtype;
	struct cep_mv_tiled q;
	int32_t rc = cep_set_parts(n, r, p, first, &q);

	if (rc)
		return rc;
	if (!n->exact && cep_prompt_takes(r->self, dtype, p))
		return cep_run_prompt(r, dtype, &q);
	if (!n->exact && p->m > 1 && s->gemm4)
		return run_gemm4(n, r, &q);
	if (p->m > 1 || n->exact)
		return cep_run_gemm(
			r, dtype, p, &q, 1, CEP_K_cep_gemm_q_f32,
			CEP_K_cep_gemm16_q_f16, CEP_K_cep_gemm64_q_f16,
			CEP_K_cep_gemm16_q_bf16, CEP_K_cep_gemm64_q_bf16);
	for (uint32_t k = 0; k < q.n_tiles && !rc; k++) {
		struct cep_mm piece = *p;
		uint32_t at = k * q.tile_rows, left = p->n - at;

		piece.n0 += at;
		piece.n = left < q.tile_rows ? left : q.tile_rows;
		piece.b = q.b[k];
		piece.scales = q.s[k];
		piece.zp = q.z[k];
		rc = cep_run_kernel(r,
				    cep_by_dtype(dtype, CEP_K_cep_gemv_q_f32,
						 CEP_K_cep_gemv_q_f16,
						 CEP_K_cep_gemv_q_bf16),
				    (struct cep_dim3){(piece.n + 7) / 8, 1, 1},
				    256, 0, &piece);
	}
	return rc;
}

// ---- rows beside the link ----

bool cep_nbits_beside(const struct cep_node *n)
{
	return (n->op->run == cep_run_nbits || n->op->run == cep_run_gate_up) &&
	       cep_nbits(n)->beside;
}

// second 0: there is one matrix.
static int32_t run_beside(struct cep_node *n, struct cep_run *r,
			  struct cep_mm *p, uint32_t second)
{
	struct cep_product4 x = {
		.o = cep_sum4_of(n),
		.first = 1,
		.second = second,
		.dual = second,
	};
	struct cep_mv_dual_tiled q;
	int32_t rc = 0;

	if (r->beside != EXEC_ASK && r->beside != EXEC_MEET)
		rc = cep_set_pair(n, r, p, second, &q);
	if (cep_beside_bytes(n->self, p->m, p->k))
		x.digits = r->workspace + (uint64_t)cep_nbits(n)->digits;
	if (second && n->in[second + 3])
		x.bias2 = n->in[second + 3]->addr;
	if (!rc)
		rc = norm_before(n, r, p, 0, 0);
	x.m = *p;
	return rc ? rc : cep_run_beside(n, r, &x, &q);
}

// Of more rows the host multiplies none: true if that was all there was to do.
static bool for_many(struct cep_node *n, struct cep_run *r,
		     const struct cep_mm *p, uint32_t second, int32_t *out_rc)
{
	const struct cep_product4 x = {
		.m = *p,
		.o = cep_sum4_of(n),
		.first = 1,
		.second = second,
		.dual = second,
	};
	bool left = r->beside == EXEC_LEFT;

	*out_rc = 0;
	if (r->beside == EXEC_NOT_BESIDE ||
	    (p->m <= CEP_STAGE_ROWS && goes_beside(n, p)))
		return false;
	if (cep_beside_learn(n, r, &x, out_rc) || *out_rc || !left)
		return r->idle || *out_rc;
	*out_rc = cep_run_staged(n, r, &x, (uint64_t)cep_nbits(n)->stage,
				 n->op->run);
	return true;
}

// ---- running ----

bool cep_nbits_exact(struct cep_node *n, struct cep_run *r, struct cep_mm *p,
		     uint32_t second, int32_t *out_rc)
{
	struct cep_sum4 o;
	uint32_t image_rows = 0;
	uint64_t image = 0;
	bool few;

	*out_rc = 0;
	if (!p->m || !p->n || for_many(n, r, p, second, out_rc))
		return true;
	if (goes_beside(n, p)) {
		*out_rc = run_beside(n, r, p, second);
		return true;
	}
	few = cep_nbits(n)->fast && (p->m <= CEP_EXACT_ROWS || n->exact);
	if (few && n->norm)
		image_rows = cep_rows_in_order(n, r, p, second, &image);
	*out_rc = norm_before(n, r, p, image_rows, image);
	if (*out_rc)
		return true;
	if (!few)
		return false;
	o = sum_for(n, r, p);
	*out_rc = cep_run_gemv4(n, r, p, &o, second);
	return true;
}

int32_t cep_run_nbits(struct cep_node *n, struct cep_run *r)
{
	struct cep_mm p = cep_nbits_params(n, r, 1, 5);
	int32_t rc;

	if (cep_nbits_exact(n, r, &p, 0, &rc))
		return rc;
	return cep_nbits_general(n, r, &p, 1);
}
