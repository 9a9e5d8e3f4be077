/* kern_nbits.h - products with weights of few bits, compiled for every level.
 *
 * The lanes of a vector are rows of W: 16 rows are turned so that one vector
 * holds the same k of each.  The sum over k of one row: a run is 32 elements
 * (16 where blocks have 16), its codes times the activations are summed from 0
 * in order with fused multiply-adds, then
 *
 *	run -= zero * (sum of the run's activations)	if there are zero points
 *	sum += scale * run
 *
 * each rounded once.  Codes of 4 bits count from 0, and there always is a zero
 * point.  Code k is taken from its word where it stands, 16^(k % 8) times as
 * large, and its activation is as much smaller; the last of a word is moved
 *down. Other codes and zero points count from the middle of the codes' range,
 *and stand in the top bits of a word of 32, 2^(32 - bits) times as large; the
 *last sum is divided by that.  All of that is exact, so the same bits come out
 * whatever the level, the number of rows of A and the cut of W. */

/* Elements that are turned at once: 16 bytes of 4-bit codes, or 32 of 8; codes
 * of 2 bits become such of 8 first. */
#define NB_UNIT 32u
#define NB_GROUPS (CREF_NB_TILE / 16)

VF uint64_t nb_min(uint64_t a, uint64_t b)
{
	return a < b ? a : b;
}

/* A power of two. */
VF float nb_power(int e)
{
	return cref_unbits((uint32_t)(127 + e) << 23);
}

/* What codes are multiplied by, besides where they stand. */
VF float nb_up(const struct cref_nbits *w)
{
	return w->bits == 4 ? 1 : nb_power(32 - (int)w->bits);
}
VF float nb_down(const struct cref_nbits *w)
{
	return w->bits == 4 ? 1 : nb_power((int)w->bits - 32);
}
VF bool nb_has_zero(const struct cref_nbits *w)
{
	return w->bits == 4 || w->z_kind != CREF_Z_NONE;
}

/* 16^-i, that of the last nibble of a word 1. */
VF vf nb_places(void)
{
	static const float p[16] = {
		1, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-20f, 0x1p-24f, 1,
		1, 0x1p-4f, 0x1p-8f, 0x1p-12f, 0x1p-16f, 0x1p-20f, 0x1p-24f, 1};

	return vf_load(p);
}

/* Where the rows of a tile lie; those past its end repeat its last. */
struct nb_tile {
	uint64_t row[CREF_NB_TILE];
	const unsigned char *q[CREF_NB_TILE];
	/* the tile after it: where it begins, bytes for each part of 8
	 * elements, or of 16 */
	const char *q_next, *s_next, *z_next;
	uint64_t q_step, s_step, z_step;
};

VF void nb_tile_at(const struct cref_nbits *w, uint64_t n0, uint64_t n1,
		   struct nb_tile *t)
{
	const uint64_t parts = (w->K + NB_UNIT - 1) / NB_UNIT * 4;

	for (unsigned i = 0; i < CREF_NB_TILE; i++) {
		t->row[i] = nb_min(n0 + i, n1 - 1);
		t->q[i] = w->b + t->row[i] * w->b_row;
	}
	n0 += CREF_NB_TILE;
	t->q_next = (const char *)w->b + n0 * w->b_row;
	t->s_next = (const char *)w->s + n0 * w->s_row;
	t->z_next = w->z ? (const char *)w->z + n0 * w->z_row : t->s_next;
	t->q_step = CREF_NB_TILE * w->b_row / parts;
	t->s_step = CREF_NB_TILE * w->s_row * 2 / parts;
	t->z_step = w->z ? CREF_NB_TILE * w->z_row * 2 / parts : 0;
}

VF void nb_ask(const char *p, uint64_t step, uint64_t i)
{
	for (uint64_t at = 0; at < step; at += 64)
		__builtin_prefetch(
			(const void *)((uintptr_t)p + i * step + at));
}

/* Ask for a part of the next tile while this one's part i is worked on: eight
 * elements, so that few lines are under way at a time.  The addresses may lie
 * outside of the weights; asking is no access. */
VF void nb_ahead(const struct nb_tile *t, uint64_t i)
{
	nb_ask(t->q_next, t->q_step, i);
	if (i % 2)
		return;
	nb_ask(t->s_next, t->s_step, i / 2);
	nb_ask(t->z_next, t->z_step, i / 2);
}

/* ---- codes ---- */

/* A unit of 16 rows: v[i] holds 8 codes of 4 bits of each row, or 4 of 8. */
struct nb_codes {
	vi v[8];
};

/* Codes that do not fill a unit, or of 2 bits, of 16 rows as units. */
static __attribute__((noinline, unused)) void
KERN(nb_widen)(const uint32_t bits, const unsigned char *const *p, uint64_t at,
	       uint64_t bytes, unsigned char (*to)[NB_UNIT])
{
	memset(to, 0, sizeof(*to) * 16);
	for (unsigned r = 0; r < 16; r++)
		if (bits != 2)
			memcpy(to[r], p[r] + at, bytes);
		else
			for (unsigned i = 0; i < bytes * 4; i++)
				to[r][i] = (unsigned char)(p[r][at + i / 4] >>
							   i % 4 * 2 << 6);
}

/* Units of 16 rows that begin at p[r] + at, of width bits, 2 being read as 8;
 * valid: bytes that are there. */
VF void nb_turn(const uint32_t bits, const uint32_t width,
		const unsigned char *const *p, uint64_t at, uint64_t valid,
		struct nb_codes *c)
{
	const uint64_t size = NB_UNIT / 8 * bits;
	unsigned char spare[16][NB_UNIT];
	const unsigned char *s[16];

	if (bits == 2 || valid < size) {
		KERN(nb_widen)(bits, p, at, nb_min(size, valid), spare);
		for (unsigned r = 0; r < 16; r++)
			s[r] = spare[r];
		p = s;
		at = 0;
	}
	vi_turn(c->v, p, at);
	if (width == 8)
		vi_turn(c->v + 4, p, at + 16);
}

/* A vector of a unit: ready for its codes to be taken one by one. */
VF vi nb_ready(const uint32_t width, vi x)
{
	return width == 4 ? x : vi_xor(x, vi_set1(0x80808080u));
}

VF vf nb_code(const uint32_t width, vi x, const unsigned i)
{
	return width == 4 ? vi_nibble(x, i) : vi_top(x, i);
}

/* ---- scales and zero points ---- */

struct nb_scale {
	float s[CREF_NB_BLOCKS][CREF_NB_TILE], z[CREF_NB_BLOCKS][CREF_NB_TILE];
};

/* Floats b0 .. b0 + n, n <= CREF_NB_BLOCKS, of 16 rows that are step bytes
 * long: to[b][row]. */
VF void nb_floats(const struct cref_nbits *w, const void *base, uint64_t step,
		  const uint64_t *row, uint64_t b0, unsigned n,
		  float (*to)[CREF_NB_TILE])
{
	const uint64_t size = vd_size(w->s_dtype), all = w->N * step;
	float spare[16][CREF_NB_BLOCKS];
	const unsigned char *p[16];

	for (unsigned r = 0; r < 16; r++) {
		const uint64_t at = row[r] * step + b0 * size;
		const char *q = (const char *)base + at;

		p[r] = (const unsigned char *)q;
		if (w->s_dtype == GENAI_DT_F32 &&
		    all - at >= (n + 3) / 4 * 4 * size)
			continue;
		KERN(widen)(spare[r], q, w->s_dtype, n);
		p[r] = (const unsigned char *)spare[r];
	}
	for (unsigned b = 0; b < n; b += 4) {
		vi v[4];

		vi_turn(v, p, b * sizeof(float));
		UNROLL
		for (unsigned i = 0; i < 4; i++)
			vf_store(to[b + i], vi_floats(v[i]));
	}
}

/* The same of zero points that are codes. */
VF void nb_zeros(const struct cref_nbits *w, const uint32_t bits,
		 const uint32_t width, const uint64_t *row, uint64_t b0,
		 unsigned n, float (*to)[CREF_NB_TILE])
{
	uint64_t room = UINT64_MAX;
	const unsigned char *p[16];
	struct nb_codes c;

	for (unsigned r = 0; r < 16; r++) {
		const uint64_t at = row[r] * w->z_row + b0 * bits / 8;

		p[r] = (const unsigned char *)w->z + at;
		room = nb_min(room, w->N * w->z_row - at);
	}
	nb_turn(bits, width, p, 0, room, &c);
	UNROLL16
	for (unsigned b = 0; b < CREF_NB_BLOCKS; b++) {
		const unsigned i = b % (32 / width);
		vf z = nb_code(width, nb_ready(width, c.v[b * width / 32]), i);

		if (width == 4 && i < 7)
			z = vf_mul(z, vf_set1(nb_power(-4 * (int)i)));
		vf_store(to[b], z);
	}
}

/* Blocks [b0, b0 + n) of 16 rows. */
VF void nb_scales(const struct cref_nbits *w, const uint64_t *row, uint64_t b0,
		  unsigned n, float (*s)[CREF_NB_TILE],
		  float (*z)[CREF_NB_TILE])
{
	const float up = nb_up(w);
	const float mid = w->bits == 4 ? 0 : (float)(1u << (w->bits - 1));

	nb_floats(w, w->s, w->s_row, row, b0, n, s);
	if (w->z_kind == CREF_Z_FLOAT) {
		nb_floats(w, w->z, w->z_row, row, b0, n, z);
		for (unsigned b = 0; b < n; b++)
			vf_store(z[b], vf_fma(vf_load(z[b]), vf_set1(up),
					      vf_set1(-mid * up)));
	} else if (w->z_kind == CREF_Z_PACKED && w->bits == 4) {
		nb_zeros(w, 4, 4, row, b0, n, z);
	} else if (w->z_kind == CREF_Z_PACKED) {
		nb_zeros(w, w->bits, 8, row, b0, n, z);
	} else if (w->bits == 4) {
		for (unsigned b = 0; b < n; b++)
			vf_store(z[b], vf_set1(8));
	}
}

VF void nb_tile_scales(const unsigned G, const struct cref_nbits *w,
		       const struct nb_tile *t, uint64_t b0, unsigned n,
		       struct nb_scale *x)
{
	for (unsigned g = 0; g < G; g++)
		nb_scales(w, t->row + g * 16, b0, n,
			  (float(*)[CREF_NB_TILE])(x->s[0] + g * 16),
			  (float(*)[CREF_NB_TILE])(x->z[0] + g * 16));
}

/* ---- one row of A ---- */

struct nb_row { /* of A */
	const struct cref_nbits *w;
	const struct nb_tile *t;
	const float *a, *sums;
	struct nb_scale x;
};

/* Run i of unit u into p of G groups of rows. */
VF void nb_dot(const unsigned G, const uint32_t width, const unsigned run,
	       const struct nb_codes *c, const struct nb_row *x, uint64_t u,
	       unsigned i, vf *p)
{
	const float *a = x->a + u * NB_UNIT;
	const unsigned per = 32 / width; /* codes of a vector */

	for (unsigned j = i * run / per; j < (i + 1) * run / per; j++) {
		vi q[NB_GROUPS];

		if (j * per % 8 == 0)
			nb_ahead(x->t, u * 4 + j * per / 8);
		UNROLL
		for (unsigned g = 0; g < G; g++)
			q[g] = nb_ready(width, c[g].v[j]);
		UNROLL
		for (unsigned k = 0; k < per; k++) {
			const vf f = vf_set1(a[j * per + k]);

			UNROLL
			for (unsigned g = 0; g < G; g++)
				p[g] = vf_fma(nb_code(width, q[g], k), f, p[g]);
		}
	}
}

/* Units [u0, u1) of a segment whose first block is b0. */
VF void nb_gemv_units(const unsigned G, const uint32_t width,
		      const unsigned run, const bool zero,
		      const struct nb_row *x, uint64_t b0, uint64_t u0,
		      uint64_t u1, vf *acc)
{
	const unsigned shift = (unsigned)__builtin_ctz(x->w->block);
	const uint64_t size = NB_UNIT / 8 * x->w->bits;

	for (uint64_t u = u0; u < u1; u++) {
		const uint64_t left = x->w->b_row - u * size;
		struct nb_codes c[NB_GROUPS];

		UNROLL
		for (unsigned g = 0; g < G; g++)
			nb_turn(x->w->bits, width, x->t->q + g * 16, u * size,
				left, &c[g]);
		for (unsigned i = 0; i < NB_UNIT / run; i++) {
			const uint64_t k = u * NB_UNIT + i * run;
			const uint64_t b = (k >> shift) - b0;
			vf p[NB_GROUPS];

			if (k >= x->w->K)
				break;
			UNROLL
			for (unsigned g = 0; g < G; g++)
				p[g] = vf_zero();
			nb_dot(G, width, run, c, x, u, i, p);
			UNROLL
			for (unsigned g = 0; g < G; g++) {
				if (zero)
					p[g] = vf_fma(
						vf_load(x->x.z[b] + g * 16),
						vf_set1(x->sums[k / run]),
						p[g]);
				acc[g] = vf_fma(vf_load(x->x.s[b] + g * 16),
						p[g], acc[g]);
			}
		}
	}
}

VF void nb_gemv_kind(const unsigned G, const uint32_t width, const unsigned run,
		     const struct nb_row *x, uint64_t b0, uint64_t u0,
		     uint64_t u1, vf *acc)
{
	if (width == 4 || x->w->z_kind != CREF_Z_NONE)
		nb_gemv_units(G, width, run, true, x, b0, u0, u1, acc);
	else
		nb_gemv_units(G, width, run, false, x, b0, u0, u1, acc);
}

/* Rows [n0, n1) of at most 16 * G. */
VF void nb_gemv_tile(const unsigned G, const struct cref_nbits *w,
		     const float *a, uint64_t n0, uint64_t n1, float *y)
{
	const uint64_t blocks = (w->K + w->block - 1) / w->block;
	const uint64_t units = (w->K + NB_UNIT - 1) / NB_UNIT;
	const vf down = vf_set1(nb_down(w));
	struct nb_tile t;
	struct nb_row x;
	vf acc[NB_GROUPS];

	nb_tile_at(w, n0, n1, &t);
	x.w = w;
	x.t = &t;
	x.a = a;
	x.sums = a + units * NB_UNIT;
	for (unsigned g = 0; g < G; g++)
		acc[g] = vf_zero();
	for (uint64_t b = 0; b < blocks; b += CREF_NB_BLOCKS) {
		const uint64_t n = nb_min(blocks - b, CREF_NB_BLOCKS);
		const uint64_t u = b * w->block / NB_UNIT;
		const uint64_t end = nb_min(
			(b + CREF_NB_BLOCKS) * w->block / NB_UNIT, units);

		nb_tile_scales(G, w, &t, b, (unsigned)n, &x.x);
		if (w->block == 16 && w->bits == 4)
			nb_gemv_kind(G, 4, 16, &x, b, u, end, acc);
		else if (w->block == 16)
			nb_gemv_kind(G, 8, 16, &x, b, u, end, acc);
		else if (w->bits == 4)
			nb_gemv_kind(G, 4, 32, &x, b, u, end, acc);
		else
			nb_gemv_kind(G, 8, 32, &x, b, u, end, acc);
	}
	for (uint64_t g = 0, n = n1 - n0; g * 16 < n; g++)
		vf_storen(y + g * 16, vf_mul(acc[g], down),
			  (unsigned)nb_min(n - g * 16, 16));
}

static void KERN(nb_gemv)(const struct cref_nbits *w, const float *a,
			  uint64_t n0, uint64_t n1, float *y)
{
	while (n0 < n1) {
		const uint64_t n = nb_min(n1 - n0, CREF_NB_TILE);

		if (n > 16)
			nb_gemv_tile(NB_GROUPS, w, a, n0, n0 + n, y);
		else
			nb_gemv_tile(1, w, a, n0, n0 + n, y);
		n0 += n;
		y += n;
	}
}

/* ---- several rows of A ---- */

/* Unit u of a tile as floats: to[k][row]. */
VF void nb_panel(const struct cref_nbits *w, const uint32_t width,
		 const struct nb_tile *t, uint64_t u, float (*to)[CREF_NB_TILE])
{
	const uint64_t at = u * (NB_UNIT / 8) * w->bits;
	const unsigned per = 32 / width; /* codes of a vector */

	for (unsigned g = 0; g < NB_GROUPS; g++) {
		struct nb_codes c;

		nb_turn(w->bits, width, t->q + g * 16, at, w->b_row - at, &c);
		for (unsigned j = 0; j < NB_UNIT / per; j++) {
			const vi x = nb_ready(width, c.v[j]);

			if (g == 0 && j * per % 8 == 0)
				nb_ahead(t, u * 4 + j * per / 8);
			UNROLL
			for (unsigned k = 0; k < per; k++)
				vf_store(to[j * per + k] + g * 16,
					 nb_code(width, x, k));
		}
	}
}

struct nb_part {	       /* of a product: k's of one panel */
	const float *a, *sums; /* of the first k, of its run */
	uint64_t lda;
	uint64_t k0, runs; /* the first k within the segment */
	unsigned run, shift;
	bool zero;
	const struct nb_scale *x;
	struct cref_nb_scratch *t;
};

/* acc[m][n] += A row m, panel row n. */
VF void nb_micro(const unsigned MR, const unsigned NR, const struct nb_part *p,
		 uint64_t m0)
{
	const float *a = p->a + m0 * p->lda, *sums = p->sums + m0 * p->lda;
	const unsigned run = p->run;

	for (unsigned n0 = 0; n0 < CREF_NB_TILE; n0 += NR * 16)
		for (uint64_t r = 0; r < p->runs; r++) {
			const uint64_t b = (p->k0 + r * run) >> p->shift;
			const float *w = p->t->panel[r * run] + n0;
			const float *x = a + r * run;
			vf c[NB_MR][2], v[2];

			UNROLL
			for (unsigned m = 0; m < MR; m++)
				UNROLL
			for (unsigned n = 0; n < NR; n++)
				c[m][n] = vf_zero();
			for (unsigned i = 0; i < run; i++) {
				UNROLL
				for (unsigned n = 0; n < NR; n++)
					v[n] = vf_load(w + i * CREF_NB_TILE +
						       n * 16);
				UNROLL
				for (unsigned m = 0; m < MR; m++) {
					const vf f = vf_set1(x[m * p->lda + i]);

					UNROLL
					for (unsigned n = 0; n < NR; n++)
						c[m][n] = vf_fma(v[n], f,
								 c[m][n]);
				}
			}
			if (p->zero) {
				UNROLL
				for (unsigned n = 0; n < NR; n++)
					v[n] = vf_load(p->x->z[b] + n0 +
						       n * 16);
				UNROLL
				for (unsigned m = 0; m < MR; m++) {
					const vf f =
						vf_set1(sums[m * p->lda + r]);

					UNROLL
					for (unsigned n = 0; n < NR; n++)
						c[m][n] = vf_fma(v[n], f,
								 c[m][n]);
				}
			}
			UNROLL
			for (unsigned n = 0; n < NR; n++)
				v[n] = vf_load(p->x->s[b] + n0 + n * 16);
			UNROLL
			for (unsigned m = 0; m < MR; m++)
				UNROLL
			for (unsigned n = 0; n < NR; n++) {
				float *d = p->t->acc[m0 + m] + n0 + n * 16;

				vf_store(d, vf_fma(v[n], c[m][n], vf_load(d)));
			}
		}
}

VF void nb_product(const struct nb_part *p, uint64_t M)
{
	uint64_t m = 0;

	for (; m + NB_MR <= M; m += NB_MR)
		nb_micro(NB_MR, NB_NR, p, m);
	for (; m + 2 <= M && NB_MR > 2; m += 2)
		nb_micro(NB_MR > 2 ? 2 : 1, 2, p, m);
	for (; m < M; m++)
		nb_micro(1, 2, p, m);
}

VF void nb_finish(uint64_t M, unsigned count, const struct cref_nb_out *out,
		  float down, const struct cref_nb_scratch *t)
{
	char *y = out->y;

	for (uint64_t m = 0; m < M; m++, y += out->row)
		for (unsigned n = 0; n < count; n += 16) {
			vf v = vf_mul(vf_load(t->acc[m] + n), vf_set1(down));

			if (out->bias)
				v = vf_add(v, vf_load(out->bias + n));
			vd_storen(y + n * vd_size(out->dtype), out->dtype, v,
				  (unsigned)nb_min(count - n, 16));
		}
}

static void KERN(nb_gemm)(const struct cref_nbits *w, const float *a,
			  uint64_t M, uint64_t n0, uint64_t n1,
			  const struct cref_nb_out *out,
			  struct cref_nb_scratch *t)
{
	const uint64_t blocks = (w->K + w->block - 1) / w->block;
	const uint64_t units = (w->K + NB_UNIT - 1) / NB_UNIT;
	const unsigned run = w->block == 16 ? 16 : 32;
	struct nb_part p = {.lda = cref_nb_stride(w->K),
			    .run = run,
			    .shift = (unsigned)__builtin_ctz(w->block),
			    .zero = nb_has_zero(w),
			    .t = t};
	struct nb_tile tile;
	struct nb_scale x;

	p.x = &x;
	nb_tile_at(w, n0, n1, &tile);
	memset(t->acc, 0, M * sizeof(t->acc[0]));
	for (uint64_t b = 0; b < blocks; b += CREF_NB_BLOCKS) {
		const uint64_t n = nb_min(blocks - b, CREF_NB_BLOCKS);
		const uint64_t first = b * w->block;
		const uint64_t end = nb_min(
			(b + CREF_NB_BLOCKS) * w->block / NB_UNIT, units);

		nb_tile_scales(NB_GROUPS, w, &tile, b, (unsigned)n, &x);
		for (uint64_t u = first / NB_UNIT; u < end;) {
			const uint64_t k = u * NB_UNIT;
			const uint64_t stop =
				nb_min(u + CREF_NB_PANEL / NB_UNIT, end);

			p.a = a + k;
			p.sums = a + units * NB_UNIT + k / run;
			p.k0 = k - first;
			p.runs = (nb_min(stop * NB_UNIT, w->K) - k + run - 1) /
				 run;
			for (; u < stop; u++) {
				float(*to)[CREF_NB_TILE] =
					t->panel + u * NB_UNIT - k;

				if (w->bits == 4)
					nb_panel(w, 4, &tile, u, to);
				else
					nb_panel(w, 8, &tile, u, to);
			}
			nb_product(&p, M);
		}
	}
	nb_finish(M, (unsigned)(n1 - n0), out, nb_down(w), t);
}

/* From 0 on, as the codes' products are: those of codes that are 8 throughout
 * less 8 times this are nothing. */
VF float nb_sum(const float *x, unsigned n)
{
	float sum = 0;

	for (unsigned i = 0; i < n; i++)
		sum += x[i];
	return sum;
}

static void KERN(nb_fill)(float *dst, const void *src, uint32_t dtype,
			  const struct cref_nbits *w)
{
	const uint64_t units = (w->K + NB_UNIT - 1) / NB_UNIT;
	const unsigned run = w->block == 16 ? 16 : 32;
	const char *s = src;
	const uint64_t size = vd_size(dtype);
	float *sums = dst + units * NB_UNIT;

	for (uint64_t u = 0; u < units; u++, dst += NB_UNIT) {
		float a[NB_UNIT];

		for (unsigned i = 0; i < NB_UNIT; i += 16) {
			const uint64_t k = u * NB_UNIT + i;
			const vf v = k + 16 <= w->K
					     ? vd_load(s + k * size, dtype)
				     : k < w->K ? vd_loadn(s + k * size, dtype,
							   (unsigned)(w->K - k))
						: vf_zero();

			vf_store(a + i, v);
			vf_store(dst + i,
				 w->bits == 4 ? vf_mul(v, nb_places()) : v);
		}
		for (unsigned i = 0; nb_has_zero(w) && i < NB_UNIT; i += run)
			*sums++ = -nb_sum(a + i, run);
	}
}
