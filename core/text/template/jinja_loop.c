// jinja_loop.c - the variable "loop" of a for.
#include "core/text/template/jinja.h"

#include <string.h>

static struct jinja_value neighbour(const struct jinja_loop *l, bool next,
				    struct jinja_str name)
{
	if (next ? l->at + 1 < l->n : l->at > 0)
		return l->v[next ? l->at + 1 : l->at - 1];
	return jinja_lack(JINJA_LACK_ATTR, JINJA_LOOP, name);
}

JINJA_FN(cycle)
{
	const struct jinja_loop *l = self.loop;

	if (!args->n_pos)
		return jinja_raise(r, "TypeError: no items for cycling given");
	*out = args->pos[l->at % args->n_pos];
	return 0;
}

JINJA_FN(changed)
{
	struct jinja_loop *l = self.loop;
	struct jinja_value now;
	bool eq = false;
	int rc;

	rc = jinja_new_list(r, JINJA_TUPLE, args->n_pos, &now);
	if (!rc && args->n_pos)
		memcpy(now.list->v, args->pos, args->n_pos * sizeof(now));
	if (!rc)
		rc = jinja_equal(r, &l->changed, &now, &eq);
	l->changed = now;
	*out = jinja_bool(!eq);
	return rc;
}

static const struct jinja_builtin functions[] = {
	{"cycle", cycle, "*", 0},
	{"changed", changed, "*", 0},
	{NULL, NULL, NULL, 0},
};

int jinja_loop_attr(struct jinja_run *r, const struct jinja_value *v,
		    struct jinja_str name, struct jinja_value *out)
{
	const struct jinja_loop *l = v->loop;
	const struct {
		const char *name;
		struct jinja_value v;
	} table[] = {
		{"index", jinja_int((int64_t)l->at + 1)},
		{"index0", jinja_int((int64_t)l->at)},
		{"revindex", jinja_int((int64_t)(l->n - l->at))},
		{"revindex0", jinja_int((int64_t)(l->n - l->at) - 1)},
		{"first", jinja_bool(!l->at)},
		{"last", jinja_bool(l->at + 1 == l->n)},
		{"length", jinja_int((int64_t)l->n)},
		{"depth", jinja_int(l->depth + 1)},
		{"depth0", jinja_int(l->depth)},
		{"previtem", neighbour(l, false, name)},
		{"nextitem", neighbour(l, true, name)},
	};
	const struct jinja_builtin *f = jinja_find(functions, name);
	struct jinja_method *m;
	size_t i;
	int rc;

	for (i = 0; i < sizeof(table) / sizeof(table[0]); i++)
		if (jinja_same(name, table[i].name)) {
			*out = table[i].v;
			return 0;
		}
	*out = jinja_lack(JINJA_LACK_ATTR, JINJA_LOOP, name);
	if (!f)
		return 0;
	rc = jinja_new(r, 1, sizeof(*m), &m);
	if (rc)
		return rc;
	m->self = *v;
	m->func = f;
	*out = (struct jinja_value){.type = JINJA_METHOD, .method = m};
	return 0;
}
