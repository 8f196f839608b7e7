//! Kernels that compute on the software device, beside plain loops by as many threads of the host.

use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::device::SoftwareDeviceConfig;
use hostcall::{Device, Grid};
use hostcall_bench_kernels::{compute, empty};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Floats of each vector: 64 MiB.
const FLOATS: usize = 1 << 24;

/// The grid of the kernels that compute.
const GRID: (u32, u32) = (264, 256);

/// The grid of lanes that do nothing.
const EMPTY: (u32, u32) = (16_384, 256);

/// Times lanes that do nothing, and the kernels.
pub fn parallel(options: &Options) -> Result<Vec<Row>> {
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    let config = SoftwareDeviceConfig { threads, ..SoftwareDeviceConfig::default() };
    let bed = Bed::of(options, Device::builder(&options.device).software(config))?;
    let (mut x, mut y) = (vec![1.5f32; FLOATS], vec![0.5f32; FLOATS]);
    let (on_device, sums) = (bed.device.upload(&x)?, bed.device.upload(&y)?);
    let grid = Grid::new(GRID.0, GRID.1);
    let lane_ns = timed(options, || {
        bed.launch(&empty, Grid::new(EMPTY.0, EMPTY.1), ())?;
        bed.synchronize()
    })? * 1e9
        / f64::from(EMPTY.0 * EMPTY.1);
    let mut rows = vec![Row::time("empty_lane_ns", "ns", lane_ns, None)];
    let part = FLOATS.div_ceil(threads);
    let ours = timed(options, || {
        bed.launch(&compute::saxpy, grid, (2.0f32, &on_device, &sums))?;
        bed.synchronize()
    })?;
    let theirs = timed(options, || {
        thread::scope(|scope| {
            for (x, y) in x.chunks(part).zip(y.chunks_mut(part)) {
                scope.spawn(move || y.iter_mut().zip(x).for_each(|(y, x)| *y += 2.0 * x));
            }
        });
        black_box(&mut y);
        Ok(())
    })?;
    rows.push(Row::time("saxpy_us", "us", ours * 1e6, Some(theirs * 1e6)));
    let ours = timed(options, || {
        bed.launch(&compute::sum, grid, (&on_device, &sums))?;
        bed.synchronize()
    })?;
    let theirs = timed(options, || {
        thread::scope(|scope| {
            for x in x.chunks(part) {
                scope.spawn(move || black_box(x.iter().sum::<f32>()));
            }
        });
        black_box(&mut x);
        Ok(())
    })?;
    rows.push(Row::time("sum_us", "us", ours * 1e6, Some(theirs * 1e6)));
    Ok(rows)
}

/// The middle of the seconds that something takes, once it has run before.
fn timed(options: &Options, mut run: impl FnMut() -> Result<()>) -> Result<f64> {
    run()?;
    let mut seconds = Vec::new();
    for _ in 0..options.repeats.max(1) {
        let start = Instant::now();
        run()?;
        seconds.push(start.elapsed().as_secs_f64());
    }
    Ok(median(seconds))
}
