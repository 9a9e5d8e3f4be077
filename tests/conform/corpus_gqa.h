/* corpus_gqa.h - what attention over a cache gives, by its definition: of
 * GroupQueryAttention, and of each sequence of PagedAttention. */
#ifndef GENAI_TESTS_CORPUS_GQA_H
#define GENAI_TESTS_CORPUS_GQA_H

#include "tests/conform/corpus.h"

/* A sequence: seq new rows behind past ones. */
struct gqa {
	uint32_t dtype;
	int64_t heads, kv, size, seq, past, cap;
	int64_t rot; /* channels; 0 none */
	bool interleaved, packed, share, norm, sink, smooth, bias, cache;
	int64_t window;
	double softcap, scale;
};

struct gqa_data {
	void *q, *k, *v, *pk, *pv, *cosc, *sinc, *qn, *kn, *sink, *bias;
	void *out, *ok, *ov;
	double *keys, *values; /* of every position a row can see */
	int64_t had, rows; /* rows in the cache before, rows of the buffer */
};

/* Random data; tables and weights those of like, if it is not NULL, whose
 * sequence is at least as long. */
void gqa_make(const struct gqa *t, struct gqa_data *x,
	      const struct gqa_data *like);
void gqa_unmake(struct gqa_data *x);
/* GroupQueryAttention of the executor under test: out, ok and ov. */
int32_t gqa_run(struct check *c, const struct gqa *t, struct gqa_data *x,
		struct genai_error *err);
/* Key (what 1) or value (2) of position j, rounded as a cache holds it. */
void gqa_cached(const struct gqa *t, const struct gqa_data *x, int64_t j,
		int64_t h, int what, double *o);
/* Expected row of the output and what rounding can do to it. */
void gqa_want_row(const struct gqa *t, const struct gqa_data *x, int64_t s,
		  int64_t h, double *want, double *tol);

#endif
