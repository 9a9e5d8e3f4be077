/* cli.h - what the commands of genai share. */
#ifndef GENAI_TOOLS_CLI_H
#define GENAI_TOOLS_CLI_H

#include <jansson.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>

#include <genai/text.h>

#include "core/base/error.h"
#include "core/model/model.h"
#include "tools/constrain/constrain.h"

#define EXIT_REQUEST 1	   /* the request failed */
#define EXIT_USAGE 2	   /* wrong usage or configuration */
#define EXIT_INTERRUPT 130 /* interrupted */

#define MAX_SETS 256

struct cli {
	const char *config_path;
	const char *tokenizer; /* where it is; NULL: with the model */
	const char *sets[MAX_SETS];
	uint32_t n_sets;
	bool quiet, verbose, no_progress;
	const char *trace, *timeline; /* files to write; NULL: none */
	bool json; /* the command was asked for one JSON object */
	const char *command;
	bool config_failed; /* the runtime did not come up */
	bool on_line;	    /* a line of progress stands on the terminal */
	struct genai_error err;
	/* Of a runtime that a model will be opened in; may be NULL. */
	int32_t (*opened)(struct genai_runtime *rt, struct genai_error *err);
};

/* What the value of an option is, and where it goes. */
enum cli_kind {
	CLI_FLAG, /* none: *(bool *)to becomes true */
	CLI_TEXT, /* *(const char **)to */
	CLI_INT,  /* *(int64_t *)to, from lo to hi */
	CLI_NUM,  /* *(double *)to, from lo to hi */
	CLI_CALL, /* call: 0, or the exit status after it has said why */
};

/* A row of a command's options: what is parsed, shown by help, completed.  A
 * table ends with a row of zeros. */
struct cli_option {
	const char *name; /* without dashes; NULL: only a letter */
	char letter;	  /* 0: none */
	enum cli_kind kind;
	const char *arg;  /* the value in the help; NULL: takes none */
	const char *help; /* NULL: as the one before */
	void *to;
	double lo, hi;
	bool *given; /* becomes true; may be NULL */
	int (*call)(struct cli *c, const char *value);
};

/* A command: argv[0] is its name; returns the exit status. */
struct command {
	const char *name;
	int (*run)(struct cli *c, int argc, char **argv);
	const char *args, *summary;
	const struct cli_option *options;
	const char *more; /* after them in the help; may be NULL */
};
extern const struct command cmd_generate, cmd_chat, cmd_batch, cmd_logits,
	cmd_score, cmd_tokenize, cmd_detokenize, cmd_template, cmd_run,
	cmd_inspect, cmd_bench, cmd_plan, cmd_import, cmd_cache, cmd_doctor,
	cmd_pull, cmd_synth, cmd_modules, cmd_config, cmd_serve, cmd_embed;

/* manual.c: the page of a command; that of the program, commands ending with
 * NULL.  In roff, to stdout. */
void manual_command(const struct command *k);
void manual(const struct command *const *commands);

/* ---- messages ---- */

/* "genai: error: TEXT", from c->err or given; returns the exit status. */
int cli_fail(struct cli *c);
int cli_usage(struct cli *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
/* Take a line of progress off the terminal; what is printed begins a line. */
void cli_clear_line(struct cli *c);
void cli_log(void *ctx, int32_t level, const char *text);
double cli_now(void);

/* ---- options ---- */

/* Parse a command's options.  Returns the index of the first argument that is
 * none (they are moved to the end), or -(exit status) after saying what is
 * wrong. */
int cli_options(struct cli *c, const struct cli_option *table, int argc,
		char **argv);
/* The same for commands that take exactly what, one argument, also as -m. */
int cli_argument(struct cli *c, const struct cli_option *table, int argc,
		 char **argv, const char *what, const char **out);
/* --set of key to value, which may be NULL: 0, or the exit status. */
int cli_set(struct cli *c, const char *key, const char *value);
/* The lines of the help. */
void cli_options_help(const struct cli_option *table, FILE *f);
/* "--name" and "-l", one a line. */
void cli_options_words(const struct cli_option *table, FILE *f);

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
	int64_t top_k, seed;
};
/* Their rows, for an object of static life. */
#define CLI_SAMPLING(s)                                                        \
	{.name = "greedy",                                                     \
	 .help = "the most probable token each time",                          \
	 .to = &(s).greedy},                                                   \
		CLI_SAMPLING_(s, "temperature", CLI_NUM, "X", temperature, 0,  \
			      100, "0 to 100; 0 is greedy"),                   \
		CLI_SAMPLING_(s, "top-k", CLI_INT, "N", top_k, 0, INT32_MAX,   \
			      "among the N most probable; 0: all"),            \
		CLI_SAMPLING_(s, "top-p", CLI_NUM, "X", top_p, 0, 1,           \
			      "among the most probable that together have X"), \
		CLI_SAMPLING_(s, "min-p", CLI_NUM, "X", min_p, 0, 1,           \
			      "above X times the most probable one"),          \
		CLI_SAMPLING_(s, "repetition-penalty", CLI_NUM, "X", rep,      \
			      1e-6, 1e6,                                       \
			      "divide the logits of what was there"),          \
		CLI_SAMPLING_(s, "presence-penalty", CLI_NUM, "X", pres, -2,   \
			      2, "take X from them"),                          \
		CLI_SAMPLING_(s, "frequency-penalty", CLI_NUM, "X", freq, -2,  \
			      2, "as often as they were there"),               \
		CLI_SAMPLING_(s, "seed", CLI_INT, "N", seed, 0, INT64_MAX,     \
			      "same seed, same text")
#define CLI_SAMPLING_(s, n, k, a, field, l, h, text)                           \
	{                                                                      \
		.name = n, .kind = k, .arg = a, .help = text,                  \
		.to = &(s).field, .lo = l, .hi = h, .given = &(s).has_##field  \
	}
/* Warn of flags that contradict each other. */
void cli_sampling_check(const struct cli *c, const struct cli_sampling *s);
/* The model's defaults, overridden by flags; a random seed without one. */
void cli_sampling_read(const struct cli_sampling *s,
		       const struct genai_model_info *info,
		       struct genai_sampling *out);
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
	char text[4200]; /* the folder of tokenizer and template */
	double start;
};
#define CLI_ALL_LOGITS 1u
#define CLI_TOKENIZER 2u
/* The row of --tokenizer. */
#define CLI_TOKENIZER_AT                                                       \
	{                                                                      \
		.name = "tokenizer", .kind = CLI_CALL, .arg = "DIR",           \
		.help = "where tokenizer and template are (the model's)",      \
		.call = cli_tokenizer_at                                       \
	}
int cli_tokenizer_at(struct cli *c, const char *value);
/* The folder of the tokenizer and the template: where --tokenizer says, or the
 * model's. */
int32_t cli_text_folder(struct cli *c, const char *model, char *out,
			size_t cap);
/* A .gguf path is imported to the cache folder first.  On failure c->err is
 * filled. */
int32_t cli_open(struct cli *c, const char *path, uint32_t flags,
		 struct cli_model *out);
void cli_close(struct cli_model *m);
/* Is the path, or the file there, a GGUF file? */
bool cli_is_gguf(const char *path);
/* The folder of a model given as a folder, a .onnx or a .gguf file. */
int32_t cli_folder(struct cli *c, const char *path, char *out, size_t cap);
int32_t cli_tokenizer(struct cli *c, const char *folder,
		      struct genai_tokenizer **out);
struct genai_runtime_options cli_runtime_options(struct cli *c);
int32_t cli_runtime(struct cli *c, struct genai_runtime **out);
/* Every effective key of the configuration; the exit status. */
int cli_each_key(struct cli *c,
		 void (*each)(void *ctx, const char *section, const char *key,
			      const char *value, const char *origin));

/* A text's ids for an embedder: the folder's prompt in front, special tokens
 * around it; truncate cuts the text, not those, to max_tokens.  *out_ids is
 * malloc'ed. */
int32_t cli_embed_ids(const struct genai_tokenizer *tok,
		      const struct genai_embedder_info *info, const char *text,
		      size_t bytes, bool truncate, int64_t **out_ids,
		      size_t *out_n, struct genai_error *err);

bool cli_has_template(const char *folder);
/* Variables of a template as text; the caller frees. */
int32_t cli_template_vars(struct cli *c, const json_t *vars, char **out);
/* Append a message; where names the text in errors: GENAI_E_INVAL if it is not
 * UTF-8 or holds a zero byte. */
int32_t cli_message(struct cli *c, json_t *messages, const char *where,
		    const char *role, const char *text, size_t n);
/* Render messages through the folder's template and encode the result; text
 * that spells a special token inside a message stays text. */
int32_t cli_render(struct cli *c, const char *folder,
		   const struct genai_tokenizer *tok, json_t *messages,
		   int64_t **out_ids, size_t *out_n);

/* ---- progress ---- */

/* Is somebody watching? */
bool cli_watched(const struct cli *c);
/* Show a line in the place of the one before, at most five a second. */
void cli_progress(struct cli *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));

/* ---- generation ---- */

struct cli_generate {
	struct cli_model *m;
	struct genai_sampler *sampler;
	const char *const *stops;
	uint32_t n_stops;
	bool ignore_eos, keep_special;
	int64_t max_new;
	struct constraint *constraint; /* of the text; may be NULL */
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

/* SIGINTs that came since it was set to 0.  The handler ends the program with
 * the one after most, so that somebody who insists is not kept waiting. */
extern volatile sig_atomic_t cli_interrupted;
void cli_catch_interrupts(int most);

/* Statistics as the "stats" object of CLI.md. */
/* Of experts that are pinned one by one. */
json_t *cli_experts_json(const struct genai_stats *st);
json_t *cli_stats_json(const struct cli_model *m, const struct cli_result *r,
		       size_t n_prompt);
void cli_stats_line(const struct cli *c, const struct cli_model *m,
		    const struct cli_result *r, size_t n_prompt);
/* As text of an XML file: what is not ASCII becomes '?'. */
void cli_put_xml(FILE *f, const char *s);
/* Print a JSON value as one line and drop it. */
void cli_print_json(json_t *j);
/* A number; null where it has no bound, which JSON cannot say. */
json_t *cli_real(double v);

#endif
