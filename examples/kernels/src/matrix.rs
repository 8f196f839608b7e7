//! A product of matrices by tiles: a workgroup reads a tile of each matrix into its memory, where all of its lanes use it.

use hostcall_device::{Global, Lane, Shared, kernel};

// ANCHOR: multiply
/// Lanes of a workgroup, and numbers of a tile, in x and y.
pub const TILE: usize = 16;

/// Writes `a * b` to `c`, matrices of `size` rows and columns, which are a multiple of [`TILE`]. A lane makes one number.
#[kernel(max_lanes = 256)]
pub fn multiply(
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
// ANCHOR_END: multiply
