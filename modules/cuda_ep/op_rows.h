/* op_rows.h - the list of operators: domain, name, lowest opset, the functions
 * prepare and run, and what else is true of it (struct cep_op).  Read by op.h,
 * which declares the functions, ops.c, the table, and plan.c, the list; no
 * include guard. */
#define MS "com.microsoft"
CEP_OP_ROW("", "Abs", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_ABS)
CEP_OP_ROW("", "Add", 7, cep_prepare_binary, cep_run_ew, .code = CEP_EW_ADD,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "And", 7, cep_prepare_logic, cep_run_ew, .code = CEP_EW_AND,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "ArgMax", 1, cep_prepare_argmax, cep_run_argmax)
CEP_OP_ROW("", "Cast", 6, cep_prepare_cast, cep_run_ew, .fold = cep_fold_copy)
CEP_OP_ROW("", "CausalConvWithState", 27, cep_prepare_conv, cep_run_conv)
CEP_OP_ROW("", "Clip", 11, cep_prepare_clip, cep_run_ew,
	   .facts.host = IN(1) | IN(2))
CEP_OP_ROW("", "Concat", 4, cep_prepare_concat, cep_run_concat,
	   .fold = cep_fold_concat)
CEP_OP_ROW("", "ConstantOfShape", 9, cep_prepare_fill, cep_run_fill,
	   .facts.host = IN(0))
CEP_OP_ROW("", "Cos", 7, cep_prepare_unary, cep_run_ew, .code = CEP_EW_COS)
CEP_OP_ROW("", "DequantizeLinear", 10, cep_prepare_dequant, cep_run_dequant)
CEP_OP_ROW("", "Div", 7, cep_prepare_binary, cep_run_ew, .code = CEP_EW_DIV,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "Equal", 7, cep_prepare_compare, cep_run_ew,
	   .code = CEP_EW_EQUAL, .fold = cep_fold_binary)
CEP_OP_ROW("", "Erf", 9, cep_prepare_unary, cep_run_ew, .code = CEP_EW_ERF)
CEP_OP_ROW("", "Exp", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_EXP)
CEP_OP_ROW("", "Expand", 8, cep_prepare_expand, cep_run_view_copy,
	   .facts.host = IN(1))
CEP_OP_ROW("", "Flatten", 1, cep_prepare_flatten, cep_run_none,
	   .fold = cep_fold_copy)
CEP_OP_ROW("", "Floor", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_FLOOR)
CEP_OP_ROW("", "Gather", 1, cep_prepare_gather, cep_run_gather,
	   .fold = cep_fold_gather, .facts.gathered = IN(0))
CEP_OP_ROW("", "GatherElements", 11, cep_prepare_gather_elements,
	   cep_run_gather_elements)
CEP_OP_ROW("", "Gelu", 20, cep_prepare_gelu, cep_run_ew)
CEP_OP_ROW("", "Greater", 7, cep_prepare_compare, cep_run_ew,
	   .code = CEP_EW_GREATER, .fold = cep_fold_binary)
CEP_OP_ROW("", "GreaterOrEqual", 12, cep_prepare_compare, cep_run_ew,
	   .code = CEP_EW_GREATER_EQ, .fold = cep_fold_binary)
CEP_OP_ROW("", "Identity", 1, cep_prepare_identity, cep_run_none,
	   .fold = cep_fold_copy)
CEP_OP_ROW("", "LayerNormalization", 1, cep_prepare_norm, cep_run_norm,
	   .code = CEP_NORM_LAYER)
CEP_OP_ROW("", "Less", 7, cep_prepare_compare, cep_run_ew, .code = CEP_EW_LESS,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "LessOrEqual", 12, cep_prepare_compare, cep_run_ew,
	   .code = CEP_EW_LESS_EQ, .fold = cep_fold_binary)
CEP_OP_ROW("", "LinearAttention", 27, cep_prepare_linear, cep_run_linear)
CEP_OP_ROW("", "Log", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_LOG)
CEP_OP_ROW("", "LogSoftmax", 13, cep_prepare_softmax, cep_run_softmax,
	   .code = CEP_ROW_LOG_SOFTMAX)
CEP_OP_ROW("", "LpNormalization", 1, cep_prepare_lp_norm, cep_run_lp_norm)
CEP_OP_ROW("", "MatMul", 1, cep_prepare_matmul, cep_run_matmul)
CEP_OP_ROW("genai", "MatMul", 1, cep_prepare_matmul_narrow,
	   cep_run_matmul_narrow)
CEP_OP_ROW("", "Max", 8, cep_prepare_binary, cep_run_ew, .code = CEP_EW_MAX,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "Min", 8, cep_prepare_binary, cep_run_ew, .code = CEP_EW_MIN,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "Mul", 7, cep_prepare_binary, cep_run_ew, .code = CEP_EW_MUL,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "Neg", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_NEG)
CEP_OP_ROW("", "Not", 1, cep_prepare_not, cep_run_ew)
CEP_OP_ROW("", "Or", 7, cep_prepare_logic, cep_run_ew, .code = CEP_EW_OR,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "Pow", 7, cep_prepare_binary, cep_run_ew, .code = CEP_EW_POW)
CEP_OP_ROW("", "RMSNormalization", 23, cep_prepare_norm, cep_run_norm)
CEP_OP_ROW("", "Reciprocal", 6, cep_prepare_unary, cep_run_ew,
	   .code = CEP_EW_RECIPROCAL)
CEP_OP_ROW("", "ReduceMax", 1, cep_prepare_reduce, cep_run_reduce,
	   .code = CEP_ROW_MAX, .facts.host = IN(1))
CEP_OP_ROW("", "ReduceMean", 1, cep_prepare_reduce, cep_run_reduce,
	   .code = CEP_ROW_MEAN, .facts.host = IN(1))
CEP_OP_ROW("", "ReduceMin", 1, cep_prepare_reduce, cep_run_reduce,
	   .code = CEP_ROW_MIN, .facts.host = IN(1))
CEP_OP_ROW("", "ReduceSum", 1, cep_prepare_reduce, cep_run_reduce,
	   .code = CEP_ROW_SUM, .facts.host = IN(1))
CEP_OP_ROW("", "Relu", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_RELU)
CEP_OP_ROW("", "Reshape", 5, cep_prepare_reshape, cep_run_none,
	   .fold = cep_fold_copy, .facts.host = IN(1))
CEP_OP_ROW("", "ScatterElements", 11, cep_prepare_scatter_elements,
	   cep_run_scatter_elements)
CEP_OP_ROW("", "Shape", 1, cep_prepare_shape, cep_run_none,
	   .fold = cep_fold_shape, .facts.dims_only = IN(0))
CEP_OP_ROW("", "Sigmoid", 6, cep_prepare_unary, cep_run_ew,
	   .code = CEP_EW_SIGMOID)
CEP_OP_ROW("", "Sign", 9, cep_prepare_unary, cep_run_ew, .code = CEP_EW_SIGN)
CEP_OP_ROW("", "SimplifiedLayerNormalization", 1, cep_prepare_norm,
	   cep_run_norm)
CEP_OP_ROW("", "Sin", 7, cep_prepare_unary, cep_run_ew, .code = CEP_EW_SIN)
CEP_OP_ROW("", "Slice", 10, cep_prepare_slice, cep_run_view_copy,
	   .fold = cep_fold_slice, .facts.host = IN(1) | IN(2) | IN(3) | IN(4))
CEP_OP_ROW("", "Softmax", 13, cep_prepare_softmax, cep_run_softmax,
	   .code = CEP_ROW_SOFTMAX)
CEP_OP_ROW("", "Softplus", 1, cep_prepare_unary, cep_run_ew,
	   .code = CEP_EW_SOFTPLUS)
CEP_OP_ROW("", "Split", 2, cep_prepare_split, cep_run_split,
	   .facts.host = IN(1), .may_alias = true)
CEP_OP_ROW("", "Sqrt", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_SQRT)
CEP_OP_ROW("", "Squeeze", 1, cep_prepare_squeeze, cep_run_none,
	   .fold = cep_fold_copy, .facts.host = IN(1))
CEP_OP_ROW("", "Sub", 7, cep_prepare_binary, cep_run_ew, .code = CEP_EW_SUB,
	   .fold = cep_fold_binary)
CEP_OP_ROW("", "Tanh", 6, cep_prepare_unary, cep_run_ew, .code = CEP_EW_TANH)
CEP_OP_ROW("", "TopK", 10, cep_prepare_topk, cep_run_topk, .facts.host = IN(1))
CEP_OP_ROW("", "Transpose", 1, cep_prepare_transpose, cep_run_view_copy,
	   .may_alias = true)
CEP_OP_ROW("", "Unsqueeze", 1, cep_prepare_unsqueeze, cep_run_none,
	   .fold = cep_fold_copy, .facts.host = IN(1))
CEP_OP_ROW("", "Where", 9, cep_prepare_where, cep_run_ew)
CEP_OP_ROW(MS, "CausalConvWithState", 1, cep_prepare_conv, cep_run_conv)
CEP_OP_ROW(MS, "FastGelu", 1, cep_prepare_fastgelu, cep_run_ew)
CEP_OP_ROW(MS, "GatedAdd", 1, cep_prepare_gated_add, cep_run_gated_add)
CEP_OP_ROW(MS, "GatedRMSNorm", 1, cep_prepare_gated_norm, cep_run_gated_norm)
CEP_OP_ROW(MS, "GatherBlockQuantized", 1, cep_prepare_gbq, cep_run_gbq,
	   .facts.gathered = IN(0) | IN(2) | IN(3))
CEP_OP_ROW(MS, "Gelu", 1, cep_prepare_gelu, cep_run_ew)
CEP_OP_ROW(MS, "GroupQueryAttention", 1, cep_prepare_gqa, cep_run_gqa,
	   .facts.host = IN(6), .facts.gathered = IN(7) | IN(8),
	   .facts.state_in = IN(3) | IN(4), .facts.state_out = OUT(1) | OUT(2))
CEP_OP_ROW(MS, "LinearAttention", 1, cep_prepare_linear, cep_run_linear)
CEP_OP_ROW(MS, "LinearAttentionGate", 1, cep_prepare_linear_gate,
	   cep_run_linear_gate)
CEP_OP_ROW(MS, "MatMulNBits", 1, cep_prepare_nbits, cep_run_nbits,
	   .facts.rows = IN(1) | IN(2) | IN(3), .parts = true)
CEP_OP_ROW(MS, "MoE", 1, cep_prepare_moe, cep_run_moe,
	   .facts.gathered = EXEC_MOE_WEIGHTS,
	   .facts.experts = EXEC_MOE_WEIGHTS)
CEP_OP_ROW(MS, "QMoE", 1, cep_prepare_qmoe, cep_run_moe,
	   .facts.gathered = EXEC_QMOE_WEIGHTS,
	   .facts.experts = EXEC_QMOE_WEIGHTS)
CEP_OP_ROW(MS, "PagedAttention", 1, cep_prepare_paged, cep_run_paged,
	   .facts.gathered = IN(8) | IN(9), .facts.state_in = IN(3) | IN(4),
	   .facts.state_out = OUT(1) | OUT(2))
CEP_OP_ROW(MS, "QuickGelu", 1, cep_prepare_quickgelu, cep_run_ew)
CEP_OP_ROW(MS, "RotaryEmbedding", 1, cep_prepare_rope, cep_run_rope,
	   .facts.gathered = IN(2) | IN(3))
CEP_OP_ROW(MS, "SimplifiedLayerNormalization", 1, cep_prepare_norm,
	   cep_run_norm)
CEP_OP_ROW(MS, "SkipLayerNormalization", 1, cep_prepare_skipnorm, cep_run_norm,
	   .code = CEP_NORM_LAYER)
CEP_OP_ROW(MS, "SkipSimplifiedLayerNormalization", 1, cep_prepare_skipnorm,
	   cep_run_norm)
#undef MS
