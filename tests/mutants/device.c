// device.c - cpu_ref, opened from its file, behind tables with one fault.
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>

#include "tests/mutants/device.h"

char mutant[64];
const struct genai_host *mutant_host;
static struct genai_host kept, lents[8]; // the latest; what the real one gets
static const struct genai_module_block *real;
static const struct genai_stream_ops *stream;
static const struct genai_barrier_ops *barrier;
static int recording;

int32_t mutant_fail(struct genai_error *err, int32_t code, const char *text)
{
	return mutant_host->error_set(mutant_host->ctx, err, code, "%s", text);
}

// ---- stream ----

static int32_t s_caps(void *self, struct genai_stream_caps *out,
		      struct genai_error *err)
{
	static int calls;
	struct genai_stream_caps all = {.size = sizeof(all)};
	int32_t rc = stream->caps(self, is("caps-overrun") ? &all : out, err);

	if (is("caps-overrun"))
		*out = all;
	if (is("caps-change") && calls++ % 2)
		out->flags ^= GENAI_STREAM_CAP_RECORD;
	if (is("legal-unregistered"))
		out->flags &= ~GENAI_STREAM_CAP_IN_PLACE;
	if (is("caps-kind"))
		memset(out->device_kind, 'x', sizeof(out->device_kind));
	if (is("caps-no-kind"))
		out->device_kind[0] = 0;
	if (is("caps-alignment"))
		out->alignment = 48;
	if (is("caps-granule"))
		out->granule = 0;
	return rc;
}

static int32_t s_alloc(void *self, uint32_t kind, uint64_t bytes,
		       const char *tag, struct genai_mem *out,
		       struct genai_error *err)
{
	struct genai_mem mem = *out;
	int32_t rc;

	if (is("alloc-recording") && recording)
		return 0;
	if (is("legal-rounds"))
		bytes = (bytes + 65535) / 65536 * 65536;
	rc = stream->alloc(self, kind, bytes, tag, &mem, err);
	if (rc && is("err-needed"))
		err->code = rc;
	if (rc && is("writes-on-failure"))
		out->size = 0;
	if (rc && is("error-without-text") && err)
		err->text[0] = 0;
	if (rc && is("error-code") && err)
		err->code = GENAI_E_IO;
	if (rc && is("error-unterminated") && err)
		memset(err->text, 'x', sizeof(err->text));
	if (rc)
		return rc;
	if (is("alloc-unaligned") && bytes > 100) {
		mem.range.addr += 64;
		mem.range.bytes -= 64;
	}
	if (is("alloc-less"))
		mem.range.bytes = bytes - 1;
	*out = mem;
	return 0;
}

static int32_t s_create(void *self, const char *name, struct genai_stream **out,
			struct genai_error *err)
{
	static int made; // and given back
	int32_t rc;

	if (!out)
		return made--;
	if (is("create-nothing"))
		return 0;
	if (is("streams-four") && made == 4)
		return mutant_fail(err, GENAI_E_LIMIT, "no more streams");
	rc = stream->create(self, name, out, err);
	made += !rc;
	return rc;
}

static int32_t s_free(void *self, genai_addr addr,
		      const struct genai_ticket *ticket,
		      struct genai_error *err)
{
	int32_t rc;

	if (is("free-nothing"))
		return 0;
	rc = stream->free(self, addr, ticket, err);
	if ((rc == GENAI_E_BUSY && is("free-busy")) ||
	    (rc == GENAI_E_INVAL && is("free-part")) ||
	    (rc == GENAI_E_STATE && recording && is("free-recording")))
		return 0;
	return rc;
}

// A copy made when it was registered, instead of the memory itself.
static unsigned char snapshot[1 << 16] __attribute__((aligned(4096)));
static struct genai_mem original;

static int32_t s_register(void *self, const void *ptr, uint64_t bytes,
			  struct genai_mem *out, struct genai_error *err)
{
	int32_t rc;

	if (is("register-recording") && recording)
		return 0;
	if (is("legal-unregistered"))
		return mutant_fail(err, GENAI_E_LIMIT,
				   "the limit of locked memory is reached");
	if (!is("in-place-snapshot") || bytes > sizeof(snapshot) ||
	    original.range.bytes)
		return stream->host_register(self, ptr, bytes, out, err);
	original.size = sizeof(original);
	rc = stream->host_register(self, ptr, bytes, &original, err);
	if (rc)
		return rc;
	memcpy(snapshot, ptr, bytes);
	return stream->host_register(self, snapshot, bytes, out, err);
}

static int32_t s_unregister(void *self, genai_addr addr,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	int32_t rc = stream->host_unregister(self, addr, ticket, err);

	if (!rc && original.range.bytes) {
		rc = stream->host_unregister(self, original.range.addr, ticket,
					     err);
		memset(&original, 0, sizeof(original));
	}
	return rc == GENAI_E_STATE && is("unregister-any") ? 0 : rc;
}

static int32_t s_map(void *self, struct genai_range range, const char *tag,
		     struct genai_error *err)
{
	int32_t rc = stream->map(self, range, tag, err);

	return rc == GENAI_E_STATE && is("map-recording") ? 0 : rc;
}

static int32_t s_unmap(void *self, struct genai_range range,
		       const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	int32_t rc = stream->unmap(self, range, ticket, err);

	return rc == GENAI_E_STATE && is("unmap-any") ? 0 : rc;
}

static int32_t s_unreserve(void *self, struct genai_range range,
			   const struct genai_ticket *ticket,
			   struct genai_error *err)
{
	int32_t rc = stream->unreserve(self, range, ticket, err);

	return (rc && is("unreserve-mapped")) ||
			       (rc == GENAI_E_STATE && is("unreserve-any"))
		       ? 0
		       : rc;
}

static int32_t s_destroy(void *self, struct genai_stream *s,
			 struct genai_error *err)
{
	int32_t rc = stream->destroy(self, s, err);

	if (!rc)
		s_create(self, NULL, NULL, NULL);
	return rc && is("destroy-busy") ? 0 : rc;
}

static int32_t do_nothing(void *ctx, void *const *mem, struct genai_error *err)
{
	(void)ctx;
	(void)mem;
	(void)err;
	return 0;
}

static uint64_t n_marks; // that are units, and told to nobody

static int32_t s_mark(void *self, struct genai_stream *s,
		      struct genai_point *out, struct genai_error *err)
{
	struct genai_work nothing = {sizeof(nothing), GENAI_NONE, "mark",
				     do_nothing, NULL};
	int32_t rc = 0;

	if (is("legal-mark")) {
		rc = stream->launch_host(self, s, &nothing, NULL, 0, err);
		n_marks += !rc;
	}
	if (!rc)
		rc = stream->mark(self, s, out, err);
	if (!rc && is("mark-early") && out->value && !recording)
		out->value--;
	return rc;
}

// In a recording a stream is taken to be after all that the other one is after
// by now, not by the point.
static struct {
	struct genai_stream *s;
	uint64_t known[16];
} beliefs[16];

static int believed(struct genai_stream *s, struct genai_point p)
{
	uint32_t a = 0, b = 0;
	int yes;

	while (a < 15 && beliefs[a].s && beliefs[a].s != s)
		a++;
	beliefs[a].s = s;
	while (b < 15 && beliefs[b].s && beliefs[b].s != p.stream)
		b++;
	beliefs[b].s = p.stream;
	yes = beliefs[a].known[b] >= p.value;
	for (uint32_t i = 0; i < 16; i++)
		if (beliefs[a].known[i] < beliefs[b].known[i])
			beliefs[a].known[i] = beliefs[b].known[i];
	if (beliefs[a].known[b] < p.value)
		beliefs[a].known[b] = p.value;
	return yes;
}

// Streams that this one has waited for; it has room for two.
static int a_third(struct genai_stream *s, struct genai_stream *other)
{
	static struct {
		struct genai_stream *s, *of[2];
	} known[64];
	uint32_t at = 0;

	while (at < 63 && known[at].s && known[at].s != s)
		at++;
	known[at].s = s;
	for (uint32_t i = 0; i < 2; i++) {
		if (!known[at].of[i])
			known[at].of[i] = other;
		if (known[at].of[i] == other)
			return 0;
	}
	return 1;
}

static int32_t s_wait(void *self, struct genai_stream *s, struct genai_point p,
		      struct genai_error *err)
{
	static int calls;
	int32_t rc;

	if (is("wait-believed") && recording && believed(s, p))
		return 0;

	if (is("wait-third") && p.stream && a_third(s, p.stream))
		return 0;
	if (is("wait-own-refused") && p.stream == s)
		return mutant_fail(err, GENAI_E_INVAL, "its own point");
	if (is("wait-ignored") && !recording)
		return 0;
	if (is("wait-sometimes") && ++calls % 3 == 0 && !recording)
		return 0;
	if (is("wait-early") && p.value && !recording)
		p.value--;
	rc = stream->wait(self, s, p, err);
	return rc && is("inside-outside") ? 0 : rc;
}

int mutant_forgiven; // an error was told once

static int32_t s_poll(void *self, struct genai_point p, struct genai_error *err)
{
	static struct genai_stream *done;
	int32_t rc;

	if (mutant_forgiven)
		return 0;
	if (is("poll-cached") && done == p.stream)
		return 0;
	if (is("poll-lies"))
		return 0;
	if (is("poll-never"))
		return GENAI_PENDING;
	rc = stream->poll(self, p, err);
	done = rc ? NULL : p.stream;
	return rc < 0 && is("poll-no-error") ? 0 : rc;
}

static int32_t s_copy(void *self, struct genai_stream *s, uint64_t dst,
		      uint64_t src, uint64_t bytes, uint32_t kind,
		      struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc;

	if (is("copy-short") && bytes > 1)
		bytes--;
	if (is("copy-d2d-odd") && kind == GENAI_COPY_D2D && bytes > 64)
		bytes &= ~(uint64_t)1;
	if (is("copy-source-odd") && kind == GENAI_COPY_H2D)
		src &= ~(uint64_t)1;
	if (is("copy-nothing") && !bytes)
		return mutant_fail(err, GENAI_E_INVAL, "0 bytes");
	if (is("copy-long") && kind == GENAI_COPY_D2H && bytes < 5000)
		bytes++;
	rc = stream->copy(self, s, dst, src, bytes, kind, err);
	if (rc == GENAI_E_NOMEM && is("alloc-swallowed"))
		return 0;
	if (is("copy-blocks"))
		barrier->drain(self, all, UINT64_MAX, NULL, NULL);
	return rc && is("pageable") ? 0 : rc;
}

static int32_t s_launch(void *self, struct genai_stream *s,
			const struct genai_work *work,
			const struct genai_access *acc, uint32_t n,
			struct genai_error *err)
{
	struct genai_access copy[64];
	int32_t rc;

	if (n <= 64)
		memcpy(copy, acc, n * sizeof(*acc));
	if (is("units-swapped") && n == 3) {
		copy[0] = acc[1];
		copy[1] = acc[0];
	}
	if (is("units-of-eight") && n > 9 && n <= 64) {
		copy[8] = acc[9];
		copy[9] = acc[8];
	}
	for (uint32_t i = 0; is("access-flags") && i < n && i < 64; i++)
		copy[i].flags &= GENAI_READ | GENAI_WRITE | GENAI_SPARSE;
	rc = stream->launch(self, s, work, n <= 64 ? copy : acc, n, err);
	return rc && is("unmapped") ? 0 : rc;
}

static int32_t no_failure(void *ctx, void *const *mem, struct genai_error *err)
{
	const struct genai_work *w = ctx;

	w->fn(w->ctx, mem, err);
	return 0;
}

static int32_t s_launch_host(void *self, struct genai_stream *s,
			     const struct genai_work *work,
			     const struct genai_access *acc, uint32_t n,
			     struct genai_error *err)
{
	static struct genai_work kept[256];
	static uint32_t at;
	struct genai_work w = *work;
	int32_t rc;

	if (is("recording-runs") && recording)
		w.fn(w.ctx, NULL, NULL);
	if (is("host-unit-blind"))
		n = 0;
	if (is("poison-ignored")) {
		kept[at % 256] = w;
		w.ctx = &kept[at++ % 256];
		w.fn = no_failure;
	}
	if (is("inline-when-idle")) {
		struct genai_point p;

		stream->mark(self, s, &p, NULL);
		if (!stream->poll(self, p, NULL))
			return w.fn(w.ctx, NULL, err);
	}
	rc = stream->launch_host(self, s, &w, acc, n, err);
	if (is("host-blocks")) {
		struct genai_point p;

		stream->mark(self, s, &p, NULL);
		barrier->host_read(self, &p, 1, UINT64_MAX, NULL);
	}
	return rc;
}

static struct genai_stream *recorded_on;

static int32_t s_begin(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	int32_t rc = stream->capture_begin(self, s, err);

	memset(beliefs, 0, sizeof(beliefs));
	if (!rc)
		recorded_on = s;
	recording += !rc;
	return rc && is("nested") ? 0 : rc;
}

static int32_t s_end(void *self, struct genai_stream *s,
		     struct genai_recording **out, struct genai_error *err)
{
	int32_t rc = stream->capture_end(self, s, out, err);

	recording = 0;
	if (rc && is("spoilt-sticks"))
		stream->capture_begin(self, s, NULL);
	return rc;
}

static int32_t s_abort(void *self, struct genai_stream *s,
		       struct genai_error *err)
{
	recording = 0;
	return stream->capture_abort(self, s, err);
}

static int32_t s_graph(void *self, struct genai_recording *rec,
		       struct genai_stream *s, struct genai_error *err)
{
	static int calls;
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};
	int32_t rc;

	calls++;
	if (is("replay-none") || (is("replay-once") && calls > 1))
		return 0;
	if (is("replay-home"))
		s = recorded_on;
	if (is("replay-twice"))
		stream->launch_graph(self, rec, s, err);
	rc = stream->launch_graph(self, rec, s, err);
	if (is("replay-blocks"))
		barrier->drain(self, all, UINT64_MAX, NULL, NULL);
	return rc;
}

static int32_t s_edges(void *self, struct genai_recording *rec,
		       struct genai_edge *out, uint64_t cap, uint64_t *out_n,
		       struct genai_error *err)
{
	int32_t rc;

	if (is("edges-beyond") && cap)
		cap++;
	rc = stream->graph_edges(self, rec, out, cap, out_n, err);
	if (is("edges-none"))
		*out_n = 0;
	return rc;
}

static int32_t s_reset(void *self, const struct genai_ticket *ticket,
		       struct genai_error *err)
{
	if (is("reset-nothing"))
		return mutant_host->ticket_check(
			mutant_host->ctx, ticket,
			(struct genai_range){0, GENAI_RANGE_ALL_BYTES}, err);
	return stream->reset(self, ticket, err);
}

static int32_t s_stats(void *self, struct genai_stream_stats *out,
		       struct genai_error *err)
{
	int32_t rc;

	if (is("stats-exact") && out->size != sizeof(*out))
		return mutant_fail(err, GENAI_E_INVAL, "stats of another size");
	rc = stream->stats(self, out, err);
	if (is("legal-mark") && GENAI_HAS(out, launches))
		out->launches -= out->launches < n_marks ? out->launches
							 : n_marks;
	if (is("stats-h2d"))
		out->h2d_bytes = out->d2h_bytes;
	if (is("stats-replays"))
		out->graph_launches /= 2;
	return rc;
}

static struct genai_stream_ops s_table = {
	.size = sizeof(struct genai_stream_ops), .version = 1};

// ---- the handshake ----

// The real module's own keys have their defaults; schedule is handed on.
static int32_t lend_str(void *ctx, const char *key, char *buf, uint64_t cap)
{
	const char *value = NULL;

	if (!strcmp(key, "schedule") || !strcmp(key, "threads"))
		return mutant_host->config_get_str(ctx, key, buf, cap);
	for (uint32_t i = 0; i < real->n_keys; i++)
		if (!strcmp(real->keys[i].name, key))
			value = real->keys[i].default_value;
	if (!value)
		return GENAI_E_NOTFOUND;
	snprintf(buf, cap, "%s", value);
	return 0;
}

static int32_t lend_u64(void *ctx, const char *key, uint64_t *out)
{
	char text[64];
	unsigned long long v = 0;
	int32_t rc = lend_str(ctx, key, text, sizeof(text));

	if (!rc && strcmp(text, "auto") && sscanf(text, "%llu", &v) != 1)
		rc = GENAI_E_CONFIG;
	if (!rc)
		*out = v;
	return rc;
}

static int32_t lend_bool(void *ctx, const char *key, int32_t *out)
{
	char text[64];
	int32_t rc = lend_str(ctx, key, text, sizeof(text));

	if (!rc)
		*out = !strcmp(text, "on") || !strcmp(text, "true") ||
		       !strcmp(text, "yes") || !strcmp(text, "1");
	return rc;
}

static int32_t any_ticket(void *ctx, const struct genai_ticket *ticket,
			  struct genai_range range, struct genai_error *err)
{
	if (is("any-ticket") ||
	    (is("any-range") && ticket && range.bytes != GENAI_RANGE_ALL_BYTES))
		range.bytes = 0;
	if (is("any-range") && ticket)
		range = ticket->range;
	return is("any-ticket")
		       ? 0
		       : mutant_host->ticket_check(ctx, ticket, range, err);
}

static void fill_tables(void)
{
	const struct genai_executor_ops *inner[2] = {NULL};

	for (uint32_t i = 0; i < real->n_ifaces; i++) {
		const struct genai_iface *f = &real->ifaces[i];

		if (!strcmp(f->type, GENAI_IFACE_STREAM))
			stream = f->ops;
		else if (!strcmp(f->type, GENAI_IFACE_BARRIER))
			barrier = f->ops;
		else
			inner[!strcmp(f->name, "captured")] = f->ops;
	}
	s_table = *stream;
	s_table.caps = s_caps;
	s_table.alloc = s_alloc;
	s_table.free = s_free;
	s_table.host_register = s_register;
	s_table.host_unregister = s_unregister;
	s_table.map = s_map;
	s_table.unmap = s_unmap;
	s_table.unreserve = s_unreserve;
	s_table.create = s_create;
	s_table.destroy = s_destroy;
	s_table.mark = s_mark;
	s_table.wait = s_wait;
	s_table.poll = s_poll;
	s_table.copy = s_copy;
	s_table.launch = s_launch;
	s_table.launch_host = s_launch_host;
	s_table.capture_begin = s_begin;
	s_table.capture_end = s_end;
	s_table.capture_abort = s_abort;
	s_table.launch_graph = s_graph;
	if (is("caps-functions"))
		s_table.launch_graph = NULL;
	// the numbers of the units that marks add are not for others to see
	s_table.graph_edges = is("legal-mark") ? NULL : s_edges;
	s_table.reset = s_reset;
	s_table.stats = s_stats;
	mutant_wrap_barrier(barrier);
	mutant_wrap_executors(inner[0], inner[1]);
	mutant_wrap_many(&s_table, &mutant_barrier);
	mutant_wrap_sessions(mutant_executors, 2);
	mutant_wrap_corners(&s_table, &mutant_barrier);
	mutant_wrap_shapes(mutant_executors);
	mutant_wrap_stamps(&s_table);
	mutant_wrap_odd(&s_table, &mutant_barrier);
	mutant_wrap_odd_steps(mutant_executors);
}

static void *the_self;
static int n_up;

static int32_t init(const struct genai_host *h,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	static uint32_t n_inits;
	genai_module_query_fn query;
	struct genai_host *lent;
	char path[4096];
	void *lib, *sym;
	int32_t rc;

	// a runtime's own table goes with it
	kept = *h;
	mutant_host = &kept;
	lent = &lents[n_inits++ % 8];
	h->config_get_str(h->ctx, "mutant", mutant, sizeof(mutant));
	h->config_get_str(h->ctx, "real", path, sizeof(path));
	if (is("host-exact") && h->size != sizeof(*h))
		return GENAI_E_ABI;
	if (is("err-needed"))
		err->code = 0;
	if (is("descriptor-leaks"))
		(void)open("/dev/null", O_RDONLY);
	lib = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	sym = lib ? dlsym(lib, GENAI_MODULE_QUERY_SYMBOL) : NULL;
	if (!sym)
		return mutant_fail(err, GENAI_E_CONFIG, "real: no such module");
	memcpy(&query, &sym, sizeof(query));
	real = query(h->core_abi, &(int32_t){0});
	fill_tables();
	recording = 0;
	*lent = *h;
	lent->config_get_str = lend_str;
	lent->config_get_u64 = lend_u64;
	lent->config_get_bool = lend_bool;
	lent->ticket_check = any_ticket;
	if (is("one-runtime") && n_up) {
		*out_self = the_self;
		n_up++;
		return 0;
	}
	rc = real->init(lent, params, out_self, err);
	the_self = *out_self;
	n_up += !rc;
	mutant_up(*out_self);
	if (rc == GENAI_E_NOMEM && is("init-nomem"))
		return mutant_fail(err, GENAI_E_DEVICE, "it did not work");
	return rc;
}

static void fini(void *self)
{
	n_up--;
	mutant_down();
	if (is("one-runtime") && n_up)
		return;
	if (!is("fini-nothing"))
		real->fini(self);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_STREAM, "mutant_device", 1, 0, &s_table},
	{GENAI_IFACE_BARRIER, "mutant_device", 1, 0, &mutant_barrier},
	{GENAI_IFACE_EXECUTOR, "eager", 1, 0, &mutant_executors[0]},
	{GENAI_IFACE_EXECUTOR, "captured", 1, 0, &mutant_executors[1]},
};

static const struct genai_config_key keys[] = {
	{"schedule", "inorder", GENAI_KEY_STR, 0, NULL, "as cpu_ref"},
	{"threads", "1", GENAI_KEY_U64, 0, NULL, "as cpu_ref"},
	{"real", "", GENAI_KEY_STR, 0, NULL, "cpu_ref's file"},
	{"mutant", "none", GENAI_KEY_STR, 0, NULL, "what is wrong"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = sizeof(ifaces) / sizeof(ifaces[0]),
	.name = "mutant_device",
	.version = "0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

// Nothing is configured when the query comes: its faults are in the
// environment.
static int asked(const char *name)
{
	const char *v = getenv("GENAI_MUTANT");

	return v && !strcmp(v, name);
}

static const struct genai_module_block *a_copy(void)
{
	static struct genai_module_block copies[2];
	static struct genai_config_key helpless[4];
	static unsigned calls;
	struct genai_module_block *b = &copies[calls++ % 2];

	*b = block;
	if (asked("no-help")) {
		memcpy(helpless, keys, sizeof(keys));
		helpless[1].help = "";
		b->keys = helpless;
	}
	return b;
}

GENAI_MODULE_EXPORT const struct genai_module_block *
genai_module_query(uint32_t core_abi, int32_t *out_reason);

const struct genai_module_block *genai_module_query(uint32_t core_abi,
						    int32_t *out_reason)
{
	if (asked("query-exact") && core_abi != GENAI_ABI)
		return NULL;
	if (asked("query-opens"))
		(void)open("/dev/null", O_RDONLY);
	if (core_abi >> 16 == GENAI_ABI_MAJOR)
		return asked("query-copies") || asked("no-help") ? a_copy()
								 : &block;
	*out_reason = GENAI_E_ABI;
	return NULL;
}
