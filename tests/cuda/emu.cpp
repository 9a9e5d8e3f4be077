// emu.cpp - the fibers behind emu.h, and launching a kernel by name.
#include "tests/cuda/emu.h"
#include <cstdio>
#include <cstdlib>
#include <sys/mman.h>

#define MAX_THREADS 1024
#define STACK_BYTES (64u << 10)
#define SMEM_BYTES (256u << 10)
#define MAX_KERNELS 1024

emu_dim emu_thread, emu_block, emu_block_dim, emu_grid_dim;

enum state { READY, WAIT_BLOCK, WAIT_WARP, WAIT_NEWS, DONE };

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
static struct {
	unsigned int n[DONE + 1];
} counts[MAX_THREADS / 32]; // of a warp's threads, by state
static void *main_sp;
static unsigned int cur, n_threads;
static const char *stacks;
alignas(256) static unsigned char smem[SMEM_BYTES];
alignas(64) static unsigned char slots[MAX_THREADS / 32][2][32 * 64];
static emu_fn run_fn;
static const void *run_params;
static bool run_overlaps;
static unsigned int news, news_told;
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

static void go_on(unsigned int i)
{
	cur = i;
	emu_thread.x = i;
	emu_is_early = fibers[i].early;
}

// Leave the running fiber in a state, for the next one that can run.
static void yield(enum state state)
{
	void **save = &fibers[cur].sp;
	unsigned int i = cur + 1;

	fibers[cur].state = state;
	counts[cur / 32].n[state]++;
	while (i < n_threads && fibers[i].state != READY)
		i++;
	if (i < n_threads) {
		go_on(i);
		emu_switch(save, fibers[i].sp);
	} else {
		emu_switch(save, main_sp);
	}
}

static void fiber_main()
{
	run_fn(run_params);
	yield(DONE);
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
	yield(WAIT_BLOCK);
}

const unsigned char *emu_exchange(const void *mine, unsigned int bytes)
{
	fiber *f = &fibers[cur];
	unsigned char *all = slots[cur / 32][f->round & 1];

	if (bytes)
		memcpy(all + cur % 32 * 64, mine, bytes);
	f->round++;
	yield(WAIT_WARP);
	return all;
}

void emu_news(void)
{
	news++;
}

void emu_others(void)
{
	yield(WAIT_NEWS);
}

unsigned char *emu_smem(void)
{
	return smem;
}

static void release(unsigned int warp, enum state from)
{
	unsigned int end = warp * 32 + 32;

	for (unsigned int i = warp * 32; i < end && i < n_threads; i++)
		if (fibers[i].state == from)
			fibers[i].state = READY;
	counts[warp].n[from] = 0;
}

// Let go what has been waited for; false when nothing is.
static bool release_all()
{
	unsigned int warps = (n_threads + 31) / 32, stopped = 0, block = 0;
	bool any = false, told = news != news_told;

	news_told = news;
	for (unsigned int w = 0; w < warps; w++) {
		unsigned int left = n_threads - w * 32;
		unsigned int *n = counts[w].n, x = n[WAIT_WARP];

		if (told && n[WAIT_NEWS]) {
			release(w, WAIT_NEWS);
			any = true;
		}

		block += n[WAIT_BLOCK];
		stopped += n[WAIT_BLOCK] + n[DONE];
		if (x && x + n[DONE] == (left < 32 ? left : 32)) {
			release(w, WAIT_WARP);
			any = true;
		}
	}
	if (!block || stopped < n_threads)
		return any;
	for (unsigned int w = 0; w < warps; w++)
		release(w, WAIT_BLOCK);
	return true;
}

static void run_block()
{
	unsigned int done = 0, i;

	// unwritten shared memory is not zero on a device either
	memset(smem, 0x7f, 4096);
	memset(counts, 0, sizeof(counts));
	for (i = 0; i < n_threads; i++)
		fiber_start(i);
	do {
		for (i = 0; i < n_threads && fibers[i].state != READY; i++)
			;
		go_on(i);
		emu_switch(&main_sp, fibers[i].sp);
	} while (release_all());
	for (i = 0; i < n_threads; i++)
		done += fibers[i].state == DONE;
	if (done < n_threads) {
		fprintf(stderr, "emu: threads wait for each other\n");
		abort();
	}
}

extern "C" void emu_register(const char *name, emu_fn fn, unsigned int bytes)
{
	if (n_kernels == MAX_KERNELS) {
		fprintf(stderr, "no room for kernel %s\n", name);
		abort();
	}
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
