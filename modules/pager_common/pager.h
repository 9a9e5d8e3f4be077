/* pager.h - what pager_sync and pager_async share: all but the stream that
 * copies go on.
 * choose.c  which pages are pinned, streamed, read in place
 * cost.c    what a step takes then
 * plan.c    the two together, and the report
 * place.c   the memory for it
 * experts.c pages of experts: their table, which are pinned by use
 * pager.c   the table: steps, acquire, release
 * module.c  keys and handshake, compiled once per module with PAGER_ASYNC */
#ifndef PAGER_COMMON_PAGER_H
#define PAGER_COMMON_PAGER_H

#include <stdbool.h>
#include <genai/pager.h>

#define PAGER_ALIGN 16		       /* of extents in a page */
#define PAGER_MOST (UINT64_C(1) << 62) /* bytes of all pages */

enum pager_placement {
	PAGER_PINNED,
	PAGER_STREAMED,
	PAGER_IN_PLACE,
	PAGER_HOST /* as in place, but the host's cores multiply it */
};

struct pager_page {
	uint64_t bytes;
	uint32_t flags;
	uint32_t n_extents;
	struct genai_extent *extents;
	uint32_t found; /* extent: place.c */
	enum pager_placement placement;
	genai_addr addr;       /* pinned */
	uint32_t slot;	       /* streamed */
	uint32_t stream_index; /* streamed: its place among the streamed */
	uint32_t first, last;  /* its visits in the sweep */
	uint32_t visits;       /* how many */
	bool sparse;	       /* no visit reads more than a few bytes */
	uint64_t host_bytes;   /* of visits that may be left to the host */
	struct genai_mem copy; /* host memory of its own, if any: in a block */
	bool own;	       /* needs it */
	uint32_t expert;       /* 1 + which one of its bank; 0: of none */
};

struct pager_slot {
	genai_addr addr;
	uint32_t page;		    /* loaded or being loaded; GENAI_NONE */
	uint32_t held;		    /* visits held */
	struct genai_point ready;   /* of its copies */
	struct genai_point free_at; /* last release */
};

struct pager_module {
	const struct genai_host *host;
	uint64_t ring_slots, page_bytes; /* 0: auto */
	uint64_t exchange;		 /* experts a step, or PAGER_AUTO */
	bool async;
};

#define PAGER_AUTO UINT64_MAX
#define PAGER_MOST_SWAPS 64u

struct pager_experts;

/* An expert moves into the slot of another one. */
struct pager_swap {
	uint32_t in, out;
};

struct genai_pager {
	struct pager_module *m;
	struct genai_stream_api stream;
	struct genai_barrier_api barrier;
	struct genai_stream_caps caps;
	struct pager_page *pages;
	uint32_t n_pages, cap_pages;
	uint64_t bytes; /* of all pages */
	struct genai_sweep_visit *sweep;
	uint8_t *held;	   /* per visit */
	genai_addr *alias; /* per visit: where it is read in place */
	uint32_t n_sweep;
	bool sealed;

	struct genai_mem pinned, ring;
	struct pager_experts *experts;	     /* NULL: none */
	struct genai_range slots_of_experts; /* those that are pinned */
	struct genai_mem blocks[2]; /* copies: needed; not to be registered */
	struct genai_mem bounce;    /* while the pinned set is loaded */
	struct genai_mem *registered;
	uint32_t n_registered;
	struct pager_slot *slots, *saved; /* saved: R3 */
	uint32_t n_slots;
	uint32_t *streamed; /* page of each streamed index */
	uint32_t n_streamed;
	struct genai_pager_report report;

	struct genai_stream *copies; /* async */
	struct genai_point tail, saved_tail;
	bool primed, in_step, recording;
	uint32_t next_visit;
	struct genai_pager_stats stats;
};

#define PAGER_FAIL(p, err, code, ...)                                          \
	((p)->m->host->error_set((p)->m->host->ctx, (err), (code), __VA_ARGS__))

/* What a page takes of the device: large ones begin at lines of the cache, of
 * small ones that would waste too much. */
#define PAGER_LARGE (UINT64_C(64) << 10)

/* Is it read from where it lies in the host's memory? */
static inline bool pager_stays_there(const struct pager_page *pg)
{
	return pg->placement == PAGER_IN_PLACE || pg->placement == PAGER_HOST;
}

static inline uint64_t pager_up(uint64_t n)
{
	uint64_t to = n < PAGER_LARGE ? PAGER_ALIGN : 256;

	return (n + to - 1) / to * to;
}

static inline double pager_max(double a, double b)
{
	return a > b ? a : b;
}

static inline double pager_min(double a, double b)
{
	return a < b ? a : b;
}

/* choose.c: sets every page's placement. */
struct pager_choice {
	uint32_t slots;
	uint64_t slot_bytes;
	uint64_t pinned;
	uint32_t n_streamed;
	uint64_t tables; /* of experts, behind what is pinned */
	bool host;	 /* a page is left to the host's cores */
	/* what a step takes: as this pager copies, and with copies between the
	 * kernels */
	double step_ns, serial_ns;
};

/* cost.c: ns a byte, ns a copy, ns a unit of work. */
struct pager_rates {
	double link, memory, in_place, latency, launch;
	double host, host_latency; /* host 0: its cores multiply nothing */
	double busy_link;	   /* while they do */
};

/* A page is used: work without weights, then with them. */
struct pager_event {
	uint32_t page;
	bool first, last; /* of the sweep's uses of the page */
	bool begins;	  /* a node whose first weights they are */
	double before, inside;
	uint64_t bytes;
};

#define PAGER_MANY 20000u /* events: fewer plans are tried */
#define PAGER_MAX_SLOTS 64u

/* What plans are made of. */
struct pager_plan {
	struct pager_rates rates;
	struct pager_event *events;
	uint32_t n_events;
	uint32_t held;		   /* pages that are held at once */
	uint64_t read_bytes;	   /* pages that a step reads all of */
	uint64_t table_bytes;	   /* of experts */
	double resident_ns, after; /* after: from the last event on */
	void **by_size;		   /* pages, largest first */
	uint32_t *streamed;	   /* page of each streamed index */
	double *ready;		   /* of each slot */
};

static inline double pager_event_ns(const struct pager_plan *plan,
				    const struct pager_event *e)
{
	return e->before + e->inside + (double)e->bytes * plan->rates.memory;
}

void pager_rates(const struct genai_pager *p, struct pager_rates *out_rates);
uint32_t pager_events(const struct genai_pager *p,
		      const struct genai_sweep_visit *sweep, uint32_t n,
		      const struct pager_rates *r, struct pager_event *out);
uint32_t pager_held(const struct genai_pager *p,
		    const struct genai_sweep_visit *sweep, uint32_t n);
/* Sets the choice's times. */
void pager_step_ns(const struct genai_pager *p, const struct pager_plan *plan,
		   struct pager_choice *c);
void pager_choose(struct genai_pager *p, const struct pager_plan *plan,
		  uint64_t budget, struct pager_choice *c);
/* plan.c: choose, and report what was chosen; nothing else is changed. */
int32_t pager_plan(struct genai_pager *p, const struct genai_sweep_visit *sweep,
		   uint32_t n, uint64_t budget, struct pager_choice *c,
		   struct genai_error *err);

void *pager_zalloc(struct genai_pager *p, uint64_t bytes);
/* Sort pointers; before says whether a comes before b. */
typedef bool pager_before(const void *a, const void *b);
void pager_sort(void **v, uint32_t n, pager_before *before);

/* place.c */
int32_t pager_place(struct genai_pager *p, uint64_t budget,
		    struct genai_error *err);
/* Give back what pager_place took; ticket NULL: nothing was enqueued. */
int32_t pager_unplace(struct genai_pager *p, const struct genai_ticket *ticket,
		      struct genai_error *err);
/* Enqueue the copies of a page to dst on stream. */
int32_t pager_load(struct genai_pager *p, const struct pager_page *page,
		   genai_addr dst, struct genai_stream *stream,
		   struct genai_error *err);

/* Give memory back, and forget it. */
int32_t pager_give(struct genai_pager *p, struct genai_mem *m,
		   const struct genai_ticket *ticket, struct genai_error *err);
/* Where the device finds a visit's bytes of a page in the host's memory. */
genai_addr pager_home(const struct genai_pager *p,
		      const struct genai_sweep_visit *v, uint32_t page);

/* experts.c */
/* Visits of the same experts: the pages of a node. */
bool pager_same_bank(const struct genai_sweep_visit *a,
		     const struct genai_sweep_visit *b);
int32_t pager_check_experts(struct genai_pager *p,
			    const struct genai_sweep_visit *sweep,
			    uint32_t visit, struct genai_error *err);
/* Of tables and counts on the device; 0: no experts. */
uint64_t pager_table_bytes(const struct genai_sweep_visit *sweep, uint32_t n);
/* table_at: where in what is pinned. */
#define PAGER_NOWHERE UINT64_MAX
int32_t pager_experts_open(struct genai_pager *p, uint64_t table_at,
			   struct genai_error *err);
int32_t pager_experts_load(struct genai_pager *p, struct genai_stream *s,
			   struct genai_error *err);
int32_t pager_experts_close(struct genai_pager *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err);
int32_t pager_experts_of(struct genai_pager *p, uint32_t visit,
			 struct genai_experts *out, struct genai_error *err);
genai_addr pager_experts_table(const struct genai_pager *p, uint32_t visit);
/* Between two steps, on their stream. */
int32_t pager_experts_turn(struct genai_pager *p, struct genai_stream *stream,
			   struct genai_error *err);
void pager_experts_reset(struct genai_pager *p);
void pager_experts_stats(struct genai_pager *p);

extern const struct genai_pager_ops pager_table;

#endif
