// check_doors.c - R4: the token leaves by its own door.
// Built twice: with the session as it is, and with one that has a single slot
// for its tokens (-DSLOTS=1), which must be found out.
#include "tests/unit/harness.h"
#include "tests/unit/sim_run.h"

static const char *const schedules[] = {"inorder", "early", "late", "random:5"};

static void tokens(const char *schedule, int32_t ahead, int64_t ids[24])
{
	static const int64_t prompt[] = {1, 5, 9, 33, 7};
	struct sim_run r;
	int32_t rc;

	sim_init(&r, "captured", "pager_async");
	sim_set(&r, "module.cpu_ref.schedule=%s", schedule);
	rc = sim_open(&r, "qwen3-cpu-int4");
	if (!rc)
		rc = genai_session_append(r.session, prompt, 5, &r.err);
	if (!rc)
		rc = sim_next(&r, ids, 24, ahead);
	ck_assert_msg(!rc, "%s", r.err.text);
	sim_close(&r);
}

START_TEST(running_ahead)
{
	int64_t want[24], got[24];

	tokens("inorder", 0, want);
	tokens(schedules[_i], 1, got);
#ifdef SLOTS
	ck_assert_mem_ne(want, got, sizeof(want));
#else
	ck_assert_mem_eq(want, got, sizeof(want));
#endif
}
END_TEST

int main(void)
{
	Suite *s = suite_create("doors");
	TCase *t = tcase_create("all");

	tcase_add_loop_test(t, running_ahead, 0, 4);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
