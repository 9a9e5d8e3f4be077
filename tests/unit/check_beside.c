// check_beside.c - rows that cores of the host multiply: the same bits on every
// level, those of the order that beside.h states; and the threads.
#include <math.h>
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "modules/cuda_ep/beside.h"
#include "tests/unit/harness.h"

static uint64_t state;

static uint32_t draw(void)
{
	state = state * UINT64_C(6364136223846793005) + 1442695040888963407u;
	return (uint32_t)(state >> 33);
}

struct matrix {
	struct cep_form4 f;
	uint32_t rows;
	unsigned char *codes, *scales, *zeros;
	unsigned char *x; // q and their powers, as digits
	int *q;
	float *power;
};

// Halves of a usual size, and some that are subnormal, zero or negative.
static uint16_t half(bool bf16)
{
	uint32_t r = draw();

	if (r % 61 == 0)
		return (uint16_t)(r >> 8 & 0x83ff);
	return bf16 ? (uint16_t)((r & 0x8000) | (110 + (r >> 16) % 20) << 7 |
				 (r & 127))
		    : (uint16_t)((r & 0x8000) | (5 + (r >> 16) % 14) << 10 |
				 (r & 1023));
}

// Exactly as big as it says, so that a read behind the end is found.
static void *bytes(size_t n)
{
	unsigned char *p = malloc(n);

	ck_assert_ptr_nonnull(p);
	for (size_t i = 0; i < n; i++)
		p[i] = (unsigned char)draw();
	return p;
}

static void *halves(size_t n, bool bf16)
{
	uint16_t *p = malloc(2 * n);

	ck_assert_ptr_nonnull(p);
	for (size_t i = 0; i < n; i++)
		p[i] = half(bf16);
	return p;
}

// Integers of up to 22 bits and a sign, as the device lays them out.
static void make_x(struct matrix *m)
{
	uint32_t k = m->f.k, n = (k + 127) / 128 * CEP_BESIDE_DIGITS;

	m->x = calloc(1, n);
	m->q = calloc(k, sizeof(*m->q));
	m->power = calloc(k / 32, sizeof(*m->power));
	for (uint32_t b = 0; b < k / 32; b++) {
		unsigned char *x = m->x + b / 4 * CEP_BESIDE_DIGITS;
		int sum = 0, large = draw() % 5 == 0;

		m->power[b] = ldexpf(1, (int)(draw() % 40) - 30);
		for (uint32_t i = 0; i < 32; i++) {
			int q = (int)(draw() % 8388609) - 4194304, left;

			if (large) // the most that may be
				q = q < 0 ? -4194304 : 4194304;
			m->q[32 * b + i] = left = q;
			sum += q;
			for (uint32_t d = 0; d < 3; d++) {
				signed char digit = (signed char)(left & 255);

				x[128 * d + i % 2 * 64 + b % 4 * 16 +
				  i / 8 * 4 + i % 8 / 2] = (unsigned char)digit;
				left = (left - digit) / 256;
			}
			ck_assert_int_eq(left, 0);
		}
		memcpy(x + 384 + 4 * (b % 4), &m->power[b], 4);
		memcpy(x + 400 + 4 * (b % 4), &sum, 4);
	}
}

static struct matrix make(uint32_t k, uint32_t shift, uint32_t zp, bool bf16,
			  uint32_t rows)
{
	struct matrix m = {.rows = rows};
	uint32_t block = 32u << shift;

	m.f = (struct cep_form4){
		.k = k,
		.shift = shift,
		.blocks = (k + block - 1) / block,
		.zp_kind = zp,
		.bf16 = bf16,
	};
	m.f.row_bytes = m.f.blocks * block / 2;
	m.f.zp_row = (m.f.blocks + 1) / 2;
	m.codes = bytes((size_t)rows * m.f.row_bytes);
	m.scales = halves((size_t)rows * m.f.blocks, bf16);
	m.zeros = zp == CEP_ZP_PACKED ? bytes((size_t)rows * m.f.zp_row)
		  : zp		      ? halves((size_t)rows * m.f.blocks, bf16)
				      : NULL;
	make_x(&m);
	return m;
}

static void drop(struct matrix *m)
{
	free(m->codes);
	free(m->scales);
	free(m->zeros);
	free(m->x);
	free(m->q);
	free(m->power);
}

static struct cep_rows4 rows_of(const struct matrix *m)
{
	return (struct cep_rows4){m->codes, m->scales, m->zeros};
}

static float of(const struct matrix *m, const unsigned char *p, size_t i)
{
	uint16_t h;
	uint32_t b;
	float v;

	memcpy(&h, p + 2 * i, 2);
	if (m->f.bf16) {
		b = (uint32_t)h << 16;
		memcpy(&v, &b, 4);
		return v;
	}
	v = ldexpf((float)(h & 1023) + (h >> 10 & 31 ? 1024 : 0),
		   (h >> 10 & 31 ? (int)(h >> 10 & 31) : 1) - 25);
	return h & 0x8000 ? -v : v;
}

// As the header says, with no regard to speed.
static float by_the_book(const struct matrix *m, uint32_t row)
{
	float lane[32] = {0};

	for (uint32_t i = 0; i < m->f.k / 32; i++) {
		uint32_t b = i * 32 / (32u << m->f.shift);
		size_t at = (size_t)row * m->f.blocks + b;
		int64_t v = 0, sum = 0, z = 8;
		float d;

		for (uint32_t e = 0; e < 32; e++) {
			unsigned c = m->codes[(size_t)row * m->f.row_bytes +
					      i * 16 + e / 2];

			v += (int64_t)(c >> 4 * (e % 2) & 15) *
			     m->q[32 * i + e];
			sum += m->q[32 * i + e];
		}
		if (m->f.zp_kind == CEP_ZP_PACKED)
			z = m->zeros[row * m->f.zp_row + b / 2] >> 4 * (b % 2) &
			    15;
		if (m->f.zp_kind == CEP_ZP_FLOAT)
			d = fmaf(-of(m, m->zeros, at), (float)sum, (float)v);
		else
			d = (float)(v - z * sum);
		lane[i % 32] = fmaf(d, of(m, m->scales, at) * m->power[i],
				    lane[i % 32]);
	}
	for (int o = 16; o; o /= 2)
		for (int i = 0; i < o; i++)
			lane[i] = lane[i] + lane[i + o];
	return lane[0];
}

static const uint32_t ks[] = {32, 224, 256, 288, 512, 992, 2048, 4864};

START_TEST(same_bits)
{
	uint32_t zp = (uint32_t)_i % 3, shift = (uint32_t)_i / 3 % 5;
	bool bf16 = _i / 15;
	float out[7];

	state = (uint64_t)_i + 1;
	for (size_t n = 0; n < sizeof(ks) / sizeof(ks[0]); n++) {
		struct matrix m = make(ks[n], shift, zp, bf16, 9);
		struct cep_rows4 r = rows_of(&m);

		for (int l = 0; l <= (int)cep_beside_level(); l++) {
			cep_multiply4((enum cep_level)l, &m.f, &r, 2, 7, m.x,
				      out);
			for (uint32_t i = 0; i < 7; i++) {
				float want = by_the_book(&m, 2 + i);

				ck_assert_msg(!memcmp(&out[i], &want, 4),
					      "level %d, k %u, shift %u, zero "
					      "points %u, row %u: %a, not %a",
					      l, ks[n], shift, zp, 2 + i,
					      (double)out[i], (double)want);
			}
		}
		drop(&m);
	}
}
END_TEST

// ---- the threads ----

static void *take(void *ctx, uint64_t n, const char *tag)
{
	return aligned_alloc(64, (n + 64) / 64 * 64);
}

static void give(void *ctx, void *p)
{
	free(p);
}

static void no_log(void *ctx, int32_t level, const char *fmt, ...)
{
}

static int32_t set_error(void *ctx, struct genai_error *err, int32_t code,
			 const char *fmt, ...)
{
	return code;
}

static int starts_left; // threads that may be started
static int alive;

struct started {
	pthread_t id;
	void (*fn)(void *arg);
	void *arg;
};

static void *run(void *arg)
{
	struct started *s = arg;

	s->fn(s->arg);
	return NULL;
}

static int32_t create(void *ctx, const char *name, void (*fn)(void *arg),
		      void *arg, void **out_thread)
{
	struct started *s = malloc(sizeof(*s));

	if (!starts_left--) {
		free(s);
		return GENAI_E_LIMIT;
	}
	s->fn = fn;
	s->arg = arg;
	ck_assert_int_eq(pthread_create(&s->id, NULL, run, s), 0);
	alive++;
	*out_thread = s;
	return 0;
}

static void join(void *ctx, void *thread)
{
	struct started *s = thread;

	pthread_join(s->id, NULL);
	free(s);
	alive--;
}

static const struct genai_host host = {
	.size = sizeof(host),
	.alloc = take,
	.free = give,
	.log = no_log,
	.error_set = set_error,
	.thread_create = create,
	.thread_join = join,
};

struct posted {
	struct matrix m[2];
	struct cep_job job, *jobs[3];
	struct cep_bell *bell;
	struct cep_box box;
};

static void post(struct posted *p, uint32_t threads, struct cep_team **out_team)
{
	struct genai_error err = GENAI_ERROR_INIT;
	uint32_t n;

	memset(p, 0, sizeof(*p));
	state = 77;
	for (int i = 0; i < 2; i++)
		p->m[i] = make(512, 0, CEP_ZP_NONE, false, 700);
	memcpy(p->m[1].x, p->m[0].x, 4 * CEP_BESIDE_DIGITS);
	memcpy(p->m[1].q, p->m[0].q, 512 * sizeof(int));
	memcpy(p->m[1].power, p->m[0].power, 16 * sizeof(float));
	p->job.form = p->m[0].f;
	p->job.n_matrices = 2;
	p->job.rows = 700;
	p->job.x = p->m[0].x;
	p->job.sums = calloc(1400, sizeof(float));
	// two parts, not next to each other
	p->job.n_parts = 2;
	for (uint32_t i = 0; i < 2; i++) {
		struct cep_beside_part *at = &p->job.parts[i];

		at->row = 16 + 400 * i;
		at->n = 200 + i;
		for (int k = 0; k < 2; k++)
			at->m[k] = (struct cep_rows4){
				p->m[k].codes + at->row * p->m[k].f.row_bytes,
				p->m[k].scales + at->row * p->m[k].f.blocks * 2,
				NULL};
	}
	cep_job_close(&p->job);
	ck_assert_uint_gt(p->job.n_chunks, 2);
	p->jobs[2] = &p->job;
	p->bell = aligned_alloc(64, sizeof(*p->bell));
	memset(p->bell, 0, sizeof(*p->bell));
	p->box = (struct cep_box){.bell = p->bell, .jobs = p->jobs};
	starts_left = 1000;
	ck_assert_int_eq(cep_team_start(&host, threads, out_team, &n, &err), 0);
	ck_assert_uint_ge(n, 1);
	ck_assert_uint_le(n, threads);
	cep_team_join(*out_team, &p->box);
}

static void take_down(struct posted *p, struct cep_team *t)
{
	cep_team_leave(t, &p->box);
	cep_team_stop(t);
	for (int i = 0; i < 2; i++)
		drop(&p->m[i]);
	free(p->job.sums);
	free(p->bell);
}

// As long as the answer takes; a turn that is not answered is a time-out.
static void ring(struct posted *p, uint64_t rung)
{
	atomic_store(&p->bell->rung, rung);
	while (atomic_load(&p->bell->answered) != rung)
		sched_yield();
}

START_TEST(answers)
{
	struct cep_team *t;
	struct posted p;

	post(&p, (uint32_t)_i, &t);
	for (uint64_t turn = 1; turn <= 100; turn++) {
		memset(p.job.sums, 0, 1400 * sizeof(float));
		ring(&p, UINT64_C(2) << 32 | turn);
		for (uint32_t i = (uint32_t)turn % 16; i < 1400; i += 16) {
			uint32_t row = i % 700;
			bool mine = (row >= 16 && row < 216) ||
				    (row >= 416 && row < 617);
			float want = mine ? by_the_book(&p.m[i / 700], row) : 0;

			ck_assert(!memcmp(&p.job.sums[i], &want, 4));
		}
	}
	take_down(&p, t);
	ck_assert_int_eq(alive, 0);
}
END_TEST

// Boxes come and go while another one's bell rings.
START_TEST(boxes)
{
	struct cep_team *t;
	struct posted p;

	post(&p, 2, &t);
	for (uint64_t turn = 1; turn <= 50; turn++) {
		struct cep_bell *bell = aligned_alloc(64, sizeof(*bell));
		struct cep_box box = {.bell = bell, .jobs = p.jobs};

		memset(bell, 0, sizeof(*bell));
		atomic_store(&p.bell->rung, UINT64_C(2) << 32 | turn);
		cep_team_join(t, &box);
		while (atomic_load(&p.bell->answered) !=
		       (UINT64_C(2) << 32 | turn))
			sched_yield();
		cep_team_leave(t, &box);
		free(bell); // with a sanitizer: nobody looks at it any more
	}
	take_down(&p, t);
}
END_TEST

// More than there are cores: no more than there are.  One that cannot be
// started: none is left.
START_TEST(starts)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct cep_team *t = NULL;
	cpu_set_t all, one;
	uint32_t n;

	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	starts_left = 5000;
	ck_assert_int_eq(cep_team_start(&host, 1024, &t, &n, &err), 0);
	ck_assert_uint_eq(n, (uint32_t)CPU_COUNT(&all));
	cep_team_stop(t);
	ck_assert_int_eq(alive, 0);
	CPU_ZERO(&one);
	for (int i = 0; i < CPU_SETSIZE && !CPU_COUNT(&one); i++)
		if (CPU_ISSET(i, &all))
			CPU_SET(i, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	ck_assert_int_eq(cep_team_start(&host, 4, &t, &n, &err), 0);
	ck_assert_uint_eq(n, 1);
	cep_team_stop(t);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
	t = NULL;
	starts_left = CPU_COUNT(&all) - 1;
	ck_assert_int_lt(cep_team_start(&host, 1024, &t, &n, &err), 0);
	ck_assert_ptr_null(t);
	ck_assert_int_eq(alive, 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("beside");
	TCase *t = tcase_create("rows");

	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, same_bits, 0, 30);
	tcase_add_loop_test(t, answers, 1, 5);
	tcase_add_test(t, boxes);
	tcase_add_test(t, starts);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
