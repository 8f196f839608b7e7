//! Conversions in lanes.

use super::float::{half_of_f64, half_towards_zero, nan2_f64, quiet_f32};
use super::handlers;
use super::inst::{Flow, Inst};
use super::lanes::{Half, Unused, binary, by_lane, source_bits, unary, written};
use super::wave::{Env, Wave, lanes_of};

/// Converts to 32 bits. A NaN keeps its sign and the upper bits of its fraction.
pub(super) fn narrow(value: f64) -> f32 {
    if !value.is_nan() {
        return value as f32;
    }
    let bits = value.to_bits();
    f32::from_bits((bits >> 32) as u32 & 0x8000_0000 | 0x7fc0_0000 | (bits >> 29) as u32 & 0x3f_ffff)
}

/// Converts to 64 bits. A NaN keeps its sign and its fraction.
pub(super) fn widen(value: f32) -> f64 {
    if !value.is_nan() {
        return f64::from(value);
    }
    let bits = u64::from(quiet_f32(value).to_bits());
    f64::from_bits((bits & 0x8000_0000) << 32 | 0x7ff << 52 | (bits & 0x7f_ffff) << 29)
}

/// Scales a number of −1 to 1, or of 0 to 1, so that 1 becomes `most`, and rounds it to the nearest even whole number.
fn normalized(value: f64, most: f64, signed: bool) -> u16 {
    let least = if signed { -1.0 } else { 0.0 };
    let value = if value.is_nan() { 0.0 } else { value.clamp(least, 1.0) };
    (value * most).round_ties_even() as i32 as u16
}

fn pair(low: u16, high: u16) -> u32 {
    u32::from(low) | u32::from(high) << 16
}

/// Converts a byte of a number with the format's bias, exponent and fraction bits. Those of gfx942 have no infinities
/// and no −0, whose code is the only NaN.
pub(super) fn of_byte(byte: u8, exponent_bits: u32) -> f32 {
    let fraction_bits = 7 - exponent_bits;
    if byte == 0x80 {
        return f32::from_bits(0x7fc0_0000);
    }
    let bias = 1 << (exponent_bits - 1);
    let exponent = i32::from(byte >> fraction_bits) & ((1 << exponent_bits) - 1);
    let fraction = f32::from(byte & ((1 << fraction_bits) - 1)) / (1 << fraction_bits) as f32;
    let magnitude = match exponent {
        0 => fraction * 2f32.powi(1 - bias),
        _ => (1.0 + fraction) * 2f32.powi(exponent - bias),
    };
    if byte & 0x80 != 0 { -magnitude } else { magnitude }
}

/// Converts to a byte of the format with so many exponent bits. `extra` are random bits that are added below the
/// last place; without them the result is the nearest even number. Numbers that are too large become the NaN.
fn to_byte(value: f32, exponent_bits: u32, extra: Option<u32>) -> u8 {
    let fraction_bits = 7 - exponent_bits;
    let bias = 1 << (exponent_bits - 1);
    if !value.is_finite() {
        return 0x80;
    }
    let sign = if value.is_sign_negative() { 0x80 } else { 0 };
    let bits = value.to_bits() & 0x7fff_ffff;
    let exponent = (bits >> 23) as i32 - 127;
    let significand = u64::from(bits & 0x7f_ffff | if bits >> 23 == 0 { 0 } else { 1 << 23 });
    // Denormals share the exponent of the smallest normal number.
    let least: i32 = 1 - bias;
    let shift = 23 - fraction_bits + least.saturating_sub(exponent).clamp(0, 30) as u32;
    let rounded = match extra {
        Some(random) => {
            let random = u64::from(random) << shift >> 32;
            (significand + random) >> shift
        }
        None => {
            let rest = significand & ((1 << shift) - 1);
            let middle = 1u64 << (shift - 1);
            let kept = significand >> shift;
            kept + u64::from(rest > middle || rest == middle && kept & 1 != 0)
        }
    };
    let code = match exponent < least {
        true => rounded as i32,
        false => ((exponent - least) << fraction_bits) + rounded as i32,
    };
    match code {
        0 => 0,
        128.. => 0x80,
        code => sign | code as u8,
    }
}

/// Which byte or half of source 0 the selection bits name.
fn selected(inst: &Inst, bits: u32) -> (u8, u16) {
    let byte = inst.modifiers.op_sel & 1 | (inst.modifiers.op_sel >> 2 & 2);
    ((bits >> (8 * u32::from(byte))) as u8, (bits >> (16 * u32::from(inst.modifiers.op_sel & 1))) as u16)
}

fn pair_of_bytes(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, exponent_bits: u32) -> Flow {
    let words = source_bits(wave, inst, 0);
    for lane in lanes_of(written(wave, inst)) {
        let (_, half) = selected(inst, words[lane]);
        let [low, high] = half.to_le_bytes().map(|byte| of_byte(byte, exponent_bits).to_bits());
        wave.write_lane(inst.dst, lane, low);
        wave.write_lane(inst.dst + 1, lane, high);
    }
    Flow::Next
}

/// Writes two bytes into the half that the selection names.
fn bytes_of_pair(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, exponent_bits: u32) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let byte = |source: usize| {
            let bits = u64::from(wave.read(inst.src[source], lane));
            let value = <f32 as super::lanes::Lane>::decode(bits, source, inst, wave);
            u32::from(to_byte(value, exponent_bits, None))
        };
        let half = byte(0) | byte(1) << 8;
        let old = wave.row(inst.dst)[lane];
        let high = inst.modifiers.op_sel & 8 != 0;
        let new = if high { old & 0xffff | half << 16 } else { old & 0xffff_0000 | half };
        wave.write_lane(inst.dst, lane, new);
    }
    Flow::Next
}

/// Writes a byte with random rounding into the byte that the selection names.
fn random_byte(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, exponent_bits: u32) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let bits = u64::from(wave.read(inst.src[0], lane));
        let value = <f32 as super::lanes::Lane>::decode(bits, 0, inst, wave);
        let byte = u32::from(to_byte(value, exponent_bits, Some(wave.read(inst.src[1], lane))));
        let old = wave.row(inst.dst)[lane];
        let shift = 8 * u32::from(inst.modifiers.op_sel >> 2 & 3);
        wave.write_lane(inst.dst, lane, old & !(0xff << shift) | byte << shift);
    }
    Flow::Next
}

/// Returns the low four bits, a number of −8 to 7, divided by 16.
fn of_signed_nibble(bits: u32) -> f32 {
    ((bits << 28) as i32 >> 28) as f32 / 16.0
}

fn packed_byte(value: f32, select: u32, old: u32) -> u32 {
    let shift = 8 * (select & 3);
    let byte = if value.is_nan() { 0 } else { value.round_ties_even().clamp(0.0, 255.0) as u32 };
    old & !(0xff << shift) | byte << shift
}

handlers! {
    "v_cvt_i32_f32" => unary(|a: f32| a as i32),
    "v_cvt_u32_f32" => unary(|a: f32| a as u32),
    "v_cvt_f32_i32" => unary(|a: i32| a as f32),
    "v_cvt_f32_u32" => unary(|a: u32| a as f32),
    "v_cvt_i32_f64" => unary(|a: f64| a as i32),
    "v_cvt_u32_f64" => unary(|a: f64| a as u32),
    "v_cvt_f64_i32" => unary(|a: i32| f64::from(a)),
    "v_cvt_f64_u32" => unary(|a: u32| f64::from(a)),
    "v_cvt_f32_f64" => unary(narrow),
    "v_cvt_f64_f32" => unary(widen),
    "v_cvt_f16_f32" => unary(|a: f32| Half(widen(a))),
    "v_cvt_f32_f16" => unary(|a: Half| narrow(nan2_f64(a.0, a.0, a.0))),
    "v_cvt_rpi_i32_f32" => unary(|a: f32| (f64::from(a) + 0.5).floor() as i32),
    "v_cvt_flr_i32_f32" => unary(|a: f32| a.floor() as i32),
    "v_cvt_off_f32_i4" => unary(of_signed_nibble),
    "v_cvt_f32_ubyte0" => unary(|a: u32| (a & 255) as f32),
    "v_cvt_f32_ubyte1" => unary(|a: u32| (a >> 8 & 255) as f32),
    "v_cvt_f32_ubyte2" => unary(|a: u32| (a >> 16 & 255) as f32),
    "v_cvt_f32_ubyte3" => unary(|a: u32| (a >> 24) as f32),
    "v_cvt_f16_u16" => unary(|a: u16| Half(f64::from(a))),
    "v_cvt_f16_i16" => unary(|a: i16| Half(f64::from(a))),
    "v_cvt_u16_f16" => unary(|a: Half| a.0 as u16),
    "v_cvt_i16_f16" => unary(|a: Half| a.0 as i16),
    "v_cvt_norm_i16_f16" => unary(|a: Half| normalized(a.0, 32767.0, true)),
    "v_cvt_norm_u16_f16" => unary(|a: Half| normalized(a.0, 65535.0, false)),
    "v_cvt_pknorm_i16_f32" => binary(|a: f32, b: f32| {
        pair(normalized(a.into(), 32767.0, true), normalized(b.into(), 32767.0, true))
    }),
    "v_cvt_pknorm_u16_f32" => binary(|a: f32, b: f32| {
        pair(normalized(a.into(), 65535.0, false), normalized(b.into(), 65535.0, false))
    }),
    "v_cvt_pknorm_i16_f16" => binary(|a: Half, b: Half| {
        pair(normalized(a.0, 32767.0, true), normalized(b.0, 32767.0, true))
    }),
    "v_cvt_pknorm_u16_f16" => binary(|a: Half, b: Half| {
        pair(normalized(a.0, 65535.0, false), normalized(b.0, 65535.0, false))
    }),
    "v_cvt_pkrtz_f16_f32" => binary(|a: f32, b: f32| {
        pair(half_towards_zero(widen(a)), half_towards_zero(widen(b)))
    }),
    "v_cvt_pk_u16_u32" => binary(|a: u32, b: u32| pair(a.min(0xffff) as u16, b.min(0xffff) as u16)),
    "v_cvt_pk_i16_i32" => binary(|a: i32, b: i32| {
        let fit = |value: i32| value.clamp(-32768, 32767) as u16;
        pair(fit(a), fit(b))
    }),
    "v_cvt_pk_u8_f32" => by_lane(|_, _, _, a: f32, b: u32, c: u32| packed_byte(a, b, c)),
    "v_cvt_pkaccum_u8_f32" => by_lane(|wave, inst, lane, a: f32, b: u32, _: Unused| {
        packed_byte(a, b, wave.row(inst.dst)[lane])
    }),
    "v_pack_b32_f16" => binary(|a: Half, b: Half| pair(half_of_f64(a.0), half_of_f64(b.0))),
    "v_cvt_f32_fp8" => by_lane(|_, inst, _, a: u32, _: Unused, _: Unused| of_byte(selected(inst, a).0, 4)),
    "v_cvt_f32_bf8" => by_lane(|_, inst, _, a: u32, _: Unused, _: Unused| of_byte(selected(inst, a).0, 5)),
    "v_cvt_pk_f32_fp8" => pair_of_bytes(4),
    "v_cvt_pk_f32_bf8" => pair_of_bytes(5),
    "v_cvt_pk_fp8_f32" => bytes_of_pair(4),
    "v_cvt_pk_bf8_f32" => bytes_of_pair(5),
    "v_cvt_sr_fp8_f32" => random_byte(4),
    "v_cvt_sr_bf8_f32" => random_byte(5),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_eight_bits_survive_the_way_through_32() {
        for exponent_bits in [4, 5] {
            for byte in 0..=255u8 {
                let value = of_byte(byte, exponent_bits);
                assert_eq!(to_byte(value, exponent_bits, None), byte, "{value}");
            }
        }
        assert_eq!(of_byte(0x7f, 4), 240.0);
        assert_eq!(of_byte(0x7f, 5), 57344.0);
        assert_eq!(of_byte(0x40, 4), 1.0);
        assert_eq!(to_byte(1.0 + 1.0 / 16.0, 4, None), 0x40);
        assert_eq!(to_byte(1e9, 4, None), 0x80);
    }
}
