// What the client launches: three kernels as LLVM's loader calls them, and some that fail.
typedef unsigned int u32;
typedef unsigned long u64;
#define GLOBAL __attribute__((address_space(1)))
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected")))
#define VISIBLE __attribute__((visibility("protected")))

// A mailbox that the host serves while the kernel runs.
typedef struct {
    u64 request, answer;
    u32 rung, served;
} Mailbox;

VISIBLE Mailbox *mailbox;
VISIBLE u64 __llvm_libc_clock_freq;
static u64 initialized;

static u64 call(u64 request) {
    __scoped_atomic_store_n(&mailbox->request, request, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
    u32 number = __scoped_atomic_load_n(&mailbox->rung, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM) + 1;
    __scoped_atomic_store_n(&mailbox->rung, number, __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
    while (__scoped_atomic_load_n(&mailbox->served, __ATOMIC_ACQUIRE, __MEMORY_SCOPE_SYSTEM) != number)
        __builtin_amdgcn_s_sleep(2);
    return __scoped_atomic_load_n(&mailbox->answer, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

KERNEL void _begin(int argc, void *argv, void *envp) { initialized = 41; }

KERNEL void _start(int argc, char **argv, char **envp, int *result) {
    u64 sum = ++initialized;
    for (int i = 0; i < argc; i++)
        for (char *c = argv[i]; *c; c++)
            sum = call(sum * 31 + (u64) *c);
    for (char **variable = envp; *variable; variable++)
        sum += (*variable)[0];
    if (__llvm_libc_clock_freq != 100000000)
        sum = 0;
    *result = (int) (sum & 0xffff);
}

KERNEL void _end(int result) { initialized = (u64) result; }

KERNEL void count(u32 *counter) {
    __scoped_atomic_fetch_add(counter, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}

KERNEL void touch(u64 *address) { *address = 1; }

KERNEL void trap(void) { __builtin_trap(); }
