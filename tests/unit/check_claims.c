// check_claims.c - a module that came up and then says or gives what cannot be:
// refused by its name, whatever is open is taken down, and the process goes on.
// The modules are those of tests/mutants, one fault at a time.
#include "tests/unit/harness.h"
#include "tests/unit/sim_run.h"

static const struct {
	const char *mutant, *pager;
	int32_t code;
	const char *text; // part of the message
} claims[] = {
	{"caps-kind", "none", GENAI_E_MODULE,
	 "module mutant_device: device kind or name is not a string"},
	{"caps-no-kind", "none", GENAI_E_MODULE,
	 "module mutant_device: device kind or name is not a string"},
	{"caps-alignment", "none", GENAI_E_MODULE,
	 "module mutant_device: alignment 48 or granule "},
	{"caps-granule", "none", GENAI_E_MODULE,
	 " or granule 0 is not a power of two"},
	{"caps-functions", "none", GENAI_E_MODULE,
	 "module mutant_device claims a capability (0x"},
	{"exec-kind", "none", GENAI_E_MODULE,
	 "module mutant_device: device kind is not a string"},
	{"exec-other", "none", GENAI_E_CONFIG,
	 "needs a device of kind 'Sim', but stream = mutant_device drives one "
	 "of kind 'sim'"},
	{"create-nothing", "none", GENAI_E_MODULE,
	 "create of stream compute gave nothing"},
	{"alloc-less", "none", GENAI_E_MODULE, " bytes gave "},
	{"plan-nothing", "none", GENAI_E_MODULE,
	 "module mutant_device: plan_create gave no plan"},
	{"visits-wild", "none", GENAI_E_MODULE,
	 "module mutant_device: visit 0 is not sound"},
	{"visits-swapped", "none", GENAI_E_MODULE, " is out of order"},
	{"none", "open-nothing", GENAI_E_MODULE,
	 "module mutant_pager: open gave no pager"},
	{"none", "plan-times", GENAI_E_MODULE,
	 "module mutant_pager planned a step of 0 ns"},
	{"none", "budget-over", GENAI_E_MODULE, "module mutant_pager holds "},
};
#define N_CLAIMS (int)(sizeof(claims) / sizeof(claims[0]))

static int32_t try(struct sim_run *r, const char *mutant, const char *pager)
{
	memset(r, 0, sizeof(*r));
	r->err = (struct genai_error)GENAI_ERROR_INIT;
	sim_set(r, "module.mutant_device.path=" GENAI_TESTMUTANTS
		   "/mutant_device.so");
	sim_set(r,
		"module.mutant_device.real=" GENAI_TESTMODULES "/cpu_ref.so");
	sim_set(r, "module.mutant_device.mutant=%s", mutant);
	sim_set(r, "module.mutant_pager.path=" GENAI_TESTMUTANTS
		   "/mutant_pager.so");
	sim_set(r, "module.mutant_pager.mutant=%s", pager);
	sim_set(r, "runtime.executor=mutant_device:eager");
	sim_set(r, "runtime.stream=mutant_device");
	sim_set(r, "runtime.barrier=mutant_device");
	sim_set(r, "runtime.pager=mutant_pager");
	sim_set(r, "runtime.weight_budget=20%%");
	return sim_open(r, "qwen3-cpu-int4");
}

START_TEST(refused)
{
	const char *text = claims[_i].text;
	struct sim_run r;
	int32_t rc = try(&r, claims[_i].mutant, claims[_i].pager);

	ck_assert_msg(rc == claims[_i].code, "%d: %s", rc, r.err.text);
	ck_assert_int_eq(r.err.code, rc);
	ck_assert_msg(strstr(r.err.text, text) != NULL, "'%s' lacks '%s'",
		      r.err.text, text);
	ck_assert_ptr_null(strchr(r.err.text, '\n'));
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
	rc = try(&r, "none", "none");
	ck_assert_msg(!rc, "%s", r.err.text);
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

// Both schedules: with threads it used to hang.
START_TEST(two_devices)
{
	static const char *const schedules[] = {"inorder", "threads"};
	struct sim_run r;
	int32_t rc;

	memset(&r, 0, sizeof(r));
	r.err = (struct genai_error)GENAI_ERROR_INIT;
	sim_set(&r, "module.mutant_device.path=" GENAI_TESTMUTANTS
		    "/mutant_device.so");
	sim_set(&r,
		"module.mutant_device.real=" GENAI_TESTMODULES "/cpu_ref.so");
	sim_set(&r, "module.cpu_ref.schedule=%s", schedules[_i]);
	sim_set(&r, "runtime.module_path=" GENAI_TESTMODULES);
	sim_set(&r, "runtime.executor=cpu_ref:eager");
	sim_set(&r, "runtime.stream=cpu_ref");
	sim_set(&r, "runtime.barrier=mutant_device");
	rc = sim_open(&r, "qwen3-cpu-int4");
	ck_assert_msg(rc == GENAI_E_CONFIG, "%d: %s", rc, r.err.text);
	ck_assert_str_eq(r.err.text,
			 "stream = cpu_ref and barrier = mutant_device: the "
			 "barrier has to be of the module that drives the "
			 "device");
	sim_close(&r);
	ck_assert_str_eq(r.log, "");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("claims");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, refused, 0, N_CLAIMS);
	tcase_add_loop_test(t, two_devices, 0, 2);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
