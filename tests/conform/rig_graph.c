// rig_graph.c - graphs built by hand.
#include "tests/conform/rig.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void rig_graph_begin(struct rig_graph *g)
{
	memset(g, 0, sizeof(*g));
	g->b = genai_builder_open("conform");
}

uint32_t rig_input(struct rig_graph *g, const char *name, uint32_t dtype,
		   uint32_t rank, const int64_t *dims)
{
	uint32_t v = genai_builder_value(g->b, name, dtype, rank, dims, NULL);

	genai_builder_input(g->b, v);
	return v;
}

uint32_t rig_value(struct rig_graph *g, const char *name)
{
	return genai_builder_value(g->b, name, GENAI_DT_NONE, GENAI_NONE, NULL,
				   NULL);
}

uint32_t rig_float_value(struct rig_graph *g, const char *name)
{
	return genai_builder_value(g->b, name, GENAI_DT_F32, GENAI_NONE, NULL,
				   NULL);
}

uint32_t rig_weight(struct rig_graph *g, const char *name, uint32_t dtype,
		    uint32_t rank, const int64_t *dims, const void *data)
{
	uint64_t bytes = 0, room;
	uint32_t file;
	void *copy;

	ck_assert_int_eq(genai_tensor_bytes(dtype, rank, dims, &bytes), 0);
	room = (bytes + 4095) / 4096 * 4096;
	copy = aligned_alloc(4096, room);
	ck_assert_ptr_nonnull(copy);
	ck_assert_uint_lt(g->n_blocks, RIG_MAX_TENSORS);
	memcpy(copy, data, bytes);
	g->blocks[g->n_blocks++] = copy;
	file = genai_builder_file(g->b, "", copy, bytes);
	return genai_builder_stored(
		g->b, name,
		genai_builder_tensor(g->b, file, 0, bytes, dtype, rank, dims));
}

uint32_t rig_node(struct rig_graph *g, const char *op, const char *domain,
		  const char *name, const uint32_t *in, uint32_t n_in,
		  uint32_t out)
{
	return genai_builder_node(g->b, op, domain, *domain ? 1 : 14, name, in,
				  n_in, &out, 1);
}

struct genai_graph *rig_graph_end(struct rig_graph *g, uint32_t output)
{
	struct genai_graph *graph = NULL;

	genai_builder_output(g->b, output);
	CF_OK(genai_builder_finish(g->b, &graph, &cf_err));
	g->b = NULL;
	return graph;
}

void rig_graph_free(struct rig_graph *g, struct genai_graph *graph)
{
	genai_graph_free(graph);
	for (uint32_t i = 0; i < g->n_blocks; i++)
		free(g->blocks[i]);
	memset(g, 0, sizeof(*g));
}

// ---- the small language model ----

static uint32_t lm_matmul(struct rig_graph *g, const char *name, uint32_t x,
			  int64_t n, uint64_t seed)
{
	const int64_t k = LM_WIDTH, blocks = k / 32;
	unsigned char *q = malloc((size_t)(n * k / 2));
	float *scales = malloc((size_t)(n * blocks) * sizeof(*scales));
	char text[64];
	float bias[LM_WIDTH];
	uint32_t in[6], out, node;

	cf_pattern(q, (uint64_t)(n * k / 2), seed);
	for (int64_t i = 0; i < n * blocks; i++)
		scales[i] = (float)(1 + cf_below(&seed, 16)) / 1024;
	in[0] = x;
	snprintf(text, sizeof(text), "%s_q", name);
	in[1] = rig_weight(g, text, GENAI_DT_U8, 3, (int64_t[]){n, blocks, 16},
			   q);
	snprintf(text, sizeof(text), "%s_scales", name);
	in[2] = rig_weight(g, text, GENAI_DT_F32, 2, (int64_t[]){n, blocks},
			   scales);
	// not cut by rows: held while the others go by in tiles
	for (int64_t i = 0; i < n; i++)
		bias[i] = (float)cf_below(&seed, 256) / 256;
	snprintf(text, sizeof(text), "%s_bias", name);
	in[3] = in[4] = GENAI_NONE;
	in[5] = rig_weight(g, text, GENAI_DT_F32, 1, (int64_t[]){n}, bias);
	snprintf(text, sizeof(text), "%s_out", name);
	out = rig_float_value(g, text);
	node = rig_node(g, "MatMulNBits", "com.microsoft", name, in, 6, out);
	genai_builder_attr_int(g->b, node, "K", k);
	genai_builder_attr_int(g->b, node, "N", n);
	genai_builder_attr_int(g->b, node, "bits", 4);
	genai_builder_attr_int(g->b, node, "block_size", 32);
	free(q);
	free(scales);
	return out;
}

static uint32_t lm_layer(struct rig_graph *g, uint32_t x, int layer)
{
	float scale[LM_WIDTH];
	char text[48];
	uint32_t norm, out, node, w;
	uint64_t seed = 50 + (uint64_t)layer;

	for (int i = 0; i < LM_WIDTH; i++)
		scale[i] = (float)(cf_below(&seed, 64) + 32) / 64;
	snprintf(text, sizeof(text), "scale_%d", layer);
	w = rig_weight(g, text, GENAI_DT_F32, 1, (int64_t[]){LM_WIDTH}, scale);
	snprintf(text, sizeof(text), "normed_%d", layer);
	norm = rig_float_value(g, text);
	snprintf(text, sizeof(text), "norm_%d", layer);
	node = rig_node(g, "SimplifiedLayerNormalization", "", text,
			(uint32_t[]){x, w}, 2, norm);
	genai_builder_attr_int(g->b, node, "axis", -1);
	genai_builder_attr_float(g->b, node, "epsilon", 1e-5);
	snprintf(text, sizeof(text), "proj_%d", layer);
	w = lm_matmul(g, text, norm, LM_WIDTH, 900 + (uint64_t)layer);
	snprintf(text, sizeof(text), "x_%d", layer + 1);
	out = rig_float_value(g, text);
	snprintf(text, sizeof(text), "residual_%d", layer);
	rig_node(g, "Add", "", text, (uint32_t[]){x, w}, 2, out);
	return out;
}

struct genai_graph *rig_lm(struct rig_graph *g)
{
	static float table[LM_VOCAB][LM_WIDTH];
	uint64_t seed = 5;
	uint32_t ids, x, w;

	for (int i = 0; i < LM_VOCAB; i++)
		for (int k = 0; k < LM_WIDTH; k++)
			table[i][k] = (float)cf_below(&seed, 256) / 128 - 1;
	rig_graph_begin(g);
	ids = rig_input(g, "ids", GENAI_DT_I64, 2, (int64_t[]){1, -1});
	w = rig_weight(g, "table", GENAI_DT_F32, 2,
		       (int64_t[]){LM_VOCAB, LM_WIDTH}, table);
	x = rig_float_value(g, "x_0");
	rig_node(g, "Gather", "", "embed", (uint32_t[]){w, ids}, 2, x);
	for (int i = 0; i < LM_LAYERS; i++)
		x = lm_layer(g, x, i);
	x = lm_matmul(g, "head", x, LM_VOCAB, 77);
	return rig_graph_end(g, x);
}

void rig_lm_view(struct genai_view *max_in)
{
	*max_in = rig_view(GENAI_DT_I64, 2, (int64_t[]){1, LM_STEP});
}

void rig_lm_run(struct rig *g, const int64_t *ids, int64_t n, float *out)
{
	static _Thread_local float all[LM_STEP * LM_VOCAB];

	rig_in(g, 0, ids, 2, (int64_t[]){1, n});
	rig_run(g, all, (uint64_t)n * LM_VOCAB * sizeof(float));
	memcpy(out, all + (n - 1) * LM_VOCAB, LM_VOCAB * sizeof(float));
}
