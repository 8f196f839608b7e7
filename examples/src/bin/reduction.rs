//! Sums a large array, in workgroups and by atomic addition, and compares the sum with the host's. The numbers are whole, so
//! that it is exact in any order.

use clap::Parser;
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::reduction::add_up;
use std::error::Error;
use std::process::ExitCode;

/// Adds up many numbers
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// How many numbers
    #[arg(long, default_value_t = 1 << 20, value_parser = clap::value_parser!(u64).range(..=1 << 28))]
    numbers: u64,
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    // ANCHOR: run
    let device = hostcall_examples::device(&arguments.device).open()?;
    let stream = device.stream()?;
    let numbers: Vec<f32> = (0..arguments.numbers).map(|i| (i * 7919 % 4001) as f32 - 2000.0).collect();
    let (buffer, sum) = (device.upload(&numbers)?, device.alloc_zeroed::<f64>(1)?);
    add_up.launch(&stream, Grid::new(64, 256), (&buffer, &sum))?;
    stream.synchronize()?;
    let found = sum.read()?[0];
    // ANCHOR_END: run
    let expected: f64 = numbers.iter().map(|x| f64::from(*x)).sum();
    println!("{} numbers add up to {found}", numbers.len());
    if found != expected {
        return Err(format!("the host's sum is {expected}").into());
    }
    Ok(())
}
