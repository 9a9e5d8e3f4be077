/* template_golden.h - run NAME.jinja against the cases of NAME.golden.json. */
#ifndef GENAI_TESTS_TEMPLATE_GOLDEN_H
#define GENAI_TESTS_TEMPLATE_GOLDEN_H

struct golden_count {
	int passed, failed, skipped;
};

/* Run all golden files of a folder, or only NAME.golden.json if name is not
 * NULL; verbose: a line per template.  Failures are shown on stdout. */
int golden_run(const char *dir, const char *name, int verbose,
	       struct golden_count *count);

#endif
