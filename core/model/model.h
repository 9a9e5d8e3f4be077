/* model.h - an open model: graph, plan, weights, and what its sessions share.
 * session.c owns one sequence; this owns the rest. */
#ifndef GENAI_CORE_MODEL_MODEL_H
#define GENAI_CORE_MODEL_MODEL_H

#include "core/model/genai_config.h"
#include "core/onnx/onnx.h"
#include "core/model/paging.h"
#include "core/runtime.h"
#include "core/model/step.h"

struct genai_model {
	struct genai_user user; /* of the runtime; first */
	struct genai_runtime *rt;
	char folder[4096];
	struct genai_model_config config;
	struct genai_onnx *onnx;
	struct genai_step step;
	struct genai_paging paging;
	struct genai_stream *stream; /* compute; shared by all sessions */
	struct genai_plan *plan;     /* made at open; the first session's */
	bool plan_taken;
	bool all_logits;
	bool no_config; /* the folder has no genai_config.json */
	uint64_t context, model_context, chunk;
	uint32_t vocab;
	uint32_t n_sessions;
	struct genai_session *sessions; /* list */
	double load_s;
	struct genai_exec_stats closed; /* of plans that are gone */
};

/* The most rows of logits that a step makes. */
static inline uint64_t genai_model_rows(const struct genai_model *m)
{
	return m->all_logits && !m->step.one_row ? m->chunk : 1;
}

/* model_plan.c: a plan of the step graph; its largest inputs are the context
 * and chunk. */
int32_t genai_model_plan(struct genai_model *m, struct genai_plan **out_plan,
			 struct genai_error *err);
/* The folder of a path that may name a .onnx file in it. */
int32_t genai_model_folder(const char *path, char *out, size_t cap,
			   char *out_file, size_t file_cap,
			   struct genai_error *err);

#endif
