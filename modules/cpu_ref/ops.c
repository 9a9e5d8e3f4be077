// ops.c - the table of operators and the search in it.
#include "modules/cpu_ref/ops.h"

#define OPS_ROW(domain, op, since, prepare, run, ...)                          \
	{domain, op, since, prepare, run, __VA_ARGS__},
static const struct cref_op table[] = {
#include "modules/cpu_ref/ops_rows.h"
};
#undef OPS_ROW

// Of several rows of a name, the newest that the node's opset reaches.
const struct cref_op *cref_op_find(const struct genai_node *node)
{
	const struct cref_op *best = NULL;
	const char *domain = node->domain ? node->domain : "";

	for (size_t i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		const struct cref_op *op = &table[i];

		if (strcmp(op->op, node->op) || strcmp(op->domain, domain) ||
		    op->since > node->opset)
			continue;
		if (!best || op->since > best->since)
			best = op;
	}
	return best;
}
