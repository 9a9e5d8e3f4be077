/* wire.h - writing protobuf messages into a growing buffer.
 * Owns: the wire format, out-of-memory that sticks.  Does not know: ONNX.
 * Threads: one per buffer. */
#ifndef GENAI_CORE_MODELGEN_WIRE_H
#define GENAI_CORE_MODELGEN_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct genai_wire {
	uint8_t *data;
	size_t bytes;
	size_t capacity;
	bool failed; /* out of memory: later calls do nothing */
};

void genai_wire_free(struct genai_wire *w);

/* Field of type int64 (negative numbers take ten bytes, as protobuf says). */
void genai_wire_int(struct genai_wire *w, uint32_t field, int64_t v);
void genai_wire_float(struct genai_wire *w, uint32_t field, float v);
void genai_wire_bytes(struct genai_wire *w, uint32_t field, const void *data,
		      size_t bytes);
void genai_wire_string(struct genai_wire *w, uint32_t field, const char *s);

/* The fields that another buffer holds. */
void genai_wire_raw(struct genai_wire *w, const struct genai_wire *from);

/* A nested message: what is written between begin and end is its body.  Give
 * the result of begin to end; messages nest. */
size_t genai_wire_begin(struct genai_wire *w, uint32_t field);
void genai_wire_end(struct genai_wire *w, size_t start);

#endif
