// import.c - from an unpacked graph to a genai_graph.
#include "core/onnx/import.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef Genai__Onnx__Graph graph_pb;
typedef Genai__Onnx__Node node_pb;
typedef Genai__Onnx__Attribute attribute_pb;
typedef Genai__Onnx__ValueInfo value_pb;
typedef Genai__Onnx__Tensor tensor_pb;

static const char *str(const char *s)
{
	return s ? s : "";
}

void genai_import_warn(struct genai_import *im, const char *fmt, ...)
{
	struct genai_error text = GENAI_ERROR_INIT;
	va_list ap;

	if (!im->options || !im->options->warn)
		return;
	va_start(ap, fmt);
	genai_error_vfill(&text, 0, __FILE__, __LINE__, fmt, ap);
	va_end(ap);
	genai_error_prefix(&text, "%s", im->path);
	im->options->warn(im->options->warn_ctx, text.text);
}

// The start of a name, for a message that must also hold the reason.
static const char *short_name(const char *name, char buf[100])
{
	size_t n = strlen(name);

	if (n < 100)
		return name;
	memcpy(buf, name, 96);
	for (n = 96; n && (buf[n - 1] & 0xc0) == 0x80; n--)
		;
	memcpy(buf + (n ? n - 1 : 0), "...", 4);
	return buf;
}

static int is_constant(const node_pb *n)
{
	const char *domain = str(n->domain);

	return !strcmp(str(n->op_type), "Constant") &&
	       (!*domain || !strcmp(domain, "ai.onnx"));
}

// A value of the declared type and shape; vi may be NULL.
static uint32_t add_value(struct scope *s, const char *name, const value_pb *vi)
{
	const Genai__Onnx__TensorType *type =
		vi && vi->type ? vi->type->tensor_type : NULL;
	const Genai__Onnx__Shape *shape = type ? type->shape : NULL;
	const char *symbols[GENAI_MAX_RANK] = {NULL};
	int64_t dims[GENAI_MAX_RANK];
	size_t i;

	if (genai_names_find(&s->odd, name) != GENAI_NONE)
		return genai_builder_fail(s->b, GENAI_E_FORMAT,
					  "the name \"%s\" is defined twice",
					  name);
	if (shape && shape->n_dim > GENAI_MAX_RANK)
		return genai_builder_fail(s->b, GENAI_E_LIMIT,
					  "value \"%s\": rank %zu, at most %d",
					  name, shape->n_dim, GENAI_MAX_RANK);
	for (i = 0; shape && i < shape->n_dim; i++) {
		const Genai__Onnx__Dim *d = shape->dim[i];

		dims[i] = d->has_dim_value && d->dim_value >= 0 ? d->dim_value
								: -1;
		symbols[i] = d->dim_param;
		if (dims[i] > GENAI_ONNX_MAX_DIM)
			return genai_builder_fail(
				s->b, GENAI_E_LIMIT,
				"value \"%s\": dimension %lld is too large",
				name, (long long)dims[i]);
	}
	return genai_builder_value(
		s->b, name, type ? (uint32_t)type->elem_type : 0,
		shape ? (uint32_t)shape->n_dim : GENAI_NONE, dims, symbols);
}

static const value_pb *info_of(const struct scope *s, const char *name)
{
	uint32_t i = genai_names_find(&s->infos, name);

	if (i == GENAI_NONE)
		return NULL;
	return i < s->g->n_value_info ? s->g->value_info[i]
				      : s->g->output[i - s->g->n_value_info];
}

// Types that the graph declares for values that nodes write.
static void index_infos(struct scope *s)
{
	size_t n = s->g->n_value_info + s->g->n_output, i;

	for (i = 0; i < n && !s->b->err.code; i++) {
		const value_pb *vi =
			i < s->g->n_value_info
				? s->g->value_info[i]
				: s->g->output[i - s->g->n_value_info];
		const char *name = str(vi->name);

		if (!*name || genai_names_find(&s->infos, name) != GENAI_NONE)
			continue;
		if (!genai_names_add(&s->infos, name, (uint32_t)i))
			genai_builder_nomem(s->b);
	}
}

// A stored value, or a note that its type is not carried.
static void add_stored(struct scope *s, const char *name, const tensor_pb *t,
		       const char *what)
{
	char label[128], cut[100];
	uint32_t tensor;
	int odd;

	if (genai_names_find(&s->odd, name) != GENAI_NONE) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "the name \"%s\" is defined twice", name);
		return;
	}
	snprintf(label, sizeof(label), "%s \"%s\"", what,
		 short_name(name, cut));
	tensor = genai_import_tensor(s, t, label, &odd);
	if (!odd)
		genai_builder_stored(s->b, name, tensor);
	else if (genai_builder_find(s->b, name) != GENAI_NONE)
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "the name \"%s\" is defined twice", name);
	else if (!genai_names_add(&s->odd, name, (uint32_t)t->data_type))
		genai_builder_nomem(s->b);
}

static void add_initializers(struct scope *s)
{
	size_t i;

	for (i = 0; i < s->g->n_initializer && !s->b->err.code; i++) {
		const tensor_pb *t = s->g->initializer[i];

		if (*str(t->name))
			add_stored(s, t->name, t, "initialiser");
		else
			genai_builder_fail(s->b, GENAI_E_FORMAT,
					   "initialiser %zu has no name", i);
	}
	for (i = 0; i < s->g->n_sparse_initializer && !s->b->err.code; i++) {
		const tensor_pb *t = s->g->sparse_initializer[i]->values;
		const char *name = t ? str(t->name) : "";

		if (!*name || genai_names_find(&s->odd, name) != GENAI_NONE ||
		    genai_builder_find(s->b, name) != GENAI_NONE)
			genai_builder_fail(s->b, GENAI_E_FORMAT,
					   "sparse initialiser %zu (\"%s\") "
					   "has no name of its own",
					   i, name);
		else if (!genai_names_add(&s->odd, name, GENAI_DT_NONE))
			genai_builder_nomem(s->b);
	}
}

// Inputs that are initialisers too (IR version 3 lists them all) are no inputs.
static void add_inputs(struct scope *s)
{
	size_t i, listed = 0;

	for (i = 0; i < s->g->n_input && !s->b->err.code; i++) {
		const value_pb *vi = s->g->input[i];
		const char *name = str(vi->name);
		uint32_t v = genai_builder_find(s->b, name);

		if (genai_names_find(&s->odd, name) != GENAI_NONE ||
		    (v != GENAI_NONE &&
		     genai_builder_get_value(s->b, v)->tensor != GENAI_NONE)) {
			listed++;
			continue;
		}
		if (!*name)
			genai_builder_fail(s->b, GENAI_E_FORMAT,
					   "graph input %zu has no name", i);
		else
			genai_builder_input(s->b, add_value(s, name, vi));
	}
	if (!s->parent && s->im->ir_version < 4 && !s->b->err.code &&
	    listed < s->g->n_initializer)
		genai_import_warn(s->im,
				  "IR version %lld asks for initialisers to be "
				  "inputs too; %zu are not",
				  (long long)s->im->ir_version,
				  s->g->n_initializer - listed);
}

static void number_constant(struct scope *s, const char *name,
			    const attribute_pb *a)
{
	int64_t dim = (int64_t)(a->n_ints + a->n_floats);

	if (!strcmp(a->name, "value_int"))
		genai_builder_const(s->b, name, GENAI_DT_I64, 0, NULL, &a->i);
	else if (!strcmp(a->name, "value_float"))
		genai_builder_const(s->b, name, GENAI_DT_F32, 0, NULL, &a->f);
	else if (!strcmp(a->name, "value_ints"))
		genai_builder_const(s->b, name, GENAI_DT_I64, 1, &dim, a->ints);
	else
		genai_builder_const(s->b, name, GENAI_DT_F32, 1, &dim,
				    a->floats);
}

// A Constant node is a stored tensor.
static void add_constant(struct scope *s, const node_pb *n)
{
	static const char *const known[] = {"value",	     "value_int",
					    "value_ints",    "value_float",
					    "value_floats",  "value_string",
					    "value_strings", "sparse_value"};
	const attribute_pb *a = n->n_attribute == 1 ? n->attribute[0] : NULL;
	const char *name = n->n_output == 1 ? str(n->output[0]) : "";
	size_t i;

	for (i = 0; a && i < 8; i++)
		if (!strcmp(str(a->name), known[i]))
			break;
	if (!a || i == 8 || !*name || (i == 0 && !a->t) ||
	    (i == 2 && a->n_floats) || (i == 4 && a->n_ints)) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "node \"%s\" (Constant): needs one value "
				   "and one output",
				   str(n->name));
	} else if (i == 0) {
		add_stored(s, name, a->t, "constant");
	} else if (i < 5) {
		if (genai_names_find(&s->odd, name) != GENAI_NONE)
			add_value(s, name, NULL); // fails: twice
		number_constant(s, name, a);
	} else if (genai_builder_find(s->b, name) != GENAI_NONE ||
		   genai_names_find(&s->odd, name) != GENAI_NONE) {
		genai_builder_fail(s->b, GENAI_E_FORMAT,
				   "the name \"%s\" is defined twice", name);
	} else if (!genai_names_add(&s->odd, name,
				    i == 7 ? GENAI_DT_NONE : GENAI_DT_STRING)) {
		genai_builder_nomem(s->b);
	}
}

// All names that the graph defines, before any is read: nodes may come in any
// order, and subgraphs look here.
static void define_values(struct scope *s)
{
	size_t i, j;

	add_initializers(s);
	add_inputs(s);
	for (i = 0; i < s->g->n_node && !s->b->err.code; i++) {
		const node_pb *n = s->g->node[i];

		if (is_constant(n)) {
			add_constant(s, n);
			continue;
		}
		for (j = 0; j < n->n_output && !s->b->err.code; j++)
			if (*str(n->output[j]))
				add_value(s, n->output[j],
					  info_of(s, n->output[j]));
	}
}

// A name of an enclosing graph becomes an outer value of every graph between.
uint32_t genai_scope_resolve(struct scope *s, const char *name)
{
	uint32_t v = genai_builder_find(s->b, name), dtype;
	struct genai_value outer;

	if (v != GENAI_NONE)
		return v;
	dtype = genai_names_find(&s->odd, name);
	if (dtype != GENAI_NONE)
		return genai_builder_fail(
			s->b, GENAI_E_UNSUPPORTED,
			"\"%s\" is read, but %s tensors are not supported",
			name,
			dtype == GENAI_DT_NONE ? "sparse"
					       : genai_dtype_name(dtype));
	if (!s->parent)
		return GENAI_NONE;
	v = genai_scope_resolve(s->parent, name);
	if (v == GENAI_NONE)
		return v;
	outer = *genai_builder_get_value(s->parent->b, v);
	return genai_builder_outer(s->b, name, outer.dtype, outer.rank,
				   outer.dims, outer.symbols);
}

static void add_outputs(struct scope *s)
{
	size_t i;

	for (i = 0; i < s->g->n_output && !s->b->err.code; i++) {
		const char *name = str(s->g->output[i]->name);
		uint32_t v = *name ? genai_scope_resolve(s, name) : GENAI_NONE;

		if (v == GENAI_NONE)
			genai_builder_fail(s->b, GENAI_E_FORMAT,
					   "graph output \"%s\" does not exist",
					   name);
		genai_builder_output(s->b, v);
	}
}

int32_t genai_import_graph(struct genai_import *im, struct scope *parent,
			   const graph_pb *g, struct genai_graph **out_graph,
			   struct genai_error *err)
{
	struct scope s;
	size_t i;

	memset(&s, 0, sizeof(s));
	s.parent = parent;
	s.im = im;
	s.g = g;
	s.b = genai_builder_open_capped(g->name, im->budget);
	if (!s.b)
		return genai_fail(err,
				  im->budget->exceeded ? GENAI_E_LIMIT
						       : GENAI_E_NOMEM,
				  "not enough memory for a graph");
	genai_names_init(&s.infos, im->budget);
	genai_names_init(&s.odd, im->budget);
	index_infos(&s);
	define_values(&s);
	for (i = 0; i < g->n_node && !s.b->err.code; i++)
		if (!is_constant(g->node[i]))
			genai_import_node(&s, g->node[i]);
	add_outputs(&s);
	genai_names_free(&s.infos);
	genai_names_free(&s.odd);
	free(s.files);
	return genai_builder_finish(s.b, out_graph, err);
}
