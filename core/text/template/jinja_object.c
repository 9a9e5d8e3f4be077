// jinja_object.c - cycler and joiner: values that remember.
#include "core/text/template/jinja.h"

#include <string.h>

static int new_object(struct jinja_run *r, int type,
		      const struct jinja_value *v, size_t n,
		      struct jinja_value *out)
{
	struct jinja_object *o;
	int rc = jinja_new(r, 1, sizeof(*o), &o);

	if (!rc)
		rc = jinja_new(r, n, sizeof(*o->v), &o->v);
	if (rc)
		return rc;
	if (n)
		memcpy(o->v, v, n * sizeof(*v));
	o->n = n;
	*out = (struct jinja_value){.type = (uint8_t)type, .object = o};
	return 0;
}

JINJA_FN(cycler)
{
	if (!args->n_pos || args->n_kw)
		return jinja_raise(r, "RuntimeError: cycler: at least one item "
				      "has to be provided");
	return new_object(r, JINJA_CYCLER, args->pos, args->n_pos, out);
}

JINJA_FN(joiner)
{
	struct jinja_value sep = jinja_text(", ", 2);

	if (a[0].type != JINJA_MISSING)
		sep = a[0];
	return new_object(r, JINJA_JOINER, &sep, 1, out);
}

int jinja_join_next(struct jinja_object *o, struct jinja_value *out)
{
	*out = o->at++ ? o->v[0] : jinja_text("", 0);
	return 0;
}

JINJA_FN(cycler_next)
{
	struct jinja_object *o = self.object;

	*out = o->v[o->at];
	o->at = (o->at + 1) % o->n;
	return 0;
}

JINJA_FN(cycler_reset)
{
	self.object->at = 0;
	*out = jinja_none();
	return 0;
}

const struct jinja_builtin jinja_cycler_methods[] = {
	{"next", cycler_next, "", 0},
	{"reset", cycler_reset, "", 0},
	{NULL, NULL, NULL, 0},
};

const struct jinja_builtin jinja_object_globals[] = {
	{"cycler", cycler, "*", 0},
	{"joiner", joiner, "sep", 0},
	{NULL, NULL, NULL, 0},
};
