//! How many calls, posts and lines a second.

use crate::run::{Bed, Options, Result, Row};
use crate::latency::run;
use crate::{floor, median};
use hostcall::Grid;
use hostcall_bench_kernels as kernels;
use std::sync::atomic::Ordering;
use std::time::Instant;

fn row(name: &'static str, unit: &'static str, values: Vec<f64>, floor: Option<f64>) -> Row {
    let value = median(values);
    Row { name, value, unit, floor, ratio: floor.map(|floor| floor / value) }
}

/// Null calls a second of many waves of one lane. Beside them, what one wave after the other could do: the
/// reciprocal of a flag ping-pong.
pub fn wave_calls(options: &Options, grid: Grid) -> Result<Row> {
    const COUNT: u64 = 5_000;
    let bed = Bed::open(options, None, None)?;
    let waves = f64::from(grid.workgroups[0]);
    let (mut rates, mut pings) = (vec![], vec![]);
    for _ in 0..options.repeats {
        pings.push(1e9 / floor::thread_ping_pong_ns(100_000));
        let start = Instant::now();
        run(&bed, &kernels::null_calls, grid, COUNT)?;
        rates.push(waves * COUNT as f64 / start.elapsed().as_secs_f64());
    }
    Ok(row("wave_calls_per_s", "calls/s", rates, Some(median(pings))))
}

/// Posts a second of one wave, each taken by a handler.
pub fn posts(options: &Options) -> Result<Row> {
    const COUNT: u64 = 30_000;
    let bed = Bed::open(options, None, None)?;
    let lanes = bed.device.wave_size();
    let mut rates = vec![];
    for _ in 0..options.repeats {
        let before = bed.events.load(Ordering::Relaxed);
        let start = Instant::now();
        run(&bed, &kernels::posts, Grid::new(1, lanes), COUNT)?;
        let elapsed = start.elapsed().as_secs_f64();
        let sum = bed.events.load(Ordering::Relaxed).wrapping_sub(before);
        if sum != u64::from(lanes) * COUNT * (COUNT + 1) / 2 {
            return Err("posts were lost or changed".into());
        }
        rates.push(f64::from(lanes) * COUNT as f64 / elapsed);
    }
    Ok(row("posts_per_s", "posts/s", rates, None))
}

/// Lines of three integers a second, formatted and written to a file.
pub fn lines(options: &Options) -> Result<Row> {
    const COUNT: u64 = 20_000;
    let path = std::env::temp_dir().join(format!("hostcall-bench-{}", std::process::id()));
    let bed = Bed::open(options, None, Some(std::fs::File::create(&path)?))?;
    let lanes = bed.device.wave_size();
    let mut rates = vec![];
    for _ in 0..options.repeats {
        let start = Instant::now();
        run(&bed, &kernels::lines, Grid::new(1, lanes), COUNT)?;
        rates.push(f64::from(lanes) * COUNT as f64 / start.elapsed().as_secs_f64());
    }
    let written = std::fs::read(&path)?.iter().filter(|byte| **byte == b'\n').count() as u64;
    std::fs::remove_file(&path)?;
    if written != u64::from(lanes) * COUNT * options.repeats as u64 {
        return Err(format!("{written} lines were written").into());
    }
    Ok(row("print_lines_per_s", "lines/s", rates, None))
}
