// suite_pager.c - a pager's table call by call: what it refuses, what it
// reports, what it may not do.
#include "tests/conform/book.h"

#include <stdio.h>
#include <unistd.h>

#include <stdio.h>
#include <string.h>

static struct book b;

static void open_book(uint64_t seed, uint32_t n_pages)
{
	book_make(&b, seed, n_pages);
	book_open(&b, NULL);
}

static void close_book(void)
{
	book_close(&b);
	book_free(&b);
}

static void caps(void)
{
	struct genai_pager_caps c = {.size = sizeof(c)}, d = c;

	cf_open(&b.r, CF_WITH_PAGER, NULL);
	b.ops = &b.r.rt->pager_ops;
	CF_OK(b.ops->caps(genai_module_self(b.r.tested), &c, &cf_err));
	CF_OK(b.ops->caps(genai_module_self(b.r.tested), &d, NULL));
	ck_assert_uint_eq(c.flags, d.flags);
	ck_assert_msg(!(c.flags & ~31u), "unknown caps %#x", c.flags);
	cf_close(&b.r);
}

static void add_fails(struct genai_extent e, uint64_t bytes, uint32_t flags,
		      uint32_t n)
{
	struct genai_extent two[2] = {e, e};

	CF_FAILS(0, b.ops->add(b.p, bytes, flags, two, n, &cf_err));
}

static void add_refuses(void)
{
	struct genai_extent good, e;

	open_book(11, 5);
	good = (struct genai_extent){.size = sizeof(e),
				     .src = b.source,
				     .src_bytes = 512,
				     .place = 256,
				     .bytes = 512};
	add_fails(good, 768, 0, 2); // overlap
	e = good;
	e.place = 264;
	add_fails(e, 768, 0, 1);
	add_fails(good, 767, 0, 1); // leaves the page
	e = good;
	e.place = UINT64_MAX - 255;
	add_fails(e, 768, 0, 1);
	e = good;
	e.bytes = 256; // without fill both must be equal
	add_fails(e, 768, 0, 1);
	e = good;
	e.src = NULL;
	add_fails(e, 768, 0, 1);
	for (uint32_t bit = 1; bit < 32; bit++)
		CF_FAILS(GENAI_E_UNSUPPORTED,
			 b.ops->add(b.p, 768, 1u << bit, &good, 1, &cf_err));
	add_fails(good, 0, 0, 0);
	add_fails(good, 768, 0, 0);		    // without an extent
	CF_OK(book_seal(&b, b.total / 2, &cf_err)); // none of it counted
	ck_assert_uint_eq(b.report.n_pages, 5);
	CF_FAILS(GENAI_E_STATE, b.ops->add(b.p, 768, 0, &good, 1, &cf_err));
	CF_FAILS(GENAI_E_STATE, book_seal(&b, b.total / 2, &cf_err));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals");
	close_book();
}

static void seal_refuses(void)
{
	struct genai_sweep_visit good;
	uint32_t last;

	open_book(12, 6);
	last = b.n_visits - 1;
	good = b.sweep[last];
	b.sweep[last].page = 6;
	CF_FAILS(0, book_seal(&b, b.total / 2, &cf_err));
	b.sweep[last] = good;
	b.sweep[last].bytes = b.pages[good.page].bytes - good.offset + 1;
	CF_FAILS(0, book_seal(&b, b.total / 2, &cf_err));
	b.sweep[last] = good;
	b.sweep[last].offset = UINT64_MAX - 3;
	CF_FAILS(0, book_seal(&b, b.total / 2, &cf_err));
	b.sweep[last] = good;
	for (uint32_t bit = 0; bit < 32; bit++) {
		uint32_t cap = 0; // that carries the flag

		b.sweep[last].flags = 1u << bit;
		if (b.sweep[last].flags == GENAI_VISIT_EXPERT)
			cap = GENAI_PAGER_CAP_EXPERT;
		else if (b.sweep[last].flags == GENAI_VISIT_HOST)
			cap = GENAI_PAGER_CAP_HOST;
		if (!(b.r.rt->pager_caps.flags & cap))
			CF_FAILS(GENAI_E_UNSUPPORTED,
				 book_seal(&b, b.total / 2, &cf_err));
	}
	b.sweep[last] = good;
	ck_assert_msg(!b.report.n_pages, "an output was written on failure");
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals");
	close_book();
}

// The visits of a streamed page come together.
static void seal_order(void)
{
	uint32_t a = 0;

	open_book(13, 8);
	while (b.pages[a].flags)
		a++;
	b.sweep[b.n_visits] = b.sweep[0];
	b.sweep[b.n_visits].page = a;
	b.sweep[b.n_visits].offset = 0;
	b.sweep[b.n_visits].bytes = b.pages[a].extents[0].bytes;
	b.n_visits++;
	CF_FAILS(GENAI_E_INVAL, book_seal(&b, b.total / 2, &cf_err));
	b.n_visits--;
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	close_book();
}

// Every budget is served, kept and reported.
static void try_budget(uint64_t budget)
{
	const struct genai_pager_report *p = &b.report;
	uint64_t bytes = 0;

	book_open(&b, NULL);
	for (uint32_t i = 0; i < b.n_pages; i++)
		bytes += b.pages[i].bytes;
	CF_OK(book_seal(&b, budget, &cf_err));
	ck_assert_msg(GENAI_HAS(p, slot_bytes), "a report of %u bytes",
		      p->size);
	ck_assert_uint_eq(p->n_pages, b.n_pages);
	ck_assert_uint_eq(p->total_bytes, bytes);
	ck_assert_msg(p->pinned_bytes + p->ring_bytes <= budget,
		      "budget %lu: %lu pinned and %lu in the ring",
		      (unsigned long)budget, (unsigned long)p->pinned_bytes,
		      (unsigned long)p->ring_bytes);
	ck_assert_msg(book_tap.device_peak <= budget,
		      "budget %lu: held %lu bytes of device memory",
		      (unsigned long)budget,
		      (unsigned long)book_tap.device_peak);
	ck_assert_uint_eq(book_tap.device_bytes,
			  p->pinned_bytes + p->ring_bytes);
	ck_assert_uint_eq(p->ring_bytes, p->ring_slots * p->slot_bytes);
	ck_assert_msg(!p->in_place_bytes || b.r.rt->pager_caps.flags &
						    GENAI_PAGER_CAP_IN_PLACE,
		      "%lu bytes in place, though it does not say IN_PLACE",
		      (unsigned long)p->in_place_bytes);
	ck_assert_uint_le(p->in_place_bytes + p->streamed_bytes, bytes);
	ck_assert_uint_ge(
		p->in_place_bytes + p->streamed_bytes + p->pinned_bytes, bytes);
	ck_assert_msg(!p->n_streamed == !p->ring_slots,
		      "%u pages are streamed through %u slots", p->n_streamed,
		      p->ring_slots);
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "under a budget");
	book_close(&b);
}

static void budgets(void)
{
	static const uint32_t parts[] = {0, 2, 5, 10, 25, 40, 50, 75, 90, 99};

	for (uint64_t seed = 21; seed < 24; seed++) {
		book_make(&b, seed, 12 + (uint32_t)seed % 7 * 4);
		for (uint32_t i = 0; i < 10; i++)
			try_budget(b.total * parts[i] / 100);
		try_budget(1);
		try_budget(b.total - 1);
		try_budget(b.total);
		try_budget(UINT64_MAX - 1);
		try_budget(UINT64_MAX);
		book_free(&b);
	}
}

// What is said to stay is where it is said to be, is not copied again, and any
// number of it is held at once.
static void resident_under(uint32_t part)
{
	static struct genai_place place[BOOK_MAX_VISITS];
	uint32_t kind[BOOK_MAX_VISITS], moves = 0, none = 77;
	struct genai_point ready, tail;

	open_book(33, 24);
	CF_FAILS(GENAI_E_STATE, b.ops->resident(b.p, 0, &kind[0], &cf_err));
	CF_OK(book_seal(&b, b.total * part / 100, &cf_err));
	for (uint32_t v = 0; v < b.n_visits; v++) {
		kind[v] = 77;
		CF_OK(b.ops->resident(b.p, v, &kind[v], &cf_err));
		moves += !kind[v] &&
			 (!v || b.sweep[v - 1].page != b.sweep[v].page);
	}
	CF_FAILS(GENAI_E_INVAL,
		 b.ops->resident(b.p, b.n_visits, &none, &cf_err));
	ck_assert_msg(none == 77, "an output was written on failure");
	ck_assert_msg(moves == b.report.n_streamed,
		      "%u pages are said to come and go, %u to be streamed",
		      moves, b.report.n_streamed);
	CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
	for (uint32_t v = 0; v < b.n_visits; v++) {
		uint32_t copies = book_tap.copies;

		CF_OK(b.ops->acquire(b.p, v, b.s, &place[v], &ready, &cf_err));
		cf_wait(&b.r, b.s, ready);
		book_use(&b, v, &place[v]);
		if (!kind[v]) {
			CF_OK(b.ops->release(b.p, v, cf_mark(&b.r, b.s),
					     &cf_err));
			continue;
		}
		ck_assert_msg(place[v].kind == kind[v],
			      "visit %u stays in a place of kind %u, and is in "
			      "one of kind %u",
			      v, kind[v], place[v].kind);
		ck_assert_msg(book_tap.copies == copies,
			      "visit %u stays, and is copied", v);
	}
	for (uint32_t v = 0; v < b.n_visits; v++)
		if (kind[v])
			CF_OK(b.ops->release(b.p, v, cf_mark(&b.r, b.s),
					     &cf_err));
	CF_OK(b.ops->step_end(b.p, b.s, &tail, &cf_err));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "with what stays held throughout");
	close_book();
}

static void resident(void)
{
	for (uint32_t part = 0; part <= 100; part += 20)
		resident_under(part);
}

// What plan says is what seal does; it takes nothing and forgets the pages.
static void plan(void)
{
	struct genai_pager_report r, none;
	uint32_t takes;

	open_book(41, 24);
	if (!b.ops->plan) {
		close_book();
		cf_skip("does not plan");
	}
	takes = book_tap.takes;
	for (uint32_t part = 0; part <= 100; part += 20) {
		memset(&r, 0, sizeof(r));
		r.size = sizeof(r);
		CF_OK(b.ops->plan(b.p, b.sweep, b.n_visits,
				  b.total * part / 100, &r, &cf_err));
		ck_assert_uint_eq(r.n_pages, b.n_pages);
		ck_assert_uint_le(r.pinned_bytes + r.ring_bytes,
				  b.total * part / 100);
		// groupings are compared by them: 0 would always be best
		ck_assert_msg(r.resident_ns && r.step_ns >= r.resident_ns &&
				      r.serial_ns >= r.step_ns,
			      "a plan of %llu ns, %llu one after another, %llu "
			      "with all on the device",
			      (unsigned long long)r.step_ns,
			      (unsigned long long)r.serial_ns,
			      (unsigned long long)r.resident_ns);
		memset(&none, 0, sizeof(none));
		CF_FAILS(GENAI_E_INVAL, b.ops->plan(b.p, b.sweep, b.n_visits,
						    b.total, &none, &cf_err));
		ck_assert_msg(!none.n_pages, "an output written on failure");
		book_add_all(&b);
	}
	ck_assert_msg(book_tap.takes == takes && !book_tap.copies,
		      "plan took memory or copied");
	CF_OK(b.ops->plan(b.p, b.sweep, b.n_visits, b.total / 2, &r, &cf_err));
	book_add_all(&b);
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	ck_assert_uint_eq(r.pinned_bytes, b.report.pinned_bytes);
	ck_assert_uint_eq(r.ring_bytes, b.report.ring_bytes);
	ck_assert_uint_eq(r.streamed_bytes, b.report.streamed_bytes);
	ck_assert_uint_eq(r.in_place_bytes, b.report.in_place_bytes);
	ck_assert_uint_eq(r.ring_slots, b.report.ring_slots);
	ck_assert_uint_eq(r.slot_bytes, b.report.slot_bytes);
	ck_assert_uint_eq(r.n_pages, b.report.n_pages);
	ck_assert_uint_eq(r.n_streamed, b.report.n_streamed);
	ck_assert_uint_eq(r.total_bytes, b.report.total_bytes);
	ck_assert_uint_eq(r.read_in_place_bytes, b.report.read_in_place_bytes);
	ck_assert_uint_eq(r.step_ns, b.report.step_ns);
	ck_assert_uint_eq(r.serial_ns, b.report.serial_ns);
	ck_assert_uint_eq(r.resident_ns, b.report.resident_ns);
	CF_FAILS(GENAI_E_STATE,
		 b.ops->plan(b.p, b.sweep, b.n_visits, b.total, &r, &cf_err));
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "sealed after plans");
	close_book();
}

static void fills(void)
{
	uint32_t filled = 0;

	open_book(31, 30);
	CF_OK(book_seal(&b, b.total / 3, &cf_err));
	for (int i = 0; i < 4; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "filled pages");
	for (uint32_t i = 0; i < b.n_pages; i++)
		for (uint32_t k = 0; k < b.pages[i].n_extents; k++) {
			if (!b.pages[i].extents[k].fill)
				continue;
			filled++;
			ck_assert_msg(b.pages[i].fills[k].calls == 1,
				      "fill was called %u times for one extent",
				      b.pages[i].fills[k].calls);
		}
	ck_assert_uint_gt(filled, 0);
	close_book();
}

// The file of an extent has its bytes, from an offset on that is like no other;
// to read them there or not is the pager's choice.
static void files(void)
{
	FILE *f = tmpfile();
	int fd = f ? fileno(f) : -1;
	uint64_t before = 4099, far = before + (UINT64_C(5) << 30);

	ck_assert_int_ge(fd, 0);
	for (uint64_t i = 0; i < before; i++)
		fputc('x', f);
	book_make(&b, 33, 30);
	ck_assert_uint_eq(fwrite(b.source, 1, b.source_bytes, f),
			  b.source_bytes);
	ck_assert_int_eq(fflush(f), 0);
	// the same once more, beyond what 32 bits count
	for (uint64_t at = 0, n; at < b.source_bytes; at += n) {
		ssize_t rc = pwrite(fd, b.source + at, b.source_bytes - at,
				    (off_t)(far + at));

		ck_assert_int_gt(rc, 0);
		n = (uint64_t)rc;
	}
	ck_assert_int_eq(lseek(fd, 17, SEEK_SET), 17);
	for (uint32_t i = 0; i < b.n_pages; i++)
		for (uint32_t k = 0; k < b.pages[i].n_extents; k++) {
			struct genai_extent *e = &b.pages[i].extents[k];

			if ((i + k) % 5 == 0)
				continue; // of no file
			e->file = (uint32_t)fd;
			e->file_offset =
				((i + k) % 3 ? before : far) +
				(uint64_t)((const unsigned char *)e->src -
					   b.source);
		}
	book_open(&b, NULL);
	CF_OK(book_seal(&b, b.total / 3, &cf_err));
	for (int i = 0; i < 4; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "pages of a file");
	close_book();
	ck_assert_msg(lseek(fd, 0, SEEK_CUR) == 17,
		      "the file's descriptor was moved or closed");
	fclose(f);
}

static void order(void)
{
	struct genai_place place = {77, 77, 77};
	struct genai_point ready = {NULL, 77}, tail = {NULL, 77};
	struct genai_pager_stats st = {.size = sizeof(st)};
	uint32_t v;

	open_book(41, 10);
	CF_FAILS(GENAI_E_STATE, b.ops->step_begin(b.p, b.s, 0, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->replay_begin(b.p, b.s, &cf_err));
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 b.ops->acquire(b.p, 0, b.s, &place, &ready, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 b.ops->release(b.p, 0, cf_mark(&b.r, b.s), &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->step_end(b.p, b.s, &tail, &cf_err));
	CF_OK(b.ops->step_begin(b.p, b.s, 0, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->step_begin(b.p, b.s, 0, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->replay_begin(b.p, b.s, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 b.ops->acquire(b.p, 1, b.s, &place, &ready, &cf_err));
	CF_FAILS(GENAI_E_STATE,
		 b.ops->acquire(b.p, b.n_visits, b.s, &place, &ready, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->step_end(b.p, b.s, &tail, &cf_err));
	ck_assert_msg(place.size == 77 && place.kind == 77 &&
			      place.addr == 77 && ready.value == 77 &&
			      tail.value == 77,
		      "an output was written on failure");
	for (v = 0; v < b.n_visits; v++) {
		struct genai_point p;

		CF_OK(b.ops->acquire(b.p, v, b.s, &place, &ready, &cf_err));
		cf_wait(&b.r, b.s, ready);
		CF_FAILS(GENAI_E_STATE,
			 b.ops->acquire(b.p, v, b.s, &place, &ready, &cf_err));
		CF_FAILS(GENAI_E_STATE,
			 b.ops->step_end(b.p, b.s, &tail, &cf_err));
		p = cf_mark(&b.r, b.s);
		CF_OK(b.ops->release(b.p, v, p, &cf_err));
		CF_FAILS(GENAI_E_STATE, b.ops->release(b.p, v, p, &cf_err));
	}
	CF_FAILS(GENAI_E_STATE,
		 b.ops->acquire(b.p, v, b.s, &place, &ready, &cf_err));
	CF_OK(b.ops->step_end(b.p, b.s, &tail, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->step_end(b.p, b.s, &tail, &cf_err));
	CF_OK(b.ops->stats(b.p, &st, &cf_err));
	ck_assert_msg(st.steps == 1 && st.acquires == b.n_visits,
		      "%lu steps and %lu acquires are counted, 1 and %u were "
		      "not refused",
		      (unsigned long)st.steps, (unsigned long)st.acquires,
		      b.n_visits);
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals");
	close_book();
}

// Nothing is allocated, mapped, registered or waited for between seal and
// close.
static void quiet(void)
{
	struct genai_host_env *host;
	uint32_t takes, barriers;

	book_open_sealed(&b, 51, 24, NULL);
	CF_OK(book_step(&b, 0, &cf_err));
	takes = book_tap.takes;
	barriers = book_tap.barriers;
	host = genai_module_host(b.r.tested);
	genai_host_fail_alloc(host, 1, 1);
	for (int i = 0; i < 5; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	genai_host_fail_alloc(host, 0, 0);
	ck_assert_msg(takes == book_tap.takes,
		      "%u calls that take memory in a step",
		      book_tap.takes - takes);
	ck_assert_msg(barriers == book_tap.barriers, "%u barriers in a step",
		      book_tap.barriers - barriers);
	book_check(&b, "quiet steps");
	close_book();
}

// A pager of a stream of its own copies there, another one where it is asked.
static void streams(void)
{
	uint32_t copies, on_steps;
	bool async;

	book_open_sealed(&b, 53, 24, NULL);
	async = b.r.rt->pager_caps.flags & GENAI_PAGER_CAP_ASYNC;
	if (!b.report.n_streamed) {
		close_book();
		cf_skip("streams nothing");
	}
	copies = book_tap.copies;
	on_steps = book_tap.copies_on_steps;
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	copies = book_tap.copies - copies;
	on_steps = book_tap.copies_on_steps - on_steps;
	ck_assert_msg(on_steps == (async ? 0 : copies),
		      "%u of %u copies are on the stream of the steps, though "
		      "it %s ASYNC",
		      on_steps, copies, async ? "says" : "does not say");
	book_check(&b, "three steps");
	close_book();
}

static void no_blocking(void)
{
	struct cf_gate g;

	book_open_sealed(&b, 52, 24, NULL);
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "first step");
	cf_gate_close(&b.r, b.s, &g);
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	cf_gate_check(&g, "a step");
	cf_gate_open(&g);
	book_check(&b, "steps behind a gate");
	close_book();
}

// An error of the device while it is described or sealed leaves it as before.
static void device_full(void)
{
	uint32_t n;

	open_book(61, 16);
	for (n = 1; n < 60; n++) {
		int32_t rc;

		book_tap.fail_take = n;
		memset(&b.report, 0, sizeof(b.report));
		CF_CLEAR();
		rc = book_seal(&b, b.total / 2, &cf_err);
		if (!rc && book_tap.fail_take)
			break;
		book_tap.fail_take = 0;
		if (rc) {
			ck_assert_msg(rc == GENAI_E_LIMIT && cf_err.text[0],
				      "take %u fails: %s: %s", n,
				      genai_status_name(rc), cf_err.text);
			ck_assert_msg(!b.report.pinned_bytes &&
					      !b.report.ring_bytes,
				      "an output was written on failure");
			continue;
		}
		// it found another way; that has to be right as well
		CF_OK(book_step(&b, 0, &cf_err));
		book_check(&b, "after a refusal of the device");
		book_close(&b);
		book_open(&b, NULL);
	}
	ck_assert_uint_lt(n, 60);
	book_tap.fail_take = 0;
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals of the device");
	close_book();
}

static void no_registration(void)
{
	uint64_t budgets[] = {0, 0, 0};

	book_make(&b, 62, 20);
	budgets[1] = b.total / 2;
	budgets[2] = b.total;
	for (int i = 0; i < 3; i++) {
		book_open(&b, NULL);
		book_tap.refuse_register = true;
		CF_OK(book_seal(&b, budgets[i], &cf_err));
		for (int k = 0; k < 3; k++)
			CF_OK(book_step(&b, 0, &cf_err));
		book_check(&b, "without registered memory");
		book_close(&b);
	}
	book_free(&b);
}

static void copy_fails(void)
{
	struct genai_ticket t;
	int32_t rc;

	book_open_sealed(&b, 63, 24, NULL);
	CF_OK(book_step(&b, 0, &cf_err));
	if (!b.report.n_streamed) {
		close_book();
		cf_skip("streams nothing");
	}
	book_tap.fail_copy = 3;
	CF_CLEAR();
	rc = book_step(&b, 0, &cf_err);
	ck_assert_msg(rc == GENAI_E_LIMIT, "a refused copy is lost: %s",
		      genai_status_name(rc));
	t = cf_drain(&b.r);
	CF_OK(b.ops->reset(b.p, &t, &cf_err));
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after a refused copy and reset");
	close_book();
}

static void close_ticket(void)
{
	struct genai_ticket t;

	book_open_sealed(&b, 71, 20, NULL);
	CF_OK(book_step(&b, 0, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->close(b.p, NULL, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->reset(b.p, NULL, &cf_err));
	t = cf_drain(&b.r);
	CF_OK(book_step(&b, 0, &cf_err)); // makes it stale
	CF_FAILS(GENAI_E_STATE, b.ops->reset(b.p, &t, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->close(b.p, &t, &cf_err));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals");
	// of a part of the memory
	CF_OK(b.r.ba->drain(b.r.d, (struct genai_range){4096, 4096}, UINT64_MAX,
			    &t, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->reset(b.p, &t, &cf_err));
	CF_FAILS(GENAI_E_STATE, b.ops->close(b.p, &t, &cf_err));
	close_book();
	// never sealed, sealed and never used
	open_book(72, 3);
	close_book();
	open_book(73, 12);
	CF_OK(book_seal(&b, b.total / 2, &cf_err));
	close_book();
}

// Whoever calls need not want to know why.
static void err_null(void)
{
	struct genai_extent odd = {.size = sizeof(odd)};
	struct genai_point p = {0}, tail;
	struct genai_place place;

	book_open_sealed(&b, 74, 20, NULL);
	ck_assert(b.ops->add(b.p, 768, 0, &odd, 1, NULL));
	ck_assert(book_seal(&b, b.total / 2, NULL));
	ck_assert(b.ops->acquire(b.p, 0, b.s, &place, &p, NULL));
	ck_assert(b.ops->release(b.p, 0, p, NULL));
	ck_assert(b.ops->step_end(b.p, b.s, &tail, NULL));
	ck_assert(b.ops->reset(b.p, NULL, NULL));
	CF_OK(book_step(&b, 0, NULL));
	ck_assert(b.ops->close(b.p, NULL, NULL));
	CF_OK(book_step(&b, 0, &cf_err));
	book_check(&b, "after refusals");
	close_book();
}

static void stats(void)
{
	struct genai_pager_stats x = {.size = sizeof(x)}, y = x;
	struct genai_ticket t;
	uint64_t copies, bytes;

	book_open_sealed(&b, 81, 24, NULL);
	for (int i = 0; i < 2; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	CF_OK(b.ops->stats(b.p, &x, &cf_err));
	copies = book_tap.copies;
	bytes = book_tap.copy_bytes;
	for (int i = 0; i < 3; i++)
		CF_OK(book_step(&b, 0, &cf_err));
	CF_OK(b.ops->stats(b.p, &y, &cf_err));
	ck_assert_uint_eq(y.steps - x.steps, 3);
	ck_assert_uint_eq(y.acquires - x.acquires, 3 * b.n_visits);
	ck_assert_uint_eq(y.copies - x.copies, book_tap.copies - copies);
	ck_assert_uint_eq(y.copy_bytes - x.copy_bytes,
			  book_tap.copy_bytes - bytes);
	// gaps between extents may go along
	ck_assert_uint_ge(book_tap.copy_bytes - bytes,
			  3 * b.report.streamed_bytes * 9 / 10);
	ck_assert_uint_le(book_tap.copy_bytes - bytes,
			  3 * b.report.streamed_bytes);
	book_check(&b, "counted steps");
	t = cf_drain(&b.r);
	CF_OK(b.ops->reset(b.p, &t, &cf_err));
	x = y;
	CF_OK(b.ops->stats(b.p, &y, &cf_err));
	ck_assert_msg(y.steps == x.steps && y.acquires == x.acquires &&
			      y.copies == x.copies,
		      "a reset takes back what was counted");
	close_book();
}

// Every allocation of a pager's life in turn.
static int32_t life(uint32_t n, bool *reached, struct genai_error *err)
{
	struct genai_ticket t;
	int32_t rc;

	book_make(&b, 91, 10);
	book_start(&b, NULL);
	genai_host_fail_alloc(genai_module_host(b.r.tested), n, 1);
	rc = b.ops->open(genai_module_self(b.r.tested), &b.r.d->stream,
			 &b.r.d->barrier, &b.p, err);
	for (uint32_t i = 0; !rc && i < b.n_pages; i++)
		rc = b.ops->add(b.p, b.pages[i].bytes, b.pages[i].flags,
				b.pages[i].extents, b.pages[i].n_extents, err);
	if (!rc)
		rc = book_seal(&b, b.total / 2, err);
	if (!rc)
		rc = book_step(&b, 0, err);
	*reached = cf_end_failing(genai_module_host(b.r.tested), n, true);
	if (!rc)
		book_check(&b, "with an allocation that failed");
	t = cf_drain(&b.r);
	if (b.p)
		b.ops->close(b.p, &t, NULL);
	book_stop(&b);
	genai_close(b.r.rt);
	return rc;
}

static void alloc_fails(void)
{
	uint32_t most = cf.o.torture ? 100000 : 60;
	bool reached = true;

	for (uint32_t n = 1; n <= most && reached; n++) {
		struct genai_error err = GENAI_ERROR_INIT;
		int32_t rc = life(n, &reached, &err);

		book_free(&b);
		// it may find another way to serve
		ck_assert_msg(!reached || !rc || rc == GENAI_E_NOMEM,
			      "allocation %u fails: %s: %s", n,
			      genai_status_name(rc), err.text);
		ck_assert_msg(!rc || err.text[0],
			      "allocation %u fails without a text", n);
		ck_assert_msg(reached || !rc, "fails without a reason: %s",
			      err.text);
		ck_assert_msg(!cf_log_errors(), "allocation %u fails: %s", n,
			      cf_logged);
	}
}

#define P GENAI_IFACE_PAGER
static const struct cf_test tests[] = {
	{"pager/caps", "GM-70", P, 0, caps},
	{"pager/add-refuses", "GM-71", P, 0, add_refuses},
	{"pager/seal-refuses", "GM-8 GM-72", P, 0, seal_refuses},
	{"pager/seal-order", "GM-73", P, 0, seal_order},
	{"pager/budgets", "GM-74 GM-91", P, 0, budgets},
	{"pager/fills", "GM-75", P, 0, fills},
	{"pager/files", "GM-142", P, 0, files},
	{"pager/order", "GM-76", P, 0, order},
	{"pager/quiet", "GM-77", P, 0, quiet},
	{"pager/streams", "GM-90", P, 0, streams},
	{"pager/no-blocking", "GM-78", P, 0, no_blocking},
	{"pager/device-full", "GM-79", P, 0, device_full},
	{"pager/no-registration", "GM-80", P, 0, no_registration},
	{"pager/copy-fails", "GM-81", P, 0, copy_fails},
	{"pager/close-ticket", "GM-82", P, 0, close_ticket},
	{"pager/err-null", "GM-5", P, 0, err_null},
	{"pager/stats", "GM-83", P, 0, stats},
	{"pager/resident", "GM-99", P, 0, resident},
	{"pager/plan", "GM-92", P, 0, plan},
	{"pager/alloc-fails", "GM-7", P, 0, alloc_fails},
};
const struct cf_suite cf_suite_pager = {tests,
					sizeof(tests) / sizeof(tests[0])};
