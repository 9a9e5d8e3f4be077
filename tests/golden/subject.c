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

int32_t subject_open(struct subject *u, const struct subject_where *where,
		     const char *folder, const struct subject_cell *c, bool all,
		     struct genai_error *err)
{
	char set[8][400];
	const char *sets[8];
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = where->config,
					  .sets = sets,
					  .n_sets = 8,
					  .log = quiet};
	struct genai_model_options mo = {
		.size = sizeof(mo), .flags = all ? GENAI_MODEL_ALL_LOGITS : 0};
	int32_t rc;

	snprintf(set[0], 400, "module.%s.path=%s/%s.so", where->device,
		 where->modules, where->device);
	snprintf(set[1], 400, "module.%s.path=%s/%s.so", c->pager,
		 where->modules, c->pager);
	snprintf(set[2], 400, "runtime.executor=%s:%s", where->device,
		 c->executor);
	snprintf(set[3], 400, "runtime.pager=%s", c->pager);
	snprintf(set[4], 400, "runtime.weight_budget=%s", c->budget);
	snprintf(set[5], 400, "runtime.context=auto");
	snprintf(set[6], 400, "runtime.stream=%s", where->device);
	snprintf(set[7], 400, "runtime.barrier=%s", where->device);
	for (int i = 0; i < 8; i++)
		sets[i] = set[i];
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

// fp16 and bf16 graphs compute in their own type; the goldens widened it.
struct golden_tolerance subject_tolerance(const struct subject *u)
{
	const struct genai_step *st = &u->model->step;
	uint32_t dtype = st->n_layers ? st->layers[0].dtype : GENAI_DT_F32;
	bool big = u->info.weights_bytes > 32 << 20;

	if (dtype == GENAI_DT_BF16)
		return (struct golden_tolerance){0.4, 0.05};
	if (dtype == GENAI_DT_F16)
		return (struct golden_tolerance){big ? 0.15 : 0.06, 0.01};
	return (struct golden_tolerance){big ? 5e-4 : 1e-4, 1e-4};
}
