/* bench.h - what the parts of genai bench share: bench.c the rows asked for,
 * bench_run.c one measured row, bench_engine.c rows of many sequences,
 * bench_plot.c a picture of all rows, bench_profile.c where a step's time
 * goes, bench_csv.c the same by a vendor's profiler. */
#ifndef GENAI_TOOLS_BENCH_H
#define GENAI_TOOLS_BENCH_H

#include "tools/ceilings.h"
#include "tools/cli.h"

#define BENCH_MAX_LIST 32
#define BENCH_MAX_REPEAT 101

/* A key of [runtime] that rows differ in.  Values point into argv. */
struct bench_axis {
	const char *key;
	const char *values[BENCH_MAX_LIST];
	size_t n;
};

struct bench {
	struct cli *c;
	const char *path;
	int64_t prompts[BENCH_MAX_LIST], depths[BENCH_MAX_LIST];
	int64_t seqs[BENCH_MAX_LIST]; /* computed together; none: sessions */
	size_t n_prompts, n_depths, n_seqs;
	int64_t new_tokens, repeat;
	struct ceilings ceil;
	char device[256]; /* that the ceilings are of; "" before the first */
	size_t stream;	  /* which of the matrix it has */
	int64_t *tokens;  /* of the first row with this prompt and depth */
	json_t *rows;	  /* as in --json */
	bool cold;	  /* files out of the cache before each token */
	bool headed;	  /* the rows printed have their heading */
	bool profile;	  /* where the time of each goes, too */
	bool differ;	  /* two rows gave different tokens */
};

/* Measure, print and record the row of prompt p at depth d. */
int32_t bench_row(struct bench *b, struct cli_model *m, struct genai_error *err,
		  size_t p, size_t d);

/* The rows of a configuration, for numbers of sequences. */
int32_t bench_engine(struct bench *b, struct cli *c);

/* An SVG file: decode rate over what weights may hold, a line for each
 * combination of the rest, dashed its floor.  GENAI_E_IO. */
int32_t bench_plot(const json_t *rows, const char *title, const char *path,
		   struct genai_error *err);

/* bench_profile.c.  One runtime at a time, which was just opened:
 * GENAI_E_UNSUPPORTED where its stream runtime makes no stamps. */
int32_t profile_open(struct genai_runtime *rt, struct genai_error *err);
void profile_close(void);
/* Where the time of the row of prompt p at depth d goes: "profile" of row,
 * printed. */
int32_t bench_profile(struct bench *b, struct cli_model *m,
		      struct genai_error *err, size_t p, size_t d, json_t *row);
/* A table of such rows. */
void profile_print(const json_t *rows, const char *of);
/* Rows of what a vendor's profiler wrote.  GENAI_E_FORMAT, GENAI_E_IO. */
int32_t profile_csv(struct cli *c, const char *path, json_t **out_rows);

/* bench_run.c: ids that do not repeat soon, the same for every row. */
void bench_prompt(int64_t *ids, int64_t n, uint32_t vocab);

#endif
