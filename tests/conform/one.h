/* one.h - a graph of one node, for the suites of single operators. */
#ifndef GENAI_TESTS_GPU_ONE_H
#define GENAI_TESTS_GPU_ONE_H

#include "tests/conform/corpus.h"

struct one {
	struct op_graph g;
	uint32_t in[16], n;
	int32_t rc;
	struct genai_error err;
};
extern struct one one;

void one_begin(void);
void one_in(uint32_t value);
void one_node(const char *domain, const char *op);
/* Give it its only output and run it; the code is in one.rc. */
void one_run(struct check *c, uint32_t dtype, uint32_t rank,
	     const int64_t *dims, void *out);
void one_check(struct check *c, uint32_t dtype, const void *out,
	       const double *want, const double *tol, uint64_t n);

#endif
