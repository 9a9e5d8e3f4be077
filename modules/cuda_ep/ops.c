// ops.c - the table of operators.
#include "modules/cuda_ep/op.h"

static const struct cep_op table[] = {
#define CEP_OP_ROW(domain, op, since, prepare, run, ...)                       \
	{domain, op, since, prepare, run, __VA_ARGS__},
#include "modules/cuda_ep/op_rows.h"
#undef CEP_OP_ROW
};

const struct cep_op *cep_op_find(const struct genai_node *node)
{
	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct cep_op *o = &table[i];

		if (strcmp(o->op, node->op) == 0 &&
		    strcmp(o->domain, node->domain) == 0 &&
		    node->opset >= o->since)
			return o;
	}
	return NULL;
}
