// level_generic.c - the kernels in plain C, for every machine.
#include "modules/cpu_ref/kern.h"
#include "modules/cpu_ref/simd_generic.h"

#define KERN(x) cref_generic_##x
#define LEVEL_NAME "generic"
#define NB_MR 1u
#define NB_NR 1u
#define MM_MR 1u
#define MM_NR 1u
#define UNROLL
#define UNROLL16
#include "modules/cpu_ref/level.h"
