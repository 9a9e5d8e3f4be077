// text.c - tokenize, detokenize, template.
#include "tools/cli.h"

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

int cmd_tokenize(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"text", required_argument, NULL, 't'},
		{"file", required_argument, NULL, 'f'},
		{"no-special", no_argument, NULL, 'n'},
		{"specials-as-text", no_argument, NULL, 's'},
		{"jsonl", no_argument, NULL, 'l'},
		{NULL, 0, NULL, 0}};
	const char *text = NULL, *file = "-";
	struct genai_tokenizer *tok = NULL;
	char folder[4200], *read = NULL;
	uint32_t flags = 0;
	bool lines = false;
	size_t n = 0;
	int32_t rc;
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (opt == 't')
			text = optarg;
		else if (opt == 'f')
			file = optarg;
		else if (opt == 'n')
			flags |= GENAI_TOK_NO_SPECIAL;
		else if (opt == 's')
			flags |= GENAI_TOK_SPECIALS_AS_TEXT;
		else if (opt == 'l')
			lines = true;
		else
			return cli_usage(c, "unknown option: %s",
					 argv[optind - 1]);
	}
	if (optind + 1 != argc)
		return cli_usage(c, "one folder is needed");
	snprintf(folder, sizeof(folder), "%s", argv[optind]);
	rc = 0;
	if (strstr(argv[optind], ".gguf"))
		rc = cli_folder(c, argv[optind], folder, sizeof(folder));
	if (!rc)
		rc = cli_tokenizer(c, folder, &tok);
	if (!rc && lines) {
		rc = tokenize_lines(c, tok, flags);
	} else if (!rc) {
		if (!text && !cli_slurp(c, file, &read, &n))
			rc = c->err.code;
		if (!rc)
			rc = tokenize_one(c, tok, text ? text : read,
					  text ? strlen(text) : n, flags);
	}
	free(read);
	genai_tokenizer_close(tok);
	return rc ? cli_fail(c) : 0;
}

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

static int32_t detokenize_one(struct cli *c, const struct genai_tokenizer *tok,
			      const int64_t *ids, size_t n, uint32_t flags,
			      bool stream, bool quote)
{
	char *text;
	size_t bytes;
	json_t *j;
	int32_t rc;

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

int cmd_detokenize(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"ids", required_argument, NULL, 'i'},
		{"keep-special", no_argument, NULL, 'k'},
		{"stream", no_argument, NULL, 's'},
		{"jsonl", no_argument, NULL, 'l'},
		{NULL, 0, NULL, 0}};
	struct genai_tokenizer *tok = NULL;
	bool stream = false, lines = false;
	const char *list = NULL;
	int64_t *ids = NULL;
	uint32_t flags = 0;
	size_t n;
	int32_t rc;
	int opt;

	opterr = 0;
	while ((opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (opt == 'i')
			list = optarg;
		else if (opt == 'k')
			flags |= GENAI_TOK_KEEP_SPECIAL;
		else if (opt == 's')
			stream = true;
		else if (opt == 'l')
			lines = true;
		else
			return cli_usage(c, "unknown option: %s",
					 argv[optind - 1]);
	}
	if (optind + 1 != argc)
		return cli_usage(c, "one folder is needed");
	if (!list && !lines)
		return cli_usage(c, "--ids or --jsonl is needed");
	rc = cli_tokenizer(c, argv[optind], &tok);
	if (!rc && lines) {
		rc = detokenize_lines(c, tok, flags, stream);
	} else if (!rc) {
		rc = cli_ids(c, list, &ids, &n) ? 0 : c->err.code;
		if (!rc)
			rc = detokenize_one(c, tok, ids, n, flags, stream,
					    false);
	}
	free(ids);
	genai_tokenizer_close(tok);
	return rc ? cli_fail(c) : 0;
}

// ---- template ----

struct template_options {
	json_t *vars;
	bool cont;
	int64_t now;
	int32_t offset;
};

static json_t *load_json(struct cli *c, const char *path)
{
	json_error_t je;
	char *text;
	size_t n;
	json_t *j;

	if (!cli_slurp(c, path, &text, &n))
		return NULL;
	j = json_loadb(text, n, JSON_DECODE_ANY | JSON_ALLOW_NUL, &je);
	free(text);
	if (!j)
		genai_fail(&c->err, GENAI_E_FORMAT,
			   "%s: line %d, column %d: %s", path, je.line,
			   je.column, je.text);
	return j;
}

static bool set_var(struct cli *c, const char *arg, json_t *vars)
{
	const char *eq = strchr(arg, '=');
	char name[128];
	json_t *v;

	if (!eq || eq == arg || (size_t)(eq - arg) >= sizeof(name)) {
		cli_usage(c, "--var %s: name=JSON is needed", arg);
		return false;
	}
	memcpy(name, arg, (size_t)(eq - arg));
	name[eq - arg] = 0;
	v = json_loads(eq + 1, JSON_DECODE_ANY, NULL);
	if (!v) {
		cli_usage(c, "--var %s: the value is not JSON", arg);
		return false;
	}
	json_object_set_new(vars, name, v);
	return true;
}

static bool parse_now(struct cli *c, const char *arg, int64_t *out)
{
	struct tm t = {0};
	const char *end = strptime(arg, "%Y-%m-%dT%H:%M:%S", &t);

	if (!end || *end) {
		cli_usage(c, "--now %s: YYYY-MM-DDTHH:MM:SS is needed", arg);
		return false;
	}
	*out = timegm(&t);
	return true;
}

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
		if (!rc && genai_template_chat(t, o.vars, o.cont, o.now,
					       o.offset, &text, &bytes, &err)) {
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
	char *text;
	size_t n;
	int32_t rc;

	if (!stat(path, &st) && S_ISDIR(st.st_mode)) {
		cli_special_tokens(path, vars);
		return genai_template_open(
			path, json_is_array(json_object_get(vars, "tools")),
			out, &c->err);
	}
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
		rc = genai_template_chat(t, o->vars, o->cont, o->now, o->offset,
					 &text, &n, &c->err);
		if (!rc) {
			fwrite(text, 1, n, stdout);
			free(text);
		}
	}
	genai_template_free(t);
	return rc;
}

int cmd_template(struct cli *c, int argc, char **argv)
{
	static const struct option opts[] = {
		{"messages", required_argument, NULL, 'm'},
		{"tools", required_argument, NULL, 't'},
		{"no-generation-prompt", no_argument, NULL, 'g'},
		{"continue", no_argument, NULL, 'c'},
		{"var", required_argument, NULL, 'v'},
		{"now", required_argument, NULL, 'n'},
		{"jsonl", no_argument, NULL, 'l'},
		{NULL, 0, NULL, 0}};
	struct template_options o = {.vars = json_object(), .now = time(NULL)};
	struct tm local;
	bool lines = false, ok = true;
	time_t now = o.now;
	json_t *j;
	int opt, status = 0;

	localtime_r(&now, &local);
	o.offset = (int32_t)local.tm_gmtoff;
	opterr = 0;
	json_object_set_new(o.vars, "add_generation_prompt", json_true());
	while (ok && (opt = getopt_long(argc, argv, "", opts, NULL)) != -1) {
		if (opt == 'm' || opt == 't') {
			j = load_json(c, optarg);
			ok = j != NULL;
			if (ok)
				json_object_set_new(
					o.vars,
					opt == 'm' ? "messages" : "tools", j);
			else
				status = cli_fail(c);
		} else if (opt == 'g') {
			json_object_set_new(o.vars, "add_generation_prompt",
					    json_false());
		} else if (opt == 'c') {
			o.cont = true;
		} else if (opt == 'v') {
			ok = set_var(c, optarg, o.vars);
		} else if (opt == 'n') {
			ok = parse_now(c, optarg, &o.now);
			o.offset = 0;
		} else if (opt == 'l') {
			lines = true;
		} else {
			ok = false;
			cli_usage(c, "unknown option: %s", argv[optind - 1]);
		}
	}
	if (!ok)
		status = status ? status : EXIT_USAGE;
	else if (optind + 1 != argc)
		status = cli_usage(c, "one folder or template is needed");
	else if (!lines && !json_object_get(o.vars, "messages"))
		status = cli_usage(c, "--messages or --jsonl is needed");
	else if (render(c, argv[optind], lines, &o))
		status = cli_fail(c);
	json_decref(o.vars);
	return status;
}
