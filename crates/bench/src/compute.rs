//! Kernels that compute, beside the same algorithms in CUDA C++, compiled by `nvcc -O3` in the same run.

use crate::run::{Bed, Options, Result, Row};
use hostcall::Grid;
use hostcall_bench_kernels::compute;
use std::fmt::Write;
use std::process::Command;
use std::time::Instant;

/// Floats of each vector: 256 MiB, more than any cache holds. As in `compute.cu`.
const FLOATS: usize = 1 << 26;

/// Turns of which the best counts, as in `compute.cu`.
const TURNS: usize = 8;

/// A kernel and its grid: name of the row, kernel, workgroups, lanes of each.
type Case = (&'static str, &'static str, u32, u32);

/// From an eighth of the lanes that an H200 can hold to all of them.
const CASES: [Case; 7] = [
    ("saxpy_1056x256_us", "saxpy", 1056, 256),
    ("sum_132x256_us", "sum", 132, 256),
    ("sum_264x256_us", "sum", 264, 256),
    ("sum_528x256_us", "sum", 528, 256),
    ("sum_656x256_us", "sum", 656, 256),
    ("sum_1056x256_us", "sum", 1056, 256),
    ("sum_264x1024_us", "sum", 264, 1024),
];

/// Times each case.
pub fn compute(options: &Options) -> Result<Vec<Row>> {
    let rivals = nvcc_us()?;
    let bed = Bed::open(options, None, None)?;
    let x = bed.device.upload(&vec![1.5f32; FLOATS])?;
    let y = bed.device.upload(&vec![0.5f32; FLOATS])?;
    let mut rows = vec![];
    for (at, (name, kernel, workgroups, lanes)) in CASES.into_iter().enumerate() {
        let grid = Grid::new(workgroups, lanes);
        let mut best_us = f64::MAX;
        for _ in 0..TURNS {
            let start = Instant::now();
            match kernel {
                "saxpy" => bed.launch(&compute::saxpy, grid, (2.0f32, &x, &y))?,
                _ => bed.launch(&compute::sum, grid, (&x, &y))?,
            }
            bed.synchronize()?;
            best_us = best_us.min(start.elapsed().as_secs_f64() * 1e6);
        }
        rows.push(Row::time(name, "us", best_us, rivals.as_ref().map(|rivals| rivals[at])));
    }
    // Each lane of the last case added as many elements as every other, all of them 1.5.
    let expected = FLOATS as f32 / (264.0 * 1024.0) * 1.5;
    let sum = y.read()?[0];
    if (sum - expected).abs() > expected * 0.01 {
        return Err(format!("a lane's sum is {sum}, not about {expected}").into());
    }
    Ok(rows)
}

/// Returns the microseconds of each case in CUDA C++, or `None` where there is no `nvcc`.
fn nvcc_us() -> Result<Option<Vec<f64>>> {
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
    let result = run(Command::new("nvcc").args(["-O3", "-arch=native", "-o"]).arg(&program).arg(&source))
        .and_then(|_| {
            let cases = CASES.iter().map(|(_, kernel, workgroups, lanes)| {
                let mut case = String::new();
                let _ = write!(case, "{kernel}:{workgroups}:{lanes}");
                case
            });
            run(Command::new(&program).args(cases))
        });
    std::fs::remove_dir_all(&folder)?;
    let times: Vec<f64> = result?.lines().map(str::parse).collect::<std::result::Result<_, _>>()?;
    if times.len() != CASES.len() {
        return Err(format!("the CUDA program timed {} cases of {}", times.len(), CASES.len()).into());
    }
    Ok(Some(times))
}
