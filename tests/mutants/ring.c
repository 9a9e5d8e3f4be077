// ring.c - a pager of another make: all pages are copied once into pinned
// memory, streamed ones go through a ring on a stream of its own.  It conforms
// until it is told to be wrong.
#include <fcntl.h>
#include <pthread.h>
#include <time.h>

#include "tests/mutants/ring.h"

char mutant[64];

static const struct genai_host *latest;
static bool shared_in_step;

const struct genai_host *ring_host(const struct genai_pager *p)
{
	return is("static-host") ? latest : p->m->host;
}

void *ring_take(struct genai_pager *p, uint64_t bytes)
{
	void *m = ring_host(p)->alloc(ring_host(p)->ctx, bytes, "ring");

	if (m)
		memset(m, 0, bytes);
	return m;
}

void ring_give(struct genai_pager *p, void *m)
{
	ring_host(p)->free(ring_host(p)->ctx, m);
}

// ---- steps ----

static int32_t load(struct genai_pager *p, struct slot *slot, uint32_t page,
		    struct genai_error *err)
{
	struct genai_point stale = slot->ready;
	int32_t rc;

	rc = p->stream.ops->wait(p->stream.self, p->own, slot->free_at, err);
	if (is("step-wait-lost"))
		rc = 0;
	if (!rc)
		rc = ring_copy_page(p, &p->pages[page], slot->addr, p->own,
				    err);
	if (is("step-copy-lost"))
		rc = 0;
	if (!rc)
		rc = p->stream.ops->mark(p->stream.self, p->own, &slot->ready,
					 err);
	if (is("step-mark-lost"))
		rc = 0;
	if (rc)
		return rc;
	slot->page = page;
	p->tail = slot->ready;
	if ((is("stale-256") && p->stats.steps % 256 == 255) ||
	    (is("stale-1000") && p->stats.steps > 1000) ||
	    (is("stale-2048") && p->stats.steps > 2048) ||
	    (is("stale-10000") && p->stats.steps > 10000))
		slot->ready = stale;
	return 0;
}

static int32_t prime(struct genai_pager *p, struct genai_error *err)
{
	int32_t rc = 0;

	for (uint32_t i = is("reset-first-slot") && p->resets;
	     !rc && i < p->n_slots; i++) {
		p->slots[i].free_at = (struct genai_point){NULL, 0};
		if (!is("reset-slots-held"))
			p->slots[i].held = 0;
		rc = load(p, &p->slots[i], p->streamed[i], err);
	}
	p->primed = !rc;
	return rc;
}

// What every step leaves behind, or does more of every time.
static void wear(struct genai_pager *p)
{
	uint64_t more = p->stats.steps / 64;
	struct genai_point point;
	pthread_t t;

	if (is("step-descriptor") && p->stats.steps % 50 == 0)
		(void)open("/dev/null", O_RDONLY);
	if (is("step-thread") && p->stats.steps % 500 == 0)
		pthread_create(&t, NULL, ring_sleep, NULL);
	if (is("step-malloc"))
		mutant_leak(100);
	for (uint64_t i = 0; is("marks-grow") && i < more; i++)
		p->stream.ops->mark(p->stream.self, p->own, &point, NULL);
	for (uint64_t i = 0; is("waits-grow") && i < more; i++)
		p->stream.ops->wait(p->stream.self, p->own, p->tail, NULL);
	if (is("polls") && p->tail.stream)
		for (int i = 0; i < 1000; i++)
			p->stream.ops->poll(p->stream.self, p->tail, NULL);
}

static uint64_t now(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

// A little patience before going on all the same.
static void linger(struct genai_pager *p, struct genai_point point)
{
	uint64_t until = now() + 2000000;
	struct timespec ms = {0, 2000000};

	while (is("spins") && now() < until &&
	       p->stream.ops->poll(p->stream.self, point, NULL) > 0)
		;
	if (is("sleeps") && p->stream.ops->poll(p->stream.self, point, NULL))
		nanosleep(&ms, NULL);
}

static int32_t step_begin(struct genai_pager *p, struct genai_stream *stream,
			  int32_t recording, struct genai_error *err)
{
	bool inside = is("static-step") ? shared_in_step : p->in_step;

	(void)stream;
	if (is("thread-bound") && !pthread_equal(p->by, pthread_self()))
		return FAIL(p, err, GENAI_E_STATE, "of another thread");
	if (!p->is_sealed || inside)
		return FAIL(p, err, GENAI_E_STATE,
			    "step_begin before seal or inside a step");
	mutant_manners("step");
	if (p->n_slots && !p->primed) {
		int32_t rc = recording ? FAIL(p, err, GENAI_E_STATE,
					      "nothing loaded")
				       : prime(p, err);

		if (rc)
			return rc;
	}
	if (recording) {
		memcpy(p->saved, p->slots, sizeof(p->saved));
		p->saved_tail = p->tail;
		p->recording = true;
	} else if (!is("record-sticks")) {
		p->recording = false;
	}
	p->in_step = shared_in_step = true;
	p->next = 0;
	p->stats.steps++;
	wear(p);
	return 0;
}

static genai_addr address(struct genai_pager *p, uint32_t visit)
{
	const struct genai_sweep_visit *v = &p->sweep[visit];
	uint64_t offset = v->offset;
	uint32_t page = v->page;

	if (is("visit-byte"))
		v = &p->sweep[(uint8_t)visit];
	if (is("page-8-bits"))
		page &= 255;
	if (is("page-mask"))
		page &= 63;
	if (is("offset-16-bits"))
		offset &= 0xffff;
	if (is("offset-ignored") || (is("offset-of-none") && !v->bytes))
		offset = 0;
	if (is("visit-byte"))
		return p->pages[v->page].addr + v->offset;
	return p->pages[page].addr + offset;
}

static int32_t acquire(struct genai_pager *p, uint32_t visit,
		       struct genai_stream *stream,
		       struct genai_place *out_place,
		       struct genai_point *out_ready, struct genai_error *err)
{
	struct genai_point ready = {NULL, 0};
	uint32_t page;
	struct page *pg;

	(void)stream;
	if (!p->in_step || visit != p->next || visit >= p->n_visits) {
		if (is("acquire-writes"))
			out_place->addr = 0;
		p->stats.acquires += is("refused-counts");
		return FAIL(p, err, GENAI_E_STATE,
			    "visit %u acquired, %u is next", visit, p->next);
	}
	page = p->sweep[visit].page;
	pg = &p->pages[page];
	if (pg->placement == STREAMED) {
		uint32_t k = pg->index % p->n_slots;
		struct slot *slot;

		if (is("slots-even") && p->n_slots % 2)
			k = pg->index & (p->n_slots - 1);
		if (is("slots-32"))
			k &= 31;
		slot = &p->slots[k];
		if (slot->page != page || (visit == pg->first && slot->held))
			return FAIL(p, err, GENAI_E_STATE,
				    "visit %u: its slot holds page %u", visit,
				    slot->page);
		slot->held++;
		if (is("held-8-bits"))
			slot->held &= 0xff;
		ready = slot->ready;
		linger(p, ready);
	}
	out_place->size = sizeof(*out_place);
	out_place->kind = pg->placement == IN_PLACE ? GENAI_PLACE_IN_PLACE
						    : GENAI_PLACE_DEVICE;
	out_place->addr = address(p, visit);
	*out_ready = ready;
	p->held[visit] = 1;
	p->next++;
	p->stats.acquires++;
	return 0;
}

static int32_t release(struct genai_pager *p, uint32_t visit,
		       struct genai_point point, struct genai_error *err)
{
	struct page *pg;
	struct slot *slot;
	uint32_t next;

	if (!p->in_step || visit >= p->n_visits || !p->held[visit])
		return FAIL(p, err, GENAI_E_STATE, "visit %u is not held",
			    visit);
	pg = &p->pages[p->sweep[visit].page];
	p->held[visit] = 0;
	if (pg->placement != STREAMED)
		return 0;
	slot = &p->slots[pg->index % p->n_slots];
	slot->held--;
	// by value, whosever point it is
	if (!is("points-by-value") || slot->free_at.value < point.value)
		slot->free_at = point;
	if (is("release-first-point") && slot->held)
		slot->first_free = point;
	if (is("release-first-point") && !slot->held &&
	    slot->first_free.stream) {
		slot->free_at = slot->first_free;
		slot->first_free = (struct genai_point){NULL, 0};
	}
	if (slot->held || p->next <= pg->last)
		return 0;
	next = pg->index + p->n_slots;
	if (next >= p->n_streamed)
		next = pg->index % p->n_slots;
	if (is("slots-2") && p->n_slots == 2)
		next = pg->index;
	return p->streamed[next] == slot->page && p->n_slots != 2
		       ? 0
		       : load(p, slot, p->streamed[next], err);
}

static int32_t step_end(struct genai_pager *p, struct genai_stream *stream,
			struct genai_point *out_tail, struct genai_error *err)
{
	(void)stream;
	if (is("end-writes"))
		*out_tail = (struct genai_point){NULL, 0};
	if (!p->in_step || p->next != p->n_visits)
		return FAIL(p, err, GENAI_E_STATE,
			    "step ended after %u of %u visits", p->next,
			    p->n_visits);
	for (uint32_t i = 0; i < p->n_visits; i++)
		if (p->held[i])
			return FAIL(p, err, GENAI_E_STATE,
				    "step ended while visit %u is held", i);
	*out_tail =
		is("tail-first") && p->n_slots ? p->slots[0].ready : p->tail;
	if (p->recording && !(is("restore-once") && p->restores++)) {
		memcpy(p->slots, p->saved, sizeof(p->saved));
		p->tail = p->saved_tail;
	}
	p->in_step = shared_in_step = false;
	return 0;
}

static int32_t check_ticket(struct genai_pager *p,
			    const struct genai_ticket *ticket,
			    struct genai_error *err)
{
	struct genai_range all = {0, GENAI_RANGE_ALL_BYTES};

	if (is("ticket-partial") && ticket)
		all = ticket->range;
	if (is("ticket-null") && !ticket)
		return 0;
	return ring_host(p)->ticket_check(ring_host(p)->ctx, ticket, all, err);
}

static int32_t reset(struct genai_pager *p, const struct genai_ticket *ticket,
		     struct genai_error *err)
{
	int32_t rc = check_ticket(p, ticket, err);

	if (rc)
		return rc;
	if (is("reset-once") && p->resets)
		return 0;
	if (is("reset-third") && p->resets == 2)
		return 0;
	if (is("reset-idle") && !p->in_step)
		return 0;
	p->resets++;
	if (!is("reset-in-step"))
		p->in_step = shared_in_step = false;
	if (p->held)
		memset(p->held, 0, p->n_visits);
	if (!is("record-sticks"))
		p->recording = false;
	p->primed = false;
	p->tail = (struct genai_point){NULL, 0};
	if (is("stats-reset"))
		p->stats = (struct genai_pager_stats){.size = sizeof(p->stats)};
	return 0;
}

static int32_t replay_begin(struct genai_pager *p, struct genai_stream *stream,
			    struct genai_error *err)
{
	int32_t rc = 0;

	if (!p->is_sealed || p->in_step)
		return FAIL(p, err, GENAI_E_STATE,
			    "replay_begin before seal or inside a step");
	if (p->n_slots && !p->primed && !is("replay-unprimed")) {
		rc = prime(p, err);
		if (is("replay-primes-unordered"))
			return rc;
	}
	if (is("replay-at-home")) {
		p->home = p->home ? p->home : stream;
		stream = p->home;
	}
	if (!rc && !is("replay-unordered"))
		rc = p->stream.ops->wait(p->stream.self, stream, p->tail, err);
	return is("replay-error-lost") ? 0 : rc;
}

static int32_t resident(struct genai_pager *p, uint32_t visit,
			uint32_t *out_kind, struct genai_error *err)
{
	static const uint32_t kinds[] = {
		[PINNED] = GENAI_PLACE_DEVICE,
		[IN_PLACE] = GENAI_PLACE_IN_PLACE,
		[STREAMED] = 0,
	};

	if (!p->is_sealed)
		return FAIL(p, err, GENAI_E_STATE, "resident before seal");
	if (visit >= p->n_visits && is("resident-writes"))
		*out_kind = 0;
	if (visit >= p->n_visits)
		return FAIL(p, err, GENAI_E_INVAL, "no visit %u", visit);
	*out_kind = kinds[p->pages[p->sweep[visit].page].placement];
	return 0;
}

static int32_t stats(struct genai_pager *p, struct genai_pager_stats *out,
		     struct genai_error *err)
{
	struct genai_pager_stats st = p->stats;

	if (is("stats-bytes-32"))
		st.copy_bytes &= 0xffff;
	(void)err;
	if (is("stats-aligned"))
		st.copy_bytes = (st.copy_bytes + 255) / 256 * 256;
	if (is("stats-acquires-twice"))
		st.acquires *= 2;
	if (is("stats-12-bits"))
		st.acquires = st.acquires & 0xfff;
	genai_struct_give(out, &st);
	return 0;
}

static int32_t ring_close(struct genai_pager *p,
			  const struct genai_ticket *ticket,
			  struct genai_error *err)
{
	int32_t rc = check_ticket(p, ticket, err);

	mutant_manners("close");
	if (!rc && !is("close-keeps"))
		rc = ring_unplace(p, ticket, err);
	if (!rc && !is("close-stream"))
		rc = p->stream.ops->destroy(p->stream.self, p->own, err);
	if (rc)
		return rc;
	for (uint32_t i = 0; i < p->n_pages; i++)
		if (p->is_sealed || !is("close-unsealed"))
			ring_give(p, p->pages[i].extents);
	ring_give(p, p->pages);
	ring_give(p, p->sweep);
	ring_give(p, p->held);
	ring_give(p, p->streamed);
	ring_give(p, p);
	return 0;
}

// ---- the handshake ----

static const struct genai_pager_ops table = {
	.size = sizeof(table),
	.version = 1,
	.caps = ring_caps,
	.open = ring_open,
	.close = ring_close,
	.add = ring_add,
	.seal = ring_seal,
	.step_begin = step_begin,
	.acquire = acquire,
	.release = release,
	.step_end = step_end,
	.reset = reset,
	.stats = stats,
	.replay_begin = replay_begin,
	.resident = resident,
};

static struct module *only;

static int32_t init(const struct genai_host *h,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct module *m = h->alloc(h->ctx, sizeof(*m), "module");
	uint64_t least;

	(void)params;
	if (!m)
		return h->error_set(h->ctx, err, GENAI_E_NOMEM,
				    "no memory for the module");
	m->host = latest = h;
	m->slots = m->piece = 0;
	h->config_get_str(h->ctx, "mutant", mutant, sizeof(mutant));
	mutant_manners("init");
	h->config_get_u64(h->ctx, "slots", &m->slots);
	h->config_get_u64(h->ctx, "piece", &m->piece);
	least = is("slots-0") ? 0 : 2;
	if (m->slots < least || m->slots > MAX_SLOTS) {
		h->free(h->ctx, m);
		return h->error_set(h->ctx, err, GENAI_E_CONFIG,
				    "slots: 2 to %u", MAX_SLOTS);
	}
	if (m->piece && m->piece < 256) {
		h->free(h->ctx, m);
		return h->error_set(h->ctx, err, GENAI_E_CONFIG,
				    "piece: 256 at least, or 0");
	}
	only = only ? only : m;
	*out_self = m;
	return 0;
}

static void fini(void *self)
{
	struct module *m = self;

	mutant_manners("fini");
	if (is("fini-stops-all"))
		latest = NULL;
	m->host->free(m->host->ctx, m);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, "mutant_ring", 1, 0, &table},
};

static const struct genai_config_key keys[] = {
	{"slots", "3", GENAI_KEY_U64, 0, NULL, "slots of the ring: 2 to 64"},
	{"piece", "0", GENAI_KEY_U64, 0, NULL,
	 "bytes of one copy at most, 256 or more; 0: any"},
	{"mutant", "none", GENAI_KEY_STR, 0, NULL, "what is wrong"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = "mutant_ring",
	.version = "0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
