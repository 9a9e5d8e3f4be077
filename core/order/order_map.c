// order_map.c - the map of bytes to their last accesses.
// A write replaces everything it covers by one span, so the map stays as small
// as the program's working set; a read keeps only readers that it is not
// ordered after, for whoever is ordered after it is ordered after those too.
#include "core/order/order_map.h"

#include <stdlib.h>
#include <string.h>

static bool before(const struct genai_touch *t, const struct genai_clock *c)
{
	return t->line == GENAI_NONE || t->epoch <= c->of[t->line];
}

// Index of the first span that ends after at.
static uint32_t find(const struct genai_order_map *m, uint64_t at)
{
	uint32_t lo = 0, hi = m->n;

	while (lo < hi) {
		uint32_t mid = lo + (hi - lo) / 2;

		if (m->spans[mid].end <= at)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo;
}

static int32_t make_room(struct genai_order_map *m, uint32_t at)
{
	if (m->n == m->cap) {
		uint32_t cap = m->cap ? 2 * m->cap : 256;
		void *p = realloc(m->spans, cap * sizeof(*m->spans));

		if (!p)
			return GENAI_E_NOMEM;
		m->spans = p;
		m->cap = cap;
	}
	memmove(&m->spans[at + 1], &m->spans[at],
		(m->n - at) * sizeof(*m->spans));
	m->n++;
	memset(&m->spans[at], 0, sizeof(m->spans[at]));
	m->spans[at].writer.line = GENAI_NONE;
	return 0;
}

static void drop(struct genai_order_map *m, uint32_t from, uint32_t to)
{
	if (from == to)
		return;
	for (uint32_t i = from; i < to; i++)
		free(m->spans[i].readers);
	memmove(&m->spans[from], &m->spans[to],
		(m->n - to) * sizeof(*m->spans));
	m->n -= to - from;
}

// Cut the span that holds at in its inside into two.
static int32_t cut(struct genai_order_map *m, uint64_t at)
{
	uint32_t i = find(m, at);
	struct genai_touch *readers = NULL;
	int32_t rc;

	if (i == m->n || m->spans[i].begin >= at)
		return 0;
	if (m->spans[i].n_readers) {
		readers = malloc(m->spans[i].n_readers * sizeof(*readers));
		if (!readers)
			return GENAI_E_NOMEM;
		memcpy(readers, m->spans[i].readers,
		       m->spans[i].n_readers * sizeof(*readers));
	}
	rc = make_room(m, i);
	if (rc) {
		free(readers);
		return rc;
	}
	m->spans[i] = m->spans[i + 1];
	m->spans[i].end = at;
	m->spans[i + 1].begin = at;
	m->spans[i + 1].readers = readers;
	m->spans[i + 1].cap_readers = m->spans[i + 1].n_readers;
	return 0;
}

static int32_t add_reader(struct genai_span *s, const struct genai_touch *t,
			  const struct genai_clock *clock)
{
	uint32_t n = 0;

	for (uint32_t i = 0; i < s->n_readers; i++)
		if (!before(&s->readers[i], clock))
			s->readers[n++] = s->readers[i];
	s->n_readers = n;
	if (n == s->cap_readers) {
		uint32_t cap = n + 4;
		void *p = realloc(s->readers, cap * sizeof(*s->readers));

		if (!p)
			return GENAI_E_NOMEM;
		s->readers = p;
		s->cap_readers = cap;
	}
	s->readers[s->n_readers++] = *t;
	return 0;
}

// The first access in [begin, end) that t may not follow.
static const struct genai_touch *race(const struct genai_order_map *m,
				      uint64_t begin, uint64_t end, bool write,
				      const struct genai_clock *clock)
{
	for (uint32_t i = find(m, begin); i < m->n && m->spans[i].begin < end;
	     i++) {
		const struct genai_span *s = &m->spans[i];

		if (!before(&s->writer, clock))
			return &s->writer;
		for (uint32_t k = 0; write && k < s->n_readers; k++)
			if (!before(&s->readers[k], clock))
				return &s->readers[k];
	}
	return NULL;
}

static int32_t write_range(struct genai_order_map *m, uint64_t begin,
			   uint64_t end, const struct genai_touch *t)
{
	uint32_t from = find(m, begin), to = from;
	int32_t rc;

	while (to < m->n && m->spans[to].begin < end)
		to++;
	if (to == from) {
		rc = make_room(m, from);
		if (rc)
			return rc;
		to = from + 1;
	}
	drop(m, from + 1, to);
	m->spans[from].begin = begin;
	m->spans[from].end = end;
	m->spans[from].writer = *t;
	m->spans[from].n_readers = 0;
	return 0;
}

static int32_t read_range(struct genai_order_map *m, uint64_t begin,
			  uint64_t end, const struct genai_touch *t,
			  const struct genai_clock *clock)
{
	uint32_t i = find(m, begin);
	int32_t rc = 0;

	while (!rc && begin < end) {
		uint64_t next = i < m->n && m->spans[i].begin < end
					? m->spans[i].begin
					: end;

		if (begin < next) { // nobody was here yet
			rc = make_room(m, i);
			if (rc)
				break;
			m->spans[i].begin = begin;
			m->spans[i].end = next;
		}
		rc = add_reader(&m->spans[i], t, clock);
		begin = m->spans[i++].end;
	}
	return rc;
}

int32_t genai_order_touch(struct genai_order_map *m, uint64_t begin,
			  uint64_t bytes, const struct genai_touch *t,
			  const struct genai_clock *clock,
			  struct genai_touch *out_race)
{
	uint64_t end = begin + bytes;
	const struct genai_touch *r = race(m, begin, end, t->write, clock);
	int32_t rc;

	if (r) {
		*out_race = *r;
		return GENAI_E_ORDER;
	}
	rc = cut(m, begin);
	if (!rc)
		rc = cut(m, end);
	if (rc)
		return rc;
	return t->write ? write_range(m, begin, end, t)
			: read_range(m, begin, end, t, clock);
}

int32_t genai_order_forget(struct genai_order_map *m, uint64_t begin,
			   uint64_t bytes, const struct genai_clock *clock,
			   struct genai_touch *out_race)
{
	uint64_t end = begin + bytes < begin ? UINT64_MAX : begin + bytes;
	const struct genai_touch *r = NULL;
	uint32_t from, to;
	int32_t rc;

	if (clock)
		r = race(m, begin, end, true, clock);
	if (r) {
		*out_race = *r;
		return GENAI_E_ORDER;
	}
	rc = cut(m, begin);
	if (!rc)
		rc = cut(m, end);
	if (rc)
		return rc;
	for (from = to = find(m, begin); to < m->n && m->spans[to].begin < end;
	     to++)
		;
	drop(m, from, to);
	return 0;
}

void genai_order_clear(struct genai_order_map *m)
{
	drop(m, 0, m->n);
	free(m->spans);
	memset(m, 0, sizeof(*m));
}
