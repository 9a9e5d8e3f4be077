// constrain.c - llguidance, loaded if it is there.
#include "tools/constrain/constrain.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"
#include "core/base/secure.h"

#define FILE_NAME "llguidance-" CONSTRAIN_VERSION ".so"
#define MAX_TOKENIZER (64 << 20)

// ---- its C interface, as far as it is used ----

struct llg_tokenizer_init {
	size_t struct_size;
	uint32_t vocab_size, tok_eos;
	const uint32_t *token_lens;
	const uint8_t *token_bytes;
	const char *tokenizer_json;
	bool tokenize_assumes_string;
	size_t (*tokenize_fn)(const void *, const uint8_t *, size_t, uint32_t *,
			      size_t);
	bool use_approximate_greedy_tokenize_fn;
	const void *tokenize_user_data;
	const char *const *slices;
	const uint32_t *tok_eos_extra;
	uint32_t tok_eos_extra_count;
};

struct llg_constraint_init {
	const void *tokenizer;
	uint32_t log_buffer_level, log_stderr_level;
	bool ff_tokens_ok, backtrack_ok;
	struct {
		size_t max_items_in_row;
		uint64_t initial_lexer_fuel, step_lexer_fuel;
		size_t step_max_items, max_lexer_states, max_grammar_size;
		bool precompute_large_lexemes, verbose_errors;
	} limits;
	char later[64]; // of versions to come: 0
};

#define LLG_CALLS(X)                                                           \
	X(const char *, get_version, (void))                                   \
	X(void *, new_tokenizer_v2,                                            \
	  (const struct llg_tokenizer_init *, char *, size_t))                 \
	X(void, free_tokenizer, (void *))                                      \
	X(void, constraint_init_set_defaults,                                  \
	  (struct llg_constraint_init *, const void *))                        \
	X(void *, new_matcher,                                                 \
	  (const struct llg_constraint_init *, const char *, const char *))    \
	X(void *, clone_matcher, (const void *))                               \
	X(void, free_matcher, (void *))                                        \
	X(const char *, matcher_get_error, (void *))                           \
	X(size_t, matcher_get_mask_byte_size, (const void *))                  \
	X(int32_t, matcher_compute_mask_into, (void *, uint32_t *, size_t))    \
	X(int32_t, matcher_consume_token, (void *, uint32_t))

struct llg {
#define SLOT(type, name, args) type(*name) args;
	LLG_CALLS(SLOT)
#undef SLOT
};

struct constrain {
	void *so;
	struct llg llg;
	void *tokenizer;
	uint32_t vocab;
	size_t words; // of a mask
	int64_t *eos;
	size_t n_eos;
};

struct constraint {
	struct constrain *c;
	uint32_t choices;
	uint32_t *mask;
	struct {
		void *matcher;
		size_t n; // tokens it has seen
	} of[];
};

// ---- loading ----

static int32_t find_file(char *path, size_t cap, struct genai_error *err)
{
	const char *given =
		genai_is_privileged() ? NULL : getenv("GENAI_LLGUIDANCE");
	FILE *f;

	snprintf(path, cap, "%s",
		 given ? given : GENAI_PRIVATEDIR "/" FILE_NAME);
	f = fopen(path, "re");
	if (f)
		fclose(f);
	return f ? 0
		 : genai_fail(err, GENAI_E_NOTFOUND,
			      "structured output is not installed: "
			      "tools/install-llguidance installs it (%s is not "
			      "there)",
			      path);
}

static int32_t load(struct constrain *c, struct genai_error *err)
{
	char path[4096];
	const char *version;
	int32_t rc = find_file(path, sizeof(path), err);

	if (rc)
		return rc;
	c->so = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!c->so)
		return genai_fail(err, GENAI_E_ABI, "%s", dlerror());
#define SLOT(type, name, args)                                                 \
	*(void **)&c->llg.name = dlsym(c->so, "llg_" #name);                   \
	if (!c->llg.name)                                                      \
		return genai_fail(err, GENAI_E_ABI, "%s: there is no llg_%s",  \
				  path, #name);
	LLG_CALLS(SLOT)
#undef SLOT
	version = c->llg.get_version();
	if (!version || !strstr(version, "llguidance@" CONSTRAIN_VERSION))
		return genai_fail(err, GENAI_E_ABI,
				  "%s: llguidance " CONSTRAIN_VERSION
				  " is needed, this is %.80s",
				  path, version ? version : "none");
	return 0;
}

static int32_t read_tokenizer(const char *folder, char **out,
			      struct genai_error *err)
{
	char path[4300];
	FILE *f;
	char *text = NULL;
	size_t n = 0;

	snprintf(path, sizeof(path), "%s/tokenizer.json", folder);
	f = fopen(path, "re");
	if (!f)
		return genai_fail(err, GENAI_E_UNSUPPORTED,
				  "%s: structured output needs it", path);
	text = malloc(MAX_TOKENIZER + 1);
	if (text)
		n = fread(text, 1, MAX_TOKENIZER + 1, f);
	fclose(f);
	if (!text || n > MAX_TOKENIZER || memchr(text, 0, n)) {
		free(text);
		return genai_fail(err, GENAI_E_LIMIT,
				  "%s: more than %d bytes, or no text", path,
				  MAX_TOKENIZER);
	}
	text[n] = 0;
	*out = text;
	return 0;
}

static int32_t make_tokenizer(struct constrain *c, const char *folder,
			      struct genai_error *err)
{
	struct llg_tokenizer_init init = {
		.struct_size = sizeof(init),
		.vocab_size = c->vocab,
		.tok_eos = (uint32_t)c->eos[0],
		.use_approximate_greedy_tokenize_fn = true,
	};
	char why[400] = "", *json = NULL;
	int32_t rc = read_tokenizer(folder, &json, err);

	if (rc)
		return rc;
	init.tokenizer_json = json;
	c->tokenizer = c->llg.new_tokenizer_v2(&init, why, sizeof(why));
	free(json);
	return c->tokenizer ? 0
			    : genai_fail(err, GENAI_E_UNSUPPORTED,
					 "%s/tokenizer.json: structured "
					 "output: %s",
					 folder, why);
}

// Two digits and no more: does it say so?
static int32_t test(struct constrain *c, struct genai_error *err)
{
	struct constraint *k;
	uint32_t bits[2048], *mask = bits;
	int64_t id = 0;
	bool ok;
	int32_t rc = constraint_open(c, "regex", "[0-9]", 1, &k, err);

	if (rc)
		return rc;
	if (c->words > 2048)
		mask = malloc(c->words * sizeof(*mask));
	ok = mask && !constraint_allow(k, 0, NULL, 0, mask, err);
	while (ok && id < c->vocab && !(mask[id / 32] >> (id % 32) & 1))
		id++;
	ok = ok && id < c->vocab &&
	     !(mask[c->eos[0] / 32] >> (c->eos[0] % 32) & 1);
	ok = ok && !constraint_allow(k, 0, &id, 1, mask, err);
	ok = ok && mask[c->eos[0] / 32] >> (c->eos[0] % 32) & 1 &&
	     !(mask[id / 32] >> (id % 32) & 1);
	if (mask != bits)
		free(mask);
	constraint_close(k);
	return ok ? 0
		  : genai_fail(err, GENAI_E_ABI,
			       "llguidance does not do what it is asked");
}

int32_t constrain_open(const char *folder, uint32_t vocab, const int64_t *eos,
		       size_t n_eos, struct constrain **out,
		       struct genai_error *err)
{
	struct constrain *c = calloc(1, sizeof(*c));
	int32_t rc = 0;

	if (!c)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	c->vocab = vocab;
	c->words = ((size_t)vocab + 31) / 32;
	c->n_eos = n_eos;
	c->eos = malloc((n_eos + 1) * sizeof(*eos));
	if (!c->eos)
		rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
	else if (!n_eos)
		rc = genai_fail(err, GENAI_E_UNSUPPORTED,
				"structured output: the model has no token "
				"that ends a text");
	else
		memcpy(c->eos, eos, n_eos * sizeof(*eos));
	if (!rc)
		rc = load(c, err);
	if (!rc)
		rc = make_tokenizer(c, folder, err);
	if (!rc)
		rc = test(c, err);
	if (rc)
		constrain_close(c);
	else
		*out = c;
	return rc;
}

void constrain_close(struct constrain *c)
{
	if (!c)
		return;
	if (c->tokenizer)
		c->llg.free_tokenizer(c->tokenizer);
	// it stays mapped: its threads may not be ended
	free(c->eos);
	free(c);
}

// ---- grammars ----

void constraint_close(struct constraint *k)
{
	if (!k)
		return;
	for (uint32_t i = 0; i < k->choices; i++)
		if (k->of[i].matcher)
			k->c->llg.free_matcher(k->of[i].matcher);
	free(k->mask);
	free(k);
}

int32_t constraint_open(struct constrain *c, const char *kind, const char *data,
			uint32_t choices, struct constraint **out,
			struct genai_error *err)
{
	struct llg_constraint_init init = {0};
	struct constraint *k =
		calloc(1, sizeof(*k) + choices * sizeof(k->of[0]));
	const char *why;
	int32_t rc = 0;
	size_t bytes;

	if (!k)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	k->c = c;
	k->choices = choices;
	c->llg.constraint_init_set_defaults(&init, c->tokenizer);
	init.log_buffer_level = 0;
	init.log_stderr_level = 0;
	init.limits.verbose_errors = false;
	k->of[0].matcher = c->llg.new_matcher(&init, kind, data);
	why = c->llg.matcher_get_error(k->of[0].matcher);
	if (why)
		rc = genai_fail(err, GENAI_E_INVAL, "%s: %.400s", kind, why);
	bytes = rc ? 0 : c->llg.matcher_get_mask_byte_size(k->of[0].matcher);
	k->mask = calloc(1, bytes + 4);
	if (!rc && !k->mask)
		rc = genai_fail(err, GENAI_E_NOMEM, "no memory");
	// one that goes round in circles is known by its first mask
	if (!rc &&
	    c->llg.matcher_compute_mask_into(k->of[0].matcher, k->mask, bytes))
		rc = genai_fail(err, GENAI_E_INVAL, "%s: no text matches it",
				kind);
	for (uint32_t i = 1; !rc && i < choices; i++)
		k->of[i].matcher = c->llg.clone_matcher(k->of[0].matcher);
	if (rc)
		constraint_close(k);
	else
		*out = k;
	return rc;
}

static int32_t failed(struct constraint *k, void *matcher,
		      struct genai_error *err)
{
	const char *why = k->c->llg.matcher_get_error(matcher);

	return genai_fail(err, GENAI_E_LIMIT, "structured output: %.400s",
			  why ? why : "it failed");
}

int32_t constraint_allow(void *ctx, uint32_t choice, const int64_t *ids,
			 size_t n, uint32_t *bits, struct genai_error *err)
{
	struct constraint *k = ctx;
	const struct constrain *c = k->c;
	void *m = k->of[choice].matcher;
	size_t bytes = c->llg.matcher_get_mask_byte_size(m);
	bool may_end;

	for (; k->of[choice].n < n; k->of[choice].n++)
		if (c->llg.matcher_consume_token(
			    m, (uint32_t)ids[k->of[choice].n]))
			return failed(k, m, err);
	if (c->llg.matcher_compute_mask_into(m, k->mask, bytes))
		return failed(k, m, err);
	memset(bits, 0, c->words * 4);
	memcpy(bits, k->mask, bytes < c->words * 4 ? bytes : c->words * 4);
	if (c->vocab % 32)
		bits[c->words - 1] &= (1u << (c->vocab % 32)) - 1;
	// all ends are one, and none of them is text
	may_end = bits[c->eos[0] / 32] >> (c->eos[0] % 32) & 1;
	for (size_t i = 1; i < c->n_eos; i++) {
		uint32_t bit = 1u << (c->eos[i] % 32);

		if (c->eos[i] < 0 || c->eos[i] >= c->vocab)
			continue;
		if (may_end)
			bits[c->eos[i] / 32] |= bit;
		else
			bits[c->eos[i] / 32] &= ~bit;
	}
	return 0;
}
