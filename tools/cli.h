/* cli.h - what the commands of genai share. */
#ifndef GENAI_TOOLS_CLI_H
#define GENAI_TOOLS_CLI_H

#include <getopt.h>
#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include "core/error.h"
#include "core/model/model.h"
#include "core/text/sampler.h"
#include "core/text/template.h"
#include "core/text/tokenizer.h"

#define EXIT_REQUEST 1	   /* the request failed */
#define EXIT_USAGE 2	   /* wrong usage or configuration */
#define EXIT_INTERRUPT 130 /* interrupted */

#define MAX_SETS 256

struct cli {
	const char *config_path;
	const char *sets[MAX_SETS];
	uint32_t n_sets;
	bool quiet, verbose, no_progress;
	const char *command;
	bool config_failed; /* the runtime did not come up */
	struct genai_error err;
};

/* A command: argv[0] is its name; returns the exit status. */
struct command {
	const char *name;
	int (*run)(struct cli *c, int argc, char **argv);
	const char *args, *summary, *help;
};
extern const struct command commands[];

int cmd_generate(struct cli *c, int argc, char **argv);
int cmd_chat(struct cli *c, int argc, char **argv);
int cmd_logits(struct cli *c, int argc, char **argv);
int cmd_score(struct cli *c, int argc, char **argv);
int cmd_tokenize(struct cli *c, int argc, char **argv);
int cmd_detokenize(struct cli *c, int argc, char **argv);
int cmd_template(struct cli *c, int argc, char **argv);
int cmd_run(struct cli *c, int argc, char **argv);
int cmd_inspect(struct cli *c, int argc, char **argv);
int cmd_bench(struct cli *c, int argc, char **argv);
int cmd_import(struct cli *c, int argc, char **argv);
int cmd_synth(struct cli *c, int argc, char **argv);
int cmd_modules(struct cli *c, int argc, char **argv);
int cmd_config(struct cli *c, int argc, char **argv);

/* ---- messages ---- */

/* "genai: error: TEXT", from c->err or given; returns the exit status. */
int cli_fail(struct cli *c);
int cli_usage(struct cli *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void cli_log(void *ctx, int32_t level, const char *text);
double cli_now(void);

/* ---- options ---- */

/* Parse a number of an option; on failure says so and returns false. */
bool cli_int(struct cli *c, const char *option, const char *text, int64_t lo,
	     int64_t hi, int64_t *out);
bool cli_num(struct cli *c, const char *option, const char *text, double lo,
	     double hi, double *out);
/* "1,2,3", or "@FILE" with ids between blanks or commas, or a JSON array.
 * malloc'ed. */
bool cli_ids(struct cli *c, const char *text, int64_t **out, size_t *out_n);
/* Bytes of a text; more is an error, so that no file is endless. */
#define CLI_MAX_TEXT (256u << 20)
/* All of a file ("-": stdin), malloc'ed and terminated. */
bool cli_slurp(struct cli *c, const char *path, char **out, size_t *out_n);
/* One line of stdin without its end: 1, 0 at the end, or an error.  *line is
 * grown with realloc. */
int32_t cli_line(struct cli *c, char **line, size_t *cap, size_t *out_n);

/* Sampling flags, the same for generate and chat. */
struct cli_sampling {
	bool greedy, has_temperature, has_top_k, has_top_p, has_min_p, has_rep,
		has_pres, has_freq, has_seed;
	double temperature, top_p, min_p, rep, pres, freq;
	int64_t top_k;
	uint64_t seed;
};
#define CLI_OPT_SAMPLING 1000 /* option values from here on are these */
#define CLI_SAMPLING_OPTIONS                                                   \
	{"temperature", required_argument, NULL, 1000},                        \
		{"top-k", required_argument, NULL, 1001},                      \
		{"top-p", required_argument, NULL, 1002},                      \
		{"min-p", required_argument, NULL, 1003},                      \
		{"repetition-penalty", required_argument, NULL, 1004},         \
		{"presence-penalty", required_argument, NULL, 1005},           \
		{"frequency-penalty", required_argument, NULL, 1006},          \
		{"seed", required_argument, NULL, 1007},                       \
		{"greedy", no_argument, NULL, 1008}
bool cli_sampling_option(struct cli *c, struct cli_sampling *s, int opt,
			 const char *arg);
/* The model's defaults, overridden by flags. */
int32_t cli_sampler(const struct cli_sampling *s,
		    const struct genai_model_info *info, bool ignore_eos,
		    struct genai_sampler **out, struct genai_error *err);

/* ---- models ---- */

/* A model opened for a command: everything it may need. */
struct cli_model {
	struct genai_runtime *rt;
	struct genai_model *model;
	struct genai_session *session;
	struct genai_tokenizer *tok; /* may be NULL */
	struct genai_model_info info;
	char folder[4200];
	double start;
};
#define CLI_ALL_LOGITS 1u
#define CLI_TOKENIZER 2u
/* A .gguf path is imported to the cache folder first.  On failure c->err is
 * filled. */
int32_t cli_open(struct cli *c, const char *path, uint32_t flags,
		 struct cli_model *out);
void cli_close(struct cli_model *m);
/* The folder of a model given as a folder, a .onnx or a .gguf file. */
int32_t cli_folder(struct cli *c, const char *path, char *out, size_t cap);
int32_t cli_tokenizer(struct cli *c, const char *folder,
		      struct genai_tokenizer **out);
int32_t cli_runtime(struct cli *c, struct genai_runtime **out);

/* bos_token and eos_token of the folder's tokenizer files into vars. */
void cli_special_tokens(const char *folder, json_t *vars);
/* Render messages through the folder's template and encode the result; text
 * that spells a special token inside a message stays text. */
int32_t cli_render(struct cli *c, const char *folder,
		   const struct genai_tokenizer *tok, json_t *messages,
		   int64_t **out_ids, size_t *out_n);

/* ---- generation ---- */

struct cli_generate {
	struct cli_model *m;
	struct genai_sampler *sampler;
	const char *const *stops;
	uint32_t n_stops;
	bool ignore_eos, keep_special;
	int64_t max_new;
	/* text as it is decoded; whole characters */
	void (*emit)(void *ctx, const char *text, size_t n);
	void *ctx;
};
#define CLI_SIM_SAMPLES 256
struct cli_result {
	int64_t *ids; /* new ones, malloc'ed */
	size_t n_ids;
	char *text; /* malloc'ed */
	size_t n_text;
	const char *finish; /* eos, stop, length, interrupted */
	double prefill_s, decode_s, first_s; /* first_s: since cli_open */
	/* with a simulated clock: the time of steps, once recorded */
	double sim_s[CLI_SIM_SAMPLES];
	size_t n_sim;
};
/* Append the prompt's ids and generate.  sequence tells the sampler what came
 * before. */
int32_t cli_generate(struct cli *c, const struct cli_generate *g,
		     const int64_t *prompt, size_t n_prompt,
		     struct cli_result *out);
void cli_result_free(struct cli_result *r);

/* Set when SIGINT came; cli_catch_interrupts installs the handler. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupts(void);

/* Statistics as the "stats" object of CLI.md. */
json_t *cli_stats_json(const struct cli_model *m, const struct cli_result *r,
		       size_t n_prompt);
void cli_stats_line(const struct cli *c, const struct cli_model *m,
		    const struct cli_result *r, size_t n_prompt);
/* Print a JSON value as one line and drop it. */
void cli_print_json(json_t *j);
/* A number; null where it has no bound, which JSON cannot say. */
json_t *cli_real(double v);

#endif
