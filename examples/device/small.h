/* small.h - a device, its barrier and an executor in a few hundred lines, to
 * read and to start from.
 * device.c    memory, streams, the queue; both calls that wait
 * kernels.c   the operators
 * executor.c  a node prepared, a node launched; the loop is exec_common's
 * module.c    the handshake
 * The device keeps one queue for all streams and runs it when somebody waits:
 * the order of enqueuing is always a legal one.  It neither records nor
 * reserves ranges, and says so. */
#ifndef SMALL_H
#define SMALL_H

#include <pthread.h>

#include "exec.h" /* exec_common */

#define MAX_MEM 64
#define ADDR_BIT (UINT64_C(1) << 62) /* flipped in every device address */

struct region {
	genai_addr addr;
	uint64_t bytes;
	uint32_t kind; /* GENAI_MEM_*, 0: registered */
	uint32_t used; /* by a unit or copy, ever */
};

struct genai_stream {
	struct genai_stream *next;
	uint64_t tail, done; /* operations enqueued, finished */
	uint64_t bad_from;   /* the operation that failed, + 1; 0: none */
	struct genai_error error;
};

struct op {
	struct genai_stream *stream;
	struct genai_work work; /* fn NULL: a copy, or a wait */
	struct genai_point point;
	void *mem[MAX_MEM];
	uint64_t bytes; /* of a copy */
};

struct device {
	struct exec_shared exec; /* first: the plans */
	const struct genai_host *host;
	pthread_mutex_t lock;
	struct region *regions;
	uint32_t n_regions;
	struct genai_stream *streams;
	struct op *queue; /* a ring */
	uint64_t head, tail, cap;
	uint64_t used, limit;
	struct genai_stream_stats stats;
};

#define FAIL(d, err, code, ...)                                                \
	((d)->host->error_set((d)->host->ctx, (err), (code), __VA_ARGS__))

extern const struct genai_stream_ops stream_table;
extern const struct genai_barrier_ops barrier_table;
extern const struct exec_module executor;

/* ---- executor: what exec_common leaves to a module ---- */

/* A node, as its kernel gets it. */
struct unit {
	const struct genai_node *node;
	const struct kernel *kernel;
	uint32_t n_in;
	struct exec_tensor *in[EXEC_MAX_IN], *out; /* NULL: omitted */
	struct device *dev;
};

/* What of it: rows of a weight that is cut. */
struct part {
	const struct unit *unit;
	uint64_t row_begin, row_end;
};

struct kernel {
	const char *domain, *op;
	struct exec_facts facts;
	/* Check types and attributes, set u->out. */
	int32_t (*shape)(struct unit *u, struct genai_error *err);
	/* mem: the inputs, then the output. */
	int32_t (*run)(const struct part *p, void *const *mem,
		       struct genai_error *err);
};
extern const struct kernel kernels[];
extern const uint32_t n_kernels;

const struct kernel *kernel_find(const struct genai_node *n);

#endif
