/* book.h - a pager under test: random pages with known bytes, steps over them,
 * and a tap between the pager and the device that counts and breaks things. */
#ifndef GENAI_CONFORM_BOOK_H
#define GENAI_CONFORM_BOOK_H

#include "tests/conform/conform.h"

#define BOOK_MAX_PAGES 320
#define BOOK_MAX_EXTENTS 60
#define BOOK_MAX_VISITS 1024
#define BOOK_MAX_SEEN 8192

/* The fill of an extent: how often it was called, and for the bytes that the
 * extent has? */
struct book_fill {
	uint64_t bytes, src_bytes;
	uint32_t calls, others;
};

struct book_page {
	uint64_t bytes;
	uint32_t flags, n_extents;
	struct genai_extent extents[BOOK_MAX_EXTENTS];
	struct book_fill fills[BOOK_MAX_EXTENTS];
	unsigned char *content; /* what the device shall see */
};

/* A visit as a unit of work checks it. */
struct book_visit {
	const unsigned char *want;
	uint64_t bytes;
	uint32_t number, page;
	uint64_t offset; /* of the visit in its page */
	uint32_t place;	 /* GENAI_PLACE_* of the last acquire */
	genai_addr addr; /* of the first acquire; 0: none yet */
	uint32_t kind;
};

struct book {
	struct cf_rt r;
	struct genai_stream_ops tapped;
	struct genai_barrier_ops tapped_barrier;
	struct genai_stream_api stream;
	struct genai_barrier_api barrier;
	const struct genai_pager_ops *ops;
	struct genai_pager *p;
	struct genai_stream *s; /* of the steps */
	uint64_t seed;
	unsigned char *source;
	uint64_t source_bytes, total;
	bool is_mapped; /* source is a mapping of its own */
	bool has_units; /* the sweep says what a step does */
	uint32_t n_pages, n_visits;
	struct book_page pages[BOOK_MAX_PAGES];
	struct genai_sweep_visit sweep[BOOK_MAX_VISITS];
	struct book_visit visits[BOOK_MAX_VISITS];
	uint32_t turn[BOOK_MAX_VISITS]; /* grows from page to page */
	struct genai_pager_report report;
	/* A NATIVE device runs no functions: copies of what was seen, compared
	 * later. */
	struct genai_mem log, log_host;
	uint64_t log_used;
	struct {
		uint32_t visit;
		bool waits; /* recorded, not replayed yet */
		uint64_t at;
	} seen[BOOK_MAX_SEEN];
	uint32_t n_seen, before; /* before: the last step */
	bool recording;
	bool stable; /* addresses may not change */
};

/* What the tap saw and shall break; set before the call in question. */
struct book_tap {
	uint64_t device_bytes; /* allocated now, as asked for */
	uint64_t device_peak;  /* at most */
	uint32_t holds;	       /* memory, registrations, streams held now */
	uint32_t takes;	       /* calls for memory or streams */
	uint32_t barriers;     /* calls of the barrier */
	uint32_t copies;
	uint64_t copy_bytes;
	struct genai_stream *steps; /* that acquire names */
	uint32_t copies_on_steps;   /* of the copies, on that stream */
	uint32_t fail_take;	    /* the n-th of takes fails; 0: none */
	uint32_t fail_copy;
	uint32_t fail_call; /* of copies, marks, waits, barriers together */
	uint32_t calls;	    /* of those */
	uint32_t polls;
	bool refuse_register;
};
extern struct book_tap book_tap;
/* Put the tap in front of the device of b->r. */
void book_tap_open(struct book *b);

/* Make n_pages random pages; nothing is opened yet. */
void book_make(struct book *b, uint64_t seed, uint32_t n_pages);
/* Of every shape, the first n_large of them of 2 MiB and more; around each
 * source lies memory that cannot be read. */
void book_make_wide(struct book *b, uint64_t seed, uint32_t n_pages,
		    uint32_t n_large);
/* All alike, one extent each, visited so many times in a row: as many slots as
 * may be. */
void book_make_even(struct book *b, uint64_t seed, uint32_t n_pages,
		    uint32_t times);
void book_make_content(struct book_page *pg);
/* The fill of some extents; ctx is a book_fill. */
void book_invert(void *ctx, void *dst, uint64_t bytes, const void *src,
		 uint64_t src_bytes);
/* A runtime and a stream. */
void book_start(struct book *b, const char *const *sets);
void book_stop(struct book *b);
/* A runtime, a pager, and every page added. */
void book_open(struct book *b, const char *const *sets);
void book_add_all(struct book *b);
int32_t book_seal(struct book *b, uint64_t budget, struct genai_error *err);
/* All of it, with a budget under which pages are streamed, if there is one. */
void book_open_sealed(struct book *b, uint64_t seed, uint32_t n_pages,
		      const char *const *sets);
/* One sweep: acquire, check by a unit of work, release, in a random but legal
 * order; recording as step_begin wants it.  The first visit that may not be
 * acquired ends it with the error. */
int32_t book_step(struct book *b, int32_t recording, struct genai_error *err);
/* The recordings so far have run; the last one never will. */
void book_replayed(struct book *b);
void book_aborted(struct book *b);
/* Wait; the test fails if a unit saw wrong bytes. */
void book_check(struct book *b, const char *when);
/* What was seen so far, checked already, need not be kept. */
void book_forget(struct book *b);
void book_close(struct book *b); /* with a ticket; checks what is left */
void book_free(struct book *b);
/* Enqueue a unit that checks the visit at its place. */
void book_use(struct book *b, uint32_t visit, const struct genai_place *place);

#endif
