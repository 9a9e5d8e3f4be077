// check_cuda_machine.c - machines that are not as hoped: GPUs of every
// capability, old drivers, none, too little memory.  One sentence each, and the
// process goes on.
#include <stdio.h>

#include "tests/cuda/cuda_kit.h"

static int64_t want[CUDA_TALK];

static int32_t run(struct sim_run *r, int64_t ids[CUDA_TALK])
{
	int32_t rc = sim_open(r, CUDA_MODEL);

	if (!rc)
		rc = cuda_talk(r, ids);
	sim_close(r);
	return rc;
}

static void works(struct sim_run *r)
{
	int64_t got[CUDA_TALK];
	int32_t rc = run(r, got);

	ck_assert_msg(!rc, "%s", r->err.text);
	ck_assert_mem_eq(got, want, sizeof(want));
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
}

// One line that holds what it should; nothing is left behind.
static void refused(struct sim_run *r, int32_t code, const char *part)
{
	int64_t got[CUDA_TALK];
	int32_t rc = run(r, got);

	ck_assert_msg(rc == code, "code %d, expected %d: %s", rc, code,
		      r->err.text);
	ck_assert_msg(strstr(r->err.text, part) != NULL, "'%s' lacks '%s'",
		      r->err.text, part);
	ck_assert_ptr_null(strchr(r->err.text, '\n'));
	ck_assert_str_eq(r->log, "");
	ck_assert_uint_eq(fake.do_alive(), 0);
}

// The same process with a machine in order, and without a GPU.
static void goes_on(void)
{
	int64_t got[CUDA_TALK];
	struct sim_run r;

	fake.do_reset();
	cuda_config(&r, 5);
	works(&r);
	sim_init(&r, "eager", "pager_sync");
	ck_assert_msg(!run(&r, got), "%s", r.err.text);
}

static void setup(void)
{
	struct sim_run r;

	fake_load();
	cuda_config(&r, 0);
	ck_assert_msg(!run(&r, want), "%s", r.err.text);
	fake.do_reset();
}

// ---- capabilities ----

// What this build has for a capability: 86 code, -90 PTX, 0 nothing.
static int image_for(int cc)
{
	const char *list = CUDA_ARCHS;
	int code = 0, newest = 0;

	while (*list) {
		int arch = atoi(list);

		if (arch / 10 == cc / 10 && arch <= cc && arch > code)
			code = arch;
		if (arch > newest)
			newest = arch;
		list += strcspn(list, " ");
		list += strspn(list, " ");
	}
	return code ? code : newest <= cc ? -newest : 0;
}

static const int capabilities[] = {50, 70,  75,	 80,  86,  87,	89,
				   90, 100, 103, 120, 121, 130, 200};
#define N_CAPABILITIES 14

START_TEST(capability)
{
	int cc = capabilities[_i], image = image_for(cc);
	uint64_t overlaps = fake.do_overlaps();
	struct sim_run r;
	char text[64];

	fake.do_devices(1, cc / 10, cc % 10);
	cuda_config(&r, 1);
	snprintf(text, sizeof(text), "compute capability %d.%d", cc / 10,
		 cc % 10);
	if (cc < 75 || !image) {
		refused(&r, GENAI_E_NODEVICE, text);
		ck_assert_ptr_nonnull(strstr(
			r.err.text, cc < 75 ? "at least 7.5 is needed"
					    : "they are for " CUDA_ARCHS));
	} else {
		works(&r);
		ck_assert_int_eq(fake.do_image(), image);
		// kernels begin early where the device can, and only there
		ck_assert_int_eq(fake.do_overlaps() > overlaps, cc >= 90);
	}
}
END_TEST

// Shared memory differs: every capability gives the same tokens.
START_TEST(same_tokens)
{
	static const int each[] = {75, 80, 86, 90};
	int cc = each[_i];
	struct sim_run r;

	fake.do_any_image(1);
	fake.do_devices(1, cc / 10, cc % 10);
	cuda_config(&r, 5);
	works(&r);
}
END_TEST

START_TEST(overlap_off)
{
	uint64_t overlaps = fake.do_overlaps();
	struct sim_run r;

	cuda_config(&r, 1);
	sim_set(&r, "module.cuda_ep.overlap=off");
	works(&r);
	ck_assert_uint_eq(fake.do_overlaps(), overlaps);
}
END_TEST

// ---- drivers ----

START_TEST(old_driver)
{
	struct sim_run r;

	fake.do_version(12040);
	cuda_config(&r, 0);
	refused(&r, GENAI_E_NODEVICE, "it is of CUDA 12.4, they need ");
	// PTX for a GPU that the driver knows and this build does not
	fake.do_devices(1, 20, 0);
	refused(&r, GENAI_E_NODEVICE, "it is of CUDA 12.4, they need ");
	goes_on();
}
END_TEST

START_TEST(driver_lacks_a_function)
{
	struct sim_run r;

	cuda_config(&r, 0);
	sim_set(&r, "module.cuda_ep.driver=%s", OLD_DRIVER);
	refused(&r, GENAI_E_NODEVICE,
		"the driver is too old: it is of CUDA 11.4 and has no cu");
	goes_on();
}
END_TEST

START_TEST(no_driver)
{
	struct sim_run r;

	cuda_config(&r, 0);
	sim_set(&r, "module.cuda_ep.driver=/nonexistent/libcuda.so.1");
	refused(&r, GENAI_E_NODEVICE, "the NVIDIA driver is not installed");
	// the system's own, where it has none
	if (!dlopen("libcuda.so.1", RTLD_NOW)) {
		cuda_init(&r, "eager", "pager_sync");
		r.n_sets--;
		refused(&r, GENAI_E_NODEVICE,
			"libcuda.so.1: the NVIDIA driver is not installed: ");
	}
	goes_on();
}
END_TEST

START_TEST(no_device)
{
	struct sim_run r;

	fake.do_devices(0, 9, 0);
	cuda_config(&r, 0);
	refused(&r, GENAI_E_NODEVICE, "cannot start the CUDA driver: cuInit");
	goes_on();
}
END_TEST

START_TEST(no_such_device)
{
	struct sim_run r;

	fake.do_devices(2, 9, 0);
	cuda_config(&r, 0);
	sim_set(&r, "runtime.device=2");
	refused(&r, GENAI_E_NODEVICE,
		"device 2 does not exist: the machine has 2");
	goes_on();
}
END_TEST

// What runs nowhere is found at load.
START_TEST(kernels_do_not_run)
{
	struct sim_run r;

	fake.do_break(1, 715); // illegal instruction
	cuda_config(&r, 0);
	refused(&r, GENAI_E_DEVICE, "fake cannot run kernels");
	goes_on();
}
END_TEST

// ---- memory ----

static const struct {
	const char *executor, *pager;
} limited[] = {{"eager", "pager_sync"}, {"captured", "pager_async"}};

static int32_t with_limit(int i, uint64_t limit, uint64_t context,
			  struct genai_error *err)
{
	int64_t got[CUDA_TALK];
	struct sim_run r;
	int32_t rc;

	cuda_init(&r, limited[i].executor, limited[i].pager);
	sim_set(&r, "runtime.device_limit=%lu", (unsigned long)limit);
	if (context)
		sim_set(&r, "runtime.context=%lu", (unsigned long)context);
	rc = sim_open(&r, CUDA_MODEL);
	if (!rc && genai_session_length(r.session) == 0 &&
	    (!context || context > 8))
		rc = cuda_talk(&r, got);
	else if (!rc)
		memcpy(got, want, sizeof(want));
	*err = r.err;
	sim_close(&r);
	if (!rc)
		ck_assert_mem_eq(got, want, sizeof(want));
	ck_assert_uint_le(fake.do_peak(), limit);
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
	ck_assert_uint_eq(fake.do_alive(), 0);
	return rc;
}

// A limit that is too small says what would do; and that does.
START_TEST(small_limits)
{
	uint64_t limit = FAKE_CONTEXT_BYTES + 4096, advised = 0, raised = 0;
	struct genai_error err;
	uint64_t last = 0;

	for (; with_limit(_i, limit, 0, &err); limit += 100000) {
		const char *text = err.text;
		uint64_t n = 0;

		ck_assert_msg(err.code == GENAI_E_LIMIT, "%lu: %d %s",
			      (unsigned long)limit, err.code, text);
		ck_assert_ptr_null(strchr(text, '\n'));
		ck_assert_msg(strstr(text, "raise device_limit") != NULL, "%s",
			      text);
		ck_assert_msg(strstr(text, "bytes") != NULL, "%s", text);
		text = strstr(text, "context to ");
		if (!text) {
			raised++;
			ck_assert_msg(!last, "%s", err.text);
			continue;
		}
		n = strtoul(text + 11, NULL, 10);
		ck_assert_msg(n >= last, "%s", err.text);
		last = n;
		advised++;
		ck_assert_msg(!with_limit(_i, limit, n, &err),
			      "context %lu under %lu: %s", (unsigned long)n,
			      (unsigned long)limit, err.text);
		// and no more than that
		ck_assert_msg(with_limit(_i, limit, n + 1, &err) ==
				      GENAI_E_LIMIT,
			      "context %lu fits too", (unsigned long)n + 1);
		ck_assert_uint_lt(limit, 32 << 20);
	}
	ck_assert_uint_ge(advised, 6);
	ck_assert_uint_ge(raised, 1);
}
END_TEST

// Whatever part of the weights stays on the device.
START_TEST(budgets)
{
	static const char *const each[] = {"0",	  "1B",	  "10%",
					   "50%", "100%", "auto"};
	int64_t got[CUDA_TALK];
	struct sim_run r;

	fake.do_seed(FAKE_LATE);
	cuda_init(&r, "captured", _i % 2 ? "pager_async" : "pager_sync");
	sim_set(&r, "runtime.weight_budget=%s", each[_i / 2]);
	sim_set(&r, "module.pager_%s.page_bytes=4KiB",
		_i % 2 ? "async" : "sync");
	ck_assert_msg(!run(&r, got), "%s", r.err.text);
	ck_assert_mem_eq(got, want, sizeof(want));
	ck_assert_msg(!fake.do_races(), "%s", fake.do_race());
}
END_TEST

// A link that crawls changes nothing but the time.
START_TEST(slow_copies)
{
	struct sim_run r;

	fake.do_seed(FAKE_LATE);
	fake.do_copy_ns(300000);
	cuda_config(&r, 4 + _i);
	works(&r);
}
END_TEST

START_TEST(memory_runs_out)
{
	struct genai_error err;
	uint64_t bytes = FAKE_CONTEXT_BYTES;
	int32_t rc = -1;

	// no limit is set, yet the GPU has only so much
	for (int n = 0; rc; n++, bytes += 100000) {
		fake.do_total_bytes(bytes);
		rc = with_limit(_i, UINT64_MAX, 0, &err);
		if (!rc)
			break;
		ck_assert_msg(rc == GENAI_E_LIMIT, "%s", err.text);
		ck_assert_int_lt(n, 100);
	}
	goes_on();
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("cuda_ep machines");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 600);
	tcase_add_checked_fixture(tc, setup, NULL);
	tcase_add_loop_test(tc, capability, 0, N_CAPABILITIES);
	tcase_add_loop_test(tc, same_tokens, 0, 4);
	tcase_add_test(tc, overlap_off);
	tcase_add_test(tc, old_driver);
	tcase_add_test(tc, driver_lacks_a_function);
	tcase_add_test(tc, no_driver);
	tcase_add_test(tc, no_device);
	tcase_add_test(tc, no_such_device);
	tcase_add_test(tc, kernels_do_not_run);
	tcase_add_loop_test(tc, small_limits, 0, 2);
	tcase_add_loop_test(tc, budgets, 0, 12);
	tcase_add_loop_test(tc, slow_copies, 0, 2);
	tcase_add_loop_test(tc, memory_runs_out, 0, 2);
	suite_add_tcase(s, tc);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
