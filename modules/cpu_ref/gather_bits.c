// gather_bits.c - GatherBlockQuantized: rows of a quantised table, as floats.
// Two forms: bytes with several elements each (attribute bits), and elements of
// type int4 or uint4.
#include "modules/cpu_ref/kernels.h"
#include "modules/cpu_ref/ops.h"

struct gb_state {
	int64_t V, D, blocks, count; // rows, elements of one, ..., indices
	int64_t block, row, z_row;   // bytes
	uint32_t bits, rank;
	bool typed; // int4 or uint4
	bool sign;
};
EXEC_STATE(gb_state, cref_node)

static int32_t gb_attrs(struct cref_node *n, struct gb_state *s,
			struct genai_error *err)
{
	const int64_t bits = exec_attr_int(n->node, "bits", 4);
	const int64_t gather = exec_attr_int(n->node, "gather_axis", 0);
	int64_t quant = exec_attr_int(n->node, "quantize_axis", 1);
	int32_t rc = ops_check(n, exec_gather_bits_attrs, 3, 4, 1, err);

	if (rc)
		return rc;
	s->block = exec_attr_int(n->node, "block_size", 128);
	if (s->block < 16 || s->block > 1 << 20 || (s->block & (s->block - 1)))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "block_size %lld, must be a power of two "
				      "from 16 to 1048576",
				      (long long)s->block);
	if (bits != 4 && bits != 8 && bits != 2)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "bits %lld, carried: 2, 4, 8",
				      (long long)bits);
	quant = quant < 0 ? quant + n->in[0]->rank : quant;
	if (gather != 0 || n->in[0]->rank < 2 || quant != n->in[0]->rank - 1)
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "gather_axis %lld, quantize_axis %lld "
				      "of shape %s, carried: first and last",
				      (long long)gather, (long long)quant,
				      EXEC_SHAPE(n->in[0]));
	s->bits = (uint32_t)bits;
	return GENAI_OK;
}

static int32_t gb_inputs(struct cref_node *n, struct gb_state *s,
			 struct genai_error *err)
{
	const struct exec_tensor *d = n->in[0];
	int64_t dims[GENAI_MAX_RANK];
	int32_t rc;

	if ((rc = ops_need_dtype(n, 0,
				 OPS_BIT(GENAI_DT_U8) | OPS_BIT(GENAI_DT_I4) |
					 OPS_BIT(GENAI_DT_U4),
				 err)) ||
	    (rc = ops_need_dtype(n, 1, OPS_INDEX, err)) ||
	    (rc = ops_need_dtype(n, 2, OPS_F32S, err)) ||
	    (rc = ops_need_same_dtype(n, 0, 3, err)))
		return rc;
	s->typed = d->dtype != GENAI_DT_U8;
	s->sign = d->dtype == GENAI_DT_I4;
	s->bits = s->typed ? 4 : s->bits;
	s->row = d->dims[d->rank - 1];
	s->D = s->typed ? s->row : s->row * (8 / (int64_t)s->bits);
	s->V = d->dims[0];
	for (uint32_t i = 1; i + 1 < d->rank; i++)
		if (d->dims[i] != 1)
			return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
					      "input 0 of shape %s, carried: "
					      "two dims",
					      EXEC_SHAPE(d));
	s->blocks = (s->D + s->block - 1) / s->block;
	s->z_row =
		s->typed ? s->blocks : (s->blocks * (int64_t)s->bits + 7) / 8;
	// rows and dims of one as the data has them
	memcpy(dims, d->dims, sizeof(dims));
	dims[d->rank - 1] = s->blocks;
	rc = ops_need_shape(n, 2, d->rank, dims, false, err);
	dims[d->rank - 1] = s->z_row;
	return rc ? rc : ops_need_shape(n, 3, d->rank, dims, false, err);
}

int32_t cref_gather_bits_prepare(struct cref_node *n, struct genai_error *err)
{
	struct gb_state s = {0};
	const struct exec_tensor *d, *x;
	int64_t dims[GENAI_MAX_RANK] = {0};
	uint32_t rank;
	int32_t rc;

	if ((rc = gb_attrs(n, &s, err)) || (rc = gb_inputs(n, &s, err)))
		return rc;
	d = n->in[0];
	x = n->in[1];
	rank = x->rank + d->rank - 1;
	if (rank > GENAI_MAX_RANK)
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "output would have rank %u", rank);
	memcpy(dims, x->dims, x->rank * sizeof(*dims));
	for (uint32_t i = 1; i < d->rank; i++)
		dims[x->rank + i - 1] = d->dims[i];
	dims[rank - 1] = s.D;
	s.count = (int64_t)exec_count(x);
	*gb_state(n) = s;
	return ops_out(n, 0, n->in[2]->dtype, rank, dims, err);
}

// Element i of packed integers.
static int gb_at(const unsigned char *p, uint32_t bits, uint64_t i, bool sign)
{
	const unsigned per = 8 / bits;
	const int v = p[i / per] >> i % per * bits & ((1 << bits) - 1);

	return sign && v >= 8 ? v - 16 : v;
}

static void gb_row(const struct cref_node *n, const struct gb_state *s,
		   int64_t index, void *out)
{
	const unsigned char *q = n->in[0]->data;
	const struct exec_tensor *sc = n->in[2];
	const struct exec_tensor *zt = n->n_in > 3 ? n->in[3] : NULL;
	const uint64_t r = (uint64_t)index, D = (uint64_t)s->D;
	const uint64_t z_flat = r * (uint64_t)s->z_row;
	uint64_t at = 0;

	// typed elements are packed across rows, bytes are not
	if (s->typed)
		at = r * D;
	else
		q += r * (uint64_t)s->row;
	for (uint64_t b = 0; b < (uint64_t)s->blocks; b++) {
		const uint64_t end = (b + 1) * (uint64_t)s->block;
		const float scale = cref_load(sc->data, sc->dtype,
					      r * (uint64_t)s->blocks + b);
		int zero = s->typed ? 0 : 1 << (s->bits - 1);

		if (zt && s->typed)
			zero = gb_at(zt->data, 4, z_flat + b, s->sign);
		else if (zt)
			zero = gb_at((const unsigned char *)zt->data + z_flat,
				     s->bits, b, false);
		for (uint64_t i = b * (uint64_t)s->block; i < end && i < D;
		     i++) {
			const int v = gb_at(q, s->bits, at + i, s->sign);

			cref_store(out, sc->dtype, i,
				   (float)(v - zero) * scale);
		}
	}
}

int32_t cref_gather_bits_run(struct cref_node *n, const struct cref_run *r)
{
	const struct gb_state s = *gb_state(n);
	uint64_t size;

	size = (uint64_t)s.D * (exec_bits(n->out[0]->dtype) / 8);
	for (int64_t i = 0; i < s.count; i++) {
		int64_t x = ops_get_int(n->in[1], n->in[1]->data, (uint64_t)i);

		if (x < -s.V || x >= s.V)
			return cref_node_fail(n, r->err, GENAI_E_INVAL,
					      "index %lld at %lld is outside "
					      "[-%lld, %lld)",
					      (long long)x, (long long)i,
					      (long long)s.V, (long long)s.V);
		gb_row(n, &s, x < 0 ? x + s.V : x,
		       (char *)n->out[0]->data + (uint64_t)i * size);
	}
	return GENAI_OK;
}
