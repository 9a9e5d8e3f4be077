// reply.c - answers as JSON: OpenAI's objects, whole and in chunks.
#include "tools/serve/serve.h"

#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

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
	return j ? j : json_string("");
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

// ---- pieces ----

bool reply_add(struct text *t, const char *s, size_t n)
{
	if (t->n + n > t->cap) {
		size_t cap = 2 * (t->n + n + 64);
		char *more = realloc(t->s, cap);

		if (!more)
			return false;
		t->s = more;
		t->cap = cap;
	}
	if (n)
		memcpy(t->s + t->n, s, n);
	t->n += n;
	return true;
}

// A call's name: short, as some templates want it.
static json_t *call_id(void)
{
	static const char digits[] = "abcdefghijklmnopqrstuvwxyz012345";
	unsigned char r[9];
	char id[sizeof(r)];

	if (getrandom(r, sizeof(r), 0) != sizeof(r))
		memset(r, 0, sizeof(r));
	for (size_t i = 0; i < sizeof(r); i++)
		id[i] = digits[r[i] % 32];
	return json_stringn(id, sizeof(id));
}

static void begin_call(struct choice *ch, const char *name, size_t n)
{
	json_t *call = json_pack("{s:o, s:s, s:{s:s%, s:s}}", "id", call_id(),
				 "type", "function", "function", "name", name,
				 n, "arguments", "");

	if (ch->a->ask->is_stream)
		json_object_set_new(call, "index",
				    json_integer((json_int_t)ch->n_calls));
	json_array_append_new(ch->calls, call);
	ch->n_calls++;
}

static void add_arguments(struct choice *ch, const char *text, size_t n)
{
	size_t last = json_array_size(ch->calls);
	json_t *fn, *old;
	struct text all = {0};

	// the call's beginning was sent
	if (!last) {
		json_array_append_new(
			ch->calls, json_pack("{s:i, s:{s:s%}}", "index",
					     (int)ch->n_calls - 1, "function",
					     "arguments", text, n));
		return;
	}
	fn = json_object_get(json_array_get(ch->calls, last - 1), "function");
	old = json_object_get(fn, "arguments");
	if (!reply_add(&all, json_string_value(old), json_string_length(old)) ||
	    !reply_add(&all, text, n))
		ch->is_broken = true;
	else
		json_object_set_new(fn, "arguments",
				    json_stringn(all.s ? all.s : "", all.n));
	free(all.s);
}

void reply_take(void *ctx, enum parse_kind kind, const char *text, size_t n)
{
	struct choice *ch = ctx;

	if (kind == PARSE_CONTENT || kind == PARSE_REASONING) {
		if (!reply_add(kind == PARSE_CONTENT ? &ch->content
						     : &ch->reasoning,
			       text, n))
			ch->is_broken = true;
		return;
	}
	if (!ch->calls)
		ch->calls = json_array();
	if (kind == PARSE_CALL)
		begin_call(ch, text, n);
	else
		add_arguments(ch, text, n);
}

static json_t *take_text(struct text *t)
{
	json_t *j = json_stringn(t->s ? t->s : "", t->n);

	t->n = 0;
	return j;
}

// A message, or what is new of it.
static json_t *message(struct choice *ch, bool whole)
{
	json_t *m = json_object();

	if (!ch->is_begun)
		json_object_set_new(m, "role", json_string("assistant"));
	if (ch->reasoning.n)
		json_object_set_new(m, "reasoning_content",
				    take_text(&ch->reasoning));
	if (whole && !ch->content.n && ch->n_calls)
		json_object_set_new(m, "content", json_null());
	else if (ch->content.n || !ch->is_begun)
		json_object_set_new(m, "content", take_text(&ch->content));
	if (ch->calls)
		json_object_set_new(m, "tool_calls", ch->calls);
	ch->calls = NULL;
	if (whole) {
		json_object_set_new(m, "refusal", json_null());
		json_object_set_new(m, "annotations", json_array());
	}
	return m;
}

// ---- chunks, and all at once ----

json_t *reply_chunk(const struct answer *a, struct choice *ch)
{
	json_t *c, *j;

	if (!ch->content.n && !ch->reasoning.n && !ch->calls && !ch->logprobs &&
	    !ch->finish)
		return NULL;
	c = json_pack("{s:i}", "index", (int)(ch - a->choices));
	if (a->ask->is_chat)
		json_object_set_new(c, "delta", message(ch, false));
	else
		json_object_set_new(c, "text", take_text(&ch->content));
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
		json_t *c = json_pack("{s:i, s:o, s:s}", "index", (int)i,
				      "logprobs", take_logprobs(ch),
				      "finish_reason", ch->finish);

		if (a->ask->is_chat)
			json_object_set_new(c, "message", message(ch, true));
		else
			json_object_set_new(c, "text", take_text(&ch->content));
		json_array_append_new(choices, c);
	}
	j = frame(a, choices);
	json_object_set_new(j, "usage", usage(a));
	return j;
}
