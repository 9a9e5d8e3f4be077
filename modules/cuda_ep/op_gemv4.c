// op_gemv4.c - products with 4-bit matrices of 1 to CEP_EXACT_ROWS rows, or of
// any number where many sequences share the step: one matrix, or the pair of a
// SwiGLU.  gemv4 takes one row, few4 more, and on 9.0 wfew4 where it can; they
// give a row the same bits, for all sum in the order of struct cep_sum4.
#include "modules/cuda_ep/op_nbits.h"

// As in kernels/gemv4.cu, tile4.cuh, few.cuh, few4.cu, wfew4.cu.
#define TILE 256
#define DEPTH 3
#define FEW_WARPS 8
#define FEW_MOST 64 // rows of the step that a block of either has at once
#define FEW_DEPTH 4 // stages, at most
#define WFEW_FETCH 128
#define WFEW_SMEM 210944 // and 1,024 to begin where it must
#define WFEW_STAGES 8
#define WFEW_PASS 512 // rows whose activations are put in order at once
#define MOST_CLASSES 16
#define SM_WARPS 16   // of a kernel with 128 registers
#define SOME_TILES 72 // of an SM: more are many
#define FEW_TILES 28  // of a block of half as many warps

static uint32_t least_u32(uint32_t a, uint32_t b)
{
	return a < b ? a : b;
}

static int64_t least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

struct cep_sum4 cep_sum4_of(const struct cep_node *n)
{
	struct cep_sum4 o = {
		.tiles = ((uint32_t)cep_nbits(n)->k + TILE - 1) / TILE,
	};

	o.class_tiles = (o.tiles + MOST_CLASSES - 1) / MOST_CLASSES;
	o.n_class = (o.tiles + o.class_tiles - 1) / o.class_tiles;
	o.slice_classes = (o.n_class + 3) / 4;
	while (32 << o.shift < cep_nbits(n)->block)
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
	return cep_nbits(n)->zp ? 2560 : 2304;
}

// Shared memory of a block: tiles on the way, where its rows lie.
static uint32_t ring_bytes(const struct cep_node *n, uint32_t warps,
			   uint32_t groups)
{
	return warps * DEPTH * stage_of(n) +
	       groups * 16 * (cep_nbits(n)->zp ? 24 : 16);
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

bool cep_gemv4_fits(const struct cep_node *n)
{
	struct cep_sum4 o = cep_sum4_of(n);

	return one_bytes(n, &o, 4, 1) <= (uint32_t)n->self->max_smem - 20480;
}

// How few4 takes m rows: so many at once, stages on the way, blocks of an SM.
struct few {
	uint32_t rows, depth, busy, smem;
};

// Row groups of a unit of wfew4: of one matrix, of a pair.
static uint32_t wide_warps(uint32_t rows)
{
	return rows == 16 ? 8 : 12;
}

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
			uint32_t room = least_u32(all / f->busy - 2048, most);

			if (room < addresses + 2 * stage)
				continue;
			f->depth = least_u32((room - addresses) / stage,
					     FEW_DEPTH);
			f->smem = f->depth * stage + addresses;
			return true;
		}
	return false;
}

// Bytes for the slices of units that are cut, which is what is left over when
// all blocks have as many; warps: row groups of a unit.  More rows never need
// less.
static int64_t slice_bytes(const struct cep_node *n, int64_t units, int64_t m,
			   uint32_t warps)
{
	struct cep_sum4 o = cep_sum4_of(n);
	int64_t rows = least(units * ((m + FEW_MOST - 1) / FEW_MOST * FEW_MOST),
			     (int64_t)n->self->n_sms * FEW_MOST);

	return rows * slices_of(&o) * warps * 16 * 4;
}

// Bytes for the activations of wfew4.
static int64_t image_bytes(const struct cep_node *n, int64_t m)
{
	int64_t rows = (least(m, WFEW_PASS) + FEW_MOST - 1) / FEW_MOST;

	return rows * FEW_MOST * cep_sum4_of(n).tiles * TILE * 2;
}

// May wfew4 take rows of it?
static bool has_wide(const struct cep_node *n)
{
	const struct cep_nbits *s = cep_nbits(n);

	return cep_has_wgmma(n->self) && s->zp == CEP_ZP_NONE &&
	       s->k % 64 == 0 && s->k >= 128;
}

void cep_gemv4_memory(struct cep_node *n, int64_t rows)
{
	struct cep_nbits *s = cep_nbits(n);
	struct cep_sum4 o = cep_sum4_of(n);
	int64_t units = (s->n + rows * FEW_WARPS - 1) / (rows * FEW_WARPS);
	int64_t wide = rows * wide_warps((uint32_t)rows), most;
	int64_t m = n->exact ? s->m : least(s->m, CEP_EXACT_ROWS);

	s->part = s->image = 0;
	if (m < 2)
		return;
	if (slices_of(&o) > 1) {
		s->image = slice_bytes(n, units, m, FEW_WARPS);
		most = least(units * ((m + 7) / 8),
			     (int64_t)n->self->n_sms * 2);
		n->sync_bytes = (uint64_t)most * 4;
	}
	if (has_wide(n)) {
		most = slice_bytes(n, (s->n + wide - 1) / wide, m,
				   wide_warps((uint32_t)rows));
		if (slices_of(&o) > 1 && most > s->image)
			s->image = most;
		most = s->image + image_bytes(n, m);
	} else {
		most = s->image;
	}
	n->workspace_bytes = (uint64_t)most;
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
		warps = least_u32(SM_WARPS / busy, groups * o->n_class);
		if (some && groups * o->tiles <= FEW_TILES)
			warps = least_u32(warps, SM_WARPS / 2);
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
		uint32_t warps = least_u32(4, o->n_class);

		p->groups = 1;
		*threads = 32 * warps;
		*smem = one_bytes(n, o, warps, 1);
	}
	*grid = (struct cep_dim3){(n_rg + p->groups - 1) / p->groups, 1, 1};
}

// ---- where the matrices lie ----

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
		if (cep_nbits(n)->zp)
			z[k] = r->n_parts ? at[2] : n->in[first + 2]->addr;
	}
	return low ? cep_node_fail(n, r->err, GENAI_E_INVAL,
				   "weights are not aligned to 16")
		   : 0;
}

int32_t cep_set_parts(const struct cep_node *n, const struct cep_run *r,
		      const struct cep_mm *p, uint32_t first,
		      struct cep_mv_tiled *q)
{
	q->m = *p;
	q->n_tiles = r->n_parts ? r->n_parts : 1;
	q->tile_rows = r->n_parts ? r->part_rows : p->n;
	return set_parts(n, r, first, q->b, q->s, q->z);
}

int32_t cep_set_pair(const struct cep_node *n, const struct cep_run *r,
		     const struct cep_mm *p, uint32_t second,
		     struct cep_mv_dual_tiled *q)
{
	int32_t rc = set_parts(n, r, 1, q->b, q->s, q->z);

	q->m = *p;
	q->n_tiles = r->n_parts ? r->n_parts : 1;
	q->tile_rows = r->n_parts ? r->part_rows : p->n;
	q->bias2 = 0;
	if (rc || !second)
		return rc;
	if (n->in[second + 3])
		q->bias2 = n->in[second + 3]->addr;
	return set_parts(n, r, second, q->b + CEP_TILES, q->s + CEP_TILES,
			 q->z + CEP_TILES);
}

// Rows of scales and zero points that can be copied asynchronously.
static uint32_t async_of(const struct cep_node *n, const uint64_t *s,
			 const uint64_t *z, uint32_t count, uint32_t shift)
{
	uint64_t unit = shift < 2 ? 8 : 4,
		 row = (uint64_t)cep_nbits(n)->blocks * 2;
	uint64_t low = row % unit, zlow;
	bool is_float = cep_nbits(n)->zp == CEP_ZP_FLOAT;

	if (shift == 0) // a tile's scales are whole: the last one may be half
		unit = 8;
	zlow = is_float ? low : (uint64_t)cep_nbits(n)->zp_row % 4;
	for (uint32_t k = 0; k < count; k++) {
		low |= s[k] % unit;
		if (cep_nbits(n)->zp)
			zlow |= z[k] % (is_float ? unit : 4);
	}
	return (low ? 0 : CEP_ASYNC_SCALES) |
	       (cep_nbits(n)->zp && !zlow ? CEP_ASYNC_ZEROS : 0);
}

// One row by a matrix whose rows the kernel finds without a table: whole row
// groups, no eight rows of them in two pieces, blocks of 32, all of it copied
// asynchronously.
static bool is_plain(const struct cep_node *n, const struct cep_mm *p,
		     const struct cep_sum4 *o, uint32_t n_tiles,
		     uint32_t tile_rows, uint32_t rows)
{
	uint32_t all =
		CEP_ASYNC_SCALES | (cep_nbits(n)->zp ? CEP_ASYNC_ZEROS : 0);

	return o->shift == 0 && o->async == all && p->n % rows == 0 &&
	       (n_tiles == 1 || tile_rows % 8 == 0);
}

// ---- launching ----

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

#define WIDE(form)                                                             \
	{                                                                      \
		{CEP_K_cep_##form##_8_f16, CEP_K_cep_##form##_8_bf16},         \
			{CEP_K_cep_##form##_16_f16,                            \
			 CEP_K_cep_##form##_16_bf16},                          \
			{CEP_K_cep_##form##_32_f16,                            \
			 CEP_K_cep_##form##_32_bf16},                          \
			{CEP_K_cep_##form##_64_f16,                            \
			 CEP_K_cep_##form##_64_bf16},                          \
	}

// One matrix, or a pair of one shape.
static const struct form {
	enum cep_kernel plain[2][3], pieces[2][3], tiled[2][3];
	enum cep_kernel few[4][2][3], wide[4][2];
	uint32_t rows; // of a row group
} forms[] = {
	{KERNELS(gemv4), KERNELS(gemv4p), KERNELS(gemv4t), FEW(few4),
	 WIDE(wfew4), 16},
	{KERNELS(gemv4d), KERNELS(gemv4dp), KERNELS(gemv4dt), FEW(few4d),
	 WIDE(wfew4d), 8},
};

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

// The kernel for that many rows at once.
static uint32_t form_of(uint32_t rows)
{
	uint32_t i = 0;

	while (8u << i < rows)
		i++;
	return i;
}

// Several rows by the kernel for them, or one by one if they do not begin on 16
// bytes or the GPU has little shared memory; the same sums.
static bool is_few(const struct cep_node *n, const struct cep_mm *m,
		   struct few *f)
{
	return m->m > 1 && m->vec_a && few_of(n, m->m, f);
}

static int32_t run_few(struct cep_node *n, struct cep_run *r, struct cep_mm *m,
		       const struct cep_sum4 *o, const struct form *form,
		       const struct few *f, void *params)
{
	uint32_t cols = form->rows * FEW_WARPS, slices = slices_of(o);
	uint64_t units = (uint64_t)((m->n + cols - 1) / cols) *
			 ((m->m + f->rows - 1) / f->rows);
	uint32_t blocks = (uint32_t)n->self->n_sms * f->busy;
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	struct cep_mv *q = params;

	m->part = r->workspace + (uint64_t)cep_nbits(n)->part;
	m->counters = r->sync;
	m->depth = f->depth;
	if (units * slices < blocks)
		blocks = (uint32_t)units * slices;
	q->m = *m;
	q->o = *o;
	return cep_run_kernel(r, form->few[form_of(f->rows)][bf][m->zp_kind],
			      (struct cep_dim3){blocks, 1, 1}, 32 * FEW_WARPS,
			      f->smem, params);
}

static bool is_wide(const struct cep_node *n, const struct cep_mm *m,
		    const struct cep_sum4 *o)
{
	return m->m > 1 && m->vec_a && has_wide(n) &&
	       o->async & CEP_ASYNC_SCALES;
}

// So many rows of m at once.
static uint32_t wide_rows(uint32_t m)
{
	uint32_t rows = 8;

	while (rows < m && rows < FEW_MOST)
		rows *= 2;
	return rows;
}

static uint64_t image_at(const struct cep_node *n, const struct cep_run *r)
{
	const struct cep_nbits *s = cep_nbits(n);

	return r->workspace + (uint64_t)(s->part + s->image);
}

// One pass: the activations in order, and the product.
static int32_t run_pass(struct cep_node *n, struct cep_run *r,
			const struct form *form, struct cep_mv *q)
{
	uint32_t warps = wide_warps(form->rows), cols = form->rows * warps;
	uint32_t blocks = (uint32_t)n->self->n_sms, stage, stages;
	uint64_t units = (q->m.n + cols - 1) / cols, items;
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	struct cep_image4_params x = {
		.a = q->m.a,
		.out = image_at(n, r),
		.lda = q->m.lda,
		.m = q->m.m,
		.k = q->m.k,
		.rows = wide_rows(q->m.m),
	};
	int32_t rc = 0;

	if (!q->m.in_order)
		rc = cep_run_kernel(r, CEP_K_cep_image4,
				    (struct cep_dim3){q->o.tiles,
						      ((x.m + x.rows - 1) /
							       x.rows * x.rows +
						       15) / 16,
						      1},
				    128, 0, &x);
	stage = x.rows * TILE * 2 + warps * 16 * (TILE / 2 + 16);
	stages = least_u32(WFEW_SMEM / stage, WFEW_STAGES);
	units *= (x.m + x.rows - 1) / x.rows;
	items = units * slices_of(&q->o);
	if (items < blocks)
		blocks = (uint32_t)items;
	q->m.a = x.out;
	return rc ? rc
		  : cep_run_kernel(r, form->wide[form_of(x.rows)][bf],
				   (struct cep_dim3){blocks, 1, 1},
				   32 * warps + WFEW_FETCH,
				   stages * stage + 1024, q);
}

// m and o begin params, whatever the form.
static int32_t run_wide(struct cep_node *n, struct cep_run *r,
			const struct cep_mm *m, const struct cep_sum4 *o,
			const struct form *form, void *params)
{
	uint64_t size = cep_dtype_bytes(n->in[0]->dtype);
	struct cep_mv *q = params;
	int32_t rc = 0;

	for (uint32_t i = 0; i < m->m && !rc; i += WFEW_PASS) {
		q->m = *m;
		q->o = *o;
		q->m.m = least_u32(m->m - i, WFEW_PASS);
		q->m.a += i * (uint64_t)m->lda * size;
		q->m.out += i * (uint64_t)m->ldc * size;
		if (o->add)
			q->o.add += i * (uint64_t)m->ldc * size;
		q->m.part = r->workspace + (uint64_t)cep_nbits(n)->part;
		q->m.counters = r->sync;
		rc = run_pass(n, r, form, q);
	}
	return rc;
}

union matrices {
	struct cep_mv_tiled one;
	struct cep_mv_dual_tiled pair;
};

static int32_t set_matrices(const struct cep_node *n, const struct cep_run *r,
			    const struct cep_mm *p, uint32_t second,
			    union matrices *q, struct cep_sum4 *o)
{
	uint32_t tiles = r->n_parts ? r->n_parts : 1;
	int32_t rc;

	if (!second) {
		rc = cep_set_parts(n, r, p, 1, &q->one);
		if (!rc)
			o->async = async_of(n, q->one.s, q->one.z, tiles,
					    o->shift);
		return rc;
	}
	rc = cep_set_pair(n, r, p, second, &q->pair);
	if (!rc)
		o->async = async_of(n, q->pair.s, q->pair.z, tiles, o->shift) &
			   async_of(n, q->pair.s + CEP_TILES,
				    q->pair.z + CEP_TILES, tiles, o->shift);
	return rc;
}

uint32_t cep_rows_in_order(const struct cep_node *n, const struct cep_run *r,
			   const struct cep_mm *p, uint32_t second,
			   uint64_t *out)
{
	struct cep_sum4 o = cep_sum4_of(n);
	union matrices q;

	if (p->m < 2 || p->m > WFEW_PASS || p->k % TILE || p->k > 8192 ||
	    !has_wide(n) || set_matrices(n, r, p, second, &q, &o) ||
	    !(o.async & CEP_ASYNC_SCALES))
		return 0;
	*out = image_at(n, r);
	return wide_rows(p->m);
}

int32_t cep_run_gemv4(struct cep_node *n, struct cep_run *r, struct cep_mm *p,
		      const struct cep_sum4 *sum, uint32_t second)
{
	const struct form *form = &forms[second != 0];
	bool bf = n->in[0]->dtype == GENAI_DT_BF16;
	uint32_t tile_rows = r->n_parts ? r->part_rows : p->n;
	uint32_t tiles = r->n_parts ? r->n_parts : 1;
	struct cep_sum4 o = *sum;
	union matrices q;
	union {
		struct cep_mv one;
		struct cep_mv_dual pair;
	} plain;
	struct few f;
	int32_t rc = set_matrices(n, r, p, second, &q, &o);

	if (rc)
		return rc;
	if (is_wide(n, p, &o))
		return run_wide(n, r, p, &o, form, &q);
	if (is_few(n, p, &f))
		return run_few(n, r, p, &o, form, &f, &q);
	if (!is_plain(n, p, &o, tiles, tile_rows, form->rows))
		return run_one(n, r, p, &o, form->rows,
			       form->tiled[bf][p->zp_kind], &q);
	o.inverse = (uint32_t)((UINT64_C(1) << 32) / tile_rows);
	if (tiles > 1)
		return run_one(n, r, p, &o, form->rows,
			       form->pieces[bf][p->zp_kind], &q);
	if (second) {
		for (uint32_t i = 0; i < 2; i++) {
			plain.pair.b[i] = q.pair.b[i * CEP_TILES];
			plain.pair.s[i] = q.pair.s[i * CEP_TILES];
			plain.pair.z[i] = q.pair.z[i * CEP_TILES];
		}
		plain.pair.bias2 = q.pair.bias2;
	} else {
		plain.one.b[0] = q.one.b[0];
		plain.one.s[0] = q.one.s[0];
		plain.one.z[0] = q.one.z[0];
	}
	return run_one(n, r, p, &o, form->rows, form->plain[bf][p->zp_kind],
		       &plain);
}
