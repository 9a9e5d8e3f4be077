// bench_run.c - one row of genai bench: a warm-up, the repeats, what they say.
#include "tools/bench.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/mapping.h"

struct spread {
	double median, min, max;
};

struct run { // one repeat
	double prefill_s, decode_s, sim_s, link_bytes;
	double missed; // bytes of experts
	int64_t *ids;
};

struct result { // of all repeats
	struct spread prefill, decode, sim, link;
	double missed; // bytes of experts a token, of the repeat in the middle
	bool same;
};

static int cmp(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static struct spread spread_of(double *v, size_t n)
{
	struct spread s;

	qsort(v, n, sizeof(*v), cmp);
	s.min = v[0];
	s.max = v[n - 1];
	s.median = n % 2 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
	return s;
}

void bench_prompt(int64_t *ids, int64_t n, uint32_t vocab)
{
	uint64_t x = 12345;

	for (int64_t i = 0; i < n; i++) {
		x = x * UINT64_C(6364136223846793005) +
		    UINT64_C(1442695040888963407);
		ids[i] = (int64_t)((x >> 33) % vocab);
	}
}

static struct genai_stats stats_of(struct cli_model *m)
{
	struct genai_stats st = {.size = sizeof(st)};

	genai_model_get_stats(m->model, &st, NULL);
	return st;
}

// The seconds that it took.
static double forget(const struct bench *b)
{
	double t0 = cli_now();

	if (!b->cold)
		return 0;
	genai_mapping_forget_all();
	return cli_now() - t0;
}

static int32_t run_once(struct bench *b, struct cli_model *m,
			struct genai_error *err, const int64_t *prompt,
			int64_t n, int64_t depth, struct run *r)
{
	struct genai_session *s = m->session;
	struct genai_stats before, after;
	double t0;
	int32_t rc = genai_session_rewind(s, 0, err);

	if (!rc && depth)
		rc = genai_session_append(s, prompt + n, (size_t)depth, err);
	forget(b);
	t0 = cli_now();
	if (!rc)
		rc = genai_session_append(s, prompt, (size_t)n, err);
	r->prefill_s = cli_now() - t0;
	if (!rc)
		rc = genai_session_next(s, 0, &r->ids[0], err);
	before = stats_of(m);
	t0 = cli_now();
	for (int64_t i = 1; !rc && i < b->new_tokens; i++) {
		t0 += forget(b);
		// a step that is ahead would begin before the files are dropped
		rc = genai_session_next(s, !b->cold && i + 1 < b->new_tokens,
					&r->ids[i], err);
		if (!rc && cli_interrupted)
			rc = genai_fail(err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	r->decode_s = cli_now() - t0;
	after = stats_of(m);
	r->sim_s = (double)(after.simulated_ns - before.simulated_ns) * 1e-9;
	r->link_bytes = (double)(after.h2d_bytes - before.h2d_bytes);
	r->missed =
		(double)(after.expert_miss_bytes - before.expert_miss_bytes);
	return rc;
}

static void print_heading(struct bench *b)
{
	if (b->headed)
		return;
	b->headed = true;
	printf("%s; memory %.1f GB/s, link %.1f GB/s", b->device,
	       b->ceil.memory_bytes_s * 1e-9, b->ceil.link_bytes_s * 1e-9);
	if (b->ceil.host_bytes_s > 0)
		printf(", the host's cores %.1f GB/s beside %.1f",
		       b->ceil.host_bytes_s * 1e-9,
		       b->ceil.busy_link_bytes_s * 1e-9);
	printf("%s\n",
	       b->cold ? "; files out of the cache before each step" : "");
	printf("%-18s %-12s %8s %8s %6s %6s %9s %8s %19s %8s %8s %8s %9s %8s "
	       "%9s %6s\n",
	       "executor", "pager", "budget", "limit", "prompt", "depth",
	       "prompt/s", "decode/s", "(spread)", "MB/token", "moved MB",
	       "host MB", "link GB/s", "peak MB", "floor/s", "share");
}

// Where time is counted, that is the rate that the floor is of.
static const struct spread *decode_of(const struct result *r)
{
	return r->sim.median > 0 ? &r->sim : &r->decode;
}

static double mega(uint64_t bytes)
{
	return (double)bytes * 1e-6;
}

static void print_row(const json_t *j, const struct genai_stats *st,
		      const struct result *r, double floor_s)
{
	const char *budget, *limit;
	json_int_t n, depth;
	double bytes;
	char spread[40], link[24] = "-";

	json_unpack((json_t *)j, "{s:s, s:s, s:I, s:I, s:F}", "weight_budget",
		    &budget, "device_limit", &limit, "prompt_tokens", &n,
		    "depth", &depth, "bytes_per_token", &bytes);
	snprintf(spread, sizeof(spread), "(%.1f-%.1f)", decode_of(r)->min,
		 decode_of(r)->max);
	if (st->streamed_bytes_per_token)
		snprintf(link, sizeof(link), "%.1f", r->link.median);
	printf("%-18s %-12s %8s %8s %6" JSON_INTEGER_FORMAT
	       " %6" JSON_INTEGER_FORMAT " %9.1f %8.1f %19s %8.1f %8.1f %8.1f "
					 "%9s %8.1f %9.1f %5.1f%%%s\n",
	       st->executor, st->pager, budget, limit, n, depth,
	       r->prefill.median, decode_of(r)->median, spread, bytes * 1e-6,
	       mega(st->streamed_bytes_per_token),
	       mega(st->beside_bytes_per_token), link,
	       mega(st->device_peak_bytes), 1 / floor_s,
	       100 * decode_of(r)->median * floor_s,
	       r->same ? "" : "  TOKENS DIFFER");
	fflush(stdout);
}

static json_t *spread_json(struct spread s)
{
	return json_pack("{s:f, s:f, s:f}", "median", s.median, "min", s.min,
			 "max", s.max);
}

static void set_bytes(json_t *j, const char *key, uint64_t bytes)
{
	json_object_set_new(j, key, json_integer((json_int_t)bytes));
}

// The row as configured; report() adds what was measured.
static json_t *row_json(const struct bench *b, const struct cli_model *m,
			const struct genai_stats *st, size_t p, size_t d)
{
	const struct genai_config *config = m->rt->config;
	json_t *j = json_pack(
		"{s:s, s:s, s:s, s:s, s:s, s:s, s:I, s:I, s:I}", "executor",
		st->executor, "stream", st->stream, "barrier", st->barrier,
		"pager", st->pager, "weight_budget",
		genai_config_get(config, "runtime", "weight_budget"),
		"device_limit",
		genai_config_get(config, "runtime", "device_limit"),
		"prompt_tokens", (json_int_t)b->prompts[p], "depth",
		(json_int_t)b->depths[d], "new_tokens",
		(json_int_t)b->new_tokens);

	if (b->cold)
		json_object_set_new(j, "cold", json_true());
	set_bytes(j, "weights_bytes", st->weights_bytes);
	set_bytes(j, "weight_budget_bytes", st->weight_budget_bytes);
	set_bytes(j, "device_limit_bytes", st->device_limit_bytes);
	set_bytes(j, "device_peak_bytes", st->device_peak_bytes);
	set_bytes(j, "device_used_bytes", st->device_used_bytes);
	set_bytes(j, "pinned_bytes", st->pinned_bytes);
	set_bytes(j, "ring_bytes", st->ring_bytes);
	set_bytes(j, "in_place_bytes", st->in_place_bytes);
	set_bytes(j, "streamed_bytes_per_token", st->streamed_bytes_per_token);
	set_bytes(j, "beside_bytes_per_token", st->beside_bytes_per_token);
	return j;
}

// What the best fixed choice of experts, made with all uses known before, would
// miss of a byte that was missed, in all steps since the model was loaded.
static double least_of(const struct genai_stats *st)
{
	return st->expert_miss_bytes ? (double)st->expert_least_bytes /
					       (double)st->expert_miss_bytes
				     : 1;
}

static json_t *experts_json(const struct bench *b, const struct cli_model *m,
			    const struct genai_stats *st,
			    const struct result *r)
{
	json_t *j = cli_experts_json(st);
	double least = ceilings_floor_s(&b->ceil, m->model, 0,
					r->missed * least_of(st));

	json_object_set_new(j, "missed_bytes_per_token", json_real(r->missed));
	json_object_set_new(j, "link_tok_s",
			    cli_real(b->ceil.link_bytes_s / r->missed));
	json_object_set_new(j, "best_fixed_floor_tok_s", cli_real(1 / least));
	return j;
}

static void print_experts(const struct genai_stats *st, const struct result *r,
			  const json_t *j)
{
	double uses = (double)(st->expert_hits + st->expert_misses);
	const json_t *link = json_object_get(j, "link_tok_s");

	printf("  experts: %.1f of %.1f MB pinned, %.1f %% of uses hit; %.1f "
	       "MB missed a token",
	       mega(st->expert_pinned_bytes), mega(st->expert_bytes),
	       uses > 0 ? 100 * (double)st->expert_hits / uses : 0,
	       r->missed * 1e-6);
	if (json_is_real(link))
		printf(", at the link's rate %.1f/s, share %.1f%%",
		       json_real_value(link),
		       100 * decode_of(r)->median / json_real_value(link));
	printf("; best fixed choice %.1f MB a token; %llu exchanged\n",
	       r->missed * least_of(st) * 1e-6,
	       (unsigned long long)st->expert_exchanges);
	fflush(stdout);
}

static void report(struct bench *b, struct cli_model *m, size_t p, size_t d,
		   const struct result *r)
{
	struct genai_stats st = stats_of(m);
	json_t *j = row_json(b, m, &st, p, d);
	double at = (double)(b->prompts[p] + b->depths[d] + b->new_tokens / 2);
	double cache = (double)m->info.kv_bytes_per_position * at;
	double bytes = (double)m->model->paging.read_bytes + cache;
	double floor_s = ceilings_floor_s(&b->ceil, m->model, cache, r->missed);

	json_object_set_new(j, "prefill_tok_s", spread_json(r->prefill));
	json_object_set_new(j, "decode_tok_s", spread_json(r->decode));
	if (r->sim.median > 0)
		json_object_set_new(j, "simulated_tok_s", spread_json(r->sim));
	json_object_set_new(j, "bytes_per_token", json_real(bytes));
	json_object_set_new(j, "link_gb_s", json_real(r->link.median));
	json_object_set_new(j, "floor_tok_s", cli_real(1 / floor_s));
	json_object_set_new(j, "share_of_floor",
			    json_real(decode_of(r)->median * floor_s));
	json_object_set_new(j, "tokens_same", json_boolean(r->same));
	if (st.expert_bytes)
		json_object_set_new(j, "experts", experts_json(b, m, &st, r));
	json_array_append_new(b->rows, j);
	print_heading(b);
	print_row(j, &st, r, floor_s);
	if (st.expert_bytes)
		print_experts(&st, r, json_object_get(j, "experts"));
}

static int32_t repeat(struct bench *b, struct cli_model *m,
		      struct genai_error *err, const int64_t *prompt, int64_t n,
		      int64_t depth, int64_t *first, struct run *r,
		      struct result *out)
{
	double pre[BENCH_MAX_REPEAT], dec[BENCH_MAX_REPEAT];
	double sim[BENCH_MAX_REPEAT], link[BENCH_MAX_REPEAT];
	double missed[BENCH_MAX_REPEAT];
	double steps = (double)(b->new_tokens - 1);
	size_t bytes = (size_t)b->new_tokens * sizeof(*first);
	size_t times = (size_t)b->repeat;

	out->same = true;
	for (int64_t i = -1; i < b->repeat; i++) {
		int32_t rc;

		cli_progress(b->c, "prompt %" PRId64 ", depth %" PRId64 ": %s",
			     n, depth, i < 0 ? "warming up" : "measuring");
		rc = run_once(b, m, err, prompt, n, depth, r);
		cli_clear_line(b->c);
		if (rc)
			return rc;
		if (first[0] < 0)
			memcpy(first, r->ids, bytes);
		out->same &= !memcmp(first, r->ids, bytes);
		if (i < 0)
			continue; // warm-up
		pre[i] = (double)n / r->prefill_s;
		dec[i] = steps / r->decode_s;
		missed[i] = r->missed / steps;
		sim[i] = r->sim_s > 0 ? steps / r->sim_s : 0;
		link[i] = r->link_bytes * 1e-9 /
			  (r->sim_s > 0 ? r->sim_s : r->decode_s);
	}
	out->prefill = spread_of(pre, times);
	out->decode = spread_of(dec, times);
	out->sim = spread_of(sim, times);
	out->link = spread_of(link, times);
	out->missed = spread_of(missed, times).median;
	return 0;
}

int32_t bench_row(struct bench *b, struct cli_model *m, struct genai_error *err,
		  size_t p, size_t d)
{
	int64_t n = b->prompts[p], depth = b->depths[d], all;
	size_t cell = (p * b->n_depths + d) * (size_t)b->new_tokens;
	struct run r = {.ids = calloc((size_t)b->new_tokens, sizeof(int64_t))};
	struct result result;
	int64_t *prompt = NULL;
	int32_t rc = 0;

	if (__builtin_add_overflow(n, depth, &all) ||
	    (uint64_t)all > m->info.context)
		rc = genai_fail(err, GENAI_E_LIMIT,
				"--prompt-tokens %" PRId64 " and --depth "
				"%" PRId64 " are more than the context of "
				"%" PRIu64 " positions",
				n, depth, m->info.context);
	else
		prompt = malloc((size_t)all * sizeof(*prompt));
	if (!rc && (!prompt || !r.ids))
		rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
	if (!rc) {
		bench_prompt(prompt, all, m->info.vocab_size);
		rc = repeat(b, m, err, prompt, n, depth, b->tokens + cell, &r,
			    &result);
	}
	if (!rc) {
		b->differ |= !result.same;
		report(b, m, p, d, &result);
	}
	free(prompt);
	free(r.ids);
	return rc;
}
