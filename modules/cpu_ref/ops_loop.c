// ops_loop.c - loops over broadcast and strided tensors, cut into parts for
// threads.  What an element becomes never depends on how the loop is cut.
#include "modules/cpu_ref/ops.h"

void ops_rows(struct cref_pool *pool, cref_part_fn fn, void *ctx,
	      uint64_t count, uint64_t len)
{
	uint64_t grain = len < OPS_GRAIN ? OPS_GRAIN / (len ? len : 1) : 1;

	if (count)
		cref_pool_run(pool, fn, ctx, count, grain);
}

// ---- elementwise ----

void ops_ew_init(struct ops_ew *e, const struct cref_node *n, uint32_t n_in,
		 ops_ew_fn fn)
{
	const struct exec_tensor *out = n->out[0];

	e->fn = fn;
	e->n_in = n_in;
	e->rank = out->rank;
	e->out = out->data;
	e->out_dtype = out->dtype;
	e->out_class = ops_class_of(out->dtype);
	memcpy(e->dims, out->dims, sizeof(e->dims));
	atomic_init(&e->bad, 0);
	for (uint32_t i = 0; i < n_in; i++) {
		const struct exec_tensor *t = n->in[i];
		uint32_t pad = out->rank - t->rank;

		e->in[i] = t->data;
		e->in_dtype[i] = t->dtype;
		e->in_class[i] = ops_class_of(t->dtype);
		for (uint32_t d = 0; d < pad; d++)
			e->strides[i][d] = 0;
		for (uint32_t d = 0; d < t->rank; d++)
			e->strides[i][pad + d] =
				t->dims[d] == 1 ? 0 : t->strides[d];
	}
}

// Merge dims wherever every operand runs through both as through one.
static void ew_collapse(struct ops_ew *e)
{
	uint32_t r = 0;

	for (uint32_t d = 0; d < e->rank; d++) {
		int64_t dim = e->dims[d];
		bool merge = r > 0;

		if (dim == 1)
			continue;
		for (uint32_t i = 0; merge && i < e->n_in; i++)
			merge = e->strides[i][r - 1] == e->strides[i][d] * dim;
		if (!merge)
			e->dims[r++] = 1;
		e->dims[r - 1] *= dim;
		for (uint32_t i = 0; i < e->n_in; i++)
			e->strides[i][r - 1] = e->strides[i][d];
	}
	if (!r) {
		e->dims[r++] = 1;
		for (uint32_t i = 0; i < e->n_in; i++)
			e->strides[i][0] = 0;
	}
	e->rank = r;
}

// True when elements in memory are already what the class computes on.
static bool is_native(uint32_t dtype, enum ops_class c, const void *p)
{
	switch (c) {
	case OPS_F32:
		return dtype == GENAI_DT_F32 && (uintptr_t)p % 4 == 0;
	case OPS_F64:
		return dtype == GENAI_DT_F64 && (uintptr_t)p % 8 == 0;
	case OPS_I64:
		return dtype == GENAI_DT_I64 && (uintptr_t)p % 8 == 0;
	default:
		return dtype == GENAI_DT_U64 && (uintptr_t)p % 8 == 0;
	}
}

static size_t class_bytes(enum ops_class c)
{
	return c == OPS_F32 ? 4 : 8;
}

static void ew_chunk(struct ops_ew *e, const int64_t *at, int64_t pos,
		     uint32_t n, union ops_buf *bufs)
{
	const void *in[EXEC_MAX_IN];
	union ops_buf result;
	void *out = &result;
	bool direct = is_native(e->out_dtype, e->out_class, e->out);

	for (uint32_t i = 0; i < e->n_in; i++) {
		int64_t stride = e->strides[i][e->rank - 1];
		enum ops_class c = e->in_class[i];

		in[i] = &bufs[i];
		if (stride == 1 && is_native(e->in_dtype[i], c, e->in[i]))
			in[i] = (const char *)e->in[i] +
				at[i] * (int64_t)class_bytes(c);
		else
			ops_load(c, &bufs[i], e->in_dtype[i], e->in[i], at[i],
				 stride, n);
	}
	if (direct)
		out = (char *)e->out + pos * (int64_t)class_bytes(e->out_class);
	e->fn(e, in, out, n);
	if (!direct)
		ops_store(e->out_class, &result, e->out_dtype, e->out, pos, 1,
			  n);
}

static void ew_part(void *ctx, uint64_t begin, uint64_t end)
{
	struct ops_ew *e = ctx;
	union ops_buf bufs[EXEC_MAX_IN];
	int64_t index[GENAI_MAX_RANK], at[EXEC_MAX_IN] = {0};
	uint32_t last = e->rank - 1;
	int64_t rest = (int64_t)begin;

	for (uint32_t d = e->rank; d-- > 0;) {
		index[d] = rest % e->dims[d];
		rest /= e->dims[d];
		for (uint32_t i = 0; i < e->n_in; i++)
			at[i] += index[d] * e->strides[i][d];
	}
	for (int64_t pos = (int64_t)begin; pos < (int64_t)end;) {
		int64_t n = e->dims[last] - index[last];
		uint32_t d = last;

		if (n > (int64_t)end - pos)
			n = (int64_t)end - pos;
		if (n > OPS_CHUNK)
			n = OPS_CHUNK;
		ew_chunk(e, at, pos, (uint32_t)n, bufs);
		pos += n;
		index[d] += n;
		for (uint32_t i = 0; i < e->n_in; i++)
			at[i] += n * e->strides[i][d];
		while (d > 0 && index[d] == e->dims[d]) {
			for (uint32_t i = 0; i < e->n_in; i++)
				at[i] += e->strides[i][d - 1] -
					 e->dims[d] * e->strides[i][d];
			index[d] = 0;
			index[--d]++;
		}
	}
}

void ops_ew_run(struct ops_ew *e, struct cref_pool *pool)
{
	uint64_t count = 1;

	for (uint32_t d = 0; d < e->rank; d++)
		count *= (uint64_t)e->dims[d];
	if (!count)
		return;
	ew_collapse(e);
	cref_pool_run(pool, ew_part, e, count, OPS_GRAIN);
}

// ---- strided copy ----

void ops_copy_dim(struct ops_copy *c, int64_t dim, int64_t dst_stride,
		  int64_t src_stride)
{
	uint32_t r = c->rank;

	if (dim == 1)
		return;
	if (r && c->dst_strides[r - 1] == dst_stride * dim &&
	    c->src_strides[r - 1] == src_stride * dim) {
		c->dims[r - 1] *= dim;
		c->dst_strides[r - 1] = dst_stride;
		c->src_strides[r - 1] = src_stride;
		return;
	}
	c->dims[r] = dim;
	c->dst_strides[r] = dst_stride;
	c->src_strides[r] = src_stride;
	c->rank = r + 1;
}

#define COPY_LINE(T)                                                           \
	do {                                                                   \
		for (int64_t i = 0; i < n; i++) {                              \
			T v;                                                   \
			memcpy(&v, s + i * ss * (int64_t)sizeof(v),            \
			       sizeof(v));                                     \
			memcpy(d + i * ds * (int64_t)sizeof(v), &v,            \
			       sizeof(v));                                     \
		}                                                              \
	} while (0)

static void copy_line(uint32_t bytes, char *d, int64_t ds, const char *s,
		      int64_t ss, int64_t n)
{
	if (ds == 1 && ss == 1)
		memcpy(d, s, (size_t)n * bytes);
	else if (bytes == 1)
		COPY_LINE(uint8_t);
	else if (bytes == 2)
		COPY_LINE(uint16_t);
	else if (bytes == 4)
		COPY_LINE(uint32_t);
	else
		COPY_LINE(uint64_t);
}

// Lines [begin, end) of the last dim but one, in blocks of columns so that a
// transposition finds its cache lines again.
static void copy_plane(const struct ops_copy *c, char *d, const char *s,
		       int64_t begin, int64_t end)
{
	uint32_t r = c->rank;
	int64_t n = c->dims[r - 1], bytes = c->bytes;
	int64_t ds = c->dst_strides[r - 1], ss = c->src_strides[r - 1];
	int64_t block = ds == 1 && ss == 1 ? n : 64;

	for (int64_t row = begin; row < end; row += 64) {
		int64_t stop = end - row < 64 ? end : row + 64;

		for (int64_t k = 0; k < n; k += block) {
			int64_t len = n - k < block ? n - k : block;

			for (int64_t i = row; i < stop; i++)
				copy_line(c->bytes,
					  d + (i * c->dst_strides[r - 2] +
					       k * ds) * bytes,
					  ds,
					  s + (i * c->src_strides[r - 2] +
					       k * ss) * bytes,
					  ss, len);
		}
	}
}

static void copy_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct ops_copy *c = ctx;
	uint32_t lines = c->rank - 2; // the dim that counts lines of a plane
	int64_t per = c->dims[lines];

	for (int64_t at = (int64_t)begin; at < (int64_t)end;) {
		int64_t rest = at / per, first = at % per;
		int64_t stop = per, d_off = 0, s_off = 0;

		if (stop - first > (int64_t)end - at)
			stop = first + (int64_t)end - at;
		for (uint32_t k = lines; k-- > 0;) {
			int64_t index = rest % c->dims[k];

			rest /= c->dims[k];
			d_off += index * c->dst_strides[k];
			s_off += index * c->src_strides[k];
		}
		copy_plane(c, c->dst + d_off * c->bytes,
			   c->src + s_off * c->bytes, first, stop);
		at += stop - first;
	}
}

void ops_copy_run(struct ops_copy *c, struct cref_pool *pool)
{
	uint64_t lines = 1;
	int64_t cut;

	for (uint32_t d = 0; d < c->rank; d++)
		if (!c->dims[d])
			return;
	// At least two dims, so that there are lines to share out.
	while (c->rank < 2) {
		memmove(c->dims + 1, c->dims, sizeof(c->dims[0]) * c->rank);
		memmove(c->dst_strides + 1, c->dst_strides,
			sizeof(c->dst_strides[0]) * c->rank);
		memmove(c->src_strides + 1, c->src_strides,
			sizeof(c->src_strides[0]) * c->rank);
		c->dims[0] = 1;
		c->dst_strides[0] = c->src_strides[0] = 1;
		c->rank++;
	}
	for (uint32_t d = 0; d + 1 < c->rank; d++)
		lines *= (uint64_t)c->dims[d];
	cut = c->dims[c->rank - 1];
	ops_rows(pool, copy_part, c, lines, (uint64_t)cut);
}
