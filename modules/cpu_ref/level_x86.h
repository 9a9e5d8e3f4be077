/* level_x86.h - compile what follows for more than the base instruction set.
 * The intrinsics' header must come first: it sets targets of its own. */
#include <immintrin.h>

#define LEVEL_STR(x) #x
#define LEVEL_PRAGMA(x) _Pragma(LEVEL_STR(x))
#ifdef __clang__
#define LEVEL_TARGET(t)                                                        \
	LEVEL_PRAGMA(clang attribute push(__attribute__((target(t))),          \
					  apply_to = function))
#define LEVEL_TARGET_END _Pragma("clang attribute pop")
#define UNROLL _Pragma("clang loop unroll(full)")
#define UNROLL16 UNROLL
#else
#define LEVEL_TARGET(t) _Pragma("GCC push_options") LEVEL_PRAGMA(GCC target(t))
#define LEVEL_TARGET_END _Pragma("GCC pop_options")
#define UNROLL _Pragma("GCC unroll 8")
#define UNROLL16 _Pragma("GCC unroll 16")
#endif
