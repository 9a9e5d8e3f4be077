// ops_axis.c - axes, broadcast shapes and shape inputs.
#include "modules/cpu_ref/ops.h"

int32_t ops_axis(struct cref_node *n, int64_t axis, uint32_t rank,
		 uint32_t *out_axis, struct genai_error *err)
{
	if (axis < -(int64_t)rank || axis >= (int64_t)rank)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "axis %lld is out of range for rank %u",
				      (long long)axis, rank);
	*out_axis = (uint32_t)(axis < 0 ? axis + rank : axis);
	return GENAI_OK;
}

int32_t ops_ints(struct cref_node *n, uint32_t i, int64_t *out, uint32_t cap,
		 uint32_t *out_count, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;
	int32_t rc = ops_need_dtype(n, i, OPS_INDEX, err);
	uint64_t count;

	if (rc)
		return rc;
	if (!t)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input %u is missing", i);
	count = exec_count(t);
	if (t->rank > 1 || count > cap)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "input %u '%.60s' of shape %s must be a "
				      "list of at most %u integers",
				      i, t->name ? t->name : "", EXEC_SHAPE(t),
				      cap);
	if (!t->value && count)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "shape input '%.60s' must be known while "
				      "planning",
				      t->name ? t->name : "");
	for (uint64_t k = 0; k < count; k++)
		out[k] = ops_get_int(t, t->value, k);
	*out_count = (uint32_t)count;
	return GENAI_OK;
}

int32_t ops_axes(struct cref_node *n, uint32_t i, uint32_t rank, uint32_t *out,
		 bool *out_given, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "axes");
	int64_t list[GENAI_MAX_RANK];
	uint32_t count = 0, axis = 0, mask = 0;
	int32_t rc = GENAI_OK;

	*out_given = false;
	*out = 0;
	if (i < n->n_in && n->in[i]) {
		rc = ops_ints(n, i, list, GENAI_MAX_RANK, &count, err);
	} else if (a && a->kind == GENAI_ATTR_INTS) {
		if (a->count > GENAI_MAX_RANK)
			return cref_node_fail(
				n, err, GENAI_E_INVAL, "%llu axes for rank %u",
				(unsigned long long)a->count, rank);
		count = (uint32_t)a->count;
		if (count)
			memcpy(list, a->ints, count * sizeof(list[0]));
	} else {
		return GENAI_OK;
	}
	for (uint32_t k = 0; !rc && k < count; k++) {
		rc = ops_axis(n, list[k], rank, &axis, err);
		if (!rc && (mask & (1u << axis)))
			rc = cref_node_fail(n, err, GENAI_E_INVAL,
					    "axis %lld is given twice",
					    (long long)list[k]);
		if (!rc)
			mask |= 1u << axis;
	}
	*out = mask;
	*out_given = true;
	return rc;
}

int32_t ops_broadcast(struct cref_node *n, uint32_t first, uint32_t count,
		      uint32_t *rank, int64_t *dims, struct genai_error *err)
{
	const struct exec_tensor *widest = n->in[first];
	uint32_t r = 0;

	for (uint32_t i = first; i < first + count; i++)
		if (n->in[i]->rank > r) {
			r = n->in[i]->rank;
			widest = n->in[i];
		}
	for (uint32_t d = 0; d < r; d++)
		dims[d] = 1;
	for (uint32_t i = first; i < first + count; i++) {
		const struct exec_tensor *t = n->in[i];

		for (uint32_t d = 0; d < t->rank; d++) {
			int64_t *o = &dims[r - t->rank + d];

			if (*o == 1)
				*o = t->dims[d];
			else if (t->dims[d] != 1 && t->dims[d] != *o)
				return cref_node_fail(
					n, err, GENAI_E_INVAL,
					"shapes %s and %s do not broadcast",
					EXEC_SHAPE(t == widest ? n->in[first]
							       : widest),
					EXEC_SHAPE(t));
		}
	}
	*rank = r;
	return GENAI_OK;
}
