// tok_pre.c - pre-tokenizers: cutting normalized text into words.
// Each step takes the pieces of the step before; some rewrite the text.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>

enum kind {
	PRE_BYTES,
	PRE_SPLIT,
	PRE_METASPACE,
	PRE_CLASS, // by a class of single characters
	PRE_WHITESPACE,
	PRE_SCRIPTS,
	PRE_FIXED
};
enum scheme { SCHEME_ALWAYS, SCHEME_FIRST, SCHEME_NEVER };

struct tok_pre {
	enum kind kind;
	enum tok_behavior how;
	enum scheme scheme;
	bool invert, prefix, split;
	bool (*is)(uint32_t cp); // PRE_CLASS; NULL: the character ch
	uint32_t ch;		 // also Metaspace's replacement, FixedLength
	struct tok_pattern pat;
};

// The regex of GPT-2, which ByteLevel has built in.
static const char gpt2_regex[] =
	"'s|'t|'re|'ve|'m|'ll|'d| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|"
	"\\s+(?!\\S)|\\s+";

static void event(struct tok_work *w, size_t from, size_t to, bool match)
{
	struct tok_event e = {from, to, match};

	if (from < to || match) // an empty match still parts its neighbours
		tok_buf_add(&w->events, &e, sizeof(e));
}

static void piece_out(const struct tok_piece *piece, size_t from, size_t to,
		      struct tok_buf *out)
{
	struct tok_piece p = {piece->off + from, to - from,
			      piece->at_start && !from};

	if (p.len)
		tok_buf_add(out, &p, sizeof(p));
}

void tok_split(struct tok_work *w, const struct tok_piece *piece,
	       enum tok_behavior how, bool invert, struct tok_buf *out)
{
	const struct tok_event *e = (const void *)w->events.p;
	size_t n = w->events.n / sizeof(*e), i, from;
	bool match, joins;

	for (i = 0; i < n; i++) {
		from = e[i].from;
		if (how == TOK_REMOVED && e[i].match != invert)
			continue;
		for (; i + 1 < n; i++) {
			match = e[i].match != invert;
			// Whether the next stretch joins this one.
			joins = how == TOK_CONTIGUOUS &&
				e[i].match == e[i + 1].match;
			if (how == TOK_MERGED_PREV)
				joins = !match && e[i + 1].match != invert;
			if (how == TOK_MERGED_NEXT)
				joins = match && e[i + 1].match == invert;
			if (!joins)
				break;
		}
		piece_out(piece, from, e[i].to, out);
	}
}

static int32_t find_events(const struct tok_pre *s, struct tok_work *w,
			   const char *p, size_t n)
{
	struct tok_scan scan = {&s->pat, p, n, 0, 0, false};
	size_t from, to, done = 0;
	int32_t rc;

	while ((rc = tok_scan_next(&scan, w->md, &from, &to, w->err)) > 0) {
		event(w, done, from, false);
		event(w, from, to, true);
		done = to;
	}
	event(w, done, n, false);
	return rc;
}

static void class_events(const struct tok_pre *s, struct tok_work *w,
			 const char *p, size_t n)
{
	size_t done = 0, i;
	unsigned len;

	for (i = 0; i < n; i += len) {
		uint32_t c = tok_utf8_get(p + i, n - i, &len);

		if (s->is ? !s->is(c) : c != s->ch)
			continue;
		event(w, done, i, false);
		event(w, i, i + len, true);
		done = i + len;
	}
	event(w, done, n, false);
}

// Runs of word characters, and of what is neither word nor blank.
static void whitespace_pieces(const char *p, const struct tok_piece *piece,
			      struct tok_buf *out)
{
	size_t i, start = 0;
	int kind, last = 0;
	unsigned len;

	for (i = 0; i < piece->len; i += len) {
		uint32_t c = tok_utf8_get(p + i, piece->len - i, &len);

		kind = tok_is_word(c) ? 2 : !tok_is_space(c);
		if (kind == last)
			continue;
		if (last)
			piece_out(piece, start, i, out);
		start = i;
		last = kind;
	}
	if (last)
		piece_out(piece, start, piece->len, out);
}

static void fixed_pieces(const struct tok_pre *s, const char *p,
			 const struct tok_piece *piece, struct tok_buf *out)
{
	size_t i, start = 0;
	uint32_t count = 0;
	unsigned len;

	for (i = 0; i < piece->len; i += len) {
		tok_utf8_get(p + i, piece->len - i, &len);
		if (count++ < s->ch)
			continue;
		piece_out(piece, start, i, out);
		start = i;
		count = 1;
	}
	piece_out(piece, start, piece->len, out);
}

static bool starts_with(const char *p, size_t n, uint32_t c)
{
	unsigned len;

	return n && tok_utf8_get(p, n, &len) == c;
}

// Metaspace: blanks become visible, one more before the first word.
static void metaspace(const struct tok_pre *s, struct tok_work *w,
		      const char *p, const struct tok_piece *piece,
		      struct tok_buf *text, struct tok_buf *out)
{
	struct tok_piece made = {text->n, 0, piece->at_start};
	struct tok_pre by_ch = {.kind = PRE_CLASS, .ch = s->ch};
	size_t i, run;

	if (!starts_with(p, piece->len, s->ch) &&
	    !starts_with(p, piece->len, ' ') &&
	    (s->scheme == SCHEME_ALWAYS ||
	     (s->scheme == SCHEME_FIRST && piece->at_start)))
		tok_buf_char(text, s->ch);
	for (i = 0; i < piece->len; i = run) {
		for (run = i; run < piece->len && p[run] != ' '; run++)
			;
		tok_buf_add(text, p + i, run - i);
		if (run < piece->len) {
			tok_buf_char(text, s->ch);
			run++;
		}
	}
	made.len = text->n - made.off;
	if (text->failed)
		return;
	if (!s->split) {
		piece_out(&made, 0, made.len, out);
		return;
	}
	class_events(&by_ch, w, text->p + made.off, made.len);
	tok_split(w, &made, TOK_MERGED_NEXT, false, out);
}

// ByteLevel on one piece: the words, in the byte alphabet.
static int32_t byte_level(const struct tok_pre *s, struct tok_work *w,
			  const char *p, size_t n,
			  const struct tok_piece *piece, struct tok_buf *text,
			  struct tok_buf *out)
{
	const struct tok_event *e;
	struct tok_piece made;
	int32_t rc = 0;
	size_t i;

	if (s->prefix && !starts_with(p, n, ' ')) {
		w->tmp.n = 0;
		tok_buf_add(&w->tmp, " ", 1);
		tok_buf_add(&w->tmp, p, n);
		if (w->tmp.failed)
			return tok_nomem(w->err);
		p = w->tmp.p;
		n = w->tmp.n;
	}
	if (s->pat.re)
		rc = find_events(s, w, p, n);
	else
		event(w, 0, n, false);
	e = (const void *)w->events.p;
	for (i = 0; !rc && i < w->events.n / sizeof(*e); i++) {
		made.off = text->n;
		tok_bytes_spell(text, p + e[i].from, e[i].to - e[i].from);
		made.len = text->n - made.off;
		made.at_start = piece->at_start && !i;
		piece_out(&made, 0, made.len, out);
	}
	return rc;
}

static int32_t step(const struct tok_pre *s, struct tok_work *w, const char *p,
		    const struct tok_piece *piece, struct tok_buf *text,
		    struct tok_buf *out)
{
	int32_t rc = 0;

	w->events.n = 0;
	switch (s->kind) {
	case PRE_BYTES:
		return byte_level(s, w, p, piece->len, piece, text, out);
	case PRE_METASPACE:
		metaspace(s, w, p, piece, text, out);
		return 0;
	case PRE_WHITESPACE:
		whitespace_pieces(p, piece, out);
		return 0;
	case PRE_FIXED:
		fixed_pieces(s, p, piece, out);
		return 0;
	case PRE_SCRIPTS:
		tok_scripts_split(p, piece, out);
		return 0;
	case PRE_SPLIT:
		rc = find_events(s, w, p, piece->len);
		break;
	case PRE_CLASS:
		class_events(s, w, p, piece->len);
		break;
	}
	if (!rc && !w->events.failed)
		tok_split(w, piece, s->how, s->invert, out);
	return rc;
}

int32_t tok_pretokenize(const struct tok_pres *pres, struct tok_work *w,
			const char *text, size_t n, bool at_start,
			const char **out_text, struct tok_buf **out_pieces)
{
	struct tok_buf *in = w->pieces, *out = w->pieces + 1, *swap;
	struct tok_buf *made = w->text;
	struct tok_piece all = {0, n, at_start};
	const struct tok_piece *piece;
	int32_t rc = 0;
	size_t i, k;

	in->n = 0;
	tok_buf_add(in, &all, n ? sizeof(all) : 0);
	for (i = 0; i < pres->n; i++) {
		const struct tok_pre *s = pres->v + i;

		if (in->failed)
			break;
		out->n = made->n = 0;
		piece = (const void *)in->p;
		for (k = 0; !rc && k < in->n / sizeof(all); k++)
			rc = step(s, w, text + piece[k].off, piece + k, made,
				  out);
		if (rc)
			return rc;
		if (out->failed || made->failed || w->events.failed)
			return tok_nomem(w->err);
		if (s->kind == PRE_BYTES || s->kind == PRE_METASPACE) {
			text = made->p;
			made = made == w->text ? w->text + 1 : w->text;
		}
		swap = in;
		in = out;
		out = swap;
	}
	if (in->failed)
		return tok_nomem(w->err);
	*out_text = text;
	*out_pieces = in;
	return 0;
}

static int32_t behavior(const struct tok_load *l, json_t *j,
			enum tok_behavior *out)
{
	static const char *const names[] = {"Removed", "Isolated",
					    "MergedWithPrevious",
					    "MergedWithNext", "Contiguous"};
	const char *name = json_string_value(json_object_get(j, "behavior"));
	size_t i;

	for (i = 0; name && i < sizeof(names) / sizeof(*names); i++) {
		if (!strcmp(name, names[i])) {
			*out = (enum tok_behavior)i;
			return 0;
		}
	}
	return tok_unsupported(l, "split behavior", name ? name : "none");
}

static int32_t parse_bytes(const struct tok_load *l, json_t *j,
			   struct tok_pre *s)
{
	struct tok_buf re = {0};
	int32_t rc;

	s->prefix = tok_bool(j, "add_prefix_space", true);
	if (!tok_bool(j, "use_regex", true))
		return 0;
	rc = tok_onig_translate(l, gpt2_regex, strlen(gpt2_regex), &re);
	if (!rc)
		rc = tok_regex_compile(l, re.p, re.n, &s->pat.re);
	tok_buf_free(&re);
	return rc;
}

static int32_t parse_metaspace(const struct tok_load *l, json_t *j,
			       struct tok_pre *s)
{
	const char *name =
		json_string_value(json_object_get(j, "prepend_scheme"));

	s->split = tok_bool(j, "split", true);
	if (!name) // files of before the scheme
		s->scheme = tok_bool(j, "add_prefix_space", true)
				    ? SCHEME_ALWAYS
				    : SCHEME_NEVER;
	else if (!strcmp(name, "always"))
		s->scheme = SCHEME_ALWAYS;
	else if (!strcmp(name, "first"))
		s->scheme = SCHEME_FIRST;
	else if (!strcmp(name, "never"))
		s->scheme = SCHEME_NEVER;
	else
		return tok_unsupported(l, "Metaspace prepend_scheme", name);
	return tok_one_char(l, j, "replacement", &s->ch);
}

static int32_t parse_fixed(const struct tok_load *l, json_t *j,
			   struct tok_pre *s)
{
	json_int_t n = json_integer_value(json_object_get(j, "length"));

	if (n < 1 || n > (json_int_t)TOK_MAX_TEXT)
		return tok_bad(l, "FixedLength: length is not positive");
	s->ch = (uint32_t)n;
	return 0;
}

static int32_t parse_class(const struct tok_load *l, json_t *j,
			   const char *type, struct tok_pre *s)
{
	s->how = TOK_REMOVED;
	if (!strcmp(type, "CharDelimiterSplit"))
		return tok_one_char(l, j, "delimiter", &s->ch);
	if (!strcmp(type, "Digits")) {
		s->is = tok_is_number;
		s->how = tok_bool(j, "individual_digits", false)
				 ? TOK_ISOLATED
				 : TOK_CONTIGUOUS;
	} else if (!strcmp(type, "Punctuation")) {
		s->is = tok_is_punct;
		s->how = TOK_ISOLATED;
		if (json_object_get(j, "behavior"))
			return behavior(l, j, &s->how);
	} else {
		s->is = tok_is_space; // WhitespaceSplit
	}
	return 0;
}

static struct tok_pre *append(struct tok_pres *p, enum kind kind)
{
	struct tok_pre *v = realloc(p->v, (p->n + 1) * sizeof(*v));

	if (!v)
		return NULL;
	p->v = v;
	v[p->n] = (struct tok_pre){.kind = kind};
	return v + p->n++;
}

static int32_t parse_split(const struct tok_load *l, json_t *j,
			   struct tok_pre *s)
{
	int32_t rc = behavior(l, j, &s->how);

	s->invert = tok_bool(j, "invert", false);
	if (rc)
		return rc;
	return tok_pattern_parse(l, json_object_get(j, "pattern"), &s->pat);
}

// Blanks removed, then each punctuation mark a word.
static int32_t parse_bert(const struct tok_load *l, struct tok_pres *p)
{
	struct tok_pre *s = append(p, PRE_CLASS);

	if (s) {
		s->is = tok_is_space;
		s->how = TOK_REMOVED;
		s = append(p, PRE_CLASS);
	}
	if (!s)
		return tok_nomem(l->err);
	s->is = tok_is_punct;
	s->how = TOK_ISOLATED;
	return 0;
}

static int32_t parse_one(const struct tok_load *l, json_t *j, void *user)
{
	static const struct {
		const char *type;
		enum kind kind;
	} kinds[] = {
		{"ByteLevel", PRE_BYTES},
		{"Split", PRE_SPLIT},
		{"Metaspace", PRE_METASPACE},
		{"Digits", PRE_CLASS},
		{"Punctuation", PRE_CLASS},
		{"WhitespaceSplit", PRE_CLASS},
		{"Whitespace", PRE_WHITESPACE},
		{"UnicodeScripts", PRE_SCRIPTS},
		{"FixedLength", PRE_FIXED},
		{"CharDelimiterSplit", PRE_CLASS},
	};
	const char *type = tok_type(j);
	struct tok_pre *s;
	size_t i;

	if (!strcmp(type, "BertPreTokenizer"))
		return parse_bert(l, user);
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(type, kinds[i].type))
			break;
	if (i == sizeof(kinds) / sizeof(*kinds))
		return tok_unsupported(l, "pre_tokenizer", type);
	s = append(user, kinds[i].kind);
	if (!s)
		return tok_nomem(l->err);
	switch (s->kind) {
	case PRE_BYTES:
		return parse_bytes(l, j, s);
	case PRE_SPLIT:
		return parse_split(l, j, s);
	case PRE_METASPACE:
		return parse_metaspace(l, j, s);
	case PRE_CLASS:
		return parse_class(l, j, type, s);
	case PRE_FIXED:
		return parse_fixed(l, j, s);
	default:
		return 0;
	}
}

int32_t tok_pres_parse(const struct tok_load *l, json_t *j,
		       struct tok_pres *out)
{
	return tok_sequence(l, j, "pretokenizers", parse_one, out);
}

void tok_pres_free(struct tok_pres *p)
{
	size_t i;

	for (i = 0; i < p->n; i++)
		tok_pattern_free(&p->v[i].pat);
	free(p->v);
	*p = (struct tok_pres){0};
}
