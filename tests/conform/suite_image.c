// suite_image.c - the shared object itself: what it shows to the world, what it
// asks for, and what would outlive it.
#include "tests/conform/conform.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>

// What of the image is looked at; tables are where the linker put them.
struct image {
	const ElfW(Sym) * syms;
	const char *strings;
	uint32_t n_syms;
	uint64_t flags;
	char complaints[900];
};

static struct image img;

static void complain(const char *what, const char *name)
{
	size_t n = strlen(img.complaints);

	snprintf(img.complaints + n, sizeof(img.complaints) - n, "%s%s%s",
		 n ? "; " : "", what, name);
}

// Some machines leave addresses of the dynamic section as they are in the file.
static const void *at(const struct link_map *map, ElfW(Addr) p)
{
	return (const void *)(p < map->l_addr ? p + map->l_addr : p);
}

// Symbols that others find, from the table that they find them by.
static uint32_t count_gnu(const uint32_t *h)
{
	const uint32_t n_buckets = h[0], first = h[1], bloom = h[2];
	const uint32_t *buckets = h + 4 + bloom * (sizeof(ElfW(Addr)) / 4);
	const uint32_t *chain = buckets + n_buckets;
	uint32_t last = 0;

	for (uint32_t i = 0; i < n_buckets; i++)
		if (last < buckets[i])
			last = buckets[i];
	if (last < first)
		return first;
	while (!(chain[last - first] & 1))
		last++;
	return last + 1;
}

static void read_image(const struct link_map *map)
{
	const ElfW(Dyn) * d;

	memset(&img, 0, sizeof(img));
	for (d = map->l_ld; d->d_tag != DT_NULL; d++) {
		if (d->d_tag == DT_SYMTAB)
			img.syms = at(map, d->d_un.d_ptr);
		else if (d->d_tag == DT_STRTAB)
			img.strings = at(map, d->d_un.d_ptr);
		else if (d->d_tag == DT_GNU_HASH)
			img.n_syms = count_gnu(at(map, d->d_un.d_ptr));
		else if (d->d_tag == DT_HASH && !img.n_syms)
			img.n_syms =
				((const uint32_t *)at(map, d->d_un.d_ptr))[1];
		else if (d->d_tag == DT_FLAGS)
			img.flags = d->d_un.d_val;
	}
	ck_assert_msg(img.syms && img.strings && img.n_syms,
		      "the image has no table of symbols");
	for (d = map->l_ld; d->d_tag != DT_NULL; d++)
		if (d->d_tag == DT_NEEDED &&
		    strstr(img.strings + d->d_un.d_val, "libgenai"))
			complain("needs ", img.strings + d->d_un.d_val);
}

// What leaves something behind that is called when the module is long closed.
static bool is_banned(const char *name)
{
	static const char *const banned[] = {
		"atexit",	  "__cxa_atexit",	"on_exit",
		"at_quick_exit",  "pthread_key_create", "tss_create",
		"pthread_atfork", "__register_atfork",
	};

	for (size_t i = 0; i < sizeof(banned) / sizeof(banned[0]); i++)
		if (!strcmp(name, banned[i]))
			return true;
	return false;
}

// Linkers before 2.27 export these of every shared object.
static bool is_linkers(const char *name)
{
	static const char *const own[] = {"_init", "_fini", "_edata", "_end",
					  "__bss_start"};

	for (size_t i = 0; i < sizeof(own) / sizeof(own[0]); i++)
		if (!strcmp(name, own[i]))
			return true;
	return !strncmp(name, "__odr_asan", 10);
}

static void look_at(const ElfW(Sym) * s)
{
	const char *name = img.strings + s->st_name;
	int bind = ELF64_ST_BIND(s->st_info);

	if (!*name || bind == STB_LOCAL || s->st_shndx == SHN_ABS)
		return;
	if (s->st_shndx == SHN_UNDEF) {
		if (bind == STB_GLOBAL && is_banned(name))
			complain("uses ", name);
	} else if (ELF64_ST_VISIBILITY(s->st_other) == STV_DEFAULT &&
		   strcmp(name, GENAI_MODULE_QUERY_SYMBOL) != 0 &&
		   !is_linkers(name)) {
		complain("exports ", name);
	}
}

static void image(void)
{
	struct genai_config *config = NULL;
	struct genai_module *m = NULL;
	struct link_map *map = NULL;
	void *h;

	CF_OK(cf_load(NULL, &config, &m, &cf_err));
	h = dlopen(genai_module_path(m), RTLD_NOW | RTLD_LOCAL);
	ck_assert_msg(h && !dlinfo(h, RTLD_DI_LINKMAP, &map), "%s", dlerror());
	read_image(map);
	for (uint32_t i = 0; i < img.n_syms; i++)
		look_at(&img.syms[i]);
	if (img.flags & DF_STATIC_TLS)
		complain("takes static TLS", "");
	genai_module_close(m);
	genai_config_close(config);
	ck_assert_msg(!img.complaints[0], "%s", img.complaints);
}

static const struct cf_test tests[] = {
	{"handshake/image", "GM-9 GM-13", NULL, 0, image},
};
const struct cf_suite cf_suite_image = {tests,
					sizeof(tests) / sizeof(tests[0])};
