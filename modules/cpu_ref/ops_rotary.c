// ops_rotary.c - rotary position embedding, com.microsoft and ai.onnx 23.
// Pairs are (i, i + R/2), or (2i, 2i + 1) when interleaved; R channels of each
// head turn, the rest pass through.  MRotaryEmbedding has three positions for
// each token, and pairs of three sections: one after another, or by turns.
#include "modules/cpu_ref/ops.h"

struct rotary {
	const struct exec_tensor *x, *pos, *cos, *sin;
	struct exec_tensor *y;
	int64_t batch, seq, heads, size, rot;
	int64_t b_stride, s_stride, h_stride; // elements of x and y
	const int64_t *section;		      // pairs of each position, or NULL
	bool interleaved, turns;
};

struct rotary_state {
	int64_t batch, seq, heads, size, rot;
	int64_t b_stride, s_stride, h_stride;
	int64_t section[3];
	bool three; // positions
};
EXEC_STATE(rotary_state, cref_node)

// Batch, sequence, heads, head size of x, [B,N,S,H] or [B,S,N*H].
static int32_t head_layout(struct cref_node *n, int64_t size,
			   struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0];
	int64_t heads = exec_attr_int(n->node, "num_heads", 0);
	struct rotary_state *s = rotary_state(n);

	if (x->rank == 4) {
		s->batch = x->dims[0];
		s->heads = x->dims[1];
		s->seq = x->dims[2];
		s->size = x->dims[3];
		s->b_stride = s->heads * s->seq * s->size;
		s->s_stride = s->size;
		s->h_stride = s->seq * s->size;
		return GENAI_OK;
	}
	if (heads > 0)
		size = x->dims[2] % heads ? 0 : x->dims[2] / heads;
	if (size <= 0 || x->dims[2] % size)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "shape %s does not part into %lld heads "
				      "of %lld",
				      EXEC_SHAPE(x), (long long)heads,
				      (long long)size);
	s->batch = x->dims[0];
	s->seq = x->dims[1];
	s->heads = x->dims[2] / size;
	s->size = size;
	s->b_stride = s->seq * x->dims[2];
	s->s_stride = x->dims[2];
	s->h_stride = size;
	return GENAI_OK;
}

// One for each token, or three; or, where one may stand for all, that.
static bool positions_fit(const struct rotary_state *s,
			  const struct exec_tensor *pos, bool one)
{
	if (s->three)
		return pos->rank == 3 && pos->dims[0] == 3 &&
		       pos->dims[1] == s->batch && pos->dims[2] == s->seq;
	if (pos->rank == 2)
		return pos->dims[0] == s->batch && pos->dims[1] == s->seq;
	return one && pos->rank < 2 && exec_count(pos) == 1;
}

// i_pos, i_cos: the inputs' places; the sines follow the cosines.
static int32_t rotary_prepare(struct cref_node *n, uint32_t i_pos,
			      uint32_t i_cos, struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0], *c = n->in[i_cos];
	const struct exec_tensor *sin = n->in[i_cos + 1];
	const struct exec_tensor *pos = i_pos < n->n_in ? n->in[i_pos] : NULL;
	int64_t rot = exec_attr_int(n->node, "rotary_embedding_dim", 0);
	struct rotary_state *s = rotary_state(n);
	bool fits;
	int32_t rc = ops_need_dtype(n, 0, OPS_F32S, err);

	if (!rc)
		rc = ops_need_rank(n, 0, 3, 4, err);
	if (!rc)
		rc = ops_need_dtype(n, i_cos, OPS_F32S, err);
	if (!rc)
		rc = ops_need_same_dtype(n, i_cos, i_cos + 1, err);
	if (!rc)
		rc = ops_need_dtype(n, i_pos, OPS_INDEX, err);
	if (!rc)
		rc = ops_need_rank(n, i_cos, pos ? 2 : 3, pos ? 2 : 3, err);
	if (!rc)
		rc = head_layout(n, rot ? 0 : 2 * c->dims[c->rank - 1], err);
	if (rc)
		return rc;
	rot = rot ? rot : s->size;
	s->rot = rot;
	fits = c->rank == sin->rank &&
	       !memcmp(c->dims, sin->dims, c->rank * sizeof(c->dims[0])) &&
	       rot > 0 && rot % 2 == 0 && rot <= s->size &&
	       c->dims[c->rank - 1] == rot / 2;
	if (!pos)
		fits = fits && c->dims[0] == s->batch && c->dims[1] == s->seq;
	if (!fits)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "caches of shapes %s and %s do not fit "
				      "input of shape %s, %lld channels",
				      EXEC_SHAPE(c), EXEC_SHAPE(sin),
				      EXEC_SHAPE(x), (long long)rot);
	if (pos && !positions_fit(s, pos, i_pos == 1))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "positions of shape %s do not fit input "
				      "of shape %s",
				      EXEC_SHAPE(pos), EXEC_SHAPE(x));
	return ops_out(n, 0, x->dtype, x->rank, x->dims, err);
}

// Rows of the caches for token (b, t): the same one, or one for each section.
static void cache_rows(const struct rotary *q, int64_t b, int64_t t,
		       int64_t *rows)
{
	const struct exec_tensor *pos = q->pos;
	int64_t at = b * q->seq + t;

	for (int64_t i = 0; i < 3; i++) {
		if (!pos)
			rows[i] = at;
		else if (q->section)
			rows[i] = ops_get_int(
				pos, pos->data,
				(uint64_t)(i * q->batch * q->seq + at));
		else if (pos->rank == 2)
			rows[i] = ops_get_int(pos, pos->data, (uint64_t)at);
		else
			rows[i] = ops_get_int(pos, pos->data, 0) + t;
	}
}

// The section that pair i belongs to.
static int section_of(const struct rotary *q, int64_t i)
{
	const int64_t *s = q->section;

	if (!s)
		return 0;
	if (!q->turns)
		return i < s[0] ? 0 : i < s[0] + s[1] ? 1 : 2;
	return i % 3 && i < 3 * s[i % 3] ? (int)(i % 3) : 0;
}

#define PAIRS (OPS_CHUNK / 2)

// Pairs [i, i + n) of a cache.
static void load_pairs(const struct rotary *q, const struct exec_tensor *t,
		       const int64_t *rows, int64_t i, uint32_t n, float *out)
{
	const int64_t half = q->rot / 2;

	ops_load(OPS_F32, out, t->dtype, t->data, rows[0] * half + i, 1, n);
	for (uint32_t j = 0; q->section && j < n; j++) {
		const int s = section_of(q, i + j);

		if (s)
			ops_load(OPS_F32, out + j, t->dtype, t->data,
				 rows[s] * half + i + j, 1, 1);
	}
}

static void rotate_head(const struct rotary *q, int64_t at, const int64_t *rows)
{
	float a[OPS_CHUNK], b[OPS_CHUNK], c[PAIRS], s[PAIRS];
	int64_t half = q->rot / 2, step = q->interleaved ? 2 : 1;
	int64_t far = q->interleaved ? 1 : half;

	for (int64_t i = 0; i < half; i += PAIRS) {
		uint32_t n = half - i < PAIRS ? (uint32_t)(half - i) : PAIRS;
		int64_t p = at + i * step;

		ops_load(OPS_F32, a, q->x->dtype, q->x->data, p, step, n);
		ops_load(OPS_F32, b, q->x->dtype, q->x->data, p + far, step, n);
		load_pairs(q, q->cos, rows, i, n, c);
		load_pairs(q, q->sin, rows, i, n, s);
		for (uint32_t j = 0; j < n; j++) {
			float u = a[j] * c[j] - b[j] * s[j];

			b[j] = b[j] * c[j] + a[j] * s[j];
			a[j] = u;
		}
		ops_store(OPS_F32, a, q->y->dtype, q->y->data, p, step, n);
		ops_store(OPS_F32, b, q->y->dtype, q->y->data, p + far, step,
			  n);
	}
	for (int64_t i = q->rot; i < q->size; i += OPS_CHUNK) {
		uint32_t n = q->size - i < OPS_CHUNK ? (uint32_t)(q->size - i)
						     : OPS_CHUNK;

		ops_load(OPS_F32, a, q->x->dtype, q->x->data, at + i, 1, n);
		ops_store(OPS_F32, a, q->y->dtype, q->y->data, at + i, 1, n);
	}
}

static void rotary_part(void *ctx, uint64_t begin, uint64_t end)
{
	const struct rotary *q = ctx;

	for (uint64_t k = begin; k < end; k++) {
		int64_t h = (int64_t)k % q->heads, r = (int64_t)k / q->heads;
		int64_t t = r % q->seq, b = r / q->seq, rows[3];

		cache_rows(q, b, t, rows);
		rotate_head(q,
			    b * q->b_stride + t * q->s_stride + h * q->h_stride,
			    rows);
	}
}

static int32_t rotary_run(struct cref_node *n, const struct cref_run *r,
			  uint32_t i_pos, uint32_t i_cos)
{
	const struct rotary_state *s = rotary_state(n);
	struct rotary q = {
		.x = n->in[0],
		.pos = i_pos < n->n_in ? n->in[i_pos] : NULL,
		.cos = n->in[i_cos],
		.sin = n->in[i_cos + 1],
		.y = n->out[0],
		.batch = s->batch,
		.seq = s->seq,
		.heads = s->heads,
		.size = s->size,
		.b_stride = s->b_stride,
		.s_stride = s->s_stride,
		.h_stride = s->h_stride,
		.rot = s->rot,
		.interleaved = exec_attr_int(n->node, "interleaved", 0) != 0,
		.section = s->three ? s->section : NULL,
		.turns = exec_attr_int(n->node, "mrope_layout", 0) != 0,
	};
	int64_t rows[3];

	if (!exec_count(q.x))
		return GENAI_OK;
	for (int64_t i = 0; q.pos && i < 3 * q.batch * q.seq; i++) {
		cache_rows(&q, i / 3 / q.seq, i / 3 % q.seq, rows);
		if (rows[i % 3] < 0 || rows[i % 3] >= q.cos->dims[0])
			return cref_node_fail(n, r->err, GENAI_E_INVAL,
					      "position %lld is out of range "
					      "for caches of %lld rows",
					      (long long)rows[i % 3],
					      (long long)q.cos->dims[0]);
	}
	ops_rows(r->pool, rotary_part, &q,
		 (uint64_t)(q.batch * q.seq * q.heads), (uint64_t)q.size);
	return GENAI_OK;
}

int32_t ops_rotary_ms_prepare(struct cref_node *n, struct genai_error *err)
{
	int32_t rc = ops_check(n, exec_rope_attrs, 4, 4, 1, err);

	if (!rc && (exec_attr_float(n->node, "scale", 1.0) != 1.0 ||
		    exec_attr_int(n->node, "is_packed_batching", 0)))
		rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				    "scale other than 1 or packed batching");
	return rc ? rc : rotary_prepare(n, 1, 2, err);
}

// Three sections, which have all pairs.
static int32_t sections(struct cref_node *n, struct genai_error *err)
{
	const struct genai_attr *a = exec_attr(n->node, "mrope_section");
	const int64_t rot = exec_attr_int(n->node, "rotary_embedding_dim", 0);
	const struct exec_tensor *c = n->in[2];
	struct rotary_state *s = rotary_state(n);
	int64_t left = rot / 2;
	bool fits = a && a->kind == GENAI_ATTR_INTS && a->count == 3;

	if (!rot && c->rank == 2)
		left = c->dims[1];
	for (int i = 0; fits && i < 3; i++) {
		s->section[i] = a->ints[i];
		fits = s->section[i] >= 0 && s->section[i] <= left;
		left -= s->section[i];
	}
	s->three = true;
	if (fits && !left)
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "attribute 'mrope_section' must be three numbers "
			      "whose sum is half of the channels that turn");
}

int32_t ops_mrotary_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {
		"interleaved",	      "num_heads",
		"mrope_layout",	      "rotary_embedding_dim",
		"mrope_section",      "scale",
		"is_packed_batching", NULL};
	int32_t rc = ops_check(n, attrs, 4, 4, 1, err);

	if (!rc && (exec_attr_float(n->node, "scale", 1.0) != 1.0 ||
		    exec_attr_int(n->node, "is_packed_batching", 0)))
		rc = cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				    "scale other than 1 or packed batching");
	if (!rc)
		rc = sections(n, err);
	return rc ? rc : rotary_prepare(n, 1, 2, err);
}

int32_t ops_rotary_ms_run(struct cref_node *n, const struct cref_run *r)
{
	return rotary_run(n, r, 1, 2);
}

int32_t ops_rotary_prepare(struct cref_node *n, struct genai_error *err)
{
	static const char *const attrs[] = {"interleaved", "num_heads",
					    "rotary_embedding_dim", NULL};
	int32_t rc = ops_check(n, attrs, 3, 4, 1, err);

	return rc ? rc : rotary_prepare(n, 3, 1, err);
}

int32_t ops_rotary_run(struct cref_node *n, const struct cref_run *r)
{
	return rotary_run(n, r, 3, 1);
}
