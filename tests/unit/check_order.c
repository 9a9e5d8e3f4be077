// check_order.c - the happens-before check in front of the simulated device.
// Nothing here depends on what runs when: with inorder every race would give
// the right bytes.
#include "core/order/order.h"
#include "tests/unit/sim_device.h"

static struct genai_stream *a, *b;
static struct genai_mem m;

static void setup(void)
{
	open_device(SETS("runtime.check=order"));
	a = stream("alpha");
	b = stream("beta");
	m = take(GENAI_MEM_DEVICE, 4096);
}

static void teardown(void)
{
	give(&m);
	end_stream(a);
	end_stream(b);
	close_device();
}

#define R GENAI_READ
#define W GENAI_WRITE

START_TEST(pairs)
{
	static const uint32_t kinds[] = {R, W, R | W};
	uint32_t x = kinds[_i / 3], y = kinds[_i % 3];

	unit(a, "x", m.range.addr, 64, x);
	if (x == R && y == R)
		unit(b, "y", m.range.addr, 64, y);
	else
		FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr, 64, y));
	// a point makes it right
	after(b, mark(a));
	unit(b, "y", m.range.addr, 64, y);
}
END_TEST

START_TEST(text)
{
	unit(a, "x", m.range.addr + 64, 64, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr, 128, R));
	ck_assert_ptr_nonnull(strstr(err.text, "y (node 121)"));
	ck_assert_ptr_nonnull(strstr(err.text, "on stream 'beta' reads 128"));
	ck_assert_ptr_nonnull(strstr(err.text, "x (node 120) on stream 'alpha' "
					       "writes"));
	ck_assert_ptr_nonnull(strstr(err.text, "unit 1 of 'beta' does not wait "
					       "for a point of 'alpha' after "
					       "its unit 1"));
	ck_assert_uint_eq(err.node, 121);
}
END_TEST

// The memory is named as it would be in any other run.
START_TEST(places)
{
	struct genai_range r = {0, 0}, one, two;
	struct genai_mem h = take(GENAI_MEM_HOST_PINNED, 256);
	struct genai_ticket t;

	unit(a, "x", m.range.addr + 64, 64, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr + 80, 4, R));
	ck_assert_ptr_nonnull(strstr(err.text, " reads 4 bytes from byte 80 of "
					       "workspace #1, and "));
	OK(ops->copy(dev, a, m.range.addr, (uintptr_t)h.host + 8, 8,
		     GENAI_COPY_H2D, &err));
	FAILS(GENAI_E_ORDER, try_unit(b, "y", h.range.addr + 9, 1, W));
	ck_assert_ptr_nonnull(strstr(err.text, "byte 9 of workspace #2, and "));
	OK(ops->reserve(dev, 2 * dev->caps.granule, &r, &err));
	one = (struct genai_range){r.addr, dev->caps.granule};
	two = (struct genai_range){r.addr + one.bytes, one.bytes};
	OK(ops->map(dev, one, "kv", &err));
	OK(ops->map(dev, two, "kv", &err));
	unit(a, "x", two.addr, 8, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", two.addr + 7, 8, W));
	ck_assert_ptr_nonnull(strstr(err.text, "byte 7 of kv #4, and "));
	t = drain_all();
	OK(ops->unmap(dev, one, &t, &err));
	OK(ops->unmap(dev, two, &t, &err));
	OK(ops->unreserve(dev, r, &t, &err));
	give(&h);
}
END_TEST

// However long the names are, the edge is not cut off.
START_TEST(long_names)
{
	char x[600], y[600];

	memset(x, 'x', sizeof(x));
	memset(y, 'y', sizeof(y));
	memcpy(x + 71, "\xe2\x82\xac", 3); // not cut within
	x[599] = y[599] = 0;
	unit(a, x, m.range.addr, 64, W);
	FAILS(GENAI_E_ORDER, try_unit(b, y, m.range.addr, 64, R));
	ck_assert_ptr_nonnull(strstr(err.text, "yy... (node 121) on stream"));
	ck_assert_ptr_nonnull(strstr(err.text, "xx... (node 120) on stream"));
	ck_assert_ptr_nonnull(strstr(err.text, "after its unit 1"));
}
END_TEST

START_TEST(bytes)
{
	// neighbours do not meet; one byte more does
	unit(a, "x", m.range.addr + 100, 28, W);
	unit(b, "y", m.range.addr, 100, W);
	unit(b, "y", m.range.addr + 128, 100, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "z", m.range.addr + 127, 1, R));
	FAILS(GENAI_E_ORDER, try_unit(b, "z", m.range.addr, 101, R));
	FAILS(GENAI_E_ORDER, try_unit(a, "z", m.range.addr, 1, R));
	unit(a, "z", m.range.addr + 100, 28, R | W);
}
END_TEST

START_TEST(early_point)
{
	struct genai_point p;

	unit(a, "x", m.range.addr, 8, W);
	p = mark(a);
	unit(a, "x", m.range.addr + 8, 8, W);
	after(b, p);
	unit(b, "y", m.range.addr, 8, R);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr, 16, R));
	ck_assert_ptr_nonnull(strstr(err.text, "after its unit 2"));
}
END_TEST

START_TEST(chain)
{
	struct genai_stream *c = stream("gamma");

	unit(a, "x", m.range.addr, 8, W);
	after(c, mark(a));
	unit(c, "k", m.range.addr + 64, 8, W);
	after(b, mark(c));
	unit(b, "y", m.range.addr, 8, W);
	// what c did before the wait is known, not what a did since
	unit(a, "x", m.range.addr + 128, 8, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr + 128, 8, R));
	end_stream(c);
}
END_TEST

START_TEST(readers)
{
	struct genai_stream *c = stream("gamma");

	// both readers must be waited for
	unit(a, "x", m.range.addr, 8, R);
	unit(b, "y", m.range.addr, 8, R);
	after(c, mark(a));
	FAILS(GENAI_E_ORDER, try_unit(c, "w", m.range.addr, 8, W));
	ck_assert_ptr_nonnull(strstr(err.text, "'beta'"));
	after(c, mark(b));
	unit(c, "w", m.range.addr, 8, W);
	end_stream(c);
}
END_TEST

START_TEST(host_edges)
{
	struct genai_ticket t = {.size = sizeof(t)};
	struct genai_point p;

	unit(a, "x", m.range.addr, 8, W);
	p = mark(a);
	unit(a, "x", m.range.addr + 8, 8, W);
	reach(p);
	unit(b, "y", m.range.addr, 8, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr + 8, 8, W));
	OK(bar->drain(dev, m.range, UINT64_MAX, &t, &err));
	unit(b, "y", m.range.addr + 8, 8, W);
	drain_all();
	unit(a, "x", m.range.addr, 16, W);
	p = mark(a);
	while (ops->poll(dev, p, &err) == GENAI_PENDING)
		;
	unit(b, "y", m.range.addr, 16, W);
}
END_TEST

START_TEST(copies)
{
	struct genai_mem h = take(GENAI_MEM_HOST_PINNED, 256);

	// a copy reads pinned memory that a unit names by its device address
	OK(ops->copy(dev, a, m.range.addr, (uintptr_t)h.host + 128, 64,
		     GENAI_COPY_H2D, &err));
	unit(b, "y", h.range.addr + 128, 64, R);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", h.range.addr + 191, 1, W));
	ck_assert_ptr_nonnull(strstr(err.text, "copy to the device (no node)"));
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr + 63, 1, R));
	FAILS(GENAI_E_ORDER, ops->copy(dev, b, (uintptr_t)h.host, m.range.addr,
				       8, GENAI_COPY_D2H, &err));
	after(b, mark(a));
	OK(ops->copy(dev, b, (uintptr_t)h.host, m.range.addr, 8, GENAI_COPY_D2H,
		     &err));
	give(&h);
}
END_TEST

// origin a writes, branch b reads, b is joined back; with_wait: b waits for a.
static struct genai_recording *record(uint64_t write_at, uint64_t late_read)
{
	struct genai_recording *r = NULL;

	OK(ops->capture_begin(dev, a, &err));
	unit(a, "w", m.range.addr + write_at, 8, W);
	after(b, mark(a));
	unit(b, "r", m.range.addr + write_at, 8, R);
	unit(b, "c", m.range.addr + 1024, 8, W);
	if (late_read)
		unit(a, "l", m.range.addr + late_read, 8, R);
	after(a, mark(b));
	OK(ops->capture_end(dev, a, &r, &err));
	return r;
}

static void drop(struct genai_recording *r)
{
	struct genai_ticket t = drain_all();

	OK(ops->graph_destroy(dev, r, &t, &err));
}

START_TEST(replays)
{
	struct genai_recording *r = record(0, 0);

	for (int i = 0; i < 3; i++)
		OK(ops->launch_graph(dev, r, a, &err));
	// its units are ordered for the origin, and for nobody else
	unit(a, "x", m.range.addr + 1024, 8, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr, 8, W));
	after(b, mark(a));
	unit(b, "y", m.range.addr, 8, W);
	// and b's work since is not before the next replay
	FAILS(GENAI_E_ORDER, ops->launch_graph(dev, r, a, &err));
	after(a, mark(b));
	OK(ops->launch_graph(dev, r, a, &err));
	drop(r);
}
END_TEST

START_TEST(race_inside)
{
	// the origin reads what the branch writes, before the join
	struct genai_recording *r = record(0, 1024);

	FAILS(GENAI_E_ORDER, ops->launch_graph(dev, r, a, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "c (node 99) on stream 'beta'"));
	drop(r);
}
END_TEST

START_TEST(branch_is_not_the_stream)
{
	// work of b's stream outside is not before its branch: R2
	struct genai_recording *r = record(0, 0);

	unit(b, "p", m.range.addr + 1024, 8, W);
	FAILS(GENAI_E_ORDER, ops->launch_graph(dev, r, a, &err));
	after(a, mark(b));
	OK(ops->launch_graph(dev, r, a, &err));
	drop(r);
}
END_TEST

START_TEST(aborted)
{
	unit(a, "x", m.range.addr, 8, W);
	OK(ops->capture_begin(dev, a, &err));
	unit(a, "w", m.range.addr + 512, 8, W);
	OK(ops->capture_abort(dev, a, &err));
	// what was dropped never ran
	unit(b, "y", m.range.addr + 512, 8, W);
	FAILS(GENAI_E_ORDER, try_unit(b, "y", m.range.addr, 8, W));
}
END_TEST

START_TEST(streams_come_and_go)
{
	// a line of the clock is used again by another stream
	for (int i = 0; i < 200; i++) {
		struct genai_stream *c = stream("c");

		unit(c, "x", m.range.addr, 64, W);
		reach(mark(c));
		unit(a, "y", m.range.addr, 64, W);
		reach(mark(a));
		end_stream(c);
	}
}
END_TEST

START_TEST(given_back)
{
	// without the core in front, who would refuse a missing ticket
	struct genai_stream_ops raw = dev->raw;
	struct genai_barrier_ops raw_bar = dev->raw_barrier;
	void *self = dev->raw_self, *bar_self = dev->barrier_self;
	struct genai_mem x = {.size = sizeof(x)};
	struct genai_work w = {sizeof(w), 7, "late", say, "l"};
	struct genai_order *o = NULL;
	struct genai_access acc;
	struct genai_stream *s;
	struct genai_point p;

	OK(genai_order_open(&raw, &self, &raw_bar, &bar_self, &o, &err));
	OK(raw.create(self, "s", &s, &err));
	OK(raw.alloc(self, GENAI_MEM_DEVICE, 64, "t", &x, &err));
	acc = (struct genai_access){x.range.addr, 64, R, 0};
	OK(raw.launch(self, s, &w, &acc, 1, &err));
	OK(raw.mark(self, s, &p, &err));
	FAILS(GENAI_E_ORDER, raw.free(self, x.range.addr, NULL, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "late (node 7) on stream 's'"));
	OK(raw_bar.host_read(bar_self, &p, 1, UINT64_MAX, &err));
	OK(raw.free(self, x.range.addr, NULL, &err));
	OK(raw.destroy(self, s, &err));
	genai_order_close(o);
}
END_TEST

START_TEST(off)
{
	open_device(NULL);
	ck_assert_ptr_null(dev->order);
	a = stream("alpha");
	b = stream("beta");
	m = take(GENAI_MEM_DEVICE, 4096);
	unit(a, "x", m.range.addr, 8, W);
	unit(b, "y", m.range.addr, 8, W);
	teardown();
}
END_TEST

// A program of random units, waits and host reads, checked against reachability
// computed the slow way: no false alarm, nothing missed.
#define N 60
static struct {
	uint32_t stream, flags;
	uint64_t at;
	bool before[N]; // by edges
} units[N];

static bool conflicts(uint32_t i, uint32_t k)
{
	return units[i].at < units[k].at + 16 &&
	       units[k].at < units[i].at + 16 &&
	       (units[i].flags | units[k].flags) & W;
}

START_TEST(random_programs)
{
	struct genai_stream *s[3] = {a, b, stream("gamma")};
	bool knows[3][N] = {0}; // per stream: units that are before its next
	uint32_t seed = (uint32_t)_i * 7919 + 1, n = 0, caught = 0;

	for (uint32_t step = 0; n < N; step++) {
		uint32_t x = (seed = seed * 1664525 + 1013904223) >> 8;
		uint32_t i = x % 3, k = (x >> 4) % 3;
		bool race = false;

		if (x >> 8 & 1 && i != k) {
			after(s[i], mark(s[k]));
			for (uint32_t u = 0; u < n; u++)
				knows[i][u] |= knows[k][u];
			continue;
		}
		units[n].stream = i;
		units[n].flags = x >> 9 & 1 ? W : R;
		units[n].at = (x >> 10) % 64;
		for (uint32_t u = 0; u < n; u++)
			race |= conflicts(u, n) && !knows[i][u];
		if (race) {
			FAILS(GENAI_E_ORDER,
			      try_unit(s[i], "u", m.range.addr + units[n].at,
				       16, units[n].flags));
			caught++;
			continue; // not enqueued: it is no unit
		}
		unit(s[i], "u", m.range.addr + units[n].at, 16, units[n].flags);
		knows[i][n++] = true;
		if (step % 41 == 40) {
			reach(mark(s[k]));
			for (uint32_t j = 0; j < 3; j++)
				for (uint32_t u = 0; u < n; u++)
					knows[j][u] |= knows[k][u];
		}
	}
	ck_assert_uint_gt(caught, 0);
	end_stream(s[2]);
	say_nothing_yet();
}
END_TEST

// ---- what the device keeps of a recording ----

static struct genai_stream_ops raw, checked;
static void *raw_self, *checked_self;
static uint32_t waits, dropped; // so many were made; this one came to nothing

static int32_t wait_dropped(void *self, struct genai_stream *s,
			    struct genai_point p, struct genai_error *e)
{
	return waits++ == dropped ? 0 : raw.wait(self, s, p, e);
}

static struct genai_point kept_mark(struct genai_stream *s)
{
	struct genai_point p;

	OK(checked.mark(checked_self, s, &p, &err));
	return p;
}

static void kept_wait(struct genai_stream *s, struct genai_point p)
{
	OK(checked.wait(checked_self, s, p, &err));
}

static void kept_unit(struct genai_stream *s, const char *name)
{
	struct genai_work w = {sizeof(w), GENAI_NONE, name, say,
			       (void *)(uintptr_t)name};

	OK(checked.launch(checked_self, s, &w, NULL, 0, &err));
}

// Copies and units wait on each other in turn, then a third stream waits for an
// early point of the copies and for a later one.
static struct genai_recording *record_turns(struct genai_stream *c)
{
	struct genai_recording *rec = NULL;
	struct genai_point one, two, end;

	OK(checked.capture_begin(checked_self, a, &err));
	kept_wait(b, kept_mark(a)); // 0
	kept_unit(b, "1 decodes");
	kept_wait(c, kept_mark(b)); // 1
	kept_unit(c, "2 copies");
	one = kept_mark(c);
	kept_wait(b, one); // 2
	kept_unit(b, "3 decodes");
	kept_wait(c, kept_mark(b)); // 3
	kept_unit(c, "4 copies");
	two = kept_mark(c);
	kept_wait(b, two); // 4
	kept_unit(b, "5 decodes");
	kept_wait(c, kept_mark(b)); // 5
	kept_unit(c, "6 copies");
	end = kept_mark(c);
	kept_wait(a, one); // 6
	kept_unit(a, "7 reads");
	kept_wait(a, two); // 7
	kept_unit(a, "8 reads");
	kept_wait(a, end); // 8
	OK(checked.capture_end(checked_self, a, &rec, &err));
	return rec;
}

// No bytes are touched: it is the wait itself that is missing.
START_TEST(kept)
{
	static const char *const missing[] = {
		[2] = "2 copies, unit 1 of stream 'gamma', comes before 3 "
		      "decodes, unit 2 of stream 'beta'",
		[3] = "3 decodes, unit 2 of stream 'beta', comes before 4 "
		      "copies, unit 2 of stream 'gamma'",
		[6] = "1 decodes, unit 1 of stream 'beta', comes before 7 "
		      "reads, unit 1 of stream 'alpha'",
		[7] = "3 decodes, unit 2 of stream 'beta', comes before 8 "
		      "reads, unit 2 of stream 'alpha'",
		[9] = NULL,
	};
	struct genai_barrier_ops barrier;
	struct genai_order *o = NULL;
	struct genai_recording *rec;
	struct genai_ticket t;
	struct genai_stream *c;
	void *bself;

	open_device(SETS("module.cpu_ref.schedule=late"));
	raw = checked = dev->raw;
	raw_self = checked_self = dev->raw_self;
	barrier = dev->raw_barrier;
	bself = dev->barrier_self;
	waits = 0;
	dropped = (uint32_t)_i;
	checked.wait = wait_dropped;
	OK(genai_order_open(&checked, &checked_self, &barrier, &bself, &o,
			    &err));
	OK(checked.create(checked_self, "alpha", &a, &err));
	OK(checked.create(checked_self, "beta", &b, &err));
	OK(checked.create(checked_self, "gamma", &c, &err));
	rec = record_turns(c);
	ck_assert_uint_eq(waits, 9);
	say_nothing_yet();
	if (missing[_i]) {
		FAILS(GENAI_E_ORDER,
		      checked.launch_graph(checked_self, rec, a, &err));
		ck_assert_msg(strstr(err.text, missing[_i]) != NULL, "%s",
			      err.text);
	} else {
		OK(checked.launch_graph(checked_self, rec, a, &err));
	}
	t = drain_all();
	ck_assert_str_eq(ran.text, missing[_i] ? "" : "12345678");
	OK(checked.graph_destroy(checked_self, rec, &t, &err));
	OK(checked.destroy(checked_self, a, &err));
	OK(checked.destroy(checked_self, b, &err));
	OK(checked.destroy(checked_self, c, &err));
	genai_order_close(o);
	close_device();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("order");
	TCase *t = tcase_create("edges"), *u = tcase_create("off");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, pairs, 0, 9);
	tcase_add_test(t, text);
	tcase_add_test(t, places);
	tcase_add_test(t, long_names);
	tcase_add_test(t, bytes);
	tcase_add_test(t, early_point);
	tcase_add_test(t, chain);
	tcase_add_test(t, readers);
	tcase_add_test(t, host_edges);
	tcase_add_test(t, copies);
	tcase_add_test(t, replays);
	tcase_add_test(t, race_inside);
	tcase_add_test(t, branch_is_not_the_stream);
	tcase_add_test(t, aborted);
	tcase_add_test(t, streams_come_and_go);
	tcase_add_test(t, given_back);
	tcase_add_loop_test(t, random_programs, 0, 200);
	suite_add_tcase(s, t);
	tcase_add_test(u, off);
	// 9: none is missing; those that a recording does not end without are
	// not left out
	tcase_add_loop_test(u, kept, 2, 4);
	tcase_add_loop_test(u, kept, 6, 8);
	tcase_add_loop_test(u, kept, 9, 10);
	suite_add_tcase(s, u);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
