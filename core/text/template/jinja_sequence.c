// jinja_sequence.c - "x|name(y)" where x is a sequence or a mapping.
#include "core/text/template/jinja.h"

#include <string.h>

JINJA_FN(f_length)
{
	size_t n;
	int rc = jinja_length(r, &self, &n);

	if (!rc)
		*out = jinja_int((int64_t)n);
	return rc;
}

static int new_list(struct jinja_run *r, int type, const struct jinja_list *l,
		    struct jinja_value *out)
{
	int rc = jinja_new_list(r, type, l->n, out);

	if (!rc && l->n)
		memcpy(out->list->v, l->v, l->n * sizeof(*l->v));
	return rc;
}

JINJA_FN(f_list)
{
	struct jinja_list l;
	int rc = jinja_items(r, &self, &l);

	return rc ? rc : new_list(r, JINJA_LIST, &l, out);
}

JINJA_FN(f_items)
{
	const struct jinja_args none = {0};
	struct jinja_value m;
	int rc;

	if (self.type == JINJA_UNDEF)
		return jinja_new_list(r, JINJA_GEN, 0, out);
	if (self.type != JINJA_DICT)
		return jinja_raise(r, "TypeError: can only get item pairs from "
				      "a mapping");
	rc = jinja_attr(r, &self, (struct jinja_str){"items", 5}, &m);
	if (!rc)
		rc = m.method->func->fn(r, self, &none, NULL, out);
	if (!rc)
		out->type = JINJA_GEN;
	return rc;
}

// x.a.0.b as in attribute="a.0.b"
int jinja_reach(struct jinja_run *r, const struct jinja_value *v,
		const struct jinja_value *path, struct jinja_value *out)
{
	struct jinja_str s = path->s, part;
	struct jinja_value key, from = *v;
	const char *dot;
	size_t i;
	int rc = 0;

	if (path->type != JINJA_STR)
		return jinja_item(r, v, path, out);
	while (!rc) {
		dot = s.n ? memchr(s.p, '.', s.n) : NULL;
		part = s;
		if (dot)
			part.n = (size_t)(dot - s.p);
		key = jinja_text(part.p, part.n);
		for (i = 0; i < part.n && i < 18; i++) {
			if (part.p[i] < '0' || part.p[i] > '9')
				break;
			if (!i)
				key = jinja_int(0);
			key.i = key.i * 10 + part.p[i] - '0';
		}
		if (i < part.n)
			key = jinja_text(part.p, part.n);
		rc = jinja_item(r, &from, &key, out);
		if (!dot)
			break;
		from = *out;
		s.n -= part.n + 1;
		s.p += part.n + 1;
	}
	return rc;
}

// What an element is judged by: its attribute, strings in lower case unless
// case matters.
static int sort_key(struct jinja_run *r, const struct jinja_value *v,
		    const struct jinja_value *attribute, bool with_case,
		    struct jinja_value *out)
{
	int rc = 0;

	*out = *v;
	if (attribute->type > JINJA_NONE)
		rc = jinja_reach(r, v, attribute, out);
	if (!rc && !with_case && out->type == JINJA_STR)
		rc = jinja_text_case(r, out->s, 'l', out);
	return rc;
}

// Pairs of key and element.
static int keyed(struct jinja_run *r, const struct jinja_list *l,
		 const struct jinja_value *attribute, bool with_case,
		 struct jinja_value **out_kv)
{
	struct jinja_value *kv;
	size_t i;
	int rc = jinja_new(r, l->n, 2 * sizeof(*kv), &kv);

	for (i = 0; !rc && i < l->n; i++) {
		kv[2 * i + 1] = l->v[i];
		rc = sort_key(r, &l->v[i], attribute, with_case, &kv[2 * i]);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	*out_kv = kv;
	return rc;
}

JINJA_FN(f_sort)
{
	struct jinja_value *kv;
	struct jinja_list l;
	size_t i;
	int rc = jinja_items(r, &self, &l);

	if (!rc)
		rc = keyed(r, &l, &a[2], jinja_true(&a[1]), &kv);
	if (!rc)
		rc = jinja_sort(r, &kv, l.n, jinja_true(&a[0]));
	if (!rc)
		rc = jinja_new_list(r, JINJA_LIST, l.n, out);
	for (i = 0; !rc && i < l.n; i++)
		out->list->v[i] = kv[2 * i + 1];
	return rc;
}

JINJA_FN(f_dictsort)
{
	struct jinja_value *kv, by = jinja_int(0);
	struct jinja_list l;
	size_t i;
	int rc;

	if (a[1].type == JINJA_STR && jinja_same(a[1].s, "value"))
		by = jinja_int(1);
	else if (a[1].type != JINJA_MISSING &&
		 !(a[1].type == JINJA_STR && jinja_same(a[1].s, "key")))
		return jinja_raise(r, "dictsort: by must be key or value");
	if (self.type != JINJA_DICT)
		return jinja_raise(r, "dictsort needs a mapping");
	rc = f_items(r, self, args, a, out);
	if (rc)
		return rc;
	l = *out->list;
	rc = keyed(r, &l, &by, jinja_true(&a[0]), &kv);
	if (!rc)
		rc = jinja_sort(r, &kv, l.n, jinja_true(&a[2]));
	for (i = 0; !rc && i < l.n; i++)
		out->list->v[i] = kv[2 * i + 1];
	out->type = JINJA_LIST;
	return rc;
}

JINJA_FN(f_unique)
{
	struct jinja_dict seen = {0};
	const struct jinja_value *found;
	struct jinja_value *kv;
	struct jinja_list l;
	size_t i;
	int rc = jinja_items(r, &self, &l);

	if (!rc)
		rc = keyed(r, &l, &a[1], jinja_true(&a[0]), &kv);
	if (!rc)
		rc = jinja_new_list(r, JINJA_GEN, l.n, out);
	if (rc)
		return rc;
	out->list->n = 0;
	for (i = 0; !rc && i < l.n; i++) {
		rc = jinja_dict_get(r, &seen, &kv[2 * i], &found);
		if (rc || found)
			continue;
		rc = jinja_dict_set(r, &seen, kv[2 * i], jinja_none());
		out->list->v[out->list->n++] = kv[2 * i + 1];
	}
	return rc;
}

static int extreme(struct jinja_run *r, const struct jinja_value *self,
		   const struct jinja_value *a, int sign,
		   struct jinja_value *out)
{
	struct jinja_value *kv;
	struct jinja_list l;
	size_t i, best = 0;
	int cmp, rc = jinja_items(r, self, &l);

	if (!rc)
		rc = keyed(r, &l, &a[1], jinja_true(&a[0]), &kv);
	if (rc)
		return rc;
	if (!l.n) {
		*out = jinja_lack(JINJA_LACK_OTHER, self->type,
				  (struct jinja_str){"first", 5});
		return 0;
	}
	for (i = 1; !rc && i < l.n; i++) {
		rc = jinja_order(r, &kv[2 * i], &kv[2 * best], &cmp);
		if (!rc && cmp == sign)
			best = i;
		else if (!rc && cmp != 2 && cmp * sign > 0)
			best = i;
	}
	*out = kv[2 * best + 1];
	return rc;
}

JINJA_FN(f_min)
{
	return extreme(r, &self, a, -1, out);
}

JINJA_FN(f_max)
{
	return extreme(r, &self, a, 1, out);
}

JINJA_FN(f_sum)
{
	struct jinja_value v;
	struct jinja_list l;
	size_t i;
	int rc = jinja_items(r, &self, &l);

	*out = a[1].type == JINJA_MISSING ? jinja_int(0) : a[1];
	for (i = 0; !rc && i < l.n; i++) {
		rc = sort_key(r, &l.v[i], &a[0], true, &v);
		if (!rc)
			rc = jinja_binary(r, JT_ADD, *out, v, out);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc;
}

JINJA_FN(f_join)
{
	struct jinja_value sep = jinja_text("", 0), v;
	struct jinja_list l;
	size_t i, mark = r->n_out;
	int rc = jinja_items(r, &self, &l);

	if (!rc && a[0].type != JINJA_MISSING)
		rc = jinja_to_str(r, &a[0], &sep);
	for (i = 0; !rc && i < l.n; i++) {
		rc = sort_key(r, &l.v[i], &a[1], true, &v);
		if (!rc && i)
			rc = jinja_emit(r, sep.s.p, sep.s.n);
		if (!rc)
			rc = jinja_print(r, &v);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc ? rc : jinja_capture(r, mark, out);
}

static int end(struct jinja_run *r, const struct jinja_value *self, bool last,
	       struct jinja_value *out)
{
	struct jinja_list l;
	int rc = jinja_items(r, self, &l);

	*out = jinja_lack(
		JINJA_LACK_OTHER, self->type,
		(struct jinja_str){last ? "last" : "first", last ? 4 : 5});
	if (!rc && l.n)
		*out = l.v[last ? l.n - 1 : 0];
	if (self->type == JINJA_GEN && l.n && !last)
		*self->list = (struct jinja_list){l.v + 1, l.n - 1, NULL};
	return rc;
}

JINJA_FN(f_first)
{
	return end(r, &self, false, out);
}

JINJA_FN(f_last)
{
	if (self.type == JINJA_GEN)
		return jinja_raise(r, "TypeError: a generator is not "
				      "reversible");
	return end(r, &self, true, out);
}

JINJA_FN(f_reverse)
{
	const struct jinja_value none[3] = {
		{.type = JINJA_MISSING},
		{.type = JINJA_MISSING},
		{.type = JINJA_INT, .i = -1},
	};
	struct jinja_value list;
	int rc;

	if (self.type == JINJA_STR)
		return jinja_slice(r, &self, none, out);
	rc = f_list(r, self, args, a, &list);
	if (!rc)
		rc = jinja_slice(r, &list, none, out);
	if (!rc)
		out->type = JINJA_GEN;
	return rc;
}

// Arguments less the first n positional ones.
static struct jinja_args rest(const struct jinja_args *args, size_t n)
{
	struct jinja_args x = *args;

	x.pos += n;
	x.n_pos -= n;
	return x;
}

static int map_one(struct jinja_run *r, const struct jinja_value *v,
		   const struct jinja_args *args, struct jinja_value *out)
{
	const struct jinja_value *attr = NULL, *none = NULL;
	const struct jinja_builtin *f;
	struct jinja_args x;
	size_t i;
	int rc;

	if (args->n_pos) {
		if (args->pos[0].type != JINJA_STR)
			return jinja_raise(r, "map needs the name of a filter");
		f = jinja_find_filter(args->pos[0].s);
		x = rest(args, 1);
		return f ? jinja_invoke(r, f, "filter", *v, &x, out)
			 : jinja_raise(r, "no filter named '%.*s'",
				       (int)(args->pos[0].s.n & 0x7f),
				       args->pos[0].s.p);
	}
	for (i = 0; i < args->n_kw; i++) {
		if (jinja_same(args->kw_name[i], "attribute"))
			attr = &args->kw[i];
		else if (jinja_same(args->kw_name[i], "default"))
			none = &args->kw[i];
		else
			return jinja_raise(r, "map: unexpected keyword");
	}
	if (!attr)
		return jinja_raise(r, "map requires a filter argument");
	rc = jinja_reach(r, v, attr, out);
	if (!rc && none && out->type == JINJA_UNDEF)
		*out = *none;
	return rc;
}

JINJA_FN(f_map)
{
	struct jinja_list l;
	size_t i;
	int rc;

	if (!jinja_true(&self)) // even None
		return jinja_new_list(r, JINJA_GEN, 0, out);
	rc = jinja_items(r, &self, &l);
	if (!rc)
		rc = jinja_new_list(r, JINJA_GEN, l.n, out);
	for (i = 0; !rc && i < l.n; i++) {
		rc = map_one(r, &l.v[i], args, &out->list->v[i]);
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc;
}

// select, reject, selectattr, rejectattr
static int choose(struct jinja_run *r, const struct jinja_value *self,
		  const struct jinja_args *args, bool attr, bool want,
		  struct jinja_value *out)
{
	const struct jinja_builtin *f = NULL;
	struct jinja_args x = *args;
	struct jinja_value v, yes;
	struct jinja_list l;
	size_t i;
	int rc;

	if (!jinja_true(self)) // even None
		return jinja_new_list(r, JINJA_GEN, 0, out);
	rc = jinja_items(r, self, &l);
	if (!rc && attr && !args->n_pos)
		rc = jinja_raise(r, "selectattr needs an attribute");
	if (!rc && attr)
		x = rest(&x, 1);
	if (!rc && x.n_pos) {
		if (x.pos[0].type == JINJA_STR)
			f = jinja_find_test(x.pos[0].s);
		if (!f)
			rc = jinja_raise(r, "no such test in select");
		x = rest(&x, 1);
	}
	if (!rc)
		rc = jinja_new_list(r, JINJA_GEN, l.n, out);
	if (rc)
		return rc;
	out->list->n = 0;
	for (i = 0; !rc && i < l.n; i++) {
		v = l.v[i];
		if (attr)
			rc = jinja_reach(r, &l.v[i], &args->pos[0], &v);
		yes = v;
		if (!rc && f)
			rc = jinja_invoke(r, f, "test", v, &x, &yes);
		if (!rc && jinja_true(&yes) == want)
			out->list->v[out->list->n++] = l.v[i];
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	return rc;
}

JINJA_FN(f_select)
{
	return choose(r, &self, args, false, true, out);
}

JINJA_FN(f_reject)
{
	return choose(r, &self, args, false, false, out);
}

JINJA_FN(f_selectattr)
{
	return choose(r, &self, args, true, true, out);
}

JINJA_FN(f_rejectattr)
{
	return choose(r, &self, args, true, false, out);
}

const struct jinja_builtin jinja_sequence_filters[] = {
	{"length", f_length, "", 0},
	{"count", f_length, "", 0},
	{"list", f_list, "", 0},
	{"items", f_items, "", 0},
	{"join", f_join, "d attribute", 0},
	{"first", f_first, "", 0},
	{"last", f_last, "", 0},
	{"reverse", f_reverse, "", 0},
	{"sort", f_sort, "reverse case_sensitive attribute", 0},
	{"dictsort", f_dictsort, "case_sensitive by reverse", 0},
	{"unique", f_unique, "case_sensitive attribute", 0},
	{"min", f_min, "case_sensitive attribute", 0},
	{"max", f_max, "case_sensitive attribute", 0},
	{"sum", f_sum, "attribute start", 0},
	{"map", f_map, "*", 0},
	{"select", f_select, "*", 0},
	{"reject", f_reject, "*", 0},
	{"selectattr", f_selectattr, "*", 0},
	{"rejectattr", f_rejectattr, "*", 0},
	{NULL, NULL, NULL, 0},
};
