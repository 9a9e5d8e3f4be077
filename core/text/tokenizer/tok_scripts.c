// tok_scripts.c - the UnicodeScripts pre-tokenizer: a cut wherever the script
// changes.  The scripts are those of the reference's own table, which is of
// Unicode 9 and takes Japanese for Han.
#include "core/text/tokenizer/tok.h"

#include "core/text/tokenizer/tok_script_table.h"

unsigned tok_script(uint32_t cp)
{
	size_t a = 0, b = sizeof(ranges) / sizeof(ranges[0]);

	while (a < b) {
		size_t m = (a + b) / 2;

		if (cp > ranges[m].last)
			a = m + 1;
		else if (cp < ranges[m].first)
			b = m;
		else
			return ranges[m].script;
	}
	return 0;
}

void tok_scripts_split(const char *text, const struct tok_piece *piece,
		       struct tok_buf *out)
{
	size_t at = 0, start = 0;
	unsigned last = 0, n;
	struct tok_piece p;

	// blanks and unassigned characters belong to what came before them; in
	// front of all scripts the reference drops them
	while (at < piece->len) {
		unsigned s = tok_script(
			tok_utf8_get(text + at, piece->len - at, &n));

		if (s && s != last) {
			p = (struct tok_piece){piece->off + start, at - start,
					       piece->at_start && !start};
			if (last)
				tok_buf_add(out, &p, sizeof(p));
			start = at;
		}
		last = s ? s : last;
		at += n;
	}
	p = (struct tok_piece){piece->off + start, piece->len - start,
			       piece->at_start && !start};
	if (last)
		tok_buf_add(out, &p, sizeof(p));
}
