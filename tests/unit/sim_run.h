/* sim_run.h - a model on the simulated device, for tests: open it with some
 * settings, feed it, take its tokens and its times. */
#ifndef GENAI_TESTS_SIM_RUN_H
#define GENAI_TESTS_SIM_RUN_H

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <genai/genai.h>

#define SIM_MODELS GENAI_TESTDATA "/models/"
#define SIM_SETS 24

struct sim_run {
	struct genai_runtime *rt;
	struct genai_model *model;
	struct genai_session *session;
	struct genai_error err;
	char text[SIM_SETS][256];
	const char *sets[SIM_SETS];
	uint32_t n_sets;
	char log[1024]; /* the last error line */
};

static inline void sim_log(void *ctx, int32_t level, const char *text)
{
	struct sim_run *r = ctx;

	if (level == 1)
		snprintf(r->log, sizeof(r->log), "%s", text);
}

static inline void sim_set(struct sim_run *r, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static inline void sim_set(struct sim_run *r, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(r->text[r->n_sets], sizeof(r->text[0]), fmt, ap);
	va_end(ap);
	r->sets[r->n_sets] = r->text[r->n_sets];
	r->n_sets++;
}

/* Settings that every test wants; more may follow with sim_set. */
static inline void sim_init(struct sim_run *r, const char *executor,
			    const char *pager)
{
	memset(r, 0, sizeof(*r));
	r->err = (struct genai_error)GENAI_ERROR_INIT;
	sim_set(r, "runtime.module_path=%s", GENAI_TESTMODULES);
	sim_set(r, "runtime.executor=cpu_ref:%s", executor);
	sim_set(r, "runtime.pager=%s", pager);
	sim_set(r, "module.cpu_ref.threads=1");
}

static inline int32_t sim_open_at(struct sim_run *r, const char *path)
{
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = GENAI_TESTDATA
					  "/../../conf/cpu.ini",
					  .sets = r->sets,
					  .n_sets = r->n_sets,
					  .log = sim_log,
					  .log_ctx = r};
	int32_t rc = genai_open(&o, &r->rt, &r->err);

	if (!rc)
		rc = genai_model_open(r->rt, path, NULL, &r->model, &r->err);
	if (!rc)
		rc = genai_session_open(r->model, &r->session, &r->err);
	return rc;
}

/* A model of the test data. */
static inline int32_t sim_open(struct sim_run *r, const char *model)
{
	char path[1024];

	snprintf(path, sizeof(path), "%s%s", SIM_MODELS, model);
	return sim_open_at(r, path);
}

static inline void sim_close(struct sim_run *r)
{
	genai_session_close(r->session);
	genai_model_close(r->model);
	genai_close(r->rt);
	r->session = NULL;
	r->model = NULL;
	r->rt = NULL;
}

static inline int32_t sim_next(struct sim_run *r, int64_t *ids, uint32_t n,
			       int32_t ahead)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n; i++)
		rc = genai_session_next(r->session, ahead && i + 1 < n, &ids[i],
					&r->err);
	return rc;
}

/* The life that every configuration must get through alike: a prompt, tokens,
 * a second prompt, tokens, a rewind, a third prompt, tokens. */
#define SIM_TALK 18
static inline int32_t sim_talk(struct sim_run *r, int64_t ids[SIM_TALK])
{
	static const int64_t a[] = {1, 5, 9, 33, 7}, b[] = {8, 120, 3};
	int32_t rc = genai_session_append(r->session, a, 5, &r->err);

	if (!rc)
		rc = sim_next(r, ids, 6, 1);
	if (!rc)
		rc = genai_session_append(r->session, b, 3, &r->err);
	if (!rc)
		rc = sim_next(r, ids + 6, 6, 1);
	if (!rc)
		rc = genai_session_rewind(r->session, 7, &r->err);
	if (!rc)
		rc = genai_session_append(r->session, b, 2, &r->err);
	return rc ? rc : sim_next(r, ids + 12, 6, 1);
}

static inline struct genai_stats sim_stats(struct sim_run *r)
{
	struct genai_stats st = {.size = sizeof(st)};

	genai_model_get_stats(r->model, &st, NULL);
	return st;
}

#endif
