// state.c - the states of a step graph: found by name, laid out in memory.
#include "core/model/state.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"

#define MAX_SIDE (1 << 16) // of a dimension
#define MAX_STATE (UINT64_C(1) << 40)
#define ALIGN UINT64_C(256) // of what is replaced

// ---- finding ----

// What genai_config.json calls them; cache: of keys or values, [batch, heads,
// positions, size].
static const struct {
	size_t in, out; // templates with %d
	bool cache;
} names[] = {
#define NAMES(in, out, cache)                                                  \
	{                                                                      \
		offsetof(struct genai_model_config, in),                       \
			offsetof(struct genai_model_config, out), cache        \
	}
	NAMES(past_key, present_key, true),
	NAMES(past_value, present_value, true),
	NAMES(past_conv, present_conv, false),
	NAMES(past_recurrent, present_recurrent, false),
};
#define N_NAMES (sizeof(names) / sizeof(names[0]))

static const char *template_at(const struct genai_model_config *c, size_t at)
{
	return (const char *)c + at;
}

// The number in name where the template has %d, or -1.
static int64_t match(const char *template, const char *name)
{
	const char *p = strstr(template, "%d");
	size_t pre = (size_t)(p - template), post = strlen(p + 2);
	size_t n = strlen(name);
	int64_t v = 0;

	if (n <= pre + post || strncmp(template, name, pre) ||
	    strcmp(name + n - post, p + 2) || n - pre - post > 6)
		return -1;
	for (size_t i = pre; i < n - post; i++) {
		if (name[i] < '0' || name[i] > '9')
			return -1;
		v = v * 10 + (name[i] - '0');
	}
	return v;
}

bool genai_states_names(const struct genai_model_config *c, const char *name)
{
	for (size_t k = 0; k < N_NAMES; k++)
		if (match(template_at(c, names[k].out), name) >= 0)
			return true;
	return false;
}

bool genai_states_has(const struct genai_states *s, uint32_t input)
{
	for (uint32_t i = 0; i < s->n; i++)
		if (s->v[i].in == input)
			return true;
	return false;
}

static int32_t check_dtype(const struct genai_value *v,
			   enum genai_state_kind kind, struct genai_error *err)
{
	// quantised: of 8 bits, or pairs of 4
	if (kind != GENAI_STATE_REPLACED &&
	    (v->dtype == GENAI_DT_I8 || v->dtype == GENAI_DT_U8))
		return 0;
	if (v->dtype == GENAI_DT_F32 || v->dtype == GENAI_DT_F16 ||
	    v->dtype == GENAI_DT_BF16)
		return 0;
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "graph input %s: a state of type %s is not carried",
			  v->name, genai_dtype_name(v->dtype));
}

// A cache: what the graph leaves open the configuration says.
static int32_t cache_shape(const struct genai_model_config *c,
			   struct genai_state *s, const struct genai_value *v,
			   struct genai_error *err)
{
	int64_t heads, size;

	if (v->rank != 4)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "graph input %s: rank %d, expected 4",
				  v->name, (int)v->rank);
	heads = v->dims[1] > 0 ? v->dims[1] : c->n_kv_heads;
	size = v->dims[3] > 0		 ? v->dims[3]
	       : v->dtype == GENAI_DT_U8 ? c->head_size / 2
					 : c->head_size;
	if (heads > MAX_SIDE || size > MAX_SIDE)
		return genai_fail(err, GENAI_E_LIMIT,
				  "graph input %s: %lld heads of size %lld, at "
				  "most %d of each",
				  v->name, (long long)heads, (long long)size,
				  MAX_SIDE);
	if (heads <= 0 || size <= 0)
		return genai_fail(err, GENAI_E_FORMAT,
				  "graph input %s: neither the graph nor "
				  "genai_config.json says how many heads of "
				  "what size",
				  v->name);
	s->axis = 2;
	s->dims[0] = s->dims[2] = 1;
	s->dims[1] = heads;
	s->dims[3] = size;
	return 0;
}

// All but the batch has to be known.
static int32_t replaced_shape(struct genai_state *s,
			      const struct genai_value *v,
			      struct genai_error *err)
{
	if (v->rank < 2 || v->rank > GENAI_MAX_RANK)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "graph input %s: rank %d, expected 2 or more",
				  v->name, (int)v->rank);
	s->dims[0] = 1;
	for (uint32_t d = 1; d < v->rank; d++) {
		if (v->dims[d] <= 0)
			return genai_fail(err, GENAI_E_FORMAT,
					  "graph input %s: the graph does not "
					  "say how long dimension %u is",
					  v->name, d);
		if (v->dims[d] > MAX_SIDE)
			return genai_fail(err, GENAI_E_LIMIT,
					  "graph input %s: dimension %u is "
					  "%lld, at most %d",
					  v->name, d, (long long)v->dims[d],
					  MAX_SIDE);
		s->dims[d] = v->dims[d];
	}
	return 0;
}

static int32_t shape(const struct genai_model_config *c, struct genai_state *s,
		     const struct genai_value *v, struct genai_error *err)
{
	int32_t rc = s->kind == GENAI_STATE_REPLACED
			     ? replaced_shape(s, v, err)
			     : cache_shape(c, s, v, err);

	if (!rc)
		rc = check_dtype(v, s->kind, err);
	if (rc)
		return rc;
	s->dtype = v->dtype;
	s->rank = v->rank;
	if (genai_tensor_bytes(s->dtype, s->rank, s->dims, &s->bytes) ||
	    s->bytes > MAX_STATE)
		return genai_fail(err, GENAI_E_LIMIT,
				  "graph input %s: the state is too large",
				  v->name);
	return 0;
}

// What comes out goes in again.
static int32_t check_output(const struct genai_graph *g,
			    const struct genai_state *s,
			    struct genai_error *err)
{
	const struct genai_value *in = genai_graph_value(g, g->inputs[s->in]);
	const struct genai_value *out =
		genai_graph_value(g, g->outputs[s->out]);
	bool same = out->dtype == in->dtype && out->rank == in->rank;

	if (!out->dtype) // the graph does not say
		return 0;
	for (uint32_t d = 0; same && d < in->rank; d++)
		same = d == 0 ||
		       (s->kind != GENAI_STATE_REPLACED && d == s->axis) ||
		       in->dims[d] < 0 || out->dims[d] < 0 ||
		       in->dims[d] == out->dims[d];
	return same ? 0
		    : genai_fail(err, GENAI_E_FORMAT,
				 "graph output %s is of another type or shape "
				 "than %s",
				 out->name, in->name);
}

static int32_t check_conv(const struct genai_model_config *c,
			  const struct genai_state *s,
			  const struct genai_value *v, struct genai_error *err)
{
	// channels first or last
	if (!c->conv_cache || match(c->past_conv, v->name) < 0 ||
	    s->dims[s->rank - 1] == c->conv_cache ||
	    s->dims[1] == c->conv_cache)
		return 0;
	return genai_fail(err, GENAI_E_FORMAT,
			  "graph input %s holds %lld positions, "
			  "model.decoder.conv_cache_size is %lld",
			  v->name, (long long)s->dims[s->rank - 1],
			  (long long)c->conv_cache);
}

static uint32_t find(const struct genai_graph *g, const uint32_t *list,
		     uint32_t n, const char *name)
{
	for (uint32_t i = 0; i < n; i++)
		if (!strcmp(genai_graph_value(g, list[i])->name, name))
			return i;
	return GENAI_NONE;
}

static int32_t find_output(const struct genai_graph *g, struct genai_state *s,
			   const char *template, int64_t number,
			   struct genai_error *err)
{
	char name[160];

	snprintf(name, sizeof(name), template, (int)number);
	s->out = find(g, g->outputs, g->n_outputs, name);
	return s->out == GENAI_NONE
		       ? genai_fail(err, GENAI_E_FORMAT,
				    "graph output %s is missing", name)
		       : 0;
}

// It is written where it was read: nothing may read it later.
static int32_t check_readers(const struct genai_graph *g,
			     const struct genai_state *s,
			     struct genai_error *err)
{
	uint32_t in = g->inputs[s->in];
	const struct genai_value *out =
		genai_graph_value(g, g->outputs[s->out]);

	for (uint32_t i = out->producer; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (uint32_t k = 0; i > out->producer && k < n->n_inputs; k++)
			if (n->inputs[k] == in)
				return genai_fail(
					err, GENAI_E_UNSUPPORTED,
					"node %s (%s) reads %s after %s was "
					"written",
					n->name, n->op,
					genai_graph_value(g, in)->name,
					out->name);
	}
	return 0;
}

// Nodes that make a longer cache of one they read.
static bool joins(const struct genai_node *n)
{
	return !strcmp(n->op, "MultiHeadAttention") ||
	       !strcmp(n->op, "Attention") || !strcmp(n->op, "Concat");
}

uint32_t genai_states_joined(const struct genai_graph *g,
			     const struct genai_model_config *c)
{
	char name[160];

	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_value *in =
			genai_graph_value(g, g->inputs[i]);
		int64_t number = match(c->past_key, in->name);
		const struct genai_node *n = NULL;
		const struct genai_value *v;
		uint32_t at;

		if (number < 0 || in->rank != 4)
			continue;
		snprintf(name, sizeof(name), c->present_key, (int)number);
		at = find(g, g->outputs, g->n_outputs, name);
		v = at == GENAI_NONE ? NULL
				     : genai_graph_value(g, g->outputs[at]);
		while (v && v->producer != GENAI_NONE) {
			n = genai_graph_node(g, v->producer);
			if (strcmp(n->op, "Identity") || !n->n_inputs ||
			    n->inputs[0] == GENAI_NONE)
				break;
			v = genai_graph_value(g, n->inputs[0]);
			n = NULL;
		}
		if (n && joins(n))
			return g->inputs[i];
	}
	return GENAI_NONE;
}

// How a cache becomes longer is up to the node that makes it.
static int32_t find_kind(const struct genai_graph *g, struct genai_state *s,
			 struct genai_error *err)
{
	const struct genai_value *out =
		genai_graph_value(g, g->outputs[s->out]);
	const struct genai_node *n;
	uint32_t in = g->inputs[s->in];
	int64_t axis = 0;
	bool reads = false;

	if (out->producer == GENAI_NONE)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "graph output %s: no node makes it",
				  out->name);
	n = genai_graph_node(g, out->producer);
	for (uint32_t i = 0; i < n->n_inputs; i++)
		reads |= n->inputs[i] == in;
	for (uint32_t i = 0; i < n->n_attrs; i++)
		if (!strcmp(genai_node_attr(n, i)->name, "axis"))
			axis = genai_node_attr(n, i)->i;
	if (reads && (!strcmp(n->op, "GroupQueryAttention") ||
		      !strcmp(n->op, "PagedAttention"))) {
		s->kind = GENAI_STATE_GROWS;
		return 0;
	}
	s->kind = GENAI_STATE_JOINED;
	if (reads && joins(n) &&
	    (strcmp(n->op, "Concat") ||
	     (n->n_inputs == 2 && n->inputs[0] == in &&
	      (axis == 2 || axis == -2))))
		return 0;
	return genai_fail(err, GENAI_E_UNSUPPORTED,
			  "node %s (%s) makes the key/value cache %s: carried "
			  "is what an attention makes, or a Concat of %s and "
			  "the new rows along dimension 2",
			  n->name && *n->name ? n->name : out->name, n->op,
			  out->name, genai_graph_value(g, in)->name);
}

// Keys come with values.
static int32_t check_pair(const struct genai_graph *g,
			  const struct genai_model_config *c, int64_t number,
			  struct genai_error *err)
{
	char name[160];

	snprintf(name, sizeof(name), c->past_value, (int)number);
	return find(g, g->inputs, g->n_inputs, name) == GENAI_NONE
		       ? genai_fail(err, GENAI_E_FORMAT,
				    "graph input %s is missing", name)
		       : 0;
}

static uint64_t of_position(const struct genai_state *s)
{
	return s->kind == GENAI_STATE_JOINED ? 2 * s->bytes : s->bytes;
}

// Numbers need not be consecutive.
static int32_t add(const struct genai_graph *g,
		   const struct genai_model_config *c, uint32_t input,
		   struct genai_states *out, struct genai_error *err)
{
	const struct genai_value *v = genai_graph_value(g, g->inputs[input]);
	struct genai_state *s = &out->v[out->n];
	int64_t number = -1;
	size_t k = 0;
	int32_t rc = 0;

	for (; k < N_NAMES; k++) {
		number = match(template_at(c, names[k].in), v->name);
		if (number >= 0)
			break;
	}
	if (number < 0)
		return 0;
	s->in = input;
	s->number = number;
	s->kind = GENAI_STATE_REPLACED;
	if (!k)
		rc = check_pair(g, c, number, err);
	if (!rc)
		rc = find_output(g, s, template_at(c, names[k].out), number,
				 err);
	if (!rc && names[k].cache)
		rc = find_kind(g, s, err);
	if (!rc)
		rc = shape(c, s, v, err);
	if (!rc)
		rc = check_output(g, s, err);
	if (!rc && s->kind == GENAI_STATE_REPLACED)
		rc = check_conv(c, s, v, err);
	if (!rc && s->kind == GENAI_STATE_REPLACED)
		rc = check_readers(g, s, err);
	if (rc)
		return rc;
	out->n++;
	out->n_joined += s->kind == GENAI_STATE_JOINED;
	if (names[k].cache)
		out->row_bytes += of_position(s);
	else
		out->replaced_bytes += (s->bytes + ALIGN - 1) / ALIGN * ALIGN;
	return 0;
}

int32_t genai_states_find(const struct genai_graph *g,
			  const struct genai_model_config *config,
			  struct genai_states *out, struct genai_error *err)
{
	int32_t rc = 0;

	memset(out, 0, sizeof(*out));
	out->v = calloc(g->n_inputs + (size_t)1, sizeof(*out->v));
	if (!out->v)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	for (uint32_t i = 0; !rc && i < g->n_inputs; i++)
		rc = add(g, config, i, out, err);
	return rc;
}

void genai_states_free(struct genai_states *s)
{
	free(s->v);
	memset(s, 0, sizeof(*s));
}

// ---- memory ----

uint64_t genai_states_replaced_at(const struct genai_states *s,
				  uint64_t positions)
{
	return (positions * s->row_bytes + ALIGN - 1) / ALIGN * ALIGN;
}

uint64_t genai_states_copy_at(const struct genai_states *s, uint64_t positions)
{
	return genai_states_replaced_at(s, positions) + s->replaced_bytes;
}

uint64_t genai_states_bytes(const struct genai_states *s, uint64_t positions)
{
	return s->replaced_bytes
		       ? genai_states_copy_at(s, positions) + s->replaced_bytes
		       : positions * s->row_bytes;
}

uint64_t genai_states_at(const struct genai_states *s, uint32_t i,
			 uint32_t place, uint64_t positions)
{
	bool replaced = s->v[i].kind == GENAI_STATE_REPLACED;
	uint64_t at = replaced ? genai_states_replaced_at(s, positions)
			       : place * positions * s->v[i].bytes;

	for (uint32_t k = 0; k < i; k++)
		if ((s->v[k].kind == GENAI_STATE_REPLACED) != replaced)
			continue;
		else if (!replaced)
			at += positions * of_position(&s->v[k]);
		else
			at += (s->v[k].bytes + ALIGN - 1) / ALIGN * ALIGN;
	return at;
}

void genai_view_dense(struct genai_view *v, uint32_t dtype, genai_addr addr,
		      uint32_t rank, const int64_t *dims)
{
	int64_t stride = 1;

	memset(v, 0, sizeof(*v));
	v->size = sizeof(*v);
	v->dtype = dtype;
	v->addr = addr;
	v->rank = rank;
	for (uint32_t d = rank; d-- > 0;) {
		v->dims[d] = dims[d];
		v->strides[d] = stride;
		stride *= dims[d];
	}
}

void genai_state_view(const struct genai_state *s, genai_addr addr,
		      uint64_t positions, struct genai_view *out)
{
	bool cache = s->kind != GENAI_STATE_REPLACED;
	bool first = s->kind == GENAI_STATE_GROWS; // positions, in memory
	int64_t stride = 1;

	memset(out, 0, sizeof(*out));
	out->size = sizeof(*out);
	out->dtype = s->dtype;
	out->rank = s->rank;
	out->addr = addr;
	memcpy(out->dims, s->dims, sizeof(out->dims));
	if (cache)
		out->dims[s->axis] = (int64_t)positions;
	for (uint32_t d = s->rank; d-- > 1;) {
		if (first && d == s->axis)
			continue;
		out->strides[d] = stride;
		stride *= out->dims[d] ? out->dims[d] : 1;
	}
	if (first) {
		out->strides[s->axis] = stride;
		stride *= (int64_t)positions;
	}
	out->strides[0] = stride;
}

void genai_state_blocks(const struct genai_state *s, genai_addr addr,
			uint64_t blocks, uint64_t block, struct genai_view *out)
{
	int64_t heads = s->dims[1], size = s->dims[3];

	genai_state_view(s, addr, block, out);
	out->dims[0] = (int64_t)blocks;
	out->dims[1] = (int64_t)block;
	out->dims[2] = heads;
	out->dims[3] = size;
	out->strides[3] = 1;
	out->strides[2] = size;
	out->strides[1] = heads * size;
	out->strides[0] = (int64_t)block * heads * size;
}
