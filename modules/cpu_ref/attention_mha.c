// attention_mha.c - MultiHeadAttention: separate query, key and value of rank
// 3, with bias, a key padding mask or an attention bias, and a growing cache.
// Keys and values go to the present, or to the workspace when there is none.
#include "modules/cpu_ref/attention.h"
#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"

enum { QUERY, KEY, VALUE, BIAS, MASK, ATTN_BIAS, PAST_K, PAST_V, N_CARRIED };

struct mha {
	int64_t B, S, L, P, T, N, H, Hv;
	uint64_t mask_at, lens_at, kv_at[2],
		attn_at; // workspace; q is first
	float scale, filter;
	bool causal;
};
EXEC_STATE(mha, cref_node)

static const struct exec_tensor *mha_in(const struct cref_node *n, uint32_t i)
{
	return i < n->n_in ? n->in[i] : NULL;
}

static int32_t mha_bad(struct cref_node *n, uint32_t i, const char *want,
		       struct genai_error *err)
{
	return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
			      "input %u '%.60s' of shape %s, carried: %s", i,
			      n->in[i]->name ? n->in[i]->name : "",
			      EXEC_SHAPE(n->in[i]), want);
}

static int32_t mha_attrs(struct cref_node *n, struct mha *m,
			 struct genai_error *err)
{
	static const char *const known[] = {"num_heads", "mask_filter_value",
					    "scale", "unidirectional", NULL};
	int32_t rc = ops_check(n, known, 3, 10, 4, err);

	if (rc)
		return rc;
	m->N = exec_attr_int(n->node, "num_heads", 0);
	m->scale = (float)exec_attr_float(n->node, "scale", 0);
	m->filter =
		(float)exec_attr_float(n->node, "mask_filter_value", -10000);
	m->causal = exec_attr_int(n->node, "unidirectional", 0) != 0;
	if (m->N < 1 || m->N > 65536)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "num_heads %lld, must be 1 to 65536",
				      (long long)m->N);
	for (uint32_t i = N_CARRIED; i < n->n_in; i++)
		if (n->in[i])
			return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
					      "input %u is not carried", i);
	if (n->n_out > 3 && n->out[3])
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "output 3 is not carried");
	if (mha_in(n, MASK) && mha_in(n, ATTN_BIAS))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "key_padding_mask together with "
				      "attention_bias is not carried");
	return GENAI_OK;
}

static int32_t mha_qkv(struct cref_node *n, struct mha *m,
		       struct genai_error *err)
{
	const struct exec_tensor *q = n->in[QUERY], *k = n->in[KEY];
	const struct exec_tensor *v = n->in[VALUE], *b = mha_in(n, BIAS);

	for (uint32_t i = QUERY; i <= VALUE; i++)
		if (n->in[i]->rank != 3 || n->in[i]->dims[0] != q->dims[0] ||
		    n->in[i]->dims[2] < m->N || n->in[i]->dims[2] % m->N)
			return mha_bad(n, i, "[batch, length, heads * size]",
				       err);
	m->B = q->dims[0];
	m->S = q->dims[1];
	m->L = k->dims[1];
	m->H = q->dims[2] / m->N;
	m->Hv = v->dims[2] / m->N;
	if (k->dims[2] != q->dims[2] || v->dims[1] != m->L)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "query %s, key %s and value %s do not "
				      "fit",
				      EXEC_SHAPE(q), EXEC_SHAPE(k),
				      EXEC_SHAPE(v));
	if (m->H > 65536 || m->Hv > 65536 || m->B > INT32_MAX ||
	    m->S > INT32_MAX || m->L > INT32_MAX)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "query of shape %s is too large",
				      EXEC_SHAPE(q));
	if (b && exec_count(b) != (uint64_t)(m->N * (2 * m->H + m->Hv)))
		return mha_bad(n, BIAS, "[width of query, key and value]", err);
	return GENAI_OK;
}

static int32_t mha_rest(struct cref_node *n, struct mha *m,
			struct genai_error *err)
{
	const struct exec_tensor *k = mha_in(n, PAST_K), *v = mha_in(n, PAST_V);
	const struct exec_tensor *mask = mha_in(n, MASK);
	const struct exec_tensor *b = mha_in(n, ATTN_BIAS);
	const int64_t size[2] = {m->H, m->Hv};

	if (!k != !v)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "past_key and past_value must come "
				      "together");
	m->P = k ? k->dims[k->rank > 2 ? 2 : 0] : 0;
	for (uint32_t i = PAST_K; k && i <= PAST_V; i++)
		if (n->in[i]->rank != 4 || n->in[i]->dims[0] != m->B ||
		    n->in[i]->dims[1] != m->N || n->in[i]->dims[2] != m->P ||
		    n->in[i]->dims[3] != size[i - PAST_K])
			return mha_bad(n, i, "[batch, heads, rows, size]", err);
	if (m->P > INT32_MAX)
		return mha_bad(n, PAST_K, "at most 2^31 rows", err);
	m->T = m->P + m->L;
	if (mask && !(mask->rank == 1 && mask->dims[0] == m->B) &&
	    !(mask->rank == 2 && mask->dims[0] == m->B &&
	      mask->dims[1] == m->T))
		return mha_bad(n, MASK, "[batch] or [batch, total length]",
			       err);
	if (b && (b->rank != 4 || (b->dims[0] != 1 && b->dims[0] != m->B) ||
		  (b->dims[1] != 1 && b->dims[1] != m->N) ||
		  b->dims[2] != m->S || b->dims[3] != m->T))
		return mha_bad(n, ATTN_BIAS,
			       "[batch or 1, heads or 1, length, total length]",
			       err);
	return GENAI_OK;
}

static int32_t mha_dtypes(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_need_dtype(n, QUERY, OPS_F32S, err);

	for (uint32_t i = KEY; i < N_CARRIED && !rc; i++)
		rc = i == MASK
			     ? ops_need_dtype(n, i, OPS_BIT(GENAI_DT_I32), err)
			     : ops_need_same_dtype(n, QUERY, i, err);
	return rc;
}

// Lay the workspace out; false: too large.
static bool mha_layout(struct cref_node *n, struct mha *m)
{
	const uint64_t limit = (uint64_t)1 << 46, B = (uint64_t)m->B;
	const uint64_t rows = B * (uint64_t)m->S, N = (uint64_t)m->N;
	const uint64_t wide[2] = {(uint64_t)m->H, (uint64_t)m->Hv};
	const uint64_t T = (uint64_t)m->T;
	uint64_t at, attn;

	if (rows > limit || B * T > limit || rows > limit / (N * wide[0] * 4))
		return false;
	at = rows * N * wide[0] * 4;
	m->lens_at = at = (at + 63) / 64 * 64;
	m->mask_at = at = (at + B * 16 + 63) / 64 * 64;
	at += mha_in(n, MASK) ? B * T * 4 : 0;
	for (uint32_t i = 0; i < 2; i++) {
		m->kv_at[i] = at = (at + 63) / 64 * 64;
		if (n->n_out > 1 + i && n->out[1 + i])
			continue;
		if (B * T > limit / (N * wide[i] * 4))
			return false;
		at += B * T * N * wide[i] * 4;
	}
	m->attn_at = at = (at + 63) / 64 * 64;
	attn = cref_attn_ws(B, (uint64_t)m->S, N, N, wide[0], wide[1]);
	n->workspace_bytes = at + attn;
	return attn != 0;
}

int32_t cref_mha_prepare(struct cref_node *n, struct genai_error *err)
{
	struct mha m = {0};
	uint32_t dtype;
	int32_t rc;

	if ((rc = mha_attrs(n, &m, err)) || (rc = mha_dtypes(n, err)) ||
	    (rc = mha_qkv(n, &m, err)) || (rc = mha_rest(n, &m, err)))
		return rc;
	if (!(m.scale > 0 || m.scale < 0))
		m.scale = 1.0f / sqrtf((float)m.H);
	if (!mha_layout(n, &m))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "query of shape %s is too large",
				      EXEC_SHAPE(n->in[QUERY]));
	*mha(n) = m;
	dtype = n->in[QUERY]->dtype;
	if ((rc = ops_out(n, 0, dtype, 3, (int64_t[]){m.B, m.S, m.N * m.Hv},
			  err)) ||
	    (rc = ops_out(n, 1, dtype, 4, (int64_t[]){m.B, m.N, m.T, m.H},
			  err)))
		return rc;
	return ops_out(n, 2, dtype, 4, (int64_t[]){m.B, m.N, m.T, m.Hv}, err);
}

// ---- run ----

struct mha_call {
	struct mha m;
	const struct cref_node *n;
	float *q;
	struct cref_kv kv[2];
};

#define MHA_RUN 64 // elements at a time

// Elements [d, d + k) of head h of row r of input part, with bias.
static void mha_head(const struct mha_call *c, uint32_t part, int64_t r,
		     int64_t h, int64_t d, int64_t k, float *x)
{
	const struct exec_tensor *t = c->n->in[part], *b = mha_in(c->n, BIAS);
	const int64_t w = part == VALUE ? c->m.Hv : c->m.H;
	const int64_t first = c->m.N * c->m.H * (int64_t)part;
	const int64_t size = t->dtype == GENAI_DT_F32 ? 4 : 2;

	cref_widen(x, (char *)t->data + ((r * c->m.N + h) * w + d) * size,
		   t->dtype, (uint64_t)k);
	for (int64_t i = 0; b && i < k; i++)
		x[i] += cref_load(b->data, b->dtype,
				  (uint64_t)(first + h * w + d + i));
}

static void mha_q_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct mha_call *c = ctx;
	const int64_t H = c->m.H, N = c->m.N;

	for (int64_t r = (int64_t)begin; r < (int64_t)end; r++)
		for (int64_t h = 0; h < N; h++)
			mha_head(c, QUERY, r, h, 0, H, c->q + (r * N + h) * H);
}

// Part p of (batch, head) i: past rows, then new ones.
static void mha_append(const struct mha_call *c, uint32_t p, int64_t i)
{
	const struct mha *m = &c->m;
	const struct cref_kv *kv = &c->kv[p];
	const struct exec_tensor *past = mha_in(c->n, PAST_K + p);
	const int64_t size = kv->dtype == GENAI_DT_F32 ? 4 : 2;
	const int64_t w = kv->row, b = i / m->N, h = i % m->N;
	char *to = (char *)(uintptr_t)kv->data + i * m->T * w * size;
	float x[MHA_RUN];

	if (past && m->P)
		memcpy(to, (char *)past->data + i * m->P * w * size,
		       (size_t)(m->P * w * size));
	to += m->P * w * size;
	for (int64_t j = 0; j < m->L; j++, to += w * size)
		for (int64_t d = 0; d < w; d += MHA_RUN) {
			const int64_t k = w - d < MHA_RUN ? w - d : MHA_RUN;

			mha_head(c, KEY + p, b * m->L + j, h, d, k, x);
			cref_narrow(to + d * size, kv->dtype, x, (uint64_t)k);
		}
}

static void mha_kv_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct mha_call *c = ctx;

	for (int64_t i = (int64_t)begin; i < (int64_t)end; i++)
		for (uint32_t p = 0; p < 2; p++)
			mha_append(c, p, i);
}

// The mask as numbers to add: one row a batch entry.
static void mha_mask(const struct mha *m, const struct exec_tensor *mask,
		     float *to)
{
	for (int64_t b = 0; b < m->B; b++)
		for (int64_t j = 0; j < m->T; j++) {
			const int64_t at = mask->rank == 1 ? b : b * m->T + j;
			const int64_t v =
				ops_get_int(mask, mask->data, (uint64_t)at);
			const bool seen = mask->rank == 1 ? j < v : v != 0;

			to[b * m->T + j] = seen ? 0 : m->filter;
		}
}

static void mha_bias(const struct mha *m, const struct exec_tensor *b,
		     struct cref_attn *a)
{
	a->bias = b->data;
	a->bias_dtype = b->dtype;
	a->bias_row = m->T;
	a->bias_head = b->dims[1] > 1 ? m->S * m->T : 0;
	a->bias_batch = b->dims[0] > 1 ? b->dims[1] * m->S * m->T : 0;
}

static void mha_attend(struct mha_call *c, const struct cref_run *r)
{
	const struct exec_tensor *mask = mha_in(c->n, MASK);
	const struct exec_tensor *bias = mha_in(c->n, ATTN_BIAS);
	const struct mha *m = &c->m;
	char *ws = r->workspace;
	int64_t *past = (int64_t *)(void *)(ws + m->lens_at);
	struct cref_attn a = {0};

	a.B = (uint64_t)m->B;
	a.S = (uint64_t)m->S;
	a.N = a.Nkv = (uint64_t)m->N;
	a.H = (uint64_t)m->H;
	a.Hv = (uint64_t)m->Hv;
	a.q = c->q;
	a.k = c->kv[0];
	a.v = c->kv[1];
	a.past = past;
	a.total = past + m->B;
	for (int64_t b = 0; b < m->B; b++) {
		past[b] = m->T - m->S;
		past[m->B + b] = m->T;
	}
	a.causal = m->causal;
	a.scale = m->scale;
	if (mask) {
		a.bias = ws + m->mask_at;
		a.bias_dtype = GENAI_DT_F32;
		a.bias_batch = m->T;
		mha_mask(m, mask, (float *)(void *)(ws + m->mask_at));
	} else if (bias) {
		mha_bias(m, bias, &a);
	}
	a.out = c->n->out[0]->data;
	a.out_dtype = c->n->out[0]->dtype;
	a.ws = ws + m->attn_at;
	cref_attn_run(&a, r->pool);
}

int32_t cref_mha_run(struct cref_node *n, const struct cref_run *r)
{
	struct mha_call c = {.n = n, .q = r->workspace};
	const struct mha *m = &c.m;

	c.m = *mha(n);
	for (uint32_t i = 0; i < 2; i++) {
		struct cref_kv *kv = &c.kv[i];

		kv->data = (char *)r->workspace + m->kv_at[i];
		if (n->n_out > 1 + i && n->out[1 + i])
			kv->data = n->out[1 + i]->data;
		kv->dtype = n->in[QUERY]->dtype;
		kv->row = i ? m->Hv : m->H;
		kv->head = m->T * kv->row;
		kv->batch = m->N * kv->head;
	}
	cref_pool_run(r->pool, mha_q_part, &c, (uint64_t)(m->B * m->S),
		      (uint64_t)(8192 / (m->N * m->H) + 1));
	cref_pool_run(r->pool, mha_kv_part, &c, (uint64_t)(m->B * m->N), 1);
	mha_attend(&c, r);
	return GENAI_OK;
}
