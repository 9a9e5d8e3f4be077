/* alloc_fail.h - make the n-th allocation of the tested code fail.
 * The test is linked with -Wl,--wrap=malloc,--wrap=calloc,--wrap=realloc, which
 * catches the calls of the code under test but not those of shared
 * libraries. */
#ifndef GENAI_TESTS_ALLOC_FAIL_H
#define GENAI_TESTS_ALLOC_FAIL_H

#include <stddef.h>

static long alloc_left = -1; /* allocations until one fails; -1: never */
static int alloc_failed;

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);

static int alloc_fails(void)
{
	if (alloc_left < 0 || alloc_left--)
		return 0;
	alloc_failed = 1;
	return 1;
}

void *__wrap_malloc(size_t n)
{
	return alloc_fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
	return alloc_fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
	return alloc_fails() ? NULL : __real_realloc(p, n);
}

#endif
