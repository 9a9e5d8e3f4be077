// check_host.c - the services that modules get.
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "core/host.h"
#include "tests/unit/harness.h"

static char lines[2048];
static struct genai_log log_all;
static struct genai_config *config;
static struct genai_host_env *env;
static const struct genai_host *h;

static void keep(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines),
		 "%d %s\n", level, text);
}

static void setup(void)
{
	static const char *const sets[] = {
		"module.m.threads=3", "module.m.bytes=2MiB",
		"module.m.trace=yes", "module.other.secret=1"};
	static const struct genai_config_key keys[] = {
		{"threads", "0", GENAI_KEY_U64, 0, NULL, ""},
		{"bytes", "auto", GENAI_KEY_BYTES, 0, NULL, ""},
		{"limit", "auto", GENAI_KEY_BYTES, 0, NULL, ""},
		{"trace", "off", GENAI_KEY_BOOL, 0, NULL, ""},
		{"name", "abc", GENAI_KEY_STR, 0, NULL, ""},
	};
	struct genai_error err = GENAI_ERROR_INIT;

	lines[0] = 0;
	log_all = (struct genai_log){keep, NULL, GENAI_LOG_INFO};
	ck_assert_msg(genai_config_load("/dev/null", sets, 4, &config, &err) ==
			      GENAI_E_CONFIG,
		      "a device is no configuration");
	setenv("HOME", "/nonexistent", 1);
	unsetenv("XDG_CONFIG_HOME");
	ck_assert_int_eq(genai_config_load(NULL, sets, 4, &config, &err), 0);
	ck_assert_int_eq(genai_config_declare(config, "m", keys, 5,
					      sizeof(keys[0]), &err),
			 0);
	ck_assert_int_eq(genai_host_open("m", config, &log_all, &env, &err), 0);
	h = genai_host_table(env);
}

static void teardown(void)
{
	genai_host_close(env);
	genai_config_close(config);
}

START_TEST(table)
{
	ck_assert_uint_eq(h->size, sizeof(struct genai_host));
	ck_assert_uint_eq(h->core_abi, GENAI_ABI);
	ck_assert(GENAI_HAS(h, ticket_check));
	ck_assert_uint_le(h->clock_ns(h->ctx), h->clock_ns(h->ctx));
	ck_assert_uint_gt(h->clock_ns(h->ctx), 0);
}
END_TEST

START_TEST(memory)
{
	char *p = h->alloc(h->ctx, 100, "a"), *q = h->alloc(h->ctx, 0, "b");
	char *r = h->alloc(h->ctx, 0, "b"), *s;

	ck_assert_ptr_nonnull(p);
	ck_assert_ptr_nonnull(q);
	ck_assert_ptr_ne(q, r);
	ck_assert_uint_eq((uintptr_t)p % 64, 0);
	ck_assert_uint_eq((uintptr_t)q % 64, 0);
	ck_assert_uint_eq(genai_host_live(env).bytes, 100);
	ck_assert_uint_eq(genai_host_live(env).allocations, 3);
	memset(p, 7, 100);
	p = h->realloc(h->ctx, p, 5000, "a");
	ck_assert_uint_eq((uintptr_t)p % 64, 0);
	ck_assert_int_eq(p[99], 7);
	ck_assert_uint_eq(genai_host_live(env).bytes, 5000);
	p = h->realloc(h->ctx, p, 10, "a");
	ck_assert_int_eq(p[9], 7);
	ck_assert_uint_eq(genai_host_live(env).bytes, 10);
	s = h->realloc(h->ctx, NULL, 20, "a");
	ck_assert_uint_eq(genai_host_live(env).allocations, 4);
	ck_assert_ptr_null(h->alloc(h->ctx, UINT64_MAX, "huge"));
	ck_assert_ptr_null(h->alloc(h->ctx, UINT64_MAX - 64, "huge"));
	ck_assert_ptr_null(h->alloc(h->ctx, (uint64_t)INT64_MAX, "huge"));
	ck_assert_ptr_null(h->realloc(h->ctx, p, UINT64_MAX, "huge"));
	ck_assert_int_eq(p[9], 7); // still valid
	// Out of the middle, the end and the front of the list.
	h->free(h->ctx, q);
	h->free(h->ctx, r);
	h->free(h->ctx, NULL);
	h->free(h->ctx, s);
	h->free(h->ctx, p);
	ck_assert_uint_eq(genai_host_live(env).bytes, 0);
	ck_assert_uint_eq(genai_host_live(env).allocations, 0);
}
END_TEST

START_TEST(failures)
{
	void *p, *q;

	genai_host_fail_alloc(env, 2, 0);
	p = h->alloc(h->ctx, 8, "a");
	ck_assert_ptr_nonnull(p);
	ck_assert_ptr_null(h->alloc(h->ctx, 8, "a"));
	q = h->alloc(h->ctx, 8, "a");
	ck_assert_ptr_nonnull(q);
	genai_host_fail_alloc(env, 1, 1);
	ck_assert_ptr_null(h->alloc(h->ctx, 8, "a"));
	ck_assert_ptr_null(h->realloc(h->ctx, q, 80, "a"));
	ck_assert_ptr_null(h->alloc(h->ctx, 8, "a"));
	genai_host_fail_alloc(env, 0, 0);
	q = h->realloc(h->ctx, q, 80, "a");
	ck_assert_ptr_nonnull(q);
	h->free(h->ctx, p);
	h->free(h->ctx, q);
}
END_TEST

// Close says what was forgotten, by tag, and frees it (LeakSanitizer agrees).
START_TEST(leftovers)
{
	h->alloc(h->ctx, 10, "kv");
	h->alloc(h->ctx, 5, "weights");
	h->alloc(h->ctx, 20, "kv");
	genai_host_close(env);
	ck_assert_str_eq(lines,
			 "1 m: left 30 bytes in 2 allocations tagged 'kv'\n"
			 "1 m: left 5 bytes in 1 allocations tagged "
			 "'weights'\n");
	env = NULL;
	genai_host_close(NULL);
}
END_TEST

// As a module's own functions of such arguments use them.
static void say_v(const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	h->log_v(h->ctx, GENAI_LOG_WARN, fmt, ap);
	va_end(ap);
}

static int32_t fail_v(struct genai_error *err, const char *fmt, ...)
{
	va_list ap;
	int32_t rc;

	va_start(ap, fmt);
	rc = h->error_set_v(h->ctx, err, GENAI_E_IO, fmt, ap);
	va_end(ap);
	return rc;
}

START_TEST(with_va_list)
{
	struct genai_error err = GENAI_ERROR_INIT;

	ck_assert(GENAI_HAS(h, log_v) && GENAI_HAS(h, error_set_v));
	say_v("%d of %s", 3, "four");
	ck_assert_str_eq(lines, "2 m: 3 of four\n");
	ck_assert_int_eq(fail_v(&err, "no %s, %d", "more", 5), GENAI_E_IO);
	ck_assert_int_eq(err.code, GENAI_E_IO);
	ck_assert_str_eq(err.module, "m");
	ck_assert_str_eq(err.text, "no more, 5");
	ck_assert_int_eq(fail_v(NULL, "x"), GENAI_E_IO);
}
END_TEST

START_TEST(logging)
{
	h->log(h->ctx, GENAI_LOG_ERROR, "a%d\nb", 1);
	h->log(h->ctx, GENAI_LOG_INFO, "%s", "i");
	h->log(h->ctx, GENAI_LOG_DEBUG, "dropped");
	genai_log_line(&log_all, GENAI_LOG_WARN, "w%d", 2);
	ck_assert_str_eq(lines, "1 m: a1?b\n3 m: i\n2 w2\n");
}
END_TEST

START_TEST(errors)
{
	struct genai_error err = GENAI_ERROR_INIT;

	ck_assert_int_eq(h->error_set(h->ctx, &err, GENAI_E_DEVICE, "no %d", 4),
			 GENAI_E_DEVICE);
	ck_assert_int_eq(err.code, GENAI_E_DEVICE);
	ck_assert_str_eq(err.module, "m");
	ck_assert_str_eq(err.text, "no 4");
	ck_assert_int_eq(h->error_set(h->ctx, NULL, GENAI_E_IO, "x"),
			 GENAI_E_IO);
}
END_TEST

START_TEST(settings)
{
	char buf[8];
	uint64_t v = 9;
	int32_t b = 9;

	ck_assert_int_eq(h->config_get_str(h->ctx, "name", buf, 4), 0);
	ck_assert_str_eq(buf, "abc");
	ck_assert_int_eq(h->config_get_str(h->ctx, "name", buf, 3),
			 GENAI_E_LIMIT);
	ck_assert_int_eq(h->config_get_str(h->ctx, "secret", buf, 8),
			 GENAI_E_NOTFOUND);
	ck_assert_int_eq(h->config_get_str(h->ctx, "device", buf, 8),
			 GENAI_E_NOTFOUND);
	ck_assert_int_eq(h->config_get_u64(h->ctx, "threads", &v), 0);
	ck_assert_uint_eq(v, 3);
	ck_assert_int_eq(h->config_get_u64(h->ctx, "bytes", &v), 0);
	ck_assert_uint_eq(v, 2 << 20);
	ck_assert_int_eq(h->config_get_u64(h->ctx, "limit", &v), 0);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(h->config_get_u64(h->ctx, "name", &v), GENAI_E_CONFIG);
	ck_assert_int_eq(h->config_get_u64(h->ctx, "none", &v),
			 GENAI_E_NOTFOUND);
	ck_assert_uint_eq(v, 0);
	ck_assert_int_eq(h->config_get_bool(h->ctx, "trace", &b), 0);
	ck_assert_int_eq(b, 1);
	ck_assert_int_eq(h->config_get_bool(h->ctx, "none", &b),
			 GENAI_E_NOTFOUND);
	ck_assert_int_eq(h->config_get_bool(h->ctx, "name", &b),
			 GENAI_E_CONFIG);
}
END_TEST

static char thread_name[16];

static void work(void *arg)
{
	int i;

	if (strcmp(arg, "y") == 0)
		pthread_getname_np(pthread_self(), thread_name,
				   sizeof(thread_name));
	for (i = 0; i < 1000; i++)
		h->counter_add(h->ctx, arg, 2);
}

static void sum(void *ctx, const char *name, int64_t value)
{
	char *list = ctx;

	sprintf(list + strlen(list), "%s=%lld ", name, (long long)value);
}

START_TEST(threads)
{
	char list[256] = "", x[] = "x", y[] = "y";
	void *t[3];
	int i;

	for (i = 0; i < 3; i++)
		ck_assert_int_eq(h->thread_create(h->ctx, "a-rather-long-name",
						  work, i ? x : y, &t[i]),
				 0);
	ck_assert_uint_eq(genai_host_live(env).threads, 3);
	h->thread_join(h->ctx, t[1]);
	ck_assert_uint_eq(genai_host_live(env).threads, 2);
	h->thread_join(h->ctx, t[0]);
	h->thread_join(h->ctx, t[2]);
	h->thread_join(h->ctx, NULL);
	ck_assert_uint_eq(genai_host_live(env).threads, 0);
	ck_assert_str_eq(thread_name, "a-rather-long-n");
	h->counter_add(h->ctx, "z", -5);
	genai_host_each_counter(env, sum, list);
	ck_assert_ptr_nonnull(strstr(list, "x=4000 "));
	ck_assert_ptr_nonnull(strstr(list, "y=2000 "));
	ck_assert_ptr_nonnull(strstr(list, "z=-5 "));
}
END_TEST

START_TEST(many_counters)
{
	static char list[4096];
	char name[16];
	int i;

	for (i = 0; i < 100; i++) {
		sprintf(name, "c%d", i);
		h->counter_add(h->ctx, name, i);
	}
	genai_host_each_counter(env, sum, list);
	ck_assert_ptr_nonnull(strstr(list, "c63=63 "));
	ck_assert_ptr_null(strstr(list, "c64="));
}
END_TEST

static int32_t judge(void *ctx, const struct genai_ticket *ticket,
		     struct genai_range range, struct genai_error *err)
{
	(void)err;
	return ctx == &env && ticket->seal == 5 && range.bytes == 6
		       ? 0
		       : GENAI_E_STATE;
}

START_TEST(tickets)
{
	struct genai_ticket ticket = {.size = sizeof(ticket), .seal = 5};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_range range = {0, 6};

	ck_assert_int_eq(h->ticket_check(h->ctx, &ticket, range, &err),
			 GENAI_E_STATE);
	ck_assert_str_eq(err.text, "m serves no device: no ticket is valid");
	genai_host_set_ticket_check(env, judge, &env);
	ck_assert_int_eq(h->ticket_check(h->ctx, &ticket, range, &err), 0);
	ticket.seal = 4;
	ck_assert_int_eq(h->ticket_check(h->ctx, &ticket, range, &err),
			 GENAI_E_STATE);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("host");
	TCase *t = tcase_create("host");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, table);
	tcase_add_test(t, memory);
	tcase_add_test(t, failures);
	tcase_add_test(t, leftovers);
	tcase_add_test(t, with_va_list);
	tcase_add_test(t, logging);
	tcase_add_test(t, errors);
	tcase_add_test(t, settings);
	tcase_add_test(t, threads);
	tcase_add_test(t, many_counters);
	tcase_add_test(t, tickets);
	suite_add_tcase(s, t);
	return genai_check_main(s);
}
