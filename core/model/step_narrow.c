// step_narrow.c - float32 products with matrices that are stored in half as many
// bits: a Cast in front of a MatMul would be carried out in every step.
#include "core/model/step_rewrite.h"

#include <string.h>

// The stored matrix behind a Cast to float32, or NONE.
static uint32_t narrower(const struct step_rewrite *r, uint32_t value)
{
	const struct genai_value *v = genai_builder_get_value(r->b, value);
	const struct genai_node *cast;

	if (!v || v->producer == GENAI_NONE || v->dtype != GENAI_DT_F32)
		return GENAI_NONE;
	cast = genai_builder_get_node(r->b, v->producer);
	if (!cast->op || strcmp(cast->op, "Cast"))
		return GENAI_NONE;
	value = step_in(cast, 0);
	v = genai_builder_get_value(r->b, value);
	if (!v || v->tensor == GENAI_NONE || v->rank != 2 ||
	    (v->dtype != GENAI_DT_F16 && v->dtype != GENAI_DT_BF16))
		return GENAI_NONE;
	return value;
}

void step_narrow(struct step_rewrite *r)
{
	uint32_t count = genai_builder_n_nodes(r->b);

	for (uint32_t i = 0; i < count; i++) {
		const struct genai_node *n = genai_builder_get_node(r->b, i);
		uint32_t in[2], stored, out;
		const char *name;

		if (!n->op || strcmp(n->op, "MatMul") || *n->domain)
			continue;
		stored = narrower(r, step_in(n, 1));
		if (stored == GENAI_NONE)
			continue;
		in[0] = step_in(n, 0);
		in[1] = stored;
		out = step_out(n);
		name = n->name;
		genai_builder_remove_node(r->b, i);
		genai_builder_node(r->b, "MatMul", "genai", 1, name, in, 2,
				   &out, 1);
	}
}
