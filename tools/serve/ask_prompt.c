// ask_prompt.c - texts, arrays of ids and conversations become ids.
#include "tools/serve/serve.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

int ask_text(struct serve *s, const json_t *text, const char *param,
	     bool no_special, struct ask_prompt *out, struct serve_error *e)
{
	struct genai_error err = GENAI_ERROR_INIT;

	if (!s->tok)
		return refuse(e, 400, "invalid_value", param,
			      "%s: the model has no tokenizer; ids are needed",
			      param);
	if (genai_tokenizer_encode(s->tok, json_string_value(text),
				   json_string_length(text),
				   no_special ? GENAI_TOK_NO_SPECIAL : 0,
				   &out->ids, &out->n, &err))
		return refuse_from(e, &err, param);
	if (!out->n)
		return refuse(e, 400, "invalid_value", param, "%s: it is empty",
			      param);
	return 0;
}

int ask_ids(struct serve *s, const json_t *array, const char *param,
	    struct ask_prompt *out, struct serve_error *e)
{
	size_t n = json_array_size(array);
	int64_t *ids;

	if (!n)
		return refuse(e, 400, "invalid_type", param,
			      "%s: a text or an array of ids is needed, not "
			      "empty",
			      param);
	ids = malloc(n * sizeof(*ids));
	if (!ids)
		return refuse_memory(e);
	for (size_t i = 0; i < n; i++) {
		const json_t *v = json_array_get(array, i);

		ids[i] = json_integer_value(v);
		if (json_is_integer(v) && ids[i] >= 0 &&
		    ids[i] < s->info.vocab_size)
			continue;
		free(ids);
		return refuse(e, 400, "invalid_value", param,
			      "%s: item %zu is no id below %u", param, i,
			      s->info.vocab_size);
	}
	out->ids = ids;
	out->n = n;
	return 0;
}

// ---- conversations ----

// The texts of parts as one; templates expect it so.
static int join_parts(json_t *message, const json_t *parts, size_t at,
		      struct serve_error *e)
{
	struct evbuffer *all = evbuffer_new();
	const json_t *part;
	size_t i;
	int rc = 0;

	json_array_foreach(parts, i, part)
	{
		const char *type =
			json_string_value(json_object_get(part, "type"));
		const json_t *text = json_object_get(part, "text");

		if (!type || strcmp(type, "text"))
			rc = refuse(e, 400, "unsupported_value", "messages",
				    "messages[%zu].content[%zu]: only parts "
				    "of type text are taken, not %.40s",
				    at, i, type ? type : "one without a type");
		else if (!json_is_string(text))
			rc = refuse(e, 400, "invalid_type", "messages",
				    "messages[%zu].content[%zu].text: a "
				    "string is needed",
				    at, i);
		if (rc)
			break;
		evbuffer_add(all, json_string_value(text),
			     json_string_length(text));
	}
	if (!rc)
		json_object_set_new(
			message, "content",
			json_stringn((const char *)evbuffer_pullup(all, -1),
				     evbuffer_get_length(all)));
	evbuffer_free(all);
	return rc;
}

// OpenAI has the arguments of a call as a text, templates as an object.
static int open_calls(json_t *message, size_t at, struct serve_error *e)
{
	json_t *call, *calls = json_object_get(message, "tool_calls");
	size_t i;

	json_array_foreach(calls, i, call)
	{
		json_t *f = json_object_get(call, "function"), *object;
		const json_t *text = json_object_get(f, "arguments");

		if (!json_is_string(json_object_get(f, "name")))
			return refuse(e, 400, "invalid_type", "messages",
				      "messages[%zu].tool_calls[%zu]: a "
				      "function with a name is needed",
				      at, i);
		if (!json_is_string(text))
			continue;
		object = json_loadb(json_string_value(text),
				    json_string_length(text), 0, NULL);
		if (object)
			json_object_set_new(f, "arguments", object);
	}
	return 0;
}

static int check_message(json_t *m, size_t i, struct serve_error *e)
{
	const json_t *content = json_object_get(m, "content");

	if (!json_is_object(m) || !json_is_string(json_object_get(m, "role")))
		return refuse(e, 400, "invalid_type", "messages",
			      "messages[%zu]: an object with a role is needed",
			      i);
	if (open_calls(m, i, e))
		return -1;
	if (json_is_array(content))
		return join_parts(m, content, i, e);
	if (content && !json_is_null(content) && !json_is_string(content))
		return refuse(e, 400, "invalid_type", "messages",
			      "messages[%zu].content: a string or an array of "
			      "parts is needed",
			      i);
	if (json_is_string(content))
		return 0;
	if (!json_array_size(json_object_get(m, "tool_calls")))
		return refuse(e, 400, "invalid_type", "messages",
			      "messages[%zu].content: it is missing", i);
	json_object_set_new(m, "content", json_string(""));
	return 0;
}

// A variable of the template, if the body has it.
static int take(json_t *vars, const json_t *body, const char *name, bool array,
		struct serve_error *e)
{
	json_t *v = json_object_get(body, name);

	if (!v || json_is_null(v))
		return 0;
	if (array && !json_is_array(v))
		return refuse(e, 400, "invalid_type", name,
			      "%s: an array is needed", name);
	json_object_set(vars, name, v);
	return 0;
}

// Each is a function that can be named, with a schema of its parameters or
// none.
static int check_tools(const json_t *body, struct serve_error *e)
{
	const json_t *tools = json_object_get(body, "tools"), *tool;
	size_t i;

	if (tools && !json_is_null(tools) && !json_is_array(tools))
		return refuse(e, 400, "invalid_type", "tools",
			      "tools: an array is needed");
	json_array_foreach(tools, i, tool)
	{
		const char *type =
			json_string_value(json_object_get(tool, "type"));
		const json_t *f = json_object_get(tool, "function");
		const json_t *schema = json_object_get(f, "parameters");

		if (type && strcmp(type, "function"))
			return refuse(e, 400, "unsupported_value", "tools",
				      "tools[%zu]: only functions are known "
				      "here, not %.40s",
				      i, type);
		if (!json_is_string(json_object_get(f, "name")))
			return refuse(e, 400, "invalid_type", "tools",
				      "tools[%zu].function.name: a string is "
				      "needed",
				      i);
		if (schema && !json_is_null(schema) && !json_is_object(schema))
			return refuse(e, 400, "invalid_type", "tools",
				      "tools[%zu].function.parameters: an "
				      "object is needed",
				      i);
	}
	return 0;
}

// Are the tools to be told?  Which one is called is the model's choice.
static int tool_choice(const json_t *body, bool *out, struct serve_error *e)
{
	const json_t *v = json_object_get(body, "tool_choice");
	const char *choice = json_string_value(v);

	*out = true;
	if (!v || json_is_null(v) || (choice && !strcmp(choice, "auto")))
		return 0;
	// what is forced: ask_grammar.c
	if (json_is_object(v) || (choice && !strcmp(choice, "required")))
		return 0;
	*out = false;
	if (choice && !strcmp(choice, "none"))
		return 0;
	return refuse(e, 400, "unsupported_value", "tool_choice",
		      "tool_choice: \"auto\", \"none\", \"required\" or a "
		      "function is needed");
}

static int chat_flag(const json_t *body, const char *name, bool *out,
		     struct serve_error *e)
{
	const json_t *v = json_object_get(body, name);

	if (!v || json_is_null(v))
		return 0;
	if (!json_is_boolean(v))
		return refuse(e, 400, "invalid_type", name,
			      "%s: true or false is needed", name);
	*out = json_is_true(v);
	return 0;
}

static int chat_vars(const json_t *body, json_t *vars, struct serve_error *e)
{
	json_t *messages = json_object_get(body, "messages"), *m;
	const json_t *more = json_object_get(body, "chat_template_kwargs");
	bool tools;
	size_t i;

	if (!json_array_size(messages))
		return refuse(e, 400, "invalid_type", "messages",
			      "messages: an array is needed, not empty");
	json_array_foreach(messages, i,
			   m) if (check_message(m, i, e)) return -1;
	json_object_set(vars, "messages", messages);
	if (more && !json_is_null(more) && !json_is_object(more))
		return refuse(e, 400, "invalid_type", "chat_template_kwargs",
			      "chat_template_kwargs: an object is needed");
	if (json_is_object(more))
		json_object_update_missing(vars, (json_t *)(uintptr_t)more);
	if (check_tools(body, e) || tool_choice(body, &tools, e))
		return -1;
	return (tools && take(vars, body, "tools", true, e)) ||
			       take(vars, body, "documents", true, e) ||
			       take(vars, body, "reasoning_effort", false, e)
		       ? -1
		       : 0;
}

int ask_chat(struct serve *s, json_t *body, struct ask_prompt *out,
	     struct serve_error *e)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_chat_options o = {.size = sizeof(o)};
	bool answer = true, go_on = false;
	const struct genai_template *t;
	json_t *vars;
	char *text;
	int rc;

	if (!s->template || !s->tok)
		return refuse(e, 400, "invalid_value", "messages",
			      "messages: the model has no %s",
			      s->tok ? "chat template" : "tokenizer");
	if (chat_flag(body, "add_generation_prompt", &answer, e) ||
	    chat_flag(body, "continue_final_message", &go_on, e))
		return -1;
	o.flags = (go_on ? GENAI_CHAT_CONTINUE : 0) |
		  (answer && !go_on ? 0 : GENAI_CHAT_NO_ANSWER);
	vars = json_object();
	rc = chat_vars(body, vars, e);
	if (!rc) {
		t = json_object_get(vars, "tools") ? s->with_tools
						   : s->template;
		text = json_dumps(vars, JSON_COMPACT);
		if (genai_template_encode(t, s->tok, text, strlen(text), &o,
					  &out->ids, &out->n, &err))
			rc = refuse_from(e, &err, "messages");
		free(text);
	}
	if (!rc && !out->n)
		rc = refuse(e, 400, "invalid_value", "messages",
			    "messages: the template makes no prompt of them");
	json_decref(vars);
	return rc;
}
