// data.c - putting values into the data file, a few megabytes at a time.
#include "core/modelgen/gen.h"
#include "core/base/half.h"

#include <errno.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define CHUNK_BYTES ((uint64_t)4 << 20)
#define STRIP_COLS 256u
#define PI 3.14159265358979323846

struct out {
	struct gen *g;
	int fd;
	const char *path;
	struct genai_error *err;
	void *half; // CHUNK_BYTES, for conversion
};

static int32_t put(struct out *o, uint64_t at, const void *data, uint64_t bytes)
{
	const struct genai_gen_options *opt = o->g->options;
	const uint8_t *p = data;

	while (bytes) {
		size_t part = bytes < CHUNK_BYTES ? bytes : CHUNK_BYTES;
		ssize_t n = pwrite(o->fd, p, part, (off_t)at);

		if (n < 0 && errno == EINTR)
			continue;
		if (n <= 0)
			return genai_fail(o->err, GENAI_E_IO,
					  "%s: cannot write at byte %llu: %s",
					  o->path, (unsigned long long)at,
					  n ? strerror(errno) : "no progress");
		p += n;
		at += (uint64_t)n;
		bytes -= (uint64_t)n;
		o->g->done_bytes += (uint64_t)n;
	}
	if (opt->progress && opt->progress(opt->progress_ctx, o->g->done_bytes,
					   o->g->data_bytes))
		return genai_fail(o->err, GENAI_E_INTERRUPTED,
				  "%s: stopped after %llu of %llu bytes",
				  o->path, (unsigned long long)o->g->done_bytes,
				  (unsigned long long)o->g->data_bytes);
	return GENAI_OK;
}

static int32_t put_as(struct out *o, uint64_t at, uint32_t dtype,
		      const float *v, uint64_t n)
{
	uint16_t *half = o->half;

	if (dtype == GENAI_DT_F32)
		return put(o, at, v, n * 4);
	while (n) {
		uint64_t part = n < CHUNK_BYTES / 2 ? n : CHUNK_BYTES / 2;
		int32_t rc;

		for (uint64_t i = 0; i < part; i++)
			half[i] = dtype == GENAI_DT_F16
					  ? genai_half_from_float(v[i])
					  : (uint16_t)(genai_float_bits(v[i]) >>
						       16);
		rc = put(o, at, half, part * 2);
		if (rc)
			return rc;
		v += part;
		n -= part;
		at += part * 2;
	}
	return GENAI_OK;
}

static int32_t put_floats(struct out *o, uint64_t at, const float *v,
			  uint64_t n)
{
	return put_as(o, at, o->g->conf->io_dtype, v, n);
}

// Elements from first on of a float matrix.
static int32_t put_values(struct out *o, const struct gen_job *job,
			  uint64_t first, const float *v, uint64_t n)
{
	uint32_t dtype = gen_dtype(o->g, &job->mat);
	uint64_t elem = dtype == GENAI_DT_F32 ? 4 : 2;

	return put_as(o, job->at + first * elem, dtype, v, n);
}

static int32_t no_memory(struct out *o, uint64_t bytes)
{
	return genai_fail(o->err, GENAI_E_NOMEM,
			  "%s: no memory for a buffer of %llu bytes", o->path,
			  (unsigned long long)bytes);
}

// The two halves of v, value by value.
static int32_t put_by_turns(struct out *o, const struct gen_job *job,
			    const float *v)
{
	const uint64_t half = job->mat.rows[0];
	float *both = malloc(2 * half * sizeof(*both));
	int32_t rc;

	if (!both)
		return no_memory(o, 2 * half * sizeof(*both));
	for (uint64_t i = 0; i < 2 * half; i++)
		both[i] = v[i % 2 * half + i / 2];
	rc = put_floats(o, job->at, both, 2 * half);
	free(both);
	return rc;
}

static int32_t write_vector(struct out *o, const struct gen_job *job)
{
	const struct genai_source *s = o->g->source;
	float *v = malloc(job->mat.n_rows * sizeof(*v));
	uint64_t row = 0;
	int32_t rc = GENAI_OK;

	if (!v)
		return no_memory(o, job->mat.n_rows * sizeof(*v));
	for (uint32_t i = 0; i < job->mat.n_sites && !rc; i++) {
		rc = s->vector(s->self, job->mat.site[i], job->mat.layer,
			       v + row, o->err);
		row += job->mat.rows[i];
	}
	if (!rc && job->mat.by_turns)
		rc = put_by_turns(o, job, v);
	else if (!rc)
		rc = job->wide
			     ? put(o, job->at, v, job->mat.n_rows * sizeof(*v))
			     : put_floats(o, job->at, v, job->mat.n_rows);
	free(v);
	return rc;
}

static int32_t write_columns(struct out *o, const struct gen_job *job)
{
	const struct genai_source *s = o->g->source;
	const struct gen_mat *m = &job->mat;
	uint64_t strip = m->cols < STRIP_COLS ? m->cols : STRIP_COLS;
	uint64_t bytes = strip * m->n_rows * sizeof(float);
	float *v = malloc(bytes);
	int32_t rc = GENAI_OK;

	if (!v)
		return no_memory(o, bytes);
	for (uint64_t col = 0; col < m->cols && !rc; col += strip) {
		uint64_t n = m->cols - col < strip ? m->cols - col : strip;
		uint64_t row = 0;

		for (uint32_t i = 0; i < m->n_sites && !rc; i++) {
			rc = s->columns(s->self, m->site[i], m->layer, col, n,
					m->n_rows, v + row, o->err);
			row += m->rows[i];
		}
		if (!rc)
			rc = put_values(o, job, col * m->n_rows, v,
					n * m->n_rows);
	}
	free(v);
	return rc;
}

static int32_t write_rows(struct out *o, const struct gen_job *job)
{
	const struct genai_source *s = o->g->source;
	const struct gen_mat *m = &job->mat;
	uint64_t part = CHUNK_BYTES / 4 / m->cols;
	float *v;
	int32_t rc = GENAI_OK;

	part = part ? part : 1;
	v = malloc(part * m->cols * sizeof(*v));
	if (!v)
		return no_memory(o, part * m->cols * sizeof(*v));
	for (uint64_t row = 0; row < m->n_rows && !rc; row += part) {
		uint64_t n = m->n_rows - row < part ? m->n_rows - row : part;

		if (!m->by_turns)
			rc = s->rows(s->self, m->site[0], m->layer, row, n, v,
				     o->err);
		for (uint64_t r = row; m->by_turns && !rc && r < row + n; r++)
			rc = s->rows(s->self, m->site[r % 2], m->layer, r / 2,
				     1, v + (r - row) * m->cols, o->err);
		if (!rc)
			rc = put_values(o, job, row * m->cols, v, n * m->cols);
	}
	free(v);
	return rc;
}

// Buffers of one chunk of rows of blocks.
struct chunk {
	uint8_t *codes;
	float *scales, *zeros, *terms;
	float *terms_t; // [blocks, rows] of the whole matrix
};

static int32_t put_chunk(struct out *o, const struct gen_job *job,
			 const struct chunk *c, uint64_t row, uint64_t n)
{
	const struct gen_mat *m = &job->mat;
	uint64_t nb = m->cols / m->form.block, elem = gen_elem(o->g);
	uint64_t row_bytes = m->cols * m->form.bits / 8, at = row * nb * elem;
	int32_t rc;

	rc = put(o, job->at + row * row_bytes, c->codes, n * row_bytes);
	if (!rc)
		rc = put_floats(o, job->scales + at, c->scales, n * nb);
	if (!rc && job->zeros)
		rc = put_floats(o, job->zeros + at, c->zeros, n * nb);
	if (!rc && job->terms)
		rc = put_floats(o, job->terms + at, c->terms, n * nb);
	for (uint64_t r = 0; !rc && job->terms_t && r < n; r++)
		for (uint64_t b = 0; b < nb; b++)
			c->terms_t[b * m->n_rows + row + r] =
				c->terms[r * nb + b];
	return rc;
}

// Rows of two matrices, one of each.
static int32_t write_turns(struct out *o, const struct gen_job *job,
			   const struct chunk *c, uint64_t part)
{
	const struct genai_source *s = o->g->source;
	const struct gen_mat *m = &job->mat;
	uint64_t nb = m->cols / m->form.block;
	uint64_t row_bytes = m->cols * m->form.bits / 8;
	int32_t rc = GENAI_OK;

	for (uint64_t row = 0; row < m->n_rows && !rc; row += part) {
		uint64_t left = m->n_rows - row;
		uint64_t n = left < part ? left : part;

		for (uint64_t i = 0; i < n && !rc; i++)
			rc = s->blocks(s->self, m->site[(row + i) % 2],
				       m->layer, (row + i) / 2, 1,
				       c->codes + i * row_bytes,
				       c->scales + i * nb,
				       job->zeros ? c->zeros + i * nb : NULL,
				       NULL, o->err);
		if (!rc)
			rc = put_chunk(o, job, c, row, n);
	}
	return rc;
}

static int32_t write_chunks(struct out *o, const struct gen_job *job,
			    const struct chunk *c, uint64_t part)
{
	const struct genai_source *s = o->g->source;
	const struct gen_mat *m = &job->mat;
	uint64_t nb = m->cols / m->form.block, base = 0;
	bool terms = job->terms || job->terms_t;
	int32_t rc = GENAI_OK;

	for (uint32_t i = 0; i < m->n_sites && !rc; i++) {
		for (uint64_t row = 0; row < m->rows[i] && !rc; row += part) {
			uint64_t left = m->rows[i] - row;
			uint64_t n = left < part ? left : part;

			rc = s->blocks(s->self, m->site[i], m->layer, row, n,
				       c->codes, c->scales,
				       job->zeros ? c->zeros : NULL,
				       terms ? c->terms : NULL, o->err);
			if (!rc)
				rc = put_chunk(o, job, c, base + row, n);
		}
		base += m->rows[i];
	}
	if (!rc && job->terms_t)
		rc = put_floats(o, job->terms_t, c->terms_t, nb * m->n_rows);
	return rc;
}

static int32_t write_blocks(struct out *o, const struct gen_job *job)
{
	const struct gen_mat *m = &job->mat;
	uint64_t row_bytes = m->cols * m->form.bits / 8;
	uint64_t nb = m->cols / m->form.block;
	uint64_t part = row_bytes < CHUNK_BYTES ? CHUNK_BYTES / row_bytes : 1;
	uint64_t codes = part * row_bytes, scales = part * nb * sizeof(float);
	uint64_t whole = job->terms_t ? nb * m->n_rows * sizeof(float) : 0;
	uint8_t *mem = malloc(codes + 3 * scales + whole + 16);
	struct chunk c;
	int32_t rc;

	if (!mem)
		return no_memory(o, codes + 3 * scales + whole);
	// floats first: they need the alignment
	c.scales = (float *)(void *)mem;
	c.zeros = c.scales + part * nb;
	c.terms = c.zeros + part * nb;
	c.terms_t = c.terms + part * nb;
	c.codes = mem + 3 * scales + whole;
	rc = m->by_turns ? write_turns(o, job, &c, part)
			 : write_chunks(o, job, &c, part);
	free(mem);
	return rc;
}

// The wave that turns so many times within the context: its number.
static double yarn_wave(const struct genai_genconf *c, double turns)
{
	return c->rotary * log(c->yarn_context / (turns * 2 * PI)) /
	       (2 * log(c->theta));
}

// Waves that turn more than 32 times keep their rate, those that turn less than
// once are stretched, and between them it changes linearly.
static void yarn_rates(const struct genai_genconf *c, float *rates)
{
	double low = floor(yarn_wave(c, 32)), high = ceil(yarn_wave(c, 1));

	low = low > 0 ? low : 0;
	high = high < c->rotary - 1 ? high : c->rotary - 1;
	for (uint32_t i = 0; i < c->rotary / 2; i++) {
		double span = high - low > 0.001 ? high - low : 0.001;
		double y = (i - low) / span;

		y = y < 0 ? 0 : y > 1 ? 1 : y;
		rates[i] *= (float)(1 - y + y / c->yarn_factor);
	}
}

// cos and sin of position * rate, the rates and angles in float32 as the
// models' reference code has them.
static int32_t write_rope(struct out *o, const struct gen_job *job)
{
	const struct genai_genconf *c = o->g->conf;
	double theta = job->rope_local ? c->theta_local : c->theta;
	uint64_t half = c->rotary / 2, part = 16384 / half + 1;
	float *v = malloc((2 * part + 1) * half * sizeof(*v)), *cosv, *sinv;
	float size = 1;
	int32_t rc = GENAI_OK;

	if (!v)
		return no_memory(o, (2 * part + 1) * half * sizeof(*v));
	cosv = v + half;
	sinv = cosv + part * half;
	for (uint64_t i = 0; i < half; i++) {
		v[i] = 1.0f / (float)pow(theta, 2.0 * (double)i / c->rotary);
		if (job->rope_local)
			continue;
		if (c->rope_factors)
			v[i] /= c->rope_factors[i];
		v[i] = (float)(v[i] / c->rope_scale);
	}
	if (c->yarn_factor > 0) {
		yarn_rates(c, v);
		size = (float)(1 + 0.1 * log(c->yarn_factor));
	}
	for (uint64_t pos = 0; pos < c->context && !rc; pos += part) {
		uint64_t n = c->context - pos < part ? c->context - pos : part;
		uint64_t at = pos * half * gen_elem(o->g);

		for (uint64_t i = 0; i < n * half; i++) {
			float a = (float)(pos + i / half) * v[i % half];

			cosv[i] = (float)cos(a) * size;
			sinv[i] = (float)sin(a) * size;
		}
		rc = put_floats(o, job->at + at, cosv, n * half);
		if (!rc)
			rc = put_floats(o, job->rope_sin + at, sinv, n * half);
	}
	free(v);
	return rc;
}

static int32_t write_job(struct out *o, const struct gen_job *job)
{
	switch (job->kind) {
	case GEN_VECTOR:
		return write_vector(o, job);
	case GEN_COLUMNS:
		return write_columns(o, job);
	case GEN_ROWS:
		return write_rows(o, job);
	case GEN_BLOCKS:
		return write_blocks(o, job);
	case GEN_ROPE:
		return write_rope(o, job);
	}
	return GENAI_OK;
}

int32_t gen_data_write(struct gen *g, int fd, const char *path,
		       struct genai_error *err)
{
	struct out o = {g, fd, path, err, malloc(CHUNK_BYTES)};
	int32_t rc = GENAI_OK;

	if (!o.half)
		return no_memory(&o, CHUNK_BYTES);
	for (uint32_t i = 0; i < g->n_jobs && !rc; i++)
		rc = write_job(&o, &g->jobs[i]);
	free(o.half);
	return rc;
}
