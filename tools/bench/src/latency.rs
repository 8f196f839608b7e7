//! How long one call takes.

use crate::run::{Bed, Options, Result, Row, until};
use crate::{floor, median, percentile};
use hostcall::hostcall_device::Global;
use hostcall::hostcall_device::kernel::{Kernel, Slice};
use hostcall::{Device, Grid};
use hostcall_bench_kernels as kernels;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

/// A kernel that loops: per lane its time in ns and whether it saw a wrong answer, and how often.
pub type Loop = Kernel<(Slice<Global<u64>>, Slice<Global<u64>>, u64)>;

/// Runs a kernel that loops `count` times on a grid and gives the longest lane's time in ns.
pub fn run(bed: &Bed, kernel: &Loop, grid: Grid, count: u64) -> Result<f64> {
    let lanes = grid.workgroups.iter().chain(&grid.workgroup_size).map(|n| *n as usize).product();
    let ns = bed.device.alloc_zeroed::<u64>(lanes)?;
    let failed = bed.device.alloc_zeroed::<u64>(lanes)?;
    bed.launch(kernel, grid, (&ns, &failed, count))?;
    bed.synchronize()?;
    if failed.read()?.iter().any(|failed| *failed != 0) {
        return Err(format!("kernel {} got a wrong answer", kernel.name()).into());
    }
    Ok(ns.read()?.into_iter().max().unwrap_or(0) as f64)
}

fn row(name: &'static str, values: Vec<f64>, floor: f64) -> Row {
    Row::time(name, "ns", median(values), Some(floor))
}

/// Times null calls of one lane.
struct Timer<'a> {
    bed: &'a Bed,
    tick_ns: f64,
}

impl<'a> Timer<'a> {
    /// Finds out how long a tick of the device's is, from `count` calls, and returns their times in nanoseconds too.
    fn new(bed: &'a Bed, count: usize) -> Result<(Self, Vec<f64>)> {
        let (times, tick_ns) = Self::ticks(bed, count)?;
        let timer = Self { bed, tick_ns };
        Ok((timer, times.into_iter().map(|ticks| ticks as f64 * tick_ns).collect()))
    }

    /// Nanoseconds of the first two calls of a workgroup's first wave, of its second, and of the same of another workgroup,
    /// when the first begins so long after the launch.
    fn first_times(&self, after_ns: u64) -> Result<Vec<f64>> {
        let (turn, times) =
            (self.bed.device.alloc_zeroed::<u64>(1)?, self.bed.device.alloc_zeroed::<u64>(8)?);
        let waves = Grid::new(2, 2 * self.bed.device.wave_size());
        self.bed.launch(&kernels::first_call_times, waves, (&turn, &times, after_ns))?;
        self.bed.synchronize()?;
        let times = times.read()?;
        Ok(times.into_iter().map(|ticks| ticks as f64 * self.tick_ns).collect())
    }

    fn ticks(bed: &Bed, count: usize) -> Result<(Vec<u64>, f64)> {
        let buffer = |len| bed.device.alloc_zeroed::<u64>(len);
        let (ns, ticks, times) = (buffer(1)?, buffer(1)?, buffer(count)?);
        bed.launch(&kernels::null_call_times, Grid::new(1, 1), (&ns, &ticks, &times))?;
        bed.synchronize()?;
        Ok((times.read()?, ns.read()?[0] as f64 / ticks.read()?[0] as f64))
    }
}

/// The first call of a launch's first wave, of the second wave of the same workgroup, and of the first one of another
/// workgroup, beside a wave's second call, in ns. None of them has a slot yet; the second wave finds the code where the first has
/// fetched it, the other workgroup's finds it only where all multiprocessors do. Then first calls that come later
/// than the launch's begin: the host has looked for calls in vain, and may sleep.
fn first_calls(timer: &Timer<'_>) -> Result<[Row; 6]> {
    const LAUNCHES: usize = 300;
    let row = |name, after_ns, n: usize| -> Result<Row> {
        let times = (0..LAUNCHES).map(|_| timer.first_times(after_ns)).collect::<Result<Vec<_>>>()?;
        let nth = |n: usize| median(times.iter().map(|times| times[n]).collect());
        Ok(Row::time(name, "ns", nth(n), Some(nth(n + 1))))
    };
    Ok([
        row("first_call_1_lane", 0, 0)?,
        row("first_call_2nd_wave", 0, 2)?,
        row("first_call_2nd_workgroup", 0, 4)?,
        row("first_call_after_20_us", 20_000, 0)?,
        row("first_call_after_200_us", 200_000, 0)?,
        row("first_call_after_1_ms", 1_000_000, 0)?,
    ])
}

/// Null calls of one lane, with few and with 4096 slots in use, beside a flag ping-pong.
pub fn one_lane(options: &Options) -> Result<Vec<Row>> {
    const COUNT: u64 = 50_000;
    const SLOTS: u32 = 4096;
    let few = Bed::open(options, Some(128), None)?;
    let many = Bed::open(options, Some(SLOTS), None)?;
    // Of which one wave calls: the host has to look at each.
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
    let (timer, times) = Timer::new(&few, COUNT as usize)?;
    let mut rows = vec![
        row("ping_pong", pings, floor),
        row("call_1_lane", calls, floor),
        row("call_1_lane_4096_slots", calls_4096, floor),
        Row::time("call_1_lane_p50", "ns", percentile(times.clone(), 50), Some(floor)),
        Row::time("call_1_lane_p99", "ns", percentile(times, 99), Some(floor)),
    ];
    rows.extend(first_calls(&timer)?);
    if !options.is_software() {
        let overlapped = (0..options.repeats).map(|_| floor::overlapped_ping_pong_ns(&few, COUNT));
        rows.push(row("ping_pong_overlapped", overlapped.collect::<Result<_>>()?, floor));
    }
    Ok(rows)
}

/// A grid of 32,768 lanes, each of which makes a call of 64 bytes and checks the answer, from launch to end.
pub fn grid(options: &Options) -> Result<Row> {
    let bed = Bed::open(options, None, None)?;
    let grid = Grid::new(128, 256);
    let mut times = vec![];
    for _ in 0..options.repeats {
        let start = Instant::now();
        run(&bed, &kernels::wide_calls, grid, 1)?;
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(Row::time("grid_32768_calls", "ms", median(times), None))
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

/// Opening a device, with the least memory for the channel and with the default, loading the image, closing the device, and
/// launching a kernel that does nothing.
pub fn start(options: &Options) -> Result<Vec<Row>> {
    const LAUNCHES: u32 = 200;
    let (mut opens, mut small_opens, mut loads, mut closes, mut launches) =
        (vec![], vec![], vec![], vec![], vec![]);
    let passed_ms = |start: Instant| 1e3 * start.elapsed().as_secs_f64();
    for _ in 0..options.repeats {
        let start = Instant::now();
        drop(Device::builder(&options.device).slots(1).open()?);
        small_opens.push(passed_ms(start));
        let start = Instant::now();
        let device = Device::open(&options.device)?;
        opens.push(passed_ms(start));
        let start = Instant::now();
        drop(device);
        closes.push(passed_ms(start));
        let start = Instant::now();
        let bed = Bed::open(options, Some(128), None)?;
        loads.push(passed_ms(start));
        let nothing = bed.device.alloc_zeroed::<u64>(1)?;
        let launch = || {
            bed.launch(&kernels::null_calls, Grid::new(1, 1), (&nothing, &nothing, 0u64))?;
            bed.synchronize()
        };
        launch()?;
        let start = Instant::now();
        (0..LAUNCHES).try_for_each(|_| launch())?;
        launches.push(1e3 * passed_ms(start) / f64::from(LAUNCHES));
    }
    let row = |name, unit, values| Row::time(name, unit, median(values), None);
    Ok(vec![
        row("open_ms", "ms", opens),
        row("close_ms", "ms", closes),
        row("open_and_close_128_slots_ms", "ms", small_opens),
        row("open_128_slots_and_load_ms", "ms", loads),
        row("launch_us", "us", launches),
    ])
}

/// Counts the lines that are written to it.
struct Lines(Arc<AtomicU64>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let lines = bytes.iter().filter(|byte| **byte == b'\n').count();
        self.0.fetch_add(lines as u64, Ordering::Relaxed);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Milliseconds from a kernel's beginning to print a line, while it goes on running, to the line's write to the
/// standard output: 99 of 100 lines take at most so long.
pub fn visible_line(options: &Options) -> Result<Row> {
    const COUNT: u64 = 1000;
    let written = Arc::new(AtomicU64::new(0));
    let bed = Bed::open(options, None, Some(Box::new(Lines(written.clone()))))?;
    let state = bed.device.pinned::<u64>(2)?;
    bed.launch(&kernels::lines_in_turn, Grid::new(1, 1), (&state, COUNT))?;
    let mut times = vec![];
    for i in 1..=COUNT {
        until(|| state[0].get() >= i)?;
        let start = Instant::now();
        until(|| written.load(Ordering::Relaxed) >= i)?;
        times.push(1e3 * start.elapsed().as_secs_f64());
        state[1].set(i);
    }
    bed.synchronize()?;
    Ok(Row::time("print_visible_ms", "ms", percentile(times, 99), None))
}
