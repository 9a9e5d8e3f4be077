/* fake_impl.h - what the two files of the fake driver share. */
#ifndef CEP_TESTS_FAKE_IMPL_H
#define CEP_TESTS_FAKE_IMPL_H

#include <cuda.h>
#include <stdint.h>

extern uint64_t fake_alive_count, fake_total, fake_used;

/* Every entry: take the lock, count, fail if it is this call's turn. */
CUresult fake_enter(const char *name);
CUresult fake_leave(CUresult r);
/* Calls that may not happen while a capture is open spoil it. */
CUresult fake_not_capturing(void);

#define ENTER()                                                                \
	CUresult r = fake_enter(__func__);                                     \
	if (r)                                                                 \
	return fake_leave(r)

#endif
