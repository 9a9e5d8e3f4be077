/* ceilings.h - measured rates of a device, and the floor of a step. */
#ifndef GENAI_TOOLS_CEILINGS_H
#define GENAI_TOOLS_CEILINGS_H

#include "core/runtime.h"

struct ceilings {
	double memory_bytes_s; /* read + written by a copy on the device */
	double link_bytes_s;   /* pinned host memory to the device */
};

int32_t ceilings_measure(struct genai_runtime *rt, struct ceilings *out,
			 struct genai_error *err);
/* max(weights over memory, streamed over link): no step can take less. */
double ceilings_floor_s(const struct ceilings *c, double weight_bytes,
			double streamed_bytes);

#endif
