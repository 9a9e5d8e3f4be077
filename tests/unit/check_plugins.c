// check_plugins.c - what went wrong in other plugin systems, tried here: files
// that come and go, strangers beside a module, thread keys, fork, two copies of
// the library in one process.
#include <dlfcn.h>
#include <pthread.h>

#include "core/module/module.h"
#include "tests/unit/session_kit.h"

#define VARIANT GENAI_TESTFIXTURES "/variant.so"

static struct genai_error err = GENAI_ERROR_INIT;
static char dir[64], file[96];

static void setup(void)
{
	strcpy(dir, "/tmp/genai-plugins-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(file, sizeof(file), "%s/variant.so", dir);
	setenv("HOME", "/nonexistent", 1);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("GENAI_FIXTURE");
}

static void teardown(void)
{
	char command[128];

	snprintf(command, sizeof(command), "rm -rf %s", dir);
	ck_assert_int_eq(system(command), 0);
}

// A new file of that name, never the old one written over.
static void put(const char *from, const char *to)
{
	char command[1024];

	snprintf(command, sizeof(command), "rm -f %s && cp %s %s", to, from,
		 to);
	ck_assert_int_eq(system(command), 0);
}

struct loaded {
	struct genai_config *config;
	struct genai_module *m;
};

static int32_t load(struct loaded *l)
{
	char set[128];
	const char *sets[1] = {set};
	int32_t rc;

	memset(l, 0, sizeof(*l));
	snprintf(set, sizeof(set), "runtime.module_path=%s", dir);
	rc = genai_config_load(NULL, sets, 1, &l->config, &err);
	ck_assert_int_eq(rc, 0);
	return genai_module_load("variant", l->config, NULL, &l->m, &err);
}

static int32_t start(struct loaded *l)
{
	struct genai_init_params params = {sizeof(params), 0, UINT64_MAX};

	return genai_module_start(l->m, &params, &err);
}

static void unload(struct loaded *l)
{
	genai_module_close(l->m);
	genai_config_close(l->config);
}

// ---- files that come and go ----

START_TEST(file_gone)
{
	struct loaded a, b;
	char want[128];

	snprintf(want, sizeof(want), "tried %s, ", file);
	ck_assert_int_eq(load(&a), GENAI_E_NOTFOUND); // before
	ck_assert_ptr_nonnull(strstr(err.text, want));
	unload(&a);
	put(VARIANT, file);
	ck_assert_int_eq(load(&a), 0);
	unlink(file); // while loaded
	ck_assert_int_eq(start(&a), 0);
	ck_assert_int_eq(load(&b), GENAI_E_NOTFOUND);
	unload(&b);
	unload(&a);
	ck_assert_int_eq(load(&a), GENAI_E_NOTFOUND); // between
	unload(&a);
	put(VARIANT, file);
	ck_assert_int_eq(load(&a), 0);
	ck_assert_int_eq(start(&a), 0);
	unload(&a);
}
END_TEST

// What replaced a file is checked, never mixed with what is mapped.
START_TEST(file_replaced)
{
	struct loaded a, b;

	put(VARIANT, file);
	ck_assert_int_eq(load(&a), 0);
	ck_assert_int_eq(start(&a), 0);
	put("/dev/null", file);
	ck_assert_int_eq(load(&b), GENAI_E_MODULE);
	ck_assert_ptr_nonnull(strstr(err.text, "empty file"));
	unload(&b);
	put(GENAI_TESTMODULES "/pager_sync.so", file);
	ck_assert_int_eq(load(&b), 0); // the image that this process knows
	ck_assert_str_eq(genai_module_version(b.m), "1.2.3");
	unload(&b);
	unload(&a);
}
END_TEST

static int is_mapped(const char *path)
{
	FILE *f = fopen("/proc/self/maps", "r");
	char line[4400];
	int found = 0;

	while (f && fgets(line, sizeof(line), f))
		found |= strstr(line, path) != NULL;
	fclose(f);
	return found;
}

// No folder is ever searched for modules that nobody named.
START_TEST(strangers)
{
	char stranger[128], junk[128];
	struct loaded a;

	put(VARIANT, file);
	snprintf(stranger, sizeof(stranger), "%s/pager_sync.so", dir);
	put(GENAI_TESTMODULES "/pager_sync.so", stranger);
	snprintf(junk, sizeof(junk), "%s/aaa.so", dir);
	put("/etc/passwd", junk);
	ck_assert_int_eq(load(&a), 0);
	ck_assert(is_mapped(file));
	ck_assert(!is_mapped(stranger));
	ck_assert(!is_mapped(junk));
	unload(&a);
}
END_TEST

// ---- threads and exits ----

static void *a_life(void *arg)
{
	struct loaded a;

	(void)arg;
	setenv("GENAI_FIXTURE", "thread-key", 1);
	put(VARIANT, file);
	ck_assert_int_eq(load(&a), 0);
	ck_assert_int_eq(start(&a), 0);
	unload(&a);
	return NULL;
}

// A destructor of a thread key runs when the module is long closed.
START_TEST(thread_key)
{
	pthread_t t;

	unsetenv("GENAI_FIXTURE_KEY");
	ck_assert_int_eq(pthread_create(&t, NULL, a_life, NULL), 0);
	ck_assert_int_eq(pthread_join(t, NULL), 0);
	ck_assert_ptr_nonnull(getenv("GENAI_FIXTURE_KEY"));
}
END_TEST

START_TEST(static_tls)
{
	struct loaded a;

	put(GENAI_TESTFIXTURES "/static_tls.so", file);
	ck_assert_int_eq(load(&a), GENAI_E_MODULE);
	ck_assert_msg(strstr(err.text, "cannot load: ") &&
			      strstr(err.text, "static TLS"),
		      "%s", err.text);
	unload(&a);
}
END_TEST

// ---- fork ----

static struct genai_runtime *rt;
static struct genai_model *m;
static struct genai_session *s;

// The number of the call that does not tell, or 0.
static int child(void)
{
	struct genai_model_info info = {.size = sizeof(info)};
	struct genai_stats st = {.size = sizeof(st)};
	struct genai_session *t = NULL;
	struct genai_model *n = NULL;
	int64_t id = 1;
	float row[1024];
	size_t rows;

	alarm(20); // nothing may hang
	if (genai_model_open(rt, "/nonexistent", NULL, &n, &err) !=
	    GENAI_E_FORKED)
		return 1;
	if (genai_session_open(m, &t, &err) != GENAI_E_FORKED)
		return 2;
	if (genai_session_append(s, &id, 1, &err) != GENAI_E_FORKED)
		return 3;
	if (genai_session_next(s, 1, &id, &err) != GENAI_E_FORKED)
		return 4;
	if (genai_session_rewind(s, 1, &err) != GENAI_E_FORKED)
		return 5;
	if (genai_session_logits(s, row, 1, &rows, &err) != GENAI_E_FORKED)
		return 6;
	if (genai_model_get_stats(m, &st, &err) != GENAI_E_FORKED)
		return 7;
	if (!strstr(err.text, "the runtime belongs to process "))
		return 8;
	if (genai_model_get_info(m, &info) || genai_session_length(s) != 4)
		return 9; // these read what a child has, too
	genai_session_close(s);
	genai_model_close(m);
	genai_close(rt);
	return 0;
}

static const struct {
	const char *executor, *pager, *schedule;
} kinds[] = {
	{"eager", "pager_sync", "module.cpu_ref.schedule=inorder"},
	{"captured", "pager_async", "module.cpu_ref.schedule=threads"},
};

START_TEST(forked)
{
	static const int64_t prompt[] = {1, 5, 9, 33};
	int64_t before, after;
	int status;
	pid_t pid;

	rt = runtime(kinds[_i].executor, kinds[_i].pager, "50%",
		     kinds[_i].schedule);
	m = model(rt, MODEL("llama-cpu-fp32"), 0);
	s = session(m);
	append(s, prompt, 4);
	before = next(s, 0);
	ck_assert_int_eq(genai_session_rewind(s, 4, &err), 0);
	pid = fork();
	if (!pid)
		_exit(child());
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_msg(!status, "call %d, signal %d", status >> 8, status & 127);
	ck_assert_int_eq(genai_session_rewind(s, 3, &err), 0);
	append(s, prompt + 3, 1);
	after = next(s, 0);
	ck_assert_int_eq(before, after);
	genai_session_close(s);
	genai_model_close(m);
	genai_close(rt);
}
END_TEST

// A program that just ends, with steps under way: nothing runs at exit.
START_TEST(left_open)
{
	static const int64_t prompt[] = {1, 5, 9, 33};
	int status;
	pid_t pid = fork();

	if (!pid) {
		alarm(20);
		rt = runtime(kinds[_i].executor, kinds[_i].pager, "50%",
			     kinds[_i].schedule);
		m = model(rt, MODEL("llama-cpu-fp32"), 0);
		s = session(m);
		append(s, prompt, 4);
		next(s, 1);
		exit(7); // with all handlers and destructors
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 7 << 8);
}
END_TEST

// The last of three modules does not come up: those that did are taken down, in
// order, and leave nothing; the next attempt works.
START_TEST(half_started)
{
	static const char *const broken[] = {"init-fails", "init-null", "major",
					     "table-slot"};
	struct genai_runtime *none = NULL;

	for (size_t i = 0; i < sizeof(broken) / sizeof(broken[0]); i++) {
		setenv("GENAI_FIXTURE", broken[i], 1);
		ck_assert_int_ne(try_runtime("captured", "variant", "auto",
					     "runtime.pager=variant:second",
					     &none, &err),
				 0);
		ck_assert_ptr_null(none);
		ck_assert_msg(logged.n == 0, "%s: %s", broken[i],
			      logged.lines[0]);
	}
	rt = runtime("captured", "pager_sync", "auto", NULL);
	genai_close(rt);
}
END_TEST

// ---- two copies of the library ----

struct copy {
	__typeof__(&genai_open) open;
	__typeof__(&genai_close) close;
	__typeof__(&genai_model_open) model_open;
	__typeof__(&genai_model_close) model_close;
	__typeof__(&genai_session_open) session_open;
	__typeof__(&genai_session_close) session_close;
	__typeof__(&genai_session_append) append;
	__typeof__(&genai_session_next) next;
	struct genai_runtime *rt;
	struct genai_model *m;
	struct genai_session *s;
};

static void symbol(void *lib, const char *name, void *to)
{
	void *p = dlsym(lib, name);

	ck_assert_msg(p != NULL, "%s", name);
	memcpy(to, &p, sizeof(p));
}

static void copy_open(struct copy *c, const char *path, int flags)
{
	static const char *const sets[] = {
		"runtime.module_path=" GENAI_TESTMODULES,
		"runtime.executor=cpu_ref:captured",
		"runtime.pager=pager_async", "runtime.weight_budget=50%"};
	struct genai_runtime_options o = {
		.size = sizeof(o), .sets = sets, .n_sets = 4};
	void *lib = dlopen(path, RTLD_NOW | flags);

	ck_assert_msg(lib != NULL, "%s", dlerror());
	symbol(lib, "genai_open", &c->open);
	symbol(lib, "genai_close", &c->close);
	symbol(lib, "genai_model_open", &c->model_open);
	symbol(lib, "genai_model_close", &c->model_close);
	symbol(lib, "genai_session_open", &c->session_open);
	symbol(lib, "genai_session_close", &c->session_close);
	symbol(lib, "genai_session_append", &c->append);
	symbol(lib, "genai_session_next", &c->next);
	ck_assert_msg(!c->open(&o, &c->rt, &err), "%s", err.text);
	ck_assert_msg(!c->model_open(c->rt, MODEL("llama-cpu-fp32"), NULL,
				     &c->m, &err),
		      "%s", err.text);
	ck_assert_msg(!c->session_open(c->m, &c->s, &err), "%s", err.text);
}

static void copy_close(struct copy *c)
{
	c->session_close(c->s);
	c->model_close(c->m);
	c->close(c->rt);
}

// A library of the system and one that an application brought: both run, with
// the same modules, in turns; the program has the library's functions as well.
START_TEST(two_copies)
{
	static const int64_t prompt[] = {1, 5, 9, 33, 7};
	struct copy c[2];
	int64_t id[2];
	char other[128];

	snprintf(other, sizeof(other), "%s/libother.so", dir);
	put(GENAI_TESTMODULES "/libgenai.so", other);
	copy_open(&c[0], GENAI_TESTMODULES "/libgenai.so",
		  _i ? RTLD_GLOBAL : RTLD_LOCAL);
	copy_open(&c[1], other, RTLD_LOCAL);
	ck_assert(c[0].open != c[1].open);
	for (int k = 0; k < 2; k++)
		ck_assert_msg(!c[k].append(c[k].s, prompt, 5, &err), "%s",
			      err.text);
	for (int i = 0; i < 12; i++) {
		for (int k = 0; k < 2; k++)
			ck_assert_msg(!c[k].next(c[k].s, 1, &id[k], &err), "%s",
				      err.text);
		ck_assert_int_eq(id[0], id[1]);
	}
	copy_close(&c[0]); // the other one goes on
	ck_assert_msg(!c[1].next(c[1].s, 1, &id[1], &err), "%s", err.text);
	copy_close(&c[1]);
}
END_TEST

int main(void)
{
	Suite *suite = suite_create("plugins");
	TCase *t = tcase_create("plugins");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, file_gone);
	tcase_add_test(t, file_replaced);
	tcase_add_test(t, strangers);
	tcase_add_test(t, thread_key);
	tcase_add_test(t, static_tls);
	tcase_add_loop_test(t, forked, 0, 2);
	tcase_add_loop_test(t, left_open, 0, 2);
	tcase_add_test(t, half_started);
	tcase_add_loop_test(t, two_copies, 0, 2);
	suite_add_tcase(suite, t);
	return genai_check_main(suite);
}
