/* ops_rows.h - the list of operators: one row each, read twice (ops.h declares
 * the functions, ops.c makes the table).  No include guard. */

/* arithmetic */
OPS_ROW("", "Add", 7, CREF_OP_INPLACE, ops_add_prepare, ops_add_run)
OPS_ROW("", "Sub", 7, CREF_OP_INPLACE, ops_sub_prepare, ops_sub_run)
OPS_ROW("", "Mul", 7, CREF_OP_INPLACE, ops_mul_prepare, ops_mul_run)
OPS_ROW("", "Div", 7, CREF_OP_INPLACE, ops_div_prepare, ops_div_run)
OPS_ROW("", "Pow", 7, CREF_OP_INPLACE, ops_pow_prepare, ops_pow_run)
OPS_ROW("", "Mod", 10, CREF_OP_INPLACE, ops_mod_prepare, ops_mod_run)
OPS_ROW("", "Max", 8, CREF_OP_INPLACE, ops_max_prepare, ops_max_run)
OPS_ROW("", "Min", 8, CREF_OP_INPLACE, ops_min_prepare, ops_min_run)
OPS_ROW("", "Sum", 8, CREF_OP_INPLACE, ops_sum_prepare, ops_sum_run)
OPS_ROW("", "Mean", 8, CREF_OP_INPLACE, ops_mean_prepare, ops_mean_run)

/* functions */
OPS_ROW("", "Abs", 1, CREF_OP_INPLACE, ops_abs_prepare, ops_abs_run)
OPS_ROW("", "Neg", 1, CREF_OP_INPLACE, ops_neg_prepare, ops_neg_run)
OPS_ROW("", "Sign", 1, CREF_OP_INPLACE, ops_sign_prepare, ops_sign_run)
OPS_ROW("", "Sqrt", 1, CREF_OP_INPLACE, ops_sqrt_prepare, ops_sqrt_run)
OPS_ROW("", "Reciprocal", 1, CREF_OP_INPLACE, ops_reciprocal_prepare,
	ops_reciprocal_run)
OPS_ROW("", "Exp", 1, CREF_OP_INPLACE, ops_exp_prepare, ops_exp_run)
OPS_ROW("", "Log", 1, CREF_OP_INPLACE, ops_log_prepare, ops_log_run)
OPS_ROW("", "Erf", 1, CREF_OP_INPLACE, ops_erf_prepare, ops_erf_run)
OPS_ROW("", "Sin", 1, CREF_OP_INPLACE, ops_sin_prepare, ops_sin_run)
OPS_ROW("", "Cos", 1, CREF_OP_INPLACE, ops_cos_prepare, ops_cos_run)
OPS_ROW("", "Tan", 1, CREF_OP_INPLACE, ops_tan_prepare, ops_tan_run)
OPS_ROW("", "Asin", 1, CREF_OP_INPLACE, ops_asin_prepare, ops_asin_run)
OPS_ROW("", "Acos", 1, CREF_OP_INPLACE, ops_acos_prepare, ops_acos_run)
OPS_ROW("", "Atan", 1, CREF_OP_INPLACE, ops_atan_prepare, ops_atan_run)
OPS_ROW("", "Sinh", 1, CREF_OP_INPLACE, ops_sinh_prepare, ops_sinh_run)
OPS_ROW("", "Cosh", 1, CREF_OP_INPLACE, ops_cosh_prepare, ops_cosh_run)
OPS_ROW("", "Tanh", 1, CREF_OP_INPLACE, ops_tanh_prepare, ops_tanh_run)
OPS_ROW("", "Floor", 1, CREF_OP_INPLACE, ops_floor_prepare, ops_floor_run)
OPS_ROW("", "Ceil", 1, CREF_OP_INPLACE, ops_ceil_prepare, ops_ceil_run)
OPS_ROW("", "Round", 1, CREF_OP_INPLACE, ops_round_prepare, ops_round_run)

/* activations */
OPS_ROW("", "Sigmoid", 1, CREF_OP_INPLACE, ops_sigmoid_prepare, ops_sigmoid_run)
OPS_ROW("", "Relu", 1, CREF_OP_INPLACE, ops_relu_prepare, ops_relu_run)
OPS_ROW("", "Softplus", 1, CREF_OP_INPLACE, ops_softplus_prepare,
	ops_softplus_run)
OPS_ROW("", "Softsign", 1, CREF_OP_INPLACE, ops_softsign_prepare,
	ops_softsign_run)
OPS_ROW("", "Mish", 1, CREF_OP_INPLACE, ops_mish_prepare, ops_mish_run)
OPS_ROW("", "Elu", 1, CREF_OP_INPLACE, ops_elu_prepare, ops_elu_run)
OPS_ROW("", "Celu", 1, CREF_OP_INPLACE, ops_celu_prepare, ops_celu_run)
OPS_ROW("", "Selu", 1, CREF_OP_INPLACE, ops_selu_prepare, ops_selu_run)
OPS_ROW("", "LeakyRelu", 1, CREF_OP_INPLACE, ops_leaky_relu_prepare,
	ops_leaky_relu_run)
OPS_ROW("", "ThresholdedRelu", 1, CREF_OP_INPLACE, ops_thresholded_relu_prepare,
	ops_thresholded_relu_run)
OPS_ROW("", "HardSigmoid", 1, CREF_OP_INPLACE, ops_hard_sigmoid_prepare,
	ops_hard_sigmoid_run)
OPS_ROW("", "HardSwish", 1, CREF_OP_INPLACE, ops_hard_swish_prepare,
	ops_hard_swish_run)
OPS_ROW("", "Swish", 1, CREF_OP_INPLACE, ops_swish_prepare, ops_swish_run)
OPS_ROW("", "Gelu", 1, CREF_OP_INPLACE, ops_gelu_prepare, ops_gelu_run)
OPS_ROW("", "PRelu", 7, CREF_OP_INPLACE, ops_prelu_prepare, ops_prelu_run)
OPS_ROW("com.microsoft", "Gelu", 1, CREF_OP_INPLACE, ops_gelu_prepare,
	ops_gelu_run)
OPS_ROW("com.microsoft", "FastGelu", 1, CREF_OP_INPLACE, ops_fast_gelu_prepare,
	ops_fast_gelu_run)
OPS_ROW("com.microsoft", "QuickGelu", 1, CREF_OP_INPLACE,
	ops_quick_gelu_prepare, ops_quick_gelu_run)

/* comparisons, bool, bits */
OPS_ROW("", "Equal", 7, 0, ops_equal_prepare, ops_equal_run)
OPS_ROW("", "Greater", 7, 0, ops_greater_prepare, ops_greater_run)
OPS_ROW("", "Less", 7, 0, ops_less_prepare, ops_less_run)
OPS_ROW("", "GreaterOrEqual", 7, 0, ops_greater_equal_prepare,
	ops_greater_equal_run)
OPS_ROW("", "LessOrEqual", 7, 0, ops_less_equal_prepare, ops_less_equal_run)
OPS_ROW("", "And", 7, CREF_OP_INPLACE, ops_and_prepare, ops_and_run)
OPS_ROW("", "Or", 7, CREF_OP_INPLACE, ops_or_prepare, ops_or_run)
OPS_ROW("", "Xor", 7, CREF_OP_INPLACE, ops_xor_prepare, ops_xor_run)
OPS_ROW("", "Not", 1, CREF_OP_INPLACE, ops_not_prepare, ops_not_run)
OPS_ROW("", "BitwiseAnd", 1, CREF_OP_INPLACE, ops_bitand_prepare,
	ops_bitand_run)
OPS_ROW("", "BitwiseOr", 1, CREF_OP_INPLACE, ops_bitor_prepare, ops_bitor_run)
OPS_ROW("", "BitwiseXor", 1, CREF_OP_INPLACE, ops_bitxor_prepare,
	ops_bitxor_run)
OPS_ROW("", "BitwiseNot", 1, CREF_OP_INPLACE, ops_bitnot_prepare,
	ops_bitnot_run)
OPS_ROW("", "BitShift", 1, CREF_OP_INPLACE, ops_bitshift_prepare,
	ops_bitshift_run)
OPS_ROW("", "IsNaN", 1, 0, ops_isnan_prepare, ops_isnan_run)
OPS_ROW("", "IsInf", 1, 0, ops_isinf_prepare, ops_isinf_run)
OPS_ROW("", "Where", 9, 0, ops_where_prepare, ops_where_run)
OPS_ROW("", "Clip", 6, CREF_OP_INPLACE, ops_clip_prepare, ops_clip_run)

/* shapes */
OPS_ROW("", "Identity", 1, CREF_OP_ALIAS, ops_identity_prepare, ops_alias_run)
OPS_ROW("", "Reshape", 5, CREF_OP_ALIAS, ops_reshape_prepare, ops_alias_run)
OPS_ROW("", "Flatten", 1, CREF_OP_ALIAS, ops_flatten_prepare, ops_alias_run)
OPS_ROW("", "Squeeze", 1, CREF_OP_ALIAS, ops_squeeze_prepare, ops_alias_run)
OPS_ROW("", "Unsqueeze", 1, CREF_OP_ALIAS, ops_unsqueeze_prepare, ops_alias_run)
OPS_ROW("", "ConstantOfShape", 9, 0, ops_constant_of_shape_prepare,
	ops_constant_of_shape_run)
OPS_ROW("", "EyeLike", 9, 0, ops_eye_like_prepare, ops_eye_like_run)
OPS_ROW("", "Dropout", 7, 0, ops_dropout_prepare, ops_dropout_run)
OPS_ROW("", "Shape", 1, 0, ops_shape_prepare, ops_shape_run)
OPS_ROW("", "Size", 1, 0, ops_size_prepare, ops_size_run)
OPS_ROW("", "Range", 11, 0, ops_range_prepare, ops_range_run)

/* moving */
OPS_ROW("", "Transpose", 1, 0, ops_transpose_prepare, ops_transpose_run)
OPS_ROW("", "Expand", 8, 0, ops_expand_prepare, ops_expand_run)
OPS_ROW("", "Tile", 6, 0, ops_tile_prepare, ops_tile_run)
OPS_ROW("", "Split", 2, 0, ops_split_prepare, ops_split_run)
OPS_ROW("", "Concat", 4, 0, ops_concat_prepare, ops_concat_run)
OPS_ROW("", "Slice", 1, 0, ops_slice_prepare, ops_slice_run)
OPS_ROW("", "Pad", 2, 0, ops_pad_prepare, ops_pad_run)
OPS_ROW("", "Trilu", 14, 0, ops_trilu_prepare, ops_trilu_run)
OPS_ROW("", "DepthToSpace", 1, 0, ops_depth_space_prepare, ops_depth_space_run)
OPS_ROW("", "SpaceToDepth", 1, 0, ops_depth_space_prepare, ops_depth_space_run)

/* indices */
OPS_ROW("", "Gather", 1, 0, ops_gather_prepare, ops_gather_run)
OPS_ROW("", "GatherElements", 1, 0, ops_gather_elements_prepare,
	ops_gather_elements_run)
OPS_ROW("", "GatherND", 1, 0, ops_gather_nd_prepare, ops_gather_nd_run)
OPS_ROW("", "ScatterElements", 1, 0, ops_scatter_elements_prepare,
	ops_scatter_elements_run)
OPS_ROW("", "Scatter", 1, 0, ops_scatter_elements_prepare,
	ops_scatter_elements_run)
OPS_ROW("", "ScatterND", 1, 0, ops_scatter_nd_prepare, ops_scatter_nd_run)
OPS_ROW("", "ArgMax", 1, 0, ops_arg_prepare, ops_arg_run)
OPS_ROW("", "ArgMin", 1, 0, ops_arg_prepare, ops_arg_run)
OPS_ROW("", "TopK", 1, 0, ops_topk_prepare, ops_topk_run)
OPS_ROW("", "OneHot", 9, 0, ops_onehot_prepare, ops_onehot_run)
OPS_ROW("", "NonZero", 9, 0, ops_nonzero_prepare, ops_nonzero_run)
OPS_ROW("", "Compress", 9, 0, ops_compress_prepare, ops_compress_run)

/* reductions and lines */
OPS_ROW("", "ReduceSum", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceMean", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceL1", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceL2", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceSumSquare", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceLogSum", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceLogSumExp", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceProd", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceMax", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "ReduceMin", 1, 0, ops_reduce_prepare, ops_reduce_run)
OPS_ROW("", "Softmax", 1, CREF_OP_INPLACE, ops_softmax_prepare, ops_softmax_run)
OPS_ROW("", "LogSoftmax", 1, CREF_OP_INPLACE, ops_softmax_prepare,
	ops_softmax_run)
OPS_ROW("", "CumSum", 11, 0, ops_cumulate_prepare, ops_cumulate_run)
OPS_ROW("", "CumProd", 26, 0, ops_cumulate_prepare, ops_cumulate_run)
OPS_ROW("", "LpNormalization", 1, 0, ops_lpnorm_prepare, ops_lpnorm_run)

/* normalisation, rotary, products */
OPS_ROW("", "LayerNormalization", 1, CREF_OP_INPLACE, ops_norm_prepare,
	ops_norm_run)
OPS_ROW("", "RMSNormalization", 23, 0, ops_norm_prepare, ops_norm_run)
OPS_ROW("", "SimplifiedLayerNormalization", 1, 0, ops_norm_prepare,
	ops_norm_run)
OPS_ROW("com.microsoft", "SkipSimplifiedLayerNormalization", 1, 0,
	ops_skip_norm_prepare, ops_skip_norm_run)
OPS_ROW("com.microsoft", "SkipLayerNormalization", 1, 0, ops_skip_norm_prepare,
	ops_skip_norm_run)
OPS_ROW("", "RotaryEmbedding", 23, 0, ops_rotary_prepare, ops_rotary_run)
OPS_ROW("com.microsoft", "RotaryEmbedding", 1, 0, ops_rotary_ms_prepare,
	ops_rotary_ms_run)
OPS_ROW("", "Gemm", 7, 0, ops_gemm_prepare, ops_gemm_run)
OPS_ROW("", "Einsum", 12, 0, ops_einsum_prepare, ops_einsum_run)

/* kernels.h */
OPS_ROW("", "MatMul", 1, CREF_OP_COLUMNS, cref_matmul_prepare, cref_matmul_run)
OPS_ROW("com.microsoft", "MatMulNBits", 1, CREF_OP_TILED,
	cref_matmul_nbits_prepare, cref_matmul_nbits_run)
OPS_ROW("com.microsoft", "GatherBlockQuantized", 1, 0, cref_gather_bits_prepare,
	cref_gather_bits_run)
OPS_ROW("com.microsoft", "GroupQueryAttention", 1, 0, cref_gqa_prepare,
	cref_gqa_run)
OPS_ROW("com.microsoft", "MultiHeadAttention", 1, 0, cref_mha_prepare,
	cref_mha_run)

/* types */
OPS_ROW("", "Cast", 6, 0, ops_cast_prepare, ops_cast_run)
OPS_ROW("", "CastLike", 15, 0, ops_cast_like_prepare, ops_cast_run)
OPS_ROW("", "DequantizeLinear", 10, 0, ops_dequant_prepare, ops_dequant_run)
OPS_ROW("", "QuantizeLinear", 10, 0, ops_quant_prepare, ops_quant_run)
