/* ceilings.h - rates of a device, and the floor of a step. */
#ifndef GENAI_TOOLS_CEILINGS_H
#define GENAI_TOOLS_CEILINGS_H

#include "core/model/model.h"

struct ceilings {
	double memory_bytes_s;	  /* read + written by a copy on the device */
	double link_bytes_s;	  /* pinned host memory to the device */
	double copy_s;		  /* of every copy, beside its bytes */
	double host_bytes_s;	  /* multiplied by the host's cores; 0: none */
	double busy_link_bytes_s; /* of the link while they do */
	bool counted; /* by the device's clock, which is simulated */
};

/* What the device says itself, without measuring; true if that is all. */
bool ceilings_known(struct genai_runtime *rt, struct ceilings *out);
/* Of a block that is copied to measure: what device_limit leaves room for. */
uint64_t ceilings_block_bytes(const struct genai_device *d);
/* Measured, or what the device says where time is counted. */
int32_t ceilings_measure(struct genai_runtime *rt, struct ceilings *out,
			 struct genai_error *err);
/* The least time for weights that stay away: over the link or, where that is
 * less, over the link and on the host's cores, all of the time. */
double ceilings_away_s(const struct ceilings *c, double bytes);
/* No step takes less with this plan: all weights, and cache_bytes, from the
 * device's memory and what launches cost; or what the budget leaves out, ring
 * included, over the link, that which is not read in place in copies of a
 * page, and missed bytes of experts besides.  Where the host's cores multiply,
 * they and the link share that. */
double ceilings_floor_s(const struct ceilings *c, const struct genai_model *m,
			double cache_bytes, double missed);

#endif
