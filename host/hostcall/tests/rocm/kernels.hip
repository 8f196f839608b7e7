/* Kernels that call the host as ROCm's device libraries do. */
#include "device.h"
#include "prints.h"

#define KERNEL extern "C" __global__ void

/* What the host reads. */
extern "C" __device__ unsigned answer = 42;

/* Prints with every kind of argument. */
KERNEL prints(u64 lane, const char *text) { PRINTS(lane, text); }

/* Some lanes of each wave print a line, and say how long it was. */
KERNEL lines(int *lengths, u64 lanes) {
    u64 i = __ockl_get_global_id(0);
    if (i < lanes && i % 3 != 1) lengths[i] = printf("lane %lu of %lu\n", i, lanes);
}

/* Lines to the standard error. */
KERNEL errors(u64 number) {
    u64 line = __ockl_fprintf_stderr_begin();
    line = __ockl_fprintf_append_string_n(line, "number %d\n", sizeof "number %d\n", 0);
    __ockl_fprintf_append_args(line, 1, number, 0, 0, 0, 0, 0, 0, 1);
}

/* Some lanes call a function of the host, several times. */
KERNEL calls(u64 *out, u64 lanes, u64 function, u64 times) {
    u64 i = __ockl_get_global_id(0);
    if (i >= lanes || i % 7 == 3) return;
    u64 sum = 0;
    for (u64 time = 0; time < times; time++) {
        u64x2 answer = __ockl_call_host_function(function, i, time, 3, 4, 5, 6, 7);
        sum += answer.x;
        if (answer.y != i + time) sum = ~0ul;
    }
    out[i] = sum;
}

/* Calls a service by its number. */
KERNEL service(u64 *out, unsigned number) {
    u64x2 answer = __ockl_hostcall_preview(number, 1, 2, 3, 4, 5, 6, 7, 8);
    out[0] = answer.x;
    out[1] = answer.y;
}

/* Each lane allocates memory of several sizes, and finds there what it wrote. Counts what went wrong. */
KERNEL allocates(unsigned *faults, unsigned *blocks, u64 lanes, u64 large) {
    u64 i = __ockl_get_global_id(0);
    if (i >= lanes) return;
    u64 sizes[4] = {16 + i % 64 * 8, 3072 - i % 128 * 8, 100, i % 16 == 0 ? large : 24};
    u64 *memory[4];
    for (int at = 0; at < 4; at++) {
        memory[at] = (u64 *)__ockl_dm_alloc(sizes[at]);
        if (!memory[at] || (u64)memory[at] % 8) __atomic_fetch_add(faults, 1, __ATOMIC_RELAXED);
    }
    for (int at = 0; at < 4; at++)
        for (u64 word = 0; memory[at] && word < sizes[at] / 8; word++) memory[at][word] = i << 32 | at << 24 | word;
    for (int at = 0; at < 4; at++)
        for (u64 word = 0; memory[at] && word < sizes[at] / 8; word++)
            if (memory[at][word] != (i << 32 | at << 24 | word)) __atomic_fetch_add(faults, 1, __ATOMIC_RELAXED);
    for (int at = 0; at < 4; at++) {
        if (memory[at]) __atomic_fetch_add(blocks, 1, __ATOMIC_RELAXED);
        __ockl_dm_dealloc((u64)memory[at]);
    }
}

/* Allocates more than there is. */
KERNEL exhausts(u64 *out) { out[0] = (u64)__ockl_dm_alloc(1ul << 60); }

/* What the address sanitizer's code calls. */
KERNEL reports(u64 address) { __ockl_sanitizer_report(address, 16, 1, 2, 3, 4, 1, 8); }

/* Declares a buffer, since it may call, and does not. */
KERNEL may_call(int *out, int never) {
    if (never) printf("never\n");
    out[__ockl_get_global_id(0)] = 7;
}

/* Writes anything to words of the buffer. */
KERNEL corrupts(u64 first, u64 words, u64 random) {
    u64 *buffer = ((u64 *__attribute__((address_space(4))) *)__builtin_amdgcn_implicitarg_ptr())[10];
    for (u64 word = 0; word < words; word++) {
        random ^= random << 13, random ^= random >> 7, random ^= random << 17;
        /* Small numbers are indices, services and masks that may be good. */
        __scoped_atomic_store_n(&buffer[first + word], random % 4 ? random : random >> 52, __ATOMIC_RELAXED,
                                __MEMORY_SCOPE_SYSTEM);
    }
}

/* Nothing of the host's is in it. */
KERNEL plain(float *out, float factor, char term, int lanes) {
    int i = __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
    if (i < lanes) out[i] = out[i] * factor + term;
}
