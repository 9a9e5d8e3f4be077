// chat.c - a conversation; only the new part of the history is computed.
#include "tools/cli.h"

#include <errno.h>
#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config/spell.h"
#include "tools/dim.h"
#include "tools/term.h"

struct chat {
	struct cli *c;
	struct cli_model m;
	json_t *messages;
	size_t forgotten; // of them, after a system turn: not shown any more
	int64_t *ids;	  // what the session holds, position by position
	size_t n_ids;
	struct cli_result last;
	size_t last_prompt;
	struct dim dim;	   // of what is printed at a terminal
	struct term *term; // NULL: turns come from a pipe
	bool interrupted;  // instead of a line
	int32_t rc;	   // of reading a line
	char *model;	   // that /model named; NULL: that of the start
	bool lost;	   // there is none any more
};

static struct {
	const char *model, *system;
	int64_t max_new;
	bool hide_thinking;
	struct cli_sampling sampling;
} args = {.max_new = 1024};

static const struct cli_option options[] = {
	{"system", 0, CLI_TEXT, "TEXT", "the system turn", &args.system},
	{"max-new-tokens", 'n', CLI_INT, "N", "at most, per answer (1024)",
	 &args.max_new, 1, INT32_MAX},
	{"model", 'm', CLI_TEXT, "DIR", "the model, where DIR is not given",
	 &args.model},
	CLI_TOKENIZER_AT,
	{"hide-thinking", 0, CLI_FLAG, NULL,
	 "what stands between <think> and </think> is not shown",
	 &args.hide_thinking},
	CLI_SAMPLING(args.sampling),
	{0}};

static void print_plain(void *ctx, const char *text, size_t n)
{
	const struct chat *ch = ctx;

	cli_clear_line(ch->c);
	if (ch->term) {
		term_print(ch->term, text, n);
		return;
	}
	fwrite(text, 1, n, stdout);
	fflush(stdout);
}

static void print_text(void *ctx, const char *text, size_t n)
{
	struct chat *ch = ctx;

	dim_text(&ch->dim, text, n);
	if (ch->dim.how == DIM_HIDDEN && ch->dim.inside)
		cli_progress(ch->c, "thinking ...");
}

static enum dim_how how_shown(const struct chat *ch)
{
	if (args.hide_thinking)
		return DIM_HIDDEN;
	return ch->term && !getenv("NO_COLOR") ? DIM_DIMMED : DIM_PLAIN;
}

// What was done, for a person; nothing for a program.
static void say(const struct chat *ch, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
static void say(const struct chat *ch, const char *fmt, ...)
{
	va_list ap;

	if (!ch->term || ch->c->quiet)
		return;
	va_start(ap, fmt);
	vfprintf(stderr, fmt, ap);
	va_end(ap);
	fputc('\n', stderr);
}

static int32_t remember(struct chat *ch, const int64_t *prompt, size_t n,
			const struct cli_result *r)
{
	uint64_t held = genai_session_length(ch->m.session);
	int64_t *ids = malloc((n + r->n_ids + 1) * sizeof(*ids));

	if (!ids)
		return genai_fail(&ch->c->err, GENAI_E_NOMEM, "no memory");
	memcpy(ids, prompt, n * sizeof(*ids));
	memcpy(ids + n, r->ids, r->n_ids * sizeof(*ids));
	free(ch->ids);
	ch->ids = ids;
	// a step that ran ahead holds positions that nobody knows
	ch->n_ids = n + r->n_ids < held ? n + r->n_ids : held;
	return 0;
}

// Keep what the session holds of the new prompt; append the rest.
static int32_t keep_common(struct chat *ch, const int64_t *ids, size_t n,
			   size_t *out_common)
{
	size_t k = 0;

	while (k < n && k < ch->n_ids && ids[k] == ch->ids[k])
		k++;
	// at least one token must be computed to have logits
	if (k == n)
		k--;
	*out_common = k;
	return genai_session_rewind(ch->m.session, k, &ch->c->err);
}

static bool is_role(const struct chat *ch, size_t i, const char *role)
{
	const char *is = json_string_value(
		json_object_get(json_array_get(ch->messages, i), "role"));

	return is && !strcmp(is, role);
}

// Messages in front of what may be forgotten.
static size_t n_system(const struct chat *ch)
{
	return is_role(ch, 0, "system");
}

// How many positions a conversation may have.
static uint64_t room(const struct chat *ch)
{
	const struct genai_model_info *i = &ch->m.info;

	return i->max_length > 0 && (uint64_t)i->max_length < i->context
		       ? (uint64_t)i->max_length
		       : i->context;
}

static void undo(struct chat *ch)
{
	size_t n = json_array_size(ch->messages);

	while (n) {
		const char *role = json_string_value(json_object_get(
			json_array_get(ch->messages, n - 1), "role"));
		bool user = role && !strcmp(role, "user");

		if (role && !strcmp(role, "system"))
			break;
		json_array_remove(ch->messages, --n);
		if (user)
			break;
	}
	if (ch->forgotten + n_system(ch) >= n)
		ch->forgotten = 0; // all that is left fitted once
}

static int32_t end_turn(struct chat *ch)
{
	const struct cli_result *r = &ch->last;
	bool stopped = !strcmp(r->finish, "interrupted");

	if (stopped && !r->n_ids) {
		undo(ch);
		fprintf(stderr, "[stopped; the turn was not taken]\n");
		return 0;
	}
	putchar('\n');
	fflush(stdout);
	if (stopped)
		fprintf(stderr, "[stopped]\n");
	if (!strcmp(r->finish, "length") && (int64_t)r->n_ids < args.max_new)
		say(ch, "[the context's %" PRIu64 " positions are full]",
		    room(ch));
	if (r->n_ids > 1 && r->decode_s > 0)
		say(ch, "[%zu tokens, %.1f a second]", r->n_ids,
		    (double)(r->n_ids - 1) / r->decode_s);
	return cli_message(ch->c, ch->messages, "the answer", "assistant",
			   r->text, r->n_text);
}

// The prompt of what is not forgotten.
static int32_t render(struct chat *ch, int64_t **out_ids, size_t *out_n)
{
	json_t *shown = json_copy(ch->messages);
	int32_t rc = GENAI_E_NOMEM;

	for (size_t i = 0; shown && i < ch->forgotten; i++)
		json_array_remove(shown, n_system(ch));
	if (shown)
		rc = cli_render(ch->c, ch->m.text, ch->m.tok, shown, out_ids,
				out_n);
	else
		genai_fail(&ch->c->err, rc, "no memory");
	json_decref(shown);
	if (!rc && !*out_n)
		rc = genai_fail(&ch->c->err, GENAI_E_INVAL,
				"the template renders nothing");
	return rc;
}

// Forget the oldest turn that is shown, but not the last; false if there is
// none.
static bool forget(struct chat *ch)
{
	size_t n = json_array_size(ch->messages);
	size_t i = n_system(ch) + ch->forgotten + 1;

	while (i < n && !is_role(ch, i, "user"))
		i++;
	if (i >= n)
		return false;
	ch->forgotten = i - n_system(ch);
	return true;
}

// Where the context has no room for an answer, old turns are forgotten until
// half of it is free: then what follows is computed from there for a while.
static int32_t render_fitting(struct chat *ch, int64_t **out_ids, size_t *out_n)
{
	const uint64_t most = room(ch);
	uint64_t answer = most / 4;
	size_t before = ch->forgotten;
	int32_t rc = render(ch, out_ids, out_n);

	if ((uint64_t)args.max_new < answer)
		answer = (uint64_t)args.max_new;
	if (rc || *out_n + answer <= most)
		return rc;
	while (!rc && *out_n > most / 2 && forget(ch)) {
		free(*out_ids);
		*out_ids = NULL;
		rc = render(ch, out_ids, out_n);
	}
	if (rc || *out_n >= most)
		ch->forgotten = before; // it would not help
	else if (ch->forgotten > before && !ch->c->quiet)
		fprintf(stderr,
			"[the context's %" PRIu64 " positions are full: the "
			"%zu oldest messages are forgotten]\n",
			most, ch->forgotten);
	return rc;
}

// Does a prompt end with the mark that a model thinks?
static bool in_thought(const struct chat *ch, const int64_t *ids, size_t n)
{
	static const char mark[] = "<think>";
	const size_t last = n < 16 ? n : 16, m = strlen(mark);
	char *text = NULL;
	size_t k = 0;
	bool is;

	if (genai_tokenizer_decode(ch->m.tok, ids + n - last, last,
				   GENAI_TOK_KEEP_SPECIAL, &text, &k, NULL))
		return false;
	while (k && strchr(" \n", text[k - 1]))
		k--;
	is = k >= m && !memcmp(text + k - m, mark, m);
	genai_free(text);
	return is;
}

static int32_t answer(struct chat *ch)
{
	struct cli_generate g = {.m = &ch->m,
				 .max_new = args.max_new,
				 .emit = print_text,
				 .ctx = ch};
	int64_t *ids = NULL;
	size_t n = 0, common = 0;
	int32_t rc = render_fitting(ch, &ids, &n);

	cli_interrupted = 0;
	if (!rc)
		rc = cli_sampler(&args.sampling, &ch->m.info, false, &g.sampler,
				 &ch->c->err);
	if (!rc)
		rc = keep_common(ch, ids, n, &common);
	if (!rc && !genai_sampler_is_greedy(g.sampler))
		rc = genai_sampler_accept(g.sampler, ids, common, &ch->c->err);
	if (!rc) {
		ch->m.start = cli_now();
		cli_result_free(&ch->last);
		ch->dim.how = how_shown(ch);
		dim_begin(&ch->dim, in_thought(ch, ids, n));
		rc = cli_generate(ch->c, &g, ids + common, n - common,
				  &ch->last);
		ch->last_prompt = n - common;
		dim_end(&ch->dim);
		cli_clear_line(ch->c);
	}
	if (!rc)
		rc = remember(ch, ids, n, &ch->last);
	if (rc) {
		ch->n_ids = 0;
		genai_session_rewind(ch->m.session, 0, NULL);
	} else {
		rc = end_turn(ch);
	}
	genai_sampler_close(g.sampler);
	free(ids);
	return rc;
}

// ---- commands of the conversation ----

static int32_t set_system(struct chat *ch, const char *text)
{
	json_t *one = json_array();
	int32_t rc = 0;
	const char *role = json_string_value(
		json_object_get(json_array_get(ch->messages, 0), "role"));

	if (role && !strcmp(role, "system"))
		json_array_remove(ch->messages, 0);
	if (*text)
		rc = cli_message(ch->c, one, "the system turn", "system", text,
				 strlen(text));
	if (json_array_size(one))
		json_array_insert(ch->messages, 0, json_array_get(one, 0));
	json_decref(one);
	return rc;
}

static void reset(struct chat *ch)
{
	for (size_t i = json_array_size(ch->messages); i-- > 0;) {
		const char *role = json_string_value(json_object_get(
			json_array_get(ch->messages, i), "role"));

		if (!role || strcmp(role, "system"))
			json_array_remove(ch->messages, i);
	}
	ch->forgotten = 0;
}

static void save(struct chat *ch, const char *path)
{
	if (json_dump_file(ch->messages, path, JSON_INDENT(1)))
		fprintf(stderr, "genai: error: %s: cannot write: %s\n", path,
			strerror(errno));
	else
		say(ch, "%zu messages saved to %s",
		    json_array_size(ch->messages), path);
}

// Content in parts becomes one text; NULL, or what is wrong with it.
static const char *join_parts(json_t *message)
{
	json_t *content = json_object_get(message, "content"), *part, *all;
	size_t i;

	if (json_is_string(content))
		return NULL;
	if (!json_is_array(content))
		return "has no content";
	all = json_string("");
	json_array_foreach(content, i, part)
	{
		const char *type =
			json_string_value(json_object_get(part, "type"));
		json_t *text = json_object_get(part, "text"), *more;

		if (!type || strcmp(type, "text") || !json_is_string(text)) {
			json_decref(all);
			return type && strstr(type, "image")
				       ? "has an image: only text is understood"
				       : "has a part that is no text";
		}
		more = json_sprintf("%s%s", json_string_value(all),
				    json_string_value(text));
		json_decref(all);
		all = more;
	}
	return json_object_set_new(message, "content", all)
		       ? "has text that is not UTF-8"
		       : NULL;
}

static void load(struct chat *ch, const char *path)
{
	json_error_t je;
	json_t *j = json_load_file(path, 0, &je), *m;
	const char *why = NULL;
	size_t i;

	json_array_foreach(j, i, m)
	{
		if (!json_is_string(json_object_get(m, "role")))
			why = "has no role";
		else
			why = join_parts(m);
		if (why)
			break;
	}
	if (why)
		fprintf(stderr, "genai: error: %s: message %zu %s\n", path,
			i + 1, why);
	else if (!json_is_array(j))
		fprintf(stderr, "genai: error: %s: %s\n", path,
			j ? "not an array of messages" : je.text);
	if (why || !json_is_array(j)) {
		json_decref(j);
		return;
	}
	json_decref(ch->messages);
	ch->messages = j;
	ch->forgotten = 0;
	say(ch, "%zu messages loaded", json_array_size(j));
}

static void stats(struct chat *ch)
{
	fprintf(stderr, "%zu messages, %zu of %" PRIu64 " positions\n",
		json_array_size(ch->messages), ch->n_ids, ch->m.info.context);
	if (ch->forgotten)
		fprintf(stderr, "the %zu oldest messages are forgotten\n",
			ch->forgotten);
	if (ch->last.finish) {
		struct cli c = *ch->c;

		c.verbose = true;
		c.quiet = false;
		cli_stats_line(&c, &ch->m, &ch->last, ch->last_prompt);
	}
}

static const char *argument(const char *line, const char *command)
{
	size_t n = strlen(command);

	if (strncmp(line, command, n) || (line[n] && line[n] != ' '))
		return NULL;
	line += n;
	return line + strspn(line, " ");
}

static const char *const words[] = {"/help",	 "/reset", "/undo",   "/retry",
				    "/params",	 "/stats", "/system", "/model",
				    "/thinking", "/save",  "/load",   "/exit",
				    NULL};

static void show_help(void)
{
	fprintf(stderr,
		"/help /reset /undo /retry /params [NAME VALUE] /stats\n"
		"/system TEXT /model DIR /thinking show|hide\n"
		"/save FILE /load FILE /exit\n"
		"A line that ends with \\ goes on in the next, as after "
		"Alt-Enter; one\n"
		"that begins with // is sent without the first "
		"of them.\n");
}

// How the next token is chosen.
static void show_params(const struct chat *ch)
{
	struct genai_sampling p;

	cli_sampling_read(&args.sampling, &ch->m.info, &p);
	fprintf(stderr, "max-new-tokens %" PRId64 "\n", args.max_new);
	if (!p.do_sample)
		fprintf(stderr, "greedy\n");
	else
		fprintf(stderr,
			"temperature %g\ntop-k %" PRId64
			"\ntop-p %g\nmin-p %g\n",
			(double)p.temperature, (int64_t)p.top_k,
			(double)p.top_p, (double)p.min_p);
	fprintf(stderr,
		"repetition-penalty %g\npresence-penalty %g\n"
		"frequency-penalty %g\n",
		(double)p.repetition_penalty, (double)p.presence_penalty,
		(double)p.frequency_penalty);
	if (args.sampling.has_seed)
		fprintf(stderr, "seed %" PRId64 "\n", args.sampling.seed);
}

// NAME VALUE, as the options of the command line; a draw ends greedy.
static void set_param(struct chat *ch, const char *text)
{
	const struct cli_option *o = options;
	size_t n = strcspn(text, " ");
	const char *value = text + n + strspn(text + n, " ");
	bool good = false;

	while (o->name && (strncmp(o->name, text, n) || o->name[n] ||
			   o->kind == CLI_TEXT || o->kind == CLI_CALL))
		o++;
	if (!o->name) {
		fprintf(stderr, "/params: there is no %.*s\n", (int)n, text);
		return;
	}
	if (o->kind == CLI_FLAG)
		good = *(bool *)o->to = true;
	else if (o->kind == CLI_INT)
		good = cli_int(ch->c, o->name, value, (int64_t)o->lo,
			       o->hi < 0x1p63 ? (int64_t)o->hi : INT64_MAX,
			       o->to);
	else
		good = cli_num(ch->c, o->name, value, o->lo, o->hi, o->to);
	if (!good)
		return;
	if (o->given)
		*o->given = true;
	if (o->to == &args.sampling.temperature ||
	    o->to == &args.sampling.top_k || o->to == &args.sampling.top_p ||
	    o->to == &args.sampling.min_p)
		args.sampling.greedy = false;
	say(ch, "%.*s is set", (int)n, text);
}

// The last turn is answered anew; where that fails or is stopped, all is as it
// was.
static void retry(struct chat *ch)
{
	size_t n = json_array_size(ch->messages), i = n;
	json_t *before = json_copy(ch->messages);

	while (i && !is_role(ch, i - 1, "user"))
		i--;
	if (!i)
		fprintf(stderr, "/retry: there is no turn to answer\n");
	for (; i && n > i; n--)
		json_array_remove(ch->messages, n - 1);
	if (i && answer(ch)) {
		cli_fail(ch->c);
		ch->c->err = (struct genai_error)GENAI_ERROR_INIT;
	}
	if (json_array_size(ch->messages) <= i) {
		json_decref(ch->messages);
		ch->messages = before;
	} else {
		json_decref(before);
	}
}

// Another model goes on with the conversation.  The one before goes first: both
// may not have room.  What can be seen before is seen before; where the new one
// fails after all, the old one is opened again.
static int32_t other_model(struct chat *ch, const char *path)
{
	struct cli *c = ch->c;
	char *was = strdup(args.model), *now = strdup(path);
	const char *tokenizer = c->tokenizer;
	struct genai_tokenizer *tok = NULL;
	struct genai_error err;
	char folder[4200];
	int32_t rc = was && now ? 0 : GENAI_E_NOMEM;

	if (rc)
		genai_fail(&c->err, rc, "no memory");
	if (!rc)
		rc = cli_folder(c, path, folder, sizeof(folder));
	if (!rc)
		rc = cli_tokenizer(c, folder, &tok);
	genai_tokenizer_close(tok);
	if (rc)
		goto err_names;
	cli_close(&ch->m);
	ch->n_ids = 0;
	c->tokenizer = NULL;
	rc = cli_open(c, now, CLI_TOKENIZER, &ch->m);
	if (!rc) {
		free(ch->model);
		args.model = ch->model = now;
		free(was);
		return 0;
	}
	err = c->err;
	c->err = (struct genai_error)GENAI_ERROR_INIT;
	c->tokenizer = tokenizer;
	cli_interrupted = 0;
	if (!cli_open(c, was, CLI_TOKENIZER, &ch->m))
		c->err = err;
	else
		ch->lost = true;
err_names:
	free(was);
	free(now);
	return rc;
}

static void set_model(struct chat *ch, const char *path)
{
	int32_t rc;

	if (!*path) {
		fprintf(stderr, "%s\n", args.model);
		return;
	}
	if (ch->c->trace || ch->c->timeline) {
		fprintf(stderr, "/model: not with --trace or --timeline\n");
		return;
	}
	cli_interrupted = 0;
	rc = other_model(ch, path);
	cli_clear_line(ch->c);
	if (rc) {
		cli_fail(ch->c);
		ch->c->err = (struct genai_error)GENAI_ERROR_INIT;
	} else {
		cli_result_free(&ch->last);
		say(ch, "%s goes on with it", path);
	}
}

static void set_thinking(const struct chat *ch, const char *how)
{
	bool hide = !strcmp(how, "hide");

	if (!hide && strcmp(how, "show")) {
		fprintf(stderr, "/thinking: show or hide\n");
		return;
	}
	args.hide_thinking = hide;
	say(ch, "what a model thinks is %s", hide ? "hidden" : "shown");
}

// A file that was dropped onto the terminal comes as its path.
static bool is_file(const char *line)
{
	char path[4200];
	size_t n = strlen(line);

	while (n && line[n - 1] == ' ')
		n--;
	return snprintf(path, sizeof(path), "%.*s", (int)n, line) <
		       (int)sizeof(path) &&
	       !access(path, F_OK);
}

static void unknown(const char *line)
{
	char word[32];
	struct genai_spell near = {.word = word};

	if (is_file(line)) {
		fprintf(stderr,
			"%s: files and images cannot be sent, only text\n",
			line);
		return;
	}
	snprintf(word, sizeof(word), "%.*s", (int)strcspn(line, " "), line);
	for (size_t i = 0; words[i]; i++)
		genai_spell_offer(&near, words[i]);
	if (near.best)
		fprintf(stderr, "no command %s; did you mean %s?\n", word,
			near.best);
	else
		fprintf(stderr, "no command %s: ", word);
	if (!near.best)
		show_help();
}

// True if the line was a command; *done when it was the last.
static bool command(struct chat *ch, const char *line, bool *done)
{
	const char *arg;

	if (line[0] != '/' || line[1] == '/')
		return false;
	if (argument(line, "/exit") || argument(line, "/quit")) {
		*done = true;
	} else if (argument(line, "/help")) {
		show_help();
	} else if (argument(line, "/reset")) {
		reset(ch);
		say(ch, "the conversation begins anew");
	} else if (argument(line, "/undo")) {
		undo(ch);
		say(ch, "%zu messages are left", json_array_size(ch->messages));
	} else if (argument(line, "/retry")) {
		retry(ch);
	} else if ((arg = argument(line, "/params"))) {
		if (*arg)
			set_param(ch, arg);
		else
			show_params(ch);
	} else if (argument(line, "/stats")) {
		stats(ch);
	} else if ((arg = argument(line, "/system"))) {
		if (set_system(ch, arg))
			cli_fail(ch->c);
		else
			say(ch, *arg ? "the system turn is set"
				     : "there is no system turn");
	} else if ((arg = argument(line, "/model"))) {
		set_model(ch, arg);
		*done = ch->lost;
	} else if ((arg = argument(line, "/thinking"))) {
		set_thinking(ch, arg);
	} else if ((arg = argument(line, "/save")) && *arg) {
		save(ch, arg);
	} else if ((arg = argument(line, "/load")) && *arg) {
		load(ch, arg);
	} else if (argument(line, "/save") || argument(line, "/load")) {
		fprintf(stderr, "%.5s needs a file\n", line);
	} else {
		unknown(line);
	}
	return true;
}

// A line at a terminal, and those behind it while one ends with a backslash.
static char *term_lines(struct term *t, bool *interrupted)
{
	char *all = term_line(t, "> ", interrupted);
	size_t n = all ? strlen(all) : 0;

	while (n && all[n - 1] == '\\') {
		char *next = term_line(t, ". ", interrupted), *more;
		size_t k = next ? strlen(next) : 0;

		more = next ? realloc(all, n + k + 1) : NULL;
		if (more) {
			all = more;
			all[n - 1] = '\n';
			memcpy(all + n, next, k + 1);
			n += k;
		} else {
			free(all);
			all = NULL;
			n = 0;
		}
		free(next);
	}
	return all;
}

static char *read_line(struct chat *ch, size_t *out_n)
{
	char *line = NULL;
	size_t cap = 0;

	cli_interrupted = 0;
	if (ch->term) {
		line = term_lines(ch->term, &ch->interrupted);
		*out_n = line ? strlen(line) : 0;
		return line;
	}
	ch->rc = cli_line(ch->c, &line, &cap, out_n);
	if (ch->rc > 0)
		return line;
	free(line);
	return NULL;
}

// One user turn.  What is wrong with it is said, and the turn did not happen;
// the exit status.
static int turn(struct chat *ch, const char *text, size_t n)
{
	int32_t rc =
		cli_message(ch->c, ch->messages, "the turn", "user", text, n);
	int status;

	if (rc)
		return cli_fail(ch->c);
	rc = answer(ch);
	if (!rc)
		return 0;
	undo(ch);
	status = cli_fail(ch->c);
	if (rc == GENAI_E_LIMIT)
		say(ch, "The context is full with this turn alone: --set "
			"runtime.context=N has more room.");
	ch->c->err = (struct genai_error)GENAI_ERROR_INIT;
	return status;
}

static int converse(struct chat *ch)
{
	bool done = false;
	int status = 0;

	while (!done) {
		size_t n = 0;
		char *line = read_line(ch, &n);
		bool blank = line && strspn(line, " \t") == n;

		if (!line && ch->term && ch->interrupted) {
			putchar('\n'); // Ctrl-C drops the line only
			continue;
		}
		if (!line)
			break;
		if (!blank && !command(ch, line, &done)) {
			bool escaped = line[0] == '/';

			status = turn(ch, line + escaped, n - escaped);
			done |= status && !ch->term;
		}
		free(line);
	}
	if (ch->rc < 0 && !status)
		status = cli_fail(ch->c);
	if (cli_interrupted && !ch->term && !status)
		status = EXIT_INTERRUPT;
	if (ch->lost)
		return EXIT_REQUEST;
	return ch->term ? 0 : status;
}

static int chat(struct cli *c, int argc, char **argv)
{
	struct chat ch = {.c = c};
	bool tty = isatty(0) && isatty(1);
	int status = cli_argument(c, options, argc, argv, "one model folder",
				  &args.model);

	if (status)
		return status;
	cli_sampling_check(c, &args.sampling);
	cli_catch_interrupts(tty ? 3 : 1);
	if (cli_open(c, args.model, CLI_TOKENIZER, &ch.m))
		return cli_fail(c);
	if (tty)
		ch.term = term_open(words);
	ch.dim = (struct dim){.put = print_plain, .ctx = &ch};
	ch.messages = json_array();
	if (args.system && set_system(&ch, args.system))
		status = cli_fail(c);
	else
		status = converse(&ch);
	term_close(ch.term);
	cli_result_free(&ch.last);
	json_decref(ch.messages);
	free(ch.ids);
	free(ch.model);
	cli_close(&ch.m);
	return status;
}

const struct command cmd_chat = {
	"chat",
	chat,
	"DIR [--system TEXT]",
	"hold a conversation",
	options,
	"In the conversation: /help /reset /undo /retry /params [NAME VALUE]\n"
	"  /stats /system TEXT /model DIR /thinking show|hide /save FILE\n"
	"  /load FILE /exit; // begins a turn with a /.\n"
	"  At a terminal a line that ends with \\ goes on in the next;\n"
	"  Ctrl-C stops an answer; Tab completes a command.\n"};
