// matmul.c - MatMul of float tensors, with broadcast over batches.
// See kern_gemm.h for the order of the sums.
#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"

#include <math.h>

#define MM_MAX_M 128u // rows of one unit

struct mm_task {
	const struct cref_mm_job *j;
	const struct cref_kern *k;
	uint64_t m_step, n_tiles;
};

static void mm_store(const struct mm_task *t, uint64_t m, uint64_t n,
		     uint64_t count, const float *c)
{
	const struct cref_mm_job *j = t->j;
	const uint64_t size = j->c_dtype == GENAI_DT_F32 ? 4 : 2;

	t->k->narrow((char *)j->c + (m * j->ldc + n) * size, j->c_dtype, c,
		     count);
}

static void mm_stream_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct mm_task *t = ctx;
	const struct cref_mm_job *j = t->j;
	float c[CREF_MM_SMALL * CREF_MM_STREAM];

	for (uint64_t n = begin; n < end; n += CREF_MM_STREAM) {
		const uint64_t v =
			end - n < CREF_MM_STREAM ? end - n : CREF_MM_STREAM;

		t->k->mm_stream(j->a, j->lda, j->M, j->b, j->b_dtype, j->ldb, n,
				v, j->K, c, CREF_MM_STREAM);
		for (uint64_t m = 0; m < j->M; m++)
			mm_store(t, m, n, v, c + m * CREF_MM_STREAM);
	}
}

static void mm_tile_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct mm_task *t = ctx;
	const struct cref_mm_job *j = t->j;
	const uint64_t b_size = j->b_dtype == GENAI_DT_F32 ? 4 : 2;
	float b[CREF_MM_CHUNK * CREF_MM_COLS] __attribute__((aligned(64)));
	float c[MM_MAX_M * CREF_MM_COLS] __attribute__((aligned(64)));

	for (uint64_t u = begin; u < end; u++) {
		const uint64_t m0 = u / t->n_tiles * t->m_step;
		const uint64_t n0 = u % t->n_tiles * CREF_MM_COLS;
		uint64_t M = j->M - m0, N = j->N - n0;

		M = M < t->m_step ? M : t->m_step;
		N = N < CREF_MM_COLS ? N : CREF_MM_COLS;
		for (uint64_t k = 0; k < j->K; k += CREF_MM_CHUNK) {
			const uint64_t v = j->K - k < CREF_MM_CHUNK
						   ? j->K - k
						   : CREF_MM_CHUNK;

			t->k->mm_pack(b,
				      (const char *)j->b + k * j->ldb * b_size,
				      j->b_dtype, j->ldb, n0, N, v);
			t->k->mm_tile(j->a + m0 * j->lda + k, j->lda, b, v, c,
				      CREF_MM_COLS, M, k > 0);
		}
		for (uint64_t m = 0; m < M; m++)
			mm_store(t, m0 + m, n0, N, c + m * CREF_MM_COLS);
	}
}

void cref_mm_mul(const struct cref_mm_job *j, struct cref_pool *pool)
{
	struct mm_task t = {j, cref_kern(), 0, 0};
	uint64_t blocks;

	if (!j->M || !j->N)
		return;
	if (!j->K) {
		const uint64_t size = j->c_dtype == GENAI_DT_F32 ? 4 : 2;

		for (uint64_t m = 0; m < j->M; m++)
			memset((char *)j->c + m * j->ldc * size, 0,
			       j->N * size);
		return;
	}
	if (j->M <= CREF_MM_SMALL) {
		cref_pool_run(pool, mm_stream_part, &t, j->N, 64);
		return;
	}
	// blocks of A of equal height, a multiple of 8
	blocks = (j->M - 1) / MM_MAX_M + 1;
	t.m_step = ((j->M - 1) / blocks + 8) / 8 * 8;
	t.m_step = t.m_step < MM_MAX_M ? t.m_step : MM_MAX_M;
	blocks = (j->M - 1) / t.m_step + 1;
	t.n_tiles = (j->N - 1) / CREF_MM_COLS + 1;
	cref_pool_run(pool, mm_tile_part, &t, blocks * t.n_tiles, 1);
}

// ---- the operator ----

#define MM_BATCH (GENAI_MAX_RANK - 2)

struct mm_state {
	int64_t M, K, N;
	uint32_t rank; // of the batch
	bool copy_a;   // to fp32 in the workspace
	int64_t dims[MM_BATCH];
	int64_t a[MM_BATCH], b[MM_BATCH]; // strides in matrices
};
EXEC_STATE(mm_state, cref_node)

// Strides of t's batch dims, seen as the last of rank dims.
static void mm_strides(const struct exec_tensor *t, uint32_t rank, int64_t *s)
{
	const uint32_t own = t->rank > 2 ? t->rank - 2 : 0;
	int64_t step = 1;

	for (uint32_t i = 0; i < rank; i++)
		s[i] = 0;
	for (uint32_t i = own; i-- > 0;) {
		if (t->dims[i] != 1)
			s[rank - own + i] = step;
		step *= t->dims[i];
	}
}

static int32_t mm_shape(struct cref_node *n, struct mm_state *s,
			struct genai_error *err)
{
	const struct exec_tensor *a = n->in[0], *b = n->in[1];
	const uint32_t ra = a->rank, rb = b->rank;
	int64_t dims[GENAI_MAX_RANK] = {0};
	uint32_t rank = 0;

	s->K = a->dims[ra - 1];
	s->M = ra > 1 ? a->dims[ra - 2] : 1;
	s->N = rb > 1 ? b->dims[rb - 1] : 1;
	s->rank = (ra > rb ? ra : rb) > 2 ? (ra > rb ? ra : rb) - 2 : 0;
	if (b->dims[rb > 1 ? rb - 2 : 0] != s->K)
		goto differ;
	for (uint32_t i = 0; i < s->rank; i++) {
		const uint32_t back = s->rank + 2 - i;
		const int64_t x = back <= ra ? a->dims[ra - back] : 1;
		const int64_t y = back <= rb ? b->dims[rb - back] : 1;

		if (x != y && x != 1 && y != 1)
			goto differ;
		dims[rank++] = s->dims[i] = x == 1 ? y : x;
	}
	mm_strides(a, s->rank, s->a);
	mm_strides(b, s->rank, s->b);
	if (ra > 1)
		dims[rank++] = s->M;
	if (rb > 1)
		dims[rank++] = s->N;
	if (rb <= 2) { // one matrix: the batch is more rows
		for (uint32_t i = 0; i < s->rank; i++)
			s->M *= s->dims[i];
		s->rank = 0;
	}
	return ops_out(n, 0, a->dtype, rank, dims, err);
differ:
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "shapes %s and %s do not multiply", EXEC_SHAPE(a),
			      EXEC_SHAPE(b));
}

static int32_t mm_prepare(struct cref_node *n, struct genai_error *err)
{
	struct mm_state s = {0};
	int32_t rc;

	if ((rc = ops_need_rank(n, 0, 1, GENAI_MAX_RANK, err)) ||
	    (rc = ops_need_rank(n, 1, 1, GENAI_MAX_RANK, err)) ||
	    (rc = mm_shape(n, &s, err)))
		return rc;
	// a stored A may lie at any address
	s.copy_a = n->in[0]->dtype != GENAI_DT_F64 &&
		   (n->in[0]->dtype != GENAI_DT_F32 || n->in[0]->value);
	n->workspace_bytes =
		s.copy_a ? exec_count(n->in[0]) * sizeof(float) : 0;
	*mm_state(n) = s;
	return GENAI_OK;
}

int32_t cref_matmul_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc;

	if ((rc = ops_check(n, NULL, 2, 2, 1, err)) ||
	    (rc = ops_need_dtype(n, 0, OPS_F32S | OPS_BIT(GENAI_DT_F64),
				 err)) ||
	    (rc = ops_need_same_dtype(n, 0, 1, err)))
		return rc;
	return mm_prepare(n, err);
}

// A of float32, B of half as many bits: widened as it is read.
int32_t cref_matmul_narrow_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc;

	if ((rc = ops_check(n, NULL, 2, 2, 1, err)) ||
	    (rc = ops_need_dtype(n, 0, OPS_BIT(GENAI_DT_F32), err)) ||
	    (rc = ops_need_dtype(n, 1,
				 OPS_BIT(GENAI_DT_F16) | OPS_BIT(GENAI_DT_BF16),
				 err)))
		return rc;
	return mm_prepare(n, err);
}

struct mm_widen {
	const struct exec_tensor *a;
	float *to;
};

static void mm_widen_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct mm_widen *w = ctx;
	const uint64_t size = w->a->dtype == GENAI_DT_F32 ? 4 : 2;

	cref_widen(w->to + begin, (const char *)w->a->data + begin * size,
		   w->a->dtype, end - begin);
}

// One product of doubles, its sums from k = 0 on; addresses may be any.
static void mm_f64(const struct cref_mm_job *j, const char *a)
{
	for (uint64_t m = 0; m < j->M; m++)
		for (uint64_t n = 0; n < j->N; n++) {
			double sum = 0, x, y;

			for (uint64_t k = 0; k < j->K; k++) {
				memcpy(&x, a + (m * j->lda + k) * 8, 8);
				memcpy(&y,
				       (const char *)j->b +
					       (k * j->ldb + n) * 8,
				       8);
				sum = fma(x, y, sum);
			}
			memcpy((char *)j->c + (m * j->ldc + n) * 8, &sum, 8);
		}
}

int32_t cref_matmul_run(struct cref_node *n, const struct cref_run *r)
{
	const struct exec_tensor *b = n->in[1], *c = n->out[0];
	struct cref_mm_job j = {0};
	struct mm_widen w = {n->in[0], r->workspace};
	const struct mm_state s = *mm_state(n);
	uint64_t batches = 1, first = 0;

	j.a = n->in[0]->data;
	if (s.copy_a) {
		cref_pool_run(r->pool, mm_widen_part, &w, exec_count(n->in[0]),
			      16384);
		j.a = r->workspace;
	}
	j.b_dtype = b->dtype;
	j.c_dtype = c->dtype;
	j.M = (uint64_t)s.M;
	j.K = j.lda = (uint64_t)s.K;
	j.N = j.ldb = j.ldc = (uint64_t)s.N;
	if (b->rank == 2 && r->row_end) { // columns of it, packed
		j.N = j.ldb = r->row_end - r->row_begin;
		first = r->row_begin;
	}
	for (uint32_t i = 0; i < s.rank; i++)
		batches *= (uint64_t)s.dims[i];
	for (uint64_t u = 0; u < batches; u++) {
		struct cref_mm_job one = j;
		uint64_t rest = u;
		int64_t ia = 0, ib = 0;

		for (uint32_t i = s.rank; i-- > 0;) {
			const uint64_t d = (uint64_t)s.dims[i];

			ia += (int64_t)(rest % d) * s.a[i];
			ib += (int64_t)(rest % d) * s.b[i];
			rest /= d;
		}
		one.a = c->dtype == GENAI_DT_F64 ? NULL : j.a + ia * s.M * s.K;
		one.b = (const char *)b->data +
			ib * s.K * s.N * (exec_bits(b->dtype) / 8);
		one.c = (char *)c->data +
			((int64_t)u * s.M * s.N + (int64_t)first) *
				(exec_bits(c->dtype) / 8);
		if (c->dtype == GENAI_DT_F64)
			mm_f64(&one, (const char *)n->in[0]->data +
					     ia * s.M * s.K * 8);
		else
			cref_mm_mul(&one, r->pool);
	}
	return GENAI_OK;
}
