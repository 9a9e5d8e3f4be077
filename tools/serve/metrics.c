// metrics.c - /metrics: Prometheus' text.  Where vLLM has a name for the same
// thing, it is there under that name, too, so that dashboards find it.
#include "tools/serve/metrics.h"

#include <event2/buffer.h>
#include <inttypes.h>
#include <stdio.h>

static const double edges[METRICS_BUCKETS] = {0.001, 0.0025, 0.005, 0.01, 0.025,
					      0.05,  0.1,    0.25,  0.5,  1,
					      2.5,   5,	     10,    30,	  60};

void histogram_add(struct histogram *h, double s)
{
	uint32_t i = 0;

	while (i < METRICS_BUCKETS && s > edges[i])
		i++;
	h->counts[i]++;
	h->n++;
	h->sum += s;
}

struct printer {
	struct evbuffer *out;
	char label[600]; // model_name="..."
};

static void head(const struct printer *p, const char *name, const char *type,
		 const char *help)
{
	evbuffer_add_printf(p->out, "# HELP %s %s\n# TYPE %s %s\n", name, help,
			    name, type);
}

static void one(const struct printer *p, const char *name, const char *alias,
		const char *type, double v, const char *help)
{
	const char *names[2] = {name, alias};

	for (int i = 0; i < 2 && names[i]; i++) {
		head(p, names[i], type, help);
		evbuffer_add_printf(p->out, "%s{%s} %.17g\n", names[i],
				    p->label, v);
	}
}

static void many(const struct printer *p, const char *name, const char *alias,
		 const struct histogram *h, const char *help)
{
	const char *names[2] = {name, alias};

	for (int i = 0; i < 2 && names[i]; i++) {
		uint64_t sum = 0;

		head(p, names[i], "histogram", help);
		for (uint32_t k = 0; k < METRICS_BUCKETS; k++) {
			sum += h->counts[k];
			evbuffer_add_printf(
				p->out, "%s_bucket{%s,le=\"%g\"} %" PRIu64 "\n",
				names[i], p->label, edges[k], sum);
		}
		evbuffer_add_printf(p->out,
				    "%s_bucket{%s,le=\"+Inf\"} %" PRIu64 "\n"
				    "%s_sum{%s} %.17g\n%s_count{%s} %" PRIu64
				    "\n",
				    names[i], p->label, h->n, names[i],
				    p->label, h->sum, names[i], p->label, h->n);
	}
}

static void print_ends(const struct printer *p, const struct metrics *m)
{
	static const char *const reasons[END_COUNT] = {
		[END_STOP] = "stop",
		[END_LENGTH] = "length",
		[END_CANCELLED] = "abort",
		[END_DEADLINE] = "deadline",
		[END_ERROR] = "error"};
	static const char *const names[2] = {"genai_choices_total",
					     "vllm:request_success_total"};

	for (int i = 0; i < 2; i++) {
		head(p, names[i], "counter", "Choices that ended, by reason.");
		for (int k = 0; k < (i ? END_DEADLINE : END_COUNT); k++)
			evbuffer_add_printf(
				p->out,
				"%s{%s,finished_reason=\"%s\"} %" PRIu64 "\n",
				names[i], p->label, reasons[k], m->ends[k]);
	}
}

static void print_device(const struct printer *p, uint32_t healthy,
			 uint32_t errors)
{
	one(p, "genai_healthy", NULL, "gauge", healthy,
	    "1 while the device works.");
	one(p, "genai_device_errors_total", NULL, "counter", errors,
	    "Steps that failed and were done again.");
}

static void print_engine(const struct printer *p, struct genai_engine *engine)
{
	struct genai_engine_stats e = {.size = sizeof(e)};
	struct genai_engine_info info = {.size = sizeof(info)};

	if (genai_engine_get_stats(engine, &e))
		return;
	print_device(p, e.healthy, e.device_errors);
	one(p, "genai_sequences_running", "vllm:num_requests_running", "gauge",
	    e.running, "Sequences that share steps.");
	one(p, "genai_sequences_waiting", "vllm:num_requests_waiting", "gauge",
	    e.waiting, "Sequences that wait for room.");
	if (!genai_engine_get_info(engine, &info))
		one(p, "genai_sequences_most", NULL, "gauge",
		    info.max_sequences, "Sequences that may share a step.");
	one(p, "genai_blocks", NULL, "gauge", e.blocks, "Blocks of the cache.");
	one(p, "genai_blocks_used", NULL, "gauge", e.blocks_used,
	    "Blocks that running sequences have.");
	one(p, "genai_blocks_cached", NULL, "gauge", e.blocks_cached,
	    "Blocks not in use whose content is known.");
	one(p, "genai_cache_usage", "vllm:kv_cache_usage_perc", "gauge",
	    e.blocks ? (double)e.blocks_used / e.blocks : 0,
	    "Share of the blocks in use, 0 to 1.");
	one(p, "genai_prompt_tokens_total", "vllm:prompt_tokens_total",
	    "counter", (double)e.prompt_tokens, "Tokens of prompts.");
	one(p, "genai_new_tokens_total", "vllm:generation_tokens_total",
	    "counter", (double)e.new_tokens, "Tokens made.");
	one(p, "genai_cached_tokens_total", "vllm:prefix_cache_hits_total",
	    "counter", (double)e.cached_tokens,
	    "Tokens of prompts that were found in the cache.");
	one(p, "genai_preemptions_total", "vllm:num_preemptions_total",
	    "counter", (double)e.preemptions,
	    "Sequences that gave up their blocks.");
	one(p, "genai_steps_total", NULL, "counter", (double)e.steps,
	    "Steps computed.");
	one(p, "genai_steps_ahead_total", NULL, "counter", (double)e.ahead,
	    "Steps submitted before the tokens of the one before were read.");
	one(p, "genai_rows_total", NULL, "counter", (double)e.rows,
	    "Rows of all steps.");
}

static void print_model(const struct printer *p, struct genai_engine *engine)
{
	struct genai_stats st = {.size = sizeof(st)};

	if (genai_engine_get_model_stats(engine, &st, NULL))
		return;
	one(p, "genai_link_bytes_total", NULL, "counter", (double)st.h2d_bytes,
	    "Bytes copied to the device.");
	one(p, "genai_weights_bytes", NULL, "gauge", (double)st.weights_bytes,
	    "All weights.");
	one(p, "genai_weights_pinned_bytes", NULL, "gauge",
	    (double)st.pinned_bytes, "Weights that stay on the device.");
	one(p, "genai_weights_streamed_bytes_per_token", NULL, "gauge",
	    (double)st.streamed_bytes_per_token,
	    "Weights copied for every step.");
	one(p, "genai_device_peak_bytes", NULL, "gauge",
	    (double)st.device_peak_bytes, "Most memory in use at once.");
}

static void print_vectors(const struct printer *p, const struct metrics *m)
{
	print_device(p, m->vectors_healthy, m->vector_errors);
	one(p, "genai_vectors_waiting", "vllm:num_requests_waiting", "gauge",
	    (double)m->n_vector_jobs, "Requests not answered yet.");
	one(p, "genai_vectors_total", NULL, "counter", (double)m->vectors,
	    "Texts made vectors.");
	one(p, "genai_prompt_tokens_total", "vllm:prompt_tokens_total",
	    "counter", (double)m->vector_tokens, "Tokens of texts.");
}

void metrics_print(const struct metrics *m, struct genai_engine *engine,
		   uint32_t connections, const char *model,
		   struct evbuffer *out)
{
	struct printer p = {.out = out};
	size_t n = 0;

	n = (size_t)snprintf(p.label, sizeof(p.label), "model_name=\"");
	for (; *model && n + 4 < sizeof(p.label); model++) {
		if (*model == '"' || *model == '\\')
			p.label[n++] = '\\';
		p.label[n++] = *model;
	}
	p.label[n++] = '"';
	p.label[n] = 0;
	if (engine) {
		print_engine(&p, engine);
		print_model(&p, engine);
	} else {
		print_vectors(&p, m);
	}
	one(&p, "genai_connections", NULL, "gauge", connections,
	    "Open connections.");
	one(&p, "genai_requests_refused_total", NULL, "counter",
	    (double)m->refused, "Requests answered with an error at once.");
	many(&p, "genai_request_seconds", "vllm:e2e_request_latency_seconds",
	     &m->whole, "From a request to its last token.");
	if (!engine)
		return;
	print_ends(&p, m);
	many(&p, "genai_first_token_seconds",
	     "vllm:time_to_first_token_seconds", &m->first,
	     "From a request to its first token.");
	many(&p, "genai_inter_token_seconds",
	     "vllm:inter_token_latency_seconds", &m->between,
	     "Between two tokens of a choice.");
}
