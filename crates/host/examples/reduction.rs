//! Sums a large array: each workgroup its part, by a reduction in workgroup memory, and the device the workgroups' sums, by
//! atomic addition.
//!
//! `cargo run --release -p hostcall --example reduction -- [NUMBERS]`
//!
//! The numbers are whole, so that the sum is exact in any order; it is compared with the host's.

use hostcall::atomic::Scope;
use hostcall::workgroup::Scratch;
use hostcall::{Device, Global, Grid, Lane, LaunchKernel, kernel, wave};
use std::error::Error;
use std::sync::atomic::Ordering::Relaxed;

/// Adds the numbers to `sum`. Each lane takes every so-manieth number, with as many lanes as the grid has.
#[kernel]
fn add_up(lane: &Lane, #[workgroup] scratch: &Scratch<f64>, numbers: &[f32], sum: &Global<f64>) {
    let own = numbers.iter().skip(lane.global_id()).step_by(lane.grid_lanes()).map(|x| f64::from(*x)).sum();
    let of_workgroup = lane.workgroup_reduce(scratch, own, wave::Add);
    if lane.local_id() == 0 {
        sum.fetch_add(of_workgroup, Relaxed, Scope::Device);
    }
}

fn main() -> Result<(), Box<dyn Error>> {
    let count = std::env::args().nth(1).map_or(Ok(1 << 20), |count| count.parse::<usize>())?;
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let numbers: Vec<f32> = (0..count).map(|i| (i * 7919 % 4001) as f32 - 2000.0).collect();
    let (buffer, sum) = (device.upload(&numbers)?, device.alloc_zeroed::<f64>(1)?);
    add_up.launch(&stream, Grid::new(64, 256), (&buffer, &sum))?;
    stream.synchronize()?;
    let (found, expected) = (sum.read()?[0], numbers.iter().map(|x| f64::from(*x)).sum::<f64>());
    println!("{count} numbers add up to {found}");
    if found != expected {
        return Err(format!("the host's sum is {expected}").into());
    }
    Ok(())
}
