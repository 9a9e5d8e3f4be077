// jinja_exec.c - statements: output, assignment, loops, macros, scopes.
// A scope opens per loop pass, macro call, with and captured block; an if has
// none.  Macros keep the scope they were defined in.
#include "core/text/template/jinja.h"

#include <string.h>

static int push_scope(struct jinja_run *r, struct jinja_scope *up)
{
	struct jinja_scope *s;
	int rc = jinja_new(r, 1, sizeof(*s), &s);

	if (rc)
		return rc;
	s->up = up;
	r->scope = s;
	return 0;
}

static int set_name(struct jinja_run *r, struct jinja_str name,
		    struct jinja_value v)
{
	return jinja_dict_set(r, &r->scope->vars, jinja_text(name.p, name.n),
			      v);
}

static int set_attr(struct jinja_run *r, const struct jinja_node *n,
		    struct jinja_value v)
{
	struct jinja_node name = *n;
	struct jinja_value ns;
	int rc;

	name.kind = JN_NAME;
	rc = jinja_eval(r, &name, &ns);
	if (rc)
		return rc;
	if (ns.type != JINJA_NAMESPACE)
		return jinja_raise(r, "cannot assign attribute on a "
				      "non-namespace object");
	return jinja_dict_set(r, ns.dict, n->a->val, v);
}

static int assign(struct jinja_run *r, const struct jinja_node *target,
		  struct jinja_value v)
{
	const struct jinja_node *n;
	struct jinja_list l;
	size_t want = 0, i = 0;
	int rc;

	if (target->kind == JN_NAME)
		return set_name(r, target->val.s, v);
	if (target->kind == JN_NSREF)
		return set_attr(r, target, v);
	for (n = target->b; n; n = n->next)
		want++;
	rc = jinja_items(r, &v, &l);
	if (!rc && l.n != want)
		rc = jinja_raise(r,
				 "ValueError: %zu values to unpack, expected "
				 "%zu",
				 l.n, want);
	for (n = target->b; !rc && n; n = n->next)
		rc = assign(r, n, l.v[i++]);
	return rc;
}

// Elements for which the loop's condition holds.
static int filter_items(struct jinja_run *r, const struct jinja_node *n,
			struct jinja_list *io)
{
	struct jinja_scope *outer = r->scope;
	struct jinja_value *kept, v;
	size_t i, k = 0;
	int rc = jinja_new(r, io->n, sizeof(*kept), &kept);

	if (!rc)
		rc = push_scope(r, outer);
	for (i = 0; !rc && i < io->n; i++) {
		rc = assign(r, n->a, io->v[i]);
		if (!rc)
			rc = jinja_eval(r, n->c, &v);
		if (!rc && jinja_true(&v))
			kept[k++] = io->v[i];
	}
	r->scope = outer;
	*io = (struct jinja_list){kept, k, NULL};
	return rc;
}

static int passes(struct jinja_run *r, const struct jinja_node *n,
		  struct jinja_loop *loop)
{
	const struct jinja_value v = {.type = JINJA_LOOP, .loop = loop};
	struct jinja_scope *outer = r->scope, *s = NULL;
	int rc = 0;

	for (; !rc && loop->at < loop->n; loop->at++) {
		if (s && !s->captured) {
			jinja_dict_clear(&s->vars);
		} else {
			rc = push_scope(r, outer);
			s = r->scope;
		}
		if (!rc)
			rc = set_name(r, (struct jinja_str){"loop", 4}, v);
		if (!rc)
			rc = assign(r, n->a, loop->v[loop->at]);
		if (!rc)
			rc = jinja_exec(r, n->d);
		if (r->jump == JN_BREAK)
			loop->at = loop->n - 1;
		r->jump = 0;
	}
	r->scope = outer;
	return rc;
}

static int loop_over(struct jinja_run *r, const struct jinja_node *n,
		     const struct jinja_value *v, int64_t depth)
{
	struct jinja_scope *outer = r->scope;
	struct jinja_loop *loop;
	struct jinja_list l;
	int rc = jinja_items(r, v, &l);

	if (!rc && n->c)
		rc = filter_items(r, n, &l);
	if (!rc)
		rc = jinja_new(r, 1, sizeof(*loop), &loop);
	if (rc)
		return rc;
	if (!l.n) {
		rc = push_scope(r, outer);
		if (!rc)
			rc = jinja_exec(r, n->e);
		r->scope = outer;
		return rc;
	}
	*loop = (struct jinja_loop){
		.v = l.v,
		.n = l.n,
		.recursive = n->op ? n : NULL,
		.scope = outer,
		.depth = depth,
	};
	return passes(r, n, loop);
}

static int exec_for(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_value v;
	int rc = jinja_eval(r, n->b, &v);

	return rc ? rc : loop_over(r, n, &v, 0);
}

// loop(x): the same loop over x, one deeper; its text.
int jinja_call_loop(struct jinja_run *r, struct jinja_loop *loop,
		    const struct jinja_args *args, struct jinja_value *out)
{
	struct jinja_scope *caller = r->scope;
	size_t mark = r->n_out;
	int rc;

	if (!loop->recursive)
		return jinja_raise(r, "TypeError: The loop must have the "
				      "'recursive' marker to be called "
				      "recursively.");
	if (args->n_pos != 1 || args->n_kw)
		return jinja_raise(r, "TypeError: loop takes one iterable");
	r->scope = loop->scope;
	rc = loop_over(r, loop->recursive, &args->pos[0], loop->depth + 1);
	r->scope = caller;
	return rc ? rc : jinja_capture(r, mark, out);
}

// The text of the body, made in a scope of its own.
static int body_text(struct jinja_run *r, const struct jinja_node *body,
		     struct jinja_value *out)
{
	struct jinja_scope *outer = r->scope;
	size_t mark = r->n_out;
	int rc = push_scope(r, outer);

	if (!rc)
		rc = jinja_exec(r, body);
	r->scope = outer;
	return rc ? rc : jinja_capture(r, mark, out);
}

static int exec_body(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_value v;
	int rc = body_text(r, n->d, &v);

	if (!rc)
		rc = jinja_filters(r, n->b, v, &v);
	if (rc)
		return rc;
	return n->kind == JN_BODY ? jinja_print(r, &v) : assign(r, n->a, v);
}

static int exec_with(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_scope *outer = r->scope, *inner;
	const struct jinja_node *pair;
	struct jinja_value v;
	int rc = push_scope(r, outer);

	inner = r->scope;
	for (pair = n->b; !rc && pair; pair = pair->next->next) {
		r->scope = outer;
		rc = jinja_eval(r, pair->next, &v);
		r->scope = inner;
		if (!rc)
			rc = assign(r, pair, v);
	}
	if (!rc)
		rc = jinja_exec(r, n->d);
	r->scope = outer;
	return rc;
}

static int new_macro(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_value *out)
{
	struct jinja_value v = {.type = JINJA_MACRO};
	struct jinja_scope *s;
	struct jinja_macro *m;
	int rc = jinja_new(r, 1, sizeof(*m), &m);

	if (rc)
		return rc;
	m->def = n;
	m->scope = r->scope;
	for (s = r->scope; s && !s->captured; s = s->up)
		s->captured = true;
	v.macro = m;
	*out = v;
	return 0;
}

static int exec_macro(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_value v;
	int rc = new_macro(r, n, &v);

	return rc ? rc : set_name(r, n->val.s, v);
}

static int exec_callblock(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_value caller, v;
	int rc = new_macro(r, n, &caller);

	if (!rc)
		rc = jinja_call_with(r, n->a, &caller, &v);
	return rc ? rc : jinja_print(r, &v);
}

static int exec_escape(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_scope *outer = r->scope;
	struct jinja_value v;
	int rc = jinja_eval(r, n->a, &v);

	if (!rc && jinja_true(&v))
		rc = jinja_raise(r, "autoescape true is not supported");
	if (!rc)
		rc = push_scope(r, outer);
	if (!rc)
		rc = jinja_exec(r, n->d);
	r->scope = outer;
	return rc;
}

static bool named(const struct jinja_args *args, size_t k, struct jinja_str s)
{
	return args->kw_name[k].n == s.n &&
	       !memcmp(args->kw_name[k].p, s.p, s.n);
}

static bool has_param(const struct jinja_node *def, struct jinja_str name)
{
	for (const struct jinja_node *p = def->b; p; p = p->next)
		if (p->val.s.n == name.n && !memcmp(p->val.s.p, name.p, name.n))
			return true;
	return false;
}

// Arguments that no parameter takes: for varargs, kwargs and caller, where the
// macro uses them.
static int bind_rest(struct jinja_run *r, const struct jinja_node *def,
		     const struct jinja_args *args, size_t n_params)
{
	static const struct jinja_str caller = {"caller", 6};
	struct jinja_value v, list;
	struct jinja_dict *kw;
	size_t k, n = args->n_pos > n_params ? args->n_pos - n_params : 0;
	int rc = jinja_new(r, 1, sizeof(*kw), &kw);

	v = jinja_lack(JINJA_LACK_NAME, JINJA_UNDEF, caller);
	for (k = 0; !rc && k < args->n_kw; k++) {
		struct jinja_str s = args->kw_name[k];

		if (has_param(def, s))
			continue;
		if (def->op & JINJA_USES_CALLER && named(args, k, caller))
			v = args->kw[k];
		else
			rc = jinja_dict_set(r, kw, jinja_text(s.p, s.n),
					    args->kw[k]);
	}
	if (!rc && def->op & JINJA_USES_CALLER && !has_param(def, caller))
		rc = set_name(r, caller, v);
	if (!rc && def->op & JINJA_USES_KWARGS)
		rc = set_name(
			r, (struct jinja_str){"kwargs", 6},
			(struct jinja_value){.type = JINJA_DICT, .dict = kw});
	else if (!rc && kw->n)
		n = SIZE_MAX;
	if (!rc && def->op & JINJA_USES_VARARGS && n < SIZE_MAX) {
		rc = jinja_new_list(r, JINJA_TUPLE, n, &list);
		if (!rc && n)
			memcpy(list.list->v, args->pos + n_params,
			       n * sizeof(list));
		if (!rc)
			rc = set_name(r, (struct jinja_str){"varargs", 7},
				      list);
	} else if (!rc && n) {
		rc = jinja_raise(r,
				 "TypeError: macro '%.*s' got arguments that "
				 "it does not take",
				 (int)(def->val.s.n & 0x7f), def->val.s.p);
	}
	return rc;
}

static int bind(struct jinja_run *r, const struct jinja_node *def,
		const struct jinja_args *args)
{
	const struct jinja_node *p;
	struct jinja_value v;
	size_t i = 0, k;
	int rc = 0;

	for (p = def->b; !rc && p; p = p->next, i++) {
		v = (struct jinja_value){.type = JINJA_MISSING};
		if (i < args->n_pos)
			v = args->pos[i];
		for (k = 0; !rc && k < args->n_kw; k++) {
			if (!named(args, k, p->val.s))
				continue;
			if (v.type != JINJA_MISSING)
				rc = jinja_raise(r,
						 "TypeError: macro '%.*s' got "
						 "arguments that it does not "
						 "take",
						 (int)(def->val.s.n & 0x7f),
						 def->val.s.p);
			v = args->kw[k];
		}
		if (!rc && v.type == JINJA_MISSING && p->a)
			rc = jinja_eval(r, p->a, &v);
		else if (v.type == JINJA_MISSING)
			v = jinja_lack(JINJA_LACK_PARAM, JINJA_MACRO, p->val.s);
		if (!rc)
			rc = set_name(r, p->val.s, v);
	}
	return rc ? rc : bind_rest(r, def, args, i);
}

int jinja_call_macro(struct jinja_run *r, const struct jinja_macro *m,
		     const struct jinja_args *args, struct jinja_value *out)
{
	struct jinja_scope *caller = r->scope;
	size_t mark = r->n_out;
	int rc = push_scope(r, m->scope);

	if (!rc)
		rc = bind(r, m->def, args);
	if (!rc)
		rc = jinja_exec(r, m->def->d);
	r->scope = caller;
	return rc ? rc : jinja_capture(r, mark, out);
}

static int exec_if(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_value v;
	int rc;

	for (;;) {
		rc = jinja_eval(r, n->a, &v);
		if (rc)
			return rc;
		if (jinja_true(&v))
			return jinja_exec(r, n->b);
		// elif, or an if alone in the else: no deeper for long chains
		if (!n->c || n->c->kind != JN_IF || n->c->next)
			return jinja_exec(r, n->c);
		n = n->c;
	}
}

static int exec_node(struct jinja_run *r, const struct jinja_node *n)
{
	struct jinja_value v;
	int rc;

	switch (n->kind) {
	case JN_DATA:
		return jinja_emit(r, n->val.s.p, n->val.s.n);
	case JN_PRINT:
		rc = jinja_eval(r, n->a, &v);
		return rc ? rc : jinja_print(r, &v);
	case JN_IF:
		return exec_if(r, n);
	case JN_FOR:
		return exec_for(r, n);
	case JN_SET:
		rc = jinja_eval(r, n->b, &v);
		return rc ? rc : assign(r, n->a, v);
	case JN_SETBLOCK:
	case JN_BODY:
		return exec_body(r, n);
	case JN_WITH:
		return exec_with(r, n);
	case JN_MACRO:
		return exec_macro(r, n);
	case JN_CALLBLOCK:
		return exec_callblock(r, n);
	case JN_ESCAPE:
		return exec_escape(r, n);
	default:
		r->jump = n->kind;
		return 0;
	}
}

int jinja_exec(struct jinja_run *r, const struct jinja_node *list)
{
	int rc = 0;

	if (r->depth >= JINJA_MAX_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "evaluation is nested deeper than %d",
				  JINJA_MAX_DEPTH);
	r->depth++;
	for (; !rc && list && !r->jump; list = list->next) {
		r->line = list->line;
		rc = jinja_charge(r, 1);
		if (!rc)
			rc = exec_node(r, list);
	}
	r->depth--;
	return rc;
}
