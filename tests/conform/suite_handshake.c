// suite_handshake.c - what every module has to do: the query, the block, its
// keys, init and fini.
#include "tests/conform/conform.h"

#include <dirent.h>
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

genai_module_query_fn cf_query(void)
{
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	genai_module_query_fn query;
	void *h, *sym;

	CF_OK(cf_load(NULL, &config, &m, &cf_err));
	h = dlopen(genai_module_path(m), RTLD_NOW | RTLD_LOCAL);
	sym = h ? dlsym(h, GENAI_MODULE_QUERY_SYMBOL) : NULL;
	ck_assert_msg(sym != NULL, "no " GENAI_MODULE_QUERY_SYMBOL);
	memcpy(&query, &sym, sizeof(query));
	genai_module_close(m);
	genai_config_close(config);
	return query;
}

static void query_twice(void)
{
	genai_module_query_fn query = cf_query();
	const struct genai_module_block *b = query(GENAI_ABI, &(int32_t){0});
	struct genai_module_block copy;
	struct cf_census before, after;

	ck_assert_ptr_nonnull(b);
	memcpy(&copy, b, b->size < sizeof(copy) ? b->size : sizeof(copy));
	before = cf_count();
	for (int i = 0; i < 1000; i++) {
		int32_t reason = 77;

		ck_assert_ptr_eq(query(GENAI_ABI, &reason), b);
		ck_assert_msg(reason == 77,
			      "wrote a reason though it gave a block");
	}
	after = cf_count();
	ck_assert_msg(before.fds == after.fds &&
			      before.threads == after.threads &&
			      before.heap == after.heap,
		      "query opened, started or allocated something");
	ck_assert_msg(!memcmp(&copy, b,
			      b->size < sizeof(copy) ? b->size : sizeof(copy)),
		      "the block changed");
}

struct asker {
	genai_module_query_fn query;
	const struct genai_module_block *block;
	atomic_int *wrong;
};

static void *ask(void *arg)
{
	struct asker *a = arg;

	for (int i = 0; i < 10000; i++)
		if (a->query(GENAI_ABI, &(int32_t){0}) != a->block)
			atomic_fetch_add(a->wrong, 1);
	return NULL;
}

static void query_threads(void)
{
	genai_module_query_fn query = cf_query();
	atomic_int wrong = 0;
	struct asker a = {query, query(GENAI_ABI, &(int32_t){0}), &wrong};
	pthread_t t[4];

	for (int i = 0; i < 4; i++)
		ck_assert_int_eq(pthread_create(&t[i], NULL, ask, &a), 0);
	for (int i = 0; i < 4; i++)
		pthread_join(t[i], NULL);
	ck_assert_int_eq(wrong, 0);
}

static void core_abi(void)
{
	genai_module_query_fn query = cf_query();
	const struct genai_module_block *b = query(GENAI_ABI, &(int32_t){0});
	uint32_t major = GENAI_ABI_MAJOR;
	int32_t reason = 0;

	ck_assert_ptr_nonnull(b);
	ck_assert_msg(query(major << 16 | (GENAI_ABI_MINOR + 1), &reason) &&
			      query(major << 16 | 0xffff, &reason),
		      "refuses a core with a later minor: %d", reason);
	reason = 0;
	if (!query(major << 16, &reason))
		ck_assert_msg(b->min_core_minor > 0 && reason < 0,
			      "refuses core %u.0 with reason %d, though it "
			      "needs no later minor",
			      major, reason);
	for (uint32_t other = 0; other <= 3; other++) {
		if (other == major)
			continue;
		reason = 0;
		b = query(other << 16, &reason);
		ck_assert_msg(!b || b->abi_major == other,
			      "gives core %u.0 a block of ABI %u", other,
			      b ? b->abi_major : 0);
		ck_assert_msg(b || reason < 0,
			      "refuses core %u.0 without a reason", other);
	}
}

static void block(void)
{
	genai_module_query_fn query = cf_query();
	const struct genai_module_block *b = query(GENAI_ABI, &(int32_t){0});
	const struct genai_config_key *k;

	ck_assert_ptr_nonnull(b);
	ck_assert_msg(b->version && *b->version && b->licence && *b->licence,
		      "no version or licence");
	for (uint32_t i = 0; i < b->n_keys; i++) {
		k = (const void *)((const char *)b->keys +
				   (size_t)i * b->key_stride);
		ck_assert_msg(k->help && *k->help && !strchr(k->help, '\n'),
			      "key %s has no line of help", k->name);
		ck_assert_msg(k->kind >= GENAI_KEY_STR &&
				      k->kind <= GENAI_KEY_BYTES &&
				      !k->reserved,
			      "key %s has kind %u", k->name, k->kind);
	}
}

// A later core: its number, and a host table and arguments that are longer.
static void later_core(void)
{
	genai_module_query_fn query = cf_query();
	uint32_t abi = (uint32_t)GENAI_ABI_MAJOR << 16 | 0xff;
	const struct genai_module_block *b = query(abi, &(int32_t){0});
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	struct {
		struct genai_host host;
		void *later[16];
	} table;
	struct {
		struct genai_init_params p;
		void *later[16];
	} params;
	void *self = NULL;
	int32_t rc;

	ck_assert_ptr_nonnull(b);
	CF_OK(cf_load(NULL, &config, &m, &cf_err));
	memset(&table, 0x11, sizeof(table));
	table.host = *genai_host_table(genai_module_host(m));
	table.host.size = sizeof(table);
	table.host.core_abi = abi;
	memset(&params, 0x11, sizeof(params));
	params.p = (struct genai_init_params){.size = sizeof(params),
					      .device_limit = UINT64_MAX};
	rc = b->init(&table.host, &params.p, &self, &err);
	if (!rc)
		b->fini(self);
	genai_module_close(m);
	genai_config_close(config);
	if (rc == GENAI_E_NODEVICE && !cf.o.require_device)
		cf_skip("no device: %s", err.text);
	ck_assert_msg(!rc, "init for a later core: %s: %s",
		      genai_status_name(rc), err.text);
	ck_assert_msg(!cf_log_errors(), "after fini: %s", cf_logged);
}

static int32_t init(struct genai_module *m, struct genai_error *err)
{
	struct genai_init_params params = {.size = sizeof(params),
					   .device_limit = UINT64_MAX};

	return genai_module_start(m, &params, err);
}

static int32_t start(struct genai_module *m, struct genai_error *err)
{
	int32_t rc = init(m, err);

	if (rc == GENAI_E_NODEVICE) {
		if (cf.o.require_device)
			ck_abort_msg("no device: %s", err ? err->text : "");
		genai_module_close(m);
		cf_skip("no device: %s", err ? err->text : "");
	}
	return rc;
}

static void up_and_down(void)
{
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;

	CF_OK(cf_load(NULL, &config, &m, &cf_err));
	CF_OK(start(m, &cf_err));
	ck_assert_ptr_nonnull(genai_module_self(m));
	genai_module_close(m);
	genai_config_close(config);
	ck_assert_msg(!cf_log_errors(), "after fini: %s", cf_logged);
}

static void init_fini(void)
{
	struct cf_census before, after;

	// the first rounds fill what the C library and drivers keep
	for (int i = 0; i < 20; i++)
		up_and_down();
	before = cf_count();
	for (int i = 0; i < 100; i++)
		up_and_down();
	after = cf_count();
	ck_assert_uint_eq(before.fds, after.fds);
	ck_assert_uint_eq(before.threads, after.threads);
	// What comes from the host table is counted exactly.  Drivers keep
	// some: a context of CUDA 13, taken and given back by itself, 170 to
	// 700 bytes each time.
	ck_assert_msg(after.heap < before.heap + (64u << 10),
		      "100 rounds of init and fini took %lu bytes",
		      (unsigned long)(after.heap - before.heap));
}

// Several runtimes of a process: each init has an object of its own.
static void two_runtimes(void)
{
	struct genai_config *config[3];
	struct genai_module *m[3];

	for (int i = 0; i < 3; i++) {
		CF_OK(cf_load(NULL, &config[i], &m[i], &cf_err));
		CF_OK(start(m[i], &cf_err));
	}
	for (int i = 0; i < 3; i++)
		for (int k = 0; k < i; k++)
			ck_assert_msg(genai_module_self(m[i]) !=
					      genai_module_self(m[k]),
				      "two runtimes got the same object");
	for (int i = 0; i < 3; i++) { // the first to come goes first
		genai_module_close(m[i]);
		genai_config_close(config[i]);
		ck_assert_msg(!cf_log_errors(), "after fini: %s", cf_logged);
	}
	up_and_down();
}

// Not through the core, which has a record of its own for init.
static void err_null(void)
{
	genai_module_query_fn query = cf_query();
	const struct genai_module_block *b = query(GENAI_ABI, &(int32_t){0});
	struct genai_init_params params = {.size = sizeof(params),
					   .device_limit = UINT64_MAX};
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	int32_t rc = 0;

	ck_assert_ptr_nonnull(b);
	for (uint32_t fails = 0; fails < 2 && rc != GENAI_E_NODEVICE; fails++) {
		void *self = NULL;

		CF_OK(cf_load(NULL, &config, &m, &cf_err));
		genai_host_fail_alloc(genai_module_host(m), fails, 1);
		rc = b->init(genai_host_table(genai_module_host(m)), &params,
			     &self, NULL);
		genai_host_fail_alloc(genai_module_host(m), 0, 0);
		if (!rc)
			b->fini(self);
		genai_module_close(m);
		genai_config_close(config);
		ck_assert_msg(!rc || fails || rc == GENAI_E_NODEVICE,
			      "init without an error record: %s",
			      genai_status_name(rc));
		ck_assert_msg(!cf_log_errors(), "after fini: %s", cf_logged);
	}
	if (rc == GENAI_E_NODEVICE && !cf.o.require_device)
		cf_skip("no device");
}

// init in an empty directory, which is removed with what a key that names a
// file made there: "%n", say, is one to a module that numbers its files.
static int32_t init_aside(struct genai_module *m, struct genai_error *err)
{
	const char *tmp = getenv("TMPDIR");
	int here = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
	char dir[4096];
	struct dirent *e;
	int32_t rc;
	DIR *d;

	snprintf(dir, sizeof(dir), "%s/genai-conform-XXXXXX",
		 tmp && *tmp ? tmp : "/tmp");
	ck_assert_msg(here >= 0 && mkdtemp(dir) && !chdir(dir),
		      "%s: no directory for the test: %s", dir,
		      strerror(errno));
	rc = init(m, err);
	d = opendir(dir);
	while (d && (e = readdir(d)))
		unlinkat(dirfd(d), e->d_name, 0);
	if (d)
		closedir(d);
	ck_assert_msg(!fchdir(here) && !rmdir(dir), "%s: %s", dir,
		      strerror(errno));
	close(here);
	return rc;
}

// Does the module take a value, and does it say why if not?
static void try_value(const char *key, const char *value)
{
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	const char *sets[2] = {NULL, NULL};
	char set[256];
	int32_t rc;

	snprintf(set, sizeof(set), "module.%s.%s=%s", cf.name, key, value);
	sets[0] = set;
	CF_CLEAR();
	rc = cf_load(sets, &config, &m, &cf_err);
	if (rc)
		return; // refused by what it declared
	rc = init_aside(m, &cf_err);
	ck_assert_msg(!rc || (cf_err.text[0] && !strchr(cf_err.text, '\n')),
		      "%s = %s is refused without a line that says why", key,
		      value);
	ck_assert_msg(!rc || !strstr(cf_err.text, "init failed"),
		      "%s = %s is refused without a text of its own", key,
		      value);
	genai_module_close(m);
	genai_config_close(config);
	ck_assert_msg(!cf_log_errors(), "%s = %s: %s", key, value, cf_logged);
}

static void bad_values(void)
{
	static const char *const values[] = {
		"",
		"0",
		"1",
		"-1",
		"18446744073709551615",
		"no such value",
		"auto",
		"random:",
		"random:18446744073709551616",
		"1e9",
		"%s%n",
		"65536",
	};
	genai_module_query_fn query = cf_query();
	const struct genai_module_block *b = query(GENAI_ABI, &(int32_t){0});

	for (uint32_t i = 0; i < b->n_keys; i++) {
		const struct genai_config_key *k =
			(const void *)((const char *)b->keys +
				       (size_t)i * b->key_stride);

		for (uint32_t v = 0; v < sizeof(values) / sizeof(values[0]);
		     v++)
			try_value(k->name, values[v]);
	}
	up_and_down();
}

// Every allocation of init in turn.
static void alloc_fails(void)
{
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	uint32_t most = cf.o.torture ? 100000 : 40, n;
	int32_t rc;

	for (n = 1; n <= most; n++) {
		bool reached;

		CF_OK(cf_load(NULL, &config, &m, &cf_err));
		genai_host_fail_alloc(genai_module_host(m), n, 1);
		CF_CLEAR();
		rc = start(m, &cf_err);
		reached = cf_end_failing(genai_module_host(m), n, true);
		ck_assert_msg(rc != 0 || !reached || genai_module_self(m),
			      "allocation %u fails unnoticed", n);
		if (rc)
			ck_assert_msg(rc == GENAI_E_NOMEM && cf_err.text[0],
				      "allocation %u fails: %s: %s", n,
				      genai_status_name(rc), cf_err.text);
		genai_module_close(m);
		genai_config_close(config);
		ck_assert_msg(!cf_log_errors(), "allocation %u fails: %s", n,
			      cf_logged);
		if (!reached)
			break;
	}
	up_and_down();
}

static const struct cf_test tests[] = {
	{"handshake/query-twice", "GM-1", NULL, 0, query_twice},
	{"handshake/query-threads", "GM-1", NULL, 0, query_threads},
	{"handshake/core-abi", "GM-2", NULL, 0, core_abi},
	{"handshake/later-core", "GM-12", NULL, 0, later_core},
	{"handshake/block", "GM-3", NULL, 0, block},
	{"handshake/init-fini", "GM-4", NULL, 0, init_fini},
	{"handshake/two-runtimes", "GM-14", NULL, 0, two_runtimes},
	{"handshake/err-null", "GM-5", NULL, 0, err_null},
	{"handshake/bad-values", "GM-6", NULL, 0, bad_values},
	{"handshake/alloc-fails", "GM-7", NULL, 0, alloc_fails},
};
const struct cf_suite cf_suite_handshake = {tests,
					    sizeof(tests) / sizeof(tests[0])};
