// matmul_nbits.c - MatMulNBits: Y = A W^T + bias, W in 2, 4 or 8 bits.
// See kern_nbits.h for the order of the sums.
#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"

// ---- the product ----

struct nb_task {
	const struct cref_nbits_job *j;
	const struct cref_kern *k;
	float *a; // as the kernels read it
	uint64_t lda;
	uint64_t m_step; // rows of A in one unit
	uint64_t n_tiles;
};

uint64_t cref_nbits_ws(uint64_t M, uint64_t K)
{
	uint64_t v;

	if (K > (uint64_t)1 << 46 ||
	    __builtin_mul_overflow(M, cref_nb_stride(K) * sizeof(float), &v) ||
	    v > (uint64_t)1 << 46)
		return 0;
	return v ? v : 64;
}

// Columns [n, n + count) of the only row of the result, from fp32 sums.
static void nb_store(const struct nb_task *t, uint64_t n, uint64_t count,
		     float *y)
{
	const struct cref_nbits_job *j = t->j;
	const uint64_t size = j->y_dtype == GENAI_DT_F32 ? 4 : 2;
	char *out = (char *)j->y + n * size;

	if (j->bias)
		for (uint64_t i = 0; i < count; i++)
			y[i] += cref_load(j->bias, j->bias_dtype, n + i);
	t->k->narrow(out, j->y_dtype, y, count);
}

static void nb_fill_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct nb_task *t = ctx;
	const struct cref_nbits_job *j = t->j;
	const uint64_t size = j->a_dtype == GENAI_DT_F32 ? 4 : 2;

	for (uint64_t m = begin; m < end; m++)
		t->k->nb_fill(t->a + m * t->lda,
			      (const char *)j->a + m * j->lda * size,
			      j->a_dtype, &j->w);
}

static void nb_gemv_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct nb_task *t = ctx;
	float y[64];

	for (uint64_t n = begin; n < end; n += 64) {
		const uint64_t c = end - n < 64 ? end - n : 64;

		t->k->nb_gemv(&t->j->w, t->a, n, n + c, y);
		nb_store(t, n, c, y);
	}
}

static void nb_gemm_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct nb_task *t = ctx;
	const struct cref_nbits_job *j = t->j;
	const uint64_t size = j->y_dtype == GENAI_DT_F32 ? 4 : 2;
	struct cref_nb_scratch s __attribute__((aligned(64)));
	float bias[CREF_NB_TILE] = {0};
	struct cref_nb_out out = {NULL, j->ldy * size, j->bias ? bias : NULL,
				  j->y_dtype};

	for (uint64_t u = begin; u < end; u++) {
		const uint64_t m0 = u / t->n_tiles * t->m_step;
		const uint64_t n0 = u % t->n_tiles * CREF_NB_TILE;
		uint64_t M = j->M - m0, n1 = n0 + CREF_NB_TILE;

		M = M < t->m_step ? M : t->m_step;
		n1 = n1 < j->w.N ? n1 : j->w.N;
		out.y = (char *)j->y + (m0 * j->ldy + n0) * size;
		for (uint64_t n = n0; j->bias && n < n1; n++)
			bias[n - n0] = cref_load(j->bias, j->bias_dtype, n);
		t->k->nb_gemm(&j->w, t->a + m0 * t->lda, M, n0, n1, &out, &s);
	}
}

void cref_nbits_mul(const struct cref_nbits_job *j, struct cref_pool *pool)
{
	struct nb_task t = {j, cref_kern(), j->ws, cref_nb_stride(j->w.K), 0,
			    0};
	uint64_t blocks;

	if (!j->M || !j->w.N)
		return;
	if (j->M == 1) {
		nb_fill_part(&t, 0, 1);
		cref_pool_run(pool, nb_gemv_part, &t, j->w.N, 32);
		return;
	}
	cref_pool_run(pool, nb_fill_part, &t, j->M, 8);
	// blocks of A of equal height, a multiple of 12
	blocks = (j->M - 1) / CREF_NB_MAX_M + 1;
	t.m_step = ((j->M - 1) / blocks + 12) / 12 * 12;
	t.m_step = t.m_step < CREF_NB_MAX_M ? t.m_step : CREF_NB_MAX_M;
	blocks = (j->M - 1) / t.m_step + 1;
	t.n_tiles = (j->w.N - 1) / CREF_NB_TILE + 1;
	cref_pool_run(pool, nb_gemm_part, &t, blocks * t.n_tiles, 1);
}

// ---- the operator ----

struct nb_state {
	int64_t M, K, N, bits, block;
	uint32_t z_kind;
};
EXEC_STATE(nb_state, cref_node)

// The attributes, within their bounds.
static int32_t nb_attrs(struct cref_node *n, struct genai_error *err)
{
	struct nb_state *s = nb_state(n);
	const int64_t K = exec_attr_int(n->node, "K", 0);
	const int64_t N = exec_attr_int(n->node, "N", 0);
	const int64_t bits = exec_attr_int(n->node, "bits", 4);
	const int64_t block = exec_attr_int(n->node, "block_size", 0);
	const int64_t packed = exec_attr_int(n->node, "weight_prepacked", 0);
	int32_t rc = ops_check(n, exec_nbits_attrs, 3, 6, 1, err);

	if (rc)
		return rc;
	if (packed)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "weight_prepacked %lld: weights in a GPU "
				      "library's own layout; export with 0",
				      (long long)packed);
	if (n->n_in > 4 && n->in[4])
		return cref_node_fail(
			n, err, GENAI_E_UNSUPPORTED,
			"input 4 g_idx (act-order) is not carried");
	if (bits != 2 && bits != 4 && bits != 8)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "bits %lld, carried: 2, 4, 8",
				      (long long)bits);
	if (block < 16 || block > 1 << 20 || (block & (block - 1)))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "block_size %lld, must be a power of two "
				      "from 16 to 1048576",
				      (long long)block);
	if (K < 1 || N < 1 || K > (int64_t)1 << 40 || N > (int64_t)1 << 40)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "K %lld, N %lld, must be from 1 to 2^40",
				      (long long)K, (long long)N);
	s->K = K;
	s->N = N;
	s->bits = bits;
	s->block = block;
	return GENAI_OK;
}

static int32_t nb_inputs(struct cref_node *n, struct genai_error *err)
{
	struct nb_state *s = nb_state(n);
	const int64_t K = s->K, N = s->N, bits = s->bits, block = s->block;
	const int64_t blocks = (K + block - 1) / block;
	const int64_t b_dims[3] = {N, blocks, block / 8 * bits};
	const int64_t dims[2] = {N, blocks};
	const int64_t z_dims[2] = {N, (blocks * bits + 7) / 8};
	const struct exec_tensor *z = n->n_in > 3 ? n->in[3] : NULL;
	int64_t bytes;
	int32_t rc;

	if (__builtin_mul_overflow(N, blocks * (block / 8 * bits), &bytes))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "K and N are too large");
	if ((rc = ops_need_dtype(n, 0, OPS_F32S, err)) ||
	    (rc = ops_need_dtype(n, 1, OPS_BIT(GENAI_DT_U8), err)) ||
	    (rc = ops_need_dtype(n, 2, OPS_F32S, err)) ||
	    (rc = ops_need_rank(n, 0, 1, GENAI_MAX_RANK, err)) ||
	    (rc = ops_need_shape(n, 1, 3, b_dims, false, err)) ||
	    (rc = ops_need_shape(n, 2, 2, dims, true, err)))
		return rc;
	if (n->in[0]->dims[n->in[0]->rank - 1] != K)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input 0 of shape %s must end in K = "
				      "%lld",
				      EXEC_SHAPE(n->in[0]), (long long)K);
	s->z_kind = CREF_Z_NONE;
	if (z && z->dtype == GENAI_DT_U8) {
		s->z_kind = CREF_Z_PACKED;
		rc = ops_need_shape(n, 3, 2, z_dims, true, err);
	} else if (z) {
		s->z_kind = CREF_Z_FLOAT;
		rc = ops_need_same_dtype(n, 2, 3, err);
		rc = rc ? rc : ops_need_shape(n, 3, 2, dims, true, err);
	}
	if (!rc && n->n_in > 5 && n->in[5]) {
		rc = ops_need_dtype(n, 5, OPS_F32S, err);
		rc = rc ? rc : ops_need_shape(n, 5, 1, dims, false, err);
	}
	return rc;
}

int32_t cref_matmul_nbits_prepare(struct cref_node *n, struct genai_error *err)
{
	struct nb_state *s = nb_state(n);
	int64_t dims[GENAI_MAX_RANK];
	const struct exec_tensor *a;
	uint64_t M, ws;
	int32_t rc;

	if ((rc = nb_attrs(n, err)) || (rc = nb_inputs(n, err)))
		return rc;
	a = n->in[0];
	M = ops_span(a, 0, a->rank - 1);
	ws = cref_nbits_ws(M, (uint64_t)s->K);
	if (!ws)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "input 0 of shape %s is too large",
				      EXEC_SHAPE(a));
	memcpy(dims, a->dims, sizeof(dims));
	dims[a->rank - 1] = s->N;
	s->M = (int64_t)M;
	n->workspace_bytes = ws;
	return ops_out(n, 0, a->dtype, a->rank, dims, err);
}

// From row_begin on: of an input that was cut, or travels by value.
static const void *nb_rows(const struct exec_tensor *t, uint64_t row_begin,
			   uint64_t row)
{
	return (const char *)t->data +
	       (t->data == t->value ? row_begin * row : 0);
}

int32_t cref_matmul_nbits_run(struct cref_node *n, const struct cref_run *r)
{
	const struct nb_state *s = nb_state(n);
	const uint64_t K = (uint64_t)s->K;
	const uint64_t N = (uint64_t)s->N;
	const uint64_t bits = (uint64_t)s->bits;
	const uint64_t block = (uint64_t)s->block;
	const uint64_t blocks = (K + block - 1) / block;
	const uint64_t size = exec_bits(n->in[2]->dtype) / 8;
	const struct exec_tensor *bias = n->n_in > 5 ? n->in[5] : NULL;
	struct cref_nbits_job j = {0};
	struct cref_nbits *w = &j.w;

	w->K = K;
	w->N = r->row_end - r->row_begin;
	w->bits = (uint32_t)bits;
	w->block = (uint32_t)block;
	w->s_dtype = n->in[2]->dtype;
	w->z_kind = s->z_kind;
	w->b_row = blocks * (block / 8 * bits);
	w->s_row = blocks * size;
	w->z_row = w->z_kind == CREF_Z_PACKED ? (blocks * bits + 7) / 8
					      : blocks * size;
	w->b = nb_rows(n->in[1], r->row_begin, w->b_row);
	w->s = nb_rows(n->in[2], r->row_begin, w->s_row);
	if (w->z_kind != CREF_Z_NONE)
		w->z = nb_rows(n->in[3], r->row_begin, w->z_row);
	j.a = n->in[0]->data;
	j.a_dtype = n->in[0]->dtype;
	j.M = (uint64_t)s->M;
	j.lda = K;
	j.ldy = N;
	j.y_dtype = n->out[0]->dtype;
	j.y = (char *)n->out[0]->data +
	      r->row_begin * (exec_bits(j.y_dtype) / 8);
	if (bias) {
		j.bias_dtype = bias->dtype;
		j.bias = (const char *)bias->data +
			 r->row_begin * (exec_bits(bias->dtype) / 8);
	}
	j.ws = r->workspace;
	cref_nbits_mul(&j, r->pool);
	return GENAI_OK;
}
