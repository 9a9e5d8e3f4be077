/* tensor.h - a tensor as operators see it, while planning and in a step.
 * Owns: its layout, its bytes.  Does not know: graphs, plans. */
#ifndef EXEC_COMMON_TENSOR_H
#define EXEC_COMMON_TENSOR_H

#include <stdbool.h>
#include <genai/types.h>

struct genai_experts;

#define EXEC_OWN UINT32_MAX

struct exec_tensor {
	uint32_t dtype, rank;
	int64_t dims[GENAI_MAX_RANK];
	int64_t strides[GENAI_MAX_RANK]; /* elements; dense unless bound so */
	/* The value, where it is known while planning (stored tensors and what
	 * is folded from them): same layout, dense, maybe unaligned. */
	const void *value;
	const char *name;
	genai_addr addr; /* in a step: where it lies on the device */
	void *data;	 /* for modules that compute on the host */
	/* In a step: a table says where each of the first dimension lies, and
	 * addr is the table's; NULL: together, at addr. */
	const struct genai_experts *experts;
	void *lies[3];	 /* as data: where those on the device and in the host's
			    memory are, and the counts of uses */
	uint32_t root;	 /* the value whose bytes these are, or EXEC_OWN */
	uint64_t offset; /* bytes into them */
};

/* Bits of an element; 0: not known. */
static inline uint32_t exec_bits(uint32_t dtype)
{
	static const uint8_t bits[] = {
		[GENAI_DT_F32] = 32,	   [GENAI_DT_U8] = 8,
		[GENAI_DT_I8] = 8,	   [GENAI_DT_U16] = 16,
		[GENAI_DT_I16] = 16,	   [GENAI_DT_I32] = 32,
		[GENAI_DT_I64] = 64,	   [GENAI_DT_BOOL] = 8,
		[GENAI_DT_F16] = 16,	   [GENAI_DT_F64] = 64,
		[GENAI_DT_U32] = 32,	   [GENAI_DT_U64] = 64,
		[GENAI_DT_BF16] = 16,	   [GENAI_DT_U4] = 4,
		[GENAI_DT_I4] = 4,	   [GENAI_DT_F8E4M3FN] = 8,
		[GENAI_DT_F8E4M3FNUZ] = 8, [GENAI_DT_F8E5M2] = 8,
		[GENAI_DT_F8E5M2FNUZ] = 8, [GENAI_DT_F8E8M0] = 8,
		[GENAI_DT_F4E2M1] = 4,	   [GENAI_DT_U2] = 2,
		[GENAI_DT_I2] = 2,
	};

	return dtype < sizeof(bits) ? bits[dtype] : 0;
}

static inline uint64_t exec_count(const struct exec_tensor *t)
{
	uint64_t n = 1;

	for (uint32_t d = 0; d < t->rank; d++)
		n *= (uint64_t)t->dims[d];
	return n;
}

/* Bytes, if it is dense. */
static inline uint64_t exec_bytes(const struct exec_tensor *t)
{
	return (exec_count(t) * exec_bits(t->dtype) + 7) / 8;
}

/* Bytes from the first element to the last. */
static inline uint64_t exec_span_of(uint32_t dtype, uint32_t rank,
				    const int64_t *dims, const int64_t *strides)
{
	uint64_t last = 1;

	for (uint32_t d = 0; d < rank; d++) {
		if (!dims[d])
			return 0;
		last += (uint64_t)(dims[d] - 1) * (uint64_t)strides[d];
	}
	return (last * exec_bits(dtype) + 7) / 8;
}

static inline uint64_t exec_span(const struct exec_tensor *t)
{
	return exec_span_of(t->dtype, t->rank, t->dims, t->strides);
}

/* Strides of a tensor without gaps; those of an empty one are never used. */
static inline void exec_dense(uint32_t rank, const int64_t *dims,
			      int64_t *strides)
{
	int64_t stride = 1;

	for (uint32_t d = rank; d-- > 0;) {
		strides[d] = stride;
		stride *= dims[d] ? dims[d] : 1;
	}
}

static inline bool exec_is_dense(const struct exec_tensor *t)
{
	int64_t stride = 1;

	if (!exec_count(t))
		return true;
	for (uint32_t d = t->rank; d-- > 0;) {
		if (t->dims[d] != 1 && t->strides[d] != stride)
			return false;
		stride *= t->dims[d];
	}
	return true;
}

/* Has t these dims or, where flat says so, as many elements in a row? */
static inline bool exec_is_shape(const struct exec_tensor *t, uint32_t rank,
				 const int64_t *dims, bool flat)
{
	uint64_t count = 1;
	bool same = t->rank == rank;

	for (uint32_t i = 0; i < rank; i++) {
		same = same && t->dims[i] == dims[i];
		count *= (uint64_t)dims[i];
	}
	return same || (flat && t->rank == 1 && (uint64_t)t->dims[0] == count);
}

#endif
