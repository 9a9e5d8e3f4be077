// module.c - finding, checking and loading modules.
// Everything a module says is checked in the order of docs/ABI.md and copied
// before it is used.  An image once opened stays mapped (RTLD_NODELETE): its
// threads may still be returning, its thread keys may still be registered.
#include "core/module/module.h"

#include <dlfcn.h>
#include <link.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/base/elf.h"
#include "core/base/error.h"
#include "core/config/ini.h"
#include "core/config/keys.h"
#include "core/module/modfind.h"
#include "core/base/secure.h"

#define MAX_TABLE (64u << 10) // bytes of a block or an interface table
#define MAX_COUNT 256u	      // interfaces, keys
#define MAX_STRIDE 4096u
#define MAX_STRING 1024u
// What ABI 1.0 has, and every later one at least.
#define MIN_BLOCK 104u
#define MIN_IFACE 32u
#define MIN_KEY 40u

struct genai_module {
	char name[GENAI_MAX_MODULE_NAME + 1];
	char *path;
	char *version, *licence;
	uint32_t abi;
	uint32_t n_ifaces;
	struct genai_iface *ifaces; // strings are ours, ops the module's
	struct genai_module_block block;
	void *handle; // of dlopen
	struct link_map *object;
	struct genai_host_env *host;
	const struct genai_log *log;
	void *self; // NULL: not started
	pid_t pid;  // of the process that started it
};

// "PATH: text", with code.
__attribute__((format(printf, 4, 5))) static int32_t
fail(const struct genai_module *m, struct genai_error *err, int32_t code,
     const char *fmt, ...)
{
	va_list ap;

	va_start(ap, fmt);
	genai_error_vfill(err, code, __FILE__, __LINE__, fmt, ap);
	va_end(ap);
	genai_error_prefix(err, "%s", m->path);
	return code;
}

// A path of an open file that no call before has had: the linker takes a name
// it knows for the image it knows, and descriptors have each other's numbers.
static const char *path_of(int fd, char path[160])
{
	static _Atomic uint32_t calls;
	size_t n = (size_t)sprintf(path, "/proc/self/fd");
	uint32_t i;

	for (i = ++calls; i; i >>= 1)
		n += (size_t)sprintf(path + n, i & 1 ? "//." : "/.");
	sprintf(path + n, "/%d", fd);
	return path;
}

static int32_t open_image(struct genai_module *m,
			  const struct genai_config *config,
			  struct genai_error *err)
{
	char by_fd[160];
	uint64_t bytes;
	const char *why;
	int32_t rc;
	int fd;

	rc = genai_module_find(m->name, config, &m->path, &fd, &bytes, err);
	if (rc)
		return rc;
	rc = genai_elf_check_file(fd, bytes, m->path, err);
	if (rc)
		goto out;
	// A privileged process loads the very file that was checked, whatever
	// the path names by now; others prefer a name that debuggers know.
	m->handle = dlopen(genai_is_privileged() ? path_of(fd, by_fd) : m->path,
			   RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
	if (!m->handle) {
		why = dlerror(); // once: a second call has forgotten
		rc = genai_fail(err, GENAI_E_MODULE, "%s: cannot load: %s",
				m->path, why ? why : "no reason given");
	} else if (dlinfo(m->handle, RTLD_DI_LINKMAP, &m->object) != 0) {
		rc = fail(m, err, GENAI_E_MODULE, "no link map");
	}
out:
	close(fd);
	return rc;
}

// The block that a module which refuses this core gives to a later or another
// one, if its numbers say why: they are the better message.
static const struct genai_module_block *
block_for_other(const struct genai_module *m, genai_module_query_fn query)
{
	const struct genai_module_block *b;
	uint32_t major;

	for (major = 1; major < 16; major++) {
		b = query(major << 16 | 0xffff, &(int32_t){0});
		if (b && genai_elf_contains(m->object, b, 64) &&
		    b->magic == GENAI_MODULE_MAGIC &&
		    (b->abi_major != GENAI_ABI_MAJOR ||
		     b->min_core_minor > GENAI_ABI_MINOR))
			return b;
	}
	return NULL;
}

// Find the query function in this very object (a library that it links may have
// one too) and ask it for the block.
static int32_t query_block(struct genai_module *m,
			   const struct genai_module_block **out_b,
			   struct genai_error *err)
{
	genai_module_query_fn query = NULL;
	struct link_map *home = NULL;
	int32_t reason = 0;
	Dl_info info;
	void *sym;

	sym = dlsym(m->handle, GENAI_MODULE_QUERY_SYMBOL);
	if (!sym)
		return fail(m, err, GENAI_E_MODULE,
			    "no symbol " GENAI_MODULE_QUERY_SYMBOL
			    ": not a genai module");
	if (!dladdr1(sym, &info, (void **)&home, RTLD_DL_LINKMAP) ||
	    home != m->object)
		return fail(m, err, GENAI_E_MODULE,
			    "has no " GENAI_MODULE_QUERY_SYMBOL
			    " of its own, found that of %s",
			    home ? home->l_name : "another library");
	memcpy(&query, &sym, sizeof(query));
	*out_b = query(GENAI_ABI, &reason);
	if (!*out_b && reason == GENAI_E_ABI)
		*out_b = block_for_other(m, query); // and is refused there
	if (*out_b)
		return 0;
	if (reason >= 0 || reason < GENAI_E_ORDER)
		reason = GENAI_E_MODULE;
	return fail(m, err, reason, "refuses core ABI %d.%d (%s)",
		    GENAI_ABI_MAJOR, GENAI_ABI_MINOR,
		    genai_status_name(reason));
}

static int32_t check_versions(struct genai_module *m,
			      const struct genai_module_block *b,
			      struct genai_error *err)
{
	if (b->abi_major != GENAI_ABI_MAJOR)
		return fail(m, err, GENAI_E_ABI,
			    "built for ABI %u.%u, this is %d.%d", b->abi_major,
			    b->abi_minor, GENAI_ABI_MAJOR, GENAI_ABI_MINOR);
	if (b->min_core_minor > b->abi_minor)
		return fail(m, err, GENAI_E_MODULE,
			    "built with ABI %u.%u but says it needs %u.%u",
			    b->abi_major, b->abi_minor, b->abi_major,
			    b->min_core_minor);
	if (b->min_core_minor > GENAI_ABI_MINOR)
		return fail(m, err, GENAI_E_ABI,
			    "needs core ABI %u.%u, this is %d.%d", b->abi_major,
			    b->min_core_minor, GENAI_ABI_MAJOR,
			    GENAI_ABI_MINOR);
	if (b->build != GENAI_BUILD)
		return fail(m, err, GENAI_E_ABI,
			    "build word 0x%06x, expected 0x%06x (bits 0-7 "
			    "sanitizer, 8-15 pointer bytes, 16-23 byte order)",
			    b->build, GENAI_BUILD);
	if (b->flags || b->reserved || b->reserved2)
		return fail(m, err, GENAI_E_UNSUPPORTED,
			    "unknown flags 0x%x, reserved 0x%x, 0x%x", b->flags,
			    b->reserved, b->reserved2);
	return 0;
}

// Copy the block, as much of it as is known here, and check it.
static int32_t take_block(struct genai_module *m,
			  const struct genai_module_block *b,
			  struct genai_error *err)
{
	int32_t rc;

	if ((uintptr_t)b % sizeof(void *) ||
	    !genai_elf_contains(m->object, b, 64))
		return fail(m, err, GENAI_E_MODULE,
			    "the block is not static data of the module");
	if (b->magic != GENAI_MODULE_MAGIC)
		return fail(m, err, GENAI_E_MODULE,
			    "magic 0x%llx, expected 0x%llx",
			    (unsigned long long)b->magic,
			    (unsigned long long)GENAI_MODULE_MAGIC);
	if (b->size < MIN_BLOCK || b->size > MAX_TABLE ||
	    !genai_elf_contains(m->object, b, b->size))
		return fail(m, err, GENAI_E_MODULE,
			    "block of %u bytes, expected %u to %u inside the "
			    "module",
			    b->size, MIN_BLOCK, MAX_TABLE);
	memcpy(&m->block, b,
	       b->size < sizeof(m->block) ? b->size : sizeof(m->block));
	b = &m->block;
	rc = check_versions(m, b, err);
	if (rc)
		return rc;
	if (!genai_elf_contains_string(m->object, b->name, MAX_STRING) ||
	    !genai_elf_contains_string(m->object, b->version, MAX_STRING) ||
	    !genai_elf_contains_string(m->object, b->licence, MAX_STRING))
		return fail(m, err, GENAI_E_MODULE,
			    "name, version or licence is not a string of the "
			    "module");
	if (strcmp(b->name, m->name) != 0)
		return fail(m, err, GENAI_E_CONFIG,
			    "calls itself %s, the section is [module %s]",
			    b->name, m->name);
	if (!genai_elf_contains(m->object, (void *)b->init, 1) ||
	    !genai_elf_contains(m->object, (void *)b->fini, 1))
		return fail(m, err, GENAI_E_MODULE,
			    "init or fini is not a function of the module");
	m->abi = (uint32_t)b->abi_major << 16 | b->abi_minor;
	m->version = strdup(b->version);
	m->licence = strdup(b->licence);
	return m->version && m->licence
		       ? 0
		       : fail(m, err, GENAI_E_NOMEM, "out of memory");
}

// An array of count structs of at least bytes each, inside the module?
static bool is_array(const struct genai_module *m, const void *p,
		     uint32_t count, uint32_t stride, size_t bytes)
{
	return count <= MAX_COUNT && stride >= bytes && stride <= MAX_STRIDE &&
	       stride % sizeof(void *) == 0 &&
	       (uintptr_t)p % sizeof(void *) == 0 &&
	       genai_elf_contains(m->object, p, (uint64_t)count * stride);
}

// Every interface table begins so.
struct table_head {
	uint32_t size;
	uint16_t version;
	uint16_t reserved;
};

static int32_t check_iface(struct genai_module *m, uint32_t i,
			   const struct genai_iface *f, struct genai_error *err)
{
	const struct table_head *t = f->ops;
	uint32_t k;

	if (!genai_elf_contains_string(m->object, f->type, MAX_STRING) ||
	    !genai_elf_contains_string(m->object, f->name, MAX_STRING) ||
	    !*f->type || !*f->name || f->name[genai_ini_name_length(f->name)])
		return fail(m, err, GENAI_E_MODULE,
			    "interface %u: type or name is not a string of the "
			    "module, or a name not of letters, digits, '_' and "
			    "'-'",
			    i);
	if ((uintptr_t)t % sizeof(void *) ||
	    !genai_elf_contains(m->object, t, sizeof(*t)) ||
	    t->size < sizeof(*t) || t->size > MAX_TABLE ||
	    !genai_elf_contains(m->object, t, t->size))
		return fail(m, err, GENAI_E_MODULE,
			    "interface %s %s: no table of at most %u bytes "
			    "inside the module",
			    f->type, f->name, MAX_TABLE);
	if (f->reserved || t->reserved)
		return fail(m, err, GENAI_E_UNSUPPORTED,
			    "interface %s %s: reserved 0x%x, 0x%x in its table",
			    f->type, f->name, f->reserved, t->reserved);
	if (!f->version || t->version != f->version)
		return fail(m, err, GENAI_E_MODULE,
			    "interface %s %s: version %u, its table says %u",
			    f->type, f->name, f->version, t->version);
	for (k = 0; k < i; k++)
		if (strcmp(m->ifaces[k].type, f->type) == 0 &&
		    strcmp(m->ifaces[k].name, f->name) == 0)
			return fail(m, err, GENAI_E_MODULE,
				    "interface %s %s twice", f->type, f->name);
	return 0;
}

static int32_t take_ifaces(struct genai_module *m, struct genai_error *err)
{
	const struct genai_module_block *b = &m->block;
	struct genai_iface *f;
	uint32_t i;
	int32_t rc;

	if (!b->n_ifaces ||
	    !is_array(m, b->ifaces, b->n_ifaces, b->iface_stride, MIN_IFACE))
		return fail(m, err, GENAI_E_MODULE,
			    "%u interfaces of %u bytes, expected 1 to %u of at "
			    "least %u inside the module",
			    b->n_ifaces, b->iface_stride, MAX_COUNT, MIN_IFACE);
	m->ifaces = calloc(b->n_ifaces, sizeof(*f));
	if (!m->ifaces)
		return fail(m, err, GENAI_E_NOMEM, "out of memory");
	for (i = 0; i < b->n_ifaces; i++) {
		f = &m->ifaces[i];
		memcpy(f, (const char *)b->ifaces + (size_t)i * b->iface_stride,
		       b->iface_stride < sizeof(*f) ? b->iface_stride
						    : sizeof(*f));
		rc = check_iface(m, i, f, err);
		if (rc)
			return rc;
		f->type = strdup(f->type);
		f->name = strdup(f->name);
		m->n_ifaces++;
		if (!f->type || !f->name)
			return fail(m, err, GENAI_E_NOMEM, "out of memory");
	}
	return 0;
}

static const struct genai_config_key *key_at(const struct genai_module *m,
					     uint32_t i)
{
	return (const void *)((const char *)m->block.keys +
			      (size_t)i * m->block.key_stride);
}

static int32_t check_key(struct genai_module *m, uint32_t i,
			 struct genai_error *err)
{
	const struct genai_config_key *k = key_at(m, i);
	struct genai_error why = GENAI_ERROR_INIT;
	uint32_t j;
	size_t n;

	if (!genai_elf_contains_string(m->object, k->name, MAX_STRING) ||
	    !genai_elf_contains_string(m->object, k->default_value,
				       MAX_STRING) ||
	    (k->choices &&
	     !genai_elf_contains_string(m->object, k->choices, MAX_STRING)))
		return fail(m, err, GENAI_E_MODULE,
			    "key %u: name, default or choices is not a string "
			    "of the module",
			    i);
	n = genai_ini_name_length(k->name);
	if (!n || k->name[n] || n > GENAI_INI_MAX_NAME ||
	    strcmp(k->name, "path") == 0)
		return fail(m, err, GENAI_E_MODULE,
			    "key %u: '%.60s' cannot be the name of a key", i,
			    k->name);
	if (k->reserved)
		return fail(m, err, GENAI_E_UNSUPPORTED,
			    "key %s: reserved 0x%x", k->name, k->reserved);
	for (j = 0; j < i; j++)
		if (strcmp(k->name, key_at(m, j)->name) == 0)
			return fail(m, err, GENAI_E_MODULE, "key %s twice",
				    k->name);
	if (genai_check_declared(k, k->default_value, &why))
		return fail(m, err, GENAI_E_MODULE, "key %s: default '%s': %s",
			    k->name, k->default_value, why.text);
	return 0;
}

static int32_t take_keys(struct genai_module *m, struct genai_config *config,
			 struct genai_error *err)
{
	const struct genai_module_block *b = &m->block;
	uint32_t i;
	int32_t rc;

	if (b->n_keys &&
	    !is_array(m, b->keys, b->n_keys, b->key_stride, MIN_KEY))
		return fail(m, err, GENAI_E_MODULE,
			    "%u keys of %u bytes, expected at most %u of at "
			    "least %u inside the module",
			    b->n_keys, b->key_stride, MAX_COUNT, MIN_KEY);
	for (i = 0; i < b->n_keys; i++) {
		rc = check_key(m, i, err);
		if (rc)
			return rc;
	}
	return genai_config_declare(config, m->name, b->keys, b->n_keys,
				    b->key_stride, err);
}

int32_t genai_module_load(const char *name, struct genai_config *config,
			  const struct genai_log *log,
			  struct genai_module **out_m, struct genai_error *err)
{
	const struct genai_module_block *b = NULL;
	size_t n = genai_ini_name_length(name);
	struct genai_module *m;
	int32_t rc;

	if (!n || name[n] || n > GENAI_MAX_MODULE_NAME)
		return genai_fail(err, GENAI_E_CONFIG,
				  "'%.60s' cannot be the name of a module",
				  name);
	m = calloc(1, sizeof(*m));
	if (!m)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  name);
	memcpy(m->name, name, n);
	m->log = log;
	rc = open_image(m, config, err);
	if (!rc)
		rc = query_block(m, &b, err);
	if (!rc)
		rc = take_block(m, b, err);
	if (!rc)
		rc = take_ifaces(m, err);
	if (!rc)
		rc = take_keys(m, config, err);
	if (!rc)
		rc = genai_host_open(m->name, config, log, &m->host, err);
	if (rc)
		genai_module_close(m);
	else
		*out_m = m;
	return rc;
}

// Bring what init returned, and its error record, into the documented form.
static int32_t judge_init(struct genai_module *m, int32_t rc, void *self,
			  struct genai_error *why)
{
	if (rc > 0 || rc < GENAI_E_ORDER)
		return fail(m, why, GENAI_E_MODULE, "init returned %d", rc);
	if (!rc && !self)
		return fail(m, why, GENAI_E_MODULE,
			    "init succeeded without an object");
	if (rc && !why->text[0])
		return fail(m, why, rc, "init failed: %s",
			    genai_status_name(rc));
	why->code = rc;
	return rc;
}

int32_t genai_module_start(struct genai_module *m,
			   const struct genai_init_params *params,
			   struct genai_error *err)
{
	struct genai_error why = GENAI_ERROR_INIT;
	void *self = NULL;
	int32_t rc;

	if (m->self)
		return fail(m, err, GENAI_E_STATE, "%s is already started",
			    m->name);
	rc = m->block.init(genai_host_table(m->host), params, &self, &why);
	rc = judge_init(m, rc, self, &why);
	if (!rc) {
		m->self = self;
		m->pid = getpid();
		return 0;
	}
	why.text[sizeof(why.text) - 1] = 0;
	snprintf(why.module, sizeof(why.module), "%s", m->name);
	why.size = sizeof(why);
	if (err)
		*err = why;
	return rc;
}

void genai_module_close(struct genai_module *m)
{
	uint32_t i;

	if (!m)
		return;
	// In a child after fork the module's threads do not exist and its
	// device context is not usable: leave both alone.
	if (m->self && m->pid == getpid())
		m->block.fini(m->self);
	if (!m->self || m->pid == getpid())
		genai_host_close(m->host);
	for (i = 0; i < m->n_ifaces; i++) {
		free((char *)m->ifaces[i].type);
		free((char *)m->ifaces[i].name);
	}
	free(m->ifaces);
	free(m->version);
	free(m->licence);
	free(m->path);
	free(m);
}

const char *genai_module_name(const struct genai_module *m)
{
	return m->name;
}

const char *genai_module_path(const struct genai_module *m)
{
	return m->path;
}

const char *genai_module_version(const struct genai_module *m)
{
	return m->version;
}

const char *genai_module_licence(const struct genai_module *m)
{
	return m->licence;
}

uint32_t genai_module_abi(const struct genai_module *m)
{
	return m->abi;
}

void *genai_module_self(const struct genai_module *m)
{
	return m->self;
}

struct genai_host_env *genai_module_host(const struct genai_module *m)
{
	return m->host;
}

uint32_t genai_module_n_ifaces(const struct genai_module *m)
{
	return m->n_ifaces;
}

const struct genai_iface *genai_module_iface_at(const struct genai_module *m,
						uint32_t i)
{
	return i < m->n_ifaces ? &m->ifaces[i] : NULL;
}
