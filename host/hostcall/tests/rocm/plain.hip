/* Kernels that call nobody. */
#include "device.h"

extern "C" {
/* Adds 1 to the word of each lane's place in x. */
__global__ void places(u64 *out) {
    unsigned x = __builtin_amdgcn_workitem_id_x();
    out[x] = x + 1;
}

__global__ __attribute__((amdgpu_flat_work_group_size(1, 64))) void bounded(u64 *out) { out[0] = 1; }

/* Sixteen words of stack at least, at each of so many depths. */
__device__ __attribute__((noinline)) u64 down(u64 depth, volatile u64 *above) {
    volatile u64 here[16];
    for (int i = 0; i < 16; i++)
        here[i] = depth + above[i];
    return depth ? down(depth - 1, here) + here[3] : here[0];
}

__global__ void deep(u64 *out, u64 depth) {
    volatile u64 none[16];
    for (int i = 0; i < 16; i++)
        none[i] = 0;
    out[0] = down(depth, none);
}

/* Its workgroups wait until so many have come, or the host has them go. */
__global__ void meet(u64 *come, u64 *go, u64 count) {
    if (__builtin_amdgcn_workitem_id_x() == 0) {
        __hip_atomic_fetch_add(come, 1, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT);
        while (__hip_atomic_load(come, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_AGENT) < count &&
               __hip_atomic_load(go, __ATOMIC_RELAXED, __HIP_MEMORY_SCOPE_SYSTEM) == 0)
            __builtin_amdgcn_s_sleep(10);
    }
}
}
