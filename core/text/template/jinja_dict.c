// jinja_dict.c - dictionaries in insertion order.
// Owns: lookup and growth.  Every probe is charged, so that keys made to
// collide cost steps, not time without end.
#include "core/text/template/jinja.h"

#include <string.h>

#define LINEAR 8u

// Equal keys hash equal: 1, 1.0 and True are one key.
static int hash_key(struct jinja_run *r, const struct jinja_value *k, int depth,
		    uint32_t *io_h)
{
	uint32_t h = *io_h;
	double f = 0;
	size_t i;
	int rc = 0;

	switch (k->type) {
	case JINJA_STR:
		rc = jinja_charge(r, k->s.n / 64);
		for (i = 0; i < k->s.n; i++)
			h = (h ^ (unsigned char)k->s.p[i]) * 16777619u;
		break;
	case JINJA_TUPLE:
		if (depth > JINJA_MAX_VALUE_DEPTH)
			return jinja_fail(r, GENAI_E_LIMIT, "key too deep");
		rc = jinja_charge(r, k->list->n);
		for (i = 0; !rc && i < k->list->n; i++)
			rc = hash_key(r, &k->list->v[i], depth + 1, &h);
		break;
	case JINJA_LIST:
	case JINJA_DICT:
		return jinja_raise(r, "TypeError: unhashable type: '%s'",
				   jinja_type_name(k->type));
	default:
		if (jinja_number(k, &f) && f != 0) {
			unsigned char b[sizeof(f)];

			memcpy(b, &f, sizeof(f));
			for (i = 0; i < sizeof(f); i++)
				h = (h ^ b[i]) * 16777619u;
		}
	}
	*io_h = h;
	return rc;
}

static int find(struct jinja_run *r, const struct jinja_dict *d,
		const struct jinja_value *key, uint32_t h, size_t *out_at,
		size_t *out_slot)
{
	size_t i, e;
	int rc = 0;
	bool eq = false;

	*out_at = d->n;
	if (!d->index) {
		for (i = 0; !rc && !eq && i < d->n; i++) {
			rc = jinja_equal(r, &d->kv[2 * i], key, &eq);
			if (eq)
				*out_at = i;
		}
		return rc;
	}
	for (i = h & (d->slots - 1); !rc && d->index[i];
	     i = (i + 1) & (d->slots - 1)) {
		e = d->index[i] - 1;
		rc = jinja_equal(r, &d->kv[2 * e], key, &eq);
		if (!rc)
			rc = jinja_charge(r, 1);
		if (eq) {
			*out_at = e;
			break;
		}
	}
	*out_slot = i;
	return rc;
}

// Index all entries afresh in a table at most half full.
static int reindex(struct jinja_run *r, struct jinja_dict *d)
{
	size_t i, slot, slots = 32;
	int rc;

	while (slots < d->n * 4)
		slots *= 2;
	rc = jinja_new(r, slots, sizeof(*d->index), &d->index);
	if (rc)
		return rc;
	d->slots = slots;
	for (i = 0; i < d->n; i++) {
		uint32_t h = 2166136261u;

		rc = hash_key(r, &d->kv[2 * i], 0, &h);
		if (!rc)
			rc = jinja_charge(r, 1);
		if (rc)
			return rc;
		slot = h & (slots - 1);
		while (d->index[slot]) {
			slot = (slot + 1) & (slots - 1);
			rc = jinja_charge(r, 1);
			if (rc)
				return rc;
		}
		d->index[slot] = (uint32_t)i + 1;
	}
	return 0;
}

int jinja_dict_get(struct jinja_run *r, const struct jinja_dict *d,
		   const struct jinja_value *key,
		   const struct jinja_value **out_v)
{
	uint32_t h = 2166136261u;
	size_t at, slot = 0;
	int rc = 0;

	*out_v = NULL;
	if (d->n > LINEAR && !d->index)
		rc = reindex(r, (struct jinja_dict *)d);
	if (!rc)
		rc = hash_key(r, key, 0, &h);
	if (!rc)
		rc = find(r, d, key, h, &at, &slot);
	if (!rc && at < d->n)
		*out_v = &d->kv[2 * at + 1];
	return rc;
}

int jinja_dict_reserve(struct jinja_run *r, struct jinja_dict *d, size_t n)
{
	struct jinja_value *kv;
	int rc;

	if (n <= d->cap)
		return 0;
	rc = jinja_new(r, n, 2 * sizeof(*kv), &kv);
	if (rc)
		return rc;
	if (d->n)
		memcpy(kv, d->kv, d->n * 2 * sizeof(*kv));
	d->kv = kv;
	d->cap = n;
	return 0;
}

int jinja_dict_set(struct jinja_run *r, struct jinja_dict *d,
		   struct jinja_value key, struct jinja_value v)
{
	uint32_t h = 2166136261u;
	size_t at, slot = 0;
	int rc = 0;

	if (d->n >= LINEAR && (!d->index || d->n * 2 >= d->slots))
		rc = reindex(r, d);
	if (!rc)
		rc = hash_key(r, &key, 0, &h);
	if (!rc)
		rc = find(r, d, &key, h, &at, &slot);
	if (!rc && at == d->n && d->n == d->cap)
		rc = jinja_dict_reserve(r, d, d->cap ? d->cap * 2 : 4);
	if (rc)
		return rc;
	d->kv[2 * at + 1] = v;
	if (at < d->n)
		return 0;
	d->kv[2 * at] = key;
	d->n++;
	if (d->index)
		d->index[slot] = (uint32_t)d->n;
	return 0;
}

void jinja_dict_clear(struct jinja_dict *d)
{
	d->n = 0;
	d->index = NULL;
	d->slots = 0;
}
