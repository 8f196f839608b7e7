// What the hostile client launches.
typedef unsigned int u32;
typedef unsigned long u64;
#define KERNEL __attribute__((amdgpu_kernel, visibility("protected")))
#define LOCAL __attribute__((address_space(3), loader_uninitialized))
#define LOAD(place) __scoped_atomic_load_n(place, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)
#define ADD(place, value) __scoped_atomic_fetch_add(place, value, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM)

// Beats until `end` is 1.
KERNEL void beat(u32 *heart, u32 *end) {
    while (LOAD(end) != 1)
        ADD(heart, 1);
}

KERNEL void count(u32 *counter, u32 times) {
    for (u32 i = 0; i < times; i++)
        ADD(counter, 1);
}

// The first wave ends, the others meet at barriers.
KERNEL void meet(u32 *counter) {
    static LOCAL u32 sum;
    u32 lane = __builtin_amdgcn_workitem_id_x();
    if (lane < 64)
        return;
    if (lane == 64)
        sum = 0;
    __builtin_amdgcn_s_barrier();
    __scoped_atomic_fetch_add(&sum, lane, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    __builtin_amdgcn_s_barrier();
    if (lane == 64)
        ADD(counter, sum);
}

KERNEL void trap(void) { __builtin_trap(); }

KERNEL void read(u64 *from, u64 *to) { *to = *from; }

// Stores one after the other.
KERNEL void store(u64 *place, u64 first, u64 second) {
    __scoped_atomic_store_n(place, first, __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
    __scoped_atomic_store_n(place, second, __ATOMIC_RELEASE, __MEMORY_SCOPE_SYSTEM);
}
