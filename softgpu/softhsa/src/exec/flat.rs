//! Loads, stores and atomics with addresses in vector registers: flat, global and scratch.

use super::atomic;
use super::fault::Fault;
use super::inst::{Flow, Inst, Src};
use super::place::{self, Place};
use super::wave::{Env, LANES, Wave, lanes_of};
use crate::isa::table::Flag;

/// Returns the semantic function of the mnemonic.
pub fn handler(mnemonic: &str) -> Option<super::Handler> {
    let operation =
        ["flat_", "global_", "scratch_"].iter().find_map(|prefix| mnemonic.strip_prefix(prefix))?;
    operations::handler(operation)
}

/// The memory that an instruction names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Space {
    Flat,
    Global,
    Scratch,
}

/// Returns the memory, and the address or offset of each lane's operation.
#[inline(never)]
fn addresses(wave: &Wave, inst: &Inst) -> (Space, [u64; LANES]) {
    let mut addresses = [0; LANES];
    let signed = i64::from((inst.imm as i32) << 19 >> 19);
    let (low, wide) = match inst.src[0] {
        Src::Vector(register) => (*wave.row(register), register + 1),
        src => ([wave.read_scalar(src); LANES], u16::MAX),
    };
    if inst.row.has(Flag::FlatScratch) {
        let base = inst.base.map_or(0, |base| wave.read_scalar(base)).wrapping_add(signed as u32);
        for lane in 0..LANES {
            addresses[lane] = u64::from(low[lane].wrapping_add(base));
        }
        return (Space::Scratch, addresses);
    }
    let global = inst.row.has(Flag::FlatGlobal);
    // The processor takes no notice of the highest bit of a flat offset.
    let offset = if global { signed as u64 } else { inst.imm as u64 & 0xfff };
    if let (true, Some(base)) = (global, inst.base) {
        let base = wave.read_scalar64(base).wrapping_add(offset);
        for lane in 0..LANES {
            addresses[lane] = base.wrapping_add(u64::from(low[lane]));
        }
    } else {
        let high = wave.row(wide);
        for lane in 0..LANES {
            addresses[lane] = (u64::from(low[lane]) | u64::from(high[lane]) << 32).wrapping_add(offset);
        }
    }
    (if global { Space::Global } else { Space::Flat }, addresses)
}

/// Runs an operation in each active lane, and stops the wave at its first fault.
#[inline(always)]
fn each_lane(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(&mut Wave, &mut Env<'_>, usize, Place) -> Result<(), Fault>,
) -> Flow {
    let (space, addresses) = addresses(wave, inst);
    for lane in lanes_of(wave.exec()) {
        let place = match space {
            Space::Flat => Place::of_flat(addresses[lane]),
            Space::Global => Place::Global(addresses[lane]),
            Space::Scratch => Place::Scratch(addresses[lane]),
        };
        if let Err(fault) = f(wave, env, lane, place) {
            wave.fault = Some(fault);
            return Flow::Fault;
        }
    }
    Flow::Next
}

/// Loads registers of 32 bits.
fn load(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        load_registers(wave, env, inst.dst, lane, place, registers)
    })
}

/// Loads a lane's registers.
pub(super) fn load_registers(
    wave: &mut Wave,
    env: &mut Env<'_>,
    first: u16,
    lane: usize,
    place: Place,
    registers: u16,
) -> Result<(), Fault> {
    let mut register = 0;
    while register < registers {
        let here = place.plus(u64::from(register) * 4);
        if registers - register >= 2 && here.allows_pair() {
            let value = place::load_u64(wave, env, lane, here)?;
            wave.write_lane(first + register, lane, value as u32);
            wave.write_lane(first + register + 1, lane, (value >> 32) as u32);
            register += 2;
        } else {
            let value = place::load_u32(wave, env, lane, here)?;
            wave.write_lane(first + register, lane, value);
            register += 1;
        }
    }
    Ok(())
}

/// Stores a lane's registers.
pub(super) fn store_registers(
    wave: &mut Wave,
    env: &mut Env<'_>,
    data: Src,
    lane: usize,
    place: Place,
    registers: u16,
) -> Result<(), Fault> {
    let mut register = 0;
    while register < registers {
        let here = place.plus(u64::from(register) * 4);
        if registers - register >= 2 && here.allows_pair() {
            let value = wave.read64(data.plus(register), lane);
            place::store_u64(wave, env, lane, here, value)?;
            register += 2;
        } else {
            let value = wave.read(data.plus(register), lane);
            place::store_u32(wave, env, lane, here, value)?;
            register += 1;
        }
    }
    Ok(())
}

fn store(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        store_registers(wave, env, inst.src[1], lane, place, registers)
    })
}

/// Loads a byte and makes a register of it. Loads of half a register make the other half 0: the processor's registers
/// have ECC, for which it writes whole ones (AMD's manual of CDNA 3, 9.1.6).
fn load_u8(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u8) -> u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let value = place::load_u8(wave, env, lane, place)?;
        wave.write_lane(inst.dst, lane, f(value));
        Ok(())
    })
}

fn load_u16(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u16) -> u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let value = place::load_u16(wave, env, lane, place)?;
        wave.write_lane(inst.dst, lane, f(value));
        Ok(())
    })
}

fn store_u8(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, shift: u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let value = (wave.read(inst.src[1], lane) >> shift) as u8;
        place::store_u8(wave, env, lane, place, value)
    })
}

fn store_u16(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, shift: u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let value = (wave.read(inst.src[1], lane) >> shift) as u16;
        place::store_u16(wave, env, lane, place, value)
    })
}

/// Changes 32 bits; `f` gets the old ones and the data.
fn update(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u32, u32) -> u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let data = wave.read(inst.src[1], lane);
        let old = place::update_u32(wave, env, lane, place, |old| f(old, data))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old);
        }
        Ok(())
    })
}

fn update_x2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u64, u64) -> u64) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let data = wave.read64(inst.src[1], lane);
        let old = place::update_u64(wave, env, lane, place, |old| f(old, data))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old as u32);
            wave.write_lane(inst.dst + 1, lane, (old >> 32) as u32);
        }
        Ok(())
    })
}

/// Stores the data's first part if memory holds its second.
fn compare_swap(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let both = wave.read64(inst.src[1], lane);
        let (new, expected) = (both as u32, (both >> 32) as u32);
        let swap = |old| if old == expected { new } else { old };
        let old = place::update_u32(wave, env, lane, place, swap)?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old);
        }
        Ok(())
    })
}

fn compare_swap_x2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let new = wave.read64(inst.src[1], lane);
        let expected = wave.read64(inst.src[1].plus(2), lane);
        let swap = |old| if old == expected { new } else { old };
        let old = place::update_u64(wave, env, lane, place, swap)?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old as u32);
            wave.write_lane(inst.dst + 1, lane, (old >> 32) as u32);
        }
        Ok(())
    })
}

/// Loads from device memory to local memory: four bytes a lane, lane after lane, beginning at the word whose
/// number is in bits 2 to 17 of M0.
fn load_lds(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, bytes: usize, signed: bool) -> Flow {
    // The instruction's offset is one of both addresses.
    let offset = (inst.imm as i32) << 19 >> 19;
    let base =
        u64::from((wave.s[usize::from(super::wave::scalar::M0)] & 0x3_fffc).wrapping_add(offset as u32));
    each_lane(wave, inst, env, |wave, env, lane, place| {
        let value = match (bytes, signed) {
            (1, false) => u32::from(place::load_u8(wave, env, lane, place)?),
            (1, true) => place::load_u8(wave, env, lane, place)? as i8 as u32,
            (2, false) => u32::from(place::load_u16(wave, env, lane, place)?),
            (2, true) => place::load_u16(wave, env, lane, place)? as i16 as u32,
            _ => place::load_u32(wave, env, lane, place)?,
        };
        place::store_u32(wave, env, lane, Place::Local(base + lane as u64 * 4), value)
    })
}

mod operations {
    use super::*;

    super::super::handlers! {
        "load_ubyte" => load_u8(u32::from),
        "load_sbyte" => load_u8(|value| value as i8 as u32),
        "load_ushort" => load_u16(u32::from),
        "load_sshort" => load_u16(|value| value as i16 as u32),
        "load_ubyte_d16" => load_u8(u32::from),
        "load_ubyte_d16_hi" => load_u8(|value| u32::from(value) << 16),
        "load_sbyte_d16" => load_u8(|value| u32::from(value as i8 as u16)),
        "load_sbyte_d16_hi" => load_u8(|value| (value as i8 as u32) << 16),
        "load_short_d16" => load_u16(u32::from),
        "load_short_d16_hi" => load_u16(|value| u32::from(value) << 16),
        "load_dword" => load(1),
        "load_dwordx2" => load(2),
        "load_dwordx3" => load(3),
        "load_dwordx4" => load(4),
        "load_lds_ubyte" => load_lds(1, false),
        "load_lds_sbyte" => load_lds(1, true),
        "load_lds_ushort" => load_lds(2, false),
        "load_lds_sshort" => load_lds(2, true),
        "load_lds_dword" => load_lds(4, false),
        "store_byte" => store_u8(0),
        "store_byte_d16_hi" => store_u8(16),
        "store_short" => store_u16(0),
        "store_short_d16_hi" => store_u16(16),
        "store_dword" => store(1),
        "store_dwordx2" => store(2),
        "store_dwordx3" => store(3),
        "store_dwordx4" => store(4),
        "atomic_swap" => update(|_, data| data),
        "atomic_cmpswap" => compare_swap(),
        "atomic_add" => update(|old, data| old.wrapping_add(data)),
        "atomic_sub" => update(|old, data| old.wrapping_sub(data)),
        "atomic_smin" => update(|old, data| (old as i32).min(data as i32) as u32),
        "atomic_umin" => update(|old, data| old.min(data)),
        "atomic_smax" => update(|old, data| (old as i32).max(data as i32) as u32),
        "atomic_umax" => update(|old, data| old.max(data)),
        "atomic_and" => update(|old, data| old & data),
        "atomic_or" => update(|old, data| old | data),
        "atomic_xor" => update(|old, data| old ^ data),
        "atomic_inc" => update(|old, data| atomic::increment(u64::from(old), u64::from(data)) as u32),
        "atomic_dec" => update(|old, data| atomic::decrement(u64::from(old), u64::from(data)) as u32),
        "atomic_add_f32" => update(atomic::add_f32),
        "atomic_pk_add_f16" => update(atomic::add_pair_f16),
        "atomic_pk_add_bf16" => update(atomic::add_pair_bf16),
        "atomic_swap_x2" => update_x2(|_, data| data),
        "atomic_cmpswap_x2" => compare_swap_x2(),
        "atomic_add_x2" => update_x2(|old, data| old.wrapping_add(data)),
        "atomic_sub_x2" => update_x2(|old, data| old.wrapping_sub(data)),
        "atomic_smin_x2" => update_x2(|old, data| (old as i64).min(data as i64) as u64),
        "atomic_umin_x2" => update_x2(|old, data| old.min(data)),
        "atomic_smax_x2" => update_x2(|old, data| (old as i64).max(data as i64) as u64),
        "atomic_umax_x2" => update_x2(|old, data| old.max(data)),
        "atomic_and_x2" => update_x2(|old, data| old & data),
        "atomic_or_x2" => update_x2(|old, data| old | data),
        "atomic_xor_x2" => update_x2(|old, data| old ^ data),
        "atomic_inc_x2" => update_x2(atomic::increment),
        "atomic_dec_x2" => update_x2(atomic::decrement),
        "atomic_add_f64" => update_x2(atomic::add_f64),
        "atomic_min_f64" => update_x2(atomic::least_f64),
        "atomic_max_f64" => update_x2(atomic::greatest_f64),
    }
}
