// check_cpu_kernels.c - cpu_ref's matrix kernels: MatMulNBits, MatMul,
// GatherBlockQuantized, the thread pool, fixed-arithmetic functions.
#include <math.h>
#include <stdio.h>

#include "tests/unit/kernel_node.h"

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

// ---- MatMulNBits ----

struct nb_case {
	uint64_t M, N, K;
	uint32_t bits, block, dtype; // dtype of A, scales and Y
	int zero;		     // 0 none, 1 packed, 2 float
	bool bias;
};

struct nb_data {
	struct nb_case c;
	uint64_t blocks, b_row, z_row;
	void *a, *s, *z, *bias;
	unsigned char *b;
	double *want, *mag; // exact sums, and sums of magnitudes
};

static unsigned quant(const unsigned char *p, uint32_t bits, uint64_t i)
{
	return p[i * bits / 8] >> i * bits % 8 & ((1u << bits) - 1);
}

static void nb_exact(struct nb_data *d)
{
	const struct nb_case *c = &d->c;

	for (uint64_t m = 0; m < c->M; m++)
		for (uint64_t n = 0; n < c->N; n++) {
			double sum =
				c->bias ? cref_load(d->bias, c->dtype, n) : 0;
			double mag = fabs(sum);

			for (uint64_t k = 0; k < c->K; k++) {
				const uint64_t b = k / c->block;
				double z = 1u << (c->bits - 1), w;

				if (c->zero == 1)
					z = quant((unsigned char *)d->z +
							  n * d->z_row,
						  c->bits, b);
				else if (c->zero == 2)
					z = cref_load(d->z, c->dtype,
						      n * d->blocks + b);
				w = (quant(d->b + n * d->b_row, c->bits, k) -
				     z) *
				    cref_load(d->s, c->dtype,
					      n * d->blocks + b) *
				    cref_load(d->a, c->dtype, m * c->K + k);
				sum += w;
				mag += fabs(w);
			}
			d->want[m * c->N + n] = sum;
			d->mag[m * c->N + n] = mag;
		}
}

static struct nb_data nb_make(struct nb_case c)
{
	struct nb_data d = {.c = c};
	uint64_t seed = c.M * 131 + c.N * 17 + c.K + c.bits + c.block;

	d.blocks = (c.K + c.block - 1) / c.block;
	d.b_row = d.blocks * c.block / 8 * c.bits;
	d.z_row = (d.blocks * c.bits + 7) / 8;
	d.a = kfloats(&seed, c.dtype, c.M * c.K, 1);
	// an odd address: stored tensors need not be aligned
	d.s = (char *)kfloats(&seed, c.dtype, c.N * d.blocks + 4, 0.1);
	d.b = malloc(c.N * d.b_row);
	for (uint64_t i = 0; i < c.N * d.b_row; i++)
		d.b[i] = (unsigned char)krand(&seed);
	if (c.zero == 1) {
		unsigned char *z = malloc(c.N * d.z_row);

		for (uint64_t i = 0; i < c.N * d.z_row; i++)
			z[i] = (unsigned char)krand(&seed);
		d.z = z;
	} else if (c.zero == 2) {
		d.z = kfloats(&seed, c.dtype, c.N * d.blocks, 8);
	}
	if (c.bias)
		d.bias = kfloats(&seed, c.dtype, c.N, 1);
	d.want = malloc(c.M * c.N * sizeof(double));
	d.mag = malloc(c.M * c.N * sizeof(double));
	nb_exact(&d);
	return d;
}

static void nb_free(struct nb_data *d)
{
	free(d->a);
	free(d->s);
	free(d->z);
	free(d->bias);
	free(d->b);
	free(d->want);
	free(d->mag);
}

static void nb_node(struct knode *k, const struct nb_data *d, void *a,
		    uint64_t M, void *y)
{
	const struct nb_case *c = &d->c;
	const int64_t N = (int64_t)c->N, KB = (int64_t)d->blocks;

	knode_init(k, "MatMulNBits", 6, 1);
	knode_int(k, "K", (int64_t)c->K);
	knode_int(k, "N", N);
	knode_int(k, "bits", c->bits);
	knode_int(k, "block_size", c->block);
	knode_int(k, "accuracy_level", 4);
	knode_in(k, 0, c->dtype, a, DIMS(1, (int64_t)M, (int64_t)c->K));
	knode_in(k, 1, GENAI_DT_U8, d->b, DIMS(N, KB, (int64_t)d->b_row / KB));
	knode_in(k, 2, c->dtype, d->s, DIMS(N * KB)); // the older flat form
	if (c->zero == 1)
		knode_in(k, 3, GENAI_DT_U8, d->z, DIMS(N, (int64_t)d->z_row));
	else if (c->zero == 2)
		knode_in(k, 3, c->dtype, d->z, DIMS(N, KB));
	if (c->bias)
		knode_in(k, 5, c->dtype, d->bias, DIMS(N));
	k->t[EXEC_MAX_IN].data = y;
}

// Rows [m0, m0 + M) of A, rows [n0, n1) of B, into y.
static void nb_run(const struct nb_data *d, uint64_t m0, uint64_t M,
		   uint64_t n0, uint64_t n1, struct cref_pool *pool, void *y)
{
	const uint64_t size = ksize(d->c.dtype);
	struct nb_data part = *d;
	struct knode k;

	nb_node(&k, d, (char *)d->a + m0 * d->c.K * size, M, y);
	ck_assert_msg(!knode_prepare(&k, cref_matmul_nbits_prepare), "%s",
		      k.err.text);
	ck_assert_int_eq(k.n.out[0]->dims[1], (int64_t)M);
	ck_assert_int_eq(k.n.out[0]->dims[2], (int64_t)d->c.N);
	// a unit of row tiles gets pointers to its first row
	part.b += n0 * d->b_row;
	k.t[1].data = part.b;
	k.t[2].data = (char *)d->s + n0 * d->blocks * size;
	if (d->c.zero)
		k.t[3].data =
			(char *)d->z +
			n0 * (d->c.zero == 1 ? d->z_row : d->blocks * size);
	ck_assert_int_eq(knode_run(&k, cref_matmul_nbits_run, pool, n0, n1), 0);
	knode_free(&k);
}

static double tolerance(uint32_t dtype, double value, double mag)
{
	const double eps = dtype == GENAI_DT_F32   ? 6e-8
			   : dtype == GENAI_DT_F16 ? 4.9e-4
						   : 3.95e-3;

	return fabs(value) * eps + mag * 6e-7 + 1e-7;
}

static void nb_check(struct nb_case c)
{
	struct nb_data d = nb_make(c);
	const uint64_t size = ksize(c.dtype), bytes = c.M * c.N * size;
	char *y = malloc(bytes), *z = malloc(bytes);

	cref_simd_force(-1);
	nb_run(&d, 0, c.M, 0, c.N, pools[1], y);
	for (uint64_t i = 0; i < c.M * c.N; i++) {
		const double got = cref_load(y, c.dtype, i);

		ck_assert_msg(fabs(got - d.want[i]) <=
				      tolerance(c.dtype, d.want[i], d.mag[i]),
			      "M %u N %u K %u bits %u block %u zero %d: [%u] "
			      "is %.9g, must be %.9g",
			      (unsigned)c.M, (unsigned)c.N, (unsigned)c.K,
			      c.bits, c.block, c.zero, (unsigned)i, got,
			      d.want[i]);
	}
	// the same bits at every level and number of threads
	for (int level = 0; level <= CREF_LEVEL_AVX512; level++)
		for (uint32_t t = 1; t <= 4; t += level + 1) {
			cref_simd_force(level);
			memset(z, 0xee, bytes);
			nb_run(&d, 0, c.M, 0, c.N, pools[t], z);
			ck_assert_mem_eq(y, z, bytes);
		}
	cref_simd_force(-1);
	// one row of A at a time, and in two parts
	memset(z, 0xee, bytes);
	for (uint64_t m = 0; m < c.M; m++)
		nb_run(&d, m, 1, 0, c.N, pools[2], z + m * c.N * size);
	ck_assert_mem_eq(y, z, bytes);
	memset(z, 0xee, bytes);
	if (c.M > 1) {
		nb_run(&d, 0, c.M / 2, 0, c.N, pools[1], z);
		nb_run(&d, c.M / 2, c.M - c.M / 2, 0, c.N, pools[2],
		       z + c.M / 2 * c.N * size);
		ck_assert_mem_eq(y, z, bytes);
	}
	// by ranges of rows of B
	memset(z, 0xee, bytes);
	for (uint64_t n = 0; n < c.N; n += 5)
		nb_run(&d, 0, c.M, n, n + 5 < c.N ? n + 5 : c.N, pools[2], z);
	ck_assert_mem_eq(y, z, bytes);
	free(y);
	free(z);
	nb_free(&d);
}

START_TEST(nbits_shapes)
{
	static const uint64_t ks[] = {1, 15, 31, 32, 33, 64, 96, 100, 256, 800};
	static const uint64_t ms[] = {1, 2, 3, 4, 7, 16, 33};

	for (int k = 0; k < 10; k++)
		for (int m = 0; m < 7; m++)
			nb_check((struct nb_case){
				ms[m], 1 + (uint64_t)(k * 7 + m) % 19, ks[k],
				k % 3 == 2 ? 8 : 4, 16u << (k + m) % 5,
				GENAI_DT_F32, m % 3, m & 1});
}
END_TEST

START_TEST(nbits_kinds)
{
	static const uint32_t bits[] = {2, 4, 8};
	static const uint32_t dtypes[] = {GENAI_DT_F32, GENAI_DT_F16,
					  GENAI_DT_BF16};

	for (int b = 0; b < 3; b++)
		for (uint32_t block = 16; block <= 256; block *= 2)
			for (int z = 0; z < 3; z++)
				for (int t = 0; t < 3; t++)
					nb_check((struct nb_case){
						1 + (uint64_t)t * 2, 11, 304,
						bits[b], block, dtypes[t], z,
						t == 1});
}
END_TEST

START_TEST(nbits_large)
{
	// 4304: 134.5 chunks; 256 x 96: a square of odd tiles; long K: segments
	nb_check((struct nb_case){1, 33, 4304, 4, 32, GENAI_DT_F32, 0, 0});
	nb_check((struct nb_case){5, 17, 4304, 4, 16, GENAI_DT_F32, 1, 0});
	nb_check((struct nb_case){97, 9, 96, 4, 32, GENAI_DT_F32, 2, 0});
	nb_check((struct nb_case){200, 10, 64, 8, 32, GENAI_DT_F16, 1, 1});
	nb_check((struct nb_case){8, 256, 96, 4, 32, GENAI_DT_F32, 1, 1});
	nb_check((struct nb_case){4, 96, 256, 4, 32, GENAI_DT_F32, 0, 1});
}
END_TEST

// The padding of the last block does not count, even where its weights would be
// infinite: (15 - 8) * 1e38.
START_TEST(nbits_padding)
{
	for (uint32_t bits = 4; bits <= 8; bits *= 2)
		for (uint64_t M = 1; M <= 3; M += 2) {
			struct nb_data d = nb_make((struct nb_case){
				M, 5, 33, bits, 32, GENAI_DT_F32, 0, 0});
			float y[15];

			memset(d.b, bits == 4 ? 0x88 : 0x80, 5 * d.b_row);
			for (uint64_t i = 0; i < 10; i++)
				cref_store(d.s, GENAI_DT_F32, i, 1e38f);
			for (uint64_t n = 0; n < 5; n++)
				for (uint64_t k = 34; k < 64; k++)
					d.b[n * d.b_row + k * bits / 8] = 0xff;
			nb_run(&d, 0, M, 0, 5, NULL, y);
			for (uint64_t i = 0; i < M * 5; i++)
				ck_assert(y[i] == 0);
			nb_free(&d);
		}
}
END_TEST

START_TEST(nbits_unaligned)
{
	struct nb_data d = nb_make(
		(struct nb_case){3, 12, 160, 4, 32, GENAI_DT_F32, 2, 1});
	const size_t s_bytes = 12 * 5 * 4;
	char *s = malloc(s_bytes + 1), *z = malloc(s_bytes + 3), *os = d.s,
	     *oz = d.z;
	float y[2][36];

	nb_run(&d, 0, 3, 0, 12, pools[2], y[0]);
	d.s = memcpy(s + 1, os, s_bytes);
	d.z = memcpy(z + 3, oz, s_bytes);
	nb_run(&d, 0, 3, 0, 12, pools[2], y[1]);
	ck_assert_mem_eq(y[0], y[1], sizeof(y[0]));
	for (uint64_t m = 0; m < 3; m++) {
		nb_run(&d, m, 1, 0, 12, pools[2], y[1]);
		ck_assert_mem_eq(y[0] + m * 12, y[1], 12 * sizeof(float));
	}
	free(s);
	free(z);
	d.s = os;
	d.z = oz;
	nb_free(&d);
}
END_TEST

static void nb_refused(void (*spoil)(struct knode *), int32_t code,
		       const char *text)
{
	struct nb_data d =
		nb_make((struct nb_case){2, 6, 64, 4, 32, GENAI_DT_F32, 1, 1});
	struct knode k;
	float y[12];

	nb_node(&k, &d, d.a, 2, y);
	spoil(&k);
	ck_assert_int_eq(knode_prepare(&k, cref_matmul_nbits_prepare), code);
	ck_assert_msg(strstr(k.err.text, text) != NULL, "%s", k.err.text);
	ck_assert_ptr_nonnull(strstr(k.err.text, "/test/node"));
	knode_free(&k);
	nb_free(&d);
}

static void spoil_prepacked(struct knode *k)
{
	knode_int(k, "weight_prepacked", 1);
}
static void spoil_g_idx(struct knode *k)
{
	knode_in(k, 4, GENAI_DT_I32, NULL, DIMS(64));
}
static void spoil_bits(struct knode *k)
{
	k->attrs[2].i = 3;
}
static void spoil_block(struct knode *k)
{
	k->attrs[3].i = 24;
}
static void spoil_k(struct knode *k)
{
	k->attrs[0].i = 65;
}
static void spoil_n(struct knode *k)
{
	k->attrs[1].i = INT64_MAX;
}
static void spoil_scales(struct knode *k)
{
	k->t[2].dims[0] = 11;
}
static void spoil_zeros(struct knode *k)
{
	knode_in(k, 3, GENAI_DT_U8, NULL, DIMS(6, 2));
}
static void spoil_zero_type(struct knode *k)
{
	k->t[3].dtype = GENAI_DT_F16;
}
static void spoil_bias(struct knode *k)
{
	k->t[5].dims[0] = 5;
}
static void spoil_attr(struct knode *k)
{
	knode_int(k, "frobnicate", 1);
}

START_TEST(nbits_refusals)
{
	nb_refused(spoil_prepacked, GENAI_E_UNSUPPORTED, "weight_prepacked 1");
	nb_refused(spoil_g_idx, GENAI_E_UNSUPPORTED, "g_idx");
	nb_refused(spoil_bits, GENAI_E_UNSUPPORTED, "bits 3");
	nb_refused(spoil_block, GENAI_E_INVAL, "block_size 24");
	nb_refused(spoil_k, GENAI_E_INVAL, "input 1");
	nb_refused(spoil_n, GENAI_E_INVAL, "must be from 1 to 2^40");
	nb_refused(spoil_scales, GENAI_E_INVAL, "input 2");
	nb_refused(spoil_zeros, GENAI_E_INVAL, "input 3");
	nb_refused(spoil_zero_type, GENAI_E_INVAL, "inputs 2 and 3");
	nb_refused(spoil_bias, GENAI_E_INVAL, "input 5");
	nb_refused(spoil_attr, GENAI_E_UNSUPPORTED, "frobnicate");
}
END_TEST

// ---- MatMul ----

static void mm_run(void *a, const int64_t *da, void *b, const int64_t *db,
		   uint32_t dtype, struct cref_pool *pool, void *y)
{
	struct knode k;

	knode_init(&k, "MatMul", 2, 1);
	knode_in(&k, 0, dtype, a, da);
	knode_in(&k, 1, dtype, b, db);
	k.t[EXEC_MAX_IN].data = y;
	ck_assert_msg(!knode_prepare(&k, cref_matmul_prepare), "%s",
		      k.err.text);
	ck_assert_int_eq(knode_run(&k, cref_matmul_run, pool, 0, 0), 0);
	knode_free(&k);
}

static void mm_check(uint64_t M, uint64_t K, uint64_t N, uint32_t dtype)
{
	uint64_t seed = M + 100 * K + 10000 * N;
	void *a = kfloats(&seed, dtype, M * K, 1);
	void *b = kfloats(&seed, dtype, K * N, 1);
	const uint64_t size = ksize(dtype), bytes = M * N * size;
	char *y = malloc(bytes + 1), *z = malloc(bytes + 1);
	const int64_t k = (int64_t)K, n = (int64_t)N;

	cref_simd_force(-1);
	mm_run(a, DIMS((int64_t)M, k), b, DIMS(k, n), dtype, NULL, y);
	for (uint64_t i = 0; i < M * N; i++) {
		double want = 0, mag = 0;

		for (uint64_t j = 0; j < K; j++) {
			const double p =
				(double)cref_load(a, dtype, i / N * K + j) *
				cref_load(b, dtype, j * N + i % N);

			want += p;
			mag += fabs(p);
		}
		ck_assert_msg(fabs(cref_load(y, dtype, i) - want) <=
				      tolerance(dtype, want, mag),
			      "M %u K %u N %u: [%u] is %.9g, must be %.9g",
			      (unsigned)M, (unsigned)K, (unsigned)N,
			      (unsigned)i, cref_load(y, dtype, i), want);
	}
	for (int level = 0; level <= CREF_LEVEL_AVX512; level++)
		for (uint32_t t = 1; t <= 4; t += level + 1) {
			cref_simd_force(level);
			memset(z, 0xee, bytes);
			mm_run(a, DIMS((int64_t)M, k), b, DIMS(k, n), dtype,
			       pools[t], z);
			ck_assert_mem_eq(y, z, bytes);
		}
	cref_simd_force(-1);
	for (uint64_t m = 0; m < M; m++)
		mm_run((char *)a + m * K * size, DIMS(1, k), b, DIMS(k, n),
		       dtype, pools[2], z + m * N * size);
	ck_assert_mem_eq(y, z, bytes);
	free(a);
	free(b);
	free(y);
	free(z);
}

START_TEST(matmul_shapes)
{
	static const uint64_t ks[] = {1, 7, 8, 31, 33, 64, 65, 130, 256};
	static const uint64_t ns[] = {1, 3, 16, 17, 31, 32, 33, 96, 700};
	static const uint64_t ms[] = {1, 2, 6, 7, 8, 9, 16, 33, 130};

	for (int i = 0; i < 9; i++)
		for (int j = 0; j < 9; j++)
			mm_check(ms[(i + j) % 9], ks[i], ns[j],
				 (i + j) % 4 == 0   ? GENAI_DT_F16
				 : (i + j) % 4 == 1 ? GENAI_DT_BF16
						    : GENAI_DT_F32);
	mm_check(3, 4304, 20, GENAI_DT_F32);
	mm_check(8, 4304, 20, GENAI_DT_F32);
}
END_TEST

START_TEST(matmul_batches)
{
	float a[2 * 1 * 2 * 3], b[3 * 3 * 2], y[2 * 3 * 2 * 2],
		v[3] = {1, 2, 3};
	float w[2], u;

	for (int i = 0; i < 12; i++)
		a[i] = (float)i - 5;
	for (int i = 0; i < 18; i++)
		b[i] = (float)(i % 7) - 2;
	mm_run(a, DIMS(2, 1, 2, 3), b, DIMS(3, 3, 2), GENAI_DT_F32, NULL, y);
	for (int i = 0; i < 24; i++) {
		const int p = i / 12, q = i / 4 % 3, m = i / 2 % 2, n = i % 2;
		float s = 0;

		for (int k = 0; k < 3; k++)
			s += a[p * 6 + m * 3 + k] * b[q * 6 + k * 2 + n];
		ck_assert_float_eq(y[i], s);
	}
	mm_run(v, DIMS(3), b, DIMS(3, 2), GENAI_DT_F32, NULL, w);
	ck_assert_float_eq(w[0], v[0] * b[0] + v[1] * b[2] + v[2] * b[4]);
	ck_assert_float_eq(w[1], v[0] * b[1] + v[1] * b[3] + v[2] * b[5]);
	mm_run(a, DIMS(2, 3), v, DIMS(3), GENAI_DT_F32, NULL, w);
	ck_assert_float_eq(w[0], a[0] + 2 * a[1] + 3 * a[2]);
	ck_assert_float_eq(w[1], a[3] + 2 * a[4] + 3 * a[5]);
	mm_run(v, DIMS(3), v, DIMS(3), GENAI_DT_F32, NULL, &u);
	ck_assert_float_eq(u, 14);
	// no k: zeros; no rows: nothing
	memset(y, 0xff, sizeof(y));
	mm_run(a, DIMS(2, 0), b, DIMS(0, 3), GENAI_DT_F32, NULL, y);
	for (int i = 0; i < 6; i++)
		ck_assert_float_eq(y[i], 0);
	mm_run(a, DIMS(0, 3), b, DIMS(3, 2), GENAI_DT_F32, NULL, y);
}
END_TEST

START_TEST(matmul_refusals)
{
	struct knode k;

	knode_init(&k, "MatMul", 2, 1);
	knode_in(&k, 0, GENAI_DT_F32, NULL, DIMS(2, 3));
	knode_in(&k, 1, GENAI_DT_F32, NULL, DIMS(4, 2));
	ck_assert_int_eq(knode_prepare(&k, cref_matmul_prepare), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(k.err.text, "[2,3] and [4,2]"));
	knode_in(&k, 1, GENAI_DT_I32, NULL, DIMS(3, 2));
	ck_assert_int_eq(knode_prepare(&k, cref_matmul_prepare), GENAI_E_INVAL);
	knode_in(&k, 0, GENAI_DT_I32, NULL, DIMS(2, 3));
	ck_assert_int_eq(knode_prepare(&k, cref_matmul_prepare),
			 GENAI_E_UNSUPPORTED);
	knode_in(&k, 0, GENAI_DT_F32, NULL, DIMS(2, 2, 3));
	knode_in(&k, 1, GENAI_DT_F32, NULL, DIMS(3, 3, 2));
	ck_assert_int_eq(knode_prepare(&k, cref_matmul_prepare), GENAI_E_INVAL);
	knode_free(&k);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cpu_kernels");
	TCase *t = tcase_create("products");

	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, nbits_shapes);
	tcase_add_test(t, nbits_kinds);
	tcase_add_test(t, nbits_large);
	tcase_add_test(t, nbits_padding);
	tcase_add_test(t, nbits_unaligned);
	tcase_add_test(t, nbits_refusals);
	tcase_add_test(t, matmul_shapes);
	tcase_add_test(t, matmul_batches);
	tcase_add_test(t, matmul_refusals);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
