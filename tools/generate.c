// generate.c - the command that continues a prompt.
#include "tools/cli.h"

#include <stdlib.h>
#include <string.h>

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
