// ask.c - what the body of a request asks for: every key is known and checked,
// or refused by name; null is as if a key were not there.
#include "tools/serve/serve.h"

#include <ctype.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "core/config/spell.h"

#define TEXT ASK_TEXT	    // of /v1/completions
#define CHAT ASK_CHAT	    // of /v1/chat/completions
#define VECTORS ASK_VECTORS // of /v1/embeddings
#define BOTH (TEXT | CHAT)
#define ALL (BOTH | VECTORS)

static const struct {
	const char *name;
	int where;
} keys[] = {
	{"model", ALL},
	{"input", VECTORS},
	{"encoding_format", VECTORS},
	{"dimensions", VECTORS},
	{"prompt", TEXT},
	{"messages", CHAT},
	{"stream", BOTH},
	{"stream_options", BOTH},
	{"max_tokens", BOTH},
	{"max_completion_tokens", CHAT},
	{"min_tokens", BOTH},
	{"temperature", BOTH},
	{"top_p", BOTH},
	{"top_k", BOTH},
	{"min_p", BOTH},
	{"repetition_penalty", BOTH},
	{"presence_penalty", BOTH},
	{"frequency_penalty", BOTH},
	{"seed", BOTH},
	{"n", BOTH},
	{"best_of", TEXT},
	{"echo", TEXT},
	{"suffix", TEXT},
	{"logprobs", BOTH},
	{"top_logprobs", CHAT},
	{"logit_bias", BOTH},
	{"stop", BOTH},
	{"stop_token_ids", BOTH},
	{"ignore_eos", BOTH},
	{"skip_special_tokens", BOTH},
	{"add_special_tokens", TEXT},
	{"cache_salt", BOTH},
	{"tools", CHAT},
	{"tool_choice", CHAT},
	{"parallel_tool_calls", CHAT},
	{"documents", CHAT},
	{"chat_template_kwargs", CHAT},
	{"reasoning_effort", CHAT},
	{"add_generation_prompt", CHAT},
	{"continue_final_message", CHAT},
	{"response_format", BOTH},
	{"structured_outputs", BOTH},
	// without effect on the answer
	{"user", ALL},
	{"metadata", ALL},
	{"store", ALL},
	{"service_tier", ALL},
	{"safety_identifier", ALL},
	{"prompt_cache_key", ALL},
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static const char *known_key(const char *name, int where)
{
	for (size_t i = 0; i < N_KEYS; i++)
		if (keys[i].where & where && !strcmp(keys[i].name, name))
			return keys[i].name;
	return NULL;
}

// What routers of other servers add: taken with the value that changes nothing.
static const struct {
	const char *name;
	bool only;
} neutral[] = {
	{"no_stop_trim", false},      {"return_hidden_states", false},
	{"separate_reasoning", true}, {"stream_reasoning", true},
	{"include_reasoning", true},
};

// 0: it is none of those; 1: it is; -1: with another value.
static int is_neutral(const char *name, const json_t *v, struct serve_error *e)
{
	for (size_t i = 0; i < sizeof(neutral) / sizeof(neutral[0]); i++) {
		if (strcmp(neutral[i].name, name))
			continue;
		if (json_is_boolean(v) && json_is_true(v) == neutral[i].only)
			return 1;
		// the name of static life, not the body's
		refuse(e, 400, "unsupported_value", neutral[i].name,
		       "%s: only %s", name, neutral[i].only ? "true" : "false");
		return -1;
	}
	return 0;
}

int ask_keys(const json_t *body, int where, struct serve_error *e)
{
	const char *name;
	json_t *v;

	json_object_foreach((json_t *)(uintptr_t)body, name, v)
	{
		struct genai_spell near = {.word = name};
		int passes;

		if (json_is_null(v) || known_key(name, where))
			continue;
		passes = is_neutral(name, v, e);
		if (passes < 0)
			return -1;
		if (passes)
			continue;
		for (size_t i = 0; i < N_KEYS; i++)
			if (keys[i].where & where)
				genai_spell_offer(&near, keys[i].name);
		return refuse(e, 400, "unsupported_parameter", NULL,
			      "%.100s: this server has no such parameter%s%s",
			      name, near.best ? "; did you mean " : "",
			      near.best ? near.best : "");
	}
	return 0;
}

// ---- values ----

static const json_t *get(const json_t *body, const char *name)
{
	const json_t *v = json_object_get(body, name);

	return json_is_null(v) ? NULL : v;
}

static int get_bool(const json_t *body, const char *name, bool *out,
		    struct serve_error *e)
{
	const json_t *v = get(body, name);

	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return refuse(e, 400, "invalid_type", name,
			      "%s: true or false is needed", name);
	*out = json_is_true(v);
	return 0;
}

// given may be NULL.
static int get_int(const json_t *body, const char *name, int64_t lo, int64_t hi,
		   int64_t *out, bool *given, struct serve_error *e)
{
	const json_t *v = get(body, name);

	if (!v)
		return 0;
	if (!json_is_integer(v))
		return refuse(e, 400, "invalid_type", name,
			      "%s: a whole number is needed", name);
	if (json_integer_value(v) < lo || json_integer_value(v) > hi)
		return refuse(e, 400, "invalid_value", name,
			      "%s: %" PRId64 " is not from %" PRId64
			      " to %" PRId64,
			      name, (int64_t)json_integer_value(v), lo, hi);
	*out = json_integer_value(v);
	if (given)
		*given = true;
	return 0;
}

static int get_num(const json_t *body, const char *name, double lo, double hi,
		   double *out, bool *given, struct serve_error *e)
{
	const json_t *v = get(body, name);

	if (!v)
		return 0;
	if (!json_is_number(v))
		return refuse(e, 400, "invalid_type", name,
			      "%s: a number is needed", name);
	if (!(json_number_value(v) >= lo && json_number_value(v) <= hi))
		return refuse(e, 400, "invalid_value", name,
			      "%s: %g is not from %g to %g", name,
			      json_number_value(v), lo, hi);
	*out = json_number_value(v);
	*given = true;
	return 0;
}

int ask_model(const struct serve *s, const json_t *body, struct serve_error *e)
{
	const json_t *v = get(body, "model");

	if (!v)
		return 0;
	if (!json_is_string(v))
		return refuse(e, 400, "invalid_type", "model",
			      "model: a string is needed");
	if (strcmp(json_string_value(v), s->name))
		return refuse(e, 404, "model_not_found", "model",
			      "model: there is no %.200s here, but %s",
			      json_string_value(v), s->name);
	return 0;
}

// ---- groups of them ----

static int read_sampling(struct serve *s, const json_t *b, struct ask *a,
			 struct serve_error *e)
{
	struct cli_sampling w = {0};
	bool given = false;

	// -1 is "all" elsewhere
	if (get_num(b, "temperature", 0, 100, &w.temperature,
		    &w.has_temperature, e) ||
	    get_num(b, "top_p", 0, 1, &w.top_p, &w.has_top_p, e) ||
	    get_int(b, "top_k", -1, INT32_MAX, &w.top_k, &w.has_top_k, e) ||
	    get_num(b, "min_p", 0, 1, &w.min_p, &w.has_min_p, e) ||
	    get_num(b, "repetition_penalty", 1e-6, 1e6, &w.rep, &w.has_rep,
		    e) ||
	    get_num(b, "presence_penalty", -2, 2, &w.pres, &w.has_pres, e) ||
	    get_num(b, "frequency_penalty", -2, 2, &w.freq, &w.has_freq, e) ||
	    get_int(b, "seed", INT64_MIN, INT64_MAX, &w.seed, &given, e))
		return -1;
	w.has_seed = given;
	if (w.top_k < 0)
		w.top_k = 0;
	cli_sampling_read(&w, &s->info, &a->sampling);
	a->request.sampling = &a->sampling;
	return 0;
}

static int read_lengths(const json_t *b, struct ask *a, struct serve_error *e)
{
	int64_t n = 1, best = 0;
	bool both = false;

	a->request.max_tokens = a->is_chat ? -1 : 16;
	if (get_int(b, "max_tokens", 1, INT32_MAX, &a->request.max_tokens, NULL,
		    e) ||
	    get_int(b, "max_completion_tokens", 1, INT32_MAX,
		    &a->request.max_tokens, &both, e) ||
	    get_int(b, "min_tokens", 0, INT32_MAX, &a->request.min_tokens, NULL,
		    e) ||
	    get_int(b, "n", 1, 128, &n, NULL, e) ||
	    get_int(b, "best_of", 1, 128, &best, NULL, e))
		return -1;
	if (both && get(b, "max_tokens") &&
	    json_integer_value(get(b, "max_tokens")) != a->request.max_tokens)
		return refuse(e, 400, "invalid_value", "max_tokens",
			      "max_tokens and max_completion_tokens differ");
	if (best && best != n)
		return refuse(e, 400, "unsupported_parameter", "best_of",
			      "best_of: all choices are returned; it may only "
			      "be n");
	if (a->request.max_tokens > 0 &&
	    a->request.min_tokens > a->request.max_tokens)
		return refuse(e, 400, "invalid_value", "min_tokens",
			      "min_tokens: %" PRId64 " are more than the "
			      "%" PRId64 " that there may be",
			      a->request.min_tokens, a->request.max_tokens);
	a->request.n = (uint32_t)n;
	return 0;
}

static int read_logprobs(const json_t *b, struct ask *a, struct serve_error *e)
{
	int64_t top = 0;
	bool want = false;

	if (a->is_chat) {
		if (get_bool(b, "logprobs", &want, e) ||
		    get_int(b, "top_logprobs", 0, 20, &top, NULL, e))
			return -1;
		if (top && !want)
			return refuse(e, 400, "invalid_value", "top_logprobs",
				      "top_logprobs: logprobs must be true");
	} else if (get_int(b, "logprobs", 0, 20, &top, &want, e)) {
		return -1;
	}
	if (want)
		a->request.flags |= GENAI_REQUEST_LOGPROBS;
	a->request.n_top = (uint32_t)top;
	return 0;
}

static int add_stop(const json_t *v, struct ask *a, struct serve_error *e)
{
	if (!json_is_string(v) || !json_string_length(v))
		return refuse(e, 400, "invalid_value", "stop",
			      "stop: texts are needed, none empty");
	if (a->request.n_stops == ASK_MAX_STOPS)
		return refuse(e, 400, "invalid_value", "stop",
			      "stop: more than %d", ASK_MAX_STOPS);
	a->stops[a->request.n_stops++] = json_string_value(v);
	return 0;
}

static int read_stops(struct serve *s, const json_t *b, struct ask *a,
		      struct serve_error *e)
{
	const json_t *v = get(b, "stop"), *item;
	size_t i;

	a->request.stops = a->stops;
	a->request.stop_ids = a->stop_ids;
	if (json_is_array(v)) {
		json_array_foreach(v, i,
				   item) if (add_stop(item, a, e)) return -1;
	} else if (v && add_stop(v, a, e)) {
		return -1;
	}
	v = get(b, "stop_token_ids");
	if (v && (!json_is_array(v) || json_array_size(v) > ASK_MAX_STOPS))
		return refuse(e, 400, "invalid_value", "stop_token_ids",
			      "stop_token_ids: an array of at most %d ids is "
			      "needed",
			      ASK_MAX_STOPS);
	json_array_foreach(v, i, item)
	{
		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
		    json_integer_value(item) >= s->info.vocab_size)
			return refuse(e, 400, "invalid_value", "stop_token_ids",
				      "stop_token_ids: item %zu is no id below "
				      "%u",
				      i, s->info.vocab_size);
		a->stop_ids[a->request.n_stop_ids++] = json_integer_value(item);
	}
	return 0;
}

static int read_bias(struct serve *s, const json_t *b, struct ask *a,
		     struct serve_error *e)
{
	json_t *v = json_object_get(b, "logit_bias");
	const char *key;
	json_t *value;

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_object(v))
		return refuse(e, 400, "invalid_type", "logit_bias",
			      "logit_bias: an object of ids is needed");
	a->bias = calloc(json_object_size(v) + 1, sizeof(*a->bias));
	if (!a->bias)
		return refuse_memory(e);
	a->request.bias = a->bias;
	json_object_foreach(v, key, value)
	{
		char *end;
		long long id = strtoll(key, &end, 10);
		double x = json_number_value(value);

		if (!isdigit((unsigned char)*key) || *end || id < 0 ||
		    id >= s->info.vocab_size)
			return refuse(e, 400, "invalid_value", "logit_bias",
				      "logit_bias: '%.40s' is no id below %u",
				      key, s->info.vocab_size);
		if (!json_is_number(value) || !(x >= -100 && x <= 100))
			return refuse(e, 400, "invalid_value", "logit_bias",
				      "logit_bias: that of %lld is no number "
				      "from -100 to 100",
				      id);
		a->bias[a->request.n_bias++] =
			(struct genai_bias){.id = id, .bias = (float)x};
	}
	return 0;
}

static int read_stream(const json_t *b, struct ask *a, struct serve_error *e)
{
	const json_t *v = get(b, "stream_options");

	if (get_bool(b, "stream", &a->is_stream, e))
		return -1;
	if (!v)
		return 0;
	if (!json_is_object(v) || !a->is_stream)
		return refuse(e, 400, "invalid_value", "stream_options",
			      "stream_options: an object is needed, and "
			      "stream must be true");
	return get_bool(v, "include_usage", &a->has_usage, e);
}

static int read_rest(struct serve *s, const json_t *b, struct ask *a,
		     struct serve_error *e)
{
	const json_t *choice = get(b, "tool_choice");
	bool ignore = false, skip = true, special = true;
	const json_t *v = get(b, "cache_salt");

	if (get_bool(b, "echo", &a->has_echo, e) ||
	    get_bool(b, "ignore_eos", &ignore, e) ||
	    get_bool(b, "skip_special_tokens", &skip, e) ||
	    get_bool(b, "add_special_tokens", &special, e))
		return -1;
	a->has_tools = json_array_size(get(b, "tools")) &&
		       !(json_is_string(choice) &&
			 !strcmp(json_string_value(choice), "none"));
	a->request.flags |= (a->has_echo ? GENAI_REQUEST_ECHO : 0) |
			    (ignore ? GENAI_REQUEST_IGNORE_EOS : 0) |
			    (skip ? 0 : GENAI_REQUEST_KEEP_SPECIAL);
	if (a->is_chat && format_needs_special(s, a->has_tools))
		a->request.flags |= GENAI_REQUEST_KEEP_SPECIAL;
	if (v && !json_is_string(v))
		return refuse(e, 400, "invalid_type", "cache_salt",
			      "cache_salt: a string is needed");
	a->request.salt = json_string_value(v);
	v = get(b, "suffix");
	if (v && (!json_is_string(v) || json_string_length(v)))
		return refuse(e, 400, "unsupported_parameter", "suffix",
			      "suffix: nothing is inserted before a text here");
	return 0;
}

// ---- prompts of /v1/completions ----

static int read_prompt(struct serve *s, const json_t *v, bool no_special,
		       struct ask *a, struct serve_error *e)
{
	struct ask_prompt *p = &a->prompts[a->n_prompts];
	int rc;

	if (json_is_string(v))
		rc = ask_text(s, v, "prompt", no_special, p, e);
	else
		rc = ask_ids(s, v, "prompt", p, e);
	a->n_prompts += !rc;
	return rc;
}

static int read_prompts(struct serve *s, const json_t *b, struct ask *a,
			struct serve_error *e)
{
	const json_t *v = get(b, "prompt"), *first = json_array_get(v, 0);
	size_t n = json_is_array(v) && !json_is_integer(first)
			   ? json_array_size(v)
			   : 1;
	bool special = true;

	get_bool(b, "add_special_tokens", &special, e);
	if (!v || !n || n * a->request.n > ASK_MAX_PROMPTS)
		return refuse(e, 400, "invalid_value", "prompt",
			      "prompt: a text, an array of ids, or an array of "
			      "these is needed, with n at most %d choices",
			      ASK_MAX_PROMPTS);
	a->prompts = calloc(n, sizeof(*a->prompts));
	if (!a->prompts)
		return refuse_memory(e);
	if (!json_is_array(v) || json_is_integer(first))
		return read_prompt(s, v, !special, a, e);
	for (size_t i = 0; i < n; i++)
		if (read_prompt(s, json_array_get(v, i), !special, a, e))
			return -1;
	return 0;
}

static int read_messages(struct serve *s, struct ask *a, struct serve_error *e)
{
	a->prompts = calloc(1, sizeof(*a->prompts));
	if (!a->prompts)
		return refuse_memory(e);
	if (ask_chat(s, a->body, &a->prompts[0], e))
		return -1;
	a->n_prompts = 1;
	return 0;
}

// A grammar is compiled for each prompt: sequences of one request of the engine
// share what belongs to it.
static int make_constraints(struct serve *s, struct ask *a,
			    struct serve_error *e)
{
	struct genai_error err = GENAI_ERROR_INIT;

	if (!a->grammar)
		return 0;
	a->constraints = calloc(a->n_prompts, sizeof(*a->constraints));
	if (!a->constraints)
		return refuse_memory(e);
	for (uint32_t i = 0; i < a->n_prompts; i++)
		if (constraint_open(s->constrain, a->grammar_kind, a->grammar,
				    a->request.n, &a->constraints[i], &err))
			return refuse_from(e, &err, a->grammar_param);
	a->request.allow = constraint_allow;
	return 0;
}

int ask_read(struct serve *s, bool is_chat, json_t *body, struct ask **out,
	     struct serve_error *e)
{
	struct ask *a = calloc(1, sizeof(*a));

	if (!a) {
		json_decref(body);
		return refuse_memory(e);
	}
	a->body = body;
	a->is_chat = is_chat;
	a->request = (struct genai_request)GENAI_REQUEST_INIT;
	a->request.deadline_ms = (uint32_t)s->o->timeout * 1000;
	if (ask_keys(body, is_chat ? CHAT : TEXT, e) || ask_model(s, body, e) ||
	    read_stream(body, a, e) || read_lengths(body, a, e) ||
	    read_sampling(s, body, a, e) || read_logprobs(body, a, e) ||
	    read_stops(s, body, a, e) || read_bias(s, body, a, e) ||
	    read_rest(s, body, a, e) || ask_grammar(s, body, a, e) ||
	    (is_chat ? read_messages(s, a, e) : read_prompts(s, body, a, e)) ||
	    make_constraints(s, a, e)) {
		ask_free(a);
		return -1;
	}
	*out = a;
	return 0;
}

void ask_free(struct ask *a)
{
	if (!a)
		return;
	for (uint32_t i = 0; i < a->n_prompts; i++)
		genai_free(a->prompts[i].ids);
	for (uint32_t i = 0; a->constraints && i < a->n_prompts; i++)
		constraint_close(a->constraints[i]);
	free(a->constraints);
	free(a->grammar);
	free(a->prompts);
	free(a->bias);
	json_decref(a->body);
	json_decref(a->response);
	free(a);
}
