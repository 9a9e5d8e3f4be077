/* images.c - the compiled kernels as bytes of the module.
 * CEP_FATBIN_DIR is the folder of the fatbins, a string. */
#include <stdint.h>

#define STR_(x) #x
#define STR(x) STR_(x)
#define IMAGE(name)                                                            \
	__asm__(".section .rodata\n"                                           \
		".balign 64\n"                                                 \
		".hidden cep_image_" #name "\n"                                \
		".globl cep_image_" #name "\n"                                 \
		"cep_image_" #name ":\n"                                       \
		".incbin \"" CEP_FATBIN_DIR "/" #name ".fatbin\"\n"            \
		".byte 0\n"                                                    \
		".previous\n");                                                \
	extern const unsigned char cep_image_##name[]                          \
		__attribute__((visibility("hidden")));

IMAGE(attention)
IMAGE(elementwise)
IMAGE(gemm)
IMAGE(gemm4)
IMAGE(gemv)
IMAGE(index)
IMAGE(rows)

extern const unsigned char *const cep_images[];
extern const uint32_t cep_n_images;
const unsigned char *const cep_images[] = {
	cep_image_attention, cep_image_elementwise, cep_image_gemm,
	cep_image_gemm4,     cep_image_gemv,	    cep_image_index,
	cep_image_rows,
};
const uint32_t cep_n_images = sizeof(cep_images) / sizeof(cep_images[0]);
