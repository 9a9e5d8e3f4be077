// check_cuda_ep.c - cuda_ep's host code under the fake driver: bringing it up
// on machines that are not as hoped, streams and points, recordings, memory,
// and every driver call failing in turn.
#include <check.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "tests/cuda/cuda_kit.h"
#include "tests/gpu/rig.h"

#define MODULE GENAI_TESTMODULES "/cuda_ep.so"
#define BUSY_OPS 64

static const struct genai_ticket good = {.seal = 77}, stale = {.seal = 1};
static struct genai_error err;

static void setup(void)
{
	fake_load();
	memset(&err, 0, sizeof(err));
	err.size = sizeof(err);
}

static void teardown(void)
{
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
}

// What the fake driver and the module take at the start.
#define OWN_BYTES (FAKE_CONTEXT_BYTES + 256)

static struct gpu_rig *bring_up(uint64_t limit)
{
	struct gpu_rig *r = gpu_open(MODULE, FAKE_CUDA, 1, limit, &err);

	ck_assert_msg(r != NULL, "%s", err.text);
	return r;
}

// ---- bringing it up ----

START_TEST(no_driver)
{
	ck_assert_ptr_null(gpu_open(MODULE, "/nonexistent/libcuda.so.1", 1,
				    UINT64_MAX, &err));
	ck_assert_int_eq(err.code, GENAI_E_NODEVICE);
	ck_assert_ptr_nonnull(strstr(err.text, "/nonexistent/libcuda.so.1"));
	ck_assert_ptr_nonnull(strstr(err.text, "not installed"));
}
END_TEST

START_TEST(driver_lacks_a_symbol)
{
	// a library that is not a driver
	ck_assert_ptr_null(gpu_open(MODULE, MODULE, 1, UINT64_MAX, &err));
	ck_assert_int_eq(err.code, GENAI_E_NODEVICE);
	ck_assert_ptr_nonnull(strstr(err.text, "cuInit"));
}
END_TEST

START_TEST(driver_is_not_searched_for)
{
	ck_assert_ptr_null(gpu_open(MODULE, "libm.so.6", 1, UINT64_MAX, &err));
	ck_assert_int_eq(err.code, GENAI_E_CONFIG);
	ck_assert_ptr_nonnull(strstr(err.text, "absolute path"));
}
END_TEST

START_TEST(no_device)
{
	fake.do_devices(0, 9, 0);
	ck_assert_ptr_null(gpu_open(MODULE, FAKE_CUDA, 1, UINT64_MAX, &err));
	ck_assert_int_eq(err.code, GENAI_E_NODEVICE);
}
END_TEST

START_TEST(old_device)
{
	fake.do_devices(1, 5, 0);
	ck_assert_ptr_null(gpu_open(MODULE, FAKE_CUDA, 1, UINT64_MAX, &err));
	ck_assert_int_eq(err.code, GENAI_E_NODEVICE);
	ck_assert_ptr_nonnull(strstr(err.text, "5.0"));
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

START_TEST(no_image_for_the_device)
{
	fake.do_fail_in("cuModuleLoadData", 1, 209);
	ck_assert_ptr_null(gpu_open(MODULE, FAKE_CUDA, 1, UINT64_MAX, &err));
	ck_assert_int_eq(err.code, GENAI_E_NODEVICE);
	ck_assert_ptr_nonnull(strstr(err.text, "no kernels for compute"));
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

START_TEST(open_and_close)
{
	for (int i = 0; i < 20; i++) {
		struct gpu_rig *r = bring_up(UINT64_MAX);

		ck_assert_uint_gt(fake.do_alive(), 0);
		gpu_close(r);
		ck_assert_uint_eq(fake.do_alive(), 0);
	}
}
END_TEST

START_TEST(every_call_fails_while_opening)
{
	uint64_t n, before = fake.do_calls(), most;
	struct gpu_rig *r = bring_up(UINT64_MAX);

	most = fake.do_calls() - before;
	gpu_close(r);
	for (n = 1; n <= most; n++) {
		fake.do_fail(n, n % 2 ? OOM : ILLEGAL);
		r = gpu_open(MODULE, FAKE_CUDA, 1, UINT64_MAX, &err);
		fake.do_fail(0, 0);
		gpu_close(r);
		ck_assert_msg(fake.do_alive() == 0, "call %lu: %lu things left",
			      (unsigned long)n, (unsigned long)fake.do_alive());
	}
	ck_assert_uint_gt(most, 80);
}
END_TEST

// ---- streams ----

struct two {
	struct gpu_rig *r;
	const struct genai_stream_ops *o;
	struct genai_stream *copy;
	struct genai_mem pin, dev;
};

static void two_open(struct two *t)
{
	t->r = bring_up(UINT64_MAX);
	t->o = &t->r->stream_ops;
	ck_assert_int_eq(t->o->create(t->r->self, "copy", &t->copy, &err), 0);
	ck_assert_int_eq(t->o->alloc(t->r->self, GENAI_MEM_HOST_PINNED, 65536,
				     "test", &t->pin, &err),
			 0);
	ck_assert_int_eq(t->o->alloc(t->r->self, GENAI_MEM_DEVICE, 65536,
				     "test", &t->dev, &err),
			 0);
}

static void two_close(struct two *t)
{
	ck_assert_int_eq(t->r->barrier_ops.drain(
				 t->r->self,
				 (struct genai_range){0, GENAI_RANGE_ALL_BYTES},
				 UINT64_MAX, NULL, &err),
			 0);
	ck_assert_int_eq(t->o->free(t->r->self, t->pin.range.addr, &good, &err),
			 0);
	ck_assert_int_eq(t->o->free(t->r->self, t->dev.range.addr, &good, &err),
			 0);
	ck_assert_int_eq(t->o->destroy(t->r->self, t->copy, &err), 0);
	gpu_close(t->r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}

static int32_t up(struct two *t, struct genai_stream *s, uint64_t dev,
		  uint64_t host, uint64_t n)
{
	return t->o->copy(t->r->self, s, t->dev.range.addr + dev,
			  (uint64_t)(uintptr_t)t->pin.host + host, n,
			  GENAI_COPY_H2D, &err);
}

static int32_t down(struct two *t, struct genai_stream *s, uint64_t host,
		    uint64_t dev, uint64_t n)
{
	return t->o->copy(t->r->self, s,
			  (uint64_t)(uintptr_t)t->pin.host + host,
			  t->dev.range.addr + dev, n, GENAI_COPY_D2H, &err);
}

static struct genai_point mark(struct two *t, struct genai_stream *s)
{
	struct genai_point p = {NULL, 0};

	ck_assert_int_eq(t->o->mark(t->r->self, s, &p, &err), 0);
	return p;
}

static int32_t reach(struct two *t, struct genai_point p)
{
	return t->r->barrier_ops.host_read(t->r->self, &p, 1, UINT64_MAX, &err);
}

// A byte walks through a chain of copies over two streams, ordered by points
// only; more points than the ring has events.
START_TEST(points_order_streams)
{
	struct two t;
	unsigned char *h;

	fake.do_seed((uint64_t)_i);
	two_open(&t);
	h = t.pin.host;
	memset(h, 0, 65536);
	h[0] = 0x42;
	ck_assert_int_eq(up(&t, t.r->compute, 0, 0, 1), 0);
	for (uint64_t i = 0; i < 300; i++) {
		struct genai_stream *from = i % 2 ? t.copy : t.r->compute;
		struct genai_stream *to = i % 2 ? t.r->compute : t.copy;

		ck_assert_int_eq(t.o->wait(t.r->self, to, mark(&t, from), &err),
				 0);
		ck_assert_int_eq(t.o->copy(t.r->self, to,
					   t.dev.range.addr + i + 1,
					   t.dev.range.addr + i, 1,
					   GENAI_COPY_D2D, &err),
				 0);
	}
	ck_assert_int_eq(
		t.o->wait(t.r->self, t.copy, mark(&t, t.r->compute), &err), 0);
	ck_assert_int_eq(down(&t, t.copy, 4096, 300, 1), 0);
	ck_assert_int_eq(reach(&t, mark(&t, t.copy)), 0);
	ck_assert_uint_eq(h[4096], 0x42);
	two_close(&t);
}
END_TEST

// A wait that is covered already enqueues nothing.
START_TEST(covered_waits_are_free)
{
	struct genai_point p;
	struct two t;
	uint64_t before;

	fake.do_seed(9);
	two_open(&t);
	ck_assert_int_eq(up(&t, t.r->compute, 0, 0, 16), 0);
	p = mark(&t, t.r->compute);
	ck_assert_int_eq(t.o->wait(t.r->self, t.copy, p, &err), 0);
	before = fake.do_calls();
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(t.o->wait(t.r->self, t.copy, p, &err), 0);
	ck_assert_int_eq(t.o->wait(t.r->self, t.r->compute, p, &err), 0);
	ck_assert_int_eq(t.o->wait(t.r->self, t.copy,
				   (struct genai_point){NULL, 0}, &err),
			 0);
	ck_assert_uint_eq(fake.do_calls(), before);
	two_close(&t);
}
END_TEST

// After a wait, a mark stands for what was waited for too.
START_TEST(marks_carry_waits)
{
	struct genai_stream *third = NULL;
	unsigned char *h;
	struct two t;

	fake.do_seed((uint64_t)_i);
	two_open(&t);
	ck_assert_int_eq(t.o->create(t.r->self, "third", &third, &err), 0);
	h = t.pin.host;
	memset(h, 1, 16);
	memset(h + 64, 0, 16);
	(void)mark(&t, t.copy);
	ck_assert_int_eq(up(&t, t.r->compute, 0, 0, 16), 0);
	ck_assert_int_eq(
		t.o->wait(t.r->self, t.copy, mark(&t, t.r->compute), &err), 0);
	// third is ordered after copy, which only waited
	ck_assert_int_eq(t.o->wait(t.r->self, third, mark(&t, t.copy), &err),
			 0);
	ck_assert_int_eq(down(&t, third, 64, 0, 16), 0);
	ck_assert_int_eq(reach(&t, mark(&t, third)), 0);
	ck_assert_uint_eq(h[64 + 15], 1);
	ck_assert_int_eq(t.o->destroy(t.r->self, third, &err), 0);
	two_close(&t);
}
END_TEST

START_TEST(deadline_and_poll)
{
	struct genai_point p;
	struct two t;
	int32_t rc;

	fake.do_seed(3);
	two_open(&t);
	for (int i = 0; i < BUSY_OPS; i++)
		ck_assert_int_eq(up(&t, t.copy, 0, 0, 16), 0);
	p = mark(&t, t.copy);
	ck_assert_int_eq(t.o->destroy(t.r->self, t.copy, &err), GENAI_E_BUSY);
	rc = t.r->barrier_ops.host_read(t.r->self, &p, 1, 0, &err);
	ck_assert_int_eq(rc, GENAI_E_DEADLINE);
	rc = t.r->barrier_ops.drain(
		t.r->self, (struct genai_range){0, UINT64_MAX}, 0, NULL, &err);
	ck_assert_int_eq(rc, GENAI_E_DEADLINE);
	while ((rc = t.o->poll(t.r->self, p, &err)) == GENAI_PENDING)
		;
	ck_assert_int_eq(rc, 0);
	p.value += 2000;
	ck_assert_int_eq(t.o->poll(t.r->self, p, &err), GENAI_E_INVAL);
	two_close(&t);
}
END_TEST

START_TEST(copies_need_pinned_memory)
{
	static char ordinary[64];
	struct two t;

	two_open(&t);
	ck_assert_int_eq(t.o->copy(t.r->self, t.copy, t.dev.range.addr,
				   (uint64_t)(uintptr_t)ordinary, 64,
				   GENAI_COPY_H2D, &err),
			 GENAI_E_INVAL);
	ck_assert_ptr_nonnull(
		strstr(err.text, "neither pinned nor registered"));
	ck_assert_int_eq(up(&t, t.copy, 0, 65530, 16), GENAI_E_INVAL);
	ck_assert_int_eq(up(&t, t.copy, 0, 0, 0), 0);
	two_close(&t);
}
END_TEST

static int32_t say(void *ctx, void *const *mem, struct genai_error *e)
{
	int *n = ctx;

	(void)e;
	*n = *n * 10 + *(unsigned char *)mem[0];
	return 0;
}

static int32_t break_down(void *ctx, void *const *mem, struct genai_error *e)
{
	(void)ctx;
	(void)mem;
	e->code = GENAI_E_DEVICE;
	strcpy(e->text, "the unit broke");
	return GENAI_E_DEVICE;
}

START_TEST(host_units)
{
	int said = 0;
	struct genai_work w = {sizeof(w), 7, "say", say, &said};
	struct genai_work bad = {sizeof(bad), 8, "bad", break_down, NULL};
	struct genai_access a = {0, 1, GENAI_READ, 0};
	struct genai_point p, q;
	unsigned char *h;
	struct two t;

	fake.do_seed((uint64_t)_i);
	two_open(&t);
	h = t.pin.host;
	h[0] = 1;
	h[1] = 2;
	a.addr = t.pin.range.addr;
	ck_assert_int_eq(t.o->launch_host(t.r->self, t.copy, &w, &a, 1, &err),
			 0);
	a.addr++;
	ck_assert_int_eq(t.o->launch_host(t.r->self, t.copy, &w, &a, 1, &err),
			 0);
	p = mark(&t, t.copy);
	ck_assert_int_eq(reach(&t, p), 0);
	ck_assert_int_eq(said, 12);
	// device memory is out of the host's reach
	a.addr = t.dev.range.addr;
	ck_assert_int_eq(t.o->launch_host(t.r->self, t.copy, &w, &a, 1, &err),
			 GENAI_E_INVAL);
	a.addr = t.pin.range.addr;
	ck_assert_int_eq(
		t.o->launch_host(t.r->self, t.copy, &bad, NULL, 0, &err), 0);
	ck_assert_int_eq(t.o->launch_host(t.r->self, t.copy, &w, &a, 1, &err),
			 0);
	q = mark(&t, t.copy);
	ck_assert_int_eq(reach(&t, q), GENAI_E_DEVICE);
	ck_assert_str_eq(err.text, "bad: the unit broke");
	ck_assert_uint_eq(err.node, 8);
	ck_assert_int_eq(said, 12); // skipped
	ck_assert_int_eq(t.o->poll(t.r->self, p, &err), 0);
	ck_assert_int_eq(t.o->reset(t.r->self, NULL, &err), GENAI_E_STATE);
	ck_assert_int_eq(t.o->reset(t.r->self, &stale, &err), GENAI_E_STATE);
	ck_assert_int_eq(t.o->reset(t.r->self, &good, &err), 0);
	ck_assert_int_eq(t.o->launch_host(t.r->self, t.copy, &w, &a, 1, &err),
			 0);
	ck_assert_int_eq(reach(&t, mark(&t, t.copy)), 0);
	ck_assert_int_eq(said, 121);
	two_close(&t);
}
END_TEST

// A lost device calls no host function any more; nothing of it is left.
START_TEST(host_units_of_a_lost_device)
{
	int said = 0;
	struct genai_work w = {sizeof(w), 7, "say", say, &said};
	struct genai_access a = {0, 1, GENAI_READ, 0};
	struct two t;

	fake.do_seed(FAKE_LATE);
	two_open(&t);
	a.addr = t.pin.range.addr;
	fake.do_break(1, ILLEGAL);
	ck_assert_int_eq(up(&t, t.copy, 0, 0, 16), 0);
	ck_assert_int_eq(t.o->launch_host(t.r->self, t.copy, &w, &a, 1, &err),
			 0);
	ck_assert_int_eq(reach(&t, mark(&t, t.copy)), GENAI_E_DEVICE);
	ck_assert_ptr_nonnull(strstr(err.text, "CUDA_ERROR_700"));
	ck_assert_int_eq(said, 0);
	ck_assert_int_eq(t.o->destroy(t.r->self, t.copy, &err), 0);
	ck_assert_int_eq(t.o->destroy(t.r->self, t.r->compute, &err), 0);
	t.r->block->fini(t.r->self);
	ck_assert_int_eq(t.r->live, 0);
	free(t.r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// ---- recordings ----

// A recording over two streams: the copy stream fills dev[16..32) from the
// host, the other one moves it on and reads it back.
static int32_t record(struct two *t, bool join_back,
		      struct genai_recording **out)
{
	struct genai_point p;

	ck_assert_int_eq(t->o->capture_begin(t->r->self, t->r->compute, &err),
			 0);
	p = mark(t, t->r->compute);
	ck_assert_uint_eq(p.value & 1, 1);
	ck_assert_int_eq(t->o->wait(t->r->self, t->copy, p, &err), 0);
	ck_assert_int_eq(up(t, t->copy, 16, 0, 16), 0);
	p = mark(t, t->copy);
	if (join_back) {
		ck_assert_int_eq(t->o->wait(t->r->self, t->r->compute, p, &err),
				 0);
		ck_assert_int_eq(t->o->copy(t->r->self, t->r->compute,
					    t->dev.range.addr + 32,
					    t->dev.range.addr + 16, 16,
					    GENAI_COPY_D2D, &err),
				 0);
		ck_assert_int_eq(down(t, t->r->compute, 256, 32, 16), 0);
	}
	return t->o->capture_end(t->r->self, t->r->compute, out, &err);
}

START_TEST(recordings_replay)
{
	struct genai_recording *rec = NULL;
	struct genai_stream_stats st = {.size = sizeof(st)};
	unsigned char *h;
	struct two t;

	fake.do_seed((uint64_t)_i);
	two_open(&t);
	h = t.pin.host;
	memset(h, 0, 1024);
	ck_assert_int_eq(record(&t, true, &rec), 0);
	for (int i = 1; i < 4; i++) {
		memset(h, i, 16);
		ck_assert_int_eq(
			t.o->launch_graph(t.r->self, rec, t.r->compute, &err),
			0);
		ck_assert_int_eq(reach(&t, mark(&t, t.r->compute)), 0);
		ck_assert_uint_eq(h[256], (unsigned)i);
		ck_assert_uint_eq(h[271], (unsigned)i);
	}
	ck_assert_int_eq(t.o->stats(t.r->self, &st, &err), 0);
	ck_assert_uint_eq(st.graph_launches, 3);
	ck_assert_uint_eq(st.h2d_bytes, 48);
	// memory that it names stays
	ck_assert_int_eq(t.o->free(t.r->self, t.dev.range.addr, &good, &err),
			 GENAI_E_BUSY);
	ck_assert_int_eq(t.o->graph_destroy(t.r->self, rec, NULL, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(t.o->graph_destroy(t.r->self, rec, &good, &err), 0);
	two_close(&t);
}
END_TEST

START_TEST(what_a_recording_forbids)
{
	struct genai_recording *rec = NULL;
	struct genai_mem m = {0};
	struct genai_point p, inner, outer;
	struct two t;

	two_open(&t);
	ck_assert_int_eq(up(&t, t.copy, 0, 0, 16), 0);
	fake.do_seed(5); // not done when asked
	for (int i = 0; i < BUSY_OPS; i++)
		ck_assert_int_eq(up(&t, t.copy, 0, 0, 16), 0);
	outer = mark(&t, t.copy);
	ck_assert_int_eq(t.o->capture_begin(t.r->self, t.r->compute, &err), 0);
	ck_assert_int_eq(t.o->capture_begin(t.r->self, t.copy, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(
		t.o->alloc(t.r->self, GENAI_MEM_DEVICE, 64, "test", &m, &err),
		GENAI_E_STATE);
	ck_assert_int_eq(t.o->free(t.r->self, t.dev.range.addr, &good, &err),
			 GENAI_E_STATE);
	p = mark(&t, t.r->compute);
	ck_assert_int_eq(
		t.r->barrier_ops.host_read(t.r->self, &p, 1, UINT64_MAX, &err),
		GENAI_E_STATE);
	ck_assert_int_eq(t.r->barrier_ops.drain(
				 t.r->self, (struct genai_range){0, UINT64_MAX},
				 UINT64_MAX, NULL, &err),
			 GENAI_E_STATE);
	// work outside that the recording is not ordered after
	ck_assert_int_eq(t.o->wait(t.r->self, t.r->compute, outer, &err),
			 GENAI_E_STATE);
	// which spoilt it
	ck_assert_int_eq(t.o->capture_end(t.r->self, t.r->compute, &rec, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(t.o->capture_begin(t.r->self, t.r->compute, &err), 0);
	inner = mark(&t, t.r->compute);
	ck_assert_int_eq(up(&t, t.r->compute, 0, 0, 16), 0);
	ck_assert_int_eq(t.o->capture_end(t.r->self, t.r->compute, &rec, &err),
			 0);
	ck_assert_int_eq(t.o->wait(t.r->self, t.copy, inner, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(t.o->poll(t.r->self, inner, &err), GENAI_E_STATE);
	ck_assert_int_eq(t.o->capture_end(t.r->self, t.r->compute, &rec, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(reach(&t, outer), 0);
	ck_assert_int_eq(t.o->graph_destroy(t.r->self, rec, &good, &err), 0);
	two_close(&t);
}
END_TEST

START_TEST(spoilt_recordings)
{
	struct genai_recording *rec = NULL;
	struct two t;

	two_open(&t);
	ck_assert_int_eq(record(&t, false, &rec), GENAI_E_STATE);
	ck_assert_ptr_nonnull(strstr(err.text, "joined back"));
	ck_assert_int_eq(t.o->capture_begin(t.r->self, t.r->compute, &err), 0);
	ck_assert_int_eq(up(&t, t.r->compute, 0, 0, 16), 0);
	ck_assert_int_eq(t.o->capture_abort(t.r->self, t.r->compute, &err), 0);
	fake.do_fail_in("cuStreamEndCapture", 1, 901);
	ck_assert_int_eq(record(&t, true, &rec), GENAI_E_DEVICE);
	fake.do_fail_in("cuGraphInstantiateWithFlags", 1, OOM);
	ck_assert_int_eq(record(&t, true, &rec), GENAI_E_LIMIT);
	// and then it works
	ck_assert_int_eq(record(&t, true, &rec), 0);
	ck_assert_int_eq(t.o->launch_graph(t.r->self, rec, t.r->compute, &err),
			 0);
	ck_assert_int_eq(reach(&t, mark(&t, t.r->compute)), 0);
	ck_assert_int_eq(t.o->graph_destroy(t.r->self, rec, &good, &err), 0);
	two_close(&t);
}
END_TEST

// ---- memory ----

START_TEST(limits_and_tickets)
{
	struct genai_mem a = {0}, b = {0};
	const struct genai_stream_ops *o;
	struct gpu_rig *r = bring_up(OWN_BYTES + (1 << 20));

	o = &r->stream_ops;
	ck_assert_int_eq(o->alloc(r->self, GENAI_MEM_DEVICE, 0, "kv", &a, &err),
			 GENAI_E_INVAL);
	ck_assert_int_eq(
		o->alloc(r->self, GENAI_MEM_DEVICE, 1 << 19, "kv", &a, &err),
		0);
	ck_assert_int_eq(o->alloc(r->self, GENAI_MEM_DEVICE, (1 << 19) + 1,
				  "weights", &b, &err),
			 GENAI_E_LIMIT);
	ck_assert_ptr_nonnull(strstr(err.text, "weights"));
	ck_assert_ptr_nonnull(strstr(err.text, "device_limit is 9437440"));
	ck_assert_ptr_nonnull(strstr(err.text, "uses 8913152 (8388864 of it"));
	// never used: no ticket is needed; twice is wrong
	ck_assert_int_eq(o->free(r->self, a.range.addr, NULL, &err), 0);
	ck_assert_int_eq(o->free(r->self, a.range.addr, NULL, &err),
			 GENAI_E_INVAL);
	fake.do_total_bytes(OWN_BYTES + (1 << 16));
	ck_assert_int_eq(
		o->alloc(r->self, GENAI_MEM_DEVICE, 1 << 19, "kv", &a, &err),
		GENAI_E_LIMIT);
	fake.do_total_bytes(UINT64_C(1) << 30);
	a.range.addr = gpu_upload(r, NULL, 64);
	ck_assert_int_eq(o->free(r->self, a.range.addr, NULL, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(o->free(r->self, a.range.addr, &stale, &err),
			 GENAI_E_STATE);
	ck_assert_int_eq(o->free(r->self, a.range.addr, &good, &err), 0);
	gpu_close(r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// The limit is of the process: what one runtime holds, another cannot take;
// and the driver's context is a part of it.
START_TEST(limit_of_the_process)
{
	struct gpu_rig *r = bring_up(OWN_BYTES + (1 << 20));
	struct gpu_rig *q = bring_up(OWN_BYTES + (1 << 20));
	struct genai_stream_stats st = {.size = sizeof(st)};
	const struct genai_stream_ops *o = &r->stream_ops;
	struct genai_mem a = {0}, b = {0};

	ck_assert_int_eq(
		o->alloc(r->self, GENAI_MEM_DEVICE, 1 << 20, "kv", &a, &err),
		0);
	ck_assert_int_eq(o->alloc(q->self, GENAI_MEM_DEVICE, 1, "kv", &b, &err),
			 GENAI_E_LIMIT);
	ck_assert_int_eq(o->stats(q->self, &st, &err), 0);
	ck_assert_uint_ge(st.device_used_bytes, OWN_BYTES + (1 << 20));
	ck_assert_int_eq(o->free(r->self, a.range.addr, NULL, &err), 0);
	ck_assert_int_eq(
		o->alloc(q->self, GENAI_MEM_DEVICE, 1 << 20, "kv", &b, &err),
		0);
	gpu_close(r);
	o = &q->stream_ops;
	ck_assert_int_eq(o->free(q->self, b.range.addr, NULL, &err), 0);
	gpu_close(q);
	// and starts anew with the next one
	r = bring_up(OWN_BYTES + (1 << 20));
	o = &r->stream_ops;
	ck_assert_int_eq(
		o->alloc(r->self, GENAI_MEM_DEVICE, 1 << 20, "kv", &a, &err),
		0);
	gpu_close(r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// ---- a whole step, with every call failing ----

// Two layers' worth: norm, product, silu of it.
static int32_t run_graph(struct gpu_rig *r, int captured, float *out)
{
	static float x[64], w[64 * 32], gamma[64];
	int64_t xd[3] = {1, 1, 64}, gd[1] = {64}, wd[2] = {64, 32};
	int64_t od[3] = {1, 1, 32};
	struct op_how how = {.captured = captured, .steps = 3};
	static struct op_graph g;
	uint32_t n, y, s;

	for (int i = 0; i < 64; i++) {
		x[i] = (float)(i % 7) - 3;
		gamma[i] = 1;
	}
	for (int i = 0; i < 64 * 32; i++)
		w[i] = (float)(i % 5) - 2;
	op_graph_init(&g);
	n = op_input(&g, GENAI_DT_F32, 3, xd, x);
	y = op_const(&g, GENAI_DT_F32, 1, gd, gamma);
	op_node(&g, "", "SimplifiedLayerNormalization",
		(uint32_t[]){n, y, OP_END});
	n = op_value(&g);
	op_node_out(&g, (uint32_t[]){n, OP_END});
	y = op_const(&g, GENAI_DT_F32, 2, wd, w);
	op_node(&g, "", "MatMul", (uint32_t[]){n, y, OP_END});
	n = op_value(&g);
	op_node_out(&g, (uint32_t[]){n, OP_END});
	op_node(&g, "", "Sigmoid", (uint32_t[]){n, OP_END});
	s = op_output(&g, GENAI_DT_F32, 3, od, out);
	op_node_out(&g, (uint32_t[]){s, OP_END});
	return gpu_run(&(struct check){.ctx = r}, &g, &how, &err);
}

START_TEST(every_call_fails_in_a_step)
{
	float want[32], got[32];
	uint64_t before, most, failed = 0;
	struct gpu_rig *r = bring_up(UINT64_MAX);

	ck_assert_int_eq(run_graph(r, _i, want), 0);
	before = fake.do_calls();
	ck_assert_int_eq(run_graph(r, _i, want), 0);
	most = fake.do_calls() - before;
	for (uint64_t n = 1; n <= most; n++) {
		fake.do_fail(n, n % 2 ? OOM : ILLEGAL);
		failed += run_graph(r, _i, got) != 0;
		fake.do_fail(0, 0);
		// the module is usable afterwards, with the same results
		ck_assert_int_eq(r->stream_ops.reset(r->self, &good, &err), 0);
		memset(got, 0, sizeof(got));
		ck_assert_msg(run_graph(r, _i, got) == 0, "after call %lu: %s",
			      (unsigned long)n, err.text);
		ck_assert_mem_eq(got, want, sizeof(want));
	}
	ck_assert_uint_gt(failed, 10);
	gpu_close(r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// A product that a GPU has no instructions for is refused by name.
START_TEST(bfloat16)
{
	int64_t xd[2] = {2, 64}, wd[2] = {64, 32}, od[2] = {2, 32};
	static unsigned short x[128], w[64 * 32], y[64];
	struct op_how how = {.steps = 1};
	static struct op_graph g;
	uint32_t in, k, out;
	struct gpu_rig *r;
	int32_t rc;

	fake.do_any_image(1);
	fake.do_devices(1, _i ? 8 : 7, _i ? 0 : 5);
	r = bring_up(UINT64_MAX);
	op_graph_init(&g);
	in = op_input(&g, GENAI_DT_BF16, 2, xd, x);
	k = op_const(&g, GENAI_DT_BF16, 2, wd, w);
	op_node(&g, "", "MatMul", (uint32_t[]){in, k, OP_END});
	out = op_output(&g, GENAI_DT_BF16, 2, od, y);
	op_node_out(&g, (uint32_t[]){out, OP_END});
	rc = gpu_run(&(struct check){.ctx = r}, &g, &how, &err);
	if (_i) {
		ck_assert_msg(!rc, "%s", err.text);
	} else {
		ck_assert_int_eq(rc, GENAI_E_UNSUPPORTED);
		ck_assert_ptr_nonnull(strstr(
			err.text, "bfloat16 needs compute capability 8.0: fake "
				  "has 7.5"));
		ck_assert_ptr_nonnull(strstr(err.text, "MatMul"));
	}
	gpu_close(r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// Recorded or not, three steps run every kernel three times: warming up is a
// step as any other.
START_TEST(recording_adds_no_steps)
{
	float out[32];
	struct gpu_rig *r = bring_up(UINT64_MAX);
	uint64_t a = fake.do_launches("cep_ew_f"), b, c = a;

	ck_assert_int_eq(run_graph(r, 0, out), 0);
	a = fake.do_launches("cep_ew_f");
	ck_assert_int_eq(run_graph(r, 1, out), 0);
	b = fake.do_launches("cep_ew_f");
	ck_assert_uint_eq(a - c, 3);
	ck_assert_uint_eq(b - a, 3);
	gpu_close(r);
}
END_TEST

static uint64_t copies(void)
{
	return fake.do_launches("cep_copy_1") + fake.do_launches("cep_copy_2") +
	       fake.do_launches("cep_copy_4") + fake.do_launches("cep_copy_8") +
	       fake.do_launches("cep_copy_16");
}

// A transpose that only moves dims of 1 is its input: of a step of one token all
// are.
START_TEST(transpose_of_one_row)
{
	const int64_t rows = _i + 1, perm[3] = {0, 2, 1};
	const int64_t xd[3] = {1, rows, 12}, od[3] = {1, 12, rows};
	struct op_how how = {.steps = 1};
	struct gpu_rig *r = bring_up(UINT64_MAX);
	static struct op_graph g;
	float x[24], y[24] = {0};
	uint32_t v[3], out;
	uint64_t had;

	for (int i = 0; i < 24; i++)
		x[i] = (float)i;
	op_graph_init(&g);
	v[0] = op_input(&g, GENAI_DT_F32, 3, xd, x);
	op_node(&g, "", "Neg", (uint32_t[]){v[0], OP_END});
	v[1] = op_value(&g);
	op_node_out(&g, (uint32_t[]){v[1], OP_END});
	op_node(&g, "", "Transpose", (uint32_t[]){v[1], OP_END});
	op_attr_ints(&g, "perm", perm, 3);
	v[2] = op_value(&g);
	op_node_out(&g, (uint32_t[]){v[2], OP_END});
	op_node(&g, "", "Neg", (uint32_t[]){v[2], OP_END});
	out = op_output(&g, GENAI_DT_F32, 3, od, y);
	op_node_out(&g, (uint32_t[]){out, OP_END});
	had = copies();
	ck_assert_msg(!gpu_run(&(struct check){.ctx = r}, &g, &how, &err), "%s",
		      err.text);
	ck_assert_uint_eq(copies() - had, (uint64_t)(rows - 1));
	for (int64_t i = 0; i < 12; i++)
		for (int64_t k = 0; k < rows; k++)
			ck_assert_float_eq(y[i * rows + k], x[k * 12 + i]);
	gpu_close(r);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_ep");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 120);
	tcase_add_checked_fixture(tc, setup, teardown);
	tcase_add_test(tc, no_driver);
	tcase_add_test(tc, driver_lacks_a_symbol);
	tcase_add_test(tc, driver_is_not_searched_for);
	tcase_add_test(tc, no_device);
	tcase_add_test(tc, old_device);
	tcase_add_test(tc, no_image_for_the_device);
	tcase_add_test(tc, open_and_close);
	tcase_add_test(tc, every_call_fails_while_opening);
	tcase_add_loop_test(tc, points_order_streams, 0, 8);
	tcase_add_test(tc, covered_waits_are_free);
	tcase_add_loop_test(tc, marks_carry_waits, 0, 8);
	tcase_add_test(tc, deadline_and_poll);
	tcase_add_test(tc, copies_need_pinned_memory);
	tcase_add_loop_test(tc, host_units, 0, 4);
	tcase_add_test(tc, host_units_of_a_lost_device);
	tcase_add_loop_test(tc, recordings_replay, 0, 8);
	tcase_add_test(tc, what_a_recording_forbids);
	tcase_add_test(tc, spoilt_recordings);
	tcase_add_test(tc, limits_and_tickets);
	tcase_add_test(tc, limit_of_the_process);
	tcase_add_loop_test(tc, every_call_fails_in_a_step, 0, 2);
	tcase_add_loop_test(tc, bfloat16, 0, 2);
	tcase_add_loop_test(tc, transpose_of_one_row, 0, 2);
	tcase_add_test(tc, recording_adds_no_steps);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
