// chat.c - a conversation on stdin and stdout: all of it together.
//
//     chat DIR
//
// A line is a turn.  What the new prompt has in common with what the session
// has computed is kept: session and sampler go back to where the two differ.
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <genai/genai.h>
#include <genai/text.h>

#define MOST 64	     // new tokens a turn
#define MAX_IDS 4096 // of the conversation

static struct genai_error err = GENAI_ERROR_INIT;

struct chat {
	struct genai_runtime *rt;
	struct genai_model *model;
	struct genai_session *session;
	struct genai_model_info info;
	struct genai_tokenizer *tok;
	struct genai_template *template;
	struct genai_sampler *sampler;
	float *logits;
	int64_t ids[MAX_IDS]; // what session and sampler know
	size_t n_ids;
	char vars[65536]; // {"messages": [ ...  as far as it is
	size_t n_vars;
};

static int chat_open(struct chat *c, const char *folder)
{
	struct genai_sampling sampling = GENAI_SAMPLING_INIT;
	int rc = genai_open(NULL, &c->rt, &err);

	if (!rc)
		rc = genai_model_open(c->rt, folder, NULL, &c->model, &err);
	c->info.size = sizeof(c->info);
	if (!rc)
		rc = genai_model_get_info(c->model, &c->info);
	if (!rc)
		rc = genai_session_open(c->model, &c->session, &err);
	if (!rc)
		rc = genai_tokenizer_open(folder, &c->tok, &err);
	if (!rc)
		rc = genai_template_open(folder, 0, &c->template, &err);
	sampling.do_sample = 1;
	sampling.temperature = 0.7f;
	sampling.top_p = 0.9f;
	sampling.seed = 1;
	if (!rc)
		rc = genai_sampler_open(&sampling, c->info.vocab_size,
					c->info.eos, c->info.n_eos, &c->sampler,
					&err);
	c->logits = malloc(c->info.vocab_size * sizeof(*c->logits));
	c->n_vars = (size_t)sprintf(c->vars, "{\"messages\": [");
	return rc ? rc : c->logits ? 0 : -1;
}

static void chat_close(struct chat *c)
{
	free(c->logits);
	genai_sampler_close(c->sampler);
	genai_template_close(c->template);
	genai_tokenizer_close(c->tok);
	genai_session_close(c->session);
	genai_model_close(c->model);
	genai_close(c->rt);
}

// Append a message, whose text may be in pieces: begin, text..., end.
static void add(struct chat *c, const char *text, size_t n, int quote)
{
	for (; n && c->n_vars < sizeof(c->vars) - 16; n--, text++) {
		if (quote && (unsigned char)*text < ' ') {
			c->n_vars +=
				(size_t)sprintf(c->vars + c->n_vars, "\\u%04x",
						(unsigned char)*text);
			continue;
		}
		if (quote && (*text == '"' || *text == '\\'))
			c->vars[c->n_vars++] = '\\';
		c->vars[c->n_vars++] = *text;
	}
}

static void begin(struct chat *c, const char *role)
{
	char head[64];
	int n = snprintf(head, sizeof(head),
			 "%s{\"role\": \"%s\", \"content\": \"",
			 c->vars[c->n_vars - 1] == '[' ? "" : ", ", role);

	add(c, head, (size_t)n, 0);
}

// The ids of the whole conversation, made what session and sampler know.
static int read_prompt(struct chat *c)
{
	size_t n = 0, same = 0, end = c->n_vars;
	int64_t *ids = NULL;
	int rc;

	add(c, "]}", 2, 0);
	rc = genai_template_encode(c->template, c->tok, c->vars, c->n_vars,
				   NULL, &ids, &n, &err);
	c->n_vars = end;
	if (rc)
		return rc;
	if (n + MOST > MAX_IDS || !n) {
		genai_free(ids);
		snprintf(err.text, sizeof(err.text), "the prompt has %zu ids",
			 n);
		return -1;
	}
	// one is computed at least, for its logits
	while (same < c->n_ids && same < n - 1 && c->ids[same] == ids[same])
		same++;
	rc = genai_session_rewind(c->session, same, &err);
	if (same)
		genai_sampler_rewind(c->sampler, same);
	else
		genai_sampler_reset(c->sampler);
	if (!rc)
		rc = genai_session_append(c->session, ids + same, n - same,
					  &err);
	if (!rc)
		rc = genai_sampler_accept(c->sampler, ids + same, n - same,
					  &err);
	memcpy(c->ids, ids, n * sizeof(*ids));
	c->n_ids = n;
	genai_free(ids);
	return rc;
}

static int is_end(const struct chat *c, int64_t id)
{
	for (uint32_t i = 0; i < c->info.n_eos; i++)
		if (c->info.eos[i] == id)
			return 1;
	return 0;
}

static int answer(struct chat *c)
{
	struct genai_detok *d = NULL;
	const char *text;
	size_t rows, bytes;
	int64_t id;
	int rc = genai_detok_open(c->tok, 0, &d, &err);

	begin(c, "assistant");
	for (int i = 0; !rc && i < MOST; i++) {
		if (genai_sampler_is_greedy(c->sampler)) {
			rc = genai_session_next(c->session, 0, &id, &err);
		} else {
			rc = genai_session_logits(c->session, c->logits, 1,
						  &rows, &err);
			if (!rc)
				rc = genai_sampler_pick(c->sampler, c->logits,
							&id, &err);
			if (!rc)
				rc = genai_session_append(c->session, &id, 1,
							  &err);
		}
		if (rc)
			break;
		c->ids[c->n_ids++] = id;
		if (is_end(c, id))
			break;
		rc = genai_detok_push(d, id, &text, &bytes, &err);
		if (rc)
			break;
		printf("%.*s", (int)bytes, text);
		fflush(stdout);
		add(c, text, bytes, 1);
	}
	if (!rc)
		rc = genai_detok_flush(d, &text, &bytes, &err);
	if (!rc) {
		printf("%.*s\n", (int)bytes, text);
		add(c, text, bytes, 1);
		add(c, "\"}", 2, 0);
	}
	genai_detok_close(d);
	return rc;
}

int main(int argc, char **argv)
{
	static struct chat c;
	char line[4096];
	int rc;

	if (argc != 2) {
		fprintf(stderr, "usage: chat DIR\n");
		return 2;
	}
	rc = chat_open(&c, argv[1]);
	while (!rc && fgets(line, sizeof(line), stdin)) {
		begin(&c, "user");
		add(&c, line, strcspn(line, "\n"), 1);
		add(&c, "\"}", 2, 0);
		rc = read_prompt(&c);
		if (!rc)
			rc = answer(&c);
	}
	if (rc)
		fprintf(stderr, "chat: %s\n", err.text);
	chat_close(&c);
	return rc ? 1 : 0;
}
