//! Scalar arithmetic, comparisons and moves.

use super::handlers;
use super::inst::{Flow, Inst};
use super::wave::{Env, Wave, scalar};

/// What an operation does to the scalar condition code.
trait Outcome<T> {
    fn apply(self, wave: &mut Wave) -> T;
}

/// The condition code stays.
struct Keep<T>(T);

impl<T> Outcome<T> for Keep<T> {
    fn apply(self, _: &mut Wave) -> T {
        self.0
    }
}

/// The condition code is set to the flag.
impl<T> Outcome<T> for (T, bool) {
    fn apply(self, wave: &mut Wave) -> T {
        wave.scc = self.1;
        self.0
    }
}

/// A result with the condition code that says whether it is not 0.
fn truth<T: Default + PartialEq>(value: T) -> (T, bool) {
    let is_true = value != T::default();
    (value, is_true)
}

fn op32<O: Outcome<u32>>(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u32, u32) -> O) -> Flow {
    let (a, b) = (wave.read_scalar(inst.src[0]), wave.read_scalar(inst.src[1]));
    let result = f(a, b).apply(wave);
    wave.set_scalar(inst.sdst, result);
    Flow::Next
}

fn op64<O: Outcome<u64>>(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u64, u64) -> O) -> Flow {
    let (a, b) = (wave.read_scalar64(inst.src[0]), wave.read_scalar64(inst.src[1]));
    let result = f(a, b).apply(wave);
    wave.set_pair(inst.sdst, result);
    Flow::Next
}

/// A 64-bit source 0 and a 32-bit source 1.
fn op64_32<O: Outcome<u64>>(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(u64, u32) -> O,
) -> Flow {
    let (a, b) = (wave.read_scalar64(inst.src[0]), wave.read_scalar(inst.src[1]));
    let result = f(a, b).apply(wave);
    wave.set_pair(inst.sdst, result);
    Flow::Next
}

/// A 64-bit source and a 32-bit result.
fn narrow<O: Outcome<u32>>(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u64) -> O) -> Flow {
    let result = f(wave.read_scalar64(inst.src[0])).apply(wave);
    wave.set_scalar(inst.sdst, result);
    Flow::Next
}

/// A 32-bit source and a 64-bit result.
fn widen(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u32, u32) -> u64) -> Flow {
    let result = f(wave.read_scalar(inst.src[0]), wave.read_scalar(inst.src[1]));
    wave.set_pair(inst.sdst, result);
    Flow::Next
}

/// An operation of the condition code, too.
fn with_carry(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(u32, u32, bool) -> (u32, bool),
) -> Flow {
    let (a, b) = (wave.read_scalar(inst.src[0]), wave.read_scalar(inst.src[1]));
    let (result, carry) = f(a, b, wave.scc);
    wave.scc = carry;
    wave.set_scalar(inst.sdst, result);
    Flow::Next
}

/// Changes the result's register, whose old value is a source.
fn update32(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u32, u32) -> u32) -> Flow {
    let old = wave.s[usize::from(inst.sdst & 127)];
    let source = wave.read_scalar(inst.src[0]);
    wave.set_scalar(inst.sdst, f(old, source));
    Flow::Next
}

fn update64(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u64, u32) -> u64) -> Flow {
    let (old, source) = (wave.pair(inst.sdst), wave.read_scalar(inst.src[0]));
    wave.set_pair(inst.sdst, f(old, source));
    Flow::Next
}

fn compare32(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u32, u32) -> bool) -> Flow {
    wave.scc = f(wave.read_scalar(inst.src[0]), wave.read_scalar(inst.src[1]));
    Flow::Next
}

fn compare64(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u64, u64) -> bool) -> Flow {
    wave.scc = f(wave.read_scalar64(inst.src[0]), wave.read_scalar64(inst.src[1]));
    Flow::Next
}

/// Compares a register with an immediate of 16 bits.
fn compare_imm(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u32, u16) -> bool) -> Flow {
    // LLVM calls the register a result, as in the operations that change it.
    let register = wave.s[usize::from(inst.sdst & 127)];
    wave.scc = f(register, inst.imm as u16);
    Flow::Next
}

fn with_imm<O: Outcome<u32>>(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(u32, i16) -> O,
) -> Flow {
    let register = wave.s[usize::from(inst.sdst & 127)];
    let result = f(register, inst.imm as i16).apply(wave);
    wave.set_scalar(inst.sdst, result);
    Flow::Next
}

fn select(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, wide: bool) -> Flow {
    let src = inst.src[usize::from(!wave.scc)];
    if wide {
        let value = wave.read_scalar64(src);
        wave.set_pair(inst.sdst, value);
    } else {
        let value = wave.read_scalar(src);
        wave.set_scalar(inst.sdst, value);
    }
    Flow::Next
}

fn move_if(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, wide: bool) -> Flow {
    match (wave.scc, wide) {
        (true, true) => wave.set_pair(inst.sdst, wave.read_scalar64(inst.src[0])),
        (true, false) => wave.set_scalar(inst.sdst, wave.read_scalar(inst.src[0])),
        _ => {}
    }
    Flow::Next
}

fn move_imm_if(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    if wave.scc {
        wave.set_scalar(inst.sdst, inst.imm as i16 as u32);
    }
    Flow::Next
}

/// Saves EXEC in the result and gives it a new value.
fn save_exec(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u64, u64) -> u64) -> Flow {
    let (exec, source) = (wave.exec(), wave.read_scalar64(inst.src[0]));
    let result = f(source, exec);
    wave.set_pair(inst.sdst, exec);
    wave.set_pair(scalar::EXEC, result);
    wave.scc = result != 0;
    Flow::Next
}

/// Gives EXEC and the result a new value.
fn write_exec(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u64, u64) -> u64) -> Flow {
    let result = f(wave.read_scalar64(inst.src[0]), wave.exec());
    wave.set_pair(inst.sdst, result);
    wave.set_pair(scalar::EXEC, result);
    wave.scc = result != 0;
    Flow::Next
}

/// Moves between registers that M0 selects.
fn move_relative(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, wide: bool, destination: bool) -> Flow {
    use super::inst::Src;
    let offset = wave.s[usize::from(scalar::M0)] as u8;
    let src = match inst.src[0] {
        Src::Scalar(register) if !destination => Src::Scalar(register.wrapping_add(offset) & 127),
        src => src,
    };
    let sdst = if destination { inst.sdst.wrapping_add(offset) & 127 } else { inst.sdst };
    if wide {
        wave.set_pair(sdst, wave.read_scalar64(src));
    } else {
        wave.set_scalar(sdst, wave.read_scalar(src));
    }
    Flow::Next
}

fn shift_add(a: u32, b: u32, shift: u32) -> (u32, bool) {
    let sum = (u64::from(a) << shift) + u64::from(b);
    (sum as u32, sum >> 32 != 0)
}

/// Returns the bits of a field whose place and width are in the low and middle bits of `field`.
fn field32(value: u32, field: u32, signed: bool) -> u32 {
    let (offset, width) = (field & 31, (field >> 16 & 127).min(32));
    field64(if signed { value as i32 as i64 as u64 } else { u64::from(value) }, offset, width, signed) as u32
}

fn field64(value: u64, offset: u32, width: u32, signed: bool) -> u64 {
    match width {
        0 => 0,
        _ if signed => {
            let field = (value as i64) >> offset;
            if width >= 64 { field as u64 } else { (field << (64 - width) >> (64 - width)) as u64 }
        }
        _ => {
            let field = value >> offset;
            if width >= 64 { field } else { field & ((1 << width) - 1) }
        }
    }
}

/// Returns the number of leading bits that are like the sign bit, or −1 if all are.
fn sign_bits(value: u64, width: u32) -> u32 {
    let extended = (value << (64 - width)) as i64 >> (64 - width);
    let folded = (extended ^ (extended >> 63)) as u64;
    if folded == 0 { u32::MAX } else { folded.leading_zeros() - (64 - width) }
}

fn first_set(value: u64) -> u32 {
    if value == 0 { u32::MAX } else { value.trailing_zeros() }
}

fn quads(value: u64) -> u64 {
    (0..16).fold(0, |mask, quad| mask | u64::from(value >> (4 * quad) & 15 != 0) << quad)
}

fn whole_quads(value: u64) -> u64 {
    (0..16).fold(0, |mask, quad| mask | if value >> (4 * quad) & 15 != 0 { 15 << (4 * quad) } else { 0 })
}

fn double_bits(value: u32) -> u64 {
    (0..32).fold(0, |bits, bit| bits | (u64::from(value >> bit & 1) * 3) << (2 * bit))
}

handlers! {
    "s_add_u32" => op32(|a, b| a.overflowing_add(b)),
    "s_sub_u32" => op32(|a, b| a.overflowing_sub(b)),
    "s_add_i32" => op32(|a, b| (a.wrapping_add(b), (a as i32).overflowing_add(b as i32).1)),
    "s_sub_i32" => op32(|a, b| (a.wrapping_sub(b), (a as i32).overflowing_sub(b as i32).1)),
    "s_addc_u32" => with_carry(|a, b, c| {
        let sum = u64::from(a) + u64::from(b) + u64::from(c);
        (sum as u32, sum >> 32 != 0)
    }),
    "s_subb_u32" => with_carry(|a, b, c| {
        let (difference, borrow) = a.overflowing_sub(b);
        let (difference, second) = difference.overflowing_sub(u32::from(c));
        (difference, borrow | second)
    }),
    "s_min_i32" => op32(|a, b| if (a as i32) < b as i32 { (a, true) } else { (b, false) }),
    "s_min_u32" => op32(|a, b| if a < b { (a, true) } else { (b, false) }),
    "s_max_i32" => op32(|a, b| if a as i32 >= b as i32 { (a, true) } else { (b, false) }),
    "s_max_u32" => op32(|a, b| if a >= b { (a, true) } else { (b, false) }),
    "s_cselect_b32" => select(false),
    "s_cselect_b64" => select(true),
    "s_and_b32" => op32(|a, b| truth(a & b)),
    "s_and_b64" => op64(|a, b| truth(a & b)),
    "s_or_b32" => op32(|a, b| truth(a | b)),
    "s_or_b64" => op64(|a, b| truth(a | b)),
    "s_xor_b32" => op32(|a, b| truth(a ^ b)),
    "s_xor_b64" => op64(|a, b| truth(a ^ b)),
    "s_andn2_b32" => op32(|a, b| truth(a & !b)),
    "s_andn2_b64" => op64(|a, b| truth(a & !b)),
    "s_orn2_b32" => op32(|a, b| truth(a | !b)),
    "s_orn2_b64" => op64(|a, b| truth(a | !b)),
    "s_nand_b32" => op32(|a, b| truth(!(a & b))),
    "s_nand_b64" => op64(|a, b| truth(!(a & b))),
    "s_nor_b32" => op32(|a, b| truth(!(a | b))),
    "s_nor_b64" => op64(|a, b| truth(!(a | b))),
    "s_xnor_b32" => op32(|a, b| truth(!(a ^ b))),
    "s_xnor_b64" => op64(|a, b| truth(!(a ^ b))),
    "s_lshl_b32" => op32(|a, b| truth(a << (b & 31))),
    "s_lshl_b64" => op64_32(|a, b| truth(a << (b & 63))),
    "s_lshr_b32" => op32(|a, b| truth(a >> (b & 31))),
    "s_lshr_b64" => op64_32(|a, b| truth(a >> (b & 63))),
    "s_ashr_i32" => op32(|a, b| truth(((a as i32) >> (b & 31)) as u32)),
    "s_ashr_i64" => op64_32(|a, b| truth(((a as i64) >> (b & 63)) as u64)),
    "s_bfm_b32" => op32(|a, b| Keep(((1u32 << (a & 31)) - 1) << (b & 31))),
    "s_bfm_b64" => widen(|a, b| ((1u64 << (a & 63)) - 1) << (b & 63)),
    "s_mul_i32" => op32(|a, b| Keep(a.wrapping_mul(b))),
    "s_mul_hi_u32" => op32(|a, b| Keep(((u64::from(a) * u64::from(b)) >> 32) as u32)),
    "s_mul_hi_i32" => op32(|a, b| Keep(((i64::from(a as i32) * i64::from(b as i32)) >> 32) as u32)),
    "s_bfe_u32" => op32(|a, b| truth(field32(a, b, false))),
    "s_bfe_i32" => op32(|a, b| truth(field32(a, b, true))),
    "s_bfe_u64" => op64_32(|a, b| truth(field64(a, b & 63, b >> 16 & 127, false))),
    "s_bfe_i64" => op64_32(|a, b| truth(field64(a, b & 63, b >> 16 & 127, true))),
    "s_absdiff_i32" => op32(|a, b| truth((a as i32).wrapping_sub(b as i32).wrapping_abs() as u32)),
    "s_lshl1_add_u32" => op32(|a, b| shift_add(a, b, 1)),
    "s_lshl2_add_u32" => op32(|a, b| shift_add(a, b, 2)),
    "s_lshl3_add_u32" => op32(|a, b| shift_add(a, b, 3)),
    "s_lshl4_add_u32" => op32(|a, b| shift_add(a, b, 4)),
    "s_pack_ll_b32_b16" => op32(|a, b| Keep(a & 0xffff | b << 16)),
    "s_pack_lh_b32_b16" => op32(|a, b| Keep(a & 0xffff | b & 0xffff_0000)),
    "s_pack_hh_b32_b16" => op32(|a, b| Keep(a >> 16 | b & 0xffff_0000)),
    "s_mov_b32" => op32(|a, _| Keep(a)),
    "s_mov_b64" => op64(|a, _| Keep(a)),
    "s_cmov_b32" => move_if(false),
    "s_cmov_b64" => move_if(true),
    "s_not_b32" => op32(|a, _| truth(!a)),
    "s_not_b64" => op64(|a, _| truth(!a)),
    "s_wqm_b32" => op32(|a, _| truth(whole_quads(u64::from(a)) as u32)),
    "s_wqm_b64" => op64(|a, _| truth(whole_quads(a))),
    "s_quadmask_b32" => op32(|a, _| truth(quads(u64::from(a)) as u32)),
    "s_quadmask_b64" => op64(|a, _| truth(quads(a))),
    "s_brev_b32" => op32(|a, _| Keep(a.reverse_bits())),
    "s_brev_b64" => op64(|a, _| Keep(a.reverse_bits())),
    "s_bcnt0_i32_b32" => op32(|a, _| truth(a.count_zeros())),
    "s_bcnt0_i32_b64" => narrow(|a| truth(a.count_zeros())),
    "s_bcnt1_i32_b32" => op32(|a, _| truth(a.count_ones())),
    "s_bcnt1_i32_b64" => narrow(|a| truth(a.count_ones())),
    "s_ff0_i32_b32" => op32(|a, _| Keep(first_set(u64::from(!a)))),
    "s_ff0_i32_b64" => narrow(|a| Keep(first_set(!a))),
    "s_ff1_i32_b32" => op32(|a, _| Keep(first_set(u64::from(a)))),
    "s_ff1_i32_b64" => narrow(|a| Keep(first_set(a))),
    "s_flbit_i32_b32" => op32(|a, _| Keep(if a == 0 { u32::MAX } else { a.leading_zeros() })),
    "s_flbit_i32_b64" => narrow(|a| Keep(if a == 0 { u32::MAX } else { a.leading_zeros() })),
    "s_flbit_i32" => op32(|a, _| Keep(sign_bits(u64::from(a), 32))),
    "s_flbit_i32_i64" => narrow(|a| Keep(sign_bits(a, 64))),
    "s_sext_i32_i8" => op32(|a, _| Keep(a as i8 as u32)),
    "s_sext_i32_i16" => op32(|a, _| Keep(a as i16 as u32)),
    "s_bitset0_b32" => update32(|old, bit| old & !(1 << (bit & 31))),
    "s_bitset1_b32" => update32(|old, bit| old | 1 << (bit & 31)),
    "s_bitset0_b64" => update64(|old, bit| old & !(1 << (bit & 63))),
    "s_bitset1_b64" => update64(|old, bit| old | 1 << (bit & 63)),
    "s_bitreplicate_b64_b32" => widen(|a, _| double_bits(a)),
    "s_abs_i32" => op32(|a, _| truth((a as i32).wrapping_abs() as u32)),
    "s_and_saveexec_b64" => save_exec(|a, exec| a & exec),
    "s_or_saveexec_b64" => save_exec(|a, exec| a | exec),
    "s_xor_saveexec_b64" => save_exec(|a, exec| a ^ exec),
    "s_andn2_saveexec_b64" => save_exec(|a, exec| a & !exec),
    "s_orn2_saveexec_b64" => save_exec(|a, exec| a | !exec),
    "s_nand_saveexec_b64" => save_exec(|a, exec| !(a & exec)),
    "s_nor_saveexec_b64" => save_exec(|a, exec| !(a | exec)),
    "s_xnor_saveexec_b64" => save_exec(|a, exec| !(a ^ exec)),
    "s_andn1_saveexec_b64" => save_exec(|a, exec| !a & exec),
    "s_orn1_saveexec_b64" => save_exec(|a, exec| !a | exec),
    "s_andn1_wrexec_b64" => write_exec(|a, exec| !a & exec),
    "s_andn2_wrexec_b64" => write_exec(|a, exec| a & !exec),
    "s_movrels_b32" => move_relative(false, false),
    "s_movrels_b64" => move_relative(true, false),
    "s_movreld_b32" => move_relative(false, true),
    "s_movreld_b64" => move_relative(true, true),
    "s_movk_i32" => with_imm(|_, imm| Keep(i32::from(imm) as u32)),
    "s_cmovk_i32" => move_imm_if(),
    "s_addk_i32" => with_imm(|a, imm| {
        let (sum, overflow) = (a as i32).overflowing_add(i32::from(imm));
        (sum as u32, overflow)
    }),
    "s_mulk_i32" => with_imm(|a, imm| Keep(a.wrapping_mul(i32::from(imm) as u32))),
    "s_cmpk_eq_i32" => compare_imm(|a, imm| a as i32 == i32::from(imm as i16)),
    "s_cmpk_lg_i32" => compare_imm(|a, imm| a as i32 != i32::from(imm as i16)),
    "s_cmpk_gt_i32" => compare_imm(|a, imm| a as i32 > i32::from(imm as i16)),
    "s_cmpk_ge_i32" => compare_imm(|a, imm| a as i32 >= i32::from(imm as i16)),
    "s_cmpk_lt_i32" => compare_imm(|a, imm| (a as i32) < i32::from(imm as i16)),
    "s_cmpk_le_i32" => compare_imm(|a, imm| a as i32 <= i32::from(imm as i16)),
    "s_cmpk_eq_u32" => compare_imm(|a, imm| a == u32::from(imm)),
    "s_cmpk_lg_u32" => compare_imm(|a, imm| a != u32::from(imm)),
    "s_cmpk_gt_u32" => compare_imm(|a, imm| a > u32::from(imm)),
    "s_cmpk_ge_u32" => compare_imm(|a, imm| a >= u32::from(imm)),
    "s_cmpk_lt_u32" => compare_imm(|a, imm| a < u32::from(imm)),
    "s_cmpk_le_u32" => compare_imm(|a, imm| a <= u32::from(imm)),
    "s_cmp_eq_i32" | "s_cmp_eq_u32" => compare32(|a, b| a == b),
    "s_cmp_lg_i32" | "s_cmp_lg_u32" => compare32(|a, b| a != b),
    "s_cmp_gt_i32" => compare32(|a, b| a as i32 > b as i32),
    "s_cmp_ge_i32" => compare32(|a, b| a as i32 >= b as i32),
    "s_cmp_lt_i32" => compare32(|a, b| (a as i32) < b as i32),
    "s_cmp_le_i32" => compare32(|a, b| a as i32 <= b as i32),
    "s_cmp_gt_u32" => compare32(|a, b| a > b),
    "s_cmp_ge_u32" => compare32(|a, b| a >= b),
    "s_cmp_lt_u32" => compare32(|a, b| a < b),
    "s_cmp_le_u32" => compare32(|a, b| a <= b),
    "s_cmp_eq_u64" => compare64(|a, b| a == b),
    "s_cmp_lg_u64" => compare64(|a, b| a != b),
    "s_bitcmp0_b32" => compare32(|a, b| a >> (b & 31) & 1 == 0),
    "s_bitcmp1_b32" => compare32(|a, b| a >> (b & 31) & 1 == 1),
    "s_bitcmp0_b64" => compare64(|a, b| a >> (b & 63) & 1 == 0),
    "s_bitcmp1_b64" => compare64(|a, b| a >> (b & 63) & 1 == 1),
}
