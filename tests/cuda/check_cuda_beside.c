// check_cuda_beside.c - rows that cores of the host multiply while the link
// brings others: the same tokens wherever rows are, a budget untouched, and an
// error that says so if the threads do not answer.
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <time.h>

#include "core/modelgen/modelgen.h"
#include "core/runtime.h"
#include "tests/cuda/cuda_kit.h"

static char folder[64], model[96];

static void setup(void)
{
	fake_load();
	fake.do_seed(FAKE_LATE);
}

// Both rates so low that asking and copying count for nothing.
static void beside(struct sim_run *r, uint32_t threads, const char *patience)
{
	sim_set(r, "module.cuda_ep.host_threads=%u", threads);
	sim_set(r, "module.cuda_ep.link_bytes_per_s=1000000");
	sim_set(r, "module.cuda_ep.host_bytes_per_s=1000000");
	sim_set(r, "module.cuda_ep.host_patience_ms=%s", patience);
}

static void talk(const char *executor, const char *pager, uint32_t threads,
		 bool paged, bool check, int64_t got[CUDA_TALK],
		 struct genai_stats *st)
{
	struct sim_run r;

	cuda_init(&r, executor, pager);
	if (paged)
		cuda_paged(&r, pager);
	if (check)
		sim_set(&r, "runtime.check=order");
	beside(&r, threads, "60000");
	ck_assert_msg(!sim_open_at(&r, model), "%s", r.err.text);
	ck_assert_msg(!cuda_talk(&r, got), "%s, %s: %s", executor, pager,
		      r.err.text);
	*st = sim_stats(&r);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
}

START_TEST(same_tokens)
{
	const char *pager = _i & 1 ? "pager_async" : "pager_sync";
	const char *executor = _i & 2 ? "captured" : "eager";
	int64_t want[CUDA_TALK], got[CUDA_TALK];
	struct genai_stats st;

	talk("eager", "pager_sync", 1, false, false, want, &st);
	ck_assert_uint_eq(st.beside_bytes_per_token, 0);
	ck_assert_uint_eq(fake.do_launches("cep_ask_f16"), 0);
	for (uint32_t threads = 1; threads <= 2; threads++) {
		uint64_t asked = fake.do_launches("cep_ask_f16");

		talk(executor, pager, threads, true, threads == 2, got, &st);
		ck_assert_mem_eq(got, want, sizeof(want));
		ck_assert_uint_gt(st.beside_bytes_per_token, 0);
		ck_assert_uint_le(st.pinned_bytes + st.ring_bytes,
				  st.weight_budget_bytes);
		ck_assert_uint_gt(fake.do_launches("cep_ask_f16"), asked);
		ck_assert_int_eq(st.captures > 0, _i > 1);
		ck_assert_uint_eq(st.n_fallbacks, 0);
	}
}
END_TEST

// Without threads no page is left to the host, and none is asked.
START_TEST(off)
{
	int64_t got[CUDA_TALK];
	struct genai_stats st;

	talk("captured", "pager_async", 0, true, false, got, &st);
	ck_assert_uint_eq(st.beside_bytes_per_token, 0);
	ck_assert_uint_eq(fake.do_launches("cep_ask_f16") +
				  fake.do_launches("cep_beside_1_f16"),
			  0);
}
END_TEST

// ---- threads that stand still ----

// The module's naps come here, as the executable's functions go before the C
// library's: one of a thread that multiplies lasts as long as it is held.
static atomic_bool hold, held;

int nanosleep(const struct timespec *t, struct timespec *left)
{
	char name[16] = "";

	prctl(PR_GET_NAME, name);
	while (atomic_load(&hold) && strstr(name, "beside")) {
		atomic_store(&held, true);
		sched_yield();
	}
	return clock_nanosleep(CLOCK_MONOTONIC, 0, t, left);
}

START_TEST(no_answer)
{
	int64_t want[CUDA_TALK], got[CUDA_TALK], id;
	struct timespec from, to;
	struct sim_run r;
	int32_t rc = 0;

	cuda_init(&r, _i ? "captured" : "eager", "pager_async");
	cuda_paged(&r, "pager_async");
	beside(&r, 1, "3000");
	ck_assert_msg(!sim_open_at(&r, model), "%s", r.err.text);
	ck_assert_msg(!cuda_talk(&r, want), "%s", r.err.text);
	atomic_store(&hold, true);
	while (!atomic_load(&held))
		sched_yield();
	clock_gettime(CLOCK_MONOTONIC, &from);
	for (int i = 0; i < 3 && !rc; i++)
		rc = sim_next(&r, &id, 1, 1);
	clock_gettime(CLOCK_MONOTONIC, &to);
	ck_assert_int_eq(rc, GENAI_E_DEVICE);
	ck_assert_msg(strstr(r.err.text, "node ") &&
			      strstr(r.err.text,
				     "the host's threads did not multiply "
				     "their rows within 3000 ms"),
		      "%s", r.err.text);
	// one of them waits, and not each that comes after it
	ck_assert_int_lt(to.tv_sec - from.tv_sec, 9);
	// the session goes on when they do
	atomic_store(&hold, false);
	ck_assert_msg(!genai_session_rewind(r.session, 0, &r.err), "%s",
		      r.err.text);
	ck_assert_msg(!cuda_talk(&r, got), "%s", r.err.text);
	ck_assert_mem_eq(got, want, sizeof(want));
	sim_close(&r);
	ck_assert_uint_eq(fake.do_alive(), 0);
}
END_TEST

// The rates are measured where they are not given.
START_TEST(measured)
{
	struct genai_stream_caps c = {.size = sizeof(c)};
	struct sim_run r;

	cuda_init(&r, "eager", "pager_sync");
	sim_set(&r, "module.cuda_ep.host_threads=1");
	ck_assert_msg(!sim_open_at(&r, model), "%s", r.err.text);
	ck_assert_int_eq(r.rt->device.stream.ops->caps(r.rt->device.stream.self,
						       &c, NULL),
			 0);
	ck_assert_uint_gt(c.link_bytes_per_s, 0);
	ck_assert_uint_gt(c.host_bytes_per_s, 0);
	sim_close(&r);
}
END_TEST

START_TEST(bad_keys)
{
	static const struct {
		const char *set, *says;
	} bad[] = {
		{"host_threads=1025", "host_threads: at most 1024"},
		{"host_patience_ms=0", "host_patience_ms: 1 to 3600000"},
		{"host_patience_ms=3600001", "host_patience_ms: 1 to 3600000"},
	};
	struct sim_run r;

	cuda_init(&r, "eager", "pager_sync");
	sim_set(&r, "module.cuda_ep.%s", bad[_i].set);
	ck_assert_int_eq(sim_open_at(&r, model), GENAI_E_CONFIG);
	ck_assert_msg(strstr(r.err.text, bad[_i].says), "%s", r.err.text);
	sim_close(&r);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_beside");
	TCase *t = tcase_create("steps");

	tcase_set_timeout(t, 300);
	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_loop_test(t, same_tokens, 0, 4);
	tcase_add_test(t, off);
	tcase_add_loop_test(t, no_answer, 0, 2);
	tcase_add_test(t, measured);
	tcase_add_loop_test(t, bad_keys, 0, 3);
	suite_add_tcase(s, t);
	return s;
}

// Half precision and four bits, which the folder of models does not have.
static bool make_model(void)
{
	const struct genai_synth_options o = {.seed = 3, .layers = 2};
	struct genai_error err = GENAI_ERROR_INIT;

	snprintf(folder, sizeof(folder), "/tmp/genai-beside-XXXXXX");
	if (!mkdtemp(folder))
		return false;
	snprintf(model, sizeof(model), "%s/tiny-llama", folder);
	if (!genai_synth("tiny-llama", model, &o, &err))
		return true;
	fprintf(stderr, "%s\n", err.text);
	return false;
}

int main(void)
{
	char command[128];
	int status = 99;

	if (make_model())
		status = genai_check_main(suite());
	snprintf(command, sizeof(command), "rm -r '%s'", folder);
	return system(command) ? 99 : status;
}
