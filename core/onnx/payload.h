/* payload.h - the data of a TensorProto, read straight from the file.
 * Owns: raw_data and the typed fields, and which element type uses which.
 * Does not know: shapes, external files.  Threads: any. */
#ifndef GENAI_CORE_ONNX_PAYLOAD_H
#define GENAI_CORE_ONNX_PAYLOAD_H

#include <genai/types.h>

/* What a TensorProto carries; points into its bytes. */
struct genai_payload {
	const uint8_t *message;
	size_t message_bytes;
	const uint8_t *raw; /* NULL if none */
	size_t raw_bytes;
	uint32_t field; /* the typed field, 0 if none */
	uint64_t count; /* its entries */
};

/* Find the data; message has passed the scan, but may have changed since.
 * GENAI_E_FORMAT if raw and typed data, or two kinds of typed data, are
 * there. */
int32_t genai_payload_find(const uint8_t *message, size_t bytes,
			   struct genai_payload *out_p,
			   struct genai_error *err);

/* GENAI_OK if the data is what dtype with so many bytes needs: raw data of that
 * length, or as many typed entries in the right field. */
int32_t genai_payload_check(const struct genai_payload *p, uint32_t dtype,
			    uint64_t bytes, struct genai_error *err);

/* Write typed data as bytes dense bytes; the check has passed. */
int32_t genai_payload_decode(const struct genai_payload *p, uint32_t dtype,
			     void *dst, uint64_t bytes,
			     struct genai_error *err);

#endif
