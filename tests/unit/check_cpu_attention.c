// check_cpu_attention.c - cpu_ref's GroupQueryAttention against a plain one in
// double precision, and against itself in pieces and over a cache in blocks.
#include <stdio.h>

#include "tests/unit/gqa_case.h"
#include "modules/cpu_ref/attention.h"

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

static void gqa_shared(const struct gqa_data *d, int64_t P, int64_t S,
		       struct cref_pool *pool, char *out)
{
	const struct gqa_case *c = &d->c;
	struct gqa_call x;

	gqa_build(&x, d, P, S, d->rows,
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
			      (int)(i / (c->N * c->H)), (int)(i / c->H % c->N),
			      (int)(i % c->H), got, d->want[i]);
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
	for (int level = 0; level <= CREF_LEVEL_AVX512; level++) {
		cref_simd_force(level);
		memset(z, 0xee, bytes);
		poison(&d);
		gqa_shared(&d, 0, c.T, pools[1 + (level + c.T) % 4], z);
		ck_assert_mem_eq(y, z, bytes);
	}
	cref_simd_force(-1);
	// a prompt, then token by token; then in pieces
	for (uint32_t t = 1; t <= 4; t += 3) {
		const int64_t prompt = c.T > 5 ? c.T - 5 : 1;

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
		for (int g = 1 + i % 2; g <= 4; g += 2)
			gqa_check((struct gqa_case){
				.T = 20 + i * 8,
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
		gqa_check((struct gqa_case){.T = 170,
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
	for (int i = 0; i < 64; i += 1 + i % 3)
		gqa_check((struct gqa_case){.T = 70 + i,
					    .N = 4,
					    .Nkv = 2,
					    .H = 24,
					    .dtype = dtypes[i % 3],
					    .rotary = i % 5 ? 8 + i % 3 * 8 : 0,
					    .interleaved = i / 3 % 2,
					    .norm = i & 1,
					    .smooth = (i & 6) == 2,
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
		gqa_build(&x, &d, P, S, P, z + (uint64_t)P * 4 * row);
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

// A present longer than the sequence: rows beyond it are zero.
START_TEST(gqa_tail)
{
	struct gqa_data d = make((struct gqa_case){
		.T = 4, .N = 2, .Nkv = 1, .H = 8, .dtype = GENAI_DT_F32});
	float out[4 * 16], k[7 * 8], v[7 * 8];
	struct gqa_call x;

	gqa_build(&x, &d, 0, 4, 0, out);
	x.total = 7;
	x.k.t[6].value = &x.total;
	ck_assert_int_eq(knode_prepare(&x.k, cref_gqa_prepare), 0);
	ck_assert_int_eq(x.k.n.out[1]->dims[2], 7);
	memset(k, 0xff, sizeof(k));
	memset(v, 0xff, sizeof(v));
	x.k.n.out[1]->data = k;
	x.k.n.out[2]->data = v;
	x.k.t[3].data = x.k.t[4].data = NULL;
	ck_assert_msg(!knode_run(&x.k, cref_gqa_run, NULL, 0, 0), "%s",
		      x.k.err.text);
	for (int i = 0; i < 7 * 8; i++) {
		ck_assert(i < 32 ? k[i] != 0 : k[i] == 0);
		ck_assert(i < 32 ? v[i] != 0 : v[i] == 0);
	}
	gqa_free(&x);
	discard(&d);
}
END_TEST

// A window's cache of C rows gives what the whole cache gives, in any steps.
START_TEST(gqa_sliding)
{
	for (int64_t C = 16; C <= 32; C += 8)
		for (int64_t step = 1; step <= 41; step += 20) {
			struct gqa_data d =
				make((struct gqa_case){.T = 120,
						       .N = 4,
						       .Nkv = 2,
						       .H = 16,
						       .dtype = GENAI_DT_F16,
						       .rotary = 16,
						       .window = 16});
			const uint64_t row = 16 * 2;
			char *y = malloc(120 * 4 * row);
			char *z = malloc(120 * 4 * row);
			const int64_t G = C - 16 + 1,
				      G1 = (120 - C + G - 1) / G;
			const int64_t L = 120 - G * G1;

			poison(&d);
			gqa_shared(&d, 0, 120, NULL, y);
			char *cache[2] = {malloc((uint64_t)(2 * C) * row),
					  malloc((uint64_t)(2 * C) * row)};

			for (int64_t P = 0, S; P < 120; P += S) {
				struct gqa_call x;

				S = step < 120 - P ? step : 120 - P;
				gqa_build(&x, &d, P, S, C,
					  z + (uint64_t)P * 4 * row);
				knode_int(&x.k, "sliding_window_cache", 1);
				for (uint32_t i = 0; i < 2; i++)
					knode_in(&x.k, 3 + i, GENAI_DT_F16,
						 cache[i], DIMS(1, 2, C, 16));
				ck_assert_int_eq(
					knode_prepare(&x.k, cref_gqa_prepare),
					0);
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
				ck_assert_mem_eq(cache[0] +
							 h * (uint64_t)C * row,
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
	const struct gqa_case c = {.T = 30,
				   .N = 4,
				   .Nkv = 2,
				   .H = 16,
				   .dtype = GENAI_DT_F32,
				   .rotary = 16};
	struct gqa_data d = make(c);
	const uint64_t in = 8 * 16 * 30, out = 4 * 16 * 30;
	float *q = malloc(2 * in * 4), *y = malloc(2 * out * 4);
	float *k = malloc(2 * 2 * 30 * 16 * 4),
	      *v = malloc(2 * 2 * 30 * 16 * 4);
	char *want = malloc(out * 4);
	int32_t len[2] = {29, 11}, total = 30;
	struct gqa_call x;

	memcpy(q, d.qkv, in * 4);
	memcpy(q + in, d.qkv, in * 4);
	poison(&d);
	gqa_shared(&d, 0, 30, NULL, want);
	gqa_build(&x, &d, 0, 30, 0, y);
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
	gqa_build(&x, &d, P, S, d.rows, out);
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
		{"k_quant_type", "PER_TENSOR", "kv_cache_bit_width 0", 0,
		 GENAI_E_UNSUPPORTED},
		{"v_quant_type", "PER_CHANNEL", "kv_cache_bit_width 0", 0,
		 GENAI_E_UNSUPPORTED},
		{"qk_output", NULL, "qk_output", 1, GENAI_E_UNSUPPORTED},
		{"no_such", NULL, "no_such", 1, GENAI_E_UNSUPPORTED},
		{"sliding_window_cache", NULL, "local_window_size", 1,
		 GENAI_E_INVAL},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct gqa_data d =
			make((struct gqa_case){.T = 4,
					       .N = 2,
					       .Nkv = 1,
					       .H = 8,
					       .dtype = GENAI_DT_F32});
		struct gqa_call x;
		struct genai_attr *a;

		gqa_build(&x, &d, 0, 4, 4, NULL);
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

// ---- in blocks ----

// Several sequences that begin alike, over one pool of blocks in disorder.
#define SEQS 4
#define PAD 3

struct paged {
	const struct gqa_data *d;
	char *qkv, *out, *kc, *vc;
	int64_t block, blocks, per, rows; // of the pool, of a sequence, new
	int32_t first[SEQS + 1], past[SEQS], *table;
	int64_t pos[MAX_T];
};

static uint64_t cache_bytes(const struct paged *p)
{
	const struct gqa_case *c = &p->d->c;

	return (uint64_t)(p->blocks * p->block * c->Nkv * c->H) *
	       ksize(c->dtype);
}

static void paged_make(struct paged *p, const struct gqa_data *d, int64_t block)
{
	const struct gqa_case *c = &d->c;

	memset(p, 0, sizeof(*p));
	p->d = d;
	p->block = block;
	p->per = (c->T + block - 1) / block;
	p->blocks = p->per * SEQS + 2;
	p->table = calloc((size_t)(p->per * SEQS), sizeof(*p->table));
	for (int64_t i = 0; i < p->per * SEQS; i++)
		// 0 and the last are nobody's
		p->table[i] = (int32_t)(1 + i % SEQS * p->per + i / SEQS);
	p->qkv = malloc((uint64_t)(SEQS * c->T + PAD) *
			(uint64_t)((c->N + 2 * c->Nkv) * c->H) *
			ksize(c->dtype));
	p->out = malloc((uint64_t)((SEQS * c->T + PAD) * c->N * c->H) *
			ksize(c->dtype));
	p->kc = malloc(cache_bytes(p));
	p->vc = malloc(cache_bytes(p));
	memset(p->kc, 0xff, cache_bytes(p));
	memset(p->vc, 0xff, cache_bytes(p));
}

static void paged_free(struct paged *p)
{
	free(p->table);
	free(p->qkv);
	free(p->out);
	free(p->kc);
	free(p->vc);
}

static void paged_node(struct knode *k, struct paged *p, int64_t T)
{
	const struct gqa_case *c = &p->d->c;
	const int64_t heads = c->N + 2 * c->Nkv;

	knode_init(k, "PagedAttention", 14, 3);
	gqa_attrs(k, c);
	knode_in(k, 0, c->dtype, p->qkv, DIMS(1, T, heads * c->H));
	knode_in(k, 3, c->dtype, p->kc,
		 DIMS(p->blocks, p->block, c->Nkv, c->H));
	knode_in(k, 4, c->dtype, p->vc,
		 DIMS(p->blocks, p->block, c->Nkv, c->H));
	knode_in(k, 5, GENAI_DT_I32, p->first, DIMS(SEQS + 1));
	knode_in(k, 6, GENAI_DT_I32, p->past, DIMS(SEQS));
	knode_in(k, 7, GENAI_DT_I32, p->table, DIMS(SEQS, p->per));
	if (c->rotary) {
		knode_in(k, 8, c->dtype, p->d->cos,
			 DIMS(c->T + 9, c->rotary / 2));
		knode_in(k, 9, c->dtype, p->d->sin,
			 DIMS(c->T + 9, c->rotary / 2));
	}
	if (c->sink)
		knode_in(k, 10, c->dtype, p->d->sink, DIMS(c->N));
	if (c->norm) {
		knode_in(k, 11, c->dtype, p->d->qn, DIMS(c->H));
		knode_in(k, 12, c->dtype, p->d->kn, DIMS(c->H));
	}
	if (c->positions)
		knode_in(k, 13, GENAI_DT_I64, p->pos, DIMS(1, T));
	k->t[EXEC_MAX_IN].data = p->out;
	k->t[EXEC_MAX_IN + 1].data = p->kc;
	k->t[EXEC_MAX_IN + 2].data = p->vc;
}

static void all_ff(const char *p, uint64_t n)
{
	for (uint64_t i = 0; i < n; i++)
		ck_assert_int_eq((unsigned char)p[i], 0xff);
}

// One step: add[b] new rows of each sequence; they must be those of want.
static void paged_step(struct paged *p, const int64_t *add,
		       struct cref_pool *pool, const char *want)
{
	const struct gqa_case *c = &p->d->c;
	const uint64_t e = ksize(c->dtype);
	const uint64_t in = (uint64_t)((c->N + 2 * c->Nkv) * c->H) * e;
	const uint64_t out = (uint64_t)(c->N * c->H) * e;
	const uint64_t block = cache_bytes(p) / (uint64_t)p->blocks;
	struct knode k;
	int64_t T = 0;

	for (int b = 0; b < SEQS; b++) {
		p->first[b] = (int32_t)T;
		memcpy(p->qkv + (uint64_t)T * in,
		       (char *)p->d->qkv + (uint64_t)p->past[b] * in,
		       (uint64_t)add[b] * in);
		for (int64_t i = 0; i < add[b]; i++)
			p->pos[T++] = p->d->pos[p->past[b] + i];
	}
	p->first[SEQS] = (int32_t)T;
	memset(p->qkv + (uint64_t)T * in, 0xff, PAD * in);
	memset(p->out, 0xee, (uint64_t)(T + PAD) * out);
	paged_node(&k, p, T + PAD);
	ck_assert_msg(!knode_prepare(&k, cref_paged_prepare), "%s", k.err.text);
	ck_assert_msg(!knode_run(&k, cref_paged_run, pool, 0, 0), "%s",
		      k.err.text);
	for (int b = 0; b < SEQS; b++) {
		ck_assert_mem_eq(p->out + (uint64_t)p->first[b] * out,
				 want + (uint64_t)p->past[b] * out,
				 (uint64_t)add[b] * out);
		p->past[b] += (int32_t)add[b];
	}
	for (uint64_t i = (uint64_t)T * out; i < (uint64_t)(T + PAD) * out; i++)
		ck_assert_int_eq(p->out[i], 0); // padding
	all_ff(p->kc, block);
	all_ff(p->vc + cache_bytes(p) - block, block);
	knode_free(&k);
}

static void paged_check(struct gqa_case c, int64_t block)
{
	struct gqa_data d = make(c);
	const uint64_t bytes = (uint64_t)(c.T * c.N * c.H) * ksize(c.dtype);
	char *y = malloc(bytes);
	struct paged p;
	uint64_t seed = 7;

	poison(&d);
	gqa_shared(&d, 0, c.T, NULL, y);
	paged_make(&p, &d, block);
	for (int turn = 0, more = 1; more; turn++) {
		int64_t add[SEQS];

		more = 0;
		for (int b = 0; b < SEQS; b++) {
			int64_t left = c.T - p.past[b], n = krand(&seed) % 3;

			if (n == 2)
				n = 1 + krand(&seed) % 40;
			add[b] = n < left ? n : left;
			more |= left > 0;
		}
		// rows of positions are kept in one array
		if (add[0] + add[1] + add[2] + add[3] > MAX_T - PAD)
			continue;
		paged_step(&p, add, pools[1 + turn % 4], y);
	}
	paged_free(&p);
	free(y);
	discard(&d);
}

START_TEST(paged_same_bits)
{
	static const int64_t blocks[] = {1, 7, 16, 32, 64, 128};

	for (int i = 0; i < 6; i++) {
		paged_check((struct gqa_case){.T = 150,
					      .N = 6,
					      .Nkv = 2,
					      .H = 24,
					      .dtype = dtypes[i % 3],
					      .rotary = 16,
					      .position_major = true},
			    blocks[i]);
		paged_check((struct gqa_case){.T = 90,
					      .N = 4,
					      .Nkv = 4,
					      .H = 64,
					      .dtype = dtypes[(i + 1) % 3],
					      .rotary = 64,
					      .interleaved = i & 1,
					      .norm = i & 1,
					      .sink = i & 2,
					      .smooth = !(i & 2),
					      .positions = i & 1,
					      .window = i & 1 ? 20 : 0,
					      .softcap = i & 2 ? 5 : 0},
			    blocks[i]);
	}
}
END_TEST

START_TEST(paged_bounds)
{
	struct gqa_data d = make((struct gqa_case){.T = 20,
						   .N = 2,
						   .Nkv = 1,
						   .H = 8,
						   .dtype = GENAI_DT_F32,
						   .rotary = 8});
	static const struct {
		int32_t past, end, block;
		const char *text;
	} bad[] = {
		{0, 30, 1, "cumulative_sequence_length[1] is 30"},
		{0, -1, 1, "cumulative_sequence_length[1] is -1"},
		{-1, 2, 1, "past_seqlens[0] is -1"},
		{28, 5, 1, "past_seqlens[0] is 28"},
		{0, 2, -1, "block_table[0, 0] is -1"},
		{0, 2, 18, "block_table[0, 0] is 18"},
		{28, 2, 1, "position 29 is outside the 29 rows"},
	};

	for (size_t i = 0; i < sizeof(bad) / sizeof(bad[0]); i++) {
		struct paged p;
		struct knode k;

		paged_make(&p, &d, 8);
		p.table[0] = p.table[1] = p.table[2] = p.table[3] = 1;
		p.per = 4;
		p.past[0] = bad[i].past;
		for (int b = 1; b <= SEQS; b++)
			p.first[b] = bad[i].end;
		p.table[0] = bad[i].block;
		p.blocks = 18;
		p.table = realloc(p.table, SEQS * 4 * sizeof(*p.table));
		paged_node(&k, &p, 20);
		ck_assert(!knode_prepare(&k, cref_paged_prepare));
		ck_assert_int_eq(knode_run(&k, cref_paged_run, NULL, 0, 0),
				 GENAI_E_INVAL);
		ck_assert_msg(strstr(k.err.text, bad[i].text) != NULL, "%s",
			      k.err.text);
		knode_free(&k);
		paged_free(&p);
	}
	discard(&d);
}
END_TEST

// Memory that was planned for the longest prompt suffices for all others.
START_TEST(scratch_grows)
{
	uint64_t before = 0, ws;

	for (uint64_t s = 1; s <= 600; s++) {
		ws = cref_attn_ws(1, s, 9, 3, 64, 64);
		ck_assert_msg(ws >= before,
			      "%llu rows: %llu bytes, %llu for "
			      "one row less",
			      (unsigned long long)s, (unsigned long long)ws,
			      (unsigned long long)before);
		before = ws;
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
	tcase_add_test(t, gqa_tail);
	tcase_add_test(t, gqa_sliding);
	tcase_add_test(t, gqa_batch);
	tcase_add_test(t, gqa_bounds);
	tcase_add_test(t, gqa_refusals);
	tcase_add_test(t, paged_same_bits);
	tcase_add_test(t, paged_bounds);
	tcase_add_test(t, scratch_grows);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
