// check_faults.c - reading a configuration and loading a module while the nth
// allocation of the process fails, once or from then on: an error, no leak, and
// the same call works afterwards.
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "core/module/module.h"
#include "tests/unit/harness.h"

// The sanitizers have allocators of their own, which cannot be stood in for.
#if defined(__GLIBC__) && !GENAI_BUILD_SAN
#define CAN_FAIL 1

extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void __libc_free(void *);

static volatile struct {
	long fail_at, count, live;
	int is_armed, is_sticky;
} fault;

static int refuses(void)
{
	if (!fault.is_armed)
		return 0;
	fault.count++;
	if (fault.count != fault.fail_at &&
	    !(fault.is_sticky && fault.count > fault.fail_at))
		return 0;
	errno = ENOMEM;
	return 1;
}

static void *counted(void *p)
{
	if (p && fault.is_armed)
		fault.live++;
	return p;
}

void *malloc(size_t n)
{
	return refuses() ? NULL : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
	return refuses() ? NULL : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
	if (refuses())
		return NULL;
	return p ? __libc_realloc(p, n) : counted(__libc_realloc(p, n));
}

void free(void *p)
{
	if (p && fault.is_armed)
		fault.live--;
	__libc_free(p);
}

static char ini[64];

static void setup(void)
{
	FILE *f;
	int fd;

	strcpy(ini, "/tmp/genai-faults-XXXXXX");
	fd = mkstemp(ini);
	ck_assert_int_ge(fd, 0);
	f = fdopen(fd, "w");
	fprintf(f,
		"[runtime]\nmodule_path=%s\ndevice=3\n[module variant]\n"
		"threads=3\nschedule=late\n",
		GENAI_TESTFIXTURES);
	fclose(f);
	unsetenv("GENAI_FIXTURE");
}

static void teardown(void)
{
	unlink(ini);
}

static int32_t load(struct genai_error *err)
{
	const char *sets[] = {"module.variant.trace=on", "runtime.device=4"};
	struct genai_config *c = NULL;
	struct genai_module *m = NULL;
	int32_t rc;

	rc = genai_config_load(ini, sets, 2, &c, err);
	if (!rc)
		rc = genai_module_load("variant", c, NULL, &m, err);
	genai_module_close(m);
	genai_config_close(c);
	return rc;
}

START_TEST(each_allocation)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = -1;
	long n;

	// Warm: what the C library and the linker keep for good.
	ck_assert_int_eq(load(&err), 0);
	ck_assert_int_eq(load(&err), 0);
	for (n = 1; rc; n++) {
		fault.count = 0;
		fault.live = 0;
		fault.fail_at = n;
		fault.is_sticky = _i;
		err.text[0] = 0;
		fault.is_armed = 1;
		rc = load(&err);
		fault.is_armed = 0;
		ck_assert_int_eq(fault.live, 0);
		if (rc)
			ck_assert_msg(err.code == rc && err.text[0],
				      "%ld: %d, '%s'", n, err.code, err.text);
		ck_assert_int_lt(n, 1000);
	}
	ck_assert_int_gt(n, 30);
	ck_assert_int_eq(load(&err), 0);
}
END_TEST
#endif

int main(void)
{
	Suite *s = suite_create("faults");
	TCase *t = tcase_create("faults");

#ifdef CAN_FAIL
	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_loop_test(t, each_allocation, 0, 2);
#else
	if (getenv("GENAI_TAP")) {
		puts("1..0 # SKIP the allocator is a sanitizer's");
		return 0;
	}
#endif
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
