// ceilings.c - the rates that bound a step: device memory, and the link to it.
#include "tools/ceilings.h"

#include <string.h>

#include "tools/cli.h"

#define MOST (UINT64_C(64) << 20)
#define LEAST (UINT64_C(64) << 10)
#define ROUNDS 5

struct probe {
	struct genai_device *d;
	struct genai_stream *s;
	struct genai_mem a, b, host;
	uint64_t bytes; /* of each */
};

static int32_t timed(struct probe *p, uint64_t dst, uint64_t src, uint32_t kind,
		     double *out_s, struct genai_error *err)
{
	const struct genai_stream_ops *o = p->d->stream.ops;
	struct genai_point pt;
	double best = 1e30;
	int32_t rc = 0;

	for (int i = 0; !rc && i < ROUNDS; i++) {
		double t0 = cli_now(), t;

		rc = o->copy(p->d->stream.self, p->s, dst, src, p->bytes, kind,
			     err);
		if (!rc)
			rc = o->mark(p->d->stream.self, p->s, &pt, err);
		if (!rc)
			rc = p->d->barrier.ops->host_read(
				p->d->barrier.self, &pt, 1, UINT64_MAX, err);
		t = cli_now() - t0;
		if (t < best)
			best = t;
	}
	*out_s = best;
	return rc;
}

// Two blocks within what device_limit leaves.
static uint64_t block_bytes(const struct genai_device *d)
{
	uint64_t left = d->limit > d->used ? d->limit - d->used : 0;
	uint64_t bytes = left / 2 & ~(LEAST - 1);

	return bytes > MOST ? MOST : bytes < LEAST ? LEAST : bytes;
}

int32_t ceilings_measure(struct genai_runtime *rt, struct ceilings *out,
			 struct genai_error *err)
{
	struct probe p = {.d = &rt->device, .bytes = block_bytes(&rt->device)};
	const struct genai_stream_ops *o = p.d->stream.ops;
	void *self = p.d->stream.self;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	double link = 0, mem = 0;
	int32_t rc = o->create(self, "ceilings", &p.s, err);

	if (!rc)
		rc = o->alloc(self, GENAI_MEM_DEVICE, p.bytes,
			      GENAI_TAG_STAGING, &p.a, err);
	if (!rc)
		rc = o->alloc(self, GENAI_MEM_DEVICE, p.bytes,
			      GENAI_TAG_STAGING, &p.b, err);
	if (!rc)
		rc = o->alloc(self, GENAI_MEM_HOST_PINNED, p.bytes,
			      GENAI_TAG_STAGING, &p.host, err);
	if (!rc) {
		memset(p.host.host, 0x5a, p.bytes);
		rc = timed(&p, p.a.range.addr, (uintptr_t)p.host.host,
			   GENAI_COPY_H2D, &link, err);
	}
	if (!rc)
		rc = timed(&p, p.b.range.addr, p.a.range.addr, GENAI_COPY_D2D,
			   &mem, err);
	if (!genai_device_drain(p.d, &ticket, NULL)) {
		if (p.a.range.bytes)
			o->free(self, p.a.range.addr, &ticket, NULL);
		if (p.b.range.bytes)
			o->free(self, p.b.range.addr, &ticket, NULL);
		if (p.host.range.bytes)
			o->free(self, p.host.range.addr, &ticket, NULL);
		if (p.s)
			o->destroy(self, p.s, NULL);
	}
	if (rc)
		return rc;
	out->link_bytes_s = (double)p.bytes / link;
	out->memory_bytes_s = 2.0 * (double)p.bytes / mem;
	return 0;
}

double ceilings_floor_s(const struct ceilings *c, double weight_bytes,
			double streamed_bytes)
{
	double memory = weight_bytes / c->memory_bytes_s;
	double link = streamed_bytes / c->link_bytes_s;

	return memory > link ? memory : link;
}
