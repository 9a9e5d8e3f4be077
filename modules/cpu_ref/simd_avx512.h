/* simd_avx512.h - the 16-lane vector on AVX-512: one register. */
#ifndef CREF_SIMD_AVX512_H
#define CREF_SIMD_AVX512_H

#include <immintrin.h>

typedef __m512 vf;
typedef __m512i vi;

#define VF static inline __attribute__((always_inline, unused))

VF vf vf_zero(void)
{
	return _mm512_setzero_ps();
}
VF vf vf_set1(float x)
{
	return _mm512_set1_ps(x);
}
VF vf vf_load(const void *p)
{
	return _mm512_loadu_ps(p);
}
VF void vf_store(void *p, vf v)
{
	_mm512_storeu_ps(p, v);
}
VF __mmask16 vf_mask(unsigned n) /* the first n lanes, n <= 16 */
{
	return (__mmask16)((1u << n) - 1u);
}
VF vf vf_loadn(const void *p, unsigned n)
{
	return _mm512_maskz_loadu_ps(vf_mask(n), p);
}
VF void vf_storen(void *p, vf v, unsigned n)
{
	_mm512_mask_storeu_ps(p, vf_mask(n), v);
}
VF vf vf_add(vf a, vf b)
{
	return _mm512_add_ps(a, b);
}
VF vf vf_sub(vf a, vf b)
{
	return _mm512_sub_ps(a, b);
}
VF vf vf_mul(vf a, vf b)
{
	return _mm512_mul_ps(a, b);
}
VF vf vf_div(vf a, vf b)
{
	return _mm512_div_ps(a, b);
}
VF vf vf_fma(vf a, vf b, vf c) /* a * b + c, rounded once */
{
	return _mm512_fmadd_ps(a, b, c);
}
VF vf vf_max(vf a, vf b) /* a > b ? a : b */
{
	return _mm512_max_ps(a, b);
}
VF vf vf_min(vf a, vf b) /* a < b ? a : b */
{
	return _mm512_min_ps(a, b);
}
VF vf vf_if_lt(vf a, vf b, vf x, vf y) /* a < b ? x : y */
{
	return _mm512_mask_mov_ps(y, _mm512_cmp_ps_mask(a, b, _CMP_LT_OQ), x);
}
VF vf vf_abs(vf a)
{
	return _mm512_castsi512_ps(_mm512_and_si512(
		_mm512_castps_si512(a), _mm512_set1_epi32(0x7fffffff)));
}
VF vf vf_copysign(vf a, vf s) /* set the sign bit if s has it */
{
	return _mm512_castsi512_ps(_mm512_or_si512(
		_mm512_castps_si512(a),
		_mm512_and_si512(_mm512_castps_si512(s),
				 _mm512_set1_epi32((int)0x80000000u))));
}
/* Keep lanes [lo, hi), put fill in the others. */
VF vf vf_range(vf v, unsigned lo, unsigned hi, vf fill)
{
	return _mm512_mask_mov_ps(fill, (__mmask16)(vf_mask(hi) & ~vf_mask(lo)),
				  v);
}
VF float vf_first(vf v)
{
	return _mm512_cvtss_f32(v);
}

VF vi vf_ints(vf v)
{
	return _mm512_castps_si512(v);
}
VF vf vi_floats(vi v)
{
	return _mm512_castsi512_ps(v);
}
VF vi vi_set1(uint32_t x)
{
	return _mm512_set1_epi32((int)x);
}
VF vi vi_add(vi a, vi b)
{
	return _mm512_add_epi32(a, b);
}
VF vi vi_sub(vi a, vi b)
{
	return _mm512_sub_epi32(a, b);
}
VF vi vi_and(vi a, vi b)
{
	return _mm512_and_si512(a, b);
}
VF vi vi_xor(vi a, vi b)
{
	return _mm512_xor_si512(a, b);
}
VF vi vi_half(vi a) /* arithmetic shift right by one */
{
	return _mm512_srai_epi32(a, 1);
}
#define vi_shl(a, n) _mm512_slli_epi32((a), (n))
#define vi_shr(a, n) _mm512_srli_epi32((a), (n))
VF vf vi_to_float(vi a)
{
	return _mm512_cvtepi32_ps(a);
}
VF vi vi_load_u8(const void *p) /* 16 bytes */
{
	return _mm512_cvtepu8_epi32(_mm_loadu_si128(p));
}
VF vi vi_load_u16(const void *p) /* 32 bytes */
{
	return _mm512_cvtepu16_epi32(_mm256_loadu_si256(p));
}

VF vf vf_load_f16(const void *p)
{
	return _mm512_cvtph_ps(_mm256_loadu_si256(p));
}
VF void vf_store_f16(void *p, vf v)
{
	_mm256_storeu_si256(p, _mm512_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT |
							  _MM_FROUND_NO_EXC));
}
VF vf vf_load_bf16(const void *p)
{
	return vi_floats(vi_shl(vi_load_u16(p), 16));
}
VF void vf_store_bf16(void *p, vf v)
{
	vi u = vf_ints(v), r;
	__mmask16 nan = _mm512_cmp_ps_mask(v, v, _CMP_UNORD_Q);

	r = vi_add(vi_add(u, vi_set1(0x7fff)),
		   vi_and(vi_shr(u, 16), vi_set1(1)));
	r = _mm512_mask_or_epi32(r, nan, u, vi_set1(0x400000));
	_mm256_storeu_si256(p, _mm512_cvtepi32_epi16(vi_shr(r, 16)));
}

/* 16 bytes from at on of 16 rows: out[j] holds dword j of each. */
VF __m512i vi_four_rows(const unsigned char *const *row, uint64_t at)
{
	__m512i x = _mm512_castsi128_si512(
		_mm_loadu_si128((const void *)(row[0] + at)));

	x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(row[4] + at)),
			       1);
	x = _mm512_inserti32x4(x, _mm_loadu_si128((const void *)(row[8] + at)),
			       2);
	return _mm512_inserti32x4(
		x, _mm_loadu_si128((const void *)(row[12] + at)), 3);
}
VF void vi_turn(vi *out, const unsigned char *const *row, uint64_t at)
{
	const vi a = vi_four_rows(row, at), b = vi_four_rows(row + 1, at);
	const vi c = vi_four_rows(row + 2, at), d = vi_four_rows(row + 3, at);
	const vi e = _mm512_unpacklo_epi32(a, b);
	const vi f = _mm512_unpackhi_epi32(a, b);
	const vi g = _mm512_unpacklo_epi32(c, d);
	const vi h = _mm512_unpackhi_epi32(c, d);

	out[0] = _mm512_unpacklo_epi64(e, g);
	out[1] = _mm512_unpackhi_epi64(e, g);
	out[2] = _mm512_unpacklo_epi64(f, h);
	out[3] = _mm512_unpackhi_epi64(f, h);
}
/* Byte i of every lane, moved to the top: a signed number. */
VF vf vi_top(vi x, const unsigned i)
{
	return _mm512_cvtepi32_ps(
		vi_and(_mm512_slli_epi32(x, 24 - 8 * i), vi_set1(0xff000000u)));
}

/* Nibble i of every lane, 16^i times as large; the last one as it is. */
VF vf vi_nibble(vi x, const unsigned i)
{
	return _mm512_cvtepi32_ps(i < 7 ? vi_and(x, vi_set1(15u << 4 * i))
					: vi_shr(x, 28));
}

VF vf vf_fold(vf v) /* the tree, in every lane */
{
	v = vf_add(v, _mm512_shuffle_f32x4(v, v, 0x4e));
	v = vf_add(v, _mm512_shuffle_f32x4(v, v, 0xb1));
	v = vf_add(v, _mm512_permute_ps(v, 0x4e));
	return vf_add(v, _mm512_permute_ps(v, 0xb1));
}
VF float vf_sum(vf v)
{
	return vf_first(vf_fold(v));
}
VF float vf_hmax(vf v)
{
	v = vf_max(v, _mm512_shuffle_f32x4(v, v, 0x4e));
	v = vf_max(v, _mm512_shuffle_f32x4(v, v, 0xb1));
	v = vf_max(v, _mm512_permute_ps(v, 0x4e));
	return vf_first(vf_max(v, _mm512_permute_ps(v, 0xb1)));
}

/* Transpose 16 vectors in place. */
VF void vf_transpose(vf *r)
{
	vf t[16];

	for (int i = 0; i < 8; i++) {
		t[2 * i] = _mm512_unpacklo_ps(r[2 * i], r[2 * i + 1]);
		t[2 * i + 1] = _mm512_unpackhi_ps(r[2 * i], r[2 * i + 1]);
	}
	for (int i = 0; i < 4; i++) {
		r[4 * i] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
		r[4 * i + 1] = _mm512_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
		r[4 * i + 2] =
			_mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
		r[4 * i + 3] =
			_mm512_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
	}
	for (int i = 0; i < 4; i++) {
		t[i] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0x88);
		t[i + 4] = _mm512_shuffle_f32x4(r[i], r[i + 4], 0xdd);
		t[i + 8] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0x88);
		t[i + 12] = _mm512_shuffle_f32x4(r[i + 8], r[i + 12], 0xdd);
	}
	for (int i = 0; i < 4; i++) {
		r[i] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0x88);
		r[i + 8] = _mm512_shuffle_f32x4(t[i], t[i + 8], 0xdd);
		r[i + 4] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0x88);
		r[i + 12] = _mm512_shuffle_f32x4(t[i + 4], t[i + 12], 0xdd);
	}
}

#endif
