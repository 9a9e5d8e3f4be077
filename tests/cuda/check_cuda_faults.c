// check_cuda_faults.c - every driver call of a run fails in turn, once and from
// then on: one clear error that names the call, nothing left behind, and both
// the session and the next run in the same process give the right tokens.
//
// CUDA_FAULTS_ALL=1 fails each call of each configuration, with a good run
// after every fifth; without it a few of each, from a place that
// CUDA_FAULTS_SEED moves, with a good run after each.
#include <stdio.h>

#include "tests/cuda/cuda_kit.h"

#define FEW 4

static int64_t want[CUDA_TALK];

static const struct {
	const char *name;
	int code;
	bool stays;
} modes[] = {
	{"no memory, once", OOM, false},
	{"no memory from then on", OOM, true},
	{"illegal address, once", ILLEGAL, false},
	{"device lost", ILLEGAL, true},
};
#define MODES 4

static void setup(void)
{
	struct sim_run r;

	fake_load();
	cuda_config(&r, 0);
	ck_assert_msg(!sim_open(&r, CUDA_MODEL), "%s", r.err.text);
	ck_assert_msg(!cuda_talk(&r, want), "%s", r.err.text);
	sim_close(&r);
	fake.do_reset();
}

static void in_order(const char *when, uint64_t n)
{
	ck_assert_msg(!fake.do_races(), "%s, call %lu: %s", when,
		      (unsigned long)n, fake.do_race());
	ck_assert_msg(!fake.do_alive(), "%s, call %lu: %lu things left", when,
		      (unsigned long)n, (unsigned long)fake.do_alive());
}

static void good_run(int config, const char *when, uint64_t n)
{
	int64_t got[CUDA_TALK];
	struct sim_run r;

	fake.do_reset();
	fake.do_seed(FAKE_LATE);
	cuda_config(&r, config);
	ck_assert_msg(!sim_open(&r, CUDA_MODEL) && !cuda_talk(&r, got),
		      "after call %lu: %s", (unsigned long)n, r.err.text);
	sim_close(&r);
	ck_assert_mem_eq(got, want, sizeof(want));
	ck_assert_str_eq(r.log, "");
	in_order(when, n);
}

// The function without what cuda.h adds to its name.
static void call_name(char *out, size_t cap)
{
	const char *name = fake.do_failed();
	size_t n = strlen(name);

	if (n > 3 && !strncmp(name + n - 3, "_v", 2))
		n -= 3;
	snprintf(out, cap, "%.*s", (int)n, name);
}

static void check_error(const struct sim_run *r, uint64_t n, bool stays)
{
	const char *text = r->err.text;
	char name[64] = ": cu";

	// of many the first that nobody can do without
	if (!stays)
		call_name(name, sizeof(name));
	ck_assert_msg(*text && !strchr(text, '\n'), "call %lu: '%s'",
		      (unsigned long)n, text);
	// the flags variant is what cuda.h makes of it
	if (!strcmp(name, "cuGraphInstantiateWithFlags"))
		name[strlen("cuGraphInstantiate")] = 0;
	ck_assert_msg(strstr(text, name) != NULL, "call %lu, %s: '%s'",
		      (unsigned long)n, name, text);
}

// The call fails, and what then is as it should be.  1: the run failed.
static unsigned fail_call(int config, int mode, uint64_t n)
{
	int64_t got[CUDA_TALK];
	struct sim_run r;
	bool opened;
	int32_t rc;

	fake.do_reset();
	fake.do_seed(FAKE_LATE);
	cuda_config(&r, config);
	if (modes[mode].stays)
		fake.do_fail_on(n, modes[mode].code);
	else
		fake.do_fail(n, modes[mode].code);
	rc = sim_open(&r, CUDA_MODEL);
	opened = !rc;
	if (!rc)
		rc = cuda_talk(&r, got);
	if (rc)
		check_error(&r, n, modes[mode].stays);
	else
		ck_assert_mem_eq(got, want, sizeof(want));
	// the session goes on when the device does
	if (rc && opened && !modes[mode].stays && modes[mode].code == OOM) {
		rc = genai_session_rewind(r.session, 0, &r.err);
		ck_assert_msg(!rc, "call %lu: rewind: %s", (unsigned long)n,
			      r.err.text);
		rc = cuda_talk(&r, got);
		ck_assert_msg(!rc, "call %lu: again: %s", (unsigned long)n,
			      r.err.text);
		ck_assert_mem_eq(got, want, sizeof(want));
		rc = 1;
	}
	sim_close(&r);
	ck_assert_msg(!strstr(r.log, "not given back"), "call %lu: %s",
		      (unsigned long)n, r.log);
	in_order(modes[mode].name, n);
	if (!getenv("CUDA_FAULTS_ALL") || n % 5 == 0)
		good_run(config, "the next run", n);
	return rc != 0;
}

static uint64_t calls_of(int config)
{
	uint64_t before;

	fake.do_reset();
	before = fake.do_calls();
	good_run(config, "plain", 0);
	return fake.do_calls() - before;
}

START_TEST(every_call_fails)
{
	int config = _i % CUDA_CONFIGS, mode = _i / CUDA_CONFIGS;
	const char *seed = getenv("CUDA_FAULTS_SEED");
	uint64_t n = calls_of(config), step, at;
	unsigned tried = 0, failed = 0;

	step = getenv("CUDA_FAULTS_ALL") ? 1 : n / FEW;
	at = 1 + ((seed ? strtoull(seed, NULL, 10) : 0) + 37u * (unsigned)_i) %
			 step;
	for (; at <= n; at += step, tried++)
		failed += fail_call(config, mode, at);
	printf("# %s %s, %s, %s: %u of %lu calls failed, %u runs with them\n",
	       cuda_configs[config].executor, cuda_configs[config].pager,
	       cuda_configs[config].paged ? "paged" : "resident",
	       modes[mode].name, tried, (unsigned long)n, failed);
	fflush(stdout);
	ck_assert_uint_gt(failed, 0);
}
END_TEST

// A unit of work breaks down while it runs, which a later call tells; nothing
// works from then on until the process is another one.
START_TEST(every_unit_breaks)
{
	const char *seed = getenv("CUDA_FAULTS_SEED");
	uint64_t step = getenv("CUDA_FAULTS_ALL") ? 1 : 61, n;
	int config = _i;

	n = 1 + (seed ? strtoull(seed, NULL, 10) : 0) % step;
	for (;; n += step) {
		int64_t got[CUDA_TALK];
		struct sim_run r;
		int32_t rc;

		fake.do_reset();
		fake.do_seed(FAKE_LATE);
		fake.do_break(n, ILLEGAL);
		cuda_config(&r, config);
		rc = sim_open(&r, CUDA_MODEL);
		if (!rc)
			rc = cuda_talk(&r, got);
		if (!rc) {
			ck_assert_mem_eq(got, want, sizeof(want));
		} else {
			ck_assert_int_eq(rc, GENAI_E_DEVICE);
			ck_assert_msg(strstr(r.err.text, "CUDA_ERROR_700"),
				      "unit %lu: %s", (unsigned long)n,
				      r.err.text);
			// no success is told by what is broken
			if (r.session)
				ck_assert_int_ne(cuda_talk(&r, got), 0);
		}
		sim_close(&r);
		in_order("a unit breaks", n);
		if (!rc)
			break;
	}
	ck_assert_uint_gt(n, step);
	good_run(config, "the next run", n);
}
END_TEST

// The process is at its end and the driver gone: closing says nothing.
START_TEST(driver_gone)
{
	int64_t got[CUDA_TALK];
	struct sim_run r;

	fake.do_reset();
	fake.do_seed(FAKE_LATE);
	cuda_config(&r, _i);
	ck_assert_msg(!sim_open(&r, CUDA_MODEL), "%s", r.err.text);
	ck_assert_msg(!cuda_talk(&r, got), "%s", r.err.text);
	fake.do_fail_on(1, DEINITIALIZED);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
	good_run(_i, "the next run", 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_ep faults");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 3600);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, every_call_fails, 0, MODES * CUDA_CONFIGS);
	tcase_add_loop_test(tc, every_unit_breaks, 0, CUDA_CONFIGS);
	tcase_add_loop_test(tc, driver_gone, 0, CUDA_CONFIGS);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
