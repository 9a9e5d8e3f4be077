// parse_call.c - the body of a call in the forms that models write: JSON, one
// object or an array; NAME[ARGS]{...}; <function=NAME> with parameters; Python.
#include "tools/serve/parse.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

// Calls are told when all are known to be such.
struct found {
	json_t *list; // [name, arguments] each
};

static void add(struct found *f, const char *name, size_t n, json_t *arguments)
{
	json_array_append_new(f->list,
			      json_pack("[s%, o]", name, n, arguments));
}

// ---- JSON ----

static bool add_object(struct found *f, const json_t *j)
{
	const json_t *fn = json_object_get(j, "function");
	const json_t *name = json_object_get(j, "name");
	json_t *arguments;

	if (json_is_object(fn))
		return add_object(f, fn);
	arguments = json_object_get(j, "arguments");
	if (!arguments)
		arguments = json_object_get(j, "parameters");
	if (!json_is_string(name))
		return false;
	if (!arguments)
		arguments = json_object();
	else if (json_is_object(arguments) || json_is_string(arguments))
		json_incref(arguments);
	else
		return false;
	add(f, json_string_value(name), json_string_length(name), arguments);
	return true;
}

// JSON values one after another, with blanks, commas or semicolons between.
static bool read_json(struct found *f, const char *s, size_t n)
{
	while (n) {
		json_error_t e;
		json_t *j, *item;
		bool ok;
		size_t i;

		if (strchr(" \t\r\n,;", *s)) {
			s++;
			n--;
			continue;
		}
		j = json_loadb(s, n, JSON_DISABLE_EOF_CHECK, &e);
		if (!j)
			return false;
		ok = json_is_object(j) ? add_object(f, j)
				       : json_array_size(j) > 0;
		json_array_foreach(j, i, item) ok = ok && add_object(f, item);
		json_decref(j);
		if (!ok)
			return false;
		s += e.position;
		n -= (size_t)e.position;
	}
	return true;
}

// NAME[CALL_ID]...[ARGS]{...}, again and again.
static bool read_args(struct found *f, const char *s, size_t n)
{
	static const char mark[] = "[ARGS]", again[] = "[TOOL_CALLS]";

	while (n) {
		const char *at = memmem(s, n, mark, strlen(mark));
		json_error_t e;
		json_t *j;
		size_t k = 0;

		if (!at)
			return false;
		while (s + k < at && s[k] != '[' && s[k] != '{')
			k++;
		if (!k)
			return false;
		at += strlen(mark);
		j = json_loadb(at, n - (size_t)(at - s), JSON_DISABLE_EOF_CHECK,
			       &e);
		if (!json_is_object(j)) {
			json_decref(j);
			return false;
		}
		add(f, s, k, j);
		at += e.position;
		n -= (size_t)(at - s);
		s = at;
		while (n && isspace((unsigned char)*s)) {
			s++;
			n--;
		}
		if (n >= strlen(again) && !memcmp(s, again, strlen(again))) {
			s += strlen(again);
			n -= strlen(again);
		}
	}
	return true;
}

// ---- <function=NAME> <parameter=NAME> value </parameter> </function> ----

static bool is_text(const json_t *tools, const char *name, size_t n,
		    const char *key, size_t m)
{
	const json_t *tool;
	char *word;
	size_t i;

	json_array_foreach(tools, i, tool)
	{
		const json_t *fn = json_object_get(tool, "function");
		const json_t *given = json_object_get(fn, "name"), *type;

		if (json_string_length(given) != n ||
		    memcmp(json_string_value(given), name, n))
			continue;
		word = strndup(key, m);
		type = json_object_get(
			json_object_get(json_object_get(fn, "parameters"),
					"properties"),
			word ? word : "");
		free(word);
		type = json_object_get(type, "type");
		return json_is_string(type) &&
		       !strcmp(json_string_value(type), "string");
	}
	return false;
}

static void set(json_t *object, const char *key, size_t n, json_t *v)
{
	char *word = strndup(key, n);

	if (word)
		json_object_set_new(object, word, v);
	else
		json_decref(v);
	free(word);
}

// Text up to a mark, which is passed; NULL: it is not there.
static const char *upto(const char **s, size_t *n, const char *mark,
			size_t *out_n)
{
	const char *from = *s, *at = memmem(*s, *n, mark, strlen(mark));

	if (!at)
		return NULL;
	*out_n = (size_t)(at - from);
	*n -= *out_n + strlen(mark);
	*s = at + strlen(mark);
	return from;
}

static void skip(const char **s, size_t *n)
{
	while (*n && isspace((unsigned char)**s)) {
		++*s;
		--*n;
	}
}

static bool next_is(const char **s, size_t *n, const char *mark)
{
	size_t m = strlen(mark);

	skip(s, n);
	if (*n < m || memcmp(*s, mark, m))
		return false;
	*s += m;
	*n -= m;
	return true;
}

static bool read_function(struct found *f, const char *s, size_t n,
			  const json_t *tools)
{
	while (next_is(&s, &n, "<function=")) {
		size_t name_n, key_n, value_n;
		const char *name = upto(&s, &n, ">", &name_n);
		json_t *arguments = json_object();

		while (name && next_is(&s, &n, "<parameter=")) {
			const char *key = upto(&s, &n, ">", &key_n);
			const char *v =
				key ? upto(&s, &n, "</parameter>", &value_n)
				    : NULL;
			json_t *j = NULL;

			if (!v) {
				name = NULL;
				break;
			}
			if (value_n && *v == '\n') {
				v++;
				value_n--;
			}
			if (value_n && v[value_n - 1] == '\n')
				value_n--;
			if (!is_text(tools, name, name_n, key, key_n))
				j = json_loadb(v, value_n, JSON_DECODE_ANY,
					       NULL);
			set(arguments, key, key_n,
			    j ? j : json_stringn(v, value_n));
		}
		if (!name || !next_is(&s, &n, "</function>")) {
			json_decref(arguments);
			return false;
		}
		add(f, name, name_n, arguments);
	}
	skip(&s, &n);
	return !n;
}

// ---- Python: [f(a="x", b=[1, 2]), g()] ----

#define MAX_DEPTH 64

struct py {
	const char *s;
	size_t n;
	int depth;
};

static json_t *py_value(struct py *p);

static bool py_is(struct py *p, char c)
{
	skip(&p->s, &p->n);
	if (!p->n || *p->s != c)
		return false;
	p->s++;
	p->n--;
	return true;
}

static size_t py_name(const struct py *p)
{
	size_t k = 0;

	while (k < p->n &&
	       (isalnum((unsigned char)p->s[k]) || strchr("_.-", p->s[k])))
		k++;
	return k;
}

static json_t *py_string(struct py *p)
{
	char quote = *p->s, *out = malloc(p->n), c;
	size_t k = 0;
	json_t *j = NULL;

	p->s++;
	p->n--;
	while (out && p->n) {
		c = *p->s++;
		p->n--;
		if (c == quote) {
			j = json_stringn(out, k);
			break;
		}
		if (c == '\\' && p->n) {
			c = *p->s++;
			p->n--;
			c = c == 'n'   ? '\n'
			    : c == 't' ? '\t'
			    : c == 'r' ? '\r'
				       : c;
		}
		out[k++] = c;
	}
	free(out);
	return j;
}

static json_t *py_word(struct py *p)
{
	static const struct {
		const char *py;
		int value; // 0 false, 1 true, 2 null
	} words[] = {{"True", 1}, {"False", 0}, {"None", 2},
		     {"true", 1}, {"false", 0}, {"null", 2}};
	size_t k = py_name(p);
	json_t *j = NULL;

	for (size_t i = 0; i < sizeof(words) / sizeof(words[0]); i++)
		if (strlen(words[i].py) == k && !memcmp(words[i].py, p->s, k))
			j = words[i].value == 2 ? json_null()
						: json_boolean(words[i].value);
	if (!j)
		j = json_loadb(p->s, k, JSON_DECODE_ANY, NULL);
	p->s += k;
	p->n -= k;
	return j;
}

static json_t *py_list(struct py *p)
{
	json_t *list = json_array(), *v;

	while (!py_is(p, ']')) {
		v = json_array_size(list) && !py_is(p, ',') ? NULL
							    : py_value(p);
		if (!v) {
			json_decref(list);
			return NULL;
		}
		json_array_append_new(list, v);
	}
	return list;
}

static json_t *py_dict(struct py *p)
{
	json_t *dict = json_object(), *k, *v;

	while (!py_is(p, '}')) {
		k = json_object_size(dict) && !py_is(p, ',') ? NULL
							     : py_value(p);
		v = json_is_string(k) && py_is(p, ':') ? py_value(p) : NULL;
		if (v)
			json_object_set_new(dict, json_string_value(k), v);
		json_decref(k);
		if (!v) {
			json_decref(dict);
			return NULL;
		}
	}
	return dict;
}

static json_t *py_value(struct py *p)
{
	json_t *j = NULL;

	if (++p->depth <= MAX_DEPTH) {
		if (py_is(p, '['))
			j = py_list(p);
		else if (py_is(p, '{'))
			j = py_dict(p);
		else if (p->n && (*p->s == '"' || *p->s == '\''))
			j = py_string(p);
		else
			j = py_word(p);
	}
	p->depth--;
	return j;
}

static json_t *py_arguments(struct py *p)
{
	json_t *all = json_object();

	while (!py_is(p, ')')) {
		const char *key;
		json_t *v;
		size_t k;

		if (json_object_size(all) && !py_is(p, ','))
			goto wrong;
		skip(&p->s, &p->n);
		key = p->s;
		k = py_name(p);
		p->s += k;
		p->n -= k;
		v = k && py_is(p, '=') ? py_value(p) : NULL;
		if (!v)
			goto wrong;
		set(all, key, k, v);
	}
	return all;
wrong:
	json_decref(all);
	return NULL;
}

static bool read_python(struct found *f, const char *s, size_t n)
{
	struct py p = {.s = s, .n = n};

	if (!py_is(&p, '['))
		return false;
	do {
		const char *name;
		json_t *arguments;
		size_t k;

		skip(&p.s, &p.n);
		name = p.s;
		k = py_name(&p);
		p.s += k;
		p.n -= k;
		arguments = k && py_is(&p, '(') ? py_arguments(&p) : NULL;
		if (!arguments)
			return false;
		add(f, name, k, arguments);
	} while (py_is(&p, ','));
	if (!py_is(&p, ']'))
		return false;
	skip(&p.s, &p.n);
	return !p.n;
}

// ---- any of them ----

static void clear(struct found *f)
{
	json_array_clear(f->list);
}

static void tell(const struct found *f, parse_fn fn, void *ctx)
{
	const json_t *call;
	size_t i;

	json_array_foreach(f->list, i, call)
	{
		const json_t *name = json_array_get(call, 0);
		const json_t *arguments = json_array_get(call, 1);
		char *text;

		fn(ctx, PARSE_CALL, json_string_value(name),
		   json_string_length(name));
		if (json_is_string(arguments)) {
			fn(ctx, PARSE_ARGUMENTS, json_string_value(arguments),
			   json_string_length(arguments));
			continue;
		}
		text = json_dumps(arguments, 0);
		fn(ctx, PARSE_ARGUMENTS, text, strlen(text));
		free(text);
	}
}

bool parse_calls(const char *s, size_t n, const json_t *tools, parse_fn fn,
		 void *ctx)
{
	static const char python[] = "<|python_tag|>";
	struct found f = {.list = json_array()};
	bool ok;

	next_is(&s, &n, python);
	skip(&s, &n);
	ok = read_json(&f, s, n);
	if (!ok) {
		clear(&f);
		ok = read_function(&f, s, n, tools);
	}
	if (!ok) {
		clear(&f);
		ok = read_args(&f, s, n);
	}
	if (!ok) {
		clear(&f);
		ok = read_python(&f, s, n);
	}
	ok = ok && json_array_size(f.list);
	if (ok)
		tell(&f, fn, ctx);
	json_decref(f.list);
	return ok;
}
