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
VF vi vi_xor(vi a, vi b)
{
	return IBOTH2(_mm256_xor_si256, a, b);
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

/* 16 bytes from at on of 16 rows: out[j] holds dword j of each. */
VF __m256i vi_two_rows(const unsigned char *lo, const unsigned char *hi)
{
	return _mm256_inserti128_si256(
		_mm256_castsi128_si256(_mm_loadu_si128((const void *)lo)),
		_mm_loadu_si128((const void *)hi), 1);
}
#define VI_TURN8(out, half, row, at)                                           \
	do {                                                                   \
		const __m256i a_ =                                             \
			vi_two_rows((row)[0] + (at), (row)[4] + (at));         \
		const __m256i b_ =                                             \
			vi_two_rows((row)[1] + (at), (row)[5] + (at));         \
		const __m256i c_ =                                             \
			vi_two_rows((row)[2] + (at), (row)[6] + (at));         \
		const __m256i d_ =                                             \
			vi_two_rows((row)[3] + (at), (row)[7] + (at));         \
		const __m256i e_ = _mm256_unpacklo_epi32(a_, b_);              \
		const __m256i f_ = _mm256_unpackhi_epi32(a_, b_);              \
		const __m256i g_ = _mm256_unpacklo_epi32(c_, d_);              \
		const __m256i h_ = _mm256_unpackhi_epi32(c_, d_);              \
                                                                               \
		(out)[0].half = _mm256_unpacklo_epi64(e_, g_);                 \
		(out)[1].half = _mm256_unpackhi_epi64(e_, g_);                 \
		(out)[2].half = _mm256_unpacklo_epi64(f_, h_);                 \
		(out)[3].half = _mm256_unpackhi_epi64(f_, h_);                 \
	} while (0)
VF void vi_turn(vi *out, const unsigned char *const *row, uint64_t at)
{
	VI_TURN8(out, a, row, at);
	VI_TURN8(out, b, row + 8, at);
}
/* Byte i of every lane, moved to the top: a signed number. */
VF __m256 vi_top8(__m256i x, const unsigned i)
{
	const char n = -1;

	if (i == 0)
		x = _mm256_slli_epi32(x, 24);
	else if (i == 1)
		x = _mm256_shuffle_epi8(
			x, _mm256_setr_epi8(n, n, n, 1, n, n, n, 5, n, n, n, 9,
					    n, n, n, 13, n, n, n, 1, n, n, n, 5,
					    n, n, n, 9, n, n, n, 13));
	else if (i == 2)
		x = _mm256_shuffle_epi8(
			x, _mm256_setr_epi8(n, n, n, 2, n, n, n, 6, n, n, n, 10,
					    n, n, n, 14, n, n, n, 2, n, n, n, 6,
					    n, n, n, 10, n, n, n, 14));
	else
		x = _mm256_and_si256(x, _mm256_set1_epi32((int)0xff000000u));
	return _mm256_cvtepi32_ps(x);
}
VF vf vi_top(vi x, const unsigned i)
{
	return vf_make(vi_top8(x.a, i), vi_top8(x.b, i));
}

/* Nibble i of every lane, 16^i times as large; the last one as it is. */
VF vf vi_nibble(vi x, const unsigned i)
{
	return vi_to_float(i < 7 ? vi_and(x, vi_set1(15u << 4 * i))
				 : vi_shr(x, 28));
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

/* Transpose 8 registers in place. */
VF void vf_transpose8(__m256 *r)
{
	__m256 t[8];

	for (int i = 0; i < 4; i++) {
		t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
	for (int i = 0; i < 2; i++) {
		const __m256 *s = t + 4 * i;

		r[4 * i] = _mm256_shuffle_ps(s[0], s[2], 0x44);
		r[4 * i + 1] = _mm256_shuffle_ps(s[0], s[2], 0xee);
		r[4 * i + 2] = _mm256_shuffle_ps(s[1], s[3], 0x44);
		r[4 * i + 3] = _mm256_shuffle_ps(s[1], s[3], 0xee);
	}
	for (int i = 0; i < 4; i++) {
		t[i] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x20);
		t[i + 4] = _mm256_permute2f128_ps(r[i], r[i + 4], 0x31);
	}
	for (int i = 0; i < 8; i++)
		r[i] = t[i];
}
/* Transpose 16 vectors in place: four squares of 8. */
VF void vf_transpose(vf *r)
{
	__m256 a[8], b[8];

	for (int i = 0; i < 8; i++) {
		a[i] = r[i].b;
		b[i] = r[i + 8].a;
	}
	vf_transpose8(a);
	vf_transpose8(b);
	for (int i = 0; i < 8; i++) {
		r[i].b = b[i];
		r[i + 8].a = a[i];
		a[i] = r[i].a;
		b[i] = r[i + 8].b;
	}
	vf_transpose8(a);
	vf_transpose8(b);
	for (int i = 0; i < 8; i++) {
		r[i].a = a[i];
		r[i + 8].b = b[i];
	}
}

#endif
