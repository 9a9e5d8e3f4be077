/* small.h - a device, its barrier and an executor in a few hundred lines, to
 * read and to start from.
 * device.c   memory, streams, the queue; both calls that wait
 * plan.c     a graph into shapes, a place for every value, visits
 * step.c     one step: acquire, launch, release
 * kernels.c  the operators
 * module.c   the handshake
 * The device keeps one queue for all streams and runs it when somebody waits:
 * the order of enqueuing is always a legal one.  It neither records nor
 * reserves ranges, and says so. */
#ifndef SMALL_H
#define SMALL_H

#include <pthread.h>

#include <genai/executor.h>

#define MAX_MEM 8
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
extern const struct genai_executor_ops executor_table;

/* ---- executor ---- */

#define MAX_IN 6

struct tensor {
	uint32_t dtype, rank;
	int64_t dims[GENAI_MAX_RANK];
};

/* What a kernel gets. */
struct unit {
	const struct genai_node *node;
	const struct kernel *kernel;
	struct tensor in[MAX_IN], out;
	uint32_t n_in, has[MAX_IN];  /* has: index into mem, + 1; 0: omitted */
	uint64_t row_begin, row_end; /* of a weight cut by rows */
	struct device *dev;
};

struct kernel {
	const char *domain, *op;
	uint32_t by_rows; /* inputs that may be cut, a bit each */
	uint32_t gathers; /* inputs that are read by index */
	/* Check types and attributes, set u->out. */
	int32_t (*shape)(struct unit *u, struct genai_error *err);
	int32_t (*run)(const struct unit *u, void *const *mem,
		       struct genai_error *err);
};
extern const struct kernel kernels[];
extern const uint32_t n_kernels;

struct step; /* units of a submit, kept until it is done */

struct genai_plan {
	struct device *dev;
	const struct genai_graph *graph;
	struct genai_stream_api stream;
	struct genai_pager_api pager;
	struct genai_view *max_in, *in, *out; /* size 0: not bound */
	struct tensor *values;
	uint64_t *offset;    /* per value: in the arena */
	uint32_t *output_of; /* per value: graph output, or GENAI_NONE */
	struct genai_mem arena;
	struct genai_visit *visits;
	uint32_t *visit_input; /* per visit: the node's input */
	uint32_t n_visits;
	struct genai_visit_page *pages;
	uint32_t n_pages, is_paged;
	genai_addr *place; /* per page, while it is held */
	struct step *steps;
	struct genai_exec_stats stats;
};

uint64_t tensor_bytes(const struct tensor *t);
const struct kernel *kernel_find(const struct genai_node *n);
/* Shapes of all values for these inputs. */
int32_t plan_shapes(struct genai_plan *p, const struct genai_view *inputs,
		    struct genai_error *err);
/* A unit without addresses, its shapes from p->values. */
int32_t plan_unit(struct genai_plan *p, uint32_t node, struct unit *u,
		  struct genai_error *err);
void plan_free(struct genai_plan *p);
int32_t plan_create(void *self, const struct genai_graph *graph,
		    const struct genai_plan_options *o,
		    struct genai_plan **out_plan, struct genai_error *err);
int32_t plan_visits(struct genai_plan *p, const struct genai_visit **out_visits,
		    uint32_t *out_count, struct genai_error *err);
int32_t plan_set_pages(struct genai_plan *p,
		       const struct genai_visit_page *pages, uint32_t n,
		       struct genai_error *err);
int32_t plan_submit(struct genai_plan *p, struct genai_stream *stream,
		    const struct genai_point *wait, uint32_t n_wait,
		    struct genai_point *out_signal, struct genai_error *err);

#endif
