/* fit.h - what a sequence takes, and which context would fit. */
#ifndef GENAI_CORE_MODEL_FIT_H
#define GENAI_CORE_MODEL_FIT_H

#include "core/model/model.h"

/* Bytes on the device that a session takes beside its plan. */
uint64_t genai_fit_session_bytes(const struct genai_model *m);
/* What a model takes, packed or not; session_bytes beside plan and cache. */
int32_t genai_fit_of(struct genai_model *m, uint64_t session_bytes,
		     struct genai_fit *out, struct genai_error *err);
int32_t genai_fit_give(struct genai_fit *out, const struct genai_fit *f,
		       struct genai_error *err);
/* Memory did not suffice: add to err which context would fit. */
void genai_fit_advise(struct genai_model *m, struct genai_error *err);

#endif
