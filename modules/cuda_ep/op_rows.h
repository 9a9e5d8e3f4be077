/* op_rows.h - the list of operators: domain, name, lowest opset, flags, inputs
 * read on the host, inputs read by index, inputs cut by rows, functions.
 * No include guard. */
#define MS "com.microsoft"
CEP_OP_ROW("", "Abs", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Add", 7, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "And", 7, 0, 0, 0, 0, cep_prepare_logic, cep_run_ew)
CEP_OP_ROW("", "ArgMax", 1, 0, 0, 0, 0, cep_prepare_argmax, cep_run_argmax)
CEP_OP_ROW("", "Cast", 6, 0, 0, 0, 0, cep_prepare_cast, cep_run_ew)
CEP_OP_ROW("", "Clip", 11, 0, 6, 0, 0, cep_prepare_clip, cep_run_ew)
CEP_OP_ROW("", "Concat", 4, 0, 0, 0, 0, cep_prepare_concat, cep_run_concat)
CEP_OP_ROW("", "ConstantOfShape", 9, 0, 1, 0, 0, cep_prepare_fill, cep_run_fill)
CEP_OP_ROW("", "Cos", 7, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Div", 7, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "Equal", 7, 0, 0, 0, 0, cep_prepare_compare, cep_run_ew)
CEP_OP_ROW("", "Erf", 9, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Exp", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Expand", 8, 0, 2, 0, 0, cep_prepare_expand, cep_run_view_copy)
CEP_OP_ROW("", "Flatten", 1, 0, 0, 0, 0, cep_prepare_flatten, cep_run_none)
CEP_OP_ROW("", "Floor", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Gather", 1, 0, 0, 1, 0, cep_prepare_gather, cep_run_gather)
CEP_OP_ROW("", "Gelu", 20, 0, 0, 0, 0, cep_prepare_gelu, cep_run_ew)
CEP_OP_ROW("", "Greater", 7, 0, 0, 0, 0, cep_prepare_compare, cep_run_ew)
CEP_OP_ROW("", "GreaterOrEqual", 12, 0, 0, 0, 0, cep_prepare_compare,
	   cep_run_ew)
CEP_OP_ROW("", "Identity", 1, 0, 0, 0, 0, cep_prepare_identity, cep_run_none)
CEP_OP_ROW("", "LayerNormalization", 1, 0, 0, 0, 0, cep_prepare_norm,
	   cep_run_norm)
CEP_OP_ROW("", "Less", 7, 0, 0, 0, 0, cep_prepare_compare, cep_run_ew)
CEP_OP_ROW("", "LessOrEqual", 12, 0, 0, 0, 0, cep_prepare_compare, cep_run_ew)
CEP_OP_ROW("", "Log", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "LogSoftmax", 13, 0, 0, 0, 0, cep_prepare_softmax,
	   cep_run_softmax)
CEP_OP_ROW("", "MatMul", 1, 0, 0, 0, 0, cep_prepare_matmul, cep_run_matmul)
CEP_OP_ROW("", "Max", 8, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "Min", 8, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "Mul", 7, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "Neg", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Not", 1, 0, 0, 0, 0, cep_prepare_not, cep_run_ew)
CEP_OP_ROW("", "Or", 7, 0, 0, 0, 0, cep_prepare_logic, cep_run_ew)
CEP_OP_ROW("", "Pow", 7, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "RMSNormalization", 23, 0, 0, 0, 0, cep_prepare_norm,
	   cep_run_norm)
CEP_OP_ROW("", "Reciprocal", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "ReduceMax", 1, 0, 2, 0, 0, cep_prepare_reduce, cep_run_reduce)
CEP_OP_ROW("", "ReduceMean", 1, 0, 2, 0, 0, cep_prepare_reduce, cep_run_reduce)
CEP_OP_ROW("", "ReduceMin", 1, 0, 2, 0, 0, cep_prepare_reduce, cep_run_reduce)
CEP_OP_ROW("", "ReduceSum", 1, 0, 2, 0, 0, cep_prepare_reduce, cep_run_reduce)
CEP_OP_ROW("", "Relu", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Reshape", 5, 0, 2, 0, 0, cep_prepare_reshape, cep_run_none)
CEP_OP_ROW("", "Shape", 1, 0, 0, 0, 0, cep_prepare_shape, cep_run_none)
CEP_OP_ROW("", "Sigmoid", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Sign", 9, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "SimplifiedLayerNormalization", 1, 0, 0, 0, 0, cep_prepare_norm,
	   cep_run_norm)
CEP_OP_ROW("", "Sin", 7, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Slice", 10, 0, 30, 0, 0, cep_prepare_slice, cep_run_view_copy)
CEP_OP_ROW("", "Softmax", 13, 0, 0, 0, 0, cep_prepare_softmax, cep_run_softmax)
CEP_OP_ROW("", "Softplus", 1, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Split", 2, CEP_OP_MAY_ALIAS, 2, 0, 0, cep_prepare_split,
	   cep_run_split)
CEP_OP_ROW("", "Sqrt", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Squeeze", 1, 0, 2, 0, 0, cep_prepare_squeeze, cep_run_none)
CEP_OP_ROW("", "Sub", 7, 0, 0, 0, 0, cep_prepare_binary, cep_run_ew)
CEP_OP_ROW("", "Tanh", 6, 0, 0, 0, 0, cep_prepare_unary, cep_run_ew)
CEP_OP_ROW("", "Transpose", 1, 0, 0, 0, 0, cep_prepare_transpose,
	   cep_run_view_copy)
CEP_OP_ROW("", "Unsqueeze", 1, 0, 2, 0, 0, cep_prepare_unsqueeze, cep_run_none)
CEP_OP_ROW("", "Where", 9, 0, 0, 0, 0, cep_prepare_where, cep_run_ew)
CEP_OP_ROW(MS, "FastGelu", 1, 0, 0, 0, 0, cep_prepare_fastgelu, cep_run_ew)
CEP_OP_ROW(MS, "GatherBlockQuantized", 1, 0, 0, 13, 0, cep_prepare_gbq,
	   cep_run_gbq)
CEP_OP_ROW(MS, "Gelu", 1, 0, 0, 0, 0, cep_prepare_gelu, cep_run_ew)
CEP_OP_ROW(MS, "GroupQueryAttention", 1, 0, 64, 384, 0, cep_prepare_gqa,
	   cep_run_gqa)
CEP_OP_ROW(MS, "MatMulNBits", 1, CEP_OP_TILED | CEP_OP_PARTS, 0, 0, 14,
	   cep_prepare_nbits, cep_run_nbits)
CEP_OP_ROW(MS, "QuickGelu", 1, 0, 0, 0, 0, cep_prepare_quickgelu, cep_run_ew)
CEP_OP_ROW(MS, "RotaryEmbedding", 1, 0, 0, 12, 0, cep_prepare_rope,
	   cep_run_rope)
CEP_OP_ROW(MS, "SimplifiedLayerNormalization", 1, 0, 0, 0, 0, cep_prepare_norm,
	   cep_run_norm)
CEP_OP_ROW(MS, "SkipLayerNormalization", 1, 0, 0, 0, 0, cep_prepare_skipnorm,
	   cep_run_norm)
CEP_OP_ROW(MS, "SkipSimplifiedLayerNormalization", 1, 0, 0, 0, 0,
	   cep_prepare_skipnorm, cep_run_norm)
#undef MS
