// corpus_chunks.c - a layer of a model, fed in chunks of up to 40 rows: norm,
// product, attention with rotary embedding over a cache, product, residual.
// However the rows are cut into steps, they come out the same: to the bit where
// an executor says so, else as rounding lets them.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/conform/corpus.h"

enum { HEADS = 4, KV = 2, SIZE = 16, WIDTH = HEADS * SIZE, ROWS = 40 };
enum { PACKED = (HEADS + 2 * KV) * SIZE, CACHE = 48, BLOCK = 32 };

// What is stored; elements of the layer's dtype but the quants.
struct layer {
	uint32_t dtype;
	void *x, *gamma, *qkv, *qkv_scales, *out, *out_scales, *cosc, *sinc;
};

static uint32_t product(struct op_graph *g, const struct layer *l, uint32_t x,
			int64_t n, const void *q, const void *scales)
{
	const int64_t blocks = WIDTH / BLOCK;
	uint32_t in[4], y;

	in[0] = x;
	in[1] = op_const(g, GENAI_DT_U8, 3, (int64_t[]){n, blocks, BLOCK / 2},
			 q);
	in[2] = op_const(g, l->dtype, 2, (int64_t[]){n, blocks}, scales);
	in[3] = OP_END;
	op_node(g, "com.microsoft", "MatMulNBits", in);
	op_attr_int(g, "K", WIDTH);
	op_attr_int(g, "N", n);
	op_attr_int(g, "bits", 4);
	op_attr_int(g, "block_size", BLOCK);
	y = op_value(g);
	op_node_out(g, (uint32_t[]){y, OP_END});
	return y;
}

// Inputs are set for n rows from row t on; the caches are read and written.
static void build(struct op_graph *g, const struct layer *l, int64_t t,
		  int64_t n, int32_t *last, int32_t *total, void *keys,
		  void *values, void *y)
{
	const int64_t row[] = {1, n, WIDTH}, one[] = {1};
	const int64_t cache[] = {1, KV, CACHE, SIZE};
	const int64_t tables[] = {CACHE, SIZE / 2};
	uint64_t size = l->dtype == GENAI_DT_F32 ? 4 : 2;
	uint32_t x, gamma, h, in[10], outs[4], a;

	op_graph_init(g);
	x = op_input(g, l->dtype, 3, row,
		     (char *)l->x + (uint64_t)(t * WIDTH) * size);
	gamma = op_const(g, l->dtype, 1, (int64_t[]){WIDTH}, l->gamma);
	op_node(g, "", "SimplifiedLayerNormalization",
		(uint32_t[]){x, gamma, OP_END});
	op_attr_float(g, "epsilon", 1e-5);
	h = op_value(g);
	op_node_out(g, (uint32_t[]){h, OP_END});
	in[0] = product(g, l, h, PACKED, l->qkv, l->qkv_scales);
	in[1] = in[2] = GENAI_NONE;
	in[3] = op_input(g, l->dtype, 4, cache, keys);
	in[4] = op_input(g, l->dtype, 4, cache, values);
	in[5] = op_input(g, GENAI_DT_I32, 1, one, last);
	in[6] = op_input(g, GENAI_DT_I32, 0, one, total);
	in[7] = op_const(g, l->dtype, 2, tables, l->cosc);
	in[8] = op_const(g, l->dtype, 2, tables, l->sinc);
	in[9] = OP_END;
	op_node(g, "com.microsoft", "GroupQueryAttention", in);
	op_attr_int(g, "num_heads", HEADS);
	op_attr_int(g, "kv_num_heads", KV);
	op_attr_int(g, "do_rotary", 1);
	outs[0] = a = op_value(g);
	outs[1] = op_output(g, l->dtype, 4, cache, keys);
	outs[2] = op_output(g, l->dtype, 4, cache, values);
	outs[3] = OP_END;
	op_node_out(g, outs);
	op_over(g, outs[1], in[3]);
	op_over(g, outs[2], in[4]);
	h = product(g, l, a, WIDTH, l->out, l->out_scales);
	op_node(g, "", "Add", (uint32_t[]){x, h, OP_END});
	op_node_out(g, (uint32_t[]){op_output(g, l->dtype, 3, row, y), OP_END});
}

// All rows, at most so many a step.
static int32_t feed(struct check *c, const struct layer *l, int64_t most,
		    void *y, struct genai_error *err)
{
	uint64_t size = l->dtype == GENAI_DT_F32 ? 4 : 2;
	static struct op_graph g;
	void *keys = calloc(KV * CACHE * SIZE, 4);
	void *values = calloc(KV * CACHE * SIZE, 4);
	int32_t rc = 0;

	for (int64_t t = 0, n; t < ROWS && !rc; t += n) {
		struct op_how how = {.cut_rows = 24};
		int32_t last, total;

		n = ROWS - t < most ? ROWS - t : most;
		total = (int32_t)(t + n);
		last = total - 1;
		build(&g, l, t, n, &last, &total, keys, values,
		      (char *)y + (uint64_t)(t * WIDTH) * size);
		rc = c->run(c, &g, &how, err);
	}
	free(keys);
	free(values);
	return rc;
}

static void compare(struct check *c, uint32_t dtype, const void *want,
		    const void *got)
{
	double w[ROWS * WIDTH], tol[ROWS * WIDTH], most = 0;

	for (uint64_t i = 0; i < ROWS * WIDTH; i++) {
		w[i] = op_load(dtype, want, i);
		most = fmax(most, fabs(w[i]));
	}
	// each of a handful of roundings moves a row by a unit of its largest
	// value; sums of 64 in fp32 by less than 64 of its
	for (uint64_t i = 0; i < ROWS * WIDTH; i++)
		tol[i] = most * (8 * unit_of(dtype) + 64 * 0x1p-24);
	check_close(c, dtype, got, w, tol, ROWS * WIDTH);
}

static void chunks_case(struct check *c, uint32_t dtype)
{
	static const int64_t most[] = {40, 33, 20, 17, 16, 7, 5, 4, 3, 2};
	struct genai_error err = GENAI_ERROR_INIT;
	struct layer l = {
		.dtype = dtype,
		.x = rnd_tensor(dtype, ROWS * WIDTH, -2, 2),
		.gamma = rnd_tensor(dtype, WIDTH, .5f, 1.5f),
		.qkv = rnd_bytes(PACKED * WIDTH / 2),
		.qkv_scales =
			rnd_tensor(dtype, PACKED * WIDTH / BLOCK, .01f, .04f),
		.out = rnd_bytes(WIDTH * WIDTH / 2),
		.out_scales =
			rnd_tensor(dtype, WIDTH * WIDTH / BLOCK, .01f, .04f),
		.cosc = rnd_tensor(dtype, CACHE * SIZE / 2, -1, 1),
		.sinc = rnd_tensor(dtype, CACHE * SIZE / 2, -1, 1),
	};
	void *want = calloc(ROWS * WIDTH, 4), *got = calloc(ROWS * WIDTH, 4);
	uint64_t bytes = ROWS * WIDTH * (dtype == GENAI_DT_F32 ? 4 : 2);
	int32_t rc = feed(c, &l, 1, want, &err);
	bool refused = c->refused;

	for (size_t i = 0; i < sizeof(most) / sizeof(most[0]); i++) {
		if (!check_begin(c, "chunks dtype %u of %lld rows", dtype,
				 (long long)most[i]))
			continue;
		if (!rc)
			rc = feed(c, &l, most[i], got, &err);
		refused |= c->refused;
		c->refused = refused;
		if (rc)
			check_result(c, false, "%s", err.text);
		else if (c->rows_exact)
			check_same(c, want, got, bytes);
		else
			compare(c, dtype, want, got);
	}
	free(l.x);
	free(l.gamma);
	free(l.qkv);
	free(l.qkv_scales);
	free(l.out);
	free(l.out_scales);
	free(l.cosc);
	free(l.sinc);
	free(want);
	free(got);
}

void corpus_chunks(struct check *c)
{
	static const uint32_t floats[] = {GENAI_DT_F32, GENAI_DT_F16,
					  GENAI_DT_BF16};

	for (int d = 0; d < 3; d++)
		chunks_case(c, floats[d]);
}
