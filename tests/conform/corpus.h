/* corpus.h - operators against their definitions, for any executor: small
 * graphs made in memory, random data, expected values in double and how far
 * from them rounding may lead. Does not know: how an executor is loaded and
 * fed; whoever has one gives run(). genai-conform and the kernel tests of
 * tests/gpu do. */
#ifndef GENAI_TESTS_CORPUS_H
#define GENAI_TESTS_CORPUS_H

#include <stdbool.h>
#include <genai/executor.h>

#define OP_VALUES 64
#define OP_NODES 16
#define OP_ATTRS 16

/* A small graph.  Arrays of fixed size; names and data are borrowed. */
struct op_graph {
	struct genai_graph g;
	struct genai_file files[OP_VALUES];
	struct genai_tensor tensors[OP_VALUES];
	struct genai_value values[OP_VALUES];
	struct genai_node nodes[OP_NODES];
	uint32_t ins[OP_NODES][20], outs[OP_NODES][8];
	struct genai_attr attrs[OP_NODES][OP_ATTRS];
	uint32_t inputs[OP_VALUES], outputs[OP_VALUES];
	/* what run() binds: host bytes, or where another value is bound */
	void *host[OP_VALUES];
	uint32_t over[OP_VALUES]; /* GENAI_NONE: its own place */
	struct genai_view views[OP_VALUES];
};

void op_graph_init(struct op_graph *g);
/* Does an executor list every operator of it? */
bool op_listed(const struct op_graph *g, const struct genai_exec_caps *caps);
/* All return the value's index.  data: host bytes to copy in or out. */
uint32_t op_input(struct op_graph *g, uint32_t dtype, uint32_t rank,
		  const int64_t *dims, void *data);
uint32_t op_const(struct op_graph *g, uint32_t dtype, uint32_t rank,
		  const int64_t *dims, const void *data);
uint32_t op_value(struct op_graph *g);
/* An output of the last node: dims are what it will be bound with. */
uint32_t op_output(struct op_graph *g, uint32_t dtype, uint32_t rank,
		   const int64_t *dims, void *data);
/* Output out is bound where input in is. */
void op_over(struct op_graph *g, uint32_t out, uint32_t in);
/* ins and outs end with UINT32_MAX - 1; GENAI_NONE is an omitted one. */
#define OP_END (GENAI_NONE - 1)
struct genai_node *op_node(struct op_graph *g, const char *domain,
			   const char *op, const uint32_t *ins);
void op_node_out(struct op_graph *g, const uint32_t *outs);
void op_attr_int(struct op_graph *g, const char *name, int64_t v);
void op_attr_float(struct op_graph *g, const char *name, double v);
void op_attr_string(struct op_graph *g, const char *name, const char *v);
void op_attr_ints(struct op_graph *g, const char *name, const int64_t *v,
		  uint32_t n);

/* How to run. */
struct op_how {
	int captured;
	uint32_t steps;	   /* submits; 0 means 1 */
	uint64_t cut_rows; /* ROWS visits in parts of so many rows; 0 whole */
	struct genai_exec_stats stats; /* out */
};

uint64_t op_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims);
float op_load(uint32_t dtype, const void *p, uint64_t i);
void op_store(uint32_t dtype, void *p, uint64_t i, float v);

/* ---- running and counting ---- */

struct check {
	/* Plan, load weights, copy inputs in, submit, copy outputs out. */
	int32_t (*run)(struct check *c, struct op_graph *g, struct op_how *how,
		       struct genai_error *err);
	void *ctx;    /* run's */
	bool refused; /* run sets: the plan is one that need not be carried */
	uint32_t passed, failed, skipped;
	bool full;  /* large shapes too */
	bool brief; /* one case in eight */
	/* a row is computed as if it came in a step of any other length */
	bool rows_exact;
	bool print; /* failures, as they come */
	uint32_t seen;
	const char *only; /* part of a test's name, or NULL */
	char first[600];  /* what failed first */
};

/* Uniform numbers from one sequence. */
void rnd_seed(uint64_t s);
uint32_t rnd_u32(void);
float rnd_f(float lo, float hi);
/* n elements of dtype in [lo, hi), rounded to it. */
void *rnd_tensor(uint32_t dtype, uint64_t n, float lo, float hi);
void *rnd_bytes(uint64_t n);

/* Half of the distance between neighbours, relative. */
double unit_of(uint32_t dtype);

/* One case: false when --only leaves it out. */
bool check_begin(struct check *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void check_result(struct check *c, bool ok, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Outputs against want with |got - want| <= tol, element by element. */
void check_close(struct check *c, uint32_t dtype, const void *got,
		 const double *want, const double *tol, uint64_t n);
void check_same(struct check *c, const void *a, const void *b, uint64_t bytes);

/* The suites. */
void corpus_matmul(struct check *c);
void corpus_prompt(struct check *c);
void corpus_attention(struct check *c);
void corpus_elementwise(struct check *c);
void corpus_norms(struct check *c);
void corpus_rows(struct check *c);
void corpus_index(struct check *c);
void corpus_moe(struct check *c);
void corpus_chunks(struct check *c);
void corpus_state(struct check *c);
void corpus_paged(struct check *c);

#endif
