/* check_tokenizer.h - the parts of check_tokenizer. */
#ifndef GENAI_TESTS_CHECK_TOKENIZER_H
#define GENAI_TESTS_CHECK_TOKENIZER_H

#include <check.h>

/* Files that must be refused, and how (check_tok_bad.c). */
TCase *bad_input_case(void);
/* Every allocation failing once (check_tok_faults.c). */
TCase *out_of_memory_case(void);

#endif
