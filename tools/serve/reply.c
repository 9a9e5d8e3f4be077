// reply.c - answers as JSON: OpenAI's objects, whole and in chunks.
#include "tools/serve/serve.h"

#include <math.h>
#include <string.h>

// ---- log probabilities ----

static json_t *number(float logprob)
{
	// JSON has no infinity; this is what OpenAI has for it
	return json_real(logprob > -9999 ? (double)logprob : -9999.0);
}

static json_t *token_text(const struct answer *a, int64_t id)
{
	char *text = NULL;
	size_t n = 0;
	json_t *j;

	if (!a->s->tok ||
	    genai_tokenizer_decode(a->s->tok, &id, 1, GENAI_TOK_KEEP_SPECIAL,
				   &text, &n, NULL))
		return json_string("");
	j = json_stringn(text, n);
	genai_free(text);
	return j;
}

static json_t *token_bytes(const json_t *text)
{
	const unsigned char *s = (const void *)json_string_value(text);
	json_t *bytes;

	// part of a character: which bytes is not known
	if (strstr((const char *)s, "\xef\xbf\xbd"))
		return json_null();
	bytes = json_array();
	for (; *s; s++)
		json_array_append_new(bytes, json_integer(*s));
	return bytes;
}

static json_t *chat_token(const struct answer *a, int64_t id, float logprob)
{
	json_t *text = token_text(a, id);
	json_t *bytes = token_bytes(text);

	return json_pack("{s:o, s:o, s:o}", "token", text, "logprob",
			 number(logprob), "bytes", bytes);
}

static void chat_logprob(const struct answer *a, struct choice *ch,
			 const struct genai_event *ev)
{
	json_t *token = chat_token(a, ev->id, ev->logprob);
	json_t *top = json_array();

	for (uint32_t i = 0; i < ev->n_top; i++)
		json_array_append_new(
			top, chat_token(a, ev->top[i].id, ev->top[i].logprob));
	json_object_set_new(token, "top_logprobs", top);
	if (!ch->logprobs)
		ch->logprobs = json_pack("{s:[], s:n}", "content", "refusal");
	json_array_append_new(json_object_get(ch->logprobs, "content"), token);
}

static void text_logprob(const struct answer *a, struct choice *ch,
			 const struct genai_event *ev)
{
	json_t *l = ch->logprobs, *top = json_object();
	bool first = ev->kind == GENAI_EVENT_PROMPT && !ch->offset && !l;

	for (uint32_t i = 0; i < ev->n_top; i++) {
		json_t *text = token_text(a, ev->top[i].id);

		// two tokens may have one text; the better one stays
		if (!json_object_get(top, json_string_value(text)))
			json_object_set_new(top, json_string_value(text),
					    number(ev->top[i].logprob));
		json_decref(text);
	}
	if (!l)
		l = ch->logprobs = json_pack("{s:[], s:[], s:[], s:[]}",
					     "tokens", "token_logprobs",
					     "top_logprobs", "text_offset");
	json_array_append_new(json_object_get(l, "tokens"),
			      token_text(a, ev->id));
	json_array_append_new(json_object_get(l, "token_logprobs"),
			      first ? json_null() : number(ev->logprob));
	json_array_append_new(json_object_get(l, "top_logprobs"),
			      first ? json_null() : json_incref(top));
	json_array_append_new(json_object_get(l, "text_offset"),
			      json_integer((json_int_t)ch->offset));
	json_decref(top);
}

void reply_logprob(const struct answer *a, struct choice *ch,
		   const struct genai_event *ev)
{
	if (!(a->ask->request.flags & GENAI_REQUEST_LOGPROBS))
		return;
	if (a->ask->is_chat)
		chat_logprob(a, ch, ev);
	else
		text_logprob(a, ch, ev);
}

// ---- objects ----

static json_t *frame(const struct answer *a, json_t *choices)
{
	const char *object = !a->ask->is_chat	 ? "text_completion"
			     : a->ask->is_stream ? "chat.completion.chunk"
						 : "chat.completion";

	return json_pack("{s:s, s:s, s:I, s:s, s:o}", "id", a->id, "object",
			 object, "created", (json_int_t)a->created, "model",
			 a->s->name, "choices", choices);
}

static json_t *usage(const struct answer *a)
{
	return json_pack("{s:I, s:I, s:I, s:{s:I}}", "prompt_tokens",
			 (json_int_t)a->n_prompt, "completion_tokens",
			 (json_int_t)a->n_new, "total_tokens",
			 (json_int_t)(a->n_prompt + a->n_new),
			 "prompt_tokens_details", "cached_tokens",
			 (json_int_t)a->n_cached);
}

static json_t *take_logprobs(struct choice *ch)
{
	json_t *l = ch->logprobs;

	ch->logprobs = NULL;
	return l ? l : json_null();
}

json_t *reply_chunk(const struct answer *a, struct choice *ch, const char *text,
		    size_t n)
{
	json_t *c = json_pack("{s:i}", "index", (int)(ch - a->choices));
	json_t *j;

	if (a->ask->is_chat) {
		json_t *delta = json_object();

		if (!ch->is_begun)
			json_object_set_new(delta, "role",
					    json_string("assistant"));
		if (n || !ch->is_begun)
			json_object_set_new(delta, "content",
					    json_stringn(text, n));
		json_object_set_new(c, "delta", delta);
	} else {
		json_object_set_new(c, "text", json_stringn(text, n));
	}
	ch->is_begun = true;
	json_object_set_new(c, "logprobs", take_logprobs(ch));
	json_object_set_new(c, "finish_reason",
			    ch->finish ? json_string(ch->finish) : json_null());
	j = frame(a, json_pack("[o]", c));
	if (a->ask->has_usage)
		json_object_set_new(j, "usage", json_null());
	return j;
}

json_t *reply_usage_chunk(const struct answer *a)
{
	json_t *j = frame(a, json_array());

	json_object_set_new(j, "usage", usage(a));
	return j;
}

json_t *reply_whole(const struct answer *a)
{
	json_t *choices = json_array(), *j;

	for (uint32_t i = 0; i < a->n_choices; i++) {
		struct choice *ch = &a->choices[i];
		json_t *text =
			json_stringn(ch->text ? ch->text : "", ch->n_text);
		json_t *c = json_pack("{s:i, s:o, s:s}", "index", (int)i,
				      "logprobs", take_logprobs(ch),
				      "finish_reason", ch->finish);

		if (a->ask->is_chat)
			json_object_set_new(c, "message",
					    json_pack("{s:s, s:o, s:n}", "role",
						      "assistant", "content",
						      text, "refusal"));
		else
			json_object_set_new(c, "text", text);
		json_array_append_new(choices, c);
	}
	j = frame(a, choices);
	json_object_set_new(j, "usage", usage(a));
	return j;
}
