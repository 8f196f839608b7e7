// Numbers of 8 bits and dot products of packed integers, which C has no operators for: builtins on
// the device, plain C on the host. Bytes have no infinities and no -0, whose code is the only NaN.
#pragma STDC FP_CONTRACT OFF
#include "common.h"

#if DEVICE
#define of_fp8 __builtin_amdgcn_cvt_f32_fp8
#define of_bf8 __builtin_amdgcn_cvt_f32_bf8
static float of_pair(u32 x, u32 half, u32 high, u32 exponent_bits) {
    typedef float pair __attribute__((ext_vector_type(2)));
    pair low8 = __builtin_amdgcn_cvt_pk_f32_fp8(x, 0), high8 = __builtin_amdgcn_cvt_pk_f32_fp8(x, 1);
    pair low5 = __builtin_amdgcn_cvt_pk_f32_bf8(x, 0), high5 = __builtin_amdgcn_cvt_pk_f32_bf8(x, 1);
    pair chosen = exponent_bits == 4 ? half ? high8 : low8 : half ? high5 : low5;
    return high ? chosen.y : chosen.x;
}
#define pack_fp8(a, b, old, high) ((u32) __builtin_amdgcn_cvt_pk_fp8_f32(a, b, old, high))
#define pack_bf8(a, b, old, high) ((u32) __builtin_amdgcn_cvt_pk_bf8_f32(a, b, old, high))
#define random_fp8(a, random, old, byte) ((u32) __builtin_amdgcn_cvt_sr_fp8_f32(a, random, old, byte))
#define random_bf8(a, random, old, byte) ((u32) __builtin_amdgcn_cvt_sr_bf8_f32(a, random, old, byte))
#define dot4 __builtin_amdgcn_sdot4
#define dot4u __builtin_amdgcn_udot4
#define dot8 __builtin_amdgcn_sdot8
#define dot8u __builtin_amdgcn_udot8
#define dot2 __builtin_amdgcn_sdot2
#define dot2u __builtin_amdgcn_udot2
typedef i16 shorts __attribute__((ext_vector_type(2)));
typedef u16 ushorts __attribute__((ext_vector_type(2)));
#define SHORTS(x) __builtin_bit_cast(shorts, x)
#define USHORTS(x) __builtin_bit_cast(ushorts, x)
#else
// Returns the magnitude that a code of 7 bits stands for; 128 is the first that there is not.
static double magnitude(u32 code, u32 exponent_bits) {
    int fraction_bits = 7 - exponent_bits, bias = 1 << (exponent_bits - 1);
    int exponent = code >> fraction_bits, fraction = code & ((1 << fraction_bits) - 1);
    if (exponent)
        fraction += 1 << fraction_bits;
    else
        exponent = 1;
    return __builtin_ldexp(fraction, exponent - bias - fraction_bits);
}
static float of_byte(u32 byte, u32 exponent_bits) {
    byte &= 255;
    float value = magnitude(byte & 127, exponent_bits);
    return byte == 128 ? __builtin_nanf("") : byte & 128 ? -value : value;
}
static u32 nearest(float value, u32 exponent_bits) {
    double size = __builtin_fabs(value);
    if (!(size < 1e30))
        return 128;
    u32 code = 0;
    while (code < 128 && magnitude(code + 1, exponent_bits) <= size)
        code++;
    double below = size - magnitude(code, exponent_bits), above = magnitude(code + 1, exponent_bits) - size;
    if (code < 128 && (above < below || above == below && code & 1))
        code++;
    return code >= 128 ? 128 : code ? code | (value < 0) << 7 : 0;
}
// Adds the random number below the last place of a number that stays far from the ends of the range.
static u32 randomly(float value, u32 random, u32 exponent_bits) {
    u32 bits = __builtin_bit_cast(u32, value), fraction_bits = 7 - exponent_bits;
    u32 rounded = (bits & 0x7fffffff) + (random >> (9 + fraction_bits));
    return (rounded >> (23 - fraction_bits)) - ((127 - (1 << (exponent_bits - 1))) << fraction_bits) | bits >> 31 << 7;
}
#define of_fp8(x, byte) of_byte((x) >> 8 * (byte), 4)
#define of_bf8(x, byte) of_byte((x) >> 8 * (byte), 5)
#define of_pair(x, half, high, exponent_bits) of_byte((x) >> 16 * (half) + 8 * (high), exponent_bits)
static u32 put(u32 old, u32 value, u32 shift, u32 mask) { return old & ~(mask << shift) | value << shift; }
#define PACK(a, b, old, high, bits) put(old, nearest(a, bits) | nearest(b, bits) << 8, 16 * (high), 0xffff)
#define pack_fp8(a, b, old, high) PACK(a, b, old, high, 4)
#define pack_bf8(a, b, old, high) PACK(a, b, old, high, 5)
#define random_fp8(a, random, old, byte) put(old, randomly(a, random, 4), 8 * (byte), 255)
#define random_bf8(a, random, old, byte) put(old, randomly(a, random, 5), 8 * (byte), 255)
static i64 part(u32 x, u32 index, u32 bits, int is_signed) {
    u32 left = x << (32 - bits - index * bits);
    return is_signed ? (i64) ((i32) left >> (32 - bits)) : (i64) (left >> (32 - bits));
}
static u32 dot(u32 a, u32 b, u32 c, int clamp, u32 bits, int is_signed) {
    i64 sum = is_signed ? (i64) (i32) c : (i64) c;
    for (u32 i = 0; i < 32 / bits; i++)
        sum += part(a, i, bits, is_signed) * part(b, i, bits, is_signed);
    i64 least = is_signed ? -0x80000000l : 0, most = is_signed ? 0x7fffffffl : 0xffffffffl;
    return clamp ? sum < least ? least : sum > most ? most : sum : sum;
}
#define dot4(a, b, c, clamp) dot(a, b, c, clamp, 8, 1)
#define dot4u(a, b, c, clamp) dot(a, b, c, clamp, 8, 0)
#define dot8(a, b, c, clamp) dot(a, b, c, clamp, 4, 1)
#define dot8u(a, b, c, clamp) dot(a, b, c, clamp, 4, 0)
#define dot2(a, b, c, clamp) dot(a, b, c, clamp, 16, 1)
#define dot2u(a, b, c, clamp) dot(a, b, c, clamp, 16, 0)
#define SHORTS(x) (x)
#define USHORTS(x) (x)
#endif

static u64 bytes(u64 sum, u64 *state) {
    u64 bits = next(state);
    u32 x = (u32) bits, old = (u32) (bits >> 32);
    sum = mix(sum, float_bits(of_fp8(x, 0)) + 3 * float_bits(of_fp8(x, 1)));
    sum = mix(sum, float_bits(of_fp8(x, 2)) + 3 * float_bits(of_fp8(x, 3)));
    sum = mix(sum, float_bits(of_bf8(x, 0)) + 3 * float_bits(of_bf8(x, 1)));
    sum = mix(sum, float_bits(of_bf8(x, 2)) + 3 * float_bits(of_bf8(x, 3)));
    sum = mix(sum, float_bits(of_pair(x, 0, 0, 4)) + 3 * float_bits(of_pair(x, 0, 1, 4)));
    sum = mix(sum, float_bits(of_pair(x, 1, 0, 5)) + 3 * float_bits(of_pair(x, 1, 1, 5)));
    // Any number; one in the range of bytes; one between two numbers of bytes, or one of them.
    u64 more = next(state);
    u32 exponent = 110 + (u32) (more & 31), keep = more & 32 ? 0x80700000 : 0x80f80000;
    float a = __builtin_bit_cast(float, (u32) (more >> 32)), b, c;
    b = __builtin_bit_cast(float, (u32) (more >> 16) & 0x807fffff | exponent << 23);
    c = __builtin_bit_cast(float, (u32) (more >> 24) & keep & 0x807fffff | exponent << 23);
    sum = mix(sum, pack_fp8(a, b, old, 0) + 5ul * pack_fp8(c, b, old, 1));
    sum = mix(sum, pack_bf8(b, c, old, 0) + 5ul * pack_bf8(c, a, old, 1));
    float d = __builtin_bit_cast(float, (u32) (more >> 16) & 0x807fffff | (124 + (u32) (more & 7)) << 23);
    sum = mix(sum, random_fp8(d, x, old, 0) + 5ul * random_fp8(d, x, old, 3));
    return mix(sum, random_bf8(d, x, old, 1) + 5ul * random_bf8(d, x, old, 2));
}

static u64 dots(u64 sum, u64 *state) {
    u64 sources = next(state), third = next(state);
    u32 a = (u32) sources, b = (u32) (sources >> 32), c = third >> 60 == 3 ? 0x7fffff00 : (u32) third;
    sum = mix(sum, (u32) dot4(a, b, c, 0) + 3ul * (u32) dot4(a, b, c, 1) + 5ul * (u32) dot4u(a, b, c, 1));
    sum = mix(sum, (u32) dot8(a, b, c, 0) + 3ul * (u32) dot8(a, b, c, 1) + 5ul * (u32) dot8u(a, b, c, 1));
    u64 halves = (u32) dot2(SHORTS(a), SHORTS(b), c, 0) + 3ul * (u32) dot2(SHORTS(a), SHORTS(b), c, 1);
    return mix(sum, halves + 5ul * (u32) dot2u(USHORTS(a), USHORTS(b), c, 1));
}

static u64 program(u32 lane) {
    u64 state = lane * 998877ul + 5, sum = lane;
    for (u32 i = 0; i < 60; i++) {
        sum = bytes(sum, &state);
        sum = dots(sum, &state);
    }
    return sum;
}
