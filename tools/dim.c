// dim.c - what stands between <think> and </think> is dimmed on a terminal; the
// marks themselves stay.
#include "tools/dim.h"

#include <string.h>

#define DIM "\033[2m"
#define PLAIN "\033[22m"

static void put(struct dim *d, const char *s, size_t n)
{
	if (n)
		d->put(d->ctx, s, n);
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
	if (mark[d->n_held])
		return true;
	if (!d->inside)
		put(d, DIM, strlen(DIM));
	put(d, d->held, d->n_held);
	if (d->inside)
		put(d, PLAIN, strlen(PLAIN));
	d->inside = !d->inside;
	d->n_held = 0;
	return true;
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
		put(d, PLAIN, strlen(PLAIN));
	d->inside = false;
	d->n_held = 0;
}
