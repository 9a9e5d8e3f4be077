// jinja_expr.c - expressions to syntax tree.
// Owns: precedence, calls, subscripts, filters and tests.  Nesting is capped,
// chains of one operator are loops here and capped when evaluated.
#include "core/text/template/jinja.h"

#include <string.h>

#include "core/base/error.h"

// A list of expressions up to a closing token; with pairs, "key: value".
static int sequence(struct jinja_parser *p, enum jinja_token close, bool pairs,
		    struct jinja_node **tail)
{
	int rc = 0;

	while (!rc && jinja_peek(p) != close) {
		rc = jinja_parse_expr(p, true, tail);
		if (!rc && pairs) {
			tail = &(*tail)->next;
			rc = jinja_expect(p, JT_COLON);
			if (!rc)
				rc = jinja_parse_expr(p, true, tail);
		}
		if (rc || jinja_peek(p) == close)
			break;
		tail = &(*tail)->next;
		rc = jinja_expect(p, JT_COMMA);
	}
	return rc ? rc : jinja_expect(p, close);
}

static int call_args(struct jinja_parser *p, struct jinja_node **tail)
{
	struct jinja_node *n;
	bool keywords = false, star = false, last = false;
	int rc = jinja_expect(p, JT_LPAREN);

	while (!rc && jinja_peek(p) != JT_RPAREN) {
		if (last)
			return jinja_unexpected(p);
		if (jinja_peek(p) == JT_MUL || jinja_peek(p) == JT_POW) {
			last = jinja_peek(p) == JT_POW;
			if (!last && star)
				return jinja_unexpected(p);
			star = true;
			*tail = n =
				jinja_node_new(p, last ? JN_DSTAR : JN_STAR);
			if (!n)
				return GENAI_E_NOMEM;
			p->at++;
			rc = jinja_parse_expr(p, true, &n->a);
		} else if (jinja_peek(p) == JT_NAME &&
			   p->tok[p->at + 1].type == JT_ASSIGN) {
			n = jinja_node_new(p, JN_KEYWORD);
			if (!n)
				return GENAI_E_NOMEM;
			n->val = p->tok[p->at].val;
			p->at += 2;
			rc = jinja_parse_expr(p, true, &n->a);
			keywords = true;
			*tail = n;
		} else if (keywords || star) {
			rc = jinja_unexpected(p);
		} else {
			rc = jinja_parse_expr(p, true, tail);
		}
		if (rc || jinja_peek(p) == JT_RPAREN)
			break;
		tail = &(*tail)->next;
		rc = jinja_expect(p, JT_COMMA);
	}
	return rc ? rc : jinja_expect(p, JT_RPAREN);
}

static int constant(struct jinja_parser *p, struct jinja_value v,
		    struct jinja_node **out)
{
	*out = jinja_node_new(p, JN_CONST);
	if (!*out)
		return GENAI_E_NOMEM;
	(*out)->val = v;
	p->at++;
	return 0;
}

// Adjacent string literals are one.
static int strings(struct jinja_parser *p, struct jinja_node **out)
{
	size_t i, end = p->at, n = 0;
	char *s;
	int rc;

	while (p->tok[end].type == JT_STRING)
		n += p->tok[end++].val.s.n;
	if (end == p->at + 1)
		return constant(p, p->tok[p->at].val, out);
	s = jinja_alloc_text(p->arena, n);
	if (!s)
		return genai_fail(p->err, GENAI_E_NOMEM,
				  "%s: no memory to parse", p->name);
	for (i = p->at, n = 0; i < end; n += p->tok[i++].val.s.n)
		if (p->tok[i].val.s.n)
			memcpy(s + n, p->tok[i].val.s.p, p->tok[i].val.s.n);
	rc = constant(p, jinja_text(s, n), out);
	p->at = end;
	return rc;
}

static int name(struct jinja_parser *p, bool with_ns, struct jinja_node **out)
{
	struct jinja_str s = p->tok[p->at].val.s, attr;
	struct jinja_node *n;
	int rc;

	if (jinja_same(s, "true") || jinja_same(s, "True"))
		return constant(p, jinja_bool(true), out);
	if (jinja_same(s, "false") || jinja_same(s, "False"))
		return constant(p, jinja_bool(false), out);
	if (jinja_same(s, "none") || jinja_same(s, "None"))
		return constant(p, jinja_none(), out);
	*out = n = jinja_node_new(p, JN_NAME);
	if (!n)
		return GENAI_E_NOMEM;
	n->val = jinja_text(s.p, s.n);
	p->at++;
	if (jinja_same(s, "caller"))
		p->uses |= JINJA_USES_CALLER;
	else if (jinja_same(s, "varargs"))
		p->uses |= JINJA_USES_VARARGS;
	else if (jinja_same(s, "kwargs"))
		p->uses |= JINJA_USES_KWARGS;
	if (!with_ns || !jinja_skip(p, JT_DOT))
		return 0;
	rc = jinja_expect_name(p, &attr);
	if (rc)
		return rc;
	n->kind = JN_NSREF;
	n->a = jinja_node_new(p, JN_CONST);
	if (!n->a)
		return GENAI_E_NOMEM;
	n->a->val = jinja_text(attr.p, attr.n);
	return 0;
}

static int group(struct jinja_parser *p, struct jinja_node **out)
{
	int rc;

	p->at++;
	if (jinja_peek(p) == JT_RPAREN) {
		*out = jinja_node_new(p, JN_TUPLE);
		rc = *out ? 0 : GENAI_E_NOMEM;
	} else {
		rc = jinja_parse_tuple(p, true, out);
	}
	return rc ? rc : jinja_expect(p, JT_RPAREN);
}

static int primary(struct jinja_parser *p, bool with_ns,
		   struct jinja_node **out)
{
	struct jinja_node *n;
	enum jinja_token t = jinja_peek(p);

	switch (t) {
	case JT_NAME:
		return name(p, with_ns, out);
	case JT_STRING:
		return strings(p, out);
	case JT_INT:
	case JT_FLOAT:
		return constant(p, p->tok[p->at].val, out);
	case JT_LPAREN:
		return group(p, out);
	case JT_LBRACKET:
	case JT_LBRACE:
		*out = n =
			jinja_node_new(p, t == JT_LBRACE ? JN_DICT : JN_LIST);
		if (!n)
			return GENAI_E_NOMEM;
		p->at++;
		return sequence(p, t == JT_LBRACE ? JT_RBRACE : JT_RBRACKET,
				t == JT_LBRACE, &n->b);
	default:
		return jinja_unexpected(p);
	}
}

// The inside of [...]: an index, or a slice.
static int subscript(struct jinja_parser *p, struct jinja_node *n)
{
	struct jinja_node **part[] = {&n->b, &n->c, &n->d};
	int i, rc = 0;

	for (i = 0; !rc && i < 3; i++) {
		if (jinja_peek(p) != JT_COLON && jinja_peek(p) != JT_RBRACKET)
			rc = jinja_parse_expr(p, true, part[i]);
		if (rc || !jinja_skip(p, JT_COLON))
			break;
		n->kind = JN_SLICE;
	}
	if (!rc && n->kind == JN_ITEM && !n->b)
		rc = jinja_unexpected(p);
	return rc ? rc : jinja_expect(p, JT_RBRACKET);
}

static int dotted(struct jinja_parser *p, struct jinja_node *n)
{
	if (jinja_peek(p) == JT_NAME) {
		n->kind = JN_ATTR;
		n->val = p->tok[p->at++].val;
		return 0;
	}
	if (jinja_peek(p) != JT_INT)
		return jinja_unexpected(p);
	return constant(p, p->tok[p->at].val, &n->b);
}

static int postfix(struct jinja_parser *p, struct jinja_node **io)
{
	struct jinja_node *n;
	int rc = 0;

	while (!rc) {
		if (jinja_peek(p) != JT_DOT && jinja_peek(p) != JT_LBRACKET &&
		    jinja_peek(p) != JT_LPAREN)
			break;
		n = jinja_node_new(p, JN_ITEM);
		if (!n)
			return GENAI_E_NOMEM;
		n->a = *io;
		*io = n;
		if (jinja_skip(p, JT_DOT)) {
			rc = dotted(p, n);
		} else if (jinja_skip(p, JT_LBRACKET)) {
			rc = subscript(p, n);
		} else {
			n->kind = JN_CALL;
			rc = call_args(p, &n->b);
		}
	}
	return rc;
}

static int test(struct jinja_parser *p, struct jinja_node **io)
{
	struct jinja_node *n = jinja_node_new(p, JN_TEST), *neg;
	bool negated = jinja_skip_name(p, "not");
	int rc;

	if (!n)
		return GENAI_E_NOMEM;
	n->a = *io;
	n->val = jinja_text("", 0);
	*io = n;
	rc = jinja_expect_name(p, &n->val.s);
	if (rc)
		return rc;
	n->func = jinja_find_test(n->val.s);
	if (jinja_peek(p) == JT_LPAREN) {
		rc = call_args(p, &n->b);
	} else if ((jinja_peek(p) == JT_NAME && !jinja_peek_name(p, "else") &&
		    !jinja_peek_name(p, "or") && !jinja_peek_name(p, "and")) ||
		   jinja_peek(p) == JT_STRING || jinja_peek(p) == JT_INT ||
		   jinja_peek(p) == JT_FLOAT || jinja_peek(p) == JT_LBRACKET ||
		   jinja_peek(p) == JT_LBRACE) {
		if (jinja_peek_name(p, "is"))
			return jinja_unexpected(p);
		rc = primary(p, false, &n->b);
		if (!rc)
			rc = postfix(p, &n->b);
	}
	if (rc || !negated)
		return rc;
	neg = jinja_node_new(p, JN_NOT);
	if (!neg)
		return GENAI_E_NOMEM;
	neg->a = n;
	*io = neg;
	return 0;
}

// One or more "|name(args)"; bare: the first stands without its "|".
int jinja_parse_filters(struct jinja_parser *p, bool bare,
			struct jinja_node **io)
{
	struct jinja_node *n;
	int rc = 0;

	while (!rc && (bare || jinja_skip(p, JT_PIPE))) {
		bare = false;
		n = jinja_node_new(p, JN_FILTER);
		if (!n)
			return GENAI_E_NOMEM;
		n->a = *io;
		n->val = jinja_text("", 0);
		*io = n;
		rc = jinja_expect_name(p, &n->val.s);
		if (rc)
			break;
		n->func = jinja_find_filter(n->val.s);
		if (jinja_peek(p) == JT_LPAREN)
			rc = call_args(p, &n->b);
	}
	return rc;
}

static int filtered(struct jinja_parser *p, struct jinja_node **io)
{
	struct jinja_node *n;
	int rc = 0;

	while (!rc) {
		if (jinja_peek(p) == JT_PIPE) {
			rc = jinja_parse_filters(p, false, io);
		} else if (jinja_skip_name(p, "is")) {
			rc = test(p, io);
		} else if (jinja_peek(p) == JT_LPAREN) {
			n = jinja_node_new(p, JN_CALL);
			if (!n)
				return GENAI_E_NOMEM;
			n->a = *io;
			*io = n;
			rc = call_args(p, &n->b);
		} else {
			break;
		}
	}
	return rc;
}

static int enter(struct jinja_parser *p)
{
	if (p->depth++ < JINJA_MAX_NEST)
		return 0;
	p->depth--;
	return jinja_parse_fail(p, "nested deeper than %d", JINJA_MAX_NEST);
}

static int unary(struct jinja_parser *p, bool with_filter,
		 struct jinja_node **out)
{
	struct jinja_node *n;
	int rc = enter(p);

	if (rc)
		return rc;
	if (jinja_peek(p) == JT_SUB || jinja_peek(p) == JT_ADD) {
		n = jinja_node_new(p,
				   jinja_peek(p) == JT_SUB ? JN_NEG : JN_POS);
		if (n) {
			p->at++;
			rc = unary(p, false, &n->a);
			*out = n;
		} else {
			rc = GENAI_E_NOMEM;
		}
	} else {
		rc = primary(p, false, out);
	}
	if (!rc)
		rc = postfix(p, out);
	if (!rc && with_filter)
		rc = filtered(p, out);
	p->depth--;
	return rc;
}

// Left-associative operators, loosest first.
static int binary(struct jinja_parser *p, int level, struct jinja_node **out)
{
	static const uint8_t ops[][4] = {
		{JT_ADD, JT_SUB},
		{JT_TILDE},
		{JT_MUL, JT_DIV, JT_FLOORDIV, JT_MOD},
		{JT_POW},
	};
	struct jinja_node *n;
	int rc;

	if (level == 4)
		return unary(p, true, out);
	rc = binary(p, level + 1, out);
	while (!rc && memchr(ops[level], (int)jinja_peek(p), 4) &&
	       jinja_peek(p)) {
		n = jinja_node_new(p, JN_BINARY);
		if (!n)
			return GENAI_E_NOMEM;
		n->op = (uint8_t)jinja_peek(p);
		n->a = *out;
		*out = n;
		p->at++;
		rc = binary(p, level + 1, &n->b);
	}
	return rc;
}

static int compare(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n, **tail = NULL;
	enum jinja_token t;
	int rc = binary(p, 0, out);

	while (!rc) {
		t = jinja_peek(p);
		if (jinja_peek_name(p, "in")) {
			t = JT_IN;
		} else if (jinja_peek_name(p, "not") &&
			   p->tok[p->at + 1].type == JT_NAME &&
			   jinja_same(p->tok[p->at + 1].val.s, "in")) {
			t = JT_NOTIN;
			p->at++;
		} else if (t < JT_EQ || t > JT_GE) {
			break;
		}
		if (!tail) {
			n = jinja_node_new(p, JN_COMPARE);
			if (!n)
				return GENAI_E_NOMEM;
			n->a = *out;
			*out = n;
			tail = &n->b;
		}
		p->at++;
		*tail = n = jinja_node_new(p, JN_OPERAND);
		if (!n)
			return GENAI_E_NOMEM;
		n->op = (uint8_t)t;
		tail = &n->next;
		rc = binary(p, 0, &n->a);
	}
	return rc;
}

static int negation(struct jinja_parser *p, struct jinja_node **out)
{
	struct jinja_node *n;
	int rc;

	if (!jinja_peek_name(p, "not"))
		return compare(p, out);
	n = jinja_node_new(p, JN_NOT);
	if (!n)
		return GENAI_E_NOMEM;
	p->at++;
	rc = enter(p);
	if (rc)
		return rc;
	rc = negation(p, &n->a);
	p->depth--;
	*out = n;
	return rc;
}

static int junction(struct jinja_parser *p, int kind, struct jinja_node **out)
{
	struct jinja_node *n;
	int rc = kind == JN_OR ? junction(p, JN_AND, out) : negation(p, out);

	while (!rc && jinja_skip_name(p, kind == JN_OR ? "or" : "and")) {
		n = jinja_node_new(p, kind);
		if (!n)
			return GENAI_E_NOMEM;
		n->a = *out;
		*out = n;
		rc = kind == JN_OR ? junction(p, JN_AND, &n->b)
				   : negation(p, &n->b);
	}
	return rc;
}

int jinja_parse_expr(struct jinja_parser *p, bool cond, struct jinja_node **out)
{
	struct jinja_node *n;
	int rc = enter(p);

	if (rc)
		return rc;
	rc = junction(p, JN_OR, out);
	while (!rc && cond && jinja_skip_name(p, "if")) {
		n = jinja_node_new(p, JN_COND);
		if (!n) {
			rc = GENAI_E_NOMEM;
			break;
		}
		n->b = *out;
		*out = n;
		rc = junction(p, JN_OR, &n->a);
		if (!rc && jinja_skip_name(p, "else"))
			rc = jinja_parse_expr(p, true, &n->c);
	}
	p->depth--;
	return rc;
}

static bool tuple_ends(const struct jinja_parser *p)
{
	return jinja_peek(p) == JT_VAR_END || jinja_peek(p) == JT_BLOCK_END ||
	       jinja_peek(p) == JT_RPAREN || jinja_peek(p) == JT_ASSIGN ||
	       jinja_peek_name(p, "in");
}

static int tuple(struct jinja_parser *p, bool cond, bool target, bool with_ns,
		 struct jinja_node **out)
{
	struct jinja_node *n, **tail;
	int rc = target ? primary(p, with_ns, out)
			: jinja_parse_expr(p, cond, out);

	if (rc || jinja_peek(p) != JT_COMMA)
		return rc;
	n = jinja_node_new(p, JN_TUPLE);
	if (!n)
		return GENAI_E_NOMEM;
	n->b = *out;
	*out = n;
	tail = &n->b->next;
	while (!rc && jinja_skip(p, JT_COMMA)) {
		if (tuple_ends(p))
			break;
		rc = target ? primary(p, with_ns, tail)
			    : jinja_parse_expr(p, cond, tail);
		if (!rc)
			tail = &(*tail)->next;
	}
	return rc;
}

int jinja_parse_tuple(struct jinja_parser *p, bool cond,
		      struct jinja_node **out)
{
	return tuple(p, cond, false, false, out);
}

static int check_target(struct jinja_parser *p, const struct jinja_node *n)
{
	int rc = 0;

	if (n->kind == JN_NAME || n->kind == JN_NSREF)
		return 0;
	if (n->kind != JN_TUPLE && n->kind != JN_LIST)
		return jinja_parse_fail(p, "cannot assign to this");
	for (n = n->b; !rc && n; n = n->next)
		rc = check_target(p, n);
	return rc;
}

int jinja_parse_target(struct jinja_parser *p, bool with_ns,
		       struct jinja_node **out)
{
	int rc = tuple(p, true, true, with_ns, out);

	return rc ? rc : check_target(p, *out);
}
