// check_rope.c - rotary tables that change with the length: wherever a sequence
// crosses it, the tokens are those of the whole sequence in one piece, which
// golden_models compares with recorded ones.
#include "tests/unit/session_kit.h"

#define LIMIT 32
#define MOST 128

static struct {
	struct genai_runtime *rt;
	struct genai_model *m;
	struct genai_session *s, *whole;
	int64_t ids[MOST];
	size_t n;
} k;

static const char *const executors[] = {"eager", "captured"};

// type: whose lengths are not known, or one whose first is 4096.
static void open_as(const char *type, const char *executor, const char *more)
{
	char text[64];

	snprintf(text, sizeof(text), "\"type\": \"%s\"", type);
	copy_model(MODEL("phi3-longrope-cpu-int4"));
	edit_copy("genai_config.json", "\"type\": \"phi3\"", text);
	memset(&k, 0, sizeof(k));
	k.rt = runtime(executor, "pager_async", "50%", more);
	k.m = model(k.rt, copied, 0);
	k.s = session(k.m);
	k.whole = session(k.m);
}

static void close_all(void)
{
	genai_session_close(k.s);
	genai_session_close(k.whole);
	genai_model_close(k.m);
	genai_close(k.rt);
	drop_copy();
	ck_assert_msg(!logged.n, "%s", logged.lines[0]);
}

static int64_t expected(void)
{
	rewind_to(k.whole, 0);
	append(k.whole, k.ids, k.n);
	return next(k.whole, 0);
}

static void say(size_t n)
{
	k.n = genai_session_length(k.s);
	for (size_t i = 0; i < n; i++)
		k.ids[k.n + i] = (int64_t)((k.n + i) * 37 + i * i) % 480;
	append(k.s, k.ids + k.n, n);
	k.n += n;
}

static void take(int n, int32_t ahead)
{
	while (n--) {
		int64_t want = expected();

		k.ids[k.n] = next(k.s, ahead);
		ck_assert_int_eq(k.ids[k.n], want);
		k.n++;
	}
}

static void back_to(size_t n)
{
	rewind_to(k.s, n);
	k.n = n;
}

START_TEST(crossed_by_one)
{
	open_as("llama", executors[_i % 2],
		_i < 4 ? NULL : "runtime.check=order");
	ck_assert(k.m->step.turns_again);
	ck_assert_int_eq(k.m->step.turn_limit, LIMIT);
	ck_assert_int_eq(k.m->step.rope_rows, 256);
	say(LIMIT - 4);
	take(10, _i / 2 % 2);
	say(3);
	take(5, _i / 2 % 2);
	close_all();
}
END_TEST

// In a chunk, at its border, and back again.
START_TEST(crossed_by_many)
{
	static const size_t first[] = {1, 20, LIMIT - 1, LIMIT, LIMIT + 1};
	static const size_t second[] = {1, 2, 15, 40};

	open_as("llama", executors[_i], NULL);
	for (size_t i = 0; i < 20; i++) {
		back_to(0);
		say(first[i % 5]);
		say(second[i / 5]);
		take(3, 1);
		back_to(k.n / 3 + 1);
		say(2);
		take(3, 0);
		back_to(first[i % 5] / 2);
		say(30);
		take(2, 1);
	}
	close_all();
}
END_TEST

// Whatever fails on the way, the next attempt has the right tables.
START_TEST(failures)
{
	struct genai_error err = GENAI_ERROR_INIT;
	bool failed = true;
	int64_t id;

	for (int64_t n = 0; failed; n += 1 + n / 3) {
		open_as("llama", executors[_i], NULL);
		say(LIMIT - 4);
		take(3, 0); // recorded
		break_launch(k.rt, n);
		failed = false;
		for (int i = 0; !failed && i < 4; i++)
			failed = genai_session_next(k.s, 0, &id, &err) != 0;
		if (failed)
			ck_assert_int_eq(err.code, GENAI_E_DEVICE);
		fault.countdown = -1;
		k.n = genai_session_length(k.s);
		for (size_t i = LIMIT - 4; i < k.n; i++)
			k.ids[i] = 0;
		back_to(LIMIT - 4);
		say(n % 2 ? 1 : 10); // with the tables of before, or the others
		take(6, 1);
		close_all();
		ck_assert_int_lt(n, 20000);
	}
}
END_TEST

// As onnxruntime-genai does below the length it knows: what is cached stays.
START_TEST(known_lengths)
{
	open_as("phi3", "eager", NULL);
	ck_assert(!k.m->step.turns_again);
	say(LIMIT - 1);
	take(2, 1);
	k.ids[k.n] = next(k.s, 0);
	ck_assert_uint_eq(genai_session_length(k.s), LIMIT + 1);
	close_all();
}
END_TEST

int main(void)
{
	Suite *s = suite_create("rope");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 60);
	tcase_add_loop_test(tc, crossed_by_one, 0, 6);
	tcase_add_loop_test(tc, crossed_by_many, 0, 2);
	tcase_add_loop_test(tc, failures, 0, 2);
	tcase_add_test(tc, known_lengths);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
