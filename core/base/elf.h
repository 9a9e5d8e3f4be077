/* elf.h - what can be told about a shared object without running it, and about
 * a loaded one without trusting it.
 * Owns: ELF headers.  Does not know: modules. */
#ifndef GENAI_CORE_BASE_ELF_H
#define GENAI_CORE_BASE_ELF_H

#include <link.h>
#include <stdbool.h>
#include <genai/types.h>

/* Is fd (bytes long) a whole shared object of this machine?  The dynamic linker
 * would be killed by SIGBUS in a truncated one, and a sanitizer runtime pulled
 * into a process without it ends the process.
 * Errors: GENAI_E_MODULE not a shared object, or truncated; GENAI_E_ABI of
 * another machine, or built with a sanitizer that this process lacks. */
int32_t genai_elf_check_file(int fd, uint64_t bytes, const char *path,
			     struct genai_error *err);

/* Do bytes at p lie in a readable segment of the loaded object? */
bool genai_elf_contains(const struct link_map *object, const void *p,
			uint64_t bytes);
/* Is s a string of at most max bytes in the loaded object? */
bool genai_elf_contains_string(const struct link_map *object, const char *s,
			       uint64_t max);

#endif
