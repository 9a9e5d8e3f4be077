/* step.h - the step graph: a model's graph made ready for a session.
 * Owns: the rewriting of length arithmetic to a length on the device, the last
 * row, the choice of the next token.  Does not know: memory, execution.
 *
 * What changes (docs/ARCHITECTURE.md, "The step graph"):
 *   genai.past (int32 [1], in place)  replaces the attention mask: total = past
 *       + S is written over it by the step itself
 *   position_ids                      past + 0..S-1, or past where a rotary
 *                                     embedding counts itself
 *   genai.rows (int64 [R])            the positions of this step whose rows go
 *       through the head
 *   genai.index (int64 [S])           0..S-1, where it is needed
 *   genai.turn (int64 [1])            the row of the rotary tables that is that
 *       of position 0, where tables change with the length: an If is gone
 *   logits ([1, R, vocabulary])       of those rows
 *   genai.next (int64 [1, R])         ArgMax of each (a NaN is the largest)
 *   genai.best ([1, R])               its logit, so that the host sees a NaN
 * The last two are there where tokens are chosen: not for all rows.
 *
 * With many sequences in a step (packed), all rows are of one batch entry,
 * those of a sequence one behind the other, and the states are pools of blocks:
 *   genai.past (int32 [B])            how many positions of each are there
 *   genai.first (int32 [B + 1])       first row of each; then that of padding
 *   genai.table (int32 [B, M])        its blocks, for PagedAttention
 *   genai.begins (int64 [R])          where each of the rows begins among all
 *       logits, for genai.best: 0, vocabulary, ...
 *   position_ids                      stays an input; genai.positions where the
 *       graph has three of each, which are the same of text
 * and there is no genai.total.
 *
 * A graph that keeps the last row only by itself has neither: R is 1. */
#ifndef GENAI_CORE_MODEL_STEP_H
#define GENAI_CORE_MODEL_STEP_H

#include <stdbool.h>

#include <genai/graph.h>

#include "core/model/state.h"

struct genai_step {
	struct genai_graph *graph;     /* owned */
	uint32_t ids, past;	       /* graph input indices */
	uint32_t rows;		       /* the same; NONE with one_row */
	uint32_t first, table, begins; /* packed only */
	uint32_t positions;	/* packed, and if there are any; or NONE */
	uint32_t logits, total; /* graph output indices */
	uint32_t next, best;	/* NONE for all rows */
	struct genai_states states;
	uint32_t logits_dtype;
	int64_t vocab;	   /* width of the logits, -1 if not known */
	int64_t rope_rows; /* rows of the shortest rope table, or -1 */
	/* Tables that change with the length, or turn is NONE: inputs; above
	 * which length a step is told turn_row, not 0; whether what was
	 * computed before is then computed again. */
	uint32_t index, turn;
	int64_t turn_limit, turn_row;
	bool turns_again;
	bool one_row; /* the graph itself keeps the last row only */
};

/* Which rows go through the head. */
enum genai_step_rows {
	GENAI_STEP_LAST,  /* one */
	GENAI_STEP_ALL,	  /* those of a chunk */
	GENAI_STEP_PACKED /* those of many sequences that are asked for */
};

/* source is the model's graph; its files must outlive the step graph.  narrow:
 * the executor has MatMul of domain genai, whose matrix is stored in fewer bits
 * than what it is multiplied with. Errors: GENAI_E_UNSUPPORTED naming the node
 * or input that does not fit a decoder, or, packed, for which sequences cannot
 * share a step; GENAI_E_FORMAT.
 */
int32_t genai_step_build(const struct genai_graph *source,
			 const struct genai_model_config *config,
			 enum genai_step_rows rows, bool narrow,
			 struct genai_step *out_step, struct genai_error *err);
void genai_step_free(struct genai_step *step);

#endif
