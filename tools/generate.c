// generate.c - the generation loop, and the command around it.
#include "tools/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t cli_interrupted;

static void on_interrupt(int sig)
{
	(void)sig;
	// a second one ends the program at once
	if (cli_interrupted)
		_exit(EXIT_INTERRUPT);
	cli_interrupted = 1;
}

void cli_catch_interrupts(void)
{
	struct sigaction sa = {.sa_handler = on_interrupt};

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
}

// ---- the loop ----

struct loop {
	struct cli *c;
	const struct cli_generate *g;
	struct cli_result *r;
	struct genai_detok *d;
	float *logits;
	size_t held; /* bytes of text not emitted: may begin a stop text */
	size_t cap_ids, cap_text;
	bool greedy;
};

static int32_t add_text(struct loop *l, const char *s, size_t n)
{
	struct cli_result *r = l->r;

	if (r->n_text + n + 1 > l->cap_text) {
		size_t cap = 2 * (r->n_text + n + 64);
		char *more = realloc(r->text, cap);

		if (!more)
			return genai_fail(&l->c->err, GENAI_E_NOMEM,
					  "no memory");
		r->text = more;
		l->cap_text = cap;
	}
	memcpy(r->text + r->n_text, s, n);
	r->n_text += n;
	r->text[r->n_text] = 0;
	l->held += n;
	return 0;
}

// How many of the last bytes could be the beginning of a stop text; found: the
// text ends before at.
static size_t hold_back(struct loop *l, bool *found, size_t *at)
{
	const struct cli_result *r = l->r;
	size_t from = r->n_text - l->held, most = 0;

	*found = false;
	for (uint32_t i = 0; i < l->g->n_stops; i++) {
		const char *stop = l->g->stops[i];
		size_t n = strlen(stop), k;
		const char *p = r->text ? strstr(r->text + from, stop) : NULL;

		if (p && (!*found || (size_t)(p - r->text) < *at)) {
			*found = true;
			*at = (size_t)(p - r->text);
		}
		for (k = n - 1 < l->held ? n - 1 : l->held; k > most; k--)
			if (!memcmp(r->text + r->n_text - k, stop, k)) {
				most = k;
				break;
			}
	}
	return most;
}

static void emit(struct loop *l, size_t keep)
{
	size_t n = l->held - keep;

	if (n && l->g->emit)
		l->g->emit(l->g->ctx, l->r->text + l->r->n_text - l->held, n);
	l->held = keep;
}

// Take up text; true if a stop text ended it.
static bool take_text(struct loop *l, const char *s, size_t n, int32_t *rc)
{
	size_t keep, at = 0;
	bool found;

	*rc = n ? add_text(l, s, n) : 0;
	if (*rc || !n)
		return false;
	keep = hold_back(l, &found, &at);
	if (found) {
		l->held -= l->r->n_text - at;
		l->r->n_text = at;
		l->r->text[at] = 0;
		emit(l, 0);
		return true;
	}
	emit(l, keep);
	return false;
}

static int32_t choose(struct loop *l, bool ahead, int64_t *out_id)
{
	struct cli_model *m = l->g->m;
	struct genai_error *err = &l->c->err;
	size_t rows;
	int32_t rc;

	if (l->greedy)
		return genai_session_next(m->session, ahead, out_id, err);
	// the token before, if any, still has to be computed
	rc = 0;
	if (l->r->n_ids)
		rc = genai_session_append(m->session,
					  &l->r->ids[l->r->n_ids - 1], 1, err);
	if (!rc)
		rc = genai_session_logits(m->session, l->logits, 1, &rows, err);
	if (!rc)
		rc = genai_sampler_pick(l->g->sampler, l->logits, out_id, err);
	return rc;
}

static bool is_eos(const struct loop *l, int64_t id)
{
	const struct genai_model_info *i = &l->g->m->info;

	for (uint32_t k = 0; !l->g->ignore_eos && k < i->n_eos; k++)
		if (i->eos[k] == id)
			return true;
	return false;
}

static int32_t add_id(struct loop *l, int64_t id)
{
	if (l->r->n_ids == l->cap_ids) {
		size_t cap = l->cap_ids ? 2 * l->cap_ids : 256;
		int64_t *more = realloc(l->r->ids, cap * sizeof(*more));

		if (!more)
			return genai_fail(&l->c->err, GENAI_E_NOMEM,
					  "no memory");
		l->r->ids = more;
		l->cap_ids = cap;
	}
	l->r->ids[l->r->n_ids++] = id;
	return 0;
}

static int32_t loop_tokens(struct loop *l, int64_t most)
{
	const char *text;
	size_t n;
	int32_t rc = 0;

	l->r->finish = "length";
	for (int64_t i = 0; !rc && i < most; i++) {
		int64_t id;

		if (cli_interrupted) {
			l->r->finish = "interrupted";
			break;
		}
		rc = choose(l, i + 1 < most, &id);
		if (rc)
			break;
		if (!i)
			l->r->first_s = cli_now() - l->g->m->start;
		rc = add_id(l, id);
		if (rc)
			break;
		if (is_eos(l, id)) {
			l->r->finish = "eos";
			break;
		}
		if (!l->d)
			continue;
		rc = genai_detok_push(l->d, id, &text, &n, &l->c->err);
		if (!rc && take_text(l, text, n, &rc)) {
			l->r->finish = "stop";
			return rc;
		}
	}
	if (!rc && l->d) {
		rc = genai_detok_flush(l->d, &text, &n, &l->c->err);
		if (!rc && take_text(l, text, n, &rc))
			l->r->finish = "stop";
		if (!rc)
			emit(l, 0);
	}
	return rc;
}

static int32_t loop_open(struct loop *l, size_t n_prompt)
{
	const struct cli_generate *g = l->g;
	int32_t rc = 0;

	l->greedy = genai_sampler_is_greedy(g->sampler);
	l->r->text = calloc(1, 64);
	l->cap_text = 64;
	if (!l->greedy)
		l->logits = malloc(g->m->info.vocab_size * sizeof(float));
	if (!l->r->text || (!l->greedy && !l->logits))
		return genai_fail(&l->c->err, GENAI_E_NOMEM, "no memory");
	if (g->m->tok)
		rc = genai_detok_open(g->m->tok,
				      g->keep_special ? GENAI_TOK_KEEP_SPECIAL
						      : 0,
				      &l->d, &l->c->err);
	if (!rc && !n_prompt)
		rc = genai_fail(&l->c->err, GENAI_E_INVAL,
				"the prompt is empty");
	return rc;
}

// Prompt and new tokens together: at most the context and search.max_length.
static int32_t room_left(struct loop *l, int64_t *out)
{
	const struct genai_model_info *i = &l->g->m->info;
	int64_t length = (int64_t)genai_session_length(l->g->m->session);
	int64_t limit = (int64_t)i->context;

	if (i->max_length > 0 && i->max_length < limit)
		limit = i->max_length;
	if (length >= limit && l->g->max_new)
		return genai_fail(&l->c->err, GENAI_E_LIMIT,
				  "the prompt's %" PRId64
				  " tokens leave no room: prompt and answer "
				  "together may have %" PRId64,
				  length, limit);
	*out = limit - length;
	return 0;
}

int32_t cli_generate(struct cli *c, const struct cli_generate *g,
		     const int64_t *prompt, size_t n_prompt,
		     struct cli_result *out)
{
	struct loop l = {.c = c, .g = g, .r = out};
	int64_t room = 0;
	double t0;
	int32_t rc;

	memset(out, 0, sizeof(*out));
	rc = loop_open(&l, n_prompt);
	t0 = cli_now();
	if (!rc)
		rc = genai_session_append(g->m->session, prompt, n_prompt,
					  &c->err);
	out->prefill_s = cli_now() - t0;
	if (!rc && !l.greedy)
		rc = genai_sampler_accept(g->sampler, prompt, n_prompt,
					  &c->err);
	t0 = cli_now();
	if (!rc)
		rc = room_left(&l, &room);
	if (!rc)
		rc = loop_tokens(&l, g->max_new < room ? g->max_new : room);
	out->decode_s = cli_now() - t0;
	genai_detok_close(l.d);
	free(l.logits);
	if (rc)
		cli_result_free(out);
	return rc;
}

void cli_result_free(struct cli_result *r)
{
	free(r->ids);
	free(r->text);
	memset(r, 0, sizeof(*r));
}

// ---- statistics ----

static double rate(double n, double s)
{
	return s > 0 && n > 0 ? n / s : 0;
}

// The first token comes with the prompt: the rate is of those after it.
static double decode_rate(const struct cli_result *r)
{
	return r->n_ids > 1 ? rate((double)(r->n_ids - 1), r->decode_s) : 0;
}

json_t *cli_stats_json(const struct cli_model *m, const struct cli_result *r,
		       size_t n_prompt)
{
	struct genai_stats st = {.size = sizeof(st)};
	json_t *j, *fb = json_object();

	genai_model_get_stats(m->model, &st, NULL);
	for (uint32_t i = 0; i < st.n_fallbacks; i++)
		json_object_set_new(fb, st.fallbacks[i].reason,
				    json_integer((json_int_t)st.fallbacks[i].count));
	j = json_pack(
		"{s:f, s:f, s:f, s:f, s:I, s:I, s:I, s:I, s:I, s:I, s:I, s:I,"
		" s:I, s:I, s:I, s:I, s:f, s:I, s:I, s:o}",
		"load_s", st.load_s, "ttft_s", r->first_s, "prefill_tok_s",
		rate((double)n_prompt, r->prefill_s), "decode_tok_s",
		decode_rate(r), "prompt_tokens", (json_int_t)n_prompt,
		"new_tokens", (json_int_t)r->n_ids, "host_peak_bytes",
		(json_int_t)st.host_peak_bytes, "host_pinned_bytes",
		(json_int_t)st.host_pinned_bytes, "device_limit_bytes",
		(json_int_t)st.device_limit_bytes, "weight_budget_bytes",
		(json_int_t)st.weight_budget_bytes, "device_peak_bytes",
		(json_int_t)st.device_peak_bytes, "weights_bytes",
		(json_int_t)st.weights_bytes, "pinned_bytes",
		(json_int_t)st.pinned_bytes, "ring_bytes",
		(json_int_t)st.ring_bytes, "in_place_bytes",
		(json_int_t)st.in_place_bytes, "streamed_bytes_per_token",
		(json_int_t)st.streamed_bytes_per_token, "link_gb_s",
		rate((double)st.h2d_bytes * 1e-9, r->prefill_s + r->decode_s),
		"captures", (json_int_t)st.captures, "replays",
		(json_int_t)st.replays, "fallbacks", fb);
	if (st.simulated_ns) {
		json_object_set_new(j, "simulated_s",
				    json_real((double)st.simulated_ns * 1e-9));
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

void cli_print_json(json_t *j)
{
	json_dumpf(j, stdout, JSON_COMPACT);
	putchar('\n');
	json_decref(j);
}

// ---- the command ----

struct options {
	const char *prompt, *file, *ids, *system;
	const char *stops[64];
	uint32_t n_stops;
	bool chat, ignore_eos, echo, json;
	int64_t max_new;
	struct cli_sampling sampling;
};

static bool parse(struct cli *c, int argc, char **argv, struct options *o)
{
	static const struct option opts[] = {
		{"prompt", required_argument, NULL, 'p'},
		{"prompt-file", required_argument, NULL, 'f'},
		{"ids", required_argument, NULL, 'i'},
		{"chat", no_argument, NULL, 'c'},
		{"system", required_argument, NULL, 's'},
		{"max-new-tokens", required_argument, NULL, 'n'},
		{"ignore-eos", no_argument, NULL, 'e'},
		{"stop", required_argument, NULL, 'S'},
		{"echo", no_argument, NULL, 'E'},
		{"json", no_argument, NULL, 'j'},
		CLI_SAMPLING_OPTIONS,
		{NULL, 0, NULL, 0}};
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		switch (opt) {
		case 'p':
			o->prompt = optarg;
			break;
		case 'f':
			o->file = optarg;
			break;
		case 'i':
			o->ids = optarg;
			break;
		case 'c':
			o->chat = true;
			break;
		case 's':
			o->system = optarg;
			break;
		case 'n':
			if (!cli_int(c, "--max-new-tokens", optarg, 0,
				     INT32_MAX, &o->max_new))
				return false;
			break;
		case 'e':
			o->ignore_eos = true;
			break;
		case 'S':
			if (!*optarg || o->n_stops == 64) {
				cli_usage(c, "--stop: 1 to 64 texts, none "
					     "empty");
				return false;
			}
			o->stops[o->n_stops++] = optarg;
			break;
		case 'E':
			o->echo = true;
			break;
		case 'j':
			o->json = true;
			break;
		case '?':
			cli_usage(c, "unknown option or missing value: %s",
				  argv[optind - 1]);
			return false;
		default:
			if (!cli_sampling_option(c, &o->sampling, opt, optarg))
				return false;
		}
	}
	if (optind + 1 != argc) {
		cli_usage(c, "one model folder is needed");
		return false;
	}
	if (!!o->prompt + !!o->file + !!o->ids > 1) {
		cli_usage(c, "only one of --prompt, --prompt-file, --ids");
		return false;
	}
	if (o->ids && (o->chat || o->system)) {
		cli_usage(c, "--ids does not go with --chat");
		return false;
	}
	return true;
}

static int32_t encode_chat(struct cli *c, struct cli_model *m,
			   const struct options *o, const char *text,
			   int64_t **ids, size_t *n)
{
	json_t *messages = json_array();
	int32_t rc;

	if (o->system)
		json_array_append_new(messages,
				      json_pack("{s:s, s:s}", "role", "system",
						"content", o->system));
	json_array_append_new(messages, json_pack("{s:s, s:s}", "role", "user",
						  "content", text));
	rc = cli_render(c, m->folder, m->tok, messages, ids, n);
	json_decref(messages);
	return rc;
}

static int32_t get_prompt(struct cli *c, struct cli_model *m,
			  const struct options *o, int64_t **ids, size_t *n)
{
	char *text = NULL;
	size_t bytes;
	int32_t rc;

	if (o->ids)
		return cli_ids(c, o->ids, ids, n) ? 0 : c->err.code;
	if (o->prompt) {
		text = strdup(o->prompt);
		bytes = strlen(o->prompt);
	} else if (!cli_slurp(c, o->file ? o->file : "-", &text, &bytes)) {
		return c->err.code;
	}
	if (!text)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	if (o->chat || o->system)
		rc = encode_chat(c, m, o, text, ids, n);
	else
		rc = genai_tokenizer_encode(m->tok, text, bytes, 0, ids, n,
					    &c->err);
	free(text);
	return rc;
}

static void print_text(void *ctx, const char *text, size_t n)
{
	(void)ctx;
	fwrite(text, 1, n, stdout);
	fflush(stdout);
}

static json_t *id_array(const int64_t *ids, size_t n)
{
	json_t *a = json_array();

	for (size_t i = 0; i < n; i++)
		json_array_append_new(a, json_integer(ids[i]));
	return a;
}

static void print_result(const struct cli_model *m, const struct cli_result *r,
			 const int64_t *ids, size_t n)
{
	struct genai_stats st = {.size = sizeof(st)};

	genai_model_get_stats(m->model, &st, NULL);
	cli_print_json(json_pack(
		"{s:o, s:o, s:o, s:s, s:{s:s, s:s, s:s, s:s}, s:o}", "text",
		json_stringn(r->text, r->n_text), "prompt_ids",
		id_array(ids, n), "ids", id_array(r->ids, r->n_ids),
		"finish_reason", r->finish, "config", "executor", st.executor,
		"stream", st.stream, "barrier", st.barrier, "pager", st.pager,
		"stats", cli_stats_json(m, r, n)));
}

static int32_t echo_prompt(struct cli *c, struct cli_model *m,
			   const int64_t *ids, size_t n)
{
	char *text;
	size_t bytes;
	int32_t rc = genai_tokenizer_decode(m->tok, ids, n, 0, &text, &bytes,
					    &c->err);

	if (!rc) {
		print_text(NULL, text, bytes);
		free(text);
	}
	return rc;
}

static int run(struct cli *c, struct cli_model *m, const struct options *o)
{
	struct cli_generate g = {
		.m = m,
		.stops = o->stops,
		.n_stops = o->n_stops,
		.ignore_eos = o->ignore_eos,
		.max_new = o->max_new,
		.emit = o->json ? NULL : print_text,
	};
	struct cli_result r = {0};
	int64_t *ids = NULL;
	size_t n = 0;
	int32_t rc = get_prompt(c, m, o, &ids, &n);
	int status = 0;

	if (!rc)
		rc = cli_sampler(&o->sampling, &m->info, o->ignore_eos,
				 &g.sampler, &c->err);
	if (!rc && o->echo && !o->json && m->tok)
		rc = echo_prompt(c, m, ids, n);
	if (!rc)
		rc = cli_generate(c, &g, ids, n, &r);
	if (rc) {
		status = cli_fail(c);
	} else if (o->json) {
		print_result(m, &r, ids, n);
	} else {
		putchar('\n');
		fflush(stdout);
		cli_stats_line(c, m, &r, n);
	}
	if (!rc && !strcmp(r.finish, "interrupted"))
		status = EXIT_INTERRUPT;
	cli_result_free(&r);
	genai_sampler_close(g.sampler);
	free(ids);
	return status;
}

int cmd_generate(struct cli *c, int argc, char **argv)
{
	struct options o = {.max_new = 256};
	struct cli_model m;
	int status;

	if (!parse(c, argc, argv, &o))
		return EXIT_USAGE;
	cli_catch_interrupts();
	if (cli_open(c, argv[optind], o.ids ? 0 : CLI_TOKENIZER, &m)) {
		status = cli_fail(c);
		return status;
	}
	// ids need no tokenizer, but text is shown if there is one
	if (o.ids && cli_tokenizer(c, m.folder, &m.tok))
		m.tok = NULL;
	status = run(c, &m, &o);
	cli_close(&m);
	return status;
}
