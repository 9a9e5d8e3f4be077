/* beside.h - rows of 4-bit matrices multiplied by cores of the host.
 * Owns: the threads, what they are asked and what they answer.
 * Does not know: the driver, pagers.
 *
 * A plan has a box, a node of it that has rows left to the host a job in it.  A
 * kernel writes the activations where the job says and then rings the box's
 * bell; the threads, which look at the bells all the time, multiply and answer;
 * a kernel that waits for the answer takes the sums.  Nothing of that needs the
 * host's part of a step, so it is recorded and replayed like all else.
 *
 * Sums, as in kernels/beside.cu: activations are integers, 32 columns with one
 * power of two, so that a block of 32 is summed exactly.  Of 32 lanes, lane i
 * takes the blocks i, i + 32, ... of a row: the sum, less the zero point times
 * the integers' (fused, if it is a float), rounded, times scale times power,
 * added to the lane's, fused; then a tree over the lanes by halving
 * distances. */
#ifndef CEP_BESIDE_H
#define CEP_BESIDE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <genai/module.h>

#include "modules/cuda_ep/kernels/params.h"

/* What all rows of a matrix have in common. */
struct cep_form4 {
	uint32_t k;	    /* columns, a multiple of 32 */
	uint32_t shift;	    /* a block is 32 << shift columns */
	uint32_t row_bytes; /* of codes */
	uint32_t blocks;    /* scales of a row */
	uint32_t zp_kind;   /* CEP_ZP_* */
	uint32_t zp_row;    /* bytes of a row of packed zero points */
	bool bf16;	    /* scales, float zero points, activations */
};

struct cep_rows4 {
	const unsigned char *codes, *scales, *zeros;
};

enum cep_level { CEP_PLAIN, CEP_AVX2, CEP_AVX512, CEP_N_LEVELS };
/* The best that this machine has. */
enum cep_level cep_beside_level(void);

/* Rows first to first + n of m times the activations, to out[0] and on.  128
 * columns (16 words of codes) of these are CEP_BESIDE_DIGITS bytes of x: of
 * three digits of 8 bits each, the lowest first, 4 even columns of each word,
 * then the odd ones; 4 floats, the blocks' powers of two; 4 int32_t, what their
 * integers add up to; 32 bytes of nothing.  Behind k they are 0. */
void cep_multiply4(enum cep_level level, const struct cep_form4 *f,
		   const struct cep_rows4 *m, uint32_t first, uint32_t n,
		   const unsigned char *x, float *out);

/* ---- the threads ---- */

/* Rows that lie together, of one matrix or of two. */
struct cep_beside_part {
	struct cep_rows4 m[2];
	uint32_t row, n, first_chunk;
	uint32_t n_large; /* of its chunks, which come first */
};

struct cep_job {
	struct cep_form4 form;
	uint32_t n_parts, n_matrices, n_chunks;
	uint32_t large_rows, small_rows; /* of a chunk */
	uint32_t rows;			 /* of a matrix, all */
	const unsigned char *x;
	float *sums; /* [n_matrices][rows] */
	struct cep_beside_part parts[CEP_BESIDE_PARTS];
};

/* Words that the device writes, and reads: a line each. */
struct cep_bell {
	_Alignas(64) _Atomic uint64_t rung;	/* job << 32 | turn */
	_Alignas(64) _Atomic uint64_t answered; /* the same, done */
};

struct cep_box {
	struct cep_box *next;
	struct cep_bell *bell;
	struct cep_job **jobs;
	uint64_t seen;
};

struct cep_team;

/* Start threads, each on a core of its own among those that this process may
 * use, and not more than those: *out_n.  Errors: GENAI_E_NOMEM. */
int32_t cep_team_start(const struct genai_host *host, uint32_t threads,
		       struct cep_team **out_team, uint32_t *out_n,
		       struct genai_error *err);
void cep_team_stop(struct cep_team *team);
/* From now on, or until now, the box is looked at; after cep_team_leave nothing
 * of it is touched any more. */
void cep_team_join(struct cep_team *team, struct cep_box *box);
void cep_team_leave(struct cep_team *team, struct cep_box *box);
/* The parts of a job are complete. */
void cep_job_close(struct cep_job *job);
/* Bytes of weights that it reads. */
uint64_t cep_job_bytes(const struct cep_job *job);

#endif
