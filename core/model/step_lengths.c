// step_lengths.c - attention mask and positions become lengths on the device.
#include "core/model/step_rewrite.h"

#include <string.h>

// ---- helpers ----

uint32_t step_const(struct step_rewrite *r, const char *name, uint32_t rank,
		    int64_t v)
{
	uint32_t at = genai_builder_find(r->b, name);
	int64_t one = 1;

	if (at != GENAI_NONE)
		return at;
	return genai_builder_const(r->b, name, GENAI_DT_I64, rank, &one, &v);
}

uint32_t step_node(struct step_rewrite *r, const char *op, const char *out,
		   uint32_t dtype, uint32_t a, uint32_t b2)
{
	uint32_t in[2] = {a, b2};
	uint32_t v =
		genai_builder_value(r->b, out, dtype, GENAI_NONE, NULL, NULL);

	genai_builder_node(r->b, op, "", STEP_OPSET, out, in,
			   b2 == GENAI_NONE ? 1 : 2, &v, 1);
	return v;
}

void step_attr(struct step_rewrite *r, uint32_t value, const char *name,
	       int64_t v)
{
	const struct genai_value *gv = genai_builder_get_value(r->b, value);

	if (gv)
		genai_builder_attr_int(r->b, gv->producer, name, v);
}

int64_t step_attr_int(const struct genai_node *n, const char *name, int64_t d)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (!strcmp(a->name, name) && a->kind == GENAI_ATTR_INT)
			return a->i;
	}
	return d;
}

bool step_const_int(struct step_rewrite *r, uint32_t value, int64_t *out)
{
	const struct genai_value *v = genai_builder_get_value(r->b, value);
	const struct genai_tensor *t;
	const char *p;
	int32_t x;

	if (!v || v->tensor == GENAI_NONE || v->tensor >= r->g->n_tensors)
		return false;
	t = genai_graph_tensor(r->g, v->tensor);
	p = (const char *)genai_graph_file(r->g, t->file)->data + t->offset;
	if (t->dtype == GENAI_DT_I64 && t->bytes == 8) {
		memcpy(out, p, 8);
		return true;
	}
	if (t->dtype != GENAI_DT_I32 || t->bytes != 4)
		return false;
	memcpy(&x, p, 4);
	*out = x;
	return true;
}

static bool is_const_int(struct step_rewrite *r, uint32_t value, int64_t want)
{
	int64_t x;

	return step_const_int(r, value, &x) && x == want;
}

static bool reads(const struct genai_node *n, uint32_t value)
{
	for (uint32_t i = 0; n->op && i < n->n_inputs; i++)
		if (n->inputs[i] == value && value != GENAI_NONE)
			return true;
	return false;
}

// ---- lengths ----

void step_lengths(struct step_rewrite *r)
{
	static const int64_t one = 1;
	static const int32_t one32 = 1;
	uint32_t shape, s32, c;

	r->past = genai_builder_value(r->b, "genai.past", GENAI_DT_I32, 1, &one,
				      NULL);
	genai_builder_input(r->b, r->past);
	shape = step_node(r, "Shape", "genai.ids_shape", GENAI_DT_I64, r->ids,
			  GENAI_NONE);
	r->seq64 = step_node(r, "Gather", "genai.seq", GENAI_DT_I64, shape,
			     step_const(r, "genai.one", 1, 1));
	s32 = step_node(r, "Cast", "genai.seq32", GENAI_DT_I32, r->seq64,
			GENAI_NONE);
	step_attr(r, s32, "to", GENAI_DT_I32);
	r->total =
		step_node(r, "Add", "genai.total", GENAI_DT_I32, r->past, s32);
	c = genai_builder_const(r->b, "genai.one32", GENAI_DT_I32, 1, &one,
				&one32);
	r->last = step_node(r, "Sub", "genai.last", GENAI_DT_I32, r->total, c);
	r->total64 = GENAI_NONE;
}

// Where caches are joined, every step has other shapes, and the total is a sum
// of two of them: known before the step, so that others may depend on it.
static void total_of_shapes(struct step_rewrite *r)
{
	uint32_t shape = step_node(r, "Shape", "genai.cache_shape",
				   GENAI_DT_I64, r->joined, GENAI_NONE);
	uint32_t rows = step_node(r, "Gather", "genai.cache_rows", GENAI_DT_I64,
				  shape, step_const(r, "genai.two", 1, 2));

	r->total64 = step_node(r, "Add", "genai.total64", GENAI_DT_I64, rows,
			       r->seq64);
}

static uint32_t total_i64(struct step_rewrite *r)
{
	if (r->total64 == GENAI_NONE && r->joined != GENAI_NONE)
		total_of_shapes(r);
	if (r->total64 == GENAI_NONE) {
		r->total64 = step_node(r, "Cast", "genai.total64", GENAI_DT_I64,
				       r->total, GENAI_NONE);
		step_attr(r, r->total64, "to", GENAI_DT_I64);
	}
	return r->total64;
}

// Every Cast to int32 that reads from becomes to; true if nothing else reads
// from.
static bool replace_casts(struct step_rewrite *r, uint32_t from, uint32_t to)
{
	uint32_t n = genai_builder_n_nodes(r->b);
	bool only = true;

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_node *c = genai_builder_get_node(r->b, i);

		if (!c->op || !reads(c, from))
			continue;
		if (!strcmp(c->op, "Cast") &&
		    step_attr_int(c, "to", 0) == GENAI_DT_I32)
			genai_builder_replace(r->b, step_out(c), to);
		else
			only = false;
	}
	return only;
}

// The mask's sum is the total length; minus one, as int32, it is seqlens_k.
static void replace_sum(struct step_rewrite *r, uint32_t sum)
{
	uint32_t n = genai_builder_n_nodes(r->b);
	bool only = replace_casts(r, sum, r->total);

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_node *c = genai_builder_get_node(r->b, i);

		if (!c->op || !reads(c, sum) || !strcmp(c->op, "Cast"))
			continue;
		if (strcmp(c->op, "Sub") ||
		    !is_const_int(r, step_in(c, 1), 1) ||
		    !replace_casts(r, step_out(c), r->last))
			only = false;
	}
	if (!only)
		genai_builder_replace(r->b, sum, total_i64(r));
}

static int32_t unsupported(struct step_rewrite *r, const struct genai_node *n,
			   const char *what)
{
	return genai_fail(r->err, GENAI_E_UNSUPPORTED,
			  "node %s (%s): %s is used in a way that is not "
			  "carried",
			  n->name, n->op, what);
}

// The mask's shape: dimension 0 is the batch of one, 1 the total length.
static int32_t replace_shape(struct step_rewrite *r, uint32_t shape)
{
	uint32_t n = genai_builder_n_nodes(r->b);

	for (uint32_t i = 0; i < n; i++) {
		const struct genai_node *c = genai_builder_get_node(r->b, i);
		uint32_t out = step_out(c), to; // nodes that are added move c

		if (!c->op || !reads(c, shape))
			continue;
		if (strcmp(c->op, "Gather") || step_attr_int(c, "axis", 0))
			return unsupported(r, c, "the attention mask's shape");
		if (is_const_int(r, step_in(c, 1), 0))
			to = step_const(r, "genai.batch", 0, 1);
		else if (!is_const_int(r, step_in(c, 1), 1) &&
			 !is_const_int(r, step_in(c, 1), -1))
			return unsupported(r, c, "the attention mask's shape");
		else if (!replace_casts(r, out, r->total))
			to = total_i64(r);
		else
			continue;
		genai_builder_replace(r->b, out, to);
	}
	return 0;
}

// A mask of ones, [1, total].
static uint32_t ones(struct step_rewrite *r, uint32_t dtype)
{
	static const int64_t dims[2] = {1, 1}, one = 1;
	uint32_t in[2], shape, v;

	in[0] = step_const(r, "genai.one_row", 1, 1);
	in[1] = total_i64(r);
	shape = genai_builder_value(r->b, "genai.mask_shape", GENAI_DT_I64,
				    GENAI_NONE, NULL, NULL);
	genai_builder_node(r->b, "Concat", "", STEP_OPSET, "genai.mask_shape",
			   in, 2, &shape, 1);
	step_attr(r, shape, "axis", 0);
	v = step_node(r, "Expand", "genai.mask_ones", GENAI_DT_I64,
		      genai_builder_const(r->b, "genai.ones", GENAI_DT_I64, 2,
					  dims, &one),
		      shape);
	if (dtype == GENAI_DT_I64)
		return v;
	v = step_node(r, "Cast", "genai.mask", dtype, v, GENAI_NONE);
	step_attr(r, v, "to", dtype);
	return v;
}

int32_t step_replace_mask(struct step_rewrite *r, uint32_t mask, int depth)
{
	uint32_t n = genai_builder_n_nodes(r->b);
	int32_t rc = 0;

	// shapes are known before the step: whatever reads the mask may have it
	if (r->joined != GENAI_NONE) {
		genai_builder_replace(r->b, mask, ones(r, step_dtype(r, mask)));
		return 0;
	}

	for (uint32_t i = 0; !rc && i < n; i++) {
		const struct genai_node *c = genai_builder_get_node(r->b, i);

		if (!c->op || !reads(c, mask))
			continue;
		if (!strcmp(c->op, "ReduceSum"))
			replace_sum(r, step_out(c));
		else if (!strcmp(c->op, "Shape"))
			rc = replace_shape(r, step_out(c));
		else if (!strcmp(c->op, "Cast") && depth < 4)
			rc = step_replace_mask(r, step_out(c), depth + 1);
		else
			rc = unsupported(r, c, "the attention mask");
	}
	return rc;
}

// ---- positions ----

// Do the sections have all pairs that turn?
static bool sections_fit(const struct step_rewrite *r,
			 const struct genai_node *n)
{
	const struct genai_value *c =
		genai_builder_get_value(r->b, step_in(n, 2));
	int64_t pairs = step_attr_int(n, "rotary_embedding_dim", 0) / 2;

	if (!pairs && c && c->rank == 2)
		pairs = c->dims[1];
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (strcmp(a->name, "mrope_section"))
			continue;
		if (a->kind != GENAI_ATTR_INTS || a->count != 3)
			return false;
		for (int k = 0; k < 3; k++) {
			if (a->ints[k] < 0 || a->ints[k] > pairs)
				return false;
			pairs -= a->ints[k];
		}
		return !pairs;
	}
	return false;
}

// An attribute that RotaryEmbedding has, too: 1; that says which position is
// whose: 0; another one: -1.
static int rotary_attr(const struct genai_attr *a)
{
	static const char *const kept[] = {"interleaved", "num_heads",
					   "rotary_embedding_dim",
					   "is_packed_batching"};

	for (int i = 0; i < 4; i++)
		if (!strcmp(kept[i], a->name))
			return a->kind == GENAI_ATTR_INT ? 1 : -1;
	if (!strcmp(a->name, "mrope_layout"))
		return a->kind == GENAI_ATTR_INT && a->i >= 0 && a->i <= 1 ? 0
									   : -1;
	return strcmp(a->name, "mrope_section") ? -1 : 0;
}

// Three rows that are the same: an MRotaryEmbedding that reads them is a
// RotaryEmbedding that counts from one position.
static int32_t replace_mrotary(struct step_rewrite *r, uint32_t node,
			       uint32_t past)
{
	const struct genai_node *n = genai_builder_get_node(r->b, node);
	uint32_t in[4], out = step_out(n), to;
	const char *names[4], *name = n->name;
	int64_t values[4];
	uint32_t kept = 0;

	if (!sections_fit(r, n))
		return genai_fail(r->err, GENAI_E_UNSUPPORTED,
				  "node %s (%s): attribute mrope_section must "
				  "be three numbers whose sum is half of the "
				  "channels that turn",
				  n->name, n->op);
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);
		int like = rotary_attr(a);

		if (like < 0 || kept == 4)
			return 0; // for the executor to refuse
		if (!like)
			continue;
		names[kept] = a->name;
		values[kept++] = a->i;
	}
	for (uint32_t i = 0; i < 4; i++)
		in[i] = step_in(n, i);
	in[1] = past;
	genai_builder_remove_node(r->b, node);
	to = genai_builder_node(r->b, "RotaryEmbedding", "com.microsoft", 1,
				name, in, 4, &out, 1);
	for (uint32_t i = 0; i < kept; i++)
		genai_builder_attr_int(r->b, to, names[i], values[i]);
	return 0;
}

// A rotary embedding counts from one position itself.
static int32_t replace_rotary(struct step_rewrite *r, uint32_t ids,
			      uint32_t past)
{
	uint32_t n = genai_builder_n_nodes(r->b);
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < n; i++) {
		const struct genai_node *c = genai_builder_get_node(r->b, i);

		if (!c->op || strcmp(c->domain, "com.microsoft") ||
		    step_in(c, 1) != ids || c->n_inputs != 4 ||
		    c->n_outputs != 1)
			continue;
		if (!strcmp(c->op, "MRotaryEmbedding"))
			rc = replace_mrotary(r, i, past);
		else if (!strcmp(c->op, "RotaryEmbedding"))
			genai_builder_set_input(r->b, i, 1, past);
	}
	return rc;
}

static bool has_three(const struct step_rewrite *r, uint32_t ids)
{
	const struct genai_value *v = genai_builder_get_value(r->b, ids);

	return v && v->rank == 3 && v->dims[0] == 3;
}

// The same positions in three rows.
static uint32_t three_of(struct step_rewrite *r, uint32_t pos)
{
	static const int64_t dim = 3, dims[] = {3, 1, 1};
	uint32_t shape = genai_builder_const(r->b, "genai.three", GENAI_DT_I64,
					     1, &dim, dims);

	return step_node(r, "Expand", "genai.position_rows", GENAI_DT_I64, pos,
			 shape);
}

// past .. past + S - 1, in a row.
static uint32_t make_positions(struct step_rewrite *r, uint32_t past)
{
	uint32_t zero = step_const(r, "genai.zero", 0, 0);
	uint32_t step = step_const(r, "genai.step", 0, 1);
	uint32_t axes = step_const(r, "genai.axis0", 1, 0);
	uint32_t in[3] = {zero, 0, step}, range, at;

	in[1] = step_node(r, "Squeeze", "genai.seq_scalar", GENAI_DT_I64,
			  r->seq64, axes);
	range = genai_builder_value(r->b, "genai.range", GENAI_DT_I64,
				    GENAI_NONE, NULL, NULL);
	genai_builder_node(r->b, "Range", "", STEP_OPSET, "genai.range", in, 3,
			   &range, 1);
	at = step_node(r, "Add", "genai.positions", GENAI_DT_I64, range, past);
	// The largest step, for which memory is planned, has a full cache and a
	// chunk behind it, and where caches are joined its positions are known.
	if (r->joined != GENAI_NONE && r->c->context_length > 0)
		at = step_node(r, "Min", "genai.positions_there", GENAI_DT_I64,
			       at,
			       step_const(r, "genai.last_position", 1,
					  r->c->context_length - 1));
	return step_node(r, "Unsqueeze", "genai.position_ids", GENAI_DT_I64, at,
			 axes);
}

int32_t step_positions(struct step_rewrite *r, uint32_t ids)
{
	const bool three = has_three(r, ids);
	uint32_t pos;
	// not from genai.past: the total is written over it first
	uint32_t past = step_node(r, "Sub", "genai.past64", GENAI_DT_I64,
				  total_i64(r), r->seq64);
	int32_t rc = replace_rotary(r, ids, past);

	pos = make_positions(r, past);
	genai_builder_replace(r->b, ids, three ? three_of(r, pos) : pos);
	genai_builder_remove_input(r->b, ids);
	return rc;
}

int32_t step_packed_positions(struct step_rewrite *r, uint32_t ids)
{
	static const int64_t any[2] = {-1, -1};
	uint32_t pos;
	int32_t rc;

	if (!has_three(r, ids))
		return 0;
	pos = genai_builder_value(r->b, "genai.positions", GENAI_DT_I64, 2, any,
				  NULL);
	genai_builder_input(r->b, pos);
	rc = replace_rotary(r, ids, pos);
	genai_builder_replace(r->b, ids, three_of(r, pos));
	genai_builder_remove_input(r->b, ids);
	return rc;
}
