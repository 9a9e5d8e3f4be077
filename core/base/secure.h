/* secure.h - opening files that decide what code runs.
 * In a privileged process (AT_SECURE: set-uid, capabilities) such a file must
 * belong to root and be writable by nobody else. */
#ifndef GENAI_CORE_BASE_SECURE_H
#define GENAI_CORE_BASE_SECURE_H

#include <stdbool.h>
#include <genai/types.h>

bool genai_is_privileged(void);
/* Open path for reading, a regular file only, and apply the rule.  The checks
 * are made on the descriptor.  Caller closes *out_fd.
 * Errors: GENAI_E_NOTFOUND no such file; GENAI_E_IO; code_policy for what is
 * there but must not be used. */
int32_t genai_secure_open(const char *path, int32_t code_policy, int *out_fd,
			  uint64_t *out_bytes, struct genai_error *err);

#endif
