//! Operations that the processor approximates, and that are rounded correctly here, against known values.

use crate::bench::{Bench, assemble_all};
use std::f32::consts::{LOG2_10, SQRT_2};

/// Sources and results of an operation on 32 bits.
const OF_32_BITS: &[(&str, &[(f32, f32)])] = &[
    (
        "v_exp_f32_e32",
        &[(0.0, 1.0), (3.0, 8.0), (-1.0, 0.5), (0.5, SQRT_2), (128.0, f32::INFINITY), (-200.0, 0.0)],
    ),
    ("v_exp_legacy_f32_e32", &[(10.0, 1024.0), (f32::NEG_INFINITY, 0.0)]),
    (
        "v_log_f32_e32",
        &[(8.0, 3.0), (0.125, -3.0), (10.0, LOG2_10), (0.0, f32::NEG_INFINITY), (-1.0, f32::NAN)],
    ),
    ("v_log_legacy_f32_e32", &[(1.0, 0.0), (f32::INFINITY, f32::INFINITY)]),
    // In turns.
    (
        "v_sin_f32_e32",
        &[(0.0, 0.0), (0.25, 1.0), (0.5, 0.0), (-0.25, -1.0), (1.0 / 12.0, 0.5), (100.75, -1.0)],
    ),
    (
        "v_cos_f32_e32",
        &[(0.0, 1.0), (0.25, 0.0), (0.5, -1.0), (-0.75, 0.0), (0.125, 0.707_106_77), (7.0, 1.0)],
    ),
    ("v_rcp_f32_e32", &[(4.0, 0.25), (-0.0, f32::NEG_INFINITY), (3.0, 0.333_333_34), (f32::INFINITY, 0.0)]),
    ("v_rcp_iflag_f32_e32", &[(3.0, 0.333_333_34), (0.0, f32::INFINITY)]),
    ("v_rsq_f32_e32", &[(4.0, 0.5), (2.0, 0.707_106_77), (-1.0, f32::NAN), (0.0, f32::INFINITY)]),
    ("v_sqrt_f32_e32", &[(9.0, 3.0), (2.0, SQRT_2), (-1.0, f32::NAN), (-0.0, -0.0)]),
];

/// Bits of halves.
const OF_16_BITS: &[(&str, &[(u16, u16)])] = &[
    (
        "v_exp_f16_e32",
        &[(0x4200, 0x4800), (0xbc00, 0x3800), (0x7c00, 0x7c00), (0x3800, 0x3da8), (0xcc00, 0x0100)],
    ),
    (
        "v_log_f16_e32",
        &[
            (0x4800, 0x4200),
            (0x3800, 0xbc00),
            (0, 0xfc00),
            (0x4900, 0x42a5),
            (0xbc00, 0xfe00),
            (0x0100, 0xcc00),
        ],
    ),
    (
        "v_sin_f16_e32",
        &[
            (0x3400, 0x3c00),
            (0x3800, 0),
            (0xb400, 0xbc00),
            (0x3000, 0x39a8),
            (0x8000, 0x8000),
            (0xfbff, 0),
            (0x7c00, 0xfe00),
        ],
    ),
    (
        "v_cos_f16_e32",
        &[(0, 0x3c00), (0x3400, 0), (0x3800, 0xbc00), (0x3000, 0x39a8), (0xfbff, 0x3c00), (0xfc00, 0xfe00)],
    ),
    ("v_rcp_f16_e32", &[(0x4400, 0x3400), (0x4200, 0x3555), (0, 0x7c00), (0xfc00, 0x8000), (0x7800, 0x0200)]),
    ("v_rsq_f16_e32", &[(0x4400, 0x3800), (0x4000, 0x39a8), (0, 0x7c00), (0xfc00, 0xfe00), (0x8000, 0xfc00)]),
    (
        "v_sqrt_f16_e32",
        &[(0x4880, 0x4200), (0x4000, 0x3da8), (0x8000, 0x8000), (0xfc00, 0xfe00), (0x7d00, 0x7f00)],
    ),
];

/// Sources and results of 32 bits that AMD's manual of CDNA 3 shows, and denormals, which are 0 for those operations that
/// approximate with a table.
const BITS_OF_32: &[(&str, &[(u32, u32)])] = &[
    (
        "v_exp_f32_e32",
        &[
            (0xff80_0000, 0),
            (0x8000_0000, 0x3f80_0000),
            (0x7f80_0000, 0x7f80_0000),
            // 2⁻¹²⁶, and 2⁻¹²⁷, which is a denormal.
            (0xc2fc_0000, 0x0080_0000),
            (0xc2fe_0000, 0),
            (0x8000_0001, 0x3f80_0000),
        ],
    ),
    (
        "v_log_f32_e32",
        &[
            (0xff80_0000, 0xffc0_0000),
            (0xbf80_0000, 0xffc0_0000),
            (0x8000_0000, 0xff80_0000),
            (0, 0xff80_0000),
            (0x3f80_0000, 0),
            (0x7f80_0000, 0x7f80_0000),
            (0x0080_0000, 0xc2fc_0000),
            (0x007f_ffff, 0xff80_0000),
            (0x807f_ffff, 0xff80_0000),
            (0x7f80_0001, 0x7fc0_0001),
        ],
    ),
    (
        "v_rcp_f32_e32",
        &[
            (0xff80_0000, 0x8000_0000),
            (0xc000_0000, 0xbf00_0000),
            (0x8000_0000, 0xff80_0000),
            (0, 0x7f80_0000),
            (0x7f80_0000, 0),
            (0x0040_0000, 0x7f80_0000),
            (0x8000_0001, 0xff80_0000),
            (0x7e80_0000, 0x0080_0000),
            (0x7f00_0000, 0),
            (0xff7f_ffff, 0x8000_0000),
        ],
    ),
    ("v_rcp_iflag_f32_e32", &[(0x8000_0001, 0xff80_0000), (0x7f00_0000, 0)]),
    (
        "v_rsq_f32_e32",
        &[
            (0xff80_0000, 0xffc0_0000),
            (0x8000_0000, 0xff80_0000),
            (0, 0x7f80_0000),
            (0x4080_0000, 0x3f00_0000),
            (0x7f80_0000, 0),
            (1, 0x7f80_0000),
            (0x8000_0001, 0xff80_0000),
        ],
    ),
    (
        "v_sqrt_f32_e32",
        &[
            (0xff80_0000, 0xffc0_0000),
            (0x8000_0000, 0x8000_0000),
            (0, 0),
            (0x4080_0000, 0x4000_0000),
            (0x7f80_0000, 0x7f80_0000),
            (0x007f_ffff, 0),
            (0x8000_0001, 0x8000_0000),
            (0xc080_0000, 0xffc0_0000),
            (0xff80_0001, 0xffc0_0001),
        ],
    ),
    (
        "v_sin_f32_e32",
        &[
            (0xff80_0000, 0xffc0_0000),
            (0xff7f_ffff, 0),
            (0x8000_0000, 0x8000_0000),
            (0x3e80_0000, 0x3f80_0000),
            (0x7f80_0000, 0xffc0_0000),
            (0xbf00_0000, 0),
            (0x8000_0001, 0x8000_0006),
        ],
    ),
    (
        "v_cos_f32_e32",
        &[
            (0xff80_0000, 0xffc0_0000),
            (0xff7f_ffff, 0x3f80_0000),
            (0x8000_0000, 0x3f80_0000),
            (0x3e80_0000, 0),
            (0x7f80_0000, 0xffc0_0000),
        ],
    ),
    ("v_exp_legacy_f32_e32", &[(0xc2fe_0000, 0)]),
    ("v_log_legacy_f32_e32", &[(0x007f_ffff, 0xff80_0000), (0xbf80_0000, 0xffc0_0000)]),
];

const OF_64_BITS: &[(&str, &[(f64, f64)])] = &[
    ("v_rcp_f64_e32", &[(4.0, 0.25), (3.0, 1.0 / 3.0), (-0.0, f64::NEG_INFINITY)]),
    ("v_rsq_f64_e32", &[(4.0, 0.5), (0.0, f64::INFINITY), (-1.0, f64::NAN)]),
    ("v_sqrt_f64_e32", &[(9.0, 3.0), (2.0, std::f64::consts::SQRT_2), (-1.0, f64::NAN), (-0.0, -0.0)]),
];

#[test]
fn approximations_of_32_bits() {
    let texts: Vec<String> = OF_32_BITS.iter().map(|(name, _)| format!("{name} v4, v1")).collect();
    for ((name, values), words) in OF_32_BITS.iter().zip(assemble_all(texts.iter().map(String::as_str))) {
        for &(source, expected) in *values {
            let mut bench = Bench::new();
            bench.set_v(1, source.to_bits());
            assert_eq!(bench.run_words(words.clone()), None, "{name}");
            let found = f32::from_bits(bench.v(4, 9));
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{name} of {source}: {found} instead of {expected}");
        }
    }
}

#[test]
fn bits_that_the_manual_shows_and_denormals() {
    let texts: Vec<String> = BITS_OF_32.iter().map(|(name, _)| format!("{name} v4, v1")).collect();
    for ((name, values), words) in BITS_OF_32.iter().zip(assemble_all(texts.iter().map(String::as_str))) {
        for &(source, expected) in *values {
            let mut bench = Bench::new();
            bench.set_v(1, source);
            assert_eq!(bench.run_words(words.clone()), None, "{name}");
            let found = bench.v(4, 9);
            assert_eq!(found, expected, "{name} of {source:#x}: {found:#x} instead of {expected:#x}");
        }
    }
}

#[test]
fn approximations_of_16_bits() {
    let texts: Vec<String> = OF_16_BITS.iter().map(|(name, _)| format!("{name} v4, v1")).collect();
    for ((name, values), words) in OF_16_BITS.iter().zip(assemble_all(texts.iter().map(String::as_str))) {
        for &(source, expected) in *values {
            let mut bench = Bench::new();
            bench.set_v(1, source.into());
            assert_eq!(bench.run_words(words.clone()), None, "{name}");
            let found = bench.v(4, 9);
            assert_eq!(found, u32::from(expected), "{name} of {source:#x}: {found:#x}");
        }
    }
}

#[test]
fn approximations_of_64_bits() {
    let texts: Vec<String> = OF_64_BITS.iter().map(|(name, _)| format!("{name} v[4:5], v[2:3]")).collect();
    for ((name, values), words) in OF_64_BITS.iter().zip(assemble_all(texts.iter().map(String::as_str))) {
        for &(source, expected) in *values {
            let mut bench = Bench::new();
            bench.set_v(2, source.to_bits() as u32);
            bench.set_v(3, (source.to_bits() >> 32) as u32);
            assert_eq!(bench.run_words(words.clone()), None, "{name}");
            let found = f64::from_bits(u64::from(bench.v(4, 9)) | u64::from(bench.v(5, 9)) << 32);
            let same = found.to_bits() == expected.to_bits() || found.is_nan() && expected.is_nan();
            assert!(same, "{name} of {source}: {found} instead of {expected}");
        }
    }
}

/// Two products of halves and a sum of 32 bits, into the register that has the sum.
#[test]
fn products_of_halves_are_added_to_the_result() {
    let mut bench = Bench::new();
    // 2 · 3 + 4 · -1 + 10
    for (register, value) in [(1, 0x4400_4000), (2, 0xbc00_4200), (4, 10.0f32.to_bits())] {
        bench.set_v(register, value);
    }
    assert_eq!(bench.run("v_dot2c_f32_f16_e32 v4, v1, v2"), None);
    assert_eq!(f32::from_bits(bench.v(4, 3)), 12.0);
}
