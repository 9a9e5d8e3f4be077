/* metrics.h - what /metrics counts beside the engine's own statistics. */
#ifndef GENAI_TOOLS_SERVE_METRICS_H
#define GENAI_TOOLS_SERVE_METRICS_H

#include <genai/engine.h>
#include <stdbool.h>

#define METRICS_BUCKETS 15

struct histogram {
	uint64_t counts[METRICS_BUCKETS + 1]; /* the last: beyond all */
	uint64_t n;
	double sum;
};

enum metrics_end {
	END_STOP,
	END_LENGTH,
	END_CANCELLED,
	END_DEADLINE,
	END_ERROR,
	END_COUNT
};

struct metrics {
	uint64_t ends[END_COUNT]; /* choices */
	uint64_t refused;	  /* requests answered with an error at once */
	/* of embeddings */
	uint64_t vectors, vector_tokens, n_vector_jobs;
	uint32_t vector_errors;
	bool vectors_healthy;
	struct histogram first, between, whole; /* seconds */
};

void histogram_add(struct histogram *h, double s);

struct evbuffer;
/* The text that Prometheus reads; engine: NULL where vectors are made. */
void metrics_print(const struct metrics *m, struct genai_engine *engine,
		   uint32_t connections, const char *model,
		   struct evbuffer *out);

#endif
