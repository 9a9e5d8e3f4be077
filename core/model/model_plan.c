// model_plan.c - a plan of a model's step graph.
#include "core/model/model.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

#define MAX_REPEATED 8 // 1, 2, 4, ... GENAI_MAX_SEQS

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

static void fill_index(const struct genai_model *m, struct genai_view *in,
		       uint64_t rows)
{
	if (m->step.turn == GENAI_NONE)
		return;
	fill_view(&in[m->step.index], GENAI_DT_I64, 1, (int64_t)rows, 1);
	fill_view(&in[m->step.turn], GENAI_DT_I64, 1, 1, 1);
}

// Inputs of a step of so many rows.
static void fill(const struct genai_model *m, struct genai_view *in,
		 uint64_t rows)
{
	const struct genai_packing *k = &m->packing;
	int64_t most = (int64_t)genai_model_rows(m), n = (int64_t)rows;

	if (most > n)
		most = n;
	fill_view(&in[m->step.ids], GENAI_DT_I64, 2, 1, n);
	fill_view(&in[m->step.past], GENAI_DT_I32, 1, k->seqs ? most : 1, 1);
	if (m->step.rows != GENAI_NONE)
		fill_view(&in[m->step.rows], GENAI_DT_I64, 1, most, 1);
	fill_index(m, in, rows);
	if (k->seqs) {
		fill_view(&in[m->step.begins], GENAI_DT_I64, 1, most, 1);
		fill_view(&in[m->step.first], GENAI_DT_I32, 1, most + 1, 1);
		fill_view(&in[m->step.table], GENAI_DT_I32, 2, most,
			  k->per_seq);
	}
	if (m->step.positions != GENAI_NONE)
		fill_view(&in[m->step.positions], GENAI_DT_I64, 2, 1, n);
	for (uint32_t i = 0; i < m->step.states.n; i++) {
		const struct genai_state *s = &m->step.states.v[i];

		if (k->seqs)
			genai_state_blocks(s, 0, k->blocks, k->block,
					   &in[s->in]);
		else
			genai_state_view(s, 0, m->context, &in[s->in]);
	}
}

// Row counts of the steps that come again and again: one, and, packed, those
// that few rows are rounded up to.
static uint32_t repeated(const struct genai_model *m, uint64_t *rows)
{
	uint32_t n = 0;

	for (uint64_t r = 1; !n || rows[n - 1] < m->packing.seqs; r++)
		if (!n || genai_packed_rows(m, r) != rows[n - 1])
			rows[n++] =
				m->packing.seqs ? genai_packed_rows(m, r) : 1;
	return n;
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
	// the largest step; behind it those that are repeated
	uint32_t n = o.n_max_inputs;
	struct genai_view *max;
	uint64_t rows[MAX_REPEATED];
	int32_t rc;

	o.n_repeated = repeated(m, rows);
	max = calloc((1 + (size_t)o.n_repeated) * n + 1, sizeof(*max));
	if (!max)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	fill(m, max, m->chunk);
	for (uint32_t i = 0; i < o.n_repeated; i++) {
		uint32_t at = m->packing.full ? o.n_repeated - 1 - i : i;

		fill(m, max + (size_t)(i + 1) * n, rows[at]);
	}
	o.max_inputs = max;
	o.repeated = max + n;
	// caches that are made anew have another length in every step
	if (m->step.states.n_joined)
		o.n_repeated = 0;
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
