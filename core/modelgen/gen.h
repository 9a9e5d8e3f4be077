/* gen.h - private to modelgen: the graph being written and the list of what
 * has to be put into its data file.
 * graph.c fills both, data.c writes the data, folder.c the folder. */
#ifndef GENAI_CORE_MODELGEN_GEN_H
#define GENAI_CORE_MODELGEN_GEN_H

#include "core/base/error.h"
#include "core/modelgen/modelgen.h"
#include "core/modelgen/wire.h"

#define GEN_DATA_FILE "model.onnx.data"
#define GEN_ALIGN 256u
#define GEN_NAME 160

/* A matrix, or up to three of the same form stacked (q, k, v). */
struct gen_mat {
	uint32_t site[3], n_sites, layer;
	uint64_t rows[3], n_rows; /* each, and together */
	uint64_t cols;
	struct genai_form form;
	bool by_turns;	    /* rows of two alternate */
	const char *weight; /* "model.layers.0.mlp.up_proj" */
	const char *path;   /* "/model/layers.0/mlp/up_proj" */
};

enum gen_kind { GEN_VECTOR, GEN_COLUMNS, GEN_ROWS, GEN_BLOCKS, GEN_ROPE };

/* Bytes to be written.  Offsets are those of the data file; 0 where absent
 * (the file starts with the rope caches, so no other part lies at 0). */
struct gen_job {
	enum gen_kind kind;
	struct gen_mat mat; /* names are not valid any more */
	uint64_t at;	    /* values or codes; rope: cos */
	uint64_t scales, zeros;
	uint64_t terms;	   /* [rows, blocks] */
	uint64_t terms_t;  /* [blocks, rows] */
	uint64_t rope_sin; /* GEN_ROPE only */
	bool rope_local;   /* GEN_ROPE: that of layers with a window */
	bool wide;	   /* GEN_VECTOR: float32 whatever the folder's type */
};

struct gen {
	const struct genai_genconf *conf;
	const struct genai_source *source;
	const struct genai_gen_options *options;
	struct genai_wire nodes, inits;
	size_t node; /* start of the open node */
	struct gen_job *jobs;
	uint32_t n_jobs, cap_jobs;
	struct gen_job scrap; /* stands in when there is no memory for one */
	uint64_t embed_terms; /* offsets of a shared embedding, or 0 */
	uint64_t data_bytes;
	uint64_t done_bytes;
	uint32_t shared[48]; /* hashes of names of shared constants written */
	uint32_t n_shared;
	char sums_of[GEN_NAME]; /* input whose block sums were made last */
	uint32_t sums_block;
	char sums[GEN_NAME];
	bool failed; /* out of memory or a size that overflows */
};

static inline bool gen_layer_is(const struct genai_genconf *c, uint32_t layer,
				uint32_t flags)
{
	return c->layer_flags && c->layer_flags[layer] & flags;
}

/* Has the layer a mixture of experts? */
static inline bool gen_has_experts(const struct genai_genconf *c,
				   uint32_t layer)
{
	return c->experts && layer >= c->dense_layers;
}

#define GEN_NO_CACHE (GENAI_LAYER_CONV | GENAI_LAYER_DELTA)

/* Channels of a layer's convolution. */
static inline int64_t gen_conv_width(const struct genai_genconf *c,
				     uint32_t layer)
{
	if (gen_layer_is(c, layer, GENAI_LAYER_CONV))
		return c->hidden;
	return (2 * (int64_t)c->delta_k_heads + c->delta_v_heads) *
	       c->delta_size;
}

/* Type of a float matrix. */
static inline uint32_t gen_dtype(const struct gen *g, const struct gen_mat *m)
{
	return m->form.dtype ? m->form.dtype : g->conf->io_dtype;
}

static inline uint64_t gen_elem(const struct gen *g)
{
	return g->conf->io_dtype == GENAI_DT_F16 ? 2 : 4;
}

/* All nodes, initialisers and jobs.  False in g->failed tells of trouble. */
void gen_graph(struct gen *g);
/* The whole model.onnx. */
void gen_model(struct gen *g, struct genai_wire *out_w);
/* Add an initialiser of the data file; returns its offset. */
uint64_t gen_init(struct gen *g, const char *name, uint32_t dtype,
		  uint32_t rank, const uint64_t *dims);
struct gen_job *gen_job_add(struct gen *g, enum gen_kind kind);

/* Node writing (onnx.c). */
void gen_node(struct gen *g, const char *op, const char *domain,
	      const char *name);
void gen_in(struct gen *g, const char *name);
void gen_out(struct gen *g, const char *name);
void gen_attr_int(struct gen *g, const char *name, int64_t v);
void gen_attr_float(struct gen *g, const char *name, float v);
void gen_attr_ints(struct gen *g, const char *name, const int64_t *v,
		   uint32_t n);
void gen_end(struct gen *g);
void gen_attr_string(struct gen *g, const char *name, const char *v);
/* Attribute value: a tensor of one float32. */
void gen_attr_fill(struct gen *g, float v);
/* An int64 constant, written once; its name, valid until the next call. */
const char *gen_const(struct gen *g, bool scalar, const int64_t *v, uint32_t n,
		      char *out_name);
/* A constant of the folder's type, written once. */
const char *gen_const_float(struct gen *g, float v, char *out_name);
/* A constant of float32, likewise. */
const char *gen_const_wide(struct gen *g, float v, char *out_name);
/* True once for each name. */
bool gen_first(struct gen *g, const char *name);

/* in cast to the folder's type, at path/Cast; the result's name, or in's where
 * it is of that type. */
void gen_cast(struct gen *g, const char *path, uint32_t dtype, const char *in,
	      char *out);

/* Matrices (linear.c).  out: name of the product. */
void gen_matmul(struct gen *g, const struct gen_mat *m, const char *in,
		const char *out);
/* The embedding; m is the head's matrix where it is shared. */
void gen_embed(struct gen *g, const struct gen_mat *m, char *out);

/* Parts of layers (graph.c): a matrix of one site; its product, whose name is
 * written to out; a vector that is added. */
void gen_one(struct gen *g, struct gen_mat *m, uint32_t site, uint32_t layer,
	     uint64_t rows, uint64_t cols);
void gen_project(struct gen *g, struct gen_mat *m, const char *module,
		 const char *in, char *out);
void gen_add_bias(struct gen *g, uint32_t layer, uint32_t site, uint64_t n,
		  const char *module, char *inout);
/* A gated delta network (delta.c). */
void gen_delta(struct gen *g, uint32_t layer, const char *in, char *out);
/* A mixture of experts (experts.c). */
void gen_experts(struct gen *g, uint32_t layer, const char *in, char *out);

/* Write all jobs into fd (data.c). */
int32_t gen_data_write(struct gen *g, int fd, const char *path,
		       struct genai_error *err);
/* genai_config.json into dir (settings.c). */
int32_t gen_settings_write(const struct genai_genconf *conf, const char *dir,
			   struct genai_error *err);

#endif
