// check_refused.c - every call that a session makes to the device refused in
// turn, in the middle of a step, of a recording, of a recovery: the session
// says so, goes on with the same tokens, and closes.
#include "core/graph/build.h"
#include "core/model/single.h"
#include "tests/unit/sim_device.h"

// ---- the device, with one call refused ----

static struct genai_stream_ops real;
static struct genai_barrier_ops real_bar;
static int64_t countdown;  // calls until the refused one; < 0: none
static int64_t again = -1; // and after that one
static const char *refused;

static bool refuses(const char *what, struct genai_error *e)
{
	if (countdown < 0 || countdown--)
		return false;
	countdown = again;
	again = -1;
	refused = what;
	if (e) {
		e->code = GENAI_E_DEVICE;
		snprintf(e->text, sizeof(e->text), "%s refused on purpose",
			 what);
	}
	return true;
}

#define REFUSE(what)                                                           \
	do {                                                                   \
		if (refuses(what, e))                                          \
			return GENAI_E_DEVICE;                                 \
	} while (0)

static int32_t r_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *e)
{
	REFUSE("copy");
	return real.copy(self, s, dst, src, bytes, kind, e);
}

static int32_t r_launch(void *self, struct genai_stream *s,
			const struct genai_work *w,
			const struct genai_access *a, uint32_t n,
			struct genai_error *e)
{
	REFUSE("launch");
	return real.launch(self, s, w, a, n, e);
}

static int32_t r_mark(void *self, struct genai_stream *s,
		      struct genai_point *out, struct genai_error *e)
{
	REFUSE("mark");
	return real.mark(self, s, out, e);
}

static int32_t r_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *e)
{
	REFUSE("wait");
	return real.wait(self, s, p, e);
}

static int32_t r_begin(void *self, struct genai_stream *s,
		       struct genai_error *e)
{
	REFUSE("capture_begin");
	return real.capture_begin(self, s, e);
}

static int32_t r_end(void *self, struct genai_stream *s,
		     struct genai_recording **out, struct genai_error *e)
{
	// what cannot be finished is dropped
	if (refuses("capture_end", e)) {
		real.capture_abort(self, s, NULL);
		return GENAI_E_DEVICE;
	}
	return real.capture_end(self, s, out, e);
}

static int32_t r_graph(void *self, struct genai_recording *r,
		       struct genai_stream *s, struct genai_error *e)
{
	REFUSE("launch_graph");
	return real.launch_graph(self, r, s, e);
}

static int32_t r_read(void *self, const struct genai_point *p, uint32_t n,
		      uint64_t deadline, struct genai_error *e)
{
	REFUSE("host_read");
	return real_bar.host_read(self, p, n, deadline, e);
}

static int32_t r_drain(void *self, struct genai_range r, uint64_t deadline,
		       struct genai_ticket *out, struct genai_error *e)
{
	REFUSE("drain");
	return real_bar.drain(self, r, deadline, out, e);
}

static int32_t r_reset(void *self, const struct genai_ticket *t,
		       struct genai_error *e)
{
	REFUSE("reset");
	return real.reset(self, t, e);
}

static void hook(struct genai_device *d)
{
	real = d->raw;
	real_bar = d->raw_barrier;
	d->raw.copy = r_copy;
	d->raw.launch = r_launch;
	d->raw.mark = r_mark;
	d->raw.wait = r_wait;
	d->raw.capture_begin = r_begin;
	d->raw.capture_end = r_end;
	d->raw.launch_graph = r_graph;
	d->raw.reset = r_reset;
	d->raw_barrier.host_read = r_read;
	d->raw_barrier.drain = r_drain;
	countdown = -1;
}

// ---- sessions ----

static const struct {
	const char *executor, *pager, *schedule;
} configs[] = {
	{"eager", "pager_sync", "inorder"},
	{"eager", "pager_async", "late"},
	{"captured", "pager_sync", "early"},
	{"captured", "pager_async", "random:3"},
};
#define N_CONFIGS 4

static void set_up(struct sim_run *r, int i)
{
	sim_init(r, configs[i].executor, configs[i].pager);
	sim_set(r, "runtime.weight_budget=20%%");
	sim_set(r, "module.%s.page_bytes=16KiB", configs[i].pager);
	sim_set(r, "module.cpu_ref.schedule=%s", configs[i].schedule);
}

static void open_session(struct sim_run *r, int i)
{
	int32_t rc;

	set_up(r, i);
	rc = sim_open(r, "qwen3-cpu-int4");
	ck_assert_msg(!rc, "%s", r->err.text);
	ck_assert_uint_gt(sim_stats(r).ring_bytes, 0);
	hook(&r->rt->device);
}

// From the beginning: a prompt, its tokens, a step ahead, another prompt.
#define TALK 8
static int32_t talk(struct sim_run *r, int64_t ids[TALK])
{
	static const int64_t a[] = {1, 5, 9}, b[] = {8, 120};
	int32_t rc = genai_session_rewind(r->session, 0, &r->err);

	if (!rc)
		rc = genai_session_append(r->session, a, 3, &r->err);
	if (!rc)
		rc = sim_next(r, ids, 4, 1);
	if (!rc)
		rc = genai_session_append(r->session, b, 2, &r->err);
	return rc ? rc : sim_next(r, ids + 4, 4, 1);
}

// The n-th call is refused, for every n; if times is 2, also one of those after
// it: in the recovery.
static void refuse_all(struct sim_run *r, const int64_t want[TALK], int times)
{
	int64_t got[TALK];
	uint32_t seen = 0;
	int32_t rc;

	for (int64_t n = 0;; n += times) {
		countdown = n;
		again = times > 1 ? n / 2 % 12 : -1;
		refused = NULL;
		rc = talk(r, got);
		if (!refused)
			break;
		seen++;
		ck_assert_msg(rc == GENAI_E_DEVICE || !rc, "call %ld, %s: %d",
			      (long)n, refused, rc);
		// poison, not the call, is what a poll or a recovery may see
		if (rc)
			ck_assert_msg(strstr(r->err.text, "refused on purpose"),
				      "call %ld, %s: %s", (long)n, refused,
				      r->err.text);
		countdown = again = -1;
		rc = talk(r, got);
		if (times > 1 && rc) // what could not be recovered from
			rc = talk(r, got);
		ck_assert_msg(!rc, "after call %ld, %s: %s", (long)n, refused,
			      r->err.text);
		ck_assert_mem_eq(want, got, sizeof(got));
	}
	ck_assert_int_eq(rc, 0);
	ck_assert_uint_gt(seen, 100);
	countdown = -1;
}

START_TEST(goes_on)
{
	struct sim_run r;
	int64_t want[TALK];

	open_session(&r, _i / 2);
	ck_assert_int_eq(talk(&r, want), 0);
	refuse_all(&r, want, 1 + _i % 2);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

// A recovery that is refused itself leaves a session of length 0, which is good
// for a new beginning as soon as the device is.
START_TEST(begins_anew)
{
	static const int64_t a[] = {1, 5, 9};
	int64_t want[4], got[4];
	struct sim_run r;
	uint32_t seen = 0;

	open_session(&r, _i);
	ck_assert_int_eq(genai_session_append(r.session, a, 3, &r.err), 0);
	ck_assert_int_eq(sim_next(&r, want, 4, 1), 0);
	for (int64_t n = 0; n < 400; n++) {
		int32_t rc;

		countdown = n / 8 * 5;
		again = n % 8;
		refused = NULL;
		rc = genai_session_append(r.session, a, 2, &r.err);
		if (!rc)
			rc = sim_next(&r, got, 3, 1);
		countdown = again = -1;
		if (genai_session_length(r.session))
			rc = genai_session_rewind(r.session, 0, &r.err);
		else
			seen += rc != 0;
		if (genai_session_length(r.session) == 0)
			rc = genai_session_append(r.session, a, 3, &r.err);
		if (!rc)
			rc = sim_next(&r, got, 4, 1);
		ck_assert_msg(!rc, "%ld, %s: %s", (long)n, refused, r.err.text);
		ck_assert_msg(!memcmp(want, got, sizeof(got)), "%ld, %s",
			      (long)n, refused);
	}
	ck_assert_uint_gt(seen, 5);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

// Another session, with a step ahead meanwhile, gives its tokens or an error.
START_TEST(never_wrong)
{
	static const int64_t a[] = {1, 5, 9};
	struct genai_session *o = NULL;
	int64_t want[5], got[5];
	struct sim_run r;
	uint32_t lost = 0;

	open_session(&r, _i);
	ck_assert_int_eq(genai_session_open(r.model, &o, &r.err), 0);
	ck_assert_int_eq(genai_session_append(o, a, 3, &r.err), 0);
	for (int i = 0; i < 5; i++)
		ck_assert_int_eq(genai_session_next(o, 1, &want[i], &r.err), 0);
	for (int64_t n = 0; n < 400; n++) {
		int32_t rc = genai_session_rewind(o, 0, &r.err);

		if (rc) // once for what it was not told
			rc = genai_session_rewind(o, 0, &r.err);
		if (!rc)
			rc = genai_session_append(o, a, 3, &r.err);
		ck_assert_msg(!rc, "%ld: %s", (long)n, r.err.text);
		ck_assert_int_eq(genai_session_next(o, 1, &got[0], &r.err), 0);
		countdown = n / 8 * 3;
		again = n % 8;
		refused = NULL;
		rc = genai_session_append(r.session, a, 2, &r.err);
		if (!rc)
			sim_next(&r, &got[1], 2, 1);
		countdown = again = -1;
		rc = 0;
		for (int i = 1; !rc && i < 5; i++)
			rc = genai_session_next(o, 1, &got[i], &r.err);
		lost += rc != 0;
		ck_assert_msg(rc || !memcmp(want, got, sizeof(got)), "%ld, %s",
			      (long)n, refused);
		if (genai_session_rewind(r.session, 0, &r.err))
			ck_assert_int_eq(
				genai_session_rewind(r.session, 0, &r.err), 0);
	}
	ck_assert_uint_lt(lost, 399);
	genai_session_close(o);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

// The step after the failure is one of one token: an executor that has it
// recorded must not replay it over a ring that was forgotten.
START_TEST(goes_on_by_one)
{
	static const int64_t a[] = {1, 5, 9};
	int64_t want[6], got[6];
	struct sim_run r;
	uint32_t seen = 0;

	open_session(&r, _i);
	ck_assert_int_eq(genai_session_append(r.session, a, 3, &r.err), 0);
	ck_assert_int_eq(sim_next(&r, want, 6, 1), 0);
	for (int64_t n = 0;; n++) {
		int32_t rc = genai_session_rewind(r.session, 3, &r.err);

		countdown = n;
		refused = NULL;
		if (!rc)
			rc = genai_session_append(r.session, want, 1, &r.err);
		if (!rc)
			rc = sim_next(&r, got, 5, 1);
		countdown = -1;
		if (!refused)
			break;
		seen += rc != 0;
		ck_assert_int_eq(genai_session_rewind(r.session, 0, &r.err), 0);
		ck_assert_int_eq(genai_session_append(r.session, a, 1, &r.err),
				 0);
		ck_assert_int_eq(
			genai_session_append(r.session, a + 1, 1, &r.err), 0);
		ck_assert_int_eq(
			genai_session_append(r.session, a + 2, 1, &r.err), 0);
		ck_assert_int_eq(sim_next(&r, got, 6, 1), 0);
		ck_assert_msg(!memcmp(want, got, sizeof(got)),
			      "after call %ld, %s", (long)n, refused);
	}
	ck_assert_uint_gt(seen, 5);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

// The same when a copy fails on the device, maybe in the middle of a replay:
// then the ring holds what nobody knows.
START_TEST(a_failed_copy)
{
	static const int64_t a[] = {1, 5, 9};
	int64_t want[8], got[8];
	struct sim_run r;

	open_session(&r, _i);
	ck_assert_int_eq(genai_session_append(r.session, a, 3, &r.err), 0);
	ck_assert_int_eq(sim_next(&r, want, 8, 1), 0);
	sim_close(&r);
	for (int n = 1;; n++) {
		int32_t rc;

		set_up(&r, _i);
		sim_set(&r, "module.cpu_ref.fault=copy:%d", n);
		rc = sim_open(&r, "qwen3-cpu-int4");
		if (rc) {
			sim_close(&r);
			continue;
		}
		rc = genai_session_append(r.session, a, 3, &r.err);
		if (!rc)
			rc = sim_next(&r, got, 8, 1);
		if (!rc)
			break;
		ck_assert_int_eq(rc, GENAI_E_DEVICE);
		ck_assert_int_eq(genai_session_rewind(r.session, 0, &r.err), 0);
		for (int i = 0; i < 3; i++)
			ck_assert_int_eq(genai_session_append(r.session, a + i,
							      1, &r.err),
					 0);
		rc = sim_next(&r, got, 8, 1);
		ck_assert_msg(!rc && !memcmp(want, got, sizeof(got)),
			      "after copy %d: %d %s", n, rc, r.err.text);
		sim_close(&r);
	}
	ck_assert_mem_eq(want, got, sizeof(got));
	sim_close(&r);
}
END_TEST

// Refused in the very first life of a session, whose first steps record; and
// closed right after the failure.
START_TEST(closes)
{
	struct sim_run r;
	int64_t got[TALK];

	for (int64_t n = 0;; n += 5) {
		open_session(&r, _i);
		countdown = n;
		refused = NULL;
		talk(&r, got);
		countdown = -1;
		sim_close(&r);
		ck_assert_msg(!r.log[0], "call %ld, %s: %s", (long)n, refused,
			      r.log);
		if (!refused)
			break;
	}
}
END_TEST

// ---- one graph, once ----

static int32_t run_once(struct sim_run *r, const struct genai_graph *g,
			float *out)
{
	static const float x[4] = {1, 2, 3, 4};
	struct genai_host_tensor in = {.dtype = GENAI_DT_F32,
				       .rank = 1,
				       .dims = {4},
				       .data = (void *)(uintptr_t)x,
				       .bytes = sizeof(x)};
	struct genai_host_tensor y;
	int32_t rc = genai_single_run(r->rt, g, &in, &y, &r->err);

	if (rc) {
		ck_assert_ptr_null(y.data);
		return rc;
	}
	ck_assert_uint_eq(y.bytes, sizeof(x));
	memcpy(out, y.data, sizeof(x));
	free(y.data);
	return 0;
}

static struct genai_graph *sum_graph(void)
{
	struct genai_builder *b = genai_builder_open("sum");
	uint32_t in = genai_builder_value(b, "x", GENAI_DT_F32, 1,
					  (int64_t[]){4}, NULL);
	uint32_t out = genai_builder_value(b, "y", GENAI_DT_NONE, GENAI_NONE,
					   NULL, NULL);
	struct genai_graph *g = NULL;

	genai_builder_input(b, in);
	genai_builder_node(b, "Add", "", 14, "add", (uint32_t[]){in, in}, 2,
			   &out, 1);
	genai_builder_output(b, out);
	ck_assert_int_eq(genai_builder_finish(b, &g, NULL), 0);
	return g;
}

START_TEST(once)
{
	struct genai_graph *g = sum_graph();
	struct genai_runtime_options o = {.size = sizeof(o)};
	struct sim_run r;
	float out[4];
	uint32_t seen = 0;

	set_up(&r, _i);
	o.sets = r.sets;
	o.n_sets = r.n_sets;
	o.log = sim_log;
	o.log_ctx = &r;
	ck_assert_int_eq(genai_open(&o, &r.rt, &r.err), 0);
	hook(&r.rt->device);
	for (int64_t n = 0;; n++) {
		uint32_t before = r.rt->device.n_allocs;
		int32_t rc;

		countdown = n;
		refused = NULL;
		rc = run_once(&r, g, out);
		countdown = -1;
		if (!refused)
			break;
		seen++;
		ck_assert(rc == GENAI_E_DEVICE || !rc);
		// a device that cannot be drained keeps what it has
		if (strcmp(refused, "drain") && strcmp(refused, "reset"))
			ck_assert_uint_eq(r.rt->device.n_allocs, before);
		ck_assert_int_eq(run_once(&r, g, out), 0);
		ck_assert(out[0] == 2 && out[3] == 8);
	}
	ck_assert_uint_gt(seen, 4);
	sim_close(&r);
	genai_graph_free(g);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("refused");
	TCase *t = tcase_create("all");

	tcase_set_timeout(t, 120);
	tcase_add_loop_test(t, goes_on, 0, 2 * N_CONFIGS);
	tcase_add_loop_test(t, begins_anew, 0, N_CONFIGS);
	tcase_add_loop_test(t, never_wrong, 0, N_CONFIGS);
	tcase_add_loop_test(t, goes_on_by_one, 0, N_CONFIGS);
	tcase_add_loop_test(t, a_failed_copy, 0, N_CONFIGS);
	tcase_add_loop_test(t, closes, 0, N_CONFIGS);
	tcase_add_loop_test(t, once, 0, N_CONFIGS);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
