// pipeline.c - the stages of a decoder-pipeline, joined by their names.
#include "core/model/pipeline.h"

#include <stdio.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"

#define MAX_ALIASES (GENAI_MAX_STAGES * GENAI_MAX_FORWARDS)

struct join {
	struct {
		const char *name;
		uint32_t value;
	} alias[MAX_ALIASES];
	uint32_t n_aliases;
};

static uint32_t link(void *ctx, struct genai_builder *b, const char *name)
{
	const struct join *j = ctx;
	uint32_t v;

	for (uint32_t i = j->n_aliases; i-- > 0;)
		if (!strcmp(j->alias[i].name, name))
			return j->alias[i].value;
	v = genai_builder_find(b, name);
	if (v == GENAI_NONE || !(genai_builder_get_value(b, v)->flags &
				 (GENAI_VALUE_INPUT | GENAI_VALUE_OUTPUT)))
		return GENAI_NONE;
	// what goes on to another stage is no result
	if (genai_builder_get_value(b, v)->flags & GENAI_VALUE_OUTPUT)
		genai_builder_remove_output(b, v);
	return v;
}

static int32_t forward(struct join *j, struct genai_builder *b,
		       const struct genai_stage *s, struct genai_error *err)
{
	for (uint32_t i = 0; i < s->n_forwards; i++) {
		uint32_t v = genai_builder_find(b, s->forward[i][0]);

		if (v == GENAI_NONE)
			return genai_fail(err, GENAI_E_FORMAT,
					  "stage %s forwards %s, which it does "
					  "not give",
					  s->name, s->forward[i][0]);
		if (genai_builder_get_value(b, v)->flags & GENAI_VALUE_OUTPUT)
			genai_builder_remove_output(b, v);
		j->alias[j->n_aliases].name = s->forward[i][1];
		j->alias[j->n_aliases++].value = v;
	}
	return 0;
}

static int32_t load(const char *folder, const char *file,
		    const struct genai_onnx_options *o, struct genai_onnx **out,
		    struct genai_error *err)
{
	char path[4500];

	snprintf(path, sizeof(path), "%s/%s", folder, file);
	return genai_onnx_load(path, o, out, err);
}

int32_t genai_pipeline_load(const char *folder, const char *file,
			    const struct genai_model_config *c,
			    const struct genai_onnx_options *o,
			    struct genai_onnx **out, struct genai_error *err)
{
	struct genai_onnx *parts[GENAI_MAX_STAGES] = {0};
	struct genai_graph *g = NULL;
	struct genai_builder *b;
	struct join j = {0};
	uint32_t n = 0;
	int32_t rc = 0;

	if (*file || !c->n_stages)
		return load(folder, *file ? file : c->filename, o, out, err);
	b = genai_builder_open("pipeline");
	for (; !rc && n < c->n_stages; n++) {
		const struct genai_stage *s = &c->stages[n];

		rc = load(folder, s->filename, o, &parts[n], err);
		if (rc)
			break;
		genai_builder_join(b, genai_onnx_graph(parts[n]), s->name, link,
				   &j);
		rc = b ? forward(&j, b, s, err) : 0;
	}
	if (rc)
		genai_builder_close(b);
	else
		rc = genai_builder_finish(b, &g, err);
	if (!rc)
		rc = genai_onnx_join(parts, n, g, out, err);
	if (!rc)
		return 0;
	genai_graph_free(g);
	for (uint32_t i = 0; i < GENAI_MAX_STAGES; i++)
		genai_onnx_close(parts[i]);
	return rc;
}
