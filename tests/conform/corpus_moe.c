// corpus_moe.c - MoE and QMoE against sums in double.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/one.h"

#define MOE_MAX 3520 // hidden size, outputs of a product

struct moe_case {
	uint32_t dtype;
	int64_t m, d, i, e, k;
	const char *act;
	int fusion; // 0: no gate, 1, 2: as swiglu_fusion, 3: gate apart
	int64_t bits, block; // bits 0: floats; block 0: one scale for a row
	int zp;		     // 0 none, 1 packed, 2 floats
	bool bias, normalize, own, late;
	double alpha, beta, limit;
};

// A product of every expert: n outputs of k inputs.
struct moe_part {
	int64_t n, k, blocks, z_row;
	void *w, *s, *z, *b;
};

struct moe_made {
	struct moe_case c;
	struct moe_part p[3]; // fc1, fc2, fc3
	void *x, *logits, *weights, *y, *again;
	double *want, *tol;
};

// ---- data ----

static void part_make(const struct moe_case *c, struct moe_part *p, int64_t n,
		      int64_t k)
{
	const uint64_t rows = (uint64_t)(c->e * n);
	float most = 1.5f / (float)(1 << (c->bits ? c->bits - 1 : 0));

	p->n = n;
	p->k = k;
	p->blocks = c->block ? k / c->block : 1;
	p->z_row = (p->blocks * c->bits + 7) / 8;
	p->w = c->bits ? rnd_bytes(rows * (uint64_t)(k * c->bits / 8))
		       : rnd_tensor(c->dtype, rows * (uint64_t)k, -1, 1);
	p->s = rnd_tensor(c->dtype, rows * (uint64_t)p->blocks, -most, most);
	p->z = c->zp == 1 ? rnd_bytes(rows * (uint64_t)p->z_row)
			  : rnd_tensor(c->dtype, rows * (uint64_t)p->blocks, 0,
				       (float)((1 << c->bits) - 1));
	p->b = rnd_tensor(c->dtype, rows, -1, 1);
}

// Logits of a row are e different numbers, so that all agree which are the
// largest.
static void *make_logits(const struct moe_case *c)
{
	const uint64_t n = (uint64_t)(c->m * c->e);
	void *x = rnd_tensor(c->dtype, n, 0, 1);

	for (int64_t m = 0; m < c->m; m++) {
		const int64_t off = rnd_u32() % 64;

		for (int64_t e = 0; e < c->e; e++) {
			// 5 and a prime above every e have no common factor
			const int64_t rank = (e * 5 + off) % 67;

			op_store(c->dtype, x, (uint64_t)(m * c->e + e),
				 (float)(rank - 33) / 16);
		}
	}
	return x;
}

static void made_open(struct moe_made *t)
{
	const struct moe_case *c = &t->c;
	const uint64_t n = (uint64_t)(c->m * c->d);
	const bool fused = c->fusion == 1 || c->fusion == 2;

	part_make(c, &t->p[0], c->i * (fused + 1), c->d);
	part_make(c, &t->p[1], c->d, c->i);
	part_make(c, &t->p[2], c->i, c->d);
	t->x = rnd_tensor(c->dtype, n, -1, 1);
	t->logits = make_logits(c);
	t->weights = rnd_tensor(c->dtype, (uint64_t)(c->m * c->e), 0.125f, 1);
	t->y = calloc(n, 4);
	t->again = calloc(n, 4);
	t->want = calloc(n, sizeof(*t->want));
	t->tol = calloc(n, sizeof(*t->tol));
}

static void made_close(struct moe_made *t)
{
	for (int i = 0; i < 3; i++) {
		free(t->p[i].w);
		free(t->p[i].s);
		free(t->p[i].z);
		free(t->p[i].b);
	}
	free(t->x);
	free(t->logits);
	free(t->weights);
	free(t->y);
	free(t->again);
	free(t->want);
	free(t->tol);
}

// ---- the definition ----

static int code(const void *p, int64_t i, int64_t bits)
{
	const uint8_t *b = p;

	return b[i * bits / 8] >> (i * bits % 8) & ((1 << bits) - 1);
}

static double part_weight(const struct moe_case *c, const struct moe_part *p,
			  int64_t e, int64_t n, int64_t k)
{
	const int64_t row = e * p->n + n, b = c->block ? k / c->block : 0;
	const int64_t line = (p->n * c->bits + 7) / 8;
	double zero = c->bits ? 1 << (c->bits - 1) : 0;

	if (!c->bits)
		return op_load(c->dtype, p->w, (uint64_t)(row * p->k + k));
	if (c->zp == 2)
		zero = op_load(c->dtype, p->z, (uint64_t)(row * p->blocks + b));
	else if (c->zp && c->block)
		zero = code((const uint8_t *)p->z + row * p->z_row, b, c->bits);
	else if (c->zp) // along the rows
		zero = code((const uint8_t *)p->z + e * line, n, c->bits);
	return (code((const uint8_t *)p->w + row * (p->k * c->bits / 8), k,
		     c->bits) -
		zero) *
	       op_load(c->dtype, p->s, (uint64_t)(row * p->blocks + b));
}

// y = W x + b of expert e, and how far rounding leads: sums of fp32, operands
// and results kept in the type of the inputs.
static void part_mul(const struct moe_case *c, const struct moe_part *p,
		     int64_t e, const double *x, const double *ex, double *y,
		     double *ey)
{
	const double u = unit_of(c->dtype), f = 0x1p-24;

	for (int64_t n = 0; n < p->n; n++) {
		double sum = 0, mag = 0, err = 0;

		for (int64_t k = 0; k < p->k; k++) {
			const double w = part_weight(c, p, e, n, k);

			sum += w * x[k];
			mag += (fabs(w) + (c->zp ? 48 : 0)) * fabs(x[k]);
			err += fabs(w) * (ex[k] + u * fabs(x[k]));
		}
		if (c->bias)
			sum += op_load(c->dtype, p->b,
				       (uint64_t)(e * p->n + n));
		y[n] = sum;
		ey[n] = err + (u + 2 * f) * fabs(sum) +
			(double)(p->k + 16) * f * mag;
	}
}

static double gate(const struct moe_case *c, double x)
{
	const double t = 0.7978845608028654 * (x + 0.044715 * x * x * x);
	double v;

	if (!strcmp(c->act, "relu") || !strcmp(c->act, "relu2")) {
		x = x < 0 ? 0 : x;
		return c->act[4] ? x * x : x;
	}
	if (!strcmp(c->act, "gelu") || !strcmp(c->act, "geglu"))
		return 0.5 * x * (1 + tanh(t));
	if (!strcmp(c->act, "silu"))
		return x / (1 + exp(-x));
	if (!strcmp(c->act, "identity"))
		return x;
	x = !c->late && x > c->limit ? c->limit : x;
	v = x / (1 + exp(-c->alpha * x));
	return c->late && v > c->limit ? c->limit : v;
}

// i values from those of fc1 and fc3.  No gate is steeper than 1.2, but for
// relu2.
static void activate(const struct moe_case *c, const double *h,
		     const double *eh, const double *up, const double *eup,
		     double *a, double *ea)
{
	const double u = unit_of(c->dtype) + 0x1p-20;

	for (int64_t i = 0; i < c->i; i++) {
		const int64_t at = c->fusion == 1 ? 2 * i : i;
		const double g = gate(c, h[at]);
		double steep = 1.2, l = 1, el = 0;

		if (c->fusion == 1)
			l = h[at + 1], el = eh[at + 1];
		else if (c->fusion == 2)
			l = h[c->i + i], el = eh[c->i + i];
		else if (c->fusion == 3)
			l = up[i], el = eup[i];
		if (!strcmp(c->act, "swiglu"))
			l = fmin(fmax(l, -c->limit), c->limit) + c->beta;
		if (!strcmp(c->act, "relu2"))
			steep = 2 * fabs(h[at]) + eh[at];
		a[i] = g * l;
		ea[i] = steep * eh[at] * fabs(l) + fabs(g) * el +
			el * steep * eh[at] + 3 * u * (fabs(a[i]) + fabs(g));
	}
}

// What expert e counts for in row m; 0 if it is not among the k largest.
static double share(const struct moe_made *t, int64_t m, int64_t e)
{
	const struct moe_case *c = &t->c;
	const uint64_t row = (uint64_t)(m * c->e);
	double all = 0, chosen = 0, own = 0, mine = 0;

	for (int64_t j = 0; j < c->e; j++) {
		const double x =
			op_load(c->dtype, t->logits, row + (uint64_t)j);
		double w = exp(x);
		int64_t above = 0;

		for (int64_t i = 0; i < c->e; i++)
			above += op_load(c->dtype, t->logits,
					 row + (uint64_t)i) > x;
		all += w;
		if (above >= c->k)
			continue;
		if (c->own)
			w = op_load(c->dtype, t->weights, row + (uint64_t)j);
		own = j == e ? w : own;
		mine += j == e;
		chosen += w;
	}
	if (mine == 0)
		return 0;
	return own / (c->normalize ? chosen : c->own ? 1 : all);
}

static void moe_want(struct moe_made *t)
{
	const struct moe_case *c = &t->c;
	const double u = unit_of(c->dtype);
	double x[MOE_MAX], h[MOE_MAX], up[MOE_MAX], a[MOE_MAX], y[MOE_MAX];
	double ex[MOE_MAX] = {0}, eh[MOE_MAX], eup[MOE_MAX], ea[MOE_MAX];
	double ey[MOE_MAX];

	for (int64_t m = 0; m < c->m; m++) {
		double *want = t->want + m * c->d, *tol = t->tol + m * c->d;

		for (int64_t k = 0; k < c->d; k++)
			x[k] = op_load(c->dtype, t->x,
				       (uint64_t)(m * c->d + k));
		for (int64_t e = 0; e < c->e; e++) {
			const double w = share(t, m, e);

			if (w == 0)
				continue;
			part_mul(c, &t->p[0], e, x, ex, h, eh);
			part_mul(c, &t->p[2], e, x, ex, up, eup);
			activate(c, h, eh, up, eup, a, ea);
			part_mul(c, &t->p[1], e, a, ea, y, ey);
			for (int64_t k = 0; k < c->d; k++) {
				want[k] += w * y[k];
				tol[k] += w * ey[k] +
					  w * fabs(y[k]) * (3 * u + 0x1p-19);
			}
		}
		for (int64_t k = 0; k < c->d; k++)
			tol[k] += 1.01 * u * fabs(want[k]) + 0x1p-22;
	}
}

// ---- running ----

static void in_part(const struct moe_case *c, const struct moe_part *p,
		    bool there)
{
	const int64_t cols = c->bits ? p->k * c->bits / 8 : p->k;
	const int64_t w[3] = {c->e, p->n, cols};
	const int64_t s[3] = {c->e, p->n, p->blocks}, b[2] = {c->e, p->n};

	one_in(there ? op_const(&one.g, c->bits ? GENAI_DT_U8 : c->dtype, 3, w,
				p->w)
		     : GENAI_NONE);
	if (c->bits)
		one_in(there ? op_const(&one.g, c->dtype, c->block ? 3 : 2, s,
					p->s)
			     : GENAI_NONE);
	one_in(there && c->bias ? op_const(&one.g, c->dtype, 2, b, p->b)
				: GENAI_NONE);
}

static void in_zeros(const struct moe_case *c, const struct moe_part *p,
		     bool there)
{
	int64_t z[3] = {c->e, p->n, p->blocks};

	if (c->zp == 1 && c->block)
		z[2] = p->z_row;
	else if (c->zp == 1)
		z[1] = (p->n * c->bits + 7) / 8;
	one_in(there && c->zp
		       ? op_const(&one.g, c->zp == 1 ? GENAI_DT_U8 : c->dtype,
				  c->block ? 3 : 2, z, p->z)
		       : GENAI_NONE);
}

static void attributes(const struct moe_case *c)
{
	op_attr_string(&one.g, "activation_type", c->act);
	op_attr_int(&one.g, "k", c->k);
	op_attr_int(&one.g, "normalize_routing_weights", c->normalize);
	if (c->fusion == 1 || c->fusion == 2)
		op_attr_int(&one.g, "swiglu_fusion", c->fusion);
	if (!strcmp(c->act, "swiglu")) {
		op_attr_float(&one.g, "activation_alpha", c->alpha);
		op_attr_float(&one.g, "activation_beta", c->beta);
		if (c->limit < 1e9)
			op_attr_float(&one.g, "swiglu_limit", c->limit);
	}
	if (c->late)
		op_attr_int(&one.g, "swiglu_limit_after_activation", 1);
	if (!c->bits)
		return;
	op_attr_int(&one.g, "expert_weight_bits", c->bits);
	op_attr_int(&one.g, "weights_prepacked", 0);
	if (c->block)
		op_attr_int(&one.g, "block_size", c->block);
}

// Rows [from, from + rows) into y.
static void run_rows(struct check *c, const struct moe_made *t, int64_t from,
		     int64_t rows, void *y)
{
	const struct moe_case *k = &t->c;
	const int64_t size = k->dtype == GENAI_DT_F32 ? 4 : 2;
	const int64_t x[3] = {1, rows, k->d}, logits[2] = {rows, k->e};

	one_begin();
	one_in(op_input(&one.g, k->dtype, 3, x,
			(char *)t->x + from * k->d * size));
	one_in(op_input(&one.g, k->dtype, 2, logits,
			(char *)t->logits + from * k->e * size));
	for (int i = 0; i < 3; i++)
		in_part(k, &t->p[i], i < 2 || k->fusion == 3);
	for (int i = 0; k->bits && i < 3; i++)
		in_zeros(k, &t->p[i], i < 2 || k->fusion == 3);
	if (k->own)
		one_in(op_input(&one.g, k->dtype, 2, logits,
				(char *)t->weights + from * k->e * size));
	one_node("com.microsoft", k->bits ? "QMoE" : "MoE");
	attributes(k);
	one_run(c, k->dtype, 3, x, y);
}

// An expert that no row has chosen is not looked at: its scales may be
// anything.
static void spoil(struct moe_made *t)
{
	for (int64_t e = 0; e < t->c.e; e++) {
		bool used = false;

		for (int64_t m = 0; m < t->c.m; m++)
			used |= share(t, m, e) != 0;
		for (int i = 0; !used && i < 3; i++)
			for (int64_t k = 0; k < t->p[i].n; k++)
				op_store(t->c.dtype, t->p[i].b,
					 (uint64_t)(e * t->p[i].n + k), NAN);
	}
}

// A row is the same whatever comes with it.
static void rows_alone(struct check *c, struct moe_made *t)
{
	const struct moe_case *k = &t->c;
	const int64_t size = k->dtype == GENAI_DT_F32 ? 4 : 2;
	const int64_t row = k->d * size;

	for (int64_t m = 0; !one.rc && m < k->m; m++)
		run_rows(c, t, m, 1, (char *)t->again + m * row);
	if (one.rc)
		check_result(c, false, "row by row: %s", one.err.text);
	else
		check_same(c, t->y, t->again, (uint64_t)(k->m * row));
}

static void moe_case(struct check *c, struct moe_case k)
{
	struct moe_made t = {.c = k};

	if (!check_begin(c,
			 "moe dtype %u m %lld d %lld i %lld e %lld k %lld %s "
			 "fusion %d bits %lld block %lld zp %d bias %d norm %d "
			 "own %d",
			 k.dtype, (long long)k.m, (long long)k.d,
			 (long long)k.i, (long long)k.e, (long long)k.k, k.act,
			 k.fusion, (long long)k.bits, (long long)k.block, k.zp,
			 k.bias, k.normalize, k.own))
		return;
	made_open(&t);
	if (k.bias)
		spoil(&t);
	moe_want(&t);
	run_rows(c, &t, 0, k.m, t.y);
	one_check(c, k.dtype, t.y, t.want, t.tol, (uint64_t)(k.m * k.d));
	if (!one.rc && c->rows_exact)
		rows_alone(c, &t);
	made_close(&t);
}

#define SWIGLU "swiglu", .alpha = 1.702, .beta = 1

void corpus_moe(struct check *c)
{
	static const uint32_t floats[3] = {GENAI_DT_F32, GENAI_DT_F16,
					   GENAI_DT_BF16};
	static const char *const plain[] = {"relu", "relu2", "gelu", "silu",
					    "identity"};

	for (int d = 0; d < 3; d++) {
		const struct moe_case o = {floats[d], 5, 64, 32, 7, 3};
		struct moe_case k;

		for (int i = 0; i < 5; i++) {
			k = o;
			k.act = plain[i];
			k.bias = i & 1;
			k.normalize = i & 2;
			k.limit = 1e9;
			moe_case(c, k);
			k.fusion = 3;
			k.bits = i == 4 ? 8 : 4;
			k.block = 32;
			moe_case(c, k);
		}
		for (int i = 0; i < 24; i++) {
			k = o;
			k.act = i % 8 == 7 ? "geglu" : "swiglu";
			k.fusion = i % 8 == 7 ? 1 + i % 2 : 1 + i % 3;
			k.alpha = i & 1 ? 1.702 : 1;
			k.beta = i & 1;
			k.limit = i & 2 ? 0.5 : 1e9;
			k.late = i % 8 == 6;
			k.bits = i % 5 == 0 ? 0 : i % 5 == 1 ? 8 : 4;
			k.bits = i % 12 == 4 ? 2 : k.bits;
			k.block = i % 4 == 3 ? 0 : 16 << i % 2;
			k.zp = k.bits ? i / 2 % 3 : 0;
			k.bias = i % 3;
			k.normalize = i & 4;
			k.own = k.bits && i % 6 == 5;
			k.m = i % 4 ? 1 + i % 7 : 33;
			k.e = i % 3 ? 4 + i % 5 : 32;
			k.k = i % 7 == 0 ? 1 : 1 + i % 4;
			moe_case(c, k);
		}
		// sizes that are no multiple of a vector, one expert
		moe_case(c, (struct moe_case){floats[d], 3, 40, 24, 5, 2,
					      SWIGLU, .fusion = 2, .bias = true,
					      .limit = 7});
		moe_case(c,
			 (struct moe_case){floats[d], 2, 72, 40, 1, 1, SWIGLU,
					   .fusion = 1, .bits = 4, .limit = 7});
		// long rows: more tiles than are on the way at once
		moe_case(c, (struct moe_case){floats[d], 3, MOE_MAX, 64, 3, 2,
					      SWIGLU, .fusion = 1, .bits = 4,
					      .block = 32, .zp = d,
					      .bias = true, .limit = 7});
		moe_case(c, (struct moe_case){floats[d], 2, 64, MOE_MAX / 2, 2,
					      2, SWIGLU, .fusion = 2,
					      .bits = 4 + 4 * (d == 2),
					      .block = 32, .limit = 7});
	}
}
