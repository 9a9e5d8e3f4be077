// step.c - a packed step: what it needs in one copy, and what comes back.
//
// Two may be under way.  Pinned memory is there twice; that of a side is
// written again when its step was waited for.  Device memory is there once: the
// stream has an order.
#include "core/engine/engine.h"

#include <math.h>
#include <string.h>

static const struct genai_stream_ops *ops(const struct genai_engine *e)
{
	return e->rt->device.stream.ops;
}

static void *self(const struct genai_engine *e)
{
	return e->rt->device.stream.self;
}

static uint64_t place(uint64_t *end, uint64_t bytes)
{
	uint64_t at = *end;

	*end += (bytes + 255) / 256 * 256;
	return at;
}

// Where the logits of tokens begin, behind the tokens of all sequences.
static uint64_t behind_tokens(uint64_t seqs)
{
	uint64_t end = 0;

	place(&end, seqs * sizeof(int64_t));
	return end;
}

static uint64_t lay_out(struct eng_step *t, const struct genai_model *m)
{
	const struct genai_packing *k = &m->packing;
	uint64_t end = 0;

	t->ids_at = place(&end, m->chunk * sizeof(int64_t));
	t->positions_at = place(&end, m->chunk * sizeof(int64_t));
	t->rows_at = place(&end, k->seqs * sizeof(int64_t));
	t->begins_at = place(&end, k->seqs * sizeof(int64_t));
	t->past_at = place(&end, k->seqs * sizeof(int32_t));
	t->first_at = place(&end, (k->seqs + 1) * sizeof(int32_t));
	t->table_at =
		place(&end, (uint64_t)k->seqs * k->per_seq * sizeof(int32_t));
	return end;
}

uint64_t eng_step_bytes(const struct genai_model *m, uint64_t *out_copied,
			uint32_t *out_copies)
{
	struct eng_step t;
	uint64_t in = lay_out(&t, m), row = session_logit_bytes(m);
	uint64_t best = behind_tokens(m->packing.seqs) + m->packing.seqs * row;

	*out_copied = in + best;
	*out_copies = 3; // in, tokens handed on, tokens and their logits out
	return in + best + m->packing.seqs * m->vocab * row;
}

static int32_t open_side(struct genai_engine *e, struct eng_side *x,
			 uint64_t in, struct genai_error *err)
{
	uint64_t seqs = e->max_seqs, row = session_logit_bytes(e->m);
	struct {
		struct genai_mem *mem;
		uint64_t bytes;
	} take[] = {{&x->stage, in},
		    {&x->out, behind_tokens(seqs) + seqs * row},
		    {&x->host_logits, seqs * e->m->vocab * row}};
	int32_t rc = 0;

	for (size_t i = 0; !rc && i < sizeof(take) / sizeof(take[0]); i++)
		rc = ops(e)->alloc(self(e), GENAI_MEM_HOST_PINNED,
				   take[i].bytes, GENAI_TAG_STAGING,
				   take[i].mem, err);
	if (!rc)
		memset(x->stage.host, 0, in);
	return rc;
}

int32_t eng_step_open(struct genai_engine *e, struct genai_error *err)
{
	const struct genai_packing *k = &e->m->packing;
	struct eng_step *t = &e->step;
	uint64_t in = lay_out(t, e->m), seqs = k->seqs,
		 row = session_logit_bytes(e->m);
	uint64_t cache = genai_states_bytes(&e->m->step.states,
					    (uint64_t)k->blocks * k->block);
	struct {
		struct genai_mem *mem;
		uint32_t kind;
		uint64_t bytes;
		const char *tag;
	} take[] = {
		{&t->cache, GENAI_MEM_DEVICE, cache, GENAI_TAG_KV},
		{&t->in, GENAI_MEM_DEVICE, in, GENAI_TAG_ACTIVATIONS},
		{&t->best, GENAI_MEM_DEVICE, behind_tokens(seqs) + seqs * row,
		 GENAI_TAG_ACTIVATIONS},
		{&t->logits, GENAI_MEM_DEVICE, seqs * e->m->vocab * row,
		 GENAI_TAG_ACTIVATIONS},
	};
	int32_t rc = 0;

	for (size_t i = 0; !rc && i < sizeof(take) / sizeof(take[0]); i++)
		rc = ops(e)->alloc(self(e), take[i].kind, take[i].bytes,
				   take[i].tag, take[i].mem, err);
	for (int i = 0; !rc && i < 2; i++)
		rc = open_side(e, &t->side[i], in, err);
	return rc;
}

void eng_step_close(struct genai_engine *e, const struct genai_ticket *ticket,
		    int32_t *rc, struct genai_error *err)
{
	struct eng_step *t = &e->step;
	struct eng_side *x = &t->side[0], *y = &t->side[1];
	struct genai_mem *all[] = {&t->cache,	    &t->in,	 &t->best,
				   &t->logits,	    &x->stage,	 &x->out,
				   &x->host_logits, &y->stage,	 &y->out,
				   &y->host_logits, &e->swap.mem};

	for (size_t i = 0; i < sizeof(all) / sizeof(all[0]); i++) {
		int32_t r = 0;

		if (all[i]->range.bytes)
			r = ops(e)->free(self(e), all[i]->range.addr, ticket,
					 *rc ? NULL : err);
		if (!*rc)
			*rc = r;
	}
}

// ---- what goes in ----

static void *stage(const struct genai_engine *e, uint64_t at)
{
	return (char *)e->step.side[e->planned].stage.host + at;
}

// Sequence number b of the step, whose rows begin at row.
static void put_seq(struct genai_engine *e, struct eng_seq *s, uint32_t b,
		    uint32_t row, uint32_t *logits)
{
	const struct eng_step *t = &e->step;
	struct eng_part *p = eng_part(e, s);
	size_t past = eng_past(e, s);
	int64_t *ids = stage(e, t->ids_at), *pos = stage(e, t->positions_at);
	int64_t *rows = stage(e, t->rows_at);
	int32_t *table = stage(e, t->table_at);

	table += (size_t)b * e->m->packing.per_seq;
	((int32_t *)stage(e, t->past_at))[b] = (int32_t)past;
	((int32_t *)stage(e, t->first_at))[b] = (int32_t)row;
	for (uint32_t i = 0; i < p->add; i++) {
		size_t at = past + i;

		if (p->handed)
			ids[row + i] = 0; // it is on the device
		else
			ids[row + i] =
				at < s->n ? s->ids[at] : s->guess[at - s->n];
		pos[row + i] = (int64_t)at;
	}
	for (uint32_t i = 0; i < s->n_blocks; i++)
		table[i] = (int32_t)s->blocks[i];
	p->at = row;
	p->row = *logits;
	for (uint32_t i = p->add - p->n_rows; i < p->add; i++)
		rows[(*logits)++] = row + i;
}

// Rows from n on are padding: nobody's.  Returns how many bytes say all.
static uint64_t put_all(struct genai_engine *e, uint64_t padded)
{
	const struct eng_step *t = &e->step;
	int64_t *ids = stage(e, t->ids_at), *pos = stage(e, t->positions_at);
	int64_t *rows = stage(e, t->rows_at), *begins = stage(e, t->begins_at);
	int32_t *past = stage(e, t->past_at), *first = stage(e, t->first_at);
	uint32_t b = 0, row = 0, logits = 0;
	uint64_t end;

	for (struct eng_seq *s = e->running; s; s = s->next) {
		if (!eng_part(e, s)->add)
			continue;
		put_seq(e, s, b++, row, &logits);
		row += eng_part(e, s)->add;
	}
	end = t->table_at + (uint64_t)b * e->m->packing.per_seq * sizeof(*past);
	for (; b < e->max_seqs; b++) {
		past[b] = 0;
		first[b] = (int32_t)row;
	}
	first[b] = (int32_t)row;
	for (uint64_t i = row; i < padded; i++)
		ids[i] = pos[i] = 0;
	for (uint32_t i = 0; i < e->max_seqs; i++)
		begins[i] = (int64_t)i * e->m->vocab;
	for (; logits < e->max_seqs; logits++)
		rows[logits] = 0;
	return end;
}

// ---- binding ----

struct binder {
	struct genai_engine *e;
	struct genai_error *err;
	int32_t rc;
};

static void bind(struct binder *b, bool output, uint32_t i,
		 const struct genai_view *v)
{
	const struct genai_executor_ops *x = &b->e->rt->exec;
	struct genai_plan *plan = b->e->m->plan;

	if (b->rc || i == GENAI_NONE)
		return;
	b->rc = output ? x->bind_output(plan, i, v, b->err)
		       : x->bind_input(plan, i, v, b->err);
}

static void bind_in(struct binder *b, uint32_t i, uint32_t dtype, uint64_t at,
		    uint32_t rank, const int64_t *dims)
{
	struct genai_view v;

	genai_view_dense(&v, dtype, b->e->step.in.range.addr + at, rank, dims);
	bind(b, false, i, &v);
}

static int32_t bind_step(struct genai_engine *e, int64_t n,
			 struct genai_error *err)
{
	const struct genai_packing *k = &e->m->packing;
	const struct genai_step *g = &e->m->step;
	const struct genai_states *states = &g->states;
	const struct eng_step *t = &e->step;
	struct binder b = {.e = e, .err = err};
	int64_t seqs = k->seqs, r = n < seqs ? n : seqs;
	struct genai_view v;

	bind_in(&b, g->ids, GENAI_DT_I64, t->ids_at, 2, (int64_t[]){1, n});
	bind_in(&b, g->positions, GENAI_DT_I64, t->positions_at, 2,
		(int64_t[]){1, n});
	bind_in(&b, g->rows, GENAI_DT_I64, t->rows_at, 1, &r);
	bind_in(&b, g->begins, GENAI_DT_I64, t->begins_at, 1, &r);
	bind_in(&b, g->past, GENAI_DT_I32, t->past_at, 1, &r);
	bind_in(&b, g->first, GENAI_DT_I32, t->first_at, 1, (int64_t[]){r + 1});
	bind_in(&b, g->table, GENAI_DT_I32, t->table_at, 2,
		(int64_t[]){r, k->per_seq});
	genai_view_dense(&v, GENAI_DT_I64, t->best.range.addr, 2,
			 (int64_t[]){1, r});
	bind(&b, true, g->next, &v);
	genai_view_dense(&v, g->logits_dtype,
			 t->best.range.addr + behind_tokens(k->seqs), 2,
			 (int64_t[]){1, r});
	bind(&b, true, g->best, &v);
	genai_view_dense(&v, g->logits_dtype, t->logits.range.addr, 3,
			 (int64_t[]){1, r, e->m->vocab});
	bind(&b, true, g->logits, &v);
	for (uint32_t i = 0; i < states->n; i++) {
		uint64_t at = genai_states_at(states, i, 0,
					      (uint64_t)k->blocks * k->block);

		genai_state_blocks(&states->v[i], t->cache.range.addr + at,
				   k->blocks, k->block, &v);
		bind(&b, false, states->v[i].in, &v);
		bind(&b, true, states->v[i].out, &v);
	}
	return b.rc;
}

// ---- the step ----

static int32_t copy(struct genai_engine *e, uint64_t dst, uint64_t src,
		    uint64_t bytes, uint32_t kind, struct genai_error *err)
{
	return ops(e)->copy(self(e), e->m->stream, dst, src, bytes, kind, err);
}

static int32_t take_back(struct genai_engine *e, struct genai_error *err)
{
	const struct eng_step *t = &e->step;
	const struct eng_side *x = eng_plan(e);
	uint64_t seqs = e->max_seqs, row = session_logit_bytes(e->m);
	uint64_t n = x->logit_rows, all = e->m->vocab * row;
	uintptr_t out = (uintptr_t)x->out.host;
	int32_t rc = 0;

	// tokens, and behind all of them their logits
	if (n)
		rc = copy(e, out, t->best.range.addr,
			  behind_tokens(seqs) + n * row, GENAI_COPY_D2H, err);
	for (struct eng_seq *s = e->running; !rc && s; s = s->next) {
		const struct eng_part *p = eng_part(e, s);

		if (p->n_rows && !eng_is_best(s))
			rc = copy(e,
				  (uintptr_t)x->host_logits.host + p->row * all,
				  t->logits.range.addr + p->row * all,
				  p->n_rows * all, GENAI_COPY_D2H, err);
	}
	return rc;
}

// Tokens that the device chose in turn's step are ids of the planned one: few
// copies, because sequences that go on do so in one order.
static int32_t hand_on(struct genai_engine *e, struct genai_error *err)
{
	const struct eng_step *t = &e->step;
	uint64_t from = 0, to = 0, n = 0;
	int32_t rc = 0;

	for (struct eng_seq *s = e->running;; s = s->next) {
		const struct eng_part *was = s ? eng_now(e, s) : NULL;
		const struct eng_part *p = s ? eng_part(e, s) : NULL;
		uint64_t row = s ? was->row + was->n_rows - 1 : 0;

		if (s && !p->handed)
			continue;
		if (n && (!s || row != from + n || p->at != to + n)) {
			rc = copy(e, t->in.range.addr + t->ids_at + to * 8,
				  t->best.range.addr + from * 8, n * 8,
				  GENAI_COPY_D2D, err);
			n = 0;
		}
		if (rc || !s)
			return rc;
		if (!n++) {
			from = row;
			to = p->at;
		}
	}
}

int32_t eng_step_submit(struct genai_engine *e, struct genai_error *err)
{
	struct eng_step *t = &e->step;
	struct eng_side *x = eng_plan(e);
	uint64_t bytes;
	int32_t rc;

	x->padded = genai_packed_rows(e->m, x->rows);
	bytes = put_all(e, x->padded);
	rc = eng_swap_submit(e, err);
	if (!rc)
		rc = copy(e, t->in.range.addr, (uintptr_t)x->stage.host, bytes,
			  GENAI_COPY_H2D, err);
	if (!rc)
		rc = hand_on(e, err);
	if (!rc)
		rc = bind_step(e, (int64_t)x->padded, err);
	if (!rc)
		rc = genai_runtime_submit(e->rt, e->m->plan, e->m->stream, err);
	if (!rc)
		rc = take_back(e, err);
	if (!rc)
		rc = ops(e)->mark(self(e), e->m->stream, &x->done, err);
	x->flying = !rc;
	return rc;
}

int32_t eng_step_wait(struct genai_engine *e, struct genai_error *err)
{
	struct genai_barrier_api *b = &e->rt->device.barrier;
	struct eng_side *x = &e->step.side[e->turn];
	int32_t rc = b->ops->host_read(b->self, &x->done, 1, UINT64_MAX, err);

	x->flying = false;
	return rc ? rc : genai_onnx_check(e->m->onnx, err);
}

int64_t eng_step_best(const struct genai_engine *e, uint32_t row,
		      float *out_logit)
{
	const char *out = e->step.side[e->turn].out.host;

	*out_logit = session_widen(e->m->step.logits_dtype,
				   out + behind_tokens(e->max_seqs), row);
	return ((const int64_t *)(const void *)out)[row];
}

void eng_step_logits(struct genai_engine *e, uint32_t row)
{
	uint64_t all = e->m->vocab * session_logit_bytes(e->m);
	const struct genai_mem *mem = &e->step.side[e->turn].host_logits;
	const char *from = (const char *)mem->host + row * all;

	for (uint32_t i = 0; i < e->m->vocab; i++)
		e->wide[i] = session_widen(e->m->step.logits_dtype, from, i);
}
