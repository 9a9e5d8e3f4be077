/* mapping.h - read-only file mappings that survive a truncated file.
 * Owns: opening regular files, mapping them MAP_SHARED, and SIGBUS.
 *
 * A process that maps a file which another process truncates gets SIGBUS on the
 * next read.  The first mapping installs a handler that, for an address inside
 * one of our mappings, puts a zero page there and marks the mapping broken;
 * other SIGBUS go to the handler that was there before.  So no read crashes,
 * and genai_mapping_check() tells, before any result is believed. */
#ifndef GENAI_CORE_BASE_MAPPING_H
#define GENAI_CORE_BASE_MAPPING_H

#include <genai/types.h>

struct genai_mapping;

/* Map the open descriptor fd (not consumed; must be a regular file; an empty
 * file gives data NULL, bytes 0).  path is copied, for messages. */
int32_t genai_mapping_from_fd(int fd, const char *path,
			      struct genai_mapping **out_m,
			      struct genai_error *err);
/* Open path (never blocks on a fifo or device; follows links) and map it. */
int32_t genai_mapping_open(const char *path, struct genai_mapping **out_m,
			   struct genai_error *err);
void genai_mapping_close(struct genai_mapping *m);

const void *genai_mapping_data(const struct genai_mapping *m);
uint64_t genai_mapping_bytes(const struct genai_mapping *m);
const char *genai_mapping_path(const struct genai_mapping *m);
/* Drop the pages of all mapped files from the system's cache, as far as it lets
 * them go: what others map, too, what is locked or registered, and what a file
 * system keeps in memory stays.  What is read next comes from the disk.  For
 * measurements; any thread. */
void genai_mapping_forget_all(void);
/* The descriptor, never 0, of the mapped file where these bytes lie, and where in
 * it; good as long as its mapping.  0: they are not of one mapping. */
int genai_mapping_find(const void *data, uint64_t bytes, uint64_t *out_offset);
/* GENAI_E_IO "PATH: truncated while in use: was N bytes, is M" if the file is
 * shorter now or a read hit a missing page. */
int32_t genai_mapping_check(const struct genai_mapping *m,
			    struct genai_error *err);

#endif
