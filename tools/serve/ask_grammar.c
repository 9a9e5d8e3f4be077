// ask_grammar.c - what the text of an answer has to be: response_format of
// OpenAI, structured_outputs of vLLM.
#include "tools/serve/serve.h"

#include <stdlib.h>
#include <string.h>

static int set(struct ask *a, const char *kind, const json_t *data,
	       const char *param, struct serve_error *e)
{
	if (a->grammar)
		return refuse(e, 400, "invalid_value", param,
			      "%s: the text is told to be two things", param);
	a->grammar_kind = kind;
	a->grammar_param = param;
	if (!data)
		a->grammar = strdup("");
	else if (json_is_string(data))
		a->grammar = strdup(json_string_value(data));
	else
		a->grammar = json_dumps(data, JSON_COMPACT);
	return a->grammar ? 0 : refuse(e, 500, NULL, NULL, "no memory");
}

static int format(const json_t *f, struct ask *a, struct serve_error *e)
{
	static const char param[] = "response_format";
	const json_t *type = json_object_get(f, "type"), *schema;
	const char *t = json_string_value(type);

	if (!t)
		return refuse(e, 400, "invalid_type", param,
			      "response_format: an object with a type is "
			      "needed");
	if (!strcmp(t, "text"))
		return 0;
	if (!strcmp(t, "json_object"))
		return set(a, "json_object", NULL, param, e);
	if (strcmp(t, "json_schema"))
		return refuse(e, 400, "unsupported_value", param,
			      "response_format: %.40s is not known: text, "
			      "json_object, json_schema are",
			      t);
	schema = json_object_get(json_object_get(f, "json_schema"), "schema");
	if (!json_is_object(schema))
		return refuse(e, 400, "invalid_type", param,
			      "response_format.json_schema.schema: an object "
			      "is needed");
	return set(a, "json_schema", schema, param, e);
}

static int choice(const json_t *list, struct ask *a, struct serve_error *e)
{
	json_t *grammar;
	struct evbuffer *b;
	const json_t *v;
	size_t i;
	int rc = 0;

	if (!json_array_size(list))
		return refuse(e, 400, "invalid_type", "structured_outputs",
			      "structured_outputs.choice: an array of texts "
			      "is needed");
	b = evbuffer_new();
	evbuffer_add_printf(b, "start: ");
	json_array_foreach(list, i, v)
	{
		char *text = json_is_string(v) ? json_dumps(v, JSON_ENCODE_ANY)
					       : NULL;

		if (!text)
			rc = refuse(e, 400, "invalid_type",
				    "structured_outputs",
				    "structured_outputs.choice[%zu]: a string "
				    "is needed",
				    i);
		else
			evbuffer_add_printf(b, "%s%s", i ? " | " : "", text);
		free(text);
		if (rc)
			break;
	}
	evbuffer_add(b, "", 1);
	grammar = json_string((const char *)evbuffer_pullup(b, -1));
	evbuffer_free(b);
	if (!rc)
		rc = set(a, "lark", grammar, "structured_outputs", e);
	json_decref(grammar);
	return rc;
}

static int outputs(const json_t *o, struct ask *a, struct serve_error *e)
{
	static const char param[] = "structured_outputs";
	const char *key;
	json_t *v;

	if (!json_is_object(o))
		return refuse(e, 400, "invalid_type", param,
			      "structured_outputs: an object is needed");
	json_object_foreach((json_t *)(uintptr_t)o, key, v)
	{
		int rc;

		if (json_is_null(v))
			continue;
		if (!strcmp(key, "json") &&
		    (json_is_object(v) || json_is_string(v)))
			rc = set(a, "json_schema", v, param, e);
		else if (!strcmp(key, "regex") && json_is_string(v))
			rc = set(a, "regex", v, param, e);
		else if (!strcmp(key, "grammar") && json_is_string(v))
			rc = set(a, "lark", v, param, e);
		else if (!strcmp(key, "json_object") && json_is_true(v))
			rc = set(a, "json_object", NULL, param, e);
		else if (!strcmp(key, "choice"))
			rc = choice(v, a, e);
		else
			rc = refuse(e, 400, "unsupported_value", param,
				    "structured_outputs.%.40s: json, regex, "
				    "grammar, choice and json_object are "
				    "known, each of its type",
				    key);
		if (rc)
			return rc;
	}
	return 0;
}

int ask_grammar(struct serve *s, const json_t *body, struct ask *a,
		struct serve_error *e)
{
	const json_t *f = json_object_get(body, "response_format");
	const json_t *o = json_object_get(body, "structured_outputs");

	if ((f && !json_is_null(f) && format(f, a, e)) ||
	    (o && !json_is_null(o) && outputs(o, a, e)))
		return -1;
	if (!a->grammar)
		return 0;
	if (!s->constrain)
		return refuse(e, 400, "unsupported_parameter", a->grammar_param,
			      "%s", s->why_not);
	if (a->request.flags & GENAI_REQUEST_IGNORE_EOS ||
	    a->request.min_tokens)
		return refuse(e, 400, "invalid_value", a->grammar_param,
			      "%s: the structure says where the "
			      "text ends; ignore_eos and min_tokens do not go "
			      "with it",
			      a->grammar_param);
	return 0;
}
