/* modelgen.h - writing an ONNX GenAI model folder: graph, weights, settings.
 * Owns: the operator chain of dense decoders (Llama and its kin), the data file
 * and its layout, the folder appearing at once or not at all.  Does not know:
 * where values come from (a genai_source gives them, one tensor at a time). */
#ifndef GENAI_CORE_MODELGEN_MODELGEN_H
#define GENAI_CORE_MODELGEN_MODELGEN_H

#include <stdbool.h>
#include <genai/types.h>

/* Matrices, [rows, columns] as PyTorch has them. */
#define GENAI_SITE_EMBED 0u /* vocabulary x hidden */
#define GENAI_SITE_HEAD 1u  /* vocabulary x hidden */
#define GENAI_SITE_Q 2u
#define GENAI_SITE_K 3u
#define GENAI_SITE_V 4u
#define GENAI_SITE_O 5u
#define GENAI_SITE_GATE 6u
#define GENAI_SITE_UP 7u
#define GENAI_SITE_DOWN 8u
/* Vectors. */
#define GENAI_SITE_NORM_IN 9u
#define GENAI_SITE_NORM_POST 10u
#define GENAI_SITE_NORM_Q 11u
#define GENAI_SITE_NORM_K 12u
#define GENAI_SITE_NORM_FINAL 13u
#define GENAI_SITE_BIAS_Q 14u
#define GENAI_SITE_BIAS_K 15u
#define GENAI_SITE_BIAS_V 16u
#define GENAI_SITE_NORM_ATTN 17u /* of what attention gives */
#define GENAI_SITE_NORM_MLP 18u	 /* of what the MLP gives */
/* Matrices of a mixture of experts; all but the router's have the rows of one
 * expert after those of the one before. */
#define GENAI_SITE_ROUTER 19u /* experts x hidden */
#define GENAI_SITE_EXP_GATE 20u
#define GENAI_SITE_EXP_UP 21u
#define GENAI_SITE_EXP_DOWN 22u
/* Vectors. */
#define GENAI_SITE_BIAS_ROUTER 23u
#define GENAI_SITE_BIAS_GATE 24u /* of the experts, and so the next two */
#define GENAI_SITE_BIAS_UP 25u
#define GENAI_SITE_BIAS_DOWN 26u
#define GENAI_SITE_BIAS_O 27u
#define GENAI_SITE_SINKS 28u /* of attention, one for each head */
/* Of a layer with a short convolution instead of attention: matrices 3 * hidden
 * x hidden and hidden x hidden, and the taps of each channel, a vector. */
#define GENAI_SITE_CONV_IN 29u
#define GENAI_SITE_CONV_OUT 30u
#define GENAI_SITE_CONV_TAPS 31u
/* Of a layer with a gated delta network instead of attention, with conv_taps
 * over q, k and v: matrices (delta_k_heads and delta_v_heads of delta_size, or
 * one for each of the latter), */
#define GENAI_SITE_DELTA_QKV 32u
#define GENAI_SITE_DELTA_Z 33u
#define GENAI_SITE_DELTA_A 34u
#define GENAI_SITE_DELTA_B 35u
#define GENAI_SITE_DELTA_OUT 36u
/* and vectors: one for each head, and the norm of a head. */
#define GENAI_SITE_DELTA_BIAS 37u
#define GENAI_SITE_DELTA_DECAY 38u
#define GENAI_SITE_DELTA_NORM 39u
/* A vector of a mixture of experts: by what the choice prefers each. */
#define GENAI_SITE_BIAS_CHOICE 40u

/* How a layer differs from the others. */
#define GENAI_LAYER_LOCAL                                                      \
	1u		       /* sees the window only; rotates by theta_local \
				*/
#define GENAI_LAYER_NO_ROPE 2u /* does not rotate */
#define GENAI_LAYER_CONV 4u    /* a short convolution instead of attention */
#define GENAI_LAYER_DELTA 8u   /* a gated delta network instead */

/* What is added to scale * code in a block. */
#define GENAI_OFFSET_NONE 0u /* the default zero point, 2^(bits-1) */
#define GENAI_OFFSET_ZERO 1u /* a float zero point: scale * (code - zero) */
#define GENAI_OFFSET_TERM 2u /* scale * code + offset, as a term of its own */

/* How a matrix is stored. */
struct genai_form {
	uint32_t bits;	 /* 0: float values; 4 or 8: codes of MatMulNBits */
	uint32_t dtype;	 /* of float values: GENAI_DT_F16, _BF16; 0: the
			    folder's.  Values are of it exactly. */
	uint32_t block;	 /* columns that share a scale: 16 or 32 */
	uint32_t offset; /* GENAI_OFFSET_* */
};

/* Where values come from.  Every function gets self; layer is 0 for tensors
 * that belong to no layer.  Values are float32 whatever the folder's type. */
struct genai_source {
	void *self;
	/* form of a matrix */
	void (*form)(void *self, uint32_t site, uint32_t layer,
		     struct genai_form *out_form);
	/* a vector */
	int32_t (*vector)(void *self, uint32_t site, uint32_t layer,
			  float *out_values, struct genai_error *err);
	/* float matrix: columns [col, col + n) of all rows, transposed:
	 * out[c * stride + row].  col and n are multiples of 256, or n is the
	 * rest of a row. */
	int32_t (*columns)(void *self, uint32_t site, uint32_t layer,
			   uint64_t col, uint64_t n, uint64_t stride,
			   float *out_values, struct genai_error *err);
	/* float matrix: rows [row, row + n) */
	int32_t (*rows)(void *self, uint32_t site, uint32_t layer, uint64_t row,
			uint64_t n, float *out_values, struct genai_error *err);
	/* matrix of blocks: rows [row, row + n): codes packed low bits first,
	 * and per block a scale, a zero point (NULL unless GENAI_OFFSET_ZERO)
	 * and what is added to scale * code (NULL unless wanted: for
	 * GENAI_OFFSET_TERM, and for an embedding that shares its codes with
	 * a head that has zero points). */
	int32_t (*blocks)(void *self, uint32_t site, uint32_t layer,
			  uint64_t row, uint64_t n, uint8_t *out_codes,
			  float *out_scales, float *out_zeros, float *out_terms,
			  struct genai_error *err);
	/* write the tokenizer's files into the folder dir, before the data */
	int32_t (*files)(void *self, const char *dir, struct genai_error *err);
	/* the same for what is known only after the data; may be NULL */
	int32_t (*finish)(void *self, const char *dir, struct genai_error *err);
};

/* The model.  Strings and arrays are borrowed. */
struct genai_genconf {
	const char *type; /* genai_config.json: model.type */
	uint32_t layers, hidden, heads, kv_heads, head_size, ffn, vocab;
	uint32_t context;
	uint32_t rotary;       /* channels of a head that are rotated */
	bool rope_interleaved; /* those that turn together lie side by side */
	double theta;
	double rope_scale; /* positions are divided by it; 1: none */
	const float
		*rope_factors; /* rotary / 2 divisors of the rates or NULL */
	float epsilon;
	bool tied; /* the head is the embedding */
	bool qkv_bias;
	bool qk_norm;	    /* q and k are normalised, each head by itself */
	bool qk_norm_wide;  /* or over all heads */
	bool no_norm_in;    /* branches read the stream as it is */
	bool norm_out;	    /* what branches give is normalised */
	bool gelu;	    /* GELU by tanh gates, instead of SiLU */
	uint32_t conv_taps; /* of layers that have a convolution */
	uint32_t delta_k_heads, delta_v_heads,
		delta_size; /* GENAI_LAYER_DELTA */
	bool gated;	    /* q has a gate beside each head, for its output */
	uint32_t mrope[3]; /* pairs that turn by time, height, width; 0: none */
	/* A mixture of experts, of ffn each; 0: one MLP.  All forms of its
	 * matrices have one block, and are floats or none of them is. */
	uint32_t experts, experts_used;
	uint32_t dense_layers, dense_ffn; /* the first, with one MLP of that */
	bool sigmoid; /* experts are weighed by sigmoids, and chosen by these
			 and a bias */
	bool router_bias, expert_bias, o_bias, sinks;
	float gate_alpha, gate_beta, gate_limit; /* 0: 1, 0 and none */
	/* YaRN: rotation rates blend between those of the context that it was
	 * trained for and those divided by the factor; 0: none */
	double yarn_factor;
	uint32_t yarn_context;
	/* 0 or 1: none */
	float embed_scale, branch_scale, logit_scale;
	float attention_scale;		/* 0: 1 / sqrt(head_size) */
	float attention_cap, logit_cap; /* cap * tanh(x / cap); 0: none */
	uint32_t window;		/* positions; 0: none */
	double theta_local;		/* 0: theta */
	const uint8_t *layer_flags;	/* GENAI_LAYER_*, or NULL */
	bool cuda;	   /* settings and q/k norms as CUDA builds have them */
	uint32_t io_dtype; /* GENAI_DT_F32 or _F16 */
	uint32_t accuracy_level; /* of MatMulNBits; 0: not written */
	int64_t bos, pad;	 /* -1: none */
	int64_t eos[8];
	uint32_t n_eos;
};

struct genai_gen_options {
	bool overwrite; /* replace a model folder that is there */
	bool split_qkv; /* one matrix each for q, k and v, even if alike */
	/* called with bytes written; non-zero stops (GENAI_E_INTERRUPTED) */
	int (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *progress_ctx;
};

/* Write the folder.  It is made beside out_dir under another name and renamed
 * when complete; after an error nothing is left.  An existing out_dir is
 * GENAI_E_INVAL unless empty, or overwrite is set and it holds nothing but a
 * model's files.
 * Errors: GENAI_E_IO (disk full: bytes needed and free), _INVAL, _NOMEM,
 * _INTERRUPTED, and what the source returns. */
int32_t genai_modelgen_write(const struct genai_genconf *conf,
			     const struct genai_source *source,
			     const char *out_dir,
			     const struct genai_gen_options *options,
			     struct genai_error *err);

/* Architectures of real models, for folders with random weights. */
struct genai_synth_info {
	const char *name; /* "Qwen2.5-7B" */
	uint32_t layers, hidden, heads, kv_heads, head_size, ffn, vocab;
	uint32_t context;
	bool tied;
	uint64_t weight_bytes; /* at 4 bits, blocks of 32, half scales */
};

struct genai_synth_options {
	uint64_t seed;
	uint32_t bits;	   /* 4 or 8; 0: 4 */
	uint32_t block;	   /* 16, 32, 64, 128; 0: 32 */
	uint32_t layers;   /* 0: as many as the architecture has */
	uint32_t context;  /* 0: as long as the architecture's */
	uint32_t io_dtype; /* 0 or GENAI_DT_F16: as CUDA builds are;
			      GENAI_DT_F32: as CPU builds are */
	bool overwrite;
	int (*progress)(void *ctx, uint64_t done, uint64_t total);
	void *progress_ctx;
};

/* Architecture of that index, in order of the list; false past its end. */
bool genai_synth_list(uint32_t index, struct genai_synth_info *out_info);

/* Write a folder of architecture arch with random weights: every matrix, the
 * embedding and the head included, as symmetric blocks; values so scaled that
 * activations keep their size from layer to layer.  The same options give the
 * same bytes.
 * Errors: GENAI_E_NOTFOUND (unknown name), _INVAL (options, or blocks that do
 * not divide a row), those of genai_modelgen_write. */
int32_t genai_synth(const char *arch, const char *out_dir,
		    const struct genai_synth_options *options,
		    struct genai_error *err);

#endif
