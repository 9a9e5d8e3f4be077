// subject.c - a model under one configuration.
#include "tests/golden/subject.h"

#include <string.h>

#include "core/model/model.h"

static void quiet(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	(void)level;
	(void)text;
}

void subject_close(struct subject *u)
{
	genai_session_close(u->s);
	genai_model_close(u->model);
	genai_close(u->rt);
	memset(u, 0, sizeof(*u));
}

#define MOST_SETS 80

struct settings {
	char text[8][400];
	const char *v[MOST_SETS];
	uint32_t n;
};

static void set(struct settings *s, const char *fmt, const char *a,
		const char *b, const char *c)
{
	if (!a)
		return;
	snprintf(s->text[s->n], sizeof(s->text[0]), fmt, a, b, c);
	s->v[s->n] = s->text[s->n];
	s->n++;
}

static void settings(struct settings *s, const struct subject_where *where,
		     const struct subject_cell *c)
{
	s->n = 0;
	set(s, "runtime.context=%s", "auto", NULL, NULL);
	if (where->modules) {
		set(s, "module.%s.path=%s/%s.so", where->device, where->modules,
		    where->device);
		set(s, "module.%s.path=%s/%s.so", c->pager, where->modules,
		    c->pager);
	}
	if (where->device) {
		set(s, "runtime.executor=%s:%s", where->device, c->executor,
		    NULL);
		set(s, "runtime.stream=%s", where->device, NULL, NULL);
		set(s, "runtime.barrier=%s", where->device, NULL, NULL);
	}
	set(s, "runtime.pager=%s", c->pager, NULL, NULL);
	set(s, "runtime.weight_budget=%s", c->budget, NULL, NULL);
	for (uint32_t i = 0; i < where->n_sets && s->n < MOST_SETS; i++)
		s->v[s->n++] = where->sets[i];
}

int32_t subject_open(struct subject *u, const struct subject_where *where,
		     const char *folder, const struct subject_cell *c, bool all,
		     struct genai_error *err)
{
	struct settings s;
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = where->config,
					  .sets = s.v,
					  .log = quiet};
	struct genai_model_options mo = {
		.size = sizeof(mo), .flags = all ? GENAI_MODEL_ALL_LOGITS : 0};
	int32_t rc;

	settings(&s, where, c);
	o.n_sets = s.n;
	memset(u, 0, sizeof(*u));
	rc = genai_open(&o, &u->rt, err);
	if (!rc)
		rc = genai_model_open(u->rt, folder, &mo, &u->model, err);
	u->info.size = sizeof(u->info);
	if (!rc)
		rc = genai_model_get_info(u->model, &u->info);
	if (!rc)
		rc = genai_session_open(u->model, &u->s, err);
	if (rc)
		subject_close(u);
	return rc;
}

uint32_t subject_dtype(const struct subject *u)
{
	const struct genai_step *st = &u->model->step;

	return st->states.n ? st->states.v[0].dtype : GENAI_DT_F32;
}

uint32_t subject_layers(const struct subject *u)
{
	return u->model->step.states.n / 2;
}

// fp16 and bf16 graphs compute in their own type; the goldens widened it.
struct golden_tolerance subject_tolerance(const struct subject *u)
{
	uint32_t dtype = subject_dtype(u);
	bool big = u->info.weights_bytes > 32 << 20;

	if (dtype == GENAI_DT_BF16)
		return (struct golden_tolerance){0.4, 0.05};
	if (dtype == GENAI_DT_F16)
		return (struct golden_tolerance){big ? 0.15 : 0.06, 0.01};
	return (struct golden_tolerance){big ? 5e-4 : 1e-4, 1e-4};
}
