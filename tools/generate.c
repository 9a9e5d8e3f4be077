// generate.c - the command that continues a prompt.
#include "tools/trace.h"

#include <stdlib.h>
#include <string.h>

static struct options {
	const char *model, *prompt, *file, *ids, *system;
	const char *schema, *grammar, *regex, *trace, *timeline;
	const char *stops[64];
	uint32_t n_stops;
	bool chat, ignore_eos, echo, json;
	int64_t max_new;
	struct cli_sampling sampling;
} o = {.max_new = 256};

static int add_stop(struct cli *c, const char *value)
{
	if (!*value || o.n_stops == 64)
		return cli_usage(c, "--stop: 1 to 64 texts, none empty");
	o.stops[o.n_stops++] = value;
	return 0;
}

static const struct cli_option options[] = {
	{"prompt", 'p', CLI_TEXT, "TEXT", "the prompt; without any: stdin",
	 &o.prompt},
	{"prompt-file", 0, CLI_TEXT, "FILE", "the same from a file", &o.file},
	{"ids", 0, CLI_TEXT, "1,2,3|@FILE", "the same as token ids", &o.ids},
	{"chat", 0, CLI_FLAG, NULL, "the prompt is a user turn", &o.chat},
	{"system", 0, CLI_TEXT, "TEXT", "a system turn before it", &o.system},
	{"max-new-tokens", 'n', CLI_INT, "N", "at most (256)", &o.max_new, 0,
	 INT32_MAX},
	{"ignore-eos", 0, CLI_FLAG, NULL, "do not stop at the end of text",
	 &o.ignore_eos},
	{.name = "stop",
	 .kind = CLI_CALL,
	 .arg = "TEXT",
	 .help = "stop before this text (repeatable)",
	 .call = add_stop},
	{"json-schema", 0, CLI_TEXT, "FILE", "JSON of this schema", &o.schema},
	{"grammar", 0, CLI_TEXT, "FILE", "a text of this Lark grammar",
	 &o.grammar},
	{"regex", 0, CLI_TEXT, "RE", "a text that this matches", &o.regex},
	{"echo", 0, CLI_FLAG, NULL, "print the prompt first", &o.echo},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &o.json},
	{"trace", 0, CLI_TEXT, "FILE.json", "what happened when, for Perfetto",
	 &o.trace},
	{"timeline", 0, CLI_TEXT, "FILE.svg", "a picture of one step",
	 &o.timeline},
	{"model", 'm', CLI_TEXT, "DIR", "the model, where DIR is not given",
	 &o.model},
	CLI_TOKENIZER_AT,
	CLI_SAMPLING(o.sampling),
	{0}};

static int check(struct cli *c)
{
	if (!!o.prompt + !!o.file + !!o.ids > 1)
		return cli_usage(c, "only one of --prompt, --prompt-file, "
				    "--ids");
	if (!!o.schema + !!o.grammar + !!o.regex > 1)
		return cli_usage(c, "only one of --json-schema, --grammar, "
				    "--regex");
	if (o.ignore_eos && (o.schema || o.grammar || o.regex))
		return cli_usage(c, "--ignore-eos does not go with a text "
				    "whose end its structure tells");
	if (o.ids && (o.chat || o.system))
		return cli_usage(c, "--ids does not go with --chat");
	cli_sampling_check(c, &o.sampling);
	return 0;
}

static int32_t encode_chat(struct cli *c, struct cli_model *m,
			   const char *where, const char *text, size_t bytes,
			   int64_t **ids, size_t *n)
{
	json_t *messages = json_array();
	int32_t rc = 0;

	if (o.system)
		rc = cli_message(c, messages, "--system", "system", o.system,
				 strlen(o.system));
	if (!rc)
		rc = cli_message(c, messages, where, "user", text, bytes);
	if (!rc)
		rc = cli_render(c, m->text, m->tok, messages, ids, n);
	json_decref(messages);
	return rc;
}

static int32_t get_prompt(struct cli *c, struct cli_model *m, int64_t **ids,
			  size_t *n)
{
	const char *where = o.prompt ? "--prompt" : o.file ? o.file : "stdin";
	const char *text = o.prompt;
	double before = cli_now();
	char *read = NULL;
	size_t bytes;
	int32_t rc;

	if (o.ids)
		return cli_ids(c, o.ids, ids, n) ? 0 : c->err.code;
	if (text)
		bytes = strlen(text);
	else if (cli_slurp(c, o.file ? o.file : "-", &read, &bytes))
		text = read;
	else
		return c->err.code;
	m->start += cli_now() - before; // typing is not ours
	if (o.chat || o.system)
		rc = encode_chat(c, m, where, text, bytes, ids, n);
	else
		rc = genai_tokenizer_encode(m->tok, text, bytes, 0, ids, n,
					    &c->err);
	free(read);
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

// An instruct model that is given bare text often has nothing to say.
static void hint(const struct cli *c, const struct cli_model *m,
		 const struct cli_result *r)
{
	size_t blank = strspn(r->text, " \t\r\n");

	if (!c->quiet && !o.chat && !o.system && blank == r->n_text &&
	    !strcmp(r->finish, "eos") && cli_has_template(m->text))
		fprintf(stderr, "genai: the model ended the text at once; it "
				"is made for conversations: try --chat\n");
}

// What the text has to be, compiled.
static int32_t open_constraint(struct cli *c, struct cli_model *m,
			       struct constrain **out_lib,
			       struct constraint **out)
{
	const char *file = o.schema ? o.schema : o.grammar;
	char *read = NULL;
	size_t n;
	int32_t rc;

	if (!file && !o.regex)
		return 0;
	if (file && !cli_slurp(c, file, &read, &n))
		return c->err.code;
	rc = constrain_open(m->text, m->info.vocab_size, m->info.eos,
			    m->info.n_eos, out_lib, &c->err);
	if (!rc)
		rc = constraint_open(*out_lib,
				     o.schema	 ? "json_schema"
				     : o.grammar ? "lark"
						 : "regex",
				     read ? read : o.regex, 1, out, &c->err);
	free(read);
	return rc;
}

static int run(struct cli *c, struct cli_model *m)
{
	struct constrain *lib = NULL;
	struct cli_generate g = {
		.m = m,
		.stops = o.stops,
		.n_stops = o.n_stops,
		.ignore_eos = o.ignore_eos,
		.max_new = o.max_new,
		.emit = o.json ? NULL : print_text,
	};
	struct cli_result r = {0};
	int64_t *ids = NULL;
	size_t n = 0;
	int32_t rc = get_prompt(c, m, &ids, &n);
	int status = 0;

	if (!rc)
		rc = cli_sampler(&o.sampling, &m->info, o.ignore_eos,
				 &g.sampler, &c->err);
	if (!rc)
		rc = open_constraint(c, m, &lib, &g.constraint);
	if (!rc && o.echo && !o.json && m->tok)
		rc = echo_prompt(c, m, ids, n);
	if (!rc)
		rc = cli_generate(c, &g, ids, n, &r);
	if (rc) {
		status = cli_fail(c);
	} else if (o.json) {
		print_result(m, &r, ids, n);
	} else {
		putchar('\n');
		fflush(stdout);
		hint(c, m, &r);
		cli_stats_line(c, m, &r, n);
	}
	if (!rc && !strcmp(r.finish, "interrupted"))
		status = EXIT_INTERRUPT;
	cli_result_free(&r);
	genai_sampler_close(g.sampler);
	constraint_close(g.constraint);
	constrain_close(lib);
	free(ids);
	return status;
}

static int generate(struct cli *c, int argc, char **argv)
{
	struct cli_model m;
	int status = cli_argument(c, options, argc, argv, "one model folder",
				  &o.model);

	if (!status)
		status = check(c);
	if (status)
		return status;
	c->trace = o.trace;
	c->timeline = o.timeline;
	cli_catch_interrupts(1);
	// ids need no tokenizer, but text is shown if there is one
	if (cli_open(c, o.model, o.ids && !c->tokenizer ? 0 : CLI_TOKENIZER,
		     &m)) {
		status = cli_fail(c);
		c->err = (struct genai_error)GENAI_ERROR_INIT;
		trace_finish(c); // of what was loaded
		return status;
	}
	if (!m.tok && cli_tokenizer(c, m.text, &m.tok)) {
		m.tok = NULL;
		c->err = (struct genai_error)GENAI_ERROR_INIT;
	}
	status = run(c, &m);
	trace_enter("close");
	cli_close(&m);
	trace_leave();
	if (trace_finish(c) && !status)
		status = cli_fail(c);
	return status;
}

const struct command cmd_generate = {
	"generate",
	generate,
	"DIR [--prompt TEXT | --prompt-file F | --ids "
	"LIST]",
	"continue a prompt",
	options,
	NULL};
