// work.c - streams, copies, units of work and gates, for tests that would
// rather say what they want than check every call.
#include "tests/conform/conform.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

_Thread_local struct genai_error cf_err = GENAI_ERROR_INIT;

// The function that was called, of the text of the call.
struct name {
	char v[64];
};

static struct name name_of(const char *call)
{
	const char *end = call + strcspn(call, "("), *begin = end;
	struct name n;

	while (begin > call && begin[-1] != '>' && begin[-1] != '.')
		begin--;
	snprintf(n.v, sizeof(n.v), "%.*s", (int)(end - begin), begin);
	return n;
}

void cf_ok(int32_t rc, const char *call)
{
	mark_point();
	if (rc)
		ck_abort_msg("%s: %s: %s", name_of(call).v,
			     genai_status_name(rc), cf_err.text);
}

void cf_fails(int32_t rc, int32_t want, const char *call)
{
	mark_point();
	if (rc >= 0 || (want && rc != want))
		ck_abort_msg("%s gave %s, expected %s%s%s", name_of(call).v,
			     rc == 0  ? "success"
			     : rc > 0 ? "GENAI_PENDING"
				      : genai_status_name(rc),
			     want ? genai_status_name(want) : "an error",
			     cf_err.text[0] ? ": " : "", cf_err.text);
	if (!memchr(cf_err.text, 0, sizeof(cf_err.text)) || !cf_err.text[0] ||
	    strchr(cf_err.text, '\n'))
		ck_abort_msg("%s failed without a line that says why",
			     name_of(call).v);
	if (cf_err.code != rc || cf_err.size != sizeof(cf_err))
		ck_abort_msg("%s gave %s, its record says %s (%u bytes)",
			     name_of(call).v, genai_status_name(rc),
			     genai_status_name(cf_err.code), cf_err.size);
}

void cf_same(const void *got, const void *want, uint64_t bytes,
	     const char *what)
{
	const unsigned char *a = got, *b = want;
	uint64_t i = 0;

	mark_point();
	while (i < bytes && a[i] == b[i])
		i++;
	if (i < bytes)
		ck_abort_msg("byte %llu of %llu (%s) is %u, not %u",
			     (unsigned long long)i, (unsigned long long)bytes,
			     what, a[i], b[i]);
}

// ---- memory ----

bool cf_end_failing(struct genai_host_env *env, uint64_t n, bool sticky)
{
	const struct genai_host *h = genai_host_table(env);
	bool refused = false;

	// one that is to come refuses one of the next n
	for (uint64_t i = 0; !refused && i < (sticky ? 1 : n); i++) {
		void *probe = h->alloc(h->ctx, 1, "probe");

		refused = !probe;
		h->free(h->ctx, probe);
	}
	genai_host_fail_alloc(env, 0, 0);
	return sticky ? refused : !refused;
}

struct genai_mem cf_alloc(struct cf_rt *r, uint64_t bytes)
{
	struct genai_mem m = {.size = sizeof(m)};

	CF_OK(r->st->alloc(r->d, GENAI_MEM_DEVICE, bytes, GENAI_TAG_ACTIVATIONS,
			   &m, &cf_err));
	return m;
}

struct genai_mem cf_pinned(struct cf_rt *r, uint64_t bytes)
{
	struct genai_mem m = {.size = sizeof(m)};

	CF_OK(r->st->alloc(r->d, GENAI_MEM_HOST_PINNED, bytes,
			   GENAI_TAG_STAGING, &m, &cf_err));
	ck_assert_ptr_nonnull(m.host);
	return m;
}

void cf_free(struct cf_rt *r, struct genai_mem *m)
{
	struct genai_ticket t = cf_drain(r);

	CF_OK(r->st->free(r->d, m->range.addr, &t, &cf_err));
	memset(m, 0, sizeof(*m));
}

// A device may refuse, with a reason.
bool cf_registers(struct cf_rt *r)
{
	void *page = aligned_alloc(4096, 4096);
	struct genai_mem m = {.size = sizeof(m)};
	struct genai_ticket t;
	int32_t rc;

	CF_CLEAR();
	rc = r->st->host_register(r->d, page, 4096, &m, &cf_err);
	if (rc == GENAI_E_LIMIT || rc == GENAI_E_UNSUPPORTED) {
		ck_assert_msg(*cf_err.text, "host_register refused without a "
					    "reason");
		ck_assert_msg(!(r->caps.flags & GENAI_STREAM_CAP_IN_PLACE),
			      "a device that says IN_PLACE does not register "
			      "4096 bytes: %s",
			      cf_err.text);
		free(page);
		return false;
	}
	cf_ok(rc, "host_register");
	t = cf_drain(r);
	CF_OK(r->st->host_unregister(r->d, m.range.addr, &t, &cf_err));
	free(page);
	return true;
}

// ---- streams ----

struct genai_stream *cf_stream(struct cf_rt *r, const char *name)
{
	struct genai_stream *s = NULL;
	static _Thread_local char
		text[32]; // what is given for a call is gone after it

	snprintf(text, sizeof(text), "%s", name);
	CF_OK(r->st->create(r->d, text, &s, &cf_err));
	memset(text, '?', sizeof(text));
	return s;
}

struct genai_ticket cf_drain(struct cf_rt *r)
{
	struct genai_ticket t = {.size = sizeof(t)};
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};

	CF_OK(r->ba->drain(r->d, all, UINT64_MAX, &t, &cf_err));
	return t;
}

void cf_destroy(struct cf_rt *r, struct genai_stream *s)
{
	cf_drain(r);
	CF_OK(r->st->destroy(r->d, s, &cf_err));
}

struct genai_point cf_mark(struct cf_rt *r, struct genai_stream *s)
{
	struct genai_point p = {0};

	CF_OK(r->st->mark(r->d, s, &p, &cf_err));
	return p;
}

void cf_wait(struct cf_rt *r, struct genai_stream *s, struct genai_point p)
{
	CF_OK(r->st->wait(r->d, s, p, &cf_err));
}

void cf_finish(struct cf_rt *r, struct genai_stream *s)
{
	struct genai_point p = cf_mark(r, s);

	CF_OK(r->ba->host_read(r->d, &p, 1, UINT64_MAX, &cf_err));
}

void cf_copy(struct cf_rt *r, struct genai_stream *s, uint64_t dst,
	     uint64_t src, uint64_t bytes, uint32_t kind)
{
	CF_OK(r->st->copy(r->d, s, dst, src, bytes, kind, &cf_err));
}

static void move(struct cf_rt *r, void *host, genai_addr addr, uint64_t bytes,
		 bool up)
{
	struct genai_stream *s;
	struct genai_mem m;

	if (!bytes)
		return;
	s = cf_stream(r, "move");
	m = cf_pinned(r, bytes);
	if (up) {
		memcpy(m.host, host, bytes);
		cf_copy(r, s, addr, (uintptr_t)m.host, bytes, GENAI_COPY_H2D);
	} else {
		cf_copy(r, s, (uintptr_t)m.host, addr, bytes, GENAI_COPY_D2H);
	}
	cf_finish(r, s);
	if (!up)
		memcpy(host, m.host, bytes);
	cf_free(r, &m);
	cf_destroy(r, s);
}

void cf_put(struct cf_rt *r, genai_addr dst, const void *src, uint64_t bytes)
{
	move(r, (void *)(uintptr_t)src, dst, bytes, true);
}

void cf_get(struct cf_rt *r, void *dst, genai_addr src, uint64_t bytes)
{
	move(r, dst, src, bytes, false);
}

// ---- units ----

void cf_call(struct cf_rt *r, struct genai_stream *s, const char *name,
	     cf_fn fn, void *ctx)
{
	struct genai_work w = {sizeof(w), GENAI_NONE, name, fn, ctx};

	CF_OK(r->st->launch_host(r->d, s, &w, NULL, 0, &cf_err));
}

#define GATE_MS 1000

static int32_t hold(void *ctx, void *const *mem, struct genai_error *err)
{
	struct cf_gate *g = ctx;
	struct timespec ms = {0, 1000000};

	(void)mem;
	(void)err;
	for (int i = 0; i < GATE_MS && !atomic_load(&g->is_open); i++)
		nanosleep(&ms, NULL);
	if (!atomic_load(&g->is_open))
		atomic_store(&g->gave_up, 1);
	return 0;
}

void cf_gate_close(struct cf_rt *r, struct genai_stream *s, struct cf_gate *g)
{
	atomic_store(&g->is_open, 0);
	atomic_store(&g->gave_up, 0);
	cf_call(r, s, "gate", hold, g);
}

void cf_gate_open(struct cf_gate *g)
{
	atomic_store(&g->is_open, 1);
}

void cf_gate_check(const struct cf_gate *g, const char *what)
{
	ck_assert_msg(!atomic_load(&g->gave_up),
		      "%s waited for the device: a closed gate gave up", what);
}

// ---- numbers ----

uint64_t cf_seed(uint64_t n)
{
	uint64_t state = n ^ cf.o.seed;

	return cf.o.seed ? cf_random(&state) : n;
}

uint64_t cf_random(uint64_t *state)
{
	uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

uint32_t cf_below(uint64_t *state, uint32_t n)
{
	return (uint32_t)(cf_random(state) % n);
}

void cf_pattern(void *p, uint64_t bytes, uint64_t seed)
{
	unsigned char *c = p;

	for (uint64_t i = 0; i < bytes; i++)
		c[i] = (unsigned char)(cf_random(&seed) >> 13);
}
