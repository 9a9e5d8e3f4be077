/* float_model.h - model folders whose matrices are float values, [K, N], as
 * exporters write them without quantising; for tests of placing weights. */
#ifndef GENAI_TESTS_FLOAT_MODEL_H
#define GENAI_TESTS_FLOAT_MODEL_H

#include <stdio.h>
#include <string.h>

#include "core/modelgen/modelgen.h"

static inline float float_at(uint64_t i)
{
	uint64_t x = (i + 1) * UINT64_C(0x9e3779b97f4a7c15);

	x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
	return (float)(int32_t)(x >> 32) * 0x1p-34f;
}

static inline void float_form(void *self, uint32_t site, uint32_t layer,
			      struct genai_form *out)
{
	(void)self;
	(void)site;
	(void)layer;
	memset(out, 0, sizeof(*out));
}

static inline int32_t float_vector(void *self, uint32_t site, uint32_t layer,
				   float *out, struct genai_error *err)
{
	const struct genai_genconf *c = self;
	uint32_t n = c->hidden;

	(void)layer;
	(void)err;
	if (site == GENAI_SITE_NORM_Q || site == GENAI_SITE_NORM_K)
		n = c->head_size;
	else if (site >= GENAI_SITE_BIAS_Q)
		n = c->head_size *
		    (site == GENAI_SITE_BIAS_Q ? c->heads : c->kv_heads);
	for (uint32_t i = 0; i < n; i++)
		out[i] = site >= GENAI_SITE_BIAS_Q ? 0 : 1;
	return GENAI_OK;
}

static inline uint64_t float_rows_of(const struct genai_genconf *c,
				     uint32_t site)
{
	switch (site) {
	case GENAI_SITE_Q:
		return (uint64_t)c->heads * c->head_size;
	case GENAI_SITE_K:
	case GENAI_SITE_V:
		return (uint64_t)c->kv_heads * c->head_size;
	case GENAI_SITE_GATE:
	case GENAI_SITE_UP:
		return c->ffn;
	case GENAI_SITE_O:
	case GENAI_SITE_DOWN:
		return c->hidden;
	default:
		return c->vocab;
	}
}

static inline int32_t float_columns(void *self, uint32_t site, uint32_t layer,
				    uint64_t col, uint64_t n, uint64_t stride,
				    float *out, struct genai_error *err)
{
	uint64_t rows = float_rows_of(self, site);
	uint64_t from = ((uint64_t)site << 8 | layer) << 32;

	(void)err;
	for (uint64_t c = 0; c < n; c++)
		for (uint64_t r = 0; r < rows; r++)
			out[c * stride + r] =
				float_at(from + (col + c) * rows + r);
	return GENAI_OK;
}

static inline int32_t float_rows(void *self, uint32_t site, uint32_t layer,
				 uint64_t row, uint64_t n, float *out,
				 struct genai_error *err)
{
	const struct genai_genconf *c = self;
	uint64_t from = ((uint64_t)site << 8 | layer) << 32;

	(void)err;
	for (uint64_t i = 0; i < n * c->hidden; i++)
		out[i] = float_at(from + row * c->hidden + i);
	return GENAI_OK;
}

static inline int32_t float_files(void *self, const char *dir,
				  struct genai_error *err)
{
	(void)self;
	(void)dir;
	(void)err;
	return GENAI_OK;
}

/* As tiny-qwen2, in dtype (GENAI_DT_F32 or _F16). */
static inline int32_t float_model(const char *dir, uint32_t layers,
				  uint32_t dtype, struct genai_error *err)
{
	struct genai_genconf c = {.type = "qwen2",
				  .layers = layers,
				  .hidden = 64,
				  .heads = 4,
				  .kv_heads = 2,
				  .head_size = 16,
				  .rotary = 16,
				  .ffn = 128,
				  .vocab = 512,
				  .context = 512,
				  .theta = 1e4,
				  .rope_scale = 1,
				  .epsilon = 1e-6f,
				  .qkv_bias = true,
				  .cuda = dtype == GENAI_DT_F16,
				  .io_dtype = dtype,
				  .bos = -1,
				  .pad = -1,
				  .eos = {511},
				  .n_eos = 1};
	struct genai_source s = {.self = &c,
				 .form = float_form,
				 .vector = float_vector,
				 .columns = float_columns,
				 .rows = float_rows,
				 .files = float_files};

	return genai_modelgen_write(&c, &s, dir, NULL, err);
}

#endif
