// op_moe.c - MoE and QMoE: rows go to the k experts that their router logits
// choose.  Owns: what of them is carried, and which kernels of kernels/moe.cu
// multiply, or of moe1.cu one row: the order of sums depends on types and sizes
// only, so a row has the same bits in every step.
#include "modules/cuda_ep/op_matmul.h"

#include <genai/pager.h>

#include "modules/exec_common/moe.h"

// As in kernels/moe.cu.
#define DEPTH 3
#define WARPS 4
// Most warps of a block of kernels/moe1.cu.
#define WARPS1 24

struct moe_state {
	struct exec_moe m;
	bool fast[2];
	// in the workspace
	uint64_t ids, weights, pairs, items, n_items, hidden, y;
};
EXEC_STATE(moe_state, cep_node)
_Static_assert((int)EXEC_MOE_Z_NONE == CEP_ZP_NONE &&
		       (int)EXEC_MOE_Z_PACKED == CEP_ZP_PACKED &&
		       (int)EXEC_MOE_Z_FLOAT == CEP_ZP_FLOAT &&
		       (int)EXEC_MOE_Z_TURNED == CEP_ZP_TURNED,
	       "kernels know zero points by the same numbers");

// ---- planning ----

static bool is_fast(const struct cep_node *n, const struct exec_moe_fc *f)
{
	return n->in[0]->dtype != GENAI_DT_F32 && f->bits == 4 &&
	       f->block >= 32 && f->K % 32 == 0 &&
	       (n->in[0]->dtype == GENAI_DT_F16 || n->self->major >= 8);
}

static uint64_t most_items(const struct moe_state *s)
{
	const uint64_t pairs = (uint64_t)(s->m.M * s->m.k);
	const uint64_t items = pairs / 8 + (uint64_t)s->m.E;

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
	const int64_t most = (int64_t)1 << 24;
	const int64_t pairs = s->m.M * s->m.k;
	uint64_t end = 0;

	if (s->m.E > CEP_EXPERTS)
		return cep_node_fail(n, err, GENAI_E_UNSUPPORTED,
				     "%lld experts: at most %u are carried",
				     (long long)s->m.E, CEP_EXPERTS);
	if (s->m.M > most || s->m.D > most || s->m.I > most || pairs > most)
		return cep_node_fail(n, err, GENAI_E_LIMIT,
				     "%lld rows of %lld go to %lld experts of "
				     "%lld each",
				     (long long)s->m.M, (long long)s->m.D,
				     (long long)s->m.k, (long long)s->m.I);
	s->fast[0] = is_fast(n, &s->m.fc[0]) &&
		     (!s->m.fc[2].w || is_fast(n, &s->m.fc[2]));
	s->fast[1] = is_fast(n, &s->m.fc[1]);
	part(&s->ids, &end, (uint64_t)pairs, 4);
	part(&s->weights, &end, (uint64_t)pairs, 4);
	part(&s->pairs, &end, (uint64_t)pairs, 4);
	part(&s->items, &end, most_items(s), 16);
	part(&s->n_items, &end, 1, 4);
	part(&s->hidden, &end, (uint64_t)(pairs * s->m.I),
	     cep_dtype_bytes(x->dtype));
	part(&s->y, &end, (uint64_t)(pairs * s->m.D), 4);
	n->workspace_bytes = end;
	*moe_state(n) = *s;
	return cep_out(n, 0, x->dtype, x->rank, x->dims, err);
}

// The floats of experts are of the type of the rows.
static int32_t types(const struct cep_node *n, const struct exec_moe *s,
		     struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = 2; !rc && i < n->n_in; i++)
		if (i != s->own && n->in[i] && n->in[i]->dtype != GENAI_DT_U8)
			rc = cep_need_same(n, i, 0, err);
	for (uint32_t i = 0; !rc && i < n->n_in; i++)
		rc = cep_need_dense(n, i, err);
	return rc;
}

static int32_t prepare(struct cep_node *n, const char *const *attrs,
		       uint32_t max_in, bool quantised, struct genai_error *err)
{
	struct moe_state s = {0};
	struct exec_text why;
	int32_t rc = cep_check(n, attrs, 3, max_in, 1, err);

	if (rc)
		return rc;
	rc = exec_moe_check(n->node, n->in, n->n_in, quantised, &s.m, &why);
	if (rc)
		return cep_node_fail(n, err, rc, "%s", why.s);
	rc = types(n, &s.m, err);
	return rc ? rc : finish(n, &s, err);
}

int32_t cep_prepare_moe(struct cep_node *n, struct genai_error *err)
{
	return prepare(n, exec_moe_attrs, 8, false, err);
}

int32_t cep_prepare_qmoe(struct cep_node *n, struct genai_error *err)
{
	return prepare(n, exec_qmoe_attrs, EXEC_MAX_IN, true, err);
}

// ---- running ----

// Pairs of an item: as many as both products' kernels take; all rows of a small
// step that chose an expert are one item.
static uint32_t group_of(const struct moe_state *s)
{
	if (s->fast[0] && s->fast[1])
		return s->m.M <= 8 ? 8 : 32;
	return s->m.M == 1 ? 1 : 8;
}

// Where uses are counted, if experts lie apart.
static uint64_t uses_of(const struct cep_node *n)
{
	for (uint32_t i = 2; i < n->n_in; i++)
		if (n->in[i] && n->in[i]->experts)
			return n->in[i]->experts->uses;
	return 0;
}

static struct cep_moe_route route(const struct cep_node *n,
				  const struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);

	return (struct cep_moe_route){
		.logits = n->in[1]->addr,
		.own = s->m.own ? n->in[s->m.own]->addr : 0,
		.ids = r->workspace + s->ids,
		.weights = r->workspace + s->weights,
		.pairs = r->workspace + s->pairs,
		.items = r->workspace + s->items,
		.n_items = r->workspace + s->n_items,
		.uses = uses_of(n),
		.rows = (uint32_t)s->m.M,
		.experts = (uint32_t)s->m.E,
		.k = (uint32_t)s->m.k,
		.group = group_of(s),
		.dt = n->in[1]->dtype,
		.own_dt = s->m.own ? n->in[s->m.own]->dtype : 0,
		.normalize = s->m.normalize,
		.blame = cep_blame_of(n, r),
	};
}

static int32_t choose(const struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	const int64_t rows = s->m.M < 32 ? s->m.M : 32;
	const int64_t warps = rows * 32 < s->m.E ? (s->m.E + 31) / 32 : rows;
	const struct cep_moe_route p = route(n, r);

	return cep_run_kernel(r, CEP_K_cep_moe_choose,
			      (struct cep_dim3){1, 1, 1}, (uint32_t)warps * 32,
			      0, &p);
}

static uint64_t addr_of(const struct cep_node *n, uint32_t i)
{
	return i ? n->in[i]->addr : 0;
}

static uint32_t apart(const struct cep_node *n, uint32_t i, uint32_t bit)
{
	return i && n->in[i]->experts ? bit : 0;
}

// Of which the experts' addresses are multiples, if their bytes are.
static uint64_t low_of(const struct cep_node *n, uint32_t i)
{
	return i && n->in[i]->experts ? n->in[i]->experts->host.addr
				      : addr_of(n, i);
}

static int32_t matrix(const struct cep_node *n, const struct cep_run *r,
		      const struct exec_moe_fc *f, struct cep_moe_mat *out)
{
	*out = (struct cep_moe_mat){
		.w = n->in[f->w]->addr,
		.scales = addr_of(n, f->scale),
		.zp = addr_of(n, f->zero),
		.bias = addr_of(n, f->bias),
		.rows = (uint32_t)f->N,
		.bits = f->bits,
		.block = f->block,
		.n_blocks = f->blocks,
		.zp_kind = f->z_kind,
		.zp_row = f->z_row,
		.apart = apart(n, f->w, CEP_APART_W) |
			 apart(n, f->scale, CEP_APART_SCALES) |
			 apart(n, f->zero, CEP_APART_ZP) |
			 apart(n, f->bias, CEP_APART_BIAS),
	};
	return low_of(n, f->w) % 16
		       ? cep_node_fail(n, r->err, GENAI_E_INVAL,
				       "input %u is not aligned to 16", f->w)
		       : 0;
}

static bool has_apart(const struct cep_moe *p)
{
	return p->m[0].apart || p->m[1].apart;
}

static bool has_zeros(const struct cep_moe *p)
{
	return p->m[0].zp_kind || (p->dual && p->m[1].zp_kind);
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
		return four[dtype == GENAI_DT_BF16][group > 8][has_zeros(p)];
	return group == 1
		       ? cep_by_dtype(dtype, CEP_K_cep_moe_1_f32,
				      CEP_K_cep_moe_1_f16, CEP_K_cep_moe_1_bf16)
		       : cep_by_dtype(dtype, CEP_K_cep_moe_8_f32,
				      CEP_K_cep_moe_8_f16,
				      CEP_K_cep_moe_8_bf16);
}

// How the rows of a product lie.
static void set_rows(const struct cep_node *n, struct cep_moe *p, uint64_t low)
{

	p->vec = p->k % 8 == 0 &&
		 cep_is_vec(p->x, p->k, cep_dtype_bytes(n->in[0]->dtype));
	while (32u << p->shift < p->m[0].block)
		p->shift++;
	p->async = !p->shift && p->m[0].n_blocks % 2 == 0 && low % 4 == 0;
}

// A product of every item.
static int32_t multiply(const struct cep_node *n, struct cep_run *r,
			const struct cep_moe *p, bool fast)
{
	const struct moe_state *s = moe_state(n);
	const uint32_t group = group_of(s);
	const uint32_t outs = !fast ? 8 : p->dual ? 8 : 16;
	const uint64_t most = most_items(s);
	const struct cep_dim3 grid = {
		(p->n + outs - 1) / outs,
		(uint32_t)(most < 65535 ? most : 65535),
		1,
	};
	const enum cep_kernel k = kernel_of(n, p, fast, group);

	if (!fast)
		return cep_run_kernel(r, k, grid, 256, 0, p);
	return cep_run_kernel(r, k, grid, 32 * WARPS,
			      WARPS * DEPTH * (has_zeros(p) ? 2816 : 2304), p);
}

static int32_t first_of(const struct cep_node *n, const struct cep_run *r,
			struct cep_moe *p)
{
	const struct moe_state *s = moe_state(n);
	const bool two = s->m.fc[2].w;
	static const uint32_t acts[] = {
		[EXEC_MOE_RELU] = CEP_MOE_RELU,
		[EXEC_MOE_RELU2] = CEP_MOE_RELU2,
		[EXEC_MOE_GELU] = CEP_MOE_GELU,
		[EXEC_MOE_SILU] = CEP_MOE_SILU,
		[EXEC_MOE_SWIGLU] = CEP_MOE_SWIGLU,
		[EXEC_MOE_GEGLU] = CEP_MOE_GELU,
		[EXEC_MOE_IDENTITY] = CEP_MOE_IDENTITY,
	};
	int32_t rc;

	*p = (struct cep_moe){
		.x = n->in[0]->addr,
		.out = r->workspace + s->hidden,
		.pairs = r->workspace + s->pairs,
		.items = r->workspace + s->items,
		.n_items = r->workspace + s->n_items,
		.n = (uint32_t)s->m.I,
		.k = (uint32_t)s->m.D,
		.row_mul = s->m.fusion == 1 ? 2 : 1,
		.row_add = s->m.fusion == 1   ? 1
			   : s->m.fusion == 2 ? (uint32_t)s->m.I
					      : 0,
		.dual = two || s->m.fusion,
		.slots = (uint32_t)s->m.k,
		.act = acts[s->m.act],
		.late = s->m.late_limit,
		.alpha = s->m.alpha,
		.beta = s->m.beta,
		.limit = s->m.limit,
	};
	rc = matrix(n, r, &s->m.fc[0], &p->m[0]);
	if (!rc)
		rc = matrix(n, r, &s->m.fc[two ? 2 : 0], &p->m[1]);
	set_rows(n, p,
		 low_of(n, s->m.fc[0].scale) |
			 low_of(n, s->m.fc[two ? 2 : 0].scale));
	return rc;
}

static int32_t second_of(const struct cep_node *n, const struct cep_run *r,
			 struct cep_moe *p)
{
	const struct moe_state *s = moe_state(n);
	int32_t rc;

	*p = (struct cep_moe){
		.x = r->workspace + s->hidden,
		.out = r->workspace + s->y,
		.pairs = r->workspace + s->pairs,
		.items = r->workspace + s->items,
		.n_items = r->workspace + s->n_items,
		.n = (uint32_t)s->m.D,
		.k = (uint32_t)s->m.I,
		.row_mul = 1,
		.slots = 1,
		.last = 1,
	};
	rc = matrix(n, r, &s->m.fc[1], &p->m[0]);
	set_rows(n, p, low_of(n, s->m.fc[1].scale));
	return rc;
}

static int32_t sum(const struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	const struct cep_moe_sum p = {
		.y = r->workspace + s->y,
		.weights = r->workspace + s->weights,
		.out = n->out[0]->addr,
		.rows = (uint64_t)s->m.M,
		.dim = (uint64_t)s->m.D,
		.k = (uint32_t)s->m.k,
	};

	return cep_run_kernel(
		r,
		cep_by_dtype(n->in[0]->dtype, CEP_K_cep_moe_sum_f32,
			     CEP_K_cep_moe_sum_f16, CEP_K_cep_moe_sum_bf16),
		(struct cep_dim3){(uint32_t)((s->m.M * s->m.D + 255) / 256), 1,
				  1},
		256, 0, &p);
}

// ---- one row ----

struct one_shape {
	uint32_t blocks, threads, smem;
};

// A block an SM whose warps have as many units each, if there is room; false:
// none.
static bool one_shape(const struct cep_node *n, struct cep_moe1 *q,
		      struct one_shape *out)
{
	const uint32_t most = (uint32_t)n->self->max_smem - 20480;
	const uint64_t sms = (uint64_t)n->self->n_sms, k = q->r.k;
	const uint64_t heads = (q->m.n + 7) / 8;
	const uint64_t all = q->m.last ? heads : heads * k;
	const uint64_t groups = (all + sms - 1) / sms;
	const uint64_t rgs = q->m.last ? groups * ((k + 1) / 2) : groups;

	q->tiles = (q->m.k + 255) / 256;
	q->quarter = (q->tiles + 3) / 4;
	q->n_class = (q->tiles + q->quarter - 1) / q->quarter;
	q->groups = (uint32_t)groups;
	for (uint32_t i = WARPS1; i; i /= 2) {
		const uint64_t units = rgs * q->n_class;
		const uint64_t rounds = (units + i - 1) / i;
		const uint64_t warps = (units + rounds - 1) / rounds;
		const uint64_t ring =
			warps * 2 * (has_zeros(&q->m) ? 2816 : 2304);
		const uint64_t bytes =
			ring + (q->m.last ? k : 1) * (q->tiles * 512 + 64) +
			units * 64 + rgs * 64 + k * 8 +
			(has_apart(&q->m) ? k * 32 : 0);

		// the first chooses where tiles come later
		if (bytes > most || ring < (q->r.experts + 31) / 32 * 256)
			continue;
		*out = (struct one_shape){
			(uint32_t)((all + groups - 1) / groups),
			32 * (uint32_t)warps, (uint32_t)bytes};
		return true;
	}
	return false;
}

static int32_t run_one(const struct cep_node *n, struct cep_run *r,
		       const struct cep_moe1 *q, const struct one_shape *shape)
{
	static const enum cep_kernel kernels[2][2][2] = {
		{{CEP_K_cep_moe1_f16_0, CEP_K_cep_moe1_f16_1},
		 {CEP_K_cep_moe1_last_f16_0, CEP_K_cep_moe1_last_f16_1}},
		{{CEP_K_cep_moe1_bf16_0, CEP_K_cep_moe1_bf16_1},
		 {CEP_K_cep_moe1_last_bf16_0, CEP_K_cep_moe1_last_bf16_1}},
	};
	const bool bf16 = n->in[0]->dtype == GENAI_DT_BF16;

	return cep_run_kernel(r, kernels[bf16][q->m.last][has_zeros(&q->m)],
			      (struct cep_dim3){shape->blocks, 1, 1},
			      shape->threads, shape->smem, q);
}

int32_t cep_run_moe(struct cep_node *n, struct cep_run *r)
{
	const struct moe_state *s = moe_state(n);
	const bool fast = s->fast[0] && s->fast[1];
	struct cep_moe1 q[2] = {{.r = route(n, r)},
				{.r = route(n, r), .sum = n->out[0]->addr}};
	struct one_shape shape[2];
	int32_t rc;

	if (!s->m.M)
		return 0;
	rc = first_of(n, r, &q[0].m);
	rc = rc ? rc : second_of(n, r, &q[1].m);
	if (rc)
		return rc;
	if (s->m.M == 1 && fast && q[0].m.dual &&
	    one_shape(n, &q[0], &shape[0]) && one_shape(n, &q[1], &shape[1])) {
		rc = run_one(n, r, &q[0], &shape[0]);
		return rc ? rc : run_one(n, r, &q[1], &shape[1]);
	}
	rc = choose(n, r);
	rc = rc ? rc : multiply(n, r, &q[0].m, s->fast[0]);
	rc = rc ? rc : multiply(n, r, &q[1].m, s->fast[1]);
	return rc ? rc : sum(n, r);
}
