// order_record.c - the happens-before check of recordings.
// While a recording is open its units are only written down.  A launch checks
// them as if they were enqueued now: the origin's branch goes on from where the
// stream is, every other branch starts with nothing but what it waits for.
#include "core/order/order_impl.h"

#include <stdlib.h>
#include <string.h>

#include "core/base/error.h"

static int32_t add_op(struct order_recording *rec, struct order_op op,
		      struct genai_error *err)
{
	int32_t rc = order_grow((void **)&rec->ops, &rec->cap_ops,
				rec->n_ops + 1, sizeof(*rec->ops), err);

	if (!rc)
		rec->ops[rec->n_ops++] = op;
	return rc;
}

static int32_t join(struct genai_order *o, struct order_recording *rec,
		    struct order_stream *s, struct genai_error *err)
{
	struct order_branch *b = &rec->branches[rec->n_branches];
	int32_t rc = 0;

	if (rec->n_branches == 16)
		return genai_fail(err, GENAI_E_LIMIT,
				  "order check: more than 16 streams in a "
				  "recording");
	b->name = s->name;
	b->line = s->line;
	if (rec->n_branches)
		rc = order_line(o, &b->line, err);
	if (rc)
		return rc;
	s->rec = rec;
	s->branch = rec->n_branches++;
	return 0;
}

int32_t order_record_begin(struct genai_order *o, struct order_stream *s,
			   struct genai_error *err)
{
	struct order_recording *rec = calloc(1, sizeof(*rec));
	int32_t rc;

	if (!rec)
		return genai_fail(err, GENAI_E_NOMEM, "no memory");
	rc = join(o, rec, s, err);
	if (rc) {
		free(rec);
		return rc;
	}
	rec->next = o->recordings;
	o->recordings = rec;
	return 0;
}

int32_t order_record_unit(struct genai_order *o, struct order_stream *s,
			  const char *what, uint32_t node,
			  const struct genai_access *acc, uint32_t n,
			  struct genai_error *err)
{
	struct order_recording *rec = s->rec;
	int32_t rc = order_grow((void **)&rec->acc, &rec->cap_acc,
				rec->n_acc + n, sizeof(*rec->acc), err);

	(void)o;
	if (!rc)
		rc = add_op(rec,
			    (struct order_op){.kind = ORDER_UNIT,
					      .branch = s->branch,
					      .node = node,
					      .first = rec->n_acc,
					      .n = n,
					      .what = what},
			    err);
	if (rc)
		return rc;
	if (n)
		memcpy(&rec->acc[rec->n_acc], acc, n * sizeof(*acc));
	rec->n_acc += n;
	return 0;
}

int32_t order_record_mark(struct order_stream *s, struct genai_point p,
			  struct genai_error *err)
{
	struct order_recording *rec = s->rec;
	int32_t rc = order_grow((void **)&rec->points, &rec->cap_marks,
				rec->n_marks + 1, sizeof(*rec->points), err);

	if (!rc)
		rc = add_op(rec,
			    (struct order_op){.kind = ORDER_MARK,
					      .branch = s->branch,
					      .mark = rec->n_marks},
			    err);
	if (!rc)
		rec->points[rec->n_marks++] =
			(struct order_point){p.stream, p.value};
	return rc;
}

int32_t order_record_wait(struct genai_order *o, struct order_stream *s,
			  struct genai_point p, bool *out_inside,
			  struct genai_error *err)
{
	struct order_stream *from = order_stream_of(o, p.stream);
	struct order_recording *rec = from ? from->rec : NULL;
	uint32_t i = rec ? rec->n_marks : 0;
	int32_t rc = 0;

	*out_inside = false;
	while (i && (rec->points[i - 1].stream != p.stream ||
		     rec->points[i - 1].value != p.value))
		i--;
	if (!i || (s->rec && s->rec != rec))
		return 0;
	*out_inside = true;
	if (!s->rec)
		rc = join(o, rec, s, err);
	if (!rc)
		rc = add_op(rec,
			    (struct order_op){.kind = ORDER_WAIT,
					      .branch = s->branch,
					      .mark = i - 1},
			    err);
	return rc;
}

void order_record_free(struct genai_order *o, struct order_recording *rec)
{
	struct order_recording **p = &o->recordings;

	while (*p && *p != rec)
		p = &(*p)->next;
	if (*p)
		*p = rec->next;
	for (struct order_stream *s = o->streams; s; s = s->next)
		if (s->rec == rec)
			s->rec = NULL;
	for (uint32_t i = 1; i < rec->n_branches; i++)
		o->line_used[rec->branches[i].line] = false;
	free(rec->ops);
	free(rec->acc);
	free(rec->points);
	free(rec->reached);
	free(rec);
}

void order_record_end(struct genai_order *o, struct order_stream *s,
		      struct genai_recording *raw)
{
	struct order_recording *rec = s->rec;

	if (!rec)
		return;
	if (!raw) {
		order_record_free(o, rec);
		return;
	}
	rec->raw = raw;
	for (struct order_stream *t = o->streams; t; t = t->next)
		if (t->rec == rec)
			t->rec = NULL;
}

static int32_t replay_op(struct genai_order *o, struct order_recording *rec,
			 const struct order_op *op, struct genai_error *err)
{
	struct order_branch *b = &rec->branches[op->branch];

	switch (op->kind) {
	case ORDER_MARK:
		rec->reached[op->mark] = b->clock;
		return 0;
	case ORDER_WAIT:
		genai_clock_join(&b->clock, &rec->reached[op->mark]);
		return 0;
	default:
		return order_unit(o, b->line, b->name, &b->clock, op->what,
				  op->node, rec->acc + op->first, op->n, err);
	}
}

int32_t order_replay(struct genai_order *o, struct genai_recording *raw,
		     struct order_stream *s, struct genai_error *err)
{
	struct order_recording *rec = o->recordings;
	int32_t rc = 0;

	while (rec && rec->raw != raw)
		rec = rec->next;
	if (!rec)
		return 0;
	rc = rec->compared ? 0 : order_kept(o, rec, err);
	if (rc)
		return rc;
	rec->compared = true;
	rc = order_grow((void **)&rec->reached, &rec->n_reached, rec->n_marks,
			sizeof(*rec->reached), err);
	if (rc)
		return rc;
	genai_clock_join(&s->clock, &o->host);
	for (uint32_t i = 0; i < rec->n_branches; i++)
		rec->branches[i].clock = i ? o->host : s->clock;
	rec->branches[0].line = s->line;
	rec->branches[0].name = s->name;
	for (uint32_t i = 0; !rc && i < rec->n_ops; i++)
		rc = replay_op(o, rec, &rec->ops[i], err);
	s->clock = rec->branches[0].clock;
	// what was checked before the race is not enqueued: nobody has to wait
	for (uint32_t i = 1; rc && i < rec->n_branches; i++)
		o->host.of[rec->branches[i].line] =
			o->epoch[rec->branches[i].line];
	return rc;
}
