// jinja_json.c - JSON in and out, the latter as Python's json.dumps.
#include "core/text/template/jinja.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

static int from_json(struct jinja_run *r, json_t *j, int depth,
		     struct jinja_value *out);

static int from_array(struct jinja_run *r, json_t *j, int depth,
		      struct jinja_value *out)
{
	size_t i, n = json_array_size(j);
	int rc = jinja_new_list(r, JINJA_LIST, n, out);

	for (i = 0; !rc && i < n; i++)
		rc = from_json(r, json_array_get(j, i), depth,
			       &out->list->v[i]);
	return rc;
}

static int from_object(struct jinja_run *r, json_t *j, int depth,
		       struct jinja_value *out)
{
	struct jinja_dict *d;
	const char *key;
	json_t *v;
	int rc = jinja_new(r, 1, sizeof(*d), &d);

	if (!rc)
		rc = jinja_dict_reserve(r, d, json_object_size(j));
	if (rc)
		return rc;
	json_object_foreach(j, key, v)
	{
		d->kv[2 * d->n] = jinja_text(key, strlen(key));
		rc = from_json(r, v, depth, &d->kv[2 * d->n + 1]);
		if (rc)
			return rc;
		d->n++;
	}
	*out = (struct jinja_value){.type = JINJA_DICT, .dict = d};
	return 0;
}

static int from_json(struct jinja_run *r, json_t *j, int depth,
		     struct jinja_value *out)
{
	if (depth > JINJA_MAX_VALUE_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "variables nest deeper than %d",
				  JINJA_MAX_VALUE_DEPTH);
	switch (json_typeof(j)) {
	case JSON_OBJECT:
		return from_object(r, j, depth + 1, out);
	case JSON_ARRAY:
		return from_array(r, j, depth + 1, out);
	case JSON_STRING:
		*out = jinja_text(json_string_value(j), json_string_length(j));
		return 0;
	case JSON_INTEGER:
		*out = jinja_int(json_integer_value(j));
		return 0;
	case JSON_REAL:
		*out = jinja_float(json_real_value(j));
		return 0;
	case JSON_NULL:
		*out = jinja_none();
		return 0;
	default:
		*out = jinja_bool(json_is_true(j));
		return 0;
	}
}

// Strings stay in j, which must outlive the render.
int jinja_from_json(struct jinja_run *r, json_t *j, struct jinja_value *out)
{
	return from_json(r, j, 0, out);
}

struct dump {
	struct jinja_run *r;
	const struct jinja_json_style *style;
	int depth;
};

static int dump_str(const struct dump *d, struct jinja_str s)
{
	static const char from[] = "\"\\\n\r\t\b\f", to[] = "\"\\nrtbf";
	struct jinja_run *r = d->r;
	size_t at = 0, done = 0;
	const char *hit;
	char b[16];
	int rc = jinja_charge(r, s.n / 4);

	if (!rc)
		rc = jinja_emit(r, "\"", 1);
	while (!rc && at < s.n) {
		size_t here = at;
		int32_t c = jinja_next(s.p, s.n, &at);
		size_t n;

		hit = c > 0 && c < 128 ? strchr(from, c) : NULL;
		if (hit)
			n = (size_t)sprintf(b, "\\%c", to[hit - from]);
		else if (c >= 0x10000 && d->style->ascii)
			n = (size_t)sprintf(b, "\\u%04x\\u%04x",
					    (unsigned)(0xd7c0 + (c >> 10)) &
						    0xffffu,
					    (unsigned)(0xdc00 | (c & 0x3ff)));
		else if (c < 0x20 || (d->style->ascii && c > 0x7e))
			n = (size_t)sprintf(b, "\\u%04x",
					    (unsigned)(c < 0 ? 0xfffd : c));
		else
			continue;
		rc = jinja_emit(r, s.p + done, here - done);
		if (!rc)
			rc = jinja_emit(r, b, n);
		done = at;
	}
	if (!rc)
		rc = jinja_emit(r, s.p + done, s.n - done);
	return rc ? rc : jinja_emit(r, "\"", 1);
}

static int dump_number(const struct dump *d, const struct jinja_value *v)
{
	char b[40];
	size_t n;

	if (v->type == JINJA_INT)
		n = (size_t)sprintf(b, "%lld", (long long)v->i);
	else if (isnan(v->f))
		n = (size_t)sprintf(b, "NaN");
	else if (isinf(v->f))
		n = (size_t)sprintf(b, "%sInfinity", v->f < 0 ? "-" : "");
	else
		n = jinja_float_text(v->f, b);
	return jinja_emit(d->r, b, n);
}

static int line(const struct dump *d)
{
	const struct jinja_str *indent = &d->style->indent;
	int i, rc;

	if (!indent->p)
		return 0;
	rc = jinja_emit(d->r, "\n", 1);
	for (i = 0; !rc && i < d->depth; i++)
		rc = jinja_emit(d->r, indent->p, indent->n);
	return rc;
}

static int dump(struct dump *d, const struct jinja_value *v);

static int dump_key(struct dump *d, const struct jinja_value *k)
{
	int rc;

	if (k->type == JINJA_STR)
		return dump_str(d, k->s);
	if (k->type < JINJA_NONE || k->type > JINJA_FLOAT)
		return jinja_raise(d->r,
				   "TypeError: keys must be str, int, float, "
				   "bool or None, not %s",
				   jinja_type_name(k->type));
	rc = jinja_emit(d->r, "\"", 1);
	if (!rc)
		rc = dump(d, k);
	return rc ? rc : jinja_emit(d->r, "\"", 1);
}

static int dump_box(struct dump *d, const struct jinja_value *v)
{
	const struct jinja_json_style *st = d->style;
	bool dict = v->type == JINJA_DICT;
	struct jinja_dict e = {0};
	size_t i, n = dict ? v->dict->n : v->list->n;
	int rc = jinja_emit(d->r, dict ? "{" : "[", 1);

	if (rc || !n)
		return rc ? rc : jinja_emit(d->r, dict ? "}" : "]", 1);
	if (d->depth++ >= JINJA_MAX_VALUE_DEPTH)
		return jinja_fail(d->r, GENAI_E_LIMIT, "values nest too deep");
	if (dict) {
		e = *v->dict;
		if (st->sort)
			rc = jinja_sort(d->r, &e.kv, n, false);
	}
	for (i = 0; !rc && i < n; i++) {
		if (i)
			rc = jinja_emit(d->r, st->comma.p, st->comma.n);
		if (!rc)
			rc = line(d);
		if (!rc && dict) {
			rc = dump_key(d, &e.kv[2 * i]);
			if (!rc)
				rc = jinja_emit(d->r, st->colon.p, st->colon.n);
		}
		if (!rc)
			rc = dump(d, dict ? &e.kv[2 * i + 1] : &v->list->v[i]);
	}
	d->depth--;
	if (!rc)
		rc = line(d);
	return rc ? rc : jinja_emit(d->r, dict ? "}" : "]", 1);
}

static int dump(struct dump *d, const struct jinja_value *v)
{
	int rc = jinja_charge(d->r, 1);

	if (rc)
		return rc;
	switch (v->type) {
	case JINJA_NONE:
		return jinja_emit(d->r, "null", 4);
	case JINJA_BOOL:
		return jinja_emit(d->r, v->b ? "true" : "false", v->b ? 4 : 5);
	case JINJA_INT:
	case JINJA_FLOAT:
		return dump_number(d, v);
	case JINJA_STR:
		return dump_str(d, v->s);
	case JINJA_LIST:
	case JINJA_TUPLE:
	case JINJA_DICT:
		return dump_box(d, v);
	default:
		return jinja_raise(d->r,
				   "TypeError: object of type %s is not JSON "
				   "serializable",
				   jinja_type_name(v->type));
	}
}

int jinja_to_json(struct jinja_run *r, const struct jinja_value *v,
		  const struct jinja_json_style *style)
{
	struct dump d = {r, style, 0};

	return dump(&d, v);
}
