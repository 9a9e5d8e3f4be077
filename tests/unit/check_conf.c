// check_conf.c - the configurations in conf/: every one is accepted, by the
// core and by the modules that are built, and genai.ini has every key with its
// default.
#include <dirent.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/config/keys.h"
#include "core/module/module.h"
#include "tests/unit/harness.h"

#define CONF GENAI_TESTDATA "/../../conf/"

static const char *const modules[] = {"cpu_ref", "cuda_ep", "pager_sync",
				      "pager_async"};
static const char *const sets[] = {"runtime.module_path=" GENAI_TESTMODULES};

// Load all built modules, so that their sections are checked.
static void load_modules(struct genai_config *c)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m;
	char path[4096];
	size_t i;

	for (i = 0; i < 4; i++) {
		snprintf(path, sizeof(path), GENAI_TESTMODULES "/%s.so",
			 modules[i]);
		if (access(path, F_OK) != 0)
			continue;
		m = NULL;
		ck_assert_msg(
			genai_module_load(modules[i], c, NULL, &m, &err) == 0,
			"%s", err.text);
		genai_module_close(m);
	}
}

static void same_as_default(void *ctx, const char *section, const char *key,
			    const char *value, const char *origin)
{
	uint32_t i;

	(void)ctx;
	if (strcmp(key, "module_path") == 0)
		return;
	ck_assert_msg(strcmp(origin, "default") != 0, "genai.ini lacks [%s] %s",
		      section, key);
	if (strcmp(section, "runtime") != 0)
		return;
	for (i = 0; i < genai_n_runtime_keys; i++)
		if (strcmp(genai_runtime_keys[i].name, key) == 0)
			ck_assert_str_eq(genai_runtime_keys[i].default_value,
					 value);
}

START_TEST(complete)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;

	ck_assert_msg(genai_config_load(CONF "genai.ini", sets, 1, &c, &err) ==
			      0,
		      "%s", err.text);
	load_modules(c);
	genai_config_each(c, same_as_default, NULL);
	genai_config_close(c);
}
END_TEST

START_TEST(recipes)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c;
	const struct dirent *e;
	char path[4096];
	DIR *d = opendir(CONF);
	int n = 0;

	ck_assert_ptr_nonnull(d);
	while ((e = readdir(d))) {
		if (!strstr(e->d_name, ".ini"))
			continue;
		n++;
		snprintf(path, sizeof(path), CONF "%s", e->d_name);
		c = NULL;
		ck_assert_msg(genai_config_load(path, sets, 1, &c, &err) == 0,
			      "%s", err.text);
		load_modules(c);
		genai_config_close(c);
	}
	closedir(d);
	ck_assert_int_eq(n, 7);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("conf");
	TCase *t = tcase_create("conf");

	tcase_add_test(t, complete);
	tcase_add_test(t, recipes);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
