// known.c - attributes of operators that several executors carry.
#include "known.h"

#include <stdio.h>
#include <string.h>

const char *const exec_gqa_attrs[] = {"num_heads",
				      "kv_num_heads",
				      "scale",
				      "do_rotary",
				      "rotary_interleaved",
				      "local_window_size",
				      "softcap",
				      "smooth_softmax",
				      "causal",
				      "qk_output",
				      "qk_norm_epsilon",
				      "k_quant_type",
				      "v_quant_type",
				      "kv_cache_bit_width",
				      "sliding_window_cache",
				      NULL};
const char *const exec_moe_attrs[] = {"activation_alpha",
				      "activation_beta",
				      "activation_type",
				      "k",
				      "normalize_routing_weights",
				      "swiglu_fusion",
				      "swiglu_limit",
				      "swiglu_limit_after_activation",
				      "use_sparse_mixer",
				      NULL};
const char *const exec_qmoe_attrs[] = {"accuracy_level",
				       "activation_alpha",
				       "activation_beta",
				       "activation_type",
				       "block_size",
				       "expert_weight_bits",
				       "fc1_expert_weight_bits",
				       "fc2_expert_weight_bits",
				       "fc3_expert_weight_bits",
				       "k",
				       "normalize_routing_weights",
				       "quant_type",
				       "swiglu_fusion",
				       "swiglu_limit",
				       "swiglu_limit_after_activation",
				       "use_sparse_mixer",
				       "weights_prepacked",
				       NULL};
const char *const exec_conv_state_attrs[] = {"activation",
					     "channels_last",
					     "dilation",
					     "input_channel_offset",
					     "input_channels",
					     "ndim",
					     "state_channels_last",
					     "state_length",
					     "state_update_capacity",
					     "state_window",
					     NULL};
const char *const exec_linear_attrs[] = {
	"q_num_heads", "kv_num_heads", "update_rule", "scale",
	"chunk_size",  "state_window", NULL};

int32_t exec_conv_state_check(const struct genai_node *n, struct exec_text *why)
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
	return 0;
}
