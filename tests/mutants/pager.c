// pager.c - the pagers' own sources behind a table with one fault.
#include <stdlib.h>
#include <unistd.h>

#include "modules/pager_common/pager.h"
#include "tests/mutants/mutant.h"

char mutant[64];
static const struct genai_host *host;
static struct genai_host lax; // host whose tickets are always good
static struct genai_stream_ops mutated;
static const struct genai_stream_ops *real_stream;
static uint64_t last_src;
static uint32_t n_copies;
static int32_t refused;
static struct genai_stream *own, *steps; // the mutant's; the executor's
static struct genai_pager *sealed;	 // the last one
static bool unmended;

// ---- what the pager sees of the device ----

// Of experts, between steps: a table, or one that takes another's place.
static bool is_table(uint64_t dst)
{
	return sealed && sealed->experts &&
	       dst == pager_experts_table(sealed, 0);
}

static bool is_slot(uint64_t dst)
{
	return sealed && sealed->experts &&
	       dst - sealed->slots_of_experts.addr <
		       sealed->slots_of_experts.bytes;
}

static int32_t copy(void *self, struct genai_stream *s, uint64_t dst,
		    uint64_t src, uint64_t bytes, uint32_t kind,
		    struct genai_error *err)
{
	uint64_t from = src;
	int32_t rc;

	if (kind == GENAI_COPY_D2H)
		unmended = false;
	if ((is("experts-stale") && is_table(dst)) ||
	    (unmended && is_slot(dst)) ||
	    (is("experts-uncounted") && kind == GENAI_COPY_D2H))
		return 0;
	if (is("experts-early") && is_slot(dst))
		s = own;
	if (is("copy-short"))
		bytes--;
	if (is("copy-mixed") && last_src && ++n_copies % 5 == 0)
		from = last_src;
	last_src = src;
	rc = real_stream->copy(self, s, dst, from, bytes, kind, err);
	return is("copy-swallows") ? 0 : rc;
}

static int32_t wait(void *self, struct genai_stream *s, struct genai_point p,
		    struct genai_error *err)
{
	if (is("waits-for-nothing") || (is("slot-unawaited") && s != steps))
		return 0;
	return real_stream->wait(self, s, p, err);
}

static int32_t reg(void *self, const void *ptr, uint64_t bytes,
		   struct genai_mem *out, struct genai_error *err)
{
	refused = real_stream->host_register(self, ptr, bytes, out, err);
	return refused;
}

static int32_t alloc(void *self, uint32_t kind, uint64_t bytes, const char *tag,
		     struct genai_mem *out, struct genai_error *err)
{
	if (refused && kind == GENAI_MEM_HOST_PINNED)
		return host->error_set(host->ctx, err, refused,
				       "cannot do without registration");
	return real_stream->alloc(self, kind, bytes, tag, out, err);
}

// ---- the table ----

static int32_t m_caps(void *self, struct genai_pager_caps *out,
		      struct genai_error *err)
{
	int32_t rc = pager_table.caps(self, out, err);

	if (is("caps-unknown"))
		out->flags |= 1u << 20;
	if (is("not-async"))
		out->flags &= ~GENAI_PAGER_CAP_ASYNC;
	if (is("not-in-place"))
		out->flags &= ~GENAI_PAGER_CAP_IN_PLACE;
	return rc;
}

// pointers that were given for one call only
static const struct genai_extent *kept[64];
static struct genai_extent first[64];
static uint32_t n_kept;
static const struct genai_sweep_visit *kept_sweep;
static struct genai_sweep_visit first_visit;

static int32_t was_mine(struct genai_error *err)
{
	return host->error_set(host->ctx, err, GENAI_E_INVAL, "it was mine");
}

static int32_t m_open(void *self, const struct genai_stream_api *stream,
		      const struct genai_barrier_api *barrier,
		      struct genai_pager **out_pager, struct genai_error *err)
{
	struct genai_stream_api api = *stream;

	if (is("tables-exact") && stream->ops->size != sizeof(mutated))
		return host->error_set(host->ctx, err, GENAI_E_ABI,
				       "another table");
	n_kept = 0;
	if (is("open-nothing"))
		return 0;
	if (is("alloc-unchecked"))
		memset(host->alloc(host->ctx, 64, "mutant"), 0, 64);
	if (is("leaks"))
		host->alloc(host->ctx, 64, "mutant");
	real_stream = stream->ops;
	mutated = *stream->ops;
	mutated.copy = copy;
	mutated.wait = wait;
	if (is("must-register")) {
		mutated.host_register = reg;
		mutated.alloc = alloc;
	}
	refused = 0;
	last_src = n_copies = 0;
	api.ops = &mutated;
	sealed = NULL;
	unmended = false;
	if (is("own-stream") || is("experts-early"))
		stream->ops->create(api.self, "own", &own, NULL);
	return pager_table.open(self, &api, barrier, out_pager, err);
}

static int moved; // a descriptor that is not ours

// The extents, read from their files in a wrong way.
static int32_t add_read(struct genai_pager *p, uint64_t bytes, uint32_t flags,
			const struct genai_extent *extents, uint32_t n,
			struct genai_error *err)
{
	struct genai_extent e[64];

	for (uint32_t i = 0; i < n && n <= 64; i++) {
		uint64_t at = extents[i].file_offset;
		char *to;

		e[i] = extents[i];
		if (!e[i].file)
			continue;
		moved = (int)e[i].file;
		to = malloc(e[i].src_bytes); // until the process ends
		if (is("file-start"))
			at = 0;
		if (is("file-moves"))
			lseek(moved, (off_t)at, SEEK_SET);
		if (!to || pread(moved, to, e[i].src_bytes, (off_t)at) < 0)
			abort();
		e[i].src = to;
	}
	return pager_table.add(p, bytes, flags, n <= 64 ? e : extents, n, err);
}

static int32_t m_add(struct genai_pager *p, uint64_t bytes, uint32_t flags,
		     const struct genai_extent *extents, uint32_t n,
		     struct genai_error *err)
{
	if (is("add-unaligned") && n == 1 && extents[0].place % PAGER_ALIGN)
		return 0;
	if (n_kept < 64) {
		kept[n_kept] = extents;
		first[n_kept++] = extents[0];
	}
	if (is("err-needed"))
		err->code = 0;
	if (is("file-start") || is("file-moves") || is("file-closes"))
		return add_read(p, bytes, flags, extents, n, err);
	return pager_table.add(p, bytes, flags, extents, n, err);
}

static void after_seal(struct genai_pager *p)
{
	struct genai_pager_report *r = &p->report;

	if (is("ring-off-by-one") && p->n_slots)
		p->pages[p->streamed[p->n_streamed / 2]].slot =
			(p->n_streamed / 2 + 1) % p->n_slots;
	if (is("ring-order") && p->n_streamed > 5) {
		uint32_t t = p->streamed[3];

		p->streamed[3] = p->streamed[4];
		p->streamed[4] = t;
	}
	if (is("report-lies") && r->pinned_bytes)
		r->pinned_bytes -= PAGER_ALIGN;
	for (uint32_t i = 0; is("fills-twice") && i < p->n_pages; i++)
		for (uint32_t k = 0; k < p->pages[i].n_extents; k++) {
			struct genai_extent *e = &p->pages[i].extents[k];

			if (e->fill && p->pages[i].copy.host)
				e->fill(e->ctx,
					(char *)p->pages[i].copy.host +
						e->place,
					e->bytes, e->src, e->src_bytes);
		}
}

static int32_t m_seal(struct genai_pager *p,
		      const struct genai_sweep_visit *sweep, uint32_t n,
		      uint64_t budget, struct genai_pager_report *out,
		      struct genai_error *err)
{
	int32_t rc;

	if (is("budget-over") && budget < UINT64_MAX - 65536)
		budget += 65536;
	if (is("budget-least") && budget < 8192)
		return host->error_set(host->ctx, err, GENAI_E_LIMIT,
				       "that is too little");
	for (uint32_t i = 0; is("extents-borrowed") && i < n_kept; i++)
		if (memcmp(kept[i], &first[i], sizeof(first[i])))
			return was_mine(err);
	kept_sweep = sweep;
	first_visit = *sweep;
	rc = pager_table.seal(p, sweep, n, budget, out, err);
	if (rc && is("seal-half"))
		p->sealed = true;
	if (is("seal-times-unlike") && !rc)
		p->report.step_ns *= 2;
	if (rc == GENAI_E_INVAL && is("order-unchecked"))
		return 0;
	if (rc && is("seal-writes"))
		out->n_pages = 1;
	if (!rc) {
		sealed = p;
		after_seal(p);
		if (is("report-overrun"))
			*out = p->report;
		else
			genai_struct_give(out, &p->report);
	}
	return rc;
}

static int32_t m_plan(struct genai_pager *p,
		      const struct genai_sweep_visit *sweep, uint32_t n,
		      uint64_t budget, struct genai_pager_report *out,
		      struct genai_error *err)
{
	int32_t rc = pager_table.plan(
		p, sweep, n, is("plan-lies") ? budget / 2 : budget, out, err);

	if (is("plan-remembers")) {
		static struct genai_pager_report former;
		static uint32_t former_n;

		if (!rc && former_n == n)
			genai_struct_give(out, &former);
		else if (!rc)
			former = *out;
		former_n = n;
	}
	if (is("plan-micros")) {
		out->step_ns = out->step_ns / 1000 + 1;
		out->serial_ns = out->serial_ns / 1000 + 1;
		out->resident_ns = out->resident_ns / 1000 + 1;
	}
	if (is("plan-flat"))
		out->step_ns = out->serial_ns = out->resident_ns;
	if (is("plan-step-serial"))
		out->step_ns = out->serial_ns;
	if (is("plan-times"))
		out->step_ns = out->serial_ns = out->resident_ns = 0;
	return rc;
}

static int32_t m_begin(struct genai_pager *p, struct genai_stream *s,
		       int32_t recording, struct genai_error *err)
{
	steps = s;
	if (is("no-restore"))
		recording = 0;
	if (is("sweep-borrowed") &&
	    memcmp(kept_sweep, &first_visit, sizeof(first_visit)))
		return was_mine(err);
	return pager_table.step_begin(p, s, recording, err);
}

static int32_t m_acquire(struct genai_pager *p, uint32_t visit,
			 struct genai_stream *s, struct genai_place *out_place,
			 struct genai_point *out_ready, struct genai_error *err)
{
	static struct genai_pager *last;
	static genai_addr last_addr;
	struct pager_page *pg;
	int32_t rc;

	if (is("held-taken") && visit < p->n_sweep) {
		pg = &p->pages[p->sweep[visit].page];
		if (pg->placement == PAGER_STREAMED && visit == pg->first)
			p->slots[pg->slot].held = 0;
	}
	rc = pager_table.acquire(p, visit, is("own-stream") ? own : s,
				 out_place, out_ready, err);
	if (rc)
		return rc;
	if (is("dies"))
		abort();
	if (is("experts-within") && visit == 1)
		pager_experts_turn(p, s, NULL);
	if (is("one-pager") && last && last != p)
		out_place->addr = last_addr;
	last = p;
	last_addr = out_place->addr;
	pg = &p->pages[p->sweep[visit].page];
	if (is("ready-never"))
		*out_ready = (struct genai_point){NULL, 0};
	if (is("ready-early") && out_ready->value > 1)
		out_ready->value -= 1;
	if (is("wrong-slot") && pg->placement == PAGER_STREAMED &&
	    pg->slot + 1 < p->n_slots)
		out_place->addr += p->report.slot_bytes;
	if (is("wrong-offset") && p->sweep[visit].offset)
		out_place->addr -= PAGER_ALIGN;
	if (is("blocks"))
		p->barrier.ops->host_read(p->barrier.self, out_ready, 1,
					  UINT64_MAX, NULL);
	if (is("allocates")) {
		void *m = host->alloc(host->ctx, 16, "mutant");

		if (!m)
			return host->error_set(host->ctx, err, GENAI_E_NOMEM,
					       "no memory in a step");
		host->free(host->ctx, m);
	}
	return 0;
}

// The first release of a page's visits frees it, the others come too late.
static int32_t release_early(struct genai_pager *p, uint32_t visit,
			     struct genai_point point, struct genai_error *err)
{
	static uint32_t page, left;
	struct pager_page *pg = &p->pages[p->sweep[visit].page];

	if (left && p->sweep[visit].page == page) {
		p->held[visit] = 0;
		left--;
		return 0;
	}
	if (pg->placement == PAGER_STREAMED && p->next_visit > pg->last) {
		page = p->sweep[visit].page;
		left = p->slots[pg->slot].held - 1;
		p->slots[pg->slot].held = 1;
	}
	return pager_table.release(p, visit, point, err);
}

static int32_t m_release(struct genai_pager *p, uint32_t visit,
			 struct genai_point point, struct genai_error *err)
{
	int32_t rc;

	if (is("no-wait-release"))
		point = (struct genai_point){NULL, 0};
	if (is("release-early"))
		return release_early(p, visit, point, err);
	rc = pager_table.release(p, visit, point, err);
	return rc && is("release-twice") ? 0 : rc;
}

static int32_t m_end(struct genai_pager *p, struct genai_stream *s,
		     struct genai_point *out_tail, struct genai_error *err)
{
	int32_t rc;

	if (is("end-forgets"))
		p->recording = false;
	rc = pager_table.step_end(p, s, out_tail, err);
	if (!rc && is("no-tail"))
		*out_tail = (struct genai_point){NULL, 0};
	return rc && is("end-anytime") ? 0 : rc;
}

static int32_t m_reset(struct genai_pager *p, const struct genai_ticket *t,
		       struct genai_error *err)
{
	bool primed = p->primed;
	uint32_t page[64] = {0};
	int32_t rc;

	for (uint32_t i = 0; i < p->n_slots && i < 64; i++)
		page[i] = p->slots[i].page;
	rc = pager_table.reset(p, t, err);
	unmended = is("experts-unmended");
	if (!rc && is("reset-keeps")) {
		p->primed = primed;
		for (uint32_t i = 0; i < p->n_slots && i < 64; i++)
			p->slots[i].page = page[i];
	}
	return rc;
}

static int32_t m_replay(struct genai_pager *p, struct genai_stream *s,
			struct genai_error *err)
{
	steps = s;
	if (is("replay-unordered"))
		return 0;
	if (is("replay-anytime"))
		p->in_step = false;
	return pager_table.replay_begin(p, s, err);
}

static int32_t m_resident(struct genai_pager *p, uint32_t visit,
			  uint32_t *out_kind, struct genai_error *err)
{
	int32_t rc = pager_table.resident(p, visit, out_kind, err);

	if (!rc && is("resident-always") && !*out_kind)
		*out_kind = GENAI_PLACE_DEVICE;
	if (!rc && is("resident-never"))
		*out_kind = 0;
	return rc && is("resident-anything") ? 0 : rc;
}

static int32_t m_stats(struct genai_pager *p, struct genai_pager_stats *out,
		       struct genai_error *err)
{
	int32_t rc = pager_table.stats(p, out, err);

	if (is("stats-lie"))
		out->copy_bytes /= 2;
	return rc;
}

static int32_t m_close(struct genai_pager *p, const struct genai_ticket *t,
		       struct genai_error *err)
{
	if (is("file-closes") && moved)
		close(moved);
	moved = 0;
	sealed = NULL;
	if (is("own-stream") || is("experts-early"))
		real_stream->destroy(p->stream.self, own, NULL);
	return pager_table.close(p, t, err);
}

static struct genai_pager_ops table = {
	.size = sizeof(table),
	.version = 1,
	.caps = m_caps,
	.open = m_open,
	.close = m_close,
	.add = m_add,
	.seal = m_seal,
	.step_begin = m_begin,
	.acquire = m_acquire,
	.release = m_release,
	.step_end = m_end,
	.reset = m_reset,
	.stats = m_stats,
	.replay_begin = m_replay,
	.resident = m_resident,
	.plan = m_plan,
	.experts = pager_experts_of,
};

// ---- the handshake ----

static int32_t any_ticket(void *ctx, const struct genai_ticket *ticket,
			  struct genai_range range, struct genai_error *err)
{
	(void)ctx;
	(void)ticket;
	(void)range;
	(void)err;
	return 0;
}

static int32_t init(const struct genai_host *h,
		    const struct genai_init_params *params, void **out_self,
		    struct genai_error *err)
{
	struct pager_module *m = h->alloc(h->ctx, sizeof(*m), "pager");
	int32_t sync = 0;

	(void)params;
	if (!m)
		return h->error_set(h->ctx, err, GENAI_E_NOMEM, "no memory");
	memset(m, 0, sizeof(*m));
	host = h;
	h->config_get_str(h->ctx, "mutant", mutant, sizeof(mutant));
	if (h->config_get_u64(h->ctx, "ring_slots", &m->ring_slots) ||
	    m->ring_slots == 1 || m->ring_slots > 4096) {
		h->free(h->ctx, m);
		return is("init-silent")
			       ? GENAI_E_CONFIG
			       : h->error_set(h->ctx, err, GENAI_E_CONFIG,
					      "ring_slots: 2 to 4096, or auto");
	}
	h->config_get_u64(h->ctx, "page_bytes", &m->page_bytes);
	h->config_get_bool(h->ctx, "sync", &sync);
	m->exchange = 8;
	m->async = !sync && !is("own-stream") && !is("held-taken");
	lax = *h;
	lax.ticket_check = any_ticket;
	m->host = is("any-ticket") ? &lax : h;
	if (is("init-leaks"))
		h->alloc(h->ctx, 16, "mutant");
	*out_self = m;
	return 0;
}

static void fini(void *self)
{
	const struct genai_host *h = ((struct pager_module *)self)->host;

	h->free(h->ctx, self);
}

static const struct genai_iface ifaces[] = {
	{GENAI_IFACE_PAGER, "mutant_pager", 1, 0, &table},
};

static const struct genai_config_key keys[] = {
	{"page_bytes", "auto", GENAI_KEY_BYTES, 0, NULL, "size of a page"},
	{"ring_slots", "auto", GENAI_KEY_STR, 0, NULL, "slots of the ring"},
	{"sync", "off", GENAI_KEY_BOOL, 0, NULL, "copy on the compute stream"},
	{"mutant", "none", GENAI_KEY_STR, 0, NULL, "what is wrong"},
};

static const struct genai_module_block block = {
	GENAI_MODULE_BUILT,
	.n_ifaces = 1,
	.name = "mutant_pager",
	.version = "0",
	.licence = "Apache-2.0",
	.ifaces = ifaces,
	.init = init,
	.fini = fini,
	.keys = keys,
	.n_keys = sizeof(keys) / sizeof(keys[0]),
};

GENAI_MODULE_QUERY(block)
