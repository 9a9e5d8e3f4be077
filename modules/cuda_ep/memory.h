/* memory.h - the list of blocks, as memory.c and ranges.c share it.
 * All with cep.lock held. */
#ifndef CEP_MEMORY_H
#define CEP_MEMORY_H

#include "modules/cuda_ep/cep.h"

/* A block and room for it in the list, so that adding it cannot fail. */
struct cep_block *cep_block_new(struct cep *self, struct genai_error *err);
void cep_block_add(struct cep *self, struct cep_block *b);
void cep_block_drop(struct cep *self, struct cep_block *b);
/* The block that starts at addr, of one of the kinds (bit mask). */
struct cep_block *cep_block_at(struct cep *self, uint64_t addr, uint32_t kinds,
			       const char *what, struct genai_error *err);
int32_t cep_not_recording(struct cep *self, const char *what,
			  struct genai_error *err);
/* May memory of the block's range go? */
int32_t cep_may_release(struct cep *self, struct cep_block *b,
			struct genai_range range,
			const struct genai_ticket *ticket,
			struct genai_error *err);
void cep_unmap_granules(struct cep *self, struct cep_block *b, uint64_t first,
			uint64_t n);

#endif
