// chat_commands.c - lines of a conversation that begin with a slash.
#include "tools/chat.h"

#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/config/spell.h"

static void save(struct chat *ch, const char *path)
{
	if (json_dump_file(ch->messages, path, JSON_INDENT(1)))
		fprintf(stderr, "genai: error: %s: cannot write: %s\n", path,
			strerror(errno));
	else
		chat_say(ch, "%zu messages saved to %s",
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
	chat_say(ch, "%zu messages loaded", json_array_size(j));
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

const char *const chat_words[] = {"/help",     "/reset", "/undo",   "/retry",
				  "/params",   "/stats", "/system", "/model",
				  "/thinking", "/save",	 "/load",   "/exit",
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

	cli_sampling_read(&chat_args.sampling, &ch->m.info, &p);
	fprintf(stderr, "max-new-tokens %" PRId64 "\n", chat_args.max_new);
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
	if (chat_args.sampling.has_seed)
		fprintf(stderr, "seed %" PRId64 "\n", chat_args.sampling.seed);
}

// NAME VALUE, as the options of the command line; a draw ends greedy.
static void set_param(struct chat *ch, const char *text)
{
	const struct cli_option *o = chat_options;
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
	if (o->to == &chat_args.sampling.temperature ||
	    o->to == &chat_args.sampling.top_k ||
	    o->to == &chat_args.sampling.top_p ||
	    o->to == &chat_args.sampling.min_p)
		chat_args.sampling.greedy = false;
	chat_say(ch, "%.*s is set", (int)n, text);
}

// The last turn is answered anew; where that fails or is stopped, all is as it
// was.
static void retry(struct chat *ch)
{
	size_t n = json_array_size(ch->messages), i = n;
	json_t *before = json_copy(ch->messages);

	while (i && !chat_is_role(ch, i - 1, "user"))
		i--;
	if (!i)
		fprintf(stderr, "/retry: there is no turn to answer\n");
	for (; i && n > i; n--)
		json_array_remove(ch->messages, n - 1);
	if (i && chat_answer(ch)) {
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
	char *was = strdup(chat_args.model), *now = strdup(path);
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
		chat_args.model = ch->model = now;
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
		fprintf(stderr, "%s\n", chat_args.model);
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
		chat_say(ch, "%s goes on with it", path);
	}
}

static void set_thinking(const struct chat *ch, const char *how)
{
	bool hide = !strcmp(how, "hide");

	if (!hide && strcmp(how, "show")) {
		fprintf(stderr, "/thinking: show or hide\n");
		return;
	}
	chat_args.hide_thinking = hide;
	chat_say(ch, "what a model thinks is %s", hide ? "hidden" : "shown");
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
	for (size_t i = 0; chat_words[i]; i++)
		genai_spell_offer(&near, chat_words[i]);
	if (near.best)
		fprintf(stderr, "no command %s; did you mean %s?\n", word,
			near.best);
	else
		fprintf(stderr, "no command %s: ", word);
	if (!near.best)
		show_help();
}

bool chat_command(struct chat *ch, const char *line, bool *done)
{
	const char *arg;

	if (line[0] != '/' || line[1] == '/')
		return false;
	if (argument(line, "/exit") || argument(line, "/quit")) {
		*done = true;
	} else if (argument(line, "/help")) {
		show_help();
	} else if (argument(line, "/reset")) {
		chat_reset(ch);
		chat_say(ch, "the conversation begins anew");
	} else if (argument(line, "/undo")) {
		chat_undo(ch);
		chat_say(ch, "%zu messages are left",
			 json_array_size(ch->messages));
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
		if (chat_set_system(ch, arg))
			cli_fail(ch->c);
		else
			chat_say(ch, *arg ? "the system turn is set"
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
