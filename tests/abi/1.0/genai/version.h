/* genai/version.h - release and ABI numbers.
 * The ABI major changes when a table's meaning does; the minor when something
 * is appended.  See docs/ABI.md. */
#ifndef GENAI_VERSION_H
#define GENAI_VERSION_H

#define GENAI_VERSION_MAJOR 0
#define GENAI_VERSION_MINOR 1
#define GENAI_VERSION_PATCH 0
#define GENAI_VERSION_STRING "0.1.0"

#define GENAI_ABI_MAJOR 1
#define GENAI_ABI_MINOR 0
#define GENAI_ABI ((GENAI_ABI_MAJOR << 16) | GENAI_ABI_MINOR)

/* True when compiled against a release of at least a.b.c. */
#define GENAI_AT_LEAST(a, b, c)                                                \
	(GENAI_VERSION_MAJOR * 1000000 + GENAI_VERSION_MINOR * 1000 +          \
		 GENAI_VERSION_PATCH >=                                        \
	 (a) * 1000000 + (b) * 1000 + (c))

#endif
