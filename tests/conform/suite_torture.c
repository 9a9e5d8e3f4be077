// suite_torture.c - memory refused while a device or an executor is at work:
// the n-th allocation alone, and all from the n-th on.
#include "tests/conform/rig.h"

#include <string.h>

#define BYTES UINT64_C(4096)

// ---- a device ----

static struct cf_rt r;

// All that a program makes, in the order in which it is made.
struct program {
	struct genai_stream *a, *b;
	struct genai_mem dev, up, down, reg;
	struct genai_recording *rec;
	bool recording;
	atomic_int calls;
	const void *from; // what the copies read: source, or its copy
};

static unsigned char source[BYTES] __attribute__((aligned(4096)));
static bool registers;

static int32_t count(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	(void)err;
	atomic_fetch_add((atomic_int *)ctx, 1);
	return 0;
}

static int32_t call(struct program *p, struct genai_stream *s)
{
	struct genai_work w = {sizeof(w), GENAI_NONE, "count", count,
			       &p->calls};

	return r.st->launch_host(r.d, s, &w, NULL, 0, &cf_err);
}

static int32_t make(struct program *p)
{
	int32_t rc = r.st->create(r.d, "a", &p->a, &cf_err);

	if (!rc)
		rc = r.st->create(r.d, "b", &p->b, &cf_err);
	if (!rc)
		rc = r.st->alloc(r.d, GENAI_MEM_DEVICE, 2 * BYTES,
				 GENAI_TAG_ACTIVATIONS, &p->dev, &cf_err);
	if (!rc)
		rc = r.st->alloc(r.d, GENAI_MEM_HOST_PINNED, BYTES,
				 GENAI_TAG_STAGING, &p->up, &cf_err);
	if (!rc)
		rc = r.st->alloc(r.d, GENAI_MEM_HOST_PINNED, BYTES,
				 GENAI_TAG_STAGING, &p->down, &cf_err);
	p->from = source;
	if (!rc && registers)
		rc = r.st->host_register(r.d, source, BYTES, &p->reg, &cf_err);
	else if (!rc)
		p->from = memcpy(p->up.host, source, BYTES);
	return rc;
}

#define PART (BYTES / 4)

// A part of source -> dev on a, then dev -> dev + BYTES on b.
static int32_t enqueue(struct program *p, uint64_t part)
{
	genai_addr dev = p->dev.range.addr + part * PART;
	struct genai_point point;
	int32_t rc;

	rc = r.st->copy(r.d, p->a, dev, (uintptr_t)p->from + part * PART, PART,
			GENAI_COPY_H2D, &cf_err);
	if (!rc)
		rc = call(p, p->a);
	if (!rc)
		rc = r.st->mark(r.d, p->a, &point, &cf_err);
	if (!rc)
		rc = r.st->wait(r.d, p->b, point, &cf_err);
	if (!rc)
		rc = r.st->copy(r.d, p->b, dev + BYTES, dev, PART,
				GENAI_COPY_D2D, &cf_err);
	if (!rc)
		rc = r.st->mark(r.d, p->b, &point, &cf_err);
	if (!rc)
		rc = r.st->wait(r.d, p->a, point, &cf_err);
	return rc;
}

static int32_t record(struct program *p)
{
	int32_t rc = r.st->capture_begin(r.d, p->a, &cf_err);

	p->recording = !rc;
	if (!rc)
		rc = enqueue(p, 3);
	if (!rc) {
		rc = r.st->capture_end(r.d, p->a, &p->rec, &cf_err);
		p->recording = false;
	}
	if (!rc)
		rc = r.st->launch_graph(r.d, p->rec, p->a, &cf_err);
	return rc;
}

static int32_t run(struct program *p)
{
	struct genai_point point;
	int32_t rc = make(p);

	for (uint64_t i = 0; !rc && i < 3; i++)
		rc = enqueue(p, i);
	if (!rc)
		rc = r.caps.flags & GENAI_STREAM_CAP_RECORD ? record(p)
							    : enqueue(p, 3);
	if (!rc)
		rc = r.st->copy(r.d, p->a, (uintptr_t)p->down.host,
				p->dev.range.addr + BYTES, BYTES,
				GENAI_COPY_D2H, &cf_err);
	if (!rc)
		rc = r.st->mark(r.d, p->a, &point, &cf_err);
	if (!rc)
		rc = r.ba->host_read(r.d, &point, 1, UINT64_MAX, &cf_err);
	return rc;
}

// Take down what there is, with memory again.
static void unmake(struct program *p)
{
	struct genai_ticket t;

	if (p->recording)
		r.st->capture_abort(r.d, p->a, NULL);
	t = cf_drain(&r);
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	if (p->rec)
		CF_OK(r.st->graph_destroy(r.d, p->rec, &t, &cf_err));
	if (p->reg.range.bytes)
		CF_OK(r.st->host_unregister(r.d, p->reg.range.addr, &t,
					    &cf_err));
	if (p->dev.range.bytes)
		cf_free(&r, &p->dev);
	if (p->up.range.bytes)
		cf_free(&r, &p->up);
	if (p->down.range.bytes)
		cf_free(&r, &p->down);
	if (p->a)
		cf_destroy(&r, p->a);
	if (p->b)
		cf_destroy(&r, p->b);
}

static void try_program(struct genai_host_env *refuse, uint64_t n, bool sticky,
			bool *reached)
{
	struct program p = {0};
	int32_t rc;

	CF_CLEAR();
	genai_host_fail_alloc(refuse, n, sticky);
	rc = run(&p);
	*reached = cf_end_failing(refuse, n, sticky);
	ck_assert_msg(!rc || rc == GENAI_E_NOMEM,
		      "allocation %lu fails: %s: %s", (unsigned long)n,
		      genai_status_name(rc), cf_err.text);
	ck_assert_msg(!rc || cf_err.text[0],
		      "allocation %lu fails without a text", (unsigned long)n);
	if (!rc) {
		ck_assert_msg(!memcmp(p.down.host, source, BYTES),
			      "allocation %lu fails: other bytes",
			      (unsigned long)n);
		ck_assert_int_eq(p.calls, 4);
	}
	unmake(&p);
}

static void stream_alloc_fails(void)
{
	uint64_t most = cf.o.torture ? 100000 : 60;

	cf_pattern(source, sizeof(source), 77);
	cf_open(&r, 0, NULL);
	registers = cf_registers(&r);
	cf_close(&r);
	for (int sticky = 0; sticky < 2; sticky++) {
		bool reached = true;

		for (uint64_t n = 1; n <= most && reached; n++) {
			bool unused;

			cf_open(&r, 0, NULL);
			try_program(genai_module_host(r.tested), n, sticky,
				    &reached);
			try_program(genai_module_host(r.tested), 0, false,
				    &unused);
			cf_close(&r);
		}
	}
}

// ---- an executor ----

static struct rig g;

// Equal steps, as many as it takes to record and to replay one.
static int32_t steps(void)
{
	struct genai_point signal;
	int32_t rc = 0;

	for (int i = 0; !rc && i < 8; i++) {
		rc = g.r.rt->exec.bind_input(g.plan, 0, &g.in[0], &cf_err);
		if (!rc)
			rc = g.r.rt->exec.bind_output(g.plan, 0, &g.out[0],
						      &cf_err);
		if (!rc)
			rc = g.r.rt->exec.submit(g.plan, g.s, NULL, 0, &signal,
						 &cf_err);
		if (!rc)
			rc = g.r.ba->host_read(g.r.d, &signal, 1, UINT64_MAX,
					       &cf_err);
	}
	return rc;
}

static void try_steps(uint64_t n, bool sticky, bool *reached)
{
	float want[LM_VOCAB], got[LM_VOCAB];
	struct genai_host_env *env = genai_module_host(g.r.tested);
	struct genai_ticket t;
	int32_t rc;

	genai_host_fail_alloc(env, n, sticky);
	CF_CLEAR();
	rc = steps();
	*reached = cf_end_failing(env, n, sticky);
	ck_assert_msg(!rc || (rc == GENAI_E_NOMEM && cf_err.text[0]),
		      "allocation %lu of steps fails: %s: %s", (unsigned long)n,
		      genai_status_name(rc), cf_err.text);
	cf_get(&g.r, got, g.out[0].addr, sizeof(got));
	if (rc) {
		t = cf_drain(&g.r);
		CF_OK(g.r.st->reset(g.r.d, &t, &cf_err));
		CF_OK(g.pager_ops.reset(g.pager.pager, &t, &cf_err));
	}
	CF_OK(steps());
	cf_get(&g.r, want, g.out[0].addr, sizeof(want));
	ck_assert_msg(rc || !memcmp(want, got, sizeof(want)),
		      "allocation %lu of steps fails: other numbers",
		      (unsigned long)n);
}

static void executor_alloc_fails(void)
{
	const int64_t id = 9;
	uint64_t most = cf.o.torture ? 100000 : 30;
	struct genai_graph *graph;
	struct rig_graph made;
	struct genai_view max;

	for (int sticky = 0; sticky < 2; sticky++) {
		bool reached = true;

		for (uint64_t n = 1; n <= most && reached; n++) {
			rig_open(&g, NULL);
			rig_need_lm(&g);
			graph = rig_lm(&made);
			rig_lm_view(&max);
			rig_plan(&g, graph, &max, 0);
			rig_in(&g, 0, &id, 2, (int64_t[]){1, 1});
			rig_outs(&g);
			try_steps(n, sticky, &reached);
			rig_close(&g);
			rig_graph_free(&made, graph);
		}
	}
}

static const struct cf_test tests[] = {
	{"stream/alloc-fails", "GM-7", GENAI_IFACE_STREAM, 0,
	 stream_alloc_fails},
	{"executor/alloc-fails-steps", "GM-7", GENAI_IFACE_EXECUTOR, 0,
	 executor_alloc_fails},
};
const struct cf_suite cf_suite_torture = {tests,
					  sizeof(tests) / sizeof(tests[0])};
