/* pages.h - the weights that a plan visits, grouped into pages.
 * Owns: what goes into one page, where large weights are cut into row tiles,
 * the sweep.  Does not know: budgets, which grouping is good. */
#ifndef GENAI_CORE_MODEL_PAGES_H
#define GENAI_CORE_MODEL_PAGES_H

#include "core/model/paging.h"

/* One way to group them.  fill: matrices are cut where a page is full; else
 * only if they are larger than one, and evenly.  parts: this share of those
 * that are filled only as parts is cut too, the others are pages of their own.
 * apart: of a tensor that is gathered, too, the bytes that are read go apart,
 * so that they can be cut; else they are one page that is not streamed. */
struct genai_grouping {
	uint64_t bytes; /* of a page, about */
	bool fill, apart;
	double parts;
};

struct genai_pages {
	struct genai_paging *p;
	const struct genai_graph *graph;
	const struct genai_visit *visits;
	uint32_t n_visits;
	bool in_place;	/* all stays in place: every visit a page of its own */
	bool banks;	/* experts have a page each */
	bool has_rows;	/* some tensors are cut wherever they are too large */
	bool has_parts; /* some only where that is better: filled as parts */
	bool has_tied;	/* some are gathered and read */
	/* per tensor: visits that read all of it; whether it is gathered (2: by
	 * several), or held while tiles go by; its page, if it has one of its
	 * own */
	uint32_t *reads;
	uint8_t *gathered, *held;
	uint32_t *own_page;
	uint32_t *tiled; /* nodes of the weights that go by in tiles */
	struct genai_sweep_visit *sweep;
	uint32_t n_sweep, cap_sweep;
	struct genai_grouping how;
	uint64_t align;
	uint8_t *cut; /* per visit: it may be cut */
	/* the page being filled */
	struct genai_extent *extents;
	uint32_t n_extents, cap_extents;
	uint64_t page_bytes;
	uint32_t n_pages; /* added so far */
};

/* Take the plan's visits; paging->weights_bytes is set. */
int32_t genai_pages_open(struct genai_pages *b, struct genai_paging *paging,
			 struct genai_plan *plan,
			 const struct genai_graph *graph,
			 struct genai_error *err);
/* Add the pages to the pager, and make the sweep. */
int32_t genai_pages_build(struct genai_pages *b,
			  const struct genai_grouping *how,
			  struct genai_error *err);
void genai_pages_close(struct genai_pages *b);

#endif
