/* level.h - the kernels of one level, included once by each level_*.c after
 * the vector type and these macros:
 *   KERN(x)       the name of kernel x at this level
 *   LEVEL_NAME    what reports call it
 *   NB_MR, NB_NR, MM_MR, MM_NR   register tiles
 *   UNROLL        unroll the next loop fully */
#include "modules/cpu_ref/kern_math.h"
#include "modules/cpu_ref/kern_nbits.h"
#include "modules/cpu_ref/kern_gemm.h"
#include "modules/cpu_ref/kern_attn.h"

const struct cref_kern KERN(table) = {
	.name = LEVEL_NAME,
	.widen = KERN(widen),
	.narrow = KERN(narrow),
	.exp = KERN(exp),
	.tanh = KERN(tanh),
	.sigmoid = KERN(sigmoid),
	.rotate = KERN(rotate),
	.dot = KERN(dot),
	.sum = KERN(sum),
	.nb_fill = KERN(nb_fill),
	.nb_gemv = KERN(nb_gemv),
	.nb_gemm = KERN(nb_gemm),
	.mm_pack = KERN(mm_pack),
	.mm_tile = KERN(mm_tile),
	.mm_stream = KERN(mm_stream),
	.at_keys = KERN(at_keys),
	.at_softmax = KERN(at_softmax),
	.at_fold = KERN(at_fold),
};
