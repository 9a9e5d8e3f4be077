// chat.c - a conversation; only the new part of the history is computed.
#include "tools/chat.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat_args chat_args = {.max_new = 1024};

const struct cli_option chat_options[] = {
	{"system", 0, CLI_TEXT, "TEXT", "the system turn", &chat_args.system},
	{"max-new-tokens", 'n', CLI_INT, "N", "at most, per answer (1024)",
	 &chat_args.max_new, 1, INT32_MAX},
	{"model", 'm', CLI_TEXT, "DIR", "the model, where DIR is not given",
	 &chat_args.model},
	CLI_TOKENIZER_AT,
	{"hide-thinking", 0, CLI_FLAG, NULL,
	 "what stands between <think> and </think> is not shown",
	 &chat_args.hide_thinking},
	CLI_SAMPLING(chat_args.sampling),
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
	if (chat_args.hide_thinking)
		return DIM_HIDDEN;
	return ch->term && !getenv("NO_COLOR") ? DIM_DIMMED : DIM_PLAIN;
}

// What was done, for a person; nothing for a program.
void chat_say(const struct chat *ch, const char *fmt, ...)
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

bool chat_is_role(const struct chat *ch, size_t i, const char *role)
{
	const char *is = json_string_value(
		json_object_get(json_array_get(ch->messages, i), "role"));

	return is && !strcmp(is, role);
}

// Messages in front of what may be forgotten.
static size_t n_system(const struct chat *ch)
{
	return chat_is_role(ch, 0, "system");
}

// How many positions a conversation may have.
static uint64_t room(const struct chat *ch)
{
	const struct genai_model_info *i = &ch->m.info;

	return i->max_length > 0 && (uint64_t)i->max_length < i->context
		       ? (uint64_t)i->max_length
		       : i->context;
}

void chat_undo(struct chat *ch)
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
		chat_undo(ch);
		fprintf(stderr, "[stopped; the turn was not taken]\n");
		return 0;
	}
	putchar('\n');
	fflush(stdout);
	if (stopped)
		fprintf(stderr, "[stopped]\n");
	if (!strcmp(r->finish, "length") &&
	    (int64_t)r->n_ids < chat_args.max_new)
		chat_say(ch, "[the context's %" PRIu64 " positions are full]",
			 room(ch));
	if (r->n_ids > 1 && r->decode_s > 0)
		chat_say(ch, "[%zu tokens, %.1f a second]", r->n_ids,
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

	while (i < n && !chat_is_role(ch, i, "user"))
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

	if ((uint64_t)chat_args.max_new < answer)
		answer = (uint64_t)chat_args.max_new;
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

int32_t chat_answer(struct chat *ch)
{
	struct cli_generate g = {.m = &ch->m,
				 .max_new = chat_args.max_new,
				 .emit = print_text,
				 .ctx = ch};
	int64_t *ids = NULL;
	size_t n = 0, common = 0;
	int32_t rc = render_fitting(ch, &ids, &n);

	cli_interrupted = 0;
	if (!rc)
		rc = cli_sampler(&chat_args.sampling, &ch->m.info, false,
				 &g.sampler, &ch->c->err);
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

int32_t chat_set_system(struct chat *ch, const char *text)
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

void chat_reset(struct chat *ch)
{
	for (size_t i = json_array_size(ch->messages); i-- > 0;) {
		const char *role = json_string_value(json_object_get(
			json_array_get(ch->messages, i), "role"));

		if (!role || strcmp(role, "system"))
			json_array_remove(ch->messages, i);
	}
	ch->forgotten = 0;
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
	rc = chat_answer(ch);
	if (!rc)
		return 0;
	chat_undo(ch);
	status = cli_fail(ch->c);
	if (rc == GENAI_E_LIMIT)
		chat_say(ch, "The context is full with this turn alone: --set "
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
		if (!blank && !chat_command(ch, line, &done)) {
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
	int status = cli_argument(c, chat_options, argc, argv,
				  "one model folder", &chat_args.model);

	if (status)
		return status;
	cli_sampling_check(c, &chat_args.sampling);
	cli_catch_interrupts(tty ? 3 : 1);
	if (cli_open(c, chat_args.model, CLI_TOKENIZER, &ch.m))
		return cli_fail(c);
	if (tty)
		ch.term = term_open(chat_words);
	ch.dim = (struct dim){.put = print_plain, .ctx = &ch};
	ch.messages = json_array();
	if (chat_args.system && chat_set_system(&ch, chat_args.system))
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
	chat_options,
	"In the conversation: /help /reset /undo /retry /params [NAME VALUE]\n"
	"  /stats /system TEXT /model DIR /thinking show|hide /save FILE\n"
	"  /load FILE /exit; // begins a turn with a /.\n"
	"  At a terminal a line that ends with \\ goes on in the next;\n"
	"  Ctrl-C stops an answer; Tab completes a command.\n"};
