/* template.h - inside of chat templates: rendering with variables in memory.
 * Owns: parsing and rendering.  Does not know: tokenizers, models.
 * <genai/text.h> has what is said here about variables as JSON text. */
#ifndef GENAI_CORE_TEXT_TEMPLATE_H
#define GENAI_CORE_TEXT_TEMPLATE_H

#include <jansson.h>
#include <genai/text.h>

/* Render with the variables of the JSON object vars (borrowed).  now is the
 * clock for strftime_now, in seconds since the epoch, local time given by
 * utc_offset_s.  Errors and result as genai_template_chat. */
int32_t template_render(const struct genai_template *t, json_t *vars,
			int64_t now, int32_t utc_offset_s, char **out_text,
			size_t *out_bytes, struct genai_error *err);

/* What transformers' apply_chat_template does around the rendering: vars gets
 * messages, tools, documents (null when absent), add_generation_prompt; with
 * continue_final the text is cut after the final message's content.
 * messages must be an array of objects (OpenAI shape). */
int32_t template_chat(const struct genai_template *t, json_t *vars,
		      int continue_final, int64_t now, int32_t utc_offset_s,
		      char **out_text, size_t *out_bytes,
		      struct genai_error *err);

/* Variables of its folder, for where the caller gives none; the template takes
 * the reference.  The getter's is borrowed, and may be NULL. */
void template_set_defaults(struct genai_template *t, json_t *vars);
json_t *template_defaults(const struct genai_template *t);

#endif
