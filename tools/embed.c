// embed.c - texts to vectors.
#include "tools/cli.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

static struct {
	const char *model, *text, *file, *pooling;
	int64_t max_tokens;
	bool normalize, raw, truncate, json;
} args;

static const struct cli_option options[] = {
	{"text", 0, CLI_TEXT, "TEXT", "one text; without: a text a line of",
	 &args.text},
	{"file", 0, CLI_TEXT, "FILE", "this file (stdin)", &args.file},
	{"pooling", 0, CLI_TEXT, "HOW",
	 "mean, cls or last (as the folder says)", &args.pooling},
	{"normalize", 0, CLI_FLAG, NULL, "vectors of length 1",
	 &args.normalize},
	{"no-normalize", 0, CLI_FLAG, NULL, "as long as they come", &args.raw},
	{"max-tokens", 0, CLI_INT, "N", "of a text, at most (the model's)",
	 &args.max_tokens, 1, INT32_MAX},
	{"truncate", 0, CLI_FLAG, NULL, "cut texts that are longer",
	 &args.truncate},
	{"json", 0, CLI_FLAG, NULL, "one JSON object", &args.json},
	{0}};

struct work {
	struct genai_embedder *e;
	struct genai_embedder_info info;
	struct genai_tokenizer *tok;
	float *vector;
	json_t *list;
	uint64_t texts, tokens;
};

static int32_t one(struct cli *c, struct work *w, const char *text, size_t n)
{
	int64_t *ids;
	size_t count;
	int32_t rc = cli_embed_ids(w->tok, &w->info, text, n, args.truncate,
				   &ids, &count, &c->err);

	w->texts++;
	if (!rc) {
		rc = genai_embedder_run(w->e, ids, count, w->vector, &c->err);
		w->tokens += count;
		free(ids);
	}
	if (rc) {
		genai_error_prefix(&c->err, "text %" PRIu64, w->texts);
		return rc;
	}
	if (args.json) {
		json_t *v = json_array();

		for (uint32_t i = 0; i < w->info.dimensions; i++)
			json_array_append_new(v, json_real(w->vector[i]));
		json_array_append_new(w->list, v);
		return 0;
	}
	for (uint32_t i = 0; i < w->info.dimensions; i++)
		printf("%c%.9g", i ? ',' : '[', w->vector[i]);
	printf("]\n");
	return 0;
}

static int32_t lines(struct cli *c, struct work *w)
{
	char *text = NULL;
	size_t n = 0;
	int32_t rc = 0;

	if (!cli_slurp(c, args.file ? args.file : "-", &text, &n))
		return c->err.code;
	for (size_t at = 0; !rc && at < n;) {
		char *end = memchr(text + at, '\n', n - at);
		size_t bytes = end ? (size_t)(end - text) - at : n - at;
		size_t next = at + bytes + 1;

		if (bytes && text[at + bytes - 1] == '\r')
			bytes--;
		rc = one(c, w, text + at, bytes);
		at = next;
		if (!rc && cli_interrupted)
			rc = genai_fail(&c->err, GENAI_E_INTERRUPTED,
					"interrupted");
	}
	free(text);
	return rc;
}

static int32_t open_all(struct cli *c, struct genai_runtime *rt,
			const struct genai_embedder_options *o, struct work *w)
{
	int32_t rc = genai_embedder_open(rt, args.model, o, &w->e, &c->err);

	w->info.size = sizeof(w->info);
	if (!rc)
		rc = genai_embedder_get_info(w->e, &w->info);
	if (!rc)
		rc = genai_tokenizer_open(args.model, &w->tok, &c->err);
	if (rc)
		return rc;
	w->vector = malloc(w->info.dimensions * sizeof(*w->vector));
	return w->vector ? 0 : genai_fail(&c->err, GENAI_E_NOMEM, "no memory");
}

static int embed_all(struct cli *c, const struct genai_embedder_options *o)
{
	struct work w = {.list = json_array()};
	struct genai_runtime *rt = NULL;
	int32_t rc = cli_runtime(c, &rt);

	if (!rc)
		rc = open_all(c, rt, o, &w);
	if (!rc)
		rc = args.text ? one(c, &w, args.text, strlen(args.text))
			       : lines(c, &w);
	if (!rc && args.json)
		cli_print_json(json_pack("{s:I, s:I, s:O}", "dimensions",
					 (json_int_t)w.info.dimensions,
					 "tokens", (json_int_t)w.tokens,
					 "embeddings", w.list));
	free(w.vector);
	json_decref(w.list);
	genai_tokenizer_close(w.tok);
	genai_embedder_close(w.e);
	genai_close(rt);
	return rc ? cli_fail(c) : 0;
}

static int embed(struct cli *c, int argc, char **argv)
{
	static const char *const names[] = {"", "mean", "cls", "last"};
	struct genai_embedder_options o = {.size = sizeof(o)};
	int status = cli_argument(c, options, argc, argv, "one model folder",
				  &args.model);

	if (status)
		return status;
	if (args.text && args.file)
		return cli_usage(c, "--text or --file, not both");
	if (args.normalize && args.raw)
		return cli_usage(c, "--normalize or --no-normalize, not both");
	for (uint32_t i = 1; args.pooling && i < 4; i++)
		if (!strcmp(args.pooling, names[i]))
			o.pooling = i;
	if (args.pooling && !o.pooling)
		return cli_usage(c, "--pooling %s: one of mean, cls and last",
				 args.pooling);
	o.normalize = args.normalize ? 1 : args.raw ? -1 : 0;
	o.max_tokens = (uint64_t)args.max_tokens;
	c->json = args.json;
	cli_catch_interrupts(1);
	return embed_all(c, &o);
}

const struct command cmd_embed = {"embed",
				  embed,
				  "DIR [--text T | --file F] [--json]",
				  "texts to vectors",
				  options,
				  NULL};
