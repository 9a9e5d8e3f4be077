// moe.c - what MoE and QMoE are given.
#include "moe.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

struct moe_node {
	const struct genai_node *node;
	struct exec_tensor *const *in;
	uint32_t n_in;
	struct exec_moe s;
	struct exec_text *why;
};

#define FAIL(n, code, ...) (EXEC_WHY((n)->why, __VA_ARGS__), (code))

static const struct exec_tensor *input(const struct moe_node *n, uint32_t i)
{
	return i && i < n->n_in ? n->in[i] : NULL;
}

// ---- attributes ----

static int32_t activation(struct moe_node *n)
{
	static const char *const names[] = {
		"relu", "relu2", "gelu", "silu", "swiglu", "geglu", "identity"};
	const char *type = exec_attr_string(n->node, "activation_type", "relu");
	const int64_t fusion = exec_attr_int(n->node, "swiglu_fusion", 0);
	struct exec_moe *s = &n->s;

	while (s->act < 7 && strcmp(names[s->act], type))
		s->act++;
	if (s->act == 7)
		return FAIL(n, GENAI_E_UNSUPPORTED,
			    "activation_type is '%.40s', carried: relu, relu2, "
			    "gelu, silu, swiglu, geglu, identity",
			    type);
	if (fusion < 0 || fusion > 2)
		return FAIL(n, GENAI_E_INVAL,
			    "attribute 'swiglu_fusion' is %lld, must be 0, 1 "
			    "or 2",
			    (long long)fusion);
	if (s->act != EXEC_MOE_SWIGLU && s->act != EXEC_MOE_GEGLU)
		return 0;
	s->fusion = (uint32_t)fusion;
	if ((fusion != 0) == (s->fc[2].w != 0))
		return FAIL(n, GENAI_E_INVAL,
			    fusion ? "swiglu_fusion %u and weights of fc3 as "
				     "well"
				   : "swiglu_fusion %u wants weights of fc3",
			    s->fusion);
	return 0;
}

static int32_t attributes(struct moe_node *n)
{
	const struct genai_node *node = n->node;
	struct exec_moe *s = &n->s;
	int32_t rc = activation(n);

	if (rc)
		return rc;
	s->k = exec_attr_int(node, "k", 1);
	s->normalize = exec_attr_int(node, "normalize_routing_weights", 0);
	s->late_limit = exec_attr_int(node, "swiglu_limit_after_activation", 0);
	s->alpha = (float)exec_attr_float(node, "activation_alpha", 1);
	s->beta = (float)exec_attr_float(node, "activation_beta", 0);
	s->limit = (float)exec_attr_float(node, "swiglu_limit", INFINITY);
	if (exec_attr_int(node, "use_sparse_mixer", 0))
		return FAIL(n, GENAI_E_UNSUPPORTED,
			    "use_sparse_mixer 1 is not carried");
	if (s->limit < 0)
		return FAIL(n, GENAI_E_INVAL,
			    "attribute 'swiglu_limit' is %g, must not be "
			    "negative",
			    (double)s->limit);
	return 0;
}

// The layout that only a GPU library reads has the same type, and often the
// same shape: without the attribute, floats of 16 bits come from exports for
// CUDA, whose default it is.
static int32_t layout(struct moe_node *n)
{
	const char *type = exec_attr_string(n->node, "quant_type", "int");
	const int64_t packed = exec_attr_int(n->node, "weights_prepacked", -1);

	if (strcmp(type, "int"))
		return FAIL(n, GENAI_E_UNSUPPORTED,
			    "quant_type is '%.40s', carried: int", type);
	if (packed < -1 || packed > 1)
		return FAIL(n, GENAI_E_INVAL,
			    "attribute 'weights_prepacked' is %lld, must be "
			    "-1, 0 or 1",
			    (long long)packed);
	if (packed == 0 || (packed == -1 && n->in[0]->dtype == GENAI_DT_F32))
		return 0;
	return FAIL(n, GENAI_E_UNSUPPORTED,
		    "weights_prepacked is %s: experts in a CUDA library's own "
		    "layout; export with qmoe_weights_prepacked=0",
		    packed == 1 ? "1" : "not 0");
}

// ---- inputs ----

static int32_t shape(struct moe_node *n, uint32_t i, uint32_t rank,
		     const int64_t *dims)
{
	const struct exec_tensor *t = n->in[i];

	if (exec_is_shape(t, rank, dims, false))
		return 0;
	return FAIL(n, GENAI_E_INVAL,
		    "input %u '%.30s' of shape %.50s must have shape %.50s", i,
		    t->name ? t->name : "", EXEC_SHAPE(t),
		    exec_shape_text(rank, dims).s);
}

static int32_t floats(struct moe_node *n, uint32_t i)
{
	const struct exec_tensor *t = n->in[i];

	if (t->dtype == GENAI_DT_F32 || t->dtype == GENAI_DT_F16 ||
	    t->dtype == GENAI_DT_BF16)
		return 0;
	return FAIL(n, GENAI_E_UNSUPPORTED,
		    "input %u '%.60s' is of type %s, carried: float32, "
		    "float16, bfloat16",
		    i, t->name ? t->name : "", exec_dtype_name(t->dtype));
}

static int32_t floats_of(struct moe_node *n, uint32_t i, uint32_t rank,
			 const int64_t *dims)
{
	int32_t rc = floats(n, i);

	return rc ? rc : shape(n, i, rank, dims);
}

// Rows, experts, the sizes of the products.
static int32_t sizes(struct moe_node *n)
{
	const struct exec_tensor *x = n->in[0], *w = n->in[2];
	const int64_t most = (int64_t)1 << 31;
	struct exec_moe *s = &n->s;
	const int64_t halves = s->fusion ? 2 : 1;

	if (x->rank < 2 || x->rank > 3 || w->rank != 3)
		return FAIL(n, GENAI_E_INVAL,
			    "inputs 0 and 2 of shapes %.50s and %.50s must "
			    "have rank 2 to 3 and 3",
			    EXEC_SHAPE(x), EXEC_SHAPE(w));
	s->D = x->dims[x->rank - 1];
	s->M = s->D ? (int64_t)(exec_count(x) / (uint64_t)s->D) : 0;
	s->E = w->dims[0];
	s->I = w->dims[1] / halves;
	if (s->E < 1 || s->E > 65536 || s->I < 1 || w->dims[1] % halves ||
	    s->D < 1 || s->I > most || s->D > most || s->M > most)
		return FAIL(n, GENAI_E_INVAL,
			    "inputs 0 and 2 of shapes %.50s and %.50s do not "
			    "fit together",
			    EXEC_SHAPE(x), EXEC_SHAPE(w));
	if (s->k < 1 || s->k > s->E)
		return FAIL(n, GENAI_E_INVAL, "k is %lld of %lld experts",
			    (long long)s->k, (long long)s->E);
	s->fc[0].K = s->fc[2].K = s->fc[1].N = s->D;
	s->fc[0].N = w->dims[1];
	s->fc[1].K = s->fc[2].N = s->I;
	return 0;
}

static int32_t zero_points(struct moe_node *n, struct exec_moe_fc *f,
			   bool blocks)
{
	const struct exec_tensor *z = input(n, f->zero);
	int64_t dims[3] = {n->s.E, f->N, f->blocks};
	const uint32_t rank = blocks ? 3 : 2;

	if (!z)
		return 0;
	f->z_kind = EXEC_MOE_Z_FLOAT;
	if (z->dtype == GENAI_DT_U8) {
		f->z_kind = blocks ? EXEC_MOE_Z_PACKED : EXEC_MOE_Z_TURNED;
		dims[rank - 1] = (dims[rank - 1] * f->bits + 7) / 8;
		f->z_row = (uint32_t)dims[rank - 1];
	} else if (z->dtype != n->in[f->scale]->dtype) {
		return FAIL(n, GENAI_E_INVAL,
			    "inputs %u and %u differ in type: %s and %s",
			    f->scale, f->zero,
			    exec_dtype_name(n->in[f->scale]->dtype),
			    exec_dtype_name(z->dtype));
	}
	return shape(n, f->zero, rank, dims);
}

// Codes, scales, zero points of a product.
static int32_t codes(struct moe_node *n, struct exec_moe_fc *f, int64_t block)
{
	const int64_t w[3] = {n->s.E, f->N, f->K * f->bits / 8};
	const int64_t sc[3] = {n->s.E, f->N, block ? f->K / block : 1};
	int32_t rc;

	if (f->bits != 2 && f->bits != 4 && f->bits != 8)
		return FAIL(n, GENAI_E_UNSUPPORTED,
			    "expert weights of %u bits, carried: 2, 4, 8",
			    f->bits);
	if ((block && f->K % block) || f->K * f->bits % 8)
		return FAIL(n, GENAI_E_INVAL,
			    "rows of %lld weights of %u bits are no whole "
			    "bytes, or no whole blocks of %lld",
			    (long long)f->K, f->bits, (long long)block);
	if (!input(n, f->scale))
		return FAIL(n, GENAI_E_INVAL,
			    "input %u, the scales, is missing", f->scale);
	if (n->in[f->w]->dtype != GENAI_DT_U8)
		return FAIL(n, GENAI_E_UNSUPPORTED,
			    "input %u is of type %s, carried: uint8", f->w,
			    exec_dtype_name(n->in[f->w]->dtype));
	f->blocks = (uint32_t)sc[2];
	// one scale for a row: a block that is longer than it
	for (f->block = block ? (uint32_t)block : 32;
	     !block && f->block < f->K;)
		f->block *= 2;
	if ((rc = shape(n, f->w, 3, w)) ||
	    (rc = floats_of(n, f->scale, block ? 3 : 2, sc)))
		return rc;
	return zero_points(n, f, block != 0);
}

static int32_t product(struct moe_node *n, struct exec_moe_fc *f,
		       bool quantised, int64_t block)
{
	const int64_t w[3] = {n->s.E, f->N, f->K}, bias[2] = {n->s.E, f->N};
	int32_t rc = quantised ? codes(n, f, block) : floats_of(n, f->w, 3, w);

	if (rc)
		return rc;
	if (input(n, f->bias))
		return floats_of(n, f->bias, 2, bias);
	f->bias = 0;
	return 0;
}

static int32_t products(struct moe_node *n, bool quantised)
{
	static const char *const names[] = {"fc1_expert_weight_bits",
					    "fc2_expert_weight_bits",
					    "fc3_expert_weight_bits"};
	const int64_t all = exec_attr_int(n->node, "expert_weight_bits", 4);
	const int64_t block = exec_attr_int(n->node, "block_size", 0);
	int32_t rc = 0;

	if (block && (block < 16 || block > 1 << 20 || (block & (block - 1))))
		return FAIL(n, GENAI_E_INVAL,
			    "block_size %lld, must be a power of two from 16 "
			    "to 1048576",
			    (long long)block);
	for (uint32_t i = 0; !rc && i < 3; i++) {
		const int64_t bits = exec_attr_int(n->node, names[i], all);
		struct exec_moe_fc *f = &n->s.fc[i];

		if (quantised)
			f->bits = bits > 0 && bits < 9 ? (uint32_t)bits : 9;
		if (f->w)
			rc = product(n, f, quantised, block);
	}
	return rc;
}

// Which input is what: weights and bias by turns, with scales in between and
// zero points behind where there are codes.
static int32_t inputs(struct moe_node *n, bool quantised)
{
	const uint32_t each = quantised ? 3 : 2;

	for (uint32_t i = 0; i < 3; i++) {
		struct exec_moe_fc *f = &n->s.fc[i];
		const uint32_t at = 2 + each * i;

		f->w = input(n, at) ? at : 0;
		f->bias = at + each - 1;
		f->scale = quantised ? at + 1 : 0;
		f->zero = quantised && input(n, 11 + i) ? 11 + i : 0;
	}
	n->s.own = quantised && input(n, 14) ? 14 : 0;
	for (uint32_t i = 15; i < n->n_in; i++)
		if (n->in[i])
			return FAIL(n, GENAI_E_UNSUPPORTED,
				    "input %u '%.60s', a scale of another "
				    "kind, is not carried",
				    i, n->in[i]->name ? n->in[i]->name : "");
	if (!n->s.fc[1].w)
		return FAIL(n, GENAI_E_INVAL, "the weights of fc2 are missing");
	return 0;
}

int32_t exec_moe_check(const struct genai_node *node,
		       struct exec_tensor *const in[], uint32_t n_in,
		       bool quantised, struct exec_moe *out,
		       struct exec_text *why)
{
	struct moe_node n = {node, in, n_in, {0}, why};
	int64_t logits[2];
	int32_t rc = quantised ? layout(&n) : 0;

	if (rc || (rc = inputs(&n, quantised)) || (rc = attributes(&n)) ||
	    (rc = floats(&n, 0)) || (rc = sizes(&n)))
		return rc;
	logits[0] = n.s.M;
	logits[1] = n.s.E;
	if ((rc = floats_of(&n, 1, 2, logits)) ||
	    (n.s.own && (rc = floats_of(&n, n.s.own, 2, logits))) ||
	    (rc = products(&n, quantised)))
		return rc;
	*out = n.s;
	return 0;
}
