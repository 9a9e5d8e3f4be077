// op_paged.c - PagedAttention: rows of many sequences over a cache in blocks.
// Lengths and the block table are read on the device, so a recorded step stays
// right whoever comes and goes.  Rows are attended to CEP_PIECE at a time by
// the kernels that GroupQueryAttention has for few tokens, which sum a row
// alike in a step of any size: so a row gives the bits that it gives there
// alone.
#include <math.h>

#include "modules/cuda_ep/op_attention.h"

enum {
	QUERY,
	KEY,
	VALUE,
	CACHE_K,
	CACHE_V,
	FIRST,
	PAST,
	TABLE,
	COS,
	SIN,
	SINK,
	Q_NORM,
	K_NORM,
	POSITIONS,
	N_INPUTS
};

static const struct cep_flash paged[] = {
	{64, false, SPLIT_BYTES(64), 4 * 16 * 144, SPLIT_MET(64),
	 CEP_K_cep_paged_64_f16, CEP_K_cep_paged_64_bf16},
	{128, false, SPLIT_BYTES(128), 4 * 16 * 272, SPLIT_MET(128),
	 CEP_K_cep_paged_128_f16, CEP_K_cep_paged_128_bf16},
	{256, false, SPLIT_BYTES(256), 4 * 16 * 528, SPLIT_MET(256),
	 CEP_K_cep_paged_256_f16, CEP_K_cep_paged_256_bf16},
	{0},
};

static int32_t check(const struct cep_node *n, struct genai_error *err)
{
	static const uint8_t same[] = {KEY, VALUE, CACHE_K, CACHE_V, COS,
				       SIN, SINK,  Q_NORM,  K_NORM};
	int32_t rc = cep_check(n, exec_paged_attrs, 1, N_INPUTS, 3, err);

	if (rc)
		return rc;
	for (uint32_t i = CACHE_K; i <= TABLE; i++)
		if (!cep_in(n, i))
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u is missing", i);
	if (n->n_out < 3 || !n->out[1] || !n->out[2])
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "a cache is not an output");
	rc = cep_need_float(n, QUERY, err);
	for (uint32_t i = 0; !rc && i < sizeof(same); i++)
		rc = cep_need_same(n, same[i], QUERY, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		if (i != CACHE_K && i != CACHE_V)
			rc = cep_need_dense(n, i, err);
	return rc;
}

// Dimension i of [length, width], or of [1, length, width].
static int64_t dim(const struct exec_tensor *t, uint32_t i)
{
	return t->dims[t->rank - 2 + i];
}

static int32_t check_rows(struct cep_node *n, struct genai_error *err)
{
	struct gqa_state *s = gqa_state(n);
	const struct exec_tensor *q = n->in[QUERY], *k = cep_in(n, KEY);
	int64_t heads = exec_attr_int(n->node, "num_heads", 0);
	int64_t kv = exec_attr_int(n->node, "kv_num_heads", 0), width;

	if (heads < 1 || kv < 1 || heads > 4096 || heads % kv ||
	    (q->rank != 2 && (q->rank != 3 || q->dims[0] != 1)))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "%lld heads over %lld, query of rank %u",
				     (long long)heads, (long long)kv, q->rank);
	width = k ? heads : heads + 2 * kv;
	s->seq = dim(q, 0);
	s->size = dim(q, 1) / width;
	if (s->size * width != dim(q, 1) || !k != !cep_in(n, VALUE) ||
	    (k &&
	     (k->rank != q->rank || dim(k, 0) != s->seq ||
	      dim(k, 1) != kv * s->size || n->in[VALUE]->rank != k->rank ||
	      memcmp(k->dims, n->in[VALUE]->dims, k->rank * sizeof(int64_t)))))
		return cep_node_fail(
			n, err, GENAI_E_FORMAT,
			"query, key and value do not fit %lld and %lld heads",
			(long long)heads, (long long)kv);
	if (s->size % 8 || !s->size || s->size > 256 || s->seq > 65535)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "head size %lld: multiples of 8 up to 256 "
				     "are known",
				     (long long)s->size);
	s->batch = 1;
	s->heads = heads;
	s->kv_heads = kv;
	s->packed = !k;
	s->windowed = false;
	return 0;
}

static int32_t check_pool(struct cep_node *n, struct genai_error *err)
{
	struct gqa_state *s = gqa_state(n);
	const struct exec_tensor *c = n->in[CACHE_K];
	const struct exec_tensor *table = n->in[TABLE], *first = n->in[FIRST];
	const struct exec_tensor *past = n->in[PAST];

	if (c->rank != 4 || c->dims[1] < 1 || c->dims[2] != s->kv_heads ||
	    c->dims[3] != s->size || n->in[CACHE_V]->rank != 4 ||
	    memcmp(c->dims, n->in[CACHE_V]->dims, 4 * sizeof(int64_t)) ||
	    c->dims[0] > INT32_MAX || c->dims[1] > INT32_MAX)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "caches are not [blocks, rows, %lld, "
				     "%lld]",
				     (long long)s->kv_heads,
				     (long long)s->size);
	if (table->rank != 2 || past->rank != 1 || first->rank != 1 ||
	    past->dims[0] != table->dims[0] ||
	    first->dims[0] != table->dims[0] + 1 ||
	    table->dtype != GENAI_DT_I32 || past->dtype != GENAI_DT_I32 ||
	    first->dtype != GENAI_DT_I32 || table->dims[0] < 1 ||
	    table->dims[1] < 1 || table->dims[0] > 65535 ||
	    table->dims[1] > INT32_MAX)
		return cep_node_fail(
			n, err, GENAI_E_FORMAT,
			"block_table, past_seqlens and "
			"cumulative_sequence_length do not fit each other");
	s->seqs = table->dims[0];
	s->per_seq = table->dims[1];
	s->blocks = c->dims[0];
	s->block = c->dims[1];
	return 0;
}

static int32_t check_extras(struct cep_node *n, struct genai_error *err)
{
	struct gqa_state *s = gqa_state(n);
	const struct exec_tensor *c = cep_in(n, COS), *pos;
	int64_t window = exec_attr_int(n->node, "local_window_size", -1);
	static const uint8_t vectors[] = {SINK, Q_NORM, K_NORM};

	s->rot = 0;
	if (exec_attr_int(n->node, "do_rotary", 0)) {
		if (!c || !cep_in(n, SIN) || c->rank != 2 ||
		    c->dims[1] * 2 > s->size || !c->dims[1] ||
		    n->in[SIN]->rank != 2 ||
		    memcmp(c->dims, n->in[SIN]->dims, 2 * sizeof(int64_t)))
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "rotary tables do not fit head "
					     "size %lld",
					     (long long)s->size);
		s->rot = c->dims[1] * 2;
	}
	if (window < -1 || !window)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "local_window_size %lld",
				     (long long)window);
	if (exec_attr_int(n->node, "smooth_softmax", 0) > 0 && cep_in(n, SINK))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "smooth_softmax and a head sink");
	pos = cep_in(n, POSITIONS);
	if (pos &&
	    (pos->dtype != GENAI_DT_I64 || exec_count(pos) != (uint64_t)s->seq))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "position_ids do not fit");
	for (uint32_t i = 0; i < sizeof(vectors); i++) {
		const struct exec_tensor *t = cep_in(n, vectors[i]);
		int64_t want = i ? s->size : s->heads;

		if (t && exec_count(t) != (uint64_t)want)
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u does not have %lld "
					     "elements",
					     vectors[i], (long long)want);
	}
	return 0;
}

// Scratch: queries, lengths and tiles that the first kernel finds, and parts of
// one piece of rows.
static void scratch(struct cep_node *n)
{
	struct gqa_state *s = gqa_state(n);
	int64_t per = s->heads / s->kv_heads,
		rows = cep_least(s->seq, CEP_PIECE);
	int64_t pieces = (s->seq + CEP_PIECE - 1) / CEP_PIECE, parts;
	uint64_t at = 0;

	cep_gqa_groups(s);
	s->flash = cep_flash_find(n, paged, (uint32_t)s->size);
	// a sequence has one tile that is not full; none has more than its
	// tokens have
	s->tiles = cep_least(rows * per / 16 + cep_least(s->seqs, rows),
			     rows * ((per + 15) / 16));
	parts = rows * s->heads * (s->flash ? CEP_SPLITS : s->splits);
	s->q_at = (int64_t)cep_gqa_place(&at, s->seq * s->heads * s->size * 4);
	s->lens_at = (int64_t)cep_gqa_place(&at, s->seqs * 4);
	s->tiles_at = (int64_t)cep_gqa_place(
		&at, pieces * s->tiles * (int64_t)sizeof(struct cep_tile));
	s->part_at = (int64_t)cep_gqa_place(
		&at,
		parts * ((s->flash ? s->flash->size : (uint32_t)s->size) + 4) *
			4);
	n->workspace_bytes = at;
	n->sync_bytes = (uint64_t)(s->flash ? s->kv_heads * s->tiles
					    : s->kv_heads * s->parts * rows) *
			4;
}

int32_t cep_prepare_paged(struct cep_node *n, struct genai_error *err)
{
	const struct gqa_state *s = gqa_state(n);
	const struct exec_tensor *q;
	int64_t dims[3];
	int32_t rc = check(n, err);

	if (!rc)
		rc = check_rows(n, err);
	if (!rc)
		rc = check_pool(n, err);
	if (!rc)
		rc = check_extras(n, err);
	if (rc)
		return rc;
	scratch(n);
	q = n->in[QUERY];
	memcpy(dims, q->dims, q->rank * sizeof(*dims));
	dims[q->rank - 1] = s->heads * s->size;
	rc = cep_out(n, 0, q->dtype, q->rank, dims, err);
	for (uint32_t i = 1; !rc && i < 3; i++)
		rc = cep_out(n, i, q->dtype, 4, n->in[CACHE_K]->dims, err);
	return rc;
}

static void set_sources(const struct cep_node *n, struct cep_gqa *p)
{
	const struct gqa_state *s = gqa_state(n);
	uint32_t size = cep_dtype_bytes(n->in[QUERY]->dtype);
	int64_t q = s->heads * s->size, kv = s->kv_heads * s->size;

	p->q = n->in[QUERY]->addr;
	p->q_tok = s->packed ? q + 2 * kv : q;
	p->k = s->packed ? p->q + (uint64_t)q * size : n->in[KEY]->addr;
	p->v = s->packed ? p->k + (uint64_t)kv * size : n->in[VALUE]->addr;
	p->k_tok = p->v_tok = s->packed ? p->q_tok : kv;
	p->seqlens = n->in[PAST]->addr;
	p->first = n->in[FIRST]->addr;
	p->table = n->in[TABLE]->addr;
	p->pos = cep_in_addr(n, POSITIONS);
	p->sink = cep_in_addr(n, SINK);
	p->q_norm = cep_in_addr(n, Q_NORM);
	p->k_norm = cep_in_addr(n, K_NORM);
	if (s->rot) {
		p->cosc = n->in[COS]->addr;
		p->sinc = n->in[SIN]->addr;
		p->cos_rows = (uint32_t)n->in[COS]->dims[0];
	}
}

// The pool is written in place, or first copied.
static int32_t set_pool(const struct cep_node *n, struct cep_run *r,
			struct cep_gqa *p)
{
	const struct gqa_state *s = gqa_state(n);
	uint32_t size = cep_dtype_bytes(n->in[QUERY]->dtype);
	int32_t rc = 0;

	p->pres_k = n->out[1]->addr;
	p->pres_v = n->out[2]->addr;
	p->pres_ks[0] = s->block * s->kv_heads * s->size;
	p->pres_ks[1] = s->size;
	p->pres_ks[2] = s->kv_heads * s->size;
	for (uint32_t i = 0; i < 2 && !rc; i++) {
		const struct exec_tensor *from = n->in[CACHE_K + i];
		const struct exec_tensor *to = n->out[1 + i];

		if (!exec_is_dense(from) || !exec_is_dense(to) || to->addr % 16)
			return cep_node_fail(n, r->err, GENAI_E_INVAL,
					     "cache %s: its blocks must follow "
					     "each other, from a multiple of "
					     "16 bytes on",
					     to->name);
		if (from->addr != to->addr)
			rc = cep_run_copy(r, size, 4, to->dims, to->addr,
					  to->strides, from->addr,
					  from->strides);
	}
	return rc;
}

// Rows of a piece, in tiles of tensor cores where there are any.
static int32_t run_piece(struct cep_node *n, struct cep_run *r,
			 const struct cep_gqa *p)
{
	const struct gqa_state *s = gqa_state(n);
	const struct cep_flash *f = s->flash;
	uint32_t left = p->seq - p->piece * CEP_PIECE;

	if (!f)
		return cep_gqa_rows(n, r, p,
				    left < CEP_PIECE ? left : CEP_PIECE);
	return cep_run_cluster(
		r, n->in[QUERY]->dtype == GENAI_DT_F16 ? f->f16 : f->bf16,
		(struct cep_dim3){CEP_SPLITS, p->kv_heads, p->n_tiles},
		32 * SLIM_WARPS, cep_flash_bytes(r->self, f, SLIM_WARPS),
		CEP_SPLITS, p);
}

int32_t cep_run_paged(struct cep_node *n, struct cep_run *r)
{
	const struct gqa_state *s = gqa_state(n);
	struct cep_gqa p = {
		.scale = exec_attr_float(n->node, "scale", 0.f),
		.softcap = exec_attr_float(n->node, "softcap", 0.f),
		.eps = exec_attr_float(n->node, "qk_norm_epsilon", 1e-6f),
		.window = (int32_t)exec_attr_int(n->node, "local_window_size",
						 -1),
		.batch = 1,
		.seq = (uint32_t)s->seq,
		.heads = (uint32_t)s->heads,
		.kv_heads = (uint32_t)s->kv_heads,
		.size = (uint32_t)s->size,
		.rot = (uint32_t)s->rot,
		.interleaved = (uint32_t)exec_attr_int(n->node,
						       "rotary_interleaved", 0),
		.smooth = exec_attr_int(n->node, "smooth_softmax", 0) > 0,
		.splits = (uint32_t)s->splits,
		.flash = s->flash != NULL,
		.seqs = (uint32_t)s->seqs,
		.table_row = (uint32_t)s->per_seq,
		.block = (uint32_t)s->block,
		.n_blocks = (uint32_t)s->blocks,
		.n_tiles = (uint32_t)s->tiles,
		.out = n->out[0]->addr,
		.qbuf = r->workspace + (uint64_t)s->q_at,
		.part = r->workspace + (uint64_t)s->part_at,
		.lens = r->workspace + (uint64_t)s->lens_at,
		.tiles = r->workspace + (uint64_t)s->tiles_at,
		.counters = r->sync,
		.blame = cep_blame_of(n, r),
	};
	int32_t rc;

	if (!p.seq)
		return 0;
	cep_gqa_per(&p);
	if (!(p.scale > 0.f) && !(p.scale < 0.f))
		p.scale = 1.f / sqrtf((float)p.size);
	set_sources(n, &p);
	rc = set_pool(n, r, &p);
	if (!rc)
		rc = cep_gqa_first(n, r, &p);
	for (; !rc && p.piece * CEP_PIECE < p.seq; p.piece++)
		rc = run_piece(n, r, &p);
	return rc;
}
