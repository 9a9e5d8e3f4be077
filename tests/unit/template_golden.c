// template_golden.c - expected renderings, byte for byte.
#include "tests/unit/template_golden.h"

#include <dirent.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/text/template/template.h"

#define SUFFIX ".golden.json"
// 2024-07-26T13:14:15, the clock of all golden files
#define NOW 1721999655

static struct genai_template *load(const char *dir, const char *name,
				   struct genai_error *err)
{
	struct genai_template *t = NULL;
	char path[4096], *text = malloc(1 << 20);
	size_t n;
	FILE *f;

	snprintf(path, sizeof(path), "%s/%s.jinja", dir, name);
	f = fopen(path, "rb");
	if (f) {
		n = fread(text, 1, 1 << 20, f);
		fclose(f);
		genai_template_parse(name, text, n, &t, err);
	}
	free(text);
	return t;
}

static json_t *case_vars(json_t *c)
{
	static const char *const names[] = {"messages", "tools",
					    "add_generation_prompt",
					    "bos_token", "eos_token"};
	json_t *vars = json_object(), *v;
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		v = json_object_get(c, names[i]);
		if (v && !(i >= 3 && json_is_null(v)))
			json_object_set(vars, names[i], v);
		else if (!i)
			json_object_set_new(vars, names[i], json_array());
	}
	json_object_update(vars, json_object_get(c, "kwargs"));
	return vars;
}

static int same_error(json_t *c, int rc, const struct genai_error *err)
{
	const char *kind = json_string_value(json_object_get(c, "error_kind"));
	const char *text = json_string_value(json_object_get(c, "error"));

	if (!rc || !kind)
		return 0;
	if (strcmp(kind, "raise_exception"))
		return rc == (strcmp(kind, "OverflowError") ? GENAI_E_FORMAT
							    : GENAI_E_LIMIT) ||
		       rc == GENAI_E_INVAL;
	return rc == GENAI_E_INVAL && !strcmp(text, err->text);
}

static int run_case(const struct genai_template *t, const char *name, json_t *c)
{
	struct genai_error err = GENAI_ERROR_INIT;
	json_t *vars = case_vars(c), *want = json_object_get(c, "expected");
	char *text = NULL;
	size_t n = 0;
	int rc, ok;

	rc = template_chat(t, vars,
			   json_is_true(json_object_get(c, "continue_final_"
							   "message")),
			   NOW, 0, &text, &n, &err);
	if (want)
		ok = !rc && n == json_string_length(want) &&
		     !memcmp(text, json_string_value(want), n);
	else
		ok = same_error(c, rc, &err);
	if (!ok)
		printf("%s %s: rc %d %s\n--- got:\n%s\n--- want:\n%s\n---\n",
		       name, json_string_value(json_object_get(c, "name")), rc,
		       rc ? err.text : "", text ? text : "",
		       json_string_value(want ? want
					      : json_object_get(c, "error")));
	free(text);
	json_decref(vars);
	return ok;
}

// The template did not parse: right if every rendering shall fail.
static int parse_error(const char *name, json_t *c,
		       const struct genai_error *err)
{
	if (json_object_get(c, "error_kind"))
		return err->code == GENAI_E_FORMAT;
	printf("%s: %s\n", name, err->text);
	return 0;
}

// A case that brings its own template.
static int run_source(json_t *c)
{
	struct genai_error err = GENAI_ERROR_INIT;
	const char *name = json_string_value(json_object_get(c, "name"));
	json_t *source = json_object_get(c, "source");
	struct genai_template *t = NULL;
	int good;

	genai_template_parse(name, json_string_value(source),
			     json_string_length(source), &t, &err);
	good = t ? run_case(t, name, c) : parse_error(name, c, &err);
	genai_template_close(t);
	return good;
}

static void run_file(const char *dir, const char *name, int verbose,
		     struct golden_count *count)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_template *t;
	char path[4096];
	json_t *root, *cases, *c;
	size_t i;
	int good = 0;

	snprintf(path, sizeof(path), "%s/%s" SUFFIX, dir, name);
	root = json_load_file(path, 0, NULL);
	cases = json_object_get(root, "cases");
	t = load(dir, name, &err);
	c = json_array_get(cases, 0);
	if (!t && !err.code && !json_object_get(c, "source")) {
		count->skipped += (int)json_array_size(cases);
		printf("%s: no template beside it, skipped\n", name);
	} else if (!json_array_size(cases)) {
		count->failed++;
		printf("%s: no cases\n", name);
	} else {
		json_array_foreach(cases, i, c) good +=
			json_object_get(c, "source") ? run_source(c)
			: t			     ? run_case(t, name, c)
			    : parse_error(name, c, &err);
		count->passed += good;
		count->failed += (int)json_array_size(cases) - good;
		if (verbose)
			printf("%s: %d of %zu\n", name, good,
			       json_array_size(cases));
	}
	genai_template_close(t);
	json_decref(root);
}

static int is_golden(const struct dirent *d)
{
	size_t n = strlen(d->d_name);

	return n > strlen(SUFFIX) &&
	       !strcmp(d->d_name + n - strlen(SUFFIX), SUFFIX);
}

int golden_run(const char *dir, const char *name, int verbose,
	       struct golden_count *count)
{
	struct dirent **list;
	int i, n;

	if (name) {
		run_file(dir, name, verbose, count);
		return 0;
	}
	n = scandir(dir, &list, is_golden, alphasort);
	for (i = 0; i < n; i++) {
		list[i]->d_name[strlen(list[i]->d_name) - strlen(SUFFIX)] = 0;
		run_file(dir, list[i]->d_name, verbose, count);
		free(list[i]);
	}
	if (n >= 0)
		free(list);
	return n <= 0;
}
