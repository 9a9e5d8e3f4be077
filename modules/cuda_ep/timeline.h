/* timeline.h - points: the slots of the stream table that timeline.c serves. */
#ifndef CEP_TIMELINE_H
#define CEP_TIMELINE_H

#include "modules/cuda_ep/cep.h"

int32_t cep_mark(void *self, struct genai_stream *stream,
		 struct genai_point *out_point, struct genai_error *err);
int32_t cep_wait(void *self, struct genai_stream *stream,
		 struct genai_point point, struct genai_error *err);
int32_t cep_stamp(void *self, struct genai_stream *stream, uint64_t *out_stamp,
		  struct genai_error *err);
int32_t cep_elapsed(void *self, uint64_t from, uint64_t to, int64_t *out_ns,
		    struct genai_error *err);
/* All of them are given back. */
void cep_stamps_close(struct cep *self);
int32_t cep_poll(void *self, struct genai_point point, struct genai_error *err);

#endif
