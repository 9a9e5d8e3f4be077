// check_cpu_mha.c - cpu_ref's MultiHeadAttention against a plain one in double
// precision.
#include <math.h>
#include <stdio.h>

#include "tests/unit/kernel_node.h"

#define MAX_T 64

struct mha_case {
	int64_t B, S, L, P, N, H, Hv;
	uint32_t dtype;
	bool bias, causal, present;
	int mask; // 1: lengths, 2: [B,T], 3: attention bias
};

struct mha_data {
	struct mha_case c;
	int64_t T;
	void *q, *now[2], *past[2], *bias, *add;
	int32_t mask[2 * MAX_T];
	char *y, *present[2];
};

static struct mha_data make(struct mha_case c)
{
	struct mha_data d = {.c = c, .T = c.P + c.L};
	uint64_t seed = (uint64_t)(c.S * 5 + c.L);
	const uint64_t N = (uint64_t)c.N, rows = (uint64_t)(c.B * d.T) * N;
	const uint64_t w[2] = {(uint64_t)c.H, (uint64_t)c.Hv};

	d.q = kfloats(&seed, c.dtype, (uint64_t)(c.B * c.S) * N * w[0], 1);
	d.bias = kfloats(&seed, c.dtype, N * (2 * w[0] + w[1]), 1);
	d.add = kfloats(&seed, c.dtype, N * (uint64_t)(c.S * d.T), 1);
	d.y = malloc((uint64_t)(c.B * c.S) * N * w[1] * 4);
	for (int i = 0; i < 2; i++) {
		d.now[i] = kfloats(&seed, c.dtype, rows * w[i], 1);
		d.past[i] = kfloats(&seed, c.dtype, rows * w[i], 1);
		d.present[i] = malloc(rows * w[i] * 4);
	}
	for (int64_t i = 0; i < c.B * d.T; i++)
		d.mask[i] = c.mask == 1 ? (int32_t)(d.T - i)
					: i % d.T == 0 || krand(&seed) % 3 > 0;
	return d;
}

static void discard(struct mha_data *d)
{
	free(d->q);
	free(d->bias);
	free(d->add);
	free(d->y);
	for (int i = 0; i < 2; i++) {
		free(d->now[i]);
		free(d->past[i]);
		free(d->present[i]);
	}
}

static double at(const struct mha_data *d, const void *p, int64_t i)
{
	return cref_load(p, d->c.dtype, (uint64_t)i);
}

// Element e of row j of keys (0) or values (1): past rows, then new ones.
static double kv(const struct mha_data *d, int part, int64_t b, int64_t h,
		 int64_t j, int64_t e)
{
	const struct mha_case *c = &d->c;
	const int64_t w = part ? c->Hv : c->H, L = c->L, P = c->P;
	const int64_t first = c->N * c->H * (1 + part);
	float x, r;

	if (j < P)
		return at(d, d->past[part], ((b * c->N + h) * P + j) * w + e);
	x = (float)at(d, d->now[part], ((b * L + j - P) * c->N + h) * w + e);
	if (c->bias)
		x += (float)at(d, d->bias, first + h * w + e);
	cref_store(&r, c->dtype, 0, x); // as cached
	return cref_load(&r, c->dtype, 0);
}

static double score(const struct mha_data *d, int64_t b, int64_t h, int64_t t,
		    int64_t j)
{
	const struct mha_case *c = &d->c;
	double s = 0;

	if (c->causal && j > d->T - c->S + t)
		return -INFINITY;
	for (int64_t e = 0; e < c->H; e++) {
		double x = at(d, d->q, ((b * c->S + t) * c->N + h) * c->H + e);

		if (c->bias)
			x += at(d, d->bias, h * c->H + e);
		s += x * kv(d, 0, b, h, j, e);
	}
	s /= sqrt((double)c->H);
	if ((c->mask == 1 && j >= d->mask[b]) ||
	    (c->mask == 2 && !d->mask[b * d->T + j]))
		s -= 10000;
	if (c->mask == 3)
		s += at(d, d->add, (h * c->S + t) * d->T + j);
	return s;
}

static void check_row(const struct mha_data *d, int64_t b, int64_t h, int64_t t)
{
	const struct mha_case *c = &d->c;
	double s[MAX_T], sum = 0, top = -INFINITY;

	for (int64_t j = 0; j < d->T; j++) {
		s[j] = score(d, b, h, t, j);
		top = top > s[j] ? top : s[j];
	}
	for (int64_t j = 0; j < d->T; j++)
		sum += s[j] = exp(s[j] - top);
	for (int64_t e = 0; e < c->Hv; e++) {
		const int64_t o = ((b * c->S + t) * c->N + h) * c->Hv + e;
		const double got = at(d, d->y, o);
		double want = 0;

		for (int64_t j = 0; j < d->T; j++)
			want += s[j] / sum * kv(d, 1, b, h, j, e);
		ck_assert_msg(fabs(got - want) <
				      (c->dtype == GENAI_DT_F32 ? 1e-5 : 2e-3),
			      "[%d] is %.8g, must be %.8g", (int)o, got, want);
	}
}

static void build(struct knode *n, struct mha_data *d)
{
	const struct mha_case *c = &d->c;
	const int64_t w[2] = {c->H, c->Hv};

	knode_init(n, "MultiHeadAttention", 8, c->present ? 3 : 1);
	knode_int(n, "num_heads", c->N);
	knode_int(n, "unidirectional", c->causal);
	knode_in(n, 0, c->dtype, d->q, DIMS(c->B, c->S, c->N * c->H));
	for (uint32_t i = 0; i < 2; i++) {
		knode_in(n, 1 + i, c->dtype, d->now[i],
			 DIMS(c->B, c->L, c->N * w[i]));
		if (c->P)
			knode_in(n, 6 + i, c->dtype, d->past[i],
				 DIMS(c->B, c->N, c->P, w[i]));
		n->t[EXEC_MAX_IN + 1 + i].data = d->present[i];
	}
	if (c->bias)
		knode_in(n, 3, c->dtype, d->bias,
			 DIMS(c->N * (2 * c->H + c->Hv)));
	if (c->mask == 1)
		knode_in(n, 4, GENAI_DT_I32, d->mask, DIMS(c->B));
	else if (c->mask == 2)
		knode_in(n, 4, GENAI_DT_I32, d->mask, DIMS(c->B, d->T));
	else if (c->mask == 3)
		knode_in(n, 5, c->dtype, d->add, DIMS(1, c->N, c->S, d->T));
	n->t[EXEC_MAX_IN].data = d->y;
}

static void check(struct mha_case c, struct cref_pool *pool)
{
	struct mha_data d = make(c);
	struct knode n;

	build(&n, &d);
	ck_assert_msg(!knode_prepare(&n, cref_mha_prepare), "%s", n.err.text);
	ck_assert_int_eq(n.n.out[0]->dims[2], c.N * c.Hv);
	ck_assert_int_eq(knode_run(&n, cref_mha_run, pool, 0, 0), 0);
	for (int64_t i = 0; i < c.B * c.N * c.S; i++)
		check_row(&d, i / c.N / c.S, i / c.S % c.N, i % c.S);
	for (int64_t i = 0; c.present && i < c.B * c.N * d.T * c.H; i++)
		ck_assert(at(&d, d.present[0], i) ==
			  kv(&d, 0, i / (c.N * d.T * c.H),
			     i / (d.T * c.H) % c.N, i / c.H % d.T, i % c.H));
	knode_free(&n);
	discard(&d);
}

START_TEST(mha_kinds)
{
	struct cref_pool *pool = kpool(2);

	for (int i = 0; i < 48; i++)
		check((struct mha_case){.B = 1 + i % 2,
					.S = 1 + i % 7,
					.L = i & 8 ? 1 + i % 7 : 9,
					.P = i % 3 ? i % 5 * 4 : 0,
					.N = 1 + i % 3,
					.H = 8 + i % 4 * 3,
					.Hv = 8 + i % 5 * 5,
					.dtype = i % 5 == 4 ? GENAI_DT_F16
							    : GENAI_DT_F32,
					.bias = i & 1,
					.causal = i & 8,
					.present = i & 4,
					.mask = i / 4 % 4},
		      pool);
	cref_pool_destroy(pool);
}
END_TEST

START_TEST(mha_refusals)
{
	struct knode k;

	knode_init(&k, "MultiHeadAttention", 6, 1);
	knode_int(&k, "num_heads", 2);
	for (uint32_t i = 0; i < 3; i++)
		knode_in(&k, i, GENAI_DT_F32, NULL, DIMS(1, 3, 16));
	ck_assert_int_eq(knode_prepare(&k, cref_mha_prepare), 0);
	knode_in(&k, 4, GENAI_DT_I32, NULL, DIMS(5));
	ck_assert_int_eq(knode_prepare(&k, cref_mha_prepare),
			 GENAI_E_UNSUPPORTED);
	k.n.in[4] = NULL;
	knode_in(&k, 0, GENAI_DT_F32, NULL, DIMS(1, 3, 2, 3, 8));
	ck_assert_int_eq(knode_prepare(&k, cref_mha_prepare),
			 GENAI_E_UNSUPPORTED);
	knode_in(&k, 0, GENAI_DT_F32, NULL, DIMS(1, 3, 18));
	ck_assert_int_eq(knode_prepare(&k, cref_mha_prepare), GENAI_E_INVAL);
	k.attrs[0].i = 0;
	ck_assert_int_eq(knode_prepare(&k, cref_mha_prepare), GENAI_E_INVAL);
	knode_free(&k);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cpu_mha");
	TCase *t = tcase_create("mha");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, mha_kinds);
	tcase_add_test(t, mha_refusals);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
