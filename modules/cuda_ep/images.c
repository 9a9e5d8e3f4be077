// images.c - the compiled kernels as bytes of the module.
// CEP_FATBIN_DIR is the folder of the fatbins, a string.
#include <stdint.h>

#define STR_(x) #x
#define STR(x) STR_(x)
#define CEP_IMAGE(name, smem)                                                  \
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

#include "modules/cuda_ep/kernel_names.h"

extern const unsigned char *const cep_images[];
extern const uint32_t cep_n_images;
const unsigned char *const cep_images[] = {
#define CEP_IMAGE(name, smem) cep_image_##name,
#include "modules/cuda_ep/kernel_names.h"
};
const uint32_t cep_n_images = sizeof(cep_images) / sizeof(cep_images[0]);
