/* op_nbits.c - MatMulNBits, alone and as the two products of a SwiGLU.
 * Which kernel multiplies depends on dtypes, K, the block size and whether
 * there is one row or more; never on how rows of the weight are cut. */
#include "modules/cuda_ep/op_matmul.h"

#define XBLOCK 80 /* as in kernels/gemv.cu */

struct nbits_state {
	int64_t m, n, k;
	int64_t bits, block, blocks; /* blocks of a row */
	int64_t zp, zp_row;	     /* CEP_ZP_*; bytes of a row of them */
	int64_t smem;		     /* of the kernel for one row */
	bool fast;		     /* that kernel can be taken */
	bool gemm4;		     /* several rows go to gemm4 */
	int64_t part;		     /* where its parts lie in the workspace */
	int64_t pair;		     /* bytes of one of two products */
};
EXEC_STATE(nbits_state, cep_node)

/* As in kernels/gemm4.cu. */
#define SLICE 1024
#define FEW_ROWS 16
#define FEW_COLUMNS 32768 /* more than these fill the device without slices */

int32_t cep_need_bf16(const struct cep_node *n, struct genai_error *err)
{
	if (n->in[0]->dtype != GENAI_DT_BF16 || n->self->major >= 8)
		return 0;
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "bfloat16 needs compute capability 8.0: %s has "
			     "%d.%d",
			     n->self->device_name, n->self->major,
			     n->self->minor);
}

static int32_t nbits_shapes(struct cep_node *n, struct genai_error *err)
{
	struct nbits_state *s = nbits_state(n);
	int64_t k = cep_attr_int(n, "K", 0), cols = cep_attr_int(n, "N", 0);
	int64_t bits = cep_attr_int(n, "bits", 4);
	int64_t block = cep_attr_int(n, "block_size", 0), blocks;
	const struct cep_tensor *a = n->in[0], *z;

	if (k < 1 || cols < 1 || k > INT32_MAX || cols > INT32_MAX ||
	    (bits != 2 && bits != 4 && bits != 8) || block < 16 ||
	    block > 65536 || (block & (block - 1)))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "K %lld, N %lld, %lld bits, block %lld",
				     (long long)k, (long long)cols,
				     (long long)bits, (long long)block);
	if (cep_attr_int(n, "weight_prepacked", 0))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "weight_prepacked: export the model with "
				     "plain weights");
	if (!a->rank || a->dims[a->rank - 1] != k)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "input 0 does not end in K = %lld",
				     (long long)k);
	blocks = (k + block - 1) / block;
	if (n->in[1]->dtype != GENAI_DT_U8 ||
	    cep_count(n->in[1]) !=
		    (uint64_t)(cols * blocks * (block * bits / 8)) ||
	    cep_count(n->in[2]) != (uint64_t)(cols * blocks))
		return cep_node_fail(
			n, err, GENAI_E_FORMAT,
			"weights or scales do not fit N %lld, %lld "
			"blocks",
			(long long)cols, (long long)blocks);
	s->n = cols;
	s->k = k;
	s->bits = bits;
	s->block = block;
	s->blocks = blocks;
	s->m = (int64_t)cep_count(a) / k;
	s->zp = CEP_ZP_NONE;
	s->zp_row = (blocks * bits + 7) / 8;
	z = n->n_in > 3 ? n->in[3] : NULL;
	if (!z)
		return 0;
	s->zp = z->dtype == GENAI_DT_U8 ? CEP_ZP_PACKED : CEP_ZP_FLOAT;
	if (z->dtype != GENAI_DT_U8 && z->dtype != a->dtype)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "zero points of dtype %u", z->dtype);
	if (cep_count(z) !=
	    (uint64_t)(cols * (z->dtype == GENAI_DT_U8 ? s->zp_row : blocks)))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "zero points do not fit");
	return 0;
}

/* Parts of few rows, and a counter a block of columns. */
static void slice_memory(struct cep_node *n)
{
	struct nbits_state *s = nbits_state(n);
	int64_t slices = (s->k + SLICE - 1) / SLICE;
	int64_t rows = s->m < FEW_ROWS ? s->m : FEW_ROWS;

	s->part = 0;
	if (slices < 2 || s->n > FEW_COLUMNS)
		return;
	n->workspace_bytes = (uint64_t)(slices * rows * s->n) * 4;
	n->sync_bytes = (uint64_t)((s->n + 63) / 64) * 4;
}

int32_t cep_prepare_nbits(struct cep_node *n, struct genai_error *err)
{
	struct nbits_state *s = nbits_state(n);
	static const char *const attrs[] = {"K",
					    "N",
					    "bits",
					    "block_size",
					    "accuracy_level",
					    "weight_prepacked",
					    NULL};
	const struct cep_tensor *a = n->in[0];
	int64_t dims[GENAI_MAX_RANK], tiles;
	int32_t rc = cep_check(n, attrs, 3, 6, 1, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	if (!rc)
		rc = cep_need_bf16(n, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	if (!rc)
		rc = cep_need_same(n, 2, 0, err);
	if (!rc)
		rc = cep_need_same(n, 5, 0, err);
	if (!rc && n->n_in > 4 && n->in[4])
		rc = cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				   "act-order weights (g_idx)");
	if (!rc)
		rc = nbits_shapes(n, err);
	if (rc)
		return rc;
	tiles = (s->k / 32 + 7) / 8;
	s->smem = (tiles * 8 + 1) * XBLOCK + (s->zp ? tiles * 32 : 0);
	s->fast = a->dtype != GENAI_DT_F32 && s->bits == 4 && s->block >= 32 &&
		  s->k % 32 == 0 && s->smem < n->self->max_smem - 65536;
	s->gemm4 = a->dtype != GENAI_DT_F32 && s->bits == 4 && s->block >= 32 &&
		   s->k % 64 == 0 && s->zp != CEP_ZP_FLOAT;
	if (s->gemm4)
		slice_memory(n);
	if (n->n_in > 5 && n->in[5] && cep_count(n->in[5]) != (uint64_t)s->n)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "the bias does not have N elements");
	memcpy(dims, a->dims, sizeof(dims));
	dims[a->rank - 1] = s->n;
	return cep_out(n, 0, a->dtype, a->rank, dims, err);
}

/* Blocks, threads and shared memory of a one-row product; rows are what a
 * block's row group yields. */
static void gemv4_shape(const struct cep_node *n, const struct cep_run *r,
			struct cep_mm *p, uint32_t rows, struct cep_dim3 *grid,
			uint32_t *threads, uint32_t *smem)
{
	const struct nbits_state *s = nbits_state(n);
	uint32_t tiles = (p->k / 32 + 7) / 8, classes = tiles < 8 ? tiles : 8;
	uint32_t n_rg = (p->n + rows - 1) / rows;
	uint32_t want = (uint32_t)r->self->n_sms * 2, most, warps;

	*smem = (uint32_t)s->smem;
	p->groups = (n_rg + want - 1) / want;
	most = ((uint32_t)r->self->max_smem - 20480 - *smem) / (classes * 64);
	if (p->groups > most)
		p->groups = most;
	warps = p->groups * classes;
	*smem += p->groups * classes * 64;
	*threads = 32 * (warps < 8 ? warps : 8);
	*grid = (struct cep_dim3){(n_rg + p->groups - 1) / p->groups, 1, 1};
}

/* Where the parts of a matrix lie; its inputs start at first: weights, scales,
 * zero points. */
static int32_t set_parts(const struct cep_node *n, const struct cep_run *r,
			 uint32_t first, uint64_t *b, uint64_t *s, uint64_t *z)
{
	uint32_t count = r->n_parts ? r->n_parts : 1;
	uint64_t low = 0;

	for (uint32_t k = 0; k < count; k++) {
		const uint64_t *at = r->parts + k * CEP_MAX_IN + first;

		b[k] = r->n_parts ? at[0] : n->in[first]->addr;
		low |= b[k] % 16;
		s[k] = r->n_parts ? at[1] : n->in[first + 1]->addr;
		if (nbits_state(n)->zp)
			z[k] = r->n_parts ? at[2] : n->in[first + 2]->addr;
	}
	return low ? cep_node_fail(n, r->err, GENAI_E_INVAL,
				   "weights are not aligned to 16")
		   : 0;
}

#define KERNELS(form)                                                          \
	{                                                                      \
		{CEP_K_cep_gemv4##form##_f16_0, CEP_K_cep_gemv4##form##_f16_1, \
		 CEP_K_cep_gemv4##form##_f16_2},                               \
			{CEP_K_cep_gemv4##form##_bf16_0,                       \
			 CEP_K_cep_gemv4##form##_bf16_1,                       \
			 CEP_K_cep_gemv4##form##_bf16_2},                      \
	}

static int32_t run_gemv4(struct cep_node *n, struct cep_run *r,
			 struct cep_mm *p)
{
	static const enum cep_kernel one[2][3] = KERNELS();
	static const enum cep_kernel tiled[2][3] = KERNELS(t);
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	struct cep_mv_tiled q;
	struct cep_dim3 grid;
	uint32_t threads, smem;
	struct cep_mv q1;
	int32_t rc;

	gemv4_shape(n, r, p, 16, &grid, &threads, &smem);
	if (!r->n_parts) {
		q1.m = *p;
		q1.n_tiles = 1;
		q1.tile_rows = p->n;
		rc = set_parts(n, r, 1, q1.b, q1.s, q1.z);
		return rc ? rc
			  : cep_run_kernel(r, one[bf][p->zp_kind], grid,
					   threads, smem, &q1);
	}
	q.m = *p;
	q.n_tiles = r->n_parts;
	q.tile_rows = r->part_rows;
	rc = set_parts(n, r, 1, q.b, q.s, q.z);
	return rc ? rc
		  : cep_run_kernel(r, tiled[bf][p->zp_kind], grid, threads,
				   smem, &q);
}

bool cep_is_vec(uint64_t addr, int64_t stride, uint32_t bytes)
{
	return addr % 16 == 0 && stride * bytes % 16 == 0;
}

/* Several rows: a grid of 64-column blocks. */
int32_t cep_run_gemm(struct cep_run *r, uint32_t dtype, const struct cep_mm *p,
		     const void *params, uint32_t batch, enum cep_kernel f32,
		     enum cep_kernel f16_16, enum cep_kernel f16_64,
		     enum cep_kernel bf16_16, enum cep_kernel bf16_64)
{
	bool small = p->m <= 16 && dtype != GENAI_DT_F32;
	uint32_t bm = small ? 16 : 64;
	enum cep_kernel k = dtype == GENAI_DT_F32 ? f32
			    : dtype == GENAI_DT_F16
				    ? (small ? f16_16 : f16_64)
				    : (small ? bf16_16 : bf16_64);

	return cep_run_kernel(r, k,
			      (struct cep_dim3){(p->n + 63) / 64,
						(p->m + bm - 1) / bm, batch},
			      dtype == GENAI_DT_F32 ? 256 : 128, 0, params);
}

/* Parameters of a quantised product whose matrix begins at input first. */
static struct cep_mm nbits_params(const struct cep_node *n,
				  const struct cep_run *r, uint32_t first,
				  uint32_t bias)
{
	const struct nbits_state *s = nbits_state(n);
	const struct cep_tensor *a = n->in[0];
	struct cep_mm p = {
		.a = a->addr,
		.b = n->in[first]->addr,
		.scales = n->in[first + 1]->addr,
		.zp = s->zp ? n->in[first + 2]->addr : 0,
		.bias = bias < n->n_in && n->in[bias] ? n->in[bias]->addr : 0,
		.out = n->out[0]->addr,
		.lda = s->k,
		.ldb = s->blocks * s->block * s->bits / 8,
		.ldc = s->n,
		.m = (uint32_t)s->m,
		.n = (uint32_t)s->n,
		.k = (uint32_t)s->k,
		.bits = (uint32_t)s->bits,
		.block = (uint32_t)s->block,
		.n_blocks = (uint32_t)s->blocks,
		.zp_kind = (uint32_t)s->zp,
		.zp_row = (uint32_t)s->zp_row,
	};

	if (r->row_end) {
		p.n = (uint32_t)(r->row_end - r->row_begin);
		p.n0 = (uint32_t)r->row_begin;
	}
	p.vec_a = cep_is_vec(p.a, p.lda, cep_dtype_bytes(a->dtype));
	return p;
}

static int32_t run_gemm4(struct cep_node *n, struct cep_run *r,
			 struct cep_mv_tiled *q)
{
	const struct nbits_state *s = nbits_state(n);
	static const enum cep_kernel k[2][2][2] = {
		{{CEP_K_cep_gemm4_64_f16_0, CEP_K_cep_gemm4_64_f16_1},
		 {CEP_K_cep_gemm4_16_f16_0, CEP_K_cep_gemm4_16_f16_1}},
		{{CEP_K_cep_gemm4_64_bf16_0, CEP_K_cep_gemm4_64_bf16_1},
		 {CEP_K_cep_gemm4_16_bf16_0, CEP_K_cep_gemm4_16_bf16_1}},
	};
	bool few = q->m.m <= FEW_ROWS, bf = n->in[0]->dtype == GENAI_DT_BF16;
	uint32_t bm = few ? 16 : 64, slices = (q->m.k + SLICE - 1) / SLICE;

	if (!q->m.vec_a)
		return cep_node_fail(n, r->err, GENAI_E_INVAL,
				     "input 0 is not aligned to 16");
	if (!few || s->n > FEW_COLUMNS)
		slices = 1;
	q->m.part = r->workspace + (uint64_t)s->part;
	q->m.counters = r->sync;
	return cep_run_kernel(r, k[bf][few][q->m.zp_kind == CEP_ZP_PACKED],
			      (struct cep_dim3){(q->m.n + 63) / 64,
						(q->m.m + bm - 1) / bm, slices},
			      128, 0, q);
}

/* The rows of this run, by the kernels for everything but one row of half
 * precision. */
static int32_t nbits_general(struct cep_node *n, struct cep_run *r,
			     const struct cep_mm *p, uint32_t first)
{
	const struct nbits_state *s = nbits_state(n);
	uint32_t dtype = n->in[0]->dtype;
	struct cep_mv_tiled q = {
		.m = *p,
		.n_tiles = r->n_parts ? r->n_parts : 1,
		.tile_rows = r->n_parts ? r->part_rows : p->n,
	};
	int32_t rc = set_parts(n, r, first, q.b, q.s, q.z);

	if (rc)
		return rc;
	if (cep_prompt_takes(r->self, dtype, p))
		return cep_run_prompt(r, dtype, &q);
	if (p->m > 1 && s->gemm4)
		return run_gemm4(n, r, &q);
	if (p->m > 1)
		return cep_run_gemm(
			r, dtype, p, &q, 1, CEP_K_cep_gemm_q_f32,
			CEP_K_cep_gemm16_q_f16, CEP_K_cep_gemm64_q_f16,
			CEP_K_cep_gemm16_q_bf16, CEP_K_cep_gemm64_q_bf16);
	for (uint32_t k = 0; k < q.n_tiles && !rc; k++) {
		struct cep_mm piece = *p;
		uint32_t at = k * q.tile_rows, left = p->n - at;

		piece.n0 += at;
		piece.n = left < q.tile_rows ? left : q.tile_rows;
		piece.b = q.b[k];
		piece.scales = q.s[k];
		piece.zp = q.z[k];
		rc = cep_run_kernel(r,
				    cep_by_dtype(dtype, CEP_K_cep_gemv_q_f32,
						 CEP_K_cep_gemv_q_f16,
						 CEP_K_cep_gemv_q_bf16),
				    (struct cep_dim3){(piece.n + 7) / 8, 1, 1},
				    256, 0, &piece);
	}
	return rc;
}

int32_t cep_run_nbits(struct cep_node *n, struct cep_run *r)
{
	const struct nbits_state *s = nbits_state(n);
	struct cep_mm p = nbits_params(n, r, 1, 5);

	if (!p.m || !p.n)
		return 0;
	if (p.m == 1 && s->fast)
		return run_gemv4(n, r, &p);
	return nbits_general(n, r, &p, 1);
}

/* ---- silu(a B0) (a B1): inputs a; b, scales, zp, bias; the same again ---- */

enum { GATE = 1, UP = 5 };

int32_t cep_prepare_gate_up(struct cep_node *n, struct genai_error *err)
{
	struct nbits_state *s = nbits_state(n);
	struct cep_tensor *in[CEP_MAX_IN];
	uint32_t n_in = n->n_in;
	int32_t rc;

	/* as the gate's product: its bias is input 5 there */
	memcpy(in, n->in, sizeof(in));
	n->in[4] = NULL;
	n->in[5] = in[GATE + 3];
	n->n_in = 6;
	rc = cep_prepare_nbits(n, err);
	memcpy(n->in, in, sizeof(in));
	n->n_in = n_in;
	/* both products before they are put together, then the parts */
	s->pair = (s->m * s->n * cep_dtype_bytes(n->in[0]->dtype) + 255) / 256 *
		  256;
	s->part = 2 * s->pair;
	n->workspace_bytes += (uint64_t)s->part;
	return rc;
}

/* Both matrices in their parts. */
static int32_t set_pair(const struct cep_node *n, const struct cep_run *r,
			const struct cep_mm *p, struct cep_mv_dual_tiled *q)
{
	int32_t rc;

	q->m = *p;
	q->n_tiles = r->n_parts ? r->n_parts : 1;
	q->tile_rows = r->n_parts ? r->part_rows : p->n;
	q->bias2 = n->in[UP + 3] ? n->in[UP + 3]->addr : 0;
	rc = set_parts(n, r, GATE, q->b, q->s, q->z);
	return rc ? rc
		  : set_parts(n, r, UP, q->b + CEP_TILES, q->s + CEP_TILES,
			      q->z + CEP_TILES);
}

static int32_t run_gemv4_dual(struct cep_node *n, struct cep_run *r,
			      struct cep_mm *p)
{
	static const enum cep_kernel one[2][3] = KERNELS(d);
	static const enum cep_kernel tiled[2][3] = KERNELS(dt);
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	uint64_t bias2 = n->in[UP + 3] ? n->in[UP + 3]->addr : 0;
	struct cep_mv_dual_tiled q;
	struct cep_dim3 grid;
	uint32_t threads, smem;
	struct cep_mv_dual q1;
	int32_t rc;

	gemv4_shape(n, r, p, 8, &grid, &threads, &smem);
	if (!r->n_parts) {
		q1.m = *p;
		q1.n_tiles = 1;
		q1.tile_rows = p->n;
		q1.bias2 = bias2;
		rc = set_parts(n, r, GATE, q1.b, q1.s, q1.z);
		if (!rc)
			rc = set_parts(n, r, UP, q1.b + 1, q1.s + 1, q1.z + 1);
		return rc ? rc
			  : cep_run_kernel(r, one[bf][p->zp_kind], grid,
					   threads, smem, &q1);
	}
	rc = set_pair(n, r, p, &q);
	return rc ? rc
		  : cep_run_kernel(r, tiled[bf][p->zp_kind], grid, threads,
				   smem, &q);
}

/* silu(gate) up over the rows of this run, from scratch to the output. */
static int32_t put_together(struct cep_node *n, struct cep_run *r,
			    const struct cep_mm *p, uint64_t up)
{
	uint32_t size = cep_dtype_bytes(n->in[0]->dtype);
	uint64_t skip = (uint64_t)p->n0 * size;
	struct cep_ew e = {
		.count = (uint64_t)p->m * p->n,
		.out = n->out[0]->addr + skip,
		.in = {r->workspace + skip, up + skip},
		.op = CEP_EW_SILU_MUL,
		.n_in = 2,
		.rank = 2,
		.out_dt = n->in[0]->dtype,
		.in_dt = {n->in[0]->dtype, n->in[0]->dtype},
		.dims = {p->m, p->n},
		.os = {p->ldc, 1},
		.is = {{p->ldc, 1}, {p->ldc, 1}},
	};

	e.dense = p->n == p->ldc;
	return cep_run_kernel(
		r, CEP_K_cep_ew_f,
		(struct cep_dim3){cep_blocks(r->self, e.count), 1, 1}, 256, 0,
		&e);
}

int32_t cep_run_gate_up(struct cep_node *n, struct cep_run *r)
{
	const struct nbits_state *s = nbits_state(n);
	struct cep_mm p = nbits_params(n, r, GATE, GATE + 3), u;
	uint32_t dtype = n->in[0]->dtype;
	struct cep_mv_dual_tiled q;
	int32_t rc;

	if (!p.m || !p.n)
		return 0;
	if (p.m == 1 && s->fast)
		return run_gemv4_dual(n, r, &p);
	if (cep_prompt_takes(r->self, dtype, &p)) {
		rc = set_pair(n, r, &p, &q);
		return rc ? rc : cep_run_prompt_pair(r, dtype, &q);
	}
	p.out = r->workspace;
	rc = nbits_general(n, r, &p, GATE);
	u = nbits_params(n, r, UP, UP + 3);
	u.out = r->workspace + (uint64_t)s->pair;
	if (!rc)
		rc = nbits_general(n, r, &u, UP);
	return rc ? rc : put_together(n, r, &p, u.out);
}
