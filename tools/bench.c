// bench.c - speed: rates beside the floor that they cannot pass.
//
// Protocol: batch 1, greedy, end of text ignored; a warm-up run, then the
// median and the spread of the repeats; the same tokens in every row or a word
// about it.
#include "tools/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "tools/ceilings.h"

#define MAX_LIST 32
#define MAX_REPEAT 101

struct bench {
	struct cli *c;
	const char *path;
	int64_t prompts[MAX_LIST], depths[MAX_LIST], new_tokens, repeat;
	size_t n_prompts, n_depths;
	const char *budgets[MAX_LIST];
	size_t n_budgets;
	json_t *rows;
	int64_t *tokens; /* of the first row, per prompt */
	struct ceilings ceil;
	bool have_ceil, differ;
};

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return x < y ? -1 : x > y;
}

struct spread {
	double median, min, max;
};

static struct spread spread_of(double *v, size_t n)
{
	struct spread s = {0};

	if (!n)
		return s;
	qsort(v, n, sizeof(*v), cmp);
	s.min = v[0];
	s.max = v[n - 1];
	s.median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	return s;
}

struct run {
	double prefill_s, decode_s, sim_s;
	int64_t *ids;
};

// Ids that do not repeat soon: the same for every row.
static void fill_prompt(int64_t *ids, int64_t n, uint32_t vocab)
{
	uint64_t x = 12345;

	for (int64_t i = 0; i < n; i++) {
		x = x * UINT64_C(6364136223846793005) +
		    UINT64_C(1442695040888963407);
		ids[i] = (int64_t)((x >> 33) % vocab);
	}
}

static uint64_t sim_ns(struct cli_model *m)
{
	struct genai_stats st = {.size = sizeof(st)};

	return genai_model_get_stats(m->model, &st, NULL) ? 0
							  : st.simulated_ns;
}

static int32_t run_once(struct bench *b, struct cli_model *m,
			const int64_t *prompt, int64_t n, int64_t depth,
			struct run *r)
{
	struct genai_session *s = m->session;
	struct genai_error *err = &b->c->err;
	uint64_t sim;
	double t0;
	int32_t rc = genai_session_rewind(s, 0, err);

	if (!rc && depth)
		rc = genai_session_append(s, prompt + n, (size_t)depth, err);
	t0 = cli_now();
	if (!rc)
		rc = genai_session_append(s, prompt, (size_t)n, err);
	r->prefill_s = cli_now() - t0;
	if (!rc)
		rc = genai_session_next(s, 0, &r->ids[0], err);
	t0 = cli_now();
	sim = sim_ns(m);
	for (int64_t i = 1; !rc && i < b->new_tokens; i++) {
		rc = genai_session_next(s, i + 1 < b->new_tokens, &r->ids[i],
					err);
		if (!rc && cli_interrupted)
			rc = genai_fail(err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	r->decode_s = cli_now() - t0;
	r->sim_s = (double)(sim_ns(m) - sim) * 1e-9;
	return rc;
}

static json_t *spread_json(struct spread s)
{
	return json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min,
			 "max", s.max);
}

static void report(struct bench *b, struct cli_model *m, const char *budget,
		   int64_t n, int64_t depth, struct spread pre,
		   struct spread dec, struct spread sim, bool same)
{
	struct genai_stats st = {.size = sizeof(st)};
	double bytes, floor_s;
	json_t *row;

	genai_model_get_stats(m->model, &st, NULL);
	bytes = (double)st.weights_bytes +
		(double)m->info.kv_bytes_per_position *
			(double)(n + depth + b->new_tokens / 2);
	floor_s = ceilings_floor_s(&b->ceil, bytes,
				   (double)st.streamed_bytes_per_token);
	printf("%-18s %-12s %6s %5" PRId64 " %5" PRId64
	       "  %9.1f  %8.1f (%.1f-%.1f)  %7.1f MB  %6.1f MB  floor %8.1f  "
	       "%5.1f %%%s\n",
	       st.executor, st.pager, budget ? budget : "auto", n, depth,
	       pre.median, dec.median, dec.min, dec.max, bytes * 1e-6,
	       (double)st.streamed_bytes_per_token * 1e-6, 1 / floor_s,
	       100 * dec.median * floor_s, same ? "" : "  TOKENS DIFFER");
	fflush(stdout);
	row = json_pack(
		"{s:s, s:s, s:s, s:I, s:I, s:I, s:o, s:o, s:f, s:I, s:f, s:f,"
		" s:I, s:I, s:I, s:I, s:b}",
		"executor", st.executor, "pager", st.pager, "weight_budget",
		budget ? budget : "auto", "prompt_tokens", (json_int_t)n,
		"depth", (json_int_t)depth, "new_tokens",
		(json_int_t)b->new_tokens, "prefill_tok_s", spread_json(pre),
		"decode_tok_s", spread_json(dec), "bytes_per_token", bytes,
		"streamed_bytes_per_token",
		(json_int_t)st.streamed_bytes_per_token, "floor_tok_s",
		1 / floor_s, "share_of_floor", dec.median * floor_s,
		"device_peak_bytes", (json_int_t)st.device_peak_bytes,
		"pinned_bytes", (json_int_t)st.pinned_bytes, "ring_bytes",
		(json_int_t)st.ring_bytes, "in_place_bytes",
		(json_int_t)st.in_place_bytes, "tokens_same", same);
	if (sim.median > 0)
		json_object_set_new(row, "simulated_tok_s", spread_json(sim));
	json_array_append_new(b->rows, row);
}

static int32_t cell(struct bench *b, struct cli_model *m, const char *budget,
		    size_t which, int64_t depth)
{
	int64_t n = b->prompts[which];
	double pre[MAX_REPEAT], dec[MAX_REPEAT], sim[MAX_REPEAT];
	int64_t *first = b->tokens + which * (size_t)b->new_tokens;
	int64_t *prompt = malloc((size_t)(n + depth + 1) * sizeof(*prompt));
	struct run r = {.ids = calloc((size_t)b->new_tokens + 1,
				      sizeof(int64_t))};
	bool same = true;
	int32_t rc = 0;

	if (!prompt || !r.ids)
		rc = genai_fail(&b->c->err, GENAI_E_NOMEM, "no memory");
	else
		fill_prompt(prompt, n + depth, m->info.vocab_size);
	for (int64_t i = -1; !rc && i < b->repeat; i++) {
		rc = run_once(b, m, prompt, n, depth, &r);
		if (rc)
			break;
		if (first[0] < 0)
			memcpy(first, r.ids,
			       (size_t)b->new_tokens * sizeof(*first));
		same &= depth != b->depths[0] ||
			!memcmp(first, r.ids,
				(size_t)b->new_tokens * sizeof(*first));
		if (i < 0)
			continue; // warm-up
		pre[i] = (double)n / r.prefill_s;
		dec[i] = (double)(b->new_tokens - 1) / r.decode_s;
		sim[i] = r.sim_s > 0 ? (double)(b->new_tokens - 1) / r.sim_s
				     : 0;
	}
	if (!rc) {
		b->differ |= !same;
		report(b, m, budget, n, depth,
		       spread_of(pre, (size_t)b->repeat),
		       spread_of(dec, (size_t)b->repeat),
		       spread_of(sim, (size_t)b->repeat), same);
	}
	free(prompt);
	free(r.ids);
	return rc;
}

static int32_t one_config(struct bench *b, const char *budget)
{
	char set[300];
	struct cli c = *b->c;
	struct cli_model m;
	int32_t rc;

	if (budget) {
		snprintf(set, sizeof(set), "runtime.weight_budget=%s", budget);
		if (c.n_sets < MAX_SETS)
			c.sets[c.n_sets++] = set;
	}
	rc = cli_open(&c, b->path, 0, &m);
	if (!rc && !b->have_ceil) {
		rc = ceilings_measure(m.rt, &b->ceil, &c.err);
		b->have_ceil = !rc;
		printf("%s; memory %.1f GB/s, link %.1f GB/s\n",
		       m.rt->device.caps.device_name,
		       b->ceil.memory_bytes_s * 1e-9,
		       b->ceil.link_bytes_s * 1e-9);
		printf("%-18s %-12s %6s %5s %5s  %9s  %8s\n", "executor",
		       "pager", "budget", "n", "depth", "prompt/s",
		       "decode/s");
	}
	b->c->err = c.err;
	b->c->config_failed = c.config_failed;
	for (size_t p = 0; !rc && p < b->n_prompts; p++)
		for (size_t d = 0; !rc && d < b->n_depths; d++)
			rc = cell(b, &m, budget, p, b->depths[d]);
	cli_close(&m);
	return rc;
}

static int32_t run_all(struct bench *b)
{
	size_t n = b->n_prompts * (size_t)b->new_tokens;
	int32_t rc = 0;

	b->tokens = malloc((n + 1) * sizeof(*b->tokens));
	if (!b->tokens)
		return genai_fail(&b->c->err, GENAI_E_NOMEM, "no memory");
	memset(b->tokens, 0xff, n * sizeof(*b->tokens));
	if (!b->n_budgets)
		rc = one_config(b, NULL);
	for (size_t i = 0; !rc && i < b->n_budgets; i++)
		rc = one_config(b, b->budgets[i]);
	free(b->tokens);
	return rc;
}

static bool list_of(struct cli *c, const char *arg, int64_t lo, int64_t *out,
		    size_t *out_n)
{
	int64_t *ids;
	size_t n;

	if (!cli_ids(c, arg, &ids, &n) || !n || n > MAX_LIST)
		return false;
	for (size_t i = 0; i < n; i++) {
		if (ids[i] < lo) {
			free(ids);
			return false;
		}
		out[i] = ids[i];
	}
	*out_n = n;
	free(ids);
	return true;
}

static int32_t write_json(struct bench *b, const char *path)
{
	json_t *j = json_pack("{s:s, s:f, s:f, s:b, s:O}", "model", b->path,
			      "memory_bytes_s", b->ceil.memory_bytes_s,
			      "link_bytes_s", b->ceil.link_bytes_s,
			      "tokens_same", !b->differ, "rows", b->rows);
	int rc = json_dump_file(j, path, JSON_INDENT(1));

	json_decref(j);
	return rc ? genai_fail(&b->c->err, GENAI_E_IO, "%s: cannot write", path)
		  : 0;
}

int cmd_bench(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"prompt-tokens", required_argument, NULL, 'p'},
		{"new-tokens", required_argument, NULL, 'n'},
		{"depth", required_argument, NULL, 'd'},
		{"repeat", required_argument, NULL, 'r'},
		{"weight-budget", required_argument, NULL, 'w'},
		{"json", required_argument, NULL, 'j'},
		{NULL, 0, NULL, 0}};
	static struct bench b = {.prompts = {16},
				 .n_prompts = 1,
				 .n_depths = 1,
				 .new_tokens = 128,
				 .repeat = 5};
	const char *json = NULL;
	bool ok = true;
	int opt, status = 0;

	b.c = c;
	opterr = 0;
	while (ok && (opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (opt == 'p')
			ok = list_of(c, optarg, 1, b.prompts, &b.n_prompts);
		else if (opt == 'd')
			ok = list_of(c, optarg, 0, b.depths, &b.n_depths);
		else if (opt == 'n')
			ok = cli_int(c, "--new-tokens", optarg, 2, 1 << 20,
				     &b.new_tokens);
		else if (opt == 'r')
			ok = cli_int(c, "--repeat", optarg, 1, MAX_REPEAT,
				     &b.repeat);
		else if (opt == 'j')
			json = optarg;
		else if (opt == 'w') {
			for (char *t = strtok(optarg, ","); t;
			     t = strtok(NULL, ","))
				if (b.n_budgets < MAX_LIST)
					b.budgets[b.n_budgets++] = t;
		} else {
			ok = false;
		}
		if (!ok)
			return cli_usage(c, "bad option or value: %s",
					 argv[optind - 1]);
	}
	if (optind + 1 != argc)
		return cli_usage(c, "one model folder is needed");
	b.path = argv[optind];
	b.rows = json_array();
	cli_catch_interrupts();
	if (run_all(&b) || (json && write_json(&b, json)))
		status = cli_fail(c);
	if (!status && b.differ)
		status = EXIT_REQUEST;
	json_decref(b.rows);
	return status;
}
