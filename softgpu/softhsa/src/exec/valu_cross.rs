//! Operations between lanes and scalar registers.

use super::handlers;
use super::inst::{Flow, Inst};
use super::wave::{Env, LANES, Wave};

/// Reads the first active lane, or lane 0 if none is active.
fn read_first(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let exec = wave.exec();
    let lane = if exec == 0 { 0 } else { exec.trailing_zeros() as usize };
    let value = wave.read(inst.src[0], lane);
    wave.set_scalar(inst.sdst, value);
    Flow::Next
}

fn read(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let lane = wave.read_scalar(inst.src[1]) as usize % LANES;
    let value = wave.read(inst.src[0], lane);
    wave.set_scalar(inst.sdst, value);
    Flow::Next
}

/// Writes one lane, active or not.
fn write(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let lane = wave.read_scalar(inst.src[1]) as usize % LANES;
    let value = wave.read_scalar(inst.src[0]);
    wave.write_lane(inst.dst, lane, value);
    Flow::Next
}

/// Exchanges two registers.
fn swap(wave: &mut Wave, inst: &Inst, _: &mut Env<'_>) -> Flow {
    let super::inst::Src::Vector(other) = inst.src[0] else { return Flow::Next };
    let (first, second, exec) = (*wave.row(inst.dst), *wave.row(other), wave.exec());
    wave.write_row(inst.dst, &second, exec);
    wave.write_row(other, &first, exec);
    Flow::Next
}

handlers! {
    "v_readfirstlane_b32" => read_first(),
    "v_readlane_b32" => read(),
    "v_writelane_b32" => write(),
    "v_swap_b32" => swap(),
}
