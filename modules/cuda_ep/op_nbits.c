// op_nbits.c - MatMulNBits, alone and as the two products of a SwiGLU.
// Which kernel multiplies depends on dtypes, K, the block size and whether
// there is one row, up to EXACT_ROWS or more; never on how rows of the weight
// are cut.  gemv4 (one row), few4 (more) and wfew4 (many more, on 9.0) give a
// row the same bits.  Where many sequences share the step, they take rows of
// any number; what they do not take goes by the general kernel.  With threads
// of the host (host_threads) the kernels of beside.cu stand in the place of
// all.
#include "modules/cuda_ep/op_beside.h"
#include "modules/cuda_ep/op_matmul.h"

// As in kernels/gemv4.cu, tile4.cuh, few.cuh, few4.cu, wfew4.cu.
#define TILE 256
#define DEPTH 3
#define FEW_WARPS 8
#define FEW_MOST 64  // rows of the step that a block of few4 has at once
#define FEW_DEPTH 4  // stages, at most
#define WFEW_FROM 33 // rows that wfew4 takes, where few4 is slower
#define WFEW_DEPTH 8
#define WFEW_STAGE 25600 // bytes
#define MOST_CLASSES 16
#define EXACT_ROWS 64 // steps up to here give a row the same bits
#define SM_WARPS 16   // of a kernel with 128 registers
#define SOME_TILES 72 // of an SM: more are many
#define FEW_TILES 28  // of a block of half as many warps

struct nbits_state {
	int64_t m, n, k;
	int64_t bits, block, blocks; // blocks of a row
	int64_t zp, zp_row;	     // CEP_ZP_*; bytes of a row of them
	bool fast;		     // 1 to EXACT_ROWS rows: gemv4, few4
	bool gemm4;		     // more rows go to gemm4
	bool beside;		     // 1 to EXACT_ROWS rows go to beside
	int64_t part;		     // parts of a sum, in the workspace
	int64_t stage;		     // rows left to the host, there, too
	int64_t pair;		     // bytes of one of two products
	int64_t normed;		     // where a norm's result lies
};
EXEC_STATE(nbits_state, cep_node)

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
	int64_t k = exec_attr_int(n->node, "K", 0),
		cols = exec_attr_int(n->node, "N", 0);
	int64_t bits = exec_attr_int(n->node, "bits", 4);
	int64_t block = exec_attr_int(n->node, "block_size", 0), blocks;
	const struct exec_tensor *a = n->in[0], *z;
	int64_t dims[3];
	int32_t rc;

	if (k < 1 || cols < 1 || k > INT32_MAX || cols > INT32_MAX ||
	    (bits != 2 && bits != 4 && bits != 8) || block < 16 ||
	    block > 65536 || (block & (block - 1)))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "K %lld, N %lld, %lld bits, block %lld",
				     (long long)k, (long long)cols,
				     (long long)bits, (long long)block);
	if (exec_attr_int(n->node, "weight_prepacked", 0))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "weight_prepacked: export the model with "
				     "plain weights");
	if (!a->rank || a->dims[a->rank - 1] != k)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "input 0 does not end in K = %lld",
				     (long long)k);
	blocks = (k + block - 1) / block;
	if (n->in[1]->dtype != GENAI_DT_U8)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "input 1 has dtype %u", n->in[1]->dtype);
	dims[0] = cols;
	dims[1] = blocks;
	dims[2] = block * bits / 8;
	if ((rc = cep_need_shape(n, 1, 3, dims, false, err)) ||
	    (rc = cep_need_shape(n, 2, 2, dims, true, err)) ||
	    (rc = cep_need_shape(n, 5, 1, dims, false, err)))
		return rc;
	s->n = cols;
	s->k = k;
	s->bits = bits;
	s->block = block;
	s->blocks = blocks;
	s->m = (int64_t)exec_count(a) / k;
	s->zp = CEP_ZP_NONE;
	s->zp_row = (blocks * bits + 7) / 8;
	z = n->n_in > 3 ? n->in[3] : NULL;
	if (!z)
		return 0;
	s->zp = z->dtype == GENAI_DT_U8 ? CEP_ZP_PACKED : CEP_ZP_FLOAT;
	if (z->dtype != GENAI_DT_U8 && z->dtype != a->dtype)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "zero points of dtype %u", z->dtype);
	if (z->dtype == GENAI_DT_U8)
		dims[1] = s->zp_row;
	return cep_need_shape(n, 3, 2, dims, true, err);
}

static uint32_t min_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

// How K is summed: classes of tiles, slices of classes.  Depends on K.
static struct cep_sum4 sum_of(const struct cep_node *n)
{
	struct cep_sum4 o = {
		.tiles = ((uint32_t)nbits_state(n)->k + TILE - 1) / TILE,
	};

	o.class_tiles = (o.tiles + MOST_CLASSES - 1) / MOST_CLASSES;
	o.n_class = (o.tiles + o.class_tiles - 1) / o.class_tiles;
	o.slice_classes = (o.n_class + 3) / 4;
	while (32 << o.shift < nbits_state(n)->block)
		o.shift++;
	return o;
}

static uint32_t slices_of(const struct cep_sum4 *o)
{
	return (o->n_class + o->slice_classes - 1) / o->slice_classes;
}

// Bytes of a tile.
static uint32_t stage_of(const struct cep_node *n)
{
	return nbits_state(n)->zp ? 2560 : 2304;
}

// Shared memory of a block: tiles on the way, where its rows lie.
static uint32_t ring_bytes(const struct cep_node *n, uint32_t warps,
			   uint32_t groups)
{
	return warps * DEPTH * stage_of(n) +
	       groups * 16 * (nbits_state(n)->zp ? 24 : 16);
}

// Of a block of one row: activations, the norm's weights, and the sums of
// classes besides.
static uint32_t one_bytes(const struct cep_node *n, const struct cep_sum4 *o,
			  uint32_t warps, uint32_t groups)
{
	uint32_t row = o->tiles * TILE * 2;

	return ring_bytes(n, warps, groups) + (n->norm ? 2 * row : row) +
	       groups * o->n_class * 64;
}

// How few4 takes m rows: so many at once, stages on the way, blocks of an SM.
struct few {
	uint32_t rows, depth, busy, smem;
	bool wide; // by wfew4
};

// As many stages as fit, two at least; fewer rows at once where they do not.
static bool few_of(const struct cep_node *n, uint32_t m, struct few *f)
{
	uint32_t all = (uint32_t)n->self->max_smem, most = all - 20480;
	uint32_t addresses = FEW_WARPS * 16 * 3 * 8;

	for (f->rows = 8; f->rows < m && f->rows < FEW_MOST;)
		f->rows *= 2;
	for (; f->rows >= 8; f->rows /= 2)
		for (f->busy = f->rows <= 32 ? 2 : 1; f->busy; f->busy--) {
			uint32_t stage =
				FEW_WARPS * stage_of(n) + f->rows * TILE * 2;
			uint32_t room = min_u32(all / f->busy - 2048, most);

			if (room < addresses + 2 * stage)
				continue;
			f->depth =
				min_u32((room - addresses) / stage, FEW_DEPTH);
			f->smem = f->depth * stage + addresses;
			return true;
		}
	return false;
}

// Several rows: the slices of units that are cut, which is what is left over
// when all blocks have as many, and a counter for each; rows are what a row
// group yields.  More rows never need less.
static void slice_memory(struct cep_node *n, int64_t rows)
{
	struct nbits_state *s = nbits_state(n);
	struct cep_sum4 o = sum_of(n);
	int64_t wide = rows * FEW_WARPS, units = (s->n + wide - 1) / wide;
	int64_t m = s->m < EXACT_ROWS || n->exact ? s->m : EXACT_ROWS, at;

	s->part = 0;
	if (slices_of(&o) < 2 || m < 2)
		return;
	at = least(units * ((m + FEW_MOST - 1) / FEW_MOST * FEW_MOST),
		   (int64_t)n->self->n_sms * FEW_MOST);
	n->workspace_bytes =
		(uint64_t)(at * slices_of(&o)) * FEW_WARPS * 16 * 4;
	at = least(units * ((m + 7) / 8), (int64_t)n->self->n_sms * 2);
	n->sync_bytes = (uint64_t)at * 4;
}

static int32_t prepare(struct cep_node *n, struct genai_error *err)
{
	struct nbits_state *s = nbits_state(n);
	static const char *const attrs[] = {"K",
					    "N",
					    "bits",
					    "block_size",
					    "accuracy_level",
					    "weight_prepacked",
					    NULL};
	const struct exec_tensor *a = n->in[0];
	int64_t dims[GENAI_MAX_RANK];
	struct cep_sum4 o;
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
	o = sum_of(n);
	s->beside = n->self->team && a->dtype != GENAI_DT_F32 && s->bits == 4 &&
		    s->block >= 32 && s->k % 32 == 0;
	s->fast = !s->beside && a->dtype != GENAI_DT_F32 && s->bits == 4 &&
		  s->block >= 32 && s->k % 32 == 0 &&
		  one_bytes(n, &o, 4, 1) <= (uint32_t)n->self->max_smem - 20480;
	s->gemm4 = a->dtype != GENAI_DT_F32 && s->bits == 4 && s->block >= 32 &&
		   s->k % 64 == 0 && s->zp != CEP_ZP_FLOAT;
	if (s->fast)
		slice_memory(n, 16);
	if (s->beside)
		n->sync_bytes = 4; // the job's turn
	memcpy(dims, a->dims, sizeof(dims));
	dims[a->rank - 1] = s->n;
	return cep_out(n, 0, a->dtype, a->rank, dims, err);
}

// A norm in front: room for its result; its sum is an output.
static int32_t prepare_norm(struct cep_node *n, struct genai_error *err)
{
	struct nbits_state *s = nbits_state(n);
	const struct exec_tensor *a = n->in[0];

	if (!n->norm)
		return 0;
	s->normed = (int64_t)(n->workspace_bytes + 255) / 256 * 256;
	n->workspace_bytes =
		(uint64_t)(s->normed + s->m * s->k * cep_dtype_bytes(a->dtype));
	return cep_out(n, 1, a->dtype, a->rank, a->dims, err);
}

// Room for rows that are left to the host where there are many of activations.
static void room_for_staged(struct cep_node *n)
{
	struct nbits_state *s = nbits_state(n);

	if (!s->beside || s->m <= CEP_STAGE_ROWS)
		return;
	s->stage = (int64_t)(n->workspace_bytes + 255) / 256 * 256;
	n->workspace_bytes = (uint64_t)s->stage + CEP_STAGE_BYTES;
}

int32_t cep_prepare_nbits(struct cep_node *n, struct genai_error *err)
{
	uint32_t n_in = n->n_in, n_out = n->n_out;
	int32_t rc;

	if (n->norm) {
		n->n_in = 6;
		n->n_out = 1;
	}
	rc = prepare(n, err);
	n->n_in = n_in;
	n->n_out = n_out;
	if (!rc)
		rc = prepare_norm(n, err);
	if (!rc)
		room_for_staged(n);
	return rc;
}

// Row groups a block takes, and its warps, by the tiles of the matrix. Measured
// on 132 SMs, by the time of a whole layer.
//
// No more tiles than warps: one block an SM; pairs of matrices in half as many,
// so that the kernels in front and behind are there at once.
//
// Some tiles a warp, one matrix: a block an SM, or an eighth more, of few
// warps.  Two fit beside each other, and fewer blocks ask for the activations.
//
// Many: the fewest tiles for the busiest SM, with two blocks where it is equal.
static void gemv4_shape(const struct cep_node *n, const struct cep_run *r,
			struct cep_mm *p, const struct cep_sum4 *o,
			uint32_t rows, struct cep_dim3 *grid, uint32_t *threads,
			uint32_t *smem)
{
	uint32_t n_rg = (p->n + rows - 1) / rows, best = UINT32_MAX;
	uint32_t most = (uint32_t)r->self->max_smem - 20480;
	uint32_t sms = (uint32_t)r->self->n_sms;
	bool lone = (n_rg + sms - 1) / sms * o->tiles <= SM_WARPS;
	bool some = !lone && rows == 16 && n_rg * o->tiles <= SOME_TILES * sms;

	for (uint32_t i = 0; i < 4; i++) {
		// blocks of an SM: of equal ones the earlier
		static const uint8_t order[2][4] = {{2, 1, 3, 4}, {1, 2, 3, 4}};
		uint32_t busy = order[lone || some][i];
		uint32_t blocks = some && !i ? sms + sms / 8 : sms * busy;
		uint32_t groups = (n_rg + blocks - 1) / blocks, warps, load;

		if (lone && !i && rows == 8)
			groups *= 2;
		warps = min_u32(SM_WARPS / busy, groups * o->n_class);
		if (some && groups * o->tiles <= FEW_TILES)
			warps = min_u32(warps, SM_WARPS / 2);
		while (groups > 1 && one_bytes(n, o, warps, groups) >
					     (most + 20480) / busy - 1024)
			groups--;
		if (one_bytes(n, o, warps, groups) >
			    (most + 20480) / busy - 1024 ||
		    one_bytes(n, o, warps, groups) > most)
			continue;
		load = (n_rg + groups - 1) / groups;
		if (busy > 1 && load <= sms * (busy - 1))
			continue; // fewer would do, with more warps
		load = (load + sms - 1) / sms * groups;
		if (load >= best)
			continue;
		best = (lone || some) && !i ? 0 : load;
		p->groups = groups;
		*threads = 32 * warps;
		*smem = one_bytes(n, o, warps, groups);
	}
	if (best == UINT32_MAX) { // little shared memory
		uint32_t warps = min_u32(4, o->n_class);

		p->groups = 1;
		*threads = 32 * warps;
		*smem = one_bytes(n, o, warps, 1);
	}
	*grid = (struct cep_dim3){(n_rg + p->groups - 1) / p->groups, 1, 1};
}

// Where the parts of a matrix lie; its inputs start at first: weights, scales,
// zero points.
static int32_t set_parts(const struct cep_node *n, const struct cep_run *r,
			 uint32_t first, uint64_t *b, uint64_t *s, uint64_t *z)
{
	uint32_t count = r->n_parts ? r->n_parts : 1;
	uint64_t low = 0;

	for (uint32_t k = 0; k < count; k++) {
		const uint64_t *at = r->parts + k * EXEC_MAX_IN + first;

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

// By dtype and zero points.
#define KERNELS(name)                                                          \
	{                                                                      \
		{CEP_K_cep_##name##_f16_0, CEP_K_cep_##name##_f16_1,           \
		 CEP_K_cep_##name##_f16_2},                                    \
			{CEP_K_cep_##name##_bf16_0, CEP_K_cep_##name##_bf16_1, \
			 CEP_K_cep_##name##_bf16_2},                           \
	}
// For 8, 16, 32 and 64 rows at once.
#define FEW(form)                                                              \
	{                                                                      \
		KERNELS(form##_8), KERNELS(form##_16), KERNELS(form##_32),     \
			KERNELS(form##_64)                                     \
	}

// Rows one by one, or several: params is of the form that the kernel takes, and
// holds m and o.
static int32_t run_one(struct cep_node *n, struct cep_run *r, struct cep_mm *m,
		       const struct cep_sum4 *o, uint32_t rows,
		       enum cep_kernel k, void *params)
{
	uint64_t x = m->a, out = m->out, add = o->add, size;
	uint32_t count = m->m, threads, smem;
	struct cep_dim3 grid;
	int32_t rc = 0;
	// m and o begin every form
	struct cep_mv *q = params;

	size = cep_dtype_bytes(n->in[0]->dtype);
	gemv4_shape(n, r, m, o, rows, &grid, &threads, &smem);
	for (uint32_t i = 0; i < count && !rc; i++) {
		q->m = *m;
		q->o = *o;
		q->m.m = 1;
		q->m.a = x + i * (uint64_t)m->lda * size;
		q->m.out = out + i * (uint64_t)m->ldc * size;
		q->o.add = add ? add + i * (uint64_t)m->ldc * size : 0;
		rc = cep_run_kernel(r, k, grid, threads, smem, params);
	}
	return rc;
}

static int32_t run_few(struct cep_node *n, struct cep_run *r, struct cep_mm *m,
		       const struct cep_sum4 *o, uint32_t rows,
		       const struct few *f, const enum cep_kernel k[4][2][3],
		       const enum cep_kernel wide[2], void *params)
{
	uint32_t cols = rows * FEW_WARPS, i = 0, slices = slices_of(o);
	uint64_t units = (uint64_t)((m->n + cols - 1) / cols) *
			 ((m->m + f->rows - 1) / f->rows);
	uint32_t blocks = (uint32_t)n->self->n_sms * f->busy;
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	struct cep_mv *q = params;

	while (8u << i < f->rows)
		i++;
	m->part = r->workspace + (uint64_t)nbits_state(n)->part;
	m->counters = r->sync;
	m->depth = f->depth;
	if (units * slices < blocks)
		blocks = (uint32_t)units * slices;
	q->m = *m;
	q->o = *o;
	return cep_run_kernel(r, f->wide ? wide[bf] : k[i][bf][m->zp_kind],
			      (struct cep_dim3){blocks, 1, 1}, 32 * FEW_WARPS,
			      f->smem, params);
}

// Several rows by the kernel for them, or one by one if they do not begin on 16
// bytes or the GPU has little shared memory; the same sums.
static bool is_few(const struct cep_node *n, const struct cep_mm *m,
		   const struct cep_sum4 *o, struct few *f)
{
	if (m->m < 2 || !m->vec_a)
		return false;
	*f = (struct few){.rows = FEW_MOST,
			  .depth = WFEW_DEPTH,
			  .busy = 1,
			  .smem = WFEW_DEPTH * WFEW_STAGE + 1024,
			  .wide = true};
	if (m->m >= WFEW_FROM && cep_has_wgmma(n->self) &&
	    m->zp_kind == CEP_ZP_NONE && m->k % 64 == 0 &&
	    o->async & CEP_ASYNC_SCALES)
		return true;
	f->wide = false;
	return few_of(n, m->m, f);
}

// Rows of scales and zero points that can be copied asynchronously.
static uint32_t async_of(const struct cep_node *n, const uint64_t *s,
			 const uint64_t *z, uint32_t count, uint32_t shift)
{
	uint64_t unit = shift < 2 ? 8 : 4,
		 row = (uint64_t)nbits_state(n)->blocks * 2;
	uint64_t low = row % unit, zlow;
	bool is_float = nbits_state(n)->zp == CEP_ZP_FLOAT;

	if (shift == 0) // a tile's scales are whole: the last one may be half
		unit = 8;
	zlow = is_float ? low : (uint64_t)nbits_state(n)->zp_row % 4;
	for (uint32_t k = 0; k < count; k++) {
		low |= s[k] % unit;
		if (nbits_state(n)->zp)
			zlow |= z[k] % (is_float ? unit : 4);
	}
	return (low ? 0 : CEP_ASYNC_SCALES) |
	       (nbits_state(n)->zp && !zlow ? CEP_ASYNC_ZEROS : 0);
}

// One row by a matrix whose rows the kernel finds without a table: whole row
// groups, no eight rows of them in two pieces, blocks of 32, all of it copied
// asynchronously.
static bool is_plain(const struct cep_node *n, const struct cep_mm *p,
		     const struct cep_sum4 *o, uint32_t n_tiles,
		     uint32_t tile_rows, uint32_t rows)
{
	uint32_t all =
		CEP_ASYNC_SCALES | (nbits_state(n)->zp ? CEP_ASYNC_ZEROS : 0);

	return o->shift == 0 && o->async == all && p->n % rows == 0 &&
	       (n_tiles == 1 || tile_rows % 8 == 0);
}

// What the norm in front reads and writes.
static struct cep_norm norm_of(const struct cep_node *n,
			       const struct cep_run *r, const struct cep_mm *p)
{
	const struct exec_tensor *skip = n->in[CEP_IN_SKIP];

	return (struct cep_norm){
		.x = n->in[0]->addr,
		.skip = skip ? skip->addr : 0,
		.skip_rows = skip ? exec_count(skip) / p->k : 0,
		.gamma = n->in[CEP_IN_GAMMA]->addr,
		.out = r->workspace + (uint64_t)nbits_state(n)->normed,
		.sum = n->out[1] ? n->out[1]->addr : 0,
		.rows = (uint64_t)nbits_state(n)->m, // p may be some of them
		.dim = p->k,
		.eps = cep_norm_eps(n->norm),
	};
}

// One row is normed by the kernel that multiplies it; else a kernel goes
// before, which sums alike.
static bool norms_itself(const struct cep_node *n, const struct cep_norm *x)
{
	return x->rows == 1 && nbits_state(n)->fast && x->dim <= 8192 &&
	       !((x->x | x->skip | x->gamma | x->sum) & 15);
}

static int32_t norm_before(const struct cep_node *n, struct cep_run *r,
			   struct cep_mm *p)
{
	uint32_t dtype = n->in[0]->dtype;
	struct cep_norm x;

	if (!n->norm)
		return 0;
	x = norm_of(n, r, p);
	if (norms_itself(n, &x))
		return 0;
	p->a = x.out;
	p->vec_a = cep_is_vec(p->a, p->lda, cep_dtype_bytes(dtype));
	return cep_run_norm_of(n, r, dtype, &x);
}

// The sums, and the norm where the kernel does it.
static struct cep_sum4 sum_for(const struct cep_node *n,
			       const struct cep_run *r, const struct cep_mm *p)
{
	struct cep_sum4 o = sum_of(n);
	struct cep_norm x;

	if (!n->norm)
		return o;
	x = norm_of(n, r, p);
	if (norms_itself(n, &x)) {
		o.skip = x.skip;
		o.gamma = x.gamma;
		o.sum = x.sum;
		o.eps = x.eps;
	}
	return o;
}

static int32_t run_gemv4(struct cep_node *n, struct cep_run *r,
			 struct cep_mm *p)
{
	static const enum cep_kernel plain[2][3] = KERNELS(gemv4);
	static const enum cep_kernel pieces[2][3] = KERNELS(gemv4p);
	static const enum cep_kernel tiled[2][3] = KERNELS(gemv4t);
	static const enum cep_kernel several[4][2][3] = FEW(few4);
	static const enum cep_kernel wide[2] = {CEP_K_cep_wfew4_f16,
						CEP_K_cep_wfew4_bf16};
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	struct cep_sum4 o = sum_for(n, r, p);
	struct cep_mv_tiled q;
	struct cep_mv q1;
	struct few f;
	int32_t rc;

	q.n_tiles = r->n_parts ? r->n_parts : 1;
	q.tile_rows = r->n_parts ? r->part_rows : p->n;
	rc = set_parts(n, r, 1, q.b, q.s, q.z);
	o.async = async_of(n, q.s, q.z, q.n_tiles, o.shift);
	if (rc)
		return rc;
	if (is_few(n, p, &o, &f))
		return run_few(n, r, p, &o, 16, &f, several, wide, &q);
	if (!is_plain(n, p, &o, q.n_tiles, q.tile_rows, 16))
		return run_one(n, r, p, &o, 16, tiled[bf][p->zp_kind], &q);
	o.inverse = (uint32_t)((UINT64_C(1) << 32) / q.tile_rows);
	if (q.n_tiles > 1)
		return run_one(n, r, p, &o, 16, pieces[bf][p->zp_kind], &q);
	q1.b[0] = q.b[0];
	q1.s[0] = q.s[0];
	q1.z[0] = q.z[0];
	return run_one(n, r, p, &o, 16, plain[bf][p->zp_kind], &q1);
}

bool cep_is_vec(uint64_t addr, int64_t stride, uint32_t bytes)
{
	return addr % 16 == 0 && stride * bytes % 16 == 0;
}

// Several rows: a grid of 64-column blocks.
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

// Parameters of a quantised product whose matrix begins at input first.
static struct cep_mm nbits_params(const struct cep_node *n,
				  const struct cep_run *r, uint32_t first,
				  uint32_t bias)
{
	const struct nbits_state *s = nbits_state(n);
	const struct exec_tensor *a = n->in[0];
	struct cep_mm p = {
		.a = a->addr,
		.b = n->in[first]->addr,
		.scales = n->in[first + 1]->addr,
		.zp = s->zp ? n->in[first + 2]->addr : 0,
		.bias = cep_in_addr(n, bias),
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
	static const enum cep_kernel k[2][2] = {
		{CEP_K_cep_gemm4_f16_0, CEP_K_cep_gemm4_f16_1},
		{CEP_K_cep_gemm4_bf16_0, CEP_K_cep_gemm4_bf16_1},
	};
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;

	if (!q->m.vec_a)
		return cep_node_fail(n, r->err, GENAI_E_INVAL,
				     "input 0 is not aligned to 16");
	return cep_run_kernel(
		r, k[bf][q->m.zp_kind == CEP_ZP_PACKED],
		(struct cep_dim3){(q->m.n + 63) / 64, (q->m.m + 63) / 64, 1},
		128, 0, q);
}

// The rows of this run, by the kernels for what gemv4 does not take.
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
	if (!n->exact && cep_prompt_takes(r->self, dtype, p))
		return cep_run_prompt(r, dtype, &q);
	if (!n->exact && p->m > 1 && s->gemm4)
		return run_gemm4(n, r, &q);
	if (p->m > 1 || n->exact)
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

static bool is_fast(const struct cep_node *n, const struct cep_mm *p)
{
	return nbits_state(n)->fast && (p->m <= EXACT_ROWS || n->exact);
}

// ---- rows beside the link ----

bool cep_nbits_beside(const struct cep_node *n)
{
	return (n->op->run == cep_run_nbits || n->op->run == cep_run_gate_up) &&
	       nbits_state(n)->beside;
}

static bool goes_beside(const struct cep_node *n, const struct cep_mm *p)
{
	return nbits_state(n)->beside && (p->m <= EXACT_ROWS || n->exact);
}

static int32_t norm_beside(const struct cep_node *n, struct cep_run *r,
			   struct cep_mm *p)
{
	uint32_t dtype = n->in[0]->dtype;
	struct cep_norm x;

	if (!n->norm)
		return 0;
	x = norm_of(n, r, p);
	p->a = x.out;
	p->vec_a = cep_is_vec(p->a, p->lda, cep_dtype_bytes(dtype));
	return cep_beside_norms(n, r) ? cep_run_norm_of(n, r, dtype, &x) : 0;
}

// second 0: there is one matrix.
static int32_t run_beside(struct cep_node *n, struct cep_run *r,
			  struct cep_mm *p, uint32_t second)
{
	struct cep_product4 x = {
		.o = sum_of(n),
		.first = 1,
		.second = second,
		.dual = second,
	};
	struct cep_mv_dual_tiled q;
	int32_t rc = 0;

	q.n_tiles = r->n_parts ? r->n_parts : 1;
	q.tile_rows = r->n_parts ? r->part_rows : p->n;
	if (r->beside != EXEC_ASK && r->beside != EXEC_MEET) {
		rc = set_parts(n, r, 1, q.b, q.s, q.z);
		if (!rc && second)
			rc = set_parts(n, r, second, q.b + CEP_TILES,
				       q.s + CEP_TILES, q.z + CEP_TILES);
	}
	if (second && n->in[second + 3])
		x.bias2 = n->in[second + 3]->addr;
	if (!rc)
		rc = norm_beside(n, r, p);
	x.m = *p;
	return rc ? rc : cep_run_beside(n, r, &x, &q);
}

// Of more rows the host multiplies none: true if that was all there was to do.
static bool for_many(struct cep_node *n, struct cep_run *r,
		     const struct cep_mm *p, uint32_t second, int32_t *out_rc)
{
	const struct cep_product4 x = {
		.m = *p,
		.o = sum_of(n),
		.first = 1,
		.second = second,
		.dual = second,
	};
	bool left = r->beside == EXEC_LEFT;

	*out_rc = 0;
	if (r->beside == EXEC_NOT_BESIDE ||
	    (p->m <= CEP_STAGE_ROWS && goes_beside(n, p)))
		return false;
	if (cep_beside_learn(n, r, &x, out_rc) || *out_rc || !left)
		return r->idle || *out_rc;
	*out_rc = cep_run_staged(n, r, &x, (uint64_t)nbits_state(n)->stage,
				 n->op->run);
	return true;
}

int32_t cep_run_nbits(struct cep_node *n, struct cep_run *r)
{
	struct cep_mm p = nbits_params(n, r, 1, 5);
	int32_t rc;

	if (!p.m || !p.n)
		return 0;
	if (for_many(n, r, &p, 0, &rc))
		return rc;
	if (goes_beside(n, &p))
		return run_beside(n, r, &p, 0);
	rc = norm_before(n, r, &p);
	if (rc)
		return rc;
	if (is_fast(n, &p))
		return run_gemv4(n, r, &p);
	return nbits_general(n, r, &p, 1);
}

// ---- silu(a B0) (a B1): inputs a; b, scales, zp, bias; the same again ----

enum { GATE = 1, UP = 5 };

// Many rows leave silu(gate) up at once.
static bool is_prompt(const struct cep_node *n, const struct nbits_state *s)
{
	const struct cep_mm p = {
		.m = (uint32_t)s->m,
		.k = (uint32_t)s->k,
		.bits = (uint32_t)s->bits,
		.block = (uint32_t)s->block,
		.zp_kind = (uint32_t)s->zp,
		.vec_a = 1, // else the general kernel refuses it too
	};

	return !n->exact && cep_prompt_takes(n->self, n->in[0]->dtype, &p);
}

int32_t cep_prepare_gate_up(struct cep_node *n, struct genai_error *err)
{
	struct nbits_state *s = nbits_state(n);
	struct exec_tensor *in[EXEC_MAX_IN];
	uint32_t n_in = n->n_in, n_out = n->n_out;
	int64_t rows;
	int32_t rc;

	// as the gate's product: its bias is input 5 there
	memcpy(in, n->in, sizeof(in));
	n->in[4] = NULL;
	n->in[5] = in[GATE + 3];
	n->n_in = 6;
	n->n_out = 1;
	rc = prepare(n, err);
	memcpy(n->in, in, sizeof(in));
	n->n_in = n_in;
	n->n_out = n_out;
	if (nbits_state(n)->fast)
		slice_memory(n, 8);
	// both products before they are put together, then the parts; those
	// that are put together at once need no room
	rows = s->m;
	if (is_prompt(n, s))
		rows = CEP_PROMPT_ROWS - 1;
	if (n->exact && (s->fast || s->beside))
		rows = 0;
	s->pair = (rows * s->n * cep_dtype_bytes(n->in[0]->dtype) + 255) / 256 *
		  256;
	s->part = 2 * s->pair;
	n->workspace_bytes += (uint64_t)s->part;
	if (!rc)
		rc = prepare_norm(n, err);
	if (!rc)
		room_for_staged(n);
	return rc;
}

// Both matrices in their parts.
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
	static const enum cep_kernel plain[2][3] = KERNELS(gemv4d);
	static const enum cep_kernel pieces[2][3] = KERNELS(gemv4dp);
	static const enum cep_kernel tiled[2][3] = KERNELS(gemv4dt);
	static const enum cep_kernel several[4][2][3] = FEW(few4d);
	static const enum cep_kernel wide[2] = {CEP_K_cep_wfew4d_f16,
						CEP_K_cep_wfew4d_bf16};
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	struct cep_sum4 o = sum_for(n, r, p);
	struct cep_mv_dual_tiled q;
	struct cep_mv_dual q1;
	struct few f;
	int32_t rc;

	rc = set_pair(n, r, p, &q);
	if (rc)
		return rc;
	o.async = async_of(n, q.s, q.z, q.n_tiles, o.shift) &
		  async_of(n, q.s + CEP_TILES, q.z + CEP_TILES, q.n_tiles,
			   o.shift);
	if (is_few(n, p, &o, &f))
		return run_few(n, r, p, &o, 8, &f, several, wide, &q);
	if (!is_plain(n, p, &o, q.n_tiles, q.tile_rows, 8))
		return run_one(n, r, p, &o, 8, tiled[bf][p->zp_kind], &q);
	o.inverse = (uint32_t)((UINT64_C(1) << 32) / q.tile_rows);
	if (q.n_tiles > 1)
		return run_one(n, r, p, &o, 8, pieces[bf][p->zp_kind], &q);
	q1.bias2 = q.bias2;
	for (uint32_t i = 0; i < 2; i++) {
		q1.b[i] = q.b[i * CEP_TILES];
		q1.s[i] = q.s[i * CEP_TILES];
		q1.z[i] = q.z[i * CEP_TILES];
	}
	return run_one(n, r, p, &o, 8, plain[bf][p->zp_kind], &q1);
}

// silu(gate) up over the rows of this run, from scratch to the output.
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
	if (for_many(n, r, &p, UP, &rc))
		return rc;
	if (goes_beside(n, &p))
		return run_beside(n, r, &p, UP);
	rc = norm_before(n, r, &p);
	if (rc)
		return rc;
	if (is_fast(n, &p))
		return run_gemv4_dual(n, r, &p);
	if (!n->exact && cep_prompt_takes(r->self, dtype, &p)) {
		rc = set_pair(n, r, &p, &q);
		return rc ? rc : cep_run_prompt_pair(r, dtype, &q);
	}
	p.out = r->workspace;
	rc = nbits_general(n, r, &p, GATE);
	u = nbits_params(n, r, UP, UP + 3);
	u.a = p.a;
	u.vec_a = p.vec_a;
	u.out = r->workspace + (uint64_t)s->pair;
	if (!rc)
		rc = nbits_general(n, r, &u, UP);
	return rc ? rc : put_together(n, r, &p, u.out);
}
