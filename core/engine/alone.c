// alone.c - one sequence after the other, where they cannot share a step.
#include "core/engine/engine.h"

int32_t eng_alone_run(struct genai_engine *e, struct genai_error *err)
{
	struct eng_seq *s = e->running;
	struct eng_part *p = eng_now(e, s);
	struct genai_session *session = e->session;
	size_t rows;
	int32_t rc = 0;

	// another's positions, or ours after an error
	if (e->alone != s)
		rc = genai_session_rewind(session, 0, err);
	if (!rc && genai_session_length(session) != s->computed)
		rc = genai_session_rewind(session, s->computed, err);
	if (!rc)
		rc = genai_session_append(session, s->ids + s->computed, p->add,
					  err);
	if (!rc) {
		e->alone = s;
		if (p->n_rows)
			rc = genai_session_logits(session, e->wide, 1, &rows,
						  err);
	}
	p->row = 0;
	return rc;
}
