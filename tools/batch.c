// batch.c - the command that answers a file of requests, a JSON object a line,
// many at once.
#include "tools/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <genai/engine.h>

#include "core/config/spell.h"

#define MOST_STOPS 64
#define MOST_LINES 1024 // that are read and not answered yet

static struct options {
	const char *model;
	bool ignore_eos, chat;
	int64_t max_new, sequences;
	struct cli_sampling sampling;
} o = {.max_new = 256};

static int speculation(struct cli *c, const char *value)
{
	return cli_set(c, "runtime.speculation", value);
}

static const struct cli_option options[] = {
	{"max-new-tokens", 'n', CLI_INT, "N", "where a line does not say (256)",
	 &o.max_new, 0, INT32_MAX},
	{"sequences", 0, CLI_INT, "N", "computed together, at most (16)",
	 &o.sequences, 1, GENAI_MAX_SEQS},
	{"speculation", 0, CLI_CALL, "N",
	 "auto, off or 1 to 8: tokens guessed and computed along",
	 .call = speculation},
	CLI_TOKENIZER_AT,
	{"chat", 0, CLI_FLAG, NULL, "prompts are user turns", &o.chat},
	{"ignore-eos", 0, CLI_FLAG, NULL, "do not stop at the end of text",
	 &o.ignore_eos},
	CLI_SAMPLING(o.sampling),
	{0}};

struct answer { // a choice
	char *text;
	size_t n_text, cap_text;
	json_t *ids, *logprobs;
	const char *finish;
};

struct line {
	struct line *next;
	struct batch *b;
	uint64_t number, request;
	json_t *in;
	struct answer *answers;
	uint32_t n, n_ended;
	uint64_t n_prompt, n_cached, n_new;
	char error[600];
	bool is_ended;
};

struct batch {
	struct cli *c;
	char folder[4200], text_folder[4200];
	struct genai_runtime *rt;
	struct genai_engine *e;
	struct genai_model_info info;
	const struct genai_tokenizer *tok;
	FILE *file;
	const char *path;
	char *text; // of the line that is read
	size_t cap;
	uint64_t n_read, n_failed, n_new;
	struct line *first, **end;
	uint32_t n_lines;
	bool is_cancelled;
};

// ---- a line ----

static const char *const keys[] = {
	"prompt",      "ids",	     "messages",
	"max_tokens",  "min_tokens", "temperature",
	"top_k",       "top_p",	     "min_p",
	"seed",	       "n",	     "repetition_penalty",
	"echo",	       "stop",	     "presence_penalty",
	"stop_ids",    "logprobs",   "frequency_penalty",
	"logit_bias",  "ignore_eos", "priority",
	"deadline_ms", "salt",	     "id",
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

// What a line asks for, and what has to be freed afterwards.
struct asked {
	struct genai_request r;
	struct genai_sampling sampling;
	const char *stops[MOST_STOPS];
	int64_t stop_ids[MOST_STOPS];
	struct genai_bias *bias;
	int64_t *ids;
};

static int fail(struct line *l, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static int fail(struct line *l, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	vsnprintf(l->error, sizeof(l->error), fmt, ap);
	va_end(ap);
	return -1;
}

static int check_keys(struct line *l)
{
	const char *name;
	json_t *v;

	json_object_foreach(l->in, name, v)
	{
		struct genai_spell near = {.word = name};
		size_t i = 0;

		while (i < N_KEYS && strcmp(keys[i], name))
			genai_spell_offer(&near, keys[i++]);
		if (i == N_KEYS)
			return fail(l, "%.100s: there is no such key%s%s", name,
				    near.best ? "; did you mean " : "",
				    near.best ? near.best : "");
	}
	return 0;
}

static int get_int(struct line *l, const char *key, int64_t lo, int64_t hi,
		   int64_t *out)
{
	json_t *v = json_object_get(l->in, key);

	if (!v)
		return 0;
	if (!json_is_integer(v))
		return fail(l, "%s: a whole number is needed", key);
	if (json_integer_value(v) < lo || json_integer_value(v) > hi)
		return fail(l,
			    "%s: %" PRId64 " is not from %" PRId64
			    " to %" PRId64,
			    key, (int64_t)json_integer_value(v), lo, hi);
	*out = json_integer_value(v);
	return 0;
}

static int get_float(struct line *l, const char *key, float *out, bool *given)
{
	json_t *v = json_object_get(l->in, key);

	if (!v)
		return 0;
	if (!json_is_number(v))
		return fail(l, "%s: a number is needed", key);
	*out = (float)json_number_value(v); // its range is the library's
	*given = true;
	return 0;
}

static int get_flag(struct line *l, const char *key, uint32_t flag,
		    uint32_t *flags)
{
	json_t *v = json_object_get(l->in, key);

	if (!v)
		return 0;
	if (!json_is_boolean(v))
		return fail(l, "%s: true or false is needed", key);
	*flags = json_is_true(v) ? *flags | flag : *flags & ~flag;
	return 0;
}

static int get_id_list(struct line *l, const char *key, const json_t *list,
		       int64_t *out, size_t most, size_t *out_n)
{
	if (!json_is_array(list) || json_array_size(list) > most)
		return fail(l, "%s: an array of at most %zu ids is needed", key,
			    most);
	for (size_t i = 0; i < json_array_size(list); i++) {
		const json_t *v = json_array_get(list, i);

		if (!json_is_integer(v))
			return fail(l, "%s[%zu]: an id is needed", key, i);
		out[i] = json_integer_value(v);
	}
	*out_n = json_array_size(list);
	return 0;
}

static int get_stops(struct line *l, struct asked *a)
{
	json_t *v = json_object_get(l->in, "stop");
	json_t *ids = json_object_get(l->in, "stop_ids");
	size_t n = json_is_array(v) ? json_array_size(v) : v != NULL;

	if (n > MOST_STOPS)
		return fail(l, "stop: at most %d texts", MOST_STOPS);
	for (size_t i = 0; i < n; i++) {
		json_t *s = json_is_array(v) ? json_array_get(v, i) : v;

		if (!json_is_string(s))
			return fail(l, "stop: a text, or an array of them, is "
				       "needed");
		a->stops[i] = json_string_value(s);
	}
	a->r.stops = a->stops;
	a->r.n_stops = n;
	a->r.stop_ids = a->stop_ids;
	return ids ? get_id_list(l, "stop_ids", ids, a->stop_ids, MOST_STOPS,
				 &a->r.n_stop_ids)
		   : 0;
}

static int get_bias(struct line *l, struct asked *a)
{
	json_t *v = json_object_get(l->in, "logit_bias"), *b;
	const char *id;
	size_t n = 0;

	if (!v)
		return 0;
	if (!json_is_object(v))
		return fail(l, "logit_bias: an object of ids and numbers is "
			       "needed");
	a->bias = calloc(json_object_size(v) + 1, sizeof(*a->bias));
	json_object_foreach(v, id, b)
	{
		char *end;

		if (!a->bias)
			return fail(l, "no memory");
		errno = 0;
		a->bias[n].id = strtoll(id, &end, 10);
		if (*end || end == id || errno || !json_is_number(b))
			return fail(l,
				    "logit_bias: %.60s: an id and a number "
				    "are needed",
				    id);
		a->bias[n++].bias = (float)json_number_value(b);
	}
	a->r.bias = a->bias;
	a->r.n_bias = n;
	return 0;
}

static int get_sampling(struct line *l, struct asked *a)
{
	struct genai_sampling *s = &a->sampling;
	bool wish = false, other = false;
	int64_t seed = -1;

	cli_sampling_read(&o.sampling, &l->b->info, s);
	if (get_float(l, "temperature", &s->temperature, &wish) ||
	    get_float(l, "top_p", &s->top_p, &wish) ||
	    get_float(l, "min_p", &s->min_p, &wish) ||
	    get_float(l, "repetition_penalty", &s->repetition_penalty,
		      &other) ||
	    get_float(l, "presence_penalty", &s->presence_penalty, &other) ||
	    get_float(l, "frequency_penalty", &s->frequency_penalty, &other) ||
	    get_int(l, "top_k", 0, INT32_MAX, &s->top_k) ||
	    get_int(l, "seed", 0, INT64_MAX, &seed))
		return -1;
	if (seed >= 0)
		s->seed = (uint64_t)seed;
	if (wish || seed >= 0 || json_object_get(l->in, "top_k"))
		s->do_sample = 1;
	a->r.sampling = s;
	return 0;
}

static int get_chat(struct line *l, struct asked *a, json_t *messages)
{
	struct batch *b = l->b;
	struct genai_error *err = &b->c->err;
	size_t n = 0;

	if (!b->tok)
		return fail(l, "messages need a tokenizer, and the model has "
			       "none");
	if (!json_is_array(messages))
		return fail(l, "messages: an array is needed");
	if (cli_render(b->c, b->text_folder, b->tok, messages, &a->ids, &n)) {
		fail(l, "%s", err->text);
		*err = (struct genai_error)GENAI_ERROR_INIT;
		return -1;
	}
	a->r.ids = a->ids;
	a->r.n_ids = n;
	return 0;
}

static int get_prompt(struct line *l, struct asked *a)
{
	json_t *text = json_object_get(l->in, "prompt");
	json_t *ids = json_object_get(l->in, "ids");
	json_t *chat = json_object_get(l->in, "messages"), *turn;
	int rc;

	if (!!text + !!ids + !!chat != 1)
		return fail(l, "one of prompt, ids and messages is needed");
	if (chat)
		return get_chat(l, a, chat);
	if (ids) {
		size_t n = json_array_size(ids);

		a->ids = calloc(n + 1, sizeof(*a->ids));
		if (!a->ids)
			return fail(l, "no memory");
		a->r.ids = a->ids;
		return get_id_list(l, "ids", ids, a->ids, n, &a->r.n_ids);
	}
	if (!json_is_string(text))
		return fail(l, "prompt: a text is needed");
	if (o.chat) {
		turn = json_pack("[{s:s, s:O}]", "role", "user", "content",
				 text);
		rc = get_chat(l, a, turn);
		json_decref(turn);
		return rc;
	}
	a->r.text = json_string_value(text);
	a->r.text_bytes = json_string_length(text);
	return 0;
}

static int get_rest(struct line *l, struct asked *a)
{
	json_t *salt = json_object_get(l->in, "salt");
	int64_t n = 1, top = -1, priority = 0, deadline = 0;

	a->r.max_tokens = o.max_new;
	if (o.ignore_eos)
		a->r.flags |= GENAI_REQUEST_IGNORE_EOS;
	if (salt && !json_is_string(salt))
		return fail(l, "salt: a text is needed");
	a->r.salt = json_string_value(salt);
	if (get_int(l, "max_tokens", -1, INT32_MAX, &a->r.max_tokens) ||
	    get_int(l, "min_tokens", 0, INT32_MAX, &a->r.min_tokens) ||
	    get_int(l, "n", 1, 128, &n) ||
	    get_int(l, "logprobs", 0, 20, &top) ||
	    get_int(l, "priority", INT32_MIN, INT32_MAX, &priority) ||
	    get_int(l, "deadline_ms", 0, UINT32_MAX, &deadline) ||
	    get_flag(l, "echo", GENAI_REQUEST_ECHO, &a->r.flags) ||
	    get_flag(l, "ignore_eos", GENAI_REQUEST_IGNORE_EOS, &a->r.flags))
		return -1;
	a->r.n = (uint32_t)n;
	a->r.priority = (int32_t)priority;
	a->r.deadline_ms = (uint32_t)deadline;
	if (top >= 0) {
		a->r.flags |= GENAI_REQUEST_LOGPROBS;
		a->r.n_top = (uint32_t)top;
	}
	return 0;
}

// Queue it; what is wrong with it is its answer.
static void ask(struct line *l)
{
	struct batch *b = l->b;
	struct genai_error err = GENAI_ERROR_INIT;
	struct asked a = {.r = GENAI_REQUEST_INIT};
	int rc = 0;

	a.r.user = l;
	if (!json_is_object(l->in))
		rc = fail(l, "a JSON object is needed");
	if (!rc && !check_keys(l) && !get_rest(l, &a) && !get_sampling(l, &a) &&
	    !get_stops(l, &a) && !get_bias(l, &a) && !get_prompt(l, &a)) {
		l->n = a.r.n;
		l->answers = calloc(l->n, sizeof(*l->answers));
		if (!l->answers)
			fail(l, "no memory");
		else if (genai_engine_submit(b->e, &a.r, &l->request, &err))
			fail(l, "%s", err.text);
	}
	l->is_ended = l->error[0] != 0;
	free(a.ids);
	free(a.bias);
}

// ---- answers ----

static json_t *one(const struct answer *a)
{
	json_t *j = json_pack("{s:o, s:O, s:s}", "text",
			      json_stringn(a->text ? a->text : "", a->n_text),
			      "ids", a->ids, "finish_reason", a->finish);

	if (a->logprobs)
		json_object_set(j, "logprobs", a->logprobs);
	return j;
}

static void print(struct line *l)
{
	json_t *j = json_pack("{s:I}", "line", (json_int_t)l->number);
	json_t *id = json_object_get(l->in, "id"), *all;

	if (id)
		json_object_set(j, "id", id);
	if (l->error[0]) {
		json_object_set_new(j, "error", json_string(l->error));
		l->b->n_failed++;
	} else {
		all = json_array();
		for (uint32_t i = 0; i < l->n; i++)
			json_array_append_new(all, one(&l->answers[i]));
		json_object_set_new(j, "choices", all);
		json_object_set_new(j, "prompt_tokens",
				    json_integer((json_int_t)l->n_prompt));
		json_object_set_new(j, "cached_tokens",
				    json_integer((json_int_t)l->n_cached));
		json_object_set_new(j, "new_tokens",
				    json_integer((json_int_t)l->n_new));
	}
	cli_print_json(j);
	fflush(stdout);
}

static void free_line(struct line *l)
{
	for (uint32_t i = 0; l->answers && i < l->n; i++) {
		free(l->answers[i].text);
		json_decref(l->answers[i].ids);
		json_decref(l->answers[i].logprobs);
	}
	free(l->answers);
	json_decref(l->in);
	free(l);
}

// In the order of the lines.
static void print_ended(struct batch *b)
{
	struct line *l;

	while ((l = b->first) && l->is_ended) {
		print(l);
		b->first = l->next;
		if (!b->first)
			b->end = &b->first;
		b->n_lines--;
		free_line(l);
	}
}

static const char *finish_name(uint32_t finish)
{
	static const char *const names[] = {
		"", "eos", "stop", "length", "cancelled", "deadline", "error"};

	return finish < 7 ? names[finish] : "";
}

static bool add_text(struct answer *a, const char *text, size_t n)
{
	if (a->n_text + n > a->cap_text) {
		size_t cap = 2 * (a->n_text + n);
		char *more = realloc(a->text, cap);

		if (!more)
			return false;
		a->text = more;
		a->cap_text = cap;
	}
	memcpy(a->text + a->n_text, text, n);
	a->n_text += n;
	return true;
}

static void add_logprob(struct answer *a, const struct genai_event *ev)
{
	json_t *top = json_array();

	if (!a->logprobs)
		a->logprobs = json_array();
	for (uint32_t i = 0; i < ev->n_top; i++)
		json_array_append_new(
			top,
			json_pack("{s:I, s:o}", "id", (json_int_t)ev->top[i].id,
				  "logprob", cli_real(ev->top[i].logprob)));
	json_array_append_new(a->logprobs,
			      json_pack("{s:I, s:o, s:o}", "id",
					(json_int_t)ev->id, "logprob",
					cli_real(ev->logprob), "top", top));
}

static void take(struct batch *b, const struct genai_event *ev)
{
	struct line *l = ev->user;
	struct answer *a = &l->answers[ev->choice];

	if (!a->ids)
		a->ids = json_array();
	if (ev->text_bytes && !add_text(a, ev->text, ev->text_bytes))
		fail(l, "no memory");
	if (ev->kind != GENAI_EVENT_DONE) {
		if (ev->kind == GENAI_EVENT_TOKEN)
			json_array_append_new(a->ids, json_integer(ev->id));
		if (json_object_get(l->in, "logprobs"))
			add_logprob(a, ev);
		return;
	}
	a->finish = finish_name(ev->finish);
	l->n_prompt = ev->n_prompt;
	if (!ev->choice)
		l->n_cached = ev->n_cached;
	l->n_new += ev->n_new;
	b->n_new += ev->n_new;
	if (ev->error)
		fail(l, "%s", ev->error);
	l->is_ended = ++l->n_ended == l->n;
}

// What came; waits for something if told to.
static int32_t events(struct batch *b, int32_t timeout_ms)
{
	struct genai_event ev;
	int32_t rc;

	for (;; timeout_ms = 0) {
		ev.size = sizeof(ev);
		rc = genai_engine_next(b->e, timeout_ms, &ev, &b->c->err);
		if (rc)
			break;
		take(b, &ev);
	}
	print_ended(b);
	return rc == GENAI_PENDING ? 0 : rc;
}

static void cancel_all(struct batch *b)
{
	b->is_cancelled = true;
	for (struct line *l = b->first; l; l = l->next)
		if (!l->is_ended)
			genai_engine_cancel(b->e, l->request, NULL);
}

// ---- the file ----

// The next line that is not blank: false at the end.
static bool read_line(struct batch *b)
{
	ssize_t n;
	struct line *l;
	json_error_t je;

	do {
		n = getline(&b->text, &b->cap, b->file);
		b->n_read++;
	} while (n > 0 && strspn(b->text, " \t\r\n") == (size_t)n);
	if (n <= 0)
		return false;
	l = calloc(1, sizeof(*l));
	if (!l)
		return false;
	l->b = b;
	l->number = b->n_read;
	l->in = json_loadb(b->text, (size_t)n,
			   JSON_REJECT_DUPLICATES | JSON_DECODE_ANY, &je);
	*b->end = l;
	b->end = &l->next;
	b->n_lines++;
	if (l->in) {
		ask(l);
	} else {
		fail(l, "not JSON: %s", je.text);
		l->is_ended = true;
	}
	return true;
}

static int32_t answer_all(struct batch *b)
{
	bool more = true;
	int32_t rc = 0;

	while (!rc && (more || b->first)) {
		if (cli_interrupted && !b->is_cancelled) {
			cancel_all(b);
			more = false;
		}
		if (more && b->n_lines < MOST_LINES) {
			more = read_line(b);
			rc = events(b, 0);
		} else {
			rc = events(b, 200);
		}
	}
	return rc;
}

static int32_t open_all(struct batch *b)
{
	struct genai_engine_options eo = {
		.size = sizeof(eo), .max_sequences = (uint32_t)o.sequences};
	int32_t rc = cli_folder(b->c, o.model, b->folder, sizeof(b->folder));

	if (!rc)
		rc = cli_text_folder(b->c, b->folder, b->text_folder,
				     sizeof(b->text_folder));
	if (!rc && b->c->tokenizer)
		eo.tokenizer = b->text_folder;
	if (!rc)
		rc = cli_runtime(b->c, &b->rt);
	if (!rc)
		rc = genai_engine_open(b->rt, b->folder, &eo, &b->e,
				       &b->c->err);
	if (rc)
		return rc;
	b->info.size = sizeof(b->info);
	genai_engine_get_model_info(b->e, &b->info);
	return genai_engine_get_tokenizer(b->e, &b->tok);
}

// What the device has done, if it has a clock of its own.  The last step has
// given its tokens but may not be at its end: until then the engine says what
// it was before.
static bool settled(const struct batch *b, struct genai_stats *device,
		    uint64_t begun_ns)
{
	const struct timespec ms = {.tv_nsec = 1000000};

	for (int i = 0; begun_ns && i < 1000; i++) {
		if (genai_engine_get_model_stats(b->e, device, NULL))
			return false;
		if (device->simulated_ns > begun_ns)
			return true;
		nanosleep(&ms, NULL);
	}
	return false;
}

// begun_ns: of the device's own clock, if it has one.
static void say(const struct batch *b, double seconds, uint64_t begun_ns)
{
	struct genai_engine_stats st = {.size = sizeof(st)};
	struct genai_stats device = {.size = sizeof(device)};

	genai_engine_get_stats(b->e, &st);
	fprintf(stderr,
		"genai: %" PRIu64 " requests, %" PRIu64
		" new tokens in %.1f s: "
		"%.1f a second; %" PRIu64 " steps of %.1f rows, %" PRIu64
		" of %" PRIu64 " prompt tokens were known\n",
		st.finished, b->n_new, seconds,
		seconds > 0 ? (double)b->n_new / seconds : 0, st.steps,
		st.steps ? (double)st.rows / (double)st.steps : 0,
		st.cached_tokens, st.prompt_tokens);
	if (settled(b, &device, begun_ns))
		fprintf(stderr, "genai: %.1f a second by the device's clock\n",
			(double)b->n_new * 1e9 /
				(double)(device.simulated_ns - begun_ns));
}

static int run(struct batch *b)
{
	struct genai_stats device = {.size = sizeof(device)};
	double start;
	int32_t rc = open_all(b);

	if (!rc)
		genai_engine_get_model_stats(b->e, &device, NULL);
	start = cli_now();
	if (!rc)
		rc = answer_all(b);
	if (!rc && b->c->verbose)
		say(b, cli_now() - start, device.simulated_ns);
	genai_engine_close(b->e);
	genai_close(b->rt);
	while (b->first) {
		struct line *next = b->first->next;

		free_line(b->first);
		b->first = next;
	}
	if (rc)
		return cli_fail(b->c);
	if (cli_interrupted)
		return EXIT_INTERRUPT;
	return b->n_failed ? EXIT_REQUEST : 0;
}

static int batch(struct cli *c, int argc, char **argv)
{
	struct batch b = {.c = c};
	int first = cli_options(c, options, argc, argv), status;

	if (first < 0)
		return -first;
	if (argc - first != 2)
		return cli_usage(c, "batch takes a model folder and a file");
	cli_sampling_check(c, &o.sampling);
	o.model = argv[first];
	b.path = argv[first + 1];
	b.end = &b.first;
	b.file = strcmp(b.path, "-") ? fopen(b.path, "r") : stdin;
	if (!b.file) {
		genai_fail(&c->err, GENAI_E_IO, "%s: cannot open: %s", b.path,
			   strerror(errno));
		return cli_fail(c);
	}
	cli_catch_interrupts(1);
	status = run(&b);
	if (b.file != stdin)
		fclose(b.file);
	free(b.text);
	return status;
}

const struct command cmd_batch = {
	"batch",
	batch,
	"DIR FILE.jsonl",
	"answer a file of requests, many at once",
	options,
	"A line of the file is a JSON object: prompt, ids or messages, and "
	"what\n"
	"docs/CLI.md lists; a line of the output its answer, in order.\n"};
