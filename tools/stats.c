// stats.c - what a run cost, as JSON and as a line.
#include "tools/cli.h"

#include <math.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static double rate(double n, double s)
{
	return s > 0 && n > 0 ? n / s : 0;
}

// The first token comes with the prompt: the rate is of those after it.
static double decode_rate(const struct cli_result *r)
{
	return r->n_ids > 1 ? rate((double)(r->n_ids - 1), r->decode_s) : 0;
}

static int by_size(const void *a, const void *b)
{
	double x = *(const double *)a, y = *(const double *)b;

	return (x > y) - (x < y);
}

static double median(const double *v, size_t n)
{
	double *sorted = malloc((n + 1) * sizeof(*sorted)), m = 0;

	if (sorted && n) {
		memcpy(sorted, v, n * sizeof(*v));
		qsort(sorted, n, sizeof(*sorted), by_size);
		m = sorted[n / 2];
	}
	free(sorted);
	return m;
}

static void counted(void *ctx, const char *name, int64_t value)
{
	json_object_set_new(ctx, name, json_integer((json_int_t)value));
}

json_t *cli_experts_json(const struct genai_stats *st)
{
	return json_pack("{s:I, s:I, s:I, s:I, s:I, s:I, s:I}", "bytes",
			 (json_int_t)st->expert_bytes, "pinned_bytes",
			 (json_int_t)st->expert_pinned_bytes, "hits",
			 (json_int_t)st->expert_hits, "misses",
			 (json_int_t)st->expert_misses, "miss_bytes",
			 (json_int_t)st->expert_miss_bytes, "least_miss_bytes",
			 (json_int_t)st->expert_least_bytes, "exchanges",
			 (json_int_t)st->expert_exchanges);
}

json_t *cli_stats_json(const struct cli_model *m, const struct cli_result *r,
		       size_t n_prompt)
{
	struct genai_stats st = {.size = sizeof(st)};
	json_t *j, *fb = json_object(), *counters = json_object();

	genai_model_get_stats(m->model, &st, NULL);
	for (uint32_t i = 0; i < st.n_fallbacks; i++)
		json_object_set_new(
			fb, st.fallbacks[i].reason,
			json_integer((json_int_t)st.fallbacks[i].count));
	j = json_pack(
		"{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
		" s:I, s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}",
		"load_s", st.load_s, "ttft_s", r->first_s, "prefill_tok_s",
		rate((double)n_prompt, r->prefill_s), "decode_tok_s",
		decode_rate(r), "prompt_tokens", (json_int_t)n_prompt,
		"new_tokens", (json_int_t)r->n_ids, "host_peak_bytes",
		(json_int_t)st.host_peak_bytes, "host_pinned_bytes",
		(json_int_t)st.host_pinned_bytes, "device_limit_bytes",
		(json_int_t)st.device_limit_bytes, "weight_budget_bytes",
		(json_int_t)st.weight_budget_bytes, "device_peak_bytes",
		(json_int_t)st.device_peak_bytes, "device_used_bytes",
		(json_int_t)st.device_used_bytes, "weights_bytes",
		(json_int_t)st.weights_bytes, "pinned_bytes",
		(json_int_t)st.pinned_bytes, "ring_bytes",
		(json_int_t)st.ring_bytes, "in_place_bytes",
		(json_int_t)st.in_place_bytes, "streamed_bytes_per_token",
		(json_int_t)st.streamed_bytes_per_token, "link_gb_s",
		rate((double)st.h2d_bytes * 1e-9, r->prefill_s + r->decode_s),
		"captures", (json_int_t)st.captures, "replays",
		(json_int_t)st.replays, "fallbacks", fb);
	json_object_set_new(
		j, "beside_bytes_per_token",
		json_integer((json_int_t)st.beside_bytes_per_token));
	if (st.expert_bytes)
		json_object_set_new(j, "experts", cli_experts_json(&st));
	genai_get_counters(m->rt, counted, counters, NULL);
	json_object_set_new(j, "counters", counters);
	if (st.simulated_ns) {
		json_object_set_new(j, "simulated_s",
				    json_real((double)st.simulated_ns * 1e-9));
		json_object_set_new(j, "simulated_s_per_token",
				    json_real(median(r->sim_s, r->n_sim)));
	}
	return j;
}

void cli_stats_line(const struct cli *c, const struct cli_model *m,
		    const struct cli_result *r, size_t n_prompt)
{
	struct genai_stats st = {.size = sizeof(st)};

	if (c->quiet || (!c->verbose && !isatty(2)))
		return;
	genai_model_get_stats(m->model, &st, NULL);
	fprintf(stderr,
		"[%s, %s, %s] %zu + %zu tokens: prompt %.1f tok/s, first "
		"token %.2f s, then %.1f tok/s; weights %.1f MiB: %.1f pinned, "
		"%.1f ring, %.1f in place, %.1f MiB moved per token%s\n",
		st.executor, st.stream, st.pager, n_prompt, r->n_ids,
		rate((double)n_prompt, r->prefill_s), r->first_s,
		decode_rate(r), (double)st.weights_bytes / 1048576,
		(double)st.pinned_bytes / 1048576,
		(double)st.ring_bytes / 1048576,
		(double)st.in_place_bytes / 1048576,
		(double)st.streamed_bytes_per_token / 1048576,
		st.replays ? "; recorded" : "");
	for (uint32_t i = 0; i < st.n_fallbacks; i++)
		fprintf(stderr, "  not recorded: %s (%" PRIu64 " steps)\n",
			st.fallbacks[i].reason, st.fallbacks[i].count);
}

json_t *cli_real(double v)
{
	return isfinite(v) ? json_real(v) : json_null();
}

void cli_put_xml(FILE *f, const char *s)
{
	for (; *s; s++) {
		if (*s == '<')
			fputs("&lt;", f);
		else if (*s == '&')
			fputs("&amp;", f);
		else
			fputc(*s >= ' ' && *s <= '~' ? *s : '?', f);
	}
}

void cli_print_json(json_t *j)
{
	json_dumpf(j, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(j);
}
