// targets.c - what is fuzzed: the bodies of requests, structures.
#include <string.h>

#include "core/text/tokenizer/tok.h"
#include "tests/fuzz/fuzz.h"
#include "tools/serve/serve.h"

static const char *open_server(void)
{
	fuzz_server();
	return NULL;
}

// ---- bodies ----

// An error that a client could be told.
static const char *refused(const struct serve_error *e)
{
	json_t *j;
	char *text;

	if (e->status < 400 || e->status > 599)
		return "a status that is no error's";
	if (!*e->text ||
	    tok_utf8_check(e->text, strlen(e->text)) != strlen(e->text))
		return "a message that is none";
	j = refuse_json(e);
	text = json_dumps(j, JSON_COMPACT);
	json_decref(j);
	if (!text)
		return "an error that is no JSON";
	free(text);
	return NULL;
}

static const char *asked(const struct ask *a)
{
	if (!a->n_prompts || a->n_prompts * a->request.n > ASK_MAX_PROMPTS)
		return "so many choices are not allowed";
	if (a->request.n_stops > ASK_MAX_STOPS ||
	    a->request.n_stop_ids > ASK_MAX_STOPS || a->request.n_top > 20)
		return "a limit is not kept";
	for (uint32_t i = 0; i < a->n_prompts; i++)
		if (!a->prompts[i].n)
			return "a prompt is empty";
	return NULL;
}

static const char *body(const char *text, size_t n,
			int (*read)(struct serve *, json_t *, struct ask **,
				    struct serve_error *))
{
	struct serve *s = fuzz_server();
	struct serve_error e = {0};
	const char *wrong;
	struct ask *a;
	json_t *j;

	if (routes_body(text, n, &j, &e) || read(s, j, &a, &e))
		return refused(&e);
	wrong = asked(a);
	ask_free(a);
	return wrong;
}

static int read_text(struct serve *s, json_t *j, struct ask **out,
		     struct serve_error *e)
{
	return ask_read(s, false, j, out, e);
}

static int read_chat(struct serve *s, json_t *j, struct ask **out,
		     struct serve_error *e)
{
	return ask_read(s, true, j, out, e);
}

static const char *run_text(const char *s, size_t n, uint64_t *seed)
{
	(void)seed;
	return body(s, n, read_text);
}

static const char *run_chat(const char *s, size_t n, uint64_t *seed)
{
	(void)seed;
	return body(s, n, read_chat);
}

static const char *run_response(const char *s, size_t n, uint64_t *seed)
{
	(void)seed;
	return body(s, n, response_read);
}

static const char *run_vectors(const char *text, size_t n, uint64_t *seed)
{
	static const struct genai_embedder_info info = {
		.size = sizeof(info),
		.dimensions = 8,
		.max_tokens = 64,
		.prompt = "",
	};
	struct ask_vectors a;
	struct serve_error e = {0};
	json_t *j;

	(void)seed;
	if (routes_body(text, n, &j, &e) ||
	    ask_vectors(fuzz_server(), &info, j, &a, &e))
		return refused(&e);
	for (uint32_t i = 0; i < a.n_texts; i++)
		if (!a.texts[i].n || a.texts[i].n > info.max_tokens)
			return "a text is empty, or too long";
	ask_vectors_free(&a);
	return NULL;
}

// ---- structures ----

static const char *open_structures(void)
{
	struct serve *s = fuzz_server();

	return s->constrain ? NULL : s->why_not;
}

// Compiled, and some tokens along a text of it.
static const char *structure(const char *kind, const char *text, uint64_t *seed)
{
	struct serve *s = fuzz_server();
	struct genai_error err = GENAI_ERROR_INIT;
	struct constraint *k;
	uint32_t bits[16];
	int64_t ids[8];

	if (constraint_open(s->constrain, kind, text, 1, &k, &err))
		return *err.text ? NULL : "an error without a word";
	for (size_t n = 0; n < 8; n++) {
		int64_t id = (int64_t)fuzz_draw(seed, 512);
		int tries = 512;

		if (constraint_allow(k, 0, ids, n, bits, &err))
			break; // too much for it, which it said
		while (tries-- && !(bits[id / 32] >> (id % 32) & 1))
			id = (id + 1) % 512;
		if (tries < 0) {
			constraint_close(k);
			return "nothing may come next, and no error says so";
		}
		if (id == s->info.eos[0])
			break;
		ids[n] = id;
	}
	constraint_close(k);
	return NULL;
}

static const char *run_schema(const char *s, size_t n, uint64_t *seed)
{
	(void)n;
	return structure("json_schema", s, seed);
}

static const char *run_regex(const char *s, size_t n, uint64_t *seed)
{
	(void)n;
	return structure("regex", s, seed);
}

static const char *run_grammar(const char *s, size_t n, uint64_t *seed)
{
	(void)n;
	return structure("lark", s, seed);
}

#define CLOSE fuzz_server_close
const struct fuzz_target
	fuzz_text = {"text", "text", false, open_server, run_text, CLOSE, 1},
	fuzz_chat = {"chat", "chat", false, open_server, run_chat, CLOSE, 1},
	fuzz_response = {"response",   "response", false, open_server,
			 run_response, CLOSE,	   1},
	fuzz_vectors = {"vectors",   "vectors", false, open_server,
			run_vectors, CLOSE,	1},
	fuzz_schema = {"schema",   "schema", false, open_structures,
		       run_schema, CLOSE,    20},
	fuzz_regex = {"regex",	 "regex", true, open_structures,
		      run_regex, CLOSE,	  20},
	fuzz_grammar = {"grammar",   "grammar", true, open_structures,
			run_grammar, CLOSE,	20};
