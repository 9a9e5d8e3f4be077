/* timeline.h - points: the slots of the stream table that timeline.c serves. */
#ifndef CEP_TIMELINE_H
#define CEP_TIMELINE_H

#include "modules/cuda_ep/cep.h"

int32_t cep_mark(void *self, struct genai_stream *stream,
		 struct genai_point *out_point, struct genai_error *err);
int32_t cep_wait(void *self, struct genai_stream *stream,
		 struct genai_point point, struct genai_error *err);
int32_t cep_poll(void *self, struct genai_point point, struct genai_error *err);

#endif
