// ask_vectors.c - what /v1/embeddings is asked for: texts, ids, a form.
#include "tools/serve/serve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_TEXTS 2048 // of a request

static int read_text(struct serve *s, const json_t *v, struct ask_vectors *a,
		     struct serve_error *e)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct ask_prompt *p = &a->texts[a->n_texts];

	if (!json_is_string(v)) {
		if (ask_ids(s, v, "input", p, e))
			return -1;
	} else if (!s->tok) {
		return refuse(e, 400, "invalid_value", "input",
			      "input: the model has no tokenizer; ids are "
			      "needed");
	} else if (!json_string_length(v)) {
		return refuse(e, 400, "invalid_value", "input",
			      "input: text %u is empty", a->n_texts);
	} else if (cli_embed_ids(s->tok, a->info, json_string_value(v),
				 json_string_length(v), false, &p->ids, &p->n,
				 &err)) {
		return refuse_from(e, &err, "input");
	}
	a->n_tokens += p->n;
	a->n_texts++;
	if (p->n > a->info->max_tokens)
		return refuse(e, 400, "context_length_exceeded", "input",
			      "input: the %zu tokens of text %u are more than "
			      "the %" PRIu64 " that a text may have",
			      p->n, a->n_texts - 1, a->info->max_tokens);
	return 0;
}

static int read_texts(struct serve *s, struct ask_vectors *a,
		      struct serve_error *e)
{
	const json_t *v = json_object_get(a->body, "input");
	const json_t *first = json_array_get(v, 0);
	bool many = json_is_array(v) && !json_is_integer(first);
	size_t n = many ? json_array_size(v) : 1;

	if (!(json_is_string(v) || json_is_array(v)) || !n)
		return refuse(e, 400, "invalid_type", "input",
			      "input: a text, an array of ids, or an array of "
			      "these is needed, not empty");
	if (n > MAX_TEXTS)
		return refuse(e, 400, "invalid_value", "input",
			      "input: %zu texts are more than %d", n,
			      MAX_TEXTS);
	a->texts = calloc(n, sizeof(*a->texts));
	if (!a->texts)
		return refuse_memory(e);
	for (size_t i = 0; i < n; i++)
		if (read_text(s, many ? json_array_get(v, i) : v, a, e))
			return -1;
	return 0;
}

static int read_form(struct serve *s, struct ask_vectors *a,
		     struct serve_error *e)
{
	const json_t *v = json_object_get(a->body, "encoding_format");
	uint32_t width = a->info->dimensions;

	if (v && !json_is_null(v)) {
		const char *form = json_string_value(v);

		a->is_base64 = form && !strcmp(form, "base64");
		if (!a->is_base64 && (!form || strcmp(form, "float")))
			return refuse(e, 400, "unsupported_value",
				      "encoding_format",
				      "encoding_format: \"float\" or "
				      "\"base64\" is needed");
	}
	v = json_object_get(a->body, "dimensions");
	if (v && !json_is_null(v) &&
	    !(json_is_integer(v) && json_integer_value(v) == width))
		return refuse(e, 400, "unsupported_value", "dimensions",
			      "dimensions: the model's vectors have %u, no "
			      "other number can be asked for",
			      width);
	return 0;
}

int ask_vectors(struct serve *s, const struct genai_embedder_info *info,
		json_t *body, struct ask_vectors *out, struct serve_error *e)
{
	*out = (struct ask_vectors){.body = body, .info = info};
	if (ask_keys(body, ASK_VECTORS, e) || ask_model(s, body, e) ||
	    read_form(s, out, e) || read_texts(s, out, e)) {
		ask_vectors_free(out);
		return -1;
	}
	return 0;
}

void ask_vectors_free(struct ask_vectors *a)
{
	for (uint32_t i = 0; i < a->n_texts; i++)
		genai_free(a->texts[i].ids);
	free(a->texts);
	json_decref(a->body);
	*a = (struct ask_vectors){0};
}
