// check_cuda_order.c - every byte that cuda_ep's kernels and copies touch is
// ordered, whatever the schedule; and every edge that it makes is needed: with
// a driver that leaves one out, the run goes wrong.
//
// CUDA_ORDER_ALL=1 leaves out every edge of every configuration, one at a time;
// without it some of each kind.  CUDA_ORDER_SEEDS=N: so many schedules.
#include <stdio.h>

#include "tests/cuda/cuda_kit.h"

#define OK(call)                                                               \
	do {                                                                   \
		int32_t rc_ = (call);                                          \
		ck_assert_msg(!rc_, "%s: %d %s", #call, rc_, r.err.text);      \
	} while (0)

static int64_t want[CUDA_TALK];

// A life; 0, or what went wrong in err.
static int32_t talk(int config, const char *model, int64_t ids[CUDA_TALK],
		    struct genai_error *err)
{
	struct sim_run r;
	int32_t rc;

	cuda_config(&r, config);
	rc = sim_open(&r, model);
	if (!rc)
		rc = cuda_talk(&r, ids);
	*err = r.err;
	sim_close(&r);
	return rc;
}

static void no_races(void)
{
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
}

static void setup(void)
{
	struct genai_error err;
	int32_t rc;

	fake_load();
	rc = talk(0, CUDA_MODEL, want, &err);
	ck_assert_msg(!rc, "%s", err.text);
	fake.do_reset();
}

static const uint64_t seeds[] = {0, FAKE_LATE};

static uint64_t seed_of(int i)
{
	return i < 2 ? seeds[i] : (uint64_t)i;
}

START_TEST(same_tokens)
{
	int64_t got[CUDA_TALK];
	struct genai_error err;
	int32_t rc;

	fake.do_seed(seed_of(_i / CUDA_CONFIGS));
	rc = talk(_i % CUDA_CONFIGS, CUDA_MODEL, got, &err);
	ck_assert_msg(!rc, "%s", err.text);
	ck_assert_mem_eq(got, want, sizeof(want));
	no_races();
}
END_TEST

START_TEST(every_model)
{
	static const char *const models[] = {
		"llama-cpu-fp32", "llama-cuda-fp16", "mistral-cpu-fp32",
		"phi3-cpu-int4",  "qwen2-cpu-int8",  "qwen3-cpu-int4",
	};
	int64_t plain[CUDA_TALK], got[CUDA_TALK];
	struct genai_error err;
	int32_t rc = talk(0, models[_i], plain, &err);

	ck_assert_msg(!rc, "%s", err.text);
	fake.do_seed(FAKE_LATE);
	rc = talk(5, models[_i], got, &err);
	ck_assert_msg(!rc, "%s", err.text);
	ck_assert_mem_eq(got, plain, sizeof(plain));
	no_races();
}
END_TEST

// Two sequences share the weights, the ring and the compute stream: each steps
// while the other's pages are on their way.
START_TEST(two_sessions)
{
	static const int64_t prompt[] = {1, 5, 9};
	int64_t plain[6], got[2][6];
	struct genai_session *other = NULL;
	struct sim_run r;

	cuda_config(&r, 0);
	OK(sim_open(&r, CUDA_MODEL));
	OK(genai_session_append(r.session, prompt, 3, &r.err));
	OK(sim_next(&r, plain, 6, 0));
	sim_close(&r);
	fake.do_seed(seed_of(_i / 4));
	cuda_config(&r, 2 + _i % 4);
	OK(sim_open(&r, CUDA_MODEL));
	OK(genai_session_open(r.model, &other, &r.err));
	OK(genai_session_append(r.session, prompt, 3, &r.err));
	for (int i = 0; i < 6; i++) {
		OK(genai_session_next(r.session, 0, &got[0][i], &r.err));
		// the other one begins when the first has been recorded
		if (i == 3)
			OK(genai_session_append(other, prompt, 3, &r.err));
		if (i >= 3)
			OK(genai_session_next(other, 0, &got[1][i - 3],
					      &r.err));
	}
	ck_assert_mem_eq(plain, got[0], sizeof(plain));
	ck_assert_mem_eq(plain, got[1], 3 * sizeof(plain[0]));
	genai_session_close(other);
	sim_close(&r);
	no_races();
}
END_TEST

// ---- edges left out ----

// Edges of a kind that order nothing which ever meets.  One wait: the first
// copy of the ring waits for the steps before, and there are none.  Three
// answers, and the records behind them: the host waits for a length or a prompt
// to have arrived only in order to tell of its failure at once.  A fourth: the
// pager ends its stream, which asks again, before it gives back the ring.
static const struct {
	const char *name;
	unsigned silent;
} edges[FAKE_EDGES] = {{"wait", 1}, {"record", 3}, {"answer", 4}};

struct tally {
	unsigned tried, raced, failed, wrong, redundant, silent;
};

static void drop(int config, int edge, uint64_t n, struct tally *t)
{
	int64_t got[CUDA_TALK];
	struct genai_error err;
	int32_t rc;

	fake.do_reset();
	fake.do_seed(FAKE_LATE);
	fake.do_drop(edge, n);
	rc = talk(config, CUDA_MODEL, got, &err);
	t->tried++;
	if (fake.do_races())
		t->raced++;
	else if (rc)
		t->failed++;
	else if (memcmp(got, want, sizeof(want)))
		t->wrong++;
	else if (fake.do_was_redundant())
		t->redundant++;
	else
		t->silent++;
}

START_TEST(edges_are_needed)
{
	int config = _i % CUDA_CONFIGS, edge = _i / CUDA_CONFIGS;
	struct tally t = {0};
	struct genai_error err;
	int64_t got[CUDA_TALK];
	uint64_t n, step;

	fake.do_seed(FAKE_LATE);
	fake.do_drop(edge, 0);
	ck_assert_int_eq(talk(config, CUDA_MODEL, got, &err), 0);
	n = fake.do_edges(edge);
	step = getenv("CUDA_ORDER_ALL") ? 1 : n / 4 + 1;
	for (uint64_t i = 1 + (uint64_t)_i % step; i <= n; i += step)
		drop(config, edge, i, &t);
	printf("# %s %s, %s: %lu of %lu %ss left out: %u races, %u failed, %u "
	       "other tokens, %u redundant, %u silent\n",
	       cuda_configs[config].executor, cuda_configs[config].pager,
	       cuda_configs[config].paged ? "paged" : "resident",
	       (unsigned long)t.tried, (unsigned long)n, edges[edge].name,
	       t.raced, t.failed, t.wrong, t.redundant, t.silent);
	fflush(stdout);
	ck_assert_uint_le(t.silent, edges[edge].silent);
	// nothing waits for an event twice; nobody asks for some
	if (edge != FAKE_RECORD)
		ck_assert_uint_eq(t.redundant, 0);
	if (edge == FAKE_WAIT &&
	    !strcmp(cuda_configs[config].pager, "pager_async"))
		ck_assert_uint_gt(n, 40);
}
END_TEST

// check = order compares what the driver's graphs keep with what was asked for:
// nothing is missing in any configuration, and a wait that the driver forgets
// in a recording is named.
static int32_t talk_checked(int config, const char *model,
			    int64_t got[CUDA_TALK], struct genai_error *err)
{
	struct sim_run r;
	int32_t rc;

	cuda_config(&r, config);
	sim_set(&r, "runtime.check=order");
	rc = sim_open(&r, model);
	if (!rc)
		rc = cuda_talk(&r, got);
	*err = r.err;
	sim_close(&r);
	return rc;
}

START_TEST(recordings_keep)
{
	static const char *const models[] = {CUDA_MODEL, "llama-cuda-fp16",
					     "phi3-cpu-int4"};
	int64_t plain[CUDA_TALK], got[CUDA_TALK];
	struct genai_error err;
	int32_t rc = talk(0, models[_i / 3], plain, &err);

	ck_assert_msg(!rc, "%s", err.text);
	fake.do_seed(FAKE_LATE);
	rc = talk_checked(1 + 2 * (_i % 3), models[_i / 3], got, &err);
	ck_assert_msg(!rc, "%s", err.text);
	ck_assert_mem_eq(got, plain, sizeof(plain));
	ck_assert_uint_gt(fake.do_count("cuGraphGetEdges_v2"), 0);
	no_races();
}
END_TEST

START_TEST(recordings_lose)
{
	unsigned named = 0, asked = 0;
	struct genai_error err;
	int64_t got[CUDA_TALK];
	uint64_t n;

	fake.do_seed(FAKE_LATE);
	fake.do_drop(FAKE_WAIT, 0);
	ck_assert_int_eq(talk_checked(5, CUDA_MODEL, got, &err), 0);
	n = fake.do_edges(FAKE_WAIT);
	ck_assert_uint_gt(n, 40);
	for (uint64_t i = 2; i <= n; i += n / 24 + 1, asked++) {
		fake.do_reset();
		fake.do_seed(FAKE_LATE);
		fake.do_drop(FAKE_WAIT, i);
		named += talk_checked(5, CUDA_MODEL, got, &err) ==
				 GENAI_E_ORDER &&
			 strstr(err.text, "does not keep a wait");
	}
	printf("# %u of %u waits left out are named before a replay\n", named,
	       asked);
	ck_assert_uint_ge(named, 3);
}
END_TEST

// Pagers with one wait taken out, as in tests/unit/check_rules.c: the copies do
// not wait for whoever used the slot, at the beginning or later; the kernels do
// not wait for the copy.
START_TEST(faulty_pagers)
{
	static const char *const faults[] = {"slot-unawaited",
					     "no-wait-release", "ready-never"};
	int64_t got[CUDA_TALK];
	struct sim_run r;

	fake.do_seed(FAKE_LATE);
	cuda_init(&r, _i % 2 ? "captured" : "eager", "mutant_pager");
	cuda_paged(&r, "mutant_pager");
	sim_set(&r, "module.mutant_pager.path=" GENAI_TESTMUTANTS
		    "/mutant_pager.so");
	sim_set(&r, "module.mutant_pager.mutant=%s", faults[_i / 2]);
	if (!sim_open(&r, CUDA_MODEL))
		(void)cuda_talk(&r, got);
	sim_close(&r);
	ck_assert_uint_gt(fake.do_races(), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_ep order");
	TCase *tc = tcase_create("all");
	const char *more = getenv("CUDA_ORDER_SEEDS");
	int n = more ? atoi(more) : 3;

	tcase_set_timeout(tc, 3600);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, same_tokens, 0, n * CUDA_CONFIGS);
	tcase_add_loop_test(tc, every_model, 0, 6);
	tcase_add_loop_test(tc, two_sessions, 0, n * 4);
	tcase_add_loop_test(tc, edges_are_needed, 0, FAKE_EDGES * CUDA_CONFIGS);
	tcase_add_loop_test(tc, recordings_keep, 0, 9);
	tcase_add_test(tc, recordings_lose);
	tcase_add_loop_test(tc, faulty_pagers, 0, 6);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
