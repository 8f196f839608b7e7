//! Kernels that compute on the software device, beside the same algorithms as plain Rust by rayon, on as many threads.

use crate::median;
use crate::run::{Bed, Options, Result, Row};
use hostcall::device::SoftwareDeviceConfig;
use hostcall::{Device, DeviceBuffer, Grid};
use hostcall_bench_kernels::{compute, empty};
use rayon::prelude::*;
use rayon::{ThreadPool, ThreadPoolBuilder};
use std::hint::black_box;
use std::thread;
use std::time::Instant;

/// Floats of each vector: 256 MiB, as on GPUs.
const FLOATS: usize = 1 << 26;

/// Entries of the table that `gather` looks up: 4 MiB.
const TABLE: usize = 1 << 20;

/// Numbers whose sequences `collatz` follows.
const NUMBERS: usize = 1 << 19;

/// Bodies of `nbody`, one a lane.
const BODIES: usize = 1 << 12;

/// Rows and columns of `matmul`'s matrices, a multiple of 8.
const ROWS: usize = 768;

/// The grid of the kernels whose lanes take shares, as a GPU would have it.
const GRID: (u32, u32) = (264, 256);

/// The grid of lanes that do nothing.
const EMPTY: (u32, u32) = (16_384, 256);

/// A device and a pool, with one thread for each core.
struct Pair<'a> {
    options: &'a Options,
    bed: Bed,
    pool: ThreadPool,
}

/// Times lanes that do nothing, and the kernels.
pub fn parallel(options: &Options) -> Result<Vec<Row>> {
    let threads = thread::available_parallelism().map_or(1, |threads| threads.get());
    let config = SoftwareDeviceConfig { threads, ..SoftwareDeviceConfig::default() };
    let bed = Bed::of(options, Device::builder(&options.device).software(config))?;
    let pool = ThreadPoolBuilder::new().num_threads(threads).build()?;
    let pair = Pair { options, bed, pool };
    let mut rows = vec![pair.empty()?];
    rows.extend(pair.vectors()?);
    rows.push(pair.collatz()?);
    rows.push(pair.nbody()?);
    rows.push(pair.matmul()?);
    Ok(rows)
}

impl Pair<'_> {
    /// Times both in turn, once each has run. Returns the middle of each one's microseconds.
    fn row(
        &self,
        name: &'static str,
        ours: impl Fn(&Bed) -> Result<()>,
        mut theirs: impl FnMut() + Send,
    ) -> Result<Row> {
        let mut times_us = [vec![], vec![]];
        for turn in 0..=self.options.repeats.max(1) {
            let start = Instant::now();
            ours(&self.bed)?;
            self.bed.synchronize()?;
            let between = Instant::now();
            self.pool.install(&mut theirs);
            if turn > 0 {
                times_us[0].push((between - start).as_secs_f64() * 1e6);
                times_us[1].push(between.elapsed().as_secs_f64() * 1e6);
            }
        }
        let [ours, theirs] = times_us.map(median);
        Ok(Row::time(name, "us", ours, Some(theirs)))
    }

    /// What a lane costs that does nothing.
    fn empty(&self) -> Result<Row> {
        let launch = |bed: &Bed| bed.launch(&empty, Grid::new(EMPTY.0, EMPTY.1), ());
        let Row { value, .. } = self.row("", launch, || ())?;
        Ok(Row::time("empty_lane_ns", "ns", value * 1e3 / f64::from(EMPTY.0 * EMPTY.1), None))
    }

    /// `saxpy`, `sum` and `gather`.
    fn vectors(&self) -> Result<Vec<Row>> {
        let device = &self.bed.device;
        let grid = Grid::new(GRID.0, GRID.1);
        let (x, mut y) = (vec![1.5f32; FLOATS], vec![0.5f32; FLOATS]);
        let (our_x, our_y) = (device.upload(&x)?, device.upload(&y)?);
        let saxpy = self.row(
            "saxpy_us",
            |bed| bed.launch(&compute::saxpy, grid, (2.0f32, &our_x, &our_y)),
            || y.par_iter_mut().zip(&x).for_each(|(y, x)| *y += 2.0 * x),
        )?;
        same("saxpy", &our_y, &y)?;
        let sum = self.row(
            "sum_us",
            |bed| bed.launch(&compute::sum, grid, (&our_x, &our_y)),
            || _ = black_box(x.par_iter().sum::<f32>()),
        )?;
        let our_sums = our_y.part(..(GRID.0 * GRID.1) as usize)?.read()?;
        if our_sums.iter().map(|&sum| f64::from(sum)).sum::<f64>() != FLOATS as f64 * 1.5 {
            return Err("the sum is wrong".into());
        }
        let keys: Vec<_> = (0..FLOATS as u32).map(|i| i.wrapping_mul(2_654_435_761) >> 12).collect();
        let table: Vec<_> = (0..TABLE).map(|i| i as f32).collect();
        let (our_keys, our_table) = (device.upload(&keys)?, device.upload(&table)?);
        let gather = self.row(
            "gather_us",
            |bed| bed.launch(&compute::gather, grid, (&our_keys, &our_table, &our_y)),
            || y.par_iter_mut().zip(&keys).for_each(|(y, &key)| *y = table[key as usize]),
        )?;
        same("gather", &our_y, &y)?;
        Ok(vec![saxpy, sum, gather])
    }

    fn collatz(&self) -> Result<Row> {
        let mut steps = vec![0u32; NUMBERS];
        let ours = self.bed.device.upload(&steps)?;
        let row = self.row(
            "collatz_us",
            |bed| bed.launch(&compute::collatz, Grid::new(GRID.0, GRID.1), (&ours,)),
            || steps.par_iter_mut().enumerate().for_each(|(i, steps)| *steps = compute::steps_to_one(i)),
        )?;
        same("collatz", &ours, &steps)?;
        Ok(row)
    }

    fn nbody(&self) -> Result<Row> {
        let body = |i: usize| [0.37, 0.61, 0.13].map(|by| i as f32 * by % 1.0);
        let bodies: Vec<[f32; 4]> = (0..BODIES).map(body).map(|[x, y, z]| [x, y, z, 1.0]).collect();
        let mut forces = vec![0.0f32; 3 * BODIES];
        let (our_bodies, ours) = (self.bed.device.upload(&bodies)?, self.bed.device.upload(&forces)?);
        let row = self.row(
            "nbody_us",
            |bed| bed.launch(&compute::nbody, Grid::new(BODIES as u32 / 256, 256), (&our_bodies, &ours)),
            || {
                let each = forces.par_chunks_exact_mut(3).zip(&bodies);
                each.for_each(|(out, body)| out.copy_from_slice(&compute::force(body, &bodies)));
            },
        )?;
        same("nbody", &ours, &forces)?;
        Ok(row)
    }

    fn matmul(&self) -> Result<Row> {
        let tiles = ROWS / 8;
        let a: Vec<_> = (0..ROWS * ROWS).map(|i| (i * 7 % 16) as f32).collect();
        let b: Vec<_> = (0..ROWS * ROWS).map(|i| (i * 5 % 8) as f32).collect();
        let mut c = vec![0.0f32; ROWS * ROWS];
        let device = &self.bed.device;
        let (our_a, our_b, ours) = (device.upload(&a)?, device.upload(&b)?, device.upload(&c)?);
        let grid = Grid::new((tiles * tiles).div_ceil(256) as u32, 256);
        let row = self.row(
            "matmul_us",
            |bed| bed.launch(&compute::matmul, grid, (tiles as u32, &our_a, &our_b, &ours)),
            || {
                let strips = c.par_chunks_exact_mut(8 * ROWS).enumerate();
                strips.for_each(|(strip, c)| {
                    for column in (0..ROWS).step_by(8) {
                        let sums = compute::tile(&a, &b, ROWS, strip * 8, column);
                        for (row, sums) in sums.iter().enumerate() {
                            c[row * ROWS + column..][..8].copy_from_slice(sums);
                        }
                    }
                });
            },
        )?;
        same("matmul", &ours, &c)?;
        Ok(row)
    }
}

/// Compares what the device has computed with what rayon's threads have, bit for bit.
fn same<T: PartialEq + hostcall::hostcall_device::Plain + Copy>(
    name: &str,
    ours: &DeviceBuffer<T>,
    theirs: &[T],
) -> Result<()> {
    if ours.read()? == theirs { Ok(()) } else { Err(format!("{name} computes something else").into()) }
}
