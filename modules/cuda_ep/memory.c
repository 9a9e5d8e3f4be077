// memory.c - device memory, pinned and registered host memory.
// Owns: the list of blocks, who may be freed.
// Does not know: streams' order (tickets tell), what the bytes mean.
#include <errno.h>
#include <stdio.h>
#include <sys/resource.h>
#include <unistd.h>

#include "modules/cuda_ep/memory.h"

#define MIB (UINT64_C(1) << 20)

static uint32_t lower_bound(const struct cep *self, uint64_t addr)
{
	uint32_t lo = 0, hi = self->n_blocks;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (self->blocks[mid]->addr <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo; // first block that starts after addr
}

struct cep_block *cep_block_find(struct cep *self, uint64_t addr,
				 uint64_t bytes)
{
	uint32_t i = lower_bound(self, addr);
	struct cep_block *b = i ? self->blocks[i - 1] : NULL;

	if (!b || addr - b->addr > b->bytes ||
	    bytes > b->bytes - (addr - b->addr))
		return NULL;
	return b;
}

struct cep_block *cep_block_find_host(struct cep *self, const void *p,
				      uint64_t bytes)
{
	const char *h = p;

	for (uint32_t i = 0; i < self->n_blocks; i++) {
		struct cep_block *b = self->blocks[i];

		if (b->host && h >= b->host && h < b->host + b->bytes &&
		    bytes <= (uint64_t)(b->host + b->bytes - h))
			return b;
	}
	return NULL;
}

// The recording remembers a block once.
static int32_t record_block(struct cep *self, struct cep_block *b,
			    struct genai_error *err)
{
	struct genai_recording *r = self->recording;

	if (b->mark == r->serial)
		return 0;
	if (r->n_blocks == r->cap_blocks) {
		uint32_t cap = r->cap_blocks ? r->cap_blocks * 2 : 64;
		void *p =
			self->host->realloc(self->host->ctx, r->blocks,
					    cap * sizeof(*r->blocks), CEP_TAG);

		if (!p)
			return cep_fail(self, err, GENAI_E_NOMEM,
					"out of memory");
		r->blocks = p;
		r->cap_blocks = cap;
	}
	r->blocks[r->n_blocks++] = b;
	b->mark = r->serial;
	b->recordings++;
	return 0;
}

int32_t cep_block_touch(struct cep *self, uint64_t addr, uint64_t bytes,
			struct genai_error *err)
{
	struct cep_block *b;

	if (!bytes || (!self->n_untouched && !self->recording))
		return 0;
	b = cep_block_find(self, addr, bytes);
	if (!b)
		return 0; // memory of another owner, e.g. the plan's caller
	if (!b->touched) {
		b->touched = true;
		self->n_untouched--;
	}
	return self->recording ? record_block(self, b, err) : 0;
}

// Room in the list first, so that adding after a driver call cannot fail.
struct cep_block *cep_block_new(struct cep *self, struct genai_error *err)
{
	struct cep_block *b;

	if (self->n_blocks == self->cap_blocks) {
		uint32_t cap = self->cap_blocks ? self->cap_blocks * 2 : 64;
		void *p = self->host->realloc(self->host->ctx, self->blocks,
					      cap * sizeof(*self->blocks),
					      CEP_TAG);

		if (!p)
			goto err_nomem;
		self->blocks = p;
		self->cap_blocks = cap;
	}
	b = self->host->alloc(self->host->ctx, sizeof(*b), CEP_TAG);
	if (!b)
		goto err_nomem;
	memset(b, 0, sizeof(*b));
	return b;

err_nomem:
	cep_fail(self, err, GENAI_E_NOMEM, "out of memory");
	return NULL;
}

void cep_block_add(struct cep *self, struct cep_block *b)
{
	uint32_t i = lower_bound(self, b->addr);

	memmove(self->blocks + i + 1, self->blocks + i,
		(self->n_blocks - i) * sizeof(*self->blocks));
	self->blocks[i] = b;
	self->n_blocks++;
	self->n_untouched++;
}

void cep_block_drop(struct cep *self, struct cep_block *b)
{
	uint32_t i = lower_bound(self, b->addr) - 1;

	memmove(self->blocks + i, self->blocks + i + 1,
		(self->n_blocks - i - 1) * sizeof(*self->blocks));
	self->n_blocks--;
	self->n_untouched -= !b->touched;
	self->host->free(self->host->ctx, b->granules);
	self->host->free(self->host->ctx, b);
}

int32_t cep_not_recording(struct cep *self, const char *what,
			  struct genai_error *err)
{
	if (!self->origin)
		return 0;
	return cep_fail(self, err, GENAI_E_STATE,
			"%s while a recording is open", what);
}

// May memory of the block's range go?
int32_t cep_may_release(struct cep *self, struct cep_block *b,
			struct genai_range range,
			const struct genai_ticket *ticket,
			struct genai_error *err)
{
	if (b->recordings)
		return cep_fail(self, err, GENAI_E_BUSY,
				"%u live recordings use %llu bytes at 0x%llx",
				b->recordings, (unsigned long long)b->bytes,
				(unsigned long long)b->addr);
	if (ticket)
		return self->host->ticket_check(self->host->ctx, ticket, range,
						err);
	if (!b->touched)
		return 0;
	return cep_fail(self, err, GENAI_E_STATE,
			"0x%llx was used by enqueued work: a ticket is needed",
			(unsigned long long)b->addr);
}

static int32_t alloc_memory(struct cep *self, struct cep_block *b,
			    uint64_t bytes, const char *tag,
			    struct genai_error *err)
{
	CUdeviceptr p = 0;
	void *h = NULL;
	CUresult r;
	int32_t rc;

	if (b->kind == CEP_BLOCK_PINNED) {
		r = CU(self, cuMemHostAlloc)(&h, bytes,
					     CU_MEMHOSTALLOC_DEVICEMAP |
						     CU_MEMHOSTALLOC_PORTABLE);
		if (r) {
			rc = cep_cuda_fail(self, err, r,
					   "%s: cannot pin %llu bytes of host "
					   "memory",
					   tag ? tag : "memory",
					   (unsigned long long)bytes);
			if (r != CUDA_ERROR_OUT_OF_MEMORY)
				return rc;
			if (err)
				err->code = GENAI_E_NOMEM;
			return GENAI_E_NOMEM;
		}
		r = CU(self, cuMemHostGetDevicePointer)(&p, h, 0);
		if (r) {
			(void)self->drv.cuMemFreeHost(h);
			return cep_cuda_fail(self, err, r, "cannot map memory");
		}
	} else {
		rc = cep_charge(self, bytes, tag, err);
		if (rc)
			return rc;
		r = CU(self, cuMemAlloc)(&p, bytes);
		if (r) {
			cep_uncharge(self, bytes);
			return cep_cuda_fail(
				self, err, r,
				"%s: %llu bytes of device memory, %llu are in "
				"use by this process",
				tag ? tag : "memory", (unsigned long long)bytes,
				(unsigned long long)cep_charged(self, NULL));
		}
	}
	b->addr = p;
	b->host = h;
	b->bytes = bytes;
	return 0;
}

// A new block is listed and told, or goes.
static void give_block(struct cep *self, struct cep_block *b, int32_t rc,
		       uint32_t kind, uint64_t bytes, struct genai_mem *out_mem)
{
	if (rc) {
		self->host->free(self->host->ctx, b);
		return;
	}
	cep_block_add(self, b);
	out_mem->size = sizeof(*out_mem);
	out_mem->kind = kind;
	out_mem->range.addr = b->addr;
	out_mem->range.bytes = bytes;
	out_mem->host = b->host;
}

int32_t cep_alloc(void *ctx, uint32_t kind, uint64_t bytes, const char *tag,
		  struct genai_mem *out_mem, struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_block *b;
	int32_t rc;

	if (!bytes || !out_mem ||
	    (kind != GENAI_MEM_DEVICE && kind != GENAI_MEM_HOST_PINNED))
		return cep_fail(self, err, GENAI_E_INVAL,
				"alloc: %llu bytes of kind %u",
				(unsigned long long)bytes, kind);
	if (bytes > UINT64_C(1) << 60)
		return cep_fail(self, err,
				kind == GENAI_MEM_DEVICE ? GENAI_E_LIMIT
							 : GENAI_E_NOMEM,
				"%s: %llu bytes", tag ? tag : "memory",
				(unsigned long long)bytes);
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, "alloc", err);
	b = rc ? NULL : cep_block_new(self, err);
	if (!rc && !b)
		rc = GENAI_E_NOMEM;
	if (!rc) {
		b->kind = kind == GENAI_MEM_DEVICE ? CEP_BLOCK_DEVICE
						   : CEP_BLOCK_PINNED;
		rc = alloc_memory(self, b, bytes, tag, err);
	}
	give_block(self, b, rc, kind, bytes, out_mem);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

static void release_memory(struct cep *self, struct cep_block *b)
{
	if (b->kind == CEP_BLOCK_PINNED) {
		(void)self->drv.cuMemFreeHost(b->host);
	} else if (b->kind == CEP_BLOCK_DEVICE) {
		(void)self->drv.cuMemFree(b->addr);
		cep_uncharge(self, b->bytes);
	} else if (b->kind == CEP_BLOCK_REGISTERED) {
		(void)self->drv.cuMemHostUnregister(b->pages);
	}
}

// The block that starts at addr, of one of the kinds (bit mask).
struct cep_block *cep_block_at(struct cep *self, uint64_t addr, uint32_t kinds,
			       const char *what, struct genai_error *err)
{
	struct cep_block *b = cep_block_find(self, addr, 0);

	if (b && b->addr == addr && (kinds >> b->kind & 1))
		return b;
	cep_fail(self, err, GENAI_E_INVAL, "%s: nothing begins at 0x%llx", what,
		 (unsigned long long)addr);
	return NULL;
}

static int32_t give_back(struct cep *self, genai_addr addr, uint32_t kinds,
			 const char *what, const struct genai_ticket *ticket,
			 struct genai_error *err)
{
	struct cep_block *b;
	int32_t rc;

	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, what, err);
	b = rc ? NULL : cep_block_at(self, addr, kinds, what, err);
	if (!rc && !b)
		rc = GENAI_E_INVAL;
	if (!rc)
		rc = cep_may_release(self, b,
				     (struct genai_range){b->addr, b->bytes},
				     ticket, err);
	if (!rc) {
		release_memory(self, b);
		cep_block_drop(self, b);
	}
	pthread_mutex_unlock(&self->lock);
	return rc;
}

int32_t cep_free(void *self, genai_addr addr, const struct genai_ticket *ticket,
		 struct genai_error *err)
{
	return give_back(self, addr,
			 1u << CEP_BLOCK_DEVICE | 1u << CEP_BLOCK_PINNED,
			 "free", ticket, err);
}

int32_t cep_host_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	return give_back(self, addr, 1u << CEP_BLOCK_REGISTERED,
			 "host_unregister", ticket, err);
}

// Protection of the mapping that holds [p, p + bytes): "rw-p" and so on; a
// range over several mappings gives the weakest.  False if unknown.
static bool mapping_flags(const char *p, uint64_t bytes, char flags[5])
{
	unsigned long lo, hi, at = (unsigned long)p;
	char line[512], f[8];
	FILE *maps = fopen("/proc/self/maps", "re");

	if (!maps)
		return false;
	memcpy(flags, "rw-s", 5);
	while (bytes && fgets(line, sizeof(line), maps)) {
		if (sscanf(line, "%lx-%lx %7s", &lo, &hi, f) != 3 || hi <= at)
			continue;
		if (lo > at)
			break;
		if (f[1] != 'w')
			flags[1] = '-';
		if (f[3] == 'p')
			flags[3] = 'p';
		if (f[0] != 'r')
			flags[0] = '-';
		bytes -= bytes < hi - at ? bytes : hi - at;
		at = hi;
	}
	fclose(maps);
	return !bytes;
}

// A private read-only mapping must not reach the driver: registering one never
// returned (seen on H200, driver 580).
static int32_t check_registrable(struct cep *self, const void *ptr,
				 uint64_t bytes, unsigned *out_flags,
				 struct genai_error *err)
{
	char flags[5] = "";

	if (!mapping_flags(ptr, bytes, flags) || flags[0] != 'r')
		return cep_fail(self, err, GENAI_E_INVAL,
				"host_register: %llu bytes at %p are not all "
				"mapped and readable",
				(unsigned long long)bytes, ptr);
	*out_flags = CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE;
	if (flags[1] == 'w')
		return 0;
	if (flags[3] == 'p')
		return cep_fail(self, err, GENAI_E_UNSUPPORTED,
				"host_register: a private read-only mapping "
				"cannot be registered: map it shared");
	if (!self->register_ro)
		return cep_fail(self, err, GENAI_E_UNSUPPORTED,
				"host_register: %s cannot register read-only "
				"mappings",
				self->device_name);
	*out_flags |= CU_MEMHOSTREGISTER_READ_ONLY;
	return 0;
}

static int32_t register_pages(struct cep *self, struct cep_block *b,
			      const char *ptr, uint64_t bytes, unsigned flags,
			      struct genai_error *err)
{
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE);
	uint64_t skew = (uint64_t)(uintptr_t)ptr % page;
	uint64_t whole = (skew + bytes + page - 1) / page * page;
	struct rlimit lim = {RLIM_INFINITY, RLIM_INFINITY};
	CUdeviceptr p = 0;
	CUresult r;

	b->pages = (char *)(uintptr_t)(ptr - skew);
	r = CU(self, cuMemHostRegister)(b->pages, whole, flags);
	if (r) {
		(void)getrlimit(RLIMIT_MEMLOCK, &lim);
		return cep_fail(
			self, err,
			r == CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED
				? GENAI_E_INVAL
				: GENAI_E_UNSUPPORTED,
			"host_register: the driver refused %llu MiB (error %d; "
			"locked memory limit %lld KiB)",
			(unsigned long long)(whole / MIB), (int)r,
			lim.rlim_cur == RLIM_INFINITY
				? -1LL
				: (long long)(lim.rlim_cur / 1024));
	}
	r = CU(self, cuMemHostGetDevicePointer)(&p, b->pages, 0);
	if (r) {
		(void)self->drv.cuMemHostUnregister(b->pages);
		return cep_cuda_fail(self, err, r,
				     "host_register: no device address");
	}
	b->addr = p + skew;
	b->host = (char *)(uintptr_t)ptr;
	b->bytes = bytes;
	b->kind = CEP_BLOCK_REGISTERED;
	return 0;
}

int32_t cep_host_register(void *ctx, const void *ptr, uint64_t bytes,
			  struct genai_mem *out_mem, struct genai_error *err)
{
	struct cep *self = ctx;
	struct cep_block *b = NULL;
	unsigned flags = 0;
	int32_t rc;

	if (!ptr || !bytes || bytes > UINTPTR_MAX - (uintptr_t)ptr || !out_mem)
		return cep_fail(self, err, GENAI_E_INVAL,
				"host_register: no memory given");
	rc = check_registrable(self, ptr, bytes, &flags, err);
	if (rc)
		return rc;
	cep_enter(self);
	pthread_mutex_lock(&self->lock);
	rc = cep_not_recording(self, "host_register", err);
	for (uint32_t i = 0; !rc && i < self->n_blocks; i++) {
		struct cep_block *o = self->blocks[i];

		if (o->host && (const char *)ptr < o->host + o->bytes &&
		    o->host < (const char *)ptr + bytes)
			rc = cep_fail(
				self, err, GENAI_E_INVAL,
				"host_register: %p overlaps memory that is "
				"pinned or registered",
				ptr);
	}
	b = rc ? NULL : cep_block_new(self, err);
	if (!rc && !b)
		rc = GENAI_E_NOMEM;
	if (!rc)
		rc = register_pages(self, b, ptr, bytes, flags, err);
	give_block(self, b, rc, GENAI_MEM_HOST_PINNED, bytes, out_mem);
	pthread_mutex_unlock(&self->lock);
	return rc;
}

// At fini: whatever is left goes, and is named.
void cep_memory_close(struct cep *self)
{
	cep_enter(self);
	if (self->n_blocks)
		self->host->log(self->host->ctx, GENAI_LOG_ERROR,
				"%u pieces of memory were not given back",
				self->n_blocks);
	while (self->n_blocks) {
		struct cep_block *b = self->blocks[self->n_blocks - 1];

		if (b->kind == CEP_BLOCK_RESERVED) {
			cep_unmap_granules(self, b, 0, b->n_granules);
			(void)self->drv.cuMemAddressFree(b->addr, b->bytes);
		}
		release_memory(self, b);
		cep_block_drop(self, b);
	}
	self->host->free(self->host->ctx, self->blocks);
	self->blocks = NULL;
}
