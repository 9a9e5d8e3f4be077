// emu.cpp - the fibers behind emu.h, and launching a kernel by name.
#include "tests/cuda/emu.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#define MAX_THREADS 1024
#define STACK_BYTES (64u << 10)
#define SMEM_BYTES (256u << 10)
#define MAX_KERNELS 256

emu_dim emu_thread, emu_block, emu_block_dim, emu_grid_dim;

enum state { READY, WAIT_BLOCK, WAIT_WARP, DONE };

struct fiber {
	void *sp;
	enum state state;
	unsigned int round; // warp exchanges so far
	bool early;	    // before it waited for the kernel in front
};

// fake_queue.c reads the name through the kernel's handle: it comes first.
static struct {
	const char *name;
	emu_fn fn;
	unsigned int bytes; // of the parameters
} kernels[MAX_KERNELS];
static unsigned int n_kernels;

static fiber fibers[MAX_THREADS];
static void *main_sp;
static unsigned int cur, n_threads;
static const char *stacks;
alignas(256) static unsigned char smem[SMEM_BYTES];
alignas(64) static unsigned char slots[MAX_THREADS / 32][2][32 * 64];
static emu_fn run_fn;
static const void *run_params;
static bool run_overlaps;
extern "C" bool emu_is_early; // of the running fiber
bool emu_is_early;

extern "C" void emu_switch(void **save, void *load);
#if defined(__x86_64__)
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\nemu_switch:\n"
	"push %rbp\npush %rbx\npush %r12\npush %r13\npush %r14\npush %r15\n"
	"mov %rsp,(%rdi)\nmov %rsi,%rsp\n"
	"pop %r15\npop %r14\npop %r13\npop %r12\npop %rbx\npop %rbp\nret\n");
#elif defined(__aarch64__)
__asm__(".text\n.globl emu_switch\n.hidden emu_switch\nemu_switch:\n"
	"sub sp,sp,#160\nstp x19,x20,[sp]\nstp x21,x22,[sp,#16]\n"
	"stp x23,x24,[sp,#32]\nstp x25,x26,[sp,#48]\nstp x27,x28,[sp,#64]\n"
	"stp x29,x30,[sp,#80]\nstp d8,d9,[sp,#96]\nstp d10,d11,[sp,#112]\n"
	"stp d12,d13,[sp,#128]\nstp d14,d15,[sp,#144]\n"
	"mov x9,sp\nstr x9,[x0]\nmov sp,x1\n"
	"ldp x19,x20,[sp]\nldp x21,x22,[sp,#16]\nldp x23,x24,[sp,#32]\n"
	"ldp x25,x26,[sp,#48]\nldp x27,x28,[sp,#64]\nldp x29,x30,[sp,#80]\n"
	"ldp d8,d9,[sp,#96]\nldp d10,d11,[sp,#112]\nldp d12,d13,[sp,#128]\n"
	"ldp d14,d15,[sp,#144]\nadd sp,sp,#160\nret\n");
#else
#error "no context switch for this processor"
#endif

static void yield()
{
	emu_switch(&fibers[cur].sp, main_sp);
}

static void fiber_main()
{
	run_fn(run_params);
	fibers[cur].state = DONE;
	yield();
	abort();
}

static void fiber_start(unsigned int i)
{
	const char *top = stacks + (size_t)(i + 1) * STACK_BYTES;
	void **sp = (void **)((uintptr_t)top & ~(uintptr_t)15);

#if defined(__x86_64__)
	*--sp = nullptr; // alignment as after a call
	*--sp = (void *)fiber_main;
	sp -= 6;
	memset(sp, 0, 6 * sizeof(*sp));
#else
	sp -= 20;
	memset(sp, 0, 20 * sizeof(*sp));
	sp[11] = (void *)fiber_main;
#endif
	fibers[i].sp = sp;
	fibers[i].state = READY;
	fibers[i].round = 0;
	fibers[i].early = run_overlaps;
}

void emu_grid_wait(void)
{
	fibers[cur].early = emu_is_early = false;
}

void emu_sync_block(void)
{
	fibers[cur].state = WAIT_BLOCK;
	yield();
}

const unsigned char *emu_exchange(const void *mine, unsigned int bytes)
{
	fiber *f = &fibers[cur];
	unsigned char *all = slots[cur / 32][f->round & 1];

	if (bytes)
		memcpy(all + cur % 32 * 64, mine, bytes);
	f->round++;
	f->state = WAIT_WARP;
	yield();
	return all;
}

unsigned char *emu_smem(void)
{
	return smem;
}

// Let go what has been waited for; false when all are done.
static bool release()
{
	unsigned int done = 0, block = 0;

	for (unsigned int w = 0; w < n_threads; w += 32) {
		unsigned int end = w + 32 < n_threads ? w + 32 : n_threads;
		unsigned int d = 0, b = 0, x = 0;

		for (unsigned int i = w; i < end; i++) {
			d += fibers[i].state == DONE;
			b += fibers[i].state == WAIT_BLOCK;
			x += fibers[i].state == WAIT_WARP;
		}
		if (x && d + x == end - w)
			for (unsigned int i = w; i < end; i++)
				if (fibers[i].state == WAIT_WARP)
					fibers[i].state = READY;
		done += d;
		block += b;
	}
	if (done == n_threads)
		return false;
	if (done + block == n_threads)
		for (unsigned int i = 0; i < n_threads; i++)
			if (fibers[i].state == WAIT_BLOCK)
				fibers[i].state = READY;
	return true;
}

static void run_block()
{
	unsigned int stuck = 0;

	// unwritten shared memory is not zero on a device either
	memset(smem, 0x7f, 4096);
	for (unsigned int i = 0; i < n_threads; i++)
		fiber_start(i);
	while (release()) {
		bool any = false;

		for (cur = 0; cur < n_threads; cur++) {
			if (fibers[cur].state != READY)
				continue;
			any = true;
			emu_thread.x = cur;
			emu_is_early = fibers[cur].early;
			emu_switch(&main_sp, fibers[cur].sp);
		}
		stuck = any ? 0 : stuck + 1;
		if (stuck > 2) {
			fprintf(stderr, "emu: threads wait for each other\n");
			abort();
		}
	}
}

extern "C" void emu_register(const char *name, emu_fn fn, unsigned int bytes)
{
	kernels[n_kernels].name = name;
	kernels[n_kernels].bytes = bytes;
	kernels[n_kernels++].fn = fn;
}

extern "C" const void *emu_find(const char *name)
{
	for (unsigned int i = 0; i < n_kernels; i++)
		if (!strcmp(kernels[i].name, name))
			return &kernels[i];
	return nullptr;
}

extern "C" unsigned int emu_bytes(const void *kernel)
{
	return ((decltype(&kernels[0]))kernel)->bytes;
}

// The stacks of the threads, all of them.
extern "C" const char *emu_begin(void)
{
	void *p;

	if (stacks)
		return stacks;
	p = mmap(nullptr, (size_t)MAX_THREADS * STACK_BYTES,
		 PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
	if (p == MAP_FAILED)
		abort();
	return stacks = (const char *)p;
}

// Run all blocks of a launch, one after another.
extern "C" void emu_launch(const void *kernel, const void *params,
			   const unsigned int grid[3], unsigned int threads,
			   bool overlaps)
{
	emu_begin();
	run_fn = ((decltype(&kernels[0]))kernel)->fn;
	run_params = params;
	run_overlaps = overlaps;
	n_threads = threads;
	emu_block_dim = {threads, 1, 1};
	emu_grid_dim = {grid[0], grid[1], grid[2]};
	emu_thread = {0, 0, 0};
	for (emu_block.z = 0; emu_block.z < grid[2]; emu_block.z++)
		for (emu_block.y = 0; emu_block.y < grid[1]; emu_block.y++)
			for (emu_block.x = 0; emu_block.x < grid[0];
			     emu_block.x++)
				run_block();
}
