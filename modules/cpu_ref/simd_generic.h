/* simd_generic.h - the 16-lane vector in plain C. */
#ifndef CREF_SIMD_GENERIC_H
#define CREF_SIMD_GENERIC_H

/* Four vectors of four, which every compiler turns into what the machine has,
 * or the 16 lanes one by one. */
typedef float v4f __attribute__((vector_size(16)));
typedef uint32_t v4u __attribute__((vector_size(16)));
typedef union {
	v4f q[4];
	float f[16];
} vf;
typedef union {
	v4u q[4];
	uint32_t u[16];
} vi;

#define VF static inline __attribute__((unused))
#define QUADS(i) for (unsigned i = 0; i < 4; i++)
#define LANES(i) for (unsigned i = 0; i < 16; i++)

VF vf vf_set1(float x)
{
	vf v;

	LANES(i) v.f[i] = x;
	return v;
}
VF vf vf_zero(void)
{
	return vf_set1(0);
}
VF vf vf_load(const void *p)
{
	vf v;

	memcpy(&v, p, sizeof(v));
	return v;
}
VF void vf_store(void *p, vf v)
{
	memcpy(p, &v, sizeof(v));
}
VF vf vf_loadn(const void *p, unsigned n)
{
	vf v = vf_zero();

	memcpy(&v, p, n * sizeof(float));
	return v;
}
VF void vf_storen(void *p, vf v, unsigned n)
{
	memcpy(p, &v, n * sizeof(float));
}
VF vf vf_add(vf a, vf b)
{
	QUADS(i) a.q[i] += b.q[i];
	return a;
}
VF vf vf_sub(vf a, vf b)
{
	QUADS(i) a.q[i] -= b.q[i];
	return a;
}
VF vf vf_mul(vf a, vf b)
{
	QUADS(i) a.q[i] *= b.q[i];
	return a;
}
VF vf vf_div(vf a, vf b)
{
	QUADS(i) a.q[i] /= b.q[i];
	return a;
}
VF vf vf_fma(vf a, vf b, vf c) /* a * b + c, rounded once */
{
	LANES(i) c.f[i] = fmaf(a.f[i], b.f[i], c.f[i]);
	return c;
}
VF vi vf_ints(vf v)
{
	vi r;

	memcpy(&r, &v, sizeof(r));
	return r;
}
VF vf vi_floats(vi v)
{
	vf r;

	memcpy(&r, &v, sizeof(r));
	return r;
}
VF vf vf_if_lt(vf a, vf b, vf x, vf y) /* a < b ? x : y */
{
	QUADS(i)
	{
		const v4u m = (v4u)(a.q[i] < b.q[i]);

		x.q[i] = (v4f)((m & (v4u)x.q[i]) | (~m & (v4u)y.q[i]));
	}
	return x;
}
VF vf vf_max(vf a, vf b) /* a > b ? a : b */
{
	return vf_if_lt(b, a, a, b);
}
VF vf vf_min(vf a, vf b) /* a < b ? a : b */
{
	return vf_if_lt(a, b, a, b);
}
VF vf vf_abs(vf a)
{
	QUADS(i) a.q[i] = (v4f)((v4u)a.q[i] & 0x7fffffffu);
	return a;
}
VF vf vf_copysign(vf a, vf s) /* set the sign bit if s has it */
{
	QUADS(i)
	a.q[i] = (v4f)((v4u)a.q[i] | ((v4u)s.q[i] & 0x80000000u));
	return a;
}
/* Keep lanes [lo, hi), put fill in the others. */
VF vf vf_range(vf v, unsigned lo, unsigned hi, vf fill)
{
	LANES(i) v.f[i] = i >= lo && i < hi ? v.f[i] : fill.f[i];
	return v;
}
VF float vf_first(vf v)
{
	return v.f[0];
}

VF vi vi_set1(uint32_t x)
{
	vi v;

	LANES(i) v.u[i] = x;
	return v;
}
VF vi vi_add(vi a, vi b)
{
	QUADS(i) a.q[i] += b.q[i];
	return a;
}
VF vi vi_sub(vi a, vi b)
{
	QUADS(i) a.q[i] -= b.q[i];
	return a;
}
VF vi vi_and(vi a, vi b)
{
	QUADS(i) a.q[i] &= b.q[i];
	return a;
}
VF vi vi_xor(vi a, vi b)
{
	QUADS(i) a.q[i] ^= b.q[i];
	return a;
}
VF vi vi_half(vi a) /* arithmetic shift right by one */
{
	QUADS(i) a.q[i] = a.q[i] >> 1 | (a.q[i] & 0x80000000u);
	return a;
}
VF vi vi_shl(vi a, int n)
{
	QUADS(i) a.q[i] <<= n;
	return a;
}
VF vi vi_shr(vi a, int n)
{
	QUADS(i) a.q[i] >>= n;
	return a;
}
VF vf vi_to_float(vi a) /* signed */
{
	vf v;

	LANES(i) v.f[i] = (float)(int32_t)a.u[i];
	return v;
}
VF vi vi_load_u8(const void *p) /* 16 bytes */
{
	const unsigned char *q = p;
	vi v;

	LANES(i) v.u[i] = q[i];
	return v;
}
VF vi vi_load_u16(const void *p) /* 32 bytes */
{
	uint16_t q[16];
	vi v;

	memcpy(q, p, sizeof(q));
	LANES(i) v.u[i] = q[i];
	return v;
}

VF vf vf_load_f16(const void *p)
{
	vf v;

	LANES(i) v.f[i] = cref_load(p, GENAI_DT_F16, i);
	return v;
}
VF void vf_store_f16(void *p, vf v)
{
	LANES(i) cref_store(p, GENAI_DT_F16, i, v.f[i]);
}
VF vf vf_load_bf16(const void *p)
{
	return vi_floats(vi_shl(vi_load_u16(p), 16));
}
VF void vf_store_bf16(void *p, vf v)
{
	LANES(i) cref_store(p, GENAI_DT_BF16, i, v.f[i]);
}

/* 16 bytes from at on of 16 rows: out[j] holds dword j of each. */
VF void vi_turn(vi *out, const unsigned char *const *row, uint64_t at)
{
	LANES(i)
	{
		const unsigned char *p = row[i] + at;

		for (unsigned j = 0; j < 4; j++, p += 4)
			out[j].u[i] = p[0] | (uint32_t)p[1] << 8 |
				      (uint32_t)p[2] << 16 |
				      (uint32_t)p[3] << 24;
	}
}
/* Byte i of every lane, moved to the top: a signed number. */
VF vf vi_top(vi x, const unsigned i)
{
	QUADS(j) x.q[j] = x.q[j] << (24 - 8 * i) & 0xff000000u;
	return vi_to_float(x);
}

/* Nibble i of every lane, 16^i times as large; the last one as it is. */
VF vf vi_nibble(vi x, const unsigned i)
{
	QUADS(j) x.q[j] = i < 7 ? x.q[j] & 15u << 4 * i : x.q[j] >> 28;
	return vi_to_float(x);
}

/* The tree (i, i+8), (i, i+4), (i, i+2), (i, i+1). */
VF float vf_sum(vf v)
{
	for (unsigned h = 8; h; h /= 2)
		for (unsigned i = 0; i < h; i++)
			v.f[i] += v.f[i + h];
	return v.f[0];
}
VF vf vf_fold(vf v) /* the tree, in every lane */
{
	return vf_set1(vf_sum(v));
}
VF float vf_hmax(vf v)
{
	for (unsigned h = 8; h; h /= 2)
		for (unsigned i = 0; i < h; i++)
			v.f[i] = v.f[i] > v.f[i + h] ? v.f[i] : v.f[i + h];
	return v.f[0];
}

/* Transpose 16 vectors in place. */
VF void vf_transpose(vf *r)
{
	for (unsigned i = 0; i < 16; i++)
		for (unsigned j = 0; j < i; j++) {
			const float t = r[i].f[j];

			r[i].f[j] = r[j].f[i];
			r[j].f[i] = t;
		}
}

#endif
