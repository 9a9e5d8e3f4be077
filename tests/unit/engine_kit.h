/* engine_kit.h - an engine on a model of the test data, requests whose tokens
 * are known from sessions, and what came of them. */
#ifndef GENAI_TESTS_ENGINE_KIT_H
#define GENAI_TESTS_ENGINE_KIT_H

#include <genai/engine.h>
#include <math.h>

#include "tests/unit/session_kit.h"

#define TEMPLATES 12
#define MAX_NEW 24
#define MAX_PROMPT 80
#define MAX_GOT 4096

/* A request, by its prompt and parameters; tokens that it gets alone. */
struct want {
	int64_t prompt[MAX_PROMPT];
	size_t n_prompt;
	struct genai_sampling sampling;
	int64_t new_tokens;
	int64_t ids[MAX_NEW];
	bool known;
};

struct got {
	uint64_t request;
	uint32_t choice, finish;
	int64_t ids[MAX_NEW]; /* the first of n */
	size_t n;
	char text[1024];
	char error[256];
	struct genai_event done;
};

struct engine_run {
	struct genai_runtime *rt;
	struct genai_engine *e;
	const char *model;
	struct got *got; /* MAX_GOT */
	size_t n_got, n_ended;
	uint64_t asked; /* choices */
};

/* With a deliberate fault: what is wrong is counted, and a test expects
 * some. */
static bool tolerant;
static unsigned differs;

#define SAME(cond, ...)                                                        \
	do {                                                                   \
		if (tolerant)                                                  \
			differs += !(cond);                                    \
		else                                                           \
			ck_assert_msg(cond, __VA_ARGS__);                      \
	} while (0)

static struct want wants[TEMPLATES];
static const char *wants_of; /* model */

static inline uint32_t rnd(uint64_t *s)
{
	*s = *s * 6364136223846793005u + 1442695040888963407u;
	return (uint32_t)(*s >> 33);
}

/* Prompts of 1 to 70 tokens, some of which begin alike; greedy and sampled. */
static inline struct want make_want(int i)
{
	struct want w = {.sampling = GENAI_SAMPLING_INIT,
			 .new_tokens = 4 + i * 5 % 17};
	uint64_t own = (uint64_t)i * 77 + 5, shared = 99;

	w.n_prompt = 1 + (size_t)(i * 23 % 70);
	for (size_t k = 0; k < w.n_prompt; k++) {
		int64_t common = 3 + rnd(&shared) % 500;

		w.prompt[k] = i % 3 && k < 40 ? common : 3 + rnd(&own) % 500;
	}
	if (i % 4 == 1) {
		w.sampling.do_sample = 1;
		w.sampling.temperature = 1.3f;
		w.sampling.top_p = .95f;
		w.sampling.seed = (uint64_t)i;
	}
	if (i % 4 == 3) {
		w.sampling.do_sample = 1;
		w.sampling.top_k = 40;
		w.sampling.repetition_penalty = 1.2f;
		w.sampling.seed = 1000 + (uint64_t)i;
	}
	return w;
}

static inline void know(struct genai_session *s, struct want *w, uint32_t vocab)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_sampler *p = NULL;
	float *logits = malloc(vocab * sizeof(float));
	size_t rows;
	int32_t rc = genai_sampler_open(&w->sampling, vocab, NULL, 0, &p, &err);

	rewind_to(s, 0);
	append(s, w->prompt, w->n_prompt);
	if (!rc)
		rc = genai_sampler_accept(p, w->prompt, w->n_prompt, &err);
	for (int64_t i = 0; !rc && i < MAX_NEW; i++) {
		rc = genai_session_logits(s, logits, 1, &rows, &err);
		if (!rc)
			rc = genai_sampler_pick(p, logits, &w->ids[i], &err);
		if (!rc)
			append(s, &w->ids[i], 1);
	}
	ck_assert_msg(!rc, "%s", err.text);
	genai_sampler_close(p);
	free(logits);
	w->known = true;
}

/* A model of the test data, or by its path. */
static inline void kit_path(char *path, size_t cap, const char *model_name)
{
	if (*model_name == '/')
		snprintf(path, cap, "%s", model_name);
	else
		snprintf(path, cap, "%s/models/%s", GENAI_TESTDATA, model_name);
}

/* The tokens of all templates, by a session, one after the other. */
static inline void learn(const char *model_name)
{
	struct genai_runtime *rt;
	struct genai_model_info info = {.size = sizeof(info)};
	struct genai_model *m;
	struct genai_session *s;
	char path[512];

	if (wants_of && !strcmp(wants_of, model_name))
		return;
	kit_path(path, sizeof(path), model_name);
	rt = runtime("eager", "pager_sync", "auto", NULL);
	m = model(rt, path, 0);
	s = session(m);
	genai_model_get_info(m, &info);
	for (int i = 0; i < TEMPLATES; i++) {
		wants[i] = make_want(i);
		know(s, &wants[i], info.vocab_size);
	}
	wants_of = model_name;
	genai_session_close(s);
	genai_model_close(m);
	genai_close(rt);
}

static inline struct want template_of(int i)
{
	return wants[i].known ? wants[i] : make_want(i);
}

static inline void engine_on(struct engine_run *r, struct genai_runtime *rt,
			     const char *model_name,
			     const struct genai_engine_options *o)
{
	struct genai_error err = GENAI_ERROR_INIT;
	char path[512];
	int32_t rc;

	memset(r, 0, sizeof(*r));
	r->rt = rt;
	r->model = model_name;
	r->got = calloc(MAX_GOT, sizeof(*r->got));
	kit_path(path, sizeof(path), model_name);
	rc = genai_engine_open(rt, path, o, &r->e, &err);
	ck_assert_msg(!rc, "%s", err.text);
}

static inline void engine_open_on(struct engine_run *r, const char *executor,
				  const char *pager, const char *model_name,
				  const struct genai_engine_options *o)
{
	learn(model_name);
	engine_on(r, runtime(executor, pager, "auto", NULL), model_name, o);
}

/* A runtime with settings that differ by seed; NULL if a fault of the device
 * came while it was brought up. */
static inline struct genai_runtime *seeded_runtime(uint64_t seed, bool faults)
{
	static const char *const execs[] = {"eager", "captured"};
	static const char *const pagers[] = {"pager_sync", "pager_async"};
	char set[10][512];
	const char *sets[10];
	uint64_t s = seed;
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = GENAI_TESTDATA
					  "/../../conf/cpu.ini",
					  .sets = sets,
					  .log = keep_log};
	struct genai_runtime *rt = NULL;
	uint32_t n = 0;

#define SET(...) snprintf(set[n++], 512, __VA_ARGS__)
	SET("runtime.module_path=%s", GENAI_TESTMODULES);
	SET("runtime.executor=cpu_ref:%s", execs[rnd(&s) % 2]);
	SET("runtime.pager=%s", pagers[rnd(&s) % 2]);
	SET("runtime.weight_budget=%s", rnd(&s) % 3 ? "auto" : "40%");
	SET("runtime.check=order");
	SET("runtime.speculation=off"); /* or as options say */
	SET("module.cpu_ref.threads=1");
	SET("module.cpu_ref.schedule=random:%u", rnd(&s) % 1000);
	if (faults)
		SET("module.cpu_ref.fault=copy:%u", 60 + rnd(&s) % 900);
#undef SET
	for (uint32_t i = 0; i < n; i++)
		sets[i] = set[i];
	o.n_sets = n;
	logged.n = 0;
	if (genai_open(&o, &rt, &err))
		ck_assert_msg(faults, "%s", err.text);
	return rt;
}

/* All that began has ended. */
static inline void check_quiet(struct engine_run *r)
{
	struct genai_engine_stats st = {.size = sizeof(st)};

	for (int i = 0; i < 2000; i++) {
		ck_assert(!genai_engine_get_stats(r->e, &st));
		if (!st.running && !st.waiting && !st.blocks_used)
			break;
		usleep(500);
	}
	SAME(!st.blocks_used, "%u blocks are used", st.blocks_used);
	SAME(!st.running && !st.waiting, "%u run, %u wait", st.running,
	     st.waiting);
}

static inline void engine_close(struct engine_run *r)
{
	genai_engine_close(r->e);
	genai_close(r->rt);
	free(r->got);
	SAME(!logged.n, "%s", logged.lines[0]);
}

static inline uint64_t submit(struct engine_run *r, const struct want *w,
			      const struct genai_request *more)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_request q = GENAI_REQUEST_INIT;
	uint64_t id = 0;
	int32_t rc;

	if (more)
		q = *more;
	else
		q.max_tokens = w->new_tokens;
	q.flags |= GENAI_REQUEST_IGNORE_EOS;
	q.ids = w->prompt;
	q.n_ids = w->n_prompt;
	q.sampling = &w->sampling;
	rc = genai_engine_submit(r->e, &q, &id, &err);
	ck_assert_msg(!rc, "%s", err.text);
	r->asked += q.n;
	return id;
}

static inline struct got *got_of(struct engine_run *r, uint64_t id,
				 uint32_t choice)
{
	struct got *g;

	for (size_t i = 0; i < r->n_got; i++)
		if (r->got[i].request == id && r->got[i].choice == choice)
			return &r->got[i];
	ck_assert_uint_lt(r->n_got, MAX_GOT);
	g = &r->got[r->n_got++];
	memset(g, 0, sizeof(*g));
	g->request = id;
	g->choice = choice;
	return g;
}

/* Take an event, if one comes in time. */
static inline bool take(struct engine_run *r, int32_t timeout_ms)
{
	struct genai_event ev = {.size = sizeof(ev)};
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_engine_next(r->e, timeout_ms, &ev, &err);
	struct got *g;

	if (rc == GENAI_PENDING)
		return false;
	ck_assert_msg(!rc, "%s", err.text);
	g = got_of(r, ev.request, ev.choice);
	ck_assert_msg(!g->finish, "an event after the last one");
	if (ev.kind == GENAI_EVENT_TOKEN) {
		if (g->n < MAX_NEW)
			g->ids[g->n] = ev.id;
		g->n++;
	}
	if (ev.text_bytes)
		strncat(g->text, ev.text,
			sizeof(g->text) - strlen(g->text) - 1);
	if (ev.kind == GENAI_EVENT_DONE) {
		g->finish = ev.finish;
		g->done = ev;
		if (ev.error)
			snprintf(g->error, sizeof(g->error), "%s", ev.error);
		r->n_ended++;
	}
	return true;
}

static inline void wait_all(struct engine_run *r)
{
	while (r->n_ended < r->asked)
		ck_assert_msg(take(r, 60000), "%zu of %llu ended", r->n_ended,
			      (unsigned long long)r->asked);
	check_quiet(r);
}

static inline void forget_all(struct engine_run *r)
{
	r->n_got = r->n_ended = 0;
	r->asked = 0;
}

static inline void check_prefix(const struct got *g, const struct want *w)
{
	for (size_t i = 0; i < g->n && i < MAX_NEW; i++)
		SAME(g->ids[i] == w->ids[i],
		     "request %llu: token %zu is %lld, alone %lld",
		     (unsigned long long)g->request, i, (long long)g->ids[i],
		     (long long)w->ids[i]);
}

static inline void check_tokens(struct engine_run *r, uint64_t id,
				uint32_t choice, const struct want *w,
				uint32_t finish)
{
	const struct got *g = got_of(r, id, choice);

	SAME(g->finish == finish, "finish %u: %s", g->finish, g->error);
	SAME(g->n == (size_t)w->new_tokens, "%zu tokens", g->n);
	check_prefix(g, w);
}

struct asked {
	uint64_t id;
	struct want w;
	uint32_t n;
	bool may_end; /* cancelled, or with a deadline */
};

/* Some requests, at most so many, at random times, some of which are cancelled:
 * each gets the tokens of its template. */
static inline void episode(struct engine_run *r, uint64_t *seed, uint32_t most)
{
	static const char *const salts[] = {NULL, "a", "b"};
	struct asked a[12];
	uint32_t n = 2 + rnd(seed) % (most - 1);

	for (uint32_t i = 0; i < n; i++) {
		struct genai_request q = GENAI_REQUEST_INIT;
		struct asked *x = &a[i];

		*x = (struct asked){
			.w = template_of((int)(rnd(seed) % TEMPLATES))};
		q.max_tokens = x->w.new_tokens;
		q.priority = (int32_t)(rnd(seed) % 3);
		q.salt = salts[rnd(seed) % 8 % 3];
		q.flags = rnd(seed) % 6 ? 0 : GENAI_REQUEST_NO_CACHE;
		x->n = q.n = x->w.sampling.do_sample ? 1 : 1 + rnd(seed) % 2;
		if (!(rnd(seed) % 12)) {
			q.deadline_ms = 1 + rnd(seed) % 4;
			x->may_end = true;
		}
		x->id = submit(r, &x->w, &q);
		for (uint32_t k = rnd(seed) % 30; k; k--)
			take(r, rnd(seed) % 4 ? 0 : 1);
		if (!(rnd(seed) % 5)) {
			struct asked *y = &a[rnd(seed) % (i + 1)];

			ck_assert(!genai_engine_cancel(r->e, y->id, NULL));
			y->may_end = true;
		}
	}
	wait_all(r);
	for (uint32_t i = 0; i < n; i++)
		for (uint32_t c = 0; c < a[i].n; c++) {
			const struct got *g = got_of(r, a[i].id, c);

			if (a[i].may_end && g->finish >= GENAI_FINISH_CANCELLED)
				check_prefix(g, &a[i].w);
			else
				check_tokens(r, a[i].id, c, &a[i].w,
					     GENAI_FINISH_LENGTH);
		}
	forget_all(r);
}

#endif
