/* blocks.h - the tensor types of GGUF: sizes, and what their blocks hold.
 * Every type but the float ones is  scale * (code - zero)  or  scale * code +
 * offset  over sub-blocks of 16 or 32 values. */
#ifndef GENAI_CORE_GGUF_BLOCKS_H
#define GENAI_CORE_GGUF_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#define GENAI_GGUF_BLOCK_MAX 256u
#define GENAI_GGUF_SUB_MAX 16u

/* What one block holds.  The value of element i, in sub-block b, is
 * scale[b] * (code[i] - zero) and, for affine types, + offset[b] (zero is 0
 * then): float32, one rounding each, which is exact for the product. */
struct genai_gguf_block {
	uint8_t code[GENAI_GGUF_BLOCK_MAX];
	float scale[GENAI_GGUF_SUB_MAX];
	float offset[GENAI_GGUF_SUB_MAX];
};

struct genai_gguf_type {
	uint32_t id;
	const char *name;
	uint32_t values; /* per block; 1 for float types */
	uint32_t bytes;
	uint32_t sub;  /* values that share a scale; 0 for float types */
	uint32_t bits; /* smallest container of 4 or 8 bits */
	uint8_t zero;
	bool affine;
	void (*unpack)(const uint8_t *block, struct genai_gguf_block *out);
};

/* NULL if the number is not one of the types carried. */
const struct genai_gguf_type *genai_gguf_type(uint32_t id);
/* The format's name of a type, carried or not; NULL: none is known. */
const char *genai_gguf_type_name(uint32_t id);

/* n blocks as float32. */
void genai_gguf_values(const struct genai_gguf_type *type, const uint8_t *data,
		       uint64_t n, float *out_values);

#endif
