// carry.c - the core's side of the toy carry_module.c: carry MODULE says what
// of the things to come the two of them have together.  Modules are loaded and
// their tables copied by the core's own loader, of the ABI that this is built
// with.
#include <stdio.h>
#include <string.h>

#include <genai/executor.h>

#include "core/base/error.h"
#include "core/module/module.h"

static struct genai_executor_ops executor;
static struct genai_pager_ops pager;
static struct genai_stream_ops stream;
static void *self;

static int32_t load(const char *path, struct genai_config **c,
		    struct genai_module **m, struct genai_error *err)
{
	struct genai_init_params params = {.size = sizeof(params)};
	static char set[4200];
	const char *sets[] = {set};
	int32_t rc;

	snprintf(set, sizeof(set), "module.carry.path=%s", path);
	rc = genai_config_load(NULL, sets, 1, c, err);
	if (!rc)
		rc = genai_module_load("carry", *c, NULL, m, err);
	if (!rc)
		rc = genai_module_start(*m, &params, err);
	if (!rc)
		rc = genai_module_get_iface(*m, GENAI_IFACE_EXECUTOR, "",
					    &executor, sizeof(executor), err);
	if (!rc)
		rc = genai_module_get_iface(*m, GENAI_IFACE_PAGER, "", &pager,
					    sizeof(pager), err);
	if (!rc)
		rc = genai_module_get_iface(*m, GENAI_IFACE_STREAM, "", &stream,
					    sizeof(stream), err);
	self = rc ? NULL : genai_module_self(*m);
	return rc;
}

// Weights on the host are for executors that say so, and only a pager that has
// the slot is told.
static int32_t seal(const struct genai_sweep_visit *v, uint32_t n)
{
	struct genai_pager_report r = {.size = sizeof(r)};
#ifdef LATER
	struct genai_exec_caps caps = {.size = sizeof(caps)};
	uint32_t takes;

	executor.caps(self, &caps, NULL);
	takes = caps.flags & GENAI_EXEC_CAP_HOST ? GENAI_TAKES_HOST : 0;
	if (takes && pager.seal_for)
		return pager.seal_for(NULL, v, n, 0, takes, &r, NULL);
#endif
	return pager.seal(NULL, v, n, 0, &r, NULL);
}

static struct genai_place sealed(struct genai_sweep_visit *v, int32_t *out_rc)
{
	struct genai_place at = {.size = sizeof(at)};
	struct genai_point ready;

	*out_rc = seal(v, 1);
	if (!*out_rc)
		pager.acquire(NULL, 0, NULL, &at, &ready, NULL);
	return at;
}

static const char *peers(void)
{
#ifdef LATER
	if (stream.peer_copy)
		return stream.peer_copy(self, NULL, 2, 64, 64, 8, NULL)
			       ? "refused"
			       : "copied";
#endif
	return "alone";
}

int main(int argc, char **argv)
{
	struct genai_sweep_visit v = {.size = sizeof(v), .bytes = 8};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_pager_caps caps = {.size = sizeof(caps)};
	struct genai_config *c = NULL;
	struct genai_module *m = NULL;
	struct genai_place at;
	int32_t rc;

	if (argc != 2 || load(argv[1], &c, &m, &err)) {
		printf("%s\n", err.text);
		return 1;
	}
	at = sealed(&v, &rc);
	printf("place %s", at.kind == GENAI_PLACE_HOST ? "host" : "device");
	printf(", peers %s", peers());
	pager.caps(self, &caps, NULL);
#ifdef LATER
	// what is not offered is not asked for
	if (caps.flags & GENAI_PAGER_CAP_EXPERT) {
		v.flags = GENAI_VISIT_EXPERT;
		v.reserved = 3;
	}
#endif
	at = sealed(&v, &rc);
	printf(", experts %d", rc ? -1 : (int)at.addr);
	// a core that does not ask is not one that must not be refused
	v.flags = GENAI_VISIT_EXPERT;
	v.reserved = 3;
	at = sealed(&v, &rc);
	printf(", unasked %s\n",
	       rc == GENAI_E_UNSUPPORTED ? "refused" : "taken");
	genai_module_close(m);
	genai_config_close(c);
	return 0;
}
