// check_minor.c - the core's side of structs that are exchanged by their size:
// applications and modules of an earlier or later minor (docs/ABI.md).
#include "tests/unit/session_kit.h"

static struct genai_error err = GENAI_ERROR_INIT;
static struct genai_runtime *rt;
static struct genai_model *m;

static void setup(void)
{
	rt = runtime("eager", "pager_sync", "auto", NULL);
	m = model(rt, MODEL("llama-cpu-fp32"), 0);
}

static void teardown(void)
{
	genai_model_close(m);
	genai_close(rt);
}

// ---- options ----

static struct {
	struct genai_runtime_options o;
	uint64_t later[4];
} later_runtime;
static struct {
	struct genai_model_options o;
	uint64_t later[4];
} later_model;

static int32_t try_open(uint32_t size, uint64_t beyond)
{
	const char *none = "runtime.check=no such check";
	struct genai_runtime *no = NULL;

	memset(&later_runtime, 0, sizeof(later_runtime));
	later_runtime.o.size = size;
	later_runtime.o.sets = &none; // so that nothing is ever opened
	later_runtime.o.n_sets = 1;
	later_runtime.later[2] = beyond;
	return genai_open(&later_runtime.o, &no, &err);
}

START_TEST(runtime_options)
{
	ck_assert_int_eq(try_open(sizeof(later_runtime.o), 0), GENAI_E_CONFIG);
	ck_assert_int_eq(try_open(sizeof(later_runtime.o), 1), GENAI_E_CONFIG);
	ck_assert_int_eq(try_open(sizeof(later_runtime), 0), GENAI_E_CONFIG);
	ck_assert_int_eq(try_open(sizeof(later_runtime), 1), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "runtime options: size 80, flags 0");
	ck_assert_int_eq(try_open(sizeof(later_runtime.o) - 8, 0),
			 GENAI_E_INVAL);
	ck_assert_int_eq(try_open(0, 0), GENAI_E_INVAL);
	ck_assert_int_eq(try_open(1u << 31, 0), GENAI_E_INVAL);
}
END_TEST

static int32_t try_model(uint32_t size, uint64_t beyond)
{
	struct genai_model *no = NULL;

	memset(&later_model, 0, sizeof(later_model));
	later_model.o.size = size;
	later_model.later[0] = beyond;
	return genai_model_open(rt, "/nonexistent", &later_model.o, &no, &err);
}

START_TEST(model_options)
{
	ck_assert_int_eq(try_model(sizeof(later_model.o), 0), GENAI_E_NOTFOUND);
	ck_assert_int_eq(try_model(sizeof(later_model.o), 1), GENAI_E_NOTFOUND);
	ck_assert_int_eq(try_model(sizeof(later_model), 0), GENAI_E_NOTFOUND);
	ck_assert_int_eq(try_model(sizeof(later_model), 1), GENAI_E_INVAL);
	ck_assert_str_eq(err.text, "model options: size 56, flags 0");
	ck_assert_int_eq(try_model(sizeof(later_model.o) - 8, 0),
			 GENAI_E_INVAL);
	ck_assert_int_eq(try_model(0, 0), GENAI_E_INVAL);
}
END_TEST

// ---- results ----

#define ROOM 2048

// As far as both know it, and no byte more.
static void any_size(int32_t (*ask)(void *out), uint32_t own)
{
	const uint32_t sizes[] = {8, own - 8, own, own + 8, ROOM};
	// allocated: of no type but what the call writes
	uint32_t *all = malloc(ROOM), *some = malloc(ROOM);
	const unsigned char *p = (const unsigned char *)some;

	*all = own;
	ck_assert_int_eq(ask(all), 0);
	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		uint32_t n = sizes[i] < own ? sizes[i] : own;

		memset(some, 0xa5, ROOM);
		*some = sizes[i];
		ck_assert_int_eq(ask(some), 0);
		ck_assert_uint_eq(*some, n);
		ck_assert_mem_eq(some + 1, all + 1, 4);
		for (uint32_t k = n; k < ROOM; k++)
			ck_assert_msg(p[k] == 0xa5, "byte %u of %u", k, n);
	}
	*some = 0;
	ck_assert_int_eq(ask(some), GENAI_E_INVAL);
	free(all);
	free(some);
}

static int32_t ask_info(void *out)
{
	return genai_model_get_info(m, out);
}

static int32_t ask_stats(void *out)
{
	return genai_model_get_stats(m, out, &err);
}

static int32_t ask_caps(void *out)
{
	return rt->device.stream.ops->caps(rt->device.stream.self, out, &err);
}

START_TEST(results)
{
	any_size(ask_info, sizeof(struct genai_model_info));
	any_size(ask_stats, sizeof(struct genai_stats));
	ck_assert_str_eq(err.text, "stats of 0 bytes: set the size first");
	any_size(ask_caps, sizeof(struct genai_stream_caps));
	ck_assert_str_eq(err.text,
			 "stream caps of 0 bytes: set the size first");
}
END_TEST

int main(void)
{
	Suite *s = suite_create("minor");
	TCase *t = tcase_create("minor");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, runtime_options);
	tcase_add_test(t, model_options);
	tcase_add_test(t, results);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
