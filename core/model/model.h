/* model.h - an open model: graph, plan, weights, and what its sessions share.
 * session.c owns one sequence; this owns the rest. */
#ifndef GENAI_CORE_MODEL_MODEL_H
#define GENAI_CORE_MODEL_MODEL_H

#include "core/model/genai_config.h"
#include "core/onnx/onnx.h"
#include "core/model/paging.h"
#include "core/runtime.h"
#include "core/model/step.h"

#define GENAI_MAX_SEQS 128

/* Of a model whose steps many sequences share: how many there may be, and the
 * pool of blocks of positions that they take from. */
struct genai_packing {
	uint32_t seqs;	/* 0: not packed */
	uint32_t block; /* positions of one */
	uint32_t blocks;
	uint32_t per_seq; /* blocks that a whole context takes */
	bool dry;	  /* weights are not placed */
	bool full;	  /* work of a step is about one of all sequences */
};

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
	struct genai_packing packing;
	uint64_t plan_bytes; /* on the device, of a plan of it */
	bool no_config;	     /* the folder has no genai_config.json */
	uint64_t context, model_context, chunk;
	uint32_t vocab;
	uint32_t n_sessions;
	struct genai_session *sessions; /* list */
	double load_s;
	struct genai_exec_stats closed; /* of plans that are gone */
};

/* What the driver took for itself since the start: code, local memory,
 * graphs. */
uint64_t genai_model_driver_bytes(struct genai_device *d);
/* The most rows of logits that a step makes. */
static inline uint64_t genai_model_rows(const struct genai_model *m)
{
	if (m->packing.seqs)
		return m->packing.seqs;
	return m->all_logits && !m->step.one_row ? m->chunk : 1;
}

/* Rows of a packed step for so many: few are rounded up, so that the steps that
 * come again and again have few sizes. */
static inline uint64_t genai_packed_rows(const struct genai_model *m,
					 uint64_t rows)
{
	uint64_t n = 1;

	if (rows > m->packing.seqs)
		return rows;
	while (n < rows)
		n *= 2;
	return n < m->packing.seqs ? n : m->packing.seqs;
}

/* As genai_model_open, for packed steps.  packing says seqs and block; blocks
 * is the most there may be, 0: what memory has room for.  It has no sessions:
 * core/engine submits its steps.
 * Errors: also GENAI_E_UNSUPPORTED where sequences cannot share a step. */
int32_t genai_model_open_packed(struct genai_runtime *rt, const char *path,
				const struct genai_packing *packing,
				struct genai_model **out_model,
				struct genai_error *err);

/* model_plan.c: a plan of the step graph; its largest inputs are the context
 * and chunk. */
int32_t genai_model_plan(struct genai_model *m, struct genai_plan **out_plan,
			 struct genai_error *err);

#endif
