// tok_norm.c - normalizers: text to text, before it is cut into words.
// A Sequence becomes one list of steps; BertNormalizer becomes its steps.
#include "core/text/tokenizer/tok.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

enum step {
	NORM_FORM, // arg: enum tok_form
	NORM_LOWER,
	NORM_STRIP,   // arg: 1 left, 2 right
	NORM_ACCENTS, // drop all marks
	NORM_MN,      // drop nonspacing marks
	NORM_NMT,
	NORM_CLEAN,   // BertNormalizer's clean_text
	NORM_CHINESE, // blanks around ideographs
	NORM_PREPEND,
	NORM_REPLACE,
	NORM_BYTES,
	NORM_CHARSMAP
};

struct tok_norm {
	enum step step;
	int arg;
	char *str;
	size_t n;
	struct tok_pattern pat;
	struct tok_charsmap *map;
};

// A canonically decomposed string, not yet in canonical order.
struct chars {
	uint32_t *p;
	size_t n;
};

static uint8_t combining(uint32_t cp)
{
	return (uint8_t)utf8proc_get_property((utf8proc_int32_t)cp)
		->combining_class;
}

static int by_class(const void *a, const void *b)
{
	const uint64_t *x = a, *y = b;

	return *x < *y ? -1 : *x > *y;
}

// Stable sort of a run of marks by class, in O(n log n): utf8proc's own
// ordering is quadratic in the length of the run.
static int order_run(uint32_t *p, size_t n, struct tok_buf *tmp)
{
	uint64_t *keys;
	uint32_t *copy;
	size_t i;

	tmp->n = 0;
	keys = (uint64_t *)(void *)tok_buf_room(tmp, n * 12);
	if (!keys || n > UINT32_MAX)
		return -1;
	copy = (uint32_t *)(keys + n);
	for (i = 0; i < n; i++)
		keys[i] = (uint64_t)combining(p[i]) << 32 | i;
	memcpy(copy, p, n * sizeof(*p));
	qsort(keys, n, sizeof(*keys), by_class);
	for (i = 0; i < n; i++)
		p[i] = copy[(uint32_t)keys[i]];
	return 0;
}

static int order_all(struct chars *c, struct tok_buf *tmp)
{
	size_t i = 0, end;

	while (i < c->n) {
		if (!combining(c->p[i])) {
			i++;
			continue;
		}
		for (end = i + 1; end < c->n && combining(c->p[end]); end++)
			;
		if (end - i > 1 && order_run(c->p + i, end - i, tmp))
			return -1;
		i = end;
	}
	return 0;
}

static void decompose(const char *p, size_t n, int compat, struct tok_buf *out)
{
	utf8proc_int32_t parts[32];
	utf8proc_ssize_t k;
	int last = 0;
	unsigned len;
	size_t i;

	for (i = 0; i < n; i += len) {
		uint32_t cp = tok_utf8_get(p + i, n - i, &len);

		k = utf8proc_decompose_char(
			(utf8proc_int32_t)cp, parts, 32,
			UTF8PROC_DECOMPOSE | (compat ? UTF8PROC_COMPAT : 0),
			&last);
		if (k > 0 && k <= 32)
			tok_buf_add(out, parts, (size_t)k * sizeof(*parts));
		else
			out->failed = true; // no character is that long
	}
}

static bool is_ascii(const char *p, size_t n)
{
	size_t i;

	for (i = 0; i < n; i++)
		if ((uint8_t)p[i] >= 0x80)
			return false;
	return true;
}

int32_t tok_unicode_form(enum tok_form form, const char *p, size_t n,
			 struct tok_buf *out, struct genai_error *err)
{
	struct tok_buf wide = {0}, tmp = {0};
	struct chars c;
	size_t i;

	if (is_ascii(p, n)) {
		tok_buf_add(out, p, n);
		return 0;
	}
	decompose(p, n, form >= TOK_NFKC, &wide);
	c.p = (uint32_t *)(void *)wide.p;
	c.n = wide.n / sizeof(*c.p);
	if (wide.failed || order_all(&c, &tmp)) {
		out->failed = true;
		c.n = 0;
	} else if (form == TOK_NFC || form == TOK_NFKC) {
		c.n = (size_t)utf8proc_normalize_utf32(
			(utf8proc_int32_t *)c.p, (utf8proc_ssize_t)c.n,
			UTF8PROC_COMPOSE | UTF8PROC_STABLE);
	}
	for (i = 0; i < c.n; i++)
		tok_buf_char(out, c.p[i]);
	tok_buf_free(&wide);
	tok_buf_free(&tmp);
	return out->failed ? tok_nomem(err) : 0;
}

static bool is_chinese(uint32_t c)
{
	// The hole at 2b740...2b91f is the reference's.
	return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
	       (c >= 0x20000 && c <= 0x2a6df) ||
	       (c >= 0x2a700 && c <= 0x2b73f) ||
	       (c >= 0x2b740 && c <= 0x2b81f) ||
	       (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
	       (c >= 0x2f800 && c <= 0x2fa1f);
}

static void lower(uint32_t c, struct tok_buf *out)
{
	tok_buf_char(out, (uint32_t)utf8proc_tolower((utf8proc_int32_t)c));
	if (c == 0x130) // the one lower case of two characters
		tok_buf_char(out, 0x307);
}

static void nmt(uint32_t c, struct tok_buf *out)
{
	if ((c >= 1 && c <= 8) || c == 0xb || (c >= 0xe && c <= 0x1f) ||
	    c == 0x7f || c == 0x8f || c == 0x9f)
		return;
	if (c == 9 || c == 0xa || c == 0xc || c == 0xd || c == 0x1680 ||
	    (c >= 0x200b && c <= 0x200f) || c == 0x2028 || c == 0x2029 ||
	    c == 0x2581 || c == 0xfeff || c == 0xfffd)
		c = ' ';
	tok_buf_char(out, c);
}

// BertNormalizer's clean_text.  Format characters younger than the reference's
// tables stay, as there.
static void clean(uint32_t c, struct tok_buf *out)
{
	utf8proc_category_t k = utf8proc_category((utf8proc_int32_t)c);
	bool young = c == 0x890 || c == 0x891 || c == 0x8e2 || c == 0x110cd ||
		     (c >= 0x13430 && c <= 0x1343f);

	if (c == '\t' || c == '\n' || c == '\r')
		c = ' ';
	if (!c || c == 0xfffd ||
	    (k >= UTF8PROC_CATEGORY_CC && c != ' ' && !young))
		return;
	tok_buf_char(out, tok_is_space(c) ? ' ' : c);
}

// Steps that look at one character at a time.
static void map_char(enum step step, uint32_t c, struct tok_buf *out)
{
	switch (step) {
	case NORM_LOWER:
		lower(c, out);
		break;
	case NORM_NMT:
		nmt(c, out);
		break;
	case NORM_CLEAN:
		clean(c, out);
		break;
	case NORM_CHINESE:
		if (is_chinese(c))
			tok_buf_char(out, ' ');
		tok_buf_char(out, c);
		if (is_chinese(c))
			tok_buf_char(out, ' ');
		break;
	case NORM_MN:
		if (utf8proc_category((utf8proc_int32_t)c) !=
		    UTF8PROC_CATEGORY_MN)
			tok_buf_char(out, c);
		break;
	default:
		if (!tok_is_mark(c))
			tok_buf_char(out, c);
	}
}

static void map_chars(enum step step, const char *p, size_t n,
		      struct tok_buf *out, bool *at_start)
{
	unsigned len;
	size_t i;

	for (i = 0; i < n; i += len) {
		uint32_t c = tok_utf8_get(p + i, n - i, &len);

		map_char(step, c, out);
		if (!i && !out->n)
			*at_start = false;
	}
}

static void strip(int sides, const char *p, size_t n, struct tok_buf *out,
		  bool *at_start)
{
	size_t from = 0, prev;
	unsigned len;

	while (sides & 1 && from < n &&
	       tok_is_space(tok_utf8_get(p + from, n - from, &len))) {
		from += len;
		*at_start = false;
	}
	while (sides & 2 && from < n) {
		prev = tok_utf8_back(p, n);
		if (!tok_is_space(tok_utf8_get(p + prev, n - prev, &len)))
			break;
		n = prev;
	}
	tok_buf_add(out, p + from, n - from);
}

static int32_t replace(const struct tok_norm *s, struct tok_work *w,
		       const char *p, size_t n, struct tok_buf *out,
		       bool *at_start)
{
	struct tok_scan scan = {&s->pat, p, n, 0, 0, false};
	size_t from, to, done = 0;
	unsigned len;
	int32_t rc;

	while ((rc = tok_scan_next(&scan, w->md, &from, &to, w->err)) > 0) {
		tok_buf_add(out, p + done, from - done);
		tok_buf_add(out, s->str, s->n);
		done = to;
		if (from || !to)
			continue;
		// What stands for several characters counts from the last.
		tok_utf8_get(p, n, &len);
		if (!s->n || to > len)
			*at_start = false;
	}
	tok_buf_add(out, p + done, n - done);
	return rc;
}

static int32_t apply(const struct tok_norm *s, struct tok_work *w,
		     const struct tok_buf *in, struct tok_buf *out,
		     bool *at_start)
{
	switch (s->step) {
	case NORM_FORM:
		return tok_unicode_form((enum tok_form)s->arg, in->p, in->n,
					out, w->err);
	case NORM_STRIP:
		strip(s->arg, in->p, in->n, out, at_start);
		break;
	case NORM_PREPEND:
		if (in->n)
			tok_buf_add(out, s->str, s->n);
		tok_buf_str(out, in);
		break;
	case NORM_REPLACE:
		return replace(s, w, in->p, in->n, out, at_start);
	case NORM_BYTES:
		tok_bytes_spell(out, in->p, in->n);
		break;
	case NORM_CHARSMAP:
		tok_charsmap_apply(s->map, in->p, in->n, out);
		break;
	default:
		map_chars(s->step, in->p, in->n, out, at_start);
	}
	return 0;
}

// What a text may grow to: no character, and no tokenizer that makes sense,
// needs more; a file could ask for any multiple.
static size_t most(size_t n)
{
	return ((size_t)64 << 20) + 16 * n;
}

int32_t tok_normalize(const struct tok_norms *norms, struct tok_work *w,
		      const char *p, size_t n, bool *at_start)
{
	struct tok_buf *in = w->norm, *out = w->norm + 1, swap;
	int32_t rc;
	size_t i;

	in->max = out->max = most(n);
	in->n = 0;
	tok_buf_add(in, p, n);
	for (i = 0; i < norms->n && !in->failed; i++) {
		out->n = 0;
		tok_buf_room(out, in->n);
		rc = apply(norms->v + i, w, in, out, at_start);
		if (out->full)
			return genai_fail(w->err, GENAI_E_LIMIT,
					  "the normalized text is longer than "
					  "%zu bytes, of %zu given",
					  out->max, n);
		if (rc)
			return rc;
		swap = *in;
		*in = *out;
		*out = swap;
	}
	return in->failed ? tok_nomem(w->err) : 0;
}

static struct tok_norm *append(struct tok_norms *n, enum step step, int arg)
{
	struct tok_norm *v = realloc(n->v, (n->n + 1) * sizeof(*v));

	if (!v)
		return NULL;
	n->v = v;
	v[n->n] = (struct tok_norm){.step = step, .arg = arg};
	return v + n->n++;
}

static int32_t parse_bert(const struct tok_load *l, json_t *j,
			  struct tok_norms *n)
{
	bool low = tok_bool(j, "lowercase", true);
	bool accents = tok_bool(j, "strip_accents", low);
	bool ok = true;

	if (tok_bool(j, "clean_text", true))
		ok = append(n, NORM_CLEAN, 0);
	if (ok && tok_bool(j, "handle_chinese_chars", true))
		ok = append(n, NORM_CHINESE, 0);
	if (ok && accents)
		ok = append(n, NORM_FORM, TOK_NFD) && append(n, NORM_MN, 0);
	if (ok && low)
		ok = append(n, NORM_LOWER, 0);
	return ok ? 0 : tok_nomem(l->err);
}

static int32_t parse_one(const struct tok_load *l, json_t *j, void *user)
{
	static const struct {
		const char *type;
		enum step step;
		int arg;
	} kinds[] = {
		{"NFC", NORM_FORM, TOK_NFC},
		{"NFD", NORM_FORM, TOK_NFD},
		{"NFKC", NORM_FORM, TOK_NFKC},
		{"NFKD", NORM_FORM, TOK_NFKD},
		{"Lowercase", NORM_LOWER, 0},
		{"Strip", NORM_STRIP, 0},
		{"Nmt", NORM_NMT, 0},
		{"StripAccents", NORM_ACCENTS, 0},
		{"Prepend", NORM_PREPEND, 0},
		{"Replace", NORM_REPLACE, 0},
		{"ByteLevel", NORM_BYTES, 0},
		{"Precompiled", NORM_CHARSMAP, 0},
	};
	const char *type = tok_type(j);
	struct tok_norm *s;
	int32_t rc;
	size_t i;

	if (!strcmp(type, "BertNormalizer"))
		return parse_bert(l, j, user);
	for (i = 0; i < sizeof(kinds) / sizeof(*kinds); i++)
		if (!strcmp(type, kinds[i].type))
			break;
	if (i == sizeof(kinds) / sizeof(*kinds))
		return tok_unsupported(l, "normalizer", type);
	s = append(user, kinds[i].step, kinds[i].arg);
	if (!s)
		return tok_nomem(l->err);
	switch (s->step) {
	case NORM_STRIP:
		s->arg = tok_bool(j, "strip_left", true) |
			 tok_bool(j, "strip_right", true) << 1;
		return 0;
	case NORM_PREPEND:
		return tok_str(l, j, "prepend", &s->str, &s->n);
	case NORM_REPLACE:
		rc = tok_str(l, j, "content", &s->str, &s->n);
		return rc ? rc
			  : tok_pattern_parse(l, json_object_get(j, "pattern"),
					      &s->pat);
	case NORM_CHARSMAP:
		return tok_charsmap_parse(l, j, &s->map);
	default:
		return 0;
	}
}

int32_t tok_norms_parse(const struct tok_load *l, json_t *j,
			struct tok_norms *out)
{
	return tok_sequence(l, j, "normalizers", parse_one, out);
}

void tok_norms_free(struct tok_norms *n)
{
	size_t i;

	for (i = 0; i < n->n; i++) {
		free(n->v[i].str);
		tok_pattern_free(&n->v[i].pat);
		tok_charsmap_free(n->v[i].map);
	}
	free(n->v);
	*n = (struct tok_norms){0};
}
