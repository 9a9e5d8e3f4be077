/* cep.h - the state of a loaded cuda_ep: driver table, device, books.
 * Owns: what the module's files share.  Does not know: graphs.
 *
 * cep.lock guards blocks and the streams' timelines.  Order:
 * lock, then call_lock.  Neither is held while waiting for a point. */
#ifndef CEP_H
#define CEP_H

#include <cuda.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <string.h>
#include <genai/executor.h>

#include "modules/cuda_ep/kernels/params.h"
#include "modules/exec_common/exec.h"

#define CEP_STREAMS 16u /* at most, at a time */
#define CEP_STAMPS 16384u
#define CEP_EVENTS 64u	/* ring of a timeline */
#define CEP_TAG "workspace"

/* A driver call whose failure will be told: its name is kept for the message.
 * (Another thread's call may come between; thread-local memory of a module is
 * more than LeakSanitizer can follow.) */
#define CU(self, fn)                                                           \
	(atomic_store_explicit(&(self)->called, #fn, memory_order_relaxed),    \
	 (self)->drv.fn)

struct cep_driver {
	void *handle;
#define CEP_SYM(name) __typeof__(&name) name;
#include "modules/cuda_ep/cuda_syms.h"
#undef CEP_SYM
};

/* Kernels, by number; CEP_K_x is the function x. */
enum cep_kernel {
#define CEP_KERNEL(name) CEP_K_##name,
#include "modules/cuda_ep/kernel_names.h"
	CEP_N_KERNELS
};

enum cep_block_kind {
	CEP_BLOCK_DEVICE,
	CEP_BLOCK_PINNED,
	CEP_BLOCK_REGISTERED,
	CEP_BLOCK_RESERVED,
};

/* A piece of address space that the module gave out. */
struct cep_block {
	uint64_t addr, bytes; /* as the device sees it */
	char *host;	      /* as the host sees it, or NULL */
	enum cep_block_kind kind;
	bool touched;	     /* a unit that names it was enqueued */
	uint32_t recordings; /* live ones that name it */
	uint64_t mark;	     /* the last recording that counted it */
	char *pages;	     /* registered: what the driver was given */
	uint64_t n_granules; /* reserved */
	CUmemGenericAllocationHandle *granules; /* 0: nothing there */
};

/* A recorded event: reached means that everything up to value is done. */
struct cep_event {
	CUevent h;
	uint64_t value;
	uint64_t clock[CEP_STREAMS]; /* what the stream was ordered after */
};

/* A timeline of a stream: the lasting one, or that of an open recording. */
struct cep_line {
	uint64_t enqueued;	     /* units so far */
	uint64_t reached;	     /* known to be done */
	uint64_t clock[CEP_STREAMS]; /* ordered after these values */
	uint32_t n_events, next;
	bool owes_event; /* the last unit wants its event at once */
	struct cep_event events[CEP_EVENTS];
};

struct genai_stream {
	struct cep *self;
	uint32_t id;
	bool recording; /* joined the open one */
	CUstream h;
	char name[32];
	struct cep_line line;
	struct cep_line inner;
};

/* A host function in a stream; freed when it ran, with its recording, or at the
 * end: a driver does not call it once the device is lost. */
struct cep_call {
	struct cep_call *next;
	struct cep *self;
	bool done;
	struct cep_slot *slot; /* of a unit that may stay open */
	uint32_t stream;
	uint64_t value, clock[CEP_STREAMS]; /* where it stands */
	struct genai_recording *recording;
	struct genai_work work;
	uint32_t n_mem;
	void *mem[];
};

/* A recorded unit: its last node; NULL if it enqueued nothing of its own, and
 * then what the next node of its stream comes after. */
struct cep_recorded {
	CUgraphNode node;
	uint32_t front, n_front;
};

/* What the driver made of a recording, for the order check. */
struct cep_kept {
	struct cep_recorded *units;
	CUgraphNode *fronts; /* of units without a node, and of the end */
	CUgraphNode *nodes;  /* sorted */
	CUgraphNode *from, *to;
	uint32_t n_units, cap_units, n_fronts, cap_fronts;
	uint32_t end, n_end; /* in fronts: what the end comes after */
	size_t n_nodes, n_edges;
};

struct genai_recording {
	struct cep *self;
	CUgraphExec exec;
	struct cep_kept kept;
	uint64_t serial;
	struct cep_block **blocks; /* named by its units */
	uint32_t n_blocks, cap_blocks;
	struct cep_call *calls;
	struct genai_stream_stats per_replay;
};

struct genai_plan;

/* Units that a thread of the host may end: a word of pinned memory each, which
 * the stream waits for.  A word only grows, so that a wait of its user before is
 * never undone. */
#define CEP_SLOTS 512u
enum cep_slot_state {
	CEP_FREE,
	CEP_QUEUED,
	CEP_BEGINS, /* its function runs */
	CEP_OPEN,   /* and has returned GENAI_PENDING */
	CEP_TOLD,   /* a signal is under way */
	CEP_LEFT,   /* the function returned meanwhile */
	CEP_ENDED   /* signalled before the function returned */
};
struct cep_slot {
	struct cep_call *call;
	enum cep_slot_state state;
	uint32_t turn; /* the word when the unit is done */
};

/* The first host unit of a stream that failed. */
struct cep_failure {
	int32_t code;
	uint64_t value; /* its place: points from here on fail */
	struct genai_error err;
};

struct cep {
	struct exec_shared exec; /* first: the plans */
	const struct genai_host *host;
	struct cep_driver drv;
	_Atomic(const char *) called; /* driver function */
	CUdevice dev;
	CUcontext ctx;
	uint32_t device;
	int32_t driver_version, major, minor, n_sms, max_smem;
	bool retained, register_ro, pdl, own_driver;
	char device_name[64];
	uint64_t total_bytes, granule, limit;
	uint64_t free_before; /* of the device, before this process */
	/* threads of the host that multiply: beside.h; and what plans are made
	 * by then */
	struct cep_team *team;
	uint64_t patience_ns, link_rate, busy_link_rate, host_rate;
	CUmodule *modules;
	CUfunction kernels[CEP_N_KERNELS];

	pthread_mutex_t lock;
	struct cep_block **blocks; /* sorted by addr */
	uint32_t n_blocks, cap_blocks, n_untouched;
	struct cep_ledger *ledger;
	struct genai_stream *streams[CEP_STREAMS];
	struct genai_stream *origin;	   /* of the open recording */
	struct genai_recording *recording; /* the open one */
	bool spoilt;			   /* a call failed while recording */
	uint64_t serial;		   /* recordings so far */
	CUevent *stamps;		   /* a ring, from the first on */
	uint64_t n_stamps;
	struct genai_stream_stats stats;

	/* failure: the first one stays until reset.  call_lock guards poison,
	 * its text and calls; host functions of streams take it, so it is
	 * held over no driver call at all. */
	pthread_mutex_t call_lock;
	struct cep_call *calls;			/* in no recording */
	struct cep_failure failed[CEP_STREAMS]; /* by the stream's id */
	struct cep_slot slots[CEP_SLOTS];	/* of units that may stay open */
	struct cep_fault *fault;		/* pinned; kernels write it */
	uint32_t *words; /* of the slots, pinned */
	uint64_t words_addr;
	uint64_t fault_addr, fault_lock;
	CUstream service; /* for the module's own small copies */
	int32_t poison;	  /* 0, or the code of the first failure */
	struct genai_error poison_err;
};

/* Fill err and return code. */
#define cep_fail(self, err, code, ...)                                         \
	((self)->host->error_set((self)->host->ctx, (err), (code), __VA_ARGS__))

/* ---- driver.c ---- */

/* Load the driver library; path "" means libcuda.so.1. */
int32_t cep_driver_open(struct cep *self, const char *path,
			struct genai_error *err);
void cep_driver_close(struct cep *self);
/* Bring up device and context. */
int32_t cep_device_open(struct cep *self, struct genai_error *err);
void cep_device_close(struct cep *self);
/* "what: call: CUDA_ERROR_X (text)"; remembers errors that kill the context. */
/* Errors after which nothing works in this context any more. */
bool cep_is_fatal(CUresult r);
int32_t cep_cuda_fail(struct cep *self, struct genai_error *err, CUresult r,
		      const char *fmt, ...)
	__attribute__((format(printf, 4, 5)));

/* Make the context current on this thread. */
static inline void cep_enter(struct cep *self)
{
	(void)self->drv.cuCtxSetCurrent(self->ctx);
}

/* ---- kernels.c ---- */

/* The images that fit the device, and one kernel run. */
int32_t cep_kernels_open(struct cep *self, struct genai_error *err);
void cep_kernels_close(struct cep *self);

/* ---- ledger.c ---- */

/* Around bringing up the device: open before there is a context, settle once
 * the kernels are loaded or bringing up failed; one at a time in a process. */
void cep_ledger_open(struct cep *self);
void cep_ledger_settle(struct cep *self);
void cep_ledger_close(struct cep *self);
/* Charge device memory, to be given back by the same number of bytes.
 * Errors: GENAI_E_LIMIT over device_limit. */
int32_t cep_charge(struct cep *self, uint64_t bytes, const char *tag,
		   struct genai_error *err);
void cep_uncharge(struct cep *self, uint64_t bytes);
/* What this process uses on the device; out_own, if not NULL: that part of it
 * that the driver took for itself. */
uint64_t cep_charged(struct cep *self, uint64_t *out_own);

/* ---- memory.c ---- */

/* Bytes that stats and limits count; block containing [addr, addr + bytes). */
struct cep_block *cep_block_find(struct cep *self, uint64_t addr,
				 uint64_t bytes);
/* By host address. */
struct cep_block *cep_block_find_host(struct cep *self, const void *p,
				      uint64_t bytes);
/* A unit names the range: lock held. */
int32_t cep_block_touch(struct cep *self, uint64_t addr, uint64_t bytes,
			struct genai_error *err);
void cep_memory_close(struct cep *self);

int32_t cep_alloc(void *self, uint32_t kind, uint64_t bytes, const char *tag,
		  struct genai_mem *out_mem, struct genai_error *err);
int32_t cep_free(void *self, genai_addr addr, const struct genai_ticket *ticket,
		 struct genai_error *err);
int32_t cep_reserve(void *self, uint64_t bytes, struct genai_range *out_range,
		    struct genai_error *err);
int32_t cep_unreserve(void *self, struct genai_range range,
		      const struct genai_ticket *ticket,
		      struct genai_error *err);
int32_t cep_map(void *self, struct genai_range range, const char *tag,
		struct genai_error *err);
int32_t cep_unmap(void *self, struct genai_range range,
		  const struct genai_ticket *ticket, struct genai_error *err);
int32_t cep_host_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out_mem, struct genai_error *err);
int32_t cep_host_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err);

/* ---- calls.c: host functions ---- */

int32_t cep_launch_host(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *accesses,
			uint32_t n_accesses, struct genai_error *err);
int32_t cep_launch_open(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *accesses,
			uint32_t n_accesses, struct genai_error *err);
int32_t cep_signal(void *self, const void *ctx, const struct genai_error *why,
		   struct genai_error *err);
void cep_calls_free(struct cep *self, bool all); /* or those that ran */
/* Of one that is in no list; call_lock held. */
void cep_call_free(struct cep_call *c);

/* ---- kept.c: what the driver made of a recording ---- */

/* A unit was recorded on s; lock held. */
int32_t cep_kept_unit(struct genai_stream *s, struct genai_error *err);
/* What the end comes after, while the capture is open; the rest of it then. */
int32_t cep_kept_end(struct genai_stream *origin, struct genai_error *err);
int32_t cep_kept_graph(struct genai_recording *r, CUgraph graph,
		       struct genai_error *err);
void cep_kept_free(struct genai_recording *r);
int32_t cep_graph_edges(void *self, struct genai_recording *r,
			struct genai_edge *out_edges, uint64_t cap,
			uint64_t *out_n, struct genai_error *err);

/* ---- stream.c, record.c, barrier.c ---- */

/* One more unit on a stream; the caller holds the lock. */
int32_t cep_count(struct genai_stream *s, bool owes_event,
		  struct genai_error *err);
struct genai_stream_stats *cep_stats_of(struct genai_stream *s);
int32_t cep_touch_all(struct cep *self, const struct genai_access *a,
		      uint32_t n, struct genai_error *err);

/* 0 reached, GENAI_PENDING, or the failure; lock held. */
int32_t cep_point_poll(struct cep *self, struct genai_point point,
		       struct genai_error *err);
/* An event now for everything enqueued; lock held. */
int32_t cep_line_record(struct genai_stream *s, struct cep_line *l,
			struct genai_error *err);
/* 0: idle, which a dead context is too; GENAI_PENDING, or an error: the driver
 * does not say.  Lock held. */
int32_t cep_stream_idle(struct genai_stream *s, struct genai_error *err);
/* The failure that poisons the device, what kernels recorded included. */
int32_t cep_poison_check(struct cep *self, struct genai_error *err);
/* The failure of a host unit that the place (value of the stream with this id,
 * ordered after clock) lies behind; call_lock held. */
const struct cep_failure *cep_failure_before(const struct cep *self,
					     uint32_t id, uint64_t value,
					     const uint64_t *clock);
/* A driver call of a stream's work failed, or a host function did. */
void cep_poison_set(struct cep *self, int32_t code,
		    const struct genai_error *cause);
void cep_recording_free(struct genai_recording *r);
static inline struct cep_line *cep_line_of(struct genai_stream *s)
{
	return s->recording ? &s->inner : &s->line;
}

int32_t cep_capture_begin(void *self, struct genai_stream *stream,
			  struct genai_error *err);
int32_t cep_capture_end(void *self, struct genai_stream *stream,
			struct genai_recording **out_recording,
			struct genai_error *err);
int32_t cep_capture_abort(void *self, struct genai_stream *stream,
			  struct genai_error *err);
int32_t cep_launch_graph(void *self, struct genai_recording *recording,
			 struct genai_stream *stream, struct genai_error *err);
int32_t cep_graph_destroy(void *self, struct genai_recording *recording,
			  const struct genai_ticket *ticket,
			  struct genai_error *err);

extern const struct genai_stream_ops cep_stream_ops;
extern const struct genai_barrier_ops cep_barrier_ops;
extern const struct exec_module cep_executors;

/* ---- op_beside.c ---- */

/* The rates of the link and of the team beside it that are not known yet. */
int32_t cep_measure(struct cep *self, struct genai_error *err);

/* ---- plan.c, for messages ---- */

/* "node NAME (OP)" of a plan, by its number, into buf. */
void cep_node_text(struct cep *self, uint32_t plan, uint32_t node, char *buf,
		   size_t cap);

#endif
