//! Sorts keys by a bitonic network, and compares them with keys that the host sorted.

use clap::Parser;
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::sort::{LANES, TILE, merge_far, merge_near, sort_tiles};
use std::error::Error;
use std::process::ExitCode;

/// Sorts keys
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// How many keys
    #[arg(long, default_value_t = 1_000_000, value_parser = clap::value_parser!(u32).range(1..=1 << 28))]
    keys: u32,
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let mut keys: Vec<u32> = (0..arguments.keys).map(|i| i.wrapping_mul(2_654_435_769) >> 3).collect();
    let device = hostcall_examples::device(&arguments.device).open()?;
    let stream = device.stream()?;
    // A network is for powers of two. What is added comes last.
    let mut padded = keys.clone();
    padded.resize(keys.len().next_power_of_two().max(TILE), u32::MAX);
    let buffer = device.upload(&padded)?;

    // ANCHOR: launches
    let grid = Grid::new((padded.len() / TILE) as u32, LANES);
    sort_tiles.launch(&stream, grid, (&buffer,))?;
    let mut run = 2 * TILE;
    while run <= padded.len() {
        let mut distance = run / 2;
        while distance >= TILE {
            merge_far.launch(&stream, grid, (&buffer, distance as u32, run as u32))?;
            distance /= 2;
        }
        merge_near.launch(&stream, grid, (&buffer, run as u32))?;
        run *= 2;
    }
    stream.synchronize()?;
    // ANCHOR_END: launches

    let found = buffer.read()?;
    keys.sort_unstable();
    if found[..keys.len()] != keys {
        return Err("the host sorts otherwise".into());
    }
    println!("{} keys from {} to {}", keys.len(), keys[0], keys[keys.len() - 1]);
    Ok(())
}
