// dim.c - what stands between <think> and </think> is dimmed on a terminal, or
// hidden; the marks of a dimmed part stay.
#include "tools/dim.h"

#include <string.h>

#define DIM "\033[2m"
#define PLAIN "\033[22m"

static void put(struct dim *d, const char *s, size_t n)
{
	while (n && d->behind && !d->inside && *s == '\n') {
		s++;
		n--;
	}
	if (!n || (d->inside && d->how == DIM_HIDDEN))
		return;
	d->behind = false;
	d->put(d->ctx, s, n);
}

static void style(struct dim *d, const char *s)
{
	if (d->how == DIM_DIMMED)
		d->put(d->ctx, s, strlen(s));
}

// The mark that is held is whole.
static void turn(struct dim *d)
{
	if (!d->inside) {
		style(d, DIM);
		d->inside = true;
		put(d, d->held, d->n_held);
	} else {
		put(d, d->held, d->n_held);
		d->inside = false;
		d->behind = d->how == DIM_HIDDEN;
		style(d, PLAIN);
	}
	d->n_held = 0;
}

// Characters of several bytes are not cut: what is no mark is left to the
// caller.
static bool take(struct dim *d, char c)
{
	const char *mark = d->inside ? "</think>" : "<think>";

	if (c != mark[d->n_held]) {
		put(d, d->held, d->n_held);
		d->n_held = 0;
		if (c != '<')
			return false;
	}
	d->held[d->n_held++] = c;
	if (!mark[d->n_held])
		turn(d);
	return true;
}

void dim_begin(struct dim *d, bool inside)
{
	d->n_held = 0;
	d->behind = false;
	d->inside = inside;
	if (inside)
		style(d, DIM);
}

void dim_text(struct dim *d, const char *text, size_t n)
{
	while (n) {
		// a run without a mark at once
		const char *end = d->n_held ? text : memchr(text, '<', n);
		size_t k = end ? (size_t)(end - text) : n;

		put(d, text, k);
		text += k;
		n -= k;
		if (n && take(d, *text)) {
			text++;
			n--;
		}
	}
}

void dim_end(struct dim *d)
{
	put(d, d->held, d->n_held);
	if (d->inside)
		style(d, PLAIN);
	d->inside = d->behind = false;
	d->n_held = 0;
}
