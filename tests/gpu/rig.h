/* rig.h - drives cuda_ep without the core, for kernel tests.
 * Owns: a host table, small graphs made in memory, a pager that keeps every
 * page on the device, running a graph once or several times. */
#ifndef GENAI_TESTS_GPU_RIG_H
#define GENAI_TESTS_GPU_RIG_H

#include "tests/conform/corpus.h"

struct gpu_rig {
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

/* The module's host_threads, of what is opened from then on. */
extern uint32_t gpu_host_threads;
/* NULL and a line on stderr when the module does not come up. */
struct gpu_rig *gpu_open(const char *module, const char *driver, int overlap,
			 uint64_t limit, struct genai_error *err);
void gpu_close(struct gpu_rig *r);

/* Device memory with bytes copied in (NULL: zero). */
uint64_t gpu_upload(struct gpu_rig *r, const void *data, uint64_t bytes);
void gpu_download(struct gpu_rig *r, void *data, uint64_t addr, uint64_t bytes);
void gpu_free(struct gpu_rig *r, uint64_t addr);

/* Of struct check: run(), whose ctx is a struct gpu_rig. */
int32_t gpu_run(struct check *c, struct op_graph *g, struct op_how *how,
		struct genai_error *err);
static inline struct gpu_rig *gpu_of(const struct check *c)
{
	return c->ctx;
}

void suite_runtime(struct check *c);

#endif
