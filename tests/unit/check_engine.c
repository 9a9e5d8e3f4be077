// check_engine.c - many requests at once: each gets the tokens that it gets
// alone.
#include <genai/engine.h>
#include <poll.h>

#include "tests/unit/engine_kit.h"

// ---- one request ----

START_TEST(one)
{
	struct engine_run r;
	struct want w;

	engine_open_on(&r, "eager", "pager_sync", "llama-cpu-fp32", NULL);
	w = template_of(0);
	ck_assert_uint_eq(submit(&r, &w, NULL), 1);
	wait_all(&r);
	check_tokens(&r, 1, 0, &w, GENAI_FINISH_LENGTH);
	engine_close(&r);
}
END_TEST

static const char *const models[] = {"llama-cpu-fp32",	"llama-cpu-int4-asym",
				     "llama-cuda-fp16", "mistral-cpu-fp32",
				     "phi3-cpu-int4",	"qwen2-cpu-int8",
				     "qwen3-cpu-int4"};

// All templates at once, on every model and both executors.
START_TEST(many)
{
	struct engine_run r;
	uint64_t id[TEMPLATES];

	engine_open_on(&r, _i & 1 ? "captured" : "eager",
		       _i & 2 ? "pager_async" : "pager_sync", models[_i / 2],
		       NULL);
	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		id[i] = submit(&r, &w, NULL);
	}
	wait_all(&r);
	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		check_tokens(&r, id[i], 0, &w, GENAI_FINISH_LENGTH);
	}
	if (_i & 1) { // the steps of few rows were recorded, and replayed
		struct genai_stats st = {.size = sizeof(st)};

		ck_assert(!genai_engine_get_model_stats(r.e, &st, NULL));
		ck_assert_uint_gt(st.replays, 0);
		ck_assert_uint_le(st.captures, 5);
		ck_assert_uint_eq(st.n_fallbacks, 0);
	}
	engine_close(&r);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, one);
	tcase_add_loop_test(tc, many, 0, 14);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
