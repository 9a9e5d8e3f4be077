// dtype.c - element types: names, and the bytes that a shape needs.
#include "core/graph/build.h"

// ONNX limits of this project: a dimension, and a tensor.
#define MAX_DIM ((int64_t)1 << 40)
#define MAX_BYTES ((uint64_t)1 << 46)

static uint32_t dtype_bits(uint32_t dtype)
{
	switch (dtype) {
	case GENAI_DT_U2:
	case GENAI_DT_I2:
		return 2;
	case GENAI_DT_U4:
	case GENAI_DT_I4:
	case GENAI_DT_F4E2M1:
		return 4;
	case GENAI_DT_U8:
	case GENAI_DT_I8:
	case GENAI_DT_BOOL:
	case GENAI_DT_F8E4M3FN:
	case GENAI_DT_F8E4M3FNUZ:
	case GENAI_DT_F8E5M2:
	case GENAI_DT_F8E5M2FNUZ:
	case GENAI_DT_F8E8M0:
		return 8;
	case GENAI_DT_U16:
	case GENAI_DT_I16:
	case GENAI_DT_F16:
	case GENAI_DT_BF16:
		return 16;
	case GENAI_DT_F32:
	case GENAI_DT_I32:
	case GENAI_DT_U32:
		return 32;
	case GENAI_DT_I64:
	case GENAI_DT_F64:
	case GENAI_DT_U64:
		return 64;
	default:
		return 0;
	}
}

int32_t genai_tensor_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims,
			   uint64_t *out_bytes)
{
	uint32_t bits = dtype_bits(dtype), i;
	uint64_t count = 1;
	int empty = 0;

	if (!bits)
		return GENAI_E_UNSUPPORTED;
	if (rank > GENAI_MAX_RANK)
		return GENAI_E_FORMAT;
	for (i = 0; i < rank; i++) {
		if (dims[i] < 0 || dims[i] > MAX_DIM)
			return GENAI_E_FORMAT;
		empty |= dims[i] == 0;
	}
	if (empty)
		count = 0;
	for (i = 0; i < rank && count; i++)
		if (__builtin_mul_overflow(count, (uint64_t)dims[i], &count) ||
		    count > MAX_BYTES * 2)
			return GENAI_E_FORMAT;
	count = bits < 8 ? count / (8 / bits) + (count % (8 / bits) != 0)
			 : count * (bits / 8);
	if (count > MAX_BYTES)
		return GENAI_E_FORMAT;
	*out_bytes = count;
	return GENAI_OK;
}

const char *genai_dtype_name(uint32_t dtype)
{
	static const char *const names[] = {
		"NONE",		  "FLOAT",	"UINT8",
		"INT8",		  "UINT16",	"INT16",
		"INT32",	  "INT64",	"STRING",
		"BOOL",		  "FLOAT16",	"DOUBLE",
		"UINT32",	  "UINT64",	"COMPLEX64",
		"COMPLEX128",	  "BFLOAT16",	"FLOAT8E4M3FN",
		"FLOAT8E4M3FNUZ", "FLOAT8E5M2", "FLOAT8E5M2FNUZ",
		"UINT4",	  "INT4",	"FLOAT4E2M1",
		"FLOAT8E8M0",	  "UINT2",	"INT2"};

	if (dtype >= sizeof(names) / sizeof(names[0]))
		return "?";
	return names[dtype];
}
