/* check.h - checking model folders against their goldens, and counting. */
#ifndef GENAI_TESTS_GOLDEN_CHECK_H
#define GENAI_TESTS_GOLDEN_CHECK_H

#include "tests/golden/subject.h"

struct golden_checks {
	unsigned passed, failed, skipped;
	bool matrix, tap;
	struct subject_where where;
	struct subject_cell cell; /* what runs it, but for matrix */
};
extern struct golden_checks golden_checks;

/* path has golden/, or is a folder of such.  model: where its model lies, or
 * NULL: there. */
void golden_check(const char *model, const char *path);

#endif
