// swap.c - what preempted sequences computed, kept in host memory.
//
// Blocks that a sequence gives up are copied to slots of pinned memory and from
// there to others when its turn comes, where that is faster than to compute its
// positions again: both are measured, a block's way out and back when the first
// one is given up, positions as they come.  Copies go on the stream of steps,
// in the order in which blocks and slots change hands, so nothing waits for
// them.
#include "core/engine/engine.h"

#include <stdlib.h>
#include <string.h>

#include "core/config/config.h"

#define AUTO_BYTES (UINT64_C(256) << 20)

struct eng_move {
	uint32_t slot, block;
	bool out;
};

static const struct genai_stream_ops *ops(const struct genai_engine *e)
{
	return e->rt->device.stream.ops;
}

static void *self(const struct genai_engine *e)
{
	return e->rt->device.stream.self;
}

uint64_t eng_device_ns(const struct genai_engine *e)
{
	struct genai_stream_stats st = {.size = sizeof(st)};

	if (!e->simulated || ops(e)->stats(self(e), &st, NULL))
		return eng_now_ns();
	return st.simulated_ns;
}

static void ask_clock(struct genai_engine *e)
{
	struct genai_stream_stats st = {.size = sizeof(st)};

	e->simulated =
		!ops(e)->stats(self(e), &st, NULL) && st.simulated_ns > 0;
}

int32_t eng_swap_open(struct genai_engine *e, struct genai_error *err)
{
	const char *say = genai_config_get(e->rt->config, "runtime", "swap");
	struct genai_error why = GENAI_ERROR_INIT;
	double percent;

	ask_clock(e);
	e->swap.limit = AUTO_BYTES;
	if (!strcmp(say, "off"))
		e->swap.limit = 0;
	else if (strcmp(say, "auto") != 0 &&
		 genai_parse_bytes(say, &e->swap.limit, &percent, &why))
		return genai_config_fail(e->rt->config, "runtime", "swap", err,
					 "%s", why.text);
	return 0;
}

void eng_swap_close(struct genai_engine *e)
{
	free(e->swap.free);
	free(e->swap.moves);
}

// ---- moves ----

static bool add_move(struct genai_engine *e, uint32_t slot, uint32_t block,
		     bool out)
{
	struct eng_swap *w = &e->swap;

	if (w->n_moves == w->cap_moves) {
		uint32_t cap = 2 * w->cap_moves + 64;
		struct eng_move *more =
			realloc(w->moves, cap * sizeof(*w->moves));

		if (!more)
			return false;
		w->moves = more;
		w->cap_moves = cap;
	}
	w->moves[w->n_moves++] = (struct eng_move){slot, block, out};
	return true;
}

// n blocks that follow each other, of every state.
static int32_t move(struct genai_engine *e, const struct eng_move *m,
		    uint32_t n, struct genai_error *err)
{
	const struct genai_states *states = &e->m->step.states;
	const struct genai_packing *k = &e->m->packing;
	int32_t rc = 0;

	for (uint32_t i = 0; !rc && i < states->n; i++) {
		uint64_t each = k->block * states->v[i].bytes;
		uint64_t block =
			e->step.cache.range.addr +
			genai_states_at(states, i, 0,
					(uint64_t)k->blocks * k->block) +
			m->block * each;
		uint64_t slot =
			(uintptr_t)e->swap.mem.host +
			genai_states_at(states, i, 0,
					(uint64_t)e->swap.n * k->block) +
			m->slot * each;

		rc = ops(e)->copy(self(e), e->m->stream, m->out ? slot : block,
				  m->out ? block : slot, n * each,
				  m->out ? GENAI_COPY_D2H : GENAI_COPY_H2D,
				  err);
	}
	return rc;
}

int32_t eng_swap_submit(struct genai_engine *e, struct genai_error *err)
{
	struct eng_swap *w = &e->swap;
	int32_t rc = 0;

	for (uint32_t i = 0, n; !rc && i < w->n_moves; i += n) {
		const struct eng_move *m = &w->moves[i];

		for (n = 1; i + n < w->n_moves && m[n].out == m->out &&
			    m[n].slot == m->slot + n &&
			    m[n].block == m->block + n;)
			n++;
		rc = move(e, m, n, err);
	}
	w->n_moves = 0;
	return rc;
}

// ---- what is faster ----

// How long a block is on its way out and back; nothing is under way.
static int32_t measure(struct genai_engine *e, uint32_t block)
{
	struct genai_barrier_api *b = &e->rt->device.barrier;
	struct eng_move out = {0, block, true}, in = {0, block, false};
	uint64_t best = UINT64_MAX;
	int32_t rc = 0;

	for (int i = 0; !rc && i < 3; i++) {
		uint64_t begun = eng_device_ns(e), took;
		struct genai_point done;

		rc = move(e, &out, 1, NULL);
		if (!rc)
			rc = move(e, &in, 1, NULL);
		if (!rc)
			rc = ops(e)->mark(self(e), e->m->stream, &done, NULL);
		if (!rc)
			rc = b->ops->host_read(b->self, &done, 1, UINT64_MAX,
					       NULL);
		took = eng_device_ns(e) - begun;
		best = took < best ? took : best;
	}
	e->swap.block_ns = best;
	return rc;
}

// The first block is given up: take the memory.
static void begin(struct genai_engine *e, uint32_t block)
{
	const struct genai_packing *k = &e->m->packing;
	struct eng_swap *w = &e->swap;
	struct genai_error err = GENAI_ERROR_INIT;
	uint64_t each =
		genai_states_bytes(&e->m->step.states, (uint64_t)k->block);
	uint64_t n = w->limit / each;

	w->begun = true;
	n = n < k->blocks ? n : k->blocks;
	if (!n)
		return;
	w->free = malloc(n * sizeof(*w->free));
	if (!w->free || ops(e)->alloc(self(e), GENAI_MEM_HOST_PINNED, n * each,
				      GENAI_TAG_STAGING, &w->mem, &err)) {
		genai_log_line(&e->rt->log, GENAI_LOG_INFO,
			       "no host memory for caches, which are computed "
			       "again: %s",
			       err.text);
		return;
	}
	w->n = (uint32_t)n;
	if (measure(e, block)) { // the step that comes says what is wrong
		w->n = 0;
		return;
	}
	while (w->n_free < w->n) {
		w->free[w->n_free] = w->n - 1 - w->n_free;
		w->n_free++;
	}
}

static bool is_faster(const struct genai_engine *e, const struct eng_seq *s,
		      uint32_t n)
{
	const struct eng_swap *w = &e->swap;

	return w->always ||
	       (double)w->block_ns * n < e->position_ns * (double)s->computed;
}

// ---- sequences ----

void eng_swap_drop(struct genai_engine *e, struct eng_seq *s)
{
	// the lowest are taken first, one behind the other
	while (s->n_slots)
		e->swap.free[e->swap.n_free++] = s->slots[--s->n_slots];
}

void eng_swap_out(struct genai_engine *e, struct eng_seq *s)
{
	struct eng_swap *w = &e->swap;
	uint32_t n =
		(uint32_t)((s->computed + eng_block(e) - 1) / eng_block(e));

	if (!n)
		return;
	if (!w->begun)
		begin(e, s->blocks[0]);
	if (n > w->n_free || !is_faster(e, s, n))
		return;
	if (!s->slots)
		s->slots = calloc(e->m->packing.per_seq, sizeof(*s->slots));
	if (!s->slots)
		return;
	s->kept = s->computed;
	for (uint32_t i = 0; i < n; i++) {
		uint32_t slot = w->free[--w->n_free];

		s->slots[s->n_slots++] = slot;
		if (add_move(e, slot, s->blocks[i], true))
			continue;
		eng_swap_drop(e, s); // no memory: those that go are nobody's
		return;
	}
	eng_count(e, &e->stats.swapped, 1);
}

void eng_swap_in(struct genai_engine *e, struct eng_seq *s)
{
	while (s->n_blocks < s->n_slots) {
		uint32_t b = eng_blocks_take(e->blocks);

		if (b == UINT32_MAX)
			break;
		s->blocks[s->n_blocks++] = b;
		if (!add_move(e, s->slots[s->n_blocks - 1], b, false)) {
			eng_blocks_drop(e->blocks, b);
			s->n_blocks--;
			break;
		}
		s->restored = e->planned + 1;
		s->computed = (size_t)s->n_blocks * eng_block(e);
		if (s->computed > s->kept)
			s->computed = s->kept;
	}
	eng_swap_drop(e, s);
}
