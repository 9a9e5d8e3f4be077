// golden_models.c - model folders against recorded results.
//
//     golden_models [--matrix] [--device MODULE] [--modules FOLDER]
//                   [--config FILE] [--executor NAME]
//                   [--model FOLDER] DIR...
//
// A DIR has golden/, or is a folder of such.  --model: where the model of the
// next DIR lies.  Without any DIR: --matrix on the folders of the test data;
// TAP if GENAI_TAP is set.  Every prompt whole, in chunks and one by one;
// greedy continuations; with --matrix every executor, pager and budget must
// give the bits of the first.  Closes with "N passed, N failed, N skipped".
#include <genai/genai.h>
#include <stdlib.h>
#include <string.h>

#include "tests/golden/check.h"

int main(int argc, char **argv)
{
	const char *model = NULL;

	golden_checks.where = (struct subject_where)SUBJECT_CPU;
	golden_checks.cell =
		(struct subject_cell){"eager", "pager_sync", "auto"};

	if (argc == 1) {
		golden_checks.matrix = true;
		golden_checks.tap = getenv("GENAI_TAP") != NULL;
		golden_check(NULL, GENAI_TESTDATA "/models");
	}
	for (int i = 1; i < argc; i++) {
		if (!strcmp(argv[i], "--matrix")) {
			golden_checks.matrix = true;
		} else if (!strcmp(argv[i], "--device") && i + 1 < argc) {
			golden_checks.where.device = argv[++i];
		} else if (!strcmp(argv[i], "--modules") && i + 1 < argc) {
			golden_checks.where.modules = argv[++i];
		} else if (!strcmp(argv[i], "--config") && i + 1 < argc) {
			golden_checks.where.config = argv[++i];
		} else if (!strcmp(argv[i], "--executor") && i + 1 < argc) {
			golden_checks.cell.executor = argv[++i];
		} else if (!strcmp(argv[i], "--model") && i + 1 < argc) {
			model = argv[++i];
		} else {
			golden_check(model, argv[i]);
			model = NULL;
		}
	}
	if (golden_checks.tap)
		printf("1..%u\n", golden_checks.passed + golden_checks.failed);
	else
		printf("%u passed, %u failed, %u skipped\n",
		       golden_checks.passed, golden_checks.failed,
		       golden_checks.skipped);
	return golden_checks.failed > 0;
}
