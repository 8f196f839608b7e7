// Integer arithmetic of all widths, with branches, loops and divisions.
#include "common.h"

static u64 divide(u64 sum, u64 *state) {
    u64 a = next(state), b = next(state) >> (next(state) & 63);
    if (b == 0)
        b = 3;
    sum = mix(sum, a / b);
    sum = mix(sum, a % b);
    i64 c = (i64) next(state), d = (i64) b | 1;
    if (d != -1) {
        sum = mix(sum, (u64) (c / d));
        sum = mix(sum, (u64) (c % d));
    }
    u32 e = (u32) a, f = (u32) b | 1;
    sum = mix(sum, e / f * 31 + e % f);
    i32 g = (i32) c, h = (i32) d | 1;
    if (h != -1)
        sum = mix(sum, (u64) (i64) (g / h - g % h));
    u16 k = (u16) a, l = (u16) b | 1;
    return mix(sum, (u64) (k / l + k % l));
}

static u64 bits(u64 sum, u64 *state) {
    u64 a = next(state), b = next(state);
    u32 c = (u32) a, d = (u32) b;
    sum = mix(sum, a * b);
    sum = mix(sum, (u64) ((unsigned __int128) a * b >> 64));
    sum = mix(sum, (u64) ((__int128) (i64) a * (i64) b >> 64));
    sum = mix(sum, (u64) __builtin_popcountl(a) + (u64) __builtin_popcount(d));
    sum = mix(sum, (u64) __builtin_clzl(a | 1) + (u64) __builtin_ctzl(b | 1ul << 63));
    sum = mix(sum, (u64) __builtin_clz(c | 1) + (u64) __builtin_ctz(d | 1u << 31));
    sum = mix(sum, __builtin_bitreverse32(c) + __builtin_bitreverse64(b) + __builtin_bswap32(d) + __builtin_bswap64(a));
    sum = mix(sum, __builtin_rotateleft32(c, d & 31) + __builtin_rotateleft64(a, b & 63));
    sum = mix(sum, (u64) ((i64) a >> (b & 63)) + (a >> (c & 63)) + (a << (d & 63)));
    sum = mix(sum, (u64) ((i32) c >> (d & 31)) + (c >> (b & 31)) + (c << (a & 31)));
    sum = mix(sum, (u64) (u16) ((u16) c * (u16) d + (u16) a) + (u64) (i16) ((i16) c - (i16) d));
    sum = mix(sum, (u64) (u8) (c * d) + (u64) (i64) (i8) (c + d));
    sum = mix(sum, c < d ? c - d : d - c);
    sum = mix(sum, (i32) c < (i32) d ? (u64) (i64) ((i32) c >> 3) : a);
    sum = mix(sum, (u64) __builtin_elementwise_add_sat(c, d) + (u64) __builtin_elementwise_sub_sat(c, d));
    sum = mix(sum, (u64) (i64) __builtin_elementwise_add_sat((i32) c, (i32) d));
    sum = mix(sum, (u64) (i64) __builtin_elementwise_sub_sat((i16) c, (i16) d));
    u64 big;
    sum = mix(sum, (u64) __builtin_add_overflow(a, b, &big) + big);
    sum = mix(sum, (u64) __builtin_mul_overflow(c, d, &c) + c);
    return mix(sum, (a & ~b) | (b & 0xff00ff00ff00ff00ul) ^ (a | b));
}

static u64 collatz(u64 sum, u32 n) {
    u32 steps = 0;
    for (u64 x = n + 1; x != 1; steps++)
        x = x & 1 ? 3 * x + 1 : x >> 1;
    return mix(sum, steps);
}

static u64 arrays(u64 sum, u64 *state) {
    u8 bytes[64];
    u16 words[32];
    u32 index[16];
    for (u32 i = 0; i < 64; i++)
        bytes[i] = (u8) next(state);
    for (u32 i = 0; i < 32; i++)
        words[i] = (u16) (bytes[i] * bytes[63 - i]);
    for (u32 i = 0; i < 16; i++)
        index[i] = words[(u32) next(state) & 31] + (u32) (i8) bytes[i];
    for (u32 i = 1; i < 16; i++)
        for (u32 j = i; j > 0 && index[j - 1] > index[j]; j--) {
            u32 swap = index[j];
            index[j] = index[j - 1];
            index[j - 1] = swap;
        }
    for (u32 i = 0; i < 16; i++)
        sum = mix(sum, index[i]);
    return mix(sum, (u64) (i64) (i16) words[sum & 31]);
}

static u64 choose(u64 sum, u64 *state) {
    switch (next(state) % 11) {
    case 0: return mix(sum, 17);
    case 1: return sum + 3;
    case 2: return bits(sum, state);
    case 3: return divide(sum, state);
    case 4: return arrays(sum, state);
    case 7: return ~sum;
    case 9: return collatz(sum, (u32) sum & 63);
    default: return mix(sum, next(state));
    }
}

static u64 program(u32 lane) {
    u64 state = lane * 77ul + 5, sum = lane;
    for (u32 i = 0; i < 12; i++) {
        sum = bits(sum, &state);
        sum = divide(sum, &state);
        sum = arrays(sum, &state);
        sum = choose(sum, &state);
    }
    return collatz(sum, lane);
}
