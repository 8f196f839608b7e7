//! How many calls, posts and lines a second.

use crate::latency::{Loop, run};
use crate::run::{Bed, Options, Result, Row};
use crate::{floor, median};
use hostcall::Grid;
use hostcall_bench_kernels as kernels;
use std::sync::atomic::Ordering;
use std::time::Instant;

/// Things a second, `count` of each of the grid's `each` lanes or waves, from launch to the end of the last
/// handler, beside their floor, if there is one, which is measured in turn with them.
fn rate(
    options: &Options,
    (name, unit): (&'static str, &'static str),
    each: u32,
    count: u64,
    run: impl Fn(u64) -> Result<f64>,
    floor: impl Fn(u64) -> Result<Option<f64>>,
) -> Result<Row> {
    let warm_up = count / 10 + 1;
    run(warm_up)?;
    floor(warm_up)?;
    let (mut rates, mut floors) = (vec![], vec![]);
    for _ in 0..options.repeats {
        let start = Instant::now();
        run(count)?;
        rates.push(f64::from(each) * count as f64 / start.elapsed().as_secs_f64());
        floors.extend(floor(count)?);
    }
    let floor = (!floors.is_empty()).then(|| median(floors));
    Ok(Row::rate(name, unit, median(rates), floor))
}

/// Calls a second of many waves, one lane each and whole waves of 64 bytes a lane, beside calls without dispatch
/// and status. On the software device, beside what one lane can do: the reciprocal of a flag ping-pong.
pub fn wave_calls(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let calls = |name, kernel: &Loop, grid: Grid, waves, words, count| {
        let run = |count| run(&bed, kernel, grid, count);
        let floor = |count| match options.is_software() {
            true => Ok(Some(1e9 / floor::ping_pong_ns(&bed, 20_000)?)),
            false => floor::bare_calls_per_s(&bed, grid, words, count).map(Some),
        };
        rate(options, (name, "calls/s"), waves, count, run, floor)
    };
    let one = |name, waves, count| calls(name, &kernels::null_calls, Grid::new(waves, 1), waves, 1, count);
    if options.is_software() {
        return Ok(vec![one("wave_calls_per_s", 64, 5_000)?]);
    }
    let lanes = bed.device.wave_size();
    let wide =
        |name, waves| calls(name, &kernels::wide_calls, Grid::new(waves / 4, lanes * 4), waves, 8, 500);
    Ok(vec![
        one("wave_calls_per_s", 1056, 5_000)?,
        one("wave_calls_per_s_4224", 4224, 2_000)?,
        wide("wide_wave_calls_per_s", 1056)?,
        wide("wide_wave_calls_per_s_4224", 4224)?,
    ])
}

/// Posts of 16 bytes a second, each taken by a handler that adds it up, beside posts without dispatch.
pub fn posts(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let lanes = bed.device.wave_size();
    let posts = |name, workgroups: u32, lanes: u32, count: u64| -> Result<Row> {
        let all = workgroups * lanes;
        let grid = Grid::new(workgroups, lanes);
        let run = |count| {
            let before = bed.events.load(Ordering::Relaxed);
            let ns = run(&bed, &kernels::posts, grid, count)?;
            let sum = bed.events.load(Ordering::Relaxed).wrapping_sub(before);
            if sum != u64::from(all) * (count * (count + 1) / 2) {
                return Err("posts were lost or changed".into());
            }
            Ok(ns)
        };
        // The software device's lanes cannot wait for room without asking it.
        let floor = |count| match options.is_software() {
            true => Ok(None),
            false => floor::bare_posts_per_s(&bed, grid, count).map(Some),
        };
        rate(options, (name, "posts/s"), all, count, run, floor)
    };
    if options.is_software() {
        return Ok(vec![posts("posts_per_s", 1, lanes, 30_000)?]);
    }
    Ok(vec![
        posts("posts_per_s", 132, lanes, 20_000)?,
        posts("posts_per_s_1_lane", 1, 1, 1_000_000)?,
        posts("posts_per_s_1_wave", 1, lanes, 200_000)?,
        posts("posts_per_s_1056", 132, lanes * 8, 4_000)?,
        posts("posts_per_s_4224", 528, lanes * 8, 1_000)?,
    ])
}

/// What a kernel of the whole GPU can store to the host's memory.
pub fn stores(options: &Options) -> Result<Row> {
    let bed = Bed::open(options, None, None)?;
    Ok(Row::rate("kernel_store_gb_per_s", "GB/s", floor::stored_bytes_per_s(&bed)? / 1e9, None))
}

/// Lines of three integers a second, formatted and written to a file.
pub fn lines(options: &Options) -> Result<Vec<Row>> {
    const COUNT: u64 = 20_000;
    let path = std::env::temp_dir().join(format!("hostcall-bench-{}", std::process::id()));
    let bed = Bed::open(options, None, Some(Box::new(std::fs::File::create(&path)?)))?;
    let lanes = bed.device.wave_size();
    let workgroups = if options.is_software() { 1 } else { 32 };
    let grid = Grid::new(workgroups, lanes);
    let mut rates = vec![];
    for _ in 0..options.repeats {
        let start = Instant::now();
        run(&bed, &kernels::lines, grid, COUNT)?;
        rates.push(f64::from(workgroups * lanes) * COUNT as f64 / start.elapsed().as_secs_f64());
    }
    bed.device.builtins().stdio().flush()?;
    let written = std::fs::read(&path)?.iter().filter(|byte| **byte == b'\n').count() as u64;
    std::fs::remove_file(&path)?;
    if written != u64::from(workgroups * lanes) * COUNT * options.repeats as u64 {
        return Err(format!("{written} lines were written").into());
    }
    Ok(vec![Row::rate("print_lines_per_s", "lines/s", median(rates), None)])
}
