/* op_attention.h - what GroupQueryAttention (op_attention.c) and PagedAttention
 * (op_paged.c) share: the kernels and how a row's sum is cut. */
#ifndef CEP_OP_ATTENTION_H
#define CEP_OP_ATTENTION_H

#include "modules/cuda_ep/op.h"

/* A kernel for tiles of rows on tensor cores: the largest head; bytes of shared
 * memory of a block, of each of its warps, and of a block in a cluster besides.
 */
struct cep_flash {
	uint32_t size;
	bool wgmma;
	uint32_t bytes, warp_bytes, met_bytes;
	enum cep_kernel f16, bf16;
};

struct gqa_state {
	int64_t batch, seq, heads, kv_heads, size; /* size: of a head */
	int64_t rot;				   /* channels that turn */
	bool packed, windowed;
	struct exec_cache cache;
	/* the tensor core's kernel for this many tokens, or NULL */
	const struct cep_flash *flash;
	bool split; /* it is one that splits keys */
	/* query heads that a block does, blocks for those of a key head, blocks
	 * that share a row */
	int64_t group, parts, splits;
	int64_t q_at, new_at, part_at; /* in the workspace */
	/* PagedAttention: sequences, entries of each in the block table, the
	 * pool's blocks and the rows of one, tiles of a piece */
	int64_t seqs, per_seq, blocks, block, tiles;
	int64_t lens_at, tiles_at;
};
EXEC_STATE(gqa_state, cep_node)

/* One row or a few are split over this many blocks a row in all. */
#define SPLIT_BLOCKS 256
#define SPLIT_ROWS 16
#define SLIM_WARPS 4

static inline int64_t cep_least(int64_t a, int64_t b)
{
	return a < b ? a : b;
}

/* Shared memory of such a block. */
uint32_t cep_flash_bytes(const struct cep *self, const struct cep_flash *f,
			 uint32_t warps);
bool cep_flash_fits(const struct cep *self, const struct cep_flash *f,
		    uint32_t size, uint32_t warps);
/* The first kernel of the list that holds such a head; NULL: none. */
const struct cep_flash *cep_flash_find(const struct cep_node *n,
				       const struct cep_flash *f,
				       uint32_t size);
/* Shared memory of a block of kernels/split.cu beside its warps': a token's
 * heads; and where splits meet in a cluster, what others give it. */
#define SPLIT_BYTES(size) (18 * 2 * ((size) + 8))
#define SPLIT_MET(size) (21 * 4 * ((size) + 4))

/* What follows from heads and rows. */
void cep_gqa_per(struct cep_gqa *p);
/* group, parts and splits by the heads. */
void cep_gqa_groups(struct gqa_state *s);
/* The next 256-byte boundary of a workspace, and so many bytes from there. */
uint64_t cep_gqa_place(uint64_t *at, int64_t bytes);
/* Queries to scratch, keys and values to the cache. */
int32_t cep_gqa_first(struct cep_node *n, struct cep_run *r, struct cep_gqa *p);
/* Attention of so many rows by kernels that need no tensor core. */
int32_t cep_gqa_rows(struct cep_node *n, struct cep_run *r,
		     const struct cep_gqa *p, uint32_t rows);

#endif
