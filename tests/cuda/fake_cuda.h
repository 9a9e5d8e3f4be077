/* fake_cuda.h - controls of the fake driver, beside the driver API itself. */
#ifndef CEP_TESTS_FAKE_CUDA_H
#define CEP_TESTS_FAKE_CUDA_H

#include <stdint.h>

/* Device memory that a context takes. */
#define FAKE_CONTEXT_BYTES (UINT64_C(8) << 20)

/* The n-th driver call from now on (1 = next) fails with code; 0: none.  Calls
 * that give something back are passed over: the next other call fails. */
void fake_fail(uint64_t n, int code);
/* The n-th call of this function fails (name as in cuda.h, without _v2). */
void fake_fail_in(const char *name, uint64_t n, int code);
uint64_t fake_calls(void);
/* Order of execution: 0 as early as legal, else a seed. */
void fake_seed(uint64_t seed);
/* Kernels run (1, default) or are only counted (0). */
void fake_run_kernels(int on);
/* Pieces of memory, streams, events, graphs, modules alive. */
uint64_t fake_alive(void);
/* Device memory in all; default 1 GiB. */
void fake_total_bytes(uint64_t bytes);
/* How often kernel NAME was launched (replays included). */
uint64_t fake_launches(const char *name);
/* No device, or another compute capability. */
void fake_devices(int count, int major, int minor);

#endif
