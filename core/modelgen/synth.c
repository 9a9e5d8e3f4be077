// synth.c - model folders of real architectures with random weights.
#include "core/base/error.h"
#include "core/modelgen/modelgen.h"

#include <errno.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
#include <strings.h>

struct arch {
	const char *name, *type;
	uint32_t layers, hidden, heads, kv_heads, head_size, ffn, vocab;
	uint32_t context;
	double theta;
	float epsilon;
	bool tied;
	uint32_t rope_factor;	// of Llama 3's rescaled rotation; 0: none
	uint32_t experts, used; // of ffn each; 0: one MLP
	uint32_t taps;		// of short convolutions; 0: none
	uint32_t attention;	// layers that are none, a bit each
	uint32_t delta_k, delta_v, delta; // heads and size of delta networks,
					  // which have the taps, then
	uint32_t rotary;		  // channels that turn; 0: all
	uint32_t window;		  // of five layers of six; 0: none
	uint32_t dense, dense_ffn;	  // first layers, without experts
};

#define LLAMA "llama"
#define QWEN2 "qwen2"
#define QWEN3 "qwen3"
#define GPT_OSS "gptoss"
#define LFM2 "lfm2"
#define QWEN35 "qwen3_5_text"
#define GEMMA3 "gemma3_text"
#define PHI3 "phi3"
#define GLM "chatglm"
#define LFM2_MOE "lfm2_moe"
#define LFM2_ATTENTION 0x5524	   // layers 2, 5, 8, 10, 12, 14
#define LFM2_8B_ATTENTION 0x244444 // 2, 6, 10, 14, 18, 21

static const struct arch archs[] = {
	{"Qwen2.5-0.5B", QWEN2, 24, 896, 14, 2, 64, 4864, 151936, 32768, 1e6,
	 1e-6f, true, 0},
	{"Qwen2.5-1.5B", QWEN2, 28, 1536, 12, 2, 128, 8960, 151936, 32768, 1e6,
	 1e-6f, true, 0},
	{"Qwen2.5-3B", QWEN2, 36, 2048, 16, 2, 128, 11008, 151936, 32768, 1e6,
	 1e-6f, true, 0},
	{"Qwen2.5-7B", QWEN2, 28, 3584, 28, 4, 128, 18944, 152064, 32768, 1e6,
	 1e-6f, false, 0},
	{"Qwen2.5-14B", QWEN2, 48, 5120, 40, 8, 128, 13824, 152064, 32768, 1e6,
	 1e-6f, false, 0},
	{"Qwen2.5-32B", QWEN2, 64, 5120, 40, 8, 128, 27648, 152064, 32768, 1e6,
	 1e-6f, false, 0},
	{"Qwen3-0.6B", QWEN3, 28, 1024, 16, 8, 128, 3072, 151936, 40960, 1e6,
	 1e-6f, true, 0},
	{"Qwen3-1.7B", QWEN3, 28, 2048, 16, 8, 128, 6144, 151936, 40960, 1e6,
	 1e-6f, true, 0},
	{"Qwen3-4B", QWEN3, 36, 2560, 32, 8, 128, 9728, 151936, 40960, 1e6,
	 1e-6f, true, 0},
	{"Qwen3-8B", QWEN3, 36, 4096, 32, 8, 128, 12288, 151936, 40960, 1e6,
	 1e-6f, false, 0},
	{"Qwen3-14B", QWEN3, 40, 5120, 40, 8, 128, 17408, 151936, 40960, 1e6,
	 1e-6f, false, 0},
	{"Llama-3.2-1B", LLAMA, 16, 2048, 32, 8, 64, 8192, 128256, 131072, 5e5,
	 1e-5f, true, 32},
	{"Llama-3.2-3B", LLAMA, 28, 3072, 24, 8, 128, 8192, 128256, 131072, 5e5,
	 1e-5f, true, 32},
	{"Llama-3.1-8B", LLAMA, 32, 4096, 32, 8, 128, 14336, 128256, 131072,
	 5e5, 1e-5f, false, 8},
	{"SmolLM2-135M", LLAMA, 30, 576, 9, 3, 64, 1536, 49152, 8192, 1e5,
	 1e-5f, true, 0},
	{"Qwen3-30B-A3B", QWEN3, 48, 2048, 32, 4, 128, 768, 151936, 40960, 1e6,
	 1e-6f, false, 0, 128, 8},
	{"gpt-oss-20b", GPT_OSS, 24, 2880, 64, 8, 64, 2880, 201088, 131072,
	 150000, 1e-5f, false, 0, 32, 4},
	{"LFM2-350M", LFM2, 16, 1024, 16, 8, 64, 4608, 65536, 128000, 1e6,
	 1e-5f, true, .taps = 3, .attention = LFM2_ATTENTION},
	{"LFM2-700M", LFM2, 16, 1536, 24, 8, 64, 6912, 65536, 128000, 1e6,
	 1e-5f, true, .taps = 3, .attention = LFM2_ATTENTION},
	{"LFM2-1.2B", LFM2, 16, 2048, 32, 8, 64, 8192, 65536, 128000, 1e6,
	 1e-5f, true, .taps = 3, .attention = LFM2_ATTENTION},
	{"LFM2-8B-A1B",
	 LFM2_MOE,
	 24,
	 2048,
	 32,
	 8,
	 64,
	 1792,
	 65536,
	 128000,
	 1e6,
	 1e-5f,
	 true,
	 0,
	 32,
	 4,
	 .taps = 3,
	 .attention = LFM2_8B_ATTENTION,
	 .dense = 2,
	 .dense_ffn = 7168},
	{"Qwen3.5-9B", QWEN35, 32, 4096, 16, 4, 256, 12288, 248320, 262144, 1e7,
	 1e-6f, false, .taps = 4, .attention = 0x88888888, .delta_k = 16,
	 .delta_v = 32, .delta = 128},
	{"Gemma-3-1B", GEMMA3, 26, 1152, 4, 1, 256, 6912, 262144, 32768, 1e6,
	 1e-6f, true, .window = 512},
	{"Gemma-3-4B", GEMMA3, 34, 2560, 8, 4, 256, 10240, 262208, 131072, 1e6,
	 1e-6f, true, .window = 1024},
	{"Phi-4-mini", PHI3, 32, 3072, 24, 8, 128, 8192, 200064, 131072, 1e4,
	 1e-5f, true, .rotary = 96},
	{"GLM-4-9B", GLM, 40, 4096, 32, 2, 128, 13696, 151552, 131072, 5e6,
	 1.5625e-7f, false, .rotary = 64},
	{"tiny-llama", LLAMA, 2, 64, 4, 2, 16, 128, 512, 512, 1e4, 1e-5f, true,
	 0},
	{"tiny-qwen2", QWEN2, 2, 64, 4, 2, 16, 128, 512, 512, 1e4, 1e-6f, false,
	 0},
	{"tiny-qwen3", QWEN3, 2, 64, 4, 2, 32, 128, 512, 512, 1e4, 1e-6f, true,
	 0},
	{"tiny-qwen3-moe", QWEN3, 2, 64, 4, 2, 32, 64, 512, 512, 1e4, 1e-6f,
	 true, 0, 8, 2},
	{"tiny-gpt-oss", GPT_OSS, 2, 64, 4, 2, 16, 64, 512, 512, 1e4, 1e-5f,
	 false, 0, 4, 2},
	{"tiny-lfm2", LFM2, 4, 64, 4, 2, 16, 128, 512, 512, 1e4, 1e-5f, true,
	 .taps = 3, .attention = 0xa},
	{"tiny-lfm2-moe",
	 LFM2_MOE,
	 4,
	 64,
	 4,
	 2,
	 16,
	 64,
	 512,
	 512,
	 1e4,
	 1e-5f,
	 true,
	 0,
	 8,
	 2,
	 .taps = 3,
	 .attention = 0xa,
	 .dense = 1,
	 .dense_ffn = 128},
	{"tiny-qwen3.5", QWEN35, 4, 64, 2, 1, 32, 128, 512, 512, 1e4, 1e-6f,
	 false, .taps = 4, .attention = 0x8, .delta_k = 2, .delta_v = 4,
	 .delta = 16},
	{"tiny-gemma3", GEMMA3, 7, 64, 4, 2, 16, 128, 512, 512, 1e6, 1e-6f,
	 true, .window = 8},
	{"tiny-phi3", PHI3, 2, 64, 4, 2, 32, 128, 512, 512, 1e4, 1e-5f, true,
	 .rotary = 24},
	{"tiny-glm", GLM, 2, 64, 4, 2, 32, 128, 512, 512, 1e4, 1e-7f, false,
	 .rotary = 16},
};
#define N_ARCHS (sizeof(archs) / sizeof(archs[0]))
#define MAX_LAYERS 1024

struct synth {
	struct genai_genconf conf;
	struct genai_form form;
	uint64_t seed;
	float factors[512];
	uint8_t flags[MAX_LAYERS]; // of layers
};

// A counter through a mixer: any place of the stream costs the same.
static uint64_t mix(uint64_t x)
{
	x += 0x9e3779b97f4a7c15u;
	x = (x ^ x >> 30) * 0xbf58476d1ce4e5b9u;
	x = (x ^ x >> 27) * 0x94d049bb133111ebu;
	return x ^ x >> 31;
}

static uint64_t stream(const struct synth *s, uint32_t site, uint32_t layer,
		       uint64_t row)
{
	return mix(mix(mix(s->seed) ^ ((uint64_t)site << 32 | layer)) ^ row);
}

// Below 1, from the top bits.
static float unit(uint64_t x)
{
	return (float)(x >> 40) * 0x1p-24f;
}

static uint64_t cols_of(const struct synth *s, uint32_t site)
{
	if (site == GENAI_SITE_DELTA_OUT)
		return (uint64_t)s->conf.delta_v_heads * s->conf.delta_size;
	if (site == GENAI_SITE_O)
		return (uint64_t)s->conf.heads * s->conf.head_size;
	if (site == GENAI_SITE_DOWN && s->conf.dense_layers)
		return s->conf.dense_ffn;
	return site == GENAI_SITE_DOWN || site == GENAI_SITE_EXP_DOWN
		       ? s->conf.ffn
		       : s->conf.hidden;
}

static void form(void *self, uint32_t site, uint32_t layer,
		 struct genai_form *out_form)
{
	const struct synth *s = self;

	(void)site;
	(void)layer;
	*out_form = s->form;
}

static uint64_t length_of(const struct genai_genconf *c, uint32_t site)
{
	switch (site) {
	case GENAI_SITE_NORM_Q:
	case GENAI_SITE_NORM_K:
		return c->head_size;
	case GENAI_SITE_BIAS_Q:
		return (uint64_t)c->head_size * c->heads;
	case GENAI_SITE_BIAS_K:
	case GENAI_SITE_BIAS_V:
		return (uint64_t)c->head_size * c->kv_heads;
	case GENAI_SITE_CONV_TAPS:
		if (c->delta_size)
			return (2 * (uint64_t)c->delta_k_heads +
				c->delta_v_heads) *
			       c->delta_size * c->conv_taps;
		return (uint64_t)c->hidden * c->conv_taps;
	case GENAI_SITE_DELTA_BIAS:
	case GENAI_SITE_DELTA_DECAY:
		return c->delta_v_heads;
	case GENAI_SITE_DELTA_NORM:
		return c->delta_size;
	case GENAI_SITE_SINKS:
		return c->heads;
	case GENAI_SITE_BIAS_ROUTER:
	case GENAI_SITE_BIAS_CHOICE:
		return c->experts;
	case GENAI_SITE_BIAS_GATE:
	case GENAI_SITE_BIAS_UP:
		return (uint64_t)c->experts * c->ffn;
	case GENAI_SITE_BIAS_DOWN:
		return (uint64_t)c->experts * c->hidden;
	default:
		return c->hidden;
	}
}

static int32_t vector(void *self, uint32_t site, uint32_t layer,
		      float *out_values, struct genai_error *err)
{
	const struct synth *s = self;
	float centre = site == GENAI_SITE_DELTA_DECAY ? -1.0f
		       : site < GENAI_SITE_BIAS_Q ||
				       site == GENAI_SITE_NORM_ATTN ||
				       site == GENAI_SITE_NORM_MLP ||
				       site == GENAI_SITE_DELTA_NORM
			       ? 1.0f
			       : 0.0f;
	float spread = site == GENAI_SITE_CONV_TAPS ? 2.0f : 0.2f;
	uint64_t from = stream(s, site, layer, 0);
	uint64_t n = length_of(&s->conf, site);

	(void)err;
	for (uint64_t i = 0; i < n; i++)
		out_values[i] = centre + spread * (unit(mix(from + i)) - 0.5f);
	return GENAI_OK;
}

// Random codes whose mean is the zero point: the lowest code, which has no
// opposite, becomes the zero point itself.
static uint64_t codes(uint64_t x, uint32_t bits)
{
	if (bits == 4) {
		uint64_t any = x | x >> 1 | x >> 2 | x >> 3;

		return x | (~any & 0x1111111111111111u) << 3;
	}
	// Bit 7 of a byte's sum with 0x7f is set unless its low bits are all 0.
	return x | (~((x & 0x7f7f7f7f7f7f7f7fu) + 0x7f7f7f7f7f7f7f7fu) & ~x &
		    0x8080808080808080u);
}

static int32_t blocks(void *self, uint32_t site, uint32_t layer, uint64_t row,
		      uint64_t n, uint8_t *out_codes, float *out_scales,
		      float *out_zeros, float *out_terms,
		      struct genai_error *err)
{
	const struct synth *s = self;
	uint64_t cols = cols_of(s, site), nb = cols / s->form.block;
	uint64_t words = cols * s->form.bits / 64;
	float deviation = s->form.bits == 4 ? 4.1833f : 73.612f;
	float scale = 1 / (deviation * sqrtf((float)cols));

	(void)out_zeros;
	(void)out_terms;
	(void)err;
	for (uint64_t r = row; r < row + n; r++) {
		uint64_t from = stream(s, site, layer, r);

		for (uint64_t i = 0; i < words; i++) {
			uint64_t x = codes(mix(from + i), s->form.bits);

			memcpy(out_codes + 8 * i, &x, 8);
		}
		out_codes += 8 * words;
		from = mix(~from);
		for (uint64_t i = 0; i < nb; i++) {
			uint64_t x = mix(from + i);
			float v = scale * (0.75f + 0.5f * unit(x));

			*out_scales++ = x & 1 ? -v : v;
		}
	}
	return GENAI_OK;
}

// The 256 printable stand-ins for bytes of byte-level vocabularies, as UTF-8.
static void byte_token(unsigned b, char out[3])
{
	bool own = (b > 32 && b < 127) || (b > 160 && b != 173);
	unsigned cp = b;

	if (!own) // the others get 256, 257, ... in order
		cp = 256 + (b <= 32 ? b : b <= 160 ? 33 + b - 127 : 67);
	if (cp < 128) {
		out[0] = (char)cp;
		out[1] = 0;
		return;
	}
	out[0] = (char)(0xc0 | cp >> 6);
	out[1] = (char)(0x80 | (cp & 63));
	out[2] = 0;
}

static const char *const specials[] = {"<|endoftext|>", "<|im_start|>",
				       "<|im_end|>"};

static void put_added(const struct synth *s, FILE *f)
{
	for (uint32_t i = 0; i < 3; i++)
		fprintf(f,
			"%s{\"id\":%u,\"content\":\"%s\",\"single_word\":"
			"false,\"lstrip\":false,\"rstrip\":false,"
			"\"normalized\":false,\"special\":true}",
			i ? ",\n" : "", s->conf.vocab - 3 + i, specials[i]);
}

// Bytes, then words that no text leads to: they make generated ids readable.
static void put_vocab(const struct synth *s, FILE *f)
{
	char t[3];

	for (uint32_t i = 0; i < 256; i++) {
		byte_token(i, t);
		fprintf(f, "%s\"%s%s\":%u", i ? "," : "",
			t[0] == '"' || t[0] == '\\' ? "\\" : "", t, i);
	}
	for (uint32_t i = 256; i < s->conf.vocab - 3; i++) {
		uint32_t w = i - 256;

		fprintf(f, ",\"\u0120%c%c%c%c\":%u", 'a' + w / 17576 % 26,
			'a' + w / 676 % 26, 'a' + w / 26 % 26, 'a' + w % 26, i);
	}
}

static int32_t close_file(FILE *f, const char *path, struct genai_error *err)
{
	bool ok = !ferror(f);

	if (fclose(f))
		ok = false;
	return ok ? GENAI_OK
		  : genai_fail(err, GENAI_E_IO, "%s: cannot write: %s", path,
			       strerror(errno));
}

static int32_t open_file(const char *dir, const char *name, char *path,
			 size_t cap, FILE **out_f, struct genai_error *err)
{
	snprintf(path, cap, "%s/%s", dir, name);
	*out_f = fopen(path, "wb");
	return *out_f ? GENAI_OK
		      : genai_fail(err, GENAI_E_IO, "%s: cannot create: %s",
				   path, strerror(errno));
}

static int32_t put_text(const char *dir, const char *name, const char *text,
			struct genai_error *err)
{
	char path[4096];
	FILE *f = NULL;
	int32_t rc = open_file(dir, name, path, sizeof(path), &f, err);

	if (rc)
		return rc;
	fputs(text, f);
	return close_file(f, path, err);
}

static int32_t files(void *self, const char *dir, struct genai_error *err)
{
	static const char byte_level[] =
		"{\"type\":\"ByteLevel\",\"add_prefix_space\":false,"
		"\"trim_offsets\":true,\"use_regex\":false}";
	const struct synth *s = self;
	char path[4096];
	FILE *f = NULL;
	int32_t rc =
		open_file(dir, "tokenizer.json", path, sizeof(path), &f, err);

	if (rc)
		return rc;
	fputs("{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\n"
	      "\"added_tokens\":[",
	      f);
	put_added(s, f);
	fprintf(f,
		"],\n\"normalizer\":null,\n\"pre_tokenizer\":%s,\n"
		"\"post_processor\":null,\n\"decoder\":%s,\n\"model\":{"
		"\"type\":\"BPE\",\"dropout\":null,\"unk_token\":null,"
		"\"continuing_subword_prefix\":null,\"end_of_word_suffix\":"
		"null,\"fuse_unk\":false,\"byte_fallback\":false,"
		"\"ignore_merges\":false,\"vocab\":{",
		byte_level, byte_level);
	put_vocab(s, f);
	fputs("},\n\"merges\":[]}}\n", f);
	rc = close_file(f, path, err);
	if (!rc)
		rc = put_text(dir, "tokenizer_config.json",
			      "{\n  \"tokenizer_class\": "
			      "\"PreTrainedTokenizerFast\",\n"
			      "  \"bos_token\": \"<|endoftext|>\",\n"
			      "  \"eos_token\": \"<|im_end|>\",\n"
			      "  \"clean_up_tokenization_spaces\": false\n}\n",
			      err);
	if (!rc)
		rc = put_text(
			dir, "chat_template.jinja",
			"{% for message in messages %}<|im_start|>"
			"{{ message.role }}\n{{ message.content }}<|im_end|>\n"
			"{% endfor %}{% if add_generation_prompt %}"
			"<|im_start|>assistant\n{% endif %}",
			err);
	return rc;
}

// Llama 3 divides slow rotations by the factor, keeps fast ones and blends
// between: slow and fast are told by the wave's length against 8192 positions.
static void llama3_factors(struct synth *s, double factor)
{
	uint32_t half = s->conf.rotary / 2;

	for (uint32_t i = 0; i < half; i++) {
		double rate = pow(s->conf.theta, -(double)i / half);
		double turns = 8192 * rate / (2 * 3.14159265358979323846);
		double keep = turns < 1 ? 0 : turns > 4 ? 1 : (turns - 1) / 3;

		s->factors[i] = (float)(1 / ((1 - keep) / factor + keep));
	}
	s->conf.rope_factors = s->factors;
}

// What GPT-OSS has beside its experts.
static void oss(struct synth *s)
{
	struct genai_genconf *c = &s->conf;

	c->qkv_bias = c->o_bias = c->router_bias = c->expert_bias = true;
	c->sinks = true;
	c->gate_alpha = 1.702f;
	c->gate_beta = 1;
	c->gate_limit = 7;
	c->yarn_factor = 32;
	c->yarn_context = 4096;
	c->window = 128;
	for (uint32_t i = 0; i < sizeof(s->flags); i += 2)
		s->flags[i] = GENAI_LAYER_LOCAL;
	c->layer_flags = s->flags;
}

// Attention beside a delta network has gates, and turns a quarter of its
// channels, by three positions.
static void delta(struct genai_genconf *c, const struct arch *a)
{
	c->delta_k_heads = a->delta_k;
	c->delta_v_heads = a->delta_v;
	c->delta_size = a->delta;
	c->gated = true;
	c->rotary = a->head_size / 4;
	for (uint32_t i = 0; i < c->rotary / 2; i++)
		c->mrope[i % 3]++;
}

// What Gemma 3 has: five layers of six see the window and turn by a rate of
// their own; the others' positions are divided.
static void gemma(struct synth *s, const struct arch *a)
{
	struct genai_genconf *c = &s->conf;

	c->embed_scale = sqrtf((float)c->hidden);
	c->gelu = c->norm_out = c->qk_norm = true;
	c->rope_scale = c->layers > 26 ? 8 : 1;
	c->theta_local = 10000;
	c->window = a->window;
	for (uint32_t i = 0; i < MAX_LAYERS; i++)
		s->flags[i] = i % 6 == 5 ? 0 : GENAI_LAYER_LOCAL;
	c->layer_flags = s->flags;
}

static void configure(struct synth *s, const struct arch *a,
		      const struct genai_synth_options *o)
{
	struct genai_genconf *c = &s->conf;

	c->type = a->type;
	c->layers = o->layers ? o->layers : a->layers;
	c->hidden = a->hidden;
	c->heads = a->heads;
	c->kv_heads = a->kv_heads;
	c->head_size = a->head_size;
	c->rotary = a->rotary ? a->rotary : a->head_size;
	c->ffn = a->ffn;
	c->vocab = a->vocab;
	c->context = o->context ? o->context : a->context;
	c->theta = a->theta;
	c->rope_scale = 1;
	c->epsilon = a->epsilon;
	c->tied = a->tied;
	c->qkv_bias = !strcmp(a->type, QWEN2) || !strcmp(a->type, GLM);
	c->rope_interleaved = !strcmp(a->type, GLM);
	c->qk_norm = !strcmp(a->type, QWEN3) || a->taps;
	c->conv_taps = a->taps;
	for (uint32_t i = 0; a->taps && i < MAX_LAYERS; i++)
		if (i >= 32 || !(a->attention >> i & 1))
			s->flags[i] =
				a->delta ? GENAI_LAYER_DELTA : GENAI_LAYER_CONV;
	if (a->delta)
		delta(c, a);
	if (a->taps)
		c->layer_flags = s->flags;
	c->io_dtype = o->io_dtype ? o->io_dtype : GENAI_DT_F16;
	c->cuda = c->io_dtype == GENAI_DT_F16;
	c->accuracy_level = c->cuda ? 0 : 1;
	c->bos = a->vocab - 3;
	c->eos[0] = c->pad = a->vocab - 1;
	c->n_eos = 1;
	s->seed = o->seed;
	s->form.bits = o->bits ? o->bits : 4;
	s->form.block = o->block ? o->block : 32;
	if (a->rope_factor)
		llama3_factors(s, a->rope_factor);
	c->experts = a->experts;
	c->experts_used = a->used;
	c->dense_layers = a->dense;
	c->dense_ffn = a->dense_ffn;
	c->sigmoid = !strcmp(a->type, LFM2_MOE);
	if (!strcmp(a->type, GPT_OSS))
		oss(s);
	if (!strcmp(a->type, GEMMA3))
		gemma(s, a);
}

static int32_t check(const struct synth *s, const char *arch,
		     struct genai_error *err)
{
	const struct genai_genconf *c = &s->conf;
	uint32_t block = s->form.block;
	uint64_t heads = (uint64_t)c->heads * c->head_size;

	if ((s->form.bits != 4 && s->form.bits != 8) || block < 16 ||
	    block > 128 || block & (block - 1) || c->layers > MAX_LAYERS ||
	    c->context > 1u << 21 ||
	    (c->io_dtype != GENAI_DT_F16 && c->io_dtype != GENAI_DT_F32))
		return genai_fail(err, GENAI_E_INVAL,
				  "synth %s: %u bits, blocks of %u, %u layers, "
				  "context %u: out of range",
				  arch, s->form.bits, block, c->layers,
				  c->context);
	if (c->hidden % block || c->ffn % block || heads % block ||
	    c->dense_ffn % block)
		return genai_fail(err, GENAI_E_INVAL,
				  "synth %s: blocks of %u do not divide rows "
				  "of %u, %u and %u",
				  arch, block, c->hidden, c->ffn,
				  (uint32_t)heads);
	return GENAI_OK;
}

// Values of the matrices of a layer in front of its MLP.
static uint64_t mixer(const struct arch *a, uint32_t layer)
{
	uint64_t q = (uint64_t)a->heads * a->head_size;
	uint64_t kv = (uint64_t)a->kv_heads * a->head_size;
	uint64_t v = (uint64_t)a->delta_v * a->delta;

	if (!a->taps || a->attention >> layer & 1)
		return a->hidden * ((a->delta ? 3 : 2) * q + 2 * kv);
	if (!a->delta)
		return 4 * (uint64_t)a->hidden * a->hidden;
	return a->hidden *
	       (2 * (uint64_t)a->delta_k * a->delta + 3 * v + 2 * a->delta_v);
}

bool genai_synth_list(uint32_t index, struct genai_synth_info *out_info)
{
	const struct arch *a;
	uint64_t values = 0;

	if (index >= N_ARCHS)
		return false;
	a = &archs[index];
	for (uint32_t i = 0; i < a->layers; i++)
		values += mixer(a, i);
	values += (a->layers - a->dense) *
			  (3ull * a->hidden * a->ffn *
				   (a->experts ? a->experts : 1) +
			   (uint64_t)a->hidden * a->experts) +
		  3ull * a->dense * a->hidden * a->dense_ffn +
		  (a->tied ? 1ull : 2ull) * a->hidden * a->vocab;
	*out_info = (struct genai_synth_info){
		a->name,     a->layers,	   a->hidden,	   a->heads,
		a->kv_heads, a->head_size, a->ffn,	   a->vocab,
		a->context,  a->tied,	   values * 9 / 16};
	return true;
}

int32_t genai_synth(const char *arch, const char *out_dir,
		    const struct genai_synth_options *options,
		    struct genai_error *err)
{
	static const struct genai_synth_options none;
	const struct genai_synth_options *o = options ? options : &none;
	struct genai_gen_options gen = {.overwrite = o->overwrite,
					.progress = o->progress,
					.progress_ctx = o->progress_ctx};
	struct synth s = {0};
	struct genai_source source = {.self = &s,
				      .form = form,
				      .vector = vector,
				      .blocks = blocks,
				      .files = files};
	int32_t rc;

	for (size_t i = 0; i < N_ARCHS; i++) {
		if (strcasecmp(arch, archs[i].name))
			continue;
		configure(&s, &archs[i], o);
		rc = check(&s, arch, err);
		return rc ? rc
			  : genai_modelgen_write(&s.conf, &source, out_dir,
						 &gen, err);
	}
	return genai_fail(err, GENAI_E_NOTFOUND,
			  "synth: no architecture '%s' (genai synth --list)",
			  arch);
}
