// corpus_state.c - operators whose state goes from one step into the next, and
// attention over a quantised cache, fed in steps of several lengths with past
// and present in the same bytes: against the definition in double, and the same
// bits however the rows are cut.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/corpus.h"

enum { ROWS = 70, MOST = 24 * ROWS }; // more than a tile of keys

// A sequence through an operator: a step of n rows from row t on reads and
// writes state, and its result goes to y.
struct sequence {
	void (*build)(struct op_graph *g, const void *of, int64_t t, int64_t n,
		      void *state, void *y);
	const void *of;
	uint32_t dtype;
	uint64_t width, state_bytes; // of a row of results
};

static int32_t feed(struct check *c, const struct sequence *q, int64_t most,
		    void *y, void *state, struct genai_error *err)
{
	uint64_t size = op_bytes(q->dtype, 0, NULL);
	static struct op_graph g;
	int32_t rc = 0;

	memset(state, 0, q->state_bytes);
	for (int64_t t = 0, n; t < ROWS && !rc; t += n) {
		struct op_how how = {0};

		n = ROWS - t < most ? ROWS - t : most;
		op_graph_init(&g);
		q->build(&g, q->of, t, n, state,
			 (char *)y + (uint64_t)t * q->width * size);
		rc = c->run(c, &g, &how, err);
	}
	return rc;
}

// name, in all lengths; want and tol are of all rows.
static void cut(struct check *c, const struct sequence *q, const char *name,
		const double *want, const double *tol)
{
	static const int64_t most[] = {70, 64, 33, 17, 16, 7, 5, 3, 2, 1};
	uint64_t bytes = ROWS * q->width * op_bytes(q->dtype, 0, NULL);
	struct genai_error err = GENAI_ERROR_INIT;
	void *first = calloc(ROWS * q->width, 4);
	void *got = calloc(ROWS * q->width, 4);
	void *last = malloc(q->state_bytes), *state = malloc(q->state_bytes);
	int32_t rc = feed(c, q, ROWS, first, last, &err);
	bool refused = c->refused;

	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		if (!check_begin(c, "%s dtype %u, %lld rows a step", name,
				 q->dtype, (long long)most[i]))
			continue;
		c->refused = refused;
		if (!rc)
			rc = feed(c, q, most[i], got, state, &err);
		if (rc) {
			check_result(c, false, "%s", err.text);
			continue;
		}
		check_close(c, q->dtype, got, want, tol, ROWS * q->width);
		if (!c->rows_exact)
			continue;
		check_same(c, first, got, bytes);
		check_same(c, last, state, q->state_bytes);
	}
	free(first);
	free(got);
	free(last);
	free(state);
}

// ---- CausalConvWithState ----

struct conv {
	uint32_t dtype;
	int64_t channels, taps, dilation;
	bool last, silu;
	void *x, *w, *bias; // x: channels last
};

static int64_t conv_history(const struct conv *v)
{
	return (v->taps - 1) * v->dilation;
}

// n rows of x from row t on, in the layout asked for.
static void conv_rows(const struct conv *v, int64_t t, int64_t n, void *out)
{
	for (int64_t i = 0; i < n; i++)
		for (int64_t k = 0; k < v->channels; k++)
			op_store(
				v->dtype, out,
				(uint64_t)(v->last ? i * v->channels + k
						   : k * n + i),
				op_load(v->dtype, v->x,
					(uint64_t)((t + i) * v->channels + k)));
}

static void conv_build(struct op_graph *g, const void *of, int64_t t, int64_t n,
		       void *state, void *y)
{
	const struct conv *v = of;
	static char x[MOST * 4];
	const int64_t h = conv_history(v), ch = v->channels;
	const int64_t dims[] = {1, v->last ? n : ch, v->last ? ch : n};
	const int64_t kept[] = {1, v->last ? h : ch, v->last ? ch : h};
	uint32_t in[5], outs[3];

	conv_rows(v, t, n, x);
	in[0] = op_input(g, v->dtype, 3, dims, x);
	in[1] = op_const(g, v->dtype, 3, (int64_t[]){ch, 1, v->taps}, v->w);
	in[2] = v->bias ? op_const(g, v->dtype, 1, (int64_t[]){ch}, v->bias)
			: GENAI_NONE;
	in[3] = op_input(g, v->dtype, 3, kept, state);
	in[4] = OP_END;
	op_node(g, "com.microsoft", "CausalConvWithState", in);
	if (v->last)
		op_attr_int(g, "channels_last", 1);
	if (v->dilation > 1)
		op_attr_int(g, "dilation", v->dilation);
	op_attr_string(g, "activation", v->silu ? "silu" : "none");
	// rows of results: channels last, by way of a transposition
	outs[0] = v->last ? op_output(g, v->dtype, 3, dims, y) : op_value(g);
	outs[1] = op_output(g, v->dtype, 3, kept, state);
	outs[2] = OP_END;
	op_node_out(g, outs);
	op_over(g, outs[1], in[3]);
	if (v->last)
		return;
	op_node(g, "", "Transpose", (uint32_t[]){outs[0], OP_END});
	op_attr_ints(g, "perm", (int64_t[]){0, 2, 1}, 3);
	op_node_out(g, (uint32_t[]){op_output(g, v->dtype, 3,
					      (int64_t[]){1, n, ch}, y),
				    OP_END});
}

static void conv_want(const struct conv *v, double *want, double *tol)
{
	const int64_t h = conv_history(v);

	for (int64_t i = 0; i < ROWS * v->channels; i++) {
		int64_t t = i / v->channels, k = i % v->channels;
		double sum = 0, mag = 0;

		if (v->bias)
			sum = op_load(v->dtype, v->bias, (uint64_t)k);
		mag = fabs(sum);
		for (int64_t j = 0; j < v->taps; j++) {
			int64_t at = t - h + j * v->dilation;
			double p;

			if (at < 0)
				continue;
			p = (double)op_load(v->dtype, v->w,
					    (uint64_t)(k * v->taps + j)) *
			    op_load(v->dtype, v->x,
				    (uint64_t)(at * v->channels + k));
			sum += p;
			mag += fabs(p);
		}
		want[i] = v->silu ? sum / (1 + exp(-sum)) : sum;
		// the slope of silu is at most 1.1
		tol[i] = mag * (double)(v->taps + 8) * 0x1p-23 +
			 fabs(want[i]) * 1.01 * unit_of(v->dtype) + 1e-30;
		if (v->dtype == GENAI_DT_F16)
			tol[i] += 0x1p-24;
	}
}

static void conv_case(struct check *c, uint32_t dtype, int64_t taps,
		      int64_t dilation, bool last, bool silu, bool bias)
{
	static double want[MOST], tol[MOST];
	struct conv v = {dtype, 6, taps, dilation, last, silu};
	struct sequence q = {
		.build = conv_build,
		.of = &v,
		.dtype = dtype,
		.width = (uint64_t)v.channels,
		.state_bytes = (uint64_t)(conv_history(&v) * v.channels) *
			       op_bytes(dtype, 0, NULL),
	};

	v.x = rnd_tensor(dtype, ROWS * q.width, -2, 2);
	v.w = rnd_tensor(dtype, q.width * (uint64_t)taps, -1, 1);
	if (bias)
		v.bias = rnd_tensor(dtype, q.width, -1, 1);
	conv_want(&v, want, tol);
	cut(c, &q,
	    last   ? "conv, channels last"
	    : silu ? "conv with silu"
		   : "conv",
	    want, tol);
	free(v.x);
	free(v.w);
	free(v.bias);
}

// ---- LinearAttention ----

enum { DK = 200, DV = 20, HEADS = 4 }; // of the state, at most

struct linear {
	uint32_t dtype, state; // types
	const char *rule;
	int64_t q_heads, k_heads;
	bool gated, delta, per_row;
	int64_t dk; // 0: 8
	void *q, *k, *v, *decay, *beta;
};

static uint32_t linear_rows(struct op_graph *g, const struct linear *v,
			    void *of, int64_t t, int64_t n, int64_t width)
{
	return op_input(g, v->dtype, 3, (int64_t[]){1, n, width},
			(char *)of + (uint64_t)(t * width) *
					     op_bytes(v->dtype, 0, NULL));
}

static void linear_build(struct op_graph *g, const void *of, int64_t t,
			 int64_t n, void *state, void *y)
{
	const struct linear *v = of;
	const int64_t out = v->q_heads > HEADS ? v->q_heads : HEADS;
	const int64_t kept[] = {1, HEADS, v->dk, DV};
	uint32_t in[7], outs[3];

	in[0] = linear_rows(g, v, v->q, t, n, v->q_heads * v->dk);
	in[1] = linear_rows(g, v, v->k, t, n, v->k_heads * v->dk);
	in[2] = linear_rows(g, v, v->v, t, n, HEADS * DV);
	in[3] = op_input(g, v->state, 4, kept, state);
	in[4] = v->gated ? linear_rows(g, v, v->decay, t, n,
				       v->per_row ? HEADS * v->dk : HEADS)
			 : GENAI_NONE;
	in[5] = v->delta ? linear_rows(g, v, v->beta, t, n, HEADS) : GENAI_NONE;
	in[6] = OP_END;
	op_node(g, "com.microsoft", "LinearAttention", in);
	op_attr_int(g, "q_num_heads", v->q_heads);
	op_attr_int(g, "kv_num_heads", HEADS);
	op_attr_string(g, "update_rule", v->rule);
	op_attr_float(g, "scale", .5);
	outs[0] = op_output(g, v->dtype, 3, (int64_t[]){1, n, out * DV}, y);
	outs[1] = op_output(g, v->state, 4, kept, state);
	outs[2] = OP_END;
	op_node_out(g, outs);
	op_over(g, outs[1], in[3]);
}

static double at(uint32_t dtype, const void *p, int64_t i)
{
	return op_load(dtype, p, (uint64_t)i);
}

// One token of one head: s and, beside it, how much a rounding can have moved
// each element.
static void linear_token(const struct linear *v, int64_t t, int64_t h,
			 double (*s)[DV], double (*off)[DV])
{
	const double u = unit_of(v->state) + 0x1p-21;
	const int64_t kh = h / (HEADS / v->k_heads);
	double k[DK], e[DK], r[DV] = {0}, ro[DV] = {0}, beta = 1;

	for (int i = 0; i < v->dk; i++) {
		k[i] = at(v->dtype, v->k, (t * v->k_heads + kh) * v->dk + i);
		e[i] = !v->gated
			       ? 1
			       : exp(at(v->dtype, v->decay,
					v->per_row ? (t * HEADS + h) * v->dk + i
						   : t * HEADS + h));
	}
	if (v->delta)
		beta = at(v->dtype, v->beta, t * HEADS + h);
	for (int i = 0; i < v->dk; i++)
		for (int j = 0; j < DV; j++) {
			s[i][j] *= e[i];
			off[i][j] *= e[i];
			r[j] += k[i] * s[i][j];
			ro[j] += fabs(k[i]) * (off[i][j] + fabs(s[i][j]) * u);
		}
	for (int i = 0; i < v->dk; i++)
		for (int j = 0; j < DV; j++) {
			double x = at(v->dtype, v->v, (t * HEADS + h) * DV + j);

			if (v->delta)
				x = beta * (x - r[j]);
			s[i][j] += k[i] * x;
			off[i][j] += fabs(k[i]) * (fabs(x) * u + beta * ro[j]) +
				     fabs(s[i][j]) * u;
		}
}

static void linear_want(const struct linear *v, double *want, double *tol)
{
	static double s[HEADS][DK][DV], off[HEADS][DK][DV];
	const int64_t out = v->q_heads > HEADS ? v->q_heads : HEADS;

	memset(s, 0, sizeof(s));
	memset(off, 0, sizeof(off));
	for (int64_t i = 0; i < ROWS * out; i++) {
		const int64_t t = i / out, o = i % out, h = o * HEADS / out;
		const int64_t qh = o * v->q_heads / out;

		if (o * HEADS % out == 0)
			linear_token(v, t, h, s[h], off[h]);
		for (int j = 0; j < DV; j++) {
			double *w = &want[i * DV + j], *e = &tol[i * DV + j];

			*w = *e = 0;
			for (int k = 0; k < v->dk; k++) {
				double q =
					at(v->dtype, v->q,
					   (t * v->q_heads + qh) * v->dk + k);

				*w += .5 * q * s[h][k][j];
				*e += .5 * fabs(q) *
				      (off[h][k][j] +
				       fabs(s[h][k][j]) * 0x1p-19);
			}
			*e += fabs(*w) * 1.01 * unit_of(v->dtype) + 1e-30;
			if (v->dtype == GENAI_DT_F16)
				*e += 0x1p-24;
		}
	}
}

static void linear_case(struct check *c, struct linear v)
{
	enum { ALL = ROWS * 8 * DV };
	static double want[ALL], tol[ALL];
	const int64_t out = v.q_heads > HEADS ? v.q_heads : HEADS;
	float most;
	struct sequence q = {
		.build = linear_build,
		.of = &v,
		.dtype = v.dtype,
		.width = (uint64_t)(out * DV),
	};

	v.dk = v.dk ? v.dk : 8;
	q.state_bytes =
		(uint64_t)(HEADS * v.dk * DV) * op_bytes(v.state, 0, NULL);
	// a correction does not overshoot
	most = .4f * sqrtf(8 / (float)v.dk);

	v.q = rnd_tensor(v.dtype, ROWS * (uint64_t)v.q_heads * v.dk, -1, 1);
	v.k = rnd_tensor(v.dtype, ROWS * (uint64_t)v.k_heads * v.dk, -most,
			 most);
	v.v = rnd_tensor(v.dtype, ROWS * HEADS * DV, -1, 1);
	v.decay = rnd_tensor(v.dtype, ROWS * HEADS * v.dk, -.7f, 0);
	v.beta = rnd_tensor(v.dtype, ROWS * HEADS, 0, 1);
	linear_want(&v, want, tol);
	cut(c, &q, v.rule, want, tol);
	free(v.q);
	free(v.k);
	free(v.v);
	free(v.decay);
	free(v.beta);
}

// ---- GroupQueryAttention over a quantised cache ----

enum { KV_HEADS = 2, Q_HEADS = 4, SIZE = 16, CAP = 80 };
enum { KV_WIDTH = (Q_HEADS + 2 * KV_HEADS) * SIZE };

struct kv {
	uint32_t dtype;
	int64_t bits;
	bool each;	// a scale for each channel of each head
	int64_t window; // positions that a cache of that length keeps; 0: all
	void *qkv;
	float *scales[2];
};

static float kv_scale(const struct kv *v, int what, int64_t h, int64_t e)
{
	return v->scales[what][v->each ? h * SIZE + e : 0];
}

static void kv_build(struct op_graph *g, const void *of, int64_t t, int64_t n,
		     void *state, void *y)
{
	const struct kv *v = of;
	static int32_t last, total;
	const uint32_t type = v->bits == 8 ? GENAI_DT_I8 : GENAI_DT_U8;
	const int64_t rows = v->window ? v->window : CAP;
	const int64_t cache[] = {1, KV_HEADS, rows, SIZE * v->bits / 8};
	const int64_t scales[] = {1, KV_HEADS, 1, SIZE}, one[] = {1};
	void *half = (char *)state + KV_HEADS * rows * SIZE * v->bits / 8;
	uint32_t in[15], outs[4];

	total = (int32_t)(t + n);
	last = total - 1;
	for (int i = 0; i < 14; i++)
		in[i] = GENAI_NONE;
	in[0] = op_input(g, v->dtype, 3, (int64_t[]){1, n, KV_WIDTH},
			 (char *)v->qkv + (uint64_t)(t * KV_WIDTH) *
						  op_bytes(v->dtype, 0, NULL));
	in[3] = op_input(g, type, 4, cache, state);
	in[4] = op_input(g, type, 4, cache, half);
	in[5] = op_input(g, GENAI_DT_I32, 1, one, &last);
	in[6] = op_input(g, GENAI_DT_I32, 0, one, &total);
	for (int i = 0; i < 2; i++)
		in[12 + i] = op_const(g, GENAI_DT_F32, v->each ? 4 : 1,
				      v->each ? scales : one, v->scales[i]);
	in[14] = OP_END;
	op_node(g, "com.microsoft", "GroupQueryAttention", in);
	op_attr_int(g, "num_heads", Q_HEADS);
	op_attr_int(g, "kv_num_heads", KV_HEADS);
	op_attr_int(g, "kv_cache_bit_width", v->bits);
	if (v->window) {
		op_attr_int(g, "local_window_size", v->window);
		op_attr_int(g, "sliding_window_cache", 1);
	}
	op_attr_string(g, "k_quant_type",
		       v->each ? "PER_CHANNEL" : "PER_TENSOR");
	op_attr_string(g, "v_quant_type",
		       v->each ? "PER_CHANNEL" : "PER_TENSOR");
	outs[0] =
		op_output(g, v->dtype, 3, (int64_t[]){1, n, Q_HEADS * SIZE}, y);
	outs[1] = op_output(g, type, 4, cache, state);
	outs[2] = op_output(g, type, 4, cache, half);
	outs[3] = OP_END;
	op_node_out(g, outs);
	op_over(g, outs[1], in[3]);
	op_over(g, outs[2], in[4]);
}

// Element e of the new key (what 0) or value (1) of head h, as the cache gives
// it.  Scales are powers of two: no rounding makes another number of it.
static double kv_at(const struct kv *v, int what, int64_t t, int64_t h,
		    int64_t e)
{
	const int64_t head = Q_HEADS + what * KV_HEADS + h;
	const double most = v->bits == 8 ? 127 : 7;
	const double s = kv_scale(v, what, h, e);
	double q =
		rint(at(v->dtype, v->qkv, t * KV_WIDTH + head * SIZE + e) / s);

	return s * fmin(fmax(q, -most - 1), most);
}

static void kv_want(const struct kv *v, double *want, double *tol)
{
	for (int64_t i = 0; i < ROWS * Q_HEADS; i++) {
		const int64_t t = i / Q_HEADS, o = i % Q_HEADS;
		const int64_t h = o / (Q_HEADS / KV_HEADS);
		const int64_t seen =
			v->window && t >= v->window ? t + 1 - v->window : 0;
		double score[ROWS], sum = 0, d = 0;

		for (int64_t j = seen; j <= t; j++) {
			double mag = 0;

			score[j] = 0;
			for (int64_t e = 0; e < SIZE; e++) {
				double p = kv_at(v, 0, j, h, e) *
					   at(v->dtype, v->qkv,
					      t * KV_WIDTH + o * SIZE + e);

				score[j] += p / sqrt(SIZE);
				mag += fabs(p) / sqrt(SIZE);
			}
			d = fmax(d, mag * (unit_of(v->dtype) + 0x1p-19));
			sum += exp(score[j]);
		}
		for (int64_t e = 0; e < SIZE; e++) {
			double *w = &want[i * SIZE + e], mag = 0;

			*w = 0;
			for (int64_t j = seen; j <= t; j++) {
				double p = exp(score[j]) / sum *
					   kv_at(v, 1, j, h, e);

				*w += p;
				mag += fabs(p);
			}
			tol[i * SIZE + e] =
				mag * (expm1(2 * d) + 2 * unit_of(v->dtype) +
				       0x1p-19) +
				0x1p-24;
		}
	}
}

static void kv_case(struct check *c, uint32_t dtype, int64_t bits, bool each,
		    int64_t window)
{
	static double want[ROWS * Q_HEADS * SIZE], tol[ROWS * Q_HEADS * SIZE];
	static float scales[2][KV_HEADS * SIZE];
	struct kv v = {dtype, bits, each, window, NULL, {scales[0], scales[1]}};
	struct sequence q = {
		.build = kv_build,
		.of = &v,
		.dtype = dtype,
		.width = Q_HEADS * SIZE,
		.state_bytes =
			(uint64_t)(2 * KV_HEADS * (window ? window : CAP) *
				   SIZE * bits / 8),
	};

	for (int i = 0; i < 2 * KV_HEADS * SIZE; i++)
		scales[i / (KV_HEADS * SIZE)][i % (KV_HEADS * SIZE)] =
			(float)(1 << rnd_u32() % 3) / (bits == 8 ? 128 : 8);
	v.qkv = rnd_tensor(dtype, ROWS * KV_WIDTH, -3, 3);
	kv_want(&v, want, tol);
	cut(c, &q, bits == 8 ? "cache of 8 bits" : "cache of 4 bits", want,
	    tol);
	free(v.qkv);
}

void corpus_state(struct check *c)
{
	static const uint32_t floats[] = {GENAI_DT_F32, GENAI_DT_F16,
					  GENAI_DT_BF16};

	for (int d = 0; d < 3; d++) {
		const uint32_t t = floats[d];

		conv_case(c, t, 3, 1, false, false, false);
		conv_case(c, t, 4, 1, false, true, true);
		conv_case(c, t, 3, 4, false, false, true);
		conv_case(c, t, 4, 1, true, true, true);
		linear_case(c, (struct linear){t, t, "gated_delta", 4, 4, true,
					       true});
		linear_case(c, (struct linear){t, GENAI_DT_F32, "gated_delta",
					       2, 2, true, true});
		linear_case(c, (struct linear){t, t, "gated_delta", 8, 4, true,
					       true, true});
		linear_case(c,
			    (struct linear){t, t, "gated", 4, 4, true, false});
		linear_case(c,
			    (struct linear){t, t, "delta", 1, 1, false, true});
		linear_case(c, (struct linear){t, GENAI_DT_F32, "linear", 4, 4,
					       false, false});
		// more than a lane's row, or a warp's
		linear_case(c, (struct linear){t, GENAI_DT_F32, "gated_delta",
					       2, 4, true, true, .dk = 72});
		linear_case(c, (struct linear){t, t, "gated_delta", 4, 2, true,
					       true, true, .dk = DK});
		for (int each = 0; each < 2; each++) {
			kv_case(c, t, 8, each, 0);
			kv_case(c, t, 4, each, each ? 9 : 0);
		}
	}
}
