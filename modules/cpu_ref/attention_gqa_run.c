// attention_gqa_run.c - GroupQueryAttention at run time: bounds, q/k norm and
// rotary embedding, append to the cache, attention; the last three are
// PagedAttention's too.
//
// The cache is shared when past and present have the same address: rows P..T-1
// are written in place.  Otherwise past rows are copied first.  Keys and values
// are read back from the cache, so that a prompt in pieces gives the same bits
// as the whole.  With sliding_window_cache and fewer than T rows, attention
// runs over a copy of the rows kept and the new ones, and the present gets the
// last L(T) of them.
#include "modules/cpu_ref/attention_gqa.h"

#include <math.h>

// ---- bounds ----

static int32_t gqa_view(struct gqa_call *c, const struct exec_tensor *t,
			const char *what)
{
	const struct gqa *g = &c->g;

	if (t->rank != 4 || t->dims[0] != g->B || t->dims[1] != g->Nkv ||
	    t->dims[3] != g->row)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "%s of shape %s does not fit [%lld, "
				      "%lld, rows, %lld]",
				      what, EXEC_SHAPE(t), (long long)g->B,
				      (long long)g->Nkv, (long long)g->row);
	if (g->row > 1 && t->strides[3] != 1)
		return cref_node_fail(c->n, c->err, GENAI_E_UNSUPPORTED,
				      "%s: the elements of a row must be next "
				      "to each other",
				      what);
	for (uint32_t i = 0; i < 3; i++)
		if (t->strides[i] < 0)
			return cref_node_fail(c->n, c->err, GENAI_E_UNSUPPORTED,
					      "%s: negative stride", what);
	return GENAI_OK;
}

int32_t gqa_check_positions(const struct gqa_call *c, int64_t b)
{
	const struct exec_tensor *p = gqa_in(c->n, POSITIONS);
	const struct exec_tensor *cos = gqa_in(c->n, COS);
	int64_t low = 0, top = c->total[b] - 1;

	if (!c->g.rotary)
		return GENAI_OK;
	for (int64_t i = c->first[b]; p && i < c->first[b + 1]; i++) {
		const int64_t x = ops_get_int(p, p->data, (uint64_t)i);

		top = i > c->first[b] && top > x ? top : x;
		low = i > c->first[b] && low < x ? low : x;
	}
	if (low < 0 || top >= cos->dims[0])
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "position %lld is outside the %lld rows "
				      "of cos_cache",
				      (long long)(low < 0 ? low : top),
				      (long long)cos->dims[0]);
	return GENAI_OK;
}

static int32_t gqa_length(struct gqa_call *c, int64_t b, int64_t sum)
{
	const struct exec_tensor *past = gqa_in(c->n, PAST_K);
	const struct gqa *g = &c->g;
	const int64_t rows = past ? past->dims[2] : 0;
	const int64_t last = ops_get_int(c->n->in[SEQLENS],
					 c->n->in[SEQLENS]->data, (uint64_t)b);
	const int64_t T = last + 1;

	if (last < 0)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "seqlens_k[%lld] is %lld, negative",
				      (long long)b, (long long)last);
	// a prompt padded on the right has nothing before it
	if (T < g->S && sum != g->S)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "seqlens_k[%lld] + 1 is %lld, less than "
				      "the %lld new rows",
				      (long long)b, (long long)T,
				      (long long)g->S);
	if (T > sum)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "seqlens_k[%lld] + 1 is %lld, more than "
				      "total_sequence_length %lld",
				      (long long)b, (long long)T,
				      (long long)sum);
	c->total[b] = T;
	c->past[b] = T > g->S ? T - g->S : 0;
	c->base[b] = 0;
	if (T > c->rows && g->sliding && c->rows >= g->window &&
	    (rows == c->rows || !c->past[b]))
		c->sliding = true;
	else if (T > c->rows)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "seqlens_k[%lld] + 1 is %lld, the cache "
				      "has %lld rows",
				      (long long)b, (long long)T,
				      (long long)c->rows);
	if (c->past[b] > rows && !c->sliding)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "seqlens_k[%lld] means %lld past rows, "
				      "the past has %lld",
				      (long long)b, (long long)c->past[b],
				      (long long)rows);
	return gqa_check_positions(c, b);
}

static int32_t gqa_bounds(struct gqa_call *c)
{
	const struct exec_tensor *bias = gqa_in(c->n, BIAS);
	const struct exec_tensor *t = c->n->in[TOTAL];
	const int64_t sum = ops_get_int(t, t->data, 0);
	int32_t rc;

	if ((rc = gqa_view(c, c->n->out[1], "present_key")) ||
	    (rc = gqa_view(c, c->n->out[2], "present_value")))
		return rc;
	if (gqa_in(c->n, PAST_K) &&
	    ((rc = gqa_view(c, c->n->in[PAST_K], "past_key")) ||
	     (rc = gqa_view(c, c->n->in[PAST_V], "past_value"))))
		return rc;
	c->rows = c->n->out[1]->dims[2];
	c->rows = c->rows < c->n->out[2]->dims[2] ? c->rows
						  : c->n->out[2]->dims[2];
	for (int64_t b = 0; b <= c->g.B; b++)
		c->first[b] = b * c->g.S;
	for (int64_t b = 0; b < c->g.B; b++) {
		rc = gqa_length(c, b, sum);
		if (rc)
			return rc;
		if (bias && bias->dims[3] < c->total[b])
			return cref_node_fail(
				c->n, c->err, GENAI_E_INVAL,
				"attention_bias of shape %s ends before the "
				"total length %lld",
				EXEC_SHAPE(bias), (long long)c->total[b]);
	}
	if (c->sliding && c->g.copy_rows < c->rows + c->g.S + CREF_AT_TILE)
		return cref_node_fail(c->n, c->err, GENAI_E_INVAL,
				      "planned for the whole length, the cache "
				      "has %lld rows",
				      (long long)c->rows);
	return GENAI_OK;
}

// What divides and multiplies by them must be a number of its own.
static int32_t gqa_check_scales(const struct gqa_call *c)
{
	for (uint32_t i = K_SCALE; c->g.bits && i <= V_SCALE; i++) {
		const struct exec_tensor *s = gqa_in(c->n, i);
		const uint64_t n = exec_count(s);

		for (uint64_t k = 0; k < n; k++) {
			const float f = cref_load(s->data, GENAI_DT_F32, k);

			if (!(f > 0) || isinf(f))
				return cref_node_fail(
					c->n, c->err, GENAI_E_INVAL,
					"%s[%llu] is %g, must be positive",
					i == K_SCALE ? "k_scale" : "v_scale",
					(unsigned long long)k, (double)f);
		}
	}
	return GENAI_OK;
}

// ---- the cache ----

// part: 0 keys, 1 values
static struct cref_kv kv_of(const struct gqa_call *c, uint32_t part,
			    const struct exec_tensor *t)
{
	const struct exec_tensor *s = gqa_in(c->n, K_SCALE + part);
	struct cref_kv kv = {.data = t->data,
			     .dtype = t->dtype,
			     .batch = t->strides[0],
			     .head = t->strides[1],
			     .row = t->strides[2],
			     .bits = c->g.bits,
			     .scales = s ? s->data : NULL,
			     .scale_head = c->g.scale_head[part]};

	return kv;
}

// Rows that a window's cache of C rows holds at length T.
static int64_t kept(const struct gqa *g, int64_t rows, int64_t T)
{
	const int64_t step = rows - g->window + 1;

	return T <= rows ? T : T - (T - rows + step - 1) / step * step;
}

// n rows of every head from src to dst.
static void copy_rows(const struct gqa *g, const struct cref_kv *dst,
		      int64_t to, const struct cref_kv *src, int64_t from,
		      int64_t b, int64_t n)
{
	const size_t bytes = (size_t)(g->row * cref_kv_size(dst->dtype));

	for (int64_t h = 0; h < g->Nkv; h++)
		for (int64_t i = 0; i < n; i++)
			memmove(cref_kv_at(dst, b, h, to + i),
				cref_kv_at(src, b, h, from + i), bytes);
}

static void zero_rows(const struct gqa *g, const struct cref_kv *dst, int64_t b,
		      int64_t from, int64_t to)
{
	const size_t bytes = (size_t)(g->row * cref_kv_size(dst->dtype));

	for (int64_t h = 0; h < g->Nkv; h++)
		for (int64_t i = from; i < to; i++)
			memset(cref_kv_at(dst, b, h, i), 0, bytes);
}

// Past rows to where the new ones will go.
static void gqa_take_past(struct gqa_call *c, const struct cref_run *r)
{
	const struct gqa *g = &c->g;

	for (uint32_t i = 0; i < 2; i++) {
		const struct exec_tensor *in = gqa_in(c->n, PAST_K + i);
		const struct exec_tensor *out = c->n->out[1 + i];
		struct cref_kv *to = &c->to[i], from = {0};
		const bool shared = in && in->data && in->data == out->data;

		*to = kv_of(c, i, out);
		if (in)
			from = kv_of(c, i, in);
		if (c->sliding) {
			to->row = g->row;
			to->head = c->g.copy_rows * g->row;
			to->batch = g->Nkv * to->head;
			to->data = (char *)r->workspace + g->copy_at +
				   (uint64_t)(i * g->B * to->batch) * 4;
		}
		for (int64_t b = 0; b < g->B; b++) {
			const int64_t P = c->past[b];
			const int64_t L = c->sliding ? kept(g, c->rows, P) : P;
			const int64_t pad = (P - L) % CREF_AT_TILE;

			if (c->sliding) {
				c->base[b] = P - L - pad;
				zero_rows(g, to, b, 0, pad);
			}
			if (c->sliding || !shared)
				copy_rows(g, to, c->sliding ? pad : 0, &from, 0,
					  b, L);
			if (!c->sliding && !shared)
				zero_rows(g, to, b, c->total[b], c->rows);
		}
	}
}

// After the attention: what a window's cache keeps.
static void gqa_give_present(struct gqa_call *c)
{
	for (uint32_t i = 0; i < 2; i++) {
		const struct cref_kv to = kv_of(c, i, c->n->out[1 + i]);

		for (int64_t b = 0; b < c->g.B; b++) {
			const int64_t L = kept(&c->g, c->rows, c->total[b]);

			copy_rows(&c->g, &to, 0, &c->to[i],
				  c->total[b] - L - c->base[b], b, L);
		}
	}
}

// ---- q, k, v of the new rows ----

// cos and sin of one position
struct angles {
	float cos[GQA_ROTARY / 2], sin[GQA_ROTARY / 2];
};

static void angles_at(const struct gqa_call *c, int64_t p, struct angles *a)
{
	const struct exec_tensor *ct = gqa_in(c->n, COS);
	const struct exec_tensor *st = gqa_in(c->n, SIN);
	const int64_t half = c->g.rotary / 2;
	const int64_t at = p * half * cref_kv_size(ct->dtype);

	cref_widen(a->cos, (char *)ct->data + at, ct->dtype, (uint64_t)half);
	cref_widen(a->sin, (char *)st->data + at, st->dtype, (uint64_t)half);
}

static void rotate(const struct gqa *g, float *x, const struct angles *a)
{
	const uint64_t half = (uint64_t)g->rotary / 2;

	if (!g->interleaved) {
		cref_kern()->rotate(x, x + half, a->cos, a->sin, half);
		return;
	}
	for (uint64_t i = 0; i < half; i++) {
		const float u = x[2 * i], v = x[2 * i + 1];

		x[2 * i] = u * a->cos[i] - v * a->sin[i];
		x[2 * i + 1] = v * a->cos[i] + u * a->sin[i];
	}
}

static void head_norm(const struct gqa *g, float *x,
		      const struct exec_tensor *w)
{
	const uint64_t H = (uint64_t)g->H;
	const float mean = cref_vec_dot(x, x, H) / (float)H;
	const float f = 1.0f / sqrtf(mean + g->epsilon);

	for (uint64_t i = 0; i < H; i++)
		x[i] = x[i] * f * cref_load(w->data, w->dtype, i);
}

// Head h of a new row of part 0 q, 1 k, 2 v.
static const char *new_row(const struct gqa_call *c, uint32_t part, int64_t row,
			   int64_t h)
{
	const struct gqa *g = &c->g;
	const struct exec_tensor *t = c->n->in[g->packed ? QUERY : part];
	const int64_t first[3] = {0, g->N, g->N + g->Nkv};
	int64_t heads = part ? g->Nkv : g->N;

	if (g->packed) {
		heads = g->N + 2 * g->Nkv;
		h += first[part];
	}
	return (const char *)t->data +
	       (row * heads + h) * g->H * cref_kv_size(t->dtype);
}

static void gqa_row(const struct gqa_call *c, int64_t b, int64_t i, float *tmp)
{
	const struct gqa *g = &c->g;
	const uint32_t dtype[3] = {c->n->in[QUERY]->dtype,
				   c->n->in[g->packed ? QUERY : KEY]->dtype,
				   c->n->in[g->packed ? QUERY : VALUE]->dtype};
	const struct exec_tensor *pt = gqa_in(c->n, POSITIONS);
	const struct exec_tensor *norm[2] = {gqa_in(c->n, Q_NORM),
					     gqa_in(c->n, K_NORM)};
	const int64_t row = c->first[b] + i, pos = c->past[b] + i;
	const int64_t at = pos - c->base[b];
	const uint64_t H = (uint64_t)g->H;
	struct angles a;

	if (g->rotary)
		angles_at(c,
			  pt ? ops_get_int(pt, pt->data, (uint64_t)row) : pos,
			  &a);
	// tmp lies in the row's q
	for (int64_t h = 0; h < g->Nkv; h++) {
		cref_widen(tmp, new_row(c, 1, row, h), dtype[1], H);
		if (norm[1])
			head_norm(g, tmp, norm[1]);
		if (g->rotary)
			rotate(g, tmp, &a);
		cref_kv_put(&c->to[0], b, h, at, tmp, H);
		cref_widen(tmp, new_row(c, 2, row, h), dtype[2], H);
		cref_kv_put(&c->to[1], b, h, at, tmp, H);
	}
	for (int64_t h = 0; h < g->N; h++) {
		float *q = c->q + (row * g->N + h) * g->H;

		cref_widen(q, new_row(c, 0, row, h), dtype[0], H);
		if (norm[0])
			head_norm(g, q, norm[0]);
		if (g->rotary)
			rotate(g, q, &a);
	}
}

static void gqa_rows_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct gqa_call *c = ctx;
	int64_t b = 0;

	for (int64_t r = (int64_t)begin; r < (int64_t)end; r++) {
		while (r >= c->first[b + 1])
			b++;
		if (c->past[b] + r - c->first[b] < c->total[b])
			gqa_row(c, b, r - c->first[b],
				c->q + r * c->g.N * c->g.H);
	}
}

// ---- all of it ----

static void gqa_attend(struct gqa_call *c, const struct cref_run *r)
{
	const struct exec_tensor *bias = gqa_in(c->n, BIAS);
	const struct exec_tensor *sink = gqa_in(c->n, SINK);
	const struct gqa *g = &c->g;
	struct cref_attn a = {0};

	a.B = (uint64_t)g->B;
	a.S = (uint64_t)g->S;
	a.N = (uint64_t)g->N;
	a.Nkv = (uint64_t)g->Nkv;
	a.H = a.Hv = (uint64_t)g->H;
	a.q = c->q;
	a.k = c->to[0];
	a.v = c->to[1];
	a.base = c->base;
	a.first = g->paged ? c->first : NULL;
	a.past = c->past;
	a.total = c->total;
	a.causal = g->causal;
	a.window = g->window;
	a.scale = g->scale;
	a.softcap = g->softcap;
	a.smooth = g->smooth;
	if (bias) {
		a.bias = bias->data;
		a.bias_dtype = bias->dtype;
		a.bias_row = bias->dims[3];
		a.bias_head = bias->dims[1] > 1 ? g->S * bias->dims[3] : 0;
		a.bias_batch = bias->dims[0] > 1
				       ? bias->dims[1] * g->S * bias->dims[3]
				       : 0;
	}
	if (sink) {
		a.sink = sink->data;
		a.sink_dtype = sink->dtype;
	}
	a.out = c->n->out[0]->data;
	a.out_dtype = c->n->out[0]->dtype;
	a.ws = (char *)r->workspace + g->attn_at;
	cref_attn_run(&a, r->pool);
}

void gqa_compute(struct gqa_call *c, const struct cref_run *r)
{
	const int64_t work = (c->g.N + 2 * c->g.Nkv) * c->g.H;

	cref_pool_run(r->pool, gqa_rows_part, c, (uint64_t)c->first[c->g.B],
		      (uint64_t)(8192 / work + 1));
	gqa_attend(c, r);
}

int32_t cref_gqa_run(struct cref_node *n, const struct cref_run *r)
{
	struct gqa_call c = {.n = n, .err = r->err};
	int32_t rc;

	c.g = *gqa(n);
	c.q = r->workspace;
	c.past = (int64_t *)(void *)((char *)r->workspace + c.g.lens_at);
	c.total = c.past + c.g.B;
	c.base = c.total + c.g.B;
	c.first = c.base + c.g.B;
	rc = gqa_bounds(&c);
	if (!rc)
		rc = gqa_check_scales(&c);
	if (rc)
		return rc;
	gqa_take_past(&c, r);
	gqa_compute(&c, r);
	if (c.sliding)
		gqa_give_present(&c);
	return GENAI_OK;
}
