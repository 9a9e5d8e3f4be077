// session_recover.c - a sequence after an error of the device.
#include "core/model/session.h"

#include <string.h>

#include "core/base/error.h"
#include "core/recover.h"

static struct genai_session *of(struct genai_user *user)
{
	return (struct genai_session *)(void *)user;
}

static int32_t restart(struct genai_session *s, uint64_t length,
		       struct genai_error *err)
{
	int32_t rc;

	memset(s->door_at, 0, sizeof(s->door_at));
	memset(s->stage_at, 0, sizeof(s->stage_at));
	s->handed = s->computed;
	s->length = length;
	s->stale |= s->m->step.states.n_joined != 0;
	rc = session_go_back(s, length, err);
	s->broken = s->broken && rc;
	s->lost = s->lost && rc;
	return rc;
}

// Did its last step fail, or was it skipped?  The error goes with the device's
// poison.
static bool is_lost(struct genai_session *o)
{
	return o->handed != o->computed &&
	       session_ops(o)->poll(session_self(o), *session_last_door(o),
				    NULL);
}

static void look(struct genai_user *user)
{
	of(user)->lost |= is_lost(of(user));
}

static int32_t back(struct genai_user *user, struct genai_error *err)
{
	struct genai_session *s = of(user);

	return s->lost ? restart(s, session_certain(s), err) : 0;
}

void session_enter(struct genai_session *s)
{
	s->user.look = look;
	s->user.back = back;
	genai_runtime_enter(s->m->rt, &s->user);
}

void session_recover(struct genai_session *s, uint64_t length)
{
	struct genai_error err = GENAI_ERROR_INIT;
	int32_t rc = genai_recover(s->m->rt, &s->user, &err);

	if (!rc)
		rc = restart(s, length, &err);
	if (!rc)
		return;
	s->broken = true;
	s->length = s->rows = 0;
	// the error is what led here; the caller reports that
	genai_log_line(&s->m->rt->log, GENAI_LOG_INFO,
		       "the device could not be reset: %s", err.text);
}

void session_leave(struct genai_session *s)
{
	if (!genai_device_forked(&s->m->rt->device, NULL) &&
	    (s->broken || is_lost(s)))
		session_recover(s, 0);
}

int32_t session_mend(struct genai_session *s, struct genai_error *err)
{
	struct genai_runtime *rt = s->m->rt;
	int32_t rc = genai_device_forked(&rt->device, err);

	if (rc || (!s->broken && !rt->unclear))
		return rc;
	if (s->broken)
		session_recover(s, 0);
	else
		genai_recover(rt, NULL, NULL);
	return s->broken || rt->unclear
		       ? genai_fail(err, GENAI_E_DEVICE,
				    "the device could not be reset after an "
				    "error")
		       : 0;
}
