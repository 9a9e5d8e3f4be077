/* blocks.h - the pool of blocks that caches are made of, and what they hold.
 * Owns: who uses a block, in which order unused ones are given up, blocks found
 * by content.  Does not know: device memory, sequences.
 *
 * A block that is full has a serial number for its content: the serial of the
 * block before it (for the first, one that stands for the salt) and its tokens,
 * which are compared, not only hashed.  It keeps it while nobody uses it, until
 * it is taken.  Nobody writes a block that has a serial. */
#ifndef GENAI_CORE_ENGINE_BLOCKS_H
#define GENAI_CORE_ENGINE_BLOCKS_H

#include <stddef.h>
#include <stdint.h>

struct eng_blocks;

#define ENG_SALTS 256

struct eng_salts {
	char *v[ENG_SALTS]; /* NULL: none yet */
	uint64_t root[ENG_SALTS], used[ENG_SALTS];
	uint64_t n_roots, n_uses;
};

/* n blocks of size positions; NULL without memory. */
struct eng_blocks *eng_blocks_open(uint32_t n, uint32_t size);
void eng_blocks_close(struct eng_blocks *p);
/* That can be taken; of those, whose content is known. */
uint32_t eng_blocks_free(const struct eng_blocks *p);
uint32_t eng_blocks_cached(const struct eng_blocks *p);

/* One for writing, used once: the one not used for longest.  Returns its index,
 * or UINT32_MAX if all are used. */
uint32_t eng_blocks_take(struct eng_blocks *p);
/* One use less. */
void eng_blocks_drop(struct eng_blocks *p, uint32_t block);
/* The serial that the first block of a sequence follows: a number of its own
 * for every salt, which are compared, not only hashed.  The ENG_SALTS last used
 * are known; what was computed for another is not found again.  NULL is "".
 * Threads: one at a time. */
uint64_t eng_salts_root(struct eng_salts *t, const char *salt);
void eng_salts_close(struct eng_salts *t);
/* The blocks that hold the beginning of ids, at most n of them, each used once
 * more; returns how many, and the serial of the last (or root). */
uint32_t eng_blocks_find(struct eng_blocks *p, uint64_t root,
			 const int64_t *ids, uint32_t n, uint32_t *out_blocks,
			 uint64_t *out_serial);
/* The block is full: size ids behind those of before.  Returns the serial of
 * its content (another block may have it, too). */
uint64_t eng_blocks_keep(struct eng_blocks *p, uint32_t block, uint64_t before,
			 const int64_t *ids);
/* No content is known any more. */
void eng_blocks_forget(struct eng_blocks *p);

#endif
