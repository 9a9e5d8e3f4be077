// corpus_attention.c - GroupQueryAttention against the definition in double:
// packed and separate inputs, one buffer for past and present or two, windows,
// rotary forms, q/k norm, sinks, softcap, windowed caches.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/corpus_gqa.h"

static double at(uint32_t dt, const void *p, int64_t i)
{
	return op_load(dt, p, (uint64_t)i);
}

static int64_t window_rows(const struct gqa *t, int64_t total)
{
	int64_t c = t->cap, g = c - t->window + 1;

	return total <= c ? total : total - g * ((total - c + g - 1) / g);
}

// One head of the source: its vector after norm and rope.
static void vector(const struct gqa *t, const struct gqa_data *x, int64_t s,
		   int64_t h, int what, double *o)
{
	int64_t width = t->packed ? t->heads + 2 * t->kv
			: what	  ? t->kv
				  : t->heads;
	const void *src = t->packed || !what ? x->q : what == 1 ? x->k : x->v;
	int64_t col = h, half = t->rot / 2, pos = t->past + s;
	double ss = 0, y[256];

	if (t->packed && what)
		col += t->heads + (what == 2 ? t->kv : 0);
	for (int64_t d = 0; d < t->size; d++) {
		y[d] = at(t->dtype, src, (s * width + col) * t->size + d);
		ss += y[d] * y[d];
	}
	if (t->norm && what < 2)
		for (int64_t d = 0; d < t->size; d++)
			y[d] *= at(t->dtype, what ? x->kn : x->qn, d) /
				sqrt(ss / (double)t->size + 1e-6);
	for (int64_t d = 0; d < t->size; d++) {
		int64_t k = t->interleaved ? d / 2 : d % (half ? half : 1);
		bool low = t->interleaved ? d % 2 == 0 : d < half;
		int64_t mate = t->interleaved ? (d ^ 1)
			       : low	      ? d + half
					      : d - half;

		o[d] = y[d];
		if (what == 2 || d >= t->rot)
			continue;
		o[d] = y[d] * at(t->dtype, x->cosc, pos * half + k) +
		       (low ? -1 : 1) * y[mate] *
			       at(t->dtype, x->sinc, pos * half + k);
	}
}

void gqa_cached(const struct gqa *t, const struct gqa_data *x, int64_t j,
		   int64_t h, int what, double *o)
{
	if (j >= t->past) {
		vector(t, x, j - t->past, h, what, o);
		for (int64_t d = 0; d < t->size; d++) {
			double v = 0;

			op_store(t->dtype, &v, 0, (float)o[d]);
			o[d] = op_load(t->dtype, &v, 0);
		}
		return;
	}
	j -= t->past - x->had;
	for (int64_t d = 0; d < t->size; d++)
		o[d] = at(t->dtype, what == 1 ? x->pk : x->pv,
			  (h * x->rows + j) * t->size + d);
}

void gqa_want_row(const struct gqa *t, const struct gqa_data *x, int64_t s,
		     int64_t h, double *want, double *tol)
{
	int64_t len = t->past + s + 1, first = 0, kvh = h / (t->heads / t->kv);
	double q[256], *score, mx = -INFINITY, sum = 0, d = 0;
	double u = unit_of(t->dtype);
	// tensor cores take queries and weights rounded
	double round = t->dtype != GENAI_DT_F32 ? u : 0;

	if (t->window > 0 && len > t->window)
		first = len - t->window;
	vector(t, x, s, h, 0, q);
	score = calloc((size_t)len, sizeof(*score));
	for (int64_t j = first; j < len; j++) {
		const double *k =
			x->keys + (kvh * (t->past + t->seq) + j) * t->size;
		double dot = 0, mag = 0, err;

		for (int64_t e = 0; e < t->size; e++) {
			dot += q[e] * k[e];
			mag += fabs(q[e] * k[e]);
		}
		dot *= t->scale;
		// a key may be rounded to the other neighbour: 2 u
		err = mag * t->scale *
		      ((j >= t->past ? 2 * u : 0) + 1.01 * round +
		       (double)(t->size + 32) * 0x1p-23);
		if (err > d)
			d = err;
		if (t->softcap > 0)
			dot = t->softcap * tanh(dot / t->softcap);
		if (t->bias)
			dot += at(t->dtype, x->bias,
				  s * (t->past + t->seq) + j);
		score[j] = dot;
		mx = fmax(mx, dot);
	}
	if (t->smooth)
		mx = fmax(mx, 0);
	if (t->sink)
		mx = fmax(mx, at(t->dtype, x->sink, h));
	for (int64_t j = first; j < len; j++)
		sum += exp(score[j] - mx);
	if (t->smooth)
		sum += exp(-mx);
	if (t->sink)
		sum += exp(at(t->dtype, x->sink, h) - mx);
	for (int64_t e = 0; e < t->size; e++)
		want[e] = tol[e] = 0;
	for (int64_t j = first; j < len; j++) {
		const double *v =
			x->values + (kvh * (t->past + t->seq) + j) * t->size;
		double p = exp(score[j] - mx) / sum;

		for (int64_t e = 0; e < t->size; e++) {
			want[e] += p * v[e];
			tol[e] += p * fabs(v[e]) *
				  (expm1(2 * d) + (j >= t->past ? 2 * u : 0) +
				   1.01 * round + (double)(len + 64) * 0x1p-23);
		}
	}
	for (int64_t e = 0; e < t->size; e++)
		tol[e] += 1.01 * u * fabs(want[e]) + 0x1p-24;
	free(score);
}

static void *copy(const void *p, uint64_t bytes)
{
	void *to = malloc(bytes + 1);

	memcpy(to, p, bytes);
	return to;
}

// Random weights, or those of like.
static void weights(const struct gqa *t, struct gqa_data *x,
		    const struct gqa_data *like)
{
	uint64_t tables = (uint64_t)((t->past + t->seq) * t->rot / 2) + 8;
	uint64_t w = (uint64_t)t->size, heads = (uint64_t)t->heads;
	uint64_t e = op_bytes(t->dtype, 0, NULL);

	x->cosc = like ? copy(like->cosc, tables * e)
		       : rnd_tensor(t->dtype, tables, -1, 1);
	x->sinc = like ? copy(like->sinc, tables * e)
		       : rnd_tensor(t->dtype, tables, -1, 1);
	x->qn = like ? copy(like->qn, w * e)
		     : rnd_tensor(t->dtype, w, .5f, 1.5f);
	x->kn = like ? copy(like->kn, w * e)
		     : rnd_tensor(t->dtype, w, .5f, 1.5f);
	x->sink = like ? copy(like->sink, heads * e)
		       : rnd_tensor(t->dtype, heads, -1, 3);
}

void gqa_make(const struct gqa *t, struct gqa_data *x,
	      const struct gqa_data *like)
{
	uint64_t toks = (uint64_t)t->seq, w = (uint64_t)t->size;

	memset(x, 0, sizeof(*x));
	x->rows = t->share ? t->cap : t->past;
	x->had = t->cache ? window_rows(t, t->past) : t->past;
	if (t->cache && !t->share)
		x->rows = t->cap;
	x->q = rnd_tensor(
		t->dtype,
		toks * w *
			(uint64_t)(t->packed ? t->heads + 2 * t->kv : t->heads),
		-2, 2);
	x->k = rnd_tensor(t->dtype, toks * w * (uint64_t)t->kv, -2, 2);
	x->v = rnd_tensor(t->dtype, toks * w * (uint64_t)t->kv, -2, 2);
	x->pk = rnd_tensor(t->dtype, (uint64_t)(t->kv * x->rows) * w, -2, 2);
	x->pv = rnd_tensor(t->dtype, (uint64_t)(t->kv * x->rows) * w, -2, 2);
	weights(t, x, like);
	x->bias = rnd_tensor(t->dtype, toks * (uint64_t)(t->past + t->seq), -2,
			     2);
	x->out = calloc(toks * w * (uint64_t)t->heads, 4);
	x->ok = calloc((uint64_t)t->kv * (uint64_t)(t->cap + t->seq) * w, 4);
	x->ov = calloc((uint64_t)t->kv * (uint64_t)(t->cap + t->seq) * w, 4);
	x->keys = calloc((uint64_t)(t->kv * (t->past + t->seq)) * w, 8);
	x->values = calloc((uint64_t)(t->kv * (t->past + t->seq)) * w, 8);
	for (int64_t h = 0; h < t->kv; h++)
		for (int64_t j = t->past - x->had; j < t->past + t->seq; j++) {
			int64_t at = (h * (t->past + t->seq) + j) * t->size;

			gqa_cached(t, x, j, h, 1, x->keys + at);
			gqa_cached(t, x, j, h, 2, x->values + at);
		}
}

void gqa_unmake(struct gqa_data *x)
{
	void **p = (void **)x;

	for (int i = 0; i < 14; i++)
		free(p[i]);
	free(x->keys);
	free(x->values);
}

static uint32_t opt(struct op_graph *g, bool on, uint32_t dtype, uint32_t rank,
		    const int64_t *dims, void *data)
{
	return on ? op_input(g, dtype, rank, dims, data) : GENAI_NONE;
}

int32_t gqa_run(struct check *c, const struct gqa *t, struct gqa_data *x,
		struct genai_error *err)
{
	int64_t width = t->packed ? t->heads + 2 * t->kv : t->heads;
	int64_t qd[3] = {1, t->seq, width * t->size};
	int64_t kd[3] = {1, t->seq, t->kv * t->size};
	int64_t pd[4] = {1, t->kv, x->rows, t->size}, one[1] = {1};
	int64_t od[3] = {1, t->seq, t->heads * t->size};
	int64_t rd[4] = {1, t->kv,
			 t->share || t->cache ? t->cap : t->past + t->seq,
			 t->size};
	int64_t cd[2] = {t->past + t->seq, t->rot / 2}, hd[1] = {t->size};
	int64_t sd[1] = {t->heads}, bd[4] = {1, 1, t->seq, t->past + t->seq};
	int32_t last = (int32_t)(t->past + t->seq - 1), total = last + 1;
	struct op_how how = {0};
	static struct op_graph g;
	uint32_t in[17], outs[4];

	op_graph_init(&g);
	in[0] = op_input(&g, t->dtype, 3, qd, x->q);
	in[1] = opt(&g, !t->packed, t->dtype, 3, kd, x->k);
	in[2] = opt(&g, !t->packed, t->dtype, 3, kd, x->v);
	in[3] = op_input(&g, t->dtype, 4, pd, x->pk);
	in[4] = op_input(&g, t->dtype, 4, pd, x->pv);
	in[5] = op_input(&g, GENAI_DT_I32, 1, one, &last);
	in[6] = op_input(&g, GENAI_DT_I32, 0, one, &total);
	in[7] = opt(&g, t->rot, t->dtype, 2, cd, x->cosc);
	in[8] = opt(&g, t->rot, t->dtype, 2, cd, x->sinc);
	in[9] = GENAI_NONE;
	in[10] = opt(&g, t->bias, t->dtype, 4, bd, x->bias);
	in[11] = opt(&g, t->sink, t->dtype, 1, sd, x->sink);
	in[12] = in[13] = GENAI_NONE;
	in[14] = opt(&g, t->norm, t->dtype, 1, hd, x->qn);
	in[15] = opt(&g, t->norm, t->dtype, 1, hd, x->kn);
	in[16] = OP_END;
	op_node(&g, "com.microsoft", "GroupQueryAttention", in);
	op_attr_int(&g, "num_heads", t->heads);
	op_attr_int(&g, "kv_num_heads", t->kv);
	op_attr_int(&g, "do_rotary", t->rot != 0);
	op_attr_int(&g, "rotary_interleaved", t->interleaved);
	op_attr_int(&g, "local_window_size", t->window ? t->window : -1);
	op_attr_float(&g, "softcap", t->softcap);
	op_attr_float(&g, "scale", t->scale);
	op_attr_int(&g, "smooth_softmax", t->smooth);
	op_attr_int(&g, "sliding_window_cache", t->cache);
	outs[0] = op_output(&g, t->dtype, 3, od, x->out);
	outs[1] = op_output(&g, t->dtype, 4, rd, x->ok);
	outs[2] = op_output(&g, t->dtype, 4, rd, x->ov);
	outs[3] = OP_END;
	op_node_out(&g, outs);
	if (t->share) {
		op_over(&g, outs[1], in[3]);
		op_over(&g, outs[2], in[4]);
	}
	return c->run(c, &g, &how, err);
}

// The cache afterwards: old rows as they were, new ones within a rounding.
static void check_cache(struct check *c, const struct gqa *t, struct gqa_data *x)
{
	int64_t total = t->past + t->seq, stride = t->cap, bad = 0;
	int64_t has = t->cache ? window_rows(t, total) : total;
	double v[256], u = unit_of(t->dtype);

	if (!t->share && !t->cache)
		stride = total;
	for (int what = 1; what < 3; what++)
		for (int64_t h = 0; h < t->kv; h++)
			for (int64_t r = 0; r < has; r++) {
				int64_t pos = total - has + r;

				gqa_cached(t, x, pos, h, what, v);
				for (int64_t d = 0; d < t->size; d++) {
					double got = at(
						t->dtype,
						what == 1 ? x->ok : x->ov,
						(h * stride + r) * t->size + d);

					bad += !(
						fabs(got - v[d]) <=
						(pos >= t->past
							 ? 2.1 * u * fabs(v[d]) +
								   1e-5
							 : 0));
				}
			}
	check_result(c, !bad, "%lld elements of the cache are wrong",
		     (long long)bad);
}

static void gqa_case(struct check *c, struct gqa t)
{
	struct genai_error err = GENAI_ERROR_INIT;
	double *want, *tol;
	struct gqa_data x;
	int32_t rc;

	if (!check_begin(c,
			 "gqa dtype %u heads %lld/%lld size %lld seq %lld past "
			 "%lld rot %lld%s%s%s%s%s%s%s window %lld%s cap %.1f",
			 t.dtype, (long long)t.heads, (long long)t.kv,
			 (long long)t.size, (long long)t.seq, (long long)t.past,
			 (long long)t.rot, t.interleaved ? " interleaved" : "",
			 t.packed ? " packed" : "", t.share ? " shared" : "",
			 t.norm ? " norm" : "", t.sink ? " sink" : "",
			 t.smooth ? " smooth" : "", t.bias ? " bias" : "",
			 (long long)t.window, t.cache ? " cache" : "",
			 t.softcap))
		return;
	if (!t.scale)
		t.scale = 1 / sqrt((double)t.size);
	if (!t.cap)
		t.cap = t.past + t.seq + 5;
	gqa_make(&t, &x, NULL);
	want = calloc((size_t)(t.seq * t.heads * t.size), sizeof(*want));
	tol = calloc((size_t)(t.seq * t.heads * t.size), sizeof(*tol));
	for (int64_t s = 0; s < t.seq; s++)
		for (int64_t h = 0; h < t.heads; h++)
			gqa_want_row(&t, &x, s, h,
				 want + (s * t.heads + h) * t.size,
				 tol + (s * t.heads + h) * t.size);
	rc = gqa_run(c, &t, &x, &err);
	if (t.sink && t.smooth) { // no definition says what that is
		c->refused = false;
		check_result(c, rc != 0, "%s", "both are taken");
	} else if (rc) {
		check_result(c, false, "%s", err.text);
	} else {
		check_close(c, t.dtype, x.out, want, tol,
			    (uint64_t)(t.seq * t.heads * t.size));
		check_cache(c, &t, &x);
	}
	gqa_unmake(&x);
	free(want);
	free(tol);
}

// A token gives the same bits alone, with what is in front of it in the cache,
// and in the middle of a step; the first one's step has `seq` tokens.
static void gqa_alone(struct check *c, struct gqa t)
{
	uint64_t bytes = (uint64_t)(t.heads * t.size) * 2;
	int64_t row = (t.past + t.seq) * t.size;
	struct genai_error err = GENAI_ERROR_INIT;
	struct gqa one = t;
	struct gqa_data x, y;

	if (!check_begin(c,
			 "gqa alone dtype %u heads %lld/%lld size %lld seq "
			 "%lld past %lld window %lld",
			 t.dtype, (long long)t.heads, (long long)t.kv,
			 (long long)t.size, (long long)t.seq, (long long)t.past,
			 (long long)t.window))
		return;
	t.scale = one.scale = .2;
	t.cap = one.cap = t.past + t.seq;
	one.seq = 1;
	gqa_make(&t, &x, NULL);
	if (gqa_run(c, &t, &x, &err)) {
		check_result(c, false, "%s", err.text);
		gqa_unmake(&x);
		return;
	}
	for (int64_t s = 0; s<t.seq; s += t.seq> 20 ? 7 : 1) {
		one.past = t.past + s;
		gqa_make(&one, &y, NULL);
		free(y.pk);
		free(y.pv);
		y.pk = calloc((size_t)(t.kv * row), 2);
		y.pv = calloc((size_t)(t.kv * row), 2);
		// the buffer is as long as before, its later rows are to come
		memcpy(y.pk, x.ok, (size_t)(t.kv * row) * 2);
		memcpy(y.pv, x.ov, (size_t)(t.kv * row) * 2);
		memcpy(y.q, (char *)x.q + (uint64_t)s * bytes, bytes);
		memcpy(y.k, (char *)x.k + s * t.kv * t.size * 2,
		       (size_t)(t.kv * t.size) * 2);
		memcpy(y.v, (char *)x.v + s * t.kv * t.size * 2,
		       (size_t)(t.kv * t.size) * 2);
		if (gqa_run(c, &one, &y, &err))
			check_result(c, false, "%s", err.text);
		else
			check_same(c, y.out,
				   (char *)x.out + (uint64_t)s * bytes, bytes);
		gqa_unmake(&y);
	}
	gqa_unmake(&x);
}

// Steps of a few tokens: around the borders of pieces of 16 keys, of the 64 of
// a split and of the 2,048 of all splits, and of tiles of 16 rows.
static void few_rows(struct check *c, uint32_t dt)
{
	static const int64_t pasts[] = {0,   14,  15,	16,   62,   63,	  64,
					127, 500, 2046, 2047, 2048, 2100, 4200};

	for (size_t i = 0; i < 14; i++)
		gqa_case(c, (struct gqa){dt, 4, 2, 64, 1 + (int64_t)i % 3,
					 pasts[i], .rot = 64, .packed = true,
					 .share = true});
	for (int64_t seq = 1; seq < 65; seq += 9)
		gqa_case(c, (struct gqa){dt, 5, 1, 64, seq, 60 - seq / 2,
					 .rot = 64, .share = true,
					 .sink = seq % 2 == 0,
					 .window = seq % 3 ? 0 : 33});
	if (dt == GENAI_DT_F32)
		return;
	gqa_alone(c, (struct gqa){dt, 4, 2, 64, 40, 50, .share = true});
	gqa_alone(c, (struct gqa){dt, 3, 1, 128, 5, 2045, .share = true});
	gqa_alone(c, (struct gqa){dt, 2, 1, 64, 9, 2100, .share = true,
				  .window = 2050});
	gqa_alone(c, (struct gqa){dt, 2, 2, 256, 64, 3, .share = true});
}

// Steps of many rows: around the borders of tiles of 64 keys and of 64 and 128
// rows, of which a token has one for every head of a group.
static void many_rows(struct check *c, uint32_t dt)
{
	static const int64_t seqs[] = {17, 31, 32, 33, 63, 64, 65, 127, 129};
	static const int64_t pasts[] = {0, 1, 47, 63, 64, 65, 128, 200};
	static const int64_t sizes[] = {8,   24,  64,  72,  96,
					104, 128, 136, 192, 256};

	for (size_t i = 0; i < 9; i++)
		gqa_case(c, (struct gqa){dt, 2, 1, 64, seqs[i],
					 pasts[(i + 1) % 8], .rot = 64,
					 .packed = true, .share = true});
	for (size_t i = 0; i < 8; i++)
		gqa_case(c, (struct gqa){dt, 7, 1, 32, 20, pasts[i], .rot = 32,
					 .share = i % 2 == 0, .norm = true});
	for (size_t i = 0; i < 10; i++)
		gqa_case(c, (struct gqa){dt, 3, 1, sizes[i], 23, 45,
					 .packed = true, .share = true});
	for (int64_t w = 1; w < 200; w += 63)
		gqa_case(c, (struct gqa){dt, 4, 2, 64, 70, 100, .rot = 64,
					 .share = true, .window = w,
					 .sink = w == 64});
	gqa_case(c, (struct gqa){dt, 4, 4, 64, 66, 3, .smooth = true,
				 .softcap = 5, .scale = .3, .share = true});
	gqa_case(c, (struct gqa){dt, 4, 2, 40, 35, 6, .rot = 32, .bias = true,
				 .sink = true});
	gqa_case(c, (struct gqa){dt, 4, 2, 32, 1, 6, .sink = true,
				 .smooth = true});
	for (int64_t past = 0; past < 90; past += 29)
		gqa_case(c, (struct gqa){dt, 4, 2, 32, 50, past, 64, .rot = 32,
					 .share = past % 2 == 0, .window = 48,
					 .cache = true});
}

void corpus_attention(struct check *c)
{
	static const uint32_t floats[3] = {GENAI_DT_F32, GENAI_DT_F16,
					   GENAI_DT_BF16};
	static const int64_t sizes[] = {16, 32, 40, 64, 80, 96, 128, 256};
	static const int64_t pasts[] = {0, 1, 15, 31, 32, 33, 63, 64, 65, 130};

	for (int d = 0; d < 3; d++) {
		uint32_t dt = floats[d];

		for (size_t i = 0; i < 8; i++)
			gqa_case(c,
				 (struct gqa){dt, 4, 2, sizes[i], 1, 37,
					      .rot = sizes[i], .packed = true,
					      .share = true});
		for (size_t i = 0; i < 10; i++) {
			gqa_case(c, (struct gqa){dt, 3, 3, 16, 1, pasts[i],
						 .rot = 8, .share = true});
			gqa_case(c, (struct gqa){dt, 7, 1, 32, 5, pasts[i],
						 .rot = 32, .interleaved = true,
						 .packed = true});
		}
		gqa_case(c, (struct gqa){dt, 8, 2, 64, 20, 10, .rot = 64,
					 .packed = true, .share = true,
					 .norm = true});
		gqa_case(c, (struct gqa){dt, 8, 2, 64, 1, 100, .rot = 32,
					 .share = true, .sink = true,
					 .window = 17});
		gqa_case(c, (struct gqa){dt, 4, 4, 32, 9, 30, .smooth = true,
					 .softcap = 5, .scale = .3, .window = 8,
					 .share = true});
		gqa_case(c, (struct gqa){dt, 4, 2, 32, 3, 6, .rot = 32,
					 .bias = true});
		for (int64_t past = 0; past < 60; past += 7) {
			gqa_case(c, (struct gqa){dt, 4, 2, 32, 1, past, 16,
						 .rot = 32, .share = true,
						 .window = 16, .cache = true});
			gqa_case(c, (struct gqa){dt, 4, 2, 32, 5, past, 24,
						 .rot = 32, .window = 16,
						 .share = past % 2 == 0,
						 .cache = true});
		}
		gqa_case(c, (struct gqa){dt, 4, 2, 32, 40, 0, 16, .rot = 32,
					 .share = true, .window = 16,
					 .cache = true});
		few_rows(c, dt);
		many_rows(c, dt);
	}
	if (!c->full)
		return;
	for (int d = 1; d < 3; d++) {
		gqa_case(c, (struct gqa){floats[d], 28, 4, 128, 1, 2047,
					 .rot = 128, .packed = true,
					 .share = true});
		gqa_case(c,
			 (struct gqa){floats[d], 16, 8, 128, 64, 200,
				      .rot = 128, .share = true, .norm = true});
		gqa_case(c, (struct gqa){floats[d], 28, 4, 128, 300, 700,
					 .rot = 128, .packed = true,
					 .share = true});
		gqa_case(c, (struct gqa){floats[d], 8, 4, 256, 260, 500,
					 .rot = 256, .share = true,
					 .window = 333, .softcap = 30});
	}
}
