/* tok_dec.h - one step of a decoder, between its parser (tok_dec.c) and its
 * execution (tok_decode.c). */
#ifndef GENAI_CORE_TEXT_TOK_DEC_H
#define GENAI_CORE_TEXT_TOK_DEC_H

#include "core/text/tokenizer/tok.h"

enum tok_dec_kind {
	DEC_JOIN, /* no decoder at all: tokens with blanks between */
	DEC_BYTES,
	DEC_METASPACE,
	DEC_WORD_PIECE,
	DEC_SUFFIX, /* BPEDecoder */
	DEC_FALLBACK,
	DEC_FUSE,
	DEC_STRIP,
	DEC_REPLACE
};

struct tok_dec {
	enum tok_dec_kind kind;
	bool flag;     /* Metaspace: drops the first; WordPiece: cleanup */
	bool fused;    /* an earlier step has made one token of all */
	bool in_parts; /* this one does, and may pass it on in parts: nothing
			* after it looks at the token's end */
	uint32_t ch;
	size_t start, stop; /* Strip */
	char *str;	    /* prefix, suffix, content */
	size_t n;
	struct tok_pattern pat;
};

#endif
