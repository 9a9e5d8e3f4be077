// jinja_group.c - filters that cut sequences into groups, and take one out.
#include "core/text/template/jinja.h"

#include <string.h>

static int part(struct jinja_run *r, const struct jinja_list *l, size_t from,
		size_t n, const struct jinja_value *fill, size_t n_fill,
		struct jinja_value *out)
{
	int rc = jinja_new_list(r, JINJA_LIST, n + n_fill, out);

	for (size_t i = 0; !rc && i < n + n_fill; i++)
		out->list->v[i] = i < n ? l->v[from + i] : *fill;
	return rc;
}

static int positive(struct jinja_run *r, const struct jinja_value *v,
		    int64_t *out)
{
	if (!jinja_integer(v, out) || *out < 1 || *out > JINJA_MAX_RANGE)
		return jinja_raise(r, "batch, slice: not a number from 1 to %d",
				   JINJA_MAX_RANGE);
	return 0;
}

JINJA_FN(f_batch)
{
	bool fills = a[1].type > JINJA_NONE;
	struct jinja_list l;
	int64_t each;
	size_t n, k, i;
	int rc = positive(r, &a[0], &each);

	if (!rc)
		rc = jinja_items(r, &self, &l);
	if (rc)
		return rc;
	n = (l.n + (size_t)each - 1) / (size_t)each;
	rc = jinja_new_list(r, JINJA_GEN, n, out);
	for (i = 0; !rc && i < n; i++) {
		k = l.n - i * (size_t)each;
		k = k < (size_t)each ? k : (size_t)each;
		rc = part(r, &l, i * (size_t)each, k, &a[1],
			  fills ? (size_t)each - k : 0, &out->list->v[i]);
	}
	return rc;
}

JINJA_FN(f_slice)
{
	struct jinja_list l;
	size_t each, extra, at = 0, n, i;
	int64_t slices;
	int rc = positive(r, &a[0], &slices);

	if (!rc)
		rc = jinja_items(r, &self, &l);
	if (!rc)
		rc = jinja_new_list(r, JINJA_GEN, (size_t)slices, out);
	if (rc)
		return rc;
	each = l.n / (size_t)slices;
	extra = l.n % (size_t)slices;
	for (i = 0; !rc && i < (size_t)slices; i++) {
		n = each + (i < extra);
		rc = part(r, &l, at, n, &a[1],
			  a[1].type > JINJA_NONE && i >= extra,
			  &out->list->v[i]);
		at += n;
	}
	return rc;
}

JINJA_FN(f_groupby)
{
	static const struct jinja_origin group = {.name = "group"};
	bool with_case = jinja_true(&a[2]), eq;
	struct jinja_value *kv, key, *at;
	struct jinja_list l, all;
	size_t i, n, k = 0;
	int rc = jinja_items(r, &self, &l);

	if (!rc)
		rc = jinja_new(r, l.n, 2 * sizeof(*kv), &kv);
	for (i = 0; !rc && i < l.n; i++) {
		kv[2 * i + 1] = l.v[i];
		rc = jinja_reach(r, &l.v[i], &a[0], &key);
		if (!rc && key.type == JINJA_UNDEF &&
		    a[1].type != JINJA_MISSING)
			key = a[1];
		if (!rc && !with_case && key.type == JINJA_STR)
			rc = jinja_text_case(r, key.s, 'l', &key);
		kv[2 * i] = key;
		if (!rc)
			rc = jinja_charge(r, 1);
	}
	if (!rc)
		rc = jinja_sort(r, &kv, l.n, false);
	if (!rc)
		rc = jinja_new_list(r, JINJA_LIST, l.n, out);
	if (!rc)
		rc = jinja_new(r, l.n, sizeof(*all.v), &all.v);
	for (i = 0; !rc && i < l.n; i++)
		all.v[i] = kv[2 * i + 1];
	for (i = 0; !rc && i < l.n; i += n) {
		eq = true;
		for (n = 1; !rc && i + n < l.n; n++) {
			rc = jinja_equal(r, &kv[2 * i], &kv[2 * (i + n)], &eq);
			if (!eq)
				break;
		}
		at = &out->list->v[k++];
		if (!rc)
			rc = jinja_new_list(r, JINJA_TUPLE, 2, at);
		if (!rc) {
			at->list->of = &group;
			rc = jinja_reach(r, &all.v[i], &a[0], &at->list->v[0]);
		}
		if (!rc && at->list->v[0].type == JINJA_UNDEF &&
		    a[1].type != JINJA_MISSING)
			at->list->v[0] = a[1];
		if (!rc)
			rc = part(r, &all, i, n, NULL, 0, &at->list->v[1]);
	}
	if (!rc)
		out->list->n = k;
	return rc;
}

// Which is not said: the clock chooses.
JINJA_FN(f_random)
{
	struct jinja_list l;
	int rc = jinja_items(r, &self, &l);

	*out = jinja_lack(JINJA_LACK_OTHER, self.type,
			  (struct jinja_str){"random", 6});
	if (!rc && l.n)
		*out = l.v[((uint64_t)r->now * 0x9e3779b97f4a7c15u >> 33) %
			   l.n];
	return rc;
}

// What a dot finds in Python, which knows no keys of a dict.
JINJA_FN(f_attr)
{
	const struct jinja_dict none = {0};

	if (a[0].type != JINJA_STR)
		return jinja_raise(r, "TypeError: attr needs a name");
	if (self.type == JINJA_DICT &&
	    !jinja_find_method(JINJA_DICT, a[0].s, &(bool){false}))
		self.dict = (struct jinja_dict *)(uintptr_t)&none;
	return jinja_attr(r, &self, a[0].s, out);
}

const struct jinja_builtin jinja_group_filters[] = {
	{"batch", f_batch, "linecount fill_with", 1},
	{"slice", f_slice, "slices fill_with", 1},
	{"groupby", f_groupby, "attribute default case_sensitive", 1},
	{"random", f_random, "", 0},
	{"attr", f_attr, "name", 1},
	{NULL, NULL, NULL, 0},
};
