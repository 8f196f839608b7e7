//! Local memory, and the lane patterns that its instructions make without memory.

use super::atomic;
use super::fault::Fault;
use super::handlers;
use super::inst::{Flow, Inst};
use super::place::{self, Place};
use super::wave::{Env, LANES, Wave, lanes_of, scalar};

/// Runs an operation in each active lane with its address, to which no offset is added yet.
#[inline]
fn each_lane(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(&mut Wave, &mut Env<'_>, usize, u64) -> Result<(), Fault>,
) -> Flow {
    for lane in lanes_of(wave.exec()) {
        let address = u64::from(wave.read(inst.src[0], lane));
        if let Err(fault) = f(wave, env, lane, address) {
            wave.fault = Some(fault);
            return Flow::Fault;
        }
    }
    Flow::Next
}

/// Returns the place that the instruction's first offset names.
fn at(address: u64, inst: &Inst) -> Place {
    offset_by(address, inst.imm, 1)
}

/// Returns the place so many steps behind the address. Addresses of local memory have 32 bits and wrap
/// around: compilers use negative ones with an offset that makes them positive.
fn offset_by(address: u64, offset: i64, step: u64) -> Place {
    Place::Local(u64::from((address as u32).wrapping_add(offset as u32 * step as u32)))
}

fn write_pair(wave: &mut Wave, register: u16, lane: usize, value: u64) {
    wave.write_lane(register, lane, value as u32);
    wave.write_lane(register + 1, lane, (value >> 32) as u32);
}

fn read(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        super::flat::load_registers(wave, env, inst.dst, lane, at(address, inst), registers)
    })
}

fn write(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        super::flat::store_registers(wave, env, inst.src[1], lane, at(address, inst), registers)
    })
}

fn read_u8(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u8) -> u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let value = place::load_u8(wave, env, lane, at(address, inst))?;
        wave.write_lane(inst.dst, lane, f(value));
        Ok(())
    })
}

fn read_u16(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u16) -> u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let value = place::load_u16(wave, env, lane, at(address, inst))?;
        wave.write_lane(inst.dst, lane, f(value));
        Ok(())
    })
}

fn write_u8(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, shift: u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let value = (wave.read(inst.src[1], lane) >> shift) as u8;
        place::store_u8(wave, env, lane, at(address, inst), value)
    })
}

fn write_u16(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, shift: u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let value = (wave.read(inst.src[1], lane) >> shift) as u16;
        place::store_u16(wave, env, lane, at(address, inst), value)
    })
}

/// Reads two numbers at two offsets, which count steps of so many bytes.
fn read2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16, step: u64) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let first = offset_by(address, inst.imm, step);
        let second = offset_by(address, inst.imm2, step);
        super::flat::load_registers(wave, env, inst.dst, lane, first, registers)?;
        super::flat::load_registers(wave, env, inst.dst + registers, lane, second, registers)
    })
}

fn write2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u16, step: u64) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let first = offset_by(address, inst.imm, step);
        let second = offset_by(address, inst.imm2, step);
        super::flat::store_registers(wave, env, inst.src[1], lane, first, registers)?;
        // Of two equal offsets the processor makes one access, with the first data.
        match inst.imm == inst.imm2 {
            true => Ok(()),
            false => super::flat::store_registers(wave, env, inst.src[2], lane, second, registers),
        }
    })
}

/// Of two equal offsets the processor makes one access; what the second result is then is not documented.
const ONE_PLACE: &str = "an exchange at two places that are one";

fn exchange2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, step: u64) -> Flow {
    if inst.imm == inst.imm2 {
        return super::special::missing(wave, ONE_PLACE);
    }
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let (first, second) = (wave.read(inst.src[1], lane), wave.read(inst.src[2], lane));
        let place = |offset: i64| offset_by(address, offset, step);
        let old = place::update_u32(wave, env, lane, place(inst.imm), |_| first)?;
        let second_old = place::update_u32(wave, env, lane, place(inst.imm2), |_| second)?;
        wave.write_lane(inst.dst, lane, old);
        wave.write_lane(inst.dst + 1, lane, second_old);
        Ok(())
    })
}

fn exchange2_b64(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, step: u64) -> Flow {
    if inst.imm == inst.imm2 {
        return super::special::missing(wave, ONE_PLACE);
    }
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let (first, second) = (wave.read64(inst.src[1], lane), wave.read64(inst.src[2], lane));
        let place = |offset: i64| offset_by(address, offset, step);
        let old = place::update_u64(wave, env, lane, place(inst.imm), |_| first)?;
        let second_old = place::update_u64(wave, env, lane, place(inst.imm2), |_| second)?;
        write_pair(wave, inst.dst, lane, old);
        write_pair(wave, inst.dst + 2, lane, second_old);
        Ok(())
    })
}

/// Changes 32 bits; `f` gets the old ones and both data.
fn update(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u32, u32, u32) -> u32) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let (data, second) = (wave.read(inst.src[1], lane), wave.read(inst.src[2], lane));
        let old = place::update_u32(wave, env, lane, at(address, inst), |old| f(old, data, second))?;
        if inst.returns {
            wave.write_lane(inst.dst, lane, old);
        }
        Ok(())
    })
}

fn update64(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u64, u64, u64) -> u64) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let (data, second) = (wave.read64(inst.src[1], lane), wave.read64(inst.src[2], lane));
        let old = place::update_u64(wave, env, lane, at(address, inst), |old| f(old, data, second))?;
        if inst.returns {
            write_pair(wave, inst.dst, lane, old);
        }
        Ok(())
    })
}

/// Changes 32 bits as a floating-point operation, which gets MODE before the others.
fn update_float(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(u32, u32, u32, u32) -> u32,
) -> Flow {
    let mode = wave.mode;
    update(wave, inst, env, |old, data, second| f(mode, old, data, second))
}

fn update_float64(
    wave: &mut Wave,
    inst: &Inst,
    env: &mut Env<'_>,
    f: impl Fn(u32, u64, u64, u64) -> u64,
) -> Flow {
    let mode = wave.mode;
    update64(wave, inst, env, |old, data, second| f(mode, old, data, second))
}

/// Adds or subtracts the number of active lanes and returns the old number to all of them. The place is what M0 says and the
/// offset: LLVM puts the address of local memory there as it is (`llvm.amdgcn.ds.append`), and the manual's `M0.base` does not
/// say which half that is.
fn count(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u32, u32) -> u32) -> Flow {
    let exec = wave.exec();
    let base = u64::from(wave.s[usize::from(scalar::M0)] & 0xffff);
    let place = Place::Local(base + inst.imm as u64);
    match place::update_u32(wave, env, 0, place, |old| f(old, exec.count_ones())) {
        Ok(old) => lanes_of(exec).for_each(|lane| wave.write_lane(inst.dst, lane, old)),
        Err(fault) => {
            wave.fault = Some(fault);
            return Flow::Fault;
        }
    }
    Flow::Next
}

/// Returns the place of a lane's own word: M0, the offset and four bytes a lane.
fn own_word(wave: &Wave, inst: &Inst, lane: usize) -> Place {
    let base = u64::from(wave.s[usize::from(scalar::M0)] & 0xffff);
    Place::Local(base + inst.imm as u64 + lane as u64 * 4)
}

fn read_own(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, _| {
        let value = place::load_u32(wave, env, lane, own_word(wave, inst, lane))?;
        wave.write_lane(inst.dst, lane, value);
        Ok(())
    })
}

fn write_own(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, _| {
        let value = wave.read(inst.src[1], lane);
        place::store_u32(wave, env, lane, own_word(wave, inst, lane), value)
    })
}

/// Each active lane sends its data to the lane that it names. Of several senders to a lane the last one's
/// data stays.
fn permute(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let mut received = [0; LANES];
    for lane in lanes_of(wave.exec()) {
        let to = (wave.read(inst.src[0], lane).wrapping_add(inst.imm as u32) >> 2) as usize % LANES;
        received[to] = wave.read(inst.src[1], lane);
    }
    wave.write_row(inst.dst, &received, wave.exec());
    Flow::Next
}

/// Each active lane reads the data of the lane that it names; lanes that are not active send 0.
fn backward_permute(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let exec = wave.exec();
    let mut received = [0; LANES];
    for lane in lanes_of(exec) {
        let from = (wave.read(inst.src[0], lane).wrapping_add(inst.imm as u32) >> 2) as usize % LANES;
        received[lane] = if exec >> from & 1 != 0 { wave.read(inst.src[1], from) } else { 0 };
    }
    wave.write_row(inst.dst, &received, exec);
    Flow::Next
}

fn swizzle(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let exec = wave.exec();
    let pattern = inst.imm as usize;
    if pattern >= 0xe000 {
        return super::special::missing(wave, "ds_swizzle_b32 in FFT mode");
    }
    let mut received = [0; LANES];
    for lane in lanes_of(exec) {
        let from = if pattern >= 0xc000 {
            let (left, amount) = (pattern >> 10 & 1 == 0, pattern >> 5 & 31);
            let (mask, place) = (pattern & 31, lane & 31);
            let rotated = if left { place + amount } else { place + 32 - amount } & 31;
            lane & 32 | place & mask | rotated & !mask & 31
        } else if pattern & 0x8000 != 0 {
            lane & !3 | pattern >> (2 * (lane & 3)) & 3
        } else {
            let (and, or, xor) = (pattern & 31, pattern >> 5 & 31, pattern >> 10 & 31);
            lane & 32 | ((lane & 31 & and) | or) ^ xor
        };
        received[lane] = if exec >> from & 1 != 0 { wave.read(inst.src[0], from) } else { 0 };
    }
    wave.write_row(inst.dst, &received, exec);
    Flow::Next
}

/// Returns the new number if memory held the expected one.
fn swap_if(old: u64, expected: u64, new: u64) -> u64 {
    if old == expected { new } else { old }
}

/// Exchanges the halves of 64 bits at a multiple of eight bytes: the address is rounded down.
fn exchange_halves(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    each_lane(wave, inst, env, |wave, env, lane, address| {
        let data = wave.read64(inst.src[1], lane);
        let place = offset_by(address.wrapping_add(inst.imm as u64) & !7, 0, 1);
        let old = place::update_u64(wave, env, lane, place, |old| conditional_exchange(old, data))?;
        write_pair(wave, inst.dst, lane, old);
        Ok(())
    })
}

/// Exchanges both halves of 64 bits whose data's sign bit is set.
fn conditional_exchange(old: u64, data: u64) -> u64 {
    let half = |shift: u32| {
        let (old, data) = (old >> shift & 0xffff_ffff, data >> shift & 0xffff_ffff);
        (if data >> 31 != 0 { data & 0x7fff_ffff } else { old }) << shift
    };
    half(0) | half(32)
}

handlers! {
    "ds_read_b32" => read(1),
    "ds_read_b64" => read(2),
    "ds_read_b96" => read(3),
    "ds_read_b128" => read(4),
    "ds_read_u8" => read_u8(u32::from),
    "ds_read_i8" => read_u8(|value| value as i8 as u32),
    "ds_read_u16" => read_u16(u32::from),
    "ds_read_i16" => read_u16(|value| value as i16 as u32),
    "ds_read_u8_d16" => read_u8(u32::from),
    "ds_read_u8_d16_hi" => read_u8(|value| u32::from(value) << 16),
    "ds_read_i8_d16" => read_u8(|value| u32::from(value as i8 as u16)),
    "ds_read_i8_d16_hi" => read_u8(|value| (value as i8 as u32) << 16),
    "ds_read_u16_d16" => read_u16(u32::from),
    "ds_read_u16_d16_hi" => read_u16(|value| u32::from(value) << 16),
    "ds_read2_b32" => read2(1, 4),
    "ds_read2_b64" => read2(2, 8),
    "ds_read2st64_b32" => read2(1, 256),
    "ds_read2st64_b64" => read2(2, 512),
    "ds_read_addtid_b32" => read_own(),
    "ds_write_addtid_b32" => write_own(),
    "ds_write_b8" => write_u8(0),
    "ds_write_b8_d16_hi" => write_u8(16),
    "ds_write_b16" => write_u16(0),
    "ds_write_b16_d16_hi" => write_u16(16),
    "ds_write_b32" => write(1),
    "ds_write_b64" => write(2),
    "ds_write_b96" => write(3),
    "ds_write_b128" => write(4),
    "ds_write2_b32" => write2(1, 4),
    "ds_write2_b64" => write2(2, 8),
    "ds_write2st64_b32" => write2(1, 256),
    "ds_write2st64_b64" => write2(2, 512),
    "ds_wrxchg2_rtn_b32" => exchange2(4),
    "ds_wrxchg2st64_rtn_b32" => exchange2(256),
    "ds_wrxchg2_rtn_b64" => exchange2_b64(8),
    "ds_wrxchg2st64_rtn_b64" => exchange2_b64(512),
    "ds_permute_b32" => permute(),
    "ds_bpermute_b32" => backward_permute(),
    "ds_swizzle_b32" => swizzle(),
    "ds_append" => count(u32::wrapping_add),
    "ds_consume" => count(u32::wrapping_sub),
    "ds_add_u32" | "ds_add_rtn_u32" => update(|old, data, _| old.wrapping_add(data)),
    "ds_sub_u32" | "ds_sub_rtn_u32" => update(|old, data, _| old.wrapping_sub(data)),
    "ds_rsub_u32" | "ds_rsub_rtn_u32" => update(|old, data, _| data.wrapping_sub(old)),
    "ds_inc_u32" | "ds_inc_rtn_u32" => update(|old, data, _| atomic::increment(old.into(), data.into()) as u32),
    "ds_dec_u32" | "ds_dec_rtn_u32" => update(|old, data, _| atomic::decrement(old.into(), data.into()) as u32),
    "ds_min_i32" | "ds_min_rtn_i32" => update(|old, data, _| (old as i32).min(data as i32) as u32),
    "ds_max_i32" | "ds_max_rtn_i32" => update(|old, data, _| (old as i32).max(data as i32) as u32),
    "ds_min_u32" | "ds_min_rtn_u32" => update(|old, data, _| old.min(data)),
    "ds_max_u32" | "ds_max_rtn_u32" => update(|old, data, _| old.max(data)),
    "ds_and_b32" | "ds_and_rtn_b32" => update(|old, data, _| old & data),
    "ds_or_b32" | "ds_or_rtn_b32" => update(|old, data, _| old | data),
    "ds_xor_b32" | "ds_xor_rtn_b32" => update(|old, data, _| old ^ data),
    "ds_mskor_b32" | "ds_mskor_rtn_b32" => update(|old, mask, data| old & !mask | data),
    "ds_wrxchg_rtn_b32" => update(|_, data, _| data),
    "ds_cmpst_b32" | "ds_cmpst_rtn_b32" => update(|old, expected, new| if old == expected { new } else { old }),
    "ds_cmpst_f32" | "ds_cmpst_rtn_f32" => update_float(atomic::local::swap_f32),
    "ds_wrap_rtn_b32" => update(|old, data, second| {
        if old >= data { old.wrapping_sub(data) } else { old.wrapping_add(second) }
    }),
    "ds_add_f32" | "ds_add_rtn_f32" => update_float(|mode, old, data, _| atomic::local::add_f32(mode, old, data)),
    "ds_min_f32" | "ds_min_rtn_f32" => update_float(|mode, old, data, _| atomic::local::least_f32(mode, old, data)),
    "ds_max_f32" | "ds_max_rtn_f32" => update_float(|mode, old, data, _| atomic::local::greatest_f32(mode, old, data)),
    "ds_pk_add_f16" | "ds_pk_add_rtn_f16"
        => update_float(|mode, old, data, _| atomic::local::add_pair_f16(mode, old, data)),
    "ds_pk_add_bf16" | "ds_pk_add_rtn_bf16"
        => update_float(|mode, old, data, _| atomic::local::add_pair_bf16(mode, old, data)),
    "ds_add_u64" | "ds_add_rtn_u64" => update64(|old, data, _| old.wrapping_add(data)),
    "ds_sub_u64" | "ds_sub_rtn_u64" => update64(|old, data, _| old.wrapping_sub(data)),
    "ds_rsub_u64" | "ds_rsub_rtn_u64" => update64(|old, data, _| data.wrapping_sub(old)),
    "ds_inc_u64" | "ds_inc_rtn_u64" => update64(|old, data, _| atomic::increment(old, data)),
    "ds_dec_u64" | "ds_dec_rtn_u64" => update64(|old, data, _| atomic::decrement(old, data)),
    "ds_min_i64" | "ds_min_rtn_i64" => update64(|old, data, _| (old as i64).min(data as i64) as u64),
    "ds_max_i64" | "ds_max_rtn_i64" => update64(|old, data, _| (old as i64).max(data as i64) as u64),
    "ds_min_u64" | "ds_min_rtn_u64" => update64(|old, data, _| old.min(data)),
    "ds_max_u64" | "ds_max_rtn_u64" => update64(|old, data, _| old.max(data)),
    "ds_and_b64" | "ds_and_rtn_b64" => update64(|old, data, _| old & data),
    "ds_or_b64" | "ds_or_rtn_b64" => update64(|old, data, _| old | data),
    "ds_xor_b64" | "ds_xor_rtn_b64" => update64(|old, data, _| old ^ data),
    "ds_mskor_b64" | "ds_mskor_rtn_b64" => update64(|old, mask, data| old & !mask | data),
    "ds_wrxchg_rtn_b64" => update64(|_, data, _| data),
    "ds_cmpst_b64" | "ds_cmpst_rtn_b64" => update64(swap_if),
    "ds_cmpst_f64" | "ds_cmpst_rtn_f64" => update_float64(atomic::local::swap_f64),
    "ds_condxchg32_rtn_b64" => exchange_halves(),
    "ds_add_f64" | "ds_add_rtn_f64" => update64(|old, data, _| atomic::add_f64(old, data)),
    "ds_min_f64" | "ds_min_rtn_f64" => update_float64(|mode, old, data, _| atomic::local::least_f64(mode, old, data)),
    "ds_max_f64" | "ds_max_rtn_f64"
        => update_float64(|mode, old, data, _| atomic::local::greatest_f64(mode, old, data)),
}
