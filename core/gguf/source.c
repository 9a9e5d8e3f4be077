// source.c - values of a GGUF file in the forms of an ONNX folder.
#include "core/gguf/import.h"

#include <math.h>
#include <string.h>

// Of the largest value of a block: two roundings of float32, with reserve.
#define ERROR_MAX 2.4e-7f

static const struct genai_gguf_type *type_of(const struct genai_gguf_tensor *t)
{
	return genai_gguf_type(t->type);
}

static bool is_expert(uint32_t site)
{
	return site >= GENAI_SITE_EXP_GATE && site <= GENAI_SITE_EXP_DOWN;
}

// Gates and ups are one matrix: codes that hold both kinds, and zero points if
// one of them has offsets.  All three have the smallest block; larger ones are
// several with one scale.
static void expert_form(struct imp *imp, uint32_t site, uint32_t layer,
			struct genai_form *out)
{
	memset(out, 0, sizeof(*out));
	for (uint32_t i = GENAI_SITE_EXP_GATE; i <= GENAI_SITE_EXP_DOWN; i++) {
		const struct genai_gguf_type *type =
			type_of(imp_tensor(imp, i, layer));
		bool same = (i == GENAI_SITE_EXP_DOWN) ==
			    (site == GENAI_SITE_EXP_DOWN);

		if (!type->unpack)
			return;
		if (!out->block || type->sub < out->block)
			out->block = type->sub;
		if (same && type->bits > out->bits)
			out->bits = type->bits;
		if (same && type->affine)
			out->offset = GENAI_OFFSET_ZERO;
	}
}

static void form(void *self, uint32_t site, uint32_t layer,
		 struct genai_form *out_form)
{
	struct imp *imp = self;
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const struct genai_gguf_type *type = type_of(t);
	struct imp_record *r = imp_record(imp, t);

	memset(out_form, 0, sizeof(*out_form));
	if (is_expert(site)) {
		// the other half of a pair is not asked for
		for (uint32_t i = GENAI_SITE_EXP_GATE; i <= GENAI_SITE_EXP_DOWN;
		     i++)
			expert_form(imp, i, layer,
				    &imp_record(imp, imp_tensor(imp, i, layer))
					     ->form);
		*out_form = r->form;
		r->error = 0;
		return;
	}
	if (type->unpack) {
		out_form->bits = type->bits;
		out_form->block = type->sub;
		// ONNX Runtime has float zero points for 4 bits only, and the
		// gather of blocks has none.
		if (type->affine)
			out_form->offset =
				type->bits == 4 && !r->term && !imp->terms &&
						site != GENAI_SITE_EMBED
					? GENAI_OFFSET_ZERO
					: GENAI_OFFSET_TERM;
	}
	// stay as they are, and are widened where they are read
	if (!type->unpack && type->bytes == 2)
		out_form->dtype = type->id == 1 ? GENAI_DT_F16 : GENAI_DT_BF16;
	r->form = *out_form;
	r->error = 0;
}

// Row of the file that holds row `row` of the model.  The converter of llama
// files puts the two halves of a head into adjacent rows.
static uint64_t file_row(const struct imp *imp, uint32_t site, uint64_t row)
{
	uint64_t size = imp->conf.head_size, half = size / 2;
	uint64_t in = row % size;

	row += imp_first_row(imp, site);
	if (!imp->permuted ||
	    (site != GENAI_SITE_Q && site != GENAI_SITE_K &&
	     site != GENAI_SITE_BIAS_Q && site != GENAI_SITE_BIAS_K))
		return row;
	return row - in + 2 * (in % half) + in / half;
}

static int32_t vector(void *self, uint32_t site, uint32_t layer,
		      float *out_values, struct genai_error *err)
{
	struct imp *imp = self;
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const struct genai_gguf_type *type = type_of(t);

	for (uint64_t i = 0; i < t->dims[0] * t->dims[1]; i++)
		genai_gguf_values(
			type, t->data + file_row(imp, site, i) * type->bytes, 1,
			out_values + i);
	return genai_gguf_check(imp->gguf, err);
}

static int32_t columns(void *self, uint32_t site, uint32_t layer, uint64_t col,
		       uint64_t n, uint64_t stride, float *out_values,
		       struct genai_error *err)
{
	struct imp *imp = self;
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const struct genai_gguf_type *type = type_of(t);
	uint64_t n_rows = imp_rows(imp, t, site);
	float v[256];

	for (uint64_t r = 0; r < n_rows; r++) {
		uint64_t from = file_row(imp, site, r) * t->dims[0] + col;

		genai_gguf_values(type, t->data + from * type->bytes, n, v);
		for (uint64_t c = 0; c < n; c++)
			out_values[c * stride + r] = v[c];
	}
	return genai_gguf_check(imp->gguf, err);
}

static int32_t rows(void *self, uint32_t site, uint32_t layer, uint64_t row,
		    uint64_t n, float *out_values, struct genai_error *err)
{
	struct imp *imp = self;
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const struct genai_gguf_type *type = type_of(t);

	genai_gguf_values(type, t->data + row * t->dims[0] * type->bytes,
			  n * t->dims[0], out_values);
	return genai_gguf_check(imp->gguf, err);
}

// Codes as the operators read them, with their default zero point where the
// type is symmetric.  Out has room for values * bits / 8 bytes.
static void pack(const struct genai_gguf_type *type,
		 const struct genai_gguf_block *b, uint8_t *out)
{
	int shift = type->affine      ? 0
		    : type->bits == 4 ? 8 - type->zero
				      : 128 - type->zero;

	if (type->bits == 8) {
		for (uint32_t i = 0; i < type->values; i++)
			out[i] = (uint8_t)(b->code[i] + shift);
		return;
	}
	for (uint32_t i = 0; i < type->values; i += 2)
		out[i / 2] = (uint8_t)((b->code[i] + shift) |
				       (b->code[i + 1] + shift) << 4);
}

// Largest error of scale * (code - zero) over a sub-block, relative to its
// largest value.
static float zero_error(const uint8_t *code, uint32_t n, float scale,
			float offset, float zero)
{
	float worst = 0, largest = 0;

	for (uint32_t i = 0; i < n; i++) {
		float want = scale * code[i] + offset;
		float got = (code[i] - zero) * scale;

		largest = fmaxf(largest, fabsf(want));
		if (!(fabsf(got - want) <= worst))
			worst = fabsf(got - want);
	}
	return worst > 0 ? worst / largest : worst; // NaN stays
}

// offset -> zero point, -offset / scale; a block of one value (scale 0) becomes
// offset * (1 - 0).
static void zero_point(struct imp_record *r, bool *again,
		       const struct genai_gguf_type *type,
		       struct genai_gguf_block *b, uint32_t sub, float *out)
{
	uint8_t *code = b->code + sub * type->sub;
	float e;

	if (b->scale[sub] == 0) {
		memset(code, 1, type->sub);
		b->scale[sub] = b->offset[sub];
		b->offset[sub] = 0;
		*out = 0;
		return;
	}
	*out = -b->offset[sub] / b->scale[sub];
	e = zero_error(code, type->sub, b->scale[sub], b->offset[sub], *out);
	if (!(e <= r->error))
		r->error = e;
	if (!(e <= ERROR_MAX))
		r->term = *again = true;
}

// One sub-block of an expert, in the form of its matrix.
static void expert_block(struct imp_record *r,
			 const struct genai_gguf_type *type,
			 struct genai_gguf_block *b, uint32_t sub,
			 float *out_zero)
{
	const int mid = 1 << (r->form.bits - 1);
	uint8_t *code = b->code + sub * type->sub;
	bool term = r->term, again = false;

	*out_zero = type->zero;
	if (type->affine) {
		zero_point(r, &again, type, b, sub, out_zero);
		r->term = term; // there is no other way
	}
	for (uint32_t i = 0; i < type->sub && !r->form.offset; i++)
		code[i] = (uint8_t)(code[i] + mid - type->zero);
}

static void expert_row(struct imp_record *r, const struct genai_gguf_type *type,
		       const uint8_t *p, uint64_t n, uint8_t *out_codes,
		       float *out_scales, float *out_zeros)
{
	const uint32_t subs = type->values / type->sub;
	const uint32_t times = type->sub / r->form.block;
	const uint32_t per = 8 / r->form.bits;
	struct genai_gguf_block b;
	float zero;

	for (uint64_t j = 0; j < n; j++, p += type->bytes) {
		type->unpack(p, &b);
		for (uint32_t k = 0; k < subs; k++) {
			expert_block(r, type, &b, k, &zero);
			for (uint32_t i = 0; i < times; i++) {
				*out_scales++ = b.scale[k];
				if (out_zeros)
					*out_zeros++ = zero;
			}
		}
		for (uint32_t i = 0; i < type->values; i += per)
			*out_codes++ = per == 1 ? b.code[i]
						: (uint8_t)(b.code[i] |
							    b.code[i + 1] << 4);
	}
}

static int32_t blocks(void *self, uint32_t site, uint32_t layer, uint64_t row,
		      uint64_t n, uint8_t *out_codes, float *out_scales,
		      float *out_zeros, float *out_terms,
		      struct genai_error *err)
{
	struct imp *imp = self;
	const struct genai_gguf_tensor *t = imp_tensor(imp, site, layer);
	const struct genai_gguf_type *type = type_of(t);
	struct imp_record *r = imp_record(imp, t);
	uint64_t per_row = t->dims[0] / type->values;
	uint32_t subs = type->values / type->sub;
	struct genai_gguf_block b;

	if (is_expert(site)) {
		uint64_t from = row * per_row * type->bytes;

		for (uint64_t i = 0; i < n; i++)
			expert_row(r, type,
				   t->data + from + i * per_row * type->bytes,
				   per_row,
				   out_codes +
					   i * t->dims[0] * r->form.bits / 8,
				   out_scales + i * t->dims[0] / r->form.block,
				   out_zeros ? out_zeros + i * t->dims[0] /
								   r->form.block
					     : NULL);
		return genai_gguf_check(imp->gguf, err);
	}
	for (uint64_t i = 0; i < n; i++) {
		const uint8_t *p = t->data + file_row(imp, site, row + i) *
						     per_row * type->bytes;

		for (uint64_t j = 0; j < per_row; j++, p += type->bytes) {
			type->unpack(p, &b);
			for (uint32_t k = 0; out_zeros && k < subs; k++)
				zero_point(r, &imp->again, type, &b, k,
					   out_zeros++);
			pack(type, &b, out_codes);
			out_codes += type->values * type->bits / 8;
			memcpy(out_scales, b.scale, subs * sizeof(float));
			out_scales += subs;
			if (out_terms) {
				memcpy(out_terms, b.offset,
				       subs * sizeof(float));
				out_terms += subs;
			}
		}
	}
	return genai_gguf_check(imp->gguf, err);
}

void imp_source(struct imp *imp, struct genai_source *out_source)
{
	out_source->self = imp;
	out_source->form = form;
	out_source->vector = vector;
	out_source->columns = columns;
	out_source->rows = rows;
	out_source->blocks = blocks;
}
