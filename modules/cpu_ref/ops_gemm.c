// ops_gemm.c - Gemm and Einsum.  Products are added in one written order, in
// double for float data, so no split of the output among threads shows.
#include "modules/cpu_ref/ops.h"

struct gemm {
	const struct cref_node *n;
	int64_t M, N, K;
	int64_t a_m, a_k, b_k, b_n; // strides
	int64_t c_m, c_n;
	double alpha, beta;
	enum ops_class c;
};

int32_t ops_gemm_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"alpha", "beta", "transA", "transB",
					    NULL};
	bool ta = exec_attr_int(n->node, "transA", 0) != 0;
	bool tb = exec_attr_int(n->node, "transB", 0) != 0;
	int32_t rc = ops_check(n, attrs, 2, 3, 1, err);
	const struct exec_tensor *a, *b, *c;
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
				      EXEC_SHAPE(a), ta ? " transposed" : "",
				      EXEC_SHAPE(b), tb ? " transposed" : "");
	for (uint32_t d = 0; c && d < c->rank; d++)
		fits = fits && c->rank <= 2 &&
		       (c->dims[d] == 1 || c->dims[d] == dims[d + 2 - c->rank]);
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "C of shape %s does not broadcast to "
				      "[%lld,%lld]",
				      EXEC_SHAPE(c), (long long)dims[0],
				      (long long)dims[1]);
	return ops_out(n, 0, a->dtype, 2, dims, err);
}

static void gemm_ints(const struct gemm *q, int64_t m, int64_t first,
		      uint32_t n)
{
	const struct exec_tensor *a = q->n->in[0], *b = q->n->in[1];
	const struct exec_tensor *c = q->n->n_in > 2 ? q->n->in[2] : NULL;
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
	const struct exec_tensor *a = q->n->in[0], *b = q->n->in[1];
	const struct exec_tensor *c = q->n->n_in > 2 ? q->n->in[2] : NULL;
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
	const struct exec_tensor *a = n->in[0], *b = n->in[1];
	const struct exec_tensor *c = n->n_in > 2 ? n->in[2] : NULL;
	bool ta = exec_attr_int(n->node, "transA", 0) != 0;
	bool tb = exec_attr_int(n->node, "transB", 0) != 0;
	struct gemm q = {
		.n = n,
		.M = n->out[0]->dims[0],
		.N = n->out[0]->dims[1],
		.K = a->dims[!ta],
		.a_m = ta ? 1 : a->dims[1],
		.a_k = ta ? a->dims[1] : 1,
		.b_k = tb ? 1 : b->dims[1],
		.b_n = tb ? b->dims[1] : 1,
		.alpha = exec_attr_float(n->node, "alpha", 1.0),
		.beta = exec_attr_float(n->node, "beta", 1.0),
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

// ---- Einsum: the sum over all labels that the output lacks, as written ----

#define LABELS (2 * 26 + GENAI_MAX_RANK) // letters, then dims of "..."
#define EIN_RANK GENAI_MAX_RANK

struct einsum {
	const struct cref_node *n;
	uint32_t n_in;
	int64_t size[LABELS];
	uint32_t seen[LABELS]; // how often in the inputs
	bool in_out[LABELS];
	int64_t strides[EXEC_MAX_IN][LABELS];
	uint32_t n_out, n_sum;
	uint32_t out[EIN_RANK], sum[LABELS];
	uint64_t terms;
	uint32_t dots; // largest number of dims that "..." stands for
	enum ops_class c;
};

static int label_of(char c)
{
	if (c >= 'A' && c <= 'Z')
		return c - 'A';
	return c >= 'a' && c <= 'z' ? c - 'a' + 26 : -1;
}

// One term of the equation up to ',' or '-' or the end: labels into list, "..."
// as dots labels.  Returns the number of labels, or -1.
static int ein_term(const char **s, uint32_t dots, uint32_t *list)
{
	bool seen_dots = false;
	int n = 0;

	for (; **s && **s != ',' && **s != '-'; (*s)++) {
		if (**s == ' ')
			continue;
		if (!strncmp(*s, "...", 3) && !seen_dots) {
			*s += 2;
			seen_dots = true;
			for (uint32_t d = 0; d < dots && n < EIN_RANK; d++)
				list[n++] = LABELS - dots + d;
			continue;
		}
		if (label_of(**s) < 0 || n == EIN_RANK)
			return -1;
		list[n++] = (uint32_t)label_of(**s);
	}
	return n;
}

static bool ein_input(struct einsum *q, const char **s, uint32_t i)
{
	const struct exec_tensor *x = q->n->in[i];
	uint32_t list[EIN_RANK], dots = 0;
	const char *t = *s;
	int letters = ein_term(&t, 0, list), n;
	bool has_dots = memchr(*s, '.', (size_t)(t - *s)) != NULL;

	if (letters < 0 || (uint32_t)letters > x->rank)
		return false;
	if (has_dots)
		dots = x->rank - (uint32_t)letters;
	n = ein_term(s, dots, list);
	if (n != (int)x->rank)
		return false;
	q->dots = dots > q->dots ? dots : q->dots;
	for (uint32_t d = 0; d < x->rank; d++) {
		uint32_t l = list[d];
		int64_t dim = x->dims[d];

		q->seen[l]++;
		if (q->size[l] < 0 || q->size[l] == 1)
			q->size[l] = dim;
		else if (dim != q->size[l] && dim != 1)
			return false;
		if (dim != 1)
			q->strides[i][l] +=
				(int64_t)ops_span(x, d + 1, x->rank);
	}
	return true;
}

static bool ein_output(struct einsum *q, const char *s)
{
	int n = 0;

	if (s[0] == '-' && s[1] == '>') {
		s += 2;
		n = ein_term(&s, q->dots, q->out);
		if (n < 0 || *s)
			return false;
		q->n_out = (uint32_t)n;
	} else if (*s) {
		return false;
	} else { // "...", then what appears once, in alphabetical order
		for (uint32_t d = 0; d < q->dots; d++)
			q->out[q->n_out++] = LABELS - q->dots + d;
		for (uint32_t l = 0; l < 52; l++)
			if (q->seen[l] == 1 && q->n_out == EIN_RANK)
				return false;
			else if (q->seen[l] == 1)
				q->out[q->n_out++] = l;
	}
	for (uint32_t k = 0; k < q->n_out; k++) {
		if (q->size[q->out[k]] < 0 || q->in_out[q->out[k]])
			return false;
		q->in_out[q->out[k]] = true;
	}
	return true;
}

// Read the equation; false when it does not fit the inputs.
static bool ein_parse(struct einsum *q, const struct cref_node *n)
{
	const char *s = exec_attr_string(n->node, "equation", "");

	memset(q, 0, sizeof(*q));
	q->n = n;
	q->n_in = n->n_in;
	q->terms = 1;
	for (uint32_t l = 0; l < LABELS; l++)
		q->size[l] = -1;
	for (uint32_t i = 0; i < n->n_in; i++) {
		if (!ein_input(q, &s, i) || (i + 1 < n->n_in && *s != ','))
			return false;
		if (i + 1 < n->n_in)
			s++;
	}
	if (!ein_output(q, s))
		return false;
	for (uint32_t l = 0; l < LABELS; l++)
		if (q->seen[l] && !q->in_out[l]) {
			q->sum[q->n_sum++] = l;
			if (__builtin_mul_overflow(
				    q->terms, (uint64_t)q->size[l], &q->terms))
				return false;
		}
	q->c = ops_class_of(n->in[0]->dtype);
	return true;
}

int32_t ops_einsum_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"equation", NULL};
	int32_t rc = ops_check(n, attrs, 1, EXEC_MAX_IN, 1, err);
	int64_t dims[EIN_RANK];
	struct einsum q;

	if (!rc)
		rc = ops_need_dtype(n, 0, OPS_NUMS, err);
	for (uint32_t i = 1; !rc && i < n->n_in; i++) {
		if (!n->in[i])
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "input %u is missing", i);
		rc = ops_need_same_dtype(n, 0, i, err);
	}
	if (rc)
		return rc;
	if (!ein_parse(&q, n))
		return cref_node_fail(
			n, err, GENAI_E_INVAL,
			"equation '%.100s' does not fit %u inputs, the first "
			"of shape %s",
			exec_attr_string(n->node, "equation", ""), n->n_in,
			EXEC_SHAPE(n->in[0]));
	for (uint32_t k = 0; k < q.n_out; k++)
		dims[k] = q.size[q.out[k]];
	return ops_out(n, 0, n->in[0]->dtype, q.n_out, dims, err);
}

// Offsets of every input for position k within the given labels.
static void ein_offsets(const struct einsum *q, const uint32_t *labels,
			uint32_t count, uint64_t k, int64_t *at)
{
	for (uint32_t j = count; j-- > 0;) {
		uint32_t l = labels[j];
		int64_t index = (int64_t)(k % (uint64_t)q->size[l]);

		k /= (uint64_t)q->size[l];
		for (uint32_t i = 0; i < q->n_in; i++)
			at[i] += index * q->strides[i][l];
	}
}

static void ein_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct einsum *q = ctx;
	bool real = q->c == OPS_F32 || q->c == OPS_F64;
	enum ops_class c = real ? OPS_F64 : q->c;
	union {
		double d;
		uint64_t u;
	} sum, p, v;

	for (uint64_t k = begin; k < end; k++) {
		sum.u = p.u = 0; // 0.0 too
		for (uint64_t t = 0; t < q->terms; t++) {
			int64_t at[EXEC_MAX_IN] = {0};

			ein_offsets(q, q->out, q->n_out, k, at);
			ein_offsets(q, q->sum, q->n_sum, t, at);
			for (uint32_t i = 0; i < q->n_in; i++) {
				const struct exec_tensor *x = q->n->in[i];

				ops_load(c, &v, x->dtype, x->data, at[i], 1, 1);
				if (!i)
					p = v;
				else if (real)
					p.d *= v.d;
				else
					p.u *= v.u;
			}
			if (real)
				sum.d += p.d;
			else
				sum.u += p.u;
		}
		ops_store(c, &sum, q->n->out[0]->dtype, q->n->out[0]->data,
			  (int64_t)k, 1, 1);
	}
}

int32_t ops_einsum_run(struct cref_node *n, const struct cref_run *r)
{
	uint64_t total = exec_count(n->out[0]);
	struct einsum q;

	if (total && ein_parse(&q, n))
		ops_rows(r->pool, ein_part, &q, total, q.terms * 8);
	return GENAI_OK;
}
