// jinja_test.c - "x is name(y)".
#include "core/text/template/jinja.h"

#include <utf8proc.h>

#define IS(name, condition)                                                    \
	JINJA_FN(name)                                                         \
	{                                                                      \
		*out = jinja_bool(condition);                                  \
		return 0;                                                      \
	}

IS(is_defined, self.type != JINJA_UNDEF)
IS(is_undefined, self.type == JINJA_UNDEF)
IS(is_none, self.type == JINJA_NONE)
IS(is_string, self.type == JINJA_STR)
IS(is_mapping, self.type == JINJA_DICT)
IS(is_boolean, self.type == JINJA_BOOL)
IS(is_true, self.type == JINJA_BOOL && self.b)
IS(is_false, self.type == JINJA_BOOL && !self.b)
IS(is_integer, self.type == JINJA_INT)
IS(is_float, self.type == JINJA_FLOAT)
IS(is_number, self.type >= JINJA_BOOL && self.type <= JINJA_FLOAT)
IS(is_escaped, self.type == JINJA_STR && self.markup)
IS(is_iterable, jinja_is_list(&self) || self.type == JINJA_UNDEF ||
			self.type == JINJA_STR || self.type == JINJA_DICT ||
			self.type == JINJA_LOOP)
IS(is_sequence, self.type == JINJA_UNDEF ||
			(self.type >= JINJA_STR && self.type <= JINJA_RANGE) ||
			self.type == JINJA_DICT)
IS(is_callable, self.type == JINJA_UNDEF ||
			(self.type >= JINJA_MACRO && self.type <= JINJA_LOOP) ||
			self.type == JINJA_JOINER)
IS(is_filter, self.type == JINJA_STR && jinja_find_filter(self.s))
IS(is_test, self.type == JINJA_STR && jinja_find_test(self.s))

#define COMPARES(name, op)                                                     \
	JINJA_FN(name)                                                         \
	{                                                                      \
		bool yes = false;                                              \
		int rc = jinja_compare(r, op, &self, &a[0], &yes);             \
                                                                               \
		*out = jinja_bool(yes);                                        \
		return rc;                                                     \
	}

COMPARES(is_eq, JT_EQ)
COMPARES(is_ne, JT_NE)
COMPARES(is_lt, JT_LT)
COMPARES(is_le, JT_LE)
COMPARES(is_gt, JT_GT)
COMPARES(is_ge, JT_GE)
COMPARES(is_in, JT_IN)

JINJA_FN(is_sameas)
{
	bool eq = false;
	int rc = 0;

	if (self.type == a[0].type && self.type >= JINJA_LIST)
		eq = self.list == a[0].list;
	else if (self.type == a[0].type)
		rc = jinja_equal(r, &self, &a[0], &eq);
	*out = jinja_bool(eq);
	return rc;
}

static int divides(struct jinja_run *r, const struct jinja_value *v, int64_t d,
		   int64_t rest, struct jinja_value *out)
{
	struct jinja_value m, want = jinja_int(rest);
	bool eq = false;
	int rc = jinja_binary(r, JT_MOD, *v, jinja_int(d), &m);

	if (!rc)
		rc = jinja_equal(r, &m, &want, &eq);
	*out = jinja_bool(eq);
	return rc;
}

JINJA_FN(is_odd)
{
	return divides(r, &self, 2, 1, out);
}

JINJA_FN(is_even)
{
	return divides(r, &self, 2, 0, out);
}

JINJA_FN(is_divisibleby)
{
	int64_t d;

	if (!jinja_integer(&a[0], &d))
		return jinja_raise(r, "TypeError: divisibleby needs an "
				      "integer");
	return divides(r, &self, d, 0, out);
}

// Cased, and all of it in one case.
static int cased(struct jinja_run *r, const struct jinja_value *v, bool upper,
		 struct jinja_value *out)
{
	struct jinja_value s;
	size_t at = 0;
	int32_t c;
	bool any = false, yes = true;
	int rc = jinja_to_str(r, v, &s);

	while (!rc && yes && at < s.s.n) {
		c = jinja_next(s.s.p, s.s.n, &at);
		any |= upper ? utf8proc_isupper(c) : utf8proc_islower(c);
		yes = !(upper ? utf8proc_islower(c) : utf8proc_isupper(c));
	}
	*out = jinja_bool(any && yes);
	return rc ? rc : jinja_charge(r, at / 8);
}

JINJA_FN(is_upper)
{
	return cased(r, &self, true, out);
}

JINJA_FN(is_lower)
{
	return cased(r, &self, false, out);
}

static const struct jinja_builtin table[] = {
	{"defined", is_defined, "", 0},
	{"undefined", is_undefined, "", 0},
	{"none", is_none, "", 0},
	{"string", is_string, "", 0},
	{"mapping", is_mapping, "", 0},
	{"boolean", is_boolean, "", 0},
	{"true", is_true, "", 0},
	{"false", is_false, "", 0},
	{"integer", is_integer, "", 0},
	{"float", is_float, "", 0},
	{"number", is_number, "", 0},
	{"escaped", is_escaped, "", 0},
	{"iterable", is_iterable, "", 0},
	{"sequence", is_sequence, "", 0},
	{"callable", is_callable, "", 0},
	{"filter", is_filter, "", 0},
	{"test", is_test, "", 0},
	{"eq", is_eq, "other", 1},
	{"==", is_eq, "other", 1},
	{"equalto", is_eq, "other", 1},
	{"ne", is_ne, "other", 1},
	{"!=", is_ne, "other", 1},
	{"lt", is_lt, "other", 1},
	{"<", is_lt, "other", 1},
	{"lessthan", is_lt, "other", 1},
	{"le", is_le, "other", 1},
	{"<=", is_le, "other", 1},
	{"gt", is_gt, "other", 1},
	{">", is_gt, "other", 1},
	{"greaterthan", is_gt, "other", 1},
	{"ge", is_ge, "other", 1},
	{">=", is_ge, "other", 1},
	{"in", is_in, "seq", 1},
	{"sameas", is_sameas, "other", 1},
	{"odd", is_odd, "", 0},
	{"even", is_even, "", 0},
	{"divisibleby", is_divisibleby, "num", 1},
	{"upper", is_upper, "", 0},
	{"lower", is_lower, "", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin *jinja_find(const struct jinja_builtin *t,
				       struct jinja_str name)
{
	for (; t->name; t++)
		if (jinja_same(name, t->name))
			return t;
	return NULL;
}

const struct jinja_builtin *jinja_find_test(struct jinja_str name)
{
	return jinja_find(table, name);
}
