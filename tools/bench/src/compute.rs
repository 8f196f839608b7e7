//! Kernels that compute, beside the same algorithms in CUDA C++, compiled by `nvcc -O3` in the same run. Times are those of the
//! device's events before and after the launch.

use crate::run::{Bed, Options, Result, Row};
use hostcall::{DeviceBuffer, Grid, LaunchKernel};
use hostcall_bench_kernels::compute::{self, Four};
use std::process::Command;

/// Turns of which the best counts, as in `compute.cu`.
const TURNS: u32 = 8;

/// How much there is to compute: on GPUs as in `compute.cu`, with vectors of 256 MiB, more than any cache holds.
struct Sizes {
    floats: usize,
    /// Entries of the table that `gather` looks up: 4 MiB.
    table: usize,
    collatz: usize,
    bodies: usize,
    /// Rows and columns of matrices, a multiple of 64.
    rows: usize,
}

const OF_GPU: Sizes =
    Sizes { floats: 1 << 26, table: 1 << 20, collatz: 1 << 22, bodies: 1 << 16, rows: 2048 };

/// The software device's lanes share the machine's cores.
const OF_SOFTWARE: Sizes =
    Sizes { floats: 1 << 19, table: 1 << 16, collatz: 1 << 13, bodies: 1 << 9, rows: 128 };

/// A kernel and its grid: name of the row, kernel, workgroups (0: as many as there is work for), lanes of each.
type Case = (&'static str, &'static str, u32, u32);

const CASES: [Case; 17] = [
    ("saxpy_us", "saxpy", 1056, 256),
    // From an eighth of the lanes that an H200 can hold to all of them.
    ("sum_132x256_us", "sum", 132, 256),
    ("sum_264x256_us", "sum", 264, 256),
    ("sum_528x256_us", "sum", 528, 256),
    ("sum_656x256_us", "sum", 656, 256),
    ("sum_us", "sum", 1056, 256),
    ("sum_264x1024_us", "sum", 264, 1024),
    ("gather_us", "gather", 1056, 256),
    ("collatz_us", "collatz", 1056, 256),
    ("nbody_us", "nbody", 0, 256),
    ("matmul_us", "matmul", 0, 256),
    ("matmul_tiled_us", "matmul_tiled", 0, 256),
    ("reduce_us", "reduce", 1056, 256),
    // The rival is CUB's.
    ("reduce_cub_us", "reduce", 1056, 256),
    ("histogram_us", "histogram", 1056, 256),
    ("histogram_528_us", "histogram", 528, 256),
    ("scan_us", "scan", 0, 256),
];

/// Times each case, and checks what the kernels computed.
pub fn compute(options: &Options) -> Result<Vec<Row>> {
    beside(nvcc_us()?.as_deref(), options)
}

/// Times each case beside times of CUDA C++, if there are any, and checks what the kernels computed.
fn beside(rivals: Option<&[Option<f64>]>, options: &Options) -> Result<Vec<Row>> {
    let bed = Bed::open(options, None, None)?;
    let work = Work::new(&bed, if options.is_software() { &OF_SOFTWARE } else { &OF_GPU })?;
    let mut rows = vec![];
    for (at, case) in CASES.iter().enumerate() {
        let mut best_us = f64::MAX;
        for turn in 0..TURNS {
            best_us = best_us.min(work.run(&bed, case, turn)?);
        }
        work.check(case).map_err(|wrong| format!("{}: {wrong}", case.0))?;
        let rival = rivals.and_then(|rivals| rivals[at]);
        rows.push(Row::time(case.0, "us", best_us, rival));
    }
    Ok(rows)
}

/// What the kernels take, with values whose results are exact in `f32`, whatever the order of sums.
struct Work {
    sizes: &'static Sizes,
    x: DeviceBuffer<f32>,
    x_fours: DeviceBuffer<Four>,
    out: DeviceBuffer<f32>,
    keys: DeviceBuffer<u32>,
    hashes: DeviceBuffer<u32>,
    table: DeviceBuffer<f32>,
    integers: DeviceBuffer<u32>,
    steps: DeviceBuffer<u32>,
    counts: DeviceBuffer<u32>,
    bodies: DeviceBuffer<[f32; 4]>,
    forces: DeviceBuffer<f32>,
    a: DeviceBuffer<f32>,
    b: DeviceBuffer<f32>,
    a_fours: DeviceBuffer<Four>,
    b_fours: DeviceBuffer<Four>,
    c: DeviceBuffer<f32>,
}

/// Numbers that look like chance.
fn hash(i: usize) -> u32 {
    (i as u32).wrapping_mul(2_654_435_761)
}

fn key(i: usize, sizes: &Sizes) -> u32 {
    hash(i) >> 8 & (sizes.table as u32 - 1)
}

fn body(i: usize) -> [f32; 4] {
    let i = i as f32;
    [i * 0.37 % 1.0, i * 0.61 % 1.0, i * 0.13 % 1.0, 1.0]
}

fn of_a(i: usize) -> f32 {
    (i * 7 % 16) as f32
}

fn of_b(i: usize) -> f32 {
    (i * 5 % 8) as f32
}

fn fours(count: usize, of: impl Fn(usize) -> f32) -> Vec<Four> {
    (0..count / 4).map(|i| Four([0, 1, 2, 3].map(|j| of(4 * i + j)))).collect()
}

/// What saxpy's turns begin with, and the numbers that it and the sums add.
const FIRST: f32 = 0.5;
const EACH: f32 = 1.5;

impl Work {
    fn new(bed: &Bed, sizes: &'static Sizes) -> Result<Self> {
        let device = &bed.device;
        let (floats, entries) = (sizes.floats, sizes.rows * sizes.rows);
        let vector = |count: usize, of: &dyn Fn(usize) -> f32| (0..count).map(of).collect::<Vec<_>>();
        Ok(Self {
            sizes,
            x: device.upload(&vec![EACH; floats])?,
            x_fours: device.upload(&fours(floats, |_| EACH))?,
            out: device.upload(&vec![FIRST; floats])?,
            keys: device.upload(&(0..floats).map(|i| key(i, sizes)).collect::<Vec<_>>())?,
            hashes: device.upload(&(0..floats).map(hash).collect::<Vec<_>>())?,
            table: device.upload(&vector(sizes.table, &|i| i as f32))?,
            integers: device.alloc_zeroed(floats)?,
            steps: device.alloc_zeroed(sizes.collatz)?,
            counts: device.alloc_zeroed(256)?,
            bodies: device.upload(&(0..sizes.bodies).map(body).collect::<Vec<_>>())?,
            forces: device.alloc_zeroed(3 * sizes.bodies)?,
            a: device.upload(&vector(entries, &of_a))?,
            b: device.upload(&vector(entries, &of_b))?,
            a_fours: device.upload(&fours(entries, of_a))?,
            b_fours: device.upload(&fours(entries, of_b))?,
            c: device.alloc_zeroed(entries)?,
        })
    }

    /// Runs a case once. Returns the microseconds between the events around it.
    fn run(&self, bed: &Bed, &(_, kernel, workgroups, lanes): &Case, turn: u32) -> Result<f64> {
        let stream = bed.stream();
        let tiles = (self.sizes.rows / 8) as u32;
        let workgroups = match kernel {
            "nbody" => self.sizes.bodies as u32 / lanes,
            "matmul" => (tiles * tiles).div_ceil(lanes),
            "matmul_tiled" => (tiles / 8) * (tiles / 8),
            "scan" => self.sizes.floats as u32 / 2048,
            _ => workgroups,
        };
        match kernel {
            "saxpy" if turn == 0 => self.out.write(&vec![FIRST; self.sizes.floats])?,
            "reduce" => self.out.part(..1)?.write(&[0.0])?,
            "histogram" => self.counts.write(&[0; 256])?,
            _ => {}
        }
        let grid = Grid::new(workgroups, lanes);
        let begin = stream.record()?;
        match kernel {
            "saxpy" => compute::saxpy.launch(stream, grid, (2.0f32, &self.x, &self.out))?,
            "sum" => compute::sum.launch(stream, grid, (&self.x, &self.out))?,
            "gather" => compute::gather.launch(stream, grid, (&self.keys, &self.table, &self.out))?,
            "collatz" => compute::collatz.launch(stream, grid, (&self.steps,))?,
            "nbody" => compute::nbody.launch(stream, grid, (&self.bodies, &self.forces))?,
            "matmul" => compute::matmul.launch(stream, grid, (tiles, &self.a, &self.b, &self.c))?,
            "matmul_tiled" => compute::matmul_tiled.launch(
                stream,
                grid,
                (tiles / 8, &self.a_fours, &self.b_fours, &self.c),
            )?,
            "reduce" => compute::reduce.launch(stream, grid, (&self.x_fours, &self.out))?,
            "histogram" => compute::histogram.launch(stream, grid, (&self.hashes, &self.counts))?,
            _ => compute::scan.launch(stream, grid, (&self.keys, &self.integers))?,
        };
        let end = stream.record()?;
        bed.synchronize()?;
        let elapsed = end.elapsed_since(&begin)?.ok_or("the events have no time")?;
        Ok(elapsed.as_secs_f64() * 1e6)
    }

    /// Says what is wrong with a case's results, after its last turn.
    fn check(&self, &(_, kernel, workgroups, lanes): &Case) -> Result<()> {
        let sizes = self.sizes;
        let same = |what: &str, place: usize, is: f64, expected: f64, error: f64| -> Result<()> {
            if (is - expected).abs() <= expected.abs() * error {
                return Ok(());
            }
            Err(format!("{what} {place} is {is}, not {expected}").into())
        };
        match kernel {
            "saxpy" => {
                let expected = FIRST + TURNS as f32 * 2.0 * EACH;
                let out = self.out.read()?;
                out.iter()
                    .enumerate()
                    .try_for_each(|(i, &y)| same("number", i, y.into(), expected.into(), 0.0))
            }
            "sum" => {
                let sums = self.out.part(..(workgroups * lanes) as usize)?.read()?;
                let total = sums.iter().copied().map(f64::from).sum();
                same("sum of lanes", 0, total, sizes.floats as f64 * f64::from(EACH), 0.0)
            }
            "gather" => {
                let out = self.out.read()?;
                let each =
                    |(i, &value): (usize, &f32)| same("value", i, value.into(), key(i, sizes).into(), 0.0);
                out.iter().enumerate().try_for_each(each)
            }
            "collatz" => {
                let steps = self.steps.read()?;
                let each = |i: usize| same("number", i, steps[i].into(), collatz_steps(i).into(), 0.0);
                (0..1000).chain(steps.len() - 1000..steps.len()).try_for_each(each)
            }
            "nbody" => {
                let forces = self.forces.read()?;
                [0, 5, sizes.bodies - 1].into_iter().try_for_each(|i| {
                    let expected = force(i, sizes.bodies);
                    let size = expected.iter().map(|part| part * part).sum::<f64>().sqrt();
                    let apart: f64 =
                        (0..3).map(|axis| (f64::from(forces[3 * i + axis]) - expected[axis]).powi(2)).sum();
                    same("force on body", i, size + apart.sqrt(), size, 1e-3)
                })
            }
            "matmul" | "matmul_tiled" => {
                let (n, c) = (sizes.rows, self.c.read()?);
                (0..200).map(|i| i * 7919 % (n * n)).try_for_each(|at| {
                    let (row, column) = (at / n, at % n);
                    let products = (0..n).map(|k| f64::from(of_a(row * n + k) * of_b(k * n + column)));
                    same("entry", at, c[at].into(), products.sum(), 0.0)
                })?;
                // The other kernel finds nothing of this one's.
                Ok(self.c.write(&vec![0.0; n * n])?)
            }
            "reduce" => {
                let total = self.out.part(..1)?.read()?[0];
                // Workgroups add in any order, to a number of 24 bits.
                same("total", 0, total.into(), sizes.floats as f64 * f64::from(EACH), 1e-5)
            }
            "histogram" => {
                let mut expected = [0u32; 256];
                (0..sizes.floats).for_each(|i| expected[(hash(i) >> 24) as usize] += 1);
                let counts = self.counts.read()?;
                (0..256).try_for_each(|i| same("count", i, counts[i].into(), expected[i].into(), 0.0))
            }
            _ => {
                let out = self.integers.read()?;
                let mut up_to = 0;
                out.iter().enumerate().try_for_each(|(i, &value)| {
                    up_to = if i % 2048 == 0 { 0 } else { up_to } + key(i, sizes);
                    same("sum up to", i, value.into(), up_to.into(), 0.0)
                })
            }
        }
    }
}

/// Steps from the number of this place to 1.
fn collatz_steps(i: usize) -> u32 {
    let (mut value, mut count) = (i as u64 + 1, 0);
    while value != 1 {
        value = if value.is_multiple_of(2) { value / 2 } else { 3 * value + 1 };
        count += 1;
    }
    count
}

/// What all bodies do to one, with twice the digits.
fn force(i: usize, bodies: usize) -> [f64; 3] {
    let wide = |i| body(i).map(f64::from);
    let own = wide(i);
    let mut sum = [0.0; 3];
    for other in (0..bodies).map(wide) {
        let apart = [0, 1, 2].map(|axis| other[axis] - own[axis]);
        let square = apart.iter().map(|part| part * part).sum::<f64>() + 1e-4;
        for axis in 0..3 {
            sum[axis] += apart[axis] * other[3] / (square * square.sqrt());
        }
    }
    sum
}

/// Returns the microseconds of each case in CUDA C++, or `None` where there is no `nvcc`. A case of which the toolkit lacks the
/// headers has none.
fn nvcc_us() -> Result<Option<Vec<Option<f64>>>> {
    if Command::new("nvcc").arg("--version").output().is_err() {
        return Ok(None);
    }
    let folder = std::env::temp_dir().join(format!("hostcall-bench-compute-{}", std::process::id()));
    std::fs::create_dir_all(&folder)?;
    let (source, program) = (folder.join("compute.cu"), folder.join("compute"));
    std::fs::write(&source, include_str!("compute.cu"))?;
    let run = |command: &mut Command| -> Result<String> {
        let output = command.output()?;
        if !output.status.success() {
            return Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()).into());
        }
        Ok(String::from_utf8(output.stdout)?)
    };
    let compile = ["-O3", "-std=c++17", "-arch=native", "-o"];
    let result = run(Command::new("nvcc").args(compile).arg(&program).arg(&source)).and_then(|_| {
        let cases = CASES.iter().map(|(name, kernel, workgroups, lanes)| {
            let kernel = if *name == "reduce_cub_us" { "cub" } else { kernel };
            format!("{kernel}:{workgroups}:{lanes}")
        });
        run(Command::new(&program).args(cases))
    });
    std::fs::remove_dir_all(&folder)?;
    let times: Vec<Option<f64>> = result?.lines().map(|line| line.parse().ok()).collect();
    if times.len() != CASES.len() {
        return Err(format!("the CUDA program timed {} cases of {}", times.len(), CASES.len()).into());
    }
    Ok(Some(times))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_compute_what_is_expected_of_them() {
        let options = Options { device: "cpu".into(), image: None, repeats: 1, only: vec![] };
        assert_eq!(beside(None, &options).unwrap().len(), CASES.len());
    }
}
