/* genai/types.h - status codes, error record, data types and views shared by
 * every interface.
 * Owns: the vocabulary of the contract.  Does not know: any interface table.
 * ABI: append only; every struct starts with its size.  See docs/ABI.md. */
#ifndef GENAI_TYPES_H
#define GENAI_TYPES_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Status.  0 is success, negative is failure, positive is progress.  The
 * comment says when to choose a code and whether a retry can help.  There are
 * no others: a module has no codes of its own. */
#define GENAI_OK 0
#define GENAI_PENDING 1	       /* not reached yet; ask again */
#define GENAI_E_INVAL -1       /* caller broke the contract; retry is useless */
#define GENAI_E_NOMEM -2       /* host memory; retry after freeing some */
#define GENAI_E_IO -3	       /* open, read, map or write failed */
#define GENAI_E_FORMAT -4      /* a file is malformed or truncated */
#define GENAI_E_UNSUPPORTED -5 /* well formed, but not carried here */
#define GENAI_E_CONFIG -6      /* INI, --set or genai_config.json */
#define GENAI_E_MODULE -7      /* a module broke its contract */
#define GENAI_E_ABI -8	       /* versions or builds that do not fit */
#define GENAI_E_NODEVICE -9    /* no usable device; another module may work */
#define GENAI_E_DEVICE -10     /* the device failed; reset, then retry */
#define GENAI_E_LIMIT -11      /* does not fit a limit; raise it or ask less */
#define GENAI_E_STATE -12      /* right call, wrong moment */
#define GENAI_E_BUSY -13       /* object in use; retry when it is idle */
#define GENAI_E_DEADLINE -14   /* deadline passed; nothing was changed */
#define GENAI_E_NOSYS -15      /* the module has no such function */
#define GENAI_E_FORKED -16     /* runtime used in a child after fork */
#define GENAI_E_INTERRUPTED -17 /* asked to stop */
#define GENAI_E_NOTFOUND -18	/* no such file, key, name or module */
#define GENAI_E_ORDER -19	/* accesses not ordered by any point */

/* Error record, owned by the caller.  A failing function fills it once, at the
 * place that first decides it is an error; callers add context only when they
 * know something new.  Every string is inline: nothing points into a module. */
struct genai_error {
	uint32_t size;
	int32_t code;
	uint32_t line;	 /* source line that raised it */
	uint32_t node;	 /* node index in the graph, GENAI_NONE if none */
	char module[32]; /* module that raised it, "" for the core */
	char file[32];	 /* source file name that raised it */
	char text[512];	 /* one line: object, reason, numbers with units */
};
#define GENAI_NONE 0xffffffffu
#define GENAI_ERROR_INIT                                                       \
	{                                                                      \
		sizeof(struct genai_error), 0, 0, GENAI_NONE, {0}, {0},        \
		{                                                              \
			0                                                      \
		}                                                              \
	}

/* Element types.  The numbers are those of ONNX TensorProto.DataType. */
#define GENAI_DT_NONE 0
#define GENAI_DT_F32 1
#define GENAI_DT_U8 2
#define GENAI_DT_I8 3
#define GENAI_DT_U16 4
#define GENAI_DT_I16 5
#define GENAI_DT_I32 6
#define GENAI_DT_I64 7
#define GENAI_DT_STRING 8
#define GENAI_DT_BOOL 9
#define GENAI_DT_F16 10
#define GENAI_DT_F64 11
#define GENAI_DT_U32 12
#define GENAI_DT_U64 13
#define GENAI_DT_BF16 16
#define GENAI_DT_F8E4M3FN 17
#define GENAI_DT_F8E4M3FNUZ 18
#define GENAI_DT_F8E5M2 19
#define GENAI_DT_F8E5M2FNUZ 20
#define GENAI_DT_U4 21 /* two per byte, low nibble first */
#define GENAI_DT_I4 22
#define GENAI_DT_F4E2M1 23
#define GENAI_DT_F8E8M0 24
#define GENAI_DT_U2 25 /* four per byte, low bits first */
#define GENAI_DT_I2 26

#define GENAI_MAX_RANK 16

/* Structs that a later minor may make longer (docs/ABI.md lists them) are
 * exchanged by their size, their first field.
 * Does the struct that s points to reach to the end of field? */
#define GENAI_HAS(s, field)                                                    \
	((size_t)((const char *)(&(s)->field + 1) - (const char *)(s)) <=      \
	 (s)->size)

/* Give a caller, whose struct may be shorter or longer than ours, what both
 * know of it; out's size becomes the bytes that are valid. */
static inline void genai_struct_give(void *out, const void *ours)
{
	const unsigned char *from = (const unsigned char *)ours;
	unsigned char *to = (unsigned char *)out;
	uint32_t bytes = *(const uint32_t *)ours, i;

	if (bytes > *(const uint32_t *)out)
		bytes = *(const uint32_t *)out;
	if (bytes < sizeof(bytes))
		return;
	for (i = sizeof(bytes); i < bytes; i++)
		to[i] = from[i];
	*(uint32_t *)out = bytes;
}

/* A device address.  Never dereferenced by the host: on a GPU it is a device
 * pointer, on the simulated device an address of a space of its own. */
typedef uint64_t genai_addr;

/* A range of device addresses. */
struct genai_range {
	genai_addr addr;
	uint64_t bytes;
};

/* A tensor in device memory.  Strides are in elements, may be 0 (broadcast);
 * dims of 0 are legal and mean no bytes.  Rank 0 is a scalar. */
struct genai_view {
	uint32_t size;
	uint32_t dtype; /* GENAI_DT_* */
	uint32_t rank;
	uint32_t reserved;
	genai_addr addr;
	int64_t dims[GENAI_MAX_RANK];
	int64_t strides[GENAI_MAX_RANK];
};

#ifdef __cplusplus
}
#endif
#endif
