//! Loads into scalar registers.

use super::buffer::Descriptor;
use super::handlers;
use super::inst::{Flow, Inst};
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
}
