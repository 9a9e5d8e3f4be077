/* constrain.h - structured output: which tokens may come next, so that the text
 * is one of a JSON schema, a regular expression or a grammar.
 * Owns: llguidance, a part that is loaded when it is there (the C functions of
 * the shared object in PyPI's wheel, one version of it), compiled grammars.
 * Does not know: engines, HTTP. */
#ifndef GENAI_TOOLS_CONSTRAIN_H
#define GENAI_TOOLS_CONSTRAIN_H

#include <genai/text.h>
#include <genai/types.h>

#define CONSTRAIN_VERSION "1.9.1"

struct constrain;
struct constraint;

/* Load it for the tokenizer.json of a folder and test that it works.
 * Errors: GENAI_E_NOTFOUND if it is not installed, with the command that
 * installs it; GENAI_E_ABI another version; GENAI_E_UNSUPPORTED a tokenizer
 * that it does not take. */
int32_t constrain_open(const char *folder, uint32_t vocab, const int64_t *eos,
		       size_t n_eos, struct constrain **out,
		       struct genai_error *err);
/* After all constraints. */
void constrain_close(struct constrain *c);

/* kind: "json_schema", "json_object" (data is not read), "regex", "lark"; for
 * choices sequences of their own.  What it cannot do is refused here.
 * Errors: GENAI_E_INVAL with llguidance's words. */
int32_t constraint_open(struct constrain *c, const char *kind, const char *data,
			uint32_t choices, struct constraint **out,
			struct genai_error *err);
void constraint_close(struct constraint *k);
/* As genai_request's allow.  Threads: one at a time for each constraint. */
int32_t constraint_allow(void *constraint, uint32_t choice, const int64_t *ids,
			 size_t n, uint32_t *out_bits, struct genai_error *err);

#endif
