// known.c - attributes of operators that several executors carry.
#include "known.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

// What divides and multiplies by them must be a number of its own; the executor
// asks of those that are known in a step only.
static int32_t scale_values(const struct exec_tensor *s, char part,
			    struct exec_text *why)
{
	const uint64_t n = s->value ? exec_count(s) : 0;

	for (uint64_t i = 0; i < n; i++) {
		float f;

		memcpy(&f, (const char *)s->value + i * 4, 4);
		if (f > 0 && !isinf(f))
			continue;
		EXEC_WHY(why, "%c_scale[%llu] is %g, must be positive", part,
			 (unsigned long long)i, (double)f);
		return GENAI_E_INVAL;
	}
	return 0;
}

// Where the scales of keys, or of values, lie.
static int32_t cache_scales(const struct genai_node *n, const char *name,
			    const struct exec_tensor *s, uint32_t input,
			    int64_t heads, int64_t size, bool *out_each,
			    struct exec_text *why)
{
	const char *type = exec_attr_string(n, name, "NONE");
	const bool each = !strcmp(type, "PER_CHANNEL");
	const uint64_t want = each ? (uint64_t)(heads * size) : 1;

	*out_each = each;
	if (!each && strcmp(type, "PER_TENSOR")) {
		EXEC_WHY(why,
			 "%s %.40s beside a quantised cache, carried: "
			 "PER_TENSOR, PER_CHANNEL",
			 name, type);
		return GENAI_E_UNSUPPORTED;
	}
	if (!s) {
		EXEC_WHY(why, "%s %s needs input %u, the scales", name, type,
			 input);
		return GENAI_E_INVAL;
	}
	if (exec_count(s) != want ||
	    (each && s->rank > 1 && s->dims[s->rank - 1] != size)) {
		EXEC_WHY(why, "input %u '%.40s' of shape %.60s, must be %s",
			 input, s->name ? s->name : "", EXEC_SHAPE(s),
			 each ? "[1, kv_num_heads, 1, head size]"
			      : "one number");
		return GENAI_E_INVAL;
	}
	if (s->dtype != GENAI_DT_F32) {
		EXEC_WHY(why, "input %u has type %s, carried: float32", input,
			 exec_dtype_name(s->dtype));
		return GENAI_E_UNSUPPORTED;
	}
	return scale_values(s, name[0], why);
}

int32_t exec_gqa_cache(const struct genai_node *n,
		       struct exec_tensor *const *in, uint32_t n_in,
		       int64_t heads, int64_t size, struct exec_cache *out,
		       struct exec_text *why)
{
	static const char *const names[] = {"k_quant_type", "v_quant_type"};
	const int64_t bits = exec_attr_int(n, "kv_cache_bit_width", 0);
	const struct exec_tensor *scales[2];
	bool quantised = false;
	int32_t rc = 0;

	*out = (struct exec_cache){.row = size};
	for (uint32_t i = 0; i < 2; i++) {
		scales[i] = 12 + i < n_in ? in[12 + i] : NULL;
		quantised |= strcmp(exec_attr_string(n, names[i], "NONE"),
				    "NONE") != 0;
	}
	if (!quantised && (scales[0] || scales[1])) {
		EXEC_WHY(why, "k_scale, v_scale: k_quant_type and v_quant_type "
			      "are NONE");
		return GENAI_E_INVAL;
	}
	if (!quantised)
		return 0;
	if (bits != 8 && bits != 4) {
		EXEC_WHY(why, "kv_cache_bit_width %lld, carried: 8, 4",
			 (long long)bits);
		return GENAI_E_UNSUPPORTED;
	}
	if (n_in < 4 || !in[3]) {
		EXEC_WHY(why, "a quantised cache without past_key");
		return GENAI_E_UNSUPPORTED;
	}
	if (bits == 4 && size % 2) {
		EXEC_WHY(why, "heads of %lld elements in pairs of 4 bits",
			 (long long)size);
		return GENAI_E_INVAL;
	}
	out->bits = (uint32_t)bits;
	out->row = size * bits / 8;
	for (uint32_t i = 0; !rc && i < 2; i++)
		rc = cache_scales(n, names[i], scales[i], 12 + i, heads, size,
				  &out->each[i], why);
	return rc;
}

int32_t exec_fill_value(const struct genai_graph *g, const struct genai_node *n,
			uint32_t *out_dtype, uint64_t *out_bits,
			struct exec_text *why)
{
	const struct genai_attr *a = exec_attr(n, "value");
	const struct genai_tensor *t;
	const struct genai_file *f;
	uint32_t bits;

	*out_dtype = GENAI_DT_F32;
	*out_bits = 0;
	if (!a)
		return 0;
	if (a->kind != GENAI_ATTR_TENSOR || !g || a->tensor >= g->n_tensors) {
		EXEC_WHY(why, "attribute 'value' holds no tensor that can be "
			      "read here");
		return GENAI_E_UNSUPPORTED;
	}
	t = genai_graph_tensor(g, a->tensor);
	f = genai_graph_file(g, t->file);
	bits = exec_bits(t->dtype);
	if (bits < 8 || t->bytes != bits / 8) {
		EXEC_WHY(why,
			 "value of type %s and %llu bytes must be one number",
			 exec_dtype_name(t->dtype),
			 (unsigned long long)t->bytes);
		return GENAI_E_UNSUPPORTED;
	}
	memcpy(out_bits, (const char *)f->data + t->offset, t->bytes);
	*out_dtype = t->dtype;
	return 0;
}

int32_t exec_reduction(const struct genai_node *n, enum exec_write *out,
		       struct exec_text *why)
{
	static const char *const names[] = {"none", "add", "mul", "max", "min"};
	const char *s = exec_attr_string(n, "reduction", "none");

	for (int i = 0; i < 5; i++)
		if (!strcmp(s, names[i])) {
			*out = (enum exec_write)i;
			return 0;
		}
	EXEC_WHY(why, "reduction is '%.40s', carried: none, add, mul, max, min",
		 s);
	return GENAI_E_UNSUPPORTED;
}

int32_t exec_conv_state(const struct genai_node *n, struct exec_conv *out,
			struct exec_text *why)
{
	const char *act = exec_attr_string(n, "activation", "none");
	const int64_t dilation = exec_attr_int(n, "dilation", 1);
	static const struct {
		const char *name;
		int64_t usual;
	} a[] = {
		{"ndim", 1},
		{"state_window", 0},
		{"state_update_capacity", 0},
		{"state_channels_last", -1},
		{"state_length", 0},
		{"input_channel_offset", 0},
		{"input_channels", 0},
	};

	for (size_t i = 0; i < sizeof(a) / sizeof(a[0]); i++) {
		int64_t v = exec_attr_int(n, a[i].name, a[i].usual);

		if (v == a[i].usual)
			continue;
		EXEC_WHY(why, "attribute %s is %lld, carried: %lld", a[i].name,
			 (long long)v, (long long)a[i].usual);
		return GENAI_E_UNSUPPORTED;
	}
	if (strcmp(act, "none") && strcmp(act, "silu") &&
	    strcmp(act, "swish")) {
		EXEC_WHY(why, "activation %.40s, carried: none, silu, swish",
			 act);
		return GENAI_E_UNSUPPORTED;
	}
	if (dilation < 1 || dilation > EXEC_MAX_TAPS) {
		EXEC_WHY(why, "dilation is %lld, must be 1 to %d",
			 (long long)dilation, EXEC_MAX_TAPS);
		return GENAI_E_INVAL;
	}
	out->dilation = dilation;
	out->last = exec_attr_int(n, "channels_last", 0) != 0;
	out->silu = strcmp(act, "none") != 0;
	return 0;
}
