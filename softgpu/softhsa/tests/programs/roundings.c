// Floating-point arithmetic in each of the four roundings: single instructions on the device, and on the host what C
// does after fesetround. Operands are made of bits, so that nothing else here is rounded.
#pragma STDC FENV_ACCESS ON
#pragma STDC FP_CONTRACT OFF
#include "common.h"

typedef float pair __attribute__((ext_vector_type(2)));

#if DEVICE
// MODE counts the nearest, up, down and towards zero; bits 0 and 1 are for 32 bits, bits 2 and 3 for the others.
static inline void set_rounding(u32 rounding) {
    asm volatile("s_setreg_b32 hwreg(HW_REG_MODE, 0, 4), %0" ::"s"(__builtin_amdgcn_readfirstlane(rounding * 5)));
}
#define ONE(name, type, from, text, expression)                                                                        \
    static inline type name(from a) {                                                                                  \
        type result;                                                                                                   \
        asm volatile(text " %0, %1" : "=v"(result) : "v"(a));                                                          \
        return result;                                                                                                 \
    }
#define TWO(name, type, other, text, expression)                                                                       \
    static inline type name(type a, other b) {                                                                         \
        type result;                                                                                                   \
        asm volatile(text " %0, %1, %2" : "=v"(result) : "v"(a), "v"(b));                                              \
        return result;                                                                                                 \
    }
#define THREE(name, type, text, expression)                                                                            \
    static inline type name(type a, type b, type c) {                                                                  \
        type result;                                                                                                   \
        asm volatile(text " %0, %1, %2, %3" : "=v"(result) : "v"(a), "v"(b), "v"(c));                                  \
        return result;                                                                                                 \
    }
#else
int fesetround(int);
static inline void set_rounding(u32 rounding) { fesetround((const int[]){0, 0x800, 0x400, 0xc00}[rounding]); }
#define ONE(name, type, from, text, expression)                                                                        \
    __attribute__((noinline)) static type name(volatile from a) { return expression; }
#define TWO(name, type, other, text, expression)                                                                       \
    __attribute__((noinline)) static type name(volatile type a, volatile other b) { return expression; }
#define THREE(name, type, text, expression)                                                                            \
    __attribute__((noinline)) static type name(volatile type a, volatile type b, volatile type c) { return expression; }
#endif

TWO(add32, float, float, "v_add_f32_e64", a + b)
TWO(sub32, float, float, "v_sub_f32_e64", a - b)
TWO(subrev32, float, float, "v_subrev_f32_e64", b - a)
TWO(mul32, float, float, "v_mul_f32_e64", a * b)
THREE(fma32, float, "v_fma_f32", __builtin_fmaf(a, b, c))
TWO(ldexp32, float, i32, "v_ldexp_f32", __builtin_ldexpf(a, b))
TWO(add64, double, double, "v_add_f64", a + b)
TWO(mul64, double, double, "v_mul_f64", a * b)
THREE(fma64, double, "v_fma_f64", __builtin_fma(a, b, c))
TWO(ldexp64, double, i32, "v_ldexp_f64", __builtin_ldexp(a, b))
ONE(of_i32, float, i32, "v_cvt_f32_i32_e64", (float) a)
ONE(of_u32, float, u32, "v_cvt_f32_u32_e64", (float) a)
ONE(narrow, float, double, "v_cvt_f32_f64_e64", (float) a)
TWO(add_pair, pair, pair, "v_pk_add_f32", ((pair){a.x + b.x, a.y + b.y}))
TWO(mul_pair, pair, pair, "v_pk_mul_f32", ((pair){a.x * b.x, a.y * b.y}))
THREE(fma_pair, pair, "v_pk_fma_f32", ((pair){__builtin_fmaf(a.x, b.x, c.x), __builtin_fmaf(a.y, b.y, c.y)}))

// Numbers whose exponents are near each other, so that sums lose some places and keep others; now and then any number.
static float any_float(u64 *state) {
    u64 bits = next(state);
    u32 exponent = 110 + (u32) (bits >> 40 & 31);
    switch (bits >> 60) {
    case 0: return __builtin_bit_cast(float, (u32) bits);
    case 1: return __builtin_bit_cast(float, (u32) bits & 0x807fffff); // denormals
    case 2: return __builtin_bit_cast(float, (u32) bits | 0x7f000000); // the largest
    case 3: return __builtin_bit_cast(float, (u32) bits & 0x80000000 | exponent << 23);
    case 4: return __builtin_bit_cast(float, (u32) bits & 0x80ffffff | 60 << 23); // whose products are denormals
    default: return __builtin_bit_cast(float, (u32) bits & 0x807fffff | exponent << 23);
    }
}

static double any_double(u64 *state) {
    u64 bits = next(state), kind = next(state);
    u64 exponent = 1000 + (kind >> 40 & 63);
    switch (kind & 15) {
    case 0: return __builtin_bit_cast(double, bits);
    case 1: return __builtin_bit_cast(double, bits & 0x800ffffffffffffful);
    case 2: return __builtin_bit_cast(double, bits | 0x7fcul << 52);
    case 3: return __builtin_bit_cast(double, bits & 1ul << 63 | exponent << 52);
    case 4: return __builtin_bit_cast(double, bits & 0x801ffffffffffffful | 500ul << 52);
    case 5: return __builtin_bit_cast(double, bits & 0x801ffffffffffffful | 880ul << 52); // denormals of 32 bits
    default: return __builtin_bit_cast(double, bits & 0x800ffffffffffffful | exponent << 52);
    }
}

static u64 mix_pair(u64 sum, pair value) { return mix(mix(sum, float_bits(value.x)), float_bits(value.y)); }

static u64 program(u32 lane) {
    u64 state = lane * 7654321ul + 17, sum = lane;
    for (u32 i = 0; i < 24; i++) {
        float a = any_float(&state), b = any_float(&state), c = any_float(&state);
        double d = any_double(&state), e = any_double(&state), f = any_double(&state);
        u64 bits = next(&state);
        pair p = {a, c}, q = {b, a}, r = {c, b};
        for (u32 rounding = 0; rounding < 4; rounding++) {
            set_rounding(rounding);
            float singles[] = {add32(a, b), sub32(a, b), subrev32(b, c), mul32(a, b), fma32(a, b, c),
                               ldexp32(a, (i32) (bits & 255) - 200), of_i32((i32) bits), of_u32((u32) bits), narrow(d)};
            double doubles[] = {add64(d, e), mul64(d, e), fma64(d, e, f), ldexp64(d, (i32) (bits & 2047) - 1700)};
            pair pairs[] = {add_pair(p, q), mul_pair(p, q), fma_pair(p, q, r)};
            set_rounding(0);
            for (u32 k = 0; k < sizeof singles / sizeof *singles; k++)
                sum = mix(sum, float_bits(singles[k]));
            for (u32 k = 0; k < sizeof doubles / sizeof *doubles; k++)
                sum = mix(sum, double_bits(doubles[k]));
            for (u32 k = 0; k < sizeof pairs / sizeof *pairs; k++)
                sum = mix_pair(sum, pairs[k]);
        }
    }
    return sum;
}
