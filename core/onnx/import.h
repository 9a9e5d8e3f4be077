/* import.h - from an unpacked model to a graph.
 * Private to core/onnx: what load.c and import.c share. */
#ifndef GENAI_CORE_ONNX_IMPORT_H
#define GENAI_CORE_ONNX_IMPORT_H

#include "core/graph/builder.h"
#include "core/base/mapping.h"
#include "core/onnx/external.h"
#include "core/onnx/onnx.h"
#include "core/onnx/onnx.pb-c.h"

#define GENAI_ONNX_MAX_FILES 4096u

/* The files of a model; 0 is the model file. */
struct genai_onnx_files {
	struct genai_mapping **maps;
	uint32_t n;
	uint32_t cap;
};

struct genai_import {
	const struct genai_onnx_options *options;
	const char *path;
	struct genai_onnx_files *files;
	struct genai_budget *budget;
	struct genai_folders *folders; /* NULL until needed */
	struct genai_names locations;  /* external location -> index of files */
	struct genai_names domains;    /* -> index of versions */
	int64_t *versions;
	int64_t ir_version;
	/* external tensors not aligned to their elements */
	uint32_t misaligned;
};

struct scope;

/* One warning, with the model's path in front. */
void genai_import_warn(struct genai_import *im, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* A graph and its subgraphs; parent is NULL for the main graph. */
int32_t genai_import_graph(struct genai_import *im, struct scope *parent,
			   const Genai__Onnx__Graph *g,
			   struct genai_graph **out_graph,
			   struct genai_error *err);

/* One graph while it is imported. */
struct scope {
	struct scope *parent;
	struct genai_import *im;
	const Genai__Onnx__Graph *g;
	struct genai_builder *b;
	struct genai_names infos; /* name -> index: value_info, then output */
	struct genai_names odd;	  /* tensors of types not carried -> dtype */
	/* index of files -> index in b, or GENAI_NONE */
	uint32_t *files;
	uint32_t n_files;
};

/* The tensor as a stored tensor of the scope; GENAI_NONE on failure (sticky in
 * s->b), or with *out_odd set if its type is not carried.  label is for
 * messages. */
uint32_t genai_import_tensor(struct scope *s, const Genai__Onnx__Tensor *t,
			     const char *label, int *out_odd);

/* The value that a name means in the scope.  GENAI_NONE: there is none, or the
 * builder of the scope or of an enclosing one failed. */
uint32_t genai_scope_resolve(struct scope *s, const char *name);

/* A node that is no Constant; all values of the scope are defined. */
void genai_import_node(struct scope *s, const Genai__Onnx__Node *n);

/* dims of a Tensor or a declared shape are at most this. */
#define GENAI_ONNX_MAX_DIM ((int64_t)1 << 40)

#endif
