// ops_util.c - checks that operators share, attributes, error text.
#include "modules/cpu_ref/ops.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>

// Keep a message one line, and mark a cut one.
static void tame(char *text, size_t cap, int wanted)
{
	if (wanted >= (int)cap) {
		size_t k = cap - 4;

		while (k && ((unsigned char)text[k] & 0xc0) == 0x80)
			k--;
		memcpy(text + k, "...", 4);
	}
	for (; *text; text++)
		if ((unsigned char)*text < 0x20 || *text == 0x7f)
			*text = '?';
}

// The node's name; for a nameless one, that of what it writes.
static const char *label(const struct cref_node *n)
{
	if (n->node->name && n->node->name[0])
		return n->node->name;
	for (uint32_t i = 0; i < n->n_out; i++)
		if (n->out[i] && n->out[i]->name && n->out[i]->name[0])
			return n->out[i]->name;
	return "?";
}

int32_t cref_node_fail(const struct cref_node *n, struct genai_error *err,
		       int32_t code, const char *fmt, ...)
{
	va_list ap;
	int k;

	if (!err)
		return code;
	err->code = code;
	err->line = 0;
	err->node = GENAI_NONE;
	snprintf(err->module, sizeof(err->module), "cpu_ref");
	err->file[0] = 0;
	k = snprintf(err->text, sizeof(err->text),
		     "node %.200s (%.60s): ", label(n), n->node->op);
	va_start(ap, fmt);
	k += vsnprintf(err->text + k, sizeof(err->text) - (size_t)k, fmt, ap);
	va_end(ap);
	tame(err->text, sizeof(err->text), k);
	return code;
}

const struct genai_attr *cref_attr_find(const struct genai_node *n,
					const char *name)
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
	const struct genai_attr *a = cref_attr_find(n, name);

	return a && a->kind == kind ? a : NULL;
}

int64_t cref_attr_int(const struct genai_node *n, const char *name, int64_t d)
{
	const struct genai_attr *a = find_kind(n, name, GENAI_ATTR_INT);

	return a ? a->i : d;
}

double cref_attr_float(const struct genai_node *n, const char *name, double d)
{
	const struct genai_attr *a = find_kind(n, name, GENAI_ATTR_FLOAT);

	return a ? a->f : d;
}

const char *cref_attr_string(const struct genai_node *n, const char *name,
			     const char *d)
{
	const struct genai_attr *a = find_kind(n, name, GENAI_ATTR_STRING);

	return a ? a->s : d;
}

// Names that have one kind in every operator; all others are integers or
// floats, which the operator's own default tells apart.
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
	{"keepdims", GENAI_ATTR_INT},
	{"max", GENAI_ATTR_FLOAT},
	{"min", GENAI_ATTR_FLOAT},
	{"mode", GENAI_ATTR_STRING},
	{"mrope_layout", GENAI_ATTR_INT},
	{"mrope_section", GENAI_ATTR_INTS},
	{"normalize_routing_weights", GENAI_ATTR_INT},
	{"p", GENAI_ATTR_INT},
	{"perm", GENAI_ATTR_INTS},
	{"quant_type", GENAI_ATTR_STRING},
	{"reduction", GENAI_ATTR_STRING},
	{"saturate", GENAI_ATTR_INT},
	{"scale", GENAI_ATTR_FLOAT},
	{"softcap", GENAI_ATTR_FLOAT},
	{"split", GENAI_ATTR_INTS},
	{"stash_type", GENAI_ATTR_INT},
	{"swiglu_fusion", GENAI_ATTR_INT},
	{"swiglu_limit", GENAI_ATTR_FLOAT},
	{"swiglu_limit_after_activation", GENAI_ATTR_INT},
	{"to", GENAI_ATTR_INT},
	{"use_sparse_mixer", GENAI_ATTR_INT},
	{"weights_prepacked", GENAI_ATTR_INT},
};

static int32_t check_kind(const struct cref_node *n, const struct genai_attr *a,
			  struct genai_error *err)
{
	static const char *const names[] = {"none",   "int",	"float",
					    "string", "tensor", "graph",
					    "ints",   "floats", "strings"};

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		if (strcmp(kinds[i].name, a->name))
			continue;
		if (kinds[i].kind == a->kind)
			return GENAI_OK;
		return cref_node_fail(
			n, err, GENAI_E_INVAL,
			"attribute '%.60s' is of kind %s, must be %s", a->name,
			a->kind < 9 ? names[a->kind] : "?",
			names[kinds[i].kind]);
	}
	return GENAI_OK;
}

// Switches, whatever the operator.
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

// A value that no operator defines is not taken for another one.
static int32_t check_value(const struct cref_node *n,
			   const struct genai_attr *a, struct genai_error *err)
{
	int64_t least = 0;
	bool is_switch = false;

	if (a->kind == GENAI_ATTR_FLOAT && isnan(a->f))
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "attribute '%.60s' is NaN", a->name);
	for (size_t i = 0; i < sizeof(switches) / sizeof(switches[0]); i++)
		is_switch |= !strcmp(switches[i], a->name);
	if (!strcmp(a->name, "smooth_softmax")) { // -1: not set
		is_switch = true;
		least = -1;
	}
	if (a->kind != GENAI_ATTR_INT || !is_switch ||
	    (a->i >= least && a->i <= 1))
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "attribute '%.60s' is %lld, must be %s0 or 1",
			      a->name, (long long)a->i, least ? "-1, " : "");
}

int32_t cref_attr_check(const struct cref_node *n, const char *const *known,
			struct genai_error *err)
{
	for (uint32_t i = 0; i < n->node->n_attrs; i++) {
		const struct genai_attr *a = genai_node_attr(n->node, i);
		uint32_t k = 0;
		int32_t rc;

		while (known && known[k] && strcmp(known[k], a->name))
			k++;
		if (!known || !known[k])
			return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
					      "unknown attribute '%.60s'",
					      a->name);
		rc = check_kind(n, a, err);
		if (!rc)
			rc = check_value(n, a, err);
		if (rc)
			return rc;
	}
	return GENAI_OK;
}

uint64_t cref_elements(const struct exec_tensor *t)
{
	return ops_span(t, 0, t->rank);
}

const char *ops_dtype_name(uint32_t dtype)
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

void cref_set_dense(struct exec_tensor *t, uint32_t dtype, uint32_t rank,
		    const int64_t *dims)
{
	int64_t stride = 1;

	t->dtype = dtype;
	t->rank = rank;
	for (uint32_t i = rank; i-- > 0;) {
		t->dims[i] = dims[i];
		t->strides[i] = stride;
		// An empty tensor's strides are never used to address.
		stride *= dims[i] ? dims[i] : 1;
	}
}

struct ops_text ops_shape_text(const struct exec_tensor *t)
{
	struct ops_text x;
	size_t k = 1;

	x.s[0] = '[';
	for (uint32_t i = 0; i < t->rank && k < sizeof(x.s) - 24; i++)
		k += (size_t)snprintf(x.s + k, sizeof(x.s) - k, "%s%lld",
				      i ? "," : "", (long long)t->dims[i]);
	snprintf(x.s + k, sizeof(x.s) - k, "]");
	return x;
}

// Dims legal and their product far from overflow, also where one is 0: strides
// are products of the others.
static bool dims_legal(uint32_t rank, const int64_t *dims)
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

static int32_t check_input(struct cref_node *n, uint32_t i,
			   struct genai_error *err)
{
	const struct exec_tensor *t = n->in[i];

	if (!exec_bits(t->dtype))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "input %u '%.60s' is of type %s", i,
				      t->name ? t->name : "",
				      ops_dtype_name(t->dtype));
	if (!dims_legal(t->rank, t->dims))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "input %u '%.60s' of rank %u has illegal "
				      "or too large dims",
				      i, t->name ? t->name : "", t->rank);
	if (!exec_is_dense(t))
		return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
				      "input %u '%.60s' is not dense", i,
				      t->name ? t->name : "");
	return GENAI_OK;
}

int32_t ops_check(struct cref_node *n, const char *const *attrs,
		  uint32_t min_in, uint32_t max_in, uint32_t max_out,
		  struct genai_error *err)
{
	int32_t rc = cref_attr_check(n, attrs, err);

	if (rc)
		return rc;
	if (n->n_in < min_in || n->n_in > max_in)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "has %u inputs, must have %u to %u",
				      n->n_in, min_in, max_in);
	if (!n->n_out || n->n_out > max_out)
		return cref_node_fail(n, err, GENAI_E_INVAL,
				      "has %u outputs, must have 1 to %u",
				      n->n_out, max_out);
	for (uint32_t i = 0; i < n->n_in; i++) {
		if (!n->in[i] && i < min_in)
			return cref_node_fail(n, err, GENAI_E_INVAL,
					      "input %u is missing", i);
		rc = n->in[i] ? check_input(n, i, err) : GENAI_OK;
		if (rc)
			return rc;
	}
	return GENAI_OK;
}

int32_t ops_out(struct cref_node *n, uint32_t i, uint32_t dtype, uint32_t rank,
		const int64_t *dims, struct genai_error *err)
{
	if (i >= n->n_out || !n->out[i])
		return GENAI_OK;
	if (!dims_legal(rank, dims))
		return cref_node_fail(n, err, GENAI_E_LIMIT,
				      "output %u of rank %u would have more "
				      "than 2^46 elements or %u dims",
				      i, rank, GENAI_MAX_RANK);
	cref_set_dense(n->out[i], dtype, rank, dims);
	return GENAI_OK;
}

int32_t ops_need_dtype(struct cref_node *n, uint32_t i, uint32_t mask,
		       struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;
	char want[160] = "";
	size_t k = 0;

	if (!t || ops_is(t, mask))
		return GENAI_OK;
	for (uint32_t d = 0; d < 32 && k < sizeof(want) - 16; d++)
		if (mask & OPS_BIT(d))
			k += (size_t)snprintf(want + k, sizeof(want) - k,
					      "%s%s", k ? ", " : "",
					      ops_dtype_name(d));
	return cref_node_fail(n, err, GENAI_E_UNSUPPORTED,
			      "input %u '%.60s' is of type %s, carried: %s", i,
			      t->name ? t->name : "", ops_dtype_name(t->dtype),
			      want);
}

int32_t ops_need_same_dtype(struct cref_node *n, uint32_t i, uint32_t j,
			    struct genai_error *err)
{
	if (i >= n->n_in || j >= n->n_in || !n->in[i] || !n->in[j] ||
	    n->in[i]->dtype == n->in[j]->dtype)
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "inputs %u and %u differ in type: %s and %s", i,
			      j, ops_dtype_name(n->in[i]->dtype),
			      ops_dtype_name(n->in[j]->dtype));
}

int32_t ops_need_shape(struct cref_node *n, uint32_t i, uint32_t rank,
		       const int64_t *dims, bool flat, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;
	struct exec_tensor want;

	if (!t || exec_is_shape(t, rank, dims, flat))
		return GENAI_OK;
	cref_set_dense(&want, t->dtype, rank, dims);
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "input %u '%.60s' of shape %s must have shape "
			      "%s",
			      i, t->name ? t->name : "", OPS_SHAPE(t),
			      OPS_SHAPE(&want));
}

int32_t ops_need_rank(struct cref_node *n, uint32_t i, uint32_t min,
		      uint32_t max, struct genai_error *err)
{
	const struct exec_tensor *t = i < n->n_in ? n->in[i] : NULL;

	if (!t || (t->rank >= min && t->rank <= max))
		return GENAI_OK;
	return cref_node_fail(n, err, GENAI_E_INVAL,
			      "input %u '%.60s' of shape %s must have rank %u "
			      "to %u",
			      i, t->name ? t->name : "", OPS_SHAPE(t), min,
			      max);
}
