// goldens.c - genai-conform --goldens: model folders against recorded results,
// with the modules of the configuration.
#include "tests/conform/parity.h"

#include <getopt.h>
#include <stdio.h>
#include <string.h>

#include "tests/golden/check.h"

static const struct option options[] = {
	{"goldens", 0, NULL, 'g'},
	{"config", 1, NULL, 'c'},
	{"set", 1, NULL, 's'},
	{"model", 1, NULL, 'm'},
	{0},
};

#define MOST 64

static struct {
	const char *sets[MOST];
	struct {
		const char *model, *path; // model: NULL if it lies there
	} folders[MOST];
	uint32_t n_folders;
} given;

static int take(int c)
{
	struct subject_where *w = &golden_checks.where;

	switch (c) {
	case 1:
		if (given.n_folders == MOST)
			return 2;
		given.folders[given.n_folders++].path = optarg;
		return 0;
	case 'g':
		return 0;
	case 'c':
		w->config = optarg;
		return 0;
	case 'm': // of the next folder
		if (given.n_folders == MOST)
			return 2;
		given.folders[given.n_folders].model = optarg;
		return 0;
	case 's':
		if (w->n_sets == MOST)
			return 2;
		given.sets[w->n_sets++] = optarg;
		return 0;
	default:
		return 2;
	}
}

int conform_goldens(int argc, char **argv)
{
	int c, rc = 0;

	while (!rc && (c = getopt_long(argc, argv, "-", options, NULL)) != -1)
		rc = take(c);
	if (!rc && !given.n_folders) {
		fprintf(stderr, "genai-conform: --goldens wants folders with "
				"golden/, or folders of such\n");
		rc = 2;
	}
	if (rc)
		return rc;
	golden_checks.where.sets = given.sets;
	for (uint32_t i = 0; i < given.n_folders; i++)
		golden_check(given.folders[i].model, given.folders[i].path);
	printf("%u passed, %u failed, %u skipped\n", golden_checks.passed,
	       golden_checks.failed, golden_checks.skipped);
	return golden_checks.failed > 0;
}
