/* hash.h - SHA-1 and SHA-256: what a hub says of its files' content. */
#ifndef GENAI_TOOLS_PULL_HASH_H
#define GENAI_TOOLS_PULL_HASH_H

#include <stddef.h>
#include <stdint.h>

#define HASH_HEX 65 /* the longer one as text, and its end */

struct hash {
	uint32_t state[8];
	uint64_t bytes;
	uint8_t block[64];
	int wide; /* SHA-256 */
};

void hash_begin(struct hash *h, int wide);
void hash_add(struct hash *h, const void *data, size_t n);
/* As small letters and digits. */
void hash_end(struct hash *h, char out[HASH_HEX]);

#endif
