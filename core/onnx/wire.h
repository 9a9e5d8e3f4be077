/* wire.h - reading the protobuf wire format, field by field.
 * Owns: bounds and varints.  Does not know: messages.  Threads: any. */
#ifndef GENAI_CORE_ONNX_WIRE_H
#define GENAI_CORE_ONNX_WIRE_H

#include <stddef.h>
#include <stdint.h>

#define GENAI_WIRE_VARINT 0u
#define GENAI_WIRE_FIXED64 1u
#define GENAI_WIRE_BYTES 2u
#define GENAI_WIRE_FIXED32 5u

struct genai_onnx_field {
	uint32_t number;
	uint32_t wire;	     /* GENAI_WIRE_* */
	uint64_t value;	     /* of all but GENAI_WIRE_BYTES */
	const uint8_t *data; /* of GENAI_WIRE_BYTES */
	size_t bytes;
};

/* A varint at *at; 0 if it is cut or longer than ten bytes. */
int genai_onnx_varint(const uint8_t **at, const uint8_t *end, uint64_t *out_v);

/* The field at *at (which is before end), and *at behind it.  NULL, or what is
 * wrong.  Groups are refused: no ONNX message has one. */
const char *genai_onnx_next(const uint8_t **at, const uint8_t *end,
			    struct genai_onnx_field *out_f);

#endif
