// checks.c - attributes of a node, dims, and the words of their errors.
#include "checks.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// ---- attributes ----

const struct genai_attr *exec_attr(const struct genai_node *n, const char *name)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);

		if (!strcmp(a->name, name))
			return a;
	}
	return NULL;
}

static const struct genai_attr *find_kind(const struct genai_node *n,
					  const char *name, uint32_t kind)
{
	const struct genai_attr *a = exec_attr(n, name);

	return a && a->kind == kind ? a : NULL;
}

int64_t exec_attr_int(const struct genai_node *n, const char *name, int64_t d)
{
	const struct genai_attr *a = find_kind(n, name, GENAI_ATTR_INT);

	return a ? a->i : d;
}

double exec_attr_float(const struct genai_node *n, const char *name, double d)
{
	const struct genai_attr *a = find_kind(n, name, GENAI_ATTR_FLOAT);

	return a ? a->f : d;
}

const char *exec_attr_string(const struct genai_node *n, const char *name,
			     const char *d)
{
	const struct genai_attr *a = find_kind(n, name, GENAI_ATTR_STRING);

	return a ? a->s : d;
}

// Names that have one kind in every operator, besides switches; all others are
// integers or floats, which the operator's own default tells apart.
static const struct {
	const char *name;
	uint32_t kind;
} kinds[] = {
	{"activation", GENAI_ATTR_STRING},
	{"activation_alpha", GENAI_ATTR_FLOAT},
	{"activation_beta", GENAI_ATTR_FLOAT},
	{"activation_type", GENAI_ATTR_STRING},
	{"alpha", GENAI_ATTR_FLOAT},
	{"approximate", GENAI_ATTR_STRING},
	{"axes", GENAI_ATTR_INTS},
	{"axis", GENAI_ATTR_INT},
	{"beta", GENAI_ATTR_FLOAT},
	{"block_size", GENAI_ATTR_INT},
	{"epsilon", GENAI_ATTR_FLOAT},
	{"equation", GENAI_ATTR_STRING},
	{"expert_weight_bits", GENAI_ATTR_INT},
	{"fc1_expert_weight_bits", GENAI_ATTR_INT},
	{"fc2_expert_weight_bits", GENAI_ATTR_INT},
	{"fc3_expert_weight_bits", GENAI_ATTR_INT},
	{"gamma", GENAI_ATTR_FLOAT},
	{"k", GENAI_ATTR_INT},
	{"max", GENAI_ATTR_FLOAT},
	{"min", GENAI_ATTR_FLOAT},
	{"mode", GENAI_ATTR_STRING},
	{"mrope_section", GENAI_ATTR_INTS},
	{"p", GENAI_ATTR_INT},
	{"perm", GENAI_ATTR_INTS},
	{"quant_type", GENAI_ATTR_STRING},
	{"reduction", GENAI_ATTR_STRING},
	{"scale", GENAI_ATTR_FLOAT},
	{"softcap", GENAI_ATTR_FLOAT},
	{"split", GENAI_ATTR_INTS},
	{"stash_type", GENAI_ATTR_INT},
	{"swiglu_fusion", GENAI_ATTR_INT},
	{"swiglu_limit", GENAI_ATTR_FLOAT},
	{"to", GENAI_ATTR_INT},
	{"weights_prepacked", GENAI_ATTR_INT},
};

// Switches, whatever the operator: integers.
static const char *const switches[] = {
	"allowzero",
	"causal",
	"detect_negative",
	"detect_positive",
	"do_rotary",
	"exclusive",
	"fmod",
	"interleaved",
	"keepdims",
	"largest",
	"mrope_layout",
	"noop_with_empty_axes",
	"normalize_routing_weights",
	"reverse",
	"rotary_interleaved",
	"saturate",
	"select_last_index",
	"sliding_window_cache",
	"sorted",
	"swiglu_limit_after_activation",
	"transA",
	"transB",
	"unidirectional",
	"upper",
	"use_sparse_mixer",
};

static int32_t need_kind(const struct genai_attr *a, uint32_t kind,
			 struct exec_text *why)
{
	static const char *const names[] = {"none",   "int",	"float",
					    "string", "tensor", "graph",
					    "ints",   "floats", "strings"};

	if (a->kind == kind)
		return 0;
	EXEC_WHY(why, "attribute '%.60s' is of kind %s, must be %s", a->name,
		 a->kind < 9 ? names[a->kind] : "?", names[kind]);
	return GENAI_E_INVAL;
}

// A kind or a value that no operator defines is not taken for another one.
static int32_t check(const struct genai_attr *a, struct exec_text *why)
{
	int64_t least = strcmp(a->name, "smooth_softmax") ? 0 : -1;
	bool is_switch = least < 0; // -1: not set
	int32_t rc = 0;

	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
		is_switch |= !strcmp(switches[i], a->name);
	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++)
		if (!strcmp(kinds[i].name, a->name))
			rc = need_kind(a, kinds[i].kind, why);
	if (!rc && is_switch)
		rc = need_kind(a, GENAI_ATTR_INT, why);
	if (rc)
		return rc;
	if (a->kind == GENAI_ATTR_FLOAT && isnan(a->f)) {
		EXEC_WHY(why, "attribute '%.60s' is NaN", a->name);
		return GENAI_E_INVAL;
	}
	if (!is_switch || (a->i >= least && a->i <= 1))
		return 0;
	EXEC_WHY(why, "attribute '%.60s' is %lld, must be %s0 or 1", a->name,
		 (long long)a->i, least ? "-1, " : "");
	return GENAI_E_INVAL;
}

int32_t exec_attr_check(const struct genai_node *n, const char *const *known,
			struct exec_text *why)
{
	for (uint32_t i = 0; i < n->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n, i);
		uint32_t k = 0;
		int32_t rc;

		while (known && known[k] && strcmp(known[k], a->name))
			k++;
		if (!known || !known[k]) {
			EXEC_WHY(why, "unknown attribute '%.60s'", a->name);
			return GENAI_E_UNSUPPORTED;
		}
		rc = check(a, why);
		if (rc)
			return rc;
	}
	return 0;
}

// ---- words ----

const char *exec_label(const struct genai_node *n,
		       struct exec_tensor *const *out, uint32_t n_out)
{
	if (n->name && n->name[0])
		return n->name;
	for (uint32_t i = 0; i < n_out; i++)
		if (out[i] && out[i]->name && out[i]->name[0])
			return out[i]->name;
	return "?";
}

const char *exec_dtype_name(uint32_t dtype)
{
	static const char *const names[] = {
		[GENAI_DT_NONE] = "none",
		[GENAI_DT_F32] = "float32",
		[GENAI_DT_U8] = "uint8",
		[GENAI_DT_I8] = "int8",
		[GENAI_DT_U16] = "uint16",
		[GENAI_DT_I16] = "int16",
		[GENAI_DT_I32] = "int32",
		[GENAI_DT_I64] = "int64",
		[GENAI_DT_STRING] = "string",
		[GENAI_DT_BOOL] = "bool",
		[GENAI_DT_F16] = "float16",
		[GENAI_DT_F64] = "float64",
		[GENAI_DT_U32] = "uint32",
		[GENAI_DT_U64] = "uint64",
		[GENAI_DT_BF16] = "bfloat16",
		[GENAI_DT_U4] = "uint4",
		[GENAI_DT_I4] = "int4",
		[GENAI_DT_F8E4M3FN] = "float8e4m3fn",
		[GENAI_DT_F8E4M3FNUZ] = "float8e4m3fnuz",
		[GENAI_DT_F8E5M2] = "float8e5m2",
		[GENAI_DT_F8E5M2FNUZ] = "float8e5m2fnuz",
		[GENAI_DT_F8E8M0] = "float8e8m0",
		[GENAI_DT_F4E2M1] = "float4e2m1",
		[GENAI_DT_U2] = "uint2",
		[GENAI_DT_I2] = "int2"};

	if (dtype < sizeof(names) / sizeof(names[0]) && names[dtype])
		return names[dtype];
	return "an unknown type";
}

struct exec_text exec_shape_text(uint32_t rank, const int64_t *dims)
{
	struct exec_text x = {"["};
	size_t k = 1;

	for (uint32_t i = 0; i < rank && k < sizeof(x.s) - 24; i++)
		k += (size_t)snprintf(x.s + k, sizeof(x.s) - k, "%s%lld",
				      i ? "," : "", (long long)dims[i]);
	snprintf(x.s + k, sizeof(x.s) - k, "]");
	return x;
}

// ---- dims ----

bool exec_dims_legal(uint32_t rank, const int64_t *dims)
{
	uint64_t v = 1;

	if (rank > GENAI_MAX_RANK)
		return false;
	for (uint32_t i = 0; i < rank; i++) {
		if (dims[i] < 0 ||
		    __builtin_mul_overflow(v, dims[i] ? (uint64_t)dims[i] : 1,
					   &v) ||
		    v > (uint64_t)1 << 46)
			return false;
	}
	return true;
}
