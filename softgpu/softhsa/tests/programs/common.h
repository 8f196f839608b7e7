// A program computes a checksum in `program`. It is compiled twice, for the host and for gfx942, and both must agree.
#ifndef COMMON_H
#define COMMON_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef signed char i8;
typedef short i16;
typedef int i32;
typedef long i64;

static u64 program(u32 lane);

// Mixes a value into a checksum.
static inline u64 mix(u64 sum, u64 value) {
    sum ^= value + 0x9e3779b97f4a7c15ul + (sum << 6) + (sum >> 2);
    return sum * 0xff51afd7ed558ccdul;
}

// A generator of numbers, the same on both machines.
static inline u64 next(u64 *state) {
    *state = *state * 6364136223846793005ul + 1442695040888963407ul;
    u64 x = *state;
    x ^= x >> 33;
    x *= 0xc4ceb9fe1a85ec53ul;
    return x ^ x >> 29;
}

// A NaN counts as one number: the processors differ in which one they make.
static inline u64 float_bits(float value) { return value != value ? 0x7fc00000 : (u64) __builtin_bit_cast(u32, value); }
static inline u64 double_bits(double value) { return value != value ? 0x7ff8ul << 48 : __builtin_bit_cast(u64, value); }

#ifdef __AMDGCN__
#define DEVICE 1
__attribute__((amdgpu_kernel, amdgpu_flat_work_group_size(1, 256)))
void run(__attribute__((address_space(1))) u64 *out) {
    u32 id = __builtin_amdgcn_workgroup_id_x() * 256 + __builtin_amdgcn_workitem_id_x();
    u64 sum = program(id);
    __scoped_atomic_fetch_add(out, sum, __ATOMIC_RELAXED, __MEMORY_SCOPE_SYSTEM);
}
#else
#define DEVICE 0
int printf(const char *, ...);
int atoi(const char *);
int main(int count, char **arguments) {
    u32 lanes = count > 1 ? (u32) atoi(arguments[1]) : 1;
    u64 sum = 0;
    for (u32 lane = 0; lane < lanes; lane++)
        sum += program(lane);
    printf("%016lx\n", sum);
    return 0;
}
#endif
#endif
