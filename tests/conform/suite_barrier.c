// suite_barrier.c - the two calls that wait.
#include "tests/conform/conform.h"

#include <string.h>
#include <time.h>

static struct cf_rt r;
static const struct genai_range everything = {0, GENAI_RANGE_ALL_BYTES};

static int32_t slow(void *ctx, void *const *mem, struct genai_error *err)
{
	struct timespec ms = {0, 5000000};

	(void)mem;
	(void)err;
	nanosleep(&ms, NULL);
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

static uint64_t now(void)
{
	const struct genai_host *h =
		genai_host_table(genai_module_host(r.tested));

	return h->clock_ns(h->ctx);
}

static void host_read(void)
{
	struct genai_mem up, down, dev;
	struct genai_stream *s[3];
	struct genai_point p[5] = {{0}};
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	up = cf_pinned(&r, 3 * 4096);
	down = cf_pinned(&r, 3 * 4096);
	dev = cf_alloc(&r, 3 * 4096);
	cf_pattern(up.host, 3 * 4096, 4);
	for (uint64_t i = 0; i < 3; i++) {
		s[i] = cf_stream(&r, "s");
		cf_call(&r, s[i], "slow", slow, &n);
		cf_copy(&r, s[i], dev.range.addr + 4096 * i,
			(uintptr_t)up.host + 4096 * i, 4096, GENAI_COPY_H2D);
		cf_copy(&r, s[i], (uintptr_t)down.host + 4096 * i,
			dev.range.addr + 4096 * i, 4096, GENAI_COPY_D2H);
		p[i + 1] = cf_mark(&r, s[i]);
	}
	// p[0] and p[4] are zero points; no points at all is no wait
	CF_OK(r.ba->host_read(r.d, p, 5, UINT64_MAX, &cf_err));
	ck_assert_int_eq(n, 3);
	ck_assert_mem_eq(up.host, down.host, 3 * 4096);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(r.st->poll(r.d, p[i], &cf_err), 0);
	CF_OK(r.ba->host_read(r.d, NULL, 0, UINT64_MAX, &cf_err));
	CF_OK(r.ba->host_read(r.d, p, 5, 0, &cf_err)); // nothing to wait for
	for (int i = 0; i < 3; i++)
		cf_destroy(&r, s[i]);
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_free(&r, &dev);
	cf_close(&r);
}

// All of it, or as little as a byte.
static struct genai_range part_of(struct genai_range dev, int round)
{
	const struct genai_range parts[] = {
		everything,
		dev,
		{dev.addr + 4095, 1},
		{dev.addr + 1001, 98},
		{dev.addr, 1},
	};

	return parts[round];
}

static void drain(void)
{
	struct genai_mem up, down, dev;
	struct genai_stream *s[3], *late;
	struct genai_ticket t;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	up = cf_pinned(&r, 4096);
	down = cf_pinned(&r, 4096);
	dev = cf_alloc(&r, 4096);
	cf_pattern(up.host, 4096, 5);
	for (int i = 0; i < 3; i++)
		s[i] = cf_stream(&r, "s");
	for (int round = 0; round < 5; round++) {
		memset(down.host, 0, 4096);
		for (int i = 0; i < 3; i++)
			cf_call(&r, s[i], "slow", slow, &n);
		cf_copy(&r, s[2], dev.range.addr, (uintptr_t)up.host, 4096,
			GENAI_COPY_H2D);
		cf_copy(&r, s[2], (uintptr_t)down.host, dev.range.addr, 4096,
			GENAI_COPY_D2H);
		// a drain of a range waits at least for what touches it
		CF_OK(r.ba->drain(r.d, part_of(dev.range, round), UINT64_MAX,
				  &t, &cf_err));
		ck_assert_msg(!memcmp(up.host, down.host, 4096),
			      "work on the range was not done after a drain");
		if (!round)
			ck_assert_int_eq(n, 3);
	}
	// a stream that there was not at the first drain
	late = cf_stream(&r, "late");
	n = 0;
	cf_call(&r, late, "slow", slow, &n);
	CF_OK(r.ba->drain(r.d, everything, UINT64_MAX, &t, &cf_err));
	ck_assert_msg(n == 1, "a drain did not wait for a stream that was made "
			      "after the one before");
	CF_OK(r.st->free(r.d, dev.range.addr, &t, &cf_err));
	cf_free(&r, &up);
	cf_free(&r, &down);
	cf_destroy(&r, late);
	for (int i = 0; i < 3; i++)
		cf_destroy(&r, s[i]);
	cf_close(&r);
}

static void deadline(void)
{
	struct genai_ticket t = {.size = 4321};
	struct genai_stream *s;
	struct genai_point p;
	atomic_int n = 0;
	uint64_t from;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	for (int i = 0; i < 120; i++) // 600 ms
		cf_call(&r, s, "slow", slow, &n);
	p = cf_mark(&r, s);
	from = now();
	CF_FAILS(GENAI_E_DEADLINE,
		 r.ba->host_read(r.d, &p, 1, from + 10000000, &cf_err));
	CF_FAILS(GENAI_E_DEADLINE,
		 r.ba->drain(r.d, everything, from, &t, &cf_err));
	ck_assert_msg(t.size == 4321, "a ticket was given past the deadline");
	ck_assert_msg(n < 120, "past its deadline a call waited to the end");
	// far away, which is not for ever
	CF_OK(r.ba->host_read(r.d, &p, 1, UINT64_MAX - 1, &cf_err));
	ck_assert_int_eq(n, 120);
	cf_call(&r, s, "slow", slow, &n);
	CF_OK(r.ba->drain(r.d, everything, UINT64_MAX - 1, &t, &cf_err));
	ck_assert_int_eq(n, 121);
	// nothing to wait for
	CF_OK(r.ba->drain(r.d, everything, from, &t, &cf_err));
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	cf_destroy(&r, s);
	cf_close(&r);
}

static void in_recording(void)
{
	struct genai_ticket t = {.size = 4321};
	struct genai_recording *rec = NULL;
	struct genai_stream *s, *other;
	struct genai_point p;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	other = cf_stream(&r, "other");
	cf_call(&r, other, "slow", slow, &n);
	p = cf_mark(&r, other);
	CF_OK(r.st->capture_begin(r.d, s, &cf_err));
	cf_call(&r, s, "slow", slow, &n);
	CF_FAILS(GENAI_E_STATE,
		 r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 r.ba->drain(r.d, everything, UINT64_MAX, &t, &cf_err));
	ck_assert_uint_eq(t.size, 4321);
	CF_OK(r.st->capture_end(r.d, s, &rec, &cf_err));
	t = cf_drain(&r);
	ck_assert_int_eq(n, 1);
	CF_OK(r.st->graph_destroy(r.d, rec, &t, &cf_err));
	cf_destroy(&r, s);
	cf_destroy(&r, other);
	cf_close(&r);
}

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	return genai_fail(err, GENAI_E_LIMIT, "gave up");
}

static void poisoned(void)
{
	struct genai_work w = {sizeof(w), 17, "node_17", break_down, NULL};
	struct genai_stream *s, *fine;
	struct genai_point p[2];
	struct genai_ticket t;
	atomic_int n = 0;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	fine = cf_stream(&r, "fine");
	cf_call(&r, fine, "slow", slow, &n);
	p[0] = cf_mark(&r, fine);
	CF_OK(r.st->launch_host(r.d, s, &w, NULL, 0, &cf_err));
	cf_call(&r, s, "slow", slow, &n);
	p[1] = cf_mark(&r, s);
	CF_FAILS(GENAI_E_LIMIT,
		 r.ba->host_read(r.d, p, 2, UINT64_MAX, &cf_err));
	ck_assert_msg(cf_err.node == 17, "the error names node %u, not 17",
		      cf_err.node);
	CF_OK(r.ba->host_read(r.d, p, 1, UINT64_MAX, &cf_err));
	CF_FAILS(GENAI_E_LIMIT,
		 r.ba->host_read(r.d, p + 1, 1, UINT64_MAX, &cf_err));
	t = cf_drain(&r);
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	ck_assert_int_eq(n, 1);
	cf_destroy(&r, s);
	cf_destroy(&r, fine);
	cf_close(&r);
}

static char long_text[401];

static int32_t fail_so(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	return genai_fail(err, *(const int32_t *)ctx, "%s", long_text);
}

// Any code, and a text as long as it is.
static void every_code(void)
{
	struct genai_stream *s;
	struct genai_ticket t;
	struct genai_point p;

	memset(long_text, 't', sizeof(long_text) - 1);
	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	for (int32_t code = -1; code >= GENAI_E_ORDER; code--) {
		if (code == GENAI_E_DEADLINE) // is the barrier's own
			continue;
		cf_call(&r, s, "fails", fail_so, &code);
		p = cf_mark(&r, s);
		CF_FAILS(code,
			 r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
		ck_assert_msg(strstr(cf_err.text, long_text) != NULL,
			      "of a text of 400 bytes there is left: %s",
			      cf_err.text);
		t = cf_drain(&r);
		CF_OK(r.st->reset(r.d, &t, &cf_err));
	}
	cf_destroy(&r, s);
	cf_close(&r);
}

// Whoever calls need not want to know why.
static void err_null(void)
{
	struct genai_stream *s;
	struct genai_ticket t;
	struct genai_point p;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	cf_call(&r, s, "fails", break_down, NULL);
	p = cf_mark(&r, s);
	ck_assert_int_eq(r.ba->host_read(r.d, &p, 1, UINT64_MAX, NULL),
			 GENAI_E_LIMIT);
	ck_assert_int_eq(r.ba->drain(r.d, everything, UINT64_MAX, &t, NULL), 0);
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	cf_destroy(&r, s);
	cf_close(&r);
}

#define B GENAI_IFACE_BARRIER
static const struct cf_test tests[] = {
	{"barrier/host-read", "GM-60", B, 0, host_read},
	{"barrier/drain", "GM-61", B, 0, drain},
	{"barrier/deadline", "GM-8 GM-62", B, 0, deadline},
	{"barrier/in-recording", "GM-63", B, CF_RECORD, in_recording},
	{"barrier/poisoned", "GM-64", B, 0, poisoned},
	{"barrier/every-code", "GM-33 GM-64", B, 0, every_code},
	{"barrier/err-null", "GM-5", B, 0, err_null},
};
const struct cf_suite cf_suite_barrier = {tests,
					  sizeof(tests) / sizeof(tests[0])};
