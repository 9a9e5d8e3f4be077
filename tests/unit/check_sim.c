// check_sim.c - the simulated device: schedules, poison, faults, the trace.
#include <time.h>
#include <unistd.h>

#include "tests/unit/sim_device.h"

#define R GENAI_READ
#define W GENAI_WRITE

// ---- schedules ----

// Units a..d on one stream, w..z on another, x after b; copies are not seen,
// but what they copied is.
static void two_streams(char out[16])
{
	struct genai_stream *s = stream("s"), *t = stream("t");

	say_nothing_yet();
	unit(s, "a", 0, 0, 0);
	unit(t, "w", 0, 0, 0);
	unit(s, "b", 0, 0, 0);
	after(t, mark(s));
	unit(t, "x", 0, 0, 0);
	unit(s, "c", 0, 0, 0);
	unit(t, "y", 0, 0, 0);
	unit(t, "z", 0, 0, 0);
	unit(s, "d", 0, 0, 0);
	ck_assert_str_eq(ran.text, ""); // nothing runs before somebody waits
	drain_all();
	memcpy(out, ran.text, 16);
	end_stream(s);
	end_stream(t);
}

static const char *at(const char *s, char c)
{
	return strchr(s, c);
}

// In stream order, and x after b.
static void is_legal(const char *s)
{
	ck_assert_uint_eq(strlen(s), 8);
	ck_assert(at(s, 'a') < at(s, 'b') && at(s, 'b') < at(s, 'c') &&
		  at(s, 'c') < at(s, 'd') && at(s, 'w') < at(s, 'x') &&
		  at(s, 'x') < at(s, 'y') && at(s, 'y') < at(s, 'z') &&
		  at(s, 'b') < at(s, 'x'));
}

START_TEST(inorder)
{
	char order[16];

	open_device(NULL);
	two_streams(order);
	ck_assert_str_eq(order, "awbxcyzd");
	close_device();
}
END_TEST

START_TEST(random_orders)
{
	char order[16], again[16], set[64];
	char seen[40][16];
	uint32_t n = 0;

	for (uint32_t seed = 0; seed < 40; seed++) {
		snprintf(set, sizeof(set), "module.cpu_ref.schedule=random:%u",
			 seed);
		open_device(SETS(set));
		two_streams(order);
		close_device();
		is_legal(order);
		open_device(SETS(set));
		two_streams(again);
		close_device();
		ck_assert_str_eq(order, again);
		for (uint32_t i = 0; i <= n; i++)
			if (i == n || !strcmp(seen[i], order)) {
				memcpy(seen[i], order, 16);
				n += i == n;
				break;
			}
	}
	ck_assert_uint_gt(n, 15);
}
END_TEST

// A copy on its own stream beside a unit: which is first?
static const char *copy_or_unit(const char *schedule)
{
	struct genai_stream *s, *t;
	struct genai_mem d, h;
	char set[64];
	const char *first;

	snprintf(set, sizeof(set), "module.cpu_ref.schedule=%s", schedule);
	open_device(SETS(set));
	s = stream("s");
	t = stream("t");
	d = take(GENAI_MEM_DEVICE, 64);
	h = take(GENAI_MEM_HOST_PINNED, 128);
	memset(h.host, 1, 64);
	memset((char *)h.host + 64, 2, 64);
	// two copies to the same place: the later one is seen
	OK(ops->copy(dev, s, d.range.addr, (uintptr_t)h.host, 64,
		     GENAI_COPY_H2D, &err));
	unit(t, "u", 0, 0, 0);
	OK(ops->copy(dev, t, d.range.addr, (uintptr_t)h.host + 64, 64,
		     GENAI_COPY_H2D, &err));
	unit(s, "v", 0, 0, 0);
	say_nothing_yet();
	reach(mark(t));
	// how far s has come when t's copy is done
	first = at(ran.text, 'v') ? "v ran" : "v waits";
	drain_all();
	give(&d);
	give(&h);
	end_stream(s);
	end_stream(t);
	close_device();
	return first;
}

START_TEST(copies_late_and_early)
{
	// inorder: t's copy was enqueued before v.  late: units first, so v
	// would run before any copy, but it is behind one; early: everything
	// that may run has run when a wait returns
	ck_assert_str_eq(copy_or_unit("inorder"), "v waits");
	ck_assert_str_eq(copy_or_unit("late"), "v ran");
	ck_assert_str_eq(copy_or_unit("early"), "v ran");
}
END_TEST

START_TEST(early_goes_on)
{
	struct genai_stream *s;
	struct genai_point p;

	open_device(SETS("module.cpu_ref.schedule=early"));
	s = stream("s");
	say_nothing_yet();
	unit(s, "a", 0, 0, 0);
	p = mark(s);
	unit(s, "b", 0, 0, 0);
	reach(p);
	ck_assert_str_eq(ran.text, "ab"); // b before anybody asked for it
	end_stream(s);
	close_device();
}
END_TEST

START_TEST(threads)
{
	struct genai_stream *s, *t;

	open_device(SETS("module.cpu_ref.schedule=threads"));
	for (int i = 0; i < 200; i++) {
		char order[16];

		s = stream("s");
		t = stream("t");
		say_nothing_yet();
		unit(s, "a", 0, 0, 0);
		unit(t, "w", 0, 0, 0);
		unit(s, "b", 0, 0, 0);
		after(t, mark(s));
		unit(t, "x", 0, 0, 0);
		unit(s, "c", 0, 0, 0);
		unit(t, "y", 0, 0, 0);
		unit(t, "z", 0, 0, 0);
		unit(s, "d", 0, 0, 0);
		reach(mark(t));
		reach(mark(s));
		memcpy(order, ran.text, 16);
		is_legal(order);
		end_stream(s);
		end_stream(t);
	}
	close_device();
}
END_TEST

static int32_t nap(void *ctx, void *const *mem, struct genai_error *e)
{
	struct timespec t = {0, 30000000};

	nanosleep(&t, NULL);
	return say(ctx, mem, e);
}

START_TEST(threads_run_by_themselves)
{
	struct genai_stream *s;
	struct genai_work w = {sizeof(w), 0, "n", nap, "n"};
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	struct genai_point p;

	open_device(SETS("module.cpu_ref.schedule=threads"));
	s = stream("s");
	say_nothing_yet();
	OK(ops->launch_host(dev, s, &w, NULL, 0, &err));
	OK(ops->launch_host(dev, s, &w, NULL, 0, &err));
	p = mark(s);
	ck_assert_int_eq(ops->poll(dev, p, &err), GENAI_PENDING);
	FAILS(GENAI_E_BUSY, ops->destroy(dev, s, &err));
	// a deadline that has passed: the device goes on, the host does not
	FAILS(GENAI_E_DEADLINE, bar->host_read(dev, &p, 1, 0, &err));
	FAILS(GENAI_E_DEADLINE, bar->drain(dev, all_bytes, 0, &ticket, &err));
	for (int i = 0; i < 5000 && ops->poll(dev, p, &err); i++)
		usleep(1000);
	OK(ops->poll(dev, p, &err));
	ck_assert_int_eq(ran.text[0], 'n');
	end_stream(s);
	close_device();
}
END_TEST

START_TEST(bad_settings)
{
	static const char *const bad[] = {
		"module.cpu_ref.schedule=random:",
		"module.cpu_ref.schedule=random:x",
		"module.cpu_ref.schedule=random:1x",
		"module.cpu_ref.schedule=soon",
		"module.cpu_ref.fault=oom",
		"module.cpu_ref.fault=oom:0",
		"module.cpu_ref.fault=oom:x",
		"module.cpu_ref.fault=copy:1x",
		"module.cpu_ref.fault=melt:1",
		"module.cpu_ref.clock=wrong",
		"module.cpu_ref.poison=maybe",
		"module.cpu_ref.simd=sse2",
		"module.cpu_ref.link_bytes_per_s=-1",
	};

	ck_assert_int_eq(try_device(SETS(bad[_i])), GENAI_E_CONFIG);
	ck_assert_str_ne(err.text, "");
}
END_TEST

// ---- memory ----

static uint8_t first_byte(const char *const *sets)
{
	struct genai_stream *s;
	struct genai_mem d, h;
	uint8_t v;

	open_device(sets);
	s = stream("s");
	d = take(GENAI_MEM_DEVICE, 4096);
	h = take(GENAI_MEM_HOST_PINNED, 4096);
	OK(ops->copy(dev, s, (uintptr_t)h.host, d.range.addr, 4096,
		     GENAI_COPY_D2H, &err));
	reach(mark(s));
	v = *(uint8_t *)h.host;
	for (uint32_t i = 0; i < 4096; i++)
		ck_assert_uint_eq(((uint8_t *)h.host)[i], v);
	give(&d);
	give(&h);
	end_stream(s);
	close_device();
	return v;
}

START_TEST(poison)
{
	ck_assert_uint_eq(first_byte(NULL), 0);
	ck_assert_uint_eq(first_byte(SETS("module.cpu_ref.schedule=late")),
			  0xff);
	ck_assert_uint_eq(first_byte(SETS("module.cpu_ref.poison=on")), 0xff);
	ck_assert_uint_eq(first_byte(SETS("module.cpu_ref.schedule=early",
					  "module.cpu_ref.poison=off")),
			  0);
}
END_TEST

START_TEST(poison_of_mapped)
{
	struct genai_range r = {0, 0};
	struct genai_ticket t;
	struct genai_stream *s;
	struct genai_mem h;

	open_device(SETS("module.cpu_ref.poison=on"));
	s = stream("s");
	h = take(GENAI_MEM_HOST_PINNED, 64);
	OK(ops->reserve(dev, UINT64_C(1) << 20, &r, &err));
	r.bytes = UINT64_C(64) << 10;
	OK(ops->map(dev, r, GENAI_TAG_KV, &err));
	OK(ops->copy(dev, s, (uintptr_t)h.host, r.addr + r.bytes - 64, 64,
		     GENAI_COPY_D2H, &err));
	reach(mark(s));
	ck_assert_uint_eq(((uint8_t *)h.host)[63], 0xff);
	FAILS(GENAI_E_INVAL, try_unit(s, "u", r.addr + r.bytes - 8, 16, R));
	t = drain_all();
	OK(ops->unmap(dev, r, &t, &err));
	FAILS(GENAI_E_INVAL, try_unit(s, "u", r.addr, 1, R));
	r.bytes = UINT64_C(1) << 20;
	t = drain_all();
	OK(ops->unreserve(dev, r, &t, &err));
	give(&h);
	end_stream(s);
	close_device();
}
END_TEST

START_TEST(freed_addresses_stay_away)
{
	genai_addr old[32];
	struct genai_stream *s;

	open_device(SETS("module.cpu_ref.poison=on"));
	s = stream("s");
	for (uint32_t i = 0; i < 32; i++) {
		struct genai_mem d = take(GENAI_MEM_DEVICE, 8192);

		old[i] = d.range.addr;
		for (uint32_t k = 0; k < i; k++)
			ck_assert(old[k] != old[i]);
		give(&d);
		FAILS(GENAI_E_INVAL, try_unit(s, "u", old[i], 8, R));
		ck_assert_ptr_nonnull(strstr(err.text, "not mapped"));
	}
	end_stream(s);
	close_device();
}
END_TEST

// The module alone, as if a barrier had promised what it did not do.
START_TEST(queued_memory_stays)
{
	struct genai_stream *s;
	struct genai_mem d, h;

	open_device(NULL);
	s = stream("s");
	d = take(GENAI_MEM_DEVICE, 4096);
	h = take(GENAI_MEM_HOST_PINNED, 4096);
	unit(s, "reader", d.range.addr + 4095, 1, R);
	OK(ops->copy(dev, s, d.range.addr, (uintptr_t)h.host, 8, GENAI_COPY_H2D,
		     &err));
	FAILS(GENAI_E_STATE,
	      dev->raw.free(dev->raw_self, d.range.addr, NULL, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "reader"));
	FAILS(GENAI_E_STATE,
	      dev->raw.free(dev->raw_self, h.range.addr, NULL, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "no drain came before"));
	give(&d);
	give(&h);
	end_stream(s);
	close_device();
}
END_TEST

START_TEST(recorded_things_stay)
{
	struct genai_recording *r = NULL;
	struct genai_stream *s, *t;
	struct genai_ticket ticket;
	struct genai_mem d, h;

	open_device(NULL);
	s = stream("s");
	t = stream("t");
	d = take(GENAI_MEM_DEVICE, 4096);
	h = take(GENAI_MEM_HOST_PINNED, 4096);
	OK(ops->capture_begin(dev, s, &err));
	after(t, mark(s));
	OK(ops->copy(dev, t, d.range.addr, (uintptr_t)h.host, 8, GENAI_COPY_H2D,
		     &err));
	after(s, mark(t));
	OK(ops->capture_end(dev, s, &r, &err));
	ticket = drain_all();
	FAILS(GENAI_E_BUSY, ops->free(dev, d.range.addr, &ticket, &err));
	FAILS(GENAI_E_BUSY, ops->free(dev, h.range.addr, &ticket, &err));
	FAILS(GENAI_E_BUSY, ops->destroy(dev, t, &err));
	FAILS(GENAI_E_BUSY, ops->destroy(dev, s, &err));
	OK(ops->graph_destroy(dev, r, &ticket, &err));
	give(&d);
	give(&h);
	end_stream(t);
	end_stream(s);
	close_device();
}
END_TEST

// ---- faults ----

START_TEST(out_of_memory)
{
	struct genai_mem d, e = {.size = sizeof(e)};

	open_device(SETS("module.cpu_ref.fault=oom:2"));
	d = take(GENAI_MEM_DEVICE, 64);
	FAILS(GENAI_E_LIMIT,
	      ops->alloc(dev, GENAI_MEM_DEVICE, 64, "t", &e, &err));
	ck_assert_str_eq(err.text, "64 bytes: out of memory (allocation 2, "
				   "simulated)");
	e = take(GENAI_MEM_DEVICE, 64);
	give(&d);
	give(&e);
	close_device();
}
END_TEST

static void copy_once(struct genai_stream *s, struct genai_mem *d,
		      struct genai_mem *h)
{
	OK(ops->copy(dev, s, d->range.addr, (uintptr_t)h->host, 64,
		     GENAI_COPY_H2D, &err));
}

START_TEST(failed_copy)
{
	struct genai_stream *s;
	struct genai_ticket t;
	struct genai_mem d, h;
	struct genai_point p;

	open_device(SETS("module.cpu_ref.fault=copy:2"));
	s = stream("s");
	d = take(GENAI_MEM_DEVICE, 64);
	h = take(GENAI_MEM_HOST_PINNED, 64);
	copy_once(s, &d, &h);
	reach(mark(s));
	copy_once(s, &d, &h);
	say_nothing_yet();
	unit(s, "u", 0, 0, 0);
	p = mark(s);
	FAILS(GENAI_E_DEVICE, bar->host_read(dev, &p, 1, UINT64_MAX, &err));
	ck_assert_str_eq(err.text, "copy of 64 bytes failed (copy 2, "
				   "simulated)");
	ck_assert_str_eq(ran.text, ""); // skipped
	t = drain_all();
	OK(ops->reset(dev, &t, &err));
	copy_once(s, &d, &h);
	reach(mark(s));
	give(&d);
	give(&h);
	end_stream(s);
	close_device();
}
END_TEST

START_TEST(lost_device)
{
	struct genai_stream *s;
	struct genai_ticket t;
	struct genai_point p;

	open_device(SETS("module.cpu_ref.fault=lost:2"));
	s = stream("s");
	say_nothing_yet();
	unit(s, "a", 0, 0, 0);
	unit(s, "b", 0, 0, 0);
	for (int i = 0; i < 2; i++) {
		p = mark(s);
		FAILS(GENAI_E_DEVICE,
		      bar->host_read(dev, &p, 1, UINT64_MAX, &err));
		ck_assert_ptr_nonnull(strstr(err.text, "lost"));
		t = drain_all();
		OK(ops->reset(dev, &t, &err));
		unit(s, "c", 0, 0, 0); // a reset does not bring it back
	}
	ck_assert_str_eq(ran.text, "a");
	end_stream(s);
	close_device();
}
END_TEST

// On the real clock it takes 50 ms at least; on the simulated one: check_clock.
START_TEST(slow_copy)
{
	struct timespec from, to;
	struct genai_stream *s;
	struct genai_mem d, h;

	open_device(SETS("module.cpu_ref.fault=slow:2"));
	s = stream("s");
	d = take(GENAI_MEM_DEVICE, 64);
	h = take(GENAI_MEM_HOST_PINNED, 64);
	copy_once(s, &d, &h);
	copy_once(s, &d, &h);
	clock_gettime(CLOCK_MONOTONIC, &from);
	reach(mark(s));
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_ge((to.tv_sec - from.tv_sec) * 1000000000 + to.tv_nsec -
				 from.tv_nsec,
			 50000000);
	give(&d);
	give(&h);
	end_stream(s);
	close_device();
}
END_TEST

// ---- trace ----

START_TEST(trace)
{
	static const char want[] = "1 s: first (node 102)\n"
				   "2 t: wait for 1 of s\n"
				   "3 t: copy 64 bytes to device\n"
				   "4 s: x (node 120)\n";
	char path[] = "/tmp/genai-trace-XXXXXX", set[64], got[256] = "";
	int fd = mkstemp(path);
	struct genai_stream *s, *t;
	struct genai_mem d, h;
	FILE *f;

	ck_assert_int_ge(fd, 0);
	close(fd);
	snprintf(set, sizeof(set), "module.cpu_ref.trace=%s", path);
	// what is there already is not overwritten
	ck_assert_int_eq(try_device(SETS(set)), GENAI_E_IO);
	unlink(path);
	open_device(SETS(set));
	s = stream("s");
	t = stream("t");
	d = take(GENAI_MEM_DEVICE, 64);
	h = take(GENAI_MEM_HOST_PINNED, 64);
	unit(s, "first", 0, 0, 0);
	after(t, mark(s));
	copy_once(t, &d, &h);
	unit(s, "x", 0, 0, 0);
	drain_all();
	give(&d);
	give(&h);
	end_stream(t);
	end_stream(s);
	close_device();
	f = fopen(path, "r");
	ck_assert_ptr_nonnull(f);
	ck_assert_uint_gt(fread(got, 1, sizeof(got) - 1, f), 0);
	fclose(f);
	unlink(path);
	ck_assert_str_eq(got, want);
	ck_assert_int_eq(try_device(SETS("module.cpu_ref.trace=/nowhere/x")),
			 GENAI_E_IO);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("sim");
	TCase *t = tcase_create("device");

	tcase_add_test(t, inorder);
	tcase_add_test(t, random_orders);
	tcase_add_test(t, copies_late_and_early);
	tcase_add_test(t, early_goes_on);
	tcase_add_test(t, threads);
	tcase_add_test(t, threads_run_by_themselves);
	tcase_add_loop_test(t, bad_settings, 0, 13);
	tcase_add_test(t, poison);
	tcase_add_test(t, poison_of_mapped);
	tcase_add_test(t, freed_addresses_stay_away);
	tcase_add_test(t, queued_memory_stays);
	tcase_add_test(t, recorded_things_stay);
	tcase_add_test(t, out_of_memory);
	tcase_add_test(t, failed_copy);
	tcase_add_test(t, lost_device);
	tcase_add_test(t, slow_copy);
	tcase_add_test(t, trace);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
