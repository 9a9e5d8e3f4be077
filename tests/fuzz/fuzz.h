/* fuzz.h - bent input for what reads requests: what the files of this folder
 * share.  An execution is a function of seed and number, so any of them can be
 * done again. */
#ifndef GENAI_TESTS_FUZZ_H
#define GENAI_TESTS_FUZZ_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* ---- mutate.c: inputs ---- */

struct fuzz_text {
	char *s;
	size_t n;
};

struct fuzz_corpus {
	struct fuzz_text *items, *words; /* words: of the items, put anywhere */
	size_t n_items, n_words;
};

/* A number below n, which is not 0. */
uint64_t fuzz_draw(uint64_t *seed, uint64_t n);
/* A file of the folder corpus, an input a line; escaped: \n, \r, \t, \\ and
 * \xHH are bytes.  Ends the program if there is none. */
void fuzz_corpus_read(const char *name, bool escaped, struct fuzz_corpus *out);
void fuzz_corpus_free(struct fuzz_corpus *c);
#define FUZZ_MOST 16384 /* bytes of an input */
/* One of them, bent; out has room for FUZZ_MOST bytes and a 0. */
size_t fuzz_bend(const struct fuzz_corpus *c, uint64_t *seed, char *out);

/* ---- what is fuzzed ---- */

struct fuzz_target {
	const char *name, *file; /* file: of the corpus */
	bool escaped;
	/* Returns why it cannot be, or NULL. */
	const char *(*open)(void);
	/* s[n] is 0.  Returns NULL, or what was wrong. */
	const char *(*run)(const char *s, size_t n, uint64_t *seed);
	void (*close)(void);
	uint32_t weight; /* so many of its executions cost as one of others */
};

extern const struct fuzz_target fuzz_http, fuzz_text, fuzz_chat, fuzz_response,
	fuzz_vectors, fuzz_schema, fuzz_regex, fuzz_grammar;

/* ---- server.c: a server without a device ---- */

struct serve;
/* One that reads requests; the same object each time. */
struct serve *fuzz_server(void);
/* It also listens, on a socket of that path. */
const char *fuzz_server_listen(const char **out_path);
void fuzz_server_close(void);

/* ---- engine.c: an engine that says what it likes ---- */

/* Events of all that was submitted are there at once.  The seed of what comes
 * next. */
void fuzz_engine_seed(uint64_t seed);
/* Requests that are not at their end. */
uint32_t fuzz_engine_live(void);

#endif
