// check_tickets.c - tickets while another thread is inside an enqueue, or
// inside a call that gives memory back: whichever comes first, memory never
// goes from under work.
#include <pthread.h>
#include <semaphore.h>

#include "tests/unit/sim_device.h"

// The stream runtime, with a door in front of and behind its enqueues.
static struct genai_stream_ops real;
static sem_t inside, go;
static bool before; // the door is in front

static void door(bool here)
{
	if (!here)
		return;
	sem_post(&inside);
	sem_wait(&go);
}

static int32_t slow_copy(void *self, struct genai_stream *s, uint64_t dst,
			 uint64_t src, uint64_t bytes, uint32_t kind,
			 struct genai_error *e)
{
	int32_t rc;

	door(before);
	rc = real.copy(self, s, dst, src, bytes, kind, e);
	door(!before);
	return rc;
}

static int32_t slow_launch(void *self, struct genai_stream *s,
			   const struct genai_work *w,
			   const struct genai_access *a, uint32_t n,
			   struct genai_error *e)
{
	int32_t rc;

	door(before);
	rc = real.launch(self, s, w, a, n, e);
	door(!before);
	return rc;
}

static int32_t slow_launch_host(void *self, struct genai_stream *s,
				const struct genai_work *w,
				const struct genai_access *a, uint32_t n,
				struct genai_error *e)
{
	int32_t rc;

	door(before);
	rc = real.launch_host(self, s, w, a, n, e);
	door(!before);
	return rc;
}

static int32_t slow_launch_graph(void *self, struct genai_recording *r,
				 struct genai_stream *s, struct genai_error *e)
{
	int32_t rc;

	door(before);
	rc = real.launch_graph(self, r, s, e);
	door(!before);
	return rc;
}

// ---- the other thread ----

static struct genai_stream *s;
static struct genai_mem m, other;
static struct genai_recording *recording;
static int work_kind;

enum { COPY, LAUNCH, LAUNCH_HOST, LAUNCH_GRAPH, N_KINDS };

static void *enqueue(void *arg)
{
	struct genai_error e = GENAI_ERROR_INIT;
	struct genai_work w = {sizeof(w), 1, "w", say, (void *)(uintptr_t) "w"};
	struct genai_access a = {m.range.addr, 64, GENAI_WRITE, 0};
	int32_t rc = -1;

	switch ((int)(intptr_t)arg) {
	case COPY:
		rc = ops->copy(dev, s, m.range.addr, m.range.addr + 64, 64,
			       GENAI_COPY_D2D, &e);
		break;
	case LAUNCH:
		rc = ops->launch(dev, s, &w, &a, 1, &e);
		break;
	case LAUNCH_HOST:
		rc = ops->launch_host(dev, s, &w, &a, 1, &e);
		break;
	case LAUNCH_GRAPH:
		rc = ops->launch_graph(dev, recording, s, &e);
		break;
	}
	return rc ? "the enqueue failed" : NULL;
}

static pthread_t start(int kind)
{
	pthread_t t;

	dev->raw.copy = slow_copy;
	dev->raw.launch = slow_launch;
	dev->raw.launch_host = slow_launch_host;
	dev->raw.launch_graph = slow_launch_graph;
	ck_assert_int_eq(
		pthread_create(&t, NULL, enqueue, (void *)(intptr_t)kind), 0);
	return t;
}

static void finish(pthread_t t)
{
	void *wrong;

	ck_assert_int_eq(pthread_join(t, &wrong), 0);
	dev->raw = real;
	ck_assert_ptr_null(wrong);
}

static void setup(void)
{
	open_device(SETS("module.cpu_ref.schedule=late"));
	s = stream("s");
	m = take(GENAI_MEM_DEVICE, 128);
	other = take(GENAI_MEM_DEVICE, 128);
	OK(ops->capture_begin(dev, s, &err));
	unit(s, "r", other.range.addr, 64, GENAI_WRITE);
	OK(ops->capture_end(dev, s, &recording, &err));
	real = dev->raw;
	sem_init(&inside, 0, 0);
	sem_init(&go, 0, 0);
}

static void teardown(void)
{
	struct genai_ticket t = drain_all();

	OK(ops->graph_destroy(dev, recording, &t, &err));
	if (m.range.bytes)
		give(&m);
	give(&other);
	end_stream(s);
	close_device();
}

static void stale(const struct genai_ticket *t)
{
	FAILS(GENAI_E_STATE, ops->free(dev, m.range.addr, t, &err));
	ck_assert_ptr_nonnull(strstr(err.text, "the ticket is stale"));
	FAILS(GENAI_E_STATE, ops->graph_destroy(dev, recording, t, &err));
	FAILS(GENAI_E_STATE, ops->reset(dev, t, &err));
}

// A drain that comes while an enqueue is inside the module, before or after the
// work is in the queue, makes no ticket that is good: now or later.
START_TEST(drain_during_an_enqueue)
{
	struct genai_ticket ticket;
	pthread_t t;

	before = _i % 2;
	t = start(_i / 2);
	sem_wait(&inside);
	ticket = drain_all();
	stale(&ticket);
	sem_post(&go);
	finish(t);
	stale(&ticket);
	ticket = drain_all();
	OK(ops->free(dev, m.range.addr, &ticket, &err));
	m.range.bytes = 0;
}
END_TEST

// Nor is one good that was made before and is used during an enqueue.
START_TEST(ticket_used_during_an_enqueue)
{
	struct genai_ticket ticket = drain_all();
	pthread_t t;

	before = _i % 2;
	t = start(_i / 2);
	sem_wait(&inside);
	stale(&ticket);
	sem_post(&go);
	finish(t);
	stale(&ticket);
}
END_TEST

// ---- an enqueue while memory goes ----

// The core has found the ticket good; before the module looks, there is work.
static int32_t slow_free(void *self, genai_addr addr,
			 const struct genai_ticket *t, struct genai_error *e)
{
	struct genai_stream_ops hooked = dev->raw;

	dev->raw = real;
	ck_assert_ptr_null(enqueue((void *)(intptr_t)work_kind));
	dev->raw = hooked;
	return real.free(self, addr, t, e);
}

START_TEST(enqueue_during_a_free)
{
	struct genai_ticket ticket = drain_all();

	work_kind = _i;
	dev->raw.free = slow_free;
	FAILS(GENAI_E_STATE, ops->free(dev, m.range.addr, &ticket, &err));
	dev->raw = real;
	stale(&ticket);
}
END_TEST

// ---- the core's own check, with a module that looks at no ticket ----

static int given; // what the module was asked to give back

static int32_t lax_free(void *self, genai_addr addr,
			const struct genai_ticket *t, struct genai_error *e)
{
	(void)self;
	(void)addr;
	(void)t;
	(void)e;
	given++;
	return 0;
}

static int32_t lax_range(void *self, struct genai_range r,
			 const struct genai_ticket *t, struct genai_error *e)
{
	return lax_free(self, r.addr, t, e);
}

static int32_t lax_graph(void *self, struct genai_recording *r,
			 const struct genai_ticket *t, struct genai_error *e)
{
	(void)r;
	return lax_free(self, 0, t, e);
}

static int32_t lax_reset(void *self, const struct genai_ticket *t,
			 struct genai_error *e)
{
	return lax_free(self, 0, t, e);
}

static struct genai_range reserved, mapped;
static struct genai_mem registered;

static int32_t give_by(int how, const struct genai_ticket *t)
{
	switch (how) {
	case 0:
		return ops->free(dev, m.range.addr, t, &err);
	case 1:
		return ops->host_unregister(dev, registered.range.addr, t,
					    &err);
	case 2:
		return ops->unmap(dev, mapped, t, &err);
	case 3:
		return ops->unreserve(dev, reserved, t, &err);
	case 4:
		return ops->graph_destroy(dev, recording, t, &err);
	default:
		return ops->reset(dev, t, &err);
	}
}

START_TEST(the_core_looks_itself)
{
	static char host[4096] __attribute__((aligned(4096)));
	struct genai_range elsewhere = {other.range.addr, 64};
	struct genai_ticket good, bad[5];

	registered.size = sizeof(registered);
	OK(ops->host_register(dev, host, sizeof(host), &registered, &err));
	OK(ops->reserve(dev, 2 * dev->caps.granule, &reserved, &err));
	mapped = (struct genai_range){reserved.addr, dev->caps.granule};
	OK(ops->map(dev, mapped, "kv", &err));
	bad[0] = drain_all(); // stale, after the unit
	unit(s, "w", m.range.addr, 64, GENAI_WRITE);
	good = drain_all();
	OK(bar->drain(dev, elsewhere, UINT64_MAX, &bad[1], &err));
	bad[2] = good; // of another device
	bad[2].device++;
	bad[3] = bad[0]; // made to look fresh
	bad[3].generation = good.generation;
	bad[4] = bad[1]; // made to look wide
	bad[4].range = all_bytes;
	given = 0;
	dev->raw.free = dev->raw.host_unregister = lax_free;
	dev->raw.unmap = dev->raw.unreserve = lax_range;
	dev->raw.graph_destroy = lax_graph;
	dev->raw.reset = lax_reset;
	for (int i = 0; i < 5; i++)
		FAILS(GENAI_E_STATE, give_by(_i, &bad[i]));
	FAILS(GENAI_E_STATE, give_by(_i, NULL));
	ck_assert_int_eq(given, 0);
	dev->raw = real;
	OK(ops->unmap(dev, mapped, &good, &err));
	OK(ops->unreserve(dev, reserved, &good, &err));
	OK(ops->host_unregister(dev, registered.range.addr, &good, &err));
}
END_TEST

// ---- a submit, in which an executor enqueues past the core's tables ----

static struct genai_executor_ops real_exec;

static int32_t slow_submit(struct genai_plan *p, struct genai_stream *stream,
			   const struct genai_point *wait, uint32_t n_wait,
			   struct genai_point *out_signal,
			   struct genai_error *e)
{
	struct genai_ticket t = drain_all();

	stale(&t);
	return real_exec.submit(p, stream, wait, n_wait, out_signal, e);
}

START_TEST(drain_during_a_submit)
{
	static const int64_t prompt[] = {1, 5, 9};
	int64_t id;

	sim.err = (struct genai_error)GENAI_ERROR_INIT;
	OK(genai_model_open(sim.rt, SIM_MODELS "llama-cpu-fp32", NULL,
			    &sim.model, &err));
	OK(genai_session_open(sim.model, &sim.session, &err));
	real_exec = sim.rt->exec;
	sim.rt->exec.submit = slow_submit;
	OK(genai_session_append(sim.session, prompt, 3, &err));
	OK(genai_session_next(sim.session, 0, &id, &err));
	genai_session_close(sim.session);
	genai_model_close(sim.model);
}
END_TEST

static Suite *suite(void)
{
	Suite *su = suite_create("tickets");
	TCase *t = tcase_create("all");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, drain_during_an_enqueue, 0, 2 * N_KINDS);
	tcase_add_loop_test(t, ticket_used_during_an_enqueue, 0, 2 * N_KINDS);
	tcase_add_loop_test(t, enqueue_during_a_free, 0, N_KINDS);
	tcase_add_loop_test(t, the_core_looks_itself, 0, 6);
	tcase_add_test(t, drain_during_a_submit);
	suite_add_tcase(su, t);
	return su;
}

int main(void)
{
	return genai_check_main(suite());
}
