/* conform.h - genai-conform: what its parts share.
 * main.c      options, the list of tests, running them with Check, the report
 * expect.c    conform.ini: what a module does not do, and knows it
 * setup.c     a runtime around the module under test
 * work.c      streams, copies, units of work, gates
 * suite_*.c   the tests, one table each
 * Each test runs in a process of its own; only that process ever brings a
 * module up. */
#ifndef GENAI_CONFORM_H
#define GENAI_CONFORM_H

#include <check.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "core/base/error.h"
#include "core/runtime.h"

/* Capabilities without which a test does not apply. */
#define CF_RECORD 1u
#define CF_RESERVE 2u
#define CF_IN_PLACE 4u
#define CF_UNITS 8u    /* units are functions: not NATIVE */
#define CF_STABLE 16u  /* of the pager */
#define CF_RECORDS 32u /* of the executor */
#define CF_ROWS_EXACT 64u
#define CF_NATIVE 128u
#define CF_SIGNAL 256u
#define CF_STAMPS 512u

struct cf_test {
	const char *id;	   /* "pager/order" */
	const char *gm;	   /* "GM-71" of docs/MODULES.md; "GM-1 GM-2" */
	const char *iface; /* GENAI_IFACE_*, or NULL: every module */
	uint32_t needs;
	void (*fn)(void);
};

/* A test of one interface of the module. */
struct cf_case {
	const struct cf_test *test;
	const char *iface;  /* its name, "" for every module */
	const char *reason; /* conform.ini's, or NULL */
	bool unsupported;   /* [unsupported], not [xfail] */
};

enum cf_state { CF_RAN, CF_SKIPPED };

/* What the process of a test tells its parent. */
struct cf_note {
	int32_t state;
	char text[240];
	char with[200]; /* the settings of the runtime that was open last */
};

struct cf_options {
	const char *module; /* file or name, as given */
	const char *iface;
	const char *config;
	const char *expect;
	const char *sets[64];
	uint32_t n_sets;
	const char *tests[64]; /* run only these */
	uint32_t n_tests;
	uint64_t seed;
	bool list, strict, require_device, torture, tap, brief, keep_open;
};

struct cf_suite {
	const struct cf_test *tests;
	uint32_t n;
};
extern const struct cf_suite *const cf_suites[]; /* NULL at the end */
extern const struct cf_suite cf_suite_handshake, cf_suite_memory,
	cf_suite_stream, cf_suite_graphs, cf_suite_record, cf_suite_barrier,
	cf_suite_pager, cf_suite_paging, cf_suite_pages, cf_suite_executor,
	cf_suite_ops, cf_suite_numbers, cf_suite_steps, cf_suite_minor,
	cf_suite_image,
	cf_suite_torture, cf_suite_many, cf_suite_life, cf_suite_failure,
	cf_suite_keys, cf_suite_guest, cf_suite_sessions, cf_suite_signal,
	cf_suite_layer, cf_suite_experts;

/* The run: constant once the tests begin. */
struct cf {
	struct cf_options o;
	char name[64];		  /* of the module */
	char path[4096];	  /* of its file, "" if found by name */
	const struct cf_case *at; /* the test that runs */
	struct cf_note *note;
	jmp_buf skip;
};
extern struct cf cf;

/* By its id; NULL if there is none. */
const struct cf_test *cf_find_test(const char *id);
/* conform.ini.  Errors: GENAI_E_CONFIG. */
int32_t cf_expect_read(const char *path, struct cf_case *cases, uint32_t n,
		       struct genai_error *err);

/* ---- setup.c ---- */

#define CF_WITH_PAGER 1u
#define CF_WITH_EXECUTOR 2u

/* A runtime with the module under test in its place and companions in the
 * others. */
struct cf_rt {
	struct genai_runtime *rt; /* as much of it as was asked for */
	struct genai_device *d;
	const struct genai_stream_ops *st; /* the core's tables */
	const struct genai_barrier_ops *ba;
	struct genai_stream_caps caps;
	struct genai_module *tested;
};

/* Open with further settings (NULL-terminated list, may be NULL).  Skips the
 * test if the device is missing or a needed capability is not claimed; fails it
 * on any other error. */
void cf_open(struct cf_rt *r, uint32_t with, const char *const *sets);
/* As cf_open, but returns an error of bringing it up.  before is called between
 * loading and starting. */
int32_t cf_try_open(struct cf_rt *r, uint32_t with, const char *const *sets,
		    void (*before)(struct genai_module *m),
		    struct genai_error *err);
/* Close; the test fails if anything was left behind. */
void cf_close(struct cf_rt *r);
/* Only load the module. */
int32_t cf_load(const char *const *sets, struct genai_config **out_config,
		struct genai_module **out_module, struct genai_error *err);
/* The query function of the module under test. */
genai_module_query_fn cf_query(void);
/* Error lines logged since the last call; the text of the last in cf_logged. */
uint32_t cf_log_errors(void);
extern char cf_logged[1024];
extern const struct genai_log cf_log;
void cf_skip(const char *fmt, ...) __attribute__((format(printf, 1, 2)))
__attribute__((noreturn));
/* Schedules that the companion or tested device knows, one after another; a
 * device without such a key gives one, "". */
uint32_t cf_n_schedules(void);
const char *const *cf_schedule(uint32_t i);

/* Open descriptors, threads and heap bytes of this process. */
struct cf_census {
	uint32_t fds, threads;
	uint64_t heap;
};
struct cf_census cf_count(void);

/* ---- work.c ---- */

/* The record that tests pass; CF_OK and CF_FAILS look at it. */
extern _Thread_local struct genai_error cf_err;
void cf_ok(int32_t rc, const char *call);
void cf_fails(int32_t rc, int32_t want, const char *call);
#define CF_CLEAR() (cf_err = (struct genai_error)GENAI_ERROR_INIT)
#define CF_OK(call) (CF_CLEAR(), cf_ok((call), #call))
/* It fails with this code (0: any) and says why. */
#define CF_FAILS(want, call) (CF_CLEAR(), cf_fails((call), (want), #call))

/* What Check would say of bytes and of conditions means nothing to somebody who
 * does not have this source. */
void cf_same(const void *got, const void *want, uint64_t bytes,
	     const char *what);
#undef ck_assert_mem_eq
#define ck_assert_mem_eq(got, want, bytes) cf_same((got), (want), (bytes), #got)

/* No allocation fails any more; was the n-th reached? */
bool cf_end_failing(struct genai_host_env *env, uint64_t n, bool sticky);

struct genai_mem cf_alloc(struct cf_rt *r, uint64_t bytes);
struct genai_mem cf_pinned(struct cf_rt *r, uint64_t bytes);
/* Does the device register host memory? */
bool cf_registers(struct cf_rt *r);
void cf_free(struct cf_rt *r, struct genai_mem *m); /* drains first */
struct genai_stream *cf_stream(struct cf_rt *r, const char *name);
void cf_destroy(struct cf_rt *r, struct genai_stream *s); /* drains first */
struct genai_ticket cf_drain(struct cf_rt *r);
struct genai_point cf_mark(struct cf_rt *r, struct genai_stream *s);
void cf_wait(struct cf_rt *r, struct genai_stream *s, struct genai_point p);
void cf_finish(struct cf_rt *r, struct genai_stream *s); /* host_read */
void cf_copy(struct cf_rt *r, struct genai_stream *s, uint64_t dst,
	     uint64_t src, uint64_t bytes, uint32_t kind);
/* Bytes to and from device memory, waiting. */
void cf_put(struct cf_rt *r, genai_addr dst, const void *src, uint64_t bytes);
void cf_get(struct cf_rt *r, void *dst, genai_addr src, uint64_t bytes);

/* Host functions as units of work. */
typedef int32_t (*cf_fn)(void *ctx, void *const *mem, struct genai_error *err);
void cf_call(struct cf_rt *r, struct genai_stream *s, const char *name,
	     cf_fn fn, void *ctx);

/* A unit that holds its stream until it is opened; gives up after a while, so
 * that a module that waits for it fails instead of hanging. */
struct cf_gate {
	atomic_int is_open, gave_up;
};
void cf_gate_close(struct cf_rt *r, struct genai_stream *s, struct cf_gate *g);
void cf_gate_open(struct cf_gate *g);
/* Fails the test if somebody waited for the closed gate. */
void cf_gate_check(const struct cf_gate *g, const char *what);

/* A state to begin with: n, or another one for every --seed. */
uint64_t cf_seed(uint64_t n);
uint64_t cf_random(uint64_t *state);
uint32_t cf_below(uint64_t *state, uint32_t n); /* 0 to n - 1 */
void cf_pattern(void *p, uint64_t bytes, uint64_t seed);

#endif
