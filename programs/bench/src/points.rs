//! Kernels that compute, each with a span for every tile of its work and without: what trace points cost while nobody records them,
//! and while somebody does.

use crate::compute::{Four, add_strip, force};
use hostcall_device::raw::{DropNewest, RawStream};
use hostcall_device::{Global, Lane, Shared, kernel, span};

/// A bare record of as many bytes as that of a counter.
pub type Bare = [u64; 4];

/// `count` bare records, one after the other.
#[kernel(max_lanes = 256)]
pub fn bare_records(lane: &Lane, ns: &[Global<u64>], count: u64, to: RawStream<'_, Bare, DropNewest>) {
    let start = lane.clock_ns();
    for i in 0..count {
        to.write(lane, &[i, start, 0, 0]);
    }
    ns[lane.global_id()].set(lane.clock_ns() - start);
}

macro_rules! nbody {
    ($($(#[$doc:meta])* $name:ident: $($point:expr)?;)*) => {$(
        $(#[$doc])*
        #[kernel(max_lanes = 256)]
        pub fn $name(lane: &Lane, tile: u32, bodies: &[Four], out: &[Global<f32>]) {
            let i = lane.global_id();
            if i >= bodies.len() {
                return;
            }
            let (own, mut sum) = (bodies[i].0, [0.0; 3]);
            for tile in bodies.chunks((tile as usize).max(1)) {
                $(let _point = $point;)?
                for other in tile {
                    let part = force(&own, &[other.0]);
                    for axis in 0..3 {
                        sum[axis] += part[axis];
                    }
                }
            }
            for axis in 0..3 {
                out[3 * i + axis].set(sum[axis]);
            }
        }
    )*};
}

nbody! {
    /// What all bodies (x, y, z, mass) do to the one of each lane, `tile` bodies after the others.
    nbody_by_tiles: ;
    /// The same with a span a tile.
    nbody_with_spans: span!("tile of bodies");
}

macro_rules! matmul {
    ($($(#[$doc:meta])* $name:ident: $($point:expr)?;)*) => {$(
        $(#[$doc])*
        #[kernel(max_lanes = 256)]
        pub fn $name(
            lane: &Lane,
            #[workgroup] a_strip: &[[Shared<[f32; 4]>; 4]; 64],
            #[workgroup] b_strip: &[[Shared<[f32; 4]>; 16]; 16],
            tile: u32,
            tiles: u32,
            a: &[Four],
            b: &[Four],
            c: &[Global<f32>],
        ) {
            let (tile, tiles) = ((tile as usize).max(1), tiles as usize);
            let fours = 16 * tiles; // of a row
            let workgroup = lane.workgroup()[0] as usize;
            let (tile_row, tile_column) = (workgroup / tiles, workgroup % tiles);
            let (x, y) = (lane.local_id() % 16, lane.local_id() / 16 % 16);
            // Which four numbers of a strip the lane brings.
            let (a_row, a_four) = (lane.local_id() / 4 % 64, lane.local_id() % 4);
            let mut sums = [[0.0; 4]; 4];
            for first in (0..4 * tiles).step_by(tile) {
                $(let _point = $point;)?
                for strip in first..(first + tile).min(4 * tiles) {
                    lane.barrier(); // before the last strip is written over
                    a_strip[a_row][a_four].set(a[(tile_row * 64 + a_row) * fours + strip * 4 + a_four].0);
                    b_strip[y][x].set(b[(strip * 16 + y) * fours + tile_column * 16 + x].0);
                    lane.barrier();
                    add_strip(&mut sums, [x, y], a_strip, b_strip);
                }
            }
            for i in 0..4 {
                for j in 0..4 {
                    c[(tile_row * 64 + y * 4 + i) * 4 * fours + tile_column * 64 + x * 4 + j].set(sums[i][j]);
                }
            }
        }
    )*};
}

matmul! {
    /// `c = a·b` of square matrices of `64·tiles` rows as `matmul_tiled` makes it, `tile` strips of 16 numbers after the others.
    matmul_by_tiles: ;
    /// The same with a span a tile.
    matmul_with_spans: span!("tile of strips");
}
