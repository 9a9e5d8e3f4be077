/* module.h - finding, checking and loading modules.
 * Owns: file policy, dlopen, the validation order of docs/ABI.md, the life of a
 * module.  Does not know: what executors, pagers, streams, barriers do.
 *
 * A module once initialised stays mapped until the process ends. */
#ifndef GENAI_CORE_MODULE_MODULE_H
#define GENAI_CORE_MODULE_MODULE_H

#include "core/host.h"

struct genai_module;

/* Find module NAME ([module NAME] path, else [runtime] module_path, else the
 * module directory of the installation, file NAME.so), open it, check it in the
 * order of docs/ABI.md, copy all it says, declare its keys.  Not initialised
 * yet: no device is touched.  One runtime loads a name once.
 * Errors: a code and a text of its own for each rule, with path, expected and
 * found. */
int32_t genai_module_load(const char *name, struct genai_config *config,
			  const struct genai_log *log,
			  struct genai_module **out_m, struct genai_error *err);
/* init; GENAI_E_STATE if it is already up. */
int32_t genai_module_start(struct genai_module *m,
			   const struct genai_init_params *params,
			   struct genai_error *err);
/* fini if it was started, then checks that threads and memory are gone. */
void genai_module_close(struct genai_module *m);

const char *genai_module_name(const struct genai_module *m);
const char *genai_module_path(const struct genai_module *m);
const char *genai_module_version(const struct genai_module *m);
const char *genai_module_licence(const struct genai_module *m);
uint32_t genai_module_abi(const struct genai_module *m); /* major << 16|minor */
void *genai_module_self(const struct genai_module *m);	 /* NULL: not started */
struct genai_host_env *genai_module_host(const struct genai_module *m);

/* Interfaces, in the module's order; strings are the core's copies. */
uint32_t genai_module_n_ifaces(const struct genai_module *m);
const struct genai_iface *genai_module_iface_at(const struct genai_module *m,
						uint32_t i);
/* By type and name; name "": the only one of the type.  GENAI_E_CONFIG naming
 * what there is otherwise.  Tables may still be filled by init. */
int32_t genai_module_has_iface(const struct genai_module *m, const char *type,
			       const char *name, struct genai_error *err);
/* The same, and its table; GENAI_E_ABI for another version of the interface.
 * The table is copied to ops (ops_bytes, zero filled beyond the module's
 * length; its size field is set to what was copied).  A slot that every table
 * of the type must have is NULL: GENAI_E_MODULE naming it. */
int32_t genai_module_get_iface(const struct genai_module *m, const char *type,
			       const char *name, void *ops, uint32_t ops_bytes,
			       struct genai_error *err);

#endif
