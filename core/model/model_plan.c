// model_plan.c - a plan of a model's step graph.
#include "core/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

static void fill_view(struct genai_view *v, uint32_t dtype, uint32_t rank,
		      int64_t a, int64_t b)
{
	memset(v, 0, sizeof(*v));
	v->size = sizeof(*v);
	v->dtype = dtype;
	v->rank = rank;
	v->dims[0] = a;
	v->dims[1] = b;
	v->strides[0] = rank == 2 ? b : 1;
	v->strides[1] = 1;
}

static void fill_rows(const struct genai_model *m, struct genai_view *in,
		      uint64_t rows)
{
	if (m->step.rows == GENAI_NONE)
		return;
	fill_view(&in[m->step.rows], GENAI_DT_I64, 1, (int64_t)rows, 1);
	fill_view(&in[m->step.begins], GENAI_DT_I64, 1, (int64_t)rows, 1);
}

static void fill_index(const struct genai_model *m, struct genai_view *in,
		       uint64_t rows)
{
	if (m->step.turn == GENAI_NONE)
		return;
	fill_view(&in[m->step.index], GENAI_DT_I64, 1, (int64_t)rows, 1);
	fill_view(&in[m->step.turn], GENAI_DT_I64, 1, 1, 1);
}

int32_t genai_model_plan(struct genai_model *m, struct genai_plan **out_plan,
			 struct genai_error *err)
{
	struct genai_runtime *rt = m->rt;
	struct genai_plan *plan = NULL;
	struct genai_plan_options o = {
		.size = sizeof(o),
		.stream = &rt->device.stream,
		.barrier = &rt->device.barrier,
		.pager = &m->paging.api,
		.n_max_inputs = m->step.graph->n_inputs,
	};
	// the largest step; behind it the one of a single position
	uint32_t n = o.n_max_inputs;
	struct genai_view *max = calloc(2 * (size_t)n + 1, sizeof(*max));
	int32_t rc;

	if (!max)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	fill_view(&max[m->step.ids], GENAI_DT_I64, 2, 1, (int64_t)m->chunk);
	fill_view(&max[m->step.past], GENAI_DT_I32, 1, 1, 1);
	fill_rows(m, max, genai_model_rows(m));
	fill_index(m, max, m->chunk);
	for (uint32_t i = 0; i < m->step.states.n; i++) {
		const struct genai_state *s = &m->step.states.v[i];

		genai_state_view(s, 0, m->context, &max[s->in]);
	}
	memcpy(max + n, max, n * sizeof(*max));
	fill_view(&max[n + m->step.ids], GENAI_DT_I64, 2, 1, 1);
	fill_rows(m, max + n, 1);
	fill_index(m, max + n, 1);
	o.max_inputs = max;
	o.repeated = max + n;
	o.n_repeated = 1;
	rc = rt->exec.plan_create(genai_module_self(rt->executor.module),
				  m->step.graph, &o, &plan, err);
	free(max);
	if (rc)
		return rc;
	if (!plan)
		return genai_fail(err, GENAI_E_MODULE,
				  "module %s: plan_create gave no plan",
				  genai_module_name(rt->executor.module));
	*out_plan = plan;
	return 0;
}
