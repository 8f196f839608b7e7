//! How many calls, posts and lines a second.

use crate::latency::{Loop, run};
use crate::run::{Bed, Options, Result, Row};
use crate::{floor, median};
use hostcall::Grid;
use hostcall_bench_kernels as kernels;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn row(name: &'static str, unit: &'static str, values: Vec<f64>, floor: Option<f64>) -> Row {
    let value = median(values);
    Row { name, value, unit, floor, ratio: floor.map(|floor| floor / value) }
}

/// Repeats of `per_pass` things a second, from launch to the end of the last handler.
fn rates(
    options: &Options,
    bed: &Bed,
    kernel: &Loop,
    grid: Grid,
    count: u64,
    per_pass: u32,
) -> Result<Vec<f64>> {
    run(bed, kernel, grid, count / 10 + 1)?;
    let mut rates = vec![];
    for _ in 0..options.repeats {
        let start = Instant::now();
        run(bed, kernel, grid, count)?;
        rates.push(f64::from(per_pass) * count as f64 / start.elapsed().as_secs_f64());
    }
    Ok(rates)
}

/// Calls a second of many waves, one lane each and whole waves of 64 bytes a lane. Beside the first, what one
/// lane can do: the reciprocal of a flag ping-pong.
pub fn wave_calls(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let ping = 1e9 / floor::ping_pong_ns(&bed, 20_000)?;
    let one = |name, waves, count| -> Result<Row> {
        let rates = rates(options, &bed, &kernels::null_calls, Grid::new(waves, 1), count, waves)?;
        Ok(row(name, "calls/s", rates, Some(ping)))
    };
    if options.is_software() {
        return Ok(vec![one("wave_calls_per_s", 64, 5_000)?]);
    }
    let mut rows = vec![one("wave_calls_per_s", 1056, 5_000)?, one("wave_calls_per_s_4224", 4224, 2_000)?];
    let lanes = bed.device.wave_size();
    for (name, waves) in [("wide_wave_calls_per_s", 1056), ("wide_wave_calls_per_s_4224", 4224)] {
        let rates = rates(options, &bed, &kernels::wide_calls, Grid::new(waves / 4, lanes * 4), 500, waves)?;
        rows.push(row(name, "calls/s", rates, None));
    }
    Ok(rows)
}

/// Posts of 16 bytes a second, each taken by a handler that adds it up.
pub fn posts(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let lanes = bed.device.wave_size();
    let posts = |name, workgroups: u32, lanes: u32, count: u64| -> Result<Row> {
        let before = bed.events.load(Ordering::Relaxed);
        let all = workgroups * lanes;
        let rates = rates(options, &bed, &kernels::posts, Grid::new(workgroups, lanes), count, all)?;
        let sum = bed.events.load(Ordering::Relaxed).wrapping_sub(before);
        let of = |count: u64| count * (count + 1) / 2;
        if sum != u64::from(all) * (of(count / 10 + 1) + options.repeats as u64 * of(count)) {
            return Err("posts were lost or changed".into());
        }
        Ok(row(name, "posts/s", rates, None))
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

/// Lines of three integers a second, formatted and written to a file.
pub fn lines(options: &Options) -> Result<Vec<Row>> {
    const COUNT: u64 = 20_000;
    let path = std::env::temp_dir().join(format!("hostcall-bench-{}", std::process::id()));
    let bed = Bed::open(options, None, Some(std::fs::File::create(&path)?))?;
    let lanes = bed.device.wave_size();
    let workgroups = if options.is_software() { 1 } else { 32 };
    let grid = Grid::new(workgroups, lanes);
    let mut rates = vec![];
    for _ in 0..options.repeats {
        let start = Instant::now();
        run(&bed, &kernels::lines, grid, COUNT)?;
        rates.push(f64::from(workgroups * lanes) * COUNT as f64 / start.elapsed().as_secs_f64());
    }
    bed.device.builtins().stdio().flush();
    let written = std::fs::read(&path)?.iter().filter(|byte| **byte == b'\n').count() as u64;
    std::fs::remove_file(&path)?;
    if written != u64::from(workgroups * lanes) * COUNT * options.repeats as u64 {
        return Err(format!("{written} lines were written").into());
    }
    Ok(vec![row("print_lines_per_s", "lines/s", rates, None)])
}
