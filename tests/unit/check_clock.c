// check_clock.c - clock = simulated: exact times of small programs.  What the
// pagers reach on it is check_floor.c.
#include "tests/unit/sim_device.h"

#define R GENAI_READ
#define W GENAI_WRITE

// 1 byte a ns over the link, 10 a ns in memory, 100 ns a copy, 7 ns a launch.
static void open_clock(void)
{
	open_device(SETS("module.cpu_ref.clock=simulated",
			 "module.cpu_ref.link_bytes_per_s=1000000000",
			 "module.cpu_ref.memory_bytes_per_s=10000000000",
			 "module.cpu_ref.copy_latency_ns=100",
			 "module.cpu_ref.launch_ns=7"));
}

static uint64_t now(void)
{
	struct genai_stream_stats st = {.size = sizeof(st)};

	OK(ops->stats(dev, &st, &err));
	return st.simulated_ns;
}

static struct genai_stream *s, *t;
static struct genai_mem d, h;

static void setup(void)
{
	open_clock();
	s = stream("s");
	t = stream("t");
	d = take(GENAI_MEM_DEVICE, 1 << 20);
	h = take(GENAI_MEM_HOST_PINNED, 1 << 20);
	ck_assert_uint_eq(now(), 0);
}

static void teardown(void)
{
	give(&d);
	give(&h);
	end_stream(s);
	end_stream(t);
	close_device();
}

static void up(struct genai_stream *on, uint64_t bytes)
{
	OK(ops->copy(dev, on, d.range.addr, (uintptr_t)h.host, bytes,
		     GENAI_COPY_H2D, &err));
}

START_TEST(costs)
{
	unit(s, "u", 0, 0, 0);
	ck_assert_uint_eq(now(), 7);
	unit(s, "u", d.range.addr, 1000, R); // 100 ns of memory
	ck_assert_uint_eq(now(), 7 + 107);
	unit(s, "u", d.range.addr, 1000, R | GENAI_SPARSE);
	ck_assert_uint_eq(now(), 121);
	unit(s, "u", h.range.addr, 1000, R); // in place: over the link
	ck_assert_uint_eq(now(), 121 + 1007);
	up(s, 500);
	ck_assert_uint_eq(now(), 1128 + 600);
	OK(ops->copy(dev, s, d.range.addr, d.range.addr + 4096, 1000,
		     GENAI_COPY_D2D, &err)); // read and written
	ck_assert_uint_eq(now(), 1728 + 300);
	OK(ops->copy(dev, s, (uintptr_t)h.host, d.range.addr, 50,
		     GENAI_COPY_D2H, &err));
	ck_assert_uint_eq(now(), 2028 + 150);
	// running it changes nothing
	drain_all();
	ck_assert_uint_eq(now(), 2178);
}
END_TEST

START_TEST(side_by_side)
{
	up(t, 1000);			     // to 1100
	unit(s, "u", d.range.addr, 5000, R); // to 507
	ck_assert_uint_eq(now(), 1100);
	after(s, mark(t));
	unit(s, "u", 0, 0, 0);
	ck_assert_uint_eq(now(), 1107);
	// one engine: a second copy waits for the first, whatever its stream
	up(s, 100); // 1107 to 1307
	up(t, 100); // to 1507
	ck_assert_uint_eq(now(), 1507);
	// the other direction has its own
	OK(ops->copy(dev, t, (uintptr_t)h.host, d.range.addr, 1, GENAI_COPY_D2H,
		     &err)); // in t's order: to 1608
	ck_assert_uint_eq(now(), 1608);
}
END_TEST

START_TEST(points)
{
	struct genai_point p;

	unit(s, "u", d.range.addr, 930, R); // to 100
	p = mark(s);
	unit(s, "u", d.range.addr, 9930, R); // to 1100
	after(t, p);
	unit(t, "v", d.range.addr, 99930, R); // 100 to 10100
	ck_assert_uint_eq(now(), 10100);
}
END_TEST

START_TEST(in_place_takes_the_link)
{
	unit(s, "u", h.range.addr, 1000, R); // to 1007
	up(t, 100);			     // the link is free at 1000
	ck_assert_uint_eq(now(), 1200);
}
END_TEST

// Memory that is read where it lies may have a rate of its own.
START_TEST(in_place_rate)
{
	uint64_t t0;

	open_device(SETS("module.cpu_ref.clock=simulated",
			 "module.cpu_ref.link_bytes_per_s=1000000000",
			 "module.cpu_ref.in_place_bytes_per_s=500000000"));
	s = stream("s");
	t = stream("t");
	d = take(GENAI_MEM_DEVICE, 4096);
	h = take(GENAI_MEM_HOST_PINNED, 4096);
	unit(s, "u", h.range.addr, 1000, R);
	ck_assert_uint_eq(now(), 2000);
	t0 = now();
	up(t, 100); // the link is free from then on
	ck_assert_uint_eq(now(), t0 + 100);
	teardown();
}
END_TEST

START_TEST(host_waits)
{
	struct genai_point p;

	unit(s, "u", d.range.addr, 930, R); // to 100
	p = mark(s);
	unit(s, "u", d.range.addr, 930, R); // to 200
	reach(p);
	// what the host enqueues now was not there before 100
	unit(t, "v", d.range.addr, 930, R);
	ck_assert_uint_eq(now(), 200);
	unit(t, "v", 0, 0, 0);
	ck_assert_uint_eq(now(), 207);
}
END_TEST

// Where 64 bits end the clock stops: it does not begin anew.
START_TEST(end_of_time)
{
	static const char *const rates[][4] = {
		{"link_bytes_per_s=1", "memory_bytes_per_s=1",
		 "launch_ns=9223372036854775808",
		 "copy_latency_ns=9223372036854775808"},
		{"link_bytes_per_s=1", "memory_bytes_per_s=0",
		 "launch_ns=18446744073709551615", "copy_latency_ns=0"},
		{"link_bytes_per_s=18446744073709551615",
		 "memory_bytes_per_s=18446744073709551615", "launch_ns=0",
		 "copy_latency_ns=9223372036854775809"},
	};
	char set[4][64];
	uint64_t last = 0;

	for (int i = 0; i < 4; i++)
		snprintf(set[i], sizeof(set[i]), "module.cpu_ref.%s",
			 rates[_i][i]);
	open_device(SETS("module.cpu_ref.clock=simulated", set[0], set[1],
			 set[2], set[3]));
	s = stream("s");
	t = stream("t");
	d = take(GENAI_MEM_DEVICE, 1 << 20);
	h = take(GENAI_MEM_HOST_PINNED, 1 << 20);
	for (int i = 0; i < 8; i++) {
		if (i % 4 == 0)
			up(s, h.range.bytes);
		else if (i % 4 == 1)
			unit(s, "u", h.range.addr, h.range.bytes, R);
		else if (i % 4 == 2)
			unit(s, "u", d.range.addr, d.range.bytes, R);
		else
			OK(ops->copy(dev, s, d.range.addr,
				     d.range.addr + d.range.bytes / 2,
				     d.range.bytes / 2, GENAI_COPY_D2D, &err));
		ck_assert_uint_ge(now(), last);
		last = now();
	}
	ck_assert_uint_eq(last, UINT64_MAX);
	teardown();
}
END_TEST

START_TEST(recorded)
{
	struct genai_recording *r = NULL;
	struct genai_ticket ticket;

	OK(ops->capture_begin(dev, s, &err));
	unit(s, "u", d.range.addr, 930, R);
	if (_i) {
		after(t, mark(s));
		up(t, 400);
		after(s, mark(t));
	} else {
		up(s, 400);
	}
	OK(ops->capture_end(dev, s, &r, &err));
	ck_assert_uint_eq(now(), 0);
	for (uint64_t i = 1; i <= 3; i++) {
		OK(ops->launch_graph(dev, r, s, &err));
		ck_assert_uint_eq(now(), i * 600);
	}
	ticket = drain_all();
	OK(ops->graph_destroy(dev, r, &ticket, &err));
}
END_TEST

START_TEST(slow_copy)
{
	struct genai_stream *x;

	open_device(SETS("module.cpu_ref.clock=simulated",
			 "module.cpu_ref.copy_latency_ns=10",
			 "module.cpu_ref.fault=slow:2"));
	x = stream("x");
	d = take(GENAI_MEM_DEVICE, 4096);
	h = take(GENAI_MEM_HOST_PINNED, 4096);
	up(x, 8); // no rate: only the latency
	ck_assert_uint_eq(now(), 10);
	up(x, 8);
	ck_assert_uint_eq(now(), 1010);
	up(x, 8);
	ck_assert_uint_eq(now(), 1020);
	give(&d);
	give(&h);
	end_stream(x);
	close_device();
}
END_TEST

START_TEST(real)
{
	open_device(NULL);
	s = stream("s");
	unit(s, "u", 0, 0, 0);
	ck_assert_uint_eq(now(), 0);
	end_stream(s);
	close_device();
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("clock");
	TCase *c = tcase_create("device"), *o = tcase_create("others");

	tcase_add_checked_fixture(c, setup, teardown);
	tcase_add_test(c, costs);
	tcase_add_test(c, side_by_side);
	tcase_add_test(c, points);
	tcase_add_test(c, in_place_takes_the_link);
	tcase_add_test(c, host_waits);
	tcase_add_loop_test(c, recorded, 0, 2);
	suite_add_tcase(su, c);
	tcase_add_loop_test(o, end_of_time, 0, 3);
	tcase_add_test(o, in_place_rate);
	tcase_add_test(o, slow_copy);
	tcase_add_test(o, real);
	suite_add_tcase(su, o);
	return su;
}

int main(void)
{
	return genai_check_main(suite());
}
