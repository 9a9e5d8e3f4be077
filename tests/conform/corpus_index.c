// corpus_index.c - Gather, GatherBlockQuantized, RotaryEmbedding and
// MRotaryEmbedding.
#include <math.h>
#include <stdlib.h>

#include "tests/conform/one.h"

static const uint32_t floats[3] = {GENAI_DT_F32, GENAI_DT_F16, GENAI_DT_BF16};

static void gather_case(struct check *c, uint32_t dt, int64_t rows, int64_t dim,
			bool axis1)
{
	int64_t dd[2] = {axis1 ? 5 : rows, axis1 ? rows : dim}, id[2] = {2, 3};
	int64_t idx[6] = {0, rows - 1, -1, rows / 2, -rows, 1 % rows};
	int64_t od[3] = {axis1 ? 5 : 2, axis1 ? 2 : 3, axis1 ? 3 : dim};
	uint64_t n = (uint64_t)(od[0] * od[1] * od[2]);
	void *data = rnd_tensor(dt, (uint64_t)(dd[0] * dd[1]), -3, 3);
	void *out = calloc(n, 4);
	double *want = calloc(n, sizeof(*want)), *tol = calloc(n, sizeof(*tol));

	if (check_begin(c, "gather dtype %u rows %lld dim %lld axis %d", dt,
			(long long)rows, (long long)dim, axis1)) {
		for (uint64_t i = 0; i < n; i++) {
			uint64_t k = axis1 ? i % 6 : i / (uint64_t)dim;
			int64_t r = idx[k] < 0 ? idx[k] + rows : idx[k];
			int64_t at =
				axis1 ? (int64_t)(i / 6) * rows + r
				      : r * dim + (int64_t)(i % (uint64_t)dim);

			want[i] = op_load(dt, data, (uint64_t)at);
			tol[i] = 1e-30;
		}
		one_begin();
		one_in(op_const(&one.g, dt, 2, dd, data));
		one_in(op_input(&one.g, GENAI_DT_I64, 2, id, idx));
		one_node("", "Gather");
		op_attr_int(&one.g, "axis", axis1);
		one_run(c, dt, 3, od, out);
		one_check(c, dt, out, want, tol, n);
	}
	free(data);
	free(out);
	free(want);
	free(tol);
}

static int quad(const uint8_t *p, int64_t k, int64_t bits)
{
	return bits == 8 ? p[k] : p[k / 2] >> (k % 2 * 4) & 15;
}

// form: 0 packed uint8, 1 INT4, 2 UINT4
static void gbq_case(struct check *c, uint32_t dt, int form, int64_t bits,
		     bool zp, int64_t dim)
{
	int64_t rows = 19, block = 32, blocks = (dim + 31) / 32;
	int64_t dd[2] = {rows, form ? dim : dim * bits / 8};
	int64_t sd[2] = {rows, blocks}, id[1] = {3}, od[2] = {3, dim};
	int64_t zd[2] = {rows, form ? blocks : (blocks * bits + 7) / 8};
	int64_t zrow = (blocks * bits + 7) / 8, idx[3] = {18, 0, -2};
	uint8_t *data = rnd_bytes((uint64_t)(rows * dim * bits / 8));
	uint8_t *z = rnd_bytes((uint64_t)(rows * zrow));
	void *s = rnd_tensor(dt, (uint64_t)(rows * blocks), -1, 1);
	void *out = calloc((size_t)(3 * dim), 4);
	double *want = calloc((size_t)(3 * dim), sizeof(*want));
	double *tol = calloc((size_t)(3 * dim), sizeof(*tol));
	uint32_t type = form == 0   ? GENAI_DT_U8
			: form == 1 ? GENAI_DT_I4
				    : GENAI_DT_U4;

	if (check_begin(c, "gbq dtype %u form %d bits %lld zp %d dim %lld", dt,
			form, (long long)bits, zp, (long long)dim)) {
		for (int64_t i = 0; i < 3 * dim; i++) {
			int64_t r = idx[i / dim], d = i % dim;
			int q, zero = form ? 0 : 1 << (bits - 1);

			r += r < 0 ? rows : 0;
			q = quad(data + r * dim * bits / 8, d, bits);
			if (zp)
				zero = quad(z + r * zrow, d / block, bits);
			if (form == 1) {
				q -= q > 7 ? 16 : 0;
				zero -= zp && zero > 7 ? 16 : 0;
			}
			want[i] = (q - zero) *
				  (double)op_load(
					  dt, s,
					  (uint64_t)(r * blocks + d / block));
			tol[i] = 1.01 * unit_of(dt) * fabs(want[i]) + 0x1p-24;
		}
		one_begin();
		one_in(op_const(&one.g, type, 2, dd, data));
		one_in(op_input(&one.g, GENAI_DT_I64, 1, id, idx));
		one_in(op_const(&one.g, dt, 2, sd, s));
		if (zp)
			one_in(op_const(&one.g, type, 2, zd, z));
		one_node("com.microsoft", "GatherBlockQuantized");
		if (!form)
			op_attr_int(&one.g, "bits", bits);
		op_attr_int(&one.g, "block_size", block);
		op_attr_int(&one.g, "quantize_axis", 1);
		op_attr_int(&one.g, "gather_axis", 0);
		one_run(c, dt, 2, od, out);
		one_check(c, dt, out, want, tol, (uint64_t)(3 * dim));
	}
	free(data);
	free(z);
	free(s);
	free(out);
	free(want);
	free(tol);
}

static void rope_case(struct check *c, uint32_t dt, bool four, bool inter,
		      int64_t rot, bool offset)
{
	int64_t heads = 3, seq = 4, size = 16, half = rot / 2, rows = 9;
	int64_t x3[3] = {1, seq, heads * size}, x4[4] = {1, heads, seq, size};
	int64_t pd[2] = {1, seq}, od[1] = {1}, cd[2] = {rows, half};
	int64_t pos[4] = {3, 8, 0, 5}, n = heads * seq * size;
	void *x = rnd_tensor(dt, (uint64_t)n, -2, 2),
	     *out = calloc((size_t)n, 4);
	void *cs = rnd_tensor(dt, (uint64_t)(rows * half), -1, 1);
	void *sn = rnd_tensor(dt, (uint64_t)(rows * half), -1, 1);
	double *want = calloc((size_t)n, sizeof(*want));
	double *tol = calloc((size_t)n, sizeof(*tol));

	if (check_begin(c, "rope dtype %u rank %d interleaved %d rot %lld %s",
			dt, four ? 4 : 3, inter, (long long)rot,
			offset ? "offset" : "positions")) {
		for (int64_t i = 0; i < n; i++) {
			int64_t d = i % size, h, s, p, k, mate;
			bool low;

			h = four ? i / size / seq : i / size % heads;
			s = four ? i / size % seq : i / size / heads;
			p = offset ? pos[0] + s : pos[s];
			k = inter ? d / 2 : d % half;
			low = inter ? !(d & 1) : d < half;
			mate = inter ? (d ^ 1) : low ? d + half : d - half;
			(void)h;
			want[i] = op_load(dt, x, (uint64_t)i);
			if (d < rot) {
				double a = want[i], b;

				b = op_load(dt, x, (uint64_t)(i - d + mate));
				want[i] =
					a * op_load(dt, cs,
						    (uint64_t)(p * half + k)) +
					(low ? -b : b) *
						op_load(dt, sn,
							(uint64_t)(p * half +
								   k));
			}
			tol[i] = 1.01 * unit_of(dt) * fabs(want[i]) + 0x1p-21;
		}
		one_begin();
		one_in(op_input(&one.g, dt, four ? 4 : 3, four ? x4 : x3, x));
		one_in(op_input(&one.g, GENAI_DT_I64, offset ? 1 : 2,
				offset ? od : pd, pos));
		one_in(op_const(&one.g, dt, 2, cd, cs));
		one_in(op_const(&one.g, dt, 2, cd, sn));
		one_node("com.microsoft", "RotaryEmbedding");
		op_attr_int(&one.g, "interleaved", inter);
		if (!four)
			op_attr_int(&one.g, "num_heads", heads);
		if (rot != size)
			op_attr_int(&one.g, "rotary_embedding_dim", rot);
		one_run(c, dt, four ? 4 : 3, four ? x4 : x3, out);
		one_check(c, dt, out, want, tol, (uint64_t)n);
	}
	free(x);
	free(out);
	free(cs);
	free(sn);
	free(want);
	free(tol);
}

// Pair i of the sections: whose position it turns by.
static int mrope_axis(const int64_t *section, bool turns, int64_t i)
{
	if (turns)
		return i % 3 == 1 && i < 3 * section[1]	  ? 1
		       : i % 3 == 2 && i < 3 * section[2] ? 2
							  : 0;
	return i < section[0] ? 0 : i < section[0] + section[1] ? 1 : 2;
}

static void mrope_case(struct check *c, uint32_t dt, bool four, bool turns,
		       const int64_t *section, int64_t size)
{
	int64_t heads = 2, batch = 2, seq = 3, rows = 9;
	int64_t half = section[0] + section[1] + section[2], rot = 2 * half;
	int64_t x3[3] = {batch, seq, heads * size};
	int64_t x4[4] = {batch, heads, seq, size};
	int64_t pd[3] = {3, batch, seq}, cd[2] = {rows, half};
	int64_t pos[18] = {0, 1, 2, 8, 7, 6, 3, 3, 3,
			   5, 4, 4, 1, 0, 8, 2, 2, 7};
	int64_t n = batch * heads * seq * size;
	void *x = rnd_tensor(dt, (uint64_t)n, -2, 2),
	     *out = calloc((size_t)n, 4);
	void *cs = rnd_tensor(dt, (uint64_t)(rows * half), -1, 1);
	void *sn = rnd_tensor(dt, (uint64_t)(rows * half), -1, 1);
	double *want = calloc((size_t)n, sizeof(*want));
	double *tol = calloc((size_t)n, sizeof(*tol));

	if (check_begin(c,
			"mrope dtype %u rank %d turns %d section %lld rot "
			"%lld of %lld",
			dt, four ? 4 : 3, turns, (long long)section[0],
			(long long)rot, (long long)size)) {
		for (int64_t i = 0; i < n; i++) {
			const int64_t d = i % size, k = d % half;
			const int64_t b = i / (heads * seq * size);
			const int64_t s =
				four ? i / size % seq : i / size / heads % seq;
			const int64_t p =
				pos[(mrope_axis(section, turns, k) * batch +
				     b) * seq +
				    s];
			const uint64_t at = (uint64_t)(p * half + k);
			double v = op_load(dt, x, (uint64_t)i), mate;

			want[i] = v;
			if (d < rot) {
				mate = op_load(dt, x,
					       (uint64_t)(d < half ? i + half
								   : i - half));
				want[i] = v * op_load(dt, cs, at) +
					  (d < half ? -mate : mate) *
						  op_load(dt, sn, at);
			}
			tol[i] = 1.01 * unit_of(dt) * fabs(want[i]) + 0x1p-21;
		}
		one_begin();
		one_in(op_input(&one.g, dt, four ? 4 : 3, four ? x4 : x3, x));
		one_in(op_input(&one.g, GENAI_DT_I64, 3, pd, pos));
		one_in(op_const(&one.g, dt, 2, cd, cs));
		one_in(op_const(&one.g, dt, 2, cd, sn));
		one_node("com.microsoft", "MRotaryEmbedding");
		op_attr_ints(&one.g, "mrope_section", section, 3);
		op_attr_int(&one.g, "mrope_layout", turns);
		if (!four)
			op_attr_int(&one.g, "num_heads", heads);
		if (rot != size)
			op_attr_int(&one.g, "rotary_embedding_dim", rot);
		one_run(c, dt, four ? 4 : 3, four ? x4 : x3, out);
		one_check(c, dt, out, want, tol, (uint64_t)n);
	}
	free(x);
	free(out);
	free(cs);
	free(sn);
	free(want);
	free(tol);
}

static void mrope_cases(struct check *c, uint32_t dt)
{
	static const int64_t sections[][3] = {
		{2, 3, 3}, {3, 3, 2}, {6, 5, 5}, {8, 0, 0}, {0, 4, 4}};

	for (int i = 0; i < 5; i++) {
		const int64_t *s = sections[i], all = s[0] + s[1] + s[2];

		mrope_case(c, dt, false, false, s, 2 * all);
		mrope_case(c, dt, true, true, s, 2 * all);
		mrope_case(c, dt, false, true, s, 2 * all + 8);
	}
}

void corpus_index(struct check *c)
{
	for (int d = 0; d < 3; d++) {
		gather_case(c, floats[d], 11, 64, false);
		gather_case(c, floats[d], 3, 7, false);
		gather_case(c, floats[d], 200, 576, false);
		gather_case(c, floats[d], 6, 1, true);
		for (int form = 0; form < 3; form++)
			for (int zp = 0; zp < 2; zp++)
				gbq_case(c, floats[d], form, 4, zp, 128);
		gbq_case(c, floats[d], 0, 8, true, 96);
		gbq_case(c, floats[d], 0, 8, false, 96);
		gbq_case(c, floats[d], 0, 4, true, 96);
		mrope_cases(c, floats[d]);
		for (int i = 0; i < 8; i++)
			rope_case(c, floats[d], i & 1, i & 2, i & 4 ? 8 : 16,
				  i % 3 == 0);
	}
}
