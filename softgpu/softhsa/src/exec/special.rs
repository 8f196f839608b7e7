//! Control flow, hardware registers, waiting, messages, traps and clocks.

use std::sync::atomic::{Ordering, fence};

use super::fault::Fault;
use super::handlers;
use super::inst::{Flow, Inst};
use super::wave::{Env, PRIVATE_BASE, SHARED_BASE, Wave, mode, scalar};

/// Frequency of the constant clock, `s_memrealtime`.
pub const REALTIME_HZ: u64 = 100_000_000;

/// Frequency of the clock that `s_memtime` counts.
const CORE_HZ: u64 = 2_000_000_000;

fn nothing(_: &mut Wave, _: &Inst, _: &mut Env<'_>) -> Flow {
    Flow::Next
}

fn end(_: &mut Wave, _: &Inst, _: &mut Env<'_>) -> Flow {
    Flow::End
}

fn barrier(_: &mut Wave, _: &Inst, _: &mut Env<'_>) -> Flow {
    fence(Ordering::SeqCst);
    Flow::Barrier
}

fn sleep(_: &mut Wave, _: &Inst, _: &mut Env<'_>) -> Flow {
    Flow::Yield
}

/// Orders memory operations. Loads and stores are single CPU instructions here, so the fence is all there is to do. Waits do the
/// same: sequentially consistent accesses have no more than a wait between them, and a store is to be seen by all before the load
/// behind it is made.
pub(super) fn order(_: &mut Wave, _: &Inst, _: &mut Env<'_>) -> Flow {
    fence(Ordering::SeqCst);
    Flow::Next
}

fn branch(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>, condition: impl Fn(&Wave) -> bool) -> Flow {
    if condition(wave) {
        wave.pc = wave.pc.wrapping_add_signed(i64::from(inst.imm as i16) * 4);
    }
    Flow::Next
}

fn get_pc(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    wave.set_pair(inst.sdst, wave.pc);
    Flow::Next
}

fn set_pc(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    wave.pc = wave.read_scalar64(inst.src[0]) & !3;
    Flow::Next
}

fn swap_pc(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let target = wave.read_scalar64(inst.src[0]) & !3;
    wave.set_pair(inst.sdst, wave.pc);
    wave.pc = target;
    Flow::Next
}

fn call(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    wave.set_pair(inst.sdst, wave.pc);
    branch(wave, inst, env, |_| true)
}

/// Traps. `llvm.debugtrap` is for debuggers, and without one the wave goes on behind it (LLVM's guide for AMDGPU, "Trap
/// Handler ABI").
fn trap(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    const DEBUG: u8 = 3;
    if inst.imm as u8 == DEBUG {
        return Flow::Next;
    }
    wave.fault = Some(Fault::Trap { number: inst.imm as u8 });
    Flow::Fault
}

/// Halts the wave if the lowest bit says so. Nobody would make it go on, and so nobody waits for it.
fn set_halt(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    if inst.imm & 1 == 0 {
        return Flow::Next;
    }
    wave.fault = Some(Fault::Halt);
    Flow::Fault
}

/// Messages go to other parts of the processor. A compute kernel sends interrupts to the host, whose content is in
/// memory, and asks for its doorbell's number; no one waits for the others.
fn send_message(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    const INTERRUPT: i64 = 1;
    const GET_DOORBELL: i64 = 10;
    match inst.imm & 15 {
        INTERRUPT => env.memory.interrupt(),
        GET_DOORBELL => wave.set_scalar(scalar::EXEC, 0),
        _ => {}
    }
    Flow::Next
}

/// The place and width of a field in a hardware register, and the register's number.
fn hardware_field(number: i64) -> (i64, u32, u32) {
    (number & 63, (number >> 6 & 31) as u32, (number >> 11 & 31) as u32 + 1)
}

const HW_MODE: i64 = 1;

fn get_register(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>) -> Flow {
    let (register, offset, width) = hardware_field(inst.imm);
    let value = match register {
        HW_MODE => wave.mode,
        // STATUS: the condition code, VCCZ, EXECZ and that the wave belongs to a workgroup.
        2 => {
            let vccz = wave.pair(scalar::VCC) == 0;
            u32::from(wave.scc) | u32::from(vccz) << 10 | u32::from(wave.exec() == 0) << 9 | 1 << 11
        }
        4 => (env.compute_unit & 15) << 8 | (env.compute_unit >> 4 & 7) << 13 | wave.number & 15,
        // SH_MEM_BASES: the upper 16 bits of the addresses of scratch and local memory.
        15 => (SHARED_BASE >> 48 << 16 | PRIVATE_BASE >> 48) as u32,
        _ => 0,
    };
    let field = value >> offset;
    let field = if width >= 32 { field } else { field & ((1 << width) - 1) };
    wave.set_scalar(inst.sdst, field);
    Flow::Next
}

fn set_field(wave: &mut Wave, inst: &Inst, value: u32) -> Flow {
    let (register, offset, width) = hardware_field(inst.imm);
    if register != HW_MODE {
        return Flow::Next;
    }
    let mask = (if width >= 32 { u32::MAX } else { (1 << width) - 1 }) << offset;
    let new = wave.mode & !mask | value << offset & mask;
    if new & mode::UNKNOWN != 0 {
        return missing(wave, &format!("s_setreg: MODE {new:#x}, which asks for what the interpreter lacks"));
    }
    wave.mode = new;
    Flow::Next
}

/// Stops the wave at something that the interpreter lacks.
pub(super) fn missing(wave: &mut Wave, text: &str) -> Flow {
    wave.fault = Some(Fault::Missing { text: text.to_owned() });
    Flow::Fault
}

fn set_register(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let value = wave.s[usize::from(inst.sdst & 127)];
    set_field(wave, inst, value)
}

fn set_register_imm(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    set_field(wave, inst, inst.imm2 as u32)
}

fn index_on(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let index = wave.read_scalar(inst.src[0]) & 255;
    let operands = wave.read_scalar(inst.src[1]) & 15;
    let m0 = &mut wave.s[usize::from(scalar::M0)];
    *m0 = *m0 & !0xf0ff | index | operands << 12;
    wave.mode |= mode::INDEX;
    Flow::Next
}

fn index_off(wave: &mut Wave, _: &Inst, _: &mut Env<'_>) -> Flow {
    wave.mode &= !mode::INDEX;
    Flow::Next
}

/// Says which operands are indexed. It turns indexing neither on nor off.
fn index_mode(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let operands = inst.imm as u32 & 15;
    let m0 = &mut wave.s[usize::from(scalar::M0)];
    *m0 = *m0 & !0xf000 | operands << 12;
    Flow::Next
}

fn index(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let index = wave.read_scalar(inst.src[0]) & 255;
    let m0 = &mut wave.s[usize::from(scalar::M0)];
    *m0 = *m0 & !0xff | index;
    Flow::Next
}

fn clock(wave: &mut Wave, inst: &Inst, env: &mut Env<'_>, hertz: u64) -> Flow {
    let time = env.epoch.elapsed();
    let ticks = time.as_secs() * hertz + u64::from(time.subsec_nanos()) * (hertz / 1_000_000) / 1000;
    wave.set_pair(inst.sdst, ticks);
    Flow::Next
}

handlers! {
    "s_nop" | "s_setprio" | "s_setkill" | "s_icache_inv" | "s_incperflevel" | "s_decperflevel"
        | "s_ttracedata" | "s_wakeup" | "v_nop" | "v_clrexcp" | "ds_nop" => nothing(),
    "s_endpgm" | "s_endpgm_saved" | "s_endpgm_ordered_ps_done" => end(),
    "s_barrier" => barrier(),
    "s_sleep" => sleep(),
    "s_waitcnt" | "s_dcache_inv" | "s_dcache_inv_vol" | "s_dcache_wb" | "s_dcache_wb_vol" | "buffer_inv" | "buffer_wbl2" => order(),
    "s_branch" => branch(|_| true),
    "s_cbranch_scc0" => branch(|wave| !wave.scc),
    "s_cbranch_scc1" => branch(|wave| wave.scc),
    "s_cbranch_vccz" => branch(|wave| wave.pair(scalar::VCC) == 0),
    "s_cbranch_vccnz" => branch(|wave| wave.pair(scalar::VCC) != 0),
    "s_cbranch_execz" => branch(|wave| wave.exec() == 0),
    "s_cbranch_execnz" => branch(|wave| wave.exec() != 0),
    "s_cbranch_cdbgsys" | "s_cbranch_cdbguser" | "s_cbranch_cdbgsys_or_user" | "s_cbranch_cdbgsys_and_user"
        => branch(|_| false),
    "s_getpc_b64" => get_pc(),
    "s_setpc_b64" => set_pc(),
    "s_swappc_b64" => swap_pc(),
    "s_call_b64" => call(),
    "s_trap" => trap(),
    "s_sethalt" => set_halt(),
    "s_sendmsg" => send_message(),
    "s_getreg_b32" => get_register(),
    "s_setreg_b32" => set_register(),
    "s_setreg_imm32_b32" => set_register_imm(),
    "s_set_gpr_idx_on" => index_on(),
    "s_set_gpr_idx_off" => index_off(),
    "s_set_gpr_idx_mode" => index_mode(),
    "s_set_gpr_idx_idx" => index(),
    "s_memtime" => clock(CORE_HZ),
    "s_memrealtime" => clock(REALTIME_HZ),
}
