/* kern_nbits.h - products with weights of few bits, compiled for every level.
 *
 * The sum over k: a chunk is 32 elements; lane l takes elements 2l, then 2l+1
 * of each chunk, one fused multiply-add each; at the end one tree over the
 * lanes.  A weight is (q - zero) * scale, rounded after each operation.  Both
 * are the same whatever the number of rows of A and however weights are
 * unpacked. */

#define NB_SEG 64u /* blocks whose scales are at hand; a panel has fewer */

/* Scales and zero points of blocks [b0, b0 + n) of a row. */
struct nb_seg {
	const char *s, *z; /* floats of any alignment */
	float sbuf[NB_SEG], zbuf[NB_SEG];
};

VF float nb_f32(const char *p, uint64_t i)
{
	float f;

	memcpy(&f, p + i * sizeof(float), sizeof(f));
	return f;
}

/* n packed integers from index i0 (a multiple of 8) on, as floats. */
VF void nb_unpack(float *dst, const unsigned char *p, uint32_t bits,
		  uint64_t i0, uint64_t n)
{
	const unsigned per = 8 / bits;
	unsigned char q[NB_SEG + 16];

	p += i0 / per;
	if (bits == 8)
		memcpy(q, p, n);
	else if (bits == 4)
		for (unsigned i = 0; i < (n + 1) / 2; i++) {
			q[2 * i] = p[i] & 15u;
			q[2 * i + 1] = p[i] >> 4;
		}
	else
		for (unsigned i = 0; i < n; i++)
			q[i] = p[i / 4] >> i % 4 * 2 & 3u;
	for (unsigned i = 0; i < n; i++)
		dst[i] = (float)q[i];
}

VF void nb_seg_load(struct nb_seg *g, const struct cref_nbits *w, uint64_t r,
		    uint64_t b0, uint64_t n)
{
	const char *s = (const char *)w->s + r * w->s_row;
	const char *z = (const char *)w->z + (w->z ? r * w->z_row : 0);

	g->s = s + b0 * 4;
	g->z = z + b0 * 4;
	if (w->s_dtype != GENAI_DT_F32) {
		KERN(widen)(g->sbuf, s + b0 * 2, w->s_dtype, n);
		g->s = (const char *)g->sbuf;
	}
	if (w->z_kind == CREF_Z_FLOAT && w->s_dtype == GENAI_DT_F32)
		return;
	g->z = (const char *)g->zbuf;
	if (w->z_kind == CREF_Z_FLOAT)
		KERN(widen)(g->zbuf, z + b0 * 2, w->s_dtype, n);
	else if (w->z_kind == CREF_Z_PACKED)
		nb_unpack(g->zbuf, (const unsigned char *)z, w->bits, b0, n);
	else
		for (unsigned i = 0; i < n; i++)
			g->zbuf[i] = (float)(1u << (w->bits - 1));
}

/* The quants of a whole chunk: even elements, odd elements. */
VF void nb_quants(const unsigned char *q, uint32_t bits, vf *e, vf *o)
{
	unsigned char t[16];
	vi x;

	if (bits == 8) {
		x = vi_load_u16(q);
		*e = vi_to_float(vi_and(x, vi_set1(255)));
		*o = vi_to_float(vi_shr(x, 8));
		return;
	}
	if (bits == 4) {
		x = vi_load_u8(q);
		*e = vi_to_float(vi_and(x, vi_set1(15)));
		*o = vi_to_float(vi_shr(x, 4));
		return;
	}
	for (unsigned i = 0; i < 8; i++) {
		t[2 * i] = q[i] & 15u;
		t[2 * i + 1] = q[i] >> 4;
	}
	x = vi_load_u8(t);
	*e = vi_to_float(vi_and(x, vi_set1(3)));
	*o = vi_to_float(vi_shr(x, 2));
}

/* Any chunk of a row; elements at K and beyond are 0.  Blocks are numbered
 * from the segment's first. */
VF void nb_chunk(const struct cref_nbits *w, const unsigned char *row,
		 const struct nb_seg *g, uint64_t b0, uint64_t c, vf *e, vf *o)
{
	const uint64_t bytes =
		(w->K + w->block - 1) / w->block * (w->block / 8 * w->bits);
	const uint64_t at = c * 4 * w->bits, b = c * 32 / w->block - b0;
	const unsigned size = 4 * w->bits;
	unsigned char t[32] = {0};
	vf s, z;

	if (bytes - at < size) {
		memcpy(t, row + at, bytes - at);
		nb_quants(t, w->bits, e, o);
	} else {
		nb_quants(row + at, w->bits, e, o);
	}
	if (w->block >= 32) {
		s = vf_set1(nb_f32(g->s, b));
		z = vf_set1(nb_f32(g->z, b));
	} else if (bytes - at < size) {
		s = vf_set2(nb_f32(g->s, b), 0);
		z = vf_set2(nb_f32(g->z, b), 0);
	} else {
		s = vf_set2(nb_f32(g->s, b), nb_f32(g->s, b + 1));
		z = vf_set2(nb_f32(g->z, b), nb_f32(g->z, b + 1));
	}
	*e = vf_mul(vf_sub(*e, z), s);
	*o = vf_mul(vf_sub(*o, z), s);
	if (w->K < c * 32 + 32) {
		const unsigned v = (unsigned)(w->K - c * 32);

		*e = vf_range(*e, 0, (v + 1) / 2, vf_zero());
		*o = vf_range(*o, 0, v / 2, vf_zero());
	}
}

/* ---- one row of A ---- */

#define NB_ROWS 4u

struct nb_rows {
	const unsigned char *q[NB_ROWS];
	struct nb_seg g[NB_ROWS];
};

/* Ask for what is read some rows later.  The address may lie outside of the
 * weights; asking is no access. */
#define NB_AHEAD 8192u
VF void nb_fetch(const void *p, uint64_t ahead)
{
	__builtin_prefetch((const void *)((uintptr_t)p + ahead));
}

/* The same for four rows, which take turns. */
VF void nb_ahead(uint32_t bits, const struct nb_rows *x, uint64_t c, uint64_t b)
{
	const unsigned r = c % NB_ROWS;
	const unsigned char *q = x->q[r] + c * (4 * bits);

	nb_fetch(q, NB_AHEAD);
	if (bits == 8)
		nb_fetch(q, NB_AHEAD + 64);
	nb_fetch(x->g[r].s + b * 4, NB_AHEAD / bits);
	nb_fetch(x->g[r].z + b * 4, NB_AHEAD / bits);
}

/* Whole chunks [c0, c1) of R rows, blocks of 32 or more; c0 starts a block. */
VF void nb_fast(const unsigned R, const uint32_t bits, const struct nb_rows *x,
		const float *a, uint64_t c0, uint64_t c1, uint64_t per, vf *acc)
{
	uint64_t b = 0;

	for (uint64_t c = c0; c < c1; b++) {
		const uint64_t end = c + per < c1 ? c + per : c1;
		vtab t[NB_ROWS];
		vf s[NB_ROWS], z[NB_ROWS];

		UNROLL
		for (unsigned r = 0; r < R; r++) {
			if (bits == 4) {
				t[r] = vtab_make(nb_f32(x->g[r].s, b),
						 nb_f32(x->g[r].z, b));
			} else {
				s[r] = vf_set1(nb_f32(x->g[r].s, b));
				z[r] = vf_set1(nb_f32(x->g[r].z, b));
			}
		}
		for (; c < end; c++) {
			const vf ae = vf_load(a + c * 32);
			const vf ao = vf_load(a + c * 32 + 16);

			if (R == NB_ROWS)
				nb_ahead(bits, x, c, b);
			UNROLL
			for (unsigned r = 0; r < R; r++) {
				const unsigned char *q =
					x->q[r] + c * (4 * bits);
				vf e, o;

				if (bits == 4) {
					vi v = vi_load_u8(q);

					e = vtab_low(t[r], v);
					o = vtab_high(t[r], v);
				} else {
					nb_quants(q, bits, &e, &o);
					e = vf_mul(vf_sub(e, z[r]), s[r]);
					o = vf_mul(vf_sub(o, z[r]), s[r]);
				}
				acc[r] = vf_fma(e, ae, acc[r]);
				acc[r] = vf_fma(o, ao, acc[r]);
			}
		}
	}
}

VF void nb_gemv_rows(const unsigned R, const struct cref_nbits *w,
		     const float *a, uint64_t n, float *y)
{
	const uint64_t blocks = (w->K + w->block - 1) / w->block;
	const uint64_t chunks = (w->K + 31) / 32, whole = w->K / 32;
	struct nb_rows x;
	vf acc[NB_ROWS];

	for (unsigned r = 0; r < R; r++) {
		acc[r] = vf_zero();
		x.q[r] = w->b + (n + r) * w->b_row;
	}
	for (uint64_t b = 0; b < blocks; b += NB_SEG) {
		const uint64_t nb = blocks - b < NB_SEG ? blocks - b : NB_SEG;
		uint64_t c = b * w->block / 32, end;

		end = (b + NB_SEG) * w->block / 32;
		end = end < chunks ? end : chunks;
		for (unsigned r = 0; r < R; r++)
			nb_seg_load(&x.g[r], w, n + r, b, nb);
		if (w->block >= 32 && w->bits != 2) {
			const uint64_t stop = end < whole ? end : whole;

			if (w->bits == 4)
				nb_fast(R, 4, &x, a, c, stop, w->block / 32,
					acc);
			else
				nb_fast(R, 8, &x, a, c, stop, w->block / 32,
					acc);
			c = stop > c ? stop : c;
		}
		for (; c < end; c++)
			for (unsigned r = 0; r < R; r++) {
				vf e, o;

				nb_chunk(w, x.q[r], &x.g[r], b, c, &e, &o);
				acc[r] = vf_fma(e, vf_load(a + c * 32), acc[r]);
				acc[r] = vf_fma(o, vf_load(a + c * 32 + 16),
						acc[r]);
			}
	}
	for (unsigned r = 0; r < R; r++)
		y[r] = vf_sum(acc[r]);
}

static void KERN(nb_gemv)(const struct cref_nbits *w, const float *a,
			  uint64_t n0, uint64_t n1, float *y)
{
	uint64_t n = n0;

	for (; n + NB_ROWS <= n1; n += NB_ROWS)
		nb_gemv_rows(NB_ROWS, w, a, n, y + (n - n0));
	for (; n < n1; n++)
		nb_gemv_rows(1, w, a, n, y + (n - n0));
}

/* ---- several rows of A ---- */

/* Whole chunks [c, stop) of a row, blocks of 1 << shift chunks, to vectors of
 * dst that are step apart; scales from g, whose first block is b0. */
VF void nb_panel_fast(const uint32_t bits, const unsigned char *row,
		      const struct nb_seg *g, uint64_t b0, uint64_t c,
		      uint64_t stop, unsigned shift, float *dst,
		      const uint64_t step)
{
	while (c < stop) {
		const uint64_t b = (c >> shift) - b0;
		const uint64_t next = ((c >> shift) + 1) << shift;
		const uint64_t end = next < stop ? next : stop;
		const float scale = nb_f32(g->s, b), zero = nb_f32(g->z, b);
		const vtab t = vtab_make(scale, zero);
		const vf s = vf_set1(scale), z = vf_set1(zero);

		if (b % 8 == 0) {
			nb_fetch(g->s + b * 4, NB_AHEAD / bits);
			nb_fetch(g->z + b * 4, NB_AHEAD / bits);
		}
		for (; c < end; c++, dst += 2 * step) {
			const unsigned char *q = row + c * (4 * bits);
			vf e, o;

			if (c % (16 / bits) == 0)
				nb_fetch(q, NB_AHEAD);
			if (bits == 4) {
				const vi v = vi_load_u8(q);

				e = vtab_low(t, v);
				o = vtab_high(t, v);
			} else {
				nb_quants(q, bits, &e, &o);
				e = vf_mul(vf_sub(e, z), s);
				o = vf_mul(vf_sub(o, z), s);
			}
			vf_store(dst, e);
			vf_store(dst + step, o);
		}
	}
}

/* Chunks [c0, c1) of row r, of one segment of scales, to vectors of dst that
 * are step apart. */
VF void nb_panel_row(const struct cref_nbits *w, uint64_t r, uint64_t c0,
		     uint64_t c1, float *dst, const uint64_t step)
{
	const unsigned char *row = w->b + r * w->b_row;
	const unsigned shift = (unsigned)__builtin_ctz(w->block);
	const uint64_t blocks = (w->K + w->block - 1) >> shift;
	const uint64_t b0 = (c0 * 32 >> shift) & ~(uint64_t)7;
	uint64_t b1 = (c1 * 32 + w->block - 1) >> shift, c = c0;
	struct nb_seg g;

	b1 = b1 < blocks ? b1 : blocks;
	nb_seg_load(&g, w, r, b0, b1 - b0);
	if (w->block >= 32 && w->bits != 2) {
		const uint64_t whole = w->K / 32;
		const uint64_t stop = c1 < whole ? c1 : whole;

		if (w->bits == 4)
			nb_panel_fast(4, row, &g, b0, c, stop, shift - 5, dst,
				      step);
		else
			nb_panel_fast(8, row, &g, b0, c, stop, shift - 5, dst,
				      step);
		c = stop > c ? stop : c;
	}
	for (; c < c1; c++) {
		vf e, o;

		nb_chunk(w, row, &g, b0, c, &e, &o);
		vf_store(dst + (c - c0) * 2 * step, e);
		vf_store(dst + (c - c0) * 2 * step + step, o);
	}
}

/* acc[m][n] += A row m, panel row n, over the panel's steps. */
VF void nb_micro(const unsigned MR, const float *a, uint64_t lda,
		 const float *panel, uint64_t steps, float *acc, bool first)
{
	for (unsigned n0 = 0; n0 < CREF_NB_TILE; n0 += NB_NR) {
		vf c[NB_MR][NB_NR];

		UNROLL
		for (unsigned m = 0; m < MR; m++)
			UNROLL
		for (unsigned n = 0; n < NB_NR; n++)
			c[m][n] = first ? vf_zero()
					: vf_load(acc + (m * CREF_NB_TILE + n0 +
							 n) * 16);
		for (uint64_t i = 0; i < steps; i++) {
			const float *p = panel + (i * CREF_NB_TILE + n0) * 16;
			vf v[NB_MR];

			UNROLL
			for (unsigned m = 0; m < MR; m++)
				v[m] = vf_load(a + m * lda + i * 16);
			UNROLL
			for (unsigned n = 0; n < NB_NR; n++) {
				const vf b = vf_load(p + n * 16);

				UNROLL
				for (unsigned m = 0; m < MR; m++)
					c[m][n] = vf_fma(b, v[m], c[m][n]);
			}
		}
		UNROLL
		for (unsigned m = 0; m < MR; m++)
			UNROLL
		for (unsigned n = 0; n < NB_NR; n++)
			vf_store(acc + (m * CREF_NB_TILE + n0 + n) * 16,
				 c[m][n]);
	}
}

VF void nb_finish(unsigned M, const float *acc, unsigned count,
		  const struct cref_nb_out *out, char *y)
{
	for (unsigned m = 0; m < M; m++) {
		vf v[CREF_NB_TILE], x;

		UNROLL
		for (unsigned n = 0; n < CREF_NB_TILE; n++)
			v[n] = vf_load(acc + (m * CREF_NB_TILE + n) * 16);
		x = vf_sum8(v);
		if (out->bias)
			x = vf_add(x, vf_loadn(out->bias, CREF_NB_TILE));
		vd_storen(y, out->dtype, x, count);
		y += out->row;
	}
}

static void KERN(nb_gemm)(const struct cref_nbits *w, const float *a,
			  uint64_t M, uint64_t n0, uint64_t n1,
			  const struct cref_nb_out *out,
			  struct cref_nb_scratch *t)
{
	const uint64_t chunks = (w->K + 31) / 32, lda = chunks * 32;
	const uint64_t step = CREF_NB_TILE * 16;
	const unsigned count = (unsigned)(n1 - n0);

	for (uint64_t n = n1 - n0; n < CREF_NB_TILE; n++)
		for (unsigned i = 0; i < CREF_NB_CHUNKS * 2; i++)
			vf_store(t->panel[i][n], vf_zero());
	for (uint64_t c = 0; c < chunks; c += CREF_NB_CHUNKS) {
		const uint64_t end = chunks - c < CREF_NB_CHUNKS
					     ? chunks
					     : c + CREF_NB_CHUNKS;
		const float *ac = a + c * 32, *p = &t->panel[0][0][0];
		uint64_t m = 0;

		for (uint64_t n = n0; n < n1; n++)
			nb_panel_row(w, n, c, end, t->panel[0][n - n0], step);
		for (; m + NB_MR <= M; m += NB_MR) {
			nb_micro(NB_MR, ac + m * lda, lda, p, (end - c) * 2,
				 t->acc[m][0], c == 0);
			if (end == chunks)
				nb_finish(NB_MR, t->acc[m][0], count, out,
					  out->y + m * out->row);
		}
		for (; m < M; m++) {
			nb_micro(1, ac + m * lda, lda, p, (end - c) * 2,
				 t->acc[m][0], c == 0);
			if (end == chunks)
				nb_finish(1, t->acc[m][0], count, out,
					  out->y + m * out->row);
		}
	}
}

static void KERN(nb_row)(const struct cref_nbits *w, uint64_t r, uint64_t k0,
			 uint64_t n, float *dst)
{
	const uint64_t most = CREF_NB_CHUNKS * 32;

	for (uint64_t i = 0; i < n; i += most) {
		const uint64_t v = n - i < most ? n - i : most;
		float t[CREF_NB_CHUNKS * 2][16];

		nb_panel_row(w, r, (k0 + i) / 32, (k0 + i + v + 31) / 32, t[0],
			     16);
		for (uint64_t j = 0; j < v; j++)
			dst[i + j] = t[j / 32 * 2 + (j & 1)][j % 32 / 2];
	}
}

static void KERN(nb_order)(float *dst, const void *src, uint32_t dtype,
			   uint64_t K)
{
	const char *s = src;
	const uint64_t size = vd_size(dtype);

	for (uint64_t k = 0; k < K; k += 32) {
		vf a, b;

		if (K - k >= 32) {
			a = vd_load(s + k * size, dtype);
			b = vd_load(s + (k + 16) * size, dtype);
		} else {
			const unsigned v = (unsigned)(K - k);

			a = vd_loadn(s + k * size, dtype, v < 16 ? v : 16);
			b = v > 16 ? vd_loadn(s + (k + 16) * size, dtype,
					      v - 16)
				   : vf_zero();
		}
		vf_store(dst + k, vf_evens(a, b));
		vf_store(dst + k + 16, vf_odds(a, b));
	}
}
