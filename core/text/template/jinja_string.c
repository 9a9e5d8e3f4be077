// jinja_string.c - methods of str.
#include "core/text/template/jinja.h"

#include <string.h>
#include <utf8proc.h>

static int need_str(struct jinja_run *r, const struct jinja_value *v,
		    const char *what)
{
	if (v->type == JINJA_STR)
		return 0;
	if (v->type == JINJA_UNDEF)
		return jinja_undefined(r, v);
	return jinja_raise(r, "TypeError: %s must be str, not %s", what,
			   jinja_type_name(v->type));
}

static int need_int(struct jinja_run *r, const struct jinja_value *v,
		    int64_t none, int64_t *out)
{
	*out = none;
	if (v->type == JINJA_MISSING || jinja_integer(v, out))
		return 0;
	return jinja_raise(r, "TypeError: an integer is required, not %s",
			   jinja_type_name(v->type));
}

static int strip(struct jinja_run *r, const struct jinja_value *self,
		 const struct jinja_value *chars, int left, int right,
		 struct jinja_value *out)
{
	bool any = chars->type == JINJA_MISSING || chars->type == JINJA_NONE;
	int rc = any ? 0 : need_str(r, chars, "strip characters");

	if (!rc)
		rc = jinja_charge(r, any ? 0 : chars->s.n);
	if (rc)
		return rc;
	*out = *self;
	out->s = jinja_text_strip(self->s, any ? NULL : &chars->s, left, right);
	return jinja_charge(r, (self->s.n - out->s.n) *
				       (1 + (any ? 0 : chars->s.n / 8)) / 16);
}

JINJA_FN(str_strip)
{
	return strip(r, &self, &a[0], 1, 1, out);
}

JINJA_FN(str_lstrip)
{
	return strip(r, &self, &a[0], 1, 0, out);
}

JINJA_FN(str_rstrip)
{
	return strip(r, &self, &a[0], 0, 1, out);
}

// The part of s between the code points of a[0] and a[1], as a slice has it;
// *out_at is where it begins, past: nothing is found there, not even nothing.
static int bounded(struct jinja_run *r, struct jinja_str *io,
		   const struct jinja_value *a, int64_t *out_at, bool *out_past)
{
	int64_t n, at[2] = {0, INT64_MAX};

	*out_at = 0;
	*out_past = false;
	if (a[0].type == JINJA_MISSING && a[1].type == JINJA_MISSING)
		return 0;
	n = (int64_t)jinja_text_length(*io);
	for (int i = 0; i < 2; i++) {
		if (a[i].type <= JINJA_NONE)
			continue;
		if (!jinja_integer(&a[i], &at[i]))
			return jinja_raise(r, "TypeError: slice indices must "
					      "be integers or None");
		if (at[i] < 0)
			at[i] = at[i] + n < 0 ? 0 : at[i] + n;
	}
	at[1] = at[1] > n ? n : at[1];
	*out_past = at[0] > n || at[0] > at[1];
	if (*out_past)
		at[0] = at[1] = n;
	*io = jinja_text_at(*io, (size_t)at[0], (size_t)(at[1] - at[0]));
	*out_at = at[0];
	return jinja_charge(r, (size_t)n / 64);
}

// startswith, endswith: a string or a tuple of them
static int affix(struct jinja_run *r, struct jinja_str s,
		 const struct jinja_value *what, bool end, bool *out_yes)
{
	const struct jinja_value *w = what;
	size_t i, n = 1;
	int rc = 0;

	if (what->type == JINJA_TUPLE) {
		w = what->list->v;
		n = what->list->n;
	}
	*out_yes = false;
	for (i = 0; !rc && !*out_yes && i < n; i++) {
		rc = need_str(r, &w[i], "prefix or suffix");
		if (!rc)
			rc = jinja_charge(r, 1 + w[i].s.n / 64);
		*out_yes = !rc && w[i].s.n <= s.n &&
			   !memcmp(s.p + (end ? s.n - w[i].s.n : 0), w[i].s.p,
				   w[i].s.n);
	}
	return rc;
}

static int with_affix(struct jinja_run *r, struct jinja_str s,
		      const struct jinja_value *a, bool end,
		      struct jinja_value *out)
{
	bool yes = false, past;
	int64_t at;
	int rc = bounded(r, &s, &a[1], &at, &past);

	if (!rc)
		rc = affix(r, s, &a[0], end, &yes);
	*out = jinja_bool(yes && !past);
	return rc;
}

JINJA_FN(str_startswith)
{
	return with_affix(r, self.s, a, false, out);
}

JINJA_FN(str_endswith)
{
	return with_affix(r, self.s, a, true, out);
}

static int remove_affix(struct jinja_run *r, struct jinja_value self,
			const struct jinja_value *what, bool end,
			struct jinja_value *out)
{
	bool yes;
	int rc = need_str(r, what, "prefix or suffix");

	if (!rc)
		rc = affix(r, self.s, what, end, &yes);
	if (!rc && yes) {
		self.s.n -= what->s.n;
		self.s.p += end ? 0 : what->s.n;
	}
	*out = self;
	return rc;
}

JINJA_FN(str_removeprefix)
{
	return remove_affix(r, self, &a[0], false, out);
}

JINJA_FN(str_removesuffix)
{
	return remove_affix(r, self, &a[0], true, out);
}

// What find_last costs at worst, which memmem does not.
static int charge_find(struct jinja_run *r, struct jinja_str s,
		       struct jinja_str what)
{
	return jinja_charge(r, s.n / 16 * (what.n / 64 + 1));
}

// The last occurrence; NULL if there is none.
static const char *find_last(struct jinja_str s, struct jinja_str what)
{
	const char *p;

	if (what.n > s.n)
		return NULL;
	for (p = s.p + s.n - what.n;; p--) {
		if (!memcmp(p, what.p, what.n))
			return p;
		if (p == s.p)
			return NULL;
	}
}

// Where the next separator lies in s: at *out_at, *out_n bytes.
static bool separator(struct jinja_str s, const struct jinja_str *sep,
		      bool last, size_t *out_at, size_t *out_n)
{
	const char *hit;
	size_t at = 0, from;
	bool any = false;

	if (sep) {
		hit = last ? find_last(s, *sep) : jinja_text_find(s, *sep);
		*out_at = hit ? (size_t)(hit - s.p) : 0;
		*out_n = sep->n;
		return hit != NULL;
	}
	while (at < s.n) {
		from = at;
		if (!jinja_is_space(jinja_next(s.p, s.n, &at))) {
			if (any && !last)
				return true;
			continue;
		}
		if (!any || from != *out_at + *out_n) {
			*out_at = from;
			*out_n = 0;
		}
		*out_n += at - from;
		any = true;
	}
	return any;
}

static int push(struct jinja_run *r, struct jinja_value *list, size_t *io_cap,
		struct jinja_str s, uint8_t markup)
{
	struct jinja_list *l = list->list;
	struct jinja_value *v;
	int rc = jinja_charge(r, 1);

	if (!rc && l->n == *io_cap) {
		*io_cap = l->n * 2 + 4;
		rc = jinja_new(r, *io_cap, sizeof(*v), &v);
		if (!rc && l->n)
			memcpy(v, l->v, l->n * sizeof(*v));
		if (!rc)
			l->v = v;
	}
	if (rc)
		return rc;
	l->v[l->n] = jinja_text(s.p, s.n);
	l->v[l->n++].markup = markup;
	return 0;
}

static int split(struct jinja_run *r, const struct jinja_value *self,
		 const struct jinja_value *a, bool last,
		 struct jinja_value *out)
{
	bool space = a[0].type == JINJA_MISSING || a[0].type == JINJA_NONE;
	struct jinja_str s = self->s, part;
	struct jinja_value *v, t;
	size_t cap = 0, at = 0, n = 0, i;
	int64_t max;
	int rc = need_int(r, &a[1], -1, &max);

	if (space && max < 0)
		last = false; // the same parts, found faster
	if (!rc && !space)
		rc = need_str(r, &a[0], "separator");
	if (!rc && !space && !a[0].s.n)
		rc = jinja_raise(r, "ValueError: empty separator");
	if (!rc)
		rc = jinja_new_list(r, JINJA_LIST, 0, out);
	if (!rc)
		rc = space ? jinja_charge(r, s.n / 16)
			   : charge_find(r, s, a[0].s);
	if (!rc && space)
		s = jinja_text_strip(s, NULL, !last || max < 0,
				     last || max < 0);
	while (!rc && max &&
	       separator(s, space ? NULL : &a[0].s, last, &at, &n)) {
		part = last ? (struct jinja_str){s.p + at + n, s.n - at - n}
			    : (struct jinja_str){s.p, at};
		if (!last)
			s.p += at + n;
		s.n = last ? at : s.n - at - n;
		max -= max > 0;
		rc = push(r, out, &cap, part, self->markup);
		if (!rc)
			rc = space ? jinja_charge(r, (last ? s.n : at) / 16)
				   : charge_find(r, part, a[0].s);
		if (space && !s.n)
			break;
	}
	if (!rc && space)
		s = jinja_text_strip(s, NULL, !last, last);
	if (!rc && (!space || s.n))
		rc = push(r, out, &cap, s, self->markup);
	if (rc || !last)
		return rc;
	v = out->list->v;
	for (i = 0, n = out->list->n; i < n / 2; i++) {
		t = v[i];
		v[i] = v[n - 1 - i];
		v[n - 1 - i] = t;
	}
	return 0;
}

JINJA_FN(str_split)
{
	return split(r, &self, a, false, out);
}

JINJA_FN(str_rsplit)
{
	return split(r, &self, a, true, out);
}

static int partition(struct jinja_run *r, const struct jinja_value *self,
		     const struct jinja_value *sep, bool last,
		     struct jinja_value *out)
{
	struct jinja_str s = self->s;
	const char *hit;
	int rc = need_str(r, sep, "separator");

	if (!rc && !sep->s.n)
		rc = jinja_raise(r, "ValueError: empty separator");
	if (!rc)
		rc = charge_find(r, s, sep->s);
	if (!rc)
		rc = jinja_new_list(r, JINJA_TUPLE, 3, out);
	if (rc)
		return rc;
	hit = last ? find_last(s, sep->s) : jinja_text_find(s, sep->s);
	out->list->v[0] = out->list->v[1] = out->list->v[2] = jinja_text("", 0);
	if (!hit) {
		out->list->v[last ? 2 : 0] = *self;
		return 0;
	}
	out->list->v[0].s = (struct jinja_str){s.p, (size_t)(hit - s.p)};
	out->list->v[1].s = sep->s;
	hit += sep->s.n;
	out->list->v[2].s = (struct jinja_str){hit, s.n - (size_t)(hit - s.p)};
	return 0;
}

JINJA_FN(str_partition)
{
	return partition(r, &self, &a[0], false, out);
}

JINJA_FN(str_rpartition)
{
	return partition(r, &self, &a[0], true, out);
}

JINJA_FN(str_splitlines)
{
	return jinja_text_lines(r, self.s, jinja_true(&a[0]), out);
}

JINJA_FN(str_replace)
{
	int64_t count;
	int rc = need_str(r, &a[0], "replace: old");

	if (!rc)
		rc = need_str(r, &a[1], "replace: new");
	if (!rc)
		rc = need_int(r, &a[2], -1, &count);
	return rc ? rc
		  : jinja_text_replace(r, self.s, a[0].s, a[1].s, count, out);
}

JINJA_FN(str_upper)
{
	return jinja_text_case(r, self.s, 'u', out);
}

JINJA_FN(str_lower)
{
	return jinja_text_case(r, self.s, 'l', out);
}

JINJA_FN(str_title)
{
	return jinja_text_case(r, self.s, 't', out);
}

JINJA_FN(str_capitalize)
{
	return jinja_text_case(r, self.s, 'c', out);
}

static int find(struct jinja_run *r, struct jinja_str s,
		const struct jinja_value *what, bool last, int64_t *out_at)
{
	const char *hit;
	bool past;
	int64_t at;
	int rc = need_str(r, what, "the searched text");

	if (!rc)
		rc = bounded(r, &s, what + 1, &at, &past);
	if (!rc)
		rc = charge_find(r, s, what->s);
	if (rc)
		return rc;
	hit = last ? find_last(s, what->s) : jinja_text_find(s, what->s);
	*out_at = -1;
	if (hit && !past)
		*out_at = at + (int64_t)jinja_text_length((struct jinja_str){
				       s.p, (size_t)(hit - s.p)});
	return 0;
}

JINJA_FN(str_find)
{
	*out = jinja_int(0);
	return find(r, self.s, &a[0], false, &out->i);
}

JINJA_FN(str_rfind)
{
	*out = jinja_int(0);
	return find(r, self.s, &a[0], true, &out->i);
}

JINJA_FN(str_index)
{
	int rc = str_find(r, self, args, a, out);

	if (!rc && out->i < 0)
		rc = jinja_raise(r, "ValueError: substring not found");
	return rc;
}

JINJA_FN(str_rindex)
{
	int rc = str_rfind(r, self, args, a, out);

	if (!rc && out->i < 0)
		rc = jinja_raise(r, "ValueError: substring not found");
	return rc;
}

JINJA_FN(str_count)
{
	struct jinja_str s = self.s;
	const char *hit;
	bool past = false;
	int64_t at;
	int rc = need_str(r, &a[0], "the counted text");

	if (!rc)
		rc = bounded(r, &s, &a[1], &at, &past);
	if (!rc)
		rc = jinja_charge(r, s.n / 8);
	*out = jinja_int(0);
	if (past)
		return rc;
	if (!rc && !a[0].s.n)
		out->i = (int64_t)jinja_text_length(s) + 1;
	while (!rc && a[0].s.n && (hit = jinja_text_find(s, a[0].s))) {
		out->i++;
		s.n -= (size_t)(hit - s.p) + a[0].s.n;
		s.p = hit + a[0].s.n;
	}
	return rc;
}

JINJA_FN(str_join)
{
	struct jinja_list l;
	size_t i, mark = r->n_out;
	int rc = jinja_items(r, &a[0], &l);

	for (i = 0; !rc && i < l.n; i++) {
		rc = need_str(r, &l.v[i], "joined items");
		if (!rc && i)
			rc = jinja_emit(r, self.s.p, self.s.n);
		if (!rc)
			rc = jinja_emit(r, l.v[i].s.p, l.v[i].s.n);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

enum { DIGIT = 1, ALPHA = 2, SPACE = 4 };

// All characters of one of the kinds, and at least one.
static int all(struct jinja_run *r, struct jinja_str s, int kinds,
	       struct jinja_value *out)
{
	size_t at = 0;
	int32_t c;
	bool yes = s.n != 0;
	int cat;

	while (yes && at < s.n) {
		c = jinja_next(s.p, s.n, &at);
		cat = utf8proc_category(c);
		yes = ((kinds & SPACE) && jinja_is_space(c)) ||
		      ((kinds & DIGIT) && cat == UTF8PROC_CATEGORY_ND) ||
		      ((kinds & ALPHA) && cat >= UTF8PROC_CATEGORY_LU &&
		       cat <= UTF8PROC_CATEGORY_LO);
	}
	*out = jinja_bool(yes);
	return jinja_charge(r, s.n / 8);
}

JINJA_FN(str_isdigit)
{
	return all(r, self.s, DIGIT, out);
}

JINJA_FN(str_isalpha)
{
	return all(r, self.s, ALPHA, out);
}

JINJA_FN(str_isalnum)
{
	return all(r, self.s, ALPHA | DIGIT, out);
}

JINJA_FN(str_isspace)
{
	return all(r, self.s, SPACE, out);
}

static const struct jinja_builtin of_str[] = {
	{"strip", str_strip, "chars", 0},
	{"lstrip", str_lstrip, "chars", 0},
	{"rstrip", str_rstrip, "chars", 0},
	{"startswith", str_startswith, "prefix start end", 1},
	{"endswith", str_endswith, "suffix start end", 1},
	{"removeprefix", str_removeprefix, "prefix", 1},
	{"removesuffix", str_removesuffix, "suffix", 1},
	{"split", str_split, "sep maxsplit", 0},
	{"rsplit", str_rsplit, "sep maxsplit", 0},
	{"partition", str_partition, "sep", 1},
	{"rpartition", str_rpartition, "sep", 1},
	{"splitlines", str_splitlines, "keepends", 0},
	{"replace", str_replace, "old new count", 2},
	{"upper", str_upper, "", 0},
	{"lower", str_lower, "", 0},
	{"title", str_title, "", 0},
	{"capitalize", str_capitalize, "", 0},
	{"find", str_find, "sub start end", 1},
	{"rfind", str_rfind, "sub start end", 1},
	{"index", str_index, "sub start end", 1},
	{"rindex", str_rindex, "sub start end", 1},
	{"count", str_count, "sub start end", 1},
	{"join", str_join, "iterable", 1},
	{"format", jinja_str_format, "*", 0},
	{"isdigit", str_isdigit, "", 0},
	{"isalpha", str_isalpha, "", 0},
	{"isalnum", str_isalnum, "", 0},
	{"isspace", str_isspace, "", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin *jinja_find_string(struct jinja_str name)
{
	const struct jinja_builtin *f = jinja_find(of_str, name);

	return f ? f : jinja_find(jinja_layout_methods, name);
}
