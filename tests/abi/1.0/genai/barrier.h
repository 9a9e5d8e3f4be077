/* genai/barrier.h - the only calls that block on the device.
 * Owns: waiting on the host.  Does not know: why somebody waits.
 * ABI: interface "genai.barrier", version 1.
 *
 * Neither call may be deferred, batched or turned into a weaker one; there is
 * no flag for that and there will be none.  Inside a recording both are
 * GENAI_E_STATE.  deadline_ns is on the host table's clock; UINT64_MAX waits as
 * long as it takes; passed = GENAI_E_DEADLINE, nothing changed. */
#ifndef GENAI_BARRIER_H
#define GENAI_BARRIER_H

#include <genai/stream.h>

#ifdef __cplusplus
extern "C" {
#endif

struct genai_barrier_ops {
	uint32_t size;
	uint16_t version; /* 1 */
	uint16_t reserved;

	/* Return when every point is reached; the host then sees all writes
	 * before them.  The error of a poisoned stream is returned, with the
	 * name of the unit and node that failed first.
	 * Threads: any.  Blocks: bounded by deadline_ns. */
	int32_t (*host_read)(void *self, const struct genai_point *points,
			     uint32_t n_points, uint64_t deadline_ns,
			     struct genai_error *err);
	/* Return when no submitted, queued or replaying work of this process on
	 * the device can touch the range ({0, GENAI_RANGE_ALL_BYTES}: any
	 * address).  Succeeds on poisoned streams too (skipped work touches
	 * nothing).  The module leaves out_ticket alone; the core mints it, and
	 * any enqueue on the device that is open meanwhile, or begins later,
	 * makes it stale.  A submit is such an enqueue, from call to return.
	 * Threads: any.  Blocks: bounded by deadline_ns. */
	int32_t (*drain)(void *self, struct genai_range range,
			 uint64_t deadline_ns, struct genai_ticket *out_ticket,
			 struct genai_error *err);
};

struct genai_barrier_api {
	const struct genai_barrier_ops *ops;
	void *self;
};

#ifdef __cplusplus
}
#endif
#endif
