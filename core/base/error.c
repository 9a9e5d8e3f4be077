// error.c - the error record: one line of text, inline, never a pointer.
#include "core/base/error.h"

#include <stdio.h>
#include <string.h>

// Cut a too long text at a character boundary and mark the cut.
static void mark_cut(char *text, size_t cap)
{
	size_t n = cap - 4;

	while (n && ((unsigned char)text[n] & 0xc0) == 0x80)
		n--;
	memcpy(text + n, "...", 4);
}

// File content may be quoted in a message: keep the message one line.
static void tame(char *text)
{
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c < 0x20 || c == 0x7f)
			*text = '?';
	}
}

int32_t genai_error_vfill(struct genai_error *err, int32_t code,
			  const char *file, int line, const char *fmt,
			  va_list ap)
{
	const char *base = strrchr(file, '/');
	int n;

	if (!err)
		return code;
	err->code = code;
	err->line = (uint32_t)line;
	err->node = GENAI_NONE;
	err->module[0] = 0;
	snprintf(err->file, sizeof(err->file), "%s", base ? base + 1 : file);
	n = vsnprintf(err->text, sizeof(err->text), fmt, ap);
	if (n >= (int)sizeof(err->text))
		mark_cut(err->text, sizeof(err->text));
	tame(err->text);
	return code;
}

int32_t genai_error_fill(struct genai_error *err, int32_t code,
			 const char *file, int line, const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	genai_error_vfill(err, code, file, line, fmt, ap);
	va_end(ap);
	return code;
}

void genai_error_prefix(struct genai_error *err, const char *fmt, ...)
{
	char text[sizeof(err->text)];
	va_list ap;
	int n, m;

	if (!err)
		return;
	va_start(ap, fmt);
	n = vsnprintf(text, sizeof(text), fmt, ap);
	va_end(ap);
	if (n < 0 || n >= (int)sizeof(text) - 8)
		return;
	m = snprintf(text + n, sizeof(text) - (size_t)n, ": %s", err->text);
	if (m >= (int)(sizeof(text) - (size_t)n))
		mark_cut(text, sizeof(text));
	tame(text);
	memcpy(err->text, text, sizeof(text));
}

const char *genai_status_name(int32_t code)
{
	static const char *const names[] = {
		"GENAI_OK",	    "GENAI_E_INVAL",  "GENAI_E_NOMEM",
		"GENAI_E_IO",	    "GENAI_E_FORMAT", "GENAI_E_UNSUPPORTED",
		"GENAI_E_CONFIG",   "GENAI_E_MODULE", "GENAI_E_ABI",
		"GENAI_E_NODEVICE", "GENAI_E_DEVICE", "GENAI_E_LIMIT",
		"GENAI_E_STATE",    "GENAI_E_BUSY",   "GENAI_E_DEADLINE",
		"GENAI_E_NOSYS",    "GENAI_E_FORKED", "GENAI_E_INTERRUPTED",
		"GENAI_E_NOTFOUND", "GENAI_E_ORDER"};

	if (code == GENAI_PENDING)
		return "GENAI_PENDING";
	if (code > 0 || -code >= (int)(sizeof(names) / sizeof(names[0])))
		return "GENAI_E_?";
	return names[-code];
}

bool genai_options_known(const void *options, size_t known)
{
	const unsigned char *p = options;
	uint32_t size = *(const uint32_t *)options;

	for (size_t i = known; i < size && size <= 4096; i++)
		if (p[i])
			return false;
	return size <= 4096;
}
