// check_engine.c - many requests at once: each gets the tokens that it gets
// alone.
#include <genai/engine.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/wait.h>

#include "core/engine/engine.h"
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

static const char *const models[] = {
	"llama-cpu-fp32",   "llama-cpu-int4-asym", "llama-cuda-fp16",
	"mistral-cpu-fp32", "phi3-cpu-int4",	   "qwen2-cpu-int8",
	"qwen3-cpu-int4",   "gptoss-cpu-int4",	   "qwen25vl-cpu-int4"};

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

// ---- what a request may say ----

static struct engine_run plain(void)
{
	struct engine_run r;

	engine_open_on(&r, "eager", "pager_sync", "llama-cpu-fp32", NULL);
	return r;
}

static const struct got *ask(struct engine_run *r, const struct want *w,
			     struct genai_request q)
{
	uint64_t id = submit(r, w, &q);

	wait_all(r);
	return got_of(r, id, 0);
}

START_TEST(ends)
{
	struct engine_run r = plain();
	struct want w = template_of(0);
	struct genai_request q = GENAI_REQUEST_INIT;
	const struct got *g;

	q.max_tokens = 12;
	q.stop_ids = &w.ids[3];
	q.n_stop_ids = 1;
	g = ask(&r, &w, q);
	ck_assert_uint_eq(g->finish, GENAI_FINISH_EOS);
	ck_assert_uint_le(g->n, 4);
	check_prefix(g, &w);
	// not before so many
	q.min_tokens = 6;
	g = ask(&r, &w, q);
	ck_assert_uint_ge(g->n, 6);
	for (size_t i = 0; i < 6; i++)
		ck_assert_int_ne(g->ids[i], w.ids[3]);
	// an answer of no tokens
	q = (struct genai_request)GENAI_REQUEST_INIT;
	q.max_tokens = 0;
	g = ask(&r, &w, q);
	ck_assert_uint_eq(g->finish, GENAI_FINISH_LENGTH);
	ck_assert_uint_eq(g->n, 0);
	ck_assert_uint_eq(g->done.n_prompt, w.n_prompt);
	// as many as the context has room for
	q.max_tokens = -1;
	q.deadline_ms = 30;
	g = ask(&r, &w, q);
	ck_assert(g->finish == GENAI_FINISH_DEADLINE ||
		  g->finish == GENAI_FINISH_LENGTH);
	engine_close(&r);
}
END_TEST

START_TEST(bias)
{
	struct engine_run r = plain();
	struct want w = template_of(0);
	struct genai_request q = GENAI_REQUEST_INIT;
	struct genai_bias b[2] = {{.id = w.ids[0], .bias = -INFINITY},
				  {.id = 77, .bias = 100}};
	const struct got *g;

	q.max_tokens = 3;
	q.bias = b;
	q.n_bias = 1;
	g = ask(&r, &w, q);
	for (size_t i = 0; i < g->n; i++)
		ck_assert_int_ne(g->ids[i], w.ids[0]);
	q.n_bias = 2;
	g = ask(&r, &w, q);
	ck_assert_uint_eq(g->n, 3);
	for (size_t i = 0; i < g->n; i++)
		ck_assert_int_eq(g->ids[i], 77);
	engine_close(&r);
}
END_TEST

// Logprobs of every token, the prompt's too, are those of a session's logits.
// Every third id, and no end; the third token is refused.
struct third {
	unsigned calls;
	bool fails;
};

static int32_t every_third(void *ctx, uint32_t choice, const int64_t *ids,
			   size_t n, uint32_t *bits, struct genai_error *err)
{
	struct third *t = ctx;

	ck_assert_uint_lt(choice, 2);
	for (size_t i = 0; i < n; i++)
		ck_assert_int_eq(ids[i] % 3, 1);
	t->calls++;
	if (t->fails && n == 2)
		return genai_fail(err, GENAI_E_LIMIT, "no third token");
	memset(bits, 0, 512 / 8);
	for (uint32_t i = 1; i < 512; i += 3)
		bits[i / 32] |= 1u << (i % 32);
	return 0;
}

START_TEST(allow)
{
	struct engine_run r = plain();
	struct want w = template_of(0);
	struct genai_request q = GENAI_REQUEST_INIT;
	struct third t = {0};
	const struct got *g;

	q.max_tokens = 10;
	q.allow = every_third;
	q.allow_ctx = &t;
	g = ask(&r, &w, q);
	ck_assert_uint_eq(g->finish, GENAI_FINISH_LENGTH);
	ck_assert_uint_eq(g->n, 10);
	for (size_t i = 0; i < g->n; i++)
		ck_assert_int_eq(g->ids[i] % 3, 1);
	ck_assert_uint_eq(t.calls, 10);
	t.fails = true;
	g = ask(&r, &w, q);
	ck_assert_uint_eq(g->finish, GENAI_FINISH_ERROR);
	ck_assert_uint_eq(g->n, 2);
	ck_assert_str_eq(g->error, "no third token");
	engine_close(&r);
}
END_TEST

START_TEST(logprobs)
{
	struct engine_run r = plain();
	struct want w = template_of(2);
	struct genai_request q = GENAI_REQUEST_INIT;
	struct genai_event ev;
	struct kit k;
	float *logits;
	size_t rows, at = 0;
	uint64_t id;

	k = kit_plain(GENAI_MODEL_ALL_LOGITS);
	logits = malloc((w.n_prompt + 1) * k.m->vocab * sizeof(*logits));
	append(k.s, w.prompt, w.n_prompt);
	ck_assert(!genai_session_logits(k.s, logits, w.n_prompt, &rows, NULL));
	ck_assert_uint_eq(rows, w.n_prompt);
	q.max_tokens = 1;
	q.flags = GENAI_REQUEST_ECHO | GENAI_REQUEST_LOGPROBS;
	q.n_top = 4;
	q.ids = w.prompt;
	q.n_ids = w.n_prompt;
	ck_assert(!genai_engine_submit(r.e, &q, &id, NULL));
	for (;;) {
		const float *x = logits + (at - 1) * k.m->vocab;
		double sum = 0;

		ev.size = sizeof(ev);
		ck_assert(!genai_engine_next(r.e, -1, &ev, NULL));
		if (ev.kind == GENAI_EVENT_DONE)
			break;
		ck_assert_uint_eq(ev.kind, at < w.n_prompt ? GENAI_EVENT_PROMPT
							   : GENAI_EVENT_TOKEN);
		if (at < w.n_prompt)
			ck_assert_int_eq(ev.id, w.prompt[at]);
		if (at++) {
			for (uint32_t i = 0; i < k.m->vocab; i++)
				sum += exp(x[i]);
			ck_assert_double_eq_tol(ev.logprob, x[ev.id] - log(sum),
						1e-4);
			ck_assert_uint_eq(ev.n_top, 4);
			for (uint32_t i = 0; i < 4; i++)
				ck_assert_double_eq_tol(
					ev.top[i].logprob,
					x[ev.top[i].id] - log(sum), 1e-4);
			for (uint32_t i = 0; i < k.m->vocab; i++)
				ck_assert(x[i] <= x[ev.top[3].id] ||
					  i == ev.top[0].id ||
					  i == ev.top[1].id ||
					  i == ev.top[2].id);
		}
	}
	ck_assert_uint_eq(at, w.n_prompt + 1);
	ck_assert_uint_eq(ev.last, 1);
	free(logits);
	kit_close(&k);
	engine_close(&r);
}
END_TEST

// Text, in pieces, is the decode of all ids; a stop text ends it before, and
// nothing of it is given out.
START_TEST(texts)
{
	struct engine_run r = plain();
	const struct genai_tokenizer *tok = NULL;
	struct want w = template_of(4);
	struct genai_request q = GENAI_REQUEST_INIT;
	const struct got *g;
	char *all, *stop;
	size_t n;

	ck_assert(!genai_engine_get_tokenizer(r.e, &tok));
	if (tok) {
		const char *stops[2] = {"\x01never", NULL};

		q.max_tokens = 16;
		ck_assert(!genai_tokenizer_decode(tok, w.ids, 16, 0, &all, &n,
						  NULL));
		g = ask(&r, &w, q);
		ck_assert_str_eq(g->text, all);
		ck_assert_uint_gt(n, 8);
		stop = all + n / 2;
		while ((*stop & 0xc0) == 0x80)
			stop++;
		stops[1] = stop;
		q.stops = stops;
		q.n_stops = 2;
		g = ask(&r, &w, q);
		ck_assert_uint_eq(g->finish, GENAI_FINISH_STOP);
		ck_assert_uint_le(strlen(g->text), (size_t)(stop - all));
		ck_assert_mem_eq(g->text, all, strlen(g->text));
		genai_free(all);
	}
	engine_close(&r);
}
END_TEST

static const struct {
	struct genai_request q;
	int32_t code;
	const char *text;
} refused[] = {
#define Q .size = sizeof(struct genai_request), .n = 1, .max_tokens = 4
	{{Q, .flags = 1u << 20}, GENAI_E_INVAL, "flags"},
	{{Q, .n_top = 3}, GENAI_E_INVAL, "n_top"},
	{{Q, .min_tokens = 5}, GENAI_E_INVAL, "min_tokens is 5"},
	{{Q, .min_tokens = -1}, GENAI_E_INVAL, "min_tokens"},
	{{Q, .ids = (const int64_t[]){1, 100000}, .n_ids = 2},
	 GENAI_E_INVAL,
	 "ids[1] is 100000"},
	{{Q, .ids = (const int64_t[]){1}}, GENAI_E_INVAL, "no tokens"},
	{{Q, .stop_ids = (const int64_t[]){-1}, .n_stop_ids = 1},
	 GENAI_E_INVAL,
	 "stop_ids[0]"},
	{{Q, .stops = (const char *const[]){""}, .n_stops = 1},
	 GENAI_E_INVAL,
	 "stops[0] is empty"},
	{{Q, .bias = (const struct genai_bias[]){{.id = 1, .bias = 101}},
	  .n_bias = 1},
	 GENAI_E_INVAL,
	 "bias is 101"},
	{{Q, .bias = (const struct genai_bias[]){{.id = 1, .bias = NAN}},
	  .n_bias = 1},
	 GENAI_E_INVAL,
	 "bias is"},
	{{Q, .n_stops = 65}, GENAI_E_INVAL, "n_stops is 65"},
	{{.size = sizeof(struct genai_request), .n = 0},
	 GENAI_E_INVAL,
	 "n is 0: 1 to 128"},
	{{.size = sizeof(struct genai_request), .n = 129},
	 GENAI_E_INVAL,
	 "n is 129"},
	{{.size = sizeof(struct genai_request), .n = 1, .max_tokens = -2},
	 GENAI_E_INVAL,
	 "max_tokens is -2"},
	{{.size = 8, .n = 1}, GENAI_E_INVAL, "size 8"},
#undef Q
};

START_TEST(refuses)
{
	struct genai_sampling hot = GENAI_SAMPLING_INIT;
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_engine_options o = {.size = sizeof(o), .max_requests = 1};
	struct genai_request q = GENAI_REQUEST_INIT;
	struct want w;
	struct engine_run r;
	uint64_t id;

	engine_open_on(&r, "eager", "pager_sync", "llama-cpu-fp32", &o);
	w = template_of(0);
	for (size_t i = 0; i < sizeof(refused) / sizeof(refused[0]); i++) {
		struct genai_request bad = refused[i].q;

		if (!bad.ids) {
			bad.ids = w.prompt;
			bad.n_ids = w.n_prompt;
		}
		fails(genai_engine_submit(r.e, &bad, &id, &err),
		      refused[i].code, &err, refused[i].text);
	}
	q.ids = w.prompt;
	q.n_ids = w.n_prompt;
	hot.temperature = 1000;
	q.sampling = &hot;
	fails(genai_engine_submit(r.e, &q, &id, &err), GENAI_E_INVAL, &err,
	      "temperature");
	q.sampling = NULL;
	q.max_tokens = -1;
	q.n_ids = 0;
	fails(genai_engine_submit(r.e, &q, &id, &err), GENAI_E_INVAL, &err,
	      "no tokens");
	q.n_ids = w.n_prompt;
	q.flags = GENAI_REQUEST_IGNORE_EOS;
	ck_assert(!genai_engine_submit(r.e, &q, &id, &err));
	fails(genai_engine_submit(r.e, &q, &id, &err), GENAI_E_BUSY, &err,
	      "1 requests are not finished");
	r.asked = 1;
	ck_assert(!genai_engine_cancel(r.e, id, NULL));
	ck_assert(!genai_engine_cancel(r.e, 4711, NULL));
	wait_all(&r);
	o.max_sequences = 129;
	fails(genai_engine_open(r.rt, "x", &o, &r.e, &err), GENAI_E_INVAL, &err,
	      "max_sequences is 129");
	fails(genai_engine_open(NULL, "x", NULL, &r.e, &err), GENAI_E_INVAL,
	      &err, "no runtime");
	fails(genai_engine_open(r.rt, "/nonexistent", NULL, &r.e, &err),
	      GENAI_E_NOTFOUND, &err, "/nonexistent");
	engine_close(&r);
}
END_TEST

// The descriptor is readable while there are events, and only then.
START_TEST(descriptor)
{
	struct engine_run r = plain();
	struct want w = template_of(0);
	struct pollfd p = {.fd = genai_engine_fd(r.e), .events = POLLIN};
	struct genai_request q = GENAI_REQUEST_INIT;

	ck_assert_int_eq(poll(&p, 1, 0), 0);
	q.max_tokens = 2;
	submit(&r, &w, &q);
	ck_assert_int_eq(poll(&p, 1, 20000), 1);
	while (r.n_ended < r.asked)
		if (!take(&r, 0))
			ck_assert_int_eq(poll(&p, 1, 20000), 1);
	ck_assert_int_eq(poll(&p, 1, 0), 0);
	engine_close(&r);
}
END_TEST

// States that every step replaces, tables that change with the length: one by
// one, and it says so.
START_TEST(one_by_one)
{
	static const char *const names[] = {
		"lfm2-cpu-int4", "phi3-longrope-cpu-int4", "qwen35-cpu-int4"};
	const char *name = names[_i];
	struct genai_engine_info info = {.size = sizeof(info)};
	struct engine_run r;
	uint64_t id[TEMPLATES];

	learn(name);
	engine_on(&r, runtime("eager", "pager_sync", "auto", NULL), name, NULL);
	ck_assert(was_logged("one by one"));
	logged.n = 0;
	ck_assert(!genai_engine_get_info(r.e, &info));
	ck_assert(!info.packed);
	ck_assert_uint_eq(info.max_sequences, 1);
	ck_assert_ptr_nonnull(strstr(info.why, "cannot share a step"));
	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		id[i] = submit(&r, &w, NULL);
	}
	wait_all(&r);
	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		check_tokens(&r, id[i], 0, &w, GENAI_FINISH_LENGTH);
	}
	engine_close(&r);
}
END_TEST

// Closed in the middle of it: all is given back.
START_TEST(closed_early)
{
	struct engine_run r = plain();

	for (int i = 0; i < TEMPLATES; i++) {
		struct want w = template_of(i);

		submit(&r, &w, NULL);
	}
	take(&r, 1000);
	engine_close(&r);
}
END_TEST

// All ids; with w, every fifth token is not the one that it has.
static int32_t mostly(void *ctx, uint32_t choice, const int64_t *ids, size_t n,
		      uint32_t *bits, struct genai_error *err)
{
	const struct want *w = ctx;

	(void)choice;
	(void)ids;
	(void)err;
	memset(bits, 0xff, 512 / 8);
	if (n % 5 == 4 && w)
		bits[w->ids[n] / 32] &= ~(1u << (w->ids[n] % 32));
	return 0;
}

// Greedy requests: the next step is submitted before the last one's tokens are
// read, also where the host has a say in them; not where it draws them.
START_TEST(ahead)
{
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_request q = GENAI_REQUEST_INIT;
	struct want w[2];
	const struct got *g;
	struct engine_run r;
	uint64_t id[2];

	engine_open_on(&r, _i & 1 ? "captured" : "eager", "pager_async",
		       "llama-cpu-fp32", NULL);
	w[0] = template_of(_i & 2 ? 1 : 0); // 1 is sampled
	w[1] = template_of(4);
	w[0].new_tokens = w[1].new_tokens = 20;
	if (_i & 2) {
		id[0] = submit(&r, &w[0], NULL);
		wait_all(&r);
		check_tokens(&r, id[0], 0, &w[0], GENAI_FINISH_LENGTH);
		ck_assert(!genai_engine_get_stats(r.e, &st));
		ck_assert_uint_eq(st.ahead, 0);
		engine_close(&r);
		return;
	}
	for (int i = 0; i < 2; i++)
		id[i] = submit(&r, &w[i], NULL);
	wait_all(&r);
	for (int i = 0; i < 2; i++)
		check_tokens(&r, id[i], 0, &w[i], GENAI_FINISH_LENGTH);
	ck_assert(!genai_engine_get_stats(r.e, &st));
	ck_assert_uint_ge(st.ahead, 15);
	// a mask that never forbids it, and one that does
	for (int i = 0; i < 2; i++) {
		uint64_t before = st.ahead;

		q.max_tokens = 20;
		q.allow = mostly;
		q.allow_ctx = i ? &w[0] : NULL;
		g = ask(&r, &w[0], q);
		ck_assert_uint_eq(g->n, 20);
		for (size_t k = 0; k < (i ? 4 : 20); k++)
			ck_assert_int_eq(g->ids[k], w[0].ids[k]);
		if (i)
			ck_assert_int_ne(g->ids[4], w[0].ids[4]);
		ck_assert(!genai_engine_get_stats(r.e, &st));
		ck_assert_uint_ge(st.ahead - before, i ? 3 : 18);
	}
	engine_close(&r);
}
END_TEST

// A step that goes on keeps nobody from asking.
START_TEST(statistics)
{
	struct engine_run r = plain();
	struct genai_stats st = {.size = sizeof(st)}, during = st;

	ck_assert(!genai_engine_get_model_stats(r.e, &st, NULL));
	pthread_mutex_lock(&r.e->device);
	ck_assert(!genai_engine_get_model_stats(r.e, &during, NULL));
	pthread_mutex_unlock(&r.e->device);
	ck_assert_uint_gt(st.weights_bytes, 0);
	ck_assert_uint_eq(during.weights_bytes, st.weights_bytes);
	ck_assert_str_eq(during.executor, st.executor);
	during.size = 4;
	ck_assert_int_eq(genai_engine_get_model_stats(r.e, &during, NULL),
			 GENAI_E_INVAL);
	engine_close(&r);
}
END_TEST

// Text that repeats: guesses are right, and there are fewer steps.
START_TEST(speculation)
{
	struct genai_engine_options o = {.size = sizeof(o)};
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_request q = GENAI_REQUEST_INIT;
	struct genai_bias bias[2] = {{.id = 5, .bias = 90},
				     {.id = 6, .bias = 90}};
	struct genai_sampling s = GENAI_SAMPLING_INIT;
	uint64_t steps[2], id;
	int64_t ids[2][60];
	struct engine_run r;
	struct want w;

	s.do_sample = 1;
	s.seed = 7;
	for (int i = 0; i < 2; i++) {
		struct genai_event ev;
		size_t n = 0;

		o.speculation = i ? 8 : 0;
		engine_open_on(&r, "captured", "pager_sync", "llama-cpu-fp32",
			       &o);
		w = template_of(2);
		q.ids = w.prompt;
		q.n_ids = w.n_prompt;
		q.flags = GENAI_REQUEST_IGNORE_EOS;
		q.max_tokens = 60;
		q.sampling = &s;
		q.bias = bias; // 5 and 6 in disorder: some guesses are right
		q.n_bias = 2;
		ck_assert(!genai_engine_submit(r.e, &q, &id, NULL));
		do {
			ev.size = sizeof(ev);
			ck_assert(!genai_engine_next(r.e, -1, &ev, NULL));
			if (ev.kind == GENAI_EVENT_TOKEN)
				ids[i][n++] = ev.id;
		} while (ev.kind != GENAI_EVENT_DONE);
		ck_assert_uint_eq(n, 60);
		check_quiet(&r);
		ck_assert(!genai_engine_get_stats(r.e, &st));
		steps[i] = st.steps;
		engine_close(&r);
	}
	ck_assert_mem_eq(ids[0], ids[1], sizeof(ids[0]));
	ck_assert_uint_eq(steps[0], 60);
	ck_assert_uint_gt(st.guessed_right, 5);
	ck_assert_uint_lt(st.guessed_right, st.guessed);
	ck_assert_uint_eq(steps[1] + st.guessed_right, 60);
}
END_TEST

// By the key, where options do not say; auto: where weights are streamed.
START_TEST(speculation_key)
{
	static const struct {
		const char *budget, *key;
		uint32_t option, guesses;
	} is[] = {{"auto", NULL, 0, 0},
		  {"20%", NULL, 0, 8},
		  {"20%", "runtime.speculation=off", 0, 0},
		  {"auto", "runtime.speculation=3", 0, 3},
		  {"auto", "runtime.speculation=3", 5, 5}};
	struct genai_engine_options o = {.size = sizeof(o),
					 .speculation = is[_i].option};
	struct engine_run r;

	engine_on(&r,
		  runtime("eager", "pager_async", is[_i].budget, is[_i].key),
		  "llama-cpu-fp32", &o);
	ck_assert_uint_eq(r.e->speculation, is[_i].guesses);
	engine_close(&r);
}
END_TEST

// Text and its ids are those of a tokenizer that lies elsewhere.
START_TEST(tokenizer)
{
	struct genai_engine_options o = {.size = sizeof(o)};
	const struct genai_tokenizer *tok = NULL;
	struct genai_error err = GENAI_ERROR_INIT;
	struct engine_run r;
	int64_t *ids = NULL;
	size_t n = 0;

	o.tokenizer = GENAI_TESTDATA "/models/qwen2-cpu-int8";
	engine_on(&r, runtime("eager", "pager_sync", "auto", NULL),
		  "llama-cpu-fp32", &o);
	ck_assert(!genai_engine_get_tokenizer(r.e, &tok));
	ck_assert_ptr_nonnull(tok);
	ck_assert(!genai_tokenizer_encode(tok, "cold", 4, 0, &ids, &n, &err));
	genai_free(ids);
	genai_engine_close(r.e);
	r.e = NULL;
	o.tokenizer = "/nonexistent";
	fails(genai_engine_open(r.rt, GENAI_TESTDATA "/models/llama-cpu-fp32",
				&o, &r.e, &err),
	      GENAI_E_NOTFOUND, &err, "/nonexistent");
	o.tokenizer = NULL;
	o.reserved = 1;
	fails(genai_engine_open(r.rt, "x", &o, &r.e, &err), GENAI_E_INVAL, &err,
	      "reserved is 1");
	engine_close(&r);
}
END_TEST

// Each salt has a root of its own, as long as it is one of the last.
START_TEST(salts)
{
	static struct eng_salts t;
	uint64_t none = eng_salts_root(&t, NULL), a, b, root;
	char salt[16];

	a = eng_salts_root(&t, "a");
	b = eng_salts_root(&t, "b");
	ck_assert_uint_eq(eng_salts_root(&t, ""), none);
	ck_assert_uint_ne(a, none);
	ck_assert_uint_ne(b, none);
	ck_assert_uint_ne(a, b);
	for (int i = 0; i < 3 * ENG_SALTS; i++) {
		snprintf(salt, sizeof(salt), "s%d", i);
		root = eng_salts_root(&t, salt);
		ck_assert_uint_gt(root, b); // none was given before
		ck_assert_uint_eq(eng_salts_root(&t, salt), root);
		ck_assert_uint_eq(eng_salts_root(&t, "a"), a);
	}
	// b was not asked for; it is another one now
	ck_assert_uint_gt(eng_salts_root(&t, "b"), root);
	eng_salts_close(&t);
}
END_TEST

// A device that is gone: all ends with why, nothing more is taken, and the
// engine closes.
START_TEST(lost)
{
	const char *set[] = {"module.cpu_ref.fault=lost:900",
			     "module.cpu_ref.fault=lost:400"};
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_request q = GENAI_REQUEST_INIT;
	struct genai_error err = GENAI_ERROR_INIT;
	struct engine_run r;
	struct want w;
	uint64_t id;

	learn("llama-cpu-fp32");
	w = template_of(1);
	engine_on(&r,
		  runtime(_i ? "captured" : "eager", "pager_async", "40%",
			  set[_i]),
		  "llama-cpu-fp32", NULL);
	q.ids = w.prompt;
	q.n_ids = w.n_prompt;
	q.max_tokens = 24;
	q.n = 3;
	q.flags = GENAI_REQUEST_IGNORE_EOS;
	for (int i = 0; i < 40; i++) {
		int32_t rc = genai_engine_submit(r.e, &q, &id, &err);

		if (!rc)
			r.asked += q.n;
		else
			fails(rc, GENAI_E_DEVICE, &err, "the device was lost");
	}
	while (r.n_ended < r.asked)
		ck_assert(take(&r, 60000));
	ck_assert(!genai_engine_get_stats(r.e, &st));
	ck_assert(!st.healthy);
	ck_assert_uint_eq(got_of(&r, 1, 2)->finish, GENAI_FINISH_ERROR);
	ck_assert_int_eq(got_of(&r, 1, 2)->done.code, GENAI_E_DEVICE);
	ck_assert(strstr(got_of(&r, 1, 2)->error, "lost"));
	fails(genai_engine_submit(r.e, &q, &id, &err), GENAI_E_DEVICE, &err,
	      "the device was lost");
	tolerant = true; // it is logged
	engine_close(&r);
	tolerant = false;
	differs = 0;
}
END_TEST

// ---- whatever happens beside it ----

#define EPISODES 40 // of an engine

static struct genai_engine_stats soaked; // of all engines together

static void soak(uint64_t number, bool faults)
{
	static const uint32_t blocks[] = {1, 3, 4, 7, 16, 32};
	static const uint32_t seqs[] = {1, 2, 3, 8, 16};
	uint64_t seed = number * 7919 + 3;
	struct genai_engine_options o = {.size = sizeof(o)};
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_runtime *rt;
	struct engine_run r;

	learn(models[number % 2]);
	rt = seeded_runtime(number, faults);
	o.block_positions = blocks[rnd(&seed) % 6];
	o.max_sequences = seqs[rnd(&seed) % 5];
	o.speculation = number % 3 ? rnd(&seed) % 9 : 0;
	// the longest request takes 95 positions
	o.max_blocks = (96 + rnd(&seed) % 120) / o.block_positions + 1;
	engine_on(&r, rt, models[number % 2], &o);
	r.e->likeness = 1; // guesses are seldom right here, but many
	r.e->swap.always = number % 4 < 2;
	if (number % 4 == 1) // room for some
		r.e->swap.limit = 150 * r.e->m->step.states.row_bytes;
	if (number % 4 == 3)
		r.e->swap.limit = 0;
	for (int i = 0; i < EPISODES; i++)
		episode(&r, &seed, 11);
	ck_assert(!genai_engine_get_stats(r.e, &st));
	ck_assert(st.healthy);
	ck_assert_uint_eq(r.e->swap.n_free, r.e->swap.n);
	ck_assert(number % 4 >= 2 || st.preemptions < 5 || st.swapped);
	ck_assert(number % 4 != 3 || !st.swapped);
	soaked.preemptions += st.preemptions;
	soaked.swapped += st.swapped;
	soaked.cached_tokens += st.cached_tokens;
	soaked.device_errors += st.device_errors;
	soaked.padded_rows += st.padded_rows;
	soaked.guessed += st.guessed;
	soaked.ahead += st.ahead;
	engine_close(&r);
}

// 2,000 seeds of arrivals, borders of chunks, ends, blocks that run out, known
// beginnings, a device that fails: a request gets the tokens that it gets
// alone, and all blocks are given back.
START_TEST(alone_or_among_others)
{
	for (int i = 0; i < 5; i++)
		soak((uint64_t)(_i * 5 + i), i % 2);
	// it was about something
	ck_assert_uint_gt(soaked.preemptions, 10);
	ck_assert_uint_gt(soaked.swapped, 0);
	ck_assert_uint_gt(soaked.cached_tokens, 500);
	ck_assert_uint_gt(soaked.device_errors, 0);
	ck_assert_uint_gt(soaked.padded_rows, 50);
	ck_assert_uint_gt(soaked.guessed, 20);
	ck_assert_uint_gt(soaked.ahead, 100);
}
END_TEST

// ---- what the above would find ----

enum mutant {
	STALE_TABLE = 1, // that of the step before
	FREED_EARLY,	 // a block that is still used
	SHARED_WRITTEN,	 // a found block is given out for writing
	LENGTH_LATE,	 // one position too few
	PADDING_WRITES,	 // at the beginning of the first sequence
	HANDED_WRONG,	 // another sequence's token, in a step that runs ahead
	ONE_SIDE,	 // its tokens over those that were not read yet
	SWAP_OTHER,	 // what comes back is what another block held
	SWAP_NOT_KEPT	 // what is given up is not copied
};

static struct {
	enum mutant is;
	struct genai_engine *e;
	int32_t table[64 * 1024];
	uint64_t root; // of what was found last
	int64_t ids[4];
	bool shared[64]; // blocks that were given out so
	uint32_t found, calls;
	int32_t (*copy)(void *self, struct genai_stream *stream, genai_addr dst,
			genai_addr src, uint64_t bytes, uint32_t kind,
			struct genai_error *err);
} mutant;

uint32_t __real_eng_blocks_take(struct eng_blocks *p);
uint32_t __real_eng_blocks_find(struct eng_blocks *p, uint64_t root,
				const int64_t *ids, uint32_t n, uint32_t *out,
				uint64_t *out_serial);
uint64_t __real_eng_blocks_keep(struct eng_blocks *p, uint32_t block,
				uint64_t before, const int64_t *ids);

uint32_t __wrap_eng_blocks_take(struct eng_blocks *p);
uint32_t __wrap_eng_blocks_find(struct eng_blocks *p, uint64_t root,
				const int64_t *ids, uint32_t n, uint32_t *out,
				uint64_t *out_serial);
uint64_t __wrap_eng_blocks_keep(struct eng_blocks *p, uint32_t block,
				uint64_t before, const int64_t *ids);

uint32_t __wrap_eng_blocks_take(struct eng_blocks *p)
{
	uint64_t serial;
	uint32_t b;

	if (mutant.is == SHARED_WRITTEN && mutant.found &&
	    !(++mutant.calls % 3) &&
	    __real_eng_blocks_find(p, mutant.root, mutant.ids, 1, &b,
				   &serial)) {
		mutant.shared[b] = true;
		return b;
	}
	return __real_eng_blocks_take(p);
}

uint32_t __wrap_eng_blocks_find(struct eng_blocks *p, uint64_t root,
				const int64_t *ids, uint32_t n, uint32_t *out,
				uint64_t *out_serial)
{
	n = __real_eng_blocks_find(p, root, ids, n, out, out_serial);
	mutant.found += n;
	if (n) {
		mutant.root = root;
		memcpy(mutant.ids, ids, sizeof(mutant.ids));
	}
	return n;
}

uint64_t __wrap_eng_blocks_keep(struct eng_blocks *p, uint32_t block,
				uint64_t before, const int64_t *ids)
{
	if (mutant.is == FREED_EARLY && !(++mutant.calls % 3))
		eng_blocks_drop(p, block);
	if (mutant.is == SHARED_WRITTEN && mutant.shared[block])
		return before + 1; // it is in the books already
	return __real_eng_blocks_keep(p, block, before, ids);
}

static void spoil(struct genai_engine *e)
{
	const struct eng_step *t = &e->step;
	const struct eng_side *x = eng_plan(e);
	char *stage = x->stage.host;
	const struct genai_packing *k = &e->m->packing;
	size_t n = (size_t)k->seqs * k->per_seq;
	int32_t *table = (int32_t *)(void *)(stage + t->table_at);
	int32_t *past = (int32_t *)(void *)(stage + t->past_at);
	int32_t *first = (int32_t *)(void *)(stage + t->first_at);
	uint32_t b = 0;

	if (mutant.is == STALE_TABLE) {
		for (size_t i = 0; i < n; i++) {
			int32_t now = table[i];

			table[i] = mutant.table[i];
			mutant.table[i] = now;
		}
	} else if (mutant.is == LENGTH_LATE) {
		for (; b < k->seqs; b++)
			past[b] -= past[b] > 0;
	} else if (mutant.is == PADDING_WRITES) {
		while (b < k->seqs && first[b] < (int32_t)x->rows)
			b++;
		if (b == k->seqs || x->padded == x->rows)
			return;
		memcpy(table + (size_t)b * k->per_seq, table,
		       k->per_seq * sizeof(*table));
		for (b++; b <= k->seqs; b++)
			first[b] = (int32_t)x->padded;
	}
}

static int32_t spoiling_copy(void *self, struct genai_stream *stream,
			     genai_addr dst, genai_addr src, uint64_t bytes,
			     uint32_t kind, struct genai_error *err)
{
	struct genai_engine *e = mutant.e;

	if (e && src == (uintptr_t)eng_plan(e)->stage.host) {
		spoil(e);
		bytes = e->step.in.range.bytes; // one sequence more, too
	}
	if (e && mutant.is == HANDED_WRONG && kind == GENAI_COPY_D2D &&
	    src == e->step.best.range.addr)
		src += 8;
	if (e && mutant.is == ONE_SIDE &&
	    dst == (uintptr_t)e->step.side[1].out.host)
		dst = (uintptr_t)e->step.side[0].out.host;
	if (e && e->swap.n) {
		uintptr_t kept = (uintptr_t)e->swap.mem.host;
		uint64_t n = e->swap.mem.range.bytes;

		if (mutant.is == SWAP_OTHER && src - kept < n &&
		    src + 2 * bytes <= kept + n)
			src += bytes;
		if (mutant.is == SWAP_NOT_KEPT && dst - kept < n)
			return 0;
	}
	return mutant.copy(self, stream, dst, src, bytes, kind, err);
}

// Ends the process: 0 where nothing differs.
static void spoiled(enum mutant which, bool *begun)
{
	struct genai_engine_options o = {.size = sizeof(o),
					 .block_positions = 4,
					 .max_sequences = 8,
					 .max_blocks = 40};
	struct engine_run r;
	uint64_t seed = 11;

	learn(models[0]);
	engine_on(&r, seeded_runtime(4, false), models[0], &o);
	r.e->swap.always = true;
	mutant.copy = r.rt->device.raw.copy;
	r.rt->device.raw.copy = spoiling_copy;
	mutant.e = r.e;
	tolerant = true;
	// nothing is wrong yet
	for (int i = 0; i < 3; i++)
		episode(&r, &seed, 11);
	ck_assert_uint_eq(differs, 0);
	*begun = true;
	mutant.is = which;
	for (int i = 0; i < 20 && !differs; i++)
		episode(&r, &seed, 11);
	_exit(differs != 0);
}

// In a process of its own: who spoils the books of the blocks may crash or
// hang on them, which is being found, too.
START_TEST(mutants)
{
	bool *begun = mmap(NULL, sizeof(*begun), PROT_READ | PROT_WRITE,
			   MAP_SHARED | MAP_ANONYMOUS, -1, 0);
	int status = 0;
	pid_t pid;

	ck_assert_ptr_ne(begun, MAP_FAILED);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		alarm(60);
		spoiled((enum mutant)_i, begun);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(*begun, "status %#x before anything is wrong", status);
	ck_assert_msg(status != 0, "not found");
	munmap(begun, sizeof(*begun));
}
END_TEST

int main(void)
{
	Suite *s = suite_create("engine");
	TCase *tc = tcase_create("all");

	tcase_set_timeout(tc, 120);
	tcase_add_test(tc, one);
	tcase_add_loop_test(tc, many, 0, 18);
	tcase_add_test(tc, ends);
	tcase_add_test(tc, bias);
	tcase_add_test(tc, allow);
	tcase_add_test(tc, logprobs);
	tcase_add_test(tc, texts);
	tcase_add_test(tc, refuses);
	tcase_add_test(tc, descriptor);
	tcase_add_loop_test(tc, one_by_one, 0, 3);
	tcase_add_test(tc, closed_early);
	tcase_add_loop_test(tc, ahead, 0, 4);
	tcase_add_test(tc, statistics);
	tcase_add_test(tc, speculation);
	tcase_add_loop_test(tc, speculation_key, 0, 5);
	tcase_add_test(tc, tokenizer);
	tcase_add_test(tc, salts);
	tcase_add_loop_test(tc, lost, 0, 2);
	tcase_add_loop_test(tc, alone_or_among_others, 0, 10);
	tcase_add_loop_test(tc, mutants, STALE_TABLE, SWAP_NOT_KEPT + 1);
	suite_add_tcase(s, tc);
	return genai_check_main(s);
}
