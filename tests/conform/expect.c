// expect.c - conform.ini: [unsupported] id = reason, [xfail] id = reason.
// A list that names a test that does not exist is an error: stale lists die.
#include "tests/conform/conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static char *strip(char *s)
{
	char *end;

	s += strspn(s, " \t\r");
	end = s + strlen(s);
	while (end > s && strchr(" \t\r\n", end[-1]))
		*--end = 0;
	return s;
}

const struct cf_test *cf_find_test(const char *id)
{
	for (uint32_t s = 0; cf_suites[s]; s++)
		for (uint32_t i = 0; i < cf_suites[s]->n; i++)
			if (!strcmp(cf_suites[s]->tests[i].id, id))
				return &cf_suites[s]->tests[i];
	return NULL;
}

// Mark every case of the test; why not, if it cannot be.
static const char *mark(struct cf_case *cases, uint32_t n, const char *id,
			const char *reason, bool unsupported)
{
	const struct cf_test *t = cf_find_test(id);

	if (!t)
		return "no test is called";
	if (unsupported && !t->needs)
		return "every module has to pass it, [xfail] says that one "
		       "does not yet:";
	for (uint32_t i = 0; i < n; i++) {
		if (cases[i].test != t)
			continue;
		if (cases[i].reason)
			return "there is already a line for";
		cases[i].reason = strdup(reason);
		cases[i].unsupported = unsupported;
	}
	return NULL;
}

static int32_t take_line(const char *path, uint32_t line, char *s, int *section,
			 struct cf_case *cases, uint32_t n,
			 struct genai_error *err)
{
	const char *wrong;
	char *eq, *id;

	if (!*s || *s == ';' || *s == '#')
		return 0;
	if (*s == '[') {
		*section = !strcmp(s, "[unsupported]") ? 1
			   : !strcmp(s, "[xfail]")     ? 2
						       : 0;
		if (*section)
			return 0;
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s:%u: unknown section %.60s, there are "
				  "[unsupported] and [xfail]",
				  path, line, s);
	}
	eq = strchr(s, '=');
	if (!eq || !*section)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s:%u: not 'id = reason' in a section", path,
				  line);
	*eq = 0;
	id = strip(s);
	s = strip(eq + 1);
	if (!*s)
		return genai_fail(err, GENAI_E_CONFIG,
				  "%s:%u: %.60s has no reason", path, line, id);
	wrong = mark(cases, n, id, s, *section == 1);
	if (wrong)
		return genai_fail(err, GENAI_E_CONFIG, "%s:%u: %s %.60s", path,
				  line, wrong, id);
	return 0;
}

int32_t cf_expect_read(const char *path, struct cf_case *cases, uint32_t n,
		       struct genai_error *err)
{
	FILE *f = fopen(path, "re");
	char text[4096];
	uint32_t line = 0;
	int section = 0;
	int32_t rc = 0;

	if (!f)
		return genai_fail(err, GENAI_E_CONFIG, "%s: cannot open: %m",
				  path);
	while (!rc && fgets(text, sizeof(text), f)) {
		line++;
		if (!strchr(text, '\n') && !feof(f))
			rc = genai_fail(err, GENAI_E_CONFIG,
					"%s:%u: longer than %zu bytes", path,
					line, sizeof(text) - 2);
		else
			rc = take_line(path, line, strip(text), &section, cases,
				       n, err);
	}
	if (!rc && ferror(f))
		rc = genai_fail(err, GENAI_E_CONFIG, "%s: cannot read: %m",
				path);
	fclose(f);
	return rc;
}
