// op_matmul.c - MatMul.  B lies [K, N], or [N, K] behind a Transpose that is
// never carried out.  One row has kernels of its own, whose sums have another
// order: not where many sequences share the step.
#include "modules/cuda_ep/op_matmul.h"

struct mm_state {
	int64_t m, n, k, batch, ldb;
	int64_t a_batch, b_batch; // elements of one matrix
	bool nk;		  // B lies [N, K]
};
EXEC_STATE(mm_state, cep_node)

int32_t cep_need_bf16(const struct cep_node *n, struct genai_error *err)
{
	if (n->in[0]->dtype != GENAI_DT_BF16 || n->self->major >= 8)
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "bfloat16 needs compute capability 8.0: %s has "
			     "%d.%d",
			     n->self->device_name, n->self->major,
			     n->self->minor);
}

bool cep_is_vec(uint64_t addr, int64_t stride, uint32_t bytes)
{
	return addr % 16 == 0 && stride * bytes % 16 == 0;
}

// Several rows: a grid of 64-column blocks.
int32_t cep_run_gemm(struct cep_run *r, uint32_t dtype, const struct cep_mm *p,
		     const void *params, uint32_t batch, enum cep_kernel f32,
		     enum cep_kernel f16_16, enum cep_kernel f16_64,
		     enum cep_kernel bf16_16, enum cep_kernel bf16_64)
{
	bool small = p->m <= 16 && dtype != GENAI_DT_F32;
	uint32_t bm = small ? 16 : 64;
	enum cep_kernel k = dtype == GENAI_DT_F32 ? f32
			    : dtype == GENAI_DT_F16
				    ? (small ? f16_16 : f16_64)
				    : (small ? bf16_16 : bf16_64);

	return cep_run_kernel(r, k,
			      (struct cep_dim3){(p->n + 63) / 64,
						(p->m + bm - 1) / bm, batch},
			      dtype == GENAI_DT_F32 ? 256 : 128, 0, params);
}

// Batch dims of A and B: equal, or B has none.
static int32_t matmul_batch(struct cep_node *n, int64_t *out_batch,
			    struct genai_error *err)
{
	const struct exec_tensor *a = n->in[0], *b = n->in[1];
	int64_t batch = 1;

	if (b->rank == 2) {
		*out_batch = 1;
		return 0;
	}
	if (a->rank != b->rank || !exec_is_dense(b))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "batches of rank %u and %u", a->rank,
				     b->rank);
	for (uint32_t d = 0; d + 2 < a->rank; d++) {
		if (a->dims[d] != b->dims[d])
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "batches that broadcast");
		batch *= a->dims[d];
	}
	*out_batch = batch;
	return 0;
}

static int32_t prepare(struct cep_node *n, struct genai_error *err)
{
	struct mm_state *s = mm_state(n);
	const struct exec_tensor *a = n->in[0], *b = n->in[1];
	int64_t dims[GENAI_MAX_RANK], k, cols, batch = 1, sk, sn, splits;
	int32_t rc = cep_need_dense(n, 0, err);

	if (!rc && (a->rank < 2 || b->rank < 2))
		rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				   "ranks %u and %u", a->rank, b->rank);
	if (!rc)
		rc = matmul_batch(n, &batch, err);
	if (rc)
		return rc;
	k = a->dims[a->rank - 1];
	cols = b->dims[b->rank - 1];
	sk = b->strides[b->rank - 2];
	sn = b->strides[b->rank - 1];
	if (b->dims[b->rank - 2] != k || k < 1 || k > INT32_MAX ||
	    cols > INT32_MAX)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "K is %lld and %lld", (long long)k,
				     (long long)b->dims[b->rank - 2]);
	if (sn != 1 && sk != 1 && cols > 1 && k > 1)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "neither dimension of B is contiguous");
	s->n = cols;
	s->k = k;
	s->batch = batch;
	s->m = batch ? (int64_t)exec_count(a) / k / batch : 0;
	s->nk = sn != 1 && sk == 1;
	s->ldb = s->nk ? sn : sk;
	s->a_batch = s->m * k;
	s->b_batch = k * cols;
	splits = (k + 255) / 256;
	if (splits > 1 && !s->nk) {
		n->workspace_bytes = (uint64_t)(batch * splits * cols) * 4;
		n->sync_bytes = (uint64_t)(batch * ((cols + 63) / 64)) * 4;
	}
	memcpy(dims, a->dims, sizeof(dims));
	dims[a->rank - 1] = cols;
	return cep_out(n, 0, a->dtype, a->rank, dims, err);
}

int32_t cep_prepare_matmul(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 2, 2, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = cep_need_bf16(n, err);
	if (!rc)
		rc = cep_need_same(n, 1, 0, err);
	return rc ? rc : prepare(n, err);
}

// A of float32, B of half as many bits, [K, N]: widened as it is read.
int32_t cep_prepare_matmul_narrow(struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, NULL, 2, 2, 1, err);

	if (rc)
		return rc;
	if (n->in[0]->dtype != GENAI_DT_F32 ||
	    (n->in[1]->dtype != GENAI_DT_F16 &&
	     n->in[1]->dtype != GENAI_DT_BF16))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "a matrix of %s behind activations of %s",
				     exec_dtype_name(n->in[1]->dtype),
				     exec_dtype_name(n->in[0]->dtype));
	rc = cep_need_dense(n, 1, err);
	return rc ? rc : prepare(n, err);
}

static struct cep_mm params(const struct cep_node *n, const struct cep_run *r)
{
	const struct mm_state *s = mm_state(n);
	const struct exec_tensor *a = n->in[0], *b = n->in[1];

	return (struct cep_mm){
		.a = a->addr,
		.b = b->addr,
		.out = n->out[0]->addr,
		.part = r->workspace,
		.counters = r->sync,
		.lda = s->k,
		.ldb = s->ldb,
		.ldc = s->n,
		.a_batch = s->a_batch,
		.b_batch = s->b_batch,
		.c_batch = s->m * s->n,
		.m = (uint32_t)s->m,
		.n = (uint32_t)s->n,
		.k = (uint32_t)s->k,
	};
}

int32_t cep_run_matmul_narrow(struct cep_node *n, struct cep_run *r)
{
	const struct cep_mm p = params(n, r);
	bool half = n->in[1]->dtype == GENAI_DT_F16;
	uint32_t batch = (uint32_t)mm_state(n)->batch;

	if (!p.m || !p.n || !batch)
		return 0;
	if (p.m == 1 && !n->exact)
		return cep_run_kernel(r,
				      half ? CEP_K_cep_gemv_kn_f32_f16
					   : CEP_K_cep_gemv_kn_f32_bf16,
				      (struct cep_dim3){(p.n + 63) / 64,
							(p.k + 255) / 256,
							batch},
				      256, 0, &p);
	return cep_run_kernel(
		r,
		half ? CEP_K_cep_gemm_kn_f32_f16 : CEP_K_cep_gemm_kn_f32_bf16,
		(struct cep_dim3){(p.n + 63) / 64, (p.m + 63) / 64, batch}, 256,
		0, &p);
}

int32_t cep_run_matmul(struct cep_node *n, struct cep_run *r)
{
	const struct mm_state *s = mm_state(n);
	const struct exec_tensor *a = n->in[0];
	uint32_t size = cep_dtype_bytes(a->dtype);
	uint32_t batch = (uint32_t)s->batch;
	struct cep_mm p = params(n, r);
	bool nk = s->nk;

	p.vec_a = cep_is_vec(p.a, p.lda, size) && p.k % 8 == 0;
	p.vec_b = cep_is_vec(p.b, p.ldb, size) && (nk ? p.k : p.n) % 8 == 0;
	if (!p.m || !p.n || !batch)
		return 0;
	if (p.m == 1 && nk && !n->exact)
		return cep_run_kernel(
			r,
			cep_by_dtype(a->dtype, CEP_K_cep_gemv_nk_f32,
				     CEP_K_cep_gemv_nk_f16,
				     CEP_K_cep_gemv_nk_bf16),
			(struct cep_dim3){(p.n + 7) / 8, 1, batch}, 256, 0, &p);
	if (p.m == 1 && !n->exact)
		return cep_run_kernel(
			r,
			cep_by_dtype(a->dtype, CEP_K_cep_gemv_kn_f32,
				     CEP_K_cep_gemv_kn_f16,
				     CEP_K_cep_gemv_kn_bf16),
			(struct cep_dim3){(p.n + 63) / 64, (p.k + 255) / 256,
					  batch},
			256, 0, &p);
	if (nk)
		return cep_run_gemm(
			r, a->dtype, &p, &p, batch, CEP_K_cep_gemm_nk_f32,
			CEP_K_cep_gemm16_nk_f16, CEP_K_cep_gemm64_nk_f16,
			CEP_K_cep_gemm16_nk_bf16, CEP_K_cep_gemm64_nk_bf16);
	return cep_run_gemm(r, a->dtype, &p, &p, batch, CEP_K_cep_gemm_kn_f32,
			    CEP_K_cep_gemm16_kn_f16, CEP_K_cep_gemm64_kn_f16,
			    CEP_K_cep_gemm16_kn_bf16, CEP_K_cep_gemm64_kn_bf16);
}
