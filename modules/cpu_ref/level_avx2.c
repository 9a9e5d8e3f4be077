// level_avx2.c - the kernels for x86 with AVX2, FMA and F16C.
#include "modules/cpu_ref/kern.h"

#if defined(__x86_64__)
#include "modules/cpu_ref/level_x86.h"
LEVEL_TARGET("avx2,fma,f16c")

#include "modules/cpu_ref/simd_avx2.h"
#define KERN(x) cref_avx2_##x
#define LEVEL_NAME "avx2"
#define NB_MR 6u
#define NB_NR 1u
#define MM_MR 6u
#define MM_NR 1u
#include "modules/cpu_ref/level.h"

LEVEL_TARGET_END
#endif
