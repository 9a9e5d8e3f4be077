// jinja_ops.c - operators, attributes, subscripts, slices, sorting.
#include "core/text/template/jinja.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int bad_operands(struct jinja_run *r, const char *op,
			const struct jinja_value *x,
			const struct jinja_value *y)
{
	if (x->type == JINJA_UNDEF || y->type == JINJA_UNDEF)
		return jinja_undefined(r, x->type == JINJA_UNDEF ? x : y);
	return jinja_raise(r,
			   "TypeError: unsupported operand types for %s: '%s' "
			   "and '%s'",
			   op, jinja_type_name(x->type),
			   jinja_type_name(y->type));
}

// Where x ends at the arena's free end, y is put right behind it: a text built
// by repeated "s + t" costs its length, not its square.  Values are immutable,
// so x itself does not change.
static int concat(struct jinja_run *r, const struct jinja_value *x,
		  const struct jinja_value *y, struct jinja_value *out)
{
	struct jinja_arena *m = &r->arena;
	bool markup = x->markup || y->markup;
	struct jinja_value a = *x, b = *y;
	char *p;
	int rc = 0;

	if (markup && !x->markup)
		rc = jinja_text_escape(r, x->s, &a);
	if (!rc && markup && !y->markup)
		rc = jinja_text_escape(r, y->s, &b);
	if (!rc)
		rc = jinja_charge(r, b.s.n / 64);
	if (rc)
		return rc;
	if (a.s.n && a.s.p + a.s.n == m->cur &&
	    (size_t)(m->end - m->cur) >= b.s.n) {
		if (b.s.n)
			memcpy(m->cur, b.s.p, b.s.n);
		m->cur += b.s.n;
		a.s.n += b.s.n;
	} else {
		rc = jinja_charge(r, a.s.n / 64);
		if (rc)
			return rc;
		p = jinja_alloc_text(m, a.s.n + b.s.n);
		if (!p)
			return jinja_nomem(r);
		if (a.s.n)
			memcpy(p, a.s.p, a.s.n);
		if (b.s.n)
			memcpy(p + a.s.n, b.s.p, b.s.n);
		a.s = (struct jinja_str){p, a.s.n + b.s.n};
	}
	*out = a;
	out->markup = markup;
	return 0;
}

static int join_lists(struct jinja_run *r, const struct jinja_value *x,
		      const struct jinja_value *y, struct jinja_value *out)
{
	size_t n = x->list->n;
	int rc = jinja_new_list(r, x->type, n + y->list->n, out);

	if (rc)
		return rc;
	if (n)
		memcpy(out->list->v, x->list->v, n * sizeof(*out));
	if (y->list->n)
		memcpy(out->list->v + n, y->list->v, y->list->n * sizeof(*out));
	return 0;
}

static int repeat(struct jinja_run *r, const struct jinja_value *x, int64_t n,
		  struct jinja_value *out)
{
	size_t unit = x->type == JINJA_STR ? x->s.n : x->list->n * sizeof(*x);
	struct jinja_list *l;
	size_t bytes, i;
	char *p;
	int rc;

	if (n < 0 || !unit)
		n = 0;
	if (__builtin_mul_overflow(unit, (size_t)n, &bytes))
		bytes = SIZE_MAX; // more than the charge allows
	rc = jinja_charge(r, bytes / 64);
	if (rc)
		return rc;
	p = jinja_alloc(&r->arena, bytes);
	if (!p)
		return jinja_nomem(r);
	for (i = 0; i < (size_t)n; i++)
		memcpy(p + i * unit,
		       x->type == JINJA_STR ? (const void *)x->s.p
					    : (const void *)x->list->v,
		       unit);
	*out = *x;
	if (x->type == JINJA_STR) {
		out->s = (struct jinja_str){p, bytes};
		return 0;
	}
	rc = jinja_new(r, 1, sizeof(*l), &l);
	if (rc)
		return rc;
	l->v = (struct jinja_value *)p;
	l->n = bytes / sizeof(*x);
	out->list = l;
	return 0;
}

static int int_power(int64_t x, int64_t y, int64_t *out)
{
	int64_t v = 1;

	for (;; y >>= 1) {
		if ((y & 1) && __builtin_mul_overflow(v, x, &v))
			return -1;
		if (y <= 1)
			break;
		if (__builtin_mul_overflow(x, x, &x))
			return -1;
	}
	*out = v;
	return 0;
}

static int int_math(struct jinja_run *r, int op, int64_t x, int64_t y,
		    struct jinja_value *out)
{
	int64_t v = 0;
	int over = 0;

	if ((op == JT_DIV || op == JT_FLOORDIV || op == JT_MOD) && !y)
		return jinja_raise(r, "ZeroDivisionError: division by zero");
	switch (op) {
	case JT_ADD:
		over = __builtin_add_overflow(x, y, &v);
		break;
	case JT_SUB:
		over = __builtin_sub_overflow(x, y, &v);
		break;
	case JT_MUL:
		over = __builtin_mul_overflow(x, y, &v);
		break;
	case JT_DIV:
		*out = jinja_float((double)x / (double)y);
		return 0;
	case JT_FLOORDIV:
		over = x == INT64_MIN && y == -1;
		if (!over)
			v = x / y - (x % y && (x < 0) != (y < 0));
		break;
	case JT_MOD:
		if (y != -1)
			v = x % y + (x % y && (x < 0) != (y < 0) ? y : 0);
		break;
	default:
		if (y < 0) {
			if (!x)
				return jinja_raise(r, "ZeroDivisionError: 0 "
						      "to a negative power");
			*out = jinja_float(pow((double)x, (double)y));
			return 0;
		}
		over = int_power(x, y, &v);
	}
	if (over)
		return jinja_raise(r, "OverflowError: an integer beyond 64 "
				      "bits");
	*out = jinja_int(v);
	return 0;
}

static int float_math(struct jinja_run *r, int op, double x, double y,
		      struct jinja_value *out)
{
	double v;

	if ((op == JT_DIV || op == JT_FLOORDIV || op == JT_MOD) && y == 0)
		return jinja_raise(r, "ZeroDivisionError: division by zero");
	switch (op) {
	case JT_ADD:
		v = x + y;
		break;
	case JT_SUB:
		v = x - y;
		break;
	case JT_MUL:
		v = x * y;
		break;
	case JT_DIV:
		v = x / y;
		break;
	case JT_FLOORDIV:
		v = floor(x / y);
		break;
	case JT_MOD:
		v = fmod(x, y);
		if (v != 0 && (v < 0) != (y < 0))
			v += y;
		break;
	default:
		v = pow(x, y);
		if (isnan(v) && !isnan(x) && !isnan(y))
			return jinja_raise(r, "no real power");
	}
	*out = jinja_float(v);
	return 0;
}

int jinja_binary(struct jinja_run *r, int op, struct jinja_value x,
		 struct jinja_value y, struct jinja_value *out)
{
	static const char *const names[] = {"+",  "-", "*", "/",
					    "//", "%", "**"};
	int64_t i, j;
	double f, g;
	int rc;

	if (op == JT_TILDE) {
		rc = jinja_to_str(r, &x, &x);
		if (!rc)
			rc = jinja_to_str(r, &y, &y);
		x.markup = y.markup = 0;
		return rc ? rc : concat(r, &x, &y, out);
	}
	if (op == JT_MOD && x.type == JINJA_STR)
		return jinja_percent(r, x.s, &y, out);
	if (jinja_integer(&x, &i) && jinja_integer(&y, &j))
		return int_math(r, op, i, j, out);
	if (jinja_number(&x, &f) && jinja_number(&y, &g))
		return float_math(r, op, f, g, out);
	if (op == JT_ADD && x.type == JINJA_STR && y.type == JINJA_STR)
		return concat(r, &x, &y, out);
	if (op == JT_ADD && x.type == y.type &&
	    (x.type == JINJA_LIST || x.type == JINJA_TUPLE))
		return join_lists(r, &x, &y, out);
	if (op == JT_MUL && x.type >= JINJA_STR && x.type <= JINJA_TUPLE &&
	    jinja_integer(&y, &i))
		return repeat(r, &x, i, out);
	if (op == JT_MUL && y.type >= JINJA_STR && y.type <= JINJA_TUPLE &&
	    jinja_integer(&x, &i))
		return repeat(r, &y, i, out);
	return bad_operands(r, names[op - JT_ADD], &x, &y);
}

int jinja_compare(struct jinja_run *r, int op, const struct jinja_value *x,
		  const struct jinja_value *y, bool *out_yes)
{
	int c = 0, rc;

	switch (op) {
	case JT_EQ:
	case JT_NE:
		rc = jinja_equal(r, x, y, out_yes);
		*out_yes ^= op == JT_NE;
		return rc;
	case JT_IN:
	case JT_NOTIN:
		rc = jinja_contains(r, y, x, out_yes);
		*out_yes ^= op == JT_NOTIN;
		return rc;
	}
	rc = jinja_order(r, x, y, &c);
	if (c == 2)
		*out_yes = false;
	else if (op == JT_LT || op == JT_LE)
		*out_yes = op == JT_LT ? c < 0 : c <= 0;
	else
		*out_yes = op == JT_GT ? c > 0 : c >= 0;
	return rc;
}

// 1: it was a method, *out is set.  0: no such attribute.
static int method(struct jinja_run *r, const struct jinja_value *v,
		  struct jinja_str name, struct jinja_value *out)
{
	const struct jinja_builtin *f;
	struct jinja_method *m;
	bool unsafe = false;
	int rc;

	f = jinja_find_method(v->type, name, &unsafe);
	if (unsafe) {
		*out = jinja_lack(JINJA_LACK_UNSAFE, v->type, name);
		return 1;
	}
	if (!f)
		return 0;
	rc = jinja_new(r, 1, sizeof(*m), &m);
	if (rc)
		return rc;
	m->self = *v;
	m->func = f;
	*out = (struct jinja_value){.type = JINJA_METHOD, .method = m};
	return 1;
}

// What macros, groups, ranges and cyclers have besides methods.
static bool field(struct jinja_run *r, const struct jinja_value *v,
		  struct jinja_str name, int *out_rc, struct jinja_value *out)
{
	const struct jinja_origin *of =
		v->type == JINJA_TUPLE || v->type == JINJA_RANGE ? v->list->of
								 : NULL;
	const struct jinja_node *p;
	size_t n = 0;

	*out_rc = 0;
	if (v->type == JINJA_CYCLER && jinja_same(name, "current")) {
		*out = v->object->v[v->object->at];
		return true;
	}
	if (v->type == JINJA_TUPLE && of) {
		bool key = jinja_same(name, "grouper");

		if (key || jinja_same(name, "list"))
			*out = v->list->v[!key];
		return key || jinja_same(name, "list");
	}
	if (v->type == JINJA_RANGE) {
		if (jinja_same(name, "start"))
			*out = jinja_int(of->from);
		else if (jinja_same(name, "stop"))
			*out = jinja_int(of->to);
		else if (jinja_same(name, "step"))
			*out = jinja_int(of->step);
		else
			return false;
		return true;
	}
	if (v->type != JINJA_MACRO)
		return false;
	if (jinja_same(name, "name")) {
		*out = v->macro->def->kind == JN_MACRO ? v->macro->def->val
						       : jinja_none();
	} else if (jinja_same(name, "catch_varargs")) {
		*out = jinja_bool(v->macro->def->op & JINJA_USES_VARARGS);
	} else if (jinja_same(name, "catch_kwargs")) {
		*out = jinja_bool(v->macro->def->op & JINJA_USES_KWARGS);
	} else if (jinja_same(name, "caller")) {
		*out = jinja_bool(v->macro->def->op & JINJA_USES_CALLER);
	} else if (jinja_same(name, "arguments")) {
		for (p = v->macro->def->b; p; p = p->next)
			n++;
		*out_rc = jinja_new_list(r, JINJA_TUPLE, n, out);
		for (n = 0, p = v->macro->def->b; !*out_rc && p; p = p->next)
			out->list->v[n++] = p->val;
	} else {
		return false;
	}
	return true;
}

int jinja_attr(struct jinja_run *r, const struct jinja_value *v,
	       struct jinja_str name, struct jinja_value *out)
{
	struct jinja_value key = jinja_text(name.p, name.n);
	const struct jinja_value *found = NULL;
	int rc;

	if (v->type == JINJA_UNDEF)
		return jinja_undefined(r, v);
	if (v->type == JINJA_LOOP)
		return jinja_loop_attr(r, v, name, out);
	if (v->type >= JINJA_TUPLE && field(r, v, name, &rc, out))
		return rc;
	rc = method(r, v, name, out);
	if (rc)
		return rc < 0 ? rc : 0;
	if (v->type == JINJA_DICT || v->type == JINJA_NAMESPACE) {
		rc = jinja_dict_get(r, v->dict, &key, &found);
		if (rc)
			return rc;
	}
	*out = found ? *found : jinja_lack(JINJA_LACK_ATTR, v->type, name);
	return 0;
}

// x[i] of a string, list or tuple; false: out of range.
static bool element(const struct jinja_value *v, int64_t i,
		    struct jinja_value *out)
{
	size_t n = v->type == JINJA_STR ? jinja_text_length(v->s) : v->list->n;

	if (i < 0)
		i += (int64_t)n;
	if (i < 0 || (uint64_t)i >= n)
		return false;
	if (v->type == JINJA_STR) {
		*out = *v;
		out->s = jinja_text_at(v->s, (size_t)i, 1);
	} else {
		*out = v->list->v[i];
	}
	return true;
}

int jinja_item(struct jinja_run *r, const struct jinja_value *v,
	       const struct jinja_value *key, struct jinja_value *out)
{
	const struct jinja_value *found = NULL;
	struct jinja_value text;
	int64_t i;
	int rc = 0;

	if (v->type == JINJA_UNDEF)
		return jinja_undefined(r, v);
	if (v->type == JINJA_DICT && key->type != JINJA_LIST &&
	    key->type != JINJA_DICT) {
		rc = jinja_dict_get(r, v->dict, key, &found);
		if (found)
			*out = *found;
		if (rc || found)
			return rc;
	}
	if (v->type == JINJA_STR)
		rc = jinja_charge(r, v->s.n / 64);
	if (!rc && v->type >= JINJA_STR && v->type <= JINJA_RANGE &&
	    jinja_integer(key, &i) && element(v, i, out))
		return 0;
	if (!rc && key->type == JINJA_STR) {
		if (v->type == JINJA_LOOP)
			return jinja_loop_attr(r, v, key->s, out);
		if (v->type == JINJA_NAMESPACE)
			return jinja_attr(r, v, key->s, out);
		if (v->type >= JINJA_TUPLE && field(r, v, key->s, &rc, out))
			return rc;
		rc = method(r, v, key->s, out);
		if (rc)
			return rc < 0 ? rc : 0;
		*out = jinja_lack(JINJA_LACK_ATTR, v->type, key->s);
		return 0;
	}
	if (!rc && key->type == JINJA_UNDEF)
		text = jinja_text("Undefined", 9);
	else if (!rc)
		rc = jinja_to_str(r, key, &text);
	if (!rc)
		*out = jinja_lack(JINJA_LACK_OTHER, v->type, text.s);
	return rc;
}

static int bound_of(struct jinja_run *r, const struct jinja_value *b,
		    int64_t none, int64_t n, int64_t lo, int64_t hi,
		    int64_t *out)
{
	*out = none;
	if (b->type == JINJA_MISSING || b->type == JINJA_NONE)
		return 0;
	if (b->type == JINJA_UNDEF)
		return jinja_undefined(r, b);
	if (!jinja_integer(b, out))
		return jinja_raise(r, "TypeError: slice indices must be "
				      "integers or None");
	if (*out < 0)
		*out += n;
	*out = *out < lo ? lo : *out > hi ? hi : *out;
	return 0;
}

static int slice_range(struct jinja_run *r, const struct jinja_origin *of,
		       int64_t from, int64_t to, int64_t step,
		       struct jinja_value *out)
{
	uint64_t n = 0, each = step > 0 ? (uint64_t)step : -(uint64_t)step;
	int64_t s;

	if (from != to && (to > from) == (step > 0))
		n = ((uint64_t)(to > from ? to - from : from - to) - 1) / each +
		    1;
	if (__builtin_mul_overflow(of->step, step, &s))
		return jinja_raise(r, "OverflowError: an integer beyond 64 "
				      "bits");
	return jinja_new_range(r, of->from + from * of->step,
			       of->from + to * of->step, s, (size_t)n, out);
}

int jinja_slice(struct jinja_run *r, const struct jinja_value *v,
		const struct jinja_value bound[3], struct jinja_value *out)
{
	struct jinja_list l = {NULL, 0, NULL};
	int64_t n, from, to, step = 1, i, count;
	size_t mark = r->n_out;
	int rc;

	if (v->type == JINJA_UNDEF)
		return jinja_undefined(r, v);
	if (v->type < JINJA_STR || v->type > JINJA_RANGE)
		return jinja_raise(r, "TypeError: '%s' object cannot be sliced",
				   jinja_type_name(v->type));
	if (bound[2].type > JINJA_NONE && !jinja_integer(&bound[2], &step))
		return jinja_raise(r, "TypeError: slice indices must be "
				      "integers or None");
	if (!step)
		return jinja_raise(r, "ValueError: slice step cannot be zero");
	n = (int64_t)(v->type == JINJA_STR ? jinja_text_length(v->s)
					   : v->list->n);
	rc = bound_of(r, &bound[0], step > 0 ? 0 : n - 1, n, step > 0 ? 0 : -1,
		      step > 0 ? n : n - 1, &from);
	if (!rc)
		rc = bound_of(r, &bound[1], step > 0 ? n : -1, n,
			      step > 0 ? 0 : -1, step > 0 ? n : n - 1, &to);
	if (!rc && v->type == JINJA_STR)
		rc = jinja_charge(r, v->s.n / 64);
	if (rc)
		return rc;
	if (v->type == JINJA_RANGE)
		return slice_range(r, v->list->of, from, to, step, out);
	if (step > n)
		step = n + 1;
	if (step < -n)
		step = -n - 1;
	count = step > 0 ? (to - from + step - 1) / step
			 : (from - to - step - 1) / -step;
	count = count < 0 ? 0 : count;
	if (v->type == JINJA_STR && step == 1) {
		*out = *v;
		out->s = jinja_text_at(v->s, (size_t)from, (size_t)count);
		return 0;
	}
	if (v->type != JINJA_STR) {
		rc = jinja_new_list(r, v->type, (size_t)count, out);
		for (i = 0; !rc && i < count; i++)
			out->list->v[i] = v->list->v[from + i * step];
		return rc;
	}
	rc = jinja_items(r, v, &l);
	for (i = 0; !rc && i < count; i++)
		rc = jinja_emit(r, l.v[from + i * step].s.p,
				l.v[from + i * step].s.n);
	if (!rc)
		rc = jinja_capture(r, mark, out);
	out->markup = v->markup;
	return rc;
}

// Merge sort, bottom up: no recursion, and an error ends it anywhere.
int jinja_sort(struct jinja_run *r, struct jinja_value **io_kv, size_t n,
	       bool reverse)
{
	struct jinja_value *from, *to, *t;
	size_t i, j, k, a, b, a_end, b_end, width;
	int cmp = 0, rc;

	rc = jinja_new(r, n, 2 * sizeof(*from), &from);
	if (!rc)
		rc = jinja_new(r, n, 2 * sizeof(*to), &to);
	if (rc || !n)
		return rc;
	memcpy(from, *io_kv, n * 2 * sizeof(*from));
	for (width = 1; width < n; width *= 2) {
		for (i = k = 0; i < n; i += 2 * width) {
			a = i;
			a_end = b = n - i > width ? i + width : n;
			b_end = n - b > width ? b + width : n;
			while (a < a_end || b < b_end) {
				if (a < a_end && b < b_end)
					rc = jinja_order(r, &from[2 * a],
							 &from[2 * b], &cmp);
				if (rc)
					return rc;
				if (reverse && cmp != 2)
					cmp = -cmp;
				j = a < a_end && (b >= b_end || cmp <= 0) ? a++
									  : b++;
				to[2 * k] = from[2 * j];
				to[2 * k++ + 1] = from[2 * j + 1];
			}
		}
		t = from;
		from = to;
		to = t;
	}
	*io_kv = from;
	return 0;
}
