//! How long one call takes.

use crate::run::{Bed, Options, Result, Row};
use crate::{floor, median};
use hostcall::Grid;
use hostcall::hostcall_device::Global;
use hostcall::hostcall_device::kernel::{Kernel, Slice};
use hostcall_bench_kernels as kernels;

/// A kernel that loops: per lane its time in ns and whether it saw a wrong answer, and how often.
pub type Loop = Kernel<(Slice<Global<u64>>, Slice<Global<u64>>, u64)>;

/// Runs a kernel that loops `count` times on a grid and gives the longest lane's time in ns.
pub fn run(bed: &Bed, kernel: &Loop, grid: Grid, count: u64) -> Result<f64> {
    let lanes = grid.workgroups.iter().chain(&grid.lanes).map(|n| *n as usize).product();
    let ns = bed.device.alloc_zeroed::<u64>(lanes)?;
    let failed = bed.device.alloc_zeroed::<u64>(lanes)?;
    bed.launch(kernel, grid, (&ns, &failed, count))?;
    bed.synchronize()?;
    if failed.read()?.iter().any(|failed| *failed != 0) {
        return Err(format!("kernel {} got a wrong answer", kernel.name).into());
    }
    Ok(ns.read()?.into_iter().max().unwrap_or(0) as f64)
}

fn row(name: &'static str, values: Vec<f64>, floor: f64) -> Row {
    let value = median(values);
    Row { name, value, unit: "ns", floor: Some(floor), ratio: Some(value / floor) }
}

/// Null calls of one lane, with few and with 4096 slots in use, beside a flag ping-pong.
pub fn one_lane(options: &Options) -> Result<Vec<Row>> {
    const COUNT: u64 = 50_000;
    const SLOTS: u32 = 4096;
    let few = Bed::open(options, Some(128), None)?;
    let many = Bed::open(options, Some(SLOTS), None)?;
    // As if launches had all of the slots, of which one wave calls: the host has to look at each.
    many.device.server().attach(0..SLOTS, 0);
    let one = Grid::new(1, 1);
    for bed in [&few, &many] {
        run(bed, &kernels::null_calls, one, COUNT / 10)?;
        floor::ping_pong_ns(bed, COUNT / 10)?;
    }
    let (mut pings, mut calls, mut calls_4096) = (vec![], vec![], vec![]);
    for _ in 0..options.repeats {
        pings.push(floor::ping_pong_ns(&few, COUNT)?);
        calls.push(run(&few, &kernels::null_calls, one, COUNT)? / COUNT as f64);
        calls_4096.push(run(&many, &kernels::null_calls, one, COUNT)? / COUNT as f64);
    }
    let floor = median(pings.clone());
    Ok(vec![
        row("ping_pong", pings, floor),
        row("call_1_lane", calls, floor),
        row("call_1_lane_4096_slots", calls_4096, floor),
    ])
}

/// Calls of a whole wave, 64 bytes a lane out and 16 back.
pub fn whole_wave(options: &Options) -> Result<Vec<Row>> {
    const COUNT: u64 = 20_000;
    let bed = Bed::open(options, Some(128), None)?;
    let grid = Grid::new(1, bed.device.wave_size());
    run(&bed, &kernels::wide_calls, grid, COUNT / 10)?;
    floor::wave_ping_pong_ns(options, &bed, COUNT / 10)?;
    let (mut pings, mut calls) = (vec![], vec![]);
    for _ in 0..options.repeats {
        pings.push(floor::wave_ping_pong_ns(options, &bed, COUNT)?);
        calls.push(run(&bed, &kernels::wide_calls, grid, COUNT)? / COUNT as f64);
    }
    Ok(vec![row("call_wave_64b", calls, median(pings))])
}
