// suite_memory.c - the memory of a stream runtime, and who may give it back.
#include "tests/conform/conform.h"

#include <stdlib.h>
#include <string.h>

#define KIB UINT64_C(1024)

static struct cf_rt r;

// ---- caps and memory ----

static void caps(void)
{
	struct genai_stream_caps a = {.size = sizeof(a)}, b = a;

	cf_open(&r, 0, NULL);
	CF_OK(r.d->raw.caps(r.d->raw_self, &a, &cf_err));
	CF_OK(r.d->raw.caps(r.d->raw_self, &b, NULL));
	ck_assert_uint_eq(a.flags, b.flags);
	ck_assert_str_eq(a.device_kind, b.device_kind);
	ck_assert_uint_ge(a.total_bytes, a.free_bytes);
	ck_assert_msg(a.device_name[0], "the device has no name");
	cf_close(&r);
}

static void alloc(void)
{
	static const uint64_t sizes[] = {1, 255, 4096, 4097, 100 * KIB};
	struct genai_mem m[10], none = {.size = 12345};
	struct genai_mem named = {.size = sizeof(named)};

	cf_open(&r, 0, NULL);
	for (uint32_t i = 0; i < 10; i++)
		m[i] = i % 2 ? cf_pinned(&r, sizes[i / 2])
			     : cf_alloc(&r, sizes[i / 2]);
	CF_OK(r.st->alloc(r.d, GENAI_MEM_DEVICE, 64,
			  "a tag is any text, which somebody may read later",
			  &named, &cf_err));
	cf_free(&r, &named);
	for (uint32_t i = 0; i < 10; i++) {
		ck_assert_uint_eq(m[i].size, sizeof(m[i]));
		ck_assert_uint_eq(m[i].range.addr % r.caps.alignment, 0);
		ck_assert_uint_ge(m[i].range.bytes, sizes[i / 2]);
		ck_assert_msg((m[i].host != NULL) == i % 2,
			      "host address of memory of kind %u: %p",
			      m[i].kind, m[i].host);
		for (uint32_t k = 0; k < i; k++)
			ck_assert_msg(
				m[k].range.addr + m[k].range.bytes <=
						m[i].range.addr ||
					m[i].range.addr + m[i].range.bytes <=
						m[k].range.addr,
				"two allocations overlap");
	}
	for (uint32_t i = 1; i < 10; i += 2)
		memset(m[i].host, 0x5a, sizes[i / 2]);
	CF_FAILS(GENAI_E_INVAL, r.d->raw.alloc(r.d->raw_self, GENAI_MEM_DEVICE,
					       0, "x", &none, &cf_err));
	CF_FAILS(GENAI_E_INVAL,
		 r.d->raw.alloc(r.d->raw_self, 99, 64, "x", &none, &cf_err));
	CF_FAILS(0, r.d->raw.alloc(r.d->raw_self, GENAI_MEM_DEVICE,
				   UINT64_C(1) << 60, "x", &none, &cf_err));
	CF_FAILS(0, r.d->raw.alloc(r.d->raw_self, GENAI_MEM_HOST_PINNED,
				   UINT64_MAX - 8, "x", &none, &cf_err));
	ck_assert_msg(none.size == 12345, "an output was written on failure");
	for (uint32_t i = 0; i < 10; i++)
		CF_OK(r.st->free(r.d, m[i].range.addr, NULL, &cf_err));
	cf_close(&r);
}

static void free_ticket(void)
{
	struct genai_mem a, b;
	struct genai_ticket t;
	struct genai_stream *s;

	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	a = cf_alloc(&r, 4096);
	b = cf_pinned(&r, 4096);
	cf_copy(&r, s, a.range.addr, (uintptr_t)b.host, 4096, GENAI_COPY_H2D);
	CF_FAILS(GENAI_E_STATE, r.st->free(r.d, a.range.addr, NULL, &cf_err));
	t = cf_drain(&r);
	cf_copy(&r, s, a.range.addr, (uintptr_t)b.host, 64, GENAI_COPY_H2D);
	CF_FAILS(GENAI_E_STATE, r.st->free(r.d, a.range.addr, &t, &cf_err));
	t = cf_drain(&r);
	CF_FAILS(GENAI_E_INVAL,
		 r.st->free(r.d, a.range.addr + 64, &t, &cf_err));
	CF_FAILS(GENAI_E_INVAL,
		 r.d->raw.free(r.d->raw_self, a.range.addr + 64, &t, &cf_err));
	CF_OK(r.st->free(r.d, a.range.addr, &t, &cf_err));
	CF_OK(r.st->free(r.d, b.range.addr, &t, &cf_err));
	CF_FAILS(GENAI_E_INVAL, r.st->free(r.d, a.range.addr, &t, &cf_err));
	CF_FAILS(GENAI_E_INVAL,
		 r.d->raw.free(r.d->raw_self, a.range.addr, &t, &cf_err));
	cf_destroy(&r, s);
	cf_close(&r);
}

// The module's own check, without the core's in front of it: of tickets that
// were made up, of another device, of another range.
static struct genai_ticket good, bad[3];

static void make_tickets(struct genai_range elsewhere)
{
	good = cf_drain(&r);
	bad[0] = bad[1] = good;
	bad[0].seal ^= 1;
	bad[1].device++;
	bad[2].size = sizeof(bad[2]);
	CF_OK(r.ba->drain(r.d, elsewhere, UINT64_MAX, &bad[2], &cf_err));
}

static void ticket_kinds(void)
{
	const struct genai_stream_ops *raw;
	unsigned char *file = aligned_alloc(4096, 4096);
	struct genai_mem a, b, reg = {.size = sizeof(reg)};
	struct genai_stream *s;
	bool registers;

	memset(file, 1, 4096);
	cf_open(&r, 0, NULL);
	raw = &r.d->raw;
	s = cf_stream(&r, "s");
	a = cf_alloc(&r, 4096);
	b = cf_alloc(&r, 4096);
	registers = cf_registers(&r);
	if (registers) {
		CF_OK(r.st->host_register(r.d, file, 4096, &reg, &cf_err));
		cf_copy(&r, s, a.range.addr, (uintptr_t)file, 4096,
			GENAI_COPY_H2D);
	}
	cf_copy(&r, s, a.range.addr, b.range.addr, 4096, GENAI_COPY_D2D);
	make_tickets(b.range);
	for (int i = 0; i < 3; i++) {
		CF_FAILS(GENAI_E_STATE, raw->free(r.d->raw_self, a.range.addr,
						  &bad[i], &cf_err));
		if (registers)
			CF_FAILS(GENAI_E_STATE,
				 raw->host_unregister(r.d->raw_self,
						      reg.range.addr, &bad[i],
						      &cf_err));
		CF_FAILS(GENAI_E_STATE,
			 raw->reset(r.d->raw_self, &bad[i], &cf_err));
	}
	CF_FAILS(GENAI_E_STATE, raw->reset(r.d->raw_self, NULL, &cf_err));
	CF_OK(r.st->free(r.d, b.range.addr, &bad[2], &cf_err));
	CF_OK(r.st->free(r.d, a.range.addr, &good, &cf_err));
	if (registers)
		CF_OK(r.st->host_unregister(r.d, reg.range.addr, &good,
					    &cf_err));
	cf_destroy(&r, s);
	cf_close(&r);
	free(file);
}

static void ticket_ranges(void)
{
	const struct genai_stream_ops *raw;
	struct genai_range all = {0}, part;
	struct genai_mem b;

	cf_open(&r, 0, NULL);
	raw = &r.d->raw;
	b = cf_alloc(&r, 4096);
	CF_OK(r.st->reserve(r.d, r.caps.granule, &all, &cf_err));
	part = (struct genai_range){all.addr, r.caps.granule};
	CF_OK(r.st->map(r.d, part, "kv", &cf_err));
	cf_put(&r, part.addr, &good, sizeof(good));
	make_tickets(b.range);
	for (int i = 0; i < 3; i++)
		CF_FAILS(GENAI_E_STATE,
			 raw->unmap(r.d->raw_self, part, &bad[i], &cf_err));
	CF_OK(r.st->unmap(r.d, part, &good, &cf_err));
	for (int i = 0; i < 3; i++)
		CF_FAILS(GENAI_E_STATE,
			 raw->unreserve(r.d->raw_self, all, &bad[i], &cf_err));
	CF_OK(r.st->unreserve(r.d, all, &good, &cf_err));
	cf_free(&r, &b);
	cf_close(&r);
}

// Whoever calls need not want to know why.
static void err_null(void)
{
	const struct genai_stream_ops *raw;
	struct genai_mem m, none = {.size = sizeof(none)};
	struct genai_stream *s;
	char host[64] = "";

	cf_open(&r, 0, NULL);
	raw = &r.d->raw;
	s = cf_stream(&r, "s");
	m = cf_alloc(&r, 4096);
	ck_assert(raw->alloc(r.d->raw_self, GENAI_MEM_DEVICE, 0, "x", &none,
			     NULL));
	ck_assert(raw->host_register(r.d->raw_self, host, 0, &none, NULL));
	ck_assert(raw->free(r.d->raw_self, m.range.addr + 64, NULL, NULL));
	ck_assert(raw->copy(r.d->raw_self, s, m.range.addr, (uintptr_t)host, 64,
			    GENAI_COPY_H2D, NULL));
	ck_assert(raw->reset(r.d->raw_self, NULL, NULL));
	cf_free(&r, &m);
	cf_destroy(&r, s);
	cf_close(&r);
}

static void host_memory(void)
{
	unsigned char *file = aligned_alloc(4096, 16 * KIB), back[16 * KIB];
	struct genai_mem reg = {.size = sizeof(reg)}, twice = reg, dev;
	struct genai_ticket t;
	struct genai_stream *s;

	cf_pattern(file, 16 * KIB, 7);
	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	dev = cf_alloc(&r, 16 * KIB);
	CF_FAILS(GENAI_E_INVAL,
		 r.st->copy(r.d, s, dev.range.addr, (uintptr_t)file, 4096,
			    GENAI_COPY_H2D, &cf_err));
	if (!cf_registers(&r)) {
		cf_free(&r, &dev);
		cf_destroy(&r, s);
		cf_close(&r);
		cf_skip("registers no memory: %.150s", cf_err.text);
	}
	CF_FAILS(GENAI_E_INVAL,
		 r.st->host_register(r.d, file, 0, &reg, &cf_err));
	CF_OK(r.st->host_register(r.d, file, 16 * KIB, &reg, &cf_err));
	ck_assert_uint_ge(reg.range.bytes, 16 * KIB);
	CF_FAILS(GENAI_E_INVAL,
		 r.st->host_register(r.d, file + 4096, 4096, &twice, &cf_err));
	cf_copy(&r, s, dev.range.addr, (uintptr_t)file + 1, 16 * KIB - 1,
		GENAI_COPY_H2D);
	CF_FAILS(GENAI_E_STATE,
		 r.st->host_unregister(r.d, reg.range.addr, NULL, &cf_err));
	cf_finish(&r, s);
	cf_get(&r, back, dev.range.addr, 16 * KIB - 1);
	ck_assert_mem_eq(back, file + 1, 16 * KIB - 1);
	t = cf_drain(&r);
	CF_OK(r.st->host_unregister(r.d, reg.range.addr, &t, &cf_err));
	CF_FAILS(GENAI_E_INVAL,
		 r.st->copy(r.d, s, dev.range.addr, (uintptr_t)file, 4096,
			    GENAI_COPY_H2D, &cf_err));
	// from anywhere on, of any length
	CF_OK(r.st->host_register(r.d, file + 35, 9001, &reg, &cf_err));
	cf_copy(&r, s, dev.range.addr, (uintptr_t)file + 35, 9001,
		GENAI_COPY_H2D);
	cf_finish(&r, s);
	cf_get(&r, back, dev.range.addr, 9001);
	ck_assert_mem_eq(back, file + 35, 9001);
	t = cf_drain(&r);
	CF_OK(r.st->host_unregister(r.d, reg.range.addr, &t, &cf_err));
	CF_OK(r.st->host_register(r.d, file, 16 * KIB, &reg, &cf_err));
	t = cf_drain(&r);
	CF_OK(r.st->host_unregister(r.d, reg.range.addr, &t, &cf_err));
	cf_free(&r, &dev);
	cf_destroy(&r, s);
	cf_close(&r);
	free(file);
}

static uint64_t used(void)
{
	struct genai_stream_stats st = {.size = sizeof(st)};

	CF_OK(r.st->stats(r.d, &st, &cf_err));
	return st.device_used_bytes;
}

// What was given back is the device's again, by its own account.
static void given_back(void)
{
	const uint64_t room = 64 * KIB * KIB;
	struct genai_mem m;
	uint64_t before, with, after;

	cf_open(&r, 0, NULL);
	before = used();
	m = cf_alloc(&r, room);
	with = used();
	cf_free(&r, &m);
	after = used();
	cf_close(&r);
	if (with < before + room)
		cf_skip("the device gives no account of its memory");
	ck_assert_msg(after < with - room / 2,
		      "%lu bytes are in use, %lu after 64 MiB of them were "
		      "given back",
		      (unsigned long)with, (unsigned long)after);
}

static void in_place(void)
{
	unsigned char *file = aligned_alloc(4096, 8 * KIB), back[5000];
	struct genai_mem reg = {.size = sizeof(reg)}, dev;
	struct genai_ticket t;
	struct genai_stream *s;

	cf_pattern(file, 8 * KIB, 8);
	cf_open(&r, 0, NULL);
	s = cf_stream(&r, "s");
	dev = cf_alloc(&r, 8 * KIB);
	CF_OK(r.st->host_register(r.d, file, 8 * KIB, &reg, &cf_err));
	cf_copy(&r, s, dev.range.addr, reg.range.addr + 256, 5000,
		GENAI_COPY_D2D);
	cf_finish(&r, s);
	cf_get(&r, back, dev.range.addr, 5000);
	ck_assert_mem_eq(back, file + 256, 5000);
	cf_pattern(file, 8 * KIB, 9); // it is that memory, not what it held
	cf_copy(&r, s, dev.range.addr, reg.range.addr + 256, 5000,
		GENAI_COPY_D2D);
	cf_finish(&r, s);
	cf_get(&r, back, dev.range.addr, 5000);
	ck_assert_mem_eq(back, file + 256, 5000);
	t = cf_drain(&r);
	CF_OK(r.st->host_unregister(r.d, reg.range.addr, &t, &cf_err));
	cf_free(&r, &dev);
	cf_destroy(&r, s);
	cf_close(&r);
	free(file);
}

static void ranges(void)
{
	struct genai_range all = {0}, lo, hi;
	struct genai_ticket t;
	unsigned char in[4096], out[4096];
	uint64_t g;

	cf_open(&r, 0, NULL);
	g = r.caps.granule;
	CF_OK(r.st->reserve(r.d, 4 * g, &all, &cf_err));
	ck_assert_uint_ge(all.bytes, 4 * g);
	lo = (struct genai_range){all.addr, g};
	hi = (struct genai_range){all.addr + g, 2 * g};
	CF_FAILS(GENAI_E_INVAL,
		 r.d->raw.map(r.d->raw_self,
			      (struct genai_range){all.addr + 1, g}, "kv",
			      &cf_err));
	CF_OK(r.st->map(r.d, lo, "kv", &cf_err));
	CF_FAILS(0, r.d->raw.map(r.d->raw_self, lo, "kv", &cf_err));
	cf_pattern(in, sizeof(in), 9);
	cf_put(&r, lo.addr + g - 4096, in, 4096);
	CF_OK(r.st->map(r.d, hi, "kv", &cf_err)); // growing disturbs nothing
	cf_get(&r, out, lo.addr + g - 4096, 4096);
	ck_assert_mem_eq(in, out, 4096);
	cf_put(&r, hi.addr - 2048, in, 4096); // over the seam
	cf_get(&r, out, hi.addr - 2048, 4096);
	ck_assert_mem_eq(in, out, 4096);
	t = cf_drain(&r);
	CF_FAILS(GENAI_E_BUSY, r.st->unreserve(r.d, all, &t, &cf_err));
	CF_FAILS(GENAI_E_STATE, r.st->unmap(r.d, hi, NULL, &cf_err));
	CF_OK(r.st->unmap(r.d, hi, &t, &cf_err));
	cf_get(&r, out, hi.addr - 2048, 2048);
	ck_assert_mem_eq(in, out, 2048);
	t = cf_drain(&r);
	CF_OK(r.st->unmap(r.d, lo, &t, &cf_err));
	CF_OK(r.st->unreserve(r.d, all, &t, &cf_err));
	cf_close(&r);
}

#define FAR (UINT64_C(5) << 30)

// Two granules, the one where 32 bits of an offset would take the other.
static void far_ranges(void)
{
	struct genai_range all = {0}, at[3];
	unsigned char in[3][4096], out[4096];
	struct genai_ticket t;
	uint64_t g;

	cf_open(&r, 0, NULL);
	g = r.caps.granule;
	CF_OK(r.st->reserve(r.d, FAR + g, &all, &cf_err));
	at[0] = (struct genai_range){all.addr, g};
	at[1] = (struct genai_range){all.addr + (FAR & INT32_MAX), g};
	at[2] = (struct genai_range){all.addr + FAR, g};
	for (int i = 0; i < 3; i++) {
		CF_OK(r.st->map(r.d, at[i], "kv", &cf_err));
		cf_pattern(in[i], sizeof(in[i]), 90 + (uint64_t)i);
		cf_put(&r, at[i].addr + g - 4096, in[i], 4096);
	}
	for (int i = 0; i < 3; i++) {
		cf_get(&r, out, at[i].addr + g - 4096, 4096);
		ck_assert_mem_eq(in[i], out, 4096);
	}
	t = cf_drain(&r);
	for (int i = 3; i--;)
		CF_OK(r.st->unmap(r.d, at[i], &t, &cf_err));
	CF_OK(r.st->unreserve(r.d, all, &t, &cf_err));
	cf_close(&r);
}

#define S GENAI_IFACE_STREAM
static const struct cf_test tests[] = {
	{"stream/caps", "GM-20", S, 0, caps},
	{"stream/alloc", "GM-8 GM-21", S, 0, alloc},
	{"stream/free-ticket", "GM-22", S, 0, free_ticket},
	{"stream/given-back", "GM-22", S, 0, given_back},
	{"stream/ticket-kinds", "GM-23", S, 0, ticket_kinds},
	{"stream/ticket-ranges", "GM-23", S, CF_RESERVE, ticket_ranges},
	{"stream/err-null", "GM-5", S, 0, err_null},
	{"stream/host-memory", "GM-24", S, 0, host_memory},
	{"stream/in-place", "GM-25", S, CF_IN_PLACE, in_place},
	{"stream/ranges", "GM-26", S, CF_RESERVE, ranges},
	{"stream/ranges-far", "GM-26", S, CF_RESERVE, far_ranges},
};
const struct cf_suite cf_suite_memory = {tests,
					 sizeof(tests) / sizeof(tests[0])};
