// check_session.c - sequences: appending, continuing, going back, errors.
#include <math.h>

#include "tests/unit/session_kit.h"

#define VOCAB 512u

static const int64_t prompt[] = {94,  332, 407, 19,  447, 490, 81,  496, 492,
				 88,  350, 264, 499, 349, 81,  17,  285, 264,
				 349, 321, 357, 332, 378, 283, 346, 347, 88,
				 264, 304, 313, 88,  305, 459};
#define N 33u

static float rows[2][N * VOCAB];

static size_t logits(struct genai_session *s, float *out, size_t cap)
{
	struct genai_error err = GENAI_ERROR_INIT;
	size_t n = 0;
	int32_t rc = genai_session_logits(s, out, cap, &n, &err);

	ck_assert_msg(!rc, "%s", err.text);
	return n;
}

static int64_t best_of(const float *row)
{
	int64_t best = 0;

	for (uint32_t i = 1; i < VOCAB; i++)
		if (row[i] > row[best])
			best = i;
	return best;
}

// ---- appending ----

START_TEST(lengths)
{
	struct kit k = kit_plain(0);

	ck_assert_uint_eq(genai_session_length(k.s), 0);
	append(k.s, prompt, 5);
	ck_assert_uint_eq(genai_session_length(k.s), 5);
	append(k.s, prompt + 5, 1);
	ck_assert_uint_eq(genai_session_length(k.s), 6);
	kit_close(&k);
}
END_TEST

// A row does not depend on how many rows come with it.
START_TEST(pieces_give_the_same_bits)
{
	static const size_t sizes[] = {1, 2, 5, 7, 16, 32};
	struct kit k = kit_plain(GENAI_MODEL_ALL_LOGITS);
	size_t n = sizes[_i];

	append(k.s, prompt, N);
	ck_assert_uint_eq(logits(k.s, rows[0], N), N);
	rewind_to(k.s, 0);
	for (size_t at = 0; at < N; at += n) {
		size_t part = N - at < n ? N - at : n;

		append(k.s, prompt + at, part);
		ck_assert_uint_eq(logits(k.s, rows[1] + at * VOCAB, part),
				  part);
	}
	ck_assert_mem_eq(rows[0], rows[1], sizeof(rows[0]));
	kit_close(&k);
}
END_TEST

START_TEST(last_rows_only)
{
	struct kit k = kit_plain(GENAI_MODEL_ALL_LOGITS);

	append(k.s, prompt, N);
	logits(k.s, rows[0], N);
	ck_assert_uint_eq(logits(k.s, rows[1], 2), 2);
	ck_assert_mem_eq(rows[0] + (N - 2) * VOCAB, rows[1],
			 2 * VOCAB * sizeof(float));
	kit_close(&k);
}
END_TEST

// The row that a session without all logits keeps is the last of all.
START_TEST(one_row_is_the_last)
{
	struct kit a = kit_plain(GENAI_MODEL_ALL_LOGITS), b;

	append(a.s, prompt, N);
	logits(a.s, rows[0], N);
	kit_close(&a);
	b = kit_plain(0);
	append(b.s, prompt, N);
	ck_assert_uint_eq(logits(b.s, rows[1], N), 1);
	ck_assert_mem_eq(rows[0] + (N - 1) * VOCAB, rows[1],
			 VOCAB * sizeof(float));
	kit_close(&b);
}
END_TEST

START_TEST(bad_ids)
{
	static const struct {
		int64_t ids[3];
		const char *text;
	} cases[] = {
		{{1, 2, 512}, "token 2 is 512: ids are 0 to 511"},
		{{-1, 2, 3}, "token 0 is -1: ids are 0 to 511"},
		{{1, INT64_MAX, 3}, "token 1 is 9223372036854775807"},
		{{1, 2, INT64_MIN}, "token 2 is -9223372036854775808"},
	};
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);

	append(k.s, prompt, 4);
	fails(genai_session_append(k.s, cases[_i].ids, 3, &err), GENAI_E_INVAL,
	      &err, cases[_i].text);
	ck_assert_uint_eq(genai_session_length(k.s), 4);
	// what was there is untouched: the token of the append still counts
	logits(k.s, rows[0], 1);
	ck_assert_int_eq(next(k.s, 0), best_of(rows[0]));
	kit_close(&k);
}
END_TEST

START_TEST(nothing_to_append)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);

	fails(genai_session_append(k.s, prompt, 0, &err), GENAI_E_INVAL, &err,
	      "no tokens");
	ck_assert_int_eq(genai_session_append(k.s, prompt, 0, NULL),
			 GENAI_E_INVAL);
	kit_close(&k);
}
END_TEST

static struct kit small_context(const char *set)
{
	struct kit k;

	k.rt = runtime("eager", "pager_sync", "auto", set);
	k.m = model(k.rt, MODEL("llama-cpu-fp32"), 0);
	k.s = session(k.m);
	return k;
}

START_TEST(more_than_the_context)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = small_context("runtime.context=16");
	struct genai_model_info i = {.size = sizeof(i)};

	ck_assert_int_eq(genai_model_get_info(k.m, &i), 0);
	ck_assert_uint_eq(i.context, 16);
	ck_assert_uint_eq(i.model_context, 512);
	append(k.s, prompt, 10);
	fails(genai_session_append(k.s, prompt, 7, &err), GENAI_E_LIMIT, &err,
	      "17 positions are more than the context of 16 (10 before, 7 "
	      "appended)");
	ck_assert_uint_eq(genai_session_length(k.s), 10);
	append(k.s, prompt + 10, 6);
	kit_close(&k);
}
END_TEST

START_TEST(full_context)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = small_context("runtime.context=16");
	int64_t id;

	append(k.s, prompt, 16);
	// the last token can be chosen, not computed
	next(k.s, 1);
	ck_assert_uint_eq(genai_session_length(k.s), 16);
	fails(genai_session_next(k.s, 1, &id, &err), GENAI_E_LIMIT, &err,
	      "the context of 16 positions is full");
	kit_close(&k);
}
END_TEST

START_TEST(context_of_one)
{
	struct kit k = small_context("runtime.context=1");

	append(k.s, prompt, 1);
	next(k.s, 1);
	rewind_to(k.s, 0);
	append(k.s, prompt + 1, 1);
	kit_close(&k);
}
END_TEST

START_TEST(chunks_of_the_model)
{
	struct kit k = kit_plain(0);
	struct kit c;

	append(k.s, prompt, N);
	logits(k.s, rows[0], 1);
	kit_close(&k);
	copy_model(MODEL("llama-cpu-fp32"));
	edit_copy("genai_config.json", "\"search\": {",
		  "\"search\": { \"chunk_size\": 4,");
	c.rt = runtime("eager", "pager_sync", "auto", NULL);
	c.m = model(c.rt, copied, 0);
	c.s = session(c.m);
	append(c.s, prompt, N);
	ck_assert_uint_eq(genai_session_length(c.s), N);
	logits(c.s, rows[1], 1);
	ck_assert_mem_eq(rows[0], rows[1], VOCAB * sizeof(float));
	kit_close(&c);
	drop_copy();
}
END_TEST

// ---- continuing ----

START_TEST(next_is_the_best)
{
	struct kit k = kit_plain(0);

	append(k.s, prompt, 7);
	for (int i = 0; i < 12; i++) {
		int64_t id;

		logits(k.s, rows[0], 1);
		id = next(k.s, 0);
		ck_assert_int_eq(id, best_of(rows[0]));
		append(k.s, &id, 1);
	}
	kit_close(&k);
}
END_TEST

START_TEST(ahead_changes_nothing)
{
	int64_t ids[2][64];

	for (int ahead = 0; ahead < 2; ahead++) {
		struct kit k = kit_open(_i ? "captured" : "eager", "pager_sync",
					"auto", 0);

		append(k.s, prompt, 7);
		for (int i = 0; i < 64; i++)
			ids[ahead][i] = next(k.s, ahead);
		kit_close(&k);
	}
	ck_assert_mem_eq(ids[0], ids[1], sizeof(ids[0]));
}
END_TEST

START_TEST(length_with_and_without_ahead)
{
	struct kit k = kit_plain(0);

	append(k.s, prompt, 7);
	next(k.s, 0);
	ck_assert_uint_eq(genai_session_length(k.s), 7);
	next(k.s, 0); // computes the token before
	ck_assert_uint_eq(genai_session_length(k.s), 8);
	next(k.s, 1);
	ck_assert_uint_eq(genai_session_length(k.s), 10);
	next(k.s, 1);
	ck_assert_uint_eq(genai_session_length(k.s), 11);
	kit_close(&k);
}
END_TEST

// Append another token than the one chosen: the choice leaves no trace.
START_TEST(append_instead_of_the_choice)
{
	struct kit k = kit_plain(0);

	append(k.s, prompt, 9);
	logits(k.s, rows[0], 1);
	rewind_to(k.s, 0);
	append(k.s, prompt, 8);
	ck_assert_int_ne(next(k.s, 0), prompt[8]);
	append(k.s, prompt + 8, 1);
	ck_assert_uint_eq(genai_session_length(k.s), 9);
	logits(k.s, rows[1], 1);
	ck_assert_mem_eq(rows[0], rows[1], VOCAB * sizeof(float));
	kit_close(&k);
}
END_TEST

START_TEST(append_after_a_step_ahead)
{
	struct kit k = kit_plain(0);
	int64_t first;

	append(k.s, prompt, 8);
	first = next(k.s, 1); // is appended by the step ahead
	append(k.s, prompt + 8, 1);
	ck_assert_uint_eq(genai_session_length(k.s), 10);
	logits(k.s, rows[0], 1);
	rewind_to(k.s, 8);
	append(k.s, &first, 1);
	append(k.s, prompt + 8, 1);
	logits(k.s, rows[1], 1);
	ck_assert_mem_eq(rows[0], rows[1], VOCAB * sizeof(float));
	kit_close(&k);
}
END_TEST

START_TEST(nothing_to_continue)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);
	int64_t id = 77;
	size_t n = 77;

	fails(genai_session_next(k.s, 0, &id, &err), GENAI_E_STATE, &err,
	      "nothing to continue");
	fails(genai_session_logits(k.s, rows[0], 1, &n, &err), GENAI_E_STATE,
	      &err, "no logits");
	append(k.s, prompt, 5);
	rewind_to(k.s, 3);
	fails(genai_session_next(k.s, 1, &id, &err), GENAI_E_STATE, &err,
	      "nothing to continue");
	fails(genai_session_logits(k.s, rows[0], 1, &n, &err), GENAI_E_STATE,
	      &err, "no logits");
	ck_assert_int_eq(id, 77);
	ck_assert_uint_eq(n, 77);
	kit_close(&k);
}
END_TEST

START_TEST(next_of_all_logits)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(GENAI_MODEL_ALL_LOGITS);
	int64_t id;

	append(k.s, prompt, 5);
	fails(genai_session_next(k.s, 0, &id, &err), GENAI_E_STATE, &err,
	      "all logits");
	kit_close(&k);
}
END_TEST

// ---- going back ----

START_TEST(rewind_and_repeat)
{
	static const uint64_t to[] = {0, 1, 6, 7, 9};
	struct kit k = kit_plain(0);
	int64_t ids[6];

	append(k.s, prompt, 10);
	for (int i = 0; i < 6; i++)
		ids[i] = next(k.s, i % 2);
	rewind_to(k.s, to[_i]);
	ck_assert_uint_eq(genai_session_length(k.s), to[_i]);
	append(k.s, prompt + to[_i], 10 - to[_i]);
	for (int i = 0; i < 6; i++)
		ck_assert_int_eq(next(k.s, i % 3 == 0), ids[i]);
	kit_close(&k);
}
END_TEST

START_TEST(rewind_too_far)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);

	append(k.s, prompt, 5);
	fails(genai_session_rewind(k.s, 6, &err), GENAI_E_INVAL, &err,
	      "cannot rewind to 6 positions: there are 5");
	fails(genai_session_rewind(k.s, UINT64_MAX, &err), GENAI_E_INVAL, &err,
	      "there are 5");
	ck_assert_uint_eq(genai_session_length(k.s), 5);
	kit_close(&k);
}
END_TEST

// A rewind drops a step that ran ahead.
START_TEST(rewind_undoes_ahead)
{
	struct kit k = kit_plain(0);
	int64_t a, b;

	append(k.s, prompt, 7);
	a = next(k.s, 1);
	rewind_to(k.s, 6);
	append(k.s, prompt + 6, 1);
	b = next(k.s, 1);
	ck_assert_int_eq(a, b);
	kit_close(&k);
}
END_TEST

// ---- several sequences ----

static void take(struct genai_model *m, const int64_t *ids, size_t n,
		 int64_t *out, size_t count)
{
	struct genai_session *s = session(m);

	append(s, ids, n);
	for (size_t i = 0; i < count; i++)
		out[i] = next(s, 1);
	genai_session_close(s);
}

static const struct {
	const char *executor, *pager, *budget;
} configs[] = {
	{"eager", "pager_sync", "auto"},    {"eager", "pager_sync", "30%"},
	{"eager", "pager_async", "30%"},    {"captured", "pager_sync", "auto"},
	{"captured", "pager_sync", "30%"},  {"captured", "pager_async", "30%"},
	{"captured", "pager_async", "40%"}, {"eager", "pager_async", "0"},
};
#define N_CONFIGS (sizeof(configs) / sizeof(configs[0]))

// A model whose weights stream at these budgets.
static struct kit kit_config(int i, uint32_t flags)
{
	struct genai_stats st = {.size = sizeof(st)};
	bool streams = configs[i].budget[0] != 'a' && configs[i].budget[1];
	struct kit k;
	char pages[64];

	snprintf(pages, sizeof(pages), "module.%s.page_bytes=4KiB",
		 configs[i].pager);
	k.rt = runtime(configs[i].executor, configs[i].pager, configs[i].budget,
		       pages);
	k.m = model(k.rt, MODEL("qwen2-cpu-int8"), flags);
	k.s = session(k.m);
	ck_assert_int_eq(genai_model_get_stats(k.m, &st, NULL), 0);
	ck_assert_int_eq(st.streamed_bytes_per_token > 0, streams);
	return k;
}

START_TEST(two_sessions_of_one_model)
{
	struct kit k = kit_config(_i, 0);
	struct genai_session *t = session(k.m);
	int64_t want[2][20];

	append(k.s, prompt, 7);
	append(t, prompt + 9, 12);
	for (int i = 0; i < 20; i++) {
		want[0][i] = next(k.s, 1);
		want[1][i] = next(t, i % 3);
	}
	genai_session_close(t);
	genai_session_close(k.s);
	for (int i = 0; i < 2; i++) {
		int64_t got[20];

		take(k.m, prompt + (i ? 9 : 0), i ? 12 : 7, got, 20);
		ck_assert_mem_eq(want[i], got, sizeof(got));
	}
	k.s = NULL;
	kit_close(&k);
}
END_TEST

START_TEST(two_models_of_one_runtime)
{
	struct kit k = kit_plain(0);
	struct genai_model *m = model(k.rt, MODEL("qwen3-cpu-int4"), 0);
	struct genai_session *t = session(m);
	int64_t alone[10], both[10];

	take(k.m, prompt, 7, alone, 10);
	append(k.s, prompt, 7);
	append(t, prompt, 7);
	for (int i = 0; i < 10; i++) {
		both[i] = next(k.s, 1);
		next(t, 1);
	}
	ck_assert_mem_eq(alone, both, sizeof(alone));
	genai_session_close(t);
	genai_model_close(m);
	kit_close(&k);
}
END_TEST

START_TEST(sessions_come_and_go)
{
	struct kit k = kit_config(5, 0);
	int64_t first[4], again[4];

	take(k.m, prompt, 7, first, 4);
	for (int i = 0; i < 10; i++) {
		take(k.m, prompt, 7, again, 4);
		ck_assert_mem_eq(first, again, sizeof(first));
	}
	kit_close(&k);
}
END_TEST

// ---- failures on the device ----

static struct kit damaged(uint32_t flags, float value)
{
	struct kit k;
	char path[300];
	FILE *f;

	copy_model(MODEL("llama-cpu-fp32"));
	snprintf(path, sizeof(path), "%s/model.onnx.data", copied);
	f = fopen(path, "r+");
	ck_assert_ptr_nonnull(f);
	for (int i = 0; i < 147776; i++)
		ck_assert_uint_eq(fwrite(&value, 4, 1, f), 1);
	fclose(f);
	k.rt = runtime("eager", "pager_sync", "auto", NULL);
	k.m = model(k.rt, copied, flags);
	k.s = session(k.m);
	return k;
}

START_TEST(nan_logits)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = damaged(0, NAN);
	int64_t id = 77;

	append(k.s, prompt, 5);
	// they can be looked at
	ck_assert_uint_eq(logits(k.s, rows[0], 1), 1);
	ck_assert(isnan(rows[0][17]));
	fails(genai_session_next(k.s, 1, &id, &err), GENAI_E_DEVICE, &err,
	      "NaN at position 4");
	ck_assert_int_eq(id, 77);
	ck_assert_uint_eq(genai_session_length(k.s), 4);
	append(k.s, prompt, 3);
	fails(genai_session_next(k.s, 0, &id, &err), GENAI_E_DEVICE, &err,
	      "NaN at position 6");
	kit_close(&k);
	drop_copy();
}
END_TEST

// A failing unit, early, in the middle, late: the append did not happen; the
// next one gives what it would have given.
START_TEST(fault_while_appending)
{
	static const int64_t at[] = {0, 3, 11, 19};
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_config(_i / 4, 0);

	append(k.s, prompt, 12);
	logits(k.s, rows[0], 1);
	rewind_to(k.s, 0);
	append(k.s, prompt, 5);
	break_launch(k.rt, at[_i % 4]);
	fails(genai_session_append(k.s, prompt + 5, 7, &err), GENAI_E_DEVICE,
	      &err, "broken on purpose");
	ck_assert_msg(strstr(err.text, fault.name) != NULL, "%s", err.text);
	ck_assert_uint_eq(genai_session_length(k.s), 5);
	append(k.s, prompt + 5, 7);
	logits(k.s, rows[1], 1);
	ck_assert_mem_eq(rows[0], rows[1], VOCAB * sizeof(float));
	kit_close(&k);
}
END_TEST

// The same while tokens are chosen, with a step ahead.
START_TEST(fault_while_continuing)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_config(_i, 0);
	int64_t want[12], seen[12], id;
	int n = 0;

	append(k.s, prompt, 7);
	for (int i = 0; i < 12; i++)
		want[i] = next(k.s, 1);
	rewind_to(k.s, 0);
	append(k.s, prompt, 7);
	break_launch(k.rt, 40);
	while (n < 12 && !genai_session_next(k.s, 1, &id, &err))
		seen[n++] = id;
	// a replayed step launches nothing that could fail: then it went well
	if (n < 12) {
		fails(err.code, GENAI_E_DEVICE, &err, "broken on purpose");
		ck_assert_uint_le(genai_session_length(k.s), 7u + n);
		rewind_to(k.s, 7);
		append(k.s, seen, n);
		for (; n < 12; n++)
			seen[n] = next(k.s, 1);
	}
	ck_assert_mem_eq(want, seen, sizeof(want));
	kit_close(&k);
}
END_TEST

START_TEST(fault_in_a_step_ahead_then_append)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);
	int64_t first;

	append(k.s, prompt, 7);
	break_launch(k.rt, 2); // in the step ahead
	first = next(k.s, 1);
	ck_assert_int_eq(fault.countdown, -1);
	fails(genai_session_append(k.s, prompt + 7, 1, &err), GENAI_E_DEVICE,
	      &err, "broken on purpose");
	// the step ahead is gone with it
	ck_assert_uint_eq(genai_session_length(k.s), 7);
	append(k.s, &first, 1);
	append(k.s, prompt + 7, 1);
	logits(k.s, rows[0], 1);
	rewind_to(k.s, 0);
	append(k.s, prompt, 7);
	append(k.s, &first, 1);
	append(k.s, prompt + 7, 1);
	logits(k.s, rows[1], 1);
	ck_assert_mem_eq(rows[0], rows[1], VOCAB * sizeof(float));
	kit_close(&k);
}
END_TEST

START_TEST(fault_in_a_step_ahead_then_rewind)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);
	int64_t a, b;

	append(k.s, prompt, 7);
	a = next(k.s, 0);
	rewind_to(k.s, 0);
	append(k.s, prompt, 7);
	break_launch(k.rt, 2);
	next(k.s, 1);
	fails(genai_session_rewind(k.s, 3, &err), GENAI_E_DEVICE, &err,
	      "broken on purpose");
	ck_assert_uint_eq(genai_session_length(k.s), 3);
	append(k.s, prompt + 3, 4);
	b = next(k.s, 0);
	ck_assert_int_eq(a, b);
	kit_close(&k);
}
END_TEST

// Another session's step behind the failed one was skipped: it is told.
START_TEST(fault_takes_another_session_along)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);
	struct genai_session *t = session(k.m);
	int64_t want[4], id, first;

	take(k.m, prompt, 9, want, 4);
	append(t, prompt, 9);
	append(k.s, prompt, 7);
	break_launch(k.rt, 2);
	next(k.s, 1);	    // its step ahead fails, unseen
	first = next(t, 1); // its step ahead is skipped
	ck_assert_int_eq(first, want[0]);
	ck_assert_int_eq(genai_session_next(k.s, 1, &id, &err), GENAI_E_DEVICE);
	ck_assert_uint_eq(genai_session_length(t), 9);
	fails(genai_session_next(t, 1, &id, &err), GENAI_E_STATE, &err,
	      "append tokens first");
	append(t, &first, 1);
	for (int i = 1; i < 4; i++)
		ck_assert_int_eq(next(t, 1), want[i]);
	genai_session_close(t);
	kit_close(&k);
}
END_TEST

// Nor does what another model's failure cleared look like success: the device's
// poison is one for all.
START_TEST(fault_takes_another_model_along)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_config(_i, 0);
	struct genai_model *m = model(k.rt, MODEL("mistral-cpu-fp32"), 0);
	struct genai_session *t = session(m);
	int64_t want[4], id, first;

	take(m, prompt, 9, want, 4);
	append(t, prompt, 9);
	break_launch(k.rt, 5);
	first = next(t, 1); // its step ahead fails, unseen
	ck_assert_int_eq(first, want[0]);
	ck_assert_int_eq(fault.countdown, -1);
	break_launch(k.rt, 5);
	ck_assert_int_eq(genai_session_append(k.s, prompt, 7, &err),
			 GENAI_E_DEVICE);
	fails(genai_session_next(t, 1, &id, &err), GENAI_E_STATE, &err,
	      "append tokens first");
	append(t, &first, 1);
	for (int i = 1; i < 4; i++)
		ck_assert_int_eq(next(t, 1), want[i]);
	genai_session_close(t);
	genai_model_close(m);
	kit_close(&k);
}
END_TEST

// Nor does it keep another session from being opened.
START_TEST(fault_in_a_step_ahead_then_open)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_config(_i, 0);
	int64_t want[4], got[4], id;

	take(k.m, prompt, 9, want, 4);
	append(k.s, prompt, 7);
	break_launch(k.rt, 5);
	next(k.s, 1);
	ck_assert_int_eq(fault.countdown, -1);
	take(k.m, prompt, 9, got, 4);
	ck_assert_mem_eq(want, got, sizeof(got));
	fails(genai_session_next(k.s, 1, &id, &err), GENAI_E_STATE, &err,
	      "append tokens first");
	kit_close(&k);
}
END_TEST

// Nor is it left to who comes after the session that it happened to.
START_TEST(fault_in_a_step_ahead_then_close)
{
	struct kit k = kit_config(_i, 0);
	int64_t want[4], got[4];

	take(k.m, prompt, 9, want, 4);
	append(k.s, prompt, 7);
	break_launch(k.rt, 5);
	next(k.s, 1);
	ck_assert_int_eq(fault.countdown, -1);
	genai_session_close(k.s);
	take(k.m, prompt, 9, got, 4);
	ck_assert_mem_eq(want, got, sizeof(got));
	k.s = NULL;
	kit_close(&k);
}
END_TEST

// One whose steps were done before is not touched.
START_TEST(fault_spares_what_was_done)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);
	struct genai_session *t = session(k.m);
	int64_t want[4];

	take(k.m, prompt, 9, want, 4);
	append(t, prompt, 9);
	break_launch(k.rt, 5);
	ck_assert_int_eq(genai_session_append(k.s, prompt, 7, &err),
			 GENAI_E_DEVICE);
	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(next(t, 1), want[i]);
	genai_session_close(t);
	kit_close(&k);
}
END_TEST

START_TEST(file_cut_while_mapped)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k;
	char path[300];

	copy_model(MODEL("llama-cpu-fp32"));
	k.rt = runtime("eager", "pager_sync", "auto", NULL);
	k.m = model(k.rt, copied, 0);
	k.s = session(k.m);
	append(k.s, prompt, 3);
	snprintf(path, sizeof(path), "%s/model.onnx.data", copied);
	ck_assert_int_eq(truncate(path, 8192), 0);
	fails(genai_session_append(k.s, prompt, 3, &err), GENAI_E_IO, &err,
	      "model.onnx.data");
	ck_assert_uint_eq(genai_session_length(k.s), 3);
	// again, not a crash, and another model of the process still works
	ck_assert_int_eq(genai_session_append(k.s, prompt, 3, &err),
			 GENAI_E_IO);
	kit_close(&k);
	drop_copy();
	k = kit_plain(0);
	append(k.s, prompt, 3);
	kit_close(&k);
}
END_TEST

// ---- the model and the runtime around it ----

START_TEST(after_fork)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = kit_plain(0);
	int status;
	pid_t pid;

	append(k.s, prompt, 3);
	pid = fork();
	if (!pid) {
		int32_t rc = genai_session_append(k.s, prompt, 3, &err);

		_exit(rc == GENAI_E_FORKED && strstr(err.text, "process") ? 0
									  : 1);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	append(k.s, prompt, 3);
	kit_close(&k);
}
END_TEST

START_TEST(no_room_for_the_cache)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct kit k = {0};

	k.rt = runtime("eager", "pager_sync", "auto", NULL);
	k.m = model(k.rt, MODEL("llama-cpu-fp32"), 0);
	genai_device_set_limit(&k.rt->device, k.rt->device.used + 262143);
	fails(genai_session_open(k.m, &k.s, &err), GENAI_E_LIMIT, &err,
	      "the key/value cache for 512 positions needs 262144 bytes (512 "
	      "each)");
	ck_assert_ptr_null(k.m->sessions);
	genai_device_set_limit(&k.rt->device, UINT64_MAX);
	k.s = session(k.m);
	append(k.s, prompt, 5);
	kit_close(&k);
}
END_TEST

START_TEST(limit_and_budget_hold)
{
	struct genai_stats st = {.size = sizeof(st)};
	struct kit k = {0};

	k.rt = runtime("eager", "pager_async", "30%",
		       "runtime.device_limit=16MiB");
	k.m = model(k.rt, MODEL("qwen2-cpu-int8"), 0);
	k.s = session(k.m);
	append(k.s, prompt, N);
	ck_assert_int_eq(genai_model_get_stats(k.m, &st, NULL), 0);
	ck_assert_uint_eq(st.device_limit_bytes, 16 << 20);
	ck_assert_uint_le(st.device_peak_bytes, 16 << 20);
	ck_assert_uint_eq(st.weight_budget_bytes, st.weights_bytes * 3 / 10);
	ck_assert_uint_le(st.pinned_bytes + st.ring_bytes,
			  st.weight_budget_bytes);
	ck_assert_uint_gt(st.streamed_bytes_per_token, 0);
	kit_close(&k);
}
END_TEST

START_TEST(figures_of_a_recorded_run)
{
	struct genai_stats st = {.size = sizeof(st)};
	struct kit k = kit_open("captured", "pager_sync", "auto", 0);

	append(k.s, prompt, 7);
	for (int i = 0; i < 20; i++)
		next(k.s, 1);
	ck_assert_int_eq(genai_model_get_stats(k.m, &st, NULL), 0);
	ck_assert_str_eq(st.executor, "cpu_ref:captured");
	ck_assert_str_eq(st.pager, "pager_sync");
	ck_assert_uint_eq(st.captures, 1);
	ck_assert_uint_ge(st.replays, 17);
	ck_assert_uint_eq(st.in_place_bytes, st.weights_bytes);
	ck_assert_uint_eq(st.pinned_bytes + st.ring_bytes, 0);
	ck_assert_uint_eq(st.streamed_bytes_per_token, 0);
	kit_close(&k);
}
END_TEST

static int32_t stop_at(void *ctx, const char *what, uint64_t done,
		       uint64_t total)
{
	int *calls = ctx;

	ck_assert_ptr_nonnull(what);
	ck_assert_uint_le(done, total);
	return ++*calls == 2;
}

START_TEST(loading_can_be_stopped)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime *rt = runtime("eager", "pager_sync", "auto", NULL);
	int calls = 0;
	struct genai_model_options o = {
		.size = sizeof(o), .progress = stop_at, .progress_ctx = &calls};
	struct genai_model *m = NULL;

	fails(genai_model_open(rt, MODEL("llama-cpu-fp32"), &o, &m, &err),
	      GENAI_E_INTERRUPTED, &err, "interrupted");
	ck_assert_ptr_null(m);
	ck_assert_int_eq(calls, 2);
	genai_close(rt);
	ck_assert_uint_eq(logged.n, 0);
}
END_TEST

START_TEST(bad_options)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime *rt = runtime("eager", "pager_sync", "auto", NULL);
	struct genai_model_options flags = {.size = sizeof(flags), .flags = 8};
	struct genai_model_options size = {.size = 4};
	struct genai_runtime_options ro = {.size = sizeof(ro), .flags = 1};
	struct genai_runtime *none = NULL;
	struct genai_model *m = NULL;

	fails(genai_model_open(rt, MODEL("llama-cpu-fp32"), &flags, &m, &err),
	      GENAI_E_INVAL, &err, "flags 0x8");
	fails(genai_model_open(rt, MODEL("llama-cpu-fp32"), &size, &m, &err),
	      GENAI_E_INVAL, &err, "size 4");
	fails(genai_model_open(rt, "/nonexistent", NULL, &m, &err),
	      GENAI_E_NOTFOUND, &err, "/nonexistent: cannot open");
	fails(genai_model_open(rt, "", NULL, &m, &err), GENAI_E_INVAL, &err,
	      "empty");
	fails(genai_open(&ro, &none, &err), GENAI_E_INVAL, &err, "flags 0x1");
	ro.flags = 0;
	ro.n_sets = 3;
	fails(genai_open(&ro, &none, &err), GENAI_E_INVAL, &err, "3 sets");
	ck_assert_ptr_null(m);
	ck_assert_ptr_null(none);
	genai_close(rt);
}
END_TEST

START_TEST(a_context_that_the_model_lacks)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime *rt =
		runtime("eager", "pager_sync", "auto", "runtime.context=513");
	struct genai_model *m = NULL;

	fails(genai_model_open(rt, MODEL("llama-cpu-fp32"), NULL, &m, &err),
	      GENAI_E_CONFIG, &err, "512 positions");
	genai_close(rt);
}
END_TEST

START_TEST(closed_with_children)
{
	struct kit k = kit_plain(0);

	genai_close(k.rt); // says so, and leaves all as it is
	ck_assert(was_logged("1 models open"));
	genai_model_close(k.m);
	ck_assert(was_logged("1 sessions open"));
	logged.n = 0;
	append(k.s, prompt, 3);
	kit_close(&k);
	genai_close(NULL);
	genai_model_close(NULL);
	genai_session_close(NULL);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("session");
	TCase *tc = tcase_create("all");

	tcase_add_test(tc, lengths);
	tcase_add_loop_test(tc, pieces_give_the_same_bits, 0, 6);
	tcase_add_test(tc, last_rows_only);
	tcase_add_test(tc, one_row_is_the_last);
	tcase_add_loop_test(tc, bad_ids, 0, 4);
	tcase_add_test(tc, nothing_to_append);
	tcase_add_test(tc, more_than_the_context);
	tcase_add_test(tc, full_context);
	tcase_add_test(tc, context_of_one);
	tcase_add_test(tc, chunks_of_the_model);
	tcase_add_test(tc, next_is_the_best);
	tcase_add_loop_test(tc, ahead_changes_nothing, 0, 2);
	tcase_add_test(tc, length_with_and_without_ahead);
	tcase_add_test(tc, append_instead_of_the_choice);
	tcase_add_test(tc, append_after_a_step_ahead);
	tcase_add_test(tc, nothing_to_continue);
	tcase_add_test(tc, next_of_all_logits);
	tcase_add_loop_test(tc, rewind_and_repeat, 0, 5);
	tcase_add_test(tc, rewind_too_far);
	tcase_add_test(tc, rewind_undoes_ahead);
	tcase_add_loop_test(tc, two_sessions_of_one_model, 0, N_CONFIGS);
	tcase_add_test(tc, two_models_of_one_runtime);
	tcase_add_test(tc, sessions_come_and_go);
	tcase_add_test(tc, nan_logits);
	tcase_add_loop_test(tc, fault_while_appending, 0, 4 * N_CONFIGS);
	tcase_add_loop_test(tc, fault_while_continuing, 0, N_CONFIGS);
	tcase_add_test(tc, fault_in_a_step_ahead_then_append);
	tcase_add_test(tc, fault_in_a_step_ahead_then_rewind);
	tcase_add_test(tc, fault_takes_another_session_along);
	tcase_add_loop_test(tc, fault_takes_another_model_along, 0, N_CONFIGS);
	tcase_add_loop_test(tc, fault_in_a_step_ahead_then_close, 0, N_CONFIGS);
	tcase_add_loop_test(tc, fault_in_a_step_ahead_then_open, 0, N_CONFIGS);
	tcase_add_test(tc, fault_spares_what_was_done);
	tcase_add_test(tc, file_cut_while_mapped);
	tcase_add_test(tc, after_fork);
	tcase_add_test(tc, no_room_for_the_cache);
	tcase_add_test(tc, limit_and_budget_hold);
	tcase_add_test(tc, figures_of_a_recorded_run);
	tcase_add_test(tc, loading_can_be_stopped);
	tcase_add_test(tc, bad_options);
	tcase_add_test(tc, a_context_that_the_model_lacks);
	tcase_add_test(tc, closed_with_children);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
