// check_mapping.c - file mappings, and files that shrink under them.
#include "core/base/mapping.h"
#include "tests/unit/harness.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

static char dir[64];
static char path[128];
static struct genai_error err;
static struct genai_mapping *m;
static long page;

static void setup(void)
{
	struct genai_error fresh = GENAI_ERROR_INIT;

	err = fresh;
	m = NULL;
	page = sysconf(_SC_PAGESIZE);
	strcpy(dir, "/tmp/genai-test-XXXXXX");
	ck_assert_ptr_nonnull(mkdtemp(dir));
	snprintf(path, sizeof(path), "%s/file", dir);
}

static void teardown(void)
{
	genai_mapping_close(m);
	unlink(path);
	rmdir(path);
	rmdir(dir);
}

// A file of n bytes, all 'a'.
static void make(off_t n)
{
	FILE *f = fopen(path, "w");

	ck_assert_ptr_nonnull(f);
	while (n--)
		fputc('a', f);
	ck_assert_int_eq(fclose(f), 0);
}

static void fails(int32_t code, const char *text)
{
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), code);
	ck_assert_ptr_null(m);
	ck_assert_int_eq(err.code, code);
	ck_assert_msg(strstr(err.text, text) != NULL, "%s", err.text);
	ck_assert_ptr_nonnull(strstr(err.text, path));
	ck_assert_int_eq(genai_mapping_open(path, &m, NULL), code);
}

static const char *data(void)
{
	return genai_mapping_data(m);
}

START_TEST(whole_file)
{
	make(10);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	ck_assert_uint_eq(genai_mapping_bytes(m), 10);
	ck_assert_str_eq(genai_mapping_path(m), path);
	ck_assert_mem_eq(data(), "aaaaaaaaaa", 10);
	ck_assert_int_eq(genai_mapping_check(m, &err), 0);
	ck_assert_int_eq(genai_mapping_check(m, NULL), 0);
}
END_TEST

// Where bytes lie, for who reads instead.
START_TEST(found)
{
	uint64_t at = 77;
	char c[4] = "";
	int fd;

	make(100);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	fd = genai_mapping_find(data() + 30, 70, &at);
	ck_assert_int_ge(fd, 3);
	ck_assert_uint_eq(at, 30);
	ck_assert_int_eq(pread(fd, c, 4, (off_t)at), 4);
	ck_assert_mem_eq(c, "aaaa", 4);
	ck_assert_int_eq(genai_mapping_find(data() + 30, 71, &at), 0);
	ck_assert_int_eq(genai_mapping_find(c, 1, &at), 0);
	genai_mapping_close(m);
	m = NULL;
	ck_assert_int_eq(genai_mapping_find(c, 1, &at), 0);
}
END_TEST

// What was dropped is read again.
START_TEST(forgotten)
{
	make(10000);
	genai_mapping_forget_all();
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	for (int i = 0; i < 3; i++) {
		ck_assert_int_eq(data()[i * 4999], 'a');
		genai_mapping_forget_all();
	}
	ck_assert_int_eq(genai_mapping_check(m, &err), 0);
}
END_TEST

START_TEST(empty_file)
{
	make(0);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	ck_assert_uint_eq(genai_mapping_bytes(m), 0);
	ck_assert_ptr_null(data());
	ck_assert_int_eq(genai_mapping_check(m, &err), 0);
}
END_TEST

START_TEST(missing)
{
	fails(GENAI_E_NOTFOUND, "cannot open: No such file");
}
END_TEST

START_TEST(below_a_file)
{
	char below[160];

	make(1);
	snprintf(below, sizeof(below), "%s/x", path);
	ck_assert_int_eq(genai_mapping_open(below, &m, &err), GENAI_E_NOTFOUND);
}
END_TEST

START_TEST(folder)
{
	mkdir(path, 0700);
	fails(GENAI_E_IO, "is a directory");
}
END_TEST

START_TEST(fifo)
{
	mkfifo(path, 0600);
	fails(GENAI_E_IO, "not a regular file");
}
END_TEST

START_TEST(device)
{
	ck_assert_int_eq(symlink("/dev/zero", path), 0);
	fails(GENAI_E_IO, "not a regular file");
}
END_TEST

START_TEST(unreadable)
{
	if (!geteuid())
		return; // root may read anything
	make(1);
	chmod(path, 0);
	fails(GENAI_E_IO, "Permission denied");
}
END_TEST

START_TEST(through_a_link)
{
	char name[160];

	make(3);
	snprintf(name, sizeof(name), "%s/link", dir);
	ck_assert_int_eq(symlink("file", name), 0);
	ck_assert_int_eq(genai_mapping_open(name, &m, &err), 0);
	ck_assert_uint_eq(genai_mapping_bytes(m), 3);
	unlink(name);
}
END_TEST

START_TEST(descriptor_is_not_consumed)
{
	char name[] = "a name";
	int fd;

	make(5);
	fd = open(path, O_RDONLY);
	ck_assert_int_eq(genai_mapping_from_fd(fd, name, &m, &err), 0);
	ck_assert_int_eq(close(fd), 0);
	name[0] = 'X';
	ck_assert_str_eq(genai_mapping_path(m), "a name");
	ck_assert_mem_eq(data(), "aaaaa", 5);
	ck_assert_int_eq(genai_mapping_check(m, &err), 0);
}
END_TEST

START_TEST(bad_descriptor)
{
	ck_assert_int_eq(genai_mapping_from_fd(-1, "x", &m, &err), GENAI_E_IO);
	ck_assert_ptr_nonnull(strstr(err.text, "x: cannot stat"));
}
END_TEST

START_TEST(write_only_descriptor)
{
	int fd;

	make(5);
	fd = open(path, O_WRONLY);
	ck_assert_int_eq(genai_mapping_from_fd(fd, path, &m, &err), GENAI_E_IO);
	ck_assert_ptr_nonnull(strstr(err.text, "cannot map 5 bytes"));
	close(fd);
}
END_TEST

START_TEST(close_null)
{
	genai_mapping_close(NULL);
}
END_TEST

START_TEST(grown_file_is_fine)
{
	make(10);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	ck_assert_int_eq(truncate(path, 20000), 0);
	ck_assert_uint_eq(genai_mapping_bytes(m), 10);
	ck_assert_int_eq(genai_mapping_check(m, &err), 0);
}
END_TEST

START_TEST(replaced_file_is_fine)
{
	make(10);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	unlink(path);
	make(3);
	ck_assert_int_eq(genai_mapping_check(m, &err), 0);
	ck_assert_int_eq(data()[9], 'a');
}
END_TEST

START_TEST(truncated_unread)
{
	make(page * 4);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	ck_assert_int_eq(truncate(path, 7), 0);
	ck_assert_int_eq(genai_mapping_check(m, &err), GENAI_E_IO);
	ck_assert_ptr_nonnull(strstr(err.text, "truncated while in use: was"));
	ck_assert_ptr_nonnull(strstr(err.text, "is 7"));
}
END_TEST

START_TEST(truncated_and_read)
{
	volatile const char *p;
	long i, sum = 0;

	make(page * 4);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	p = data();
	ck_assert_int_eq(p[3 * page], 'a');
	ck_assert_int_eq(truncate(path, page), 0);
	errno = 123;
	for (i = 0; i < page * 4; i++)
		sum += p[i];
	ck_assert_int_eq(errno, 123);
	ck_assert_int_eq(sum, 'a' * page); // the rest reads as zeros
	ck_assert_int_eq(genai_mapping_check(m, &err), GENAI_E_IO);
}
END_TEST

START_TEST(truncated_read_and_regrown)
{
	volatile const char *p;

	make(page * 2);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	p = data();
	ck_assert_int_eq(truncate(path, 0), 0);
	ck_assert_int_eq(p[page], 0);
	make(page * 2);
	ck_assert_int_eq(genai_mapping_check(m, &err), GENAI_E_IO);
}
END_TEST

// The next mapping in the same place is not blamed.
START_TEST(broken_mark_is_not_inherited)
{
	volatile const char *p;
	int i;

	for (i = 0; i < 10; i++) {
		make(page);
		ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
		ck_assert_int_eq(genai_mapping_check(m, &err), 0);
		p = data();
		ck_assert_int_eq(truncate(path, 0), 0);
		ck_assert_int_eq(p[0], 0);
		ck_assert_int_eq(genai_mapping_check(m, &err), GENAI_E_IO);
		genai_mapping_close(m);
		m = NULL;
	}
}
END_TEST

START_TEST(only_the_truncated_one_is_blamed)
{
	struct genai_mapping *other[20];
	char name[160];
	int i;

	for (i = 0; i < 20; i++) {
		snprintf(name, sizeof(name), "%s/file", dir);
		make(page);
		ck_assert_int_eq(genai_mapping_open(path, &other[i], &err), 0);
		unlink(path);
	}
	make(page);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	ck_assert_int_eq(truncate(path, 0), 0);
	ck_assert_int_eq(*(volatile const char *)data(), 0);
	for (i = 0; i < 20; i++) {
		ck_assert_int_eq(genai_mapping_check(other[i], &err), 0);
		genai_mapping_close(other[i]);
	}
	ck_assert_int_eq(genai_mapping_check(m, &err), GENAI_E_IO);
}
END_TEST

// A page that no mapping of ours holds, and whose file has no bytes there.
static volatile char *foreign_page(void)
{
	char name[160];
	void *p;
	int fd;

	snprintf(name, sizeof(name), "%s/foreign", dir);
	fd = open(name, O_RDWR | O_CREAT, 0600);
	ck_assert_int_ge(fd, 0);
	unlink(name);
	p = mmap(NULL, (size_t)page, PROT_READ, MAP_SHARED, fd, 0);
	ck_assert(p != MAP_FAILED);
	close(fd);
	return p;
}

static sigjmp_buf jump;
static volatile sig_atomic_t seen;

static void on_signal(int sig)
{
	seen = sig;
	siglongjmp(jump, 1);
}

static void on_siginfo(int sig, siginfo_t *info, void *context)
{
	(void)context;
	seen = info->si_code == BUS_ADRERR ? sig : -1;
	siglongjmp(jump, 1);
}

START_TEST(other_faults_go_to_the_handler_before)
{
	struct sigaction act;
	volatile char *p;

	memset(&act, 0, sizeof(act));
	if (_i) {
		act.sa_flags = SA_SIGINFO;
		act.sa_sigaction = on_siginfo;
	} else {
		act.sa_handler = on_signal;
	}
	sigaction(SIGBUS, &act, NULL);
	make(page);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	p = foreign_page();
	seen = 0;
	if (!sigsetjmp(jump, 1))
		ck_abort_msg("read %d", p[0]);
	ck_assert_int_eq(seen, SIGBUS);
	// and ours is still ours
	ck_assert_int_eq(truncate(path, 0), 0);
	ck_assert_int_eq(*(volatile const char *)data(), 0);
	ck_assert_int_eq(genai_mapping_check(m, &err), GENAI_E_IO);
}
END_TEST

#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
START_TEST(other_faults_kill_as_before)
{
	volatile char *p;

	signal(SIGBUS, _i ? SIG_IGN : SIG_DFL);
	make(page);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	p = foreign_page();
	teardown(); // it does not run when the signal kills
	seen = p[0];
}
END_TEST

START_TEST(raised_signal_kills)
{
	make(page);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	teardown();
	raise(SIGBUS);
	raise(SIGBUS);
}
END_TEST
#endif

START_TEST(closed_mapping_is_no_longer_ours)
{
	struct sigaction act;
	volatile char *p;

	memset(&act, 0, sizeof(act));
	act.sa_handler = on_signal;
	sigaction(SIGBUS, &act, NULL);
	make(page);
	ck_assert_int_eq(genai_mapping_open(path, &m, &err), 0);
	genai_mapping_close(m);
	m = NULL;
	p = foreign_page(); // likely the same address
	if (!sigsetjmp(jump, 1))
		ck_abort_msg("read %d", p[0]);
	ck_assert_int_eq(seen, SIGBUS);
}
END_TEST

// Threads that open, read, close, each with a file that shrinks.
struct churn {
	int id;
	const char *wrong; // NULL: all well
};

static const char *churn_once(const char *name, int shrink)
{
	const char *wrong = NULL;
	struct genai_mapping *t;
	volatile const char *p;
	int fd = open(name, O_RDWR | O_CREAT | O_TRUNC, 0600);

	if (fd < 0 || ftruncate(fd, page * 2) ||
	    genai_mapping_from_fd(fd, name, &t, NULL))
		return "setup";
	p = genai_mapping_data(t);
	if (genai_mapping_check(t, NULL))
		wrong = "good file blamed";
	else if (shrink && ftruncate(fd, 0))
		wrong = "truncate";
	else if (p[page] != 0)
		wrong = "not zero";
	else if (!genai_mapping_check(t, NULL) != !shrink)
		wrong = "wrong verdict";
	genai_mapping_close(t);
	close(fd);
	return wrong;
}

static void *churn(void *arg)
{
	struct churn *c = arg;
	char name[160];
	int i;

	snprintf(name, sizeof(name), "%s/t%d", dir, c->id);
	for (i = 0; i < 200 && !c->wrong; i++)
		c->wrong = churn_once(name, i & 1);
	unlink(name);
	return NULL;
}

START_TEST(many_threads)
{
	pthread_t threads[4];
	struct churn c[4];
	int i;

	for (i = 0; i < 4; i++) {
		c[i].id = i;
		c[i].wrong = NULL;
		ck_assert_int_eq(
			pthread_create(&threads[i], NULL, churn, &c[i]), 0);
	}
	for (i = 0; i < 4; i++) {
		pthread_join(threads[i], NULL);
		ck_assert_msg(!c[i].wrong, "%s", c[i].wrong);
	}
}
END_TEST

static Suite *suite(void)
{
	Suite *s = suite_create("mapping");
	TCase *t = tcase_create("mapping");

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 30);
#define T(name) tcase_add_test(t, name)
	T(whole_file);
	T(found);
	T(forgotten);
	T(empty_file);
	T(missing);
	T(below_a_file);
	T(folder);
	T(fifo);
	T(device);
	T(unreadable);
	T(through_a_link);
	T(descriptor_is_not_consumed);
	T(bad_descriptor);
	T(write_only_descriptor);
	T(close_null);
	T(grown_file_is_fine);
	T(replaced_file_is_fine);
	T(truncated_unread);
	T(truncated_and_read);
	T(truncated_read_and_regrown);
	T(broken_mark_is_not_inherited);
	T(only_the_truncated_one_is_blamed);
	tcase_add_loop_test(t, other_faults_go_to_the_handler_before, 0, 2);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
	tcase_add_loop_test_raise_signal(t, other_faults_kill_as_before, SIGBUS,
					 0, 2);
	tcase_add_test_raise_signal(t, raised_signal_kills, SIGBUS);
#endif
	T(closed_mapping_is_no_longer_ours);
	T(many_threads);
	suite_add_tcase(s, t);
	return s;
}

int main(void)
{
	return genai_check_main(suite());
}
