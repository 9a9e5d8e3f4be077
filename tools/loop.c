// loop.c - the generation loop: tokens, text, stop texts, interrupts.
#include "core/text/stops.h"
#include "tools/trace.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

volatile sig_atomic_t cli_interrupted;

static volatile sig_atomic_t most_interrupts;

static void on_interrupt(int sig)
{
	(void)sig;
	// nobody heeded the first: end the program at once
	if (++cli_interrupted > most_interrupts)
		_exit(EXIT_INTERRUPT);
}

void cli_catch_interrupts(int most)
{
	struct sigaction sa = {.sa_handler = on_interrupt};

	most_interrupts = most;

	sigemptyset(&sa.sa_mask);
	sigaction(SIGINT, &sa, NULL);
}

// ---- the loop ----

struct loop {
	struct cli *c;
	const struct cli_generate *g;
	struct cli_result *r;
	struct genai_detok *d;
	float *logits;
	size_t held; // bytes of text not emitted: may begin a stop text
	size_t cap_ids, cap_text;
	bool greedy;
	double sim_s; // the simulated clock when the last token came
};

static int32_t add_text(struct loop *l, const char *s, size_t n)
{
	struct cli_result *r = l->r;

	if (r->n_text + n + 1 > l->cap_text) {
		size_t cap = 2 * (r->n_text + n + 64);
		char *more = realloc(r->text, cap);

		if (!more)
			return genai_fail(&l->c->err, GENAI_E_NOMEM,
					  "no memory");
		r->text = more;
		l->cap_text = cap;
	}
	memcpy(r->text + r->n_text, s, n);
	r->n_text += n;
	r->text[r->n_text] = 0;
	l->held += n;
	return 0;
}

static void emit(struct loop *l, size_t keep)
{
	size_t n = l->held - keep;

	if (n && l->g->emit)
		l->g->emit(l->g->ctx, l->r->text + l->r->n_text - l->held, n);
	l->held = keep;
}

// Take up text; true if a stop text ended it.
static bool take_text(struct loop *l, const char *s, size_t n, int32_t *rc)
{
	size_t keep, at = 0, from;

	*rc = n ? add_text(l, s, n) : 0;
	if (*rc || !n)
		return false;
	from = l->r->n_text - l->held;
	if (genai_stop_find(l->g->stops, l->g->n_stops, l->r->text + from,
			    l->held, &at, &keep)) {
		l->held = at;
		l->r->n_text = from + at;
		l->r->text[from + at] = 0;
		emit(l, 0);
		return true;
	}
	emit(l, keep);
	return false;
}

static int32_t keep_allowed(struct loop *l)
{
	uint32_t vocab = l->g->m->info.vocab_size;
	uint32_t *bits = calloc(vocab / 32 + 1, sizeof(*bits));
	int32_t rc;

	if (!bits)
		return genai_fail(&l->c->err, GENAI_E_NOMEM, "no memory");
	rc = constraint_allow(l->g->constraint, 0, l->r->ids, l->r->n_ids, bits,
			      &l->c->err);
	for (uint32_t i = 0; !rc && i < vocab; i++)
		if (!(bits[i / 32] >> (i % 32) & 1))
			l->logits[i] = -INFINITY;
	free(bits);
	return rc;
}

static int32_t choose(struct loop *l, bool ahead, int64_t *out_id)
{
	struct cli_model *m = l->g->m;
	struct genai_error *err = &l->c->err;
	size_t rows;
	int32_t rc;

	if (l->greedy)
		return genai_session_next(m->session, ahead, out_id, err);
	// the token before, if any, still has to be computed
	rc = 0;
	if (l->r->n_ids)
		rc = genai_session_append(m->session,
					  &l->r->ids[l->r->n_ids - 1], 1, err);
	if (!rc)
		rc = genai_session_logits(m->session, l->logits, 1, &rows, err);
	if (!rc && l->g->constraint)
		rc = keep_allowed(l);
	if (!rc)
		rc = genai_sampler_pick(l->g->sampler, l->logits, out_id, err);
	return rc;
}

static bool is_eos(const struct loop *l, int64_t id)
{
	const struct genai_model_info *i = &l->g->m->info;

	for (uint32_t k = 0; !l->g->ignore_eos && k < i->n_eos; k++)
		if (i->eos[k] == id)
			return true;
	return false;
}

static int32_t add_id(struct loop *l, int64_t id)
{
	if (l->r->n_ids == l->cap_ids) {
		size_t cap = l->cap_ids ? 2 * l->cap_ids : 256;
		int64_t *more = realloc(l->r->ids, cap * sizeof(*more));

		if (!more)
			return genai_fail(&l->c->err, GENAI_E_NOMEM,
					  "no memory");
		l->r->ids = more;
		l->cap_ids = cap;
	}
	l->r->ids[l->r->n_ids++] = id;
	return 0;
}

// The simulated time of the step before this token; the first ones, which may
// still be recorded, are left out.
#define SIM_FIRST 4

static int32_t note_clock(struct loop *l)
{
	const struct genai_stream_api *s = &l->g->m->rt->device.stream;
	struct genai_stream_stats st = {.size = sizeof(st)};
	struct cli_result *r = l->r;
	double before = l->sim_s;
	int32_t rc = s->ops->stats(s->self, &st, &l->c->err);

	if (rc || !st.simulated_ns)
		return rc;
	l->sim_s = (double)st.simulated_ns * 1e-9;
	if (r->n_ids < SIM_FIRST || r->n_sim == CLI_SIM_SAMPLES)
		return 0;
	r->sim_s[r->n_sim++] = l->sim_s - before;
	return 0;
}

static int32_t loop_tokens(struct loop *l, int64_t most)
{
	const char *text;
	size_t n;
	int32_t rc = 0;

	l->r->finish = "length";
	for (int64_t i = 0; !rc && i < most; i++) {
		int64_t id;

		if (cli_interrupted) {
			l->r->finish = "interrupted";
			break;
		}
		trace_enter("token");
		rc = choose(l, i + 1 < most, &id);
		trace_leave();
		if (rc)
			break;
		if (!i)
			l->r->first_s = cli_now() - l->g->m->start;
		rc = note_clock(l);
		if (!rc)
			rc = add_id(l, id);
		if (rc)
			break;
		if (is_eos(l, id)) {
			l->r->finish = "eos";
			break;
		}
		if (!l->d)
			continue;
		rc = genai_detok_push(l->d, id, &text, &n, &l->c->err);
		if (!rc && take_text(l, text, n, &rc)) {
			l->r->finish = "stop";
			return rc;
		}
	}
	if (!rc && l->d) {
		rc = genai_detok_flush(l->d, &text, &n, &l->c->err);
		if (!rc && take_text(l, text, n, &rc))
			l->r->finish = "stop";
		if (!rc)
			emit(l, 0);
	}
	return rc;
}

// ---- the prompt ----

#define SLICE_S 0.2	// computed at once, about
#define SLICE_FIRST 128 // tokens

// How much of a prompt may be computed at once, so that an interrupt is heard
// in time: a chunk, and less where that changes neither the result nor what
// crosses the link.
static uint64_t largest_slice(const struct cli_model *m, bool *may_cut)
{
	struct genai_stats st = {.size = sizeof(st)};

	*may_cut = m->info.any_cut &&
		   !genai_model_get_stats(m->model, &st, NULL) &&
		   !st.ring_bytes;
	return m->info.chunk;
}

static uint64_t next_slice(uint64_t slice, uint64_t most, double s)
{
	double want = s > 0 ? (double)slice * SLICE_S / s : (double)most;

	if (want > 4 * (double)slice)
		want = 4 * (double)slice;
	return want < 8 ? 8 : want > (double)most ? most : (uint64_t)want;
}

static int32_t feed(struct loop *l, const int64_t *ids, size_t n)
{
	struct cli_model *m = l->g->m;
	bool may_cut;
	uint64_t most = largest_slice(m, &may_cut), slice = most;
	double begin = cli_now(), before = begin, now;
	int32_t rc = 0;

	if (may_cut && slice > SLICE_FIRST)
		slice = SLICE_FIRST;
	for (size_t done = 0; !rc && done < n && !cli_interrupted;) {
		size_t k = n - done < slice ? n - done : (size_t)slice;

		rc = genai_session_append(m->session, ids + done, k,
					  &l->c->err);
		done += k;
		now = cli_now();
		if (may_cut)
			slice = next_slice(k, most, now - before);
		before = now;
		if (!rc && now - begin > 1 && done < n)
			cli_progress(l->c,
				     "reading %zu of %zu tokens, %.0f a "
				     "second",
				     done, n, (double)done / (now - begin));
	}
	cli_clear_line(l->c);
	return rc;
}

static int32_t fed(struct loop *l, const int64_t *ids, size_t n)
{
	int32_t rc;

	trace_enter("prompt");
	rc = feed(l, ids, n);
	trace_leave();
	return rc;
}

static int32_t loop_open(struct loop *l, size_t n_prompt)
{
	const struct cli_generate *g = l->g;
	int32_t rc = 0;

	l->greedy = genai_sampler_is_greedy(g->sampler) && !g->constraint;
	l->r->text = calloc(1, 64);
	l->cap_text = 64;
	if (!l->greedy)
		l->logits = malloc(g->m->info.vocab_size * sizeof(float));
	if (!l->r->text || (!l->greedy && !l->logits))
		return genai_fail(&l->c->err, GENAI_E_NOMEM, "no memory");
	if (g->m->tok)
		rc = genai_detok_open(
			g->m->tok, g->keep_special ? GENAI_TOK_KEEP_SPECIAL : 0,
			&l->d, &l->c->err);
	if (!rc && !n_prompt)
		rc = genai_fail(&l->c->err, GENAI_E_INVAL,
				"the prompt is empty");
	return rc;
}

// Prompt and new tokens together: at most the context and search.max_length.
static int32_t room_left(struct loop *l, size_t n_prompt, int64_t *out)
{
	const struct genai_model_info *i = &l->g->m->info;
	int64_t length = (int64_t)genai_session_length(l->g->m->session) +
			 (int64_t)n_prompt;
	int64_t limit = (int64_t)i->context;

	if (i->max_length > 0 && i->max_length < limit)
		limit = i->max_length;
	if (length >= limit && l->g->max_new)
		return genai_fail(&l->c->err, GENAI_E_LIMIT,
				  "the prompt's %" PRId64
				  " tokens leave no room: prompt and answer "
				  "together may have %" PRId64,
				  length, limit);
	*out = limit - length;
	return 0;
}

int32_t cli_generate(struct cli *c, const struct cli_generate *g,
		     const int64_t *prompt, size_t n_prompt,
		     struct cli_result *out)
{
	struct loop l = {.c = c, .g = g, .r = out};
	int64_t room = 0;
	double t0;
	int32_t rc;

	memset(out, 0, sizeof(*out));
	rc = loop_open(&l, n_prompt);
	if (!rc)
		rc = room_left(&l, n_prompt, &room);
	t0 = cli_now();
	if (!rc)
		rc = fed(&l, prompt, n_prompt);
	out->prefill_s = cli_now() - t0;
	if (!rc && !l.greedy)
		rc = genai_sampler_accept(g->sampler, prompt, n_prompt,
					  &c->err);
	t0 = cli_now();
	if (!rc)
		rc = loop_tokens(&l, g->max_new < room ? g->max_new : room);
	out->decode_s = cli_now() - t0;
	genai_detok_close(l.d);
	free(l.logits);
	if (rc)
		cli_result_free(out);
	return rc;
}

void cli_result_free(struct cli_result *r)
{
	free(r->ids);
	free(r->text);
	memset(r, 0, sizeof(*r));
}
