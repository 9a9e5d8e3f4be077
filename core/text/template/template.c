// template.c - one template: parse once, render many times.
#include "core/text/template/template.h"

#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "core/base/error.h"
#include "core/text/template/jinja.h"

struct genai_template {
	struct jinja_arena arena;
	struct jinja_node *body;
	char *name;
	json_t *defaults;
};

static int check_utf8(const char *name, const char *text, size_t bytes,
		      struct genai_error *err)
{
	utf8proc_int32_t c;
	utf8proc_ssize_t n;
	size_t at = 0;

	while (at < bytes) {
		n = utf8proc_iterate((const utf8proc_uint8_t *)text + at,
				     (utf8proc_ssize_t)(bytes - at), &c);
		if (n <= 0)
			return genai_fail(err, GENAI_E_FORMAT,
					  "%s: not UTF-8 at byte %zu", name,
					  at);
		at += (size_t)n;
	}
	return 0;
}

static int parse(struct genai_template *t, const char *text, size_t bytes,
		 struct genai_error *err)
{
	struct jinja_parser p = {
		.name = t->name, .arena = &t->arena, .err = err};
	int rc = jinja_lex(&p, text, bytes);

	if (!rc)
		rc = jinja_parse_body(&p, &t->body);
	if (!rc && p.tok[p.at].type != JT_EOF)
		rc = jinja_parse_fail(&p, "unexpected tag '%.*s'",
				      (int)p.tok[p.at].val.s.n,
				      p.tok[p.at].val.s.p);
	free(p.tok);
	return rc;
}

int32_t genai_template_parse(const char *name, const char *text, size_t bytes,
			     struct genai_template **out_t,
			     struct genai_error *err)
{
	struct genai_template *t;
	int rc;

	*out_t = NULL;
	if (bytes > JINJA_MAX_SOURCE)
		return genai_fail(err, GENAI_E_FORMAT,
				  "%s: %zu bytes, more than %u", name, bytes,
				  JINJA_MAX_SOURCE);
	rc = check_utf8(name, text, bytes, err);
	if (rc)
		return rc;
	t = calloc(1, sizeof(*t));
	if (t)
		t->name = strdup(name);
	if (!t || !t->name) {
		free(t);
		return genai_fail(err, GENAI_E_NOMEM, "%s: no memory to parse",
				  name);
	}
	t->arena.limit = JINJA_MAX_MEMORY;
	rc = parse(t, text, bytes, err);
	if (rc) {
		genai_template_close(t);
		return rc;
	}
	*out_t = t;
	return GENAI_OK;
}

void genai_template_close(struct genai_template *t)
{
	if (!t)
		return;
	jinja_arena_free(&t->arena);
	json_decref(t->defaults);
	free(t->name);
	free(t);
}

void template_set_defaults(struct genai_template *t, json_t *vars)
{
	json_decref(t->defaults);
	t->defaults = vars;
}

json_t *template_defaults(const struct genai_template *t)
{
	return t->defaults;
}

static int render(struct jinja_run *r, const struct genai_template *t,
		  json_t *vars)
{
	struct jinja_scope root = {0};
	struct jinja_value v;
	int rc = jinja_from_json(r, vars, &v);

	if (rc)
		return rc;
	r->vars = v.dict;
	r->scope = &root;
	rc = jinja_exec(r, t->body);
	if (rc)
		return rc;
	if (!r->out) {
		r->out = malloc(1);
		if (!r->out)
			return jinja_nomem(r);
	}
	r->out[r->n_out] = 0;
	return 0;
}

int32_t template_render(const struct genai_template *t, json_t *vars,
			int64_t now, int32_t utc_offset_s, char **out_text,
			size_t *out_bytes, struct genai_error *err)
{
	struct jinja_run r = {
		.name = t->name,
		.err = err,
		.arena = {.limit = JINJA_MAX_MEMORY},
		.line = 1,
		.now = now,
		.utc_offset_s = utc_offset_s,
	};
	int rc;

	*out_text = NULL;
	*out_bytes = 0;
	if (!json_is_object(vars))
		return genai_fail(err, GENAI_E_INVAL,
				  "%s: the variables are not an object",
				  t->name);
	rc = render(&r, t, vars);
	jinja_arena_free(&r.arena);
	if (rc) {
		free(r.out);
		return rc;
	}
	*out_text = r.out;
	*out_bytes = r.n_out;
	return GENAI_OK;
}
