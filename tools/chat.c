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
	int64_t *ids; // what the session holds, position by position
	size_t n_ids;
	struct cli_result last;
	size_t last_prompt;
	struct dim dim;	   // of what is printed at a terminal
	struct term *term; // NULL: turns come from a pipe
	bool interrupted;  // instead of a line
	int32_t rc;	   // of reading a line
};

static struct {
	const char *model, *system;
	int64_t max_new;
	struct cli_sampling sampling;
} args = {.max_new = 1024};

static const struct cli_option options[] = {
	{"system", 0, CLI_TEXT, "TEXT", "the system turn", &args.system},
	{"max-new-tokens", 'n', CLI_INT, "N", "at most, per answer (1024)",
	 &args.max_new, 1, INT32_MAX},
	{"model", 'm', CLI_TEXT, "DIR", "the model, where DIR is not given",
	 &args.model},
	CLI_TOKENIZER_AT,
	CLI_SAMPLING(args.sampling),
	{0}};

static void print_plain(void *ctx, const char *text, size_t n)
{
	const struct chat *ch = ctx;

	term_print(ch->term, text, n);
}

static void print_text(void *ctx, const char *text, size_t n)
{
	struct chat *ch = ctx;

	if (ch->term && !ch->dim.put) {
		print_plain(ch, text, n);
		return;
	}
	if (ch->term) {
		dim_text(&ch->dim, text, n);
		return;
	}
	fwrite(text, 1, n, stdout);
	fflush(stdout);
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
	if (r->n_ids > 1 && r->decode_s > 0)
		say(ch, "[%zu tokens, %.1f a second]", r->n_ids,
		    (double)(r->n_ids - 1) / r->decode_s);
	return cli_message(ch->c, ch->messages, "the answer", "assistant",
			   r->text, r->n_text);
}

static int32_t answer(struct chat *ch)
{
	struct cli_generate g = {.m = &ch->m,
				 .max_new = args.max_new,
				 .emit = print_text,
				 .ctx = ch};
	int64_t *ids = NULL;
	size_t n = 0, common = 0;
	int32_t rc = cli_render(ch->c, ch->m.text, ch->m.tok, ch->messages,
				&ids, &n);

	cli_interrupted = 0;
	if (!rc && !n)
		rc = genai_fail(&ch->c->err, GENAI_E_INVAL,
				"the template renders nothing");
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
		rc = cli_generate(ch->c, &g, ids + common, n - common,
				  &ch->last);
		ch->last_prompt = n - common;
	}
	if (ch->term && ch->dim.put)
		dim_end(&ch->dim);
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
		else if (!json_is_string(json_object_get(m, "content")))
			why = "has no content";
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
	say(ch, "%zu messages loaded", json_array_size(j));
}

static void stats(struct chat *ch)
{
	fprintf(stderr, "%zu messages, %zu of %" PRIu64 " positions\n",
		json_array_size(ch->messages), ch->n_ids, ch->m.info.context);
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

static const char *const words[] = {"/help",   "/reset", "/undo",   "/retry",
				    "/params", "/stats", "/system", "/save",
				    "/load",   "/exit",	 NULL};

static void show_help(void)
{
	fprintf(stderr,
		"/help /reset /undo /retry /params [NAME VALUE] /stats\n"
		"/system TEXT /save FILE /load FILE /exit\n"
		"A line that begins with // is sent without the first "
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

static void unknown(const char *line)
{
	char word[32];
	struct genai_spell near = {.word = word};

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

static char *read_line(struct chat *ch, size_t *out_n)
{
	char *line = NULL;
	size_t cap = 0;

	cli_interrupted = 0;
	if (ch->term) {
		line = term_line(ch->term, "> ", &ch->interrupted);
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
		say(ch, "The context is full: /undo takes a turn back, /reset "
			"begins anew, --set runtime.context=N has more room.");
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
	ch.dim = (struct dim){.put = getenv("NO_COLOR") ? NULL : print_plain,
			      .ctx = &ch};
	ch.messages = json_array();
	if (args.system && set_system(&ch, args.system))
		status = cli_fail(c);
	else
		status = converse(&ch);
	term_close(ch.term);
	cli_result_free(&ch.last);
	json_decref(ch.messages);
	free(ch.ids);
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
	"  /stats /system TEXT /save FILE /load FILE /exit; // begins a turn\n"
	"  with a /.\n"
	"  Ctrl-C stops an answer; Tab completes a command.\n"};
