/* kern_gemm.h - dense products, compiled for every level.
 *
 * Lanes lie along the columns of B.  The sum over k: chunks of 64 k's, each
 * summed from 0 in order with fused multiply-adds, chunk sums added in order.
 * The same whatever the number of rows and the way B is read. */

static void KERN(mm_pack)(float *dst, const void *b, uint32_t dtype,
			  uint64_t ldb, uint64_t c0, uint64_t n, uint64_t k)
{
	const uint64_t size = vd_size(dtype);

	for (uint64_t j = 0; j < n; j += 16) {
		const char *s = (const char *)b + (c0 + j) * size;
		float *d = dst + j / CREF_MM_COLS * CREF_MM_COLS * k +
			   j % CREF_MM_COLS;
		const unsigned v = n - j < 16 ? (unsigned)(n - j) : 16;

		for (uint64_t i = 0; i < k; i++) {
			vf x = v == 16 ? vd_load(s, dtype)
				       : vd_loadn(s, dtype, v);

			vf_store(d + i * CREF_MM_COLS, x);
			if (j + 16 >= n && j % CREF_MM_COLS == 0)
				vf_store(d + i * CREF_MM_COLS + 16, vf_zero());
			s += ldb * size;
		}
	}
}

VF void mm_micro(const unsigned MR, const float *a, uint64_t lda,
		 const float *b, uint64_t k, float *c, uint64_t ldc, bool add)
{
	for (unsigned n0 = 0; n0 < CREF_MM_COLS / 16; n0 += MM_NR) {
		vf p[MM_MR][MM_NR];

		UNROLL
		for (unsigned m = 0; m < MR; m++)
			UNROLL
		for (unsigned n = 0; n < MM_NR; n++)
			p[m][n] = vf_zero();
		for (uint64_t i = 0; i < k; i++) {
			vf w[MM_NR];

			UNROLL
			for (unsigned n = 0; n < MM_NR; n++)
				w[n] = vf_load(b + i * CREF_MM_COLS +
					       (n0 + n) * 16);
			UNROLL
			for (unsigned m = 0; m < MR; m++) {
				const vf x = vf_set1(a[m * lda + i]);

				UNROLL
				for (unsigned n = 0; n < MM_NR; n++)
					p[m][n] = vf_fma(x, w[n], p[m][n]);
			}
		}
		UNROLL
		for (unsigned m = 0; m < MR; m++)
			UNROLL
		for (unsigned n = 0; n < MM_NR; n++) {
			float *d = c + m * ldc + (n0 + n) * 16;

			if (add)
				p[m][n] = vf_add(vf_load(d), p[m][n]);
			vf_store(d, p[m][n]);
		}
	}
}

static void KERN(mm_tile)(const float *a, uint64_t lda, const float *b,
			  uint64_t k, float *c, uint64_t ldc, uint64_t M,
			  bool add)
{
	uint64_t m = 0;

	for (; m + MM_MR <= M; m += MM_MR)
		mm_micro(MM_MR, a + m * lda, lda, b, k, c + m * ldc, ldc, add);
	for (; m + 2 <= M && MM_MR > 2; m += 2)
		mm_micro(MM_MR > 2 ? 2 : 1, a + m * lda, lda, b, k, c + m * ldc,
			 ldc, add);
	for (; m < M; m++)
		mm_micro(1, a + m * lda, lda, b, k, c + m * ldc, ldc, add);
}

/* G rows of B from row k on into the sums of 16 columns. */
VF vf mm_group(const unsigned G, const float *a, const vf *w, vf p)
{
	UNROLL
	for (unsigned g = 0; g < G; g++)
		p = vf_fma(vf_set1(a[g]), w[g], p);
	return p;
}

struct mm_stream {
	const float *a;
	const char *b; /* at the first column, row k of the group */
	float *part, *c;
	uint64_t lda, M, row, n, ldc; /* row: bytes */
	uint32_t dtype;
	bool begin, end, first; /* of the chunk; chunk of the sum */
};

VF void mm_stream_group(const unsigned G, const struct mm_stream *s)
{
	for (uint64_t j = 0; j < s->n; j += 16) {
		const unsigned v = s->n - j < 16 ? (unsigned)(s->n - j) : 16;
		const char *b = s->b + j * vd_size(s->dtype);
		vf w[8];

		UNROLL
		for (unsigned g = 0; g < G; g++)
			w[g] = v == 16 ? vd_load(b + g * s->row, s->dtype)
				       : vd_loadn(b + g * s->row, s->dtype, v);
		for (uint64_t m = 0; m < s->M; m++) {
			float *part = s->part + m * CREF_MM_STREAM + j;
			float *c = s->c + m * s->ldc + j;
			vf p = s->begin ? vf_zero() : vf_load(part);

			p = mm_group(G, s->a + m * s->lda, w, p);
			if (!s->end)
				vf_store(part, p);
			else if (v == 16)
				vf_store(c,
					 s->first ? p : vf_add(vf_load(c), p));
			else
				vf_storen(c,
					  s->first ? p
						   : vf_add(vf_loadn(c, v), p),
					  v);
		}
	}
}

VF void mm_stream_all(const uint32_t dtype, struct mm_stream s, uint64_t K)
{
	for (uint64_t k = 0; k < K;) {
		const uint64_t end = (k / CREF_MM_CHUNK + 1) * CREF_MM_CHUNK;
		const uint64_t stop = end < K ? end : K;
		const unsigned g = stop - k >= 8 ? 8 : 1;

		s.dtype = dtype;
		s.begin = k % CREF_MM_CHUNK == 0;
		s.end = k + g == stop;
		s.first = k < CREF_MM_CHUNK;
		if (g == 8)
			mm_stream_group(8, &s);
		else
			mm_stream_group(1, &s);
		k += g;
		s.a += g;
		s.b += g * s.row;
	}
}

static void KERN(mm_stream)(const float *a, uint64_t lda, uint64_t M,
			    const void *b, uint32_t dtype, uint64_t ldb,
			    uint64_t c0, uint64_t n, uint64_t K, float *c,
			    uint64_t ldc)
{
	float part[CREF_MM_SMALL * CREF_MM_STREAM];
	struct mm_stream s = {a,
			      (const char *)b + c0 * vd_size(dtype),
			      part,
			      c,
			      lda,
			      M,
			      ldb * vd_size(dtype),
			      n,
			      ldc,
			      dtype,
			      false,
			      false,
			      false};

	if (dtype == GENAI_DT_F32)
		mm_stream_all(GENAI_DT_F32, s, K);
	else if (dtype == GENAI_DT_F16)
		mm_stream_all(GENAI_DT_F16, s, K);
	else
		mm_stream_all(GENAI_DT_BF16, s, K);
}
