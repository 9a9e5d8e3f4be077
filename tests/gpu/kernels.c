/* kernels.c - the kernel tests as a program of its own.
 * Needs only cuda_ep.so and a driver: no core, no model.
 *     gpu-kernels MODULE.so [--driver LIB] [--full] [--only TEXT]
 *                 [--suite NAME] [--short] [--require-device] [--no-overlap]
 * Closes with "N passed, N failed, N skipped". */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include "tests/gpu/check.h"

int main(int argc, char **argv)
{
	const char *driver = NULL, *suite = NULL;
	struct genai_error err = GENAI_ERROR_INIT;
	struct check c = {0};
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
		else if (!strcmp(argv[i], "--suite") && i + 1 < argc)
			suite = argv[++i];
	}
	c.rig = rig_open(argv[1], driver, overlap, UINT64_MAX, &err);
	if (!c.rig) {
		printf("%s: %s\n", require ? "FAILED" : "skipped", err.text);
		printf("0 passed, %d failed, %d skipped\n", require, !require);
		return require;
	}
	rnd_seed(1);
	if (!suite || !strcmp(suite, "runtime"))
		suite_runtime(&c);
	if (!suite || !strcmp(suite, "general"))
		suite_general(&c);
	if (!suite || !strcmp(suite, "index"))
		suite_index(&c);
	if (!suite || !strcmp(suite, "matmul"))
		suite_matmul(&c);
	if (!suite || !strcmp(suite, "prompt"))
		suite_prompt(&c);
	if (!suite || !strcmp(suite, "attention"))
		suite_attention(&c);
	rig_close(c.rig);
	printf("%u passed, %u failed, %u skipped\n", c.passed, c.failed,
	       c.skipped);
	return c.failed != 0;
}
