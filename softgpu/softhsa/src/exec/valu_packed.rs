//! Operations on pairs in one register or two, dot products and mixed precision.

use super::float::{
    f64_of_half, fused_to_odd, half_of_f64, ieee, max_f64, min_f64, nan2_f32, nan2_f64, nan3_f32, nan3_f64,
};
use super::handlers;
use super::inst::{Flow, Inst};
use super::lanes::{half_result, scale, source_bits, with_half_result, written};
use super::special::missing;
use super::wave::mode::{self, RESULTS, SOURCES};
use super::wave::{Env, Wave, lanes_of};

/// Returns the half of a source that the low or the high result is made of.
fn half_of(wave: &Wave, inst: &Inst, lane: usize, source: usize, high: bool) -> u16 {
    let bits = wave.read(inst.src[source], lane);
    let select = if high { inst.modifiers.op_sel_hi } else { inst.modifiers.op_sel };
    if select >> source & 1 != 0 { (bits >> 16) as u16 } else { bits as u16 }
}

/// Returns a half of a floating-point source. The high result's sources have sign bits of their own.
fn signed_half(wave: &Wave, inst: &Inst, lane: usize, source: usize, high: bool) -> u16 {
    let half = half_of(wave, inst, lane, source, high);
    let negated = if high { inst.modifiers.abs } else { inst.modifiers.neg } >> source & 1 != 0;
    if negated { half ^ 0x8000 } else { half }
}

/// Returns a half as a number.
fn number_of(wave: &Wave, inst: &Inst, lane: usize, source: usize, high: bool) -> f64 {
    f64_of_half(wave.flush_16(signed_half(wave, inst, lane, source, high), SOURCES))
}

/// Runs an operation on both halves of 16-bit integers. The fourth argument says whether to clamp.
fn integers(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, f: impl Fn(u16, u16, u16, bool) -> u16) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let half = |high: bool| {
            let source = |index| half_of(wave, inst, lane, index, high);
            u32::from(f(source(0), source(1), source(2), inst.modifiers.clamp))
        };
        let result = half(false) | half(true) << 16;
        wave.write_lane(inst.dst, lane, result);
    }
    Flow::Next
}

/// Runs an operation on both halves of 16-bit floating-point numbers.
pub(super) fn packed_halves(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(&Wave, f64, f64, f64) -> f64,
) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let half = |high: bool| {
            let source = |index| number_of(wave, inst, lane, index, high);
            let value = f(wave, source(0), source(1), source(2));
            let value = scale(value, mode::DENORM_16_64, inst, wave);
            u32::from(wave.flush_16(half_of_f64(value), RESULTS))
        };
        let result = half(false) | half(true) << 16;
        wave.write_lane(inst.dst, lane, result);
    }
    Flow::Next
}

/// Returns the register of a pair that the low or the high result is made of. A constant is both registers.
fn register_of(wave: &Wave, inst: &Inst, lane: usize, source: usize, high: bool) -> u32 {
    let select = if high { inst.modifiers.op_sel_hi } else { inst.modifiers.op_sel };
    match inst.src[source] {
        super::inst::Src::Constant(bits) => bits as u32,
        src => (wave.read64(src, lane) >> (32 * u32::from(select >> source & 1))) as u32,
    }
}

fn float_of(wave: &Wave, inst: &Inst, lane: usize, source: usize, high: bool) -> f32 {
    let bits = register_of(wave, inst, lane, source, high);
    let negated = if high { inst.modifiers.abs } else { inst.modifiers.neg } >> source & 1 != 0;
    f32::from_bits(wave.flush_32(if negated { bits ^ 0x8000_0000 } else { bits }, SOURCES))
}

/// Runs an operation on pairs of 32-bit numbers in two registers.
pub(super) fn packed_singles(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(&Wave, f32, f32, f32) -> f32,
) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let half = |high: bool| {
            let source = |index| float_of(wave, inst, lane, index, high);
            let value = f(wave, source(0), source(1), source(2));
            let value = scale(f64::from(value), mode::DENORM_32, inst, wave) as f32;
            wave.flush_32(value.to_bits(), RESULTS)
        };
        let (low, high) = (half(false), half(true));
        wave.write_lane(inst.dst, lane, low);
        wave.write_lane(inst.dst + 1, lane, high);
    }
    Flow::Next
}

/// Moves one register of each of two pairs.
fn move_pair(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let low = register_of(wave, inst, lane, 0, false);
        let select = inst.modifiers.op_sel >> 1 & 1;
        let high = match inst.src[1] {
            super::inst::Src::Constant(bits) => bits as u32,
            src => (wave.read64(src, lane) >> (32 * u32::from(select))) as u32,
        };
        wave.write_lane(inst.dst, lane, low);
        wave.write_lane(inst.dst + 1, lane, high);
    }
    Flow::Next
}

/// Returns a source of mixed precision: 32 bits, or the half that the selection names.
fn mixed(wave: &Wave, inst: &Inst, lane: usize, source: usize) -> f32 {
    let bits = wave.read(inst.src[source], lane);
    let (is_half, high) =
        (inst.modifiers.op_sel_hi >> source & 1 != 0, inst.modifiers.op_sel >> source & 1 != 0);
    let mut value = match is_half {
        true => {
            f64_of_half(wave.flush_16(if high { (bits >> 16) as u16 } else { bits as u16 }, SOURCES)) as f32
        }
        false => f32::from_bits(wave.flush_32(bits, SOURCES)),
    };
    if inst.modifiers.abs >> source & 1 != 0 {
        value = value.abs();
    }
    if inst.modifiers.neg >> source & 1 != 0 { -value } else { value }
}

/// Multiplies and adds in 32 bits, and rounds the sum once more if the result has 16 bits.
pub(super) fn mix(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    to_half: bool,
    f: impl Fn(&Wave, f32, f32, f32) -> f32,
) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let (a, b, c) = (mixed(wave, inst, lane, 0), mixed(wave, inst, lane, 1), mixed(wave, inst, lane, 2));
        let sum = f(wave, a, b, c);
        let sum = scale(f64::from(sum), mode::DENORM_32, inst, wave) as f32;
        let old = wave.row(inst.dst)[lane];
        let result = match to_half {
            true => with_half_result(old, half_result(f64::from(sum), inst, wave), inst),
            false => wave.flush_32(sum.to_bits(), RESULTS),
        };
        wave.write_lane(inst.dst, lane, result);
    }
    Flow::Next
}

/// Adds products of halves, bytes or nibbles to a sum of 32 bits.
fn dot_integers(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, bits: u32, signed: bool) -> Flow {
    let element = |value: u32, index: u32| {
        let field = value >> (bits * index) << (32 - bits);
        if signed { i64::from(field as i32 >> (32 - bits)) } else { i64::from(field >> (32 - bits)) }
    };
    let selects_halves = bits == 16 && inst.row.operand("op_sel").is_some();
    let words = [source_bits(wave, inst, 0), source_bits(wave, inst, 1)];
    for lane in lanes_of(written(wave, inst)) {
        let word = |source: usize| match selects_halves {
            true => {
                let half = |high| u32::from(half_of(wave, inst, lane, source, high));
                half(false) | half(true) << 16
            }
            false => words[source][lane],
        };
        let (a, b, c) = (word(0), word(1), wave.read(inst.src[2], lane));
        let products: i64 = (0..32 / bits).map(|index| element(a, index) * element(b, index)).sum();
        let result = match (signed, inst.modifiers.clamp) {
            (true, true) => (products + i64::from(c as i32)).clamp(i32::MIN.into(), i32::MAX.into()) as u32,
            (false, true) => (products + i64::from(c)).clamp(0, u32::MAX.into()) as u32,
            _ => (products as u32).wrapping_add(c),
        };
        wave.write_lane(inst.dst, lane, result);
    }
    Flow::Next
}

/// Adds products of halves to a sum of 32 bits. Whatever MODE says, denormal sources and results are 0
/// (AMD's manual of CDNA 3, 6.4).
fn dot_halves(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let packed = inst.row.operand("op_sel").is_some();
    if !packed && inst.modifiers.neg | inst.modifiers.abs != 0 {
        return missing(wave, &format!("{} with signs of pairs changed", inst.row.mnemonic()));
    }
    let words = [source_bits(wave, inst, 0), source_bits(wave, inst, 1)];
    for lane in lanes_of(written(wave, inst)) {
        let number = |source: usize, high: bool| {
            let half = match packed {
                true => signed_half(wave, inst, lane, source, high),
                false => (words[source][lane] >> if high { 16 } else { 0 }) as u16,
            };
            f64_of_half(mode::flush_16(0, half, SOURCES))
        };
        let c = f64::from(f32::from_bits(mode::flush_32(0, wave.read(inst.src[2], lane), SOURCES)));
        let c = if packed && inst.modifiers.neg & 4 != 0 { -c } else { c };
        // Products of halves are exact in 64 bits.
        let sum = number(0, false) * number(1, false) + number(0, true) * number(1, true) + c;
        let sum = scale(sum, mode::DENORM_32, inst, wave) as f32;
        let sum = nan2_f32(sum, sum, sum).to_bits();
        wave.write_lane(inst.dst, lane, mode::flush_32(0, sum, RESULTS));
    }
    Flow::Next
}

fn fused(_: &Wave, a: f32, b: f32, c: f32) -> f32 {
    nan3_f32(a.mul_add(b, c), a, b, c)
}

fn fused_half(_: &Wave, a: f64, b: f64, c: f64) -> f64 {
    nan3_f64(fused_to_odd(a, b, c), a, b, c)
}

fn add(_: &Wave, a: f64, b: f64, _: f64) -> f64 {
    nan2_f64(a + b, a, b)
}

fn signed(value: u16) -> i32 {
    i32::from(value as i16)
}

fn fit_unsigned(value: i32, clamp: bool) -> u16 {
    if clamp { value.clamp(0, 0xffff) as u16 } else { value as u16 }
}

fn fit_signed(value: i32, clamp: bool) -> u16 {
    if clamp { value.clamp(-0x8000, 0x7fff) as u16 } else { value as u16 }
}

handlers! {
    "v_pk_add_u16" => integers(|a, b, _, clamp| fit_unsigned(i32::from(a) + i32::from(b), clamp)),
    "v_pk_sub_u16" => integers(|a, b, _, clamp| fit_unsigned(i32::from(a) - i32::from(b), clamp)),
    "v_pk_add_i16" => integers(|a, b, _, clamp| fit_signed(signed(a) + signed(b), clamp)),
    "v_pk_sub_i16" => integers(|a, b, _, clamp| fit_signed(signed(a) - signed(b), clamp)),
    "v_pk_mul_lo_u16" => integers(|a, b, _, _| a.wrapping_mul(b)),
    "v_pk_mad_u16" => integers(|a, b, c, clamp| {
        let sum = u64::from(a) * u64::from(b) + u64::from(c);
        if clamp { sum.min(0xffff) as u16 } else { sum as u16 }
    }),
    "v_pk_mad_i16" => integers(|a, b, c, clamp| fit_signed(signed(a) * signed(b) + signed(c), clamp)),
    "v_pk_lshlrev_b16" => integers(|a, b, _, _| b << (a & 15)),
    "v_pk_lshrrev_b16" => integers(|a, b, _, _| b >> (a & 15)),
    "v_pk_ashrrev_i16" => integers(|a, b, _, _| (b as i16 >> (a & 15)) as u16),
    "v_pk_min_i16" => integers(|a, b, _, _| (a as i16).min(b as i16) as u16),
    "v_pk_max_i16" => integers(|a, b, _, _| (a as i16).max(b as i16) as u16),
    "v_pk_min_u16" => integers(|a, b, _, _| a.min(b)),
    "v_pk_max_u16" => integers(|a, b, _, _| a.max(b)),
    "v_pk_add_f16" => packed_halves(add),
    "v_pk_mul_f16" => packed_halves(|_, a, b, _| nan2_f64(a * b, a, b)),
    "v_pk_fma_f16" => packed_halves(fused_half),
    "v_pk_min_f16" => packed_halves(|wave, a, b, _| min_f64(a, b, ieee(wave))),
    "v_pk_max_f16" => packed_halves(|wave, a, b, _| max_f64(a, b, ieee(wave))),
    "v_pk_add_f32" => packed_singles(|_, a, b, _| nan2_f32(a + b, a, b)),
    "v_pk_mul_f32" => packed_singles(|_, a, b, _| nan2_f32(a * b, a, b)),
    "v_pk_fma_f32" => packed_singles(fused),
    "v_pk_mov_b32" => move_pair(),
    "v_pk_fmac_f16" => fused_pair(fused_half),
    "v_fma_mix_f32" => mix(false, fused),
    "v_fma_mixlo_f16" | "v_fma_mixhi_f16" => mix(true, fused),
    "v_dot2_f32_f16" | "v_dot2c_f32_f16" => dot_halves(),
    "v_dot2_i32_i16" | "v_dot2c_i32_i16" => dot_integers(16, true),
    "v_dot2_u32_u16" => dot_integers(16, false),
    "v_dot4_i32_i8" | "v_dot4c_i32_i8" => dot_integers(8, true),
    "v_dot4_u32_u8" => dot_integers(8, false),
    "v_dot8_i32_i4" | "v_dot8c_i32_i4" => dot_integers(4, true),
    "v_dot8_u32_u4" => dot_integers(4, false),
}

/// Multiplies pairs of halves and adds them to the result's register. This encoding selects no halves.
pub(super) fn fused_pair(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(&Wave, f64, f64, f64) -> f64,
) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let half = |high: bool| {
            let number =
                |bits: u32| f64_of_half(wave.flush_16((bits >> if high { 16 } else { 0 }) as u16, SOURCES));
            let (a, b) = (number(wave.read(inst.src[0], lane)), number(wave.read(inst.src[1], lane)));
            let c = number(wave.row(inst.dst)[lane]);
            u32::from(wave.flush_16(half_of_f64(f(wave, a, b, c)), RESULTS))
        };
        let result = half(false) | half(true) << 16;
        wave.write_lane(inst.dst, lane, result);
    }
    Flow::Next
}
