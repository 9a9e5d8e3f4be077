// jinja_parse.c - what the parsers of expressions and statements share: the
// current lexeme, and messages about it.
#include "core/text/template/jinja.h"

#include <stdarg.h>

#include "core/base/error.h"

int jinja_parse_fail(struct jinja_parser *p, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	genai_error_vfill(p->err, GENAI_E_FORMAT, __FILE__, __LINE__, fmt, ap);
	va_end(ap);
	genai_error_prefix(p->err, "%s:%u", p->name, p->tok[p->at].line);
	return GENAI_E_FORMAT;
}

struct jinja_node *jinja_node_new(struct jinja_parser *p, int kind)
{
	struct jinja_node *n = jinja_alloc(p->arena, sizeof(*n));

	if (!n) {
		genai_fail(p->err, GENAI_E_NOMEM, "%s: no memory to parse",
			   p->name);
		return NULL;
	}
	n->kind = (uint8_t)kind;
	n->line = p->tok[p->at].line;
	return n;
}

bool jinja_peek_name(const struct jinja_parser *p, const char *word)
{
	return jinja_peek(p) == JT_NAME &&
	       jinja_same(p->tok[p->at].val.s, word);
}

bool jinja_skip_name(struct jinja_parser *p, const char *word)
{
	if (!jinja_peek_name(p, word))
		return false;
	p->at++;
	return true;
}

bool jinja_skip(struct jinja_parser *p, enum jinja_token t)
{
	if (jinja_peek(p) != t)
		return false;
	p->at++;
	return true;
}

static const char *token_name(enum jinja_token t)
{
	static const char *const names[] = {
		"end of template",
		"text",
		"{%",
		"%}",
		"{{",
		"}}",
		"name",
		"string",
		"number",
		"number",
		"+",
		"-",
		"*",
		"/",
		"//",
		"%",
		"**",
		"~",
		"(",
		")",
		"[",
		"]",
		"{",
		"}",
		"==",
		"!=",
		"<",
		"<=",
		">",
		">=",
		"in",
		"not in",
		"=",
		".",
		":",
		"|",
		",",
		";",
	};

	return names[t];
}

int jinja_unexpected(struct jinja_parser *p)
{
	const struct jinja_lexeme *t = &p->tok[p->at];

	if (t->type == JT_NAME)
		return jinja_parse_fail(
			p, "unexpected '%.*s'",
			(int)(t->val.s.n > 60 ? 60 : t->val.s.n), t->val.s.p);
	return jinja_parse_fail(p, "unexpected '%s'", token_name(t->type));
}

int jinja_expect(struct jinja_parser *p, enum jinja_token t)
{
	if (jinja_skip(p, t))
		return 0;
	return jinja_parse_fail(p, "expected '%s', got '%s'", token_name(t),
				token_name(jinja_peek(p)));
}

int jinja_expect_name(struct jinja_parser *p, struct jinja_str *out)
{
	if (jinja_peek(p) == JT_NAME)
		*out = p->tok[p->at].val.s;
	return jinja_expect(p, JT_NAME);
}
