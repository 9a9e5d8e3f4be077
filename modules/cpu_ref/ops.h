/* ops.h - what cpu_ref's general operators share.
 * Owns: checks that every prepare makes, element conversion, the loops over
 * broadcast and strided tensors.  Does not know: executors, threads' number,
 * the hot matrix kernels.
 *
 * Arithmetic is done in four classes of element: float, double, int64_t and
 * uint64_t.  f16 and bf16 are computed as float and rounded once; narrow
 * integers are widened, and storing keeps the low bits (two's complement). */
#ifndef CREF_OPS_H
#define CREF_OPS_H

#include <stdatomic.h>
#include <string.h>

#include "modules/cpu_ref/op.h"
#include "modules/cpu_ref/simd.h"

#define OPS_BIT(dtype) (1u << (dtype))
#define OPS_F32S                                                               \
	(OPS_BIT(GENAI_DT_F32) | OPS_BIT(GENAI_DT_F16) |                       \
	 OPS_BIT(GENAI_DT_BF16)) /* computed as float */
#define OPS_FLOATS (OPS_F32S | OPS_BIT(GENAI_DT_F64))
#define OPS_SIGNED                                                             \
	(OPS_BIT(GENAI_DT_I8) | OPS_BIT(GENAI_DT_I16) |                        \
	 OPS_BIT(GENAI_DT_I32) | OPS_BIT(GENAI_DT_I64))
#define OPS_UNSIGNED                                                           \
	(OPS_BIT(GENAI_DT_U8) | OPS_BIT(GENAI_DT_U16) |                        \
	 OPS_BIT(GENAI_DT_U32) | OPS_BIT(GENAI_DT_U64))
#define OPS_INTS (OPS_SIGNED | OPS_UNSIGNED)
#define OPS_NUMS (OPS_FLOATS | OPS_INTS)
#define OPS_BOOL OPS_BIT(GENAI_DT_BOOL)
#define OPS_F8                                                                 \
	(OPS_BIT(GENAI_DT_F8E4M3FN) | OPS_BIT(GENAI_DT_F8E4M3FNUZ) |           \
	 OPS_BIT(GENAI_DT_F8E5M2) | OPS_BIT(GENAI_DT_F8E5M2FNUZ) |             \
	 OPS_BIT(GENAI_DT_F8E8M0))	/* stored so, and never computed */
#define OPS_BYTES (OPS_NUMS | OPS_BOOL) /* whole-byte elements */
#define OPS_PACKED                                                             \
	(OPS_BIT(GENAI_DT_U4) | OPS_BIT(GENAI_DT_I4) |                         \
	 OPS_BIT(GENAI_DT_F4E2M1) | OPS_BIT(GENAI_DT_U2) |                     \
	 OPS_BIT(GENAI_DT_I2)) /* several to a byte */
#define OPS_ANY (OPS_BYTES | OPS_F8 | OPS_PACKED)
#define OPS_INDEX (OPS_BIT(GENAI_DT_I32) | OPS_BIT(GENAI_DT_I64))

/* Which of the operations that share functions a row is: its code. */
enum ops_code {
	OPS_PLAIN,
	OPS_LOG,      /* LogSoftmax */
	OPS_PROD,     /* CumProd */
	OPS_MAX,      /* ArgMax */
	OPS_RMS,      /* norms that do not subtract the mean */
	OPS_TO_SPACE, /* DepthToSpace */
	OPS_R_SUM,
	OPS_R_MEAN,
	OPS_R_L1,
	OPS_R_L2,
	OPS_R_SUM_SQUARE,
	OPS_R_LOG_SUM,
	OPS_R_LOG_SUM_EXP,
	OPS_R_PROD,
	OPS_R_MAX,
	OPS_R_MIN,
	OPS_INSTANCE, /* InstanceNormalization */
};

/* ---- checks ---- */

/* What nearly every prepare does first: attributes (NULL: none known), number
 * of inputs, the first min_in present, inputs dense with legal dims and a known
 * dtype, number of outputs. */
int32_t ops_check(struct cref_node *n, const char *const *attrs,
		  uint32_t min_in, uint32_t max_in, uint32_t max_out,
		  struct genai_error *err);
/* Set the dtype and dims of output i (nothing when it is omitted). */
int32_t ops_out(struct cref_node *n, uint32_t i, uint32_t dtype, uint32_t rank,
		const int64_t *dims, struct genai_error *err);
/* The dtype of input i is one of mask; an omitted input passes. */
int32_t ops_need_dtype(struct cref_node *n, uint32_t i, uint32_t mask,
		       struct genai_error *err);
int32_t ops_need_same_dtype(struct cref_node *n, uint32_t i, uint32_t j,
			    struct genai_error *err);
int32_t ops_need_rank(struct cref_node *n, uint32_t i, uint32_t min,
		      uint32_t max, struct genai_error *err);
/* Input i has this shape or, where flat says so, all its elements in a row; an
 * omitted input passes. */
int32_t ops_need_shape(struct cref_node *n, uint32_t i, uint32_t rank,
		       const int64_t *dims, bool flat, struct genai_error *err);
/* axis in [-rank, rank) made >= 0. */
int32_t ops_axis(struct cref_node *n, int64_t axis, uint32_t rank,
		 uint32_t *out_axis, struct genai_error *err);
/* The set of axes, as a bit mask, of attribute "axes" or of input i.  Sets
 * *out_given to false when there is neither. */
int32_t ops_axes(struct cref_node *n, uint32_t i, uint32_t rank, uint32_t *out,
		 bool *out_given, struct genai_error *err);
/* Multidirectional broadcast of dims into out. */
int32_t ops_broadcast(struct cref_node *n, uint32_t first, uint32_t count,
		      uint32_t *rank, int64_t *dims, struct genai_error *err);
/* Input i, known while planning, as integers (rank 0 or 1, int32/int64). */
int32_t ops_ints(struct cref_node *n, uint32_t i, int64_t *out, uint32_t cap,
		 uint32_t *out_count, struct genai_error *err);

static inline bool ops_is(const struct exec_tensor *t, uint32_t mask)
{
	return t->dtype < 32 && (mask & OPS_BIT(t->dtype));
}

/* Product of dims [from, to). */
static inline uint64_t ops_span(const struct exec_tensor *t, uint32_t from,
				uint32_t to)
{
	uint64_t v = 1;

	for (uint32_t i = from; i < to; i++)
		v *= (uint64_t)t->dims[i];
	return v;
}

/* ---- element conversion (ops_convert.c) ---- */

enum ops_class { OPS_F32, OPS_F64, OPS_I64, OPS_U64 };

enum ops_class ops_class_of(uint32_t dtype);

/* Read n elements base[first + i * stride] into dst, of class c.  Unaligned
 * bases are fine.  Floats read as integers saturate, NaN gives 0. */
void ops_load(enum ops_class c, void *dst, uint32_t dtype, const void *base,
	      int64_t first, int64_t stride, uint32_t n);
/* Write n values of class c to base[first + i * stride]; packed elements only
 * with stride 1. */
void ops_store(enum ops_class c, const void *src, uint32_t dtype, void *base,
	       int64_t first, int64_t stride, uint32_t n);
/* A float that, rounded again to fewer bits, gives what rounding d once gives.
 */
float ops_odd_float(double d);
/* v as an intermediate of that type has it. */
float ops_rounded(uint32_t dtype, float v);
/* The sum of n values of that type, in float; of bfloat16, whose sums of few
 * are those of the type itself, rounded after each addition while there are at
 * most 16: more of them would be lost to it. */
float ops_narrow_sum(uint32_t dtype, const float *v, uint64_t n);
/* A double cut to an integer, saturated; NaN is 0. */
int64_t ops_whole(double x);

/* ---- small elements (ops_small.c), for the two above ---- */

void ops_load_f8(float *dst, uint32_t dtype, const unsigned char *p,
		 int64_t first, int64_t stride, uint32_t n);
void ops_store_f8(const float *src, uint32_t dtype, unsigned char *p,
		  int64_t first, int64_t stride, uint32_t n);
void ops_load_packed(enum ops_class c, void *dst, uint32_t dtype,
		     const unsigned char *p, int64_t first, int64_t stride,
		     uint32_t n);
void ops_store_packed(enum ops_class c, const void *src, uint32_t dtype,
		      unsigned char *p, int64_t first, uint32_t n);
static inline bool ops_is_f8(uint32_t dtype)
{
	return dtype < 32 && (OPS_F8 & OPS_BIT(dtype));
}
/* Storing a finite float that is too large for 8 bits gives the largest one,
 * infinity gives infinity or NaN: make of each what Cast wants. */
void ops_saturate(uint32_t dtype, bool saturate, float *x, uint32_t n);
/* To a power of two, before storing as E8M0, which rounds up. */
enum { OPS_NEAREST, OPS_DOWN };
void ops_round_power(int how, float *x, uint32_t n);

/* One element as an integer (integer and bool dtypes). */
int64_t ops_get_int(const struct exec_tensor *t, const void *data, uint64_t i);

/* ---- loops (ops_loop.c) ---- */

#define OPS_CHUNK 512u	 /* elements a kernel sees at once */
#define OPS_GRAIN 16384u /* elements worth a thread */

union ops_buf {
	float f[OPS_CHUNK];
	double d[OPS_CHUNK];
	int64_t i[OPS_CHUNK];
	uint64_t u[OPS_CHUNK];
};

struct ops_ew;
/* n elements, all operands contiguous and of their class.  out may equal an
 * input. */
typedef void (*ops_ew_fn)(struct ops_ew *e, const void *const *in, void *out,
			  uint32_t n);

/* An elementwise computation with broadcast. */
struct ops_ew {
	ops_ew_fn fn;
	uint32_t n_in;
	const void *in[EXEC_MAX_IN];
	uint32_t in_dtype[EXEC_MAX_IN];
	enum ops_class in_class[EXEC_MAX_IN];
	void *out;
	uint32_t out_dtype;
	enum ops_class out_class;
	union { /* the kernel's own */
		float f;
		double d;
		int64_t i;
		uint64_t u;
	} param[3];
	atomic_uint bad; /* a kernel's complaint */
	uint32_t rank;
	int64_t dims[GENAI_MAX_RANK];
	int64_t strides[EXEC_MAX_IN][GENAI_MAX_RANK];
};

/* Operands from the node's first n_in inputs and output 0, classes from their
 * dtypes. */
void ops_ew_init(struct ops_ew *e, const struct cref_node *n, uint32_t n_in,
		 ops_ew_fn fn);
void ops_ew_run(struct ops_ew *e, struct cref_pool *pool);

/* A kernel for each class; NULL where the operator has none. */
struct ops_kernels {
	ops_ew_fn f32, f64, i64, u64;
};
ops_ew_fn ops_kernel(const struct ops_kernels *k, enum ops_class c);
/* The dtypes that k has kernels for (bool, being of class u64, apart). */
uint32_t ops_kernel_mask(const struct ops_kernels *k);

/* prepare and run of an operator with inputs of one dtype, which is the
 * output's too. */
int32_t ops_same_prepare(struct cref_node *n, const char *const *attrs,
			 uint32_t min_in, uint32_t max_in, uint32_t mask,
			 struct genai_error *err);
int32_t ops_same_run(struct cref_node *n, const struct cref_run *r,
		     const struct ops_kernels *k);

/* Kernels over x (and y) of type T.  Blocks of a fixed number of elements, in
 * local arrays, become vector code at -O2: the loop needs no check for overlap
 * and no rest. */
#define OPS_BLOCK 16
#define OPS_KERNEL1(name, T, O, expr)                                          \
	static void name(struct ops_ew *e, const void *const *in, void *out,   \
			 uint32_t count)                                       \
	{                                                                      \
		const T *a_ = in[0];                                           \
		O *o_ = out;                                                   \
		uint32_t i = 0;                                                \
                                                                               \
		(void)e;                                                       \
		for (; i + OPS_BLOCK <= count; i += OPS_BLOCK) {               \
			T x_[OPS_BLOCK];                                       \
			O r_[OPS_BLOCK];                                       \
                                                                               \
			memcpy(x_, a_ + i, sizeof(x_));                        \
			for (int j = 0; j < OPS_BLOCK; j++) {                  \
				T x = x_[j];                                   \
                                                                               \
				r_[j] = expr;                                  \
			}                                                      \
			memcpy(o_ + i, r_, sizeof(r_));                        \
		}                                                              \
		for (; i < count; i++) {                                       \
			T x = a_[i];                                           \
                                                                               \
			o_[i] = expr;                                          \
		}                                                              \
	}
#define OPS_KERNEL2(name, T, O, expr)                                          \
	static void name(struct ops_ew *e, const void *const *in, void *out,   \
			 uint32_t count)                                       \
	{                                                                      \
		const T *a_ = in[0], *b_ = in[1];                              \
		O *o_ = out;                                                   \
		uint32_t i = 0;                                                \
                                                                               \
		(void)e;                                                       \
		for (; i + OPS_BLOCK <= count; i += OPS_BLOCK) {               \
			T x_[OPS_BLOCK], y_[OPS_BLOCK];                        \
			O r_[OPS_BLOCK];                                       \
                                                                               \
			memcpy(x_, a_ + i, sizeof(x_));                        \
			memcpy(y_, b_ + i, sizeof(y_));                        \
			for (int j = 0; j < OPS_BLOCK; j++) {                  \
				T x = x_[j], y = y_[j];                        \
                                                                               \
				r_[j] = expr;                                  \
			}                                                      \
			memcpy(o_ + i, r_, sizeof(r_));                        \
		}                                                              \
		for (; i < count; i++) {                                       \
			T x = a_[i], y = b_[i];                                \
                                                                               \
			o_[i] = expr;                                          \
		}                                                              \
	}

#define OPS_COPY_RANK (2 * GENAI_MAX_RANK)
/* Strided copy; strides in elements.  Source and destination are disjoint. */
struct ops_copy {
	uint32_t rank;
	uint32_t bytes; /* of an element: 1, 2, 4 or 8 */
	int64_t dims[OPS_COPY_RANK];
	int64_t dst_strides[OPS_COPY_RANK];
	int64_t src_strides[OPS_COPY_RANK];
	char *dst;
	const char *src;
};
void ops_copy_run(struct ops_copy *c, struct cref_pool *pool);
void ops_copy_dim(struct ops_copy *c, int64_t dim, int64_t dst_stride,
		  int64_t src_stride);

/* fn over [0, count) rows of len elements each, a thread's share at least
 * OPS_GRAIN elements. */
void ops_rows(struct cref_pool *pool, cref_part_fn fn, void *ctx,
	      uint64_t count, uint64_t len);

/* ---- the table (ops.c) ---- */

#define OPS_ROW(domain, op, since, prepare, run, ...)                          \
	int32_t prepare(struct cref_node *n, struct genai_error *err);         \
	int32_t run(struct cref_node *n, const struct cref_run *r);
#include "modules/cpu_ref/ops_rows.h"
#undef OPS_ROW

#endif
