// suite_many.c - a device with more of everything: twelve streams, sixty-four
// points, copies of 64 MiB, recordings of thousands of units, streams whose
// numbers are used again, one reset after another.
#include "tests/conform/conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MIB (UINT64_C(1) << 20)
#define STREAMS 12
#define POINTS 64

static struct cf_rt r;

// ---- streams ----

static int32_t nothing(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	(void)err;
	return 0;
}

#define OLD 200

// The points of a stream are waited for long after they were made.
static void old_points(void)
{
	struct genai_stream *s, *behind[4];
	struct genai_point p[OLD], q[4];
	struct cf_gate g;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	cf_gate_close(&r, s, &g);
	for (uint32_t i = 0; i < OLD; i++) {
		cf_call(&r, s, "unit", nothing, NULL);
		p[i] = cf_mark(&r, s);
	}
	for (uint32_t i = 0; i < 4; i++) {
		behind[i] = cf_stream(&r, "behind");
		cf_wait(&r, behind[i], p[i * (OLD / 3 - 1)]);
		q[i] = cf_mark(&r, behind[i]);
		ck_assert_msg(r.st->poll(r.d, q[i], NULL) == GENAI_PENDING,
			      "who waits for point %u of %d is not held up",
			      i * (OLD / 3 - 1), OLD);
	}
	cf_gate_open(&g);
	CF_OK(r.ba->host_read(r.d, q, 4, UINT64_MAX, &cf_err));
	cf_drain(&r);
	for (uint32_t i = 0; i < 4; i++)
		cf_destroy(&r, behind[i]);
	cf_destroy(&r, s);
	cf_close(&r);
}

// Points of two streams, the one with the smaller number behind; two of one
// stream, the later one behind.
static void mixed(const char *const *sets)
{
	struct genai_stream *far, *near;
	struct genai_mem up, dev, down;
	struct genai_point p[2];

	cf_open(&r, 0, sets);
	far = cf_stream(&r, "far");
	near = cf_stream(&r, "near");
	up = cf_pinned(&r, 4096);
	down = cf_pinned(&r, 4096);
	dev = cf_alloc(&r, 4096);
	for (uint32_t i = 0; i < OLD; i++)
		cf_call(&r, far, "unit", nothing, NULL);
	p[1] = cf_mark(&r, far);
	cf_finish(&r, far);
	for (uint64_t i = 0; i < 4; i++) {
		cf_pattern(up.host, 4096, 60 + i);
		memset(down.host, 0, 4096);
		if (i % 2)
			p[0] = cf_mark(&r, near);
		cf_copy(&r, near, dev.range.addr, (uintptr_t)up.host, 4096,
			GENAI_COPY_H2D);
		cf_copy(&r, near, (uintptr_t)down.host, dev.range.addr, 4096,
			GENAI_COPY_D2H);
		if (i % 2)
			p[1] = cf_mark(&r, near);
		else
			p[0] = cf_mark(&r, near);
		CF_OK(r.ba->host_read(r.d, p, 2, UINT64_MAX, &cf_err));
		ck_assert_msg(!memcmp(down.host, up.host, 4096),
			      "point %u of 2 was not waited for",
			      i % 2 ? 2u : 1u);
		if (i % 2)
			p[1] = (struct genai_point){NULL, 0};
		cf_finish(&r, near);
	}
	cf_drain(&r);
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_free(&r, &dev);
	cf_destroy(&r, far);
	cf_destroy(&r, near);
	cf_close(&r);
}

static void mixed_points(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		mixed(cf_schedule(i));
}

// A token goes round over all streams, each of which does something else too.
static void relay(const char *const *sets)
{
	struct genai_stream *s[STREAMS];
	unsigned char token[64], got[64];
	struct genai_mem m;
	struct genai_point p = {0};
	uint64_t seed = cf_seed(1);
	uint32_t at = 0;

	cf_open(&r, 0, sets);
	m = cf_alloc(&r, (STREAMS + 1) * 64);
	cf_pattern(token, sizeof(token), 1);
	cf_put(&r, m.range.addr, token, sizeof(token));
	for (uint32_t i = 0; i < STREAMS; i++)
		s[i] = cf_stream(&r, "relay");
	for (uint32_t i = 0; i < 20 * STREAMS; i++) {
		uint32_t to = (at + 1 + cf_below(&seed, STREAMS - 1)) % STREAMS;

		cf_wait(&r, s[to], p);
		cf_copy(&r, s[to], m.range.addr + 64 * to,
			m.range.addr + 64 * at, 64, GENAI_COPY_D2D);
		p = cf_mark(&r, s[to]);
		// what was there before is gone once it has been read
		cf_wait(&r, s[at], p);
		cf_copy(&r, s[at], m.range.addr + 64 * at,
			m.range.addr + UINT64_C(64) * STREAMS, 64,
			GENAI_COPY_D2D);
		cf_wait(&r, s[to], cf_mark(&r, s[at]));
		p = cf_mark(&r, s[to]);
		at = to;
	}
	cf_drain(&r);
	cf_get(&r, got, m.range.addr + 64 * at, sizeof(got));
	ck_assert_msg(!memcmp(got, token, sizeof(got)),
		      "%s: a token that went over %d streams is another",
		      sets && sets[0] ? sets[0] : "", STREAMS);
	for (uint32_t i = 0; i < STREAMS; i++)
		cf_destroy(&r, s[i]);
	cf_free(&r, &m);
	cf_close(&r);
}

static void streams(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		relay(cf_schedule(i));
}

struct later {
	atomic_int *ran;
	int want; // so many before
	atomic_int early;
};

static int32_t run(void *ctx, void *const *mem, struct genai_error *err)
{
	struct later *l = ctx;

	(void)mem;
	(void)err;
	if (atomic_load(l->ran) < l->want)
		atomic_store(&l->early, 1);
	atomic_fetch_add(l->ran, 1);
	return 0;
}

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	return genai_fail(err, GENAI_E_FORMAT, "broken on purpose: %s",
			  (const char *)ctx);
}

static void recover(void)
{
	struct genai_ticket t = cf_drain(&r);

	CF_OK(r.st->reset(r.d, &t, &cf_err));
}

// A new stream has nothing of the one whose place it takes.
static void reused(const char *const *sets)
{
	struct genai_stream *home, *old, *new;
	struct genai_point p;

	cf_open(&r, 0, sets);
	home = cf_stream(&r, "home");
	for (int round = 0; round < 5; round++) {
		atomic_int ran = 0;
		struct later work[6], last = {&ran, 6, 0};

		old = cf_stream(&r, "old");
		for (int i = 0; i < 9; i++) {
			cf_call(&r, old, "before", run,
				&(struct later){&ran, 0, 0});
			p = cf_mark(&r, old);
			cf_wait(&r, home, p);
			cf_finish(&r, old);
		}
		if (round % 2) {
			cf_call(&r, old, "fails", break_down, "the old one");
			p = cf_mark(&r, old);
			CF_FAILS(GENAI_E_FORMAT,
				 r.ba->host_read(r.d, &p, 1, UINT64_MAX,
						 &cf_err));
		}
		cf_drain(&r);
		CF_OK(r.st->destroy(r.d, old, &cf_err));
		new = cf_stream(&r, "new");
		atomic_store(&ran, 0);
		for (int i = 0; i < 6; i++) {
			work[i] = (struct later){&ran, 0, 0};
			cf_call(&r, new, "work", run, &work[i]);
		}
		// lower than what home waited for on the old one
		p = cf_mark(&r, new);
		if (round % 2 == 0) {
			cf_wait(&r, home, p);
			cf_call(&r, home, "after", run, &last);
			cf_finish(&r, home);
		} else {
			cf_finish(&r, new);
		}
		ck_assert_msg(!last.early,
			      "a wait for a new stream was taken for one for "
			      "the old");
		ck_assert_int_eq(ran, round % 2 ? 6 : 7);
		recover();
		CF_OK(r.st->destroy(r.d, new, &cf_err));
	}
	cf_destroy(&r, home);
	cf_close(&r);
}

static void reuse(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		reused(cf_schedule(i));
}

// ---- copies ----

static void fill(void *p, uint64_t bytes, uint64_t seed)
{
	uint64_t *w = p;

	for (uint64_t i = 0; i < bytes / 8; i++)
		w[i] = cf_random(&seed);
}

static void large_copies(void)
{
	static const uint64_t sizes[] = {2 * MIB + 3, 4 * MIB, 16 * MIB - 1,
					 33 * MIB + 5, 64 * MIB};
	struct genai_mem up, a, b, down;
	struct genai_stream *s;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	up = cf_pinned(&r, 64 * MIB + 64);
	down = cf_pinned(&r, 64 * MIB + 64);
	a = cf_alloc(&r, 64 * MIB + 64);
	b = cf_alloc(&r, 64 * MIB + 64);
	fill(up.host, 64 * MIB, cf_seed(5));
	for (uint32_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint64_t n = sizes[i];
		unsigned char *d = down.host, *u = up.host;

		memset(d, 0xee, 64);
		memset(d + n, 0xee, 64);
		u[i * 1000] ^= 1; // not what was there
		u[n - 1] ^= 1;
		cf_copy(&r, s, a.range.addr + i, (uintptr_t)u, n,
			GENAI_COPY_H2D);
		cf_copy(&r, s, b.range.addr + 7, a.range.addr + i, n,
			GENAI_COPY_D2D);
		cf_copy(&r, s, (uintptr_t)d + 5, b.range.addr + 7, n,
			GENAI_COPY_D2H);
		cf_finish(&r, s);
		ck_assert_msg(!memcmp(d + 5, u, n), "%lu bytes came back wrong",
			      (unsigned long)n);
		for (int k = 0; k < 59; k++)
			ck_assert_msg(d[n + 5 + (uint64_t)k] == 0xee &&
					      d[k % 5] == 0xee,
				      "a copy of %lu bytes touched its "
				      "neighbours",
				      (unsigned long)n);
	}
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_free(&r, &a);
	cf_free(&r, &b);
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- memory ----

#define BLOCKS 200
#define FILES 24

static uint64_t block_bytes(uint32_t i)
{
	return 256 + i * UINT64_C(40);
}

static void take_blocks(struct genai_mem *m)
{
	unsigned char in[256];

	for (uint32_t i = 0; i < BLOCKS; i++) {
		m[i] = i % 4 == 3 ? cf_pinned(&r, block_bytes(i))
				  : cf_alloc(&r, block_bytes(i));
		for (uint32_t k = 0; k < i; k++)
			ck_assert_msg(m[i].range.addr >=
						      m[k].range.addr +
							      block_bytes(k) ||
					      m[k].range.addr >=
						      m[i].range.addr +
							      block_bytes(i),
				      "blocks %u and %u overlap", k, i);
		cf_pattern(in, sizeof(in), i);
		if (!m[i].host)
			cf_put(&r, m[i].range.addr, in, sizeof(in));
	}
}

// In any order.
static void give_blocks(struct genai_mem *m)
{
	unsigned char in[256], out[256];
	uint64_t seed = cf_seed(6);
	uint32_t order[BLOCKS];

	for (uint32_t i = 0; i < BLOCKS; i++) {
		uint32_t k = cf_below(&seed, i + 1);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint32_t i = 0; i < BLOCKS; i++) {
		struct genai_mem *x = &m[order[i]];

		if (!x->host) {
			cf_get(&r, out, x->range.addr, sizeof(out));
			cf_pattern(in, sizeof(in), order[i]);
			ck_assert_msg(!memcmp(in, out, sizeof(in)),
				      "block %u of %d holds other bytes",
				      order[i], BLOCKS);
		}
		cf_free(&r, x);
	}
}

static void blocks(void)
{
	static unsigned char files[FILES][4096] __attribute__((aligned(4096)));
	struct genai_mem m[BLOCKS], reg[FILES];
	struct genai_ticket t;
	uint32_t n = 0;

	cf_open(&r, 0, NULL);
	take_blocks(m);
	for (; n < FILES; n++) {
		reg[n] = (struct genai_mem){.size = sizeof(reg[n])};
		CF_CLEAR();
		if (r.st->host_register(r.d, files[n], 4096, &reg[n], &cf_err))
			break;
	}
	// a device may register nothing at all
	ck_assert_msg(!n || n == FILES, "after %u registrations: %s", n,
		      cf_err.text);
	give_blocks(m);
	t = cf_drain(&r);
	while (n--)
		CF_OK(r.st->host_unregister(r.d, reg[n].range.addr, &t,
					    &cf_err));
	cf_close(&r);
}

// ---- points ----

static int32_t slow(void *ctx, void *const *mem, struct genai_error *err)
{
	struct timespec ms = {0, 1000000};

	(void)mem;
	(void)err;
	nanosleep(&ms, NULL);
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

// Of 64 points over 12 streams any one may be the last to be reached.
static void points(void)
{
	struct genai_stream *s[STREAMS];
	struct genai_point p[POINTS];

	cf_open(&r, 0, NULL);
	for (uint32_t i = 0; i < STREAMS; i++)
		s[i] = cf_stream(&r, "s");
	for (uint32_t late = 0; late < POINTS; late += 7) {
		atomic_int n = 0;

		for (uint32_t i = 0; i < POINTS; i++) {
			uint32_t on = i % (STREAMS - 1);

			if (i == late) {
				on = STREAMS - 1;
				cf_call(&r, s[on], "slow", slow, &n);
			}
			p[i] = cf_mark(&r, s[on]);
		}
		CF_OK(r.ba->host_read(r.d, p, POINTS, UINT64_MAX, &cf_err));
		ck_assert_msg(n == 1,
			      "host_read did not wait for point %u of %d", late,
			      POINTS);
	}
	for (uint32_t late = 0; late < STREAMS; late++) {
		atomic_int n = 0;

		cf_call(&r, s[late], "slow", slow, &n);
		cf_drain(&r);
		ck_assert_msg(n == 1, "drain did not wait for stream %u of %d",
			      late, STREAMS);
	}
	for (uint32_t i = 0; i < STREAMS; i++)
		cf_destroy(&r, s[i]);
	cf_close(&r);
}

// ---- recordings ----

#define UNITS 5000

// One recording of thousands of copies, each of which needs the one before.
static void long_recording(void)
{
	struct genai_recording *rec = NULL;
	struct genai_stream *s, *side;
	struct genai_mem m;
	struct genai_ticket t;
	unsigned char in[64], out[64];

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	side = cf_stream(&r, "side");
	m = cf_alloc(&r, (UNITS + 1) * UINT64_C(64));
	CF_OK(r.st->capture_begin(r.d, s, &cf_err));
	for (uint64_t i = 0; i < UNITS; i++) {
		bool aside = i % 100 == 99;
		struct genai_stream *on = aside ? side : s;

		if (aside)
			cf_wait(&r, side, cf_mark(&r, s));
		cf_copy(&r, on, m.range.addr + (i + 1) * 64,
			m.range.addr + i * 64, 64, GENAI_COPY_D2D);
		if (aside)
			cf_wait(&r, s, cf_mark(&r, side));
	}
	CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
	for (uint64_t i = 0; i < 3; i++) {
		cf_pattern(in, sizeof(in), i);
		cf_put(&r, m.range.addr, in, sizeof(in));
		CF_OK(r.st->launch_graph(r.d, rec, s, &cf_err));
		cf_finish(&r, s);
		cf_get(&r, out, m.range.addr + UNITS * UINT64_C(64),
		       sizeof(out));
		ck_assert_msg(!memcmp(in, out, sizeof(in)),
			      "a recording of %d copies, replayed: other bytes",
			      UNITS);
	}
	t = cf_drain(&r);
	CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_destroy(&r, side);
	cf_close(&r);
}

#define RECORDINGS 24

static int32_t add(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	(void)err;
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

// Many at once, launched in turn, dropped in another order.
static void recordings(void)
{
	struct genai_recording *rec[RECORDINGS] = {0};
	atomic_int n[RECORDINGS];
	struct genai_stream *s;
	struct genai_ticket t;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	for (int i = 0; i < RECORDINGS; i++) {
		atomic_store(&n[i], 0);
		CF_OK(r.st->capture_begin(r.d, s, &cf_err));
		cf_call(&r, s, "add", add, &n[i]);
		CF_OK(r.st->capture_end(r.d, s, &rec[i], &cf_err));
	}
	for (int round = 0; round < RECORDINGS; round++) {
		int gone = round * 7 % RECORDINGS;

		for (int i = 0; i < RECORDINGS; i++)
			if (rec[i])
				CF_OK(r.st->launch_graph(r.d, rec[i], s,
							 &cf_err));
		t = cf_drain(&r);
		while (!rec[gone])
			gone = (gone + 1) % RECORDINGS;
		CF_OK(r.st->graph_destroy(r.d, rec[gone], &t, &cf_err));
		rec[gone] = NULL;
		for (int i = 0; i < RECORDINGS; i++)
			ck_assert_msg(!rec[i] || n[i] == round + 1,
				      "recording %d of %d ran %d times in %d "
				      "rounds",
				      i, RECORDINGS, (int)n[i], round + 1);
	}
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- failure ----

// Fails, is mended, fails again elsewhere: each time with an error of its own.
static void resets(void)
{
	static char why[6][20];
	struct genai_stream *s[STREAMS];
	struct genai_point p;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	for (uint32_t i = 0; i < STREAMS; i++)
		s[i] = cf_stream(&r, "s");
	for (uint32_t i = 0; i < 6; i++) {
		uint32_t on = i * 5 % STREAMS, other = (on + 1) % STREAMS;

		snprintf(why[i], sizeof(why[i]), "reason %u", i);
		cf_call(&r, s[on], "fails", break_down, why[i]);
		p = cf_mark(&r, s[on]);
		cf_wait(&r, s[other], p);
		CF_FAILS(GENAI_E_FORMAT,
			 r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
		ck_assert_msg(strstr(cf_err.text, why[i]) != NULL,
			      "failure %u is told as: %s", i, cf_err.text);
		p = cf_mark(&r, s[other]);
		CF_FAILS(GENAI_E_FORMAT,
			 r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
		ck_assert_msg(strstr(cf_err.text, why[i]) != NULL,
			      "failure %u is told as: %s", i, cf_err.text);
		recover();
		for (uint32_t k = 0; k < STREAMS; k++) {
			cf_call(&r, s[k], "add", add, &n);
			cf_finish(&r, s[k]);
		}
		ck_assert_msg((uint32_t)n == (i + 1) * STREAMS,
			      "%u units ran after %u resets, not %u",
			      (uint32_t)n, i + 1, (i + 1) * STREAMS);
	}
	for (uint32_t i = 0; i < STREAMS; i++)
		cf_destroy(&r, s[i]);
	cf_close(&r);
}

// A recording is given up in the middle, again and again, and other ones made.
static void aborts(void)
{
	struct genai_stream *s[3];
	struct genai_ticket t;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	for (int i = 0; i < 3; i++)
		s[i] = cf_stream(&r, "s");
	for (int i = 0; i < 12; i++) {
		struct genai_recording *rec = NULL;

		CF_OK(r.st->capture_begin(r.d, s[i % 3], &cf_err));
		cf_call(&r, s[i % 3], "add", add, &n);
		cf_wait(&r, s[(i + 1) % 3], cf_mark(&r, s[i % 3]));
		cf_call(&r, s[(i + 1) % 3], "add", add, &n);
		CF_OK(r.st->capture_abort(r.d, s[i % 3], &cf_err));
		cf_drain(&r);
		ck_assert_msg(n == 3 * i, "units of a recording that was given "
					  "up ran");
		for (int k = 0; k < 3; k++)
			cf_call(&r, s[k], "add", add, &n);
		cf_drain(&r);
		ck_assert_int_eq(n, 3 * i + 3);
		CF_OK(r.st->capture_begin(r.d, s[0], &cf_err));
		cf_call(&r, s[0], "add", add, &n);
		CF_OK(r.st->capture_end(r.d, s[0], &rec, &cf_err));
		t = cf_drain(&r);
		CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	}
	for (int i = 0; i < 3; i++)
		cf_destroy(&r, s[i]);
	cf_close(&r);
}

#define S GENAI_IFACE_STREAM
static const struct cf_test tests[] = {
	{"stream/points-old", "GM-29", S, 0, old_points},
	{"stream/many", "GM-50", S, 0, streams},
	{"stream/reuse", "GM-52", S, 0, reuse},
	{"stream/large-copies", "GM-51", S, 0, large_copies},
	{"stream/blocks", "GM-51", S, 0, blocks},
	{"barrier/mixed-points", "GM-60", GENAI_IFACE_BARRIER, 0, mixed_points},
	{"barrier/many-points", "GM-65", GENAI_IFACE_BARRIER, 0, points},
	{"stream/recording-long", "GM-53", S, CF_RECORD, long_recording},
	{"stream/recordings", "GM-53", S, CF_RECORD, recordings},
	{"stream/resets", "GM-54", S, 0, resets},
	{"stream/aborts", "GM-43", S, CF_RECORD, aborts},
};
const struct cf_suite cf_suite_many = {tests, sizeof(tests) / sizeof(tests[0])};
