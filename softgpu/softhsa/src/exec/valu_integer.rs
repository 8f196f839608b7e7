//! Integer and bit operations in lanes.

use super::handlers;
use super::inst::{Flow, Inst, Src};
use super::lanes::{Unused, binary, by_lane, carrying, ternary, unary};
use super::wave::{Env, Wave, lanes_of, scalar};

/// Returns a sum of 32 bits, which stays in its range if the instruction clamps.
fn add_u32(inst: &Inst, a: u32, b: u32) -> u32 {
    if inst.modifiers.clamp { a.saturating_add(b) } else { a.wrapping_add(b) }
}

/// Returns a number as 32 bits, in their range if the instruction clamps.
fn fit_u32(inst: &Inst, value: u64) -> u32 {
    if inst.modifiers.clamp { value.min(u64::from(u32::MAX)) as u32 } else { value as u32 }
}

fn fit_i32(inst: &Inst, value: i64) -> i32 {
    if inst.modifiers.clamp { value.clamp(i32::MIN.into(), i32::MAX.into()) as i32 } else { value as i32 }
}

fn fit_u16(inst: &Inst, value: i64) -> u16 {
    if inst.modifiers.clamp { value.clamp(0, u16::MAX.into()) as u16 } else { value as u16 }
}

fn fit_i16(inst: &Inst, value: i64) -> i16 {
    if inst.modifiers.clamp { value.clamp(i16::MIN.into(), i16::MAX.into()) as i16 } else { value as i16 }
}

fn low24(value: u32) -> u64 {
    u64::from(value & 0xff_ffff)
}

fn signed24(value: i32) -> i64 {
    i64::from(value << 8 >> 8)
}

fn bytes(value: u32) -> [u8; 4] {
    value.to_le_bytes()
}

/// Returns the sum of the bytes' differences.
fn byte_differences(a: u32, b: u32) -> u32 {
    bytes(a).iter().zip(bytes(b)).map(|(&a, b)| u32::from(a.abs_diff(b))).sum()
}

/// Returns the sum of the differences of those bytes whose byte in `b` is not 0.
fn masked_differences(a: u32, b: u32) -> u32 {
    let pairs = bytes(a).into_iter().zip(bytes(b));
    pairs.map(|(a, b)| if b == 0 { 0 } else { u32::from(a.abs_diff(b)) }).sum()
}

/// Returns the middle one of three.
pub fn middle<T: Ord + Copy>(a: T, b: T, c: T) -> T {
    a.min(b).max(a.max(b).min(c))
}

/// Selects four bytes of eight; the selector's special values are signs, 0 and 255.
fn permute_bytes(high: u32, low: u32, selector: u32) -> u32 {
    let source = u64::from(high) << 32 | u64::from(low);
    let sign = |bit: u32| if source >> bit & 1 != 0 { 255 } else { 0 };
    u32::from_le_bytes(bytes(selector).map(|select| match select {
        0..=7 => (source >> (8 * u32::from(select))) as u8,
        8 => sign(15),
        9 => sign(31),
        10 => sign(47),
        11 => sign(63),
        12 => 0,
        _ => 255,
    }))
}

/// Averages the bytes, rounding up where the third source's byte is odd.
fn average_bytes(a: u32, b: u32, round: u32) -> u32 {
    let (a, b, round) = (bytes(a), bytes(b), bytes(round));
    u32::from_le_bytes([0, 1, 2, 3].map(|index| {
        let sum = u16::from(a[index]) + u16::from(b[index]) + u16::from(round[index] & 1);
        (sum >> 1) as u8
    }))
}

/// Returns a field of bits.
fn field(value: u32, offset: u32, width: u32) -> u32 {
    (value >> (offset & 31)) & ((1u32 << (width & 31)) - 1)
}

fn signed_field(value: i32, offset: u32, width: u32) -> i32 {
    let (offset, width) = (offset & 31, width & 31);
    match width {
        0 => 0,
        _ => ((i64::from(value) >> offset) << (64 - width) >> (64 - width)) as i32,
    }
}

/// Returns the number of leading bits that are like the sign bit, or −1 if all are.
fn sign_bits(value: i32) -> i32 {
    let folded = value ^ (value >> 31);
    if folded == 0 { -1 } else { folded.leading_zeros() as i32 }
}

fn leading_zeros(value: u32) -> u32 {
    if value == 0 { u32::MAX } else { value.leading_zeros() }
}

fn trailing_zeros(value: u32) -> u32 {
    if value == 0 { u32::MAX } else { value.trailing_zeros() }
}

/// The carries in are in VCC, or in source 2 of the long encoding.
fn carry_in(inst: &Inst) -> Option<Src> {
    Some(if inst.row.operand("src2").is_some() { inst.src[2] } else { Src::Scalar(scalar::VCC) })
}

fn no_carry(_: &Inst) -> Option<Src> {
    None
}

/// Adds two numbers and a carry of 0 or 1.
fn add_carry(a: u32, b: u32, carry: u32) -> (u32, bool) {
    let sum = a.wrapping_add(b);
    let all = sum.wrapping_add(carry);
    (all, (sum < a) | (all < sum))
}

/// Subtracts a number and a borrow of 0 or 1.
fn sub_borrow(a: u32, b: u32, borrow: u32) -> (u32, bool) {
    let difference = a.wrapping_sub(b);
    (difference.wrapping_sub(borrow), (a < b) | (difference < borrow))
}

fn saturated_bytes(a: u32) -> u32 {
    let byte = |half: u32| u32::from((half as i16).clamp(0, 255) as u8);
    byte(a & 0xffff) | byte(a >> 16) << 8
}

/// Runs one of two operations: the second if the instruction clamps its result.
#[inline(always)]
fn clamping(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    plain: impl Fn(u32, u32) -> u32,
    clamped: impl Fn(u32, u32) -> u32,
) -> Flow {
    if inst.modifiers.clamp { binary(wave, inst, env, clamped) } else { binary(wave, inst, env, plain) }
}

/// A sum of 64 bits with the bit above it, and the limit that it is beyond, if it is.
struct WideSum {
    sum: u64,
    above: bool,
    limit: Option<u64>,
}

fn unsigned_sum(a: u32, b: u32, added: u64) -> WideSum {
    let (sum, carry) = (u64::from(a) * u64::from(b)).overflowing_add(added);
    WideSum { sum, above: carry, limit: carry.then_some(u64::MAX) }
}

/// The bit above a sum of 65 bits with a sign is the sign, whether 64 bits hold the sum or not (AMD's manual of CDNA 3,
/// V_MAD_I64_I32).
fn signed_sum(a: u32, b: u32, added: u64) -> WideSum {
    let exact = i128::from(a as i32) * i128::from(b as i32) + i128::from(added as i64);
    let sum = exact as i64;
    let limit = (i128::from(sum) != exact).then_some((i64::MAX ^ (exact >> 127) as i64) as u64);
    WideSum { sum: sum as u64, above: exact < 0, limit }
}

/// Runs a multiplication with a 64-bit sum. The bit above it goes to the scalar result. If the instruction clamps, a sum
/// that 64 bits do not hold is the limit that it is beyond.
fn multiply_and_add(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(u32, u32, u64) -> WideSum,
) -> Flow {
    let mut out = 0;
    for lane in lanes_of(wave.exec()) {
        let (a, b) = (wave.read(inst.src[0], lane), wave.read(inst.src[1], lane));
        let WideSum { sum, above, limit } = f(a, b, wave.read64(inst.src[2], lane));
        let sum = limit.filter(|_| inst.modifiers.clamp).unwrap_or(sum);
        wave.write_lane(inst.dst, lane, sum as u32);
        wave.write_lane(inst.dst + 1, lane, (sum >> 32) as u32);
        out |= u64::from(above) << lane;
    }
    wave.set_pair(inst.sdst, out);
    Flow::Next
}

/// Returns four sums of differences of bytes: source 0 from byte 0 to 3 on against source 1. With `masked`,
/// bytes of source 1 that are 0 do not count.
fn four_differences(wide: u64, reference: u32, masked: bool) -> [u32; 4] {
    [0, 8, 16, 24].map(|shift| {
        let window = (wide >> shift) as u32;
        if masked { masked_differences(window, reference) } else { byte_differences(window, reference) }
    })
}

/// Adds four sums of differences to four 16-bit numbers.
fn add_differences_u16(inst: &Inst, wide: u64, reference: u32, sums: u64, masked: bool) -> u64 {
    let differences = four_differences(wide, reference, masked);
    (0..4).fold(0, |result, part| {
        let old = i64::from((sums >> (16 * part)) as u16);
        result | u64::from(fit_u16(inst, old + i64::from(differences[part as usize]))) << (16 * part)
    })
}

/// Adds four sums of differences to four registers.
fn add_differences_u32(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let (wide, reference) = (wave.read64(inst.src[0], lane), wave.read(inst.src[1], lane));
        let sums = [0, 1, 2, 3].map(|part| wave.read(inst.src[2].plus(part), lane));
        let differences = four_differences(wide, reference, true);
        for part in 0..4 {
            let sum = add_u32(inst, differences[part], sums[part]);
            wave.write_lane(inst.dst + part as u16, lane, sum);
        }
    }
    Flow::Next
}

handlers! {
    "v_qsad_pk_u16_u8" => by_lane(|_, inst, _, a: u64, b: u32, c: u64| add_differences_u16(inst, a, b, c, false)),
    "v_mqsad_pk_u16_u8" => by_lane(|_, inst, _, a: u64, b: u32, c: u64| add_differences_u16(inst, a, b, c, true)),
    "v_mqsad_u32_u8" => add_differences_u32(),
    "v_mov_b32" | "v_accvgpr_mov_b32" | "v_accvgpr_read_b32" | "v_accvgpr_write_b32" => unary(|a: u32| a),
    "v_mov_b64" => unary(|a: u64| a),
    "v_not_b32" => unary(|a: u32| !a),
    "v_bfrev_b32" => unary(|a: u32| a.reverse_bits()),
    "v_ffbh_u32" => unary(leading_zeros),
    "v_ffbl_b32" => unary(trailing_zeros),
    "v_ffbh_i32" => unary(sign_bits),
    "v_sat_pk_u8_i16" => unary(saturated_bytes),
    "v_add_u32" => clamping(u32::wrapping_add, u32::saturating_add),
    "v_sub_u32" => clamping(u32::wrapping_sub, u32::saturating_sub),
    "v_subrev_u32" => clamping(|a, b| b.wrapping_sub(a), |a, b| b.saturating_sub(a)),
    "v_add_i32" => by_lane(|_, inst, _, a: i32, b: i32, _: Unused| fit_i32(inst, i64::from(a) + i64::from(b))),
    "v_sub_i32" => by_lane(|_, inst, _, a: i32, b: i32, _: Unused| fit_i32(inst, i64::from(a) - i64::from(b))),
    "v_add_co_u32" => carrying(no_carry, u32::MAX, add_carry),
    "v_sub_co_u32" => carrying(no_carry, 0, sub_borrow),
    "v_subrev_co_u32" => carrying(no_carry, 0, |a, b, borrow| sub_borrow(b, a, borrow)),
    "v_addc_co_u32" => carrying(carry_in, u32::MAX, add_carry),
    "v_subb_co_u32" => carrying(carry_in, 0, sub_borrow),
    "v_subbrev_co_u32" => carrying(carry_in, 0, |a, b, borrow| sub_borrow(b, a, borrow)),
    "v_and_b32" => binary(|a: u32, b: u32| a & b),
    "v_or_b32" => binary(|a: u32, b: u32| a | b),
    "v_xor_b32" => binary(|a: u32, b: u32| a ^ b),
    "v_xnor_b32" => binary(|a: u32, b: u32| !(a ^ b)),
    "v_lshrrev_b32" => binary(|a: u32, b: u32| b >> (a & 31)),
    "v_lshlrev_b32" => binary(|a: u32, b: u32| b << (a & 31)),
    "v_ashrrev_i32" => binary(|a: u32, b: i32| b >> (a & 31)),
    "v_lshrrev_b64" => binary(|a: u32, b: u64| b >> (a & 63)),
    "v_lshlrev_b64" => binary(|a: u32, b: u64| b << (a & 63)),
    "v_ashrrev_i64" => binary(|a: u32, b: i64| b >> (a & 63)),
    "v_min_i32" => binary(|a: i32, b: i32| a.min(b)),
    "v_max_i32" => binary(|a: i32, b: i32| a.max(b)),
    "v_min_u32" => binary(|a: u32, b: u32| a.min(b)),
    "v_max_u32" => binary(|a: u32, b: u32| a.max(b)),
    "v_mul_lo_u32" => binary(|a: u32, b: u32| a.wrapping_mul(b)),
    "v_mul_hi_u32" => binary(|a: u32, b: u32| ((u64::from(a) * u64::from(b)) >> 32) as u32),
    "v_mul_hi_i32" => binary(|a: i32, b: i32| ((i64::from(a) * i64::from(b)) >> 32) as i32),
    "v_mul_i32_i24" => by_lane(|_, inst, _, a, b, _: Unused| fit_i32(inst, signed24(a) * signed24(b))),
    "v_mul_hi_i32_i24" => binary(|a, b| ((signed24(a) * signed24(b)) >> 32) as i32),
    "v_mul_u32_u24" => by_lane(|_, inst, _, a, b, _: Unused| fit_u32(inst, low24(a) * low24(b))),
    "v_mul_hi_u32_u24" => binary(|a, b| ((low24(a) * low24(b)) >> 32) as u32),
    "v_mad_i32_i24" => by_lane(|_, inst, _, a, b, c: i32| fit_i32(inst, signed24(a) * signed24(b) + i64::from(c))),
    "v_mad_u32_u24" => by_lane(|_, inst, _, a, b, c: u32| fit_u32(inst, low24(a) * low24(b) + u64::from(c))),
    "v_mad_u64_u32" => multiply_and_add(unsigned_sum),
    "v_mad_i64_i32" => multiply_and_add(signed_sum),
    "v_mad_u32_u16" => by_lane(|_, inst, _, a: u16, b: u16, c: u32| {
        fit_u32(inst, u64::from(a) * u64::from(b) + u64::from(c))
    }),
    "v_mad_i32_i16" => by_lane(|_, inst, _, a: i16, b: i16, c: i32| {
        fit_i32(inst, i64::from(a) * i64::from(b) + i64::from(c))
    }),
    "v_bfe_u32" => ternary(field),
    "v_bfe_i32" => ternary(signed_field),
    "v_bfi_b32" => ternary(|a: u32, b: u32, c: u32| a & b | !a & c),
    "v_bfm_b32" => binary(|a: u32, b: u32| ((1u32 << (a & 31)) - 1) << (b & 31)),
    "v_bcnt_u32_b32" => binary(|a: u32, b: u32| a.count_ones().wrapping_add(b)),
    "v_mbcnt_lo_u32_b32" => by_lane(|_, _, lane, a: u32, b: u32, _: Unused| {
        let below = if lane >= 32 { u32::MAX } else { (1 << lane) - 1 };
        (a & below).count_ones().wrapping_add(b)
    }),
    "v_mbcnt_hi_u32_b32" => by_lane(|_, _, lane, a: u32, b: u32, _: Unused| {
        let below = if lane >= 32 { (1 << (lane - 32)) - 1 } else { 0 };
        (a & below).count_ones().wrapping_add(b)
    }),
    "v_alignbit_b32" => ternary(|a: u32, b: u32, c: u32| {
        ((u64::from(a) << 32 | u64::from(b)) >> (c & 31)) as u32
    }),
    "v_alignbyte_b32" => ternary(|a: u32, b: u32, c: u32| {
        ((u64::from(a) << 32 | u64::from(b)) >> (8 * (c & 3))) as u32
    }),
    "v_perm_b32" => ternary(permute_bytes),
    "v_lerp_u8" => ternary(average_bytes),
    "v_min3_i32" => ternary(|a: i32, b: i32, c: i32| a.min(b).min(c)),
    "v_max3_i32" => ternary(|a: i32, b: i32, c: i32| a.max(b).max(c)),
    "v_med3_i32" => ternary(middle::<i32>),
    "v_min3_u32" => ternary(|a: u32, b: u32, c: u32| a.min(b).min(c)),
    "v_max3_u32" => ternary(|a: u32, b: u32, c: u32| a.max(b).max(c)),
    "v_med3_u32" => ternary(middle::<u32>),
    "v_sad_u8" => by_lane(|_, inst, _, a, b, c: u32| add_u32(inst, byte_differences(a, b), c)),
    "v_sad_hi_u8" => by_lane(|_, inst, _, a, b, c: u32| add_u32(inst, byte_differences(a, b) << 16, c)),
    "v_sad_u16" => by_lane(|_, inst, _, a: u32, b: u32, c: u32| {
        let low = (a & 0xffff).abs_diff(b & 0xffff);
        add_u32(inst, low + (a >> 16).abs_diff(b >> 16), c)
    }),
    "v_sad_u32" => by_lane(|_, inst, _, a: u32, b: u32, c: u32| add_u32(inst, a.abs_diff(b), c)),
    "v_msad_u8" => by_lane(|_, inst, _, a, b, c: u32| add_u32(inst, masked_differences(a, b), c)),
    "v_add3_u32" => ternary(|a: u32, b: u32, c: u32| a.wrapping_add(b).wrapping_add(c)),
    "v_lshl_add_u32" => ternary(|a: u32, b: u32, c: u32| (a << (b & 31)).wrapping_add(c)),
    // Shifts by more than 4 are none (AMD's manual of CDNA 3).
    "v_lshl_add_u64" => ternary(|a: u64, b: u32, c: u64| (a << if b <= 4 { b } else { 0 }).wrapping_add(c)),
    "v_add_lshl_u32" => ternary(|a: u32, b: u32, c: u32| a.wrapping_add(b) << (c & 31)),
    "v_lshl_or_b32" => ternary(|a: u32, b: u32, c: u32| a << (b & 31) | c),
    "v_and_or_b32" => ternary(|a: u32, b: u32, c: u32| a & b | c),
    "v_or3_b32" => ternary(|a: u32, b: u32, c: u32| a | b | c),
    "v_xad_u32" => ternary(|a: u32, b: u32, c: u32| (a ^ b).wrapping_add(c)),
    "v_add_u16" => by_lane(|_, inst, _, a: u16, b: u16, _: Unused| fit_u16(inst, i64::from(a) + i64::from(b))),
    "v_sub_u16" => by_lane(|_, inst, _, a: u16, b: u16, _: Unused| fit_u16(inst, i64::from(a) - i64::from(b))),
    "v_subrev_u16" => by_lane(|_, inst, _, a: u16, b: u16, _: Unused| fit_u16(inst, i64::from(b) - i64::from(a))),
    "v_add_i16" => by_lane(|_, inst, _, a: i16, b: i16, _: Unused| fit_i16(inst, i64::from(a) + i64::from(b))),
    "v_sub_i16" => by_lane(|_, inst, _, a: i16, b: i16, _: Unused| fit_i16(inst, i64::from(a) - i64::from(b))),
    "v_mul_lo_u16" => binary(|a: u16, b: u16| a.wrapping_mul(b)),
    "v_lshlrev_b16" => binary(|a: u16, b: u16| b << (a & 15)),
    "v_lshrrev_b16" => binary(|a: u16, b: u16| b >> (a & 15)),
    "v_ashrrev_i16" => binary(|a: u16, b: i16| b >> (a & 15)),
    "v_min_i16" => binary(|a: i16, b: i16| a.min(b)),
    "v_max_i16" => binary(|a: i16, b: i16| a.max(b)),
    "v_min_u16" => binary(|a: u16, b: u16| a.min(b)),
    "v_max_u16" => binary(|a: u16, b: u16| a.max(b)),
    "v_min3_i16" => ternary(|a: i16, b: i16, c: i16| a.min(b).min(c)),
    "v_max3_i16" => ternary(|a: i16, b: i16, c: i16| a.max(b).max(c)),
    "v_med3_i16" => ternary(middle::<i16>),
    "v_min3_u16" => ternary(|a: u16, b: u16, c: u16| a.min(b).min(c)),
    "v_max3_u16" => ternary(|a: u16, b: u16, c: u16| a.max(b).max(c)),
    "v_med3_u16" => ternary(middle::<u16>),
    "v_mad_u16" | "v_mad_legacy_u16" => by_lane(|_, inst, _, a: u16, b: u16, c: u16| {
        fit_u16(inst, i64::from(a) * i64::from(b) + i64::from(c))
    }),
    "v_mad_i16" | "v_mad_legacy_i16" => by_lane(|_, inst, _, a: i16, b: i16, c: i16| {
        fit_i16(inst, i64::from(a) * i64::from(b) + i64::from(c))
    }),
}
