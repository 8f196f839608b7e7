//! Kernels that compute and call nothing: what compilers and launches make of them shows beside the same algorithms in CUDA C++
//! (`tools/bench/src/compute.cu`). Those that take vectors have each lane take its share.

use core::sync::atomic::Ordering::Relaxed;
use hostcall_device::atomic::Scope;
use hostcall_device::workgroup::Scratch;
use hostcall_device::{Disjoint, Global, Lane, Plain, Shared, kernel, wave};

/// `y = a·x + y`.
#[kernel]
pub fn saxpy(lane: &Lane, a: f32, x: &[f32], mut y: Disjoint<'_, f32>) {
    let x = &x[..y.len()];
    for (i, y) in y.share(lane) {
        *y += a * x[i];
    }
}

/// Each lane's part of the sum of `x` goes to its place in `sums`.
#[kernel]
pub fn sum(lane: &Lane, x: &[f32], sums: &[Global<f32>]) {
    let mut sum = 0.0;
    for i in lane.share(x.len()) {
        sum += x[i];
    }
    sums[lane.global_id()].set(sum);
}

/// Looks keys up in a table.
#[kernel]
pub fn gather(lane: &Lane, keys: &[u32], table: &[f32], out: &[Global<f32>]) {
    for i in lane.share(keys.len().min(out.len())) {
        out[i].set(table[keys[i] as usize]);
    }
}

/// How many steps of Collatz's sequence lead to 1 from the number of this place.
#[inline(always)]
pub fn steps_to_one(place: usize) -> u32 {
    let (mut value, mut count) = (place as u64 + 1, 0);
    while value != 1 {
        value = if value % 2 == 0 { value / 2 } else { 3 * value + 1 };
        count += 1;
    }
    count
}

/// How many steps of Collatz's sequence lead from each number to 1.
#[kernel]
pub fn collatz(lane: &Lane, steps: &[Global<u32>]) {
    for i in lane.share(steps.len()) {
        steps[i].set(steps_to_one(i));
    }
}

/// 1 / √x by a guess and three of Newton's steps.
fn inverse_root(x: f32) -> f32 {
    let guess = f32::from_bits(0x5f37_59df - (x.to_bits() >> 1));
    (0..3).fold(guess, |y, _| y * (1.5 - 0.5 * x * y * y))
}

/// What all bodies (x, y, z, mass) do to one.
#[inline(always)]
pub fn force([x, y, z, _]: &[f32; 4], bodies: &[[f32; 4]]) -> [f32; 3] {
    let mut force = [0.0; 3];
    for other in bodies {
        let apart = [other[0] - x, other[1] - y, other[2] - z];
        let [dx, dy, dz] = apart;
        let inverse = inverse_root(dx * dx + dy * dy + dz * dz + 1e-4);
        let weight = other[3] * inverse * inverse * inverse;
        for axis in 0..3 {
            force[axis] += apart[axis] * weight;
        }
    }
    force
}

/// What all bodies (x, y, z, mass) do to the one of each lane.
#[kernel]
pub fn nbody(lane: &Lane, bodies: &[[f32; 4]], out: &[Global<f32>]) {
    let i = lane.global_id();
    if i >= bodies.len() {
        return;
    }
    let force = force(&bodies[i], bodies);
    for axis in 0..3 {
        out[3 * i + axis].set(force[axis]);
    }
}

/// 8 × 8 numbers of `a·b`, from this row and column on, of matrices of `n` rows and columns. They are in registers.
#[inline(always)]
pub fn tile(a: &[f32], b: &[f32], n: usize, row: usize, column: usize) -> [[f32; 8]; 8] {
    // Checked here, and so not in the loop: an index below `n` is one of each row, and the eight columns are some of `n`.
    assert!(column <= n && n - column >= 8);
    let rows: [&[f32]; 8] = core::array::from_fn(|i| &a[(row + i) * n..][..n]);
    let mut sums = [[0.0; 8]; 8];
    for (k, from_b) in (0..n).zip(b.chunks_exact(n)) {
        let from_b = &from_b[column..][..8];
        for i in 0..8 {
            for j in 0..8 {
                sums[i][j] += rows[i][k] * from_b[j];
            }
        }
    }
    sums
}

/// `c = a·b` of matrices of `8·tiles` rows and columns, each lane 8 × 8 numbers, which it has in registers.
#[kernel(max_lanes = 256)]
pub fn matmul(lane: &Lane, tiles: u32, a: &[f32], b: &[f32], c: &[Global<f32>]) {
    let tiles = tiles as usize;
    let n = 8 * tiles;
    if lane.global_id() >= tiles * tiles {
        return;
    }
    let (row, column) = (lane.global_id() / tiles * 8, lane.global_id() % tiles * 8);
    let sums = tile(a, b, n, row, column);
    for i in 0..8 {
        for j in 0..8 {
            c[(row + i) * n + column + j].set(sums[i][j]);
        }
    }
}

/// Four numbers that a lane reads at once.
#[derive(Clone, Copy, Plain)]
#[repr(C, align(16))]
pub struct Four(pub [f32; 4]);

/// Strips of 64 rows of `a` and of 64 columns of `b`, 16 numbers long, which the lanes of a workgroup share.
pub type AStrip = [[Shared<[f32; 4]>; 4]; 64];
pub type BStrip = [[Shared<[f32; 4]>; 16]; 16];

/// Adds the products of two strips to the 4 × 4 numbers of the lane at this place.
#[inline(always)]
pub fn add_strip(sums: &mut [[f32; 4]; 4], [x, y]: [usize; 2], a_strip: &AStrip, b_strip: &BStrip) {
    for four in 0..4 {
        let from_a: [[f32; 4]; 4] = core::array::from_fn(|i| a_strip[y * 4 + i][four].get());
        for k in 0..4 {
            let from_b = b_strip[four * 4 + k][x].get();
            for i in 0..4 {
                for j in 0..4 {
                    sums[i][j] += from_a[i][k] * from_b[j];
                }
            }
        }
    }
}

/// `c = a·b` of square matrices of `64·tiles` rows. Each workgroup of 256 lanes makes 64 × 64 numbers of `c`, of strips of
/// 16 numbers that its lanes share; each lane 4 × 4.
#[kernel(max_lanes = 256)]
pub fn matmul_tiled(
    lane: &Lane,
    #[workgroup] a_strip: &[[Shared<[f32; 4]>; 4]; 64],
    #[workgroup] b_strip: &[[Shared<[f32; 4]>; 16]; 16],
    tiles: u32,
    a: &[Four],
    b: &[Four],
    c: &[Global<f32>],
) {
    let tiles = tiles as usize;
    let fours = 16 * tiles; // of a row
    let workgroup = lane.workgroup()[0] as usize;
    let (tile_row, tile_column) = (workgroup / tiles, workgroup % tiles);
    let (x, y) = (lane.local_id() % 16, lane.local_id() / 16 % 16);
    // Which four numbers of a strip the lane brings.
    let (a_row, a_four) = (lane.local_id() / 4 % 64, lane.local_id() % 4);
    let mut sums = [[0.0; 4]; 4];
    for strip in 0..4 * tiles {
        lane.barrier(); // before the last strip is written over
        a_strip[a_row][a_four].set(a[(tile_row * 64 + a_row) * fours + strip * 4 + a_four].0);
        b_strip[y][x].set(b[(strip * 16 + y) * fours + tile_column * 16 + x].0);
        lane.barrier();
        add_strip(&mut sums, [x, y], a_strip, b_strip);
    }
    for i in 0..4 {
        for j in 0..4 {
            c[(tile_row * 64 + y * 4 + i) * 4 * fours + tile_column * 64 + x * 4 + j].set(sums[i][j]);
        }
    }
}

/// Adds the sum of `x` to `total`: each workgroup that of its part.
#[kernel(max_lanes = 256)]
pub fn reduce(lane: &Lane, #[workgroup] scratch: &Scratch<f32>, x: &[Four], total: &Global<f32>) {
    let mut own = [0.0; 4];
    for i in lane.share(x.len()) {
        let four = x[i].0;
        for j in 0..4 {
            own[j] += four[j];
        }
    }
    let part = lane.workgroup_reduce(scratch, (own[0] + own[1]) + (own[2] + own[3]), wave::Add);
    if lane.local_id() == 0 {
        total.fetch_add(part, Relaxed, Scope::Device);
    }
}

/// How often each of 256 values is the top byte of a number.
#[kernel(max_lanes = 256)]
pub fn histogram(lane: &Lane, #[workgroup] counts: &[Shared<u32>; 256], x: &[u32], out: &[Global<u32>]) {
    let own = lane.local_id() % 256;
    counts[own].set(0);
    lane.barrier();
    for i in lane.share(x.len()) {
        counts[(x[i] >> 24) as usize].fetch_add(1, Relaxed);
    }
    lane.barrier();
    out[own].fetch_add(counts[own].get(), Relaxed, Scope::Device);
}

/// The sums up to each number of a segment of 2048, one segment for each workgroup of 256 lanes.
#[kernel(max_lanes = 256)]
pub fn scan(
    lane: &Lane,
    #[workgroup] scratch: &Scratch<u32>,
    #[workgroup] last: &Shared<u32>,
    x: &[u32],
    out: &[Global<u32>],
) {
    let segment = lane.workgroup()[0] as usize * 2048;
    let mut before = 0;
    for step in 0..8 {
        let i = segment + step * 256 + lane.local_id();
        let own = x.get(i).copied().unwrap_or(0);
        let up_to = lane.workgroup_scan(scratch, own, wave::Add) + before;
        if let Some(cell) = out.get(i) {
            cell.set(up_to);
        }
        if lane.local_id() == 255 {
            last.set(up_to);
        }
        lane.barrier();
        before = last.get();
    }
}
