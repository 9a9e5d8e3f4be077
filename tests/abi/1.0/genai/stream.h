/* genai/stream.h - interface of a stream runtime.
 * Owns: device memory, address ranges, in-order queues, copies, points on a
 * timeline, recordings.  Does not know: graphs, weights, tokens.
 * ABI: interface "genai.stream", version 1.  See docs/ABI.md before adding
 * anything.
 *
 * General rules.  self is what init returned.  Outputs are written only on
 * success.  err may be NULL.  No function blocks on the device: only the
 * barrier interface does.  Handles are made and destroyed by the same table.
 * Thread class "owner": one thread at a time per stream; memory functions are
 * "any".  While a recording is open on any stream, alloc, free, reserve,
 * unreserve, map, unmap, host_register and host_unregister are GENAI_E_STATE.
 *
 * Failure.  A unit that fails on the device poisons its stream: every later
 * unit is skipped, every point not yet reached fails with the first error
 * (GENAI_E_DEVICE or the unit's own code, with the name of the unit), and so
 * does every stream that waits on such a point, until reset(). */
#ifndef GENAI_STREAM_H
#define GENAI_STREAM_H

#include <genai/module.h>

#ifdef __cplusplus
extern "C" {
#endif

struct genai_stream; /* made by a module; opaque to all others */
struct genai_recording;

/* A point on a stream's timeline: reached when everything enqueued on the
 * stream before it is done.  Plain data, freely copied, never released.  A zero
 * point (stream NULL) is always reached. */
struct genai_point {
	struct genai_stream *stream;
	uint64_t value; /* grows along the stream; made while recording: a
			   number of the module's own, valid inside only */
};

#define GENAI_MEM_DEVICE 1u
#define GENAI_MEM_HOST_PINNED 2u

/* Memory.  addr is how units of work on the device name it; host is how the
 * host does (NULL for device memory). */
struct genai_mem {
	uint32_t size;
	uint32_t kind; /* GENAI_MEM_* */
	struct genai_range range;
	void *host;
};

/* Tags of the ledger. */
#define GENAI_TAG_WEIGHTS "weights"
#define GENAI_TAG_RING "ring"
#define GENAI_TAG_KV "kv"
#define GENAI_TAG_ACTIVATIONS "activations"
#define GENAI_TAG_WORKSPACE "workspace"
#define GENAI_TAG_GRAPH "graph"
#define GENAI_TAG_STAGING "staging"

#define GENAI_READ 1u
#define GENAI_WRITE 2u
#define GENAI_SPARSE 4u /* few of the bytes, chosen by data; for accounts */

/* Bytes that a unit of work touches. */
struct genai_access {
	genai_addr addr;
	uint64_t bytes;
	uint32_t flags; /* GENAI_READ | GENAI_WRITE, GENAI_SPARSE */
	uint32_t reserved;
};

/* A unit of work.  On a device whose caps lack NATIVE the stream runtime calls
 * fn in stream order; mem[i] is where the host finds accesses[i] (NULL when it
 * has 0 bytes), and nothing else of the device may be touched.  fn returns 0 or
 * a negative code with err filled.  On a NATIVE device fn is NULL: the executor
 * has enqueued on native(stream) itself, right before, and declares here what
 * that work touches.  If the call then fails, that work may run or not: the
 * caller's step has failed, and is drained and reset.
 * name is static or lives as long as ctx; node is the graph's node, for
 * messages.  ctx must stay valid until the unit is done, or, when it was
 * recorded, until the recording is destroyed. */
struct genai_work {
	uint32_t size;
	uint32_t node;
	const char *name;
	int32_t (*fn)(void *ctx, void *const *mem, struct genai_error *err);
	void *ctx;
};

#define GENAI_COPY_H2D 1u /* src is a host pointer, pinned or registered */
#define GENAI_COPY_D2H 2u /* dst is a host pointer, pinned or registered */
#define GENAI_COPY_D2D 3u

#define GENAI_STREAM_CAP_RECORD 1u /* capture_* and launch_graph work */
#define GENAI_STREAM_CAP_NATIVE 2u /* native() works; see genai_work */
#define GENAI_STREAM_CAP_IN_PLACE                                              \
	4u			    /* registered host memory can be read by   \
				       units of work at its device address */
#define GENAI_STREAM_CAP_RESERVE 8u /* reserve/map/unmap work */
#define GENAI_STREAM_CAP_SHARED                                                \
	16u /* host and device memory are the same:                            \
	       in place costs nothing */
#define GENAI_STREAM_CAP_RATES 32u  /* the rates of caps are known */
#define GENAI_STREAM_CAP_SIGNAL 64u /* launch_open and signal work */
#define GENAI_STREAM_CAP_STAMPS 128u /* stamp and elapsed work */

struct genai_stream_caps {
	uint32_t size;
	uint32_t flags;	      /* GENAI_STREAM_CAP_* */
	char device_kind[16]; /* "sim", "cuda", or a vendor's own */
	char device_name[64];
	uint64_t total_bytes; /* device memory; UINT64_MAX if not limited */
	uint64_t free_bytes;
	uint64_t alignment; /* of every allocation; a power of two */
	uint64_t granule;   /* of reserve/map; a power of two */
	/* RATES: what plans are made by.  A rate of 0 costs nothing. */
	uint64_t link_bytes_per_s;   /* of copies from host memory */
	uint64_t memory_bytes_per_s; /* of the device's own memory */
	uint64_t copy_latency_ns;    /* of every copy */
	uint64_t launch_ns;	     /* of every unit of work */
	/* Of host memory that units read where it lies; 0: as copies. */
	uint64_t in_place_bytes_per_s;
	/* Of weights that the host's cores multiply where they lie while copies
	 * go on, and what each node with such rows takes besides; 0: they do
	 * not.  Known without RATES, too, and link_bytes_per_s with it. */
	uint64_t host_bytes_per_s;
	uint64_t host_latency_ns;
	uint64_t host_link_bytes_per_s; /* of copies meanwhile; 0: as ever */
};

struct genai_stream_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t launches, copies;
	uint64_t h2d_bytes, d2h_bytes, d2d_bytes; /* replays included */
	uint64_t graph_launches;
	uint64_t simulated_ns; /* of a simulated clock; else 0 */
	uint64_t device_used_bytes; /* by the driver's own account, 0 unknown */
};

/* Of a recording: after begins when before is done. */
struct genai_edge {
	uint64_t before, after;
};
#define GENAI_EDGE_START UINT64_C(0) /* what its stream has before a launch */
#define GENAI_EDGE_END UINT64_MAX    /* and after it */

struct genai_stream_ops {
	uint32_t size;
	uint16_t version; /* 1 */
	uint16_t reserved;

	/* Describe the device.  Threads: any.  Required. */
	int32_t (*caps)(void *self, struct genai_stream_caps *out_caps,
			struct genai_error *err);

	/* Memory of a kind, aligned to caps.alignment, of at least so many
	 * bytes; contents are undefined.  Budgets count what was asked for.
	 * Units read and write pinned memory at its address, with IN_PLACE or
	 * without: that is about registered memory.
	 * bytes 0 is GENAI_E_INVAL.  Blocks: host.  Threads: any.
	 * Errors: GENAI_E_LIMIT out of device memory; GENAI_E_NOMEM. */
	int32_t (*alloc)(void *self, uint32_t kind, uint64_t bytes,
			 const char *tag, struct genai_mem *out_mem,
			 struct genai_error *err);
	/* Give back a whole allocation by its address.  ticket: a drain of at
	 * least its range; NULL is allowed only if no unit that touches it was
	 * ever enqueued (checked).  Memory named by a live recording is
	 * GENAI_E_BUSY.  Errors: GENAI_E_STATE for a stale or wrong ticket. */
	int32_t (*free)(void *self, genai_addr addr,
			const struct genai_ticket *ticket,
			struct genai_error *err);

	/* Address space without memory, in granules.  Optional (RESERVE). */
	int32_t (*reserve)(void *self, uint64_t bytes,
			   struct genai_range *out_range,
			   struct genai_error *err);
	/* Everything in it must be unmapped before. */
	int32_t (*unreserve)(void *self, struct genai_range range,
			     const struct genai_ticket *ticket,
			     struct genai_error *err);
	/* Put memory behind a part of a reserved range.  Needs no ticket and
	 * does not disturb queued work. */
	int32_t (*map)(void *self, struct genai_range range, const char *tag,
		       struct genai_error *err);
	int32_t (*unmap)(void *self, struct genai_range range,
			 const struct genai_ticket *ticket,
			 struct genai_error *err);

	/* Make host memory a source of copies and, with IN_PLACE, readable by
	 * units at out_mem->range.addr.  The memory is not written through the
	 * device.  A file mapping is allowed.  May refuse with a reason:
	 * GENAI_E_LIMIT (locked memory limit named), or, without IN_PLACE,
	 * GENAI_E_UNSUPPORTED.  Registering overlapping memory twice is
	 * GENAI_E_INVAL.  Blocks: host, may take 30-60 ms per GiB. */
	int32_t (*host_register)(void *self, const void *ptr, uint64_t bytes,
				 struct genai_mem *out_mem,
				 struct genai_error *err);
	int32_t (*host_unregister)(void *self, genai_addr addr,
				   const struct genai_ticket *ticket,
				   struct genai_error *err);

	/* An in-order queue, of which there are at least twelve at a time;
	 * beyond what there are: GENAI_E_LIMIT.  destroy: GENAI_E_BUSY unless idle. */
	int32_t (*create)(void *self, const char *name,
			  struct genai_stream **out_stream,
			  struct genai_error *err);
	int32_t (*destroy)(void *self, struct genai_stream *stream,
			   struct genai_error *err);

	/* A point after everything enqueued so far.  What a device puts into
	 * the stream for it is no unit of work. */
	int32_t (*mark)(void *self, struct genai_stream *stream,
			struct genai_point *out_point, struct genai_error *err);
	/* Order later work of stream after point, on the device.  Nothing is
	 * enqueued (nor recorded) if the stream is already ordered after it. */
	int32_t (*wait)(void *self, struct genai_stream *stream,
			struct genai_point point, struct genai_error *err);
	/* 0 reached, GENAI_PENDING, or the error that poisoned the stream.
	 * Callable any number of times.  Threads: any. */
	int32_t (*poll)(void *self, struct genai_point point,
			struct genai_error *err);

	/* Copy in stream order.  Host ends must lie in pinned or registered
	 * memory and stay unchanged (H2D) or unread (D2H) until a point after
	 * it is reached.  bytes 0 enqueues nothing. */
	int32_t (*copy)(void *self, struct genai_stream *stream, uint64_t dst,
			uint64_t src, uint64_t bytes, uint32_t kind,
			struct genai_error *err);
	/* Enqueue a unit of work; work and accesses are copied. */
	int32_t (*launch)(void *self, struct genai_stream *stream,
			  const struct genai_work *work,
			  const struct genai_access *accesses,
			  uint32_t n_accesses, struct genai_error *err);
	/* Run work->fn on the host, in stream order, off the caller's thread or
	 * inside a barrier, also on a NATIVE device and at every replay of a
	 * recording.  It finds pinned and registered memory in mem; device
	 * memory only where units are functions, else that is GENAI_E_INVAL.
	 * It may read files and take its time; it may not call any table, nor
	 * wait for a thread that does.  Skipped on a poisoned stream. */
	int32_t (*launch_host)(void *self, struct genai_stream *stream,
			       const struct genai_work *work,
			       const struct genai_access *accesses,
			       uint32_t n_accesses, struct genai_error *err);

	/* Record instead of run: everything enqueued on stream, and on streams
	 * joined to it by points, by whichever module, until capture_end.
	 * launch_graph then has the meaning of enqueuing it all again at the
	 * same addresses, on the stream that it names; another one than the
	 * recording was begun on may be refused (GENAI_E_INVAL).  Every joined
	 * stream must be joined back before capture_end.  A failed or spoilt
	 * recording leaves the streams usable; a capture_end that fails has
	 * ended it, there is nothing to abort.
	 * Optional as a group (RECORD).  Errors: GENAI_E_STATE (nested, not
	 * joined back, a call that cannot be recorded). */
	int32_t (*capture_begin)(void *self, struct genai_stream *stream,
				 struct genai_error *err);
	int32_t (*capture_end)(void *self, struct genai_stream *stream,
			       struct genai_recording **out_recording,
			       struct genai_error *err);
	/* Drop a recording that is open; never fails on the device's account. */
	int32_t (*capture_abort)(void *self, struct genai_stream *stream,
				 struct genai_error *err);
	int32_t (*launch_graph)(void *self, struct genai_recording *recording,
				struct genai_stream *stream,
				struct genai_error *err);
	int32_t (*graph_destroy)(void *self, struct genai_recording *recording,
				 const struct genai_ticket *ticket,
				 struct genai_error *err);

	/* Clear poison from every stream; ticket: a drain of everything. */
	int32_t (*reset)(void *self, const struct genai_ticket *ticket,
			 struct genai_error *err);
	/* The backend's own handle (CUstream), borrowed.  Optional (NATIVE). */
	int32_t (*native)(void *self, struct genai_stream *stream,
			  void **out_handle, struct genai_error *err);
	int32_t (*stats)(void *self, struct genai_stream_stats *out_stats,
			 struct genai_error *err);
	/* The order that a recording keeps, for the order check: what was made
	 * of the waits, not what they asked for.  Its units and copies are 1,
	 * 2, ... as they were enqueued; numbers beyond are the module's own.
	 * An edge that follows from others may be left out.  Up to cap edges
	 * are written, *out_n is how many there are.  Optional; GENAI_E_NOSYS
	 * is as if it were not there.  Threads: any. */
	int32_t (*graph_edges)(void *self, struct genai_recording *recording,
			       struct genai_edge *out_edges, uint64_t cap,
			       uint64_t *out_n, struct genai_error *err);
	/* A unit whose end, and so a point after it, a thread of the host
	 * signals.  As launch_host, but fn may return GENAI_PENDING: it has
	 * begun something, a read say, and handed it to a thread.  The stream
	 * stands at the unit until signal; others go on, and so do open units of
	 * theirs, at least one a stream.  mem stays valid as long.  An fn that
	 * returns 0 or an error has ended the unit itself; one that was skipped
	 * is not signalled.  In a recording each replay runs fn anew, and is
	 * signalled anew.  ctx names the unit: no two are open with the same
	 * one.  Optional as a group with signal (SIGNAL). */
	int32_t (*launch_open)(void *self, struct genai_stream *stream,
			       const struct genai_work *work,
			       const struct genai_access *accesses,
			       uint32_t n_accesses, struct genai_error *err);
	/* End the open unit of ctx: what the thread wrote is seen by whatever
	 * comes after it.  why NULL: it is done; else it failed with the code
	 * and the text of why, as if fn had.  Once for each that is open, also
	 * before fn has returned.  Threads: any but those that run fn.
	 * Blocks: host.  Errors: GENAI_E_STATE if none is open. */
	int32_t (*signal)(void *self, const void *ctx,
			  const struct genai_error *why,
			  struct genai_error *err);
	/* Note the device's time when the stream gets here: 1, 2, ... in the
	 * order of the calls, of which the last 16,384 at least are kept.  It
	 * is no unit of work, and may keep units from overlapping.  Not in a
	 * recording: GENAI_E_STATE.  Optional as a group with elapsed (STAMPS),
	 * for who wants to know where time goes. */
	int32_t (*stamp)(void *self, struct genai_stream *stream,
			 uint64_t *out_stamp, struct genai_error *err);
	/* From one stamp to another, of whichever streams; negative where that
	 * was earlier.  Threads: any.  Errors: GENAI_PENDING, one is not there
	 * yet; GENAI_E_NOTFOUND, one is not kept any more or was never made. */
	int32_t (*elapsed)(void *self, uint64_t from, uint64_t to,
			   int64_t *out_ns, struct genai_error *err);
};

/* A table with its self, as one module gets another's.  The functions are the
 * core's: they check, count and pass on. */
struct genai_stream_api {
	const struct genai_stream_ops *ops;
	void *self;
};

#ifdef __cplusplus
}
#endif
#endif
