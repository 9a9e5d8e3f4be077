// check_onnx_faults.c - loading while the system fails: the nth allocation, the
// nth system call, once or from then on.  Nothing may leak, and the same
// process then loads the same model.
// System calls are caught by the linker (--wrap), so that a sanitizer's own
// ones go past; allocations also where shared libraries make them.
#include "tests/unit/onnx_writer.h"

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <sys/mman.h>
#include <sys/syscall.h>

#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) &&                    \
	!defined(__SANITIZE_THREAD__)
#define COUNT_MEMORY 1
#endif

enum { MEMORY, OPEN, STAT, DUP, MAP, N_KINDS };

static struct {
	int armed;    // only inside the call under test
	int kind;     // what fails
	long fail_at; // 1: the first
	int from_then_on;
	long count; // calls of that kind so far
	long failed;
	long blocks; // memory blocks that are alive
} fault;

static int fails(int kind)
{
	if (!fault.armed || fault.kind != kind)
		return 0;
	fault.count++;
	if (fault.count != fault.fail_at &&
	    !(fault.from_then_on && fault.count > fault.fail_at))
		return 0;
	fault.failed++;
	return 1;
}

#ifdef COUNT_MEMORY
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
extern void __libc_free(void *);

static void *counted(void *p)
{
	if (p && fault.armed)
		fault.blocks++;
	return p;
}

static void *no_memory(void)
{
	errno = ENOMEM;
	return NULL;
}

void *malloc(size_t n)
{
	return fails(MEMORY) ? no_memory() : counted(__libc_malloc(n));
}

void *calloc(size_t n, size_t size)
{
	return fails(MEMORY) ? no_memory() : counted(__libc_calloc(n, size));
}

void *realloc(void *p, size_t n)
{
	if (fails(MEMORY))
		return no_memory();
	return p ? __libc_realloc(p, n) : counted(__libc_realloc(p, n));
}

void *aligned_alloc(size_t align, size_t n)
{
	return fails(MEMORY) ? no_memory() : counted(__libc_memalign(align, n));
}

void free(void *p)
{
	if (p && fault.armed)
		fault.blocks--;
	__libc_free(p);
}
#endif

static int no_call(void)
{
	errno = EIO;
	return -1;
}

int __real_fstat(int fd, struct stat *st);
void *__real_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);
int __wrap_open(const char *path, int flags, ...);
int __wrap_openat(int dir, const char *path, int flags, ...);
int __wrap_fstat(int fd, struct stat *st);
int __wrap_fcntl(int fd, int command, ...);
void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off);

int __wrap_open(const char *path, int flags, ...)
{
	va_list ap;
	int mode;

	va_start(ap, flags);
	mode = flags & O_CREAT ? va_arg(ap, int) : 0;
	va_end(ap);
	if (fails(OPEN))
		return no_call();
	return (int)syscall(SYS_openat, AT_FDCWD, path, flags, mode);
}

int __wrap_openat(int dir, const char *path, int flags, ...)
{
	if (fails(OPEN))
		return no_call();
	return (int)syscall(SYS_openat, dir, path, flags, 0);
}

int __wrap_fstat(int fd, struct stat *st)
{
	return fails(STAT) ? no_call() : __real_fstat(fd, st);
}

int __wrap_fcntl(int fd, int command, ...)
{
	va_list ap;
	long arg;

	va_start(ap, command);
	arg = va_arg(ap, long);
	va_end(ap);
	if (command == F_DUPFD_CLOEXEC && fails(DUP))
		return no_call();
	return (int)syscall(SYS_fcntl, fd, command, arg);
}

void *__wrap_mmap(void *at, size_t n, int prot, int flags, int fd, off_t off)
{
	if (fails(MAP)) {
		no_call();
		return MAP_FAILED;
	}
	return __real_mmap(at, n, prot, flags, fd, off);
}

// call(a) = Relu(Softmax(a, axis = along))
static struct ow called(void)
{
	struct ow f = {NULL, 0, 0}, o = {NULL, 0, 0},
		  a = ow_attr("axis", OW_INT), n = ow_node("Softmax", "a", "t");

	ow_str(&f, 1, "call");
	ow_str(&f, 4, "a");
	ow_str(&f, 5, "b");
	ow_str(&f, 6, "along");
	ow_str(&f, 10, "f");
	ow_int(&o, 2, 18);
	ow_msg(&f, 9, o);
	ow_str(&a, 21, "along");
	ow_msg(&n, 5, a);
	ow_msg(&f, 7, n);
	ow_msg(&f, 7, ow_node("Relu", "t", "b"));
	return f;
}

// A model with something of everything.
static void make_model(void)
{
	static const int64_t dims[2] = {2, -1};
	struct ow g = {NULL, 0, 0}, sub = {NULL, 0, 0}, n, a, t, m;

	bench_data("w.bin", 64, 0);
	bench_data("v.bin", 64, 0);
	n = ow_node("Constant", NULL, "k");
	a = ow_attr("value_ints", 7);
	ow_int(&a, 8, 5);
	ow_msg(&n, 5, a);
	ow_add_node(&sub, n);
	ow_add_op(&sub, "Add", "k,w", "z");
	ow_add_output(&sub, "z");
	ow_msg(&g, 11, ow_value("x", GENAI_DT_F32, 2, dims));
	t = ow_tensor1("w", GENAI_DT_U8, 64);
	ow_external(&t, "w.bin", "0", "64");
	ow_add_init(&g, t);
	t = ow_tensor1("v", GENAI_DT_F32, 8);
	ow_external(&t, "v.bin", "1", NULL); // warned about
	ow_add_init(&g, t);
	t = ow_tensor1("s", GENAI_DT_STRING, 0);
	ow_add_init(&g, t);
	t = ow_tensor1("i", GENAI_DT_I32, 2);
	ow_bytes(&t, 5, "\x01\x02", 2);
	ow_add_init(&g, t);
	n = ow_node("If", "x", "y");
	ow_str(&n, 3, "if");
	ow_attr_graph(&n, "then_branch", sub);
	ow_attr_int(&n, "i", 1);
	a = ow_attr("ss", 8);
	ow_str(&a, 9, "text");
	ow_msg(&n, 5, a);
	ow_add_node(&g, n);
	n = ow_node("call", "y", "last");
	ow_str(&n, 7, "f");
	ow_attr_int(&n, "along", 1);
	ow_add_node(&g, n);
	ow_add_output(&g, "last");
	m = ow_model(g);
	ow_msg(&m, 25, called());
	bench_write("model.onnx", m.data, m.n);
	ow_free(&m);
}

static int next_descriptor(void)
{
	int fd = dup(0);

	close(fd);
	return fd;
}

// One load with a fault; the result, 0 if it loaded all the same.
static int32_t load_with_fault(void)
{
	struct genai_onnx_options o = {"/usr:/lib", bench_warn, NULL};
	int fd = next_descriptor();
	int32_t rc;

	bench.warnings[0] = 0;
	fault.count = 0;
	fault.failed = 0;
	fault.blocks = 0;
	fault.armed = 1;
	rc = genai_onnx_load(bench.path, &o, &bench.model, &bench.err);
	if (!rc) {
		genai_onnx_close(bench.model);
		bench.model = NULL;
	}
	fault.armed = 0;
	ck_assert_ptr_null(bench.model);
	ck_assert_int_eq(next_descriptor(), fd);
	ck_assert_msg(fault.blocks == 0, "%ld blocks leaked at %ld",
		      fault.blocks, fault.fail_at);
	return rc;
}

static const char *const kind_names[N_KINDS] = {"allocation", "open", "fstat",
						"dup", "mmap"};

START_TEST(each_call_fails)
{
	int kind = _i / 2;
	long points = 0;
	int32_t rc;

	fault.kind = -1;
	make_model();
	// the first load makes what stays: the SIGBUS handler's list
	ck_assert_int_eq(bench_load_path(bench.path), 0);
	genai_onnx_close(bench.model);
	bench.model = NULL;
	fault.kind = kind;
	fault.from_then_on = _i % 2;
	for (fault.fail_at = 1;; fault.fail_at++) {
		rc = load_with_fault();
		if (!fault.failed)
			break;
		points++;
		if (!rc) // asprintf() gets over a failed allocation
			continue;
		ck_assert_msg(
			rc == (kind == MEMORY ? GENAI_E_NOMEM : GENAI_E_IO),
			"%s %ld: %d %s", kind_names[kind], fault.fail_at, rc,
			bench.err.text);
		ck_assert_int_eq(bench.err.code, rc);
		ck_assert_ptr_nonnull(strstr(bench.err.text, bench.dir));
	}
	ck_assert_int_eq(rc, 0);
#ifdef COUNT_MEMORY
	ck_assert_int_ge(points, kind == MEMORY ? 60 : 3);
#else
	ck_assert_int_ge(points, kind == MEMORY ? 0 : 3);
#endif
	fault.kind = -1;
	ck_assert_int_eq(load_with_fault(), 0);
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("onnx_faults");
	TCase *t = tcase_create("faults");

	tcase_add_checked_fixture(t, bench_setup, bench_teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, each_call_fails, 0, 2 * N_KINDS);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
