// elf.c - checks of shared objects before and after dlopen.
#include "core/base/elf.h"

#include <string.h>
#include <sys/mman.h>

#include <genai/module.h>

#include "core/base/error.h"

#if defined(__x86_64__)
#define OWN_MACHINE EM_X86_64
#elif defined(__aarch64__)
#define OWN_MACHINE EM_AARCH64
#elif defined(__riscv)
#define OWN_MACHINE EM_RISCV
#elif defined(__powerpc64__)
#define OWN_MACHINE EM_PPC64
#else
#define OWN_MACHINE EM_NONE
#endif

struct file {
	const char *data;
	uint64_t bytes;
	const ElfW(Phdr) * phdrs;
	uint32_t n_phdrs;
};

static bool has_range(const struct file *f, uint64_t offset, uint64_t bytes)
{
	return offset <= f->bytes && bytes <= f->bytes - offset;
}

static int32_t check_header(struct file *f, const char *path,
			    struct genai_error *err)
{
	const ElfW(Ehdr) *h = (const void *)f->data;
	int class = sizeof(void *) == 8 ? ELFCLASS64 : ELFCLASS32;

	if (f->bytes < EI_NIDENT || memcmp(h->e_ident, ELFMAG, SELFMAG) != 0)
		return genai_fail(err, GENAI_E_MODULE,
				  "%s: not an ELF shared object", path);
	if (h->e_ident[EI_CLASS] != class || h->e_ident[EI_DATA] != ELFDATA2LSB)
		return genai_fail(err, GENAI_E_ABI,
				  "%s: ELF class %u, byte order %u; this "
				  "process has %d, %d",
				  path, h->e_ident[EI_CLASS],
				  h->e_ident[EI_DATA], class, ELFDATA2LSB);
	if (f->bytes < sizeof(*h))
		return genai_fail(err, GENAI_E_MODULE, "%s: truncated", path);
	if (OWN_MACHINE != EM_NONE && h->e_machine != OWN_MACHINE)
		return genai_fail(err, GENAI_E_ABI,
				  "%s: for ELF machine %u, this is %u", path,
				  h->e_machine, OWN_MACHINE);
	if (h->e_type != ET_DYN || h->e_phentsize != sizeof(ElfW(Phdr)) ||
	    h->e_phoff % sizeof(void *))
		return genai_fail(err, GENAI_E_MODULE,
				  "%s: not a shared object", path);
	f->n_phdrs = h->e_phnum;
	if (!has_range(f, h->e_phoff, f->n_phdrs * sizeof(ElfW(Phdr))))
		return genai_fail(err, GENAI_E_MODULE, "%s: truncated", path);
	f->phdrs = (const void *)(f->data + h->e_phoff);
	return 0;
}

// Does the name of a needed library start with prefix?  vaddrs map to offsets
// through the segments.
static const char *at_vaddr(const struct file *f, uint64_t vaddr)
{
	uint32_t i;

	for (i = 0; i < f->n_phdrs; i++) {
		const ElfW(Phdr) *p = &f->phdrs[i];

		if (p->p_type == PT_LOAD && vaddr >= p->p_vaddr &&
		    vaddr - p->p_vaddr < p->p_filesz)
			return f->data + p->p_offset + (vaddr - p->p_vaddr);
	}
	return NULL;
}

// The first needed library that is a sanitizer's runtime, or NULL.
static const char *needs_sanitizer(const struct file *f)
{
	static const char *const runtimes[] = {"libasan.", "libtsan.",
					       "libclang_rt.", "libhwasan."};
	const ElfW(Dyn) *dyn = NULL;
	const char *strings = NULL, *name, *end = f->data + f->bytes;
	uint64_t n = 0, i;
	size_t k;

	for (i = 0; i < f->n_phdrs; i++)
		if (f->phdrs[i].p_type == PT_DYNAMIC &&
		    f->phdrs[i].p_offset % sizeof(void *) == 0) {
			dyn = (const void *)(f->data + f->phdrs[i].p_offset);
			n = f->phdrs[i].p_filesz / sizeof(*dyn);
		}
	for (i = 0; i < n && dyn[i].d_tag != DT_NULL; i++)
		if (dyn[i].d_tag == DT_STRTAB)
			strings = at_vaddr(f, dyn[i].d_un.d_ptr);
	if (!strings)
		return NULL;
	for (i = 0; i < n && dyn[i].d_tag != DT_NULL; i++) {
		if (dyn[i].d_tag != DT_NEEDED ||
		    dyn[i].d_un.d_val >= (uint64_t)(end - strings))
			continue;
		name = strings + dyn[i].d_un.d_val;
		if (!memchr(name, 0, (size_t)(end - name)))
			continue;
		for (k = 0; k < sizeof(runtimes) / sizeof(runtimes[0]); k++)
			if (strncmp(name, runtimes[k], strlen(runtimes[k])) ==
			    0)
				return name;
	}
	return NULL;
}

static int32_t check_mapped(struct file *f, const char *path,
			    struct genai_error *err)
{
	const char *sanitizer;
	uint32_t i;
	int32_t rc = check_header(f, path, err);

	if (rc)
		return rc;
	for (i = 0; i < f->n_phdrs; i++)
		if ((f->phdrs[i].p_type == PT_LOAD ||
		     f->phdrs[i].p_type == PT_DYNAMIC) &&
		    !has_range(f, f->phdrs[i].p_offset, f->phdrs[i].p_filesz))
			return genai_fail(
				err, GENAI_E_MODULE,
				"%s: truncated: segment %u ends at "
				"byte %llu, the file has %llu",
				path, i,
				(unsigned long long)f->phdrs[i].p_offset +
					f->phdrs[i].p_filesz,
				(unsigned long long)f->bytes);
	sanitizer = GENAI_BUILD_SAN ? NULL : needs_sanitizer(f);
	if (sanitizer)
		return genai_fail(err, GENAI_E_ABI,
				  "%s: needs %s: built with a sanitizer, this "
				  "process is not",
				  path, sanitizer);
	return 0;
}

int32_t genai_elf_check_file(int fd, uint64_t bytes, const char *path,
			     struct genai_error *err)
{
	struct file f = {.bytes = bytes};
	void *data;
	int32_t rc;

	if (!bytes)
		return genai_fail(err, GENAI_E_MODULE, "%s: empty file", path);
	data = mmap(NULL, bytes, PROT_READ, MAP_PRIVATE, fd, 0);
	if (data == MAP_FAILED)
		return genai_fail(err, GENAI_E_IO, "%s: cannot map: %m", path);
	f.data = data;
	rc = check_mapped(&f, path, err);
	munmap(data, bytes);
	return rc;
}

struct query {
	const struct link_map *object;
	uintptr_t p;
	uint64_t left; // bytes from p to the end of its segment; 0: not inside
};

static int find_segment(struct dl_phdr_info *info, size_t size, void *ctx)
{
	struct query *q = ctx;
	uint32_t i;

	(void)size;
	if (info->dlpi_addr != q->object->l_addr)
		return 0;
	for (i = 0; i < info->dlpi_phnum; i++) {
		const ElfW(Phdr) *p = &info->dlpi_phdr[i];
		uintptr_t begin = info->dlpi_addr + p->p_vaddr;

		if (p->p_type == PT_LOAD && (p->p_flags & PF_R) &&
		    q->p >= begin && q->p - begin < p->p_memsz)
			q->left = p->p_memsz - (q->p - begin);
	}
	return 1;
}

static uint64_t bytes_left(const struct link_map *object, const void *p)
{
	struct query q = {object, (uintptr_t)p, 0};

	dl_iterate_phdr(find_segment, &q);
	return q.left;
}

bool genai_elf_contains(const struct link_map *object, const void *p,
			uint64_t bytes)
{
	return bytes <= bytes_left(object, p);
}

bool genai_elf_contains_string(const struct link_map *object, const char *s,
			       uint64_t max)
{
	uint64_t left = bytes_left(object, s);

	return left && memchr(s, 0, left < max + 1 ? left : max + 1);
}
