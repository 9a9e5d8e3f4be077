/* genai/pager.h - interface of a pager: which weight bytes are on the device.
 * Owns: pages, placement, slots, the copies that bring weights in.
 * Does not know: operators, graphs, sampling.
 * ABI: interface "genai.pager", version 1.
 *
 * A page is a group of weight bytes that moves as one.  A visit is one use of
 * a part of a page; a sweep is the fixed order of visits that every step
 * repeats.  Life: open, add every page, seal, then steps
 *     step_begin, (acquire v, release v) for every visit in order, step_end
 * and close.  Every step acquires and releases every visit; several may be held
 * at once, in order.  A page stays while any of its visits is held.
 *
 * A step may be recorded and replayed instead.  A replay calls replay_begin and
 * nothing else: what the step did is in the recording.  Whoever submits steps,
 * replayed or not, orders each after the one before.
 *
 * A synchronous pager copies on the stream that acquire names, in order with
 * the kernels; an asynchronous one on a stream of its own, ordered by points
 * both ways.  That is the only difference between them.  Neither ever waits on
 * the host, and nothing is allocated, mapped or registered after seal.
 *
 * Threads: owner, one at a time per pager.  Nothing here blocks on the device;
 * seal may block on its own first copies through the barrier. */
#ifndef GENAI_PAGER_H
#define GENAI_PAGER_H

#include <genai/barrier.h>

#ifdef __cplusplus
extern "C" {
#endif

struct genai_pager;

/* Bytes of a page: bytes at offset place of the page come from src (host
 * memory, usually a file mapping; borrowed until close; must be readable for
 * src_bytes, and nothing around it).  fill NULL: they are copied as they are
 * (bytes == src_bytes). Else fill(ctx, dst, bytes, src, src_bytes) computes
 * them, once, at seal, into host memory of the pager; pure, any thread, and src
 * may be a copy of those bytes.
 * file: a descriptor of the file that has the bytes of src at file_offset, open
 * for reading and borrowed until close, for pagers that read rather than map;
 * its position and flags stay as they are.  0: of no file. */
struct genai_extent {
	uint32_t size;
	uint32_t file;
	const void *src;
	uint64_t src_bytes;
	uint64_t place; /* multiple of 16 */
	uint64_t bytes;
	void (*fill)(void *ctx, void *dst, uint64_t bytes, const void *src,
		     uint64_t src_bytes);
	void *ctx;
	uint64_t file_offset;
};

#define GENAI_PAGE_NO_STREAM                                                   \
	1u /* pinned or in place, never in the ring: read                      \
	      sparsely, or at unknown times */

/* Of the experts of a mixture, which a step uses if the data says so: for
 * pagers with GENAI_PAGER_CAP_EXPERT and the slot experts.  reserved is how
 * many there are, page the first of as many NO_STREAM pages of one size, one
 * for each expert; offset and bytes are those of the visit in every one of
 * them. */
#define GENAI_VISIT_EXPERT 1u
#define GENAI_VISIT_HOST                                                       \
	2u /* the executor has the host's cores multiply it if its page is     \
	      left to them: for pagers with GENAI_PAGER_CAP_HOST */

/* One entry of the sweep. */
struct genai_sweep_visit {
	uint32_t size;
	uint32_t page;
	uint64_t offset; /* of the visit's bytes in the page */
	uint64_t bytes;	 /* 0: a few of them, chosen by data */
	uint32_t flags;	 /* GENAI_VISIT_* */
	/* What a step does up to this visit and with it, after the visit
	 * before: units of work, and bytes of device memory beside the visits'
	 * own.  0 units: held together with the visit before.  If all visits
	 * have 0, nothing is known. */
	uint32_t units;
	uint64_t work_bytes;
	uint32_t units_after; /* of the last visit: to the step's end */
	uint32_t reserved;    /* VISIT_EXPERT: how many experts */
};

#define GENAI_PLACE_DEVICE 1u	/* pinned, or in a ring slot */
#define GENAI_PLACE_IN_PLACE 2u /* registered host memory */
#define GENAI_PLACE_HOST                                                       \
	3u /* the same, left to the host's cores; units                        \
	      of launch_host and kernels find it at addr */

#define GENAI_PLACE_TABLE 4u /* experts: addr is that of their table */

struct genai_place {
	uint32_t size;
	uint32_t kind; /* GENAI_PLACE_* */
	uint64_t addr; /* of the visit's first byte */
};

/* Where the experts of a visit lie.  A step finds one table from end to end:
 * what changes it, and the bytes behind it, is enqueued by step_begin (not
 * recording) and replay_begin on their stream, in order with the steps.  All of
 * this stays from seal to close but what is in the table. */
struct genai_experts {
	uint32_t size;
	uint32_t n;
	genai_addr table; /* n addresses: of the visit's bytes of each expert,
			     in one of the ranges */
	/* n numbers of 32 bits, which wrap: a step adds 1 to that of every
	 * expert whose weights it reads.  Visits of the same pages have the
	 * same ones; they are counted once. */
	genai_addr uses;
	struct genai_range device, host; /* bytes 0: none lies there */
};

#define GENAI_PAGER_CAP_STABLE                                                 \
	1u /* addresses are fixed from seal to close:                          \
	      acquire/release may be recorded */
#define GENAI_PAGER_CAP_IN_PLACE 2u
#define GENAI_PAGER_CAP_EXPERT 4u /* experts are pinned one by one */
#define GENAI_PAGER_CAP_ASYNC 8u
#define GENAI_PAGER_CAP_HOST                                                   \
	16u /* pages most of whose bytes are of VISIT_HOST may get PLACE_HOST  \
	     */

struct genai_pager_caps {
	uint32_t size;
	uint32_t flags;
	uint64_t page_bytes; /* that pages should have, about; 0: any */
};

/* What seal decided. */
struct genai_pager_report {
	uint32_t size;
	uint32_t n_pages;
	uint64_t total_bytes;	 /* all pages */
	uint64_t pinned_bytes;	 /* pages that stay on the device */
	uint64_t ring_bytes;	 /* all slots */
	uint64_t in_place_bytes; /* pages read where they lie */
	uint64_t streamed_bytes; /* copied to the device per sweep */
	uint64_t host_bytes;	 /* host memory of the pager: fills, staging */
	uint32_t ring_slots;
	uint32_t n_streamed; /* pages that go through the ring */
	uint64_t slot_bytes;
	/* What a step takes, by the rates of the device (without them in units
	 * that compare plans): as this pager copies; with copies between the
	 * kernels; and with everything on the device. */
	uint64_t step_ns, serial_ns, resident_ns;
	uint64_t read_in_place_bytes; /* of in_place_bytes: read by every step,
					 not gathered from */
	uint64_t beside_bytes;	      /* pages left to the host's cores */
	/* pages of experts, and those of them that are pinned */
	uint64_t expert_bytes, expert_pinned_bytes;
};

struct genai_pager_stats {
	uint32_t size;
	uint32_t reserved;
	uint64_t steps, acquires;
	uint64_t copies, copy_bytes; /* enqueued by the pager; replays of a
					recording are not seen here */
	/* Of experts, as far as counts have come back, which is a step late:
	 * how often one was used that was pinned, or not, the bytes of the
	 * latter, those that the best fixed choice would have missed, had all
	 * uses been known before; and how many were exchanged. */
	uint64_t expert_hits, expert_misses;
	uint64_t expert_miss_bytes, expert_least_bytes;
	uint64_t expert_exchanges;
};

struct genai_pager_ops {
	uint32_t size;
	uint16_t version; /* 1 */
	uint16_t reserved;

	int32_t (*caps)(void *self, struct genai_pager_caps *out_caps,
			struct genai_error *err);
	/* A pager bound to one device.  stream and barrier are borrowed until
	 * close. */
	int32_t (*open)(void *self, const struct genai_stream_api *stream,
			const struct genai_barrier_api *barrier,
			struct genai_pager **out_pager,
			struct genai_error *err);
	/* Give everything back.  ticket: a drain of everything. */
	int32_t (*close)(struct genai_pager *pager,
			 const struct genai_ticket *ticket,
			 struct genai_error *err);
	/* Describe the next page (0, 1, ...) of bytes bytes, at least one,
	 * with at least one extent.  Extents are copied.
	 * Errors: GENAI_E_STATE after seal; GENAI_E_INVAL for extents that
	 * overlap, leave the page, or are not aligned. */
	int32_t (*add)(struct genai_pager *pager, uint64_t bytes,
		       uint32_t flags, const struct genai_extent *extents,
		       uint32_t n_extents, struct genai_error *err);
	/* Fix the placement for a sweep and a budget in bytes (pinned + ring;
	 * UINT64_MAX: no limit), take all memory, load the pinned set.  Any
	 * budget is served: what does not fit is streamed or read in place.
	 * The visits of one page within a sweep are consecutive unless it is
	 * NO_STREAM; visits of NO_STREAM pages may lie between them.
	 * Blocks: host, until the pinned set is loaded.
	 * Errors: GENAI_E_LIMIT, _NOMEM, _DEVICE; the pager is then as before
	 * seal. */
	int32_t (*seal)(struct genai_pager *pager,
			const struct genai_sweep_visit *sweep,
			uint32_t n_visits, uint64_t budget_bytes,
			struct genai_pager_report *out_report,
			struct genai_error *err);
	/* Begin a sweep on stream.  recording: everything until step_end is
	 * being recorded. */
	int32_t (*step_begin)(struct genai_pager *pager,
			      struct genai_stream *stream, int32_t recording,
			      struct genai_error *err);
	/* Hold the visit: *out_place is valid for work of stream that is
	 * ordered after *out_ready.  Never allocates, maps or blocks.
	 * A page and the next one can always be held at once.
	 * Errors: GENAI_E_STATE out of order, or more pages held than slots. */
	int32_t (*acquire)(struct genai_pager *pager, uint32_t visit,
			   struct genai_stream *stream,
			   struct genai_place *out_place,
			   struct genai_point *out_ready,
			   struct genai_error *err);
	/* The visit's bytes may move once point is reached.  Double release is
	 * GENAI_E_STATE. */
	int32_t (*release)(struct genai_pager *pager, uint32_t visit,
			   struct genai_point point, struct genai_error *err);
	/* End the sweep.  *out_tail is the point of the last copy issued (for
	 * the next sweep): a recording must join it. */
	int32_t (*step_end)(struct genai_pager *pager,
			    struct genai_stream *stream,
			    struct genai_point *out_tail,
			    struct genai_error *err);
	/* After an error: forget the sweep and what the ring holds.  A step or
	 * replay_begin comes next.  ticket: a drain of everything. */
	int32_t (*reset)(struct genai_pager *pager,
			 const struct genai_ticket *ticket,
			 struct genai_error *err);
	int32_t (*stats)(struct genai_pager *pager,
			 struct genai_pager_stats *out_stats,
			 struct genai_error *err);
	/* Between steps: make ready, by work that is enqueued before this
	 * returns, what a step finds when it begins, and order stream after it.
	 * Called on the stream right before a step is recorded there, and
	 * before every replay.  Never allocates, maps or blocks. */
	int32_t (*replay_begin)(struct genai_pager *pager,
				struct genai_stream *stream,
				struct genai_error *err);
	/* Where the bytes of a visit stay from seal to close:
	 * GENAI_PLACE_DEVICE, _IN_PLACE or _HOST; _TABLE of experts.  They are
	 * never copied again, and any number of such visits may be held at
	 * once.  0: they come and go. */
	int32_t (*resident)(struct genai_pager *pager, uint32_t visit,
			    uint32_t *out_kind, struct genai_error *err);
	/* What seal would decide for the pages and the sweep; takes nothing,
	 * and forgets the pages: others may be added.  The core compares
	 * groupings by the times of the report: a pager that cannot tell them
	 * leaves this out.  Optional. */
	int32_t (*plan)(struct genai_pager *pager,
			const struct genai_sweep_visit *sweep,
			uint32_t n_visits, uint64_t budget_bytes,
			struct genai_pager_report *out_report,
			struct genai_error *err);
	/* Of a visit with VISIT_EXPERT, after seal: where its experts lie.
	 * Needed for CAP_EXPERT. */
	int32_t (*experts)(struct genai_pager *pager, uint32_t visit,
			   struct genai_experts *out_experts,
			   struct genai_error *err);
};

/* An open pager, as an executor gets it.  The functions are the core's. */
struct genai_pager_api {
	const struct genai_pager_ops *ops;
	struct genai_pager *pager;
	void *self; /* of the module: for caps */
};

#ifdef __cplusplus
}
#endif
#endif
