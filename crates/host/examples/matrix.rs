//! Multiplies two matrices by tiles: a workgroup reads a tile of each into its memory, where all of its lanes use it.
//!
//! `cargo run --release -p hostcall --example matrix -- [TILES]`
//!
//! The numbers are small and whole, so that products are exact; they are compared with those of three plain loops.

use hostcall::{Device, Global, Grid, Lane, LaunchKernel, Shared, kernel};
use std::error::Error;

/// Lanes of a workgroup, and numbers of a tile, in x and y.
const TILE: usize = 16;

/// Writes `a * b` to `c`, matrices of `size` rows and columns, which are a multiple of [`TILE`]. A lane makes one number.
#[kernel(max_lanes = 256)]
fn multiply(
    lane: &Lane,
    #[workgroup] of_a: &[[Shared<f32>; TILE]; TILE],
    #[workgroup] of_b: &[[Shared<f32>; TILE]; TILE],
    size: u32,
    a: &[f32],
    b: &[f32],
    c: &[Global<f32>],
) {
    let size = size as usize;
    let ([x, y, _], [tile_x, tile_y, _]) = (lane.position().map(|at| at as usize), lane.workgroup());
    let (column, row) = (tile_x as usize * TILE + x, tile_y as usize * TILE + y);
    let mut sum = 0.0;
    for tile in (0..size).step_by(TILE) {
        of_a[y][x].set(a[row * size + tile + x]);
        of_b[y][x].set(b[(tile + y) * size + column]);
        lane.barrier();
        for i in 0..TILE {
            sum += of_a[y][i].get() * of_b[i][x].get();
        }
        lane.barrier();
    }
    c[row * size + column].set(sum);
}

fn main() -> Result<(), Box<dyn Error>> {
    let tiles = std::env::args().nth(1).map_or(Ok(4), |tiles| tiles.parse::<u32>())?;
    let size = tiles as usize * TILE;
    let device = Device::open("cpu")?;
    let stream = device.stream()?;
    let numbers = |seed: usize| (0..size * size).map(|i| (i * seed % 17) as f32 - 8.0).collect::<Vec<f32>>();
    let (a, b) = (numbers(5), numbers(11));
    let (buffer_a, buffer_b) = (device.upload(&a)?, device.upload(&b)?);
    let c = device.alloc_zeroed::<f32>(size * size)?;
    let grid = Grid::new_3d([tiles, tiles, 1], [TILE as u32, TILE as u32, 1]);
    multiply.launch(&stream, grid, (size as u32, &buffer_a, &buffer_b, &c))?;
    stream.synchronize()?;
    for (i, found) in c.read()?.into_iter().enumerate() {
        let (row, column) = (i / size, i % size);
        let expected: f32 = (0..size).map(|k| a[row * size + k] * b[k * size + column]).sum();
        if found != expected {
            return Err(format!("row {row}, column {column}: {found} is not {expected}").into());
        }
    }
    println!("{size} by {size} numbers, as three loops make them");
    Ok(())
}
