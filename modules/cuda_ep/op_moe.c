// op_moe.c - MoE and QMoE: rows go to the k experts that their router logits
// choose.  Owns: what of them is carried, and which kernels of kernels/moe.cu
// multiply: that depends on types and sizes only, so a row has the same bits in
// every step.
#include <math.h>

#include "modules/cuda_ep/op_matmul.h"

// As in kernels/moe.cu.
#define DEPTH 3
#define WARPS 4

// One of the products.  Inputs are 0 where there is none.
struct moe_fc {
	uint8_t w, scale, zero, bias; // inputs of the node
	uint8_t bits;		      // 0: floats
	uint8_t zp_kind;
	uint32_t block, n_blocks, zp_row;
	int64_t n, k; // outputs, inputs
};

struct moe_state {
	int64_t m, d, e, i, k;
	uint32_t act, fusion; // 1: by turns, 2: gates first, 0: apart
	bool normalize, late, own, fast[2];
	float alpha, beta, limit;
	struct moe_fc fc[3];
	// in the workspace
	uint64_t ids, weights, pairs, items, n_items, hidden, y;
};
EXEC_STATE(moe_state, cep_node)

// ---- attributes ----

static int32_t activation(const struct cep_node *n, struct moe_state *s,
			  bool *out_gates, struct genai_error *err)
{
	static const struct {
		const char *name;
		uint32_t act;
		bool gates; // a second product
	} acts[] = {
		{"relu", CEP_MOE_RELU, false},
		{"relu2", CEP_MOE_RELU2, false},
		{"gelu", CEP_MOE_GELU, false},
		{"silu", CEP_MOE_SILU, false},
		{"swiglu", CEP_MOE_SWIGLU, true},
		{"geglu", CEP_MOE_GELU, true},
		{"identity", CEP_MOE_IDENTITY, false},
	};
	const char *type = exec_attr_string(n->node, "activation_type", "relu");
	const int64_t fusion = exec_attr_int(n->node, "swiglu_fusion", 0);

	if (fusion < 0 || fusion > 2)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "attribute swiglu_fusion is %lld, not 0, "
				     "1 or 2",
				     (long long)fusion);
	for (size_t i = 0; i < sizeof(acts) / sizeof(acts[0]); i++) {
		if (strcmp(acts[i].name, type))
			continue;
		s->act = acts[i].act;
		s->fusion = acts[i].gates ? (uint32_t)fusion : 0;
		*out_gates = acts[i].gates;
		return 0;
	}
	return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
			     "activation_type is %.40s, carried: relu, relu2, "
			     "gelu, silu, swiglu, geglu, identity",
			     type);
}

static int32_t attributes(const struct cep_node *n, struct moe_state *s,
			  struct genai_error *err)
{
	bool gates = false, apart = s->fc[2].w != 0;
	int32_t rc = activation(n, s, &gates, err);

	if (rc)
		return rc;
	s->k = exec_attr_int(n->node, "k", 1);
	s->normalize = exec_attr_int(n->node, "normalize_routing_weights", 0);
	s->late = exec_attr_int(n->node, "swiglu_limit_after_activation", 0);
	s->alpha = exec_attr_float(n->node, "activation_alpha", 1);
	s->beta = exec_attr_float(n->node, "activation_beta", 0);
	s->limit = exec_attr_float(n->node, "swiglu_limit", INFINITY);
	if (exec_attr_int(n->node, "use_sparse_mixer", 0))
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "use_sparse_mixer 1 is not carried");
	if (s->limit < 0)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "attribute swiglu_limit is %g: negative",
				     (double)s->limit);
	if (!s->fc[1].w)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "the weights of fc2 are missing");
	if (gates && apart == (s->fusion != 0))
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     apart ? "swiglu_fusion %u and weights of "
					     "fc3 as well"
					   : "swiglu_fusion %u wants weights "
					     "of fc3",
				     s->fusion);
	return 0;
}

static int32_t layout(const struct cep_node *n, struct genai_error *err)
{
	struct exec_text why;
	int32_t rc = exec_qmoe_layout(n->node, n->in[0]->dtype, &why);

	return rc ? cep_node_fail(n, err, rc, "%s", why.s) : 0;
}

// ---- inputs ----

static bool there(const struct cep_node *n, uint32_t i)
{
	return i && i < n->n_in && n->in[i];
}

// Rows, experts, the sizes of the products.
static int32_t sizes(const struct cep_node *n, struct moe_state *s,
		     struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0], *w = n->in[2];
	const int64_t most = (int64_t)1 << 24;
	int64_t logits[2];

	if (x->rank < 2 || x->rank > 3 || w->rank != 3)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "inputs 0 and 2 of rank %u and %u",
				     x->rank, w->rank);
	s->d = x->dims[x->rank - 1];
	s->m = s->d ? (int64_t)exec_count(x) / s->d : 0;
	s->e = w->dims[0];
	s->i = w->dims[1] / (s->fusion ? 2 : 1);
	if (s->e < 1 || s->i < 1 || (s->fusion && w->dims[1] % 2) || s->d < 1 ||
	    s->i > most || s->d > most || s->m > most)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "%lld rows of %lld and %lld experts of "
				     "%lld rows do not fit together",
				     (long long)s->m, (long long)s->d,
				     (long long)s->e, (long long)w->dims[1]);
	if (s->e > CEP_EXPERTS)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "%lld experts: at most %u are carried",
				     (long long)s->e, CEP_EXPERTS);
	if (s->k < 1 || s->k > s->e)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "k is %lld of %lld experts",
				     (long long)s->k, (long long)s->e);
	s->fc[0].k = s->fc[2].k = s->fc[1].n = s->d;
	s->fc[0].n = w->dims[1];
	s->fc[1].k = s->fc[2].n = s->i;
	logits[0] = s->m;
	logits[1] = s->e;
	return cep_need_shape(n, 1, 2, logits, false, err);
}

static int32_t bias(const struct cep_node *n, const struct moe_state *s,
		    struct moe_fc *f, struct genai_error *err)
{
	const int64_t dims[2] = {s->e, f->n};
	int32_t rc;

	if (!there(n, f->bias)) {
		f->bias = 0;
		return 0;
	}
	rc = cep_need_same(n, f->bias, 0, err);
	return rc ? rc : cep_need_shape(n, f->bias, 2, dims, false, err);
}

static int32_t zeros(const struct cep_node *n, const struct moe_state *s,
		     struct moe_fc *f, bool blocks, struct genai_error *err)
{
	const uint32_t rank = blocks ? 3 : 2;
	int64_t dims[3] = {s->e, f->n, f->n_blocks};
	int32_t rc = 0;

	f->zp_kind = CEP_ZP_NONE;
	if (!there(n, f->zero))
		return 0;
	if (n->in[f->zero]->dtype != GENAI_DT_U8) {
		f->zp_kind = CEP_ZP_FLOAT;
		rc = cep_need_same(n, f->zero, 0, err);
	} else {
		f->zp_kind = blocks ? CEP_ZP_PACKED : CEP_ZP_TURNED;
		dims[rank - 1] = (dims[rank - 1] * f->bits + 7) / 8;
		f->zp_row = (uint32_t)dims[rank - 1];
	}
	return rc ? rc : cep_need_shape(n, f->zero, rank, dims, false, err);
}

// Codes, scales, zero points of a product.
static int32_t codes(const struct cep_node *n, const struct moe_state *s,
		     struct moe_fc *f, int64_t block, struct genai_error *err)
{
	const int64_t w[3] = {s->e, f->n, f->k * f->bits / 8};
	const int64_t sc[3] = {s->e, f->n, block ? f->k / block : 1};
	int32_t rc;

	if (f->bits != 2 && f->bits != 4 && f->bits != 8)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "expert weights of %u bits, carried: 2, "
				     "4, 8",
				     f->bits);
	if ((block && f->k % block) || f->k * f->bits % 8)
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "rows of %lld weights of %u bits in "
				     "blocks of %lld",
				     (long long)f->k, f->bits,
				     (long long)block);
	if (!there(n, f->scale))
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "input %u, the scales, is missing",
				     f->scale);
	if (n->in[f->w]->dtype != GENAI_DT_U8)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "input %u has dtype %u", f->w,
				     n->in[f->w]->dtype);
	// one scale for a row: a block that is longer than it
	f->block = (uint32_t)block;
	while (!block &&
	       (int64_t)(f->block = f->block ? f->block * 2 : 32) < f->k)
		;
	f->n_blocks = (uint32_t)sc[2];
	if ((rc = cep_need_same(n, f->scale, 0, err)) ||
	    (rc = cep_need_shape(n, f->w, 3, w, false, err)) ||
	    (rc = cep_need_shape(n, f->scale, block ? 3 : 2, sc, false, err)) ||
	    (rc = zeros(n, s, f, block != 0, err)))
		return rc;
	return bias(n, s, f, err);
}

static int32_t all_codes(const struct cep_node *n, struct moe_state *s,
			 struct genai_error *err)
{
	static const char *const names[] = {"fc1_expert_weight_bits",
					    "fc2_expert_weight_bits",
					    "fc3_expert_weight_bits"};
	const int64_t all = exec_attr_int(n->node, "expert_weight_bits", 4);
	const int64_t block = exec_attr_int(n->node, "block_size", 0);
	int32_t rc = 0;

	if (block && (block < 16 || block > 1 << 20 || (block & (block - 1))))
		return cep_node_fail(n, err, GENAI_E_INVAL,
				     "block_size %lld is no power of two from "
				     "16 to 1048576",
				     (long long)block);
	for (uint32_t i = 0; !rc && i < 3; i++) {
		const int64_t bits = exec_attr_int(n->node, names[i], all);

		s->fc[i].bits = bits > 0 && bits < 9 ? (uint8_t)bits : 9;
		if (s->fc[i].w)
			rc = codes(n, s, &s->fc[i], block, err);
	}
	return rc;
}

static int32_t all_floats(const struct cep_node *n, struct moe_state *s,
			  struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < 3; i++) {
		struct moe_fc *f = &s->fc[i];
		const int64_t w[3] = {s->e, f->n, f->k};

		if (!f->w)
			continue;
		if (!(rc = cep_need_same(n, f->w, 0, err)) &&
		    !(rc = cep_need_shape(n, f->w, 3, w, false, err)))
			rc = bias(n, s, f, err);
	}
	return rc;
}

// ---- planning ----

static bool is_fast(const struct cep_node *n, const struct moe_fc *f)
{
	return n->in[0]->dtype != GENAI_DT_F32 && f->bits == 4 &&
	       f->block >= 32 && f->k % 32 == 0 &&
	       (n->in[0]->dtype == GENAI_DT_F16 || n->self->major >= 8);
}

static uint64_t most_items(const struct moe_state *s)
{
	const uint64_t pairs = (uint64_t)(s->m * s->k);
	const uint64_t items = pairs / 8 + (uint64_t)s->e;

	return items < pairs ? items : pairs;
}

static void part(uint64_t *at, uint64_t *end, uint64_t count, uint64_t bytes)
{
	*at = *end;
	*end += (count * bytes + 255) / 256 * 256;
}

// Sizes are below 2^24: no product of two and a few bytes overflows.
static int32_t finish(struct cep_node *n, struct moe_state *s,
		      struct genai_error *err)
{
	const struct exec_tensor *x = n->in[0];
	const uint64_t pairs = (uint64_t)(s->m * s->k);
	uint64_t end = 0;

	if (pairs > (uint64_t)1 << 24)
		return cep_node_fail(n, err, GENAI_E_LIMIT,
				     "%lld rows of %lld experts each",
				     (long long)s->m, (long long)s->k);
	s->fast[0] =
		is_fast(n, &s->fc[0]) && (!s->fc[2].w || is_fast(n, &s->fc[2]));
	s->fast[1] = is_fast(n, &s->fc[1]);
	part(&s->ids, &end, pairs, 4);
	part(&s->weights, &end, pairs, 4);
	part(&s->pairs, &end, pairs, 4);
	part(&s->items, &end, most_items(s), 16);
	part(&s->n_items, &end, 1, 4);
	part(&s->hidden, &end, pairs * (uint64_t)s->i,
	     cep_dtype_bytes(x->dtype));
	part(&s->y, &end, pairs * (uint64_t)s->d, 4);
	n->workspace_bytes = end;
	*moe_state(n) = *s;
	return cep_out(n, 0, x->dtype, x->rank, x->dims, err);
}

static int32_t start(const struct cep_node *n, const char *const *attrs,
		     uint32_t max_in, struct genai_error *err)
{
	int32_t rc = cep_check(n, attrs, 3, max_in, 1, err);

	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	for (uint32_t i = 0; !rc && i < 2; i++)
		rc = cep_need_float(n, i, err);
	return rc;
}

int32_t cep_prepare_moe(struct cep_node *n, struct genai_error *err)
{
	struct moe_state s = {0};
	int32_t rc = start(n, exec_moe_attrs, 8, err);

	for (uint8_t i = 0; i < 3; i++) {
		s.fc[i].w = there(n, 2 + 2 * i) ? 2 + 2 * i : 0;
		s.fc[i].bias = 3 + 2 * i;
	}
	if (rc || (rc = attributes(n, &s, err)) || (rc = sizes(n, &s, err)) ||
	    (rc = all_floats(n, &s, err)))
		return rc;
	return finish(n, &s, err);
}

int32_t cep_prepare_qmoe(struct cep_node *n, struct genai_error *err)
{
	struct moe_state s = {0};
	int32_t rc = start(n, exec_qmoe_attrs, EXEC_MAX_IN, err);
	int64_t logits[2];

	for (uint8_t i = 0; i < 3; i++) {
		s.fc[i].w = there(n, 2 + 3 * i) ? 2 + 3 * i : 0;
		s.fc[i].scale = 3 + 3 * i;
		s.fc[i].bias = 4 + 3 * i;
		s.fc[i].zero = 11 + i;
	}
	for (uint32_t i = 15; !rc && i < n->n_in; i++)
		if (n->in[i])
			return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
					     "input %u, a scale of another "
					     "kind, is not carried",
					     i);
	if (rc || (rc = layout(n, err)) || (rc = attributes(n, &s, err)) ||
	    (rc = sizes(n, &s, err)) || (rc = all_codes(n, &s, err)))
		return rc;
	s.own = there(n, 14);
	logits[0] = s.m;
	logits[1] = s.e;
	if (s.own && ((rc = cep_need_float(n, 14, err)) ||
		      (rc = cep_need_shape(n, 14, 2, logits, false, err))))
		return rc;
	return finish(n, &s, err);
}

// ---- running ----

// Pairs of an item: as many as both products' kernels take; all rows of a small
// step that chose an expert are one item.
static uint32_t group_of(const struct moe_state *s)
{
	if (s->fast[0] && s->fast[1])
		return s->m <= 8 ? 8 : 32;
	return s->m == 1 ? 1 : 8;
}

static int32_t choose(const struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	const int64_t rows = s->m < 32 ? s->m : 32;
	const int64_t warps = rows * 32 < s->e ? (s->e + 31) / 32 : rows;
	struct cep_moe_route p = {
		.logits = n->in[1]->addr,
		.own = s->own ? n->in[14]->addr : 0,
		.ids = r->workspace + s->ids,
		.weights = r->workspace + s->weights,
		.pairs = r->workspace + s->pairs,
		.items = r->workspace + s->items,
		.n_items = r->workspace + s->n_items,
		.rows = (uint32_t)s->m,
		.experts = (uint32_t)s->e,
		.k = (uint32_t)s->k,
		.group = group_of(s),
		.dt = n->in[1]->dtype,
		.own_dt = s->own ? n->in[14]->dtype : 0,
		.normalize = s->normalize,
		.blame = cep_blame_of(n, r),
	};

	return cep_run_kernel(r, CEP_K_cep_moe_choose,
			      (struct cep_dim3){1, 1, 1}, (uint32_t)warps * 32,
			      0, &p);
}

static uint64_t addr_of(const struct cep_node *n, uint32_t i)
{
	return there(n, i) ? n->in[i]->addr : 0;
}

static int32_t matrix(const struct cep_node *n, const struct cep_run *r,
		      const struct moe_fc *f, struct cep_moe_mat *out)
{
	*out = (struct cep_moe_mat){
		.w = n->in[f->w]->addr,
		.scales = addr_of(n, f->scale),
		.zp = addr_of(n, f->zero),
		.bias = addr_of(n, f->bias),
		.rows = (uint32_t)f->n,
		.bits = f->bits,
		.block = f->block,
		.n_blocks = f->n_blocks,
		.zp_kind = f->zp_kind,
		.zp_row = f->zp_row,
	};
	return out->w % 16
		       ? cep_node_fail(n, r->err, GENAI_E_INVAL,
				       "input %u is not aligned to 16", f->w)
		       : 0;
}

static enum cep_kernel kernel_of(const struct cep_node *n,
				 const struct cep_moe *p, bool fast,
				 uint32_t group)
{
	static const enum cep_kernel four[2][2][2] = {
		{{CEP_K_cep_moe4_8_f16_0, CEP_K_cep_moe4_8_f16_1},
		 {CEP_K_cep_moe4_32_f16_0, CEP_K_cep_moe4_32_f16_1}},
		{{CEP_K_cep_moe4_8_bf16_0, CEP_K_cep_moe4_8_bf16_1},
		 {CEP_K_cep_moe4_32_bf16_0, CEP_K_cep_moe4_32_bf16_1}},
	};
	const uint32_t dtype = n->in[0]->dtype;

	if (fast)
		return four[dtype == GENAI_DT_BF16][group > 8]
			   [p->m[0].zp_kind != CEP_ZP_NONE ||
			    (p->dual && p->m[1].zp_kind != CEP_ZP_NONE)];
	return group == 1
		       ? cep_by_dtype(dtype, CEP_K_cep_moe_1_f32,
				      CEP_K_cep_moe_1_f16, CEP_K_cep_moe_1_bf16)
		       : cep_by_dtype(dtype, CEP_K_cep_moe_8_f32,
				      CEP_K_cep_moe_8_f16,
				      CEP_K_cep_moe_8_bf16);
}

// A product of every item.
static int32_t multiply(const struct cep_node *n, struct cep_run *r,
			struct cep_moe *p, bool fast)
{
	const struct moe_state *s = moe_state(n);
	const uint32_t group = group_of(s),
		       size = cep_dtype_bytes(n->in[0]->dtype);
	const uint32_t outs = !fast ? 8 : p->dual ? 8 : 16;
	const uint64_t most = most_items(s);
	const struct cep_dim3 grid = {
		(p->n + outs - 1) / outs,
		(uint32_t)(most < 65535 ? most : 65535),
		1,
	};
	const enum cep_kernel k = kernel_of(n, p, fast, group);
	const bool zp = p->m[0].zp_kind || (p->dual && p->m[1].zp_kind);
	uint64_t low = p->m[0].scales | (p->dual ? p->m[1].scales : 0);

	p->vec = p->k % 8 == 0 && cep_is_vec(p->x, p->k, size);
	if (!fast)
		return cep_run_kernel(r, k, grid, 256, 0, p);
	while (32u << p->shift < p->m[0].block)
		p->shift++;
	p->async = !p->shift && p->m[0].n_blocks % 2 == 0 && low % 4 == 0;
	return cep_run_kernel(r, k, grid, 32 * WARPS,
			      WARPS * DEPTH * (zp ? 2816 : 2304), p);
}

static int32_t first(const struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	const bool apart = s->fc[2].w;
	struct cep_moe p = {
		.x = n->in[0]->addr,
		.out = r->workspace + s->hidden,
		.pairs = r->workspace + s->pairs,
		.items = r->workspace + s->items,
		.n_items = r->workspace + s->n_items,
		.n = (uint32_t)s->i,
		.k = (uint32_t)s->d,
		.row_mul = s->fusion == 1 ? 2 : 1,
		.row_add = s->fusion == 1   ? 1
			   : s->fusion == 2 ? (uint32_t)s->i
					    : 0,
		.dual = apart || s->fusion,
		.slots = (uint32_t)s->k,
		.act = s->act,
		.late = s->late,
		.alpha = s->alpha,
		.beta = s->beta,
		.limit = s->limit,
	};
	int32_t rc = matrix(n, r, &s->fc[0], &p.m[0]);

	if (!rc)
		rc = matrix(n, r, &s->fc[apart ? 2 : 0], &p.m[1]);
	return rc ? rc : multiply(n, r, &p, s->fast[0]);
}

static int32_t second(const struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	struct cep_moe p = {
		.x = r->workspace + s->hidden,
		.out = r->workspace + s->y,
		.pairs = r->workspace + s->pairs,
		.items = r->workspace + s->items,
		.n_items = r->workspace + s->n_items,
		.n = (uint32_t)s->d,
		.k = (uint32_t)s->i,
		.row_mul = 1,
		.slots = 1,
		.last = 1,
	};
	int32_t rc = matrix(n, r, &s->fc[1], &p.m[0]);

	return rc ? rc : multiply(n, r, &p, s->fast[1]);
}

static int32_t sum(const struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	const struct cep_moe_sum p = {
		.y = r->workspace + s->y,
		.weights = r->workspace + s->weights,
		.out = n->out[0]->addr,
		.rows = (uint64_t)s->m,
		.dim = (uint64_t)s->d,
		.k = (uint32_t)s->k,
	};

	return cep_run_kernel(
		r,
		cep_by_dtype(n->in[0]->dtype, CEP_K_cep_moe_sum_f32,
			     CEP_K_cep_moe_sum_f16, CEP_K_cep_moe_sum_bf16),
		(struct cep_dim3){(uint32_t)((s->m * s->d + 255) / 256), 1, 1},
		256, 0, &p);
}

int32_t cep_run_moe(struct cep_node *n, struct cep_run *r)
{
	int32_t rc;

	if (!moe_state(n)->m)
		return 0;
	rc = choose(n, r);
	rc = rc ? rc : first(n, r);
	rc = rc ? rc : second(n, r);
	return rc ? rc : sum(n, r);
}
