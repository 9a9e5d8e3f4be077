/* plan_layout.c - where values live, and which weights a step visits. */
#include <stdio.h>
#include "modules/cuda_ep/plan.h"

#define ALIGN(x) (((x) + 255) & ~UINT64_C(255))

/* The input of such a node lives as long as any output. */
static void keep_input(struct genai_plan *p, const struct cep_variant *v,
		       const struct cep_node *n)
{
	struct cep_value *in = &p->values[cep_root(v, n->in_value[0])];

	for (uint32_t i = 0; i < n->n_out; i++) {
		uint32_t last;

		if (!n->out[i])
			continue;
		last = p->values[cep_root(v, n->out_value[i])].last;
		if (last != GENAI_NONE &&
		    (in->last == GENAI_NONE || in->last < last))
			in->last = last;
	}
}

/* Which nodes need the bytes of every root; which known values go to the
 * device. */
static void lifetimes(struct genai_plan *p, const struct cep_variant *v)
{
	const struct genai_graph *g = p->graph;

	for (uint32_t i = 0; i < g->n_values; i++)
		p->values[i].first = p->values[i].last = GENAI_NONE;
	for (uint32_t k = 0; k < g->n_nodes; k++) {
		const struct cep_node *n = &v->nodes[k];

		for (uint32_t i = 0; i < n->n_in; i++)
			if (n->in[i] && cep_reads(n, i))
				p->values[cep_root(v, n->in_value[i])].last = k;
		for (uint32_t i = 0; i < n->n_out; i++) {
			struct cep_value *x;

			if (!n->out[i] || n->folded || n->absorbed ||
			    n->out[i]->root != CEP_OWN)
				continue;
			x = &p->values[n->out_value[i]];
			x->first = x->last = k;
		}
	}
	for (uint32_t o = 0; o < g->n_outputs; o++)
		p->values[cep_root(v, g->outputs[o])].last = g->n_nodes;
	/* backwards, so that chains add up */
	for (uint32_t k = g->n_nodes; k-- > 0;)
		if (v->nodes[k].op->may_alias)
			keep_input(p, v, &v->nodes[k]);
}

static void classify(struct genai_plan *p, const struct cep_variant *v)
{
	const struct genai_graph *g = p->graph;

	for (uint32_t i = 0; i < g->n_values; i++) {
		struct cep_value *x = &p->values[i];
		const struct cep_tensor *t = &v->tensors[i];

		x->bytes = cep_bytes(t);
		if (t->root != CEP_OWN)
			continue;
		if (t->value && x->last != GENAI_NONE)
			x->storage =
				genai_graph_value(g, i)->tensor != GENAI_NONE &&
						x->bytes > CEP_CONST_BYTES
					? CEP_ST_WEIGHT
					: CEP_ST_CONST;
		else if (x->first != GENAI_NONE)
			x->storage = CEP_ST_ARENA;
	}
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		p->values[g->inputs[i]].storage = CEP_ST_INPUT;
		p->values[g->inputs[i]].index = i;
	}
	for (uint32_t o = 0; o < g->n_outputs; o++) {
		struct cep_value *x = &p->values[g->outputs[o]];

		if (x->storage != CEP_ST_ARENA)
			continue; /* moved at the end of the step */
		x->storage = CEP_ST_OUTPUT;
		x->index = o;
		x->has_room = x->bytes <= CEP_LATE_BYTES;
	}
}

static bool in_arena(const struct cep_value *x)
{
	return x->bytes && (x->storage == CEP_ST_ARENA ||
			    (x->storage == CEP_ST_OUTPUT && x->has_room));
}

static bool meet(const struct cep_value *a, const struct cep_value *b)
{
	uint32_t a_last = a->storage == CEP_ST_OUTPUT ? GENAI_NONE : a->last;
	uint32_t b_last = b->storage == CEP_ST_OUTPUT ? GENAI_NONE : b->last;

	return a->first <= b_last && b->first <= a_last;
}

/* First fit in the order of birth: the lowest place not taken by a value that
 * lives at the same time. */
static int32_t place_all(struct genai_plan *p, struct genai_error *err)
{
	uint32_t n = p->graph->n_values, placed = 0;
	uint32_t *order = cep_zalloc(p->self, (uint64_t)n * sizeof(*order));

	if (!order)
		return cep_fail(p->self, err, GENAI_E_NOMEM, "out of memory");
	for (uint32_t k = 0; k < p->graph->n_nodes; k++) {
		const struct genai_node *node = genai_graph_node(p->graph, k);

		for (uint32_t i = 0; i < node->n_outputs; i++) {
			uint32_t value = node->outputs[i];
			struct cep_value *x;
			uint64_t at = 0;
			bool again = true;

			if (value == GENAI_NONE || !in_arena(&p->values[value]))
				continue;
			x = &p->values[value];
			while (again) {
				again = false;
				for (uint32_t j = 0; j < placed; j++) {
					const struct cep_value *y =
						&p->values[order[j]];

					if (meet(x, y) &&
					    at < y->offset + ALIGN(y->bytes) &&
					    y->offset < at + ALIGN(x->bytes)) {
						at = y->offset +
						     ALIGN(y->bytes);
						again = true;
					}
				}
			}
			x->offset = at;
			order[placed++] = value;
			if (at + ALIGN(x->bytes) > p->arena_bytes)
				p->arena_bytes = at + ALIGN(x->bytes);
		}
	}
	p->self->host->free(p->self->host->ctx, order);
	return 0;
}

int32_t cep_layout(struct genai_plan *p, const struct cep_variant *v,
		   struct genai_error *err)
{
	int32_t rc;

	lifetimes(p, v);
	classify(p, v);
	rc = place_all(p, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->graph->n_values; i++) {
		struct cep_value *x = &p->values[i];

		if (x->storage != CEP_ST_CONST)
			continue;
		x->offset = p->const_bytes;
		p->const_bytes += (x->bytes + 31) & ~UINT64_C(15);
	}
	p->const_bytes = ALIGN(p->const_bytes);
	for (uint32_t k = 0; k < p->graph->n_nodes; k++) {
		const struct cep_node *n = &v->nodes[k];

		if (n->workspace_bytes > p->workspace_bytes)
			p->workspace_bytes = n->workspace_bytes;
		p->sync_offset[k] = p->sync_bytes;
		p->sync_bytes += (n->sync_bytes + 15) & ~UINT64_C(15);
	}
	p->workspace_at = ALIGN(p->arena_bytes);
	p->sync_at = p->workspace_at + ALIGN(p->workspace_bytes);
	p->const_at = p->sync_at + ALIGN(p->sync_bytes);
	return 0;
}

int32_t cep_layout_check(const struct genai_plan *p,
			 const struct cep_variant *v, struct genai_error *err)
{
	for (uint32_t i = 0; i < p->graph->n_values; i++) {
		const struct cep_value *x = &p->values[i];

		if ((in_arena(x) || x->storage == CEP_ST_CONST) &&
		    cep_bytes(&v->tensors[i]) > x->bytes)
			return cep_fail(
				p->self, err, GENAI_E_LIMIT,
				"value %s needs %llu bytes, more than "
				"the %llu of the largest shapes",
				v->tensors[i].name,
				(unsigned long long)cep_bytes(&v->tensors[i]),
				(unsigned long long)x->bytes);
	}
	for (uint32_t k = 0; k < p->graph->n_nodes; k++) {
		const struct cep_node *n = &v->nodes[k];
		uint64_t room =
			(k + 1 < p->graph->n_nodes ? p->sync_offset[k + 1]
						   : p->sync_bytes) -
			p->sync_offset[k];

		if (n->workspace_bytes > p->workspace_bytes ||
		    n->sync_bytes > room)
			return cep_node_fail(
				n, err, GENAI_E_LIMIT,
				"%llu bytes of scratch, more than "
				"the %llu of the largest shapes",
				(unsigned long long)n->workspace_bytes,
				(unsigned long long)p->workspace_bytes);
	}
	return 0;
}

/* ---- visits ---- */

static void copy_fill(void *ctx, void *dst, uint64_t bytes, const void *src,
		      uint64_t src_bytes)
{
	(void)ctx;
	memcpy(dst, src, bytes < src_bytes ? bytes : src_bytes);
}

static void add_visit(struct genai_plan *p, const struct cep_variant *v,
		      const struct cep_node *n, uint32_t i, bool rows)
{
	uint32_t root = cep_root(v, n->in_value[i]);
	uint32_t tensor = genai_graph_value(p->graph, root)->tensor;
	const struct genai_tensor *s = genai_graph_tensor(p->graph, tensor);
	const struct genai_file *f = genai_graph_file(p->graph, s->file);
	struct genai_visit *x = &p->visits[p->n_visits];

	p->uses[p->n_visits] = (struct cep_use){n->index, i};
	*x = (struct genai_visit){
		.size = sizeof(*x),
		.tensor = tensor,
		.first_node = n->index,
		.last_node = n->index,
		.group = rows ? n->index : p->graph->n_nodes + p->n_visits,
		.rows = 1,
		.device_bytes = s->bytes,
	};
	if (EXEC_HAS(n->op->facts.gathered, i))
		x->flags = GENAI_WEIGHT_GATHER;
	if (rows) {
		x->flags = GENAI_WEIGHT_ROWS;
		x->rows = (uint64_t)n->in[i]->dims[0];
	}
	/* kernels load 16 bytes at a time: what lies badly in the file is
	 * copied once */
	if (((uintptr_t)f->data + s->offset) % 16)
		x->fill = copy_fill;
	p->n_visits++;
}

/* All inputs that are cut together are stored and have the same first
 * dimension. */
static bool can_cut(const struct genai_plan *p, const struct cep_variant *v,
		    const struct cep_node *n)
{
	int64_t rows = -1;

	for (uint32_t i = 0; i < n->n_in; i++) {
		uint32_t root;

		if (!n->in[i] || !EXEC_HAS(n->op->facts.rows, i))
			continue;
		root = cep_root(v, n->in_value[i]);
		if (p->values[root].storage != CEP_ST_WEIGHT ||
		    root != n->in_value[i] || n->in[i]->rank < 2 ||
		    (rows >= 0 && n->in[i]->dims[0] != rows))
			return false;
		rows = n->in[i]->dims[0];
	}
	return rows > 0;
}

int32_t cep_visits(struct genai_plan *p, const struct cep_variant *v,
		   struct genai_error *err)
{
	uint64_t most = (uint64_t)p->graph->n_nodes * CEP_MAX_IN;

	p->visits = cep_zalloc(p->self, most * sizeof(*p->visits));
	p->uses = cep_zalloc(p->self, most * sizeof(*p->uses));
	if (!p->visits || !p->uses)
		return cep_fail(p->self, err, GENAI_E_NOMEM, "out of memory");
	for (uint32_t k = 0; k < p->graph->n_nodes; k++) {
		const struct cep_node *n = &v->nodes[k];
		bool cut = can_cut(p, v, n);

		/* whole inputs first: they are held over all parts of rows */
		for (int pass = 0; pass < 2; pass++)
			for (uint32_t i = 0; i < n->n_in; i++) {
				bool rows =
					cut && EXEC_HAS(n->op->facts.rows, i);

				if (!n->in[i] || !cep_reads(n, i) ||
				    rows != (pass == 1) ||
				    p->values[cep_root(v, n->in_value[i])]
						    .storage != CEP_ST_WEIGHT)
					continue;
				add_visit(p, v, n, i, rows);
			}
	}
	return 0;
}
