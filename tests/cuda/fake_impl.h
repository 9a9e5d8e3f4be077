/* fake_impl.h - what the files of the fake driver share. */
#ifndef CEP_TESTS_FAKE_IMPL_H
#define CEP_TESTS_FAKE_IMPL_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

#include "tests/cuda/fake_cuda.h"

/* Lines of the order check: the host, streams, branches of graphs. */
#define FAKE_LINES 192u

/* Per line, how many of its units are known to be done. */
struct clock {
	uint32_t at[FAKE_LINES];
};

/* One use of memory. */
struct use {
	const char *what; /* kernel or kind of copy; NULL: none */
	uint32_t line, at;
};

struct span; /* of a block: bytes with the same uses (fake_order.c) */

/* A piece of memory that was given out. */
struct block {
	char *p;
	size_t bytes;
	int kind; /* 0 device 1 pinned 2 registered 3 reserved 4 physical */
	bool dead;
	struct span *spans;
	/* bytes that the running kernel touched, a bit each: read and written,
	 * before it waited for the kernel in front and after */
	uint64_t *bits[4];
	size_t low[4], high[4];
	struct block *next, *touched;
	bool is_touched;
};

enum op_kind {
	OP_KERNEL,
	OP_COPY,
	OP_SET,
	OP_HOST,
	OP_RECORD,
	OP_WAIT,
	OP_GRAPH,
	OP_WORD /* waits for a word of memory */
};

struct op {
	enum op_kind kind;
	const void *kernel;
	unsigned char *params;
	unsigned int grid[3], threads;
	bool overlaps; /* may begin before the kernel in front ends */
	void *dst;
	const void *src;
	size_t bytes;
	const char *what; /* copies: which way */
	unsigned char byte;
	uint32_t value; /* of the word at src */
	CUhostFn fn;
	void *data;
	int state; /* of fn, outside of graphs: 0 waits, 1 runs, 2 is done */
	struct CUevent_st *event;
	uint64_t gen;
	struct CUgraphExec_st *exec;
	uint32_t line, at;    /* where it stands */
	uint64_t turn;        /* in its stream's work queue */
	struct clock *clock;  /* what it comes after, itself included */
	struct clock *before; /* the same for what a kernel does early */
	/* in a graph: the nodes before it, the branch that it is of, its place
	 * there; of a launch: what the branches' lines had before */
	uint32_t *deps;
	uint32_t n_deps, branch, nth;
	bool *done; /* of a launch that has begun: its nodes */
	uint32_t left;
	bool held; /* a thread is at its nodes */
	struct op *next;
};

struct set { /* of graph nodes */
	uint32_t *v, n;
};

#define FAKE_BRANCHES 16

struct CUgraph_st {
	struct op **nodes;
	uint32_t n, cap;
	struct CUstream_st *branches[FAKE_BRANCHES];
	uint32_t n_branches, lengths[FAKE_BRANCHES];
};

struct CUgraphExec_st {
	struct CUgraph_st *graph;
	uint32_t lines[FAKE_BRANCHES];
	struct clock done;     /* its last launch */
	const struct op *busy; /* the launch whose nodes are placed */
	struct CUgraphExec_st *next;
};

struct CUevent_st {
	uint64_t recorded, reached;
	uint64_t ns; /* when it was reached */
	bool timed;
	bool lacks_record; /* that which was left out; nobody asked since */
	struct clock clock;
	struct CUgraph_st *capture; /* recorded inside it */
	struct set at;
};

struct CUstream_st {
	struct op *head, *tail;
	uint32_t line, queue;
	struct clock clock;
	struct clock chain; /* before the kernels that may overlap */
	struct CUgraph_st *capture;
	struct CUstream_st *origin;
	struct set at; /* what the next node comes after */
	struct CUstream_st *next;
};

/* ---- fake_cuda.c: the lock, the machine, failures ---- */

extern uint64_t fake_alive_count, fake_total, fake_used, fake_most;
extern int fake_cc[2], fake_driver, fake_kernels_on, fake_contexts;

/* Every entry: take the lock, count, fail if it is this call's turn. */
CUresult fake_enter(const char *name);
CUresult fake_leave(CUresult r);
/* Give the lock away for a while. */
void fake_pause(void);
void fake_resume(void);
void fake_breathe(void);
/* The same number on every run of the same seed; 0 to n - 1. */
uint32_t fake_dice(uint32_t n);
bool fake_is_seeded(void);
bool fake_is_late(void);
/* From now on every call fails with code, and nothing runs. */
void fake_die(int code);
CUresult fake_dead(void); /* that code, or success */
/* Is this edge the one to be left out?  is_new: it orders something. */
bool fake_drops(enum fake_edge edge, bool is_new);
void fake_drop_matters(void);
/* A unit of work runs: does it break down? */
bool fake_breaks(void);
void fake_copy_takes(void);

/* Device memory taken. */
static inline void fake_use(uint64_t bytes)
{
	fake_used += bytes;
	if (fake_used > fake_most)
		fake_most = fake_used;
}

#define ENTER()                                                                \
	CUresult r = fake_enter(__func__);                                     \
	if (r)                                                                 \
	return fake_leave(r)

/* The same for calls that give something back: they do so whatever they
 * return, for nobody could help it. */
#define ENTER_BACK() CUresult r = fake_enter(__func__)

/* ---- fake_queue.c: streams, events, execution ---- */

extern struct CUstream_st *fake_streams;

/* How many work queues the device gets, as the environment says now. */
void fake_queues_open(void);
struct op *fake_op(enum op_kind kind);
void fake_op_free(struct op *o);
CUresult fake_enqueue(struct CUstream_st *s, struct op *o);
/* Run one queued unit of some stream; false when there is none. */
bool fake_progress(void);
/* All units so far of s are done. */
void fake_finish(struct CUstream_st *s);
void fake_run_op(struct op *o);

/* ---- fake_capture.c ---- */

/* Calls that may not happen while a capture is open spoil it. */
CUresult fake_not_capturing(void);
void fake_spoil(void);
/* The open capture, or NULL. */
struct CUgraph_st *fake_capture(void);
void fake_join_capture(struct CUstream_st *s);
void fake_node_add(struct CUstream_st *s, struct op *o);
uint32_t fake_set_add(struct set *s, uint32_t v);
/* Would waiting for e put something new before the next node of s? */
bool fake_orders_more(const struct CUstream_st *s, const struct CUevent_st *e);
/* Nodes of a launch, as far as they can run; false: some wait for a word. */
bool fake_run_graph(struct op *launch);
/* Whether there is one. */
bool fake_graph_is_ready(const struct op *launch);
/* Does the word that it waits for say so? */
bool fake_word_is_there(const struct op *o);
bool fake_has_graphs(void);

/* ---- fake_image.c ---- */

/* Does the device take such a launch? */
CUresult fake_check_launch(const CUlaunchConfig *c, const void *kernel,
			   bool *out_overlaps);

/* ---- fake_memory.c ---- */

extern struct block *fake_blocks;
/* The block that holds p, dead ones too; NULL: not memory of the driver. */
struct block *fake_block_of(const void *p);

/* ---- fake_order.c: is every access ordered? ---- */

extern struct clock fake_host; /* what the host knows to be done */

uint32_t fake_line(void);
void fake_line_free(uint32_t line);
/* The next n units of a line: the number of the last one. */
uint32_t fake_tick(uint32_t line, uint32_t n);
void fake_join(struct clock *to, const struct clock *from);
bool fake_covers(const struct clock *c, const struct clock *other);
/* Bytes that a unit touches. */
void fake_access(const struct op *o, const void *p, size_t bytes, bool writes);
/* Around a kernel, whose accesses the instrumentation tells. */
void fake_kernel_begin(const struct op *o);
void fake_kernel_end(const struct op *o);
/* The host takes bytes of a block away. */
void fake_order_gone(struct block *b, size_t from, size_t bytes);
void fake_order_forget(struct block *b);
/* Something is ended although it may still be in use. */
void fake_order_need(const struct clock *done, const char *what);

#endif
