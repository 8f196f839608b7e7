//! Accesses through buffer descriptors (V#) without swizzling: loads, also to local memory, stores and atomics.

use super::atomic;
use super::fault::Fault;
use super::flat::{load_registers, store_registers};
use super::inst::{Flow, Inst, Src};
use super::place::{self, Place};
use super::wave::{Env, Wave, lanes_of, scalar};

/// A buffer's descriptor.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor {
    /// The address of its first byte.
    pub base: u64,
    /// Bytes from element to element.
    stride: u64,
    /// Elements if an instruction has an index and there is a stride, bytes otherwise.
    records: u64,
    /// Whether lanes' elements interleave, or lanes' numbers are indices, which this interpreter lacks.
    swizzled_or_add_tid: bool,
}

impl Descriptor {
    /// Reads the descriptor from its four registers.
    pub fn read(wave: &Wave, inst: &Inst) -> Descriptor {
        let word = |index: u8| match inst.base {
            Some(Src::Scalar(first)) => u64::from(wave.s[usize::from(first.wrapping_add(index) & 127)]),
            _ => 0,
        };
        Descriptor {
            base: word(0) | (word(1) & 0xffff) << 32,
            stride: word(1) >> 16 & 0x3fff,
            records: word(2),
            swizzled_or_add_tid: (word(1) >> 31 | word(3) >> 23) & 1 != 0,
        }
    }

    /// Returns the bytes that scalar loads may reach.
    pub fn scalar_bytes(&self) -> u64 {
        self.records * self.stride.max(1)
    }
}

/// Returns where a lane's access goes, and how many bytes from there on are inside of the buffer.
///
/// AMD's manual of CDNA 3 (9.1.5.1) has two kinds of buffers. Those of an instruction with an index whose descriptor
/// has a stride are structured: the index counts, and no offset does. All others are raw, also those with a stride and
/// without an index: their records are bytes, and no register may reach beyond the last one. The manual leaves the
/// scalar offset out of that sum; the processors count it (ROCm's own emulator was measured against gfx950,
/// ROCm/rocm-systems#10928), as the manuals of earlier ones say.
fn place_of(wave: &Wave, inst: &Inst, descriptor: Descriptor, lane: usize) -> (Place, u64) {
    let name = inst.row.name;
    let (has_index, has_offset) = (name.contains("_IDXEN") || name.contains("_BOTHEN"), name.contains("EN_"));
    let has_offset = has_offset && !name.contains("_IDXEN");
    let first = wave.read(inst.src[0], lane);
    let index = if has_index { u64::from(first) } else { 0 };
    let vector_offset = match (has_index, has_offset) {
        (true, true) => (wave.read64(inst.src[0], lane) >> 32) as u32,
        (false, true) => first,
        _ => 0,
    };
    // Of the sums only this one has 32 bits.
    let offset = u64::from(vector_offset.wrapping_add(inst.imm as u32));
    let offset = offset + u64::from(wave.read_scalar(inst.src[2]));
    let inside = match has_index && descriptor.stride != 0 {
        true if index < descriptor.records => u64::MAX,
        true => 0,
        false => descriptor.records.saturating_sub(offset),
    };
    (Place::Global(descriptor.base + descriptor.stride * index + offset), inside)
}

/// Runs an operation in each active lane with its place and the bytes that are inside of the buffer there.
fn each_place(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(&mut Wave, &mut Env<'_>, usize, Place, u64) -> Result<(), Fault>,
) -> Flow {
    let descriptor = Descriptor::read(wave, inst);
    if descriptor.swizzled_or_add_tid {
        return super::special::missing(wave, "a buffer that is swizzled or adds lanes' numbers");
    }
    for lane in lanes_of(wave.exec()) {
        let (place, inside) = place_of(wave, inst, descriptor, lane);
        if let Err(fault) = f(wave, env, lane, place, inside) {
            wave.fault = Some(fault);
            return Flow::Fault;
        }
    }
    Flow::Next
}

/// Runs an operation on so many bytes in each active lane with its place, if all of them are inside of the buffer.
fn each_lane(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    bytes: u64,
    f: impl Fn(&mut Wave, &mut Env<'_>, usize, Option<Place>) -> Result<(), Fault>,
) -> Flow {
    each_place(wave, inst, env, |wave, env, lane, place, inside| {
        f(wave, env, lane, (inside >= bytes).then_some(place))
    })
}

/// Returns how many of so many registers so many bytes fill: each is inside of a buffer or outside for itself.
fn whole(bytes: u64, registers: u16) -> u16 {
    (bytes / 4).min(u64::from(registers)) as u16
}

/// Returns whether a load goes to local memory.
fn is_to_lds(inst: &Inst) -> bool {
    inst.row.asm.ends_with(" lds")
}

/// Loads so many bytes to local memory: `f` makes four bytes of them, lane after lane from M0 on.
fn load_lds(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, bytes: u64, f: impl Fn(u32) -> u32) -> Flow {
    // The instruction's offset is one of both addresses.
    let base = u64::from(wave.s[usize::from(scalar::M0)] & 0xffff) + inst.imm as u64;
    each_lane(wave, inst, env, bytes, |wave, env, lane, place| {
        let value = match (place, bytes) {
            (None, _) => 0,
            (Some(place), 1) => place::load_u8(wave, env, lane, place)?.into(),
            (Some(place), 2) => place::load_u16(wave, env, lane, place)?.into(),
            (Some(place), _) => place::load_u32(wave, env, lane, place)?,
        };
        place::store_u32(wave, env, lane, Place::Local(base + lane as u64 * 4), f(value))
    })
}

fn load(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16) -> Flow {
    if is_to_lds(inst) {
        return load_lds(wave, inst, env, 4, |value| value);
    }
    each_place(wave, inst, env, |wave, env, lane, place, inside| {
        let inside = whole(inside, registers);
        load_registers(wave, env, inst.dst, lane, place, inside)?;
        (inside..registers).for_each(|register| wave.write_lane(inst.dst + register, lane, 0));
        Ok(())
    })
}

fn load_u8(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u8) -> u32) -> Flow {
    if is_to_lds(inst) {
        return load_lds(wave, inst, env, 1, |value| f(value as u8));
    }
    each_lane(wave, inst, env, 1, |wave, env, lane, place| {
        let value = place.map_or(Ok(0), |place| place::load_u8(wave, env, lane, place))?;
        wave.write_lane(inst.dst, lane, f(value));
        Ok(())
    })
}

fn load_u16(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u16) -> u32) -> Flow {
    if is_to_lds(inst) {
        return load_lds(wave, inst, env, 2, |value| f(value as u16));
    }
    each_lane(wave, inst, env, 2, |wave, env, lane, place| {
        let value = place.map_or(Ok(0), |place| place::load_u16(wave, env, lane, place))?;
        wave.write_lane(inst.dst, lane, f(value));
        Ok(())
    })
}

fn store(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16) -> Flow {
    each_place(wave, inst, env, |wave, env, lane, place, inside| {
        store_registers(wave, env, inst.src[1], lane, place, whole(inside, registers))
    })
}

fn store_small(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, bytes: u64, shift: u32) -> Flow {
    each_lane(wave, inst, env, bytes, |wave, env, lane, place| {
        let value = wave.read(inst.src[1], lane) >> shift;
        match place {
            Some(place) if bytes == 1 => place::store_u8(wave, env, lane, place, value as u8),
            Some(place) => place::store_u16(wave, env, lane, place, value as u16),
            None => Ok(()),
        }
    })
}

fn update(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u32, u32) -> u32) -> Flow {
    each_lane(wave, inst, env, 4, |wave, env, lane, place| {
        let data = wave.read(inst.src[1], lane);
        let old =
            place.map_or(Ok(0), |place| place::update_u32(wave, env, lane, place, |old| f(old, data)))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old);
        }
        Ok(())
    })
}

fn update_x2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u64, u64) -> u64) -> Flow {
    each_lane(wave, inst, env, 8, |wave, env, lane, place| {
        let data = wave.read64(inst.src[1], lane);
        let old =
            place.map_or(Ok(0), |place| place::update_u64(wave, env, lane, place, |old| f(old, data)))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old as u32);
            wave.write_lane(inst.dst + 1, lane, (old >> 32) as u32);
        }
        Ok(())
    })
}

/// Stores the data's first part if memory holds its second.
fn compare_swap(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, 4, |wave, env, lane, place| {
        let both = wave.read64(inst.src[1], lane);
        let (new, expected) = (both as u32, (both >> 32) as u32);
        let swap = |old| if old == expected { new } else { old };
        let old = place.map_or(Ok(0), |place| place::update_u32(wave, env, lane, place, swap))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old);
        }
        Ok(())
    })
}

fn compare_swap_x2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, 8, |wave, env, lane, place| {
        let new = wave.read64(inst.src[1], lane);
        let expected = wave.read64(inst.src[1].plus(2), lane);
        let swap = |old| if old == expected { new } else { old };
        let old = place.map_or(Ok(0), |place| place::update_u64(wave, env, lane, place, swap))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old as u32);
            wave.write_lane(inst.dst + 1, lane, (old >> 32) as u32);
        }
        Ok(())
    })
}

super::handlers! {
    "buffer_load_ubyte_d16" => load_u8(u32::from),
    "buffer_load_ubyte_d16_hi" => load_u8(|value| u32::from(value) << 16),
    "buffer_load_sbyte_d16" => load_u8(|value| u32::from(value as i8 as u16)),
    "buffer_load_sbyte_d16_hi" => load_u8(|value| (value as i8 as u32) << 16),
    "buffer_load_ubyte" => load_u8(u32::from),
    "buffer_load_sbyte" => load_u8(|value| value as i8 as u32),
    "buffer_load_ushort" => load_u16(u32::from),
    "buffer_load_sshort" => load_u16(|value| value as i16 as u32),
    "buffer_load_short_d16" => load_u16(u32::from),
    "buffer_load_short_d16_hi" => load_u16(|value| u32::from(value) << 16),
    "buffer_load_dword" => load(1),
    "buffer_load_dwordx2" => load(2),
    "buffer_load_dwordx3" => load(3),
    "buffer_load_dwordx4" => load(4),
    "buffer_store_byte" => store_small(1, 0),
    "buffer_store_byte_d16_hi" => store_small(1, 16),
    "buffer_store_short" => store_small(2, 0),
    "buffer_store_short_d16_hi" => store_small(2, 16),
    "buffer_store_dword" => store(1),
    "buffer_store_dwordx2" => store(2),
    "buffer_store_dwordx3" => store(3),
    "buffer_store_dwordx4" => store(4),
    "buffer_atomic_add" => update(|old, data| old.wrapping_add(data)),
    "buffer_atomic_sub" => update(|old, data| old.wrapping_sub(data)),
    "buffer_atomic_swap" => update(|_, data| data),
    "buffer_atomic_and" => update(|old, data| old & data),
    "buffer_atomic_or" => update(|old, data| old | data),
    "buffer_atomic_xor" => update(|old, data| old ^ data),
    "buffer_atomic_umin" => update(|old, data| old.min(data)),
    "buffer_atomic_umax" => update(|old, data| old.max(data)),
    "buffer_atomic_smin" => update(|old, data| (old as i32).min(data as i32) as u32),
    "buffer_atomic_smax" => update(|old, data| (old as i32).max(data as i32) as u32),
    "buffer_atomic_cmpswap" => compare_swap(),
    "buffer_atomic_inc" => update(|old, data| atomic::increment(old.into(), data.into()) as u32),
    "buffer_atomic_dec" => update(|old, data| atomic::decrement(old.into(), data.into()) as u32),
    "buffer_atomic_add_f32" => update(atomic::add_f32),
    "buffer_atomic_pk_add_f16" => update(atomic::add_pair_f16),
    "buffer_atomic_add_x2" => update_x2(|old, data| old.wrapping_add(data)),
    "buffer_atomic_sub_x2" => update_x2(|old, data| old.wrapping_sub(data)),
    "buffer_atomic_swap_x2" => update_x2(|_, data| data),
    "buffer_atomic_cmpswap_x2" => compare_swap_x2(),
    "buffer_atomic_and_x2" => update_x2(|old, data| old & data),
    "buffer_atomic_or_x2" => update_x2(|old, data| old | data),
    "buffer_atomic_xor_x2" => update_x2(|old, data| old ^ data),
    "buffer_atomic_umin_x2" => update_x2(|old, data| old.min(data)),
    "buffer_atomic_umax_x2" => update_x2(|old, data| old.max(data)),
    "buffer_atomic_smin_x2" => update_x2(|old, data| (old as i64).min(data as i64) as u64),
    "buffer_atomic_smax_x2" => update_x2(|old, data| (old as i64).max(data as i64) as u64),
    "buffer_atomic_inc_x2" => update_x2(atomic::increment),
    "buffer_atomic_dec_x2" => update_x2(atomic::decrement),
    "buffer_atomic_add_f64" => update_x2(atomic::add_f64),
    "buffer_atomic_min_f64" => update_x2(atomic::least_f64),
    "buffer_atomic_max_f64" => update_x2(atomic::greatest_f64),
}
