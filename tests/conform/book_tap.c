// book_tap.c - what a pager asks of the device and of the barrier: counted, and
// refused when a test says so.  The self of these tables is the device.
#include "tests/conform/book.h"

#include <string.h>

struct book_tap book_tap;

static const struct genai_stream_ops *stream_of(void *self)
{
	return ((struct genai_device *)self)->stream.ops;
}

static const struct genai_barrier_ops *barrier_of(void *self)
{
	return ((struct genai_device *)self)->barrier.ops;
}

static int32_t refuse(uint32_t *n, const char *what, struct genai_error *err)
{
	if (!*n || --*n)
		return 0;
	return genai_fail(err, GENAI_E_LIMIT, "%s refused on purpose", what);
}

// ---- what is held ----

static int32_t take(const char *what, struct genai_error *err)
{
	book_tap.takes++;
	return refuse(&book_tap.fail_take, what, err);
}

// Device memory by its address: free does not say how much it is.
static struct genai_range held[256];
static uint32_t n_held;

static void hold_memory(genai_addr addr, uint64_t bytes)
{
	ck_assert_msg(n_held < 256, "a pager holds %u blocks of device memory",
		      n_held);
	held[n_held++] = (struct genai_range){addr, bytes};
	book_tap.device_bytes += bytes;
	if (book_tap.device_peak < book_tap.device_bytes)
		book_tap.device_peak = book_tap.device_bytes;
}

static void drop_memory(genai_addr addr)
{
	for (uint32_t i = 0; i < n_held; i++) {
		if (held[i].addr != addr)
			continue;
		book_tap.device_bytes -= held[i].bytes;
		held[i] = held[--n_held];
		return;
	}
}

static int32_t tap_alloc(void *self, uint32_t kind, uint64_t bytes,
			 const char *tag, struct genai_mem *out,
			 struct genai_error *err)
{
	int32_t rc = take("memory", err);

	if (!rc)
		rc = stream_of(self)->alloc(self, kind, bytes, tag, out, err);
	book_tap.holds += !rc;
	if (!rc && kind == GENAI_MEM_DEVICE)
		hold_memory(out->range.addr, bytes);
	return rc;
}

static int32_t tap_free(void *self, genai_addr addr,
			const struct genai_ticket *ticket,
			struct genai_error *err)
{
	int32_t rc = stream_of(self)->free(self, addr, ticket, err);

	book_tap.holds -= !rc;
	if (!rc)
		drop_memory(addr);
	return rc;
}

static int32_t tap_register(void *self, const void *ptr, uint64_t bytes,
			    struct genai_mem *out, struct genai_error *err)
{
	int32_t rc = take("registration", err);

	if (!rc && book_tap.refuse_register)
		rc = genai_fail(err, GENAI_E_LIMIT,
				"the limit of locked memory is reached");
	if (!rc)
		rc = stream_of(self)->host_register(self, ptr, bytes, out, err);
	book_tap.holds += !rc;
	return rc;
}

static int32_t tap_unregister(void *self, genai_addr addr,
			      const struct genai_ticket *ticket,
			      struct genai_error *err)
{
	int32_t rc = stream_of(self)->host_unregister(self, addr, ticket, err);

	book_tap.holds -= !rc;
	return rc;
}

static int32_t tap_create(void *self, const char *name,
			  struct genai_stream **out, struct genai_error *err)
{
	int32_t rc = take("stream", err);

	if (!rc)
		rc = stream_of(self)->create(self, name, out, err);
	book_tap.holds += !rc;
	return rc;
}

static int32_t tap_destroy(void *self, struct genai_stream *s,
			   struct genai_error *err)
{
	int32_t rc = stream_of(self)->destroy(self, s, err);

	book_tap.holds -= !rc;
	return rc;
}

static int32_t tap_map(void *self, struct genai_range range, const char *tag,
		       struct genai_error *err)
{
	int32_t rc = take("mapping", err);

	if (!rc)
		rc = stream_of(self)->map(self, range, tag, err);
	book_tap.holds += !rc;
	return rc;
}

static int32_t tap_unmap(void *self, struct genai_range range,
			 const struct genai_ticket *ticket,
			 struct genai_error *err)
{
	int32_t rc = stream_of(self)->unmap(self, range, ticket, err);

	book_tap.holds -= !rc;
	return rc;
}

// ---- what is enqueued, and waited for ----

static int32_t call(const char *what, struct genai_error *err)
{
	book_tap.calls++;
	return refuse(&book_tap.fail_call, what, err);
}

static int32_t tap_copy(void *self, struct genai_stream *s, uint64_t dst,
			uint64_t src, uint64_t bytes, uint32_t kind,
			struct genai_error *err)
{
	int32_t rc = call("copy", err);

	if (!rc)
		rc = refuse(&book_tap.fail_copy, "copy", err);
	book_tap.copies++;
	book_tap.copies_on_steps += s == book_tap.steps;
	book_tap.copy_bytes += bytes;
	return rc ? rc
		  : stream_of(self)->copy(self, s, dst, src, bytes, kind, err);
}

static int32_t tap_mark(void *self, struct genai_stream *s,
			struct genai_point *out, struct genai_error *err)
{
	int32_t rc = call("point", err);

	return rc ? rc : stream_of(self)->mark(self, s, out, err);
}

static int32_t tap_wait(void *self, struct genai_stream *s,
			struct genai_point p, struct genai_error *err)
{
	int32_t rc = call("wait", err);

	return rc ? rc : stream_of(self)->wait(self, s, p, err);
}

static int32_t tap_poll(void *self, struct genai_point p,
			struct genai_error *err)
{
	book_tap.polls++;
	return stream_of(self)->poll(self, p, err);
}

static int32_t tap_host_read(void *self, const struct genai_point *points,
			     uint32_t n, uint64_t deadline,
			     struct genai_error *err)
{
	int32_t rc = call("barrier", err);

	book_tap.barriers++;
	return rc ? rc
		  : barrier_of(self)->host_read(self, points, n, deadline, err);
}

// Never refused: it is what comes after a refusal.
static int32_t tap_drain(void *self, struct genai_range range,
			 uint64_t deadline, struct genai_ticket *out,
			 struct genai_error *err)
{
	book_tap.barriers++;
	return barrier_of(self)->drain(self, range, deadline, out, err);
}

void book_tap_open(struct book *b)
{
	memset(&book_tap, 0, sizeof(book_tap));
	n_held = 0;
	b->tapped = *b->r.st;
	b->tapped.alloc = tap_alloc;
	b->tapped.free = tap_free;
	b->tapped.host_register = tap_register;
	b->tapped.host_unregister = tap_unregister;
	b->tapped.create = tap_create;
	b->tapped.destroy = tap_destroy;
	b->tapped.map = tap_map;
	b->tapped.unmap = tap_unmap;
	b->tapped.copy = tap_copy;
	b->tapped.mark = tap_mark;
	b->tapped.wait = tap_wait;
	b->tapped.poll = tap_poll;
	b->tapped_barrier = *b->r.ba;
	b->tapped_barrier.host_read = tap_host_read;
	b->tapped_barrier.drain = tap_drain;
	b->stream = (struct genai_stream_api){&b->tapped, b->r.d};
	b->barrier = (struct genai_barrier_api){&b->tapped_barrier, b->r.d};
}
