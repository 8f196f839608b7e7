// Lanes together: divergence, local memory, barriers, atomics, lane patterns. The host computes the same sums plainly.
#include "common.h"

#define LANES 256

#if DEVICE
#define LOCAL __attribute__((address_space(3)))
#define UNSET __attribute__((loader_uninitialized))
static UNSET LOCAL u32 shared[LANES];
static UNSET LOCAL u64 wide[LANES];
static UNSET LOCAL u8 narrow[LANES * 4];

static void barrier(void) {
    __builtin_amdgcn_fence(__ATOMIC_RELEASE, "workgroup");
    __builtin_amdgcn_s_barrier();
    __builtin_amdgcn_fence(__ATOMIC_ACQUIRE, "workgroup");
}
#endif

// The value that a lane contributes.
static u32 value_of(u32 lane) {
    u64 state = lane * 31ul + 7;
    return (u32) next(&state);
}

// A loop whose length differs from lane to lane, with a way out in the middle.
static u64 wander(u32 lane) {
    u64 sum = 0;
    for (u32 i = 0; i < (lane & 31) + 3; i++) {
        u32 value = value_of(lane * 64 + i);
        if (value % 13 == 0)
            break;
        if (value & 1) {
            sum += value >> 3;
            for (u32 j = value & 7; j; j--)
                sum ^= sum << 1 ^ j;
        } else if (value & 2) {
            continue;
        } else {
            sum = mix(sum, value);
        }
    }
    return sum;
}

// What the workgroup's lane gets from the others.
static u64 together(u32 lane) {
    u32 base = lane & ~(LANES - 1), own = lane & (LANES - 1);
#if DEVICE
    shared[own] = value_of(lane);
    wide[own] = (u64) value_of(lane) << 17 ^ own;
    for (u32 i = 0; i < 4; i++)
        narrow[own * 4 + i] = (u8) (value_of(lane) >> (7 * i));
    barrier();
    u64 sum = 0;
    for (u32 i = 1; i <= 8; i++) {
        u32 other = (own * 5 + i * 37) & (LANES - 1);
        sum = mix(sum, shared[other] + wide[other] + narrow[other * 4 + (i & 3)]);
    }
    sum = mix(sum, *(LOCAL u32 *) &narrow[(own & 252) * 4]);
    barrier();
    if (own < 8)
        shared[own] = 0, wide[own] = 1000;
    barrier();
    __scoped_atomic_fetch_add(&shared[own & 7], value_of(lane) & 0xffff, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    __scoped_atomic_fetch_max(&wide[own & 7], value_of(lane) >> 4, __ATOMIC_RELAXED, __MEMORY_SCOPE_WRKGRP);
    barrier();
    sum = mix(sum, shared[own & 7] + wide[own & 7]);
    barrier();
#else
    u64 sum = 0;
    for (u32 i = 1; i <= 8; i++) {
        u32 other = (own * 5 + i * 37) & (LANES - 1), value = value_of(base + other);
        sum = mix(sum, value + ((u64) value << 17 ^ other) + (u8) (value >> (7 * (i & 3))));
    }
    u32 word = 0, first = value_of(base + (own & 252));
    for (u32 i = 0; i < 4; i++)
        word |= (u32) (u8) (first >> (7 * i)) << (8 * i);
    sum = mix(sum, word);
    u32 total = 0;
    u64 most = 1000;
    for (u32 i = own & 7; i < LANES; i += 8) {
        u32 value = value_of(base + i);
        total += value & 0xffff;
        most = value >> 4 > most ? value >> 4 : most;
    }
    sum = mix(sum, total + most);
#endif
    return sum;
}

// What the wave's lane gets from the others without memory.
static u64 patterns(u32 lane) {
    u32 base = lane & ~63u, own = lane & 63;
    u64 sum = 0;
#if DEVICE
    u32 value = value_of(lane);
    sum = mix(sum, __builtin_amdgcn_ballot_w64(value & 1));
    sum = mix(sum, (u32) __builtin_amdgcn_ds_bpermute((int) ((own * 7 + 3) & 63) * 4, (int) value));
    sum = mix(sum, (u32) __builtin_amdgcn_readfirstlane((int) value) + (u32) __builtin_amdgcn_readlane((int) value, 17));
    sum = mix(sum, (u32) __builtin_amdgcn_update_dpp(5, (int) value, 0x111, 15, 15, 0)); // row_shr:1
    sum = mix(sum, (u32) __builtin_amdgcn_mov_dpp((int) value, 0x1b, 15, 15, 1)); // quad_perm:[3,2,1,0]
    sum = mix(sum, (u32) __builtin_amdgcn_mov_dpp((int) value, 0x140, 15, 15, 1)); // row_mirror
    sum = mix(sum, (u32) __builtin_amdgcn_ds_swizzle((int) value, 0x041f)); // xor 1
    sum = mix(sum, (u32) __builtin_amdgcn_update_dpp(9, (int) value, 0x142, 0xa, 15, 0)); // row_bcast:15
    sum = mix(sum, __builtin_amdgcn_mbcnt_hi(~0u, __builtin_amdgcn_mbcnt_lo(~0u, 0)));
#else
    u64 ballot = 0;
    for (u32 i = 0; i < 64; i++)
        ballot |= (u64) (value_of(base + i) & 1) << i;
    sum = mix(sum, ballot);
    sum = mix(sum, value_of(base + ((own * 7 + 3) & 63)));
    sum = mix(sum, value_of(base) + value_of(base + 17));
    sum = mix(sum, own & 15 ? value_of(lane - 1) : 5);
    sum = mix(sum, value_of(lane ^ 3));
    sum = mix(sum, value_of(lane ^ 15));
    sum = mix(sum, value_of(lane ^ 1));
    sum = mix(sum, own >> 4 & 1 ? value_of((lane & ~15u) - 1) : 9);
    sum = mix(sum, own);
#endif
    return sum;
}

static u64 program(u32 lane) {
    u64 sum = mix(wander(lane), together(lane));
    sum = mix(sum, patterns(lane));
    if (lane % 3 == 1)
        sum = mix(sum, wander(lane + 1));
    return sum;
}
