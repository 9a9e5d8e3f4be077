// ask_grammar.c - what the text of an answer has to be: response_format of
// OpenAI, structured_outputs of vLLM.
#include "tools/serve/serve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define MAX_GRAMMAR 65536 // bytes

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
	if (!a->grammar)
		return refuse_memory(e);
	// it is compiled while the others wait
	return strlen(a->grammar) <= MAX_GRAMMAR
		       ? 0
		       : refuse(e, 400, "invalid_value", param,
				"%s: %zu bytes are more than the %d that a "
				"structure may have",
				param, strlen(a->grammar), MAX_GRAMMAR);
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

// ---- calls that are forced ----

// A mark: a special token by its id, or its text.
static void put_mark(struct serve *s, struct evbuffer *b, const char *mark)
{
	int64_t id = s->tok ? genai_tokenizer_id(s->tok, mark) : -1;
	json_t *text;
	char *quoted;

	if (!*mark)
		return;
	if (id >= 0 && genai_tokenizer_is_special(s->tok, id)) {
		evbuffer_add_printf(b, " <[%" PRId64 "]>", id);
		return;
	}
	text = json_string(mark);
	quoted = json_dumps(text, JSON_ENCODE_ANY);
	evbuffer_add_printf(b, " %s", quoted);
	free(quoted);
	json_decref(text);
}

// References of a schema from its root, which is at a place of another's now.
static void move_references(json_t *schema, const char *place)
{
	static const char *const data[] = {"const", "enum", "default",
					   "examples"};
	const char *key, *to;
	size_t i;
	json_t *v;

	json_array_foreach(schema, i, v) move_references(v, place);
	json_object_foreach(schema, key, v)
	{
		bool is_data = false;

		for (i = 0; i < sizeof(data) / sizeof(data[0]); i++)
			is_data |= !strcmp(key, data[i]);
		if (is_data)
			continue;
		to = json_string_value(v);
		if (!to || strcmp(key, "$ref") || *to != '#' ||
		    (to[1] && to[1] != '/'))
			move_references(v, place);
		else
			json_object_set_new(
				schema, key,
				json_sprintf("#%s%s", place, to + 1));
	}
}

// A schema of the calls: of one function, or of any.
static json_t *calls_schema(const json_t *tools, const char *name,
			    const char *arguments)
{
	json_t *any = json_array(), *tool;
	char place[64];
	size_t i;

	json_array_foreach((json_t *)(uintptr_t)tools, i, tool)
	{
		const json_t *fn = json_object_get(tool, "function");
		json_t *known = json_object_get(fn, "name");
		json_t *given = json_object_get(fn, "parameters");

		if (!json_is_string(known) ||
		    (name && strcmp(name, json_string_value(known))))
			continue;
		given = json_is_object(given)
				? json_deep_copy(given)
				: json_pack("{s:s}", "type", "object");
		snprintf(place, sizeof(place), "/anyOf/%zu/properties/%s",
			 json_array_size(any), arguments);
		move_references(given, place);
		json_array_append_new(
			any, json_pack("{s:s, s:{s:{s:O}, s:o}, s:[s, s], s:b}",
				       "type", "object", "properties", "name",
				       "const", known, arguments, given,
				       "required", "name", arguments,
				       "additionalProperties", 0));
	}
	if (json_array_size(any))
		return json_pack("{s:o, s:{s:b}}", "anyOf", any, "x-guidance",
				 "whitespace_flexible", 0);
	json_decref(any);
	return NULL;
}

static int forced(struct serve *s, const json_t *body, struct ask *a,
		  struct serve_error *e)
{
	static const char param[] = "tool_choice";
	const json_t *v = json_object_get(body, param);
	const struct parse_format *f = &s->format;
	const char *name = json_string_value(
		json_object_get(json_object_get(v, "function"), "name"));
	struct evbuffer *b;
	json_t *schema, *lark;
	char *text;
	int rc;

	if (!json_is_object(v) &&
	    !(json_is_string(v) && !strcmp(json_string_value(v), "required")))
		return 0;
	if (json_is_object(v) && !name)
		return refuse(e, 400, "invalid_type", param,
			      "tool_choice.function.name: a string is needed");
	if (f->style != PARSE_MARKED && f->style != PARSE_BARE)
		return refuse(e, 400, "unsupported_value", param,
			      "tool_choice: a call cannot be forced in the "
			      "form that this model writes");
	schema = calls_schema(json_object_get(body, "tools"), name,
			      f->style == PARSE_BARE ? "parameters"
						     : "arguments");
	if (!schema)
		return refuse(e, 400, "invalid_value", param,
			      "tool_choice: there is no such tool: %.100s",
			      name ? name : "tools is empty");
	b = evbuffer_new();
	evbuffer_add_printf(b, "start:");
	put_mark(s, b, f->style == PARSE_MARKED ? f->open : "");
	evbuffer_add_printf(b, " call");
	put_mark(s, b, f->style == PARSE_MARKED ? f->close : "");
	text = json_dumps(schema, JSON_COMPACT);
	evbuffer_add_printf(b, "\ncall: %%json %s\n", text);
	free(text);
	json_decref(schema);
	evbuffer_add(b, "", 1);
	lark = json_string((const char *)evbuffer_pullup(b, -1));
	evbuffer_free(b);
	rc = set(a, "lark", lark, param, e);
	json_decref(lark);
	return rc;
}

int ask_grammar(struct serve *s, const json_t *body, struct ask *a,
		struct serve_error *e)
{
	const json_t *f = json_object_get(body, "response_format");
	const json_t *o = json_object_get(body, "structured_outputs");

	if ((f && !json_is_null(f) && format(f, a, e)) ||
	    (o && !json_is_null(o) && outputs(o, a, e)) ||
	    (a->is_chat && forced(s, body, a, e)))
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
