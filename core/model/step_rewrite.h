/* step_rewrite.h - a step graph under construction, for step.c (logits, the
 * next token, inputs and outputs) and step_lengths.c (mask, positions,
 * lengths). */
#ifndef GENAI_CORE_MODEL_STEP_REWRITE_H
#define GENAI_CORE_MODEL_STEP_REWRITE_H

#include "core/base/error.h"
#include "core/graph/build.h"
#include "core/model/step.h"

#define STEP_OPSET 21

struct step_rewrite {
	struct genai_builder *b;
	const struct genai_graph *g;
	const struct genai_model_config *c;
	struct genai_error *err;
	uint32_t ids;
	uint32_t rows; /* int64 [R], or NONE */
	bool packed;
	uint32_t first, table; /* packed; past is int32 [B] then */
	/* int32 [1]: past, past + S, past + S - 1 */
	uint32_t past, total, last;
	uint32_t total64; /* int64 [1], made when first needed */
	uint32_t seq64;	  /* S as int64 [1] */
	/* A cache, [1, heads, past, size], where such are joined; or NONE. */
	uint32_t joined;
	int64_t vocab;	  /* width of the logits, or -1 */
	/* Tables that change with the length: above which, the row of the other
	 * ones, and how many those have; 0 where there are none. */
	int64_t turn_limit, turn_row, turn_rows;
	bool nomem;
};

/* An input or output of a node, GENAI_NONE if it has none; the type of a value,
 * 0 where there is none. */
static inline uint32_t step_in(const struct genai_node *n, uint32_t i)
{
	return i < n->n_inputs ? n->inputs[i] : GENAI_NONE;
}

static inline uint32_t step_out(const struct genai_node *n)
{
	return n->n_outputs ? n->outputs[0] : GENAI_NONE;
}

static inline uint32_t step_dtype(const struct step_rewrite *r, uint32_t value)
{
	const struct genai_value *v = genai_builder_get_value(r->b, value);

	return v ? v->dtype : 0;
}

/* An int64 constant of rank 0 or 1, made once by name. */
uint32_t step_const(struct step_rewrite *r, const char *name, uint32_t rank,
		    int64_t v);
/* A node of one or two inputs (b2 may be GENAI_NONE); returns its output. */
uint32_t step_node(struct step_rewrite *r, const char *op, const char *out,
		   uint32_t dtype, uint32_t a, uint32_t b2);
/* The value of a stored integer; false if it is none. */
bool step_const_int(struct step_rewrite *r, uint32_t value, int64_t *out);
/* An int attribute of the node that makes value. */
void step_attr(struct step_rewrite *r, uint32_t value, const char *name,
	       int64_t v);
/* An int attribute, or d. */
int64_t step_attr_int(const struct genai_node *n, const char *name, int64_t d);

/* genai.past and what is computed from it. */
void step_lengths(struct step_rewrite *r);
/* All that reads the attention mask reads a length instead. */
int32_t step_replace_mask(struct step_rewrite *r, uint32_t mask, int depth);
/* Positions counted from genai.past in place of the input ids.  Of text, three
 * positions of a token are the same. */
int32_t step_positions(struct step_rewrite *r, uint32_t ids);
/* Packed: where there are three positions of each, one is asked for. */
int32_t step_packed_positions(struct step_rewrite *r, uint32_t ids);

/* Rotary tables that an If chooses by the total length. */
int32_t step_ropes(struct step_rewrite *r);

/* ---- step_narrow.c ---- */

/* MatMul with a matrix that is cast to float32 from a stored one of half as
 * many bits becomes MatMul of domain genai with that. */
void step_narrow(struct step_rewrite *r);

/* ---- step_packed.c ---- */

/* GroupQueryAttention becomes PagedAttention; genai.past, first, table.
 * Errors: GENAI_E_UNSUPPORTED, naming the node. */
int32_t step_pack(struct step_rewrite *r);
/* When all that is not needed is gone: does every node work on rows?  positions
 * is the graph's input of them, or NONE. */
int32_t step_check_packed(struct step_rewrite *r, uint32_t positions);

#endif
