// server.c - the server's own files over an engine that is none: what run.c and
// embed.c are where a model is.
#include "tests/fuzz/fuzz.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "tools/serve/serve.h"

static struct cli cli = {.quiet = true};
static struct serve_options options = {
	.queue = 8,
	.body = 65536,
	.connections = 64,
	.timeout = 60,
	.idle = 60,
};
static struct serve server = {.c = &cli, .o = &options, .name = "m"};
static bool is_open;
static char folder[64], path[128];

double cli_now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (double)t.tv_sec + (double)t.tv_nsec * 1e-9;
}

bool serve_is_healthy(const struct serve *s)
{
	(void)s;
	return true;
}

void embed_begin(struct serve *s, struct evhttp_request *req, json_t *body)
{
	(void)s;
	(void)req;
	(void)body;
	abort(); // it makes text
}

void embed_note(struct serve *s)
{
	(void)s;
}

static void need(int32_t rc, const struct genai_error *err)
{
	if (!rc)
		return;
	fprintf(stderr, "fuzz: %s\n", err->text);
	exit(2);
}

struct serve *fuzz_server(void)
{
	static const char model[] = GENAI_TESTDATA "/models/llama-cpu-fp32";
	static int64_t eos[] = {0};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_tokenizer *tok;
	struct serve *s = &server;

	if (is_open)
		return s;
	is_open = true;
	need(genai_tokenizer_open(model, &tok, &err), &err);
	s->tok = tok;
	need(genai_template_open(model, 0, &s->template, &err), &err);
	need(genai_template_open(model, 1, &s->with_tools, &err), &err);
	s->info = (struct genai_model_info){.size = sizeof(s->info)};
	s->info.vocab_size = 512;
	s->info.eos = eos;
	s->info.n_eos = 1;
	s->limits.context = 512;
	format_find(s);
	if (constrain_open(model, s->info.vocab_size, eos, 1, &s->constrain,
			   &err))
		snprintf(s->why_not, sizeof(s->why_not), "%s", err.text);
	return s;
}

const char *fuzz_server_listen(const char **out_path)
{
	struct genai_error err = GENAI_ERROR_INIT;
	const char *tmp = getenv("TMPDIR");
	struct serve *s = fuzz_server();

	snprintf(folder, sizeof(folder), "%.40s/fuzz.XXXXXX",
		 tmp ? tmp : "/tmp");
	if (!mkdtemp(folder))
		return "no folder for a socket";
	snprintf(path, sizeof(path), "%s/s", folder);
	options.socket = path;
	event_set_log_callback(NULL);
	s->base = event_base_new();
	if (!s->base)
		return "no memory";
	need(http_open(s, &err), &err);
	*out_path = path;
	return NULL;
}

void fuzz_server_close(void)
{
	struct serve *s = &server;

	if (s->base) {
		http_close(s);
		event_base_free(s->base);
		rmdir(folder);
		libevent_global_shutdown();
	}
	if (is_open) {
		genai_template_close(s->template);
		genai_template_close(s->with_tools);
		constrain_close(s->constrain);
		genai_tokenizer_close(
			(struct genai_tokenizer *)(uintptr_t)s->tok);
	}
	s->base = NULL;
	is_open = false;
}
