// build.c - a graph under construction: files, tensors, values, nodes.
// Attributes are in attrs.c, changes in edit.c, the finished graph in finish.c.
#include "core/graph/builder.h"

#include <stdlib.h>
#include <string.h>

#define CONST_BLOCK 16384u
#define CONST_ALIGN 64u

struct genai_builder *genai_builder_open(const char *name)
{
	return genai_builder_open_capped(name, NULL);
}

struct genai_builder *genai_builder_open_capped(const char *name,
						struct genai_budget *budget)
{
	struct genai_builder *b;

	if (!genai_budget_take(budget, sizeof(*b)))
		return NULL;
	b = calloc(1, sizeof(*b));
	if (!b)
		return NULL;
	b->err.size = sizeof(b->err);
	b->budget = budget;
	b->arena.budget = budget;
	b->const_file = GENAI_NONE;
	genai_names_init(&b->names, budget);
	b->name = genai_builder_str(b, name);
	return b;
}

void genai_builder_close(struct genai_builder *b)
{
	uint32_t i;

	if (!b)
		return;
	for (i = 0; i < b->subs.n; i++)
		genai_graph_free(((struct genai_graph **)b->subs.data)[i]);
	free(b->files.data);
	free(b->tensors.data);
	free(b->values.data);
	free(b->nodes.data);
	free(b->inputs.data);
	free(b->outputs.data);
	free(b->subs.data);
	genai_names_free(&b->names);
	genai_arena_free(&b->arena);
	free(b);
}

uint32_t genai_builder_fail_at(struct genai_builder *b, int32_t code,
			       const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	if (b->err.code)
		return GENAI_NONE;
	va_start(ap, fmt);
	genai_error_vfill(&b->err, code, file, line, fmt, ap);
	va_end(ap);
	return GENAI_NONE;
}

uint32_t genai_builder_nomem(struct genai_builder *b)
{
	if (b->budget && b->budget->exceeded)
		return genai_builder_fail(b, GENAI_E_LIMIT,
					  "the graph needs more memory than "
					  "a file of this size may ask for");
	return genai_builder_fail(b, GENAI_E_NOMEM, "out of memory");
}

void *genai_builder_push(struct genai_builder *b, struct genai_list *l,
			 uint32_t n, size_t size)
{
	uint64_t want = (uint64_t)l->n + n, cap = l->cap;
	void *data;

	if (want > l->cap) {
		cap = cap ? cap * 2 : 8;
		if (cap < want)
			cap = want;
		if (cap >= GENAI_NONE || cap > SIZE_MAX / size ||
		    !genai_budget_take(b->budget, (cap - l->cap) * size)) {
			genai_builder_nomem(b);
			return NULL;
		}
		data = realloc(l->data, (size_t)cap * size);
		if (!data) {
			genai_builder_nomem(b);
			return NULL;
		}
		l->data = data;
		l->cap = (uint32_t)cap;
	}
	l->n = (uint32_t)want;
	return (char *)l->data + (want - n) * size;
}

void *genai_builder_alloc(struct genai_builder *b, uint64_t count, size_t size)
{
	uint64_t bytes;
	void *p = NULL;

	if (!__builtin_mul_overflow(count, size, &bytes))
		p = genai_arena_alloc(&b->arena, bytes, 8);
	if (!p)
		genai_builder_nomem(b);
	return p;
}

const char *genai_builder_str(struct genai_builder *b, const char *s)
{
	size_t n = s ? strlen(s) + 1 : 1;
	char *copy;

	if (n == 1)
		return "";
	copy = genai_arena_alloc(&b->arena, n, 1);
	if (!copy) {
		genai_builder_nomem(b);
		return "";
	}
	return memcpy(copy, s, n);
}

uint32_t genai_builder_file(struct genai_builder *b, const char *path,
			    const void *data, uint64_t bytes)
{
	struct genai_file *f;

	if (builder_dead(b))
		return GENAI_NONE;
	f = genai_builder_push(b, &b->files, 1, sizeof(*f));
	if (!f)
		return GENAI_NONE;
	memset(f, 0, sizeof(*f));
	f->size = sizeof(*f);
	f->path = genai_builder_str(b, path);
	f->data = data;
	f->bytes = bytes;
	return b->files.n - 1;
}

uint32_t genai_builder_tensor(struct genai_builder *b, uint32_t file,
			      uint64_t offset, uint64_t bytes, uint32_t dtype,
			      uint32_t rank, const int64_t *dims)
{
	struct genai_tensor *t;
	uint64_t need, have;
	int32_t rc;

	if (builder_dead(b))
		return GENAI_NONE;
	if (file >= b->files.n)
		return genai_builder_fail(b, GENAI_E_INVAL,
					  "tensor %u: no file %u", b->tensors.n,
					  file);
	rc = genai_tensor_bytes(dtype, rank, dims, &need);
	if (rc)
		return genai_builder_fail(
			b, rc, "tensor %u: %s of rank %u has no size",
			b->tensors.n, genai_dtype_name(dtype), rank);
	if (need != bytes)
		return genai_builder_fail(
			b, GENAI_E_FORMAT,
			"tensor %u: needs %llu bytes, has %llu", b->tensors.n,
			(unsigned long long)need, (unsigned long long)bytes);
	have = file_at(b, file)->bytes;
	if (bytes > have || offset > have - bytes)
		return genai_builder_fail(
			b, GENAI_E_FORMAT,
			"tensor %u: %llu bytes at %llu, file \"%s\" has %llu",
			b->tensors.n, (unsigned long long)bytes,
			(unsigned long long)offset, file_at(b, file)->path,
			(unsigned long long)have);
	t = genai_builder_push(b, &b->tensors, 1, sizeof(*t));
	if (!t)
		return GENAI_NONE;
	memset(t, 0, sizeof(*t));
	t->size = sizeof(*t);
	t->dtype = dtype;
	t->rank = rank;
	t->file = file;
	t->offset = offset;
	t->bytes = bytes;
	if (rank)
		memcpy(t->dims, dims, rank * sizeof(*dims));
	return b->tensors.n - 1;
}

static int fill_shape(struct genai_builder *b, struct genai_value *v,
		      const int64_t *dims, const char *const *symbols)
{
	uint32_t i;

	for (i = 0; v->rank != GENAI_NONE && i < v->rank; i++) {
		v->dims[i] = dims ? dims[i] : -1;
		if (v->dims[i] < -1)
			return 0;
		if (symbols && symbols[i] && *symbols[i])
			v->symbols[i] = genai_builder_str(b, symbols[i]);
	}
	return 1;
}

uint32_t genai_builder_value(struct genai_builder *b, const char *name,
			     uint32_t dtype, uint32_t rank, const int64_t *dims,
			     const char *const *symbols)
{
	struct genai_value *v;

	if (builder_dead(b))
		return GENAI_NONE;
	if (!name || !*name)
		return genai_builder_fail(b, GENAI_E_INVAL,
					  "a value without a name");
	if (genai_names_find(&b->names, name) != GENAI_NONE)
		return genai_builder_fail(b, GENAI_E_FORMAT,
					  "the name \"%s\" is defined twice",
					  name);
	if (rank > GENAI_MAX_RANK && rank != GENAI_NONE)
		return genai_builder_fail(b, GENAI_E_LIMIT,
					  "value \"%s\": rank %u, at most %d",
					  name, rank, GENAI_MAX_RANK);
	v = genai_builder_push(b, &b->values, 1, sizeof(*v));
	if (!v)
		return GENAI_NONE;
	memset(v, 0, sizeof(*v));
	v->size = sizeof(*v);
	v->dtype = dtype;
	v->name = genai_builder_str(b, name);
	v->rank = rank;
	v->tensor = GENAI_NONE;
	v->producer = GENAI_NONE;
	if (!fill_shape(b, v, dims, symbols))
		return genai_builder_fail(b, GENAI_E_FORMAT,
					  "value \"%s\": negative dimension",
					  name);
	if (b->err.code ||
	    !genai_names_add(&b->names, v->name, b->values.n - 1))
		return genai_builder_nomem(b);
	return b->values.n - 1;
}

uint32_t genai_builder_outer(struct genai_builder *b, const char *name,
			     uint32_t dtype, uint32_t rank, const int64_t *dims,
			     const char *const *symbols)
{
	uint32_t v = genai_builder_value(b, name, dtype, rank, dims, symbols);

	if (v != GENAI_NONE)
		value_at(b, v)->flags |= GENAI_VALUE_OUTER;
	return v;
}

uint32_t genai_builder_stored(struct genai_builder *b, const char *name,
			      uint32_t tensor)
{
	struct genai_tensor t;
	uint32_t v;

	if (builder_dead(b))
		return GENAI_NONE;
	if (tensor >= b->tensors.n)
		return genai_builder_fail(b, GENAI_E_INVAL,
					  "value \"%s\": no tensor %u",
					  name ? name : "", tensor);
	t = *tensor_at(b, tensor);
	v = genai_builder_value(b, name, t.dtype, t.rank, t.dims, NULL);
	if (v != GENAI_NONE)
		value_at(b, v)->tensor = tensor;
	return v;
}

// The block's data never moves: its file gets its whole capacity at once.
void *genai_builder_block(struct genai_builder *b, uint64_t bytes,
			  uint32_t *out_file, uint64_t *out_offset)
{
	uint64_t at = 0;
	char *data;

	if (b->const_file != GENAI_NONE) {
		at = file_at(b, b->const_file)->bytes;
		at = (at + CONST_ALIGN - 1) & ~(uint64_t)(CONST_ALIGN - 1);
	}
	if (b->const_file == GENAI_NONE || at > b->const_cap ||
	    bytes > b->const_cap - at) {
		b->const_cap = b->const_file == GENAI_NONE ? CONST_BLOCK / 16
							   : CONST_BLOCK;
		if (b->const_cap < bytes)
			b->const_cap = bytes;
		data = genai_arena_alloc(&b->arena, b->const_cap, CONST_ALIGN);
		if (!data) {
			genai_builder_nomem(b);
			return NULL;
		}
		memset(data, 0, b->const_cap);
		b->const_data = data;
		b->const_file = genai_builder_file(b, "", data, 0);
		if (b->const_file == GENAI_NONE)
			return NULL;
		at = 0;
	}
	file_at(b, b->const_file)->bytes = at + bytes;
	*out_file = b->const_file;
	*out_offset = at;
	return b->const_data + at;
}

uint32_t genai_builder_const(struct genai_builder *b, const char *name,
			     uint32_t dtype, uint32_t rank, const int64_t *dims,
			     const void *data)
{
	uint64_t bytes, offset;
	uint32_t file;
	void *room;
	int32_t rc;

	if (builder_dead(b))
		return GENAI_NONE;
	rc = genai_tensor_bytes(dtype, rank, dims, &bytes);
	if (rc)
		return genai_builder_fail(b, rc,
					  "constant \"%s\": %s of rank %u has "
					  "no size",
					  name ? name : "",
					  genai_dtype_name(dtype), rank);
	room = genai_builder_block(b, bytes, &file, &offset);
	if (!room)
		return GENAI_NONE;
	if (bytes)
		memcpy(room, data, bytes);
	return genai_builder_stored(b, name,
				    genai_builder_tensor(b, b->const_file,
							 offset, bytes, dtype,
							 rank, dims));
}

uint32_t genai_builder_find(const struct genai_builder *b, const char *name)
{
	return b ? genai_names_find(&b->names, name) : GENAI_NONE;
}

static uint32_t *copy_indices(struct genai_builder *b, const uint32_t *from,
			      uint32_t n, const char *op)
{
	uint32_t *to = genai_builder_alloc(b, n, sizeof(*to));
	uint32_t i;

	for (i = 0; to && i < n; i++) {
		to[i] = from[i];
		if (to[i] != GENAI_NONE && to[i] >= b->values.n) {
			genai_builder_fail(b, GENAI_E_INVAL,
					   "node %u (%s): no value %u",
					   b->nodes.n, op, to[i]);
			return NULL;
		}
	}
	return to;
}

// Mark the outputs as written by node; a value has one writer.
static int claim_outputs(struct genai_builder *b, uint32_t node,
			 const uint32_t *outputs, uint32_t n)
{
	uint32_t i;

	for (i = 0; i < n; i++) {
		struct genai_value *v;

		if (outputs[i] == GENAI_NONE)
			continue;
		v = value_at(b, outputs[i]);
		if (value_is_defined(v)) {
			genai_builder_fail(
				b, GENAI_E_FORMAT,
				"\"%s\" is written by node %u (%s), but %s",
				v->name, node, node_at(b, node)->pub.op,
				v->producer != GENAI_NONE
					? "another node writes it too"
				: v->tensor != GENAI_NONE
					? "it is an initialiser"
					: "it is an input");
			return 0;
		}
		v->producer = node;
	}
	return 1;
}

uint32_t genai_builder_node(struct genai_builder *b, const char *op,
			    const char *domain, int64_t opset, const char *name,
			    const uint32_t *inputs, uint32_t n_inputs,
			    const uint32_t *outputs, uint32_t n_outputs)
{
	struct genai_bnode *n;

	if (builder_dead(b))
		return GENAI_NONE;
	if (!op || !*op)
		return genai_builder_fail(b, GENAI_E_INVAL,
					  "node %u has no operator",
					  b->nodes.n);
	n = genai_builder_push(b, &b->nodes, 1, sizeof(*n));
	if (!n)
		return GENAI_NONE;
	memset(n, 0, sizeof(*n));
	n->pub.size = sizeof(n->pub);
	n->pub.attr_stride = sizeof(struct genai_attr);
	n->pub.opset = opset;
	n->pub.op = genai_builder_str(b, op);
	n->pub.domain = genai_builder_str(b, domain);
	n->pub.name = genai_builder_str(b, name);
	n->pub.n_inputs = n_inputs;
	n->pub.n_outputs = n_outputs;
	n->inputs = copy_indices(b, inputs, n_inputs, op);
	n->outputs = copy_indices(b, outputs, n_outputs, op);
	n->pub.inputs = n->inputs;
	n->pub.outputs = n->outputs;
	if (b->err.code ||
	    !claim_outputs(b, b->nodes.n - 1, outputs, n_outputs))
		return GENAI_NONE;
	return b->nodes.n - 1;
}

static void add_end(struct genai_builder *b, struct genai_list *l,
		    uint32_t value, uint32_t flag, const char *what)
{
	struct genai_value *v;
	uint32_t *slot;

	if (builder_dead(b))
		return;
	if (value >= b->values.n) {
		genai_builder_fail(b, GENAI_E_INVAL, "graph %s: no value %u",
				   what, value);
		return;
	}
	v = value_at(b, value);
	if (v->flags & flag) {
		genai_builder_fail(b, GENAI_E_FORMAT,
				   "graph %s \"%s\" is listed twice", what,
				   v->name);
		return;
	}
	if (flag == GENAI_VALUE_INPUT && value_is_defined(v)) {
		genai_builder_fail(b, GENAI_E_FORMAT,
				   "graph input \"%s\" is defined elsewhere "
				   "too",
				   v->name);
		return;
	}
	slot = genai_builder_push(b, l, 1, sizeof(*slot));
	if (!slot)
		return;
	*slot = value;
	v->flags |= flag;
}

void genai_builder_input(struct genai_builder *b, uint32_t value)
{
	if (b)
		add_end(b, &b->inputs, value, GENAI_VALUE_INPUT, "input");
}

void genai_builder_output(struct genai_builder *b, uint32_t value)
{
	if (b)
		add_end(b, &b->outputs, value, GENAI_VALUE_OUTPUT, "output");
}

uint32_t genai_builder_n_nodes(const struct genai_builder *b)
{
	return b ? b->nodes.n : 0;
}

const struct genai_node *genai_builder_get_node(const struct genai_builder *b,
						uint32_t node)
{
	return b && node < b->nodes.n ? &node_at(b, node)->pub : NULL;
}

const struct genai_value *genai_builder_get_value(const struct genai_builder *b,
						  uint32_t value)
{
	return b && value < b->values.n ? value_at(b, value) : NULL;
}
