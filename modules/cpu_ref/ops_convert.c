// ops_convert.c - elements of every dtype to and from the four classes.
// Every access goes through memcpy: stored tensors may lie at any offset.
#include "modules/cpu_ref/ops.h"

enum ops_class ops_class_of(uint32_t dtype)
{
	if (dtype < 32 && ((OPS_F32S | OPS_F8) & OPS_BIT(dtype)))
		return OPS_F32;
	if (dtype == GENAI_DT_F4E2M1)
		return OPS_F32;
	if (dtype == GENAI_DT_F64)
		return OPS_F64;
	if (dtype == GENAI_DT_I4 || dtype == GENAI_DT_I2 ||
	    (dtype < 32 && (OPS_SIGNED & OPS_BIT(dtype))))
		return OPS_I64;
	return OPS_U64;
}

// A float that, rounded again to fewer bits, gives what rounding the double
// once would: inexact results get an odd last bit ("round to odd").
float ops_odd_float(double d)
{
	float f = (float)d;
	uint32_t u = cref_bits(f);

	if (d != d || (double)f == d)
		return f;
	if ((f > 0 ? (double)f > d : (double)f < d) && (u & 0x7fffffffu))
		u--; // towards zero; infinity becomes the largest float
	return cref_unbits(u | 1u);
}

static int64_t f_to_i(double x)
{
	if (x != x)
		return 0;
	if (x >= 0x1p63)
		return INT64_MAX;
	if (x < -0x1p63)
		return INT64_MIN;
	return (int64_t)x;
}

static uint64_t f_to_u(double x)
{
	if (!(x > 0))
		return 0;
	return x >= 0x1p64 ? UINT64_MAX : (uint64_t)x;
}

static int64_t clamp_i(int64_t v, int64_t lo, int64_t hi)
{
	return v < lo ? lo : v > hi ? hi : v;
}

#define LOAD(C, expr)                                                          \
	do {                                                                   \
		C *o_ = dst;                                                   \
		for (uint32_t i = 0; i < n; i++) {                             \
			memcpy(&v,                                             \
			       p + (first + i * stride) * (int64_t)sizeof(v),  \
			       sizeof(v));                                     \
			o_[i] = expr;                                          \
		}                                                              \
	} while (0)

#define LOADER(name, T, as_f, as_d, as_i, as_u)                                \
	static void name(enum ops_class c, void *dst, const char *p,           \
			 int64_t first, int64_t stride, uint32_t n)            \
	{                                                                      \
		T v;                                                           \
                                                                               \
		if (c == OPS_F32)                                              \
			LOAD(float, as_f);                                     \
		else if (c == OPS_F64)                                         \
			LOAD(double, as_d);                                    \
		else if (c == OPS_I64)                                         \
			LOAD(int64_t, as_i);                                   \
		else                                                           \
			LOAD(uint64_t, as_u);                                  \
	}

#define INT_LOADER(name, T)                                                    \
	LOADER(name, T, (float)v, (double)v, (int64_t)v, (uint64_t)v)
INT_LOADER(load_u8, uint8_t)
INT_LOADER(load_i8, int8_t)
INT_LOADER(load_u16, uint16_t)
INT_LOADER(load_i16, int16_t)
INT_LOADER(load_u32, uint32_t)
INT_LOADER(load_i32, int32_t)
INT_LOADER(load_u64, uint64_t)
INT_LOADER(load_i64, int64_t)
LOADER(load_bool, uint8_t, v ? 1.0f : 0.0f, v ? 1.0 : 0.0, v != 0, v != 0)
LOADER(load_f32, float, v, (double)v, f_to_i((double)v), f_to_u((double)v))
LOADER(load_f64, double, (float)v, v, f_to_i(v), f_to_u(v))
LOADER(load_f16, uint16_t, cref_f16_to_f32(v), (double)cref_f16_to_f32(v),
       f_to_i((double)cref_f16_to_f32(v)), f_to_u((double)cref_f16_to_f32(v)))
LOADER(load_bf16, uint16_t, cref_bf16_to_f32(v), (double)cref_bf16_to_f32(v),
       f_to_i((double)cref_bf16_to_f32(v)), f_to_u((double)cref_bf16_to_f32(v)))

// Through floats, which hold every value of 8 bits.
static void load_f8(enum ops_class c, void *dst, uint32_t dtype,
		    const unsigned char *p, int64_t first, int64_t stride,
		    uint32_t n)
{
	float x;

	if (c == OPS_F32) {
		ops_load_f8(dst, dtype, p, first, stride, n);
		return;
	}
	for (uint32_t i = 0; i < n; i++) {
		ops_load_f8(&x, dtype, p, first + i * stride, 1, 1);
		if (c == OPS_F64)
			((double *)dst)[i] = (double)x;
		else if (c == OPS_I64)
			((int64_t *)dst)[i] = f_to_i((double)x);
		else
			((uint64_t *)dst)[i] = f_to_u((double)x);
	}
}

static void store_f8(enum ops_class c, const void *src, uint32_t dtype,
		     unsigned char *p, int64_t first, int64_t stride,
		     uint32_t n)
{
	for (uint32_t i = 0; i < n; i++) {
		float x = c == OPS_F32 ? ((const float *)src)[i]
			  : c == OPS_F64
				  ? ops_odd_float(((const double *)src)[i])
			  : c == OPS_I64
				  ? ops_odd_float(
					    (double)((const int64_t *)src)[i])
				  : ops_odd_float(
					    (double)((const uint64_t *)src)[i]);

		ops_store_f8(&x, dtype, p, first + i * stride, 1, 1);
	}
}

void ops_load(enum ops_class c, void *dst, uint32_t dtype, const void *base,
	      int64_t first, int64_t stride, uint32_t n)
{
	static void (*const loaders[32])(enum ops_class, void *, const char *,
					 int64_t, int64_t, uint32_t) = {
		[GENAI_DT_F32] = load_f32,   [GENAI_DT_U8] = load_u8,
		[GENAI_DT_I8] = load_i8,     [GENAI_DT_U16] = load_u16,
		[GENAI_DT_I16] = load_i16,   [GENAI_DT_I32] = load_i32,
		[GENAI_DT_I64] = load_i64,   [GENAI_DT_BOOL] = load_bool,
		[GENAI_DT_F16] = load_f16,   [GENAI_DT_F64] = load_f64,
		[GENAI_DT_U32] = load_u32,   [GENAI_DT_U64] = load_u64,
		[GENAI_DT_BF16] = load_bf16,
	};

	if (!n)
		return;
	if (dtype < 32 && (OPS_PACKED & OPS_BIT(dtype)))
		ops_load_packed(c, dst, dtype, base, first, stride, n);
	else if (ops_is_f8(dtype))
		load_f8(c, dst, dtype, base, first, stride, n);
	else if (c == OPS_F32 && stride == 1 && cref_is_float(dtype))
		cref_widen(dst,
			   (const char *)base +
				   first * (dtype == GENAI_DT_F32 ? 4 : 2),
			   dtype, n);
	else
		loaders[dtype](c, dst, base, first, stride, n);
}

#define STORE(C, expr)                                                         \
	do {                                                                   \
		const C *s_ = src;                                             \
		for (uint32_t i = 0; i < n; i++) {                             \
			C x = s_[i];                                           \
			v = expr;                                              \
			memcpy(p + (first + i * stride) * (int64_t)sizeof(v),  \
			       &v, sizeof(v));                                 \
		}                                                              \
	} while (0)

#define STORER(name, T, of_f, of_d, of_i, of_u)                                \
	static void name(enum ops_class c, const void *src, char *p,           \
			 int64_t first, int64_t stride, uint32_t n)            \
	{                                                                      \
		T v;                                                           \
                                                                               \
		if (c == OPS_F32)                                              \
			STORE(float, of_f);                                    \
		else if (c == OPS_F64)                                         \
			STORE(double, of_d);                                   \
		else if (c == OPS_I64)                                         \
			STORE(int64_t, of_i);                                  \
		else                                                           \
			STORE(uint64_t, of_u);                                 \
	}

#define SIGNED_STORER(name, T, lo, hi)                                         \
	STORER(name, T, (T)clamp_i(f_to_i((double)x), lo, hi),                 \
	       (T)clamp_i(f_to_i(x), lo, hi), (T)x, (T)x)
#define UNSIGNED_STORER(name, T, hi)                                           \
	STORER(name, T, (T)(f_to_u((double)x) < hi ? f_to_u((double)x) : hi),  \
	       (T)(f_to_u(x) < hi ? f_to_u(x) : hi), (T)x, (T)x)
SIGNED_STORER(store_i8, int8_t, INT8_MIN, INT8_MAX)
SIGNED_STORER(store_i16, int16_t, INT16_MIN, INT16_MAX)
SIGNED_STORER(store_i32, int32_t, INT32_MIN, INT32_MAX)
SIGNED_STORER(store_i64, int64_t, INT64_MIN, INT64_MAX)
UNSIGNED_STORER(store_u8, uint8_t, UINT8_MAX)
UNSIGNED_STORER(store_u16, uint16_t, UINT16_MAX)
UNSIGNED_STORER(store_u32, uint32_t, UINT32_MAX)
UNSIGNED_STORER(store_u64, uint64_t, UINT64_MAX)
STORER(store_bool, uint8_t, x != 0, x != 0, x != 0, x != 0)
STORER(store_f32, float, x, (float)x, (float)x, (float)x)
STORER(store_f64, double, (double)x, x, (double)x, (double)x)
STORER(store_f16, uint16_t, cref_f32_to_f16(x),
       cref_f32_to_f16(ops_odd_float(x)),
       cref_f32_to_f16(ops_odd_float((double)x)),
       cref_f32_to_f16(ops_odd_float((double)x)))
STORER(store_bf16, uint16_t, cref_f32_to_bf16(x),
       cref_f32_to_bf16(ops_odd_float(x)),
       cref_f32_to_bf16(ops_odd_float((double)x)),
       cref_f32_to_bf16(ops_odd_float((double)x)))

void ops_store(enum ops_class c, const void *src, uint32_t dtype, void *base,
	       int64_t first, int64_t stride, uint32_t n)
{
	static void (*const storers[32])(enum ops_class, const void *, char *,
					 int64_t, int64_t, uint32_t) = {
		[GENAI_DT_F32] = store_f32,   [GENAI_DT_U8] = store_u8,
		[GENAI_DT_I8] = store_i8,     [GENAI_DT_U16] = store_u16,
		[GENAI_DT_I16] = store_i16,   [GENAI_DT_I32] = store_i32,
		[GENAI_DT_I64] = store_i64,   [GENAI_DT_BOOL] = store_bool,
		[GENAI_DT_F16] = store_f16,   [GENAI_DT_F64] = store_f64,
		[GENAI_DT_U32] = store_u32,   [GENAI_DT_U64] = store_u64,
		[GENAI_DT_BF16] = store_bf16,
	};

	if (!n)
		return;
	if (dtype < 32 && (OPS_PACKED & OPS_BIT(dtype)))
		ops_store_packed(c, src, dtype, base, first, n);
	else if (ops_is_f8(dtype))
		store_f8(c, src, dtype, base, first, stride, n);
	else if (c == OPS_F32 && stride == 1 && cref_is_float(dtype))
		cref_narrow((char *)base +
				    first * (dtype == GENAI_DT_F32 ? 4 : 2),
			    dtype, src, n);
	else
		storers[dtype](c, src, base, first, stride, n);
}

int64_t ops_whole(double x)
{
	return f_to_i(x);
}

int64_t ops_get_int(const struct exec_tensor *t, const void *data, uint64_t i)
{
	int64_t v;

	ops_load(OPS_I64, &v, t->dtype, data, (int64_t)i, 1, 1);
	return v;
}

float ops_rounded(uint32_t dtype, float v)
{
	unsigned char b[4];

	if (dtype == GENAI_DT_F32 || dtype == GENAI_DT_F64 || !dtype)
		return v;
	ops_store(OPS_F32, &v, dtype, b, 0, 1, 1);
	ops_load(OPS_F32, &v, dtype, b, 0, 1, 1);
	return v;
}

float ops_narrow_sum(uint32_t dtype, const float *v, uint64_t n)
{
	float sum = 0;

	if (dtype != GENAI_DT_BF16 || n > 16)
		return ops_rounded(dtype, cref_vec_sum(v, n));
	for (uint64_t i = 0; i < n; i++)
		sum = ops_rounded(dtype, sum + v[i]);
	return sum;
}
