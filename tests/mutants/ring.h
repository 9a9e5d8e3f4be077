/* ring.h - what the parts of mutant_ring share.
 * ring.c        steps: acquire, release; the handshake
 * ring_place.c  pages: described, placed, copied */
#ifndef GENAI_TESTS_MUTANT_RING_H
#define GENAI_TESTS_MUTANT_RING_H

#include <pthread.h>
#include <stdbool.h>

#include <genai/pager.h>

#include "tests/mutants/mutant.h"

#define ALIGN UINT64_C(256)
#define MAX_SLOTS 64u

struct module {
	const struct genai_host *host;
	uint64_t slots, piece; /* bytes of one copy at most; 0: any */
};

enum placement { PINNED, STREAMED, IN_PLACE };

struct page {
	uint64_t bytes, at; /* at: in the host copy */
	uint32_t flags, n_extents;
	struct genai_extent *extents;
	enum placement placement;
	genai_addr addr;
	uint32_t index; /* among the streamed, in the order of the sweep */
	uint32_t first, last;
};

struct slot {
	genai_addr addr;
	uint32_t page, held;
	struct genai_point ready, free_at, first_free;
};

struct genai_pager {
	struct module *m;
	struct genai_stream_api stream;
	struct genai_barrier_api barrier;
	struct genai_stream *own;
	struct page *pages;
	uint32_t n_pages;
	struct genai_sweep_visit *sweep;
	uint8_t *held;
	uint32_t n_visits, next;
	bool is_sealed, in_step, primed, recording;
	struct genai_mem copy, device;
	struct slot slots[MAX_SLOTS], saved[MAX_SLOTS];
	uint32_t n_slots, n_streamed, *streamed;
	uint32_t resets, restores, nth;
	uint64_t last_bytes; /* of the slot's page before */
	pthread_t by;
	struct genai_stream *home;
	struct genai_point tail, saved_tail;
	struct genai_pager_report report;
	struct genai_pager_stats stats;
};

#define FAIL(p, err, code, ...)                                                \
	(ring_host(p)->error_set(ring_host(p)->ctx, (err), (code), __VA_ARGS__))

const struct genai_host *ring_host(const struct genai_pager *p);
void *ring_take(struct genai_pager *p, uint64_t bytes);
void ring_give(struct genai_pager *p, void *m);

/* ---- ring_place.c ---- */

int32_t ring_caps(void *self, struct genai_pager_caps *out,
		  struct genai_error *err);
int32_t ring_open(void *self, const struct genai_stream_api *stream,
		  const struct genai_barrier_api *barrier,
		  struct genai_pager **out_pager, struct genai_error *err);
int32_t ring_add(struct genai_pager *p, uint64_t bytes, uint32_t flags,
		 const struct genai_extent *extents, uint32_t n,
		 struct genai_error *err);
int32_t ring_seal(struct genai_pager *p, const struct genai_sweep_visit *sweep,
		  uint32_t n, uint64_t budget, struct genai_pager_report *out,
		  struct genai_error *err);
int32_t ring_unplace(struct genai_pager *p, const struct genai_ticket *ticket,
		     struct genai_error *err);
int32_t ring_copy_page(struct genai_pager *p, const struct page *pg,
		       genai_addr dst, struct genai_stream *s,
		       struct genai_error *err);
void *ring_sleep(void *arg);
#endif
