// functions.c - model-local functions: every call becomes the function's nodes.
// Owns: names and attributes of what is put in the place of a call.
// Does not know: graphs that are built; what an operator means.
//
// A copy of the function is unpacked for each call.  Its formal names become
// those of the call, all others get a prefix that no two calls share,
// references to attributes become the call's attribute, the default, or
// nothing.  Nodes are counted as they are made, so that functions of functions
// end in time.
#include "core/onnx/functions.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "core/graph/names.h"
#include "core/onnx/scan.h"

typedef Genai__Onnx__Graph graph_pb;
typedef Genai__Onnx__Node node_pb;
typedef Genai__Onnx__Attribute attribute_pb;
typedef Genai__Onnx__Function function_pb;

#define MAX_CALLS 64 // one in the other
#define KEY_CAP (3 * (GENAI_ONNX_MAX_NAME + 1))

struct inliner {
	const Genai__Onnx__Model *m;
	ProtobufCAllocator *a;
	struct genai_budget *budget;
	struct genai_error *err;
	struct genai_names known; // key -> index in m->functions
	const function_pb *active[MAX_CALLS];
	uint32_t n_active, nodes, calls;
	char key[KEY_CAP];
};

// Nodes of a graph that is being made.
struct made {
	node_pb **v;
	size_t n, cap;
};

// A call: formal names, and what they are called outside.
struct call {
	struct inliner *x;
	const function_pb *f;
	const node_pb *node;
	struct genai_names formal; // -> input i, or n_input + output
	struct genai_names own;	   // what the body's nodes write
	char prefix[96];
};

static const char *str(const char *s)
{
	return s ? s : "";
}

static int32_t no_memory(struct inliner *x)
{
	return x->budget->exceeded
		       ? genai_fail(x->err, GENAI_E_LIMIT,
				    "its functions ask for more memory than a "
				    "file of its size may")
		       : genai_fail(x->err, GENAI_E_NOMEM, "out of memory");
}

#define call_fail(c, code, ...)                                                \
	call_fail_at((c), genai_fail((c)->x->err, (code), __VA_ARGS__))

static int32_t call_fail_at(const struct call *c, int32_t rc)
{
	genai_error_prefix(c->x->err, "function \"%s\" of domain \"%s\"",
			   str(c->f->name), str(c->f->domain));
	return rc;
}

// ---- which function ----

static const char *domain_of(const char *domain)
{
	return strcmp(str(domain), "ai.onnx") ? str(domain) : "";
}

static const char *key(struct inliner *x, const char *domain, const char *op,
		       const char *overload)
{
	snprintf(x->key, sizeof(x->key), "%s\n%s\n%s", domain_of(domain),
		 str(op), str(overload));
	return x->key;
}

static const function_pb *called(struct inliner *x, const node_pb *n)
{
	uint32_t i = genai_names_find(
		&x->known, key(x, n->domain, n->op_type, n->overload));

	return i == GENAI_NONE ? NULL : x->m->functions[i];
}

static int32_t check_opsets(struct inliner *x, const function_pb *f)
{
	int32_t rc = 0;

	for (size_t i = 0; i < f->n_opset_import && !rc; i++)
		rc = genai_onnx_check_opset(
			domain_of(f->opset_import[i]->domain),
			f->opset_import[i]->version, x->err);
	if (rc)
		genai_error_prefix(x->err, "function \"%s\"", str(f->name));
	return rc;
}

// keys are borrowed by the table: they are kept in *out_keys, freed by the
// caller.
static int32_t find_functions(struct inliner *x, char ***out_keys)
{
	const Genai__Onnx__Model *m = x->m;
	char **keys = x->a->alloc(x->budget, m->n_functions * sizeof(*keys));

	if (!keys)
		return no_memory(x);
	memset(keys, 0, m->n_functions * sizeof(*keys));
	*out_keys = keys;
	for (size_t i = 0; i < m->n_functions; i++) {
		const function_pb *f = m->functions[i];
		const char *k;
		int32_t rc = check_opsets(x, f);

		if (rc)
			return rc;
		k = key(x, f->domain, f->name, f->overload);

		if (!*str(f->name))
			return genai_fail(x->err, GENAI_E_FORMAT,
					  "function %zu has no name", i);
		if (genai_names_find(&x->known, k) != GENAI_NONE)
			return genai_fail(x->err, GENAI_E_FORMAT,
					  "function \"%s\" of domain \"%s\" is "
					  "there twice",
					  f->name, str(f->domain));
		keys[i] = x->a->alloc(x->budget, strlen(k) + 1);
		if (!keys[i])
			return no_memory(x);
		strcpy(keys[i], k);
		if (!genai_names_add(&x->known, keys[i], (uint32_t)i))
			return no_memory(x);
	}
	return 0;
}

// ---- copies ----

// A copy of a message, freed as one that was unpacked.
static void *copy_message(struct inliner *x, const ProtobufCMessage *from)
{
	size_t bytes = protobuf_c_message_get_packed_size(from);
	uint8_t *packed = x->a->alloc(x->budget, bytes ? bytes : 1);
	void *to = NULL;

	if (packed) {
		protobuf_c_message_pack(from, packed);
		to = protobuf_c_message_unpack(from->descriptor, x->a, bytes,
					       packed);
	}
	x->a->free(x->budget, packed);
	return to;
}

static void free_message(struct inliner *x, void *msg)
{
	if (msg)
		protobuf_c_message_free_unpacked(msg, x->a);
}

static int32_t set_text(struct inliner *x, char **to, const char *prefix,
			const char *text)
{
	size_t n = strlen(prefix), m = strlen(text);
	char *s = x->a->alloc(x->budget, n + m + 1);

	if (!s)
		return no_memory(x);
	memcpy(s, prefix, n);
	memcpy(s + n, text, m + 1);
	x->a->free(x->budget, *to);
	*to = s;
	return 0;
}

// ---- names ----

// What a name of the function is called where the call stands.
static int32_t rename_text(struct call *c, char **name)
{
	const node_pb *n = c->node;
	uint32_t at = genai_names_find(&c->formal, str(*name));

	if (!*str(*name))
		return 0;
	if (at < c->f->n_input)
		return set_text(c->x, name, "",
				at < n->n_input ? n->input[at] : "");
	at -= at == GENAI_NONE ? 0 : (uint32_t)c->f->n_input;
	if (at < n->n_output && *n->output[at])
		return set_text(c->x, name, "", n->output[at]);
	return set_text(c->x, name, c->prefix, *name);
}

static int32_t rename_node(struct call *c, node_pb *n);

static int32_t rename_values(struct call *c, Genai__Onnx__ValueInfo **v,
			     size_t n)
{
	int32_t rc = 0;

	for (size_t i = 0; i < n && !rc; i++)
		rc = rename_text(c, &v[i]->name);
	return rc;
}

static int32_t rename_graph(struct call *c, graph_pb *g)
{
	int32_t rc = rename_values(c, g->input, g->n_input);

	if (!rc)
		rc = rename_values(c, g->output, g->n_output);
	if (!rc)
		rc = rename_values(c, g->value_info, g->n_value_info);
	for (size_t i = 0; i < g->n_initializer && !rc; i++)
		rc = rename_text(c, &g->initializer[i]->name);
	for (size_t i = 0; i < g->n_sparse_initializer && !rc; i++)
		if (g->sparse_initializer[i]->values)
			rc = rename_text(
				c, &g->sparse_initializer[i]->values->name);
	for (size_t i = 0; i < g->n_node && !rc; i++)
		rc = rename_node(c, g->node[i]);
	return rc;
}

// ---- attributes ----

static attribute_pb *find_attribute(attribute_pb **v, size_t n,
				    const char *name)
{
	for (size_t i = 0; i < n; i++)
		if (!strcmp(str(v[i]->name), name))
			return v[i];
	return NULL;
}

static bool declared(const function_pb *f, const char *name)
{
	for (size_t i = 0; i < f->n_attribute; i++)
		if (!strcmp(f->attribute[i], name))
			return true;
	return find_attribute(f->attribute_proto, f->n_attribute_proto, name);
}

// The attribute that a refers to, under a's name; *out NULL: there is none, and
// the operator has its own default.
static int32_t follow(struct call *c, const node_pb *n, const attribute_pb *a,
		      attribute_pb **out)
{
	const char *to = a->ref_attr_name;
	const attribute_pb *from =
		find_attribute(c->node->attribute, c->node->n_attribute, to);

	*out = NULL;
	if (!declared(c->f, to))
		return call_fail(c, GENAI_E_FORMAT,
				 "node \"%s\" (%s): attribute \"%s\" refers to "
				 "\"%s\", which the function does not have",
				 str(n->name), str(n->op_type), str(a->name),
				 to);
	if (!from)
		from = find_attribute(c->f->attribute_proto,
				      c->f->n_attribute_proto, to);
	if (!from)
		return 0;
	if (a->type && from->type && a->type != from->type)
		return call_fail(
			c, GENAI_E_FORMAT,
			"node \"%s\" (%s): attribute \"%s\" is of type "
			"%d, \"%s\" of type %d",
			str(n->name), str(n->op_type), str(a->name), a->type,
			to, from->type);
	*out = copy_message(c->x, &from->base);
	return *out ? set_text(c->x, &(*out)->name, "", str(a->name))
		    : no_memory(c->x);
}

static int32_t fill_attributes(struct call *c, node_pb *n)
{
	size_t kept = 0, i;
	int32_t rc = 0;

	for (i = 0; i < n->n_attribute && !rc; i++) {
		attribute_pb *a = n->attribute[i], *is = a;

		if (a->ref_attr_name && *a->ref_attr_name) {
			rc = follow(c, n, a, &is);
			free_message(c->x, a);
		} else if (a->g) {
			rc = rename_graph(c, a->g);
		}
		if (is)
			n->attribute[kept++] = is;
	}
	for (; i < n->n_attribute; i++)
		n->attribute[kept++] = n->attribute[i];
	n->n_attribute = kept;
	return rc;
}

// ---- a node of the body ----

static int32_t set_opset(struct call *c, node_pb *n)
{
	for (size_t i = 0; i < c->f->n_opset_import; i++) {
		const Genai__Onnx__Opset *o = c->f->opset_import[i];

		if (strcmp(domain_of(o->domain), domain_of(n->domain)))
			continue;
		n->has_opset = 1;
		n->opset = o->version;
		return 0;
	}
	return call_fail(c, GENAI_E_FORMAT,
			 "node \"%s\" (%s): its domain \"%s\" is not in the "
			 "function's opset_import",
			 str(n->name), str(n->op_type), str(n->domain));
}

static int32_t rename_node(struct call *c, node_pb *n)
{
	int32_t rc = set_opset(c, n);

	for (size_t i = 0; i < n->n_input && !rc; i++)
		rc = rename_text(c, &n->input[i]);
	for (size_t i = 0; i < n->n_output && !rc; i++)
		rc = rename_text(c, &n->output[i]);
	if (!rc)
		rc = set_text(c->x, &n->name, c->prefix, str(n->name));
	return rc ? rc : fill_attributes(c, n);
}

// ---- what is there before a call ----

static int32_t add_formals(struct call *c)
{
	const function_pb *f = c->f;

	for (size_t i = 0; i < f->n_input + f->n_output; i++) {
		bool in = i < f->n_input;
		const char *name = in ? f->input[i] : f->output[i - f->n_input];
		uint32_t at = genai_names_find(&c->formal, name);

		if (!*name)
			return call_fail(c, GENAI_E_FORMAT,
					 "%s %zu has no name",
					 in ? "input" : "output",
					 in ? i : i - f->n_input);
		if (!in && at < f->n_input)
			continue; // handed through
		if (at != GENAI_NONE)
			return call_fail(c, GENAI_E_FORMAT,
					 "\"%s\" is there twice", name);
		if (!genai_names_add(&c->formal, name, (uint32_t)i))
			return no_memory(c->x);
	}
	return 0;
}

static int32_t add_own(struct call *c)
{
	const function_pb *f = c->f;

	for (size_t i = 0; i < f->n_node; i++)
		for (size_t k = 0; k < f->node[i]->n_output; k++) {
			const char *name = f->node[i]->output[k];

			if (!*name)
				continue;
			if (genai_names_find(&c->own, name) != GENAI_NONE ||
			    genai_names_find(&c->formal, name) < f->n_input)
				return call_fail(c, GENAI_E_FORMAT,
						 "the name \"%s\" is defined "
						 "twice",
						 name);
			if (!genai_names_add(&c->own, name, (uint32_t)i))
				return no_memory(c->x);
		}
	return 0;
}

// What is read is there, what is given is written.
static int32_t check_names(struct call *c)
{
	const function_pb *f = c->f;

	for (size_t i = 0; i < f->n_node; i++)
		for (size_t k = 0; k < f->node[i]->n_input; k++) {
			const char *name = f->node[i]->input[k];

			if (*name &&
			    genai_names_find(&c->own, name) == GENAI_NONE &&
			    genai_names_find(&c->formal, name) >= f->n_input)
				return call_fail(
					c, GENAI_E_FORMAT,
					"node \"%s\" (%s): its input \"%s\" "
					"does not exist",
					str(f->node[i]->name),
					str(f->node[i]->op_type), name);
		}
	for (size_t i = 0; i < f->n_output; i++)
		if (genai_names_find(&c->own, f->output[i]) == GENAI_NONE &&
		    genai_names_find(&c->formal, f->output[i]) >= f->n_input)
			return call_fail(c, GENAI_E_FORMAT,
					 "its output \"%s\" does not exist",
					 f->output[i]);
	return 0;
}

static int32_t check_call(struct call *c)
{
	const struct inliner *x = c->x;
	const node_pb *n = c->node;

	for (uint32_t i = 0; i < x->n_active; i++)
		if (x->active[i] == c->f)
			return call_fail(
				c, GENAI_E_FORMAT, "calls itself%s%s%s",
				i + 1 < x->n_active ? " by way of \"" : "",
				i + 1 < x->n_active
					? str(x->active[x->n_active - 1]->name)
					: "",
				i + 1 < x->n_active ? "\"" : "");
	if (x->n_active == MAX_CALLS)
		return call_fail(c, GENAI_E_LIMIT,
				 "calls nested deeper than %d", MAX_CALLS);
	if (n->n_input > c->f->n_input || n->n_output > c->f->n_output)
		return call_fail(c, GENAI_E_FORMAT,
				 "has %zu inputs and %zu outputs, node \"%s\" "
				 "%zu and %zu",
				 c->f->n_input, c->f->n_output, str(n->name),
				 n->n_input, n->n_output);
	for (size_t i = 0; i < n->n_attribute; i++)
		if (!declared(c->f, str(n->attribute[i]->name)))
			return call_fail(c, GENAI_E_FORMAT,
					 "has no attribute \"%s\", which node "
					 "\"%s\" gives",
					 str(n->attribute[i]->name),
					 str(n->name));
	return 0;
}

// ---- nodes of a graph ----

static int32_t expand_graph(struct inliner *x, graph_pb *g, uint32_t depth);
static int32_t expand_node(struct inliner *x, node_pb *n, uint32_t depth,
			   struct made *out);

// Takes n.
static int32_t add_node(struct inliner *x, node_pb *n, struct made *out)
{
	if (out->n == out->cap) {
		size_t cap = out->cap ? 2 * out->cap : 16;
		node_pb **v = x->a->alloc(x->budget, cap * sizeof(*v));

		if (!v) {
			free_message(x, n);
			return no_memory(x);
		}
		if (out->n)
			memcpy(v, out->v, out->n * sizeof(*v));
		x->a->free(x->budget, out->v);
		out->v = v;
		out->cap = cap;
	}
	out->v[out->n++] = n;
	return 0;
}

// An output that is one of the inputs: it is copied.
static int32_t hand_through(struct call *c, const char *from, const char *to,
			    struct made *out)
{
	static const char identity[] = "Identity";
	node_pb blank = GENAI__ONNX__NODE__INIT, *n;
	char *in = (char *)(uintptr_t)from, *put = (char *)(uintptr_t)to;

	if (!*from)
		return call_fail(c, GENAI_E_FORMAT,
				 "node \"%s\" omits an input that is an output",
				 str(c->node->name));
	blank.n_input = blank.n_output = 1;
	blank.input = &in;
	blank.output = &put;
	blank.op_type = (char *)(uintptr_t)identity;
	n = copy_message(c->x, &blank.base);
	return n ? add_node(c->x, n, out) : no_memory(c->x);
}

static int32_t put_body(struct call *c, uint32_t depth, struct made *out)
{
	struct inliner *x = c->x;
	const function_pb *f = c->f;
	function_pb *body = copy_message(x, &f->base);
	int32_t rc = body ? 0 : no_memory(x);
	size_t i;

	for (i = 0; !rc && i < f->n_output && i < c->node->n_output; i++) {
		uint32_t at = genai_names_find(&c->formal, f->output[i]);

		if (at < f->n_input && *c->node->output[i])
			rc = hand_through(
				c,
				at < c->node->n_input ? c->node->input[at] : "",
				c->node->output[i], out);
	}
	for (i = 0; !rc && i < body->n_node; i++)
		rc = rename_node(c, body->node[i]);
	for (i = 0; !rc && i < body->n_node; i++) {
		node_pb *n = body->node[i];

		// the last takes its place, until all are gone
		body->node[i] = NULL;
		rc = expand_node(x, n, depth, out);
	}
	if (body) {
		size_t kept = 0;

		for (i = 0; i < body->n_node; i++)
			if (body->node[i])
				body->node[kept++] = body->node[i];
		body->n_node = kept;
	}
	free_message(x, body);
	return rc;
}

static int32_t put_call(struct inliner *x, const function_pb *f,
			const node_pb *n, uint32_t depth, struct made *out)
{
	struct call c = {.x = x, .f = f, .node = n};
	int32_t rc = check_call(&c);

	if (rc)
		return rc;
	snprintf(c.prefix, sizeof(c.prefix), "%.64s#%u/", str(f->name),
		 ++x->calls);
	genai_names_init(&c.formal, x->budget);
	genai_names_init(&c.own, x->budget);
	rc = add_formals(&c);
	if (!rc)
		rc = add_own(&c);
	if (!rc)
		rc = check_names(&c);
	x->active[x->n_active++] = f;
	if (!rc)
		rc = put_body(&c, depth, out);
	x->n_active--;
	genai_names_free(&c.formal);
	genai_names_free(&c.own);
	return rc;
}

// Takes n.
static int32_t expand_node(struct inliner *x, node_pb *n, uint32_t depth,
			   struct made *out)
{
	const function_pb *f = called(x, n);
	int32_t rc = 0;

	if (++x->nodes > GENAI_ONNX_MAX_NODES)
		rc = genai_fail(
			x->err, GENAI_E_LIMIT,
			"more than %u nodes with those of its functions",
			GENAI_ONNX_MAX_NODES);
	for (size_t i = 0; i < n->n_attribute && !rc; i++)
		if (n->attribute[i]->g)
			rc = expand_graph(x, n->attribute[i]->g, depth + 1);
	if (!rc && !f)
		return add_node(x, n, out);
	if (!rc)
		rc = put_call(x, f, n, depth, out);
	free_message(x, n);
	return rc;
}

static int32_t expand_graph(struct inliner *x, graph_pb *g, uint32_t depth)
{
	struct made out = {NULL, 0, 0};
	int32_t rc = 0;
	size_t i;

	if (depth > GENAI_ONNX_MAX_GRAPHS)
		return genai_fail(x->err, GENAI_E_LIMIT,
				  "nested deeper than %d graphs with those of "
				  "its functions",
				  GENAI_ONNX_MAX_GRAPHS);
	for (i = 0; i < g->n_node && !rc; i++)
		rc = expand_node(x, g->node[i], depth, &out);
	// what is left after a failure
	for (; i < g->n_node; i++)
		free_message(x, g->node[i]);
	x->a->free(x->budget, g->node);
	g->node = out.v;
	g->n_node = out.n;
	return rc;
}

int32_t genai_onnx_inline(Genai__Onnx__Model *m, ProtobufCAllocator *a,
			  struct genai_budget *budget, struct genai_error *err)
{
	struct inliner x = {.m = m, .a = a, .budget = budget, .err = err};
	char **keys = NULL;
	int32_t rc;

	if (!m->n_functions || !m->graph)
		return 0;
	genai_names_init(&x.known, budget);
	rc = find_functions(&x, &keys);
	if (!rc)
		rc = expand_graph(&x, m->graph, 1);
	for (size_t i = 0; keys && i < m->n_functions; i++)
		a->free(budget, keys[i]);
	a->free(budget, keys);
	genai_names_free(&x.known);
	return rc;
}
