// recover.c - a device that failed, made usable again.
#include "core/recover.h"

// The poison is the device's: whose work failed, or was skipped, is known only
// until it is cleared.
int32_t genai_recover(struct genai_runtime *rt,
		      const struct genai_user *but_for, struct genai_error *err)
{
	struct genai_stream_api *a = &rt->device.stream;
	struct genai_ticket ticket = {.size = sizeof(ticket)};
	int32_t rc = genai_device_drain(&rt->device, &ticket, err);
	struct genai_user *u;

	for (u = rt->users; !rc && u; u = u->next)
		if (u->look && u != but_for)
			u->look(u);
	if (!rc)
		rc = a->ops->reset(a->self, &ticket, err);
	for (u = rt->users; !rc && u; u = u->next)
		if (u->reset)
			rc = u->reset(u, err);
	for (u = rt->users; !rc && u; u = u->next)
		if (u->back && u != but_for)
			rc = u->back(u, err);
	rt->unclear = rc != 0;
	return rc;
}
