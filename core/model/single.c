// single.c - running one graph once.
#include "core/model/single.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/model/paging.h"
#include "core/model/state.h"

#define CONST_BYTES 4096

struct single {
	struct genai_runtime *rt;
	struct genai_graph *graph;
	uint32_t *source; // per input of graph: index into inputs
	const struct genai_host_tensor *inputs;
	struct genai_stream *stream;
	struct genai_paging paging;
	bool paging_open;
	struct genai_plan *plan;
	struct genai_mem *in, *out, *stage; // stage: inputs, then outputs
	struct genai_view *views;
};

static bool as_constant(const struct genai_host_tensor *t)
{
	switch (t->dtype) {
	case GENAI_DT_F32:
	case GENAI_DT_F16:
	case GENAI_DT_F64:
	case GENAI_DT_BF16:
		return t->rank == 0;
	default:
		return t->bytes <= CONST_BYTES;
	}
}

// Its values decide a shape.
static bool shapes(const struct genai_graph *g, uint32_t value)
{
	static const char *const ops[] = {"Compress", "NonZero", "Unique"};

	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (uint32_t k = 0; k < sizeof(ops) / sizeof(ops[0]); k++)
			if (n->n_inputs && !strcmp(n->op, ops[k]) &&
			    n->inputs[0] == value)
				return true;
	}
	return false;
}

static bool has_subgraphs(const struct genai_graph *g)
{
	for (uint32_t i = 0; i < g->n_nodes; i++) {
		const struct genai_node *n = genai_graph_node(g, i);

		for (uint32_t k = 0; k < n->n_attrs; k++)
			if (genai_node_attr(n, k)->kind == GENAI_ATTR_GRAPH)
				return true;
	}
	return false;
}

// A graph output that is a stored tensor is written by nobody.
static const struct genai_tensor *stored_output(const struct single *s,
						uint32_t i)
{
	const struct genai_value *v =
		genai_graph_value(s->graph, s->graph->outputs[i]);

	return v->tensor == GENAI_NONE
		       ? NULL
		       : genai_graph_tensor(s->graph, v->tensor);
}

// What the graph says about an input holds.
static int32_t check_input(const struct genai_value *v,
			   const struct genai_host_tensor *t,
			   struct genai_error *err)
{
	if (v->dtype && v->dtype != t->dtype)
		return genai_fail(err, GENAI_E_INVAL,
				  "input %s is of type %s, given is %s",
				  v->name, genai_dtype_name(v->dtype),
				  genai_dtype_name(t->dtype));
	if (v->rank == GENAI_NONE)
		return 0;
	if (v->rank != t->rank)
		return genai_fail(err, GENAI_E_INVAL,
				  "input %s has rank %u, given is %u", v->name,
				  v->rank, t->rank);
	for (uint32_t d = 0; d < v->rank; d++)
		if (v->dims[d] >= 0 && v->dims[d] != t->dims[d])
			return genai_fail(err, GENAI_E_INVAL,
					  "input %s: dimension %u is %lld, "
					  "given is %lld",
					  v->name, d, (long long)v->dims[d],
					  (long long)t->dims[d]);
	return 0;
}

// The graph with its small inputs made constants; inputs that a subgraph may
// capture by name stay.
static int32_t fix_inputs(struct single *s, const struct genai_graph *g,
			  struct genai_error *err)
{
	struct genai_builder *b = genai_builder_open("single");
	bool keep = has_subgraphs(g);
	uint32_t n = 0;

	s->source = calloc(g->n_inputs + 1, sizeof(*s->source));
	genai_builder_copy(b, g);
	for (uint32_t i = 0; s->source && i < g->n_inputs; i++) {
		const struct genai_value *v =
			genai_graph_value(g, g->inputs[i]);
		const struct genai_host_tensor *t = &s->inputs[i];
		char name[4200];
		uint32_t c;

		// what is an output too must stay an input
		if (keep || v->flags & GENAI_VALUE_OUTPUT ||
		    !(as_constant(t) ||
		      (t->bytes <= CONST_BYTES && shapes(g, g->inputs[i])))) {
			s->source[n++] = i;
			continue;
		}
		snprintf(name, sizeof(name), "genai.const.%u", i);
		c = genai_builder_const(b, name, t->dtype, t->rank, t->dims,
					t->data);
		genai_builder_replace(b, g->inputs[i], c);
		genai_builder_remove_input(b, g->inputs[i]);
	}
	if (!s->source) {
		genai_builder_close(b);
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	}
	return genai_builder_finish(b, &s->graph, err);
}

static int32_t make_plan(struct single *s, struct genai_error *err)
{
	struct genai_runtime *rt = s->rt;
	const struct genai_graph *g = s->graph;
	struct genai_plan_options o = {
		.size = sizeof(o),
		.stream = &rt->device.stream,
		.barrier = &rt->device.barrier,
		.pager = &s->paging.api,
		.n_max_inputs = g->n_inputs,
	};
	int32_t rc;

	s->views = calloc(g->n_inputs + 1, sizeof(*s->views));
	s->in = calloc(g->n_inputs + 1, sizeof(*s->in));
	s->out = calloc(g->n_outputs + 1, sizeof(*s->out));
	s->stage = calloc(g->n_inputs + g->n_outputs + 1, sizeof(*s->stage));
	if (!s->views || !s->in || !s->out || !s->stage)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	for (uint32_t i = 0; i < g->n_inputs; i++) {
		const struct genai_host_tensor *t = &s->inputs[s->source[i]];

		genai_view_dense(&s->views[i], t->dtype, 0, t->rank, t->dims);
	}
	o.max_inputs = s->views;
	rc = rt->device.stream.ops->create(rt->device.stream.self, "single",
					   &s->stream, err);
	if (!rc)
		rc = genai_paging_open(rt, &s->paging, err);
	s->paging_open = !rc;
	if (!rc)
		rc = rt->exec.plan_create(
			genai_module_self(rt->executor.module), g, &o, &s->plan,
			err);
	if (!rc)
		rc = genai_paging_seal(&s->paging, s->plan, g, UINT64_MAX, err);
	return rc;
}

static int32_t alloc(struct single *s, uint32_t kind, uint64_t bytes,
		     struct genai_mem *m, struct genai_error *err)
{
	struct genai_stream_api *a = &s->rt->device.stream;

	// empty tensors have an address too
	return a->ops->alloc(a->self, kind, bytes ? bytes : 256,
			     GENAI_TAG_ACTIVATIONS, m, err);
}

static int32_t feed(struct single *s, uint32_t i, struct genai_error *err)
{
	struct genai_stream_api *a = &s->rt->device.stream;
	const struct genai_host_tensor *t = &s->inputs[s->source[i]];
	int32_t rc = alloc(s, GENAI_MEM_DEVICE, t->bytes, &s->in[i], err);

	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED, t->bytes, &s->stage[i],
			   err);
	if (rc)
		return rc;
	if (t->bytes)
		memcpy(s->stage[i].host, t->data, t->bytes);
	rc = a->ops->copy(a->self, s->stream, s->in[i].range.addr,
			  (uintptr_t)s->stage[i].host, t->bytes, GENAI_COPY_H2D,
			  err);
	s->views[i].addr = s->in[i].range.addr;
	if (!rc)
		rc = s->rt->exec.bind_input(s->plan, i, &s->views[i], err);
	return rc;
}

static int32_t bind_out(struct single *s, uint32_t i,
			struct genai_host_tensor *t, struct genai_error *err)
{
	const struct genai_tensor *st = stored_output(s, i);
	struct genai_view v = {.size = sizeof(v)};
	int32_t rc;

	if (st) {
		t->dtype = st->dtype;
		t->rank = st->rank;
		t->bytes = st->bytes;
		memcpy(t->dims, st->dims, sizeof(t->dims));
		return 0;
	}
	rc = s->rt->exec.output_shape(s->plan, i, &v, err);

	if (!rc)
		rc = genai_tensor_bytes(v.dtype, v.rank, v.dims, &t->bytes);
	if (!rc)
		rc = alloc(s, GENAI_MEM_DEVICE, t->bytes, &s->out[i], err);
	if (!rc)
		rc = alloc(s, GENAI_MEM_HOST_PINNED, t->bytes,
			   &s->stage[s->graph->n_inputs + i], err);
	if (rc)
		return rc;
	v.addr = s->out[i].range.addr;
	t->dtype = v.dtype;
	t->rank = v.rank;
	memcpy(t->dims, v.dims, sizeof(t->dims));
	return s->rt->exec.bind_output(s->plan, i, &v, err);
}

static int32_t run(struct single *s, struct genai_host_tensor *outputs,
		   struct genai_error *err)
{
	struct genai_stream_api *a = &s->rt->device.stream;
	struct genai_barrier_api *b = &s->rt->device.barrier;
	const struct genai_graph *g = s->graph;
	struct genai_point p = {0};
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < g->n_inputs; i++)
		rc = feed(s, i, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++)
		rc = bind_out(s, i, &outputs[i], err);
	if (!rc)
		rc = genai_runtime_submit(s->rt, s->plan, s->stream, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++)
		if (!stored_output(s, i))
			rc = a->ops->copy(
				a->self, s->stream,
				(uintptr_t)s->stage[g->n_inputs + i].host,
				s->out[i].range.addr, outputs[i].bytes,
				GENAI_COPY_D2H, err);
	if (!rc)
		rc = a->ops->mark(a->self, s->stream, &p, err);
	if (!rc)
		rc = b->ops->host_read(b->self, &p, 1, UINT64_MAX, err);
	for (uint32_t i = 0; !rc && i < g->n_outputs; i++) {
		const struct genai_tensor *st = stored_output(s, i);
		const void *src = s->stage[g->n_inputs + i].host;

		if (st)
			src = (const char *)genai_graph_file(g, st->file)
				      ->data +
			      st->offset;
		outputs[i].data = malloc(outputs[i].bytes + 1);
		if (!outputs[i].data)
			rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
		else if (outputs[i].bytes)
			memcpy(outputs[i].data, src, outputs[i].bytes);
	}
	return rc;
}

static void give(struct single *s, struct genai_mem *m, uint32_t n,
		 const struct genai_ticket *t)
{
	struct genai_stream_api *a = &s->rt->device.stream;

	for (uint32_t i = 0; m && i < n; i++)
		if (m[i].range.bytes)
			a->ops->free(a->self, m[i].range.addr, t, NULL);
}

static void tear_down(struct single *s, bool failed)
{
	struct genai_device *d = &s->rt->device;
	struct genai_ticket t = {.size = sizeof(t)};
	uint32_t n_in = s->graph ? s->graph->n_inputs : 0;
	uint32_t n_out = s->graph ? s->graph->n_outputs : 0;

	// without a drain the device keeps what it has; the runtime says so
	if (!genai_device_drain(d, &t, NULL)) {
		if (failed)
			d->stream.ops->reset(d->stream.self, &t, NULL);
		if (s->plan)
			s->rt->exec.plan_destroy(s->plan, &t, NULL);
		give(s, s->in, n_in, &t);
		give(s, s->out, n_out, &t);
		give(s, s->stage, n_in + n_out, &t);
	}
	if (s->paging_open)
		genai_paging_close(&s->paging, NULL);
	if (s->stream)
		d->stream.ops->destroy(d->stream.self, s->stream, NULL);
	genai_graph_free(s->graph);
	free(s->source);
	free(s->views);
	free(s->in);
	free(s->out);
	free(s->stage);
}

int32_t genai_single_check(const struct genai_graph *g,
			   const struct genai_host_tensor *inputs,
			   struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < g->n_inputs; i++)
		rc = check_input(genai_graph_value(g, g->inputs[i]), &inputs[i],
				 err);
	return rc;
}

int32_t genai_single_flat(struct genai_runtime *rt, const struct genai_graph *g,
			  const struct genai_host_tensor *inputs,
			  struct genai_host_tensor *outputs,
			  struct genai_error *err)
{
	struct single s = {.rt = rt, .inputs = inputs};
	int32_t rc;

	memset(outputs, 0, g->n_outputs * sizeof(*outputs));
	rc = genai_single_check(g, inputs, err);
	if (rc)
		return rc;
	rc = fix_inputs(&s, g, err);
	if (!rc)
		rc = make_plan(&s, err);
	if (!rc)
		rc = run(&s, outputs, err);
	tear_down(&s, rc != 0);
	for (uint32_t i = 0; rc && i < g->n_outputs; i++) {
		free(outputs[i].data);
		outputs[i].data = NULL;
	}
	return rc;
}
