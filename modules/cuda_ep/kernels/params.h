/* params.h - what the host passes to the kernels, one struct per kernel.
 * Owns: the layout of launch parameters.  Addresses are uint64_t, so host C,
 * device C++ and the host twins of the tests read the same bytes. */
#ifndef CEP_PARAMS_H
#define CEP_PARAMS_H

#include <stdint.h>

#define CEP_DIMS 6
#define CEP_POKE_BYTES 3072

/* Where a kernel reports the first value that it refuses. */
struct cep_blame {
	uint64_t record; /* struct cep_fault, pinned host memory */
	uint64_t lock;	 /* uint32_t in device memory: 1 taken */
	uint32_t plan;
	uint32_t node;
};

/* Written once by a kernel, read by barriers. */
struct cep_fault {
	uint32_t set;
	uint32_t kind; /* CEP_FAULT_* */
	uint32_t plan;
	uint32_t node;
	int64_t value;
	int64_t limit;
};
#define CEP_FAULT_INDEX 1u  /* index value outside [-limit, limit) */
#define CEP_FAULT_LENGTH 2u /* total length value outside [S, limit] */
#define CEP_FAULT_ROTARY 3u /* position value outside [0, limit) */
#define CEP_FAULT_NAN 4u    /* element value of a row is NaN */
#define CEP_FAULT_DIV0 5u   /* integer division by zero */
#define CEP_FAULT_ROUTER 6u /* logits of row value: limit 1: NaN, infinity */
#define CEP_FAULT_BLOCK 7u  /* entry of a block table outside [0, limit) */
#define CEP_FAULT_HOST 8u   /* the host did not answer for value ns */
#define CEP_FAULT_SCALE 9u  /* scale value of keys (limit 0), values (1) */

/* Element types inside kernels: the ONNX numbers. */
#define CEP_F32 1u
#define CEP_U8 2u
#define CEP_I8 3u
#define CEP_I32 6u
#define CEP_I64 7u
#define CEP_BOOL 9u
#define CEP_F16 10u
#define CEP_U32 12u
#define CEP_BF16 16u
#define CEP_U4 21u
#define CEP_I4 22u

enum cep_ew_op {
	CEP_EW_COPY,
	/* one operand */
	CEP_EW_NEG,
	CEP_EW_ABS,
	CEP_EW_SQRT,
	CEP_EW_RECIPROCAL,
	CEP_EW_EXP,
	CEP_EW_LOG,
	CEP_EW_SIN,
	CEP_EW_COS,
	CEP_EW_TANH,
	CEP_EW_SIGMOID,
	CEP_EW_RELU,
	CEP_EW_ERF,
	CEP_EW_SOFTPLUS,
	CEP_EW_GELU,	   /* erf */
	CEP_EW_GELU_TANH,  /* tanh form */
	CEP_EW_QUICK_GELU, /* x sigmoid(f[0] x) */
	CEP_EW_NOT,
	CEP_EW_CLIP, /* f[0] to f[1] */
	CEP_EW_SIGN,
	CEP_EW_FLOOR,
	/* two */
	CEP_EW_ADD,
	CEP_EW_SUB,
	CEP_EW_MUL,
	CEP_EW_DIV,
	CEP_EW_POW,
	CEP_EW_MIN,
	CEP_EW_MAX,
	CEP_EW_EQUAL,
	CEP_EW_LESS,
	CEP_EW_LESS_EQ,
	CEP_EW_GREATER,
	CEP_EW_GREATER_EQ,
	CEP_EW_AND,
	CEP_EW_OR,
	CEP_EW_FAST_GELU, /* tanh gelu of a + b */
	CEP_EW_SILU_MUL,  /* silu(a) b */
	/* three */
	CEP_EW_WHERE,
};

struct cep_ew {
	uint64_t count, out, in[3];
	uint32_t op, n_in, rank, dense;
	uint32_t out_dt, in_dt[3];
	float f[2];
	int64_t dims[CEP_DIMS], os[CEP_DIMS], is[3][CEP_DIMS];
	struct cep_blame blame;
};

struct cep_poke {
	uint64_t dst;
	uint32_t bytes, reserved;
	uint8_t data[CEP_POKE_BYTES];
};

struct cep_fill {
	uint64_t out, count, bits; /* bits of an element, of size bytes */
	uint32_t size, reserved;
};

/* out = norm(x + skip + bias) gamma + beta; sum = x + skip + bias */
struct cep_norm {
	uint64_t x, skip, bias, gamma, beta, out, sum;
	uint64_t rows, skip_rows; /* skip repeats every skip_rows */
	uint32_t dim, layer;	  /* layer: subtract the mean */
	float eps;
	uint32_t image_rows; /* out is in the order of wfew4.cu, so many at once
			      */
};

struct cep_gather {
	uint64_t data, idx, out;
	uint64_t outer, axis, n_idx;
	uint64_t inner;		 /* bytes */
	int64_t s_outer, s_axis; /* bytes */
	uint32_t idx64, unit;	 /* unit: bytes a thread moves */
	struct cep_blame blame;
};

/* The k best of every line of dim elements, which lie inner apart. */
struct cep_best {
	uint64_t x, values, at; /* at: int64; either may be 0 */
	uint64_t count, inner;	/* count: of all elements */
	uint32_t dim, k, dt, size, smallest, reserved;
};

enum cep_scatter { CEP_SET, CEP_ADD, CEP_MUL, CEP_MAX, CEP_MIN };

/* Dense data of dims, dense indices (and updates) of idims, which are no larger
 * but along the axis.  count: indices to read; lines of data to write. */
struct cep_elements {
	uint64_t x, idx, updates, out, count;
	int64_t dims[CEP_DIMS], idims[CEP_DIMS];
	uint32_t rank, axis, dt, size, how, idx64;
	struct cep_blame blame;
};

struct cep_gbq {
	uint64_t data, scales, zp, idx, out;
	uint64_t rows, n_idx, row_bytes, zp_row_bytes;
	uint32_t dim, block, n_blocks, bits, is_signed, zp_default, idx64;
	uint32_t reserved;
	struct cep_blame blame;
};

struct cep_rope {
	uint64_t x, out, pos, cosc, sinc;
	int64_t xs[3], os[3]; /* strides of batch, head, position */
	uint32_t batch, heads, seq, size, rot, rows, interleaved;
	uint32_t pos_n; /* 1: offset, else batch * seq */
	float scale;
	uint32_t reserved;
	struct cep_blame blame;
};

/* A row's keys are split over as many blocks at most. */
#define CEP_GQA_SPLITS 32
/* The same on tensor cores, kernels/split.cu: blocks of a cluster. */
#define CEP_SPLITS 8

struct cep_gqa {
	uint64_t q, k, v;
	int64_t q_tok, k_tok, v_tok; /* elements per token row */
	uint64_t past_k, past_v, pres_k, pres_v;
	int64_t past_ks[3], past_vs[3]; /* batch, head, position */
	int64_t pres_ks[3], pres_vs[3];
	uint64_t seqlens, cosc, sinc, pos, q_norm, k_norm, bias, sink;
	int64_t bias_s[4];
	uint64_t qbuf;	     /* [B S][N][H]: float scaled; flash: T as it is */
	uint64_t newk, newv; /* windowed: T [B S][NKV][H] */
	uint64_t part, counters, out;
	float scale, softcap, eps;
	int32_t window;
	uint32_t batch, seq, heads, kv_heads, size;
	uint32_t past_rows, rows, rot, cos_rows, interleaved;
	uint32_t windowed, smooth, splits, group; /* heads a block takes */
	uint32_t flash;
	uint32_t each; /* heads a warp prepares */
	/* split.cu: no kernel prepares; lengths were written before the kernel
	 * in front began */
	uint32_t fused, early;
	/* query heads of a key head, and 2^32 over that, rounded up; split.cu:
	 * tiles of a batch entry's rows */
	uint32_t per, per_inverse, row_tiles;
	/* A quantised cache: bits of an element, else 0; has each channel of
	 * keys (1), of values (2) a scale of its own?  float [NKV][H] or one.
	 * row: elements of a head's row in the cache. */
	uint32_t bits, kv_each, row;
	uint64_t k_scale, v_scale;
	/* Many sequences, if table is not 0: a step of seq rows, those of
	 * sequence b are first[b] to first[b + 1]; seqlens are of what was
	 * before.  A cache is [blocks][block][NKV][H], and its strides are of a
	 * block, a head, a position. */
	uint64_t first, table; /* int32 [seqs + 1], [seqs][table_row] */
	uint64_t lens;	       /* [seqs]: with this step; 0: refused or none */
	uint64_t tiles;	       /* struct cep_tile [pieces][n_tiles] */
	uint32_t seqs, table_row, block, n_blocks;
	uint32_t n_tiles, piece; /* of CEP_PIECE rows each; this one */
	struct cep_blame blame;
};

/* Packed rows are attended to so many at a time. */
#define CEP_PIECE 64u

/* 16 query heads of rows of one sequence, from the r0-th of these on. */
struct cep_tile {
	uint32_t seq, tok, n; /* its rows in this piece; n 0: nothing to do */
	uint32_t at;	      /* position of the first of them */
	uint32_t r0, reserved[3];
};

struct cep_mm {
	uint64_t a, b, scales, zp, bias, out;
	uint64_t part, counters;
	int64_t lda, ldb, ldc; /* elements; ldb: of the outer dimension of B */
	int64_t a_batch, b_batch, c_batch;
	uint32_t m, n, k, n0; /* rows of this tile are n0.. of the whole */
	uint32_t bits, block, n_blocks, zp_kind, zp_row;
	uint32_t groups;       /* row groups a block of gemv4 takes */
	uint32_t depth;	       /* tiles on the way in few4, 2 to 4 */
	uint32_t in_order;     /* a is as wfew4 takes it */
	uint32_t vec_a, vec_b; /* 16-byte loads are possible */
};

/* Rows of 2-byte elements in the order of wfew4.cu, which takes so many at
 * once. */
struct cep_image4_params {
	uint64_t a, out;
	int64_t lda;
	uint32_t m, k, rows, reserved;
};

/* How products with a 4-bit matrix sum: kernels/gemv4.cu, few4.cu. */
#define CEP_ASYNC_SCALES                                                       \
	1u /* rows of them can be copied 4 or 8 bytes a time                   \
	    */
#define CEP_ASYNC_ZEROS 2u
struct cep_sum4 {
	uint64_t add;	/* a tensor like the result, added to it; or 0 */
	uint32_t tiles; /* of 256 columns */
	uint32_t class_tiles, n_class, slice_classes;
	uint32_t shift; /* a block is 32 << shift columns */
	uint32_t async;
	uint32_t inverse; /* 2^32 / tile_rows, less than one too small */
	/* one row: the activations are norm(a + skip) gamma, a + skip goes to
	 * sum; none if gamma is 0 */
	uint64_t skip, gamma, sum;
	float eps;
};

/* A product.  The matrix may lie in n_tiles pieces of tile_rows rows
 * (the last one shorter).  The dual form takes two matrices of the same shape
 * and gives silu(a B0) (a B1). */
#define CEP_TILES 64u
struct cep_mv {
	struct cep_mm m;
	struct cep_sum4 o;
	uint32_t n_tiles, tile_rows;
	uint64_t b[1], s[1], z[1];
};
struct cep_mv_tiled {
	struct cep_mm m;
	struct cep_sum4 o;
	uint32_t n_tiles, tile_rows;
	uint64_t b[CEP_TILES], s[CEP_TILES], z[CEP_TILES];
};
struct cep_mv_dual {
	struct cep_mm m;
	struct cep_sum4 o;
	uint32_t n_tiles, tile_rows;
	uint64_t b[2], s[2], z[2], bias2;
};
struct cep_mv_dual_tiled {
	struct cep_mm m;
	struct cep_sum4 o;
	uint32_t n_tiles, tile_rows;
	uint64_t b[2 * CEP_TILES], s[2 * CEP_TILES], z[2 * CEP_TILES], bias2;
};

/* Rows beside the link: kernels/beside.cu.  Parts of a matrix that the host's
 * cores multiply: rows of them, in pairs. */
#define CEP_BESIDE_DIGITS 448u /* bytes of 128 columns of activations */
#define CEP_BESIDE_PARTS 64u
struct cep_ask {
	uint64_t x, to; /* a row of activations; where its digits go */
	uint64_t bell;	/* rung: job << 32 | turn */
	uint64_t turn;	/* uint32_t of the device, of this job */
	uint32_t k, job, vec, reserved;
};
struct cep_meet {
	struct cep_mm m; /* out, bias, n of the whole matrix */
	uint64_t add, bias2;
	uint64_t answered, turn, sums;
	uint64_t patience_ns;
	uint32_t job, dual, n_parts, reserved;
	uint32_t rows[CEP_BESIDE_PARTS][2]; /* first, how many */
	struct cep_blame blame;
};
#define CEP_ZP_NONE 0u
#define CEP_ZP_PACKED 1u
#define CEP_ZP_FLOAT 2u

/* Mixtures of experts: kernels/moe.cu.  A pair is m k + i: row m, its expert i.
 * Items are four words: expert, first of pairs[], how many, 0. */
#define CEP_EXPERTS 1024u
struct cep_moe_route {
	uint64_t logits, own; /* [rows, experts]; own: what they count for */
	uint64_t ids, weights, pairs; /* [rows, k] */
	uint64_t items, n_items;
	uint64_t uses; /* a count for each expert, or 0 */
	uint32_t rows, experts, k;
	uint32_t group; /* pairs of an item, at most */
	uint32_t dt, own_dt, normalize, reserved;
	struct cep_blame blame;
};

/* The matrices of all experts: [experts, rows, k], codes or (bits 0) floats. */
#define CEP_ZP_TURNED 3u /* packed along the rows, a row of them an expert */
#define CEP_APART_W 1u
#define CEP_APART_SCALES 2u
#define CEP_APART_ZP 4u
#define CEP_APART_BIAS 8u
struct cep_moe_mat {
	uint64_t w, scales, zp, bias;
	uint32_t rows, bits, block, n_blocks, zp_kind, zp_row;
	/* CEP_APART_*: of these the address is that of a table, where each
	 * expert's lie */
	uint32_t apart, reserved;
};

enum cep_moe_act {
	CEP_MOE_RELU,
	CEP_MOE_RELU2,
	CEP_MOE_GELU,
	CEP_MOE_SILU,
	CEP_MOE_SWIGLU,
	CEP_MOE_IDENTITY,
};

/* Output o is row o row_mul of m[0] and, if dual, gates row o row_mul + row_add
 * of m[1].  A pair reads row pair / slots of x. */
struct cep_moe {
	uint64_t x, out, pairs, items, n_items;
	struct cep_moe_mat m[2];
	uint32_t n, k, row_mul, row_add, dual, slots;
	uint32_t last; /* out is float, nothing is gated */
	uint32_t act, late;
	float alpha, beta, limit;
	uint32_t vec;	       /* rows of x can be loaded 16 bytes at a time */
	uint32_t shift, async; /* as in cep_sum4 */
	uint32_t reserved;
};

/* One row, kernels/moe1.cu: the first product chooses, too, the second adds up.
 * A block takes groups row groups, of 8 outputs each. */
struct cep_moe1 {
	struct cep_moe m; /* items, pairs and slots are not used */
	struct cep_moe_route r;
	uint64_t sum; /* of the second: where it goes */
	uint32_t groups;
	uint32_t tiles, quarter, n_class; /* of 256 columns; of a class */
};

struct cep_moe_sum {
	uint64_t y, weights, out;
	uint64_t rows, dim;
	uint32_t k, reserved;
};

/* Strides of batch, channel and position: of x and out, of the state. */
struct cep_conv {
	uint64_t x, w, bias, past, out, present;
	int64_t x_b, x_c, x_t, s_b, s_c, s_t;
	uint32_t batch, channels, length, taps, dilation, history, silu;
	uint32_t reserved;
};

struct cep_linear {
	uint64_t q, k, v, decay, beta, past, out, present;
	uint32_t batch, length, dk, dv, q_heads, k_heads, heads;
	uint32_t state_dt, per_row, one_beta;
	float scale;
	uint32_t reserved;
};

/* decay = softplus(a + bias) scale, beta = sigmoid(b) */
struct cep_linear_gate {
	uint64_t a, bias, scale, b, decay, beta, count;
	uint32_t heads, reserved;
};

/* Of kernels/gated.cu.  y: a norm's weights, or what is added. */
struct cep_gated {
	uint64_t x, y, gate, out;
	uint64_t rows, inner; /* inner: stride of the axis, elements */
	uint32_t dim, one;    /* one: the 1-norm; sigmoid alone */
	float eps;
	uint32_t reserved;
};

/* block 0: a scale for each place along the axis, or (each 0) one. */
struct cep_quant {
	uint64_t x, scale, zero, out;
	uint64_t count, inner, dim, block, blocks;
	uint32_t each, dt, scale_dt, out_dt;
};

struct cep_row {
	uint64_t x, out, out2, out3, counters; /* the last three: arg-max */
	uint64_t rows, dim;
	int64_t inner; /* stride of the reduced axis, elements */
	uint32_t in_dt, out_dt, op, reserved;
	struct cep_blame blame;
};
#define CEP_NORM_LAYER 1u /* of cep_norm: subtract the mean */

#define CEP_ROW_SUM 0u
#define CEP_ROW_MEAN 1u
#define CEP_ROW_MAX 2u
#define CEP_ROW_MIN 3u
#define CEP_ROW_SOFTMAX 4u
#define CEP_ROW_LOG_SOFTMAX 5u

#endif
