// ops_gemm.c - Gemm: alpha * A' * B' + beta * C.  Products of a row are added
// in the order of k, in double for float data, so no split of rows shows.
#include "ops.h"

struct gemm {
	const struct cref_node *n;
	int64_t M, N, K;
	int64_t a_m, a_k, b_k, b_n; /* strides */
	int64_t c_m, c_n;
	double alpha, beta;
	enum ops_class c;
};

int32_t ops_gemm_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"alpha", "beta", "transA", "transB",
					    NULL};
	bool ta = cref_attr_int(n->node, "transA", 0) != 0;
	bool tb = cref_attr_int(n->node, "transB", 0) != 0;
	int32_t rc = ops_check(n, attrs, 2, 3, 1, err);
	const struct cref_tensor *a, *b, *c;
	int64_t dims[2];
	bool fits = true;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = ops_need_same_dtype(n, 0, i, err);
	if (!rc)
		rc = ops_need_rank(n, 0, 2, 2, err);
	if (!rc)
		rc = ops_need_rank(n, 1, 2, 2, err);
	if (rc)
		return rc;
	a = n->in[0];
	b = n->in[1];
	c = n->n_in > 2 ? n->in[2] : NULL;
	dims[0] = a->dims[ta];
	dims[1] = b->dims[!tb];
	if (a->dims[!ta] != b->dims[tb])
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "A of shape %s%s and B of shape %s%s do "
				      "not multiply",
				      OPS_SHAPE(a), ta ? " transposed" : "",
				      OPS_SHAPE(b), tb ? " transposed" : "");
	for (uint32_t d = 0; c && d < c->rank; d++)
		fits = fits && c->rank <= 2 &&
		       (c->dims[d] == 1 || c->dims[d] == dims[d + 2 - c->rank]);
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "C of shape %s does not broadcast to "
				      "[%lld,%lld]",
				      OPS_SHAPE(c), (long long)dims[0],
				      (long long)dims[1]);
	return ops_out(n, 0, a->dtype, 2, dims, err);
}

static void gemm_ints(const struct gemm *q, int64_t m, int64_t first,
		      uint32_t n)
{
	const struct cref_tensor *a = q->n->in[0], *b = q->n->in[1];
	const struct cref_tensor *c = q->n->n_in > 2 ? q->n->in[2] : NULL;
	uint64_t acc[OPS_CHUNK] = {0}, v[OPS_CHUNK], s;

	for (int64_t k = 0; k < q->K; k++) {
		ops_load(q->c, &s, a->dtype, a->data, m * q->a_m + k * q->a_k,
			 1, 1);
		ops_load(q->c, v, b->dtype, b->data,
			 k * q->b_k + first * q->b_n, q->b_n, n);
		for (uint32_t i = 0; i < n; i++)
			acc[i] += s * v[i];
	}
	for (uint32_t i = 0; i < n; i++)
		acc[i] *= (uint64_t)(int64_t)q->alpha;
	if (c) {
		ops_load(q->c, v, c->dtype, c->data,
			 m * q->c_m + first * q->c_n, q->c_n, n);
		for (uint32_t i = 0; i < n; i++)
			acc[i] += (uint64_t)(int64_t)q->beta * v[i];
	}
	ops_store(q->c, acc, a->dtype, q->n->out[0]->data, m * q->N + first, 1,
		  n);
}

static void gemm_reals(const struct gemm *q, int64_t m, int64_t first,
		       uint32_t n)
{
	const struct cref_tensor *a = q->n->in[0], *b = q->n->in[1];
	const struct cref_tensor *c = q->n->n_in > 2 ? q->n->in[2] : NULL;
	double acc[OPS_CHUNK] = {0}, v[OPS_CHUNK], s;

	for (int64_t k = 0; k < q->K; k++) {
		ops_load(OPS_F64, &s, a->dtype, a->data,
			 m * q->a_m + k * q->a_k, 1, 1);
		ops_load(OPS_F64, v, b->dtype, b->data,
			 k * q->b_k + first * q->b_n, q->b_n, n);
		for (uint32_t i = 0; i < n; i++)
			acc[i] += s * v[i];
	}
	for (uint32_t i = 0; i < n; i++)
		acc[i] *= q->alpha;
	if (c && q->beta != 0) {
		ops_load(OPS_F64, v, c->dtype, c->data,
			 m * q->c_m + first * q->c_n, q->c_n, n);
		for (uint32_t i = 0; i < n; i++)
			acc[i] += q->beta * v[i];
	}
	ops_store(OPS_F64, acc, a->dtype, q->n->out[0]->data, m * q->N + first,
		  1, n);
}

static void gemm_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct gemm *q = ctx;

	for (int64_t m = (int64_t)begin; m < (int64_t)end; m++)
		for (int64_t i = 0; i < q->N; i += OPS_CHUNK) {
			uint32_t n = q->N - i < OPS_CHUNK ? (uint32_t)(q->N - i)
							  : OPS_CHUNK;

			if (q->c == OPS_F32 || q->c == OPS_F64)
				gemm_reals(q, m, i, n);
			else
				gemm_ints(q, m, i, n);
		}
}

int32_t ops_gemm_run(struct cref_node *n, const struct cref_run *r)
{
	const struct cref_tensor *a = n->in[0], *b = n->in[1];
	const struct cref_tensor *c = n->n_in > 2 ? n->in[2] : NULL;
	bool ta = cref_attr_int(n->node, "transA", 0) != 0;
	bool tb = cref_attr_int(n->node, "transB", 0) != 0;
	struct gemm q = {
		.n = n,
		.M = n->out[0]->dims[0],
		.N = n->out[0]->dims[1],
		.K = a->dims[!ta],
		.a_m = ta ? 1 : a->dims[1],
		.a_k = ta ? a->dims[1] : 1,
		.b_k = tb ? 1 : b->dims[1],
		.b_n = tb ? b->dims[1] : 1,
		.alpha = cref_attr_float(n->node, "alpha", 1.0),
		.beta = cref_attr_float(n->node, "beta", 1.0),
		.c = ops_class_of(a->dtype),
	};

	if (c && c->rank && c->dims[c->rank - 1] != 1)
		q.c_n = 1;
	if (c && c->rank == 2 && c->dims[0] != 1)
		q.c_m = c->dims[1];
	if (q.M && q.N)
		ops_rows(r->pool, gemm_part, &q, (uint64_t)q.M,
			 (uint64_t)q.N * (uint64_t)(q.K ? q.K : 1));
	return GENAI_OK;
}
