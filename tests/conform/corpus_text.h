/* corpus_text.h - operator cases written as text, with exact results.
 *
 * "#" at the begin: ONNX does not define this, cpu_ref does.
 * A tensor is "f32[2,3] 1 2 3 4 5 6"; tensors are separated by ';', "-" is an
 * omitted one, "?" before an input hides its value from planning, "~" before an
 * output allows 2e-6 (relative, or absolute below 1; f16 1e-3, bf16 1e-2).  An
 * expected failure is "!CODE words of the message".  Attributes are
 * "axis=1 alpha=0.5 mode=edge axes=[0,1]". */
#ifndef GENAI_TESTS_CORPUS_TEXT_H
#define GENAI_TESTS_CORPUS_TEXT_H

#include "tests/conform/corpus.h"

struct ops_case {
	const char *op; /* "ms:" before it: com.microsoft */
	const char *in;
	const char *attrs;
	const char *out;
	int64_t opset; /* 0: 21, of com.microsoft 1 */
};

struct text_tensor {
	bool present, hidden, rough;
	uint32_t dtype, rank;
	int64_t dims[GENAI_MAX_RANK];
	uint64_t count, bytes;
	void *data; /* exactly bytes long, from malloc */
};

/* Parse one tensor; returns where the next one starts, or NULL.  Aborts on what
 * is none. */
const char *text_tensor(const char *s, struct text_tensor *t);
/* Parse all; returns their number. */
uint32_t text_tensors(const char *s, struct text_tensor *t, uint32_t cap);
/* Is element i of got what t says?  ulps: how many units in the last place of
 * its type a result of floats may be off where t is not rough; 0: the same
 * number, with its sign. */
bool text_same(const struct text_tensor *t, const void *got, uint64_t i,
	       uint32_t ulps);
double text_number(const struct text_tensor *t, const void *data, uint64_t i);

/* A word NAME=VALUE of a case's attributes. */
struct text_attr {
	char name[32], text[64]; /* text: of a string */
	uint32_t kind;		 /* GENAI_ATTR_* */
	int64_t i, ints[8];
	uint32_t n_ints;
	double f;
};
uint32_t text_attrs(const char *s, struct text_attr *a, uint32_t cap);

/* The tables of cases_*.h, one after another. */
void corpus_exact(struct check *c);

#endif
