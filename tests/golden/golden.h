/* golden.h - recorded results of another implementation for one model folder.
 * Owns: reading golden/ and comparing.  Does not know: runtimes. */
#ifndef GENAI_TESTS_GOLDEN_H
#define GENAI_TESTS_GOLDEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define GOLDEN_MAX_PROMPTS 8
#define GOLDEN_MAX_RUNS 4

struct golden_ids {
	int64_t *v; /* malloc'ed */
	size_t n;
};

struct golden_rows { /* float32 [n, width] */
	float *v;    /* malloc'ed; NULL: not recorded */
	size_t n, width;
};

struct golden_prompt {
	struct golden_ids ids;
	struct golden_rows prefill, chunked;
};

struct golden_run {
	struct golden_ids prompt, ids;
	double *margins; /* malloc'ed, of each id */
};

struct golden {
	struct golden_prompt prompts[GOLDEN_MAX_PROMPTS];
	uint32_t n_prompts;
	struct golden_run runs[GOLDEN_MAX_RUNS];
	uint32_t n_runs;
	bool last_row_only;
};

struct golden_tolerance {
	double atol, rtol;
};

/* Read folder/golden; false with a line in why (at least 256 bytes). */
bool golden_read(const char *folder, struct golden *out, char *why, size_t cap);
void golden_free(struct golden *g);

/* Compare rows of got with the recorded ones from row first on; false with the
 * first difference in why. */
bool golden_compare(const float *got, size_t rows, size_t width,
		    const struct golden_rows *want, size_t first,
		    struct golden_tolerance tol, double *worst, char *why,
		    size_t cap);

#endif
