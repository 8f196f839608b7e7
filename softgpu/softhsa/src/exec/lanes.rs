//! Drivers of vector instructions: they fetch sources, call the semantic function in each active lane, and
//! write the results. Modifiers, SDWA and DPP are handled here, once for all instructions.

use super::float::{f64_of_half, half_of_f64};
use super::inst::{Dpp, Extension, Flow, HalfResult, Inst, Sdwa, Src};
use super::wave::mode::{DENORM_16_64, DENORM_32, DX10_CLAMP, IEEE, RESULTS, SOURCES};
use super::wave::{Env, LANES, Row, Wave, expand, lanes_of};

/// With at most so many active lanes, a driver goes from lane to lane instead of working on whole registers.
const FEW: u32 = 4;

/// A type of the values in lanes.
pub trait Lane: Copy {
    /// Registers that a value takes.
    const WIDE: bool;
    /// The type's zero.
    const ZERO: Self;

    /// Makes a value of a source's bits.
    fn decode(bits: u64, source: usize, inst: &Inst, wave: &Wave) -> Self;

    /// Returns the bits that the result leaves in a register that held `old`.
    fn encode(self, old: u64, inst: &Inst, wave: &Wave) -> u64;
}

macro_rules! plain_lanes {
    ($($type:ty, $bits:ty, $wide:literal;)*) => {$(
        impl Lane for $type {
            const WIDE: bool = $wide;
            const ZERO: Self = 0;

            #[inline(always)]
            fn decode(bits: u64, _: usize, _: &Inst, _: &Wave) -> Self {
                bits as $bits as $type
            }

            #[inline(always)]
            fn encode(self, _: u64, _: &Inst, _: &Wave) -> u64 {
                u64::from(self as $bits)
            }
        }
    )*};
}

plain_lanes! {
    u32, u32, false;
    i32, u32, false;
    u64, u64, true;
    i64, u64, true;
}

macro_rules! half_integers {
    ($($type:ty),*) => {$(
        impl Lane for $type {
            const WIDE: bool = false;
            const ZERO: Self = 0;

            #[inline(always)]
            fn decode(bits: u64, source: usize, inst: &Inst, _: &Wave) -> Self {
                selected_half(bits, source, inst) as $type
            }

            #[inline(always)]
            fn encode(self, old: u64, inst: &Inst, _: &Wave) -> u64 {
                with_half(old, self as u16, inst)
            }
        }
    )*};
}

half_integers!(u16, i16);

#[inline(always)]
fn selected_half(bits: u64, source: usize, inst: &Inst) -> u16 {
    if inst.modifiers.op_sel >> source & 1 != 0 { (bits >> 16) as u16 } else { bits as u16 }
}

#[inline(always)]
fn with_half(old: u64, half: u16, inst: &Inst) -> u64 {
    let half = u64::from(half);
    match inst.half {
        HalfResult::Zero => half,
        HalfResult::Low => old & 0xffff_0000 | half,
        HalfResult::High => old & 0xffff | half << 16,
    }
}

impl Lane for f32 {
    const WIDE: bool = false;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn decode(bits: u64, source: usize, inst: &Inst, wave: &Wave) -> Self {
        let bits = F32Bits::decode(bits, source, inst, wave).0;
        f32::from_bits(wave.flush_32(bits, SOURCES))
    }

    #[inline(always)]
    fn encode(self, _: u64, inst: &Inst, wave: &Wave) -> u64 {
        let mut value = self;
        if !inst.modifiers.plain {
            value = scale(f64::from(value), DENORM_32, inst, wave) as f32;
        }
        u64::from(wave.flush_32(value.to_bits(), RESULTS))
    }
}

impl Lane for f64 {
    const WIDE: bool = true;
    const ZERO: Self = 0.0;

    #[inline(always)]
    fn decode(bits: u64, source: usize, inst: &Inst, wave: &Wave) -> Self {
        let bits = F64Bits::decode(bits, source, inst, wave).0;
        f64::from_bits(wave.flush_64(bits, SOURCES))
    }

    #[inline(always)]
    fn encode(self, _: u64, inst: &Inst, wave: &Wave) -> u64 {
        let value = if inst.modifiers.plain { self } else { scale(self, DENORM_16_64, inst, wave) };
        wave.flush_64(value.to_bits(), RESULTS)
    }
}

/// A 16-bit floating-point number, computed with as one of 64 bits and rounded when it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Half(pub f64);

impl Lane for Half {
    const WIDE: bool = false;
    const ZERO: Self = Half(0.0);

    #[inline(always)]
    fn decode(bits: u64, source: usize, inst: &Inst, wave: &Wave) -> Self {
        Half(half_source(selected_half(bits, source, inst), source, inst, wave))
    }

    #[inline(always)]
    fn encode(self, old: u64, inst: &Inst, wave: &Wave) -> u64 {
        with_half(old, half_result(self.0, inst, wave), inst)
    }
}

/// Makes a number of 16 bits of a source, with its modifiers.
#[inline]
pub fn half_source(half: u16, source: usize, inst: &Inst, wave: &Wave) -> f64 {
    let mut half = half;
    if inst.modifiers.abs >> source & 1 != 0 {
        half &= 0x7fff;
    }
    if inst.modifiers.neg >> source & 1 != 0 {
        half ^= 0x8000;
    }
    f64_of_half(wave.flush_16(half, SOURCES))
}

/// Rounds a result to 16 bits, with the result's modifiers.
#[inline]
pub fn half_result(value: f64, inst: &Inst, wave: &Wave) -> u16 {
    let value = if inst.modifiers.plain { value } else { scale(value, DENORM_16_64, inst, wave) };
    wave.flush_16(half_of_f64(value), RESULTS)
}

/// Returns a register that held `old` with a half as a 16-bit result.
pub fn with_half_result(old: u32, half: u16, inst: &Inst) -> u32 {
    with_half(u64::from(old), half, inst) as u32
}

/// A source that an operation does not have.
#[derive(Clone, Copy, Debug)]
pub struct Unused;

impl Lane for Unused {
    const WIDE: bool = false;
    const ZERO: Self = Unused;

    #[inline(always)]
    fn decode(_: u64, _: usize, _: &Inst, _: &Wave) -> Self {
        Unused
    }

    #[inline(always)]
    fn encode(self, old: u64, _: &Inst, _: &Wave) -> u64 {
        old
    }
}

/// The bits of a 32-bit number that is moved and not computed with: sign modifiers apply, denormals stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct F32Bits(pub u32);

impl Lane for F32Bits {
    const WIDE: bool = false;
    const ZERO: Self = F32Bits(0);

    #[inline(always)]
    fn decode(bits: u64, source: usize, inst: &Inst, _: &Wave) -> Self {
        let mut bits = bits as u32;
        if inst.modifiers.abs >> source & 1 != 0 {
            bits &= 0x7fff_ffff;
        }
        if inst.modifiers.neg >> source & 1 != 0 {
            bits ^= 0x8000_0000;
        }
        F32Bits(bits)
    }

    #[inline(always)]
    fn encode(self, _: u64, _: &Inst, _: &Wave) -> u64 {
        u64::from(self.0)
    }
}

/// The bits of a 64-bit number: sign modifiers apply, denormals stay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct F64Bits(pub u64);

impl Lane for F64Bits {
    const WIDE: bool = true;
    const ZERO: Self = F64Bits(0);

    #[inline(always)]
    fn decode(bits: u64, source: usize, inst: &Inst, _: &Wave) -> Self {
        const SIGN: u64 = 1 << 63;
        let mut bits = bits;
        if inst.modifiers.abs >> source & 1 != 0 {
            bits &= !SIGN;
        }
        if inst.modifiers.neg >> source & 1 != 0 {
            bits ^= SIGN;
        }
        F64Bits(bits)
    }

    #[inline(always)]
    fn encode(self, _: u64, _: &Inst, _: &Wave) -> u64 {
        self.0
    }
}

/// Applies the multiplication and the clamp of a floating-point result. The processor takes no notice of a
/// multiplication while MODE says IEEE or keeps denormal results of the format, whose field is `denormals`.
/// Else it makes −0 a 0.
pub(super) fn scale(value: f64, denormals: u32, inst: &Inst, wave: &Wave) -> f64 {
    let factor = match inst.modifiers.omod {
        _ if wave.mode & (IEEE | denormals & RESULTS) != 0 => 0.0,
        1 => 2.0,
        2 => 4.0,
        3 => 0.5,
        _ => 0.0,
    };
    let value = if factor == 0.0 { value } else { value * factor + 0.0 };
    match inst.modifiers.clamp {
        true if value.is_nan() && wave.mode & DX10_CLAMP != 0 => 0.0,
        true => value.clamp(0.0, 1.0),
        false => value,
    }
}

/// Fetches source number `source` in all lanes; of SDWA and DPP instructions that is the selected part or the
/// other lane's value.
#[inline(always)]
fn fetch<T: Lane>(wave: &Wave, inst: &Inst, source: usize) -> [T; LANES] {
    if inst.extension.is_some() && source < 2 {
        return fetch_extended(wave, inst, source);
    }
    plain_fetch(wave, inst, source)
}

#[inline(always)]
fn plain_fetch<T: Lane>(wave: &Wave, inst: &Inst, source: usize) -> [T; LANES] {
    let mut values = [T::ZERO; LANES];
    match inst.src[source] {
        Src::Vector(register) if T::WIDE => {
            let (low, high) = (wave.row(register), wave.row(register + 1));
            for lane in 0..LANES {
                let bits = u64::from(low[lane]) | u64::from(high[lane]) << 32;
                values[lane] = T::decode(bits, source, inst, wave);
            }
        }
        Src::Vector(register) => {
            let row = wave.row(register);
            for lane in 0..LANES {
                values[lane] = T::decode(u64::from(row[lane]), source, inst, wave);
            }
        }
        src => {
            let bits = if T::WIDE { wave.read_scalar64(src) } else { u64::from(wave.read_scalar(src)) };
            values = [T::decode(bits, source, inst, wave); LANES];
        }
    }
    values
}

#[inline(never)]
fn fetch_extended<T: Lane>(wave: &Wave, inst: &Inst, source: usize) -> [T; LANES] {
    let mut row = [0; LANES];
    for (lane, bits) in row.iter_mut().enumerate() {
        let src = inst.src[source];
        *bits = if T::WIDE { wave.read64(src, lane) } else { u64::from(wave.read(src, lane)) };
    }
    match (inst.extension, source) {
        (Some(Extension::Sdwa(sdwa)), _) => select(&mut row, sdwa, source),
        (Some(Extension::Dpp(dpp)), 0) => {
            let from = row;
            for (lane, value) in row.iter_mut().enumerate() {
                *value = dpp_source(dpp, lane, wave.exec()).map_or(0, |other| from[other]);
            }
        }
        _ => {}
    }
    let mut values = [T::ZERO; LANES];
    for lane in 0..LANES {
        values[lane] = T::decode(row[lane], source, inst, wave);
    }
    values
}

/// Returns a source's bits in all lanes, and without modifiers of numbers.
pub(super) fn source_bits(wave: &Wave, inst: &Inst, source: usize) -> Row {
    fetch::<u32>(wave, inst, source)
}

/// Returns a source's bits in one lane, for instructions without SDWA and DPP.
#[inline(always)]
fn fetch_lane<T: Lane>(wave: &Wave, inst: &Inst, source: usize, lane: usize) -> T {
    let src = inst.src[source];
    let bits = if T::WIDE { wave.read64(src, lane) } else { u64::from(wave.read(src, lane)) };
    T::decode(bits, source, inst, wave)
}

/// Replaces registers of 32 bits by their parts that an SDWA source selects.
fn select(row: &mut [u64; LANES], sdwa: Sdwa, source: usize) {
    let (shift, bits) = match sdwa.select[source] {
        byte @ 0..=3 => (u32::from(byte) * 8, 8),
        word @ 4..=5 => (u32::from(word - 4) * 16, 16),
        _ => return,
    };
    let (up, down) = (32 - bits - shift, 32 - bits);
    for value in row {
        let left = (*value as u32) << up;
        *value = u64::from(if sdwa.extend[source] { ((left as i32) >> down) as u32 } else { left >> down });
    }
}

/// Returns the lane whose value a lane reads, or `None` if there is no such active lane.
pub fn dpp_source(dpp: Dpp, lane: usize, exec: u64) -> Option<usize> {
    let (row, place) = (lane & !15, lane & 15);
    let amount = usize::from(dpp.control & 15);
    let from = match dpp.control {
        pattern @ 0..=0xff => Some(lane & !3 | usize::from(pattern >> (2 * (lane & 3)) & 3)),
        0x101..=0x10f => (place + amount < 16).then(|| lane + amount),
        0x111..=0x11f => (place >= amount).then(|| lane - amount),
        0x121..=0x12f => Some(row | (place + 16 - amount) & 15),
        0x130 => (lane < 63).then(|| lane + 1),
        0x134 => Some((lane + 1) & 63),
        0x138 => (lane > 0).then(|| lane - 1),
        0x13c => Some((lane + 63) & 63),
        0x140 => Some(row | (15 - place)),
        0x141 => Some(lane & !7 | (7 - (lane & 7))),
        0x142 => (lane >= 16).then(|| row - 1),
        0x143 => (lane >= 32).then_some(31),
        0x150..=0x15f => Some(row | amount),
        // Not executed: see `Inst::new`.
        _ => None,
    };
    from.filter(|from| exec >> from & 1 != 0)
}

/// Returns the lanes that an instruction writes.
pub(super) fn written(wave: &Wave, inst: &Inst) -> u64 {
    let exec = wave.exec();
    let Some(Extension::Dpp(dpp)) = inst.extension else { return exec };
    lanes_of(exec)
        .filter(|&lane| {
            let enabled = dpp.rows >> (lane / 16) & 1 != 0 && dpp.banks >> (lane / 4 % 4) & 1 != 0;
            enabled && (dpp.bound_zero || dpp_source(dpp, lane, exec).is_some())
        })
        .fold(0, |mask, lane| mask | 1 << lane)
}

/// Returns what an SDWA result leaves in a register that held `old`.
fn sdwa_result(sdwa: Sdwa, old: u32, value: u32) -> u32 {
    let (shift, bits) = match sdwa.result {
        byte @ 0..=3 => (u32::from(byte) * 8, 8),
        word @ 4..=5 => (u32::from(word - 4) * 16, 16),
        _ => return value,
    };
    let mask = ((1u64 << bits) - 1) as u32;
    let part = (value & mask) << shift;
    match sdwa.unused {
        0 => part,
        1 => {
            let negative = value >> (bits - 1) & 1 != 0;
            part | if negative { !((mask << shift) | ((1 << shift) - 1)) } else { 0 }
        }
        _ => old & !(mask << shift) | part,
    }
}

/// Writes a result in one lane.
#[inline(always)]
fn store_lane<T: Lane>(wave: &mut Wave, inst: &Inst, lane: usize, value: T) {
    let old = u64::from(wave.row(inst.dst)[lane]);
    let bits = value.encode(old, inst, wave);
    let low = match inst.extension {
        Some(Extension::Sdwa(sdwa)) => sdwa_result(sdwa, old as u32, bits as u32),
        _ => bits as u32,
    };
    wave.write_lane(inst.dst, lane, low);
    if T::WIDE {
        wave.write_lane(inst.dst + 1, lane, (bits >> 32) as u32);
    }
}

/// Writes the results of the lanes of the mask.
#[inline(always)]
fn store<T: Lane>(wave: &mut Wave, inst: &Inst, values: &[T; LANES], mask: u64) {
    let old = *wave.row(inst.dst);
    let (mut low, mut high) = ([0; LANES], [0; LANES]);
    for lane in 0..LANES {
        let bits = values[lane].encode(u64::from(old[lane]), inst, wave);
        low[lane] = bits as u32;
        high[lane] = (bits >> 32) as u32;
    }
    if let Some(Extension::Sdwa(sdwa)) = inst.extension {
        for lane in 0..LANES {
            low[lane] = sdwa_result(sdwa, old[lane], low[lane]);
        }
    }
    wave.write_row(inst.dst, &low, mask);
    if T::WIDE {
        wave.write_row(inst.dst + 1, &high, mask);
    }
}

/// Whether the active lanes are few and the instruction needs no other lanes' values.
#[inline(always)]
fn goes_lane_by_lane(wave: &Wave, inst: &Inst) -> bool {
    inst.extension.is_none() && wave.exec().count_ones() <= FEW
}

/// Runs an operation of one source.
#[inline(always)]
pub fn unary<A: Lane, R: Lane>(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(A) -> R) -> Flow {
    by_lane(wave, inst, env, |_, _, _, a, _: Unused, _: Unused| f(a))
}

/// Runs an operation of two sources.
#[inline(always)]
pub fn binary<A: Lane, B: Lane, R: Lane>(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(A, B) -> R,
) -> Flow {
    by_lane(wave, inst, env, |_, _, _, a, b, _: Unused| f(a, b))
}

/// Runs an operation of three sources.
#[inline(always)]
pub fn ternary<A: Lane, B: Lane, C: Lane, R: Lane>(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(A, B, C) -> R,
) -> Flow {
    by_lane(wave, inst, env, |_, _, _, a, b, c| f(a, b, c))
}

/// Runs an operation that sees its modifiers, the wave and the lane's number. It computes in all lanes, those
/// that are not active included, if many are active.
#[inline(always)]
pub fn by_lane<A: Lane, B: Lane, C: Lane, R: Lane>(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(&Wave, &Inst, usize, A, B, C) -> R,
) -> Flow {
    if goes_lane_by_lane(wave, inst) {
        for lane in lanes_of(wave.exec()) {
            let (a, b) = (fetch_lane(wave, inst, 0, lane), fetch_lane(wave, inst, 1, lane));
            let result = f(wave, inst, lane, a, b, fetch_lane(wave, inst, 2, lane));
            store_lane(wave, inst, lane, result);
        }
        return Flow::Next;
    }
    let (a, b) = (fetch::<A>(wave, inst, 0), fetch::<B>(wave, inst, 1));
    let c = fetch::<C>(wave, inst, 2);
    let mut results = [R::ZERO; LANES];
    for lane in 0..LANES {
        results[lane] = f(wave, inst, lane, a[lane], b[lane], c[lane]);
    }
    let mask = written(wave, inst);
    store(wave, inst, &results, mask);
    Flow::Next
}

/// Selects source 1 in the lanes of a mask and source 0 in the others.
#[inline(always)]
pub fn select_by_mask(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    mask: impl Fn(&Wave, &Inst) -> u64,
) -> Flow {
    let mask = mask(wave, inst);
    if goes_lane_by_lane(wave, inst) {
        for lane in lanes_of(wave.exec()) {
            let source = (mask >> lane & 1) as usize;
            let result: F32Bits = fetch_lane(wave, inst, source, lane);
            store_lane(wave, inst, lane, result);
        }
        return Flow::Next;
    }
    let (a, b) = (fetch::<F32Bits>(wave, inst, 0), fetch::<F32Bits>(wave, inst, 1));
    let chosen = expand(mask);
    let mut results = [F32Bits(0); LANES];
    for lane in 0..LANES {
        results[lane] = F32Bits(a[lane].0 & !chosen[lane] | b[lane].0 & chosen[lane]);
    }
    let mask = written(wave, inst);
    store(wave, inst, &results, mask);
    Flow::Next
}

/// Returns a mask of the lanes whose value is 1.
#[inline(always)]
fn collect(holds: &[u8; LANES]) -> u64 {
    let (bytes, _) = holds.as_chunks();
    // The product has the eight lowest bits side by side in its highest byte.
    let eight = |bytes: &[u8; 8]| u64::from_le_bytes(*bytes).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    bytes.iter().enumerate().fold(0, |mask, (number, bytes)| mask | eight(bytes) << (8 * number))
}

/// Runs an operation of two sources and a carry. `f` returns the result and the carry out, which go to the
/// vector and the scalar result. `carry` names the pair of registers with the carries in. If the instruction clamps,
/// a result with a carry out is the `limit` of what 32 bits hold.
#[inline(always)]
pub fn carrying(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    carry: fn(&Inst) -> Option<Src>,
    limit: u32,
    f: impl Fn(u32, u32, u32) -> (u32, bool),
) -> Flow {
    let clamps = inst.modifiers.clamp;
    let f = |a, b, carry| {
        let (result, carry) = f(a, b, carry);
        (if clamps & carry { limit } else { result }, carry)
    };
    let carries = carry(inst).map_or(0, |src| wave.read_scalar64(src));
    if goes_lane_by_lane(wave, inst) {
        let mut out = 0;
        for lane in lanes_of(wave.exec()) {
            let (a, b) = (fetch_lane(wave, inst, 0, lane), fetch_lane(wave, inst, 1, lane));
            let (result, carry) = f(a, b, (carries >> lane & 1) as u32);
            store_lane(wave, inst, lane, result);
            out |= u64::from(carry) << lane;
        }
        wave.set_pair(inst.sdst, out);
        return Flow::Next;
    }
    let mask = written(wave, inst);
    let (a, b, carries) = (fetch::<u32>(wave, inst, 0), fetch::<u32>(wave, inst, 1), expand(carries));
    let (mut results, mut out) = ([0u32; LANES], [0u8; LANES]);
    for lane in 0..LANES {
        let (result, carry) = f(a[lane], b[lane], carries[lane] & 1);
        results[lane] = result;
        out[lane] = u8::from(carry);
    }
    store(wave, inst, &results, mask);
    wave.set_pair(inst.sdst, collect(&out) & mask);
    Flow::Next
}

/// Runs a comparison: lanes that are not active get 0. `v_cmpx` also writes EXEC.
#[inline(always)]
pub fn compare<A: Lane, B: Lane>(
    wave: &mut Wave,
    inst: &Inst,
    _: &mut Env<'_>,
    f: impl Fn(A, B) -> bool,
) -> Flow {
    let result = if goes_lane_by_lane(wave, inst) {
        lanes_of(wave.exec()).fold(0, |result, lane| {
            let holds = f(fetch_lane(wave, inst, 0, lane), fetch_lane(wave, inst, 1, lane));
            result | u64::from(holds) << lane
        })
    } else {
        let (a, b) = (fetch::<A>(wave, inst, 0), fetch::<B>(wave, inst, 1));
        let mut holds = [0; LANES];
        for lane in 0..LANES {
            holds[lane] = u8::from(f(a[lane], b[lane]));
        }
        collect(&holds) & wave.exec()
    };
    wave.set_pair(inst.sdst, result);
    if inst.writes_exec {
        wave.set_pair(super::wave::scalar::EXEC, result);
    }
    Flow::Next
}
