// response.c - /v1/responses: OpenAI's other form of a chat.  What it asks for
// becomes the body of a chat; what came of it is a list of items, whole or as
// the events of a stream.
#include "tools/serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

// ---- what is asked ----

static const struct {
	const char *name, *chat; // chat: how a chat calls it; NULL: see below
} keys[] = {
	{"model", "model"},
	{"input", NULL},
	{"instructions", NULL},
	{"max_output_tokens", "max_tokens"},
	{"temperature", "temperature"},
	{"top_p", "top_p"},
	{"top_k", "top_k"},
	{"min_p", "min_p"},
	{"repetition_penalty", "repetition_penalty"},
	{"presence_penalty", "presence_penalty"},
	{"frequency_penalty", "frequency_penalty"},
	{"seed", "seed"},
	{"stop", "stop"},
	{"ignore_eos", "ignore_eos"},
	{"logit_bias", "logit_bias"},
	{"cache_salt", "cache_salt"},
	{"chat_template_kwargs", "chat_template_kwargs"},
	{"stream", "stream"},
	{"tools", NULL},
	{"tool_choice", NULL},
	{"text", NULL},
	{"reasoning", NULL},
	{"parallel_tool_calls", "parallel_tool_calls"},
	{"user", "user"},
	{"metadata", "metadata"},
	{"store", "store"},
	{"service_tier", "service_tier"},
	{"safety_identifier", "safety_identifier"},
	{"prompt_cache_key", "prompt_cache_key"},
};
#define N_KEYS (sizeof(keys) / sizeof(keys[0]))

static json_t *get(const json_t *body, const char *name)
{
	json_t *v = json_object_get(body, name);

	return json_is_null(v) ? NULL : v;
}

static const char *text_of(const json_t *j, const char *name)
{
	const char *s = json_string_value(json_object_get(j, name));

	return s ? s : "";
}

static int rename_keys(json_t *body, json_t *chat, struct serve_error *e)
{
	const char *name;
	json_t *v;

	json_object_foreach(body, name, v)
	{
		size_t i = 0;

		while (i < N_KEYS && strcmp(keys[i].name, name) != 0)
			i++;
		if (i == N_KEYS && !json_is_null(v))
			return refuse(e, 400, "unsupported_parameter", NULL,
				      "%.100s: this server has no such "
				      "parameter of a response",
				      name);
		if (i < N_KEYS && keys[i].chat)
			json_object_set(chat, keys[i].chat, v);
	}
	return 0;
}

// Parts of a text are parts of type text in a chat.
static json_t *content_of(const json_t *item)
{
	json_t *content = json_object_get(item, "content"), *parts, *part;
	size_t i;

	if (!json_is_array(content))
		return content ? json_incref(content) : json_null();
	parts = json_array();
	json_array_foreach(content, i, part)
	{
		const char *type = text_of(part, "type");
		json_t *text = json_object_get(part, "text");

		if (json_is_string(text) && (!strcmp(type, "input_text") ||
					     !strcmp(type, "output_text")))
			json_array_append_new(parts,
					      json_pack("{s:s, s:O}", "type",
							"text", "text", text));
		else
			json_array_append(parts, part);
	}
	return parts;
}

// Calls that follow each other are of one message.
static void add_call(json_t *messages, const json_t *item)
{
	json_t *last = json_array_get(messages, json_array_size(messages) - 1);
	json_t *calls = json_object_get(last, "tool_calls");

	if (!calls) {
		calls = json_array();
		json_array_append_new(messages,
				      json_pack("{s:s, s:s, s:o}", "role",
						"assistant", "content", "",
						"tool_calls", calls));
	}
	json_array_append_new(
		calls, json_pack("{s:s, s:s, s:{s:s, s:s}}", "id",
				 text_of(item, "call_id"), "type", "function",
				 "function", "name", text_of(item, "name"),
				 "arguments", text_of(item, "arguments")));
}

static int add_item(json_t *messages, const json_t *item, size_t i,
		    struct serve_error *e)
{
	const char *type = text_of(item, "type");
	const char *role = text_of(item, "role");
	json_t *output = json_object_get(item, "output");

	if (!strcmp(type, "function_call")) {
		add_call(messages, item);
	} else if (!strcmp(type, "function_call_output")) {
		if (!json_is_string(output))
			return refuse(e, 400, "invalid_type", "input",
				      "input[%zu].output: a string is needed",
				      i);
		json_array_append_new(messages,
				      json_pack("{s:s, s:s, s:O}", "role",
						"tool", "tool_call_id",
						text_of(item, "call_id"),
						"content", output));
	} else if (*role && (!*type || !strcmp(type, "message"))) {
		if (!strcmp(role, "developer"))
			role = "system";
		json_array_append_new(messages,
				      json_pack("{s:s, s:o}", "role", role,
						"content", content_of(item)));
	} else if (strcmp(type, "reasoning") != 0) {
		return refuse(e, 400, "unsupported_value", "input",
			      "input[%zu]: messages, function calls and their "
			      "outputs are taken, not %.40s",
			      i, *type ? type : "an item without a role");
	}
	return 0;
}

static int read_input(const json_t *body, json_t *chat, struct serve_error *e)
{
	json_t *input = get(body, "input"), *item, *messages = json_array();
	const json_t *system = get(body, "instructions");
	size_t i;

	json_object_set_new(chat, "messages", messages);
	if (system && !json_is_string(system))
		return refuse(e, 400, "invalid_type", "instructions",
			      "instructions: a string is needed");
	if (system)
		json_array_append_new(messages,
				      json_pack("{s:s, s:O}", "role", "system",
						"content", system));
	if (json_is_string(input)) {
		json_array_append_new(messages,
				      json_pack("{s:s, s:O}", "role", "user",
						"content", input));
		return 0;
	}
	if (!json_array_size(input))
		return refuse(e, 400, "invalid_type", "input",
			      "input: a text or an array of items is needed, "
			      "not empty");
	json_array_foreach(input, i, item)
	{
		if (add_item(messages, item, i, e))
			return -1;
	}
	return 0;
}

static int read_tools(const json_t *body, json_t *chat, struct serve_error *e)
{
	json_t *tools = get(body, "tools"), *tool, *all = json_array();
	const json_t *choice = get(body, "tool_choice");
	size_t i;

	if (tools)
		json_object_set_new(chat, "tools", all);
	else
		json_decref(all);
	if (tools && !json_is_array(tools))
		return refuse(e, 400, "invalid_type", "tools",
			      "tools: an array is needed");
	json_array_foreach(tools, i, tool)
	{
		json_t *f;

		if (strcmp(text_of(tool, "type"), "function") != 0)
			return refuse(e, 400, "unsupported_value", "tools",
				      "tools[%zu]: only functions are taken, "
				      "not %.40s",
				      i, text_of(tool, "type"));
		f = json_copy(tool);
		json_object_del(f, "type");
		json_array_append_new(all,
				      json_pack("{s:s, s:o}", "type",
						"function", "function", f));
	}
	if (json_is_object(choice) && json_object_get(choice, "name"))
		json_object_set_new(chat, "tool_choice",
				    json_pack("{s:s, s:{s:s}}", "type",
					      "function", "function", "name",
					      text_of(choice, "name")));
	else if (choice)
		json_object_set(chat, "tool_choice", get(body, "tool_choice"));
	return 0;
}

// text.format is a chat's response_format, but flat.
static int read_format(const json_t *body, json_t *chat, struct serve_error *e)
{
	const json_t *text = get(body, "text"),
		     *reason = get(body, "reasoning");
	json_t *format = get(text, "format"), *effort;

	if ((text && !json_is_object(text)) ||
	    (format && !json_is_object(format)))
		return refuse(e, 400, "invalid_type", "text",
			      "text: an object with a format is needed");
	if (reason && !json_is_object(reason))
		return refuse(e, 400, "invalid_type", "reasoning",
			      "reasoning: an object is needed");
	effort = get(reason, "effort");
	if (effort)
		json_object_set(chat, "reasoning_effort", effort);
	if (!format || !strcmp(text_of(format, "type"), "text"))
		return 0;
	if (strcmp(text_of(format, "type"), "json_schema") != 0) {
		json_object_set(chat, "response_format", format);
		return 0;
	}
	format = json_copy(format);
	json_object_del(format, "type");
	json_object_set_new(chat, "response_format",
			    json_pack("{s:s, s:o}", "type", "json_schema",
				      "json_schema", format));
	return 0;
}

int response_read(struct serve *s, json_t *body, struct ask **out,
		  struct serve_error *e)
{
	json_t *chat = json_object();

	if (rename_keys(body, chat, e) || read_input(body, chat, e) ||
	    read_tools(body, chat, e) || read_format(body, chat, e)) {
		json_decref(chat);
		json_decref(body);
		return -1;
	}
	if (ask_read(s, true, chat, out, e)) {
		json_decref(body);
		return -1;
	}
	(*out)->response = body;
	return 0;
}

// ---- the whole of it ----

static json_t *or_null(json_t *j)
{
	return j ? json_incref(j) : json_null();
}

static json_t *usage(const struct answer *a)
{
	return json_pack("{s:I, s:{s:I}, s:I, s:{s:i}, s:I}", "input_tokens",
			 (json_int_t)a->n_prompt, "input_tokens_details",
			 "cached_tokens", (json_int_t)a->n_cached,
			 "output_tokens", (json_int_t)a->n_new,
			 "output_tokens_details", "reasoning_tokens", 0,
			 "total_tokens", (json_int_t)(a->n_prompt + a->n_new));
}

// With every key that a function has.
static json_t *tools_of(const json_t *body)
{
	static const char *const names[] = {"description", "parameters",
					    "strict"};
	json_t *tools = get(body, "tools"), *tool, *all = json_array();
	size_t i;

	json_array_foreach(tools, i, tool)
	{
		tool = json_copy(tool);
		for (size_t k = 0; k < 3; k++)
			if (!json_object_get(tool, names[k]))
				json_object_set_new(tool, names[k],
						    json_null());
		json_array_append_new(all, tool);
	}
	return all;
}

static json_t *text_form(const json_t *body)
{
	json_t *text = get(body, "text");

	return get(text, "format")
		       ? json_incref(text)
		       : json_pack("{s:{s:s}}", "format", "type", "text");
}

// What it was asked for, with what goes where nothing was said.
static json_t *asked(const struct answer *a)
{
	const struct genai_sampling *s = &a->ask->sampling;
	const json_t *body = a->ask->response;
	json_t *choice = get(body, "tool_choice");
	json_t *metadata = get(body, "metadata");
	const json_t *reason = get(body, "reasoning");

	return json_pack(
		"{s:o, s:n, s:o, s:o, s:s, s:b, s:o, s:f, s:f, s:f, s:f, s:i, "
		"s:o, s:o, s:n, s:b, s:b, s:s, s:o, s:o, s:o}",
		"instructions", or_null(get(body, "instructions")),
		"previous_response_id", "tools", tools_of(body), "tool_choice",
		choice ? json_incref(choice) : json_string("auto"),
		"truncation", "disabled", "parallel_tool_calls", 1, "text",
		text_form(body), "temperature",
		s->do_sample ? (double)s->temperature : 0.0, "top_p",
		(double)s->top_p, "presence_penalty",
		(double)s->presence_penalty, "frequency_penalty",
		(double)s->frequency_penalty, "top_logprobs", 0, "reasoning",
		reason ? json_pack("{s:o, s:n}", "effort",
				   or_null(get(reason, "effort")), "summary")
		       : json_null(),
		"max_output_tokens", or_null(get(body, "max_output_tokens")),
		"max_tool_calls", "store", 0, "background", 0, "service_tier",
		"default", "metadata",
		metadata ? json_incref(metadata) : json_object(),
		"safety_identifier", or_null(get(body, "safety_identifier")),
		"prompt_cache_key", or_null(get(body, "prompt_cache_key")));
}

static json_t *object(const struct answer *a, const char *status)
{
	const struct choice *ch = &a->choices[0];
	bool is_cut = !strcmp(status, "incomplete");
	bool has_ended = strcmp(status, "in_progress") != 0;
	json_t *j = json_pack(
		"{s:s, s:s, s:I, s:o, s:s, s:s, s:n, s:o, s:o, s:o}", "id",
		a->id, "object", "response", "created_at",
		(json_int_t)a->created, "completed_at",
		has_ended && !is_cut ? json_integer(time(NULL)) : json_null(),
		"status", status, "model", a->s->name, "error",
		"incomplete_details",
		is_cut ? json_pack("{s:s}", "reason", "max_output_tokens")
		       : json_null(),
		"output",
		ch->output ? json_deep_copy(ch->output) : json_array(), "usage",
		has_ended ? usage(a) : json_null());

	json_object_update_new(j, asked(a));
	return j;
}

// ---- items, and events where it is a stream ----

static void emit(struct answer *a, const char *type, json_t *j)
{
	struct choice *ch = &a->choices[0];

	if (!a->ask->is_stream || !a->client.req) {
		json_decref(j);
		return;
	}
	json_object_set_new(j, "type", json_string(type));
	json_object_set_new(j, "sequence_number",
			    json_integer((json_int_t)ch->sequence++));
	answer_send(a, type, j);
}

static size_t last_index(const struct choice *ch)
{
	return json_array_size(ch->output) - 1;
}

static json_t *last_item(const struct choice *ch)
{
	return json_array_get(ch->output, last_index(ch));
}

// What belongs to the last item, and to its one part.
static json_t *about(const struct choice *ch, bool part)
{
	json_t *j =
		json_pack("{s:s, s:I}", "item_id", text_of(last_item(ch), "id"),
			  "output_index", (json_int_t)last_index(ch));

	if (part)
		json_object_set_new(j, "content_index", json_integer(0));
	return j;
}

static json_t *with(json_t *j, const char *name, json_t *v)
{
	json_object_set_new(j, name, v);
	return j;
}

static json_t *part_of(enum parse_kind kind, json_t *text)
{
	if (kind == PARSE_REASONING)
		return json_pack("{s:s, s:o}", "type", "reasoning_text", "text",
				 text);
	return json_pack("{s:s, s:o, s:[]}", "type", "output_text", "text",
			 text, "annotations");
}

static const char *delta_of(enum parse_kind kind, bool done)
{
	switch (kind) {
	case PARSE_CONTENT:
		return done ? "response.output_text.done"
			    : "response.output_text.delta";
	case PARSE_REASONING:
		return done ? "response.reasoning_text.done"
			    : "response.reasoning_text.delta";
	default:
		return done ? "response.function_call_arguments.done"
			    : "response.function_call_arguments.delta";
	}
}

static void close_item(struct answer *a, struct choice *ch)
{
	json_t *item = last_item(ch), *text, *part;
	enum parse_kind kind = ch->item_kind;

	if (!ch->has_item)
		return;
	ch->has_item = false;
	text = json_stringn(ch->item.s ? ch->item.s : "", ch->item.n);
	ch->item.n = 0;
	if (kind == PARSE_CALL) {
		json_object_set(item, "arguments", text);
		emit(a, delta_of(kind, true),
		     with(about(ch, false), "arguments", json_incref(text)));
	} else {
		part = part_of(kind, json_incref(text));
		json_object_set_new(item, "content", json_pack("[O]", part));
		emit(a, delta_of(kind, true),
		     with(about(ch, true), "text", json_incref(text)));
		emit(a, "response.content_part.done",
		     with(about(ch, true), "part", part));
	}
	json_object_set_new(item, "status", json_string("completed"));
	emit(a, "response.output_item.done",
	     json_pack("{s:I, s:O}", "output_index", (json_int_t)last_index(ch),
		       "item", item));
	json_decref(text);
}

static json_t *make_item(const struct answer *a, const struct choice *ch,
			 enum parse_kind kind, const json_t *call)
{
	const char *number = strchr(a->id, '_') + 1;
	size_t n = json_array_size(ch->output);
	char id[80];

	snprintf(id, sizeof(id), "%s_%s%zu",
		 kind == PARSE_CALL	   ? "fc"
		 : kind == PARSE_REASONING ? "rs"
					   : "msg",
		 number, n);
	if (kind == PARSE_CALL)
		return json_pack(
			"{s:s, s:s, s:s, s:s, s:s, s:s}", "id", id, "type",
			"function_call", "status", "in_progress", "call_id",
			text_of(call, "id"), "name",
			text_of(json_object_get(call, "function"), "name"),
			"arguments", "");
	if (kind == PARSE_REASONING)
		return json_pack("{s:s, s:s, s:s, s:[], s:[]}", "id", id,
				 "type", "reasoning", "status", "in_progress",
				 "summary", "content");
	return json_pack("{s:s, s:s, s:s, s:s, s:[]}", "id", id, "type",
			 "message", "status", "in_progress", "role",
			 "assistant", "content");
}

static void open_item(struct answer *a, struct choice *ch, enum parse_kind kind,
		      const json_t *call)
{
	close_item(a, ch);
	json_array_append_new(ch->output, make_item(a, ch, kind, call));
	ch->has_item = true;
	ch->item_kind = kind;
	emit(a, "response.output_item.added",
	     json_pack("{s:I, s:o}", "output_index", (json_int_t)last_index(ch),
		       "item", json_deep_copy(last_item(ch))));
	if (kind != PARSE_CALL)
		emit(a, "response.content_part.added",
		     with(about(ch, true), "part",
			  part_of(kind, json_string(""))));
}

static void more_of(struct answer *a, struct choice *ch, const char *text,
		    size_t n)
{
	if (!n)
		return;
	if (!reply_add(&ch->item, text, n))
		ch->is_broken = true;
	emit(a, delta_of(ch->item_kind, false),
	     with(about(ch, ch->item_kind != PARSE_CALL), "delta",
		  json_stringn(text, n)));
}

static void take(struct answer *a, struct choice *ch, enum parse_kind kind,
		 struct text *t)
{
	if (!t->n)
		return;
	if (!ch->has_item || ch->item_kind != kind)
		open_item(a, ch, kind, NULL);
	more_of(a, ch, t->s, t->n);
	t->n = 0;
}

void response_take(struct answer *a, struct choice *ch)
{
	json_t *call;
	size_t i;

	if (!ch->output) {
		ch->output = json_array();
		emit(a, "response.created",
		     json_pack("{s:o}", "response", object(a, "in_progress")));
		emit(a, "response.in_progress",
		     json_pack("{s:o}", "response", object(a, "in_progress")));
	}
	take(a, ch, PARSE_REASONING, &ch->reasoning);
	take(a, ch, PARSE_CONTENT, &ch->content);
	json_array_foreach(ch->calls, i, call)
	{
		const json_t *args = json_object_get(
			json_object_get(call, "function"), "arguments");

		if (json_object_get(call, "id"))
			open_item(a, ch, PARSE_CALL, call);
		more_of(a, ch, json_string_value(args),
			json_string_length(args));
	}
	json_decref(ch->calls);
	ch->calls = NULL;
}

json_t *response_whole(struct answer *a)
{
	struct choice *ch = &a->choices[0];
	const char *status =
		!strcmp(ch->finish, "length") ? "incomplete" : "completed";

	response_take(a, ch);
	close_item(a, ch);
	emit(a, *status == 'i' ? "response.incomplete" : "response.completed",
	     json_pack("{s:o}", "response", object(a, status)));
	return object(a, status);
}
