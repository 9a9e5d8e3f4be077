/* harness.h - running one Check suite, plainly or as TAP for automake; what
 * things cost. */
#ifndef GENAI_TESTS_HARNESS_H
#define GENAI_TESTS_HARNESS_H

#include <check.h>
#include <stdlib.h>
#include <time.h>

#include <genai/module.h>

/* Processor time of all threads: what others do on the machine does not
 * count. */
static inline double genai_cpu_seconds(void)
{
	struct timespec t;

	clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

/* Bounds on time and memory are promises of the code as it is shipped: a
 * sanitizer takes many times both. */
#define ck_assert_cost(is, limit)                                              \
	do {                                                                   \
		const double is_ = (double)(is), limit_ = (double)(limit);     \
                                                                               \
		if (!(GENAI_BUILD & 0xff))                                     \
			ck_assert_msg(is_ < limit_, "%s: %g, at most %g", #is, \
				      is_, limit_);                            \
	} while (0)

__attribute__((constructor)) static void genai_check_timeouts(void)
{
	if (GENAI_BUILD & 0xff)
		setenv("CK_TIMEOUT_MULTIPLIER", "10", 0);
}

/* Run the suite; with GENAI_TAP set, a line per test goes to stdout as TAP, and
 * the exit status only says that they are all there. */
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
