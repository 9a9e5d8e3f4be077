/* device.h - what the parts of mutant_device share. */
#ifndef GENAI_TESTS_MUTANT_DEVICE_H
#define GENAI_TESTS_MUTANT_DEVICE_H

#include <genai/executor.h>
#include "tests/mutants/mutant.h"

int32_t mutant_fail(struct genai_error *err, int32_t code, const char *text);

/* ---- executor.c ---- */

extern struct genai_executor_ops mutant_executors[2]; /* eager, captured */
void mutant_wrap_executors(const struct genai_executor_ops *eager,
			   const struct genai_executor_ops *captured);

#endif
