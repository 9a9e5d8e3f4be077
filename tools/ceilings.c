// ceilings.c - the rates that bound a step: device memory, and the link to it.
#include "tools/ceilings.h"

#include <math.h>
#include <string.h>

#include "tools/cli.h"

#define MOST (UINT64_C(64) << 20)
#define LEAST (UINT64_C(64) << 10)
#define ROUNDS 5 // at least, and until so long has passed
#define ROUNDS_S 0.05
#define COPIES 64 // in a row, for what each takes beside its bytes

struct probe {
	struct genai_device *d;
	struct genai_stream *s;
	struct genai_mem a, b, host;
	uint64_t bytes; // of each
};

// n copies in a row, and the wait for them.
static int32_t timed(struct probe *p, uint64_t dst, uint64_t src,
		     uint64_t bytes, uint32_t kind, uint32_t n, double *out_s,
		     struct genai_error *err)
{
	const struct genai_stream_ops *o = p->d->stream.ops;
	struct genai_point pt;
	double best = 1e30, begin = cli_now();
	int32_t rc = 0;

	for (int i = 0; !rc && (i < ROUNDS || cli_now() - begin < ROUNDS_S);
	     i++) {
		double t0 = cli_now(), t;

		for (uint32_t k = 0; !rc && k < n; k++)
			rc = o->copy(p->d->stream.self, p->s, dst, src, bytes,
				     kind, err);
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
uint64_t ceilings_block_bytes(const struct genai_device *d)
{
	uint64_t left = d->limit > d->used ? d->limit - d->used : 0;
	uint64_t bytes = left / 2 & ~(LEAST - 1);

	return bytes > MOST ? MOST : bytes < LEAST ? LEAST : bytes;
}

// Where time is counted the rates are exact; one of 0 costs nothing.
static bool counted(const struct genai_stream_caps *c, struct ceilings *out)
{
	const uint64_t rates = c->link_bytes_per_s | c->memory_bytes_per_s |
			       c->copy_latency_ns | c->launch_ns;

	if (!(c->flags & GENAI_STREAM_CAP_RATES) || !rates)
		return false;
	out->counted = true;
	out->link_bytes_s =
		c->link_bytes_per_s ? (double)c->link_bytes_per_s : INFINITY;
	out->memory_bytes_s = c->memory_bytes_per_s
				      ? (double)c->memory_bytes_per_s
				      : INFINITY;
	out->copy_s = (double)c->copy_latency_ns * 1e-9;
	return true;
}

bool ceilings_known(struct genai_runtime *rt, struct ceilings *out)
{
	const struct genai_stream_caps *c = &rt->device.caps;

	memset(out, 0, sizeof(*out));
	out->host_bytes_s = (double)c->host_bytes_per_s;
	out->busy_link_bytes_s =
		(double)(c->host_link_bytes_per_s ? c->host_link_bytes_per_s
						  : c->link_bytes_per_s);
	return counted(c, out);
}

int32_t ceilings_measure(struct genai_runtime *rt, struct ceilings *out,
			 struct genai_error *err)
{
	struct probe p = {.d = &rt->device,
			  .bytes = ceilings_block_bytes(&rt->device)};
	const struct genai_stream_ops *o = p.d->stream.ops;
	void *self = p.d->stream.self;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	double link = 0, one = 0, many = 0, mem = 0;
	int32_t rc;

	if (ceilings_known(rt, out))
		return 0;
	rc = o->create(self, "ceilings", &p.s, err);

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
		rc = timed(&p, p.a.range.addr, (uintptr_t)p.host.host, p.bytes,
			   GENAI_COPY_H2D, 1, &link, err);
	}
	if (!rc)
		rc = timed(&p, p.a.range.addr, (uintptr_t)p.host.host, LEAST,
			   GENAI_COPY_H2D, 1, &one, err);
	if (!rc)
		rc = timed(&p, p.a.range.addr, (uintptr_t)p.host.host, LEAST,
			   GENAI_COPY_H2D, COPIES, &many, err);
	if (!rc)
		rc = timed(&p, p.b.range.addr, p.a.range.addr, p.bytes,
			   GENAI_COPY_D2D, 1, &mem, err);
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
	out->copy_s =
		(many - one) / (COPIES - 1) - (double)LEAST / out->link_bytes_s;
	if (out->copy_s < 0)
		out->copy_s = 0;
	return 0;
}

double ceilings_away_s(const struct ceilings *c, double bytes)
{
	double rate = c->link_bytes_s;

	if (c->host_bytes_s > 0 &&
	    c->busy_link_bytes_s + c->host_bytes_s > rate)
		rate = c->busy_link_bytes_s + c->host_bytes_s;
	return bytes / rate;
}

double ceilings_floor_s(const struct ceilings *c, const struct genai_model *m,
			double cache_bytes, double missed)
{
	const struct genai_paging *p = &m->paging;
	const struct genai_pager_report *r = &p->report;
	double read = (double)p->read_bytes, page = (double)p->page_bytes;
	double memory = (read + cache_bytes) / c->memory_bytes_s;
	double out = read - (double)p->budget + (double)r->ring_bytes;
	double copied =
		out - (double)r->read_in_place_bytes - (double)r->beside_bytes;
	double link = ceilings_away_s(c, out);

	if (r->ring_slots)
		page = (double)r->slot_bytes;
	if (copied > 0)
		link += copied / page * c->copy_s;
	// experts that are read where they lie
	link = (link > 0 ? link : 0) + missed / c->link_bytes_s;
	if (c->counted) // with what launches cost, and all that a step touches
		memory = (double)r->resident_ns * 1e-9;
	return memory > link ? memory : link;
}
