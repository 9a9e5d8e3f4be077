// step_packed.c - many sequences in one step: attention over a cache in blocks.
//
// Every node works on rows, whoever's they are, but attention and states.  So
// GroupQueryAttention becomes PagedAttention, lengths and block tables become
// inputs, and whatever else reads a length, the mask or a state is refused by
// name: such a model runs its sequences one by one.
#include "core/model/step_rewrite.h"

#include <string.h>

enum { GQA_INPUTS = 16, PAGED_INPUTS = 14 };

static int32_t cannot(struct step_rewrite *r, const struct genai_node *n,
		      const char *what)
{
	return genai_fail(r->err, GENAI_E_UNSUPPORTED,
			  "sequences cannot share a step: node %s (%s): %s",
			  n->name, n->op, what);
}

// What PagedAttention has of a node's attributes; the others must say nothing.
static int32_t check_attrs(struct step_rewrite *r, const struct genai_node *n)
{
	static const char *const number[] = {"num_heads",
					     "kv_num_heads",
					     "scale",
					     "do_rotary",
					     "rotary_interleaved",
					     "local_window_size",
					     "softcap",
					     "smooth_softmax",
					     "qk_norm_epsilon",
					     "sliding_window_cache"};

	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);
		size_t k = 0;

		while (k < 10 && strcmp(a->name, number[k]))
			k++;
		if (k < 10 || (!strcmp(a->name, "causal") && a->i == 1) ||
		    (!strcmp(a->name, "qk_output") && !a->i) ||
		    (a->kind == GENAI_ATTR_STRING && !strcmp(a->s, "NONE")))
			continue;
		return cannot(r, n, a->name);
	}
	return 0;
}

static void copy_attrs(struct step_rewrite *r, const struct genai_node *from,
		       uint32_t to)
{
	for (uint32_t i = 0; i < from->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(from, i);

		if (!strcmp(a->name, "causal") ||
		    !strcmp(a->name, "qk_output") ||
		    !strcmp(a->name, "sliding_window_cache"))
			continue; // all positions are there
		if (a->kind == GENAI_ATTR_INT)
			genai_builder_attr_int(r->b, to, a->name, a->i);
		else if (a->kind == GENAI_ATTR_FLOAT)
			genai_builder_attr_float(r->b, to, a->name, a->f);
	}
}

// n is of the source, whose indices are the builder's.
static int32_t page(struct step_rewrite *r, uint32_t node,
		    const struct genai_node *n)
{
	uint32_t in[PAGED_INPUTS], count = PAGED_INPUTS, at;
	uint32_t old[GQA_INPUTS];

	for (uint32_t i = 0; i < GQA_INPUTS; i++)
		old[i] = step_in(n, i);
	if (old[10] != GENAI_NONE)
		return cannot(r, n, "attention_bias");
	if (old[12] != GENAI_NONE || old[13] != GENAI_NONE)
		return cannot(r, n, "a quantised cache");
	if (old[3] == GENAI_NONE || old[4] == GENAI_NONE)
		return cannot(r, n, "there is no cache");
	if (n->n_outputs < 3 ||
	    (n->n_outputs > 3 && n->outputs[3] != GENAI_NONE))
		return cannot(r, n, "outputs other than three");
	if (check_attrs(r, n))
		return GENAI_E_UNSUPPORTED;
	memcpy(in, old, 5 * sizeof(*in));
	in[5] = r->first;
	in[6] = r->past;
	in[7] = r->table;
	in[8] = old[7];
	in[9] = old[8];
	in[10] = old[11];
	in[11] = old[14];
	in[12] = old[15];
	in[13] = old[9];
	while (in[count - 1] == GENAI_NONE)
		count--;
	genai_builder_remove_node(r->b, node);
	at = genai_builder_node(r->b, "PagedAttention", "com.microsoft", 1,
				n->name, in, count, n->outputs, 3);
	copy_attrs(r, n, at);
	return 0;
}

static uint32_t input(struct step_rewrite *r, const char *name, uint32_t rank)
{
	static const int64_t any[2] = {-1, -1};
	uint32_t v =
		genai_builder_value(r->b, name, GENAI_DT_I32, rank, any, NULL);

	genai_builder_input(r->b, v);
	return v;
}

int32_t step_pack(struct step_rewrite *r)
{
	const struct genai_graph *g = r->g;
	int32_t rc = 0;

	r->past = input(r, "genai.past", 1);
	r->first = input(r, "genai.first", 1);
	r->table = input(r, "genai.table", 2);
	for (uint32_t i = 0; !rc && i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		if (!strcmp(n->op, "GroupQueryAttention"))
			rc = page(r, i, n);
	}
	return rc;
}

static bool is_paged_input(const struct genai_node *n, uint32_t value)
{
	return !strcmp(n->op, "PagedAttention") &&
	       (n->inputs[3] == value || n->inputs[4] == value);
}

int32_t step_check_packed(struct step_rewrite *r, uint32_t positions)
{
	const struct genai_graph *g = r->g;
	uint32_t n_nodes = genai_builder_n_nodes(r->b);

	for (uint32_t i = 0; i < n_nodes; i++) {
		const struct genai_node *n = genai_builder_get_node(r->b, i);

		for (uint32_t a = 0; n->op && a < n->n_attrs; a++)
			// a subgraph reads by name, unseen
			if (genai_node_attr(n, a)->kind == GENAI_ATTR_GRAPH)
				return cannot(r, n, "it has a subgraph");
		for (uint32_t k = 0; n->op && k < n->n_inputs; k++)
			for (uint32_t v = 0; v < g->n_inputs; v++)
				if (n->inputs[k] == g->inputs[v] &&
				    g->inputs[v] != r->ids &&
				    g->inputs[v] != positions &&
				    !is_paged_input(n, g->inputs[v]))
					return cannot(r, n,
						      genai_graph_value(
							      g, g->inputs[v])
							      ->name);
	}
	return 0;
}
