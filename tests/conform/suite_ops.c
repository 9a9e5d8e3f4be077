// suite_ops.c - an executor's operators against values computed here.
#include "tests/conform/rig.h"

#include <math.h>
#include <string.h>

static struct rig g;
static struct rig_graph made;
static struct genai_graph *graph;

static void end(void)
{
	rig_close(&g);
	rig_graph_free(&made, graph);
	graph = NULL;
}

static void near(const float *got, const double *want, uint32_t n, double tol)
{
	for (uint32_t i = 0; i < n; i++)
		ck_assert_msg(fabs((double)got[i] - want[i]) <=
				      tol * (1 + fabs(want[i])),
			      "value %u is %.9g, not %.9g", i, (double)got[i],
			      want[i]);
}

static float frac(uint64_t *seed)
{
	return (float)cf_below(seed, 512) / 256 - 1;
}

// ---- operators ----

static void add(void)
{
	const int64_t dims[] = {-1, 4}, now[] = {3, 4};
	struct genai_view max[2];
	float x[12], y[12], got[12];
	double want[12];
	uint32_t a, b, out;

	rig_open(&g, NULL);
	rig_need_op(&g, "", "Add");
	rig_graph_begin(&made);
	a = rig_input(&made, "a", GENAI_DT_F32, 2, dims);
	b = rig_input(&made, "b", GENAI_DT_F32, 2, dims);
	out = rig_value(&made, "sum");
	rig_node(&made, "Add", "", "adds", (uint32_t[]){a, b}, 2, out);
	graph = rig_graph_end(&made, out);
	max[0] = max[1] = rig_view(GENAI_DT_F32, 2, (int64_t[]){5, 4});
	rig_plan(&g, graph, max, 0);
	for (int i = 0; i < 12; i++) {
		x[i] = (float)i / 4;
		y[i] = (float)(100 - i * i);
		want[i] = (double)x[i] + (double)y[i];
	}
	rig_in(&g, 0, x, 2, now);
	rig_in(&g, 1, y, 2, now);
	rig_run(&g, got, sizeof(got));
	ck_assert_int_eq(g.out[0].dtype, GENAI_DT_F32);
	ck_assert_int_eq(g.out[0].dims[0], 3);
	near(got, want, 12, 0);
	end();
}

#define GAP 7777

// A [3, 4] matrix, row by row, into a buffer with these strides, or out of it.
static void strided(struct genai_view *v, int64_t rows, int64_t cols, float *m,
		    float *buffer, bool out)
{
	v->strides[0] = rows;
	v->strides[1] = cols;
	for (int64_t i = 0; i < 3; i++)
		for (int64_t k = 0; k < 4; k++) {
			float *at = &buffer[i * rows + k * cols];

			if (out)
				m[4 * i + k] = *at;
			*at = out ? GAP : m[4 * i + k];
		}
}

// A step with a view of strides: false if the executor says that it cannot.
static bool run_strided(bool input, struct genai_view *v)
{
	struct genai_point signal;
	struct genai_ticket t;
	int32_t rc;

	CF_CLEAR();
	rc = (input ? g.r.rt->exec.bind_input
		    : g.r.rt->exec.bind_output)(g.plan, 0, v, &cf_err);
	if (!rc)
		rc = g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal,
					 &cf_err);
	ck_assert_msg(
		!rc || ((rc == GENAI_E_INVAL || rc == GENAI_E_UNSUPPORTED) &&
			cf_err.text[0]),
		"a view with strides: %s: %s", genai_status_name(rc),
		cf_err.text);
	t = cf_drain(&g.r);
	if (rc) {
		CF_OK(g.r.st->reset(g.r.d, &t, &cf_err));
		CF_OK(g.pager_ops.reset(g.pager.pager, &t, &cf_err));
	}
	return !rc;
}

static void strides_of(bool input, int64_t rows, int64_t cols, float *x,
		       float *y)
{
	struct genai_view *v = input ? &g.in[0] : &g.out[0], dense = *v;
	float buffer[32], got[12];

	for (int i = 0; i < 32; i++)
		buffer[i] = GAP;
	strided(v, rows, cols, x, buffer, false);
	cf_put(&g.r, v->addr, buffer, sizeof(buffer));
	if (run_strided(input, v)) {
		cf_get(&g.r, buffer, g.out[0].addr, sizeof(buffer));
		strided(&g.out[0], g.out[0].strides[0], g.out[0].strides[1],
			got, buffer, true);
		for (int i = 0; i < 12; i++)
			ck_assert_msg(fabsf(got[i] - x[i] - y[i]) == 0,
				      "strides %d, %d of an %s: value %d is "
				      "%g, not %g",
				      (int)rows, (int)cols,
				      input ? "input" : "output", i,
				      (double)got[i], (double)(x[i] + y[i]));
		for (int i = 0; !input && i < 32; i++)
			ck_assert_msg(buffer[i] == GAP,
				      "strides %d, %d of an output: float %d "
				      "is none of its own",
				      (int)rows, (int)cols, i);
	}
	*v = dense;
	cf_put(&g.r, g.in[0].addr, x, 12 * sizeof(float));
	rig_rebind(&g, input);
}

// A view's strides are obeyed, or refused; never taken for others.
static void strides(void)
{
	static const int64_t cases[][2] = {{8, 1}, {1, 3}, {8, 2}, {4, 1}};
	const int64_t dims[] = {-1, 4}, now[] = {3, 4};
	struct genai_view max[2];
	float x[12], y[12], got[12];
	uint32_t a, b, out;

	rig_open(&g, NULL);
	rig_need_op(&g, "", "Add");
	rig_graph_begin(&made);
	a = rig_input(&made, "a", GENAI_DT_F32, 2, dims);
	b = rig_input(&made, "b", GENAI_DT_F32, 2, dims);
	out = rig_value(&made, "sum");
	rig_node(&made, "Add", "", "adds", (uint32_t[]){a, b}, 2, out);
	graph = rig_graph_end(&made, out);
	max[0] = max[1] = rig_view(GENAI_DT_F32, 2, (int64_t[]){5, 4});
	rig_plan(&g, graph, max, 0);
	for (int i = 0; i < 12; i++) {
		x[i] = (float)i;
		y[i] = (float)(100 * i);
	}
	rig_in(&g, 0, x, 2, now);
	rig_in(&g, 1, y, 2, now);
	rig_run(&g, got, sizeof(got));
	for (uint32_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		strides_of(true, cases[i][0], cases[i][1], x, y);
		strides_of(false, cases[i][0], cases[i][1], x, y);
	}
	end();
}

// y = x W, W stored as it is, or as its transpose in blocks of 4 bits.
static void check_matmul(uint32_t m, uint32_t k, uint32_t n, const float *x,
			 const double *w, const float *got)
{
	for (uint32_t i = 0; i < m; i++)
		for (uint32_t j = 0; j < n; j++) {
			double sum = 0;

			for (uint32_t l = 0; l < k; l++)
				sum += (double)x[i * k + l] * w[l * n + j];
			near(&got[i * n + j], &sum, 1, 1e-4);
		}
}

static void matmul(void)
{
	enum { M = 3, K = 40, N = 24 };
	struct genai_view max;
	float x[M * K], w[K * N], got[M * N];
	double wd[K * N];
	uint32_t in, weight, out;
	uint64_t seed = 3;

	for (int i = 0; i < M * K; i++)
		x[i] = frac(&seed);
	for (int i = 0; i < K * N; i++)
		wd[i] = w[i] = frac(&seed);
	rig_open(&g, NULL);
	rig_need_op(&g, "", "MatMul");
	rig_graph_begin(&made);
	in = rig_input(&made, "x", GENAI_DT_F32, 3, (int64_t[]){1, -1, K});
	weight = rig_weight(&made, "w", GENAI_DT_F32, 2, (int64_t[]){K, N}, w);
	out = rig_value(&made, "y");
	rig_node(&made, "MatMul", "", "mm", (uint32_t[]){in, weight}, 2, out);
	graph = rig_graph_end(&made, out);
	max = rig_view(GENAI_DT_F32, 3, (int64_t[]){1, M, K});
	rig_plan(&g, graph, &max, 0);
	rig_in(&g, 0, x, 3, (int64_t[]){1, M, K});
	rig_run(&g, got, sizeof(got));
	check_matmul(M, K, N, x, wd, got);
	end();
}

// large enough that no part of a weight is passed by value
enum { QM = 2, QK = 64, QN = 1104 };

struct nbits {
	unsigned char q[QN * QK / 2], zero[QN];
	float scale[QN * 2], x[QM * QK], got[QM * QN];
	double w[QK * QN];
};

static void make_nbits(struct nbits *q, uint64_t seed)
{
	cf_pattern(q->q, sizeof(q->q), seed);
	cf_pattern(q->zero, sizeof(q->zero), seed + 1);
	for (int i = 0; i < QN * 2; i++)
		q->scale[i] = (float)(1 + cf_below(&seed, 32)) / 256;
	for (int i = 0; i < QM * QK; i++)
		q->x[i] = frac(&seed);
	for (int n = 0; n < QN; n++)
		for (int k = 0; k < QK; k++) {
			int byte = q->q[n * QK / 2 + k / 2];
			int bits = k % 2 ? byte >> 4 : byte & 15;
			int z = k / 32 ? q->zero[n] >> 4 : q->zero[n] & 15;

			q->w[k * QN + n] =
				(bits - z) * (double)q->scale[n * 2 + k / 32];
		}
}

static struct genai_graph *nbits_graph(const struct nbits *q, bool bias,
				       const float *b)
{
	uint32_t in[6], out, node;

	rig_graph_begin(&made);
	in[0] = rig_input(&made, "x", GENAI_DT_F32, 3, (int64_t[]){1, -1, QK});
	in[1] = rig_weight(&made, "q", GENAI_DT_U8, 3, (int64_t[]){QN, 2, 16},
			   q->q);
	in[2] = rig_weight(&made, "scales", GENAI_DT_F32, 2, (int64_t[]){QN, 2},
			   q->scale);
	in[3] = rig_weight(&made, "zeros", GENAI_DT_U8, 2, (int64_t[]){QN, 1},
			   q->zero);
	in[4] = GENAI_NONE;
	if (bias)
		in[5] = rig_weight(&made, "bias", GENAI_DT_F32, 1,
				   (int64_t[]){QN}, b);
	out = rig_value(&made, "y");
	node = rig_node(&made, "MatMulNBits", "com.microsoft", "quantised", in,
			bias ? 6 : 4, out);
	genai_builder_attr_int(made.b, node, "K", QK);
	genai_builder_attr_int(made.b, node, "N", QN);
	genai_builder_attr_int(made.b, node, "bits", 4);
	genai_builder_attr_int(made.b, node, "block_size", 32);
	return rig_graph_end(&made, out);
}

// Whole, and cut into rows at every size of tile.
static void nbits(void)
{
	static const uint64_t rows[] = {0, 64, 104, 248, 512, 1096};
	static struct nbits q;
	static float first[QM * QN];
	struct genai_view max;

	make_nbits(&q, 17);
	rig_open(&g, NULL);
	rig_need_op(&g, "com.microsoft", "MatMulNBits");
	graph = nbits_graph(&q, false, NULL);
	max = rig_view(GENAI_DT_F32, 3, (int64_t[]){1, QM, QK});
	for (uint32_t i = 0; i < 6; i++) {
		rig_plan(&g, graph, &max, rows[i]);
		rig_in(&g, 0, q.x, 3, (int64_t[]){1, QM, QK});
		rig_run(&g, q.got, sizeof(q.got));
		check_matmul(QM, QK, QN, q.x, q.w, q.got);
		if (i)
			ck_assert_msg(!memcmp(first, q.got, sizeof(first)),
				      "tiles of %lu rows change the result",
				      (unsigned long)rows[i]);
		memcpy(first, q.got, sizeof(first));
		rig_unplan(&g);
	}
	end();
}

// A weight that is not cut beside one that is.
static void nbits_bias(void)
{
	static struct nbits q;
	float bias[QN];
	struct genai_view max;
	uint64_t seed = 9;

	make_nbits(&q, 18);
	for (int i = 0; i < QN; i++)
		bias[i] = frac(&seed);
	rig_open(&g, NULL);
	rig_need_op(&g, "com.microsoft", "MatMulNBits");
	graph = nbits_graph(&q, true, bias);
	max = rig_view(GENAI_DT_F32, 3, (int64_t[]){1, QM, QK});
	for (uint64_t rows = 0; rows <= 200; rows += 200) {
		rig_plan(&g, graph, &max, rows);
		rig_in(&g, 0, q.x, 3, (int64_t[]){1, QM, QK});
		rig_run(&g, q.got, sizeof(q.got));
		for (int i = 0; i < QM * QN; i++)
			q.got[i] -= bias[i % QN];
		check_matmul(QM, QK, QN, q.x, q.w, q.got);
		rig_unplan(&g);
	}
	end();
}

static void gather(void)
{
	enum { V = 300, D = 8, S = 5 };
	static float table[V * D];
	const int64_t ids[S] = {7, 299, 0, 150, 7};
	struct genai_view max;
	float got[S * D];
	uint32_t in, w, out;
	uint64_t seed = 4;

	for (int i = 0; i < V * D; i++)
		table[i] = frac(&seed) + (float)i;
	rig_open(&g, NULL);
	rig_need_op(&g, "", "Gather");
	rig_graph_begin(&made);
	in = rig_input(&made, "ids", GENAI_DT_I64, 2, (int64_t[]){1, -1});
	w = rig_weight(&made, "table", GENAI_DT_F32, 2, (int64_t[]){V, D},
		       table);
	out = rig_value(&made, "rows");
	rig_node(&made, "Gather", "", "embed", (uint32_t[]){w, in}, 2, out);
	graph = rig_graph_end(&made, out);
	max = rig_view(GENAI_DT_I64, 2, (int64_t[]){1, S});
	rig_plan(&g, graph, &max, 0);
	rig_in(&g, 0, ids, 2, (int64_t[]){1, S});
	rig_run(&g, got, sizeof(got));
	for (int i = 0; i < S; i++)
		ck_assert_mem_eq(&got[i * D], &table[ids[i] * D],
				 D * sizeof(float));
	end();
}

static void norm(void)
{
	enum { D = 96, S = 3 };
	float x[S * D], scale[D], got[S * D];
	double want[S * D];
	struct genai_view max;
	uint32_t in, w, out, node;
	uint64_t seed = 6;

	for (int i = 0; i < S * D; i++)
		x[i] = frac(&seed) * 8;
	for (int i = 0; i < D; i++)
		scale[i] = frac(&seed);
	for (int s = 0; s < S; s++) {
		double sum = 0;

		for (int i = 0; i < D; i++)
			sum += (double)x[s * D + i] * (double)x[s * D + i];
		for (int i = 0; i < D; i++)
			want[s * D + i] = (double)x[s * D + i] /
					  sqrt(sum / D + 1e-6) *
					  (double)scale[i];
	}
	rig_open(&g, NULL);
	rig_need_op(&g, "", "SimplifiedLayerNormalization");
	rig_graph_begin(&made);
	in = rig_input(&made, "x", GENAI_DT_F32, 3, (int64_t[]){1, -1, D});
	w = rig_weight(&made, "scale", GENAI_DT_F32, 1, (int64_t[]){D}, scale);
	out = rig_value(&made, "y");
	node = rig_node(&made, "SimplifiedLayerNormalization", "", "norm",
			(uint32_t[]){in, w}, 2, out);
	genai_builder_attr_int(made.b, node, "axis", -1);
	genai_builder_attr_float(made.b, node, "epsilon", 1e-6);
	graph = rig_graph_end(&made, out);
	max = rig_view(GENAI_DT_F32, 3, (int64_t[]){1, S, D});
	rig_plan(&g, graph, &max, 0);
	rig_in(&g, 0, x, 3, (int64_t[]){1, S, D});
	rig_run(&g, got, sizeof(got));
	near(got, want, S * D, 1e-5);
	end();
}

// Two heads of queries, one of keys and values, in a cache that is longer than
// what is in it; past and present share its bytes.
enum { HEADS = 2, SIZE = 64, CACHE = 8, T = 5 };

struct attention {
	float q[T][HEADS * SIZE], k[T][SIZE], v[T][SIZE];
	double want[T][HEADS * SIZE];
};

static void attend(struct attention *a, int t, int h)
{
	double w[T], sum = 0, most = -1e300;

	for (int s = 0; s <= t; s++) {
		w[s] = 0;
		for (int i = 0; i < SIZE; i++)
			w[s] += (double)a->q[t][h * SIZE + i] *
				(double)a->k[s][i];
		w[s] /= sqrt(SIZE);
		most = w[s] > most ? w[s] : most;
	}
	for (int s = 0; s <= t; s++)
		sum += w[s] = exp(w[s] - most);
	for (int i = 0; i < SIZE; i++) {
		double x = 0;

		for (int s = 0; s <= t; s++)
			x += w[s] / sum * (double)a->v[s][i];
		a->want[t][h * SIZE + i] = x;
	}
}

// odd: a float attribute NaN, or an integer one that is out of range; or NULL.
static struct genai_graph *attention_graph(const char *odd, int64_t value)
{
	const int64_t cache[] = {1, 1, -1, SIZE};
	uint32_t in[7], out[3], node;

	rig_graph_begin(&made);
	in[0] = rig_input(&made, "q", GENAI_DT_F32, 3,
			  (int64_t[]){1, -1, HEADS * SIZE});
	in[1] = rig_input(&made, "k", GENAI_DT_F32, 3,
			  (int64_t[]){1, -1, SIZE});
	in[2] = rig_input(&made, "v", GENAI_DT_F32, 3,
			  (int64_t[]){1, -1, SIZE});
	in[3] = rig_input(&made, "past_key", GENAI_DT_F32, 4, cache);
	in[4] = rig_input(&made, "past_value", GENAI_DT_F32, 4, cache);
	in[5] = rig_input(&made, "seqlens_k", GENAI_DT_I32, 1, (int64_t[]){1});
	in[6] = rig_input(&made, "total", GENAI_DT_I32, 0, NULL);
	out[0] = rig_value(&made, "y");
	out[1] = rig_value(&made, "present_key");
	out[2] = rig_value(&made, "present_value");
	node = genai_builder_node(made.b, "GroupQueryAttention",
				  "com.microsoft", 1, "attention", in, 7, out,
				  3);
	genai_builder_attr_int(made.b, node, "num_heads", HEADS);
	genai_builder_attr_int(made.b, node, "kv_num_heads", 1);
	if (odd && value == INT64_MIN)
		genai_builder_attr_float(made.b, node, odd, NAN);
	else if (odd)
		genai_builder_attr_int(made.b, node, odd, value);
	genai_builder_output(made.b, out[1]);
	genai_builder_output(made.b, out[2]);
	return rig_graph_end(&made, out[0]);
}

// n rows from t on: outputs 0 and 1 are the cache, 2 is y.
static void attention_step(const struct attention *a, int t, int n)
{
	const int64_t cache[] = {1, 1, CACHE, SIZE};
	int32_t last = t + n - 1, total = t + n;
	float got[T][HEADS * SIZE];

	rig_in(&g, 0, a->q[t], 3, (int64_t[]){1, n, HEADS * SIZE});
	rig_in(&g, 1, a->k[t], 3, (int64_t[]){1, n, SIZE});
	rig_in(&g, 2, a->v[t], 3, (int64_t[]){1, n, SIZE});
	rig_in(&g, 3, NULL, 4, cache);
	rig_in(&g, 4, NULL, 4, cache);
	rig_in(&g, 5, &last, 1, (int64_t[]){1});
	rig_in(&g, 6, &total, 0, NULL);
	CF_OK(g.r.rt->exec.bind_output(g.plan, 0, &g.in[3], &cf_err));
	CF_OK(g.r.rt->exec.bind_output(g.plan, 1, &g.in[4], &cf_err));
	g.out[2] = g.in[0];
	g.out[2].addr = g.out_mem[2].range.addr;
	CF_OK(g.r.rt->exec.bind_output(g.plan, 2, &g.out[2], &cf_err));
	rig_submit(&g);
	cf_finish(&g.r, g.s);
	cf_get(&g.r, got, g.out[2].addr, (uint64_t)n * sizeof(got[0]));
	for (int i = 0; i < n; i++)
		near(got[i], a->want[t + i], HEADS * SIZE, 1e-4);
	cf_get(&g.r, got, g.in[4].addr, (uint64_t)total * sizeof(a->v[0]));
	ck_assert_msg(!memcmp(got, a->v, (uint64_t)total * sizeof(a->v[0])),
		      "the cache does not hold the values of %d rows", total);
}

static void attention_max(struct genai_view max[7])
{
	max[0] = rig_view(GENAI_DT_F32, 3, (int64_t[]){1, T, HEADS * SIZE});
	max[1] = max[2] = rig_view(GENAI_DT_F32, 3, (int64_t[]){1, T, SIZE});
	max[3] = max[4] =
		rig_view(GENAI_DT_F32, 4, (int64_t[]){1, 1, CACHE, SIZE});
	max[5] = rig_view(GENAI_DT_I32, 1, (int64_t[]){1});
	max[6] = rig_view(GENAI_DT_I32, 0, NULL);
}

// What is outside of an attribute's definition is not taken for something else.
static void attributes(void)
{
	static const struct {
		const char *name;
		int64_t value; // INT64_MIN: NaN
	} odd[] = {
		{"do_rotary", 2},
		{"do_rotary", -1},
		{"rotary_interleaved", 3},
		{"causal", 2},
		{"smooth_softmax", 2},
		{"smooth_softmax", -2},
		{"sliding_window_cache", 5},
		{"local_window_size", -2},
		{"local_window_size", 0},
		{"scale", INT64_MIN},
		{"softcap", INT64_MIN},
	};
	struct genai_plan_options o;
	struct genai_view max[7];

	rig_open(&g, NULL);
	rig_need_op(&g, "com.microsoft", "GroupQueryAttention");
	attention_max(max);
	for (uint32_t i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
		graph = attention_graph(odd[i].name, odd[i].value);
		o = rig_options(&g, graph, max);
		CF_CLEAR();
		ck_assert_msg(rig_try_plan(&g, &o, graph, &cf_err) &&
				      strstr(cf_err.text, odd[i].name) &&
				      strstr(cf_err.text, "attention"),
			      "%s = %lld is accepted, or the error does not "
			      "name node and attribute: %s",
			      odd[i].name, (long long)odd[i].value,
			      cf_err.text);
		rig_graph_free(&made, graph);
	}
	graph = NULL;
	rig_close(&g);
}

static void attention(void)
{
	static struct attention a;
	struct genai_view max[7];
	uint64_t seed = 12;

	for (int t = 0; t < T; t++)
		for (int i = 0; i < HEADS * SIZE; i++) {
			a.q[t][i] = frac(&seed);
			a.k[t][i % SIZE] = frac(&seed);
			a.v[t][i % SIZE] = frac(&seed);
		}
	for (int t = 0; t < T; t++)
		for (int h = 0; h < HEADS; h++)
			attend(&a, t, h);
	rig_open(&g, NULL);
	rig_need_op(&g, "com.microsoft", "GroupQueryAttention");
	graph = attention_graph(NULL, 0);
	attention_max(max);
	rig_plan(&g, graph, max, 0);
	g.out_mem[2] = cf_alloc(&g.r, sizeof(a.q));
	for (int split = 1; split <= T; split += 2) { // chunks, then one by one
		for (int t = 0; t < T; t += split)
			attention_step(&a, t, t + split < T ? split : T - t);
		for (int t = 0; t < T; t++) // again from the start
			attention_step(&a, t, 1);
	}
	end();
}

#define E GENAI_IFACE_EXECUTOR
static const struct cf_test tests[] = {
	{"executor/add", "GM-101", E, 0, add},
	{"executor/strides", "GM-127", E, 0, strides},
	{"executor/matmul", "GM-101", E, 0, matmul},
	{"executor/matmul-nbits", "GM-101 GM-102", E, 0, nbits},
	{"executor/matmul-nbits-bias", "GM-101", E, 0, nbits_bias},
	{"executor/gather", "GM-101", E, 0, gather},
	{"executor/norm", "GM-101", E, 0, norm},
	{"executor/attention", "GM-101", E, 0, attention},
	{"executor/attributes", "GM-125", E, 0, attributes},
};
const struct cf_suite cf_suite_ops = {tests, sizeof(tests) / sizeof(tests[0])};
