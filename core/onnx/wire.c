// wire.c - reading the protobuf wire format, field by field.
#include "core/onnx/wire.h"

#include <string.h>

#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "stored tensors are little endian and used in place"
#endif

#define NUMBER_MAX ((1u << 29) - 1)

int genai_onnx_varint(const uint8_t **at, const uint8_t *end, uint64_t *out_v)
{
	const uint8_t *p = *at;
	uint64_t v = 0;
	unsigned shift;

	for (shift = 0; shift < 70 && p < end; shift += 7) {
		uint8_t c = *p++;

		if (shift == 63 && c > 1)
			return 0;
		v |= (uint64_t)(c & 0x7f) << shift;
		if (!(c & 0x80)) {
			*at = p;
			*out_v = v;
			return 1;
		}
	}
	return 0;
}

const char *genai_onnx_next(const uint8_t **at, const uint8_t *end,
			    struct genai_onnx_field *out_f)
{
	uint64_t tag, bytes = 0;

	if (!genai_onnx_varint(at, end, &tag))
		return "bad field tag";
	if (tag >> 3 == 0 || tag >> 3 > NUMBER_MAX)
		return "bad field number";
	out_f->number = (uint32_t)(tag >> 3);
	out_f->wire = (uint32_t)(tag & 7);
	out_f->value = 0;
	switch (out_f->wire) {
	case GENAI_WIRE_VARINT:
		return genai_onnx_varint(at, end, &out_f->value) ? NULL
								 : "bad number";
	case GENAI_WIRE_FIXED64:
		bytes = 8;
		break;
	case GENAI_WIRE_FIXED32:
		bytes = 4;
		break;
	case GENAI_WIRE_BYTES:
		if (!genai_onnx_varint(at, end, &bytes))
			return "bad length";
		break;
	default:
		return "bad wire type";
	}
	if (bytes > (uint64_t)(end - *at))
		return "a field is longer than what is left (truncated file?)";
	out_f->data = *at;
	out_f->bytes = (size_t)bytes;
	if (out_f->wire != GENAI_WIRE_BYTES)
		memcpy(&out_f->value, *at, (size_t)bytes);
	*at += bytes;
	return NULL;
}
