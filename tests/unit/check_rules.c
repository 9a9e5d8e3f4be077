// check_rules.c - the rules R1, R2, R3 and R5 of docs/SIMULATED-DEVICE.md: what
// keeps each passes, and a build of the module that breaks it is found.  R4 is
// check_doors.c.
#include "tests/unit/sim_device.h"

// What breaks one: tests/mutants/pager.c, and executor.c of mutant_device.
// NULL: the modules as they are.
static void use_pager(struct sim_run *r, const char *fault)
{
	sim_set(r, "module.mutant_pager.path=" GENAI_TESTMUTANTS
		   "/mutant_pager.so");
	sim_set(r, "module.mutant_pager.mutant=%s", fault);
	sim_set(r, "runtime.pager=mutant_pager");
}

static void use_device(struct sim_run *r, const char *executor,
		       const char *fault)
{
	sim_set(r, "module.mutant_device.path=" GENAI_TESTMUTANTS
		   "/mutant_device.so");
	sim_set(r,
		"module.mutant_device.real=" GENAI_TESTMODULES "/cpu_ref.so");
	sim_set(r, "module.mutant_device.mutant=%s", fault);
	sim_set(r, "runtime.stream=mutant_device");
	sim_set(r, "runtime.barrier=mutant_device");
	sim_set(r, "runtime.executor=mutant_device:%s", executor);
}

// ---- conversations with the order checked ----

static int32_t talk(const char *executor, const char *pager, const char *device,
		    const char *schedule, const char *check, int64_t *ids,
		    char text[512])
{
	struct sim_run r;
	int32_t rc;

	sim_init(&r, executor, "pager_async");
	sim_set(&r, "runtime.check=%s", check);
	sim_set(&r, "runtime.weight_budget=20%%");
	sim_set(&r, "module.%s.page_bytes=4KiB",
		pager ? "mutant_pager" : "pager_async");
	sim_set(&r, "module.%s.schedule=%s",
		device ? "mutant_device" : "cpu_ref", schedule);
	if (pager)
		use_pager(&r, pager);
	if (device)
		use_device(&r, executor, device);
	rc = sim_open(&r, "qwen3-cpu-int4");
	ck_assert_msg(!rc, "%s", r.err.text);
	ck_assert_uint_ne(sim_stats(&r).ring_bytes, 0);
	rc = sim_talk(&r, ids);
	snprintf(text, 512, "%s", r.err.text);
	sim_close(&r);
	return rc;
}

static const struct {
	const char *pager, *device, *executor;
	int32_t code;
	const char *text; // part of the message
} caught[] = {
	{"slot-unawaited", NULL, "eager", GENAI_E_ORDER, "copy to the device"},
	{"slot-unawaited", NULL, "captured", GENAI_E_ORDER,
	 "copy to the device"},
	{"no-wait-release", NULL, "eager", GENAI_E_ORDER, "copy to the device"},
	{"no-wait-release", NULL, "captured", GENAI_E_ORDER,
	 "copy to the device"},
	{"no-restore", NULL, "captured", GENAI_E_STATE, "made while recording"},
	{"ready-never", NULL, "eager", GENAI_E_ORDER, "'compute' reads"},
	{"ready-never", NULL, "captured", GENAI_E_ORDER, "'compute' reads"},
	{"no-tail", NULL, "captured", GENAI_E_STATE, "pager"},
	{"ring-order", NULL, "eager", GENAI_E_STATE, "slot"},
	{"replay-unordered", NULL, "captured", GENAI_E_STATE, "outside it"},
	{NULL, "no-ready", "eager", GENAI_E_ORDER, "'compute' reads"},
	{NULL, "no-ready", "captured", GENAI_E_ORDER, "'compute' reads"},
	{NULL, "record-unsaid", "captured", GENAI_E_STATE, "outside it"},
	{NULL, "launch-unsaid", "captured", GENAI_E_ORDER, "'pager'"},
	{NULL, "point-early", "eager", GENAI_E_ORDER, "copy to the device"},
	{NULL, "point-early", "captured", GENAI_E_ORDER, "copy to the device"},
};
#define N_CAUGHT (sizeof(caught) / sizeof(caught[0]))

START_TEST(sound)
{
	int64_t ids[SIM_TALK];
	char text[512];
	int32_t rc = talk(_i ? "captured" : "eager", NULL, NULL, "inorder",
			  "order", ids, text);

	ck_assert_msg(!rc, "%s", text);
}
END_TEST

START_TEST(found)
{
	int64_t ids[SIM_TALK];
	char text[512];
	int32_t rc = talk(caught[_i].executor, caught[_i].pager,
			  caught[_i].device, "inorder", "order", ids, text);

	ck_assert_msg(rc == caught[_i].code, "%d: %s", rc, text);
	ck_assert_msg(strstr(text, caught[_i].text), "%s", text);
}
END_TEST

// Without the check a race is found by its tokens, under some schedule.
START_TEST(found_by_tokens)
{
	static const char *const pagers[] = {"slot-unawaited",
					     "no-wait-release", "ready-never"};
	int64_t want[SIM_TALK], got[SIM_TALK];
	char text[512], schedule[32] = "early";
	uint32_t differ = 0;

	ck_assert_int_eq(
		talk("eager", NULL, NULL, "inorder", "off", want, text), 0);
	for (int i = 0; i < 12; i++) {
		if (i == 1)
			snprintf(schedule, sizeof(schedule), "late");
		if (i > 1)
			snprintf(schedule, sizeof(schedule), "random:%d", i);
		ck_assert_int_eq(
			talk("eager", NULL, NULL, schedule, "off", got, text),
			0);
		ck_assert_mem_eq(want, got, sizeof(want));
		differ += talk("eager", pagers[_i], NULL, schedule, "off", got,
			       text) != 0 ||
			  memcmp(want, got, sizeof(want)) != 0;
	}
	ck_assert_uint_gt(differ, 0);
}
END_TEST

// ---- after an error ----

static void set_paged(struct sim_run *r)
{
	sim_init(r, "eager", "pager_async");
	sim_set(r, "runtime.weight_budget=20%%");
	sim_set(r, "module.pager_async.page_bytes=4KiB");
}

// Copies until the first token of a prompt.
static uint64_t copies_to_first(void)
{
	static const int64_t prompt[] = {1, 5, 9, 33, 7};
	struct genai_stream_stats st = {.size = sizeof(st)};
	const struct genai_stream_api *s;
	struct sim_run r;
	int64_t id;

	set_paged(&r);
	ck_assert_int_eq(sim_open(&r, "qwen3-cpu-int4"), 0);
	ck_assert_int_eq(genai_session_append(r.session, prompt, 5, NULL), 0);
	ck_assert_int_eq(sim_next(&r, &id, 1, 0), 0);
	s = &r.rt->device.stream;
	ck_assert_int_eq(s->ops->stats(s->self, &st, NULL), 0);
	sim_close(&r);
	return st.copies;
}

static int32_t talk_again(const char *fault, int64_t *ids)
{
	struct sim_run r;
	int32_t rc;

	set_paged(&r);
	// a copy of a page in the step after that
	sim_set(&r, "module.cpu_ref.fault=copy:%lu",
		(unsigned long)copies_to_first() + 8);
	if (fault) {
		sim_set(&r, "module.mutant_pager.page_bytes=4KiB");
		use_pager(&r, fault);
	}
	ck_assert_int_eq(sim_open(&r, "qwen3-cpu-int4"), 0);
	ck_assert_int_eq(sim_talk(&r, ids), GENAI_E_DEVICE);
	rc = genai_session_rewind(r.session, 0, &r.err);
	if (!rc)
		rc = sim_talk(&r, ids);
	sim_close(&r);
	return rc;
}

START_TEST(ring_forgotten)
{
	int64_t want[SIM_TALK], got[SIM_TALK];
	char text[512];

	ck_assert_int_eq(
		talk("eager", NULL, NULL, "inorder", "off", want, text), 0);
	ck_assert_int_eq(talk_again(NULL, got), 0);
	ck_assert_mem_eq(want, got, sizeof(want));
	ck_assert(talk_again("reset-keeps", got) != 0 ||
		  memcmp(want, got, sizeof(want)) != 0);
}
END_TEST

// ---- a pager by itself ----

#define PAGES 8
#define PAGE 4096

static struct genai_pager *pager;
static const struct genai_pager_ops *po;
static struct genai_stream *compute;
static uint8_t *weights;

static void open_pager(const char *name, const char *fault)
{
	struct genai_sweep_visit sweep[PAGES];
	struct genai_pager_report report = {.size = sizeof(report)};
	struct genai_runtime_options o = {
		.size = sizeof(o), .log = sim_log, .log_ctx = &sim};

	sim_init(&sim, "eager", name);
	sim_set(&sim, "module.%s.ring_slots=3", fault ? "mutant_pager" : name);
	if (fault) {
		sim_set(&sim, "module.mutant_pager.sync=%s",
			strcmp(name, "pager_sync") ? "off" : "on");
		use_pager(&sim, fault);
	}
	o.sets = sim.sets;
	o.n_sets = sim.n_sets;
	OK(genai_open(&o, &sim.rt, &err));
	dev = &sim.rt->device;
	ops = dev->stream.ops;
	bar = dev->barrier.ops;
	po = &sim.rt->pager_ops;
	compute = stream("compute");
	weights = aligned_alloc(4096, PAGES * PAGE);
	for (uint32_t i = 0; i < PAGES * PAGE; i++)
		weights[i] = (uint8_t)(i / PAGE + 1);
	OK(po->open(genai_module_self(sim.rt->pager.module), &dev->stream,
		    &dev->barrier, &pager, &err));
	for (uint32_t i = 0; i < PAGES; i++) {
		struct genai_extent e = {.size = sizeof(e),
					 .src = weights + i * PAGE,
					 .src_bytes = PAGE,
					 .bytes = PAGE};

		OK(po->add(pager, PAGE, 0, &e, 1, &err));
		sweep[i] = (struct genai_sweep_visit){
			sizeof(sweep[0]), i, 0, PAGE, 0, 0};
	}
	OK(po->seal(pager, sweep, PAGES, 3 * PAGE, &report, &err));
	ck_assert_uint_eq(report.ring_slots, 3);
	ck_assert_uint_eq(report.n_streamed, PAGES);
}

static void close_pager(void)
{
	struct genai_ticket t = drain_all();

	OK(po->reset(pager, &t, &err));
	t = drain_all();
	OK(po->close(pager, &t, &err));
	end_stream(compute);
	close_device();
	free(weights);
}

static int32_t get(uint32_t visit, struct genai_place *place,
		   struct genai_point *ready)
{
	*place = (struct genai_place){.size = sizeof(*place)};
	return po->acquire(pager, visit, compute, place, ready, &err);
}

// R1: on the stream that was given, and without waiting on the host.
static bool keeps_r1(const char *fault)
{
	struct genai_place place;
	struct genai_point ready;
	bool good;

	open_pager("pager_sync", fault);
	say_nothing_yet();
	unit(compute, "k", 0, 0, 0);
	OK(po->step_begin(pager, compute, 0, &err));
	good = !get(0, &place, &ready) && ready.stream == compute;
	OK(po->release(pager, 0, mark(compute), &err));
	good = !get(1, &place, &ready) && good;
	OK(po->release(pager, 1, mark(compute), &err));
	good = !get(2, &place, &ready) && good;
	OK(po->release(pager, 2, mark(compute), &err));
	// the slot of page 0 again
	good = !get(3, &place, &ready) && ready.stream == compute && good;
	good = good && !ran.text[0]; // nobody made the device run
	OK(po->release(pager, 3, mark(compute), &err));
	close_pager();
	return good;
}

START_TEST(r1)
{
	ck_assert(keeps_r1(NULL));
	ck_assert(!keeps_r1("own-stream"));
	ck_assert(!keeps_r1("blocks"));
}
END_TEST

// R5: a page is not loaded over one that is held.
static bool keeps_r5(const char *name, const char *fault)
{
	struct genai_place place;
	struct genai_point ready;
	int32_t rc;

	open_pager(name, fault);
	OK(po->step_begin(pager, compute, 0, &err));
	for (uint32_t i = 0; i < 3; i++)
		OK(get(i, &place, &ready));
	rc = get(3, &place, &ready);
	close_pager();
	return rc == GENAI_E_STATE;
}

START_TEST(r5)
{
	ck_assert(keeps_r5("pager_sync", NULL));
	ck_assert(keeps_r5("pager_async", NULL));
	ck_assert(!keeps_r5("pager_sync", "held-taken"));
}
END_TEST

// A page that is on the device for good leaves no copy on the host, were it
// filled or refused to be registered.
static int32_t refuse_register(void *self, const void *ptr, uint64_t bytes,
			       struct genai_mem *out, struct genai_error *e)
{
	(void)self;
	(void)ptr;
	(void)bytes;
	(void)out;
	if (e)
		snprintf(e->text, sizeof(e->text), "not today");
	return GENAI_E_LIMIT;
}

static void fill(void *ctx, void *dst, uint64_t bytes, const void *src,
		 uint64_t src_bytes)
{
	(void)ctx;
	(void)src_bytes;
	memcpy(dst, src, bytes);
}

START_TEST(no_copy_stays)
{
	struct genai_pager_report report = {.size = sizeof(report)};
	struct genai_sweep_visit sweep[PAGES];
	static uint8_t bytes[PAGES * PAGE];
	struct genai_ticket t;

	open_device(SETS(_i ? "runtime.pager=pager_async"
			    : "runtime.pager=pager_sync"));
	po = &sim.rt->pager_ops;
	dev->raw.host_register = refuse_register;
	OK(po->open(genai_module_self(sim.rt->pager.module), &dev->stream,
		    &dev->barrier, &pager, &err));
	for (uint32_t i = 0; i < PAGES; i++) {
		struct genai_extent e = {.size = sizeof(e),
					 .src = bytes + i * PAGE,
					 .src_bytes = PAGE,
					 .bytes = PAGE,
					 .fill = i % 2 ? fill : NULL};

		OK(po->add(pager, PAGE, 0, &e, 1, &err));
		sweep[i] = (struct genai_sweep_visit){
			sizeof(sweep[0]), i, 0, PAGE, 0, 0};
	}
	OK(po->seal(pager, sweep, PAGES, PAGES * PAGE, &report, &err));
	ck_assert_uint_eq(report.pinned_bytes, PAGES * PAGE);
	ck_assert_uint_eq(report.host_bytes, 0);
	ck_assert_uint_eq(dev->pinned, 0);
	t = drain_all();
	OK(po->close(pager, &t, &err));
	close_device();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("rules");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, sound, 0, 2);
	tcase_add_loop_test(t, found, 0, N_CAUGHT);
	tcase_add_loop_test(t, found_by_tokens, 0, 3);
	tcase_add_test(t, ring_forgotten);
	tcase_add_test(t, r1);
	tcase_add_test(t, r5);
	tcase_add_loop_test(t, no_copy_stays, 0, 2);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
