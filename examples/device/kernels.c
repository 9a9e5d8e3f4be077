// kernels.c - a few operators in the plainest way.  Sums go from the first
// element to the last, whatever the number of rows: so a row's result does not
// depend on its neighbours.
#include "small.h"

#include <math.h>
#include <string.h>

static int32_t refuse(const struct unit *u, struct genai_error *err,
		      const char *why)
{
	return FAIL(u->dev, err, GENAI_E_UNSUPPORTED, "node %s (%s): %s",
		    u->node->name, u->node->op, why);
}

static int64_t attr_int(const struct genai_node *n, const char *name, int64_t d)
{
	for (uint32_t i = 0; i < n->n_attrs; i++)
		if (!strcmp(genai_node_attr(n, i)->name, name))
			return genai_node_attr(n, i)->i;
	return d;
}

static float attr_float(const struct genai_node *n, const char *name, float d)
{
	for (uint32_t i = 0; i < n->n_attrs; i++)
		if (!strcmp(genai_node_attr(n, i)->name, name))
			return (float)genai_node_attr(n, i)->f;
	return d;
}

// Dense, of floats.
static void set_out(struct unit *u, uint32_t rank, const int64_t *dims)
{
	u->out->dtype = GENAI_DT_F32;
	u->out->rank = rank;
	memcpy(u->out->dims, dims, rank * sizeof(*dims));
	exec_dense(rank, u->out->dims, u->out->strides);
}

static int64_t rows_of(const struct exec_tensor *t)
{
	int64_t n = 1;

	for (uint32_t i = 0; i + 1 < t->rank; i++)
		n *= t->dims[i];
	return n;
}

static int32_t is_f32(const struct unit *u, uint32_t i)
{
	return u->in[i] && u->in[i]->dtype == GENAI_DT_F32 && u->in[i]->rank;
}

// ---- Add, of equal shapes ----

static int32_t add_shape(struct unit *u, struct genai_error *err)
{
	if (u->n_in != 2 || !is_f32(u, 0) || !is_f32(u, 1) ||
	    u->in[0]->rank != u->in[1]->rank ||
	    memcmp(u->in[0]->dims, u->in[1]->dims,
		   u->in[0]->rank * sizeof(u->in[0]->dims[0])))
		return refuse(u, err, "two floats of one shape are served");
	set_out(u, u->in[0]->rank, u->in[0]->dims);
	return 0;
}

static int32_t add_run(const struct part *p, void *const *mem,
		       struct genai_error *err)
{
	const struct unit *u = p->unit;
	const float *a = mem[0], *b = mem[1];
	float *y = mem[u->n_in];
	uint64_t n = exec_bytes(u->out) / sizeof(float);

	(void)err;
	for (uint64_t i = 0; i < n; i++)
		y[i] = a[i] + b[i];
	return 0;
}

// ---- Gather, rows of a table ----

static int32_t gather_shape(struct unit *u, struct genai_error *err)
{
	const struct exec_tensor *ids = u->in[1];
	int64_t dims[GENAI_MAX_RANK];

	if (u->n_in != 2 || !is_f32(u, 0) || u->in[0]->rank != 2 || !u->in[1] ||
	    ids->dtype != GENAI_DT_I64 || ids->rank >= GENAI_MAX_RANK ||
	    attr_int(u->node, "axis", 0))
		return refuse(u, err, "rows of a float table are served");
	memcpy(dims, ids->dims, sizeof(dims));
	dims[ids->rank] = u->in[0]->dims[1];
	set_out(u, ids->rank + 1, dims);
	return 0;
}

static int32_t gather_run(const struct part *p, void *const *mem,
			  struct genai_error *err)
{
	const struct unit *u = p->unit;
	const float *table = mem[0];
	const int64_t *ids = mem[1];
	int64_t width = u->in[0]->dims[1], rows = u->in[0]->dims[0];
	uint64_t n = exec_bytes(u->in[1]) / sizeof(*ids);
	float *y = mem[u->n_in];

	for (uint64_t i = 0; i < n; i++) {
		int64_t id = ids[i] < 0 ? ids[i] + rows : ids[i];

		if (id < 0 || id >= rows)
			return FAIL(u->dev, err, GENAI_E_INVAL,
				    "node %s (Gather): index %lld of %lld rows",
				    u->node->name, (long long)ids[i],
				    (long long)rows);
		memcpy(y + i * (uint64_t)width, table + id * width,
		       (size_t)width * sizeof(float));
	}
	return 0;
}

// ---- SimplifiedLayerNormalization ----

static int32_t norm_shape(struct unit *u, struct genai_error *err)
{
	if (u->n_in != 2 || !is_f32(u, 0) || !is_f32(u, 1) ||
	    u->in[1]->rank != 1 ||
	    u->in[1]->dims[0] != u->in[0]->dims[u->in[0]->rank - 1])
		return refuse(u, err, "floats along the last axis are served");
	set_out(u, u->in[0]->rank, u->in[0]->dims);
	return 0;
}

static int32_t norm_run(const struct part *p, void *const *mem,
			struct genai_error *err)
{
	const struct unit *u = p->unit;
	const float *x = mem[0], *scale = mem[1];
	int64_t n = u->in[1]->dims[0], rows = rows_of(u->out);
	float eps = attr_float(u->node, "epsilon", 1e-5f);
	float *y = mem[u->n_in];

	(void)err;
	for (int64_t r = 0; r < rows; r++, x += n, y += n) {
		double sum = 0;
		float inv;

		for (int64_t i = 0; i < n; i++)
			sum += (double)x[i] * (double)x[i];
		inv = 1 / sqrtf((float)(sum / (double)n) + eps);
		for (int64_t i = 0; i < n; i++)
			y[i] = x[i] * inv * scale[i];
	}
	return 0;
}

// ---- MatMulNBits, 4 bits ----

static int32_t nbits_shape(struct unit *u, struct genai_error *err)
{
	int64_t k = attr_int(u->node, "K", 0), n = attr_int(u->node, "N", 0);
	int64_t block = attr_int(u->node, "block_size", 0);
	int64_t dims[GENAI_MAX_RANK];

	if (u->n_in < 3 || !is_f32(u, 0) || k <= 0 || n <= 0 ||
	    u->in[0]->dims[u->in[0]->rank - 1] != k ||
	    attr_int(u->node, "bits", 4) != 4 || block < 16 || k % block ||
	    u->in[1]->dtype != GENAI_DT_U8 || !is_f32(u, 2) ||
	    exec_bytes(u->in[1]) != (uint64_t)(n * k / 2) ||
	    exec_bytes(u->in[2]) != (uint64_t)(n * k / block * 4) ||
	    (u->in[3] && u->in[3]->dtype != GENAI_DT_U8) || u->in[4] ||
	    (u->in[5] && u->in[5]->dtype != GENAI_DT_F32))
		return refuse(u, err, "float by 4 bits in blocks is served");
	memcpy(dims, u->in[0]->dims, sizeof(dims));
	dims[u->in[0]->rank - 1] = n;
	set_out(u, u->in[0]->rank, dims);
	return 0;
}

static float nbits_dot(const float *x, const uint8_t *q, const float *scale,
		       const uint8_t *zero, int64_t k, int64_t block)
{
	float sum = 0;

	for (int64_t b = 0; b * block < k; b++) {
		int z = zero ? zero[b / 2] >> (b % 2 * 4) & 15 : 8;
		float part = 0;

		for (int64_t i = b * block; i < (b + 1) * block; i++)
			part += x[i] *
				(float)((q[i / 2] >> (i % 2 * 4) & 15) - z);
		sum += part * scale[b];
	}
	return sum;
}

static int32_t nbits_run(const struct part *p, void *const *mem,
			 struct genai_error *err)
{
	const struct unit *u = p->unit;
	int64_t k = attr_int(u->node, "K", 0), n = attr_int(u->node, "N", 0);
	int64_t block = attr_int(u->node, "block_size", 0), blocks = k / block;
	const float *x = mem[0], *scale = mem[2];
	const uint8_t *q = mem[1];
	const uint8_t *zero = u->in[3] ? mem[3] : NULL;
	const float *bias = u->in[5] ? mem[5] : NULL;
	float *y = mem[u->n_in];
	int64_t rows = rows_of(u->out);

	(void)err;
	for (int64_t m = 0; m < rows; m++)
		for (uint64_t j = p->row_begin; j < p->row_end; j++) {
			int64_t r = (int64_t)(j - p->row_begin);

			y[m * n + (int64_t)j] =
				nbits_dot(x + m * k, q + r * k / 2,
					  scale + r * blocks,
					  zero ? zero + r * ((blocks + 1) / 2)
					       : NULL,
					  k, block) +
				(bias ? bias[j] : 0);
		}
	return 0;
}

const struct kernel kernels[] = {
	{"", "Add", {0}, add_shape, add_run},
	{"", "Gather", {.gathered = IN(0)}, gather_shape, gather_run},
	{"", "SimplifiedLayerNormalization", {0}, norm_shape, norm_run},
	{"com.microsoft",
	 "MatMulNBits",
	 {.rows = IN(1) | IN(2) | IN(3)},
	 nbits_shape,
	 nbits_run},
};
const uint32_t n_kernels = sizeof(kernels) / sizeof(kernels[0]);

const struct kernel *kernel_find(const struct genai_node *n)
{
	for (uint32_t i = 0; i < n_kernels; i++)
		if (!strcmp(kernels[i].op, n->op) &&
		    !strcmp(kernels[i].domain, n->domain))
			return &kernels[i];
	return NULL;
}
