//! Multiplies two matrices by tiles in workgroup memory, and compares the product with that of three plain loops. The numbers
//! are small and whole, so that products are exact.

use clap::Parser;
use hostcall::{Grid, LaunchKernel};
use hostcall_examples::println;
use hostcall_examples_kernels::matrix::{TILE, multiply};
use std::error::Error;
use std::process::ExitCode;

/// Multiplies two matrices
#[derive(Parser)]
struct Arguments {
    /// Device to run on
    #[arg(default_value = "cpu")]
    device: String,
    /// Rows and columns in tiles of 16
    #[arg(long, default_value_t = 16, value_parser = clap::value_parser!(u32).range(1..=256))]
    tiles: u32,
}

fn main() -> ExitCode {
    hostcall_examples::main(run)
}

fn run(arguments: &Arguments) -> Result<(), Box<dyn Error>> {
    let tiles = arguments.tiles;
    let size = tiles as usize * TILE;
    let device = hostcall_examples::device(&arguments.device).open()?;
    let stream = device.stream()?;
    let numbers = |seed: usize| (0..size * size).map(|i| (i * seed % 17) as f32 - 8.0).collect::<Vec<f32>>();
    let (a, b) = (numbers(5), numbers(11));
    // ANCHOR: launch
    let (buffer_a, buffer_b) = (device.upload(&a)?, device.upload(&b)?);
    let c = device.alloc_zeroed::<f32>(size * size)?;
    let grid = Grid::new_3d([tiles, tiles, 1], [TILE as u32, TILE as u32, 1]);
    multiply.launch(&stream, grid, (size as u32, &buffer_a, &buffer_b, &c))?;
    stream.synchronize()?;
    // ANCHOR_END: launch
    let mut expected = vec![0.0; size * size];
    for (row, sums) in expected.chunks_exact_mut(size).enumerate() {
        for (a, b) in a[row * size..].iter().zip(b.chunks_exact(size)) {
            sums.iter_mut().zip(b).for_each(|(sum, b)| *sum += a * b);
        }
    }
    let found = c.read()?;
    if let Some(i) = (0..size * size).find(|i| found[*i] != expected[*i]) {
        let (row, column) = (i / size, i % size);
        return Err(format!("row {row}, column {column}: {} is not {}", found[i], expected[i]).into());
    }
    println!("{size} by {size} numbers, as three loops make them");
    Ok(())
}
