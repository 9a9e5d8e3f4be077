/* simd_avx2.h - the 16-lane vector on AVX2 with FMA and F16C: two registers. */
#ifndef CREF_SIMD_AVX2_H
#define CREF_SIMD_AVX2_H

#include <immintrin.h>

typedef struct {
	__m256 a, b; /* lanes 0..7, lanes 8..15 */
} vf;
typedef struct {
	__m256i a, b;
} vi;

#define VF static inline __attribute__((always_inline, unused))

VF vf vf_make(__m256 a, __m256 b)
{
	vf v = {a, b};

	return v;
}
VF vi vi_make(__m256i a, __m256i b)
{
	vi v = {a, b};

	return v;
}
VF vf vf_zero(void)
{
	return vf_make(_mm256_setzero_ps(), _mm256_setzero_ps());
}
VF vf vf_set1(float x)
{
	return vf_make(_mm256_set1_ps(x), _mm256_set1_ps(x));
}
VF vf vf_set2(float lo, float hi) /* lanes 0..7, lanes 8..15 */
{
	return vf_make(_mm256_set1_ps(lo), _mm256_set1_ps(hi));
}
VF vf vf_load(const void *p)
{
	return vf_make(_mm256_loadu_ps(p),
		       _mm256_loadu_ps((const void *)((const char *)p + 32)));
}
VF void vf_store(void *p, vf v)
{
	_mm256_storeu_ps(p, v.a);
	_mm256_storeu_ps((void *)((char *)p + 32), v.b);
}
VF vf vf_loadn(const void *p, unsigned n)
{
	float t[16] = {0};

	memcpy(t, p, n * sizeof(float));
	return vf_load(t);
}
VF void vf_storen(void *p, vf v, unsigned n)
{
	float t[16];

	vf_store(t, v);
	memcpy(p, t, n * sizeof(float));
}

#define BOTH2(op, x, y) vf_make(op((x).a, (y).a), op((x).b, (y).b))
VF vf vf_add(vf a, vf b)
{
	return BOTH2(_mm256_add_ps, a, b);
}
VF vf vf_sub(vf a, vf b)
{
	return BOTH2(_mm256_sub_ps, a, b);
}
VF vf vf_mul(vf a, vf b)
{
	return BOTH2(_mm256_mul_ps, a, b);
}
VF vf vf_div(vf a, vf b)
{
	return BOTH2(_mm256_div_ps, a, b);
}
VF vf vf_fma(vf a, vf b, vf c) /* a * b + c, rounded once */
{
	return vf_make(_mm256_fmadd_ps(a.a, b.a, c.a),
		       _mm256_fmadd_ps(a.b, b.b, c.b));
}
VF vf vf_max(vf a, vf b) /* a > b ? a : b */
{
	return BOTH2(_mm256_max_ps, a, b);
}
VF vf vf_min(vf a, vf b) /* a < b ? a : b */
{
	return BOTH2(_mm256_min_ps, a, b);
}
VF vf vf_if_lt(vf a, vf b, vf x, vf y) /* a < b ? x : y */
{
	return vf_make(
		_mm256_blendv_ps(y.a, x.a, _mm256_cmp_ps(a.a, b.a, _CMP_LT_OQ)),
		_mm256_blendv_ps(y.b, x.b,
				 _mm256_cmp_ps(a.b, b.b, _CMP_LT_OQ)));
}
VF vf vf_abs(vf a)
{
	return BOTH2(_mm256_andnot_ps, vf_set1(-0.0f), a);
}
VF vf vf_copysign(vf a, vf s) /* set the sign bit if s has it */
{
	vf sign = BOTH2(_mm256_and_ps, vf_set1(-0.0f), s);

	return BOTH2(_mm256_or_ps, a, sign);
}
/* Keep lanes [lo, hi), put fill in the others. */
VF vf vf_range(vf v, unsigned lo, unsigned hi, vf fill)
{
	const vf iota = vf_make(_mm256_setr_ps(0, 1, 2, 3, 4, 5, 6, 7),
				_mm256_setr_ps(8, 9, 10, 11, 12, 13, 14, 15));

	v = vf_if_lt(iota, vf_set1((float)hi), v, fill);
	return vf_if_lt(iota, vf_set1((float)lo), fill, v);
}
VF float vf_first(vf v)
{
	return _mm256_cvtss_f32(v.a);
}

VF vi vf_ints(vf v)
{
	return vi_make(_mm256_castps_si256(v.a), _mm256_castps_si256(v.b));
}
VF vf vi_floats(vi v)
{
	return vf_make(_mm256_castsi256_ps(v.a), _mm256_castsi256_ps(v.b));
}
VF vi vi_set1(uint32_t x)
{
	return vi_make(_mm256_set1_epi32((int)x), _mm256_set1_epi32((int)x));
}
#define IBOTH2(op, x, y) vi_make(op((x).a, (y).a), op((x).b, (y).b))
VF vi vi_add(vi a, vi b)
{
	return IBOTH2(_mm256_add_epi32, a, b);
}
VF vi vi_sub(vi a, vi b)
{
	return IBOTH2(_mm256_sub_epi32, a, b);
}
VF vi vi_and(vi a, vi b)
{
	return IBOTH2(_mm256_and_si256, a, b);
}
VF vi vi_half(vi a) /* arithmetic shift right by one */
{
	return vi_make(_mm256_srai_epi32(a.a, 1), _mm256_srai_epi32(a.b, 1));
}
#define vi_shl(v, n)                                                           \
	vi_make(_mm256_slli_epi32((v).a, (n)), _mm256_slli_epi32((v).b, (n)))
#define vi_shr(v, n)                                                           \
	vi_make(_mm256_srli_epi32((v).a, (n)), _mm256_srli_epi32((v).b, (n)))
VF vf vi_to_float(vi a)
{
	return vf_make(_mm256_cvtepi32_ps(a.a), _mm256_cvtepi32_ps(a.b));
}
VF vi vi_load_u8(const void *p) /* 16 bytes */
{
	__m128i x = _mm_loadu_si128(p);

	return vi_make(_mm256_cvtepu8_epi32(x),
		       _mm256_cvtepu8_epi32(_mm_srli_si128(x, 8)));
}
VF vi vi_load_u16(const void *p) /* 32 bytes */
{
	const char *q = p;

	return vi_make(
		_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)q)),
		_mm256_cvtepu16_epi32(_mm_loadu_si128((const void *)(q + 16))));
}

VF vf vf_load_f16(const void *p)
{
	const char *q = p;

	return vf_make(
		_mm256_cvtph_ps(_mm_loadu_si128((const void *)q)),
		_mm256_cvtph_ps(_mm_loadu_si128((const void *)(q + 16))));
}
VF void vf_store_f16(void *p, vf v)
{
	char *q = p;

	_mm_storeu_si128((void *)q,
			 _mm256_cvtps_ph(v.a, _MM_FROUND_TO_NEAREST_INT));
	_mm_storeu_si128((void *)(q + 16),
			 _mm256_cvtps_ph(v.b, _MM_FROUND_TO_NEAREST_INT));
}
VF vf vf_load_bf16(const void *p)
{
	vi v = vi_load_u16(p);

	return vi_floats(vi_shl(v, 16));
}
VF __m256i vi_bf16_half(__m256 v)
{
	__m256i u = _mm256_castps_si256(v), r, q;
	__m256 nan = _mm256_cmp_ps(v, v, _CMP_UNORD_Q);

	r = _mm256_add_epi32(_mm256_add_epi32(u, _mm256_set1_epi32(0x7fff)),
			     _mm256_and_si256(_mm256_srli_epi32(u, 16),
					      _mm256_set1_epi32(1)));
	q = _mm256_or_si256(u, _mm256_set1_epi32(0x400000));
	r = _mm256_blendv_epi8(r, q, _mm256_castps_si256(nan));
	return _mm256_srli_epi32(r, 16);
}
VF void vf_store_bf16(void *p, vf v)
{
	__m256i r = _mm256_packus_epi32(vi_bf16_half(v.a), vi_bf16_half(v.b));

	_mm256_storeu_si256(p, _mm256_permute4x64_epi64(r, 0xd8));
}

/* The 4-bit table of a block: value i is (i - zero) * scale. */
typedef struct {
	__m256 scale, zero;
} vtab;
VF vtab vtab_make(float scale, float zero)
{
	vtab t = {_mm256_set1_ps(scale), _mm256_set1_ps(zero)};

	return t;
}
VF __m256 vtab_at(vtab t, __m256i q)
{
	return _mm256_mul_ps(_mm256_sub_ps(_mm256_cvtepi32_ps(q), t.zero),
			     t.scale);
}
VF vf vtab_low(vtab t, vi bytes) /* only the low four bits count */
{
	vi q = vi_and(bytes, vi_set1(15));

	return vf_make(vtab_at(t, q.a), vtab_at(t, q.b));
}
VF vf vtab_high(vtab t, vi bytes)
{
	vi q = vi_shr(bytes, 4);

	return vf_make(vtab_at(t, q.a), vtab_at(t, q.b));
}

/* Elements 0, 2, 4, ... and 1, 3, 5, ... of a:b. */
VF __m256 vf_pick(__m256 x, __m256 y, bool odd)
{
	__m256 s = odd ? _mm256_shuffle_ps(x, y, 0xdd)
		       : _mm256_shuffle_ps(x, y, 0x88);

	return _mm256_castpd_ps(
		_mm256_permute4x64_pd(_mm256_castps_pd(s), 0xd8));
}
VF vf vf_evens(vf a, vf b)
{
	return vf_make(vf_pick(a.a, a.b, false), vf_pick(b.a, b.b, false));
}
VF vf vf_odds(vf a, vf b)
{
	return vf_make(vf_pick(a.a, a.b, true), vf_pick(b.a, b.b, true));
}

/* Sums of 8 vectors in lanes 0..7 (the others 0).  Each is the tree (i, i+8),
 * (i, i+4), (i, i+2), (i, i+1). */
VF vf vf_sum8(const vf *v)
{
	__m256 s[8], t[4];

	for (int i = 0; i < 8; i++)
		s[i] = _mm256_add_ps(v[i].a, v[i].b);
	for (int i = 0; i < 4; i++) /* low half: i, high half: i + 4 */
		t[i] = _mm256_add_ps(
			_mm256_permute2f128_ps(s[i], s[i + 4], 0x20),
			_mm256_permute2f128_ps(s[i], s[i + 4], 0x31));
	for (int i = 0; i < 2; i++) /* pairs: i, i + 2 */
		s[i] = _mm256_add_ps(_mm256_shuffle_ps(t[i], t[i + 2], 0x44),
				     _mm256_shuffle_ps(t[i], t[i + 2], 0xee));
	/* lanes: 0 2 1 3 | 4 6 5 7 */
	s[0] = _mm256_add_ps(_mm256_shuffle_ps(s[0], s[1], 0x88),
			     _mm256_shuffle_ps(s[0], s[1], 0xdd));
	return vf_make(_mm256_permute_ps(s[0], 0xd8), _mm256_setzero_ps());
}

VF vf vf_fold(vf v) /* the tree, in every lane */
{
	__m256 s = _mm256_add_ps(v.a, v.b);

	s = _mm256_add_ps(s, _mm256_permute2f128_ps(s, s, 0x01));
	s = _mm256_add_ps(s, _mm256_permute_ps(s, 0x4e));
	s = _mm256_add_ps(s, _mm256_permute_ps(s, 0xb1));
	return vf_make(s, s);
}
VF float vf_sum(vf v)
{
	return vf_first(vf_fold(v));
}
VF float vf_hmax(vf v)
{
	__m256 s = _mm256_max_ps(v.a, v.b);

	s = _mm256_max_ps(s, _mm256_permute2f128_ps(s, s, 0x01));
	s = _mm256_max_ps(s, _mm256_permute_ps(s, 0x4e));
	return _mm256_cvtss_f32(_mm256_max_ps(s, _mm256_permute_ps(s, 0xb1)));
}

/* Transpose 16 vectors in place. */
VF void vf_transpose(vf *r)
{
	float t[16][16];

	for (int i = 0; i < 16; i++)
		vf_store(t[i], r[i]);
	for (int i = 0; i < 16; i++) {
		float u[16];

		for (int j = 0; j < 16; j++)
			u[j] = t[j][i];
		r[i] = vf_load(u);
	}
}

#endif
