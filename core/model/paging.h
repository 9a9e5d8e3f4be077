/* paging.h - weights of a plan into pages of a pager.
 * Owns: the weight budget, the choice of a grouping (pages.h makes them).  Does
 * not know: placement (the pager's), operators. */
#ifndef GENAI_CORE_MODEL_PAGING_H
#define GENAI_CORE_MODEL_PAGING_H

#include "core/runtime.h"

struct genai_paging {
	struct genai_runtime *rt;
	struct genai_pager_api api;
	struct genai_sweep_page *pages; /* the sweep, for plan_set_pages */
	uint32_t n_pages;
	uint64_t weights_bytes; /* all that it visits */
	uint64_t read_bytes;	/* those that a step reads, not gathers from */
	uint64_t page_bytes;	/* of the grouping */
	uint64_t budget;	/* UINT64_MAX: none */
	bool dry;		/* plan, and take no memory */
	struct genai_pager_report report;
};

/* Open the pager (so that a plan can be made with paging->api). */
int32_t genai_paging_open(struct genai_runtime *rt, struct genai_paging *p,
			  struct genai_error *err);
/* Describe the plan's weights and seal.  room is what device_limit leaves for
 * weights (UINT64_MAX: no limit). */
int32_t genai_paging_seal(struct genai_paging *p, struct genai_plan *plan,
			  const struct genai_graph *graph, uint64_t room,
			  struct genai_error *err);
/* Give another plan of the same graph the same sweep. */
int32_t genai_paging_share(struct genai_paging *p, struct genai_plan *plan,
			   struct genai_error *err);
int32_t genai_paging_close(struct genai_paging *p, struct genai_error *err);

#endif
