/* fake_cuda.h - controls of the fake driver, beside the driver API itself.
 * docs/CUDA.md, "The fake driver", says what it checks. */
#ifndef CEP_TESTS_FAKE_CUDA_H
#define CEP_TESTS_FAKE_CUDA_H

#include <stdint.h>

/* Device memory that a context takes. */
#define FAKE_CONTEXT_BYTES (UINT64_C(8) << 20)
/* Seed of fake_seed: work is done when somebody needs it, and no sooner. */
#define FAKE_LATE UINT64_MAX

/* What fake_drop leaves out. */
enum fake_edge {
	FAKE_WAIT,   /* a wait of a stream for an event */
	FAKE_RECORD, /* recording of an event */
	FAKE_ANSWER, /* an event or stream that is not done is said to be */
	FAKE_EDGES
};

/* Back to a machine in order, as after loading.  What is alive stays. */
void fake_reset(void);

/* ---- failures ---- */

/* The n-th driver call from now on (1 = next) fails with code; 0: none.  Calls
 * that give something back are passed over: the next other call fails. */
void fake_fail(uint64_t n, int code);
/* The n-th call from now on and all after it; no memory: all that may need
 * some.  Anything else: the device is lost.  Nothing that is queued runs, what
 * is given back is taken, and the code returned all the same. */
void fake_fail_on(uint64_t n, int code);
/* The n-th call of this function fails (name as in cuda.h). */
#define FAKE_ALWAYS UINT64_MAX
void fake_fail_in(const char *name, uint64_t n, int code);
/* The call that was made to fail first, or NULL. */
const char *fake_failed(void);
/* The n-th copy, launch or replay from now on fails when it runs, and so does
 * every call from then on. */
void fake_break(uint64_t n, int code);
/* What drop n does to the host's order and the streams' (fake_drop(.., 0, ..):
 * nothing is dropped, edges are counted anew). */
void fake_drop(int edge, uint64_t n);
uint64_t fake_edges(int edge);
/* The dropped edge ordered nothing that was not ordered already. */
int fake_was_redundant(void);

/* ---- machines ---- */

/* Number of devices, their compute capability, the driver's version. */
void fake_devices(int count, int major, int minor);
void fake_version(int version);
/* Any image will do: code that this build does not have (0: back to normal). */
void fake_any_image(int on);
/* Device memory in all; default 1 GiB. */
void fake_total_bytes(uint64_t bytes);
/* Every copy takes so long. */
void fake_copy_ns(uint64_t ns);

/* ---- execution ---- */

/* Order of execution: 0 as early as legal, FAKE_LATE, else a seed. */
void fake_seed(uint64_t seed);
/* Kernels run (1, default) or are only counted (0). */
void fake_run_kernels(int on);

/* ---- what was seen ---- */

uint64_t fake_calls(void);
/* Calls of one function. */
uint64_t fake_count(const char *name);
/* A call is under way: what is allocated now is not the module's. */
int fake_inside(void);
/* The most device memory that was taken, contexts included. */
uint64_t fake_peak(void);
/* Pieces of memory, streams, events, graphs, modules alive. */
uint64_t fake_alive(void);
/* How often kernel NAME was launched (replays included). */
uint64_t fake_launches(const char *name);
/* Launches so far that may begin before the kernel in front ends. */
uint64_t fake_overlaps(void);
/* The image that was loaded last: 90 is sm_90, -90 the PTX of compute_90. */
int fake_image(void);
/* Accesses without an order so far, and the first one in words. */
uint64_t fake_races(void);
const char *fake_race(void);

#endif
