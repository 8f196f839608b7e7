/* Kernels of the tests. */
typedef unsigned long u64;
typedef unsigned int u32;

#define KERNEL __attribute__((amdgpu_kernel, visibility("protected"))) void

static u32 lane(void) {
    return __builtin_amdgcn_workgroup_id_x() * __builtin_amdgcn_workgroup_size_x() + __builtin_amdgcn_workitem_id_x();
}

__attribute__((visibility("protected"))) u64 variable = 42;

KERNEL multiply(u64 *values, u32 factor, unsigned char term) { values[lane()] = values[lane()] * factor + term; }

/* What a launch tells: sizes of workgroups, of the grid in lanes, and the kernel's own last argument. */
KERNEL sizes(u64 *to, u64 last) {
    if (lane() == 0 && __builtin_amdgcn_workgroup_id_y() == 0 && __builtin_amdgcn_workitem_id_y() == 0) {
        to[0] = __builtin_amdgcn_workgroup_size_x();
        to[1] = __builtin_amdgcn_workgroup_size_y();
        to[2] = __builtin_amdgcn_grid_size_x();
        to[3] = __builtin_amdgcn_grid_size_y();
        to[4] = last;
    }
}

/* Waits for a number of the host's. */
KERNEL wait_for(u64 *flag, u64 *done) {
    while (__atomic_load_n(flag, __ATOMIC_ACQUIRE) == 0) __builtin_amdgcn_s_sleep(1);
    __atomic_store_n(done, 1, __ATOMIC_RELEASE);
}

/* Takes the address of its argument. */
KERNEL by_address(u64 *const *to, const u64 *value) { **to = *value; }

/* Where the second argument lies, by address as well. */
KERNEL place_of(u64 *const *to, const void *value) { **to = (u64)value; }

KERNEL write_to(u64 *to) { *to = 1; }

/* Changes a part of its queue's record: `base_address` and what is behind it, as far as the indices. */
KERNEL spoil_queue(u32 from, u32 to) {
    volatile u64 *record = (u64 *)(unsigned long)__builtin_amdgcn_queue_ptr();
    for (u32 at = from; at < to; at++) record[at] = 0x414141414000;
}

/* Changes what its queue's signal counts. */
KERNEL spoil_signal(u64 value) {
    const u64 *packet = (const u64 *)(unsigned long)__builtin_amdgcn_dispatch_ptr();
    __atomic_store_n((u64 *)packet[7] + 1, value, __ATOMIC_RELAXED);
}

KERNEL trap(void) { __builtin_trap(); }
