// op_attention.c - GroupQueryAttention, and what PagedAttention (op_paged.c)
// has of it.
// The true length comes from seqlens_k on the device, always;
// total_sequence_length is not read.  past and present may be one buffer, with
// any strides whose rows of head_size are contiguous.
#include <math.h>

#include "modules/cuda_ep/op_attention.h"

// Tiles of attention on tensor cores: kernels/wflash.cu (wgmma, in 9.0 only),
// flash.cu and, for few tokens, split.cu.  The first that holds a head and fits
// is taken.  Bytes of shared memory: of a block, and of each of its warps.
#define WIDE_WARPS 8
#define SPLIT_TOKENS 64

static const struct cep_flash flashes[] = {
	{64, true, 4 * 128 * 128 + 1024, 0, 0, CEP_K_cep_wflash_64_f16,
	 CEP_K_cep_wflash_64_bf16},
	{128, true, 4 * 128 * 256 + 1024, 0, 0, CEP_K_cep_wflash_128_f16,
	 CEP_K_cep_wflash_128_bf16},
	{64, false, 4 * 64 * 144, 0, 0, CEP_K_cep_flash_64_f16,
	 CEP_K_cep_flash_64_bf16},
	{96, false, 4 * 64 * 208, 0, 0, CEP_K_cep_flash_96_f16,
	 CEP_K_cep_flash_96_bf16},
	{128, false, 4 * 64 * 272, 0, 0, CEP_K_cep_flash_128_f16,
	 CEP_K_cep_flash_128_bf16},
	{256, false, 4 * 32 * 528, 16 * 528, 0, CEP_K_cep_flash_256_f16,
	 CEP_K_cep_flash_256_bf16},
	{0},
};

static const struct cep_flash splits[] = {
	{64, false, SPLIT_BYTES(64), 4 * 16 * 144, SPLIT_MET(64),
	 CEP_K_cep_split_64_f16, CEP_K_cep_split_64_bf16},
	{128, false, SPLIT_BYTES(128), 4 * 16 * 272, SPLIT_MET(128),
	 CEP_K_cep_split_128_f16, CEP_K_cep_split_128_bf16},
	{256, false, SPLIT_BYTES(256), 4 * 16 * 528, SPLIT_MET(256),
	 CEP_K_cep_split_256_f16, CEP_K_cep_split_256_bf16},
	{0},
};

// Heads of 128 fit where a block has 99 KiB: the GPUs of 8.6 and 8.9.
_Static_assert(SPLIT_BYTES(128) + SLIM_WARPS * 4 * 16 * 272 <=
		       99 * 1024 - 20480,
	       "shared memory of cep_split_128");

uint32_t cep_flash_bytes(const struct cep *self, const struct cep_flash *f,
			 uint32_t warps)
{
	return f->bytes + warps * f->warp_bytes +
	       (self->major >= 9 ? f->met_bytes : 0);
}

bool cep_flash_fits(const struct cep *self, const struct cep_flash *f,
		    uint32_t size, uint32_t warps)
{
	return size <= f->size && (!f->wgmma || cep_has_wgmma(self)) &&
	       cep_flash_bytes(self, f, warps) <=
		       (uint32_t)self->max_smem - 20480;
}

// bfloat16 where it is multiplied.  NULL: the kernels that need no tiles.
const struct cep_flash *cep_flash_find(const struct cep_node *n,
				       const struct cep_flash *f, uint32_t size)
{
	uint32_t dt = n->in[0]->dtype;

	if (dt == GENAI_DT_F32 || (dt == GENAI_DT_BF16 && n->self->major < 8))
		return NULL;
	while (f->size && !cep_flash_fits(n->self, f, size, SLIM_WARPS))
		f++;
	return f->size ? f : NULL;
}

static int32_t check_attrs(const struct cep_node *n, struct genai_error *err)
{
	int32_t rc = cep_check(n, exec_gqa_attrs, 1, 16, 3, err);

	if (rc)
		return rc;
	if (!exec_attr_int(n->node, "causal", 1) ||
	    exec_attr_int(n->node, "qk_output", 0))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "causal = 0 or qk_output");
	if (n->n_out < 3 || !n->out[1] || !n->out[2] || !cep_in(n, 3) ||
	    !cep_in(n, 4) || !cep_in(n, 5))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "no past, present or seqlens_k");
	return 0;
}

static int32_t check_sizes(struct cep_node *n, struct genai_error *err)
{
	struct gqa_state *s = gqa_state(n);
	const struct exec_tensor *q = n->in[0], *k = cep_in(n, 1);
	const struct exec_tensor *past = n->in[3], *cosc = cep_in(n, 7);
	int64_t heads = exec_attr_int(n->node, "num_heads", 0);
	int64_t kv = exec_attr_int(n->node, "kv_num_heads", 0), size, width;
	struct exec_text why;
	int32_t rc;

	if (q->rank != 3 || past->rank != 4 || n->in[4]->rank != 4 ||
	    heads < 1 || kv < 1 || heads > 4096 || heads % kv)
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "%lld heads over %lld", (long long)heads,
				     (long long)kv);
	width = k ? heads : heads + 2 * kv;
	size = q->dims[2] / width;
	rc = exec_gqa_cache(n->node, n->in, n->n_in, kv, size, &s->cache, &why);
	if (rc)
		return cep_node_fail(n, err, rc, "%s", why.s);
	if (size * width != q->dims[2] || past->dims[1] != kv ||
	    past->dims[3] != s->cache.row || past->dims[0] != q->dims[0] ||
	    memcmp(past->dims, n->in[4]->dims, 4 * sizeof(int64_t)) ||
	    exec_count(n->in[5]) != (uint64_t)q->dims[0] ||
	    n->in[5]->dtype != GENAI_DT_I32 || !n->in[5]->rank ||
	    (k && (!cep_in(n, 2) || k->rank != 3 || k->dims[2] != kv * size ||
		   k->dims[1] != q->dims[1] || k->dims[0] != q->dims[0] ||
		   memcmp(k->dims, n->in[2]->dims, 3 * sizeof(int64_t)))))
		return cep_node_fail(
			n, err, GENAI_E_FORMAT,
			"query, key, past and seqlens_k do not fit "
			"%lld and %lld heads",
			(long long)heads, (long long)kv);
	if (size % 8 || size > 256 || q->dims[0] * q->dims[1] > 65535)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "head size %lld: multiples of 8 up to 256 "
				     "are known",
				     (long long)size);
	s->rot = 0;
	if (exec_attr_int(n->node, "do_rotary", 0)) {
		if (!cosc || !cep_in(n, 8) || cosc->rank != 2 ||
		    cosc->dims[1] * 2 > size || !cosc->dims[1] ||
		    !cosc->dims[0] || n->in[8]->rank != 2 ||
		    memcmp(cosc->dims, n->in[8]->dims, 2 * sizeof(int64_t)))
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "rotary tables do not fit head "
					     "size %lld",
					     (long long)size);
		s->rot = cosc->dims[1] * 2;
	}
	s->batch = q->dims[0];
	s->seq = q->dims[1];
	s->heads = heads;
	s->kv_heads = kv;
	s->size = size;
	s->packed = !k;
	return 0;
}

// What the cache is made of.
static int32_t check_cache(const struct cep_node *n, struct genai_error *err)
{
	const struct exec_cache *c = &gqa_state(n)->cache;
	const uint32_t want = c->bits == 8   ? GENAI_DT_I8
			      : c->bits == 4 ? GENAI_DT_U8
					     : n->in[0]->dtype;

	for (uint32_t i = 3; i < 5; i++)
		if (n->in[i]->dtype != want)
			return cep_node_fail(
				n, err, GENAI_E_UNSUPPORTED,
				"a cache of type %s with "
				"kv_cache_bit_width %u is not carried",
				exec_dtype_name(n->in[i]->dtype), c->bits);
	return 0;
}

static int32_t check_extras(struct cep_node *n, struct genai_error *err)
{
	struct gqa_state *s = gqa_state(n);
	const struct exec_tensor *bias = cep_in(n, 10), *pos = cep_in(n, 9);
	int64_t window = exec_attr_int(n->node, "local_window_size", -1);
	static const uint8_t vectors[] = {11, 14, 15};

	s->windowed = exec_attr_int(n->node, "sliding_window_cache", 0);
	if (window < -1 || !window || (s->windowed && window < 1))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "local_window_size %lld does not fit "
				     "sliding_window_cache %d",
				     (long long)window, s->windowed);
	if (exec_attr_int(n->node, "smooth_softmax", 0) > 0 && cep_in(n, 11))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "smooth_softmax and a head sink");
	if (bias && (bias->rank != 4 || bias->dtype != n->in[0]->dtype))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "attention_bias of rank %u", bias->rank);
	if (pos && (pos->dtype != GENAI_DT_I64 ||
		    exec_count(pos) != (uint64_t)(s->batch * s->seq)))
		return cep_node_fail(n, err, GENAI_E_FORMAT,
				     "position_ids do not fit");
	for (uint32_t i = 0; i < sizeof(vectors); i++) {
		const struct exec_tensor *t = cep_in(n, vectors[i]);
		int64_t want = i ? s->size : s->heads;

		if (t && (exec_count(t) != (uint64_t)want ||
			  t->dtype != n->in[0]->dtype))
			return cep_node_fail(n, err, GENAI_E_FORMAT,
					     "input %u does not have %lld "
					     "elements",
					     vectors[i], (long long)want);
	}
	return 0;
}

uint64_t cep_gqa_place(uint64_t *at, int64_t bytes)
{
	uint64_t here = *at;

	*at += ((uint64_t)bytes + 255) & ~UINT64_C(255);
	return here;
}

void cep_gqa_per(struct cep_gqa *p)
{
	p->per = p->heads / p->kv_heads;
	p->per_inverse =
		(uint32_t)(((UINT64_C(1) << 32) + p->per - 1) / p->per);
	p->row_tiles = (p->seq * p->per + 15) / 16;
}

// How the heads of a row are shared out among blocks, and its keys.
void cep_gqa_groups(struct gqa_state *s)
{
	int64_t per = s->heads / s->kv_heads;

	s->group = per >= 3 ? 4 : per;
	s->parts = (per + s->group - 1) / s->group;
	s->splits = SPLIT_BLOCKS / (s->kv_heads * s->parts);
	s->splits = s->splits < 1 ? 1 : cep_least(s->splits, CEP_GQA_SPLITS);
}

// Scratch: queries, new rows of a windowed cache, parts of split rows.
static void scratch(struct cep_node *n)
{
	struct gqa_state *s = gqa_state(n);
	const bool codes = s->cache.bits; // not for tensor cores
	const struct cep_flash *f =
		codes ? NULL : cep_flash_find(n, splits, (uint32_t)s->size);
	int64_t rows = s->batch * s->seq, per = s->heads / s->kv_heads;
	int64_t few = cep_least(rows, SPLIT_ROWS), tokens, parts;
	int64_t size = cep_dtype_bytes(n->in[0]->dtype);
	uint64_t at = 0;

	cep_gqa_groups(s);
	// of the largest step that is split
	parts = few * s->heads * s->splits;
	n->sync_bytes = (uint64_t)(few * s->kv_heads * s->parts) * 4;
	if (f) {
		tokens = cep_least(s->seq, SPLIT_TOKENS);
		parts = s->batch * tokens * s->heads * CEP_SPLITS;
		n->sync_bytes = (uint64_t)(s->batch * s->kv_heads *
					   ((tokens * per + 15) / 16)) *
				4;
	}
	s->split = f && s->seq <= SPLIT_TOKENS;
	s->flash = s->split ? f
		   : !codes && (f || s->seq > SPLIT_ROWS)
			   ? cep_flash_find(n, flashes, (uint32_t)s->size)
			   : NULL;
	if (rows > SPLIT_ROWS)
		s->splits = 1;
	s->q_at = (int64_t)cep_gqa_place(&at, rows * s->heads * s->size * 4);
	s->new_at = (int64_t)cep_gqa_place(
		&at, s->windowed ? rows * s->kv_heads * s->size * size * 2 : 0);
	s->part_at = (int64_t)cep_gqa_place(
		&at, parts * ((f ? f->size : (uint32_t)s->size) + 4) * 4);
	n->workspace_bytes = at;
}

int32_t cep_prepare_gqa(struct cep_node *n, struct genai_error *err)
{
	const struct gqa_state *s = gqa_state(n);
	static const uint8_t same[] = {1, 2, 7, 8};
	const struct exec_facts *f = &n->op->facts;
	int64_t dims[4];
	int32_t rc = check_attrs(n, err);

	if (!rc)
		rc = cep_need_float(n, 0, err);
	for (uint32_t i = 0; !rc && i < sizeof(same); i++)
		rc = cep_need_same(n, same[i], 0, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		if (!EXEC_HAS(f->state_in | f->host, i))
			rc = cep_need_dense(n, i, err);
	if (!rc)
		rc = check_sizes(n, err);
	if (!rc)
		rc = check_cache(n, err);
	if (!rc)
		rc = check_extras(n, err);
	if (rc)
		return rc;
	scratch(n);
	dims[0] = s->batch;
	dims[1] = s->seq;
	dims[2] = s->heads * s->size;
	rc = cep_out(n, 0, n->in[0]->dtype, 3, dims, err);
	memcpy(dims, n->in[3]->dims, sizeof(dims));
	if (!s->windowed)
		dims[2] += s->seq;
	for (uint32_t i = 1; !rc && i < 3; i++)
		rc = cep_out(n, i, n->in[3]->dtype, 4, dims, err);
	return rc;
}

static int32_t cache_view(const struct cep_node *n, const struct exec_tensor *t,
			  uint64_t *addr, int64_t *s, struct genai_error *err)
{
	uint32_t size = cep_dtype_bytes(t->dtype);
	uint32_t unit = gqa_state(n)->cache.bits ? 4 : 16;

	*addr = t->addr;
	for (int d = 0; d < 3; d++) {
		s[d] = t->strides[d];
		if (t->dims[d] > 1 && s[d] * size % unit)
			goto err_view;
	}
	if ((t->dims[3] > 1 && t->strides[3] != 1) || *addr % unit)
		goto err_view;
	return 0;

err_view:
	return cep_node_fail(
		n, err, GENAI_E_INVAL,
		"cache %s: rows of head_size must be contiguous and "
		"aligned to %u bytes",
		t->name, unit);
}

static void set_sources(const struct cep_node *n, struct cep_gqa *p)
{
	const struct gqa_state *s = gqa_state(n);
	uint32_t size = cep_dtype_bytes(n->in[0]->dtype);
	int64_t q = s->heads * s->size, kv = s->kv_heads * s->size;
	const struct exec_tensor *bias = cep_in(n, 10);

	p->q = n->in[0]->addr;
	p->q_tok = n->in[0]->dims[2];
	if (s->packed) {
		p->k = p->q + (uint64_t)q * size;
		p->v = p->k + (uint64_t)kv * size;
		p->k_tok = p->v_tok = p->q_tok;
	} else {
		p->k = n->in[1]->addr;
		p->v = n->in[2]->addr;
		p->k_tok = p->v_tok = kv;
	}
	p->seqlens = n->in[5]->addr;
	p->pos = cep_in_addr(n, 9);
	p->sink = cep_in_addr(n, 11);
	p->q_norm = cep_in_addr(n, 14);
	p->k_norm = cep_in_addr(n, 15);
	p->bias = bias ? bias->addr : 0;
	for (uint32_t d = 0; bias && d < 4; d++)
		p->bias_s[d] =
			bias->dims[d] == 1 && d < 2 ? 0 : bias->strides[d];
	if (s->rot) {
		p->cosc = n->in[7]->addr;
		p->sinc = n->in[8]->addr;
		p->cos_rows = (uint32_t)n->in[7]->dims[0];
	}
}

static int32_t set_caches(const struct cep_node *n, struct cep_gqa *p,
			  struct genai_error *err)
{
	const struct gqa_state *s = gqa_state(n);
	int32_t rc = cache_view(n, n->in[3], &p->past_k, p->past_ks, err);

	if (!rc)
		rc = cache_view(n, n->in[4], &p->past_v, p->past_vs, err);
	if (!rc)
		rc = cache_view(n, n->out[1], &p->pres_k, p->pres_ks, err);
	if (!rc)
		rc = cache_view(n, n->out[2], &p->pres_v, p->pres_vs, err);
	if (rc)
		return rc;
	p->past_rows = (uint32_t)n->in[3]->dims[2];
	p->rows = (uint32_t)n->out[1]->dims[2];
	if (n->out[1]->dims[2] != n->out[2]->dims[2] ||
	    n->out[1]->dims[1] != s->kv_heads ||
	    n->out[1]->dims[3] != s->cache.row)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "present caches do not fit");
	if (s->windowed && (int64_t)p->rows < p->window)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "a windowed cache of %u rows for a window "
				     "of %d",
				     p->rows, p->window);
	return 0;
}

// Few tokens: a block a split and tile of rows.  Many: wide blocks read keys
// half as often; slim ones fill the device sooner.
static int32_t run_flash(struct cep_node *n, struct cep_run *r,
			 const struct cep_gqa *p)
{
	const struct gqa_state *s = gqa_state(n);
	const struct cep_flash *f = s->flash;
	uint32_t rows = p->seq * (p->heads / p->kv_heads), warps = WIDE_WARPS;
	uint32_t tiles = (rows + 16 * warps - 1) / (16 * warps);
	struct cep_dim3 grid;

	if (s->split || !cep_flash_fits(r->self, f, p->size, warps) ||
	    (uint64_t)tiles * p->kv_heads * p->batch < (uint64_t)r->self->n_sms)
		warps = SLIM_WARPS;
	tiles = (rows + 16 * warps - 1) / (16 * warps);
	grid = (struct cep_dim3){tiles, p->kv_heads, p->batch};
	if (s->split)
		grid = (struct cep_dim3){CEP_SPLITS, p->kv_heads,
					 p->row_tiles * p->batch};
	return cep_run_cluster(
		r, n->in[0]->dtype == GENAI_DT_F16 ? f->f16 : f->bf16, grid,
		32 * warps, cep_flash_bytes(r->self, f, warps),
		s->split ? CEP_SPLITS : 1, p);
}

int32_t cep_gqa_rows(struct cep_node *n, struct cep_run *r,
		     const struct cep_gqa *p, uint32_t rows)
{
	const struct gqa_state *s = gqa_state(n);
	uint32_t dt = n->in[0]->dtype, hg = (uint32_t)s->group;
	enum cep_kernel k = hg == 1   ? cep_by_dtype(dt, CEP_K_cep_gqa_1_f32,
						     CEP_K_cep_gqa_1_f16,
						     CEP_K_cep_gqa_1_bf16)
			    : hg == 2 ? cep_by_dtype(dt, CEP_K_cep_gqa_2_f32,
						     CEP_K_cep_gqa_2_f16,
						     CEP_K_cep_gqa_2_bf16)
				      : cep_by_dtype(dt, CEP_K_cep_gqa_4_f32,
						     CEP_K_cep_gqa_4_f16,
						     CEP_K_cep_gqa_4_bf16);

	return cep_run_kernel(
		r, k,
		(struct cep_dim3){p->splits, p->kv_heads * (uint32_t)s->parts,
				  rows},
		128, (4 * (p->size + 2) + CEP_GQA_SPLITS + 2) * hg * 4, p);
}

// Heads turn as a whole, in halves, or not at all.
static bool is_whole(const struct cep_gqa *p)
{
	return !p->rot || (p->rot == p->size && !p->interleaved);
}

// Queries to scratch, keys and values to the cache: many tokens give a warp
// several heads of one.
int32_t cep_gqa_first(struct cep_node *n, struct cep_run *r, struct cep_gqa *p)
{
	uint32_t dt = n->in[0]->dtype, all = p->heads + 2 * p->kv_heads;
	bool whole = is_whole(p);
	uint64_t units;

	p->each = whole && p->seq > SPLIT_ROWS ? 8 : 1;
	units = (uint64_t)p->batch * p->seq * ((all + p->each - 1) / p->each);
	if (p->table)
		units += p->seqs + 1;
	return cep_run_kernel(
		r,
		whole ? cep_by_dtype(dt, CEP_K_cep_gqa_pairs_f32,
				     CEP_K_cep_gqa_pairs_f16,
				     CEP_K_cep_gqa_pairs_bf16)
		      : cep_by_dtype(dt, CEP_K_cep_gqa_prep_f32,
				     CEP_K_cep_gqa_prep_f16,
				     CEP_K_cep_gqa_prep_bf16),
		(struct cep_dim3){(uint32_t)((units + 3) / 4), 1, 1}, 128,
		whole ? 0 : 4 * p->size * 4, p);
}

// Neighbouring channels are read two at a time.
static bool are_pairs(const struct cep_gqa *p)
{
	return p->size % 16 == 0 && !((p->q | p->k | p->v) % 4) &&
	       !((p->q_tok | p->k_tok | p->v_tok) % 2);
}

// What the kernel reads before it waits was written before the kernel in front
// begins: caches, lengths, tables, positions, weights of norms.  If not, wait
// for all kernels once, so that the layers that follow can say so.
static bool is_early(const struct cep_node *n, struct cep_run *r)
{
	static const uint8_t early[] = {3, 4, 5, 7, 8, 9, 14, 15};

	if (!r->self->pdl)
		return false;
	for (uint32_t i = 0; i < sizeof(early); i++)
		if (!cep_settled(n, r, early[i])) {
			r->overlap = false;
			return false;
		}
	return true;
}

static int32_t run_all(struct cep_node *n, struct cep_run *r, struct cep_gqa *p)
{
	uint32_t dt = n->in[0]->dtype;
	uint64_t chans = (uint64_t)p->batch * p->kv_heads * p->row;
	bool moved = p->past_k != p->pres_k || p->past_v != p->pres_v;
	int32_t rc = 0;

	p->fused = gqa_state(n)->split && is_whole(p) && p->seq == 1 &&
		   !p->windowed && !moved && are_pairs(p);
	if (p->fused)
		p->early = is_early(n, r);
	else
		rc = cep_gqa_first(n, r, p);
	if (!rc && moved && p->past_rows)
		rc = cep_run_kernel(
			r,
			p->bits ? CEP_K_cep_gqa_past_q
				: cep_by_dtype(dt, CEP_K_cep_gqa_past_f32,
					       CEP_K_cep_gqa_past_f16,
					       CEP_K_cep_gqa_past_bf16),
			(struct cep_dim3){
				cep_blocks(r->self, chans * p->past_rows), 1,
				1},
			256, 0, p);
	if (!rc)
		rc = p->flash ? run_flash(n, r, p)
			      : cep_gqa_rows(n, r, p, p->batch * p->seq);
	if (!rc && p->windowed)
		rc = cep_run_kernel(
			r,
			p->bits ? CEP_K_cep_gqa_slide_q
				: cep_by_dtype(dt, CEP_K_cep_gqa_slide_f32,
					       CEP_K_cep_gqa_slide_f16,
					       CEP_K_cep_gqa_slide_bf16),
			(struct cep_dim3){(uint32_t)((chans + 127) / 128), 1,
					  1},
			128, 0, p);
	return rc;
}

int32_t cep_run_gqa(struct cep_node *n, struct cep_run *r)
{
	const struct gqa_state *s = gqa_state(n);
	uint64_t half;
	struct cep_gqa p = {
		.scale = exec_attr_float(n->node, "scale", 0.f),
		.softcap = exec_attr_float(n->node, "softcap", 0.f),
		.eps = exec_attr_float(n->node, "qk_norm_epsilon", 1e-6f),
		.window = (int32_t)exec_attr_int(n->node, "local_window_size",
						 -1),
		.batch = (uint32_t)s->batch,
		.seq = (uint32_t)s->seq,
		.heads = (uint32_t)s->heads,
		.kv_heads = (uint32_t)s->kv_heads,
		.size = (uint32_t)s->size,
		.rot = (uint32_t)s->rot,
		.interleaved = (uint32_t)exec_attr_int(n->node,
						       "rotary_interleaved", 0),
		.windowed = (uint32_t)s->windowed,
		.smooth = exec_attr_int(n->node, "smooth_softmax", 0) > 0,
		.splits = (uint32_t)s->splits,
		.flash = s->flash != NULL,
		.bits = s->cache.bits,
		.kv_each = s->cache.each[0] | s->cache.each[1] << 1,
		.row = (uint32_t)s->cache.row,
		.k_scale = s->cache.bits ? cep_in_addr(n, 12) : 0,
		.v_scale = s->cache.bits ? cep_in_addr(n, 13) : 0,
		.out = n->out[0]->addr,
		.qbuf = r->workspace + (uint64_t)s->q_at,
		.part = r->workspace + (uint64_t)s->part_at,
		.counters = r->sync,
		.blame = cep_blame_of(n, r),
	};
	int32_t rc;

	if (!p.batch || !p.seq)
		return 0;
	cep_gqa_per(&p);
	if (!(p.scale > 0.f) && !(p.scale < 0.f))
		p.scale = 1.f / sqrtf((float)p.size);
	half = (uint64_t)p.batch * p.seq * p.kv_heads * p.size *
	       cep_dtype_bytes(n->in[0]->dtype);
	p.newk = r->workspace + (uint64_t)s->new_at;
	p.newv = p.newk + half;
	set_sources(n, &p);
	rc = set_caches(n, &p, r->err);
	return rc ? rc : run_all(n, r, &p);
}
