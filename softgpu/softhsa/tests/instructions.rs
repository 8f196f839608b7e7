//! Instructions against known values: llvm-mc assembles them, a wave runs them.

mod bench;

use std::collections::BTreeSet;

use bench::{Bench, PC};
use hostcall_softhsa::exec::Fault;
use hostcall_softhsa::exec::wave::scalar;
use hostcall_softhsa::memory::Use;

/// Runs one instruction with values in v1, v2, v3 and s2, s3, and checks v4 and s4 in lane 5.
#[track_caller]
fn vector(text: &str, sources: [u32; 3], expected: u32) {
    for exec in [!0, 1 << 5] {
        let mut bench = Bench::new();
        bench.wave.set_pair(scalar::EXEC, exec);
        bench.set_v(4, 0xdead_beef);
        for (register, value) in [1, 2, 3].into_iter().zip(sources) {
            bench.set_v(register, value);
        }
        assert_eq!(bench.run(text), None, "{text}");
        let found = bench.v(4, 5);
        assert_eq!(found, expected, "{text} with {sources:#x?}: {found:#x} instead of {expected:#x}");
        let other = if exec == !0 { expected } else { 0xdead_beef };
        assert_eq!(bench.v(4, 6), other, "{text}: lane 6");
    }
}

#[track_caller]
fn scalar_op(text: &str, sources: [u32; 2], expected: u32, scc: bool) {
    let mut bench = Bench::new();
    bench.wave.s[2] = sources[0];
    bench.wave.s[3] = sources[1];
    bench.wave.scc = !scc;
    assert_eq!(bench.run(text), None, "{text}");
    let found = (bench.wave.s[4], bench.wave.scc);
    assert_eq!(found, (expected, scc), "{text} with {sources:#x?}");
}

#[test]
fn scalar_results_and_condition_codes() {
    scalar_op("s_add_u32 s4, s2, s3", [u32::MAX, 2], 1, true);
    scalar_op("s_add_i32 s4, s2, s3", [i32::MAX as u32, 1], 0x8000_0000, true);
    scalar_op("s_sub_u32 s4, s2, s3", [1, 2], u32::MAX, true);
    scalar_op("s_min_i32 s4, s2, s3", [5, 5], 5, false);
    scalar_op("s_max_i32 s4, s2, s3", [5, 5], 5, true);
    scalar_op("s_max_u32 s4, s2, s3", [1, 0xffff_ffff], 0xffff_ffff, false);
    scalar_op("s_and_b32 s4, s2, s3", [0xf0, 0x0f], 0, false);
    scalar_op("s_lshl_b32 s4, s2, s3", [1, 33], 2, true);
    scalar_op("s_ashr_i32 s4, s2, s3", [0x8000_0000, 31], u32::MAX, true);
    scalar_op("s_bfe_u32 s4, s2, s3", [0xabcd_1234, 8 << 16 | 4], 0x23, true);
    scalar_op("s_bfe_i32 s4, s2, s3", [0x0000_0f00, 4 << 16 | 8], u32::MAX, true);
    scalar_op("s_absdiff_i32 s4, s2, s3", [3, 10], 7, true);
    scalar_op("s_lshl3_add_u32 s4, s2, s3", [0x2000_0000, 1], 1, true);
    scalar_op("s_bcnt1_i32_b32 s4, s2", [0xf0f0, 0], 8, true);
    scalar_op("s_flbit_i32 s4, s2\ns_cmp_eq_u32 s4, 15", [0xffff_0000, 0], 16, false);
    scalar_op("s_ff1_i32_b32 s4, s2\ns_cmp_eq_u32 s4, -1", [0, 0], u32::MAX, true);
    scalar_op("s_movk_i32 s4, 0x8000\ns_cmpk_eq_i32 s4, 0x8000", [0, 0], 0xffff_8000, true);
    scalar_op("s_mov_b32 s4, 3\ns_addk_i32 s4, 0xfffe\ns_cmpk_lg_u32 s4, 0x1", [0, 0], 1, false);
    scalar_op("s_quadmask_b32 s4, s2", [0x0000_0110, 0], 0b110, true);
    scalar_op("s_bitreplicate_b64_b32 s[4:5], s2\ns_cmp_lg_u32 s4, s5", [0x8000_0005, 0], 0x33, true);
}

/// A literal of 32 bits is extended with its sign where an integer of 64 bits with a sign is read, else with zeros.
#[test]
fn literals_of_wide_integers() {
    scalar_op("s_ashr_i64 s[4:5], 0x80000000, 32", [0, 0], u32::MAX, true);
    scalar_op("s_ashr_i64 s[4:5], 0x7fffffff, 32", [0, 0], 0, false);
    scalar_op("s_lshr_b64 s[4:5], 0x80000000, 32", [0, 0], 0, false);
    scalar_op("s_flbit_i32_i64 s4, 0xf0000000\ns_cmp_eq_u32 s4, 36", [0, 0], 36, true);
    for (compare, expected) in [("i64", !0), ("u64", 0)] {
        let mut bench = Bench::new();
        let text = format!("v_cmp_lt_{compare}_e32 vcc, 0x80000000, v[2:3]");
        assert_eq!(bench.run(&text), None, "{text}");
        assert_eq!(bench.wave.pair(scalar::VCC), expected, "{text}");
    }
}

#[test]
fn vector_integers() {
    vector("v_add_u32_e64 v4, v1, v2 clamp", [u32::MAX, 2, 0], u32::MAX);
    vector("v_sub_u32_e64 v4, v1, v2 clamp", [1, 2, 0], 0);
    vector("v_add_i32 v4, v1, v2 clamp", [i32::MAX as u32, 1, 0], i32::MAX as u32);
    vector("v_mul_hi_i32 v4, v1, v2", [0xffff_fffe, 3, 0], u32::MAX);
    vector("v_mul_i32_i24 v4, v1, v2", [0x00ff_ffff, 0x0100_0005, 0], (-5i32) as u32);
    vector("v_mad_u32_u24 v4, v1, v2, v3", [0xff00_0002, 3, 4], 10);
    vector("v_bfe_i32 v4, v1, v2, v3", [0x0000_0f00, 8, 4], u32::MAX);
    vector("v_bfi_b32 v4, v1, v2, v3", [0xff00_ff00, 0x1122_3344, 0xaabb_ccdd], 0x11bb_33dd);
    vector("v_perm_b32 v4, v1, v2, v3", [0x0403_0201, 0x1413_1211, 0x0c07_0100], 0x0004_1211);
    vector("v_alignbit_b32 v4, v1, v2, v3", [0x1234_5678, 0x9abc_def0, 8], 0x789a_bcde);
    vector("v_alignbyte_b32 v4, v1, v2, v3", [0x1234_5678, 0x9abc_def0, 1], 0x789a_bcde);
    vector("v_sad_u8 v4, v1, v2, v3", [0x0102_0304, 0x0401_0009, 100], 100 + 3 + 1 + 3 + 5);
    vector("v_ffbh_i32_e32 v4, v1", [0xffff_0000, 0, 0], 16);
    vector("v_ffbh_u32_e32 v4, v1", [0, 0, 0], u32::MAX);
    vector("v_med3_i32 v4, v1, v2, v3", [5, u32::MAX, 3], 3);
    vector("v_lerp_u8 v4, v1, v2, v3", [0x0103_00ff, 0x0202_0001, 0x0001_0000], 0x0103_0080);
    vector("v_lshl_or_b32 v4, v1, v2, v3", [3, 4, 1], 0x31);
    vector("v_mbcnt_lo_u32_b32 v4, v1, v2\nv_mbcnt_lo_u32_b32 v4, v1, v2", [0x1f, 10, 0], {
        // Lane 5 has five lanes below it; so has lane 6, in whose mask bit 5 is 0.
        15
    });
}

/// Sums and differences that carry are the largest and the least number if they are clamped, and the carry goes out.
#[test]
fn carries_are_clamped() {
    const MAX: u32 = u32::MAX;
    for (operation, sources, carry, expected, expected_carry) in [
        ("v_add_co_u32_e64 v4, s[4:5], v1, v2", [MAX, 2], 0, MAX, true),
        ("v_add_co_u32_e64 v4, s[4:5], v1, v2", [3, 2], 0, 5, false),
        ("v_addc_co_u32_e64 v4, s[4:5], v1, v2, s[2:3]", [MAX, 0], 1, MAX, true),
        ("v_addc_co_u32_e64 v4, s[4:5], v1, v2, s[2:3]", [MAX - 1, 0], 1, MAX, false),
        ("v_sub_co_u32_e64 v4, s[4:5], v1, v2", [2, 3], 0, 0, true),
        ("v_sub_co_u32_e64 v4, s[4:5], v1, v2", [3, 2], 0, 1, false),
        ("v_subrev_co_u32_e64 v4, s[4:5], v1, v2", [3, 2], 0, 0, true),
        ("v_subb_co_u32_e64 v4, s[4:5], v1, v2, s[2:3]", [3, 3], 1, 0, true),
        ("v_subbrev_co_u32_e64 v4, s[4:5], v1, v2, s[2:3]", [3, 5], 1, 1, false),
    ] {
        for exec in [!0, 1 << 5] {
            let mut bench = Bench::new();
            bench.wave.set_pair(scalar::EXEC, exec);
            bench.wave.set_pair(2, if carry == 1 { !0 } else { 0 });
            bench.set_v(1, sources[0]);
            bench.set_v(2, sources[1]);
            assert_eq!(bench.run(&format!("{operation} clamp")), None, "{operation}");
            let out = if expected_carry { exec } else { 0 };
            assert_eq!((bench.v(4, 5), bench.wave.pair(4)), (expected, out), "{operation} of {sources:x?}");
        }
    }
}

/// Products with a sum of 64 bits are clamped, too, and the bit above the sum goes out: of numbers with a sign that is the
/// sign, whether 64 bits hold the sum or not.
#[test]
fn products_with_wide_sums() {
    const LEAST: u64 = i64::MIN as u64;
    const MOST: u64 = i64::MAX as u64;
    let minus = |value: u32| value.wrapping_neg();
    let wide_minus = |value: u64| value.wrapping_neg();
    for (operation, [a, b], added, expected, clamped, above) in [
        ("v_mad_u64_u32", [1, 2], u64::MAX - 1, 0, u64::MAX, true),
        ("v_mad_u64_u32", [u32::MAX, u32::MAX], 0x1_ffff_fffe, u64::MAX, u64::MAX, false),
        ("v_mad_u64_u32", [minus(1), 1], LEAST, LEAST | 0xffff_ffff, LEAST | 0xffff_ffff, false),
        ("v_mad_i64_i32", [1, 2], MOST, MOST.wrapping_add(2), MOST, false),
        ("v_mad_i64_i32", [1, minus(2)], LEAST, MOST - 1, LEAST, true),
        ("v_mad_i64_i32", [1, 2], 5, 7, 7, false),
        ("v_mad_i64_i32", [minus(1), 2], 1, u64::MAX, u64::MAX, true),
        ("v_mad_i64_i32", [minus(3), minus(2)], wide_minus(6), 0, 0, false),
        ("v_mad_i64_i32", [1 << 31, 1 << 31], MOST, 0xbfff_ffff_ffff_ffff, MOST, false),
        ("v_mad_i64_i32", [1 << 31, minus(1)], wide_minus(1 << 31), 0, 0, false),
    ] {
        for (clamp, expected) in [("", expected), (" clamp", clamped)] {
            let mut bench = Bench::new();
            for (register, value) in [(1, a), (2, b), (6, added as u32), (7, (added >> 32) as u32)] {
                bench.set_v(register, value);
            }
            let text = format!("{operation} v[4:5], s[4:5], v1, v2, v[6:7]{clamp}");
            assert_eq!(bench.run(&text), None, "{text}");
            let found = u64::from(bench.v(4, 5)) | u64::from(bench.v(5, 5)) << 32;
            assert_eq!(found, expected, "{text} of {a:#x}, {b:#x} and {added:#x}: {found:#x}");
            assert_eq!(
                bench.wave.pair(4),
                if above { !0 } else { 0 },
                "{text} of {a:#x}, {b:#x} and {added:#x}"
            );
        }
    }
}

#[test]
fn sixteen_bits_keep_or_clear_the_upper_half() {
    vector("v_add_u16_e32 v4, v1, v2", [0xffff_0001, 0xffff_0002, 0], 3);
    vector("v_mad_u16 v4, v1, v2, v3", [2, 3, 4], 0xdead_000a);
    vector("v_mad_u16 v4, v1, v2, v3 op_sel:[1,0,0,1]", [0x0005_0002, 3, 4], 0x0013_beef);
    vector("v_add_f16_e32 v4, v1, v2", [0x3c00, 0x4000, 0], 0x4200);
    vector("v_fma_f16 v4, v1, v2, v3", [0x4000, 0x4000, 0x3c00], 0xdead_4500);
    vector("v_pk_add_u16 v4, v1, v2", [0x0001_0002, 0x0010_0020, 0], 0x0011_0022);
    vector(
        "v_pk_add_u16 v4, v1, v2 op_sel:[1,0] op_sel_hi:[0,1]",
        [0x0001_0002, 0x0010_0020, 0],
        0x0012_0021,
    );
    vector("v_pk_mul_f16 v4, v1, v2 neg_hi:[1,0]", [0x3c00_4000, 0x4000_4000, 0], 0xc000_4400);
    vector("v_fma_mix_f32 v4, v1, v2, v3 op_sel_hi:[1,0,0]", [0x3c00, 0x4000_0000, 0x3f80_0000], 0x4040_0000);
    vector("v_pack_b32_f16 v4, v1, v2 op_sel:[1,0,0]", [0x1234_5678, 0x1111_2222, 0], 0x2222_1234);
    vector("v_cvt_pkrtz_f16_f32 v4, v1, v2", [0x477f_ffff, 0x3f80_0000, 0], 0x3c00_7bff);
}

#[test]
fn parts_of_registers() {
    vector(
        "v_add_u32_sdwa v4, v1, v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:WORD_1",
        [0x0000_7f00, 0x0010_0000, 0],
        0x8f,
    );
    vector(
        "v_add_u32_sdwa v4, sext(v1), v2 dst_sel:DWORD dst_unused:UNUSED_PAD src0_sel:BYTE_1 src1_sel:DWORD",
        [0x0000_ff00, 5, 0],
        4,
    );
    vector(
        "v_mov_b32_sdwa v4, v1 dst_sel:BYTE_2 dst_unused:UNUSED_PRESERVE src0_sel:BYTE_0",
        [0x55, 0, 0],
        0xde55_beef,
    );
    vector(
        "v_mov_b32_sdwa v4, v1 dst_sel:BYTE_1 dst_unused:UNUSED_SEXT src0_sel:BYTE_0",
        [0x80, 0, 0],
        0xffff_8000,
    );
    vector(
        "v_mov_b32_sdwa v4, v1 dst_sel:WORD_1 dst_unused:UNUSED_PAD src0_sel:WORD_0",
        [0x1234, 0, 0],
        0x1234_0000,
    );
}

#[test]
fn other_lanes_values() {
    /// Which lane a lane reads, if any.
    type Source = fn(usize) -> Option<usize>;
    let patterns: [(&str, Source); 12] = [
        ("quad_perm:[1,0,3,2]", |lane| Some(lane ^ 1)),
        ("row_shl:2", |lane| (lane & 15 < 14).then(|| lane + 2)),
        ("row_shr:3", |lane| (lane & 15 >= 3).then(|| lane - 3)),
        ("row_ror:4", |lane| Some(lane & !15 | (lane + 12) & 15)),
        ("wave_shl:1", |lane| (lane < 63).then(|| lane + 1)),
        ("wave_rol:1", |lane| Some((lane + 1) & 63)),
        ("wave_shr:1", |lane| lane.checked_sub(1)),
        ("row_mirror", |lane| Some(lane ^ 15)),
        ("row_half_mirror", |lane| Some(lane ^ 7)),
        ("row_bcast:15", |lane| (lane >= 16).then(|| (lane & !15) - 1)),
        ("row_bcast:31", |lane| (lane >= 32).then_some(31)),
        ("row_newbcast:5", |lane| Some(lane & !15 | 5)),
    ];
    for (pattern, from) in patterns {
        for (bound, missing) in [("", 777), (" bound_ctrl:1", 0)] {
            let mut bench = Bench::new();
            bench.set_v(4, 777);
            let text = format!("v_mov_b32_dpp v4, v0 {pattern} row_mask:0xf bank_mask:0xf{bound}");
            assert_eq!(bench.run(&text), None);
            for lane in 0..64 {
                let expected = from(lane).map_or(missing, |from| from as u32);
                assert_eq!(bench.v(4, lane), expected, "{text}: lane {lane}");
            }
        }
    }
    let mut bench = Bench::new();
    bench.set_v(4, 777);
    bench.run("v_mov_b32_dpp v4, v0 quad_perm:[0,1,2,3] row_mask:0x5 bank_mask:0x3");
    for lane in 0..64 {
        let written = lane / 16 % 2 == 0 && lane / 4 % 4 < 2;
        assert_eq!(bench.v(4, lane), if written { lane as u32 } else { 777 }, "lane {lane}");
    }
}

#[test]
fn comparisons_clear_inactive_lanes_and_write_exec() {
    let mut bench = Bench::new();
    bench.wave.set_pair(scalar::VCC, !0);
    bench.wave.set_pair(scalar::EXEC, 0xff);
    assert_eq!(bench.run("v_cmp_gt_u32_e32 vcc, 4, v0"), None);
    assert_eq!(bench.wave.pair(scalar::VCC), 0xf);
    assert_eq!(bench.run("v_cmpx_lt_u32_e64 s[6:7], 1, v0"), None);
    assert_eq!((bench.wave.pair(6), bench.wave.exec()), (0xfc, 0xfc));
    let mut bench = Bench::new();
    bench.set_v(1, f32::NAN.to_bits());
    bench.run(
        "v_cmp_nge_f32_e64 s[2:3], v1, v1\nv_cmp_u_f32_e64 s[4:5], v1, v1\nv_cmp_lg_f32_e64 s[6:7], v1, v1",
    );
    assert_eq!((bench.wave.pair(2), bench.wave.pair(4), bench.wave.pair(6)), (!0, !0, 0));
}

#[test]
fn floats_with_modifiers() {
    let bits = |value: f32| value.to_bits();
    vector("v_add_f32_e64 v4, -v1, |v2|", [bits(1.0), bits(-3.0), 0], bits(2.0));
    vector("v_add_f32_e64 v4, v1, v2 clamp", [bits(1.0), bits(3.0), 0], bits(1.0));
    // Results are multiplied unless MODE says IEEE or keeps denormals of the format.
    let no_ieee = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 9, 1), 0\n";
    let scaled = format!("{no_ieee}s_setreg_imm32_b32 hwreg(HW_REG_MODE, 5, 1), 0\n");
    vector(&format!("{scaled}v_add_f32_e64 v4, v1, v2 mul:4"), [bits(1.0), bits(3.0), 0], bits(16.0));
    vector(&format!("{scaled}v_add_f32_e64 v4, v1, v2 div:2"), [bits(1.0), bits(3.0), 0], bits(2.0));
    vector(&format!("{scaled}v_add_f32_e64 v4, v1, v2 mul:2"), [bits(-0.0), bits(-0.0), 0], 0);
    vector(&format!("{no_ieee}v_add_f32_e64 v4, v1, v2 mul:4"), [bits(1.0), bits(3.0), 0], bits(4.0));
    vector(&format!("{scaled}v_add_f16_e64 v4, v1, v2 mul:4"), [0x3c00, 0x3c00, 0], 0x4000);
    vector("v_add_f32_e64 v4, v1, v2 mul:4", [bits(1.0), bits(3.0), 0], bits(4.0));
    // Without DX10_CLAMP a clamped result that is no number stays so.
    let no_dx10 = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 8, 1), 0\n";
    vector("v_pk_add_f16 v4, v1, v2 clamp", [0x7e00_4000, 0x3c00_3c00, 0], 0x3c00);
    vector(&format!("{no_dx10}v_pk_add_f16 v4, v1, v2 clamp"), [0x7e00_4000, 0x3c00_3c00, 0], 0x7e00_3c00);
    let sum = "v_fma_mix_f32 v4, v1, v2, v3 clamp";
    vector(sum, [bits(f32::NAN), bits(1.0), 0], 0);
    vector(&format!("{no_dx10}{sum}"), [bits(f32::NAN), bits(1.0), 0], bits(f32::NAN));
    vector("v_min_f32_e32 v4, v1, v2", [bits(0.0), bits(-0.0), 0], bits(-0.0));
    vector("v_max_f32_e32 v4, v1, v2", [bits(f32::NAN), bits(2.0), 0], bits(2.0));
    vector("v_add_f32_e32 v4, v1, v2", [bits(f32::INFINITY), bits(f32::NEG_INFINITY), 0], 0x7fc0_0000);
    vector("v_add_f32_e32 v4, v1, v2", [0xffa0_0001, bits(1.0), 0], 0xffe0_0001);
    vector("v_fract_f32_e32 v4, v1", [bits(-1e-30), 0, 0], 0x3f7f_ffff);
    vector("v_fract_f32_e32 v4, v1", [0x7f80_0001, 0, 0], 0x7fc0_0001);
    vector("v_fract_f32_e32 v4, v1", [bits(f32::INFINITY), 0, 0], 0x7fc0_0000);
    vector("v_fract_f16_e32 v4, v1", [0xfe00, 0, 0], 0xfe00);
    // Sums of products have no denormals, whatever MODE says of them.
    vector("v_dot2_f32_f16 v4, v1, v2, v3", [0x3c00_03ff, 0x3c00_7bff, bits(1.0)], bits(2.0));
    vector("v_dot2_f32_f16 v4, v1, v2, v3", [0, 0, 0x8040_0000], 0);
    vector("v_dot2_f32_f16 v4, v1, v2, v3", [0x8000_8000, 0x3c00_3c00, 0x807f_ffff], 0x8000_0000);
    vector("v_dot2_i32_i16 v4, v1, v2, v3", [1, 1, 0x807f_ffff], 0x8080_0000);
    vector("v_frexp_exp_i32_f32_e32 v4, v1", [bits(8.0), 0, 0], 4);
    vector("v_frexp_mant_f32_e32 v4, v1", [bits(-6.0), 0, 0], bits(-0.75));
    vector("v_ldexp_f32 v4, v1, v2", [bits(1.5), (-149i32) as u32, 0], 2);
    vector("v_cvt_i32_f32_e32 v4, v1", [bits(-3e9), 0, 0], i32::MIN as u32);
    vector("v_cvt_u32_f32_e32 v4, v1", [bits(f32::NAN), 0, 0], 0);
    vector("v_cvt_pk_u8_f32 v4, v1, v2, v3", [bits(300.0), 1, 0x1111_1111], 0x1111_ff11);
    vector("v_med3_f32 v4, v1, v2, v3", [bits(1.0), bits(5.0), bits(3.0)], bits(3.0));
    // Of the sources without the first one that equals the greatest the greater one: zeros are equal.
    vector("v_med3_f32 v4, v1, v2, v3", [bits(-0.0), bits(0.0), bits(-1.0)], bits(0.0));
    vector("v_med3_f32 v4, v1, v2, v3", [bits(0.0), bits(-0.0), bits(-1.0)], bits(-0.0));
    vector("v_med3_f32 v4, v1, v2, v3", [bits(f32::NAN), bits(5.0), bits(3.0)], bits(3.0));
    vector("v_mul_legacy_f32 v4, v1, v2", [bits(0.0), bits(f32::INFINITY), 0], 0);
    // Denormals become 0 if MODE says so.
    vector("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\nv_add_f32_e32 v4, v1, v2", [1, bits(0.0), 0], 0);
    vector("v_add_f32_e32 v4, v1, v2", [1, bits(0.0), 0], 1);
}

#[test]
fn roundings_are_those_of_mode() {
    // 1 + 2⁻²⁴, −1 − 2⁻²⁴ and their neighbours: MODE counts the nearest, up, down and towards zero.
    let bits = |value: f32| value.to_bits();
    for (rounding, positive, negative) in [
        (0, 0x3f80_0000, 0xbf80_0000),
        (1, 0x3f80_0001, 0xbf80_0000),
        (2, 0x3f80_0000, 0xbf80_0001),
        (3, 0x3f80_0000, 0xbf80_0000),
    ] {
        let mode = format!("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), {rounding}\n");
        let place = bits(2f32.powi(-24));
        vector(&format!("{mode}v_add_f32_e32 v4, v1, v2"), [bits(1.0), place, 0], positive);
        vector(&format!("{mode}v_sub_f32_e32 v4, v1, v2"), [bits(-1.0), place, 0], negative);
        // Numbers that become narrower are rounded by the field of 64 bits.
        let double = [0, 1 << 28, 0x3ff0_0000];
        vector(&format!("{mode}v_cvt_f32_f64_e32 v4, v[2:3]"), double, 0x3f80_0000);
        let mode = format!("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 2, 2), {rounding}\n");
        vector(&format!("{mode}v_cvt_f32_f64_e32 v4, v[2:3]"), double, positive);
        vector(&format!("{mode}v_add_f32_e32 v4, v1, v2"), [bits(1.0), place, 0], 0x3f80_0000);
    }
    // Of sources that are negative, absolute, parts of registers or of other lanes, and of results that are clamped.
    let up = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\n";
    let small = bits(1e-20);
    vector(&format!("{up}v_add_f32_e64 v4, |v1|, -v2"), [bits(-1.0), small, 0], bits(1.0));
    vector(&format!("{up}v_add_f32_e64 v4, v1, v2 clamp"), [bits(1.0), small, 0], bits(1.0));
    vector(
        &format!("{up}v_add_f32_dpp v4, v1, v2 quad_perm:[1,1,1,1] row_mask:0xf bank_mask:0xf"),
        [bits(1.0), small, 0],
        0x3f80_0001,
    );
    vector(
        &format!("{up}v_fma_mix_f32 v4, v1, v2, v3 op_sel_hi:[1,0,0]"),
        [0x3c00, bits(1.0), small],
        0x3f80_0001,
    );
    vector(&format!("{up}v_fract_f32_e32 v4, v1"), [bits(-1e-9), 0, 0], 0x3f7f_ffff);
    vector(&format!("{up}v_mul_f32_e32 v4, v1, v2"), [bits(f32::MAX), bits(-2.0), 0], bits(f32::MIN));
    vector(&format!("{up}v_mul_f32_e32 v4, v1, v2"), [bits(f32::MAX), bits(2.0), 0], bits(f32::INFINITY));
    vector(&format!("{up}v_mul_f32_e32 v4, v1, v2"), [bits(f32::INFINITY), 0, 0], 0x7fc0_0000);
    // Numbers of eight bits are always the nearest.
    vector(&format!("{up}v_cvt_pk_fp8_f32 v4, v1, v2"), [bits(1.0625), bits(-1.0625), 0], 0xdead_c040);
    vector(&format!("{up}v_cvt_pk_bf8_f32 v4, v1, v2 op_sel:[0,0,1]"), [bits(1.125), 0, 0], 0x0040_beef);
    // A difference of 0 is negative where it is rounded down.
    let down = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 2\n";
    vector(&format!("{down}v_sub_f32_e32 v4, v1, v2"), [bits(5.0), bits(5.0), 0], bits(-0.0));
    // What is not known to round in the one or the other way stops the wave, and names itself.
    let fault = Bench::new().run(&format!("{up}v_cubema_f32 v4, v1, v2, v3")).map(|fault| fault.to_string());
    let text = "the interpreter cannot execute `v_cubema_f32 v4, v1, v2, v3` (0xd1c70004 0x040e0501) with the rounding of MODE 0x3f1";
    assert_eq!(fault.as_deref(), Some(text));
    // Sums of products take no notice of the rounding: 1 + 2⁻²⁴.
    let products = [0x0c00_3c00, 0x0c00_3c00, 0];
    for rounding in 0..16 {
        let mode = format!("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 4), {rounding}\n");
        vector(&format!("{mode}v_dot2_f32_f16 v4, v1, v2, v3"), products, bits(1.0));
    }
    let fault =
        Bench::new().run("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 23, 1), 1").map(|fault| fault.to_string());
    let text =
        "the interpreter cannot execute s_setreg: MODE 0x8003f0, which asks for what the interpreter lacks";
    assert_eq!(fault.as_deref(), Some(text));
}

#[test]
fn denormals_of_sources_and_results_are_kept_apart() {
    let bits = |value: f32| value.to_bits();
    let half = bits(0.5);
    // The least normal number, whose half is denormal, and a denormal number whose double is normal.
    let (normal, denormal) = (0x0080_0000, 0x0040_0000);
    let pair = |text: &str| {
        format!(
            "v_mov_b32 v6, v2\nv_mov_b32 v7, v2\nv_mov_b32 v8, v1\nv_mov_b32 v9, v1\n{text} v[4:5], v[8:9], v[6:7]"
        )
    };
    // MODE's bits 4 and 5, and whether denormals of sources and of results are kept.
    for (field, sources, results) in [(0, false, false), (1, true, false), (2, false, true), (3, true, true)]
    {
        let mode = format!("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), {field}\n");
        let doubled = if sources { normal } else { 0 };
        let halved = if results { denormal } else { 0 };
        for text in [
            "v_mul_f32_e32 v4, v1, v2".to_owned(),
            pair("v_pk_mul_f32"),
            "v_mov_b32 v3, 0\nv_fma_mix_f32 v4, v1, v2, v3".to_owned(),
        ] {
            vector(&format!("{mode}{text}"), [denormal, bits(2.0), 0], doubled);
            vector(&format!("{mode}{text}"), [normal, half, 0], halved);
        }
        // The last step of a division takes denormals in every mode.
        let fused = "v_mov_b32 v3, 0\nv_div_fmas_f32 v4, v1, v2, v3";
        vector(&format!("{mode}{fused}"), [denormal, bits(2.0), 0], normal);
        vector(&format!("{mode}{fused}"), [normal, half, 0], halved);
        let rounded = "s_setreg_imm32_b32 hwreg(HW_REG_MODE, 0, 2), 1\n";
        vector(&format!("{mode}{rounded}{fused}"), [denormal, bits(2.0), 0], normal);
        let mode = format!("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 6, 2), {field}\n");
        let wide = "v_mov_b32 v6, 0\nv_mov_b32 v7, v1\nv_mov_b32 v8, 0\nv_mov_b32 v9, v2\nv_mov_b64 v[10:11], 0\n\
                    v_div_fmas_f64 v[12:13], v[6:7], v[8:9], v[10:11]\nv_mov_b32 v4, v13";
        vector(&format!("{mode}{wide}"), [0x0008_0000, 0x4000_0000, 0], 0x0010_0000);
        let doubled = if sources { 0x0400_0400 } else { 0 };
        let halved = if results { 0x0200_0200 } else { 0 };
        for text in ["v_pk_mul_f16 v4, v1, v2", "v_mov_b32 v4, 0\nv_pk_fmac_f16 v4, v1, v2"] {
            vector(&format!("{mode}{text}"), [0x0200_0200, 0x4000_4000, 0], doubled);
            vector(&format!("{mode}{text}"), [0x0400_0400, 0x3800_3800, 0], halved);
        }
        vector(&format!("{mode}v_mul_f16_e32 v4, v1, v2"), [0x0200, 0x4000, 0], doubled & 0xffff);
        vector(&format!("{mode}v_mul_f16_e32 v4, v1, v2"), [0x0400, 0x3800, 0], halved & 0xffff);
    }
}

#[test]
fn memory_of_all_kinds() {
    let mut bench = Bench::new();
    let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
    bench.wave.set_pair(2, buffer);
    bench.set_v(1, 0x8877_6655);
    let text = "
        v_lshlrev_b32_e32 v2, 3, v0
        global_store_dword v2, v1, s[2:3] offset:4
        global_load_sbyte v3, v2, s[2:3] offset:7
        global_load_short_d16_hi v4, v2, s[2:3] offset:4
        global_load_ubyte v5, v2, s[2:3] offset:5
        ds_write_b32 v2, v0
        ds_write_b8 v2, v1 offset:4
        ds_read_b64 v[6:7], v2
        ds_read2_b32 v[8:9], v2 offset0:1 offset1:0
        scratch_store_dword off, v0, off offset:16
        scratch_load_dword v10, off, off offset:16
        v_mov_b32_e32 v11, 5
        global_atomic_add v12, v2, v11, s[2:3] offset:4 sc0
        s_load_dwordx2 s[8:9], s[2:3], 0xc
        s_waitcnt vmcnt(0)";
    assert_eq!(bench.run(text), None);
    for lane in [0, 1, 63] {
        let registers = [3, 4, 5, 6, 7, 8, 9, 10, 12].map(|register| bench.v(register, lane));
        let lane = lane as u32;
        assert_eq!(
            registers,
            [0xffff_ff88, 0x6655_0000, 0x66, lane, 0x55, 0x55, lane, lane, 0x8877_6655],
            "{lane}"
        );
    }
    assert_eq!(bench.memory.view().load_u32(buffer + 8 * 63 + 4), Ok(0x8877_665a));
    assert_eq!(bench.wave.s[8], 0x8877_665a);
}

#[test]
fn local_addresses_wrap_around() {
    let mut bench = Bench::new();
    bench.set_v(1, 0xffff_fff0);
    bench.set_v(2, 77);
    let text = "ds_write_b32 v1, v2 offset:32
        ds_read2_b32 v[4:5], v1 offset0:8 offset1:9";
    assert_eq!(bench.run(text), None);
    assert_eq!((bench.v(4, 0), bench.v(5, 0)), (77, 0));
}

#[test]
fn faults_name_what_happened() {
    let mut bench = Bench::new();
    bench.wave.set_pair(2, 0x5000_0000);
    let fault = bench.run("s_nop 0\nglobal_load_dword v1, v0, s[2:3]");
    assert_eq!(fault, Some(Fault::Memory { address: 0x5000_0000, write: false }));
    assert_eq!(bench.wave.pc, PC + 4);
    let mut bench = Bench::new();
    bench.set_v(1, 2000);
    let fault = bench.run("ds_write_b32 v1, v0");
    assert_eq!(fault, Some(Fault::Aperture { space: "local", offset: 2000, bytes: 1024 }));
    let fault = Bench::new().run("s_movk_i32 s2, 0x100\nscratch_store_dword off, v0, s2");
    assert_eq!(fault, Some(Fault::Aperture { space: "scratch", offset: 256, bytes: 256 }));
    assert_eq!(Bench::new().run("s_trap 2"), Some(Fault::Trap { number: 2 }));
    // Only a debugger makes a wave that halts go on.
    assert_eq!(Bench::new().run("s_sethalt 0\ns_sethalt 5"), Some(Fault::Halt));
    // The trap for debuggers is passed by.
    assert_eq!(Bench::new().run("s_trap 3\ns_trap 1"), Some(Fault::Trap { number: 1 }));
    assert_eq!(Bench::new().run("s_branch 0x7000"), Some(Fault::Fetch));
    let fault = Bench::new().run_words(vec![0xf800_0000, 0]);
    assert_eq!(fault, Some(Fault::Illegal { words: [0xf800_0000, 0] }));
    let missing = Bench::new().run("s_rfe_b64 s[2:3]").map(|fault| fault.to_string());
    assert_eq!(missing.as_deref(), Some("the interpreter cannot execute `s_rfe_b64 s[2:3]` (0xbe801f02)"));
}

/// Registers that other processors have, and that LLVM's disassembler knows.
#[test]
fn registers_that_are_not_there_stop_a_wave() {
    let stops = |word: u32, text: &str| {
        let mut bench = Bench::new();
        let fault = bench.run_words(vec![word, 0xbf81_0000]).map(|fault| fault.to_string());
        assert_eq!(fault, Some(format!("the interpreter cannot execute `{text}` ({word:#010x})")));
        assert_eq!(bench.wave.exec(), !0, "{text}");
    };
    stops(0xbefd_0102, "s_mov_b64 null, s[2:3]");
    stops(0xbe80_007d, "s_mov_b32 s0, null");
    stops(0x7e00_02fe, "v_mov_b32_e32 v0, src_lds_direct");
    let mut bench = Bench::new();
    let fault = bench.run("v_dot2c_f32_f16_e64 v4, -v1, v2").map(|fault| fault.to_string());
    let text = "the interpreter cannot execute v_dot2c_f32_f16 with signs of pairs changed";
    assert_eq!(fault.as_deref(), Some(text));
}

#[test]
fn atomics_of_local_and_scratch_memory_are_aligned() {
    for (address, text) in [
        (2, "ds_add_u32 v1, v2"),
        (4, "ds_add_u64 v1, v[2:3]"),
        (6, "ds_wrxchg_rtn_b32 v4, v1, v2"),
        (1, "ds_append v4 offset:2"),
    ] {
        let mut bench = Bench::new();
        bench.lds.fill(0x55);
        bench.set_v(1, address);
        let fault = bench.run(text);
        let alignment = if text.contains("u64") { 8 } else { 4 };
        let address = if text.contains("append") { 2 } else { u64::from(address) };
        assert_eq!(fault, Some(Fault::Misaligned { space: "local", address, alignment }), "{text}");
        assert!(bench.lds.iter().all(|&byte| byte == 0x55), "{text}");
    }
    // The aperture of scratch memory.
    let mut bench = Bench::new();
    let fault = bench.run(
        "s_mov_b64 s[2:3], src_private_base\nv_mov_b32 v2, 6\nv_mov_b32 v3, s3\nflat_atomic_add v[2:3], v1",
    );
    assert_eq!(fault, Some(Fault::Misaligned { space: "scratch", address: 6, alignment: 4 }));
}

/// Shifts by more than four places are none.
#[test]
fn wide_sums_with_a_shift() {
    for shift in 0..40 {
        let mut bench = Bench::new();
        for (register, value) in [(2, 0x8000_0001), (3, 1), (6, u32::MAX), (7, 0), (1, shift)] {
            bench.set_v(register, value);
        }
        assert_eq!(bench.run("v_lshl_add_u64 v[4:5], v[2:3], v1, v[6:7]"), None);
        let expected = (0x1_8000_0001u64 << if shift > 4 { 0 } else { shift }) + u64::from(u32::MAX);
        let found = u64::from(bench.v(4, 9)) | u64::from(bench.v(5, 9)) << 32;
        assert_eq!(found, expected, "by {shift}");
    }
}

/// Of A and B, products of 32 bits take denormals for 0 where MODE says so; C and D keep theirs.
#[test]
fn products_of_matrices_heed_the_denormals_of_mode() {
    for (mode, product) in [("", 0x0040_0000u32 * 2), ("s_setreg_imm32_b32 hwreg(HW_REG_MODE, 4, 2), 0\n", 0)]
    {
        let mut bench = Bench::new();
        bench.set_v(1, 0x0040_0000);
        bench.set_v(2, 2f32.to_bits());
        (4..8).for_each(|register| bench.set_v(register, 1));
        assert_eq!(bench.run(&format!("{mode}v_mfma_f32_4x4x1_16b_f32 v[4:7], v1, v2, v[4:7]")), None);
        assert_eq!(bench.v(4, 0), product + 1, "{mode}");
    }
}

/// Of two equal offsets of local memory there is one access.
#[test]
fn two_places_of_local_memory_may_be_one() {
    let mut bench = Bench::new();
    bench.wave.set_pair(scalar::EXEC, 1);
    let text =
        "v_mov_b32 v1, 4\nv_mov_b32 v2, 7\nv_mov_b32 v3, 8\nds_write2_b32 v1, v2, v3 offset0:1 offset1:1";
    assert_eq!(bench.run(text), None);
    assert_eq!(bench.lds[8..12], 7u32.to_le_bytes());
    let fault = bench.run("ds_wrxchg2_rtn_b32 v[4:5], v1, v2, v3 offset0:1 offset1:1");
    assert!(matches!(fault, Some(Fault::Missing { .. })), "{fault:?}");
    assert_eq!(bench.lds[8..12], 7u32.to_le_bytes());
}

/// The highest bit of the field of a flat offset means nothing.
#[test]
fn flat_offsets_have_twelve_bits() {
    let mut bench = Bench::new();
    let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
    bench.memory.view().store_u32(buffer + 8, 77).expect("it is inside");
    bench.set_v(2, buffer as u32);
    bench.set_v(3, (buffer >> 32) as u32);
    // flat_load_dword v1, v[2:3] with 0x1008 in the field.
    assert_eq!(bench.run_words(vec![0xdc50_1008, 0x0100_0002, 0xbf81_0000]), None);
    assert_eq!(bench.v(1, 0), 77);
}

#[test]
fn indexed_registers() {
    let mut bench = Bench::new();
    bench.set_v(7, 70);
    bench.wave.s[2] = 3;
    bench.run(
        "s_set_gpr_idx_on s2, gpr_idx(SRC0)\nv_mov_b32_e32 v1, v4\ns_set_gpr_idx_off\nv_mov_b32_e32 v2, v4",
    );
    assert_eq!((bench.v(1, 0), bench.v(2, 0)), (70, 0));
    bench.run("s_set_gpr_idx_on s2, gpr_idx(DST)\nv_mov_b32_e32 v6, 9\ns_set_gpr_idx_off");
    assert_eq!(bench.v(9, 0), 9);
}

#[test]
fn byte_differences_and_scalar_atomics() {
    let mut bench = Bench::new();
    bench.set_v(2, 0x0403_0201);
    bench.set_v(3, 0x0807_0605);
    bench.set_v(4, 0x0000_0102);
    bench.set_v(6, 0x0001_0000);
    assert_eq!(bench.run("v_qsad_pk_u16_u8 v[8:9], v[2:3], v4, v[6:7]"), None);
    // |1−2|+|2−1|+3+4, one byte on |2−2|+|3−1|+4+5, and the 1 of the sum; and so on.
    assert_eq!((bench.v(8, 5), bench.v(9, 5)), (0x000c_0009, 0x0013_000f));
    assert_eq!(bench.run("v_mqsad_pk_u16_u8 v[8:9], v[2:3], v4, v[6:7]"), None);
    assert_eq!((bench.v(8, 5), bench.v(9, 5)), (0x0003_0002, 0x0006_0004));
    let buffer = bench.memory.allocate(4096, Use::Pool).expect("there is memory");
    bench.wave.set_pair(2, buffer);
    bench.wave.set_pair(4, 7);
    let text = "s_store_dword s4, s[2:3], 0x8
        s_atomic_add s4, s[2:3], 0x8 glc
        s_atomic_cmpswap s[4:5], s[2:3], 0x8 glc";
    assert_eq!(bench.run(text), None);
    assert_eq!(bench.wave.s[4], 14);
    assert_eq!(bench.memory.view().load_u32(buffer + 8), Ok(14));
}

#[test]
fn places_of_two_over_pi_reduce_arguments() {
    let mut bench = Bench::new();
    let value = 1e22f64.to_bits();
    bench.set_v(2, value as u32);
    bench.set_v(3, (value >> 32) as u32);
    let text = "v_trig_preop_f64 v[4:5], v[2:3], 0
        v_trig_preop_f64 v[6:7], v[2:3], 1
        v_trig_preop_f64 v[8:9], 1.0, 0";
    assert_eq!(bench.run(text), None);
    let wide = |register| u64::from(bench.v(register, 0)) | u64::from(bench.v(register + 1, 0)) << 32;
    assert_eq!(f64::from_bits(wide(8)), f64::from_bits(0x3fe4_5f30_6dc9_c882), "2/π, cut after 53 places");
    let (first, second) = (f64::from_bits(wide(4)), f64::from_bits(wide(6)));
    assert!(second > 0.0 && second < first * f64::EPSILON, "{first:e} {second:e}");
}

#[test]
fn what_is_missing_is_known() {
    use hostcall_softhsa::exec::coverage::{self, Exactness};
    let report = coverage::report();
    let missing = report.iter().filter(|(_, (exactness, _))| *exactness == Exactness::Missing);
    let kinds: BTreeSet<&str> = missing
        .map(|(mnemonic, _)| {
            let known = [
                "buffer_load_format",
                "buffer_store_format",
                "tbuffer_load_format",
                "tbuffer_store_format",
                "ds_gws",
                "s_atc_probe",
                "s_dcache_discard",
                "s_rfe",
                "s_scratch_load",
                "s_scratch_store",
            ];
            known.into_iter().find(|kind| mnemonic.starts_with(kind)).unwrap_or(mnemonic)
        })
        .collect();
    let expected = [
        "buffer_load_format",
        "buffer_store_format",
        "buffer_store_lds_dword",
        "ds_gws",
        "s_atc_probe",
        "s_cbranch_g_fork",
        "s_cbranch_i_fork",
        "s_cbranch_join",
        "s_dcache_discard",
        "s_rfe",
        "s_scratch_load",
        "s_scratch_store",
        "s_sendmsghalt",
        "s_setvskip",
        "tbuffer_load_format",
        "tbuffer_store_format",
        "v_screen_partition_4se_b32",
    ];
    assert_eq!(kinds.into_iter().collect::<Vec<_>>(), expected);
}
