// corpus_graph.c - elements and small graphs (see corpus.h).
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "tests/conform/corpus.h"

// ---- elements ----

static uint32_t dt_bits(uint32_t dt)
{
	switch (dt) {
	case GENAI_DT_U2:
	case GENAI_DT_I2:
		return 2;
	case GENAI_DT_U4:
	case GENAI_DT_I4:
	case GENAI_DT_F4E2M1:
		return 4;
	case GENAI_DT_U8:
	case GENAI_DT_I8:
	case GENAI_DT_BOOL:
	case GENAI_DT_F8E4M3FN:
	case GENAI_DT_F8E4M3FNUZ:
	case GENAI_DT_F8E5M2:
	case GENAI_DT_F8E5M2FNUZ:
	case GENAI_DT_F8E8M0:
		return 8;
	case GENAI_DT_F16:
	case GENAI_DT_BF16:
	case GENAI_DT_I16:
	case GENAI_DT_U16:
		return 16;
	case GENAI_DT_I64:
	case GENAI_DT_U64:
	case GENAI_DT_F64:
		return 64;
	default:
		return 32;
	}
}

uint64_t op_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < rank; d++)
		n *= (uint64_t)dims[d];
	return (n * dt_bits(dtype) + 7) / 8;
}

static float half_to_float(uint16_t h)
{
	int e = h >> 10 & 31;
	float f = e == 31 ? (h & 1023 ? NAN : INFINITY)
		  : e	  ? ldexpf((float)((h & 1023) | 1024), e - 25)
			  : ldexpf((float)(h & 1023), -24);

	return h & 0x8000 ? -f : f;
}

static uint16_t float_to_half(float f)
{
	uint16_t sign = signbit(f) ? 0x8000 : 0;
	float a = fabsf(f);
	int e;

	if (a != a)
		return 0x7e00;
	if (a >= 65520.f)
		return sign | 0x7c00;
	if (a < 6.103515625e-05f)
		return sign | (uint16_t)lrintf(ldexpf(a, 24));
	frexpf(a, &e);
	// 11 bits; a carry into the exponent comes out right by itself
	return sign | (uint16_t)((uint32_t)lrintf(ldexpf(a, 11 - e)) - 1024 +
				 ((uint32_t)(e + 14) << 10));
}

float op_load(uint32_t dtype, const void *p, uint64_t i)
{
	uint32_t u;
	float f;

	switch (dtype) {
	case GENAI_DT_F16:
		return half_to_float(((const uint16_t *)p)[i]);
	case GENAI_DT_BF16:
		u = (uint32_t)((const uint16_t *)p)[i] << 16;
		memcpy(&f, &u, 4);
		return f;
	case GENAI_DT_I64:
		return (float)((const int64_t *)p)[i];
	case GENAI_DT_I32:
		return (float)((const int32_t *)p)[i];
	case GENAI_DT_U8:
	case GENAI_DT_BOOL:
		return ((const uint8_t *)p)[i];
	default:
		return ((const float *)p)[i];
	}
}

void op_store(uint32_t dtype, void *p, uint64_t i, float v)
{
	uint32_t u;

	switch (dtype) {
	case GENAI_DT_F16:
		((uint16_t *)p)[i] = float_to_half(v);
		break;
	case GENAI_DT_BF16:
		memcpy(&u, &v, 4);
		u += 0x7fff + (u >> 16 & 1);
		((uint16_t *)p)[i] = (uint16_t)(u >> 16);
		break;
	case GENAI_DT_I64:
		((int64_t *)p)[i] = (int64_t)v;
		break;
	case GENAI_DT_I32:
		((int32_t *)p)[i] = (int32_t)v;
		break;
	case GENAI_DT_U8:
	case GENAI_DT_BOOL:
		((uint8_t *)p)[i] = (uint8_t)v;
		break;
	default:
		((float *)p)[i] = v;
	}
}

// ---- graphs ----

void op_graph_init(struct op_graph *g)
{
	memset(g, 0, sizeof(*g));
	g->g = (struct genai_graph){
		.size = sizeof(g->g),
		.file_stride = sizeof(struct genai_file),
		.tensor_stride = sizeof(struct genai_tensor),
		.value_stride = sizeof(struct genai_value),
		.node_stride = sizeof(struct genai_node),
		.name = "test",
		.files = g->files,
		.tensors = g->tensors,
		.values = g->values,
		.nodes = g->nodes,
		.inputs = g->inputs,
		.outputs = g->outputs,
	};
}

static bool node_listed(const struct genai_node *n,
			const struct genai_exec_caps *caps)
{
	for (uint32_t i = 0; i < caps->n_ops; i++) {
		const struct genai_exec_op *o =
			(const void *)((const char *)caps->ops +
				       (size_t)i * caps->op_stride);

		if (!strcmp(o->op, n->op) && !strcmp(o->domain, n->domain) &&
		    n->opset >= o->since)
			return true;
	}
	return false;
}

bool op_listed(const struct op_graph *g, const struct genai_exec_caps *caps)
{
	for (uint32_t i = 0; i < g->g.n_nodes; i++)
		if (!node_listed(&g->nodes[i], caps))
			return false;
	return true;
}

uint32_t op_value(struct op_graph *g)
{
	static const char *const names[OP_VALUES] = {
		"v0", "v1", "v2", "v3", "v4", "v5", "v6", "v7", "v8", "v9"};
	uint32_t v = g->g.n_values++;

	g->values[v] = (struct genai_value){
		.size = sizeof(struct genai_value),
		.name = names[v] ? names[v] : "v",
		.rank = GENAI_NONE,
		.tensor = GENAI_NONE,
		.producer = GENAI_NONE,
	};
	g->over[v] = GENAI_NONE;
	return v;
}

static void set_view(struct op_graph *g, uint32_t v, uint32_t dtype,
		     uint32_t rank, const int64_t *dims, void *data)
{
	struct genai_view *w = &g->views[v];
	int64_t stride = 1;

	w->size = sizeof(*w);
	w->dtype = dtype;
	w->rank = rank;
	for (uint32_t d = rank; d-- > 0;) {
		w->dims[d] = dims[d];
		w->strides[d] = stride;
		stride *= dims[d] ? dims[d] : 1;
	}
	g->host[v] = data;
	g->values[v].dtype = dtype;
	g->values[v].rank = rank;
	memcpy(g->values[v].dims, dims, rank * sizeof(*dims));
}

void op_over(struct op_graph *g, uint32_t out, uint32_t in)
{
	g->over[out] = in;
}

uint32_t op_input(struct op_graph *g, uint32_t dtype, uint32_t rank,
		  const int64_t *dims, void *data)
{
	uint32_t v = op_value(g);

	set_view(g, v, dtype, rank, dims, data);
	g->values[v].flags = GENAI_VALUE_INPUT;
	g->inputs[g->g.n_inputs++] = v;
	return v;
}

uint32_t op_output(struct op_graph *g, uint32_t dtype, uint32_t rank,
		   const int64_t *dims, void *data)
{
	uint32_t v = op_value(g);

	set_view(g, v, dtype, rank, dims, data);
	g->values[v].flags = GENAI_VALUE_OUTPUT;
	g->outputs[g->g.n_outputs++] = v;
	return v;
}

uint32_t op_const(struct op_graph *g, uint32_t dtype, uint32_t rank,
		  const int64_t *dims, const void *data)
{
	uint32_t v = op_value(g), t = g->g.n_tensors++;

	g->files[g->g.n_files] =
		(struct genai_file){sizeof(struct genai_file), 0, "", data,
				    op_bytes(dtype, rank, dims)};
	g->tensors[t] = (struct genai_tensor){
		.size = sizeof(struct genai_tensor),
		.dtype = dtype,
		.rank = rank,
		.file = g->g.n_files++,
		.bytes = op_bytes(dtype, rank, dims),
	};
	memcpy(g->tensors[t].dims, dims, rank * sizeof(*dims));
	g->values[v].tensor = t;
	g->values[v].dtype = dtype;
	g->values[v].rank = rank;
	memcpy(g->values[v].dims, dims, rank * sizeof(*dims));
	return v;
}

struct genai_node *op_node(struct op_graph *g, const char *domain,
			   const char *op, const uint32_t *ins)
{
	uint32_t k = g->g.n_nodes++;
	struct genai_node *n = &g->nodes[k];

	*n = (struct genai_node){
		.size = sizeof(*n),
		.name = "node",
		.op = op,
		.domain = domain,
		.opset = *domain ? 1 : 21,
		.inputs = g->ins[k],
		.outputs = g->outs[k],
		.attrs = g->attrs[k],
		.attr_stride = sizeof(struct genai_attr),
	};
	while (ins[n->n_inputs] != OP_END) {
		g->ins[k][n->n_inputs] = ins[n->n_inputs];
		n->n_inputs++;
	}
	return n;
}

void op_node_out(struct op_graph *g, const uint32_t *outs)
{
	uint32_t k = g->g.n_nodes - 1;
	struct genai_node *n = &g->nodes[k];

	while (outs[n->n_outputs] != OP_END) {
		uint32_t v = outs[n->n_outputs];

		g->outs[k][n->n_outputs++] = v;
		if (v != GENAI_NONE)
			g->values[v].producer = k;
	}
}

static struct genai_attr *attr(struct op_graph *g, const char *name,
			       uint32_t kind)
{
	struct genai_node *n = &g->nodes[g->g.n_nodes - 1];
	struct genai_attr *a = &g->attrs[g->g.n_nodes - 1][n->n_attrs++];

	*a = (struct genai_attr){.size = sizeof(*a),
				 .kind = kind,
				 .name = name,
				 .tensor = GENAI_NONE};
	return a;
}

void op_attr_int(struct op_graph *g, const char *name, int64_t v)
{
	attr(g, name, GENAI_ATTR_INT)->i = v;
}

void op_attr_float(struct op_graph *g, const char *name, double v)
{
	attr(g, name, GENAI_ATTR_FLOAT)->f = v;
}

void op_attr_string(struct op_graph *g, const char *name, const char *v)
{
	attr(g, name, GENAI_ATTR_STRING)->s = v;
}

void op_attr_ints(struct op_graph *g, const char *name, const int64_t *v,
		  uint32_t n)
{
	struct genai_attr *a = attr(g, name, GENAI_ATTR_INTS);

	a->ints = v;
	a->count = n;
}
