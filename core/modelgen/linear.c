// linear.c - matrices in the graph: products, the embedding, block forms.
#include "core/modelgen/gen.h"

#include <stdio.h>
#include <string.h>

static void name2(char *out, const char *a, const char *b)
{
	snprintf(out, GEN_NAME, "%s%s", a, b);
}

static uint64_t blocks_of(const struct gen_mat *m)
{
	return m->cols / m->form.block;
}

static const char *suffix(const struct gen_mat *m)
{
	return m->form.bits == 4 ? "_Q4" : "_Q8";
}

// Zero points that are all zero: bytes never written, so one tensor serves all
// matrices of that many rows and blocks.
static void zeros(struct gen *g, const struct gen_mat *m, char *out_name)
{
	uint64_t dims[2] = {m->n_rows, (blocks_of(m) * m->form.bits + 7) / 8};

	snprintf(out_name, GEN_NAME, "zero_points.%llux%llu",
		 (unsigned long long)dims[0], (unsigned long long)dims[1]);
	if (gen_first(g, out_name))
		gen_init(g, out_name, GENAI_DT_U8, 2, dims);
}

// Name of the sums of the input over blocks of columns; q, k and v (gate and
// up) share them.
static const char *block_sums(struct gen *g, const struct gen_mat *m,
			      const char *in)
{
	int64_t shape[4] = {0, 0, (int64_t)blocks_of(m), m->form.block};
	int64_t last = -1;
	char name[GEN_NAME], split[GEN_NAME], c[GEN_NAME];

	if (g->sums_block == m->form.block && !strcmp(g->sums_of, in))
		return g->sums;
	gen_const(g, false, shape, 4, c);
	name2(name, m->path, "/BlockSum/Reshape");
	name2(split, name, "/output_0");
	gen_node(g, "Reshape", "", name);
	gen_in(g, in);
	gen_in(g, c);
	gen_out(g, split);
	gen_end(g);
	gen_const(g, false, &last, 1, c);
	name2(name, m->path, "/BlockSum/ReduceSum");
	name2(g->sums, name, "/output_0");
	gen_node(g, "ReduceSum", "", name);
	gen_in(g, split);
	gen_in(g, c);
	gen_out(g, g->sums);
	gen_attr_int(g, "keepdims", 0);
	gen_end(g);
	snprintf(g->sums_of, sizeof(g->sums_of), "%s", in);
	g->sums_block = m->form.block;
	return g->sums;
}

// out = product + sums(in) @ offsets
static void offset_term(struct gen *g, const struct gen_mat *m, const char *in,
			const char *product, const char *offsets,
			const char *out)
{
	const char *sums = block_sums(g, m, in);
	char name[GEN_NAME], term[GEN_NAME];

	name2(name, m->path, "/Offset/MatMul");
	name2(term, name, "/output_0");
	gen_node(g, "MatMul", "", name);
	gen_in(g, sums);
	gen_in(g, offsets);
	gen_out(g, term);
	gen_end(g);
	name2(name, m->path, "/Offset/Add");
	gen_node(g, "Add", "", name);
	gen_in(g, product);
	gen_in(g, term);
	gen_out(g, out);
	gen_end(g);
}

void gen_cast(struct gen *g, const char *path, uint32_t dtype, const char *in,
	      char *out)
{
	char name[GEN_NAME];

	if (dtype == g->conf->io_dtype) {
		if (out != in)
			snprintf(out, GEN_NAME, "%s", in);
		return;
	}
	name2(name, path, "/Cast");
	gen_node(g, "Cast", "", name);
	gen_in(g, in);
	name2(out, name, "/output_0");
	gen_out(g, out);
	// GENAI_DT_* are ONNX's numbers
	gen_attr_int(g, "to", g->conf->io_dtype);
	gen_end(g);
}

static void float_matmul(struct gen *g, const struct gen_mat *m, const char *in,
			 const char *out)
{
	struct gen_job *job = gen_job_add(g, GEN_COLUMNS);
	uint64_t dims[2] = {m->cols, m->n_rows};
	char name[GEN_NAME], wide[GEN_NAME], node[GEN_NAME];

	job->mat = *m;
	name2(name, m->weight, ".MatMul.weight");
	job->at = gen_init(g, name, gen_dtype(g, m), 2, dims);
	gen_cast(g, m->path, gen_dtype(g, m), name, wide);
	name2(node, m->path, "/MatMul");
	gen_node(g, "MatMul", "", node);
	gen_in(g, in);
	gen_in(g, wide);
	gen_out(g, out);
	gen_end(g);
}

// Initialisers of a product of blocks; zero is "" where the default serves.
static void block_inits(struct gen *g, const struct gen_mat *m, char *codes,
			char *scales, char *zero, char *offsets)
{
	struct gen_job *job = gen_job_add(g, GEN_BLOCKS);
	uint64_t nb = blocks_of(m);
	uint64_t code_dims[3] = {m->n_rows, nb,
				 (uint64_t)m->form.block * m->form.bits / 8};
	uint64_t dims[2] = {m->n_rows, nb}, dims_t[2] = {nb, m->n_rows};
	char base[GEN_NAME];

	job->mat = *m;
	name2(base, m->weight, ".MatMul.weight");
	name2(codes, base, suffix(m));
	name2(scales, base, "_scales");
	zero[0] = offsets[0] = 0;
	job->at = gen_init(g, codes, GENAI_DT_U8, 3, code_dims);
	job->scales = gen_init(g, scales, g->conf->io_dtype, 2, dims);
	if (m->form.offset == GENAI_OFFSET_ZERO) {
		name2(zero, base, "_zero_points");
		job->zeros = gen_init(g, zero, g->conf->io_dtype, 2, dims);
	} else if (m->form.offset == GENAI_OFFSET_TERM) {
		zeros(g, m, zero);
		name2(offsets, base, "_offsets");
		job->terms_t =
			gen_init(g, offsets, g->conf->io_dtype, 2, dims_t);
	}
	if (m->site[0] == GENAI_SITE_HEAD)
		job->terms = g->embed_terms;
}

void gen_matmul(struct gen *g, const struct gen_mat *m, const char *in,
		const char *out)
{
	char codes[GEN_NAME], scales[GEN_NAME], zero[GEN_NAME];
	char offsets[GEN_NAME], name[GEN_NAME], product[GEN_NAME];
	bool term = m->form.offset == GENAI_OFFSET_TERM;

	if (!m->form.bits) {
		float_matmul(g, m, in, out);
		return;
	}
	block_inits(g, m, codes, scales, zero, offsets);
	name2(product, m->path, "/MatMulNBits/output_0");
	snprintf(name, sizeof(name), "%s/MatMul%s", m->path, suffix(m));
	gen_node(g, "MatMulNBits", "com.microsoft", name);
	gen_in(g, in);
	gen_in(g, codes);
	gen_in(g, scales);
	if (zero[0])
		gen_in(g, zero);
	gen_out(g, term ? product : out);
	gen_attr_int(g, "K", (int64_t)m->cols);
	gen_attr_int(g, "N", (int64_t)m->n_rows);
	if (g->conf->accuracy_level)
		gen_attr_int(g, "accuracy_level", g->conf->accuracy_level);
	gen_attr_int(g, "bits", m->form.bits);
	gen_attr_int(g, "block_size", m->form.block);
	gen_end(g);
	if (term)
		offset_term(g, m, in, product, offsets, out);
}

static void reshape(struct gen *g, const char *name, const char *in,
		    const int64_t *shape, uint32_t n, char *out)
{
	char c[GEN_NAME];

	gen_const(g, false, shape, n, c);
	name2(out, name, "/output_0");
	gen_node(g, "Reshape", "", name);
	gen_in(g, in);
	gen_in(g, c);
	gen_out(g, out);
	gen_end(g);
}

static void gather(struct gen *g, const char *name, const char *in, char *out)
{
	name2(out, name, "/output_0");
	gen_node(g, "Gather", "", name);
	gen_in(g, in);
	gen_in(g, "input_ids");
	gen_out(g, out);
	gen_end(g);
}

// Blocks of an embedding row get their offsets added: out = in + offsets.
static void embed_offsets(struct gen *g, const struct gen_mat *m,
			  const char *offsets, char *out)
{
	int64_t nb = (int64_t)blocks_of(m), cols = (int64_t)m->cols;
	int64_t split[4] = {0, 0, nb, m->form.block}, one[4] = {0, 0, nb, 1};
	int64_t whole[3] = {0, 0, cols};
	char a[GEN_NAME], b[GEN_NAME], c[GEN_NAME];

	reshape(g, "/model/embed_tokens/Offset/Reshape_1", out, split, 4, a);
	gather(g, "/model/embed_tokens/Offset/Gather", offsets, b);
	reshape(g, "/model/embed_tokens/Offset/Reshape_2", b, one, 4, c);
	gen_node(g, "Add", "", "/model/embed_tokens/Offset/Add");
	gen_in(g, a);
	gen_in(g, c);
	name2(b, "/model/embed_tokens/Offset/Add", "/output_0");
	gen_out(g, b);
	gen_end(g);
	reshape(g, "/model/embed_tokens/Offset/Reshape_3", b, whole, 3, out);
}

// Data of the gather: own initialisers, or those of the head.
static void embed_data(struct gen *g, const struct gen_mat *m, char *codes,
		       char *scales, char *zero, char *offsets)
{
	uint64_t nb = blocks_of(m);
	uint64_t row = m->cols * m->form.bits / 8;
	uint64_t code_dims[2] = {m->n_rows, row}, dims[2] = {m->n_rows, nb};
	int64_t shape[2] = {(int64_t)m->n_rows, (int64_t)row};
	bool affine = m->form.offset != GENAI_OFFSET_NONE;
	struct gen_job *job = NULL;
	char head[GEN_NAME];

	snprintf(scales, GEN_NAME, "%s_scales",
		 g->conf->tied ? "lm_head.MatMul.weight"
			       : "model.embed_tokens.weight");
	if (g->conf->tied) {
		name2(head, "lm_head.MatMul.weight", suffix(m));
		reshape(g, "/model/embed_tokens/Reshape", head, shape, 2,
			codes);
	} else {
		job = gen_job_add(g, GEN_BLOCKS);
		job->mat = *m;
		name2(codes, "model.embed_tokens.weight", suffix(m));
		job->at = gen_init(g, codes, GENAI_DT_U8, 2, code_dims);
		job->scales = gen_init(g, scales, g->conf->io_dtype, 2, dims);
	}
	zero[0] = offsets[0] = 0;
	if (affine) {
		uint64_t at;

		zeros(g, m, zero);
		name2(offsets, "model.embed_tokens.weight_offsets", "");
		at = gen_init(g, offsets, g->conf->io_dtype, 2, dims);
		if (job)
			job->terms = at;
		else
			g->embed_terms = at;
	}
}

static void float_embed(struct gen *g, const struct gen_mat *m, char *out)
{
	static const int64_t perm[2] = {1, 0};
	uint64_t dims[2] = {m->n_rows, m->cols};
	char rows[GEN_NAME];
	struct gen_job *job;

	if (!g->conf->tied) {
		job = gen_job_add(g, GEN_ROWS);
		job->mat = *m;
		job->at = gen_init(g, "model.embed_tokens.weight",
				   gen_dtype(g, m), 2, dims);
		gather(g, "/model/embed_tokens/Gather",
		       "model.embed_tokens.weight", rows);
		gen_cast(g, "/model/embed_tokens", gen_dtype(g, m), rows, out);
		return;
	}
	gen_node(g, "Transpose", "", "/model/embed_tokens/Transpose");
	gen_in(g, "lm_head.MatMul.weight");
	gen_out(g, "/model/embed_tokens/Transpose/output_0");
	gen_attr_ints(g, "perm", perm, 2);
	gen_end(g);
	gather(g, "/model/embed_tokens/Gather",
	       "/model/embed_tokens/Transpose/output_0", rows);
	gen_cast(g, "/model/embed_tokens", gen_dtype(g, m), rows, out);
}

void gen_embed(struct gen *g, const struct gen_mat *m, char *out)
{
	static const char name[] = "/model/embed_tokens/GatherBlockQuantized";
	char codes[GEN_NAME], scales[GEN_NAME], zero[GEN_NAME];
	char offsets[GEN_NAME];

	if (!m->form.bits) {
		float_embed(g, m, out);
		return;
	}
	embed_data(g, m, codes, scales, zero, offsets);
	gen_node(g, "GatherBlockQuantized", "com.microsoft", name);
	gen_in(g, codes);
	gen_in(g, "input_ids");
	gen_in(g, scales);
	if (zero[0])
		gen_in(g, zero);
	name2(out, name, "/output_0");
	gen_out(g, out);
	gen_attr_int(g, "bits", m->form.bits);
	gen_attr_int(g, "block_size", m->form.block);
	gen_attr_int(g, "gather_axis", 0);
	gen_attr_int(g, "quantize_axis", 1);
	gen_end(g);
	if (offsets[0])
		embed_offsets(g, m, offsets, out);
}
