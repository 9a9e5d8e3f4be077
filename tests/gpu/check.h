/* check.h - counting, random data and comparing, for the kernel tests. */
#ifndef GENAI_TESTS_GPU_CHECK_H
#define GENAI_TESTS_GPU_CHECK_H

#include <stdbool.h>
#include "tests/gpu/rig.h"

struct check {
	struct rig *rig;
	uint32_t passed, failed, skipped;
	bool full;  /* large shapes too */
	bool brief; /* one case in eight */
	uint32_t seen;
	const char *only; /* part of a test's name, or NULL */
};

/* Uniform numbers from one sequence. */
void rnd_seed(uint64_t s);
uint32_t rnd_u32(void);
float rnd_f(float lo, float hi);
/* n elements of dtype in [lo, hi), rounded to it. */
void *rnd_tensor(uint32_t dtype, uint64_t n, float lo, float hi);
void *rnd_bytes(uint64_t n);

/* Half of the distance between neighbours, relative. */
double unit_of(uint32_t dtype);

/* One case: false when --only leaves it out. */
bool check_begin(struct check *c, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
void check_result(struct check *c, bool ok, const char *fmt, ...)
	__attribute__((format(printf, 3, 4)));
/* Outputs against want with |got - want| <= tol, element by element. */
void check_close(struct check *c, uint32_t dtype, const void *got,
		 const double *want, const double *tol, uint64_t n);
void check_same(struct check *c, const void *a, const void *b, uint64_t bytes);

/* The suites. */
void suite_matmul(struct check *c);
void suite_prompt(struct check *c);
void suite_attention(struct check *c);
void suite_general(struct check *c);
void suite_index(struct check *c);
void suite_runtime(struct check *c);

#endif
