// parity_setup.c - which executors, pagers and schedules parity runs: those of
// its options, else those of the configuration.
#include "tests/conform/parity_impl.h"

#include <stdio.h>
#include <string.h>

#include "core/config/config.h"
#include "core/module/module.h"

// What text is shortened to in messages of one line.
#define NAME 64

static void no_log(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	(void)level;
	(void)text;
}

static const struct genai_log silent = {no_log, NULL, GENAI_LOG_ERROR};

static int fail(const struct genai_error *err)
{
	fprintf(stderr, "genai-conform: %s\n", err->text);
	return 2;
}

// Of layers, "A > B", it is the last one that has schedules.
const char *parity_device(const char *choice)
{
	const char *last = strrchr(choice, '>');

	return last ? last + 1 + strspn(last + 1, " \t") : choice;
}

static void module_of(const char *choice, char name[NAME])
{
	choice = parity_device(choice);
	snprintf(name, NAME, "%.*s", (int)strcspn(choice, ":"), choice);
}

// The configuration, and a module of it.  more: a setting besides, or NULL.
static int32_t load(const struct parity *p, const char *choice,
		    const char *more, struct genai_config **out_c,
		    struct genai_module **out_m, struct genai_error *err)
{
	const char *sets[MAX_LIST + 1];
	uint32_t n = 0;
	char name[NAME];
	int32_t rc;

	for (; n < p->sets.n; n++)
		sets[n] = p->sets.v[n];
	if (more)
		sets[n++] = more;
	*out_c = NULL;
	*out_m = NULL;
	rc = genai_config_load(p->config, sets, n, out_c, err);
	module_of(choice, name);
	if (!rc && *choice)
		rc = genai_module_load(name, *out_c, &silent, out_m, err);
	return rc;
}

static void unload(struct genai_config *c, struct genai_module *m)
{
	genai_module_close(m);
	genai_config_close(c);
}

// Does the module take such a setting?
static bool takes(const struct parity *p, const char *choice, const char *key,
		  const char *value)
{
	struct genai_config *c;
	struct genai_module *m;
	char set[200], name[NAME];
	bool yes;

	module_of(choice, name);
	snprintf(set, sizeof(set), "module.%s.%s=%s", name, key, value);
	yes = !load(p, choice, set, &c, &m, NULL);
	unload(c, m);
	return yes;
}

static bool is_set(const struct genai_config *c, const char *key)
{
	const char *from = genai_config_origin(c, "runtime", key);

	return from && strcmp(from, "default") != 0;
}

// ---- lists ----

static void add(struct list *l, const char *v)
{
	if (l->n < MAX_LIST)
		l->v[l->n++] = v;
}

static const char *keep(struct parity *p, const char *fmt, const char *a,
			const char *b)
{
	char *text = p->texts[p->n_texts++ % (2 * MAX_LIST)];

	snprintf(text, sizeof(p->texts[0]), fmt, a, b);
	return text;
}

// The one that the configuration names, or all of the module it names.
static int add_executors(struct parity *p, const char *choice)
{
	struct genai_error err = GENAI_ERROR_INIT;
	const struct genai_iface *f;
	struct genai_config *c;
	struct genai_module *m;

	if (strchr(choice, ':')) {
		add(&p->executors, keep(p, "%s%s", choice, ""));
		return 0;
	}
	if (load(p, choice, NULL, &c, &m, &err)) {
		unload(c, m);
		return fail(&err);
	}
	for (uint32_t i = 0; (f = genai_module_iface_at(m, i)); i++)
		if (!strcmp(f->type, GENAI_IFACE_EXECUTOR))
			add(&p->executors, keep(p, "%s:%s", choice, f->name));
	unload(c, m);
	return 0;
}

static int from_config(struct parity *p)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_config *c;
	struct genai_module *m;
	const char *stream;
	int rc = 0;

	if (load(p, "", NULL, &c, &m, &err)) {
		genai_config_close(c);
		return fail(&err);
	}
	if (!p->executors.n && is_set(c, "executor"))
		rc = add_executors(p,
				   genai_config_get(c, "runtime", "executor"));
	else if (!p->executors.n)
		rc = add_executors(p, "cpu_ref");
	if (!p->pagers.n && is_set(c, "pager")) {
		add(&p->pagers,
		    keep(p, "%s%s", genai_config_get(c, "runtime", "pager"),
			 ""));
	} else if (!p->pagers.n) {
		add(&p->pagers, "pager_sync");
		add(&p->pagers, "pager_async");
	}
	stream = genai_config_get(c, "runtime", "stream");
	if (is_set(c, "stream"))
		snprintf(p->stream, sizeof(p->stream), "%s", stream);
	genai_config_close(c);
	return rc;
}

// ---- what their modules can be told ----

// The executor that the resident run has: the eager one of its module.
static int find_resident(struct parity *p, uint32_t at)
{
	struct genai_error err = GENAI_ERROR_INIT;
	const char *choice = p->executors.v[at];
	const struct genai_iface *f;
	struct genai_config *c;
	struct genai_module *m;
	char name[NAME];

	if (load(p, choice, NULL, &c, &m, &err)) {
		unload(c, m);
		return fail(&err);
	}
	module_of(choice, name);
	snprintf(p->resident[at], sizeof(p->resident[0]), "%s", choice);
	for (uint32_t i = 0; (f = genai_module_iface_at(m, i)); i++)
		if (!strcmp(f->type, GENAI_IFACE_EXECUTOR) &&
		    !strcmp(f->name, "eager"))
			snprintf(p->resident[at], sizeof(p->resident[0]),
				 "%s:eager", name);
	unload(c, m);
	return 0;
}

int parity_lists(struct parity *p)
{
	int rc = from_config(p);

	for (uint32_t i = 0; !rc && i < p->executors.n; i++) {
		const char *device = *p->stream ? p->stream : p->executors.v[i];

		rc = find_resident(p, i);
		p->has_schedule[i] = takes(p, device, "schedule", "inorder");
	}
	for (uint32_t i = 0; !rc && i < p->pagers.n; i++) {
		struct genai_error err = GENAI_ERROR_INIT;
		struct genai_config *c;
		struct genai_module *m;

		if (load(p, p->pagers.v[i], NULL, &c, &m, &err))
			rc = fail(&err);
		unload(c, m);
		p->has_pages[i] =
			takes(p, p->pagers.v[i], "page_bytes", "4096");
	}
	if (!rc &&
	    (uint64_t)p->budgets.n * p->pagers.n * p->executors.n > MAX_CELLS) {
		fprintf(stderr, "genai-conform: more than %d cells\n",
			MAX_CELLS);
		rc = 2;
	}
	return rc;
}

static void say_list(const char *what, const struct list *l)
{
	printf("%s ", what);
	for (uint32_t i = 0; i < l->n; i++)
		printf(i ? ",%s" : "%s", l->v[i]);
}

void parity_say(const struct parity *p)
{
	say_list("parity: executors", &p->executors);
	if (*p->stream)
		printf(" on %s", p->stream);
	say_list("; pagers", &p->pagers);
	say_list("; budgets", &p->budgets);
	say_list("; schedules", &p->schedules);
	printf("; seeds %llu to %llu\n", (unsigned long long)p->first,
	       (unsigned long long)(p->first + p->seeds - 1));
}
