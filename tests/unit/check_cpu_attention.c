// check_cpu_attention.c - cpu_ref's GroupQueryAttention against a plain one in
// double precision, and against itself in pieces.
#include <math.h>
#include <stdio.h>

#include "kernel_node.h"

#define MAX_T 400

static struct cref_pool *pools[5]; // by number of threads

static void setup(void)
{
	for (uint32_t i = 1; i <= 4; i++)
		pools[i] = kpool(i);
}

static void teardown(void)
{
	for (uint32_t i = 1; i <= 4; i++)
		cref_pool_destroy(pools[i]);
	cref_simd_force(-1);
}

struct gqa_case {
	int64_t T, N, Nkv, H;
	uint32_t dtype;
	int64_t rotary; // channels, 0: none
	bool interleaved, separate, norm, smooth, sink, bias, positions;
	int64_t window;
	double softcap, scale;
	bool position_major; // the cache: [rows][heads][H]
};

// Everything for T tokens of one sequence.
struct gqa_data {
	struct gqa_case c;
	void *qkv, *cos, *sin, *sink, *bias, *qn, *kn; // qkv: [T][(N+2Nkv)*H]
	int64_t pos[MAX_T];
	int64_t rows; // of the cache
	char *kc, *vc;
	double *want; // [T][N][H]
};

static struct gqa_data make(struct gqa_case c)
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

static void discard(struct gqa_data *d)
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

// ---- the plain one ----

static void plain_head(const struct gqa_data *d, int64_t t, int64_t head,
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

static double plain_score(const struct gqa_data *d, const double *q,
			  const double *k, int64_t h, int64_t t, int64_t j)
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

static void plain(struct gqa_data *d)
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
			for (int64_t i = 0; i < c->H; i++) // as cached
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

// ---- the operator ----

static void gqa_attrs(struct knode *k, const struct gqa_case *c)
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

// The cache as a view of rows; position-major or head-major memory.
static void cache_view(const struct gqa_data *d, struct cref_tensor *t,
		       int64_t rows, char *data)
{
	const struct gqa_case *c = &d->c;

	cref_set_dense(t, c->dtype, 4, DIMS(1, c->Nkv, rows, c->H));
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

// Tokens [P, P + S) with a cache of past and present rows.
static void gqa_build(struct gqa_call *x, const struct gqa_data *d, int64_t P,
		      int64_t S, int64_t past, int64_t present, void *out)
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
	k->t[CREF_MAX_IN].data = out;
	(void)present;
}

static void gqa_free(struct gqa_call *x)
{
	free(x->q);
	free(x->kv[0]);
	free(x->kv[1]);
	free(x->bias);
	knode_free(&x->k);
}

static void gqa_shared(const struct gqa_data *d, int64_t P, int64_t S,
		       struct cref_pool *pool, char *out)
{
	const struct gqa_case *c = &d->c;
	struct gqa_call x;

	gqa_build(&x, d, P, S, d->rows, d->rows,
		  out + (uint64_t)(P * c->N * c->H) * ksize(c->dtype));
	ck_assert_msg(!knode_prepare(&x.k, cref_gqa_prepare), "%s",
		      x.k.err.text);
	cache_view(d, x.k.n.out[1], d->rows, d->kc);
	cache_view(d, x.k.n.out[2], d->rows, d->vc);
	ck_assert_msg(!knode_run(&x.k, cref_gqa_run, pool, 0, 0), "%s",
		      x.k.err.text);
	gqa_free(&x);
}

static void poison(const struct gqa_data *d)
{
	const uint64_t bytes =
		(uint64_t)(d->rows * d->c.Nkv * d->c.H) * ksize(d->c.dtype);

	memset(d->kc, 0xff, bytes); // NaN: stale rows must not be used
	memset(d->vc, 0xff, bytes);
}

static void compare(const struct gqa_data *d, const char *out)
{
	const struct gqa_case *c = &d->c;
	const double eps = c->dtype == GENAI_DT_F32   ? 4e-6
			   : c->dtype == GENAI_DT_F16 ? 2e-3
						      : 1.6e-2;

	for (int64_t i = 0; i < c->T * c->N * c->H; i++) {
		const double got = cref_load(out, c->dtype, (uint64_t)i);

		ck_assert_msg(fabs(got - d->want[i]) <=
				      eps * (1 + fabs(d->want[i])),
			      "T %d N %d/%d H %d: token %d head %d [%d] is "
			      "%.8g, must be %.8g",
			      (int)c->T, (int)c->N, (int)c->Nkv, (int)c->H,
			      (int)(i / (c->N * c->H)),
			      (int)(i / c->H % c->N), (int)(i % c->H), got,
			      d->want[i]);
	}
}

static void gqa_check(struct gqa_case c)
{
	struct gqa_data d = make(c);
	const uint64_t bytes = (uint64_t)(c.T * c.N * c.H) * ksize(c.dtype);
	char *y = malloc(bytes), *z = malloc(bytes);

	plain(&d);
	cref_simd_force(-1);
	poison(&d);
	gqa_shared(&d, 0, c.T, NULL, y);
	compare(&d, y);
	for (int level = 0; level <= CREF_LEVEL_AVX512; level++)
		for (uint32_t t = 1; t <= 4; t += level + 1) {
			cref_simd_force(level);
			memset(z, 0xee, bytes);
			poison(&d);
			gqa_shared(&d, 0, c.T, pools[t], z);
			ck_assert_mem_eq(y, z, bytes);
		}
	cref_simd_force(-1);
	// a prompt, then token by token; then in pieces
	for (uint32_t t = 1; t <= 4; t += 3) {
		const int64_t prompt = c.T > 12 ? c.T - 12 : 1;

		memset(z, 0xee, bytes);
		poison(&d);
		gqa_shared(&d, 0, prompt, pools[t], z);
		for (int64_t p = prompt; p < c.T; p++)
			gqa_shared(&d, p, 1, pools[t], z);
		ck_assert_mem_eq(y, z, bytes);
	}
	memset(z, 0xee, bytes);
	poison(&d);
	for (int64_t p = 0, s = 3; p < c.T; p += s, s = s * 2 + 1) {
		s = s < c.T - p ? s : c.T - p;
		gqa_shared(&d, p, s, pools[2], z);
	}
	ck_assert_mem_eq(y, z, bytes);
	free(y);
	free(z);
	discard(&d);
}

static const uint32_t dtypes[] = {GENAI_DT_F32, GENAI_DT_F16, GENAI_DT_BF16};

START_TEST(gqa_head_sizes)
{
	static const int64_t hs[] = {8, 16, 20, 33, 64, 80, 96, 128, 256};

	for (int i = 0; i < 9; i++)
		for (int g = 1; g <= 4; g++)
			gqa_check((struct gqa_case){
				.T = 20 + i * 11,
				.N = 2 * g,
				.Nkv = i & 1 ? 1 : 2,
				.H = hs[i],
				.dtype = dtypes[(i + g) % 3],
				.rotary = hs[i] / 2 * 2 / (1 + i % 2) / 2 * 2,
				.interleaved = g & 1,
				.separate = i & 1,
				.position_major = g & 2});
}
END_TEST

START_TEST(gqa_windows)
{
	static const int64_t ws[] = {1, 2, 16, 63, 64, 65, 100};

	for (int i = 0; i < 7; i++)
		gqa_check((struct gqa_case){.T = 210,
					    .N = 3,
					    .Nkv = 1,
					    .H = 16,
					    .dtype = dtypes[i % 3],
					    .rotary = 16,
					    .window = ws[i],
					    .sink = i & 1});
}
END_TEST

START_TEST(gqa_options)
{
	for (int i = 0; i < 64; i++)
		gqa_check((struct gqa_case){
			.T = 70 + i,
			.N = 4,
			.Nkv = 2,
			.H = 24,
			.dtype = dtypes[i % 3],
			.rotary = i % 5 ? 8 + i % 3 * 8 : 0,
			.interleaved = i / 3 % 2,
			.norm = i & 1,
			.smooth = i & 2,
			.sink = i & 4,
			.softcap = i & 8 ? 3 : 0,
			.bias = i & 16,
			.positions = i & 32,
			.separate = i % 7 == 0,
			.scale = i % 3 ? 0 : 0.3,
			.window = i % 11 == 0 ? 20 : 0,
			.position_major = i & 1});
}
END_TEST

START_TEST(gqa_long)
{
	gqa_check((struct gqa_case){.T = 390,
				    .N = 9,
				    .Nkv = 3,
				    .H = 64,
				    .dtype = GENAI_DT_F32,
				    .rotary = 64,
				    .position_major = true});
}
END_TEST

// Past and present apart: past rows copied, the tail zeroed.
START_TEST(gqa_unshared)
{
	struct gqa_data d = make((struct gqa_case){.T = 80,
						   .N = 4,
						   .Nkv = 2,
						   .H = 16,
						   .dtype = GENAI_DT_F32,
						   .rotary = 16});
	const uint64_t row = 16 * 4, bytes = 2 * 80 * row;
	char *y = malloc(80 * 4 * row), *z = malloc(80 * 4 * row);
	char *past[2], *next[2];

	poison(&d);
	gqa_shared(&d, 0, 80, NULL, y);
	for (int i = 0; i < 2; i++) {
		past[i] = calloc(1, bytes);
		next[i] = calloc(1, bytes);
	}
	for (int64_t P = 0, S = 13; P < 80; P += S, S = 1 + S / 2) {
		struct gqa_call x;

		S = S < 80 - P ? S : 80 - P;
		gqa_build(&x, &d, P, S, P, P + S, z + (uint64_t)P * 4 * row);
		for (uint32_t i = 0; i < 2; i++)
			knode_in(&x.k, 3 + i, GENAI_DT_F32, past[i],
				 DIMS(1, 2, P, 16));
		ck_assert_int_eq(knode_prepare(&x.k, cref_gqa_prepare), 0);
		ck_assert_int_eq(x.k.n.out[1]->dims[2], P + S);
		for (int i = 0; i < 2; i++) {
			memset(next[i], 0xff, bytes);
			x.k.n.out[1 + i]->data = next[i];
		}
		ck_assert_int_eq(knode_run(&x.k, cref_gqa_run, pools[2], 0, 0),
				 0);
		for (int i = 0; i < 2; i++) {
			char *t = past[i];

			past[i] = next[i];
			next[i] = t;
		}
		gqa_free(&x);
	}
	ck_assert_mem_eq(y, z, 80 * 4 * row);
	for (uint64_t h = 0; h < 2; h++)
		ck_assert_mem_eq(past[1] + h * 80 * row,
				 d.vc + h * (uint64_t)d.rows * row, 80 * row);
	for (int i = 0; i < 2; i++) {
		free(past[i]);
		free(next[i]);
	}
	free(y);
	free(z);
	discard(&d);
}
END_TEST

// A window's cache of C rows gives what the whole cache gives, in any steps.
START_TEST(gqa_sliding)
{
	for (int64_t C = 16; C <= 32; C += 8)
		for (int64_t step = 1; step <= 41; step += 8) {
			struct gqa_data d = make((struct gqa_case){
				.T = 120, .N = 4, .Nkv = 2, .H = 16,
				.dtype = GENAI_DT_F16, .rotary = 16,
				.window = 16});
			const uint64_t row = 16 * 2;
			char *y = malloc(120 * 4 * row);
			char *z = malloc(120 * 4 * row);
			const int64_t G = C - 16 + 1, G1 = (120 - C + G - 1) / G;
			const int64_t L = 120 - G * G1;

			poison(&d);
			gqa_shared(&d, 0, 120, NULL, y);
			char *cache[2] = {malloc((uint64_t)(2 * C) * row),
					  malloc((uint64_t)(2 * C) * row)};

			for (int64_t P = 0, S; P < 120; P += S) {
				struct gqa_call x;

				S = step < 120 - P ? step : 120 - P;
				gqa_build(&x, &d, P, S, C, C,
					  z + (uint64_t)P * 4 * row);
				knode_int(&x.k, "sliding_window_cache", 1);
				for (uint32_t i = 0; i < 2; i++)
					knode_in(&x.k, 3 + i, GENAI_DT_F16,
						 cache[i], DIMS(1, 2, C, 16));
				ck_assert_int_eq(knode_prepare(&x.k,
							cref_gqa_prepare), 0);
				ck_assert_int_eq(x.k.n.out[1]->dims[2], C);
				x.k.n.out[1]->data = cache[0];
				x.k.n.out[2]->data = cache[1];
				ck_assert_msg(!knode_run(&x.k, cref_gqa_run,
							 pools[2], 0, 0),
					      "%s", x.k.err.text);
				gqa_free(&x);
			}
			ck_assert_mem_eq(y, z, 120 * 4 * row);
			for (uint64_t h = 0; h < 2; h++)
				ck_assert_mem_eq(
					cache[0] + h * (uint64_t)C * row,
					d.kc + (h * (uint64_t)d.rows +
						(uint64_t)(120 - L)) *
						       row,
					(uint64_t)L * row);
			free(cache[0]);
			free(cache[1]);
			free(y);
			free(z);
			discard(&d);
		}
}
END_TEST

// Two sequences, the shorter padded on the right.
START_TEST(gqa_batch)
{
	const struct gqa_case c = {.T = 30, .N = 4, .Nkv = 2, .H = 16,
				   .dtype = GENAI_DT_F32, .rotary = 16};
	struct gqa_data d = make(c);
	const uint64_t in = 8 * 16 * 30, out = 4 * 16 * 30;
	float *q = malloc(2 * in * 4), *y = malloc(2 * out * 4);
	float *k = malloc(2 * 2 * 30 * 16 * 4), *v = malloc(2 * 2 * 30 * 16 * 4);
	char *want = malloc(out * 4);
	int32_t len[2] = {29, 11}, total = 30;
	struct gqa_call x;

	memcpy(q, d.qkv, in * 4);
	memcpy(q + in, d.qkv, in * 4);
	poison(&d);
	gqa_shared(&d, 0, 30, NULL, want);
	gqa_build(&x, &d, 0, 30, 0, 30, y);
	knode_in(&x.k, 0, GENAI_DT_F32, q, DIMS(2, 30, 8 * 16));
	for (uint32_t i = 3; i < 5; i++)
		knode_in(&x.k, i, GENAI_DT_F32, NULL, DIMS(2, 2, 0, 16));
	knode_in(&x.k, 5, GENAI_DT_I32, len, DIMS(2, 1));
	knode_in(&x.k, 6, GENAI_DT_I32, &total, DIMS(1));
	ck_assert_int_eq(knode_prepare(&x.k, cref_gqa_prepare), 0);
	x.k.n.out[1]->data = k;
	x.k.n.out[2]->data = v;
	ck_assert_msg(!knode_run(&x.k, cref_gqa_run, pools[2], 0, 0), "%s",
		      x.k.err.text);
	ck_assert_mem_eq(y, want, out * 4);
	ck_assert_mem_eq(y + out, want, 12 * 4 * 16 * 4);
	gqa_free(&x);
	free(q);
	free(y);
	free(k);
	free(v);
	free(want);
	discard(&d);
}
END_TEST

// ---- refusals ----

static int32_t run_with(int32_t seqlens, int32_t total, int64_t P, int64_t S,
			int64_t cos_rows, char *text)
{
	struct gqa_data d = make((struct gqa_case){.T = 20,
						   .N = 2,
						   .Nkv = 1,
						   .H = 8,
						   .dtype = GENAI_DT_F32,
						   .rotary = 8});
	char out[20 * 2 * 8 * 4];
	struct gqa_call x;
	int32_t rc;

	poison(&d);
	gqa_build(&x, &d, P, S, d.rows, d.rows, out);
	x.seqlens = seqlens;
	x.total = total;
	x.k.t[7].dims[0] = x.k.t[8].dims[0] = cos_rows;
	rc = knode_prepare(&x.k, cref_gqa_prepare);
	if (!rc) {
		cache_view(&d, x.k.n.out[1], d.rows, d.kc);
		cache_view(&d, x.k.n.out[2], d.rows, d.vc);
		rc = knode_run(&x.k, cref_gqa_run, NULL, 0, 0);
	}
	strcpy(text, x.k.err.text);
	gqa_free(&x);
	discard(&d);
	return rc;
}

START_TEST(gqa_bounds)
{
	char text[512];

	ck_assert_int_eq(run_with(7, 8, 4, 4, 29, text), 0);
	ck_assert_int_eq(run_with(-1, 8, 4, 4, 29, text), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(text, "seqlens_k[0] is -1"));
	ck_assert_ptr_nonnull(strstr(text, "/test/node"));
	ck_assert_int_eq(run_with(INT32_MAX, INT32_MAX, 4, 4, 29, text),
			 GENAI_E_INVAL);
	ck_assert_int_eq(run_with(25, 26, 4, 4, 29, text), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(text, "the cache has 25 rows"));
	ck_assert_int_eq(run_with(2, 8, 4, 4, 29, text), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(text, "less than the 4 new rows"));
	ck_assert_int_eq(run_with(9, 8, 4, 4, 29, text), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(text, "total_sequence_length 8"));
	ck_assert_int_eq(run_with(7, 8, 4, 4, 7, text), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(text, "position 7 is outside the 7 rows"));
	// total is an upper bound only: the length is seqlens_k's
	ck_assert_int_eq(run_with(7, 25, 4, 4, 29, text), 0);
	// a padded prompt
	ck_assert_int_eq(run_with(2, 4, 0, 4, 29, text), 0);
}
END_TEST

START_TEST(gqa_refusals)
{
	static const struct {
		const char *attr, *string, *text;
		int64_t i;
		int32_t code;
	} bad[] = {
		{"k_quant_type", "PER_TENSOR", "quantised", 0,
		 GENAI_E_UNSUPPORTED},
		{"v_quant_type", "PER_CHANNEL", "quantised", 0,
		 GENAI_E_UNSUPPORTED},
		{"qk_output", NULL, "qk_output", 1, GENAI_E_UNSUPPORTED},
		{"no_such", NULL, "no_such", 1, GENAI_E_UNSUPPORTED},
		{"sliding_window_cache", NULL, "local_window_size", 1,
		 GENAI_E_INVAL},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct gqa_data d = make((struct gqa_case){
			.T = 4, .N = 2, .Nkv = 1, .H = 8,
			.dtype = GENAI_DT_F32});
		struct gqa_call x;
		struct genai_attr *a;

		gqa_build(&x, &d, 0, 4, 4, 4, NULL);
		a = knode_attr(&x.k, bad[i].attr,
			       bad[i].string ? GENAI_ATTR_STRING
					     : GENAI_ATTR_INT);
		a->s = bad[i].string;
		a->i = bad[i].i;
		ck_assert_int_eq(knode_prepare(&x.k, cref_gqa_prepare),
				 bad[i].code);
		ck_assert_msg(strstr(x.k.err.text, bad[i].text) != NULL, "%s",
			      x.k.err.text);
		gqa_free(&x);
		discard(&d);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cpu_attention");
	TCase *t = tcase_create("gqa");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, gqa_head_sizes);
	tcase_add_test(t, gqa_windows);
	tcase_add_test(t, gqa_options);
	tcase_add_test(t, gqa_long);
	tcase_add_test(t, gqa_unshared);
	tcase_add_test(t, gqa_sliding);
	tcase_add_test(t, gqa_batch);
	tcase_add_test(t, gqa_bounds);
	tcase_add_test(t, gqa_refusals);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
