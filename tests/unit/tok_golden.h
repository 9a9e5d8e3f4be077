/* tok_golden.h - running the recorded cases of tokenizer folders.
 * A folder holds tokenizer.json(.gz) and golden.json: texts with the ids, the
 * decoded texts and the stream that the reference implementation gave. */
#ifndef GENAI_TESTS_TOK_GOLDEN_H
#define GENAI_TESTS_TOK_GOLDEN_H

#include <stddef.h>
#include <genai/text.h>

struct golden_count {
	unsigned passed, failed, skipped;
};

/* Run all cases of a folder; print failures and a line for the folder. */
void golden_run(const char *dir, struct golden_count *count);

/* Run a file of small tokenizers, {"tokenizers": [{"name", "tokenizer",
 * "cases"}, ...]}; a "model" given as a string names a member of the file. */
void golden_run_mini(const char *path, struct golden_count *count);

/* Open the tokenizer whose tokenizer.json is text. */
int32_t golden_open_text(const char *text, size_t bytes,
			 struct genai_tokenizer **out_tok,
			 struct genai_error *err);

#endif
