// many.c - faults of mutant_device that show in size, in number, in time, or
// when it is not alone: a second layer in front of device.c's tables.
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "tests/mutants/device.h"

#define MIB (UINT64_C(1) << 20)
#define SLOTS 64

static struct genai_stream_ops stream; // what comes behind
static struct genai_barrier_ops barrier;
static uint64_t threads; // the key
static bool recording, closed;
static struct genai_stream *by_order[SLOTS]; // of being made

// ---- streams and their numbers ----

// A stream's number is the first that is free.
static struct {
	struct genai_stream *s;
	uint64_t known[SLOTS]; // not forgotten with the stream
	bool failed;
	uint32_t order;
} slots[SLOTS];

static uint32_t number(const struct genai_stream *s)
{
	uint32_t i = 0;

	while (i < SLOTS - 1 && slots[i].s != s)
		i++;
	return i;
}

static void *sleep_for_ever(void *arg)
{
	for (;;)
		pause();
	return arg;
}

static int32_t m_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	static uint32_t n_made, n_of_latest;
	static void *owner;
	uint32_t i = number(NULL);
	pthread_t t;
	int32_t rc;

	mutant_manners("create");
	if ((is("streams-4") && i >= 4) || (is("streams-8") && i >= 8))
		return mutant_fail(err, GENAI_E_LIMIT, "no more streams");
	rc = stream.create(self, name, out, err);
	if (rc)
		return rc;
	slots[i].s = *out;
	n_of_latest = self == owner ? n_of_latest + 1 : 0;
	owner = self;
	slots[i].order = n_of_latest % SLOTS;
	by_order[slots[i].order] = *out;
	if (is("create-thread") && n_made++ % 200 == 199)
		pthread_create(&t, NULL, sleep_for_ever, NULL);
	if (is("create-descriptor"))
		(void)open("/dev/null", O_RDONLY);
	return 0;
}

static int32_t m_destroy(void *self, struct genai_stream *s,
			 struct genai_error *err)
{
	int32_t rc = is("destroy-keeps") ? 0 : stream.destroy(self, s, err);

	if (!rc)
		slots[number(s)].s = NULL;
	return rc;
}

// ---- memory ----

static uint32_t n_blocks, n_registered;

static int32_t m_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out,
		       struct genai_error *err)
{
	static genai_addr first;
	int32_t rc;

	mutant_manners("alloc");
	if ((is("blocks-64") && n_blocks >= 64) ||
	    (is("blocks-128") && n_blocks >= 128))
		return mutant_fail(err, GENAI_E_LIMIT, "no more blocks");
	rc = stream.alloc(self, kind, bytes, tag, out, err);
	if (rc)
		return rc;
	n_blocks++;
	if (kind == GENAI_MEM_DEVICE && n_blocks == 1)
		first = out->range.addr;
	if (is("blocks-overlap") && kind == GENAI_MEM_DEVICE && n_blocks == 101)
		out->range.addr = first;
	return 0;
}

static int32_t m_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	static uint32_t n;
	int32_t rc;

	if (is("free-1-of-3") && ++n % 3)
		return 0;
	rc = stream.free(self, addr, ticket, err);
	n_blocks -= !rc;
	return rc;
}

static int32_t m_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out, struct genai_error *err)
{
	int32_t rc;

	if (is("registered-16") && n_registered >= 16)
		return mutant_fail(err, GENAI_E_LIMIT, "no more registrations");
	if (is("register-malloc"))
		mutant_leak(bytes);
	rc = stream.host_register(self, ptr, bytes, out, err);
	n_registered += !rc;
	return rc;
}

static int32_t m_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	int32_t rc = stream.host_unregister(self, addr, ticket, err);

	n_registered -= !rc;
	return rc;
}

// ---- time ----

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// Is the device busy?  Then wait a little, and go on all the same.
static void linger(const char *spins, const char *sleeps)
{
	uint64_t until = now() + 8000000;
	struct timespec pause = {0, 8000000};

	while (is(spins) && now() < until)
		;
	if (is(sleeps))
		nanosleep(&pause, NULL);
}

static bool is_busy(void *self, struct genai_stream *s)
{
	struct genai_point p;

	return !recording && !stream.mark(self, s, &p, NULL) &&
	       stream.poll(self, p, NULL) != 0;
}

// ---- what is enqueued ----

static uint32_t n_recorded, n_marks, n_waits, n_copies;

// Is what is enqueued now beyond what a recording holds?
static bool too_long(void)
{
	n_recorded += recording;
	return recording && ((is("record-4096") && n_recorded > 4096) ||
			     (is("record-1024") && n_recorded > 1024));
}

static int32_t m_mark(void *self, struct genai_stream *s,
		      struct genai_point *out, struct genai_error *err)
{
	n_marks++;
	if (is("mark-malloc"))
		mutant_leak(64);
	return stream.mark(self, s, out, err);
}

static int32_t m_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	uint32_t on = number(s), of = number(p.stream);

	n_waits++;
	if (recording || !p.stream)
		return stream.wait(self, s, p, err);
	if ((is("waits-4") && of >= 4) || (is("waits-8") && of >= 8) ||
	    (is("waits-of-8") && on >= 8) ||
	    (is("waits-1000") && n_waits > 1000))
		return 0;
	if (is("reuse-known")) {
		if (slots[on].known[of] >= p.value)
			return 0;
		slots[on].known[of] = p.value;
	}
	return stream.wait(self, s, p, err);
}

static int32_t m_poll(void *self, struct genai_point p, struct genai_error *err)
{
	if (is("poll-1000") && n_marks > 1000 && p.value < 100)
		return GENAI_PENDING;
	return stream.poll(self, p, err);
}

static struct {
	void *self;
	struct genai_stream *s;
	uint64_t dst, src, bytes;
	uint32_t kind;
} scratch;

static uint64_t cut(uint64_t bytes, uint32_t kind)
{
	if ((is("copy-2mib") && bytes > 2 * MIB))
		return 2 * MIB;
	if (is("copy-16mib") && bytes > 16 * MIB)
		return 16 * MIB;
	if (is("copy-d2d-32mib") && kind == GENAI_COPY_D2D && bytes > 32 * MIB)
		return 32 * MIB;
	if (is("copy-d2h-32mib") && kind == GENAI_COPY_D2H && bytes > 32 * MIB)
		return 32 * MIB;
	if (is("copy-26-bits") && bytes >= 64 * MIB)
		return bytes & (64 * MIB - 1);
	if (is("copy-in-pages") && bytes > MIB)
		return bytes / 4096 * 4096;
	if ((is("threads-most") && threads == 256) ||
	    (is("threads-least") && threads == 1) ||
	    (is("threads-odd") && threads > 2 && threads % 2))
		return bytes - 1;
	return bytes;
}

static int32_t m_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	mutant_manners("copy");
	n_copies++;
	if (is("copy-descriptor") && n_copies % 500 == 0)
		(void)open("/dev/null", O_RDONLY);
	if (is("shared-streams"))
		s = by_order[slots[number(s)].order];
	if (is("fini-stops-all") && closed)
		return mutant_fail(err, GENAI_E_STATE, "it was closed");
	if (too_long())
		return 0;
	if (is("copy-spins") && is_busy(self, s))
		linger("copy-spins", "");
	if (is("copy-sleeps") && is_busy(self, s))
		linger("", "copy-sleeps");
	if (is("static-scratch")) {
		struct timespec pause = {0, 50000};

		scratch.self = self;
		scratch.s = s;
		scratch.dst = dst;
		scratch.src = src;
		scratch.bytes = bytes;
		scratch.kind = kind;
		nanosleep(&pause, NULL);
		return stream.copy(scratch.self, scratch.s, scratch.dst,
				   scratch.src, scratch.bytes, scratch.kind,
				   err);
	}
	return stream.copy(self, s, dst, src, cut(bytes, kind), kind, err);
}

static int32_t m_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	static uint32_t n_units;

	mutant_manners("launch");
	if (is("launch-1000") && ++n_units > 1000)
		return 0;
	if (is("launch-spins") && is_busy(self, s))
		linger("launch-spins", "");
	return stream.launch_host(self, s, work, acc, n, err);
}

// ---- recordings ----

static struct genai_recording *live[32];
static uint32_t n_live;

static int32_t m_begin(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	int32_t rc;

	if (is("recordings-8") && n_live >= 8)
		return mutant_fail(err, GENAI_E_LIMIT, "no more recordings");
	rc = stream.capture_begin(self, s, err);
	recording |= !rc;
	n_recorded = 0;
	return rc;
}

static int32_t m_end(void *self, struct genai_stream *s,
		     struct genai_recording **out, struct genai_error *err)
{
	int32_t rc = stream.capture_end(self, s, out, err);

	recording = false;
	if (!rc)
		live[n_live++ % 32] = *out;
	return rc;
}

static int32_t m_abort(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	struct genai_recording *rec;

	recording = false;
	if (is("abort-runs") && !stream.capture_end(self, s, &rec, NULL))
		return stream.launch_graph(self, rec, s, err);
	return stream.capture_abort(self, s, err);
}

static int32_t m_graph(void *self, struct genai_recording *rec,
		       struct genai_stream *s, struct genai_error *err)
{
	static uint32_t n;

	n++;
	if ((is("replay-1000") && n > 1000) || (is("replay-256") && !(n % 256)))
		return 0;
	if (is("recordings-mixed") && n_live > 16 && rec == live[16])
		rec = live[0];
	if (is("replay-spins") && is_busy(self, s))
		linger("replay-spins", "");
	return stream.launch_graph(self, rec, s, err);
}

static int32_t m_graph_destroy(void *self, struct genai_recording *rec,
			       const struct genai_ticket *ticket,
			       struct genai_error *err)
{
	if (is("graph-keeps"))
		return 0;
	return stream.graph_destroy(self, rec, ticket, err);
}

static int32_t m_reset(void *self, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	static uint32_t n;

	if (is("reset-once") && n++)
		return mutant_host->ticket_check(
			mutant_host->ctx, ticket,
			(struct genai_range){0, GENAI_RANGE_ALL_BYTES}, err);
	return stream.reset(self, ticket, err);
}

// ---- the barrier ----

static int32_t m_read(void *self, const struct genai_point *points, uint32_t n,
		      uint64_t deadline, struct genai_error *err)
{
	static struct genai_error first;
	uint32_t most = is("points-8")	  ? 8
			: is("points-16") ? 16
			: is("points-32") ? 32
			: is("points-63") ? 63
					  : n;
	static uint32_t calls;
	int32_t rc;

	mutant_manners("read");
	if (is("read-1000") && ++calls > 1000)
		return 0;
	if (is("read-malloc"))
		mutant_leak(64);
	if (is("read-descriptor") && ++calls % 100 == 0)
		(void)open("/dev/null", O_RDONLY);
	rc = barrier.host_read(self, points, n < most ? n : most, deadline,
			       err);
	if (rc == GENAI_E_FORMAT && n == 1 && is("reuse-poison"))
		slots[number(points->stream)].failed = true;
	if (!rc && n == 1 && points->stream &&
	    slots[number(points->stream)].failed)
		return mutant_fail(err, GENAI_E_FORMAT,
				   "the one before failed");
	if (rc && err && is("first-error")) {
		if (!first.code)
			first = *err;
		memcpy(err->text, first.text, sizeof(err->text));
	}
	return rc;
}

static int32_t m_drain(void *self, struct genai_range range, uint64_t deadline,
		       struct genai_ticket *out, struct genai_error *err)
{
	uint32_t most = is("drains-4") ? 4 : is("drains-8") ? 8 : 0;
	struct genai_point p;

	if (is("drain-malloc"))
		mutant_leak(64);
	for (uint32_t i = 0; i < most; i++)
		if (slots[i].s && !stream.mark(self, slots[i].s, &p, NULL))
			barrier.host_read(self, &p, 1, deadline, NULL);
	return most ? 0 : barrier.drain(self, range, deadline, out, err);
}

void mutant_wrap_many(struct genai_stream_ops *s, struct genai_barrier_ops *b)
{
	stream = *s;
	barrier = *b;
	mutant_host->config_get_u64(mutant_host->ctx, "threads", &threads);
	s->create = m_create;
	s->destroy = m_destroy;
	s->alloc = m_alloc;
	s->free = m_free;
	s->host_register = m_register;
	s->host_unregister = m_unregister;
	s->mark = m_mark;
	s->wait = m_wait;
	s->poll = m_poll;
	s->copy = m_copy;
	s->launch_host = m_launch_host;
	s->capture_begin = m_begin;
	s->capture_end = m_end;
	s->capture_abort = m_abort;
	if (s->launch_graph)
		s->launch_graph = m_graph;
	s->graph_destroy = m_graph_destroy;
	s->reset = m_reset;
	b->host_read = m_read;
	b->drain = m_drain;
}

void mutant_up(void *self)
{
	(void)self;
	mutant_manners("init");
}

void mutant_down(void)
{
	closed = true;
	mutant_manners("fini");
}
