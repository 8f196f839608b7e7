//! C's mathematics for programs on NVIDIA, which are linked with no library: this crate's. On AMD `compiler_builtins` has it.

use crate::math::Float;

macro_rules! functions {
    ($($t:ident { $($name:ident($($argument:ident: $of:ty),*) = $method:ident;)* })*) => {$($(
        #[unsafe(no_mangle)]
        extern "C" fn $name(x: $t $(, $argument: $of)*) -> $t {
            x.$method($($argument),*)
        }
    )*)*};
}

functions! {
    f64 {
        __powidf2(n: i32) = powi;
        acos() = acos;
        acosh() = acosh;
        asin() = asin;
        asinh() = asinh;
        atan() = atan;
        atan2(other: f64) = atan2;
        cbrt() = cbrt;
        cos() = cos;
        cosh() = cosh;
        erf() = erf;
        erfc() = erfc;
        exp() = exp;
        exp2() = exp2;
        expm1() = exp_m1;
        hypot(other: f64) = hypot;
        log() = ln;
        log10() = log10;
        log1p() = ln_1p;
        log2() = log2;
        pow(exponent: f64) = powf;
        sin() = sin;
        sinh() = sinh;
        tan() = tan;
        tanh() = tanh;
        tgamma() = gamma;
    }
    f32 {
        __powisf2(n: i32) = powi;
        acosf() = acos;
        acoshf() = acosh;
        asinf() = asin;
        asinhf() = asinh;
        atan2f(other: f32) = atan2;
        atanf() = atan;
        cbrtf() = cbrt;
        cosf() = cos;
        coshf() = cosh;
        erfcf() = erfc;
        erff() = erf;
        exp2f() = exp2;
        expf() = exp;
        expm1f() = exp_m1;
        hypotf(other: f32) = hypot;
        log10f() = log10;
        log1pf() = ln_1p;
        log2f() = log2;
        logf() = ln;
        powf(exponent: f32) = powf;
        sinf() = sin;
        sinhf() = sinh;
        tanf() = tan;
        tanhf() = tanh;
        tgammaf() = gamma;
    }
}

macro_rules! ln_gamma {
    ($($name:ident: $t:ident;)*) => {$(
        #[unsafe(no_mangle)]
        extern "C" fn $name(x: $t, sign: &mut i32) -> $t {
            let (result, of_gamma) = x.ln_gamma();
            *sign = of_gamma;
            result
        }
    )*};
}

ln_gamma! {
    lgamma_r: f64;
    lgammaf_r: f32;
}
