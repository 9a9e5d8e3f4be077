// jinja_lex.c - template text to lexemes.
// Owns: tags, whitespace control (trim_blocks and lstrip_blocks are on, one
// newline at the end is dropped), numbers and string escapes.
#include "core/text/template/jinja.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

struct lexer {
	struct jinja_parser *p;
	const char *s;
	size_t n, at;
	uint32_t line;
	bool line_starting;
	char closers[JINJA_MAX_NEST];
	int open;
};

static int push(struct lexer *x, enum jinja_token type, struct jinja_value v)
{
	struct jinja_parser *p = x->p;

	if (p->n_tok == p->cap_tok) {
		size_t cap = p->cap_tok * 2 + 64;
		struct jinja_lexeme *t = realloc(p->tok, cap * sizeof(*t));

		if (!t)
			return genai_fail(p->err, GENAI_E_NOMEM,
					  "%s: no memory to parse", p->name);
		p->tok = t;
		p->cap_tok = cap;
	}
	p->tok[p->n_tok++] = (struct jinja_lexeme){type, x->line, v};
	return 0;
}

static int fail(struct lexer *x, const char *what, const char *p, size_t n)
{
	return genai_fail(x->p->err, GENAI_E_FORMAT, "%s:%u: %s%.*s",
			  x->p->name, x->line, what, (int)n, p);
}

static void advance(struct lexer *x, size_t n)
{
	for (; n; n--)
		x->line += x->s[x->at++] == '\n';
}

static bool looking_at(const struct lexer *x, const char *what)
{
	size_t n = strlen(what);

	return x->n - x->at >= n && !memcmp(x->s + x->at, what, n);
}

static void skip_space(struct lexer *x)
{
	while (x->at < x->n) {
		size_t to = x->at;

		if (!jinja_is_space(jinja_next(x->s, x->n, &to)))
			break;
		advance(x, to - x->at);
	}
}

// After a closing mark: what "-" and trim_blocks take off the text behind it.
static void close_tag(struct lexer *x, size_t mark, bool minus, bool trim)
{
	advance(x, mark);
	if (minus)
		skip_space(x);
	else if (trim && looking_at(x, "\n"))
		advance(x, 1);
	x->line_starting = x->s[x->at - 1] == '\n';
}

// "raw" or "endraw" tag at the start of s?  Its whole length in bytes, or 0.
static size_t raw_tag(const char *s, size_t n, const char *word,
		      bool *out_minus)
{
	size_t at = 2, len = strlen(word);

	if (n < 2 || memcmp(s, "{%", 2))
		return 0;
	if (at < n && (s[at] == '-' || s[at] == '+'))
		at++;
	while (at < n && strchr(" \t\n\r\v\f", s[at]) && s[at])
		at++;
	if (n - at < len || memcmp(s + at, word, len))
		return 0;
	at += len;
	while (at < n && strchr(" \t\n\r\v\f", s[at]) && s[at])
		at++;
	*out_minus = at < n && s[at] == '-';
	if (at < n && (s[at] == '-' || (s[at] == '+' && *word == 'e')))
		at++;
	if (n - at < 2 || memcmp(s + at, "%}", 2))
		return 0;
	return at + 2;
}

// Emit the text before a tag, less what the tag's sign takes off its end.
static int data(struct lexer *x, size_t from, size_t to, char sign,
		bool variable)
{
	struct jinja_str s = {x->s + from, to - from};
	uint32_t line = x->line;
	size_t i;
	int rc = 0;

	if (sign == '-') {
		s = jinja_text_strip(s, NULL, 0, 1);
	} else if (sign != '+' && !variable) {
		for (i = s.n; i && s.p[i - 1] != '\n'; i--)
			;
		if ((i || x->line_starting) &&
		    !jinja_text_strip((struct jinja_str){s.p + i, s.n - i},
				      NULL, 1, 0)
			     .n)
			s.n = i;
	}
	if (s.n)
		rc = push(x, JT_DATA, jinja_text(s.p, s.n));
	x->line = line;
	advance(x, to - from);
	return rc;
}

static int comment(struct lexer *x)
{
	const char *from = x->s + x->at;
	const char *end = memmem(from, x->n - x->at, "#}", 2);
	size_t n;
	char sign;

	if (!end)
		return fail(x, "missing end of comment tag", "", 0);
	n = (size_t)(end - from);
	sign = n ? end[-1] : 0;
	close_tag(x, n + 2, sign == '-', sign != '+');
	return 0;
}

static int raw(struct lexer *x, size_t tag, bool minus)
{
	size_t from, at, len = 0;
	char sign;
	int rc;

	close_tag(x, tag, minus, false);
	from = x->at;
	for (at = from; at < x->n; at++) {
		len = raw_tag(x->s + at, x->n - at, "endraw", &minus);
		if (len)
			break;
	}
	if (at == x->n)
		return fail(x, "missing end of raw directive", "", 0);
	sign = x->s[at + 2];
	rc = data(x, from, at, sign, false);
	close_tag(x, len, minus, x->s[at + len - 3] != '+');
	return rc;
}

static int digits(const struct lexer *x, size_t *io_at, const char *set)
{
	size_t at = *io_at;

	while (at < x->n) {
		size_t d = at + (at > *io_at && x->s[at] == '_');

		if (d >= x->n || !x->s[d] || !strchr(set, x->s[d]))
			break;
		at = d + 1;
	}
	if (at == *io_at)
		return 0;
	*io_at = at;
	return 1;
}

#define DEC "0123456789"

// Convert x->s[at, end) without its underscores.
static int number_value(struct lexer *x, size_t end, int base, bool real)
{
	char text[128], *stop = text;
	size_t i, n = 0;
	double f = 0;
	long long v = 0;
	bool bad;
	int rc;

	for (i = x->at + (base == 10 ? 0 : 2); i < end; i++)
		if (x->s[i] != '_' && n < sizeof(text) - 1)
			text[n++] = x->s[i];
	text[n] = 0;
	errno = 0;
	if (!real)
		v = strtoll(text, &stop, base);
	bad = real ? !jinja_read_float(text, n, &f) : errno || *stop;
	if (bad || n == sizeof(text) - 1)
		return fail(x, "number out of range: ", text, n);
	rc = real ? push(x, JT_FLOAT, jinja_float(f))
		  : push(x, JT_INT, jinja_int(v));
	advance(x, end - x->at);
	return rc;
}

static int number(struct lexer *x)
{
	size_t at = x->at, end, e;
	bool real = false;
	int rc;

	digits(x, &at, DEC);
	end = at;
	if (!x->at || x->s[x->at - 1] != '.') {
		e = end + 1;
		if (end < x->n && x->s[end] == '.' && digits(x, &e, DEC)) {
			end = e;
			real = true;
		}
		e = end + 1;
		if (end < x->n && (x->s[end] | 32) == 'e') {
			if (e < x->n && (x->s[e] == '+' || x->s[e] == '-'))
				e++;
			if (digits(x, &e, DEC)) {
				end = e;
				real = true;
			}
		}
	}
	if (real)
		return number_value(x, end, 10, true);
	if (x->s[x->at] != '0')
		return number_value(x, at, 10, false);
	at = x->at + 2;
	if (at < x->n) {
		switch (x->s[at - 1] | 32) {
		case 'x':
			if (digits(x, &at, DEC "abcdefABCDEF"))
				return number_value(x, at, 16, false);
			break;
		case 'o':
			if (digits(x, &at, "01234567"))
				return number_value(x, at, 8, false);
			break;
		case 'b':
			if (digits(x, &at, "01"))
				return number_value(x, at, 2, false);
			break;
		}
	}
	at = x->at;
	digits(x, &at, "0");
	rc = number_value(x, x->at + 1, 10, false);
	advance(x, at - x->at);
	return rc;
}

static int hex(const char *p, size_t n, int32_t *out)
{
	int32_t v = 0;

	for (; n; n--, p++) {
		int c = *p >= '0' && *p <= '9'		       ? *p - '0'
			: (*p | 32) >= 'a' && (*p | 32) <= 'f' ? (*p | 32) - 87
							       : -1;
		if (c < 0 || v > 0x10ffff)
			return -1;
		v = v * 16 + c;
	}
	*out = v;
	return v > 0x10ffff || (v >= 0xd800 && v < 0xe000) ? -1 : 0;
}

// One escape at s (behind the backslash): bytes taken, 0 for a bad one.
static size_t escape(const char *s, size_t n, char *to, size_t *io_n)
{
	static const char from[] = "\\'\"abfnrtv",
			  into[] = "\\'\"\a\b\f\n\r\t\v";
	const char *hit = *s ? strchr(from, *s) : NULL;
	size_t len = *s == 'x' ? 2 : *s == 'u' ? 4 : 8;
	int32_t c = 0;
	size_t i;

	if (*s == '\n')
		return 1;
	if (hit) {
		to[(*io_n)++] = into[hit - from];
		return 1;
	}
	if (*s == 'x' || *s == 'u' || *s == 'U') {
		if (n < len + 1 || hex(s + 1, len, &c))
			return 0;
		*io_n += jinja_put(c, to + *io_n);
		return len + 1;
	}
	if (*s >= '0' && *s <= '7') {
		for (i = 0; i < 3 && i < n && s[i] >= '0' && s[i] <= '7'; i++)
			c = c * 8 + s[i] - '0';
		*io_n += jinja_put(c, to + *io_n);
		return i;
	}
	if (*s == 'N')
		return 0;
	to[(*io_n)++] = '\\';
	to[(*io_n)++] = *s;
	return 1;
}

static int string(struct lexer *x)
{
	char quote = x->s[x->at], *to;
	size_t from = x->at + 1, end = from, i, took, n = 0;
	int rc;

	while (end < x->n && x->s[end] != quote)
		end += x->s[end] == '\\' ? 2 : 1;
	if (end >= x->n)
		return fail(x, "unterminated string", "", 0);
	// An escape never gets longer than it is written ("\0" is 1 of 2).
	to = jinja_alloc_text(x->p->arena, end - from);
	if (!to)
		return genai_fail(x->p->err, GENAI_E_NOMEM,
				  "%s: no memory to parse", x->p->name);
	for (i = from; i < end;) {
		if (x->s[i] != '\\') {
			to[n++] = x->s[i++];
			continue;
		}
		took = escape(x->s + i + 1, end - i - 1, to, &n);
		if (!took)
			return fail(x, "bad escape in string: ", x->s + i, 2);
		i += took + 1;
	}
	rc = push(x, JT_STRING, jinja_text(to, n));
	advance(x, end + 1 - x->at);
	return rc;
}

static int bracket(struct lexer *x, char c)
{
	if (c == '(' || c == '[' || c == '{') {
		if (x->open == JINJA_MAX_NEST)
			return fail(x, "brackets nest too deep", "", 0);
		x->closers[x->open++] = (char)(c == '(' ? ')' : c + 2);
	} else if (c == ')' || c == ']' || c == '}') {
		if (!x->open || x->closers[x->open - 1] != c)
			return fail(x, "unexpected ", &c, 1);
		x->open--;
	}
	return 0;
}

static int symbol(struct lexer *x)
{
	static const struct {
		char text[3];
		enum jinja_token type;
	} table[] = {
		{"//", JT_FLOORDIV}, {"**", JT_POW},	  {"==", JT_EQ},
		{"!=", JT_NE},	     {">=", JT_GE},	  {"<=", JT_LE},
		{"+", JT_ADD},	     {"-", JT_SUB},	  {"/", JT_DIV},
		{"*", JT_MUL},	     {"%", JT_MOD},	  {"~", JT_TILDE},
		{"[", JT_LBRACKET},  {"]", JT_RBRACKET},  {"(", JT_LPAREN},
		{")", JT_RPAREN},    {"{", JT_LBRACE},	  {"}", JT_RBRACE},
		{">", JT_GT},	     {"<", JT_LT},	  {"=", JT_ASSIGN},
		{".", JT_DOT},	     {":", JT_COLON},	  {"|", JT_PIPE},
		{",", JT_COMMA},     {";", JT_SEMICOLON},
	};
	size_t i;
	int rc;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++) {
		if (!looking_at(x, table[i].text))
			continue;
		rc = bracket(x, x->s[x->at]);
		if (!rc)
			rc = push(x, table[i].type, jinja_none());
		advance(x, strlen(table[i].text));
		return rc;
	}
	return fail(x, "unexpected character: ", x->s + x->at, 1);
}

static bool is_word(char c)
{
	return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') ||
	       (c >= 'A' && c <= 'Z') || c == '_' || (unsigned char)c >= 0x80;
}

// The end mark of a tag at the current place?  1 if it was taken.
static int tag_end(struct lexer *x, bool variable, int *io_rc)
{
	const char *mark = variable ? "}}" : "%}";
	bool minus = looking_at(x, "-");
	bool sign = minus || (!variable && looking_at(x, "+"));

	x->at += sign;
	if (x->open || !looking_at(x, mark)) {
		x->at -= sign;
		return 0;
	}
	*io_rc = push(x, variable ? JT_VAR_END : JT_BLOCK_END, jinja_none());
	close_tag(x, 2, minus, !variable && !(sign && !minus));
	return 1;
}

static int tag(struct lexer *x, bool variable)
{
	int rc =
		push(x, variable ? JT_VAR_BEGIN : JT_BLOCK_BEGIN, jinja_none());
	size_t end;
	char c;

	x->open = 0;
	while (!rc) {
		skip_space(x);
		if (x->at == x->n)
			return fail(x, "unexpected end of template in a tag",
				    "", 0);
		if (tag_end(x, variable, &rc))
			break;
		c = x->s[x->at];
		if (c >= '0' && c <= '9') {
			rc = number(x);
		} else if (is_word(c)) {
			for (end = x->at; end < x->n && is_word(x->s[end]);)
				end++;
			rc = push(x, JT_NAME,
				  jinja_text(x->s + x->at, end - x->at));
			advance(x, end - x->at);
		} else if (c == '"' || c == '\'') {
			rc = string(x);
		} else {
			rc = symbol(x);
		}
	}
	return rc;
}

static int lex(struct lexer *x)
{
	size_t at, len;
	bool minus;
	int rc = 0;

	while (!rc && x->at < x->n) {
		for (at = x->at; at + 1 < x->n; at++)
			if (x->s[at] == '{' && strchr("%{#", x->s[at + 1]) &&
			    x->s[at + 1])
				break;
		if (at + 1 >= x->n)
			return push(x, JT_DATA,
				    jinja_text(x->s + x->at, x->n - x->at));
		rc = data(x, x->at, at, at + 2 < x->n ? x->s[at + 2] : 0,
			  x->s[at + 1] == '{');
		if (rc)
			break;
		len = raw_tag(x->s + at, x->n - at, "raw", &minus);
		if (len) {
			rc = raw(x, len, minus);
			continue;
		}
		advance(x, 2);
		if (x->at < x->n && (x->s[x->at] == '-' || x->s[x->at] == '+'))
			advance(x, 1);
		rc = x->s[at + 1] == '#' ? comment(x)
					 : tag(x, x->s[at + 1] == '{');
	}
	return rc;
}

int jinja_lex(struct jinja_parser *p, const char *text, size_t bytes)
{
	struct lexer x = {.p = p, .line = 1, .line_starting = true};
	char *s = jinja_alloc_text(p->arena, bytes);
	size_t i, n = 0;
	int rc;

	if (!s)
		return genai_fail(p->err, GENAI_E_NOMEM,
				  "%s: no memory to parse", p->name);
	for (i = 0; i < bytes; i++) {
		if (text[i] == '\r' && i + 1 < bytes && text[i + 1] == '\n')
			continue;
		s[n++] = text[i] == '\r' ? '\n' : text[i];
	}
	if (n && s[n - 1] == '\n')
		n--;
	x.s = s;
	x.n = n;
	rc = lex(&x);
	return rc ? rc : push(&x, JT_EOF, jinja_none());
}
