//! Scalar operations on edge cases.

use crate::bench::{Bench, assemble_all};
use crate::{EDGES, low, signed};
use hostcall_softhsa::exec::wave::scalar;

/// A wave's scalar state: s[2:3], s[4:5], the old s[8:9] and the condition code.
#[derive(Clone, Copy, Debug)]
struct Before {
    a: u64,
    b: u64,
    d: u64,
    scc: bool,
}

/// Returns s[8:9], of which the upper half stays in operations of 32 bits, and the condition code.
type Model = fn(Before) -> (u64, bool);

/// A condition code that says whether the result is not 0.
fn truth(value: u64) -> (u64, bool) {
    (value, value != 0)
}

fn truth32(value: u64) -> (u64, bool) {
    truth(low(value, 32))
}

fn bit(value: u64, index: u64) -> bool {
    value >> index & 1 != 0
}

/// Returns the place of the first bit from the lowest on that is so, or −1.
fn first(value: u64, bits: u64, wanted: bool) -> u64 {
    (0..bits).find(|&index| bit(value, index) == wanted).unwrap_or(u64::MAX)
}

/// Returns how many bits from the highest on differ from `wanted`, or −1 if all do.
fn leading(value: u64, bits: u64, wanted: bool) -> u64 {
    (0..bits).find(|&index| bit(value, bits - 1 - index) == wanted).unwrap_or(u64::MAX)
}

/// Returns a bit for each four that are not all 0.
fn quads(value: u64, bits: u64) -> u64 {
    (0..bits / 4).map(|quad| u64::from(value >> (4 * quad) & 15 != 0) << quad).sum()
}

fn wide_quads(value: u64, bits: u64) -> u64 {
    (0..bits / 4).map(|quad| if value >> (4 * quad) & 15 != 0 { 15 << (4 * quad) } else { 0 }).sum()
}

fn half(value: u64, index: u32) -> u64 {
    value >> (16 * index) & 0xffff
}

/// Returns a sum with a carry of 32 bits.
fn shifted_sum(a: u64, shift: u32, b: u64) -> (u64, bool) {
    let sum = (low(a, 32) << shift) + low(b, 32);
    (sum, sum >> 32 != 0)
}

const OPERATIONS: &[(&str, Model)] = &[
    ("s_abs_i32 s8, s2", |x| truth32(signed(x.a, 32).unsigned_abs() as u64)),
    ("s_and_b32 s8, s2, s4", |x| truth32(x.a & x.b)),
    ("s_andn2_b32 s8, s2, s4", |x| truth32(x.a & !x.b)),
    ("s_andn2_b64 s[8:9], s[2:3], s[4:5]", |x| truth(x.a & !x.b)),
    ("s_nand_b32 s8, s2, s4", |x| truth32(!(x.a & x.b))),
    ("s_nand_b64 s[8:9], s[2:3], s[4:5]", |x| truth(!(x.a & x.b))),
    ("s_nor_b32 s8, s2, s4", |x| truth32(!(x.a | x.b))),
    ("s_nor_b64 s[8:9], s[2:3], s[4:5]", |x| truth(!(x.a | x.b))),
    ("s_xnor_b32 s8, s2, s4", |x| truth32(!(x.a ^ x.b))),
    ("s_xnor_b64 s[8:9], s[2:3], s[4:5]", |x| truth(!(x.a ^ x.b))),
    ("s_orn2_b32 s8, s2, s4", |x| truth32(x.a | !x.b)),
    ("s_orn2_b64 s[8:9], s[2:3], s[4:5]", |x| truth(x.a | !x.b)),
    ("s_not_b32 s8, s2", |x| truth32(!x.a)),
    ("s_not_b64 s[8:9], s[2:3]", |x| truth(!x.a)),
    ("s_ashr_i64 s[8:9], s[2:3], s4", |x| {
        let mut value = x.a;
        (0..x.b % 64).for_each(|_| value = value >> 1 | value & 1 << 63);
        truth(value)
    }),
    ("s_bcnt0_i32_b32 s8, s2", |x| truth((0..32).filter(|&index| !bit(x.a, index)).count() as u64)),
    ("s_bcnt0_i32_b64 s8, s[2:3]", |x| truth((0..64).filter(|&index| !bit(x.a, index)).count() as u64)),
    ("s_bfe_u64 s[8:9], s[2:3], s4", |x| {
        let (offset, width) = (x.b & 63, x.b >> 16 & 127);
        truth((0..width.min(64 - offset)).map(|index| u64::from(bit(x.a, offset + index)) << index).sum())
    }),
    ("s_bfm_b32 s8, s2, s4", |x| {
        let (width, offset) = (x.a % 32, x.b % 32);
        ((offset..offset + width).filter(|&index| index < 32).map(|index| 1 << index).sum(), x.scc)
    }),
    ("s_bfm_b64 s[8:9], s2, s4", |x| {
        let (width, offset) = (x.a % 64, x.b % 64);
        ((offset..offset + width).filter(|&index| index < 64).map(|index| 1 << index).sum(), x.scc)
    }),
    ("s_bitcmp0_b32 s2, s4", |x| (x.d, !bit(x.a, x.b % 32))),
    ("s_bitcmp0_b64 s[2:3], s4", |x| (x.d, !bit(x.a, x.b % 64))),
    ("s_bitcmp1_b64 s[2:3], s4", |x| (x.d, bit(x.a, x.b % 64))),
    ("s_bitset0_b32 s8, s2", |x| (x.d & !(1 << (x.a % 32)), x.scc)),
    ("s_bitset1_b32 s8, s2", |x| (x.d | 1 << (x.a % 32), x.scc)),
    ("s_bitset0_b64 s[8:9], s2", |x| (x.d & !(1 << (x.a % 64)), x.scc)),
    ("s_bitset1_b64 s[8:9], s2", |x| (x.d | 1 << (x.a % 64), x.scc)),
    ("s_brev_b64 s[8:9], s[2:3]", |x| {
        ((0..64).map(|index| u64::from(bit(x.a, index)) << (63 - index)).sum(), x.scc)
    }),
    ("s_cmov_b32 s8, s2", |x| (if x.scc { x.a } else { x.d }, x.scc)),
    ("s_cmov_b64 s[8:9], s[2:3]", |x| (if x.scc { x.a } else { x.d }, x.scc)),
    ("s_cmovk_i32 s8, 0x8001", |x| (if x.scc { 0xffff_8001 } else { x.d }, x.scc)),
    ("s_cmp_eq_i32 s2, s4", |x| (x.d, signed(x.a, 32) == signed(x.b, 32))),
    ("s_cmp_lg_i32 s2, s4", |x| (x.d, signed(x.a, 32) != signed(x.b, 32))),
    ("s_cmp_ge_i32 s2, s4", |x| (x.d, signed(x.a, 32) >= signed(x.b, 32))),
    ("s_cmp_gt_i32 s2, s4", |x| (x.d, signed(x.a, 32) > signed(x.b, 32))),
    ("s_cmp_le_i32 s2, s4", |x| (x.d, signed(x.a, 32) <= signed(x.b, 32))),
    ("s_cmp_lt_i32 s2, s4", |x| (x.d, signed(x.a, 32) < signed(x.b, 32))),
    ("s_cmp_ge_u32 s2, s4", |x| (x.d, low(x.a, 32) >= low(x.b, 32))),
    ("s_cmp_gt_u32 s2, s4", |x| (x.d, low(x.a, 32) > low(x.b, 32))),
    ("s_cmp_le_u32 s2, s4", |x| (x.d, low(x.a, 32) <= low(x.b, 32))),
    ("s_cmp_lt_u32 s2, s4", |x| (x.d, low(x.a, 32) < low(x.b, 32))),
    ("s_cmpk_ge_i32 s2, 0xffff", |x| (x.d, signed(x.a, 32) >= -1)),
    ("s_cmpk_gt_i32 s2, 0xffff", |x| (x.d, signed(x.a, 32) > -1)),
    ("s_cmpk_le_i32 s2, 0x5", |x| (x.d, signed(x.a, 32) <= 5)),
    ("s_cmpk_lt_i32 s2, 0x5", |x| (x.d, signed(x.a, 32) < 5)),
    ("s_cmpk_eq_u32 s2, 0x5", |x| (x.d, low(x.a, 32) == 5)),
    ("s_cmpk_ge_u32 s2, 0xffff", |x| (x.d, low(x.a, 32) >= 0xffff)),
    ("s_cmpk_gt_u32 s2, 0xffff", |x| (x.d, low(x.a, 32) > 0xffff)),
    ("s_cmpk_le_u32 s2, 0x5", |x| (x.d, low(x.a, 32) <= 5)),
    ("s_cmpk_lt_u32 s2, 0x5", |x| (x.d, low(x.a, 32) < 5)),
    ("s_ff0_i32_b32 s8, s2", |x| (first(x.a, 32, false), x.scc)),
    ("s_ff0_i32_b64 s8, s[2:3]", |x| (first(x.a, 64, false), x.scc)),
    ("s_ff1_i32_b64 s8, s[2:3]", |x| (first(x.a, 64, true), x.scc)),
    ("s_flbit_i32_b64 s8, s[2:3]", |x| (leading(x.a, 64, true), x.scc)),
    ("s_flbit_i32 s8, s2", |x| (leading(x.a, 32, !bit(x.a, 31)), x.scc)),
    ("s_flbit_i32_i64 s8, s[2:3]", |x| (leading(x.a, 64, !bit(x.a, 63)), x.scc)),
    ("s_lshl1_add_u32 s8, s2, s4", |x| shifted_sum(x.a, 1, x.b)),
    ("s_lshl2_add_u32 s8, s2, s4", |x| shifted_sum(x.a, 2, x.b)),
    ("s_lshl4_add_u32 s8, s2, s4", |x| shifted_sum(x.a, 4, x.b)),
    ("s_mul_hi_i32 s8, s2, s4", |x| (((signed(x.a, 32) * signed(x.b, 32)) >> 32) as u64, x.scc)),
    ("s_mul_hi_u32 s8, s2, s4", |x| ((low(x.a, 32) * low(x.b, 32)) >> 32, x.scc)),
    ("s_pack_hh_b32_b16 s8, s2, s4", |x| (half(x.a, 1) | half(x.b, 1) << 16, x.scc)),
    ("s_pack_lh_b32_b16 s8, s2, s4", |x| (half(x.a, 0) | half(x.b, 1) << 16, x.scc)),
    ("s_pack_ll_b32_b16 s8, s2, s4", |x| (half(x.a, 0) | half(x.b, 0) << 16, x.scc)),
    ("s_quadmask_b64 s[8:9], s[2:3]", |x| truth(quads(x.a, 64))),
    ("s_wqm_b32 s8, s2", |x| truth(wide_quads(low(x.a, 32), 32))),
    ("s_wqm_b64 s[8:9], s[2:3]", |x| truth(wide_quads(x.a, 64))),
    ("s_addc_u32 s8, s2, s4", |x| {
        let sum = low(x.a, 32) + low(x.b, 32) + u64::from(x.scc);
        (sum, sum >> 32 != 0)
    }),
    ("s_subb_u32 s8, s2, s4", |x| {
        let difference = i128::from(low(x.a, 32)) - i128::from(low(x.b, 32)) - i128::from(x.scc);
        (difference as u64, difference < 0)
    }),
    ("s_mov_b32 m0, 2\ns_movrels_b32 s8, s2", |x| (x.b, x.scc)),
    ("s_mov_b32 m0, 2\ns_movrels_b64 s[8:9], s[2:3]", |x| (x.b, x.scc)),
    ("s_mov_b32 m0, 2\ns_movreld_b32 s6, s2", |x| (x.a, x.scc)),
    ("s_mov_b32 m0, 2\ns_movreld_b64 s[6:7], s[2:3]", |x| (x.a, x.scc)),
];

/// Returns what an operation makes of s[2:3] and EXEC.
type Mask = fn(u64, u64) -> u64;

/// Operations of EXEC.
const MASKS: &[(&str, Mask)] = &[
    ("s_and_saveexec_b64", |s, exec| s & exec),
    ("s_or_saveexec_b64", |s, exec| s | exec),
    ("s_xor_saveexec_b64", |s, exec| s ^ exec),
    ("s_andn1_saveexec_b64", |s, exec| !s & exec),
    ("s_andn2_saveexec_b64", |s, exec| s & !exec),
    ("s_orn1_saveexec_b64", |s, exec| !s | exec),
    ("s_orn2_saveexec_b64", |s, exec| s | !exec),
    ("s_nand_saveexec_b64", |s, exec| !(s & exec)),
    ("s_nor_saveexec_b64", |s, exec| !(s | exec)),
    ("s_xnor_saveexec_b64", |s, exec| !(s ^ exec)),
    ("s_andn1_wrexec_b64", |s, exec| !s & exec),
    ("s_andn2_wrexec_b64", |s, exec| s & !exec),
];

/// Returns the edge cases, and fields: 16 bits from bit 8, and 64 from bit 4.
fn numbers() -> impl Iterator<Item = u64> + Clone {
    EDGES.into_iter().chain([0x0010_0008, 0x0040_0004, 0x1234_5678_0f00_8421])
}

#[test]
fn results_and_condition_codes() {
    let words = assemble_all(OPERATIONS.iter().map(|(text, _)| *text));
    for ((text, model), words) in OPERATIONS.iter().zip(words) {
        let mut bench = Bench::new();
        for (a, b) in numbers().flat_map(|a| numbers().map(move |b| (a, b))) {
            for scc in [false, true] {
                let before = Before { a, b, d: 0x5555_aaaa_3333_cccc, scc };
                for (register, value) in [(2, a), (4, b), (8, before.d)] {
                    bench.wave.set_pair(register, value);
                }
                bench.wave.scc = scc;
                assert_eq!(bench.run_words(words.clone()), None, "{text}");
                let (result, condition) = model(before);
                let is_wide = text.contains("s[8:9]") || text.contains("s[6:7]");
                let expected = if is_wide { result } else { low(result, 32) | before.d & !0xffff_ffff };
                let found = (bench.wave.pair(8), bench.wave.scc);
                assert_eq!(found, (expected, condition), "{text} from {before:#x?}");
            }
        }
    }
}

#[test]
fn masks_of_lanes() {
    let texts: Vec<String> = MASKS.iter().map(|(name, _)| format!("{name} s[8:9], s[2:3]")).collect();
    let words = assemble_all(texts.iter().map(String::as_str));
    for ((name, model), words) in MASKS.iter().zip(words) {
        for (mask, exec) in numbers().flat_map(|a| numbers().map(move |b| (a, b))) {
            let mut bench = Bench::new();
            bench.wave.set_pair(2, mask);
            bench.wave.set_pair(scalar::EXEC, exec);
            assert_eq!(bench.run_words(words.clone()), None, "{name}");
            let new = model(mask, exec);
            let saved = if name.contains("wrexec") { new } else { exec };
            let found = (bench.wave.pair(8), bench.wave.exec(), bench.wave.scc);
            assert_eq!(found, (saved, new, new != 0), "{name} of {mask:#x} and {exec:#x}");
        }
    }
}

#[test]
fn waves_sleep_and_send_messages() {
    let mut bench = Bench::new();
    assert_eq!(bench.run("s_sleep 1\ns_mov_b32 s4, 7\ns_sleep 127\ns_setkill 0"), None);
    assert_eq!((bench.yields, bench.wave.s[4]), (2, 7));
    assert_eq!(
        bench.run("s_sendmsg sendmsg(MSG_INTERRUPT)\ns_sendmsg sendmsg(MSG_GS_DONE, GS_OP_NOP)"),
        None
    );
    assert_eq!(bench.memory.changes.count(), 1);
    for end in ["s_endpgm_saved", "s_endpgm_ordered_ps_done"] {
        bench.wave.s[4] = 0;
        assert_eq!(bench.run(&format!("{end}\ns_mov_b32 s4, 1")), None);
        assert_eq!(bench.wave.s[4], 0, "{end}");
    }
}

/// M0 has the index, and the operands that it is for.
#[test]
fn indices_of_vector_registers() {
    let mut bench = Bench::new();
    for register in 0..16u16 {
        bench.set_v(register, u32::from(register) * 100);
    }
    let text = "s_mov_b32 m0, 0
        s_mov_b32 s2, 3
        s_set_gpr_idx_on s2, gpr_idx()
        s_getreg_b32 s5, hwreg(HW_REG_MODE, 27, 1)
        s_set_gpr_idx_idx s2
        s_set_gpr_idx_mode gpr_idx(SRC0)
        v_mov_b32_e32 v10, v1
        s_set_gpr_idx_mode gpr_idx(DST)
        v_mov_b32_e32 v10, v2
        s_mov_b32 s4, m0
        s_set_gpr_idx_off
        s_getreg_b32 s6, hwreg(HW_REG_MODE, 27, 1)
        v_mov_b32_e32 v11, v1";
    assert_eq!(bench.run(text), None);
    assert_eq!((bench.v(10, 0), bench.v(13, 0), bench.v(11, 0)), (400, 200, 100));
    assert_eq!((bench.wave.s[4], bench.wave.s[5], bench.wave.s[6]), (3 | 8 << 12, 1, 0));
    // What M0 says counts while MODE has it index, whoever wrote either, and not otherwise.
    let text = "s_set_gpr_idx_mode gpr_idx(SRC0)
        v_mov_b32_e32 v10, v1
        s_setreg_imm32_b32 hwreg(HW_REG_MODE, 27, 1), 1
        v_mov_b32_e32 v11, v1
        s_mov_b32 m0, 0x8002
        v_mov_b32_e32 v12, v1
        s_set_gpr_idx_off";
    assert_eq!(bench.run(text), None);
    assert_eq!((bench.v(10, 0), bench.v(11, 0), bench.v(14, 0)), (100, 400, 100));
}
