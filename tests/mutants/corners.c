// corners.c - faults of mutant_device that show in one corner only: at one
// size, in one type, when a call is refused, after a reset, from another
// thread, or beside another device: the outermost layer.
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdlib.h>

#include "tests/mutants/device.h"

static struct genai_stream_ops stream; // what comes behind
static struct genai_barrier_ops barrier;

static int32_t refused(int32_t rc)
{
	if (rc && is("refused-descriptor"))
		(void)open("/dev/null", O_RDONLY);
	if (rc && is("refused-malloc"))
		mutant_leak(64);
	return rc;
}

// ---- recordings ----

static uint32_t n_open; // of all devices
static pthread_t opener;
static bool was_reset, a_failure;
static unsigned char seen[1 << 20] __attribute__((aligned(4096)));
static uint64_t n_seen;
static struct genai_mem seen_mem;

static int32_t c_begin(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	int32_t rc;

	seen_mem.size = sizeof(seen_mem);
	if (is("replay-snapshot") && !seen_mem.host)
		stream.host_register(self, seen, sizeof(seen), &seen_mem, NULL);
	rc = stream.capture_begin(self, s, err);
	if (!rc)
		opener = pthread_self();
	n_open += !rc;
	return refused(rc);
}

static int32_t c_end(void *self, struct genai_stream *s,
		     struct genai_recording **out, struct genai_error *err)
{
	n_open -= n_open > 0;
	return refused(stream.capture_end(self, s, out, err));
}

static int32_t c_abort(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	n_open -= n_open > 0;
	return stream.capture_abort(self, s, err);
}

static int32_t c_graph(void *self, struct genai_recording *rec,
		       struct genai_stream *s, struct genai_error *err)
{
	if (is("replay-after-reset") && was_reset) {
		was_reset = false;
		return 0;
	}
	return stream.launch_graph(self, rec, s, err);
}

// ---- memory ----

static uint64_t registered_end;
static struct genai_range pinned[64];
static uint32_t n_pinned;

static int32_t c_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out,
		       struct genai_error *err)
{
	int32_t rc;

	if (n_open && is("record-shared"))
		return mutant_fail(err, GENAI_E_STATE, "a recording is open");
	// who records is remembered by thread
	if (n_open && is("record-thread") &&
	    !pthread_equal(opener, pthread_self())) {
		static char some[4096] __attribute__((aligned(4096)));

		*out = (struct genai_mem){
			sizeof(*out), kind, {(uintptr_t)some, bytes}, NULL};
		return 0;
	}
	rc = stream.alloc(self, kind, bytes, tag, out, err);
	if (!rc && kind == GENAI_MEM_HOST_PINNED)
		pinned[n_pinned++ % 64] = out->range;
	return refused(rc);
}

static int32_t c_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	static uint64_t used;
	static uint32_t times;

	if (is("ticket-once") && ticket) {
		if (ticket->seal == used && ++times > 3)
			return mutant_fail(err, GENAI_E_STATE, "used ticket");
		if (ticket->seal != used)
			times = 0;
		used = ticket->seal;
	}
	return refused(stream.free(self, addr, ticket, err));
}

static int32_t c_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out, struct genai_error *err)
{
	int32_t rc;

	if (is("register-unaligned") && (uintptr_t)ptr % 64)
		return mutant_fail(err, GENAI_E_LIMIT, "not at a line");
	if (is("register-odd") && bytes % 64)
		return mutant_fail(err, GENAI_E_LIMIT, "not of whole lines");
	rc = stream.host_register(self, ptr, bytes, out, err);
	if (!rc && is("register-one-less"))
		registered_end = (uintptr_t)ptr + bytes;
	if (rc && is("refused-host"))
		mutant_host->alloc(mutant_host->ctx, 64, "left");
	return refused(rc);
}

// ---- streams ----

static struct {
	struct genai_stream *s;
	bool late; // made after the first drain
} made[64];
static bool drained;

static int32_t c_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	uint32_t i = 0;
	int32_t rc;

	if (is("name-empty") && !*name)
		return mutant_fail(err, GENAI_E_INVAL, "no name");
	rc = stream.create(self, name, out, err);
	while (i < 63 && made[i].s)
		i++;
	if (rc)
		return refused(rc);
	made[i].s = *out;
	made[i].late = drained;
	return 0;
}

static int32_t c_destroy(void *self, struct genai_stream *s,
			 struct genai_error *err)
{
	int32_t rc = stream.destroy(self, s, err);

	for (uint32_t i = 0; !rc && i < 64; i++)
		if (made[i].s == s)
			made[i].s = NULL;
	return refused(rc);
}

static int32_t c_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	struct genai_point now;

	if (was_reset && is("waits-after-reset"))
		return 0;
	// a stream that failed is waited for as a whole
	if (is("poison-past") && a_failure && p.stream && p.stream != s &&
	    !stream.poll(self, p, NULL) &&
	    !stream.mark(self, p.stream, &now, NULL) &&
	    stream.poll(self, now, NULL) < 0)
		p = now;
	return refused(stream.wait(self, s, p, err));
}

static struct {
	void *self;
	uint64_t bytes;
} of_device[8];
static uint64_t refusals;

static void count(void *self, uint64_t bytes)
{
	uint32_t i = 0;

	while (i < 7 && of_device[i].self && of_device[i].self != self)
		i++;
	of_device[i].self = self;
	of_device[i].bytes += bytes;
}

static int32_t c_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	uint64_t n = bytes;
	int32_t rc;

	if ((is("copy-4095") && n % 4096 == 4095) ||
	    (is("copy-65536") && n == 65536) ||
	    (is("copy-64k-1") && n == 65537) ||
	    (is("copy-3") && n == 3 && kind == GENAI_COPY_D2D) ||
	    (is("copy-dst-odd") && dst % 16 == 15 && n > 1))
		n--;
	if (is("replay-snapshot") && n_open && kind == GENAI_COPY_H2D &&
	    seen_mem.host && n <= sizeof(seen) - n_seen) {
		memcpy(seen + n_seen, (const void *)(uintptr_t)src, n);
		src = (uintptr_t)seen + n_seen;
		n_seen += (n + 63) / 64 * 64;
	}
	if (registered_end && kind == GENAI_COPY_H2D &&
	    src + n == registered_end)
		return mutant_fail(err, GENAI_E_INVAL, "not registered");
	rc = stream.copy(self, s, dst, src, n, kind, err);
	if (!rc && kind == GENAI_COPY_H2D)
		count(self, n);
	refusals += rc != 0;
	return refused(rc);
}

static int32_t c_launch(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *acc, uint32_t n,
			struct genai_error *err)
{
	for (uint32_t i = 0; is("pinned-no-units") && i < n; i++)
		for (uint32_t k = 0; k < 64; k++)
			if (acc[i].bytes && acc[i].addr >= pinned[k].addr &&
			    acc[i].addr - pinned[k].addr < pinned[k].bytes)
				return mutant_fail(err, GENAI_E_INVAL,
						   "it is the host's");
	return stream.launch(self, s, work, acc, n, err);
}

static int32_t c_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	int32_t rc = stream.launch_host(self, s, work, acc, n, err);

	if (rc && is("refused-runs"))
		stream.launch_host(self, s, work, NULL, 0, NULL);
	refusals += rc != 0;
	return refused(rc);
}

static int32_t c_reset(void *self, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	int32_t rc = stream.reset(self, ticket, err);

	was_reset |= !rc;
	return refused(rc);
}

static int32_t c_stats(void *self, struct genai_stream_stats *out,
		       struct genai_error *err)
{
	static uint64_t at_reset;
	int32_t rc = stream.stats(self, out, err);

	if (is("stats-refused"))
		out->copies += refusals;
	// what all devices copied outside of recordings
	if (is("stats-shared"))
		for (uint32_t i = 0; i < 8; i++)
			if (of_device[i].self != self)
				out->h2d_bytes += of_device[i].bytes;
	if (is("stats-reset") && was_reset) {
		if (!at_reset)
			at_reset = out->copies;
		out->copies -= at_reset;
	}
	return rc;
}

// ---- the barrier ----

static int32_t c_read(void *self, const struct genai_point *points, uint32_t n,
		      uint64_t deadline, struct genai_error *err)
{
	int32_t rc;

	if (is("read-late") && deadline != UINT64_MAX &&
	    deadline < mutant_host->clock_ns(mutant_host->ctx))
		return mutant_fail(err, GENAI_E_DEADLINE, "it is late");
	if (is("read-null-first") && n && !points[0].stream)
		return 0;
	if (is("deadline-overflow") && deadline != UINT64_MAX &&
	    deadline > INT64_MAX)
		return mutant_fail(err, GENAI_E_DEADLINE, "it is late");
	rc = barrier.host_read(self, points, n, deadline, err);
	a_failure |= rc && rc != GENAI_E_DEADLINE && rc != GENAI_E_STATE;
	if (rc && err && is("text-256"))
		err->text[255] = 0;
	if (rc < GENAI_E_NOSYS && is("code-rare")) {
		if (err)
			err->code = GENAI_E_DEVICE;
		return GENAI_E_DEVICE;
	}
	return rc;
}

static int32_t c_drain(void *self, struct genai_range range, uint64_t deadline,
		       struct genai_ticket *out, struct genai_error *err)
{
	bool all = !range.addr && range.bytes == GENAI_RANGE_ALL_BYTES;
	struct genai_point p;
	int32_t rc = 0;

	if (is("drain-late") && deadline != UINT64_MAX &&
	    deadline < mutant_host->clock_ns(mutant_host->ctx))
		return mutant_fail(err, GENAI_E_DEADLINE, "it is late");
	if ((is("drain-byte") && range.bytes == 1) ||
	    (is("drain-inside") && !all && range.addr % 4096))
		return 0;
	if (is("drain-overflow") && deadline != UINT64_MAX &&
	    deadline > INT64_MAX)
		return mutant_fail(err, GENAI_E_DEADLINE, "it is late");
	if (is("drain-known") && drained && all) {
		// the streams that there were at the first time
		for (uint32_t i = 0; !rc && i < 64; i++)
			if (made[i].s && !made[i].late &&
			    !stream.mark(self, made[i].s, &p, NULL))
				rc = barrier.host_read(self, &p, 1, deadline,
						       NULL) == GENAI_E_DEADLINE
					     ? mutant_fail(err,
							   GENAI_E_DEADLINE,
							   "it is late")
					     : 0;
		return rc;
	}
	drained = true;
	return barrier.drain(self, range, deadline, out, err);
}

void mutant_wrap_corners(struct genai_stream_ops *s,
			 struct genai_barrier_ops *b)
{
	stream = *s;
	barrier = *b;
	s->alloc = c_alloc;
	s->free = c_free;
	s->host_register = c_register;
	s->create = c_create;
	s->destroy = c_destroy;
	s->wait = c_wait;
	s->copy = c_copy;
	if (s->launch)
		s->launch = c_launch;
	s->launch_host = c_launch_host;
	s->capture_begin = c_begin;
	s->capture_end = c_end;
	s->capture_abort = c_abort;
	if (s->launch_graph)
		s->launch_graph = c_graph;
	s->reset = c_reset;
	s->stats = c_stats;
	b->host_read = c_read;
	b->drain = c_drain;
}
