// parity.c - genai-conform --parity: every configuration gives the same tokens.
// Cells {executors} x {pagers} x {budgets} are taken in turn, and with every
// round of them the models.  A seed draws a schedule, a page size and a
// conversation; its tokens and logits are compared with the resident, eager run
// on the same device.  Seeds run in a process of their own: one that dies is a
// failed seed like any other.
#include "tests/conform/parity.h"

#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <jansson.h>

#include "tests/conform/parity_impl.h"

static uint64_t next(uint64_t *x)
{
	uint64_t z = *x += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

// ---- one configuration ----

struct sets {
	char text[24][512];
	const char *v[24 + MAX_LIST];
	uint32_t n;
};

static void put(struct sets *s, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void put(struct sets *s, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(s->text[s->n], sizeof(s->text[0]), fmt, ap);
	va_end(ap);
	s->v[s->n] = s->text[s->n];
	s->n++;
}

// Error lines of a configuration, which say what was left behind.
static uint32_t n_errors;
static char last_error[400];

static void count_errors(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	if (level > GENAI_LOG_ERROR)
		return;
	if (!n_errors++)
		snprintf(last_error, sizeof(last_error), "%s", text);
}

static void fill_sets(const struct parity *p, const struct draw *d,
		      struct sets *s)
{
	const char *device =
		parity_device(*p->stream ? p->stream : d->executor);
	int n = (int)strcspn(device, ":");

	s->n = 0;
	put(s, "runtime.executor=%s", d->executor);
	if (!*p->stream) {
		put(s, "runtime.stream=%.*s", n, device);
		put(s, "runtime.barrier=%.*s", n, device);
	}
	put(s, "runtime.pager=%s", d->pager);
	put(s, "runtime.weight_budget=%s", d->budget);
	put(s, "runtime.context=%llu",
	    p->tokens ? 2 * (MAX_PROMPT + (unsigned long long)p->tokens) : 256);
	put(s, "runtime.check=%s", d->check ? "order" : "off");
	if (d->page_bytes)
		put(s, "module.%.*s.page_bytes=%llu",
		    (int)strcspn(d->pager, ":"), d->pager,
		    (unsigned long long)d->page_bytes);
	if (*d->schedule)
		put(s, "module.%.*s.schedule=%s", n, device, d->schedule);
	if (!strncmp(device, "cpu_ref", (size_t)n))
		put(s, "module.cpu_ref.threads=1");
	for (uint32_t i = 0; i < p->sets.n; i++)
		s->v[s->n++] = p->sets.v[i];
}

static void shut(struct setup *u)
{
	genai_session_close(u->session);
	genai_model_close(u->model);
	genai_close(u->rt);
	memset(u, 0, sizeof(*u));
}

static int32_t start(const struct parity *p, const struct draw *d,
		     struct setup *u, struct genai_error *err)
{
	struct sets s;
	struct genai_runtime_options o = {.size = sizeof(o),
					  .config_path = p->config,
					  .sets = s.v,
					  .log = count_errors};
	int32_t rc;

	fill_sets(p, d, &s);
	o.n_sets = s.n;
	memset(u, 0, sizeof(*u));
	rc = genai_open(&o, &u->rt, err);
	if (!rc)
		rc = genai_model_open(u->rt, d->dir, NULL, &u->model, err);
	if (!rc)
		rc = genai_session_open(u->model, &u->session, err);
	return rc;
}

// ---- the conversation ----

static void note(struct talk *t, int64_t v, bool is_logits)
{
	if (t->n == MAX_STEPS)
		return;
	t->is_logits[t->n] = is_logits;
	t->v[t->n++] = v;
}

static int32_t note_logits(struct setup *u, uint32_t vocab, struct talk *t,
			   struct genai_error *err)
{
	float *row = malloc(vocab * sizeof(*row));
	uint64_t h = UINT64_C(0xcbf29ce484222325);
	size_t rows = 0;
	int32_t rc;

	if (!row)
		return GENAI_E_NOMEM;
	rc = genai_session_logits(u->session, row, 1, &rows, err);
	for (uint32_t i = 0; !rc && i < vocab; i++) {
		uint32_t bits;

		memcpy(&bits, &row[i], sizeof(bits));
		h = (h ^ bits) * UINT64_C(0x100000001b3);
	}
	free(row);
	note(t, (int64_t)h, true);
	return rc;
}

// A turn: a prompt, its logits, some tokens.
static int32_t turn(struct setup *u, uint32_t vocab, uint64_t *rng,
		    uint64_t fixed, struct talk *t, struct genai_error *err)
{
	uint64_t n = 1 + next(rng) % MAX_PROMPT, drawn = 3 + next(rng) % 8;
	uint64_t tokens = fixed ? fixed : drawn;
	bool ahead = next(rng) & 1;
	int64_t ids[MAX_PROMPT], id;
	int32_t rc;

	for (uint64_t i = 0; i < n; i++)
		ids[i] = (int64_t)(next(rng) % vocab);
	rc = genai_session_append(u->session, ids, n, err);
	if (!rc)
		rc = note_logits(u, vocab, t, err);
	for (uint64_t i = 0; !rc && i < tokens; i++) {
		rc = genai_session_next(u->session, ahead && i + 1 < tokens,
					&id, err);
		if (!rc)
			note(t, id, false);
	}
	return rc;
}

// A turn, a second one after it, and a third after a rewind.
static int32_t converse(struct setup *u, uint64_t seed, uint64_t tokens,
			struct talk *t, struct genai_error *err)
{
	struct genai_model_info info = {.size = sizeof(info)};
	uint64_t rng = seed ^ UINT64_C(0x5eed);
	const uint64_t first = tokens ? tokens
			       : seed % LONG_EVERY == LONG_EVERY - 1
				       ? LONG_TOKENS
				       : 0;
	int32_t rc = genai_model_get_info(u->model, &info);
	uint64_t length;

	t->n = 0;
	if (!rc)
		rc = turn(u, info.vocab_size, &rng, first, t, err);
	if (!rc)
		rc = turn(u, info.vocab_size, &rng, tokens, t, err);
	length = genai_session_length(u->session);
	if (!rc) // with long turns, to where a third one has room
		rc = genai_session_rewind(
			u->session, next(&rng) % (first ? length / 2 : length),
			err);
	return rc ? rc : turn(u, info.vocab_size, &rng, tokens, t, err);
}

// ---- a seed ----

static uint32_t index_of(const struct list *l, const char *s)
{
	uint32_t i = 0;

	while (l->v[i] != s)
		i++;
	return i;
}

static struct setup *ref_of(struct parity *p, const struct draw *d)
{
	uint32_t dir = index_of(&p->dirs, d->dir);

	return &p->ref[dir][index_of(&p->executors, d->executor)];
}

// The resident, eager run of the device that an executor needs.
static int32_t reference(struct parity *p, const struct draw *d,
			 struct talk *out, struct genai_error *err)
{
	struct setup *u = ref_of(p, d);
	struct draw r = {.dir = d->dir,
			 .executor = d->executor,
			 .pager = p->pagers.v[0],
			 .budget = "100%",
			 .check = false};
	int32_t rc = 0;

	if (!u->rt) {
		r.executor = p->resident[index_of(&p->executors, d->executor)];
		if (p->has_schedule[index_of(&p->executors, d->executor)])
			strcpy(r.schedule, "inorder");
		rc = start(p, &r, u, err);
		if (rc)
			shut(u);
	} else {
		rc = genai_session_rewind(u->session, 0, err);
	}
	return rc ? rc : converse(u, d->seed, p->tokens, out, err);
}

static uint64_t n_cells(const struct parity *p)
{
	return (uint64_t)p->budgets.n * p->pagers.n * p->executors.n;
}

static void draw_seed(const struct parity *p, uint64_t seed, struct draw *d)
{
	uint64_t rng = seed * 2654435761u + 1, cell = seed;
	const char *s;

	memset(d, 0, sizeof(*d));
	d->seed = seed;
	d->budget = p->budgets.v[cell % p->budgets.n];
	cell /= p->budgets.n;
	d->pager = p->pagers.v[cell % p->pagers.n];
	cell /= p->pagers.n;
	d->executor = p->executors.v[cell % p->executors.n];
	cell /= p->executors.n;
	d->dir = p->dirs.v[cell % p->dirs.n];
	s = p->schedules.v[next(&rng) % p->schedules.n];
	if (!p->has_schedule[index_of(&p->executors, d->executor)])
		s = "";
	if (!strcmp(s, "random"))
		snprintf(d->schedule, sizeof(d->schedule), "random:%u",
			 (unsigned)next(&rng));
	else
		snprintf(d->schedule, sizeof(d->schedule), "%s", s);
	d->page_bytes = next(&rng) % 7; // see page_bytes()
	d->check = next(&rng) & 1;
}

// 1/512 to 1/8 of the weights: tiny models need small pages.
static uint64_t page_bytes(struct parity *p, const struct draw *d)
{
	struct genai_stats st = {.size = sizeof(st)};
	struct setup *u = ref_of(p, d);
	uint64_t page;

	if (!p->has_pages[index_of(&p->pagers, d->pager)] ||
	    genai_model_get_stats(u->model, &st, NULL))
		return 0;
	page = st.weights_bytes >> (3 + d->page_bytes);
	return page ? page : 1;
}

static const char *same(const struct talk *want, const struct talk *got,
			char *buf, size_t cap)
{
	for (uint32_t i = 0; i < want->n; i++) {
		if (i < got->n && want->v[i] == got->v[i])
			continue;
		if (i >= got->n)
			snprintf(buf, cap, "value %u is missing", i);
		else if (want->is_logits[i])
			snprintf(buf, cap, "logits %u differ", i);
		else
			snprintf(buf, cap, "token %u is %lld, not %lld", i,
				 (long long)got->v[i], (long long)want->v[i]);
		return buf;
	}
	return NULL;
}

static const char *run_cell(struct parity *p, const struct draw *d,
			    const struct talk *want, bool *out_ring, char *buf,
			    size_t cap)
{
	struct genai_stats st = {.size = sizeof(st)};
	struct genai_error err = GENAI_ERROR_INIT;
	struct setup u;
	struct talk got;
	int32_t rc;

	n_errors = 0;
	rc = start(p, d, &u, &err);
	got.n = 0;
	if (!rc)
		rc = converse(&u, d->seed, p->tokens, &got, &err);
	if (u.model && !genai_model_get_stats(u.model, &st, NULL))
		*out_ring = st.ring_bytes != 0;
	shut(&u);
	if (rc) {
		snprintf(buf, cap, "%s", err.text);
		return buf;
	}
	if (same(want, &got, buf, cap))
		return buf;
	if (!n_errors)
		return NULL;
	snprintf(buf, cap, "%u errors logged, the first: %s", n_errors,
		 last_error);
	return buf;
}

// As a shell takes it for one word.
static void print_word(const char *s)
{
	static const char plain[] = "abcdefghijklmnopqrstuvwxyz"
				    "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
				    "0123456789-_./=,:%+@";

	if (*s && !s[strspn(s, plain)]) {
		printf(" %s", s);
		return;
	}
	printf(" '");
	for (; *s; s++)
		printf(*s == '\'' ? "'\\''" : "%c", *s);
	printf("'");
}

static bool is_seeds(const char *arg)
{
	return !strcmp(arg, "--seeds") || !strcmp(arg, "--seed");
}

// What a seed chose, and how to run it again.
static void print_draw(const struct parity *p, const struct draw *d)
{
	printf("  %s, %s, budget %s, schedule %s, page_bytes ", d->executor,
	       d->pager, d->budget, *d->schedule ? d->schedule : "its own");
	if (d->page_bytes)
		printf("%llu", (unsigned long long)d->page_bytes);
	else
		printf("the core's");
	printf(", check %s, %s\n  again:", d->check ? "order" : "off", d->dir);
	for (int i = 0; i < p->argc; i++)
		if (!is_seeds(p->argv[i]) && (!i || !is_seeds(p->argv[i - 1])))
			print_word(p->argv[i]);
	printf(" --seed %llu\n", (unsigned long long)d->seed);
}

// A seed that failed: said at once, whatever comes next.
static void report(struct parity *p, const struct draw *d, const char *what)
{
	struct tally *t = p->tally;

	printf("seed %llu: %s\n", (unsigned long long)d->seed, what);
	print_draw(p, d);
	fflush(stdout);
	t->failed++;
	t->reported = true;
	t->cells[d->seed % n_cells(p)].differ++;
	if (t->n_failures == MAX_FAILURES)
		return;
	t->failures[t->n_failures].seed = d->seed;
	snprintf(t->failures[t->n_failures++].text, sizeof(t->failures[0].text),
		 "%s", what);
}

// ---- who is to blame ----

// The same seed with one choice replaced by the plainest: is it right now?
static void try_with(struct parity *p, struct draw d, const struct talk *want,
		     const char *what, bool *out_right)
{
	char text[640];
	bool ring;
	const char *wrong = run_cell(p, &d, want, &ring, text, sizeof(text));

	*out_right = !wrong;
	printf("  with %s: %s\n", what, wrong ? wrong : "right");
	fflush(stdout);
}

// The pager that comes with genai and copies in order with the kernels.
static const char plain_pager[] = "pager_sync";

static void blame(struct parity *p, const struct draw *d,
		  const struct talk *want)
{
	const char *eager = p->resident[index_of(&p->executors, d->executor)];
	bool pager = false, executor = false, schedule = false;
	struct draw one;

	if (!d->check) { // names the race, if it is one
		one = *d;
		one.check = true;
		try_with(p, one, want, "check = order", &schedule);
	}
	schedule = false;
	one = *d;
	one.pager = plain_pager;
	if (strcmp(d->pager, plain_pager))
		try_with(p, one, want, "pager_sync", &pager);
	one = *d;
	one.executor = eager;
	if (strcmp(d->executor, eager))
		try_with(p, one, want, eager, &executor);
	one = *d;
	strcpy(one.schedule, "inorder");
	if (*d->schedule && strcmp(d->schedule, "inorder"))
		try_with(p, one, want, "schedule inorder", &schedule);
	printf("  to blame: ");
	if (pager && executor)
		printf("%s with %s, or the device under them", d->pager,
		       d->executor);
	else if (pager)
		printf("%s", d->pager);
	else if (executor)
		printf("%s", d->executor);
	else
		printf("the device or the executor: it fails with any pager "
		       "that was tried");
	printf(schedule ? "; an order that is missing\n" : "\n");
	fflush(stdout);
}

static void run_seed(struct parity *p, uint64_t seed)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct tally *t = p->tally;
	struct cell *c = &t->cells[seed % n_cells(p)];
	char text[640];
	const char *what;
	bool ring = false;
	struct talk want;
	struct draw d;

	draw_seed(p, seed, &d);
	t->at = seed;
	t->reported = false;
	c->runs++;
	alarm(SEED_S);
	if (reference(p, &d, &want, &err)) {
		snprintf(text, sizeof(text), "the resident run failed: %s",
			 err.text);
		report(p, &d, text);
		return;
	}
	d.page_bytes = page_bytes(p, &d);
	what = run_cell(p, &d, &want, &ring, text, sizeof(text));
	c->rings += ring;
	t->rings += ring;
	if (!what)
		return;
	report(p, &d, what);
	blame(p, &d, &want);
}

// ---- the process that runs the seeds ----

static void work(struct parity *p, uint64_t from)
{
	for (uint64_t i = from; i < p->seeds; i++)
		run_seed(p, p->first + i);
	for (uint32_t i = 0; i < p->dirs.n; i++)
		for (uint32_t k = 0; k < p->executors.n; k++)
			shut(&p->ref[i][k]);
}

// It died: the seed is to blame, the others still have their turn.
static void died(struct parity *p, int status)
{
	char text[200];
	struct draw d;

	snprintf(text, sizeof(text), "the process %s: %s",
		 WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM
			 ? "took too long"
			 : "died",
		 WIFSIGNALED(status) ? strsignal(WTERMSIG(status)) : "exited");
	draw_seed(p, p->tally->at, &d);
	d.page_bytes = 0;
	if (p->tally->reported)
		printf("  %s\n", text);
	else
		report(p, &d, text);
}

static int run_all(struct parity *p)
{
	uint64_t from = 0;

	while (from < p->seeds) {
		pid_t pid;
		int status = 0;

		fflush(stdout);
		p->tally->at = p->first + from;
		pid = fork();
		if (!pid) {
			work(p, from);
			fflush(stdout);
			_exit(0);
		}
		if (pid < 0 || waitpid(pid, &status, 0) != pid) {
			perror("genai-conform");
			return 1;
		}
		if (WIFEXITED(status) && !WEXITSTATUS(status))
			return 0;
		died(p, status);
		from = p->tally->at - p->first + 1;
	}
	return 0;
}

// ---- report ----

static const struct cell *cell_at(const struct parity *p, uint32_t e,
				  uint32_t pg, uint32_t b)
{
	return &p->tally->cells[(e * p->pagers.n + pg) * p->budgets.n + b];
}

static void print_table(const struct parity *p)
{
	printf("\n| executor | pager |");
	for (uint32_t b = 0; b < p->budgets.n; b++)
		printf(" %s |", p->budgets.v[b]);
	printf("\n|---|---|");
	for (uint32_t b = 0; b < p->budgets.n; b++)
		printf("---|");
	printf("\n");
	for (uint32_t e = 0; e < p->executors.n; e++)
		for (uint32_t g = 0; g < p->pagers.n; g++) {
			printf("| %s | %s |", p->executors.v[e],
			       p->pagers.v[g]);
			for (uint32_t b = 0; b < p->budgets.n; b++) {
				const struct cell *c = cell_at(p, e, g, b);

				printf(" %llu of %llu |",
				       (unsigned long long)(c->runs -
							    c->differ),
				       (unsigned long long)c->runs);
			}
			printf("\n");
		}
}

static json_t *json_failures(const struct parity *p)
{
	json_t *all = json_array();
	struct draw d;

	for (uint32_t i = 0; i < p->tally->n_failures; i++) {
		draw_seed(p, p->tally->failures[i].seed, &d);
		json_array_append_new(
			all,
			json_pack("{s:I, s:s, s:s, s:s, s:s, s:s, s:s}", "seed",
				  (json_int_t)d.seed, "executor", d.executor,
				  "pager", d.pager, "budget", d.budget,
				  "schedule", d.schedule, "model", d.dir,
				  "text", p->tally->failures[i].text));
	}
	return all;
}

static int write_json(const struct parity *p, double seconds)
{
	json_t *cells = json_array(), *j;
	int rc;

	for (uint32_t e = 0; e < p->executors.n; e++)
		for (uint32_t g = 0; g < p->pagers.n; g++)
			for (uint32_t b = 0; b < p->budgets.n; b++) {
				const struct cell *c = cell_at(p, e, g, b);

				json_array_append_new(
					cells,
					json_pack("{s:s, s:s, s:s, s:I, s:I, "
						  "s:I}",
						  "executor", p->executors.v[e],
						  "pager", p->pagers.v[g],
						  "budget", p->budgets.v[b],
						  "runs", (json_int_t)c->runs,
						  "differ",
						  (json_int_t)c->differ,
						  "through_a_ring",
						  (json_int_t)c->rings));
			}
	j = json_pack("{s:I, s:I, s:I, s:f, s:o, s:o}", "first_seed",
		      (json_int_t)p->first, "seeds", (json_int_t)p->seeds,
		      "failed", (json_int_t)p->tally->failed, "seconds",
		      seconds, "cells", cells, "failures", json_failures(p));
	rc = json_dump_file(j, p->json, JSON_INDENT(1));
	json_decref(j);
	if (rc)
		fprintf(stderr, "genai-conform: cannot write %s\n", p->json);
	return rc ? 1 : 0;
}

// ---- options ----

static int usage(const char *why)
{
	fprintf(stderr,
		"genai-conform: %s\n"
		"usage: genai-conform --parity DIR... [--executors LIST] "
		"[--pagers LIST]\n"
		"  [--budgets 100%%,75%%,50%%,25%%,5%%,0] [--schedules LIST] "
		"[--seeds N]\n"
		"  [--seed FIRST] [--tokens N] [--json FILE] [--config F]\n"
		"  [--set section.key=value]\n",
		why);
	return 2;
}

static bool split(struct list *l, char *text)
{
	l->n = 0;
	for (char *s = strtok(text, ","); s; s = strtok(NULL, ",")) {
		if (l->n == MAX_LIST)
			return false;
		l->v[l->n++] = s;
	}
	return l->n;
}

static bool number(const char *s, uint64_t *out)
{
	char *end;

	*out = strtoull(s, &end, 10);
	return *s >= '0' && *s <= '9' && !*end;
}

// One option with its value; NULL if it is fine, else what is wrong.
static const char *take(struct parity *p, const char *opt, char *v)
{
	struct list *l = !strcmp(opt, "--executors")   ? &p->executors
			 : !strcmp(opt, "--pagers")    ? &p->pagers
			 : !strcmp(opt, "--budgets")   ? &p->budgets
			 : !strcmp(opt, "--schedules") ? &p->schedules
						       : NULL;

	if (l)
		return split(l, v) ? NULL : "an empty or too long list";
	if (!strcmp(opt, "--set")) {
		if (p->sets.n == MAX_LIST)
			return "too many --set";
		if (!strncmp(v, "runtime.weight_budget=", 22))
			return "--set: the cells have that from --budgets";
		p->sets.v[p->sets.n++] = v;
	} else if (!strcmp(opt, "--json")) {
		p->json = v;
	} else if (!strcmp(opt, "--config")) {
		p->config = v;
	} else if (!strcmp(opt, "--seeds")) {
		if (!number(v, &p->seeds) || !p->seeds)
			return "--seeds: at least 1";
	} else if (!strcmp(opt, "--seed")) {
		return number(v, &p->first) ? NULL : "--seed: not a number";
	} else if (!strcmp(opt, "--tokens")) {
		if (!number(v, &p->tokens) || p->tokens > MAX_TOKENS)
			return "--tokens: 0 to 300";
	} else {
		return "unknown option";
	}
	return NULL;
}

static int parse(struct parity *p, int argc, char **argv)
{
	static char budgets[] = "100%,75%,50%,25%,5%,0";
	static char schedules[] = "inorder,threads,late,early,random,random";
	bool one = false, many = false;

	split(&p->budgets, budgets);
	split(&p->schedules, schedules);
	for (int i = 1; i < argc; i++) {
		const char *why = NULL;

		if (!strcmp(argv[i], "--parity"))
			continue;
		one |= !strcmp(argv[i], "--seed");
		many |= !strcmp(argv[i], "--seeds");
		if (argv[i][0] != '-' && p->dirs.n < MAX_LIST)
			p->dirs.v[p->dirs.n++] = argv[i];
		else if (argv[i][0] != '-' || ++i == argc)
			why = "too many folders, or no value for the last "
			      "option";
		else
			why = take(p, argv[i - 1], argv[i]);
		if (why)
			return usage(why);
	}
	if (!p->dirs.n)
		return usage("no model folder");
	if (!many)
		p->seeds = one ? 1 : 480;
	return 0;
}

static double now_s(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

// argv as it was: lists are cut up in place.
static char **copy_argv(int argc, char **argv)
{
	char **copy = calloc((size_t)argc + 1, sizeof(*copy));

	for (int i = 0; copy && i < argc; i++)
		copy[i] = strdup(argv[i]);
	return copy;
}

static void finish(const struct parity *p)
{
	const struct tally *t = p->tally;

	print_table(p);
	printf("\n%llu of them streamed pages through a ring\n",
	       (unsigned long long)t->rings);
	// no time here: the same seeds print the same bytes
	printf("%llu passed, %llu failed, 0 skipped\n",
	       (unsigned long long)(p->seeds - t->failed),
	       (unsigned long long)t->failed);
}

static struct tally *new_tally(void)
{
	void *t = mmap(NULL, sizeof(struct tally), PROT_READ | PROT_WRITE,
		       MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	return t == MAP_FAILED ? NULL : t;
}

int conform_parity(int argc, char **argv)
{
	struct parity *p = calloc(1, sizeof(*p));
	double begin = now_s();
	int rc = 1;

	if (!p)
		return 1;
	p->argc = argc;
	p->argv = copy_argv(argc, argv);
	p->tally = new_tally();
	if (p->argv && p->tally)
		rc = parse(p, argc, argv);
	if (!rc)
		rc = parity_lists(p);
	if (!rc) {
		parity_say(p);
		rc = run_all(p);
	}
	if (!rc) {
		finish(p);
		rc = p->json ? write_json(p, now_s() - begin) : 0;
		rc = p->tally->failed ? 1 : rc;
	}
	for (int i = 0; p->argv && i < argc; i++)
		free(p->argv[i]);
	free(p->argv);
	if (p->tally)
		munmap(p->tally, sizeof(*p->tally));
	free(p);
	return rc;
}
