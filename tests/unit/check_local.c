// check_local.c - the shared library as applications and language bindings load
// it: by dlopen(RTLD_LOCAL), opened and closed repeatedly, left open at exit,
// used in a child after fork.
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <genai/genai.h>

#include "tests/unit/harness.h"

static __typeof__(&genai_open) open_rt;
static __typeof__(&genai_close) close_rt;
static __typeof__(&genai_model_open) open_model;

static void *symbol(void *lib, const char *name)
{
	void *p = dlsym(lib, name);

	ck_assert_msg(p != NULL, "%s", name);
	return p;
}

static void setup(void)
{
	void *lib = dlopen(GENAI_TESTMODULES "/libgenai.so",
			   RTLD_NOW | RTLD_LOCAL),
	     *p;

	ck_assert_msg(lib != NULL, "%s", dlerror());
	p = symbol(lib, "genai_open");
	memcpy(&open_rt, &p, sizeof(p));
	p = symbol(lib, "genai_close");
	memcpy(&close_rt, &p, sizeof(p));
	p = symbol(lib, "genai_model_open");
	memcpy(&open_model, &p, sizeof(p));
	ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "genai_open"));
	setenv("HOME", "/nonexistent", 1);
	unsetenv("XDG_CONFIG_HOME");
}

static struct genai_runtime *start(void)
{
	static const char *const sets[] = {
		"runtime.module_path=" GENAI_TESTMODULES};
	struct genai_runtime_options options = {
		.size = sizeof(options), .sets = sets, .n_sets = 1};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_runtime *rt = NULL;

	ck_assert_msg(open_rt(&options, &rt, &err) == 0, "%s", err.text);
	return rt;
}

START_TEST(again)
{
	int i;

	for (i = 0; i < 20; i++)
		close_rt(start());
	close_rt(NULL);
}
END_TEST

START_TEST(two)
{
	struct genai_runtime *a = start(), *b = start();

	close_rt(a);
	close_rt(b);
}
END_TEST

static int child_status(pid_t pid)
{
	int status = -1;

	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	return status;
}

START_TEST(left_open)
{
	pid_t pid = fork();

	if (!pid) {
		start();
		exit(7); // with all handlers and destructors
	}
	ck_assert_int_eq(child_status(pid), 7 << 8);
}
END_TEST

START_TEST(forked)
{
	struct genai_runtime *rt = start();
	struct genai_model *model = NULL;
	int32_t rc;
	pid_t pid = fork();

	if (!pid) {
		rc = open_model(rt, "/nonexistent", NULL, &model, NULL);
		close_rt(rt);
		_exit(rc == GENAI_E_FORKED ? 0 : 1);
	}
	ck_assert_int_eq(child_status(pid), 0);
	close_rt(rt);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("local");
	TCase *t = tcase_create("local");

	tcase_add_checked_fixture(t, setup, NULL);
	tcase_add_test(t, again);
	tcase_add_test(t, two);
	tcase_add_test(t, left_open);
	tcase_add_test(t, forked);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
