/* device_impl.h - the books behind a device's tables: device.c keeps them,
 * device_table.c asks them before it calls a module. */
#ifndef GENAI_CORE_DEVICE_IMPL_H
#define GENAI_CORE_DEVICE_IMPL_H

#include "core/device.h"

/* What modules get; self is a struct genai_device. */
extern const struct genai_stream_ops genai_device_stream_table;
extern const struct genai_barrier_ops genai_device_barrier_table;

/* ---- tickets ---- */

uint64_t device_seal(const struct genai_device *d,
		     const struct genai_ticket *t);
/* ctx is the device.  GENAI_E_STATE: stale, of another range, or not made by a
 * drain. */
int32_t device_ticket_check(void *ctx, const struct genai_ticket *t,
			    struct genai_range range, struct genai_error *err);

/* ---- books: with the lock held ---- */

int32_t device_book(struct genai_device *d, struct genai_range r, uint32_t kind,
		    const char *tag, struct genai_error *err);
/* The allocation that starts at addr, or NULL. */
struct genai_allocation *device_booked(struct genai_device *d, genai_addr addr);
void device_unbook(struct genai_device *d, struct genai_allocation *a);
/* GENAI_E_LIMIT if bytes more are beyond device_limit. */
int32_t device_over_limit(struct genai_device *d, uint64_t bytes,
			  const char *tag, struct genai_error *err);
/* May the memory go?  Without a ticket only if nothing was enqueued since it
 * was made. */
int32_t device_may_go(struct genai_device *d, const struct genai_allocation *a,
		      const struct genai_ticket *ticket,
		      struct genai_error *err);

#endif
