//! Launches of a kernel that does nothing, beside the driver's own in the same run.

use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::Grid;
use hostcall_bench_kernels::{empty, empty_with_buffers};
use hostcall_cuda::{Driver, EmptyKernel, Gpu};
use std::sync::Arc;
use std::time::Instant;

/// Lanes of each workgroup.
const LANES: u32 = 256;

/// Launches that each median is of.
const LAUNCHES: usize = 200;

/// Launches that follow each other without waiting.
const BACK_TO_BACK: u32 = 10_000;

/// Turns of launches back to back for each repeat: a processor's clock differs more between turns than what is compared.
const TURNS: usize = 3;

/// Names of the rows, and the workgroups that are launched and waited for.
const GRIDS: [(&str, u32); 3] =
    [("launch_1x256_us", 1), ("launch_1056x256_us", 1056), ("launch_65536x256_us", 65_536)];

/// Times launches of each size, launches back to back, and launches that take buffers.
pub fn launches(options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let rival = driver_kernel(options)?;
    let mut rows = Vec::new();
    for (name, workgroups) in GRIDS {
        // The software device runs one lane after the other, so that large grids take long.
        let (launches, workgroups) = match options.is_software() {
            true => (20, workgroups.min(64)),
            false => (LAUNCHES, workgroups),
        };
        let grid = Grid::new(workgroups, LANES);
        let (mut ours, mut theirs) = (Vec::new(), Vec::new());
        for _ in 0..launches {
            ours.push(time_us(|| {
                bed.launch(&empty, grid, ())?;
                bed.synchronize()
            })?);
            if let Some(rival) = &rival {
                theirs.push(time_us(|| {
                    rival.launch(workgroups, LANES)?;
                    Ok(rival.synchronize()?)
                })?);
            }
        }
        rows.push(Row::time(name, "us", median(ours), rival.as_ref().map(|_| median(theirs))));
    }
    let (mut ours, mut theirs, mut with_buffers) = (Vec::new(), Vec::new(), Vec::new());
    let buffers = bed.device.alloc_zeroed::<u64>(1024)?;
    let parts = [buffers.part(..256)?, buffers.part(256..512)?, buffers.part(512..)?];
    let grid = Grid::new(1, LANES);
    for turn in 0..=TURNS * options.repeats.max(1) {
        let one = each_us(|| bed.launch(&empty, grid, ()), || bed.synchronize())?;
        let arguments = (&parts[0], &parts[1], &parts[2]);
        let with_three = each_us(|| bed.launch(&empty_with_buffers, grid, arguments), || bed.synchronize())?;
        let rivals = match &rival {
            Some(rival) => each_us(|| Ok(rival.launch(1, LANES)?), || Ok(rival.synchronize()?))?,
            None => 0.0,
        };
        // The first turn loads code and makes memory.
        if turn > 0 {
            ours.push(one);
            with_buffers.push(with_three);
            theirs.push(rivals);
        }
    }
    let theirs = rival.as_ref().map(|_| median(theirs));
    rows.push(Row::time("back_to_back_us", "us", median(ours), theirs));
    rows.push(Row::time("back_to_back_3_buffers_us", "us", median(with_buffers), theirs));
    Ok(rows)
}

/// The kernel that the driver launches, on NVIDIA's GPUs.
pub(crate) fn driver_kernel(options: &Options) -> Result<Option<EmptyKernel>> {
    Ok(driver_gpu(options)?.map(|gpu| EmptyKernel::load(&gpu)).transpose()?)
}

/// The GPU as the driver opens it, on NVIDIA's.
pub(crate) fn driver_gpu(options: &Options) -> Result<Option<Arc<Gpu>>> {
    let Some(index) = options.device.strip_prefix("cuda") else { return Ok(None) };
    let index = index.strip_prefix(':').map_or(Ok(0), str::parse::<usize>)?;
    let driver = Driver::load()?;
    let info = driver.gpus()?.into_iter().nth(index).ok_or("there is no such GPU")?;
    Ok(Some(driver.open_gpu(info)?))
}

/// Microseconds that something takes.
fn time_us(run: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    run()?;
    Ok(start.elapsed().as_secs_f64() * 1e6)
}

/// Microseconds of each of many launches, all waited for together.
fn each_us(launch: impl Fn() -> Result<()>, synchronize: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    for _ in 0..BACK_TO_BACK {
        launch()?;
    }
    synchronize()?;
    Ok(start.elapsed().as_secs_f64() * 1e6 / f64::from(BACK_TO_BACK))
}
