// order_memory.c - the happens-before check of memory that comes and goes.
#include "core/order/order_impl.h"

#include <inttypes.h>
#include <stdio.h>

#include "core/base/error.h"

static int32_t add_block(struct genai_order *o, const void *host,
			 struct genai_range r, const char *tag,
			 struct genai_error *err)
{
	int32_t rc;

	pthread_mutex_lock(&o->lock);
	rc = order_grow((void **)&o->blocks, &o->cap_blocks, o->n_blocks + 1,
			sizeof(*o->blocks), err);
	if (!rc)
		o->blocks[o->n_blocks++] = (struct order_block){
			(uintptr_t)host, r.bytes, r.addr,
			order_intern(o, tag ? tag : "?"), ++o->made_blocks};
	pthread_mutex_unlock(&o->lock);
	return rc;
}

struct order_text order_place_text(const struct genai_order *o, uint64_t addr)
{
	struct order_text t;

	for (uint32_t i = 0; i < o->n_blocks; i++) {
		const struct order_block *b = &o->blocks[i];

		if (addr - b->addr >= b->bytes)
			continue;
		snprintf(t.v, sizeof(t.v), "byte %" PRIu64 " of %.20s #%u",
			 addr - b->addr, b->tag, b->number);
		return t;
	}
	snprintf(t.v, sizeof(t.v), "%#" PRIx64, addr);
	return t;
}

// How units would name a host address.
uint64_t order_device_addr(struct genai_order *o, uint64_t host)
{
	uint64_t addr = host;

	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; i < o->n_blocks; i++)
		if (o->blocks[i].host &&
		    host - o->blocks[i].host < o->blocks[i].bytes)
			addr = o->blocks[i].addr + (host - o->blocks[i].host);
	pthread_mutex_unlock(&o->lock);
	return addr;
}

static int32_t o_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out,
		       struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = o->raw.alloc(o->raw_self, kind, bytes, tag, out, err);

	if (rc)
		return rc;
	rc = add_block(o, out->host, out->range, tag, err);
	if (rc)
		o->raw.free(o->raw_self, out->range.addr, NULL, NULL);
	return rc;
}

static int32_t o_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out, struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = o->raw.host_register(o->raw_self, ptr, bytes, out, err);

	if (rc)
		return rc;
	rc = add_block(o, ptr, out->range, "registered", err);
	if (rc)
		o->raw.host_unregister(o->raw_self, out->range.addr, NULL,
				       NULL);
	return rc;
}

// Memory goes: everything that touched it must be known to be done.
static int32_t may_go(struct genai_order *o, uint64_t addr, uint64_t bytes,
		      struct genai_error *err)
{
	struct order_text place;
	struct genai_touch t;
	int32_t rc;

	pthread_mutex_lock(&o->lock);
	rc = genai_order_forget(&o->map, addr, bytes, &o->host, &t);
	place = order_place_text(o, addr);
	pthread_mutex_unlock(&o->lock);
	if (rc != GENAI_E_ORDER)
		return rc;
	return genai_fail(err, rc,
			  "race: memory from %s is given back, and %s on "
			  "stream '%.20s' %s it; missing edge: the host did "
			  "not wait for a point of '%.20s' after its unit "
			  "%" PRIu64,
			  place.v, order_unit_text(t.what, t.node).v, t.stream,
			  t.write ? "writes" : "reads", t.stream, t.epoch);
}

static struct order_block take_block(struct genai_order *o, uint64_t addr,
				     bool take)
{
	struct order_block b = {0};

	pthread_mutex_lock(&o->lock);
	for (uint32_t i = 0; i < o->n_blocks; i++)
		if (o->blocks[i].addr == addr) {
			b = o->blocks[i];
			if (take)
				o->blocks[i] = o->blocks[--o->n_blocks];
			break;
		}
	pthread_mutex_unlock(&o->lock);
	return b;
}

static int32_t o_free(void *self, genai_addr addr, const struct genai_ticket *t,
		      struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = may_go(o, addr, take_block(o, addr, false).bytes, err);

	if (!rc)
		rc = o->raw.free(o->raw_self, addr, t, err);
	if (!rc)
		take_block(o, addr, true);
	return rc;
}

static int32_t o_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *t,
			    struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = may_go(o, addr, take_block(o, addr, false).bytes, err);

	if (!rc)
		rc = o->raw.host_unregister(o->raw_self, addr, t, err);
	if (!rc)
		take_block(o, addr, true);
	return rc;
}

static int32_t o_unmap(void *self, struct genai_range r,
		       const struct genai_ticket *t, struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = may_go(o, r.addr, r.bytes, err);

	if (!rc)
		rc = o->raw.unmap(o->raw_self, r, t, err);
	if (!rc)
		take_block(o, r.addr, true);
	return rc;
}

static int32_t o_map(void *self, struct genai_range r, const char *tag,
		     struct genai_error *err)
{
	struct genai_order *o = self;
	int32_t rc = o->raw.map(o->raw_self, r, tag, err);

	// without memory for the name the address is named
	if (!rc)
		add_block(o, NULL, r, tag, NULL);
	return rc;
}

static int32_t o_reserve(void *self, uint64_t bytes, struct genai_range *out,
			 struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.reserve(o->raw_self, bytes, out, err);
}

static int32_t o_unreserve(void *self, struct genai_range r,
			   const struct genai_ticket *t,
			   struct genai_error *err)
{
	struct genai_order *o = self;

	return o->raw.unreserve(o->raw_self, r, t, err);
}

void order_put_memory(struct genai_stream_ops *ops)
{
	ops->alloc = o_alloc;
	ops->free = o_free;
	ops->host_register = o_register;
	ops->host_unregister = o_unregister;
	if (ops->reserve)
		ops->reserve = o_reserve;
	if (ops->unreserve)
		ops->unreserve = o_unreserve;
	if (ops->map)
		ops->map = o_map;
	if (ops->unmap)
		ops->unmap = o_unmap;
}
