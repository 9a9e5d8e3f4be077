// check_sim_models.c - models on the simulated device: the same tokens under
// every schedule, and after every single failure.
#include <unistd.h>

#include "tests/unit/sim_device.h"

static void talk_of(const char *const *sets, const char *executor,
		    const char *pager, int64_t ids[SIM_TALK])
{
	struct sim_run r;
	int32_t rc;

	sim_init(&r, executor, pager);
	for (; sets && *sets; sets++)
		sim_set(&r, "%s", *sets);
	rc = sim_open(&r, "qwen3-cpu-int4");
	ck_assert_msg(!rc, "%s", r.err.text);
	rc = sim_talk(&r, ids);
	ck_assert_msg(!rc, "%s", r.err.text);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}

START_TEST(same_tokens)
{
	static const char *const schedules[] = {"inorder", "threads", "late",
						"early", "random:7"};
	int64_t want[SIM_TALK], got[SIM_TALK];
	char set[64];

	talk_of(NULL, "eager", "pager_sync", want);
	snprintf(set, sizeof(set), "module.cpu_ref.schedule=%s",
		 schedules[_i % 5]);
	talk_of(SETS(set, "runtime.weight_budget=20%",
		     "module.pager_async.page_bytes=4KiB"),
		_i / 5 ? "captured" : "eager", "pager_async", got);
	ck_assert_mem_eq(want, got, sizeof(want));
}
END_TEST

// Every level that the machine has; the others are refused by name.
START_TEST(same_tokens_of_any_level)
{
	static const char *const levels[] = {"generic", "avx2", "avx512"};
	int64_t want[SIM_TALK], got[SIM_TALK];
	char set[64], name[32];
	int32_t rc;

	talk_of(NULL, "eager", "pager_sync", want);
	snprintf(set, sizeof(set), "module.cpu_ref.simd=%s", levels[_i]);
	snprintf(name, sizeof(name), ", %s", levels[_i]);
	rc = try_device(SETS(set));
	if (rc) {
		ck_assert_int_eq(rc, GENAI_E_CONFIG);
		ck_assert_ptr_nonnull(strstr(err.text, levels[_i]));
		ck_assert_int_gt(_i, 0);
		return;
	}
	ck_assert_ptr_nonnull(strstr(dev->caps.device_name, name));
	close_device();
	talk_of(SETS(set), "captured", "pager_async", got);
	ck_assert_mem_eq(want, got, sizeof(want));
}
END_TEST

// What ran in which order, of a conversation.
static void trace_of(const char *seed, char *text, size_t cap)
{
	char path[] = "/tmp/genai-trace-XXXXXX", file[64], trace[128];
	int64_t ids[SIM_TALK];
	FILE *f;

	ck_assert_ptr_nonnull(mkdtemp(path));
	snprintf(file, sizeof(file), "%s/trace", path);
	snprintf(trace, sizeof(trace), "module.cpu_ref.trace=%s", file);
	talk_of(SETS(seed, trace, "runtime.weight_budget=20%",
		     "module.pager_async.page_bytes=4KiB"),
		"captured", "pager_async", ids);
	f = fopen(file, "r");
	ck_assert_ptr_nonnull(f);
	memset(text, 0, cap);
	ck_assert_uint_gt(fread(text, 1, cap - 1, f), 10000);
	fclose(f);
	unlink(file);
	rmdir(path);
}

START_TEST(same_run)
{
	static char a[1 << 20], b[1 << 20];

	trace_of("module.cpu_ref.schedule=random:7", a, sizeof(a));
	trace_of("module.cpu_ref.schedule=random:7", b, sizeof(b));
	ck_assert(!strcmp(a, b));
	trace_of("module.cpu_ref.schedule=random:8", b, sizeof(b));
	ck_assert(strcmp(a, b));
}
END_TEST

// One copy fails, whichever: the session says so, and after that everything is
// as if nothing had been.  What fails while a session is opened, and cannot be
// told from what another left behind, is done again.
START_TEST(recovers)
{
	int64_t want[SIM_TALK], got[SIM_TALK];
	uint32_t failed = 0;
	int32_t rc = -1;

	talk_of(NULL, "eager", "pager_sync", want);
	for (int n = 1; rc || n < 280; n += 7) {
		struct sim_run r;

		sim_init(&r, _i ? "captured" : "eager", "pager_async");
		sim_set(&r, "runtime.weight_budget=20%%");
		sim_set(&r, "module.pager_async.page_bytes=4KiB");
		sim_set(&r, "module.cpu_ref.schedule=random:%d", n);
		sim_set(&r, "module.cpu_ref.fault=copy:%d", n);
		rc = sim_open(&r, "qwen3-cpu-int4");
		if (!rc)
			rc = sim_talk(&r, got);
		failed += rc != 0;
		ck_assert(!rc || rc == GENAI_E_DEVICE);
		if (rc && r.session) {
			OK(genai_session_rewind(r.session, 0, &r.err));
			OK(sim_talk(&r, got));
		}
		if (r.session)
			ck_assert_mem_eq(want, got, sizeof(want));
		sim_close(&r);
	}
	ck_assert_uint_gt(failed, 40);
}
END_TEST

START_TEST(survives_loss)
{
	for (int n = 1; n < 600; n += 41) {
		struct sim_run r;
		int64_t got[SIM_TALK];
		int32_t rc;

		sim_init(&r, "captured", "pager_async");
		sim_set(&r, "runtime.weight_budget=20%%");
		sim_set(&r, "module.pager_async.page_bytes=4KiB");
		sim_set(&r, "module.cpu_ref.schedule=threads");
		sim_set(&r, "module.cpu_ref.fault=lost:%d", n);
		rc = sim_open(&r, "qwen3-cpu-int4");
		if (!rc)
			rc = sim_talk(&r, got);
		ck_assert_int_eq(rc, GENAI_E_DEVICE);
		ck_assert_ptr_nonnull(strstr(r.err.text, "lost"));
		sim_close(&r);
	}
}
END_TEST

START_TEST(survives_no_memory)
{
	int32_t rc = -1;

	for (int n = 1; rc; n++) {
		struct sim_run r;
		int64_t got[SIM_TALK];

		sim_init(&r, "captured", "pager_async");
		sim_set(&r, "runtime.weight_budget=20%%");
		sim_set(&r, "module.pager_async.page_bytes=4KiB");
		sim_set(&r, "module.cpu_ref.fault=oom:%d", n);
		rc = sim_open(&r, "qwen3-cpu-int4");
		if (!rc)
			rc = sim_talk(&r, got);
		ck_assert(!rc || rc == GENAI_E_LIMIT);
		sim_close(&r);
		ck_assert_str_eq(r.log, "");
		ck_assert_int_lt(n, 200);
	}
}
END_TEST

// Two sequences share the weights, the ring and the compute stream: each steps
// while the other's pages are on their way.
START_TEST(two_sessions)
{
	static const int64_t prompt[] = {1, 5, 9, 33, 7};
	static const char *const schedules[] = {"inorder", "late", "early",
						"random:3", "threads"};
	int64_t want[12], got[2][12];
	struct genai_session *other = NULL;
	struct sim_run r;

	sim_init(&r, "eager", "pager_sync");
	ck_assert_msg(!sim_open(&r, "qwen3-cpu-int4"), "%s", r.err.text);
	OK(genai_session_append(r.session, prompt, 5, &r.err));
	OK(sim_next(&r, want, 12, 0));
	sim_close(&r);
	sim_init(&r, _i & 1 ? "captured" : "eager", "pager_async");
	sim_set(&r, "runtime.weight_budget=20%%");
	sim_set(&r, "module.pager_async.page_bytes=4KiB");
	sim_set(&r, "module.cpu_ref.schedule=%s", schedules[_i / 4]);
	sim_set(&r, "runtime.check=%s", _i & 2 ? "order" : "off");
	ck_assert_msg(!sim_open(&r, "qwen3-cpu-int4"), "%s", r.err.text);
	OK(genai_session_open(r.model, &other, &r.err));
	OK(genai_session_append(r.session, prompt, 5, &r.err));
	for (int i = 0; i < 12; i++) {
		int32_t rc =
			genai_session_next(r.session, 0, &got[0][i], &r.err);

		// the other one begins when the first has been recorded
		if (!rc && i == 4)
			rc = genai_session_append(other, prompt, 5, &r.err);
		if (!rc && i >= 4)
			rc = genai_session_next(other, 0, &got[1][i - 4],
						&r.err);
		ck_assert_msg(!rc, "token %d: %s", i, r.err.text);
	}
	ck_assert_mem_eq(want, got[0], sizeof(want));
	ck_assert_mem_eq(want, got[1], 8 * sizeof(want[0]));
	genai_session_close(other);
	sim_close(&r);
}
END_TEST

// A model that nobody asked anything: its plan goes with it, after a drain of
// what another one does meanwhile.
START_TEST(never_used)
{
	static const int64_t prompt[] = {1, 5, 9, 33, 7};
	struct genai_model *idle = NULL;
	struct sim_run r;
	int64_t ids[4];

	sim_init(&r, _i & 1 ? "captured" : "eager",
		 _i & 2 ? "pager_async" : "pager_sync");
	sim_set(&r, "runtime.weight_budget=20%%");
	sim_set(&r, "module.cpu_ref.schedule=late");
	ck_assert_msg(!sim_open(&r, "qwen3-cpu-int4"), "%s", r.err.text);
	OK(genai_model_open(r.rt, SIM_MODELS "qwen2-cpu-int8", NULL, &idle,
			    &r.err));
	OK(genai_session_append(r.session, prompt, 5, &r.err));
	OK(genai_session_next(r.session, 1, &ids[0], &r.err));
	genai_model_close(idle);
	ck_assert_str_eq(r.log, "");
	OK(sim_next(&r, ids + 1, 3, 1));
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("sim models");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, same_tokens, 0, 10);
	tcase_add_loop_test(t, same_tokens_of_any_level, 0, 3);
	tcase_add_test(t, same_run);
	tcase_add_loop_test(t, recovers, 0, 2);
	tcase_add_test(t, survives_loss);
	tcase_add_test(t, survives_no_memory);
	tcase_add_loop_test(t, two_sessions, 0, 20);
	tcase_add_loop_test(t, never_used, 0, 4);
	tcase_set_timeout(t, 60);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
