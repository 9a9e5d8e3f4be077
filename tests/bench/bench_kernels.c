// bench_kernels.c - times of cpu_ref's hot kernels at SmolLM2-135M's shapes.
// usage: bench_kernels [threads [level]]
// Every figure is the best of several runs, with random weights.  One thread:
// processor time, so that a busy machine disturbs less.
#include <stdio.h>
#include <time.h>

#include "tests/unit/kernel_node.h"
#include "modules/cpu_ref/attention.h"

#define LAYERS 30

static struct cref_pool *pool;
static uint64_t seed = 1;

static double now(void)
{
	struct timespec t;

	clock_gettime(cref_pool_threads(pool) == 1 ? CLOCK_PROCESS_CPUTIME_ID
						   : CLOCK_MONOTONIC,
		      &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

struct site {
	const char *name;
	uint64_t N, K;
	uint32_t bits;
	struct cref_nbits w[LAYERS];
	uint64_t layers;
};

static struct site sites[] = {
	{.name = "qkv", .N = 960, .K = 576, .bits = 4, .layers = LAYERS},
	{.name = "o", .N = 576, .K = 576, .bits = 4, .layers = LAYERS},
	{.name = "gate", .N = 1536, .K = 576, .bits = 4, .layers = LAYERS},
	{.name = "up", .N = 1536, .K = 576, .bits = 4, .layers = LAYERS},
	{.name = "down", .N = 576, .K = 1536, .bits = 4, .layers = LAYERS},
	{.name = "head", .N = 49152, .K = 576, .bits = 8, .layers = 1},
};
#define SITES (sizeof(sites) / sizeof(sites[0]))

static void fill(struct site *s)
{
	for (uint64_t l = 0; l < s->layers; l++) {
		struct cref_nbits *w = &s->w[l];
		const uint64_t blocks = s->K / 32;
		unsigned char *b;

		*w = (struct cref_nbits){.K = s->K,
					 .N = s->N,
					 .bits = s->bits,
					 .block = 32,
					 .s_dtype = GENAI_DT_F32,
					 .z_kind = CREF_Z_FLOAT};
		w->b_row = blocks * 4 * s->bits;
		w->s_row = w->z_row = blocks * 4;
		b = malloc(s->N * w->b_row);
		for (uint64_t i = 0; i < s->N * w->b_row; i++)
			b[i] = (unsigned char)krand(&seed);
		w->b = b;
		w->s = kfloats(&seed, GENAI_DT_F32, s->N * blocks, 0.01);
		w->z = kfloats(&seed, GENAI_DT_F32, s->N * blocks, 8);
	}
}

// One pass over all layers with M rows; seconds per site into t.
static double pass(uint64_t M, bool head, float *a, float *y, void *ws,
		   double *t)
{
	const double begin = now();

	for (uint64_t l = 0; l < LAYERS; l++)
		for (size_t i = 0; i < SITES; i++) {
			const struct site *s = &sites[i];
			const double from = now();
			struct cref_nbits_job j = {.w = s->w[l % s->layers],
						   .a = a,
						   .a_dtype = GENAI_DT_F32,
						   .y_dtype = GENAI_DT_F32,
						   .M = M,
						   .lda = s->K,
						   .ldy = s->N,
						   .y = y,
						   .ws = ws};

			if (l >= s->layers || (s->bits == 8 && !head))
				continue;
			cref_nbits_mul(&j, pool);
			t[i] += now() - from;
		}
	return now() - begin;
}

static void nbits(uint64_t M, bool head, int runs)
{
	float *a = kfloats(&seed, GENAI_DT_F32, M * 1536, 1);
	float *y = calloc(head ? M * 49152 : M * 1536, 4);
	void *ws = aligned_alloc(64, cref_nbits_ws(M, 1536));
	double best = 1e9, site[SITES];
	uint64_t macs = 0;

	for (int r = 0; r < runs; r++) {
		double t[SITES] = {0}, all = pass(M, head, a, y, ws, t);

		if (all < best) {
			best = all;
			memcpy(site, t, sizeof(site));
		}
	}
	printf("nbits M %u: %.3f ms, %.0f tok/s\n", (unsigned)M, best * 1e3,
	       (double)M / best);
	for (size_t i = 0; i < SITES; i++) {
		const struct site *s = &sites[i];
		const double mac = (double)(M * s->N * s->K * s->layers);
		const double bytes = (double)(s->N * s->K * s->layers) *
				     (s->bits / 8.0 + 0.25);

		if (site[i] == 0)
			continue;
		macs += (uint64_t)mac;
		printf("  %-5s %8.3f ms %7.1f GMAC/s %6.1f GB/s\n", s->name,
		       site[i] * 1e3, mac / site[i] * 1e-9,
		       bytes / site[i] * 1e-9);
	}
	printf("  all   %8.3f ms %7.1f GMAC/s\n", best * 1e3,
	       (double)macs / best * 1e-9);
	free(a);
	free(y);
	free(ws);
}

static void dense(uint64_t M, uint64_t K, uint64_t N, uint32_t dtype, int runs)
{
	const uint64_t copies = 64000000 / (K * N * ksize(dtype)) + 1;
	float *a = kfloats(&seed, GENAI_DT_F32, M * K, 1);
	char *b = kfloats(&seed, dtype, K * N * copies, 1);
	float *c = calloc(M * N, 4);
	double best = 1e9;

	for (int r = 0; r < runs; r++) {
		const double from = now();

		for (uint64_t i = 0; i < copies; i++) {
			struct cref_mm_job j = {a,
						b + i * K * N * ksize(dtype),
						c,
						dtype,
						GENAI_DT_F32,
						M,
						N,
						K,
						K,
						N,
						N};

			cref_mm_mul(&j, pool);
		}
		if (now() - from < best)
			best = now() - from;
	}
	best /= (double)copies;
	printf("matmul %ux%ux%u dtype %u: %.1f us %.1f GMAC/s %.1f GB/s\n",
	       (unsigned)M, (unsigned)K, (unsigned)N, dtype, best * 1e6,
	       (double)(M * K * N) / best * 1e-9,
	       (double)(K * N * ksize(dtype)) / best * 1e-9);
	free(a);
	free(b);
	free(c);
}

static void attn(uint64_t S, uint64_t T, uint64_t N, uint64_t Nkv, uint64_t H,
		 int runs)
{
	const int64_t past = (int64_t)(T - S), total = (int64_t)T;
	float *kv = kfloats(&seed, GENAI_DT_F32, 2 * T * Nkv * H, 1);
	float *q = kfloats(&seed, GENAI_DT_F32, S * N * H, 1);
	float *y = calloc(S * N * H, 4);
	const int64_t row = (int64_t)(Nkv * H), head = (int64_t)H;
	struct cref_attn a = {.B = 1,
			      .S = S,
			      .N = N,
			      .Nkv = Nkv,
			      .H = H,
			      .Hv = H,
			      .q = q,
			      .past = &past,
			      .total = &total,
			      .causal = true,
			      .scale = 0.125f,
			      .out = y,
			      .out_dtype = GENAI_DT_F32};
	double best = 1e9;

	a.k = (struct cref_kv){kv, GENAI_DT_F32, 0, head, row};
	a.v = (struct cref_kv){kv + T * Nkv * H, GENAI_DT_F32, 0, head, row};
	a.ws = aligned_alloc(64,
			     (cref_attn_ws(1, S, N, Nkv, H, H) + 63) / 64 * 64);
	for (int r = 0; r < runs; r++) {
		const double from = now();

		cref_attn_run(&a, pool);
		if (now() - from < best)
			best = now() - from;
	}
	printf("attention S %u T %u heads %u/%u of %u: %.1f us, x30 %.3f ms\n",
	       (unsigned)S, (unsigned)T, (unsigned)N, (unsigned)Nkv,
	       (unsigned)H, best * 1e6, best * 30e3);
	free(a.ws);
	free(kv);
	free(q);
	free(y);
}

static void nothing(void *ctx, uint64_t begin, uint64_t end)
{
	(void)ctx;
	(void)begin;
	(void)end;
}

static void empty_loop(void)
{
	double best = 1e9;

	for (int r = 0; r < 50; r++) {
		const double from = now();

		for (int i = 0; i < 1000; i++)
			cref_pool_run(pool, nothing, NULL, 100, 1);
		if (now() - from < best)
			best = now() - from;
	}
	printf("empty loop: %.3f us\n", best * 1e3);
}

int main(int argc, char **argv)
{
	const int threads = argc > 1 ? atoi(argv[1]) : 2;

	cref_simd_force(argc > 2 ? atoi(argv[2]) : -1);
	pool = kpool((uint32_t)threads);
	printf("%s, %d threads\n", cref_simd_name(), threads);
	empty_loop();
	for (size_t i = 0; i < SITES; i++)
		fill(&sites[i]);
	nbits(1, true, 300);
	nbits(4, true, 5);
	nbits(512, false, 3);
	dense(1, 576, 1536, GENAI_DT_F32, 10);
	dense(1, 576, 1536, GENAI_DT_F16, 10);
	dense(4, 576, 1536, GENAI_DT_F32, 10);
	dense(512, 576, 1536, GENAI_DT_F32, 2);
	dense(512, 1536, 576, GENAI_DT_F16, 2);
	attn(1, 128, 9, 3, 64, 100);
	attn(1, 512, 9, 3, 64, 100);
	attn(1, 2048, 9, 3, 64, 30);
	attn(512, 512, 9, 3, 64, 10);
	cref_pool_destroy(pool);
	return 0;
}
