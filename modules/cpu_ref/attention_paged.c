// attention_paged.c - PagedAttention: rows of many sequences, packed one behind
// the other, over a cache in blocks.
//
// key_cache, value_cache [blocks, rows of a block, heads, head size];
// block_table [sequences, blocks of each]; past_seqlens [sequences];
// cumulative_sequence_length [sequences + 1]: rows c[b] to c[b + 1] are those
// of sequence b, at positions past[b] on.  Rows at or beyond the last are
// padding: they write nothing, and their output is 0.  The bits are those of
// GroupQueryAttention over a cache in one piece.
#include "modules/cpu_ref/attention_gqa.h"

static int32_t paged_check(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = cref_attr_check(n, exec_paged_attrs, err);

	if (rc)
		return rc;
	for (uint32_t i = PAST_K; i <= PAGED_TABLE; i++)
		if (i >= n->n_in || !n->in[i])
			goto bad;
	if (n->n_in <= N_PAGED_INPUTS && n->in[QUERY] && n->n_out == 3 &&
	    n->out[0] && n->out[1] && n->out[2])
		return GENAI_OK;
bad:
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "needs query, both caches, "
			      "cumulative_sequence_length, past_seqlens, "
			      "block_table and three outputs");
}

static int32_t paged_dtypes(struct cref_node *n, struct genai_error *err)
{
	static const uint8_t floats[] = {
		QUERY,	   KEY,	      VALUE,	  PAST_K,	PAST_V,
		PAGED_COS, PAGED_SIN, PAGED_SINK, PAGED_Q_NORM, PAGED_K_NORM};
	static const uint8_t lengths[] = {PAGED_FIRST, PAGED_PAST, PAGED_TABLE};
	int32_t rc = GENAI_OK;

	for (size_t i = 0; i < sizeof(floats) && !rc; i++)
		rc = ops_need_dtype(n, floats[i], OPS_F32S, err);
	for (size_t i = 0; i < sizeof(lengths) && !rc; i++)
		rc = ops_need_dtype(n, lengths[i], OPS_BIT(GENAI_DT_I32), err);
	if (!rc)
		rc = ops_need_dtype(n, PAGED_POSITIONS, OPS_INDEX, err);
	rc = rc ? rc : ops_need_same_dtype(n, KEY, VALUE, err);
	rc = rc ? rc : ops_need_same_dtype(n, PAST_K, PAST_V, err);
	return rc ? rc : ops_need_same_dtype(n, PAGED_COS, PAGED_SIN, err);
}

static int32_t paged_shapes(struct cref_node *n, struct gqa *g,
			    struct genai_error *err)
{
	const struct exec_tensor *table = n->in[PAGED_TABLE];
	const struct exec_tensor *k = n->in[PAST_K];

	if (g->B != 1)
		return gqa_bad_shape(n, QUERY, "[length, width]", err);
	if (table->rank != 2)
		return gqa_bad_shape(n, PAGED_TABLE, "[sequences, blocks]",
				     err);
	for (uint32_t i = PAST_K; i <= PAST_V; i++) {
		const struct exec_tensor *t = n->in[i];

		if (t->rank != 4 || t->dims[0] != k->dims[0] ||
		    t->dims[1] != k->dims[1] || t->dims[1] < 1 ||
		    t->dims[2] != g->Nkv || t->dims[3] != g->H)
			return gqa_bad_shape(
				n, i,
				"[blocks, rows, kv_num_heads, head "
				"size]",
				err);
	}
	if (k->dims[0] > INT32_MAX || k->dims[1] > INT32_MAX ||
	    table->dims[0] > INT32_MAX || table->dims[1] > INT32_MAX)
		return gqa_too_large(n, err);
	g->B = table->dims[0];
	if (n->in[PAGED_PAST]->rank != 1 || n->in[PAGED_PAST]->dims[0] != g->B)
		return gqa_bad_shape(n, PAGED_PAST, "[sequences]", err);
	if (n->in[PAGED_FIRST]->rank != 1 ||
	    n->in[PAGED_FIRST]->dims[0] != g->B + 1)
		return gqa_bad_shape(n, PAGED_FIRST, "[sequences + 1]", err);
	return GENAI_OK;
}

int32_t cref_paged_prepare(struct cref_node *n, struct genai_error *err)
{
	struct gqa g = {.paged = true};
	const struct exec_tensor *q = n->in[QUERY];
	int64_t dims[3];
	uint64_t ws, add;
	int32_t rc;

	gqa(n)->paged = true;
	if ((rc = paged_check(n, err)) || (rc = gqa_attrs(n, &g, err)) ||
	    (rc = paged_dtypes(n, err)) || (rc = gqa_qkv(n, &g, err)) ||
	    (rc = gqa_rotary(n, &g, err)) || (rc = gqa_extras(n, &g, err)) ||
	    (rc = paged_shapes(n, &g, err)))
		return rc;
	if (!(g.scale > 0 || g.scale < 0))
		g.scale = 1.0f / sqrtf((float)g.H);
	if (__builtin_mul_overflow((uint64_t)g.S, g.N * g.H * 4, &ws) ||
	    ws > (uint64_t)1 << 46)
		return gqa_too_large(n, err);
	g.lens_at = (ws + 63) / 64 * 64;
	g.attn_at = (g.lens_at + (uint64_t)g.B * 32 + 8 + 63) / 64 * 64;
	add = cref_attn_ws(1, (uint64_t)g.S, (uint64_t)g.N, (uint64_t)g.Nkv,
			   (uint64_t)g.H, (uint64_t)g.H);
	if (!add || __builtin_add_overflow(g.attn_at, add, &ws))
		return gqa_too_large(n, err);
	n->workspace_bytes = ws;
	*gqa(n) = g;
	memcpy(dims, q->dims, sizeof(dims));
	dims[q->rank - 1] = g.N * g.H;
	rc = ops_out(n, 0, q->dtype, q->rank, dims, err);
	for (uint32_t i = 0; !rc && i < 2; i++)
		rc = ops_out(n, 1 + i, n->in[PAST_K + i]->dtype, 4,
			     n->in[PAST_K + i]->dims, err);
	return rc;
}

// Sequence b's rows, its length, and that every block of it is there.
static int32_t paged_length(struct gqa_call *c, int64_t b)
{
	const struct exec_tensor *table = c->n->in[PAGED_TABLE];
	const int32_t *first = c->n->in[PAGED_FIRST]->data;
	const int32_t *past = c->n->in[PAGED_PAST]->data;
	const int32_t *blocks =
		(const int32_t *)table->data + b * table->dims[1];
	const int64_t rows = c->to[0].block;

	if (first[b + 1] < first[b] || first[b + 1] > c->g.S)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "cumulative_sequence_length[%lld] is %d: "
				      "must be %d to %lld",
				      (long long)b + 1, first[b + 1], first[b],
				      (long long)c->g.S);
	c->first[b + 1] = first[b + 1];
	c->past[b] = past[b];
	c->total[b] = past[b] + c->first[b + 1] - c->first[b];
	c->base[b] = 0;
	if (past[b] < 0 || c->total[b] > rows * table->dims[1])
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "past_seqlens[%lld] is %d, and %lld rows "
				      "are new: %lld blocks of %lld rows hold "
				      "0 to %lld",
				      (long long)b, past[b],
				      (long long)(c->total[b] - past[b]),
				      (long long)table->dims[1],
				      (long long)rows,
				      (long long)(rows * table->dims[1]));
	if (c->total[b] == past[b])
		return GENAI_OK;
	for (int64_t i = 0; i * rows < c->total[b]; i++)
		if (blocks[i] < 0 || blocks[i] >= c->n->in[PAST_K]->dims[0])
			return cref_node_fail(
				c->n, c->err, GENAI_E_INVAL,
				"block_table[%lld, %lld] is %d: there are %lld "
				"blocks",
				(long long)b, (long long)i, blocks[i],
				(long long)c->n->in[PAST_K]->dims[0]);
	return gqa_check_positions(c, b);
}

int32_t cref_paged_run(struct cref_node *n, const struct cref_run *r)
{
	struct gqa_call c = {.n = n, .err = r->err, .g = *gqa(n)};
	const struct exec_tensor *table = n->in[PAGED_TABLE];
	const struct exec_tensor *out = n->out[0];
	const uint64_t size = out->dtype == GENAI_DT_F32 ? 4 : 2;
	const uint64_t row = (uint64_t)(c.g.N * c.g.H) * size;
	int32_t rc;

	c.q = r->workspace;
	c.past = (int64_t *)(void *)((char *)r->workspace + c.g.lens_at);
	c.total = c.past + c.g.B;
	c.base = c.total + c.g.B;
	c.first = c.base + c.g.B;
	for (uint32_t i = 0; i < 2; i++)
		c.to[i] = (struct cref_kv){.data = n->out[1 + i]->data,
					   .dtype = n->out[1 + i]->dtype,
					   .head = c.g.H,
					   .row = c.g.Nkv * c.g.H,
					   .table = table->data,
					   .table_row = table->dims[1],
					   .block = n->in[PAST_K]->dims[1]};
	c.first[0] = *(const int32_t *)n->in[PAGED_FIRST]->data;
	if (c.first[0])
		return cref_node_fail(n, r->err, GENAI_E_INVAL,
				      "cumulative_sequence_length[0] is %lld, "
				      "must be 0",
				      (long long)c.first[0]);
	for (int64_t b = 0; b < c.g.B; b++) {
		rc = paged_length(&c, b);
		if (rc)
			return rc;
	}
	for (uint32_t i = 0; i < 2; i++)
		if (n->in[PAST_K + i]->data != n->out[1 + i]->data)
			memcpy(n->out[1 + i]->data, n->in[PAST_K + i]->data,
			       exec_bytes(n->out[1 + i]));
	memset((char *)out->data + (uint64_t)c.first[c.g.B] * row, 0,
	       (uint64_t)(c.g.S - c.first[c.g.B]) * row);
	gqa_compute(&c, r);
	return GENAI_OK;
}
