// corpus_general.c - every other operator, against its definition in double.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/one.h"

static const uint32_t floats[3] = {GENAI_DT_F32, GENAI_DT_F16, GENAI_DT_BF16};

// ---- elementwise ----

static double f_id(double a, double b)
{
	(void)b;
	return a;
}
static double f_add(double a, double b)
{
	return a + b;
}
static double f_sub(double a, double b)
{
	return a - b;
}
static double f_mul(double a, double b)
{
	return a * b;
}
static double f_div(double a, double b)
{
	return a / b;
}
static double f_sigmoid(double a, double b)
{
	(void)b;
	return 1 / (1 + exp(-a));
}
static double f_tanh(double a, double b)
{
	(void)b;
	return tanh(a);
}
static double f_relu(double a, double b)
{
	(void)b;
	return a > 0 ? a : 0;
}
static double f_gelu(double a, double b)
{
	(void)b;
	return .5 * a * (1 + erf(a * sqrt(.5)));
}
static double f_gelu_tanh(double a, double b)
{
	(void)b;
	return .5 * a * (1 + tanh(sqrt(2 / M_PI) * (a + .044715 * a * a * a)));
}
static double f_quick(double a, double b)
{
	(void)b;
	return a / (1 + exp(-1.702 * a));
}
static double f_exp(double a, double b)
{
	(void)b;
	return exp(a);
}
static double f_sqrt(double a, double b)
{
	(void)b;
	return sqrt(a);
}
static double f_pow(double a, double b)
{
	return pow(a, b);
}

static const struct elem {
	const char *domain, *op;
	int n;
	double (*f)(double a, double b);
	float lo, hi;
	double cond; // growth of the inputs' fp32 error, in units of 2^-24
} elems[] = {
	{"", "Identity", 1, f_id, -3, 3, 0},
	{"", "Add", 2, f_add, -3, 3, 0},
	{"", "Sub", 2, f_sub, -3, 3, 0},
	{"", "Mul", 2, f_mul, -3, 3, 0},
	{"", "Div", 2, f_div, .5f, 3, 4},
	{"", "Sigmoid", 1, f_sigmoid, -8, 8, 8},
	{"", "Tanh", 1, f_tanh, -3, 3, 8},
	{"", "Relu", 1, f_relu, -3, 3, 0},
	{"", "Exp", 1, f_exp, -3, 3, 8},
	{"", "Sqrt", 1, f_sqrt, .1f, 9, 4},
	{"", "Pow", 2, f_pow, .5f, 2, 32},
	{"", "Gelu", 1, f_gelu, -4, 4, 16},
	{"com.microsoft", "Gelu", 1, f_gelu, -4, 4, 16},
	{"com.microsoft", "FastGelu", 1, f_gelu_tanh, -4, 4, 32},
	{"com.microsoft", "QuickGelu", 1, f_quick, -4, 4, 16},
};

static void elementwise(struct check *c, const struct elem *e, uint32_t dt,
			const int64_t *ad, const int64_t *bd)
{
	int64_t od[3], n = 1, na = ad[0] * ad[1] * ad[2];
	int64_t nb = bd[0] * bd[1] * bd[2];
	void *a = rnd_tensor(dt, (uint64_t)na, e->lo, e->hi);
	void *b = rnd_tensor(dt, (uint64_t)nb, e->lo, e->hi), *out;
	double *want, *tol;

	for (int d = 0; d < 3; d++) {
		od[d] = ad[d] > bd[d] || e->n == 1 ? ad[d] : bd[d];
		n *= od[d];
	}
	if (check_begin(c, "elementwise %s dtype %u %lldx%lldx%lld", e->op, dt,
			(long long)od[0], (long long)od[1], (long long)od[2])) {
		out = calloc((size_t)n, 4);
		want = calloc((size_t)n, sizeof(*want));
		tol = calloc((size_t)n, sizeof(*tol));
		for (int64_t i = 0; i < n; i++) {
			int64_t x[3] = {i / od[2] / od[1], i / od[2] % od[1],
					i % od[2]};
			int64_t p = 0, q = 0;

			for (int d = 0; d < 3; d++) {
				p = p * ad[d] + (ad[d] == 1 ? 0 : x[d]);
				q = q * bd[d] + (bd[d] == 1 ? 0 : x[d]);
			}
			want[i] = e->f(op_load(dt, a, (uint64_t)p),
				       op_load(dt, b, (uint64_t)q));
			tol[i] = 1.01 * unit_of(dt) * fabs(want[i]) + 0x1p-24 +
				 e->cond * 0x1p-24 * (fabs(want[i]) + 1);
		}
		one_begin();
		one_in(op_input(&one.g, dt, 3, ad, a));
		if (e->n == 2)
			one_in(op_input(&one.g, dt, 3, bd, b));
		one_node(e->domain, e->op);
		one_run(c, dt, 3, od, out);
		one_check(c, dt, out, want, tol, (uint64_t)n);
		free(out);
		free(want);
		free(tol);
	}
	free(a);
	free(b);
}

void corpus_elementwise(struct check *c)
{
	static const int64_t shapes[][2][3] = {
		{{1, 1, 1}, {1, 1, 1}},	  {{2, 3, 5}, {2, 3, 5}},
		{{2, 3, 5}, {1, 1, 5}},	  {{2, 1, 7}, {1, 4, 1}},
		{{1, 33, 65}, {1, 1, 1}}, {{3, 300, 7}, {3, 300, 1}}};

	for (size_t i = 0; i < sizeof(elems) / sizeof(elems[0]); i++)
		for (int d = 0; d < 3; d++)
			for (size_t s = 0; s < 6; s++)
				elementwise(c, &elems[i], floats[d],
					    shapes[s][0], shapes[s][1]);
}

// ---- norms ----

static void norm_case(struct check *c, uint32_t dt, int64_t rows, int64_t dim,
		      bool skip, bool layer, bool bias, double eps)
{
	uint64_t n = (uint64_t)(rows * dim), w = (uint64_t)dim;
	int64_t xd[3] = {1, rows, dim}, gd[1] = {dim};
	void *x = rnd_tensor(dt, n, -3, 3), *s = rnd_tensor(dt, n, -3, 3);
	void *g = rnd_tensor(dt, w, .5f, 1.5f), *be = rnd_tensor(dt, w, -1, 1);
	void *bi = rnd_tensor(dt, w, -1, 1), *out = calloc(n, 4);
	void *sum = calloc(n, 4);
	double *want = calloc(n, sizeof(*want)), *tol = calloc(n, sizeof(*tol));
	double *swant = calloc(n, sizeof(*want)), u = unit_of(dt);
	double *stol = calloc(n, sizeof(*tol));
	uint32_t outs[5] = {0, GENAI_NONE, GENAI_NONE, 0, OP_END};
	struct op_how how = {0};

	if (!check_begin(c, "norm dtype %u rows %lld dim %lld%s%s%s eps %g", dt,
			 (long long)rows, (long long)dim, skip ? " skip" : "",
			 layer ? " layer" : "", bias ? " bias" : "", eps))
		goto out;
	for (int64_t r = 0; r < rows; r++) {
		double mean = 0, ss = 0, *y = want + r * dim;

		for (int64_t d = 0; d < dim; d++) {
			uint64_t i = (uint64_t)(r * dim + d);
			double v = op_load(dt, x, i), t = 0;

			if (skip)
				v += op_load(dt, s, i);
			if (bias)
				v += op_load(dt, bi, (uint64_t)d);
			swant[i] = v;
			stol[i] = 1.01 * u * fabs(v) + 0x1p-22;
			// the sum is rounded before it is normalised
			op_store(dt, &t, 0, (float)v);
			y[d] = op_load(dt, &t, 0);
			mean += y[d];
		}
		mean = layer ? mean / (double)dim : 0;
		for (int64_t d = 0; d < dim; d++)
			ss += (y[d] - mean) * (y[d] - mean);
		ss = 1 / sqrt(ss / (double)dim + eps);
		for (int64_t d = 0; d < dim; d++) {
			uint64_t i = (uint64_t)(r * dim + d);
			double v = (y[d] - mean) * ss *
				   op_load(dt, g, (uint64_t)d);

			// the rounding of the sum may go the other way
			tol[i] = (skip || bias ? 2 * u * 9 * ss * 1.5 : 0) +
				 (double)(dim + 64) * 0x1p-24 *
					 (fabs(v) + 3 * ss);
			if (layer)
				v += op_load(dt, be, (uint64_t)d);
			want[i] = v;
			tol[i] += 1.01 * u * fabs(v) + 0x1p-24;
		}
	}
	one_begin();
	one_in(op_input(&one.g, dt, 3, xd, x));
	if (skip)
		one_in(op_input(&one.g, dt, 3, xd, s));
	one_in(op_const(&one.g, dt, 1, gd, g));
	if (layer)
		one_in(op_const(&one.g, dt, 1, gd, be));
	if (bias)
		one_in(op_const(&one.g, dt, 1, gd, bi));
	one_node(skip ? "com.microsoft" : "",
		 skip ? (layer ? "SkipLayerNormalization"
			       : "SkipSimplifiedLayerNormalization")
		      : (layer ? "LayerNormalization"
			       : "SimplifiedLayerNormalization"));
	op_attr_float(&one.g, "epsilon", eps);
	outs[0] = op_output(&one.g, dt, 3, xd, out);
	if (skip)
		outs[3] = op_output(&one.g, dt, 3, xd, sum);
	else
		outs[1] = OP_END;
	op_node_out(&one.g, outs);
	one.rc = c->run(c, &one.g, &how, &one.err);
	one_check(c, dt, out, want, tol, n);
	if (skip)
		one_check(c, dt, sum, swant, stol, n);
out:
	free(x);
	free(s);
	free(g);
	free(be);
	free(bi);
	free(out);
	free(sum);
	free(want);
	free(tol);
	free(swant);
	free(stol);
}

void corpus_norms(struct check *c)
{
	static const int64_t dims[] = {1,   3,	 7,   32,  33,
				       101, 128, 300, 576, 1025};
	static const double eps[] = {1e-5, 1e-2, 1e-6};

	for (int d = 0; d < 3; d++)
		for (size_t i = 0; i < 10; i++) {
			double e = eps[i % 3];

			norm_case(c, floats[d], 3, dims[i], false, false, false,
				  e);
			norm_case(c, floats[d], 2, dims[i], true, false, i % 2,
				  e);
			norm_case(c, floats[d], 2, dims[i], false, true, false,
				  e);
			norm_case(c, floats[d], 3, dims[i], true, true, i % 2,
				  e);
		}
	if (c->full)
		for (int d = 0; d < 3; d++)
			norm_case(c, floats[d], 512, 5120, true, false, false,
				  1e-5);
}

// ---- rows ----

static void argmax_case(struct check *c, uint32_t dt, int64_t n)
{
	int64_t xd[3] = {1, 2, n}, od[3] = {1, 2, 1}, got[2] = {-1, -1};
	void *x = rnd_tensor(dt, (uint64_t)(2 * n), -3, 3);
	int64_t want[2] = {n / 3, n - 1};

	if (check_begin(c, "argmax dtype %u of %lld", dt, (long long)n)) {
		// equal largest ones: the first counts
		op_store(dt, x, (uint64_t)want[0], 5);
		op_store(dt, x, (uint64_t)(n - 1), 5);
		op_store(dt, x, (uint64_t)(n + want[1]), 7);
		one_begin();
		one_in(op_input(&one.g, dt, 3, xd, x));
		one_node("", "ArgMax");
		op_attr_int(&one.g, "axis", -1);
		one_run(c, GENAI_DT_I64, 3, od, got);
		check_result(
			c, !one.rc && got[0] == want[0] && got[1] == want[1],
			"%lld %lld, should be %lld %lld %s", (long long)got[0],
			(long long)got[1], (long long)want[0],
			(long long)want[1], one.err.text);
	}
	free(x);
}

// What the roundings of Softmax's function body may lead to, relative: x - max,
// the exponential and the sum have the narrow type; the sum of a short line of
// bfloat16 may have it after each addition.
static double body_rounds(uint32_t dt, double below_max, int64_t n)
{
	const double adds = dt == GENAI_DT_BF16 && n <= 16 ? (double)n : 0;

	return dt == GENAI_DT_F32 ? 0
				  : 1.01 * unit_of(dt) * (below_max + 2 + adds);
}

static void softmax_case(struct check *c, uint32_t dt, int64_t n, bool sum)
{
	int64_t xd[2] = {3, n}, od[2] = {3, sum ? 1 : n}, axes[1] = {-1};
	int64_t ad[1] = {1};
	void *x = rnd_tensor(dt, (uint64_t)(3 * n), -4, 4);
	void *out = calloc((size_t)(3 * n), 4);
	double *want = calloc((size_t)(3 * n), sizeof(*want));
	double *tol = calloc((size_t)(3 * n), sizeof(*tol));

	if (check_begin(c, "%s dtype %u of %lld", sum ? "reducesum" : "softmax",
			dt, (long long)n)) {
		for (int64_t r = 0; r < 3; r++) {
			double total = 0, mag = 0, max = -INFINITY;

			for (int64_t i = 0; i < n; i++) {
				double v =
					op_load(dt, x, (uint64_t)(r * n + i));

				max = v > max ? v : max;
				total += sum ? v : exp(v);
				mag += fabs(v);
			}
			for (int64_t i = 0; i < n; i++) {
				double of =
					op_load(dt, x, (uint64_t)(r * n + i));
				double v = exp(of) / total;
				int64_t at = sum ? r : r * n + i;

				want[at] = sum ? total : v;
				tol[at] = 1.01 * unit_of(dt) * fabs(want[at]) +
					  0x1p-24 +
					  (double)(n + 64) * 0x1p-24 *
						  (sum ? mag : v);
				if (!sum)
					tol[at] += v *
						   body_rounds(dt, max - of, n);
			}
		}
		one_begin();
		one_in(op_input(&one.g, dt, 2, xd, x));
		if (sum)
			one_in(op_const(&one.g, GENAI_DT_I64, 1, ad, axes));
		one_node("", sum ? "ReduceSum" : "Softmax");
		one_run(c, dt, 2, od, out);
		one_check(c, dt, out, want, tol, (uint64_t)(sum ? 3 : 3 * n));
	}
	free(x);
	free(out);
	free(want);
	free(tol);
}

// Slice, Split, Concat, Transpose, Expand as one chain with a known end.
static void moves_case(struct check *c, uint32_t dt)
{
	int64_t xd[3] = {2, 6, 10}, od[3] = {2, 5, 9}, perm[3] = {0, 2, 1};
	int64_t v1[1] = {1}, s0[1] = {1}, e0[1] = {6}, a0[1] = {1};
	void *x = rnd_tensor(dt, 120, -3, 3), *out = calloc(90, 4);
	uint32_t v[8], in[6], outs[3];
	struct op_how how = {0};
	double want[90], tol[90];
	int64_t sizes[2] = {4, 6}, two[1] = {2}, st[1] = {9}, en[1] = {0};
	int64_t ax[1] = {2}, stp[1] = {-1};

	if (check_begin(c, "moves dtype %u", dt)) {
		// rows 1..5; columns split 4|6, swapped, then 9..1 backwards
		for (int64_t b = 0; b < 2; b++)
			for (int64_t r = 0; r < 5; r++)
				for (int64_t k = 0; k < 9; k++) {
					int64_t col = 9 - k;
					int64_t src =
						col < 6 ? col + 4 : col - 6;
					int64_t i = (b * 5 + r) * 9 + k;

					want[i] =
						op_load(dt, x,
							(uint64_t)((b * 6 + r +
								    1) * 10 +
								   src));
					tol[i] = 1e-30;
				}
		one_begin();
		v[0] = op_input(&one.g, dt, 3, xd, x);
		memcpy(in,
		       (uint32_t[]){v[0],
				    op_const(&one.g, GENAI_DT_I64, 1, v1, s0),
				    op_const(&one.g, GENAI_DT_I64, 1, v1, e0),
				    op_const(&one.g, GENAI_DT_I64, 1, v1, a0),
				    OP_END},
		       5 * sizeof(uint32_t));
		op_node(&one.g, "", "Slice", in);
		v[1] = op_value(&one.g);
		op_node_out(&one.g, (uint32_t[]){v[1], OP_END});
		memcpy(in,
		       (uint32_t[]){
			       v[1],
			       op_const(&one.g, GENAI_DT_I64, 1, two, sizes),
			       OP_END},
		       3 * sizeof(uint32_t));
		op_node(&one.g, "", "Split", in);
		op_attr_int(&one.g, "axis", 2);
		v[2] = op_value(&one.g);
		v[3] = op_value(&one.g);
		memcpy(outs, (uint32_t[]){v[2], v[3], OP_END}, sizeof(outs));
		op_node_out(&one.g, outs);
		op_node(&one.g, "", "Concat", (uint32_t[]){v[3], v[2], OP_END});
		op_attr_int(&one.g, "axis", -1);
		v[4] = op_value(&one.g);
		op_node_out(&one.g, (uint32_t[]){v[4], OP_END});
		op_node(&one.g, "", "Transpose", (uint32_t[]){v[4], OP_END});
		op_attr_ints(&one.g, "perm", perm, 3);
		v[5] = op_value(&one.g);
		op_node_out(&one.g, (uint32_t[]){v[5], OP_END});
		op_node(&one.g, "", "Transpose", (uint32_t[]){v[5], OP_END});
		op_attr_ints(&one.g, "perm", perm, 3);
		v[6] = op_value(&one.g);
		op_node_out(&one.g, (uint32_t[]){v[6], OP_END});
		memcpy(in,
		       (uint32_t[]){v[6],
				    op_const(&one.g, GENAI_DT_I64, 1, v1, st),
				    op_const(&one.g, GENAI_DT_I64, 1, v1, en),
				    op_const(&one.g, GENAI_DT_I64, 1, v1, ax),
				    op_const(&one.g, GENAI_DT_I64, 1, v1, stp),
				    OP_END},
		       6 * sizeof(uint32_t));
		op_node(&one.g, "", "Slice", in);
		op_node_out(&one.g,
			    (uint32_t[]){op_output(&one.g, dt, 3, od, out),
					 OP_END});
		one.rc = c->run(c, &one.g, &how, &one.err);
		one_check(c, dt, out, want, tol, 90);
	}
	free(x);
	free(out);
}

static void cast_case(struct check *c, uint32_t from, uint32_t to)
{
	int64_t d[1] = {9};
	float vals[9] = {0, 1, -1, 2.5f, -2.5f, 100, 3.75f, -0.25f, 7};
	uint64_t x[9] = {0}, out[9] = {0};
	double want[9], tol[9];

	if (!check_begin(c, "cast %u to %u", from, to))
		return;
	for (uint64_t i = 0; i < 9; i++) {
		op_store(from, x, i,
			 from == GENAI_DT_BOOL ? vals[i] != 0 : vals[i]);
		want[i] = op_load(from, x, i);
		if (to == GENAI_DT_I64 || to == GENAI_DT_I32)
			want[i] = trunc(want[i]);
		if (to == GENAI_DT_BOOL)
			want[i] = want[i] != 0;
		tol[i] = unit_of(to) * fabs(want[i]) * 1.01 + 1e-30;
	}
	one_begin();
	one_in(op_input(&one.g, from, 1, d, x));
	one_node("", "Cast");
	op_attr_int(&one.g, "to", to);
	one_run(c, to, 1, d, out);
	one_check(c, to, out, want, tol, 9);
}

void corpus_rows(struct check *c)
{
	static const uint32_t types[] = {GENAI_DT_F32,	GENAI_DT_F16,
					 GENAI_DT_BF16, GENAI_DT_I32,
					 GENAI_DT_I64,	GENAI_DT_BOOL};

	static const int64_t lines[] = {1, 5, 16, 17, 31, 33, 256, 700, 1025};

	for (int d = 0; d < 3; d++) {
		argmax_case(c, floats[d], 3);
		argmax_case(c, floats[d], 1500);
		if (c->full)
			argmax_case(c, floats[d], 151936);
		for (size_t k = 0; k < sizeof(lines) / sizeof(*lines); k++) {
			softmax_case(c, floats[d], lines[k], false);
			softmax_case(c, floats[d], lines[k], true);
		}
		moves_case(c, floats[d]);
	}
	for (int a = 0; a < 6; a++)
		for (int b = 0; b < 6; b++)
			cast_case(c, types[a], types[b]);
}
