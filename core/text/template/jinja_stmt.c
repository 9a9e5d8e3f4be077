// jinja_stmt.c - statements and text to syntax tree.
// Owns: the tags.  A list of statements is linked by next.
#include "core/text/template/jinja.h"

#include <string.h>

#include "core/base/error.h"

static struct jinja_node *begin(struct jinja_parser *p, int kind)
{
	struct jinja_node *n = jinja_node_new(p, kind);

	p->at++; // the tag's name
	return n;
}

// The rest of a tag, then its body up to one of the closing names, which is
// left as the current token.
static int body(struct jinja_parser *p, struct jinja_node **out,
		const char *const *ends)
{
	int rc;

	jinja_skip(p, JT_COLON);
	rc = jinja_expect(p, JT_BLOCK_END);
	if (!rc)
		rc = jinja_parse_body(p, out);
	if (rc)
		return rc;
	for (; *ends; ends++)
		if (jinja_peek_name(p, *ends))
			return 0;
	if (p->tok[p->at].type == JT_NAME)
		return jinja_parse_fail(p, "unexpected tag '%.*s'",
					(int)(p->tok[p->at].val.s.n > 60
						      ? 60
						      : p->tok[p->at].val.s.n),
					p->tok[p->at].val.s.p);
	return jinja_parse_fail(p, "a tag is not closed at the end");
}

static int closed(struct jinja_parser *p, struct jinja_node **out,
		  const char *end)
{
	const char *const ends[] = {end, NULL};
	int rc = body(p, out, ends);

	if (!rc)
		p->at++;
	return rc;
}

static int if_tag(struct jinja_parser *p, struct jinja_node **out)
{
	static const char *const ends[] = {"elif", "else", "endif", NULL};
	struct jinja_node *n;
	int rc;

	for (;;) {
		*out = n = begin(p, JN_IF);
		if (!n)
			return GENAI_E_NOMEM;
		rc = jinja_parse_tuple(p, false, &n->a);
		if (!rc)
			rc = body(p, &n->b, ends);
		if (rc)
			return rc;
		if (!jinja_peek_name(p, "elif"))
			break;
		out = &n->c;
	}
	if (jinja_skip_name(p, "else"))
		return closed(p, &n->c, "endif");
	p->at++;
	return 0;
}

static int for_tag(struct jinja_parser *p, struct jinja_node **out)
{
	static const char *const ends[] = {"else", "endfor", NULL};
	struct jinja_node *n = begin(p, JN_FOR);
	int rc;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	rc = jinja_parse_target(p, false, &n->a);
	if (!rc && !jinja_skip_name(p, "in"))
		rc = jinja_parse_fail(p, "expected 'in'");
	if (!rc)
		rc = jinja_parse_tuple(p, false, &n->b);
	if (!rc && jinja_skip_name(p, "if"))
		rc = jinja_parse_expr(p, true, &n->c);
	if (!rc)
		n->op = jinja_skip_name(p, "recursive");
	if (rc)
		return rc;
	p->loops++;
	rc = body(p, &n->d, ends);
	p->loops--;
	if (rc)
		return rc;
	if (jinja_skip_name(p, "else"))
		return closed(p, &n->e, "endfor");
	p->at++;
	return 0;
}

static int set_tag(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n = begin(p, JN_SET);
	int rc;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	rc = jinja_parse_target(p, true, &n->a);
	if (rc)
		return rc;
	if (jinja_skip(p, JT_ASSIGN))
		return jinja_parse_tuple(p, true, &n->b);
	n->kind = JN_SETBLOCK;
	rc = jinja_parse_filters(p, false, &n->b);
	return rc ? rc : closed(p, &n->d, "endset");
}

// (name, name=default, ...)
static int params(struct jinja_parser *p, struct jinja_node **tail)
{
	struct jinja_node *arg;
	int rc = jinja_expect(p, JT_LPAREN);

	while (!rc && p->tok[p->at].type != JT_RPAREN) {
		*tail = arg = jinja_node_new(p, JN_NAME);
		if (!arg)
			return GENAI_E_NOMEM;
		tail = &arg->next;
		arg->val = jinja_text("", 0);
		rc = jinja_expect_name(p, &arg->val.s);
		if (!rc && jinja_skip(p, JT_ASSIGN))
			rc = jinja_parse_expr(p, true, &arg->a);
		if (!rc && !arg->a && jinja_same(arg->val.s, "caller"))
			rc = jinja_parse_fail(p, "a parameter 'caller' needs a "
						 "default");
		if (!rc && p->tok[p->at].type != JT_RPAREN)
			rc = jinja_expect(p, JT_COMMA);
	}
	return rc ? rc : jinja_expect(p, JT_RPAREN);
}

// What a macro holds; which of the special names it uses.
static int macro_body(struct jinja_parser *p, struct jinja_node *n,
		      unsigned uses, const char *end)
{
	int rc, loops = p->loops;

	p->loops = 0;
	rc = closed(p, &n->d, end);
	p->loops = loops;
	n->op = (uint8_t)p->uses;
	p->uses |= uses;
	return rc;
}

static int macro_tag(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n = begin(p, JN_MACRO);
	unsigned uses = p->uses;
	int rc;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	n->val = jinja_text("", 0);
	p->uses = 0;
	rc = jinja_expect_name(p, &n->val.s);
	if (!rc)
		rc = params(p, &n->b);
	return rc ? rc : macro_body(p, n, uses, "endmacro");
}

static int call_tag(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n = begin(p, JN_CALLBLOCK);
	unsigned uses = p->uses;
	int rc = 0;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	n->val = jinja_text("caller", 6);
	if (jinja_peek(p) == JT_LPAREN)
		rc = params(p, &n->b);
	if (!rc)
		rc = jinja_parse_expr(p, true, &n->a);
	if (!rc && n->a->kind != JN_CALL)
		rc = jinja_parse_fail(p, "expected call");
	if (rc)
		return rc;
	uses |= p->uses;
	p->uses = 0;
	return macro_body(p, n, uses, "endcall");
}

static int escape_tag(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n = begin(p, JN_ESCAPE);
	int rc;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	rc = jinja_parse_expr(p, true, &n->a);
	return rc ? rc : closed(p, &n->d, "endautoescape");
}

// filter and generation: text that is made apart, then put out.
static int body_tag(struct jinja_parser *p, const char *end, bool filters,
		    struct jinja_node **out)
{
	struct jinja_node *n = begin(p, JN_BODY);
	int rc = 0, loops = p->loops;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	if (filters)
		rc = jinja_parse_filters(p, true, &n->b);
	if (!filters)
		p->loops = 0; // a generation's body is a macro's
	if (!rc)
		rc = closed(p, &n->d, end);
	p->loops = loops;
	return rc;
}

static int with_tag(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n = begin(p, JN_WITH), **tail;
	int rc = 0;

	*out = n;
	if (!n)
		return GENAI_E_NOMEM;
	tail = &n->b;
	while (!rc && p->tok[p->at].type != JT_BLOCK_END) {
		if (n->b)
			rc = jinja_expect(p, JT_COMMA);
		if (!rc && p->tok[p->at].type != JT_NAME)
			rc = jinja_expect(p, JT_NAME);
		if (rc)
			break;
		*tail = jinja_node_new(p, JN_NAME);
		if (!*tail)
			return GENAI_E_NOMEM;
		(*tail)->val = p->tok[p->at++].val;
		tail = &(*tail)->next;
		rc = jinja_expect(p, JT_ASSIGN);
		if (!rc)
			rc = jinja_parse_expr(p, true, tail);
		if (!rc)
			tail = &(*tail)->next;
	}
	return rc ? rc : closed(p, &n->d, "endwith");
}

static int jump_tag(struct jinja_parser *p, int kind, struct jinja_node **out)
{
	if (!p->loops)
		return jinja_parse_fail(p, "outside of a loop");
	*out = begin(p, kind);
	return *out ? 0 : GENAI_E_NOMEM;
}

static int statement(struct jinja_parser *p, struct jinja_node **out)
{
	const struct jinja_lexeme *t = &p->tok[p->at];

	if (jinja_peek_name(p, "if"))
		return if_tag(p, out);
	if (jinja_peek_name(p, "for"))
		return for_tag(p, out);
	if (jinja_peek_name(p, "set"))
		return set_tag(p, out);
	if (jinja_peek_name(p, "macro"))
		return macro_tag(p, out);
	if (jinja_peek_name(p, "call"))
		return call_tag(p, out);
	if (jinja_peek_name(p, "autoescape"))
		return escape_tag(p, out);
	if (jinja_peek_name(p, "filter"))
		return body_tag(p, "endfilter", true, out);
	if (jinja_peek_name(p, "generation"))
		return body_tag(p, "endgeneration", false, out);
	if (jinja_peek_name(p, "with"))
		return with_tag(p, out);
	if (jinja_peek_name(p, "break"))
		return jump_tag(p, JN_BREAK, out);
	if (jinja_peek_name(p, "continue"))
		return jump_tag(p, JN_CONTINUE, out);
	if (t->type != JT_NAME)
		return jinja_parse_fail(p, "a tag without a name");
	return jinja_parse_fail(p, "unknown or unsupported tag '%.*s'",
				(int)(t->val.s.n > 60 ? 60 : t->val.s.n),
				t->val.s.p);
}

static bool closes(const struct jinja_parser *p)
{
	static const char *const names[] = {
		"elif",	   "else",     "endif",	       "endfor",
		"endset",  "endmacro", "endfilter",    "endgeneration",
		"endwith", "endcall",  "endautoescape"};
	size_t i;

	for (i = 0; i < sizeof(names) / sizeof(names[0]); i++)
		if (jinja_peek_name(p, names[i]))
			return true;
	return false;
}

// Up to the end of the template, or behind the "{%" of a closing tag.
static int statements(struct jinja_parser *p, struct jinja_node **tail)
{
	struct jinja_node *n;
	int rc = 0;

	while (!rc && p->tok[p->at].type != JT_EOF) {
		switch (p->tok[p->at].type) {
		case JT_DATA:
			n = jinja_node_new(p, JN_DATA);
			if (!n)
				return GENAI_E_NOMEM;
			n->val = p->tok[p->at++].val;
			*tail = n;
			break;
		case JT_VAR_BEGIN:
			*tail = n = begin(p, JN_PRINT);
			if (!n)
				return GENAI_E_NOMEM;
			rc = jinja_parse_tuple(p, true, &n->a);
			if (!rc)
				rc = jinja_expect(p, JT_VAR_END);
			break;
		default:
			p->at++;
			if (closes(p))
				return 0;
			rc = statement(p, tail);
			if (!rc)
				rc = jinja_expect(p, JT_BLOCK_END);
		}
		if (!rc)
			tail = &(*tail)->next;
	}
	return rc;
}

int jinja_parse_body(struct jinja_parser *p, struct jinja_node **out)
{
	int rc;

	if (p->depth++ >= JINJA_MAX_NEST)
		return jinja_parse_fail(p, "nested deeper than %d",
					JINJA_MAX_NEST);
	rc = statements(p, out);
	p->depth--;
	return rc;
}
