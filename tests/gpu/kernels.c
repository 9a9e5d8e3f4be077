// kernels.c - the kernel tests as a program of its own.
// Needs only cuda_ep.so and a driver: no core, no model.
//     gpu-kernels MODULE.so [--driver LIB] [--full] [--only TEXT]
//                 [--suite NAME] [--short] [--require-device] [--no-overlap]
//                 [--host-threads N]
// Closes with "N passed, N failed, N skipped".
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tests/gpu/rig.h"

static const struct {
	const char *name;
	void (*run)(struct check *c);
} suites[] = {
	{"runtime", suite_runtime},	 {"general", corpus_elementwise},
	{"general", corpus_norms},	 {"general", corpus_rows},
	{"index", corpus_index},	 {"moe", corpus_moe},
	{"matmul", corpus_matmul},	 {"prompt", corpus_prompt},
	{"attention", corpus_attention}, {"chunks", corpus_chunks},
	{"state", corpus_state},	 {"paged", corpus_paged},
};

int main(int argc, char **argv)
{
	const char *driver = NULL, *suite = NULL;
	struct genai_error err = GENAI_ERROR_INIT;
	struct check c = {.run = gpu_run, .print = true};
	bool require = false;
	int overlap = 1;

	if (argc < 2) {
		fprintf(stderr, "usage: gpu-kernels MODULE.so [options]\n");
		return 2;
	}
	for (int i = 2; i < argc; i++) {
		if (!strcmp(argv[i], "--full"))
			c.full = true;
		else if (!strcmp(argv[i], "--require-device"))
			require = true;
		else if (!strcmp(argv[i], "--short"))
			c.brief = true;
		else if (!strcmp(argv[i], "--no-overlap"))
			overlap = 0;
		else if (!strcmp(argv[i], "--driver") && i + 1 < argc)
			driver = argv[++i];
		else if (!strcmp(argv[i], "--only") && i + 1 < argc)
			c.only = argv[++i];
		else if (!strcmp(argv[i], "--host-threads") && i + 1 < argc)
			gpu_host_threads = (uint32_t)atoi(argv[++i]);
		else if (!strcmp(argv[i], "--suite") && i + 1 < argc)
			suite = argv[++i];
	}
	c.ctx = gpu_open(argv[1], driver, overlap, UINT64_MAX, &err);
	if (!c.ctx) {
		printf("%s: %s\n", require ? "FAILED" : "skipped", err.text);
		printf("0 passed, %d failed, %d skipped\n", require, !require);
		return require;
	}
	rnd_seed(1);
	for (size_t i = 0; i < sizeof(suites) / sizeof(suites[0]); i++)
		if (!suite || !strcmp(suite, suites[i].name)) {
			// of products, not of whole layers in fp32
			c.rows_exact = suites[i].run != corpus_chunks;
			suites[i].run(&c);
		}
	gpu_close(c.ctx);
	printf("%u passed, %u failed, %u skipped\n", c.passed, c.failed,
	       c.skipped);
	return c.failed != 0;
}
