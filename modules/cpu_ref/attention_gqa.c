// attention_gqa.c - GroupQueryAttention while planning: attributes, shapes,
// workspace.
// Past and present may be strided in every dim but the last.  The present is
// prepared with max(past rows, total_sequence_length) rows if that is known
// while planning, else with past rows + S; run takes any larger number.
#include "modules/cpu_ref/attention_gqa.h"

static int32_t gqa_refuse(struct cref_node *n, struct genai_error *err)
{
	if (exec_attr_int(n->node, "qk_output", 0) ||
	    (n->n_out > 3 && n->out[3]))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "qk_output is not carried");
	return GENAI_OK;
}

static int32_t gqa_check(struct cref_node *n, struct genai_error *err)
{
	int32_t rc;

	if ((rc = cref_attr_check(n, exec_gqa_attrs, err)) ||
	    (rc = gqa_refuse(n, err)))
		return rc;
	if (n->n_in < 7 || n->n_in > N_INPUTS || n->n_out < 3 || n->n_out > 4 ||
	    !n->in[QUERY] || !n->in[SEQLENS] || !n->in[TOTAL] || !n->out[0] ||
	    !n->out[1] || !n->out[2])
		return cref_node_fail(
			n, err, GENAI_E_INVAL,
			"needs query, seqlens_k, "
			"total_sequence_length and three outputs");
	return GENAI_OK;
}

int32_t gqa_attrs(struct cref_node *n, struct gqa *g, struct genai_error *err)
{
	const struct genai_node *node = n->node;

	g->N = exec_attr_int(node, "num_heads", 0);
	g->Nkv = exec_attr_int(node, "kv_num_heads", 0);
	if (g->N < 1 || g->Nkv < 1 || g->N > 65536 || g->N % g->Nkv)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "num_heads %lld, kv_num_heads %lld: must "
				      "be positive and divide",
				      (long long)g->N, (long long)g->Nkv);
	g->rotary = exec_attr_int(node, "do_rotary", 0);
	g->interleaved = exec_attr_int(node, "rotary_interleaved", 0) != 0;
	g->window = exec_attr_int(node, "local_window_size", -1);
	g->causal = exec_attr_int(node, "causal", 1) != 0;
	g->smooth = exec_attr_int(node, "smooth_softmax", 0) == 1;
	if (g->smooth && gqa_in(n, SINK))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "smooth_softmax and a head sink");
	g->sliding = exec_attr_int(node, "sliding_window_cache", 0) != 0;
	g->scale = (float)exec_attr_float(node, "scale", 0);
	g->softcap = (float)exec_attr_float(node, "softcap", 0);
	g->epsilon = (float)exec_attr_float(node, "qk_norm_epsilon", 1e-6);
	if (g->window < -1 || g->window == 0 || (g->window > 0 && !g->causal) ||
	    (g->sliding && g->window < 0))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "local_window_size %lld does not fit "
				      "causal %d, sliding_window_cache %d",
				      (long long)g->window, g->causal,
				      g->sliding);
	g->window = g->window < 0 ? 0 : g->window;
	return GENAI_OK;
}

int32_t gqa_bad_shape(struct cref_node *n, uint32_t i, const char *want,
		      struct genai_error *err)
{
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "input %u '%.60s' of shape %s, must be %s", i,
			      n->in[i]->name ? n->in[i]->name : "",
			      EXEC_SHAPE(n->in[i]), want);
}

int32_t gqa_too_large(struct cref_node *n, struct genai_error *err)
{
	return cref_node_fail(n, err, GENAI_E_LIMIT,
			      "query of shape %s is too large",
			      EXEC_SHAPE(n->in[QUERY]));
}

// Dimension i of [batch, length, width], the batch of 1 left out or not.
static int64_t gqa_dim(const struct exec_tensor *t, uint32_t i)
{
	return t->rank == 3 ? t->dims[i] : i ? t->dims[i - 1] : 1;
}

int32_t gqa_qkv(struct cref_node *n, struct gqa *g, struct genai_error *err)
{
	const struct exec_tensor *q = n->in[QUERY];
	const struct exec_tensor *kv[2] = {gqa_in(n, KEY), gqa_in(n, VALUE)};
	int64_t heads = g->N;

	if (q->rank != 3 && (!g->paged || q->rank != 2))
		return gqa_bad_shape(n, QUERY,
				     g->paged ? "[length, width]"
					      : "[batch, length, width]",
				     err);
	if (gqa_dim(q, 0) > INT32_MAX || gqa_dim(q, 1) > INT32_MAX)
		return gqa_too_large(n, err);
	g->packed = !kv[0];
	if (!kv[0] != !kv[1])
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "key and value must come together");
	heads += g->packed ? 2 * g->Nkv : 0;
	g->B = gqa_dim(q, 0);
	g->S = gqa_dim(q, 1);
	g->H = gqa_dim(q, 2) / heads;
	if (g->H < 1 || g->H > 65536 || gqa_dim(q, 2) % heads)
		return gqa_bad_shape(n, QUERY,
				     "a multiple of the heads in its last dim",
				     err);
	for (uint32_t i = 0; i < 2 && !g->packed; i++)
		if (kv[i]->rank != q->rank || gqa_dim(kv[i], 0) != g->B ||
		    gqa_dim(kv[i], 1) != g->S ||
		    gqa_dim(kv[i], 2) != g->Nkv * g->H)
			return gqa_bad_shape(n, KEY + i,
					     "[batch, length, kv_num_heads * "
					     "head size] as query",
					     err);
	return GENAI_OK;
}

// What a row of the cache is: elements as they are, or quantised.
static int32_t gqa_row(struct cref_node *n, struct gqa *g,
		       struct genai_error *err)
{
	struct exec_cache cache;
	struct exec_text why;
	const int32_t rc = exec_gqa_cache(n->node, n->in, n->n_in, g->Nkv, g->H,
					  &cache, &why);

	if (rc)
		return cref_node_fail(n, err, rc, "%s", why.s);
	g->row = cache.row;
	g->bits = cache.bits;
	for (uint32_t i = 0; i < 2; i++)
		g->scale_head[i] = cache.each[i] ? g->H : 0;
	return GENAI_OK;
}

// The past's rows.
static int32_t gqa_past(struct cref_node *n, const struct gqa *g,
			int64_t *out_rows, struct genai_error *err)
{
	const struct exec_tensor *k = gqa_in(n, PAST_K), *v = gqa_in(n, PAST_V);

	*out_rows = 0;
	if (!k && !v)
		return GENAI_OK;
	if (!k || !v)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "past_key and past_value must come "
				      "together");
	for (uint32_t i = PAST_K; i <= PAST_V; i++) {
		const struct exec_tensor *t = n->in[i];

		if (t->rank != 4 || t->dims[0] != g->B ||
		    t->dims[1] != g->Nkv || t->dims[2] != k->dims[2] ||
		    t->dims[3] != g->row)
			return gqa_bad_shape(n, i,
					     "[batch, kv_num_heads, rows, head "
					     "size], of 4 bits half of it",
					     err);
		if (!ops_is(t, g->bits == 8   ? OPS_BIT(GENAI_DT_I8)
			       : g->bits == 4 ? OPS_BIT(GENAI_DT_U8)
					      : OPS_F32S))
			return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
					      "a cache of type %s with "
					      "kv_cache_bit_width %u is not "
					      "carried",
					      exec_dtype_name(t->dtype),
					      g->bits);
	}
	if (k->dtype != v->dtype)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "past_key and past_value differ in type");
	*out_rows = k->dims[2];
	return GENAI_OK;
}

int32_t gqa_rotary(struct cref_node *n, struct gqa *g, struct genai_error *err)
{
	const struct exec_tensor *c = gqa_in(n, COS), *s = gqa_in(n, SIN);
	const struct exec_tensor *p = gqa_in(n, POSITIONS);

	if (!g->rotary)
		return GENAI_OK;
	if (!c || !s)
		return cref_node_fail(
			n, err, GENAI_E_INVAL,
			"do_rotary needs cos_cache and sin_cache");
	if (c->rank != 2 || s->rank != 2 || c->dims[0] != s->dims[0] ||
	    c->dims[1] != s->dims[1] || c->dims[1] < 1 || c->dims[1] > g->H / 2)
		return cref_node_fail(
			n, err, GENAI_E_INVAL,
			"cos_cache %s and sin_cache %s do not fit "
			"head size %lld",
			EXEC_SHAPE(c), EXEC_SHAPE(s), (long long)g->H);
	g->rotary = 2 * c->dims[1];
	if (g->rotary > GQA_ROTARY)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "%lld rotated channels, carried: %d",
				      (long long)g->rotary, GQA_ROTARY);
	if (p && exec_count(p) != (uint64_t)(g->B * g->S))
		return gqa_bad_shape(n, g->paged ? PAGED_POSITIONS : POSITIONS,
				     "[batch, length]", err);
	return GENAI_OK;
}

static int32_t gqa_rest(struct cref_node *n, const struct gqa *g,
			struct genai_error *err)
{
	const struct exec_tensor *l = n->in[SEQLENS], *b = gqa_in(n, BIAS);

	if (l->rank < 1 || l->rank > 2 || exec_count(l) != (uint64_t)g->B ||
	    (l->rank == 2 && l->dims[0] != 1 && l->dims[1] != 1))
		return gqa_bad_shape(n, SEQLENS, "[batch] or [batch, 1]", err);
	if (exec_count(n->in[TOTAL]) != 1)
		return gqa_bad_shape(n, TOTAL, "one number", err);
	if (b &&
	    (b->rank != 4 || (b->dims[0] != 1 && b->dims[0] != g->B) ||
	     (b->dims[1] != 1 && b->dims[1] != g->N) || b->dims[2] != g->S))
		return gqa_bad_shape(n, BIAS,
				     "[batch or 1, heads or 1, length, total]",
				     err);
	return gqa_extras(n, g, err);
}

int32_t gqa_extras(struct cref_node *n, const struct gqa *g,
		   struct genai_error *err)
{
	const struct exec_tensor *x = gqa_in(n, SINK);

	if (x && exec_count(x) != (uint64_t)g->N)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "head sink of shape %s, must be "
				      "[num_heads]",
				      EXEC_SHAPE(x));
	for (uint32_t i = Q_NORM; i <= K_NORM; i++) {
		x = gqa_in(n, i);
		if (x && exec_count(x) != (uint64_t)g->H)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "%s norm of shape %s, must be "
					      "[head size]",
					      i == Q_NORM ? "query" : "key",
					      EXEC_SHAPE(x));
	}
	return GENAI_OK;
}

static int32_t gqa_dtypes(struct cref_node *n, struct genai_error *err)
{
	static const uint8_t floats[] = {QUERY, KEY,  VALUE,  COS,   SIN,
					 BIAS,	SINK, Q_NORM, K_NORM};
	int32_t rc = GENAI_OK;

	for (size_t i = 0; i < sizeof(floats) && !rc; i++)
		rc = ops_need_dtype(n, floats[i], OPS_F32S, err);
	if (!rc)
		rc = ops_need_dtype(n, SEQLENS, OPS_BIT(GENAI_DT_I32), err);
	if (!rc)
		rc = ops_need_dtype(n, TOTAL, OPS_INDEX, err);
	if (!rc)
		rc = ops_need_dtype(n, POSITIONS, OPS_INDEX, err);
	rc = rc ? rc : ops_need_same_dtype(n, KEY, VALUE, err);
	return rc ? rc : ops_need_same_dtype(n, COS, SIN, err);
}

// Rows of the present, as far as they are known now.
static int64_t gqa_rows(const struct cref_node *n, const struct gqa *g,
			int64_t past, int64_t *total)
{
	const struct exec_tensor *t = n->in[TOTAL];

	*total = t->value ? ops_get_int(t, t->value, 0) : -1;
	if (g->sliding && past >= g->window)
		return past;
	if (*total >= 0)
		return past > *total ? past : *total;
	return past + g->S;
}

int32_t cref_gqa_prepare(struct cref_node *n, struct genai_error *err)
{
	struct gqa g = {0};
	int64_t past, total, rows, dims[4];
	uint64_t ws, add;
	uint32_t dtype;
	int32_t rc;

	if ((rc = gqa_check(n, err)) || (rc = gqa_attrs(n, &g, err)) ||
	    (rc = gqa_dtypes(n, err)) || (rc = gqa_qkv(n, &g, err)) ||
	    (rc = gqa_row(n, &g, err)) || (rc = gqa_past(n, &g, &past, err)) ||
	    (rc = gqa_rotary(n, &g, err)) || (rc = gqa_rest(n, &g, err)))
		return rc;
	if (!(g.scale > 0 || g.scale < 0))
		g.scale = 1.0f / sqrtf((float)g.H);
	rows = gqa_rows(n, &g, past, &total);
	dtype = gqa_in(n, PAST_K) ? n->in[PAST_K]->dtype : n->in[QUERY]->dtype;
	if (__builtin_mul_overflow((uint64_t)(g.B * g.S), g.N * g.H * 4, &ws) ||
	    ws > (uint64_t)1 << 46)
		goto large;
	g.lens_at = (ws + 63) / 64 * 64;
	g.attn_at = (g.lens_at + (uint64_t)g.B * 32 + 8 + 63) / 64 * 64;
	add = cref_attn_ws((uint64_t)g.B, (uint64_t)g.S, (uint64_t)g.N,
			   (uint64_t)g.Nkv, (uint64_t)g.H, (uint64_t)g.H);
	if (!add || __builtin_add_overflow(g.attn_at, add, &ws))
		goto large;
	g.copy_at = (ws + 63) / 64 * 64;
	if (g.sliding && (total < 0 || total > rows)) {
		g.copy_rows = rows + g.S + CREF_AT_TILE;
		if (__builtin_mul_overflow((uint64_t)(g.B * g.Nkv * g.H) * 8,
					   (uint64_t)g.copy_rows, &add) ||
		    add > (uint64_t)1 << 46 ||
		    __builtin_add_overflow(g.copy_at, add, &ws))
			goto large;
	}
	n->workspace_bytes = ws;
	*gqa(n) = g;
	rc = ops_out(n, 0, n->in[QUERY]->dtype, 3,
		     (int64_t[]){g.B, g.S, g.N * g.H}, err);
	dims[0] = g.B;
	dims[1] = g.Nkv;
	dims[2] = rows;
	dims[3] = g.row;
	rc = rc ? rc : ops_out(n, 1, dtype, 4, dims, err);
	return rc ? rc : ops_out(n, 2, dtype, 4, dims, err);
large:
	return gqa_too_large(n, err);
}
