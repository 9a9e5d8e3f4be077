// check_device.c - the core's tables in front of a device: tickets, the ledger,
// limits, failures.
#include <genai/barrier.h>

#include "tests/unit/alloc_fail.h"
#include "tests/unit/session_kit.h"

static struct genai_runtime *rt;
static struct genai_device *d;
static const struct genai_stream_ops *ops;
static const struct genai_barrier_ops *bar;
static struct genai_error err;

static void setup(void)
{
	rt = runtime("eager", "pager_sync", "auto", NULL);
	d = &rt->device;
	ops = d->stream.ops;
	bar = d->barrier.ops;
	memset(&err, 0, sizeof(err));
	err.size = sizeof(err);
}

static void teardown(void)
{
	genai_close(rt);
}

static struct genai_mem alloc(uint32_t kind, uint64_t bytes, const char *tag)
{
	struct genai_mem m = {.size = sizeof(m)};
	int32_t rc = ops->alloc(d, kind, bytes, tag, &m, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return m;
}

static struct genai_stream *stream(void)
{
	struct genai_stream *s = NULL;

	ck_assert_int_eq(ops->create(d, "test", &s, &err), 0);
	return s;
}

static struct genai_ticket drain(struct genai_range r)
{
	struct genai_ticket t = {.size = sizeof(t)};
	int32_t rc = bar->drain(d, r, UINT64_MAX, &t, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return t;
}

static const struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};

static void give(struct genai_mem *m)
{
	struct genai_ticket t = drain(all);

	ck_assert_int_eq(ops->free(d, m->range.addr, &t, &err), 0);
}

// Something enqueued, which makes older tickets stale.
static void work(struct genai_stream *s, struct genai_mem *m)
{
	ck_assert_int_eq(ops->copy(d, s, m->range.addr, m->range.addr + 32, 16,
				   GENAI_COPY_D2D, &err),
			 0);
}

static void end_stream(struct genai_stream *s)
{
	drain(all);
	ck_assert_int_eq(ops->destroy(d, s, &err), 0);
}

// ---- tickets ----

START_TEST(unused_memory_needs_no_ticket)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");

	ck_assert_int_eq(ops->free(d, m.range.addr, NULL, &err), 0);
	ck_assert_uint_eq(d->used, 0);
}
END_TEST

START_TEST(no_ticket_after_work)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_stream *s = stream();

	work(s, &m);
	fails(ops->free(d, m.range.addr, NULL, &err), GENAI_E_STATE, &err,
	      "no ticket: a drain must come first");
	end_stream(s);
	// the drain alone is not enough: its ticket is
	fails(ops->free(d, m.range.addr, NULL, &err), GENAI_E_STATE, &err,
	      "no ticket");
	give(&m);
}
END_TEST

START_TEST(stale_ticket)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_stream *s = stream();
	struct genai_ticket t;

	work(s, &m);
	t = drain(all);
	work(s, &m);
	work(s, &m);
	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_STATE, &err,
	      "stale: 2 units were enqueued since the drain");
	end_stream(s);
	give(&m);
}
END_TEST

START_TEST(ticket_of_another_range)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 256, "x");
	struct genai_range part = {m.range.addr, 255};
	struct genai_range other = {m.range.addr + 4096, 4096};
	struct genai_ticket t = drain(part), u = drain(other);

	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_STATE, &err,
	      "the ticket covers 255 bytes");
	fails(ops->free(d, m.range.addr, &u, &err), GENAI_E_STATE, &err,
	      "the ticket covers 4096 bytes");
	t = drain(m.range);
	ck_assert_int_eq(ops->free(d, m.range.addr, &t, &err), 0);
}
END_TEST

START_TEST(ticket_of_a_wider_range)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 256, "x");
	struct genai_range wide = {m.range.addr - 64, 1024};
	struct genai_ticket t = drain(wide);

	ck_assert_int_eq(ops->free(d, m.range.addr, &t, &err), 0);
}
END_TEST

START_TEST(ticket_of_another_device)
{
	struct genai_runtime *other =
		runtime("eager", "pager_sync", "auto", NULL);
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_ticket t = {.size = sizeof(t)};

	ck_assert_int_eq(genai_device_drain(&other->device, &t, &err), 0);
	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_STATE, &err,
	      "the ticket was not made by a drain");
	t.device = 9;
	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_STATE, &err,
	      "the ticket is of device 9, not 1");
	give(&m);
	genai_close(other);
}
END_TEST

START_TEST(forged_ticket)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_stream *s = stream();
	struct genai_ticket t = drain(m.range), u;

	work(s, &m);
	u = t;
	u.generation++; // looks fresh
	fails(ops->free(d, m.range.addr, &u, &err), GENAI_E_STATE, &err,
	      "not made by a drain");
	u = t;
	u.range = all;
	fails(ops->free(d, m.range.addr, &u, &err), GENAI_E_STATE, &err,
	      "not made by a drain");
	u = (struct genai_ticket){.size = 1};
	ck_assert_int_eq(ops->free(d, m.range.addr, &u, &err), GENAI_E_STATE);
	end_stream(s);
	give(&m);
}
END_TEST

// A ticket may be used for many things while nothing is enqueued.
START_TEST(one_ticket_for_all)
{
	struct genai_mem a = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_mem b = alloc(GENAI_MEM_HOST_PINNED, 64, "x");
	struct genai_stream *s = stream();
	struct genai_ticket t;

	work(s, &a);
	t = drain(all);
	ck_assert_int_eq(ops->free(d, a.range.addr, &t, &err), 0);
	ck_assert_int_eq(ops->free(d, b.range.addr, &t, &err), 0);
	ck_assert_int_eq(ops->reset(d, &t, &err), 0);
	end_stream(s);
}
END_TEST

START_TEST(reset_needs_all)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_ticket t = drain(m.range);

	fails(ops->reset(d, &t, &err), GENAI_E_STATE, &err, "covers 64 bytes");
	fails(ops->reset(d, NULL, &err), GENAI_E_STATE, &err, "no ticket");
	give(&m);
}
END_TEST

// ---- memory ----

START_TEST(not_an_allocation)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 256, "x");
	struct genai_ticket t = drain(all);

	fails(ops->free(d, m.range.addr + 64, &t, &err), GENAI_E_INVAL, &err,
	      "is not the start of an allocation");
	fails(ops->free(d, 0, &t, &err), GENAI_E_INVAL, &err, "0 is not the");
	fails(ops->host_unregister(d, m.range.addr, &t, &err), GENAI_E_INVAL,
	      &err, "is not the start of registered memory");
	ck_assert_int_eq(ops->free(d, m.range.addr, &t, &err), 0);
	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_INVAL, &err,
	      "is not the start of an allocation");
}
END_TEST

START_TEST(empty_or_odd_allocations)
{
	struct genai_mem m = {.size = sizeof(m)};

	ck_assert_int_eq(ops->alloc(d, GENAI_MEM_DEVICE, 0, "x", &m, &err),
			 GENAI_E_INVAL);
	ck_assert_int_eq(ops->alloc(d, 99, 64, "x", &m, &err), GENAI_E_INVAL);
	ck_assert_int_ne(
		ops->alloc(d, GENAI_MEM_DEVICE, UINT64_MAX, "x", &m, &err), 0);
	ck_assert_uint_eq(m.range.bytes, 0);
	ck_assert_uint_eq(d->n_allocs, 0);
}
END_TEST

START_TEST(books_by_tag)
{
	struct genai_mem a = alloc(GENAI_MEM_DEVICE, 1000, "kv");
	struct genai_mem b = alloc(GENAI_MEM_DEVICE, 500, "kv");
	struct genai_mem c = alloc(GENAI_MEM_DEVICE, 200, "ring");
	struct genai_mem p = alloc(GENAI_MEM_HOST_PINNED, 64, "staging");

	ck_assert_uint_eq(d->used, 1700);
	ck_assert_uint_eq(d->pinned, 64);
	give(&a);
	ck_assert_uint_eq(d->used, 700);
	ck_assert_uint_eq(d->peak, 1700);
	for (uint32_t i = 0; i < d->n_lines; i++) {
		bool kv = !strcmp(d->lines[i].tag, "kv");
		bool ring = !strcmp(d->lines[i].tag, "ring");

		ck_assert_uint_eq(d->lines[i].now, kv ? 500 : ring ? 200 : 0);
		ck_assert_uint_eq(d->lines[i].peak, kv ? 1500 : ring ? 200 : 0);
	}
	give(&b);
	give(&c);
	give(&p);
	ck_assert_uint_eq(d->used + d->pinned, 0);
}
END_TEST

START_TEST(limit)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 600, "kv"), n;

	genai_device_set_limit(d, 1000);
	fails(ops->alloc(d, GENAI_MEM_DEVICE, 401, "ring", &n, &err),
	      GENAI_E_LIMIT, &err,
	      "401 bytes of ring do not fit: 600 of device_limit 1000 are in "
	      "use");
	n = alloc(GENAI_MEM_DEVICE, 400, "ring");
	ck_assert_uint_eq(d->used, 1000);
	// pinned host memory does not count
	give(&n);
	n = alloc(GENAI_MEM_HOST_PINNED, 5000, "staging");
	give(&n);
	give(&m);
}
END_TEST

START_TEST(many_tags)
{
	struct genai_mem m[20];
	char tag[24];

	for (int i = 0; i < 20; i++) {
		snprintf(tag, sizeof(tag), "tag %d", i);
		m[i] = alloc(GENAI_MEM_DEVICE, 10, tag);
	}
	ck_assert_uint_eq(d->n_lines, GENAI_MAX_TAGS);
	ck_assert_uint_eq(d->used, 200);
	for (int i = 0; i < 20; i++)
		give(&m[i]);
	ck_assert_uint_eq(d->used, 0);
}
END_TEST

START_TEST(leaks_are_said)
{
	struct genai_runtime *other =
		runtime("eager", "pager_sync", "auto", NULL);
	struct genai_device *o = &other->device;
	struct genai_mem m = {.size = sizeof(m)};

	ck_assert_int_eq(
		o->stream.ops->alloc(o, GENAI_MEM_DEVICE, 123, "kv", &m, &err),
		0);
	genai_close(other);
	ck_assert(was_logged("123 bytes of kv were not given back"));
}
END_TEST

START_TEST(registered_memory)
{
	static char host[8192] __attribute__((aligned(4096)));
	struct genai_mem m = {.size = sizeof(m)}, n = {.size = sizeof(n)};
	struct genai_ticket t;

	ck_assert_int_eq(ops->host_register(d, host, 8192, &m, &err), 0);
	ck_assert_uint_eq(d->pinned, 8192);
	ck_assert_int_eq(ops->host_register(d, host + 4096, 4096, &n, &err),
			 GENAI_E_INVAL);
	t = drain(all);
	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_INVAL, &err,
	      "is not the start of an allocation");
	ck_assert_int_eq(ops->host_unregister(d, m.range.addr, &t, &err), 0);
	ck_assert_uint_eq(d->pinned, 0);
	ck_assert_int_eq(ops->host_register(d, NULL, 10, &m, &err),
			 GENAI_E_INVAL);
}
END_TEST

START_TEST(address_ranges)
{
	uint64_t g = d->caps.granule;
	struct genai_range r = {0, 0}, a, b;
	struct genai_ticket t;

	ck_assert_int_eq(ops->reserve(d, 4 * g, &r, &err), 0);
	ck_assert_uint_eq(d->used, 0);
	a = (struct genai_range){r.addr, g};
	b = (struct genai_range){r.addr + g, 2 * g};
	ck_assert_int_eq(ops->map(d, a, "kv", &err), 0);
	ck_assert_int_eq(ops->map(d, b, "kv", &err), 0);
	ck_assert_uint_eq(d->used, 3 * g);
	ck_assert_int_ne(ops->map(d, a, "kv", &err), 0); // twice
	t = drain(all);
	fails(ops->unmap(d, r, &t, &err), GENAI_E_INVAL, &err,
	      "were not mapped as one range");
	ck_assert_int_ne(ops->unreserve(d, r, &t, &err), 0); // still mapped
	ck_assert_int_eq(ops->unmap(d, a, &t, &err), 0);
	ck_assert_int_eq(ops->unmap(d, b, &t, &err), 0);
	ck_assert_int_eq(ops->unreserve(d, r, &t, &err), 0);
	ck_assert_uint_eq(d->used, 0);
}
END_TEST

// No room for a line: the device has its memory back, and gives it again.
START_TEST(a_ledger_that_cannot_grow)
{
	static char host[4096] __attribute__((aligned(4096)));
	struct genai_mem m[64], one = {.size = sizeof(one)};
	struct genai_range r = {0, 0};
	struct genai_ticket t;
	int32_t rc = 0;

	ck_assert_int_eq(ops->reserve(d, d->caps.granule, &r, &err), 0);
	for (int i = 0; i < 64; i++)
		m[i] = alloc(GENAI_MEM_DEVICE, 64, "kv");
	ck_assert_uint_eq(d->n_allocs, d->cap_allocs);
	for (int again = 0; again < 2; again++) {
		alloc_left = again ? -1 : 0;
		if (_i == 0)
			rc = ops->map(d, r, "kv", &err);
		if (_i == 1)
			rc = ops->host_register(d, host, 4096, &one, &err);
		if (again)
			ck_assert_msg(!rc, "%s", err.text);
		else
			fails(rc, GENAI_E_NOMEM, &err,
			      "no memory for the ledger");
	}
	t = drain(all);
	if (_i == 0)
		ck_assert_int_eq(ops->unmap(d, r, &t, &err), 0);
	if (_i == 1)
		ck_assert_int_eq(
			ops->host_unregister(d, one.range.addr, &t, &err), 0);
	ck_assert_int_eq(ops->unreserve(d, r, &t, &err), 0);
	for (int i = 0; i < 64; i++)
		give(&m[i]);
}
END_TEST

// cpu_ref maps whatever is asked for; writing it would be the end.
START_TEST(more_than_the_host_has)
{
	struct genai_mem m;

	fails(ops->alloc(d, GENAI_MEM_DEVICE, UINT64_C(1) << 45, "activations",
			 &m, &err),
	      GENAI_E_LIMIT, &err,
	      "35184372088832 bytes of activations do not fit: 0 of the "
	      "host's ");
}
END_TEST

START_TEST(mapped_bytes_count_to_the_limit)
{
	uint64_t g = d->caps.granule;
	struct genai_range r = {0, 0};
	struct genai_ticket t;

	genai_device_set_limit(d, g);
	ck_assert_int_eq(ops->reserve(d, 2 * g, &r, &err), 0);
	fails(ops->map(d, r, "kv", &err), GENAI_E_LIMIT, &err, "do not fit");
	t = drain(all);
	ck_assert_int_eq(ops->unreserve(d, r, &t, &err), 0);
}
END_TEST

// ---- work ----

struct counted {
	int runs;
	int32_t rc;
};

static int32_t count(void *ctx, void *const *mem, struct genai_error *e)
{
	struct counted *c = ctx;

	(void)mem;
	c->runs++;
	if (c->rc && e) {
		e->code = c->rc;
		snprintf(e->text, sizeof(e->text), "unit refused");
	}
	return c->rc;
}

static int32_t launch(struct genai_stream *s, struct counted *c,
		      const struct genai_access *acc, uint32_t n)
{
	struct genai_work w = {sizeof(w), 3, "a unit", count, c};

	return ops->launch(d, s, &w, acc, n, &err);
}

START_TEST(units_run_once)
{
	struct genai_stream *s = stream();
	struct counted c = {0, 0};
	struct genai_point p;

	ck_assert_int_eq(launch(s, &c, NULL, 0), 0);
	ck_assert_int_eq(ops->mark(d, s, &p, &err), 0);
	ck_assert_int_eq(bar->host_read(d, &p, 1, UINT64_MAX, &err), 0);
	ck_assert_int_eq(bar->host_read(d, &p, 1, UINT64_MAX, &err), 0);
	ck_assert_int_eq(ops->poll(d, p, &err), 0);
	ck_assert_int_eq(c.runs, 1);
	end_stream(s);
}
END_TEST

START_TEST(foreign_addresses_are_refused)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_access bad[] = {
		{m.range.addr, 65, GENAI_READ, 0},
		{m.range.addr + 64, 1, GENAI_READ, 0},
		{m.range.addr - 1, 2, GENAI_READ, 0},
		{(uintptr_t)&m, 8, GENAI_READ, 0},
		{0, 1, GENAI_WRITE, 0},
	};
	struct genai_stream *s = stream();
	struct counted c = {0, 0};

	fails(launch(s, &c, &bad[_i], 1), GENAI_E_INVAL, &err, "a unit");
	ck_assert_int_eq(c.runs, 0);
	end_stream(s);
	ck_assert_int_eq(c.runs, 0);
	give(&m);
}
END_TEST

START_TEST(a_failed_unit_poisons)
{
	struct genai_stream *s = stream();
	struct counted bad = {0, GENAI_E_DEVICE}, later = {0, 0};
	struct genai_point before, after;
	struct genai_ticket t;

	ck_assert_int_eq(launch(s, &later, NULL, 0), 0);
	ck_assert_int_eq(ops->mark(d, s, &before, &err), 0);
	ck_assert_int_eq(launch(s, &bad, NULL, 0), 0);
	ck_assert_int_eq(launch(s, &later, NULL, 0), 0);
	ck_assert_int_eq(ops->mark(d, s, &after, &err), 0);
	fails(bar->host_read(d, &after, 1, UINT64_MAX, &err), GENAI_E_DEVICE,
	      &err, "unit refused");
	ck_assert_uint_eq(err.node, 3);
	ck_assert_int_eq(later.runs, 1);
	ck_assert_int_eq(bar->host_read(d, &before, 1, UINT64_MAX, &err), 0);
	ck_assert_int_eq(ops->poll(d, after, &err), GENAI_E_DEVICE);
	// a drain works on it, and reset clears it
	t = drain(all);
	ck_assert_int_eq(ops->reset(d, &t, &err), 0);
	ck_assert_int_eq(launch(s, &later, NULL, 0), 0);
	ck_assert_int_eq(ops->mark(d, s, &after, &err), 0);
	ck_assert_int_eq(bar->host_read(d, &after, 1, UINT64_MAX, &err), 0);
	ck_assert_int_eq(later.runs, 2);
	end_stream(s);
}
END_TEST

START_TEST(poison_spreads_by_points)
{
	struct genai_stream *a = stream(), *b = stream(), *c = stream();
	struct counted bad = {0, GENAI_E_DEVICE}, after = {0, 0},
		       apart = {0, 0};
	struct genai_point p, q, r;
	struct genai_ticket t;

	ck_assert_int_eq(launch(a, &bad, NULL, 0), 0);
	ck_assert_int_eq(ops->mark(d, a, &p, &err), 0);
	ck_assert_int_eq(ops->wait(d, b, p, &err), 0);
	ck_assert_int_eq(launch(b, &after, NULL, 0), 0);
	ck_assert_int_eq(launch(c, &apart, NULL, 0), 0);
	ck_assert_int_eq(ops->mark(d, b, &q, &err), 0);
	ck_assert_int_eq(ops->mark(d, c, &r, &err), 0);
	fails(bar->host_read(d, &q, 1, UINT64_MAX, &err), GENAI_E_DEVICE, &err,
	      "unit refused");
	ck_assert_int_eq(after.runs, 0);
	ck_assert_int_eq(bar->host_read(d, &r, 1, UINT64_MAX, &err), 0);
	ck_assert_int_eq(apart.runs, 1);
	t = drain(all);
	ck_assert_int_eq(ops->reset(d, &t, &err), 0);
	end_stream(a);
	end_stream(b);
	end_stream(c);
}
END_TEST

START_TEST(zero_point_is_reached)
{
	struct genai_stream *s = stream();
	struct genai_point none = {NULL, 0};

	ck_assert_int_eq(ops->poll(d, none, &err), 0);
	ck_assert_int_eq(ops->wait(d, s, none, &err), 0);
	ck_assert_int_eq(bar->host_read(d, &none, 1, UINT64_MAX, &err), 0);
	ck_assert_int_eq(bar->host_read(d, NULL, 0, UINT64_MAX, &err), 0);
	end_stream(s);
}
END_TEST

START_TEST(copies_carry_bytes)
{
	struct genai_mem dev = alloc(GENAI_MEM_DEVICE, 4096, "x");
	struct genai_mem host = alloc(GENAI_MEM_HOST_PINNED, 8192, "x");
	struct genai_stream_stats st = {.size = sizeof(st)};
	struct genai_stream *s = stream();
	char *h = host.host;

	for (int i = 0; i < 4096; i++)
		h[i] = (char)(i * 7);
	ck_assert_int_eq(ops->copy(d, s, dev.range.addr, (uintptr_t)h, 4096,
				   GENAI_COPY_H2D, &err),
			 0);
	ck_assert_int_eq(ops->copy(d, s, (uintptr_t)h + 4096, dev.range.addr,
				   4096, GENAI_COPY_D2H, &err),
			 0);
	ck_assert_int_eq(ops->copy(d, s, 0, 0, 0, GENAI_COPY_D2H, &err), 0);
	drain(all);
	ck_assert_mem_eq(h, h + 4096, 4096);
	ck_assert_int_eq(ops->stats(d, &st, &err), 0);
	ck_assert_uint_eq(st.h2d_bytes, 4096);
	ck_assert_uint_eq(st.d2h_bytes, 4096);
	end_stream(s);
	give(&dev);
	give(&host);
}
END_TEST

// Host ends of copies must be pinned or registered.
START_TEST(ordinary_host_memory_is_refused)
{
	struct genai_mem dev = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_stream *s = stream();
	char plain[64] = {0};

	ck_assert_int_eq(ops->copy(d, s, dev.range.addr, (uintptr_t)plain, 64,
				   GENAI_COPY_H2D, &err),
			 GENAI_E_INVAL);
	ck_assert_int_eq(ops->copy(d, s, (uintptr_t)plain, dev.range.addr, 64,
				   GENAI_COPY_D2H, &err),
			 GENAI_E_INVAL);
	end_stream(s);
	give(&dev);
}
END_TEST

START_TEST(busy_stream)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_stream *s = stream();

	work(s, &m);
	fails(ops->destroy(d, s, &err), GENAI_E_BUSY, &err, "queued work");
	end_stream(s);
	give(&m);
	ck_assert_int_eq(ops->destroy(d, NULL, &err), 0);
}
END_TEST

// ---- recordings ----

START_TEST(memory_calls_while_recording)
{
	static char host[4096] __attribute__((aligned(4096)));
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x"), n;
	struct genai_stream *s = stream();
	struct genai_range r = {0, 0};
	struct genai_ticket t = drain(all);

	ck_assert_int_eq(ops->capture_begin(d, s, &err), 0);
	ck_assert_int_eq(ops->alloc(d, GENAI_MEM_DEVICE, 64, "x", &n, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(ops->free(d, m.range.addr, &t, &err), GENAI_E_STATE);
	ck_assert_int_eq(ops->reserve(d, d->caps.granule, &r, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(ops->host_register(d, host, 4096, &n, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(ops->capture_begin(d, s, &err), GENAI_E_STATE);
	ck_assert_int_eq(ops->capture_abort(d, s, &err), 0);
	end_stream(s);
	give(&m);
}
END_TEST

START_TEST(replays)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x");
	struct genai_access acc = {m.range.addr, 64, GENAI_WRITE, 0};
	struct genai_recording *rec = NULL;
	struct genai_stream *s = stream();
	struct counted c = {0, 0};
	struct genai_ticket t;

	ck_assert_int_eq(ops->capture_begin(d, s, &err), 0);
	ck_assert_int_eq(launch(s, &c, &acc, 1), 0);
	ck_assert_int_eq(ops->capture_end(d, s, &rec, &err), 0);
	ck_assert_ptr_nonnull(rec);
	ck_assert_int_eq(c.runs, 0);
	for (int i = 0; i < 3; i++)
		ck_assert_int_eq(ops->launch_graph(d, rec, s, &err), 0);
	t = drain(all);
	ck_assert_int_eq(c.runs, 3);
	// what it names cannot go before it
	fails(ops->free(d, m.range.addr, &t, &err), GENAI_E_BUSY, &err,
	      "recordings");
	fails(ops->graph_destroy(d, rec, NULL, &err), GENAI_E_STATE, &err,
	      "no ticket");
	ck_assert_int_eq(ops->graph_destroy(d, rec, &t, &err), 0);
	ck_assert_int_eq(ops->free(d, m.range.addr, &t, &err), 0);
	end_stream(s);
}
END_TEST

// ---- processes ----

START_TEST(after_fork)
{
	struct genai_mem m = alloc(GENAI_MEM_DEVICE, 64, "x"), n;
	struct genai_stream *s = stream();
	struct genai_point p = {NULL, 0};
	int status;
	pid_t pid = fork();

	if (!pid) {
		bool ok = true;

		ok &= ops->alloc(d, GENAI_MEM_DEVICE, 9, "x", &n, &err) ==
		      GENAI_E_FORKED;
		ok &= ops->free(d, m.range.addr, NULL, &err) == GENAI_E_FORKED;
		ok &= ops->copy(d, s, m.range.addr, m.range.addr, 1,
				GENAI_COPY_D2D, &err) == GENAI_E_FORKED;
		ok &= bar->host_read(d, &p, 1, UINT64_MAX, &err) ==
		      GENAI_E_FORKED;
		ok &= ops->capture_begin(d, s, &err) == GENAI_E_FORKED;
		ok &= strstr(err.text, "belongs to process") != NULL;
		_exit(!ok);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	end_stream(s);
	give(&m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("device");
	TCase *tc = tcase_create("all");

	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, unused_memory_needs_no_ticket);
	tcase_add_test(tc, no_ticket_after_work);
	tcase_add_test(tc, stale_ticket);
	tcase_add_test(tc, ticket_of_another_range);
	tcase_add_test(tc, ticket_of_a_wider_range);
	tcase_add_test(tc, ticket_of_another_device);
	tcase_add_test(tc, forged_ticket);
	tcase_add_test(tc, one_ticket_for_all);
	tcase_add_test(tc, reset_needs_all);
	tcase_add_test(tc, not_an_allocation);
	tcase_add_test(tc, empty_or_odd_allocations);
	tcase_add_test(tc, books_by_tag);
	tcase_add_test(tc, limit);
	tcase_add_test(tc, many_tags);
	tcase_add_test(tc, leaks_are_said);
	tcase_add_test(tc, registered_memory);
	tcase_add_test(tc, address_ranges);
	tcase_add_loop_test(tc, a_ledger_that_cannot_grow, 0, 2);
	tcase_add_test(tc, more_than_the_host_has);
	tcase_add_test(tc, mapped_bytes_count_to_the_limit);
	tcase_add_test(tc, units_run_once);
	tcase_add_loop_test(tc, foreign_addresses_are_refused, 0, 5);
	tcase_add_test(tc, a_failed_unit_poisons);
	tcase_add_test(tc, poison_spreads_by_points);
	tcase_add_test(tc, zero_point_is_reached);
	tcase_add_test(tc, copies_carry_bytes);
	tcase_add_test(tc, ordinary_host_memory_is_refused);
	tcase_add_test(tc, busy_stream);
	tcase_add_test(tc, memory_calls_while_recording);
	tcase_add_test(tc, replays);
	tcase_add_test(tc, after_fork);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
