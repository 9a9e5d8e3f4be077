/* rig.h - drives cuda_ep without the core, for kernel tests.
 * Owns: a host table, small graphs made in memory, a pager that keeps every
 * page on the device, running a graph once or several times. */
#ifndef GENAI_TESTS_GPU_RIG_H
#define GENAI_TESTS_GPU_RIG_H

#include <genai/executor.h>

#define RIG_VALUES 64
#define RIG_NODES 16
#define RIG_ATTRS 16

struct rig {
	const struct genai_module_block *block;
	void *self;
	struct genai_host host;
	struct genai_stream_ops stream_ops;
	struct genai_barrier_ops barrier_ops;
	struct genai_executor_ops eager, captured;
	struct genai_stream_api stream;
	struct genai_barrier_api barrier;
	struct genai_stream *compute;
	char driver[512];
	long live; /* host allocations */
	int overlap;
};

/* A small graph.  Arrays of fixed size; names and data are borrowed. */
struct rig_graph {
	struct genai_graph g;
	struct genai_file files[RIG_VALUES];
	struct genai_tensor tensors[RIG_VALUES];
	struct genai_value values[RIG_VALUES];
	struct genai_node nodes[RIG_NODES];
	uint32_t ins[RIG_NODES][20], outs[RIG_NODES][8];
	struct genai_attr attrs[RIG_NODES][RIG_ATTRS];
	uint32_t inputs[RIG_VALUES], outputs[RIG_VALUES];
	/* what run() binds: host bytes, or a device address */
	void *host[RIG_VALUES];
	uint64_t device[RIG_VALUES];
	struct genai_view views[RIG_VALUES];
};

/* NULL and a line on stderr when the module does not come up. */
struct rig *rig_open(const char *module, const char *driver, int overlap,
		     uint64_t limit, struct genai_error *err);
void rig_close(struct rig *r);

void rig_graph_init(struct rig_graph *g);
/* All return the value's index.  data: host bytes to copy in or out. */
uint32_t rig_input(struct rig_graph *g, uint32_t dtype, uint32_t rank,
		   const int64_t *dims, void *data);
uint32_t rig_const(struct rig_graph *g, uint32_t dtype, uint32_t rank,
		   const int64_t *dims, const void *data);
uint32_t rig_value(struct rig_graph *g);
/* An output of the last node: dims are what it will be bound with. */
uint32_t rig_output(struct rig_graph *g, uint32_t dtype, uint32_t rank,
		    const int64_t *dims, void *data);
/* ins and outs end with UINT32_MAX - 1; GENAI_NONE is an omitted one. */
#define RIG_END (GENAI_NONE - 1)
struct genai_node *rig_node(struct rig_graph *g, const char *domain,
			    const char *op, const uint32_t *ins);
void rig_node_out(struct rig_graph *g, const uint32_t *outs);
void rig_attr_int(struct rig_graph *g, const char *name, int64_t v);
void rig_attr_float(struct rig_graph *g, const char *name, double v);
void rig_attr_string(struct rig_graph *g, const char *name, const char *v);
void rig_attr_ints(struct rig_graph *g, const char *name, const int64_t *v,
		   uint32_t n);

/* How to run. */
struct rig_how {
	int captured;
	uint32_t steps;	   /* submits; 0 means 1 */
	uint64_t cut_rows; /* ROWS visits in parts of so many rows; 0 whole */
	struct genai_exec_stats stats; /* out */
};

/* Plan, load weights, copy inputs in, submit, copy outputs out. */
int32_t rig_run(struct rig *r, struct rig_graph *g, struct rig_how *how,
		struct genai_error *err);
/* Device memory with bytes copied in (NULL: zero). */
uint64_t rig_upload(struct rig *r, const void *data, uint64_t bytes);
void rig_download(struct rig *r, void *data, uint64_t addr, uint64_t bytes);
void rig_free(struct rig *r, uint64_t addr);

uint64_t rig_bytes(uint32_t dtype, uint32_t rank, const int64_t *dims);
float rig_load(uint32_t dtype, const void *p, uint64_t i);
void rig_store(uint32_t dtype, void *p, uint64_t i, float v);

#endif
