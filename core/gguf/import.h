/* import.h - private to the GGUF import: a file being turned into a folder.
 * config.c reads the settings, tensors.c the list of tensors, source.c gives
 * the values, tokenizer.c and merges.c write the tokenizer, import.c joins
 * them. */
#ifndef GENAI_CORE_GGUF_IMPORT_H
#define GENAI_CORE_GGUF_IMPORT_H

#include <stdio.h>

#include "core/base/error.h"
#include "core/gguf/blocks.h"
#include "core/gguf/gguf.h"
#include "core/modelgen/modelgen.h"

/* What became of a tensor. */
struct imp_record {
	bool used;
	bool term; /* zero points would not do: offsets as a second term */
	struct genai_form form;
	float error; /* largest, relative to the largest value of its block */
};

/* What an architecture has that others have not: a row of config.c. */
struct imp_arch {
	const char *name; /* general.architecture */
	const char *type; /* genai_config.json's model.type */
	bool permuted;	  /* rows of q and k are in pairs */
	bool fused;	  /* q, k and v, and gate and up, are a tensor each */
	bool embed_scale; /* embeddings times the root of their width */
	bool gelu, norm_out, no_norm_in, qk_norm_wide;
	bool experts;	 /* in place of an MLP */
	bool sigmoid;	 /* which weigh experts, behind layers that have none */
	bool oss;	 /* sinks, biases, YaRN, gates as GPT-OSS has them */
	bool scales;	 /* has the keys of Granite's four factors */
	uint32_t window; /* where the file says none; 0: must, if local */
	uint32_t local_of;   /* of so many layers all but the last are local */
	uint32_t no_rope_of; /* of so many layers the last does not rotate */
	uint32_t large_layers; /* a model of so many scales attention by its
				* width */
	double theta_local;
	bool conv;	  /* layers without key/value heads are convolutions */
	const char *norm; /* the last one, where it has another name */
	const char *keys; /* its own, beside the common ones */
};

struct imp {
	struct genai_gguf *gguf;
	struct genai_genconf conf;
	struct imp_record *records; /* by tensor index */
	float *rope_factors;
	uint8_t *layer_flags;
	const struct imp_arch *a;
	char arch[16];
	bool permuted; /* rows of q and k are in pairs, as llama files have */
	bool fused;    /* q, k and v are one tensor, gate and up another */
	bool terms;    /* no zero points: offsets are second terms */
	bool again;    /* some tensor was found to need its offsets apart */
};

/* Settings of the model; every tensor it needs is there, has its shape and is
 * marked used; no other tensor is there. */
int32_t imp_configure(struct imp *imp, struct genai_error *err);
/* tensors.c: are all of them there, as the keys want them, and no others? */
int32_t imp_tensors(struct imp *imp, struct genai_error *err);
/* The tensor of a place, NULL if there is none. */
const struct genai_gguf_tensor *imp_tensor(const struct imp *imp, uint32_t site,
					   uint32_t layer);
/* The rows of a place in its tensor: how many, and the first. */
uint64_t imp_rows(const struct imp *imp, const struct genai_gguf_tensor *t,
		  uint32_t site);
uint64_t imp_first_row(const struct imp *imp, uint32_t site);
struct imp_record *imp_record(struct imp *imp,
			      const struct genai_gguf_tensor *t);

/* Functions of the genai_source, all but files. */
void imp_source(struct imp *imp, struct genai_source *out_source);

/* tokenizer.json, tokenizer_config.json and chat_template.jinja. */
int32_t imp_tokenizer(struct imp *imp, const char *dir,
		      struct genai_error *err);

/* Vocabulary of the file: tokens with their ids, sorted by text. */
struct imp_token {
	struct genai_gguf_string text;
	uint32_t id;
};
struct imp_vocab {
	struct genai_gguf_string *tokens; /* by id */
	struct imp_token *sorted;
	uint64_t n;
	const uint8_t *types;  /* int32 each, or NULL */
	const uint8_t *scores; /* float32 each, or NULL */
};
/* Id of a text, -1 if it is no token. */
int64_t imp_vocab_find(const struct imp_vocab *v, const char *text,
		       uint64_t bytes);
/* Type of a token; 1 (normal) where the file has none. */
uint32_t imp_vocab_type(const struct imp_vocab *v, uint64_t id);
/* The merges that a SentencePiece vocabulary's scores stand for, as the array
 * of tokenizer.json, into f. */
int32_t imp_merges_from_scores(const struct imp_vocab *v, FILE *f,
			       const char *path, struct genai_error *err);
/* A JSON string; false if it is not UTF-8 or cannot be written. */
bool imp_put_json(FILE *f, const char *s, uint64_t bytes);

#endif
