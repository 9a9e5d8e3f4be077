// ops_small.c - floats of 8 and 4 bits, and elements that share a byte.
//
// A format is a sign, an exponent and a mantissa; what has no infinity has one
// code for NaN, or none.  Rounding is to the nearest, ties to even.
#include "modules/cpu_ref/ops.h"

#include <math.h>

struct small {
	int mantissa, bias;
	uint8_t most;	    // code of the largest number
	uint8_t nan;	    // code of NaN, without a sign; 0: there is none
	uint8_t inf;	    // 0: there is none
	bool unsigned_zero; // and NaN is the code of -0
};

static const struct small *format(uint32_t dtype)
{
	static const struct small e4m3fn = {3, 7, 0x7e, 0x7f, 0, false};
	static const struct small e4m3fnuz = {3, 8, 0x7f, 0x80, 0, true};
	static const struct small e5m2 = {2, 15, 0x7b, 0x7e, 0x7c, false};
	static const struct small e5m2fnuz = {2, 16, 0x7f, 0x80, 0, true};
	static const struct small e2m1 = {1, 1, 7, 0, 0, false};

	switch (dtype) {
	case GENAI_DT_F8E4M3FN:
		return &e4m3fn;
	case GENAI_DT_F8E4M3FNUZ:
		return &e4m3fnuz;
	case GENAI_DT_F8E5M2:
		return &e5m2;
	case GENAI_DT_F8E5M2FNUZ:
		return &e5m2fnuz;
	default:
		return &e2m1;
	}
}

static float decode(uint32_t dtype, unsigned code)
{
	const struct small *f = format(dtype);
	unsigned sign = dtype == GENAI_DT_F4E2M1 ? 8 : 0x80;
	unsigned a = code & (sign - 1), m = a & ((1u << f->mantissa) - 1);
	int e = (int)(a >> f->mantissa);
	float x;

	if (dtype == GENAI_DT_F8E8M0) // a power of two
		return code == 0xff ? NAN : ldexpf(1, (int)code - 127);
	if (f->unsigned_zero && code == 0x80)
		return NAN;
	if (f->inf && a > f->inf)
		return copysignf(NAN, code & sign ? -1 : 1);
	if (f->nan && !f->unsigned_zero && !f->inf && a == f->nan)
		return copysignf(NAN, code & sign ? -1 : 1);
	if (f->inf && a == f->inf)
		x = INFINITY;
	else if (!e)
		x = ldexpf((float)m, 1 - f->bias - f->mantissa);
	else
		x = ldexpf((float)(m + (1u << f->mantissa)),
			   e - f->bias - f->mantissa);
	return code & sign ? -x : x;
}

// The code of |x|, finite, as if there were no largest one.
static unsigned round_code(const struct small *f, float x)
{
	int e, least = 1 - f->bias;
	unsigned r;

	if (!(x > 0))
		return 0;
	frexpf(x, &e);
	e = e - 1 < least ? least : e - 1;
	r = (unsigned)nearbyintf(ldexpf(x, f->mantissa - e));
	if (r < 1u << f->mantissa)
		return r;
	return ((unsigned)(e + f->bias) << f->mantissa) + r -
	       (1u << f->mantissa);
}

// Infinity and what is too large: the largest number, NaN or infinity.
static unsigned encode(uint32_t dtype, float x)
{
	const struct small *f = format(dtype);
	unsigned sign = dtype == GENAI_DT_F4E2M1 ? 8 : 0x80, code;

	if (dtype == GENAI_DT_F8E8M0) {
		uint32_t u = cref_bits(x);

		if (x != x || fabsf(x) == INFINITY)
			return 0xff;
		code = u >> 23 & 0xff;
		return code + ((u & 0x7fffff) && code < 0xfe);
	}
	sign = signbit(x) ? sign : 0;
	if (x != x && f->nan)
		return f->unsigned_zero ? f->nan : f->nan | sign;
	if (x != x)
		return 8; // what has no NaN
	if (fabsf(x) == INFINITY) {
		if (f->inf)
			return f->inf | sign;
		if (f->nan)
			return f->unsigned_zero ? f->nan : f->nan | sign;
		return f->most | sign;
	}
	code = round_code(f, fabsf(x));
	code = code > f->most ? f->most : code;
	return f->unsigned_zero && !code ? 0 : code | sign;
}

void ops_saturate(uint32_t dtype, bool saturate, float *x, uint32_t n)
{
	const struct small *f = format(dtype);

	if (dtype == GENAI_DT_F8E8M0 || !ops_is_f8(dtype))
		return;
	for (uint32_t i = 0; i < n; i++)
		if (saturate && fabsf(x[i]) == INFINITY)
			x[i] = copysignf(decode(dtype, f->most), x[i]);
		else if (!saturate && fabsf(x[i]) < INFINITY &&
			 round_code(f, fabsf(x[i])) > f->most)
			x[i] = copysignf(INFINITY, x[i]);
}

void ops_round_power(int how, float *x, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		uint32_t u = cref_bits(x[i]), m = u & 0x7fffff;
		bool up = (u & 0x400000) && ((u & 0x3fffff) || u >> 23 & 0xff);

		if (!(fabsf(x[i]) < INFINITY))
			continue;
		u -= m;
		if (how == OPS_NEAREST && up && (u >> 23 & 0xff) < 0xfe)
			u += 1u << 23;
		x[i] = cref_unbits(u);
	}
}

void ops_load_f8(float *dst, uint32_t dtype, const unsigned char *p,
		 int64_t first, int64_t stride, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		dst[i] = decode(dtype, p[first + i * stride]);
}

void ops_store_f8(const float *src, uint32_t dtype, unsigned char *p,
		  int64_t first, int64_t stride, uint32_t n)
{
	for (uint32_t i = 0; i < n; i++)
		p[first + i * stride] = (unsigned char)encode(dtype, src[i]);
}

// ---- several elements a byte ----

// The value of a code: an integer, or a float of four bits.
static double value(uint32_t dtype, unsigned code)
{
	switch (dtype) {
	case GENAI_DT_F4E2M1:
		return (double)decode(dtype, code);
	case GENAI_DT_I4:
		return (double)code - (code > 7 ? 16 : 0);
	case GENAI_DT_I2:
		return (double)code - (code > 1 ? 4 : 0);
	default:
		return code;
	}
}

void ops_load_packed(enum ops_class c, void *dst, uint32_t dtype,
		     const unsigned char *p, int64_t first, int64_t stride,
		     uint32_t n)
{
	const unsigned bits = exec_bits(dtype), per = 8 / bits;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)(first + i * stride);
		double v =
			value(dtype, (unsigned)p[at / per] >> at % per * bits &
					     ((1u << bits) - 1));

		if (c == OPS_F32)
			((float *)dst)[i] = (float)v;
		else if (c == OPS_F64)
			((double *)dst)[i] = v;
		else
			((int64_t *)dst)[i] = (int64_t)v;
	}
}

// Few bits keep the low ones of every class: ONNX's own cases wrap here.
// Elements come in ascending order, a part begins at a whole byte: its first
// element clears it, so that what an odd count leaves behind is 0.
void ops_store_packed(enum ops_class c, const void *src, uint32_t dtype,
		      unsigned char *p, int64_t first, uint32_t n)
{
	const unsigned bits = exec_bits(dtype), per = 8 / bits;

	for (uint32_t i = 0; i < n; i++) {
		uint64_t at = (uint64_t)first + i;
		unsigned shift = (unsigned)(at % per) * bits, code;

		if (dtype == GENAI_DT_F4E2M1)
			code = encode(
				dtype,
				c == OPS_F32   ? ((const float *)src)[i]
				: c == OPS_F64 ? (float)((const double *)src)[i]
				: c == OPS_I64
					? (float)((const int64_t *)src)[i]
					: (float)((const uint64_t *)src)[i]);
		else if (c == OPS_F32)
			code = (unsigned)ops_whole(
				(double)((const float *)src)[i]);
		else if (c == OPS_F64)
			code = (unsigned)ops_whole(((const double *)src)[i]);
		else
			code = (unsigned)((const int64_t *)src)[i];
		code = (code & ((1u << bits) - 1)) << shift;
		if (shift)
			code |= p[at / per] & ((1u << shift) - 1);
		p[at / per] = (unsigned char)code;
	}
}
