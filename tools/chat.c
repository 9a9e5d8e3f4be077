// chat.c - a conversation; only the new part of the history is computed.
#include "tools/cli.h"

#include <editline/readline.h>
#include <errno.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct chat {
	struct cli *c;
	struct cli_model m;
	struct cli_sampling sampling;
	int64_t max_new;
	json_t *messages;
	int64_t *ids; /* what the session holds, position by position */
	size_t n_ids;
	struct cli_result last;
	size_t last_prompt;
	bool tty;
	int32_t rc; /* of reading a line */
};

static void print_text(void *ctx, const char *text, size_t n)
{
	(void)ctx;
	fwrite(text, 1, n, stdout);
	fflush(stdout);
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

static int32_t answer(struct chat *ch)
{
	struct cli_generate g = {
		.m = &ch->m, .max_new = ch->max_new, .emit = print_text};
	int64_t *ids = NULL;
	size_t n = 0, common = 0;
	int32_t rc = cli_render(ch->c, ch->m.folder, ch->m.tok, ch->messages,
				&ids, &n);

	cli_interrupted = 0;
	if (!rc && !n)
		rc = genai_fail(&ch->c->err, GENAI_E_INVAL,
				"the template renders nothing");
	if (!rc)
		rc = cli_sampler(&ch->sampling, &ch->m.info, false, &g.sampler,
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
	if (!rc)
		rc = remember(ch, ids, n, &ch->last);
	if (rc) {
		ch->n_ids = 0;
		genai_session_rewind(ch->m.session, 0, NULL);
	} else {
		json_array_append_new(ch->messages,
				      json_pack("{s:s, s:o}", "role",
						"assistant", "content",
						json_stringn(ch->last.text,
							     ch->last.n_text)));
		putchar('\n');
		fflush(stdout);
		if (!strcmp(ch->last.finish, "interrupted"))
			fprintf(stderr, "[stopped]\n");
	}
	genai_sampler_close(g.sampler);
	free(ids);
	return rc;
}

// ---- commands of the conversation ----

static void set_system(struct chat *ch, const char *text)
{
	const char *role = json_string_value(
		json_object_get(json_array_get(ch->messages, 0), "role"));

	if (role && !strcmp(role, "system"))
		json_array_remove(ch->messages, 0);
	if (*text)
		json_array_insert_new(ch->messages, 0,
				      json_pack("{s:s, s:s}", "role", "system",
						"content", text));
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

static void save(struct chat *ch, const char *path)
{
	if (json_dump_file(ch->messages, path, JSON_INDENT(1)))
		fprintf(stderr, "genai: error: %s: cannot write: %s\n", path,
			strerror(errno));
}

static void load(struct chat *ch, const char *path)
{
	json_error_t je;
	json_t *j = json_load_file(path, 0, &je), *m;
	size_t i;

	json_array_foreach(
		j, i, m) if (!json_is_string(json_object_get(m, "role"))) break;
	if (!json_is_array(j) || i < json_array_size(j)) {
		fprintf(stderr, "genai: error: %s: %s\n", path,
			j ? "not an array of messages" : je.text);
		json_decref(j);
		return;
	}
	json_decref(ch->messages);
	ch->messages = j;
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

// True if the line was a command; *done when it was the last.
static bool command(struct chat *ch, const char *line, bool *done)
{
	const char *arg;

	if (line[0] != '/')
		return false;
	if (argument(line, "/exit") || argument(line, "/quit"))
		*done = true;
	else if (argument(line, "/reset"))
		reset(ch);
	else if (argument(line, "/undo"))
		undo(ch);
	else if (argument(line, "/stats"))
		stats(ch);
	else if ((arg = argument(line, "/system")))
		set_system(ch, arg);
	else if ((arg = argument(line, "/save")) && *arg)
		save(ch, arg);
	else if ((arg = argument(line, "/load")) && *arg)
		load(ch, arg);
	else
		fprintf(stderr, "/help /reset /undo /stats /system TEXT /save "
				"FILE /load FILE /exit\n");
	return true;
}

static char *read_line(struct chat *ch)
{
	char *line = NULL;
	size_t cap = 0, n;

	if (ch->tty)
		return readline("> ");
	ch->rc = cli_line(ch->c, &line, &cap, &n);
	if (ch->rc > 0)
		return line;
	free(line);
	return NULL;
}

static int converse(struct chat *ch)
{
	bool done = false;
	int status = 0;

	while (!done) {
		char *line = read_line(ch);
		bool blank = line && !line[strspn(line, " \t")];

		if (!line && ch->tty && cli_interrupted) {
			cli_interrupted = 0; // Ctrl-C drops the line only
			putchar('\n');
			continue;
		}
		if (!line)
			break;
		if (ch->tty && !blank)
			add_history(line);
		if (!blank && !command(ch, line, &done)) {
			json_array_append_new(ch->messages,
					      json_pack("{s:s, s:s}", "role",
							"user", "content",
							line));
			if (answer(ch)) {
				// the turn did not happen
				undo(ch);
				status = cli_fail(ch->c);
				if (!ch->tty)
					done = true;
			}
		}
		free(line);
	}
	if (ch->rc < 0 && !status)
		status = cli_fail(ch->c);
	if (cli_interrupted && !ch->tty && !status)
		status = EXIT_INTERRUPT;
	return ch->tty ? 0 : status;
}

int cmd_chat(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"system", required_argument, NULL, 's'},
		{"max-new-tokens", required_argument, NULL, 'n'},
		CLI_SAMPLING_OPTIONS,
		{NULL, 0, NULL, 0}};
	struct chat ch = {.c = c, .max_new = 1024};
	const char *system = NULL;
	int opt, status;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (opt == 's') {
			system = optarg;
		} else if (opt == 'n') {
			if (!cli_int(c, "--max-new-tokens", optarg, 1,
				     INT32_MAX, &ch.max_new))
				return EXIT_USAGE;
		} else if (opt == '?') {
			return cli_usage(c,
					 "unknown option or missing value: "
					 "%s",
					 argv[optind - 1]);
		} else if (!cli_sampling_option(c, &ch.sampling, opt, optarg)) {
			return EXIT_USAGE;
		}
	}
	if (optind + 1 != argc)
		return cli_usage(c, "one model folder is needed");
	cli_catch_interrupts();
	if (cli_open(c, argv[optind], CLI_TOKENIZER, &ch.m))
		return cli_fail(c);
	ch.tty = isatty(0) && isatty(1);
	ch.messages = json_array();
	if (system)
		set_system(&ch, system);
	status = converse(&ch);
	cli_result_free(&ch.last);
	json_decref(ch.messages);
	free(ch.ids);
	cli_close(&ch.m);
	return status;
}
