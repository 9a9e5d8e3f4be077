// check.c - a model folder against its recorded results: every prompt whole, in
// chunks and one by one; greedy continuations; with matrix every executor,
// pager and budget must give the bits of the first.
#include <dirent.h>
#include <genai/genai.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "tests/golden/check.h"

#define MATRIX_TOKENS 64

struct golden_checks golden_checks;

// ---- reporting ----

static void report(const char *folder, const char *what, bool ok,
		   const char *why)
{
	const char *base = strrchr(folder, '/');

	base = base ? base + 1 : folder;
	if (ok)
		golden_checks.passed++;
	else
		golden_checks.failed++;
	if (golden_checks.tap)
		printf("%s %u - %s: %s%s%s\n", ok ? "ok" : "not ok",
		       golden_checks.passed + golden_checks.failed, base, what,
		       ok ? "" : ": ", ok ? "" : why);
	else if (!ok)
		printf("FAIL %s: %s: %s\n", folder, what, why);
}

// ---- logits ----

// Append ids in pieces and compare what each gives.  sizes end with the one
// that repeats.
static bool feed(struct subject *u, const struct golden_ids *ids,
		 const struct golden_rows *want, const size_t *sizes,
		 size_t n_sizes, bool last_only, double *worst, char *why,
		 size_t cap)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct golden_tolerance tol = subject_tolerance(u);
	size_t width = u->info.vocab_size, done = 0;
	float *buf = malloc(ids->n * width * sizeof(*buf));
	int32_t rc = buf ? genai_session_rewind(u->s, 0, &err) : -1;
	bool ok = true;

	for (size_t i = 0; !rc && ok && done < ids->n; i++) {
		size_t n = sizes[i < n_sizes ? i : n_sizes - 1], rows, first;

		n = n < ids->n - done ? n : ids->n - done;
		rc = genai_session_append(u->s, ids->v + done, n, &err);
		if (!rc)
			rc = genai_session_logits(u->s, buf, n, &rows, &err);
		done += n;
		if (rc)
			break;
		first = done - rows;
		if (last_only) {
			// only the last row of each piece is recorded
			first = want->n == 1 ? 0 : i;
			if (want->n == 1 && done < ids->n)
				continue;
		}
		ok = golden_compare(buf, rows, width, want, first, tol, worst,
				    why, cap);
	}
	free(buf);
	if (rc)
		snprintf(why, cap, "%s", err.text);
	return !rc && ok;
}

static void check_prompt(struct subject *u, const char *folder,
			 const struct golden_prompt *p, bool last_only,
			 double *worst)
{
	static const size_t pieces[] = {5, 2, 1}, one[] = {1};
	const struct golden_rows *parts =
		p->chunked.v ? &p->chunked : &p->prefill;
	size_t whole[1] = {p->ids.n};
	char why[512] = "", what[64];
	bool ok;

	if (p->prefill.v) {
		snprintf(what, sizeof(what), "%zu ids, whole", p->ids.n);
		ok = feed(u, &p->ids, &p->prefill, whole, 1, last_only, worst,
			  why, sizeof(why));
		report(folder, what, ok, why);
	}
	if (!parts->v)
		return;
	snprintf(what, sizeof(what), "%zu ids, in chunks", p->ids.n);
	ok = feed(u, &p->ids, parts, pieces, 3, last_only, worst, why,
		  sizeof(why));
	report(folder, what, ok, why);
	if (last_only && parts->n > 1)
		return; // recorded for those chunks only
	snprintf(what, sizeof(what), "%zu ids, one by one", p->ids.n);
	ok = feed(u, &p->ids, parts, one, 1, last_only, worst, why,
		  sizeof(why));
	report(folder, what, ok, why);
}

// ---- greedy ----

static bool follow(struct subject *u, const struct golden_run *r, char *why,
		   size_t cap)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct golden_tolerance tol = subject_tolerance(u);
	int32_t rc = genai_session_rewind(u->s, 0, &err);

	if (!rc)
		rc = genai_session_append(u->s, r->prompt.v, r->prompt.n, &err);
	for (size_t i = 0; !rc && i < r->ids.n; i++) {
		// every other step runs ahead, where nothing can differ
		bool ahead = i % 2 && r->margins[i] > tol.atol;
		int64_t id;

		rc = genai_session_next(u->s, ahead, &id, &err);
		if (rc || id == r->ids.v[i])
			continue;
		if (r->margins[i] > tol.atol) {
			snprintf(why, cap,
				 "token %zu is %lld, recorded %lld (margin "
				 "%.3g)",
				 i, (long long)id, (long long)r->ids.v[i],
				 r->margins[i]);
			return false;
		}
		rc = genai_session_append(u->s, &r->ids.v[i], 1, &err);
	}
	if (rc)
		snprintf(why, cap, "%s", err.text);
	return !rc;
}

// ---- every configuration gives the same bits ----

struct sample {
	int64_t ids[MATRIX_TOKENS];
	size_t n_ids;
	float *rows; // malloc'ed
	size_t n;    // floats
};

static int32_t take_ids(const char *folder, const struct subject_cell *c,
			const struct golden_run *r, struct sample *out,
			struct genai_error *err)
{
	struct subject u;
	int32_t rc =
		subject_open(&u, &golden_checks.where, folder, c, false, err);

	if (rc)
		return rc;
	rc = genai_session_append(u.s, r->prompt.v, r->prompt.n, err);
	for (out->n_ids = 0; !rc && out->n_ids < MATRIX_TOKENS; out->n_ids++) {
		if (genai_session_length(u.s) + 2 > u.info.context)
			break;
		rc = genai_session_next(u.s, 1, &out->ids[out->n_ids], err);
	}
	subject_close(&u);
	return rc;
}

static int32_t take_rows(const char *folder, const struct subject_cell *c,
			 const struct golden_ids *ids, struct sample *out,
			 struct genai_error *err)
{
	struct subject u;
	size_t rows;
	int32_t rc =
		subject_open(&u, &golden_checks.where, folder, c, true, err);

	if (rc)
		return rc;
	out->rows = malloc(ids->n * u.info.vocab_size * sizeof(float));
	rc = genai_session_append(u.s, ids->v, ids->n, err);
	if (!rc)
		rc = genai_session_logits(u.s, out->rows, ids->n, &rows, err);
	out->n = rc ? 0 : rows * u.info.vocab_size;
	subject_close(&u);
	return rc;
}

static bool same(const struct sample *a, const struct sample *b, char *why,
		 size_t cap)
{
	size_t i = 0;

	while (i < a->n_ids && i < b->n_ids && a->ids[i] == b->ids[i])
		i++;
	if (i < a->n_ids || a->n_ids != b->n_ids) {
		snprintf(why, cap, "token %zu differs", i);
		return false;
	}
	if (a->n != b->n || memcmp(a->rows, b->rows, a->n * sizeof(float))) {
		snprintf(why, cap, "logits are not equal bit for bit");
		return false;
	}
	return true;
}

static void check_matrix(const char *folder, const struct golden *g)
{
	static const char *const executors[] = {"eager", "captured"};
	static const char *const pagers[] = {"pager_sync", "pager_async"};
	static const char *const budgets[] = {"auto", "100%", "50%",
					      "30%",  "10%",  "0"};
	struct sample first = {0};

	for (unsigned i = 0; i < 24; i++) {
		struct subject_cell c = {executors[i / 12], pagers[i / 6 % 2],
					 budgets[i % 6]};
		struct genai_error err = GENAI_ERROR_INIT;
		struct sample s = {0};
		char what[128], why[512] = "";
		int32_t rc = take_ids(folder, &c, &g->runs[0], &s, &err);
		bool ok;

		if (!rc)
			rc = take_rows(folder, &c,
				       &g->prompts[g->n_prompts - 1].ids, &s,
				       &err);
		if (rc)
			snprintf(why, sizeof(why), "%s", err.text);
		ok = !rc && (!i || same(&first, &s, why, sizeof(why)));
		snprintf(what, sizeof(what), "%s, %s, weight_budget %s",
			 c.executor, c.pager, c.budget);
		report(folder, what, ok, why);
		if (i)
			free(s.rows);
		else
			first = s;
	}
	free(first.rows);
}

// ---- a folder ----

static void check_greedy(const char *model, const char *folder,
			 const struct golden *g)
{
	const struct subject_cell c = golden_checks.cell;
	struct genai_error err = GENAI_ERROR_INIT;
	struct subject u;
	int32_t rc =
		subject_open(&u, &golden_checks.where, model, &c, false, &err);

	for (uint32_t i = 0; i < g->n_runs; i++) {
		char what[32], why[512] = "";
		bool ok = !rc && follow(&u, &g->runs[i], why, sizeof(why));

		snprintf(what, sizeof(what), "greedy run %u", i);
		report(folder, what, ok, rc ? err.text : why);
	}
	if (!rc)
		subject_close(&u);
}

static void check_folder(const char *model, const char *folder)
{
	const struct subject_cell c = golden_checks.cell;
	unsigned failed = golden_checks.failed, passed = golden_checks.passed;
	struct genai_error err = GENAI_ERROR_INIT;
	struct subject u;
	struct golden g;
	char why[5000];
	double worst = 0;
	int32_t rc;

	if (!golden_read(folder, &g, why, sizeof(why))) {
		report(folder, "goldens", false, why);
		return;
	}
	rc = subject_open(&u, &golden_checks.where, model, &c, true, &err);
	if (rc == GENAI_E_UNSUPPORTED && !golden_checks.tap) {
		golden_checks.skipped++;
		printf("skip %s: %s\n", folder, err.text);
		golden_free(&g);
		return;
	}
	for (uint32_t i = 0; !rc && i < g.n_prompts; i++)
		check_prompt(&u, folder, &g.prompts[i], g.last_row_only,
			     &worst);
	if (rc)
		report(folder, "open", false, err.text);
	else
		subject_close(&u);
	if (!rc && g.n_runs)
		check_greedy(model, folder, &g);
	if (!rc && g.n_runs && golden_checks.matrix)
		check_matrix(model, &g);
	printf("%s%s %s: %u of %u, largest difference %.2g\n",
	       golden_checks.tap ? "# " : "",
	       failed == golden_checks.failed ? "ok" : "FAIL", folder,
	       golden_checks.passed - passed,
	       golden_checks.passed - passed + golden_checks.failed - failed,
	       worst);
	fflush(stdout);
	golden_free(&g);
}

static bool has(const char *folder, const char *name)
{
	char path[4600];
	struct stat st;

	snprintf(path, sizeof(path), "%s/%s", folder, name);
	return !stat(path, &st);
}

static int by_name(const struct dirent **a, const struct dirent **b)
{
	return strcmp((*a)->d_name, (*b)->d_name);
}

void golden_check(const char *model, const char *path)
{
	struct dirent **v;
	char sub[4400];
	int n;

	if (has(path, "golden/prompts.json")) {
		check_folder(model ? model : path, path);
		return;
	}
	n = scandir(path, &v, NULL, by_name);
	if (n < 0) {
		report(path, "open", false, "no such folder");
		return;
	}
	for (int i = 0; i < n; i++) {
		snprintf(sub, sizeof(sub), "%s/%s", path, v[i]->d_name);
		// goldens without a model are for --model
		if (v[i]->d_name[0] != '.' && has(sub, "golden/prompts.json") &&
		    has(sub, "genai_config.json"))
			check_folder(sub, sub);
		free(v[i]);
	}
	free(v);
}
