// mapping.c - read-only file mappings, and the SIGBUS of a truncated file.
#include "core/base/mapping.h"

#include "core/base/error.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

// What the signal handler may look at.  Regions are reused, never freed: the
// handler walks the list while another thread closes a mapping.
struct region {
	struct region *next; // set before the region is published
	_Atomic(uintptr_t) begin;
	_Atomic(uintptr_t) end; // 0: free
	atomic_int broken;
	int fd; // under regions_lock
};

struct genai_mapping {
	char *path;
	void *data;
	uint64_t bytes;
	struct region *region; // NULL for an empty file
	int fd;
};

static pthread_mutex_t regions_lock = PTHREAD_MUTEX_INITIALIZER;
static _Atomic(struct region *) regions;
static struct sigaction previous;
static int handler_installed; // under regions_lock
static uintptr_t page_bytes;

// The handler that was there before ours; without one the signal is left to
// happen again with its default effect.
static void pass_on(int sig, siginfo_t *info, void *context)
{
	if (previous.sa_flags & SA_SIGINFO) {
		previous.sa_sigaction(sig, info, context);
	} else if (previous.sa_handler == SIG_DFL ||
		   previous.sa_handler == SIG_IGN) {
		signal(sig, SIG_DFL);
	} else {
		previous.sa_handler(sig);
	}
}

// A page of zeros where a file has none any more.  The system call itself: the
// C library's mmap() need not be safe in a signal handler, and a sanitizer
// takes it for a write that races with the other threads' reads of the page.
static long map_zeros(void *page)
{
#ifdef SYS_mmap2
	const long nr = SYS_mmap2;
#else
	const long nr = SYS_mmap;
#endif
	return syscall(nr, page, page_bytes, PROT_READ,
		       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
}

// Only atomics and a system call: safe in a signal handler.
static void on_sigbus(int sig, siginfo_t *info, void *context)
{
	uintptr_t at = (uintptr_t)info->si_addr;
	int saved = errno;
	struct region *r;
	void *page;

	for (r = atomic_load(&regions); r && info->si_code == BUS_ADRERR;
	     r = r->next) {
		uintptr_t end = atomic_load(&r->end);

		if (at < atomic_load(&r->begin) || at >= end)
			continue;
		page = (void *)(at & ~(page_bytes - 1));
		if (map_zeros(page) == -1)
			break;
		atomic_store(&r->broken, 1);
		errno = saved;
		return;
	}
	errno = saved;
	pass_on(sig, info, context);
}

// Under regions_lock.
static int install_handler(void)
{
	struct sigaction act;

	if (handler_installed)
		return 1;
	page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
	memset(&act, 0, sizeof(act));
	act.sa_sigaction = on_sigbus;
	act.sa_flags = SA_SIGINFO | SA_ONSTACK;
	sigemptyset(&act.sa_mask);
	// twice, so that our handler never runs with previous unset
	if (sigaction(SIGBUS, NULL, &previous) || sigaction(SIGBUS, &act, NULL))
		return 0;
	handler_installed = 1;
	return 1;
}

// A region for the range; NULL when out of memory or without a handler.
static struct region *region_take(const void *data, uint64_t bytes, int fd)
{
	uintptr_t begin = (uintptr_t)data;
	struct region *r = NULL;

	pthread_mutex_lock(&regions_lock);
	if (!install_handler())
		goto out;
	for (r = atomic_load(&regions); r && atomic_load(&r->end); r = r->next)
		;
	if (!r) {
		r = calloc(1, sizeof(*r));
		if (!r)
			goto out;
		r->next = atomic_load(&regions);
		atomic_store(&regions, r);
	}
	r->fd = fd;
	atomic_store(&r->broken, 0);
	atomic_store(&r->begin, begin);
	atomic_store(&r->end, begin + bytes);
out:
	pthread_mutex_unlock(&regions_lock);
	return r;
}

static void region_drop(struct region *r)
{
	pthread_mutex_lock(&regions_lock);
	atomic_store(&r->end, 0);
	pthread_mutex_unlock(&regions_lock);
}

void genai_mapping_forget_all(void)
{
	pthread_mutex_lock(&regions_lock);
	for (struct region *r = atomic_load(&regions); r; r = r->next) {
		uintptr_t begin = atomic_load(&r->begin);
		uintptr_t end = atomic_load(&r->end);

		if (!end)
			continue;
		// a page that a process has mapped is not dropped
		madvise((void *)begin, end - begin, MADV_DONTNEED);
		posix_fadvise(r->fd, 0, 0, POSIX_FADV_DONTNEED);
	}
	pthread_mutex_unlock(&regions_lock);
}

int genai_mapping_find(const void *data, uint64_t bytes, uint64_t *out_offset)
{
	uintptr_t at = (uintptr_t)data;
	int fd = 0;

	pthread_mutex_lock(&regions_lock);
	for (struct region *r = atomic_load(&regions); r; r = r->next) {
		uintptr_t begin = atomic_load(&r->begin);
		uintptr_t end = atomic_load(&r->end);

		if (at < begin || at >= end || bytes > end - at)
			continue;
		fd = r->fd;
		*out_offset = at - begin;
		break;
	}
	pthread_mutex_unlock(&regions_lock);
	return fd;
}

// Map m->bytes of m->fd.
static int32_t map(struct genai_mapping *m, struct genai_error *err)
{
	char why[128];

	if (m->bytes > SIZE_MAX - 65536)
		return genai_fail(err, GENAI_E_LIMIT,
				  "%s: %llu bytes is more "
				  "than this machine can map",
				  m->path, (unsigned long long)m->bytes);
	m->data = mmap(NULL, (size_t)m->bytes, PROT_READ, MAP_SHARED, m->fd, 0);
	if (m->data == MAP_FAILED) {
		m->data = NULL;
		return genai_fail(err, GENAI_E_IO,
				  "%s: cannot map %llu bytes: %s", m->path,
				  (unsigned long long)m->bytes,
				  strerror_r(errno, why, sizeof(why)));
	}
	m->region = region_take(m->data, m->bytes, m->fd);
	if (!m->region)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  m->path);
	return GENAI_OK;
}

int32_t genai_mapping_from_fd(int fd, const char *path,
			      struct genai_mapping **out_m,
			      struct genai_error *err)
{
	struct genai_mapping *m;
	struct stat st;
	char why[128];
	int32_t rc;

	if (fstat(fd, &st))
		return genai_fail(err, GENAI_E_IO, "%s: cannot stat: %s", path,
				  strerror_r(errno, why, sizeof(why)));
	if (!S_ISREG(st.st_mode))
		return genai_fail(err, GENAI_E_IO, "%s: %s", path,
				  S_ISDIR(st.st_mode) ? "is a directory"
						      : "not a regular file");
	m = calloc(1, sizeof(*m));
	if (!m)
		return genai_fail(err, GENAI_E_NOMEM, "%s: out of memory",
				  path);
	m->bytes = (uint64_t)st.st_size;
	m->path = strdup(path);
	// kept open, so that genai_mapping_check() asks the same file
	m->fd = fcntl(fd, F_DUPFD_CLOEXEC, 3); // not for stdin's place
	if (!m->path)
		rc = genai_fail(err, GENAI_E_NOMEM, "%s: out of memory", path);
	else if (m->fd < 0)
		rc = genai_fail(err, GENAI_E_IO, "%s: cannot duplicate: %s",
				path, strerror_r(errno, why, sizeof(why)));
	else
		rc = m->bytes ? map(m, err) : GENAI_OK;
	if (rc) {
		genai_mapping_close(m);
		return rc;
	}
	*out_m = m;
	return GENAI_OK;
}

int32_t genai_mapping_open(const char *path, struct genai_mapping **out_m,
			   struct genai_error *err)
{
	char why[128];
	int32_t rc;
	int fd;

	do {
		fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
	} while (fd < 0 && errno == EINTR);
	if (fd < 0) {
		rc = errno == ENOENT || errno == ENOTDIR ? GENAI_E_NOTFOUND
							 : GENAI_E_IO;
		return genai_fail(err, rc, "%s: cannot open: %s", path,
				  strerror_r(errno, why, sizeof(why)));
	}
	rc = genai_mapping_from_fd(fd, path, out_m, err);
	close(fd);
	return rc;
}

void genai_mapping_close(struct genai_mapping *m)
{
	if (!m)
		return;
	if (m->region)
		region_drop(m->region);
	if (m->data)
		munmap(m->data, (size_t)m->bytes);
	if (m->fd >= 0)
		close(m->fd);
	free(m->path);
	free(m);
}

const void *genai_mapping_data(const struct genai_mapping *m)
{
	return m->data;
}

uint64_t genai_mapping_bytes(const struct genai_mapping *m)
{
	return m->bytes;
}

const char *genai_mapping_path(const struct genai_mapping *m)
{
	return m->path;
}

int32_t genai_mapping_check(const struct genai_mapping *m,
			    struct genai_error *err)
{
	struct stat st;
	char why[128];

	if (fstat(m->fd, &st))
		return genai_fail(err, GENAI_E_IO, "%s: cannot stat: %s",
				  m->path, strerror_r(errno, why, sizeof(why)));
	if ((uint64_t)st.st_size >= m->bytes &&
	    !(m->region && atomic_load(&m->region->broken)))
		return GENAI_OK;
	return genai_fail(err, GENAI_E_IO,
			  "%s: truncated while in use: was %llu bytes, is %llu",
			  m->path, (unsigned long long)m->bytes,
			  (unsigned long long)st.st_size);
}
