// prompt.c - what <genai/text.h> has of templates: variables as JSON
// text, and conversations as ids.
// Owns: the marks that keep what a message spells apart from what the template
// says.
#include <jansson.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/text/template/template.h"
#include "core/text/tokenizer/tok.h"

void genai_free(void *p)
{
	free(p);
}

static int32_t no_memory(struct genai_error *err)
{
	return genai_fail(err, GENAI_E_NOMEM, "no memory to render");
}

// ---- options and variables ----

static int32_t check_options(const struct genai_chat_options *o,
			     struct genai_chat_options *out,
			     struct genai_error *err)
{
	const uint32_t known =
		GENAI_CHAT_CONTINUE | GENAI_CHAT_NO_ANSWER | GENAI_CHAT_NOW;
	struct tm local;
	time_t now;

	*out = (struct genai_chat_options){.size = sizeof(*out)};
	if (o &&
	    (!GENAI_HAS(o, reserved) || !genai_options_known(o, sizeof(*o)) ||
	     o->flags & ~known || o->reserved))
		return genai_fail(err, GENAI_E_INVAL,
				  "chat options: size %u, flags %#x", o->size,
				  o->flags);
	if (o)
		memcpy(out, o, sizeof(*out));
	if (out->flags & GENAI_CHAT_NOW)
		return 0;
	now = time(NULL);
	localtime_r(&now, &local);
	out->now = now;
	out->utc_offset_s = (int32_t)local.tm_gmtoff;
	return 0;
}

static int32_t parse_vars(const char *text, size_t bytes,
			  const struct genai_chat_options *o, json_t **out,
			  struct genai_error *err)
{
	bool answer = !(o->flags & GENAI_CHAT_NO_ANSWER);
	json_error_t why;
	json_t *vars = json_loadb(text, bytes, JSON_ALLOW_NUL, &why);
	int rc = 0;

	// without memory for its own start it says nothing at all
	if (!vars &&
	    (!why.text[0] || json_error_code(&why) == json_error_out_of_memory))
		return no_memory(err);
	if (!vars)
		return genai_fail(err, GENAI_E_INVAL,
				  "the variables: line %d, column %d: %s",
				  why.line, why.column, why.text);
	if (!json_is_object(vars)) {
		json_decref(vars);
		return genai_fail(err, GENAI_E_INVAL,
				  "the variables are not an object");
	}
	if (!json_object_get(vars, "add_generation_prompt"))
		rc = json_object_set_new(vars, "add_generation_prompt",
					 json_boolean(answer));
	if (rc) {
		json_decref(vars);
		return no_memory(err);
	}
	*out = vars;
	return 0;
}

int32_t genai_template_chat(const struct genai_template *t, const char *text,
			    size_t bytes,
			    const struct genai_chat_options *options,
			    char **out_text, size_t *out_bytes,
			    struct genai_error *err)
{
	struct genai_chat_options o;
	json_t *vars = NULL;
	int32_t rc = check_options(options, &o, err);

	if (!rc)
		rc = parse_vars(text, bytes, &o, &vars, err);
	if (rc)
		return rc;
	rc = template_chat(t, vars, o.flags & GENAI_CHAT_CONTINUE, o.now,
			   o.utc_offset_s, out_text, out_bytes, err);
	json_decref(vars);
	return rc;
}

// ---- messages that spell special tokens ----

// Two characters that no text has: what stands between them is encoded as text.
// They are taken out of what a message brings itself.
static const char open_mark[] = "\xf4\x8f\xbf\xbe";  // U+10FFFE
static const char close_mark[] = "\xf4\x8f\xbf\xbf"; // U+10FFFF
#define MARK 4

static bool is_mark(const char *p, size_t n)
{
	return n >= MARK &&
	       (!memcmp(p, open_mark, MARK) || !memcmp(p, close_mark, MARK));
}

// *io_text with marks around its special tokens, or as it was.
static int mark_one(const struct genai_tokenizer *tok, json_t *holder,
		    const char *key, bool *marked)
{
	const json_t *old = json_object_get(holder, key);
	const char *p = json_string_value(old);
	size_t n = json_string_length(old), at = 0, len;
	struct tok_buf b = {0};
	bool changed = false;
	int rc;

	if (!p)
		return 0;
	while (at < n) {
		len = tok_special_at(tok, p + at, n - at);
		if (is_mark(p + at, n - at)) {
			at += MARK;
			changed = true;
			continue;
		}
		if (len) {
			tok_buf_add(&b, open_mark, MARK);
			tok_buf_add(&b, p + at, len);
			tok_buf_add(&b, close_mark, MARK);
			changed = *marked = true;
		} else {
			tok_buf_add(&b, p + at, len = 1);
		}
		at += len;
	}
	rc = b.failed ? -1 : 0;
	if (!rc && changed)
		rc = json_object_set_new_nocheck(
			holder, key, json_stringn_nocheck(b.n ? b.p : "", b.n));
	tok_buf_free(&b);
	return rc;
}

static int mark_messages(const struct genai_tokenizer *tok, json_t *messages,
			 bool *marked)
{
	json_t *m, *part;
	size_t i, k;
	int bad = 0;

	json_array_foreach(messages, i, m)
	{
		bad |= mark_one(tok, m, "content", marked);
		json_array_foreach(json_object_get(m, "content"), k, part)
			bad |= mark_one(tok, part, "text", marked);
	}
	return bad;
}

struct id_list {
	int64_t *v;
	size_t n;
};

static int32_t append(const struct genai_tokenizer *tok, const char *p,
		      size_t n, uint32_t flags, struct id_list *to,
		      struct genai_error *err)
{
	int64_t *part = NULL, *more;
	size_t count = 0;
	int32_t rc = genai_tokenizer_encode(
		tok, p, n, flags | GENAI_TOK_NO_SPECIAL, &part, &count, err);

	if (rc || !count)
		return rc;
	if (!to->n) {
		to->v = part;
		to->n = count;
		return 0;
	}
	more = realloc(to->v, (to->n + count) * sizeof(*more));
	if (more) {
		memcpy(more + to->n, part, count * sizeof(*part));
		to->v = more;
		to->n += count;
	}
	free(part);
	return more ? 0 : no_memory(err);
}

static const char *find(const char *p, const char *end, const char *mark)
{
	const char *at = memmem(p, (size_t)(end - p), mark, MARK);

	return at ? at : end;
}

static int32_t encode_marked(const struct genai_tokenizer *tok, const char *p,
			     size_t n, struct id_list *to,
			     struct genai_error *err)
{
	const char *end = p + n, *at;
	int32_t rc = 0;

	while (!rc && p < end) {
		at = find(p, end, open_mark);
		rc = append(tok, p, (size_t)(at - p), 0, to, err);
		if (rc || at == end)
			break;
		p = at + MARK;
		at = find(p, end, close_mark);
		rc = append(tok, p, (size_t)(at - p),
			    GENAI_TOK_SPECIALS_AS_TEXT, to, err);
		p = at == end ? end : at + MARK;
	}
	return rc;
}

int32_t genai_template_encode(const struct genai_template *t,
			      const struct genai_tokenizer *tok,
			      const char *vars_text, size_t vars_bytes,
			      const struct genai_chat_options *options,
			      int64_t **out_ids, size_t *out_count,
			      struct genai_error *err)
{
	struct genai_chat_options o;
	struct id_list ids = {0};
	json_t *vars = NULL;
	bool marked = false;
	char *text = NULL;
	size_t bytes = 0;
	int32_t rc = check_options(options, &o, err);

	if (!rc)
		rc = parse_vars(vars_text, vars_bytes, &o, &vars, err);
	if (!rc &&
	    mark_messages(tok, json_object_get(vars, "messages"), &marked))
		rc = no_memory(err);
	if (!rc)
		rc = template_chat(t, vars, o.flags & GENAI_CHAT_CONTINUE,
				   o.now, o.utc_offset_s, &text, &bytes, err);
	if (!rc)
		rc = marked ? encode_marked(tok, text, bytes, &ids, err)
			    : append(tok, text, bytes, 0, &ids, err);
	free(text);
	json_decref(vars);
	if (rc) {
		free(ids.v);
		return rc;
	}
	*out_ids = ids.v;
	*out_count = ids.n;
	return 0;
}
