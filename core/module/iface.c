// iface.c - choosing an interface of a module and copying its table; which
// slots the table must have.
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include <genai/executor.h>

#include "core/base/error.h"
#include "core/module/module.h"
#include "core/config/spell.h"

// Of the slots of ABI 1.0 all but those behind a capability.
#define SLOT(type, ops, name)                                                  \
	{                                                                      \
		type, offsetof(struct ops, name), #name                        \
	}
#define S(name) SLOT(GENAI_IFACE_STREAM, genai_stream_ops, name)
#define B(name) SLOT(GENAI_IFACE_BARRIER, genai_barrier_ops, name)
#define E(name) SLOT(GENAI_IFACE_EXECUTOR, genai_executor_ops, name)
#define P(name) SLOT(GENAI_IFACE_PAGER, genai_pager_ops, name)
static const struct {
	const char *type;
	size_t offset;
	const char *name;
} required[] = {
	// clang-format off
	S(caps), S(alloc), S(free), S(host_register), S(host_unregister),
	S(create), S(destroy), S(mark), S(wait), S(poll), S(copy), S(launch),
	S(launch_host), S(reset), S(stats),
	B(host_read), B(drain),
	E(caps), E(plan_create), E(plan_visits), E(plan_set_pages),
	E(plan_destroy), E(bind_input), E(bind_output), E(output_shape),
	E(submit), E(stats),
	P(caps), P(open), P(close), P(add), P(seal), P(step_begin), P(acquire),
	P(release), P(step_end), P(reset), P(stats), P(replay_begin),
	P(resident),
	// clang-format on
};

// All interfaces of a type, or of all types, for a message.
static void list_ifaces(const struct genai_module *m, const char *type,
			char *buf, size_t cap)
{
	const struct genai_iface *f;
	size_t n = 0;
	uint32_t i;

	*buf = 0;
	for (i = 0; (f = genai_module_iface_at(m, i)); i++) {
		if ((type && strcmp(f->type, type) != 0) || n >= cap)
			continue;
		n += (size_t)snprintf(buf + n, cap - n, "%s%s%s%s",
				      n ? ", " : "", type ? "" : f->type,
				      type ? "" : " ", f->name);
	}
}

// Find the interface; on failure say what there is.
static const struct genai_iface *choose(const struct genai_module *m,
					const char *type, const char *name,
					struct genai_error *err)
{
	const struct genai_iface *f, *found = NULL;
	struct genai_spell spell = {.word = name};
	uint32_t i, n_type = 0, n_found = 0;
	char list[256];

	for (i = 0; (f = genai_module_iface_at(m, i)); i++) {
		if (strcmp(f->type, type) != 0)
			continue;
		n_type++;
		if (*name && strcmp(f->name, name) != 0) {
			genai_spell_offer(&spell, f->name);
			continue;
		}
		found = f;
		n_found++;
	}
	if (n_found == 1)
		return found;
	list_ifaces(m, n_type ? type : NULL, list, sizeof(list));
	if (!n_type)
		genai_fail(err, GENAI_E_CONFIG,
			   "module %s has no %s; it has %s",
			   genai_module_name(m), type, list);
	else if (n_found)
		genai_fail(err, GENAI_E_CONFIG,
			   "module %s has several %s, write %s:NAME: %s",
			   genai_module_name(m), type, genai_module_name(m),
			   list);
	else
		genai_fail(err, GENAI_E_CONFIG,
			   "module %s has no %s named %s, %s%s%s",
			   genai_module_name(m), type, name,
			   spell.best ? "did you mean " : "it has ",
			   spell.best ? spell.best : list,
			   spell.best ? "?" : "");
	return NULL;
}

int32_t genai_module_has_iface(const struct genai_module *m, const char *type,
			       const char *name, struct genai_error *err)
{
	return choose(m, type, name, err) ? 0 : GENAI_E_CONFIG;
}

int32_t genai_module_get_iface(const struct genai_module *m, const char *type,
			       const char *name, void *ops, uint32_t ops_bytes,
			       struct genai_error *err)
{
	const struct genai_iface *f = choose(m, type, name, err);
	uint32_t i, bytes;
	void *slot;

	if (!f)
		return GENAI_E_CONFIG;
	if (f->version != 1)
		return genai_fail(err, GENAI_E_ABI,
				  "%s: %s %s is of version %u, this core has "
				  "version 1",
				  genai_module_path(m), f->type, f->name,
				  f->version);
	memcpy(&bytes, f->ops, sizeof(bytes));
	if (bytes > ops_bytes)
		bytes = ops_bytes;
	bytes -= bytes % sizeof(void *); // no half slots
	for (i = 0; i < sizeof(required) / sizeof(required[0]); i++) {
		if (strcmp(required[i].type, type))
			continue;
		slot = NULL;
		if (required[i].offset + sizeof(slot) <= bytes)
			memcpy(&slot, (const char *)f->ops + required[i].offset,
			       sizeof(slot));
		if (!slot)
			return genai_fail(err, GENAI_E_MODULE,
					  "%s: %s %s: required slot %s is "
					  "missing (table of %u bytes)",
					  genai_module_path(m), f->type,
					  f->name, required[i].name, bytes);
	}
	memset(ops, 0, ops_bytes);
	memcpy(ops, f->ops, bytes);
	memcpy(ops, &bytes, sizeof(bytes));
	return 0;
}
