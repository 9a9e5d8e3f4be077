// attention.c - softmax attention, tile by tile of keys.
// Query rows of the heads that share a key head are taken together: row r is
// query r / G of head r % G of the group.  With few rows the tiles are shared
// out among threads and folded afterwards; with many, the rows are.
#include "modules/cpu_ref/attention.h"

#define AT_ROWS 48u	 // rows of a unit
#define AT_SLICES 32u	 // threads that can take part
#define AT_PARTS 131072u // floats of tiles' results that wait for the fold

_Static_assert(AT_ROWS <= CREF_AT_ROWS, "a unit's rows are folded at once");

// One thread's scratch.
struct at_slice {
	float *q, *kt, *vt, *s, *tacc,
		*acc; // q: [rows][H], acc: [rows][wide]
	float m[AT_ROWS], l[AT_ROWS], tm[AT_ROWS], tl[AT_ROWS];
};

struct at_task {
	const struct cref_attn *a;
	const struct cref_kern *k;
	uint64_t G, wide; // Hv rounded up
	uint64_t blocks;  // of AT_ROWS rows, per (b, kv head)
	uint64_t slices, units;
	uint64_t tile0, tiles; // of this round, when tiles are shared out
	float *part;	    // [unit][tile]: acc[rows][wide], m[rows], l[rows]
	uint64_t part_rows; // of a block
};

static uint64_t at_wide(uint64_t h)
{
	return (h + CREF_MM_COLS - 1) / CREF_MM_COLS * CREF_MM_COLS;
}

static uint64_t at_slice_floats(uint64_t H, uint64_t wide)
{
	const uint64_t h = (H + 15) / 16 * 16;

	return (AT_ROWS + CREF_AT_TILE) * h +
	       (CREF_AT_TILE + 2 * AT_ROWS) * wide + AT_ROWS * CREF_AT_TILE;
}

// Do the results of two tiles or more of all rows fit?
static bool at_parts_fit(uint64_t B, uint64_t S, uint64_t N, uint64_t wide)
{
	return B * S * N * (wide + 2) <= AT_PARTS;
}

uint64_t cref_attn_ws(uint64_t B, uint64_t S, uint64_t N, uint64_t Nkv,
		      uint64_t H, uint64_t Hv)
{
	const uint64_t cap = (uint64_t)1 << 40;

	(void)Nkv;
	if (H > 65536 || Hv > 65536 || B > cap || S > cap || N > cap ||
	    B * S > cap || B * S * N > cap)
		return 0;
	// those that need no room for parts are planned with it, too: the
	// memory for the longest prompt has to do for all others
	return (AT_SLICES * at_slice_floats(H, at_wide(Hv)) + AT_PARTS) *
	       sizeof(float);
}

static void at_slice_init(const struct at_task *t, uint64_t i,
			  struct at_slice *s)
{
	const uint64_t h = (t->a->H + 15) / 16 * 16;
	float *p = t->a->ws;

	p += i * at_slice_floats(t->a->H, t->wide);
	s->q = p;
	s->kt = s->q + AT_ROWS * h;
	s->vt = s->kt + CREF_AT_TILE * h;
	s->s = s->vt + CREF_AT_TILE * t->wide;
	s->tacc = s->s + AT_ROWS * CREF_AT_TILE;
	s->acc = s->tacc + AT_ROWS * t->wide;
}

// A unit: rows [r0, r0 + n) of key head h in batch entry b.
struct at_unit {
	uint64_t b, h, r0, n;
	uint64_t lo, hi; // keys that any of them sees
};

// Keys [lo, hi) that query i sees.
static void at_seen(const struct cref_attn *a, uint64_t b, uint64_t i,
		    int64_t *lo, int64_t *hi)
{
	const int64_t pos = a->past[b] + (int64_t)i, T = a->total[b];

	*hi = a->causal && pos + 1 < T ? pos + 1 : T;
	*lo = a->window && pos + 1 > a->window ? pos + 1 - a->window : 0;
	if (a->causal && pos >= T)
		*hi = *lo = 0;
}

// Query rows of batch entry b, and the first of them.
static uint64_t at_len(const struct cref_attn *a, uint64_t b)
{
	return a->first ? (uint64_t)(a->first[b + 1] - a->first[b]) : a->S;
}

static uint64_t at_row(const struct cref_attn *a, uint64_t b, uint64_t i)
{
	return (a->first ? (uint64_t)a->first[b] : b * a->S) + i;
}

static uint64_t at_blocks(const struct at_task *t, uint64_t b)
{
	return (at_len(t->a, b) * t->G + AT_ROWS - 1) / AT_ROWS;
}

static struct at_unit at_unit_of(const struct at_task *t, uint64_t u)
{
	const struct cref_attn *a = t->a;
	struct at_unit x = {0};
	uint64_t rows, blocks = t->blocks;
	int64_t lo, hi;

	if (a->first) {
		while (u >= a->Nkv * at_blocks(t, x.b))
			u -= a->Nkv * at_blocks(t, x.b++);
		blocks = at_blocks(t, x.b);
	} else {
		x.b = u / blocks / a->Nkv;
	}
	rows = at_len(a, x.b) * t->G;
	x.r0 = u % blocks * AT_ROWS;
	x.n = rows - x.r0 < AT_ROWS ? rows - x.r0 : AT_ROWS;
	x.h = u / blocks % a->Nkv;
	x.lo = UINT64_MAX;
	for (uint64_t i = x.r0 / t->G; i <= (x.r0 + x.n - 1) / t->G; i++) {
		at_seen(a, x.b, i, &lo, &hi);
		if (lo >= hi)
			continue;
		x.lo = x.lo < (uint64_t)lo ? x.lo : (uint64_t)lo;
		x.hi = x.hi > (uint64_t)hi ? x.hi : (uint64_t)hi;
	}
	x.lo = x.lo < x.hi ? x.lo : x.hi;
	return x;
}

static void at_gather_q(const struct at_task *t, const struct at_unit *x,
			struct at_slice *s)
{
	const struct cref_attn *a = t->a;

	for (uint64_t r = 0; r < x->n; r++) {
		const uint64_t i = (x->r0 + r) / t->G, g = (x->r0 + r) % t->G;

		memcpy(s->q + r * a->H,
		       a->q + (at_row(a, x->b, i) * a->N + x->h * t->G + g) *
				       a->H,
		       a->H * sizeof(float));
	}
}

// n rows from row on, at *out_stride elements, of a tile: where they lie, or,
// if its rows are in several blocks or quantised, together in tmp.
static const char *at_rows(const struct cref_kv *kv, const struct at_unit *x,
			   int64_t row, uint64_t n, uint64_t d, float *tmp,
			   int64_t *out_stride, uint32_t *out_dtype)
{
	const int64_t b = (int64_t)x->b, h = (int64_t)x->h;
	const uint64_t bytes = d * (uint64_t)cref_kv_size(kv->dtype);

	*out_stride = kv->row;
	*out_dtype = kv->dtype;
	if (kv->bits) {
		for (uint64_t i = 0; i < n; i++)
			cref_kv_get(kv, b, h, row + (int64_t)i, tmp + i * d, d);
		*out_stride = (int64_t)d;
		*out_dtype = GENAI_DT_F32;
		return (const char *)tmp;
	}
	if (!kv->block || kv->block % CREF_AT_TILE == 0)
		return cref_kv_at(kv, b, h, row);
	for (uint64_t i = 0; i < n; i++)
		memcpy((char *)tmp + i * bytes,
		       cref_kv_at(kv, b, h, row + (int64_t)i), bytes);
	*out_stride = (int64_t)d;
	return (const char *)tmp;
}

// Scores of row r of the unit into weights.
static void at_weigh(const struct at_task *t, const struct at_unit *x,
		     uint64_t key0, uint64_t r, struct at_slice *s)
{
	const struct cref_attn *a = t->a;
	const uint64_t i = (x->r0 + r) / t->G;
	const uint64_t head = x->h * t->G + (x->r0 + r) % t->G;
	const int64_t k0 = (int64_t)key0, end = k0 + CREF_AT_TILE;
	struct cref_at_row row = {.scale = a->scale, .softcap = a->softcap};
	int64_t lo, hi;

	at_seen(a, x->b, i, &lo, &hi);
	lo = lo > k0 ? lo : k0;
	hi = hi < end ? hi : end;
	if (lo < hi) {
		row.lo = (uint32_t)(lo - k0);
		row.hi = (uint32_t)(hi - k0);
	}
	if (a->bias) {
		const int64_t size = a->bias_dtype == GENAI_DT_F32 ? 4 : 2;

		row.bias_dtype = a->bias_dtype;
		row.bias =
			(const char *)a->bias + ((int64_t)x->b * a->bias_batch +
						 (int64_t)head * a->bias_head +
						 (int64_t)i * a->bias_row +
						 k0) * size;
	}
	t->k->at_softmax(s->s + r * CREF_AT_TILE, &row, &s->tm[r], &s->tl[r]);
}

// A tile's weights and weighted sums for the unit's rows, into s->tm, tl and
// tacc.  s->q is there.
static void at_tile(const struct at_task *t, const struct at_unit *x,
		    uint64_t tile, struct at_slice *s)
{
	const struct cref_attn *a = t->a;
	const uint64_t key0 = tile * CREF_AT_TILE;
	const int64_t row = (int64_t)key0 - (a->base ? a->base[x->b] : 0);
	uint64_t n = (uint64_t)a->total[x->b] - key0;
	const char *rows;
	uint32_t dtype;
	int64_t stride;

	n = n < CREF_AT_TILE ? n : CREF_AT_TILE;
	// one of the two tiles is free while the other is filled
	rows = at_rows(&a->k, x, row, n, a->H, s->vt, &stride, &dtype);
	t->k->at_keys(s->kt, rows, dtype, stride, n, a->H);
	for (uint64_t j = 0; j < n; j += CREF_MM_COLS)
		for (uint64_t d = 0; d < a->H; d += CREF_MM_CHUNK) {
			const uint64_t v = a->H - d < CREF_MM_CHUNK
						   ? a->H - d
						   : CREF_MM_CHUNK;

			t->k->mm_tile(s->q + d, a->H,
				      s->kt + j * a->H + d * CREF_MM_COLS, v,
				      s->s + j, CREF_AT_TILE, x->n, d > 0);
		}
	for (uint64_t r = 0; r < x->n; r++)
		at_weigh(t, x, key0, r, s);
	rows = at_rows(&a->v, x, row, n, a->Hv, s->kt, &stride, &dtype);
	t->k->mm_pack(s->vt, rows, dtype, (uint64_t)stride, 0, a->Hv, n);
	for (uint64_t d = 0; d < t->wide; d += CREF_MM_COLS)
		t->k->mm_tile(s->s, CREF_AT_TILE, s->vt + d * n, n, s->tacc + d,
			      t->wide, x->n, false);
}

// Divide by the sum and store row r of the unit.
static void at_finish(const struct at_task *t, const struct at_unit *x,
		      uint64_t r, float *acc, float m, float l)
{
	const struct cref_attn *a = t->a;
	const uint64_t i = (x->r0 + r) / t->G;
	const uint64_t head = x->h * t->G + (x->r0 + r) % t->G;
	const uint64_t size = a->out_dtype == GENAI_DT_F32 ? 4 : 2;
	const float none = -INFINITY;

	if (a->sink || a->smooth) {
		const float sink =
			a->sink ? cref_load(a->sink, a->sink_dtype, head) : 0;
		const float top = m > sink ? m : sink;

		if (m != none && sink != none) {
			const float f = cref_expf(m - top);

			l = l * f + cref_expf(sink - top);
			for (uint64_t d = 0; d < a->Hv; d++)
				acc[d] *= f;
		}
	}
	for (uint64_t d = 0; d < a->Hv; d++)
		acc[d] = m == none ? 0 : acc[d] / l;
	t->k->narrow((char *)a->out +
			     (at_row(a, x->b, i) * a->N + head) * a->Hv * size,
		     a->out_dtype, acc, a->Hv);
}

static void at_start(const struct at_task *t, uint64_t n, struct at_slice *s)
{
	for (uint64_t r = 0; r < n; r++) {
		s->m[r] = -INFINITY;
		s->l[r] = 0;
		memset(s->acc + r * t->wide, 0, t->wide * sizeof(float));
	}
}

// Whole units, dealt out in turn: later rows see more keys.
static void at_units_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct at_task *t = ctx;

	for (uint64_t i = begin; i < end; i++) {
		struct at_slice s;

		at_slice_init(t, i, &s);
		for (uint64_t u = i; u < t->units; u += t->slices) {
			const struct at_unit x = at_unit_of(t, u);

			at_gather_q(t, &x, &s);
			at_start(t, x.n, &s);
			for (uint64_t k = x.lo / CREF_AT_TILE;
			     k * CREF_AT_TILE < x.hi; k++) {
				at_tile(t, &x, k, &s);
				t->k->at_fold(x.n, s.acc, s.m, s.l, s.tacc,
					      s.tm, s.tl, t->wide);
			}
			for (uint64_t r = 0; r < x.n; r++)
				at_finish(t, &x, r, s.acc + r * t->wide, s.m[r],
					  s.l[r]);
		}
	}
}

static float *at_part(const struct at_task *t, uint64_t u, uint64_t tile)
{
	return t->part + (u * t->tiles + tile) * t->part_rows * (t->wide + 2);
}

// Tiles of this round, their results put by.
static void at_tiles_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct at_task *t = ctx;
	const uint64_t items = t->units * t->tiles;

	for (uint64_t i = begin; i < end; i++) {
		struct at_slice s;
		uint64_t j = items * i / t->slices;

		at_slice_init(t, i, &s);
		for (; j < items * (i + 1) / t->slices; j++) {
			const uint64_t u = j / t->tiles;
			const uint64_t k = t->tile0 + j % t->tiles;
			const struct at_unit x = at_unit_of(t, u);
			float *to = at_part(t, u, j % t->tiles);

			if (k < x.lo / CREF_AT_TILE || k * CREF_AT_TILE >= x.hi)
				continue;
			at_gather_q(t, &x, &s);
			at_tile(t, &x, k, &s);
			memcpy(to, s.tacc, x.n * t->wide * sizeof(float));
			to += t->part_rows * t->wide;
			memcpy(to, s.tm, x.n * sizeof(float));
			memcpy(to + t->part_rows, s.tl, x.n * sizeof(float));
		}
	}
}

// Fold a round's tiles into the rows' sums, which are laid out like one more
// tile of each unit.
static void at_fold_round(const struct at_task *t, float *sums, bool first,
			  bool last)
{
	const uint64_t rows = t->part_rows;

	for (uint64_t u = 0; u < t->units; u++) {
		const struct at_unit x = at_unit_of(t, u);
		float *acc = sums + u * rows * (t->wide + 2);
		float *m = acc + rows * t->wide, *l = m + rows;

		for (uint64_t r = 0; r < x.n && first; r++) {
			memset(acc + r * t->wide, 0, t->wide * sizeof(float));
			m[r] = -INFINITY;
			l[r] = 0;
		}
		for (uint64_t i = 0; i < t->tiles; i++) {
			const uint64_t k = t->tile0 + i;
			const float *p = at_part(t, u, i);
			const float *tm = p + rows * t->wide;

			if (k >= x.lo / CREF_AT_TILE && k * CREF_AT_TILE < x.hi)
				t->k->at_fold(x.n, acc, m, l, p, tm, tm + rows,
					      t->wide);
		}
		for (uint64_t r = 0; r < x.n && last; r++)
			at_finish(t, &x, r, acc + r * t->wide, m[r], l[r]);
	}
}

// Share the tiles out, as many at a time as the workspace holds.
static void at_run_tiles(struct at_task *t, struct cref_pool *pool)
{
	const struct cref_attn *a = t->a;
	const uint64_t rows = a->S * t->G;
	uint64_t lo = UINT64_MAX, hi = 0, one, room;
	float *sums;

	t->part = (float *)a->ws + AT_SLICES * at_slice_floats(a->H, t->wide);
	t->part_rows = rows < AT_ROWS ? rows : AT_ROWS;
	one = t->units * t->part_rows * (t->wide + 2);
	room = AT_PARTS / one - 1;
	for (uint64_t u = 0; u < t->units; u++) {
		const struct at_unit x = at_unit_of(t, u);
		const uint64_t end = (x.hi + CREF_AT_TILE - 1) / CREF_AT_TILE;

		lo = lo < x.lo / CREF_AT_TILE ? lo : x.lo / CREF_AT_TILE;
		hi = hi > end ? hi : end;
	}
	sums = t->part + room * one;
	t->tile0 = lo;
	do {
		t->tiles = hi - t->tile0 < room ? hi - t->tile0 : room;
		cref_pool_run(pool, at_tiles_part, t, t->slices, 1);
		at_fold_round(t, sums, t->tile0 == lo,
			      t->tile0 + t->tiles >= hi);
		t->tile0 += t->tiles;
	} while (t->tile0 < hi);
}

void cref_attn_run(const struct cref_attn *a, struct cref_pool *pool)
{
	const uint64_t threads = cref_pool_threads(pool);
	struct at_task t = {.a = a, .k = cref_kern()};
	uint64_t one;

	if (!a->B || !a->S || !a->N || !a->Hv)
		return;
	t.G = a->N / a->Nkv;
	t.wide = at_wide(a->Hv);
	t.blocks = (a->S * t.G - 1) / AT_ROWS + 1;
	t.units = a->B * a->Nkv * t.blocks;
	if (a->first) {
		t.units = 0;
		for (uint64_t b = 0; b < a->B; b++)
			t.units += a->Nkv * at_blocks(&t, b);
	}
	t.slices = threads < AT_SLICES ? threads : AT_SLICES;
	one = t.units * (t.wide + 2) *
	      (a->S * t.G < AT_ROWS ? a->S * t.G : AT_ROWS);
	// two tiles at least must fit beside the sums
	if (threads > 1 && !a->first && t.units < 4 * threads &&
	    one * 3 <= AT_PARTS && at_parts_fit(a->B, a->S, a->N, t.wide))
		at_run_tiles(&t, pool);
	else
		cref_pool_run(pool, at_units_part, &t, t.slices, 1);
}
