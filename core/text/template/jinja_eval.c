// jinja_eval.c - expressions to values.
// Depth and steps are counted here, for every node.
#include "core/text/template/jinja.h"

#include <string.h>

static int lookup(struct jinja_run *r, struct jinja_str name,
		  struct jinja_value *out)
{
	struct jinja_value key = jinja_text(name.p, name.n);
	const struct jinja_builtin *f;
	const struct jinja_value *v = NULL;
	struct jinja_scope *s;
	int rc = 0;

	for (s = r->scope; !rc && !v && s; s = s->up)
		if (s->vars.n)
			rc = jinja_dict_get(r, &s->vars, &key, &v);
	if (!rc && !v)
		rc = jinja_dict_get(r, r->vars, &key, &v);
	if (rc)
		return rc;
	if (v) {
		*out = *v;
		return 0;
	}
	f = jinja_find_global(name);
	*out = f ? (struct jinja_value){.type = JINJA_FUNC, .func = f}
		 : jinja_lack(JINJA_LACK_NAME, JINJA_UNDEF, name);
	return 0;
}

static size_t count(const struct jinja_node *n, int kind)
{
	size_t k = 0;

	for (; n; n = n->next)
		k += kind < 0 ? n->kind < JN_KEYWORD || n->kind > JN_DSTAR
			      : n->kind == kind;
	return k;
}

// *list behind the arguments, **dict behind the keywords.
static int spread_args(struct jinja_run *r, const struct jinja_node *n,
		       struct jinja_args *io)
{
	struct jinja_value v, *pos;
	struct jinja_str *names;
	struct jinja_list l;
	size_t i, k, more;
	int rc = jinja_eval(r, n->a, &v);

	if (!rc && n->kind == JN_STAR) {
		rc = jinja_items(r, &v, &l);
		if (!rc)
			rc = jinja_new(r, io->n_pos + l.n, sizeof(*pos), &pos);
		if (rc)
			return rc;
		if (io->n_pos)
			memcpy(pos, io->pos, io->n_pos * sizeof(*pos));
		if (l.n)
			memcpy(pos + io->n_pos, l.v, l.n * sizeof(*pos));
		io->pos = pos;
		io->n_pos += l.n;
		return 0;
	}
	if (!rc && v.type != JINJA_DICT)
		rc = jinja_raise(r, "TypeError: what stands behind ** must be "
				    "a mapping");
	if (rc)
		return rc;
	more = v.dict->n;
	rc = jinja_new(r, io->n_kw + more, sizeof(*pos), &pos);
	if (!rc)
		rc = jinja_new(r, io->n_kw + more, sizeof(*names), &names);
	for (i = 0; !rc && i < io->n_kw; i++) {
		pos[i] = io->kw[i];
		names[i] = io->kw_name[i];
	}
	for (i = 0; !rc && i < more; i++) {
		const struct jinja_value *kv = &v.dict->kv[2 * i];

		if (kv[0].type != JINJA_STR)
			return jinja_raise(r, "TypeError: keywords must be "
					      "strings");
		for (k = 0; k < io->n_kw; k++)
			if (names[k].n == kv[0].s.n &&
			    !memcmp(names[k].p, kv[0].s.p, names[k].n))
				return jinja_raise(r, "TypeError: got multiple "
						      "values for a keyword "
						      "argument");
		names[io->n_kw + i] = kv[0].s;
		pos[io->n_kw + i] = kv[1];
	}
	if (rc)
		return rc;
	io->kw = pos;
	io->kw_name = names;
	io->n_kw += more;
	return 0;
}

static int eval_args(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_args *out)
{
	size_t n_kw = count(n, JN_KEYWORD), n_pos = count(n, -1);
	int rc;

	memset(out, 0, sizeof(*out));
	if (!n)
		return 0;
	rc = jinja_new(r, n_pos, sizeof(*out->pos), &out->pos);
	if (!rc)
		rc = jinja_new(r, n_kw, sizeof(*out->kw), &out->kw);
	if (!rc)
		rc = jinja_new(r, n_kw, sizeof(*out->kw_name), &out->kw_name);
	for (; !rc && n; n = n->next) {
		if (n->kind == JN_KEYWORD) {
			out->kw_name[out->n_kw] = n->val.s;
			rc = jinja_eval(r, n->a, &out->kw[out->n_kw++]);
		} else if (n->kind == JN_STAR || n->kind == JN_DSTAR) {
			rc = spread_args(r, n, out);
		} else {
			rc = jinja_eval(r, n, &out->pos[out->n_pos++]);
		}
	}
	return rc;
}

// Where the word of that name stands in params; -1: nowhere.
static int param_index(const char *params, struct jinja_str name)
{
	size_t len;
	int i;

	for (i = 0; *params; i++) {
		len = strcspn(params, " ");
		if (len == name.n && !memcmp(params, name.p, len))
			return i;
		params += len + (params[len] == ' ');
	}
	return -1;
}

static int param_count(const char *params)
{
	int n = *params != 0;

	for (; *params; params++)
		n += *params == ' ';
	return n;
}

int jinja_invoke(struct jinja_run *r, const struct jinja_builtin *f,
		 const char *what, struct jinja_value self,
		 const struct jinja_args *args, struct jinja_value *out)
{
	struct jinja_value a[JINJA_MAX_PARAMS];
	size_t i;
	int at;

	memset(a, 0, sizeof(a)); // JINJA_MISSING
	if (*f->params == '*')
		return f->fn(r, self, args, a, out);
	if (args->n_pos > (size_t)param_count(f->params))
		return jinja_raise(r,
				   "TypeError: %s %s takes %d arguments, not "
				   "%zu",
				   what, f->name, param_count(f->params),
				   args->n_pos);
	for (i = 0; i < args->n_pos; i++)
		a[i] = args->pos[i];
	for (i = 0; i < args->n_kw; i++) {
		at = param_index(f->params, args->kw_name[i]);
		if (at < 0 || a[at].type != JINJA_MISSING)
			return jinja_raise(r,
					   "TypeError: %s %s: unexpected "
					   "argument '%.*s'",
					   what, f->name,
					   (int)(args->kw_name[i].n & 0x7f),
					   args->kw_name[i].p);
		a[at] = args->kw[i];
	}
	for (at = 0; at < f->need; at++)
		if (a[at].type == JINJA_MISSING)
			return jinja_raise(r,
					   "TypeError: %s %s needs %d "
					   "arguments",
					   what, f->name, f->need);
	return f->fn(r, self, args, a, out);
}

// caller: of a call block, or NULL.
static int call(struct jinja_run *r, const struct jinja_node *n,
		const struct jinja_value *caller, struct jinja_value *out)
{
	struct jinja_value f, *kw;
	struct jinja_args args;
	struct jinja_str *names;
	int rc = jinja_eval(r, n->a, &f);

	if (!rc && f.type == JINJA_UNDEF)
		rc = jinja_undefined(r, &f);
	if (!rc)
		rc = eval_args(r, n->b, &args);
	if (!rc && caller) {
		rc = jinja_new(r, args.n_kw + 1, sizeof(*kw), &kw);
		if (!rc)
			rc = jinja_new(r, args.n_kw + 1, sizeof(*names),
				       &names);
		for (size_t i = 0; !rc && i < args.n_kw; i++) {
			kw[i] = args.kw[i];
			names[i] = args.kw_name[i];
		}
		if (!rc) {
			kw[args.n_kw] = *caller;
			names[args.n_kw++] = (struct jinja_str){"caller", 6};
			args.kw = kw;
			args.kw_name = names;
		}
	}
	if (rc)
		return rc;
	r->line = n->line;
	switch (f.type) {
	case JINJA_LOOP:
		return jinja_call_loop(r, f.loop, &args, out);
	case JINJA_JOINER:
		if (args.n_pos || args.n_kw)
			return jinja_raise(r, "TypeError: a joiner takes no "
					      "arguments");
		return jinja_join_next(f.object, out);
	case JINJA_MACRO:
		return jinja_call_macro(r, f.macro, &args, out);
	case JINJA_FUNC:
		return jinja_invoke(r, f.func, "function", jinja_none(), &args,
				    out);
	case JINJA_METHOD:
		return jinja_invoke(r, f.method->func, "method", f.method->self,
				    &args, out);
	default:
		return jinja_raise(r, "TypeError: '%s' object is not callable",
				   jinja_type_name(f.type));
	}
}

int jinja_call_with(struct jinja_run *r, const struct jinja_node *n,
		    const struct jinja_value *caller, struct jinja_value *out)
{
	if (r->depth >= JINJA_MAX_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "evaluation is nested deeper than %d",
				  JINJA_MAX_DEPTH);
	r->depth++;
	int rc = call(r, n, caller, out);
	r->depth--;
	return rc;
}

static int apply_filter(struct jinja_run *r, const struct jinja_node *n,
			struct jinja_value in, struct jinja_value *out)
{
	struct jinja_args args;
	int rc = eval_args(r, n->b, &args);

	if (rc)
		return rc;
	r->line = n->line;
	if (!n->func)
		return jinja_raise(r, "no filter named '%.*s'",
				   (int)(n->val.s.n & 0x7f), n->val.s.p);
	return jinja_invoke(r, n->func, "filter", in, &args, out);
}

// The filters of a block; the chain's innermost input is in.
int jinja_filters(struct jinja_run *r, const struct jinja_node *n,
		  struct jinja_value in, struct jinja_value *out)
{
	struct jinja_value v;
	int rc;

	if (!n) {
		*out = in;
		return 0;
	}
	if (r->depth >= JINJA_MAX_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "evaluation is nested deeper than %d",
				  JINJA_MAX_DEPTH);
	r->depth++;
	rc = jinja_filters(r, n->a, in, &v);
	r->depth--;
	return rc ? rc : apply_filter(r, n, v, out);
}

static int eval_test(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_value *out)
{
	struct jinja_value v;
	struct jinja_args args;
	int rc = jinja_eval(r, n->a, &v);

	if (!rc)
		rc = eval_args(r, n->b, &args);
	if (rc)
		return rc;
	r->line = n->line;
	if (!n->func)
		return jinja_raise(r, "no test named '%.*s'",
				   (int)(n->val.s.n & 0x7f), n->val.s.p);
	return jinja_invoke(r, n->func, "test", v, &args, out);
}

static int eval_list(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_value *out)
{
	size_t i = 0;
	int rc =
		jinja_new_list(r, n->kind == JN_LIST ? JINJA_LIST : JINJA_TUPLE,
			       count(n->b, -1), out);

	for (n = n->b; !rc && n; n = n->next)
		rc = jinja_eval(r, n, &out->list->v[i++]);
	return rc;
}

static int eval_dict(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_value *out)
{
	struct jinja_value k, v;
	struct jinja_dict *d;
	int rc = jinja_new(r, 1, sizeof(*d), &d);

	for (n = n->b; !rc && n; n = n->next->next) {
		rc = jinja_eval(r, n, &k);
		if (!rc)
			rc = jinja_eval(r, n->next, &v);
		if (!rc)
			rc = jinja_dict_set(r, d, k, v);
	}
	*out = (struct jinja_value){.type = JINJA_DICT, .dict = d};
	return rc;
}

static int eval_subscript(struct jinja_run *r, const struct jinja_node *n,
			  struct jinja_value *out)
{
	const struct jinja_node *part[] = {n->b, n->c, n->d};
	struct jinja_value v, bound[3];
	int i, rc = jinja_eval(r, n->a, &v);

	memset(bound, 0, sizeof(bound)); // JINJA_MISSING
	for (i = 0; !rc && i < 3; i++)
		if (part[i])
			rc = jinja_eval(r, part[i], &bound[i]);
	if (rc)
		return rc;
	r->line = n->line;
	if (n->kind == JN_ITEM)
		return jinja_item(r, &v, &bound[0], out);
	return jinja_slice(r, &v, bound, out);
}

static int eval_unary(struct jinja_run *r, const struct jinja_node *n,
		      struct jinja_value *out)
{
	struct jinja_value v;
	double f;
	int rc = jinja_eval(r, n->a, &v);

	if (rc)
		return rc;
	if (n->kind == JN_NOT) {
		*out = jinja_bool(!jinja_true(&v));
		return 0;
	}
	if (v.type == JINJA_UNDEF)
		return jinja_undefined(r, &v);
	if (!jinja_number(&v, &f))
		return jinja_raise(r,
				   "TypeError: bad operand for unary sign: "
				   "'%s'",
				   jinja_type_name(v.type));
	if (n->kind == JN_NEG && v.type == JINJA_FLOAT) {
		*out = jinja_float(-f);
		return 0;
	}
	return jinja_binary(r, n->kind == JN_NEG ? JT_SUB : JT_ADD,
			    jinja_int(0), v, out);
}

static int eval_compare(struct jinja_run *r, const struct jinja_node *n,
			struct jinja_value *out)
{
	struct jinja_value x, y;
	bool yes = true;
	int rc = jinja_eval(r, n->a, &x);

	for (n = n->b; !rc && yes && n; n = n->next) {
		rc = jinja_eval(r, n->a, &y);
		if (!rc)
			rc = jinja_compare(r, n->op, &x, &y, &yes);
		x = y;
	}
	*out = jinja_bool(yes);
	return rc;
}

static int eval_cond(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_value *out)
{
	struct jinja_value v;
	int rc = jinja_eval(r, n->a, &v);

	if (rc)
		return rc;
	if (jinja_true(&v))
		return jinja_eval(r, n->b, out);
	if (n->c)
		return jinja_eval(r, n->c, out);
	*out = jinja_lack(JINJA_LACK_OTHER, JINJA_UNDEF,
			  (struct jinja_str){"else", 4});
	return 0;
}

static int eval_node(struct jinja_run *r, const struct jinja_node *n,
		     struct jinja_value *out)
{
	struct jinja_value v;
	int rc;

	switch (n->kind) {
	case JN_CONST:
		*out = n->val;
		return 0;
	case JN_NAME:
		return lookup(r, n->val.s, out);
	case JN_LIST:
	case JN_TUPLE:
		return eval_list(r, n, out);
	case JN_DICT:
		return eval_dict(r, n, out);
	case JN_ATTR:
		rc = jinja_eval(r, n->a, &v);
		r->line = n->line;
		return rc ? rc : jinja_attr(r, &v, n->val.s, out);
	case JN_ITEM:
	case JN_SLICE:
		return eval_subscript(r, n, out);
	case JN_CALL:
		return call(r, n, NULL, out);
	case JN_FILTER:
		rc = jinja_eval(r, n->a, &v);
		return rc ? rc : apply_filter(r, n, v, out);
	case JN_TEST:
		return eval_test(r, n, out);
	case JN_NOT:
	case JN_NEG:
	case JN_POS:
		return eval_unary(r, n, out);
	case JN_AND:
	case JN_OR:
		rc = jinja_eval(r, n->a, out);
		if (rc || jinja_true(out) == (n->kind == JN_OR))
			return rc;
		return jinja_eval(r, n->b, out);
	case JN_BINARY: {
		struct jinja_value w;

		rc = jinja_eval(r, n->a, &v);
		if (!rc)
			rc = jinja_eval(r, n->b, &w);
		r->line = n->line;
		return rc ? rc : jinja_binary(r, n->op, v, w, out);
	}
	case JN_COMPARE:
		return eval_compare(r, n, out);
	case JN_COND:
		return eval_cond(r, n, out);
	default:
		return jinja_raise(r, "not an expression");
	}
}

int jinja_eval(struct jinja_run *r, const struct jinja_node *n,
	       struct jinja_value *out)
{
	int rc = jinja_charge(r, 1);

	if (rc)
		return rc;
	r->line = n->line;
	if (r->depth >= JINJA_MAX_DEPTH)
		return jinja_fail(r, GENAI_E_LIMIT,
				  "evaluation is nested deeper than %d",
				  JINJA_MAX_DEPTH);
	r->depth++;
	rc = eval_node(r, n, out);
	r->depth--;
	return rc;
}
