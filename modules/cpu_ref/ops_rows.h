/* ops_rows.h - the list of operators: domain, name, lowest opset, the functions
 * prepare and run, and what else is true of it (struct cref_op).  Read by
 * ops.h, which declares the functions, ops.c, the table, and plan.c, the list;
 * no include guard. */

/* arithmetic */
OPS_ROW("", "Add", 7, ops_add_prepare, ops_add_run)
OPS_ROW("", "Sub", 7, ops_sub_prepare, ops_sub_run)
OPS_ROW("", "Mul", 7, ops_mul_prepare, ops_mul_run)
OPS_ROW("", "Div", 7, ops_div_prepare, ops_div_run)
OPS_ROW("", "Pow", 7, ops_pow_prepare, ops_pow_run)
OPS_ROW("", "Mod", 10, ops_mod_prepare, ops_mod_run)
OPS_ROW("", "Max", 8, ops_max_prepare, ops_max_run)
OPS_ROW("", "Min", 8, ops_min_prepare, ops_min_run)
OPS_ROW("", "Sum", 8, ops_sum_prepare, ops_sum_run)
OPS_ROW("", "Mean", 8, ops_mean_prepare, ops_mean_run)

/* functions */
OPS_ROW("", "Abs", 1, ops_abs_prepare, ops_abs_run)
OPS_ROW("", "Neg", 1, ops_neg_prepare, ops_neg_run)
OPS_ROW("", "Sign", 1, ops_sign_prepare, ops_sign_run)
OPS_ROW("", "Sqrt", 1, ops_sqrt_prepare, ops_sqrt_run)
OPS_ROW("", "Reciprocal", 1, ops_reciprocal_prepare, ops_reciprocal_run)
OPS_ROW("", "Exp", 1, ops_exp_prepare, ops_exp_run)
OPS_ROW("", "Log", 1, ops_log_prepare, ops_log_run)
OPS_ROW("", "Erf", 1, ops_erf_prepare, ops_erf_run)
OPS_ROW("", "Sin", 1, ops_sin_prepare, ops_sin_run)
OPS_ROW("", "Cos", 1, ops_cos_prepare, ops_cos_run)
OPS_ROW("", "Tan", 1, ops_tan_prepare, ops_tan_run)
OPS_ROW("", "Asin", 1, ops_asin_prepare, ops_asin_run)
OPS_ROW("", "Acos", 1, ops_acos_prepare, ops_acos_run)
OPS_ROW("", "Atan", 1, ops_atan_prepare, ops_atan_run)
OPS_ROW("", "Sinh", 1, ops_sinh_prepare, ops_sinh_run)
OPS_ROW("", "Cosh", 1, ops_cosh_prepare, ops_cosh_run)
OPS_ROW("", "Asinh", 1, ops_asinh_prepare, ops_asinh_run)
OPS_ROW("", "Acosh", 1, ops_acosh_prepare, ops_acosh_run)
OPS_ROW("", "Atanh", 1, ops_atanh_prepare, ops_atanh_run)
OPS_ROW("", "Tanh", 1, ops_tanh_prepare, ops_tanh_run)
OPS_ROW("", "Floor", 1, ops_floor_prepare, ops_floor_run)
OPS_ROW("", "Ceil", 1, ops_ceil_prepare, ops_ceil_run)
OPS_ROW("", "Round", 1, ops_round_prepare, ops_round_run)

/* activations */
OPS_ROW("", "Sigmoid", 1, ops_sigmoid_prepare, ops_sigmoid_run)
OPS_ROW("", "Relu", 1, ops_relu_prepare, ops_relu_run)
OPS_ROW("", "Softplus", 1, ops_softplus_prepare, ops_softplus_run)
OPS_ROW("", "Softsign", 1, ops_softsign_prepare, ops_softsign_run)
OPS_ROW("", "Mish", 1, ops_mish_prepare, ops_mish_run)
OPS_ROW("", "Elu", 1, ops_elu_prepare, ops_elu_run)
OPS_ROW("", "Celu", 1, ops_celu_prepare, ops_celu_run)
OPS_ROW("", "Selu", 1, ops_selu_prepare, ops_selu_run)
OPS_ROW("", "LeakyRelu", 1, ops_leaky_relu_prepare, ops_leaky_relu_run)
OPS_ROW("", "ThresholdedRelu", 1, ops_thresholded_relu_prepare,
	ops_thresholded_relu_run)
OPS_ROW("", "HardSigmoid", 1, ops_hard_sigmoid_prepare, ops_hard_sigmoid_run)
OPS_ROW("", "HardSwish", 1, ops_hard_swish_prepare, ops_hard_swish_run)
OPS_ROW("", "Swish", 1, ops_swish_prepare, ops_swish_run)
OPS_ROW("", "Gelu", 1, ops_gelu_prepare, ops_gelu_run)
OPS_ROW("", "PRelu", 7, ops_prelu_prepare, ops_prelu_run)
OPS_ROW("com.microsoft", "Gelu", 1, ops_gelu_prepare, ops_gelu_run)
OPS_ROW("com.microsoft", "FastGelu", 1, ops_fast_gelu_prepare,
	ops_fast_gelu_run)
OPS_ROW("com.microsoft", "QuickGelu", 1, ops_quick_gelu_prepare,
	ops_quick_gelu_run)

/* comparisons, bool, bits */
OPS_ROW("", "Equal", 7, ops_equal_prepare, ops_equal_run)
OPS_ROW("", "Greater", 7, ops_greater_prepare, ops_greater_run)
OPS_ROW("", "Less", 7, ops_less_prepare, ops_less_run)
OPS_ROW("", "GreaterOrEqual", 7, ops_greater_equal_prepare,
	ops_greater_equal_run)
OPS_ROW("", "LessOrEqual", 7, ops_less_equal_prepare, ops_less_equal_run)
OPS_ROW("", "And", 7, ops_and_prepare, ops_and_run)
OPS_ROW("", "Or", 7, ops_or_prepare, ops_or_run)
OPS_ROW("", "Xor", 7, ops_xor_prepare, ops_xor_run)
OPS_ROW("", "Not", 1, ops_not_prepare, ops_not_run)
OPS_ROW("", "BitwiseAnd", 1, ops_bitand_prepare, ops_bitand_run)
OPS_ROW("", "BitwiseOr", 1, ops_bitor_prepare, ops_bitor_run)
OPS_ROW("", "BitwiseXor", 1, ops_bitxor_prepare, ops_bitxor_run)
OPS_ROW("", "BitwiseNot", 1, ops_bitnot_prepare, ops_bitnot_run)
OPS_ROW("", "BitShift", 1, ops_bitshift_prepare, ops_bitshift_run)
OPS_ROW("", "IsNaN", 1, ops_isnan_prepare, ops_isnan_run)
OPS_ROW("", "IsInf", 1, ops_isinf_prepare, ops_isinf_run)
OPS_ROW("", "Where", 9, ops_where_prepare, ops_where_run)
OPS_ROW("", "Clip", 6, ops_clip_prepare, ops_clip_run)

/* shapes */
OPS_ROW("", "Identity", 1, ops_identity_prepare, ops_alias_run, .alias = true)
OPS_ROW("", "Reshape", 5, ops_reshape_prepare, ops_alias_run, .alias = true)
OPS_ROW("", "Flatten", 1, ops_flatten_prepare, ops_alias_run, .alias = true)
OPS_ROW("", "Squeeze", 1, ops_squeeze_prepare, ops_alias_run, .alias = true)
OPS_ROW("", "Unsqueeze", 1, ops_unsqueeze_prepare, ops_alias_run, .alias = true)
OPS_ROW("", "ConstantOfShape", 9, ops_constant_of_shape_prepare,
	ops_constant_of_shape_run)
OPS_ROW("", "EyeLike", 9, ops_eye_like_prepare, ops_eye_like_run,
	.facts.dims_only = IN(0))
OPS_ROW("", "Dropout", 7, ops_dropout_prepare, ops_dropout_run)
OPS_ROW("", "Shape", 1, ops_shape_prepare, ops_shape_run,
	.facts.dims_only = IN(0))
OPS_ROW("", "Size", 1, ops_size_prepare, ops_size_run, .facts.dims_only = IN(0))
OPS_ROW("", "Range", 11, ops_range_prepare, ops_range_run)

/* moving */
OPS_ROW("", "Transpose", 1, ops_transpose_prepare, ops_transpose_run)
OPS_ROW("", "Expand", 8, ops_expand_prepare, ops_expand_run)
OPS_ROW("", "Tile", 6, ops_tile_prepare, ops_tile_run)
OPS_ROW("", "Split", 2, ops_split_prepare, ops_split_run)
OPS_ROW("", "Concat", 4, ops_concat_prepare, ops_concat_run)
OPS_ROW("", "Slice", 1, ops_slice_prepare, ops_slice_run)
OPS_ROW("", "Pad", 2, ops_pad_prepare, ops_pad_run)
OPS_ROW("", "Trilu", 14, ops_trilu_prepare, ops_trilu_run)
OPS_ROW("", "DepthToSpace", 1, ops_depth_space_prepare, ops_depth_space_run,
	.code = OPS_TO_SPACE)
OPS_ROW("", "SpaceToDepth", 1, ops_depth_space_prepare, ops_depth_space_run)

/* indices */
OPS_ROW("", "Gather", 1, ops_gather_prepare, ops_gather_run,
	.facts.gathered = IN(0))
OPS_ROW("", "GatherElements", 1, ops_gather_elements_prepare,
	ops_gather_elements_run)
OPS_ROW("", "GatherND", 1, ops_gather_nd_prepare, ops_gather_nd_run)
OPS_ROW("", "ScatterElements", 1, ops_scatter_elements_prepare,
	ops_scatter_elements_run)
OPS_ROW("", "Scatter", 1, ops_scatter_elements_prepare,
	ops_scatter_elements_run)
OPS_ROW("", "ScatterND", 1, ops_scatter_nd_prepare, ops_scatter_nd_run)
OPS_ROW("", "ArgMax", 1, ops_arg_prepare, ops_arg_run, .code = OPS_MAX)
OPS_ROW("", "ArgMin", 1, ops_arg_prepare, ops_arg_run)
OPS_ROW("", "TopK", 1, ops_topk_prepare, ops_topk_run)
OPS_ROW("", "OneHot", 9, ops_onehot_prepare, ops_onehot_run)
OPS_ROW("", "NonZero", 9, ops_nonzero_prepare, ops_nonzero_run)
OPS_ROW("", "Compress", 9, ops_compress_prepare, ops_compress_run)

/* reductions and lines */
OPS_ROW("", "ReduceSum", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_SUM)
OPS_ROW("", "ReduceMean", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_MEAN)
OPS_ROW("", "ReduceL1", 1, ops_reduce_prepare, ops_reduce_run, .code = OPS_R_L1)
OPS_ROW("", "ReduceL2", 1, ops_reduce_prepare, ops_reduce_run, .code = OPS_R_L2)
OPS_ROW("", "ReduceSumSquare", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_SUM_SQUARE)
OPS_ROW("", "ReduceLogSum", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_LOG_SUM)
OPS_ROW("", "ReduceLogSumExp", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_LOG_SUM_EXP)
OPS_ROW("", "ReduceProd", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_PROD)
OPS_ROW("", "ReduceMax", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_MAX)
OPS_ROW("", "ReduceMin", 1, ops_reduce_prepare, ops_reduce_run,
	.code = OPS_R_MIN)
OPS_ROW("", "Softmax", 1, ops_softmax_prepare, ops_softmax_run)
OPS_ROW("", "LogSoftmax", 1, ops_softmax_prepare, ops_softmax_run,
	.code = OPS_LOG)
OPS_ROW("", "CumSum", 11, ops_cumulate_prepare, ops_cumulate_run)
OPS_ROW("", "CumProd", 26, ops_cumulate_prepare, ops_cumulate_run,
	.code = OPS_PROD)
OPS_ROW("", "LpNormalization", 1, ops_lpnorm_prepare, ops_lpnorm_run)

/* normalisation, rotary, products */
OPS_ROW("", "LayerNormalization", 1, ops_norm_prepare, ops_norm_run)
OPS_ROW("", "RMSNormalization", 23, ops_norm_prepare, ops_norm_run,
	.code = OPS_RMS)
OPS_ROW("", "SimplifiedLayerNormalization", 1, ops_norm_prepare, ops_norm_run,
	.code = OPS_RMS)
OPS_ROW("com.microsoft", "SimplifiedLayerNormalization", 1, ops_norm_prepare,
	ops_norm_run, .code = OPS_RMS)
OPS_ROW("com.microsoft", "SkipSimplifiedLayerNormalization", 1,
	ops_skip_norm_prepare, ops_skip_norm_run, .code = OPS_RMS)
OPS_ROW("com.microsoft", "SkipLayerNormalization", 1, ops_skip_norm_prepare,
	ops_skip_norm_run)
OPS_ROW("", "RotaryEmbedding", 23, ops_rotary_prepare, ops_rotary_run,
	.facts.gathered = IN(1) | IN(2))
OPS_ROW("com.microsoft", "RotaryEmbedding", 1, ops_rotary_ms_prepare,
	ops_rotary_ms_run, .facts.gathered = IN(2) | IN(3))
OPS_ROW("com.microsoft", "MRotaryEmbedding", 1, ops_mrotary_prepare,
	ops_rotary_ms_run, .facts.gathered = IN(2) | IN(3))
OPS_ROW("", "Gemm", 7, ops_gemm_prepare, ops_gemm_run)
OPS_ROW("", "Einsum", 12, ops_einsum_prepare, ops_einsum_run)

/* with kernels of their own */
OPS_ROW("", "MatMul", 1, cref_matmul_prepare, cref_matmul_run,
	.facts.columns = IN(1))
OPS_ROW("genai", "MatMul", 1, cref_matmul_narrow_prepare, cref_matmul_run,
	.facts.columns = IN(1))
OPS_ROW("com.microsoft", "MatMulNBits", 1, cref_matmul_nbits_prepare,
	cref_matmul_nbits_run, .facts.rows = IN(1) | IN(2) | IN(3))
OPS_ROW("com.microsoft", "GatherBlockQuantized", 1, cref_gather_bits_prepare,
	cref_gather_bits_run, .facts.gathered = IN(0) | IN(2) | IN(3))
/* an expert's weights are read where they lie, those of a few a step */
OPS_ROW("com.microsoft", "MoE", 1, cref_moe_prepare, cref_moe_run,
	.facts.gathered = EXEC_MOE_WEIGHTS, .facts.experts = EXEC_MOE_WEIGHTS)
OPS_ROW("com.microsoft", "QMoE", 1, cref_qmoe_prepare, cref_moe_run,
	.facts.gathered = EXEC_QMOE_WEIGHTS, .facts.experts = EXEC_QMOE_WEIGHTS)
OPS_ROW("com.microsoft", "GroupQueryAttention", 1, cref_gqa_prepare,
	cref_gqa_run, .facts.gathered = IN(7) | IN(8),
	.facts.state_in = IN(3) | IN(4), .facts.state_out = OUT(1) | OUT(2))
OPS_ROW("com.microsoft", "PagedAttention", 1, cref_paged_prepare,
	cref_paged_run, .facts.gathered = IN(8) | IN(9),
	.facts.state_in = IN(3) | IN(4), .facts.state_out = OUT(1) | OUT(2))
OPS_ROW("com.microsoft", "MultiHeadAttention", 1, cref_mha_prepare,
	cref_mha_run)

/* with a state beside the cache */
OPS_ROW("", "CausalConvWithState", 27, ops_conv_state_prepare,
	ops_conv_state_run)
OPS_ROW("com.microsoft", "CausalConvWithState", 1, ops_conv_state_prepare,
	ops_conv_state_run)
OPS_ROW("", "LinearAttention", 27, cref_linear_prepare, cref_linear_run)
OPS_ROW("com.microsoft", "LinearAttention", 1, cref_linear_prepare,
	cref_linear_run)
OPS_ROW("com.microsoft", "LinearAttentionGate", 1, ops_linear_gate_prepare,
	ops_linear_gate_run)
OPS_ROW("com.microsoft", "GatedRMSNorm", 1, ops_gated_norm_prepare,
	ops_gated_norm_run)
OPS_ROW("com.microsoft", "GatedAdd", 1, ops_gated_add_prepare,
	ops_gated_add_run)

/* types */
OPS_ROW("", "Cast", 6, ops_cast_prepare, ops_cast_run)
OPS_ROW("", "CastLike", 15, ops_cast_like_prepare, ops_cast_run)
OPS_ROW("", "DequantizeLinear", 10, ops_dequant_prepare, ops_dequant_run)
OPS_ROW("", "QuantizeLinear", 10, ops_quant_prepare, ops_quant_run)

/* of the standard, for graphs that no decoder here has */
OPS_ROW("", "Attention", 23, ops_attention_prepare, ops_attention_run)
OPS_ROW("", "Conv", 1, ops_conv_prepare, ops_conv_run)
OPS_ROW("", "DynamicQuantizeLinear", 11, ops_dynamic_quant_prepare,
	ops_dynamic_quant_run)
OPS_ROW("", "GroupNormalization", 21, ops_group_norm_prepare,
	ops_group_norm_run)
OPS_ROW("", "InstanceNormalization", 6, ops_group_norm_prepare,
	ops_group_norm_run, .code = OPS_INSTANCE)
OPS_ROW("", "MatMulInteger", 10, ops_matmul_integer_prepare,
	ops_matmul_integer_run)
OPS_ROW("", "ReverseSequence", 10, ops_reverse_sequence_prepare,
	ops_reverse_sequence_run)
OPS_ROW("", "SwiGLU", 28, ops_swiglu_prepare, ops_swiglu_run)
OPS_ROW("", "TensorScatter", 24, ops_tensor_scatter_prepare,
	ops_tensor_scatter_run)
OPS_ROW("", "Unique", 11, ops_unique_prepare, ops_unique_run)
