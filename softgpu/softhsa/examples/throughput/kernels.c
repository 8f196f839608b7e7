// Kernels whose time the example measures. Each gets a buffer: results in its first words, text behind them.
typedef unsigned char u8;
typedef unsigned int u32;
typedef unsigned long u64;
#define GLOBAL __attribute__((address_space(1)))
#define LOCAL __attribute__((address_space(3)))
#define KERNEL __attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 256)))

static u32 lane_id(void) { return __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x(); }

KERNEL void integers(GLOBAL u32 *out, u32 turns) {
    u32 a = lane_id(), b = a * 77 + 1;
    for (u32 i = 0; i < turns; i++) {
        a = a * 1664525 + b;
        b ^= a >> 7 | a << 25;
        if ((a ^ i) > 0x40000000)
            b += i & a;
    }
    out[lane_id()] = a + b;
}

KERNEL void floats(GLOBAL u32 *out, u32 turns) {
    float a = (float) lane_id(), b = a * 0.5f + 1.0f;
    for (u32 i = 0; i < turns; i++) {
        a = __builtin_fmaf(a, 0.999f, b);
        b = b * 0.5f + a * 0.25f;
        a = a > 100.0f ? a - 99.0f : a;
    }
    out[lane_id()] = (u32) (a + b);
}

// Counts lines and words in a part of 1 MiB of text for each lane.
KERNEL void words(GLOBAL u32 *out, u32 bytes) {
    GLOBAL const u8 *text = (GLOBAL const u8 *) (out + 65536) + lane_id() * bytes;
    u32 lines = 0, words = 0, in_word = 0;
    for (u32 i = 0; i < bytes; i++) {
        u8 byte = text[i];
        lines += byte == '\n';
        u32 space = byte == ' ' || (byte >= 9 && byte <= 13);
        words += !space & !in_word;
        in_word = !space;
    }
    out[lane_id()] = lines * 65536 + words;
}

KERNEL void local(GLOBAL u32 *out, u32 turns) {
    static __attribute__((loader_uninitialized)) LOCAL u32 shared[256];
    u32 own = lane_id() & 255, sum = 0;
    shared[own] = own;
    for (u32 i = 0; i < turns; i++) {
        __builtin_amdgcn_s_barrier();
        sum += shared[(own + i * 3) & 255];
        __builtin_amdgcn_s_barrier();
        shared[own] = sum;
    }
    out[lane_id()] = sum;
}

// Waits until every lane of the grid has come.
KERNEL void gather(GLOBAL u32 *out, u32 lanes) {
    __scoped_atomic_fetch_add(out, 1, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
    while (__scoped_atomic_load_n(out, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM) < lanes)
        __builtin_amdgcn_s_sleep(1);
}
