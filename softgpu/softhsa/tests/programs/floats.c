// Floating-point arithmetic that is rounded correctly, bit for bit, over the whole range of numbers.
#pragma STDC FP_CONTRACT OFF
#include "common.h"

static float any_float(u64 *state) {
    u64 bits = next(state);
    switch (bits >> 60) {
    case 0: return __builtin_bit_cast(float, (u32) bits & 0x807fffff); // denormals
    case 1: return (float) (i32) (bits >> 20 & 255) - 100;
    case 2: return __builtin_bit_cast(float, (u32) (bits & 0x80000000 | 0x7f800000 | (bits & 64 ? 1 << 22 : 0)));
    case 3: case 4: case 5: case 6: return (float) (i32) bits / 65536.0f;
    default: return __builtin_bit_cast(float, (u32) bits);
    }
}

static double any_double(u64 *state) {
    u64 bits = next(state);
    switch (bits & 15) {
    case 0: return __builtin_bit_cast(double, bits & 0x800ffffffffffffful);
    case 1: return (double) (i32) (bits >> 20 & 255) - 100;
    case 2: return __builtin_bit_cast(double, bits & 1ul << 63 | 0x7fful << 52 | (bits & 64 ? 1ul << 51 : 0));
    case 3: case 4: case 5: case 6: return (double) (i64) bits / 4294967296.0;
    default: return __builtin_bit_cast(double, bits);
    }
}

static u64 singles(u64 sum, u64 *state) {
    float a = any_float(state), b = any_float(state), c = any_float(state);
    sum = mix(sum, float_bits(a + b));
    sum = mix(sum, float_bits(a - c));
    sum = mix(sum, float_bits(a * b));
    sum = mix(sum, float_bits(a / b));
    sum = mix(sum, float_bits(__builtin_fmaf(a, b, c)));
    sum = mix(sum, float_bits(__builtin_sqrtf(a)));
    sum = mix(sum, float_bits(__builtin_floorf(a)) + float_bits(__builtin_ceilf(b)) + float_bits(__builtin_truncf(c)));
    sum = mix(sum, float_bits(__builtin_rintf(a)) + float_bits(__builtin_fabsf(b)) + float_bits(-c));
    sum = mix(sum, float_bits(__builtin_copysignf(a, b)));
    sum = mix(sum, (u64) (a < b) + 2 * (a == b) + 4 * (a >= c) + 8 * (b != c) + 16 * __builtin_isunordered(a, c));
    if (__builtin_fabsf(a) < 2e9f)
        sum = mix(sum, (u64) (i64) (i32) a);
    if (b >= 0 && b < 4e9f)
        sum = mix(sum, (u32) b);
    if (__builtin_fabsf(c) < 9e18f)
        sum = mix(sum, (u64) (i64) c);
    if (a >= 0 && a < 1e19f)
        sum = mix(sum, (u64) a);
    u64 bits = next(state);
    sum = mix(sum, float_bits((float) (u32) bits) + float_bits((float) (i32) bits));
    return mix(sum, float_bits((float) bits) + float_bits((float) (i64) bits));
}

static u64 doubles(u64 sum, u64 *state) {
    double a = any_double(state), b = any_double(state), c = any_double(state);
    sum = mix(sum, double_bits(a + b));
    sum = mix(sum, double_bits(a - c));
    sum = mix(sum, double_bits(a * b));
    sum = mix(sum, double_bits(a / b));
    sum = mix(sum, double_bits(__builtin_fma(a, b, c)));
    sum = mix(sum, double_bits(__builtin_sqrt(b)));
    sum = mix(sum, double_bits(__builtin_floor(a)) + double_bits(__builtin_ceil(b)) + double_bits(__builtin_trunc(c)));
    sum = mix(sum, double_bits(__builtin_rint(a)) + double_bits(-b));
    sum = mix(sum, (u64) (a < b) + 2 * (a == b) + 4 * (a >= c) + 8 * (b != c) + 16 * __builtin_isunordered(a, c));
    if (__builtin_fabs(a) < 2e9)
        sum = mix(sum, (u64) (i64) (i32) a);
    if (b >= 0 && b < 4e9)
        sum = mix(sum, (u32) b);
    if (__builtin_fabs(c) < 9e18)
        sum = mix(sum, (u64) (i64) c);
    sum = mix(sum, float_bits((float) a));
    sum = mix(sum, double_bits((double) (float) b));
    u64 bits = next(state);
    sum = mix(sum, double_bits((double) (u32) bits) + double_bits((double) (i32) bits));
    return mix(sum, double_bits((double) bits) + double_bits((double) (i64) bits));
}

static u64 halves(u64 sum, u64 *state) {
    _Float16 a = __builtin_bit_cast(_Float16, (u16) next(state));
    _Float16 b = __builtin_bit_cast(_Float16, (u16) next(state));
    // The host computes with 32 bits and rounds, which gives the same numbers for these operations.
    float results[] = {(float) (_Float16) (a + b), (float) (_Float16) (a - b), (float) (_Float16) (a * b),
                       (float) (_Float16) ((float) a / (float) b)};
    for (u32 i = 0; i < 4; i++)
        sum = mix(sum, float_bits(results[i]));
    sum = mix(sum, float_bits((float) (_Float16) any_float(state)));
    return mix(sum, (u64) (a < b) + 2 * (a == b) + 4 * (a >= b));
}

static u64 program(u32 lane) {
    u64 state = lane * 1234567ul + 99, sum = lane;
    for (u32 i = 0; i < 40; i++) {
        sum = singles(sum, &state);
        sum = doubles(sum, &state);
        sum = halves(sum, &state);
    }
    return sum;
}
