// suite_signal.c - units whose end a thread of the host signals.
#include "tests/conform/conform.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#define STREAMS 12
#define BYTES 64

static struct cf_rt r;

// A unit that says when it began, and stays open.
struct unit {
	atomic_int begun;
	int32_t rc; // what its function returns
	void *mem;
};

static int32_t begin(void *ctx, void *const *mem, struct genai_error *err)
{
	struct unit *u = ctx;

	u->mem = mem[0];
	if (u->rc < 0)
		genai_fail(err, u->rc, "it did not even begin");
	atomic_fetch_add(&u->begun, 1);
	return u->rc;
}

static void enqueue(struct genai_stream *s, struct unit *u, genai_addr addr)
{
	struct genai_work w = {sizeof(w), 7, "open", begin, u};
	struct genai_access a = {addr, BYTES, GENAI_WRITE, 0};

	CF_OK(r.st->launch_open(r.d, s, &w, &a, 1, &cf_err));
	memset(&a, 0xee, sizeof(a)); // what was given was copied
	memset(&w, 0xee, sizeof(w));
}

static void tell(const struct unit *u, const struct genai_error *why)
{
	CF_OK(r.st->signal(r.d, u, why, &cf_err));
}

static void nap(long ms)
{
	struct timespec t = {ms / 1000, ms % 1000 * 1000000};

	nanosleep(&t, NULL);
}

// Polling alone makes the device go on.
static void until_begun(struct unit *u, int n, struct genai_point p)
{
	for (int i = 0; i < 5000 && atomic_load(&u->begun) < n; i++) {
		r.st->poll(r.d, p, NULL);
		if (i > 100)
			nap(1);
	}
	ck_assert_msg(atomic_load(&u->begun) == n,
		      "a unit that stays open has begun %d times, not %d",
		      atomic_load(&u->begun), n);
}

static void must_wait(struct genai_point p, const char *what)
{
	int32_t rc = GENAI_PENDING;

	for (int i = 0; i < 20; i++)
		rc = rc == GENAI_PENDING ? r.st->poll(r.d, p, NULL) : rc;
	ck_assert_msg(rc == GENAI_PENDING,
		      "a point behind a unit that is open is reached (poll "
		      "says %d): %s",
		      rc, what);
}

static uint64_t in_ms(uint64_t ms)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec +
	       ms * 1000000u;
}

// What was signalled is reached soon; a signal that is lost must not be a test
// that hangs.
static int32_t read_point(struct genai_point p)
{
	return r.ba->host_read(r.d, &p, 1, in_ms(5000), &cf_err);
}

struct teller {
	pthread_t id;
	const struct unit *u;
	int32_t rc;
};

static void *tell_later(void *arg)
{
	struct teller *t = arg;

	nap(20);
	t->rc = r.st->signal(r.d, t->u, NULL, NULL);
	return NULL;
}

// ---- many at once ----

struct many {
	struct genai_stream *s[STREAMS];
	struct unit u[STREAMS];
	struct genai_point p[STREAMS];
	struct genai_mem up, down, dev;
};

static void many_open(struct many *m)
{
	memset(m, 0, sizeof(*m));
	m->up = cf_pinned(&r, STREAMS * BYTES);
	m->down = cf_pinned(&r, STREAMS * BYTES);
	m->dev = cf_alloc(&r, STREAMS * BYTES);
	for (uint32_t i = 0; i < STREAMS; i++) {
		m->s[i] = cf_stream(&r, "opens");
		m->u[i].rc = GENAI_PENDING;
	}
}

static void many_close(struct many *m)
{
	cf_drain(&r);
	for (uint32_t i = 0; i < STREAMS; i++)
		cf_destroy(&r, m->s[i]);
	cf_free(&r, &m->up);
	cf_free(&r, &m->down);
	cf_free(&r, &m->dev);
}

// What the thread writes goes up and comes down again.
static void many_enqueue(struct many *m, uint32_t i)
{
	uint64_t at = i * (uint64_t)BYTES;

	enqueue(m->s[i], &m->u[i], m->up.range.addr + at);
	cf_copy(&r, m->s[i], m->dev.range.addr + at, (uintptr_t)m->up.host + at,
		BYTES, GENAI_COPY_H2D);
	cf_copy(&r, m->s[i], (uintptr_t)m->down.host + at,
		m->dev.range.addr + at, BYTES, GENAI_COPY_D2H);
	m->p[i] = cf_mark(&r, m->s[i]);
}

static void many_answer(struct many *m, uint32_t i, uint64_t seed)
{
	char *at = (char *)m->up.host + i * (size_t)BYTES;

	ck_assert_msg(m->u[i].mem == at,
		      "mem[0] is not where the host finds the pinned bytes");
	cf_pattern(at, BYTES, seed);
	tell(&m->u[i], NULL);
	CF_OK(read_point(m->p[i]));
	ck_assert_mem_eq((char *)m->down.host + i * (size_t)BYTES, at, BYTES);
}

static void many_at_once(const char *const *sets)
{
	uint64_t seed = cf_seed(5);
	uint32_t turn[STREAMS];
	struct many m;

	cf_open(&r, 0, sets);
	many_open(&m);
	for (int round = 1; round <= 3; round++) {
		for (uint32_t i = 0; i < STREAMS; i++)
			many_enqueue(&m, i);
		for (uint32_t i = 0; i < STREAMS; i++) {
			until_begun(&m.u[i], round, m.p[i]);
			turn[i] = i;
		}
		for (uint32_t i = STREAMS; i--;) {
			uint32_t k = cf_below(&seed, i + 1), is = turn[k];

			turn[k] = turn[i];
			for (uint32_t j = 0; j < i; j++)
				must_wait(m.p[turn[j]],
					  "another one was signalled");
			many_answer(&m, is, cf_random(&seed));
		}
	}
	many_close(&m);
	cf_close(&r);
}

static void opens(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		many_at_once(cf_schedule(i));
}

// One after the other on one stream; waited for before it is signalled.
static void one_by_one(void)
{
	struct genai_stream *s;
	struct teller t = {.rc = -1};
	struct unit u = {.rc = GENAI_PENDING};
	struct genai_mem m;
	struct genai_point p;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_pinned(&r, BYTES);
	for (int i = 1; i <= 200; i++) {
		u.rc = i % 3 ? GENAI_PENDING : 0;
		enqueue(s, &u, m.range.addr);
		p = cf_mark(&r, s);
		until_begun(&u, i, p);
		if (u.rc)
			tell(&u, NULL);
		if (i % 2 || !u.rc)
			CF_OK(read_point(p));
	}
	cf_drain(&r);
	u.rc = GENAI_PENDING;
	enqueue(s, &u, m.range.addr);
	p = cf_mark(&r, s);
	until_begun(&u, 201, p);
	t.u = &u;
	ck_assert_int_eq(pthread_create(&t.id, NULL, tell_later, &t), 0);
	CF_OK(read_point(p));
	pthread_join(t.id, NULL);
	ck_assert_int_eq(t.rc, 0);
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- what is said of one that is open ----

static void deadlines(void)
{
	struct genai_ticket t = {.size = sizeof(t)};
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	struct genai_stream *s, *other;
	struct unit u = {.rc = GENAI_PENDING};
	struct genai_point p;
	struct genai_mem m;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	other = cf_stream(&r, "other");
	m = cf_pinned(&r, 2 * BYTES);
	enqueue(s, &u, m.range.addr);
	p = cf_mark(&r, s);
	until_begun(&u, 1, p);
	must_wait(p, "nobody signalled");
	CF_FAILS(GENAI_E_DEADLINE,
		 r.ba->host_read(r.d, &p, 1, in_ms(30), &cf_err));
	CF_FAILS(GENAI_E_DEADLINE,
		 r.ba->drain(r.d, all, in_ms(30), &t, &cf_err));
	CF_FAILS(GENAI_E_BUSY, r.st->destroy(r.d, s, &cf_err));
	CF_FAILS(GENAI_E_STATE, r.st->free(r.d, m.range.addr, NULL, &cf_err));
	// who does not wait for it goes on, who does waits
	cf_finish(&r, other);
	cf_wait(&r, other, p);
	must_wait(cf_mark(&r, other), "of a stream that waits for it");
	tell(&u, NULL);
	cf_finish(&r, other);
	cf_free(&r, &m);
	cf_destroy(&r, other);
	cf_destroy(&r, s);
	cf_close(&r);
}

// Nothing is signalled that is not open.
static void states(void)
{
	struct genai_stream *s;
	struct unit u = {.rc = GENAI_PENDING}, v = {.rc = 0};
	struct genai_error odd = GENAI_ERROR_INIT;
	struct genai_point p;
	struct cf_gate g;
	struct genai_mem m;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_pinned(&r, BYTES);
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &u, NULL, &cf_err));
	cf_gate_close(&r, s, &g);
	enqueue(s, &u, m.range.addr);
	p = cf_mark(&r, s);
	// queued, and not begun
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &u, NULL, &cf_err));
	cf_gate_open(&g);
	until_begun(&u, 1, p);
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &v, NULL, &cf_err));
	odd.code = GENAI_OK;
	CF_FAILS(GENAI_E_INVAL, r.st->signal(r.d, &u, &odd, &cf_err));
	must_wait(p, "what was signalled was no signal");
	tell(&u, NULL);
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &u, NULL, &cf_err));
	CF_OK(read_point(p));
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &u, NULL, &cf_err));
	// its function has ended it
	enqueue(s, &v, m.range.addr);
	CF_OK(read_point(cf_mark(&r, s)));
	ck_assert_int_eq(atomic_load(&v.begun), 1);
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &v, NULL, &cf_err));
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

static void access_flags(void)
{
	struct unit u = {.rc = 0};
	struct genai_work w = {sizeof(w), GENAI_NONE, "odd", begin, &u};
	struct genai_access a = {0, BYTES, 0, 0};
	struct genai_stream *s;
	struct genai_mem m;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	m = cf_pinned(&r, BYTES);
	a.addr = m.range.addr;
	for (uint32_t bit = 3; bit < 32; bit++) {
		a.flags = GENAI_READ | 1u << bit;
		CF_FAILS(GENAI_E_UNSUPPORTED,
			 r.d->raw.launch_open(r.d->raw_self, s, &w, &a, 1,
					      &cf_err));
	}
	cf_finish(&r, s);
	ck_assert_int_eq(atomic_load(&u.begun), 0);
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

// ---- failure ----

// The first error, of the unit that was open, is everybody's who waits for it.
static void fails(bool itself)
{
	struct genai_error why = GENAI_ERROR_INIT;
	struct genai_stream *s, *waits;
	struct unit u = {.rc = itself ? GENAI_E_IO : GENAI_PENDING};
	struct unit after = {.rc = 0};
	struct genai_point before, p, q;
	struct genai_ticket t;
	struct genai_mem m;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	waits = cf_stream(&r, "waits");
	m = cf_pinned(&r, BYTES);
	before = cf_mark(&r, s);
	enqueue(s, &u, m.range.addr);
	p = cf_mark(&r, s);
	enqueue(s, &after, m.range.addr);
	cf_wait(&r, waits, p);
	q = cf_mark(&r, waits);
	until_begun(&u, 1, p);
	genai_fail(&why, GENAI_E_IO, "it did not even begin");
	if (!itself)
		tell(&u, &why);
	memset(&why, 0xee, sizeof(why));
	CF_FAILS(GENAI_E_IO, read_point(p));
	ck_assert_msg(strstr(cf_err.text, "it did not even begin") != NULL,
		      "the text of a unit that failed is gone: %s",
		      cf_err.text);
	ck_assert_uint_eq(cf_err.node, 7);
	CF_FAILS(GENAI_E_IO, read_point(q));
	CF_OK(read_point(before));
	t = cf_drain(&r);
	ck_assert_msg(!atomic_load(&after.begun),
		      "a unit behind one that failed has begun");
	CF_FAILS(GENAI_E_STATE, r.st->signal(r.d, &after, NULL, &cf_err));
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	// and all is well again
	u.rc = GENAI_PENDING;
	enqueue(s, &u, m.range.addr);
	p = cf_mark(&r, s);
	until_begun(&u, 2, p);
	must_wait(p, "after a reset");
	tell(&u, NULL);
	CF_OK(read_point(p));
	cf_free(&r, &m);
	cf_destroy(&r, waits);
	cf_destroy(&r, s);
	cf_close(&r);
}

static void failures(void)
{
	fails(false);
	fails(true);
}

// ---- recordings ----

// Two streams, each with a unit that stays open and a copy behind it.
static void recorded(const char *const *sets)
{
	struct genai_recording *rec = NULL;
	uint64_t seed = cf_seed(9);
	struct genai_point begun, end;
	struct genai_ticket t;
	struct many m;

	cf_open(&r, 0, sets);
	many_open(&m);
	for (uint32_t side = 0; side < 2; side++) {
		CF_OK(r.st->capture_begin(r.d, m.s[0], &cf_err));
		begun = cf_mark(&r, m.s[0]);
		many_enqueue(&m, 0);
		for (uint32_t i = 1; i <= side; i++) {
			cf_wait(&r, m.s[i], begun);
			many_enqueue(&m, i);
			cf_wait(&r, m.s[0], m.p[i]);
		}
		CF_OK(r.st->capture_end(r.d, m.s[0], &rec, &cf_err));
		ck_assert_msg(!atomic_load(&m.u[1].begun),
			      "a unit has begun while it was recorded");
		for (int n = 1; n <= 4; n++) {
			CF_OK(r.st->launch_graph(r.d, rec, m.s[0], &cf_err));
			end = cf_mark(&r, m.s[0]);
			for (uint32_t i = 0; i <= side; i++)
				until_begun(&m.u[i], n + (side && !i ? 4 : 0),
					    end);
			must_wait(end, "it was recorded");
			for (uint32_t i = 0; i <= side; i++) {
				m.p[i] = i < side ? (struct genai_point){0}
						  : end;
				cf_pattern(m.u[i].mem, BYTES, cf_random(&seed));
			}
			for (uint32_t i = 0; i <= side; i++)
				tell(&m.u[i], NULL);
			CF_OK(read_point(end));
			ck_assert_mem_eq(m.down.host, m.up.host,
					 (side + 1) * (uint64_t)BYTES);
		}
		t = cf_drain(&r);
		CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	}
	many_close(&m);
	cf_close(&r);
}

static void replays(void)
{
	uint32_t n = cf_n_schedules();

	for (uint32_t i = 0; i < n; i++)
		recorded(cf_schedule(i));
}

#define S GENAI_IFACE_STREAM
static const struct cf_test tests[] = {
	{"stream/signal-many", "GM-150", S, CF_SIGNAL, opens},
	{"stream/signal-one-by-one", "GM-150 GM-17", S, CF_SIGNAL, one_by_one},
	{"stream/signal-deadlines", "GM-151 GM-62", S, CF_SIGNAL, deadlines},
	{"stream/signal-states", "GM-152", S, CF_SIGNAL, states},
	{"stream/signal-access-flags", "GM-39", S, CF_SIGNAL, access_flags},
	{"stream/signal-fails", "GM-153", S, CF_SIGNAL, failures},
	{"stream/signal-replays", "GM-154", S, CF_SIGNAL | CF_RECORD, replays},
};
const struct cf_suite cf_suite_signal = {tests,
					 sizeof(tests) / sizeof(tests[0])};
