/* device.h - one stream runtime and its barrier, as the core hands them on.
 * Owns: the checks in front of every call, the count of enqueues, tickets, the
 * ledger of memory by tag, the limit.  Does not know: graphs, pagers.
 *
 * Modules get the tables of this file, not the module's own: so a ticket cannot
 * be bypassed and every byte is counted. */
#ifndef GENAI_CORE_DEVICE_H
#define GENAI_CORE_DEVICE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/types.h>

#include <genai/barrier.h>

#include "core/module/module.h"

#define GENAI_MAX_TAGS 16

struct genai_ledger_line {
	char tag[24];
	uint64_t now, peak;
};

struct genai_allocation {
	genai_addr addr;
	uint64_t bytes;
	uint64_t begun; /* of the device when it was made */
	uint32_t kind;	/* GENAI_MEM_*, or one of the next two */
	uint32_t tag;
};
#define GENAI_MEM_REGISTERED 16u
#define GENAI_MEM_MAPPED 17u

struct genai_order;

struct genai_device {
	struct genai_stream_ops raw;
	struct genai_barrier_ops raw_barrier;
	void *raw_self, *barrier_self;
	struct genai_stream_api stream; /* what modules get */
	struct genai_barrier_api barrier;
	struct genai_stream_caps caps;
	const struct genai_log *log;
	pid_t pid;
	uint32_t number;
	uint64_t key; /* of tickets */
	/* Enqueues so far: open between the two, while the module is called. */
	_Atomic uint64_t begun, ended;

	pthread_mutex_t lock; /* the books below */
	uint64_t limit;	      /* UINT64_MAX: none */
	uint64_t used, peak;  /* device memory */
	uint64_t pinned;      /* host memory pinned or registered */
	struct genai_ledger_line lines[GENAI_MAX_TAGS];
	uint32_t n_lines;
	struct genai_allocation *allocs;
	uint32_t n_allocs, cap_allocs;
	uint64_t reserved_bytes;   /* address space only */
	struct genai_order *order; /* [runtime] check = order; else NULL */
};

/* Wire the tables of a started module.  limit UINT64_MAX: none. */
int32_t genai_device_open(struct genai_device *d, struct genai_module *stream,
			  const char *stream_name, struct genai_module *barrier,
			  const char *barrier_name, uint32_t number,
			  const struct genai_log *log, struct genai_error *err);
/* Start a layer on top of what is wired. */
int32_t genai_device_add_layer(struct genai_device *d, struct genai_module *m,
			       const char *name,
			       const struct genai_init_params *params,
			       struct genai_error *err);
/* From now on the module's host checks tickets of this device. */
void genai_device_serve(struct genai_device *d, struct genai_module *m);
/* Check the order of every access from here on: before any other call. */
int32_t genai_device_check_order(struct genai_device *d,
				 struct genai_error *err);
/* Logs what is still allocated. */
void genai_device_close(struct genai_device *d);
void genai_device_set_limit(struct genai_device *d, uint64_t limit);
/* GENAI_E_FORKED in a child process, else 0. */
int32_t genai_device_forked(const struct genai_device *d,
			    struct genai_error *err);
/* Around whatever enqueues: one that is open during a drain, or begins later,
 * makes the drain's ticket stale. */
static inline void genai_device_enqueue_begin(struct genai_device *d)
{
	atomic_fetch_add(&d->begun, 1);
}

static inline void genai_device_enqueue_end(struct genai_device *d)
{
	atomic_fetch_add(&d->ended, 1);
}

/* A drain of everything, with its ticket. */
int32_t genai_device_drain(struct genai_device *d, struct genai_ticket *out,
			   struct genai_error *err);

#endif
