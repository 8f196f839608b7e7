//! Loads into scalar registers, stores of them, and atomics.

use super::atomic;
use super::buffer::Descriptor;
use super::fault::Fault;
use super::handlers;
use super::inst::{Flow, Inst, Src};
use super::wave::{Env, Wave};

/// Returns the sum of the immediate and the register offset.
fn offset(wave: &Wave, inst: &Inst) -> i64 {
    inst.imm + i64::from(wave.read_scalar(inst.src[2]))
}

fn load(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u8) -> Flow {
    let base = inst.base.map_or(0, |base| wave.read_scalar64(base));
    let address = base.wrapping_add_signed(offset(wave, inst)) & !3;
    for register in 0..registers {
        match env.memory.load_u32(address.wrapping_add(u64::from(register) * 4)) {
            Ok(value) => wave.set_scalar(inst.sdst.wrapping_add(register), value),
            Err(fault) => {
                wave.fault = Some(fault);
                return Flow::Fault;
            }
        }
    }
    Flow::Next
}

/// Loads from a buffer; what lies behind its end reads 0.
fn buffer_load(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u8) -> Flow {
    let descriptor = Descriptor::read(wave, inst);
    let first = offset(wave, inst) as u64 & !3;
    for register in 0..registers {
        let offset = first.wrapping_add(u64::from(register) * 4);
        let inside = offset.checked_add(4).is_some_and(|end| end <= descriptor.scalar_bytes());
        let loaded = if inside { env.memory.load_u32(descriptor.base + offset) } else { Ok(0) };
        match loaded {
            Ok(value) => wave.set_scalar(inst.sdst.wrapping_add(register), value),
            Err(fault) => {
                wave.fault = Some(fault);
                return Flow::Fault;
            }
        }
    }
    Flow::Next
}

/// Returns the address of an access of so many bytes, or `None` if it is behind the end of its buffer.
fn address(wave: &Wave, inst: &Inst, bytes: u64) -> Option<u64> {
    let alignment = if bytes == 8 { !7 } else { !3 };
    if inst.row.mnemonic().starts_with("s_buffer") {
        let descriptor = Descriptor::read(wave, inst);
        let offset = offset(wave, inst) as u64 & alignment;
        let inside = offset.checked_add(bytes).is_some_and(|end| end <= descriptor.scalar_bytes());
        return inside.then(|| descriptor.base.wrapping_add(offset));
    }
    let base = inst.base.map_or(0, |base| wave.read_scalar64(base));
    Some(base.wrapping_add_signed(offset(wave, inst)) & alignment)
}

fn finish(wave: &mut Wave, outcome: Result<(), Fault>) -> Flow {
    match outcome {
        Ok(()) => Flow::Next,
        Err(fault) => {
            wave.fault = Some(fault);
            Flow::Fault
        }
    }
}

/// Returns the number of the first register of a scalar operation's data.
fn data_register(inst: &Inst) -> u8 {
    match inst.src[1] {
        Src::Scalar(register) => register,
        _ => super::wave::scalar::NULL,
    }
}

fn store(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, registers: u8) -> Flow {
    let first = data_register(inst);
    let Some(address) = address(wave, inst, 4 * u64::from(registers)) else { return Flow::Next };
    let outcome = (0..registers).try_for_each(|register| {
        let value = wave.s[usize::from(first.wrapping_add(register) & 127)];
        env.memory.store_u32(address.wrapping_add(u64::from(register) * 4), value)
    });
    finish(wave, outcome)
}

/// Changes 32 bits; `f` gets the old ones, the data and the register behind the data.
fn update(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u32, u32, u32) -> u32) -> Flow {
    let first = data_register(inst);
    let both = wave.pair(first);
    let Some(address) = address(wave, inst, 4) else { return Flow::Next };
    let outcome = env.memory.update_u32(address, |old| f(old, both as u32, (both >> 32) as u32));
    let outcome = outcome.map(|old| {
        if inst.returns {
            wave.set_scalar(first, old);
        }
    });
    finish(wave, outcome)
}

fn update_x2(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, f: impl Fn(u64, u64, u64) -> u64) -> Flow {
    let first = data_register(inst);
    let (data, second) = (wave.pair(first), wave.pair(first.wrapping_add(2)));
    let Some(address) = address(wave, inst, 8) else { return Flow::Next };
    let outcome = env.memory.update_u64(address, |old| f(old, data, second)).map(|old| {
        if inst.returns {
            wave.set_pair(first, old);
        }
    });
    finish(wave, outcome)
}

handlers! {
    "s_load_dword" => load(1),
    "s_load_dwordx2" => load(2),
    "s_load_dwordx4" => load(4),
    "s_load_dwordx8" => load(8),
    "s_load_dwordx16" => load(16),
    "s_buffer_load_dword" => buffer_load(1),
    "s_buffer_load_dwordx2" => buffer_load(2),
    "s_buffer_load_dwordx4" => buffer_load(4),
    "s_buffer_load_dwordx8" => buffer_load(8),
    "s_buffer_load_dwordx16" => buffer_load(16),
    "s_store_dword" | "s_buffer_store_dword" => store(1),
    "s_store_dwordx2" | "s_buffer_store_dwordx2" => store(2),
    "s_store_dwordx4" | "s_buffer_store_dwordx4" => store(4),
    "s_atomic_swap" | "s_buffer_atomic_swap" => update(|_, data, _| data),
    "s_atomic_swap_x2" | "s_buffer_atomic_swap_x2" => update_x2(|_, data, _| data),
    "s_atomic_add" | "s_buffer_atomic_add" => update(|old, data, _| old.wrapping_add(data)),
    "s_atomic_add_x2" | "s_buffer_atomic_add_x2" => update_x2(|old, data, _| old.wrapping_add(data)),
    "s_atomic_sub" | "s_buffer_atomic_sub" => update(|old, data, _| old.wrapping_sub(data)),
    "s_atomic_sub_x2" | "s_buffer_atomic_sub_x2" => update_x2(|old, data, _| old.wrapping_sub(data)),
    "s_atomic_smin" | "s_buffer_atomic_smin" => update(|old, data, _| (old as i32).min(data as i32) as u32),
    "s_atomic_smin_x2" | "s_buffer_atomic_smin_x2" => update_x2(|old, data, _| (old as i64).min(data as i64) as u64),
    "s_atomic_umin" | "s_buffer_atomic_umin" => update(|old, data, _| old.min(data)),
    "s_atomic_umin_x2" | "s_buffer_atomic_umin_x2" => update_x2(|old, data, _| old.min(data)),
    "s_atomic_smax" | "s_buffer_atomic_smax" => update(|old, data, _| (old as i32).max(data as i32) as u32),
    "s_atomic_smax_x2" | "s_buffer_atomic_smax_x2" => update_x2(|old, data, _| (old as i64).max(data as i64) as u64),
    "s_atomic_umax" | "s_buffer_atomic_umax" => update(|old, data, _| old.max(data)),
    "s_atomic_umax_x2" | "s_buffer_atomic_umax_x2" => update_x2(|old, data, _| old.max(data)),
    "s_atomic_and" | "s_buffer_atomic_and" => update(|old, data, _| old & data),
    "s_atomic_and_x2" | "s_buffer_atomic_and_x2" => update_x2(|old, data, _| old & data),
    "s_atomic_or" | "s_buffer_atomic_or" => update(|old, data, _| old | data),
    "s_atomic_or_x2" | "s_buffer_atomic_or_x2" => update_x2(|old, data, _| old | data),
    "s_atomic_xor" | "s_buffer_atomic_xor" => update(|old, data, _| old ^ data),
    "s_atomic_xor_x2" | "s_buffer_atomic_xor_x2" => update_x2(|old, data, _| old ^ data),
    "s_atomic_cmpswap" | "s_buffer_atomic_cmpswap" => update(|old, new, expected| if old == expected { new } else { old }),
    "s_atomic_cmpswap_x2" | "s_buffer_atomic_cmpswap_x2"
        => update_x2(|old, new, expected| if old == expected { new } else { old }),
    "s_atomic_inc" | "s_buffer_atomic_inc"
        => update(|old, data, _| atomic::increment(old.into(), data.into()) as u32),
    "s_atomic_inc_x2" | "s_buffer_atomic_inc_x2" => update_x2(|old, data, _| atomic::increment(old, data)),
    "s_atomic_dec" | "s_buffer_atomic_dec"
        => update(|old, data, _| atomic::decrement(old.into(), data.into()) as u32),
    "s_atomic_dec_x2" | "s_buffer_atomic_dec_x2" => update_x2(|old, data, _| atomic::decrement(old, data)),
}
