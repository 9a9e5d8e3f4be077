/* gqa_case.h - GroupQueryAttention cases: random data, a plain double-precision
 * implementation, and the node for some tokens of a sequence. */
#ifndef GENAI_TESTS_GQA_CASE_H
#define GENAI_TESTS_GQA_CASE_H

#include <math.h>

#include "tests/unit/kernel_node.h"

#define MAX_T 400

struct gqa_case {
	int64_t T, N, Nkv, H;
	uint32_t dtype;
	int64_t rotary; /* channels, 0: none */
	bool interleaved, separate, norm, smooth, sink, bias, positions;
	int64_t window;
	double softcap, scale;
	bool position_major; /* the cache: [rows][heads][H] */
};

/* Everything for T tokens of one sequence. */
struct gqa_data {
	struct gqa_case c;
	/* qkv: [T][(N+2Nkv)*H] */
	void *qkv, *cos, *sin, *sink, *bias, *qn, *kn;
	int64_t pos[MAX_T];
	int64_t rows; /* of the cache */
	char *kc, *vc;
	double *want; /* [T][N][H] */
};

static inline struct gqa_data make(struct gqa_case c)
{
	struct gqa_data d = {.c = c};
	uint64_t seed = (uint64_t)(c.T * 31 + c.N * 7 + c.Nkv + c.H);
	const uint64_t heads = (uint64_t)(c.N + 2 * c.Nkv);
	const uint64_t T = (uint64_t)c.T, half = (uint64_t)c.rotary / 2;

	d.rows = c.T + 5;
	d.qkv = kfloats(&seed, c.dtype, T * heads * (uint64_t)c.H, 1.5);
	d.cos = kfloats(&seed, c.dtype, (T + 9) * half, 1);
	d.sin = kfloats(&seed, c.dtype, (T + 9) * half, 1);
	d.sink = kfloats(&seed, c.dtype, (uint64_t)c.N, 3);
	d.bias = kfloats(&seed, c.dtype, T * T * (uint64_t)c.N, 2);
	d.qn = kfloats(&seed, c.dtype, (uint64_t)c.H, 1);
	d.kn = kfloats(&seed, c.dtype, (uint64_t)c.H, 1);
	for (int64_t i = 0; i < c.T; i++)
		d.pos[i] = c.positions ? (i * 5 + 3) % (c.T + 9) : i;
	d.kc = malloc((uint64_t)(d.rows * c.Nkv * c.H) * ksize(c.dtype));
	d.vc = malloc((uint64_t)(d.rows * c.Nkv * c.H) * ksize(c.dtype));
	d.want = calloc(T * (uint64_t)(c.N * c.H), sizeof(double));
	return d;
}

static inline void discard(struct gqa_data *d)
{
	free(d->qkv);
	free(d->cos);
	free(d->sin);
	free(d->sink);
	free(d->bias);
	free(d->qn);
	free(d->kn);
	free(d->kc);
	free(d->vc);
	free(d->want);
}

/* ---- the plain one ---- */

static inline void plain_head(const struct gqa_data *d, int64_t t, int64_t head,
			      const void *norm, bool rotate, double *x)
{
	const struct gqa_case *c = &d->c;
	const int64_t heads = c->N + 2 * c->Nkv, half = c->rotary / 2;
	double ss = 0;

	for (int64_t i = 0; i < c->H; i++) {
		x[i] = cref_load(d->qkv, c->dtype,
				 (uint64_t)((t * heads + head) * c->H + i));
		ss += x[i] * x[i];
	}
	for (int64_t i = 0; norm && c->norm && i < c->H; i++)
		x[i] = x[i] / sqrt(ss / (double)c->H + 1e-5) *
		       cref_load(norm, c->dtype, (uint64_t)i);
	for (int64_t i = 0; rotate && i < half; i++) {
		const int64_t u = c->interleaved ? 2 * i : i;
		const int64_t v = c->interleaved ? u + 1 : i + half;
		const uint64_t at = (uint64_t)(d->pos[t] * half + i);
		const double cs = cref_load(d->cos, c->dtype, at);
		const double sn = cref_load(d->sin, c->dtype, at);
		const double a = x[u], b = x[v];

		x[u] = a * cs - b * sn;
		x[v] = b * cs + a * sn;
	}
}

static inline double plain_score(const struct gqa_data *d, const double *q,
				 const double *k, int64_t h, int64_t t,
				 int64_t j)
{
	const struct gqa_case *c = &d->c;
	double s = 0;

	for (int64_t i = 0; i < c->H; i++)
		s += q[i] * k[i];
	s *= c->scale != 0 ? c->scale : 1 / sqrt((double)c->H);
	if (c->softcap > 0)
		s = c->softcap * tanh(s / c->softcap);
	if (c->bias)
		s += cref_load(d->bias, c->dtype,
			       (uint64_t)((h * c->T + t) * c->T + j));
	return s;
}

static inline void plain(struct gqa_data *d)
{
	const struct gqa_case *c = &d->c;
	double *k = malloc((uint64_t)(c->T * c->H) * sizeof(double));
	double *q = malloc((uint64_t)c->H * sizeof(double)), s[MAX_T], p[256];

	for (int64_t h = 0; h < c->N; h++) {
		const int64_t g = h / (c->N / c->Nkv);

		for (int64_t t = 0; t < c->T; t++) {
			double *o = d->want + (t * c->N + h) * c->H, sum = 0;
			double top = -INFINITY;
			int64_t lo = c->window ? t + 1 - c->window : 0;

			plain_head(d, t, c->N + g, d->kn, true, k + t * c->H);
			for (int64_t i = 0; i < c->H; i++) /* as cached */
				cref_store(p, c->dtype, (uint64_t)i,
					   (float)k[t * c->H + i]),
					k[t * c->H + i] = cref_load(
						p, c->dtype, (uint64_t)i);
			plain_head(d, t, h, d->qn, true, q);
			lo = lo > 0 ? lo : 0;
			for (int64_t j = lo; j <= t; j++) {
				s[j] = plain_score(d, q, k + j * c->H, h, t, j);
				top = top > s[j] ? top : s[j];
			}
			if (c->sink)
				sum = exp(cref_load(d->sink, c->dtype,
						    (uint64_t)h) -
					  top);
			else if (c->smooth)
				sum = exp(-top);
			for (int64_t j = lo; j <= t; j++)
				sum += s[j] = exp(s[j] - top);
			for (int64_t j = lo; j <= t; j++) {
				plain_head(d, j, c->N + c->Nkv + g, NULL, false,
					   p);
				for (int64_t i = 0; i < c->H; i++)
					o[i] += s[j] / sum * p[i];
			}
		}
	}
	free(k);
	free(q);
}

/* ---- the operator ---- */

static inline void gqa_attrs(struct knode *k, const struct gqa_case *c)
{
	knode_int(k, "num_heads", c->N);
	knode_int(k, "kv_num_heads", c->Nkv);
	knode_int(k, "do_rotary", c->rotary > 0);
	knode_int(k, "rotary_interleaved", c->interleaved);
	knode_int(k, "local_window_size", c->window ? c->window : -1);
	knode_int(k, "smooth_softmax", c->smooth);
	knode_float(k, "softcap", c->softcap);
	knode_float(k, "scale", c->scale);
	knode_float(k, "qk_norm_epsilon", 1e-5);
}

/* The cache as a view of rows; position-major or head-major memory. */
static inline void cache_view(const struct gqa_data *d, struct exec_tensor *t,
			      int64_t rows, char *data)
{
	const struct gqa_case *c = &d->c;

	exec_set_dense(t, c->dtype, 4, DIMS(1, c->Nkv, rows, c->H));
	t->strides[1] = d->rows * c->H;
	if (c->position_major) {
		t->strides[1] = c->H;
		t->strides[2] = c->Nkv * c->H;
	}
	t->data = data;
}

struct gqa_call {
	struct knode k;
	void *q, *kv[2], *bias;
	int32_t seqlens, total;
};

/* Tokens [P, P + S) with a past of this many rows. */
static inline void gqa_build(struct gqa_call *x, const struct gqa_data *d,
			     int64_t P, int64_t S, int64_t past, void *out)
{
	const struct gqa_case *c = &d->c;
	const int64_t heads = c->N + 2 * c->Nkv, T = P + S;
	const uint64_t e = ksize(c->dtype), H = (uint64_t)c->H * e;
	char *qkv = (char *)d->qkv + (uint64_t)(P * heads) * H;
	struct knode *k = &x->k;

	knode_init(k, "GroupQueryAttention", 16, 3);
	gqa_attrs(k, c);
	x->q = malloc((uint64_t)(S * c->N) * H);
	x->kv[0] = malloc((uint64_t)(S * c->Nkv) * H);
	x->kv[1] = malloc((uint64_t)(S * c->Nkv) * H);
	x->bias = malloc((uint64_t)(c->N * S * T) * e);
	knode_in(k, 0, c->dtype, qkv, DIMS(1, S, heads * c->H));
	for (int64_t i = 0; i < S && c->separate; i++) {
		const char *row = qkv + (uint64_t)(i * heads) * H;

		memcpy((char *)x->q + (uint64_t)(i * c->N) * H, row,
		       (uint64_t)c->N * H);
		for (int p = 0; p < 2; p++)
			memcpy((char *)x->kv[p] + (uint64_t)(i * c->Nkv) * H,
			       row + (uint64_t)(c->N + p * c->Nkv) * H,
			       (uint64_t)c->Nkv * H);
	}
	if (c->separate) {
		knode_in(k, 0, c->dtype, x->q, DIMS(1, S, c->N * c->H));
		knode_in(k, 1, c->dtype, x->kv[0], DIMS(1, S, c->Nkv * c->H));
		knode_in(k, 2, c->dtype, x->kv[1], DIMS(1, S, c->Nkv * c->H));
	}
	knode_in(k, 3, c->dtype, NULL, DIMS(1, c->Nkv, past, c->H));
	knode_in(k, 4, c->dtype, NULL, DIMS(1, c->Nkv, past, c->H));
	cache_view(d, &k->t[3], past, d->kc);
	cache_view(d, &k->t[4], past, d->vc);
	x->seqlens = (int32_t)T - 1;
	x->total = (int32_t)T;
	knode_in(k, 5, GENAI_DT_I32, &x->seqlens, DIMS(1));
	knode_in(k, 6, GENAI_DT_I32, &x->total, (int64_t[]){-1});
	if (c->rotary) {
		knode_in(k, 7, c->dtype, d->cos, DIMS(c->T + 9, c->rotary / 2));
		knode_in(k, 8, c->dtype, d->sin, DIMS(c->T + 9, c->rotary / 2));
		if (c->positions)
			knode_in(k, 9, GENAI_DT_I64, (void *)(d->pos + P),
				 DIMS(1, S));
	}
	for (int64_t i = 0; i < c->N * S && c->bias; i++)
		memcpy((char *)x->bias + (uint64_t)(i * T) * e,
		       (char *)d->bias +
			       (uint64_t)((i / S * c->T + P + i % S) * c->T) *
				       e,
		       (uint64_t)T * e);
	if (c->bias)
		knode_in(k, 10, c->dtype, x->bias, DIMS(1, c->N, S, T));
	if (c->sink)
		knode_in(k, 11, c->dtype, d->sink, DIMS(c->N));
	if (c->norm) {
		knode_in(k, 14, c->dtype, d->qn, DIMS(c->H));
		knode_in(k, 15, c->dtype, d->kn, DIMS(c->H));
	}
	k->t[EXEC_MAX_IN].data = out;
}

static inline void gqa_free(struct gqa_call *x)
{
	free(x->q);
	free(x->kv[0]);
	free(x->kv[1]);
	free(x->bias);
	knode_free(&x->k);
}

#endif
