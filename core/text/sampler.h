/* sampler.h - choosing the next token from a row of logits, on the host.
 * Owns: penalties, filters, the generator.  Does not know: models, text.
 * The specification (order of filters, generator, ties) is docs/SAMPLING.md. */
#ifndef GENAI_CORE_TEXT_SAMPLER_H
#define GENAI_CORE_TEXT_SAMPLER_H

#include <genai/types.h>

/* Ranges are checked by genai_sampler_open; the comment gives the neutral
 * value. */
struct genai_sampling {
	int32_t do_sample;	    /* 0 = greedy */
	float temperature;	    /* 1; 0 = greedy; 0...100 */
	int64_t top_k;		    /* 0 = off */
	float top_p;		    /* 1 = off; 0: the best one */
	float min_p;		    /* 0 = off; 0...1 */
	float repetition_penalty;   /* 1; > 0 */
	float presence_penalty;	    /* 0; -2...2 */
	float frequency_penalty;    /* 0; -2...2 */
	int64_t no_repeat_ngram;    /* 0 = off */
	int64_t min_length;	    /* 0; eos suppressed below it */
	uint64_t seed;
};
#define GENAI_SAMPLING_INIT                                                    \
	{                                                                      \
		0, 1.0f, 0, 1.0f, 0.0f, 1.0f, 0.0f, 0.0f, 0, 0, 0              \
	}

struct genai_sampler;

/* eos (may be NULL) are the ids that min_length suppresses.
 * Errors: GENAI_E_INVAL naming the field, its value and its range. */
int32_t genai_sampler_open(const struct genai_sampling *s, uint32_t vocab,
			   const int64_t *eos, size_t n_eos,
			   struct genai_sampler **out_s,
			   struct genai_error *err);
void genai_sampler_close(struct genai_sampler *s);

/* 1 if the choice is plain argmax without any penalty: then a device may do
 * it. */
int genai_sampler_is_greedy(const struct genai_sampler *s);

/* Tell the sampler the tokens of the sequence so far (prompt, then each token
 * chosen elsewhere); pick() records its own choice by itself. */
int32_t genai_sampler_accept(struct genai_sampler *s, const int64_t *ids,
			     size_t count, struct genai_error *err);
/* Forget everything but the parameters; position back to 0. */
void genai_sampler_reset(struct genai_sampler *s);
/* Forget all but the first count tokens. */
void genai_sampler_rewind(struct genai_sampler *s, size_t count);

/* Choose from logits[vocab] (changed in place).  The draw for a position
 * depends on (seed, position) only.  Ties go to the lowest id.
 * Errors: GENAI_E_DEVICE "... NaN ..." naming the first NaN's id, or if all are
 * -inf. */
int32_t genai_sampler_pick(struct genai_sampler *s, float *logits,
			   int64_t *out_id, struct genai_error *err);

#endif
