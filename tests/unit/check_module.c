// check_module.c - the loader against modules that break one rule each, in the
// order of docs/ABI.md.
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <genai/pager.h>

#include "core/module/module.h"
#include "tests/unit/harness.h"

#define VARIANT GENAI_TESTFIXTURES "/variant.so"

static char lines[2048];
static struct genai_log log_all;
static struct genai_config *config;

static void keep(void *ctx, int32_t level, const char *text)
{
	(void)ctx;
	snprintf(lines + strlen(lines), sizeof(lines) - strlen(lines),
		 "%d %s\n", level, text);
}

static void setup(void)
{
	lines[0] = 0;
	log_all = (struct genai_log){keep, NULL, GENAI_LOG_INFO};
	setenv("HOME", "/nonexistent", 1);
	unsetenv("XDG_CONFIG_HOME");
	unsetenv("GENAI_FIXTURE");
}

static void teardown(void)
{
	genai_config_close(config);
}

// Load module name from path ("" for a search) and with another --set.
static int32_t load(const char *name, const char *path, const char *set,
		    struct genai_module **out_m, struct genai_error *err)
{
	const char *sets[2] = {NULL, set};
	char text[4200];
	int32_t rc;

	snprintf(text, sizeof(text), "module.%s.path=%s", name, path);
	sets[0] = text;
	genai_config_close(config);
	config = NULL;
	rc = genai_config_load(NULL, sets, set ? 2 : 1, &config, err);
	return rc ? rc : genai_module_load(name, config, &log_all, out_m, err);
}

static struct genai_module *load_variant(const char *variant)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;

	setenv("GENAI_FIXTURE", variant, 1);
	ck_assert_msg(load("variant", VARIANT, NULL, &m, &err) == 0, "%s: %s",
		      variant, err.text);
	return m;
}

START_TEST(sound)
{
	struct genai_module *m = load_variant("sound");
	const struct genai_iface *f;

	ck_assert_str_eq(genai_module_name(m), "variant");
	ck_assert_str_eq(genai_module_path(m), VARIANT);
	ck_assert_str_eq(genai_module_version(m), "1.2.3");
	ck_assert_str_eq(genai_module_licence(m), "MIT");
	ck_assert_uint_eq(genai_module_abi(m), GENAI_ABI);
	ck_assert_uint_eq(genai_module_n_ifaces(m), 3);
	f = genai_module_iface_at(m, 1);
	ck_assert_str_eq(f->type, GENAI_IFACE_PAGER);
	ck_assert_str_eq(f->name, "second");
	ck_assert_uint_eq(f->version, 1);
	ck_assert_ptr_null(genai_module_iface_at(m, 3));
	ck_assert_ptr_null(genai_module_self(m));
	ck_assert_str_eq(genai_config_get(config, "module variant", "schedule"),
			 "inorder");
	genai_module_close(m);
	genai_module_close(NULL);
	ck_assert_str_eq(lines, ""); // fini only after init
}
END_TEST

// Each rule: the variant that breaks it, the code, and the text after the path.
static const struct {
	const char *variant;
	int32_t code;
	const char *text;
} broken[] = {
	{"query-refuses", GENAI_E_NODEVICE,
	 "refuses core ABI 1.0 (GENAI_E_NODEVICE)"},
	{"query-null", GENAI_E_MODULE, "refuses core ABI 1.0 (GENAI_E_MODULE)"},
	{"query-wild", GENAI_E_MODULE,
	 "the block is not static data of the module"},
	{"query-heap", GENAI_E_MODULE,
	 "the block is not static data of the module"},
	{"magic", GENAI_E_MODULE,
	 "magic 0x314d494147454e46, expected 0x314d494147454e47"},
	{"size-small", GENAI_E_MODULE,
	 "block of 64 bytes, expected 104 to 65536 inside the module"},
	{"size-huge", GENAI_E_MODULE,
	 "block of 65544 bytes, expected 104 to 65536 inside the module"},
	{"size-beyond", GENAI_E_MODULE,
	 "block of 61440 bytes, expected 104 to 65536 inside the module"},
	{"major", GENAI_E_ABI, "built for ABI 2.0, this is 1.0"},
	{"minor-needed", GENAI_E_ABI, "needs core ABI 1.1, this is 1.0"},
	{"refuses-major", GENAI_E_ABI, "built for ABI 2.0, this is 1.0"},
	{"refuses-minor", GENAI_E_ABI, "needs core ABI 1.1, this is 1.0"},
	{"refuses-fickle", GENAI_E_ABI, "refuses core ABI 1.0 (GENAI_E_ABI)"},
	{"refuses-all", GENAI_E_ABI, "refuses core ABI 1.0 (GENAI_E_ABI)"},
	{"minor-nonsense", GENAI_E_MODULE,
	 "built with ABI 1.0 but says it needs 1.1"},
	{"build-sanitizer", GENAI_E_ABI, NULL},
	{"build-pointer", GENAI_E_ABI, NULL},
	{"flags", GENAI_E_UNSUPPORTED, "unknown flags 0x10, reserved 0x0, 0x0"},
	{"reserved", GENAI_E_UNSUPPORTED,
	 "unknown flags 0x0, reserved 0x0, 0x1"},
	{"name", GENAI_E_CONFIG,
	 "calls itself other, the section is [module variant]"},
	{"name-null", GENAI_E_MODULE,
	 "name, version or licence is not a string of the module"},
	{"name-wild", GENAI_E_MODULE,
	 "name, version or licence is not a string of the module"},
	{"version-null", GENAI_E_MODULE,
	 "name, version or licence is not a string of the module"},
	{"init-missing", GENAI_E_MODULE,
	 "init or fini is not a function of the module"},
	{"fini-missing", GENAI_E_MODULE,
	 "init or fini is not a function of the module"},
	{"ifaces-none", GENAI_E_MODULE,
	 "0 interfaces of 32 bytes, expected 1 to 256 of at least 32 inside "
	 "the module"},
	{"ifaces-many", GENAI_E_MODULE,
	 "1073741824 interfaces of 32 bytes, expected 1 to 256 of at least 32 "
	 "inside the module"},
	{"ifaces-null", GENAI_E_MODULE,
	 "3 interfaces of 32 bytes, expected 1 to 256 of at least 32 inside "
	 "the module"},
	{"ifaces-stride", GENAI_E_MODULE,
	 "3 interfaces of 8 bytes, expected 1 to 256 of at least 32 inside "
	 "the module"},
	{"iface-type", GENAI_E_MODULE,
	 "interface 1: type or name is not a string of the module, or a name "
	 "not of letters, digits, '_' and '-'"},
	{"iface-name", GENAI_E_MODULE,
	 "interface 1: type or name is not a string of the module, or a name "
	 "not of letters, digits, '_' and '-'"},
	{"iface-reserved", GENAI_E_UNSUPPORTED,
	 "interface genai.pager second: reserved 0x2, 0x0 in its table"},
	{"key-reserved", GENAI_E_UNSUPPORTED, "key schedule: reserved 0x3"},
	{"iface-null", GENAI_E_MODULE,
	 "interface genai.pager second: no table of at most 65536 bytes inside "
	 "the module"},
	{"iface-wild", GENAI_E_MODULE,
	 "interface genai.pager second: no table of at most 65536 bytes inside "
	 "the module"},
	{"iface-twice", GENAI_E_MODULE, "interface genai.pager first twice"},
	{"iface-version", GENAI_E_MODULE,
	 "interface genai.pager second: version 0, its table says 1"},
	{"table-huge", GENAI_E_MODULE,
	 "interface genai.pager first: no table of at most 65536 bytes inside "
	 "the module"},
	{"table-tiny", GENAI_E_MODULE,
	 "interface genai.pager first: no table of at most 65536 bytes inside "
	 "the module"},
	{"table-version", GENAI_E_MODULE,
	 "interface genai.pager first: version 1, its table says 2"},
	{"keys-many", GENAI_E_MODULE,
	 "1073741824 keys of 40 bytes, expected at most 256 of at least 40 "
	 "inside the module"},
	{"keys-stride", GENAI_E_MODULE,
	 "4 keys of 8 bytes, expected at most 256 of at least 40 inside the "
	 "module"},
	{"key-default", GENAI_E_MODULE,
	 "key schedule: default 'sideways': expected one of: inorder late "
	 "random:*"},
	{"key-path", GENAI_E_MODULE,
	 "key 1: 'path' cannot be the name of a key"},
	{"key-name", GENAI_E_MODULE,
	 "key 1: 'a b' cannot be the name of a key"},
	{"key-twice", GENAI_E_MODULE, "key threads twice"},
	{"key-kind", GENAI_E_MODULE,
	 "key trace: default 'off': key kind 9 is unknown"},
	{"key-null", GENAI_E_MODULE,
	 "key 3: name, default or choices is not a string of the module"},
};

START_TEST(rules)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;

	setenv("GENAI_FIXTURE", broken[_i].variant, 1);
	ck_assert_int_eq(load("variant", VARIANT, NULL, &m, &err),
			 broken[_i].code);
	ck_assert_ptr_null(m);
	ck_assert_int_eq(err.code, broken[_i].code);
	ck_assert_msg(strncmp(err.text, VARIANT ": ", sizeof(VARIANT) + 1) == 0,
		      "%s", err.text);
	if (broken[_i].text)
		ck_assert_str_eq(err.text + sizeof(VARIANT) + 1,
				 broken[_i].text);
	else
		ck_assert_ptr_nonnull(strstr(err.text, "build word 0x"));
	ck_assert_int_eq(load("variant", VARIANT, NULL, &m, NULL),
			 broken[_i].code);
	ck_assert_str_eq(lines, "");

	// The process, and the very same image, stay usable.
	m = load_variant("sound");
	genai_module_close(m);
}
END_TEST

// What is newer than this core is read as far as it is known.
START_TEST(newer)
{
	struct genai_module *m = load_variant("newer");

	ck_assert_uint_eq(genai_module_abi(m), GENAI_ABI + 7);
	genai_module_close(m);
}
END_TEST

static int32_t get(const struct genai_module *m, const char *name,
		   struct genai_pager_ops *ops, struct genai_error *err)
{
	return genai_module_get_iface(m, GENAI_IFACE_PAGER, name, ops,
				      sizeof(*ops), err);
}

START_TEST(tables)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = load_variant("table-longer");
	struct genai_pager_ops ops;

	ck_assert_int_eq(get(m, "first", &ops, &err), 0);
	ck_assert_uint_eq(ops.size, sizeof(ops));
	ck_assert_uint_eq(ops.version, 1);
	ck_assert(ops.stats != NULL);
	genai_module_close(m);

	// An older module: half a slot is no slot.
	m = load_variant("table-shorter");
	memset(&ops, 0x55, sizeof(ops));
	ck_assert_int_eq(get(m, "first", &ops, &err), GENAI_E_MODULE);
	ck_assert_uint_eq(ops.size, 0x55555555);
	ck_assert_ptr_nonnull(strstr(err.text,
				     "genai.pager first: required slot "
				     "release is missing (table of 64 bytes)"));
	genai_module_close(m);

	m = load_variant("iface-later");
	ck_assert_int_eq(get(m, "first", &ops, &err), GENAI_E_ABI);
	ck_assert_ptr_nonnull(strstr(err.text,
				     "variant.so: genai.pager first is of "
				     "version 2, this core has version 1"));
	genai_module_close(m);

	m = load_variant("table-slot");
	ck_assert_int_eq(get(m, "second", &ops, &err), GENAI_E_MODULE);
	ck_assert_ptr_nonnull(strstr(err.text, "required slot acquire is "
					       "missing"));
	genai_module_close(m);
}
END_TEST

START_TEST(choices)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = load_variant("sound");
	struct genai_barrier_ops barrier;
	struct genai_pager_ops ops;

	ck_assert_int_eq(get(m, "frist", &ops, &err), GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, "module variant has no genai.pager named "
				   "frist, did you mean first?");
	ck_assert_int_eq(get(m, "eager", &ops, &err), GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, "module variant has no genai.pager named "
				   "eager, it has first, second");
	ck_assert_int_eq(get(m, "", &ops, &err), GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, "module variant has several genai.pager, "
				   "write variant:NAME: first, second");
	ck_assert_int_eq(genai_module_get_iface(m, GENAI_IFACE_STREAM, "",
						&ops, sizeof(ops), &err),
			 GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, "module variant has no genai.stream; it has "
				   "genai.pager first, genai.pager second, "
				   "genai.barrier variant");
	ck_assert_int_eq(genai_module_get_iface(m, GENAI_IFACE_BARRIER, "",
						&barrier, sizeof(barrier),
						&err),
			 0);
	ck_assert_ptr_nonnull(barrier.drain);
	genai_module_close(m);
}
END_TEST

static int32_t start(struct genai_module *m, struct genai_error *err)
{
	struct genai_init_params params = {sizeof(params), 0, UINT64_MAX};

	return genai_module_start(m, &params, err);
}

START_TEST(life)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m;
	int i;

	for (i = 0; i < 3; i++) { // open, close, open
		lines[0] = 0;
		m = load_variant("sound");
		ck_assert_int_eq(start(m, &err), 0);
		ck_assert_ptr_nonnull(genai_module_self(m));
		ck_assert_int_eq(start(m, &err), GENAI_E_STATE);
		genai_module_close(m);
		ck_assert_str_eq(lines, "3 variant: fini\n");
	}
}
END_TEST

// Whatever becomes of a module, its image stays: a thread may be on its way
// out.
START_TEST(mapped)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;

	ck_assert_ptr_null(dlopen(VARIANT, RTLD_NOW | RTLD_NOLOAD));
	setenv("GENAI_FIXTURE", "magic", 1);
	ck_assert_int_eq(load("variant", VARIANT, NULL, &m, &err),
			 GENAI_E_MODULE);
	ck_assert_ptr_nonnull(dlopen(VARIANT, RTLD_NOW | RTLD_NOLOAD));
	ck_assert_ptr_null(dlsym(RTLD_DEFAULT, "genai_module_query"));
}
END_TEST

static const struct {
	const char *variant;
	int32_t code;
	const char *text;
} bad_inits[] = {
	{"init-fails", GENAI_E_NODEVICE, "no device of kind imaginary"},
	{"init-fails-silently", GENAI_E_DEVICE,
	 VARIANT ": init failed: GENAI_E_DEVICE"},
	{"init-positive", GENAI_E_MODULE, VARIANT ": init returned 1"},
	{"init-code", GENAI_E_MODULE, VARIANT ": init returned -1000"},
	{"init-null", GENAI_E_MODULE,
	 VARIANT ": init succeeded without an object"},
};

START_TEST(inits)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = load_variant(bad_inits[_i].variant);

	ck_assert_int_eq(start(m, &err), bad_inits[_i].code);
	ck_assert_int_eq(err.code, bad_inits[_i].code);
	ck_assert_str_eq(err.text, bad_inits[_i].text);
	ck_assert_str_eq(err.module, "variant");
	ck_assert_int_eq(start(m, NULL), bad_inits[_i].code);
	ck_assert_ptr_null(genai_module_self(m));
	genai_module_close(m);
	ck_assert_str_eq(lines, ""); // no fini
}
END_TEST

START_TEST(leftovers)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = load_variant("memory-left");

	ck_assert_int_eq(start(m, &err), 0);
	genai_module_close(m);
	ck_assert_str_eq(lines, "3 variant: fini\n1 variant: left 100 bytes in "
				"1 allocations tagged 'forgotten'\n");
	lines[0] = 0;
	m = load_variant("thread-left");
	ck_assert_int_eq(start(m, &err), 0);
	genai_module_close(m);
	ck_assert_str_eq(lines, "3 variant: fini\n1 variant: left thread "
				"'left-behind' running\n");
	usleep(100000); // the image is still mapped when the thread returns
}
END_TEST

// In a child the module's threads and device are gone: close leaves them be.
START_TEST(forked)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = load_variant("sound");
	int status;
	pid_t pid;

	ck_assert_int_eq(start(m, &err), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (!pid) {
		genai_module_close(m);
		_exit(lines[0] ? 1 : 0);
	}
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	ck_assert_int_eq(status, 0);
	genai_module_close(m);
	ck_assert_str_eq(lines, "3 variant: fini\n");
}
END_TEST

START_TEST(keys)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;

	ck_assert_int_eq(
		load("variant", VARIANT, "module.variant.thread=1", &m, &err),
		GENAI_E_CONFIG);
	ck_assert_str_eq(err.text, "--set: unknown key thread in [module "
				   "variant], did you mean threads?");
	ck_assert_int_eq(load("variant", VARIANT,
			      "module.variant.schedule=random:9", &m, &err),
			 0);
	genai_module_close(m);
}
END_TEST

static int32_t load_at(const char *name, const char *path, char *text)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;
	int32_t rc = load(name, path, NULL, &m, &err);

	ck_assert_int_ne(rc, 0);
	ck_assert_ptr_null(m);
	strcpy(text, err.text);
	return rc;
}

#define F GENAI_TESTFIXTURES

START_TEST(objects)
{
	char text[512];

	ck_assert_int_eq(load_at("nosymbol", F "/nosymbol.so", text),
			 GENAI_E_MODULE);
	ck_assert_str_eq(text, F "/nosymbol.so: no symbol genai_module_query: "
				 "not a genai module");
	ck_assert_int_eq(load_at("unresolved", F "/unresolved.so", text),
			 GENAI_E_MODULE);
	ck_assert_ptr_nonnull(strstr(text, "cannot load: "));
	ck_assert_ptr_nonnull(strstr(text, "genai_fixture_missing"));
	genai_module_close(load_variant("sound")); // what inherited.so needs
	ck_assert_int_eq(load_at("inherited", F "/inherited.so", text),
			 GENAI_E_MODULE);
	ck_assert_str_eq(text, F "/inherited.so: has no genai_module_query of "
				 "its own, found that of " VARIANT);
}
END_TEST

static char scratch[64], copy[96];

static void copy_variant(void)
{
	strcpy(scratch, "/tmp/genai-module-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(scratch));
	snprintf(copy, sizeof(copy), "%s/variant.so", scratch);
}

static void drop_copy(void)
{
	unlink(copy);
	rmdir(scratch);
}

// Write n bytes of the variant, with a string in it replaced by another.
static size_t write_copy(size_t n, const char *from, const char *to)
{
	static char data[1 << 20];
	FILE *f = fopen(VARIANT, "rb");
	size_t have, i;

	ck_assert_ptr_nonnull(f);
	have = fread(data, 1, sizeof(data), f);
	fclose(f);
	for (i = 0; from && i + strlen(from) < have; i++)
		if (memcmp(data + i, from, strlen(from) + 1) == 0)
			memcpy(data + i, to, strlen(to));
	f = fopen(copy, "wb");
	ck_assert_ptr_nonnull(f);
	fwrite(data, 1, n < have ? n : have, f);
	fclose(f);
	return have;
}

START_TEST(files)
{
	char text[512], want[256];

	ck_assert_int_eq(load_at("variant", "/nonexistent/v.so", text),
			 GENAI_E_NOTFOUND);
	ck_assert_str_eq(text, "--set: /nonexistent/v.so: cannot open: No such "
			       "file or directory");
	ck_assert_int_eq(load_at("variant", scratch, text), GENAI_E_MODULE);
	snprintf(want, sizeof(want), "--set: %s: not a regular file", scratch);
	ck_assert_str_eq(text, want);
	ck_assert_int_eq(mkfifo(copy, 0600), 0);
	ck_assert_int_eq(load_at("variant", copy, text), GENAI_E_MODULE);
	unlink(copy);
	write_copy(0, NULL, NULL);
	ck_assert_int_eq(load_at("variant", copy, text), GENAI_E_MODULE);
	snprintf(want, sizeof(want), "%s: empty file", copy);
	ck_assert_str_eq(text, want);
	write_copy(8, NULL, NULL);
	ck_assert_int_eq(load_at("variant", copy, text), GENAI_E_MODULE);
	snprintf(want, sizeof(want), "%s: not an ELF shared object", copy);
	ck_assert_str_eq(text, want);
}
END_TEST

// A module file cut anywhere is an error, not a SIGBUS in the dynamic linker.
START_TEST(truncations)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;
	size_t n, full = write_copy(SIZE_MAX, NULL, NULL);

	for (n = full - 1; n > 64; n -= n / 16 + 1) {
		unlink(copy);
		write_copy(n, NULL, NULL);
		// The section headers at the end are nobody's loss.
		if (load("variant", copy, NULL, &m, &err) == 0) {
			genai_module_close(m);
			continue;
		}
		ck_assert_int_eq(err.code, GENAI_E_MODULE);
		ck_assert_ptr_nonnull(strstr(err.text, "truncated"));
	}
}
END_TEST

START_TEST(foreign)
{
	char text[512], want[256];
	FILE *f;

	// A sanitizer's runtime ends a process that was not built for it.
	write_copy(SIZE_MAX, "libm.so.6", "libasan.8");
	if (!GENAI_BUILD_SAN) {
		ck_assert_int_eq(load_at("variant", copy, text), GENAI_E_ABI);
		snprintf(want, sizeof(want),
			 "%s: needs libasan.8: built with a sanitizer, this "
			 "process is not",
			 copy);
		ck_assert_str_eq(text, want);
	}
	write_copy(SIZE_MAX, NULL, NULL);
	f = fopen(copy, "r+b");
	fseek(f, 18, SEEK_SET); // e_machine
	fputc(3, f);
	fclose(f);
	ck_assert_int_eq(load_at("variant", copy, text), GENAI_E_ABI);
	ck_assert_ptr_nonnull(strstr(text, "for ELF machine 3, this is "));
	f = fopen(copy, "r+b");
	fseek(f, 4, SEEK_SET); // e_ident[EI_CLASS]
	fputc(1, f);
	fclose(f);
	ck_assert_int_eq(load_at("variant", copy, text), GENAI_E_ABI);
	ck_assert_ptr_nonnull(strstr(text, "ELF class 1, byte order 1"));
}
END_TEST

// By name: the directories of module_path in order, then our own; never the
// current one.
START_TEST(search)
{
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;
	char cwd[4096], set[256];

	snprintf(set, sizeof(set), "runtime.module_path=%s:%s", scratch, F);
	ck_assert_int_eq(load("variant", "", set, &m, &err), 0);
	ck_assert_str_eq(genai_module_path(m), VARIANT);
	genai_module_close(m);
	write_copy(SIZE_MAX, NULL, NULL);
	ck_assert_int_eq(load("variant", "", set, &m, &err), 0);
	ck_assert_str_eq(genai_module_path(m), copy);
	genai_module_close(m);

	ck_assert_ptr_nonnull(getcwd(cwd, sizeof(cwd)));
	ck_assert_int_eq(chdir(scratch), 0);
	setenv("LD_LIBRARY_PATH", scratch, 1);
	ck_assert_int_eq(load("variant", "", "runtime.module_path=/nonexistent",
			      &m, &err),
			 GENAI_E_NOTFOUND);
	ck_assert_ptr_nonnull(strstr(err.text, "module variant: no such file; "
					       "tried /nonexistent/variant.so, "
					       "/"));
	ck_assert_ptr_nonnull(strstr(err.text, "/modules-1/variant.so"));
	ck_assert_int_eq(chdir(cwd), 0);
}
END_TEST

START_TEST(bad_names)
{
	static const char *const names[] = {"", "../variant", "a/b", "a.b",
					    "a234567890123456789012345678901x"};
	struct genai_error err = GENAI_ERROR_INIT;
	struct genai_module *m = NULL;
	size_t i;

	ck_assert_int_eq(genai_config_load(NULL, NULL, 0, &config, &err), 0);
	for (i = 0; i < 5; i++)
		ck_assert_int_eq(
			genai_module_load(names[i], config, NULL, &m, &err),
			GENAI_E_CONFIG);
}
END_TEST

#define COUNT(a) ((int)(sizeof(a) / sizeof((a)[0])))

int main(void)
{
	Suite *s = suite_create("module");
	TCase *t = tcase_create("module"), *f = tcase_create("file");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_add_test(t, sound);
	tcase_add_loop_test(t, rules, 0, COUNT(broken));
	tcase_add_test(t, newer);
	tcase_add_test(t, tables);
	tcase_add_test(t, choices);
	tcase_add_test(t, mapped);
	tcase_add_test(t, life);
	tcase_add_loop_test(t, inits, 0, COUNT(bad_inits));
	tcase_add_test(t, leftovers);
	tcase_add_test(t, forked);
	tcase_add_test(t, keys);
	tcase_add_test(t, objects);
	tcase_add_test(t, bad_names);
	suite_add_tcase(s, t);
	tcase_add_checked_fixture(f, setup, teardown);
	tcase_add_checked_fixture(f, copy_variant, drop_copy);
	tcase_add_test(f, files);
	tcase_add_test(f, truncations);
	tcase_add_test(f, foreign);
	tcase_add_test(f, search);
	suite_add_tcase(s, f);
	return genai_check_main(s);
}
