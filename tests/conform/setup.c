// setup.c - a runtime around the module under test.
#include "tests/conform/conform.h"

#include "core/layer.h"

#include <dirent.h>
#include <malloc.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

char cf_logged[1024];
static atomic_uint n_errors;

static void keep(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	if (level > GENAI_LOG_ERROR)
		return;
	atomic_fetch_add(&n_errors, 1);
	snprintf(cf_logged, sizeof(cf_logged), "%s", text);
}

const struct genai_log cf_log = {keep, NULL, GENAI_LOG_DEBUG};

uint32_t cf_log_errors(void)
{
	return atomic_exchange(&n_errors, 0);
}

void cf_skip(const char *fmt, ...)
{
	va_list ap;

	cf.note->state = CF_SKIPPED;
	va_start(ap, fmt);
	vsnprintf(cf.note->text, sizeof(cf.note->text), fmt, ap);
	va_end(ap);
	longjmp(cf.skip, 1);
}

// ---- configuration ----

static const struct {
	const char *type, *key;
} kinds[] = {
	{GENAI_IFACE_STREAM, "stream"},
	{GENAI_IFACE_BARRIER, "barrier"},
	{GENAI_IFACE_EXECUTOR, "executor"},
	{GENAI_IFACE_PAGER, "pager"},
	{GENAI_IFACE_STREAM_LAYER, "stream"},
};
#define N_KINDS (sizeof(kinds) / sizeof(kinds[0]))

// The settings of a test: where the module is, what the user said, what the
// test says.
struct sets {
	const char *list[96];
	uint32_t n;
	char path[4200], choice[N_KINDS][160];
};

static void add(struct sets *s, const char *set)
{
	if (s->n < sizeof(s->list) / sizeof(s->list[0]))
		s->list[s->n++] = set;
}

static void collect(struct sets *s, const char *const *more)
{
	s->n = 0;
	if (cf.path[0]) {
		snprintf(s->path, sizeof(s->path), "module.%s.path=%s", cf.name,
			 cf.path);
		add(s, s->path);
	}
	for (uint32_t i = 0; i < cf.o.n_sets; i++)
		add(s, cf.o.sets[i]);
	for (; more && *more; more++)
		if (**more)
			add(s, *more);
}

// The module takes every place that it can fill; the interface under test the
// one that is tested.
static void choose(struct sets *s, const struct genai_module *m,
		   const char *device)
{
	const struct genai_iface *f;
	const char *at = cf.at ? cf.at->test->iface : NULL;

	for (uint32_t k = 0; k < N_KINDS; k++) {
		const char *name = NULL;

		for (uint32_t i = 0; (f = genai_module_iface_at(m, i)); i++)
			if (!strcmp(f->type, kinds[k].type) &&
			    (!name || (at && !strcmp(at, f->type) &&
				       !strcmp(cf.at->iface, f->name))))
				name = f->name;
		if (!name)
			continue;
		// a layer stands in front of the device that is configured
		snprintf(s->choice[k], sizeof(s->choice[k]),
			 "runtime.%s=%s:%s%s%s", kinds[k].key, cf.name, name,
			 k == 4 ? " > " : "", k == 4 ? device : "");
		add(s, s->choice[k]);
	}
}

static int32_t load(const char *const *sets, struct genai_config **out_config,
		    struct genai_module **out_module, struct genai_error *err)
{
	struct sets s;
	int32_t rc;

	collect(&s, sets);
	rc = genai_config_load(cf.o.config, s.list, s.n, out_config, err);
	if (rc)
		return rc;
	rc = genai_module_load(cf.name, *out_config, &cf_log, out_module, err);
	if (rc) {
		genai_config_close(*out_config);
		*out_config = NULL;
	}
	return rc;
}

// What a layer that is started by itself stands in front of: the configured
// device, which stays up until the process ends.
static int32_t base(const struct genai_stack **out, struct genai_error *err)
{
	static struct genai_runtime rt;
	static struct genai_stack stack;
	int32_t rc;

	*out = &stack;
	if (stack.stream_self)
		return 0;
	rt.log = cf_log;
	rc = genai_config_load(cf.o.config, cf.o.sets, cf.o.n_sets, &rt.config,
			       err);
	if (!rc)
		rc = genai_runtime_choose_stream(&rt, err);
	if (!rc)
		rc = genai_runtime_choose(&rt, "barrier", &rt.barrier, err);
	if (!rc)
		rc = genai_runtime_bring_up(&rt, err);
	if (!rc)
		stack = (struct genai_stack){rt.device.raw,
					     rt.device.raw_barrier,
					     rt.device.raw_self,
					     rt.device.barrier_self};
	return rc;
}

static bool is_layer(const struct genai_module *m)
{
	const struct genai_iface *f;

	for (uint32_t i = 0; (f = genai_module_iface_at(m, i)); i++)
		if (!strcmp(f->type, GENAI_IFACE_STREAM_LAYER))
			return true;
	return false;
}

int32_t cf_load(const char *const *sets, struct genai_config **out_config,
		struct genai_module **out_module, struct genai_error *err)
{
	const struct genai_stack *below;
	int32_t rc = load(sets, out_config, out_module, err);

	if (rc || !is_layer(*out_module))
		return rc;
	rc = base(&below, err);
	if (!rc)
		rc = genai_layer_offer(*out_module, below, err);
	if (!rc)
		return 0;
	genai_module_close(*out_module);
	genai_config_close(*out_config);
	*out_config = NULL;
	return rc;
}

// ---- runtime ----

static int32_t load_all(struct genai_runtime *rt, uint32_t with,
			const char *const *sets, struct genai_error *err)
{
	struct genai_module *m = NULL;
	struct genai_config *first = NULL;
	struct sets s;
	int32_t rc = load(sets, &first, &m, err);

	if (rc)
		return rc;
	collect(&s, sets);
	choose(&s, m, genai_config_get(first, "runtime", "stream"));
	genai_module_close(m);
	genai_config_close(first);
	rc = genai_config_load(cf.o.config, s.list, s.n, &rt->config, err);
	if (!rc)
		rc = genai_runtime_choose_stream(rt, err);
	if (!rc)
		rc = genai_runtime_choose(rt, "barrier", &rt->barrier, err);
	if (!rc && with & CF_WITH_EXECUTOR)
		rc = genai_runtime_choose(rt, "executor", &rt->executor, err);
	if (!rc && with & CF_WITH_PAGER)
		rc = genai_runtime_choose(rt, "pager", &rt->pager, err);
	return rc;
}

static int32_t take_caps(struct genai_runtime *rt, uint32_t with,
			 struct genai_error *err)
{
	int32_t rc = 0;

	if (with & CF_WITH_PAGER)
		rc = genai_runtime_take_pager(rt, err);
	if (!rc && with & CF_WITH_EXECUTOR)
		rc = genai_runtime_take_executor(rt, err);
	return rc;
}

// For the report: a failure may come of the schedule.
static void note_sets(const char *const *sets)
{
	char *to = cf.note->with;
	size_t n = 0;

	*to = 0;
	for (; sets && *sets && n < sizeof(cf.note->with); sets++)
		if (**sets)
			n += (size_t)snprintf(to + n, sizeof(cf.note->with) - n,
					      "%s%s", n ? " " : "", *sets);
}

// --keep-open: a runtime beside those of the test, in this process, so that
// what a driver makes once for all of them is there before the test begins.
static void keep_open(void)
{
	static pid_t by;
	struct genai_runtime *rt;

	if (!cf.o.keep_open || by == getpid())
		return;
	by = getpid();
	rt = calloc(1, sizeof(*rt));
	ck_assert_ptr_nonnull(rt);
	rt->log = cf_log;
	if (load_all(rt, 0, NULL, NULL) || genai_runtime_bring_up(rt, NULL))
		genai_close(rt); // the test will say why
}

int32_t cf_try_open(struct cf_rt *r, uint32_t with, const char *const *sets,
		    void (*before)(struct genai_module *m),
		    struct genai_error *err)
{
	struct genai_runtime *rt = calloc(1, sizeof(*rt));
	int32_t rc;

	memset(r, 0, sizeof(*r));
	ck_assert_ptr_nonnull(rt);
	keep_open();
	note_sets(sets);
	rt->log = cf_log;
	rc = load_all(rt, with, sets, err);
	for (uint32_t i = 0; !rc && i < rt->n_modules; i++)
		if (!strcmp(genai_module_name(rt->modules[i]), cf.name))
			r->tested = rt->modules[i];
	if (!rc && before && r->tested)
		before(r->tested);
	if (!rc)
		rc = genai_runtime_bring_up(rt, err);
	if (!rc)
		rc = take_caps(rt, with, err);
	if (rc) {
		genai_close(rt);
		return rc;
	}
	r->rt = rt;
	r->d = &rt->device;
	r->st = rt->device.stream.ops;
	r->ba = rt->device.barrier.ops;
	r->caps = rt->device.caps;
	return 0;
}

static const char *missing_cap(const struct cf_rt *r, uint32_t needs)
{
	uint32_t have = r->caps.flags;

	if (needs & CF_RECORD && !(have & GENAI_STREAM_CAP_RECORD))
		return "RECORD";
	if (needs & CF_RESERVE && !(have & GENAI_STREAM_CAP_RESERVE))
		return "RESERVE";
	if (needs & CF_IN_PLACE && !(have & GENAI_STREAM_CAP_IN_PLACE))
		return "IN_PLACE";
	if (needs & CF_UNITS && have & GENAI_STREAM_CAP_NATIVE)
		return "units that are functions (it is NATIVE)";
	if (needs & CF_NATIVE && !(have & GENAI_STREAM_CAP_NATIVE))
		return "NATIVE";
	if (needs & CF_SIGNAL && !(have & GENAI_STREAM_CAP_SIGNAL))
		return "SIGNAL";
	if (needs & CF_STAMPS && !(have & GENAI_STREAM_CAP_STAMPS))
		return "STAMPS";
	if (needs & CF_STABLE &&
	    !(r->rt->pager_caps.flags & GENAI_PAGER_CAP_STABLE))
		return "STABLE";
	if (needs & CF_RECORDS &&
	    !(r->rt->exec_caps.flags & GENAI_EXEC_CAP_RECORDS))
		return "RECORDS";
	if (needs & CF_ROWS_EXACT &&
	    !(r->rt->exec_caps.flags & GENAI_EXEC_CAP_ROWS_EXACT))
		return "ROWS_EXACT";
	return NULL;
}

void cf_open(struct cf_rt *r, uint32_t with, const char *const *sets)
{
	const char *missing;
	int32_t rc;

	CF_CLEAR();
	rc = cf_try_open(r, with, sets, NULL, &cf_err);
	if (rc == GENAI_E_NODEVICE && !cf.o.require_device)
		cf_skip("no device: %s", cf_err.text);
	if (rc)
		ck_abort_msg("cannot open: %s: %s", genai_status_name(rc),
			     cf_err.text);
	missing = missing_cap(r, cf.at->test->needs);
	if (missing) {
		genai_close(r->rt);
		cf_skip("does not claim %s", missing);
	}
}

void cf_close(struct cf_rt *r)
{
	uint32_t n;

	genai_close(r->rt);
	r->rt = NULL;
	n = cf_log_errors();
	if (n)
		ck_abort_msg("%u errors logged, the last: %s", n, cf_logged);
}

// ---- schedules ----

static const char *const values[] = {"inorder",	 "late",     "early",
				     "random:1", "random:2", "random:3",
				     "random:4", "threads"};
#define N_SCHEDULES (sizeof(values) / sizeof(values[0]))
static char texts[N_SCHEDULES + 1][96];
static const char *schedules[N_SCHEDULES + 1][2];
static uint32_t n_schedules;

static void unload(struct genai_runtime *rt)
{
	while (rt->n_modules)
		genai_module_close(rt->modules[--rt->n_modules]);
	genai_config_close(rt->config);
}

// Does the device that the tests run on take this value of its key schedule?
static bool takes(const char *name, const char *value)
{
	struct genai_runtime rt = {.log = cf_log};
	const char *sets[2] = {texts[n_schedules], NULL};
	bool ok;

	snprintf(texts[n_schedules], sizeof(texts[0]), "module.%s.schedule=%s",
		 name, value);
	ok = !load_all(&rt, 0, sets, NULL);
	unload(&rt);
	return ok;
}

uint32_t cf_n_schedules(void)
{
	struct genai_runtime rt = {.log = cf_log};
	char name[64] = "";

	if (!load_all(&rt, 0, NULL, NULL))
		snprintf(name, sizeof(name), "%s",
			 genai_module_name(rt.stream.module));
	unload(&rt);
	// whatever the device does, the order has to be there; first, because
	// it names the wait that is missing
	schedules[0][0] = "runtime.check=order";
	n_schedules = 1;
	for (uint32_t i = 0; *name && i < N_SCHEDULES; i++) {
		if (!takes(name, values[i]))
			continue;
		schedules[n_schedules][0] = texts[n_schedules];
		n_schedules++;
	}
	if (n_schedules == 1)
		n_schedules++; // the device's own: schedules[1] is empty
	return n_schedules;
}

const char *const *cf_schedule(uint32_t i)
{
	return schedules[i];
}

// ---- census ----

static uint32_t entries(const char *path)
{
	DIR *d = opendir(path);
	uint32_t n = 0;

	while (d && readdir(d))
		n++;
	if (d)
		closedir(d);
	return n;
}

struct cf_census cf_count(void)
{
	struct mallinfo2 m = mallinfo2();

	return (struct cf_census){entries("/proc/self/fd"),
				  entries("/proc/self/task"),
				  m.uordblks + m.hblkhd};
}
