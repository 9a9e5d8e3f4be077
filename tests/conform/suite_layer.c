// suite_layer.c - a layer in front of a device: what is not its own goes on as
// it came.  That a stack does what a device has to do is for the suites of
// streams and barriers, which run on it too.
#include "tests/conform/conform.h"

#include <string.h>

static struct cf_rt r;
static const struct genai_stream_ops *below;
static const struct genai_barrier_ops *barrier_below;
static void *below_self, *barrier_self;

static void open_stack(void)
{
	const struct genai_host *host;
	const void *ops = NULL;

	cf_open(&r, 0, NULL);
	host = genai_host_table(genai_module_host(r.tested));
	CF_OK(host->below(host->ctx, GENAI_IFACE_STREAM, &ops, &below_self,
			  &cf_err));
	below = ops;
	CF_OK(host->below(host->ctx, GENAI_IFACE_BARRIER, &ops, &barrier_self,
			  &cf_err));
	barrier_below = ops;
}

// A plan is made by what caps say, an executor chosen by it.
static void caps(void)
{
	struct genai_stream_caps a = {.size = sizeof(a)}, b = a;

	open_stack();
	CF_OK(r.d->raw.caps(r.d->raw_self, &a, &cf_err));
	CF_OK(below->caps(below_self, &b, &cf_err));
	ck_assert_msg(!strcmp(a.device_kind, b.device_kind),
		      "the device is of kind '%s', the layer says '%s'",
		      b.device_kind, a.device_kind);
	ck_assert_msg(!(a.flags & ~b.flags),
		      "the layer claims %#x, which the device cannot",
		      a.flags & ~b.flags);
	ck_assert_msg(a.alignment >= b.alignment && a.granule == b.granule &&
			      a.total_bytes <= b.total_bytes,
		      "the layer says more of memory than the device");
	ck_assert_msg(a.link_bytes_per_s == b.link_bytes_per_s &&
			      a.memory_bytes_per_s == b.memory_bytes_per_s &&
			      a.launch_ns == b.launch_ns &&
			      a.copy_latency_ns == b.copy_latency_ns &&
			      a.in_place_bytes_per_s == b.in_place_bytes_per_s,
		      "the rates of the device are not those of the layer");
	cf_close(&r);
}

// The errors of the device are its user's: code, text and who says it.
static void errors(void)
{
	struct genai_error a = GENAI_ERROR_INIT, b = GENAI_ERROR_INIT;
	struct genai_mem m = {.size = sizeof(m)};
	struct genai_range bad = {4096, 4096};
	struct genai_ticket forged = {.size = sizeof(forged)};
	int32_t ra, rb;
	int64_t ns;

#define SAME(what, slot, ...)                                                  \
	do {                                                                   \
		a = b = (struct genai_error)GENAI_ERROR_INIT;                  \
		ra = r.d->raw.slot(r.d->raw_self, __VA_ARGS__, &a);            \
		rb = below->slot(below_self, __VA_ARGS__, &b);                 \
		ck_assert_msg(ra == rb && ra < 0 && a.code == b.code &&        \
				      !strcmp(a.text, b.text) &&               \
				      !strcmp(a.module, b.module),             \
			      "%s: the device says %d (%s: %s), the layer %d " \
			      "(%s: %s)",                                      \
			      what, rb, b.module, b.text, ra, a.module,        \
			      a.text);                                         \
	} while (0)
	open_stack();
	SAME("alloc of 0 bytes", alloc, GENAI_MEM_DEVICE, 0, "x", &m);
	SAME("alloc of an unknown kind", alloc, 99, 64, "x", &m);
	SAME("free of no memory", free, 4096, &forged);
	SAME("reset without a ticket", reset, NULL);
	SAME("host_unregister of no memory", host_unregister, 4096, &forged);
	if (r.caps.flags & GENAI_STREAM_CAP_RESERVE)
		SAME("unmap of no range", unmap, bad, &forged);
	if (r.caps.flags & GENAI_STREAM_CAP_SIGNAL)
		SAME("a signal for nobody", signal, &m, NULL);
	if (r.caps.flags & GENAI_STREAM_CAP_STAMPS)
		SAME("a stamp of nothing", elapsed, 0, 0, &ns);
	// nobody has to ask why
	ck_assert_int_lt(r.d->raw.alloc(r.d->raw_self, 99, 64, "x", &m, NULL),
			 0);
	cf_close(&r);
}

// What the device counts and what time it says.
static void counts(void)
{
	struct genai_stream_stats a = {.size = sizeof(a)}, b = a;
	struct genai_stream *s;
	struct genai_mem up, dev;

	open_stack();
	s = cf_stream(&r, "s");
	up = cf_pinned(&r, 4096);
	dev = cf_alloc(&r, 4096);
	memset(up.host, 1, 4096);
	for (int i = 0; i < 20; i++)
		cf_copy(&r, s, dev.range.addr, (uintptr_t)up.host, 4096,
			GENAI_COPY_H2D);
	cf_finish(&r, s);
	CF_OK(r.d->raw.stats(r.d->raw_self, &a, &cf_err));
	CF_OK(below->stats(below_self, &b, &cf_err));
	ck_assert_msg(
		a.copies == b.copies && a.h2d_bytes == b.h2d_bytes &&
			a.launches == b.launches &&
			a.simulated_ns == b.simulated_ns &&
			a.device_used_bytes == b.device_used_bytes,
		"the layer's statistics are not the device's: %llu "
		"copies of %llu bytes, the device has %llu of %llu",
		(unsigned long long)a.copies, (unsigned long long)a.h2d_bytes,
		(unsigned long long)b.copies, (unsigned long long)b.h2d_bytes);
	ck_assert_uint_eq(a.copies, 20);
	ck_assert_uint_eq(a.h2d_bytes, 20 * 4096);
	cf_free(&r, &up);
	cf_free(&r, &dev);
	cf_destroy(&r, s);
	cf_close(&r);
}

static int32_t say(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)mem;
	return genai_fail(err, GENAI_E_IO, "%s", (const char *)ctx);
}

// Names, nodes and contexts arrive below as they were given above: they are
// what a message says.
static void names_pass(void)
{
	static char text[] = "a unit's own text";
	struct genai_work w = {sizeof(w), 41, "named", say, text};
	struct genai_ticket t;
	struct genai_stream *s;
	struct genai_point p;

	open_stack();
	s = cf_stream(&r, "s");
	CF_OK(r.st->launch_host(r.d, s, &w, NULL, 0, &cf_err));
	p = cf_mark(&r, s);
	CF_FAILS(GENAI_E_IO, r.ba->host_read(r.d, &p, 1, UINT64_MAX, &cf_err));
	ck_assert_msg(strstr(cf_err.text, text) && cf_err.node == 41,
		      "a unit of node 41 says '%s', the layer '%s' of node %u",
		      text, cf_err.text, cf_err.node);
	t = cf_drain(&r);
	CF_OK(r.st->reset(r.d, &t, &cf_err));
	cf_destroy(&r, s);
	cf_close(&r);
}

#define L GENAI_IFACE_STREAM_LAYER
static const struct cf_test tests[] = {
	{"layer/caps", "GM-160", L, 0, caps},
	{"layer/errors", "GM-161", L, 0, errors},
	{"layer/counts", "GM-162", L, 0, counts},
	{"layer/units", "GM-161", L, 0, names_pass},
};
const struct cf_suite cf_suite_layer = {tests,
					sizeof(tests) / sizeof(tests[0])};
