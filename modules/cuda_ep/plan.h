/* plan.h - a graph made ready to be enqueued.
 * Owns: values' storage, variants (one per set of input shapes), the sweep.
 *
 * Storage is laid out once, for the largest shapes; every variant uses the same
 * places.  Building a variant is host work only. */
#ifndef CEP_PLAN_H
#define CEP_PLAN_H

#include "modules/cuda_ep/op.h"

#define CEP_VARIANTS 16u      /* kept at a time */
#define CEP_RECORDINGS 16u    /* kept until the plan goes */
#define CEP_FOLD_BYTES 128u   /* of a folded value */
#define CEP_CONST_BYTES 256u  /* stored tensors up to here are copied in */
#define CEP_LATE_BYTES 65536u /* outputs up to here can be written late */

enum cep_storage {
	CEP_ST_NONE, /* never on the device, or an alias */
	CEP_ST_INPUT,
	CEP_ST_OUTPUT,
	CEP_ST_WEIGHT, /* where the pager says */
	CEP_ST_CONST,
	CEP_ST_ARENA,
};

struct cep_value {
	enum cep_storage storage;
	uint32_t index;	      /* of the input or output */
	uint32_t first, last; /* nodes that need the bytes */
	uint64_t offset;      /* const: in the region; arena */
	uint64_t bytes;	      /* room */
	bool has_room;	      /* output: has arena room too */
};

enum cep_fuse_kind {
	CEP_FUSE_NONE,
	CEP_FUSE_ABSORBED,
	CEP_FUSE_SILU_MUL,
	CEP_FUSE_GATE_UP,
	CEP_FUSE_BIAS, /* gate: the product, up: the vector */
};

struct cep_fusion {
	enum cep_fuse_kind kind;
	uint32_t sigmoid, mul; /* nodes */
	uint32_t gate, up;     /* values */
};

/* Which node reads a visit, and as which input. */
struct cep_use {
	uint32_t node, input;
};

enum cep_step_kind { CEP_ACQUIRE, CEP_RUN, CEP_RELEASE };

struct cep_step {
	enum cep_step_kind kind;
	uint32_t page, visit;
	uint64_t row_begin, row_end;
};

struct cep_variant {
	struct genai_view *key; /* input views without addresses */
	struct cep_tensor *tensors;
	struct cep_node *nodes;
	unsigned char *folds;
	uint64_t used;	   /* clock of the last submit */
	uint64_t resolved; /* binding generation of the addresses */
	uint32_t region;   /* of constants */
	bool poked;	   /* they are on the device */
	bool is_step;	   /* one token: worth a recording */
	uint32_t eager_runs;
	struct genai_recording *recording;
	uint64_t signature;  /* of the bindings that it names */
	uint64_t generation; /* at which that was last compared */
};

struct genai_plan {
	struct cep *self;
	const struct genai_graph *graph;
	const struct genai_stream_api *stream;
	const struct genai_barrier_api *barrier;
	const struct genai_pager_api *pager;
	bool captured, resident, synced, submitted;
	uint32_t id;
	struct genai_view *max_inputs, *inputs, *outputs;
	struct cep_fusion *fusions; /* per node */
	bool *late;		    /* per output */
	uint64_t generation;	    /* of bindings */
	struct cep_value *values;
	struct cep_variant *variants[CEP_VARIANTS];
	uint64_t clock;
	/* device memory: arena, workspace, sync words, constants */
	struct genai_mem mem;
	uint64_t arena_bytes, workspace_at, workspace_bytes, sync_at;
	uint64_t sync_bytes, const_at, const_bytes;
	uint64_t *sync_offset; /* per node */
	struct genai_visit *visits;
	struct cep_use *uses;
	uint32_t n_visits;
	struct cep_step *steps;
	uint32_t *step_begin; /* per node, n_nodes + 1 */
	uint32_t *part_rows;  /* per node: rows of its parts, 0 if it has none
				 that could run at once */
	uint64_t parts[CEP_TILES * CEP_MAX_IN];
	bool has_pages;
	struct genai_point tail; /* of the last eager step */
	struct genai_recording *recordings[CEP_RECORDINGS];
	uint32_t n_recordings;
	struct genai_exec_stats stats;
};

/* ---- plan_variant.c ---- */

/* Shapes of every value for these input views (addresses do not count). */
int32_t cep_variant_new(struct genai_plan *p, const struct genai_view *inputs,
			struct cep_variant **out_v, struct genai_error *err);
void cep_variant_free(struct genai_plan *p, struct cep_variant *v);
/* The variant for the bound inputs, kept or new. */
int32_t cep_variant_get(struct genai_plan *p, struct cep_variant **out_v,
			struct genai_error *err);
/* The value whose bytes v's value holds. */
uint32_t cep_root(const struct cep_variant *v, uint32_t value);
/* Does the node read input i on the device? */
bool cep_reads(const struct cep_node *n, uint32_t i);
/* Nothing to enqueue: folded, or only names. */
bool cep_is_silent(const struct cep_node *n);
/* Set every tensor's address. */
int32_t cep_variant_resolve(struct genai_plan *p, struct cep_variant *v,
			    struct genai_error *err);

/* ---- fuse.c ---- */

/* Find the fusions of the plan's graph. */
int32_t cep_fuse(struct genai_plan *p, struct genai_error *err);
/* Turn a node into what it is fused to, if it is. */
void cep_fuse_apply(const struct genai_plan *p, struct cep_variant *v,
		    struct cep_node *n);

/* ---- plan_layout.c ---- */

/* Storage for every value, from the variant of the largest shapes. */
int32_t cep_layout(struct genai_plan *p, const struct cep_variant *v,
		   struct genai_error *err);
/* The variant fits what was laid out. */
int32_t cep_layout_check(const struct genai_plan *p,
			 const struct cep_variant *v, struct genai_error *err);
int32_t cep_visits(struct genai_plan *p, const struct cep_variant *v,
		   struct genai_error *err);

/* ---- plan_pages.c ---- */

int32_t cep_plan_set_pages(struct genai_plan *p,
			   const struct genai_visit_page *pages,
			   uint32_t n_pages, struct genai_error *err);

/* ---- plan_run.c ---- */

int32_t cep_plan_submit(struct genai_plan *p, struct genai_stream *stream,
			const struct genai_point *wait, uint32_t n_wait,
			struct genai_point *out_signal,
			struct genai_error *err);

static inline void *cep_zalloc(struct cep *self, uint64_t bytes)
{
	void *p = self->host->alloc(self->host->ctx, bytes ? bytes : 1, "plan");

	if (p)
		memset(p, 0, bytes);
	return p;
}

#endif
