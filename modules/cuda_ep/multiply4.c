// multiply4.c - rows of 4-bit matrices times activations, on the host: exact
// sums of integers a block, then fused multiply-adds in the order of
// kernels/beside.cu, so the same bits whatever the processor has.
#include <math.h>
#include <string.h>

#include "modules/cuda_ep/beside.h"
#include "modules/cuda_ep/kernels/params.h"

#define STRETCH CEP_BESIDE_DIGITS // of 128 columns
#define POWERS 384u		  // in it, a float a block
#define SUMS 400u		  // and an integer
#define ROUND 8u		  // stretches until a lane has its turn again
// Codes are asked for so many bytes before they are needed: what a processor
// does by itself is confused by several short rows at once.
#define AHEAD 12288

#if defined(__x86_64__)
#include <immintrin.h>
#define HAVE_X86 1
#else
#define HAVE_X86 0
#endif

enum cep_level cep_beside_level(void)
{
#if HAVE_X86
	if (__builtin_cpu_supports("avx512f") &&
	    __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512vl") &&
	    __builtin_cpu_supports("avx512vnni"))
		return CEP_AVX512;
	if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
	    __builtin_cpu_supports("f16c"))
		return CEP_AVX2;
#endif
	return CEP_PLAIN;
}

// ---- elements ----

static float of_half(uint16_t h)
{
	uint32_t sign = (uint32_t)(h & 0x8000) << 16, e = h >> 10 & 31;
	uint32_t m = h & 1023, bits;
	float v;

	if (e == 0) // exact: a small integer times a power of two
		return (sign ? -1.f : 1.f) * (float)m * 0x1p-24f;
	bits = sign | (e == 31 ? 0x7f800000u : (e + 112) << 23) | m << 13;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

static float element(const struct cep_form4 *f, const unsigned char *p,
		     uint32_t i)
{
	uint16_t h;
	uint32_t bits;
	float v;

	memcpy(&h, p + 2 * (size_t)i, sizeof(h));
	if (!f->bf16)
		return of_half(h);
	bits = (uint32_t)h << 16;
	memcpy(&v, &bits, sizeof(v));
	return v;
}

// ---- one block at a time ----

struct row {
	const unsigned char *codes, *scales, *zeros;
};

static struct row row_of(const struct cep_form4 *f, const struct cep_rows4 *m,
			 uint32_t i)
{
	size_t zp = f->zp_kind == CEP_ZP_PACKED ? f->zp_row : 2 * f->blocks;

	return (struct row){
		m->codes + (size_t)i * f->row_bytes,
		m->scales + (size_t)i * f->blocks * 2,
		f->zp_kind ? m->zeros + i * zp : NULL,
	};
}

static int packed_zero(const struct cep_form4 *f, const struct row *r,
		       uint32_t b)
{
	return f->zp_kind == CEP_ZP_NONE ? 8
					 : r->zeros[b / 2] >> (b & 1) * 4 & 15;
}

// The digits of a word's columns, as they stand beside its codes.
static int digit(const unsigned char *x, uint32_t d, uint32_t word, uint32_t i)
{
	return (signed char)x[128 * d + i % 2 * 64 + 4 * word + i / 2];
}

static float one_block(const struct cep_form4 *f, const struct row *r,
		       uint32_t b, const unsigned char *x, float acc)
{
	uint32_t at = b >> f->shift;
	int sum, low = 0, middle = 0, high = 0;
	float power, v;

	x += b / 4 * STRETCH;
	memcpy(&power, x + POWERS + 4 * (b % 4), sizeof(power));
	memcpy(&sum, x + SUMS + 4 * (b % 4), sizeof(sum));
	for (uint32_t i = 0; i < 32; i++) {
		int code = r->codes[(size_t)b * 16 + i / 2] >> i % 2 * 4 & 15;
		uint32_t word = b % 4 * 4 + i / 8;

		low += code * digit(x, 0, word, i % 8);
		middle += code * digit(x, 1, word, i % 8);
		high += code * digit(x, 2, word, i % 8);
	}
	low += middle * 256 + high * 65536;
	if (f->zp_kind == CEP_ZP_FLOAT)
		v = fmaf(-element(f, r->zeros, at), (float)sum, (float)low);
	else
		v = (float)(low - packed_zero(f, r, at) * sum);
	return fmaf(v, element(f, r->scales, at) * power, acc);
}

static void plain(const struct cep_form4 *f, const struct cep_rows4 *m,
		  uint32_t first, uint32_t n, const unsigned char *x,
		  float *out)
{
	for (uint32_t i = 0; i < n; i++) {
		float lane[4 * ROUND] = {0};
		struct row r = row_of(f, m, first + i);

		for (uint32_t b = 0; b < f->k / 32; b++)
			lane[b % 32] = one_block(f, &r, b, x, lane[b % 32]);
		for (uint32_t o = 16; o; o /= 2)
			for (uint32_t k = 0; k < o; k++)
				lane[k] += lane[k + o];
		out[i] = lane[0];
	}
}

#if HAVE_X86

// ---- a stretch of four rows at once ----
// What codes times digits gave lies by blocks, 128 bits each; then, turned, a
// block's four rows lie there.

#define AVX2 __attribute__((target("avx2,fma,f16c")))
#define AVX2_INLINE AVX2 static inline __attribute__((always_inline))

// What is known when a loop is compiled.
struct known {
	uint32_t zp;
	bool small; // blocks of 32
};

// Values of four blocks of four rows, at stretch t, turned.
AVX2_INLINE __m256i small_values(const unsigned char *const *at, uint32_t t,
				 uint32_t left)
{
	__m128i r[4], u, v;

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		const unsigned char *p = at[i] + 8 * (size_t)t;
		uint64_t w = 0;

		if (left >= 4) {
			r[i] = _mm_loadl_epi64((const void *)p);
			continue;
		}
		memcpy(&w, p, 2 * (size_t)left);
		r[i] = _mm_cvtsi64_si128((long long)w);
	}
	u = _mm_unpacklo_epi16(r[0], r[1]);
	v = _mm_unpacklo_epi16(r[2], r[3]);
	return _mm256_set_m128i(_mm_unpackhi_epi32(u, v),
				_mm_unpacklo_epi32(u, v));
}

// The same of larger blocks, which several of 32 columns share.
AVX2 static __m256i large_values(const struct cep_form4 *f,
				 const unsigned char *const *at, uint32_t t)
{
	uint16_t v[16];

	for (uint32_t k = 0; k < 4; k++) {
		uint32_t own = (4 * t + k) >> f->shift;

		own = own < f->blocks ? own : f->blocks - 1;
		for (uint32_t i = 0; i < 4; i++)
			memcpy(&v[4 * k + i], at[i] + 2 * (size_t)own, 2);
	}
	return _mm256_loadu_si256((const void *)v);
}

AVX2 static __m128i nibbles_of(const struct cep_form4 *f,
			       const unsigned char *const *at, uint32_t t)
{
	unsigned char v[16];

	for (uint32_t k = 0; k < 4; k++) {
		uint32_t own = (4 * t + k) >> f->shift;

		own = own < f->blocks ? own : f->blocks - 1;
		for (uint32_t i = 0; i < 4; i++)
			v[4 * k + i] = at[i][own / 2] >> (own & 1) * 4 & 15;
	}
	return _mm_loadu_si128((const void *)v);
}

AVX2_INLINE __m256i values_of(const struct cep_form4 *f, struct known is,
			      const unsigned char *const *at, uint32_t t,
			      uint32_t left)
{
	return is.small ? small_values(at, t, left) : large_values(f, at, t);
}

// Four rows; those that are not there are the first.
struct four {
	const unsigned char *codes[4], *scales[4], *zeros[4];
};

static void find_four(const struct cep_form4 *f, const struct cep_rows4 *m,
		      uint32_t first, uint32_t n, struct four *q)
{
	for (uint32_t i = 0; i < 4; i++) {
		struct row r = row_of(f, m, first + (i < n ? i : 0));

		q->codes[i] = r.codes;
		q->scales[i] = r.scales;
		q->zeros[i] = r.zeros;
	}
}

// Half a stretch of a row, two blocks: codes times digits.
AVX2_INLINE __m256i half(__m256i c, const unsigned char *x)
{
	const __m256i low = _mm256_set1_epi8(15);
	const __m256i one = _mm256_set1_epi16(1);
	__m256i a = _mm256_and_si256(c, low), v[3];
	__m256i b = _mm256_and_si256(_mm256_srli_epi16(c, 4), low);

#pragma GCC unroll 3
	for (int d = 0; d < 3; d++) {
		const unsigned char *y = x + 128 * d;

		v[d] = _mm256_add_epi16(
			_mm256_maddubs_epi16(
				a, _mm256_loadu_si256((const void *)y)),
			_mm256_maddubs_epi16(
				b, _mm256_loadu_si256((const void *)(y + 64))));
	}
	v[0] = _mm256_madd_epi16(v[0], one);
	v[1] = _mm256_madd_epi16(v[1], _mm256_set1_epi16(256));
	v[2] = _mm256_slli_epi32(_mm256_madd_epi16(v[2], one), 16);
	return _mm256_add_epi32(_mm256_add_epi32(v[0], v[1]), v[2]);
}

// Sums over the words of a block, turned.
AVX2_INLINE __m256i turn8(__m256i a, __m256i b, __m256i c, __m256i d)
{
	__m256i u = _mm256_add_epi32(_mm256_unpacklo_epi32(a, b),
				     _mm256_unpackhi_epi32(a, b));
	__m256i v = _mm256_add_epi32(_mm256_unpacklo_epi32(c, d),
				     _mm256_unpackhi_epi32(c, d));

	return _mm256_add_epi32(_mm256_unpacklo_epi64(u, v),
				_mm256_unpackhi_epi64(u, v));
}

AVX2_INLINE __m256 floats8(const struct cep_form4 *f, __m256i v, int h)
{
	__m128i w =
		h ? _mm256_extracti128_si256(v, 1) : _mm256_castsi256_si128(v);

	if (f->bf16)
		return _mm256_castsi256_ps(
			_mm256_slli_epi32(_mm256_cvtepu16_epi32(w), 16));
	return _mm256_cvtph_ps(w);
}

// A number for each of two blocks.
AVX2_INLINE __m256i pair(const unsigned char *p)
{
	return _mm256_permutevar8x32_epi32(
		_mm256_castsi128_si256(_mm_loadl_epi64((const void *)p)),
		_mm256_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1));
}

AVX2_INLINE void stretch_avx2(const struct cep_form4 *f, const struct four *q,
			      struct known is, uint32_t t, uint32_t left,
			      const unsigned char *x, __m256 *acc)
{
	__m256i scales = values_of(f, is, q->scales, t, left), zeros = scales;
	__m256i c[4][2];

#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		const unsigned char *p = q->codes[i] + (size_t)t * 64;
		unsigned char tail[64] = {0};

		_mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
		if (left < 4)
			p = memcpy(tail, p, left * (size_t)16);
		c[i][0] = _mm256_loadu_si256((const void *)p);
		c[i][1] = _mm256_loadu_si256((const void *)(p + 32));
	}
	if (is.zp == CEP_ZP_FLOAT)
		zeros = values_of(f, is, q->zeros, t, left);
	else if (is.zp)
		zeros = _mm256_cvtepu8_epi16(nibbles_of(f, q->zeros, t));
#pragma GCC unroll 2
	for (int h = 0; h < 2; h++) {
		const unsigned char *y = x + 32 * h;
		__m256i z, sum = pair(x + SUMS + 8 * h);
		__m256i d = turn8(half(c[0][h], y), half(c[1][h], y),
				  half(c[2][h], y), half(c[3][h], y));
		__m256 v, power;

		if (is.zp == CEP_ZP_FLOAT) {
			v = _mm256_fnmadd_ps(floats8(f, zeros, h),
					     _mm256_cvtepi32_ps(sum),
					     _mm256_cvtepi32_ps(d));
		} else {
			z = _mm256_slli_epi32(sum, 3);
			if (is.zp)
				z = _mm256_mullo_epi32(
					sum,
					_mm256_cvtepu16_epi32(
						h ? _mm256_extracti128_si256(
							    zeros, 1)
						  : _mm256_castsi256_si128(
							    zeros)));
			v = _mm256_cvtepi32_ps(_mm256_sub_epi32(d, z));
		}
		power = _mm256_castsi256_ps(pair(x + POWERS + 8 * h));
		acc[h] = _mm256_fmadd_ps(
			v, _mm256_mul_ps(floats8(f, scales, h), power), acc[h]);
	}
}

AVX2_INLINE void four_avx2(const struct cep_form4 *f, const struct four *q,
			   struct known is, const unsigned char *x, float *out)
{
	const uint32_t nb = f->k / 32;
	__m256 acc[ROUND][2], v;

	memset(acc, 0, sizeof(acc));
	for (uint32_t t = 0; t < nb / 4; t++)
		stretch_avx2(f, q, is, t, 4, x + (size_t)t * STRETCH,
			     acc[t % ROUND]);
	if (nb % 4)
		stretch_avx2(f, q, is, nb / 4, nb % 4,
			     x + (size_t)(nb / 4) * STRETCH,
			     acc[nb / 4 % ROUND]);
	for (uint32_t o = ROUND / 2; o; o /= 2)
		for (uint32_t i = 0; i < o; i++)
			for (int h = 0; h < 2; h++)
				acc[i][h] =
					_mm256_add_ps(acc[i][h], acc[i + o][h]);
	v = _mm256_add_ps(acc[0][0], acc[0][1]);
	_mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(v),
				      _mm256_extractf128_ps(v, 1)));
}

// ---- the same, a stretch in a register ----

#define AVX512                                                                 \
	__attribute__((                                                        \
		target("avx512f,avx512bw,avx512vl,avx512vnni,avx2,f16c,fma")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

AVX512_INLINE __m512 floats16(const struct cep_form4 *f, __m256i h)
{
	if (f->bf16)
		return _mm512_castsi512_ps(
			_mm512_slli_epi32(_mm512_cvtepu16_epi32(h), 16));
	return _mm512_cvtph_ps(h);
}

// A number for each of four blocks.
AVX512_INLINE __m512i quad(const unsigned char *p)
{
	return _mm512_permutexvar_epi32(
		_mm512_setr_epi32(0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3,
				  3),
		_mm512_castsi128_si512(_mm_loadu_si128((const void *)p)));
}

AVX512_INLINE __m512 stretch_avx512(const struct cep_form4 *f,
				    const struct four *q, struct known is,
				    uint32_t t, uint32_t left,
				    const unsigned char *x, __m512 acc)
{
	const __m512i low = _mm512_set1_epi8(15);
	const __mmask16 some = (__mmask16)((1u << 4 * left) - 1);
	__m512i y[6], d[4], u, v, sum = quad(x + SUMS);
	__m512 w;

#pragma GCC unroll 6
	for (int i = 0; i < 6; i++)
		y[i] = _mm512_loadu_si512(x + 64 * i);
#pragma GCC unroll 4
	for (int i = 0; i < 4; i++) {
		const unsigned char *p = q->codes[i] + (size_t)t * 64;
		__m512i c = left < 4 ? _mm512_maskz_loadu_epi32(some, p)
				     : _mm512_loadu_si512(p);
		__m512i a = _mm512_and_si512(c, low);
		__m512i b = _mm512_and_si512(_mm512_srli_epi16(c, 4), low);

		_mm_prefetch((const char *)p + AHEAD, _MM_HINT_T0);
		u = _mm512_dpbusd_epi32(_mm512_setzero_si512(), a, y[4]);
		u = _mm512_dpbusd_epi32(u, b, y[5]);
		u = _mm512_slli_epi32(u, 8);
		u = _mm512_dpbusd_epi32(u, a, y[2]);
		u = _mm512_dpbusd_epi32(u, b, y[3]);
		u = _mm512_slli_epi32(u, 8);
		u = _mm512_dpbusd_epi32(u, a, y[0]);
		d[i] = _mm512_dpbusd_epi32(u, b, y[1]);
	}
	u = _mm512_add_epi32(_mm512_unpacklo_epi32(d[0], d[1]),
			     _mm512_unpackhi_epi32(d[0], d[1]));
	v = _mm512_add_epi32(_mm512_unpacklo_epi32(d[2], d[3]),
			     _mm512_unpackhi_epi32(d[2], d[3]));
	u = _mm512_add_epi32(_mm512_unpacklo_epi64(u, v),
			     _mm512_unpackhi_epi64(u, v));
	if (is.zp == CEP_ZP_FLOAT) {
		w = _mm512_fnmadd_ps(
			floats16(f, values_of(f, is, q->zeros, t, left)),
			_mm512_cvtepi32_ps(sum), _mm512_cvtepi32_ps(u));
	} else {
		v = is.zp ? _mm512_mullo_epi32(_mm512_cvtepu8_epi32(nibbles_of(
						       f, q->zeros, t)),
					       sum)
			  : _mm512_slli_epi32(sum, 3);
		w = _mm512_cvtepi32_ps(_mm512_sub_epi32(u, v));
	}
	return _mm512_fmadd_ps(
		w,
		_mm512_mul_ps(floats16(f, values_of(f, is, q->scales, t, left)),
			      _mm512_castsi512_ps(quad(x + POWERS))),
		acc);
}

AVX512_INLINE void four_avx512(const struct cep_form4 *f, const struct four *q,
			       struct known is, const unsigned char *x,
			       float *out)
{
	const uint32_t nb = f->k / 32;
	__m512 acc[ROUND], v;
	__m256 s;

	for (uint32_t i = 0; i < ROUND; i++)
		acc[i] = _mm512_setzero_ps();
	for (uint32_t t = 0; t < nb / 4; t++)
		acc[t % ROUND] =
			stretch_avx512(f, q, is, t, 4, x + (size_t)t * STRETCH,
				       acc[t % ROUND]);
	if (nb % 4)
		acc[nb / 4 % ROUND] = stretch_avx512(
			f, q, is, nb / 4, nb % 4,
			x + (size_t)(nb / 4) * STRETCH, acc[nb / 4 % ROUND]);
	for (uint32_t o = ROUND / 2; o; o /= 2)
		for (uint32_t i = 0; i < o; i++)
			acc[i] = _mm512_add_ps(acc[i], acc[i + o]);
	v = _mm512_add_ps(acc[0], _mm512_shuffle_f32x4(acc[0], acc[0], 0xee));
	s = _mm512_castps512_ps256(v);
	_mm_storeu_ps(out, _mm_add_ps(_mm256_castps256_ps128(s),
				      _mm256_extractf128_ps(s, 1)));
}

// A loop for each of what may be known.
#define BY_ROWS(target, level)                                                 \
	target static void level(const struct cep_form4 *f,                    \
				 const struct cep_rows4 *m, uint32_t first,    \
				 uint32_t n, const unsigned char *x,           \
				 float *out)                                   \
	{                                                                      \
		for (uint32_t i = 0; i < n; i += 4) {                          \
			uint32_t some = n - i < 4 ? n - i : 4;                 \
			struct four q;                                         \
			float v[4];                                            \
                                                                               \
			find_four(f, m, first + i, some, &q);                  \
			if (f->zp_kind == CEP_ZP_NONE && !f->shift)            \
				four_##level(                                  \
					f, &q,                                 \
					(struct known){CEP_ZP_NONE, true}, x,  \
					v);                                    \
			else if (f->zp_kind == CEP_ZP_NONE)                    \
				four_##level(                                  \
					f, &q,                                 \
					(struct known){CEP_ZP_NONE, false}, x, \
					v);                                    \
			else if (f->zp_kind == CEP_ZP_PACKED)                  \
				four_##level(f, &q,                            \
					     (struct known){CEP_ZP_PACKED,     \
							    !f->shift},        \
					     x, v);                            \
			else                                                   \
				four_##level(f, &q,                            \
					     (struct known){CEP_ZP_FLOAT,      \
							    !f->shift},        \
					     x, v);                            \
			memcpy(out + i, v, some * sizeof(*v));                 \
		}                                                              \
	}
BY_ROWS(AVX2, avx2)
BY_ROWS(AVX512, avx512)
#endif

void cep_multiply4(enum cep_level level, const struct cep_form4 *f,
		   const struct cep_rows4 *m, uint32_t first, uint32_t n,
		   const unsigned char *x, float *out)
{
#if HAVE_X86
	if (level == CEP_AVX512) {
		avx512(f, m, first, n, x, out);
		return;
	}
	if (level == CEP_AVX2) {
		avx2(f, m, first, n, x, out);
		return;
	}
#endif
	(void)level;
	plain(f, m, first, n, x, out);
}
