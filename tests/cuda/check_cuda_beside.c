// check_cuda_beside.c - rows that cores of the host multiply while the link
// brings others: the same tokens wherever rows are, a budget untouched, and an
// error that says so if the threads do not answer.
#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

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

// Prompts of rows that one pass reads, and of more, which other kernels take:
// what is left to the host is brought to the device for these.
static void prompts(uint32_t threads, bool paged, int64_t got[6])
{
	int64_t ids[80];
	struct sim_run r;

	for (int i = 0; i < 80; i++)
		ids[i] = (i * 37 + 11) % 250;
	cuda_init(&r, "captured", "pager_async");
	if (paged)
		cuda_paged(&r, "pager_async");
	beside(&r, threads, "60000");
	ck_assert_msg(!sim_open_at(&r, model), "%s", r.err.text);
	for (int i = 0; i < 2; i++) {
		uint64_t copies = fake.do_count("cuMemcpyHtoDAsync");
		uint64_t n = i ? 80 : 12;

		ck_assert_msg(!genai_session_append(r.session, ids, n, &r.err),
			      "%s", r.err.text);
		ck_assert_msg(!sim_next(&r, got + 3 * i, 3, 1), "%s",
			      r.err.text);
		copies = fake.do_count("cuMemcpyHtoDAsync") - copies;
		if (paged)
			ck_assert_uint_gt(copies, 0);
	}
	ck_assert_int_eq(sim_stats(&r).beside_bytes_per_token > 0, paged);
	sim_close(&r);
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
}

START_TEST(many_rows)
{
	int64_t want[6], got[6];

	prompts(1, false, want);
	prompts(2, true, got);
	ck_assert_mem_eq(got, want, sizeof(want));
}
END_TEST

// One core, and more threads than it has room for.
START_TEST(one_core)
{
	int64_t want[CUDA_TALK], got[CUDA_TALK];
	struct genai_stats st;
	cpu_set_t one, all;
	int cpu = 0;

	talk("eager", "pager_sync", 1, false, false, want, &st);
	ck_assert_int_eq(sched_getaffinity(0, sizeof(all), &all), 0);
	while (!CPU_ISSET(cpu, &all))
		cpu++;
	CPU_ZERO(&one);
	CPU_SET(cpu, &one);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(one), &one), 0);
	talk("captured", "pager_async", 64, true, false, got, &st);
	ck_assert_int_eq(sched_setaffinity(0, sizeof(all), &all), 0);
	ck_assert_mem_eq(got, want, sizeof(want));
	ck_assert_uint_gt(st.beside_bytes_per_token, 0);
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

// ---- a process that is stopped ----

// Steps until told to stop; what is wrong goes to the exit status.
static int steps_of_a_child(int stop)
{
	int64_t want[CUDA_TALK], got[CUDA_TALK];
	struct sim_run r;
	char byte;

	cuda_init(&r, "captured", "pager_async");
	cuda_paged(&r, "pager_async");
	beside(&r, 1, "200");
	if (sim_open_at(&r, model) || cuda_talk(&r, want))
		return 1;
	while (read(stop, &byte, 1) < 0) {
		int32_t rc = genai_session_rewind(r.session, 0, &r.err);

		if (!rc)
			rc = cuda_talk(&r, got);
		if (rc && (rc != GENAI_E_DEVICE ||
			   !strstr(r.err.text, "within 200 ms")))
			return 2;
		if (!rc && memcmp(got, want, sizeof(want)))
			return 3;
	}
	// it still goes on
	if (genai_session_rewind(r.session, 0, &r.err) ||
	    cuda_talk(&r, got) || memcmp(got, want, sizeof(want)))
		return 4;
	sim_close(&r);
	return 0;
}

// In the middle of whatever it does, for longer than threads may take and for
// less: the right tokens, or an error that says which.
START_TEST(stopped)
{
	int stop[2], status;
	pid_t child;

	ck_assert_int_eq(pipe2(stop, O_NONBLOCK), 0);
	child = fork();
	ck_assert_int_ge(child, 0);
	if (!child)
		_exit(steps_of_a_child(stop[0]));
	for (unsigned int i = 0; i < 6; i++) {
		usleep(150000 + i * 7919);
		ck_assert_int_eq(kill(child, SIGSTOP), 0);
		usleep(i % 2 ? 300000 : 20000);
		ck_assert_int_eq(kill(child, SIGCONT), 0);
	}
	ck_assert_int_eq(write(stop[1], "", 1), 1);
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_msg(WIFEXITED(status) && !WEXITSTATUS(status),
		      "status %#x", (unsigned int)status);
	close(stop[0]);
	close(stop[1]);
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
	ck_assert_uint_gt(c.host_link_bytes_per_s, 0);
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
	tcase_add_test(t, many_rows);
	tcase_add_test(t, one_core);
	tcase_add_test(t, off);
	tcase_add_test(t, stopped);
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
