// What generated programs of lanes are made of. The device runs all lanes of a workgroup at once, with a barrier after
// each phase; the host runs a phase for one lane after the other. Both give the same sums, because in a phase a lane
//  - writes only its own slots of the arrays of the phase's parity, and reads any slot of the other parity;
//  - changes shared cells of the phase's parity with operations whose order does not matter, one for each row of cells,
//    and reads those of the other parity;
//  - takes results of atomic operations only of cells that are its own.
#ifndef LANES_H
#define LANES_H

typedef unsigned char u8;
typedef unsigned short u16;
typedef unsigned int u32;
typedef unsigned long u64;
typedef short i16;
typedef int i32;
typedef long i64;
typedef _Float16 half;

enum { GROUP = 256, LANES = 512, CELLS = 16, ROWS = 7 };

typedef struct {
    u32 r[4];
    u64 q[3];
    float f[4];
    double d[3];
    half h[3];
} lane_t;

#ifdef __AMDGCN__
#define LOCAL __attribute__((address_space(3)))
#define GLOBAL __attribute__((address_space(1)))
#define UNSET __attribute__((loader_uninitialized))
#else
#define LOCAL
#define GLOBAL
#define UNSET
#endif

// Slots of lanes, by parity, and cells that all lanes of a workgroup change, by operation and parity.
static UNSET LOCAL u32 slots32[2][GROUP];
static UNSET LOCAL u64 slots64[2][GROUP];
static UNSET LOCAL u16 slots16[2][GROUP];
static UNSET LOCAL u8 slots8[2][GROUP];
static UNSET LOCAL u32 cells32[ROWS][2][CELLS];
static UNSET LOCAL u64 cells64[ROWS][2][CELLS];
static UNSET LOCAL u32 own32[GROUP];
static UNSET LOCAL u64 own64[GROUP];
static GLOBAL u32 global_slots[2][LANES];
static GLOBAL u64 global_cells[ROWS][2][LANES / GROUP][CELLS];
static GLOBAL u32 global_own32[LANES];
static GLOBAL u64 global_own64[LANES];

#define RELAXED __ATOMIC_RELAXED
#define SCOPE __MEMORY_SCOPE_WRKGRP
#define ATOMIC(operation, place, value) __scoped_atomic_##operation(place, value, RELAXED, SCOPE)

static inline u64 mix(u64 sum, u64 value) {
    sum ^= value + 0x9e3779b97f4a7c15ul + (sum << 6) + (sum >> 2);
    return sum * 0xff51afd7ed558ccdul;
}

// Hides a number's range from the compiler. LLVM 22 takes an unsigned dividend with nine equal leading bits for one of
// 24 bits at -O0, even if they are ones, and divides it wrongly.
static inline u32 opaque(u32 value) {
#ifdef __AMDGCN__
    __asm__("" : "+v"(value));
#else
    __asm__("" : "+r"(value));
#endif
    return value;
}

static inline float opaque_float(float value) { return __builtin_bit_cast(float, opaque(__builtin_bit_cast(u32, value))); }

static inline u32 swap_if(LOCAL u32 *place, u32 expected, u32 value) {
    __scoped_atomic_compare_exchange_n(place, &expected, value, 0, RELAXED, RELAXED, SCOPE);
    return expected;
}

static inline u64 swap_if_global(GLOBAL u64 *place, u64 expected, u64 value) {
    __scoped_atomic_compare_exchange_n(place, &expected, value, 0, RELAXED, RELAXED, __MEMORY_SCOPE_SYSTEM);
    return expected;
}

// A NaN counts as one number: the processors differ in which one they make.
static inline u32 float_bits(float value) { return value != value ? 0x7fc00000 : __builtin_bit_cast(u32, value); }
static inline u64 double_bits(double value) { return value != value ? 0x7ff8ul << 48 : __builtin_bit_cast(u64, value); }
static inline u32 half_bits(half value) { return value != value ? 0x7e00 : __builtin_bit_cast(u16, value); }
static inline float of_bits(u32 bits) { return __builtin_bit_cast(float, bits); }
static inline double of_bits64(u64 bits) { return __builtin_bit_cast(double, bits); }
static inline half of_bits16(u16 bits) { return __builtin_bit_cast(half, bits); }

// Conversions that C defines only inside of the result's range.
static inline u32 to_i32(double value) { return value > -2147483648.0 && value < 2147483648.0 ? (u32) (i32) value : 7; }
static inline u32 to_u32(float value) { return value > -1.0f && value < 4294967296.0f ? (u32) value : 9; }
static inline u64 to_i64(double value) { return value > -9e18 && value < 9e18 ? (u64) (i64) value : 11; }
static inline u64 to_u64(float value) { return value > -1.0f && value < 1.8e19f ? (u64) value : 13; }

static void start(lane_t *s, u32 lane) {
    u32 own = lane % GROUP, group = lane / GROUP;
    u64 seed = lane * 0x9e3779b97f4a7c15ul + SEED;
    for (u32 i = 0; i < 4; i++)
        s->r[i] = (u32) (seed = mix(seed, i)), s->f[i] = of_bits((u32) mix(seed, 3) & 0xbfffffff);
    for (u32 i = 0; i < 3; i++) {
        s->q[i] = seed = mix(seed, i + 9);
        s->d[i] = (double) (i64) mix(seed, 5) / 1048576.0;
        s->h[i] = of_bits16((u16) mix(seed, 7) & 0xbbff);
    }
    for (u32 p = 0; p < 2; p++) {
        slots32[p][own] = lane, slots64[p][own] = seed, slots16[p][own] = (u16) seed, slots8[p][own] = (u8) lane;
        global_slots[p][lane] = lane * 3;
        for (u32 row = 0; row < ROWS && own < CELLS; row++)
            cells32[row][p][own] = row * 77, cells64[row][p][own] = seed, global_cells[row][p][group][own] = row * 99;
    }
    own32[own] = own, own64[own] = lane, global_own32[lane] = 5, global_own64[lane] = lane;
}

static u64 end(const lane_t *s, u32 lane) {
    u64 sum = lane;
    for (u32 i = 0; i < 4; i++)
        sum = mix(mix(sum, s->r[i]), float_bits(s->f[i]));
    for (u32 i = 0; i < 3; i++)
        sum = mix(mix(mix(sum, s->q[i]), double_bits(s->d[i])), half_bits(s->h[i]));
    return mix(mix(sum, own32[lane % GROUP] + own64[lane % GROUP]), global_own32[lane] + global_own64[lane]);
}
#endif
