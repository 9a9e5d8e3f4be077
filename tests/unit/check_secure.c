// check_secure.c - the rules of a privileged process.
// As root: makes a set-uid copy of itself and runs it as another user, so that
// the kernel sets AT_SECURE; the copy runs the suite.  Otherwise skipped.
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/module/module.h"
#include "core/base/secure.h"
#include "tests/unit/harness.h"

#define NOBODY 65534

static char dir[64], file[96], module[96];

static void copy_file(const char *from, const char *to, mode_t mode)
{
	int in = open(from, O_RDONLY), out = creat(to, 0600);
	struct stat st;

	if (in < 0 || out < 0 || fstat(in, &st) != 0)
		exit(99);
	while (st.st_size > 0) {
		ssize_t n = sendfile(out, in, NULL, (size_t)st.st_size);

		if (n <= 0)
			exit(99);
		st.st_size -= n;
	}
	close(in);
	fchmod(out, mode);
	close(out);
}

static void setup(void)
{
	FILE *f;

	strcpy(dir, "/tmp/genai-secure-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/genai.ini", dir);
	snprintf(module, sizeof(module), "%s/variant.so", dir);
	f = fopen(file, "w");
	fputs("[runtime]\ndevice=4\n", f);
	fclose(f);
	chmod(file, 0644);
	copy_file(GENAI_TESTFIXTURES "/variant.so", module, 0644);
}

static void teardown(void)
{
	unlink(file);
	unlink(module);
	rmdir(dir);
}

START_TEST(privileged)
{
	ck_assert(genai_is_privileged());
}
END_TEST

// What refuse() saw last.
static char text[512];

static int32_t load_file(void)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;
	int32_t rc = genai_config_load(file, NULL, 0, &c, &err);

	strcpy(text, err.text);
	genai_config_close(c);
	return rc;
}

START_TEST(owners)
{
	char want[256];

	ck_assert_int_eq(load_file(), 0);
	ck_assert_int_eq(chmod(file, 0666), 0);
	ck_assert_int_eq(load_file(), GENAI_E_CONFIG);
	snprintf(want, sizeof(want),
		 "%s: mode 666; a privileged process takes only files that "
		 "root alone can write",
		 file);
	ck_assert_str_eq(text, want);
	ck_assert_int_eq(chmod(file, 0664), 0);
	ck_assert_int_eq(load_file(), GENAI_E_CONFIG);
	ck_assert_int_eq(chmod(file, 0644), 0);
	ck_assert_int_eq(chown(file, NOBODY, 0), 0);
	ck_assert_int_eq(load_file(), GENAI_E_CONFIG);
	snprintf(want, sizeof(want),
		 "%s: owned by user 65534; a privileged process takes only "
		 "files of root",
		 file);
	ck_assert_str_eq(text, want);
}
END_TEST

// Neither the current directory nor the environment is asked.
START_TEST(search)
{
	struct genai_config *c = NULL;
	char cwd[4096], path[256];
	const char *found;

	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	ck_assert_int_eq(chdir(dir), 0);
	snprintf(path, sizeof(path), "%s/genai", dir);
	ck_assert_int_eq(mkdir(path, 0755), 0);
	snprintf(path, sizeof(path), "%s/genai/genai.ini", dir);
	ck_assert_int_eq(rename(file, path), 0);
	setenv("XDG_CONFIG_HOME", dir, 1);
	setenv("HOME", dir, 1);
	ck_assert_int_eq(genai_config_load(NULL, NULL, 0, &c, NULL), 0);
	found = genai_config_path(c); // perhaps the system's
	ck_assert(!found || !strstr(found, dir));
	genai_config_close(c);
	ck_assert_int_eq(rename(path, file), 0);
	rmdir("genai");
	ck_assert_int_eq(genai_config_load(NULL, NULL, 0, &c, NULL), 0);
	found = genai_config_path(c);
	ck_assert(!found || strcmp(found, "./genai.ini") != 0);
	genai_config_close(c);
	ck_assert_int_eq(chdir(cwd), 0);
}
END_TEST

static int32_t load_module(void)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;
	struct genai_module *m = NULL;
	char set[256];
	const char *sets[1] = {set};
	int32_t rc;

	snprintf(set, sizeof(set), "module.variant.path=%s", module);
	ck_assert_int_eq(genai_config_load(file, sets, 1, &c, &err), 0);
	rc = genai_module_load("variant", c, NULL, &m, &err);
	strcpy(text, err.text);
	if (!rc)
		ck_assert_str_eq(genai_module_path(m), module);
	genai_module_close(m);
	genai_config_close(c);
	return rc;
}

START_TEST(modules)
{
	ck_assert_int_eq(load_module(), 0);
	ck_assert_int_eq(chmod(module, 0757), 0);
	ck_assert_int_eq(load_module(), GENAI_E_MODULE);
	ck_assert_ptr_nonnull(strstr(text, "mode 757; a privileged process"));
	ck_assert_int_eq(chmod(module, 0755), 0);
	ck_assert_int_eq(chown(module, NOBODY, 0), 0);
	ck_assert_int_eq(load_module(), GENAI_E_MODULE);
	ck_assert_ptr_nonnull(strstr(text, "owned by user 65534"));
}
END_TEST

// Two files one after another, each with the descriptor number of the other
// free: the second is not taken for the first.
START_TEST(two_modules)
{
	static const char *const names[] = {"pager_sync", "pager_async",
					    "cpu_ref", "pager_sync"};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c = NULL;
	struct genai_module *m[4] = {NULL};
	char set[128];
	const char *sets[1] = {set};

	snprintf(set, sizeof(set), "runtime.module_path=%s", dir);
	ck_assert_int_eq(genai_config_load(NULL, sets, 1, &c, &err), 0);
	for (int i = 0; i < 4; i++) {
		char from[256], to[256];

		snprintf(from, sizeof(from), GENAI_TESTMODULES "/%s.so",
			 names[i]);
		snprintf(to, sizeof(to), "%s/%s.so", dir, names[i]);
		if (i < 3)
			copy_file(from, to, 0644);
		ck_assert_msg(
			!genai_module_load(names[i], c, NULL, &m[i], &err),
			"%s: %s", names[i], err.text);
		ck_assert_str_eq(genai_module_name(m[i]), names[i]);
		if (i < 3)
			continue;
		for (int k = 0; k < 4; k++) {
			genai_module_close(m[k]);
			snprintf(to, sizeof(to), "%s/%s.so", dir, names[k]);
			unlink(to);
		}
	}
	genai_config_close(c);
}
END_TEST

static int run_suite(void)
{
	Suite *s = suite_create("secure");
	TCase *t = tcase_create("secure");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, privileged);
	tcase_add_test(t, owners);
	tcase_add_test(t, search);
	tcase_add_test(t, modules);
	tcase_add_test(t, two_modules);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}

int main(int argc, char **argv)
{
	char place[] = "/tmp/genai-setuid-XXXXXX", self[64];
	int status = 0;
	pid_t pid;

	if (getauxval(AT_SECURE)) {
		if (setgid(0) || setuid(0)) // files of root are made below
			return 99;
		return run_suite();
	}
	if (getuid() != 0 || argc > 1 || !mkdtemp(place)) {
		puts("1..0 # SKIP needs root and a /tmp that honours set-uid");
		return 0;
	}
	chmod(place, 0755);
	snprintf(self, sizeof(self), "%s/secure", place);
	copy_file("/proc/self/exe", self, 04755);
	pid = fork();
	if (!pid) {
		if (setgid(NOBODY) || setuid(NOBODY))
			_exit(99);
		execl(self, argv[0], "again", NULL);
		_exit(99);
	}
	waitpid(pid, &status, 0);
	unlink(self);
	rmdir(place);
	return WIFEXITED(status) ? WEXITSTATUS(status) : 99;
}
