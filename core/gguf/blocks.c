// blocks.c - unpacking GGUF blocks.  All multi-byte fields are little-endian.
#include "core/gguf/blocks.h"

#include <math.h>

#include "core/base/half.h"

static float half_at(const uint8_t *p)
{
	return genai_float_from_half((uint16_t)(p[0] | p[1] << 8));
}

// 32 nibbles: low ones are values 0..15, high ones 16..31.
static void nibbles(const uint8_t *qs, uint8_t *out)
{
	for (int j = 0; j < 16; j++) {
		out[j] = qs[j] & 15;
		out[j + 16] = qs[j] >> 4;
	}
}

static void fifth_bits(const uint8_t *qh, uint8_t *out)
{
	for (int i = 0; i < 32; i++)
		out[i] |= (uint8_t)((qh[i / 8] >> i % 8 & 1) << 4);
}

static void q4_0(const uint8_t *p, struct genai_gguf_block *out)
{
	out->scale[0] = half_at(p);
	nibbles(p + 2, out->code);
}

static void q4_1(const uint8_t *p, struct genai_gguf_block *out)
{
	out->scale[0] = half_at(p);
	out->offset[0] = half_at(p + 2);
	nibbles(p + 4, out->code);
}

static void q5_0(const uint8_t *p, struct genai_gguf_block *out)
{
	out->scale[0] = half_at(p);
	nibbles(p + 6, out->code);
	fifth_bits(p + 2, out->code);
}

static void q5_1(const uint8_t *p, struct genai_gguf_block *out)
{
	out->scale[0] = half_at(p);
	out->offset[0] = half_at(p + 2);
	nibbles(p + 8, out->code);
	fifth_bits(p + 4, out->code);
}

static void q8_0(const uint8_t *p, struct genai_gguf_block *out)
{
	out->scale[0] = half_at(p);
	for (int i = 0; i < 32; i++)
		out->code[i] = p[2 + i] ^ 0x80; // int8 + 128
}

static void q2_k(const uint8_t *p, struct genai_gguf_block *out)
{
	float d = half_at(p + 80), dmin = half_at(p + 82);

	for (int b = 0; b < 16; b++) {
		out->scale[b] = d * (float)(p[b] & 15);
		out->offset[b] = -(dmin * (float)(p[b] >> 4));
	}
	for (int i = 0; i < 256; i++)
		out->code[i] =
			p[16 + 32 * (i / 128) + i % 32] >> 2 * (i % 128 / 32) &
			3;
}

static void q3_k(const uint8_t *p, struct genai_gguf_block *out)
{
	const uint8_t *sc = p + 96;
	float d = half_at(p + 108);

	for (int j = 0; j < 16; j++) {
		int low = j < 8 ? sc[j] & 15 : sc[j - 8] >> 4;
		int high = sc[8 + j % 4] >> 2 * (j / 4) & 3;

		out->scale[j] = d * (float)((low | high << 4) - 32);
	}
	for (int i = 0; i < 256; i++) {
		int h = i / 128, s = i % 128 / 32, l = i % 32;
		int high = p[l] >> (4 * h + s) & 1;

		out->code[i] = (uint8_t)((p[32 + 32 * h + l] >> 2 * s & 3) |
					 high << 2);
	}
}

// Scales and minimums of Q4_K and Q5_K: six bits each, eight of each.
static void k_scales(const uint8_t *p, struct genai_gguf_block *out)
{
	const uint8_t *s = p + 4;
	float d = half_at(p), dmin = half_at(p + 2);

	for (int j = 0; j < 8; j++) {
		int sc, mn;

		if (j < 4) {
			sc = s[j] & 63;
			mn = s[j + 4] & 63;
		} else {
			sc = (s[j + 4] & 15) | s[j - 4] >> 6 << 4;
			mn = s[j + 4] >> 4 | s[j] >> 6 << 4;
		}
		out->scale[j] = d * (float)sc;
		out->offset[j] = -(dmin * (float)mn);
	}
}

static void k_nibbles(const uint8_t *qs, uint8_t *out)
{
	for (int i = 0; i < 256; i++) {
		uint8_t b = qs[32 * (i / 64) + i % 32];

		out[i] = i / 32 % 2 ? b >> 4 : b & 15;
	}
}

static void q4_k(const uint8_t *p, struct genai_gguf_block *out)
{
	k_scales(p, out);
	k_nibbles(p + 16, out->code);
}

static void q5_k(const uint8_t *p, struct genai_gguf_block *out)
{
	k_scales(p, out);
	k_nibbles(p + 48, out->code);
	for (int i = 0; i < 256; i++)
		out->code[i] |= (uint8_t)((p[16 + i % 32] >> i / 32 & 1) << 4);
}

static void q6_k(const uint8_t *p, struct genai_gguf_block *out)
{
	float d = half_at(p + 208);

	for (int b = 0; b < 16; b++)
		out->scale[b] = d * (float)(int8_t)p[192 + b];
	for (int i = 0; i < 256; i++) {
		int h = i / 128, k = i % 128 / 32, l = i % 32;
		uint8_t low = p[64 * h + 32 * (k % 2) + l];

		low = k < 2 ? low & 15 : low >> 4;
		out->code[i] = (uint8_t)(low | (p[128 + 32 * h + l] >> 2 * k &
						3) << 4);
	}
}

// Codes that stand for values of a table: what they stand for, of 8 bits.
static void table_nibbles(const uint8_t *qs, const int8_t *table, uint8_t *out)
{
	for (int i = 0; i < 32; i++) {
		uint8_t b = qs[i % 16];

		out[i] = (uint8_t)(128 + table[i < 16 ? b & 15 : b >> 4]);
	}
}

static const int8_t iq4[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
			       1,    13,   25,	38,  53,  69,  89,  113};

static void iq4_nl(const uint8_t *p, struct genai_gguf_block *out)
{
	out->scale[0] = half_at(p);
	table_nibbles(p + 2, iq4, out->code);
}

static void iq4_xs(const uint8_t *p, struct genai_gguf_block *out)
{
	float d = half_at(p);
	uint32_t high = p[2] | (uint32_t)p[3] << 8;

	for (int b = 0; b < 8; b++) {
		uint32_t low = p[4 + b / 2] >> 4 * (b % 2) & 15;
		int scale = (int)(low | (high >> 2 * b & 3) << 4) - 32;

		out->scale[b] = d * (float)scale;
		table_nibbles(p + 8 + 16 * b, iq4, out->code + 32 * b);
	}
}

// Values of FP4 (E2M1) twice, so that they are whole; scales are powers of two.
static void mxfp4(const uint8_t *p, struct genai_gguf_block *out)
{
	static const int8_t fp4[16] = {0, 1,  2,  3,  4,  6,  8,  12,
				       0, -1, -2, -3, -4, -6, -8, -12};

	out->scale[0] = ldexpf(1, p[0] - 128);
	table_nibbles(p + 1, fp4, out->code);
}

static const struct genai_gguf_type types[] = {
	{0, "F32", 1, 4, 0, 0, 0, false, 0},
	{1, "F16", 1, 2, 0, 0, 0, false, 0},
	{30, "BF16", 1, 2, 0, 0, 0, false, 0},
	{2, "Q4_0", 32, 18, 32, 4, 8, false, q4_0},
	{3, "Q4_1", 32, 20, 32, 4, 0, true, q4_1},
	{6, "Q5_0", 32, 22, 32, 8, 16, false, q5_0},
	{7, "Q5_1", 32, 24, 32, 8, 0, true, q5_1},
	{8, "Q8_0", 32, 34, 32, 8, 128, false, q8_0},
	{10, "Q2_K", 256, 84, 16, 4, 0, true, q2_k},
	{11, "Q3_K", 256, 110, 16, 4, 4, false, q3_k},
	{12, "Q4_K", 256, 144, 32, 4, 0, true, q4_k},
	{13, "Q5_K", 256, 176, 32, 8, 0, true, q5_k},
	{14, "Q6_K", 256, 210, 16, 8, 32, false, q6_k},
	{20, "IQ4_NL", 32, 18, 32, 8, 128, false, iq4_nl},
	{23, "IQ4_XS", 256, 136, 32, 8, 128, false, iq4_xs},
	{39, "MXFP4", 32, 17, 32, 8, 128, false, mxfp4},
};

const char *genai_gguf_type_name(uint32_t id)
{
	static const char *const others[] = {
		[9] = "Q8_1",	 [15] = "Q8_K",	   [16] = "IQ2_XXS",
		[17] = "IQ2_XS", [18] = "IQ3_XXS", [19] = "IQ1_S",
		[21] = "IQ3_S",	 [22] = "IQ2_S",   [24] = "I8",
		[25] = "I16",	 [26] = "I32",	   [27] = "I64",
		[28] = "F64",	 [29] = "IQ1_M",   [34] = "TQ1_0",
		[35] = "TQ2_0",	 [40] = "NVFP4",
	};
	const struct genai_gguf_type *t = genai_gguf_type(id);

	if (t)
		return t->name;
	if (id < sizeof(others) / sizeof(others[0]) && others[id])
		return others[id];
	return NULL;
}

const struct genai_gguf_type *genai_gguf_type(uint32_t id)
{
	for (uint32_t i = 0; i < sizeof(types) / sizeof(types[0]); i++)
		if (types[i].id == id)
			return &types[i];
	return 0;
}

static float float_value(uint32_t id, const uint8_t *p)
{
	if (id == 0)
		return genai_float_from_bits(
			(uint32_t)p[0] | (uint32_t)p[1] << 8 |
			(uint32_t)p[2] << 16 | (uint32_t)p[3] << 24);
	if (id == 1)
		return half_at(p);
	return genai_float_from_bf16((uint16_t)(p[0] | p[1] << 8));
}

void genai_gguf_values(const struct genai_gguf_type *type, const uint8_t *data,
		       uint64_t n, float *out_values)
{
	struct genai_gguf_block b;

	for (; n; n--, data += type->bytes, out_values += type->values) {
		if (!type->unpack) {
			out_values[0] = float_value(type->id, data);
			continue;
		}
		type->unpack(data, &b);
		for (uint32_t i = 0; i < type->values; i++) {
			float v = b.scale[i / type->sub] *
				  (float)(b.code[i] - type->zero);

			if (type->affine)
				v += b.offset[i / type->sub];
			out_values[i] = v;
		}
	}
}
