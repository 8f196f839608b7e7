//! Floating-point operations that no compiled program of the tests has, against values made on the host.

use crate::bench::{Bench, assemble_all};
use hostcall_softhsa::memory::Use;

/// An instruction, its sources in v2 and v3, v6 and v7, v8 and v9, and its result in v4 and v5.
struct Case {
    text: String,
    sources: [u64; 3],
    expected: u64,
    /// Registers of the result.
    wide: bool,
}

fn bits(value: f32) -> u64 {
    value.to_bits().into()
}

fn pair(low: u64, high: u64) -> u64 {
    low | high << 32
}

fn halves(low: u64, high: u64) -> u64 {
    low | high << 16
}

fn case(text: &str, sources: [u64; 3], expected: u64) -> Case {
    let wide = text.contains("v[4:5]");
    Case { text: text.to_owned(), sources, expected, wide }
}

/// Numbers with signs, fractions, denormals and the ends of the range.
const SINGLES: [f32; 10] = [0.0, 1.0, -1.5, 2.5, -0.499_999_97, 1e-41, -3e38, 7.999, 255.5, -1e-30];
const DOUBLES: [f64; 8] = [0.0, 1.0, -1.5, 2.5, 5e-324, -1.7e308, 1e-300, -123_456.789];

/// Returns the fraction of 1/2 to 1 and the exponent of a number.
fn parts(value: f64) -> (f64, i32) {
    let (mut fraction, mut exponent) = (value, 0);
    while fraction != 0.0 && fraction.abs() < 0.5 {
        (fraction, exponent) = (fraction * 2.0, exponent - 1);
    }
    while fraction.abs() >= 1.0 {
        (fraction, exponent) = (fraction / 2.0, exponent + 1);
    }
    (fraction, exponent)
}

/// Returns a number of −1 to 1, or of 0 to 1, as a whole number of 16 bits.
fn normalized(value: f64, signed: bool) -> u64 {
    match signed {
        true => u64::from((value.clamp(-1.0, 1.0) * 32767.0).round_ties_even() as i16 as u16),
        false => (value.clamp(0.0, 1.0) * 65535.0).round_ties_even() as u64,
    }
}

fn cases() -> Vec<Case> {
    let mut cases = Vec::new();
    for (number, &a) in SINGLES.iter().enumerate() {
        let (b, c) = (SINGLES[(number + 3) % 10], SINGLES[(number + 7) % 10]);
        let (wide_a, wide_b) = (f64::from(a), f64::from(b));
        let sources = [bits(a), bits(b), bits(c)];
        cases.extend([
            case("v_max3_f32 v4, v2, v6, v8", sources, bits(a.max(b).max(c))),
            case("v_min3_f32 v4, v2, v6, v8", sources, bits(a.min(b).min(c))),
            case("v_subrev_f32_e32 v4, v2, v6", sources, bits(b - a)),
            case("v_cvt_flr_i32_f32_e32 v4, v2", sources, (a.floor() as i32 as u32).into()),
            case("v_cvt_rpi_i32_f32_e32 v4, v2", sources, ((wide_a + 0.5).floor() as i32 as u32).into()),
            case(
                "v_cvt_pknorm_i16_f32 v4, v2, v6",
                sources,
                halves(normalized(wide_a, true), normalized(wide_b, true)),
            ),
            case(
                "v_cvt_pknorm_u16_f32 v4, v2, v6",
                sources,
                halves(normalized(wide_a, false), normalized(wide_b, false)),
            ),
            case(
                "v_pk_fma_f32 v[4:5], v[2:3], v[6:7], v[8:9]",
                [pair(bits(a), bits(b)), pair(bits(c), bits(a)), pair(bits(b), bits(c))],
                pair(bits(a.mul_add(c, b)), bits(b.mul_add(a, c))),
            ),
            case(
                "v_pk_fma_f32 v[4:5], v[2:3], v[6:7], v[8:9] op_sel:[1,0,0] op_sel_hi:[0,1,1] neg_lo:[0,1,0]",
                [pair(bits(a), bits(b)), pair(bits(c), bits(a)), pair(bits(b), bits(c))],
                pair(bits(b.mul_add(-c, b)), bits(a.mul_add(a, c))),
            ),
            case(
                "v_pk_mov_b32 v[4:5], v[2:3], v[6:7] op_sel:[1,0]",
                [pair(bits(a), bits(b)), pair(bits(c), bits(a)), 0],
                pair(bits(b), bits(c)),
            ),
        ]);
        // Packed bytes: rounded, between 0 and 255, in the byte that the second source names.
        let byte = a.round_ties_even().clamp(0.0, 255.0) as u64;
        cases.push(case(
            "v_mov_b32_e32 v4, v8\nv_cvt_pkaccum_u8_f32 v4, v2, v6",
            [bits(a), 2, 0x1122_3344],
            0x1100_3344 | byte << 16,
        ));
    }
    for (number, &a) in DOUBLES.iter().enumerate() {
        let b = DOUBLES[(number + 3) % 8];
        let sources = [a.to_bits(), b.to_bits(), 0];
        let (fraction, exponent) = parts(a);
        cases.extend([
            case("v_max_f64 v[4:5], v[2:3], v[6:7]", sources, a.max(b).to_bits()),
            case("v_min_f64 v[4:5], v[2:3], v[6:7]", sources, a.min(b).to_bits()),
            case("v_frexp_mant_f64_e32 v[4:5], v[2:3]", sources, fraction.to_bits()),
            case("v_frexp_exp_i32_f64_e32 v4, v[2:3]", sources, (exponent as u32).into()),
            case("v_fract_f64_e32 v[4:5], v[2:3]", sources, (a - a.floor()).to_bits()),
        ]);
    }
    // A coordinate's face and place on a cube: z is the largest, then y, then x.
    for (direction, [id, sc, tc, ma]) in [
        ([1.0, 2.0, 3.0], [4.0, 1.0, -2.0, 6.0]),
        ([1.0, 2.0, -3.0], [5.0, -1.0, -2.0, -6.0]),
        ([1.0, -3.0, 2.0], [3.0, 1.0, -2.0, -6.0]),
        ([1.0, 3.0, 2.0], [2.0, 1.0, 2.0, 6.0]),
        ([3.0, 1.0, 2.0], [0.0, -2.0, -1.0, 6.0]),
        ([-3.0, 1.0, 2.0], [1.0, 2.0, -1.0, -6.0]),
    ] {
        let sources = direction.map(bits);
        for (name, expected) in [("id", id), ("sc", sc), ("tc", tc), ("ma", ma)] {
            cases.push(case(&format!("v_cube{name}_f32 v4, v2, v6, v8"), sources, bits(expected)));
        }
    }
    for nibble in 0..16u64 {
        let value = (nibble as f32 - if nibble < 8 { 0.0 } else { 16.0 }) / 16.0;
        cases.push(case("v_cvt_off_f32_i4_e32 v4, v2", [nibble | 0x50, 0, 0], bits(value)));
    }
    // Halves: 1, −0.5, 100.7 (rounded), 70000 would be too large for 16 bits.
    let old = "v_mov_b32_e32 v4, v8\n";
    cases.extend([
        case("v_cvt_i16_f16_e32 v4, v2", [0xd64b, 0, 0], 0xff9c),
        case("v_cvt_u16_f16_e32 v4, v2", [0x564b, 0, 0], 100),
        case("v_cvt_u16_f16_e32 v4, v2", [0xbc00, 0, 0], 0),
        case("v_cvt_norm_i16_f16_e32 v4, v2", [0xb800, 0, 0], normalized(-0.5, true)),
        case("v_cvt_norm_u16_f16_e32 v4, v2", [0x3800, 0, 0], normalized(0.5, false)),
        case(
            "v_cvt_pknorm_i16_f16 v4, v2, v6",
            [0xb800, 0x4000, 0],
            halves(normalized(-0.5, true), normalized(2.0, true)),
        ),
        case("v_cvt_pknorm_u16_f16 v4, v2, v6", [0x3400, 0xbc00, 0], halves(normalized(0.25, false), 0)),
        case("v_sat_pk_u8_i16_e32 v4, v2", [0xffff_0123, 0, 0], 0x00ff),
        case("v_sat_pk_u8_i16_e32 v4, v2", [0x0080_007f, 0, 0], 0x807f),
        case(&format!("{old}v_fma_mixlo_f16 v4, v2, v6, v8"), [bits(3.0), bits(0.5), bits(1.0)], 0x3f80_4100),
        case(
            &format!("{old}v_fma_mixhi_f16 v4, v2, v6, v8"),
            [bits(3.0), bits(-0.5), bits(1.0)],
            0xb800_0000,
        ),
        case(
            &format!("{old}v_fma_mixlo_f16 v4, v2, v6, v8 op_sel:[1,0,0] op_sel_hi:[1,1,0] clamp"),
            [0x4200_0000, 0x3800, bits(1.0)],
            0x3f80_3c00,
        ),
        case("v_div_fixup_legacy_f16 v4, v2, v6, v8", [0x3c00, 0xc000, 0x4000], 0xbc00),
        case("v_div_fixup_legacy_f16 v4, v2, v6, v8", [0x3c00, 0, 0x4000], 0x7c00),
    ]);
    cases
}

#[test]
fn floats_of_rare_operations() {
    let cases = cases();
    let words = assemble_all(cases.iter().map(|case| case.text.as_str()));
    for (case, words) in cases.iter().zip(words) {
        let mut bench = Bench::new();
        for (register, source) in [2, 6, 8].into_iter().zip(case.sources) {
            bench.set_v(register, source as u32);
            bench.set_v(register + 1, (source >> 32) as u32);
        }
        assert_eq!(bench.run_words(words), None, "{}", case.text);
        let high = if case.wide { u64::from(bench.v(5, 7)) } else { 0 };
        let found = pair(bench.v(4, 7).into(), high);
        assert_eq!(found, case.expected, "{} of {:#x?}: {found:#x}", case.text, case.sources);
    }
}

/// Loads to local memory put lane after lane behind M0; the instruction's offset is one of both addresses.
#[test]
fn loads_go_straight_to_local_memory() {
    let mut bench = Bench::new();
    let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
    for lane in 0..80 {
        bench.memory.view().store_u32(buffer + lane * 4, 0x8182_8384 + lane as u32).expect("it is inside");
    }
    bench.wave.set_pair(2, buffer);
    for (name, expected) in [
        ("dword", 0x8182_8384u32),
        ("ubyte", 0x84),
        ("sbyte", 0xffff_ff84),
        ("ushort", 0x8384),
        ("sshort", 0xffff_8384),
    ] {
        bench.lds.fill(0);
        let text = format!(
            "s_movk_i32 m0, 0x40\nv_lshlrev_b32_e32 v1, 2, v0\nglobal_load_lds_{name} v1, s[2:3] offset:16\ns_waitcnt vmcnt(0)"
        );
        assert_eq!(bench.run(&text), None);
        for lane in 0..64u32 {
            let at = 0x50 + lane as usize * 4;
            let found = u32::from_le_bytes(bench.lds[at..at + 4].try_into().expect("four bytes"));
            assert_eq!(found, expected + lane + 4, "{name} of lane {lane}");
        }
        assert_eq!(bench.lds[0x40..0x50], [0; 16], "{name}");
    }
    bench.set_v(1, 0x8182_8384);
    for (name, expected) in [
        ("dword", [0x84, 0x83, 0x82, 0x81]),
        ("ubyte", [0x84, 0, 0, 0]),
        ("sbyte", [0x84, 0xff, 0xff, 0xff]),
        ("ushort", [0x84, 0x83, 0, 0]),
        ("sshort", [0x84, 0x83, 0xff, 0xff]),
    ] {
        bench.lds.fill(0);
        let text = format!(
            "s_movk_i32 m0, 0x40\nscratch_store_dword off, v1, off offset:16\nscratch_load_lds_{name} off, off offset:16"
        );
        assert_eq!(bench.run(&text), None);
        assert_eq!(
            (&bench.lds[0x50..0x54], &bench.lds[0x14c..0x150]),
            (&expected[..], &expected[..]),
            "{name}"
        );
    }
}

/// What the wave tells of itself and of time, and instructions that do nothing here.
#[test]
fn registers_and_clocks_of_the_wave() {
    let mut bench = Bench::new();
    bench.wave.s[2] = 0x2f0;
    let text = "s_setreg_b32 hwreg(HW_REG_MODE), s2
        s_getreg_b32 s4, hwreg(HW_REG_MODE, 4, 4)
        s_memtime s[6:7]
        s_memrealtime s[8:9]
        s_memtime s[10:11]
        v_accvgpr_write_b32 a0, v0
        v_accvgpr_mov_b32 a1, a0
        v_accvgpr_read_b32 v1, a1
        s_call_b64 s[12:13], 2
        s_movk_i32 s14, 1
        s_branch 2
        s_movk_i32 s15, 2
        s_setpc_b64 s[12:13]
        s_setprio 1
        s_sethalt 0
        s_incperflevel 1
        s_decperflevel 1
        s_ttracedata
        s_dcache_inv
        s_dcache_wb
        s_dcache_inv_vol
        s_dcache_wb_vol
        s_icache_inv
        buffer_wbl2 sc1
        buffer_inv sc1
        s_wakeup
        s_cbranch_cdbgsys 1
        s_cbranch_cdbguser 1
        s_cbranch_cdbgsys_or_user 1
        s_cbranch_cdbgsys_and_user 1
        v_nop
        v_clrexcp
        ds_nop";
    assert_eq!(bench.run(text), None);
    assert_eq!((bench.wave.s[4], bench.wave.s[14], bench.wave.s[15]), (15, 1, 2));
    assert!(bench.wave.pair(10) >= bench.wave.pair(6));
    assert_eq!((bench.v(1, 0), bench.v(1, 63)), (0, 63));
}
