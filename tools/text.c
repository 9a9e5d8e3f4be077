// text.c - tokenize, detokenize, template.
#include "tools/cli.h"
#include "tools/pull/pull.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

// ---- tokenize ----

static void print_ids(const int64_t *ids, size_t n)
{
	putchar('[');
	for (size_t i = 0; i < n; i++)
		printf("%s%" PRId64, i ? "," : "", ids[i]);
	printf("]\n");
}

static int32_t tokenize_one(struct cli *c, const struct genai_tokenizer *tok,
			    const char *text, size_t n, uint32_t flags)
{
	int64_t *ids;
	size_t count;
	int32_t rc = genai_tokenizer_encode(tok, text, n, flags, &ids, &count,
					    &c->err);

	if (rc)
		return rc;
	print_ids(ids, count);
	free(ids);
	return 0;
}

// One JSON value of a line, or an error that names the line.
static json_t *parse_line(struct cli *c, const char *line, size_t n,
			  uint64_t number)
{
	json_error_t je;
	json_t *j = json_loadb(
		line, n,
		JSON_DECODE_ANY | JSON_ALLOW_NUL | JSON_REJECT_DUPLICATES, &je);

	if (!j)
		genai_fail(&c->err, GENAI_E_FORMAT,
			   "stdin: line %" PRIu64 ", column %d: %s", number,
			   je.column, je.text);
	return j;
}

static int32_t tokenize_lines(struct cli *c, const struct genai_tokenizer *tok,
			      uint32_t flags)
{
	char *line = NULL;
	size_t cap = 0, n;
	int32_t rc = 0, more = 0;

	for (uint64_t i = 1; !rc && (more = cli_line(c, &line, &cap, &n)) > 0;
	     i++) {
		json_t *j = parse_line(c, line, n, i);

		if (!j)
			rc = c->err.code;
		else if (!json_is_string(j))
			rc = genai_fail(&c->err, GENAI_E_FORMAT,
					"stdin: line %" PRIu64
					": not a JSON string",
					i);
		else
			rc = tokenize_one(c, tok, json_string_value(j),
					  json_string_length(j), flags);
		json_decref(j);
	}
	free(line);
	return rc ? rc : more;
}

static struct {
	const char *folder, *text, *file;
	bool no_special, as_text, lines;
} tok_args = {.file = "-"};

static const struct cli_option tokenize_options[] = {
	{"text", 0, CLI_TEXT, "TEXT", "the text; without any: stdin",
	 &tok_args.text},
	{"file", 0, CLI_TEXT, "FILE", "the same from a file", &tok_args.file},
	{"no-special", 0, CLI_FLAG, NULL,
	 "without the tokenizer's own additions", &tok_args.no_special},
	{"specials-as-text", 0, CLI_FLAG, NULL,
	 "special tokens in the text are text", &tok_args.as_text},
	{"jsonl", 0, CLI_FLAG, NULL, "a JSON string a line", &tok_args.lines},
	{0}};

// The tokenizer of a model folder, a folder with no more, or a .gguf file.
static int32_t open_tokenizer(struct cli *c, const char *path,
			      struct genai_tokenizer **out)
{
	char folder[4200], hub[6000];
	int32_t rc = pull_resolve(c, &path, hub, sizeof(hub));

	if (rc)
		return rc;
	if (!cli_is_gguf(path))
		return cli_tokenizer(c, path, out);
	rc = cli_folder(c, path, folder, sizeof(folder));
	return rc ? rc : cli_tokenizer(c, folder, out);
}

static int tokenize(struct cli *c, int argc, char **argv)
{
	uint32_t flags;
	struct genai_tokenizer *tok = NULL;
	char *read = NULL;
	const char *text;
	size_t n = 0;
	int status = cli_argument(c, tokenize_options, argc, argv, "one folder",
				  &tok_args.folder);
	int32_t rc;

	if (status)
		return status;
	flags = (tok_args.no_special ? GENAI_TOK_NO_SPECIAL : 0) |
		(tok_args.as_text ? GENAI_TOK_SPECIALS_AS_TEXT : 0);
	text = tok_args.text;
	rc = open_tokenizer(c, tok_args.folder, &tok);
	if (!rc && tok_args.lines) {
		rc = tokenize_lines(c, tok, flags);
	} else if (!rc) {
		if (!text && !cli_slurp(c, tok_args.file, &read, &n))
			rc = c->err.code;
		if (!rc)
			rc = tokenize_one(c, tok, text ? text : read,
					  text ? strlen(text) : n, flags);
	}
	free(read);
	genai_tokenizer_close(tok);
	return rc ? cli_fail(c) : 0;
}

const struct command cmd_tokenize = {
	"tokenize",	     tokenize,	       "DIR [--text T | --file F]",
	"text to token ids", tokenize_options, NULL};

// ---- detokenize ----

static json_t *stream_pieces(struct cli *c, const struct genai_tokenizer *tok,
			     const int64_t *ids, size_t n, uint32_t flags)
{
	struct genai_detok *d = NULL;
	json_t *a = json_array();
	const char *text;
	size_t bytes;
	int32_t rc = genai_detok_open(tok, flags, &d, &c->err);

	for (size_t i = 0; !rc && i < n; i++) {
		rc = genai_detok_push(d, ids[i], &text, &bytes, &c->err);
		if (!rc)
			json_array_append_new(a, json_stringn(text, bytes));
	}
	if (!rc)
		rc = genai_detok_flush(d, &text, &bytes, &c->err);
	if (!rc)
		json_array_append_new(a, json_stringn(text, bytes));
	genai_detok_close(d);
	if (rc) {
		json_decref(a);
		return NULL;
	}
	return a;
}

// How many ids there are: models may have more than their tokenizer names,
// which stand for no text.
static int64_t n_ids;

static void count_ids(const struct genai_tokenizer *tok, const char *folder)
{
	struct genai_model_config config;

	n_ids = genai_tokenizer_size(tok);
	if (!genai_model_config_load(folder, NULL, &config, NULL) &&
	    config.vocab_size > n_ids)
		n_ids = config.vocab_size;
}

static int32_t detokenize_one(struct cli *c, const struct genai_tokenizer *tok,
			      const int64_t *ids, size_t n, uint32_t flags,
			      bool stream, bool quote)
{
	char *text;
	size_t bytes;
	json_t *j;
	int32_t rc;

	for (size_t i = 0; i < n; i++)
		if (ids[i] < 0 || ids[i] >= n_ids)
			return genai_fail(&c->err, GENAI_E_INVAL,
					  "id %zu is %" PRId64
					  ": there are 0 to %" PRId64,
					  i, ids[i], n_ids - 1);
	if (stream) {
		j = stream_pieces(c, tok, ids, n, flags);
		if (!j)
			return c->err.code;
		cli_print_json(j);
		return 0;
	}
	rc = genai_tokenizer_decode(tok, ids, n, flags, &text, &bytes, &c->err);
	if (rc)
		return rc;
	if (quote) {
		j = json_stringn(text, bytes);
		json_dumpf(j, stdout, JSON_ENCODE_ANY);
		json_decref(j);
		putchar('\n');
	} else {
		fwrite(text, 1, bytes, stdout);
		putchar('\n');
	}
	free(text);
	return 0;
}

static int32_t ids_of(struct cli *c, const json_t *j, uint64_t line,
		      int64_t **out, size_t *out_n)
{
	size_t n = json_array_size(j);
	int64_t *ids = malloc((n + 1) * sizeof(*ids));

	if (!ids)
		return genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(j, i);

		if (!json_is_integer(v)) {
			free(ids);
			return genai_fail(&c->err, GENAI_E_FORMAT,
					  "stdin: line %" PRIu64
					  ": not an array of ids",
					  line);
		}
		ids[i] = json_integer_value(v);
	}
	*out = ids;
	*out_n = n;
	return 0;
}

static int32_t detokenize_lines(struct cli *c,
				const struct genai_tokenizer *tok,
				uint32_t flags, bool stream)
{
	char *line = NULL;
	size_t cap = 0, n;
	int32_t rc = 0, more = 0;

	for (uint64_t i = 1; !rc && (more = cli_line(c, &line, &cap, &n)) > 0;
	     i++) {
		json_t *j = parse_line(c, line, n, i);
		int64_t *ids = NULL;
		size_t count = 0;

		rc = j ? ids_of(c, j, i, &ids, &count) : c->err.code;
		if (!rc) {
			rc = detokenize_one(c, tok, ids, count, flags, stream,
					    true);
			free(ids);
		}
		json_decref(j);
	}
	free(line);
	return rc ? rc : more;
}

static struct {
	const char *folder, *list;
	bool keep, stream, lines;
} detok_args;

static const struct cli_option detokenize_options[] = {
	{"ids", 0, CLI_TEXT, "LIST|@FILE", "the ids", &detok_args.list},
	{"keep-special", 0, CLI_FLAG, NULL, "show special tokens",
	 &detok_args.keep},
	{"stream", 0, CLI_FLAG, NULL, "the pieces, one per token and the rest",
	 &detok_args.stream},
	{"jsonl", 0, CLI_FLAG, NULL, "a JSON array a line", &detok_args.lines},
	{0}};

static int detokenize(struct cli *c, int argc, char **argv)
{
	uint32_t flags;
	struct genai_tokenizer *tok = NULL;
	int64_t *ids = NULL;
	size_t n;
	int status = cli_argument(c, detokenize_options, argc, argv,
				  "one folder", &detok_args.folder);
	int32_t rc;

	if (!status && !detok_args.list && !detok_args.lines)
		status = cli_usage(c, "--ids or --jsonl is needed");
	if (status)
		return status;
	flags = detok_args.keep ? GENAI_TOK_KEEP_SPECIAL : 0;
	rc = open_tokenizer(c, detok_args.folder, &tok);
	if (!rc)
		count_ids(tok, detok_args.folder);
	if (!rc && detok_args.lines) {
		rc = detokenize_lines(c, tok, flags, detok_args.stream);
	} else if (!rc) {
		rc = cli_ids(c, detok_args.list, &ids, &n) ? 0 : c->err.code;
		if (!rc)
			rc = detokenize_one(c, tok, ids, n, flags,
					    detok_args.stream, false);
	}
	free(ids);
	genai_tokenizer_close(tok);
	return rc ? cli_fail(c) : 0;
}

const struct command cmd_detokenize = {"detokenize",	   detokenize,
				       "DIR --ids LIST",   "token ids to text",
				       detokenize_options, NULL};

// ---- template ----

struct template_options {
	json_t *vars;
	bool cont; // the last message goes on
	struct genai_chat_options chat;
};

static struct {
	const char *path;
	bool no_prompt, lines;
	struct template_options o;
} tmpl;

// Variables on the command line, in their order.
static int set_var(const char *name, json_t *v)
{
	if (!tmpl.o.vars)
		tmpl.o.vars = json_object();
	json_object_set_new(tmpl.o.vars, name, v);
	return 0;
}

static int load_var(struct cli *c, const char *name, const char *path)
{
	json_error_t je;
	char *text;
	size_t n;
	json_t *j;

	if (!cli_slurp(c, path, &text, &n))
		return cli_fail(c);
	j = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
	free(text);
	if (j)
		return set_var(name, j);
	genai_fail(&c->err, GENAI_E_FORMAT, "%s: line %d, column %d: %s", path,
		   je.line, je.column, je.text);
	return cli_fail(c);
}

static int load_messages(struct cli *c, const char *path)
{
	return load_var(c, "messages", path);
}

static int load_tools(struct cli *c, const char *path)
{
	return load_var(c, "tools", path);
}

static int parse_var(struct cli *c, const char *arg)
{
	const char *eq = strchr(arg, '=');
	char name[128];
	json_t *v;

	if (!eq || eq == arg || (size_t)(eq - arg) >= sizeof(name))
		return cli_usage(c, "--var %s: name=JSON is needed", arg);
	memcpy(name, arg, (size_t)(eq - arg));
	name[eq - arg] = 0;
	v = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
	if (!v)
		return cli_usage(c, "--var %s: the value is not JSON", arg);
	return set_var(name, v);
}

static int parse_now(struct cli *c, const char *arg)
{
	struct tm t = {0};
	const char *end = strptime(arg, "%Y-%m-%dT%H:%M:%S", &t);

	if (!end || *end)
		return cli_usage(c, "--now %s: YYYY-MM-DDTHH:MM:SS is needed",
				 arg);
	tmpl.o.chat.now = timegm(&t);
	tmpl.o.chat.flags |= GENAI_CHAT_NOW;
	return 0;
}

static const struct cli_option template_options[] = {
	{.name = "messages",
	 .kind = CLI_CALL,
	 .arg = "FILE.json",
	 .help = "the conversation",
	 .call = load_messages},
	{.name = "tools",
	 .kind = CLI_CALL,
	 .arg = "FILE.json",
	 .help = "tools that may be called",
	 .call = load_tools},
	{"no-generation-prompt", 0, CLI_FLAG, NULL,
	 "without the beginning of an answer", &tmpl.no_prompt},
	{"continue", 0, CLI_FLAG, NULL, "the last message goes on",
	 &tmpl.o.cont},
	{.name = "var",
	 .kind = CLI_CALL,
	 .arg = "NAME=JSON",
	 .help = "a further variable (repeatable)",
	 .call = parse_var},
	{.name = "now",
	 .kind = CLI_CALL,
	 .arg = "2024-07-26T13:14:15",
	 .help = "the clock",
	 .call = parse_now},
	{"jsonl", 0, CLI_FLAG, NULL, "an object a line", &tmpl.lines},
	{0}};

// A line's object: the variables are its fields and those of kwargs.
static int32_t line_vars(struct cli *c, const json_t *j, uint64_t line,
			 struct template_options *o)
{
	const json_t *kw = json_object_get(j, "kwargs");
	const char *key;
	json_t *v;

	if (!json_is_object(j) ||
	    !json_is_array(json_object_get(j, "messages")))
		return genai_fail(&c->err, GENAI_E_FORMAT,
				  "stdin: line %" PRIu64
				  ": not an object with messages",
				  line);
	o->cont = json_is_true(json_object_get(j, "continue_final_message"));
	json_object_foreach((json_t *)(uintptr_t)j, key,
			    v) if (strcmp(key, "kwargs") &&
				   strcmp(key, "continue_final_message"))
		json_object_set(o->vars, key, v);
	if (json_is_object(kw))
		json_object_foreach((json_t *)(uintptr_t)kw, key, v)
			json_object_set(o->vars, key, v);
	return 0;
}

static int32_t render_one(struct cli *c, const struct genai_template *t,
			  const struct template_options *o, char **out_text,
			  size_t *out_bytes, struct genai_error *err)
{
	struct genai_chat_options chat = o->chat;
	char *vars = NULL;
	int32_t rc = cli_template_vars(c, o->vars, &vars);

	chat.size = sizeof(chat);
	if (o->cont)
		chat.flags |= GENAI_CHAT_CONTINUE;
	if (!rc)
		rc = genai_template_chat(t, vars, strlen(vars), &chat, out_text,
					 out_bytes, err);
	free(vars);
	return rc;
}

static int32_t template_lines(struct cli *c, const struct genai_template *t,
			      const struct template_options *base)
{
	char *line = NULL;
	size_t cap = 0, n;
	int32_t rc = 0, more = 0;

	for (uint64_t i = 1; !rc && (more = cli_line(c, &line, &cap, &n)) > 0;
	     i++) {
		struct template_options o = *base;
		json_t *j = parse_line(c, line, n, i);
		struct genai_error err = GENAI_ERROR_INIT;
		char *text;
		size_t bytes;

		if (!j) {
			rc = c->err.code;
			break;
		}
		o.vars = json_copy(base->vars);
		rc = line_vars(c, j, i, &o);
		if (!rc && render_one(c, t, &o, &text, &bytes, &err)) {
			cli_print_json(json_pack("{s:s}", "error", err.text));
		} else if (!rc) {
			cli_print_json(json_pack("{s:o}", "text",
						 json_stringn(text, bytes)));
			free(text);
		}
		json_decref(o.vars);
		json_decref(j);
	}
	free(line);
	return rc ? rc : more;
}

static int32_t open_template(struct cli *c, const char *path, json_t *vars,
			     struct genai_template **out)
{
	struct stat st;
	char *text, hub[6000];
	size_t n;
	int32_t rc = pull_resolve(c, &path, hub, sizeof(hub));

	if (rc)
		return rc;
	if (!stat(path, &st) && S_ISDIR(st.st_mode))
		return genai_template_open(
			path, json_is_array(json_object_get(vars, "tools")),
			out, &c->err);
	if (!cli_slurp(c, path, &text, &n))
		return c->err.code;
	rc = genai_template_parse(path, text, n, out, &c->err);
	free(text);
	return rc;
}

static int32_t render(struct cli *c, const char *path, bool lines,
		      struct template_options *o)
{
	struct genai_template *t = NULL;
	char *text;
	size_t n;
	int32_t rc = open_template(c, path, o->vars, &t);

	if (!rc && lines) {
		rc = template_lines(c, t, o);
	} else if (!rc) {
		rc = render_one(c, t, o, &text, &n, &c->err);
		if (!rc) {
			fwrite(text, 1, n, stdout);
			free(text);
		}
	}
	genai_template_close(t);
	return rc;
}

static int template(struct cli *c, int argc, char **argv)
{
	struct template_options *o = &tmpl.o;
	int status = cli_argument(c, template_options, argc, argv,
				  "one folder or template", &tmpl.path);
	if (!o->vars)
		o->vars = json_object();
	if (!json_object_get(o->vars, "add_generation_prompt"))
		json_object_set_new(o->vars, "add_generation_prompt",
				    json_boolean(!tmpl.no_prompt));
	if (!status && !tmpl.lines && !json_object_get(o->vars, "messages"))
		status = cli_usage(c, "--messages or --jsonl is needed");
	if (!status && render(c, tmpl.path, tmpl.lines, o))
		status = cli_fail(c);
	json_decref(o->vars);
	return status;
}

const struct command cmd_template = {"template",
				     template,
				     "DIR|FILE.jinja --messages FILE.json",
				     "render a chat template",
				     template_options,
				     NULL};
