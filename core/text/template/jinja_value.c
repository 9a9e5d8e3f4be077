// jinja_value.c - what Python values do: truth, equality, order, iteration.
// Recursion over nested values is capped, every element is charged.
#include "core/text/template/jinja.h"

#include <math.h>
#include <string.h>

const char *jinja_type_name(int type)
{
	static const char *const names[] = {
		"undefined", "undefined", "NoneType",	 "bool",      "int",
		"float",     "str",	  "list",	 "tuple",     "range",
		"dict_view", "generator", "dict",	 "Namespace", "Macro",
		"function",  "method",	  "LoopContext", "Cycler",    "Joiner",
	};

	return names[type];
}

bool jinja_number(const struct jinja_value *v, double *out_f)
{
	switch (v->type) {
	case JINJA_BOOL:
		*out_f = v->b;
		return true;
	case JINJA_INT:
		*out_f = (double)v->i;
		return true;
	case JINJA_FLOAT:
		*out_f = v->f;
		return true;
	default:
		return false;
	}
}

bool jinja_integer(const struct jinja_value *v, int64_t *out_i)
{
	if (v->type == JINJA_INT)
		*out_i = v->i;
	else if (v->type == JINJA_BOOL)
		*out_i = v->b;
	else
		return false;
	return true;
}

bool jinja_true(const struct jinja_value *v)
{
	switch (v->type) {
	case JINJA_MISSING:
	case JINJA_UNDEF:
	case JINJA_NONE:
		return false;
	case JINJA_BOOL:
		return v->b;
	case JINJA_INT:
		return v->i != 0;
	case JINJA_FLOAT:
		return v->f != 0;
	case JINJA_STR:
		return v->s.n != 0;
	case JINJA_LIST:
	case JINJA_TUPLE:
	case JINJA_RANGE:
	case JINJA_VIEW:
		return v->list->n != 0;
	case JINJA_DICT:
		return v->dict->n != 0;
	default:
		return true;
	}
}

// Using an undefined value where a value is needed.
int jinja_undefined(struct jinja_run *r, const struct jinja_value *v)
{
	int n = v->s.n > 120 ? 120 : (int)v->s.n;

	switch (v->lack) {
	case JINJA_LACK_NAME:
		return jinja_raise(r, "UndefinedError: '%.*s' is undefined", n,
				   v->s.p);
	case JINJA_LACK_ATTR:
		return jinja_raise(
			r,
			"UndefinedError: '%s object' has no attribute '%.*s'",
			jinja_type_name(v->owner), n, v->s.p);
	case JINJA_LACK_UNSAFE:
		return jinja_raise(r,
				   "SecurityError: access to attribute '%.*s' "
				   "of '%s' object is unsafe",
				   n, v->s.p, jinja_type_name(v->owner));
	case JINJA_LACK_PARAM:
		return jinja_raise(
			r, "UndefinedError: parameter '%.*s' was not provided",
			n, v->s.p);
	default:
		return jinja_raise(r, "UndefinedError: %s has no element %.*s",
				   jinja_type_name(v->owner), n, v->s.p);
	}
}

static int equal(struct jinja_run *r, const struct jinja_value *x,
		 const struct jinja_value *y, int depth, bool *out_eq);

static int equal_dicts(struct jinja_run *r, const struct jinja_dict *x,
		       const struct jinja_dict *y, int depth, bool *out_eq)
{
	const struct jinja_value *other;
	size_t i;
	int rc = 0;

	*out_eq = x->n == y->n;
	for (i = 0; !rc && *out_eq && i < x->n; i++) {
		rc = jinja_dict_get(r, y, &x->kv[2 * i], &other);
		if (!rc && !other)
			*out_eq = false;
		else if (!rc)
			rc = equal(r, &x->kv[2 * i + 1], other, depth, out_eq);
	}
	return rc;
}

static int equal_boxes(struct jinja_run *r, const struct jinja_value *x,
		       const struct jinja_value *y, int depth, bool *out_eq)
{
	size_t i;
	int rc = 0;

	if (depth > JINJA_MAX_VALUE_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT, "values nest too deep");
	if (x->type == JINJA_DICT)
		return equal_dicts(r, x->dict, y->dict, depth, out_eq);
	*out_eq = x->list->n == y->list->n;
	for (i = 0; !rc && *out_eq && i < x->list->n; i++)
		rc = equal(r, &x->list->v[i], &y->list->v[i], depth, out_eq);
	return rc;
}

static int equal(struct jinja_run *r, const struct jinja_value *x,
		 const struct jinja_value *y, int depth, bool *out_eq)
{
	double f, g;
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	*out_eq = false;
	if (x->type == JINJA_INT && y->type == JINJA_INT) {
		*out_eq = x->i == y->i;
	} else if (jinja_number(x, &f) && jinja_number(y, &g)) {
		*out_eq = f == g;
	} else if (x->type == y->type) {
		switch (x->type) {
		case JINJA_STR:
			*out_eq = x->s.n == y->s.n &&
				  !memcmp(x->s.p, y->s.p, x->s.n);
			return *out_eq ? jinja_charge(r, x->s.n / 64) : 0;
		case JINJA_NONE:
		case JINJA_UNDEF:
			*out_eq = true;
			break;
		case JINJA_LIST:
		case JINJA_TUPLE:
		case JINJA_RANGE:
		case JINJA_DICT:
			return equal_boxes(r, x, y, depth + 1, out_eq);
		default:
			*out_eq = x->list == y->list;
		}
	}
	return 0;
}

int jinja_equal(struct jinja_run *r, const struct jinja_value *x,
		const struct jinja_value *y, bool *out_eq)
{
	return equal(r, x, y, 0, out_eq);
}

static int order(struct jinja_run *r, const struct jinja_value *x,
		 const struct jinja_value *y, int depth, int *out_cmp)
{
	double f, g;
	size_t i, n;
	bool eq = true;
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	if (depth > JINJA_MAX_VALUE_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT, "values nest too deep");
	if (x->type == JINJA_INT && y->type == JINJA_INT) {
		*out_cmp = (x->i > y->i) - (x->i < y->i);
		return 0;
	}
	if (jinja_number(x, &f) && jinja_number(y, &g)) {
		*out_cmp = (f > g) - (f < g);
		if (isnan(f) || isnan(g))
			*out_cmp = 2; // neither before nor behind
		return 0;
	}
	if (x->type == JINJA_STR && y->type == JINJA_STR) {
		n = x->s.n < y->s.n ? x->s.n : y->s.n;
		*out_cmp = n ? memcmp(x->s.p, y->s.p, n) : 0;
		if (!*out_cmp)
			*out_cmp = (x->s.n > y->s.n) - (x->s.n < y->s.n);
		return jinja_charge(r, n / 64);
	}
	if (x->type != y->type ||
	    (x->type != JINJA_LIST && x->type != JINJA_TUPLE)) {
		if (x->type == JINJA_UNDEF || y->type == JINJA_UNDEF)
			return jinja_undefined(r,
					       x->type == JINJA_UNDEF ? x : y);
		return jinja_raise(r,
				   "TypeError: order of '%s' and '%s' is not "
				   "defined",
				   jinja_type_name(x->type),
				   jinja_type_name(y->type));
	}
	n = x->list->n < y->list->n ? x->list->n : y->list->n;
	for (i = 0; !rc && i < n; i++) {
		rc = equal(r, &x->list->v[i], &y->list->v[i], depth, &eq);
		if (!rc && !eq)
			return order(r, &x->list->v[i], &y->list->v[i],
				     depth + 1, out_cmp);
	}
	*out_cmp = (x->list->n > y->list->n) - (x->list->n < y->list->n);
	return rc;
}

int jinja_order(struct jinja_run *r, const struct jinja_value *x,
		const struct jinja_value *y, int *out_cmp)
{
	return order(r, x, y, 0, out_cmp);
}

int jinja_length(struct jinja_run *r, const struct jinja_value *v,
		 size_t *out_n)
{
	switch (v->type) {
	case JINJA_UNDEF:
		*out_n = 0;
		return 0;
	case JINJA_STR:
		*out_n = jinja_text_length(v->s);
		return jinja_charge(r, v->s.n / 64);
	case JINJA_LIST:
	case JINJA_TUPLE:
	case JINJA_RANGE:
	case JINJA_VIEW:
		*out_n = v->list->n;
		return 0;
	case JINJA_DICT:
		*out_n = v->dict->n;
		return 0;
	case JINJA_LOOP:
		*out_n = v->loop->n;
		return 0;
	default:
		return jinja_raise(r,
				   "TypeError: object of type '%s' has no "
				   "len()",
				   jinja_type_name(v->type));
	}
}

// The characters of a string, or the keys of a dict.
static int spread(struct jinja_run *r, const struct jinja_value *v,
		  struct jinja_list *out)
{
	bool text = v->type == JINJA_STR;
	size_t i, at = 0, n = text ? jinja_text_length(v->s) : v->dict->n;
	int rc = jinja_new(r, n, sizeof(*out->v), &out->v);

	if (!rc)
		rc = jinja_charge(r, n / 8);
	if (rc)
		return rc;
	out->n = n;
	for (i = 0; i < n; i++) {
		if (text) {
			size_t from = at;

			jinja_next(v->s.p, v->s.n, &at);
			out->v[i] = jinja_text(v->s.p + from, at - from);
		} else {
			out->v[i] = v->dict->kv[2 * i];
		}
	}
	return 0;
}

int jinja_items(struct jinja_run *r, const struct jinja_value *v,
		struct jinja_list *out)
{
	*out = (struct jinja_list){NULL, 0, NULL};
	switch (v->type) {
	case JINJA_UNDEF:
		return 0;
	case JINJA_STR:
	case JINJA_DICT:
		return spread(r, v, out);
	case JINJA_GEN:
		*out = *v->list;
		v->list->n = 0;
		return 0;
	case JINJA_LIST:
	case JINJA_TUPLE:
	case JINJA_RANGE:
	case JINJA_VIEW:
		*out = *v->list;
		return 0;
	default:
		return jinja_raise(r, "TypeError: '%s' object is not iterable",
				   jinja_type_name(v->type));
	}
}

int jinja_contains(struct jinja_run *r, const struct jinja_value *box,
		   const struct jinja_value *v, bool *out_in)
{
	const struct jinja_value *found;
	struct jinja_list l;
	size_t i;
	int rc;

	*out_in = false;
	if (box->type == JINJA_STR) {
		if (v->type != JINJA_STR)
			return jinja_raise(r,
					   "TypeError: 'in <string>' requires "
					   "string as left operand, not %s",
					   jinja_type_name(v->type));
		*out_in = jinja_text_find(box->s, v->s) != NULL;
		return jinja_charge(r, box->s.n / 64);
	}
	if (box->type == JINJA_DICT) {
		rc = jinja_dict_get(r, box->dict, v, &found);
		*out_in = found != NULL;
		return rc;
	}
	rc = jinja_items(r, box, &l);
	for (i = 0; !rc && !*out_in && i < l.n; i++)
		rc = jinja_equal(r, &l.v[i], v, out_in);
	return rc;
}
