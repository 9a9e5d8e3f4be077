// harness.h - running one Check suite, plainly or as TAP for automake.
#ifndef GENAI_TESTS_HARNESS_H
#define GENAI_TESTS_HARNESS_H

#include <check.h>
#include <stdlib.h>

// Run the suite; with GENAI_TAP set, a line per test goes to stdout as TAP, and
// the exit status only says that they are all there.
static inline int genai_check_main(Suite *s)
{
	SRunner *sr = srunner_create(s);
	const int is_tap = getenv("GENAI_TAP") != NULL;
	int failed;

	if (is_tap) {
		srunner_set_tap(sr, "-");
		srunner_run_all(sr, CK_SILENT);
	} else {
		srunner_run_all(sr, CK_NORMAL);
	}
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed && !is_tap ? EXIT_FAILURE : EXIT_SUCCESS;
}

#endif
