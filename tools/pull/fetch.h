/* fetch.h - one file over HTTP, with libcurl: from where it broke off, checked.
 */
#ifndef GENAI_TOOLS_PULL_FETCH_H
#define GENAI_TOOLS_PULL_FETCH_H

#include "tools/cli.h"

struct fetch {
	struct cli *c;
	void *curl;
	const char *token; /* sent to the hub only; NULL: none */
	long patience_s;   /* without a byte, it is taken for broken */
};

int32_t fetch_open(struct cli *c, struct fetch *out);
void fetch_close(struct fetch *f);
/* All of a small answer, malloc'ed and terminated; more than most bytes are an
 * error. */
int32_t fetch_text(struct fetch *f, const char *url, size_t most, char **out);
/* A file to path by way of path.incomplete, from where that ends.  hash is its
 * SHA-256 of 64 digits, or git's SHA-1 of 40.  Whoever else fetches it is
 * waited for.  What does not have the hash is taken away. */
int32_t fetch_file(struct fetch *f, const char *url, const char *name,
		   uint64_t bytes, const char *hash, const char *path);

#endif
