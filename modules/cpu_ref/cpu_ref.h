/* cpu_ref.h - the module's parts: a simulated device and two executors.
 * device.c   address space, allocations, registered memory
 * queue.c    streams, enqueuing, points
 * record.c   recordings
 * run.c      the scheduler, and running what it chose
 * threads.c  schedule = threads: a real thread per stream
 * barrier.c  the two calls that wait
 * clock.c    time that is counted, not waited for
 * faults.c   failures by number
 * trace.c    the order, printed
 * plan.c     a graph's nodes prepared, and folded; the executors' tables
 * exec.c     units of work
 * ../exec_common  the rest of the executors
 * op.h       operators */
#ifndef CREF_CPU_REF_H
#define CREF_CPU_REF_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <genai/executor.h>

#include "modules/cpu_ref/op.h"
#include "modules/exec_common/exec.h"

#define CREF_MAX_STREAMS 16
#define CREF_MAX_ACCESS 64

/* A mapped range of the device's address space.  Device addresses are host
 * addresses with one bit flipped: never valid on the host, cheap to translate.
 */
#define CREF_ADDR_BIT (UINT64_C(1) << 62)

enum cref_region_kind { CREF_ALLOC, CREF_PINNED, CREF_REGISTERED, CREF_MAPPED };

struct cref_region {
	genai_addr addr;
	uint64_t bytes;
	enum cref_region_kind kind;
	uint32_t recordings; /* live recordings that name it */
};

enum cref_op_kind { CREF_WAIT, CREF_COPY, CREF_UNIT, CREF_GRAPH, CREF_STAMP };

/* A queued operation, addresses resolved. */
struct cref_queued {
	enum cref_op_kind kind;
	uint32_t node;
	uint32_t n_mem;
	uint32_t copy_kind;
	uint64_t seq; /* order of enqueuing over all streams */
	const char *name;
	int32_t (*fn)(void *ctx, void *const *mem, struct genai_error *err);
	void *ctx;
	bool may_stay;		  /* fn may leave it open, for a signal */
	struct genai_stream *on;  /* recording: the stream it was recorded on */
	struct genai_point point; /* WAIT */
	struct genai_recording *graph;
	uint64_t bytes;			/* STAMP: its number */
	uint64_t mem_bytes, link_bytes; /* what the clock charges a UNIT for */
	void *mem[CREF_MAX_ACCESS];	/* COPY: dst, src */
};

/* The value of a point made while recording: which recording, and how many
 * operations of it were on the stream. */
#define CREF_IN_RECORDING (UINT64_C(1) << 63)
#define CREF_RECORDED(serial, n)                                               \
	(CREF_IN_RECORDING | (uint64_t)(serial) << 40 | (n))
#define CREF_RECORDED_COUNT(value) ((value) & ((UINT64_C(1) << 40) - 1))
#define CREF_SERIALS (1u << 23)

/* A unit that began and is ended by signal. */
enum cref_open_state { CREF_NOT_OPEN, CREF_BEGINS, CREF_OPEN, CREF_SIGNALLED };
struct cref_open {
	enum cref_open_state state;
	const void *ctx;
	struct genai_error error; /* code 0: done */
};

struct genai_stream {
	struct cref_device *dev;
	uint32_t id;
	char name[32];
	struct cref_queued *ops; /* ring, capacity a power of two */
	uint64_t cap;
	uint64_t tail;			  /* operations ever enqueued */
	_Atomic uint64_t done;		  /* operations ever finished */
	uint64_t known[CREF_MAX_STREAMS]; /* ordered after these points */
	bool poisoned;
	uint64_t poison_at; /* the operation that failed */
	struct genai_error error;
	struct genai_recording *rec; /* open recording it is part of */
	uint32_t recordings;	     /* live ones that use it */
	struct cref_open open;	     /* its head, if that may stay open */
	uint64_t graph_at;	     /* where a recording at its head is */
	/* schedule = threads */
	void *thread;
	bool stop;
	/* clock = simulated: when the last operation ends, and the last
	 * CREF_ENDS ones, by their index */
	uint64_t time;
	uint64_t *ends;
};
#define CREF_ENDS (1u << 15)

/* What a stream is ordered after from its at-th recorded operation on. */
struct cref_join {
	uint32_t stream;
	uint64_t at;
	uint64_t known[CREF_MAX_STREAMS];
};

struct genai_recording {
	struct cref_device *dev;
	struct genai_stream *origin;
	struct cref_queued *ops;
	uint64_t n_ops, cap;
	bool joined[CREF_MAX_STREAMS];
	uint64_t count[CREF_MAX_STREAMS]; /* operations recorded per stream */
	struct cref_join *joins;	  /* in the order of recording */
	uint64_t n_joins, cap_joins;
	uint32_t serial;
	int32_t spoilt;	     /* first error, 0 if none */
	genai_addr *regions; /* of every access, sorted, unique */
	uint32_t n_regions, cap_regions;
	uint64_t queued; /* launches not finished */
};

enum cref_schedule {
	CREF_INORDER,
	CREF_THREADS,
	CREF_LATE,
	CREF_EARLY,
	CREF_RANDOM
};

/* clock.c.  A rate of 0 costs nothing. */
struct cref_clock {
	bool on;
	uint64_t link_bytes_per_s, in_place_bytes_per_s, memory_bytes_per_s;
	uint64_t copy_latency_ns, launch_ns;
	uint64_t link_free[2]; /* when the engine to and from the device is */
	uint64_t host;	       /* the host's time: of what it waited for */
	uint64_t makespan;
	uint64_t copies; /* enqueued so far, for fault = slow:N */
};

/* faults.c */
enum cref_fault_kind {
	CREF_NO_FAULT,
	CREF_FAULT_OOM,
	CREF_FAULT_COPY,
	CREF_FAULT_LOST,
	CREF_FAULT_SLOW
};
struct cref_fault {
	enum cref_fault_kind kind;
	uint64_t at; /* 1: the first */
	uint64_t allocs, copies, units;
	bool lost;
};

#define CREF_QUARANTINE 64

/* clock.c: the time of a stamp, kept until another has its place. */
#define CREF_STAMPS (1u << 14)
struct cref_stamp {
	uint64_t number, ns;
	bool there;
};

struct cref_device {
	struct exec_shared exec; /* first: the plans */
	const struct genai_host *host;
	pthread_mutex_t lock;	     /* everything below */
	pthread_cond_t moved;	     /* threads: enqueued, done or stopped */
	struct cref_region *regions; /* sorted by addr */
	uint32_t n_regions, cap_regions;
	struct genai_range reserved[16];
	uint32_t n_reserved;
	struct genai_stream *streams[CREF_MAX_STREAMS];
	uint64_t seq;
	enum cref_schedule schedule;
	uint64_t random;
	uint32_t n_recording; /* open recordings */
	uint32_t serial;      /* of the last recording */
	uint64_t used_bytes, limit_bytes;
	bool poison; /* fill new memory, and do not reuse freed addresses */
	struct genai_range freed[CREF_QUARANTINE]; /* ring */
	uint32_t n_freed;
	struct cref_clock clock;
	struct cref_fault fault;
	FILE *trace;
	uint64_t traced; /* lines */
	struct genai_stream_stats stats;
	struct cref_pool *pool;
	struct cref_stamp *stamps; /* CREF_STAMPS, from the first on */
	uint64_t n_stamps;
};

extern const struct genai_stream_ops cref_stream_ops;
extern const struct genai_barrier_ops cref_barrier_ops;
extern const struct exec_module cref_executors;

/* The tables get the module's self, which is the device. */
#define CREF_FAIL(dev, err, code, ...)                                         \
	((dev)->host->error_set((dev)->host->ctx, (err), (code), __VA_ARGS__))

/* device.c; the lock is held. */
struct cref_region *cref_region_find(struct cref_device *dev, genai_addr addr,
				     uint64_t bytes);
/* True if host memory [p, p + bytes) is pinned or registered. */
bool cref_host_known(struct cref_device *dev, uint64_t p, uint64_t bytes);
static inline void *cref_host(genai_addr addr)
{
	return (void *)(uintptr_t)(addr ^ CREF_ADDR_BIT);
}
void cref_device_free_all(struct cref_device *dev);
int32_t cref_mem_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out_mem,
		       struct genai_error *err);
int32_t cref_mem_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err);
int32_t cref_mem_reserve(void *self, uint64_t bytes,
			 struct genai_range *out_range,
			 struct genai_error *err);
int32_t cref_mem_unreserve(void *self, struct genai_range range,
			   const struct genai_ticket *ticket,
			   struct genai_error *err);
int32_t cref_mem_map(void *self, struct genai_range range, const char *tag,
		     struct genai_error *err);
int32_t cref_mem_unmap(void *self, struct genai_range range,
		       const struct genai_ticket *ticket,
		       struct genai_error *err);
int32_t cref_mem_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out_mem, struct genai_error *err);
int32_t cref_mem_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err);

/* queue.c; the lock is held. */
struct cref_queued *cref_op_slot(const struct genai_stream *s, uint64_t i);
/* Room for one more operation, in the stream's queue or its recording. */
int32_t cref_op_next(struct genai_stream *s, struct cref_queued **out_op,
		     struct genai_error *err);
void cref_op_commit(struct genai_stream *s, struct cref_queued *op);
static inline uint64_t cref_done(const struct genai_stream *s)
{
	return atomic_load_explicit(&s->done, memory_order_acquire);
}
void cref_count_copy(struct cref_device *dev, uint32_t kind, uint64_t bytes);

/* record.c; the lock is held. */
int32_t cref_record_room(struct genai_recording *rec, struct genai_error *err);
/* Remember that a recording names the region. */
int32_t cref_record_region(struct genai_recording *rec, genai_addr addr,
			   struct genai_error *err);
int32_t cref_record_wait(struct genai_stream *s, struct genai_point p,
			 struct genai_error *err);
int32_t cref_capture_begin(void *self, struct genai_stream *s,
			   struct genai_error *err);
int32_t cref_capture_end(void *self, struct genai_stream *s,
			 struct genai_recording **out_recording,
			 struct genai_error *err);
int32_t cref_capture_abort(void *self, struct genai_stream *s,
			   struct genai_error *err);
int32_t cref_launch_graph(void *self, struct genai_recording *rec,
			  struct genai_stream *s, struct genai_error *err);
int32_t cref_graph_edges(void *self, struct genai_recording *rec,
			 struct genai_edge *out_edges, uint64_t cap,
			 uint64_t *out_n, struct genai_error *err);
int32_t cref_graph_destroy(void *self, struct genai_recording *rec,
			   const struct genai_ticket *ticket,
			   struct genai_error *err);

/* run.c; the lock is held.  Run one ready operation; false if none is. */
bool cref_run_one(struct cref_device *dev);
/* The device goes on while the host goes on: what the schedule runs beyond what
 * the host waited for. */
void cref_run_on(struct cref_device *dev);
bool cref_ready(const struct genai_stream *s);
/* Is a unit open that only a signal ends? */
bool cref_any_open(const struct cref_device *dev);
int32_t cref_signal(void *self, const void *ctx, const struct genai_error *why,
		    struct genai_error *err);
void cref_run_head(struct cref_device *dev, struct genai_stream *s);
/* 0 reached, GENAI_PENDING, or the error. */
int32_t cref_point_state(const struct genai_point *point,
			 struct genai_error *err);

/* threads.c; the lock is held, except by start and stop. */
int32_t cref_thread_start(struct genai_stream *s, struct genai_error *err);
void cref_thread_stop(struct genai_stream *s);
void cref_thread_wake(struct cref_device *dev);
/* With any schedule.  Wait until something moved; false once deadline_ns has
 * passed. */
bool cref_thread_wait(struct cref_device *dev, uint64_t deadline_ns);

/* clock.c; the lock is held. */
void cref_clock_enqueued(struct genai_stream *s, const struct cref_queued *op);
/* The host has waited for a point (NULL: for everything). */
void cref_clock_waited(struct cref_device *dev, const struct genai_point *p);
int32_t cref_stamp(void *self, struct genai_stream *stream, uint64_t *out_stamp,
		   struct genai_error *err);
int32_t cref_elapsed(void *self, uint64_t from, uint64_t to, int64_t *out_ns,
		     struct genai_error *err);
/* The stream is there. */
void cref_stamp_run(struct cref_device *dev, const struct cref_queued *op);
/* What the clock charges an access for. */
void cref_clock_access(struct cref_queued *op, const struct genai_access *acc,
		       const struct cref_region *r);

/* faults.c; the lock is held. */
int32_t cref_fault_parse(struct cref_device *dev, const char *text,
			 struct genai_error *err);
int32_t cref_fault_alloc(struct cref_device *dev, uint64_t bytes,
			 struct genai_error *err);
int32_t cref_fault_run(struct cref_device *dev, const struct cref_queued *op,
		       struct genai_error *err);

/* trace.c */
int32_t cref_trace_open(struct cref_device *dev, const char *path,
			struct genai_error *err);
void cref_trace_op(struct cref_device *dev, const struct genai_stream *s,
		   const struct cref_queued *op);
void cref_trace_close(struct cref_device *dev);

/* pool.c (kernel engineer's): see op.h for cref_pool_run. */
struct cref_pool *cref_pool_create(
	uint32_t threads,
	int32_t (*create)(void *host, const char *name, void (*fn)(void *),
			  void *arg, void **out_thread),
	void (*join)(void *host, void *thread), void *host);
void cref_pool_destroy(struct cref_pool *pool);

#endif
