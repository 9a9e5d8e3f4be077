// level_avx512.c - the kernels for x86 with AVX-512.
#include "modules/cpu_ref/kern.h"

#if defined(__x86_64__)
#include "modules/cpu_ref/level_x86.h"
LEVEL_TARGET("avx2,fma,f16c,avx512f,avx512bw,avx512dq,avx512vl")

#include "modules/cpu_ref/simd_avx512.h"
#define KERN(x) cref_avx512_##x
#define LEVEL_NAME "avx512"
#define NB_MR 8u
#define NB_NR 2u
#define MM_MR 8u
#define MM_NR 2u
#include "modules/cpu_ref/level.h"

LEVEL_TARGET_END
#endif
