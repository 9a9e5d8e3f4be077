// bench_engine.c - many sequences at once: rows of genai bench --sequences.
// Each row has N requests submitted together; there are KINDS prompts, taken in
// turn, and nothing of a prompt is found in the cache.  Before the rows each
// prompt is computed alone: whoever gets other tokens beside others is said.
#include "tools/bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <genai/engine.h>

#define KINDS 8

struct seq {
	double first_s;
	int64_t n;
	int64_t *ids; // new_tokens of them
};

struct many {
	struct bench *b;
	struct genai_error *err;
	struct genai_engine *e;
	int64_t n_prompt;
	int64_t *prompts; // KINDS of them
	int64_t *alone;	  // the tokens of each
	struct seq *seqs;
	int64_t *ids;
};

static int32_t submit(struct many *m, int64_t i)
{
	struct genai_request q = GENAI_REQUEST_INIT;
	uint64_t id;

	q.flags = GENAI_REQUEST_IGNORE_EOS | GENAI_REQUEST_NO_CACHE;
	q.ids = m->prompts + i % KINDS * m->n_prompt;
	q.n_ids = (size_t)m->n_prompt;
	q.max_tokens = m->b->new_tokens;
	q.user = &m->seqs[i];
	return genai_engine_submit(m->e, &q, &id, m->err);
}

static int32_t take(struct many *m, double begun, int64_t *left)
{
	struct genai_event ev = {.size = sizeof(ev)};
	int32_t rc = genai_engine_next(m->e, 100, &ev, m->err);
	struct seq *s = ev.user;

	if (cli_interrupted)
		return genai_fail(m->err, GENAI_E_INTERRUPTED, "interrupted");
	if (rc == GENAI_PENDING)
		return 0;
	if (rc)
		return rc;
	if (ev.kind == GENAI_EVENT_TOKEN) {
		if (!s->n)
			s->first_s = cli_now() - begun;
		if (s->n < m->b->new_tokens)
			s->ids[s->n] = ev.id;
		s->n++;
		return 0;
	}
	if (ev.kind != GENAI_EVENT_DONE)
		return 0;
	--*left;
	if (ev.finish == GENAI_FINISH_ERROR)
		return genai_fail(m->err, ev.code, "%s", ev.error);
	if (s->n != m->b->new_tokens)
		return genai_fail(m->err, GENAI_E_LIMIT,
				  "the context has room for %" PRId64
				  " tokens, not %" PRId64,
				  s->n, m->b->new_tokens);
	return 0;
}

// n requests at once, from the first one's submission to the last one's end.
static int32_t run_once(struct many *m, int64_t n, double *out_s)
{
	double begun = cli_now();
	int64_t left = n;
	int32_t rc = 0;

	for (int64_t i = 0; i < n; i++)
		m->seqs[i] = (struct seq){.ids = m->ids + i * m->b->new_tokens};
	for (int64_t i = 0; i < n && !rc; i++)
		rc = submit(m, i);
	while (!rc && left)
		rc = take(m, begun, &left);
	*out_s = cli_now() - begun;
	return rc;
}

// Until the last step is over: statistics are of all steps then.
static void settle(const struct many *m)
{
	struct genai_engine_stats st = {.size = sizeof(st)};

	for (;;) {
		genai_engine_get_stats(m->e, &st);
		if (!st.running && !st.waiting)
			return;
		usleep(200);
	}
}

static bool same(const struct many *m, int64_t n)
{
	size_t each = (size_t)m->b->new_tokens;

	for (int64_t i = 0; i < n; i++)
		if (memcmp(m->seqs[i].ids,
			   m->alone + (size_t)(i % KINDS) * each,
			   each * sizeof(int64_t)))
			return false;
	return true;
}

static int32_t learn(struct many *m)
{
	size_t each = (size_t)m->b->new_tokens;
	int64_t *prompts = m->prompts;
	int32_t rc = 0;
	double s;

	for (int k = 0; k < KINDS && !rc; k++) {
		cli_progress(m->b->c, "prompt %d of %d alone", k + 1, KINDS);
		m->prompts = prompts + k * m->n_prompt;
		rc = run_once(m, 1, &s);
		memcpy(m->alone + (size_t)k * each, m->seqs[0].ids,
		       each * sizeof(int64_t));
	}
	m->prompts = prompts;
	cli_clear_line(m->b->c);
	return rc;
}

static int by_number(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double middle(double *v, size_t n)
{
	qsort(v, n, sizeof(*v), by_number);
	return n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

// Of the device's clock, so far; 0: it has none of its own.
static double simulated_s(const struct many *m)
{
	struct genai_stats st = {.size = sizeof(st)};

	if (genai_engine_get_model_stats(m->e, &st, NULL))
		return 0;
	return (double)st.simulated_ns * 1e-9;
}

static void print_heading(struct bench *b)
{
	if (b->headed)
		return;
	b->headed = true;
	printf("%s; memory %.1f GB/s, link %.1f GB/s\n", b->device,
	       b->ceil.memory_bytes_s * 1e-9, b->ceil.link_bytes_s * 1e-9);
	printf("%-18s %-12s %8s %8s %5s %6s %5s %9s %19s %9s %9s %9s %8s\n",
	       "executor", "pager", "budget", "limit", "seqs", "prompt", "new",
	       "tokens/s", "(spread)", "first ms", "last ms", "rows/step",
	       "peak MB");
}

// Where the time of the last repeat went, by kinds of steps.
static json_t *report_steps(const struct genai_engine_stats *a,
			    const struct genai_engine_stats *b)
{
	json_t *all = json_array();

	for (int k = GENAI_STEP_KINDS; k-- > 0;) {
		const struct genai_engine_steps *x = &a->kinds[k];
		const struct genai_engine_steps *y = &b->kinds[k];
		bool more = k + 1 == GENAI_STEP_KINDS;
		uint64_t n = y->steps - x->steps, rows = y->rows - x->rows;
		double s = (double)(y->ns - x->ns) * 1e-9;
		double wait = (double)(y->waited_ns - x->waited_ns) * 1e-9;

		if (!n)
			continue;
		printf("  %6" PRIu64 " steps%s of %.1f rows: %.3f ms each, "
		       "%.1f in all, %.1f of them not waiting for the "
		       "device\n",
		       n, more ? " with prompts" : "", (double)rows / (double)n,
		       s * 1e3 / (double)n, s * 1e3, (s - wait) * 1e3);
		json_array_append_new(
			all,
			json_pack("{s:b, s:I, s:I, s:f, s:f}", "prompts", more,
				  "steps", (json_int_t)n, "rows",
				  (json_int_t)rows, "s", s, "waited_s", wait));
	}
	return all;
}

static void report(struct many *m, const struct genai_config *config, int64_t n,
		   double *rates, double *sims, double *firsts,
		   const struct genai_engine_stats *before,
		   const struct genai_engine_stats *after, bool is_same)
{
	struct bench *b = m->b;
	struct genai_stats st = {.size = sizeof(st)};
	struct genai_error ignored = GENAI_ERROR_INIT;
	double rate = middle(rates, (size_t)b->repeat);
	double first = middle(firsts, (size_t)n);
	const char *budget =
		genai_config_get(config, "runtime", "weight_budget");
	const char *limit = genai_config_get(config, "runtime", "device_limit");
	double rows = (double)(after->rows - before->rows) /
		      (double)(after->steps - before->steps);
	json_t *added;
	char spread[40];

	genai_engine_get_model_stats(m->e, &st, &ignored);
	json_array_append_new(
		b->rows,
		json_pack("{s:s, s:s, s:s, s:s, s:I, s:I, s:I, s:f, s:f, s:f, "
			  "s:f, s:f, s:f, s:I, s:I, s:I, s:b}",
			  "executor", st.executor, "pager", st.pager,
			  "weight_budget", budget, "device_limit", limit,
			  "sequences", (json_int_t)n, "prompt_tokens",
			  (json_int_t)m->n_prompt, "new_tokens",
			  (json_int_t)b->new_tokens, "tok_s", rate, "tok_s_min",
			  rates[0], "tok_s_max", rates[b->repeat - 1],
			  "first_s", first, "last_first_s", firsts[n - 1],
			  "rows_per_step", rows, "captures",
			  (json_int_t)st.captures, "fallbacks",
			  (json_int_t)st.n_fallbacks, "device_peak_bytes",
			  (json_int_t)st.device_peak_bytes, "tokens_same",
			  is_same));
	added = json_array_get(b->rows, json_array_size(b->rows) - 1);
	if (st.simulated_ns)
		json_object_set_new(added, "simulated_tok_s",
				    json_pack("{s:f, s:f, s:f}", "median",
					      middle(sims, (size_t)b->repeat),
					      "min", sims[0], "max",
					      sims[b->repeat - 1]));
	print_heading(b);
	snprintf(spread, sizeof(spread), "(%.1f-%.1f)", rates[0],
		 rates[b->repeat - 1]);
	printf("%-18s %-12s %8s %8s %5" PRId64 " %6" PRId64 " %5" PRId64
	       " %9.1f %19s %9.1f %9.1f %9.1f %8.1f%s\n",
	       st.executor, st.pager, budget, limit, n, m->n_prompt,
	       b->new_tokens, rate, spread, first * 1e3, firsts[n - 1] * 1e3,
	       rows, (double)st.device_peak_bytes * 1e-6,
	       is_same ? "" : "  TOKENS DIFFER");
	json_object_set_new(added, "steps", report_steps(before, after));
	json_object_set_new(
		added, "ahead",
		json_integer((json_int_t)(after->ahead - before->ahead)));
	fflush(stdout);
}

static int32_t row(struct many *m, const struct genai_config *config, int64_t n)
{
	struct genai_engine_stats before = {.size = sizeof(before)};
	struct genai_engine_stats after = {.size = sizeof(after)};
	double rates[BENCH_MAX_REPEAT], sims[BENCH_MAX_REPEAT];
	double firsts[GENAI_MAX_SEQS], s, sim_s;
	bool is_same = true;
	int32_t rc = 0;

	for (int64_t i = -1; i < m->b->repeat && !rc; i++) {
		cli_progress(m->b->c, "%" PRId64 " sequences: %s", n,
			     i < 0 ? "warming up" : "measuring");
		genai_engine_get_stats(m->e, &before);
		sim_s = simulated_s(m);
		rc = run_once(m, n, &s);
		if (!rc)
			settle(m);
		genai_engine_get_stats(m->e, &after);
		cli_clear_line(m->b->c);
		if (rc)
			return rc;
		is_same &= same(m, n);
		sim_s = simulated_s(m) - sim_s;
		if (i >= 0) {
			rates[i] = (double)(n * m->b->new_tokens) / s;
			sims[i] = (double)(n * m->b->new_tokens) / sim_s;
		}
	}
	for (int64_t i = 0; i < n; i++)
		firsts[i] = m->seqs[i].first_s;
	m->b->differ |= !is_same;
	report(m, config, n, rates, sims, firsts, &before, &after, is_same);
	return 0;
}

static int32_t all_rows(struct many *m, const struct genai_config *config,
			int64_t most)
{
	struct genai_model_info info = {.size = sizeof(info)};
	struct bench *b = m->b;
	size_t each = (size_t)b->new_tokens;
	uint64_t x = 12345;
	int32_t rc;

	genai_engine_get_model_info(m->e, &info);
	m->prompts = calloc((size_t)m->n_prompt * KINDS, sizeof(int64_t));
	m->alone = calloc(each * KINDS, sizeof(int64_t));
	m->ids = calloc(each * (size_t)most, sizeof(int64_t));
	m->seqs = calloc((size_t)most, sizeof(*m->seqs));
	if (!m->prompts || !m->alone || !m->ids || !m->seqs)
		return genai_fail(m->err, GENAI_E_NOMEM, "no memory");
	for (int64_t i = 0; i < m->n_prompt * KINDS; i++) {
		x = x * UINT64_C(6364136223846793005) +
		    UINT64_C(1442695040888963407);
		m->prompts[i] = (int64_t)((x >> 33) % info.vocab_size);
	}
	rc = learn(m);
	for (size_t i = 0; i < b->n_seqs && !rc; i++)
		rc = row(m, config, b->seqs[i]);
	return rc;
}

int32_t bench_engine(struct bench *b, struct cli *c)
{
	struct genai_engine_options o = {.size = sizeof(o)};
	struct genai_runtime *rt = NULL;
	char folder[4200];
	int64_t most = 1;
	int32_t rc = cli_folder(c, b->path, folder, sizeof(folder));

	for (size_t i = 0; i < b->n_seqs; i++)
		most = b->seqs[i] > most ? b->seqs[i] : most;
	o.max_sequences = (uint32_t)most;
	if (!rc)
		rc = cli_runtime(c, &rt);
	for (size_t p = 0; !rc && p < b->n_prompts; p++) {
		struct many m = {
			.b = b, .err = &c->err, .n_prompt = b->prompts[p]};

		rc = genai_engine_open(rt, folder, &o, &m.e, &c->err);
		if (!rc)
			rc = all_rows(&m, rt->config, most);
		genai_engine_close(m.e);
		free(m.prompts);
		free(m.alone);
		free(m.ids);
		free(m.seqs);
	}
	genai_close(rt);
	return rc;
}
