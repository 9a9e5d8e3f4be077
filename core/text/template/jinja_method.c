// jinja_method.c - methods of dict and list.
// The sandbox of chat templates forbids what changes a list or a dict.
#include "core/text/template/jinja.h"

// keys (step 2 from 0), values (2 from 1), or pairs
int jinja_dict_view(struct jinja_run *r, const struct jinja_dict *d, int what,
		    struct jinja_value *out)
{
	static const struct jinja_origin names[] = {
		{.name = "dict_keys"},
		{.name = "dict_values"},
		{.name = "dict_items"},
	};
	struct jinja_value pair;
	size_t i;
	int rc = jinja_new_list(r, JINJA_VIEW, d->n, out);

	if (!rc)
		out->list->of = &names[what];
	for (i = 0; !rc && i < d->n; i++) {
		if (what < 2) {
			out->list->v[i] = d->kv[2 * i + (size_t)what];
			continue;
		}
		rc = jinja_new_list(r, JINJA_TUPLE, 2, &pair);
		if (rc)
			break;
		pair.list->v[0] = d->kv[2 * i];
		pair.list->v[1] = d->kv[2 * i + 1];
		out->list->v[i] = pair;
	}
	return rc ? rc : jinja_charge(r, d->n / 8);
}

JINJA_FN(dict_items)
{
	return jinja_dict_view(r, self.dict, 2, out);
}

JINJA_FN(dict_keys)
{
	return jinja_dict_view(r, self.dict, 0, out);
}

JINJA_FN(dict_values)
{
	return jinja_dict_view(r, self.dict, 1, out);
}

JINJA_FN(dict_get)
{
	const struct jinja_value *found;
	int rc = jinja_dict_get(r, self.dict, &a[0], &found);

	if (rc)
		return rc;
	*out = found			    ? *found
	       : a[1].type == JINJA_MISSING ? jinja_none()
					    : a[1];
	return 0;
}

JINJA_FN(same)
{
	*out = self; // a copy of what cannot change
	return 0;
}

static const struct jinja_builtin of_dict[] = {
	{"items", dict_items, "", 0},	{"keys", dict_keys, "", 0},
	{"values", dict_values, "", 0}, {"get", dict_get, "key default", 1},
	{"copy", same, "", 0},		{NULL, NULL, NULL, 0},
};

JINJA_FN(list_index)
{
	size_t i;
	bool eq = false;
	int rc = 0;

	for (i = 0; !rc && i < self.list->n; i++) {
		rc = jinja_equal(r, &self.list->v[i], &a[0], &eq);
		*out = jinja_int((int64_t)i);
		if (eq)
			return rc;
	}
	return rc ? rc : jinja_raise(r, "ValueError: the value is not there");
}

JINJA_FN(list_count)
{
	size_t i;
	bool eq;
	int rc = 0;

	*out = jinja_int(0);
	for (i = 0; !rc && i < self.list->n; i++) {
		rc = jinja_equal(r, &self.list->v[i], &a[0], &eq);
		out->i += !rc && eq;
	}
	return rc;
}

static const struct jinja_builtin of_list[] = {
	{"index", list_index, "value", 1},
	{"count", list_count, "value", 1},
	{"copy", same, "", 0},
	{NULL, NULL, NULL, 0},
};

static const char *const unsafe_dict[] = {"clear",	"pop",	  "popitem",
					  "setdefault", "update", NULL};
static const char *const unsafe_list[] = {"append",  "clear",  "pop",
					  "reverse", "insert", "sort",
					  "extend",  "remove", NULL};

const struct jinja_builtin *jinja_find_method(int type, struct jinja_str name,
					      bool *out_unsafe)
{
	const char *const *bad = type == JINJA_DICT   ? unsafe_dict
				 : type == JINJA_LIST ? unsafe_list
						      : NULL;

	for (; bad && *bad; bad++)
		*out_unsafe |= jinja_same(name, *bad);
	if (type == JINJA_STR)
		return jinja_find_string(name);
	if (type == JINJA_DICT)
		return jinja_find(of_dict, name);
	if (type == JINJA_CYCLER)
		return jinja_find(jinja_cycler_methods, name);
	if (type == JINJA_LIST || type == JINJA_TUPLE || type == JINJA_RANGE)
		return jinja_find(of_list, name);
	return NULL;
}
