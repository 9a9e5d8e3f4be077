// tok_post.c - post-processors: the special tokens around a text.
// All of them come down to ids before and ids after it.
#include "core/text/tokenizer/tok.h"

#include <string.h>

void tok_post_free(struct tok_post *p)
{
	tok_buf_free(&p->before);
	tok_buf_free(&p->after);
}

static int32_t add_id(const struct tok_load *l, json_t *j, struct tok_buf *to)
{
	int64_t id = json_is_integer(j) ? json_integer_value(j) : -1;

	if (id < 0 || id >= TOK_MAX_ID)
		return tok_bad(l, "post_processor: special token without id");
	tok_buf_add(to, &id, sizeof(id));
	return 0;
}

static int32_t add_special(const struct tok_load *l, json_t *special,
			   json_t *names, struct tok_buf *to)
{
	const char *id = json_string_value(json_object_get(special, "id"));
	json_t *ids =
		id ? json_object_get(json_object_get(names, id), "ids") : NULL;
	int32_t rc = 0;
	size_t i;

	if (!json_is_array(ids))
		return tok_bad(l, "TemplateProcessing: unknown special token");
	for (i = 0; !rc && i < json_array_size(ids); i++)
		rc = add_id(l, json_array_get(ids, i), to);
	return rc;
}

static int32_t parse_template(const struct tok_load *l, json_t *j,
			      struct tok_post *out)
{
	json_t *single = json_object_get(j, "single");
	json_t *names = json_object_get(j, "special_tokens"), *piece, *special;
	unsigned texts = 0;
	int32_t rc = 0;
	size_t i;

	for (i = 0; !rc && i < json_array_size(single); i++) {
		piece = json_array_get(single, i);
		special = json_object_get(piece, "SpecialToken");
		if (special)
			rc = add_special(l, special, names,
					 texts ? &out->after : &out->before);
		else if (json_object_get(piece, "Sequence"))
			texts++;
		else
			rc = tok_bad(l, "TemplateProcessing: unknown piece");
	}
	if (!rc && texts != 1)
		rc = tok_unsupported(l, "post_processor",
				     "TemplateProcessing without just one $A");
	return rc;
}

// BertProcessing and RobertaProcessing: "cls": [text, id], "sep": [text, id].
static int32_t parse_pair(const struct tok_load *l, json_t *j,
			  struct tok_post *out)
{
	json_t *cls = json_array_get(json_object_get(j, "cls"), 1);
	json_t *sep = json_array_get(json_object_get(j, "sep"), 1);
	int32_t rc = add_id(l, cls, &out->before);

	return rc ? rc : add_id(l, sep, &out->after);
}

static int32_t parse_one(const struct tok_load *l, json_t *j, void *user)
{
	const char *type = tok_type(j);
	struct tok_post *out = user;

	if (!strcmp(type, "ByteLevel")) // moves offsets only
		return 0;
	// The reference would take the first one's tokens for texts.
	if (out->before.n || out->after.n)
		return tok_unsupported(l, "post_processor",
				       "Sequence of two that add tokens");
	if (!strcmp(type, "TemplateProcessing"))
		return parse_template(l, j, user);
	if (!strcmp(type, "BertProcessing") ||
	    !strcmp(type, "RobertaProcessing"))
		return parse_pair(l, j, user);
	return tok_unsupported(l, "post_processor", type);
}

int32_t tok_post_parse(const struct tok_load *l, json_t *j,
		       struct tok_post *out)
{
	return tok_sequence(l, j, "processors", parse_one, out);
}
