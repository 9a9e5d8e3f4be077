// odd.c - faults of mutant_device that need a history or an odd value: the
// second recording, the fourth plan, three shapes in turn, an address that is
// no multiple, a thread that did not open it, a number that is infinite.  The
// outermost layer of all.
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/mutants/device.h"

static struct genai_stream_ops stream; // what comes behind
static struct genai_barrier_ops barrier;

// ---- memory ----

static struct {
	genai_addr addr;
	uint64_t bytes;
} blocks[64];
static uint32_t n_blocks;

static int32_t o_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out,
		       struct genai_error *err)
{
	int32_t rc;

	if (is("tag-long") && strlen(tag) > 24)
		return mutant_fail(err, GENAI_E_INVAL, "a long tag");
	if (is("alloc-pow2") && bytes > 4096 && !(bytes & (bytes - 1)))
		bytes /= 2;
	rc = stream.alloc(self, kind, bytes, tag, out, err);
	if (!rc && n_blocks < 64) {
		blocks[n_blocks].addr = out->range.addr;
		blocks[n_blocks++].bytes = bytes;
	}
	return rc;
}

static int32_t o_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	int32_t rc;

	if (is("free-lifo") && n_blocks && blocks[n_blocks - 1].addr != addr)
		return mutant_fail(err, GENAI_E_STATE, "not the last one");
	rc = stream.free(self, addr, ticket, err);
	for (uint32_t i = 0; !rc && i < n_blocks; i++)
		if (blocks[i].addr == addr) {
			blocks[i] = blocks[--n_blocks];
			break;
		}
	return rc;
}

static int32_t o_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out, struct genai_error *err)
{
	volatile char *p = (volatile char *)(uintptr_t)ptr;

	if (is("register-touches"))
		*p = *p;
	return stream.host_register(self, ptr, bytes, out, err);
}

static genai_addr reserved;

static int32_t o_reserve(void *self, uint64_t bytes,
			 struct genai_range *out_range, struct genai_error *err)
{
	int32_t rc = stream.reserve(self, bytes, out_range, err);

	if (!rc)
		reserved = out_range->addr;
	return rc;
}

static int32_t o_map(void *self, struct genai_range range, const char *tag,
		     struct genai_error *err)
{
	if (is("map-31-bits"))
		range.addr = reserved + ((range.addr - reserved) & INT32_MAX);
	if (is("map-32-bits"))
		range.addr = reserved + ((range.addr - reserved) & UINT32_MAX);
	return stream.map(self, range, tag, err);
}

// ---- streams ----

static struct {
	struct genai_stream *s;
	char name[64];
	uint32_t n;
	pthread_t by; // who enqueued last
	bool used, failed;
	uint64_t newest;
} made[64];

static uint32_t of(const struct genai_stream *s)
{
	uint32_t i = 0;

	while (i < 63 && made[i].s != s)
		i++;
	return i;
}

static int32_t o_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	uint32_t i;
	int32_t rc;

	for (i = 0; is("name-shared") && *name && i < 64; i++)
		if (made[i].s && !strncmp(made[i].name, name, 63)) {
			made[i].n++;
			*out = made[i].s;
			return 0;
		}
	rc = stream.create(self, name, out, err);
	if (rc)
		return rc;
	i = of(NULL);
	memset(&made[i], 0, sizeof(made[i]));
	made[i].s = *out;
	made[i].n = 1;
	strncpy(made[i].name, name, 63);
	return 0;
}

static int32_t o_destroy(void *self, struct genai_stream *s,
			 struct genai_error *err)
{
	uint32_t i = of(s);
	int32_t rc;

	if (is("name-shared") && s && made[i].n > 1) {
		made[i].n--;
		return 0;
	}
	rc = stream.destroy(self, s, err);
	if (!rc)
		made[i].s = NULL;
	return rc;
}

static bool recording, copied, worked;
static uint32_t n_recordings, n_ops;
static struct {
	uint64_t dst, src, bytes;
} first_copies[64];
static pthread_t opener;

static void used(struct genai_stream *s)
{
	made[of(s)].by = pthread_self();
	made[of(s)].used = true;
}

static int32_t o_mark(void *self, struct genai_stream *s,
		      struct genai_point *out, struct genai_error *err)
{
	int32_t rc = stream.mark(self, s, out, err);

	if (!rc && !recording)
		made[of(s)].newest = out->value;
	if (!rc && is("point-12-bits") && !recording)
		out->value &= 0xfff;
	return rc;
}

static int32_t o_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	uint64_t newest = p.stream ? made[of(p.stream)].newest : 0;

	if (!recording && p.stream && p.stream != s &&
	    ((is("wait-old-8") && p.value + 8 < newest) ||
	     (is("wait-old-64") && p.value + 64 < newest) ||
	     (is("wait-thread") && made[of(p.stream)].used &&
	      !pthread_equal(made[of(p.stream)].by, pthread_self())) ||
	     (is("wait-failed") && stream.poll(self, p, NULL) < 0)))
		return 0;
	if (is("wait-recorded-4") && recording && ++n_ops > 40)
		return 0;
	return stream.wait(self, s, p, err);
}

static int32_t o_poll(void *self, struct genai_point p, struct genai_error *err)
{
	if (is("poll-thread") && p.stream && made[of(p.stream)].used &&
	    !pthread_equal(made[of(p.stream)].by, pthread_self()))
		return 0;
	return stream.poll(self, p, err);
}

static int32_t o_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	uint64_t n = bytes;
	uint32_t at = n_ops++;

	if ((is("copy-pow2") && n > 2048 && !(n & (n - 1))) ||
	    (is("copy-128k") && n == 1 << 17) ||
	    (is("copy-1mib") && n == 1 << 20) ||
	    (is("copy-4mib") && n == 4 << 20) || (is("copy-255") && n == 255) ||
	    (is("copy-1000") && n == 1000) ||
	    (is("copy-misaligned") && n > 64 && dst % 16 != src % 16 &&
	     dst % 16 && src % 16) ||
	    (is("copy-d2d-64k") && kind == GENAI_COPY_D2D && n > 1 << 16) ||
	    (is("copy-d2h-1") && kind == GENAI_COPY_D2H && n > 1 && src % 2))
		n--;
	// the second recording is taken to be the first one again
	if (is("recapture-stale") && recording && at < 64) {
		if (n_recordings == 1) {
			first_copies[at].dst = dst;
			first_copies[at].src = src;
			first_copies[at].bytes = bytes;
		} else if (first_copies[at].bytes == bytes) {
			dst = first_copies[at].dst;
			src = first_copies[at].src;
		}
	}
	used(s);
	copied = worked = true;
	return stream.copy(self, s, dst, src, n, kind, err);
}

static int32_t o_launch(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *acc, uint32_t n,
			struct genai_error *err)
{
	used(s);
	worked = true;
	return stream.launch(self, s, work, acc, n, err);
}

static int32_t o_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	used(s);
	if (is("inline-no-access") && !n && !recording)
		return work->fn(work->ctx, NULL, err);
	return stream.launch_host(self, s, work, acc, n, err);
}

static int32_t o_begin(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	int32_t rc = stream.capture_begin(self, s, err);

	if (!rc) {
		recording = true;
		n_recordings++;
		n_ops = 0;
	}
	return rc;
}

static int32_t o_end(void *self, struct genai_stream *s,
		     struct genai_recording **out, struct genai_error *err)
{
	recording = false;
	return stream.capture_end(self, s, out, err);
}

static int32_t o_abort(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	recording = false;
	return stream.capture_abort(self, s, err);
}

static int32_t o_stats(void *self, struct genai_stream_stats *out,
		       struct genai_error *err)
{
	int32_t rc = stream.stats(self, out, err);

	if (is("stats-rounds"))
		out->d2h_bytes = (out->d2h_bytes + 15) / 16 * 16;
	if (is("stats-d2d"))
		out->d2d_bytes /= 2;
	if (is("stats-kib"))
		out->h2d_bytes >>= 10;
	return rc;
}

// ---- the barrier ----

static int32_t o_read(void *self, const struct genai_point *points, uint32_t n,
		      uint64_t deadline, struct genai_error *err)
{
	struct genai_point one = {NULL, 0};

	if (is("read-thread") && !pthread_equal(opener, pthread_self()))
		return 0;
	if (is("read-same-stream"))
		for (uint32_t i = 1; i < n; i++)
			if (points[i].stream == points[0].stream)
				n = i;
	for (uint32_t i = 0; is("read-greatest") && i < n; i++)
		if (points[i].value >= one.value)
			one = points[i];
	if (is("read-greatest") && n) {
		points = &one;
		n = 1;
	}
	return barrier.host_read(self, points, n, deadline, err);
}

static int32_t o_drain(void *self, struct genai_range range, uint64_t deadline,
		       struct genai_ticket *out, struct genai_error *err)
{
	bool idle = (is("drain-copies") && !copied) ||
		    (is("drain-units") && !worked);
	struct genai_point p;

	copied = worked = false;
	if (idle)
		return 0;
	// streams that another thread used
	for (uint32_t i = 0; is("drain-own-thread") && i < 64; i++)
		if (made[i].s &&
		    (!made[i].used ||
		     pthread_equal(made[i].by, pthread_self())) &&
		    !stream.mark(self, made[i].s, &p, NULL) &&
		    barrier.host_read(self, &p, 1, deadline, NULL) ==
			    GENAI_E_DEADLINE)
			return mutant_fail(err, GENAI_E_DEADLINE, "late");
	if (is("drain-own-thread"))
		return 0;
	return barrier.drain(self, range, deadline, out, err);
}

void mutant_wrap_odd(struct genai_stream_ops *s, struct genai_barrier_ops *b)
{
	stream = *s;
	barrier = *b;
	opener = pthread_self();
	s->alloc = o_alloc;
	s->free = o_free;
	s->host_register = o_register;
	s->reserve = o_reserve;
	s->map = o_map;
	s->create = o_create;
	s->destroy = o_destroy;
	s->mark = o_mark;
	s->wait = o_wait;
	s->poll = o_poll;
	s->copy = o_copy;
	s->launch = o_launch;
	s->launch_host = o_launch_host;
	s->capture_begin = o_begin;
	s->capture_end = o_end;
	s->capture_abort = o_abort;
	s->stats = o_stats;
	b->host_read = o_read;
	b->drain = o_drain;
}
