// ops.c - the table of operators.
#include "modules/cuda_ep/op.h"

static const struct cep_op table[] = {
#define CEP_OP_ROW(domain, op, since, prepare, run, ...)                       \
	{domain, op, since, prepare, run, __VA_ARGS__},
#include "modules/cuda_ep/op_rows.h"
#undef CEP_OP_ROW
};

static const struct genai_exec_op list[] = {
#define CEP_OP_ROW(domain, op, since, ...) {domain, op, since},
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

const struct genai_exec_op *cep_op_list(uint32_t *out_count)
{
	*out_count = sizeof(list) / sizeof(list[0]);
	return list;
}
