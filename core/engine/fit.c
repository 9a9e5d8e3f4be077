// fit.c - what an engine would take, and a step of all of its sequences.
#include "core/model/fit.h"
#include "core/engine/engine.h"

// full: what is said of a step's time is about one of all sequences.  Weights
// are placed for a single row, as an engine does.
static int32_t ask(struct genai_runtime *rt, const char *path,
		   struct genai_packing k, bool full, struct genai_fit *out,
		   struct genai_error *err)
{
	struct genai_model *m = NULL;
	uint64_t copied = 0, bytes;
	uint32_t copies = 0;
	int32_t rc;

	k.dry = true;
	k.full = full;
	rc = genai_model_open_packed(rt, path, &k, &m, err);
	if (rc)
		return rc;
	bytes = eng_step_bytes(m, &copied, &copies);
	rc = genai_fit_of(m, bytes, out, err);
	out->copy_bytes = copied;
	out->copies = copies;
	genai_model_close(m);
	return rc;
}

static int32_t ask_packed(struct genai_runtime *rt, const char *path,
			  const struct genai_engine_options *o,
			  struct genai_fit *out, struct genai_error *err)
{
	const struct genai_packing k = eng_packing(o);
	struct genai_fit busy;
	int32_t rc = ask(rt, path, k, false, out, err);

	if (rc || !out->step_ns)
		return rc;
	rc = ask(rt, path, k, true, &busy, err);
	if (rc)
		return rc;
	out->step_ns = busy.step_ns;
	out->serial_ns = busy.serial_ns;
	out->resident_ns = busy.resident_ns;
	return 0;
}

// One by one, because of why.
static int32_t ask_alone(struct genai_runtime *rt, const char *path,
			 const struct genai_error *why, struct genai_fit *out,
			 struct genai_error *err)
{
	struct genai_model_options o = {.size = sizeof(o),
					.flags = GENAI_MODEL_FIT};
	struct genai_model *m = NULL;
	int32_t rc = genai_model_open(rt, path, &o, &m, err);

	if (rc)
		return rc;
	genai_log_line(&rt->log, GENAI_LOG_WARN,
		       "%s: requests are computed one by one: %s", m->folder,
		       why->text);
	out->size = sizeof(*out);
	rc = genai_model_get_fit(m, out, err);
	genai_model_close(m);
	return rc;
}

int32_t genai_engine_fit(struct genai_runtime *rt, const char *path,
			 const struct genai_engine_options *options,
			 struct genai_fit *out_fit, struct genai_error *err)
{
	struct genai_engine_options none = {.size = sizeof(none)};
	const struct genai_engine_options *o = options ? options : &none;
	struct genai_error why = GENAI_ERROR_INIT;
	struct genai_fit f;
	int32_t rc;

	if (!rt)
		return genai_fail(err, GENAI_E_INVAL, "there is no runtime");
	rc = eng_check_options(o, err);
	if (rc)
		return rc;
	rc = ask_packed(rt, path, o, &f, &why);
	if (rc == GENAI_E_UNSUPPORTED)
		rc = ask_alone(rt, path, &why, &f, err);
	else if (rc && err)
		*err = why;
	return rc ? rc : genai_fit_give(out_fit, &f, err);
}
