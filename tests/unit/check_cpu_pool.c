// check_cpu_pool.c - cpu_ref's thread pool, fixed-arithmetic functions, and
// GatherBlockQuantized.
#include <math.h>
#include <stdio.h>

#include "tests/unit/kernel_node.h"

// ---- the pool ----

struct marks {
	_Atomic uint32_t seen[1000];
	uint64_t grain, count;
	struct cref_pool *pool;
	_Atomic uint32_t bad;
};

static void mark(void *ctx, uint64_t begin, uint64_t end)
{
	struct marks *m = ctx;

	if (begin >= end || end > m->count || begin % m->grain ||
	    (end % m->grain && end != m->count))
		m->bad++;
	for (uint64_t i = begin; i < end && i < 1000; i++)
		m->seen[i]++;
}

START_TEST(pool_covers)
{
	static const uint64_t grains[] = {1, 3, 64, 999, 5000};

	for (uint32_t t = 1; t <= 5; t++) {
		struct cref_pool *p = kpool(t);

		ck_assert_uint_eq(cref_pool_threads(p), t);
		for (uint64_t count = 0; count <= 1000; count += 37)
			for (int g = 0; g < 5; g++) {
				struct marks m = {.grain = grains[g],
						  .count = count};

				cref_pool_run(p, mark, &m, count, grains[g]);
				ck_assert_uint_eq(m.bad, 0);
				for (uint64_t i = 0; i < 1000; i++)
					ck_assert_uint_eq(m.seen[i], i < count);
			}
		cref_pool_destroy(p);
	}
}
END_TEST

START_TEST(pool_none)
{
	struct marks m = {.grain = 1, .count = 10};

	cref_pool_run(NULL, mark, &m, 10, 1);
	ck_assert_uint_eq(m.seen[9], 1);
	ck_assert_uint_eq(cref_pool_threads(NULL), 1);
	cref_pool_destroy(NULL);
}
END_TEST

static void nest(void *ctx, uint64_t begin, uint64_t end)
{
	struct marks *m = ctx;

	for (uint64_t i = begin; i < end; i++)
		cref_pool_run(m->pool, mark, m, 1000, 1);
}

START_TEST(pool_nested)
{
	struct marks m = {.grain = 1, .count = 1000, .pool = kpool(3)};

	cref_pool_run(m.pool, nest, &m, 20, 1);
	for (int i = 0; i < 1000; i++)
		ck_assert_uint_eq(m.seen[i], 20);
	cref_pool_destroy(m.pool);
}
END_TEST

static void *hammer(void *arg)
{
	struct marks *m = arg;

	for (int i = 0; i < 2000; i++)
		cref_pool_run(m->pool, mark, m, 7 + (uint64_t)i % 90, 1);
	return NULL;
}

// Many short loops, some by two callers at once; workers fall asleep between.
START_TEST(pool_concurrent)
{
	struct cref_pool *p = kpool(4);

	for (int round = 0; round < 3; round++) {
		struct marks a = {.grain = 1, .count = 1000, .pool = p};
		struct marks b = {.grain = 1, .count = 1000, .pool = p};
		const struct timespec nap = {0, 2000000};
		pthread_t id;

		ck_assert_int_eq(pthread_create(&id, NULL, hammer, &b), 0);
		hammer(&a);
		pthread_join(id, NULL);
		ck_assert_uint_eq(a.seen[6], 2000);
		ck_assert_uint_eq(b.seen[6], 2000);
		nanosleep(&nap, NULL);
	}
	cref_pool_destroy(p);
}
END_TEST

static int32_t create_two(void *host, const char *name, void (*fn)(void *),
			  void *arg, void **out)
{
	int *left = host;

	if ((*left)-- == 0)
		return GENAI_E_NOMEM;
	return kthread_create(NULL, name, fn, arg, out);
}

START_TEST(pool_no_threads)
{
	for (int n = 0; n < 3; n++) {
		int left = n;

		ck_assert_ptr_null(
			cref_pool_create(5, create_two, kthread_join, &left));
	}
}
END_TEST

// ---- functions ----

static void accurate(float (*fn)(float), double (*exact)(double), float from,
		     float to, double rel)
{
	for (int i = 0; i <= 20000; i++) {
		const float x = from + (to - from) * (float)i / 20000;
		const double want = exact(x), got = fn(x);

		ck_assert_msg(fabs(got - want) <= fabs(want) * rel + 1.5e-45,
			      "f(%.9g) is %.9g, must be %.9g", x, got, want);
	}
}

static float tanh_of(float x)
{
	cref_vec_tanh(&x, &x, 1);
	return x;
}

static double exact_sigmoid(double x)
{
	return 1 / (1 + exp(-x));
}

START_TEST(functions)
{
	for (int level = 0; level <= CREF_LEVEL_AVX512; level++) {
		cref_simd_force(level);
		accurate(cref_expf, exp, -87, 88, 1.3e-7);
		accurate(tanh_of, tanh, -12, 12, 3e-7);
		accurate(tanh_of, tanh, -0.7f, 0.7f, 3e-7);
		accurate(cref_sigmoidf, exact_sigmoid, -80, 80, 3e-7);
		ck_assert(cref_expf(0) == 1);
		ck_assert(cref_expf(-INFINITY) == 0);
		ck_assert(cref_expf(INFINITY) == INFINITY);
		ck_assert(cref_expf(89) == INFINITY);
		ck_assert(cref_expf(-100) > 0); // below the normal numbers
		ck_assert(cref_expf(-104) == 0);
		ck_assert(isnan(cref_expf(NAN)));
		ck_assert(isnan(tanh_of(NAN)));
		ck_assert(tanh_of(INFINITY) == 1);
		ck_assert(tanh_of(-50) == -1);
		ck_assert(signbit(tanh_of(-0.0f)));
		ck_assert(cref_sigmoidf(-INFINITY) == 0);
		ck_assert(cref_sigmoidf(0) == 0.5f);
	}
	cref_simd_force(-1);
}
END_TEST

// The same bits at every level, for odd lengths.
START_TEST(functions_levels)
{
	uint64_t seed = 9;
	float *x = kfloats(&seed, GENAI_DT_F32, 777, 100), y[4][777];
	float *w = kfloats(&seed, GENAI_DT_F32, 777, 3);
	float sums[3][2];

	for (int level = 0; level <= CREF_LEVEL_AVX512; level++) {
		cref_simd_force(level);
		for (uint64_t n = 0; n <= 777; n += 37) {
			float *d = y[level == 0 ? 0 : 1];

			cref_vec_exp(d, x, n);
			if (level)
				ck_assert_mem_eq(d, y[0], n * 4);
			else
				cref_vec_exp(y[0], x, 777);
		}
		cref_vec_tanh(y[2], x, 777);
		cref_vec_sigmoid(y[2], y[2], 777);
		if (level)
			ck_assert_mem_eq(y[2], y[3], sizeof(y[2]));
		memcpy(y[3], y[2], sizeof(y[2]));
		sums[level][0] = cref_vec_dot(x, w, 777);
		sums[level][1] = cref_vec_sum(x, 777);
		ck_assert_mem_eq(sums[level], sums[0], sizeof(sums[0]));
	}
	cref_simd_force(-1);
	free(x);
	free(w);
}
END_TEST

// All halves widen and narrow to themselves; ties go to even.
START_TEST(conversions)
{
	static const float odd[] = {65519.99f, 65520,	1e-8f,	 3e-8f,
				    5.9e-8f,   6.1e-5f, 2049,	 2051,
				    -0.0f,     1e38f,	3.4e38f, 1e-40f};

	for (int level = 0; level <= CREF_LEVEL_AVX512; level++) {
		cref_simd_force(level);
		for (uint32_t i = 0; i < 65536; i += 16) {
			uint16_t h[16], g[16];
			float f[16];

			for (uint32_t dt = GENAI_DT_F16; dt <= GENAI_DT_BF16;
			     dt += GENAI_DT_BF16 - GENAI_DT_F16) {
				for (uint32_t j = 0; j < 16; j++)
					h[j] = (uint16_t)(i + j);
				cref_widen(f, h, dt, 16);
				cref_narrow(g, dt, f, 16);
				for (uint32_t j = 0; j < 16; j++) {
					const float s = cref_load(h, dt, j);

					ck_assert_uint_eq(cref_bits(s),
							  cref_bits(f[j]));
					if (!isnan(f[j]))
						ck_assert_uint_eq(g[j], h[j]);
					else
						ck_assert(isnan(
							cref_load(g, dt, j)));
				}
			}
		}
		for (size_t j = 0; j < sizeof(odd) / sizeof(odd[0]); j++) {
			uint16_t g, b;

			cref_narrow(&g, GENAI_DT_F16, &odd[j], 1);
			cref_narrow(&b, GENAI_DT_BF16, &odd[j], 1);
			ck_assert_uint_eq(g, cref_f32_to_f16(odd[j]));
			ck_assert_uint_eq(b, cref_f32_to_bf16(odd[j]));
		}
	}
	cref_simd_force(-1);
	ck_assert_uint_eq(cref_f32_to_f16(65519.99f), 0x7bff);
	ck_assert_uint_eq(cref_f32_to_f16(65520), 0x7c00);
	ck_assert_uint_eq(cref_f32_to_f16(2049), 0x6800); // tie to even: 2048
	ck_assert_uint_eq(cref_f32_to_f16(2051), 0x6802);
	ck_assert_uint_eq(cref_f32_to_f16(3e-8f), 1);
	ck_assert_uint_eq(cref_f32_to_bf16(3.4e38f), 0x7f80);
	ck_assert_uint_eq(cref_f32_to_bf16(1.00390625f), 0x3f80);
}
END_TEST

// ---- GatherBlockQuantized ----

static int32_t gather(struct knode *k)
{
	int32_t rc = knode_prepare(k, cref_gather_bits_prepare);

	return rc ? rc : knode_run(k, cref_gather_bits_run, NULL, 0, 0);
}

static void gather_node(struct knode *k, int64_t block)
{
	knode_init(k, "GatherBlockQuantized", 4, 1);
	knode_int(k, "block_size", block);
	knode_int(k, "gather_axis", 0);
	knode_int(k, "quantize_axis", 1);
}

START_TEST(gather_bytes)
{
	unsigned char q[3 * 24], z[3] = {0x53, 0x09, 0xf1};
	float scale[3 * 2] = {1, 2, 0.5f, -1, 0.25f, 8}, y[4 * 48];
	int64_t index[4] = {2, 0, -1, 1};
	struct knode k;

	for (int i = 0; i < 72; i++)
		q[i] = (unsigned char)(i * 37 + 5);
	for (int zero = 0; zero < 2; zero++) {
		gather_node(&k, 32);
		knode_in(&k, 0, GENAI_DT_U8, q, DIMS(3, 24));
		knode_in(&k, 1, GENAI_DT_I64, index, DIMS(2, 2));
		knode_in(&k, 2, GENAI_DT_F32, scale, DIMS(3, 2));
		if (zero)
			knode_in(&k, 3, GENAI_DT_U8, z, DIMS(3, 1));
		k.t[EXEC_MAX_IN].data = y;
		ck_assert_msg(!gather(&k), "%s", k.err.text);
		ck_assert_uint_eq(k.n.out[0]->rank, 3);
		ck_assert_int_eq(k.n.out[0]->dims[2], 48);
		for (int i = 0; i < 4; i++)
			for (int d = 0; d < 48; d++) {
				const int r = (int)(index[i] + 3) % 3;
				const int v =
					q[r * 24 + d / 2] >> d % 2 * 4 & 15;
				const int w =
					zero ? z[r] >> d / 32 * 4 & 15 : 8;

				ck_assert_float_eq(
					y[i * 48 + d],
					(float)(v - w) * scale[r * 2 + d / 32]);
			}
		knode_free(&k);
	}
}
END_TEST

// int4 and uint4 elements are packed across rows: odd blocks, odd rows.
START_TEST(gather_typed)
{
	unsigned char q[26], z[2] = {0x7f, 0x08};
	float scale[3] = {1, 0.5f, 3}, y[3 * 17];
	int32_t index[3] = {0, 1, 2};
	struct knode k;

	for (int i = 0; i < 26; i++)
		q[i] = (unsigned char)(i * 41 + 3);
	for (int sign = 0; sign < 2; sign++) {
		const uint32_t dt = sign ? GENAI_DT_I4 : GENAI_DT_U4;

		gather_node(&k, 32);
		knode_in(&k, 0, dt, q, DIMS(3, 17));
		knode_in(&k, 1, GENAI_DT_I32, index, DIMS(3));
		knode_in(&k, 2, GENAI_DT_F32, scale, DIMS(3, 1));
		if (!sign)
			knode_in(&k, 3, dt, z, DIMS(3, 1));
		k.t[EXEC_MAX_IN].data = y;
		ck_assert_msg(!gather(&k), "%s", k.err.text);
		for (int e = 0; e < 51; e++) {
			int v = q[e / 2] >> e % 2 * 4 & 15, w = 0;

			if (sign)
				v = v > 7 ? v - 16 : v;
			else
				w = z[e / 17 / 2] >> e / 17 % 2 * 4 & 15;
			ck_assert_float_eq(y[e],
					   (float)(v - w) * scale[e / 17]);
		}
		knode_free(&k);
	}
}
END_TEST

START_TEST(gather_refusals)
{
	unsigned char q[48] = {0};
	float scale[3] = {1, 1, 1}, y[96];
	int64_t index[1] = {3};
	struct knode k;

	gather_node(&k, 32);
	knode_in(&k, 0, GENAI_DT_U8, q, DIMS(3, 16));
	knode_in(&k, 1, GENAI_DT_I64, index, DIMS(1));
	knode_in(&k, 2, GENAI_DT_F32, scale, DIMS(3, 1));
	k.t[EXEC_MAX_IN].data = y;
	ck_assert_int_eq(gather(&k), GENAI_E_INVAL);
	ck_assert_ptr_nonnull(strstr(k.err.text, "index 3 at 0"));
	index[0] = -4;
	ck_assert_int_eq(gather(&k), GENAI_E_INVAL);
	index[0] = -3;
	ck_assert_int_eq(gather(&k), 0);
	knode_in(&k, 2, GENAI_DT_F32, scale, DIMS(2, 1));
	ck_assert_int_eq(gather(&k), GENAI_E_INVAL);
	k.attrs[1].i = 1;
	ck_assert_int_eq(gather(&k), GENAI_E_UNSUPPORTED);
	k.attrs[0].i = 33;
	ck_assert_int_eq(gather(&k), GENAI_E_INVAL);
	knode_free(&k);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cpu_pool");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 60);
	tcase_add_test(t, pool_covers);
	tcase_add_test(t, pool_none);
	tcase_add_test(t, pool_nested);
	tcase_add_test(t, pool_concurrent);
	tcase_add_test(t, pool_no_threads);
	tcase_add_test(t, functions);
	tcase_add_test(t, functions_levels);
	tcase_add_test(t, conversions);
	tcase_add_test(t, gather_bytes);
	tcase_add_test(t, gather_typed);
	tcase_add_test(t, gather_refusals);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
