/* attrs.h - for exec_attr_check: the attributes, two or more, of operators that
 * several executors carry, in all their versions. */
#ifndef EXEC_COMMON_ATTRS_H
#define EXEC_COMMON_ATTRS_H

#include <stddef.h>

/* ArgMax, ArgMin */
static const char *const exec_arg_attrs[] = {"axis", "keepdims",
					     "select_last_index", NULL};
/* CausalConvWithState */
static const char *const exec_conv_state_attrs[] = {"activation",
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
/* GatedRMSNorm */
static const char *const exec_gated_norm_attrs[] = {"activation", "epsilon",
						    NULL};
/* GatherBlockQuantized */
static const char *const exec_gather_bits_attrs[] = {
	"bits", "block_size", "gather_axis", "quantize_axis", NULL};
/* GroupQueryAttention */
static const char *const exec_gqa_attrs[] = {"num_heads",
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
/* LinearAttention */
static const char *const exec_linear_attrs[] = {
	"q_num_heads", "kv_num_heads", "update_rule", "scale",
	"chunk_size",  "state_window", NULL};
/* LpNormalization */
static const char *const exec_lp_norm_attrs[] = {"axis", "p", NULL};
/* MoE */
static const char *const exec_moe_attrs[] = {"activation_alpha",
					     "activation_beta",
					     "activation_type",
					     "k",
					     "normalize_routing_weights",
					     "swiglu_fusion",
					     "swiglu_limit",
					     "swiglu_limit_after_activation",
					     "use_sparse_mixer",
					     NULL};
/* MatMulNBits */
static const char *const exec_nbits_attrs[] = {
	"K", "N", "bits", "block_size", "accuracy_level", "weight_prepacked",
	NULL};
/* LayerNormalization, RMSNormalization */
static const char *const exec_norm_attrs[] = {"axis", "epsilon", "stash_type",
					      NULL};
/* PagedAttention */
static const char *const exec_paged_attrs[] = {
	"num_heads", "kv_num_heads",	   "scale",
	"do_rotary", "rotary_interleaved", "local_window_size",
	"softcap",   "smooth_softmax",	   "qk_norm_epsilon",
	NULL};
/* QMoE */
static const char *const exec_qmoe_attrs[] = {"accuracy_level",
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
/* ReduceSum and such */
static const char *const exec_reduce_attrs[] = {"axes", "keepdims",
						"noop_with_empty_axes", NULL};
/* RotaryEmbedding of com.microsoft */
static const char *const exec_rope_attrs[] = {
	"interleaved", "num_heads",	     "rotary_embedding_dim",
	"scale",       "is_packed_batching", NULL};
/* ScatterElements */
static const char *const exec_scatter_attrs[] = {"axis", "reduction", NULL};
/* Shape */
static const char *const exec_shape_attrs[] = {"start", "end", NULL};
/* Split */
static const char *const exec_split_attrs[] = {"axis", "split", "num_outputs",
					       NULL};

#endif
