// multiply4.c - rows of 4-bit matrices times activations, on the host, with
// fused multiply-adds in the order of kernels/beside.cu: the same bits whatever
// the processor has.
#include <math.h>
#include <string.h>

#include "modules/cuda_ep/beside.h"
#include "modules/cuda_ep/kernels/params.h"

#define TILE CEP_BESIDE_TILE
#define WORDS 32u // of a tile
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
	    __builtin_cpu_supports("avx512vl"))
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

// ---- one word at a time ----

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

static float zero(const struct cep_form4 *f, const struct row *r, uint32_t b)
{
	if (f->zp_kind == CEP_ZP_NONE)
		return 8;
	if (f->zp_kind == CEP_ZP_PACKED)
		return (float)(r->zeros[b / 2] >> (b & 1) * 4 & 15);
	return element(f, r->zeros, b);
}

// Words from on, into the sums of their lanes.
static void words(const struct cep_form4 *f, const struct row *r, uint32_t from,
		  const float *x, float *lane)
{
	for (uint32_t w = from; w < f->k / 8; w++) {
		const float *v = x + w / WORDS * TILE + w % WORDS;
		uint32_t b = w >> (2 + f->shift), code;
		float z = zero(f, r, b), d = 0;

		memcpy(&code, r->codes + 4 * (size_t)w, sizeof(code));
		for (uint32_t e = 0; e < 8; e++) {
			float q = (float)(code >> 4 * e & 15) - z;

			d = e ? fmaf(q, v[e * WORDS], d) : q * v[0];
		}
		lane[w % WORDS] =
			fmaf(d, element(f, r->scales, b), lane[w % WORDS]);
	}
}

static float tree(float *lane)
{
	for (uint32_t o = WORDS / 2; o; o /= 2)
		for (uint32_t i = 0; i < o; i++)
			lane[i] += lane[i + o];
	return lane[0];
}

static void plain(const struct cep_form4 *f, const struct cep_rows4 *m,
		  uint32_t first, uint32_t n, const float *x, float *out)
{
	for (uint32_t i = 0; i < n; i++) {
		float lane[WORDS] = {0};
		struct row r = row_of(f, m, first + i);

		words(f, &r, 0, x, lane);
		out[i] = tree(lane);
	}
}

#if HAVE_X86

// ---- eight words at a time ----

#define AVX2 __attribute__((target("avx2,fma,f16c")))

// What four words of a tile have in common: their block's scale or zero.
AVX2 static __m128 four(const struct cep_form4 *f, const unsigned char *p,
			uint32_t b)
{
	uint16_t h;

	memcpy(&h, p + 2 * (size_t)b, sizeof(h));
	if (f->bf16)
		return _mm_castsi128_ps(_mm_set1_epi32((int)h << 16));
	return _mm_cvtph_ps(_mm_set1_epi16((short)h));
}

AVX2 static __m256 eight(const struct cep_form4 *f, const unsigned char *p,
			 uint32_t quad)
{
	uint32_t a = quad >> f->shift, b = (quad + 1) >> f->shift;
	__m128 low = four(f, p, a);

	return _mm256_set_m128(a == b ? low : four(f, p, b), low);
}

AVX2 static __m256 eight_zeros(const struct cep_form4 *f, const struct row *r,
			       uint32_t quad)
{
	uint32_t a = quad >> f->shift, b = (quad + 1) >> f->shift;

	if (f->zp_kind == CEP_ZP_NONE)
		return _mm256_set1_ps(8);
	if (f->zp_kind == CEP_ZP_FLOAT)
		return eight(f, r->zeros, quad);
	return _mm256_cvtepi32_ps(_mm256_set_m128i(
		_mm_set1_epi32(r->zeros[b / 2] >> (b & 1) * 4 & 15),
		_mm_set1_epi32(r->zeros[a / 2] >> (a & 1) * 4 & 15)));
}

// The last three levels of the tree: by way of memory it would take as long as
// the products of a short row.
AVX2 static inline float tree8(__m256 v)
{
	__m128 a = _mm_add_ps(_mm256_castps256_ps128(v),
			      _mm256_extractf128_ps(v, 1));

	a = _mm_add_ps(a, _mm_movehl_ps(a, a));
	return _mm_cvtss_f32(_mm_add_ss(a, _mm_movehdup_ps(a)));
}

AVX2 static void avx2(const struct cep_form4 *f, const struct cep_rows4 *m,
		      uint32_t first, uint32_t n, const float *x, float *out)
{
	uint32_t tiles = f->k / TILE;

	for (uint32_t i = 0; i < n; i++) {
		struct row r = row_of(f, m, first + i);
		__m256 acc[4] = {0};
		float lane[WORDS];

		for (uint32_t t = 0; t < tiles; t++)
			for (uint32_t j = 0; j < 4; j++) {
				const float *v = x + t * TILE + 8 * j;
				const unsigned char *p =
					r.codes + t * 128 + 32 * j;
				__m256i c = _mm256_loadu_si256((const void *)p);
				__m256 z = eight_zeros(f, &r, 8 * t + 2 * j);
				__m256 s = eight(f, r.scales, 8 * t + 2 * j);
				__m256 d;

				if (j % 2 == 0)
					_mm_prefetch(p + AHEAD, _MM_HINT_T0);
#pragma GCC unroll 8
				for (int e = 0; e < 8; e++) {
					__m256i q = _mm256_and_si256(
						_mm256_srli_epi32(c, 4 * e),
						_mm256_set1_epi32(15));
					__m256 y = _mm256_sub_ps(
						_mm256_cvtepi32_ps(q), z);
					__m256 u =
						_mm256_loadu_ps(v + e * WORDS);

					d = e ? _mm256_fmadd_ps(y, u, d)
					      : _mm256_mul_ps(y, u);
				}
				acc[j] = _mm256_fmadd_ps(d, s, acc[j]);
			}
		if (tiles * TILE == f->k) {
			out[i] = tree8(
				_mm256_add_ps(_mm256_add_ps(acc[0], acc[2]),
					      _mm256_add_ps(acc[1], acc[3])));
			continue;
		}
		for (uint32_t j = 0; j < 4; j++)
			_mm256_storeu_ps(lane + 8 * j, acc[j]);
		words(f, &r, tiles * WORDS, x, lane);
		out[i] = tree(lane);
	}
}

// ---- sixteen words at a time, four rows at once ----

#define AVX512                                                                 \
	__attribute__((target("avx512f,avx512bw,avx512vl,avx2,f16c,fma")))
#define AVX512_INLINE AVX512 static inline __attribute__((always_inline))

// The scales (or zeros) of a tile's blocks, one a lane, from the left.
AVX512_INLINE __m512 blocks_of(const struct cep_form4 *f,
			       const unsigned char *p, uint32_t b)
{
	uint32_t left = f->blocks - b;
	__mmask8 some = (__mmask8)(left >= 8 ? 255 : (1u << left) - 1);
	__m128i h = _mm_maskz_loadu_epi16(some, p + 2 * (size_t)b);

	if (f->bf16)
		return _mm512_castsi512_ps(_mm512_slli_epi32(
			_mm512_castsi256_si512(_mm256_cvtepu16_epi32(h)), 16));
	return _mm512_castps256_ps512(_mm256_cvtph_ps(h));
}

AVX512_INLINE __m512 packed_of(const struct cep_form4 *f, const struct row *r,
			       uint32_t b)
{
	uint32_t bytes = f->zp_row - b / 2, word = 0;
	__m512i v;

	memcpy(&word, r->zeros + b / 2, bytes < 4 ? bytes : 4);
	word >>= b % 2 * 4; // then a tile has no other block
	v = _mm512_srlv_epi32(_mm512_set1_epi32((int)word),
			      _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0,
						0, 0, 0, 0, 0, 0, 0));
	return _mm512_cvtepi32_ps(_mm512_and_si512(v, _mm512_set1_epi32(15)));
}

// zp: zero points, or 8 is in the table of what codes are worth.
AVX512_INLINE void four_rows(const struct cep_form4 *f, const struct row *r,
			     int rows, int zp, const float *x, float *out)
{
	const uint32_t tiles = f->k / TILE, shift = f->shift;
	const __m512 worth =
		_mm512_sub_ps(_mm512_setr_ps(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10,
					     11, 12, 13, 14, 15),
			      _mm512_set1_ps(zp == CEP_ZP_NONE ? 8 : 0));
	const __m512i lanes = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9,
						10, 11, 12, 13, 14, 15);
	// the block of a tile that a word belongs to
	const __m512i at[2] = {
		_mm512_srlv_epi32(lanes, _mm512_set1_epi32((int)shift + 2)),
		_mm512_srlv_epi32(
			_mm512_add_epi32(lanes, _mm512_set1_epi32(16)),
			_mm512_set1_epi32((int)shift + 2)),
	};
	__m512 acc[4][2];

	for (int i = 0; i < rows; i++)
		acc[i][0] = acc[i][1] = _mm512_setzero_ps();
	for (uint32_t t = 0; t < tiles; t++) {
		const uint32_t b = t * 8 >> shift;
		__m512i c[4][2];
		__m512 d[4][2], z[4][2];

#pragma GCC unroll 4
		for (int i = 0; i < rows; i++)
			for (int h = 0; h < 2; h++) {
				const unsigned char *p =
					r[i].codes + t * 128 + 64 * h;

				c[i][h] = _mm512_loadu_si512(p);
				_mm_prefetch(p + AHEAD, _MM_HINT_T0);
			}
#pragma GCC unroll 4
		for (int i = 0; zp && i < rows; i++) {
			__m512 v = zp == CEP_ZP_PACKED
					   ? packed_of(f, &r[i], b)
					   : blocks_of(f, r[i].zeros, b);

			z[i][0] = _mm512_permutexvar_ps(at[0], v);
			z[i][1] = _mm512_permutexvar_ps(at[1], v);
		}
#pragma GCC unroll 8
		for (int e = 0; e < 8; e++) {
			const float *v = x + t * TILE + (uint32_t)e * WORDS;
			const __m512 u[2] = {_mm512_loadu_ps(v),
					     _mm512_loadu_ps(v + 16)};

#pragma GCC unroll 4
			for (int i = 0; i < rows; i++)
				for (int h = 0; h < 2; h++) {
					__m512 q = _mm512_permutexvar_ps(
						c[i][h], worth);

					if (zp)
						q = _mm512_sub_ps(q, z[i][h]);
					d[i][h] = e ? _mm512_fmadd_ps(q, u[h],
								      d[i][h])
						    : _mm512_mul_ps(q, u[h]);
					c[i][h] = _mm512_srli_epi32(c[i][h], 4);
				}
		}
#pragma GCC unroll 4
		for (int i = 0; i < rows; i++) {
			__m512 s = blocks_of(f, r[i].scales, b);

			for (int h = 0; h < 2; h++)
				acc[i][h] = _mm512_fmadd_ps(
					d[i][h],
					_mm512_permutexvar_ps(at[h], s),
					acc[i][h]);
		}
	}
	for (int i = 0; i < rows; i++) {
		float lane[WORDS];

		if (tiles * TILE == f->k) {
			__m512 v = _mm512_add_ps(acc[i][0], acc[i][1]);

			out[i] = tree8(_mm256_add_ps(
				_mm512_castps512_ps256(v),
				_mm512_castps512_ps256(
					_mm512_shuffle_f32x4(v, v, 0xee))));
			continue;
		}
		_mm512_storeu_ps(lane, acc[i][0]);
		_mm512_storeu_ps(lane + 16, acc[i][1]);
		words(f, &r[i], tiles * WORDS, x, lane);
		out[i] = tree(lane);
	}
}

#define BY_ROWS(zp)                                                            \
	for (; i + 4 <= n; i += 4) {                                           \
		const struct row r[4] = {row_of(f, m, first + i),              \
					 row_of(f, m, first + i + 1),          \
					 row_of(f, m, first + i + 2),          \
					 row_of(f, m, first + i + 3)};         \
                                                                               \
		four_rows(f, r, 4, zp, x, out + i);                            \
	}                                                                      \
	for (; i < n; i++) {                                                   \
		const struct row r[1] = {row_of(f, m, first + i)};             \
                                                                               \
		four_rows(f, r, 1, zp, x, out + i);                            \
	}

AVX512 static void avx512(const struct cep_form4 *f, const struct cep_rows4 *m,
			  uint32_t first, uint32_t n, const float *x,
			  float *out)
{
	uint32_t i = 0;

	if (f->zp_kind == CEP_ZP_NONE) {
		BY_ROWS(CEP_ZP_NONE)
	} else if (f->zp_kind == CEP_ZP_PACKED) {
		BY_ROWS(CEP_ZP_PACKED)
	} else {
		BY_ROWS(CEP_ZP_FLOAT)
	}
}
#endif

void cep_multiply4(enum cep_level level, const struct cep_form4 *f,
		   const struct cep_rows4 *m, uint32_t first, uint32_t n,
		   const float *x, float *out)
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
