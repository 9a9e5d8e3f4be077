// onnx.c - ONNX messages: nodes, attributes, initialisers, the model around
// them.
#include "core/modelgen/gen.h"
#include "core/base/half.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

// Field numbers of onnx.proto.
enum {
	NODE_INPUT = 1,
	NODE_OUTPUT = 2,
	NODE_NAME = 3,
	NODE_OP = 4,
	NODE_ATTRIBUTE = 5,
	NODE_DOMAIN = 7,
	ATTR_NAME = 1,
	ATTR_F = 2,
	ATTR_I = 3,
	ATTR_S = 4,
	ATTR_T = 5,
	ATTR_INTS = 8,
	ATTR_TYPE = 20,
	TENSOR_DIMS = 1,
	TENSOR_TYPE = 2,
	TENSOR_NAME = 8,
	TENSOR_RAW = 9,
	TENSOR_EXTERNAL = 13,
	TENSOR_LOCATION = 14,
	GRAPH_NODE = 1,
	GRAPH_NAME = 2,
	GRAPH_INIT = 5,
	GRAPH_INPUT = 11,
	GRAPH_OUTPUT = 12,
	MODEL_IR = 1,
	MODEL_PRODUCER = 2,
	MODEL_GRAPH = 7,
	MODEL_OPSET = 8,
};
enum {
	TYPE_FLOAT = 1,
	TYPE_INT = 2,
	TYPE_STRING = 3,
	TYPE_TENSOR = 4,
	TYPE_INTS = 7
};

void gen_node(struct gen *g, const char *op, const char *domain,
	      const char *name)
{
	g->node = genai_wire_begin(&g->nodes, GRAPH_NODE);
	genai_wire_string(&g->nodes, NODE_NAME, name);
	genai_wire_string(&g->nodes, NODE_OP, op);
	if (domain[0])
		genai_wire_string(&g->nodes, NODE_DOMAIN, domain);
}

void gen_in(struct gen *g, const char *name)
{
	genai_wire_string(&g->nodes, NODE_INPUT, name);
}

void gen_out(struct gen *g, const char *name)
{
	genai_wire_string(&g->nodes, NODE_OUTPUT, name);
}

void gen_attr_int(struct gen *g, const char *name, int64_t v)
{
	size_t at = genai_wire_begin(&g->nodes, NODE_ATTRIBUTE);

	genai_wire_string(&g->nodes, ATTR_NAME, name);
	genai_wire_int(&g->nodes, ATTR_I, v);
	genai_wire_int(&g->nodes, ATTR_TYPE, TYPE_INT);
	genai_wire_end(&g->nodes, at);
}

void gen_attr_float(struct gen *g, const char *name, float v)
{
	size_t at = genai_wire_begin(&g->nodes, NODE_ATTRIBUTE);

	genai_wire_string(&g->nodes, ATTR_NAME, name);
	genai_wire_float(&g->nodes, ATTR_F, v);
	genai_wire_int(&g->nodes, ATTR_TYPE, TYPE_FLOAT);
	genai_wire_end(&g->nodes, at);
}

void gen_attr_string(struct gen *g, const char *name, const char *v)
{
	size_t at = genai_wire_begin(&g->nodes, NODE_ATTRIBUTE);

	genai_wire_string(&g->nodes, ATTR_NAME, name);
	genai_wire_string(&g->nodes, ATTR_S, v);
	genai_wire_int(&g->nodes, ATTR_TYPE, TYPE_STRING);
	genai_wire_end(&g->nodes, at);
}

void gen_attr_ints(struct gen *g, const char *name, const int64_t *v,
		   uint32_t n)
{
	size_t at = genai_wire_begin(&g->nodes, NODE_ATTRIBUTE);

	genai_wire_string(&g->nodes, ATTR_NAME, name);
	for (uint32_t i = 0; i < n; i++)
		genai_wire_int(&g->nodes, ATTR_INTS, v[i]);
	genai_wire_int(&g->nodes, ATTR_TYPE, TYPE_INTS);
	genai_wire_end(&g->nodes, at);
}

void gen_end(struct gen *g)
{
	genai_wire_end(&g->nodes, g->node);
}

bool gen_first(struct gen *g, const char *name)
{
	uint32_t h = 2166136261u;

	for (const char *p = name; *p; p++)
		h = (h ^ (uint8_t)*p) * 16777619u;
	for (uint32_t i = 0; i < g->n_shared; i++)
		if (g->shared[i] == h)
			return false;
	if (g->n_shared == sizeof(g->shared) / sizeof(g->shared[0])) {
		g->failed = true;
		return false;
	}
	g->shared[g->n_shared++] = h;
	return true;
}

// Attribute "value", a tensor; n 0: a scalar.
static void attr_value(struct gen *g, const char *name, uint32_t dtype,
		       uint32_t n, const uint8_t *raw, size_t bytes)
{
	size_t at = genai_wire_begin(&g->nodes, NODE_ATTRIBUTE), tensor;

	genai_wire_string(&g->nodes, ATTR_NAME, "value");
	tensor = genai_wire_begin(&g->nodes, ATTR_T);
	if (n)
		genai_wire_int(&g->nodes, TENSOR_DIMS, n);
	genai_wire_int(&g->nodes, TENSOR_TYPE, dtype);
	genai_wire_string(&g->nodes, TENSOR_NAME, name);
	genai_wire_bytes(&g->nodes, TENSOR_RAW, raw, bytes);
	genai_wire_end(&g->nodes, tensor);
	genai_wire_int(&g->nodes, ATTR_TYPE, TYPE_TENSOR);
	genai_wire_end(&g->nodes, at);
}

void gen_attr_fill(struct gen *g, float v)
{
	uint32_t bits = genai_float_bits(v);
	uint8_t raw[4];

	for (uint32_t i = 0; i < 4; i++)
		raw[i] = (uint8_t)(bits >> 8 * i);
	attr_value(g, "value", GENAI_DT_F32, 1, raw, 4);
}

// n 0: a scalar.
static void constant(struct gen *g, const char *node, const char *name,
		     uint32_t dtype, uint32_t n, const uint8_t *raw,
		     size_t bytes)
{
	gen_node(g, "Constant", "", node);
	gen_out(g, name);
	attr_value(g, name, dtype, n, raw, bytes);
	gen_end(g);
}

const char *gen_const(struct gen *g, bool scalar, const int64_t *v, uint32_t n,
		      char *out_name)
{
	char list[GEN_NAME - 64], node[GEN_NAME];
	uint8_t raw[8 * 8];
	size_t len = 0;

	for (uint32_t i = 0; i < n; i++)
		len += (size_t)snprintf(list + len, sizeof(list) - len,
					i ? ", %lld" : "%lld", (long long)v[i]);
	snprintf(node, sizeof(node),
		 scalar ? "/model/constant_nodes/INT64/%s"
			: "/model/constant_nodes/INT64/[%s]",
		 list);
	snprintf(out_name, GEN_NAME,
		 scalar ? "/model/constants/INT64/%s"
			: "/model/constants/INT64/[%s]",
		 list);
	if (!gen_first(g, out_name))
		return out_name;
	for (uint32_t i = 0; i < 8 * n && i < sizeof(raw); i++)
		raw[i] = (uint8_t)((uint64_t)v[i / 8] >> 8 * (i % 8));
	constant(g, node, out_name, GENAI_DT_I64, scalar ? 0 : n, raw,
		 8 * (size_t)n);
	return out_name;
}

static const char *const_real(struct gen *g, uint32_t dtype, float v,
			      char *out_name)
{
	bool half = dtype == GENAI_DT_F16;
	const char *type = half ? "FLOAT16" : "FLOAT";
	char node[GEN_NAME];
	uint8_t raw[4];
	uint32_t bits;

	snprintf(node, sizeof(node), "/model/constant_nodes/%s/%.9g", type,
		 (double)v);
	snprintf(out_name, GEN_NAME, "/model/constants/%s/%.9g", type,
		 (double)v);
	if (!gen_first(g, out_name))
		return out_name;
	bits = half ? genai_half_from_float(v) : genai_float_bits(v);
	for (uint32_t i = 0; i < 4; i++)
		raw[i] = (uint8_t)(bits >> 8 * i);
	constant(g, node, out_name, dtype, 0, raw, half ? 2 : 4);
	return out_name;
}

const char *gen_const_float(struct gen *g, float v, char *out_name)
{
	return const_real(g, g->conf->io_dtype, v, out_name);
}

const char *gen_const_wide(struct gen *g, float v, char *out_name)
{
	return const_real(g, GENAI_DT_F32, v, out_name);
}

static void external(struct gen *g, const char *key, const char *value)
{
	size_t at = genai_wire_begin(&g->inits, TENSOR_EXTERNAL);

	genai_wire_string(&g->inits, 1, key);
	genai_wire_string(&g->inits, 2, value);
	genai_wire_end(&g->inits, at);
}

uint64_t gen_init(struct gen *g, const char *name, uint32_t dtype,
		  uint32_t rank, const uint64_t *dims)
{
	uint64_t bytes = dtype == GENAI_DT_F32	? 4
			 : dtype == GENAI_DT_U8 ? 1
						: 2;
	uint64_t offset = g->data_bytes, end;
	char number[24];
	size_t at = genai_wire_begin(&g->inits, GRAPH_INIT);

	for (uint32_t i = 0; i < rank; i++) {
		if (__builtin_mul_overflow(bytes, dims[i], &bytes) ||
		    bytes > (uint64_t)1 << 46)
			g->failed = true;
		genai_wire_int(&g->inits, TENSOR_DIMS, (int64_t)dims[i]);
	}
	if (g->failed)
		bytes = 0;
	genai_wire_int(&g->inits, TENSOR_TYPE, dtype);
	genai_wire_string(&g->inits, TENSOR_NAME, name);
	external(g, "location", GEN_DATA_FILE);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)offset);
	external(g, "offset", number);
	snprintf(number, sizeof(number), "%llu", (unsigned long long)bytes);
	external(g, "length", number);
	genai_wire_int(&g->inits, TENSOR_LOCATION, 1);
	genai_wire_end(&g->inits, at);
	if (__builtin_add_overflow(offset, bytes + GEN_ALIGN - 1, &end))
		g->failed = true;
	else
		g->data_bytes = end & ~(uint64_t)(GEN_ALIGN - 1);
	return offset;
}

struct gen_job *gen_job_add(struct gen *g, enum gen_kind kind)
{
	struct gen_job *job = &g->scrap;

	if (g->n_jobs == g->cap_jobs) {
		uint32_t cap = g->cap_jobs ? g->cap_jobs * 2 : 64;
		void *p = realloc(g->jobs, cap * sizeof(*g->jobs));

		if (!p) {
			g->failed = true;
			return job;
		}
		g->jobs = p;
		g->cap_jobs = cap;
	}
	job = &g->jobs[g->n_jobs++];
	memset(job, 0, sizeof(*job));
	job->kind = kind;
	return job;
}

// A dimension is a symbol, or a number where the symbol is NULL.
static void value_info(struct genai_wire *w, uint32_t field, const char *name,
		       uint32_t dtype, uint32_t rank,
		       const char *const *symbols, const int64_t *dims)
{
	size_t info = genai_wire_begin(w, field), type, tensor, shape;

	genai_wire_string(w, 1, name);
	type = genai_wire_begin(w, 2);
	tensor = genai_wire_begin(w, 1);
	genai_wire_int(w, 1, dtype);
	shape = genai_wire_begin(w, 2);
	for (uint32_t i = 0; i < rank; i++) {
		size_t dim = genai_wire_begin(w, 1);

		if (symbols[i])
			genai_wire_string(w, 2, symbols[i]);
		else
			genai_wire_int(w, 1, dims[i]);
		genai_wire_end(w, dim);
	}
	genai_wire_end(w, shape);
	genai_wire_end(w, tensor);
	genai_wire_end(w, type);
	genai_wire_end(w, info);
}

// Keys of all layers, then values of all layers.
static void caches(struct gen *g, struct genai_wire *w, uint32_t field,
		   const char *prefix, const char *length)
{
	const char *symbols[4] = {"batch_size", NULL, length, NULL};
	int64_t dims[4] = {0, g->conf->kv_heads, 0, g->conf->head_size};
	char name[64];

	for (uint32_t i = 0; i < 2 * g->conf->layers; i++) {
		if (gen_layer_is(g->conf, i % g->conf->layers, GEN_NO_CACHE))
			continue;
		snprintf(name, sizeof(name), "%s.%u.%s", prefix,
			 i % g->conf->layers,
			 i < g->conf->layers ? "key" : "value");
		value_info(w, field, name, g->conf->io_dtype, 4, symbols, dims);
	}
}

static void conv_states(struct gen *g, struct genai_wire *w, uint32_t field,
			const char *prefix)
{
	static const char *const symbols[3] = {"batch_size", NULL, NULL};
	int64_t dims[3] = {0, 0, (int64_t)g->conf->conv_taps - 1};
	char name[64];

	for (uint32_t i = 0; i < g->conf->layers; i++) {
		if (!gen_layer_is(g->conf, i, GEN_NO_CACHE))
			continue;
		dims[1] = gen_conv_width(g->conf, i);
		snprintf(name, sizeof(name), "%s.%u.conv", prefix, i);
		value_info(w, field, name, g->conf->io_dtype, 3, symbols, dims);
	}
}

static void matrices(struct gen *g, struct genai_wire *w, uint32_t field,
		     const char *prefix)
{
	static const char *const symbols[4] = {"batch_size", NULL, NULL, NULL};
	const struct genai_genconf *c = g->conf;
	int64_t dims[4] = {0, c->delta_v_heads, c->delta_size, c->delta_size};
	char name[64];

	for (uint32_t i = 0; i < c->layers; i++) {
		if (!gen_layer_is(c, i, GENAI_LAYER_DELTA))
			continue;
		snprintf(name, sizeof(name), "%s.%u.recurrent", prefix, i);
		value_info(w, field, name, c->io_dtype, 4, symbols, dims);
	}
}

static void opset(struct genai_wire *w, const char *domain, int64_t version)
{
	size_t at = genai_wire_begin(w, MODEL_OPSET);

	genai_wire_string(w, 1, domain);
	genai_wire_int(w, 2, version);
	genai_wire_end(w, at);
}

void gen_model(struct gen *g, struct genai_wire *w)
{
	static const char *const ids[] = {"batch_size", "sequence_length"};
	static const char *const mask[] = {"batch_size",
					   "total_sequence_length"};
	static const char *const three[] = {NULL, "batch_size",
					    "sequence_length"};
	static const char *const logits[] = {"batch_size", "sequence_length",
					     NULL};
	int64_t dims[3] = {0, 0, g->conf->vocab};
	size_t at;

	genai_wire_int(w, MODEL_IR, 10);
	genai_wire_string(w, MODEL_PRODUCER, "genai");
	at = genai_wire_begin(w, MODEL_GRAPH);
	genai_wire_raw(w, &g->nodes);
	genai_wire_string(w, GRAPH_NAME, "main_graph");
	genai_wire_raw(w, &g->inits);
	value_info(w, GRAPH_INPUT, "input_ids", GENAI_DT_I64, 2, ids, dims);
	value_info(w, GRAPH_INPUT, "attention_mask", GENAI_DT_I64, 2, mask,
		   dims);
	if (g->conf->mrope[0])
		value_info(w, GRAPH_INPUT, "position_ids", GENAI_DT_I64, 3,
			   three, (int64_t[]){3, 0, 0});
	caches(g, w, GRAPH_INPUT, "past_key_values", "past_sequence_length");
	conv_states(g, w, GRAPH_INPUT, "past");
	matrices(g, w, GRAPH_INPUT, "past");
	value_info(w, GRAPH_OUTPUT, "logits", g->conf->io_dtype, 3, logits,
		   dims);
	caches(g, w, GRAPH_OUTPUT, "present", "total_sequence_length");
	conv_states(g, w, GRAPH_OUTPUT, "present");
	matrices(g, w, GRAPH_OUTPUT, "present");
	genai_wire_end(w, at);
	opset(w, "", 21);
	opset(w, "com.microsoft", 1);
}
