// corpus_matmul.c - MatMulNBits and MatMul against sums in double.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/corpus.h"

struct nbits {
	uint32_t dtype;
	int64_t m, n, k, block, bits;
	int zp; // 0 none, 1 packed, 2 float
	bool bias;
	// data
	int64_t blocks, zp_row;
	void *a, *b, *s, *z, *v;
};

static void nbits_make(struct nbits *t)
{
	t->blocks = (t->k + t->block - 1) / t->block;
	t->zp_row = (t->blocks * t->bits + 7) / 8;
	t->a = rnd_tensor(t->dtype, (uint64_t)(t->m * t->k), -1, 1);
	t->b = rnd_bytes((uint64_t)(t->n * t->blocks * t->block * t->bits / 8));
	t->s = rnd_tensor(t->dtype, (uint64_t)(t->n * t->blocks), -.05f, .05f);
	t->z = t->zp == 1 ? rnd_bytes((uint64_t)(t->n * t->zp_row))
			  : rnd_tensor(t->dtype, (uint64_t)(t->n * t->blocks),
				       0, (float)((1 << t->bits) - 1));
	t->v = rnd_tensor(t->dtype, (uint64_t)t->n, -1, 1);
}

static void nbits_free(struct nbits *t)
{
	free(t->a);
	free(t->b);
	free(t->s);
	free(t->z);
	free(t->v);
}

static int field(const void *p, uint64_t i, int64_t bits)
{
	const uint8_t *b = p;

	return b[i * (uint64_t)bits / 8] >> (i * (uint64_t)bits % 8) &
	       ((1 << bits) - 1);
}

static double weight(const struct nbits *t, int64_t n, int64_t k)
{
	int64_t blk = k / t->block;
	double zp = 1 << (t->bits - 1);
	const uint8_t *row =
		(const uint8_t *)t->b + n * t->blocks * t->block * t->bits / 8;
	uint64_t at = (uint64_t)(n * t->blocks + blk);

	if (t->zp == 1)
		zp = field((const uint8_t *)t->z + n * t->zp_row, (uint64_t)blk,
			   t->bits);
	else if (t->zp == 2)
		zp = op_load(t->dtype, t->z, at);
	return (field(row, (uint64_t)k, t->bits) - zp) *
	       (double)op_load(t->dtype, t->s, at);
}

// Rounding of the result, of the weights where they are rounded (several rows
// of half precision), and of K additions in fp32; 2^-24 for half's smallest.
static void nbits_want(const struct nbits *t, double *want, double *tol)
{
	double u = unit_of(t->dtype);
	bool rounded = t->m > 1 && t->dtype != GENAI_DT_F32;
	double *w = malloc((size_t)t->k * sizeof(*w));

	for (int64_t n = 0; n < t->n; n++) {
		for (int64_t k = 0; k < t->k; k++)
			w[k] = weight(t, n, k);
		for (int64_t m = 0; m < t->m; m++) {
			double sum = 0, mag = 0;

			for (int64_t k = 0; k < t->k; k++) {
				double x = op_load(t->dtype, t->a,
						   (uint64_t)(m * t->k + k));

				sum += w[k] * x;
				// zero points subtract sums of both parts
				mag += (fabs(w[k]) + (t->zp ? 32 * .05 : 0)) *
				       fabs(x);
			}
			if (t->bias)
				sum += op_load(t->dtype, t->v, (uint64_t)n);
			want[m * t->n + n] = sum;
			tol[m * t->n + n] = 1.01 * u * fabs(sum) + 0x1p-24 +
					    (rounded ? u * mag : 0) +
					    (double)(t->k + 16) * 0x1p-24 * mag;
		}
	}
	free(w);
}

static int32_t nbits_run(struct check *c, const struct nbits *t, void *out,
			 uint64_t cut, int captured, struct genai_error *err)
{
	int64_t ad[3] = {1, t->m, t->k}, od[3] = {1, t->m, t->n};
	int64_t bd[3] = {t->n, t->blocks, t->block * t->bits / 8};
	int64_t sd[2] = {t->n, t->blocks}, vd[1] = {t->n};
	int64_t zd[2] = {t->n, t->zp == 1 ? t->zp_row : t->blocks};
	struct op_how how = {.cut_rows = cut,
			     .captured = captured,
			     .steps = captured ? 3 : 1};
	static struct op_graph g;
	uint32_t in[7], out_v[2];

	op_graph_init(&g);
	in[0] = op_input(&g, t->dtype, 3, ad, t->a);
	in[1] = op_const(&g, GENAI_DT_U8, 3, bd, t->b);
	in[2] = op_const(&g, t->dtype, 2, sd, t->s);
	in[3] = t->zp ? op_const(&g, t->zp == 1 ? GENAI_DT_U8 : t->dtype, 2, zd,
				 t->z)
		      : GENAI_NONE;
	in[4] = GENAI_NONE;
	in[5] = t->bias ? op_const(&g, t->dtype, 1, vd, t->v) : GENAI_NONE;
	in[6] = OP_END;
	op_node(&g, "com.microsoft", "MatMulNBits", in);
	op_attr_int(&g, "K", t->k);
	op_attr_int(&g, "N", t->n);
	op_attr_int(&g, "bits", t->bits);
	op_attr_int(&g, "block_size", t->block);
	out_v[0] = op_output(&g, t->dtype, 3, od, out);
	out_v[1] = OP_END;
	op_node_out(&g, out_v);
	return c->run(c, &g, &how, err);
}

static void nbits_case(struct check *c, struct nbits t, uint64_t cut)
{
	struct genai_error err = GENAI_ERROR_INIT;
	uint64_t count = (uint64_t)(t.m * t.n);
	void *out, *again;
	double *want, *tol;
	int32_t rc;

	if (!check_begin(c,
			 "nbits dtype %u m %lld n %lld k %lld block %lld bits "
			 "%lld zp %d bias %d cut %llu",
			 t.dtype, (long long)t.m, (long long)t.n,
			 (long long)t.k, (long long)t.block, (long long)t.bits,
			 t.zp, t.bias, (unsigned long long)cut))
		return;
	nbits_make(&t);
	out = calloc(count, 4);
	again = calloc(count, 4);
	want = calloc(count, sizeof(*want));
	tol = calloc(count, sizeof(*tol));
	nbits_want(&t, want, tol);
	rc = nbits_run(c, &t, out, 0, 0, &err);
	if (rc)
		check_result(c, false, "%s", err.text);
	else
		check_close(c, t.dtype, out, want, tol, count);
	if (!rc && cut) {
		rc = nbits_run(c, &t, again, cut, 1, &err);
		if (rc)
			check_result(c, false, "cut: %s", err.text);
		else
			check_same(c, out, again,
				   op_bytes(t.dtype, 1, (int64_t *)&count));
	}
	nbits_free(&t);
	free(out);
	free(again);
	free(want);
	free(tol);
}

// Rows do not know how many they are: the first ones of many equal the same
// rows computed as a few.
static void rows_case(struct check *c, struct nbits t, int64_t few)
{
	struct genai_error err = GENAI_ERROR_INIT;
	uint64_t bytes =
		(uint64_t)(few * t.n) * (t.dtype == GENAI_DT_F32 ? 4 : 2);
	void *all, *some;
	int32_t rc;

	if (!c->rows_exact)
		return;
	if (!check_begin(c,
			 "nbits rows dtype %u m %lld and %lld n %lld k %lld "
			 "zp %d",
			 t.dtype, (long long)t.m, (long long)few,
			 (long long)t.n, (long long)t.k, t.zp))
		return;
	nbits_make(&t);
	all = calloc((size_t)(t.m * t.n), 4);
	some = calloc((size_t)(t.m * t.n), 4);
	rc = nbits_run(c, &t, all, 0, 0, &err);
	t.m = few;
	if (!rc)
		rc = nbits_run(c, &t, some, 9, 1, &err);
	if (rc)
		check_result(c, false, "%s", err.text);
	else
		check_same(c, all, some, bytes);
	nbits_free(&t);
	free(all);
	free(some);
}

static uint32_t product(struct op_graph *g, const struct nbits *t, uint32_t a)
{
	int64_t bd[3] = {t->n, t->blocks, t->block * t->bits / 8};
	int64_t sd[2] = {t->n, t->blocks}, vd[1] = {t->n};
	int64_t zd[2] = {t->n, t->zp == 1 ? t->zp_row : t->blocks};
	uint32_t in[7], out;

	in[0] = a;
	in[1] = op_const(g, GENAI_DT_U8, 3, bd, t->b);
	in[2] = op_const(g, t->dtype, 2, sd, t->s);
	in[3] = t->zp ? op_const(g, t->zp == 1 ? GENAI_DT_U8 : t->dtype, 2, zd,
				 t->z)
		      : GENAI_NONE;
	in[4] = GENAI_NONE;
	in[5] = t->bias ? op_const(g, t->dtype, 1, vd, t->v) : GENAI_NONE;
	in[6] = OP_END;
	op_node(g, "com.microsoft", "MatMulNBits", in);
	op_attr_int(g, "K", t->k);
	op_attr_int(g, "N", t->n);
	op_attr_int(g, "bits", t->bits);
	op_attr_int(g, "block_size", t->block);
	out = op_value(g);
	op_node_out(g, (uint32_t[]){out, OP_END});
	return out;
}

// silu(a B0) (a B1) from five nodes; with expose an intermediate value is an
// output too, so that nothing may be put together.
static int32_t swiglu_run(struct check *c, const struct nbits *t,
			  const struct nbits *w, void *out, void *mid,
			  uint64_t cut, int captured, struct genai_error *err)
{
	int64_t ad[3] = {1, t->m, t->k}, od[3] = {1, t->m, t->n};
	struct op_how how = {.cut_rows = cut,
			     .captured = captured,
			     .steps = captured ? 3 : 1};
	static struct op_graph g;
	uint32_t a, x, y, s, m;

	op_graph_init(&g);
	a = op_input(&g, t->dtype, 3, ad, t->a);
	x = product(&g, t, a);
	op_node(&g, "", "Sigmoid", (uint32_t[]){x, OP_END});
	s = mid ? op_output(&g, t->dtype, 3, od, mid) : op_value(&g);
	op_node_out(&g, (uint32_t[]){s, OP_END});
	op_node(&g, "", "Mul", (uint32_t[]){x, s, OP_END});
	m = op_value(&g);
	op_node_out(&g, (uint32_t[]){m, OP_END});
	y = product(&g, w, a);
	op_node(&g, "", "Mul", (uint32_t[]){y, m, OP_END});
	op_node_out(&g,
		    (uint32_t[]){op_output(&g, t->dtype, 3, od, out), OP_END});
	return c->run(c, &g, &how, err);
}

static void swiglu_case(struct check *c, struct nbits t, uint64_t cut)
{
	struct genai_error err = GENAI_ERROR_INIT;
	uint64_t n = (uint64_t)(t.m * t.n);
	double *g, *gt, *u, *ut, unit = unit_of(t.dtype);
	void *out, *again, *mid;
	struct nbits w = t;
	int32_t rc;

	if (!check_begin(c,
			 "swiglu dtype %u m %lld n %lld k %lld bits %lld zp %d "
			 "bias %d cut %llu",
			 t.dtype, (long long)t.m, (long long)t.n,
			 (long long)t.k, (long long)t.bits, t.zp, t.bias,
			 (unsigned long long)cut))
		return;
	nbits_make(&t);
	nbits_make(&w);
	free(w.a);
	w.a = t.a;
	g = calloc(n, sizeof(*g));
	gt = calloc(n, sizeof(*g));
	u = calloc(n, sizeof(*g));
	ut = calloc(n, sizeof(*g));
	out = calloc(n, 4);
	again = calloc(n, 4);
	mid = calloc(n, 4);
	nbits_want(&t, g, gt);
	nbits_want(&w, u, ut);
	for (uint64_t i = 0; i < n; i++) {
		double s = g[i] / (1 + exp(-g[i])), want = s * u[i];

		// the slope of silu is below 1.1; up to five roundings
		ut[i] = 1.2 * gt[i] * (fabs(u[i]) + ut[i]) +
			ut[i] * (fabs(s) + gt[i]) + 5 * unit * fabs(want) +
			0x1p-22;
		g[i] = want;
	}
	rc = swiglu_run(c, &t, &w, out, NULL, 0, 0, &err);
	if (rc)
		check_result(c, false, "%s", err.text);
	else
		check_close(c, t.dtype, out, g, ut, n);
	rc = rc ? rc : swiglu_run(c, &t, &w, again, NULL, cut, 1, &err);
	if (!rc)
		check_same(c, out, again, op_bytes(t.dtype, 1, (int64_t *)&n));
	rc = rc ? rc : swiglu_run(c, &t, &w, again, mid, 0, 0, &err);
	if (!rc)
		check_close(c, t.dtype, again, g, ut, n);
	else
		check_result(c, false, "%s", err.text);
	w.a = NULL;
	nbits_free(&t);
	nbits_free(&w);
	free(g);
	free(gt);
	free(u);
	free(ut);
	free(out);
	free(again);
	free(mid);
}

// Rows of silu(a B0) (a B1) do not know either how many they are.
static void swiglu_rows(struct check *c, struct nbits t, int64_t few)
{
	struct genai_error err = GENAI_ERROR_INIT;
	uint64_t bytes = (uint64_t)(few * t.n) * 2;
	struct nbits w = t;
	void *all, *some;
	int32_t rc;

	if (!c->rows_exact)
		return;
	if (!check_begin(c,
			 "swiglu rows dtype %u m %lld and %lld n %lld k %lld "
			 "block %lld",
			 t.dtype, (long long)t.m, (long long)few,
			 (long long)t.n, (long long)t.k, (long long)t.block))
		return;
	nbits_make(&t);
	nbits_make(&w);
	free(w.a);
	w.a = t.a;
	all = calloc((size_t)(t.m * t.n), 4);
	some = calloc((size_t)(t.m * t.n), 4);
	rc = swiglu_run(c, &t, &w, all, NULL, 0, 0, &err);
	t.m = w.m = few;
	if (!rc)
		rc = swiglu_run(c, &t, &w, some, NULL, 9, 1, &err);
	if (rc)
		check_result(c, false, "%s", err.text);
	else
		check_same(c, all, some, bytes);
	w.a = NULL;
	nbits_free(&t);
	nbits_free(&w);
	free(all);
	free(some);
}

// A product behind a norm: one node, unless somebody else reads the norm.
static int32_t normed_run(struct check *c, const struct nbits *t,
			  const void *skip, const void *gamma, void *out,
			  void *sum, void *mid, uint64_t cut, int captured,
			  struct genai_error *err)
{
	int64_t ad[3] = {1, t->m, t->k}, od[3] = {1, t->m, t->n};
	struct op_how how = {.cut_rows = cut,
			     .captured = captured,
			     .steps = captured ? 3 : 1};
	uint32_t a, x[4], y[5] = {GENAI_NONE, OP_END};
	static struct op_graph g;

	op_graph_init(&g);
	a = op_input(&g, t->dtype, 3, ad, t->a);
	x[0] = a;
	x[1] = skip ? op_input(&g, t->dtype, 3, ad, (void *)skip)
		    : op_const(&g, t->dtype, 1, &t->k, gamma);
	x[2] = skip ? op_const(&g, t->dtype, 1, &t->k, gamma) : OP_END;
	x[3] = OP_END;
	op_node(&g, skip ? "com.microsoft" : "",
		skip ? "SkipSimplifiedLayerNormalization"
		     : "SimplifiedLayerNormalization",
		x);
	op_attr_float(&g, "epsilon", 1e-6);
	y[0] = mid ? op_output(&g, t->dtype, 3, ad, mid) : op_value(&g);
	if (skip) {
		y[1] = y[2] = GENAI_NONE;
		y[3] = op_output(&g, t->dtype, 3, ad, sum);
		y[4] = OP_END;
	}
	op_node_out(&g, y);
	a = product(&g, t, y[0]);
	op_node(&g, "", "Neg", (uint32_t[]){a, OP_END});
	op_node_out(&g,
		    (uint32_t[]){op_output(&g, t->dtype, 3, od, out), OP_END});
	return c->run(c, &g, &how, err);
}

static void normed_case(struct check *c, struct nbits t, bool skip,
			uint64_t cut)
{
	struct genai_error err = GENAI_ERROR_INIT;
	uint64_t size = t.dtype == GENAI_DT_F32 ? 4 : 2, count, in;
	void *out[3], *sum[3], *mid, *s, *gamma;
	int32_t rc = 0;

	if (!check_begin(c,
			 "normed product dtype %u m %lld n %lld k %lld skip %d "
			 "cut %llu",
			 t.dtype, (long long)t.m, (long long)t.n,
			 (long long)t.k, skip, (unsigned long long)cut))
		return;
	nbits_make(&t);
	count = (uint64_t)(t.m * t.n);
	in = (uint64_t)(t.m * t.k);
	s = rnd_tensor(t.dtype, in, -1, 1);
	gamma = rnd_tensor(t.dtype, (uint64_t)t.k, .5f, 2);
	mid = calloc(in, 4);
	for (int i = 0; i < 3; i++) {
		out[i] = calloc(count, 4);
		sum[i] = calloc(in, 4);
		rc = rc ? rc
			: normed_run(c, &t, skip ? s : NULL, gamma, out[i],
				     sum[i], i ? NULL : mid, i == 2 ? cut : 0,
				     i == 2, &err);
	}
	if (rc)
		check_result(c, false, "%s", err.text);
	for (int i = 1; !rc && i < 3; i++) {
		check_same(c, out[0], out[i], count * size);
		check_same(c, sum[0], sum[i], in * size);
	}
	nbits_free(&t);
	free(s);
	free(gamma);
	free(mid);
	for (int i = 0; i < 3; i++) {
		free(out[i]);
		free(sum[i]);
	}
}

static const uint32_t floats[3] = {GENAI_DT_F32, GENAI_DT_F16, GENAI_DT_BF16};

// Every small number of rows; K that ends inside a block.
static void few_rows(struct check *c, uint32_t dtype)
{
	static const int64_t ks[] = {40, 72, 100, 288};

	for (int64_t m = 1; m <= 33; m += m == 20 ? 13 : 1) {
		int64_t bits = m % 3 == 0 ? 2 : m % 3 == 1 ? 4 : 8;
		int zp = (int)(m / 3 % 3);

		nbits_case(c,
			   (struct nbits){.dtype = dtype,
					  .m = m,
					  .n = 17 + m % 5 * 9,
					  .k = ks[m % 4],
					  .block = m % 2 ? 32 : 16,
					  .bits = bits,
					  .zp = bits == 2 && zp == 2 ? 1 : zp,
					  .bias = m % 4 < 2},
			   (uint64_t)(m % 4 * 5));
	}
}

static void nbits_cases(struct check *c)
{
	static const int64_t ms[] = {1, 2, 16, 17, 33};
	static const int64_t shapes[][3] = {
		// n, k, block
		{1, 32, 32},	{16, 256, 32}, {17, 96, 32},  {96, 256, 32},
		{40, 288, 32},	{33, 100, 32}, {24, 64, 64},  {70, 320, 128},
		{20, 48, 16},	{64, 520, 32}, {8, 2080, 32}, {130, 1024, 32},
		{70, 2112, 32}, {33, 1088, 64}};

	for (int d = 0; d < 3; d++)
		for (size_t s = 0; s < sizeof(shapes) / sizeof(shapes[0]); s++)
			for (int zp = 0; zp < 3; zp++) {
				struct nbits t = {
					.dtype = floats[d],
					.m = ms[(s + (size_t)zp) % 5],
					.n = shapes[s][0],
					.k = shapes[s][1],
					.block = shapes[s][2],
					.bits = 4,
					.zp = zp,
					.bias = (s + (size_t)zp) % 3 == 1,
				};

				nbits_case(c, t, 5);
				t.m = 1;
				nbits_case(c, t, 7);
				t.bits = 8;
				nbits_case(c, t, 0);
				if (s % 4 == 0) {
					t.bits = 2;
					t.zp = zp == 2 ? 0 : zp;
					nbits_case(c, t, 0);
					t.m = 3;
					nbits_case(c, t, 0);
				}
			}
	for (int d = 1; d < 3; d++) // a row that takes 74 KiB as digits
		nbits_case(c,
			   (struct nbits){.dtype = floats[d],
					  .m = 1,
					  .n = 24,
					  .k = 18944,
					  .block = 32,
					  .bits = 4},
			   9);
	if (!c->full)
		return;
	for (int d = 1; d < 3; d++) {
		for (int64_t m = 1; m <= 16; m++)
			nbits_case(c,
				   (struct nbits){.dtype = floats[d],
						  .m = m,
						  .n = 1024,
						  .k = 3072,
						  .block = 32,
						  .bits = 4},
				   100);
		nbits_case(c,
			   (struct nbits){.dtype = floats[d],
					  .m = 512,
					  .n = 896,
					  .k = 4864,
					  .block = 32,
					  .bits = 4,
					  .zp = 1,
					  .bias = true},
			   300);
		nbits_case(c,
			   (struct nbits){.dtype = floats[d],
					  .m = 1,
					  .n = 3584,
					  .k = 18944,
					  .block = 32,
					  .bits = 4},
			   1000);
		nbits_case(c,
			   (struct nbits){.dtype = floats[d],
					  .m = 1,
					  .n = 20000,
					  .k = 896,
					  .block = 128,
					  .bits = 4,
					  .zp = 1},
			   3333);
	}
	nbits_case(c,
		   (struct nbits){.dtype = GENAI_DT_F32,
				  .m = 512,
				  .n = 300,
				  .k = 600,
				  .block = 32,
				  .bits = 4,
				  .zp = 1},
		   64);
}

// Steps of many rows: around the borders of tiles of 64 and 128 rows, of 64,
// 128 and 256 columns, and of a pipeline's depth in steps of 64.
void corpus_prompt(struct check *c)
{
	static const int64_t ms[] = {65, 129, 66, 128, 70, 127};
	static const int64_t ns[] = {1, 63, 65, 72, 129, 200, 256, 257};
	static const int64_t ks[] = {64, 128, 320, 192};

	for (int d = 1; d < 3; d++) {
		for (size_t i = 0; i < 8; i++)
			nbits_case(c,
				   (struct nbits){.dtype = floats[d],
						  .m = ms[(i + (size_t)d) % 6],
						  .n = ns[i],
						  .k = ks[(i + i / 4) % 4],
						  .block = 32 << i % 3,
						  .bits = 4,
						  .zp = i / 2 % 2,
						  .bias = i % 4 == 1},
				   i % 3 * 20 + 9);
		for (int i = 0; i < 3; i++)
			rows_case(c,
				  (struct nbits){.dtype = floats[d],
						 .m = 65 + i * 70,
						 .n = 72,
						 .k = 448,
						 .block = 32,
						 .bits = 4,
						 .zp = i % 2},
				  65);
		for (int i = 0; i < 3; i++)
			swiglu_case(c,
				    (struct nbits){.dtype = floats[d],
						   .m = 66 + 63 * i,
						   .n = 60 + 70 * i,
						   .k = 192,
						   .block = 32,
						   .bits = 4,
						   .zp = i % 2,
						   .bias = i == 1},
				    37);
	}
	if (!c->full)
		return;
	for (int d = 1; d < 3; d++) {
		// each tile of the table is the best for some of these
		static const int64_t full[][3] = {{512, 1024, 128},
						  {300, 4096, 128},
						  {512, 3584, 192},
						  {700, 9000, 64}};

		for (size_t i = 0; i < 4; i++)
			nbits_case(c,
				   (struct nbits){.dtype = floats[d],
						  .m = full[i][0],
						  .n = full[i][1],
						  .k = full[i][2],
						  .block = 32,
						  .bits = 4,
						  .zp = i & 1},
				   1000);
		swiglu_case(c,
			    (struct nbits){.dtype = floats[d],
					   .m = 512,
					   .n = 3072,
					   .k = 128,
					   .block = 32,
					   .bits = 4},
			    1000);
	}
}

// MatMul: B stored [K, N]; or [N, K] behind a Transpose.
// stored: the type of B, whose operator is genai's where it is another.
static void matmul_case(struct check *c, uint32_t dtype, uint32_t stored,
			int64_t m, int64_t n, int64_t k, bool transposed,
			int64_t batch)
{
	int64_t ad[3] = {batch, m, k}, bd[2] = {k, n}, od[3] = {batch, m, n};
	int64_t b3[3] = {batch, k, n}, td[2] = {n, k};
	uint64_t count = (uint64_t)(batch * m * n);
	struct genai_error err = GENAI_ERROR_INIT;
	struct op_how how = {0};
	static struct op_graph g;
	uint32_t in[3] = {0, 0, OP_END}, outs[2] = {0, OP_END};
	void *a, *b, *out;
	double *want, *tol, u = unit_of(dtype);
	bool stacks = batch > 1 && !transposed && stored == dtype;

	if (!check_begin(c,
			 "matmul dtype %u by %u batch %lld m %lld n %lld k "
			 "%lld transposed %d",
			 dtype, stored, (long long)batch, (long long)m,
			 (long long)n, (long long)k, transposed))
		return;
	a = rnd_tensor(dtype, (uint64_t)(batch * m * k), -1, 1);
	b = rnd_tensor(stored, (uint64_t)((stacks ? batch : 1) * k * n), -1, 1);
	out = calloc(count, 4);
	want = calloc(count, sizeof(*want));
	tol = calloc(count, sizeof(*tol));
	for (int64_t i = 0; i < batch * m; i++)
		for (int64_t j = 0; j < n; j++) {
			double s = 0, mag = 0;

			for (int64_t e = 0; e < k; e++) {
				int64_t at = transposed ? j * k + e : e * n + j;
				double x, y;

				if (stacks)
					at += i / m * k * n;
				x = op_load(dtype, a, (uint64_t)(i * k + e));
				y = op_load(stored, b, (uint64_t)at);
				s += x * y;
				mag += fabs(x * y);
			}
			want[i * n + j] = s;
			tol[i * n + j] = 1.01 * u * fabs(s) + 0x1p-24 +
					 (double)(k + 16) * 0x1p-24 * mag;
		}
	op_graph_init(&g);
	in[0] = op_input(&g, dtype, 3, ad, a);
	if (transposed) {
		uint32_t tin[2] = {0, OP_END}, tout[2] = {0, OP_END};

		tin[0] = op_const(&g, dtype, 2, td, b);
		op_node(&g, "", "Transpose", tin);
		tout[0] = in[1] = op_value(&g);
		op_node_out(&g, tout);
	} else {
		in[1] = stacks ? op_input(&g, dtype, 3, b3, b)
			       : op_const(&g, stored, 2, bd, b);
	}
	op_node(&g, stored == dtype ? "" : "genai", "MatMul", in);
	outs[0] = op_output(&g, dtype, 3, od, out);
	op_node_out(&g, outs);
	if (c->run(c, &g, &how, &err))
		check_result(c, false, "%s", err.text);
	else
		check_close(c, dtype, out, want, tol, count);
	free(a);
	free(b);
	free(out);
	free(want);
	free(tol);
}

void corpus_matmul(struct check *c)
{
	static const int64_t sizes[][3] = {
		// m, n, k
		{1, 1, 1},   {1, 64, 256},  {1, 65, 300}, {1, 96, 520},
		{2, 33, 40}, {16, 70, 100}, {33, 64, 64}, {70, 130, 72}};

	nbits_cases(c);
	for (int d = 0; d < 3; d++)
		few_rows(c, floats[d]);
	for (int d = 0; d < 3; d++)
		for (int i = 0; i < 6; i++)
			rows_case(c,
				  (struct nbits){.dtype = floats[d],
						 .m = i & 1 ? 40 : 17,
						 .n = 70,
						 .k = i < 3 ? 2112 : 100,
						 .block = 32,
						 .bits = 4,
						 .zp = i % 2},
				  i % 3 * 7 + 2);
	for (int d = 0; d < 3; d++)
		for (int i = 0; i < 8; i++)
			normed_case(c,
				    (struct nbits){.dtype = floats[d],
						   .m = i & 1 ? 1 : 3 + 20 * d,
						   .n = 70,
						   .k = i & 2	? 352
							: i & 4 ? 2112
								: 3072,
						   .block = 32,
						   .bits = 4,
						   .zp = i % 3},
				    i & 4, 31);
	// 1 to 64 rows: the same bits
	for (int d = 1; d < 3; d++)
		for (int i = 0; i < 9; i++)
			rows_case(c,
				  (struct nbits){.dtype = floats[d],
						 .m = i & 1 ? 64 : 12 + i,
						 .n = 70,
						 .k = i < 5 ? 2112 : 4640,
						 .block = 32 << i % 3,
						 .bits = 4,
						 .zp = i / 3},
				  i % 4 * 3 + 1);
	// many rows without zero points, whose scales can be copied: whole
	// units and parts of them, half of a slab of 128 columns at the end
	for (int d = 1; d < 3; d++)
		for (int i = 0; i < 4; i++) {
			static const int64_t ks[] = {2176, 1216, 128, 4736};
			struct nbits t = {.dtype = floats[d],
					  .m = i ? 33 + 7 * i : 64,
					  .n = i & 1 ? 70 : 620,
					  .k = ks[i],
					  .block = i == 1 ? 128 : 32,
					  .bits = 4,
					  .bias = i == 1};

			rows_case(c, t, i + 1);
			t.n = i & 1 ? 45 : 300;
			swiglu_rows(c, t, 4 - i);
		}
	// more units than a small device has blocks
	for (int i = 0; i < 3; i++)
		rows_case(c,
			  (struct nbits){.dtype = floats[1 + i % 2],
					 .m = i ? 64 : 10,
					 .n = i ? 620 : 1100,
					 .k = 1088,
					 .block = 32,
					 .bits = 4,
					 .zp = i / 2},
			  i + 2);
	for (int d = 0; d < 3; d++)
		swiglu_case(c,
			    (struct nbits){.dtype = floats[d],
					   .m = 5 + 20 * d,
					   .n = 70,
					   .k = 1088,
					   .block = 32,
					   .bits = 4,
					   .zp = d % 2},
			    31);
	for (int d = 0; d < 3; d++)
		for (int i = 0; i < 8; i++)
			swiglu_case(c,
				    (struct nbits){.dtype = floats[d],
						   .m = i & 1 ? 18 : 1,
						   .n = 45,
						   .k = i & 2 ? 320 : 64,
						   .block = 32,
						   .bits = i == 7 ? 8 : 4,
						   .zp = i % 3,
						   .bias = i & 4},
				    (uint64_t)(i % 4 * 7 + 5));
	for (int d = 0; d < 3; d++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++)
			for (int t = 0; t < 2; t++) {
				const int64_t *z = sizes[s];

				matmul_case(c, floats[d], floats[d], z[0], z[1],
					    z[2], t, 1);
				if (s % 3 == 1)
					matmul_case(c, floats[d], floats[d],
						    z[0], z[1], z[2], t, 3);
			}
	for (int d = 1; d < 3; d++)
		for (size_t s = 0; s < sizeof(sizes) / sizeof(sizes[0]); s++) {
			const int64_t *z = sizes[s];

			matmul_case(c, GENAI_DT_F32, floats[d], z[0], z[1],
				    z[2], false, 1 + s % 2);
		}
	if (!c->full)
		return;
	for (int i = 0; i < 6; i++)
		rows_case(c,
			  (struct nbits){.dtype = floats[1 + i % 2],
					 .m = 8 << i / 2 * 3 / 2,
					 .n = 18944,
					 .k = i % 2 ? 3584 : 4640,
					 .block = 32,
					 .bits = 4,
					 .zp = i % 3},
			  i + 2);
	for (int d = 1; d < 3; d++)
		matmul_case(c, GENAI_DT_F32, floats[d], 1, 3000, 2048, false,
			    1);
	for (int d = 1; d < 3; d++)
		swiglu_case(c,
			    (struct nbits){.dtype = floats[d],
					   .m = 1,
					   .n = 9472,
					   .k = 3584,
					   .block = 32,
					   .bits = 4},
			    1000);
	for (int d = 0; d < 3; d++)
		for (int t = 0; t < 2; t++) {
			matmul_case(c, floats[d], floats[d], 1, 3000, 2048, t,
				    1);
			matmul_case(c, floats[d], floats[d], 512, 320, 576, t,
				    1);
		}
}
