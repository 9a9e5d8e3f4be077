/* template.h - chat templates: the Jinja that model folders use.
 * Owns: parsing and rendering.  Does not know: tokenizers, models. */
#ifndef GENAI_CORE_TEXT_TEMPLATE_H
#define GENAI_CORE_TEXT_TEMPLATE_H

#include <jansson.h>
#include <genai/types.h>

struct genai_template;

/* Parse a template; name is used in messages ("chat_template.jinja:3: ...").
 * Immutable afterwards.  Errors: GENAI_E_FORMAT with line, _NOMEM. */
int32_t genai_template_parse(const char *name, const char *text, size_t bytes,
			     struct genai_template **out_t,
			     struct genai_error *err);
void genai_template_free(struct genai_template *t);

/* Find and parse the template of a model folder.  With tools, the one named
 * "tool_use", if there is one: additional_chat_templates/tool_use.jinja, or in
 * the list {name, template} that chat_template of chat_template.json or
 * tokenizer_config.json may be.  Else the default: chat_template.jinja, or
 * chat_template of these files, a string or "default" in the list.
 * GENAI_E_NOTFOUND, naming the folder, if there is none. */
int32_t genai_template_open(const char *dir, int has_tools,
			    struct genai_template **out_t,
			    struct genai_error *err);

/* Render with the variables of the JSON object vars (borrowed): messages,
 * tools, documents, add_generation_prompt, bos_token, eos_token and any other.
 * now is the clock for strftime_now, in seconds since the epoch, local time
 * given by utc_offset_s.  Bounded work: nesting, recursion, loop iterations and
 * output bytes have limits (GENAI_E_LIMIT).
 * Errors: GENAI_E_INVAL for raise_exception (err->text is exactly the
 * template's message); GENAI_E_FORMAT for what Python would raise, with line.
 * *out_text is malloc'ed, NUL-terminated (caller frees). */
int32_t genai_template_render(const struct genai_template *t, json_t *vars,
			      int64_t now, int32_t utc_offset_s,
			      char **out_text, size_t *out_bytes,
			      struct genai_error *err);

/* What transformers' apply_chat_template does around the rendering: vars gets
 * messages, tools, documents (null when absent), add_generation_prompt; with
 * continue_final the text is cut after the final message's content.
 * messages must be an array of objects (OpenAI shape). */
int32_t genai_template_chat(const struct genai_template *t, json_t *vars,
			    int continue_final, int64_t now,
			    int32_t utc_offset_s, char **out_text,
			    size_t *out_bytes, struct genai_error *err);

#endif
