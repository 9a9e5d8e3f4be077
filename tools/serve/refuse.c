// refuse.c - errors of the API: OpenAI's JSON, the status of HTTP.
#include "tools/serve/serve.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "core/text/tokenizer/tok.h"

void refuse_mend(char *text)
{
	size_t n = strlen(text), bad;

	while ((bad = tok_utf8_check(text, n)) < n)
		text[bad] = '?';
}

int refuse(struct serve_error *e, int status, const char *code,
	   const char *param, const char *fmt, ...)
{
	va_list ap;

	e->status = status;
	e->type = status == 401	  ? "authentication_error"
		  : status == 404 ? "not_found_error"
		  : status == 429 ? "rate_limit_error"
		  : status >= 500 ? "server_error"
				  : "invalid_request_error";
	e->code = code;
	e->param = param;
	va_start(ap, fmt);
	vsnprintf(e->text, sizeof(e->text), fmt, ap);
	va_end(ap);
	refuse_mend(e->text);
	return -1;
}

int refuse_from(struct serve_error *e, const struct genai_error *err,
		const char *param)
{
	switch (err->code) {
	case GENAI_E_BUSY:
		return refuse(e, 429, "queue_full", NULL, "%s", err->text);
	case GENAI_E_LIMIT:
		return refuse(e, 400, "context_length_exceeded", param, "%s",
			      err->text);
	case GENAI_E_INVAL:
	case GENAI_E_FORMAT:
	case GENAI_E_UNSUPPORTED:
		return refuse(e, 400, "invalid_value", param, "%s", err->text);
	case GENAI_E_DEVICE:
		return refuse(e, 503, "device_lost", NULL, "%s", err->text);
	default:
		return refuse(e, 500, NULL, NULL, "%s", err->text);
	}
}

int refuse_memory(struct serve_error *e)
{
	return refuse(e, 500, NULL, NULL, "no memory");
}

int refuse_end(const struct serve *s, struct serve_error *e, uint32_t finish)
{
	if (finish == GENAI_FINISH_CANCELLED)
		return refuse(e, 503, "cancelled", NULL,
			      "the server is stopping");
	return refuse(e, 504, "timeout", NULL,
		      "the request took longer than %" PRId64 " s",
		      s->o->timeout);
}

json_t *refuse_json(const struct serve_error *e)
{
	return json_pack("{s:{s:s, s:s, s:s?, s:s?}}", "error", "message",
			 e->text, "type", e->type, "param", e->param, "code",
			 e->code);
}
