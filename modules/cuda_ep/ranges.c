// ranges.c - address ranges: reserved at once, memory put behind them in
// granules.  Owns: the granules.  Does not know: what lies in them.
#include "modules/cuda_ep/memory.h"

#define MIB (UINT64_C(1) << 20)

int32_t cep_reserve(void *ctx, uint64_t bytes, struct genai_range *out_range,
		    struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_block *b = NULL;
	uint64_t n = bytes / self->granule + !!(bytes % self->granule);
	CUdeviceptr p = 0;
	CUresult r;
	int32_t rc;

	if (!bytes || bytes > UINT64_MAX / 4 || !out_range)
		return cep_fail(self, err, GENAI_E_INVAL, "reserve: %llu bytes",
				(unsigned long long)bytes);
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, "reserve", err);
	b = rc ? NULL : cep_block_new(self, err);
	if (b)
		b->granules = self->host->alloc(
			self->host->ctx, n * sizeof(*b->granules), CEP_TAG);
	if (!rc && (!b || !b->granules))
		rc = cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	if (!rc) {
		memset(b->granules, 0, n * sizeof(*b->granules));
		r = CU(self, cuMemAddressReserve)(&p, n * self->granule, 0, 0,
						  0);
		if (r)
			rc = cep_cuda_fail(
				self, err, r,
				"cannot reserve %llu MiB of addresses",
				(unsigned long long)(bytes / MIB));
	}
	if (!rc) {
		b->kind = CEP_BLOCK_RESERVED;
		b->addr = p;
		b->bytes = n * self->granule;
		b->n_granules = n;
		cep_block_add(self, b);
		out_range->addr = p;
		out_range->bytes = b->bytes;
	} else if (b) {
		self->host->free(self->host->ctx, b->granules);
		self->host->free(self->host->ctx, b);
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}

// Granules of a range inside a reservation.
static struct cep_block *granules_of(struct cep *self, struct genai_range range,
				     uint64_t *out_first, uint64_t *out_n,
				     const char *what, struct genai_error *err)
{
	struct cep_block *b = cep_block_find(self, range.addr, range.bytes);

	if (!range.bytes || !b || b->kind != CEP_BLOCK_RESERVED ||
	    (range.addr - b->addr) % self->granule ||
	    range.bytes % self->granule) {
		cep_fail(self, err, GENAI_E_INVAL,
			 "%s: [0x%llx, +%llu) is not a range of whole granules "
			 "of %llu bytes in a reservation",
			 what, (unsigned long long)range.addr,
			 (unsigned long long)range.bytes,
			 (unsigned long long)self->granule);
		return NULL;
	}
	*out_first = (range.addr - b->addr) / self->granule;
	*out_n = range.bytes / self->granule;
	return b;
}

void cep_unmap_granules(struct cep *self, struct cep_block *b, uint64_t first,
			uint64_t n)
{
	for (uint64_t i = first; i < first + n; i++) {
		if (!b->granules[i])
			continue;
		(void)self->drv.cuMemUnmap(b->addr + i * self->granule,
					   self->granule);
		(void)self->drv.cuMemRelease(b->granules[i]);
		b->granules[i] = 0;
		cep_uncharge(self, self->granule);
	}
}

static int32_t map_granules(struct cep *self, struct cep_block *b,
			    uint64_t first, uint64_t n, const char *tag,
			    struct genai_error *err)
{
	CUmemAllocationProp prop = {
		.type = CU_MEM_ALLOCATION_TYPE_PINNED,
		.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE,
			     .id = (int)self->device},
	};
	CUmemAccessDesc access = {
		.location = prop.location,
		.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
	};
	CUresult r = CUDA_SUCCESS;
	int32_t rc = 0;
	uint64_t i;

	for (i = first; i < first + n; i++) {
		CUmemGenericAllocationHandle h = 0;

		rc = cep_charge(self, self->granule, tag, err);
		if (rc)
			goto err_unmap;
		r = CU(self, cuMemCreate)(&h, self->granule, &prop, 0);
		if (!r) {
			r = CU(self, cuMemMap)(b->addr + i * self->granule,
					       self->granule, 0, h, 0);
			if (r)
				(void)self->drv.cuMemRelease(h);
		}
		if (r) {
			cep_uncharge(self, self->granule);
			goto err_driver;
		}
		b->granules[i] = h;
	}
	r = CU(self, cuMemSetAccess)(b->addr + first * self->granule,
				     n * self->granule, &access, 1);
	if (!r)
		return 0;
err_driver:
	rc = cep_cuda_fail(self, err, r, "%s: cannot map %llu bytes",
			   tag ? tag : "memory",
			   (unsigned long long)(n * self->granule));
err_unmap:
	cep_unmap_granules(self, b, first, i - first);
	return rc;
}

int32_t cep_map(void *ctx, struct genai_range range, const char *tag,
		struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_block *b;
	uint64_t first = 0, n = 0;
	int32_t rc;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, "map", err);
	b = rc ? NULL : granules_of(self, range, &first, &n, "map", err);
	if (!rc && !b)
		rc = GENAI_E_INVAL;
	for (uint64_t i = first; !rc && i < first + n; i++)
		if (b->granules[i])
			rc = cep_fail(self, err, GENAI_E_INVAL,
				      "map: 0x%llx is mapped already",
				      (unsigned long long)(b->addr +
							   i * self->granule));
	if (!rc)
		rc = map_granules(self, b, first, n, tag, err);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_unmap(void *ctx, struct genai_range range,
		  const struct genai_ticket *ticket, struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_block *b;
	uint64_t first = 0, n = 0;
	int32_t rc;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, "unmap", err);
	b = rc ? NULL : granules_of(self, range, &first, &n, "unmap", err);
	if (!rc && !b)
		rc = GENAI_E_INVAL;
	for (uint64_t i = first; !rc && i < first + n; i++)
		if (!b->granules[i])
			rc = cep_fail(self, err, GENAI_E_INVAL,
				      "unmap: 0x%llx is not mapped",
				      (unsigned long long)(b->addr +
							   i * self->granule));
	if (!rc)
		rc = cep_may_release(self, b, range, ticket, err);
	if (!rc)
		cep_unmap_granules(self, b, first, n);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_unreserve(void *ctx, struct genai_range range,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_block *b;
	int32_t rc;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, "unreserve", err);
	b = rc ? NULL
	       : cep_block_at(self, range.addr, 1u << CEP_BLOCK_RESERVED,
			      "unreserve", err);
	if (!rc && !b)
		rc = GENAI_E_INVAL;
	for (uint64_t i = 0; !rc && i < b->n_granules; i++)
		if (b->granules[i])
			rc = cep_fail(self, err, GENAI_E_BUSY,
				      "unreserve: 0x%llx is still mapped",
				      (unsigned long long)(b->addr +
							   i * self->granule));
	if (!rc)
		rc = cep_may_release(self, b,
				     (struct genai_range){b->addr, b->bytes},
				     ticket, err);
	if (!rc) {
		(void)self->drv.cuMemAddressFree(b->addr, b->bytes);
		cep_block_drop(self, b);
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}
