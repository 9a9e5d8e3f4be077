// device.c - the simulated device's address space.
// Device memory is host memory under addresses that the host cannot use by
// accident; a table says what is mapped, and nothing outside it is reachable.
#include "modules/cpu_ref/cpu_ref.h"

#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define GRANULE (UINT64_C(64) << 10)

#define POISON 0xff // a NaN of every float type, -1 of every integer

static uint64_t round_up(uint64_t n, uint64_t to)
{
	return (n + to - 1) / to * to;
}

static uint64_t whole_pages(uint64_t bytes)
{
	return round_up(bytes, (uint64_t)sysconf(_SC_PAGESIZE));
}

// Index of the first region that ends after addr.
static uint32_t region_after(const struct cref_device *dev, genai_addr addr)
{
	uint32_t lo = 0, hi = dev->n_regions;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (dev->regions[mid].addr + dev->regions[mid].bytes <= addr)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

struct cref_region *cref_region_find(struct cref_device *dev, genai_addr addr,
				     uint64_t bytes)
{
	uint32_t i = region_after(dev, addr);
	struct cref_region *r = &dev->regions[i];

	if (i == dev->n_regions || addr < r->addr ||
	    bytes > r->addr + r->bytes - addr)
		return NULL;
	return r;
}

bool cref_host_known(struct cref_device *dev, uint64_t p, uint64_t bytes)
{
	const struct cref_region *r =
		cref_region_find(dev, p ^ CREF_ADDR_BIT, bytes);

	return r && (r->kind == CREF_PINNED || r->kind == CREF_REGISTERED);
}

static int32_t region_add(struct cref_device *dev, genai_addr addr,
			  uint64_t bytes, enum cref_region_kind kind,
			  struct genai_error *err)
{
	uint32_t i = region_after(dev, addr);

	if (i < dev->n_regions && dev->regions[i].addr < addr + bytes)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "%llu bytes at %#llx overlap memory that is "
				 "mapped or registered",
				 (unsigned long long)bytes,
				 (unsigned long long)addr);
	if (dev->n_regions == dev->cap_regions) {
		uint32_t cap = dev->cap_regions ? 2 * dev->cap_regions : 64;
		void *p = dev->host->realloc(dev->host->ctx, dev->regions,
					     cap * sizeof(*dev->regions),
					     "device");
		if (!p)
			return CREF_FAIL(dev, err, GENAI_E_NOMEM,
					 "no memory for the address table");
		dev->regions = p;
		dev->cap_regions = cap;
	}
	memmove(&dev->regions[i + 1], &dev->regions[i],
		(dev->n_regions - i) * sizeof(*dev->regions));
	dev->regions[i] = (struct cref_region){addr, bytes, kind, 0};
	dev->n_regions++;
	return 0;
}

static void region_del(struct cref_device *dev, struct cref_region *r)
{
	uint32_t i = (uint32_t)(r - dev->regions);

	memmove(r, r + 1, (dev->n_regions - i - 1) * sizeof(*r));
	dev->n_regions--;
}

static int32_t refuse_recording(struct cref_device *dev, const char *what,
				struct genai_error *err)
{
	if (!dev->n_recording)
		return 0;
	return CREF_FAIL(dev, err, GENAI_E_STATE,
			 "%s while a recording is open", what);
}

static int32_t over_limit(struct cref_device *dev, uint64_t bytes,
			  struct genai_error *err)
{
	if (bytes <= dev->limit_bytes &&
	    dev->used_bytes <= dev->limit_bytes - bytes)
		return 0;
	return CREF_FAIL(dev, err, GENAI_E_LIMIT,
			 "%llu bytes do not fit: %llu of %llu are in use",
			 (unsigned long long)bytes,
			 (unsigned long long)dev->used_bytes,
			 (unsigned long long)dev->limit_bytes);
}

static int32_t alloc_locked(struct cref_device *dev, uint32_t kind,
			    uint64_t bytes, struct genai_mem *out_mem,
			    struct genai_error *err)
{
	uint64_t size;
	genai_addr addr;
	void *p;
	int32_t rc;

	if (kind != GENAI_MEM_DEVICE && kind != GENAI_MEM_HOST_PINNED)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "unknown kind of memory %u", kind);
	if (!bytes || bytes > UINT64_C(1) << 46)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "cannot allocate %llu bytes",
				 (unsigned long long)bytes);
	rc = refuse_recording(dev, "alloc", err);
	if (!rc)
		rc = cref_fault_alloc(dev, bytes, err);
	if (!rc && kind == GENAI_MEM_DEVICE)
		rc = over_limit(dev, bytes, err);
	if (rc)
		return rc;
	size = whole_pages(bytes);
	p = mmap(NULL, size, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		return CREF_FAIL(dev, err, GENAI_E_NOMEM,
				 "cannot map %llu bytes",
				 (unsigned long long)size);
	addr = (uintptr_t)p ^ CREF_ADDR_BIT;
	rc = region_add(dev, addr, bytes,
			kind == GENAI_MEM_DEVICE ? CREF_ALLOC : CREF_PINNED,
			err);
	if (rc) {
		munmap(p, size);
		return rc;
	}
	if (dev->poison)
		memset(p, POISON, bytes);
	if (kind == GENAI_MEM_DEVICE)
		dev->used_bytes += bytes;
	*out_mem = (struct genai_mem){
		sizeof(*out_mem), kind, {addr, bytes},
		kind == GENAI_MEM_DEVICE ? NULL : p};
	return 0;
}

int32_t cref_mem_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out_mem,
		       struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	(void)tag;
	pthread_mutex_lock(&dev->lock);
	rc = alloc_locked(dev, kind, bytes, out_mem, err);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// The queued operation that touches a region, or NULL.
static const struct cref_queued *queued_on(const struct cref_device *dev,
					   const struct cref_region *r)
{
	uintptr_t begin = (uintptr_t)cref_host(r->addr);

	for (uint32_t i = 0; i < CREF_MAX_STREAMS; i++) {
		const struct genai_stream *s = dev->streams[i];

		for (uint64_t k = s ? cref_done(s) : 0; s && k < s->tail; k++) {
			const struct cref_queued *op = cref_op_slot(s, k);

			for (uint32_t m = 0; m < op->n_mem; m++)
				if (op->mem[m] &&
				    (uintptr_t)op->mem[m] - begin < r->bytes)
					return op;
		}
	}
	return NULL;
}

// A ticket is checked by the core too; here so that the module stands alone,
// and so that a barrier of another module that does not wait is found out.
static int32_t check_ticket(struct cref_device *dev,
			    const struct genai_ticket *ticket,
			    const struct cref_region *r, struct genai_error *err)
{
	const struct cref_queued *op;

	if (r->recordings)
		return CREF_FAIL(dev, err, GENAI_E_BUSY,
				 "%llu bytes at %#llx are named by %u live "
				 "recordings",
				 (unsigned long long)r->bytes,
				 (unsigned long long)r->addr, r->recordings);
	op = queued_on(dev, r);
	if (op)
		return CREF_FAIL(dev, err, GENAI_E_STATE,
				 "%llu bytes at %#llx: queued work touches "
				 "them (%s, node %d): no drain came before",
				 (unsigned long long)r->bytes,
				 (unsigned long long)r->addr, op->name,
				 (int)op->node);
	if (!ticket)
		return 0;
	return dev->host->ticket_check(
		dev->host->ctx, ticket,
		(struct genai_range){r->addr, r->bytes}, err);
}

// With poison on a freed address stays out of use for a while, so that whoever
// still has it is refused instead of given somebody else's memory.
static void unmap_pages(struct cref_device *dev, genai_addr addr,
			uint64_t bytes)
{
	struct genai_range *old = &dev->freed[dev->n_freed % CREF_QUARANTINE];

	if (!dev->poison ||
	    mmap(cref_host(addr), whole_pages(bytes), PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1,
		 0) == MAP_FAILED) {
		munmap(cref_host(addr), whole_pages(bytes));
		return;
	}
	if (dev->n_freed++ >= CREF_QUARANTINE)
		munmap(cref_host(old->addr), whole_pages(old->bytes));
	*old = (struct genai_range){addr, bytes};
}

static int32_t give_back(struct cref_device *dev, genai_addr addr,
			 const struct genai_ticket *ticket, bool registered,
			 struct genai_error *err)
{
	struct cref_region *r = cref_region_find(dev, addr, 1);
	int32_t rc = refuse_recording(dev, "free", err);

	if (rc)
		return rc;
	if (!r || r->addr != addr || r->kind == CREF_MAPPED ||
	    (r->kind == CREF_REGISTERED) != registered)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "%#llx is not the start of %s",
				 (unsigned long long)addr,
				 registered ? "registered memory"
					    : "an allocation");
	rc = check_ticket(dev, ticket, r, err);
	if (rc)
		return rc;
	if (r->kind == CREF_ALLOC)
		dev->used_bytes -= r->bytes;
	if (!registered)
		unmap_pages(dev, addr, r->bytes);
	region_del(dev, r);
	return 0;
}

int32_t cref_mem_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	pthread_mutex_lock(&dev->lock);
	rc = give_back(dev, addr, ticket, false, err);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

int32_t cref_mem_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out_mem, struct genai_error *err)
{
	struct cref_device *dev = self;
	genai_addr addr = (uintptr_t)ptr ^ CREF_ADDR_BIT;
	int32_t rc;

	if (!ptr || !bytes)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "nothing to register");
	pthread_mutex_lock(&dev->lock);
	rc = refuse_recording(dev, "host_register", err);
	if (!rc)
		rc = region_add(dev, addr, bytes, CREF_REGISTERED, err);
	pthread_mutex_unlock(&dev->lock);
	if (!rc)
		*out_mem = (struct genai_mem){sizeof(*out_mem),
					      GENAI_MEM_HOST_PINNED,
					      {addr, bytes},
					      (void *)(uintptr_t)ptr};
	return rc;
}

int32_t cref_mem_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	pthread_mutex_lock(&dev->lock);
	rc = give_back(dev, addr, ticket, true, err);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// Address space that starts at a granule.
static void *reserve_aligned(uint64_t bytes)
{
	char *p = mmap(NULL, bytes + GRANULE, PROT_NONE,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	uint64_t head;

	if (p == MAP_FAILED)
		return p;
	head = round_up((uintptr_t)p, GRANULE) - (uintptr_t)p;
	if (head)
		munmap(p, head);
	munmap(p + head + bytes, GRANULE - head);
	return p + head;
}

int32_t cref_mem_reserve(void *self, uint64_t bytes,
			 struct genai_range *out_range,
			 struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;
	void *p;

	if (!bytes || bytes % GRANULE || bytes > UINT64_C(1) << 46)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "cannot reserve %llu bytes: not a multiple of "
				 "the granule %llu",
				 (unsigned long long)bytes,
				 (unsigned long long)GRANULE);
	pthread_mutex_lock(&dev->lock);
	rc = refuse_recording(dev, "reserve", err);
	if (!rc && dev->n_reserved == 16)
		rc = CREF_FAIL(dev, err, GENAI_E_LIMIT,
			       "more than 16 reserved ranges");
	if (!rc) {
		p = reserve_aligned(bytes);
		if (p == MAP_FAILED)
			rc = CREF_FAIL(dev, err, GENAI_E_NOMEM,
				       "cannot reserve %llu bytes",
				       (unsigned long long)bytes);
	}
	if (!rc) {
		*out_range = (struct genai_range){(uintptr_t)p ^ CREF_ADDR_BIT,
						  bytes};
		dev->reserved[dev->n_reserved++] = *out_range;
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static uint32_t find_reserved(const struct cref_device *dev,
			      struct genai_range range)
{
	for (uint32_t i = 0; i < dev->n_reserved; i++) {
		const struct genai_range *r = &dev->reserved[i];

		if (range.addr >= r->addr && range.bytes <= r->bytes &&
		    range.addr - r->addr <= r->bytes - range.bytes)
			return i;
	}
	return GENAI_NONE;
}

static int32_t bad_range(struct cref_device *dev, struct genai_range range,
			 struct genai_error *err)
{
	if (find_reserved(dev, range) != GENAI_NONE && range.bytes &&
	    !(range.addr % GRANULE) && !(range.bytes % GRANULE))
		return 0;
	return CREF_FAIL(dev, err, GENAI_E_INVAL,
			 "%llu bytes at %#llx are not granules of a reserved "
			 "range",
			 (unsigned long long)range.bytes,
			 (unsigned long long)range.addr);
}

int32_t cref_mem_unreserve(void *self, struct genai_range range,
			   const struct genai_ticket *ticket,
			   struct genai_error *err)
{
	struct cref_device *dev = self;
	uint32_t i;
	int32_t rc = 0;

	pthread_mutex_lock(&dev->lock);
	i = find_reserved(dev, range);
	if (i == GENAI_NONE || dev->reserved[i].bytes != range.bytes)
		rc = CREF_FAIL(dev, err, GENAI_E_INVAL,
			       "%#llx is not a reserved range",
			       (unsigned long long)range.addr);
	else if (region_after(dev, range.addr) < dev->n_regions &&
		 dev->regions[region_after(dev, range.addr)].addr <
			 range.addr + range.bytes)
		rc = CREF_FAIL(dev, err, GENAI_E_BUSY,
			       "part of the reserved range %#llx is mapped",
			       (unsigned long long)range.addr);
	if (!rc && ticket) // nothing is mapped in it any more
		rc = dev->host->ticket_check(dev->host->ctx, ticket, range,
					     err);
	if (!rc) {
		munmap(cref_host(range.addr), range.bytes);
		dev->reserved[i] = dev->reserved[--dev->n_reserved];
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

// Neighbouring mapped granules are one region: a view may span them.
static void merge_mapped(struct cref_device *dev, genai_addr addr)
{
	uint32_t i = region_after(dev, addr);

	if (i && dev->regions[i - 1].kind == CREF_MAPPED)
		i--;
	while (i + 1 < dev->n_regions) {
		struct cref_region *a = &dev->regions[i], *b = a + 1;
		struct genai_range both = {a->addr, a->bytes + b->bytes};

		if (a->kind != CREF_MAPPED || b->kind != CREF_MAPPED ||
		    a->addr + a->bytes != b->addr ||
		    find_reserved(dev, both) == GENAI_NONE || b->addr > addr)
			break;
		a->bytes += b->bytes;
		if (b->recordings > a->recordings)
			a->recordings = b->recordings;
		region_del(dev, b);
	}
}

int32_t cref_mem_map(void *self, struct genai_range range, const char *tag,
		     struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	(void)tag;
	pthread_mutex_lock(&dev->lock);
	rc = refuse_recording(dev, "map", err);
	if (!rc)
		rc = bad_range(dev, range, err);
	if (!rc)
		rc = cref_fault_alloc(dev, range.bytes, err);
	if (!rc)
		rc = over_limit(dev, range.bytes, err);
	if (!rc)
		rc = region_add(dev, range.addr, range.bytes, CREF_MAPPED, err);
	if (!rc && mprotect(cref_host(range.addr), range.bytes,
			    PROT_READ | PROT_WRITE)) {
		region_del(dev, cref_region_find(dev, range.addr, range.bytes));
		rc = CREF_FAIL(dev, err, GENAI_E_NOMEM,
			       "cannot map %llu bytes",
			       (unsigned long long)range.bytes);
	}
	if (!rc) {
		if (dev->poison)
			memset(cref_host(range.addr), POISON, range.bytes);
		dev->used_bytes += range.bytes;
		merge_mapped(dev, range.addr);
	}
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

static int32_t unmap_locked(struct cref_device *dev, struct genai_range range,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	struct cref_region *r = cref_region_find(dev, range.addr, range.bytes);
	struct cref_region old;
	int32_t rc;

	if (!r || r->kind != CREF_MAPPED)
		return CREF_FAIL(dev, err, GENAI_E_INVAL,
				 "%llu bytes at %#llx are not mapped",
				 (unsigned long long)range.bytes,
				 (unsigned long long)range.addr);
	rc = check_ticket(dev, ticket, &(struct cref_region){
					       range.addr, range.bytes,
					       CREF_MAPPED, r->recordings},
			  err);
	if (rc)
		return rc;
	old = *r;
	region_del(dev, r);
	// room for both rests is there: one was just given back, and one more
	// is made by region_add
	if (old.addr < range.addr)
		rc = region_add(dev, old.addr, range.addr - old.addr,
				CREF_MAPPED, err);
	if (!rc && old.addr + old.bytes > range.addr + range.bytes)
		rc = region_add(dev, range.addr + range.bytes,
				old.addr + old.bytes - range.addr - range.bytes,
				CREF_MAPPED, err);
	if (!rc) {
		// drops the pages and makes the range fault again
		mmap(cref_host(range.addr), range.bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED,
		     -1, 0);
		dev->used_bytes -= range.bytes;
	}
	return rc;
}

int32_t cref_mem_unmap(void *self, struct genai_range range,
		       const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	struct cref_device *dev = self;
	int32_t rc;

	pthread_mutex_lock(&dev->lock);
	rc = refuse_recording(dev, "unmap", err);
	if (!rc)
		rc = bad_range(dev, range, err);
	if (!rc)
		rc = unmap_locked(dev, range, ticket, err);
	pthread_mutex_unlock(&dev->lock);
	return rc;
}

void cref_device_free_all(struct cref_device *dev)
{
	for (uint32_t i = 0; i < dev->n_regions; i++) {
		const struct cref_region *r = &dev->regions[i];

		if (r->kind == CREF_ALLOC || r->kind == CREF_PINNED)
			munmap(cref_host(r->addr), whole_pages(r->bytes));
	}
	for (uint32_t i = 0; i < dev->n_reserved; i++)
		munmap(cref_host(dev->reserved[i].addr),
		       dev->reserved[i].bytes);
	for (uint32_t i = 0; i < dev->n_freed && i < CREF_QUARANTINE; i++)
		munmap(cref_host(dev->freed[i].addr),
		       whole_pages(dev->freed[i].bytes));
	dev->host->free(dev->host->ctx, dev->stamps);
	dev->host->free(dev->host->ctx, dev->regions);
	dev->regions = NULL;
	dev->n_regions = dev->n_reserved = 0;
}
