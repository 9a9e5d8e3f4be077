/* genai/module.h - the handshake between the core and a module.
 * Owns: the query function, the module block, the host table.
 * Does not know: what any interface does.
 * ABI: the first 64 bytes of the block are frozen for ever; the rest is append
 * only.  See docs/ABI.md and docs/MODULES.md. */
#ifndef GENAI_MODULE_H
#define GENAI_MODULE_H

#include <stdarg.h>

#include <genai/types.h>
#include <genai/version.h>

#ifdef __cplusplus
extern "C" {
#endif

#define GENAI_MODULE_MAGIC UINT64_C(0x314d494147454e47) /* "GNEGAIM1" */

/* build word: what must agree between the core and a module. */
#if defined(__SANITIZE_ADDRESS__)
#define GENAI_BUILD_SAN 1u
#elif defined(__SANITIZE_THREAD__)
#define GENAI_BUILD_SAN 2u
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define GENAI_BUILD_SAN 1u
#elif __has_feature(thread_sanitizer)
#define GENAI_BUILD_SAN 2u
#else
#define GENAI_BUILD_SAN 0u
#endif
#else
#define GENAI_BUILD_SAN 0u
#endif
/* bits 0-7 sanitizer, 8-15 pointer bytes, 16-23 endianness (1 little) */
#define GENAI_BUILD                                                            \
	(GENAI_BUILD_SAN | ((uint32_t)sizeof(void *) << 8) | (1u << 16))

/* Log levels. */
#define GENAI_LOG_ERROR 1
#define GENAI_LOG_WARN 2
#define GENAI_LOG_INFO 3
#define GENAI_LOG_DEBUG 4
#define GENAI_LOG_TRACE 5

/* All addresses of a device. */
#define GENAI_RANGE_ALL_BYTES UINT64_MAX

/* Proof that a drain covered a range and nothing was enqueued on the device
 * since.  Only the core makes one; a copy is as good as the original; made-up
 * contents are refused. */
struct genai_ticket {
	uint32_t size;
	uint32_t device;     /* runtime-wide number of the stream runtime */
	uint64_t generation; /* enqueues of the device that had ended */
	uint64_t seal;	     /* keyed check word */
	struct genai_range range;
};

/* The services of the core.  Every function takes ctx first.  The table is
 * valid from init until fini returns.  Threads: any, of every function.  Ask GENAI_HAS(host, slot) for a slot
 * that came with a later minor than the one needed (min_core_minor). */
struct genai_host {
	uint32_t size;
	uint32_t core_abi; /* major << 16 | minor of the running core */
	void *ctx;
	/* Host memory, aligned to 64 bytes, contents undefined.  tag names the
	 * use in the ledger (a static string).  NULL when refused.  bytes 0
	 * gives a unique pointer.  Threads: any. */
	void *(*alloc)(void *ctx, uint64_t bytes, const char *tag);
	/* Grow or shrink; p may be NULL; on failure NULL and p stays valid. */
	void *(*realloc)(void *ctx, void *p, uint64_t bytes, const char *tag);
	void (*free)(void *ctx, void *p); /* NULL is allowed */
	/* One line, without a line end; the text is copied. */
	void (*log)(void *ctx, int32_t level, const char *fmt, ...);
	/* Fill err (may be NULL) with code, this module's name and the text;
	 * returns code. */
	int32_t (*error_set)(void *ctx, struct genai_error *err, int32_t code,
			     const char *fmt, ...);
	/* A key of the module's own INI section, or its declared default.  The
	 * text is copied to buf (cap bytes with the NUL).
	 * Errors: GENAI_E_NOTFOUND for a key that the module did not declare;
	 * GENAI_E_LIMIT if buf is too small. */
	int32_t (*config_get_str)(void *ctx, const char *key, char *buf,
				  uint64_t cap);
	int32_t (*config_get_u64)(void *ctx, const char *key, uint64_t *out_v);
	int32_t (*config_get_bool)(void *ctx, const char *key, int32_t *out_v);
	/* Nanoseconds of CLOCK_MONOTONIC, which threads can sleep by. */
	uint64_t (*clock_ns)(void *ctx);
	/* A named thread, counted; fini must have joined all of them. */
	int32_t (*thread_create)(void *ctx, const char *name,
				 void (*fn)(void *arg), void *arg,
				 void **out_thread);
	void (*thread_join)(void *ctx, void *thread);
	/* Add to a counter of the module, made by being added to: up to 64 with
	 * names of up to 47 bytes.  It is shown as "MODULE.name" with the
	 * statistics (genai_get_counters).  Threads: any; no lock but for a new
	 * name. */
	void (*counter_add)(void *ctx, const char *name, int64_t n);
	/* GENAI_OK if the ticket is genuine, of this device (the module that
	 * asks), covers the range, and nothing was enqueued since.  For every
	 * call that takes a ticket: of stream runtimes, and of pagers and
	 * executors, which get the tickets of the device they work on.  The
	 * core checks too. */
	int32_t (*ticket_check)(void *ctx, const struct genai_ticket *ticket,
				struct genai_range range,
				struct genai_error *err);
	/* log and error_set for functions that take such arguments themselves:
	 * a module's own, and layers that pass on what came from above. */
	void (*log_v)(void *ctx, int32_t level, const char *fmt, va_list args);
	int32_t (*error_set_v)(void *ctx, struct genai_error *err, int32_t code,
			       const char *fmt, va_list args);
	/* Of a layer: the table of type (GENAI_IFACE_STREAM or _BARRIER) that it
	 * stands in front of, as the module below made it or as layers did, and
	 * the self to call it with.  Both are borrowed from init until fini
	 * returns; the table's size says which slots there are, and one may be
	 * NULL.  Errors: GENAI_E_NOTFOUND: nothing of that type is below. */
	int32_t (*below)(void *ctx, const char *type, const void **out_ops,
			 void **out_self, struct genai_error *err);
};

/* What init gets. */
struct genai_init_params {
	uint32_t size;
	uint32_t device;       /* [runtime] device */
	uint64_t device_limit; /* bytes; UINT64_MAX: no limit set */
};

#define GENAI_IFACE_EXECUTOR "genai.executor"
#define GENAI_IFACE_STREAM "genai.stream"
#define GENAI_IFACE_BARRIER "genai.barrier"
#define GENAI_IFACE_PAGER "genai.pager"
/* Layers: a module in front of a stream runtime and its barrier, [runtime]
 * stream = LAYER > MODULE.  ops is a genai_stream_ops, a genai_barrier_ops.  A
 * slot that is NULL, or beyond the table's size, is the one below: a layer
 * leaves out what it has nothing to do with, later slots among it.  What it
 * does not change goes on as it came: arguments, results, errors, streams and
 * points.  Only modules with a stream layer can be named; a barrier layer of
 * the same module comes with it. */
#define GENAI_IFACE_STREAM_LAYER "genai.stream.layer"
#define GENAI_IFACE_BARRIER_LAYER "genai.barrier.layer"

/* One interface of a module.  ops begins with uint32_t size and uint16_t
 * version; the core copies min(size, its own) bytes of it. */
struct genai_iface {
	const char *type; /* GENAI_IFACE_* or a vendor's own */
	const char *name; /* "eager", "captured"; equal to the module's name
			     where there is only one */
	uint32_t version;
	uint32_t reserved;
	const void *ops;
};

#define GENAI_KEY_STR 1u
#define GENAI_KEY_U64 2u   /* decimal */
#define GENAI_KEY_BOOL 3u  /* on/off, true/false, yes/no, 1/0 */
#define GENAI_KEY_BYTES 4u /* bytes with a unit; "auto" reads as 0 */

/* A key of the module's INI section.  Keys that are not declared are refused
 * before init.  Every module has the key path besides. */
struct genai_config_key {
	const char *name;
	const char *default_value;
	uint32_t kind; /* GENAI_KEY_* */
	uint32_t reserved;
	const char *choices; /* "a|b|c:*" ('*' = anything) or NULL */
	const char *help;    /* one line */
};

/* The module block: static const data of the module. */
struct genai_module_block {
	uint64_t magic; /* GENAI_MODULE_MAGIC */
	uint32_t size;	/* of this struct, as the module was compiled */
	uint16_t abi_major;
	uint16_t abi_minor;	 /* built with */
	uint16_t min_core_minor; /* needs at least */
	uint16_t reserved;
	uint32_t flags; /* 0 */
	uint32_t build; /* GENAI_BUILD */
	uint32_t n_ifaces;
	const char *name; /* equals the INI section's: [module NAME] */
	const char *version;
	const char *licence; /* SPDX */
	const struct genai_iface *ifaces;
	/* 64 bytes so far */
	/* Bring the module up: the first moment a device may be touched.
	 * Called once per runtime, and again only after fini.  Afterwards *out
	 * is passed as self to every table function.  host and params: host
	 * stays valid until fini returns, params for the call.
	 * Errors: GENAI_E_NODEVICE when there is no usable device. */
	int32_t (*init)(const struct genai_host *host,
			const struct genai_init_params *params, void **out_self,
			struct genai_error *err);
	/* Take it down: every object is closed before.  Joins threads, frees
	 * all memory, releases the device.  Called once per successful init. */
	void (*fini)(void *self);
	const struct genai_config_key *keys;
	uint32_t n_keys;
	uint32_t iface_stride; /* sizeof(struct genai_iface) */
	uint32_t key_stride;   /* sizeof(struct genai_config_key) */
	uint32_t reserved2;
};

/* The one exported symbol.  Pure: no allocation, no device call, callable many
 * times and from several threads.  NULL with *out_reason = GENAI_E_ABI (or
 * another code) if this module cannot serve such a core. */
#define GENAI_MODULE_QUERY_SYMBOL "genai_module_query"
typedef const struct genai_module_block *(*genai_module_query_fn)(
	uint32_t core_abi, int32_t *out_reason);

#if defined(__GNUC__)
#define GENAI_MODULE_EXPORT __attribute__((visibility("default")))
#else
#define GENAI_MODULE_EXPORT
#endif

/* What a module block has from the headers that it is compiled with. */
#define GENAI_MODULE_BUILT                                                     \
	.magic = GENAI_MODULE_MAGIC,                                           \
	.size = sizeof(struct genai_module_block),                             \
	.abi_major = GENAI_ABI_MAJOR, .abi_minor = GENAI_ABI_MINOR,            \
	.build = GENAI_BUILD, .iface_stride = sizeof(struct genai_iface),      \
	.key_stride = sizeof(struct genai_config_key)

/* Defines the exported symbol of a module that has the one block, for every
 * core of its major version. */
#define GENAI_MODULE_QUERY(block)                                              \
	GENAI_MODULE_EXPORT const struct genai_module_block *                  \
	genai_module_query(uint32_t core_abi, int32_t *out_reason);            \
                                                                               \
	const struct genai_module_block *genai_module_query(                   \
		uint32_t core_abi, int32_t *out_reason)                        \
	{                                                                      \
		if (core_abi >> 16 == GENAI_ABI_MAJOR)                         \
			return &(block);                                       \
		if (out_reason)                                                \
			*out_reason = GENAI_E_ABI;                             \
		return NULL;                                                   \
	}

#ifdef __cplusplus
}
#endif
#endif
